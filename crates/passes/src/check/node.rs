//! Rules about a node: its callee, its inputs and outputs, and its name.

use sardonyx_model::{GraphId, NodeId};
use sardonyx_ops::{Arity, Param};

use super::operator::Formals;
use super::{Checker, Root, count, graph::graph_number};
use crate::codes;
use crate::finding::Spot;

impl Checker<'_> {
    /// Checks a node. If `alone`, its inputs may be defined elsewhere.
    pub(super) fn node(&mut self, id: NodeId, root: Root, alone: bool) {
        let model = self.model;
        let node = model.node(id);
        let (inputs, outputs) = (model.inputs(id).len(), model.outputs(id).len());
        if outputs == 0 {
            match inputs {
                0 => self.add(&codes::EMPTY_NODE, Spot::node(id), |_| {
                    "the node has neither inputs nor outputs".into()
                }),
                _ => self.add(&codes::NODE_WITHOUT_OUTPUT, Spot::node(id), |_| {
                    "the node has no outputs".into()
                }),
            }
        }
        self.steps += (1 + inputs + outputs) as u64;
        let callee = self.callee(id, root);
        let known = self.callable(id, callee);
        let (formal_inputs, formal_outputs) = {
            let callee = self.callees.get(callee);
            (callee.inputs, callee.outputs)
        };
        if known {
            self.counts(id, callee, inputs, outputs);
            if !alone {
                self.operand_types(id, callee);
            }
        }
        for (index, value) in model.inputs(id).enumerate() {
            match value {
                Some(value) if !alone => self.check_input(id, index, value),
                Some(_) => {}
                None => self.nameless_input(id, callee, formal_inputs, index),
            }
        }
        for (index, value) in model.outputs(id).iter().enumerate() {
            match value {
                Some(value) if !alone => self.check_output(id, index, *value),
                Some(_) => {}
                None if formal_outputs.is_single(index) => {
                    self.report_missing(id, callee, index, "output");
                }
                None => {}
            }
        }
        let inner = self.inner.len();
        if !model.attributes(id).is_empty() || known {
            self.attributes(id, callee, root, known);
        }
        if known && self.callees.get(callee).is_function {
            self.call(id, root);
        }
        if known && self.inner.len() > inner {
            self.subgraphs(id, callee);
        }
        if let Some(name) = node.name.filter(|name| Some(*name) != self.empty) {
            let number = graph_number(node.graph);
            let last = &mut self.node_names[sardonyx_model::Id::index(name)];
            if *last == number {
                self.add(&codes::DUPLICATE_NODE_NAME, Spot::node(id).field("name"), |_| {
                    "another node of the graph has the same name".into()
                });
            } else {
                *last = number;
            }
        }
        if let Some(extras) = model.extras(id) {
            self.check_markup(extras.doc_string, Spot::node(id));
            self.keys(&extras.metadata_props, Spot::node(id), "metadata_props");
            self.devices(id, &extras.device_configurations);
        }
    }

    /// Checks only the agreement of a node with the operator that it calls.
    pub(super) fn signature(&mut self, id: NodeId, root: Root) {
        let model = self.model;
        let callee = self.callee(id, root);
        if self.callees.get(callee).schema.is_none() {
            return;
        }
        let (inputs, outputs) = (model.inputs(id).len(), model.outputs(id).len());
        self.counts(id, callee, inputs, outputs);
        let formals = self.callees.get(callee).inputs;
        for (index, value) in model.inputs(id).enumerate() {
            if value.is_none() {
                self.nameless_input(id, callee, formals, index);
            }
        }
        self.attributes(id, callee, root, true);
    }

    /// Checks the nodes of a graph, each by itself.
    pub(super) fn nodes_alone(&mut self, graph: GraphId) {
        for node in &self.model.graph(graph).nodes {
            self.node(*node, Root::Main, true);
            for graph in std::mem::take(&mut self.inner) {
                self.check_tree(graph, Root::Main);
            }
        }
    }

    /// Checks the numbers of inputs and outputs.
    fn counts(&mut self, id: NodeId, callee: u32, inputs: usize, outputs: usize) {
        let Some(schema) = self.callees.get(callee).schema else {
            return;
        };
        let formals = self.callees.get(callee);
        for (code, what, actual, formals) in [
            (&codes::INPUT_COUNT, "input", inputs, formals.inputs),
            (&codes::OUTPUT_COUNT, "output", outputs, formals.outputs),
        ] {
            if formals.allow(actual) {
                continue;
            }
            let spot = if actual > formals.most {
                Spot::node(id).item(what, formals.most)
            } else {
                Spot::node(id)
            };
            self.add_with(code, spot, |_| {
                let (fewest, most) = (formals.fewest, formals.most);
                let allowed = match most {
                    _ if most == fewest => count(fewest as u64, what),
                    _ if formals.no_middle => format!("{fewest} or {most} {what}s"),
                    usize::MAX => format!("at least {}", count(fewest as u64, what)),
                    _ => format!("{fewest} to {most} {what}s"),
                };
                let fact = format!("{} takes {allowed}, but the node has {actual}", schema.name);
                let params = if what == "input" { &schema.inputs } else { &schema.outputs };
                let names: Vec<String> = params.iter().map(param_words).collect();
                let advice = match &names[..] {
                    [] => format!("{} has no {what}s", schema.name),
                    [name] => format!("its {what} is {name}"),
                    names => format!("its {what}s are {}", names.join(", ")),
                };
                (fact, advice.into())
            });
        }
    }

    /// Reports an input with an empty name.
    fn nameless_input(&mut self, id: NodeId, callee: u32, formals: Formals, index: usize) {
        if formals.is_single(index) {
            return self.report_missing(id, callee, index, "input");
        }
        let Some(schema) = self.callees.get(callee).schema else {
            return;
        };
        if let Some(param) = schema.inputs.last()
            && index >= formals.variadic
        {
            self.add(&codes::NAMELESS_VARIADIC_INPUT, Spot::node(id).item("input", index), |_| {
                format!(
                    "input {index} has no name, but {} takes '{}' as a list without gaps",
                    schema.name, param.name
                )
            });
        }
    }

    fn report_missing(&mut self, id: NodeId, callee: u32, index: usize, what: &'static str) {
        let Some(schema) = self.callees.get(callee).schema else {
            return;
        };
        let (code, params) = match what {
            "input" => (&codes::MISSING_INPUT, &schema.inputs),
            _ => (&codes::MISSING_OUTPUT, &schema.outputs),
        };
        let name = params.get(index).map_or("", |param| param.name);
        self.add(code, Spot::node(id).item(what, index), |_| {
            format!("{what} {index} ({name}) is missing, but {} requires it", schema.name)
        });
    }
}

/// Returns a formal input or output by name, with its number of occurrences if that is not one.
fn param_words(param: &Param) -> String {
    match param.arity {
        Arity::Single => param.name.to_string(),
        Arity::Optional => format!("{} (optional)", param.name),
        Arity::Variadic { min, .. } => format!("{} ({min} or more)", param.name),
    }
}
