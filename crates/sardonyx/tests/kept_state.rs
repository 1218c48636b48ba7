//! Kept state: runs that continue earlier ones have the results of runs that get all values by
//! hand.

use sardonyx::run::{MemoryBudget, SessionState, StatePair};
use sardonyx::tool::SessionStateExt;
use sardonyx::value::f16;
use sardonyx::{DataType, ErrorKind, Model, Outputs, RunOptions, Session, Tensor, Type, Value};

use crate::random::Random;

/// Model of a cache, and whether runs append to both of its inputs without a copy.
struct Cache {
    body: &'static str,
    in_place: bool,
    /// Dimensions of the past of one sequence, with 0 on the axis of rows.
    past: &'static [usize],
    axis: usize,
    elem: DataType,
}

/// Caches as exporters write them, and some that no run can append to. `x` has `[b, n, 8]`; the
/// last node fails for an index that does not exist, after all rows are written.
const CACHES: [Cache; 10] = [
    // Attention, which is fused.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, 2, p, 4] past_k, float[b, 2, p, 4] past_v)
            => (float[b, 2, n, 4] y, float[b, 2, t, 4] present_k, float[b, 2, t, 4] present_v, float z) {
            sizes = Constant <value = int64[4] {0, -1, 2, 4}> ()
            table = Constant <value = float[2] {1.0, 2.0}> ()
            half = Constant <value = float {0.5}> ()
            heads = Reshape (x, sizes)
            q = Transpose <perm = [0, 2, 1, 3]> (heads)
            k = Sin (q)
            v = Cos (q)
            present_k = Concat <axis = 2> (past_k, k)
            present_v = Concat <axis = 2> (past_v, v)
            turned = Transpose <perm = [0, 1, 3, 2]> (present_k)
            scores = MatMul (q, turned)
            scaled = Mul (scores, half)
            weights = Softmax <axis = -1> (scaled)
            y = MatMul (weights, present_v)
            z = Gather (table, at)
        }",
        in_place: true,
        past: &[2, 0, 4],
        axis: 2,
        elem: DataType::Float,
    },
    // The cache of the operator.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, 2, p, 4] past_k, float[b, 2, p, 4] past_v)
            => (float[b, 2, n, 4] y, float[b, 2, t, 4] present_k, float[b, 2, t, 4] present_v, float z) {
            sizes = Constant <value = int64[4] {0, -1, 2, 4}> ()
            table = Constant <value = float[2] {1.0, 2.0}> ()
            heads = Reshape (x, sizes)
            q = Transpose <perm = [0, 2, 1, 3]> (heads)
            k = Sin (q)
            v = Cos (q)
            y, present_k, present_v = Attention <is_causal = 1> (q, k, v, , past_k, past_v)
            z = Gather (table, at)
        }",
        in_place: true,
        past: &[2, 0, 4],
        axis: 2,
        elem: DataType::Float,
    },
    // Products of batches and heads in one axis, with the number of keys read from the shape.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, 2, p, 4] past_k, float[b, 2, p, 4] past_v)
            => (float[m, n, 4] y, float[b, 2, t, 4] present_k, float[b, 2, t, 4] present_v, float z) {
            sizes = Constant <value = int64[4] {0, -1, 2, 4}> ()
            table = Constant <value = float[2] {1.0, 2.0}> ()
            heads = Reshape (x, sizes)
            q = Transpose <perm = [0, 2, 1, 3]> (heads)
            k = Sin (q)
            v = Cos (q)
            present_k = Concat <axis = 2> (past_k, k)
            present_v = Concat <axis = -2> (past_v, v)
            all = Constant <value = int64[1] {-1}> ()
            four = Constant <value = int64[1] {4}> ()
            count = Shape <start = 2, end = 3> (present_k)
            rows = Shape <start = 2, end = 3> (q)
            key_sizes = Concat <axis = 0> (all, count, four)
            query_sizes = Concat <axis = 0> (all, rows, four)
            flat_q = Reshape (q, query_sizes)
            flat_k = Reshape (present_k, key_sizes)
            flat_v = Reshape (present_v, key_sizes)
            turned = Transpose <perm = [0, 2, 1]> (flat_k)
            scores = MatMul (flat_q, turned)
            least = Clip (scores)
            y = MatMul (least, flat_v)
            z = Gather (table, at)
        }",
        in_place: true,
        past: &[2, 0, 4],
        axis: 2,
        elem: DataType::Float,
    },
    // Keys with positions last.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, 8, p] past_k, float[b, 8, p] past_v)
            => (float[b, n, 8] y, float[b, 8, t] present_k, float[b, 8, t] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            k = Transpose <perm = [0, 2, 1]> (x)
            v = Exp (k)
            present_k = Concat <axis = 2> (past_k, k)
            present_v = Concat <axis = 2> (past_v, v)
            scores = MatMul (x, present_k)
            turned = Transpose <perm = [0, 2, 1]> (present_v)
            y = MatMul (scores, turned)
            z = Gather (table, at)
        }",
        in_place: true,
        past: &[8, 0],
        axis: 2,
        elem: DataType::Float,
    },
    // Halves, of which only the shape is read.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float16[b, p, 8] past_k, float16[b, p, 8] past_v)
            => (int64[3] y, float16[b, t, 8] present_k, float16[b, t, 8] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            k = Cast <to = 10> (x)
            v = Neg (k)
            present_k = Concat <axis = 1> (past_k, k)
            present_v = Concat <axis = 1> (past_v, v)
            y = Shape (present_k)
            z = Gather (table, at)
        }",
        in_place: true,
        past: &[0, 8],
        axis: 1,
        elem: DataType::Float16,
    },
    // A reader of dense rows.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, p, 8] past_k, float[b, p, 8] past_v)
            => (float[b, t, 8] y, float[b, t, 8] present_k, float[b, t, 8] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            present_k = Concat <axis = 1> (past_k, x)
            present_v = Concat <axis = 1> (past_v, x)
            one = Constant <value = int64 {1}> ()
            sum = CumSum (present_k, one)
            y = Add (sum, present_v)
            z = Gather (table, at)
        }",
        in_place: false,
        past: &[0, 8],
        axis: 1,
        elem: DataType::Float,
    },
    // New rows in front.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, past, 8] past_k, float[b, past, 8] past_v)
            => (float[b, n, 8] y, float[b, t, 8] present_k, float[b, t, 8] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            present_k = Concat <axis = 1> (x, past_k)
            present_v = Concat <axis = 1> (x, past_v)
            turned = Transpose <perm = [0, 2, 1]> (present_k)
            scores = MatMul (x, turned)
            y = MatMul (scores, present_v)
            z = Gather (table, at)
        }",
        in_place: false,
        past: &[0, 8],
        axis: 1,
        elem: DataType::Float,
    },
    // Branches.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, past, 8] past_k, float[b, past, 8] past_v)
            => (float[b, u, 8] y, float[b, t, 8] present_k, float[b, t, 8] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            present_k = Concat <axis = 1> (past_k, x)
            is_first = Equal (at, at)
            y, present_v = If (is_first) <
                then_branch = yes () => (a, b) {
                    b = Concat <axis = 1> (past_v, x)
                    a = Identity (present_k)
                },
                else_branch = no () => (c, d) { c = Identity (x) d = Identity (past_v) }>
            z = Gather (table, at)
        }",
        in_place: false,
        past: &[0, 8],
        axis: 1,
        elem: DataType::Float,
    },
    // Rows that are written where each sequence ends.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, 2, p, 4] past_k, float[b, 2, p, 4] past_v)
            => (float[b, n, 8] y, float[b, 2, t, 4] present_k, float[b, 2, t, 4] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            one = Constant <value = int32 {1}> ()
            k = Sin (x)
            v = Cos (x)
            batch = Shape <start = 0, end = 1> (x)
            new_rows = Shape <start = 1, end = 2> (x)
            past_rows = Shape <start = 2, end = 3> (past_k)
            rows = Add (past_rows, new_rows)
            total = Cast <to = 6> (rows)
            last = Sub (total, one)
            lasts = Expand (last, batch)
            y, present_k, present_v = com.microsoft.GroupQueryAttention <
                num_heads = 2, kv_num_heads = 2
            > (x, k, v, past_k, past_v, lasts, total)
            z = Gather (table, at)
        }",
        in_place: true,
        past: &[2, 0, 4],
        axis: 2,
        elem: DataType::Float,
    },
    // Rows that are written in place of others, which another node reads.
    Cache {
        body: "(float[b, n, 8] x, int64 at, float[b, p, 8] past_k, float[b, p, 8] past_v)
            => (float[b, n, 8] y, float[b, t, 8] present_k, float[b, t, 8] present_v, float z) {
            table = Constant <value = float[2] {1.0, 2.0}> ()
            one = Constant <value = int64[1] {1}> ()
            zero = Constant <value = int64[1] {0}> ()
            batch = Shape <start = 0, end = 1> (x)
            count = Shape <start = 1, end = 2> (past_k)
            before = Sub (count, one)
            start = Max (before, zero)
            starts = Expand (start, batch)
            zeros = Sub (x, x)
            long_k = Concat <axis = 1> (past_k, zeros)
            long_v = Concat <axis = 1> (past_v, zeros)
            present_k = TensorScatter <axis = 1> (long_k, x, starts)
            present_v = TensorScatter <axis = -2> (long_v, x, starts)
            sum = ReduceSum (past_k, one)
            two = Constant <value = int64[1] {2}> ()
            turned = Transpose <perm = [0, 2, 1]> (past_v)
            scores = MatMul (x, turned)
            scale = ReduceSum (scores, two)
            scaled = Mul (sum, scale)
            y = Add (x, scaled)
            z = Gather (table, at)
        }",
        in_place: false,
        past: &[0, 8],
        axis: 1,
        elem: DataType::Float,
    },
];

