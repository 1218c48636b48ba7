//! Elementary functions on f32 and f64.
//!
//! A function is *scalar and branch-free* (integer arithmetic on the bits, polynomials, selects),
//! so that the compiler vectorizes any loop around it ([`Level::run`](crate::Level)). The bits of a
//! result do not depend on the position of an element in a buffer, because the vector body and the
//! scalar tail of a loop are the same arithmetic.
//!
//! Largest errors of results over all numbers (`accuracy.rs` in `crates/elementwise` reads this
//! table). A bound holds in units in the last place (ULP) *or* in the column beside it: absolutely,
//! or as a part of the argument x. 0.5 ULP is the float nearest to the f64 result. For f64 the
//! reference is the standard library, so that functions taken from there directly (0.5) are as
//! accurate as the platform's C library, usually 1 ULP.
//!
//! | function | f32: ULP | or | f64: ULP | or |
//! | --- | --- | --- | --- | --- |
//! | Sqrt, Reciprocal, Square, LeakyRelu, Shrink | 0.5 | | 0.5 | |
//! | Exp | 1.5 | | 1.5 | |
//! | Log | 1 | | 1 | |
//! | Sin, Cos | 2 | 1e-14 x | 0.5 | |
//! | Tan | 4 | | 0.5 | |
//! | Asin, Acos, Atan | 2.5 | | 2.5 | |
//! | Sinh, Cosh | 2.5 | | 2.5 | |
//! | Tanh | 3 | | 3.5 | |
//! | Asinh, Acosh, Atanh | 4 | | 5 | |
//! | expm1 | 2 | | | |
//! | exp_nonpositive | 1.5 | 1e-38 | | |
//! | Erf | 1.5 | | 4 | |
//! | Sigmoid | 2.5 | | 3 | |
//! | Softplus | 3 | | 3 | |
//! | Softsign | 1.5 | | 1.5 | |
//! | Silu | 3.5 | 1e-43 | 4 | 1e-320 |
//! | Mish | 4 | 1e-43 | 5 | 1e-320 |
//! | Swish | 4 | 2e-8 x | 4 | 1e-16 x |
//! | Gelu | 2 | 6e-8 x | 4 | 3e-16 x |
//! | GeluTanh | 4 | 1e-7 x | 4 | 2e-16 x |
//! | HardSwish | 2 | 6e-8 x | 2 | 2e-16 x |
//! | HardSigmoid | 1 | 6e-8 | 1 | 2e-16 |
//! | Elu, Selu, Celu | 2.5 | | 4 | |
//! | Pow | 1.5 | | 1.5 | |
//!
//! Elu and its relatives, LeakyRelu and other functions with parameters have these errors for all
//! parameters of their own type; Swish for those up to about 2. A parameter is an f32, also for
//! f64. Pow takes the C library, except for exponents 2, 3, 0.5 and -1. f16 and bf16 compute in f32
//! and round once more. `exp_nonpositive` is the exponential of softmax and attention, for
//! arguments up to 0.

mod double;
mod inverse;
mod lanes;
mod single;

#[cfg(test)]
mod tests;

pub use double::erf as erf_f64;
pub use lanes::{Function, Lane, Lanes, RowPair, map_vectors};
pub use single::{
    Gelu, GeluTanh, MAX_REDUCED, Sigmoid, Swish, Tanh, cos_reduced, sin_reduced, tan_reduced,
};
