//! Converts models between versions of operator sets without a change of their results.
//!
//! ```
//! use sardonyx::{Model, convert};
//!
//! let model = Model::from_text(
//!     "<ir_version: 8, opset_import: [\"\": 17]>
//!      g (float[2, 3] x) => (float[2, 1] y) { y = ReduceMax <axes = [1]> (x) }",
//! )?;
//! let to_18 = convert::ConvertOptions::new(convert::Target::new().opset("", 18));
//! let (newer, report) = model.convert(&to_18)?;
//! assert_eq!((report.operators[0].op, report.operators[0].rewritten), ("ReduceMax", 1));
//! assert_eq!(newer.opsets()[0].version, 18);
//!
//! // A node without an exact equivalent in the target is an error; the model is unchanged.
//! let newest = Model::from_text(
//!     "<ir_version: 8, opset_import: [\"\": 18]>
//!      g (float[2] x) => (float[2] y) { y = BitwiseNot (x) }",
//! )?;
//! let to_17 = convert::ConvertOptions::new(convert::Target::new().opset("", 17));
//! let refused = newest.convert(&to_17);
//! assert!(refused.unwrap_err().to_string().contains("BitwiseNot"));
//! # Ok::<(), sardonyx::Error>(())
//! ```

use sardonyx_ops::Registry;
use sardonyx_passes as passes;

use crate::edit_error::EditError;
use crate::model::Model;

#[doc(inline)]
pub use sardonyx_ops::Assumption;
#[doc(inline)]
pub use sardonyx_passes::{Assumed, ConvertReport, ConvertedImport, ConvertedOperator, Target};

/// Target versions of a conversion, and the changes that the conversion may make.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    passes: passes::ConvertOptions,
    registry: Registry,
}

impl ConvertOptions {
    /// Creates the options for a conversion to `target`: versions of operator sets and of the file
    /// format. Nodes may be expanded to function bodies, and no assumption is allowed.
    pub fn new(target: Target) -> ConvertOptions {
        let passes = passes::ConvertOptions {
            target,
            expand: true,
            granted: Vec::new(),
            like_reference: false,
        };
        ConvertOptions { passes, registry: Registry::default() }
    }

    /// Rejects nodes whose operator the target versions lack. By default such a node is expanded to
    /// the operator's function body, if the standard defines one that the target versions can
    /// represent.
    #[must_use]
    pub fn without_expansion(mut self) -> ConvertOptions {
        self.passes.expand = false;
        self
    }

    /// Allows conversions that are exact only if `assumption` holds. The report lists the nodes
    /// that rely on the assumption.
    #[must_use]
    pub fn assume(mut self, assumption: Assumption) -> ConvertOptions {
        self.passes.granted.push(assumption);
        self
    }

    /// Matches the version converter of the `onnx` package where that converter preserves the
    /// results of a model. Nodes are not expanded to function bodies, [assumptions](Assumption) of
    /// that package are allowed, added constants are `Constant` nodes, and models that only that
    /// package rejects are rejected too.
    #[must_use]
    pub fn like_onnx(mut self) -> ConvertOptions {
        self.passes.expand = false;
        self.passes.like_reference = true;
        let granted =
            [Assumption::Inference, Assumption::DefaultInputs, Assumption::IntegersInFloats];
        self.passes.granted.extend(granted);
        self
    }

    /// Sets the registry of known operators: operators of the standard and operators that the
    /// program adds.
    #[must_use]
    #[doc(hidden)]
    pub fn registry(mut self, registry: Registry) -> ConvertOptions {
        self.registry = registry;
        self
    }
}

impl Model {
    /// Converts the model to other versions of operator sets. Each node is kept, or rewritten to
    /// nodes with exactly the same results. The returned model shares its weights with this one.
    ///
    /// # Errors
    ///
    /// The target versions do not exist; nodes have no exact equivalent in them, and the error
    /// lists all such nodes; or the converted model would have errors that this model does not
    /// have.
    pub fn convert(&self, options: &ConvertOptions) -> Result<(Model, ConvertReport), EditError> {
        let converted = passes::convert(&self.graph, &options.registry, &options.passes)
            .map_err(|error| EditError::from_conversion(self, error))?;
        let model = Model { graph: converted.model, ..self.clone() };
        Ok((model, converted.report))
    }
}
