//! Calls of functions replaced by what the functions do.
//!
//! ```
//! use sardonyx::{Model, edit};
//!
//! let mut model = Model::from_text(
//!     "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>
//!      g (float[N] x) => (float[N] y) { y = local.twice (x) }
//!      <domain: \"local\", opset_import: [\"\": 21]>
//!      twice (a) => (b) { b = Add (a, a) }",
//! )?;
//! let report = model.inline(&edit::InlineOptions::new()).expect("nothing stands against it");
//! assert_eq!(report.functions.values().sum::<usize>(), 1);
//! assert_eq!((model.node_count(), model.functions().len()), (1, 0));
//! # Ok::<(), sardonyx::Error>(())
//! ```

use sardonyx_model::Function;
use sardonyx_ops::{OpRef, Registry};
use sardonyx_passes as passes;
use sardonyx_runtime::has_kernel;

use sardonyx_passes::{FunctionId, InlineReport};

use crate::edit_error::EditError;
use crate::glob::Glob;
use crate::model::Model;

/// Which functions of a model.
#[derive(Debug, Clone, Default)]
enum Functions {
    #[default]
    All,
    Only(Vec<String>),
    Except(Vec<String>),
}

/// Which operators of the standard, as far as they are functions of others.
#[derive(Debug, Clone, Default)]
enum Operators {
    #[default]
    None,
    WithoutKernel,
    Only(Vec<String>),
    Except(Vec<String>),
}

/// What is inlined, and what it may cost.
#[derive(Debug, Clone)]
pub struct InlineOptions {
    functions: Functions,
    operators: Operators,
    limit: u64,
    keep_conflicting: bool,
    convert: bool,
}

impl Default for InlineOptions {
    fn default() -> Self {
        InlineOptions {
            functions: Functions::All,
            operators: Operators::None,
            limit: passes::InlineOptions::LIMIT,
            keep_conflicting: false,
            convert: true,
        }
    }
}

/// Patterns are `domain.name` for functions with any overload, or `domain.name:overload`. The
/// default domain is `ai.onnx`, and may be left out. `*` and `?` mean what they do in a [`Glob`].
impl InlineOptions {
    /// All functions of the model, and no operators.
    pub fn new() -> InlineOptions {
        InlineOptions::default()
    }

