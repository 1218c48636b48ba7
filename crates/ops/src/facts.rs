//! The words in which a version of an operator is written down: inputs, outputs, attributes, types.
//!
//! The first version of an operator lists all of its facts. A later one lists what is different: a
//! fact with a known name replaces the old one in its place, a new name is added at the end,
//! `without_…` takes one away.

use crate::schema::{
    Arity, AttrDefault, AttrType, Attribute, Determinism, Differentiability, Param,
};
use crate::typeset::TypeSet;

pub(crate) use crate::typeset::sets::*;

/// One fact about a version of an operator.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fact {
    /// An input.
    Input(Param),
    /// An output.
    Output(Param),
    /// An attribute.
    Attribute(Attribute),
    /// What a type variable may stand for.
    Types(&'static str, TypeSet),
    /// The input is gone.
    WithoutInput(&'static str),
    /// The attribute is gone.
    WithoutAttribute(&'static str),
    /// The type variable is gone.
    WithoutTypes(&'static str),
    /// Models should not use this version; a later one may be fine again.
    Deprecated,
    /// Whether equal inputs give equal outputs. Without it they do, unless an attribute is a graph.
    Determinism(Determinism),
    /// A sentence about this version and those after it.
    Note(&'static str),
}

const fn param(name: &'static str, ty: &'static str, arity: Arity) -> Param {
    Param { name, ty, arity, differentiability: Differentiability::Unknown }
}

/// An input that must be there. `ty` is a type variable or a type such as `tensor(int64)`.
pub(crate) const fn input(name: &'static str, ty: &'static str) -> Fact {
    Fact::Input(param(name, ty, Arity::Single))
}

/// One or more inputs of one type.
pub(crate) const fn inputs(name: &'static str, ty: &'static str) -> Fact {
    Fact::Input(param(name, ty, Arity::Variadic { min: 1, homogeneous: true }))
}

/// An output that is always produced.
pub(crate) const fn output(name: &'static str, ty: &'static str) -> Fact {
    Fact::Output(param(name, ty, Arity::Single))
}

/// One or more outputs of one type.
pub(crate) const fn outputs(name: &'static str, ty: &'static str) -> Fact {
    Fact::Output(param(name, ty, Arity::Variadic { min: 1, homogeneous: true }))
}

const fn attribute(name: &'static str, ty: AttrType) -> Fact {
    Fact::Attribute(Attribute { name, ty, required: false, default: None })
}

macro_rules! attributes {
    ($($function:ident $variant:ident $what:literal;)*) => { $(
        #[doc = concat!("An attribute that holds ", $what, ". May be absent and has no default, unless said otherwise.")]
        pub(crate) const fn $function(name: &'static str) -> Fact {
            attribute(name, AttrType::$variant)
        }
    )* };
}

attributes! {
    float Float "a float";
    int Int "an integer";
    string String "a string";
    tensor Tensor "a tensor";
    graph Graph "a graph";
    sparse_tensor SparseTensor "a sparse tensor";
    type_proto TypeProto "a type";
    floats Floats "floats";
    ints Ints "integers";
    strings Strings "strings";
}

/// What a type variable may stand for.
pub(crate) const fn types(name: &'static str, allowed: TypeSet) -> Fact {
    Fact::Types(name, allowed)
}

/// The input is gone.
pub(crate) const fn without_input(name: &'static str) -> Fact {
    Fact::WithoutInput(name)
}

/// The attribute is gone.
pub(crate) const fn without_attribute(name: &'static str) -> Fact {
    Fact::WithoutAttribute(name)
}

/// The type variable is gone.
pub(crate) const fn without_types(name: &'static str) -> Fact {
    Fact::WithoutTypes(name)
}

/// A sentence about this version and those after it: what it does differently though nothing is
/// declared otherwise.
pub(crate) const fn note(text: &'static str) -> Fact {
    Fact::Note(text)
}

/// Models should not use this version; a later one may be fine again.
pub(crate) const fn deprecated() -> Fact {
    Fact::Deprecated
}

/// Equal inputs give equal outputs although an attribute is a graph.
pub(crate) const fn deterministic() -> Fact {
    Fact::Determinism(Determinism::Deterministic)
}

/// Equal inputs need not give equal outputs.
pub(crate) const fn non_deterministic() -> Fact {
    Fact::Determinism(Determinism::NonDeterministic)
}

/// The standard does not say whether equal inputs give equal outputs.
pub(crate) const fn unknown_determinism() -> Fact {
    Fact::Determinism(Determinism::Unknown)
}

// A wrong combination ("an optional attribute type") fails to compile: all of this runs in
// constants.
impl Fact {
    const fn map_param(
        self,
        arity: Option<Arity>,
        differentiability: Option<Differentiability>,
    ) -> Fact {
        let (mut param, is_input) = match self {
            Fact::Input(param) => (param, true),
            Fact::Output(param) => (param, false),
            _ => panic!("only inputs and outputs have this property"),
        };
        if let Some(arity) = arity {
            param.arity = arity;
        }
        if let Some(differentiability) = differentiability {
            param.differentiability = differentiability;
        }
        if is_input { Fact::Input(param) } else { Fact::Output(param) }
    }

    /// The parameter may be absent.
    pub(crate) const fn optional(self) -> Fact {
        self.map_param(Some(Arity::Optional), None)
    }

    /// A variadic parameter whose values may have different types, at least that many.
    pub(crate) const fn mixed(self, min: u32) -> Fact {
        self.map_param(Some(Arity::Variadic { min, homogeneous: false }), None)
    }

    /// A derivative with respect to the parameter exists.
    pub(crate) const fn differentiable(self) -> Fact {
        self.map_param(None, Some(Differentiability::Differentiable))
    }

    /// No derivative with respect to the parameter exists.
    pub(crate) const fn non_differentiable(self) -> Fact {
        self.map_param(None, Some(Differentiability::NonDifferentiable))
    }

    const fn map_attribute(self, required: bool, default: Option<AttrDefault>) -> Fact {
        match self {
            Fact::Attribute(attribute) => {
                Fact::Attribute(Attribute { required, default, ..attribute })
            }
            _ => panic!("only attributes have this property"),
        }
    }

    /// Every node must have the attribute.
    pub(crate) const fn required(self) -> Fact {
        self.map_attribute(true, None)
    }

    /// The integer that an absent attribute means.
    pub(crate) const fn or(self, default: i64) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Int(default)))
    }

    /// The float that an absent attribute means.
    pub(crate) const fn or_float(self, default: f32) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Float(default)))
    }

    /// The string that an absent attribute means.
    pub(crate) const fn or_string(self, default: &'static str) -> Fact {
        self.map_attribute(false, Some(AttrDefault::String(default)))
    }

    /// The word that an absent attribute means, of those that the operator knows.
    pub(crate) const fn or_word(self, default: &'static str) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Word(default)))
    }

    /// The integers that an absent attribute means.
    pub(crate) const fn or_ints(self, default: &'static [i64]) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Ints(default)))
    }

    /// The strings that an absent attribute means.
    pub(crate) const fn or_strings(self, default: &'static [&'static str]) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Strings(default)))
    }
}
