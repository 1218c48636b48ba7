//! Functions: operators expressed by other operators.
//!
//! Only the nodes are written, in ONNX text beside the operator's other facts. Name, parameters and
//! operator sets of the function come from the schema. Some bodies depend on the call: on its
//! attributes, on which inputs and outputs it has, on types. A Rust function builds those from the
//! call, which it sees as an [`Expand`]. `function_text.rs` makes the text of whole functions; it
//! may look operators up, while definitions use this file.

mod expand;
mod words;

pub(crate) use expand::Expand;
pub use expand::{Call, GraphText};
pub(crate) use words::*;

use crate::def::OpDef;

/// Builds the nodes of a function for a call, or returns `None` where the standard has no function
/// for it.
pub(crate) type BodyFn = fn(&Expand<'_>) -> Option<String>;

/// Builds the nodes of a function for a call, or returns the reason why there is none for it.
pub(crate) type ReasonedFn = fn(&Expand<'_>) -> Result<String, String>;

/// Builds the nodes that replace a call for which the function is wrong. Returns `None` for other
/// calls, or the reason why it cannot.
pub(crate) type CallBodyFn = fn(&Expand<'_>) -> Result<Option<String>, String>;

/// Nodes in ONNX text, or their builder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    Text(&'static str),
    Built(BodyFn),
    Reasoned(ReasonedFn),
}

/// A function of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionVersion {
    /// Opset version that the function is written for.
    pub since: u32,
    /// Whether the function depends on the call.
    pub needs_call: bool,
}

impl OpDef {
    /// Returns the functions of a version of the operator, oldest first. Most versions with
    /// functions have one; they have more if operators that it calls changed before the operator
    /// itself did.
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
        // The last function of an older version still holds.
        if found.is_empty()
            && let Some(older) = older
        {
            let since = if older.needs_call { version } else { older.since };
            found.push(FunctionVersion { since, ..older });
        }
        found
    }
}
