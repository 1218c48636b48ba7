//! Operators for tests of the package, in builds with debug assertions only.
//!
//! `ai.sardonyx.test.Panic` returns its input, a tensor of floats, and panics on a negative
//! element, so that tests can provoke a bug of the engine. `HAS_TEST_OPERATORS` of the Python
//! module is true if the operator exists.

use sardonyx::{Model, SessionBuilder};

/// Domain of the test operators.
#[cfg(debug_assertions)]
const DOMAIN: &str = "ai.sardonyx.test";

/// Adds the test operators to the session of a model that imports their domain.
#[cfg(debug_assertions)]
pub(crate) fn add_test_operators<'m>(
    builder: SessionBuilder<'m>,
    model: &Model,
) -> SessionBuilder<'m> {
    use sardonyx::ops::{OperatorCall, OperatorError};

    if !model.opsets().iter().any(|opset| opset.domain == DOMAIN) {
        return builder;
    }
    builder.operator(
        DOMAIN,
        "Panic",
        |call: &mut OperatorCall<'_, '_>| -> Result<(), OperatorError> {
            let dims = call.dims(0)?.to_vec();
            let x = call.slice::<f32>(0)?.to_vec();
            assert!(x.iter().all(|x| *x >= 0.0), "an element is negative");
            call.output_slice::<f32>(0, &dims)?.copy_from_slice(&x);
            Ok(())
        },
    )
}

/// Returns the builder unchanged: release builds have no test operators.
#[cfg(not(debug_assertions))]
pub(crate) fn add_test_operators<'m>(builder: SessionBuilder<'m>, _: &Model) -> SessionBuilder<'m> {
    builder
}
