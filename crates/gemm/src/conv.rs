//! Convolution forward, for images whose channels come last or first.
//!
//! Vectors are output channels of a pixel, unless a group has few of them.
//!
//! | convolution | loops |
//! | --- | --- |
//! | depthwise, one output channel for each input channel | [`depthwise`] |
//! | 3 x 3 with many channels | [`winograd`] |
//! | few output channels in a group, channels first | [`planes`] |
//! | pointwise, then depthwise, without the image between them | [`expanded`] |
//! | integers of 8 bits, channels first | [`integer`] |
//! | the gradient of weights, channels first | [`weight_gradient`] |
//! | everything else | [`direct`] |
//!
//! Weights are packed once, in a form that depends on neither the batch nor the spatial size. An
//! input in rows becomes pixels while the rows of a block are copied. An output in rows is written
//! from blocks of pixels. [`conv_naive`] is the plain loop for any number type and any rank, and
//! the oracle of the tests.

#[cfg(target_arch = "aarch64")]
mod by_lane;
mod copy;
mod depthwise;
mod direct;
mod expanded;
mod gated;
#[cfg(feature = "quantization")]
mod integer;
mod naive;
mod narrow;
mod packing;
mod pixels;
mod planes;
mod products;
mod tile;
mod transpose;
#[cfg(feature = "training")]
mod weight_gradient;
mod winograd;

use std::fmt;

use crate::gemm::{Activation, SendPtr, TileEpilogue, amx, bf16};
use depthwise::Depthwise;
use direct::Direct;
pub use expanded::{ExpandedConv, ExpandedEpilogues};
pub use gated::GatedConv;
#[cfg(feature = "quantization")]
pub use integer::{
    ByteConv, ByteEnding, ByteOperands, ByteWeights, conv_bytes, conv_bytes_scratch, conv_codes,
};
pub use naive::conv_naive;
pub use narrow::conv_narrow;
pub use packing::WeightSource;
pub use pixels::{interleave, pitch_of};
use planes::{Plane, Planes};
pub use products::{ConvOperands, conv_by_products, products_scratch, transpose_by_products};
pub use sardonyx_simd::buffer::Lasts;
use sardonyx_simd::buffer::PackedBuf;
use sardonyx_simd::{Caches, Ended, Isa, Pool};
use smallvec::{SmallVec, smallvec};
use tile::{TileTable, tiles};
#[cfg(feature = "training")]
pub use weight_gradient::WeightGradient;
use winograd::Winograd;

/// Memory layout of an input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Layout `[images, channels, spatial...]` of the ONNX standard.
    Rows,
    /// Layout `[images, spatial..., pitch]`: the channels of a pixel are adjacent, pixels `pitch`
    /// elements apart. Elements between the last channel and the next pixel are neither read nor
    /// written.
    ChannelsLast { pitch: usize },
}

impl Order {
    /// Returns the number of elements from the first to the last channel of the last pixel of
    /// `images` images; `None` on overflow.
    fn len(self, images: usize, channels: usize, plane: usize) -> Option<usize> {
        let pixels = images.checked_mul(plane)?;
        if pixels == 0 || channels == 0 {
            return Some(0);
        }
        match self {
            Order::Rows => pixels.checked_mul(channels),
            Order::ChannelsLast { pitch } => (pixels - 1).checked_mul(pitch)?.checked_add(channels),
        }
    }
}

/// Elements with their layout.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a> {
    pub data: &'a [f32],
    pub order: Order,
}

/// Elements to be written, with their layout.
#[derive(Debug)]
pub struct OrderedMut<'a> {
    pub data: &'a mut [f32],
    pub order: Order,
}

/// Operations on the result of a convolution before it is written: `activation(sum + bias +
/// residual) * factor`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConvEpilogue<'a> {
    /// One number for each output channel.
    pub bias: Option<&'a [f32]>,
    /// Summand of the shape of the output, in rows exactly if the output is.
    pub residual: Option<Ordered<'a>>,
    pub activation: Activation,
    /// Factor of the shape of the output, in rows exactly if the output is.
    pub factor: Option<Ordered<'a>>,
}
pub use transpose::{
    PackedTranspose, TransposeBuffers, TransposeParams, TransposeSizes, conv_transpose_naive,
};