const NAMES: [(&str, &str); 2] = [("past_k", "present_k"), ("past_v", "present_v")];

fn compile(body: &str) -> Session {
    let text = format!("<ir_version: 11, opset_import: [\"\": 24, \"com.microsoft\": 1]> g {body}");
    Session::builder(&Model::from_text(&text).unwrap()).threads(1).seed(7).build().unwrap()
}

/// State with the values that it should have.
#[derive(Clone)]
struct Both {
    state: SessionState,
    by_hand: Vec<Tensor>,
    batch: usize,
}

impl Both {
    fn new(session: &Session, cache: &Cache, batch: usize, capacity: usize) -> Both {
        let dims: Vec<usize> = [batch].into_iter().chain(cache.past.iter().copied()).collect();
        let pairs = NAMES.map(|(past, present)| {
            StatePair::new(past, present).first_dims(dims.clone()).axis(cache.axis).batch_axis(0)
        });
        let state = session.state().pairs(pairs).capacity(capacity).build().unwrap();
        let by_hand = vec![Tensor::zeros(cache.elem, dims).unwrap(); 2];
        Both { state, by_hand, batch }
    }

    /// Runs both, and compares outputs and values bit for bit.
    fn append(&mut self, random: &mut Random, rows: usize) {
        let x = self.draw(random, rows);
        let inputs = [("x", x.clone()), ("at", Tensor::scalar(1i64))];
        let found = self.state.run(inputs, &RunOptions::default()).unwrap();
        let wanted = run_by_hand(self.state.session(), x, &self.by_hand);
        for name in ["y", "z"] {
            assert_eq!(bits(&found[name]), bits(&wanted[name]), "{name}");
        }
        assert!(found.get("present_k").is_none() && found.get("present_v").is_none());
        self.by_hand = NAMES.map(|(_, present)| wanted.tensor(present).unwrap().clone()).to_vec();
        self.check();
    }

