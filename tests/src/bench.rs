//! What our sides of the contests share: writing models, and the memory of the process.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sardonyx_proto::{
    DataType, Encode, Encoder, dimension, encode_to_write, graph, model, operator_set_id,
    tensor_shape, tensor_type, type_, value_info,
};

/// Writes a model around whatever a function writes into its graph.
///
/// # Errors
///
/// Those of writing the file.
pub fn write_model(path: &Path, producer: &str, body: &dyn Fn(&mut Encoder<'_>)) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    encode_to_write(&Wrapped { producer, body }, &mut file)?;
    file.flush()
}

struct Wrapped<'a> {
    producer: &'a str,
    body: &'a dyn Fn(&mut Encoder<'_>),
}

impl Encode for Wrapped<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.put(model::IrVersion, 10);
        out.put(model::ProducerName, self.producer.as_bytes());
        out.message(model::Graph, |out| (self.body)(out));
        out.message(model::OpsetImport, |out| {
            out.put(operator_set_id::Domain, b"");
            out.put(operator_set_id::Version, 21);
        });
    }
}

/// An input and an output of a graph: `float[batch, 768]`.
pub fn ports(out: &mut Encoder<'_>, input: &str, output: &str) {
    out.message(graph::Input, |out| matrix(out, input));
    out.message(graph::Output, |out| matrix(out, output));
}

fn matrix(out: &mut Encoder<'_>, name: &str) {
    out.put(value_info::Name, name.as_bytes());
    out.message(value_info::Type, |out| {
        out.message(type_::TensorType, |out| {
            out.put(tensor_type::ElemType, DataType::FLOAT.0);
            out.message(tensor_type::Shape, |out| {
                out.message(tensor_shape::Dim, |out| {
                    out.put(dimension::DimParam, b"batch");
                });
                out.message(tensor_shape::Dim, |out| out.put(dimension::DimValue, 768));
            });
        });
    });
}

/// The most memory that the process ever had in megabytes, as the kernel counts it.
///
/// # Errors
///
/// The kernel does not say.
pub fn rss_peak_mb() -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("/proc/self/status has no VmHWM")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}
