//! Tests of runs on memory of the caller: results equal those of `run`, whatever steps read an
//! output, and later runs do not allocate.

use crate::both_ways::{Numbers, compile, complete};
use allocation_counter::measure;
use sardonyx_runtime::{Optimization, RunError, RunOptions, Session};
use sardonyx_tensor::{DataType, Tensor, TensorView, TensorViewMut, Value};

fn session(graph: &str) -> Session {
    compile(&complete(graph), Optimization::All, 2)
}

fn tensor(seed: u64, dims: &[usize]) -> Tensor {
    Tensor::from_vec(dims, Numbers::new(seed).floats(dims.iter().product())).unwrap()
}

/// Runs a session both ways and compares the bytes of all outputs.
#[track_caller]
fn agree(session: &Session, inputs: &[(&str, Tensor)]) {
    let values = inputs.iter().map(|(name, t)| ((*name).to_string(), Value::Tensor(t.clone())));
    let expected = session.run(values.collect()).unwrap();
    let expected: Vec<&Tensor> = expected.iter().map(|(_, v)| v.as_tensor().unwrap()).collect();
    let mut memory: Vec<Vec<u8>> = expected.iter().map(|t| vec![0xa5; t.bytes().len()]).collect();
    let views: Vec<(&str, TensorView<'_>)> =
        inputs.iter().map(|(name, t)| (*name, t.view())).collect();
    for _ in 0..3 {
        let mut outputs: Vec<(&str, TensorViewMut<'_>)> = session
            .outputs()
            .iter()
            .zip(&mut memory)
            .zip(&expected)
            .map(|((port, bytes), t)| {
                (port.name(), TensorViewMut::new(t.data_type(), t.dims(), bytes).unwrap())
            })
            .collect();
        // In any order.
        outputs.reverse();
        session.run_into(&views, &mut outputs).unwrap();
        for ((bytes, tensor), port) in memory.iter_mut().zip(&expected).zip(session.outputs()) {
            assert_eq!(bytes, tensor.bytes(), "{}", port.name());
            bytes.fill(0x5a);
        }
        lends(session, &views, &expected);
    }
}

/// Runs a session with memory lent for every other output that it asks for, and compares the bytes
/// of all outputs. Returns the numbers of the outputs that it asked for.
#[track_caller]
fn lends(session: &Session, views: &[(&str, TensorView<'_>)], expected: &[&Tensor]) -> Vec<usize> {
    let mut memory: Vec<Vec<u8>> = expected.iter().map(|t| vec![0xa5; t.bytes().len()]).collect();
    let mut places: Vec<Option<&mut Vec<u8>>> = memory.iter_mut().map(Some).collect();
    let mut asked = Vec::new();
    // Earlier values are replaced.
    let mut outputs = vec![Some(Value::Tensor(tensor(1, &[1]))); expected.len()];
    let mut lend = |index: usize, data_type, dims: &[usize]| {
        assert_eq!((data_type, dims), (expected[index].data_type(), expected[index].dims()));
        asked.push(index);
        let place = places[index].take().filter(|_| asked.len() % 2 == 1)?;
        Some(TensorViewMut::new(data_type, dims, place).unwrap())
    };
    session.run_lending(views, &mut outputs, &RunOptions::new(), Some(&mut lend)).unwrap();
    let all = outputs.iter().zip(&memory).zip(expected).enumerate();
    for (index, ((output, memory), expected)) in all {
        let place = asked.iter().position(|asked| *asked == index);
        assert_eq!(output.is_none(), place.is_some_and(|place| place % 2 == 0), "{index}");
        let found = match output {
            Some(value) => value.as_tensor().unwrap().bytes(),
            None => memory,
        };
        assert_eq!(found, expected.bytes(), "{index}");
    }
    asked
}

#[test]
fn outputs_are_written_where_the_caller_wants_them() {
    // `y` is read by a step, and through a view, after it is written; `x` is passed through, `c` is
    // a constant, `y2` is an alias of `y`.
    let graph = "g (float[N, 4] x) => (y, z, x, c, t, last) <float[2] c = {1.5, -2}> {
        y = Relu (x)
        z = Exp (y)
        t = Transpose <perm = [1, 0]> (y)
        s = Shape (x)
        r = Reshape (y, s)
        last = Neg (r)
    }";
    for n in [0, 1, 5] {
        agree(&session(graph), &[("x", tensor(1, &[n, 4]))]);
    }
}

#[test]
fn memory_is_asked_for_where_a_step_can_write_it() {
    // `x` is passed through, `c` is a constant, and the size of `n` is known only at run time; `y2`
    // is a copy of `y`.
    let graph = "g (float[N, 4] x) => (x, c, y, y2, z, n) <float[2] c = {1.5, -2}> {
        y = Relu (x)
        y2 = Identity (y)
        z = Exp (y)
        n = NonZero (x)
    }";
    let session = session(graph);
    let x = tensor(1, &[3, 4]);
    let expected = session.run(vec![("x".to_string(), Value::Tensor(x.clone()))]).unwrap();
    let expected: Vec<&Tensor> = expected.iter().map(|(_, v)| v.as_tensor().unwrap()).collect();
    assert_eq!(lends(&session, &[("x", x.view())], &expected), [2, 3, 4]);
}

#[test]
fn memory_that_does_not_fit_an_output_is_refused() {
    let session = session("g (float[N, 4] x) => (y) { y = Neg (x) }");
    let x = tensor(5, &[2, 4]);
    let says = |memory: TensorViewMut<'_>| {
        let views = [("x", x.view())];
        let mut memory = Some(memory);
        let mut lend = |_, _, _: &[usize]| memory.take();
        let ran = session.run_lending(&views, &mut [None], &RunOptions::new(), Some(&mut lend));
        match ran.unwrap_err() {
            RunError::Input(error) => error.to_string(),
            other => other.to_string(),
        }
    };
    let mut memory = [0f32; 16];
    let mut memory = TensorViewMut::from_slice([16], &mut memory).unwrap();
    let bytes = memory.bytes_mut();
    assert_eq!(
        says(TensorViewMut::new(DataType::Float, [4, 2], &mut bytes[..32]).unwrap()),
        "the output 'y' is float[2, 4], but its memory is float[4, 2]"
    );
    assert_eq!(
        says(TensorViewMut::new(DataType::Float, [2, 4], &mut bytes[1..33]).unwrap()),
        "the memory of the output 'y' is not at an address of float"
    );
}

#[test]
fn sizes_that_only_a_run_finds_out_are_copied_in_the_end() {
    let graph = "g (float[N] x) => (y, n) { n = NonZero (x)  y = Neg (x) }";
    agree(&session(graph), &[("x", Tensor::from_vec([4], vec![0f32, 1.0, 0.0, 2.0]).unwrap())]);
}

#[test]
fn one_value_may_be_several_outputs() {
    let graph = "g (float[3] x) => (y, y2) { y = Abs (x)  y2 = Identity (y) }";
    agree(&session(graph), &[("x", tensor(3, &[3]))]);
}

#[test]
fn inputs_may_lie_anyhow() {
    let session = session("g (float[2, 3] x) => (y) { y = Neg (x) }");
    let across = tensor(4, &[3, 2]);
    let dense = across.view().transpose(&[1, 0]).unwrap().to_tensor().unwrap();
    let mut odd = vec![0u8; 1];
    odd.extend(dense.bytes());
    let mut expected = vec![0f32; 6];
    let into = |view: TensorView<'_>, out: &mut [f32]| {
        let mut outputs = [("y", TensorViewMut::from_slice([2, 3], out).unwrap())];
        session.run_into(&[("x", view)], &mut outputs).unwrap();
    };
    into(dense.view(), &mut expected);
    assert_eq!(expected[0], -dense.as_slice::<f32>().unwrap()[0]);
    for view in [
        across.view().transpose(&[1, 0]).unwrap(),
        TensorView::new(DataType::Float, [2, 3], &odd[1..]).unwrap(),
    ] {
        let mut out = vec![0f32; 6];
        into(view, &mut out);
        assert_eq!(out, expected);
    }
    // Memory of outputs, too.
    let mut bytes = [0u8; 25];
    let memory = TensorViewMut::new(DataType::Float, [2, 3], &mut bytes[1..]).unwrap();
    session.run_into(&[("x", dense.view())], &mut [("y", memory)]).unwrap();
    let words = bytes[1..].chunks(4).map(|word| f32::from_le_bytes(word.try_into().unwrap()));
    assert_eq!(words.collect::<Vec<f32>>(), expected);
}

