//! Identifier of a function of a model.

use std::fmt;

use hashbrown::HashMap;
use sardonyx_model::{Function, Model, NodeId, Symbol, normalize_domain, shown_domain};

use crate::codes;
use crate::finding::{Finding, Spot};

/// Identifier of a function of a model.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId {
    /// Domain of the function; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the function.
    pub name: String,
    /// Overload, which distinguishes functions of equal domain and name; empty if there is none.
    pub overload: String,
}

impl FunctionId {
    /// Returns the identifier of a function.
    pub fn of(model: &Model, function: &Function) -> FunctionId {
        let text = |symbol| model.display(symbol).into_owned();
        let domain = normalize_domain(&model.display(function.domain)).to_string();
        FunctionId { domain, name: text(function.name), overload: text(function.overload) }
    }

    /// Returns the function of the model that a node calls; `None` if it calls an operator.
    pub fn called_by(model: &Model, node: NodeId) -> Option<FunctionId> {
        let key_of_node = {
            let node = model.node(node);
            function_key(model, node.domain, node.op_type, node.overload)
        };
        let mut functions = model.functions.iter();
        let called = functions.find(|found| {
            function_key(model, found.domain, found.name, found.overload) == key_of_node
        });
        called.map(|function| FunctionId::of(model, function))
    }
}

impl fmt::Display for FunctionId {
    /// Writes `domain.name:overload`, with `ai.onnx` for the default domain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", shown_domain(&self.domain), self.name)?;
        if self.overload.is_empty() { Ok(()) } else { write!(f, ":{}", self.overload) }
    }
}

/// Identifier of a function by symbols: domain, name and overload.
pub(crate) type FunctionKey = (Option<Symbol>, Option<Symbol>, Option<Symbol>);

/// Maps the identifiers of the functions of a model to their positions.
///
/// # Errors
///
/// Two functions have the same identifier.
pub(crate) fn functions_by_key(model: &Model) -> Result<HashMap<FunctionKey, usize>, Box<Finding>> {
    let mut by_key = HashMap::new();
    for (index, function) in model.functions.iter().enumerate() {
        let key = function_key(model, function.domain, function.name, function.overload);
        if by_key.insert(key, index).is_some() {
            let fact = format!("duplicate function name {}", FunctionId::of(model, function));
            let spot = Spot::function(index);
            return Err(Box::new(Finding::new(model, &codes::DUPLICATE_FUNCTION, spot, fact)));
        }
    }
    Ok(by_key)
}

/// Makes the key of a function. The default domain has three spellings, and an empty overload
/// counts as absent.
pub(crate) fn function_key(
    model: &Model,
    domain: Option<Symbol>,
    name: Option<Symbol>,
    overload: Option<Symbol>,
) -> FunctionKey {
    let text = |symbol: &Symbol| model.text(*symbol);
    let domain = domain.filter(|domain| !matches!(text(domain), b"" | b"ai.onnx"));
    (domain, name, overload.filter(|overload| !text(overload).is_empty()))
}
