//! Depthwise convolution with channels last: vectors run along channels, and [`tile`] computes a
//! few columns of one or two output rows.
//!
//! Rows are computed from left to right and from top to bottom, all channels of a block at a time,
//! so that inputs and outputs are read and written in memory order.

mod tile;

use std::ops::Range;

use super::copy::CopyPixels;
use super::{Geometry, Order, Side};
use crate::gemm::{FinishTransposed, SendPtr, TileEpilogue};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Body, Caches, Ended, Isa, Operation, Pool, Simd, Work, dispatch, split_even};
use smallvec::SmallVec;
use tile::{Anywhere, Compute, Inside, Line, MOST_CHANNELS, Outputs, PartialSides, Sides, Tile};

/// Work: units of work per thread. Each unit reads the rows around its own again.
const UNITS_PER_THREAD: usize = 4;
/// Work: output pixels per thread from which each thread has rows of its own. With fewer, it has
/// channels of its own.
const PIXELS_PER_THREAD: usize = 64;
/// Work: vectors of channels of a unit if threads have channels of their own, or planes are copied.
const VECTORS_OF_THREAD: usize = 8;

/// Choice: outputs of a plane below which vectors of neighbouring outputs are too few to pay.
const LEAST_PLANE: usize = 64;

/// Whether these loops are faster than those of planes for images in rows with output planes of
/// `plane` pixels: either there is a loop for the width of the kernel, or planes are small.
pub(super) fn suits(g: &Geometry, plane: usize) -> bool {
    let has_loop = matches!((g.kernel[2], g.strides[2], g.dilations[2]), (3 | 5 | 7, 1 | 2, 1));
    has_loop || plane < LEAST_PLANE
}

/// A depthwise convolution with checked sizes.
#[derive(Clone, Copy)]
pub(super) struct Depthwise<'a> {
    pub(super) isa: Isa,
    pub(super) caches: Caches,
    pub(super) geometry: &'a Geometry,
    pub(super) channels: usize,
    /// Weights, a row of whole vectors of channels for each tap.
    pub(super) weights: &'a [f32],
    pub(super) images: usize,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    pub(super) input: Side,
    /// Output, written by this call alone.
    pub(super) output: Side,
    /// Epilogue of an output whose rows are pixels, or planes if it is in rows.
    pub(super) epilogue: TileEpilogue,
}

/// Returns the distance of pixels in floats.
fn pitch(side: &Side) -> usize {
    match side.order {
        Order::ChannelsLast { pitch } => pitch,
        Order::Rows => side.channels,
    }
}

