//! A pointwise convolution and the depthwise one that reads it, as in inverted residual blocks
//! (Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018).
//!
//! The image between the two is several times as large as input and output, so writing it to memory
//! and reading it again takes longer than computing it. Here a band of its rows is computed into
//! scratch memory that stays in the second-level cache, and the rows of the output that depend on
//! the band right after. Rows that the next band needs, too, are kept. Each number is computed like
//! in [`PackedConv::run`], so the results have the same bits.

use super::depthwise::Depthwise;
use super::direct::Direct;
use super::{
    Algorithm, ConvEpilogue, ConvError, Geometry, ImageSizes, Job, Order, Ordered, OrderedMut,
    PackedConv, Padded, RawOrdered, Side, check_memory,
};
use crate::conv::pitch_of;
use crate::gemm::{SendPtr, TileEpilogue};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Ended, Operation, Pool, Work};

/// Work: units of work per thread, so that a late thread does not make all others wait.
const UNITS_PER_THREAD: usize = 2;
/// Work: fewest output rows of a unit of work if a plane is cut. Each unit computes the first rows
/// of its bands itself, though another unit may have them.
const LEAST_ROWS: usize = 14;
/// Work: fewest output rows of a unit if threads would be idle otherwise.
const LEAST_ROWS_OF_THREAD: usize = 4;

/// A pointwise convolution whose results are the input of a depthwise one.
#[derive(Clone, Copy, Debug)]
pub struct ExpandedConv<'a> {
    expansion: &'a PackedConv,
    depthwise: &'a PackedConv,
}

/// Epilogues of both convolutions.
#[derive(Clone, Copy, Debug)]
pub struct ExpandedEpilogues<'a> {
    /// Epilogue of the pointwise convolution, without residual and factor.
    pub expansion: &'a ConvEpilogue<'a>,
    pub depthwise: &'a ConvEpilogue<'a>,
}

/// Epilogues of both convolutions whose sizes have been checked.
struct TileEpilogues {
    expansion: TileEpilogue,
    depthwise: TileEpilogue,
}

/// Sizes of the images of both convolutions.
struct BothSizes {
    expansion: ImageSizes,
    depthwise: ImageSizes,
}

/// A cut of the work.
#[derive(Clone, Copy, Debug)]
struct Bands {
    threads: usize,
    /// Output rows of a band, an even number if more than one.
    rows: usize,
    /// Number of units of work into which the rows of a plane are cut.
    parts: usize,
    /// Floats of a row of the band.
    line: usize,
    /// Floats of the whole band.
    floats: usize,
}

/// State shared by all units of a call.
struct Units<'a> {
    bands: Bands,
    expansion: Direct<'a>,
    depthwise: Depthwise<'a>,
}

