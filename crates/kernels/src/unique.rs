//! Groups of equal elements or slices.
//!
//! Elements of all types become keys of the same order, so that there is one sort. A slice is a row
//! of keys.

use std::cmp::Ordering;

use crate::AxisDims;
use crate::choose::Ordered;
use crate::sorting::sort;
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Pace, Pool};

/// Value: key of NaN.
pub const NAN_KEY: u64 = u64::MAX;

/// Computes the key of each element of `x`, which orders as the element does. `x` has dims `[outer,
/// axis, inner]`; `keys[a, o, i]` is the key of `x[o, a, i]`, so that each slice along the axis is
/// a row.
///
/// # Panics
///
/// If lengths do not fit.
pub fn keys<T: Ordered>(
    pool: &Pool,
    AxisDims { outer, axis, inner }: AxisDims,
    x: &[T],
    keys: &mut [u64],
) -> Result<(), Ended> {
    assert_eq!(x.len(), outer * axis * inner, "the input has other dims");
    assert_eq!(keys.len(), x.len(), "one key per element");
    if keys.is_empty() {
        return Ok(());
    }
    rows(pool, keys, inner, inner + 2, |first, keys| {
        for (row, keys) in (first..).zip(keys.chunks_exact_mut(inner)) {
            let from = row % outer * axis + row / outer;
            let x = &x[from * inner..][..inner];
            keys.iter_mut().zip(x).for_each(|(key, x)| *key = x.key());
        }
    })
}

/// Rows of keys that are compared.
#[derive(Clone, Copy, Debug)]
pub struct KeyRows<'a> {
    pub keys: &'a [u64],
    /// Number of keys of a row, which may be 0.
    pub width: usize,
    /// Whether rows with [`NAN_KEY`] differ from all others.
    pub nan_differs: bool,
}

impl KeyRows<'_> {
    /// Returns the keys of a row.
    fn row(&self, position: u64) -> &[u64] {
        &self.keys[position as usize * self.width..][..self.width]
    }

    /// Compares two rows, given the first key and the position of each; equal rows compare by
    /// position.
    fn compare(&self, a: &[u64; 2], b: &[u64; 2]) -> Ordering {
        // The first key decides most cases without a lookup.
        let first = a[0].cmp(&b[0]);
        if self.width <= 1 || first != Ordering::Equal {
            return first.then(a[1].cmp(&b[1]));
        }
        self.row(a[1]).cmp(self.row(b[1])).then(a[1].cmp(&b[1]))
    }

    /// Whether two rows belong to different groups.
    fn differ(&self, a: &[u64; 2], b: &[u64; 2]) -> bool {
        let row = self.row(b[1]);
        self.row(a[1]) != row || (self.nan_differs && row.contains(&NAN_KEY))
    }
}

/// Groups of equal rows.
#[derive(Debug)]
pub struct Groups<'a> {
    /// First row of each group.
    pub first: &'a mut [i64],
    /// Group of each row.
    pub of_row: &'a mut [i64],
    /// Number of rows of each group.
    pub counts: &'a mut [i64],
}

