//! Lists the content of models: header, inputs and outputs, operators, nodes, tensors. No method
//! opens a file or reads a weight.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use sardonyx_model::{
    Dim, DimValue, NodeId, SparsePart, Symbol, TensorId, TensorProto, Type, TypeProto, ValueInfo,
    normalize_domain,
};
use sardonyx_runtime::{RequiredFeature, UnsupportedOperator};
use sardonyx_tensor::DataType;

use crate::model::Model;
use sardonyx_runtime::Port;

#[doc(inline)]
pub use crate::nodes::{NodeInfo, NodeValue, ValueSource};
#[doc(inline)]
pub use crate::tensors::{StoredTensor, TensorRole, TensorStorage};

/// Operator set that a model imports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorSet {
    /// Domain of the operator set; empty for `ai.onnx`.
    pub domain: String,
    /// Imported version of the operator set; 0 if the model states none.
    pub version: i64,
}

/// Number of nodes of a model that use one operator, or call one function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperatorCount {
    /// Domain of the operator or function; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the operator or function.
    pub name: String,
    /// Number of nodes that use the operator or function, those in subgraphs and function bodies
    /// included.
    pub nodes: usize,
    /// Whether the model defines a function of this domain and name.
    pub is_function: bool,
}

/// Signature and number of nodes of a function that a model defines.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionInfo {
    /// Domain of the function; empty for `ai.onnx`.
    pub domain: String,
    /// Name of the function.
    pub name: String,
    /// Overload of the function, which distinguishes functions of equal domain and name; mostly
    /// empty.
    pub overload: String,
    /// Names of the function's inputs.
    pub inputs: Vec<String>,
    /// Names of the function's outputs.
    pub outputs: Vec<String>,
    /// Number of nodes in the function's body, without those in subgraphs.
    pub nodes: usize,
}

/// Number and total size of tensors of a model: parameters or constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Totals {
    /// Number of tensors counted.
    pub tensors: usize,
    /// Number of elements in all counted tensors.
    pub elements: u64,
    /// Size in bytes of all elements of the counted tensors, those in external data files included.
    pub bytes: u64,
}

/// External data file that a model refers to. The file may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExternalFile {
    /// Path of the data file, relative to the model's directory.
    pub location: String,
    /// Number of tensors that have their elements in the data file.
    pub tensors: usize,
    /// Total size in bytes of the tensors that have their elements in the data file.
    pub bytes: u64,
}

/// Reads header fields of a model.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let model = sardonyx::Model::open(path)?;
/// assert_eq!(model.opsets()[0].version, 21);
/// assert_eq!(model.metadata_value("Image.BitmapPixelFormat").as_deref(), Some("Gray8"));
/// # Ok::<(), sardonyx::Error>(())
/// ```
impl Model {
    /// Returns the IR version, which is the version of the file format; `None` if the model states
    /// none.
    pub fn ir_version(&self) -> Option<i64> {
        self.graph.header.ir_version
    }

    /// Lists the imported operator sets, in the order of the file.
    pub fn opsets(&self) -> Vec<OperatorSet> {
        let imports = self.graph.header.opset_import.iter();
        imports
            .map(|import| OperatorSet {
                domain: normalize_domain(&self.graph.display(import.domain)).to_string(),
                version: import.version.unwrap_or(0),
            })
            .collect()
    }

