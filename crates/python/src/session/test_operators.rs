//! Operators that builds with debug assertions have, for tests of the package.
//!
//! `ai.sardonyx.test.Panic` returns its input, a tensor of floats, and panics on a negative
//! element: a bug of the engine, as a test can have one. `HAS_TEST_OPERATORS` of the module says
//! whether it is there.

use sardonyx::{Model, SessionBuilder};

/// Domain of the operators.
#[cfg(debug_assertions)]
const DOMAIN: &str = "ai.sardonyx.test";

/// Adds the operators to the session of a model that imports their domain.
#[cfg(debug_assertions)]
pub(crate) fn add_to<'m>(builder: SessionBuilder<'m>, model: &Model) -> SessionBuilder<'m> {
    use sardonyx::ops::{OperatorCall, OperatorError};

    if !model.opsets().iter().any(|opset| opset.domain == DOMAIN) {
        return builder;
    }
    let panic = |call: &mut OperatorCall<'_, '_>| -> Result<(), OperatorError> {
        let dims = call.dims(0)?.to_vec();
        let x = call.slice::<f32>(0)?.to_vec();
        assert!(x.iter().all(|x| *x >= 0.0), "an element is negative");
        call.output_slice::<f32>(0, &dims)?.copy_from_slice(&x);
        Ok(())
    };
    builder.operator(DOMAIN, "Panic", panic)
}

/// Adds nothing.
#[cfg(not(debug_assertions))]
pub(crate) fn add_to<'m>(builder: SessionBuilder<'m>, _: &Model) -> SessionBuilder<'m> {
    builder
}
