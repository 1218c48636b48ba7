//! Version of the file format that the content of a model requires.

use std::collections::BTreeMap;

use sardonyx_model::{
    Attribute, AttributeValue, Entry, GraphId, Model, NodeId, OperatorSetId, Producer, Symbol,
    TypeKind, TypeProto, ValueInfo,
};
use sardonyx_proto::AttributeType;

/// Newest version of the format that this release supports.
pub const NEWEST_IR_VERSION: i64 = 14;

/// First version of each operator set, by domain, for which a version of the format was released.
/// Source: the table of releases in the standard's document on versioning.
const IR_VERSIONS_OF_OPSETS: &[(&[u8], &[(i64, i64)])] = &[
    (
        b"",
        &[
            (1, 3),
            (9, 4),
            (10, 5),
            (11, 6),
            (12, 7),
            (15, 8),
            (19, 9),
            (21, 10),
            (23, 11),
            (24, 12),
            (25, 13),
            (28, 14),
        ],
    ),
    (b"ai.onnx.ml", &[(1, 3), (2, 6), (3, 8), (4, 9), (5, 10)]),
    (b"ai.onnx.preview.training", &[(1, 7)]),
];

/// Returns the version of the format that was released with a version of an operator set of the
/// standard.
pub fn ir_version_of_opset(domain: &[u8], version: i64) -> Option<i64> {
    let (_, steps) = IR_VERSIONS_OF_OPSETS.iter().find(|(found, _)| *found == domain)?;
    let step = steps.iter().rev().find(|(from, _)| *from <= version)?;
    Some(step.1)
}

/// First version in which an initializer need not be an input, and in which one of an inner graph
/// must not be.
pub(crate) const PLAIN_INITIALIZERS: i64 = 4;

/// First version in which attributes have types.
const ATTRIBUTE_TYPES: i64 = 2;

/// First version in which a model imports operator sets.
pub(crate) const IMPORTS: i64 = 3;

/// Adds the import of version 1 of `ai.onnx` to a model without imports whose version of the format
/// implies it.
pub(crate) fn import_implied(model: &mut Model) {
    if model.header.opset_import.is_empty()
        && let Some(version) = model.opset("")
    {
        let domain = Some(model.intern(""));
        let import = OperatorSetId { domain, version: Some(version), ..OperatorSetId::default() };
        model.header.opset_import.push(import);
    }
}

/// Sets the version of the format and applies its rules: from version 4 on, initializers of inner
/// graphs are not inputs; from version 3 on, operator sets are imported; from version 2 on,
/// attributes have types.
pub fn set_ir_version(model: &mut Model, version: i64) {
    if version >= IMPORTS {
        import_implied(model);
    }
    let before = model.header.ir_version.replace(version).unwrap_or(0);
    if before < ATTRIBUTE_TYPES && version >= ATTRIBUTE_TYPES {
        give_types(model);
    }
    if before >= PLAIN_INITIALIZERS || version < PLAIN_INITIALIZERS {
        return;
    }
    let inner = model.graphs().filter(|(_, graph)| graph.owner.is_some());
    let inner: Vec<GraphId> = inner.map(|(id, _)| id).collect();
    for graph in inner {
        model.fix_default_inputs(graph);
    }
}

/// Sets the type of attributes without one to that of their value.
fn give_types(model: &mut Model) {
    let give = |attribute: &mut Attribute| {
        let is_untyped = attribute.ty.is_none_or(|ty| ty == AttributeType::UNDEFINED);
        if let Some(value) = attribute.values.iter().next().filter(|_| is_untyped) {
            attribute.ty = Some(value.ty());
        }
    };
    let nodes = model.graphs().flat_map(|(_, graph)| &graph.nodes);
    let attributes = nodes.flat_map(|node| model.attributes(*node).iter().copied());
    for attribute in attributes.collect::<Vec<_>>() {
        give(model.attribute_mut(attribute));
    }
    for function in &mut model.functions {
        function.attribute_protos.iter_mut().for_each(give);
    }
}

