//! Forms of reports for the crate `serde`. The answers of the command have the same keys, as it
//! writes these forms.

mod diff;

use std::collections::BTreeMap;

use sardonyx_model::shown_domain;
use serde::{Serialize, Serializer};

use crate::convert::{Assumed, ConvertReport, ConvertedImport, ConvertedOperator};
use crate::derivatives::GradientReport;
use crate::expand::Expansions;
use crate::extract::ExtractReport;
use crate::finding::{CheckReport, Finding, Severity};
use crate::function_id::FunctionId;
use crate::inline::{InlineReport, WithoutBody};
use crate::reduce::ReduceReport;
use crate::simplify::{SimplifyReport, Tally};
use crate::strip::StripReport;
use crate::training::TrainingReport;

/// `note`, `warning` or `error`.
impl Serialize for Severity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// `code`, `severity`, `requirement` (null if none is violated), `place`, `path`, `message` and
/// `help`.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            code: &'a str,
            severity: Severity,
            requirement: Option<&'a str>,
            place: &'a str,
            path: &'a str,
            message: &'a str,
            help: &'a str,
        }
        let form = Form {
            code: self.code.name,
            severity: self.severity,
            requirement: Some(self.code.requirement).filter(|id| !id.is_empty()),
            place: &self.place.words,
            path: &self.place.path,
            message: &self.fact,
            help: &self.advice,
        };
        form.serialize(serializer)
    }
}

/// Finding without severity and requirement, as in the answers of `inline` and `infer`. `place` is
/// a path.
#[derive(Debug, Serialize)]
pub struct BriefFinding<'a> {
    code: &'a str,
    place: &'a str,
    message: &'a str,
    advice: &'a str,
}

impl<'a> From<&'a Finding> for BriefFinding<'a> {
    fn from(found: &'a Finding) -> BriefFinding<'a> {
        BriefFinding {
            code: found.code.name,
            place: &found.place.path,
            message: &found.fact,
            advice: &found.advice,
        }
    }
}

/// `verdict` (`fine`, `warnings` or `errors`), `errors`, `warnings`, `notes`, `types_checked`,
/// `findings`, and `not_listed` with a `code` and the number of its other `findings`.
impl Serialize for CheckReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct NotListed {
            code: &'static str,
            findings: u64,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            verdict: &'a str,
            errors: u64,
            warnings: u64,
            notes: u64,
            types_checked: bool,
            findings: &'a [Finding],
            not_listed: Vec<NotListed>,
        }
        let not_listed = self.more.iter().map(|&(code, findings)| NotListed { code, findings });
        let form = Form {
            verdict: match (self.errors, self.warnings) {
                (0, 0) => "fine",
                (0, _) => "warnings",
                _ => "errors",
            },
            errors: self.errors,
            warnings: self.warnings,
            notes: self.notes,
            types_checked: self.types_checked,
            findings: &self.findings,
            not_listed: not_listed.collect(),
        };
        form.serialize(serializer)
    }
}

/// Writes the names of `inputs`, `added` inputs, `outputs` and `shapeless` values, and the numbers
/// of
/// `nodes`, `constants` and `functions`, each with that of the model, such as `nodes_before`.
impl Serialize for ExtractReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            inputs: &'a [String],
            added: &'a [String],
            outputs: &'a [String],
            shapeless: &'a [String],
            captured: usize,
            nodes: usize,
            nodes_before: usize,
            constants: usize,
            constants_before: usize,
            functions: usize,
            functions_before: usize,
        }
        let form = Form {
            inputs: &self.inputs,
            added: &self.added,
            outputs: &self.outputs,
            shapeless: &self.shapeless,
            captured: self.captured,
            nodes: self.nodes,
            nodes_before: self.nodes_before,
            constants: self.constants,
            constants_before: self.constants_before,
            functions: self.functions,
            functions_before: self.functions_before,
        };
        form.serialize(serializer)
    }
}

