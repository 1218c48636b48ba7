//! What a session and its runs take, counted before it is taken.
//!
//! A session counts values that it computes ahead of time and packed forms of what the file does
//! not store. A run goes on from there with its arena, the values that have memory of their own,
//! and the scratch memory of its steps.

use std::cell::Cell;
use std::fmt;

/// Bytes that are taken, and how many may be.
#[derive(Debug)]
pub(crate) struct Account {
    limit: usize,
    taken: Cell<usize>,
    /// What was refused last.
    refused: Cell<Option<Refused>>,
}

/// Why bytes are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    wanted: usize,
    taken: usize,
    limit: usize,
}

impl Account {
    /// An account in which `taken` bytes are taken already. `None` for no limit.
    pub(crate) fn new(limit: Option<usize>, taken: usize) -> Account {
        Account {
            limit: limit.unwrap_or(usize::MAX),
            taken: Cell::new(taken),
            refused: Cell::new(None),
        }
    }

    /// An account with the same limit, in which more bytes are taken.
    pub(crate) fn more(&self, bytes: usize) -> Account {
        Account {
            limit: self.limit,
            taken: Cell::new(self.taken().saturating_add(bytes)),
            refused: Cell::new(None),
        }
    }

    /// An account with the same limit, in which fewer bytes are taken.
    pub(crate) fn less(&self, bytes: usize) -> Account {
        Account {
            limit: self.limit,
            taken: Cell::new(self.taken().saturating_sub(bytes)),
            refused: Cell::new(None),
        }
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit != usize::MAX
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.get()
    }

    /// How many more bytes may be taken.
    pub(crate) fn left(&self) -> usize {
        self.limit.saturating_sub(self.taken.get())
    }

    /// Takes bytes.
    pub(crate) fn charge(&self, wanted: usize) -> Result<(), Refused> {
        let taken = self.taken.get();
        match taken.checked_add(wanted).filter(|sum| *sum <= self.limit) {
            Some(sum) => {
                self.taken.set(sum);
                Ok(())
            }
            None => {
                let refused = Refused { wanted, taken, limit: self.limit };
                self.refused.set(Some(refused));
                Err(refused)
            }
        }
    }

    /// What was refused last, if anything was.
    pub(crate) fn refused(&self) -> Option<Refused> {
        self.refused.get()
    }

    /// Gives bytes back.
    pub(crate) fn credit(&self, bytes: usize) {
        self.taken.set(self.taken.get().saturating_sub(bytes));
    }

    /// Says how many bytes are taken now that a step has ended: its scratch memory is gone.
    #[inline]
    pub(crate) fn settle(&self, taken: usize) {
        self.taken.set(taken);
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, taken, limit) = (self.wanted, self.taken, self.limit);
        write!(f, "{wanted} bytes are needed and {taken} are in use; the memory limit is {limit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_the_limit() {
        let account = Account::new(Some(100), 30);
        account.charge(60).unwrap();
        let refused = account.charge(11).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "11 bytes are needed and 90 are in use; the memory limit is 100"
        );
        account.charge(10).unwrap();
        account.credit(50);
        assert_eq!((account.taken(), account.left()), (50, 50));
        assert_eq!(account.refused(), Some(refused));
        assert_eq!(account.less(20).left(), 70);
        account.settle(10);
        assert_eq!((account.taken(), account.left()), (10, 90));
        assert!(account.charge(usize::MAX).is_err());
        assert!(Account::new(None, 1).charge(usize::MAX).is_err());
    }
}