/// Raises the version of the format to one that allows the content of the model, that was released
/// with the imported version of `ai.onnx` or later, and that is at least `least`.
pub fn raise_ir_version(model: &mut Model, least: i64) {
    let of_opset = model.opset("").and_then(|opset| ir_version_of_opset(b"", opset));
    let declared = model.header.ir_version.unwrap_or(0);
    let least = declared.max(of_opset.unwrap_or(0)).max(least);
    let needed = format_needs(model, least).first().map_or(least, |need| need.ir_version);
    set_ir_version(model, needed);
}

/// Feature that a model uses, with the version of the format that introduced it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatNeed {
    /// First version with the feature.
    pub ir_version: i64,
    /// Name of the feature, with the place of its first use in the model.
    pub feature: String,
    /// Command that removes the feature from a model, such as `sardonyx pack`, if there is one.
    pub removed_by: Option<&'static str>,
}

/// Returns the command that removes a feature from a model.
fn removed_by(feature: &str) -> Option<&'static str> {
    Some(match feature {
        "metadata below the model" => "sardonyx strip --metadata",
        "training steps" => "sardonyx strip --training",
        "types of values in functions" => "sardonyx strip --types",
        "functions of the model" | "overloaded functions" | "defaults of function attributes" => {
            "sardonyx inline"
        }
        "external data" => "sardonyx pack",
        _ => return None,
    })
}

/// Lists the features of the format that a model uses and that came after version `above`, newest
/// first. Source: the history of IR versions in the standard's schema.
pub fn format_needs(model: &Model, above: i64) -> Vec<FormatNeed> {
    let mut needs = Needs {
        model,
        above,
        found: BTreeMap::new(),
        nodes_matter: above < 10 || model.has_extras() || model.all_attributes().any(holds_type),
    };
    needs.header();
    for (_, graph) in model.graphs() {
        needs.graph(graph);
    }
    for id in model.tensors() {
        let tensor = model.stored_tensor(id);
        let name = || format!("tensor '{}'", text(model, tensor.name));
        needs.elements(tensor.data_type, name);
        needs.add(4, "external data", tensor.is_external(), name);
        needs.metadata(&tensor.metadata_props, name);
        needs.add(6, "sparse tensors", id.sparse_part().is_some(), name);
    }
    let mut found: Vec<FormatNeed> = needs
        .found
        .into_iter()
        .map(|((version, feature), place)| FormatNeed {
            ir_version: version,
            feature: format!("{feature} ({place})"),
            removed_by: removed_by(feature),
        })
        .collect();
    found.reverse();
    found
}

struct Needs<'a> {
    model: &'a Model,
    /// Features of this version and older ones are ignored.
    above: i64,
    /// First place of each feature.
    found: BTreeMap<(i64, &'static str), String>,
    /// Whether nodes may use new features. Since version 10, few fields of nodes and types within
    /// attributes are new.
    nodes_matter: bool,
}

fn holds_type(attribute: &Attribute) -> bool {
    let mut values = attribute.values.iter();
    values.any(|value| matches!(value, AttributeValue::Type(_) | AttributeValue::Types(_)))
}

