//! Replaces calls of functions by the bodies of the functions.
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

/// Selection of the model functions to inline, by glob patterns.
#[derive(Debug, Clone, Default)]
enum Functions {
    #[default]
    All,
    Only(Vec<String>),
    Except(Vec<String>),
}

/// Selection of the standard operators to expand, among those that the standard defines as
/// functions of other operators.
#[derive(Debug, Clone, Default)]
enum Operators {
    #[default]
    None,
    WithoutKernel,
    Only(Vec<String>),
    Except(Vec<String>),
}

impl Functions {
    /// Whether the selection includes a function.
    fn has_function(&self, id: &FunctionId) -> bool {
        match self {
            Functions::All => true,
            Functions::Only(patterns) => matches_any(patterns, id),
            Functions::Except(patterns) => !matches_any(patterns, id),
        }
    }
}

impl Operators {
    /// Whether the selection includes a standard operator.
    fn has_operator(&self, op: OpRef) -> bool {
        let id = || make_operator_id(op.def.domain, op.def.name);
        match self {
            Operators::None => false,
            Operators::WithoutKernel => !has_kernel(op),
            Operators::Only(patterns) => matches_any(patterns, &id()),
            Operators::Except(patterns) => !matches_any(patterns, &id()),
        }
    }
}

/// Selection of the functions that [`Model::inline`] replaces by their bodies, and limits of the
/// inlined model.
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

/// Selects functions by patterns: `domain.name` for all overloads, or `domain.name:overload`. The
/// domain `ai.onnx` may be left out. `*` matches any characters, `?` exactly one.
impl InlineOptions {
    /// Creates the default options: all functions of the model are inlined, and no standard
    /// operators are expanded.
    pub fn new() -> InlineOptions {
        InlineOptions::default()
    }

