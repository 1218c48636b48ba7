//! Callee of a node: an operator of the standard, a function of the model, or something else.
//! Looked up once for all nodes with the same callee in the same tree of graphs.

use std::borrow::Cow;

use hashbrown::HashMap;
use sardonyx_model::{NodeId, OperatorSetId, Symbol, shown_domain};
use sardonyx_ops::{Arity, Schema};
use sardonyx_proto::{AttributeType, OperatorStatus, shown};
use smallvec::SmallVec;

use super::operand_types::Operands;
use super::{Checker, OperatorSet, Root};
use crate::attributes::attribute_type;
use crate::codes;
use crate::finding::{Code, Spot};

/// Versions of operator sets by domain.
pub(super) type Imports = HashMap<Option<Symbol>, i64>;

/// Operators that never became part of the standard, but were known to the first checkers.
const EXPERIMENTS: &[&str] = &[
    "ATen",
    "Affine",
    "ConstantFill",
    "Crop",
    "DynamicSlice",
    "GRUUnit",
    "GivenTensorFill",
    "ImageScaler",
    "ParametricSoftplus",
    "Scale",
    "ScaledTanh",
];

/// Operators whose optional outputs are all present or all absent, so that numbers of outputs
/// between the least and the greatest are wrong. By name, with the first and the last version that
/// requires it.
const ALL_OR_FEWEST: &[(&str, u32, u32)] = &[("BatchNormalization", 1, 15)];

/// Domains of the standard whose operators are all known, and whether the checker of the `onnx`
/// package treats them so.
const CLOSED_DOMAINS: &[(&str, bool)] = &[
    ("", true),
    ("ai.onnx.ml", true),
    ("ai.onnx.training", true),
    ("ai.onnx.preview", false),
    ("ai.onnx.preview.training", false),
];

type Key = (Root, Option<Symbol>, Option<Symbol>);

/// Callees that have been looked up.
#[derive(Default)]
pub(super) struct Callees<'a> {
    by_key: HashMap<Key, u32>,
    list: Vec<Callee<'a>>,
    /// Neighbouring nodes often have the same callee.
    last: Option<(Key, u32)>,
}

impl<'a> Callees<'a> {
    pub(super) fn get(&self, index: u32) -> &Callee<'a> {
        &self.list[index as usize]
    }

    pub(super) fn get_mut(&mut self, index: u32) -> &mut Callee<'a> {
        &mut self.list[index as usize]
    }
}

/// Callee of a node.
pub(super) struct Callee<'a> {
    pub(super) schema: Option<&'a Schema>,
    /// Reason why it cannot be called.
    pub(super) problem: Option<(&'static Code, String, Cow<'static, str>)>,
    /// Whether the model has functions of that name.
    pub(super) is_function: bool,
    pub(super) inputs: Formals,
    pub(super) outputs: Formals,
    pub(super) operands: Operands<'a>,
    /// Attributes in the order of the schema; `None` for a name that does not occur in the model.
    pub(super) attributes: SmallVec<[(Option<Symbol>, AttributeType); 8]>,
    /// Bit mask of the attributes that every node must have.
    pub(super) required: u64,
}

/// Number of operands that are allowed, and operands that must be named.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formals {
    pub(super) fewest: usize,
    pub(super) most: usize,
    /// Whether only the least and the greatest number are allowed.
    pub(super) no_middle: bool,
    /// Position of the first operand of the variadic parameter; `usize::MAX` without one, or if it
    /// may have gaps.
    pub(super) variadic: usize,
    /// Bit mask of the positions that cannot be absent.
    single: u64,
}

impl Formals {
    const ANY: Formals =
        Formals { fewest: 0, most: usize::MAX, no_middle: false, variadic: usize::MAX, single: 0 };

    /// Whether that many operands are allowed.
    pub(super) fn allow(self, count: usize) -> bool {
        if self.no_middle {
            count == self.fewest || count == self.most
        } else {
            (self.fewest..=self.most).contains(&count)
        }
    }

