//! Products in any number type with the strided interface of [`gemm`](super::gemm), accumulated in
//! the type itself.
//!
//! Packed tiles of 8 x 8, written so that the compiler vectorizes them for each instruction set.
//! Integers wrap.

use super::doubles;
use super::matrix::{MatRef, strided_len};
use sardonyx_simd::buffer::{AnyBits, with_scratch_of};
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};
use sardonyx_simd::{Exec, Isa};
use sardonyx_simd::{Operation, Work, split_even};

/// A number type of products and sums. Integers wrap.
pub trait Number: AnyBits + Send + Sync + PartialEq + std::fmt::Debug + 'static {
    const ZERO: Self;
    const ONE: Self;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Computes `self * b + c`, with one rounding if `fused`, which is only set if the machine has
    /// the instruction.
    fn multiply_add(self, b: Self, c: Self, fused: bool) -> Self;
    /// Computes a rectangle of a product.
    ///
    /// # Safety
    ///
    /// The machine must have `isa`, and no other code may use the rectangle.
    #[doc(hidden)]
    unsafe fn multiply_part(isa: Isa, part: Rectangle<'_, Self>) {
        let tiles = part.cols.len().div_ceil(COLS);
        with_scratch_of(STEPS.min(part.a.cols()).max(1) * tiles, |pack_b| {
            // SAFETY: the caller has `isa` and owns the rectangle.
            unsafe { dispatch(isa, Tiles { part, pack_b }) }
        });
    }
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Number for $t {
            const ZERO: Self = 0;
            const ONE: Self = 1;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn multiply_add(self, b: Self, c: Self, _fused: bool) -> Self {
                self.wrapping_mul(b).wrapping_add(c)
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty { $($multiply:item)? })*) => {$(
        impl Number for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn multiply_add(self, b: Self, c: Self, fused: bool) -> Self {
                if fused { self.mul_add(b, c) } else { self * b + c }
            }
            $($multiply)?
        }
    )*};
}

integers!(i8 u8 i16 u16 i32 u32 i64 u64);
floats! {
    f32 {}
    f64 {
        unsafe fn multiply_part(isa: Isa, part: Rectangle<'_, f64>) {
            // SAFETY: the caller has `isa` and owns the rectangle.
            unsafe { doubles::multiply(isa, part) }
        }
    }
}

/// Geometry: rows and columns of a tile.
const ROWS: usize = 8;
const COLS: usize = 8;
/// Cache: steps of k packed at a time. Sums continue from one part to the next, so their order
/// stays.
const STEPS: usize = 256;

/// Computes C = alpha A B + beta C0, where row i of C is `c[i * ldc..][..n]` and `addend` is (beta,
/// C0) with broadcasting strides.
///
/// # Panics
///
/// If the depths of `a` and `b` differ, C does not fit `c`, the addend has another size than C, or
/// this machine does not have `isa`.
pub fn gemm_generic<T: Number>(
    exec: &Exec<'_>,
    alpha: T,
    a: MatRef<'_, T>,
    b: MatRef<'_, T>,
    addend: Option<(T, MatRef<'_, T>)>,
    c: &mut [T],
    ldc: usize,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    let (m, n, k) = (a.rows(), b.cols(), a.cols());
    assert_eq!(k, b.rows(), "depth of A and B");
    assert!(ldc >= n || m <= 1, "rows of C overlap: {ldc} < {n}");
    assert!(
        strided_len(m, n, ldc, 1).is_some_and(|len| len <= c.len()),
        "{m} x {n}, rows {ldc} apart, in {}",
        c.len()
    );
    if let Some((_, c0)) = addend {
        assert_eq!((c0.rows(), c0.cols()), (m, n), "size of the addend");
    }
    if m == 0 || n == 0 {
        return Ok(());
    }
    // Columns of C are cut into blocks of tiles. A block packs its own part of B.
    let tiles = n.div_ceil(COLS);
    let macs = m.saturating_mul(n).saturating_mul(k);
    let threads = Work::new(Operation::ShortMultiplyAdd, macs).threads(pool);
    let serial = threads == 1;
    let by_cols = if serial { 1 } else { tiles.div_ceil(8).max(tiles.min(4 * threads)) };
    // With few columns, rows are cut, too, at the price of packing B once per part.
    let by_rows =
        if serial || by_cols >= 2 * threads { 1 } else { m.div_ceil(ROWS).min(2 * threads) };
    let out = SendMut(c.as_mut_ptr());
    pool.run_on(threads, by_rows * by_cols, |part| {
        let rows = split_even(m.div_ceil(ROWS), by_rows, part / by_cols);
        let cols = split_even(tiles, by_cols, part % by_cols);
        let part = Rectangle {
            alpha,
            a,
            b,
            addend,
            rows: rows.start * ROWS..m.min(rows.end * ROWS),
            cols: cols.start * COLS..n.min(cols.end * COLS),
            c: out.get(),
            ldc,
        };
        // SAFETY: sizes were checked, rectangles do not overlap, and the machine has `isa`.
        unsafe { T::multiply_part(isa, part) }
    })
}

/// A pointer that may cross threads.
#[derive(Clone, Copy)]
struct SendMut<T>(*mut T);
// SAFETY: only an address.
unsafe impl<T> Send for SendMut<T> {}
// SAFETY: only an address.
unsafe impl<T> Sync for SendMut<T> {}

impl<T> SendMut<T> {
    fn get(&self) -> *mut T {
        self.0
    }
}

/// One chunk, a rectangle of C. Public only because a hidden method takes it.
#[derive(Clone, Debug)]
pub struct Rectangle<'a, T> {
    alpha: T,
    pub(super) a: MatRef<'a, T>,
    pub(super) b: MatRef<'a, T>,
    addend: Option<(T, MatRef<'a, T>)>,
    pub(super) rows: std::ops::Range<usize>,
    pub(super) cols: std::ops::Range<usize>,
    pub(super) c: *mut T,
    pub(super) ldc: usize,
}

impl<T: Number> Rectangle<'_, T> {
    /// Scales complete sums and adds the addend.
    ///
    /// # Safety
    ///
    /// The elements must be inside the rectangle.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, rows: std::ops::Range<usize>, cols: std::ops::Range<usize>) {
        if self.alpha == T::ONE && self.addend.is_none() {
            return;
        }
        for row in rows {
            for col in cols.clone() {
                // SAFETY: the caller passes elements inside the rectangle.
                let x = unsafe { &mut *self.c.add(row * self.ldc + col) };
                if self.alpha != T::ONE {
                    *x = self.alpha.times(*x);
                }
                if let Some((beta, c0)) = &self.addend {
                    *x = x.plus(beta.times(c0.get(row, col)));
                }
            }
        }
    }
}