/// Parameters of a convolution except the size of its input. All lists have one entry per spatial
/// dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvParams {
    pub in_channels: usize,
    pub out_channels: usize,
    /// Number of groups, a divisor of both channel counts.
    pub groups: usize,
    pub kernel: PerAxis,
    pub strides: PerAxis,
    pub dilations: PerAxis,
    /// Number of zeros before the first element of each dimension.
    pub pads_begin: PerAxis,
    /// Number of zeros after the last element of each dimension.
    pub pads_end: PerAxis,
}

/// List with one entry per spatial dimension, without an allocation for up to three of them.
pub type PerAxis<T = usize> = SmallVec<[T; 3]>;

impl ConvParams {
    /// Makes parameters with one group, stride and dilation 1, and no padding. Change the fields
    /// for others.
    pub fn new(in_channels: usize, out_channels: usize, kernel: &[usize]) -> ConvParams {
        let rank = kernel.len();
        ConvParams {
            in_channels,
            out_channels,
            groups: 1,
            kernel: kernel.into(),
            strides: smallvec![1; rank],
            dilations: smallvec![1; rank],
            pads_begin: smallvec![0; rank],
            pads_end: smallvec![0; rank],
        }
    }

    /// Checks that the fields fit each other.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), ConvError> {
        let rank = self.kernel.len();
        let lists = [&self.strides, &self.dilations, &self.pads_begin, &self.pads_end];
        if let Some(list) = lists.into_iter().find(|list| list.len() != rank) {
            return Err(ConvError::Rank { want: rank, got: list.len() });
        }
        let groups = self.groups;
        if groups == 0
            || !self.in_channels.is_multiple_of(groups)
            || !self.out_channels.is_multiple_of(groups)
        {
            return Err(ConvError::Groups {
                groups,
                in_channels: self.in_channels,
                out_channels: self.out_channels,
            });
        }
        let positive = [&self.kernel, &self.strides, &self.dilations];
        if positive.iter().any(|list| list.contains(&0)) {
            return Err(ConvError::Zero);
        }
        self.weights_len().map(|_| ()).ok_or(ConvError::TooLarge)
    }

    /// Returns the number of weights, `[out_channels, in_channels / groups, kernel...]`; `None` on
    /// overflow.
    fn weights_len(&self) -> Option<usize> {
        let taps = product(&self.kernel)?;
        (self.in_channels / self.groups).checked_mul(self.out_channels)?.checked_mul(taps)
    }

    /// Whether there are several groups of one input channel and one output channel each.
    fn is_depthwise(&self) -> bool {
        self.in_channels == self.groups && self.out_channels == self.groups && self.groups > 1
    }

    /// Returns the spatial size of the output for an input of spatial size `spatial`.
    ///
    /// # Errors
    ///
    /// If the ranks differ, or the kernel is larger than the padded input.
    pub fn output_dims(&self, spatial: &[usize]) -> Result<PerAxis, ConvError> {
        let rank = self.kernel.len();
        if spatial.len() != rank {
            return Err(ConvError::Rank { want: rank, got: spatial.len() });
        }
        (0..rank)
            .map(|i| {
                let extent = (self.kernel[i] - 1)
                    .checked_mul(self.dilations[i])
                    .and_then(|x| x.checked_add(1))
                    .ok_or(ConvError::TooLarge)?;
                let padded = spatial[i]
                    .checked_add(self.pads_begin[i])
                    .and_then(|x| x.checked_add(self.pads_end[i]))
                    .filter(|&x| x <= isize::MAX as usize / 4)
                    .ok_or(ConvError::TooLarge)?;
                match padded.checked_sub(extent) {
                    Some(room) => Ok(room / self.strides[i] + 1),
                    None => {
                        Err(ConvError::KernelTooLarge { dim: i, kernel: extent, input: padded })
                    }
                }
            })
            .collect()
    }
}

fn product(dims: &[usize]) -> Option<usize> {
    dims.iter().try_fold(1usize, |p, &d| p.checked_mul(d))
}

