//! Removes parts of a model that do not affect its outputs.

use sardonyx_model::{
    Attribute, AttributeId, AttributeValue, Entry, GraphId, Model, Producer, SparseTensorProto,
    Symbol, TensorProto,
};

/// Parts of a model to remove; by default none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StripOptions {
    /// Whether to remove the documentation of all items.
    pub docs: bool,
    /// Whether to remove the names of nodes. Names of values stay, because they connect the nodes.
    pub names: bool,
    /// Whether to remove the metadata of all items.
    pub metadata: bool,
    /// Whether to remove initializers that no node reads.
    pub unused_initializers: bool,
    /// Whether to remove the training information.
    pub training: bool,
    /// Whether to remove the declared types of values that are neither inputs nor outputs of a
    /// graph. Type inference finds them again.
    pub inferred_types: bool,
}

/// Number of removed items of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StripReport {
    /// Number of documentation texts.
    pub docs: usize,
    /// Number of names of nodes.
    pub names: usize,
    /// Number of metadata entries.
    pub metadata: usize,
    /// Number of initializers.
    pub unused_initializers: usize,
    /// Number of training steps.
    pub training: usize,
    /// Number of declared types.
    pub inferred_types: usize,
}

/// Removes the parts of a model that `options` selects.
pub fn strip(model: &mut Model, options: &StripOptions) -> StripReport {
    let mut strip = Strip { options: *options, report: StripReport::default() };
    // First, so that what only training read counts as unused.
    if options.training {
        strip.report.training = model.training_info.len();
        model.remove_training(None);
    }
    strip.doc(&mut model.header.doc_string);
    strip.entries(&mut model.header.metadata_props);
    for index in 0..model.functions.len() {
        strip.function(model, index);
    }
    let graphs: Vec<GraphId> = model.graphs().map(|(id, _)| id).collect();
    for id in graphs {
        strip.graph(model, id);
    }
    strip.report
}

struct Strip {
    options: StripOptions,
    report: StripReport,
}

impl Strip {
    fn doc(&mut self, doc: &mut Option<Symbol>) {
        if self.options.docs && doc.take().is_some() {
            self.report.docs += 1;
        }
    }

    fn entries(&mut self, entries: &mut Vec<Entry>) {
        if self.options.metadata {
            self.report.metadata += entries.len();
            entries.clear();
        }
    }

    fn function(&mut self, model: &mut Model, index: usize) {
        let function = &mut model.functions[index];
        self.doc(&mut function.doc_string);
        self.entries(&mut function.metadata_props);
        for attribute in &mut function.attribute_protos {
            self.attribute(attribute);
        }
    }

    fn attribute(&mut self, attribute: &mut Attribute) {
        if let Some(extras) = &mut attribute.extras {
            self.doc(&mut extras.doc_string);
        }
        for value in attribute.values.iter_mut() {
            match value {
                AttributeValue::Tensor(tensor) => self.tensor(tensor),
                AttributeValue::Tensors(tensors) => {
                    tensors.iter_mut().for_each(|tensor| self.tensor(tensor));
                }
                AttributeValue::SparseTensor(sparse) => self.sparse_tensor(sparse),
                AttributeValue::SparseTensors(tensors) => {
                    tensors.iter_mut().for_each(|sparse| self.sparse_tensor(sparse));
                }
                _ => {}
            }
        }
    }

    fn tensor(&mut self, tensor: &mut TensorProto) {
        self.doc(&mut tensor.doc_string);
        self.entries(&mut tensor.metadata_props);
    }

    fn sparse_tensor(&mut self, sparse: &mut SparseTensorProto) {
        for tensor in sparse.values.iter_mut().chain(&mut sparse.indices) {
            self.tensor(tensor);
        }
    }

    fn graph(&mut self, model: &mut Model, id: GraphId) {
        if self.options.unused_initializers {
            let before = model.graph(id).initializers.len();
            model.retain_initializers(id, |model, initializer| {
                is_needed(model, id, initializer.value)
            });
            self.report.unused_initializers += before - model.graph(id).initializers.len();
        }
        let graph = model.graph_mut(id);
        self.doc(&mut graph.doc_string);
        self.entries(&mut graph.metadata_props);
        if self.options.inferred_types {
            self.report.inferred_types += graph.value_info.len();
            graph.value_info.clear();
        }
        let infos = graph.inputs.iter_mut().chain(&mut graph.outputs);
        for info in infos.chain(&mut graph.value_info) {
            self.doc(&mut info.doc_string);
            self.entries(&mut info.metadata_props);
        }
        for initializer in &mut graph.initializers {
            self.tensor(&mut initializer.tensor);
        }
        for initializer in &mut graph.sparse_initializers {
            self.sparse_tensor(&mut initializer.tensor);
        }
        let nodes = graph.nodes.clone();
        for id in nodes {
            let node = model.node_mut(id);
            if self.options.names && node.name.take().is_some() {
                self.report.names += 1;
            }
            if let Some(extras) = model.extras_mut(id) {
                self.doc(&mut extras.doc_string);
                self.entries(&mut extras.metadata_props);
            }
            let attributes: Vec<AttributeId> = model.attributes(id).to_vec();
            for id in attributes {
                self.attribute(model.attribute_mut(id));
            }
        }
    }
}

/// Whether something reads the value of an initializer. One that is also an input is a default and
/// stays, as does one that training changes, and one that nothing can refer to because its name is
/// taken twice.
fn is_needed(model: &Model, graph: GraphId, value: Option<sardonyx_model::ValueId>) -> bool {
    let Some(id) = value else {
        return true;
    };
    let value = model.value(id);
    let is_state = || {
        let bindings = model
            .training_info
            .iter()
            .flat_map(|info| info.initialization_binding.iter().chain(&info.update_binding));
        bindings.into_iter().any(|entry| entry.key == Some(value.name))
    };
    let is_annotated = || {
        let annotations = &model.graph(graph).quantization_annotation;
        annotations.iter().any(|annotation| {
            let parameters = &annotation.quant_parameter_tensor_names;
            parameters.iter().any(|entry| entry.value == Some(value.name))
        })
    };
    model.is_read(id)
        || !matches!(value.producer, Producer::Initializer(_))
        || is_state()
        || is_annotated()
}
