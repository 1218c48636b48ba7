//! Packed operands, the memory form that the microkernel reads.
//!
//! A *panel* holds `W` neighbouring columns of B (or rows of A) for all of k: `k` steps of `W`
//! floats, the last panel padded with zeros. `W` is two vectors ([`panel_width`]). A and B have one
//! form, and the microkernel may use either side of a panel: whole vectors of it (wide) or some of
//! its lanes, broadcast (narrow). So a constant is packed once for products of any shape, and each
//! call decides which operand to vectorize. Panels of B may hold elements of 16 bits instead (see
//! [`Storage`]), or bytes (see [`Bytes`](super::integer::Bytes)), which are always the wide side.
//! Implementations of [`Elements`] describe these types.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::form::Elements;
use super::halves::{LeMatrix, ManyRows, Storage};
use super::matrix::MatRef;
use sardonyx_simd::buffer::{Lasts, PackedBuf};
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};
use sardonyx_simd::{Exec, Isa, Operation, Pool, Work};

/// A matrix of `depth` steps (k) by `width` columns that can write itself into panels.
///
/// Besides matrices in memory, these are *virtual* matrices whose elements are found while packing:
/// the patches of a convolution, quantized blocks, gathered rows.
pub trait PackSource: Sync {
    fn depth(&self) -> usize;
    fn width(&self) -> usize;
    /// Writes steps `depth` of the columns from `start` on to `out`: `depth.len()` rows of `W`
    /// columns, where `W` is `out.len() / depth.len()`. Columns beyond the width become zero.
    /// `start` is a multiple of `W`.
    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]);
    /// Notifies the source that packing of a constant reads these columns next and is done with
    /// earlier ones. A second pass begins with the first columns again.
    fn next_columns(&self, _columns: Range<usize>) {}
    /// Packs `panels` panels of the columns from column `start` on. The first rows of adjacent
    /// panels are `stride` floats apart in `out`. Sources override it that can do better than panel
    /// by panel.
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

/// Returns the number of columns in a packed panel: two vectors.
pub(crate) const fn panel_width(isa: Isa) -> usize {
    2 * isa.lanes()
}

/// Returns the number of rows in a panel of a left operand that is read in place: whole tiles. A
/// panel of two vectors of rows would end with a tile of fewer rows, whose sums are too few to hide
/// the latency of multiply-adds.
pub(crate) const fn rows_in_place(isa: Isa) -> usize {
    match isa {
        Isa::Portable => panel_width(isa),
        Isa::Neon => 20,
        Isa::Avx2 | Isa::Avx512 => 24,
    }
}

/// A left operand, packed once. Its form does not depend on the right operand.
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
    pub fn new(isa: Isa, a: MatRef<'_>) -> Result<PackedA, Ended> {
        Ok(PackedA { panels: Packed::new(isa, &a.transpose())? })
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

    /// Returns the bytes of memory held.
    pub fn bytes(&self) -> usize {
        self.panels.data.len() * size_of::<f32>()
    }
}

/// A right operand, packed once. Its form does not depend on the left operand.
#[derive(Debug)]
pub struct PackedB<E: Elements = Storage> {
    pub(crate) panels: Packed<E>,
    pub(super) beside: E::Beside,
}

impl PackedB {
    /// Packs `b` (k x n).
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn new(isa: Isa, b: MatRef<'_>) -> Result<PackedB, Ended> {
        Ok(PackedB { panels: Packed::new(isa, &b)?, beside: ManyRows::Widened })
    }

    /// Packs `b` (k x n) for many runs, or for one run into scratch memory of this thread, so that
    /// the next run allocates nothing.
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub(crate) fn from_matrix(isa: Isa, b: MatRef<'_>, lasts: Lasts) -> Result<PackedB, Ended> {
        let (depth, width) = (b.rows(), b.cols());
        let plan = PackPlan { isa, elements: Storage::F32, depth, width, lasts };
        let panels =
            Packed::pack_chunks(plan, |_| {}, |steps, start, out| b.pack(isa, steps, start, out))?;
        Ok(PackedB { panels, beside: ManyRows::Widened })
    }

