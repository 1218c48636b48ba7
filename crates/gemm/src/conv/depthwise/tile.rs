//! The inner loops of depthwise convolution.
//!
//! A tile is `Q` neighbouring outputs of `R` rows, for some vectors of channels. Each input vector
//! is loaded once for each input row and multiplied by the weights of all taps over it. The taps of
//! an output are added in the order of the kernel, whatever the tile.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

use super::super::Geometry;
use crate::gemm::ShortEpilogue;
use sardonyx_simd::{Body, Simd};
use smallvec::SmallVec;

/// Geometry: most channels of a tile.
pub(super) const MOST_CHANNELS: usize = 256;

/// Channels of a pixel of padding.
#[repr(align(64))]
struct Zeros([f32; MOST_CHANNELS]);
static ZEROS: Zeros = Zeros([0.0; MOST_CHANNELS]);

/// A row of input pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Pixel in column 0.
    pub(super) first: *const f32,
    /// Distance of pixels in floats.
    pub(super) pitch: usize,
}

impl Line {
    /// Returns a row of padding.
    pub(super) fn zeros() -> Line {
        Line { first: ZEROS.0.as_ptr(), pitch: 0 }
    }
}

/// Inputs and weights of a tile.
pub(super) struct Tile<'a> {
    pub(super) geometry: &'a Geometry,
    /// Input rows under the kernel rows of the first output row, and the further ones under the
    /// next output rows. Column 0 is that of the first tap.
    pub(super) lines: SmallVec<[Line; 8]>,
    /// Columns of the lines that are inside the input.
    pub(super) inside: Range<isize>,
    pub(super) weights: *const f32,
    /// Distance of the weights of neighbouring taps in floats.
    pub(super) weights_step: usize,
    /// Epilogue of the sums before they are written.
    pub(super) epilogue: ShortEpilogue,
}

/// A line of inputs of a tile.
struct Inputs {
    line: Line,
    /// Columns that are inside the input.
    inside: Range<isize>,
}

impl Tile<'_> {
    /// Returns the inputs of a line.
    #[inline(always)]
    fn inputs(&self, line: &Line) -> Inputs {
        Inputs { line: *line, inside: self.inside.clone() }
    }

    /// Moves the tile right by `cols` columns of the input, or left if `cols` is negative.
    #[inline(always)]
    pub(super) fn shift(&mut self, cols: isize) {
        for line in &mut self.lines {
            let floats = cols.wrapping_mul(line.pitch as isize);
            line.first = line.first.wrapping_offset(floats);
        }
        self.inside = self.inside.start - cols..self.inside.end - cols;
    }
}

/// Outputs of a tile.
#[derive(Clone, Copy)]
pub(super) struct Outputs {
    pub(super) first: *mut f32,
    /// Distance of pixels in floats.
    pub(super) pitch: usize,
    /// Distance of rows in floats.
    pub(super) line: usize,
}

impl Outputs {
    /// Returns the first channel of a pixel.
    #[inline(always)]
    pub(super) fn pixel(&self, row: usize, col: usize) -> *mut f32 {
        self.first.wrapping_add(row * self.line + col * self.pitch)
    }
}

/// Kind of tile by the columns that may be padding.
pub(super) trait Border: 'static {
    /// Whether `kernel width / 2` columns on either side may be padding, as in convolutions that
    /// keep the size of an image.
    const SIDES: bool;
    /// Whether any column may be padding.
    const ALL: bool;
    /// Whether the last channels may fill only a part of a vector.
    const PARTIAL: bool;
}

