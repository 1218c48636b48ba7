//! Decoding of typed lists with `sardonyx-proto`, into lists that are used again.

use sardonyx_proto::{
    Error, GraphField, GraphProto, ModelField, ModelProto, Reader, TensorField, TensorProto,
};

/// Destination of the numbers.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    int64: Vec<i64>,
    int32: Vec<i32>,
    float: Vec<f32>,
}

impl Lists {
    /// Decodes all lists of the initializers of a model.
    pub(crate) fn decode(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.int64.clear();
        self.int32.clear();
        self.float.clear();
        for field in Reader::<ModelProto>::new(bytes) {
            if let ModelField::Graph(graph) = field? {
                self.decode_graph(graph)?;
            }
        }
        Ok(())
    }

    fn decode_graph(&mut self, graph: Reader<'_, GraphProto>) -> Result<(), Error> {
        for field in graph {
            if let GraphField::Initializer(tensor) = field? {
                self.decode_tensor(tensor)?;
            }
        }
        Ok(())
    }

    fn decode_tensor(&mut self, tensor: Reader<'_, TensorProto>) -> Result<(), Error> {
        for field in tensor {
            match field? {
                TensorField::Int64Data(chunk) => chunk.decode_into(&mut self.int64)?,
                TensorField::Int32Data(chunk) => chunk.decode_into(&mut self.int32)?,
                TensorField::FloatData(chunk) => chunk.decode_into(&mut self.float)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds up all numbers, as the rivals do too.
    pub(crate) fn sum(&self) -> String {
        let int64: i64 = self.int64.iter().sum();
        let int32: i64 = self.int32.iter().map(|number| i64::from(*number)).sum();
        let float: f64 = self.float.iter().map(|number| f64::from(*number)).sum();
        format!("int64 {int64}, int32 {int32}, float {float:.6}")
    }
}
