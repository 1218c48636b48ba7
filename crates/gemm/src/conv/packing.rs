//! Weights in the form in which loops read them.
//!
//! A depthwise convolution has a row of all channels, padded to whole vectors, for each tap. A
//! convolution by planes keeps the order of the model. Other algorithms have group after group and
//! vector after vector of output channels, one vector for each step. Steps go through the taps, and
//! through the channels of the group for each. Channels that pad the last vector are zero. For
//! Winograd's algorithm this form is that of a pointwise convolution for each point, one after the
//! other. If operands are rounded, a step is two neighbouring channels.

use super::winograd::{self, POINTS};
use super::{
    Algorithm, ConvError, ConvParams, Geometry, Lasts, Operands, PackedConv, check_len, words,
};
use crate::gemm::{self, SendPtr};
use half::{bf16, f16};
use sardonyx_simd::buffer::{PackedBuf, with_scratch};
use sardonyx_simd::halves::FloatVectors;
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};
use sardonyx_simd::{Caches, Isa, Operation, Pool, Work, split_even};

/// Weights of a convolution, `[out_channels, in_channels / groups, kernel...]`.
#[derive(Clone, Copy, Debug)]
pub enum WeightSource<'a> {
    Floats(&'a [f32]),
    /// Little-endian float32 at any alignment.
    LeBytes(&'a [u8]),
    /// Little-endian float16 at any alignment; widened block by block.
    LeFloat16(&'a [u8]),
    /// Little-endian bfloat16 at any alignment; widened block by block.
    LeBfloat16(&'a [u8]),
    /// One number for all weights.
    Fill(f32),
}

impl PackedConv {
    /// Packs `weights`, `[out_channels, in_channels / groups, kernel...]`, for outputs whose size
    /// is not known.
    ///
    /// # Errors
    ///
    /// In the cases of [`PackedConv::from_source`].
    ///
    /// # Panics
    ///
    /// In the cases of [`PackedConv::from_source`].
    pub fn new(isa: Isa, params: ConvParams, weights: &[f32]) -> Result<PackedConv, ConvError> {
        let algorithm = Algorithm::choose(&params, None)?;
        let source = WeightSource::Floats(weights);
        PackedConv::from_source(isa, params, algorithm, source, None, Lasts::ForGood)
    }

    /// Packs weights, each multiplied by the number of its output channel in `scale`, in double
    /// precision and rounded once.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other, there are more than three spatial dimensions (use
    /// [`conv_naive`](super::conv_naive)), the algorithm cannot compute the convolution on this
    /// machine, or `weights` or `scale` has the wrong length.
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn from_source(
        isa: Isa,
        params: ConvParams,
        algorithm: Algorithm,
        weights: WeightSource<'_>,
        scale: Option<&[f64]>,
        lasts: Lasts,
    ) -> Result<PackedConv, ConvError> {
        check_isa(isa);
        params.check()?;
        let geometry = Geometry::new(&params)?;
        algorithm.check(isa, &params, &geometry)?;
        let len = params.weights_len().ok_or(ConvError::TooLarge)?;
        if let Some(scale) = scale {
            check_len("scale", params.out_channels, scale.len())?;
        }
        let source = Source { weights, scale };
        check_len("weights", len, weights.len().unwrap_or(len))?;
        let floats = packed_len(isa, &params, &geometry, algorithm).ok_or(ConvError::TooLarge)?;
        let room = Room { floats, lasts };
        let weights = match algorithm {
            Algorithm::Depthwise => source.pack_depthwise(&params, &geometry, room),
            Algorithm::Direct(operands) => {
                source.pack_direct(isa, &params, &geometry, operands, room)?
            }
            Algorithm::Winograd(operands) => source.pack_points(isa, &params, operands, room)?,
            Algorithm::Planes => source.pack_plain(&params, room),
        };
        Ok(PackedConv { params, geometry, isa, caches: Caches::detect(), algorithm, weights })
    }

    /// Returns the bytes that the packed weights of such a convolution take.
    ///
    /// # Errors
    ///
    /// If the parameters do not fit each other, or the size overflows.
    pub fn bytes_of(
        isa: Isa,
        params: &ConvParams,
        algorithm: Algorithm,
    ) -> Result<usize, ConvError> {
        params.check()?;
        let floats = packed_len(isa, params, &Geometry::new(params)?, algorithm);
        let bytes = floats.and_then(|floats| floats.checked_mul(size_of::<f32>()));
        bytes.ok_or(ConvError::TooLarge)
    }
}

/// Returns the floats of packed weights; `None` on overflow.
fn packed_len(
    isa: Isa,
    params: &ConvParams,
    geometry: &Geometry,
    algorithm: Algorithm,
) -> Option<usize> {
    let lanes = isa.lanes();
    let steps = match algorithm {
        Algorithm::Depthwise => {
            let width = params.out_channels.checked_next_multiple_of(lanes)?;
            return width.checked_mul(geometry.taps());
        }
        Algorithm::Planes => return params.weights_len(),
        Algorithm::Direct(_) => geometry.taps(),
        Algorithm::Winograd(_) => POINTS,
    };
    let group_out = params.out_channels / params.groups;
    let depth = words(params, algorithm.operands()).checked_mul(steps)?;
    let rows = group_out.checked_next_multiple_of(lanes)?.checked_mul(params.groups)?;
    rows.checked_mul(depth)
}

/// Vectors of weights.
type Block = [[f32; 16]; 16];

/// Widens the first weights of `S::LANES` rows that are `distance` weights apart.
///
/// # Safety
///
/// Vectors at any alignment must be readable there, on a machine with `S`.
#[inline(always)]
unsafe fn widen_rows<S: Simd, T: FloatVectors>(from: *const T, distance: usize, rows: &mut Block) {
    for (i, row) in rows.iter_mut().enumerate().take(S::LANES) {
        // SAFETY: the caller has a vector readable in each of these rows.
        unsafe { S::store(row.as_mut_ptr(), T::load::<S>(from.add(i * distance))) };
    }
}

/// Size and lifetime of the memory of packed weights.
#[derive(Clone, Copy)]
struct Room {
    floats: usize,
    lasts: Lasts,
}

impl WeightSource<'_> {
    /// Returns the number of weights; `None` for a fill, which has any number.
    fn len(&self) -> Option<usize> {
        match self {
            WeightSource::Floats(floats) => Some(floats.len()),
            WeightSource::LeBytes(bytes) => Some(bytes.len() / size_of::<f32>()),
            WeightSource::LeFloat16(bytes) | WeightSource::LeBfloat16(bytes) => {
                Some(bytes.len() / size_of::<f16>())
            }
            WeightSource::Fill(_) => None,
        }
    }
}

/// Weights, as many as the parameters imply, and the factors of their output channels.
struct Source<'a> {
    weights: WeightSource<'a>,
    scale: Option<&'a [f64]>,
}

/// Returns the little-endian number at `index`.
#[inline(always)]
fn bytes_at<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[index * N..][..N]);
    number
}

