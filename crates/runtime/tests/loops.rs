//! Tests of loops and scans: number of iterations, cancellation, memory. Results are tested in
//! `tests/run`.

use std::cell::Cell;
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

/// Infinite loop around a loop of two iterations of two steps.
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

fn run_until_stopped(session: &Session, options: &RunOptions<'_>) -> (StopReason, String) {
    let x = Tensor::from_slice([2], &[1f32, 2.0]).unwrap();
    match session.run_with(inputs(&[("x", x)]), options) {
        Err(RunError::Stopped(stopped)) => (stopped.reason, stopped.place()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_run_without_steps_ends_as_well() {
    let session = session(
        "<ir_version: 8, opset_import: [\"\": 17]>
         g (float[2] x) => (float[2] x) {}",
        &Options::with_threads(1),
    );
    assert!(session.steps().is_empty());
    let flag = StopFlag::new();
    let options = RunOptions::new().stop(&flag);
    let x = Tensor::from_slice([2], &[1f32, 2.0]).unwrap();
    session.run_with(inputs(&[("x", x)]), &options).unwrap();
    flag.stop();
    let (reason, place) = run_until_stopped(&session, &options);
    assert_eq!(reason, StopReason::Flag);
    assert_eq!(place, "the outputs of the model");
}

#[test]
fn a_loop_without_end_ends_after_at_most_one_more_step() {
    let session = session(ENDLESS, &Options::with_threads(1));
    let flag = StopFlag::new();
    let events = Cell::new(0);
    let watch = |_: StepEvent| {
        events.update(|events| events + 1);
        // The first step of an iteration of the inner loop.
        if events.get() == 1001 {
            flag.stop();
        }
    };
    let (reason, place) = run_until_stopped(&session, &RunOptions::new().stop(&flag).watch(&watch));
    assert_eq!(reason, StopReason::Flag);
    assert!(place.contains(" in Loop node that makes 'v2' in iteration "), "{place}");
    let end = " of graph 'forever' in Loop node that makes 'y'";
    assert!(place.ends_with(end), "{place}");
    // No step began after the flag was raised: later events are the ends of enclosing steps.
    assert!(events.get() <= 1003, "{}", events.get());
    // The session and the flag can be reused.
    flag.reset();
    let options =
        RunOptions::new().stop(&flag).deadline(Instant::now() + Duration::from_millis(20));
    assert_eq!(run_until_stopped(&session, &options).0, StopReason::Deadline);
}

/// Operators whose work is split into chunks, on inputs of 256 times 256 elements.
const LONG: [(&str, &str); 6] = [
    ("MatMul", "y = MatMul (x, x)"),
    ("Conv", "i = Reshape (x, image) y = Conv <pads = [1, 1, 1, 1]> (i, w)"),
    ("Erf", "y = Erf (x)"),
    ("Softmax", "y = Softmax <axis = 0> (x)"),
    ("CumSum", "y = CumSum (x, one)"),
    ("Transpose", "t = Transpose (x) y = Neg (t)"),
];

#[test]
fn a_long_step_ends_between_its_parts() {
    for (operator, body) in LONG {
        for threads in [1, 2] {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\": 21]>
                 g (float[N, N] x, float[2, 1, 3, 3] w) => (y)
                 <int64 one = {{1}}, int64[4] image = {{1, 1, 256, 256}}> {{ {body} }}"
            );
            let session = session(&text, &Options::with_threads(threads));
            let x = Tensor::from_vec([256, 256], vec![0.5f32; 256 * 256]).unwrap();
            let w = Tensor::from_vec([2, 1, 3, 3], vec![0.5f32; 18]).unwrap();
            let inputs = inputs(&[("x", x), ("w", w)]);
            let asked = Cell::new(0);
            let events = Cell::new(0);
            let watch = |_: StepEvent| events.update(|events| events + 1);
            // Called once before each step; further calls come from within steps.
            let count = || {
                asked.set(asked.get() + 1);
                false
            };
            let options = RunOptions::new().asks(&count).watch(&watch);
            let whole = session.run_with(inputs.clone(), &options).unwrap();
            assert!(asked.get() > session.steps().len(), "{operator}: {}", asked.get());
            let last = asked.replace(0);
            let late = || {
                asked.set(asked.get() + 1);
                asked.get() >= last.min(session.steps().len() + 1)
            };
            match session.run_with(inputs.clone(), &RunOptions::new().asks(&late)) {
                Err(RunError::Stopped(stopped)) => {
                    assert_eq!(stopped.reason, StopReason::Flag);
                    assert!(stopped.next.is_some(), "{operator}");
                }
                other => panic!("{operator} with {threads} threads: {other:?}"),
            }
            // The session can be reused.
            let again = session.run(inputs).unwrap();
            assert_eq!(format!("{again:?}"), format!("{whole:?}"), "{operator}");
        }
    }
}

#[test]
fn iterations_of_all_loops_count_together() {
    let session = session(ENDLESS, &Options::with_threads(1));
    // Each outer iteration has two inner ones: the tenth is outer iteration 3.
    let (reason, place) = run_until_stopped(&session, &RunOptions::new().iteration_limit(9));
    assert_eq!(reason, StopReason::Iterations(9));
    assert_eq!(place, "iteration 3 of Loop node that makes 'y'");
    let (_, place) = run_until_stopped(&session, &RunOptions::new().iteration_limit(10));
    let expected = "iteration 0 of Loop node that makes 'v2' in iteration 3 of graph 'forever' \
                    in Loop node that makes 'y'";
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
            let place = "Concat node that makes 'v2' in iteration 18 of graph 'grow'";
            assert!(error.place().starts_with(place), "{}", error.place());
        }
        other => panic!("{other:?}"),
    }
    assert!(run(14).is_ok(), "memory that a failed run took is free again");
}