    /// Inlines only the model functions that match one of the patterns.
    #[must_use]
    pub fn functions(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.functions = Functions::Only(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Inlines all functions of the model except those that match one of the patterns.
    #[must_use]
    pub fn functions_except(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.functions = Functions::Except(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Expands, in addition, standard operators that match one of the patterns and that the
    /// standard defines as functions of other operators.
    #[must_use]
    pub fn operators(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.operators = Operators::Only(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Expands, in addition, all standard operators that the standard defines as functions of other
    /// operators, except operators that match one of the patterns.
    #[must_use]
    pub fn operators_except(
        mut self,
        patterns: impl IntoIterator<Item = impl Into<String>>,
    ) -> InlineOptions {
        self.operators = Operators::Except(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Expands, in addition, standard operators that the standard defines as functions of other
    /// operators and for which this engine has no kernel.
    #[must_use]
    pub fn operators_without_kernel(mut self) -> InlineOptions {
        self.operators = Operators::WithoutKernel;
        self
    }

    /// Limits the number of nodes that inlining creates. The default is 10 million.
    #[must_use]
    pub fn limit(mut self, nodes: u64) -> InlineOptions {
        self.limit = nodes;
        self
    }

    /// Sets whether calls that cannot be inlined are kept and listed in [`InlineReport::kept`]. By
    /// default such calls are errors.
    #[must_use]
    pub fn keep_conflicting(mut self, keep: bool) -> InlineOptions {
        self.keep_conflicting = keep;
        self
    }

    /// Does not convert function bodies to other operator set versions. A call then cannot be
    /// inlined if the function imports another operator set version than its caller and operators
    /// in the function differ between the two versions.
    #[must_use]
    pub fn without_conversion(mut self) -> InlineOptions {
        self.convert = false;
        self
    }
}

impl Model {
    /// Replaces calls of functions by the functions' bodies, in all graphs and in the functions
    /// that remain. Functions without a remaining call are removed. If caller and function import
    /// different versions of an operator set, a copy of the function body is converted to the
    /// caller's version.
    ///
    /// A node with the domain and name of a standard operator, in the imported version, is not a
    /// call, even if the model has a function of that name. A [`Session`](crate::Session) applies
    /// the same rule.
    ///
    /// # Errors
    ///
    /// [`EditError`] if a pattern matches nothing, a call cannot be inlined or the limit is
    /// exceeded. The model is unchanged then.
    pub fn inline(&mut self, options: &InlineOptions) -> Result<InlineReport, EditError> {
        let registry = Registry::standard();
        self.check_patterns(options, &registry)?;
        let functions: &dyn Fn(&sardonyx_model::Model, &Function) -> bool =
            &|model, function| options.functions.has_function(&FunctionId::of(model, function));
        let operators: &dyn Fn(OpRef) -> bool = &|op| options.operators.has_operator(op);
        let expands_operators = !matches!(options.operators, Operators::None);
        let passes = passes::InlineOptions {
            functions,
            operators: expands_operators.then_some(operators),
            limit: options.limit,
            keep_conflicting: options.keep_conflicting,
            convert: options.convert,
        };
        let inlined = sardonyx_passes::inline(&self.graph, &registry, &passes);
        let (graph, mut report) =
            inlined.map_err(|refusal| EditError::from_inlining(self, refusal))?;
        // An operator without a function is reported only if a pattern is exactly its name.
        report.without_body.retain(|kept| {
            let id = make_operator_id(&kept.domain, &kept.name);
            match &options.operators {
                Operators::Only(patterns) => {
                    let mut names = patterns.iter().filter(|pattern| !Glob::is_pattern(pattern));
                    kept.has_function || names.any(|name| matches_pattern(name, &id))
                }
                Operators::None | Operators::Except(_) => kept.has_function,
                Operators::WithoutKernel => true,
            }
        });
        self.graph = graph;
        Ok(report)
    }

    /// Fails if a pattern of `options` matches no function of the model or no standard operator.
    fn check_patterns(
        &self,
        options: &InlineOptions,
        registry: &Registry,
    ) -> Result<(), EditError> {
        if let Functions::Only(patterns) | Functions::Except(patterns) = &options.functions {
            let functions = self.graph.functions.iter();
            let ids: Vec<FunctionId> =
                functions.map(|function| FunctionId::of(&self.graph, function)).collect();
            if let Some((pattern, similar)) = find_unmatched(patterns, &ids) {
                return Err(EditError::UnknownFunction { pattern, similar });
            }
        }
        if let Operators::Only(patterns) | Operators::Except(patterns) = &options.operators {
            let ids = registry.schemas().map(|schema| make_operator_id(schema.domain, schema.name));
            let mut ids: Vec<FunctionId> = ids.collect();
            ids.dedup();
            if let Some((pattern, similar)) = find_unmatched(patterns, &ids) {
                return Err(EditError::UnknownOperator { pattern, similar });
            }
        }
        Ok(())
    }
}

/// Finds the first pattern that matches none of `ids`, and the name that is most similar to it;
/// `None` if every pattern has a match.
fn find_unmatched(patterns: &[String], ids: &[FunctionId]) -> Option<(String, Option<String>)> {
    let pattern =
        patterns.iter().find(|pattern| !ids.iter().any(|id| matches_pattern(pattern, id)))?;
    let names: Vec<String> = ids.iter().map(FunctionId::to_string).collect();
    let is_short = !pattern.contains('.');
    let shown = names.iter().map(|name| match name.strip_prefix("ai.onnx.") {
        Some(name) if is_short => name,
        _ => name.as_str(),
    });
    let similar = sardonyx_proto::closest(pattern, shown).map(ToString::to_string);
    Some((pattern.clone(), similar))
}

/// Returns the id of a standard operator, which patterns are matched against.
fn make_operator_id(domain: &str, name: &str) -> FunctionId {
    FunctionId { domain: domain.into(), name: name.into(), overload: String::new() }
}

/// Whether one of the patterns matches a function or operator.
fn matches_any(patterns: &[String], id: &FunctionId) -> bool {
    patterns.iter().any(|pattern| matches_pattern(pattern, id))
}

/// Whether a pattern matches a function or operator. A pattern without an overload matches all
/// overloads.
fn matches_pattern(pattern: &str, id: &FunctionId) -> bool {
    let Ok(glob) = Glob::parse(pattern) else { return false };
    let without = FunctionId { overload: String::new(), ..id.clone() }.to_string();
    let with = format!("{without}:{}", id.overload);
    let is_match = |name: &str| {
        glob.matches(name)
            || name
                .strip_prefix("ai.onnx.")
                .is_some_and(|name| id.domain.is_empty() && glob.matches(name))
    };
    is_match(&without) || is_match(&with)
}
