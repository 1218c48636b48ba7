//! Implements `serde::Serialize` for parts of a model: operators, functions, nodes, tensors, data
//! files and device configurations.

use sardonyx_model::Type;
use sardonyx_model::shown_domain;
use serde::{Serialize, Serializer};

use crate::inspect::{
    DeviceConfiguration, ExternalFile, FunctionInfo, NodeInfo, NodeValue, OperatorCount,
    StoredTensor, TensorRole, TensorStorage, Totals, ValueSource,
};

/// Serializes the use of an operator with the keys `domain` (`ai.onnx` for the default domain),
/// `name`, `nodes` (number of nodes) and `function` (whether the model defines the operator as a
/// function).
impl Serialize for OperatorCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            name: &'a str,
            nodes: usize,
            function: bool,
        }
        let OperatorCount { domain, name, nodes, is_function: function } = self;
        let (domain, nodes, function) = (shown_domain(domain), *nodes, *function);
        Form { domain, name, nodes, function }.serialize(serializer)
    }
}

/// Serializes a model function with the keys `domain` (`ai.onnx` for the default domain), `name`,
/// `overload`, `inputs` and `outputs` (names), and `nodes` (number of nodes).
impl Serialize for FunctionInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            domain: &'a str,
            name: &'a str,
            overload: &'a str,
            inputs: &'a [String],
            outputs: &'a [String],
            nodes: usize,
        }
        let FunctionInfo { domain, name, overload, inputs, outputs, nodes } = self;
        let (domain, nodes) = (shown_domain(domain), *nodes);
        Form { domain, name, overload, inputs, outputs, nodes }.serialize(serializer)
    }
}

/// Serializes total numbers of tensors with the keys `tensors`, `elements` and `bytes`.
impl Serialize for Totals {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form {
            tensors: usize,
            elements: u64,
            bytes: u64,
        }
        let Totals { tensors, elements, bytes } = *self;
        Form { tensors, elements, bytes }.serialize(serializer)
    }
}

/// Serializes an external data file with the keys `location`, `tensors` and `bytes`.
impl Serialize for ExternalFile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            location: &'a str,
            tensors: usize,
            bytes: u64,
        }
        let ExternalFile { location, tensors, bytes } = self;
        Form { location, tensors: *tensors, bytes: *bytes }.serialize(serializer)
    }
}

/// Serializes a device configuration with the keys `name`, `num_devices` (null if the model does
/// not state it) and `devices` (names).
impl Serialize for DeviceConfiguration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            name: &'a str,
            num_devices: Option<i64>,
            devices: &'a [String],
        }
        let DeviceConfiguration { name, num_devices, devices } = self;
        Form { name, num_devices: *num_devices, devices }.serialize(serializer)
    }
}

/// Serializes a node with the keys `graph`, `index`, `name`, `domain` (`ai.onnx` for the default
/// domain), `operator`, `inputs` and `outputs`. An input or output that is left out is null.
impl Serialize for NodeInfo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            graph: &'a str,
            index: usize,
            name: &'a str,
            domain: &'a str,
            operator: &'a str,
            inputs: &'a [Option<NodeValue>],
            outputs: &'a [Option<NodeValue>],
        }
        let NodeInfo { graph, index, name, domain, operator, inputs, outputs, .. } = self;
        let (index, domain) = (*index, shown_domain(domain));
        Form { graph, index, name, domain, operator, inputs, outputs }.serialize(serializer)
    }
}

/// Serializes a value that a node reads or computes with the keys `name`, `type` as text (null if
/// unknown), `source` (`input`, `initializer`, `node`, `outside` or `nothing`), `made_by` (index of
/// the node that computes the value, or null) and `output` (whether the value is an output of its
/// graph).
impl Serialize for NodeValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            name: &'a str,
            #[serde(rename = "type")]
            ty: Option<String>,
            source: &'static str,
            made_by: Option<usize>,
            output: bool,
        }
        let (source, made_by) = match self.source {
            ValueSource::Input => ("input", None),
            ValueSource::Initializer => ("initializer", None),
            ValueSource::Node(index) => ("node", Some(index)),
            ValueSource::Outside => ("outside", None),
            ValueSource::Nothing => ("nothing", None),
        };
        let ty = self.ty.as_ref().map(Type::to_string);
        let form = Form { name: &self.name, ty, source, made_by, output: self.is_output };
        form.serialize(serializer)
    }
}

/// Serializes the role of a tensor as `initializer`, `attribute`, `sparse values` or `sparse
/// indices`.
impl Serialize for TensorRole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            TensorRole::Initializer => "initializer",
            TensorRole::Attribute => "attribute",
            TensorRole::SparseValues => "sparse values",
            TensorRole::SparseIndices => "sparse indices",
        })
    }
}

/// Serializes a stored tensor with the keys `name`, `place`, `role`, `type`, `type_number`,
/// `shape`, `elements`, `bytes` and `storage` (`raw`, `typed`, `external`, `nothing` or `broken`).
/// A typed list adds its `field`, a data file `location`, `offset`, `length` and `checksum`.
/// Unknown numbers are null.
impl Serialize for StoredTensor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct External<'a> {
            location: &'a str,
            offset: u64,
            length: Option<u64>,
            checksum: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Form<'a> {
            name: &'a str,
            place: &'a str,
            role: TensorRole,
            #[serde(rename = "type")]
            type_name: String,
            type_number: i32,
            shape: &'a [i64],
            elements: Option<u64>,
            bytes: Option<u64>,
            storage: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<&'static str>,
            #[serde(flatten)]
            external: Option<External<'a>>,
        }
        let form = Form {
            name: &self.name,
            place: &self.place,
            role: self.role,
            type_name: self.type_name(),
            type_number: self.type_number,
            shape: &self.dims,
            elements: self.elements(),
            bytes: self.bytes,
            storage: self.storage.name(),
            field: match self.storage {
                TensorStorage::Typed(field) => Some(field),
                _ => None,
            },
            external: match &self.storage {
                TensorStorage::External { location, offset, length, checksum } => Some(External {
                    location,
                    offset: *offset,
                    length: *length,
                    checksum: checksum.as_deref(),
                }),
                _ => None,
            },
        };
        form.serialize(serializer)
    }
}
