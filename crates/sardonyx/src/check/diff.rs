//! Compares two versions of a model: lists added, removed, renamed and changed parts, and rates
//! the effect on callers as a major, minor or patch version.
//!
//! ```
//! use sardonyx::Model;
//! use sardonyx::check::diff::{DiffOptions, Impact, NodeChangeKind};
//!
//! let model = |types: &str, nodes: &str| {
//!     let text = format!("<ir_version: 10, opset_import: [\"\": 21]> g {types} {{ {nodes} }}");
//!     Model::from_text(&text)
//! };
//! let before = model("(float[4] x) => (float[4] y)", "y = Relu (x)")?;
//! let after = model("(float[N] x) => (float[N] y)", "y = Gelu (x)")?;
//! let diff = before.diff(&after, &DiffOptions::default());
//! assert_eq!(diff.graphs[0].nodes[0].kind, NodeChangeKind::Changed);
//! assert_eq!(diff.graphs[0].nodes[0].after.as_deref(), Some("y = Gelu (x)"));
//! // The output may have any size now, for which a caller of the first model is not prepared.
//! assert_eq!(diff.version.impact, Impact::Major);
//! assert!(before.diff(&before, &DiffOptions::default()).is_empty());
//! # Ok::<(), sardonyx::Error>(())
//! ```

use sardonyx_passes::{self as passes, ModelWithData};

use crate::model::Model;

#[doc(inline)]
pub use sardonyx_passes::{
    ConstantChange, DiffOptions, FieldChange, GraphDiff, Impact, ImportChange, ModelDiff,
    NodeChange, NodeChangeKind, NodeDetail, PartChange, PortChange, PortKind, Spread, TensorChange,
    VersionAdvice,
};

impl Model {
    /// Compares this model with `after`, a later version of it.
    ///
    /// Nodes are matched by the names of their outputs, by their computation, and by their order.
    /// Weights are compared piece by piece, unless [`DiffOptions::values`] is `false`. A tensor
    /// that cannot be read is [`TensorChange::Unknown`]. Where tensors are stored and the order of
    /// nodes make no difference.
    pub fn diff(&self, after: &Model, options: &DiffOptions) -> ModelDiff {
        passes::diff(
            ModelWithData { model: &self.graph, data: &*self.data },
            ModelWithData { model: &after.graph, data: &*after.data },
            *options,
        )
    }
}
