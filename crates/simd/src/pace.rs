//! Cancellation of long loops.
//!
//! A loop that opens no parallel region is not checked for cancellation by the pool. It counts its
//! operations instead and checks once per [`OPERATIONS`]; counting costs one subtraction.

use std::cell::Cell;

use crate::{Ended, Pool};

/// Counter that makes a long loop check now and then whether it is cancelled (see
/// [`Pool::check_ended`]).
#[derive(Debug, Clone)]
pub struct Pace(Cell<usize>);

/// Work: operations between two checks for cancellation, less than a millisecond even if each waits
/// for memory.
const OPERATIONS: usize = 1 << 13;

impl Default for Pace {
    fn default() -> Pace {
        Pace(Cell::new(OPERATIONS))
    }
}

impl Pace {
    /// Counts operations, such as comparisons of elements, and checks for cancellation when enough
    /// have been counted.
    ///
    /// # Errors
    ///
    /// The loop is cancelled.
    #[inline(always)]
    pub fn count(&self, operations: usize) -> Result<(), Ended> {
        match self.0.get().checked_sub(operations) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => self.check(),
        }
    }

    /// Checks for cancellation and restarts the counter.
    #[cold]
    #[inline(never)]
    fn check(&self) -> Result<(), Ended> {
        self.0.set(OPERATIONS);
        Pool::check_ended()
    }
}