impl Source<'_> {
    /// Returns weight `index`, which belongs to output channel `channel`, multiplied by the
    /// channel's factor.
    fn weight(&self, channel: usize, index: usize) -> f32 {
        let weight = match self.weights {
            WeightSource::Floats(floats) => floats[index],
            WeightSource::LeBytes(bytes) => f32::from_le_bytes(bytes_at(bytes, index)),
            WeightSource::LeFloat16(bytes) => f16::from_le_bytes(bytes_at(bytes, index)).to_f32(),
            WeightSource::LeBfloat16(bytes) => bf16::from_le_bytes(bytes_at(bytes, index)).to_f32(),
            WeightSource::Fill(weight) => weight,
        };
        self.scale_weight(channel, weight)
    }

    /// Writes the transpose of a block of `S::LANES` rows of as many weights to `block`. The
    /// first weight has the index `first`, and rows are `distance` weights apart.
    ///
    /// # Safety
    ///
    /// The weights must exist and not be a fill. The machine must have `S` and be little-endian.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, first: usize, distance: usize, block: &mut Block) {
        let mut rows = [[0.0f32; 16]; 16];
        // SAFETY: the caller has these weights; vectors are read at any alignment.
        let (from, distance) = unsafe {
            match self.weights {
                WeightSource::Floats(floats) => (floats.as_ptr().wrapping_add(first), distance),
                WeightSource::LeBytes(bytes) => {
                    (bytes.as_ptr().cast::<f32>().wrapping_add(first), distance)
                }
                WeightSource::LeFloat16(bytes) => {
                    let from = bytes.as_ptr().cast::<f16>().wrapping_add(first);
                    widen_rows::<S, _>(from, distance, &mut rows);
                    (rows.as_ptr().cast(), 16)
                }
                WeightSource::LeBfloat16(bytes) => {
                    let from = bytes.as_ptr().cast::<bf16>().wrapping_add(first);
                    widen_rows::<S, _>(from, distance, &mut rows);
                    (rows.as_ptr().cast(), 16)
                }
                WeightSource::Fill(_) => return,
            }
        };
        // SAFETY: the caller has these weights, and the block has room for them.
        unsafe { S::transpose(from, distance, block.as_mut_ptr().cast(), 16) };
    }

    /// Multiplies a weight by the factor of its channel, rounded once.
    fn scale_weight(&self, channel: usize, weight: f32) -> f32 {
        match self.scale {
            Some(scale) => (f64::from(weight) * scale[channel]) as f32,
            None => weight,
        }
    }

    /// Packs a row of all channels for each tap.
    fn pack_depthwise(&self, params: &ConvParams, g: &Geometry, room: Room) -> PackedBuf {
        let mut packed = PackedBuf::new_zeroed(room.floats, room.lasts);
        let taps = g.taps();
        let width = room.floats / taps;
        for channel in 0..params.out_channels {
            for tap in 0..taps {
                packed[tap * width + channel] = self.weight(channel, channel * taps + tap);
            }
        }
        packed
    }

    /// Copies weights in the order that they have.
    fn pack_plain(&self, params: &ConvParams, room: Room) -> PackedBuf {
        let mut packed = PackedBuf::new_zeroed(room.floats, room.lasts);
        let depth = room.floats / params.out_channels.max(1);
        for (channel, row) in packed.chunks_exact_mut(depth.max(1)).enumerate() {
            for (step, weight) in row.iter_mut().enumerate() {
                *weight = self.weight(channel, channel * depth + step);
            }
        }
        packed
    }

    /// Packs vector after vector of output channels for direct convolution.
    fn pack_direct(
        &self,
        isa: Isa,
        params: &ConvParams,
        g: &Geometry,
        operands: Operands,
        Room { floats, lasts }: Room,
    ) -> Result<PackedBuf, Ended> {
        let mut packed = match operands {
            // Words that pad tiles stay zero.
            Operands::Tiles => PackedBuf::new_zeroed(floats, lasts),
            // SAFETY: all vectors of all groups are written below.
            Operands::Exact | Operands::Rounded => unsafe { PackedBuf::new_uninit(floats, lasts) },
        };
        let lanes = isa.lanes();
        let group_out = params.out_channels / params.groups;
        let (channels, taps) = (params.in_channels / params.groups, g.taps());
        let tap = words(params, operands) * lanes;
        let vectors = group_out.div_ceil(lanes);
        let to = SendPtr(packed.as_mut_ptr());
        let count = if floats == 0 { 0 } else { vectors * params.groups };
        for_each_vector(count, floats, |index| {
            let (group, vector) = (index / vectors, index % vectors);
            let to = to.get().wrapping_add(index * taps * tap);
            let parts = Parts { count: taps, channels, lanes };
            write_parts(operands, parts, to, tap, |to, _| {
                let body = PackVector {
                    source: self,
                    first: group * group_out + vector * lanes,
                    rows: lanes.min(group_out - vector * lanes),
                    channels,
                    taps,
                    to,
                };
                // SAFETY: the machine has `isa`, and each vector has its own part of `packed`.
                unsafe { dispatch(isa, body) };
            });
        })?;
        Ok(packed)
    }

    /// Packs the points of Winograd's algorithm, vector after vector of output channels.
    fn pack_points(
        &self,
        isa: Isa,
        params: &ConvParams,
        operands: Operands,
        Room { floats, lasts }: Room,
    ) -> Result<PackedBuf, Ended> {
        // SAFETY: all vectors of all points are written below.
        let mut packed = unsafe { PackedBuf::new_uninit(floats, lasts) };
        let lanes = isa.lanes();
        let vectors = params.out_channels.div_ceil(lanes);
        let to = SendPtr(packed.as_mut_ptr());
        let vector_floats = words(params, operands) * lanes;
        for_each_vector(vectors, floats, |vector| {
            let first = vector * lanes;
            let to = to.get().wrapping_add(vector * vector_floats);
            let parts = Parts { count: POINTS, channels: params.in_channels, lanes };
            write_parts(operands, parts, to, vectors * vector_floats, |to, point| {
                let body = PackPoints {
                    source: self,
                    first,
                    rows: lanes.min(params.out_channels - first),
                    channels: params.in_channels,
                    to,
                    point,
                };
                // SAFETY: the machine has `isa`, and each vector has its own parts of `packed`.
                unsafe { dispatch(isa, body) };
            });
        })?;
        Ok(packed)
    }
}