    /// Only functions that fit one of the patterns.
    #[must_use]
    pub fn only(mut self, patterns: impl IntoIterator<Item = impl Into<String>>) -> InlineOptions {
        self.functions = Functions::Only(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// All functions but those that fit one of the patterns.
    #[must_use]
    pub fn except(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.functions = Functions::Except(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Also operators of the standard that fit one of the patterns and are functions of others.
    #[must_use]
    pub fn operators(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.operators = Operators::Only(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Also all operators of the standard that are functions of others, but those that fit one of
    /// the patterns.
    #[must_use]
    pub fn operators_except(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.operators = Operators::Except(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Also all operators of the standard that are functions of others and have no kernel here.
    #[must_use]
    pub fn operators_without_kernel(mut self) -> InlineOptions {
        self.operators = Operators::WithoutKernel;
        self
    }

    /// How many nodes may come in the place of calls: 10 million by default.
    #[must_use]
    pub fn limit(mut self, nodes: u64) -> InlineOptions {
        self.limit = nodes;
        self
    }

    /// Leaves calls as they are that cannot be inlined, and lists them in
    /// [`InlineReport::kept`](InlineReport). Otherwise the model is refused for them.
    #[must_use]
    pub fn keep_conflicting(mut self, keep: bool) -> InlineOptions {
        self.keep_conflicting = keep;
        self
    }

    /// Converts no function. A call of a function that means something else at the versions of the
    /// model cannot be inlined then.
    #[must_use]
    pub fn without_conversion(mut self) -> InlineOptions {
        self.convert = false;
        self
    }
}

impl Model {
    /// Replaces calls of functions by what the functions do, in all graphs and in functions that
    /// stay. Functions that nothing calls any more are removed. Where a function is called and
    /// other versions of operator sets count, at which it means something else, a copy of it is
    /// converted to these.
    ///
    /// What calls a function is as in a [`Session`](crate::Session): a node whose domain and name
    /// are those of an operator of the standard, in the version that the model or the function
    /// around the node imports, is no call of a function of that name.
    ///
    /// # Errors
    ///
    /// [`EditError`]; the model is unchanged.
    pub fn inline(&mut self, options: &InlineOptions) -> Result<InlineReport, EditError> {
        let registry = Registry::standard();
        self.check_patterns(options, &registry)?;
        let fits_function = |model: &sardonyx_model::Model, function: &Function| {
            let id = FunctionId::of(model, function);
            match &options.functions {
                Functions::All => true,
                Functions::Only(patterns) => fits_any(patterns, &id),
                Functions::Except(patterns) => !fits_any(patterns, &id),
            }
        };
        let fits_operator = |op: OpRef| match &options.operators {
            Operators::None => false,
            Operators::WithoutKernel => !has_kernel(op),
            Operators::Only(patterns) => fits_any(patterns, &id_of(op.def.domain, op.def.name)),
            Operators::Except(patterns) => !fits_any(patterns, &id_of(op.def.domain, op.def.name)),
        };
        let any = !matches!(options.operators, Operators::None);
        let passes = passes::InlineOptions {
            functions: &fits_function,
            operators: any.then_some(&fits_operator as &dyn Fn(OpRef) -> bool),
            limit: options.limit,
            keep_conflicting: options.keep_conflicting,
            convert: options.convert,
        };
        let inlined = sardonyx_passes::inline(&self.graph, &registry, &passes);
        let (graph, mut report) =
            inlined.map_err(|refusal| EditError::from_inlining(self, refusal))?;
        // Who names all operators, or all but some, means those that are functions.
        report.without_body.retain(|kept| {
            let id = id_of(&kept.domain, &kept.name);
            let is_named = |pattern: &&String| !pattern.contains(['*', '?']) && fits(pattern, &id);
            match &options.operators {
                Operators::Only(patterns) => {
                    kept.has_function || patterns.iter().find(is_named).is_some()
                }
                Operators::None | Operators::Except(_) => kept.has_function,
                Operators::WithoutKernel => true,
            }
        });
        self.graph = graph;
        Ok(report)
    }

    /// Whether each pattern names something.
    fn check_patterns(
        &self,
        options: &InlineOptions,
        registry: &Registry,
    ) -> Result<(), EditError> {
        if let Functions::Only(patterns) | Functions::Except(patterns) = &options.functions {
            let functions = self.graph.functions.iter();
            let ids: Vec<FunctionId> =
                functions.map(|function| FunctionId::of(&self.graph, function)).collect();
            if let Some((pattern, similar)) = unknown(patterns, &ids) {
                return Err(EditError::UnknownFunction { pattern, similar });
            }
        }
        if let Operators::Only(patterns) | Operators::Except(patterns) = &options.operators {
            let ids = registry.schemas().map(|schema| id_of(schema.domain, schema.name));
            let mut ids: Vec<FunctionId> = ids.collect();
            ids.dedup();
            if let Some((pattern, similar)) = unknown(patterns, &ids) {
                return Err(EditError::UnknownOperator { pattern, similar });
            }
        }
        Ok(())
    }
}

/// The first pattern that nothing fits, with something that has a similar name.
fn unknown(patterns: &[String], ids: &[FunctionId]) -> Option<(String, Option<String>)> {
    let pattern = patterns.iter().find(|pattern| !ids.iter().any(|id| fits(pattern, id)))?;
    let names: Vec<String> = ids.iter().map(FunctionId::to_string).collect();
    let is_short = !pattern.contains('.');
    let shown = names.iter().map(|name| match name.strip_prefix("ai.onnx.") {
        Some(name) if is_short => name,
        _ => name.as_str(),
    });
    let similar = sardonyx_proto::closest(pattern, shown).map(ToString::to_string);
    Some((pattern.clone(), similar))
}

fn id_of(domain: &str, name: &str) -> FunctionId {
    FunctionId { domain: domain.into(), name: name.into(), overload: String::new() }
}

fn fits_any(patterns: &[String], id: &FunctionId) -> bool {
    patterns.iter().any(|pattern| fits(pattern, id))
}

/// Whether a function is one that a pattern names. A pattern without overload names all.
fn fits(pattern: &str, id: &FunctionId) -> bool {
    let Ok(glob) = Glob::parse(pattern) else { return false };
    let without = FunctionId { overload: String::new(), ..id.clone() }.to_string();
    let with = format!("{without}:{}", id.overload);
    let fits = |name: &str| {
        glob.matches(name)
            || name
                .strip_prefix("ai.onnx.")
                .is_some_and(|name| id.domain.is_empty() && glob.matches(name))
    };
    fits(&without) || fits(&with)
}
