//! Elements selected by value: the greatest ones along an axis, and those that pass a test.
//!
//! [`top_k`] maps elements of every type to unsigned integers of the same order, so that there is
//! one selection for all types and both directions.

use std::cell::Cell;

use half::{bf16, f16};

use crate::AxisDims;
use crate::sorting::sort;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Pace, Pool};

/// Element type with a total order of its keys, for [`top_k`].
pub trait Ordered: Number {
    /// Returns an integer that orders as the element does. Equal elements have equal keys; NaN has
    /// the greatest.
    #[doc(hidden)]
    fn key(self) -> u64;
}

macro_rules! ordered {
    ($($t:ty: |$x:ident| $key:expr;)*) => { $(
        impl Ordered for $t {
            #[inline(always)]
            fn key(self) -> u64 {
                let $x = self;
                $key
            }
        }
    )* };
}

ordered! {
    u8: |x| x.into();
    u16: |x| x.into();
    u32: |x| x.into();
    u64: |x| x;
    i8: |x| signed_key(x.into());
    i16: |x| signed_key(x.into());
    i32: |x| signed_key(x.into());
    i64: |x| signed_key(x);
    f16: |x| short_float_key(x.to_bits(), f16::INFINITY.to_bits());
    bf16: |x| short_float_key(x.to_bits(), bf16::INFINITY.to_bits());
    f32: |x| float_key(x.into());
    f64: |x| float_key(x);
}

/// Returns the key of a signed integer.
#[inline(always)]
fn signed_key(x: i64) -> u64 {
    x as u64 ^ 1 << 63
}

