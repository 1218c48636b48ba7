//! Writing what was inferred into the model: types of values between nodes, and what declared types
//! leave open.

use hashbrown::HashMap;
use sardonyx_model::{
    Dim, DimProto, DimValue, GraphId, Id, Model, Producer, ShapeProto, Symbol, TensorType, Type,
    TypeKind, TypeProto, ValueId, ValueInfo,
};

use super::Inference;
use super::unknown::is_made_up;

/// How sizes that are expressions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Naming {
    /// As text in the place of a name, such as `2*N + 5`. Sizes of which nothing is known, and what
    /// is computed from them, are left open: their names mean nothing outside of inference.
    #[default]
    Expressions,
    /// Not at all: only numbers and names.
    Names,
    /// As the reference implementation writes: sizes of which nothing is known get names, outputs
    /// without a type are listed among the values between nodes as well, and inputs of inner graphs
    /// get types.
    Reference,
}

/// Writes inferred types into a model: a list entry for each value that a node makes, and what is
/// open in existing declarations. Nothing else changes: names and numbers of the file stay, except
/// that a name gives way to a number.
///
/// `symbols` are numbers that names stand for from now on, in every declaration.
pub fn annotate(model: &mut Model, found: &Inference, naming: Naming, symbols: &[(String, i64)]) {
    let Some(main) = model.main else { return };
    let mut writer = Writer {
        naming,
        texts: HashMap::new(),
        last: None,
        symbols,
        listed: vec![false; model.value_count()],
    };
    let mut left = vec![main];
    while let Some(id) = left.pop() {
        let graph = model.graph(id);
        for node in &graph.nodes {
            let attributes = model.attributes(*node).iter();
            left.extend(attributes.flat_map(|attribute| model.attribute(*attribute).graphs()));
        }
        writer.graph(model, found, id);
    }
}

/// A declaration of a type, in which sizes that are expressions are texts.
pub fn declaration(model: &mut Model, ty: &Type) -> TypeProto {
    let naming = Naming::Expressions;
    let mut writer =
        Writer { naming, texts: HashMap::new(), last: None, symbols: &[], listed: Vec::new() };
    writer.proto(model, ty)
}

/// Completes the open parts of a declaration by a type. Sizes that are expressions are
/// texts.
pub(crate) fn complete_declaration(model: &mut Model, declared: &mut TypeProto, ty: &Type) {
    let naming = Naming::Expressions;
    let mut writer =
        Writer { naming, texts: HashMap::new(), last: None, symbols: &[], listed: Vec::new() };
    writer.fill(model, declared, ty);
}

struct Writer<'a> {
    naming: Naming,
    /// What sizes are called.
    texts: HashMap<Dim, Option<DimValue>>,
    /// The size that was asked for last, which the next is likely to be.
    last: Option<(Dim, Option<DimValue>)>,
    /// Numbers for names.
    symbols: &'a [(String, i64)],
    /// Which values are listed.
    listed: Vec<bool>,
}