/// Recurrent layer whose states have a size known only at run time.
const LAYER: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    layer (int64 n, float[N, 3] zero) => (float[N, 3] last, float[K, N, 3] states)
    <float[3, 3] w = {1, 0, 2, 0, 1, 0, -1, 3, 0}, float[3] b = {1, -1, 0.5}>
    {
      last, states = Loop (n, , zero) <
        body = iteration (int64 i, bool c, float[P, 3] state)
          => (bool d, float[P, 3] next, float[P, 3] out) {
          d = Identity (c)
          product = MatMul (state, w)
          sum = Add (product, b)
          next = Softmax <axis = -1> (sum)
          out = Identity (next)
        }>
    }";

#[test]
fn a_loop_allocates_nothing_after_its_third_iteration() {
    let session = session(LAYER, &Options::with_threads(1));
    let allocations = |iterations: i64| {
        let zero = Tensor::zeros(DataType::Float, [2, 3]).unwrap();
        let given = inputs(&[("n", Tensor::scalar(iterations)), ("zero", zero)]);
        measure(|| {
            session.run(given).unwrap();
        })
        .count_total
    };
    // The first run makes plans. Stacked outputs grow by doubling, a few times in 1000 iterations.
    allocations(3);
    let (few, many) = (allocations(3), allocations(1000));
    assert!(many <= few + 30, "{few} in 3 iterations, {many} in 1000");
}

