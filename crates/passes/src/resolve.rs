//! Resolving: is the model something that can be run at all?
//!
//! A [`Resolved`] model is a proof: names are bound, the graph is acyclic, operators and their versions are known, and
//! every node has the inputs and attributes that its operator demands. What else might be said about a model is the
//! checker's business and never blocks a run.

use std::collections::{BTreeSet, VecDeque};

use sardonyx_model::{GraphId, Id, Model, NodeId, Producer};
use sardonyx_ops::{Arity, OpDef, Registry, Schema};
use sardonyx_proto::AttributeType;

use crate::finding::{Finding, place_of_node};

/// Findings after which no more are looked for: nobody reads them, and a file may have one for every few of its bytes.
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
}

/// Resolves a model.
///
/// # Errors
///
/// Everything that stands against running it, except operators that are not known: `unknown` decides whether such a
/// node is a finding or left for the caller to report.
pub fn resolve(model: Model, registry: Registry) -> Result<Resolved, Vec<Finding>> {
    let Some(main) = model.main else {
        return Err(vec![Finding {
            code: "no-graph",
            requirement: "MODEL-11",
            place: "model".to_string(),
            fact: "it has no graph".to_string(),
            advice: "the file is empty, or is not a model".to_string(),
        }]);
    };
    let mut resolved = Resolved {
        model,
        main,
        registry,
        opsets: Vec::new(),
        order: Vec::new(),
    };
    let mut findings = Vec::new();
    resolved.find_opsets(&mut findings);
    resolved.bind_names(&mut findings);
    match resolved.sort() {
        Ok(order) => resolved.order = order,
        Err(finding) => findings.push(finding),
    }
    for node in &resolved.model.graph(main).nodes {
        if findings.len() >= MOST_FINDINGS {
            break;
        }
        resolved.check_node(*node, &mut findings);
    }
    if findings.is_empty() {
        Ok(resolved)
    } else {
        Err(findings)
    }
}