impl Writer<'_> {
    fn graph(&mut self, model: &mut Model, found: &Inference, id: GraphId) {
        let mut graph = std::mem::take(model.graph_mut(id));
        let outer = model.main == Some(id);
        for info in &mut graph.inputs {
            let ty = info.value.and_then(|value| found.ty(value));
            // What the caller of the model gives is not for us to say.
            match ty.filter(|_| !outer && self.naming == Naming::Reference) {
                Some(ty) => self.fill(model, info.ty.get_or_insert_default(), ty),
                None => self.number(model, info),
            }
            self.note_listed(info.value);
        }
        for info in &mut graph.value_info {
            self.complete(model, found, info);
            self.note_listed(info.value);
        }
        for info in &mut graph.outputs {
            let was_open = info.ty.is_none();
            self.complete(model, found, info);
            // An output without a type is listed twice by the reference implementation.
            if !was_open || self.naming != Naming::Reference {
                self.note_listed(info.value);
            }
        }
        let outputs = graph.nodes.iter().map(|node| model.outputs(*node).len());
        graph.value_info.reserve_exact(outputs.sum());
        for node in &graph.nodes {
            for index in 0..model.outputs(*node).len() {
                let Some(value) = model.outputs(*node)[index] else {
                    continue;
                };
                let Some(ty) = found.ty(value) else { continue };
                let made = model.value(value);
                let name = Some(made.name);
                let is_own = matches!(made.producer, Producer::Node(..));
                if is_own && !self.listed[value.index()] {
                    self.listed[value.index()] = true;
                    let mut ty = self.proto(model, ty);
                    denote(model, &mut ty, found, value);
                    graph.value_info.push(ValueInfo {
                        name,
                        value: Some(value),
                        ty: Some(ty),
                        ..ValueInfo::default()
                    });
                }
            }
        }
        graph.value_info.shrink_to_fit();
        *model.graph_mut(id) = graph;
    }

    fn note_listed(&mut self, value: Option<ValueId>) {
        if let Some(value) = value {
            self.listed[value.index()] = true;
        }
    }

    fn complete(&mut self, model: &mut Model, found: &Inference, info: &mut ValueInfo) {
        if let Some(ty) = info.value.and_then(|value| found.ty(value)) {
            self.fill(model, info.ty.get_or_insert_default(), ty);
        }
        if let (Some(value), Some(ty)) = (info.value, &mut info.ty) {
            denote(model, ty, found, value);
        }
        self.number(model, info);
    }

    /// Puts numbers in the place of names.
    fn number(&self, model: &Model, info: &mut ValueInfo) {
        if self.symbols.is_empty() {
            return;
        }
        let shape = info.ty.as_mut().and_then(TypeProto::innermost_shape_mut);
        for dim in shape.into_iter().flat_map(|shape| &mut shape.dims) {
            let Some(DimValue::Param(name)) = dim.value else {
                continue;
            };
            let Ok(text) = std::str::from_utf8(model.text(name)) else {
                continue;
            };
            let size = Dim::parse(text).substitute(&|symbol| {
                let set = self.symbols.iter().find(|(name, _)| name == symbol);
                set.map(|(_, size)| Dim::Known(*size))
            });
            if let Some(size) = size.known() {
                dim.value = Some(DimValue::Value(size));
            }
        }
    }

    /// A declaration of a type.
    fn proto(&mut self, model: &mut Model, ty: &Type) -> TypeProto {
        let Type::Tensor(tensor) = ty else {
            let mut proto = TypeProto::default();
            self.fill(model, &mut proto, ty);
            return proto;
        };
        let dim = |size| DimProto { value: self.text(model, size), ..DimProto::default() };
        TypeProto {
            kind: Some(TypeKind::Tensor {
                elem_type: tensor.elem.map(|elem| elem.number()),
                shape: tensor.shape.as_ref().map(|sizes| ShapeProto {
                    dims: sizes.iter().map(dim).collect(),
                    ..ShapeProto::default()
                }),
                unknown: Default::default(),
            }),
            ..TypeProto::default()
        }
    }

    /// Adds what a declaration leaves open. Where it says something else, it stays.
    fn fill(&mut self, model: &mut Model, proto: &mut TypeProto, ty: &Type) {
        let kind = proto.kind.get_or_insert_with(|| empty(ty));
        match (kind, ty) {
            (TypeKind::Tensor { elem_type, shape, .. }, Type::Tensor(tensor))
            | (TypeKind::SparseTensor { elem_type, shape, .. }, Type::SparseTensor(tensor)) => {
                self.fill_tensor(model, elem_type, shape, tensor);
            }
            (TypeKind::Sequence { elem_type, .. }, Type::Sequence(inner))
            | (TypeKind::Optional { elem_type, .. }, Type::Optional(inner)) => {
                self.fill(model, elem_type.get_or_insert_default(), inner);
            }
            (TypeKind::Map { key_type, value_type, .. }, Type::Map(key, inner)) => {
                if key_type.is_none_or(|key| key == 0) {
                    *key_type = Some(key.number());
                }
                self.fill(model, value_type.get_or_insert_default(), inner);
            }
            (TypeKind::Opaque { domain, name, .. }, Type::Opaque { domain: d, name: n }) => {
                domain.get_or_insert_with(|| model.intern(d));
                name.get_or_insert_with(|| model.intern(n));
            }
            _ => {}
        }
    }

    fn fill_tensor(
        &mut self,
        model: &mut Model,
        elem_type: &mut Option<i32>,
        shape: &mut Option<ShapeProto>,
        ty: &TensorType,
    ) {
        if elem_type.is_none_or(|elem| elem == 0) {
            *elem_type = ty.elem.map(|elem| elem.number()).or(*elem_type);
        }
        let Some(sizes) = &ty.shape else { return };
        let shape = shape.get_or_insert_with(|| ShapeProto {
            dims: sizes.iter().map(|_| DimProto::default()).collect(),
            ..ShapeProto::default()
        });
        if shape.dims.len() != sizes.len() {
            return;
        }
        for (dim, size) in shape.dims.iter_mut().zip(sizes) {
            // A mark of an unknown size gives way to what is known of it.
            let is_named = |value: &DimValue| !matches!(value, DimValue::Param(name) if !Dim::is_name(model.text(*name)));
            match (dim.value.filter(is_named), size) {
                (Some(DimValue::Value(_)), _) => {}
                (None, _) | (_, Dim::Known(_)) => {
                    dim.value = self.text(model, size).or(dim.value);
                }
                (Some(DimValue::Param(_)), _) => {}
            }
        }
    }

    /// A size as a file says it.
    fn text(&mut self, model: &mut Model, size: &Dim) -> Option<DimValue> {
        match size {
            Dim::Known(size) => Some(DimValue::Value(*size)),
            Dim::Unknown => None,
            Dim::Expr(_) => {
                if let Some((last, text)) = &self.last
                    && last == size
                {
                    return *text;
                }
                let entry = self.texts.entry(size.clone());
                let naming = self.naming;
                let is_open = |model: &Model| {
                    let symbols = size.symbols();
                    naming != Naming::Reference
                        && symbols.iter().any(|name| is_made_up(model, name))
                };
                let text = *entry.or_insert_with(|| match (size.as_symbol(), naming) {
                    _ if is_open(model) => None,
                    (Some(name), _) => Some(DimValue::Param(model.intern(name))),
                    (None, Naming::Names) => None,
                    (None, _) => Some(DimValue::Param(model.intern(&size.to_string()))),
                });
                self.last = Some((size.clone(), text));
                text
            }
        }
    }
}

