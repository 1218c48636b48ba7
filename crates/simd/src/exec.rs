//! What every kernel is given besides its operands.

use crate::{Isa, Pool};

/// With what a kernel computes: the threads that share its work, and the instruction set whose code
/// they run.
#[derive(Clone, Copy, Debug)]
pub struct Exec<'a> {
    pub pool: &'a Pool,
    pub isa: Isa,
}
