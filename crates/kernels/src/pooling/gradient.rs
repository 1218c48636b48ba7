//! Gradient of maximum pooling.

use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Exec};

/// Cache: elements that are cleared at a time, shortly before gradients are added to them:
/// neighbouring windows have neighbouring maxima.
const CLEARED: usize = 4096;

/// Adds each gradient of `dy` to the element of `dx` at its place; other elements become 0. `dx`
/// has rows of `size` elements, and `dy` and `places` have equally many elements for each row. A
/// place counts elements from the row or from any multiple of `size` elements before it:
/// [`max_pool_with_indices`](super::max_pool_with_indices) counts those of all planes. Sums are in
/// the order of `places`.
///
/// # Panics
///
/// If `size` is 0, `dx` is not a whole number of rows, or `places` and `dy` differ in length or
/// cannot be divided evenly between the rows.
pub fn max_pool_gradient<T: Number>(
    exec: &Exec<'_>,
    size: usize,
    places: &[i64],
    dy: &[T],
    dx: &mut [T],
) -> Result<(), Ended> {
    assert!(size > 0 && dx.len().is_multiple_of(size), "whole rows");
    let count = dx.len() / size;
    assert_eq!(places.len(), dy.len(), "a place for each gradient");
    assert!(dy.len().checked_rem(count).unwrap_or(dy.len()) == 0, "the same rows");
    let each = dy.len().checked_div(count).unwrap_or(0);
    rows(exec.pool, dx, size, size + 2 * each, |first, dx| {
        for (row, dx) in dx.chunks_exact_mut(size).enumerate() {
            let part = (first + row) * each..(first + row + 1) * each;
            add_row((first + row) * size, &places[part.clone()], &dy[part], dx);
        }
    })
}

/// Adds the gradients of one row, whose first element has place `start`.
fn add_row<T: Number>(start: usize, places: &[i64], dy: &[T], dx: &mut [T]) {
    let size = dx.len();
    let mut cleared = 0;
    for (place, gradient) in places.iter().zip(dy) {
        let at = place.wrapping_sub(start as i64) as usize;
        // A remainder is slower than the rest of the loop, and rarely needed.
        let at = if at < size { at } else { place.rem_euclid(size as i64) as usize };
        if at >= cleared {
            let end = size.min((at + 1).max(cleared + CLEARED));
            dx[cleared..end].fill(T::default());
            cleared = end;
        }
        dx[at] = T::narrow(dx[at].widen().add(gradient.widen()));
    }
    dx[cleared..].fill(T::default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    #[test]
    fn gradients_are_added_up_row_by_row() {
        for threads in [1, 3] {
            let pool = Pool::new(threads);
            let exec = Exec::new(&pool, Isa::detect());
            for (rows, size, each) in [(1, 1, 1), (2, 5, 0), (3, 10_000, 2_500), (7, 5_000, 9)] {
                let count = rows * each;
                // Places of the row and of other rows, in all orders; some are negative.
                let places: Vec<i64> = (0..count as i64)
                    .map(|i| (i * 7919) % (2 * (rows * size) as i64) - size as i64)
                    .collect();
                let dy: Vec<f32> = (0..count).map(|i| (i % 13) as f32 - 6.0).collect();
                let mut expected = vec![0f32; rows * size];
                for (index, (place, gradient)) in places.iter().zip(&dy).enumerate() {
                    let at = place.rem_euclid(size as i64) as usize;
                    expected[index / each * size + at] += gradient;
                }
                let mut dx = vec![f32::NAN; rows * size];
                max_pool_gradient(&exec, size, &places, &dy, &mut dx).unwrap();
                assert_eq!(dx, expected, "{rows} rows of {size}");
            }
            max_pool_gradient::<f64>(&exec, 4, &[], &[], &mut []).unwrap();
        }
    }
}
