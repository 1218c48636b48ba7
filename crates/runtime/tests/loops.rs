//! Loops and scans: how often they run, what ends them, what they take. What they compute is in
//! `tests/run`.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use allocation_counter::measure;
use sardonyx_model::{Model, NoExternalData};
use sardonyx_runtime::{Options, RunError, RunOptions, Session, StepEvent, StopFlag, StopReason};
use sardonyx_tensor::{Buffer, DataType, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn session(text: &str, options: &Options) -> Session {
    let text = Buffer::from_vec(text.as_bytes().to_vec());
    let model: Model = parse_model(text, ParseOptions::default())
        .unwrap_or_else(|error| panic!("{error:?}"))
        .model;
    Session::compile(&model, &NoExternalData, options).unwrap()
}

fn inputs(values: &[(&str, Tensor)]) -> Vec<(String, Value)> {
    values.iter().map(|(name, value)| (name.to_string(), value.clone().into())).collect()
}

/// A loop without end around a loop of two turns of two steps.
const ENDLESS: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    g (float[2] x) => (float[2] y) <int64 two = {2}, bool go = {1}>
    {
      y = Loop (, go, x) <
        body = forever (int64 i, bool c, float[2] v) => (bool c2, float[2] v2) {
          c2 = Identity (c)
          v2 = Loop (two, , v) <
            body = twice (int64 j, bool d, float[2] w) => (bool d2, float[2] w2) {
              d2 = Identity (d)
              w1 = Softmax (w)
              w2 = Neg (w1)
            }>
        }>
    }";

fn stopped(session: &Session, options: RunOptions<'_>) -> (StopReason, String) {
    let x = Tensor::from_slice([2], &[1f32, 2.0]).unwrap();
    match session.run_with(inputs(&[("x", x)]), options) {
        Err(RunError::Stopped(stopped)) => (stopped.reason, stopped.place()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_loop_without_end_ends_after_at_most_one_more_step() {
    let session = session(ENDLESS, &Options::with_threads(1));
    let flag = StopFlag::new();
    let mut events: Vec<StepEvent> = Vec::new();
    let mut watch = |event: StepEvent| {
        events.push(event);
        // The first step of a turn of the inner loop.
        if events.len() == 1001 {
            flag.stop();
        }
    };
    let (reason, place) = stopped(&session, RunOptions::new().stop(&flag).watch(&mut watch));
    assert_eq!(reason, StopReason::Flag);
    assert!(place.contains(" in Loop node that makes 'v2' in turn "), "{place}");
    let end = " of graph 'forever' in Loop node that makes 'y', which was next";
    assert!(place.ends_with(end), "{place}");
    // No step began after the flag was raised: what came is the ends of the steps around.
    assert!(events.len() <= 1003, "{}", events.len());
    // The session works as before, and so does the flag.
    flag.reset();
    let options =
        RunOptions::new().stop(&flag).deadline(Instant::now() + Duration::from_millis(20));
    assert_eq!(stopped(&session, options).0, StopReason::Deadline);
}

#[test]
fn turns_of_all_loops_count_together() {
    let session = session(ENDLESS, &Options::with_threads(1));
    // Each outer turn comes with two inner ones: the tenth is outer turn 3.
    let (reason, place) = stopped(&session, RunOptions::new().turn_limit(9));
    assert_eq!(reason, StopReason::Turns(9));
    assert_eq!(place, "turn 3 of Loop node that makes 'y', which was next");
    let (_, place) = stopped(&session, RunOptions::new().turn_limit(10));
    let expected = "turn 0 of Loop node that makes 'v2' in turn 3 of graph 'forever' in Loop node \
                    that makes 'y', which was next";
    assert_eq!(place, expected);
}

#[test]
fn a_loop_that_grows_stops_at_the_memory_limit() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (float[N] x, int64 n) => (float[M] y, float[K, L] rows)
        {
          y, rows = Loop (n, , x) <
            body = grow (int64 i, bool c, float[P] v) => (bool c2, float[Q] v2, float[N] row) {
              c2 = Identity (c)
              v2 = Concat <axis = 0> (v, v)
              row = Neg (x)
            }>
        }";
    let mut options = Options::with_threads(1);
    options.memory_limit = Some(10 << 20);
    let session = session(text, &options);
    let x = Tensor::from_slice([4], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    let run = |n: i64| session.run(inputs(&[("x", x.clone()), ("n", Tensor::scalar(n))]));
    assert!(run(14).is_ok());
    match run(60) {
        Err(RunError::Node(error)) => {
            assert!(error.what.contains("the memory limit is 10485760"), "{error}");
            let place = "Concat node that makes 'v2' in turn 18 of graph 'grow'";
            assert!(error.place().starts_with(place), "{}", error.place());
        }
        other => panic!("{other:?}"),
    }
    assert!(run(14).is_ok(), "memory that a failed run took is free again");
}

/// A recurrent layer whose states have a size that only the run tells.
const LAYER: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    layer (int64 n, float[N, 3] zero) => (float[N, 3] last, float[K, N, 3] states)
    <float[3, 3] w = {1, 0, 2, 0, 1, 0, -1, 3, 0}, float[3] b = {1, -1, 0.5}>
    {
      last, states = Loop (n, , zero) <
        body = turn (int64 i, bool c, float[P, 3] state)
          => (bool d, float[P, 3] next, float[P, 3] out) {
          d = Identity (c)
          product = MatMul (state, w)
          sum = Add (product, b)
          next = Softmax <axis = -1> (sum)
          out = Identity (next)
        }>
    }";

#[test]
fn a_loop_allocates_nothing_after_its_third_turn() {
    let session = session(LAYER, &Options::with_threads(1));
    let allocations = |turns: i64| {
        let zero = Tensor::zeros(DataType::Float, [2, 3]).unwrap();
        let given = inputs(&[("n", Tensor::scalar(turns)), ("zero", zero)]);
        measure(|| {
            session.run(given).unwrap();
        })
        .count_total
    };
    // The first run makes plans. What is stacked grows by doubling, a few times in 1000 turns.
    allocations(3);
    let (few, many) = (allocations(3), allocations(1000));
    assert!(many <= few + 30, "{few} in 3 turns, {many} in 1000");
}
