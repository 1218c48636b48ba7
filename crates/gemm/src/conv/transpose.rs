//! The transpose of a convolution: each input element is spread over the window of the kernel.
//!
//! Outputs whose distance from the start leaves the same remainder by the stride meet the same taps
//! of the kernel, and no others. Such a *phase* is an ordinary convolution of stride 1, with the
//! taps in reverse order, whose outputs are a stride apart. So no sums are accumulated in memory,
//! and the properties of convolutions hold.
//!
//! [`products`] take less time if the kernel reaches far beyond the input, or phases are many and
//! small.

mod products;

use super::naive::advance;
use super::packing::for_each_vector;
use super::{
    Algorithm, ConvEpilogue, ConvError, ConvOperands, ConvParams, Lasts, Order, Ordered,
    OrderedMut, PackedConv, PerAxis, WeightSource, check_len, check_memory, product,
};
use crate::gemm::{Number, SendPtr};
use products::{Call, Products};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Exec, Isa, Pool};
use smallvec::{SmallVec, smallvec};

/// Parameters of a transposed convolution except the sizes of input and output. All lists have one
/// entry per spatial dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TransposeParams {
    pub in_channels: usize,
    pub out_channels: usize,
    /// Number of groups, a divisor of both channel counts.
    pub groups: usize,
    pub kernel: PerAxis,
    pub strides: PerAxis,
    pub dilations: PerAxis,
    /// Number of outputs that are cut off before the first one. A negative number adds outputs
    /// there.
    pub pads_begin: PerAxis<isize>,
}

/// Spatial sizes of the input and of the output of a transposed convolution.
#[derive(Clone, Copy, Debug)]
pub struct TransposeSizes<'a> {
    pub spatial: &'a [usize],
    pub output: &'a [usize],
}

/// Buffers of a run of [`PackedTranspose::run`] besides the output.
#[derive(Debug)]
pub struct TransposeBuffers<'a> {
    /// Input, `[batch, in_channels, spatial...]`.
    pub x: &'a [f32],
    /// One number for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Memory for results of phases, of [`PackedTranspose::results_len`] elements.
    pub results: &'a mut [f32],
}

/// Lengths of the buffers of a call.
pub(super) struct BufferLens {
    pub(super) x: usize,
    pub(super) bias: Option<usize>,
    pub(super) y: usize,
}

/// Geometry: output channels whose weights are reordered together, as the weights of one input
/// channel are adjacent.
const TOGETHER: usize = 16;

/// Limit: bound on sizes and distances, so that sums and a few products of them do not overflow.
const MOST: usize = 1 << 40;

impl TransposeParams {
    /// Checks that the fields and the sizes of an input and an output fit each other.
    pub(super) fn check(&self, spatial: &[usize], output: &[usize]) -> Result<(), ConvError> {
        self.as_conv().check()?;
        let rank = self.kernel.len();
        if let Some(list) = [spatial, output].into_iter().find(|list| list.len() != rank) {
            return Err(ConvError::Rank { want: rank, got: list.len() });
        }
        for i in 0..rank {
            let reach = self.kernel[i].checked_mul(self.dilations[i]);
            let spread = spatial[i].checked_mul(self.strides[i]);
            let pad = Some(self.pads_begin[i].unsigned_abs());
            let sizes = [reach, spread, Some(output[i]), pad];
            if sizes.iter().any(|size| size.is_none_or(|size| size > MOST)) {
                return Err(ConvError::TooLarge);
            }
        }
        Ok(())
    }

    /// Returns the parameters of the convolution without padding.
    pub(super) fn as_conv(&self) -> ConvParams {
        ConvParams {
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            groups: self.groups,
            kernel: self.kernel.clone(),
            strides: self.strides.clone(),
            dilations: self.dilations.clone(),
            pads_begin: smallvec![0; self.pads_begin.len()],
            pads_end: smallvec![0; self.kernel.len()],
        }
    }

    /// Returns the number of weights, `[in_channels, out_channels / groups, kernel...]`; `None` on
    /// overflow.
    pub(super) fn weights_len(&self) -> Option<usize> {
        let taps = product(&self.kernel)?;
        (self.out_channels / self.groups).checked_mul(self.in_channels)?.checked_mul(taps)
    }