/// Reason for which a convolution cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvError {
    /// Lists of different length, or more spatial dimensions than the kernel has.
    Rank { want: usize, got: usize },
    /// Channels that are not multiples of the groups.
    Groups { groups: usize, in_channels: usize, out_channels: usize },
    /// A kernel size, stride or dilation of zero.
    Zero,
    /// A kernel that, with dilation, exceeds the padded input in dimension `dim`.
    KernelTooLarge { dim: usize, kernel: usize, input: usize },
    /// A size that overflows.
    TooLarge,
    /// A buffer of the wrong length.
    Length { what: &'static str, want: usize, got: usize },
    /// A part of the epilogue in another layout than the output.
    Order { what: &'static str },
    /// An algorithm that cannot compute the convolution.
    Algorithm(Algorithm),
    /// Work that was cancelled before it was complete.
    Ended(Ended),
}

impl fmt::Display for ConvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvError::Rank { want, got } => {
                write!(f, "{got} spatial dimensions where there must be {want}")
            }
            ConvError::Groups { groups, in_channels, out_channels } => write!(
                f,
                "{in_channels} input and {out_channels} output channels in {groups} groups"
            ),
            ConvError::Zero => write!(f, "a kernel size, stride or dilation is zero"),
            ConvError::KernelTooLarge { dim, kernel, input } => write!(
                f,
                "the kernel covers {kernel} in spatial dimension {dim}, the padded input has {input}"
            ),
            ConvError::TooLarge => write!(f, "a size of the convolution overflows"),
            ConvError::Length { what, want, got } => {
                write!(f, "{what} has {got} elements where there must be {want}")
            }
            ConvError::Order { what } => {
                write!(f, "{what} lies in another order than the output")
            }
            ConvError::Algorithm(algorithm) => {
                write!(f, "this convolution has no form for {}", algorithm.name())
            }
            ConvError::Ended(_) => write!(f, "the convolution ended before it was done"),
        }
    }
}

impl std::error::Error for ConvError {}

impl From<Ended> for ConvError {
    fn from(ended: Ended) -> ConvError {
        ConvError::Ended(ended)
    }
}

/// Number type of the operands of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operands {
    /// Floats.
    Exact,
    /// Floats rounded to bfloat16, ties to even; sums are floats. Two neighbouring channels are one
    /// step, so an instruction does twice the multiply-adds, and weights take half the memory.
    Rounded,
    /// Floats rounded like [`Operands::Rounded`], multiplied by the tile registers of AMX. Zeros
    /// pad the channels of a pixel to whole tiles.
    Tiles,
}

impl Operands {
    /// Whether this machine multiplies them on that instruction set.
    fn are_available(self, isa: Isa) -> bool {
        match self {
            Operands::Exact => true,
            Operands::Rounded => bf16::is_available(isa),
            Operands::Tiles => amx::is_available(isa),
        }
    }
}

/// Algorithm of a convolution, which decides the form of its packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One output channel for each input channel, computed by taps.
    Depthwise,
    /// One multiply-add for each weight and output.
    Direct(Operands),
    /// Fewer multiply-adds on sums of inputs and of weights, with 16 / 9 of the memory for weights.
    /// If operands are rounded, these sums are.
    Winograd(Operands),
    /// One multiply-add for each weight and output. Vectors are neighbouring outputs of a plane.
    Planes,
}

/// Sums: fewest input and output channels of a group for which operands are rounded. With fewer,
/// rounding the inputs takes longer than the products save.
const LEAST_ROUNDED: usize = 16;
/// Sums: fewest steps of a sum that AMX multiplies.
const LEAST_STEPS: usize = 16;
/// Sums: fewest channels for which operands of Winograd's algorithm are rounded, of which there are
/// more than inputs and weights.
const LEAST_ROUNDED_SUMS: usize = 64;

impl Algorithm {
    /// Chooses the fastest algorithm with exact operands for an output of `pixels` pixels in all
    /// images, if that number is known.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other.
    pub fn choose(params: &ConvParams, pixels: Option<usize>) -> Result<Algorithm, ConvError> {
        params.check()?;
        let suits = winograd::suits(params, &Geometry::new(params)?);
        Ok(match pixels {
            _ if params.is_depthwise() => Algorithm::Depthwise,
            None if suits => Algorithm::Winograd(Operands::Exact),
            Some(pixels) if suits && pixels >= winograd::LEAST_PIXELS => {
                Algorithm::Winograd(Operands::Exact)
            }
            _ => Algorithm::Direct(Operands::Exact),
        })
    }

    /// Returns the algorithm that is faster if input and output are in rows, for an input of
    /// spatial size `spatial`. Without `spatial`, assumes images of more than a few pixels.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other or the size.
    pub fn in_rows(
        self,
        isa: Isa,
        params: &ConvParams,
        spatial: Option<&[usize]>,
    ) -> Result<Algorithm, ConvError> {
        // Vectors of output channels would be at most half full.
        let group_out = params.out_channels / params.groups.max(1);
        if group_out > isa.lanes() / 2 || self != Algorithm::Direct(Operands::Exact) {
            return Ok(self);
        }
        let Some(spatial) = spatial else { return Ok(Algorithm::Planes) };
        let geometry = Geometry::new(params)?;
        let sizes = ImageSizes::new(params, 1, spatial)?;
        let plane = sizes.plane(isa, &geometry, group_out);
        Ok(if plane.beats_direct() { Algorithm::Planes } else { self })
    }

