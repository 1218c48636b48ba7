//! Convolutions of floats of 16 bits: bands of images are widened into scratch memory, convolved as
//! floats, and rounded once.
//!
//! A band is some rows of outputs along the first spatial axis, with the rows of inputs under them.
//! It stays in the second-level cache, so that memory only sees 16 bits. A band is a convolution of
//! its own, with its part of the padding, by the algorithm of the whole image.

use std::ops::Range;
use std::sync::OnceLock;

use super::{
    ConvEpilogue, ConvError, ConvParams, Geometry, ImageSizes, Order, Ordered, OrderedMut,
    PackedConv, Padded, PerAxis, check_len,
};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Exec, Level, Operation, Pool, Work};

/// Cache: floats of the inputs and outputs of a band, a quarter of a second-level cache, or as many
/// as the weights if these are more, as each band reads them again.
const BAND: usize = 1 << 17;
/// Sums: divisor of the rows of outputs of a band, if it has as many, so that tiles of Winograd's
/// algorithm begin where they begin in the whole image.
const TOGETHER: usize = 8;

/// A cut of images into bands.
struct Bands<'a> {
    conv: &'a PackedConv,
    images: usize,
    spatial: &'a [usize],
    /// Numbers of rows of the input and of the output.
    rows: usize,
    out_rows: usize,
    /// Elements of a row of a channel of the input and of the output.
    row: usize,
    out_row: usize,
    /// Number of rows of outputs of a band.
    each: usize,
}

/// Rows of a band.
struct Band {
    inputs: Range<usize>,
    outputs: Range<usize>,
    /// Numbers of rows of padding before and after the inputs.
    pads: [usize; 2],
}

