//! Resolving: is the model something that can be run at all?
//!
//! A [`Resolved`] model is a proof: names are bound, each to one definition, the graph is acyclic,
//! operators and their versions are known, and every node has the inputs and attributes that its
//! operator demands. What else might be said about a model is the checker's business and never
//! blocks a run.

use std::collections::BTreeSet;

use sardonyx_model::{GraphId, Id, MadeNodes, Model, NodeBuilder, NodeId, Producer};
use sardonyx_ops::{OpDef, Registry, Schema};

use crate::check::{self, codes};
use crate::finding::{Finding, Findings, Spot, place_of_node};
use crate::order::sorted;

/// Findings after which no more are looked for: nobody reads them, and a file may have one for
/// every few of its bytes.
const MOST_FINDINGS: usize = 1000;

/// A model whose main graph can be walked in order, with every operator known.
#[derive(Debug, Clone)]
pub struct Resolved {
    model: Model,
    main: GraphId,
    registry: Registry,
    /// By node: the opset version in whose form it is.
    opsets: Vec<u32>,
    order: Vec<NodeId>,
    made: MadeNodes,
}

/// Resolves a model.
///
/// # Errors
///
/// Everything that stands against running it, except operators that are not known: `unknown`
/// decides whether such a node is a finding or left for the caller to report.
pub fn resolve(model: Model, registry: Registry) -> Result<Resolved, Vec<Finding>> {
    let Some(main) = model.main else {
        let finding = Finding::new(&model, &codes::NO_GRAPH, Spot::MODEL, "it has no graph");
        return Err(vec![finding]);
    };
    let mut resolved = Resolved {
        model,
        main,
        registry,
        opsets: Vec::new(),
        order: Vec::new(),
        made: MadeNodes::default(),
    };
    let mut found = Findings::new(MOST_FINDINGS);
    resolved.find_opsets(&mut found);
    resolved.bind_names(&mut found);
    let mut findings = found.report().findings;
    match resolved.sort() {
        Ok(order) => resolved.order = order,
        Err(finding) => findings.push(*finding),
    }
    // An operator that is not known is for whoever wants to run it.
    let more = check::against_running(&resolved.model, main, &resolved.registry);
    findings.extend(more.findings);
    if findings.is_empty() { Ok(resolved) } else { Err(findings) }
}

impl Resolved {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The operators that exist.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The main graph.
    pub fn main(&self) -> GraphId {
        self.main
    }

