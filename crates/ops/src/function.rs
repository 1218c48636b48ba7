//! Functions: what an operator does, said with other operators.
//!
//! Only the nodes are written down, in ONNX text beside the operator's other facts. Name,
//! parameters and operator sets of the function come from the schema. Some bodies depend on the
//! call: on its attributes, on which inputs and outputs it has, on types. Those are built by a Rust
//! function that sees the call as an [`Expand`] and gives the text. The text of whole functions is
//! made in `function_text.rs`, which may look operators up: definitions use this file.

mod expand;
mod words;

pub(crate) use expand::Expand;
pub use expand::{Call, GraphText};
pub(crate) use words::*;

use crate::def::OpDef;

/// Gives the nodes of a function for a call, or nothing where the standard has no function for it.
pub(crate) type BodyFn = fn(&Expand<'_>) -> Option<String>;

/// Gives the nodes of a function for a call, or says why there is none for it.
pub(crate) type ReasonedFn = fn(&Expand<'_>) -> Result<String, String>;

/// Gives the nodes that take the place of a call for which a function is wrong, nothing for other
/// calls, or says why there are none.
pub(crate) type CallBodyFn = fn(&Expand<'_>) -> Result<Option<String>, String>;

/// Nodes in ONNX text, or what gives them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    Text(&'static str),
    Built(BodyFn),
    Reasoned(ReasonedFn),
}

/// A function of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionVersion {
    /// The opset version that it is written for.
    pub since: u32,
    /// Whether it depends on the call.
    pub needs_call: bool,
}

impl OpDef {
    /// The functions of a version of the operator, oldest first. Most versions that have any have
    /// one; more are there if the operators that it calls changed before the operator itself did.
    pub fn functions_of(&self, version: u32) -> Vec<FunctionVersion> {
        let mut versions = self.versions().map(|version| version.since);
        let end = versions.find(|since| *since > version);
        let (mut found, mut older) = (Vec::new(), None);
        for (since, body) in self.bodies() {
            let function = FunctionVersion { since, needs_call: !matches!(body, Body::Text(_)) };
            if since < version {
                older = Some(function);
            } else if end.is_none_or(|end| since < end) {
                found.push(function);
            }
        }
        // What was true of an older version is true of this one.
        if found.is_empty()
            && let Some(older) = older
        {
            let since = if older.needs_call { version } else { older.since };
            found.push(FunctionVersion { since, ..older });
        }
        found
    }
}
