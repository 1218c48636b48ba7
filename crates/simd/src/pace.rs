//! Long loops that end early.
//!
//! A loop that opens no region of the pool does not ask whether it is to end. It counts its
//! operations, and asks once in so many: counting is one subtraction.

use std::cell::Cell;

use crate::{Ended, Pool};

/// Has a long loop ask now and then whether it is to end (see [`Pool::check_ended`]).
#[derive(Debug, Clone)]
pub struct Pace(Cell<usize>);

/// Work: operations between two checks for cancellation: less than a millisecond even if each waits
/// for memory.
const OPERATIONS: usize = 1 << 13;

impl Default for Pace {
    fn default() -> Pace {
        Pace(Cell::new(OPERATIONS))
    }
}

impl Pace {
    /// Counts operations, such as comparisons of elements.
    ///
    /// # Errors
    ///
    /// The loop is to end.
    #[inline(always)]
    pub fn count(&self, operations: usize) -> Result<(), Ended> {
        match self.0.get().checked_sub(operations) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => self.ask(),
        }
    }

    #[cold]
    #[inline(never)]
    fn ask(&self) -> Result<(), Ended> {
        self.0.set(OPERATIONS);
        Pool::check_ended()
    }
}
