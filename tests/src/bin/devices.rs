//! Checks that annotations do not change results: runs backend cases with random annotations for
//! several devices and compares them with plain runs.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use sardonyx::device::{DeviceOptions, DeviceSession};
use sardonyx::tool::shard::Plan;
use sardonyx::value::Tolerance;
use sardonyx::{DataType, ErrorKind, Model, Session, Tensor, Type, Value, infer};
use sardonyx_shard::Step;
use sardonyx_tests::annotate::{self, NamedSize, Random};
use sardonyx_tests::cases::{self, Case};
use sardonyx_tests::run_case;

#[derive(Parser)]
struct Arguments {
    /// Directory of cases.
    cases: PathBuf,
    /// Run only the cases whose kind/name contains this text.
    #[arg(long, default_value = "")]
    filter: String,
    /// Number of runs.
    #[arg(long, default_value_t = 500)]
    runs: u64,
    /// Number of the first run; it decides everything random in the run.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Print the model and the plan of each run.
    #[arg(long)]
    show: bool,
}

/// Operators that move elements, or compute each from a few others without a sum. In parts or
/// compiled for other sizes, they give the same bits.
const EXACT: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "Cast",
    "CastLike",
    "Ceil",
    "Clip",
    "Compress",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "DepthToSpace",
    "Div",
    "Equal",
    "Expand",
    "EyeLike",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Greater",
    "GreaterOrEqual",
    "Hardmax",
    "Identity",
    "If",
    "IsInf",
    "IsNaN",
    "Less",
    "LessOrEqual",
    "Loop",
    "Max",
    "MaxPool",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "NonZero",
    "Not",
    "OneHot",
    "Or",
    "PRelu",
    "Pad",
    "Range",
    "Reciprocal",
    "ReduceMax",
    "ReduceMin",
    "Relu",
    "Reshape",
    "ReverseSequence",
    "Round",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Shape",
    "Sign",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Where",
    "Xor",
];

/// Outcomes of the runs.
#[derive(Debug, Default)]
struct Counts {
    runs: usize,
    /// Runs in which values were moved.
    moved: usize,
    /// Runs in which nodes were computed in parts.
    parts: usize,
    /// Runs with partial results.
    partial: usize,
    /// Runs that the model refuses without devices too.
    refused: usize,
    /// Specifications that were not honored.
    not_honored: usize,
    same_bits: usize,
    /// Runs whose plan was made for other sizes.
    other_sizes: usize,
    failures: BTreeMap<u64, String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("devices: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let mut cases = cases::find(&arguments.cases)?;
    cases.retain(|case| case.id.contains(&arguments.filter));
    if cases.is_empty() {
        return Err("no case matches the filter".into());
    }
    let counts = Mutex::new(Counts::default());
    let next = AtomicU64::new(arguments.first);
    let end = arguments.first + arguments.runs;
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= end {
                        return;
                    }
                    run_one(number, &cases, arguments, &counts);
                }
            });
        }
    });
    let counts = counts.into_inner()?;
    for (number, why) in &counts.failures {
        println!("run {number}: {why}");
    }
    println!(
        "{} runs of {} cases: {} moved values, {} computed nodes in parts, \
         {} combined partial results, {} had the bits of the plain run; \
         {} by a plan of other sizes; {} specifications were not honored, \
         {} runs are refused without devices too",
        counts.runs,
        cases.len(),
        counts.moved,
        counts.parts,
        counts.partial,
        counts.same_bits,
        counts.other_sizes,
        counts.not_honored,
        counts.refused
    );
    println!(
        "devices: {} passed, {} failed",
        counts.runs - counts.failures.len(),
        counts.failures.len()
    );
    Ok(counts.failures.is_empty())
}

/// Returns the tolerance for partial results, each of which is rounded once more: four half units
/// in the last place. It exceeds the tolerance of cases for narrow floats.
fn rounding(value: &Value) -> f64 {
    match value.as_tensor().map(Tensor::data_type) {
        Some(DataType::Float16) => 4.0 / 2048.0,
        Some(DataType::Bfloat16) => 4.0 / 256.0,
        _ => 0.0,
    }
}

