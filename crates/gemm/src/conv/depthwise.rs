//! Depthwise convolution with channels last: vectors run along channels, and [`tile`] computes a
//! few columns of one or two output rows.
//!
//! Rows are computed from left to right and from top to bottom, all channels of a block at a time,
//! so that inputs and outputs are read and written in the order in which they lie in memory.

mod tile;

use std::ops::Range;

use super::direct::CopyPixels;
use super::{Geometry, Order, Side};
use crate::gemm::{FinishTransposed, SendPtr, TileEpilogue};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Body, Caches, Ended, Isa, Operation, Pool, Simd, Work, dispatch};
use smallvec::SmallVec;
use tile::{Anywhere, Compute, Inside, Line, MOST_CHANNELS, PartialSides, Sides, Tile};

/// Units of work per thread. Each reads the rows around its own again.
const UNITS_PER_THREAD: usize = 4;
/// Output pixels per thread from which all threads have rows of their own. Below, they have
/// channels of their own.
const PIXELS_PER_THREAD: usize = 64;
/// Vectors of channels that are computed for all rows of a unit before the next ones: their inputs
/// stay in the first-level cache from one row to the next.
const VECTORS: usize = 8;

/// One depthwise convolution, sizes checked.
#[derive(Clone, Copy)]
pub(super) struct Depthwise<'a> {
    pub(super) isa: Isa,
    pub(super) caches: Caches,
    pub(super) geometry: &'a Geometry,
    pub(super) channels: usize,
    /// A row of whole vectors of channels for each tap.
    pub(super) weights: &'a [f32],
    pub(super) images: usize,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    pub(super) input: Side,
    /// Written by this call alone.
    pub(super) output: Side,
    /// Of an output whose rows are pixels, or planes if it is in rows.
    pub(super) epilogue: TileEpilogue,
}

/// The distance of pixels.
fn pitch(side: &Side) -> usize {
    match side.order {
        Order::ChannelsLast { pitch } => pitch,
        Order::Rows => side.channels,
    }
}