impl<'a> ExpandedConv<'a> {
    /// Joins two convolutions of two spatial axes.
    ///
    /// # Errors
    ///
    /// If the first is not pointwise, the second not depthwise, or their channels differ.
    pub fn new(
        expansion: &'a PackedConv,
        depthwise: &'a PackedConv,
    ) -> Result<ExpandedConv<'a>, ConvError> {
        let is_direct = matches!(expansion.algorithm, Algorithm::Direct(_));
        if !is_direct || !expansion.geometry.is_pointwise() {
            return Err(ConvError::Algorithm(expansion.algorithm));
        }
        if depthwise.algorithm != Algorithm::Depthwise {
            return Err(ConvError::Algorithm(depthwise.algorithm));
        }
        for conv in [expansion, depthwise] {
            let rank = conv.params.kernel.len();
            if rank != 2 {
                return Err(ConvError::Rank { want: 2, got: rank });
            }
        }
        let (want, got) = (depthwise.params.in_channels, expansion.params.out_channels);
        if want != got {
            return Err(ConvError::Length { what: "the expansion", want, got });
        }
        Ok(ExpandedConv { expansion, depthwise })
    }

    /// Returns an upper bound of the scratch memory in bytes that [`ExpandedConv::run`] takes on
    /// all threads, except a few KB.
    ///
    /// # Errors
    ///
    /// If the kernel is larger than the padded input, or the size exceeds any memory.
    pub fn scratch(
        &self,
        pool: &Pool,
        images: usize,
        spatial: &[usize],
        input: Order,
        output: Order,
    ) -> Result<usize, ConvError> {
        let sizes = self.sizes(images, spatial)?;
        if sizes.depthwise.is_empty(&self.depthwise.params) {
            return Ok(0);
        }
        if output == Order::Rows || self.has_few_bands(pool, &sizes) {
            let order = self.order();
            let first = self.expansion.scratch(pool, images, spatial, input, order)?;
            let second = self.depthwise.scratch(pool, images, spatial, order, output)?;
            let floats = self.expanded_floats(&sizes.expansion)?;
            return check_memory((floats * size_of::<f32>()).saturating_add(first.max(second)));
        }
        let (input, output) = (RawOrdered::without_data(input), RawOrdered::without_data(output));
        let plain =
            TileEpilogues { expansion: TileEpilogue::PLAIN, depthwise: TileEpilogue::PLAIN };
        check_memory(self.make_units(pool, &sizes, input, output, plain)?.scratch())
    }

    /// Convolves `images` images of spatial size `spatial` by both convolutions.
    ///
    /// # Errors
    ///
    /// In the cases of [`PackedConv::run`], or if the epilogue of the expansion has a residual or a
    /// factor.
    pub fn run(
        &self,
        pool: &Pool,
        images: usize,
        spatial: &[usize],
        input: Ordered<'_>,
        output: OrderedMut<'_>,
        epilogues: ExpandedEpilogues<'_>,
    ) -> Result<(), ConvError> {
        let ExpandedEpilogues { expansion: first, depthwise: second } = epilogues;
        for (what, part) in [("residual", first.residual), ("factor", first.factor)] {
            if part.is_some() {
                return Err(ConvError::Order { what });
            }
        }
        let order = self.order();
        let sizes = self.sizes(images, spatial)?;
        if output.order == Order::Rows || self.has_few_bands(pool, &sizes) {
            // Planes are written as a whole, not in bands.
            return with_scratch(self.expanded_floats(&sizes.expansion)?, |data| {
                let to = OrderedMut { data: &mut *data, order };
                self.expansion.run(pool, images, spatial, input, to, first)?;
                let from = Ordered { data: &*data, order };
                self.depthwise.run(pool, images, spatial, from, output, second)
            });
        }
        self.expansion.check_input(&sizes.expansion, &input)?;
        self.depthwise.check_output(&sizes.depthwise, &output, second)?;
        self.expansion.check_bias(first)?;
        if sizes.depthwise.is_empty(&self.depthwise.params) {
            return Ok(());
        }
        let epilogues = TileEpilogues {
            expansion: first.raw(order, sizes.expansion.out_plane),
            depthwise: second.raw(output.order, sizes.depthwise.out_plane),
        };
        let units = self.make_units(pool, &sizes, input.raw(), output.raw(), epilogues)?;
        check_memory(units.scratch())?;
        pool.run_on(units.bands.threads, images * units.bands.parts, |unit| units.run(unit))?;
        Ok(())
    }

    /// Returns the sizes of the images of both convolutions.
    fn sizes(&self, images: usize, spatial: &[usize]) -> Result<BothSizes, ConvError> {
        Ok(BothSizes {
            expansion: ImageSizes::new(&self.expansion.params, images, spatial)?,
            depthwise: ImageSizes::new(&self.depthwise.params, images, spatial)?,
        })
    }

    /// Whether threads wait for each other less if the second convolution starts after the first:
    /// with bands of so few rows that each copies more than it computes, less than three quarters
    /// of the threads would be busy.
    fn has_few_bands(&self, pool: &Pool, sizes: &BothSizes) -> bool {
        let BothSizes { expansion, depthwise } = sizes;
        let params = &self.expansion.params;
        let outputs = expansion.images.saturating_mul(expansion.out_plane);
        let depth = params.in_channels.saturating_mul(params.out_channels);
        let macs = outputs.saturating_mul(depth);
        let threads = Work::new(Operation::MultiplyAdd, macs).threads(pool);
        let rows = depthwise.out_dims[1];
        let bands = depthwise.images.max(1) * (rows / LEAST_ROWS_OF_THREAD).max(1);
        threads > 1 && 4 * bands < 3 * threads
    }

    /// Returns the layout of the image between the two convolutions.
    fn order(&self) -> Order {
        Order::ChannelsLast { pitch: pitch_of(self.depthwise.params.in_channels) }
    }

    /// Returns the floats of all images between the two convolutions.
    fn expanded_floats(&self, sizes: &ImageSizes) -> Result<usize, ConvError> {
        let channels = self.expansion.params.out_channels;
        let floats = self.order().len(sizes.images, channels, sizes.out_plane);
        let floats = floats.ok_or(ConvError::TooLarge)?;
        check_memory(floats.saturating_mul(size_of::<f32>()))?;
        Ok(floats)
    }

    /// Prepares the units of a call whose sizes have been checked.
    fn make_units<'s>(
        &'s self,
        pool: &Pool,
        sizes: &'s BothSizes,
        input: RawOrdered,
        output: RawOrdered,
        epilogues: TileEpilogues,
    ) -> Result<Units<'s>, ConvError> {
        // Units set the memory of their bands.
        let band = RawOrdered::without_data(self.order());
        let padded = Padded { geometry: &self.expansion.geometry, sizes: &sizes.expansion };
        let expansion = match self.expansion.job(padded, input, band, epilogues.expansion) {
            // Rows of a plane are computed one band after the other.
            Job::Direct(direct) => Direct {
                images: sizes.depthwise.images,
                in_dims: sizes.expansion.in_dims,
                out_dims: sizes.expansion.out_dims,
                ..direct
            },
            _ => return Err(ConvError::Algorithm(self.expansion.algorithm)),
        };
        let padded = Padded { geometry: &self.depthwise.geometry, sizes: &sizes.depthwise };
        let depthwise = match self.depthwise.job(padded, band, output, epilogues.depthwise) {
            Job::Depthwise(depthwise) => depthwise,
            _ => return Err(ConvError::Algorithm(self.depthwise.algorithm)),
        };
        let threads = expansion.threads(pool);
        let bands = self.cut_bands(threads, depthwise.geometry, &sizes.depthwise)?;
        Ok(Units { bands, expansion, depthwise })
    }

    /// Cuts the rows of images into bands and units for threads.
    fn cut_bands(
        &self,
        threads: usize,
        geometry: &Geometry,
        sizes: &ImageSizes,
    ) -> Result<Bands, ConvError> {
        let [_, _, in_w] = sizes.in_dims;
        let [_, out_h, _] = sizes.out_dims;
        let pitch = pitch_of(self.depthwise.params.in_channels);
        let line = in_w.checked_mul(pitch).ok_or(ConvError::TooLarge)?;
        let taps = geometry.extent(1, 1);
        // A band takes a third of the second-level cache, which weights and input share. Rows that
        // fit beyond those of the first output are a stride apart.
        let band = self.depthwise.caches.own_floats(1, 3);
        let more = (band / line.max(1)).saturating_sub(taps) / geometry.strides[1];
        let rows = (more + 1).min(out_h);
        let rows = if rows > 1 { rows / 2 * 2 } else { 1 };
        let wanted = if threads == 1 { 1 } else { threads * UNITS_PER_THREAD };
        let images = sizes.images.max(1);
        let for_threads = threads.div_ceil(images).min(out_h / LEAST_ROWS_OF_THREAD);
        let parts = wanted.div_ceil(images).min(out_h / LEAST_ROWS).max(for_threads).max(1);
        let floats = geometry.extent(1, rows).checked_mul(line).ok_or(ConvError::TooLarge)?;
        Ok(Bands { threads, rows, parts, line, floats })
    }
}

