//! Long loops that end early.
//!
//! A loop that opens no region of the pool is not asked whether it is to end. It counts what it
//! does, and looks once in so many operations: counting is one subtraction.

use std::cell::Cell;

use crate::Pool;

/// Has a long loop look now and then whether it is to end (see [`Pool::look`]).
#[derive(Debug, Clone)]
pub struct Pace(Cell<usize>);

/// Operations between two looks: less than a millisecond even if each waits for memory.
const OPERATIONS: usize = 1 << 13;

impl Default for Pace {
    fn default() -> Pace {
        Pace(Cell::new(OPERATIONS))
    }
}

impl Pace {
    /// Counts operations, such as comparisons of elements.
    #[inline(always)]
    pub fn count(&self, operations: usize) {
        match self.0.get().checked_sub(operations) {
            Some(left) => self.0.set(left),
            None => self.look(),
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self) {
        self.0.set(OPERATIONS);
        Pool::look();
    }
}