    fn new(params: &[sardonyx_ops::Param], (fewest, most): (usize, Option<usize>)) -> Formals {
        let singles = params.iter().take(64).enumerate();
        let is_variadic =
            |param: &sardonyx_ops::Param| matches!(param.arity, Arity::Variadic { .. });
        Formals {
            fewest,
            most: most.unwrap_or(usize::MAX),
            no_middle: false,
            variadic: params.iter().position(is_variadic).unwrap_or(usize::MAX),
            single: singles.fold(0, |bits, (index, param)| {
                bits | u64::from(param.arity == Arity::Single) << index
            }),
        }
    }

    #[inline]
    pub(super) fn is_single(self, index: usize) -> bool {
        index < 64 && self.single >> index & 1 != 0
    }
}

impl<'a> Checker<'a> {
    /// Returns the index of a node's callee.
    #[inline]
    pub(super) fn callee(&mut self, node: NodeId, root: Root) -> u32 {
        let found = self.model.node(node);
        let key = (root, found.domain, found.op_type);
        if let Some((last, index)) = self.callees.last
            && last == key
        {
            return index;
        }
        let index = match self.callees.by_key.get(&key) {
            Some(index) => *index,
            None => {
                let callee = self.look_up(root, self.domain(found.domain), found.op_type);
                let index = self.callees.list.len() as u32;
                self.callees.list.push(callee);
                self.callees.by_key.insert(key, index);
                index
            }
        };
        self.callees.last = Some((key, index));
        index
    }

    /// Returns the imported version of a domain in a tree of graphs.
    pub(super) fn version(&mut self, root: Root, domain: Option<Symbol>) -> Option<i64> {
        if !self.imports.contains_key(&root) {
            let list = match root {
                Root::Function(index) => &self.model.functions[index].opset_import,
                Root::Main | Root::Training(_) => &self.model.header.opset_import,
            };
            let imports = self.effective_imports(list, root);
            self.imports.insert(root, imports);
        }
        self.imports.get(&root).and_then(|imports| imports.get(&domain)).copied()
    }

    /// Returns the last entry of each domain, which is the one that counts. An old model without
    /// any uses version 1.
    fn effective_imports(&self, list: &[OperatorSetId], root: Root) -> Imports {
        let entries = list.iter();
        let mut imports: Imports = entries
            .map(|import| (self.domain(import.domain), import.version.unwrap_or(0)))
            .collect();
        if list.is_empty() && self.ir_version < 3 && !matches!(root, Root::Function(_)) {
            imports.insert(None, 1);
        }
        imports
    }