    /// Packs `b` (k x n) in its own type, or in 16 bits if that changes no element and saves time.
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn from_le(isa: Isa, b: &LeMatrix<'_>) -> Result<PackedB, Ended> {
        let panels = match b.storage() {
            Storage::F32 => match Packed::pack_losslessly(isa, b)? {
                Some(halves) => halves,
                None => Packed::new(isa, b)?,
            },
            storage => Packed::pack_halves(isa, b, storage)?.0,
        };
        Ok(PackedB { panels, beside: ManyRows::Widened })
    }

    /// Packs `b` (k x n) in 16 bits: floats are rounded to the nearest f16, or to bfloat16 if some
    /// are outside of the range of f16. Products of many rows round both operands to bfloat16 where
    /// the machine multiplies these faster. Sums are floats. Elements that are f16 are not rounded
    /// in any product, and neither are floats where widening takes longer than reading
    /// (`Portable`).
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn rounded_from_le(isa: Isa, b: &LeMatrix<'_>) -> Result<PackedB, Ended> {
        if isa == Isa::Portable || b.storage() == Storage::F16 {
            return PackedB::from_le(isa, b);
        }
        let panels = match b.storage() {
            Storage::F32 => Packed::pack_rounded(isa, b)?,
            storage => Packed::pack_halves(isa, b, storage)?.0,
        };
        Ok(PackedB { panels, beside: ManyRows::fastest(isa) })
    }

    /// Returns the type of the elements in memory.
    pub fn storage(&self) -> Storage {
        self.panels.elements
    }

    /// Returns the treatment of this operand in products of many rows.
    pub fn many_rows(&self) -> ManyRows {
        self.beside
    }
}

impl<E: Elements> PackedB<E> {
    /// Returns the bytes of memory that a packed matrix of `depth` rows and `cols` columns takes;
    /// `None` on overflow.
    pub fn bytes_of(isa: Isa, elements: E, depth: usize, cols: usize) -> Option<usize> {
        let panels = Packed::words(isa, elements, depth, cols)?.checked_mul(size_of::<f32>())?;
        panels.checked_add(elements.bytes_beside(cols))
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

    /// Returns the bytes of memory held.
    pub fn bytes(&self) -> usize {
        let beside = self.panels.elements.bytes_beside(self.cols());
        self.panels.data.len() * size_of::<f32>() + beside
    }
}

/// Matrix of `depth` steps by `width` columns to pack.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackPlan<E> {
    pub(super) isa: Isa,
    pub(super) elements: E,
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) lasts: Lasts,
}

/// All panels of a matrix.
#[derive(Debug)]
pub(crate) struct Packed<E: Elements = Storage> {
    pub(crate) isa: Isa,
    pub(crate) depth: usize,
    pub(crate) width: usize,
    pub(crate) data: PackedBuf,
    pub(crate) elements: E,
}

impl Packed {
    pub(crate) fn new(isa: Isa, source: &dyn PackSource) -> Result<Packed, Ended> {
        Packed::from_source(isa, Storage::F32, source, |steps, start, out| {
            source.pack(isa, steps, start, out);
        })
    }

    /// Packs a source like [`Packed::pack_chunks`], for many runs, and notifies it of the columns
    /// that come next.
    pub(super) fn from_source(
        isa: Isa,
        storage: Storage,
        source: &dyn PackSource,
        fill: impl Fn(Range<usize>, usize, &mut [f32]) + Sync,
    ) -> Result<Packed, Ended> {
        let next_columns = |columns| source.next_columns(columns);
        let (depth, width) = (source.depth(), source.width());
        let plan = PackPlan { isa, elements: storage, depth, width, lasts: Lasts::ForGood };
        Packed::pack_chunks(plan, next_columns, fill)
    }

    /// Returns panels in 16 bits with two steps of k as one.
    pub(super) fn view_of_pairs(&self) -> Panels {
        let view = self.view();
        Panels { ks: 2 * view.ks, ..view }
    }
}

impl<E: Elements> Packed<E> {
    /// Returns the words of memory that all panels take; `None` on overflow.
    pub(crate) fn words(isa: Isa, elements: E, depth: usize, width: usize) -> Option<usize> {
        let w = panel_width(isa);
        width.div_ceil(w).checked_mul(elements.words(w))?.checked_mul(elements.rows(depth))
    }

