//! Results of graph transformations that have errors which the input does not have.

use std::fmt;

use sardonyx_ops::Registry;
use sardonyx_passes::{self as passes, JobInput};

use sardonyx_passes::{Edit, JobKind, NewErrors};

use crate::error::{Error, ErrorKind};
use crate::model::Model;

/// Invalid result of a conversion, an inlining or another transformation of a valid model: a bug of
/// the transformation. The invalid model is kept for a bug report and not returned as a success.
#[derive(Debug, Clone)]
pub struct InvalidResult {
    errors: NewErrors,
    model: Model,
}

impl InvalidResult {
    /// Makes the error about a rejected graph that a transformation of `input` has made.
    pub(crate) fn new(input: &Model, rejected: passes::Rejected) -> InvalidResult {
        let passes::Rejected { errors, model } = rejected;
        InvalidResult { errors, model: input.with_graph(model) }
    }

    /// Returns the errors that the transformation has introduced, and the name of the
    /// transformation.
    #[doc(hidden)]
    pub fn errors(&self) -> &NewErrors {
        &self.errors
    }

    /// Returns the invalid model that the transformation has made.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Converts the error to the invalid model, for changing or writing it.
    pub fn into_model(self) -> Model {
        self.model
    }
}

impl fmt::Display for InvalidResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.errors.fmt(f)
    }
}

impl std::error::Error for InvalidResult {}

impl From<InvalidResult> for Error {
    fn from(result: InvalidResult) -> Error {
        Error::new(ErrorKind::Invalid, result.to_string())
            .with_help(format!(
                "the invalid result is a bug of {}: please report it",
                result.errors.job
            ))
            .with_source(result)
    }
}

impl Model {
    /// Checks the edited model against `before`, the model before the edits: only the
    /// [rules](Edit::rules) that the edits can break, and types if operator versions have changed.
    /// [`convert`](Model::convert), [`inline`](Model::inline) and other transformations check their
    /// results themselves.
    ///
    /// ```
    /// use sardonyx::Model;
    /// use sardonyx::tool::edits::{Edit, JobKind};
    /// use sardonyx::tool::ModelExt;
    ///
    /// let before = Model::from_text(
    ///     "<ir_version: 8, opset_import: [\"\": 17]>
    ///      g (float[2, 3] x) => (float[2, 1] y) { y = ReduceMax <axes = [1]> (x) }",
    /// )?;
    /// let mut model = before.clone();
    /// model.set_opset("", 18);
    /// let invalid = model.check_edits(&before, JobKind::Set, &[Edit::OperatorSets]).unwrap_err();
    /// assert_eq!(invalid.errors().listed[0].finding.code.name, "unknown-attribute");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`InvalidResult`] with the errors that the model did not have before.
    pub(crate) fn check_edits(
        &self,
        before: &Model,
        job: JobKind,
        edits: &[Edit],
    ) -> Result<(), Box<InvalidResult>> {
        let registry = Registry::with_microsoft();
        let input = JobInput { job, model: &before.graph, registry: &registry };
        input
            .check_edits(&self.graph, edits)
            .map_err(|errors| Box::new(InvalidResult { errors, model: self.clone() }))
    }

    /// Fails if `result`, a transformation of this model, has errors that this model does not have.
    /// Nodes of `result` need not be traceable to nodes of this model.
    #[cfg(feature = "device")]
    pub(crate) fn check_untraced_result(
        &self,
        job: JobKind,
        result: Model,
    ) -> Result<Model, Error> {
        let registry = Registry::with_microsoft();
        let input = JobInput { job, model: &self.graph, registry: &registry };
        match input.check(&result.graph, &passes::Origins::unknown()) {
            Ok(()) => Ok(result),
            Err(errors) => Err(InvalidResult { errors, model: result }.into()),
        }
    }
}
