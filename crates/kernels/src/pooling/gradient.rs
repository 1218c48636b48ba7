//! The gradient of the elements that a pool takes the greatest of.

use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Exec};

/// Cache: elements that are cleared at a time. They are in a near cache when something is added to
/// them: windows that follow each other lie next to each other.
const CLEARED: usize = 4096;

/// Adds gradients up at the places of the elements that they are those of, and makes all others 0.
/// Row after row: `dy` and `places` have as many elements for each, `dx` has `size`. Places count
/// elements from any multiple of `size` on, as those of
/// [`max_pool_with_indices`](super::max_pool_with_indices) count those of all planes. Sums are in
/// the order of `places`.
///
/// # Panics
///
/// If `size` is 0, `dx` is not a whole number of rows, or `places` and `dy` have other lengths or
/// are not as many rows.
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

/// One row, which begins with the place `start`.
fn add_row<T: Number>(start: usize, places: &[i64], dy: &[T], dx: &mut [T]) {
    let size = dx.len();
    let mut cleared = 0;
    for (place, gradient) in places.iter().zip(dy) {
        let at = place.wrapping_sub(start as i64) as usize;
        // A remainder takes longer than all else.
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
                // Of each row, in all orders, also those of other rows and negative ones.
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