impl Depthwise<'_> {
    /// Returns the bytes of scratch memory of all threads, for planes that are copied.
    pub(super) fn scratch(&self, pool: &Pool) -> usize {
        let floats: usize = self.copies().iter().sum();
        floats
            .saturating_mul(pool.threads().min(self.cut(pool).units))
            .saturating_mul(size_of::<f32>())
    }

    /// Returns the number of vectors of channels.
    fn vectors(&self) -> usize {
        self.channels.div_ceil(self.isa.lanes())
    }

    /// Returns the most vectors of channels of a block. Many vectors read and write inputs and
    /// outputs in memory order. The limit keeps their weights, which each tile reads again, in a
    /// quarter of the first-level cache.
    fn most_vectors(&self) -> usize {
        let channels = self.caches.near_floats(1, 4) / self.geometry.taps();
        (channels.min(MOST_CHANNELS) / self.isa.lanes()).max(1)
    }

    /// Returns the number of groups of vectors of channels if threads have channels of their own.
    fn groups_of_threads(&self) -> usize {
        self.vectors().div_ceil(self.most_vectors().min(VECTORS_OF_THREAD))
    }

    /// Returns the floats of a unit's copies of an input and an output that are in rows.
    fn copies(&self) -> [usize; 2] {
        let groups = self.groups_of_threads().max(1);
        let width = self.vectors().div_ceil(groups) * self.isa.lanes();
        [self.input, self.output].map(|side| match side.order {
            Order::Rows => side.plane.next_multiple_of(16).saturating_mul(width),
            Order::ChannelsLast { .. } => 0,
        })
    }

    /// Cuts the work. Planes that are copied stay whole.
    fn cut(&self, pool: &Pool) -> Cut {
        let [out_d, out_h, out_w] = self.out_dims;
        let slices = self.images * out_d;
        if self.copies() != [0; 2] {
            let groups = self.groups_of_threads();
            let units = self.images * groups;
            return Cut { threads: pool.threads(), units, groups, shares: 1, parts: 1 };
        }
        let pixels = slices * out_h * out_w;
        let macs = pixels.saturating_mul(self.geometry.taps() * self.vectors() * self.isa.lanes());
        let threads = Work::new(Operation::ShortMultiplyAdd, macs).threads(pool);
        // Each thread has rows, like those of the convolutions around it: data that a thread has
        // written is in the cache of its core.
        let is_by_rows = pixels >= threads * PIXELS_PER_THREAD;
        let groups = if is_by_rows || threads == 1 {
            self.vectors().div_ceil(self.most_vectors())
        } else {
            self.groups_of_threads()
        };
        let shares = if is_by_rows { threads.div_ceil(slices.max(1)) } else { 1 };
        let shares = shares.min(out_h.div_ceil(2)).max(1);
        let wanted = if threads == 1 { 1 } else { threads * UNITS_PER_THREAD };
        let planes = (slices * groups * shares).max(1);
        let parts = wanted.div_ceil(planes).min(out_h.div_ceil(2 * shares)).max(1);
        Cut { threads, units: slices * groups * shares * parts, groups, shares, parts }
    }

    /// Computes all outputs.
    pub(super) fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let [out_d, out_h, _] = self.out_dims;
        let Cut { threads, units, groups, shares, parts } = self.cut(pool);
        pool.run_on(threads, units, |unit| {
            let (group, rest) = (unit % groups, unit / groups);
            let vectors = split_even(self.vectors(), groups, group);
            if self.copies() != [0; 2] {
                return self.run_planes(rest, vectors);
            }
            let (part, rest) = (rest % parts, rest / parts);
            let (share, plane) = (rest % shares, rest / shares);
            let share = split_even(out_h, shares, share);
            // Pairs of rows stay together.
            let pairs = split_even(share.len().div_ceil(2), parts, part);
            let rows = share.start + pairs.start * 2..share.end.min(share.start + pairs.end * 2);
            self.run_unit(plane / out_d, plane % out_d, rows, vectors);
        })
    }

    /// Computes some output rows of an image, if input and output have channels last.
    pub(super) fn run_rows(&self, image: usize, rows: Range<usize>) {
        self.run_unit(image, 0, rows, 0..self.vectors());
    }

    /// Computes some vectors of channels of an image with the input or the output in rows.
    fn run_planes(&self, image: usize, vectors: Range<usize>) {
        let lanes = self.isa.lanes();
        let channels = vectors.start * lanes..self.channels.min(vectors.end * lanes);
        let width = vectors.len() * lanes;
        let [in_floats, out_floats] = self.copies();
        let order = Order::ChannelsLast { pitch: width };
        with_scratch(in_floats, |input| {
            with_scratch(out_floats, |output| {
                // Copies hold these channels of this image: the whole tensor would begin before
                // them.
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
                    job.run_unit(image, depth, 0..self.out_dims[1], vectors.clone());
                }
                if self.output.order == Order::Rows {
                    self.write_planes(image, channels, output, width);
                }
            });
        });
    }

    /// Writes outputs whose channels are adjacent into their planes.
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
            epilogue: self.epilogue.at(channels.start, 0).skip(first * plane),
        };
        // SAFETY: the copy holds whole vectors of pixels and channels, and this unit owns the
        // planes.
        unsafe { dispatch(self.isa, body) };
    }

    /// Computes some vectors of channels of some rows of an output plane.
    fn run_unit(&self, image: usize, depth: usize, rows: Range<usize>, vectors: Range<usize>) {
        let lanes = self.isa.lanes();
        let blocks = vectors.len().div_ceil(self.most_vectors());
        let size = self.tile_size();
        for block in 0..blocks {
            let part = split_even(vectors.len(), blocks, block);
            let start = (vectors.start + part.start) * lanes;
            let end = self.channels.min((vectors.start + part.end) * lanes);
            let pitch = part.len() * lanes;
            let floats = if self.needs_sums() { MOST_PIXELS * pitch } else { 0 };
            with_scratch(floats, |sums| {
                let sums = sums.as_mut_ptr();
                let rows = rows.clone();
                let channels = start..end;
                let body = Block { conv: self, image, depth, rows, channels, size, sums };
                // SAFETY: the machine has `isa`, and this unit owns the outputs.
                unsafe { dispatch(self.isa, body) };
            });
        }
    }

    /// Whether the sums of a tile are finished in scratch memory.
    fn needs_sums(&self) -> bool {
        let has_more = !self.epilogue.split_short().1.is_plain();
        has_more || self.out_dims[2] < self.tile_size().cols
    }

    /// Returns the size of a tile. A row is cut into tiles of 4, 7 or 8 columns, whichever
    /// recomputes the fewest.
    fn tile_size(&self) -> TileSize {
        let g = self.geometry;
        let computed = |cols: usize| self.out_dims[2].div_ceil(cols) * cols;
        let is_three = g.kernel == [1, 3, 3] && g.strides == [1; 3] && g.dilations == [1; 3];
        match self.isa {
            // Eight sums, the weights of two kernel rows and an input fit 16 registers. Seven sums
            // of a row leave the compiler one register more than eight.
            Isa::Avx2 if is_three && computed(4) <= computed(7) => TileSize { rows: 2, cols: 4 },
            Isa::Avx2 if computed(7) <= computed(8) => TileSize { rows: 1, cols: 7 },
            Isa::Avx512 | Isa::Neon if is_three && computed(7) < computed(8) => {
                TileSize { rows: 2, cols: 7 }
            }
            Isa::Avx512 | Isa::Neon if is_three => TileSize { rows: 2, cols: 8 },
            _ if computed(7) < computed(8) => TileSize { rows: 1, cols: 7 },
            _ => TileSize { rows: 1, cols: 8 },
        }
    }

    /// Returns a row of inputs from channel `c` on, or zeros if the row is in the padding.
    fn line(&self, image: usize, depth: isize, row: isize, c: usize) -> Line {
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

/// Geometry: most output pixels of a tile.
const MOST_PIXELS: usize = 16;

/// Output rows and columns of a tile.
#[derive(Clone, Copy)]
struct TileSize {
    rows: usize,
    cols: usize,
}

/// A cut of the work of a depthwise convolution.
struct Cut {
    threads: usize,
    units: usize,
    /// Number of groups into which vectors of channels are cut.
    groups: usize,
    /// Number of shares into which the rows of a plane are cut, one for each thread.
    shares: usize,
    /// Number of parts into which a share is cut.
    parts: usize,
}

/// Body that computes a block of channels of some rows of an output plane.
struct Block<'a> {
    conv: &'a Depthwise<'a>,
    image: usize,
    depth: usize,
    rows: Range<usize>,
    channels: Range<usize>,
    size: TileSize,
    /// Room for the sums of a tile, if any tile is finished there.
    sums: *mut f32,
}