    /// The nodes of the main graph, each after those whose values it reads.
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }

    /// The operator of a node.
    pub fn operator(&self, node: NodeId) -> Option<&'static OpDef> {
        self.registry.operator(
            &self.model.domain_of(node),
            &self.model.display(self.model.node(node).op_type),
        )
    }

    /// The schema that a node follows.
    pub fn schema(&self, node: NodeId) -> Option<&Schema> {
        let name = self.model.display(self.model.node(node).op_type);
        self.registry.schema(&self.model.domain_of(node), &name, self.opset(node))
    }

    /// The opset version in whose form a node is.
    pub fn opset(&self, node: NodeId) -> u32 {
        self.opsets.get(node.index()).copied().unwrap_or(0)
    }

    /// Changes the model. Whoever does so keeps what resolving proved, or calls
    /// [`set_order`](Resolved::set_order).
    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    pub(crate) fn set_opset(&mut self, node: NodeId, opset: u32) {
        if self.opsets.len() <= node.index() {
            self.opsets.resize(node.index() + 1, 0);
        }
        self.opsets[node.index()] = opset;
    }

    /// Makes nodes beside a node. They are in the order after [`place_made`](Resolved::place_made).
    pub(crate) fn build(&mut self, beside: NodeId) -> NodeBuilder<'_> {
        NodeBuilder::new(&mut self.model, &mut self.made, beside)
    }

    /// Puts nodes that were made into the order, beside those for which they were made.
    pub(crate) fn place_made(&mut self) {
        if self.made.is_waiting() {
            let order = self.made.place(&self.order);
            self.set_order(order);
        }
    }

    /// What a node is called in messages and reports: a node that a pass made is said to be made
    /// for one of the file.
    pub fn place_of(&self, node: NodeId) -> String {
        let origin = self.made.origin(node);
        let place = place_of_node(&self.model, origin);
        if origin == node {
            return place;
        }
        let op = self.model.maybe_text(self.model.node(node).op_type);
        format!("{}, made for {place}", sardonyx_proto::shown(op.unwrap_or_default()))
    }

    /// Replaces the nodes of the main graph by these, which are in an order in which they can run.
    pub(crate) fn set_order(&mut self, order: Vec<NodeId>) {
        self.model.graph_mut(self.main).nodes.clone_from(&order);
        self.order = order;
    }

    fn find_opsets(&mut self, findings: &mut Findings) {
        let imported = self.model.opsets();
        let mut missing: BTreeSet<String> = BTreeSet::new();
        for node in &self.model.graph(self.main).nodes {
            let domain = self.model.domain_of(*node);
            let version = imported.get(&domain);
            if version.is_none() && missing.len() < MOST_FINDINGS {
                missing.insert(domain.into_owned());
            }
            let opset = version.and_then(|version| u32::try_from(*version).ok()).unwrap_or(0);
            if self.opsets.len() <= node.index() {
                self.opsets.resize(node.index() + 1, 0);
            }
            self.opsets[node.index()] = opset;
        }
        for domain in missing {
            let spot = Spot::MODEL.field("opset_import");
            findings.note(&self.model, &codes::OPSET_NOT_IMPORTED, spot, || {
                format!("nodes use the operator set '{domain}', which the model does not import")
            });
        }
    }

    fn bind_names(&self, findings: &mut Findings) {
        let graph = self.model.graph(self.main);
        for node in &graph.nodes {
            for (index, value) in self.model.inputs(*node).enumerate() {
                let Some(value) = value else { continue };
                if self.model.value(value).producer == Producer::Nothing {
                    let spot = Spot::node(*node).item("input", index);
                    findings.note(&self.model, &codes::UNDEFINED_VALUE, spot, || {
                        let name = self.model.text(self.model.value(value).name);
                        let name = sardonyx_proto::shown(name);
                        format!("input {index} is '{name}', which nothing defines")
                    });
                }
            }
            for (index, attribute) in self.model.attributes(*node).iter().enumerate() {
                let extras = self.model.attribute(*attribute).extras.as_deref();
                let Some(name) = extras.and_then(|extras| extras.ref_attr_name) else {
                    continue;
                };
                // Without its function it has no value, which is not to say that it is left out.
                let spot = Spot::node(*node).item("attribute", index);
                findings.note(&self.model, &codes::REFERENCE_OUTSIDE_FUNCTION, spot, || {
                    let name = sardonyx_proto::shown(self.model.text(name));
                    format!("it stands for the attribute '{name}' of a function, but is in none")
                });
            }
        }
        for (index, output) in graph.outputs.iter().enumerate() {
            if output
                .value
                .is_none_or(|value| self.model.value(value).producer == Producer::Nothing)
            {
                let spot = Spot::graph(self.main).item("output", index);
                findings.note(&self.model, &codes::UNDEFINED_OUTPUT, spot, || {
                    "nothing in the graph makes it".to_string()
                });
            }
        }
    }

    /// The nodes of the main graph in an order in which they can run.
    fn sort(&self) -> Result<Vec<NodeId>, Box<Finding>> {
        let nodes = &self.model.graph(self.main).nodes;
        match sorted(&self.model, nodes) {
            Ok(order) => Ok(order.unwrap_or_else(|| nodes.clone())),
            Err((stuck, count)) => Err(Box::new(Finding::new(
                &self.model,
                &codes::CYCLE,
                Spot::node(stuck),
                format!("it is part of, or behind, a cycle of {count} nodes"),
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::*;

    /// What stands against running a graph of float: code, path and fact of each finding.
    fn against(graph: &str) -> Vec<(&'static str, String, String)> {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]> g (float[2] x) => (float[2] y) {graph}"
        );
        let parsed = parse_model(Buffer::from(text.into_bytes()), ParseOptions::default());
        let model = parsed.expect("the text is a model").model;
        let findings = resolve(model, Registry::standard()).err().unwrap_or_default();
        let told = findings.into_iter();
        told.map(|found| (found.code.name, found.place.path, found.fact)).collect()
    }

    /// ATTR-11-: the operator's default would be taken instead.
    #[test]
    fn what_a_function_would_say_is_not_made_up() {
        let expected = (
            "reference-outside-function",
            "graph.node[0].attribute[0]".to_string(),
            "it stands for the attribute 'a' of a function, but is in none".to_string(),
        );
        assert_eq!(against("{ y = LeakyRelu<alpha: float = @a>(x) }"), [expected]);
    }

    /// GRAPH-18: the type of one and the value of the other would be taken.
    #[test]
    fn what_is_there_already_is_not_made() {
        let refused = |graph: &str, node: usize, fact: &str| {
            let path = format!("graph.node[{node}].output[0]");
            let expected = ("duplicate-definition", path, fact.to_string());
            assert_eq!(against(graph), [expected], "{graph}");
        };
        refused(
            "<float[2] c = {1, 2}> { c = Relu(x) y = Neg(c) }",
            0,
            "it makes 'c', which is a constant of the graph",
        );
        // Even if nobody reads it.
        refused(
            "<float[2] c = {1, 2}> { c = Relu(x) y = Neg(x) }",
            0,
            "it makes 'c', which is a constant of the graph",
        );
        refused("{ x = Relu(x) y = Neg(x) }", 0, "it makes 'x', which is an input of the graph");
        refused(
            "{ a = Relu(x) a = Neg(x) y = Neg(a) }",
            1,
            "it makes 'a', as does Relu node that makes 'a'",
        );
        assert_eq!(against("<float[2] c = {1, 2}> { y = Add(x, c) }"), []);
        let found = against("<float[2] c = {1, 2}, float[2] c = {3, 4}> { y = Add(x, c) }");
        let expected = ("duplicate-initializer", "graph.initializer[1]".to_string());
        let found = found.into_iter().map(|(code, path, _)| (code, path));
        assert_eq!(found.collect::<Vec<_>>(), [expected], "which of them would be read?");
        // A constant may be the default value of an input.
        let default = "<float[2] x = {1, 2}> { y = Neg(x) }";
        assert_eq!(against(default), []);
    }
}
