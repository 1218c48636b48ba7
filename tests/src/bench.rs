//! Parts shared by our programs of the contests: writing models, and the memory of the process.

use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use sardonyx_proto::{
    DataType, Encoded, Encoder, dimension, graph, model, operator_set_id, tensor_shape,
    tensor_type, type_, value_info,
};

/// Writes a model whose graph a function writes.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_model<'a>(
    path: &Path,
    producer: &str,
    body: impl FnOnce(&mut Encoder<'a>),
) -> io::Result<()> {
    write_model_of(path, producer, 21, body, |_| {})
}

/// Writes a model with a version of the operator set and fields that a function adds.
///
/// # Errors
///
/// The file cannot be written.
pub fn write_model_of<'a>(
    path: &Path,
    producer: &str,
    opset: i64,
    body: impl FnOnce(&mut Encoder<'a>),
    more: impl FnOnce(&mut Encoder<'a>),
) -> io::Result<()> {
    let model = Encoded::from_fields(|out| {
        out.put(model::IrVersion, 10);
        out.put(model::ProducerName, producer.as_bytes());
        out.put_message(model::Graph, body);
        out.put_message(model::OpsetImport, |out| {
            out.put(operator_set_id::Domain, b"");
            out.put(operator_set_id::Version, opset);
        });
        more(out);
    });
    model.write_to(&mut File::create(path)?)?;
    Ok(())
}

/// Writes an input and an output of a graph, such as `float[batch, 768]`.
pub fn write_ports(out: &mut Encoder<'_>, input: &str, output: &str) {
    out.put_message(graph::Input, |out| write_matrix(out, input));
    out.put_message(graph::Output, |out| write_matrix(out, output));
}

fn write_matrix(out: &mut Encoder<'_>, name: &str) {
    out.put(value_info::Name, name.as_bytes());
    out.put_message(value_info::Type, |out| {
        out.put_message(type_::TensorType, |out| {
            out.put(tensor_type::ElemType, DataType::FLOAT.0);
            out.put_message(tensor_type::Shape, |out| {
                out.put_message(tensor_shape::Dim, |out| {
                    out.put(dimension::DimParam, b"batch");
                });
                out.put_message(tensor_shape::Dim, |out| out.put(dimension::DimValue, 768));
            });
        });
    });
}

/// Returns the most memory that the process ever had in megabytes, as the kernel counts it.
///
/// # Errors
///
/// The kernel does not report it.
pub fn rss_peak_mb() -> Result<f64, Box<dyn Error>> {
    memory_mb("VmHWM:")
}

/// Returns the memory that the process has now in megabytes, pages of mapped files left out.
///
/// # Errors
///
/// The kernel does not report it.
pub fn rss_own_mb() -> Result<f64, Box<dyn Error>> {
    memory_mb("RssAnon:")
}

fn memory_mb(name: &str) -> Result<f64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .ok_or_else(|| format!("/proc/self/status has no {name}"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}
