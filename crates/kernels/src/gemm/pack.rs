//! Packed operands: the one memory form the microkernel reads.
//!
//! A *panel* holds `W` neighbouring columns of B (or rows of A) for all of k: `k` steps of `W` floats, the last panel
//! padded with zeros. `W` is two vectors ([`panel_width`]). A and B have the same form, and the microkernel may use
//! either side of a panel: whole vectors of it (wide) or some of its lanes, broadcast (narrow). So a constant is packed
//! once for products of any shape, and which operand is vectorised is decided per call.

use std::ops::Range;

use super::buffer::AlignedBuf;
use super::matrix::{MatRef, strided_len};
use super::simd::{Body, Simd, check_isa, dispatch, panel_width};
use crate::Isa;
use crate::pool::Pool;

/// A matrix of `depth` steps (k) by `width` columns that can write itself into panels.
///
/// Besides matrices in memory this is for *virtual* ones, whose elements are found while packing: the patches of a
/// convolution, quantised blocks, gathered rows.
pub trait PackSource: Sync {
    fn depth(&self) -> usize;
    fn width(&self) -> usize;
    /// Writes steps `depth` of the columns from `start` on to `out`: `depth.len()` rows of `W` columns, where `W` is
    /// `out.len() / depth.len()`; columns beyond the width become zero. `start` is a multiple of `W`.
    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]);
    /// Packs `panels` panels of the columns from column `start` on, the first rows of two panels `stride` floats
    /// apart in `out`. For sources that do better than panel by panel.
    fn pack_panels(
        &self,
        isa: Isa,
        depth: Range<usize>,
        start: usize,
        panels: usize,
        stride: usize,
        out: &mut [f32],
    ) {
        let w = panel_width(isa);
        for i in 0..panels {
            let out = &mut out[i * stride..][..depth.len() * w];
            self.pack(isa, depth.clone(), start + i * w, out);
        }
    }
}

/// A left operand packed once. The form does not depend on the right operand.
#[derive(Debug)]
pub struct PackedA {
    pub(crate) panels: Packed,
}

impl PackedA {
    /// Packs `a` (m x k).
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn new(isa: Isa, a: MatRef<'_>) -> PackedA {
        PackedA {
            panels: Packed::new(isa, &a.transposed()),
        }
    }

    /// Packs an m x k matrix of little-endian floats at any alignment; strides count floats.
    ///
    /// # Panics
    ///
    /// If an element is outside `bytes`, or this machine does not have `isa`.
    pub fn from_le_bytes(
        isa: Isa,
        bytes: &[u8],
        m: usize,
        k: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> PackedA {
        PackedA {
            panels: Packed::from_le_bytes(isa, bytes, k, m, col_stride, row_stride),
        }
    }

    pub fn rows(&self) -> usize {
        self.panels.width
    }

    pub fn depth(&self) -> usize {
        self.panels.depth
    }

    pub fn isa(&self) -> Isa {
        self.panels.isa
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.panels.data.len() * size_of::<f32>()
    }
}

/// A right operand packed once. The form does not depend on the left operand.
#[derive(Debug)]
pub struct PackedB {
    pub(crate) panels: Packed,
}

impl PackedB {
    /// Packs `b` (k x n).
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn new(isa: Isa, b: MatRef<'_>) -> PackedB {
        PackedB {
            panels: Packed::new(isa, &b),
        }
    }

    /// Packs a k x n matrix of little-endian floats at any alignment; strides count floats.
    ///
    /// # Panics
    ///
    /// If an element is outside `bytes`, or this machine does not have `isa`.
    pub fn from_le_bytes(
        isa: Isa,
        bytes: &[u8],
        k: usize,
        n: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> PackedB {
        PackedB {
            panels: Packed::from_le_bytes(isa, bytes, k, n, row_stride, col_stride),
        }
    }

    pub fn depth(&self) -> usize {
        self.panels.depth
    }

    pub fn cols(&self) -> usize {
        self.panels.width
    }

    pub fn isa(&self) -> Isa {
        self.panels.isa
    }

    /// Memory held.
    pub fn bytes(&self) -> usize {
        self.panels.data.len() * size_of::<f32>()
    }

    /// Whether products with this operand round both operands to bfloat16.
    pub fn is_bf16(&self) -> bool {
        self.panels.pairs
    }

    /// The same matrix rounded to bfloat16, for products that round the left operand too and sum in f32. Unchanged where
    /// the machine has no instruction for them.
    pub fn into_bf16(self) -> PackedB {
        match super::bf16::is_available(self.isa()) && !self.panels.pairs {
            true => PackedB {
                panels: self.panels.into_pairs(),
            },
            false => self,
        }
    }
}

/// All panels of a matrix.
#[derive(Debug)]
pub(crate) struct Packed {
    pub(crate) isa: Isa,
    pub(crate) depth: usize,
    pub(crate) width: usize,
    pub(crate) data: AlignedBuf,
    /// Whether a step of the panels is two steps of k in bfloat16.
    pub(crate) pairs: bool,
}

impl Packed {
    pub(crate) fn new(isa: Isa, source: &dyn PackSource) -> Packed {
        check_isa(isa);
        let (depth, width) = (source.depth(), source.width());
        let w = panel_width(isa);
        let panels = width.div_ceil(w);
        let len = panels
            .checked_mul(w)
            .and_then(|n| n.checked_mul(depth))
            .expect("packed size overflows");
        let mut data = AlignedBuf::zeroed(len);
        pack_all(Pool::global(), isa, source, &mut data);
        Packed {
            isa,
            depth,
            width,
            data,
            pairs: false,
        }
    }