    /// Checks the lengths of the buffers, and returns the elements per channel of input, output and
    /// kernel.
    pub(super) fn check_lens(
        &self,
        batch: usize,
        sizes: TransposeSizes<'_>,
        lens: BufferLens,
    ) -> Result<[usize; 3], ConvError> {
        let BufferLens { x, bias, y } = lens;
        let too_large = ConvError::TooLarge;
        let planes = [sizes.spatial, sizes.output, &self.kernel].map(product);
        let [Some(in_plane), Some(out_plane), Some(taps)] = planes else {
            return Err(too_large);
        };
        let tensor = |channels: usize, plane| product(&[batch, channels, plane]).ok_or(too_large);
        check_len("input", tensor(self.in_channels, in_plane)?, x)?;
        check_len("output", tensor(self.out_channels, out_plane)?, y)?;
        if let Some(bias) = bias {
            check_len("bias", self.out_channels, bias)?;
        }
        Ok([in_plane, out_plane, taps])
    }
}

/// Computes a transposed convolution by its definition: adds every product to its output, in any
/// number type and for any number of spatial dimensions. The output may be larger than the input
/// reaches.
///
/// # Errors
///
/// If the parameters do not fit each other or a length does not fit them.
pub fn conv_transpose_naive<T: Number>(
    pool: &Pool,
    params: &TransposeParams,
    batch: usize,
    sizes: TransposeSizes<'_>,
    operands: ConvOperands<'_, T>,
    y: &mut [T],
) -> Result<(), ConvError> {
    let ConvOperands { input: x, weights, bias } = operands;
    params.check(sizes.spatial, sizes.output)?;
    let lens = BufferLens { x: x.len(), bias: bias.map(<[T]>::len), y: y.len() };
    let [in_plane, out_plane, taps] = params.check_lens(batch, sizes, lens)?;
    check_len("weights", params.weights_len().ok_or(ConvError::TooLarge)?, weights.len())?;
    if y.is_empty() {
        return Ok(());
    }
    let group_in = params.in_channels / params.groups;
    let group_out = params.out_channels / params.groups;
    let work = group_in.saturating_mul(taps).saturating_mul(in_plane).max(out_plane);
    rows(pool, y, out_plane, work, |first, y| {
        for (row, y) in y.chunks_exact_mut(out_plane).enumerate() {
            let (image, channel) =
                ((first + row) / params.out_channels, (first + row) % params.out_channels);
            y.fill(bias.map_or(T::ZERO, |bias| bias[channel]));
            let first = channel / group_out * group_in;
            for c in first..first + group_in {
                let x = &x[(image * params.in_channels + c) * in_plane..][..in_plane];
                let weights = &weights[(c * group_out + channel % group_out) * taps..][..taps];
                spread(params, sizes, x, weights, y);
            }
        }
    })?;
    Ok(())
}

/// Adds one plane of the input, spread by one kernel, to a plane of the output.
fn spread<T: Number>(
    params: &TransposeParams,
    sizes: TransposeSizes<'_>,
    x: &[T],
    weights: &[T],
    y: &mut [T],
) {
    let TransposeSizes { spatial, output } = sizes;
    let rank = spatial.len();
    let mut tap = vec![0; rank];
    let mut position = vec![0; rank];
    for &weight in weights {
        position.fill(0);
        for &x in x {
            let at = (0..rank).try_fold(0, |at, i| {
                (position[i] * params.strides[i] + tap[i] * params.dilations[i])
                    .checked_add_signed(-params.pads_begin[i])
                    .filter(|&o| o < output[i])
                    .map(|o| at * output[i] + o)
            });
            if let Some(at) = at {
                y[at] = y[at].plus(weight.times(x));
            }
            advance(&mut position, spatial);
        }
        advance(&mut tap, &params.kernel);
    }
}

/// A transposed convolution with its weights packed, for inputs of any batch. Their spatial sizes
/// may differ, but outputs must exceed the strides times the input sizes by fixed numbers.
///
/// The form of the weights decides the order of sums, so it must be the form for the sizes of a run
/// ([`PackedTranspose::suits`]), whatever sizes it was packed for.
#[derive(Debug)]
pub struct PackedTranspose {
    isa: Isa,
    params: TransposeParams,
    /// Output sizes less the strides times the input sizes.
    excess: [isize; 3],
    strides: [usize; 3],
    form: Form,
}

/// Weights in the form that the loops read.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // A box would allocate memory in each run that packs weights.
enum Form {
    Phases(Phases),
    Products(Products),
}

/// Weights to pack in some form, for sizes of an input and an output.
struct TransposeWeights<'a> {
    kind: FormKind,
    sizes: TransposeSizes<'a>,
    weights: &'a [f32],
    lasts: Lasts,
}

/// Choice of a [`Form`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormKind {
    Phases,
    Products,
}

/// Convolutions of all phases.
#[derive(Debug)]
struct Phases {
    all: SmallVec<[Phase; 4]>,
    /// Whether some outputs meet no tap at all.
    has_gaps: bool,
}

/// Outputs that meet the same taps.
#[derive(Debug)]
struct Phase {
    conv: PackedConv,
    axes: [PhaseAxis; 3],
}

