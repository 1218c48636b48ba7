//! Depthwise convolution with channels last: vectors run along channels, and a tile is a few
//! columns of one or two output rows. Each input vector is loaded once for each kernel row that it
//! meets and multiplied with the weights of all taps under which it lies.

use std::ops::Range;

use super::direct::CopyPixels;
use super::{Geometry, Order, Side};
use crate::gemm::{FinishTransposed, SendPtr, TileEnd, TileEpilogue, finish, finish_first};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Caches, Ended, Isa, Pool};
use sardonyx_simd::{Simd, dispatch};

/// Multiply-adds from which a parallel region is worth its price.
const PARALLEL_MACS: usize = 20_000;
/// Units of work per thread. Each reads the rows around its own again.
const UNITS_PER_THREAD: usize = 4;
/// Output pixels per thread from which all threads have rows of their own. Below, they have
/// channels of their own.
const PIXELS_PER_THREAD: usize = 64;
/// Vectors of channels that are computed for all rows of a unit before the next ones: their inputs
/// stay in the first-level cache from one row to the next.
const VECTORS: usize = 8;

/// What is read in place of padding: as many channels as a unit of work has at most.
#[repr(align(64))]
struct Zeros([f32; VECTORS * 16]);
static ZEROS: Zeros = Zeros([0.0; VECTORS * 16]);

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
    /// Whether the input is in a cache.
    pub(super) is_near: bool,
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
            return Cut { units: self.images * self.groups(), shares: 1, parts: 1 };
        }
        let outputs = (slices * self.groups() * out_h * out_w).saturating_mul(self.geometry.taps());
        let macs = outputs.saturating_mul(VECTORS * self.isa.lanes());
        let threads = if macs < PARALLEL_MACS { 1 } else { pool.threads() };
        // Rows for each thread, as the convolutions around it cut them: what a thread has written
        // is in the cache of its core.
        let is_by_rows = slices * out_h * out_w >= threads * PIXELS_PER_THREAD;
        let shares = if is_by_rows { threads.div_ceil(slices.max(1)) } else { 1 };
        let shares = shares.min(out_h.div_ceil(2)).max(1);
        let wanted = if threads == 1 { 1 } else { threads * UNITS_PER_THREAD };
        let planes = (slices * self.groups() * shares).max(1);
        let parts = wanted.div_ceil(planes).min(out_h.div_ceil(2 * shares)).max(1);
        Cut { units: slices * self.groups() * shares * parts, shares, parts }
    }

    pub(super) fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let [out_d, out_h, _] = self.out_dims;
        let Cut { units, shares, parts } = self.cut(pool);
        let groups = self.groups();
        let vectors = |group: usize| sardonyx_simd::split_even(self.vectors(), groups, group);
        if self.copies() != [0; 2] {
            return pool.run(units, |unit| self.planes(unit / groups, vectors(unit % groups)));
        }
        pool.run(units, |unit| {
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
        let groups = self.groups();
        for group in 0..groups {
            let vectors = sardonyx_simd::split_even(self.vectors(), groups, group);
            self.unit(image, 0, rows.clone(), vectors);
        }
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

    /// Some vectors of channels of some rows of an output plane.
    fn unit(&self, image: usize, depth: usize, rows: Range<usize>, vectors: Range<usize>) {
        let g = self.geometry;
        let lanes = self.isa.lanes();
        let channels = vectors.start * lanes..self.channels.min(vectors.end * lanes);
        let shape = Shape::of(self.isa, g, self.out_dims[2]);
        let width = self.out_dims[2];
        let line = self.in_dims[2] * channels.len();
        let across = g.extent(1, shape.rows).saturating_mul(line) <= self.caches.near_floats(3, 4);
        let steps = rows.len().div_ceil(shape.rows);
        let tiles = width.div_ceil(shape.cols);
        // Where tile `at` begins. Tiles come one row after the other while the inputs of a row stay
        // in the first-level cache, else one column after the other.
        let place = |at: usize| {
            let (step, tile) =
                if across { (at / tiles, at % tiles) } else { (at % steps, at / steps) };
            (rows.start + step * shape.rows, tile * shape.cols)
        };
        for at in 0..steps * tiles {
            let (row, col) = place(at);
            let cols = shape.cols.min(width - col);
            let count = shape.rows.min(rows.end - row);
            let shape = if count == shape.rows { shape } else { Shape { rows: 1, ..shape } };
            // Nothing beyond the unit is fetched: another thread may be writing it.
            let ahead = if at + 2 < steps * tiles { place(at + 2) } else { (row, col) };
            for row in (row..row + count).step_by(shape.rows) {
                self.tile(shape, [image, depth, row, col], ahead, cols, channels.clone());
            }
        }
    }

    /// The tile whose first output is `at`, which fetches the inputs and outputs of the one whose
    /// row and column are `ahead`.
    fn tile(
        &self,
        shape: Shape,
        at: [usize; 4],
        ahead: (usize, usize),
        cols: usize,
        channels: Range<usize>,
    ) {
        let g = self.geometry;
        let [image, depth, row, col] = at;
        let [in_d, in_h, in_w] = self.in_dims;
        let [_, out_h, out_w] = self.out_dims;
        let first = |i: usize, at: usize| (at * g.strides[i]) as isize - g.pads_begin[i] as isize;
        let origin = [first(0, depth), first(1, row), first(2, col)];
        let extents = [g.extent(0, 1), g.extent(1, shape.rows), g.extent(2, shape.cols)];
        let is_inside = (0..3).all(|i| {
            origin[i] >= 0 && origin[i] + extents[i] as isize <= [in_d, in_h, in_w][i] as isize
        });
        let pixel = (depth * out_h + row) * out_w + col;
        let (in_pitch, out_pitch) = (pitch(&self.input), pitch(&self.output));
        let image_pixels = self.out_dims.iter().product::<usize>();
        // From this tile to that one, which may be to the left.
        let apart = |[rows, cols]: [usize; 2], width: usize, pitch: usize| {
            let pixels = |row: usize, col: usize| row * rows * width + col * cols;
            let apart = pixels(ahead.0, ahead.1).wrapping_sub(pixels(row, col));
            apart.wrapping_mul(pitch)
        };
        let ahead = apart([g.strides[1], g.strides[2]], in_w, in_pitch);
        let out_ahead = apart([1, 1], out_w, out_pitch);
        let c = channels.start;
        let lanes = self.isa.lanes();
        let tile = Tile {
            geometry: g,
            in_dims: self.in_dims,
            origin,
            low: (-origin[2]).max(0),
            high: in_w as isize - origin[2],
            x: self.input.pixel(image, 0).wrapping_add(c).cast_const(),
            in_pitch,
            ahead,
            out_ahead,
            weights: self.weights[c..].as_ptr(),
            weights_step: self.channels.next_multiple_of(lanes),
            channels: channels.len(),
            cols,
            y: self.output.pixel(image, pixel).wrapping_add(c),
            out_pitch,
            out_line: out_w * out_pitch,
            epilogue: self.epilogue.at(image * image_pixels + pixel, c),
        };
        let run = |tile: &Tile<'_>, mode: usize| {
            // SAFETY: taps outside the input read zeros, or all taps are inside; only the modes for
            // edges and borders have channels that do not fill a vector, unless pixels have whole
            // vectors; this unit owns the outputs.
            unsafe { shape.function(self.isa, mode)(tile) };
        };
        let whole = channels.len() / lanes * lanes;
        if is_inside && self.is_near {
            return run(&tile, NEAR);
        }
        if is_inside {
            if whole > 0 {
                run(&Tile { channels: whole, ..tile }, INSIDE);
            }
            if whole < channels.len() {
                run(&tile.after(whole), BORDER);
            }
            return;
        }
        let sides = shape.sides() as isize;
        let has_border = tile.low <= sides && tile.high >= extents[2] as isize - sides;
        run(&tile, if has_border { BORDER } else { EDGE });
    }
}

