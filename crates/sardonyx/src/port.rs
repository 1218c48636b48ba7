//! Inputs and outputs as a model declares them.

use std::fmt;

use sardonyx_model::Type;

/// An input or output of a model: name, type, and whether it must be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    pub(crate) name: String,
    pub(crate) ty: Option<Type>,
    pub(crate) required: bool,
    pub(crate) doc: String,
}

impl Port {
    /// Name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Declared type, with dims outermost first, such as `float[N, 3, 224, 224]`; `None` if the
    /// model declares none, or one that this release does not know.
    pub fn ty(&self) -> Option<&Type> {
        self.ty.as_ref()
    }

    /// Whether a run must be given this input. An input with a default value (an initializer of the
    /// same name) or of optional type may be left out. Always true for outputs.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Documentation; mostly empty.
    pub fn doc(&self) -> &str {
        &self.doc
    }
}

/// `name: type`
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ty {
            Some(ty) => write!(f, "{}: {ty}", self.name),
            None => write!(f, "{}: unknown type", self.name),
        }
    }
}
