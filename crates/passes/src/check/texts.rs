//! Rule about texts that are not UTF-8. Each is reported with the field that holds it.

use hashbrown::HashSet;
use sardonyx_model::{
    Attribute, AttributeValue, DimValue, Entry, GraphId, Id, NodeId, OperatorSetId,
    SparseTensorProto, Symbol, TensorProto, TypeKind, TypeProto, ValueInfo,
};
use sardonyx_proto::shown;

use super::Checker;
use crate::codes;
use crate::finding::Spot;

impl Checker<'_> {
    /// Reports each text that is not UTF-8 at its first occurrence.
    pub(super) fn texts(&mut self) {
        if !self.wants(&codes::INVALID_UTF8) {
            return;
        }
        let model = self.model;
        let texts = model.all_texts().enumerate();
        let broken = texts
            .filter(|(_, text)| !text.is_ascii() && std::str::from_utf8(text).is_err())
            .map(|(index, _)| Symbol::new(index))
            .collect::<HashSet<Symbol>>();
        if broken.is_empty() {
            return;
        }
        let mut search = Search { model, broken, found: Vec::new() };
        search.model();
        let Search { broken, mut found, .. } = search;
        // Texts that are not in a field of the model any more.
        let mut rest: Vec<Symbol> = broken.into_iter().collect();
        rest.sort_unstable_by_key(|symbol| symbol.index());
        found.extend(rest.into_iter().map(|symbol| (symbol, Spot::MODEL)));
        for (symbol, spot) in found {
            self.add(&codes::INVALID_UTF8, spot, |model| {
                format!("the string '{}' is not UTF-8", shown(model.text(symbol)))
            });
        }
    }
}

/// Search for the fields that hold texts.
struct Search<'m> {
    model: &'m sardonyx_model::Model,
    /// Texts that have not been found.
    broken: HashSet<Symbol>,
    found: Vec<(Symbol, Spot)>,
}