    /// Packs all panels of a matrix. Several threads call `fill(rows, start, out)` to write chunks:
    /// some rows of the panel of columns from `start` on. `next_columns` is called with columns
    /// before they are packed.
    pub(super) fn pack_chunks(
        plan: PackPlan<E>,
        next_columns: impl Fn(Range<usize>),
        fill: impl Fn(Range<usize>, usize, &mut [f32]) + Sync,
    ) -> Result<Packed<E>, Ended> {
        let fill = |rows: Range<usize>, start: usize, out: &mut [f32]| {
            fill(rows, start, out);
            true
        };
        let packed = Packed::try_pack_chunks(plan, next_columns, fill)?;
        Ok(packed.expect("every chunk fits"))
    }

    /// Packs chunks like [`Packed::pack_chunks`] as long as `fill` returns `true`. Returns `None`,
    /// and begins no further chunk, once it has returned `false`.
    pub(super) fn try_pack_chunks(
        plan: PackPlan<E>,
        next_columns: impl Fn(Range<usize>),
        fill: impl Fn(Range<usize>, usize, &mut [f32]) -> bool + Sync,
    ) -> Result<Option<Packed<E>>, Ended> {
        let PackPlan { isa, elements, depth, width, lasts } = plan;
        check_isa(isa);
        let w = panel_width(isa);
        let (panels, row, rows) = (width.div_ceil(w), elements.words(w), elements.rows(depth));
        let len = Packed::words(isa, elements, depth, width).expect("packed size overflows");
        // SAFETY: the chunks below fill all of it, unless it is dropped unread.
        let mut data = unsafe { PackedBuf::new_uninit(len, lasts) };
        let out = SendPtr(data.as_mut_ptr());
        let fits = AtomicBool::new(true);
        // The product of depth and width may be zero although the matrix has very many columns.
        let piece = match len {
            0 => panels.max(1),
            _ => (PIECE / (rows * w)).max(1),
        };
        let pool = Pool::for_packing();
        for first in (0..panels).step_by(piece) {
            let panels = first..panels.min(first + piece);
            next_columns(first * w..width.min(panels.end * w));
            for_each_chunk(&pool, rows, panels, w, |panel, chunk| {
                if !fits.load(Relaxed) {
                    return;
                }
                // SAFETY: chunks are disjoint parts of `data`. Each is cleared before it is lent,
                // while it stays in a cache.
                let out = unsafe {
                    let start = out.get().add((panel * rows + chunk.start) * row);
                    start.write_bytes(0, chunk.len() * row);
                    std::slice::from_raw_parts_mut(start, chunk.len() * row)
                };
                if !fill(chunk, panel * w, out) {
                    fits.store(false, Relaxed);
                }
            })?;
            if !fits.load(Relaxed) {
                return Ok(None);
            }
        }
        Ok(Some(Packed { isa, depth, width, data, elements }))
    }

    /// Returns the addresses of the panels.
    pub(crate) fn view(&self) -> Panels {
        let row = self.elements.words(panel_width(self.isa));
        let stride = self.elements.rows(self.depth) * row;
        Panels { ptr: self.data.as_ptr(), stride, ks: row, ws: 1, width: panel_width(self.isa) }
    }
}

/// Addresses of panels: panel `i` starts at `ptr + i * stride` with the first step of the view,
/// steps are `ks` apart and columns `ws`, all in floats of memory. In packed panels of floats `ks`
/// is the panel width and `ws` is 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panels {
    pub(crate) ptr: *const f32,
    pub(crate) stride: usize,
    pub(crate) ks: usize,
    pub(crate) ws: usize,
    /// Number of columns of a panel.
    pub(crate) width: usize,
}

// SAFETY: a read-only view of memory that is borrowed for the whole call that made it.
unsafe impl Send for Panels {}
// SAFETY: a read-only view of memory that is borrowed for the whole call that made it.
unsafe impl Sync for Panels {}

impl Panels {
    /// Views `data` as packed panels of `depth` steps.
    pub(crate) fn from_packed(isa: Isa, data: &[f32], depth: usize) -> Panels {
        let w = panel_width(isa);
        Panels { ptr: data.as_ptr(), stride: depth * w, ks: w, ws: 1, width: w }
    }

