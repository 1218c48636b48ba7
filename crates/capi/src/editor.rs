//! The model editor: graphs that a caller builds of nodes, and sessions of them.

use std::ffi::{CString, c_char, c_int};

use sardonyx::io::write_value;
use sardonyx::tool::NEWEST_IR_VERSION;
use sardonyx::tool::message::type_to_bytes;
use sardonyx::{DataType, Type, Value as EngineValue};
use sardonyx_ort::Source;

use crate::environment::Environment;
use crate::failure::{Error, StatusPointer, answer, argument, demand, release, to_c_string};
use crate::handles::{Handle, Kept, Object, give};
use crate::options::SessionOptions;
use crate::pointers::{Array, Out, Text};
use crate::session::{Session, open};
use crate::types::{TensorInfo, TypeInfo, to_data_type};
use crate::values::Value;

/// Numbers of the kinds of attributes, `OrtOpAttrType`.
mod attribute_kind {
    use std::ffi::c_int;

    pub(super) const INT: c_int = 1;
    pub(super) const INTS: c_int = 2;
    pub(super) const FLOAT: c_int = 3;
    pub(super) const FLOATS: c_int = 4;
    pub(super) const STRING: c_int = 5;
    pub(super) const STRINGS: c_int = 6;
    pub(super) const TENSOR: c_int = 8;
}

/// Writes fields of protobuf messages.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn int(&mut self, field: u64, number: i64) {
        self.varint(field << 3);
        self.varint(number.cast_unsigned());
    }

    fn float(&mut self, field: u64, number: f32) {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Value of an attribute.
#[derive(Debug, Clone)]
enum Content {
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Floats(Vec<f32>),
    String(Vec<u8>),
    Strings(Vec<Vec<u8>>),
    /// Tensor as a message.
    Tensor(Vec<u8>),
}

/// Attribute of a node, `OrtOpAttr`.
#[derive(Debug, Clone)]
pub(crate) struct Attribute {
    name: CString,
    content: Content,
}

impl Object for Attribute {
    const NAME: &'static str = "OrtOpAttr";
}

impl Attribute {
    /// Returns the number of the kind in the C header.
    fn kind(&self) -> c_int {
        match self.content {
            Content::Int(_) => attribute_kind::INT,
            Content::Ints(_) => attribute_kind::INTS,
            Content::Float(_) => attribute_kind::FLOAT,
            Content::Floats(_) => attribute_kind::FLOATS,
            Content::String(_) => attribute_kind::STRING,
            Content::Strings(_) => attribute_kind::STRINGS,
            Content::Tensor(_) => attribute_kind::TENSOR,
        }
    }

    /// Encodes the `AttributeProto`.
    fn encode(&self) -> Vec<u8> {
        let mut message = Message::default();
        message.bytes(1, self.name.as_bytes());
        let number = match &self.content {
            Content::Float(number) => {
                message.float(2, *number);
                1
            }
            Content::Int(number) => {
                message.int(3, *number);
                2
            }
            Content::String(string) => {
                message.bytes(4, string);
                3
            }
            Content::Tensor(tensor) => {
                message.bytes(5, tensor);
                4
            }
            Content::Floats(numbers) => {
                numbers.iter().for_each(|number| message.float(7, *number));
                6
            }
            Content::Ints(numbers) => {
                numbers.iter().for_each(|number| message.int(8, *number));
                7
            }
            Content::Strings(strings) => {
                strings.iter().for_each(|string| message.bytes(9, string));
                8
            }
        };
        message.int(20, number);
        message.0
    }
}

/// Input or output of a graph, `OrtValueInfo`.
#[derive(Debug)]
pub(crate) struct ValueInfo {
    name: CString,
    ty: Kept<TypeInfo>,
}

impl Object for ValueInfo {
    const NAME: &'static str = "OrtValueInfo";
}

impl ValueInfo {
    fn encode(&self) -> Vec<u8> {
        let mut message = Message::default();
        message.bytes(1, self.name.as_bytes());
        message.bytes(2, &type_to_bytes(Some(&self.ty.get().ty)));
        message.0
    }
}

/// Node of a graph, `OrtNode`, as a message.
#[derive(Debug)]
pub(crate) struct Node(Vec<u8>);

impl Object for Node {
    const NAME: &'static str = "OrtNode";
}

/// Graph, `OrtGraph`.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    inputs: Vec<ValueInfo>,
    outputs: Vec<ValueInfo>,
    /// Initializers as messages.
    initializers: Vec<Vec<u8>>,
    nodes: Vec<Node>,
}

