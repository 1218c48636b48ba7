//! Depthwise convolution: one input plane, one output plane, one small kernel; vectors run along
//! the output row.

use super::Geometry;
use super::patches::inside;
use crate::Isa;
use crate::gemm::TileEpilogue;
use crate::simd::{Body, Simd, dispatch};

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

    /// The taps along dimension `i` that fall inside the input for output coordinate `x`, and the
    /// input coordinate of tap 0.
    #[inline(always)]
    fn taps(&self, i: usize, x: usize) -> (usize, usize, isize) {
        let g = self.geometry;
        let first = (x * g.strides[i]) as isize - g.pads_begin[i] as isize;
        let (kernel, size) = (g.kernel[i] as isize, self.in_dims[i] as isize);
        let (lo, hi) = inside(first, g.dilations[i] as isize, kernel, size);
        (lo as usize, hi.max(lo) as usize, first)
    }
}

impl Body for Plane<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let g = self.geometry;
        let [out_d, out_h, out_w] = self.out_dims;
        let [_, in_h, in_w] = self.in_dims;
        let [_, kernel_h, kernel_w] = g.kernel;
        let (stride, dilation) = (g.strides[2], g.dilations[2] as isize);
        let mut row = 0;
        for od in 0..out_d {
            let (d_lo, d_hi, d0) = self.taps(0, od);
            for oh in 0..out_h {
                let (h_lo, h_hi, h0) = self.taps(1, oh);
                let mut col = 0;
                while col < out_w {
                    let n = S::LANES.min(out_w - col);
                    let all = ((1u64 << n) - 1) as u32;
                    let w0 = (col * stride) as isize - g.pads_begin[2] as isize;
                    // Whether every tap of every lane is inside the input.
                    let reach = (kernel_w - 1) as isize * dilation + ((n - 1) * stride) as isize;
                    let interior = w0 >= 0 && w0 + reach < in_w as isize;
                    // SAFETY: taps in the ranges are inside the input along depth and height; along
                    // the width either all lanes are, or `inside` says which.
                    unsafe {
                        let mut acc = S::splat(0.0);
                        for kd in d_lo..d_hi {
                            let d = d0 + (kd * g.dilations[0]) as isize;
                            for kh in h_lo..h_hi {
                                let h = h0 + (kh * g.dilations[1]) as isize;
                                let line = (d * in_h as isize + h) * in_w as isize + w0;
                                let line = self.input.as_ptr().wrapping_offset(line);
                                let weights = &self.weights[(kd * kernel_h + kh) * kernel_w..];
                                for (kw, &weight) in weights[..kernel_w].iter().enumerate() {
                                    let shift = kw as isize * dilation;
                                    let lanes = if interior {
                                        all
                                    } else {
                                        let (lo, hi) = inside(
                                            w0 + shift,
                                            stride as isize,
                                            n as isize,
                                            in_w as isize,
                                        );
                                        let bits = |n: isize| (1u32 << n) - 1;
                                        if lo < hi { bits(hi) & !bits(lo) } else { 0 }
                                    };
                                    let x = S::select(
                                        S::splat(0.0),
                                        lanes,
                                        line.wrapping_offset(shift),
                                        stride,
                                    );
                                    acc = S::fma(S::splat(weight), x, acc);
                                }
                            }
                        }
                        let at = row * out_w + col;
                        let acc = self.epilogue.finish_linear::<S>(acc, at, n);
                        S::store_m(self.output.add(at), S::first(n), acc);
                    }
                    col += n;
                }
                row += 1;
            }
        }
    }
}
