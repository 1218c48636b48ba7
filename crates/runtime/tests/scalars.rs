//! Tests of loops over scalars: functions as instructions over registers, compared with the kernels
//! of tensors.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::both_ways;
use crate::both_ways::Numbers;
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{
    Optimization, Options, RunError, RunOptions, Session, StepEvent, StopFlag, StopReason,
};
use sardonyx_tensor::{Buffer, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

/// Types of registers: names, numbers, and initial elements.
const TYPES: [(&str, i32, &[&str]); 7] = [
    ("float", 1, &["1.5", "-2.0", "0.1", "-0.0", "3e38"]),
    ("double", 11, &["1.5", "-2.0", "0.1", "1e300"]),
    ("int32", 6, &["3", "-7", "2147483647", "0"]),
    ("int64", 7, &["5", "-1", "9223372036854775807", "0"]),
    ("uint8", 2, &["200", "3", "0"]),
    ("uint64", 13, &["18446744073709551615", "2"]),
    ("bool", 9, &["1", "0"]),
];

const BOOL: usize = 6;

/// Value in a body: its name and the index of its type.
type KnownScalar = (String, usize);

/// Adds a random node on known values.
fn node(numbers: &mut Numbers, known: &mut Vec<KnownScalar>, text: &mut String) {
    let name = format!("v{}", known.len());
    let (a, ty) = known[numbers.number_below(known.len())].clone();
    let like: Vec<&KnownScalar> = known.iter().filter(|(_, other)| *other == ty).collect();
    let b = &like[numbers.number_below(like.len())].0;
    let is_bool = ty == BOOL;
    let is_signed = !is_bool && !TYPES[ty].0.starts_with('u');
    let pick =
        |numbers: &mut Numbers, from: &[&str]| from[numbers.number_below(from.len())].to_string();
    let (made, of) = match numbers.number_below(8) {
        0 => {
            let to = numbers.number_below(TYPES.len());
            // The conversion of a float outside of the range of an integer type is undefined.
            let is_float = |ty: usize| ty < 2;
            let to = if is_float(ty) && !is_float(to) && to != BOOL { ty } else { to };
            (format!("Cast <to = {}> ({a})", TYPES[to].1), to)
        }
        1 if is_bool => (format!("Not ({a})"), ty),
        2 | 3 if is_bool => {
            let op = pick(numbers, &["And", "Or", "Xor", "Equal"]);
            (format!("{op} ({a}, {b})"), ty)
        }
        1 if is_signed => {
            let op = pick(numbers, &["Abs", "Neg", "Sign"]);
            (format!("{op} ({a})"), ty)
        }
        2 | 3 => {
            let op = pick(numbers, &["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]);
            (format!("{op} ({a}, {b})"), BOOL)
        }
        _ if is_bool => (format!("Identity ({a})"), ty),
        4 if ty >= 2 => (format!("Mod ({a}, {b})"), ty),
        4 => (format!("Mod <fmod = 1> ({a}, {b})"), ty),
        _ => {
            let op = pick(numbers, &["Add", "Sub", "Mul", "Div", "Max", "Min"]);
            (format!("{op} ({a}, {b})"), ty)
        }
    };
    text.push_str(&format!("    {name} = {made}\n"));
    known.push((name, of));
}

/// Writes a loop that carries a value of each type and stacks some results.
fn looping(seed: u64) -> String {
    let numbers = &mut Numbers::new(seed);
    let (mut before, mut body) = (String::new(), String::new());
    let mut known: Vec<KnownScalar> = vec![("i".to_string(), 3), ("c".to_string(), BOOL)];
    for (index, (name, _, elements)) in TYPES.iter().enumerate() {
        let element = elements[numbers.number_below(elements.len())];
        before += &format!("  s{index} = Constant <value = {name} {{{element}}}> ()\n");
        known.push((format!("x{index}"), index));
        let outer = elements[numbers.number_below(elements.len())];
        before += &format!("  o{index} = Constant <value = {name} {{{outer}}}> ()\n");
        known.push((format!("o{index}"), index));
    }
    for _ in 0..2 + numbers.number_below(20) {
        node(numbers, &mut known, &mut body);
    }
    // A value of each type is carried, and stacked as well.
    let mut last = |ty: usize| {
        let like: Vec<&KnownScalar> = known.iter().filter(|(_, other)| *other == ty).collect();
        like[numbers.number_below(like.len())].0.clone()
    };
    let (mut finals, mut results) = (String::new(), String::new());
    for index in 0..TYPES.len() {
        finals += &format!("    y{index} = Identity ({})\n", last(index));
        results += &format!("    z{index} = Identity ({})\n", last(index));
    }
    let go = last(BOOL);
    let each = |form: &dyn Fn(usize, &str) -> String| {
        let all: Vec<String> =
            TYPES.iter().enumerate().map(|(index, (name, ..))| form(index, name)).collect();
        all.join(", ")
    };
    format!(
        "g (int64 n) => ({}, {})\n{{\n{before}  {}, {} = Loop (n, , {}) <\n   body = iteration (int64 i, bool c, \
         {})\n    \
         => (bool go, {}, {}) {{\n{body}{finals}{results}    t = Less (i, o3)\n    go = Or (t, {go})\n   }}>\n}}",
        each(&|index, name| format!("{name} f{index}")),
        each(&|index, name| format!("{name}[T] r{index}")),
        each(&|index, _| format!("f{index}")),
        each(&|index, _| format!("r{index}")),
        each(&|index, _| format!("s{index}")),
        each(&|index, name| format!("{name} x{index}")),
        each(&|index, name| format!("{name} y{index}")),
        each(&|index, name| format!("{name} z{index}")),
    )
}

fn session(graph: &str, optimization: Optimization) -> Session {
    both_ways::compile(&both_ways::complete(graph), optimization, 1)
}

fn run(session: &Session, iterations: i64) -> Vec<(String, Tensor)> {
    let outputs = session.run(vec![("n".to_string(), Value::Tensor(Tensor::scalar(iterations)))]);
    let outputs = outputs.unwrap().into_iter();
    outputs.map(|(name, value)| (name, value.into_tensor().unwrap())).collect()
}

/// Whether a step of a loop is described as running in registers.
fn in_registers(session: &Session) -> bool {
    session.steps().iter().any(|step| step.kernel == "iterations in registers")
}

/// Whether bits are equal, except for NaN.
fn same(a: &Tensor, b: &Tensor) -> bool {
    a.bit_eq(b) || a.compare(b, sardonyx_tensor::Tolerance::EXACT).is_ok()
}

#[test]
fn registers_give_what_kernels_of_tensors_give() {
    let mut many = 0;
    for seed in 0..300 {
        let graph = looping(seed);
        let (plain, fused) =
            (session(&graph, Optimization::Off), session(&graph, Optimization::All));
        assert!(!in_registers(&plain));
        many += usize::from(in_registers(&fused));
        for iterations in [0, 1, 9] {
            for ((name, wanted), (_, found)) in
                run(&plain, iterations).iter().zip(&run(&fused, iterations))
            {
                assert_eq!(found.dims(), wanted.dims(), "{name} of seed {seed}\n{graph}");
                assert!(
                    same(found, wanted),
                    "{name} of seed {seed}: {found:?}, {wanted:?}\n{graph}"
                );
            }
        }
    }
    assert!(many > 250, "{many} of 300 loops run in registers");
}

const COUNTING: &str = "g (float x) => (float y, int64[T] iterations) <float one = {1}> {
      y, iterations = Loop (, , x) <
        body = iteration (int64 i, bool c, float v) => (bool c2, float v2, int64 at) {
          c2 = Identity (c)
          v2 = Add (v, one)
          at = Identity (i)
        }>
    }";

fn run_until_stopped(session: &Session, options: &RunOptions<'_>) -> (StopReason, String) {
    match session.run_with(vec![("x".to_string(), Value::Tensor(Tensor::scalar(0f32)))], options) {
        Err(RunError::Stopped(stopped)) => (stopped.reason, stopped.place()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn iterations_in_registers_end_when_they_are_to() {
    let session = session(COUNTING, Optimization::All);
    let place = |iteration: usize| format!("iteration {iteration} of Loop node that makes 'y'");
    let (reason, found) = run_until_stopped(&session, &RunOptions::new().iteration_limit(1000));
    assert_eq!((reason, found), (StopReason::Iterations(1000), place(1000)));
    let soon = Instant::now() + Duration::from_millis(20);
    assert_eq!(
        run_until_stopped(&session, &RunOptions::new().deadline(soon)).0,
        StopReason::Deadline
    );
    let flag = StopFlag::new();
    flag.stop();
    assert_eq!(run_until_stopped(&session, &RunOptions::new().stop(&flag)).0, StopReason::Flag);
}

/// Checks that the steps of all iterations are reported as one.
#[test]
fn a_watched_loop_in_registers_tells_of_its_step_once() {
    let graph = COUNTING.replace("(, , x)", "(n, , x)").replace("float x)", "float x, int64 n)");
    let session = session(&graph, Optimization::All);
    let events = RefCell::new(Vec::new());
    let watch = |event: StepEvent| events.borrow_mut().push(event.step);
    let inputs = [("x", Tensor::scalar(1f32)), ("n", Tensor::scalar(500i64))];
    let inputs = inputs.map(|(name, value)| (name.to_string(), Value::Tensor(value)));
    session.run_with(inputs.to_vec(), &RunOptions::new().watch(&watch)).unwrap();
    assert_eq!(events.into_inner(), [1, 0]);
}

#[test]
fn what_is_stacked_in_registers_is_counted() {
    let text = both_ways::complete(COUNTING);
    let parsed = parse_model(Buffer::from_vec(text.into_bytes()), ParseOptions::default());
    let mut options = Options::with_threads(1);
    options.memory_limit = Some(1 << 20);
    let session = Session::compile(&parsed.unwrap().model, &NoExternalData, &options).unwrap();
    let inputs = vec![("x".to_string(), Value::Tensor(Tensor::scalar(0f32)))];
    match session.run(inputs) {
        Err(RunError::Node(error)) => {
            assert!(error.what.contains("the memory limit is 1048576"), "{error}");
            assert!(error.what.contains("in iteration 65536"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
