//! Tests from outside the crates: suites as data, and the runners that judge them.
//!
//! The conformance suite is the backend cases of the onnx wheel. `cargo xtask conformance` writes
//! them to disk and starts the binary of the same name here: [`cases`] finds them, [`workers`] runs
//! them in processes of their own, [`run_case`] is what happens to one, [`outcome`] what may come
//! of it, and [`expectations`] the list of those that do not pass yet. [`round_trip`] reads and
//! writes every file of the wheel.
//!
//! `cargo xtask conversions` has every case converted to other versions of operator sets, and
//! judged as before: [`convert_case`]. It also has bodies put into the place of operators, in
//! random calls of all that have any: [`inline_case`].
//!
//! `cargo xtask matrix` has a case for every type that a version of an operator takes: [`cells`].
//!
//! `cargo xtask devices` runs the cases on several devices, with random annotations: [`annotate`].
//!
//! [`bench`] is what our sides of the contests with other programs share.

pub mod annotate;
pub mod bench;
pub mod cases;
pub mod cells;
pub mod convert_case;
pub mod expectations;
pub mod inline_case;
pub mod outcome;
pub mod round_trip;
pub mod run_case;
pub mod simplify_case;
mod trials;
pub mod workers;
