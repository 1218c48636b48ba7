//! Products of doubles: panels of both operands in the caches, multiplied in tiles of vectors.
//!
//! An element is one chain of multiply-adds over k in order, except in products of up to [`FEW`]
//! rows with a right operand whose columns have adjacent elements: there it is as many chains as
//! two vectors have lanes.

use std::ops::Range;

use super::generic::Rectangle;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::{Body, Isa, Simd, Vector, dispatch};

/// Cache: steps of k that are packed at a time. Sums continue from one part to the next.
const STEPS: usize = 256;
/// Cache: tiles of rows that are packed at a time: up to 256 KB, which stay in the second level
/// while a panel of columns stays in the first.
const TILES: usize = 16;
/// Sums: most rows of a product that reads its right operand in place, as packing it would take
/// longer than the product.
const FEW: usize = 4;
/// Geometry: most columns of a tile: three vectors of AVX-512.
const MOST_WIDTH: usize = 24;
/// Geometry: most rows of a tile.
const MOST_ROWS: usize = 8;

/// Returns the rows of a tile and the vectors in each. Sums, a row of B and an element of A fit the
/// registers.
const fn tile_size(isa: Isa) -> [usize; 2] {
    match isa {
        Isa::Avx512 | Isa::Neon => [8, 3],
        Isa::Avx2 => [4, 3],
        Isa::Portable => [4, 2],
    }
}

/// Computes a rectangle of a product.
///
/// # Safety
///
/// The machine must have `isa`, and no other code may use the rectangle.
pub(super) unsafe fn multiply(isa: Isa, part: Rectangle<'_, f64>) {
    let [rows, vectors] = tile_size(isa);
    let width = vectors * isa.lanes() / 2;
    let steps = STEPS.min(part.a.cols()).max(1);
    let strides = [part.b.row_stride(), part.b.col_stride()];
    let is_packed = part.rows.len() > FEW || !strides.contains(&1);
    let height = part.rows.len().next_multiple_of(rows).clamp(rows, TILES * rows);
    let packed = part.cols.len().next_multiple_of(width) + height;
    let len = if is_packed { steps * packed } else { 0 };
    with_scratch_of(len, |memory: &mut [f64]| {
        // SAFETY: the caller has `isa` and owns the rectangle.
        unsafe { dispatch(isa, Doubles { part, steps, memory }) }
    });
}

/// A rectangle of a product of doubles.
struct Doubles<'a> {
    part: Rectangle<'a, f64>,
    /// Number of steps packed at a time.
    steps: usize,
    /// Room for the packed operands, if they are packed.
    memory: &'a mut [f64],
}

impl Body for Doubles<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller runs on a machine with `S` and owns the rectangle.
        unsafe {
            if self.part.rows.len() <= FEW && self.part.b.row_stride() == 1 {
                self.multiply_by_columns::<S::F64>();
            } else if self.part.rows.len() <= FEW && self.part.b.col_stride() == 1 {
                self.multiply_by_rows::<S::F64>();
            } else if const { matches!(S::ISA, Isa::Avx512 | Isa::Neon) } {
                self.multiply_by_tiles::<S::F64, 8, 3>();
            } else if const { matches!(S::ISA, Isa::Avx2) } {
                self.multiply_by_tiles::<S::F64, 4, 3>();
            } else {
                self.multiply_by_tiles::<S::F64, 4, 2>();
            }
        }
    }
}

