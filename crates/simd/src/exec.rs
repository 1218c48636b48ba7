//! Arguments of every kernel besides its operands.

use crate::{Caches, Isa, Pool};

/// Resources of a kernel: the threads that share its work, the instruction set of its code, and the
/// cache sizes that it blocks its loops for.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    pub pool: &'a Pool,
    pub isa: Isa,
    /// Cache sizes to block for. Results do not depend on them.
    pub caches: Caches,
}

impl<'a> Exec<'a> {
    /// Makes the resources for kernels on the threads of `pool` with the instructions of `isa`,
    /// blocked for the caches of this machine.
    pub fn new(pool: &'a Pool, isa: Isa) -> Exec<'a> {
        Exec { pool, isa, caches: Caches::detect() }
    }

    /// Replaces the caches to block for.
    #[must_use]
    pub fn with_caches(self, caches: Caches) -> Exec<'a> {
        Exec { caches, ..self }
    }
}
