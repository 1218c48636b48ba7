//! First-in, first-out queues by key.

use std::hash::Hash;

use hashbrown::HashMap;

/// Elements under keys, each taken once, those of a key in the order in which they were added.
///
/// One table and one list hold the queues of all keys: most keys have one element, and a list for
/// each of them would take an allocation and four times the memory.
pub(super) struct Queues<K, T> {
    ends: HashMap<K, Ends>,
    elements: Vec<Element<T>>,
}

/// Positions in the list of elements.
struct Ends {
    /// The next element to take.
    first: Option<u32>,
    last: u32,
}

struct Element<T> {
    element: T,
    next: Option<u32>,
}

impl<K: Eq + Hash, T: Copy> Queues<K, T> {
    /// Makes room for `count` elements.
    pub(super) fn with_capacity(count: usize) -> Self {
        Queues { ends: HashMap::with_capacity(count), elements: Vec::with_capacity(count) }
    }

    /// Adds an element at the end of a key's queue. Ignores elements after the first 2³², which no
    /// model has.
    pub(super) fn add(&mut self, key: K, element: T) {
        let Ok(at) = u32::try_from(self.elements.len()) else { return };
        self.elements.push(Element { element, next: None });
        let ends = self.ends.entry(key).or_insert(Ends { first: None, last: at });
        match ends.first {
            Some(_) => self.elements[ends.last as usize].next = Some(at),
            None => ends.first = Some(at),
        }
        ends.last = at;
    }

    /// Takes the first element of a key's queue.
    pub(super) fn take(&mut self, key: &K) -> Option<T> {
        let ends = self.ends.get_mut(key)?;
        let first = &self.elements[ends.first? as usize];
        ends.first = first.next;
        Some(first.element)
    }
}

#[cfg(test)]
mod tests {
    use super::Queues;

    #[test]
    fn elements_leave_their_queue_in_the_order_in_which_they_came() {
        let mut queues = Queues::with_capacity(0);
        for (key, element) in [('a', 1), ('b', 2), ('a', 3), ('a', 4)] {
            queues.add(key, element);
        }
        assert_eq!([queues.take(&'a'), queues.take(&'a')], [Some(1), Some(3)]);
        queues.add('a', 5);
        queues.add('b', 6);
        assert_eq!([(); 3].map(|()| queues.take(&'a')), [Some(4), Some(5), None]);
        queues.add('a', 7);
        assert_eq!([queues.take(&'a'), queues.take(&'c')], [Some(7), None]);
        assert_eq!([(); 3].map(|()| queues.take(&'b')), [Some(2), Some(6), None]);
    }
}