/// Sizes of the input and of the output, and strides, in three dimensions.
struct Extents {
    spatial: [usize; 3],
    output: [usize; 3],
    strides: [usize; 3],
}

/// Evenly spaced taps of an axis of a kernel.
#[derive(Clone, Copy, Debug)]
struct TapSeries {
    first: usize,
    step: usize,
    count: usize,
}

/// Parameters of one axis of a transposed convolution.
#[derive(Clone, Copy)]
struct AxisParams {
    kernel: usize,
    stride: usize,
    dilation: usize,
    pad: isize,
    /// Output size less the stride times the input size.
    excess: isize,
}

/// One axis of a phase.
#[derive(Clone, Copy, Debug)]
struct PhaseAxis {
    /// Taps of the kernel.
    taps: TapSeries,
    dilation: usize,
    /// Padding of the convolution.
    pads: (usize, usize),
    /// Number of outputs of the convolution before the first one of the phase.
    skip: usize,
    /// Number of outputs of the phase less the number of inputs.
    excess: isize,
    /// Index of the first output of the phase.
    start: usize,
}

impl PhaseAxis {
    /// Makes the phase of tap `k` of the kernel.
    fn new(params: AxisParams, k: usize) -> Self {
        let AxisParams { kernel, stride, dilation, pad, excess } = params;
        let common = greatest_divisor(stride, dilation);
        let (step, dilation_of_inputs) = (stride / common, dilation / common);
        let first = k % step;
        let count = (kernel - first).div_ceil(step);
        // Outputs of the phase, counted from before the padding, leave this remainder.
        let remainder = first * dilation % stride;
        // The input of the first tap is this many inputs before that of the output.
        let lag = (first * dilation - remainder) / stride;
        let reach = (count - 1) * dilation_of_inputs;
        let (step_out, after_first) = (stride as isize, remainder as isize);
        let begin = -(after_first - pad).div_euclid(step_out);
        let end = (excess - 1 + pad - after_first).div_euclid(step_out) + 1;
        let wanted = end - begin;
        // Number of inputs that the first output reaches before the first one.
        let before = (reach + lag) as isize - begin;
        let (pad_begin, skip) = (before.max(0), (-before).max(0));
        let after = wanted + skip - pad_begin + reach as isize;
        PhaseAxis {
            taps: TapSeries { first, step, count },
            dilation: dilation_of_inputs,
            pads: (pad_begin as usize, after.max(0) as usize),
            skip: skip as usize,
            excess: wanted,
            start: (begin * step_out + after_first - pad) as usize,
        }
    }

    /// Returns the number of outputs of the phase along an axis with `len` inputs.
    fn count_outputs(&self, len: usize) -> usize {
        usize::try_from(len as isize + self.excess).unwrap_or(0)
    }

    /// Returns the number of outputs of the convolution along an axis with `len` inputs.
    fn count_computed(&self, len: usize) -> usize {
        let reach = (self.taps.count - 1) * self.dilation;
        (len + self.pads.0 + self.pads.1).saturating_sub(reach)
    }
}

/// Returns the greatest common divisor.
pub(super) fn greatest_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

/// Pads a list of sizes to three with `fill` in front.
fn pad_to_three<T: Copy>(sizes: &[T], fill: T) -> [T; 3] {
    let mut three = [fill; 3];
    three[3 - sizes.len()..].copy_from_slice(sizes);
    three
}

impl PackedTranspose {
    /// Limit: most spatial dimensions; [`conv_transpose_naive`] has any number.
    pub const MOST_AXES: usize = 3;

    /// Packs `weights`, `[in_channels, out_channels / groups, kernel...]`, for inputs and outputs
    /// of these spatial sizes.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other or the weights, or there are more than three spatial
    /// dimensions.
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn new(
        isa: Isa,
        params: TransposeParams,
        sizes: TransposeSizes<'_>,
        weights: &[f32],
        lasts: Lasts,
    ) -> Result<PackedTranspose, ConvError> {
        let kind = params.faster_form(isa, sizes.spatial, sizes.output)?;
        let weights = TransposeWeights { kind, sizes, weights, lasts };
        PackedTranspose::from_weights(isa, params, &weights)
    }