/// A rectangle in tiles that the compiler vectorizes.
struct Tiles<'a, T> {
    part: Rectangle<'a, T>,
    /// Room for `STEPS` rows of each tile's columns, or for all rows if there are fewer.
    pack_b: &'a mut [[T; COLS]],
}

impl<T: Number> Body for Tiles<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let fused = S::ISA != Isa::Portable;
        let Tiles { part, pack_b } = self;
        let (a, b, steps) = (part.a, part.b, STEPS.min(part.a.cols()).max(1));
        let mut pack_a = [[T::ZERO; ROWS]; STEPS];
        let mut k0 = 0;
        loop {
            let k1 = a.cols().min(k0 + STEPS);
            for (i, col) in part.cols.clone().step_by(COLS).enumerate() {
                let n = COLS.min(part.cols.end - col);
                for (p, step) in pack_b[i * steps..][..k1 - k0].iter_mut().enumerate() {
                    *step =
                        std::array::from_fn(
                            |j| {
                                if j < n { b.get(k0 + p, col + j) } else { T::ZERO }
                            },
                        );
                }
            }
            for row in part.rows.clone().step_by(ROWS) {
                let m = ROWS.min(part.rows.end - row);
                for (p, step) in pack_a[..k1 - k0].iter_mut().enumerate() {
                    *step =
                        std::array::from_fn(
                            |i| {
                                if i < m { a.get(row + i, k0 + p) } else { T::ZERO }
                            },
                        );
                }
                for (i, col) in part.cols.clone().step_by(COLS).enumerate() {
                    let n = COLS.min(part.cols.end - col);
                    // SAFETY: the tile is inside the rectangle, which this chunk owns.
                    let at = |r: usize, j: usize| unsafe {
                        &mut *part.c.add((row + r) * part.ldc + col + j)
                    };
                    let mut acc = [[T::ZERO; COLS]; ROWS];
                    if k0 > 0 {
                        for (r, line) in acc[..m].iter_mut().enumerate() {
                            for (j, x) in line[..n].iter_mut().enumerate() {
                                *x = *at(r, j);
                            }
                        }
                    }
                    for (x, y) in pack_a[..k1 - k0].iter().zip(&pack_b[i * steps..]) {
                        for (line, &x) in acc.iter_mut().zip(x) {
                            for (sum, &y) in line.iter_mut().zip(y) {
                                *sum = x.multiply_add(y, *sum, fused);
                            }
                        }
                    }
                    for (r, line) in acc[..m].iter().enumerate() {
                        for (j, &sum) in line[..n].iter().enumerate() {
                            *at(r, j) = sum;
                        }
                    }
                    if k1 == a.cols() {
                        // SAFETY: the tile is inside the rectangle, which this chunk owns.
                        unsafe { part.finish(row..row + m, col..col + n) }
                    }
                }
            }
            k0 = k1;
            if k0 == a.cols() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::Pool;

    const SIZES: &[(usize, usize, usize)] =
        &[(0, 3, 3), (3, 0, 3), (3, 5, 0), (1, 1, 1), (7, 9, 11), (17, 33, 300), (40, 100, 20)];

    fn check<T: Number>(from: impl Fn(i64) -> T) {
        let pools = [Pool::new(1), Pool::new(3)];
        for &(m, n, k) in SIZES {
            let fill = |len: usize, salt: i64| -> Vec<T> {
                (0..len as i64).map(|i| from((i * 37 + salt) % 15 - 7)).collect()
            };
            let (a, b, c0) = (fill(m * k, 1), fill(k * n, 2), fill(m * n, 3));
            let am = MatRef::row_major(&a, m, k);
            let bm = MatRef::col_major(&b, k, n);
            let c0 = MatRef::row_major(&c0, m, n);
            let (alpha, beta) = (from(2), from(3));
            for &isa in Isa::available() {
                for pool in &pools {
                    let mut c = vec![T::ONE; m * n];
                    gemm_generic(&Exec::new(pool, isa), alpha, am, bm, Some((beta, c0)), &mut c, n)
                        .unwrap();
                    for i in 0..m {
                        for j in 0..n {
                            let mut sum = T::ZERO;
                            for p in 0..k {
                                sum = sum.plus(am.get(i, p).times(bm.get(p, j)));
                            }
                            // Small integers are exact in every type that does not wrap.
                            let want = alpha.times(sum).plus(beta.times(c0.get(i, j)));
                            assert_eq!(c[i * n + j], want, "{m}x{n}x{k} {isa:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn small_integers_are_exact_in_every_type() {
        check(|x| x as f64);
        check(|x| x as f32);
        check(|x| x as i8);
        check(|x| x as u8);
        check(|x| x as i32);
        check(|x| x as u32);
        check(|x| x);
        check(|x| x as u64);
    }
}
