//! Typed ids, and the arenas that they index.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Position in an arena, with a type of its own for each arena.
pub trait Id: Copy + Eq {
    /// Creates the id of a position.
    fn new(index: usize) -> Self;
    /// Returns the position.
    fn index(self) -> usize;
}

macro_rules! ids {
    ($( $(#[$doc:meta])* $vis:vis $name:ident )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis struct $name(NonZeroU32);

        impl Id for $name {
            #[inline]
            fn new(index: usize) -> Self {
                // `ReadLimits` keeps arenas below this size.
                let number = u32::try_from(index).ok().and_then(|index| NonZeroU32::new(index.wrapping_add(1)));
                $name(number.expect("an arena has fewer than 2^32 - 1 entries"))
            }

            #[inline]
            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl $name {
            /// Returns the number that represents the id: its position plus 1.
            #[allow(dead_code)]
            pub(crate) fn number(self) -> u32 {
                self.0.get()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.index())
            }
        }
    )* };
}
pub(crate) use ids;

ids! {
    /// Node of a graph or function of a model.
    pub NodeId
    /// Value: an input, an initializer, an output of a node, or an undefined name.
    pub ValueId
    /// Graph: the main one, a subgraph, the body of a function or a graph of a training step.
    pub GraphId
    /// Attribute of a node.
    pub AttributeId
    /// Input position of a node.
    pub UseId
    /// Buffer that a model refers to.
    pub SourceId
    /// Rare fields of a node.
    pub(crate) ExtrasId
}

/// List whose entries are addressed by ids and never move.
#[derive(Clone)]
pub struct Arena<I, T> {
    items: Vec<T>,
    id: PhantomData<fn() -> I>,
}

impl<I: Id, T> Arena<I, T> {
    /// Adds an entry.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::new(self.items.len() - 1)
    }

    /// Reserves capacity for more entries.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.items.reserve(count);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the arena has no entries.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Iterates over the entries with their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::new(index), item))
    }

    /// Iterates over the entries, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.items.iter_mut()
    }
}

impl<I, T> Default for Arena<I, T> {
    fn default() -> Self {
        Arena { items: Vec::new(), id: PhantomData }
    }
}

impl<I: Id, T> Index<I> for Arena<I, T> {
    type Output = T;
    #[inline]
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for Arena<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}

impl<I: Id + std::fmt::Debug, T: std::fmt::Debug> std::fmt::Debug for Arena<I, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl SourceId {
    /// Returns the id of the first source, which holds the bytes that the model was read from.
    pub fn first() -> SourceId {
        Id::new(0)
    }
}