/// Writes the number of `checks`, accepted candidates by `steps`, the numbers of `nodes` and
/// `elements` of constants, before and after, and whether the reduction was `stopped`.
impl Serialize for ReduceReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            checks: u64,
            steps: &'a BTreeMap<&'static str, usize>,
            nodes: usize,
            nodes_before: usize,
            elements: u64,
            elements_before: u64,
            stopped: bool,
        }
        let form = Form {
            checks: self.checks,
            steps: &self.steps,
            nodes: self.nodes,
            nodes_before: self.nodes_before,
            elements: self.elements,
            elements_before: self.elements_before,
            stopped: self.stopped,
        };
        form.serialize(serializer)
    }
}

/// Writes the numbers of removed `docs`, `names`, entries of `metadata`, `unused` initializers,
/// steps of `training` and `types`.
impl Serialize for StripReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form {
            docs: usize,
            names: usize,
            metadata: usize,
            unused: usize,
            training: usize,
            types: usize,
        }
        let StripReport { docs, names, metadata, unused_initializers, training, inferred_types } =
            *self;
        let (unused, types) = (unused_initializers, inferred_types);
        Form { docs, names, metadata, unused, training, types }.serialize(serializer)
    }
}

/// Writes the numbers of `nodes`, of `initializers`, of `constant_bytes`, and in `operators` the
/// nodes of each `operator`.
impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Operator<'a> {
            operator: &'a str,
            nodes: usize,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            nodes: usize,
            operators: Vec<Operator<'a>>,
            initializers: usize,
            constant_bytes: u64,
        }
        let Tally { nodes, operators, initializers, constant_bytes } = self;
        let operators = operators.iter();
        let operators = operators.map(|(operator, nodes)| Operator { operator, nodes: *nodes });
        Form {
            nodes: *nodes,
            operators: operators.collect(),
            initializers: *initializers,
            constant_bytes: *constant_bytes,
        }
        .serialize(serializer)
    }
}

/// Writes the level, both sizes, rewrites by rule, near misses, and the results of verification.
impl Serialize for SimplifyReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Use<'a> {
            rule: &'a str,
            count: usize,
            places: &'a [String],
        }
        #[derive(Serialize)]
        struct Spot<'a> {
            rule: &'a str,
            place: &'a str,
            why: &'a str,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            level: &'a str,
            before: &'a Tally,
            after: &'a Tally,
            rules: Vec<Use<'a>>,
            initializers_removed: usize,
            functions_removed: usize,
            near: Vec<Spot<'a>>,
            more_near: usize,
            verified: usize,
            unverified: usize,
            rejected: Vec<Spot<'a>>,
        }
        let uses = self.rules.iter().map(|(rule, found)| Use {
            rule,
            count: found.count,
            places: &found.places,
        });
        let near = self.near.iter().map(|near| Spot {
            rule: near.rule,
            place: &near.place,
            why: &near.why,
        });
        let rejected = self.rejected.iter().map(|rejected| Spot {
            rule: rejected.rule,
            place: &rejected.place,
            why: &rejected.why,
        });
        Form {
            level: self.level.name(),
            before: &self.before,
            after: &self.after,
            rules: uses.collect(),
            initializers_removed: self.initializers_removed,
            functions_removed: self.functions_removed,
            near: near.collect(),
            more_near: self.more_near,
            verified: self.verified,
            unverified: self.unverified,
            rejected: rejected.collect(),
        }
        .serialize(serializer)
    }
}

/// Writes the keys `domain` (empty for the default domain), `name` and `overload`.
impl Serialize for FunctionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            name: &'a str,
            overload: &'a str,
        }
        let FunctionId { domain, name, overload } = self;
        Form { domain, name, overload }.serialize(serializer)
    }
}

/// Version before and after a change.
#[derive(Serialize)]
struct VersionChange<T> {
    from: T,
    to: T,
}

/// Function that was added for calls of the function `of` that leave out inputs.
#[derive(Serialize)]
struct AddedFunction<'a> {
    function: &'a FunctionId,
    of: &'a FunctionId,
}

impl<'a> AddedFunction<'a> {
    fn list(added: &'a [(FunctionId, FunctionId)]) -> Vec<AddedFunction<'a>> {
        added.iter().map(|(function, of)| AddedFunction { function, of }).collect()
    }
}

/// Operator whose nodes were replaced by the body of its function, and their number.
#[derive(Serialize)]
struct ExpandedOperator<'a> {
    domain: &'a str,
    name: &'a str,
    nodes: usize,
}