    /// Returns the algorithm with rounded operands if these are faster, else itself.
    pub fn to_rounded(self, isa: Isa, params: &ConvParams) -> Algorithm {
        let groups = params.groups.max(1);
        let (inputs, outputs) = (params.in_channels / groups, params.out_channels / groups);
        if matches!(self, Algorithm::Depthwise | Algorithm::Planes) {
            return self;
        }
        if amx::is_available(isa) {
            let steps =
                params.kernel.iter().fold(inputs, |steps, taps| steps.saturating_mul(*taps));
            let pays = outputs >= LEAST_ROUNDED && steps >= LEAST_STEPS;
            return if pays { Algorithm::Direct(Operands::Tiles) } else { self };
        }
        let channels = inputs.min(outputs);
        if channels < LEAST_ROUNDED || !bf16::is_faster(isa) {
            return self;
        }
        match self {
            Algorithm::Depthwise | Algorithm::Planes => self,
            Algorithm::Winograd(_) if channels >= LEAST_ROUNDED_SUMS => {
                Algorithm::Winograd(Operands::Rounded)
            }
            Algorithm::Direct(_) | Algorithm::Winograd(_) => Algorithm::Direct(Operands::Rounded),
        }
    }

    /// Returns an algorithm that needs less memory for weights, if there is one.
    pub fn smaller(self) -> Option<Algorithm> {
        match self {
            Algorithm::Winograd(operands) => Some(Algorithm::Direct(operands)),
            Algorithm::Depthwise | Algorithm::Direct(_) | Algorithm::Planes => None,
        }
    }

    fn operands(self) -> Operands {
        match self {
            Algorithm::Depthwise | Algorithm::Planes => Operands::Exact,
            Algorithm::Direct(operands) | Algorithm::Winograd(operands) => operands,
        }
    }

    fn check(self, isa: Isa, params: &ConvParams, geometry: &Geometry) -> Result<(), ConvError> {
        let fits = match self {
            Algorithm::Depthwise => params.is_depthwise(),
            Algorithm::Direct(Operands::Tiles) => !params.is_depthwise() && params.in_channels > 0,
            Algorithm::Direct(_) | Algorithm::Planes => !params.is_depthwise(),
            Algorithm::Winograd(Operands::Tiles) => false,
            Algorithm::Winograd(_) => winograd::suits(params, geometry),
        };
        let multiplies = self.operands().are_available(isa);
        if fits && multiplies { Ok(()) } else { Err(ConvError::Algorithm(self)) }
    }

    /// Returns the name of the algorithm for profiles.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Depthwise => "depthwise",
            Algorithm::Planes => "planes",
            Algorithm::Direct(Operands::Exact) => "direct",
            Algorithm::Direct(Operands::Rounded) => "direct in bfloat16",
            Algorithm::Direct(Operands::Tiles) => "direct in bfloat16 by AMX",
            Algorithm::Winograd(Operands::Exact) => "winograd",
            Algorithm::Winograd(Operands::Rounded) => "winograd in bfloat16",
            Algorithm::Winograd(Operands::Tiles) => "winograd in bfloat16 by AMX",
        }
    }
}

/// A convolution with its weights packed, for inputs of any batch and spatial size.
#[derive(Debug)]
pub struct PackedConv {
    params: ConvParams,
    geometry: Geometry,
    isa: Isa,
    /// Caches for which blocks of outputs are cut.
    caches: Caches,
    algorithm: Algorithm,
    /// Weights in the form of [`packing`].
    weights: PackedBuf,
}

impl PackedConv {
    pub fn params(&self) -> &ConvParams {
        &self.params
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Cuts blocks of outputs for other caches than those of this machine. Results stay the same.
    #[must_use]
    pub fn with_caches(self, caches: Caches) -> PackedConv {
        PackedConv { caches, ..self }
    }

    /// Returns the bytes of the packed weights.
    pub fn bytes(&self) -> usize {
        self.weights.len() * size_of::<f32>()
    }

    /// Returns the number of words of the input channels of a group. A word is one step of a sum.
    fn words(&self) -> usize {
        words(&self.params, self.algorithm.operands())
    }

    /// Returns the number of steps of the sum of an output in a direct convolution.
    fn depth(&self) -> usize {
        self.words() * self.geometry.taps()
    }

    fn tiles(&self) -> &'static TileTable {
        tiles(self.isa, self.algorithm.operands())
    }