impl Search<'_> {
    fn model(&mut self) {
        let model = self.model;
        let (header, spot) = (&model.header, Spot::MODEL);
        self.text(header.producer_name, spot.field("producer_name"));
        self.text(header.producer_version, spot.field("producer_version"));
        self.text(header.domain, spot.field("domain"));
        self.text(header.doc_string, spot.field("doc_string"));
        self.imports(&header.opset_import, spot);
        self.entries(&header.metadata_props, spot, "metadata_props");
        for (id, _) in model.graphs() {
            self.graph(id);
        }
        for (index, function) in model.functions.iter().enumerate() {
            let spot = Spot::function(index);
            self.text(function.name, spot.field("name"));
            self.text(function.domain, spot.field("domain"));
            self.text(function.overload, spot.field("overload"));
            self.text(function.doc_string, spot.field("doc_string"));
            self.imports(&function.opset_import, spot);
            for (position, name) in function.attributes.iter().enumerate() {
                self.text(Some(*name), spot.item("attribute", position));
            }
            for (position, attribute) in function.attribute_protos.iter().enumerate() {
                self.attribute(attribute, spot.item("attribute_proto", position));
            }
            self.entries(&function.metadata_props, spot, "metadata_props");
        }
        for (index, step) in model.training_info.iter().enumerate() {
            let spot = Spot::training(index);
            self.entries(&step.initialization_binding, spot, "initialization_binding");
            self.entries(&step.update_binding, spot, "update_binding");
        }
    }

    fn graph(&mut self, id: GraphId) {
        let graph = self.model.graph(id);
        let spot = Spot::graph(id);
        self.text(graph.name, spot.field("name"));
        self.text(graph.doc_string, spot.field("doc_string"));
        for (field, list) in [
            ("input", &graph.inputs),
            ("output", &graph.outputs),
            ("value_info", &graph.value_info),
        ] {
            for (index, info) in list.iter().enumerate() {
                self.value_info(info, spot.item(field, index));
            }
        }
        for (index, found) in graph.initializers.iter().enumerate() {
            self.tensor(&found.tensor, spot.item("initializer", index));
        }
        for (index, found) in graph.sparse_initializers.iter().enumerate() {
            self.sparse(&found.tensor, spot.item("sparse_initializer", index));
        }
        for (index, found) in graph.quantization_annotation.iter().enumerate() {
            let spot = spot.item("quantization_annotation", index);
            self.text(found.tensor_name, spot.field("tensor_name"));
            let names = &found.quant_parameter_tensor_names;
            self.entries(names, spot, "quant_parameter_tensor_names");
        }
        self.entries(&graph.metadata_props, spot, "metadata_props");
        for node in &graph.nodes {
            self.node(*node);
        }
    }

    fn node(&mut self, id: NodeId) {
        let model = self.model;
        let (node, spot) = (model.node(id), Spot::node(id));
        self.text(node.name, spot.field("name"));
        self.text(node.op_type, spot.field("op_type"));
        self.text(node.domain, spot.field("domain"));
        self.text(node.overload, spot.field("overload"));
        for (index, value) in model.inputs(id).enumerate() {
            let name = value.map(|value| model.value(value).name);
            self.text(name, spot.item("input", index));
        }
        for (index, value) in model.outputs(id).iter().enumerate() {
            let name = value.map(|value| model.value(value).name);
            self.text(name, spot.item("output", index));
        }
        for (index, attribute) in model.attributes(id).iter().enumerate() {
            self.attribute(model.attribute(*attribute), spot.item("attribute", index));
        }
        if let Some(extras) = model.extras(id) {
            self.text(extras.doc_string, spot.field("doc_string"));
            self.entries(&extras.metadata_props, spot, "metadata_props");
        }
    }

    fn attribute(&mut self, attribute: &Attribute, spot: Spot) {
        self.text(attribute.name, spot.field("name"));
        self.text(attribute.ref_attr_name(), spot.field("ref_attr_name"));
        if let Some(extras) = &attribute.extras {
            self.text(extras.doc_string, spot.field("doc_string"));
        }
        for value in &attribute.values {
            match value {
                AttributeValue::Tensor(tensor) => self.tensor(tensor, spot.through("t")),
                AttributeValue::Tensors(list) => {
                    list.iter().for_each(|tensor| self.tensor(tensor, spot.through("tensors")));
                }
                AttributeValue::SparseTensor(sparse) => {
                    self.sparse(sparse, spot.through("sparse_tensor"));
                }
                AttributeValue::SparseTensors(list) => {
                    let spot = spot.through("sparse_tensors");
                    list.iter().for_each(|sparse| self.sparse(sparse, spot));
                }
                AttributeValue::Type(ty) => self.ty(ty, spot.field("tp")),
                AttributeValue::Types(list) => {
                    list.iter().for_each(|ty| self.ty(ty, spot.field("type_protos")));
                }
                _ => {}
            }
        }
    }

    fn tensor(&mut self, tensor: &TensorProto, spot: Spot) {
        self.text(tensor.name, spot.field("name"));
        self.text(tensor.doc_string, spot.field("doc_string"));
        self.entries(&tensor.external_data, spot, "external_data");
        self.entries(&tensor.metadata_props, spot, "metadata_props");
    }

    fn sparse(&mut self, sparse: &SparseTensorProto, spot: Spot) {
        for tensor in [&sparse.values, &sparse.indices].into_iter().flatten() {
            self.tensor(tensor, spot);
        }
    }

    fn value_info(&mut self, info: &ValueInfo, spot: Spot) {
        self.text(info.name, spot.field("name"));
        self.text(info.doc_string, spot.field("doc_string"));
        self.entries(&info.metadata_props, spot, "metadata_props");
        if let Some(ty) = &info.ty {
            self.ty(ty, spot.field("type"));
        }
    }

    /// Searches a type and all types in it. The reader bounds their depth.
    fn ty(&mut self, ty: &TypeProto, spot: Spot) {
        let mut next = Some(ty);
        while let Some(ty) = next.take() {
            self.text(ty.denotation, spot);
            match &ty.kind {
                Some(
                    TypeKind::Tensor { shape: Some(shape), .. }
                    | TypeKind::SparseTensor { shape: Some(shape), .. },
                ) => {
                    for dim in &shape.dims {
                        self.text(dim.denotation, spot);
                        if let Some(DimValue::Param(name)) = dim.value {
                            self.text(Some(name), spot);
                        }
                    }
                }
                Some(
                    TypeKind::Sequence { elem_type, .. } | TypeKind::Optional { elem_type, .. },
                ) => next = elem_type.as_deref(),
                Some(TypeKind::Map { value_type, .. }) => next = value_type.as_deref(),
                Some(TypeKind::Opaque { domain, name, .. }) => {
                    self.text(*domain, spot);
                    self.text(*name, spot);
                }
                _ => {}
            }
        }
    }

    fn imports(&mut self, imports: &[OperatorSetId], spot: Spot) {
        for (index, import) in imports.iter().enumerate() {
            self.text(import.domain, spot.item("opset_import", index));
        }
    }

    fn entries(&mut self, entries: &[Entry], spot: Spot, field: &'static str) {
        for (index, entry) in entries.iter().enumerate() {
            let spot = spot.item(field, index);
            self.text(entry.key, spot);
            self.text(entry.value, spot);
        }
    }

    fn text(&mut self, text: Option<Symbol>, spot: Spot) {
        if let Some(text) = text
            && self.broken.remove(&text)
        {
            self.found.push((text, spot));
        }
    }
}