impl<'a> Bands<'a> {
    fn new(
        conv: &'a PackedConv,
        images: usize,
        spatial: &'a [usize],
    ) -> Result<Bands<'a>, ConvError> {
        let params = conv.params();
        ImageSizes::new(params, images, spatial)?;
        let out_dims = params.output_dims(spatial)?;
        let row = spatial.iter().skip(1).product::<usize>();
        let out_row = out_dims.iter().skip(1).product::<usize>();
        let (rows, out_rows) = match (spatial.first(), out_dims.first()) {
            (Some(rows), Some(out_rows)) => (*rows, *out_rows),
            _ => (1, 1),
        };
        let mut bands =
            Bands { conv, images, spatial, rows, out_rows, row, out_row, each: out_rows };
        // A band of rows that only read padding would have no input.
        let reach = bands.extent(1);
        let pads = [params.pads_begin.first(), params.pads_end.first()];
        if pads.into_iter().flatten().all(|pad| *pad < reach) {
            bands.each = bands.most_rows();
        }
        Ok(bands)
    }

    /// Returns the number of rows of outputs of a band, at least one.
    fn most_rows(&self) -> usize {
        let band = BAND.max(self.conv.weights.len());
        if self.floats(self.out_rows) <= band {
            return self.out_rows;
        }
        // Each further row takes as many floats as the one before.
        let (one, two) = (self.floats(1), self.floats(2));
        let most = 1 + band.saturating_sub(one) / two.saturating_sub(one).max(1);
        let most = most.min(self.out_rows);
        if most >= TOGETHER { most / TOGETHER * TOGETHER } else { most }
    }

    /// Returns the number of rows of inputs, or of padding, from which `out_rows` neighbouring rows
    /// of outputs are computed.
    fn extent(&self, out_rows: usize) -> usize {
        let params = self.conv.params();
        match (params.strides.first(), params.kernel.first(), params.dilations.first()) {
            (Some(stride), Some(kernel), Some(dilation)) => {
                (out_rows.max(1) - 1) * stride + (kernel - 1) * dilation + 1
            }
            _ => out_rows,
        }
    }

    /// Returns an upper bound of the floats of the inputs and outputs of `out_rows` rows of
    /// outputs.
    fn floats(&self, out_rows: usize) -> usize {
        let params = self.conv.params();
        let inputs = self.extent(out_rows).min(self.rows) * self.row;
        let inputs = inputs.saturating_mul(params.in_channels);
        inputs.saturating_add((out_rows * self.out_row).saturating_mul(params.out_channels))
    }

    /// Returns the number of bands of an image.
    fn count(&self) -> usize {
        self.out_rows.div_ceil(self.each.max(1))
    }

    /// Returns the number of threads that compute bands of their own, and the pool that computes a
    /// band.
    fn share<'p>(&self, exec: &Exec<'p>) -> (usize, &'p Pool) {
        let params = self.conv.params();
        let steps = self.conv.geometry.taps().saturating_mul(params.in_channels / params.groups);
        let sizes = [self.images, params.out_channels, self.out_rows, self.out_row];
        let macs = sizes.iter().fold(steps, |macs, size| macs.saturating_mul(*size));
        let work = Work::new(Operation::ShortMultiplyAdd, macs);
        let threads = work.threads(exec.pool);
        if threads > 1 && self.images * self.count() >= threads {
            (threads, Pool::serial())
        } else {
            (1, exec.pool)
        }
    }

    /// Returns the rows of band `index` of an image.
    fn band(&self, index: usize) -> Band {
        let outputs = index * self.each..self.out_rows.min((index + 1) * self.each);
        let params = self.conv.params();
        if self.count() == 1 {
            let pads = [&params.pads_begin, &params.pads_end];
            let pads = pads.map(|pads| pads.first().copied().unwrap_or(0));
            return Band { inputs: 0..self.rows, outputs, pads };
        }
        let stride = params.strides.first().copied().unwrap_or(1);
        let pad = params.pads_begin.first().copied().unwrap_or(0);
        let start = outputs.start * stride;
        let end = start + self.extent(outputs.len());
        let beyond = pad + self.rows;
        Band {
            inputs: start.max(pad) - pad..end.min(beyond) - pad,
            outputs,
            pads: [pad.saturating_sub(start), end.saturating_sub(beyond)],
        }
    }

    /// Returns the geometry of the convolution of a band, and the sizes of its images.
    fn convolution(&self, band: &Band) -> Result<(Geometry, ImageSizes), ConvError> {
        let mut params = self.conv.params().clone();
        let mut spatial = PerAxis::from(self.spatial);
        let firsts =
            (params.pads_begin.first_mut(), params.pads_end.first_mut(), spatial.first_mut());
        if let (Some(begin), Some(end), Some(rows)) = firsts {
            (*begin, *end) = (band.pads[0], band.pads[1]);
            *rows = band.inputs.len();
        }
        Ok((Geometry::new(&params)?, ImageSizes::new(&params, 1, &spatial)?))
    }
}

impl PackedConv {
    /// Returns an upper bound of the scratch memory in bytes that [`conv_narrow`] takes on all
    /// threads, except a few KB.
    ///
    /// # Errors
    ///
    /// In the cases of [`PackedConv::scratch`].
    pub fn narrow_scratch(
        &self,
        exec: &Exec<'_>,
        images: usize,
        spatial: &[usize],
    ) -> Result<usize, ConvError> {
        let bands = Bands::new(self, images, spatial)?;
        if bands.each == 0 || images == 0 {
            return Ok(0);
        }
        let (geometry, sizes) = bands.convolution(&bands.band(0))?;
        let (threads, pool) = bands.share(exec);
        let padded = Padded { geometry: &geometry, sizes: &sizes };
        let own = self.padded_scratch(pool, padded, Order::Rows, Order::Rows)?;
        let floats = bands.floats(bands.each).saturating_mul(size_of::<f32>());
        Ok(own.saturating_add(floats).saturating_mul(threads))
    }
}