    /// Returns an upper bound of the scratch memory in bytes that [`PackedConv::run`] takes on all
    /// threads, except a few KB.
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
        let sizes = ImageSizes::new(&self.params, images, spatial)?;
        let padded = Padded { geometry: &self.geometry, sizes: &sizes };
        self.padded_scratch(pool, padded, input, output)
    }

    /// Bounds the scratch memory like [`PackedConv::scratch`], with a padding that may differ from
    /// that of the parameters.
    fn padded_scratch(
        &self,
        pool: &Pool,
        padded: Padded<'_>,
        input: Order,
        output: Order,
    ) -> Result<usize, ConvError> {
        if padded.sizes.is_empty(&self.params) {
            return Ok(0);
        }
        let (input, output) = (RawOrdered::without_data(input), RawOrdered::without_data(output));
        self.job(padded, input, output, TileEpilogue::PLAIN).scratch(pool)
    }

    /// Returns the name of the loops that run, for profiles.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other.
    pub fn strategy(params: &ConvParams, algorithm: Algorithm) -> Result<&'static str, ConvError> {
        let is_pointwise = Geometry::new(params)?.is_pointwise();
        Ok(match algorithm {
            Algorithm::Direct(Operands::Exact) if is_pointwise => "pointwise",
            Algorithm::Direct(Operands::Rounded) if is_pointwise => "pointwise in bfloat16",
            Algorithm::Direct(Operands::Tiles) if is_pointwise => "pointwise in bfloat16 by AMX",
            _ => algorithm.name(),
        })
    }

    /// Convolves `images` images of spatial size `spatial`.
    ///
    /// # Errors
    ///
    /// If a length does not fit, the kernel is larger than the padded input, or the scratch memory
    /// would exceed any memory.
    pub fn run(
        &self,
        pool: &Pool,
        images: usize,
        spatial: &[usize],
        input: Ordered<'_>,
        output: OrderedMut<'_>,
        epilogue: &ConvEpilogue<'_>,
    ) -> Result<(), ConvError> {
        let sizes = ImageSizes::new(&self.params, images, spatial)?;
        let padded = Padded { geometry: &self.geometry, sizes: &sizes };
        self.run_padded(pool, padded, input, output, epilogue)
    }

    /// Convolves images like [`PackedConv::run`], with a padding that may differ from that of the
    /// parameters.
    fn run_padded(
        &self,
        pool: &Pool,
        padded: Padded<'_>,
        input: Ordered<'_>,
        output: OrderedMut<'_>,
        epilogue: &ConvEpilogue<'_>,
    ) -> Result<(), ConvError> {
        let sizes = padded.sizes;
        self.check_input(sizes, &input)?;
        self.check_output(sizes, &output, epilogue)?;
        if sizes.is_empty(&self.params) {
            return Ok(());
        }
        let raw = epilogue.raw(output.order, sizes.out_plane);
        self.job(padded, input.raw(), output.raw(), raw).run(pool)
    }

    /// Checks the length of an input.
    fn check_input(&self, sizes: &ImageSizes, input: &Ordered<'_>) -> Result<(), ConvError> {
        let len = input.order.len(sizes.images, self.params.in_channels, sizes.in_plane);
        check_room("input", input.order, len.ok_or(ConvError::TooLarge)?, input.data.len())
    }

    /// Checks the lengths and layouts of an output and of its epilogue.
    fn check_output(
        &self,
        sizes: &ImageSizes,
        output: &OrderedMut<'_>,
        epilogue: &ConvEpilogue<'_>,
    ) -> Result<(), ConvError> {
        let len = |order: Order| {
            let len = order.len(sizes.images, self.params.out_channels, sizes.out_plane);
            len.ok_or(ConvError::TooLarge)
        };
        check_room("output", output.order, len(output.order)?, output.data.len())?;
        for (what, part) in [("residual", epilogue.residual), ("factor", epilogue.factor)] {
            let Some(part) = part else { continue };
            if (part.order == Order::Rows) != (output.order == Order::Rows) {
                return Err(ConvError::Order { what });
            }
            check_room(what, part.order, len(part.order)?, part.data.len())?;
        }
        self.check_bias(epilogue)
    }

    /// Checks the length of the bias.
    fn check_bias(&self, epilogue: &ConvEpilogue<'_>) -> Result<(), ConvError> {
        match epilogue.bias {
            Some(bias) => check_len("bias", self.params.out_channels, bias.len()),
            None => Ok(()),
        }
    }

    /// Makes the loops of a call whose sizes have been checked.
    fn job<'a>(
        &'a self,
        padded: Padded<'a>,
        input: RawOrdered,
        output: RawOrdered,
        epilogue: TileEpilogue,
    ) -> Job<'a> {
        self.gated_job(None, padded, input, output, epilogue)
    }

    /// Makes the loops of a call whose sizes have been checked. A `gate`, for direct convolutions
    /// only, multiplies the input by a number for each channel of each image.
    fn gated_job<'a>(
        &'a self,
        gate: Option<&'a [f32]>,
        padded: Padded<'a>,
        input: RawOrdered,
        output: RawOrdered,
        epilogue: TileEpilogue,
    ) -> Job<'a> {
        let p = &self.params;
        let Padded { geometry, sizes } = padded;
        let is_rows = [input.order, output.order] == [Order::Rows; 2];
        let input = input.side(p.in_channels, sizes.in_plane);
        let output = output.side(p.out_channels, sizes.out_plane);
        let (images, in_dims, out_dims) = (sizes.images, sizes.in_dims, sizes.out_dims);
        match self.algorithm {
            Algorithm::Planes => Job::Planes(self.planes(padded, input, output, epilogue)),
            Algorithm::Depthwise
                if is_rows
                    && !depthwise::suits(geometry, output.plane)
                    && sizes.plane(self.isa, geometry, 1).beats_depthwise(p.groups) =>
            {
                Job::Planes(self.planes(padded, input, output, epilogue))
            }
            Algorithm::Depthwise => Job::Depthwise(Depthwise {
                isa: self.isa,
                caches: self.caches,
                geometry,
                channels: p.out_channels,
                weights: &self.weights,
                images,
                in_dims,
                out_dims,
                input,
                output,
                epilogue,
            }),
            Algorithm::Direct(_) => {
                let direct = Direct {
                    conv: self,
                    geometry,
                    images,
                    in_dims,
                    out_dims,
                    input,
                    gate,
                    output,
                    epilogue,
                };
                Job::Direct(direct.join_rows())
            }
            Algorithm::Winograd(_) => {
                let [[_, in_h, in_w], [_, out_h, out_w]] = [in_dims, out_dims];
                let (in_dims, out_dims) = ([in_h, in_w], [out_h, out_w]);
                Job::Winograd(Winograd {
                    conv: self,
                    geometry,
                    images,
                    in_dims,
                    out_dims,
                    input,
                    output,
                    epilogue,
                })
            }
        }
    }
}

