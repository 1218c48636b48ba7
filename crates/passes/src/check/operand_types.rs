//! Types of operands: declared types are propagated through the nodes and compared with the types
//! that operators accept. Element types and kinds only, without shapes.

use sardonyx_model::{
    AttributeValue, GraphId, NodeId, Producer, TensorType, Type, TypeKind, ValueId,
};
use sardonyx_ops::operators::{CAST, CONSTANT, SEQUENCE_INSERT};
use sardonyx_ops::{Arity, OpDef, Param, Schema, TypeSet};
use sardonyx_tensor::DataType;
use smallvec::SmallVec;

use super::Checker;
use crate::codes;
use crate::finding::Spot;

/// Type without its shape in one byte: kind and number of the element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Brief(u8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tensor = 1,
    Sparse,
    Sequence,
    Optional,
    OptionalSequence,
}

const KINDS: [Kind; 5] =
    [Kind::Tensor, Kind::Sparse, Kind::Sequence, Kind::Optional, Kind::OptionalSequence];

/// Number of bits of a [`Brief`] that hold the element type.
const ELEMENT_BITS: u32 = 5;

impl Brief {
    /// Unknown type, or a type of a kind that is not propagated: maps, opaque and more deeply
    /// nested types.
    const UNKNOWN: Brief = Brief(0);

    fn new(kind: Kind, elem: DataType) -> Brief {
        match u8::try_from(elem.number()) {
            Ok(number) if number >> ELEMENT_BITS == 0 => {
                Brief((kind as u8) << ELEMENT_BITS | number)
            }
            _ => Brief::UNKNOWN,
        }
    }

    fn tensor(number: Option<i32>) -> Brief {
        let elem = number.and_then(DataType::from_number);
        elem.map_or(Brief::UNKNOWN, |elem| Brief::new(Kind::Tensor, elem))
    }

    /// Returns the type that a file declares.
    fn from_declared(kind: &TypeKind) -> Brief {
        fn inner(kind: &TypeKind) -> Option<(Kind, i32)> {
            let of = |ty: &Option<Box<sardonyx_model::TypeProto>>| {
                ty.as_deref().and_then(|ty| ty.kind.as_ref()).and_then(inner)
            };
            Some(match kind {
                TypeKind::Tensor { elem_type, .. } => (Kind::Tensor, (*elem_type)?),
                TypeKind::SparseTensor { elem_type, .. } => (Kind::Sparse, (*elem_type)?),
                TypeKind::Sequence { elem_type, .. } => match of(elem_type)? {
                    (Kind::Tensor, number) => (Kind::Sequence, number),
                    _ => return None,
                },
                TypeKind::Optional { elem_type, .. } => match of(elem_type)? {
                    (Kind::Tensor, number) => (Kind::Optional, number),
                    (Kind::Sequence, number) => (Kind::OptionalSequence, number),
                    _ => return None,
                },
                TypeKind::Map { .. } | TypeKind::Opaque { .. } => return None,
            })
        }
        let found = inner(kind)
            .and_then(|(kind, number)| Some(Brief::new(kind, DataType::from_number(number)?)));
        found.unwrap_or_default()
    }

    fn parts(self) -> Option<(Kind, DataType)> {
        let kind = KINDS.get(usize::from(self.0 >> ELEMENT_BITS).checked_sub(1)?)?;
        let elem = DataType::from_number(i32::from(self.0 & ((1 << ELEMENT_BITS) - 1)))?;
        Some((*kind, elem))
    }

    /// Returns the type in the form of the table of operators.
    fn to_type(self) -> Option<Type> {
        let (kind, elem) = self.parts()?;
        let tensor = Type::unranked(elem);
        Some(match kind {
            Kind::Tensor => tensor,
            Kind::Sparse => Type::SparseTensor(TensorType { elem: Some(elem), shape: None }),
            Kind::Sequence => Type::Sequence(Box::new(tensor)),
            Kind::Optional => Type::Optional(Box::new(tensor)),
            Kind::OptionalSequence => Type::Optional(Box::new(Type::Sequence(Box::new(tensor)))),
        })
    }