/// Beam search as written by an exporter: each iteration looks up the last tokens, computes a state
/// and logits, bans the end token for the first `least` iterations, keeps the best continuations,
/// gathers the rows of their beams, and writes the new tokens into a buffer of fixed length.
const BEAM_SEARCH: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    beam_search (int64 most, int64 least, int64[B, L] tokens, float[B] scores, float[B, 16] state)
      => (int64[B, L] found, float[B] last_scores, float[B, 16] last_state, float[L] trace, int64[B] lengths)
    <int64 zero = {0}, int64 one = {1}, int64 vocabulary = {32}, int64 end = {2}, bool go = {1},
     int64[1] first = {0}, int64[1] second = {1}, int64[2] flat_shape = {1, -1},
     int64[1] rank = {2}, int64[1] width = {4}, float never = {-1e9}, float allowed = {0}, float bonus = {3}>
    {
      numbers_end = Constant <value_int = 512> ()
      numbers = Range (zero, numbers_end, one)
      factor = Constant <value_int = 7919> ()
      scaled = Mul (numbers, factor)
      prime = Constant <value_int = 1009> ()
      hashed = Mod (scaled, prime)
      hash = Cast <to = 1> (hashed)
      scale = Constant <value_float = 1009.0> ()
      unit = Div (hash, scale)
      half = Constant <value_float = 0.5> ()
      weights = Sub (unit, half)
      embedding_shape = Constant <value_ints = [32, 16]> ()
      embedding = Reshape (weights, embedding_shape)
      cell = Mul (embedding, half)
      head = Transpose <perm = [1, 0]> (embedding)
      bias = Gather <axis = 0> (embedding, one)
      vocabulary_numbers = Range (zero, vocabulary, one)
      is_end_token = Equal (vocabulary_numbers, end)
      only_end = Where (is_end_token, allowed, never)
      no_end = Where (is_end_token, never, allowed)
      favoured = Where (is_end_token, bonus, allowed)
      shape = Shape (tokens)
      length = Gather <axis = 0> (shape, one)
      columns = Range (zero, length, one)
      beams = Slice (shape, first, second)
      false_value = Constant <value = bool[1] {0}> ()
      nothing_finished = Expand (false_value, beams)
      no_length = Constant <value = int64[1] {0}> ()
      no_lengths = Expand (no_length, beams)
      trace_shape = Slice (shape, second, rank)
      no_trace_value = Constant <value = float[1] {0}> ()
      no_trace = Expand (no_trace_value, trace_shape)
      found, last_scores, last_state, trace, finished, lengths = Loop (most, go, tokens, scores, state, no_trace, nothing_finished, no_lengths) <
        body = iteration (int64 i, bool c, int64[B, L] old_tokens, float[B] old_scores, float[B, 16] old_state,
                     float[L] old_trace, bool[B] old_finished, int64[B] old_lengths)
          => (bool goes_on, int64[B, L] new_tokens, float[B] new_scores, float[B, 16] new_state,
              float[L] new_trace, bool[B] new_finished, int64[B] new_lengths)
        {
          last = Gather <axis = 1> (old_tokens, i)
          embedded = Gather <axis = 0> (embedding, last)
          both = Concat <axis = 1> (embedded, old_state)
          product = MatMul (both, cell)
          sum = Add (product, bias)
          next_state = Tanh (sum)
          raw = MatMul (next_state, head)
          is_short = Less (i, least)
          ban = Where (is_short, no_end, favoured)
          logits = Add (raw, ban)
          likely = LogSoftmax <axis = -1> (logits)
          finished_column = Unsqueeze (old_finished, second)
          choices = Where (finished_column, only_end, likely)
          score_column = Unsqueeze (old_scores, second)
          totals = Add (choices, score_column)
          flat = Reshape (totals, flat_shape)
          best, index = TopK <axis = -1> (flat, width)
          new_scores = Squeeze (best, first)
          which = Squeeze (index, first)
          beam = Div (which, vocabulary)
          token = Mod (which, vocabulary)
          kept_tokens = Gather <axis = 0> (old_tokens, beam)
          new_state = Gather <axis = 0> (next_state, beam)
          kept_finished = Gather <axis = 0> (old_finished, beam)
          kept_lengths = Gather <axis = 0> (old_lengths, beam)
          next = Add (i, one)
          next_row = Unsqueeze (next, first)
          body_shape = Shape (kept_tokens)
          body_beams = Slice (body_shape, first, second)
          column_shape = Concat <axis = 0> (body_beams, second)
          positions = Expand (next_row, column_shape)
          token_column = Unsqueeze (token, second)
          new_tokens = ScatterElements <axis = 1> (kept_tokens, positions, token_column)
          top = Slice (new_scores, first, second)
          place = Unsqueeze (next_row, first)
          scattered = ScatterND (old_trace, place, top)
          is_here = Equal (columns, i)
          average = ReduceMean <keepdims = 0> (new_scores)
          new_trace = Where (is_here, average, scattered)
          is_end = Equal (token, end)
          new_finished = Or (kept_finished, is_end)
          counts = Not (kept_finished)
          counted = Cast <to = 7> (counts)
          new_lengths = Add (kept_lengths, counted)
          finished_number = Cast <to = 6> (new_finished)
          all_finished = ReduceMin <keepdims = 0> (finished_number)
          is_over = Cast <to = 9> (all_finished)
          is_open = Not (is_over)
          goes_on = And (c, is_open)
        }>
    }";

