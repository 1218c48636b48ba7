//! Models that compute in double: a reference for rounding errors.
//!
//! Every tensor of float, float16 or bfloat16 becomes double: stored constants and inputs of the
//! model are converted by `Cast` nodes, so that no weight is copied. Where an operator does not
//! take double, its inputs are converted back, and its results to double.

use hashbrown::HashMap;
use sardonyx_model::{
    AttrValue, GraphId, Model, NodeId, Producer, Type, TypeKind, TypeProto, ValueId,
    normalize_domain,
};
use sardonyx_ops::{Registry, Schema};
use sardonyx_tensor::DataType;

use crate::infer::{InferOptions, Inference, infer_model};
use crate::order::{inner_graphs, tree};

/// Result of [`widen`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Widened {
    /// Number of nodes that compute in double and did not before.
    pub nodes: usize,
    /// Nodes that still compute in their former types, because their operators do not take double.
    pub narrow: Vec<NodeId>,
}

/// Makes a model compute in double. Its inputs keep their types, its outputs become double. Values
/// keep their ids and names. Calls of functions stay as they are; they are to be inlined before.
pub fn widen(model: &mut Model, registry: &Registry) -> Widened {
    let Some(main) = model.main else { return Widened::default() };
    let types = infer_model(model, registry, InferOptions::default());
    let opsets = model.opsets().into_iter().map(|(domain, version)| (domain.into_owned(), version));
    let mut widener = Widener {
        registry,
        opsets: opsets.collect(),
        types,
        wide: HashMap::new(),
        result: Widened::default(),
    };
    for graph in tree(model, main) {
        widener.widen_graph(model, graph);
    }
    widener.result
}

/// Whether elements of a type become double.
fn is_short(elem: DataType) -> bool {
    matches!(elem, DataType::Float | DataType::Float16 | DataType::Bfloat16)
}

/// Number of the element type double in attributes.
const DOUBLE: i64 = 11;

/// Attributes with the number of an element type in which an operator computes.
const PRECISIONS: [&str; 2] = ["stash_type", "softmax_precision"];

struct Widener<'a> {
    registry: &'a Registry,
    /// Versions of the operator sets, by domain.
    opsets: HashMap<String, i64>,
    types: Inference,
    /// Double versions of values that keep their types, by graph and value.
    wide: HashMap<(GraphId, ValueId), ValueId>,
    result: Widened,
}

