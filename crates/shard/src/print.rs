//! Text of a plan.

use std::fmt::Write as _;

use hashbrown::HashMap;
use sardonyx_model::{GraphId, NodeId, ValueId};

use crate::form::Device;
use crate::plan::{Computed, FormId, Move, Plan, Step};

impl Plan {
    /// Returns the plan as text. Each step has a line: for a node, its devices and the forms of its
    /// operands; for a move, the two forms and the number of bytes sent. Then follow the residents
    /// that a run changes, the bytes of constants and state on each device, and the annotations
    /// that are not followed.
    pub fn text(&self) -> String {
        let mut text =
            format!("configuration '{}' of {} devices\n", self.configuration, self.devices);
        let mut bodies = self.bodies();
        for step in &self.steps {
            let graph = match step {
                Step::Move(moved) => moved.graph,
                Step::Node(computed) => self.model().node(computed.node).graph,
            };
            let depth = self.depth(graph);
            if let Some(body) = bodies.remove(&graph) {
                let _ = writeln!(text, "{:1$}{body}:", "", 2 * (depth - 1));
            }
            let _ = write!(text, "{:1$}", "", 2 * depth);
            match step {
                Step::Move(moved) => self.print_move(moved, &mut text),
                Step::Node(computed) => self.print_node(computed, &mut text),
            }
        }
        self.print_residents(&mut text);
        let devices = 0..Device::try_from(self.devices).unwrap_or(Device::MAX);
        for device in devices {
            let held = [
                ("constants", self.constant_bytes(device)),
                ("state", self.resident_bytes(device)),
            ];
            for (what, bytes) in held.into_iter().filter(|(_, bytes)| *bytes > 0) {
                let _ = writeln!(text, "{what} on {device}: {bytes} bytes");
            }
        }
        for note in &self.not_honored {
            let node = self.node_text(note.node);
            let tensor = note.tensor.as_ref().map(|name| format!("'{name}' of "));
            let what = if tensor.is_some() { "the specification" } else { "the node" };
            let tensor = tensor.unwrap_or_default();
            let _ = writeln!(text, "not honored: {tensor}{node}: {what} {}", note.why);
        }
        text
    }

    /// Returns headings for the graphs of nodes whose nodes are steps.
    fn bodies(&self) -> HashMap<GraphId, String> {
        let mut bodies = HashMap::new();
        for step in &self.steps {
            let Step::Node(Computed { node, bodies: Some(_), .. }) = step else { continue };
            let attributes = self.model().attributes(*node).iter();
            for attribute in attributes.map(|id| self.model().attribute(*id)) {
                let name = self.model().display(attribute.name);
                let text = format!("{name} of {}", self.node_text(*node));
                bodies.extend(attribute.graphs().map(|graph| (graph, text.clone())));
            }
        }
        bodies
    }

    /// Returns the number of graphs around a graph.
    fn depth(&self, graph: GraphId) -> usize {
        let around = |graph: &GraphId| self.model().graph(*graph).parent;
        std::iter::successors(around(&graph), around).count()
    }

    /// Returns the texts of a move: the name of the value, its old form and its new form. `None` if
    /// the step with this index is not a move.
    pub fn move_in_words(&self, step: usize) -> Option<[String; 3]> {
        let Step::Move(moved) = self.steps.get(step)? else { return None };
        let form = |id| self.form(id).to_string();
        Some([self.typed.name(moved.value), form(moved.from), form(moved.to)])
    }

    /// Returns the operator and the name of a node, or its first output if the node has no name.
    fn node_text(&self, node: NodeId) -> String {
        let op = self.model().display(self.model().node(node).op_type).into_owned();
        let name = self.model().node(node).name.filter(|name| !self.model().text(*name).is_empty());
        match (name, self.model().outputs(node).iter().flatten().next()) {
            (Some(name), _) => format!("{op} '{}'", self.model().display(Some(name))),
            (None, Some(output)) => format!("{op} of '{}'", self.typed.name(*output)),
            (None, None) => op,
        }
    }

    fn print_move(&self, moved: &Move, text: &mut String) {
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        let verb = if self.is_local(moved) { "take" } else { "move" };
        let _ = write!(text, "{verb} {}: {from} -> {to}", self.typed.name(moved.value));
        let bytes = self.bytes_moved(moved);
        let _ = match (self.is_local(moved), &moved.dims) {
            (true, _) => writeln!(text),
            (false, Some(_)) => writeln!(text, " ({bytes} bytes)"),
            (false, None) => writeln!(text, " (sizes are not known)"),
        };
    }

    fn print_node(&self, computed: &Computed, text: &mut String) {
        let model = self.model();
        let part = |value: Option<ValueId>, form: &Option<FormId>| match (value, form) {
            (Some(value), Some(form)) => {
                format!("{} {}", self.typed.name(value), self.form(*form).parts())
            }
            _ => "-".to_string(),
        };
        let inputs = model.inputs(computed.node).zip(&computed.inputs);
        let inputs: Vec<String> = inputs.map(|(value, form)| part(value, form)).collect();
        let outputs = model.outputs(computed.node).iter().zip(&computed.outputs);
        let outputs: Vec<String> = outputs.map(|(value, form)| part(*value, form)).collect();
        let devices: Vec<String> = computed.devices().map(|device| device.to_string()).collect();
        let op = model.display(model.node(computed.node).op_type);
        let (inputs, outputs) = (inputs.join(", "), outputs.join(", "));
        let _ = writeln!(text, "run {op} on {}: {inputs} -> {outputs}", devices.join(" "));
    }
}
