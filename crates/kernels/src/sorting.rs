//! Sorting that can be cancelled.
//!
//! The sort of the standard library cannot be cancelled, and comparisons that test for cancellation
//! make it slower by a quarter. So long lists are divided by the first steps of a quicksort until
//! pieces are short, and the standard library sorts the pieces.

use std::cmp::Ordering;

use sardonyx_simd::{Ended, Pool};

/// Work: elements that are sorted in about a tenth of a second.
const PIECE: usize = 1 << 21;

/// Choice: number of elements whose median is the pivot.
const SAMPLE: usize = 63;

/// Sorts elements of which no two are equal. Tests for cancellation between pieces
/// ([`Pool::check_ended`]); a cancelled sort leaves the elements in any order.
pub(crate) fn sort<T: Copy>(
    mut list: &mut [T],
    order: impl Fn(&T, &T) -> Ordering + Copy,
) -> Result<(), Ended> {
    while list.len() > PIECE && Pool::may_end() {
        Pool::check_ended()?;
        if list.is_sorted_by(|a, b| order(a, b).is_lt()) {
            return Ok(());
        }
        let below = partition(list, order);
        let (small, large) = list.split_at_mut(below);
        if small.len().min(large.len()) < PIECE / 16 {
            // The sample is misleading, and another one may be, too.
            small.sort_unstable_by(order);
            Pool::check_ended()?;
            large.sort_unstable_by(order);
            return Ok(());
        }
        let shorter;
        (shorter, list) = if small.len() < large.len() { (small, large) } else { (large, small) };
        sort(shorter, order)?;
    }
    list.sort_unstable_by(order);
    Ok(())
}

/// Moves the elements less than a pivot to the front, and returns their number.
fn partition<T: Copy>(list: &mut [T], order: impl Fn(&T, &T) -> Ordering) -> usize {
    let mut sample: [T; SAMPLE] = std::array::from_fn(|at| list[list.len() / SAMPLE * at]);
    sample.sort_unstable_by(&order);
    let pivot = sample[SAMPLE / 2];
    let count_less = |one: &T| usize::from(order(one, &pivot).is_lt());
    // One element is taken out, so that each other one takes two moves, whatever the comparison: a
    // branch would be predicted half of the time, and bounds checks cost as much as the moves.
    let (len, all) = (list.len(), list.as_mut_ptr());
    let (first, mut below, mut gap) = (list[0], 0, 0);
    for at in 1..len {
        // SAFETY: `below` counts elements before `at`, and `gap` is `at - 1`, so all three are
        // indices of elements, and only `below` and `gap` may be equal.
        unsafe {
            let (one, left) = (all.add(at), all.add(below));
            let less = count_less(&*one);
            all.add(gap).copy_from(left, 1);
            left.copy_from_nonoverlapping(one, 1);
            gap = at;
            below += less;
        }
    }
    list[gap] = list[below];
    list[below] = first;
    below + count_less(&first)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Sorts a list with these keys, cancelled at test number `most`. Returns whether the order is
    /// right, and the number of tests.
    fn sort_keys(key: &dyn Fn(usize) -> u64, most: usize) -> (Result<bool, Ended>, usize) {
        let len = 3 * PIECE + 5;
        let mut list: Vec<[u64; 2]> = (0..len).map(|at| [key(at), at as u64]).collect();
        let mut expected = list.clone();
        expected.sort_unstable();
        let asked = Cell::new(0);
        let has_ended = || asked.replace(asked.get() + 1) >= most;
        let done = Pool::run_until(&has_ended, || sort(&mut list, |a, b| a.cmp(b)));
        (done.map(|()| list == expected), asked.get())
    }

    #[test]
    fn long_lists_are_sorted() {
        let len = 3 * PIECE + 5;
        let mix = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let cases: [&dyn Fn(usize) -> u64; 6] = [
            &|at| at as u64,
            &|at| (len - at) as u64,
            &mix,
            &|at| mix(at) % 3,
            // The sample has the smallest elements.
            &|at| if at.is_multiple_of(len / SAMPLE) { at as u64 } else { mix(at) | 1 << 32 },
            &|at| at.min(len - at) as u64,
        ];
        for (case, key) in cases.into_iter().enumerate() {
            let (done, asked) = sort_keys(key, usize::MAX);
            assert_eq!(done, Ok(true), "case {case}");
            assert!(asked > 0, "case {case}");
        }
        assert!(matches!(sort_keys(&mix, 2), (Err(Ended { .. }), 3)));
    }
}