    /// Packs weights in a given form.
    fn from_weights(
        isa: Isa,
        params: TransposeParams,
        weights: &TransposeWeights<'_>,
    ) -> Result<PackedTranspose, ConvError> {
        let &TransposeWeights { kind, sizes, weights, lasts } = weights;
        let TransposeSizes { spatial, output } = sizes;
        let axes = params.axes(spatial, output)?;
        check_len("weights", params.weights_len().ok_or(ConvError::TooLarge)?, weights.len())?;
        let strides = pad_to_three(&params.strides, 1);
        let excess = excesses(&params, spatial, output);
        let form = match kind {
            FormKind::Products => Form::Products(Products::new(isa, &params, weights, lasts)?),
            FormKind::Phases => {
                let mut all = SmallVec::new();
                for &z in &axes[0] {
                    for &y in &axes[1] {
                        for &x in &axes[2] {
                            all.push(Phase::new(isa, &params, [z, y, x], weights, lasts)?);
                        }
                    }
                }
                let has_gaps = axes.iter().zip(strides).any(|(axis, stride)| axis.len() < stride);
                Form::Phases(Phases { all, has_gaps })
            }
        };
        Ok(PackedTranspose { isa, params, excess, strides, form })
    }

    /// Returns the approximate bytes of memory that packed weights take.
    ///
    /// # Errors
    ///
    /// In the cases of [`PackedTranspose::new`].
    pub fn bytes_of(
        isa: Isa,
        params: &TransposeParams,
        sizes: TransposeSizes<'_>,
    ) -> Result<usize, ConvError> {
        let TransposeSizes { spatial, output } = sizes;
        if params.faster_form(isa, spatial, output)? == FormKind::Products {
            return Products::bytes_of(isa, params);
        }
        let axes = params.axes(spatial, output)?;
        let mut bytes = 0usize;
        for &z in &axes[0] {
            for &y in &axes[1] {
                for &x in &axes[2] {
                    let conv = params.of_phase(&[z, y, x]);
                    let algorithm = algorithm_of_phase(isa, &conv)?;
                    bytes = bytes.saturating_add(PackedConv::bytes_of(isa, &conv, algorithm)?);
                }
            }
        }
        Ok(bytes)
    }

    pub fn params(&self) -> &TransposeParams {
        &self.params
    }

    /// Whether [`PackedTranspose::new`] packs this form for these sizes.
    pub fn suits(&self, spatial: &[usize], output: &[usize]) -> bool {
        let kind = match &self.form {
            Form::Phases(_) => FormKind::Phases,
            Form::Products(_) => FormKind::Products,
        };
        self.fits(spatial, output) && self.params.faster_form(self.isa, spatial, output) == Ok(kind)
    }

    /// Whether the packed weights can compute these sizes.
    pub fn fits(&self, spatial: &[usize], output: &[usize]) -> bool {
        let rank = self.params.kernel.len();
        spatial.len() == rank
            && output.len() == rank
            && excesses(&self.params, spatial, output) == self.excess
    }

    /// Returns the only phase, if it has all outputs, which are then written in place.
    fn only_phase(&self, spatial: [usize; 3]) -> Option<&Phase> {
        let whole = |axis: &PhaseAxis, len: usize| {
            axis.skip == 0 && axis.count_computed(len) == axis.count_outputs(len)
        };
        match &self.form {
            Form::Phases(Phases { all, .. }) if self.strides == [1; 3] && all.len() == 1 => {
                let axes = all[0].axes.iter().zip(spatial);
                axes.into_iter().all(|(axis, len)| whole(axis, len)).then_some(&all[0])
            }
            _ => None,
        }
    }

    /// Returns the number of floats that [`PackedTranspose::run`] needs for results of the phases.
    ///
    /// # Errors
    ///
    /// If the number overflows.
    pub fn results_len(&self, batch: usize, spatial: &[usize]) -> Result<usize, ConvError> {
        let spatial = pad_to_three(spatial, 1);
        let Form::Phases(phases) = &self.form else {
            return Ok(0);
        };
        if self.only_phase(spatial).is_some() {
            return Ok(0);
        }
        let too_large = ConvError::TooLarge;
        let planes = batch.checked_mul(self.params.out_channels).ok_or(too_large)?;
        phases.all.iter().try_fold(0usize, |sum, phase| {
            let plane = phase.plane(spatial).ok_or(too_large)?;
            sum.checked_add(plane.checked_mul(planes).ok_or(too_large)?).ok_or(too_large)
        })
    }

    /// Returns an upper bound of the scratch memory in bytes that a run takes beside the results.
    ///
    /// # Errors
    ///
    /// If a size overflows.
    pub fn scratch(
        &self,
        exec: &Exec<'_>,
        batch: usize,
        spatial: &[usize],
    ) -> Result<usize, ConvError> {
        let spatial = pad_to_three(spatial, 1);
        let phases = match &self.form {
            Form::Phases(phases) => &phases.all,
            Form::Products(products) => {
                let output = std::array::from_fn(|i| {
                    (spatial[i] * self.strides[i]).saturating_add_signed(self.excess[i])
                });
                let call =
                    Call { params: &self.params, batch, spatial, output, x: &[], bias: None };
                return check_memory(products.scratch(exec, &call));
            }
        };
        let mut most = 0;
        for phase in phases.iter().filter(|phase| phase.plane(spatial) != Some(0)) {
            most = most.max(phase.conv.scratch(
                exec.pool,
                batch,
                &spatial,
                Order::Rows,
                Order::Rows,
            )?);
        }
        Ok(most)
    }