macro_rules! borders {
    ($($(#[$doc:meta])* $name:ident: $sides:literal $all:literal $partial:literal;)*) => {
        $($(#[$doc])*
        pub(super) struct $name;
        impl Border for $name {
            const SIDES: bool = $sides;
            const ALL: bool = $all;
            const PARTIAL: bool = $partial;
        })*
    };
}

borders! {
    /// All columns are inside the input.
    Inside: false false false;
    /// Columns on either side may be padding.
    Sides: true false false;
    /// Columns on either side may be padding, and channels fill only a part of a vector.
    PartialSides: true false true;
    /// Any column may be padding, and channels may fill only a part of a vector.
    Anywhere: true true true;
}

/// Body that computes a tile. `KW` and `SW` are the width of the kernel and its stride. `KW` is 0
/// for kernels without a loop of their own.
pub(super) struct Compute<'a, B, const R: usize, const Q: usize, const KW: usize, const SW: usize> {
    tile: &'a Tile<'a>,
    to: Outputs,
    /// Channels to compute, counted from the first channel of all operands; at most
    /// [`MOST_CHANNELS`].
    channels: Range<usize>,
    border: PhantomData<B>,
}

impl<'a, B, const R: usize, const Q: usize, const KW: usize, const SW: usize>
    Compute<'a, B, R, Q, KW, SW>
{
    pub(super) fn new(tile: &'a Tile<'a>, to: Outputs, channels: Range<usize>) -> Self {
        Compute { tile, to, channels, border: PhantomData }
    }
}

/// Sums of a vector of channels of one output row.
type Sums<S, const Q: usize> = [<S as Simd>::V; Q];

/// A vector of channels.
#[derive(Clone, Copy)]
struct Lanes<S: Simd> {
    /// First channel.
    c: usize,
    mask: S::M,
}

impl<B: Border, const R: usize, const Q: usize, const KW: usize, const SW: usize> Body
    for Compute<'_, B, R, Q, KW, SW>
{
    type Out = ();

    /// Computes the tile.
    ///
    /// # Safety
    ///
    /// The columns of all lines that are inside the input by `B` must be readable, and the outputs
    /// writable; `R` is 1 or the kernel has 3 rows.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        const { assert!(KW == 0 || (Q - 1) * SW + KW <= COLUMNS) };
        let Compute { tile: t, to, channels, .. } = self;
        // A slice in registers: after each fence the compiler would reload the address of the
        // lines.
        let lines = t.lines.as_slice();
        let mut c = channels.start;
        // SAFETY: the caller has the columns inside the input readable, and the outputs writable.
        unsafe {
            while c < channels.end {
                let n = if B::PARTIAL { S::LANES.min(channels.end - c) } else { S::LANES };
                let lanes = Lanes { c, mask: S::first(n) };
                if KW == 0 {
                    write::<S, B, Q>(t, &to, 0, lanes, sum_any::<S, B, Q>(t, lines, lanes));
                } else if R == 1 {
                    write::<S, B, Q>(
                        t,
                        &to,
                        0,
                        lanes,
                        sum_single::<S, B, Q, KW, SW>(t, lines, lanes),
                    );
                } else {
                    let [first, second] = sum_pair::<S, B, Q, KW, SW>(t, lines, lanes);
                    write::<S, B, Q>(t, &to, 0, lanes, first);
                    write::<S, B, Q>(t, &to, 1, lanes, second);
                }
                c += S::LANES;
            }
        }
    }
}

/// Finishes the sums of output row `r` and writes them.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn write<S: Simd, B: Border, const Q: usize>(
    t: &Tile<'_>,
    to: &Outputs,
    r: usize,
    lanes: Lanes<S>,
    sums: Sums<S, Q>,
) {
    // SAFETY: the caller has the outputs writable; masks leave out channels beyond the last.
    unsafe {
        let sums = t.epilogue.finish::<S, Q>(sums, lanes.c, lanes.mask);
        let y = to.first.add(r * to.line + lanes.c);
        for (q, sum) in sums.iter().enumerate() {
            let y = y.add(q * to.pitch);
            if B::PARTIAL {
                S::store_m(y, lanes.mask, *sum);
            } else {
                S::store(y, *sum);
            }
        }
    }
}

/// Computes one output row.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn sum_single<S: Simd, B: Border, const Q: usize, const KW: usize, const SW: usize>(
    t: &Tile<'_>,
    lines: &[Line],
    lanes: Lanes<S>,
) -> Sums<S, Q> {
    // SAFETY: the caller has the columns inside the input readable.
    unsafe {
        let mut sums = [[S::splat(0.0); Q]];
        for (i, line) in lines.iter().enumerate() {
            let w = load_weights::<S, KW>(t, i, lanes.c);
            add_line::<S, B, 1, Q, KW, SW>(&t.inputs(line), lanes, &[w], &mut sums);
        }
        sums[0]
    }
}

/// Computes two output rows of a kernel of three rows with stride 1, which share two input rows.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn sum_pair<S: Simd, B: Border, const Q: usize, const KW: usize, const SW: usize>(
    t: &Tile<'_>,
    lines: &[Line],
    lanes: Lanes<S>,
) -> [Sums<S, Q>; 2] {
    // SAFETY: the caller has the columns inside the input readable; a kernel of three rows and two
    // output rows have four lines.
    unsafe {
        let inputs = |i: usize| t.inputs(lines.get_unchecked(i));
        let zeros = [S::splat(0.0); Q];
        let mut first = [zeros];
        let u = load_weights::<S, KW>(t, 0, lanes.c);
        add_line::<S, B, 1, Q, KW, SW>(&inputs(0), lanes, &[u], &mut first);
        let mut both = [first[0], zeros];
        let v = load_weights::<S, KW>(t, 1, lanes.c);
        add_line::<S, B, 2, Q, KW, SW>(&inputs(1), lanes, &[v, u], &mut both);
        let w = load_weights::<S, KW>(t, 2, lanes.c);
        add_line::<S, B, 2, Q, KW, SW>(&inputs(2), lanes, &[w, v], &mut both);
        let mut second = [both[1]];
        add_line::<S, B, 1, Q, KW, SW>(&inputs(3), lanes, &[w], &mut second);
        [both[0], second[0]]
    }
}