    fn look_up(
        &mut self,
        root: Root,
        domain: Option<Symbol>,
        op_type: Option<Symbol>,
    ) -> Callee<'a> {
        let mut callee = Callee {
            schema: None,
            problem: None,
            is_function: false,
            inputs: Formals::ANY,
            outputs: Formals::ANY,
            operands: Operands::default(),
            attributes: SmallVec::new(),
            required: 0,
        };
        let Some(op_type) = op_type.filter(|op_type| Some(*op_type) != self.empty) else {
            let fact = "the node has no op_type".to_string();
            callee.problem = Some((&codes::NODE_WITHOUT_OPERATOR, fact, "".into()));
            return callee;
        };
        let domain_text =
            domain.map_or(Cow::Borrowed(""), |domain| self.model.display(Some(domain)));
        let name = self.model.display(Some(op_type));
        let version = self.version(root, domain);
        callee.is_function = self.functions.has_name(domain, Some(op_type));
        let Some(version) = version else {
            callee.problem = Some(self.not_imported(root, &domain_text));
            return callee;
        };
        // A version beyond 32 bits has its own finding; the newest operators are used.
        let opset = version.clamp(0, i32::MAX.into()) as u32;
        let registry = &self.options.registry;
        // Operators that other projects add to the standard's own domain can run, but are an error.
        // Those in other domains may be functions of the model.
        let is_refused = |schema: &Schema| {
            schema.domain.is_empty() && !self.options.added_operators || callee.is_function
        };
        let counts = |schema: &&Schema| !registry.is_added(schema) || !is_refused(schema);
        let Some(schema) = registry.schema(&domain_text, &name, opset).filter(counts) else {
            if !callee.is_function {
                callee.problem = self.describe_unknown(domain, &domain_text, &name, version);
                // Only listed findings need a suggestion, whose search takes time.
                let is_listed = self.unknown_operators < self.options.per_code;
                self.unknown_operators += 1;
                if let Some((code, _, advice)) = &mut callee.problem
                    && is_listed
                    && code.name.starts_with("unknown-")
                    && advice.is_empty()
                    && let Some(near) = self.similar(domain, &domain_text, &name)
                {
                    *advice = near.into();
                }
            } else if self.options.custom_domains {
                let (domain, name) = (shown(domain_text.as_bytes()), shown(name.as_bytes()));
                let fact = format!("'{domain}.{name}' is a function of the model, not an operator");
                callee.problem = Some((&codes::UNKNOWN_CUSTOM_OPERATOR, fact, "".into()));
            }
            return callee;
        };
        if schema.deprecated {
            let fact =
                format!("{name} is deprecated since version {} of the operator set", schema.since);
            let advice = replacement(&domain_text, &name).unwrap_or_default();
            callee.problem = Some((&codes::DEPRECATED_OPERATOR, fact, advice.into()));
            return callee;
        }
        callee.inputs = Formals::new(&schema.inputs, schema.input_count());
        callee.outputs = Formals::new(&schema.outputs, schema.output_count());
        let is_standard = CLOSED_DOMAINS.iter().any(|(closed, _)| *closed == schema.domain);
        if !is_standard || registry.is_added(schema) {
            // Exchanges between devices have gaps for devices that send nothing.
            callee.inputs.variadic = usize::MAX;
        }
        if !self.types.is_empty() {
            callee.operands = Operands::new(schema, registry.definition(schema));
        }
        callee.outputs.no_middle = schema.domain.is_empty()
            && ALL_OR_FEWEST.iter().any(|(name, first, last)| {
                *name == schema.name && (*first..=*last).contains(&schema.since)
            });
        for (index, attribute) in schema.attributes.iter().enumerate() {
            let symbol = self.model.symbol(attribute.name.as_bytes());
            callee.attributes.push((symbol, attribute_type(attribute.ty)));
            callee.required |= u64::from(attribute.required && index < 64) << (index % 64);
        }
        callee.schema = Some(schema);
        callee
    }

    fn not_imported(&self, root: Root, domain: &str) -> (&'static Code, String, Cow<'static, str>) {
        let who = match root {
            Root::Function(_) => "the function",
            Root::Main | Root::Training(_) => "the model",
        };
        let known = self.options.registry.versions(domain);
        let domain = shown(domain.as_bytes());
        let domain = shown_domain(&domain);
        let fact = format!("{who} does not import the operator set '{domain}'");
        let advice = match known {
            Some((_, newest)) => format!(
                "add '{domain}' to opset_import with the version of the operator, at most {newest}"
            ),
            None => format!("add '{domain}' to opset_import with its version"),
        };
        (&codes::OPSET_NOT_IMPORTED, fact, advice.into())
    }

    /// Describes a name for which there is neither an operator nor a function.
    fn describe_unknown(
        &self,
        domain: Option<Symbol>,
        domain_text: &str,
        name: &str,
        version: i64,
    ) -> Option<(&'static Code, String, Cow<'static, str>)> {
        let registry = &self.options.registry;
        let full = match domain_text {
            "" => shown(name.as_bytes()),
            _ => format!("{}.{}", shown(domain_text.as_bytes()), shown(name.as_bytes())),
        };
        if let Some(op) = registry.operator(domain_text, name) {
            let first = op.versions().map(|version| version.since).min()?;
            let is_added = |version: u32| {
                let schema = registry.schema(domain_text, name, version);
                schema.is_some_and(|schema| registry.is_added(schema))
            };
            if domain_text.is_empty() && is_added(first) {
                let fact = format!("operator {full} does not exist");
                let advice = if op.is_collective() {
                    "TensorRT has it there, and the standard has no collectives"
                } else {
                    "ONNX Runtime has it there, and the standard has RMSNormalization since version 23"
                };
                return Some((&codes::UNKNOWN_OPERATOR, fact, advice.into()));
            }
            let fact = format!(
                "{full} was added in version {first} of the operator set; version {version} is imported"
            );
            let is_early = u32::try_from(version).is_ok_and(is_added);
            let advice = is_early.then(|| {
                format!("ONNX Runtime has it in every version; convert the model to version {first} or newer")
            });
            return Some((&codes::OPERATOR_NOT_YET, fact, advice.unwrap_or_default().into()));
        }
        if domain_text.is_empty() && EXPERIMENTS.contains(&name) {
            let fact = format!(
                "{full} is an experimental operator of early releases that was never standardized"
            );
            return Some((&codes::EXPERIMENTAL_OPERATOR, fact, "".into()));
        }
        let set = self.options.operator_sets.iter();
        if let Some(set) =
            set.rev().find(|set| set.domain == domain_text && !domain_text.is_empty())
        {
            return describe_declared(set, &full, name, version);
        }
        let closed = CLOSED_DOMAINS.iter().find(|(closed, _)| *closed == domain_text);
        let fact = format!("operator {full} does not exist");
        match closed {
            Some((_, true)) => Some((&codes::UNKNOWN_OPERATOR, fact, "".into())),
            _ if self.options.custom_domains => {
                Some((&codes::UNKNOWN_CUSTOM_OPERATOR, fact, "".into()))
            }
            Some((_, false)) => Some((&codes::UNKNOWN_PREVIEW_OPERATOR, fact, "".into())),
            None => {
                let has_functions = self.functions.has_domain(domain);
                let (domain, name) = (shown(domain_text.as_bytes()), shown(name.as_bytes()));
                let fact = format!("the model has functions in '{domain}', but no '{name}'");
                has_functions.then(|| (&codes::UNKNOWN_FUNCTION, fact, "".into()))
            }
        }
    }

    /// Suggests an operator of a domain with a similar name.
    fn similar(&self, domain: Option<Symbol>, domain_text: &str, name: &str) -> Option<String> {
        let operators = self.options.registry.operators();
        let operators = operators.filter(|op| op.domain == domain_text);
        let sets = self.options.operator_sets.iter();
        let sets = sets.filter(|set| set.domain == domain_text);
        let declared = sets.flat_map(|set| &set.operators);
        let functions = self.model.functions.iter();
        let functions = functions
            .filter(|function| self.domain(function.domain) == domain)
            .filter_map(|function| std::str::from_utf8(self.model.maybe_text(function.name)?).ok());
        let names = operators.map(|op| op.name);
        let names = names.chain(declared.map(|op| op.name.as_str()));
        let near = sardonyx_proto::closest(name, names.chain(functions))?;
        Some(format!("did you mean {near}?"))
    }

    /// Reports a callee that cannot be called. Returns whether it can.
    pub(super) fn callable(&mut self, node: NodeId, callee: u32) -> bool {
        let Some((code, fact, advice)) = self.callees.get(callee).problem.clone() else {
            return true;
        };
        let field = match code.name {
            "opset-not-imported" => "domain",
            _ => "op_type",
        };
        self.add_with(code, Spot::node(node).field(field), |_| (fact, advice));
        false
    }
}