/// Parts of a vector of weights: taps or points.
#[derive(Clone, Copy)]
struct Parts {
    count: usize,
    channels: usize,
    lanes: usize,
}

/// Calls `write` with an address and a stride at which it writes the parts of a vector. Stores the
/// parts in the form of the operands at `to`, `step` floats apart.
fn write_parts(
    operands: Operands,
    parts: Parts,
    to: *mut f32,
    step: usize,
    write: impl FnOnce(*mut f32, usize),
) {
    let Parts { count, channels, lanes } = parts;
    let part = channels * lanes;
    match operands {
        Operands::Exact => write(to, step),
        Operands::Rounded | Operands::Tiles => with_scratch(count * part, |floats| {
            write(floats.as_mut_ptr(), part);
            for (index, floats) in floats.chunks_exact(part.max(1)).enumerate() {
                // SAFETY: the parts are disjoint, and the caller owns them.
                let to = unsafe {
                    let to = to.add(index * step);
                    std::slice::from_raw_parts_mut(to, channels.div_ceil(2) * lanes)
                };
                gemm::bf16::round_to_pairs(channels, lanes, floats, to);
            }
        }),
    }
}

/// Calls `one` for each of `count` vectors of output channels, on the threads for packing if that
/// is worth it.
pub(super) fn for_each_vector(
    count: usize,
    floats: usize,
    one: impl Fn(usize) + Sync,
) -> Result<(), Ended> {
    let pool = Pool::for_packing();
    let parts = Work::new(Operation::Element, floats).in_pieces(count).cut(&pool);
    parts.run(&pool, |part| split_even(count, parts.count, part).for_each(&one))
}

