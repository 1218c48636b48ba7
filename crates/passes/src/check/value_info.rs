//! Rules about declared types.

use sardonyx_model::{Dim, DimValue, GraphId, ShapeProto, TypeKind, TypeProto, ValueInfo};
use sardonyx_proto::{DataType, shown};

use super::graph::text;
use super::{Checker, is_identifier};
use crate::codes;
use crate::finding::Spot;

impl Checker<'_> {
    /// Checks the inputs of a graph, each by itself.
    pub(super) fn inputs_alone(&mut self, graph: GraphId) {
        for (index, info) in self.model.graph(graph).inputs.iter().enumerate() {
            let spot = Spot::graph(graph).item("input", index);
            self.check_named(info, spot);
            self.check_declaration(info, spot, true);
        }
    }

    /// Checks that an input or output of a graph has a name.
    pub(super) fn check_named(&mut self, info: &ValueInfo, spot: Spot) {
        if self.model.is_blank(info.name) {
            self.add(&codes::NAMELESS_VALUE, spot, |_| "the name is missing".to_string());
        }
    }

    /// Checks the declaration of a value. Inputs and outputs of the model need a type.
    pub(super) fn check_declaration(&mut self, info: &ValueInfo, spot: Spot, is_port: bool) {
        if is_port && !self.model.is_blank(info.name) {
            self.complete(info, spot);
        }
        if let Some(ty) = &info.ty {
            self.ty(ty, spot);
        }
        if info.doc_string.is_some() {
            self.check_markup(info.doc_string, spot);
        }
        if !info.metadata_props.is_empty() {
            self.keys(&info.metadata_props, spot, "metadata_props");
        }
    }

    /// Checks the outermost level of the type of a port.
    fn complete(&mut self, info: &ValueInfo, spot: Spot) {
        let model = self.model;
        let port = || {
            let name = info.name.map_or(String::new(), |name| text(model, name));
            format!("{} '{name}'", spot.field)
        };
        let untyped = |checker: &mut Self, what: &str| {
            checker.add(&codes::UNTYPED_VALUE, spot, |_| format!("{} has {what}", port()));
        };
        let Some(kind) = info.ty.as_ref().and_then(|ty| ty.kind.as_ref()) else {
            return untyped(self, "no type");
        };
        match kind {
            TypeKind::Tensor { elem_type, shape, .. }
            | TypeKind::SparseTensor { elem_type, shape, .. } => {
                if elem_type.is_none() {
                    untyped(self, "no element type");
                }
                if shape.is_none() {
                    self.add(&codes::SHAPELESS_VALUE, spot, |_| format!("{} has no shape", port()));
                }
            }
            TypeKind::Sequence { elem_type: None, .. } => {
                untyped(self, "a sequence type without an element type");
            }
            TypeKind::Optional { elem_type: None, .. } => {
                untyped(self, "an optional type without an element type");
            }
            TypeKind::Map { key_type, value_type, .. }
                if key_type.is_none() || value_type.is_none() =>
            {
                untyped(self, "a map type without key and value types");
            }
            TypeKind::Opaque { name, .. } if self.model.is_blank(*name) => {
                untyped(self, "an opaque type without a name");
            }
            _ => {}
        }
    }

    /// Checks a type and all types in it. The reader bounds their depth.
    pub(super) fn ty(&mut self, ty: &TypeProto, spot: Spot) {
        let mut next = Some(ty);
        let mut is_inner = false;
        while let Some(ty) = next.take() {
            let incomplete = |checker: &mut Self, what: &str| {
                checker.add(&codes::INCOMPLETE_TYPE, spot, |_| what.to_string());
            };
            match &ty.kind {
                None if is_inner => incomplete(self, "the element type is missing"),
                None => {}
                Some(
                    TypeKind::Tensor { elem_type, shape, .. }
                    | TypeKind::SparseTensor { elem_type, shape, .. },
                ) => {
                    match elem_type {
                        None if is_inner => {
                            incomplete(
                                self,
                                "the element type is a tensor without an element type",
                            );
                        }
                        None => {}
                        Some(number) => self.element_type(*number, spot),
                    }
                    if let Some(shape) = shape {
                        self.shape(shape, spot);
                    }
                }
                Some(TypeKind::Sequence { elem_type, .. }) => {
                    if elem_type.is_none() && is_inner {
                        incomplete(self, "the element type is a sequence without an element type");
                    }
                    next = elem_type.as_deref();
                }
                Some(TypeKind::Optional { elem_type, .. }) => {
                    if elem_type.is_none() && is_inner {
                        incomplete(self, "the element type is an optional without an element type");
                    }
                    let held = elem_type.as_deref().and_then(|ty| ty.kind.as_ref());
                    if let Some(TypeKind::Optional { .. } | TypeKind::Opaque { .. }) = held {
                        self.add(&codes::OPTIONAL_ELEMENT, spot, |_| {
                            let what = match held {
                                Some(TypeKind::Optional { .. }) => "an optional type",
                                _ => "an opaque type",
                            };
                            format!("the element type of an optional type is {what}")
                        });
                    }
                    next = elem_type.as_deref();
                }
                Some(TypeKind::Map { key_type, value_type, .. }) => {
                    if let Some(key) = key_type
                        && !is_key_type(DataType(*key))
                    {
                        self.add(&codes::BAD_KEY_TYPE, spot, |_| {
                            format!("invalid key type {}", element_name(*key))
                        });
                    }
                    if is_inner && (key_type.is_none() || value_type.is_none()) {
                        incomplete(self, "the element type is a map without key and value types");
                    }
                    next = value_type.as_deref();
                }
                Some(TypeKind::Opaque { name, .. }) if is_inner && self.model.is_blank(*name) => {
                    incomplete(self, "the element type is an opaque type without a name");
                }
                Some(TypeKind::Opaque { .. }) => {}
            }
            is_inner = true;
        }
    }

    fn element_type(&mut self, number: i32, spot: Spot) {
        if number == 0 || DataType(number).name().is_none() {
            self.add(&codes::UNKNOWN_ELEMENT_TYPE, spot, |_| {
                format!("invalid element type: {}", element_name(number))
            });
        }
    }

    fn shape(&mut self, shape: &ShapeProto, spot: Spot) {
        for (axis, dim) in shape.dims.iter().enumerate() {
            match dim.value {
                Some(DimValue::Value(size)) if size < 0 => {
                    self.add(&codes::NEGATIVE_DIMENSION, spot, |_| {
                        format!("dimension {axis} is {size}")
                    });
                }
                Some(DimValue::Param(name)) => {
                    let text = self.texts.text(name);
                    if !Dim::is_name(text) || text == b"*" {
                        self.add(&codes::WILDCARD_DIMENSION, spot, |_| {
                            format!("dimension {axis} has the name '{}'", shown(text))
                        });
                    } else if self.lints_names && !is_identifier(text) {
                        self.add(&codes::BAD_DIMENSION_NAME, spot, |_| {
                            format!("dimension {axis} has the name '{}'", shown(text))
                        });
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the name of an element type in the format.
pub(super) fn element_name(number: i32) -> String {
    match DataType(number).name() {
        Some(name) => name.to_string(),
        None => format!("{number}, which is not defined"),
    }
}

/// Whether an element type is permitted for keys of maps.
pub(super) fn is_key_type(ty: DataType) -> bool {
    matches!(
        ty,
        DataType::INT8
            | DataType::INT16
            | DataType::INT32
            | DataType::INT64
            | DataType::UINT8
            | DataType::UINT16
            | DataType::UINT32
            | DataType::UINT64
            | DataType::STRING
    )
}