/// Describes the name of an operator in a domain whose operators a document lists.
fn describe_declared(
    set: &OperatorSet,
    full: &str,
    name: &str,
    version: i64,
) -> Option<(&'static Code, String, Cow<'static, str>)> {
    match set.operator(name, version) {
        Ok(operator) if operator.status == OperatorStatus::EXPERIMENTAL.0 => {
            let fact =
                format!("{full} is experimental: it may change with every version of its set");
            let advice = "check whether a later version of the operator set declares it stable";
            Some((&codes::EXPERIMENTAL_OPERATOR, fact, advice.into()))
        }
        Ok(_) => None,
        Err(Some(first)) => {
            let fact = format!(
                "{full} was added in version {first} of the operator set; version {version} is imported"
            );
            Some((&codes::OPERATOR_NOT_YET, fact, "".into()))
        }
        Err(None) => {
            let fact = format!("operator {full} does not exist");
            Some((&codes::UNKNOWN_CUSTOM_OPERATOR, fact, "".into()))
        }
    }
}

/// Returns advice about the replacement of an operator that was removed from the standard.
fn replacement(domain: &str, name: &str) -> Option<&'static str> {
    Some(match (domain, name) {
        ("", "Upsample") => "use Resize",
        ("", "Scatter") => "use ScatterElements",
        ("ai.onnx.ml", "TreeEnsembleClassifier" | "TreeEnsembleRegressor") => "use TreeEnsemble",
        ("", "GroupNormalization") => {
            "use GroupNormalization of version 21, which has scale and bias per channel"
        }
        _ => return None,
    })
}