impl Body for Block<'_> {
    type Out = ();

    /// Computes the block.
    ///
    /// # Safety
    ///
    /// The outputs must be written by this call alone.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let g = self.conv.geometry;
        let kernel = if g.dilations[2] == 1 { g.kernel[2] } else { 0 };
        macro_rules! sweep {
            ($kw:literal, $sw:literal) => {
                if self.size.cols == 7 { sweep!(1, 7, $kw, $sw) } else { sweep!(1, 8, $kw, $sw) }
            };
            ($r:literal, $q:literal, $kw:literal, $sw:literal) => {
                // SAFETY: the caller owns the outputs.
                unsafe { S::call(Sweep::<$r, $q, $kw, $sw>(&self)) }
            };
        }
        match (self.size, kernel, g.strides[2]) {
            (TileSize { rows: 2, cols }, ..) => match (S::ISA, cols) {
                (Isa::Avx512 | Isa::Neon, 7) => sweep!(2, 7, 3, 1),
                (Isa::Avx512 | Isa::Neon, _) => sweep!(2, 8, 3, 1),
                _ => sweep!(2, 4, 3, 1),
            },
            (_, 3, 1) => sweep!(3, 1),
            (_, 3, 2) => sweep!(3, 2),
            (_, 5, 1) => sweep!(5, 1),
            (_, 5, 2) => sweep!(5, 2),
            (_, 7, 1) => sweep!(7, 1),
            (_, 7, 2) => sweep!(7, 2),
            _ => sweep!(0, 1),
        }
    }
}

/// Body that computes a block in tiles of `R` rows and `Q` columns, from left to right and from top
/// to bottom.
struct Sweep<'a, const R: usize, const Q: usize, const KW: usize, const SW: usize>(&'a Block<'a>);