/// Convolves `images` images in rows, of spatial size `spatial`. The epilogue may only have a bias
/// and an activation.
///
/// # Errors
///
/// In the cases of [`PackedConv::run`].
pub fn conv_narrow<T: Number<Wide = f32>>(
    exec: &Exec<'_>,
    conv: &PackedConv,
    images: usize,
    spatial: &[usize],
    x: &[T],
    epilogue: &ConvEpilogue<'_>,
    y: &mut [T],
) -> Result<(), ConvError> {
    let bands = Bands::new(conv, images, spatial)?;
    let ConvParams { in_channels, out_channels, .. } = *conv.params();
    let too_large = ConvError::TooLarge;
    let image = Order::Rows.len(1, in_channels, bands.rows * bands.row).ok_or(too_large)?;
    let out_image = Order::Rows.len(1, out_channels, bands.out_rows * bands.out_row);
    let out_image = out_image.ok_or(too_large)?;
    check_len("input", image * images, x.len())?;
    check_len("output", out_image * images, y.len())?;
    if y.is_empty() {
        return Ok(());
    }
    let level = Level::new(exec.isa);
    let y = Shared::new(y);
    let (count, units) = (bands.count(), images * bands.count());
    let (threads, pool) = bands.share(exec);
    let failed = OnceLock::new();
    let run_unit = |unit: usize| {
        let (image, band) = (unit / count, bands.band(unit % count));
        let (geometry, sizes) = bands.convolution(&band)?;
        let (len, out_len) = (band.inputs.len() * bands.row, band.outputs.len() * bands.out_row);
        with_scratch(len * in_channels + out_len * out_channels, |wide| {
            let (wide_x, wide_y) = wide.split_at_mut(len * in_channels);
            let shared = Shared::new(&mut *wide_x);
            ranges(pool, in_channels, len, |channels| {
                for channel in channels {
                    let first = (image * in_channels + channel) * bands.rows + band.inputs.start;
                    // SAFETY: each channel has its own part.
                    let wide = unsafe { shared.part(channel * len, len) };
                    T::widen_all(level, &x[first * bands.row..][..len], wide);
                }
            })?;
            let input = Ordered { data: wide_x, order: Order::Rows };
            let output = OrderedMut { data: &mut *wide_y, order: Order::Rows };
            let padded = Padded { geometry: &geometry, sizes: &sizes };
            conv.run_padded(pool, padded, input, output, epilogue)?;
            ranges(pool, out_channels, out_len, |channels| {
                for channel in channels {
                    let first = (image * out_channels + channel) * bands.out_rows;
                    let first = (first + band.outputs.start) * bands.out_row;
                    // SAFETY: each channel of each band has its own part.
                    let y = unsafe { y.part(first, out_len) };
                    T::narrow_all(level, &wide_y[channel * out_len..][..out_len], y);
                }
            })?;
            Ok::<_, ConvError>(())
        })
    };
    if threads == 1 {
        return (0..units).try_for_each(run_unit);
    }
    exec.pool.run_on(threads, units, |unit| match run_unit(unit) {
        Err(ConvError::Ended(ended)) => Err(ended),
        Err(error) => {
            // The first error is returned.
            let _ = failed.set(error);
            Ok(())
        }
        Ok(()) => Ok::<(), Ended>(()),
    })?;
    failed.into_inner().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::conv::conv_naive;
    use sardonyx_simd::{Isa, Pool};

    /// Makes numbers whose products and sums are exact in every type.
    fn numbers<T: Number>(len: usize, salt: usize) -> Vec<T> {
        (0..len).map(|i| T::from_f64(((i * 7 + salt) % 9) as f64 - 4.0)).collect()
    }

    fn to_floats<T: Number>(x: &[T]) -> Vec<f32> {
        x.iter().map(|x| x.to_f64() as f32).collect()
    }

    fn check<T: Number<Wide = f32>>(params: &ConvParams, images: usize, spatial: &[usize]) {
        let plane: usize = spatial.iter().product();
        let out_dims = params.output_dims(spatial).unwrap();
        let len = images * params.out_channels * out_dims.iter().product::<usize>();
        let x = numbers::<T>(images * params.in_channels * plane, 1);
        let weights: Vec<f32> = numbers(params.weights_len().unwrap(), 3);
        let bias: Vec<f32> = numbers(params.out_channels, 5);
        let mut expected = vec![0.0; len];
        let wide = to_floats(&x);
        conv_naive(params, images, spatial, &wide, &weights, Some(&bias), &mut expected).unwrap();
        for &isa in Isa::available() {
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let exec = Exec::new(&pool, isa);
                let conv = PackedConv::new(isa, params.clone(), &weights).unwrap();
                let epilogue = ConvEpilogue { bias: Some(&bias), ..ConvEpilogue::default() };
                let mut y = vec![T::ONE; len];
                conv_narrow(&exec, &conv, images, spatial, &x, &epilogue, &mut y).unwrap();
                for (i, (y, expected)) in y.iter().zip(&expected).enumerate() {
                    let rounded = T::narrow(*expected).to_f64();
                    // Winograd's algorithm sums in another order.
                    let error = (y.to_f64() - rounded).abs();
                    let room = if expected.abs() > 256.0 { expected.abs() / 128.0 } else { 1e-2 };
                    assert!(error <= f64::from(room), "{isa:?} {params:?} {i}: {y:?}, {expected}");
                }
            }
        }
    }

    /// Adds padding before and after the first axes, with strides and dilations.
    fn pad_and_stride(begin: &[usize], end: &[usize], of: &ConvParams) -> ConvParams {
        let (mut strides, mut dilations) = (of.strides.clone(), of.dilations.clone());
        (strides[0], dilations[0]) = (2, 2);
        ConvParams {
            pads_begin: PerAxis::from(begin),
            pads_end: PerAxis::from(end),
            strides,
            dilations,
            ..of.clone()
        }
    }

    #[test]
    fn images_of_floats_of_16_bits() {
        let plain = ConvParams::new;
        for (params, images, spatial) in [
            (plain(3, 5, &[3, 3]), 2, &[7, 9][..]),
            (plain(32, 32, &[3, 3]), 1, &[20, 20]),
            (ConvParams { groups: 8, ..plain(8, 8, &[3, 3]) }, 3, &[11, 6]),
            (plain(16, 24, &[1, 1]), 2, &[5, 5]),
            (ConvParams { groups: 2, ..plain(6, 4, &[5]) }, 1, &[40]),
            (plain(2, 2, &[2, 3, 2]), 2, &[4, 5, 6]),
            // Several images of several bands.
            (plain(8, 8, &[1, 1]), 5, &[96, 97]),
            // Several bands, some of which touch padding, and padding alone.
            (pad_and_stride(&[3, 2], &[1, 4], &plain(8, 8, &[5, 3])), 2, &[200, 90]),
            (pad_and_stride(&[9, 0], &[1, 0], &plain(2, 2, &[3, 3])), 1, &[6, 7]),
            (pad_and_stride(&[40], &[7], &plain(4, 4, &[3])), 1, &[60_000]),
        ] {
            check::<f16>(&params, images, spatial);
            check::<bf16>(&params, images, spatial);
        }
    }

    #[test]
    fn lengths_must_fit() {
        let pool = Pool::new(1);
        let exec = Exec::new(&pool, Isa::detect());
        let conv = PackedConv::new(exec.isa, ConvParams::new(1, 1, &[1, 1]), &[1.0]).unwrap();
        let (x, mut y) = ([f16::ONE; 3], [f16::ONE; 4]);
        let found = conv_narrow(&exec, &conv, 1, &[2, 2], &x, &ConvEpilogue::default(), &mut y);
        assert_eq!(found, Err(ConvError::Length { what: "input", want: 4, got: 3 }));
    }
}