impl<'a> ExpandedOperator<'a> {
    fn list(expansions: &'a Expansions) -> Vec<ExpandedOperator<'a>> {
        let operators = expansions.iter();
        operators
            .map(|((domain, name), nodes)| ExpandedOperator { domain, name, nodes: *nodes })
            .collect()
    }
}

/// Writes the keys `domain` (`ai.onnx` for the default domain), and its versions `from` and `to`.
impl Serialize for ConvertedImport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            from: i64,
            to: u32,
        }
        let ConvertedImport { domain, from, to } = self;
        Form { domain: shown_domain(domain), from: *from, to: *to }.serialize(serializer)
    }
}

/// Writes the keys `domain` (`ai.onnx` for the default domain), `operator`, its versions `from` and
/// `to`, and the number of `rewritten` nodes.
impl Serialize for ConvertedOperator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            operator: &'a str,
            from: u32,
            to: u32,
            rewritten: usize,
        }
        let ConvertedOperator { domain, op: operator, from, to, rewritten } = *self;
        let domain = shown_domain(domain);
        Form { domain, operator, from, to, rewritten }.serialize(serializer)
    }
}

/// Writes the name of the `assumption`, and the `place` of the node that needs it.
impl Serialize for Assumed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            assumption: &'a str,
            place: &'a str,
        }
        let form = Form { assumption: self.assumption.name(), place: &self.place.words };
        form.serialize(serializer)
    }
}

/// Writes the keys `operator_sets`, `ir_version` (`from`, null if the model had none, and `to`),
/// `operators`, `constants` and `expanded` (each with `domain`, `operator` and `nodes`), `assumed`,
/// `added_functions` (`function`, and `of`, the function that it specializes), and the numbers of
/// nodes that are `unchanged`, `rewritten`, `removed` and `added`.
impl Serialize for ConvertReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Replaced<'a> {
            domain: &'a str,
            operator: &'a str,
            nodes: usize,
        }
        fn list_replaced(operators: &Expansions) -> Vec<Replaced<'_>> {
            let listed = operators.iter().map(|((domain, operator), nodes)| Replaced {
                domain: shown_domain(domain),
                operator,
                nodes: *nodes,
            });
            listed.collect()
        }
        #[derive(Serialize)]
        struct Form<'a> {
            operator_sets: &'a [ConvertedImport],
            ir_version: VersionChange<Option<i64>>,
            unchanged: usize,
            operators: &'a [ConvertedOperator],
            constants: Vec<Replaced<'a>>,
            expanded: Vec<Replaced<'a>>,
            assumed: &'a [Assumed],
            rewritten: usize,
            removed: usize,
            added: usize,
            added_functions: Vec<AddedFunction<'a>>,
        }
        let (before, after) = self.ir_version;
        let form = Form {
            operator_sets: &self.imports,
            ir_version: VersionChange { from: before, to: Some(after) },
            unchanged: self.unchanged,
            operators: &self.operators,
            constants: list_replaced(&self.constants),
            expanded: list_replaced(&self.expanded),
            assumed: &self.assumed,
            rewritten: self.operators.iter().map(|op| op.rewritten).sum(),
            removed: self.removed,
            added: self.made,
            added_functions: AddedFunction::list(&self.added),
        };
        form.serialize(serializer)
    }
}

/// Writes the keys `domain` (empty for the default domain), `name`, `nodes` (their number), `first`
/// (place of the first one) and `reason` (why they are not inlined).
impl Serialize for WithoutBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            name: &'a str,
            nodes: usize,
            first: &'a str,
            reason: &'a str,
        }
        let WithoutBody { domain, name, nodes, first, why: reason, .. } = self;
        Form { domain, name, nodes: *nodes, first, reason }.serialize(serializer)
    }
}