impl Object for Graph {
    const NAME: &'static str = "OrtGraph";
}

impl Graph {
    fn encode(&self) -> Vec<u8> {
        let mut message = Message::default();
        self.nodes.iter().for_each(|node| message.bytes(1, &node.0));
        message.bytes(2, b"graph");
        self.initializers.iter().for_each(|tensor| message.bytes(5, tensor));
        self.inputs.iter().for_each(|input| message.bytes(11, &input.encode()));
        self.outputs.iter().for_each(|output| message.bytes(12, &output.encode()));
        message.0
    }
}

/// Operator set that a model imports.
#[derive(Debug)]
struct Import {
    domain: String,
    version: i32,
}

/// Model, `OrtModel`.
#[derive(Debug)]
pub(crate) struct Model {
    imports: Vec<Import>,
    graph: Option<Graph>,
}

impl Object for Model {
    const NAME: &'static str = "OrtModel";
}

impl Model {
    /// Encodes the `ModelProto`.
    ///
    /// # Errors
    ///
    /// The model has no graph.
    fn encode(&self) -> Result<Vec<u8>, Error> {
        let graph = self.graph.as_ref().ok_or_else(|| argument("the model has no graph"))?;
        let mut message = Message::default();
        message.int(1, NEWEST_IR_VERSION);
        message.bytes(7, &graph.encode());
        for import in &self.imports {
            let mut set = Message::default();
            set.bytes(1, import.domain.as_bytes());
            set.int(2, import.version.into());
            message.bytes(8, &set.0);
        }
        Ok(message.0)
    }
}

/// Address of what an attribute is made of. Its type depends on the kind of the attribute.
pub(crate) type Data = Array<u8>;

pub(crate) extern "C" fn create_op_attr(
    name: Text,
    data: Data,
    len: c_int,
    kind: c_int,
    out: Out<*mut Attribute>,
) -> StatusPointer {
    answer("CreateOpAttr", || {
        let out = out.demand()?;
        let name = to_c_string(&name.read("name of the attribute")?);
        let len = usize::try_from(len).map_err(|_| argument("the length is negative"))?;
        let content = match kind {
            attribute_kind::INT => Content::Int(data.cast::<i64>().read(1, "numbers")?[0]),
            attribute_kind::INTS => Content::Ints(data.cast().read(len, "numbers")?.to_vec()),
            attribute_kind::FLOAT => Content::Float(data.cast::<f32>().read(1, "numbers")?[0]),
            attribute_kind::FLOATS => Content::Floats(data.cast().read(len, "numbers")?.to_vec()),
            attribute_kind::STRING => Content::String(data.read(len, "bytes")?.to_vec()),
            attribute_kind::STRINGS => {
                let texts = data.cast::<Text>();
                let texts = texts.read(len, "strings")?.iter();
                let strings: Option<Vec<Vec<u8>>> =
                    texts.map(|string| string.bytes().map(<[u8]>::to_vec)).collect();
                Content::Strings(strings.ok_or_else(|| argument("a string is a null pointer"))?)
            }
            attribute_kind::TENSOR => {
                let value = Handle::<Value>::new(data.address().cast_mut().cast());
                Content::Tensor(encode_tensor(value.get()?, "")?)
            }
            _ => return Err(argument(format!("no attribute of the kind {kind} can be made"))),
        };
        out.set(give(Attribute { name, content }))
    })
}

fn encode_tensor(value: &Value, name: &str) -> Result<Vec<u8>, Error> {
    let value = value.to_engine()?;
    demand(matches!(value, EngineValue::Tensor(_)), || "the OrtValue is not a tensor".into())?;
    write_value(&value, name).map_err(|error| argument(error.to_string()))
}

pub(crate) extern "C" fn release_op_attr(attribute: Handle<Attribute>) {
    release("ReleaseOpAttr", attribute);
}

pub(crate) extern "C" fn op_attr_get_type(
    attribute: Handle<Attribute>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("OpAttr_GetType", || out.set(attribute.get()?.kind()))
}

pub(crate) extern "C" fn op_attr_get_name(
    attribute: Handle<Attribute>,
    out: Out<*const c_char>,
) -> StatusPointer {
    answer("OpAttr_GetName", || out.set(attribute.get()?.name.as_ptr()))
}