    /// Computes `batch` images, `[batch, in_channels, spatial...]`. `results` has as many elements
    /// as [`PackedTranspose::results_len`] returns.
    ///
    /// # Errors
    ///
    /// If a length does not fit, or the weights are packed for other sizes.
    pub fn run(
        &self,
        exec: &Exec<'_>,
        batch: usize,
        sizes: TransposeSizes<'_>,
        buffers: TransposeBuffers<'_>,
        y: &mut [f32],
    ) -> Result<(), ConvError> {
        let TransposeSizes { spatial, output } = sizes;
        let TransposeBuffers { x, bias, results } = buffers;
        self.params.check(spatial, output)?;
        let lens = BufferLens { x: x.len(), bias: bias.map(<[f32]>::len), y: y.len() };
        let [_, out_plane, _] = self.params.check_lens(batch, sizes, lens)?;
        check_len("results", self.results_len(batch, spatial)?, results.len())?;
        if !self.fits(spatial, output) {
            return Err(ConvError::TooLarge);
        }
        if y.is_empty() {
            return Ok(());
        }
        let (spatial, output) = (pad_to_three(spatial, 1), pad_to_three(output, 1));
        let phases = match &self.form {
            Form::Phases(phases) => phases,
            Form::Products(products) => {
                let call = Call { params: &self.params, batch, spatial, output, x, bias };
                return Ok(products.run(exec, &call, y)?);
            }
        };
        let epilogue = ConvEpilogue { bias, ..ConvEpilogue::default() };
        let input = Ordered { data: x, order: Order::Rows };
        let rows_of = |data| OrderedMut { data, order: Order::Rows };
        let pool = exec.pool;
        if let Some(phase) = self.only_phase(spatial) {
            return phase.conv.run(pool, batch, &spatial, input, rows_of(y), &epilogue);
        }
        let planes = batch * self.params.out_channels;
        let mut rest = &mut results[..];
        for phase in &phases.all {
            let plane = phase.plane(spatial).ok_or(ConvError::TooLarge)?;
            let (made, after) = std::mem::take(&mut rest).split_at_mut(planes * plane);
            if plane > 0 {
                phase.conv.run(pool, batch, &spatial, input, rows_of(made), &epilogue)?;
            }
            rest = after;
        }
        let results = &*results;
        let extents = Extents { spatial, output, strides: self.strides };
        rows(pool, y, out_plane, 2 * out_plane, |first, y| {
            for (row, y) in y.chunks_exact_mut(out_plane).enumerate() {
                if phases.has_gaps {
                    let channel = (first + row) % self.params.out_channels;
                    y.fill(bias.map_or(0.0, |bias| bias[channel]));
                }
                let mut start = 0;
                for phase in &phases.all {
                    let plane = phase.plane(spatial).unwrap_or(0);
                    let made = &results[start + (first + row) * plane..][..plane];
                    phase.lay_out(&extents, made, y);
                    start += planes * plane;
                }
            }
        })?;
        Ok(())
    }
}

/// Returns the algorithm of a phase that takes the least memory.
fn algorithm_of_phase(isa: Isa, conv: &ConvParams) -> Result<Algorithm, ConvError> {
    Algorithm::choose(conv, Some(0))?.in_rows(isa, conv, None)
}

/// Returns the output sizes less the strides times the input sizes.
fn excesses(params: &TransposeParams, spatial: &[usize], output: &[usize]) -> [isize; 3] {
    let [spatial, output, strides] = [spatial, output, &params.strides].map(|l| pad_to_three(l, 1));
    // Missing axes exceed by zero, as a stride of 1 over one element gives one.
    std::array::from_fn(|i| {
        (output[i] as isize).wrapping_sub(spatial[i].wrapping_mul(strides[i]) as isize)
    })
}

/// Choice: cycles of a call of a convolution, or of a product, whatever its size.
const CALL: usize = 6000;

impl TransposeParams {
    /// Returns the numbers of input and output channels of a group.
    fn group_channels(&self) -> [usize; 2] {
        [self.in_channels / self.groups, self.out_channels / self.groups]
    }