impl<const R: usize, const Q: usize, const KW: usize, const SW: usize> Body
    for Sweep<'_, R, Q, KW, SW>
{
    type Out = ();

    /// Computes the block.
    ///
    /// # Safety
    ///
    /// The demands of [`Block`] must hold.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        const { assert!(R * Q <= MOST_PIXELS) };
        let block = self.0;
        let mut tile = block.tile();
        let Range { start, end } = block.rows;
        let whole = start + (end - start) / R * R;
        // SAFETY: the caller owns the outputs.
        unsafe {
            for row in (start..whole).step_by(R) {
                block.run_row::<S, R, Q, KW, SW>(row, &mut tile);
            }
            for row in whole..end {
                block.run_row::<S, 1, Q, KW, SW>(row, &mut tile);
            }
        }
    }
}

impl Block<'_> {
    /// Returns a tile without inputs.
    fn tile(&self) -> Tile<'_> {
        let Block { conv, ref channels, .. } = *self;
        Tile {
            geometry: conv.geometry,
            lines: SmallVec::new(),
            inside: 0..0,
            weights: conv.weights[channels.start..].as_ptr(),
            weights_step: conv.channels.next_multiple_of(conv.isa.lanes()),
            epilogue: conv.epilogue.at(0, channels.start).split_short().0,
        }
    }

    /// Moves a tile of `rows` rows to the first output of row `row`.
    fn begin_row(&self, tile: &mut Tile<'_>, row: usize, rows: usize) {
        let Block { conv, image, depth, ref channels, .. } = *self;
        let g = conv.geometry;
        let at = |i: usize, output: usize, tap: usize| {
            (output * g.strides[i] + tap * g.dilations[i]) as isize - g.pads_begin[i] as isize
        };
        tile.lines.clear();
        for kd in 0..g.kernel[0] {
            for kh in 0..g.kernel[1] + rows - 1 {
                let (depth, row) = (at(0, depth, kd), at(1, row, kh));
                tile.lines.push(conv.line(image, depth, row, channels.start));
            }
        }
        tile.inside = 0..conv.in_dims[2] as isize;
        tile.shift(-(g.pads_begin[2] as isize));
    }

    /// Computes `R` output rows from `row` on.
    ///
    /// # Safety
    ///
    /// The demands of [`Block`] must hold.
    #[inline(always)]
    unsafe fn run_row<S: Simd, const R: usize, const Q: usize, const KW: usize, const SW: usize>(
        &self,
        row: usize,
        tile: &mut Tile<'_>,
    ) {
        let Block { conv, image, depth, ref channels, sums, .. } = *self;
        let [_, out_h, width] = conv.out_dims;
        self.begin_row(tile, row, R);
        let pitch = pitch(&conv.output);
        let first_pixel = (depth * out_h + row) * width;
        let first = conv.output.pixel(image, first_pixel).wrapping_add(channels.start);
        let needs_sums = conv.needs_sums();
        let (_, epilogue) = conv.epilogue.at(0, channels.start).split_short();
        let plane = conv.out_dims.iter().product::<usize>();
        let last = width.saturating_sub(Q);
        let mut before = 0;
        for col in (0..width).step_by(Q) {
            // The last tile recomputes some columns of the one before.
            let col = col.min(last);
            tile.shift(((col - before) * conv.geometry.strides[2]) as isize);
            before = col;
            let to = Outputs { first: first.wrapping_add(col * pitch), pitch, line: width * pitch };
            // SAFETY: the caller owns the outputs.
            unsafe {
                if !needs_sums {
                    compute::<S, R, Q, KW, SW>(tile, to, channels.len());
                    continue;
                }
                let pitch = channels.len().next_multiple_of(S::LANES);
                let from = Outputs { first: sums, pitch, line: Q * pitch };
                compute::<S, R, Q, KW, SW>(tile, from, channels.len());
                S::call(FinishSums {
                    epilogue: epilogue.at(image * plane + first_pixel + col, 0),
                    from,
                    to,
                    size: TileSize { rows: R, cols: Q },
                    out_width: width,
                    channels: channels.len(),
                });
            }
        }
    }
}

/// Computes `channels` channels of a tile by the loop that its padding needs.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn compute<S: Simd, const R: usize, const Q: usize, const KW: usize, const SW: usize>(
    tile: &Tile<'_>,
    to: Outputs,
    channels: usize,
) {
    let extent = tile.geometry.extent(2, Q) as isize;
    let sides = (KW / 2) as isize;
    let Range { start, end } = tile.inside;
    let whole = channels / S::LANES * S::LANES;
    // SAFETY: the caller has inputs and outputs valid for the tile.
    unsafe {
        if start > sides || end < extent - sides {
            return S::call(Compute::<Anywhere, R, Q, KW, SW>::new(tile, to, 0..channels));
        }
        if start <= 0 && end >= extent {
            S::call(Compute::<Inside, R, Q, KW, SW>::new(tile, to, 0..whole));
        } else {
            S::call(Compute::<Sides, R, Q, KW, SW>::new(tile, to, 0..whole));
        }
        if whole < channels {
            S::call(Compute::<PartialSides, R, Q, KW, SW>::new(tile, to, whole..channels));
        }
    }
}