impl PackedConv {
    /// Makes a convolution by planes from packed weights in one of the forms that it reads.
    fn planes<'a>(
        &'a self,
        Padded { geometry, sizes }: Padded<'a>,
        input: Side,
        output: Side,
        epilogue: TileEpilogue,
    ) -> Planes<'a> {
        let p = &self.params;
        let all = &self.weights[..];
        let (group_in, group_out) = (p.in_channels / p.groups, p.out_channels / p.groups);
        let (weights, chain) = if self.algorithm == Algorithm::Depthwise {
            // A row of all channels for each tap. The order of sums is that of the other loops.
            let step = p.out_channels.next_multiple_of(self.isa.lanes());
            (planes::Weights { all, group: 1, output: 0, step }, usize::MAX)
        } else {
            let output = self.depth();
            let group = output * group_out;
            (planes::Weights { all, group, output, step: 1 }, planes::CHAIN)
        };
        let (mut in_dims, mut out_dims) = (sizes.in_dims, sizes.out_dims);
        if geometry.is_pointwise() {
            (in_dims, out_dims) = ([1, 1, sizes.in_plane], [1, 1, sizes.out_plane]);
        }
        Planes {
            isa: self.isa,
            caches: self.caches,
            geometry,
            groups: p.groups,
            group_in,
            group_out,
            weights,
            chain,
            images: sizes.images,
            in_dims,
            out_dims,
            input,
            output,
            epilogue,
        }
    }
}

