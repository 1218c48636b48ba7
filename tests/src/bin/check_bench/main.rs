//! Our side of `cargo xtask bench check`: makes the models, and checks one as often as asked, from its bytes on.
//!
//! Prints one line of JSON: the times of all repetitions in milliseconds, whether the model is valid, and the most memory
//! the process had before and after.

use clap::{Parser, Subcommand};
use sardonyx::{Buffer, Model, check};
use sardonyx_proto::{
    AttributeType, DataType, Encode, Encoder, attribute, dimension, encode_to_write, graph, model,
    node, operator_set_id, tensor, tensor_shape, tensor_type, type_, value_info,
};
use serde_json::json;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Subcommand)]
enum Job {
    /// Write the models that are checked.
    Make {
        folder: PathBuf,
        /// Tiny ones.
        #[arg(long)]
        smoke: bool,
    },
    /// Check a model.
    Check {
        model: PathBuf,
        /// How often.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        repeat: u32,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().job {
        Job::Make { folder, smoke } => make(&folder, smoke).map_err(Into::into),
        Job::Check { model, repeat } => check_model(&model, repeat),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("check_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check_model(path: &Path, repeat: u32) -> Result {
    let bytes = Buffer::from_vec(fs::read(path)?);
    let options = check::Options::new();
    let rss_before_mb = rss_peak_mb()?;
    let mut times = Vec::new();
    let mut errors = 0;
    for _ in 0..repeat {
        let start = Instant::now();
        let model = Model::from_bytes(bytes.clone())?;
        errors = model.check(&options).errors;
        drop(model);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let answer = json!({
        "ms": times,
        "found": if errors == 0 { "valid" } else { "invalid" },
        "rss_before_mb": rss_before_mb,
        "rss_peak_mb": rss_peak_mb()?,
    });
    println!("{answer}");
    Ok(())
}

/// Writes a model of many nodes and one of large weights, and each with a name changed.
fn make(folder: &Path, smoke: bool) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let count = if smoke { 1_000 } else { 100_000 };
    let tensors = if smoke { 2 } else { 256 };
    let weights = vec![0x3c; if smoke { 4096 } else { 4 << 20 }];
    for (prefix, broken) in [("", false), ("broken-", true)] {
        let write = |name: &str, body: &dyn Fn(&mut Encoder<'_>)| -> io::Result<()> {
            let mut file = BufWriter::new(File::create(folder.join(format!("{prefix}{name}")))?);
            encode_to_write(&Wrapped(body), &mut file)?;
            file.flush()
        };
        write("nodes.onnx", &|out| nodes(out, count, broken))?;
        write("weights.onnx", &|out| {
            weighty(out, tensors, &weights, broken)
        })?;
    }
    Ok(())
}

/// A model around whatever a function writes into its graph.
struct Wrapped<'a>(&'a dyn Fn(&mut Encoder<'_>));

impl Encode for Wrapped<'_> {
    fn encode(&self, out: &mut Encoder<'_>) {
        out.put(model::IrVersion, 10);
        out.put(model::ProducerName, b"check_bench");
        out.message(model::Graph, |out| (self.0)(out));
        out.message(model::OpsetImport, |out| {
            out.put(operator_set_id::Domain, b"");
            out.put(operator_set_id::Version, 21);
        });
    }
}

/// An operator, its number of inputs, and its attributes: floats and integers.
type Kind = (
    &'static str,
    usize,
    &'static [(&'static str, f32)],
    &'static [(&'static str, i64)],
);

/// Nodes as an exporter writes them: each reads its predecessor, and those with two inputs an older value.
fn nodes(out: &mut Encoder<'_>, count: usize, broken: bool) {
    const KINDS: [Kind; 6] = [
        ("Gemm", 2, &[("alpha", 0.5)], &[("transB", 1)]),
        ("Concat", 2, &[], &[("axis", 1)]),
        ("Softmax", 1, &[], &[("axis", -1)]),
        ("Add", 2, &[], &[]),
        ("LeakyRelu", 1, &[("alpha", 0.125)], &[]),
        ("Split", 1, &[], &[("axis", 1), ("num_outputs", 1)]),
    ];
    let kind = |index: usize| KINDS[index % KINDS.len()];
    let name = |index: usize| format!("/blk.{}/{}_{index}", index / 1000, kind(index).0);
    let value = |index: usize| format!("/blk.{}/v_{index}", index / 1000);
    for index in 1..=count {
        let (operator, inputs, floats, ints) = kind(index);
        out.message(graph::Node, |out| {
            let source = match broken && index == count {
                true => "nothing".to_string(),
                false => value(index - 1),
            };
            out.put(node::Input, source.as_bytes());
            if inputs == 2 {
                out.put(node::Input, value(index * 7 / 9).as_bytes());
            }
            out.put(node::Output, value(index).as_bytes());
            out.put(node::Name, name(index).as_bytes());
            out.put(node::OpType, operator.as_bytes());
            for (name, value) in floats {
                out.message(node::Attribute, |out| {
                    out.put(attribute::Name, name.as_bytes());
                    out.put(attribute::F, *value);
                    out.put(attribute::Type, AttributeType::FLOAT);
                });
            }
            for (name, value) in ints {
                out.message(node::Attribute, |out| {
                    out.put(attribute::Name, name.as_bytes());
                    out.put(attribute::I, *value);
                    out.put(attribute::Type, AttributeType::INT);
                });
            }
        });
    }
    out.put(graph::Name, b"main_graph");
    out.message(graph::Input, |out| matrix(out, &value(0)));
    out.message(graph::Output, |out| matrix(out, &value(count)));
}

/// A chain that adds large weights.
fn weighty(out: &mut Encoder<'_>, tensors: usize, weights: &[u8], broken: bool) {
    let value = |index: usize| format!("v_{index}");
    for index in 1..=tensors {
        out.message(graph::Node, |out| {
            out.put(node::Input, value(index - 1).as_bytes());
            out.put(node::Input, format!("layer.{index}.weight").as_bytes());
            out.put(node::Output, value(index).as_bytes());
            out.put(node::OpType, b"Add");
        });
    }
    out.put(graph::Name, b"main_graph");
    for index in 1..=tensors {
        let extra = i64::from(broken && index == tensors);
        out.message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[weights.len() as i64 / 4 + extra]);
            out.put(tensor::DataType, DataType::FLOAT.0);
            out.put(tensor::Name, format!("layer.{index}.weight").as_bytes());
            out.put(tensor::RawData, weights);
        });
    }
    out.message(graph::Input, |out| matrix(out, &value(0)));
    out.message(graph::Output, |out| matrix(out, &value(tensors)));
}

/// `float[batch, 768] name`
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

/// The most memory that the process ever had, as the kernel counts it.
fn rss_peak_mb() -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .ok_or("/proc/self/status has no VmHWM")?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}