    /// Returns the name of the tool that produced the model; empty if the model states none.
    pub fn producer_name(&self) -> Cow<'_, str> {
        self.graph.display(self.graph.header.producer_name)
    }

    /// Returns the version of the tool that produced the model; empty if the model states none.
    pub fn producer_version(&self) -> Cow<'_, str> {
        self.graph.display(self.graph.header.producer_version)
    }

    /// Returns the domain of the model, a namespace such as `org.example`; mostly empty.
    pub fn domain(&self) -> Cow<'_, str> {
        self.graph.display(self.graph.header.domain)
    }

    /// Returns the version of the model itself, which may pack major, minor and patch version into
    /// 16, 16 and 32 bits; `None` if the model states none.
    pub fn model_version(&self) -> Option<i64> {
        self.graph.header.model_version
    }

    /// Returns the documentation of the model (`doc_string`); mostly empty.
    pub fn doc(&self) -> Cow<'_, str> {
        self.graph.display(self.graph.header.doc_string)
    }

    /// Returns the name of the main graph; empty if the graph has none.
    pub fn graph_name(&self) -> Cow<'_, str> {
        self.graph.display(self.graph.main_graph().and_then(|graph| graph.name))
    }

    /// Returns the documentation of the main graph (`doc_string`); mostly empty.
    pub fn graph_doc(&self) -> Cow<'_, str> {
        self.graph.display(self.graph.main_graph().and_then(|graph| graph.doc_string))
    }

    /// Lists the keys and values of the model's metadata (`metadata_props`), in the order of the
    /// file.
    pub fn metadata(&self) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
        let entries = self.graph.header.metadata_props.iter();
        entries
            .map(|entry| (self.graph.display(entry.key), self.graph.display(entry.value)))
            .collect()
    }

    /// Looks up a value of the model's metadata (`metadata_props`) by its key; `None` if the model
    /// does not have the key.
    pub fn metadata_value(&self, key: &str) -> Option<Cow<'_, str>> {
        let entries = self.graph.header.metadata_props.iter();
        let mut found =
            entries.filter(|entry| self.graph.maybe_text(entry.key) == Some(key.as_bytes()));
        found.next().map(|entry| self.graph.display(entry.value))
    }

    /// Returns the number of training steps that the model describes (`TrainingInfoProto`).
    pub fn training_steps(&self) -> usize {
        self.graph.training_info.len()
    }

    /// Whether nodes of the model are collective operators, which exchange tensors between several
    /// ranks.
    #[cfg(feature = "device")]
    pub(crate) fn has_collectives(&self) -> bool {
        !sardonyx_shard::collectives(&self.graph).is_empty()
    }

    /// Lists the model's configurations for several devices (`DeviceConfigurationProto`), in the
    /// order of the file.
    pub fn device_configurations(&self) -> Vec<DeviceConfiguration> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let all = sardonyx_passes::configurations(&self.graph).into_iter();
        let all = all.map(|one| DeviceConfiguration {
            name: text(one.name),
            num_devices: one.num_devices,
            devices: one.devices.into_iter().map(text).collect(),
        });
        all.collect()
    }
}

/// Configuration of a model for several devices (`DeviceConfigurationProto`).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceConfiguration {
    /// Name by which nodes refer to the device configuration.
    pub name: String,
    /// Number of devices of the configuration; `None` if the model does not state it.
    pub num_devices: Option<i64>,
    /// Names of the configuration's devices; mostly empty.
    pub devices: Vec<String>,
}

/// Lists the content of a model's graphs: inputs, outputs, operators, tensors and functions.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let model = sardonyx::Model::open(path)?;
/// assert_eq!(model.inputs()[0].to_string(), "image: float[N, 1, 8, 8]");
/// assert_eq!(model.parameters().elements, 33_546);
/// assert!(model.operators().iter().any(|op| op.name == "Conv" && op.nodes == 3));
/// # Ok::<(), sardonyx::Error>(())
/// ```
impl Model {
    /// Lists the inputs of the main graph, in the order of the file. Inputs that have an
    /// initializer as their default are included and not required.
    pub fn inputs(&self) -> Vec<Port> {
        let Some(main) = self.graph.main_graph() else {
            return Vec::new();
        };
        let dense = main.initializers.iter().map(|initializer| initializer.tensor.name);
        let sparse = main
            .sparse_initializers
            .iter()
            .map(|initializer| initializer.tensor.values.as_ref()?.name);
        let defaults: HashSet<Symbol> = dense.chain(sparse).flatten().collect();
        main.inputs
            .iter()
            .map(|input| {
                let has_default = input.name.is_some_and(|name| defaults.contains(&name));
                let ty = input.ty.as_ref().and_then(|ty| self.graph.type_of(ty));
                self.make_port(input, !has_default && !matches!(ty, Some(Type::Optional(_))))
            })
            .collect()
    }

    /// Lists the outputs of the main graph, in the order of the file.
    pub fn outputs(&self) -> Vec<Port> {
        let outputs = self.graph.main_graph().map_or(&[][..], |main| &main.outputs);
        outputs.iter().map(|output| self.make_port(output, true)).collect()
    }

    /// Describes an input or output of the main graph by its name, type and documentation.
    fn make_port(&self, info: &ValueInfo, required: bool) -> Port {
        let name = self.graph.display(info.name).into_owned();
        let ty = info.ty.as_ref().and_then(|ty| self.graph.type_of(ty));
        let doc = self.graph.display(info.doc_string).into_owned();
        Port::new(name, ty, required).with_doc(doc)
    }

