//! Virtual im2col: the matrix of patches, written panel by panel while packing.
//!
//! Row (channel, tap), column (output position). For one panel and one tap, a vector of positions
//! comes from a few runs of input: one per output row that the vector crosses, cut where the tap
//! falls into padding. A run is a masked load whose address is shifted so that its first element
//! lands on its lane; masked-out lanes stay zero and are never read. Runs depend on the tap but not
//! on the channel, so they are found once and used for all channels.

use crate::gemm::pack::panel_width;
use std::ops::Range;

use super::Geometry;
use crate::Isa;
use crate::gemm::PackSource;
use crate::simd::{Body, Simd, check_isa, dispatch};

/// The patches of one image and group.
pub(super) struct Patches<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    pub(super) in_plane: usize,
    pub(super) out_plane: usize,
    /// `depth / taps` planes.
    pub(super) input: &'a [f32],
    pub(super) depth: usize,
}

impl PackSource for Patches<'_> {
    fn depth(&self) -> usize {
        self.depth
    }

    fn width(&self) -> usize {
        self.out_plane
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        check_isa(isa);
        assert!(depth.start <= depth.end && depth.end <= self.depth && start <= self.out_plane);
        assert_eq!(out.len(), depth.len() * panel_width(isa));
        let body = PackPatches { patches: self, depth, start, out };
        // SAFETY: the machine has `isa`.
        unsafe { dispatch(isa, body) }
    }
}

/// Consecutive positions of a panel that lie in one output row.
#[derive(Clone, Copy, Default)]
struct Piece {
    lane: usize,
    len: usize,
    /// Input coordinates of the first position under tap 0; negative in padding.
    at: [isize; 3],
}

/// A masked load: `lanes` of a vector come from `offset + lane * stride` of the plane.
#[derive(Clone, Copy, Default)]
struct Run {
    lanes: u32,
    offset: isize,
}

/// Most lanes of a panel, hence most pieces.
const MAX_WIDTH: usize = 32;

struct PackPatches<'a> {
    patches: &'a Patches<'a>,
    depth: Range<usize>,
    start: usize,
    out: &'a mut [f32],
}

impl Body for PackPatches<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let p = self.patches;
        let g = p.geometry;
        let mut pieces = [Piece::default(); MAX_WIDTH];
        let pieces = p.pieces(self.start, 2 * S::LANES, &mut pieces);
        let taps = g.taps();
        let mut tap = 0;
        for kd in 0..g.kernel[0] {
            for kh in 0..g.kernel[1] {
                for kw in 0..g.kernel[2] {
                    let first = self.depth.start.saturating_sub(tap).div_ceil(taps);
                    let row = first * taps + tap;
                    if row < self.depth.end {
                        let mut runs = [[Run::default(); MAX_WIDTH / 2]; 2];
                        let counts = p.runs(pieces, [kd, kh, kw], S::LANES, &mut runs);
                        let rows = (self.depth.end - row).div_ceil(taps);
                        for (half, runs) in runs.iter().enumerate() {
                            let at = (row - self.depth.start) * 2 + half;
                            let fill = Fill {
                                runs: &runs[..counts[half]],
                                plane: p.input[first * p.in_plane..].as_ptr(),
                                in_plane: p.in_plane,
                                out: self.out[at * S::LANES..].as_mut_ptr(),
                                out_step: taps * 2 * S::LANES,
                                rows,
                            };
                            // SAFETY: runs select elements inside a plane (checked in `runs`);
                            // there are planes for all rows below `depth.end`; the rows are inside
                            // `out`, whose length was checked.
                            unsafe {
                                match g.strides[2] {
                                    1 => fill.run::<S>(1),
                                    2 => fill.run::<S>(2),
                                    stride => fill.run::<S>(stride),
                                }
                            }
                        }
                    }
                    tap += 1;
                }
            }
        }
    }
}

/// One tap of one vector of positions, for `rows` channels.
struct Fill<'a> {
    runs: &'a [Run],
    plane: *const f32,
    in_plane: usize,
    out: *mut f32,
    out_step: usize,
    rows: usize,
}