/// Adds what the dimensions of a value mean.
fn denote(model: &Model, ty: &mut TypeProto, found: &Inference, value: ValueId) {
    let shape = match &mut ty.kind {
        Some(TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. }) => shape,
        _ => return,
    };
    if let (Some(shape), Some(denotations)) = (shape, found.denotations(value))
        && shape.dims.len() == denotations.len()
    {
        for (dim, denotation) in shape.dims.iter_mut().zip(denotations) {
            let says = |denotation: &Symbol| !model.text(*denotation).is_empty();
            dim.denotation = dim.denotation.filter(says).or(*denotation).or(dim.denotation);
        }
    }
}

/// A declaration of the kind of a type that says nothing else yet.
fn empty(ty: &Type) -> TypeKind {
    let unknown = Default::default();
    match ty {
        Type::Tensor(_) => TypeKind::Tensor { elem_type: None, shape: None, unknown },
        Type::SparseTensor(_) => TypeKind::SparseTensor { elem_type: None, shape: None, unknown },
        Type::Sequence(_) => TypeKind::Sequence { elem_type: None, unknown },
        Type::Map(..) => TypeKind::Map { key_type: None, value_type: None, unknown },
        Type::Optional(_) => TypeKind::Optional { elem_type: None, unknown },
        Type::Opaque { .. } => TypeKind::Opaque { domain: None, name: None, unknown },
    }
}