    /// Views a matrix of steps by columns in place, in panels of `width` columns. Only the narrow
    /// operand of a tile can be read from such panels.
    pub(crate) fn from_matrix(matrix: &MatRef<'_>, width: usize) -> Panels {
        Panels {
            ptr: matrix.as_ptr(),
            stride: width * matrix.col_stride(),
            ks: matrix.row_stride(),
            ws: matrix.col_stride(),
            width,
        }
    }

    /// Returns the address of step `k` of panel `index`.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize, k: usize) -> *const f32 {
        self.ptr.wrapping_add(index * self.stride + k * self.ks)
    }
}

/// Work: steps that one chunk packs, an even number.
const PACK_STEPS: usize = 512;
/// Work: floats after which a source is notified of the next columns.
const PIECE: usize = 4 << 20;

/// Calls `body(panel, steps)` for chunks that make up some panels of `depth` steps, on the threads
/// of `pool`. Chunks begin at even steps.
pub(super) fn for_each_chunk(
    pool: &Pool,
    depth: usize,
    panels: Range<usize>,
    w: usize,
    body: impl Fn(usize, Range<usize>) + Sync,
) -> Result<(), Ended> {
    let blocks = depth.div_ceil(PACK_STEPS);
    let chunks = panels.len() * blocks;
    let one = |chunk: usize| {
        let (panel, block) = (panels.start + chunk / blocks, chunk % blocks);
        body(panel, block * PACK_STEPS..depth.min((block + 1) * PACK_STEPS));
    };
    let floats = depth.saturating_mul(panels.len()).saturating_mul(w);
    let threads = Work::new(Operation::Element, floats).in_pieces(chunks).threads(pool);
    if threads == 1 {
        (0..chunks).for_each(one);
        Ok(())
    } else {
        pool.run_on(threads, chunks, one)
    }
}

/// Packs all of `source` into `out` on the threads of `pool`.
pub(crate) fn pack_all(
    exec: &Exec<'_>,
    source: &dyn PackSource,
    out: &mut [f32],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let w = panel_width(isa);
    let (depth, panels) = (source.depth(), source.width().div_ceil(w));
    assert!(out.len() >= depth * panels * w);
    let base = SendPtr(out.as_mut_ptr());
    for_each_chunk(pool, depth, 0..panels, w, |panel, steps| {
        // SAFETY: chunks write disjoint ranges of `out`, whose length was checked.
        let out = unsafe {
            let start = base.get().add((panel * depth + steps.start) * w);
            std::slice::from_raw_parts_mut(start, steps.len() * w)
        };
        source.pack(isa, steps, panel * w, out);
    })
}

/// A pointer that may cross threads. Code that dereferences it must justify the access.
#[derive(Debug)]
pub(crate) struct SendPtr<T = f32>(pub(crate) *mut T);

impl<T> Clone for SendPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SendPtr<T> {}

// SAFETY: only an address.
unsafe impl<T> Send for SendPtr<T> {}
// SAFETY: only an address.
unsafe impl<T> Sync for SendPtr<T> {}

impl<T> SendPtr<T> {
    #[inline(always)]
    pub(crate) fn get(self) -> *mut T {
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
        let whole = if self.col_stride() == 1 { panels.min((self.cols() - start) / w) } else { 0 };
        let body = PackRows {
            src: self.as_ptr().wrapping_add(depth.start * self.row_stride() + start),
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

/// Packing of whole panels of a matrix with adjacent columns, row by row: each row of the source is
/// read in one piece, which saves TLB misses and suits the hardware prefetcher.
struct PackRows {
    src: *const f32,
    depth: usize,
    panels: usize,
    ks: usize,
    out: *mut f32,
    /// Stride from panel to panel of `out`, in floats.
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

/// Packing of a part of one panel from a matrix with any strides.
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
                    if self.ks == 0 && k < self.depth {
                        // All rows are one row.
                        let v = S::select(zero, select, src, self.ws);
                        while k < self.depth {
                            S::store(out.add(k * 2 * lanes), v);
                            k += 1;
                        }
                    }
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