/// How the work of a depthwise convolution is cut.
struct Cut {
    units: usize,
    /// Shares of the rows of a plane, for a thread each, and how many parts these are cut into.
    shares: usize,
    parts: usize,
}

/// The size of tiles, and for which kernels.
#[derive(Clone, Copy, Debug)]
struct Shape {
    rows: usize,
    cols: usize,
    /// The width of the kernel and its stride, if there is a loop for them.
    width: Option<(usize, usize)>,
}

impl Shape {
    fn of(isa: Isa, g: &Geometry, out_w: usize) -> Shape {
        let is_small = matches!(g.kernel[2], 3 | 5 | 7) && g.strides[2] <= 2 && g.dilations[2] == 1;
        let width = is_small.then_some((g.kernel[2], g.strides[2]));
        let has_pairs = width == Some((3, 1))
            && g.kernel == [1, 3, 3]
            && g.strides == [1; 3]
            && g.dilations == [1; 3]
            && isa == Isa::Avx512;
        // Whichever leaves fewer columns over.
        let left = |cols: usize| out_w.div_ceil(cols) * cols - out_w;
        let cols = if left(7) < left(8) { 7 } else { 8 };
        Shape { rows: if has_pairs { 2 } else { 1 }, cols, width }
    }

    /// How many columns of inputs may be outside on either side in the mode for borders.
    fn sides(self) -> usize {
        self.width.map_or(0, |(width, _)| width / 2)
    }

