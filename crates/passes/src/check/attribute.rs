//! Rules about attributes: agreement with the operator, with themselves, and with the function
//! around them.

use hashbrown::HashSet;
use sardonyx_model::{Attribute, AttributeValue, GraphId, NodeId, Symbol};
use sardonyx_ops::AttrDefault;
use sardonyx_proto::{AttributeType, shown};

use super::{Checker, Root};
use crate::codes;
use crate::finding::Spot;

impl Checker<'_> {
    /// Checks the attributes of a node. `known` is set if the node calls an existing operator or
    /// function.
    pub(super) fn attributes(&mut self, id: NodeId, callee: u32, root: Root, known: bool) {
        let model = self.model;
        let list = model.attributes(id);
        let mut seen = 0u64;
        // Names that the operator does not have. They may also have duplicates.
        let mut strangers: Option<HashSet<Symbol>> = None;
        for (index, attribute) in list.iter().enumerate() {
            let attribute = model.attribute(*attribute);
            let spot = Spot::node(id).item("attribute", index);
            self.attribute(attribute, spot, root);
            self.inner.extend(attribute.graphs());
            let Some(name) = attribute.name else { continue };
            let formal = {
                let formals = &self.callees.get(callee).attributes;
                let mut formals = formals.iter();
                formals.position(|(formal, _)| *formal == Some(name))
            };
            let twice = match formal {
                Some(formal) if formal < 64 => {
                    let bit = 1 << formal;
                    let twice = seen & bit != 0;
                    seen |= bit;
                    twice
                }
                _ if list.len() > 1 => !strangers.get_or_insert_default().insert(name),
                _ => false,
            };
            if twice {
                self.add(&codes::DUPLICATE_ATTRIBUTE, spot, |model| {
                    format!("duplicate attribute '{}'", shown(model.text(name)))
                });
            }
            match formal {
                Some(formal) => self.value_fits(attribute, spot, callee, formal),
                None if known => self.report_unknown(name, spot, callee),
                None => {}
            }
        }
        if known {
            self.missing(id, callee, seen);
        }
    }

    /// Reports an attribute that the operator does not have.
    fn report_unknown(&mut self, name: Symbol, spot: Spot, callee: u32) {
        let Some(schema) = self.callees.get(callee).schema else {
            return;
        };
        let text = self.texts.text(name);
        // Operators outside of the standard get new attributes without a new version.
        let is_open = schema.any_attributes || self.options.registry.is_added(schema);
        if is_open || text.starts_with(b"__") {
            return;
        }
        self.add_with(&codes::UNKNOWN_ATTRIBUTE, spot, |_| {
            let fact = format!(
                "{} has no attribute '{}' (as defined since opset version {})",
                schema.name,
                shown(text),
                schema.since
            );
            let names: Vec<&str> = schema.attributes.iter().map(|found| found.name).collect();
            let near = sardonyx_proto::closest(&shown(text), names.iter().copied());
            let advice = match (near, names.is_empty()) {
                (Some(near), _) => format!("did you mean '{near}'?"),
                (None, true) => format!("{} has no attributes; remove it", schema.name),
                (None, false) => format!("its attributes are {}", names.join(", ")),
            };
            (fact, advice.into())
        });
    }

    fn value_fits(&mut self, attribute: &Attribute, spot: Spot, callee: u32, formal: usize) {
        let callee = self.callees.get(callee);
        let (_, wanted) = callee.attributes[formal];
        let Some(schema) = callee.schema else { return };
        // Files of IR version 1 have no type; then the value field determines it.
        let ty = match attribute.ty {
            Some(ty) if ty != AttributeType::UNDEFINED => Some(ty),
            _ => attribute.values.first().map(AttributeValue::ty),
        };
        // A missing or undefined type has its own finding.
        let Some(ty) = ty.filter(|ty| ty.name().is_some()) else {
            return;
        };
        if ty != wanted {
            self.add(&codes::ATTRIBUTE_TYPE, spot, |_| {
                format!(
                    "{} requires '{}' to be {}, not {}",
                    schema.name,
                    schema.attributes[formal].name,
                    type_words(wanted),
                    type_words(ty)
                )
            });
            return;
        }
        if let Some(AttrDefault::Word(word)) = schema.attributes[formal].default
            && ty == AttributeType::STRING
            && self.model.is_blank(attribute.ref_attr_name())
            && self.has_no_text(attribute)
        {
            self.add(&codes::EMPTY_WORD, spot, |_| {
                format!(
                    "'{}' of {} is empty, which means its default {word}",
                    schema.attributes[formal].name, schema.name
                )
            });
        }
        // Otherwise the finding is independent of the operator.
        if self.options.levels.shared_only {
            self.absent_value(attribute, ty, spot);
        }
    }

    /// Whether the string of an attribute of that type is empty or absent.
    fn has_no_text(&self, attribute: &Attribute) -> bool {
        match &attribute.values[..] {
            [] => true,
            [AttributeValue::String(text)] => self.model.bytes(*text).is_empty(),
            _ => false,
        }
    }

    /// Reports a type whose value cannot be absent: absent numbers are 0, absent lists are empty.
    fn absent_value(&mut self, attribute: &Attribute, ty: AttributeType, spot: Spot) {
        let must_be_there = matches!(
            ty,
            AttributeType::TENSOR
                | AttributeType::SPARSE_TENSOR
                | AttributeType::GRAPH
                | AttributeType::TYPE_PROTO
        );
        if must_be_there
            && attribute.values.is_empty()
            && self.model.is_blank(attribute.ref_attr_name())
        {
            self.add(&codes::ATTRIBUTE_WITHOUT_VALUE, spot, |_| {
                format!("the attribute is {} without a value", type_words(ty))
            });
        }
    }

    fn missing(&mut self, id: NodeId, callee: u32, seen: u64) {
        let callee = self.callees.get(callee);
        let missing = callee.required & !seen;
        let Some(schema) = callee.schema.filter(|_| missing != 0) else {
            return;
        };
        for (index, attribute) in schema.attributes.iter().enumerate() {
            if missing >> index & 1 != 0 {
                self.add_with(&codes::MISSING_ATTRIBUTE, Spot::node(id), |_| {
                    let fact =
                        format!("{} requires the attribute '{}'", schema.name, attribute.name);
                    (fact, format!("add {}: {}", attribute.name, attribute.ty).into())
                });
            }
        }
    }

    /// Checks the attributes of the nodes of a graph, each by itself.
    pub(super) fn attributes_alone(&mut self, graph: GraphId) {
        for node in &self.model.graph(graph).nodes {
            for (index, attribute) in self.model.attributes(*node).iter().enumerate() {
                let attribute = self.model.attribute(*attribute);
                let spot = Spot::node(*node).item("attribute", index);
                self.attribute(attribute, spot, Root::Main);
                for graph in attribute.graphs() {
                    self.check_tree(graph, Root::Main);
                }
            }
        }
    }

    /// Checks an attribute by itself: one of a node, or the default of a function.
    pub(super) fn attribute(&mut self, attribute: &Attribute, spot: Spot, root: Root) {
        if self.model.is_blank(attribute.name) {
            self.add(&codes::NAMELESS_ATTRIBUTE, spot, |_| "the name is missing".into());
        }
        let ty = attribute.ty.filter(|ty| *ty != AttributeType::UNDEFINED);
        match ty {
            None if self.ir_version >= 2 => {
                self.add(&codes::UNTYPED_ATTRIBUTE, spot, |_| "the attribute has no type".into());
            }
            Some(ty) if ty.name().is_none() => {
                self.add(&codes::UNKNOWN_ATTRIBUTE_TYPE, spot, |_| {
                    format!("attribute type {} is not defined by the standard", ty.0)
                });
            }
            _ => {}
        }
        // The checker of the `onnx` package finds it only if the operator has the attribute.
        if let Some(ty) = ty.filter(|_| !self.options.levels.shared_only) {
            self.absent_value(attribute, ty, spot);
        }
        if attribute.values.len() > 1 {
            self.add(&codes::SEVERAL_VALUES, spot, |_| {
                let types: Vec<&str> =
                    attribute.values.iter().map(|value| type_words(value.ty())).collect();
                format!("the attribute has several values: {}", types.join(" and "))
            });
        } else if let (Some(ty), [value]) = (ty, &attribute.values[..])
            && ty != value.ty()
            && ty.name().is_some()
        {
            self.add(&codes::VALUE_OF_OTHER_TYPE, spot, |_| {
                format!(
                    "the attribute is declared as {}, but its value is {}",
                    type_words(ty),
                    type_words(value.ty())
                )
            });
        }
        if let Some(name) = attribute.ref_attr_name() {
            self.reference(attribute, name, spot, root);
        }
        for value in &attribute.values {
            self.attribute_value(value, spot);
        }
    }

    fn attribute_value(&mut self, value: &AttributeValue, spot: Spot) {
        let model = self.model;
        let is_text = |bytes: &[u8]| bytes.is_ascii() || std::str::from_utf8(bytes).is_ok();
        match value {
            AttributeValue::Tensor(tensor) => self.tensor(tensor, spot.through("t")),
            AttributeValue::Tensors(tensors) => {
                let spot = spot.through("tensors");
                tensors.iter().for_each(|tensor| self.tensor(tensor, spot));
            }
            AttributeValue::SparseTensor(tensor) => {
                self.sparse_tensor(tensor, spot.through("sparse_tensor"));
            }
            AttributeValue::SparseTensors(tensors) => {
                let spot = spot.through("sparse_tensors");
                tensors.iter().for_each(|tensor| self.sparse_tensor(tensor, spot));
            }
            AttributeValue::Type(ty) => self.ty(ty, spot),
            AttributeValue::Types(types) => types.iter().for_each(|ty| self.ty(ty, spot)),
            AttributeValue::String(text) if !is_text(model.bytes(*text)) => {
                self.add(&codes::ATTRIBUTE_TEXT_NOT_UTF8, spot, |_| {
                    format!("the string '{}' is not UTF-8", shown(model.bytes(*text)))
                });
            }
            AttributeValue::Strings(texts) => {
                if let Some(odd) = texts.iter().find(|text| !is_text(model.bytes(**text))) {
                    self.add(&codes::ATTRIBUTE_TEXT_NOT_UTF8, spot, |_| {
                        format!("the string '{}' is not UTF-8", shown(model.bytes(*odd)))
                    });
                }
            }
            _ => {}
        }
    }

    /// Checks an attribute that refers to one of the function around it.
    fn reference(&mut self, attribute: &Attribute, name: Symbol, spot: Spot, root: Root) {
        let model = self.model;
        if !attribute.values.is_empty() {
            self.add(&codes::REFERENCE_WITH_VALUE, spot, |_| {
                format!(
                    "the attribute refers to '{}' of the function, but also has a value",
                    shown(model.text(name))
                )
            });
        }
        let Root::Function(index) = root else {
            self.add(&codes::REFERENCE_OUTSIDE_FUNCTION, spot, |_| {
                format!(
                    "the attribute refers to the function attribute '{}' outside of a function",
                    shown(model.text(name))
                )
            });
            return;
        };
        match self.formal_attribute(index, name) {
            Some(Some(default)) => {
                let default = &model.functions[index].attribute_protos[default];
                if let (Some(ty), Some(declared)) = (attribute.ty, default.ty)
                    && ty != declared
                {
                    self.add(&codes::REFERENCE_TYPE, spot, |_| {
                        format!(
                            "the attribute is declared as {}, but '{}' of the function is {}",
                            type_words(ty),
                            shown(model.text(name)),
                            type_words(declared)
                        )
                    });
                }
            }
            None => {
                self.add(&codes::UNKNOWN_REFERENCE, spot, |_| {
                    format!("the function has no attribute '{}'", shown(model.text(name)))
                });
            }
            Some(None) => {}
        }
    }
}

/// Returns the type of an attribute with its article.
fn type_words(ty: AttributeType) -> &'static str {
    match ty {
        AttributeType::FLOAT => "a float",
        AttributeType::INT => "an int",
        AttributeType::STRING => "a string",
        AttributeType::TENSOR => "a tensor",
        AttributeType::GRAPH => "a graph",
        AttributeType::FLOATS => "a list of floats",
        AttributeType::INTS => "a list of ints",
        AttributeType::STRINGS => "a list of strings",
        AttributeType::TENSORS => "a list of tensors",
        AttributeType::GRAPHS => "a list of graphs",
        AttributeType::SPARSE_TENSOR => "a sparse tensor",
        AttributeType::SPARSE_TENSORS => "a list of sparse tensors",
        AttributeType::TYPE_PROTO => "a type",
        AttributeType::TYPE_PROTOS => "a list of types",
        _ => "of no known type",
    }
}
