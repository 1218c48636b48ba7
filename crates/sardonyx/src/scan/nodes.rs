//! Nodes that make many elements that the file does not store, or that run what is not ONNX.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use sardonyx_model::{
    AttributeValue, GraphId, Model, NoExternalData, NodeId, Producer, Symbol, TensorProto, ValueId,
};
use sardonyx_proto::shown;
use sardonyx_tensor::{CastOptions, DataType, cast};

use super::ScanOptions;
use super::codes;
use super::places::of_node;
use super::report::{Findings, ScanFacts, ScannedDomain};

/// Domains of the standard.
const STANDARD: [&str; 5] =
    ["", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"];

/// Operators that are known to run code, or to open files and connections, that the model names:
/// domain, operator, what it does. An empty domain is any.
const FOREIGN: &[(&str, &str, &str)] = &[
    ("", "PyOp", "calls Python"),
    ("", "PyCustomOp", "calls Python"),
    ("", "PythonOp", "calls Python"),
    ("", "PythonOpGrad", "calls Python"),
    ("", "TritonOp", "compiles and runs Python"),
    ("", "ATen", "calls any operator of PyTorch"),
    ("", "ExternalOp", "calls a library"),
    ("com.microsoft", "EPContext", "runs a compiled program, which may be in another file"),
    ("trt.plugins", "", "runs a plugin of TensorRT"),
    ("com.microsoft.extensions", "", "may call network services"),
];

/// Elements of a constant operand that are looked at.
const OPERAND_ELEMENTS: u64 = 1024;
/// Bytes of an operand that are looked at.
const OPERAND_BYTES: u64 = 64 << 10;
/// Names of operators in a message.
const SHOWN_OPERATORS: usize = 6;
/// Domains that the report lists.
const LISTED: usize = 1000;

/// Looks at all nodes.
pub(super) fn check(
    model: &Model,
    options: &ScanOptions,
    facts: &mut ScanFacts,
    found: &mut Findings,
) {
    check_domains(model, facts, found);
    let constants = Constants::new(model);
    for (_, graph) in model.graphs() {
        for node in &graph.nodes {
            check_strings(model, *node, found);
            if !model.domain_of(*node).is_empty() {
                continue;
            }
            let Some(elements) = constants.made_by(*node) else {
                continue;
            };
            let limit = options.elements as f64;
            match model.maybe_text(model.node(*node).op_type) {
                Some(b"Loop") if elements > limit => found.add(&codes::LONG_LOOP, || {
                    let message = format!("it loops {} times", rounded(elements));
                    (of_node(model, *node), message)
                }),
                _ if elements > limit => found.add(&codes::EXPANSION, || {
                    let message = format!(
                        "it creates {} elements that are not stored in the file",
                        rounded(elements)
                    );
                    (of_node(model, *node), message)
                }),
                _ => {}
            }
        }
    }
}

/// A number that may be far beyond all integers.
pub(super) fn rounded(number: f64) -> String {
    match number {
        f64::INFINITY => "countless".to_string(),
        _ if number < 1e15 => format!("{number:.0}"),
        _ => format!("{number:.1e}"),
    }
}

/// A string attribute that begins and ends as a Python pickle of protocol 4 or 5.
fn check_strings(model: &Model, node: NodeId, found: &mut Findings) {
    for id in model.attributes(node) {
        for value in &model.attribute(*id).values {
            let AttributeValue::String(span) = value else {
                continue;
            };
            let bytes = model.bytes(*span);
            let begins = bytes.starts_with(b"\x80\x04\x95") || bytes.starts_with(b"\x80\x05\x95");
            if begins && bytes.ends_with(b".") {
                found.add(&codes::PICKLE, || {
                    let message =
                        format!("an attribute is a Python pickle of {} bytes", bytes.len());
                    (of_node(model, node), message)
                });
            }
        }
    }
}

type OperatorKey = (Option<Symbol>, Option<Symbol>);

/// Lists domains, and names those that are not the standard's.
fn check_domains(model: &Model, facts: &mut ScanFacts, found: &mut Findings) {
    let mut counts: HashMap<OperatorKey, (u64, NodeId)> = HashMap::new();
    for (_, graph) in model.graphs() {
        for id in &graph.nodes {
            let node = model.node(*id);
            let count = counts.entry((node.domain, node.op_type)).or_insert((0, *id));
            count.0 += 1;
        }
    }
    let functions: HashSet<(&[u8], &[u8])> = model
        .functions
        .iter()
        .map(|function| (text(model, function.domain), text(model, function.name)))
        .collect();
    let mut domains: BTreeMap<&[u8], Vec<(&[u8], u64, NodeId)>> = BTreeMap::new();
    for ((domain, name), (count, first)) in counts {
        let name = model.maybe_text(name).unwrap_or_default();
        let operators = domains.entry(text(model, domain)).or_default();
        operators.push((name, count, first));
    }
    for (domain, mut operators) in domains {
        operators.sort_by_key(|(name, count, _)| (std::cmp::Reverse(*count), *name));
        if facts.domains.len() < LISTED {
            facts.domains.push(ScannedDomain {
                domain: shown(domain),
                operators: operators.len() as u64,
                nodes: operators.iter().map(|(_, count, _)| count).sum(),
            });
        }
        let foreign = |name: &[u8]| !functions.contains(&(domain, name));
        for (name, count, first) in &operators {
            let row = FOREIGN.iter().find(|(in_domain, op, _)| {
                (in_domain.is_empty() || in_domain.as_bytes() == domain)
                    && (op.is_empty() || op.as_bytes() == *name)
            });
            if let Some((_, _, what)) = row.filter(|_| foreign(name)) {
                found.add(&codes::FOREIGN_CODE, || {
                    let message = format!("{} {what}; {}", qualified(domain, name), nodes(*count));
                    (of_node(model, *first), message)
                });
            }
        }
        let standard = STANDARD.iter().any(|known| known.as_bytes() == domain);
        operators.retain(|(name, _, _)| foreign(name));
        if !standard && !operators.is_empty() {
            found.add(&codes::CUSTOM_DOMAIN, || {
                let count = operators.iter().map(|(_, count, _)| count).sum();
                let mut names: Vec<String> = operators
                    .iter()
                    .take(SHOWN_OPERATORS)
                    .map(|(name, _, _)| shown(name))
                    .collect();
                if operators.len() > SHOWN_OPERATORS {
                    names.push(format!("{} more", operators.len() - SHOWN_OPERATORS));
                }
                let (domain, names) = (shown(domain), names.join(", "));
                let message = format!("{} of the domain '{domain}': {names}", nodes(count));
                (String::new(), message)
            });
        }
    }
}

fn nodes(count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} node{s}")
}