    /// Returns the type in the spelling of the standard, such as `tensor(float)`.
    fn words(self) -> String {
        let Some((kind, elem)) = self.parts() else {
            return "unknown".into();
        };
        let elem = elem.name();
        match kind {
            Kind::Tensor => format!("tensor({elem})"),
            Kind::Sparse => format!("sparse_tensor({elem})"),
            Kind::Sequence => format!("seq(tensor({elem}))"),
            Kind::Optional => format!("optional(tensor({elem}))"),
            Kind::OptionalSequence => format!("optional(seq(tensor({elem})))"),
        }
    }

    fn is_optional(self) -> bool {
        let kind = self.parts().map(|(kind, _)| kind);
        matches!(kind, Some(Kind::Optional | Kind::OptionalSequence))
    }
}

/// Maximum number of type variables of an operator that are compared.
const MOST_VARIABLES: usize = 16;

/// Types that an operator accepts and returns, in a form for quick comparison.
#[derive(Default)]
pub(super) struct Operands<'a> {
    variables: SmallVec<[Variable<'a>; 4]>,
    inputs: Formals,
    outputs: Formals,
    /// Whether the second input becomes an element of the first, which type variables do not
    /// express.
    inserts: bool,
    /// Attribute that sets the type of the first output.
    by_attribute: Option<ByAttribute>,
}

/// Attribute that sets a type.
#[derive(Clone, Copy)]
enum ByAttribute {
    /// The only attribute, by the type of its value.
    Value,
    /// `to`, by number.
    To,
}

/// Type variable, or a type that is spelled out.
struct Variable<'a> {
    /// Name in the schema.
    name: &'static str,
    takes: Takes<'a>,
    /// Element types that were found to be allowed, by kind.
    fine: [u32; KINDS.len() + 1],
}

/// Types that a variable may stand for.
#[derive(Clone, Copy, Default)]
struct Takes<'a> {
    /// All types; `None` if there is only one, which is spelled out.
    allowed: Option<&'a TypeSet>,
    /// The only type, if there is just one.
    only: Brief,
}

#[derive(Default)]
struct Formals {
    list: SmallVec<[Formal; 6]>,
    /// Whether the last one stands for all further operands.
    variadic: bool,
}

#[derive(Clone, Copy)]
struct Formal {
    /// Index of the variable; beyond the list for a type that is not compared.
    variable: u8,
    /// Whether all operands of the variable must have one type.
    shared: bool,
}

impl Formals {
    fn at(&self, index: usize) -> Option<Formal> {
        match self.list.get(index) {
            Some(formal) => Some(*formal),
            None => self.list.last().copied().filter(|_| self.variadic),
        }
    }
}

impl<'a> Operands<'a> {
    pub(super) fn new(schema: &'a Schema, operator: Option<&OpDef>) -> Operands<'a> {
        let is = |other: &OpDef| operator.is_some_and(|operator| operator.is(other));
        let mut operands = Operands::default();
        operands.inputs = operands.formals(schema, &schema.inputs);
        operands.outputs = operands.formals(schema, &schema.outputs);
        operands.inserts = is(&SEQUENCE_INSERT);
        operands.by_attribute = match () {
            () if is(&CONSTANT) => Some(ByAttribute::Value),
            () if is(&CAST) => Some(ByAttribute::To),
            () => None,
        };
        operands
    }

    fn formals(&mut self, schema: &'a Schema, params: &[Param]) -> Formals {
        let mut formals = Formals::default();
        for param in params {
            let (variadic, shared) = match param.arity {
                Arity::Variadic { homogeneous, .. } => (true, homogeneous),
                Arity::Single | Arity::Optional => (false, true),
            };
            let known = self.variables.iter().position(|var| var.name == param.ty);
            let variable = known.unwrap_or_else(|| {
                let allowed = schema.type_var(param.ty).map(|var| &var.allowed);
                self.variables.push(Variable {
                    name: param.ty,
                    takes: Takes {
                        allowed,
                        only: allowed.map_or_else(|| parse_spelling(param.ty), find_only_tensor),
                    },
                    fine: [0; KINDS.len() + 1],
                });
                self.variables.len() - 1
            });
            formals.variadic = variadic;
            formals
                .list
                .push(Formal { variable: u8::try_from(variable).unwrap_or(u8::MAX), shared });
        }
        formals
    }
}

impl Variable<'_> {
    /// Whether the variable may stand for a type.
    fn allows(&mut self, ty: Brief) -> bool {
        if self.takes.only != Brief::UNKNOWN {
            return self.takes.only == ty;
        }
        let Some(set) = self.takes.allowed else {
            return true;
        };
        let fine = &mut self.fine[usize::from(ty.0 >> ELEMENT_BITS) % (KINDS.len() + 1)];
        let bit = 1 << (ty.0 & ((1 << ELEMENT_BITS) - 1));
        if *fine & bit == 0 && ty.to_type().is_none_or(|full| set.allows(&full)) {
            *fine |= bit;
        }
        *fine & bit != 0
    }
}