    /// Lists texts (`dim_param`) in the shape of an input or output that are not valid symbols,
    /// such as `?`, each after its axis. Dimensions with such a text count as unknown.
    ///
    /// ```
    /// # use sardonyx::tool::ModelExt;
    /// let text = "<ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float[\"?\", 3, N] x) => (float[?, 3, N] y) { y = Abs (x) }";
    /// let model = sardonyx::Model::from_text(text)?;
    /// assert_eq!(model.inputs()[0].to_string(), "x: float[?, 3, N]");
    /// assert_eq!(model.list_invalid_symbols("x"), [(0, "?".to_string())]);
    /// assert!(model.list_invalid_symbols("y").is_empty());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub(crate) fn list_invalid_symbols(&self, name: &str) -> Vec<(usize, String)> {
        let graph = &self.graph;
        let name = graph.symbol(name.as_bytes());
        let main = graph.main_graph().filter(|_| name.is_some());
        let infos = main.into_iter().flat_map(|main| main.inputs.iter().chain(&main.outputs));
        let info = infos.filter(|info| info.name == name).find_map(|info| info.ty.as_ref());
        let shape = info.and_then(TypeProto::innermost_shape);
        let dims = shape.into_iter().flat_map(|shape| &shape.dims).enumerate();
        let marks = dims.filter_map(|(axis, dim)| match dim.value {
            Some(DimValue::Param(text)) if !Dim::is_name(graph.text(text)) => {
                Some((axis, graph.display(Some(text)).into_owned()))
            }
            _ => None,
        });
        marks.collect()
    }

    /// Counts the nodes of the model: those in the main graph, subgraphs, functions and training
    /// steps.
    pub fn node_count(&self) -> usize {
        self.graph.graphs().map(|(_, graph)| graph.nodes.len()).sum()
    }

    /// Returns number and size of the model's parameters: all initializers. Sparse initializers
    /// count with their stored elements.
    pub fn parameters(&self) -> Totals {
        self.sum_tensors(TensorId::is_initializer)
    }

    /// Returns number and size of the tensors in node attributes, mostly in `Constant` nodes.
    pub fn constants(&self) -> Totals {
        self.sum_tensors(|id| !id.is_initializer())
    }

    /// Sums the number and size of the tensors that `counts` selects.
    fn sum_tensors(&self, counts: impl Fn(TensorId) -> bool) -> Totals {
        let mut totals = Totals::default();
        for id in self.graph.tensors() {
            if counts(id) && id.sparse_part() != Some(SparsePart::Indices) {
                let tensor = self.graph.stored_tensor(id);
                totals.tensors += 1;
                totals.elements = totals.elements.saturating_add(count_elements(tensor));
                totals.bytes = totals.bytes.saturating_add(count_value_bytes(tensor));
            }
        }
        totals
    }

    /// Lists the external data files that tensors refer to, sorted by location.
    pub fn external_files(&self) -> Vec<ExternalFile> {
        let mut files: BTreeMap<String, (usize, u64)> = BTreeMap::new();
        for id in self.graph.tensors() {
            let tensor = self.graph.stored_tensor(id);
            if !tensor.is_external() {
                continue;
            }
            let reference = self.graph.external_reference(tensor);
            let location = reference.map_or(String::new(), |reference| reference.location);
            let (tensors, bytes) = files.entry(location).or_default();
            *tensors += 1;
            *bytes = bytes.saturating_add(count_value_bytes(tensor));
        }
        files
            .into_iter()
            .map(|(location, (tensors, bytes))| ExternalFile { location, tensors, bytes })
            .collect()
    }

    /// Counts the nodes of each operator and function that the model uses. The most frequent
    /// operator comes first.
    pub fn operators(&self) -> Vec<OperatorCount> {
        // Counted by symbols first: a model has many nodes, but few distinct names to decode.
        let mut kinds: HashMap<(Option<Symbol>, Option<Symbol>), (NodeId, usize)> = HashMap::new();
        for id in self.graph.graphs().flat_map(|(_, graph)| &graph.nodes) {
            let node = self.graph.node(*id);
            kinds.entry((node.domain, node.op_type)).or_insert((*id, 0)).1 += 1;
        }
        let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (node, nodes) in kinds.into_values() {
            let domain = self.graph.domain_of(node).into_owned();
            let name = self.graph.display(self.graph.node(node).op_type);
            *counts.entry((domain, name.into_owned())).or_default() += nodes;
        }
        let functions: HashSet<(String, String)> =
            self.functions().into_iter().map(|function| (function.domain, function.name)).collect();
        let mut operators: Vec<OperatorCount> = counts
            .into_iter()
            .map(|(key, nodes)| OperatorCount {
                is_function: functions.contains(&key),
                domain: key.0,
                name: key.1,
                nodes,
            })
            .collect();
        // A stable sort keeps operators of equal count in alphabetical order.
        operators.sort_by_key(|operator| std::cmp::Reverse(operator.nodes));
        operators
    }

    /// Lists the functions that the model defines, in the order of the file.
    pub fn functions(&self) -> Vec<FunctionInfo> {
        let text = |symbol| self.graph.display(symbol).into_owned();
        let functions = self.graph.functions.iter();
        functions
            .map(|function| {
                let body = self.graph.graph(function.body);
                FunctionInfo {
                    domain: normalize_domain(&self.graph.display(function.domain)).to_string(),
                    name: text(function.name),
                    overload: text(function.overload),
                    inputs: body.inputs.iter().map(|input| text(input.name)).collect(),
                    outputs: body.outputs.iter().map(|output| text(output.name)).collect(),
                    nodes: body.nodes.len(),
                }
            })
            .collect()
    }

    /// Lists every operator of the model that sessions cannot compute, with the reason. Needs no
    /// external data. If the list is empty, the model may still fail to run because it is invalid.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?;
    /// assert!(model.unsupported_operators().is_empty());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn unsupported_operators(&self) -> Vec<UnsupportedOperator> {
        sardonyx_runtime::unsupported(&self.graph)
    }

    /// Lists the features of this crate that a session of the model needs, sorted, with the
    /// operators that need each; those of functions count as their calls. Needs no external data.
    ///
    /// `images` is in the list for models that decode images: a program that supplies
    /// [a decoder](crate::SessionBuilder::image_decoder) does without. Formats of files, training
    /// and devices are not in it, as they depend on what a program does with the model.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?;
    /// assert!(model.required_features().is_empty());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn required_features(&self) -> Vec<RequiredFeature> {
        sardonyx_runtime::find_features(&self.graph)
    }

    /// Returns the id of the main graph.
    #[cfg(test)]
    fn main_id(&self) -> sardonyx_model::GraphId {
        self.graph.main.unwrap()
    }
}