impl Depthwise<'_> {
    /// Bytes of scratch memory of all threads: of planes that are not computed where they lie.
    pub(super) fn scratch(&self, pool: &Pool) -> usize {
        let floats: usize = self.copies().iter().sum();
        floats
            .saturating_mul(pool.threads().min(self.cut(pool).units))
            .saturating_mul(size_of::<f32>())
    }

    fn vectors(&self) -> usize {
        self.channels.div_ceil(self.isa.lanes())
    }

    /// How many parts vectors of channels are computed in.
    fn groups(&self) -> usize {
        self.vectors().div_ceil(VECTORS)
    }

    /// Floats of a unit's copy of an input and an output that are in rows.
    fn copies(&self) -> [usize; 2] {
        let width = self.vectors().div_ceil(self.groups().max(1)) * self.isa.lanes();
        [self.input, self.output].map(|side| match side.order {
            Order::Rows => side.plane.next_multiple_of(16).saturating_mul(width),
            Order::ChannelsLast { .. } => 0,
        })
    }

    /// How the work is cut. Planes that are copied are not.
    fn cut(&self, pool: &Pool) -> Cut {
        let [out_d, out_h, out_w] = self.out_dims;
        let slices = self.images * out_d;
        if self.copies() != [0; 2] {
            return Cut {
                threads: pool.threads(),
                units: self.images * self.groups(),
                shares: 1,
                parts: 1,
            };
        }
        let outputs = (slices * self.groups() * out_h * out_w).saturating_mul(self.geometry.taps());
        let macs = outputs.saturating_mul(VECTORS * self.isa.lanes());
        let threads = Work::new(Operation::ShortMultiplyAdd, macs).threads(pool);
        // Rows for each thread, as the convolutions around it cut them: what a thread has written
        // is in the cache of its core.
        let is_by_rows = slices * out_h * out_w >= threads * PIXELS_PER_THREAD;
        let shares = if is_by_rows { threads.div_ceil(slices.max(1)) } else { 1 };
        let shares = shares.min(out_h.div_ceil(2)).max(1);
        let wanted = if threads == 1 { 1 } else { threads * UNITS_PER_THREAD };
        let planes = (slices * self.groups() * shares).max(1);
        let parts = wanted.div_ceil(planes).min(out_h.div_ceil(2 * shares)).max(1);
        Cut { threads, units: slices * self.groups() * shares * parts, shares, parts }
    }

    pub(super) fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let [out_d, out_h, _] = self.out_dims;
        let Cut { threads, units, shares, parts } = self.cut(pool);
        let groups = self.groups();
        let vectors = |group: usize| sardonyx_simd::split_even(self.vectors(), groups, group);
        if self.copies() != [0; 2] {
            return pool.run(units, |unit| self.planes(unit / groups, vectors(unit % groups)));
        }
        pool.run_on(threads, units, |unit| {
            let (group, rest) = (unit % groups, unit / groups);
            let (part, rest) = (rest % parts, rest / parts);
            let (share, plane) = (rest % shares, rest / shares);
            let share = sardonyx_simd::split_even(out_h, shares, share);
            // Pairs of rows stay together.
            let pairs = sardonyx_simd::split_even(share.len().div_ceil(2), parts, part);
            let rows = share.start + pairs.start * 2..share.end.min(share.start + pairs.end * 2);
            self.unit(plane / out_d, plane % out_d, rows, vectors(group));
        })
    }

    /// Some rows of the outputs of an image, if input and output have channels last.
    pub(super) fn rows(&self, image: usize, rows: Range<usize>) {
        self.unit(image, 0, rows, 0..self.vectors());
    }

    /// Some vectors of channels of an image of which the input or the output is in rows.
    fn planes(&self, image: usize, vectors: Range<usize>) {
        let lanes = self.isa.lanes();
        let channels = vectors.start * lanes..self.channels.min(vectors.end * lanes);
        let width = vectors.len() * lanes;
        let [in_floats, out_floats] = self.copies();
        let order = Order::ChannelsLast { pitch: width };
        with_scratch(in_floats, |input| {
            with_scratch(out_floats, |output| {
                // Copies hold these channels of this image: the whole begins before them.
                let before = channels.start as isize;
                let whole = |copy: &mut [f32], plane: usize| {
                    let skipped = before + (image * plane * width) as isize;
                    SendPtr(copy.as_mut_ptr().wrapping_offset(-skipped))
                };
                let mut job = Depthwise { ..*self };
                if self.input.order == Order::Rows {
                    let to = &mut input[..self.input.plane * width];
                    let body = CopyPixels {
                        input: &self.input,
                        image,
                        pixel: 0,
                        channels: channels.clone(),
                        to,
                        step: width,
                    };
                    // SAFETY: the channels are inside the input, and the machine has `isa`.
                    unsafe { dispatch(self.isa, body) };
                    job.input = Side { data: whole(input, self.input.plane), order, ..self.input };
                }
                if self.output.order == Order::Rows {
                    job.output =
                        Side { data: whole(output, self.output.plane), order, ..self.output };
                    job.epilogue = TileEpilogue::PLAIN;
                }
                for depth in 0..self.out_dims[0] {
                    job.unit(image, depth, 0..self.out_dims[1], vectors.clone());
                }
                if self.output.order == Order::Rows {
                    self.write_planes(image, channels, output, width);
                }
            });
        });
    }

    /// Writes outputs that lie by pixels into their planes.
    fn write_planes(&self, image: usize, channels: Range<usize>, from: &[f32], width: usize) {
        let plane = self.output.plane;
        let first = image * self.channels;
        let body = FinishTransposed {
            src: from.as_ptr(),
            ld: width,
            out: self.output.data.get().wrapping_add((first + channels.start) * plane),
            ldc: plane,
            rows: channels.len(),
            cols: plane,
            epilogue: self.epilogue.at(channels.start, 0).after(first * plane),
        };
        // SAFETY: the copy holds whole vectors of pixels and channels; this unit owns the planes.
        unsafe { dispatch(self.isa, body) };
    }

    /// Computes some vectors of channels of some rows of an output plane.
    fn unit(&self, image: usize, depth: usize, rows: Range<usize>, vectors: Range<usize>) {
        let lanes = self.isa.lanes();
        let most = self.most_channels() / lanes;
        let blocks = vectors.len().div_ceil(most);
        for block in 0..blocks {
            let part = sardonyx_simd::split_even(vectors.len(), blocks, block);
            let start = (vectors.start + part.start) * lanes;
            let end = self.channels.min((vectors.start + part.end) * lanes);
            let pitch = part.len() * lanes;
            let floats = if self.needs_sums() { MOST_PIXELS * pitch } else { 0 };
            with_scratch(floats, |sums| {
                let sums = sums.as_mut_ptr();
                let rows = rows.clone();
                let body = Block { conv: self, image, depth, rows, channels: start..end, sums };
                // SAFETY: the machine has `isa`; this unit owns the outputs.
                unsafe { dispatch(self.isa, body) };
            });
        }
    }

    /// Most channels of a block. Their weights are read again for each tile and take at most half
    /// of the first-level cache; the sums of a tile that wait for a function take a quarter.
    fn most_channels(&self) -> usize {
        let most = self.caches.near_floats(1, 2) / self.geometry.taps();
        most.clamp(self.isa.lanes(), MOST_CHANNELS)
    }

    /// Whether the sums of a tile are finished in scratch memory.
    fn needs_sums(&self) -> bool {
        !self.epilogue.split_short().1.is_plain() || self.out_dims[2] < self.cols()
    }

    /// Columns of a tile: 7 or 8, whichever computes fewer twice.
    fn cols(&self) -> usize {
        let computed = |cols: usize| self.out_dims[2].div_ceil(cols) * cols;
        if computed(7) < computed(8) { 7 } else { 8 }
    }

    /// Returns a row of inputs from channel `c` on.
    fn line(&self, image: usize, [depth, row]: [isize; 2], c: usize) -> Line {
        let [in_d, in_h, in_w] = self.in_dims;
        let is_inside = (0..in_d as isize).contains(&depth) && (0..in_h as isize).contains(&row);
        if !is_inside {
            return Line::zeros();
        }
        let pixel = (depth as usize * in_h + row as usize) * in_w;
        let first = self.input.pixel(image, pixel).wrapping_add(c).cast_const();
        Line { first, pitch: pitch(&self.input) }
    }
}