/// Does one run and counts its outcome. The number decides everything random.
fn run_one(number: u64, cases: &[Case], arguments: &Arguments, counts: &Mutex<Counts>) {
    let mut random = Random::new(number);
    let case = &cases[random.below(cases.len())];
    let outcome = run_case::catch_panic(|| {
        compare(case, &mut random, arguments, counts)
            .map_err(|why| run_case::wrong(format!("{}: {why}", case.id)))
    });
    let mut counts = counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    counts.runs += 1;
    if let Err(failure) = outcome {
        counts.failures.insert(number, failure.detail);
    }
}

/// Sessions of an annotated model with and without devices.
#[derive(Clone, Copy)]
struct Compared<'a> {
    model: &'a Model,
    plain: &'a Session,
    session: &'a DeviceSession,
    /// Sizes of the inputs that have names.
    named: &'a [NamedSize],
}

fn compare(
    case: &Case,
    random: &mut Random,
    arguments: &Arguments,
    counts: &Mutex<Counts>,
) -> Result<(), String> {
    let to_text = |error: &dyn std::fmt::Display| error.to_string();
    let model = Model::open(case.model()).map_err(|error| to_text(&error))?;
    let tolerance = case.tolerance().map_err(|error| to_text(&error))?;
    let mut annotated =
        annotate::annotate_randomly(&model, random).map_err(|error| to_text(&error))?;
    let mut named = Vec::new();
    if random.below(2) == 0 {
        (annotated, named) =
            annotate::name_sizes(&annotated, random).map_err(|error| to_text(&error))?;
    }
    let plain = if named.is_empty() { &model } else { &annotated };
    let plain = Session::builder(plain).threads(1).seed(7).build();
    let Ok(plain) = plain else {
        counts.lock().map_err(|_| "poisoned")?.refused += 1;
        return Ok(());
    };
    let Some(data) = case.data_sets().map_err(|error| to_text(&error))?.into_iter().next() else {
        return Ok(());
    };
    let inputs = run_case::read_inputs(&plain, &data).map_err(|failure| failure.detail)?;
    if arguments.show {
        println!("{}", annotated.to_text());
    }
    // Long enough for a machine that is busy with other work too.
    let options = DeviceOptions::new().deadline(Duration::from_secs(30));
    let session = Session::builder(&annotated).threads(1).seed(7).devices(options);
    let session = session.map_err(|error| to_text(&error))?;
    if arguments.show {
        let types = inputs.iter().filter_map(|(name, value)| match value {
            Value::Tensor(tensor) => {
                Some((*name, Type::tensor(tensor.data_type(), tensor.dims().iter().copied())))
            }
            _ => None,
        });
        let plan = session.plan(&types.collect::<Vec<_>>()).map_err(|error| to_text(&error))?;
        println!("{}", plan.text());
    }
    let compared = Compared { model: &annotated, plain: &plain, session: &session, named: &named };
    let first_plan = run_doubled(&compared, &inputs, random, tolerance)?;
    let found = session.run(inputs.clone(), &Default::default());
    let wanted = plain.run(inputs.clone(), &Default::default());
    let (wanted, found) = match (wanted, found) {
        (Ok(wanted), Ok(found)) => (wanted, found),
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::Internal => {
            return Err(error.to_string());
        }
        (Err(_), Err(_)) => {
            counts.lock().map_err(|_| "poisoned")?.refused += 1;
            return Ok(());
        }
        (Err(error), Ok(_)) => return Err(format!("runs, and without devices: {error}")),
        (Ok(_), Err(error)) => return Err(error.to_string()),
    };
    let plan = session.last_plan().ok_or("the session has made no plan")?;
    let again =
        session.run(inputs.clone(), &Default::default()).map_err(|error| to_text(&error))?;
    let plain_again = plain.run(inputs, &Default::default()).map_err(|error| to_text(&error))?;
    let has_partial = plan.facts().partial > 0;
    let mut is_same = true;
    for ((name, wanted), (_, found)) in wanted.iter().zip(found.iter()) {
        is_same &= bits(wanted) == bits(found);
        let rtol = tolerance.rtol.max(if has_partial { rounding(wanted) } else { 0.0 });
        let tolerance = Tolerance { rtol, ..tolerance };
        found.compare(wanted, tolerance).map_err(|why| format!("{name}: {why}"))?;
    }
    // Nodes that draw random numbers draw different ones in the second run.
    for ((name, first), (_, second)) in found.iter().zip(again.iter()) {
        let is_random = wanted.get(name).map(bits) != plain_again.get(name).map(bits);
        if !is_random && bits(first) != bits(second) {
            return Err(format!("{name}: two runs give different bits"));
        }
    }
    if wanted.len() != found.len() {
        return Err(format!("{} outputs, not {}", found.len(), wanted.len()));
    }
    let facts = plan.facts();
    let is_exact = plan.steps().iter().all(|step| match step {
        Step::Node(computed) => {
            let model = plan.model();
            let op = model.display(model.node(computed.node).op_type);
            EXACT.contains(&&*op)
        }
        Step::Move(_) => true,
    });
    if !is_same && is_exact {
        return Err("the bits differ from those of the plain run, and nothing was rounded".into());
    }
    let mut counts = counts.lock().map_err(|_| "poisoned")?;
    counts.other_sizes += usize::from(first_plan.is_some_and(|first| Arc::ptr_eq(&first, &plan)));
    counts.moved += usize::from(facts.moves > 0);
    counts.parts += usize::from(facts.in_parts > 0);
    counts.partial += usize::from(facts.partial > 0);
    counts.not_honored += plan.not_honored().len();
    counts.same_bits += usize::from(is_same);
    Ok(())
}

