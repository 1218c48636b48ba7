//! Finds upper bounds of integer inputs that index a table, such as token ids.

use std::collections::HashSet;

use sardonyx_model::{AttributeValue, NodeId, ValueId};

use crate::inference::Inferred;
use crate::model::Model;
use sardonyx_model::Type;

/// Operators whose output has only elements of their first input.
const SAME_ELEMENTS: &[&str] = &[
    "Identity",
    "Cast",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Slice",
    "Expand",
    "Tile",
];

/// Maximum number of intermediate values that [`Model::find_index_limit`] follows. Bounds the time
/// that hostile graphs take.
const MOST_VALUES: usize = 1000;

impl Model {
    /// Returns the exclusive upper bound of an integer input's elements: the size of the smallest
    /// table that the input of the main graph indexes through `Gather`. `None` if no `Gather` takes
    /// its indices from the input, or no such table has a known size.
    pub(crate) fn find_index_limit(&self, input: &str, types: &Inferred) -> Option<usize> {
        let graph = &self.graph;
        let inputs = &graph.main_graph()?.inputs;
        let first = inputs.iter().find(|info| graph.display(info.name) == input)?.value?;
        let (mut left, mut seen) = (vec![first], HashSet::from([first]));
        let mut limit: Option<usize> = None;
        while let Some(value) = left.pop() {
            for (node, position) in graph.uses(value) {
                let Some(name) = self.find_standard_operator(node) else { continue };
                match (name.as_str(), position) {
                    ("Gather" | "GatherElements", 1) => {
                        let rows = self.find_table_size(node, types);
                        limit = limit.into_iter().chain(rows).min();
                    }
                    (name, 0) if SAME_ELEMENTS.contains(&name) && seen.len() < MOST_VALUES => {
                        let made = graph.outputs(node).iter().flatten();
                        left.extend(made.copied().filter(|value| seen.insert(*value)));
                    }
                    _ => {}
                }
            }
        }
        limit
    }

    /// Returns the size of the axis along which a `Gather` node takes elements; `None` if it is
    /// unknown.
    fn find_table_size(&self, node: NodeId, types: &Inferred) -> Option<usize> {
        let table: ValueId = self.graph.inputs(node).next()??;
        let axis = match self.graph.attribute_of(node, "axis") {
            Some(axis) => match axis.value() {
                Some(AttributeValue::Int(axis)) => *axis,
                _ => return None,
            },
            None => 0,
        };
        let stored = self.initializer_type(table);
        let shape = types.found.ty(table).or(stored.as_ref()).and_then(Type::shape)?;
        let axis = if axis < 0 { axis + i64::try_from(shape.len()).ok()? } else { axis };
        shape.get(usize::try_from(axis).ok()?)?.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::InferOptions;

    #[test]
    fn the_smallest_table_counts() {
        let model = |nodes: &str| {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\": 21]>
                 g (int64[2] ids, bool c) => (y)
                 <float[4, 3] table = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, int64[2] form = {{1, 2}}>
                 {{ {nodes} }}"
            );
            Model::from_text(&text).unwrap()
        };
        let rows = [
            ("y = Gather (table, ids)", Some(4)),
            ("y = Gather <axis = -1> (table, ids)", Some(3)),
            ("y = Gather <axis = 7> (table, ids)", None),
            ("y = Gather (ids, form)", None),
            ("y = Add (ids, form)", None),
            (
                "a = Reshape (ids, form) b = Cast <to = 6> (a) u = Gather (table, b)
                 v = Gather <axis = 1> (table, ids) y = Concat <axis = 0> (u, v)",
                Some(3),
            ),
            (
                "y = If (c) <
                     then_branch = t () => (p) { p = Gather (table, ids) },
                     else_branch = e () => (q) { q = Identity (table) }>",
                Some(4),
            ),
        ];
        for (nodes, expected) in rows {
            let model = model(nodes);
            let types = model.infer(&InferOptions::new());
            assert_eq!(model.find_index_limit("ids", &types), expected, "{nodes}");
        }
    }
}
