//! Typed ids and the arenas they point into.

use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// A position in an arena, with a type of its own.
pub trait Id: Copy + Eq {
    /// From a position.
    fn new(index: usize) -> Self;
    /// The position.
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
                // Reading stops before an arena reaches this size; see `ReadLimits`.
                let number = u32::try_from(index).ok().and_then(|index| NonZeroU32::new(index.wrapping_add(1)));
                $name(number.expect("an arena has fewer than 2^32 - 1 entries"))
            }

            #[inline]
            fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }

        impl $name {
            /// The number that stands for it: its position, plus 1.
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
    /// A node, of any graph or function of a model.
    pub NodeId
    /// A value: an input, an initializer, an output of a node, or a name that nothing defines.
    pub ValueId
    /// A graph: the main one, a subgraph, the body of a function, a graph of the training section.
    pub GraphId
    /// An attribute of a node.
    pub AttributeId
    /// An input position of a node.
    pub UseId
    /// A piece of memory that a model refers to.
    pub SourceId
    /// What few nodes have, of a node that has it.
    pub(crate) ExtrasId
}

/// A list whose entries are named by ids and never move.
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

    /// Makes room for more entries.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.items.reserve(count);
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// All entries with their ids.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items.iter().enumerate().map(|(index, item)| (I::new(index), item))
    }

    /// All entries, to be changed.
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
    /// The first source: the bytes that a model was read from.
    pub fn first() -> SourceId {
        Id::new(0)
    }
}