/// Loops of one call of [`PackedConv::run`] with checked sizes.
enum Job<'a> {
    Direct(Direct<'a>),
    Depthwise(Depthwise<'a>),
    Winograd(Winograd<'a>),
    Planes(Planes<'a>),
}

impl Job<'_> {
    fn run(&self, pool: &Pool) -> Result<(), ConvError> {
        match self {
            Job::Direct(direct) => direct.run(pool),
            Job::Depthwise(depthwise) => Ok(depthwise.run(pool)?),
            Job::Winograd(winograd) => Ok(winograd.run(pool)?),
            Job::Planes(planes) => Ok(planes.run(pool)?),
        }
    }

    /// Returns the bytes of scratch memory of all threads.
    fn scratch(&self, pool: &Pool) -> Result<usize, ConvError> {
        check_memory(match self {
            Job::Direct(direct) => direct.scratch(pool),
            Job::Depthwise(depthwise) => depthwise.scratch(pool),
            Job::Winograd(winograd) => winograd.scratch(pool),
            Job::Planes(planes) => planes.scratch(pool),
        })
    }
}

/// Geometry of a call of packed weights, and the sizes of its images. Bands of an image have a
/// padding of their own, but read the weights of the whole. Not reference-counted, as each run that
/// packs weights would allocate the count.
#[derive(Clone, Copy)]
struct Padded<'a> {
    geometry: &'a Geometry,
    sizes: &'a ImageSizes,
}

/// Sizes of an input and its output.
struct ImageSizes {
    images: usize,
    in_dims: [usize; 3],
    out_dims: [usize; 3],
    in_plane: usize,
    out_plane: usize,
}

impl ImageSizes {
    fn new(params: &ConvParams, images: usize, spatial: &[usize]) -> Result<Self, ConvError> {
        let out_dims = params.output_dims(spatial)?;
        let plane = |dims: &[usize]| product(dims).ok_or(ConvError::TooLarge);
        Ok(ImageSizes {
            images,
            in_dims: three_dims(spatial),
            out_dims: three_dims(&out_dims),
            in_plane: plane(spatial)?,
            out_plane: plane(&out_dims)?,
        })
    }

    /// Returns the sizes of an image by which algorithms are compared.
    fn plane<'a>(&self, isa: Isa, geometry: &'a Geometry, group_out: usize) -> Plane<'a> {
        let (in_dims, out_dims) = (self.in_dims, self.out_dims);
        Plane { geometry, lanes: isa.lanes(), group_out, in_dims, out_dims }
    }

    /// Whether the output is empty.
    fn is_empty(&self, params: &ConvParams) -> bool {
        self.images == 0 || self.out_plane == 0 || params.out_channels == 0
    }
}

/// An input or output in the form that the loops read.
#[derive(Clone, Copy)]
struct Side {
    data: SendPtr,
    order: Order,
    channels: usize,
    /// Number of pixels of an image.
    plane: usize,
}

impl Side {
    /// Returns the address of the first channel of a pixel.
    #[inline(always)]
    fn pixel(&self, image: usize, pixel: usize) -> *mut f32 {
        let at = match self.order {
            Order::Rows => image * self.channels * self.plane + pixel,
            Order::ChannelsLast { pitch } => (image * self.plane + pixel) * pitch,
        };
        self.data.get().wrapping_add(at)
    }
}

/// An input or output whose length has been checked.
#[derive(Clone, Copy)]
struct RawOrdered {
    data: SendPtr,
    order: Order,
}

impl RawOrdered {
    /// Makes an input or output that only has a layout, to compute sizes.
    fn without_data(order: Order) -> RawOrdered {
        RawOrdered { data: SendPtr(std::ptr::null_mut()), order }
    }

    /// Adds the sizes that the loops read.
    fn side(self, channels: usize, plane: usize) -> Side {
        Side { data: self.data, order: self.order, channels, plane }
    }
}

impl Ordered<'_> {
    /// Forgets the length of an input.
    fn raw(&self) -> RawOrdered {
        RawOrdered { data: SendPtr(self.data.as_ptr().cast_mut()), order: self.order }
    }
}

impl OrderedMut<'_> {
    /// Forgets the length of an output.
    fn raw(self) -> RawOrdered {
        RawOrdered { data: SendPtr(self.data.as_mut_ptr()), order: self.order }
    }
}