    fn draw(&self, random: &mut Random, rows: usize) -> Tensor {
        let count = self.batch * rows * 8;
        let numbers = (0..count).map(|_| random.next_below(2001) as f32 / 500.0 - 2.0);
        Tensor::from_vec([self.batch, rows, 8], numbers.collect()).unwrap()
    }

    fn check(&self) {
        for ((past, _), wanted) in NAMES.iter().zip(&self.by_hand) {
            let found = self.state.value(past).unwrap();
            assert_eq!((found.dims(), found.bytes()), (wanted.dims(), wanted.bytes()), "{past}");
        }
    }
}

fn bits(value: &Value) -> (Vec<usize>, Vec<u8>) {
    let tensor = value.as_tensor().unwrap();
    (tensor.dims().to_vec(), tensor.bytes().to_vec())
}

fn run_by_hand(session: &Session, x: Tensor, past: &[Tensor]) -> Outputs {
    let inputs = [("x", x), ("at", Tensor::scalar(1i64))].into_iter();
    let past = NAMES.iter().zip(past).map(|((name, _), past)| (*name, past.clone()));
    session.run(inputs.chain(past), &RunOptions::default()).unwrap()
}

/// Returns indices of an axis of a tensor as a new tensor, element by element.
fn pick(tensor: &Tensor, axis: usize, indices: &[usize]) -> Tensor {
    let width = tensor.data_type().storage_bytes(1).unwrap();
    let (dims, bytes) = (tensor.dims(), tensor.bytes());
    let inner: usize = dims[axis + 1..].iter().product();
    let outer: usize = dims[..axis].iter().product();
    let mut picked = Vec::new();
    for block in 0..outer {
        for index in indices {
            let start = (block * dims[axis] + index) * inner * width;
            picked.extend_from_slice(&bytes[start..start + inner * width]);
        }
    }
    let mut new = dims.to_vec();
    new[axis] = indices.len();
    Tensor::from_buffer(tensor.data_type(), new, picked.into()).unwrap()
}

