//! Work on several files at a time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls `work` for each item, on at most `jobs` threads, and returns the results in the order of
/// the items.
pub(crate) fn map_in_parallel<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let take_items = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(slot)) = (items.get(index), slots.get(index)) else {
                return;
            };
            let result = work(item);
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..jobs.min(items.len()) {
            scope.spawn(take_items);
        }
        take_items();
    });
    slots
        .into_iter()
        .filter_map(|slot| slot.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
        .collect()
}

/// Returns the number of processors that this process may use.
pub(crate) fn count_processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_items() {
        let items: Vec<usize> = (0..100).collect();
        for jobs in [0, 1, 3, 200] {
            assert_eq!(map_in_parallel(&items, jobs, |item| item * 2)[99], 198, "{jobs}");
        }
        assert!(map_in_parallel(&[0; 0], 4, |item| *item).is_empty());
    }
}
