//! Conversion between versions of operator sets: a model that means the same.
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
//! // What has no exact equivalent is refused, and the model stays as it is.
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

/// What to convert to, and how.
#[derive(Debug, Clone)]
pub struct ConvertOptions {
    passes: passes::ConvertOptions,
    registry: Registry,
}

impl ConvertOptions {
    /// To versions of operator sets and of the format.
    pub fn new(target: Target) -> ConvertOptions {
        let passes = passes::ConvertOptions {
            target,
            expand: true,
            granted: Vec::new(),
            like_reference: false,
        };
        ConvertOptions { passes, registry: Registry::default() }
    }

    /// Leaves nodes without an equivalent of their own refused. Otherwise such a node becomes the
    /// body of its function, if it has one and the body has an equivalent.
    #[must_use]
    pub fn without_expansion(mut self) -> ConvertOptions {
        self.passes.expand = false;
        self
    }

    /// Grants an assumption. Each node that means the same only if it holds is reported.
    #[must_use]
    pub fn assume(mut self, assumption: Assumption) -> ConvertOptions {
        self.passes.granted.push(assumption);
        self
    }

    /// Does as the converter of the `onnx` package where both keep the meaning of a model. No node
    /// becomes a function, all [assumptions](Assumption) of that package are granted, constants
    /// that nodes need are `Constant` nodes before them, and what only that package refuses is
    /// refused.
    #[must_use]
    pub fn like_onnx(mut self) -> ConvertOptions {
        self.passes.expand = false;
        self.passes.like_reference = true;
        let granted =
            [Assumption::Inference, Assumption::DefaultInputs, Assumption::IntegersInFloats];
        self.passes.granted.extend(granted);
        self
    }

    /// The operators that exist: the standard's, and those that were registered.
    #[must_use]
    #[doc(hidden)]
    pub fn registry(mut self, registry: Registry) -> ConvertOptions {
        self.registry = registry;
        self
    }
}

impl Model {
    /// The same model with other versions of operator sets: each node is unchanged or rewritten,
    /// so that it means exactly the same. Weights are shared with this model.
    ///
    /// # Errors
    ///
    /// A target that does not exist, or everything that has no exact equivalent there. A result
    /// that has errors which the model does not have.
    pub fn convert(&self, options: &ConvertOptions) -> Result<(Model, ConvertReport), EditError> {
        let converted = passes::convert(&self.graph, &options.registry, &options.passes)
            .map_err(|error| EditError::from_conversion(self, error))?;
        let model = Model { graph: converted.model, ..self.clone() };
        Ok((model, converted.report))
    }
}
