//! Convolution forward, for inputs in `[N, C, spatial...]` layout.
//!
//! A convolution is a matrix product: weights (output channels x patch) times patches (patch x
//! output positions). The strategies differ in where the patches come from:
//!
//! | convolution | patches |
//! | --- | --- |
//! | 1x1, stride 1, no padding | the input itself |
//! | depthwise (one input channel per group) | none: a direct kernel along rows |
//! | few channels, or stride over 2 | gathered while packing from a padded copy |
//! | everything else | gathered while packing, a panel at a time (*virtual im2col*) |
//!
//! Weights are packed once, in a form that depends on neither the batch nor the spatial size.
//! [`conv_naive`] is the plain loop for any number type and any rank, and the oracle of the tests.

mod depthwise;
mod naive;
mod padded;
mod patches;
mod scaled;

use std::fmt;

use crate::gemm::pack::{Packed, SendPtr};
use crate::gemm::{
    ApplyFunction, Bias, Epilogue, MatRef, Operand, OperandKind, PanelForm, Product, Sizes,
    Storage, TileEpilogue,
};
use crate::simd::dispatch;
use crate::{Isa, Pool};
use depthwise::Plane;
pub use naive::conv_naive;
use patches::Patches;
use scaled::Scaled;

/// What a convolution is, apart from the size of its input. All lists have one entry per spatial
/// dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConvParams {
    pub in_channels: usize,
    pub out_channels: usize,
    /// Both channel counts are multiples of it.
    pub groups: usize,
    pub kernel: Vec<usize>,
    pub strides: Vec<usize>,
    pub dilations: Vec<usize>,
    /// Zeros before the first element of each dimension.
    pub pads_begin: Vec<usize>,
    /// Zeros after the last one.
    pub pads_end: Vec<usize>,
}

impl ConvParams {
    /// One group, stride and dilation 1, no padding; change the fields for the rest.
    pub fn new(in_channels: usize, out_channels: usize, kernel: &[usize]) -> ConvParams {
        let rank = kernel.len();
        ConvParams {
            in_channels,
            out_channels,
            groups: 1,
            kernel: kernel.to_vec(),
            strides: vec![1; rank],
            dilations: vec![1; rank],
            pads_begin: vec![0; rank],
            pads_end: vec![0; rank],
        }
    }

    /// Whether the fields fit each other.
    ///
    /// # Errors
    ///
    /// The first rule broken.
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

    /// Elements of the weights, `[out_channels, in_channels / groups, kernel...]`; `None` when that
    /// overflows.
    fn weights_len(&self) -> Option<usize> {
        let taps = product(&self.kernel)?;
        (self.in_channels / self.groups).checked_mul(self.out_channels)?.checked_mul(taps)
    }

    /// Whether each group has one input channel, and there are several.
    fn is_depthwise(&self) -> bool {
        self.in_channels == self.groups && self.groups > 1
    }

    /// The spatial size of the output for an input of spatial size `spatial`.
    ///
    /// # Errors
    ///
    /// If the ranks differ, or the kernel is larger than the padded input.
    pub fn output_dims(&self, spatial: &[usize]) -> Result<Vec<usize>, ConvError> {
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

/// Why a convolution cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConvError {
    /// Lists of different length, or more spatial dimensions than the kernel has.
    Rank { want: usize, got: usize },
    /// Channels are not multiples of the groups.
    Groups { groups: usize, in_channels: usize, out_channels: usize },
    /// A kernel size, stride or dilation is zero.
    Zero,
    /// The kernel, with dilation, exceeds the padded input in dimension `dim`.
    KernelTooLarge { dim: usize, kernel: usize, input: usize },
    /// A size overflows.
    TooLarge,
    /// A buffer has the wrong length.
    Length { what: &'static str, want: usize, got: usize },
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
        }
    }
}

impl std::error::Error for ConvError {}

