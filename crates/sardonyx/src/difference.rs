//! Finds the first node at which two models that should compute the same values differ.

use std::collections::HashMap;

use sardonyx_model::{Model as Graph, NodeId, ValueId};
use sardonyx_passes::place_of_node;
use sardonyx_runtime::RunOptions;
use sardonyx_tensor::{Tolerance, Value};

use crate::error::Error;
use crate::model::Model;
use crate::session::Session;

/// First intermediate value or output that differs between two models.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// Name of the differing value, equal in both models.
    pub value: String,
    /// Description of the node that computes the value in the first model.
    pub node: String,
    /// Description of the difference; the second model's elements come before the first model's.
    pub what: String,
}

impl Model {
    /// Runs this model and `other`, compares the outputs of main graph nodes by name, and returns
    /// the first value that differs, in the order of this model's nodes; `None` if all are equal
    /// within `tolerance`. All compared values are in memory at once.
    ///
    /// # Errors
    ///
    /// The error of [`Session::new`] or [`Session::run`] if a model cannot be run.
    pub(crate) fn find_first_difference(
        &self,
        other: &Model,
        inputs: &[(String, Value)],
        tolerance: Tolerance,
    ) -> Result<Option<Difference>, Error> {
        let theirs: HashMap<&[u8], ValueId> = list_node_outputs(&other.graph)
            .map(|(_, value)| (other.graph.text(other.graph.value(value).name), value))
            .collect();
        let mut shared = Vec::new();
        for (node, value) in list_node_outputs(&self.graph) {
            let name = self.graph.text(self.graph.value(value).name);
            shared.extend(theirs.get(name).map(|their| (node, value, *their)));
        }
        let ours = shared.iter().map(|(_, value, _)| *value);
        let ours = self.run_with_outputs(ours, inputs)?;
        let theirs = shared.iter().map(|(.., their)| *their);
        let theirs = other.run_with_outputs(theirs, inputs)?;
        for (node, value, _) in shared {
            let name = self.graph.display(Some(self.graph.value(value).name)).into_owned();
            let (Some(ours), Some(theirs)) = (ours.get(&name), theirs.get(&name)) else { continue };
            if let Err(what) = theirs.compare(ours, tolerance) {
                let node = place_of_node(&self.graph, node);
                return Ok(Some(Difference { value: name, node, what }));
            }
        }
        Ok(None)
    }

    /// Runs the model. Returns its graph outputs and the intermediate values `values` by name.
    fn run_with_outputs(
        &self,
        values: impl Iterator<Item = ValueId>,
        inputs: &[(String, Value)],
    ) -> Result<HashMap<String, Value>, Error> {
        let model = self.with_output_values(values);
        // With a fixed seed, random nodes draw equal numbers if their outputs have equal names.
        let session = Session::builder(&model).seed(0).build()?;
        let outputs = session.run(inputs.iter().cloned(), &RunOptions::default())?;
        Ok(outputs.into_iter().collect())
    }
}

/// Iterates over the outputs of the main graph's nodes, in the order of the nodes, as pairs of a
/// node and one of its outputs.
fn list_node_outputs(model: &Graph) -> impl Iterator<Item = (NodeId, ValueId)> {
    let nodes = model.main.into_iter().flat_map(|main| &model.graph(main).nodes);
    nodes.flat_map(|node| model.outputs(*node).iter().flatten().map(|value| (*node, *value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_tensor::Tensor;

    fn parse_model(nodes: &str) -> Model {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]> g (float[3] x) => (float[3] y) {{ {nodes} }}"
        );
        Model::from_text(&text).unwrap()
    }

    #[test]
    fn the_first_differing_value_is_reported() {
        let one = parse_model("a = Exp (x) b = Neg (a) y = Abs (b)");
        let x = Tensor::from_vec([3], vec![-1.0f32, 0.0, 2.0]).unwrap();
        let inputs = [("x".to_string(), Value::from(x))];
        let difference = |other: &str| {
            one.find_first_difference(&parse_model(other), &inputs, Tolerance::NODE_TESTS).unwrap()
        };
        assert_eq!(difference("c = Exp (x) b = Neg (c) y = Abs (b)"), None);
        let random = |nodes: &str| parse_model(&format!("{nodes} y = Add (x, r)"));
        let (alone, after) = (
            random("r = RandomNormal <shape = [3]> ()"),
            random("q = RandomNormal <shape = [3]> () r = RandomNormal <shape = [3]> ()"),
        );
        let found = alone.find_first_difference(&after, &inputs, Tolerance::NODE_TESTS);
        assert_eq!(found.unwrap(), None);
        assert_eq!(difference("a = Exp (x) b = Identity (a) y = Abs (b)").unwrap().value, "b");
        let found = difference("a = Exp (x) y = Neg (a)").unwrap();
        assert_eq!((&*found.value, &*found.node), ("y", "Abs node that makes 'y'"));
        assert!(found.what.contains("-7.389"), "{}", found.what);
    }
}
