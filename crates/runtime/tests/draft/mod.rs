//! Test support: models written in one expression each, encoded as bytes of a file.
use sardonyx_model::{Model, NoExternalData};
use sardonyx_proto::{AttributeType, tensor_shape, tensor_type, type_};
use sardonyx_proto::{Encode, Encoder, encode_to_vec};
use sardonyx_proto::{
    attribute, dimension, graph, model, node, operator_set_id, sparse_tensor, tensor, value_info,
};
use sardonyx_runtime::{CompileError, Options, Session};
use sardonyx_tensor::{Buffer, Tensor, Value};

/// Model of float tensors, written in one expression.
#[derive(Clone, Default)]
pub(crate) struct Draft {
    pub(crate) ir: i64,
    pub(crate) opset: i64,
    /// Name and dimensions; a letter is a symbol, `?` unknown.
    pub(crate) inputs: Vec<(&'static str, &'static [&'static str])>,
    pub(crate) outputs: Vec<&'static str>,
    /// Name, dimensions, elements.
    pub(crate) initializers: Vec<(&'static str, &'static [i64], Vec<f32>)>,
    /// Name, dimensions, whether they are signed, elements of 8 bits.
    pub(crate) bytes: Vec<(&'static str, &'static [i64], bool, Vec<u8>)>,
    /// Name, dimension, positions, elements.
    pub(crate) sparse: Vec<(&'static str, i64, Vec<i64>, Vec<f32>)>,
    /// Operator, inputs, outputs, integer attributes.
    pub(crate) nodes: Vec<(
        &'static str,
        &'static [&'static str],
        &'static [&'static str],
        &'static [(&'static str, i64)],
    )>,
}

impl Encode for Draft {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.put(model::IrVersion, self.ir);
        out.put_message(model::Graph, |out| {
            for (op, inputs, outputs, attributes) in &self.nodes {
                out.put_message(graph::Node, |out| {
                    for input in *inputs {
                        out.put(node::Input, input.as_bytes());
                    }
                    for output in *outputs {
                        out.put(node::Output, output.as_bytes());
                    }
                    out.put(node::OpType, op.as_bytes());
                    for (name, value) in *attributes {
                        out.put_message(node::Attribute, |out| {
                            out.put(attribute::Name, name.as_bytes());
                            out.put(attribute::I, *value);
                            out.put(attribute::Type, AttributeType::INT);
                        });
                    }
                });
            }
            out.put(graph::Name, b"g");
            for (name, dims, elements) in &self.initializers {
                out.put_message(graph::Initializer, |out| {
                    out.put(tensor::Dims, dims);
                    out.put(tensor::DataType, 1);
                    out.put(tensor::Name, name.as_bytes());
                    let raw: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()).collect();
                    out.put(tensor::RawData, &raw);
                });
            }
            for (name, dims, signed, elements) in &self.bytes {
                out.put_message(graph::Initializer, |out| {
                    out.put(tensor::Dims, dims);
                    out.put(tensor::DataType, if *signed { 3 } else { 2 });
                    out.put(tensor::Name, name.as_bytes());
                    out.put(tensor::RawData, elements);
                });
            }
            for (name, dim, positions, elements) in &self.sparse {
                out.put_message(graph::SparseInitializer, |out| {
                    out.put_message(sparse_tensor::Values, |out| {
                        out.put(tensor::Dims, &[elements.len() as i64][..]);
                        out.put(tensor::DataType, 1);
                        let raw: Vec<u8> = elements.iter().flat_map(|e| e.to_le_bytes()).collect();
                        out.put(tensor::RawData, &raw);
                        out.put(tensor::Name, name.as_bytes());
                    });
                    out.put_message(sparse_tensor::Indices, |out| {
                        out.put(tensor::Dims, &[positions.len() as i64][..]);
                        out.put(tensor::DataType, 7);
                        let raw: Vec<u8> = positions.iter().flat_map(|e| e.to_le_bytes()).collect();
                        out.put(tensor::RawData, &raw);
                    });
                    out.put(sparse_tensor::Dims, &[*dim][..]);
                });
            }
            for (name, dims) in &self.inputs {
                out.put_message(graph::Input, |out| info(out, name, Some(dims)));
            }
            for name in &self.outputs {
                out.put_message(graph::Output, |out| info(out, name, None));
            }
        });
        if self.ir >= 3 {
            out.put_message(model::OpsetImport, |out| {
                out.put(operator_set_id::Version, self.opset)
            });
        }
    }
}

fn info(out: &mut Encoder<'_>, name: &str, dims: Option<&[&str]>) {
    out.put(value_info::Name, name.as_bytes());
    out.put_message(value_info::Type, |out| {
        out.put_message(type_::TensorType, |out| {
            out.put(tensor_type::ElemType, 1);
            let Some(dims) = dims else { return };
            out.put_message(tensor_type::Shape, |out| {
                for dim in dims {
                    out.put_message(tensor_shape::Dim, |out| match dim.parse() {
                        Ok(number) => out.put(dimension::DimValue, number),
                        Err(_) if *dim == "?" => {}
                        Err(_) => out.put(dimension::DimParam, dim.as_bytes()),
                    });
                }
            });
        });
    });
}

impl Draft {
    pub(crate) fn new(opset: i64) -> Draft {
        Draft { ir: 8, opset, outputs: vec!["y"], ..Draft::default() }
    }

    pub(crate) fn input(mut self, name: &'static str, dims: &'static [&'static str]) -> Draft {
        self.inputs.push((name, dims));
        self
    }

    pub(crate) fn constant(
        mut self,
        name: &'static str,
        dims: &'static [i64],
        elements: Vec<f32>,
    ) -> Draft {
        self.initializers.push((name, dims, elements));
        self
    }

    pub(crate) fn bytes(
        mut self,
        name: &'static str,
        dims: &'static [i64],
        signed: bool,
        elements: Vec<u8>,
    ) -> Draft {
        self.bytes.push((name, dims, signed, elements));
        self
    }

    pub(crate) fn node(
        mut self,
        op: &'static str,
        inputs: &'static [&'static str],
        outputs: &'static [&'static str],
    ) -> Draft {
        self.nodes.push((op, inputs, outputs, &[]));
        self
    }

    pub(crate) fn with(mut self, attributes: &'static [(&'static str, i64)]) -> Draft {
        self.nodes.last_mut().expect("a node comes first").3 = attributes;
        self
    }

    pub(crate) fn model(&self) -> Model {
        Model::read(Buffer::from_vec(encode_to_vec(self))).expect("a well-formed file")
    }

    pub(crate) fn session(&self, threads: usize) -> Result<Session, CompileError> {
        Session::compile(&self.model(), &NoExternalData, &Options::with_threads(threads))
    }

    pub(crate) fn run(&self, inputs: &[(&str, &[usize], &[f32])]) -> Result<Vec<f32>, String> {
        let session = self.session(1).map_err(|error| error.to_string())?;
        let outputs = session.run(values(inputs)).map_err(|error| error.to_string())?;
        Ok(floats(&outputs[0].1))
    }
}

pub(crate) fn values(inputs: &[(&str, &[usize], &[f32])]) -> Vec<(String, Value)> {
    let inputs = inputs.iter().map(|(name, dims, elements)| {
        let tensor = Tensor::from_slice(*dims, elements).expect("a fitting tensor");
        (name.to_string(), tensor.into())
    });
    inputs.collect()
}

pub(crate) fn floats(value: &Value) -> Vec<f32> {
    value.as_tensor().expect("a tensor").to_vec().expect("floats")
}
