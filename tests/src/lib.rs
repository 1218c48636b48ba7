//! Tests from outside the crates: suites as data, and the runners that judge them.
//!
//! The conformance suite consists of the backend cases of the onnx wheel. `cargo xtask conformance`
//! writes them to disk and starts the binary of the same name here: [`cases`] finds them,
//! [`workers`] runs them in processes of their own, [`run_case`] runs one, [`outcome`] holds the
//! possible outcomes, and [`expectations`] the list of the cases that do not pass yet.
//! [`round_trip`] reads and writes every file of the wheel.
//!
//! `cargo xtask conversions` converts every case to other versions of operator sets and judges it
//! as before: [`convert_case`]. It also replaces operators with the bodies of their functions, in
//! random calls of every operator with a function: [`inline_case`].
//!
//! `cargo xtask matrix` runs a case for every type that a version of an operator accepts:
//! [`cells`].
//!
//! `cargo xtask devices` runs the cases on several devices, with random annotations: [`annotate`].
//!
//! [`bench`] is shared by our programs of the contests with other programs.

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
