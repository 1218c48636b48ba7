//! Sorting that ends early.
//!
//! The sort of the standard library does not ask whether it is to end, and comparisons that ask
//! make it slower by a quarter. So long lists are divided by the first steps of a quicksort until a
//! piece is not worth ending, and the pieces are left to the standard library.

use std::cmp::Ordering;

use sardonyx_simd::{Ended, Pool};

/// Work: elements that are sorted in a tenth of a second.
const PIECE: usize = 1 << 21;

/// Choice: number of elements whose median is the pivot.
const SAMPLE: usize = 63;

/// Sorts elements of which no two are equal. Asks now and then whether it is to end
/// ([`Pool::check_ended`]); the elements are in any order then.
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
            // The sample misleads, and may do so again and again.
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

/// Brings the elements that are less than a middle one to the front, and says how many they are.
fn partition<T: Copy>(list: &mut [T], order: impl Fn(&T, &T) -> Ordering) -> usize {
    let mut sample: [T; SAMPLE] = std::array::from_fn(|at| list[list.len() / SAMPLE * at]);
    sample.sort_unstable_by(&order);
    let pivot = sample[SAMPLE / 2];
    let is_less = |one: &T| usize::from(order(one, &pivot).is_lt());
    // One element is taken out, so that each other one takes two moves, whatever it is: a branch
    // would be foreseen half of the time, and bounds that are checked cost as much as the moves.
    let (len, all) = (list.len(), list.as_mut_ptr());
    let (first, mut below, mut gap) = (list[0], 0, 0);
    for at in 1..len {
        // SAFETY: `below` counts elements before `at`, and `gap` is the element before it, so all
        // three are elements of the list, and only `below` and `gap` may be one.
        unsafe {
            let (one, left) = (all.add(at), all.add(below));
            let less = is_less(&*one);
            all.add(gap).copy_from(left, 1);
            left.copy_from_nonoverlapping(one, 1);
            gap = at;
            below += less;
        }
    }
    list[gap] = list[below];
    list[below] = first;
    below + is_less(&first)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// What becomes of a list with these keys, and how often it is asked, which is at most so
    /// often.
    fn sorted(key: &dyn Fn(usize) -> u64, most: usize) -> (Result<bool, Ended>, usize) {
        let len = 3 * PIECE + 5;
        let mut list: Vec<[u64; 2]> = (0..len).map(|at| [key(at), at as u64]).collect();
        let mut expected = list.clone();
        expected.sort_unstable();
        let asked = Cell::new(0);
        let ends = || asked.replace(asked.get() + 1) >= most;
        let done = Pool::until(&ends, || sort(&mut list, |a, b| a.cmp(b)));
        (done.map(|()| list == expected), asked.get())
    }

    #[test]
    fn long_lists_are_sorted() {
        let len = 3 * PIECE + 5;
        let mixed = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let cases: [&dyn Fn(usize) -> u64; 6] = [
            &|at| at as u64,
            &|at| (len - at) as u64,
            &mixed,
            &|at| mixed(at) % 3,
            // The sample is of the least elements.
            &|at| if at.is_multiple_of(len / SAMPLE) { at as u64 } else { mixed(at) | 1 << 32 },
            &|at| at.min(len - at) as u64,
        ];
        for (case, key) in cases.into_iter().enumerate() {
            let (done, asked) = sorted(key, usize::MAX);
            assert_eq!(done, Ok(true), "case {case}");
            assert!(asked > 0, "case {case}");
        }
        assert!(matches!(sorted(&mixed, 2), (Err(Ended { .. }), 3)));
    }
}