pub(crate) extern "C" fn read_op_attr(
    attribute: Handle<Attribute>,
    kind: c_int,
    place: Out<u8>,
    room: usize,
    needed: Out<usize>,
) -> StatusPointer {
    answer("ReadOpAttr", || {
        let attribute = attribute.get()?;
        demand(attribute.kind() == kind, || {
            format!("the attribute is of the kind {}, not {kind}", attribute.kind())
        })?;
        let bytes: Vec<u8> = match &attribute.content {
            Content::Int(number) => number.to_ne_bytes().to_vec(),
            Content::Float(number) => number.to_ne_bytes().to_vec(),
            Content::Ints(numbers) => numbers.iter().flat_map(|n| n.to_ne_bytes()).collect(),
            Content::Floats(numbers) => numbers.iter().flat_map(|n| n.to_ne_bytes()).collect(),
            Content::String(string) => string.clone(),
            Content::Strings(strings) => {
                strings.iter().flat_map(|string| string.iter().copied().chain([0])).collect()
            }
            Content::Tensor(_) => return Err(argument("a tensor is not read as bytes")),
        };
        needed.set(bytes.len())?;
        demand(bytes.len() <= room, || {
            format!("the attribute has {} bytes, and there is room for {room}", bytes.len())
        })?;
        place.set_all(&bytes)
    })
}

pub(crate) extern "C" fn release_value_info(info: Handle<ValueInfo>) {
    release("ReleaseValueInfo", info);
}

pub(crate) extern "C" fn release_node(node: Handle<Node>) {
    release("ReleaseNode", node);
}

pub(crate) extern "C" fn release_graph(graph: Handle<Graph>) {
    release("ReleaseGraph", graph);
}

pub(crate) extern "C" fn release_model(model: Handle<Model>) {
    release("ReleaseModel", model);
}

pub(crate) extern "C" fn get_value_info_name(
    info: Handle<ValueInfo>,
    out: Out<*const c_char>,
) -> StatusPointer {
    answer("GetValueInfoName", || out.set(info.get()?.name.as_ptr()))
}

pub(crate) extern "C" fn get_value_info_type_info(
    info: Handle<ValueInfo>,
    out: Out<*const TypeInfo>,
) -> StatusPointer {
    answer("GetValueInfoTypeInfo", || out.set(info.get()?.ty.pointer()))
}

pub(crate) extern "C" fn create_tensor_type_info(
    info: Handle<TensorInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("CreateTensorTypeInfo", || {
        let out = out.demand()?;
        out.set(give(TypeInfo::from_tensor(info.get()?)?))
    })
}

pub(crate) extern "C" fn create_map_type_info(
    key: c_int,
    value: Handle<TypeInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("CreateMapTypeInfo", || {
        let out = out.demand()?;
        let key: DataType = to_data_type(key)?;
        let value = value.get()?.ty.clone();
        out.set(give(TypeInfo::from_type(&Type::Map(key, Box::new(value)))))
    })
}

pub(crate) extern "C" fn create_sequence_type_info(
    element: Handle<TypeInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("CreateSequenceTypeInfo", || {
        let out = out.demand()?;
        let element = element.get()?.ty.clone();
        out.set(give(TypeInfo::from_type(&Type::Sequence(Box::new(element)))))
    })
}

pub(crate) extern "C" fn create_optional_type_info(
    element: Handle<TypeInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("CreateOptionalTypeInfo", || {
        let out = out.demand()?;
        let element = element.get()?.ty.clone();
        out.set(give(TypeInfo::from_type(&Type::Optional(Box::new(element)))))
    })
}

pub(crate) extern "C" fn create_value_info(
    name: Text,
    ty: Handle<TypeInfo>,
    out: Out<*mut ValueInfo>,
) -> StatusPointer {
    answer("CreateValueInfo", || {
        let out = out.demand()?;
        let name = to_c_string(&name.read("name of the value")?);
        let ty = Kept::new(TypeInfo::from_type(&ty.get()?.ty));
        out.set(give(ValueInfo { name, ty }))
    })
}