impl Doubles<'_> {
    /// Computes the rectangle in tiles of `R` rows and `C` vectors.
    ///
    /// # Safety
    ///
    /// The demands of [`Vector`] must hold, and no other code may use the rectangle.
    #[inline(always)]
    unsafe fn multiply_by_tiles<V: Vector<Element = f64>, const R: usize, const C: usize>(self) {
        let Doubles { part, steps, memory } = self;
        let (depth, width) = (part.a.cols(), C * V::LANES);
        let (rows, cols) = (part.rows.clone(), part.cols.clone());
        let height = rows.len().next_multiple_of(R).clamp(R, TILES * R);
        let (pack_a, pack_b) = memory.split_at_mut(steps * height);
        let mut k0 = 0;
        loop {
            let k = k0..depth.min(k0 + steps);
            for (panel, to) in pack_b.chunks_exact_mut(steps * width).enumerate() {
                let first = cols.start + panel * width;
                part.pack_b(k.clone(), first..cols.end.min(first + width), width, to);
            }
            for block in rows.clone().step_by(height) {
                let end = rows.end.min(block + height);
                for (row, to) in (block..end).step_by(R).zip(pack_a.chunks_exact_mut(steps * R)) {
                    part.pack_a(k.clone(), row..end.min(row + R), R, to);
                }
                for (panel, b) in pack_b.chunks_exact(steps * width).enumerate() {
                    let col = cols.start + panel * width;
                    for (row, a) in (block..end).step_by(R).zip(pack_a.chunks_exact(steps * R)) {
                        let (m, n) = (R.min(end - row), width.min(cols.end - col));
                        let panels = Panels { a: a.as_ptr(), b: b.as_ptr(), steps: k.len() };
                        // SAFETY: the tile is inside the rectangle, and the operands are packed.
                        unsafe {
                            let first = part.c.wrapping_add(row * part.ldc + col);
                            if m == R && n == width {
                                panels.multiply::<V, R, C>(k0 > 0, first, part.ldc);
                            } else {
                                let mut some = [0.0; MOST_ROWS * MOST_WIDTH];
                                let to = some.as_mut_ptr();
                                if k0 > 0 {
                                    copy_rows(m, n, first, part.ldc, to, width);
                                }
                                panels.multiply::<V, R, C>(k0 > 0, to, width);
                                copy_rows(m, n, to, width, first, part.ldc);
                            }
                            if k.end == depth {
                                part.finish(row..row + m, col..col + n);
                            }
                        }
                    }
                }
            }
            k0 = k.end;
            if k0 == depth {
                return;
            }
        }
    }

    /// Computes few rows with columns of adjacent elements. Each element is a dot product.
    ///
    /// # Safety
    ///
    /// The demands of [`Doubles::tiles`] must hold.
    #[inline(always)]
    unsafe fn multiply_by_columns<V: Vector<Element = f64>>(self) {
        /// Geometry: columns whose sums are computed together.
        const TOGETHER: usize = 4;
        let part = self.part;
        let (depth, step) = (part.a.cols(), 2 * V::LANES);
        let whole = if part.a.col_stride() == 1 { depth / step * step } else { 0 };
        for first in part.cols.clone().step_by(TOGETHER) {
            let n = TOGETHER.min(part.cols.end - first);
            // Missing columns repeat the first one.
            let mut starts = [part.b.at(0, first); TOGETHER];
            for (j, start) in starts.iter_mut().enumerate().take(n) {
                *start = part.b.at(0, first + j);
            }
            for row in part.rows.clone() {
                let a = part.a.at(row, 0);
                // SAFETY: `depth` elements are adjacent in all columns, and in the row if whole
                // vectors are read; the caller owns the rectangle.
                unsafe {
                    let mut sums = [[V::splat(0.0); 2]; TOGETHER];
                    let mut k = 0;
                    while k < whole {
                        let x = [V::load(a.add(k)), V::load(a.add(k + V::LANES))];
                        for (sums, b) in sums.iter_mut().zip(&starts) {
                            sums[0] = x[0].fma(V::load(b.add(k)), sums[0]);
                            sums[1] = x[1].fma(V::load(b.add(k + V::LANES)), sums[1]);
                        }
                        k += step;
                    }
                    for j in 0..n {
                        let mut lanes = [0.0; 2 * MOST_ROWS];
                        sums[j][0].store(lanes.as_mut_ptr());
                        sums[j][1].store(lanes.as_mut_ptr().add(V::LANES));
                        let mut sum: f64 = lanes[..step].iter().sum();
                        for k in whole..depth {
                            sum += part.a.get(row, k) * *starts[j].add(k);
                        }
                        *part.c.add(row * part.ldc + first + j) = sum;
                    }
                }
            }
        }
        // SAFETY: the caller owns the rectangle.
        unsafe { part.finish(part.rows.clone(), part.cols.clone()) }
    }

    /// Computes few rows with rows of adjacent elements: multiples of rows of B are added up.
    ///
    /// # Safety
    ///
    /// The demands of [`Doubles::tiles`] must hold.
    #[inline(always)]
    unsafe fn multiply_by_rows<V: Vector<Element = f64>>(self) {
        /// Geometry: vectors of sums of a row.
        const VECTORS: usize = 8;
        let part = self.part;
        let depth = part.a.cols();
        for row in part.rows.clone() {
            let mut col = part.cols.start;
            while col < part.cols.end {
                let to = part.c.wrapping_add(row * part.ldc + col);
                let left = part.cols.end - col;
                // SAFETY: no more columns are read and written than are left; the caller owns the
                // rectangle.
                unsafe {
                    if left >= VECTORS * V::LANES {
                        let mut sums = [V::splat(0.0); VECTORS];
                        for k in 0..depth {
                            let (x, b) = (V::splat(part.a.get(row, k)), part.b.at(k, col));
                            for (i, sum) in sums.iter_mut().enumerate() {
                                *sum = x.fma(V::load(b.add(i * V::LANES)), *sum);
                            }
                        }
                        for (i, sum) in sums.iter().enumerate() {
                            sum.store(to.add(i * V::LANES));
                        }
                        col += VECTORS * V::LANES;
                    } else if left >= V::LANES {
                        let mut sum = V::splat(0.0);
                        for k in 0..depth {
                            let x = V::splat(part.a.get(row, k));
                            sum = x.fma(V::load(part.b.at(k, col)), sum);
                        }
                        sum.store(to);
                        col += V::LANES;
                    } else {
                        let mut sums = [0.0; MOST_ROWS];
                        for k in 0..depth {
                            let x = part.a.get(row, k);
                            for (j, sum) in sums.iter_mut().enumerate().take(left) {
                                *sum += x * part.b.get(k, col + j);
                            }
                        }
                        std::ptr::copy_nonoverlapping(sums.as_ptr(), to, left);
                        col += left;
                    }
                }
            }
        }
        // SAFETY: the caller owns the rectangle.
        unsafe { part.finish(part.rows.clone(), part.cols.clone()) }
    }
}

