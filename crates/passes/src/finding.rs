//! What a job has to say about a model.

use std::fmt;

use sardonyx_model::{Model, NodeId};

/// One thing that is wrong with a model, or with a wish about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Stable name of the kind of finding, such as `unknown-operator`.
    pub code: &'static str,
    /// The requirement that it enforces, such as `MODEL-04`.
    pub requirement: &'static str,
    /// Where: a path through the model, such as `node 'conv1' (Conv)`.
    pub place: String,
    /// The fact.
    pub fact: String,
    /// What to do about it; may be empty.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fact)?;
        if !self.advice.is_empty() {
            write!(f, " ({})", self.advice)?;
        }
        Ok(())
    }
}

/// Names a node for people: by its name, else by what it produces.
pub fn place_of_node(model: &Model, node: NodeId) -> String {
    let op = model.display(model.node(node).op_type);
    if let Some(name) = model
        .maybe_text(model.node(node).name)
        .filter(|name| !name.is_empty())
    {
        return format!("node '{}' ({op})", String::from_utf8_lossy(name));
    }
    let produced = model.outputs(node).iter().flatten().next();
    match produced {
        Some(value) => format!(
            "{op} node that makes '{}'",
            model.display(Some(model.value(*value).name))
        ),
        None => format!("{op} node"),
    }
}
