//! Vocabulary for writing a version of an operator: inputs, outputs, attributes, types.
//!
//! The first version of an operator lists all of its facts. A later one lists the differences: a
//! fact with a known name replaces the old one at its position, a new name is appended, `without_…`
//! removes one.

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
    /// Types that a type variable may stand for.
    Types(&'static str, TypeSet),
    /// The input is removed.
    WithoutInput(&'static str),
    /// The attribute is removed.
    WithoutAttribute(&'static str),
    /// The type variable is removed.
    WithoutTypes(&'static str),
    /// Models should not use this version; a later one may be usable again.
    Deprecated,
    /// Determinism of the operator. Without this fact, it is deterministic unless an attribute is a
    /// graph.
    Determinism(Determinism),
    /// Remark on this version and the following ones.
    Note(&'static str),
}

const fn param(name: &'static str, ty: &'static str, arity: Arity) -> Param {
    Param { name, ty, arity, differentiability: Differentiability::Unknown }
}

/// Adds a required input. `ty` is a type variable or a type such as `tensor(int64)`.
pub(crate) const fn input(name: &'static str, ty: &'static str) -> Fact {
    Fact::Input(param(name, ty, Arity::Single))
}

/// Adds a variadic input: one or more values of one type.
pub(crate) const fn inputs(name: &'static str, ty: &'static str) -> Fact {
    Fact::Input(param(name, ty, Arity::Variadic { min: 1, homogeneous: true }))
}

/// Adds an output that is always produced.
pub(crate) const fn output(name: &'static str, ty: &'static str) -> Fact {
    Fact::Output(param(name, ty, Arity::Single))
}

/// Adds a variadic output: one or more values of one type.
pub(crate) const fn outputs(name: &'static str, ty: &'static str) -> Fact {
    Fact::Output(param(name, ty, Arity::Variadic { min: 1, homogeneous: true }))
}

const fn attribute(name: &'static str, ty: AttrType) -> Fact {
    Fact::Attribute(Attribute { name, ty, required: false, default: None })
}

macro_rules! attributes {
    ($($function:ident $variant:ident $what:literal;)*) => { $(
        #[doc = concat!("Declares an attribute that holds ", $what, ".")]
        ///
        /// The attribute may be absent and has no default, unless methods of the fact change that.
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

/// Sets the types that a type variable may stand for.
pub(crate) const fn types(name: &'static str, allowed: TypeSet) -> Fact {
    Fact::Types(name, allowed)
}

/// Removes an input.
pub(crate) const fn without_input(name: &'static str) -> Fact {
    Fact::WithoutInput(name)
}

/// Removes an attribute.
pub(crate) const fn without_attribute(name: &'static str) -> Fact {
    Fact::WithoutAttribute(name)
}

/// Removes a type variable.
pub(crate) const fn without_types(name: &'static str) -> Fact {
    Fact::WithoutTypes(name)
}

/// Adds a remark on this version and the following ones: a difference in behaviour that no
/// declaration shows.
pub(crate) const fn note(text: &'static str) -> Fact {
    Fact::Note(text)
}

/// Marks the version as one that models should not use; a later one may be usable again.
pub(crate) const fn deprecated() -> Fact {
    Fact::Deprecated
}

/// Declares that equal inputs give equal outputs, although an attribute is a graph.
pub(crate) const fn deterministic() -> Fact {
    Fact::Determinism(Determinism::Deterministic)
}

/// Declares that equal inputs need not give equal outputs.
pub(crate) const fn non_deterministic() -> Fact {
    Fact::Determinism(Determinism::NonDeterministic)
}

/// Declares that the standard leaves open whether equal inputs give equal outputs.
pub(crate) const fn unknown_determinism() -> Fact {
    Fact::Determinism(Determinism::Unknown)
}

// A wrong combination ("an optional attribute type") fails to compile, since all of this is
// evaluated in constants.
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

    /// Makes the parameter optional.
    pub(crate) const fn optional(self) -> Fact {
        self.map_param(Some(Arity::Optional), None)
    }

    /// Makes the parameter variadic with at least `min` values, which may differ in type.
    pub(crate) const fn mixed(self, min: u32) -> Fact {
        self.map_param(Some(Arity::Variadic { min, homogeneous: false }), None)
    }

    /// Declares that a derivative with respect to the parameter exists.
    pub(crate) const fn differentiable(self) -> Fact {
        self.map_param(None, Some(Differentiability::Differentiable))
    }

    /// Declares that no derivative with respect to the parameter exists.
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

    /// Makes the attribute required.
    pub(crate) const fn required(self) -> Fact {
        self.map_attribute(true, None)
    }

    /// Sets the default of an integer attribute.
    pub(crate) const fn or(self, default: i64) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Int(default)))
    }

    /// Sets the default of a float attribute.
    pub(crate) const fn or_float(self, default: f32) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Float(default)))
    }

    /// Sets the default of a string attribute.
    pub(crate) const fn or_string(self, default: &'static str) -> Fact {
        self.map_attribute(false, Some(AttrDefault::String(default)))
    }

    /// Sets the default of an attribute whose values are words that the operator knows.
    pub(crate) const fn or_word(self, default: &'static str) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Word(default)))
    }

    /// Sets the default of an attribute of integers.
    pub(crate) const fn or_ints(self, default: &'static [i64]) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Ints(default)))
    }

    /// Sets the default of an attribute of strings.
    pub(crate) const fn or_strings(self, default: &'static [&'static str]) -> Fact {
        self.map_attribute(false, Some(AttrDefault::Strings(default)))
    }
}