impl Fill<'_> {
    /// `stride` is that of the runs; a constant here removes the choice from the loops.
    #[inline(always)]
    unsafe fn run<S: Simd>(self, stride: usize) {
        let (mut plane, mut out) = (self.plane, self.out);
        /// For each channel, loads the runs listed one over the other.
        macro_rules! each_channel {
            ($($run:expr),*) => {
                for _ in 0..self.rows {
                    let v = S::splat(0.0);
                    $(let v = S::select(v, $run.lanes, plane.wrapping_offset($run.offset), stride);)*
                    S::store(out, v);
                    plane = plane.wrapping_add(self.in_plane);
                    out = out.wrapping_add(self.out_step);
                }
            };
        }
        // SAFETY: the maker's promise. The common counts have their masks and offsets in registers.
        unsafe {
            match *self.runs {
                [] => {
                    for _ in 0..self.rows {
                        S::store(out, S::splat(0.0));
                        out = out.wrapping_add(self.out_step);
                    }
                }
                [a] => each_channel!(a),
                [a, b] => each_channel!(a, b),
                [a, b, c] => each_channel!(a, b, c),
                ref runs => {
                    for _ in 0..self.rows {
                        let mut v = S::splat(0.0);
                        for run in runs {
                            v = S::select(v, run.lanes, plane.wrapping_offset(run.offset), stride);
                        }
                        S::store(out, v);
                        plane = plane.wrapping_add(self.in_plane);
                        out = out.wrapping_add(self.out_step);
                    }
                }
            }
        }
    }
}

impl Patches<'_> {
    /// Cuts the `width` positions from `start` on into pieces.
    #[inline(always)]
    fn pieces<'p>(
        &self,
        start: usize,
        width: usize,
        pieces: &'p mut [Piece; MAX_WIDTH],
    ) -> &'p [Piece] {
        let g = self.geometry;
        let [_, out_h, out_w] = self.out_dims;
        let mut count = 0;
        let mut lane = 0;
        let total = width.min(self.out_plane - start);
        let (mut row, mut col) = (start / out_w, start % out_w);
        while lane < total {
            let len = (out_w - col).min(total - lane);
            let at = |i: usize, x: usize| (x * g.strides[i]) as isize - g.pads_begin[i] as isize;
            pieces[count] =
                Piece { lane, len, at: [at(0, row / out_h), at(1, row % out_h), at(2, col)] };
            count += 1;
            lane += len;
            row += 1;
            col = 0;
        }
        &pieces[..count]
    }

    /// The runs of `tap` for each half of a panel, and how many there are.
    #[inline(always)]
    fn runs(
        &self,
        pieces: &[Piece],
        tap: [usize; 3],
        lanes: usize,
        runs: &mut [[Run; MAX_WIDTH / 2]; 2],
    ) -> [usize; 2] {
        let g = self.geometry;
        let [in_d, in_h, in_w] = self.in_dims.map(|d| d as isize);
        let step: [isize; 3] = std::array::from_fn(|i| (tap[i] * g.dilations[i]) as isize);
        let stride = g.strides[2] as isize;
        let mut counts = [0; 2];
        for piece in pieces {
            let d = piece.at[0] + step[0];
            let h = piece.at[1] + step[1];
            let w = piece.at[2] + step[2];
            if d < 0 || d >= in_d || h < 0 || h >= in_h {
                continue;
            }
            let (lo, hi) = inside(w, stride, piece.len as isize, in_w);
            if lo >= hi {
                continue;
            }
            let (lo, hi) = (piece.lane + lo as usize, piece.lane + hi as usize);
            // Lane 0 of the panel would be here if the run went back that far.
            let origin = (d * in_h + h) * in_w + w - piece.lane as isize * stride;
            for half in 0..2 {
                let base = half * lanes;
                let (lo, hi) = (lo.max(base), hi.min(base + lanes));
                if lo < hi {
                    let bits = |n: usize| (1u32 << n) - 1;
                    runs[half][counts[half]] = Run {
                        lanes: bits(hi - base) & !bits(lo - base),
                        offset: origin + base as isize * stride,
                    };
                    counts[half] += 1;
                }
            }
        }
        counts
    }
}

/// Which of `len` positions, `stride` apart and starting at `first`, lie in `0..size`.
#[inline(always)]
pub(super) fn inside(first: isize, stride: isize, len: isize, size: isize) -> (isize, isize) {
    // Divisions only where an end sticks out.
    let lo = if first >= 0 { 0 } else { (-first + stride - 1) / stride };
    let hi = if first + (len - 1) * stride < size {
        len
    } else if first >= size {
        0
    } else {
        (size - 1 - first) / stride + 1
    };
    (lo, hi.min(len))
}
