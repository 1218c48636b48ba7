//! What stays unknown, and why.

use std::collections::HashSet;

use sardonyx_model::{Dim, Model, NodeId, Type, ValueId};
use sardonyx_proto::shown;

/// Something of a value that is not known, at the place where that begins: the node whose rule
/// could not say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// The value.
    pub value: ValueId,
    /// What of it.
    pub missing: Missing,
    /// The node that makes it, or the one that reads it if nothing does; `None` for what the file
    /// leaves open of an input.
    pub node: Option<NodeId>,
    /// Why, in words.
    pub reason: String,
    /// The call in which it is so, of a value in a function.
    pub call: Option<NodeId>,
    /// The name that an unknown size has from here on.
    pub symbol: Option<String>,
}

/// What is not known of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nothing is known.
    Type,
    /// The element type.
    Elem,
    /// The number of dimensions.
    Rank,
    /// The size of an axis of the tensor, or of the innermost tensors of a sequence.
    Dim(usize),
}

/// Names for sizes that have none.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    taken: Option<HashSet<String>>,
    count: usize,
}

/// How such names begin, in the reference implementation too.
const PREFIX: &str = "unk__";

/// Whether a name was made up: a model in whose file it is has it.
pub(super) fn is_made_up(model: &Model, name: &str) -> bool {
    name.starts_with(PREFIX) && model.symbol(name.as_bytes()).is_none()
}

impl Fresh {
    /// Names after so many others.
    pub(super) fn after(count: usize) -> Fresh {
        Fresh { taken: None, count }
    }

    /// The next name that the file does not use.
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

    /// How many names were tried so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Whether a name is one of ours, and its number.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        let number = name.strip_prefix(PREFIX)?.parse().ok()?;
        let taken = self.taken.as_ref()?;
        (number < self.count && !taken.contains(name)).then_some(number)
    }
}

/// Why a node could not say something of an output, where its rule does not say more.
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
    // Integers are what shapes, axes and positions come in.
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
