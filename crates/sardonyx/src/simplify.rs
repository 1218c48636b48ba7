//! Replaces a model by one that computes the same with fewer nodes.
//!
//! ```
//! use sardonyx::{Model, edit};
//!
//! let model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21]>
//!      g (float[N] x) => (float[N] y) { a = Identity (x) b = Neg (a) c = Neg (b) y = Abs (c) }",
//! )?;
//! let (simple, report) = model.simplify(&edit::SimplifyOptions::new())?;
//! assert_eq!((simple.node_count(), report.before.nodes), (1, 4));
//! # Ok::<(), sardonyx::Error>(())
//! ```

use sardonyx_model as graph;
use sardonyx_ops::Registry;
use sardonyx_passes::{self as passes, SimplifyError};
use sardonyx_runtime::{self as runtime, Optimization};
use sardonyx_tensor::{Tensor, Value};

use sardonyx_model::NoExternalData;
use sardonyx_passes::{SimplifyLevel, SimplifyReport};

use crate::edit_error::EditError;
use crate::external::WatchedFiles;
use crate::model::Model;

/// Options of [`Model::simplify`].
#[derive(Debug, Clone)]
pub struct SimplifyOptions {
    level: SimplifyLevel,
    grow: Option<u64>,
    without: Vec<String>,
    verifies: bool,
}

impl Default for SimplifyOptions {
    fn default() -> Self {
        SimplifyOptions {
            level: SimplifyLevel::Exact,
            grow: None,
            without: Vec::new(),
            verifies: true,
        }
    }
}

impl SimplifyOptions {
    /// Creates the default options: results keep their bits, all rules are applied, and each
    /// rewrite is verified by running its nodes.
    pub fn new() -> SimplifyOptions {
        SimplifyOptions::default()
    }

    /// Sets the extent of rewrites.
    #[must_use]
    pub fn level(mut self, level: SimplifyLevel) -> SimplifyOptions {
        self.level = level;
        self
    }

    /// Sets the bytes by which computed constants may be larger, in all, than the constants that
    /// they make unnecessary. By default it is a hundredth of the model's constants, but at least
    /// 16 KiB, and at most 1 MiB.
    #[must_use]
    pub fn grow(mut self, bytes: u64) -> SimplifyOptions {
        self.grow = Some(bytes);
        self
    }

    /// Leaves out a rule. [`simplify_rules`](crate::edit::simplify_rules) lists their names.
    #[must_use]
    pub fn without_rule(mut self, rule: impl Into<String>) -> SimplifyOptions {
        self.without.push(rule.into());
        self
    }

    /// Skips running the nodes of each rewrite, before and after, on drawn values.
    #[must_use]
    pub fn without_verification(mut self) -> SimplifyOptions {
        self.verifies = false;
        self
    }
}

impl Model {
    /// Replaces the model by one that computes the same with fewer nodes, at the same versions of
    /// operator sets. Inputs and outputs, their types, and metadata stay. The returned model shares
    /// its weights with this one, as far as they stay.
    ///
    /// # Errors
    ///
    /// A rule to leave out that does not exist; a model that cannot run, such as one with undefined
    /// names; a result with errors that this model does not have.
    pub fn simplify(
        &self,
        options: &SimplifyOptions,
    ) -> Result<(Model, SimplifyReport), EditError> {
        let external = WatchedFiles::new(&self.data);
        let passes_options = passes::SimplifyOptions {
            level: options.level,
            grow: options.grow,
            without: &options.without,
            external: &external,
            evaluate: Some(&Engine),
            verify: options.verifies,
        };
        let simplified = passes::simplify(&self.graph, &Registry::default(), &passes_options);
        let simplified = simplified.map_err(|error| self.simplify_error(error))?;
        let mut model = Model { graph: simplified.model, ..self.clone() };
        // Packed weights are found by the places of constants, which others have now.
        model.weights = runtime::SharedWeights::default();
        Ok((model, simplified.report))
    }

    fn simplify_error(&self, error: SimplifyError) -> EditError {
        match error {
            SimplifyError::UnknownRule(name) => {
                let names = passes::simplify_rules().into_iter().map(|rule| rule.name);
                let names: Vec<&str> = names.collect();
                let names = names.join(", ");
                EditError::Option(format!("unknown rule '{name}'; rules are: {names}"))
            }
            SimplifyError::Findings(findings) => EditError::NotSimplifiable(findings),
            SimplifyError::Invalid(rejected) => EditError::from_rejected(self, *rejected),
        }
    }
}

/// Limit: bytes that running a part of a model takes.
const MOST_MEMORY: usize = 1 << 32;

/// Runs parts of a model without optimization.
struct Engine;

impl passes::Evaluate for Engine {
    fn evaluate(&self, model: graph::Model, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
        match runtime::catch_panic(|| run(&model, inputs)) {
            Ok(found) => found,
            Err(_) => Err("the engine failed".to_string()),
        }
    }
}

/// Compiles a model without optimization, and runs it.
fn run(model: &graph::Model, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
    let mut options = runtime::Options::default();
    options.optimization = Optimization::Off;
    options.memory_limit = Some(MOST_MEMORY);
    // Parts are small, and their weights are read where they are.
    options.threads = Some(1);
    options.keeps_mapped = true;
    let session = runtime::Session::compile(model, &NoExternalData, &options)
        .map_err(|error| error.to_string())?;
    let names = session.inputs().iter().map(|port| port.name().to_string());
    let inputs = names.zip(inputs.into_iter().map(Value::Tensor)).collect();
    let outputs = session.run(inputs).map_err(|error| error.to_string())?;
    let tensors = outputs.into_iter().map(|(name, value)| match value {
        Value::Tensor(tensor) => Ok(tensor),
        _ => Err(format!("the output '{name}' is not a tensor")),
    });
    tensors.collect()
}