/// Draws appends, clones, cuts, selections, restored values and failed runs for several states of
/// each cache.
#[test]
fn any_schedule_has_the_bits_of_runs_by_hand() {
    for (number, cache) in CACHES.iter().enumerate() {
        let session = compile(cache.body);
        let mut random = Random(0x5eed + number as u64);
        let mut states = vec![Both::new(&session, cache, 2, 0), Both::new(&session, cache, 1, 40)];
        for _ in 0..60 {
            let chosen = random.next_below(states.len());
            match random.next_below(9) {
                0 if states.len() < 5 => {
                    let copy = states[chosen].clone();
                    states.push(copy);
                }
                1 => {
                    let both = &mut states[chosen];
                    let rows = both.by_hand[0].dims()[cache.axis];
                    let len = random.next_below(rows + 2);
                    both.state.truncate(len).unwrap();
                    let kept: Vec<usize> = (0..len.min(rows)).collect();
                    both.by_hand.iter_mut().for_each(|t| *t = pick(t, cache.axis, &kept));
                    both.check();
                }
                2 => {
                    let both = &mut states[chosen];
                    let count = 1 + random.next_below(3);
                    let members: Vec<usize> =
                        (0..count).map(|_| random.next_below(both.batch)).collect();
                    both.state.select(&members).unwrap();
                    both.by_hand.iter_mut().for_each(|t| *t = pick(t, 0, &members));
                    both.batch = count;
                    both.check();
                }
                3 => {
                    let saved: Vec<Tensor> = NAMES
                        .iter()
                        .map(|(past, _)| states[0].state.value(past).unwrap())
                        .collect();
                    let both = &mut states[chosen];
                    if saved[0].dims()[0] == both.batch {
                        for ((past, _), value) in NAMES.iter().zip(&saved) {
                            both.state.set_value(past, value.clone()).unwrap();
                        }
                        both.by_hand = saved;
                        both.check();
                    }
                }
                4 => {
                    // The last node fails, after rows were written.
                    let both = &mut states[chosen];
                    let x = both.draw(&mut random, 3);
                    let inputs = [("x", x), ("at", Tensor::scalar(5i64))];
                    let failed = both.state.run(inputs, &RunOptions::default());
                    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Run);
                    both.check();
                }
                _ => {
                    let rows = 1 + random.next_below(4) * random.next_below(3);
                    states[chosen].append(&mut random, rows);
                }
            }
        }
        states.iter().for_each(Both::check);
    }
}