/// Where the weights of a convolution are, `[out_channels, in_channels / groups, kernel...]`.
#[derive(Clone, Copy, Debug)]
pub enum WeightSource<'a> {
    Floats(&'a [f32]),
    /// Little-endian, at any alignment.
    LeBytes(&'a [u8]),
    /// One weight throughout.
    Fill(f32),
}

/// A convolution with its weights packed, ready for inputs of any batch and spatial size.
#[derive(Debug)]
pub struct PackedConv {
    params: ConvParams,
    geometry: Geometry,
    isa: Isa,
    weights: Weights,
}

#[derive(Debug)]
enum Weights {
    /// One left operand per group.
    Panels(Vec<Packed>),
    /// `[out_channels, taps]`.
    Depthwise(Vec<f32>),
}

impl PackedConv {
    /// Packs `weights`, `[out_channels, in_channels / groups, kernel...]`.
    ///
    /// # Errors
    ///
    /// As [`PackedConv::scaled`].
    ///
    /// # Panics
    ///
    /// As [`PackedConv::scaled`].
    pub fn new(isa: Isa, params: ConvParams, weights: &[f32]) -> Result<PackedConv, ConvError> {
        PackedConv::scaled(isa, params, WeightSource::Floats(weights), None)
    }

    /// Packs weights, each multiplied with the number of its output channel in `scale`: in double
    /// precision, rounded once.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other, there are more than three spatial dimensions (use
    /// [`conv_naive`]), or `weights` or `scale` has the wrong length.
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn scaled(
        isa: Isa,
        params: ConvParams,
        weights: WeightSource<'_>,
        scale: Option<&[f64]>,
    ) -> Result<PackedConv, ConvError> {
        params.check()?;
        let len = params.weights_len().ok_or(ConvError::TooLarge)?;
        if let Some(scale) = scale {
            check_len("scale", params.out_channels, scale.len())?;
        }
        let swapped: Vec<f32>;
        let (start, step) = match &weights {
            WeightSource::Floats(floats) => {
                check_len("weights", len, floats.len())?;
                (floats.as_ptr(), 1)
            }
            WeightSource::LeBytes(bytes) if cfg!(target_endian = "big") => {
                let floats =
                    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                swapped = floats.collect();
                check_len("weights", len, swapped.len())?;
                (swapped.as_ptr(), 1)
            }
            WeightSource::LeBytes(bytes) => {
                check_len("weights", len, bytes.len() / 4)?;
                (bytes.as_ptr().cast(), 1)
            }
            WeightSource::Fill(weight) => (&raw const *weight, 0),
        };
        // SAFETY: `len` floats are there; of a fill only the one is read, with a distance of 0.
        unsafe { PackedConv::from_raw(isa, params, (start, step), scale) }
    }

    /// Packs weights that begin at a place and lie some floats apart.
    ///
    /// # Safety
    ///
    /// The parameters have been checked, and all weights that they imply must be readable there, at
    /// any alignment.
    unsafe fn from_raw(
        isa: Isa,
        params: ConvParams,
        (weights, step): (*const f32, usize),
        scale: Option<&[f64]>,
    ) -> Result<PackedConv, ConvError> {
        crate::simd::check_isa(isa);
        let geometry = Geometry::new(&params)?;
        let len = params.weights_len().ok_or(ConvError::TooLarge)?;
        let group_in = params.in_channels / params.groups;
        let group_out = params.out_channels / params.groups;
        let packed = if params.is_depthwise() {
            // SAFETY: `len` floats are readable.
            let weight = |i: usize| unsafe { weights.add(i * step).read_unaligned() };
            let mut plain: Vec<f32> = (0..len).map(weight).collect();
            if let Some(scale) = scale {
                for (taps, by) in plain.chunks_exact_mut(geometry.taps()).zip(scale) {
                    taps.iter_mut().for_each(|weight| *weight = scaled::product(*weight, *by));
                }
            }
            Weights::Depthwise(plain)
        } else {
            let depth = group_in * geometry.taps();
            let panels = (0..params.groups).map(|g| {
                // SAFETY: group `g` has `group_out` rows of `depth` floats inside `len`; packing
                // reads unaligned.
                let matrix = unsafe {
                    let start = weights.add(g * group_out * depth * step);
                    MatRef::from_raw(start, group_out, depth, depth * step, step)
                };
                let matrix = matrix.transposed();
                match scale {
                    None => Packed::new(isa, &matrix),
                    Some(scale) => {
                        let by = &scale[g * group_out..][..group_out];
                        Packed::new(isa, &Scaled { matrix: &matrix, by })
                    }
                }
            });
            Weights::Panels(panels.collect())
        };
        Ok(PackedConv { params, geometry, isa, weights: packed })
    }

    pub fn params(&self) -> &ConvParams {
        &self.params
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Memory held by the packed weights.
    pub fn bytes(&self) -> usize {
        let floats = match &self.weights {
            Weights::Panels(groups) => groups.iter().map(|p| p.data.len()).sum(),
            Weights::Depthwise(weights) => weights.len(),
        };
        floats * size_of::<f32>()
    }

    /// Memory that the packed weights of such a convolution take.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other, or the size overflows.
    pub fn bytes_of(isa: Isa, params: &ConvParams) -> Result<usize, ConvError> {
        params.check()?;
        let geometry = Geometry::new(params)?;
        let floats = if params.is_depthwise() {
            params.weights_len()
        } else {
            let depth = params.in_channels / params.groups * geometry.taps();
            let group_out = params.out_channels / params.groups;
            Packed::words(isa, Storage::F32, depth, group_out)
                .and_then(|floats| floats.checked_mul(params.groups))
        };
        let bytes = floats.and_then(|floats| floats.checked_mul(size_of::<f32>()));
        bytes.ok_or(ConvError::TooLarge)
    }

    /// The most bytes of scratch memory that [`PackedConv::run`] takes: patches that are packed
    /// before a product, and padded copies of the input. Each thread takes a few hundred KB more,
    /// whatever the sizes.
    ///
    /// # Errors
    ///
    /// If the kernel is larger than the padded input.
    pub fn scratch(
        &self,
        pool: &Pool,
        batch: usize,
        spatial: &[usize],
    ) -> Result<usize, ConvError> {
        let (p, geometry) = (&self.params, &self.geometry);
        let out_dims = p.output_dims(spatial)?;
        let out_plane = product(&out_dims).ok_or(ConvError::TooLarge)?;
        let products = batch.saturating_mul(p.groups);
        if p.is_depthwise() || products == 0 || out_plane == 0 {
            return Ok(0);
        }
        let group_in = p.in_channels / p.groups;
        let pointwise = geometry.is_pointwise();
        let sizes = Sizes {
            isa: self.isa,
            m: p.out_channels / p.groups,
            n: out_plane,
            k: group_in * geometry.taps(),
            a: OperandKind::Panels,
            b: if pointwise { OperandKind::Matrix(true) } else { OperandKind::Source },
            may_turn: true,
        };
        let (in_dims, out_dims) = (three_dims(spatial), three_dims(&out_dims));
        let copy = if pointwise || !padded::suits(geometry, in_dims, out_dims, group_in) {
            0
        } else {
            padded::copy_len(geometry, out_dims, group_in)
        };
        let macs = sizes.m.saturating_mul(sizes.n).saturating_mul(sizes.k);
        let together =
            if runs_whole(pool, products, macs) { products.min(pool.threads()) } else { 1 };
        let floats = sizes.scratch_floats(pool).saturating_add(copy);
        Ok(floats.saturating_mul(together).saturating_mul(size_of::<f32>()))
    }

    /// Which strategy runs, for profiles.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other.
    pub fn strategy(params: &ConvParams) -> Result<&'static str, ConvError> {
        params.check()?;
        Ok(match Geometry::new(params)? {
            _ if params.is_depthwise() => "depthwise",
            geometry if geometry.is_pointwise() => "pointwise",
            _ => "im2col",
        })
    }

    /// Convolves `batch` images of spatial size `spatial`: `input` is
    /// `[batch, in_channels, spatial...]`, `output` `[batch, out_channels, output_dims...]`. For
    /// the epilogue the output of an image is a matrix of `out_channels` rows; residual and factor
    /// have the shape of all of the output.
    ///
    /// # Errors
    ///
    /// If a length does not fit, or the kernel is larger than the padded input.
    pub fn run(
        &self,
        pool: &Pool,
        batch: usize,
        spatial: &[usize],
        input: &[f32],
        output: &mut [f32],
        epilogue: &Epilogue<'_>,
    ) -> Result<(), ConvError> {
        let p = &self.params;
        let out_dims = p.output_dims(spatial)?;
        let in_plane = product(spatial).ok_or(ConvError::TooLarge)?;
        let out_plane = product(&out_dims).ok_or(ConvError::TooLarge)?;
        let tensor = |channels: usize, plane: usize| {
            batch
                .checked_mul(channels)
                .and_then(|n| n.checked_mul(plane))
                .ok_or(ConvError::TooLarge)
        };
        let out_len = tensor(p.out_channels, out_plane)?;
        check_len("input", tensor(p.in_channels, in_plane)?, input.len())?;
        check_len("output", out_len, output.len())?;
        check_epilogue(epilogue, [p.out_channels, out_plane], out_len)?;
        if out_len == 0 {
            return Ok(());
        }
        let job = Job {
            conv: self,
            batch,
            in_dims: three_dims(spatial),
            out_dims: three_dims(&out_dims),
            in_plane,
            out_plane,
            input,
            output: SendPtr(output.as_mut_ptr()),
            epilogue: epilogue.raw(),
        };
        match &self.weights {
            Weights::Panels(groups) => job.run_products(pool, groups),
            Weights::Depthwise(weights) => job.run_depthwise(pool, weights),
        }
        Ok(())
    }
}

/// All parts fit outputs of these rows and columns, of which all images together have `len`
/// elements.
fn check_epilogue(
    epilogue: &Epilogue<'_>,
    [rows, cols]: [usize; 2],
    len: usize,
) -> Result<(), ConvError> {
    match epilogue.bias {
        Some(Bias::Row(bias)) => check_len("bias", rows, bias.len())?,
        Some(Bias::Col(bias)) => check_len("bias", cols, bias.len())?,
        None => {}
    }
    if let Some((_, addend)) = epilogue.addend {
        check_len("each column of the addend", rows, addend.rows())?;
        check_len("each row of the addend", cols, addend.cols())?;
    }
    if let Some(residual) = epilogue.residual {
        check_len("residual", len, residual.len())?;
    }
    if let Some(factor) = epilogue.factor {
        check_len("factor", len, factor.len())?;
    }
    Ok(())
}

fn check_len(what: &'static str, want: usize, got: usize) -> Result<(), ConvError> {
    if want == got { Ok(()) } else { Err(ConvError::Length { what, want, got }) }
}

/// Products of fewer multiply-adds than this are shared out whole when there are several.
const WHOLE_PRODUCT_MACS: usize = 4 << 20;

/// A function is applied to planes with this many outputs, or more, at a time: they are in a cache
/// then, and the loop is worth its beginning and end.
const FUNCTION_OUTPUTS: usize = 1024;

/// Whether products are shared out whole, each on one thread.
fn runs_whole(pool: &Pool, count: usize, macs: usize) -> bool {
    count >= 2 * pool.threads() && macs < WHOLE_PRODUCT_MACS
}

/// One call of [`PackedConv::run`], sizes checked.
struct Job<'a> {
    conv: &'a PackedConv,
    batch: usize,
    in_dims: [usize; 3],
    out_dims: [usize; 3],
    in_plane: usize,
    out_plane: usize,
    input: &'a [f32],
    output: SendPtr,
    epilogue: TileEpilogue,
}

