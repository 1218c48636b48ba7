//! Our side of `cargo xtask bench check`, `cargo xtask bench infer` and `cargo xtask bench
//! commands`: makes the models, and checks one, infers its shapes or runs a command a given number
//! of times.
//!
//! Prints one line of JSON: the times of all repetitions in milliseconds, whether the model is
//! valid, and the peak memory of the process before and after.

use clap::{Parser, Subcommand};
use sardonyx::tool::ModelExt;
use sardonyx::tool::infer::{Naming, Style};
use sardonyx::value::Buffer;
use sardonyx::{Model, check, convert, edit, infer};
use sardonyx_proto::{
    AttributeType, DataType, Encoder, attribute, function, graph, model, node, operator_set_id,
    tensor,
};
use sardonyx_tests::bench::{rss_own_mb, rss_peak_mb, write_model, write_model_of, write_ports};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::hint::black_box;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: sardonyx::run::LargePages = sardonyx::run::LargePages;

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
        directory: PathBuf,
        /// Make small models.
        #[arg(long)]
        smoke: bool,
    },
    /// Check a model.
    Check {
        model: PathBuf,
        /// Number of repetitions.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        repeat: u32,
    },
    /// Convert a model to version 21, or inline its calls.
    Convert {
        model: PathBuf,
        #[arg(long)]
        job: ConvertJob,
        /// Number of repetitions.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        repeat: u32,
    },
    /// Infer the shapes in a model.
    Infer(Inference),
    /// Only open a model.
    Open { model: PathBuf },
    /// Run a program, from its start to its exit.
    Process(Process),
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ConvertJob {
    Convert,
    Inline,
}