impl Rectangle<'_, f64> {
    /// Packs columns of B in rows of `width` elements. Zeros follow the last column.
    #[inline(always)]
    fn pack_b(&self, k: Range<usize>, cols: Range<usize>, width: usize, to: &mut [f64]) {
        let n = cols.len();
        if self.b.row_stride() == 1 && self.b.col_stride() != 1 {
            for j in 0..width {
                for (p, row) in k.clone().zip(to.chunks_exact_mut(width)) {
                    row[j] = if j < n { self.b.get(p, cols.start + j) } else { 0.0 };
                }
            }
            return;
        }
        let is_dense = self.b.col_stride() == 1;
        for (p, row) in k.zip(to.chunks_exact_mut(width)) {
            let (row, after) = row.split_at_mut(n);
            if is_dense {
                // SAFETY: the row of B has `n` adjacent elements there.
                row.copy_from_slice(unsafe {
                    std::slice::from_raw_parts(self.b.at(p, cols.start), n)
                });
            } else {
                for (j, to) in row.iter_mut().enumerate() {
                    *to = self.b.get(p, cols.start + j);
                }
            }
            after.fill(0.0);
        }
    }

    /// Packs rows of A in columns of `height` elements. Zeros follow the last row.
    #[inline(always)]
    fn pack_a(&self, k: Range<usize>, rows: Range<usize>, height: usize, to: &mut [f64]) {
        for i in 0..height {
            for (p, column) in k.clone().zip(to.chunks_exact_mut(height)) {
                column[i] = if i < rows.len() { self.a.get(rows.start + i, p) } else { 0.0 };
            }
        }
    }
}

/// Packed operands of a tile.
struct Panels {
    a: *const f64,
    b: *const f64,
    steps: usize,
}

impl Panels {
    /// Writes the products of `R` rows and `C` vectors to `to`, or adds them there if `adds`.
    ///
    /// # Safety
    ///
    /// The demands of [`Vector`] must hold, both panels must have the steps, and `to` must have the
    /// rows.
    #[inline(always)]
    unsafe fn multiply<V: Vector<Element = f64>, const R: usize, const C: usize>(
        &self,
        adds: bool,
        to: *mut f64,
        ldc: usize,
    ) {
        // SAFETY: the caller has the steps in both panels, and the rows in `to`.
        unsafe {
            let mut sums = [[V::splat(0.0); C]; R];
            if adds {
                for (r, sums) in sums.iter_mut().enumerate() {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = V::load(to.add(r * ldc + j * V::LANES));
                    }
                }
            }
            let (mut a, mut b) = (self.a, self.b);
            for _ in 0..self.steps {
                let mut row = [V::splat(0.0); C];
                for (j, row) in row.iter_mut().enumerate() {
                    *row = V::load(b.add(j * V::LANES));
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = V::splat(*a.add(r));
                    for (sum, b) in sums.iter_mut().zip(&row) {
                        *sum = x.fma(*b, *sum);
                    }
                }
                a = a.add(R);
                b = b.add(C * V::LANES);
            }
            for (r, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    sum.store(to.add(r * ldc + j * V::LANES));
                }
            }
        }
    }
}

/// Copies rows from a matrix with the row stride `from_step` to one with the row stride `to_step`.
///
/// # Safety
///
/// Both matrices must have the elements, and must not overlap.
#[inline(always)]
unsafe fn copy_rows(
    rows: usize,
    cols: usize,
    from: *const f64,
    from_step: usize,
    to: *mut f64,
    to_step: usize,
) {
    for row in 0..rows {
        // SAFETY: the caller has both rows valid, and they do not overlap.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(row * from_step), to.add(row * to_step), cols);
        }
    }
}