    fn from_le_bytes(
        isa: Isa,
        bytes: &[u8],
        depth: usize,
        width: usize,
        depth_stride: usize,
        width_stride: usize,
    ) -> Packed {
        let end = strided_len(depth, width, depth_stride, width_stride);
        assert!(
            end.is_some_and(|end| end <= bytes.len() / 4),
            "{depth} x {width} floats with strides {depth_stride}, {width_stride} in {} bytes",
            bytes.len()
        );
        if cfg!(target_endian = "big") {
            let floats: Vec<f32> = bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect();
            let matrix = MatRef::new(&floats, depth, width, depth_stride, width_stride);
            return Packed::new(isa, &matrix);
        }
        // SAFETY: all elements are inside `bytes`, and packing reads unaligned.
        let matrix = unsafe {
            MatRef::from_raw(
                bytes.as_ptr().cast(),
                depth,
                width,
                depth_stride,
                width_stride,
            )
        };
        Packed::new(isa, &matrix)
    }

    pub(crate) fn view(&self) -> Panels {
        let steps = if self.pairs {
            self.depth.div_ceil(2)
        } else {
            self.depth
        };
        Panels::packed(self.isa, &self.data, steps)
    }
}

/// Where panels are: panel `i` starts at `ptr + i * stride` with the first step in question, steps are `ks` apart and
/// columns `ws`. In packed panels `ks` is the panel width and `ws` is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    pub(crate) ptr: *const f32,
    pub(crate) stride: usize,
    pub(crate) ks: usize,
    pub(crate) ws: usize,
}

// SAFETY: read-only view of memory borrowed for the whole call that made it.
unsafe impl Send for Panels {}
// SAFETY: as above.
unsafe impl Sync for Panels {}

impl Panels {
    /// Packed panels of `depth` steps.
    pub(crate) fn packed(isa: Isa, data: &[f32], depth: usize) -> Panels {
        let w = panel_width(isa);
        Panels {
            ptr: data.as_ptr(),
            stride: depth * w,
            ks: w,
            ws: 1,
        }
    }

    /// A matrix of steps by columns where it lies, fit for the narrow side only.
    pub(crate) fn unpacked(isa: Isa, matrix: &MatRef<'_>) -> Panels {
        Panels {
            ptr: matrix.as_ptr(),
            stride: panel_width(isa) * matrix.col_stride(),
            ks: matrix.row_stride(),
            ws: matrix.col_stride(),
        }
    }

    /// Step `k` of panel `index`.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize, k: usize) -> *const f32 {
        self.ptr.wrapping_add(index * self.stride + k * self.ks)
    }
}

/// Steps packed by one chunk of [`pack_all`].
const PACK_STEPS: usize = 512;

/// Packs all of `source` into `out`, sharing the work between the threads of `pool`.
pub(crate) fn pack_all(pool: &Pool, isa: Isa, source: &dyn PackSource, out: &mut [f32]) {
    let w = panel_width(isa);
    let (depth, panels) = (source.depth(), source.width().div_ceil(w));
    assert!(out.len() >= depth * panels * w);
    let blocks = depth.div_ceil(PACK_STEPS);
    let base = SendPtr(out.as_mut_ptr());
    let one = |chunk: usize| {
        let (panel, block) = (chunk / blocks, chunk % blocks);
        let steps = block * PACK_STEPS..depth.min((block + 1) * PACK_STEPS);
        // SAFETY: chunks write disjoint ranges of `out`, whose length was checked.
        let out = unsafe {
            let start = base.get().add((panel * depth + steps.start) * w);
            std::slice::from_raw_parts_mut(start, steps.len() * w)
        };
        source.pack(isa, steps, panel * w, out);
    };
    // A region costs about as much as packing a few thousand floats.
    if depth * panels * w < 16_384 {
        (0..panels * blocks).for_each(one);
    } else {
        pool.run(panels * blocks, one);
    }
}