impl Resolved {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
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
        self.registry
            .schema(&self.model.domain_of(node), &name, self.opset(node))
    }

    /// The opset version in whose form a node is.
    pub fn opset(&self, node: NodeId) -> u32 {
        self.opsets.get(node.index()).copied().unwrap_or(0)
    }

    /// Changes the model. Whoever does so keeps what resolving proved, or calls [`sort_again`](Resolved::sort_again).
    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    pub(crate) fn set_opset(&mut self, node: NodeId, opset: u32) {
        if self.opsets.len() <= node.index() {
            self.opsets.resize(node.index() + 1, 0);
        }
        self.opsets[node.index()] = opset;
    }

    /// Finds the order anew after nodes were added.
    pub(crate) fn sort_again(&mut self) -> Result<(), Finding> {
        self.order = self.sort()?;
        Ok(())
    }

    fn find_opsets(&mut self, findings: &mut Vec<Finding>) {
        let imported = self.model.opsets();
        let mut missing: BTreeSet<String> = BTreeSet::new();
        for node in &self.model.graph(self.main).nodes {
            let domain = self.model.domain_of(*node);
            let version = imported.get(&domain);
            if version.is_none() && missing.len() < MOST_FINDINGS {
                missing.insert(domain.into_owned());
            }
            let opset = version
                .and_then(|version| u32::try_from(*version).ok())
                .unwrap_or(0);
            if self.opsets.len() <= node.index() {
                self.opsets.resize(node.index() + 1, 0);
            }
            self.opsets[node.index()] = opset;
        }
        findings.extend(missing.into_iter().map(|domain| Finding {
            code: "opset-not-imported",
            requirement: "OPSET-01",
            place: "opset_import".to_string(),
            fact: format!("nodes use the operator set '{domain}', which the model does not import"),
            advice: "add it to opset_import with its version".to_string(),
        }));
    }

    fn bind_names(&self, findings: &mut Vec<Finding>) {
        let graph = self.model.graph(self.main);
        for node in &graph.nodes {
            if findings.len() >= MOST_FINDINGS {
                return;
            }
            for (index, value) in self.model.inputs(*node).enumerate() {
                let Some(value) = value else { continue };
                if self.model.value(value).producer == Producer::Nothing {
                    findings.push(Finding {
                        code: "undefined-value",
                        requirement: "NODE-01",
                        place: place_of_node(&self.model, *node),
                        fact: format!(
                            "input {index} is '{}', which nothing defines",
                            self.model.display(Some(self.model.value(value).name))
                        ),
                        advice: "no node, input or initializer has that name".to_string(),
                    });
                }
            }
        }
        for output in &graph.outputs {
            if findings.len() >= MOST_FINDINGS {
                return;
            }
            if output
                .value
                .is_none_or(|value| self.model.value(value).producer == Producer::Nothing)
            {
                findings.push(Finding {
                    code: "undefined-output",
                    requirement: "GRAPH-30",
                    place: format!("output '{}'", self.model.display(output.name)),
                    fact: "nothing in the graph produces it".to_string(),
                    advice: String::new(),
                });
            }
        }
    }

    /// Kahn's algorithm (1962), with the order of the file among nodes that are ready.
    fn sort(&self) -> Result<Vec<NodeId>, Finding> {
        let nodes = &self.model.graph(self.main).nodes;
        let mut position = vec![usize::MAX; self.model_nodes(nodes)];
        for (index, node) in nodes.iter().enumerate() {
            position[node.index()] = index;
        }
        let producer = |value| match self.model.value(value).producer {
            Producer::Node(node, _) => position
                .get(node.index())
                .copied()
                .filter(|at| *at != usize::MAX),
            _ => None,
        };
        let mut waits_for = vec![0usize; nodes.len()];
        let mut readers: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        let mut in_order = true;
        for (index, node) in nodes.iter().enumerate() {
            for at in self.model.inputs(*node).flatten().filter_map(producer) {
                waits_for[index] += 1;
                readers[at].push(index as u32);
                in_order &= at < index;
            }
        }
        if in_order {
            return Ok(nodes.clone());
        }
        let mut ready: VecDeque<usize> = (0..nodes.len())
            .filter(|index| waits_for[*index] == 0)
            .collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(index) = ready.pop_front() {
            order.push(nodes[index]);
            for reader in &readers[index] {
                let reader = *reader as usize;
                waits_for[reader] -= 1;
                if waits_for[reader] == 0 {
                    ready.push_back(reader);
                }
            }
        }
        if order.len() == nodes.len() {
            return Ok(order);
        }
        let stuck = (0..nodes.len())
            .find(|index| waits_for[*index] > 0)
            .unwrap_or(0);
        Err(Finding {
            code: "cycle",
            requirement: "GRAPH-03",
            place: place_of_node(&self.model, nodes[stuck]),
            fact: format!(
                "it is part of, or behind, a cycle of {} nodes",
                nodes.len() - order.len()
            ),
            advice: "a graph must be acyclic".to_string(),
        })
    }

    fn model_nodes(&self, nodes: &[NodeId]) -> usize {
        nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0)
    }

    /// Numbers of inputs and outputs, and attributes, as far as running depends on them.
    fn check_node(&self, node: NodeId, findings: &mut Vec<Finding>) {
        // An operator that is not known is for whoever wants to run it.
        let Some(schema) = self.schema(node) else {
            return;
        };
        let mut wrong = |requirement: &'static str, fact: String| {
            findings.push(Finding {
                code: "malformed-node",
                requirement,
                place: place_of_node(&self.model, node),
                fact,
                advice: format!(
                    "as {} is defined since opset version {}",
                    schema.name, schema.since
                ),
            });
        };
        let (inputs, outputs) = (
            self.model.inputs(node).len(),
            self.model.outputs(node).len(),
        );
        for (what, count, (fewest, most)) in [
            ("inputs", inputs, schema.input_count()),
            ("outputs", outputs, schema.output_count()),
        ] {
            if count < fewest || most.is_some_and(|most| count > most) {
                let allowed = match most {
                    Some(most) if most == fewest => format!("{fewest}"),
                    Some(most) => format!("{fewest} to {most}"),
                    None => format!("at least {fewest}"),
                };
                wrong(
                    "NODE-06",
                    format!("it has {count} {what}, but must have {allowed}"),
                );
            }
        }
        for (index, input) in self.model.inputs(node).enumerate() {
            let single = schema
                .input(index)
                .is_some_and(|param| param.arity == Arity::Single);
            if input.is_none() && single {
                wrong(
                    "NODE-06",
                    format!(
                        "input {index} ({}) is left out, but is not optional",
                        schema.inputs[index].name
                    ),
                );
            }
        }
        for attribute in &schema.attributes {
            let found = self.model.attribute_of(node, attribute.name);
            match found {
                None if attribute.required => wrong(
                    "NODE-21",
                    format!("attribute '{}' is missing", attribute.name),
                ),
                Some(found) if found.ref_attr_name.is_some() => {
                    wrong(
                        "ATTR-11",
                        format!(
                            "attribute '{}' refers to a function's attribute outside a function",
                            attribute.name
                        ),
                    );
                }
                Some(found) => {
                    // Files of IR version 1 have no type; then the value field decides.
                    let ty = found.ty.filter(|ty| *ty != AttributeType::UNDEFINED);
                    let ty = ty.or_else(|| found.value().map(|value| value.ty()));
                    if ty != Some(attribute.ty.in_file()) {
                        let found = ty.and_then(AttributeType::name).unwrap_or("no value");
                        wrong(
                            "ATTR-03",
                            format!(
                                "attribute '{}' holds {found}, but must hold {:?}",
                                attribute.name, attribute.ty
                            ),
                        );
                    }
                }
                None => {}
            }
        }
    }
}