#[test]
fn what_is_wanted_wrongly_is_refused() {
    let session = session("g (float[N, 4] x) => (y, z) { y = Neg (x)  z = NonZero (x) }");
    let x = tensor(5, &[2, 4]);
    let mut memory = [0f32; 64];
    let mut says = |outputs: &[(&'static str, &[usize])]| {
        let mut rest = &mut memory[..];
        let mut wanted = Vec::new();
        for (name, dims) in outputs {
            let (part, others) = rest.split_at_mut(dims.iter().product());
            wanted.push((*name, TensorViewMut::from_slice(*dims, part).unwrap()));
            rest = others;
        }
        match session.run_into(&[("x", x.view())], &mut wanted).unwrap_err() {
            RunError::Input(error) => error.to_string(),
            other => other.to_string(),
        }
    };
    assert_eq!(
        says(&[("y", &[4, 2])]),
        "the output 'y' is float[2, 4], but its memory is float[4, 2]"
    );
    assert_eq!(
        says(&[("w", &[1])]),
        "the model has no output 'w'\nhelp: use one of the model's outputs: 'y', 'z'"
    );
    assert_eq!(says(&[("y", &[2, 4]), ("y", &[2, 4])]), "the output 'y' is requested twice");
    // The number of columns is known only at the end.
    let what = says(&[("z", &[2, 3])]);
    assert!(what.starts_with("the output 'z': ") && what.contains("[2, 8]"), "{what}");
}

#[test]
fn after_the_first_runs_nothing_is_allocated() {
    let graph = "g (float[N, S, 32] x, float[N, S, S] m) => (y, q) <float[32, 32] w, float[32] b> {
        p = MatMul (x, w)
        q = Add (p, b)
        k = Transpose <perm = [0, 2, 1]> (q)
        a = MatMul (q, k)
        am = Add (a, m)
        f = Softmax <axis = -1> (am)
        o = MatMul (f, q)
        g = Gelu (o)
        l = LayerNormalization <axis = -1> (g, b, b)
        h, i = Split <axis = -1, num_outputs = 2> (l)
        j = Concat <axis = -1> (i, h)
        e = Mul (j, x)
        r = Abs (e)
        y = Sub (x, r)
    }";
    let numbers = |seed, count| {
        let numbers = Numbers::new(seed).floats(count);
        numbers.iter().map(f32::to_string).collect::<Vec<_>>().join(", ")
    };
    let graph = graph
        .replace("w, float", &format!("w = {{{}}}, float", numbers(1, 1024)))
        .replace("b>", &format!("b = {{{}}}>", numbers(2, 32)));
    for threads in [1, 2] {
        let session = compile(&complete(&graph), Optimization::All, threads);
        // Two sets of sizes, alternating.
        let cases = [(2, 3), (1, 40)].map(|(n, s)| (tensor(6, &[n, s, 32]), tensor(7, &[n, s, s])));
        let mut memory = cases.clone().map(|(x, _)| vec![0f32; 2 * x.len()]);
        let mut run = || {
            for ((x, m), memory) in cases.iter().zip(&mut memory) {
                let (y, q) = memory.split_at_mut(x.len());
                let mut outputs = [
                    ("y", TensorViewMut::from_slice(x.dims(), y).unwrap()),
                    ("q", TensorViewMut::from_slice(x.dims(), q).unwrap()),
                ];
                session.run_into(&[("x", x.view()), ("m", m.view())], &mut outputs).unwrap();
            }
        };
        for _ in 0..3 {
            run();
        }
        let asked = measure(&mut run);
        assert_eq!(asked.count_total, 0, "allocations with {threads} threads");
    }
}

#[test]
fn many_callers_have_memories_of_their_own() {
    let session =
        session("g (float[N, 8] x) => (y, z) { y = Softmax <axis = -1> (x)  z = Neg (y) }");
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let session = &session;
            scope.spawn(move || {
                for turn in 0..20 {
                    agree(
                        session,
                        &[("x", tensor(seed + 1, &[(seed as usize + turn) % 5 + 1, 8]))],
                    );
                }
            });
        }
    });
}