    /// Estimates which form takes less time for an image of these sizes.
    fn faster_form(
        &self,
        isa: Isa,
        spatial: &[usize],
        output: &[usize],
    ) -> Result<FormKind, ConvError> {
        let axes = self.axes(spatial, output)?;
        let [group_in, group_out] = self.group_channels();
        let (spatial, output) = (pad_to_three(spatial, 1), pad_to_three(output, 1));
        let lanes = isa.lanes();
        let group_vectors = group_out.div_ceil(lanes);
        // Number of output elements.
        let outputs = self.out_channels.saturating_mul(output.iter().product());
        // Multiply-adds of vectors of channels, or of outputs if channels are few.
        let is_few = group_out <= lanes / 2;
        // Taps of all outputs that the phases compute, and the number of phases.
        let (mut taps, mut count) = (1usize, 1usize);
        for (axes, len) in axes.iter().zip(spatial) {
            let of_axis =
                axes.iter().map(|axis| axis.count_computed(len).saturating_mul(axis.taps.count));
            taps = taps.saturating_mul(of_axis.fold(0, usize::saturating_add));
            count *= axes.len();
        }
        let calls = count.saturating_mul(CALL);
        let macs = taps.saturating_mul(self.groups).saturating_mul(group_in);
        let (cost, of) = if is_few { (group_out, lanes) } else { (group_vectors * 5, 8) };
        let computing = macs.saturating_mul(cost) / of;
        let phases = (outputs + outputs / 2).saturating_add(calls).saturating_add(computing);
        let kernel = pad_to_three(&self.kernel, 1);
        let (row_taps, runs) =
            if pad_to_three(&self.dilations, 1)[2] == 1 { (kernel[2], 1) } else { (1, kernel[2]) };
        let pixels = spatial.iter().fold(self.groups, |all, size| all.saturating_mul(*size));
        let row = (kernel.iter().product::<usize>().saturating_mul(group_out)).div_ceil(lanes);
        // Sums of vectors that overlap with the ones before them wait for these.
        let overlaps =
            row_taps > pad_to_three(&self.strides, 1)[2] && !group_out.is_multiple_of(lanes);
        let waits = if overlaps { 16 } else { 4 };
        let run = 2 * (row_taps * group_out).div_ceil(lanes) + waits;
        let each_pixel = (row.saturating_mul(group_in) * 5 / 8)
            .saturating_add(row)
            .saturating_add(kernel[0] * kernel[1] * runs * run);
        let calls = self.groups.saturating_mul(CALL);
        let products = pixels.saturating_mul(each_pixel).saturating_add(calls);
        let products = products.saturating_add(outputs / 2);
        // The other form, whose weights are packed anew, must be much faster.
        let is_faster = products < phases / 5 * 4;
        Ok(if is_faster { FormKind::Products } else { FormKind::Phases })
    }

    /// Returns the phases along each axis that meet a tap.
    fn axes(
        &self,
        spatial: &[usize],
        output: &[usize],
    ) -> Result<[SmallVec<[PhaseAxis; 2]>; 3], ConvError> {
        self.check(spatial, output)?;
        let rank = self.kernel.len();
        if rank > PackedTranspose::MOST_AXES {
            return Err(ConvError::Rank { want: PackedTranspose::MOST_AXES, got: rank });
        }
        let excess = excesses(self, spatial, output);
        let (kernel, pads) = (pad_to_three(&self.kernel, 1), pad_to_three(&self.pads_begin, 0));
        let (strides, dilations) =
            (pad_to_three(&self.strides, 1), pad_to_three(&self.dilations, 1));
        Ok(std::array::from_fn(|i| {
            let axis = AxisParams {
                kernel: kernel[i],
                stride: strides[i],
                dilation: dilations[i],
                pad: pads[i],
                excess: excess[i],
            };
            // Taps a step apart belong to one phase.
            let step = strides[i] / greatest_divisor(strides[i], dilations[i]);
            let first = 0..kernel[i].min(step);
            first.map(|k| PhaseAxis::new(axis, k)).collect()
        }))
    }

    /// Returns the convolution of a phase.
    fn of_phase(&self, axes: &[PhaseAxis; 3]) -> ConvParams {
        let list = |of: fn(&PhaseAxis) -> usize| axes.iter().map(of).collect();
        ConvParams {
            groups: self.groups,
            dilations: list(|axis| axis.dilation),
            pads_begin: list(|axis| axis.pads.0),
            pads_end: list(|axis| axis.pads.1),
            ..ConvParams::new(
                self.in_channels,
                self.out_channels,
                &axes.map(|axis| axis.taps.count),
            )
        }
    }
}