/// Most output pixels of a tile.
const MOST_PIXELS: usize = 16;

/// How the work of a depthwise convolution is cut.
struct Cut {
    threads: usize,
    units: usize,
    /// Shares of the rows of a plane, for a thread each, and how many parts these are cut into.
    shares: usize,
    parts: usize,
}

/// A block of channels of some rows of an output plane.
struct Block<'a> {
    conv: &'a Depthwise<'a>,
    image: usize,
    depth: usize,
    rows: Range<usize>,
    channels: Range<usize>,
    /// Room for the sums of a tile, if any is finished there.
    sums: *mut f32,
}

impl Body for Block<'_> {
    type Out = ();

    /// # Safety
    ///
    /// The outputs must be written by this call alone.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let g = self.conv.geometry;
        let cols = self.conv.cols();
        macro_rules! sweep {
            ($r:literal, $kw:literal, $sw:literal) => {
                // SAFETY: the caller's promise.
                unsafe {
                    match cols {
                        7 => S::call(Sweep::<$r, 7, $kw, $sw>(&self)),
                        _ => S::call(Sweep::<$r, 8, $kw, $sw>(&self)),
                    }
                }
            };
        }
        if g.dilations[2] != 1 {
            return sweep!(1, 0, 1);
        }
        // Two rows at a time take 16 sums, 9 weights and an input: more registers than AVX2 has.
        if matches!(S::ISA, Isa::Avx512)
            && g.kernel == [1, 3, 3]
            && g.strides == [1; 3]
            && g.dilations == [1; 3]
        {
            return sweep!(2, 3, 1);
        }
        match (g.kernel[2], g.strides[2]) {
            (3, 1) => sweep!(1, 3, 1),
            (3, 2) => sweep!(1, 3, 2),
            (5, 1) => sweep!(1, 5, 1),
            (5, 2) => sweep!(1, 5, 2),
            (7, 1) => sweep!(1, 7, 1),
            (7, 2) => sweep!(1, 7, 2),
            _ => sweep!(1, 0, 1),
        }
    }
}