    fn function(self, isa: Isa, mode: usize) -> TileFn {
        let table = by_isa!(isa, &avx512::TILES, &avx2::TILES, &portable::TILES);
        let kind = match (self.rows, self.width) {
            (2, _) => 0,
            (_, Some((3, 1))) => 1,
            (_, Some((3, _))) => 2,
            (_, Some((5, 1))) => 3,
            (_, Some((5, _))) => 4,
            (_, Some((7, 1))) => 5,
            (_, Some((7, _))) => 6,
            _ => 7,
        };
        table[kind][self.cols - 7][mode]
    }
}

/// One tile's work.
#[derive(Clone, Copy)]
struct Tile<'a> {
    geometry: &'a Geometry,
    in_dims: [usize; 3],
    /// Where the window of the first output begins; negative in padding.
    origin: [isize; 3],
    /// The columns from there on that are inside the input.
    low: isize,
    high: isize,
    /// The first pixel of the image.
    x: *const f32,
    in_pitch: usize,
    /// From inputs to those that are fetched meanwhile, wrapping around.
    ahead: usize,
    /// The same of outputs.
    out_ahead: usize,
    weights: *const f32,
    /// From the weights of one tap to those of the next.
    weights_step: usize,
    /// Whole vectors, or fewer channels than one has.
    channels: usize,
    /// Columns to write.
    cols: usize,
    y: *mut f32,
    out_pitch: usize,
    out_line: usize,
    epilogue: TileEpilogue,
}

type TileFn = unsafe fn(&Tile<'_>);
/// By kind of kernel, by columns - 7, and by mode.
type TileTable = [[[TileFn; 4]; 2]; 8];

/// Any inputs may be outside.
const EDGE: usize = 0;
/// All inputs are inside, and channels fill vectors.
const INSIDE: usize = 1;
/// All inputs are inside and in a cache: nothing is fetched ahead. Pixels have whole vectors.
const NEAR: usize = 2;
/// Whole rows of inputs may be outside, and on either side half as many columns as the kernel has:
/// what padding that keeps the size leads to. The others are not asked about. Where planes are
/// small, nearly all tiles are such.
const BORDER: usize = 3;

impl Tile<'_> {
    /// The channels from number `c` on.
    fn after(self, c: usize) -> Self {
        Tile {
            x: self.x.wrapping_add(c),
            weights: self.weights.wrapping_add(c),
            y: self.y.wrapping_add(c),
            channels: self.channels - c,
            epilogue: self.epilogue.at(0, c),
            ..self
        }
    }

    /// The first pixel of a row of the input from the origin on, and the distance of pixels:
    /// zeros outside.
    #[inline(always)]
    fn row(&self, kd: usize, i: usize) -> (*const f32, usize) {
        let [in_d, in_h, in_w] = self.in_dims;
        let d = self.origin[0] + (kd * self.geometry.dilations[0]) as isize;
        let h = self.origin[1] + i as isize;
        if d < 0 || d >= in_d as isize || h < 0 || h >= in_h as isize {
            return (ZEROS.0.as_ptr(), 0);
        }
        let pixel = (d * in_h as isize + h) * in_w as isize + self.origin[2];
        (self.x.wrapping_offset(pixel * self.in_pitch as isize), self.in_pitch)
    }
}

