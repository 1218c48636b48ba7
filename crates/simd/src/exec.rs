//! Argument of every kernel besides its operands.

use crate::{Caches, Isa, Pool};

/// With what a kernel computes: the threads that share its work, the instruction set whose code
/// they run, and the caches that it blocks its loops for.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    pub pool: &'a Pool,
    pub isa: Isa,
    /// Caches to block for. Results are the same for all sizes.
    pub caches: Caches,
}

impl<'a> Exec<'a> {
    /// Computes on the threads of `pool` with the instructions of `isa`, blocked for the caches of
    /// this machine.
    pub fn new(pool: &'a Pool, isa: Isa) -> Exec<'a> {
        Exec { pool, isa, caches: Caches::detect() }
    }

    /// Replaces the caches to block for.
    #[must_use]
    pub fn with_caches(self, caches: Caches) -> Exec<'a> {
        Exec { caches, ..self }
    }
}