fn qualified(domain: &[u8], name: &[u8]) -> String {
    match domain {
        b"" => shown(name),
        _ => format!("{}.{}", shown(domain), shown(name)),
    }
}

/// A domain or name as bytes; `ai.onnx` is empty.
pub(super) fn text(model: &Model, symbol: Option<Symbol>) -> &[u8] {
    match model.maybe_text(symbol).unwrap_or_default() {
        b"ai.onnx" => b"",
        text => text,
    }
}

/// Finds the values of operands that the file fixes.
struct Constants<'m> {
    model: &'m Model,
    /// Initializers by value. The model ties a value to its input if it is one; a default counts
    /// here all the same.
    initializers: HashMap<ValueId, (GraphId, u32)>,
    /// What was found out about operands: one may be used by all nodes of a model.
    known: RefCell<HashMap<ValueId, Option<Rc<[f64]>>>>,
}

impl<'m> Constants<'m> {
    fn new(model: &'m Model) -> Constants<'m> {
        let mut initializers = HashMap::new();
        for (id, graph) in model.graphs() {
            for (index, initializer) in graph.initializers.iter().enumerate() {
                initializers.extend(initializer.value.map(|value| (value, (id, index as u32))));
            }
        }
        Constants { model, initializers, known: RefCell::default() }
    }

    /// How many elements a node of the standard makes whatever its variable inputs are, at least;
    /// for a loop, how often it runs. `None` if nothing can be said.
    fn made_by(&self, node: NodeId) -> Option<f64> {
        let op = self.model.maybe_text(self.model.node(node).op_type)?;
        let operand = |index| self.operand(node, index);
        let product = |index| operand(index).map(|numbers| product_of(&numbers));
        let attribute = |name| self.numbers_of(node, name).map(|numbers| product_of(&numbers));
        match op {
            b"ConstantOfShape" | b"HannWindow" | b"HammingWindow" | b"BlackmanWindow" => product(0),
            b"Expand" | b"CenterCropPad" | b"AffineGrid" | b"Col2Im" | b"DFT" => product(1),
            b"MaxUnpool" => product(2),
            b"Loop" => product(0),
            b"RandomNormal" | b"RandomUniform" => attribute("shape"),
            b"Multinomial" => attribute("sample_size"),
            b"ConvTranspose" => attribute("output_shape"),
            b"Tile" => Some(product(1)? * self.elements(node, 0).unwrap_or(1.0)),
            b"OneHot" => Some(product(1)? * self.elements(node, 0).unwrap_or(1.0)),
            b"EyeLike" => self.elements(node, 0),
            b"MelWeightMatrix" => Some(product(0)? * (product(1)? / 2.0 + 1.0)),
            b"Range" => {
                let (start, limit, delta) = (operand(0)?, operand(1)?, operand(2)?);
                Some((limit.first()? - start.first()?) / delta.first()?)
            }
            b"Pad" => {
                let attribute = |name| self.numbers_of(node, name).map(Rc::from);
                let pads =
                    operand(1).or_else(|| attribute("pads")).or_else(|| attribute("paddings"))?;
                let (begins, ends) = pads.split_at(pads.len() / 2);
                let sides = begins.iter().zip(ends);
                Some(sides.map(|(a, b)| 1.0 + a.max(0.0) + b.max(0.0)).product())
            }
            b"Upsample" => {
                let height = self.numbers_of(node, "height_scale");
                let width = self.numbers_of(node, "width_scale");
                let sides = height.zip(width).map(|(a, b)| product_of(&[a, b].concat()));
                product(1).or_else(|| attribute("scales")).or(sides)
            }
            b"Resize" => match self.model.inputs(node).len() {
                // The second input was the scales once.
                0..=2 => product(1),
                _ => product(3).or_else(|| product(2)),
            },
            _ => None,
        }
    }

    /// The numbers of an input, if the file fixes them and they are few.
    fn operand(&self, node: NodeId, index: usize) -> Option<Rc<[f64]>> {
        let value = self.model.inputs(node).nth(index)??;
        if let Some(known) = self.known.borrow().get(&value) {
            return known.clone();
        }
        let found = self.fixed(value).map(Rc::from);
        self.known.borrow_mut().insert(value, found.clone());
        found
    }

    /// The numbers of an initializer, or of what a Constant makes.
    fn fixed(&self, value: ValueId) -> Option<Vec<f64>> {
        if let Some(tensor) = self.initializer(value) {
            return self.numbers(tensor);
        }
        let Producer::Node(node, _) = self.model.value(value).producer else {
            return None;
        };
        if self.model.maybe_text(self.model.node(node).op_type) != Some(b"Constant") {
            return None;
        }
        let names = ["value", "value_ints", "value_int", "value_floats", "value_float"];
        names.iter().find_map(|name| self.numbers_of(node, name))
    }

    /// How many elements an input has, if it is an initializer.
    fn elements(&self, node: NodeId, index: usize) -> Option<f64> {
        let value = self.model.inputs(node).nth(index)??;
        let dims = &self.initializer(value)?.dims;
        // All nodes may share one that has a million.
        if dims.len() as u64 > OPERAND_ELEMENTS {
            return None;
        }
        Some(dims.iter().map(|dim| (*dim).max(0) as f64).product())
    }

    fn initializer(&self, value: ValueId) -> Option<&'m TensorProto> {
        let (graph, index) = self.initializers.get(&value)?;
        let initializers = &self.model.graph(*graph).initializers;
        Some(&initializers.get(*index as usize)?.tensor)
    }