/// The input vector at column `j` of a row, which is outside only if it is `at_side` in the mode
/// for borders.
///
/// # Safety
///
/// As [`Simd`]; what is inside is readable.
#[inline(always)]
unsafe fn input<S: Simd, const MODE: usize>(
    t: &Tile<'_>,
    (row, step): (*const f32, usize),
    (j, at_side): (usize, bool),
    c: usize,
    mask: S::M,
) -> S::V {
    let p = row.wrapping_add(j * step + c);
    // SAFETY: the caller's promise.
    unsafe {
        if MODE == EDGE || MODE == BORDER && at_side {
            let is_inside = j as isize >= t.low && (j as isize) < t.high;
            return S::load_m(if is_inside { p } else { ZEROS.0.as_ptr() }, mask);
        }
        if MODE == BORDER {
            return S::load_m(p, mask);
        }
        if MODE == INSIDE {
            // Pixels that the next tile has beyond this one come from far, and no processor
            // guesses which.
            S::prefetch_far(p.wrapping_add(t.ahead));
        }
        S::load(p)
    }
}

/// Whether column `j` of the inputs of `Q` outputs of a kernel that is `KW` wide may be outside in
/// the mode for borders.
const fn at_side<const Q: usize, const KW: usize, const SW: usize>(j: usize) -> bool {
    j < KW / 2 || j + KW / 2 >= (Q - 1) * SW + KW
}

/// The outputs, of `Q`, that a kernel which is `KW` wide computes from column `j` of the inputs.
const fn outputs_under<const Q: usize, const KW: usize, const SW: usize>(j: usize) -> Range<usize> {
    let start = (j + SW).saturating_sub(KW) / SW;
    let end = j / SW + 1;
    start..if end < Q { end } else { Q }
}

/// Asks for the outputs of the tile after the next: nobody else does before they are written.
///
/// # Safety
///
/// As [`Simd`].
#[inline(always)]
unsafe fn fetch_outputs<S: Simd, const R: usize, const Q: usize>(t: &Tile<'_>, c: usize) {
    for r in 0..R {
        for q in 0..Q {
            let at = t.y.wrapping_add(t.out_ahead);
            let at = at.wrapping_add(r * t.out_line + q * t.out_pitch + c);
            // SAFETY: a prefetch is no access.
            unsafe { S::prefetch_write(at) };
        }
    }
}

/// Writes a row of a tile.
///
/// # Safety
///
/// As [`Simd`]; the outputs are writable.
#[inline(always)]
unsafe fn write<S: Simd, const Q: usize, const MODE: usize>(
    t: &Tile<'_>,
    r: usize,
    c: usize,
    n: usize,
    sums: [[S::V; 1]; Q],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let out = t.y.add(r * t.out_line + c);
        let pixels = r * (t.out_line / t.out_pitch);
        let epilogue = t.epilogue.at(pixels, c);
        let end = TileEnd { c: out, ldc: t.out_pitch, n, epilogue: &epilogue };
        if t.cols == Q {
            finish::<S, Q, 1>(&end, sums);
        } else {
            finish_first::<S, Q>(&end, t.cols, &sums);
        }
    }
}

/// A body for each input column of a tile, with its number as a constant. Of a loop the compiler
/// would ask at each column under which taps it lies, which takes six times as long.
macro_rules! columns {
    ($column:ident $body:block) => {
        columns!($column $body [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20]);
    };
    ($column:ident $body:block [$($number:literal)*]) => {
        $({
            const $column: usize = $number;
            $body
        })*
    };
}

/// For how many columns there are bodies: those of eight outputs of a kernel of width 7 and
/// stride 2.
const COLUMNS: usize = 21;