impl Widener<'_> {
    fn widen_graph(&mut self, model: &mut Model, graph: GraphId) {
        let nodes = std::mem::take(&mut model.graph_mut(graph).nodes);
        let mut list = Vec::with_capacity(nodes.len());
        let mut first = Vec::new();
        for node in nodes {
            self.widen_node(model, node, &mut first, &mut list);
        }
        for index in 0..model.graph(graph).outputs.len() {
            let value = model.graph(graph).outputs[index].value;
            let Some(value) = value.filter(|value| self.keeps_type(model, *value)) else {
                continue;
            };
            if self.short_type(model, value).is_some() {
                let wide = self.widen_value(model, graph, value, &mut first);
                let name = Some(model.value(wide).name);
                let info = &mut model.graph_mut(graph).outputs[index];
                (info.value, info.name) = (Some(wide), name);
            }
        }
        first.append(&mut list);
        model.graph_mut(graph).nodes = first;
        let is_main = model.main == Some(graph);
        let found = model.graph_mut(graph);
        found.value_info.clear();
        let inputs = found.inputs.iter_mut().filter(|_| !is_main);
        for info in inputs.chain(&mut found.outputs) {
            if let Some(ty) = &mut info.ty {
                widen_declaration(ty);
            }
        }
    }

    /// Returns the element type of a value if it is short.
    fn short_type(&self, model: &Model, value: ValueId) -> Option<DataType> {
        let elem = match self.types.ty(value) {
            Some(Type::Tensor(tensor)) => tensor.elem,
            Some(_) => None,
            None => {
                let tensor = &model.initializer(value)?.tensor;
                tensor.data_type.and_then(DataType::from_number)
            }
        };
        elem.filter(|elem| is_short(*elem))
    }

    /// Whether a value keeps its type: a constant, or an input of the model.
    fn keeps_type(&self, model: &Model, value: ValueId) -> bool {
        let found = model.value(value);
        match found.producer {
            Producer::Initializer(_) => true,
            Producer::Input(_) => model.main == Some(found.graph),
            _ => false,
        }
    }

    /// Returns the double version of a value that keeps its type. It is computed in `graph`, by a
    /// node that is added to `first`.
    fn widen_value(
        &mut self,
        model: &mut Model,
        graph: GraphId,
        value: ValueId,
        first: &mut Vec<NodeId>,
    ) -> ValueId {
        if let Some(wide) = self.wide.get(&(graph, value)) {
            return *wide;
        }
        let (node, wide) = add_cast(model, graph, value, DOUBLE);
        first.push(node);
        self.wide.insert((graph, value), wide);
        wide
    }

    /// Changes a node so that it reads and makes doubles, and adds it to `list` with the nodes that
    /// this needs.
    fn widen_node(
        &mut self,
        model: &mut Model,
        node: NodeId,
        first: &mut Vec<NodeId>,
        list: &mut Vec<NodeId>,
    ) {
        let graph = model.node(node).graph;
        let schema = self.find_schema(model, node);
        let has_graphs = inner_graphs(model, node).next().is_some();
        let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
        let outputs: Vec<Option<ValueId>> = model.outputs(node).to_vec();
        let short_outputs = outputs
            .iter()
            .map(|value| value.is_some_and(|value| self.short_type(model, value).is_some()));
        let short_outputs: Vec<bool> = short_outputs.collect();
        let op_type = model.display(model.node(node).op_type).into_owned();
        let is_cast = op_type == "Cast" && short_outputs.first() == Some(&true);
        let mut wide_vars: Vec<&str> = Vec::new();
        let mut is_narrow = false;
        for (index, value) in inputs.iter().enumerate() {
            let Some(value) = *value else { continue };
            let Some(elem) = self.short_type(model, value) else { continue };
            let var = schema.as_ref().and_then(|schema| wide_var(schema, index));
            let keeps = self.keeps_type(model, value);
            if has_graphs || var.is_some() {
                wide_vars.extend(var);
                if keeps {
                    let wide = self.widen_value(model, graph, value, first);
                    model.set_input(node, index, Some(wide));
                }
            } else {
                is_narrow = true;
                if !keeps {
                    let (cast, short) = add_cast(model, graph, value, i64::from(elem as i32));
                    list.push(cast);
                    model.set_input(node, index, Some(short));
                }
            }
        }
        if is_cast {
            model.set_attribute(node, "to", DOUBLE);
        }
        for name in PRECISIONS {
            let is_set = schema.as_ref().is_some_and(|schema| schema.attribute(name).is_some());
            if is_set && !wide_vars.is_empty() {
                model.set_attribute(node, name, DOUBLE);
            }
        }
        list.push(node);
        let mut widens = is_cast || has_graphs;
        for (index, value) in outputs.iter().enumerate() {
            let Some(value) = value.filter(|_| short_outputs[index]) else { continue };
            let var = schema.as_ref().and_then(|schema| Some(schema.output(index)?.ty));
            let is_wide = is_cast || has_graphs || var.is_some_and(|var| wide_vars.contains(&var));
            widens |= is_wide;
            if !is_wide {
                let between = model.add_value(graph, &op_type);
                model.redefine_output(node, index, between);
                let (cast, made) = add_cast(model, graph, between, DOUBLE);
                model.redefine_output(cast, 0, value);
                debug_assert_ne!(made, value);
                list.push(cast);
            }
        }
        if is_narrow {
            self.result.narrow.push(node);
        } else if widens {
            self.result.nodes += 1;
        }
    }

    /// Returns the definition of the operator that a node calls; `None` for functions.
    fn find_schema(&self, model: &Model, node: NodeId) -> Option<Schema> {
        let domain = model.domain_of(node);
        let name = model.display(model.node(node).op_type);
        let version = self.opsets.get(&*domain).copied().unwrap_or(1);
        let opset = u32::try_from(version).ok()?;
        self.registry.schema(normalize_domain(&domain), &name, opset).cloned()
    }
}