impl Phase {
    /// Packs the weights of a phase, in reverse order of its taps.
    fn new(
        isa: Isa,
        params: &TransposeParams,
        axes: [PhaseAxis; 3],
        weights: &[f32],
        lasts: Lasts,
    ) -> Result<Phase, ConvError> {
        let conv = params.of_phase(&axes);
        let kernel = pad_to_three(&params.kernel, 1);
        let group_in = params.in_channels / params.groups;
        let group_out = params.out_channels / params.groups;
        let taps: usize = kernel.iter().product();
        let row = group_in * conv_taps(&axes);
        let places = |axis: &PhaseAxis| {
            let TapSeries { first, step, count } = axis.taps;
            (0..count).rev().map(move |tap| first + tap * step)
        };
        with_scratch(params.out_channels * row, |reversed| {
            let to = SendPtr(reversed.as_mut_ptr());
            // Adjacent channels are read together.
            let blocks = group_out.div_ceil(TOGETHER);
            for_each_vector(params.groups * blocks, reversed.len(), |index| {
                let (group, block) = (index / blocks, index % blocks);
                let channels = block * TOGETHER..group_out.min((block + 1) * TOGETHER);
                let first = group * group_out + channels.start;
                // SAFETY: only this call has the rows of these output channels.
                let rows = unsafe {
                    let start = to.get().add(first * row);
                    std::slice::from_raw_parts_mut(start, channels.len() * row)
                };
                for c in 0..group_in {
                    let read = (group * group_in + c) * group_out + channels.start;
                    let read = &weights[read * taps..][..channels.len() * taps];
                    for (weights, row) in read.chunks_exact(taps).zip(rows.chunks_exact_mut(row)) {
                        let mut to = row[c * conv_taps(&axes)..].iter_mut();
                        for z in places(&axes[0]) {
                            for y in places(&axes[1]) {
                                let line = (z * kernel[1] + y) * kernel[2];
                                for (x, to) in places(&axes[2]).zip(&mut to) {
                                    *to = weights[line + x];
                                }
                            }
                        }
                    }
                }
            })?;
            let algorithm = algorithm_of_phase(isa, &conv)?;
            let source = WeightSource::Floats(reversed);
            Ok(Phase {
                conv: PackedConv::from_source(isa, conv, algorithm, source, None, lasts)?,
                axes,
            })
        })
    }

    /// Returns the number of outputs of the convolution in a plane, or 0 if the phase has none.
    fn plane(&self, spatial: [usize; 3]) -> Option<usize> {
        let is_empty =
            self.axes.iter().zip(spatial).any(|(axis, len)| axis.count_outputs(len) == 0);
        let made: [usize; 3] = std::array::from_fn(|i| self.axes[i].count_computed(spatial[i]));
        if is_empty { Some(0) } else { product(&made) }
    }