/// Two output rows of a kernel of 3 x 3 with stride 1.
///
/// # Safety
///
/// As [`Simd`] and [`Tile`] say.
#[inline(always)]
unsafe fn pair<S: Simd, const Q: usize, const MODE: usize>(t: &Tile<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        let rows: [(*const f32, usize); 4] = std::array::from_fn(|i| t.row(0, i));
        let mut c = 0;
        while c < t.channels {
            let n = S::LANES.min(t.channels - c);
            let mask = S::first(n);
            let mut w = [[S::splat(0.0); 3]; 3];
            for (kh, row) in w.iter_mut().enumerate() {
                for (kw, w) in row.iter_mut().enumerate() {
                    *w = S::load(t.weights.add((kh * 3 + kw) * t.weights_step + c));
                }
            }
            if MODE != EDGE {
                fetch_outputs::<S, 2, Q>(t, c);
            }
            let mut sums = [[[S::splat(0.0); 1]; Q]; 2];
            for (i, row) in rows.iter().enumerate() {
                columns!(J {
                    if J < Q + 2 {
                        let at_side = const { at_side::<Q, 3, 1>(J) };
                        let x = input::<S, MODE>(t, *row, (J, at_side), c, mask);
                        for (r, sums) in sums.iter_mut().enumerate() {
                            if i < r || i - r > 2 {
                                continue;
                            }
                            let under = const { outputs_under::<Q, 3, 1>(J) };
                            for (q, sum) in under.clone().zip(&mut sums[under]) {
                                sum[0] = S::fma(w[i - r][J - q], x, sum[0]);
                            }
                        }
                    }
                });
            }
            let [first, second] = sums;
            write::<S, Q, MODE>(t, 0, c, n, first);
            write::<S, Q, MODE>(t, 1, c, n, second);
            c += S::LANES;
        }
    }
}

/// One output row of a kernel that is `KW` wide, with stride `SW` along the width.
///
/// # Safety
///
/// As [`Simd`] and [`Tile`] say.
#[inline(always)]
unsafe fn single<S: Simd, const Q: usize, const KW: usize, const SW: usize, const MODE: usize>(
    t: &Tile<'_>,
) {
    const { assert!((Q - 1) * SW + KW <= COLUMNS) };
    let g = t.geometry;
    // SAFETY: the caller's promise.
    unsafe {
        let mut c = 0;
        while c < t.channels {
            let n = S::LANES.min(t.channels - c);
            let mask = S::first(n);
            if MODE != EDGE {
                fetch_outputs::<S, 1, Q>(t, c);
            }
            let mut sums = [[S::splat(0.0); 1]; Q];
            let mut weights = t.weights.add(c);
            for kd in 0..g.kernel[0] {
                for kh in 0..g.kernel[1] {
                    let row = t.row(kd, kh * g.dilations[1]);
                    let mut w = [S::splat(0.0); KW];
                    for (kw, w) in w.iter_mut().enumerate() {
                        *w = S::load(weights.add(kw * t.weights_step));
                    }
                    weights = weights.wrapping_add(KW * t.weights_step);
                    columns!(J {
                        if J < (Q - 1) * SW + KW {
                            let at_side = const { at_side::<Q, KW, SW>(J) };
                            let x = input::<S, MODE>(t, row, (J, at_side), c, mask);
                            let under = const { outputs_under::<Q, KW, SW>(J) };
                            for (q, sum) in under.clone().zip(&mut sums[under]) {
                                sum[0] = S::fma(w[J - q * SW], x, sum[0]);
                            }
                        }
                    });
                }
            }
            write::<S, Q, MODE>(t, 0, c, n, sums);
            c += S::LANES;
        }
    }
}