impl Needs<'_> {
    fn add(
        &mut self,
        version: i64,
        feature: &'static str,
        is_used: bool,
        place: impl FnOnce() -> String,
    ) {
        if is_used && version > self.above {
            self.found.entry((version, feature)).or_insert_with(place);
        }
    }

    fn metadata(&mut self, entries: &[Entry], place: impl FnOnce() -> String) {
        let is_used = !entries.is_empty();
        self.add(10, "metadata below the model", is_used, place);
    }

    fn header(&mut self) {
        let model = self.model;
        let header = &model.header;
        let here = || "the model".to_string();
        self.add(3, "imported operator sets", !header.opset_import.is_empty(), here);
        self.add(7, "training steps", !model.training_info.is_empty(), here);
        self.add(11, "device configurations", !header.configuration.is_empty(), here);
        for function in &model.functions {
            let name = || format!("function '{}'", text(model, function.name));
            self.add(8, "functions of the model", true, name);
            let has_defaults = !function.attribute_protos.is_empty();
            self.add(9, "defaults of function attributes", has_defaults, name);
            self.add(10, "overloaded functions", !model.is_blank(function.overload), name);
            let has_types = !model.graph(function.body).value_info.is_empty();
            self.add(10, "types of values in functions", has_types, name);
            self.metadata(&function.metadata_props, name);
        }
    }

    fn graph(&mut self, graph: &sardonyx_model::Graph) {
        let model = self.model;
        let name = || format!("graph '{}'", text(model, graph.name));
        let has_annotations = !graph.quantization_annotation.is_empty();
        self.add(5, "quantization annotations", has_annotations, name);
        self.metadata(&graph.metadata_props, name);
        for initializer in &graph.initializers {
            let is_constant = initializer.value.is_some_and(|value| {
                matches!(model.value(value).producer, Producer::Initializer(_))
            });
            let name = || format!("'{}'", text(model, initializer.tensor.name));
            self.add(4, "initializers that are not inputs", is_constant, name);
        }
        let infos = graph.inputs.iter().chain(&graph.outputs);
        infos.chain(&graph.value_info).for_each(|info| self.info(info));
        if self.nodes_matter {
            graph.nodes.iter().for_each(|id| self.node(*id));
        }
    }

    fn info(&mut self, info: &ValueInfo) {
        let model = self.model;
        let name = || format!("value '{}'", text(model, info.name));
        if let Some(ty) = &info.ty {
            self.ty(ty, &name);
        }
        self.metadata(&info.metadata_props, name);
    }

    fn ty(&mut self, ty: &TypeProto, name: &dyn Fn() -> String) {
        let mut next = Some(ty);
        while let Some(ty) = next {
            next = match &ty.kind {
                Some(TypeKind::Tensor { elem_type, .. }) => {
                    self.elements(*elem_type, name);
                    None
                }
                Some(TypeKind::SparseTensor { elem_type, .. }) => {
                    self.add(8, "the sparse tensor type", true, name);
                    self.elements(*elem_type, name);
                    None
                }
                Some(TypeKind::Sequence { elem_type, .. }) => {
                    self.add(6, "the sequence type", true, name);
                    elem_type.as_deref()
                }
                Some(TypeKind::Map { value_type, .. }) => {
                    self.add(6, "the map type", true, name);
                    value_type.as_deref()
                }
                Some(TypeKind::Optional { elem_type, .. }) => {
                    self.add(8, "the optional type", true, name);
                    elem_type.as_deref()
                }
                Some(TypeKind::Opaque { .. }) => {
                    self.add(14, "the opaque type", true, name);
                    None
                }
                None => None,
            };
        }
    }

    fn elements(&mut self, data_type: Option<i32>, place: impl FnOnce() -> String) {
        let (version, feature) = match data_type.unwrap_or(0) {
            16 => (4, "bfloat16"),
            17..=20 => (9, "8-bit floats"),
            21 | 22 => (10, "4-bit integers"),
            23 => (11, "4-bit floats"),
            24 => (12, "float8e8m0"),
            25 | 26 => (13, "2-bit integers"),
            27 | 28 => (14, "6-bit floats"),
            _ => return,
        };
        self.add(version, feature, true, place);
    }

    fn node(&mut self, id: NodeId) {
        let model = self.model;
        let node = model.node(id);
        let name = || match node.name {
            Some(name) => format!("node '{}'", text(model, Some(name))),
            None => format!("a node {}", text(model, node.op_type)),
        };
        self.add(3, "domains of nodes", !model.is_blank(node.domain), name);
        self.add(10, "overloaded functions", !model.is_blank(node.overload), name);
        if let Some(extras) = model.extras(id) {
            self.metadata(&extras.metadata_props, name);
            let has_devices = !extras.device_configurations.is_empty();
            self.add(11, "device annotations", has_devices, name);
        }
        for id in model.attributes(id) {
            let attribute = model.attribute(*id);
            self.add(2, "types of attributes", attribute.ty.is_some(), name);
            for value in &attribute.values {
                match value {
                    AttributeValue::Type(ty) => self.ty(ty, &name),
                    AttributeValue::Types(types) => types.iter().for_each(|ty| self.ty(ty, &name)),
                    _ => {}
                }
            }
        }
    }
}

/// Returns a name for messages, with a limited length.
fn text(model: &Model, name: Option<Symbol>) -> String {
    sardonyx_proto::shown(model.maybe_text(name).unwrap_or_default())
}
