//! Unknown types and sizes, and the reasons.

use std::collections::HashSet;

use sardonyx_model::{Dim, Model, NodeId, Type, ValueId};
use sardonyx_proto::shown;

/// Missing fact about a value, at the first node whose rule could not derive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Value.
    pub value: ValueId,
    /// Missing fact.
    pub missing: Missing,
    /// Node that makes the value, or the one that reads it if no node makes it; `None` for an open
    /// part of an input's declared type.
    pub node: Option<NodeId>,
    /// Reason, in words.
    pub reason: String,
    /// Call in which it is missing, for a value in a function.
    pub call: Option<NodeId>,
    /// Name that an unknown size has from here on.
    pub symbol: Option<String>,
}

/// Missing fact about a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Everything.
    Type,
    /// Element type.
    Elem,
    /// Number of dimensions.
    Rank,
    /// Size of an axis of the tensor, or of the innermost tensors of a sequence.
    Dim(usize),
}

/// Names for unknown sizes.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    taken: Option<HashSet<String>>,
    count: usize,
}

/// Prefix of such names, like in the reference implementation.
const PREFIX: &str = "unk__";

/// Whether a name was made up and does not occur in the model's file.
pub(super) fn is_made_up(model: &Model, name: &str) -> bool {
    name.starts_with(PREFIX) && model.symbol(name.as_bytes()).is_none()
}

impl Fresh {
    /// Continues after `count` names.
    pub(super) fn starting_after(count: usize) -> Fresh {
        Fresh { taken: None, count }
    }

    /// Returns the next name that the file does not use.
    pub(super) fn next(&mut self, model: &Model) -> String {
        let taken = self.taken.get_or_insert_with(|| {
            let texts = model.all_texts().filter_map(|text| std::str::from_utf8(text).ok());
            let similar = texts.filter(|text| text.starts_with(PREFIX));
            similar.map(str::to_string).collect()
        });
        loop {
            let name = format!("{PREFIX}{}", self.count);
            self.count += 1;
            if !taken.contains(&name) {
                return name;
            }
        }
    }

    /// Returns the number of names that were tried so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of a name that was made up here.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        let number = name.strip_prefix(PREFIX)?.parse().ok()?;
        let taken = self.taken.as_ref()?;
        (number < self.count && !taken.contains(name)).then_some(number)
    }
}

/// Returns the usual reason why a node could not derive something of an output, if its rule has no
/// own one.
pub(super) fn usual_reason(
    model: &Model,
    node: NodeId,
    ty: impl Fn(ValueId) -> Option<Type>,
    is_known: impl Fn(ValueId) -> bool,
) -> String {
    let name = |value: ValueId| shown(model.text(model.value(value).name));
    let inputs: Vec<(usize, ValueId)> =
        model.inputs(node).enumerate().filter_map(|(index, value)| Some((index, value?))).collect();
    for (index, value) in &inputs {
        match ty(*value) {
            None => return format!("the type of input {index} '{}' is unknown", name(*value)),
            Some(Type::Tensor(tensor)) if tensor.shape.is_none() => {
                return format!("the rank of input {index} '{}' is unknown", name(*value));
            }
            Some(_) => {}
        }
    }
    // Shapes, axes and positions are integers.
    let decides = inputs.iter().find(|(_, value)| {
        let elem = ty(*value).and_then(|ty| ty.elem());
        let integers = [sardonyx_tensor::DataType::Int64, sardonyx_tensor::DataType::Int32];
        elem.is_some_and(|elem| integers.contains(&elem)) && !is_known(*value)
    });
    if let Some((index, value)) = decides {
        return format!("the value of input {index} '{}' is known only at run time", name(*value));
    }
    let open = inputs.iter().find(|(_, value)| {
        ty(*value)
            .is_some_and(|ty| ty.shape().is_some_and(|shape| shape.iter().any(Dim::is_unknown)))
    });
    match open {
        Some((index, value)) => {
            format!("the shape of input {index} '{}' is not fully known", name(*value))
        }
        None => "it does not follow from the inputs of the operator".to_string(),
    }
}