/// Returns the key of a float.
#[inline(always)]
fn float_key(x: f64) -> u64 {
    if x.is_nan() {
        return u64::MAX;
    }
    // Adding 0 turns -0 into 0. Magnitudes order as their bits; a negative float orders against its
    // magnitude.
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Returns the key of a 16-bit float from its bits and those of its type's infinity.
#[inline(always)]
fn short_float_key(bits: u16, infinity: u16) -> u64 {
    const SIGN: u16 = 1 << 15;
    if bits & !SIGN > infinity {
        return u64::MAX;
    }
    // -0 equals 0.
    let bits = if bits == SIGN { 0 } else { bits };
    u64::from(if bits & SIGN == 0 { bits | SIGN } else { !bits })
}

/// Finds the `k` greatest (or least) elements along the middle axis of dims `[outer, axis, inner]`,
/// best first, and their positions. Of equal elements the first one is better. NaN is greater than
/// all numbers.
///
/// # Panics
///
/// If lengths do not fit, or `k` exceeds `axis`.
pub fn top_k<T: Ordered>(
    pool: &Pool,
    largest: bool,
    AxisDims { outer, axis, inner }: AxisDims,
    k: usize,
    x: &[T],
    values: &mut [T],
    positions: &mut [i64],
) -> Result<(), Ended> {
    assert_eq!(x.len(), outer * axis * inner, "the input has other dims");
    assert!(k <= axis, "there are not that many elements");
    let found = [values.len(), positions.len()];
    assert_eq!(found, [outer * k * inner; 2], "the output has other dims");
    if values.is_empty() {
        return Ok(());
    }
    let (values, positions) = (Shared::new(values), Shared::new(positions));
    let flip = if largest { 0 } else { u64::MAX };
    let is_row = inner == 1 && k <= FEW;
    ranges(pool, outer * inner, 4 * axis, |columns| {
        let (mut keys, mut best) = SEARCH.take();
        keys.resize(if is_row { 0 } else { axis }, 0);
        let pace = Pace::default();
        for column in columns {
            pace.count(axis)?;
            let (o, i) = (column / inner, column % inner);
            let x = &x[o * axis * inner + i..];
            if is_row {
                pick_few(&x[..axis], largest, k, &mut best);
            } else {
                for (key, x) in keys.iter_mut().zip(x.iter().step_by(inner)) {
                    *key = x.key() ^ flip;
                }
                pick(&keys, k, &mut best)?;
            }
            for (j, (_, position)) in best.iter().enumerate() {
                let at = (o * k + j) * inner + i;
                // SAFETY: each column is taken by one thread, and one element is held at a time.
                let (to_value, to_position) =
                    unsafe { (values.part(at, 1), positions.part(at, 1)) };
                to_value[0] = x[position * inner];
                to_position[0] = *position as i64;
            }
        }
        if keys.capacity() <= KEPT {
            SEARCH.set((keys, best));
        }
        Ok(())
    })
}

/// Keys of an axis, and the best keys with their positions.
type Search = (Vec<u64>, Vec<(u64, usize)>);

/// Limit: most keys whose memory a thread keeps from one search to the next, 2 MiB.
const KEPT: usize = 1 << 18;

thread_local! {
    /// Memory of the thread's last search: a search in the body of a loop does not allocate.
    static SEARCH: Cell<Search> = const { Cell::new((Vec::new(), Vec::new())) };
}

/// Choice: largest `k` for which the best elements are kept in order during the scan. For more, all
/// are collected and sorted at the end.
const FEW: usize = 64;

/// Finds the `k` greatest keys with their positions; `k` is not 0.
fn pick(keys: &[u64], k: usize, best: &mut Vec<(u64, usize)>) -> Result<(), Ended> {
    best.clear();
    let elements = keys.iter().copied().zip(0..);
    if k > FEW {
        best.extend(elements);
        let compare = |a: &(u64, usize), b: &(u64, usize)| b.0.cmp(&a.0).then(a.1.cmp(&b.1));
        if k < best.len() {
            best.select_nth_unstable_by(k - 1, compare);
            best.truncate(k);
        }
        return sort(best, compare);
    }
    for (key, position) in elements {
        keep(key, position, k, best);
    }
    Ok(())
}

/// Inserts an element among the `k` best so far if it is better than the worst of them.
#[inline(always)]
fn keep(key: u64, position: usize, k: usize, best: &mut Vec<(u64, usize)>) {
    if best.len() == k {
        // Most elements fail here: one comparison.
        if key <= best[k - 1].0 {
            return;
        }
        best.pop();
    }
    let after = best.iter().rev().take_while(|kept| key > kept.0).count();
    best.insert(best.len() - after, (key, position));
}

/// Finds elements like [`pick`], but computes keys only in blocks with an element that is better
/// than the worst so far. `x` holds adjacent elements; `k` is at most [`FEW`].
fn pick_few<T: Ordered>(x: &[T], largest: bool, k: usize, best: &mut Vec<(u64, usize)>) {
    /// Geometry: elements of a block, which are compared in vectors.
    const BLOCK: usize = 32;
    let flip = if largest { 0 } else { u64::MAX };
    best.clear();
    for (index, block) in x.chunks(BLOCK).enumerate() {
        if best.len() == k {
            let worst = x[best[k - 1].1].widen();
            // NaN is greater than all numbers.
            let has_better = if largest {
                block.iter().map(|x| x.widen()).fold(false, |any, x| any | (x > worst) | x.is_nan())
            } else {
                worst.is_nan() || block.iter().fold(false, |any, x| any | (x.widen() < worst))
            };
            if !has_better {
                continue;
            }
        }
        for (i, x) in block.iter().enumerate() {
            keep(x.key() ^ flip, index * BLOCK + i, k, best);
        }
    }
}

/// Counts the elements that pass.
pub fn count_where<T: Copy>(x: &[T], passes: impl Fn(T) -> bool) -> usize {
    x.iter().filter(|x| passes(**x)).count()
}

/// Writes the coordinates of the elements that pass, in row-major order: all coordinates on the
/// first dim, then all on the second, and so on.
///
/// # Panics
///
/// If `x` has other dims, or `positions` does not have exactly one coordinate per dim for each
/// element that passes.
pub fn positions_where<T: Copy>(
    dims: &[usize],
    x: &[T],
    passes: impl Fn(T) -> bool,
    positions: &mut [i64],
) {
    assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
    let (Some((&width, outer)), false) = (dims.split_last(), x.is_empty()) else {
        assert!(positions.is_empty(), "nothing can pass");
        return;
    };
    with_scratch_of(outer.len(), |place: &mut [i64]| {
        place.fill(0);
        write_positions(width, outer, x, passes, place, positions);
    });
}

/// Writes coordinates like [`positions_where`], for at least one axis: rows of `width` elements
/// over the dims `outer`. `place` holds the coordinates of a row, 0 at first.
fn write_positions<T: Copy>(
    width: usize,
    outer: &[usize],
    x: &[T],
    passes: impl Fn(T) -> bool,
    place: &mut [i64],
    positions: &mut [i64],
) {
    let count = positions.len() / (outer.len() + 1);
    let mut found = 0;
    for row in x.chunks_exact(width) {
        for (column, _) in row.iter().enumerate().filter(|(_, x)| passes(**x)) {
            assert!(found < count, "more pass than there is room for");
            for (d, coordinate) in place.iter().enumerate() {
                positions[d * count + found] = *coordinate;
            }
            positions[outer.len() * count + found] = column as i64;
            found += 1;
        }
        for (coordinate, size) in place.iter_mut().zip(outer).rev() {
            *coordinate += 1;
            if *coordinate < *size as i64 {
                break;
            }
            *coordinate = 0;
        }
    }
    assert_eq!(found, count, "fewer pass than there is room for");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares [`top_k`] with a stable sort.
    fn check<T: Ordered>() {
        for (dims, k) in [
            ([3, 7, 1], 3),
            ([2, 5, 3], 5),
            ([1, 1, 1], 1),
            ([2, 300, 2], 70),
            ([1, 300, 1], 300),
            // Blocks of neighbours, with and without a better one.
            ([5, 300, 1], 10),
            ([3, 100, 1], 1),
            ([40, 129, 5], 64),
            ([2, 3, 2], 0),
            ([0, 3, 2], 2),
        ] {
            let [outer, axis, inner] = dims;
            // Few different values, so that many are equal.
            let mut x: Vec<T> =
                (0..outer * axis * inner).map(|i| T::from_f64((i * 29 % 83 / 2) as f64)).collect();
            if T::IS_FLOAT && x.len() > 8 {
                (x[2], x[5], x[8]) = (T::LOWEST, T::from_f64(f64::NAN), T::HIGHEST);
            }
            for largest in [false, true] {
                let mut values = vec![T::ONE; outer * k * inner];
                let mut positions = vec![-1; values.len()];
                let pool = Pool::new(2);
                top_k(&pool, largest, dims.into(), k, &x, &mut values, &mut positions).unwrap();
                for column in 0..outer * inner {
                    let (o, i) = (column / inner, column % inner);
                    let number_at = |a: usize| x[(o * axis + a) * inner + i].to_f64();
                    let mut all: Vec<usize> = (0..axis).collect();
                    // NaN is greater than infinity; a stable sort keeps equal ones in order.
                    all.sort_by(|a, b| {
                        let order = number_at(*a).total_cmp(&number_at(*b));
                        if largest { order.reverse() } else { order }
                    });
                    for (j, a) in all[..k].iter().enumerate() {
                        let out = (o * k + j) * inner + i;
                        assert_eq!(positions[out], *a as i64, "{dims:?} {k} {largest}");
                        assert!(values[out].to_f64().total_cmp(&number_at(*a)).is_eq());
                    }
                }
            }
        }
    }

    #[test]
    fn the_best() {
        check::<f32>();
        check::<f64>();
        check::<f16>();
        check::<bf16>();
        check::<i8>();
        check::<u8>();
        check::<i64>();
        check::<u64>();
    }

    #[test]
    fn positions() {
        for dims in [&[3, 4, 5][..], &[7], &[2, 0, 3], &[1, 1], &[]] {
            let len = dims.iter().product();
            let x: Vec<u8> = (0..len).map(|i| (i * 7 % 3) as u8).collect();
            let is_nonzero = |x| x != 0;
            let count = count_where(&x, is_nonzero);
            let mut found = vec![-1; count * dims.len()];
            positions_where(dims, &x, is_nonzero, &mut found);
            let mut expected = vec![vec![]; dims.len()];
            for (at, _) in x.iter().enumerate().filter(|(_, x)| is_nonzero(**x)) {
                let mut rest = at;
                for (d, size) in dims.iter().enumerate().rev() {
                    expected[d].push((rest % size) as i64);
                    rest /= size;
                }
            }
            assert_eq!(found, expected.concat(), "{dims:?}");
        }
    }
}