/// Computes a block in tiles of `R` rows and `Q` columns, from left to right and from top to
/// bottom.
struct Sweep<'a, const R: usize, const Q: usize, const KW: usize, const SW: usize>(&'a Block<'a>);

impl<const R: usize, const Q: usize, const KW: usize, const SW: usize> Body
    for Sweep<'_, R, Q, KW, SW>
{
    type Out = ();

    /// # Safety
    ///
    /// The demands of [`Block`] must hold.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        const { assert!(R * Q <= MOST_PIXELS) };
        let mut lines = SmallVec::new();
        let Range { start, end } = self.0.rows;
        let whole = start + (end - start) / R * R;
        // SAFETY: the caller's promise.
        unsafe {
            for row in (start..whole).step_by(R) {
                self.0.row::<S, R, Q, KW, SW>(row, &mut lines);
            }
            for row in whole..end {
                self.0.row::<S, 1, Q, KW, SW>(row, &mut lines);
            }
        }
    }
}

impl Block<'_> {
    /// Computes `R` output rows from `row` on.
    ///
    /// # Safety
    ///
    /// The demands of [`Block`] must hold.
    #[inline(always)]
    unsafe fn row<S: Simd, const R: usize, const Q: usize, const KW: usize, const SW: usize>(
        &self,
        row: usize,
        lines: &mut SmallVec<[Line; 8]>,
    ) {
        let Block { conv, image, depth, ref channels, sums, .. } = *self;
        let g = conv.geometry;
        let [_, out_h, width] = conv.out_dims;
        let at = |i: usize, output: usize, tap: usize| {
            (output * g.strides[i] + tap * g.dilations[i]) as isize - g.pads_begin[i] as isize
        };
        lines.clear();
        for kd in 0..g.kernel[0] {
            for kh in 0..g.kernel[1] + R - 1 {
                let place = [at(0, depth, kd), at(1, row, kh)];
                lines.push(conv.line(image, place, channels.start));
            }
        }
        let out_pitch = pitch(&conv.output);
        let plane = conv.out_dims.iter().product::<usize>();
        let first_pixel = (depth * out_h + row) * width;
        let sums_pitch = channels.len().next_multiple_of(S::LANES);
        let last = width.saturating_sub(Q);
        let (epilogue, rest) = conv.epilogue.at(0, channels.start).split_short();
        let needs_sums = conv.needs_sums();
        let mut shifted = SmallVec::<[Line; 8]>::new();
        for col in (0..width).step_by(Q) {
            // The last tile computes some columns of the one before again.
            let col = col.min(last);
            let pixel = first_pixel + col;
            let y = conv.output.pixel(image, pixel).wrapping_add(channels.start);
            let first = at(2, col, 0);
            shifted.clear();
            shifted.extend(lines.iter().map(|line| line.offset(first)));
            let tile = Tile {
                geometry: g,
                lines: &shifted,
                inside: -first..conv.in_dims[2] as isize - first,
                weights: conv.weights[channels.start..].as_ptr(),
                weights_step: conv.channels.next_multiple_of(S::LANES),
                channels: 0..channels.len(),
                y,
                out_pitch,
                out_line: width * out_pitch,
                epilogue,
            };
            // SAFETY: the caller's promise.
            unsafe {
                if !needs_sums {
                    compute::<S, R, Q, KW, SW>(&tile);
                    continue;
                }
                let (out_pitch, out_line) = (sums_pitch, Q * sums_pitch);
                compute::<S, R, Q, KW, SW>(&Tile { y: sums, out_pitch, out_line, ..tile.clone() });
                S::call(FinishSums {
                    tile: &tile,
                    epilogue: rest.at(image * plane + pixel, 0),
                    sums,
                    pitch: sums_pitch,
                    size: [R, Q],
                    out_width: width,
                });
            }
        }
    }
}