/// Counts the bytes of earlier rows that runs copy.
#[test]
fn only_growth_clones_and_other_readers_copy_rows() {
    for cache in &CACHES {
        let session = compile(cache.body);
        let mut both = Both::new(&session, cache, 2, 32);
        let mut random = Random(99);
        let in_place = NAMES.map(|(past, _)| both.state.is_appended(past));
        if !cache.in_place {
            assert!(in_place.contains(&false));
            both.append(&mut random, 3);
            both.append(&mut random, 1);
            assert!(both.state.copied_bytes() > 0);
            continue;
        }
        assert_eq!(in_place, [true, true]);
        for rows in [5, 1, 1, 3, 1, 21] {
            both.append(&mut random, rows);
            assert_eq!(both.state.copied_bytes(), 0, "{}", cache.body);
        }
        assert_eq!((both.state.len(), both.state.capacity()), (32, Some(32)));
        let row = 2 * 2 * 8 * cache.elem.storage_bytes(1).unwrap();
        assert_eq!(both.state.bytes(), 32 * row);
        // One more row does not fit.
        both.append(&mut random, 1);
        assert_eq!((both.state.copied_bytes(), both.state.capacity()), (32 * row, Some(64)));
        let mut copy = both.clone();
        both.append(&mut random, 1);
        assert_eq!(both.state.copied_bytes(), 33 * row, "the clone shares the memory");
        copy.append(&mut random, 1);
        assert_eq!(copy.state.copied_bytes(), 0, "the memory is the clone's alone");
    }
}

#[test]
fn pairs_and_sizes_follow_from_names_and_types() {
    let session = compile(CACHES[0].body);
    let found = StatePair::find(session.inputs(), session.outputs());
    assert_eq!(found, NAMES.map(|(past, present)| StatePair::new(past, present)));
    let mut state = session.state().batch(3).build().unwrap();
    assert_eq!(state.value("past_k").unwrap().dims(), [3, 2, 0, 4]);
    let x = Tensor::zeros(DataType::Float, [3, 2, 8]).unwrap();
    let outputs =
        state.run([("x", x), ("at", Tensor::scalar(0i64))], &RunOptions::default()).unwrap();
    let names: Vec<&str> = outputs.names().collect();
    assert_eq!((names, state.len()), (vec!["y", "z"], 2));
}

