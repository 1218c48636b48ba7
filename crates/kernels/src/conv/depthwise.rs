//! Depthwise convolution: one input plane, one output plane, one small kernel. Vectors run along
//! the output row; the same columns of several rows are computed together, so that their sums do
//! not wait for each other and share each weight.

use super::Geometry;
use super::patches::inside;
use crate::Isa;
use crate::gemm::TileEpilogue;
use crate::simd::{Body, Simd, dispatch};

/// Output rows computed together.
const ROWS: usize = 4;

/// Taps along the width for which the lanes inside the input are kept.
const TAPS: usize = 16;

/// One plane's work.
pub(super) struct Plane<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    /// One plane of `in_dims`.
    pub(super) input: &'a [f32],
    /// One weight per tap.
    pub(super) weights: &'a [f32],
    /// One plane of `out_dims`.
    pub(super) output: *mut f32,
    /// Without a function.
    pub(super) epilogue: TileEpilogue,
}

impl Plane<'_> {
    /// # Safety
    ///
    /// The machine must have `isa`; the slices and the output must have the sizes that the
    /// dimensions say.
    pub(super) unsafe fn run(self, isa: Isa) {
        // SAFETY: the caller's promise.
        unsafe { dispatch(isa, self) }
    }
}

impl Body for Plane<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.geometry.strides[2] {
                1 => self.rows_by_stride::<S, 1>(),
                2 => self.rows_by_stride::<S, 2>(),
                _ => self.rows_by_stride::<S, 0>(),
            }
        }
    }
}

/// Some columns of some rows of the output.
struct Block {
    /// The first row, along depth and height.
    depth: usize,
    row: usize,
    /// At most [`ROWS`].
    rows: usize,
    /// The first column.
    col: usize,
    /// At most the lanes of a vector.
    cols: usize,
}