/// One output row of any kernel.
///
/// # Safety
///
/// As [`Simd`] and [`Tile`] say.
#[inline(always)]
unsafe fn general<S: Simd, const Q: usize, const MODE: usize>(t: &Tile<'_>) {
    let g = t.geometry;
    // SAFETY: the caller's promise.
    unsafe {
        let mut c = 0;
        while c < t.channels {
            let n = S::LANES.min(t.channels - c);
            let mask = S::first(n);
            if MODE != EDGE {
                fetch_outputs::<S, 1, Q>(t, c);
            }
            let mut sums = [[S::splat(0.0); 1]; Q];
            let mut weights = t.weights.add(c);
            for kd in 0..g.kernel[0] {
                for kh in 0..g.kernel[1] {
                    let row = t.row(kd, kh * g.dilations[1]);
                    for kw in 0..g.kernel[2] {
                        let w = S::load(weights);
                        weights = weights.wrapping_add(t.weights_step);
                        for (q, sum) in sums.iter_mut().enumerate() {
                            let j = q * g.strides[2] + kw * g.dilations[2];
                            let x = input::<S, MODE>(t, row, (j, false), c, mask);
                            sum[0] = S::fma(w, x, sum[0]);
                        }
                    }
                }
            }
            write::<S, Q, MODE>(t, 0, c, n, sums);
            c += S::LANES;
        }
    }
}

/// The functions of a tile by mode, which the list has in the order of their numbers.
macro_rules! modes {
    ([$edge:ident $inside:ident $near:ident $border:ident], $tile:ident $(, $number:literal)*) => {
        [
            $tile::<$($number,)* $edge>,
            $tile::<$($number,)* $inside>,
            $tile::<$($number,)* $near>,
            $tile::<$($number,)* $border>,
        ]
    };
}

/// Defines the tile functions of one instruction set, with the modes that stand for [`EDGE`],
/// [`INSIDE`], [`NEAR`] and [`BORDER`], and the kernels that are computed two rows at a time.
macro_rules! depthwise_tiles {
    ($simd:ty, $set:ident, $modes:tt, pairs: $pairs:tt) => {
        #[allow(unused_imports)] // Not all have all modes.
        use super::{BORDER, EDGE, INSIDE, NEAR, Tile, TileTable, general, pair, single};
        enable!(
            $set,
            unsafe fn of_single<
                const Q: usize,
                const KW: usize,
                const SW: usize,
                const MODE: usize,
            >(
                t: &Tile<'_>,
            ) {
                // SAFETY: the instructions are enabled here; the rest is the caller's promise.
                unsafe { single::<$simd, Q, KW, SW, MODE>(t) }
            }
        );
        enable!(
            $set,
            unsafe fn of_any<const Q: usize, const MODE: usize>(t: &Tile<'_>) {
                // SAFETY: as above.
                unsafe { general::<$simd, Q, MODE>(t) }
            }
        );
        macro_rules! by_cols {
            ($kw:literal, $sw:literal) => {
                [modes!($modes, of_single, 7, $kw, $sw), modes!($modes, of_single, 8, $kw, $sw)]
            };
        }
        depthwise_tiles!(@pairs $pairs $simd, $set, $modes);
        pub(super) static TILES: TileTable = [
            PAIRS,
            by_cols!(3, 1),
            by_cols!(3, 2),
            by_cols!(5, 1),
            by_cols!(5, 2),
            by_cols!(7, 1),
            by_cols!(7, 2),
            [modes!($modes, of_any, 7), modes!($modes, of_any, 8)],
        ];
    };
    (@pairs yes $simd:ty, $set:ident, $modes:tt) => {
        enable!(
            $set,
            unsafe fn of_pair<const Q: usize, const MODE: usize>(t: &Tile<'_>) {
                // SAFETY: as above.
                unsafe { pair::<$simd, Q, MODE>(t) }
            }
        );
        const PAIRS: [[super::TileFn; 4]; 2] =
            [modes!($modes, of_pair, 7), modes!($modes, of_pair, 8)];
    };
    // [`Shape::of`] chooses none.
    (@pairs no $simd:ty, $set:ident, $modes:tt) => {
        const PAIRS: [[super::TileFn; 4]; 2] = by_cols!(3, 1);
    };
}

/// Asks about every column at borders, and has nothing to fetch ahead: two modes stand for four.
mod portable {
    depthwise_tiles!(
        sardonyx_simd::portable::Portable, portable, [EDGE INSIDE INSIDE EDGE], pairs: no
    );
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    depthwise_tiles!(sardonyx_simd::avx2::Avx2, avx2, [EDGE INSIDE NEAR BORDER], pairs: no);
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    depthwise_tiles!(sardonyx_simd::avx512::Avx512, avx512, [EDGE INSIDE NEAR BORDER], pairs: yes);
}