#[test]
fn mistakes_are_explained() {
    let session = compile(CACHES[0].body);
    let pair = |past: &str, present: &str| StatePair::new(past, present);
    let rows = [
        (vec![pair("past", "present_k")], "the model has no input 'past'"),
        (vec![pair("past_k", "present")], "the model has no output 'present'"),
        (
            vec![pair("past_k", "present_k"), pair("past_k", "present_v")],
            "the input 'past_k' or its output is in two pairs",
        ),
        (
            vec![pair("past_k", "present_k").first_dims([2])],
            "the first value of the state 'past_k' has rank 1",
        ),
        (vec![], "no output becomes an input by its name"),
    ];
    for (pairs, wanted) in rows {
        let error = session.state().pairs(pairs).build().unwrap_err();
        assert_eq!(error.message(), wanted);
    }
    let mut state = session.state().build().unwrap();
    let x = || Tensor::zeros(DataType::Float, [1, 1, 8]).unwrap();
    let past = Tensor::zeros(DataType::Float, [1, 2, 0, 4]).unwrap();
    let inputs = [("x", x()), ("at", Tensor::scalar(0i64)), ("past_k", past)];
    let error = state.run(inputs, &RunOptions::default()).unwrap_err();
    assert_eq!(error.message(), "the input 'past_k' is given, but the state keeps it");
    let error = state.set_value("past_k", x()).unwrap_err();
    assert_eq!(
        error.message(),
        "the state 'past_k' is float of rank 4, but the new value is float[1, 1, 8]"
    );
    assert_eq!(
        state.value("past").unwrap_err().to_string(),
        "the state has no input 'past'\nhelp: its inputs are 'past_k', 'past_v'"
    );
    let error = state.select(&[1]).unwrap_err();
    assert_eq!(error.message(), "the batch has 1 members, so none has the number 1");
}

/// Explains a run by the sizes of the state and of its inputs.
#[test]
fn reasons_to_copy_rows_are_explained() {
    let x = [("x", Type::tensor(DataType::Float, [1i64, 2, 8]))];
    for cache in &CACHES {
        let session = compile(cache.body);
        let mut both = Both::new(&session, cache, 1, 8);
        both.append(&mut Random(5), 3);
        let found = both.state.explain(&x).unwrap();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, NAMES.map(|(past, _)| past));
        for (name, used) in &found {
            assert_eq!(used.is_appended, both.state.is_appended(name), "{}", cache.body);
            assert_eq!(used.is_appended, used.copies.is_empty(), "{}", cache.body);
        }
    }
    let session = compile(CACHES[6].body);
    let pair = StatePair::new("past_v", "present_v").batch_axis(0).axis(1);
    let state = session.state().pairs([pair]).build().unwrap();
    let found = state.explain(&x).unwrap();
    let [(name, used)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(name, "past_v");
    assert!(used.copies[0].contains("does not begin with the input"), "{:?}", used.copies);
    let error = state.explain(&[("y", Type::tensor(DataType::Float, [1i64]))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Input);
}

#[test]
fn halves_keep_their_bits() {
    let session = compile(CACHES[4].body);
    let mut state = session.state().build().unwrap();
    let x = Tensor::from_vec([1, 1, 8], vec![0.1f32; 8]).unwrap();
    state.run([("x", x), ("at", Tensor::scalar(0i64))], &RunOptions::default()).unwrap();
    let kept = state.value("past_k").unwrap();
    assert_eq!(kept.to_vec::<f16>().unwrap(), [f16::from_f32(0.1); 8]);
}

#[test]
fn memory_of_a_state_is_counted() {
    let text = format!("<ir_version: 11, opset_import: [\"\": 24]> g {}", CACHES[0].body);
    let model = Model::from_text(&text).unwrap();
    let session = Session::builder(&model).threads(1).memory_limit(20_000).build().unwrap();
    // Two pairs of 32 bytes a row.
    let mut state = session.state().capacity(250).build().unwrap();
    assert_eq!(state.bytes(), 16_000);
    let error = session.state().capacity(400).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Run);
    assert!(error.message().contains("memory limit is 20000"), "{}", error.message());
    assert!(state.reserve(400).is_err());
    assert_eq!((state.capacity(), state.bytes()), (Some(250), 16_000));

    let budget = MemoryBudget::new(1 << 20);
    let session = Session::builder(&model).memory_budget(&budget).build().unwrap();
    let before = budget.used();
    let state = session.state().capacity(100).build().unwrap();
    assert_eq!(budget.used() - before, 6400);
    let copy = state.clone();
    drop(state);
    assert_eq!(budget.used() - before, 6400, "the clone has the memory");
    drop(copy);
    assert_eq!(budget.used(), before);
}