/// Runs the model with one of its named sizes doubled, on devices and without them. Returns the
/// plan if both runs succeed.
fn run_doubled(
    compared: &Compared<'_>,
    inputs: &[(&str, Value)],
    random: &mut Random,
    tolerance: Tolerance,
) -> Result<Option<Arc<Plan>>, String> {
    let Compared { model, plain, session, named } = *compared;
    let Some(chosen) = named.get(random.below(named.len())) else { return Ok(None) };
    let mut inputs = inputs.to_vec();
    for size in named.iter().filter(|size| size.name == chosen.name) {
        for (_, value) in inputs.iter_mut().filter(|(name, _)| *name == size.input) {
            let tensor = value.as_tensor().and_then(|tensor| annotate::double(tensor, size.axis));
            let Some(tensor) = tensor else { return Ok(None) };
            *value = Value::Tensor(tensor);
        }
    }
    let (wanted, found) = match (
        plain.run(inputs.clone(), &Default::default()),
        session.run(inputs.clone(), &Default::default()),
    ) {
        (Ok(wanted), Ok(found)) => (wanted, found),
        (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::Internal => {
            return Err(format!("in other sizes: {error}"));
        }
        (Err(_), Err(_)) => return Ok(None),
        (Err(error), Ok(_)) => {
            return Err(format!("runs in other sizes, and without devices: {error}"));
        }
        // A plain run may ignore sizes of losses that contradict each other.
        (Ok(_), Err(error))
            if error.kind() == ErrorKind::Input && contradicts(model, &inputs, named) =>
        {
            return Ok(None);
        }
        (Ok(_), Err(error)) => return Err(format!("in other sizes: {error}")),
    };
    let plan = session.last_plan().ok_or("the session has made no plan")?;
    for ((name, wanted), (_, found)) in wanted.iter().zip(found.iter()) {
        let rounding = if plan.facts().partial > 0 { rounding(wanted) } else { 0.0 };
        let tolerance = Tolerance { rtol: tolerance.rtol.max(rounding), ..tolerance };
        let same = found.compare(wanted, tolerance);
        same.map_err(|why| format!("{name}, in other sizes: {why}"))?;
    }
    Ok(Some(plan))
}

/// Returns whether inference finds contradictions in a model for the sizes of some inputs.
fn contradicts(model: &Model, inputs: &[(&str, Value)], named: &[NamedSize]) -> bool {
    let mut options = infer::InferOptions::new();
    for NamedSize { input, axis, name } in named {
        let given = inputs.iter().find(|(other, _)| other == input);
        let size = given.and_then(|(_, value)| value.as_tensor()?.dims().get(*axis).copied());
        if let Some(size) = size.and_then(|size| i64::try_from(size).ok()) {
            options = options.set(name, size);
        }
    }
    model.infer(&options).problems(model, |_| true).next().is_some()
}

/// Returns the type, sizes and bytes of a tensor, or the text of another value.
fn bits(value: &Value) -> (String, Vec<u8>) {
    match value {
        Value::Tensor(tensor) => {
            let ty = format!("{}{:?}", tensor.data_type(), tensor.dims());
            (ty, tensor.bytes().to_vec())
        }
        other => (format!("{other:?}"), Vec::new()),
    }
}
