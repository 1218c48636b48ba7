//! Accounts of the memory that a session and its runs use, charged before the memory is allocated.
//!
//! A session charges the values that it computes ahead of time and packed forms of constants that
//! the file does not store. A run continues from there with its arena, the values that have memory
//! of their own, and the scratch memory of its steps.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Limit of the memory, in bytes, that several sessions and all their runs use together.
///
/// It counts values that are computed ahead of time, packed forms of constants that the file does
/// not store, intermediate values, outputs until the run ends, copies of inputs, and scratch
/// memory. Clones share one budget.
#[derive(Debug, Clone)]
pub struct MemoryBudget(Arc<BudgetState>);

/// State that the clones of a budget share.
#[derive(Debug)]
struct BudgetState {
    limit: usize,
    used: AtomicUsize,
}

/// Charged bytes and their limit.
#[derive(Debug)]
pub(crate) struct Account {
    limit: usize,
    taken: Cell<usize>,
    /// Last charge that was refused.
    refused: Cell<Option<Refused>>,
    /// Budget that is charged as well.
    budget: Option<MemoryBudget>,
    /// Bytes of this account that are charged to the budget.
    reserved: Cell<usize>,
}

/// Bytes charged to a budget, credited when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Option<MemoryBudget>,
    bytes: usize,
}

/// Charge that exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    wanted: usize,
    taken: usize,
    limit: usize,
}

impl Account {
    /// Makes an account with `taken` bytes charged already. A `limit` of `None` means no limit.
    pub(crate) fn new(limit: Option<usize>, taken: usize) -> Account {
        Account::with_budget(limit, taken, None)
    }

    /// Makes an account that also charges further bytes to `budget`.
    pub(crate) fn with_budget(
        limit: Option<usize>,
        taken: usize,
        budget: Option<&MemoryBudget>,
    ) -> Account {
        Account {
            limit: limit.unwrap_or(usize::MAX),
            taken: Cell::new(taken),
            refused: Cell::new(None),
            budget: budget.cloned(),
            reserved: Cell::new(0),
        }
    }

    /// Returns an account with the tighter of both limits and `bytes` more charged. It has no
    /// budget.
    pub(crate) fn with_more(&self, bytes: usize) -> Account {
        let (limit, taken) = self.tighter();
        Account::new(Some(limit), taken.saturating_add(bytes))
    }

    /// Returns an account with the tighter of both limits and `bytes` fewer charged. It has no
    /// budget.
    pub(crate) fn with_less(&self, bytes: usize) -> Account {
        let (limit, taken) = self.tighter();
        Account::new(Some(limit), taken.saturating_sub(bytes))
    }

    /// Returns the limit that leaves fewer bytes, and the bytes charged against it.
    fn tighter(&self) -> (usize, usize) {
        let own = (self.limit, self.charged_bytes());
        let Some(budget) = &self.budget else { return own };
        let shared = (budget.limit(), budget.used());
        let left = |(limit, taken): (usize, usize)| limit.saturating_sub(taken);
        if left(shared) < left(own) { shared } else { own }
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit != usize::MAX || self.budget.is_some()
    }

    /// Moves the bytes charged to the budget into a reservation, which may outlive the account.
    pub(crate) fn reserve(&self) -> Reservation {
        Reservation { budget: self.budget.clone(), bytes: self.reserved.take() }
    }

    pub(crate) fn charged_bytes(&self) -> usize {
        self.taken.get()
    }

    /// Returns the number of bytes that may still be charged.
    pub(crate) fn left(&self) -> usize {
        let (limit, taken) = self.tighter();
        limit.saturating_sub(taken)
    }

    /// Charges `wanted` bytes to the account and its budget.
    pub(crate) fn charge(&self, wanted: usize) -> Result<(), Refused> {
        let charged = self.charge_both(wanted);
        charged.inspect_err(|refused| self.refused.set(Some(*refused)))
    }

    fn charge_both(&self, wanted: usize) -> Result<(), Refused> {
        let taken = self.taken.get();
        let sum = taken.checked_add(wanted).filter(|sum| *sum <= self.limit);
        let sum = sum.ok_or(Refused { wanted, taken, limit: self.limit })?;
        if let Some(budget) = &self.budget {
            budget.charge(wanted)?;
            self.reserved.set(self.reserved.get() + wanted);
        }
        self.taken.set(sum);
        Ok(())
    }

    /// Returns the last refused charge.
    pub(crate) fn last_refused(&self) -> Option<Refused> {
        self.refused.get()
    }

    /// Credits `bytes` bytes.
    pub(crate) fn credit(&self, bytes: usize) {
        self.settle(self.taken.get().saturating_sub(bytes));
    }

    /// Sets the charged bytes to `taken` after a step, whose scratch memory is free by then.
    #[inline]
    pub(crate) fn settle(&self, taken: usize) {
        let before = self.taken.replace(taken);
        if let Some(budget) = &self.budget {
            let reserved = self.reserved.get();
            let now = reserved.saturating_add(taken).saturating_sub(before);
            budget.change(reserved, now);
            self.reserved.set(now);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        drop(self.reserve());
    }
}

impl Reservation {
    /// Returns the budget that counts the bytes, if there is one.
    pub(crate) fn budget(&self) -> Option<&MemoryBudget> {
        self.budget.as_ref()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.change(self.bytes, 0);
        }
    }
}

impl MemoryBudget {
    /// Makes a budget of `bytes` bytes.
    pub fn new(bytes: usize) -> MemoryBudget {
        MemoryBudget(Arc::new(BudgetState { limit: bytes, used: AtomicUsize::new(0) }))
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// Returns the number of bytes that sessions and runs use at the moment.
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    fn charge(&self, wanted: usize) -> Result<(), Refused> {
        let limit = self.limit();
        let more = |used: usize| used.checked_add(wanted).filter(|sum| *sum <= limit);
        let charged = self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        charged.map(drop).map_err(|taken| Refused { wanted, taken, limit })
    }

    /// Replaces a charge of `before` bytes by one of `after` bytes.
    fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.0.used.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.0.used.fetch_sub(before - after, Ordering::Relaxed);
        }
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
        assert_eq!((account.charged_bytes(), account.left()), (50, 50));
        assert_eq!(account.last_refused(), Some(refused));
        assert_eq!(account.with_less(20).left(), 70);
        account.settle(10);
        assert_eq!((account.charged_bytes(), account.left()), (10, 90));
        assert!(account.charge(usize::MAX).is_err());
        assert!(Account::new(None, 1).charge(usize::MAX).is_err());
    }

    #[test]
    fn accounts_share_a_budget() {
        let budget = MemoryBudget::new(100);
        let one = Account::with_budget(None, 0, Some(&budget));
        let other = Account::with_budget(Some(50), 7, Some(&budget));
        one.charge(70).unwrap();
        assert_eq!((budget.used(), one.left(), other.left()), (70, 30, 30));
        let refused = other.charge(31).unwrap_err();
        let text = "31 bytes are needed and 70 are in use; the memory limit is 100";
        assert_eq!(
            (refused.to_string().as_str(), budget.used(), other.charged_bytes()),
            (text, 70, 7)
        );
        other.charge(10).unwrap();
        assert!(other.with_more(10).charge(11).is_err());
        one.settle(20);
        assert_eq!((budget.used(), other.left()), (30, 33));
        other.credit(17);
        assert_eq!((budget.used(), other.charged_bytes()), (20, 0));
        let kept = one.reserve();
        drop((one, other));
        assert_eq!(budget.used(), 20);
        drop(kept);
        assert_eq!(budget.used(), 0);
    }
}