/// Computes a tile in the loops that suit where its inputs lie.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn compute<S: Simd, const R: usize, const Q: usize, const KW: usize, const SW: usize>(
    tile: &Tile<'_>,
) {
    let g = tile.geometry;
    let extent = g.extent(2, Q) as isize;
    let sides = (KW / 2) as isize;
    let Range { start, end } = tile.inside;
    let channels = tile.channels.end;
    let whole = channels / S::LANES * S::LANES;
    let of = |channels: Range<usize>| Tile { channels, ..tile.clone() };
    // SAFETY: the caller's promise.
    unsafe {
        if start > sides || end < extent - sides {
            return S::call(Compute::<Anywhere, R, Q, KW, SW>::new(tile));
        }
        if start <= 0 && end >= extent {
            S::call(Compute::<Inside, R, Q, KW, SW>::new(&of(0..whole)));
        } else {
            S::call(Compute::<Sides, R, Q, KW, SW>::new(&of(0..whole)));
        }
        if whole < channels {
            S::call(Compute::<PartialSides, R, Q, KW, SW>::new(&of(whole..channels)));
        }
    }
}

/// Finishes a tile whose sums lie in scratch memory, and writes it. A function is applied to all of
/// them at once.
struct FinishSums<'a> {
    /// Its outputs.
    tile: &'a Tile<'a>,
    /// Operations that remain for the sums.
    epilogue: TileEpilogue,
    /// Rows of pixels, `pitch` floats apart.
    sums: *mut f32,
    pitch: usize,
    /// Rows and columns of the sums.
    size: [usize; 2],
    /// Columns of the output.
    out_width: usize,
}

impl Body for FinishSums<'_> {
    type Out = ();

    /// # Safety
    ///
    /// The outputs must be writable, and the sums have room for whole vectors.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let FinishSums { tile: t, epilogue, sums, pitch, size: [rows, width], out_width } = self;
        let cols = width.min(out_width);
        let channels = t.channels.end;
        let before = epilogue.before_function();
        let function = epilogue.activation;
        // SAFETY: the caller's promise.
        unsafe {
            if !before.is_plain() {
                for (r, q) in pixels(rows, cols) {
                    let before = before.at(r * out_width + q, 0);
                    let sums = sums.add((r * width + q) * pitch);
                    for c in (0..channels).step_by(S::LANES) {
                        let x = S::load(sums.add(c));
                        S::store(sums.add(c), before.finish_linear::<S>(x, c, channels - c));
                    }
                }
            }
            if function.is_function() {
                let all = std::slice::from_raw_parts_mut(sums, rows * width * pitch);
                function.function_on::<S>(all);
            }
            let factor = if function.is_function() { epilogue.factor } else { std::ptr::null() };
            for (r, q) in pixels(rows, cols) {
                let sums = sums.add((r * width + q) * pitch);
                let y = t.y.add(r * t.out_line + q * t.out_pitch);
                let at = (r * out_width + q) * epilogue.factor_rs;
                for c in (0..channels).step_by(S::LANES) {
                    let mask = S::first(channels - c);
                    let mut x = S::load(sums.add(c));
                    if !factor.is_null() {
                        x = S::mul(x, S::load_m(factor.add(at + c), mask));
                    }
                    S::store_m(y.add(c), mask, x);
                }
            }
        }
    }
}

/// Returns the pixels of a tile, row after row.
fn pixels(rows: usize, cols: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |r| (0..cols).map(move |q| (r, q)))
}