/// A pointer that may cross threads; who dereferences it says why that is sound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendPtr(pub(crate) *mut f32);

// SAFETY: only an address.
unsafe impl Send for SendPtr {}
// SAFETY: only an address.
unsafe impl Sync for SendPtr {}

impl SendPtr {
    #[inline(always)]
    pub(crate) fn get(self) -> *mut f32 {
        self.0
    }
}

impl PackSource for MatRef<'_> {
    fn depth(&self) -> usize {
        self.rows()
    }

    fn width(&self) -> usize {
        self.cols()
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        check_isa(isa);
        let w = panel_width(isa);
        assert!(depth.start <= depth.end && depth.end <= self.rows() && start <= self.cols());
        assert_eq!(out.len(), depth.len() * w);
        let body = PackMatrix {
            src: self
                .as_ptr()
                .wrapping_add(depth.start * self.row_stride() + start * self.col_stride()),
            depth: depth.len(),
            width: w.min(self.cols() - start),
            ks: self.row_stride(),
            ws: self.col_stride(),
            out: out.as_mut_ptr(),
        };
        // SAFETY: the machine has `isa`; source and destination were checked above.
        unsafe { dispatch(isa, body) }
    }

    fn pack_panels(
        &self,
        isa: Isa,
        depth: Range<usize>,
        start: usize,
        panels: usize,
        stride: usize,
        out: &mut [f32],
    ) {
        check_isa(isa);
        let w = panel_width(isa);
        assert!(depth.start <= depth.end && depth.end <= self.rows() && start <= self.cols());
        assert!(panels == 0 || out.len() >= (panels - 1) * stride + depth.len() * w);
        let whole = if self.col_stride() == 1 {
            panels.min((self.cols() - start) / w)
        } else {
            0
        };
        let body = PackRows {
            src: self
                .as_ptr()
                .wrapping_add(depth.start * self.row_stride() + start),
            depth: depth.len(),
            panels: whole,
            ks: self.row_stride(),
            out: out.as_mut_ptr(),
            stride,
        };
        // SAFETY: the machine has `isa`; source and destination were checked above.
        unsafe { dispatch(isa, body) }
        for i in whole..panels {
            let out = &mut out[i * stride..][..depth.len() * w];
            self.pack(isa, depth.clone(), start + i * w, out);
        }
    }
}

/// Whole panels of a matrix with adjacent columns, row by row: each row of the source is read in one piece, which spares
/// the TLB and pleases the prefetcher.
struct PackRows {
    src: *const f32,
    depth: usize,
    panels: usize,
    ks: usize,
    out: *mut f32,
    /// From panel to panel of `out`.
    stride: usize,
}

impl Body for PackRows {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for k in 0..self.depth {
            let mut src = self.src.wrapping_add(k * self.ks);
            let mut out = self.out.wrapping_add(k * 2 * S::LANES);
            for _ in 0..self.panels {
                // SAFETY: `depth` rows of `panels` whole panels are valid in both.
                unsafe {
                    S::store(out, S::load(src));
                    S::store(out.add(S::LANES), S::load(src.add(S::LANES)));
                }
                src = src.wrapping_add(2 * S::LANES);
                out = out.wrapping_add(self.stride);
            }
        }
    }
}

struct PackMatrix {
    src: *const f32,
    depth: usize,
    width: usize,
    ks: usize,
    ws: usize,
    out: *mut f32,
}

impl Body for PackMatrix {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let lanes = S::LANES;
        // SAFETY: `depth` x `width` source elements and `depth * 2 * lanes` outputs are valid.
        unsafe {
            let zero = S::splat(0.0);
            for half in 0..2 {
                let n = self.width.saturating_sub(half * lanes).min(lanes);
                let src = self.src.wrapping_add(half * lanes * self.ws);
                let out = self.out.add(half * lanes);
                let mut k = 0;
                if self.ws == 1 {
                    let mask = S::first(n);
                    while k < self.depth {
                        let v = S::load_m(src.wrapping_add(k * self.ks), mask);
                        S::store(out.add(k * 2 * lanes), v);
                        k += 1;
                    }
                } else {
                    if self.ks == 1 && n == lanes {
                        while k + lanes <= self.depth {
                            let dst = out.add(k * 2 * lanes);
                            S::transpose(src.wrapping_add(k), self.ws, dst, 2 * lanes);
                            k += lanes;
                        }
                    }
                    let select = ((1u64 << n) - 1) as u32;
                    while k < self.depth {
                        let v = S::select(zero, select, src.wrapping_add(k * self.ks), self.ws);
                        S::store(out.add(k * 2 * lanes), v);
                        k += 1;
                    }
                }
            }
        }
    }
}
