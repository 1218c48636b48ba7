//! What a node calls: an operator of the standard, a function of the model, something else. Looked
//! up once for all nodes that call the same in the same tree of graphs.

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

/// Operators of which some numbers of outputs between the fewest and the most are not meant: their
/// optional outputs come all together or not at all. By name, with the first and the last version
/// that says so.
const ALL_OR_FEWEST: &[(&str, u32, u32)] = &[("BatchNormalization", 1, 15)];

/// Domains of the standard whose operators are all known, and whether the checker of the `onnx`
/// package thinks so.
const CLOSED_DOMAINS: &[(&str, bool)] = &[
    ("", true),
    ("ai.onnx.ml", true),
    ("ai.onnx.training", true),
    ("ai.onnx.preview", false),
    ("ai.onnx.preview.training", false),
];

type Key = (Root, Option<Symbol>, Option<Symbol>);

/// What was looked up so far.
#[derive(Default)]
pub(super) struct Callees<'a> {
    by_key: HashMap<Key, u32>,
    list: Vec<Callee<'a>>,
    /// Neighbouring nodes are often alike.
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

/// What a node calls.
pub(super) struct Callee<'a> {
    pub(super) schema: Option<&'a Schema>,
    /// Why it cannot be called.
    pub(super) problem: Option<(&'static Code, String, Cow<'static, str>)>,
    /// Whether the model has functions of that name.
    pub(super) is_function: bool,
    pub(super) inputs: Formals,
    pub(super) outputs: Formals,
    pub(super) operands: Operands<'a>,
    /// Attributes in the order of the schema; `None` for a name that the model does not have.
    pub(super) attributes: SmallVec<[(Option<Symbol>, AttributeType); 8]>,
    /// Which of them every node must have, by bit.
    pub(super) required: u64,
}

/// How many operands there may be, and which of them must be named.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formals {
    pub(super) fewest: usize,
    pub(super) most: usize,
    /// Whether only the fewest and the most are meant, and no number between.
    pub(super) no_middle: bool,
    /// Position of the first operand of the variadic parameter; `usize::MAX` without one, and where
    /// it may have gaps.
    pub(super) variadic: usize,
    /// By position, those that cannot be left out.
    single: u64,
}

impl Formals {
    const ANY: Formals =
        Formals { fewest: 0, most: usize::MAX, no_middle: false, variadic: usize::MAX, single: 0 };

    /// Whether there may be that many.
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
    /// What a node calls, by its number.
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

    /// The version of a domain in a tree of graphs.
    pub(super) fn version(&mut self, root: Root, domain: Option<Symbol>) -> Option<i64> {
        if !self.imports.contains_key(&root) {
            let list = match root {
                Root::Function(index) => &self.model.functions[index].opset_import,
                Root::Main | Root::Training(_) => &self.model.header.opset_import,
            };
            let imports = self.effective(list, root);
            self.imports.insert(root, imports);
        }
        self.imports.get(&root).and_then(|imports| imports.get(&domain)).copied()
    }

    /// The last entry of each domain counts. A model of old without any uses version 1.
    fn effective(&self, list: &[OperatorSetId], root: Root) -> Imports {
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
        // A version beyond 32 bits has a finding of its own; operators are those of the newest one.
        let opset = version.clamp(0, i32::MAX.into()) as u32;
        let registry = &self.options.registry;
        // What others add to the standard's own domain runs, and is an error all the same; what is
        // in theirs may be a function of the model.
        let is_refused = |schema: &Schema| {
            schema.domain.is_empty() && !self.options.added_operators || callee.is_function
        };
        let counts = |schema: &&Schema| !registry.is_added(schema) || !is_refused(schema);
        let Some(schema) = registry.schema(&domain_text, &name, opset).filter(counts) else {
            if !callee.is_function {
                callee.problem = self.unknown(domain, &domain_text, &name, version);
                // Only findings that are listed need a suggestion, and to look for one takes time.
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

    /// What is wrong with a name for which there is no operator and no function.
    fn unknown(
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
            return declared(set, &full, name, version);
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

    /// Advice about a name that no operator of its domain has: one like it.
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

    /// Says what is wrong with what a node calls. Whether it can be called at all.
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

/// What is wrong with the name of an operator in a domain of which a document says what is in it.
fn declared(
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

/// What to use instead of an operator that was taken out of the standard.
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