    /// Writes a plane of results to its places in the output.
    fn lay_out(&self, extents: &Extents, made: &[f32], y: &mut [f32]) {
        if made.is_empty() {
            return;
        }
        let &Extents { spatial, output, strides } = extents;
        let [planes, lines, columns] = self.axes;
        let (height, width) =
            (lines.count_computed(spatial[1]), columns.count_computed(spatial[2]));
        for z in 0..planes.count_outputs(spatial[0]) {
            for line in 0..lines.count_outputs(spatial[1]) {
                let from = ((planes.skip + z) * height + lines.skip + line) * width + columns.skip;
                let from = &made[from..][..columns.count_outputs(spatial[2])];
                let (z, line) = (planes.start + z * strides[0], lines.start + line * strides[1]);
                let to = &mut y[(z * output[1] + line) * output[2]..][..output[2]];
                let to = to[columns.start..].iter_mut().step_by(strides[2]);
                to.zip(from).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

/// Returns the number of taps of a phase.
fn conv_taps(axes: &[PhaseAxis; 3]) -> usize {
    axes.iter().map(|axis| axis.taps.count).product()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    struct Random(u64);

    impl Random {
        fn draw_below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (self.0 >> 33) as usize % end
        }
    }

    fn numbers(random: &mut Random, len: usize) -> Vec<f32> {
        // Small integers, so that sums are exact in any order.
        (0..len).map(|_| random.draw_below(9) as f32 - 4.0).collect()
    }

    #[test]
    fn phases_against_the_plain_loop() {
        let mut random = Random(7);
        for round in 0..400 {
            let rank = 1 + random.draw_below(3);
            let groups = 1 + random.draw_below(3);
            let mut list = |low: usize, end: usize| -> Vec<usize> {
                (0..rank).map(|_| low + random.draw_below(end)).collect()
            };
            let (kernel, strides, dilations) = (list(1, 4), list(1, 4), list(1, 3));
            let (spatial, pads, more) = (list(1, 5), list(0, 6), list(0, 4));
            let pads_begin: Vec<isize> = pads.iter().map(|pad| *pad as isize - 2).collect();
            let output: Vec<usize> = (0..rank)
                .map(|i| {
                    let reach = (kernel[i] - 1) * dilations[i] + 1;
                    let all = (spatial[i] - 1) * strides[i] + reach + more[i];
                    all.saturating_add_signed(-pads_begin[i]).saturating_sub((more[i] + 1) % 3)
                })
                .collect();
            let params = TransposeParams {
                in_channels: groups * (1 + random.draw_below(3)),
                out_channels: groups * (1 + random.draw_below(3)),
                groups,
                kernel: kernel.into(),
                strides: strides.into(),
                dilations: dilations.into(),
                pads_begin: pads_begin.into(),
            };
            let batch = random.draw_below(3);
            let plane = |dims: &[usize]| dims.iter().product::<usize>();
            let x = numbers(&mut random, batch * params.in_channels * plane(&spatial));
            let weights = numbers(&mut random, params.weights_len().unwrap());
            let bias = numbers(&mut random, params.out_channels);
            let bias = (round % 2 == 0).then_some(&bias[..]);
            let mut expected = vec![9.0; batch * params.out_channels * plane(&output)];
            let sizes = TransposeSizes { spatial: &spatial, output: &output };
            let pool = Pool::new(1 + round % 3);
            let inputs = ConvOperands { input: &x[..], weights: &weights[..], bias };
            conv_transpose_naive(&pool, &params, batch, sizes, inputs, &mut expected).unwrap();
            let isa = Isa::available()[round % Isa::available().len()];
            let lasts = [Lasts::ForGood, Lasts::ForOneRun][round % 2];
            let exec = Exec::new(&pool, isa);
            for kind in [FormKind::Phases, FormKind::Products] {
                let weights = &weights[..];
                let given = TransposeWeights { kind, sizes, weights, lasts };
                let packed = PackedTranspose::from_weights(isa, params.clone(), &given).unwrap();
                let mut results = vec![5.0; packed.results_len(batch, &spatial).unwrap()];
                let mut y = vec![9.0; expected.len()];
                let buffers = TransposeBuffers { x: &x, bias, results: &mut results };
                packed.run(&exec, batch, sizes, buffers, &mut y).unwrap();
                assert_eq!(y, expected, "{kind:?} {params:?} {spatial:?} {output:?}");
                packed.scratch(&exec, batch, &spatial).unwrap();
            }
            assert!(PackedTranspose::bytes_of(isa, &params, sizes).unwrap() > 0);
        }
    }

    #[test]
    fn the_form_follows_from_the_sizes_of_a_run() {
        let params = TransposeParams {
            in_channels: 16,
            out_channels: 3,
            groups: 1,
            kernel: smallvec![3, 3],
            strides: smallvec![2, 2],
            dilations: smallvec![1, 1],
            pads_begin: smallvec![0, 0],
        };
        let weights = vec![1.0; params.weights_len().unwrap()];
        for &isa in Isa::available() {
            let (few, many) = ((&[4, 4][..], &[9, 9][..]), (&[64, 64][..], &[129, 129][..]));
            let [of_few, of_many] = [few, many].map(|(spatial, output)| {
                let sizes = TransposeSizes { spatial, output };
                PackedTranspose::new(isa, params.clone(), sizes, &weights, Lasts::ForGood).unwrap()
            });
            assert!(matches!(of_few.form, Form::Products(_)) && of_few.suits(few.0, few.1));
            assert!(matches!(of_many.form, Form::Phases(_)) && of_many.suits(many.0, many.1));
            assert!(of_few.fits(many.0, many.1) && !of_few.suits(many.0, many.1));
            assert!(of_many.fits(few.0, few.1) && !of_many.suits(few.0, few.1));
            assert!(!of_few.suits(&[4, 4], &[10, 9]));
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let params = TransposeParams {
            in_channels: 1,
            out_channels: 1,
            groups: 1,
            kernel: smallvec![2],
            strides: smallvec![usize::MAX],
            dilations: smallvec![1],
            pads_begin: smallvec![0],
        };
        let packed = |params: TransposeParams, spatial: &[usize], output: &[usize]| {
            let sizes = TransposeSizes { spatial, output };
            PackedTranspose::new(Isa::detect(), params, sizes, &[1.0, 2.0], Lasts::ForGood)
                .map(drop)
        };
        assert_eq!(packed(params.clone(), &[2], &[2]), Err(ConvError::TooLarge));
        let params = TransposeParams { strides: smallvec![1 << 30], ..params };
        assert_eq!(packed(params.clone(), &[2], &[2]), Ok(()));
        assert_eq!(packed(params, &[2, 2], &[2]), Err(ConvError::Rank { want: 1, got: 2 }));
    }
}