/// Returns the number of a tensor's elements; a negative dimension counts as 0.
fn count_elements(tensor: &TensorProto) -> u64 {
    tensor
        .dims
        .iter()
        .fold(1, |product: u64, dim| product.saturating_mul(u64::try_from(*dim).unwrap_or(0)))
}

/// Returns the size of a tensor's elements in bytes; for strings, the size of their fields in the
/// file.
fn count_value_bytes(tensor: &TensorProto) -> u64 {
    let data_type = tensor.data_type.and_then(DataType::from_number);
    let elements = usize::try_from(count_elements(tensor)).ok();
    match data_type
        .zip(elements)
        .and_then(|(data_type, elements)| data_type.storage_bytes(elements))
    {
        Some(bytes) => bytes as u64,
        // Strings and unknown types have no fixed size per element: count the bytes in the file.
        None => tensor
            .raw_data
            .iter()
            .map(|raw| raw.len)
            .chain(tensor.typed.iter().map(|run| run.records.len))
            .sum(),
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_model::AttrValue;
    use sardonyx_tensor::Tensor;

    use super::*;

    #[test]
    fn counts_include_initializers_and_attributes() {
        let mut model = Model::from_bytes(b"\x08\x0a\x3a\x03\x12\x01g".to_vec()).unwrap();
        let main = model.main_id();
        let weights = Tensor::zeros(DataType::Int4, [3, 5]).unwrap();
        let weights = model.graph.add_initializer(main, "w", &weights);
        for domain in ["", "ai.onnx", "custom"] {
            let node = model.graph.add_node(main, "Add", domain, &[Some(weights)], 1);
            let value = Tensor::from_strings(
                [1],
                ["abc"].into_iter().collect::<sardonyx_tensor::StringArray>(),
            )
            .unwrap();
            model.graph.set_attribute(node, "value", AttrValue::Tensor(value));
        }
        assert_eq!(model.parameters(), Totals { tensors: 1, elements: 15, bytes: 8 });
        assert_eq!(model.constants(), Totals { tensors: 3, elements: 3, bytes: 15 });
        let operators: Vec<_> =
            model.operators().into_iter().map(|op| (op.domain, op.name, op.nodes)).collect();
        assert_eq!(
            operators,
            [(String::new(), "Add".to_string(), 2), ("custom".to_string(), "Add".to_string(), 1)]
        );
        assert!(model.external_files().is_empty());
    }
}