/// Body that computes the points of the weights of a vector of output channels.
struct PackPoints<'a> {
    source: &'a Source<'a>,
    /// First output channel.
    first: usize,
    rows: usize,
    channels: usize,
    to: *mut f32,
    /// Stride between points, in floats.
    point: usize,
}

impl Body for PackPoints<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut taps = [[0.0f64; 16]; 9];
        for c in 0..self.channels {
            for lane in 0..self.rows {
                let channel = self.first + lane;
                let start = (channel * self.channels + c) * taps.len();
                for (tap, weights) in taps.iter_mut().enumerate() {
                    weights[lane] = f64::from(self.source.weight(channel, start + tap));
                }
            }
            let points = winograd::transform_weights(&taps);
            let to = self.to.wrapping_add(c * S::LANES);
            for (point, weights) in points.iter().enumerate() {
                for (lane, weight) in weights.iter().enumerate().take(S::LANES) {
                    // SAFETY: each point has a vector for each channel.
                    unsafe { *to.add(point * self.point + lane) = *weight as f32 };
                }
            }
        }
    }
}

/// Body that packs the weights of a vector of output channels.
struct PackVector<'a> {
    source: &'a Source<'a>,
    /// First output channel.
    first: usize,
    rows: usize,
    channels: usize,
    taps: usize,
    to: *mut f32,
}

impl PackVector<'_> {
    /// Returns the target of the weights of step `j` of the model, which counts channel by channel.
    fn place(&self, j: usize, lanes: usize) -> *mut f32 {
        let step = j % self.taps * self.channels + j / self.taps;
        self.to.wrapping_add(step * lanes)
    }
}

impl Body for PackVector<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let depth = self.channels * self.taps;
        let is_fill = matches!(self.source.weights, WeightSource::Fill(_));
        let is_whole = self.rows == S::LANES && !is_fill && cfg!(target_endian = "little");
        let whole = if is_whole { depth / S::LANES * S::LANES } else { 0 };
        let mut block = [[0.0f32; 16]; 16];
        for j in (0..whole).step_by(S::LANES) {
            // SAFETY: there are `LANES` rows of `depth` weights, and room for as many vectors.
            unsafe {
                self.source.transpose::<S>(self.first * depth + j, depth, &mut block);
                for (i, row) in block.iter_mut().enumerate().take(S::LANES) {
                    if self.source.scale.is_some() {
                        for (lane, weight) in row.iter_mut().enumerate().take(S::LANES) {
                            *weight = self.source.scale_weight(self.first + lane, *weight);
                        }
                    }
                    S::store(self.place(j + i, S::LANES), S::load(row.as_ptr()));
                }
            }
        }
        for j in whole..depth {
            for lane in 0..S::LANES {
                let channel = self.first + lane;
                let weight = if lane < self.rows {
                    self.source.weight(channel, channel * depth + j)
                } else {
                    0.0
                };
                // SAFETY: the vector of this step has `LANES` floats.
                unsafe { *self.place(j, S::LANES).add(lane) = weight };
            }
        }
    }
}