impl Units<'_> {
    /// Returns the bytes of scratch memory of all threads.
    fn scratch(&self) -> usize {
        let threads = self.bands.threads.min(self.depthwise.images * self.bands.parts);
        let band = self.bands.floats.saturating_mul(size_of::<f32>());
        let [_, in_h, _] = self.expansion.in_dims;
        let rows = self.depthwise.geometry.extent(1, self.bands.rows).min(in_h);
        let expansion = self.rows(0, 0, rows, std::ptr::null_mut()).scratch(Pool::serial());
        band.saturating_add(expansion).saturating_mul(threads)
    }

    /// Returns the pointwise convolution of some rows of an image into memory of their own.
    fn rows(&self, image: usize, first: usize, rows: usize, to: *mut f32) -> Direct<'_> {
        let Direct { conv, geometry, input, output, epilogue, in_dims, .. } = self.expansion;
        let width = in_dims[2];
        let data = SendPtr(input.pixel(image, first * width));
        let dims = [1, 1, rows * width];
        Direct {
            conv,
            geometry,
            images: 1,
            in_dims: dims,
            out_dims: dims,
            input: Side { data, ..input },
            gate: None,
            output: Side { data: SendPtr(to), plane: rows * width, ..output },
            epilogue,
        }
    }

    /// Computes the output rows of a unit, band by band.
    fn run(&self, unit: usize) -> Result<(), Ended> {
        let Bands { rows: most, parts, line, floats, .. } = self.bands;
        let (part, image) = (unit % parts, unit / parts);
        let g = self.depthwise.geometry;
        let [_, in_h, _] = self.depthwise.in_dims;
        let [_, out_h, _] = self.depthwise.out_dims;
        let pairs = sardonyx_simd::split_even(out_h.div_ceil(2), parts, part);
        let rows = pairs.start * 2..out_h.min(pairs.end * 2);
        let plane = self.depthwise.input.plane;
        let pitch = line / self.depthwise.in_dims[2].max(1);
        with_scratch(floats, |band| {
            // Rows of the depthwise input that the band holds.
            let mut have = 0..0usize;
            for start in rows.clone().step_by(most) {
                let end = rows.end.min(start + most);
                let inside = |row: usize| row.saturating_sub(g.pads_begin[1]).min(in_h);
                let first = inside(start * g.strides[1]);
                let last = inside(start * g.strides[1] + g.extent(1, end - start)).max(first);
                let kept = have.end.saturating_sub(first.max(have.start)).min(last - first);
                if kept > 0 {
                    let from = (first - have.start) * line;
                    band.copy_within(from..from + kept * line, 0);
                }
                let missing = last - first - kept;
                if missing > 0 {
                    let to = band[kept * line..].as_mut_ptr();
                    self.rows(image, first + kept, missing, to).run_here()?;
                }
                have = first..last;
                // The whole image would begin before the band.
                let before = (image * plane + first * self.depthwise.in_dims[2]) * pitch;
                let data = SendPtr(band.as_mut_ptr().wrapping_sub(before));
                let input = Side { data, ..self.depthwise.input };
                Depthwise { input, ..self.depthwise }.run_rows(image, start..end);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    // A failure to set up a case is a failed test.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::conv::{ConvParams, Lasts, Operands, WeightSource, product};
    use crate::gemm::Activation;
    use crate::gemm::tests::random;
    use sardonyx_simd::Isa;

    /// A case: images, channels before and after the expansion, spatial size, and parameters of the
    /// depthwise convolution: kernel, strides, dilations, zeros before and after.
    type Case = (usize, [usize; 2], [usize; 2], [[usize; 2]; 5]);

    const CASES: &[Case] = &[
        (1, [16, 64], [112, 112], [[3, 3], [2, 2], [1, 1], [1, 1], [1, 1]]),
        (3, [24, 72], [56, 57], [[3, 3], [1, 1], [1, 1], [1, 1], [1, 1]]),
        (2, [5, 37], [40, 90], [[5, 5], [1, 1], [1, 1], [2, 2], [2, 2]]),
        (2, [40, 250], [33, 30], [[7, 7], [2, 2], [1, 1], [3, 3], [3, 3]]),
        (1, [3, 130], [61, 64], [[3, 5], [1, 3], [4, 2], [4, 0], [4, 1]]),
        // Windows that skip rows, and some in padding alone.
        (2, [8, 96], [50, 70], [[2, 2], [3, 3], [1, 1], [7, 7], [5, 9]]),
        // Rows that are larger than a band.
        (1, [2, 1100], [6, 90], [[3, 3], [1, 1], [1, 1], [1, 1], [1, 1]]),
        (4, [33, 17], [1, 1], [[3, 3], [1, 1], [1, 1], [1, 1], [1, 1]]),
        (0, [3, 5], [9, 9], [[3, 3], [1, 1], [1, 1], [1, 1], [1, 1]]),
    ];

    const OPERANDS: [Operands; 3] = [Operands::Exact, Operands::Rounded, Operands::Tiles];

    fn make_numbers(
        images: usize,
        channels: usize,
        plane: usize,
        order: Order,
        seed: u64,
    ) -> Vec<f32> {
        random(order.len(images, channels, plane).unwrap(), seed)
    }

    #[test]
    fn results_have_the_bits_of_one_after_the_other() {
        let pools = [Pool::new(1), Pool::new(2), Pool::new(3), Pool::new(16)];
        for &(images, [few, many], spatial, [kernel, strides, dilations, begin, end]) in CASES {
            let first = ConvParams::new(few, many, &[1, 1]);
            let second = ConvParams {
                groups: many,
                strides: strides[..].into(),
                dilations: dilations[..].into(),
                pads_begin: begin[..].into(),
                pads_end: end[..].into(),
                ..ConvParams::new(many, many, &kernel)
            };
            let in_plane = product(&spatial).unwrap();
            let plane = product(&second.output_dims(&spatial).unwrap()).unwrap();
            let weights = random(few * many, 1);
            let taps = random(many * product(&kernel).unwrap(), 2);
            let biases = [random(many, 3), random(many, 4)];
            let last = |channels: usize| Order::ChannelsLast { pitch: pitch_of(channels) };
            for (isa, operands) in
                Isa::available().iter().flat_map(|isa| OPERANDS.map(|operands| (*isa, operands)))
            {
                let pack = |params: &ConvParams, algorithm, weights: &[f32]| {
                    let source = WeightSource::Floats(weights);
                    PackedConv::from_source(
                        isa,
                        params.clone(),
                        algorithm,
                        source,
                        None,
                        Lasts::ForGood,
                    )
                };
                // Not every machine rounds operands.
                let Ok(expansion) = pack(&first, Algorithm::Direct(operands), &weights) else {
                    continue;
                };
                let depthwise = pack(&second, Algorithm::Depthwise, &taps).unwrap();
                let both = ExpandedConv::new(&expansion, &depthwise).unwrap();
                for (from, to) in [
                    (last(few), last(many)),
                    (Order::ChannelsLast { pitch: few + 3 }, last(many + 20)),
                    (Order::Rows, last(many)),
                    (last(few), Order::Rows),
                ] {
                    let input = make_numbers(images, few, in_plane, from, 5);
                    let input = Ordered { data: &input, order: from };
                    let residual = make_numbers(images, many, plane, to, 6);
                    let endings = [
                        ConvEpilogue {
                            bias: Some(&biases[0]),
                            activation: Activation::Relu,
                            ..ConvEpilogue::default()
                        },
                        ConvEpilogue {
                            bias: Some(&biases[1]),
                            residual: Some(Ordered { data: &residual, order: to }),
                            activation: Activation::Sigmoid,
                            ..ConvEpilogue::default()
                        },
                    ];
                    let mut between = make_numbers(images, many, in_plane, last(many), 7);
                    let mut want = make_numbers(images, many, plane, to, 8);
                    let inner = OrderedMut { data: &mut between, order: last(many) };
                    expansion.run(&pools[0], images, &spatial, input, inner, &endings[0]).unwrap();
                    let inner = Ordered { data: &between, order: last(many) };
                    let out = OrderedMut { data: &mut want, order: to };
                    depthwise.run(&pools[0], images, &spatial, inner, out, &endings[1]).unwrap();
                    for pool in &pools {
                        let mut got = make_numbers(images, many, plane, to, 8);
                        let out = OrderedMut { data: &mut got, order: to };
                        let [one, two] = &endings;
                        let epilogues = ExpandedEpilogues { expansion: one, depthwise: two };
                        both.run(pool, images, &spatial, input, out, epilogues).unwrap();
                        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                        let what = format!("{many} channels {spatial:?} {isa:?} {from:?} {to:?}");
                        assert!(bits(&got) == bits(&want), "{what}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let pack = |params: ConvParams, algorithm| {
            let weights = random(params.weights_len().unwrap(), 1);
            let source = WeightSource::Floats(&weights);
            PackedConv::from_source(Isa::detect(), params, algorithm, source, None, Lasts::ForGood)
                .unwrap()
        };
        let direct = Algorithm::Direct(Operands::Exact);
        let expansion = pack(ConvParams::new(3, 8, &[1, 1]), direct);
        let of_nine = ConvParams { groups: 9, ..ConvParams::new(9, 9, &[3, 3]) };
        let of_eight = ConvParams { groups: 8, ..ConvParams::new(8, 8, &[3, 3]) };
        let of_nine = pack(of_nine, Algorithm::Depthwise);
        let of_eight = pack(of_eight, Algorithm::Depthwise);
        let wide = pack(ConvParams::new(3, 8, &[3, 3]), direct);
        assert!(ExpandedConv::new(&expansion, &of_nine).is_err());
        assert!(ExpandedConv::new(&wide, &of_eight).is_err());
        assert!(ExpandedConv::new(&expansion, &expansion).is_err());
        let both = ExpandedConv::new(&expansion, &of_eight).unwrap();
        let (plain, input) = (ConvEpilogue::default(), random(3 * 25, 2));
        let last = |pitch: usize| Order::ChannelsLast { pitch };
        let mut out = vec![0.0; 9 * 16];
        let mut run = |input: &[f32], floats: usize, epilogue: &ConvEpilogue<'_>| {
            let input = Ordered { data: input, order: last(3) };
            let out = OrderedMut { data: &mut out[..floats], order: last(16) };
            let epilogues = ExpandedEpilogues { expansion: epilogue, depthwise: &plain };
            both.run(Pool::serial(), 1, &[5, 5], input, out, epilogues)
        };
        assert_eq!(run(&input, 9 * 16, &plain), Ok(()));
        assert!(run(&input[1..], 9 * 16, &plain).is_err());
        assert!(run(&input, 8 * 16, &plain).is_err());
        assert!(run(&input, 9 * 16, &ConvEpilogue { bias: Some(&[1.0]), ..plain }).is_err());
        let residual = Some(Ordered { data: &input, order: last(3) });
        assert!(run(&input, 9 * 16, &ConvEpilogue { residual, ..plain }).is_err());
    }
}