impl Job<'_> {
    /// The part of an epilogue for the outputs of an image from a channel on.
    fn part_of(&self, epilogue: &TileEpilogue, image: usize, channel: usize) -> TileEpilogue {
        let images = image * self.conv.params.out_channels * self.out_plane;
        epilogue.at(channel, 0, self.out_plane).after(images)
    }

    /// One product per image and group.
    fn run_products(&self, pool: &Pool, groups: &[Packed]) {
        let p = &self.conv.params;
        let (group_in, group_out) = (p.in_channels / p.groups, p.out_channels / p.groups);
        let depth = group_in * self.conv.geometry.taps();
        let one = |index: usize| {
            let (image, group) = (index / p.groups, index % p.groups);
            let input = &self.input[(image * p.in_channels + group * group_in) * self.in_plane..]
                [..group_in * self.in_plane];
            let out = (image * p.out_channels + group * group_out) * self.out_plane;
            let epilogue = self.part_of(&self.epilogue, image, group * group_out);
            let run = |b: Operand<'_>| {
                let product = Product {
                    isa: self.conv.isa,
                    m: group_out,
                    n: self.out_plane,
                    k: depth,
                    a: Operand::Panels(groups[group].view()),
                    b,
                    c: SendPtr(self.output.get().wrapping_add(out)),
                    ldc: self.out_plane,
                    epilogue,
                    form: PanelForm::FLOATS,
                };
                // SAFETY: sizes were checked; images and groups have outputs of their own; the
                // weights were packed for an instruction set that this machine has.
                unsafe { product.run(pool) };
            };
            let geometry = &self.conv.geometry;
            if geometry.is_pointwise() {
                run(Operand::Matrix(&MatRef::row_major(input, depth, self.out_plane)));
            } else if padded::suits(geometry, self.in_dims, self.out_dims, group_in) {
                let (dims, out_dims) = (self.in_dims, self.out_dims);
                padded::with_padded(pool, geometry, dims, out_dims, group_in, input, |patches| {
                    run(Operand::Source(patches));
                });
            } else {
                run(Operand::Source(&Patches {
                    geometry,
                    in_dims: self.in_dims,
                    out_dims: self.out_dims,
                    in_plane: self.in_plane,
                    out_plane: self.out_plane,
                    input,
                    depth,
                }));
            }
        };
        let count = self.batch * p.groups;
        let macs = group_out.saturating_mul(self.out_plane).saturating_mul(depth);
        if runs_whole(pool, count, macs) {
            pool.run(count, one);
        } else {
            (0..count).for_each(one);
        }
    }

    /// One plane per image and output channel.
    fn run_depthwise(&self, pool: &Pool, weights: &[f32]) {
        let p = &self.conv.params;
        let taps = self.conv.geometry.taps();
        let per_group = p.out_channels / p.groups;
        let planes = self.batch * p.out_channels;
        // A region is worth its price from some ten thousand multiply-adds on.
        let work = planes.saturating_mul(self.out_plane).saturating_mul(taps);
        let chunks = if work < 20_000 { 1 } else { planes.min(pool.threads() * 8) };
        let before = self.epilogue.before_function();
        let has_function = self.epilogue.activation.is_function();
        pool.run(chunks, |chunk| {
            let indices = crate::split_even(planes, chunks, chunk);
            // The first plane to which a function has not been applied.
            let mut first = indices.start;
            for index in indices.clone() {
                let (image, channel) = (index / p.out_channels, index % p.out_channels);
                let source = image * p.in_channels + channel / per_group;
                let out = index * self.out_plane;
                let plane = Plane {
                    geometry: &self.conv.geometry,
                    in_dims: self.in_dims,
                    out_dims: self.out_dims,
                    input: &self.input[source * self.in_plane..][..self.in_plane],
                    weights: &weights[channel * taps..][..taps],
                    output: self.output.get().wrapping_add(out),
                    epilogue: self.part_of(&before, image, channel),
                };
                // SAFETY: sizes were checked; every plane has its own output.
                unsafe { plane.run(self.conv.isa) };
                let (start, end) = (first * self.out_plane, (index + 1) * self.out_plane);
                let is_enough = end - start >= FUNCTION_OUTPUTS || index + 1 == indices.end;
                if has_function && is_enough {
                    let body = ApplyFunction {
                        epilogue: self.epilogue.after(start),
                        out: self.output.get().wrapping_add(start),
                        rows: 1,
                        cols: end - start,
                        ldc: end - start,
                    };
                    // SAFETY: the machine has the instruction set; the planes have been written.
                    unsafe { dispatch(self.conv.isa, body) };
                    first = index + 1;
                }
            }
        });
    }
}

/// The parameters in three spatial dimensions; missing ones come first and have size 1.
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
        let three = |list: &[usize], fill: usize| {
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
            kernel: three(&params.kernel, 1),
            strides: three(&params.strides, 1),
            dilations: three(&params.dilations, 1),
            pads_begin: three(&params.pads_begin, 0),
            padded: pads.clone().any(|&x| x != 0),
        })
    }

    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Whether the patches are the input itself.
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