impl Plane<'_> {
    /// `STRIDE`: that of the width, or 0 if it is known only at run time.
    ///
    /// # Safety
    ///
    /// As [`Plane::run`].
    #[inline(always)]
    unsafe fn rows_by_stride<S: Simd, const STRIDE: usize>(&self) {
        let [out_d, out_h, out_w] = self.out_dims;
        for depth in 0..out_d {
            for row in (0..out_h).step_by(ROWS) {
                let rows = ROWS.min(out_h - row);
                let rows_inside = rows == ROWS && self.is_inside(1, row, rows);
                for col in (0..out_w).step_by(S::LANES) {
                    let cols = S::LANES.min(out_w - col);
                    let cols_inside = cols == S::LANES && self.is_inside(2, col, cols);
                    let block = Block { depth, row, rows, col, cols };
                    // SAFETY: the caller's promise; what is inside has been found.
                    unsafe {
                        match (rows_inside, cols_inside, STRIDE, rows) {
                            (true, true, 1, _) => {
                                self.block::<S, ROWS, STRIDE, true, true>(&block);
                            }
                            (true, _, 1 | 2, _) => {
                                self.block::<S, ROWS, STRIDE, true, false>(&block);
                            }
                            (_, _, _, 1) => self.block::<S, 1, STRIDE, false, false>(&block),
                            _ => self.block::<S, ROWS, STRIDE, false, false>(&block),
                        }
                    }
                }
            }
        }
    }

    /// Whether all taps of the output coordinates `at..at + len` along dimension `i` are inside the
    /// input.
    #[inline(always)]
    fn is_inside(&self, i: usize, at: usize, len: usize) -> bool {
        let g = self.geometry;
        let first = (at * g.strides[i]) as isize - g.pads_begin[i] as isize;
        let reach = (g.kernel[i] - 1) * g.dilations[i] + (len - 1) * g.strides[i];
        first >= 0 && first + (reach as isize) < self.in_dims[i] as isize
    }

    /// Computes `block`, whose rows are at most `R`.
    ///
    /// # Safety
    ///
    /// As [`Plane::run`]; if `ROWS_INSIDE`, the block has `R` rows and their taps are inside the
    /// input along the height; if `COLS_INSIDE`, a vector of columns, `STRIDE` 1 and the same along
    /// the width.
    #[inline(always)]
    unsafe fn block<
        S: Simd,
        const R: usize,
        const STRIDE: usize,
        const ROWS_INSIDE: bool,
        const COLS_INSIDE: bool,
    >(
        &self,
        block: &Block,
    ) {
        let g = self.geometry;
        let [in_d, in_h, in_w] = self.in_dims.map(|size| size as isize);
        let [kernel_d, kernel_h, kernel_w] = g.kernel;
        let [dilation_d, dilation_h, dilation_w] = g.dilations.map(|by| by as isize);
        let stride = if STRIDE == 0 { g.strides[2] } else { STRIDE };
        let first = |i: usize, at: usize| (at * g.strides[i]) as isize - g.pads_begin[i] as isize;
        let (d0, h0, w0) = (first(0, block.depth), first(1, block.row), first(2, block.col));
        // SAFETY: taps outside the input along depth are left out; along height and width the
        // caller promises that they are inside, or their lanes are not read. Weights have one value
        // per tap and outputs one per row and column.
        unsafe {
            let mut sums = [S::splat(0.0); R];
            for from in (0..kernel_w).step_by(TAPS) {
                let taps = TAPS.min(kernel_w - from);
                let mut inside_width = [u32::MAX; TAPS];
                if !COLS_INSIDE {
                    for (i, lanes) in inside_width[..taps].iter_mut().enumerate() {
                        let at = w0 + (from + i) as isize * dilation_w;
                        let (lo, hi) = inside(at, stride as isize, block.cols as isize, in_w);
                        let bits = |n: isize| (1u32 << n) - 1;
                        *lanes = if lo < hi { bits(hi) & !bits(lo) } else { 0 };
                    }
                }
                for kd in 0..kernel_d {
                    let d = d0 + kd as isize * dilation_d;
                    if d < 0 || d >= in_d {
                        continue;
                    }
                    for kh in 0..kernel_h {
                        let h = h0 + kh as isize * dilation_h;
                        let inside_height: [u32; R] = std::array::from_fn(|r| {
                            let h = h + (r * g.strides[1]) as isize;
                            if r < block.rows && h >= 0 && h < in_h { u32::MAX } else { 0 }
                        });
                        if !ROWS_INSIDE && inside_height == [0; R] {
                            continue;
                        }
                        let at = (d * in_h + h) * in_w + w0 + from as isize * dilation_w;
                        let line = self.input.as_ptr().wrapping_offset(at);
                        let weights =
                            self.weights.as_ptr().add((kd * kernel_h + kh) * kernel_w + from);
                        for (kw, &lanes) in inside_width[..taps].iter().enumerate() {
                            let weight = S::splat(*weights.add(kw));
                            let tap = line.wrapping_offset(kw as isize * dilation_w);
                            for (r, sum) in sums.iter_mut().enumerate() {
                                let x = tap.wrapping_add(r * g.strides[1] * self.in_dims[2]);
                                let x = if COLS_INSIDE && ROWS_INSIDE {
                                    S::load(x)
                                } else {
                                    let rows =
                                        if ROWS_INSIDE { u32::MAX } else { inside_height[r] };
                                    let lanes = lanes & rows;
                                    S::select(S::splat(0.0), lanes, x, stride)
                                };
                                *sum = S::fma(weight, x, *sum);
                            }
                        }
                    }
                }
            }
            let [_, out_h, out_w] = self.out_dims;
            for (r, &sum) in sums.iter().enumerate().take(block.rows) {
                let at = (block.depth * out_h + block.row + r) * out_w + block.col;
                let sum = self.epilogue.finish_linear::<S>(sum, at, block.cols);
                S::store_m(self.output.add(at), S::first(block.cols), sum);
            }
        }
    }
}
