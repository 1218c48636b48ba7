//! Prints types and dimensions.

use sardonyx_model::{DimProto, DimValue, ShapeProto, Symbol, TypeKind, TypeProto};
use sardonyx_tensor::DataType;

use super::{Notes, Printer};
use crate::cursor::is_word;

impl Printer<'_, '_, '_> {
    /// Writes a type. Returns whether this form can express it.
    pub(super) fn write_type_proto(&mut self, ty: &TypeProto, place: &dyn Fn() -> String) -> bool {
        if !self.is_full() && !self.type_is_portable(ty) {
            self.left_out.add("types that the portable form cannot name", place);
            return false;
        }
        match &ty.kind {
            None => self.push("?()"),
            Some(TypeKind::Tensor { elem_type, shape, .. }) => {
                self.write_tensor_type(*elem_type, shape.as_ref(), place)
            }
            Some(TypeKind::SparseTensor { elem_type, shape, .. }) => {
                self.push("sparse_tensor(");
                self.write_tensor_type(*elem_type, shape.as_ref(), place);
                self.push(")");
            }
            Some(TypeKind::Sequence { elem_type, .. }) => {
                self.push("seq(");
                if let Some(ty) = elem_type {
                    self.write_type_proto(ty, place);
                }
                self.push(")");
            }
            Some(TypeKind::Optional { elem_type, .. }) => {
                self.push("optional(");
                if let Some(ty) = elem_type {
                    self.write_type_proto(ty, place);
                }
                self.push(")");
            }
            Some(TypeKind::Map { key_type, value_type, .. }) => {
                self.push("map(");
                self.write_element_type(*key_type);
                if let Some(ty) = value_type {
                    self.push(", ");
                    self.write_type_proto(ty, place);
                }
                self.push(")");
            }
            Some(TypeKind::Opaque { domain, name, .. }) => {
                self.push("opaque(");
                if let Some(domain) = domain {
                    self.write_opaque_part(Some(*domain));
                    self.push(", ");
                }
                if name.is_some() || domain.is_some() {
                    self.write_opaque_part(*name);
                }
                self.push(")");
            }
        }
        let mut notes = Notes::default();
        if let Some(denotation) = ty.denotation
            && self.begin_note(&mut notes, "denotation", "denotations", place)
        {
            self.write_quoted_symbol(denotation);
        }
        if let Some(
            TypeKind::Tensor { unknown, .. }
            | TypeKind::SparseTensor { unknown, .. }
            | TypeKind::Sequence { unknown, .. }
            | TypeKind::Map { unknown, .. }
            | TypeKind::Optional { unknown, .. }
            | TypeKind::Opaque { unknown, .. },
        ) = &ty.kind
        {
            self.write_unknown(&mut notes, "kind_unknown", unknown, place);
        }
        if let Some(
            TypeKind::Tensor { shape: Some(shape), .. }
            | TypeKind::SparseTensor { shape: Some(shape), .. },
        ) = &ty.kind
        {
            self.write_unknown(&mut notes, "shape_unknown", &shape.unknown, place);
        }
        self.write_unknown(&mut notes, "unknown", &ty.unknown, place);
        self.end_notes(notes);
        true
    }

    /// Whether a type ends with annotations.
    pub(super) fn type_has_notes(ty: &TypeProto) -> bool {
        let kind_unknown = match &ty.kind {
            Some(
                TypeKind::Tensor { unknown, shape, .. }
                | TypeKind::SparseTensor { unknown, shape, .. },
            ) => {
                !unknown.is_empty() || shape.as_ref().is_some_and(|shape| !shape.unknown.is_empty())
            }
            Some(
                TypeKind::Sequence { unknown, .. }
                | TypeKind::Map { unknown, .. }
                | TypeKind::Optional { unknown, .. }
                | TypeKind::Opaque { unknown, .. },
            ) => !unknown.is_empty(),
            None => false,
        };
        ty.denotation.is_some() || kind_unknown || !ty.unknown.is_empty()
    }

    /// Whether the portable form can express a type.
    pub(super) fn type_is_portable(&self, ty: &TypeProto) -> bool {
        let named = |elem: &Option<i32>| elem.and_then(DataType::from_number).is_some();
        let inner =
            |ty: &Option<Box<TypeProto>>| ty.as_ref().is_some_and(|ty| self.type_is_portable(ty));
        let words = |symbol: &Option<Symbol>, dots: bool| match self.model.maybe_text(*symbol) {
            None => true,
            Some(text) if dots => text.split(|byte| *byte == b'.').all(is_word),
            Some(text) => is_word(text),
        };
        match &ty.kind {
            None => false,
            Some(TypeKind::Tensor { elem_type, .. } | TypeKind::SparseTensor { elem_type, .. }) => {
                named(elem_type)
            }
            Some(TypeKind::Sequence { elem_type, .. } | TypeKind::Optional { elem_type, .. }) => {
                inner(elem_type)
            }
            Some(TypeKind::Map { key_type, value_type, .. }) => {
                named(key_type) && inner(value_type)
            }
            Some(TypeKind::Opaque { domain, name, .. }) => match (domain, name) {
                (Some(_), None) => false,
                (None, name) => words(name, true),
                (domain, name) => words(domain, true) && words(name, false),
            },
        }
    }

    fn write_tensor_type(
        &mut self,
        elem: Option<i32>,
        shape: Option<&ShapeProto>,
        place: &dyn Fn() -> String,
    ) {
        self.write_element_type(elem);
        let Some(shape) = shape else {
            return self.push("[]");
        };
        if shape.dims.is_empty() {
            return;
        }
        self.push("[");
        let mut first = true;
        for dim in &shape.dims {
            self.write_separator(&mut first);
            self.write_dimension(dim, place);
        }
        self.push("]");
    }

    fn write_dimension(&mut self, dim: &DimProto, place: &dyn Fn() -> String) {
        match dim.value {
            None => self.push("?"),
            Some(DimValue::Value(number)) => self.write_integer(number),
            Some(DimValue::Param(name)) => {
                let text = self.texts.text(name);
                if is_word(text) {
                    self.out.extend_from_slice(text);
                } else {
                    self.write_quoted(text);
                }
            }
        }
        let mut notes = Notes::default();
        if let Some(denotation) = dim.denotation
            && self.begin_note(&mut notes, "denotation", "denotations", place)
        {
            self.write_quoted_symbol(denotation);
        }
        self.write_unknown(&mut notes, "unknown", &dim.unknown, place);
        self.end_notes(notes);
    }

    /// Writes the name of an element type, or its number if it has none.
    pub(super) fn write_element_type(&mut self, elem: Option<i32>) {
        match elem {
            None => self.push("?_"),
            Some(number) => match DataType::from_number(number) {
                Some(data_type) => self.push(data_type.name()),
                None => {
                    self.push("?");
                    self.write_integer(number.into());
                }
            },
        }
    }

    /// Writes a part of an opaque type: words joined by dots, or a quoted text.
    fn write_opaque_part(&mut self, part: Option<Symbol>) {
        match part {
            None => self.push("?"),
            Some(part) => {
                let text = self.texts.text(part);
                if text.split(|byte| *byte == b'.').all(is_word) {
                    self.out.extend_from_slice(text);
                } else {
                    self.write_quoted(text);
                }
            }
        }
    }
}
