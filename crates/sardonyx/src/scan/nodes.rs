//! Checks of nodes: tensors much larger than the file, long loops, pickles, and operators that run
//! foreign code.

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
use super::places::node_path;
use super::report::{Findings, ScanFacts, ScannedDomain};

/// Operator domains of the ONNX standard.
const STANDARD: [&str; 5] =
    ["", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"];

/// Operators that run code chosen by the model, or open files and connections chosen by the model:
/// domain, operator, effect. An empty domain matches all domains, an empty operator all operators.
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

/// Maximum number of elements of a constant node input that is evaluated.
const OPERAND_ELEMENTS: u64 = 1024;
/// Maximum size of a constant node input that is evaluated, in bytes.
const OPERAND_BYTES: u64 = 64 << 10;
/// Maximum number of operator names in the message of a finding.
const SHOWN_OPERATORS: usize = 6;
/// Maximum number of operator domains in the report of a scan.
const LISTED: usize = 1000;

/// Checks all nodes of all graphs for security problems.
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
            let Some(elements) = constants.count_output_elements(*node) else {
                continue;
            };
            let limit = options.elements as f64;
            match model.maybe_text(model.node(*node).op_type) {
                Some(b"Loop") if elements > limit => found.add(&codes::LONG_LOOP, || {
                    let message = format!("the loop runs {} iterations", format_large(elements));
                    (node_path(model, *node), message)
                }),
                _ if elements > limit => found.add(&codes::EXPANSION, || {
                    let message = format!(
                        "the node creates {} elements that are not stored in the file",
                        format_large(elements)
                    );
                    (node_path(model, *node), message)
                }),
                _ => {}
            }
        }
    }
}

/// Formats a count that may exceed all integers: in full below 1e15, with an exponent from 1e15 on,
/// `countless` if infinite.
pub(super) fn format_large(number: f64) -> String {
    match number {
        f64::INFINITY => "countless".to_string(),
        _ if number < 1e15 => format!("{number:.0}"),
        _ => format!("{number:.1e}"),
    }
}

/// Reports string attributes of a node that begin and end like a Python pickle of protocol 4 or 5.
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
                    (node_path(model, node), message)
                });
            }
        }
    }
}

/// Domain and name of an operator.
type OperatorKey = (Option<Symbol>, Option<Symbol>);

/// Lists the operator domains of all nodes in `facts`. Reports domains outside of the standard, and
/// operators that run foreign code.
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
        .map(|function| (read_name(model, function.domain), read_name(model, function.name)))
        .collect();
    let mut domains: BTreeMap<&[u8], Vec<(&[u8], u64, NodeId)>> = BTreeMap::new();
    for ((domain, name), (count, first)) in counts {
        let name = model.maybe_text(name).unwrap_or_default();
        let operators = domains.entry(read_name(model, domain)).or_default();
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
        // Calls of the model's own functions run its own nodes.
        operators.retain(|(name, _, _)| !functions.contains(&(domain, *name)));
        for (name, count, first) in &operators {
            let row = FOREIGN.iter().find(|(in_domain, op, _)| {
                (in_domain.is_empty() || in_domain.as_bytes() == domain)
                    && (op.is_empty() || op.as_bytes() == *name)
            });
            if let Some((_, _, effect)) = row {
                found.add(&codes::FOREIGN_CODE, || {
                    let (name, nodes) =
                        (format_operator_name(domain, name), format_node_count(*count));
                    (node_path(model, *first), format!("{name} {effect}; {nodes}"))
                });
            }
        }
        let standard = STANDARD.iter().any(|known| known.as_bytes() == domain);
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
                let message =
                    format!("{} of the domain '{domain}': {names}", format_node_count(count));
                (String::new(), message)
            });
        }
    }
}

/// Formats a number of nodes: `1 node`, `2 nodes`.
fn format_node_count(count: u64) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} node{s}")
}

/// Formats the name of an operator with its domain: `com.example.Op`; `Op` for the default domain.
fn format_operator_name(domain: &[u8], name: &[u8]) -> String {
    match domain {
        b"" => shown(name),
        _ => format!("{}.{}", shown(domain), shown(name)),
    }
}

