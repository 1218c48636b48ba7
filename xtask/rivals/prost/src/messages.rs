//! The messages that the measured files have, with all fields that those files use, and some that
//! they might. `$blob` is what `raw_data` becomes: a vector, which copies, or `Bytes`, which shares
//! the buffer of the file.

macro_rules! messages {
    ($module:ident, $raw:tt, $blob:ty) => {
        pub mod $module {
            /// Counts that both sides must find.
            pub fn counts(model: &ModelProto) -> String {
                let graph = model.graph.as_ref();
                let (nodes, initializers) =
                    graph.map_or((0, 0), |graph| (graph.node.len(), graph.initializer.len()));
                format!("{nodes} nodes, {initializers} initializers")
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct ModelProto {
                #[prost(int64, optional, tag = "1")]
                pub ir_version: Option<i64>,
                #[prost(string, optional, tag = "2")]
                pub producer_name: Option<String>,
                #[prost(string, optional, tag = "3")]
                pub producer_version: Option<String>,
                #[prost(string, optional, tag = "4")]
                pub domain: Option<String>,
                #[prost(int64, optional, tag = "5")]
                pub model_version: Option<i64>,
                #[prost(string, optional, tag = "6")]
                pub doc_string: Option<String>,
                #[prost(message, optional, tag = "7")]
                pub graph: Option<GraphProto>,
                #[prost(message, repeated, tag = "8")]
                pub opset_import: Vec<OperatorSetIdProto>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct OperatorSetIdProto {
                #[prost(string, optional, tag = "1")]
                pub domain: Option<String>,
                #[prost(int64, optional, tag = "2")]
                pub version: Option<i64>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct GraphProto {
                #[prost(message, repeated, tag = "1")]
                pub node: Vec<NodeProto>,
                #[prost(string, optional, tag = "2")]
                pub name: Option<String>,
                #[prost(message, repeated, tag = "5")]
                pub initializer: Vec<TensorProto>,
                #[prost(string, optional, tag = "10")]
                pub doc_string: Option<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct NodeProto {
                #[prost(string, repeated, tag = "1")]
                pub input: Vec<String>,
                #[prost(string, repeated, tag = "2")]
                pub output: Vec<String>,
                #[prost(string, optional, tag = "3")]
                pub name: Option<String>,
                #[prost(string, optional, tag = "4")]
                pub op_type: Option<String>,
                #[prost(message, repeated, tag = "5")]
                pub attribute: Vec<AttributeProto>,
                #[prost(string, optional, tag = "6")]
                pub doc_string: Option<String>,
                #[prost(string, optional, tag = "7")]
                pub domain: Option<String>,
                #[prost(string, optional, tag = "8")]
                pub overload: Option<String>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct AttributeProto {
                #[prost(string, optional, tag = "1")]
                pub name: Option<String>,
                #[prost(float, optional, tag = "2")]
                pub f: Option<f32>,
                #[prost(int64, optional, tag = "3")]
                pub i: Option<i64>,
                #[prost(bytes = "vec", optional, tag = "4")]
                pub s: Option<Vec<u8>>,
                #[prost(float, repeated, packed = "false", tag = "7")]
                pub floats: Vec<f32>,
                #[prost(int64, repeated, packed = "false", tag = "8")]
                pub ints: Vec<i64>,
                #[prost(int32, optional, tag = "20")]
                pub r#type: Option<i32>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct TensorProto {
                #[prost(int64, repeated, packed = "false", tag = "1")]
                pub dims: Vec<i64>,
                #[prost(int32, optional, tag = "2")]
                pub data_type: Option<i32>,
                #[prost(float, repeated, tag = "4")]
                pub float_data: Vec<f32>,
                #[prost(int32, repeated, tag = "5")]
                pub int32_data: Vec<i32>,
                #[prost(int64, repeated, tag = "7")]
                pub int64_data: Vec<i64>,
                #[prost(string, optional, tag = "8")]
                pub name: Option<String>,
                #[prost(bytes = $raw, optional, tag = "9")]
                pub raw_data: Option<$blob>,
                #[prost(message, repeated, tag = "13")]
                pub external_data: Vec<StringStringEntryProto>,
                #[prost(int32, optional, tag = "14")]
                pub data_location: Option<i32>,
            }

            #[derive(Clone, PartialEq, prost::Message)]
            pub struct StringStringEntryProto {
                #[prost(string, optional, tag = "1")]
                pub key: Option<String>,
                #[prost(string, optional, tag = "2")]
                pub value: Option<String>,
            }
        }
    };
}

messages!(copied, "vec", Vec<u8>);
messages!(shared, "bytes", bytes::Bytes);