    /// The numbers of an attribute.
    fn numbers_of(&self, node: NodeId, name: &str) -> Option<Vec<f64>> {
        match self.model.attribute_of(node, name)?.value()? {
            AttributeValue::Int(number) => Some(vec![*number as f64]),
            AttributeValue::Float(number) => Some(vec![f64::from(*number)]),
            // What is longer is no shape.
            AttributeValue::Ints(numbers) if numbers.len() as u64 > OPERAND_ELEMENTS => None,
            AttributeValue::Floats(numbers) if numbers.len() as u64 > OPERAND_ELEMENTS => None,
            AttributeValue::Ints(numbers) => Some(numbers.iter().map(|n| *n as f64).collect()),
            AttributeValue::Floats(numbers) => {
                Some(numbers.iter().map(|n| f64::from(*n)).collect())
            }
            AttributeValue::Tensor(tensor) => self.numbers(tensor),
            _ => None,
        }
    }

    /// The numbers of a tensor, if they are few and in the model.
    fn numbers(&self, tensor: &TensorProto) -> Option<Vec<f64>> {
        let bytes = tensor.raw_data.map_or(0, |raw| raw.len);
        let typed: u64 = tensor.typed.iter().map(|run| run.records.len).sum();
        let elements =
            tensor.dims.iter().try_fold(1u64, |n, dim| n.checked_mul(u64::try_from(*dim).ok()?))?;
        let is_text = tensor.data_type == Some(DataType::String.number());
        if is_text || elements > OPERAND_ELEMENTS || bytes.saturating_add(typed) > OPERAND_BYTES {
            return None;
        }
        let tensor = self.model.tensor(tensor, &NoExternalData).ok()?;
        let numbers = cast(&tensor, DataType::Double, CastOptions::default()).ok()?;
        numbers.to_vec::<f64>().ok()
    }
}

fn product_of(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number.max(0.0)).product()
}