/// Returns the type variable of an input that allows double.
fn wide_var(schema: &Schema, index: usize) -> Option<&str> {
    let param = schema.input(index)?;
    let var = schema.type_var(param.ty)?;
    let is_wide = var.allowed.tensor_elems().any(|elem| elem == DataType::Double);
    is_wide.then_some(param.ty)
}

/// Adds a node that converts `value` to the element type with the number `to`. It is in no list
/// yet.
fn add_cast(model: &mut Model, graph: GraphId, value: ValueId, to: i64) -> (NodeId, ValueId) {
    let node = model.add_node(graph, "Cast", "", &[Some(value)], 1);
    model.graph_mut(graph).nodes.pop();
    model.set_attribute(node, "to", AttrValue::Int(to));
    let made = model.outputs(node)[0].unwrap_or(value);
    (node, made)
}

/// Replaces short element types of a declaration by double.
fn widen_declaration(ty: &mut TypeProto) {
    match &mut ty.kind {
        Some(TypeKind::Tensor { elem_type, .. } | TypeKind::SparseTensor { elem_type, .. }) => {
            let elem = elem_type.and_then(DataType::from_number);
            if elem.is_some_and(is_short) {
                *elem_type = Some(DataType::Double as i32);
            }
        }
        Some(
            TypeKind::Sequence { elem_type: Some(inner), .. }
            | TypeKind::Optional { elem_type: Some(inner), .. },
        ) => widen_declaration(inner),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::*;

    fn widen_text(nodes: &str) -> (Model, Widened) {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[N, 2] x) => (float[N, 2] y) <float[2] w = {{1, 2}}> {{ {nodes} }}"
        );
        let text = Buffer::from_vec(text.into_bytes());
        let mut model = parse_model(text, ParseOptions::default()).expect("a model").model;
        let widened = widen(&mut model, &Registry::with_microsoft());
        (model, widened)
    }

    #[test]
    fn values_become_double() {
        let rows = [
            ("y = Mul (x, w)", "Cast Cast Mul", 1, 0),
            ("a = Exp (x) y = Mul (a, a)", "Cast Exp Mul", 2, 0),
            // A constant of a node, and a conversion.
            (
                "c = Constant <value_float = 2.0> () h = Cast <to = 10> (x) y = Mul (x, c)",
                "Cast Constant Cast Cast Mul",
                2,
                0,
            ),
            // An operator that does not take double.
            (
                "s = Constant <value_float = 0.1> () z = Constant <value = uint8 {0}> ()
                 q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)",
                "Constant Cast Constant Cast QuantizeLinear Cast DequantizeLinear Cast",
                0,
                2,
            ),
            // Bodies read constants of the graph around them.
            (
                "c = Constant <value = bool {1}> ()
                 y = If (c) <
                     then_branch = t () => (float[N, 2] p) { p = Mul (x, w) },
                     else_branch = e () => (float[N, 2] q) { q = Neg (x) }>",
                "Constant If",
                3,
                0,
            ),
        ];
        for (nodes, expected, wide, narrow) in rows {
            let (model, widened) = widen_text(nodes);
            let main = model.main_graph().expect("a graph");
            let operators = main.nodes.iter().map(|node| model.display(model.node(*node).op_type));
            assert_eq!(operators.collect::<Vec<_>>().join(" "), expected, "{nodes}");
            assert_eq!((widened.nodes, widened.narrow.len()), (wide, narrow), "{nodes}");
            let types = infer_model(&model, &Registry::standard(), InferOptions::default());
            assert!(types.problems().is_empty(), "{nodes}: {:?}", types.problems());
            let y = main.outputs[0].value.expect("an output");
            let elem = types.ty(y).and_then(Type::elem);
            assert_eq!(elem, Some(DataType::Double), "{nodes}");
        }
    }
}