/// Runs a beam search of at most `most` iterations, of which the first `least` do not end it.
/// Returns the results and the number of allocations.
fn search(session: &Session, most: i64, least: i64) -> (Vec<Value>, u64) {
    let far = -1e9;
    let mut given = inputs(&[
        ("most", Tensor::scalar(most)),
        ("least", Tensor::scalar(least)),
        ("tokens", Tensor::zeros(DataType::Int64, [4, 1024]).unwrap()),
        ("scores", Tensor::from_slice([4], &[0f32, far, far, far]).unwrap()),
        ("state", Tensor::zeros(DataType::Float, [4, 16]).unwrap()),
        ("width", Tensor::from_slice([1], &[4i64]).unwrap()),
    ]);
    // The last input may be a constant.
    given.truncate(session.inputs().len());
    let mut outputs = Vec::new();
    let count = measure(|| {
        let found = session.run(given).unwrap();
        outputs = found.into_iter().map(|(_, value)| value).collect();
    });
    (outputs, count.count_total)
}

#[test]
fn a_beam_search_allocates_nothing_after_its_third_iteration() {
    let session = session(BEAM_SEARCH, &Options::with_threads(1));
    // The first run makes plans.
    search(&session, 3, 2000);
    let (_, few) = search(&session, 3, 2000);
    let (found, many) = search(&session, 1000, 2000);
    assert_eq!(few, many, "in 3 iterations and in 1000");
    let numbers = |value: &Value| match value {
        Value::Tensor(tensor) => tensor.to_vec::<i64>().unwrap(),
        other => panic!("{}", other.value_type()),
    };
    assert_eq!(numbers(&found[4]), [1000; 4]);
    let tokens = numbers(&found[0]);
    let beams: Vec<&[i64]> = tokens.chunks(1024).map(|beam| &beam[1..=1000]).collect();
    assert!(beams.iter().all(|beam| !beam.contains(&2)), "the end was banned");
    assert!((1..4).all(|beam| beams[beam] != beams[0]), "all beams are the same");
}

#[test]
fn values_whose_sizes_only_data_tells_find_their_memory_again() {
    // The number of beams is known only at run time, and so are all sizes that depend on it.
    let text = BEAM_SEARCH.replace(" int64[1] width = {4},", "").replacen(
        ", float[B, 16] state)",
        ", float[B, 16] state, int64[1] width)",
        1,
    );
    let (open, known) =
        [text.as_str(), BEAM_SEARCH].map(|text| session(text, &Options::with_threads(1))).into();
    // Until memory of all sizes exists.
    (0..3).for_each(|_| drop(search(&open, 3, 2000)));
    let (_, few) = search(&open, 3, 2000);
    let (found, many) = search(&open, 1000, 2000);
    assert_eq!(few, many, "in 3 iterations and in 1000");
    assert_eq!(found, search(&known, 1000, 2000).0);
}

#[test]
fn values_that_change_places_find_their_memory_again() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
        g (int64 n, float[N, 3] x, float[N, 3] y) => (float[N, 3] p, float[N, 3] q)
        {
          p, q = Loop (n, , x, y) <
            body = iteration (int64 i, bool c, float[N, 3] a, float[N, 3] b)
              => (bool d, float[N, 3] b2, float[N, 3] a2) {
              d = Identity (c)
              b2 = Identity (b)
              a2 = Neg (a)
            }>
        }";
    let session = session(text, &Options::with_threads(1));
    let allocations = |iterations: i64| {
        let x = Tensor::zeros(DataType::Float, [2, 3]).unwrap();
        let given = inputs(&[("n", Tensor::scalar(iterations)), ("x", x.clone()), ("y", x)]);
        measure(|| {
            session.run(given).unwrap();
        })
        .count_total
    };
    allocations(3);
    assert_eq!(allocations(3), allocations(1000));
}

#[test]
fn a_beam_search_ends_when_all_beams_have() {
    let session = session(BEAM_SEARCH, &Options::with_threads(1));
    let (found, _) = search(&session, 1000, 5);
    let Value::Tensor(lengths) = &found[4] else { panic!("no lengths") };
    let lengths = lengths.to_vec::<i64>().unwrap();
    assert!(lengths.iter().all(|length| (6..500).contains(length)), "{lengths:?}");
}
