//! Everything that is tested from outside the crates: suites as data, and the programs that run them.