impl Takes<'_> {
    fn words(&self) -> String {
        match self.allowed {
            Some(set) => set.words(),
            None => self.only.words(),
        }
    }
}

/// Parses a type in the spelling of schemas, such as `tensor(int64)`.
fn parse_spelling(name: &str) -> Brief {
    let elem =
        name.strip_prefix("tensor(").and_then(|rest| DataType::from_name(rest.strip_suffix(')')?));
    elem.map_or(Brief::UNKNOWN, |elem| Brief::new(Kind::Tensor, elem))
}

/// Returns the type of a set that has only one, if it is a tensor.
fn find_only_tensor(set: &TypeSet) -> Brief {
    let mut elems = set.tensor_elems();
    match (elems.next(), elems.next()) {
        (Some(elem), None) if set.names().len() == 1 => Brief::new(Kind::Tensor, elem),
        _ => Brief::UNKNOWN,
    }
}

impl Checker<'_> {
    /// Records the declared types of a graph's values.
    pub(super) fn declared_types(&mut self, id: GraphId) {
        if self.types.is_empty() {
            return;
        }
        let graph = self.model.graph(id);
        for found in &graph.initializers {
            self.note(found.value, Brief::tensor(found.tensor.data_type));
        }
        let infos = graph.value_info.iter().chain(&graph.outputs);
        for info in infos.chain(&graph.inputs) {
            if let Some(kind) = info.ty.as_ref().and_then(|ty| ty.kind.as_ref()) {
                self.note(info.value, Brief::from_declared(kind));
            }
        }
    }

    /// Records the type of a value. Only declarations of its own graph count, since lists of inner
    /// graphs may have names of outer values.
    fn note(&mut self, value: Option<ValueId>, ty: Brief) {
        let Some(value) = value else { return };
        if ty != Brief::UNKNOWN && self.model.value(value).producer != Producer::Nothing {
            self.types[sardonyx_model::Id::index(value)] = ty;
        }
    }

    /// Compares the inputs of a node with the types that its operator accepts, and records the
    /// types of its outputs.
    pub(super) fn operand_types(&mut self, id: NodeId, callee: u32) {
        let operands = &mut self.callees.get_mut(callee).operands;
        if operands.variables.is_empty() {
            return;
        }
        let model = self.model;
        let types = &mut self.types[..];
        let index = |value: ValueId| sardonyx_model::Id::index(value);
        let mut bound = [Brief::UNKNOWN; MOST_VARIABLES];
        let mut first = [0usize; MOST_VARIABLES];
        let mut wrong: SmallVec<[Wrong; 4]> = SmallVec::new();
        for (position, value) in model.inputs(id).enumerate() {
            let Some(value) = value else { continue };
            let ty = types[index(value)];
            if ty == Brief::UNKNOWN {
                continue;
            }
            let Some(formal) = operands.inputs.at(position) else {
                break;
            };
            let number = usize::from(formal.variable);
            let Some(variable) = operands.variables.get_mut(number) else {
                continue;
            };
            if !variable.allows(ty) {
                wrong.push(Wrong { position, ty, problem: Problem::NotAllowed(number) });
                continue;
            }
            let Some(binding) = bound.get_mut(number).filter(|_| formal.shared) else {
                continue;
            };
            if *binding == Brief::UNKNOWN {
                *binding = ty;
                first[number] = position;
            } else if *binding != ty {
                wrong.push(Wrong {
                    position,
                    ty,
                    problem: Problem::NotTheSame(*binding, first[number]),
                });
            }
        }
        let (inserts, source) = (operands.inserts, operands.by_attribute);
        let mut by_attribute = false;
        for (position, value) in model.outputs(id).iter().enumerate() {
            let Some(value) = *value else { continue };
            let Some(formal) = operands.outputs.at(position) else {
                break;
            };
            let number = usize::from(formal.variable);
            let Some(variable) = operands.variables.get(number) else {
                continue;
            };
            let mut ty = variable.takes.only;
            if ty == Brief::UNKNOWN && formal.shared {
                ty = bound.get(number).copied().unwrap_or_default();
            }
            by_attribute |= ty == Brief::UNKNOWN && position == 0;
            if ty != Brief::UNKNOWN {
                types[index(value)] = ty;
            }
        }
        if let Some(source) = source.filter(|_| by_attribute) {
            self.by_attribute(id, source);
        }
        for found in wrong {
            self.wrong_type(id, callee, found);
        }
        if inserts {
            self.insertion(id);
        }
    }

    /// Checks that a tensor that a node puts into a sequence has the type of its elements.
    fn insertion(&mut self, id: NodeId) {
        let mut inputs = self.model.inputs(id);
        let mut next = || {
            let value = inputs.next()??;
            self.types[sardonyx_model::Id::index(value)].parts()
        };
        let (Some((Kind::Sequence, element)), Some((Kind::Tensor, inserted))) = (next(), next())
        else {
            return;
        };
        if element != inserted {
            self.add(&codes::INPUT_TYPE, Spot::node(id).item("input", 1), |_| {
                format!(
                    "input 1 is tensor({}), but the sequence has elements of type tensor({})",
                    inserted.name(),
                    element.name()
                )
            });
        }
    }

    /// Records the type that an attribute gives to the output of a constant or a cast.
    fn by_attribute(&mut self, id: NodeId, source: ByAttribute) {
        let model = self.model;
        let Some(Some(value)) = model.outputs(id).first() else {
            return;
        };
        let mut attributes = model.attributes(id).iter();
        let found = attributes.find_map(|attribute| {
            let attribute = model.attribute(*attribute);
            let elem = match (source, attribute.values.first()?) {
                (ByAttribute::Value, AttributeValue::Tensor(tensor)) => {
                    return Some(Brief::tensor(tensor.data_type));
                }
                (ByAttribute::Value, AttributeValue::Float(_) | AttributeValue::Floats(_)) => {
                    DataType::Float
                }
                (ByAttribute::Value, AttributeValue::Int(_) | AttributeValue::Ints(_)) => {
                    DataType::Int64
                }
                (ByAttribute::Value, AttributeValue::String(_) | AttributeValue::Strings(_)) => {
                    DataType::String
                }
                (ByAttribute::To, AttributeValue::Int(to))
                    if model.maybe_text(attribute.name) == Some(b"to") =>
                {
                    return Some(Brief::tensor(i32::try_from(*to).ok()));
                }
                _ => return None,
            };
            Some(Brief::new(Kind::Tensor, elem))
        });
        self.note(Some(*value), found.unwrap_or_default());
    }

    fn wrong_type(&mut self, id: NodeId, callee: u32, found: Wrong) {
        let callee = self.callees.get(callee);
        let Some(schema) = callee.schema else { return };
        let Wrong { position, ty, problem } = found;
        let takes = match problem {
            Problem::NotAllowed(variable) => callee.operands.variables[variable].takes,
            Problem::NotTheSame(..) => Takes::default(),
        };
        let spot = Spot::node(id).item("input", position);
        self.add_with(&codes::INPUT_TYPE, spot, |_| {
            let fact = match problem {
                Problem::NotAllowed(_) => format!(
                    "input {position} ({}) is {}, but {} takes {} there",
                    schema.input(position).map_or("", |param| param.name),
                    ty.words(),
                    schema.name,
                    takes.words(),
                ),
                Problem::NotTheSame(wanted, first) => format!(
                    "input {position} is {}, but input {first} is {}; {} requires the same type",
                    ty.words(),
                    wanted.words(),
                    schema.name,
                ),
            };
            (fact, advice(ty).into())
        });
    }
}

/// Operand of a wrong type.
#[derive(Clone, Copy)]
struct Wrong {
    position: usize,
    ty: Brief,
    problem: Problem,
}

/// Defect of the type of an operand.
#[derive(Clone, Copy)]
enum Problem {
    /// The type is not among those that a variable, given by its index, may stand for.
    NotAllowed(usize),
    /// Another operand of the same variable, at this position, has this type.
    NotTheSame(Brief, usize),
}

/// Returns advice for an operand of a wrong type; empty for the advice of the code.
fn advice(ty: Brief) -> &'static str {
    if ty.is_optional() { "get the value with OptionalGetElement" } else { "" }
}