#[derive(clap::Args)]
struct Process {
    /// Number of repetitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// File for the output.
    #[arg(long)]
    answer: PathBuf,
    /// File that the program may write, and that does not exist before.
    #[arg(long)]
    output: PathBuf,
    /// Program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

#[derive(clap::Args)]
struct Inference {
    model: PathBuf,
    /// Number of repetitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Check like the onnx package.
    #[arg(long)]
    like_onnx: bool,
    /// Include reading the file in the time.
    #[arg(long)]
    map: bool,
    /// Return the result as slices, with weights in their place, instead of one vector.
    #[arg(long)]
    slices: bool,
    /// Write the result to this file at the end.
    #[arg(long)]
    output: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().job {
        Job::Make { directory, smoke } => make(&directory, smoke).map_err(Into::into),
        Job::Check { model, repeat } => check_model(&model, repeat),
        Job::Convert { model, job, repeat } => job.run(&model, repeat),
        Job::Infer(inference) => inference.run(),
        Job::Open { model } => Model::open(model).map(drop).map_err(Into::into),
        Job::Process(process) => process.run(),
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
    let options = check::CheckOptions::new();
    let mut errors = 0;
    let mut answer = measure(repeat, || {
        let model = Model::from_bytes(bytes.clone())?;
        errors = model.check(&options).errors;
        Ok(())
    })?;
    answer["found"] = json!(if errors == 0 { "valid" } else { "invalid" });
    println!("{answer}");
    Ok(())
}

impl ConvertJob {
    fn run(self, path: &Path, repeat: u32) -> Result {
        let bytes = Buffer::from_vec(fs::read(path)?);
        let to_21 = convert::ConvertOptions::new(convert::Target::new().opset("", 21));
        let mut result = Vec::new();
        let mut answer = measure(repeat, || {
            let model = Model::from_bytes(bytes.clone())?;
            let made = match self {
                ConvertJob::Convert => model.convert(&to_21).map_err(|error| error.to_string())?.0,
                ConvertJob::Inline => {
                    let mut model = model;
                    model.inline(&edit::InlineOptions::new()).map_err(|why| why.to_string())?;
                    model
                }
            };
            result = black_box(made.to_bytes());
            Ok(())
        })?;
        answer["found"] = json!(describe(&sardonyx_model::Model::read(Buffer::from_vec(result))?));
        println!("{answer}");
        Ok(())
    }
}

/// Counts the nodes by operator and the attributes, and adds the version.
fn describe(model: &sardonyx_model::Model) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut attributes = 0;
    for node in model.main_graph().into_iter().flat_map(|main| &main.nodes) {
        *counts.entry(model.display(model.node(*node).op_type).into_owned()).or_default() += 1;
        attributes += model.attributes(*node).len();
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let version = model.opset("").unwrap_or(0);
    format!("{}; {attributes} attributes; version {version}", counts.join(", "))
}

impl Process {
    fn run(&self) -> Result {
        let [program, arguments @ ..] = self.program.as_slice() else {
            return Err("give a program after --".into());
        };
        let mut times = Vec::new();
        for _ in 0..self.repeat {
            if self.output.exists() {
                fs::remove_file(&self.output)?;
            }
            let mut command = Command::new(program);
            command.args(arguments);
            // Messages of the program are printed only if it fails.
            command.stdout(fs::File::create(&self.answer)?);
            command.stderr(Stdio::piped());
            let start = Instant::now();
            let output = command.spawn()?.wait_with_output()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            if !output.status.success() {
                let stderr = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{}: {}: {stderr}", program.display(), output.status).into());
            }
        }
        println!("{}", json!({ "ms": times }));
        Ok(())
    }
}

/// Measures the times of all repetitions of a job and the peak memory of the process.
fn measure(repeat: u32, mut job: impl FnMut() -> Result) -> Result<Value> {
    let rss_before_mb = rss_peak_mb()?;
    let mut times = Vec::new();
    for _ in 0..repeat {
        let start = Instant::now();
        job()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(json!({
        "ms": times,
        "rss_before_mb": rss_before_mb,
        "rss_peak_mb": rss_peak_mb()?,
    }))
}

/// Phases of a job: the time of each in milliseconds, and the peak memory after one.
struct Phases {
    start: Instant,
    times: Value,
    most_mb: f64,
}

impl Phases {
    fn begin() -> Phases {
        Phases { start: Instant::now(), times: json!({}), most_mb: 0.0 }
    }

    fn end(&mut self, name: &str) -> Result {
        self.times[name] = json!(self.start.elapsed().as_secs_f64() * 1e3);
        self.most_mb = self.most_mb.max(rss_own_mb()?);
        self.start = Instant::now();
        Ok(())
    }
}

impl Inference {
    fn run(&self) -> Result {
        let bytes = if self.map { None } else { Some(Buffer::from_vec(fs::read(&self.model)?)) };
        let open = || match &bytes {
            Some(bytes) => Model::from_bytes(bytes.clone()),
            None => Model::open(&self.model),
        };
        let mut options = infer::InferOptions::new();
        if self.like_onnx {
            let style = Style::Reference { data_prop: false };
            options = options.style(style).naming(Naming::Reference);
        }
        let typed = |phases: &mut Phases| -> Result<Model> {
            let mut model = open()?;
            phases.end("read")?;
            let found = model.infer(&options);
            phases.end("infer")?;
            model.add_types(&found);
            phases.end("annotate")?;
            Ok(model)
        };
        let (mut times, mut most_mb) = (Value::Null, 0f64);
        let before_mb = rss_own_mb()?;
        let mut answer = measure(self.repeat, || {
            let mut phases = Phases::begin();
            let model = typed(&mut phases)?;
            if self.slices {
                let slices = black_box(model.encode());
                phases.end("write")?;
                drop(slices);
            } else {
                let bytes = black_box(model.to_bytes());
                phases.end("write")?;
                drop(bytes);
            }
            drop(model);
            most_mb = most_mb.max(phases.most_mb);
            phases.end("drop")?;
            times = phases.times;
            Ok(())
        })?;
        answer["phases"] = times;
        if self.map {
            // Pages of the mapped file hold the bytes of the model, and their number depends on the
            // pieces in which the kernel maps them.
            answer["rss_before_mb"] = json!(before_mb);
            answer["rss_peak_mb"] = json!(most_mb);
        }
        if let Some(path) = &self.output {
            let model = typed(&mut Phases::begin())?;
            model.write_to(&mut fs::File::create(path)?)?;
        }
        println!("{answer}");
        Ok(())
    }
}

/// Size of the last axis of the models' inputs.
const WIDTH: usize = 768;

/// Writes models of many nodes and one of large weights, and a broken version of each with one name
/// changed.
fn make(directory: &Path, smoke: bool) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let count = if smoke { 1_000 } else { 100_000 };
    let tensors = if smoke { 2 } else { 256 };
    // Rows as wide as the graph's input.
    let weights = vec![0x3c; if smoke { WIDTH } else { 1365 * WIDTH } * size_of::<f32>()];
    for (prefix, broken) in [("", false), ("broken-", true)] {
        let file = |name: &str| directory.join(format!("{prefix}{name}"));
        write_model(&file("nodes.onnx"), "check_bench", |out| {
            write_nodes(out, count, &ANY_KINDS, |index| index * 7 / 9, broken)
        })?;
        // The last node of each group is not a mean.
        let group = FITTING_KINDS.len();
        write_model(&file("shapes.onnx"), "check_bench", |out| {
            let older = |index: usize| index * 7 / 9 / group * group;
            write_nodes(out, count / group * group, &FITTING_KINDS, older, broken)
        })?;
        write_model(&file("weights.onnx"), "check_bench", |out| {
            write_weights(out, tensors, &weights, broken)
        })?;
    }
    let count = if smoke { 400 } else { 40_000 };
    for (name, count) in [("opset13.onnx", count), ("opset13-long.onnx", 10 * count)] {
        let kinds = FITTING_KINDS.map(|(name, inputs, floats, ints)| match name {
            // Before version 18 the number of outputs has no attribute.
            "Split" => (name, inputs, floats, &ints[..1]),
            _ => (name, inputs, floats, ints),
        });
        let count = count / kinds.len() * kinds.len();
        let older = |index: usize| index * 7 / 9 / kinds.len() * kinds.len();
        let body = |out: &mut Encoder<'_>| write_nodes(out, count, &kinds, older, false);
        write_model_of(&directory.join(name), "check_bench", 13, body, |_| {})?;
    }
    let count = if smoke { 40 } else { 4_000 };
    let body = |out: &mut Encoder<'_>| write_calls(out, count);
    write_model_of(&directory.join("calls.onnx"), "check_bench", 21, body, write_function)
}

/// Writes calls of a function, each of which reads the result of the previous one.
fn write_calls(out: &mut Encoder<'_>, count: usize) {
    let value = |index: usize| format!("v_{index}");
    for index in 1..=count {
        out.put_message(graph::Node, |out| {
            out.put(node::Input, value(index - 1).as_bytes());
            out.put(node::Output, value(index).as_bytes());
            out.put(node::Name, format!("call_{index}").as_bytes());
            out.put(node::OpType, b"TenNodes");
            out.put(node::Domain, b"local");
        });
    }
    out.put(graph::Name, b"main_graph");
    write_ports(out, &value(0), &value(count));
}

/// Writes the function that is called: ten nodes in a chain.
fn write_function(out: &mut Encoder<'_>) {
    out.put_message(model::OpsetImport, |out| {
        out.put(operator_set_id::Domain, b"local");
        out.put(operator_set_id::Version, 1);
    });
    out.put_message(model::Functions, |out| {
        let value = |index: usize| format!("x_{index}");
        out.put(function::Name, b"TenNodes");
        out.put(function::Domain, b"local");
        out.put(function::Input, value(0).as_bytes());
        out.put(function::Output, value(10).as_bytes());
        for index in 1..=10 {
            out.put_message(function::Node, |out| {
                out.put(node::Input, value(index - 1).as_bytes());
                out.put(node::Output, value(index).as_bytes());
                out.put(node::OpType, if index % 2 == 0 { b"Sigmoid" } else { b"LeakyRelu" });
                if index % 2 == 1 {
                    out.put_message(node::Attribute, |out| {
                        out.put(attribute::Name, b"alpha");
                        out.put(attribute::F, 0.125);
                        out.put(attribute::Type, AttributeType::FLOAT);
                    });
                }
            });
        }
        out.put_message(function::OpsetImport, |out| {
            out.put(operator_set_id::Domain, b"");
            out.put(operator_set_id::Version, 21);
        });
    });
}

/// Operator, number of its inputs, and its attributes: floats and integers.
type Kind = (&'static str, usize, &'static [(&'static str, f32)], &'static [(&'static str, i64)]);

/// Operators whose sizes do not fit, which only inference would notice.
const ANY_KINDS: [Kind; 6] = [
    ("Gemm", 2, &[("alpha", 0.5)], &[("transB", 1)]),
    ("Concat", 2, &[], &[("axis", 1)]),
    ("Softmax", 1, &[], &[("axis", -1)]),
    ("Add", 2, &[], &[]),
    ("LeakyRelu", 1, &[("alpha", 0.125)], &[]),
    ("Split", 1, &[], &[("axis", 1), ("num_outputs", 1)]),
];

/// Operators whose sizes fit: a mean of all elements is added to a value of the size of the graph's
/// input, which all other values have too.
const FITTING_KINDS: [Kind; 6] = [
    ("Split", 1, &[], &[("axis", 1), ("num_outputs", 1)]),
    ("ReduceMean", 1, &[], &[("keepdims", 1)]),
    ("Add", 2, &[], &[]),
    ("Softmax", 1, &[], &[("axis", -1)]),
    ("Mul", 2, &[], &[]),
    ("LeakyRelu", 1, &[("alpha", 0.125)], &[]),
];

/// Writes nodes as an exporter does: each reads its predecessor, and those with two inputs an
/// `older` value.
fn write_nodes(
    out: &mut Encoder<'_>,
    count: usize,
    kinds: &[Kind],
    older: impl Fn(usize) -> usize,
    broken: bool,
) {
    let kind = |index: usize| kinds[index % kinds.len()];
    let name = |index: usize| format!("/blk.{}/{}_{index}", index / 1000, kind(index).0);
    let value = |index: usize| format!("/blk.{}/v_{index}", index / 1000);
    for index in 1..=count {
        let (operator, inputs, floats, ints) = kind(index);
        out.put_message(graph::Node, |out| {
            let source =
                if broken && index == count { "nothing".to_string() } else { value(index - 1) };
            out.put(node::Input, source.as_bytes());
            if inputs == 2 {
                out.put(node::Input, value(older(index)).as_bytes());
            }
            out.put(node::Output, value(index).as_bytes());
            out.put(node::Name, name(index).as_bytes());
            out.put(node::OpType, operator.as_bytes());
            for (name, value) in floats {
                out.put_message(node::Attribute, |out| {
                    out.put(attribute::Name, name.as_bytes());
                    out.put(attribute::F, *value);
                    out.put(attribute::Type, AttributeType::FLOAT);
                });
            }
            for (name, value) in ints {
                out.put_message(node::Attribute, |out| {
                    out.put(attribute::Name, name.as_bytes());
                    out.put(attribute::I, *value);
                    out.put(attribute::Type, AttributeType::INT);
                });
            }
        });
    }
    out.put(graph::Name, b"main_graph");
    write_ports(out, &value(0), &value(count));
}

/// Writes a chain that adds large weights.
fn write_weights<'a>(out: &mut Encoder<'a>, tensors: usize, weights: &'a [u8], broken: bool) {
    let value = |index: usize| format!("v_{index}");
    for index in 1..=tensors {
        out.put_message(graph::Node, |out| {
            out.put(node::Input, value(index - 1).as_bytes());
            out.put(node::Input, format!("layer.{index}.weight").as_bytes());
            out.put(node::Output, value(index).as_bytes());
            out.put(node::OpType, b"Add");
        });
    }
    out.put(graph::Name, b"main_graph");
    for index in 1..=tensors {
        let rows = weights.len() / size_of::<f32>() / WIDTH;
        let extra = usize::from(broken && index == tensors);
        out.put_message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[(rows + extra) as i64, WIDTH as i64]);
            out.put(tensor::DataType, DataType::FLOAT.0);
            out.put(tensor::Name, format!("layer.{index}.weight").as_bytes());
            out.put_payload(tensor::RawData, weights);
        });
    }
    write_ports(out, &value(0), &value(tensors));
}