/// Returns the text of a domain or operator name; empty if absent, and for `ai.onnx`, the default
/// domain.
pub(super) fn read_name(model: &Model, symbol: Option<Symbol>) -> &[u8] {
    match model.maybe_text(symbol).unwrap_or_default() {
        b"ai.onnx" => b"",
        text => text,
    }
}

/// Evaluator of node inputs that are constants of the model file, with a cache.
struct Constants<'m> {
    model: &'m Model,
    /// Graph and index of each initializer, including defaults of graph inputs, which are used if a
    /// caller omits the inputs.
    initializers: HashMap<ValueId, (GraphId, u32)>,
    /// Cache of evaluated node inputs, as all nodes of a model may read the same value.
    known: RefCell<HashMap<ValueId, Option<Rc<[f64]>>>>,
}

impl<'m> Constants<'m> {
    /// Indexes the initializers of a model; evaluates nothing yet.
    fn new(model: &'m Model) -> Constants<'m> {
        let mut initializers = HashMap::new();
        for (id, graph) in model.graphs() {
            for (index, initializer) in graph.initializers.iter().enumerate() {
                initializers.extend(initializer.value.map(|value| (value, (id, index as u32))));
            }
        }
        Constants { model, initializers, known: RefCell::default() }
    }

    /// Returns a lower bound for the number of elements that a node with a standard operator
    /// outputs; for `Loop`, the number of iterations. `None` if the operator has no rule or the
    /// inputs that determine the number are not constant.
    fn count_output_elements(&self, node: NodeId) -> Option<f64> {
        match self.model.maybe_text(self.model.node(node).op_type)? {
            b"ConstantOfShape" | b"HannWindow" | b"HammingWindow" | b"BlackmanWindow" | b"Loop" => {
                self.multiply_input(node, 0)
            }
            b"Expand" | b"CenterCropPad" | b"AffineGrid" | b"Col2Im" | b"DFT" => {
                self.multiply_input(node, 1)
            }
            b"MaxUnpool" => self.multiply_input(node, 2),
            b"RandomNormal" | b"RandomUniform" => self.multiply_attribute(node, "shape"),
            b"Multinomial" => self.multiply_attribute(node, "sample_size"),
            b"ConvTranspose" => self.multiply_attribute(node, "output_shape"),
            b"Tile" | b"OneHot" => {
                let product = self.multiply_input(node, 1)?;
                Some(product * self.count_input_elements(node, 0).unwrap_or(1.0))
            }
            b"EyeLike" => self.count_input_elements(node, 0),
            b"MelWeightMatrix" => {
                let (bins, length) = (self.multiply_input(node, 0)?, self.multiply_input(node, 1)?);
                Some(bins * (length / 2.0 + 1.0))
            }
            b"Range" => {
                let start = self.evaluate_input(node, 0)?;
                let (limit, delta) = (self.evaluate_input(node, 1)?, self.evaluate_input(node, 2)?);
                Some((limit.first()? - start.first()?) / delta.first()?)
            }
            b"Pad" => {
                let mut pads = self.evaluate_input(node, 1);
                for name in ["pads", "paddings"] {
                    pads = pads.or_else(|| self.read_attribute(node, name).map(Rc::from));
                }
                let pads = pads?;
                let (begins, ends) = pads.split_at(pads.len() / 2);
                let sides = begins.iter().zip(ends);
                Some(sides.map(|(a, b)| 1.0 + a.max(0.0) + b.max(0.0)).product())
            }
            b"Upsample" => {
                let height = self.read_attribute(node, "height_scale");
                let width = self.read_attribute(node, "width_scale");
                let sides = height.zip(width).map(|(a, b)| multiply(&[a, b].concat()));
                let scales = self.multiply_input(node, 1);
                scales.or_else(|| self.multiply_attribute(node, "scales")).or(sides)
            }
            b"Resize" => match self.model.inputs(node).len() {
                // In version 10 of the operator, the second input is the scales.
                0..=2 => self.multiply_input(node, 1),
                _ => self.multiply_input(node, 3).or_else(|| self.multiply_input(node, 2)),
            },
            _ => None,
        }
    }

    /// Returns the product of a node input's elements, which is an element count if they are sizes;
    /// `None` if the input is not a small constant.
    fn multiply_input(&self, node: NodeId, index: usize) -> Option<f64> {
        self.evaluate_input(node, index).map(|numbers| multiply(&numbers))
    }

    /// Returns the product of an attribute's numbers, which is an element count if they are sizes;
    /// `None` if the attribute is absent or not numeric.
    fn multiply_attribute(&self, node: NodeId, name: &str) -> Option<f64> {
        self.read_attribute(node, name).map(|numbers| multiply(&numbers))
    }

    /// Returns the elements of a node input, if the input is a small constant.
    fn evaluate_input(&self, node: NodeId, index: usize) -> Option<Rc<[f64]>> {
        let value = self.model.inputs(node).nth(index)??;
        if let Some(known) = self.known.borrow().get(&value) {
            return known.clone();
        }
        let found = self.evaluate_constant(value).map(Rc::from);
        self.known.borrow_mut().insert(value, found.clone());
        found
    }

    /// Returns the elements of a value that is an initializer or the output of a `Constant` node;
    /// `None` for other or large values.
    fn evaluate_constant(&self, value: ValueId) -> Option<Vec<f64>> {
        if let Some(tensor) = self.find_initializer(value) {
            return self.read_tensor(tensor);
        }
        let Producer::Node(node, _) = self.model.value(value).producer else {
            return None;
        };
        if self.model.maybe_text(self.model.node(node).op_type) != Some(b"Constant") {
            return None;
        }
        let names = ["value", "value_ints", "value_int", "value_floats", "value_float"];
        names.iter().find_map(|name| self.read_attribute(node, name))
    }

    /// Returns the number of elements of a node input, if the input is an initializer.
    fn count_input_elements(&self, node: NodeId, index: usize) -> Option<f64> {
        let value = self.model.inputs(node).nth(index)??;
        let dims = &self.find_initializer(value)?.dims;
        // Not cached: all nodes of a hostile file may share a tensor with a million dimensions.
        if dims.len() as u64 > OPERAND_ELEMENTS {
            return None;
        }
        Some(dims.iter().map(|dim| (*dim).max(0) as f64).product())
    }

    /// Returns the initializer of a value; `None` if the value has none.
    fn find_initializer(&self, value: ValueId) -> Option<&'m TensorProto> {
        let (graph, index) = self.initializers.get(&value)?;
        let initializers = &self.model.graph(*graph).initializers;
        Some(&initializers.get(*index as usize)?.tensor)
    }