impl ConvEpilogue<'_> {
    /// Converts checked parts to pointers. Rows of the output are its pixels, or its planes of
    /// `plane` pixels.
    fn raw(&self, order: Order, plane: usize) -> TileEpilogue {
        let null = std::ptr::null();
        let bias = self.bias.map_or(null, <[f32]>::as_ptr);
        let (row_bias, col_bias) = match order {
            Order::Rows => (bias, null),
            Order::ChannelsLast { .. } => (null, bias),
        };
        let step = |part: Option<Ordered<'_>>| match part {
            None => (null, 0),
            Some(Ordered { data, order: Order::Rows }) => (data.as_ptr(), plane),
            Some(Ordered { data, order: Order::ChannelsLast { pitch } }) => (data.as_ptr(), pitch),
        };
        let ((residual, residual_rs), (factor, factor_rs)) =
            (step(self.residual), step(self.factor));
        TileEpilogue {
            row_bias,
            col_bias,
            residual,
            residual_rs,
            activation: self.activation,
            factor,
            factor_rs,
            ..TileEpilogue::PLAIN
        }
    }
}

/// Returns the number of words of the input channels of a group.
fn words(params: &ConvParams, operands: Operands) -> usize {
    let channels = params.in_channels / params.groups;
    match operands {
        Operands::Exact => channels,
        Operands::Rounded => channels.div_ceil(2),
        Operands::Tiles => tiles_of(params).1,
    }
}

/// Returns the number of words that AMX multiplies at a time, and the number of words of a pixel.
/// If the taps of a kernel row are adjacent, a tile may hold parts of several taps. Else each tap
/// has whole tiles, padded with zeros.
fn tiles_of(params: &ConvParams) -> (usize, usize) {
    let words = (params.in_channels / params.groups).div_ceil(2);
    let (depth, filled) = amx::depth_of(words);
    let is_dense = params.dilations.last().is_none_or(|dilation| *dilation == 1);
    let taps = params.kernel.last().map_or(1, |taps| if is_dense { *taps } else { 1 });
    let joined = words.saturating_mul(taps);
    let divides = (1..=amx::ROWS).rev().find(|depth| joined.is_multiple_of(*depth));
    match divides {
        Some(divisor) if joined / divisor < (filled / depth).saturating_mul(taps) => {
            (divisor, words)
        }
        _ => (depth, filled),
    }
}

/// Checks that a buffer can have as many bytes.
fn check_memory(bytes: usize) -> Result<usize, ConvError> {
    if bytes > isize::MAX as usize / 2 { Err(ConvError::TooLarge) } else { Ok(bytes) }
}

fn check_len(what: &'static str, want: usize, got: usize) -> Result<(), ConvError> {
    if want == got { Ok(()) } else { Err(ConvError::Length { what, want, got }) }
}

/// Checks the length of a buffer, which may be longer with channels last: the caller may use
/// elements after the last channel of the last pixel for other values.
fn check_room(what: &'static str, order: Order, want: usize, got: usize) -> Result<(), ConvError> {
    let is_last = matches!(order, Order::ChannelsLast { .. });
    check_len(what, want, if is_last { got.min(want) } else { got })
}

/// Parameters in three spatial dimensions. Missing ones come first and have size 1.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    kernel: [usize; 3],
    strides: [usize; 3],
    dilations: [usize; 3],
    pads_begin: [usize; 3],
    padded: bool,
}

impl Geometry {
    fn new(params: &ConvParams) -> Result<Geometry, ConvError> {
        let rank = params.kernel.len();
        if rank > 3 {
            return Err(ConvError::Rank { want: 3, got: rank });
        }
        let pad_to_three = |list: &[usize], fill: usize| {
            let mut out = [fill; 3];
            out[3 - rank..].copy_from_slice(list);
            out
        };
        let pads = params.pads_begin.iter().chain(&params.pads_end);
        let limit = isize::MAX as usize / 8;
        let sizes = params.strides.iter().chain(&params.dilations);
        if pads.clone().chain(sizes).any(|&x| x > limit) {
            return Err(ConvError::TooLarge);
        }
        Ok(Geometry {
            kernel: pad_to_three(&params.kernel, 1),
            strides: pad_to_three(&params.strides, 1),
            dilations: pad_to_three(&params.dilations, 1),
            pads_begin: pad_to_three(&params.pads_begin, 0),
            padded: pads.clone().any(|&x| x != 0),
        })
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether each patch is one pixel of the input, in order.
    fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.strides == [1; 3] && !self.padded
    }
}

fn three_dims(dims: &[usize]) -> [usize; 3] {
    let mut out = [1; 3];
    out[3 - dims.len()..].copy_from_slice(dims);
    out
}

#[cfg(test)]
mod tests;