pub(crate) extern "C" fn create_node(
    operator: Text,
    domain: Text,
    name: Text,
    inputs: Array<Text>,
    input_count: usize,
    outputs: Array<Text>,
    output_count: usize,
    attributes: Array<Handle<Attribute>>,
    attribute_count: usize,
    out: Out<*mut Node>,
) -> StatusPointer {
    answer("CreateNode", || {
        let out = out.demand()?;
        let mut message = Message::default();
        for input in inputs.read(input_count, "names of inputs")? {
            message.bytes(1, input.read("name of an input")?.as_bytes());
        }
        for output in outputs.read(output_count, "names of outputs")? {
            message.bytes(2, output.read("name of an output")?.as_bytes());
        }
        message.bytes(3, name.optional().unwrap_or_default().as_bytes());
        message.bytes(4, operator.read("name of the operator")?.as_bytes());
        let attributes = attributes.read(attribute_count, "attributes")?;
        for attribute in attributes {
            message.bytes(5, &attribute.get()?.encode());
        }
        message.bytes(7, domain.optional().unwrap_or_default().as_bytes());
        // The node owns its attributes.
        attributes.iter().for_each(|attribute| attribute.release());
        out.set(give(Node(message.0)))
    })
}

pub(crate) extern "C" fn create_graph(out: Out<*mut Graph>) -> StatusPointer {
    answer("CreateGraph", || {
        let out = out.demand()?;
        out.set(give(Graph::default()))
    })
}

/// Takes values from the caller. Checks all of them first, so that a failure takes none.
fn take_all(infos: Array<Handle<ValueInfo>>, count: usize) -> Result<Vec<ValueInfo>, Error> {
    let infos = infos.read(count, "values")?;
    infos.iter().try_for_each(|info| info.get().map(|_| ()))?;
    infos.iter().map(|info| info.take()).collect()
}

pub(crate) extern "C" fn set_graph_inputs(
    mut graph: Handle<Graph>,
    inputs: Array<Handle<ValueInfo>>,
    count: usize,
) -> StatusPointer {
    answer("SetGraphInputs", || {
        let graph = graph.change()?;
        graph.inputs = take_all(inputs, count)?;
        Ok(())
    })
}

pub(crate) extern "C" fn set_graph_outputs(
    mut graph: Handle<Graph>,
    outputs: Array<Handle<ValueInfo>>,
    count: usize,
) -> StatusPointer {
    answer("SetGraphOutputs", || {
        let graph = graph.change()?;
        graph.outputs = take_all(outputs, count)?;
        Ok(())
    })
}

pub(crate) extern "C" fn add_initializer_to_graph(
    mut graph: Handle<Graph>,
    name: Text,
    value: Handle<Value>,
    _is_external: bool,
) -> StatusPointer {
    answer("AddInitializerToGraph", || {
        let graph = graph.change()?;
        let tensor = encode_tensor(value.get()?, &name.read("name of the initializer")?)?;
        drop(value.take()?);
        graph.initializers.push(tensor);
        Ok(())
    })
}

pub(crate) extern "C" fn add_node_to_graph(
    mut graph: Handle<Graph>,
    node: Handle<Node>,
) -> StatusPointer {
    answer("AddNodeToGraph", || {
        let graph = graph.change()?;
        graph.nodes.push(node.take()?);
        Ok(())
    })
}

pub(crate) extern "C" fn create_model(
    domains: Array<Text>,
    versions: Array<i32>,
    count: usize,
    out: Out<*mut Model>,
) -> StatusPointer {
    answer("CreateModel", || {
        let out = out.demand()?;
        let pairs = domains.read(count, "domains")?.iter().zip(versions.read(count, "versions")?);
        let imports: Result<Vec<Import>, Error> = pairs
            .map(|(domain, version)| {
                Ok(Import { domain: domain.read("domain")?.into_owned(), version: *version })
            })
            .collect();
        out.set(give(Model { imports: imports?, graph: None }))
    })
}

pub(crate) extern "C" fn add_graph_to_model(
    mut model: Handle<Model>,
    graph: Handle<Graph>,
) -> StatusPointer {
    answer("AddGraphToModel", || {
        let model = model.change()?;
        model.graph = Some(graph.take()?);
        Ok(())
    })
}

pub(crate) extern "C" fn create_session_from_model(
    env: Handle<Environment>,
    model: Handle<Model>,
    options: Handle<SessionOptions>,
    out: Out<*mut Session>,
) -> StatusPointer {
    answer("CreateSessionFromModel", || {
        let out = out.demand()?;
        let source = Source::Bytes(model.get()?.encode()?.into());
        out.set(give(open(env, &source, options)?))
    })
}