/// Writes the keys `functions` (`domain`, `name`, `overload` and the number of inlined `calls`),
/// `operators` (`domain`, `name`, `nodes`), `removed` functions, calls that were `kept` (`code`,
/// `place`, `message`, `advice`), `imported` (`domain`, `version`), operators `without_body`,
/// `converted` functions, and `added_functions` (`function`, and `of`, the function that it
/// specializes).
impl Serialize for InlineReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Inlined<'a> {
            domain: &'a str,
            name: &'a str,
            overload: &'a str,
            calls: usize,
        }
        #[derive(Serialize)]
        struct Imported<'a> {
            domain: &'a str,
            version: i64,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            functions: Vec<Inlined<'a>>,
            operators: Vec<ExpandedOperator<'a>>,
            removed: &'a [FunctionId],
            kept: Vec<BriefFinding<'a>>,
            imported: Vec<Imported<'a>>,
            without_body: &'a [WithoutBody],
            converted: &'a [FunctionId],
            added_functions: Vec<AddedFunction<'a>>,
        }
        let functions = self.functions.iter().map(|(id, calls)| Inlined {
            domain: &id.domain,
            name: &id.name,
            overload: &id.overload,
            calls: *calls,
        });
        let imported = self.imported.iter();
        let imported = imported.map(|(domain, version)| Imported { domain, version: *version });
        let form = Form {
            functions: functions.collect(),
            operators: ExpandedOperator::list(&self.operators),
            removed: &self.removed,
            kept: self.kept.iter().map(BriefFinding::from).collect(),
            imported: imported.collect(),
            without_body: &self.without_body,
            converted: &self.converted,
            added_functions: AddedFunction::list(&self.added),
        };
        form.serialize(serializer)
    }
}

/// Writes the keys `of`, `gradients` (`by`, a value, and `output`, its gradient), the number of
/// `nodes` that were added and of `Gradient` nodes that were `replaced`, `opset` (`from` and `to`)
/// and `expanded` (`domain`, `name`, `nodes`).
impl Serialize for GradientReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct GradientOutput<'a> {
            by: &'a str,
            output: &'a str,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            of: &'a str,
            gradients: Vec<GradientOutput<'a>>,
            nodes: usize,
            replaced: usize,
            opset: VersionChange<u32>,
            expanded: Vec<ExpandedOperator<'a>>,
        }
        let gradients = self.gradients.iter().map(|(by, output)| GradientOutput { by, output });
        let (from, to) = self.opset;
        let form = Form {
            of: &self.of,
            gradients: gradients.collect(),
            nodes: self.nodes,
            replaced: self.replaced,
            opset: VersionChange { from, to },
            expanded: ExpandedOperator::list(&self.expansions),
        };
        form.serialize(serializer)
    }
}

/// Writes the keys `variables` (`name`, `elements`), `not_trained` (`name`, `reason`), the names
/// `label` (null if the loss has no label), `loss` and `learning_rate`, the numbers of `nodes`, of
/// nodes in `training_mode` and of `float_copies`, `opset` (`from` and `to`) and `expanded`
/// (`domain`, `name`, `nodes`).
impl Serialize for TrainingReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Variable<'a> {
            name: &'a str,
            elements: usize,
        }
        #[derive(Serialize)]
        struct NotTrained<'a> {
            name: &'a str,
            reason: &'static str,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            variables: Vec<Variable<'a>>,
            not_trained: Vec<NotTrained<'a>>,
            label: Option<&'a str>,
            loss: &'a str,
            learning_rate: &'a str,
            nodes: usize,
            training_mode: usize,
            float_copies: usize,
            opset: VersionChange<u32>,
            expanded: Vec<ExpandedOperator<'a>>,
        }
        let variables = self.variables.iter();
        let variables = variables.map(|(name, elements)| Variable { name, elements: *elements });
        let skipped = self.skipped.iter();
        let not_trained = skipped.map(|(name, why)| NotTrained { name, reason: why.text() });
        let (from, to) = self.opset;
        let form = Form {
            variables: variables.collect(),
            not_trained: not_trained.collect(),
            label: self.label.as_deref(),
            loss: &self.loss,
            learning_rate: &self.learning_rate,
            nodes: self.nodes,
            training_mode: self.training_mode,
            float_copies: self.float_copies,
            opset: VersionChange { from, to },
            expanded: ExpandedOperator::list(&self.expansions),
        };
        form.serialize(serializer)
    }
}