/// Computes one output row of any kernel.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn sum_any<S: Simd, B: Border, const Q: usize>(
    t: &Tile<'_>,
    lines: &[Line],
    lanes: Lanes<S>,
) -> Sums<S, Q> {
    let g = t.geometry;
    // SAFETY: the caller runs on a machine with `S`.
    let mut sums = [unsafe { S::splat(0.0) }; Q];
    let mut weights = t.weights.wrapping_add(lanes.c);
    for line in lines {
        let inputs = t.inputs(line);
        for kw in 0..g.kernel[2] {
            // SAFETY: the caller has the columns inside the input readable.
            unsafe {
                let w = S::load(weights);
                weights = weights.wrapping_add(t.weights_step);
                for (q, sum) in sums.iter_mut().enumerate() {
                    let j = q * g.strides[2] + kw * g.dilations[2];
                    let x = load_input::<S, B>(&inputs, j, B::ALL, lanes);
                    *sum = S::fma(w, x, *sum);
                }
            }
        }
    }
    sums
}

/// Loads the weights of kernel row `i`, counted over all planes of the kernel.
///
/// # Safety
///
/// The machine must have `S`, and the kernel must have as many rows of `KW` taps.
#[inline(always)]
unsafe fn load_weights<S: Simd, const KW: usize>(t: &Tile<'_>, i: usize, c: usize) -> [S::V; KW] {
    let row = t.weights.wrapping_add(i * KW * t.weights_step + c);
    // SAFETY: the caller has these rows of taps; weights fill whole vectors.
    unsafe {
        let mut weights = [S::splat(0.0); KW];
        for (kw, weights) in weights.iter_mut().enumerate() {
            *weights = S::load(row.wrapping_add(kw * t.weights_step));
        }
        weights
    }
}

/// Loads the inputs in column `j` of a line, or zeros if the column is checked and in padding.
///
/// # Safety
///
/// The machine must have `S`, and the column must be readable if it is not checked.
#[inline(always)]
unsafe fn load_input<S: Simd, B: Border>(
    inputs: &Inputs,
    j: usize,
    is_checked: bool,
    lanes: Lanes<S>,
) -> S::V {
    let inside = inputs.line.first.wrapping_add(j * inputs.line.pitch + lanes.c);
    let is_padding = is_checked && !inputs.inside.contains(&(j as isize));
    let p = if is_padding { ZEROS.0.as_ptr() } else { inside };
    // SAFETY: the caller has the column readable if it is not checked; zeros fill whole vectors.
    unsafe { if B::PARTIAL { S::load_m(p, lanes.mask) } else { S::load(p) } }
}

/// Runs a block for each input column of a tile, with its index as a constant. In a loop the
/// compiler would test at each column which taps are over it, which takes six times as long.
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

/// Geometry: most input columns of a tile: those of eight outputs of a kernel of width 7 and stride
/// 2.
const COLUMNS: usize = 21;

/// Adds the products of an input line to the sums of `N` output rows, each of which has its own
/// weights for this line.
///
/// # Safety
///
/// The demands of [`Compute`] must hold.
#[inline(always)]
unsafe fn add_line<
    S: Simd,
    B: Border,
    const N: usize,
    const Q: usize,
    const KW: usize,
    const SW: usize,
>(
    inputs: &Inputs,
    lanes: Lanes<S>,
    weights: &[[S::V; KW]; N],
    sums: &mut [Sums<S, Q>; N],
) {
    columns!(J {
        if J < (Q - 1) * SW + KW {
            let is_checked = B::ALL || B::SIDES && const { is_at_side::<Q, KW, SW>(J) };
            // SAFETY: the caller has the column readable or checked.
            unsafe {
                let x = load_input::<S, B>(inputs, J, is_checked, lanes);
                for (w, sums) in weights.iter().zip(&mut *sums) {
                    let under = const { outputs_under::<Q, KW, SW>(J) };
                    for (q, sum) in under.clone().zip(&mut sums[under]) {
                        *sum = S::fma(w[J - q * SW], x, *sum);
                    }
                }
            }
            // Without the fence, all inputs of a line would be loaded first and spilled to the
            // stack.
            compiler_fence(Ordering::SeqCst);
        }
    });
}

/// Whether column `j` of the inputs of `Q` outputs is one of the `KW / 2` first or last.
const fn is_at_side<const Q: usize, const KW: usize, const SW: usize>(j: usize) -> bool {
    j < KW / 2 || j + KW / 2 >= (Q - 1) * SW + KW
}

/// Returns the outputs, of `Q`, that have a tap over column `j` of the inputs.
const fn outputs_under<const Q: usize, const KW: usize, const SW: usize>(j: usize) -> Range<usize> {
    let start = (j + SW).saturating_sub(KW) / SW;
    let end = j / SW + 1;
    start..if end < Q { end } else { Q }
}