    /// Returns the numbers of a node attribute; `None` if the attribute is absent, not numeric, or
    /// has more than [`OPERAND_ELEMENTS`] numbers.
    fn read_attribute(&self, node: NodeId, name: &str) -> Option<Vec<f64>> {
        match self.model.attribute_of(node, name)?.value()? {
            AttributeValue::Int(number) => Some(vec![*number as f64]),
            AttributeValue::Float(number) => Some(vec![f64::from(*number)]),
            AttributeValue::Ints(numbers) if numbers.len() as u64 > OPERAND_ELEMENTS => None,
            AttributeValue::Floats(numbers) if numbers.len() as u64 > OPERAND_ELEMENTS => None,
            AttributeValue::Ints(numbers) => Some(numbers.iter().map(|n| *n as f64).collect()),
            AttributeValue::Floats(numbers) => {
                Some(numbers.iter().map(|n| f64::from(*n)).collect())
            }
            AttributeValue::Tensor(tensor) => self.read_tensor(tensor),
            _ => None,
        }
    }

    /// Returns the elements of a numeric tensor, if the tensor is small and stored in the model
    /// file.
    fn read_tensor(&self, tensor: &TensorProto) -> Option<Vec<f64>> {
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

/// Multiplies numbers, of which negative ones count as 0.
fn multiply(numbers: &[f64]) -> f64 {
    numbers.iter().map(|number| number.max(0.0)).product()
}
