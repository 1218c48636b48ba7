//! Seed of random operators, shared by all sessions of the process as in onnxruntime.

use std::sync::{Mutex, PoisonError};

static SEED: Mutex<Option<u64>> = Mutex::new(None);

/// Sets the seed of random operators without a seed of their own, for sessions that are created
/// later.
pub fn set_seed(seed: u64) {
    *SEED.lock().unwrap_or_else(PoisonError::into_inner) = Some(seed);
}

/// Returns the seed that was set last; `None` if each session draws other numbers.
pub fn seed() -> Option<u64> {
    *SEED.lock().unwrap_or_else(PoisonError::into_inner)
}