/// Body that finishes a tile whose sums are in scratch memory, and writes it. A function is applied
/// to all sums at once.
struct FinishSums {
    /// Operations that remain for the sums.
    epilogue: TileEpilogue,
    /// Sums, whole vectors of channels of each pixel.
    from: Outputs,
    to: Outputs,
    /// Rows and columns of the sums.
    size: TileSize,
    /// Number of columns of the output.
    out_width: usize,
    channels: usize,
}

impl Body for FinishSums {
    type Out = ();

    /// Finishes and writes the sums.
    ///
    /// # Safety
    ///
    /// The outputs must be writable, and the sums have room for whole vectors.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller has the sums and the outputs valid.
        unsafe {
            if self.epilogue.activation.is_function() {
                self.apply_function::<S>();
            } else {
                self.apply_linear::<S>();
            }
        }
    }
}

impl FinishSums {
    /// Adds the residual in scratch memory, applies the function there, and writes the products
    /// with the factor.
    ///
    /// # Safety
    ///
    /// The demands of [`FinishSums`] must hold.
    #[inline(always)]
    unsafe fn apply_function<S: Simd>(&self) {
        let &FinishSums { ref epilogue, from, to, size, out_width, channels } = self;
        let &TileEpilogue { residual, activation, factor, factor_rs, .. } = epilogue;
        let cols = size.cols.min(out_width);
        // SAFETY: the caller has the sums, the outputs and the epilogue valid.
        unsafe {
            if !residual.is_null() {
                for (r, q) in pixels(size.rows, cols) {
                    let sums = from.pixel(r, q);
                    for c in (0..channels).step_by(S::LANES) {
                        let x = S::load(sums.add(c));
                        S::store(sums.add(c), self.add_residual::<S>(x, r * out_width + q, c));
                    }
                }
            }
            let floats = size.rows * from.line;
            activation.apply_function_to::<S>(std::slice::from_raw_parts_mut(from.first, floats));
            for (r, q) in pixels(size.rows, cols) {
                let (sums, y) = (from.pixel(r, q), to.pixel(r, q));
                let at = (r * out_width + q) * factor_rs;
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

    /// Adds the residual, applies an activation other than a function, multiplies by the factor and
    /// writes, in one pass.
    ///
    /// # Safety
    ///
    /// The demands of [`FinishSums`] must hold.
    #[inline(always)]
    unsafe fn apply_linear<S: Simd>(&self) {
        let &FinishSums { ref epilogue, from, to, size, out_width, channels } = self;
        let &TileEpilogue { residual, activation, factor, factor_rs, .. } = epilogue;
        // SAFETY: the caller has the sums, the outputs and the epilogue valid.
        unsafe {
            let prepared = activation.prepare::<S>();
            for (r, q) in pixels(size.rows, size.cols.min(out_width)) {
                let (sums, y) = (from.pixel(r, q), to.pixel(r, q));
                let pixel = r * out_width + q;
                for c in (0..channels).step_by(S::LANES) {
                    let mask = S::first(channels - c);
                    let mut x = S::load(sums.add(c));
                    if !residual.is_null() {
                        x = self.add_residual::<S>(x, pixel, c);
                    }
                    x = prepared.apply(x);
                    if !factor.is_null() {
                        x = S::mul(x, S::load_m(factor.add(pixel * factor_rs + c), mask));
                    }
                    S::store_m(y.add(c), mask, x);
                }
            }
        }
    }

    /// Adds the residual of a pixel to its sums from channel `c` on.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold, and the epilogue must have a residual there.
    #[inline(always)]
    unsafe fn add_residual<S: Simd>(&self, x: S::V, pixel: usize, c: usize) -> S::V {
        let TileEpilogue { residual, residual_rs, .. } = self.epilogue;
        // SAFETY: the caller has a residual for this pixel; masks leave out channels beyond the
        // last.
        unsafe {
            let p = residual.add(pixel * residual_rs + c);
            S::add(x, S::load_m(p, S::first(self.channels - c)))
        }
    }
}

/// Returns the pixels of a tile, row after row.
fn pixels(rows: usize, cols: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..rows).flat_map(move |r| (0..cols).map(move |q| (r, q)))
}