/// Finds the groups of equal rows, in ascending order or by their first rows, and returns their
/// number. All buffers have one element per row; `order` is scratch memory.
///
/// # Panics
///
/// If lengths do not fit.
pub fn unique(
    rows: KeyRows<'_>,
    sorted: bool,
    order: &mut [[u64; 2]],
    groups: &mut Groups<'_>,
) -> Result<usize, Ended> {
    let len = order.len();
    assert_eq!(rows.keys.len(), len * rows.width, "the keys are as many as the rows have");
    let lens = [groups.first.len(), groups.of_row.len(), groups.counts.len()];
    assert_eq!(lens, [len; 3], "one element per row");
    for (position, entry) in order.iter_mut().enumerate() {
        let first = rows.keys.get(position * rows.width).copied().unwrap_or(0);
        *entry = [if rows.width == 0 { 0 } else { first }, position as u64];
    }
    sort(order, |a, b| rows.compare(a, b))?;
    let pace = Pace::default();
    let mut count = 0;
    for at in 0..len {
        pace.count(1)?;
        if at == 0 || rows.differ(&order[at - 1], &order[at]) {
            count += 1;
        }
        groups.of_row[order[at][1] as usize] = count as i64 - 1;
    }
    if !sorted {
        // Renumbers groups from ascending order to the order of their first rows.
        let numbers = &mut order[..count];
        numbers.fill([u64::MAX; 2]);
        let mut next = 0;
        for group in groups.of_row.iter_mut() {
            pace.count(1)?;
            let number = &mut numbers[*group as usize][0];
            if *number == u64::MAX {
                *number = next;
                next += 1;
            }
            *group = *number as i64;
        }
    }
    groups.counts[..count].fill(0);
    for (group, position) in groups.of_row.iter().zip(0..) {
        pace.count(1)?;
        let group = *group as usize;
        if groups.counts[group] == 0 {
            groups.first[group] = position;
        }
        groups.counts[group] += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the groups by comparing all pairs.
    fn naive(rows: KeyRows<'_>, len: usize, sorted: bool) -> [Vec<i64>; 3] {
        let keys_of = |at: usize| &rows.keys[at * rows.width..][..rows.width];
        let are_equal = |a: usize, b: usize| {
            keys_of(a) == keys_of(b)
                && (a == b || !rows.nan_differs || !keys_of(a).contains(&NAN_KEY))
        };
        let mut first: Vec<usize> =
            (0..len).filter(|at| (0..*at).all(|before| !are_equal(before, *at))).collect();
        if sorted {
            first.sort_by(|a, b| keys_of(*a).cmp(keys_of(*b)));
        }
        let group_of =
            |at: usize| first.iter().position(|first| are_equal(*first, at)).unwrap() as i64;
        let of_row: Vec<i64> = (0..len).map(group_of).collect();
        let count_rows =
            |group: usize| of_row.iter().filter(|of| **of == group as i64).count() as i64;
        let counts = (0..first.len()).map(count_rows).collect();
        [first.iter().map(|first| *first as i64).collect(), of_row, counts]
    }

    #[test]
    fn all_pairs() {
        for (len, width, values) in
            [(0, 1, 3), (1, 1, 1), (40, 1, 7), (40, 3, 2), (30, 2, 3), (5, 0, 1), (300, 1, 1000)]
        {
            let make_key = |at: usize| match (at * 7919 + at / 3) % 1009 % values {
                0 => NAN_KEY,
                other => other as u64,
            };
            let keys: Vec<u64> = (0..len * width).map(make_key).collect();
            for (sorted, nan_differs) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let rows = KeyRows { keys: &keys, width, nan_differs };
                let (mut order, mut found) = (vec![[9; 2]; len], [0; 3].map(|_| vec![-1; len]));
                let [first, of_row, counts] = &mut found;
                let mut groups = Groups { first, of_row, counts };
                let count = unique(rows, sorted, &mut order, &mut groups).unwrap();
                first.truncate(count);
                counts.truncate(count);
                assert_eq!(found, naive(rows, len, sorted), "{len} {width} {sorted} {nan_differs}");
            }
        }
    }

    #[test]
    fn slices_become_rows() {
        for dims in [[2, 3, 2], [1, 4, 1], [3, 1, 5], [0, 2, 2], [2, 0, 2], [60, 40, 9]] {
            let [outer, axis, inner] = dims;
            let x: Vec<i16> = (0..outer * axis * inner).map(|at| (at * 31 % 97) as i16).collect();
            let mut found = vec![0; x.len()];
            keys(&Pool::new(2), dims.into(), &x, &mut found).unwrap();
            for (at, key) in found.iter().enumerate() {
                let [a, o, i] = [at / inner / outer, at / inner % outer, at % inner];
                assert_eq!(*key, x[(o * axis + a) * inner + i].key(), "{dims:?} {at}");
            }
        }
    }
}
