//! Inputs and outputs that are not dense tensors.

use sardonyx_model::{Model, NoExternalData, Type, read_value, write_value};
use sardonyx_runtime::{Options, RunError, Session};
use sardonyx_tensor::{
    Bool8, Buffer, DataType, Map, MapKey, Sequence, Sparse, Tensor, TensorView, TensorViewMut,
    Value, ValueType,
};
use sardonyx_text::{ParseOptions, parse_model};

fn model(ir: i64, graph: &str) -> Model {
    let text = format!("<ir_version: {ir}, opset_import: [\"\": 21]>\n{graph}");
    let parsed = parse_model(Buffer::from_vec(text.into_bytes()), ParseOptions::default());
    parsed.unwrap_or_else(|error| panic!("{error:?}\n{graph}")).model
}

fn compile_with_limit(graph: &str, memory_limit: Option<usize>) -> Session {
    let mut options = Options::with_threads(1);
    options.memory_limit = memory_limit;
    Session::compile(&model(10, graph), &NoExternalData, &options).unwrap()
}

fn session(graph: &str) -> Session {
    compile_with_limit(graph, None)
}

fn run(session: &Session, inputs: &[(&str, Value)]) -> Result<Vec<Value>, RunError> {
    let inputs = inputs.iter().map(|(name, value)| (name.to_string(), value.clone()));
    let outputs = session.run(inputs.collect())?;
    Ok(outputs.into_iter().map(|(_, value)| value).collect())
}

fn floats(elements: &[f32]) -> Tensor {
    Tensor::from_slice([elements.len()], elements).unwrap()
}

fn sequence(items: &[Tensor]) -> Value {
    let items = items.iter().cloned();
    Value::Sequence(Sequence::from_tensors(DataType::Float, items).unwrap())
}

fn sparse(dims: &[usize], positions: &[i64], elements: &[f32]) -> Sparse {
    let indices = Tensor::from_slice([positions.len()], positions).unwrap();
    Sparse::new(dims, floats(elements), indices).unwrap()
}

#[test]
fn values_of_every_kind_pass_through() {
    // TYPE-14+, TYPE-15+, TYPE-16+, TYPE-18+, TYPE-23+, SHAPE-08+: items of one sequence differ in
    // a size with a name.
    let float = ValueType::Tensor(DataType::Float);
    let mut map = Map::new(DataType::Int64, float.clone()).unwrap();
    map.push(MapKey::Signed(-3), floats(&[1.0]).into()).unwrap();
    let mut maps = Sequence::new(Value::Map(map.clone()).value_type());
    maps.push(Value::Map(map.clone())).unwrap();
    let rows = [
        ("float[n]", Value::from(floats(&[1.0, 2.0]))),
        ("seq(float[n])", sequence(&[floats(&[1.0]), floats(&[2.0, 3.0])])),
        ("seq(float[])", sequence(&[floats(&[1.0]), floats(&[2.0, 3.0])])),
        ("seq(float[n])", Value::Sequence(Sequence::new(float.clone()))),
        ("map(int64, float[n])", Value::Map(map.clone())),
        ("seq(map(int64, float[]))", Value::Sequence(maps)),
        ("optional(float[n])", Value::some(floats(&[1.0]).into())),
        ("optional(float[n])", Value::none(float.clone())),
        ("optional(seq(float[n]))", Value::some(sequence(&[floats(&[1.0])]))),
        ("optional(map(int64, float[n]))", Value::some(Value::Map(map))),
        ("sparse_tensor(float[2, 3])", sparse(&[2, 3], &[1, 5], &[4.0, 5.0]).into()),
        ("optional(sparse_tensor(float[6]))", Value::some(sparse(&[6], &[2], &[4.0]).into())),
    ];
    for (ty, value) in rows {
        let graph = format!("g ({ty} x) => ({ty} y) {{ y = Identity (x) }}");
        let session = session(&graph);
        let declared = session.inputs()[0].ty().unwrap().clone();
        // Values in memory, and in a file with unaligned elements.
        let mut bytes = vec![b'.'; 1];
        bytes.extend(write_value(&value, "x").unwrap());
        let end = bytes.len();
        let file = Buffer::from_vec(bytes).slice(1..end).unwrap();
        let read = read_value(file, &declared).unwrap();
        assert_eq!(read, value, "{ty}");
        for given in [value.clone(), read] {
            let found = run(&session, &[("x", given)]).unwrap();
            assert_eq!(found, std::slice::from_ref(&value), "{ty}");
        }
    }
}

/// Encodes a field of a message.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

#[test]
fn stored_sequences_are_read_by_their_kind() {
    // TYPE-26+: files as others write them, byte by byte, with elements of each kind
    let float = ValueType::Tensor(DataType::Float);
    // dims: 1, data_type: FLOAT, float_data: 1.5
    let tensor = b"\x08\x01\x10\x01\x22\x04\x00\x00\xc0\x3f";
    // elem_type: TENSOR, and the list of tensors
    let tensors = [b"\x10\x01".to_vec(), field(3, tensor)].concat();
    let list = sequence(&[floats(&[1.5])]);
    let of = |item: Value| {
        let mut items = Sequence::new(item.value_type());
        items.push(item).unwrap();
        Value::Sequence(items)
    };
    // key_type: INT64, keys: -2
    let key = b"\x10\x07\x18\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    let stored_map = [key.to_vec(), field(5, &tensors)].concat();
    let mut map = Map::new(DataType::Int64, float).unwrap();
    map.push(MapKey::Signed(-2), floats(&[1.5]).into()).unwrap();
    // indices: dims: 1, data_type: INT64, int64_data: 2; and the dims of all: 4
    let indices = field(2, b"\x08\x01\x10\x07\x38\x02");
    let stored_sparse = [field(1, tensor), indices, b"\x18\x04".to_vec()].concat();
    let rows = [
        ("seq(float[n])", 1, field(3, tensor), list.clone()),
        (
            "seq(sparse_tensor(float[4]))",
            2,
            field(4, &stored_sparse),
            of(sparse(&[4], &[2], &[1.5]).into()),
        ),
        ("seq(seq(float[n]))", 3, field(5, &tensors), of(list)),
        ("seq(map(int64, float[n]))", 4, field(6, &stored_map), of(Value::Map(map))),
        ("seq(optional(float[n]))", 5, field(7, &tensors), of(Value::some(floats(&[1.5]).into()))),
    ];
    for (ty, kind, _, value) in &rows {
        let graph = format!("g ({ty} x) => ({ty} y) {{ y = Identity (x) }}");
        let session = session(&graph);
        let declared = session.inputs()[0].ty().unwrap().clone();
        for (stored_type, stored_kind, items, _) in &rows {
            let stored = [&[0x10, *stored_kind], &items[..]].concat();
            let read = read_value(Buffer::from_vec(stored), &declared);
            if kind == stored_kind {
                assert_eq!(read.as_ref(), Ok(value), "{ty}");
            } else {
                assert!(read.is_err(), "{stored_type} as {ty}");
            }
        }
        let found = run(&session, &[("x", value.clone())]).unwrap();
        assert_eq!(found, std::slice::from_ref(value), "{ty}");
    }
    // TYPE-28+: an optional that names no kind, or the kind of nothing, is empty
    let optional = Type::Optional(Box::new(Type::unranked(DataType::Float)));
    for (stored, value) in [
        (b"".to_vec(), Value::none(ValueType::Tensor(DataType::Float))),
        (b"\x10\x00".to_vec(), Value::none(ValueType::Tensor(DataType::Float))),
        (b"\x10\x01".to_vec(), Value::none(ValueType::Tensor(DataType::Float))),
        (tensors, Value::some(floats(&[1.5]).into())),
    ] {
        assert_eq!(read_value(Buffer::from_vec(stored), &optional), Ok(value));
    }
}

#[test]
fn elements_of_a_file_lie_where_kernels_can_read_them() {
    let graph = "g (seq(float[n]) s, optional(float[n]) o) => (y) <int64 i = {0}> {
        a = SequenceAt (s, i) b = OptionalGetElement (o) y = Add (a, b)
    }";
    let session = session(graph);
    for shift in 0..4 {
        let shifted = |value: &Value, ty: &str| {
            let mut bytes = vec![b'.'; shift];
            bytes.extend(write_value(value, "").unwrap());
            let end = bytes.len();
            let ty = match ty {
                "seq" => Type::Sequence(Box::new(Type::unranked(DataType::Float))),
                _ => Type::Optional(Box::new(Type::unranked(DataType::Float))),
            };
            read_value(Buffer::from_vec(bytes).slice(shift..end).unwrap(), &ty).unwrap()
        };
        let s = shifted(&sequence(&[floats(&[1.0, 2.0])]), "seq");
        let o = shifted(&Value::some(floats(&[10.0, 20.0]).into()), "optional");
        let outputs = run(&session, &[("s", s), ("o", o)]).unwrap();
        assert_eq!(outputs, [floats(&[11.0, 22.0]).into()]);
    }
}

#[test]
fn parts_that_do_not_fit_are_named() {
    // TYPE-15-, TYPE-16-, TYPE-23-, SHAPE-08-: ranks and numbers of items are enforced.
    let graph =
        "g (seq(float[N, 2]) s, float[N] x, optional(seq(float[2])) o, map(int64, float[2]) m)
        => (a, b, c, d) {
            a = Identity (s) b = Identity (x) c = Identity (o) d = Identity (m)
        }";
    let session = session(graph);
    let rows = |n: usize| Tensor::zeros(DataType::Float, [n, 2]).unwrap();
    let map = |of: Tensor| {
        let mut map = Map::new(DataType::Int64, ValueType::Tensor(DataType::Float)).unwrap();
        map.push(MapKey::Signed(0), of.into()).unwrap();
        Value::Map(map)
    };
    let good = || {
        vec![
            ("s", sequence(&[rows(3), rows(4)])),
            ("x", Value::from(floats(&[0.0; 3]))),
            ("o", Value::some(sequence(&[floats(&[1.0, 2.0])]))),
            ("m", map(floats(&[1.0, 2.0]))),
        ]
    };
    assert!(run(&session, &good()).is_ok());
    assert_eq!(session.inputs()[0].ty().unwrap().to_string(), "seq(float[N, 2])");
    let ints = Tensor::zeros(DataType::Int64, [3, 2]).unwrap();
    let of_ints = Sequence::from_tensors(DataType::Int64, [ints]).unwrap();
    let by_string = Map::new(DataType::String, ValueType::Tensor(DataType::Float)).unwrap();
    let wrong = [
        (0, sequence(&[rows(3), floats(&[1.0])]), "item 1 of the input 's' has 1 dimensions, [1]"),
        (
            0,
            sequence(&[rows(3), Tensor::zeros(DataType::Float, [2, 3]).unwrap()]),
            "item 1 of the input 's' has shape [2, 3], but the model expects float[N, 2]: dim",
        ),
        (0, Value::Sequence(of_ints), "item 0 of the input 's' has element type int64"),
        (0, rows(3).into(), "the input 's' has type tensor(float), but the model expects seq("),
        (
            2,
            Value::some(sequence(&[floats(&[1.0; 2]), floats(&[1.0; 3])])),
            "item 1 of the input 'o' has shape [3]",
        ),
        (3, map(floats(&[1.0])), "the value of entry 0 of the input 'm' has shape [1]"),
        (3, Value::Map(by_string), "the input 'm' has type map(string,tensor(float))"),
    ];
    for (index, value, expected) in wrong {
        let mut given = good();
        given[index].1 = value;
        let error = run(&session, &given).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\nlacks {expected}");
    }
}

#[test]
fn a_name_in_a_sequence_is_no_size_of_other_inputs() {
    let graph = "g (seq(float[N]) s, float[N] x, int64 i) => (y, z) {
        a = SequenceAt (s, i) y = Neg (a) z = Exp (x)
    }";
    let inputs = |i: i64| {
        let s = sequence(&[floats(&[1.0]), floats(&[2.0, 3.0, 4.0])]);
        [("s", s), ("x", floats(&[0.0, 0.0]).into()), ("i", Tensor::scalar(i).into())]
    };
    for (i, y) in [(0, floats(&[-1.0])), (1, floats(&[-2.0, -3.0, -4.0]))] {
        let outputs = run(&session(graph), &inputs(i)).unwrap();
        assert_eq!(outputs, [y.into(), floats(&[1.0, 1.0]).into()]);
    }
    // Unless the caller fixes the size.
    let mut options = Options::with_threads(1);
    options.dims = vec![("N".to_string(), 2)];
    let fixed = Session::compile(&model(10, graph), &NoExternalData, &options).unwrap();
    let error = run(&fixed, &inputs(0)).unwrap_err().to_string();
    assert!(error.contains("item 0 of the input 's' has shape [1]"), "{error}");
}

#[test]
fn a_name_is_one_size_in_graphs_of_nodes() {
    // SHAPE-06+
    let graph = "g (float[N] x, float[N] z, bool c) => (float[N] y) {
        y = If (c) <
            then_branch = t () => (float[N] a) { a = Add (x, z) },
            else_branch = e () => (float[N] b) { b = Sub (x, z) }
        >
    }";
    let session = session(graph);
    for elements in [&[1.0f32, 2.0][..], &[1.0, 2.0, 3.0]] {
        let doubled: Vec<f32> = elements.iter().map(|element| 2.0 * element).collect();
        for (c, y) in [(true, floats(&doubled)), (false, floats(&vec![0.0; elements.len()]))] {
            let x = || Value::from(floats(elements));
            let c = Tensor::scalar(Bool8::from(c)).into();
            assert_eq!(run(&session, &[("x", x()), ("z", x()), ("c", c)]).unwrap(), [y.into()]);
        }
    }
}

#[test]
fn what_is_empty_has_the_declared_type() {
    let graph = "g (seq(int64[2]) s, int64[2] x, optional(int64) o) => (t, h, p) {
        t = SequenceInsert (s, x) h = OptionalHasElement (o) p = Identity (o)
    }";
    let session = session(graph);
    let x = Tensor::from_slice([2], &[1i64, 2]).unwrap();
    // A file whose element type is undefined.
    let undefined = Type::Sequence(Box::new(Type::Tensor(Default::default())));
    let read = read_value(Buffer::from_vec(Vec::new()), &undefined).unwrap();
    assert_eq!(read, Value::Sequence(Sequence::new(ValueType::Tensor(DataType::Float))));
    let strings = Value::none(ValueType::Sequence(Box::new(ValueType::Tensor(DataType::String))));
    for (s, o) in [
        (read, Some(strings)),
        (Value::Sequence(Sequence::new(ValueType::Tensor(DataType::String))), None),
    ] {
        let mut inputs = vec![("s", s), ("x", x.clone().into())];
        inputs.extend(o.map(|o| ("o", o)));
        let expected = [
            Value::Sequence(Sequence::from_tensors(DataType::Int64, [x.clone()]).unwrap()),
            Tensor::scalar(Bool8::from(false)).into(),
            Value::none(ValueType::Tensor(DataType::Int64)),
        ];
        assert_eq!(run(&session, &inputs).unwrap(), expected);
    }
}

#[test]
fn optional_inputs_may_be_left_out() {
    // TYPE-18+, NODE-19+
    let graph = "g (float[2] x, optional(float[2]) o) => (y, h) {
        h = OptionalHasElement (o)
        y = If (h) <
            then_branch = a () => (float[2] t) { e = OptionalGetElement (o) t = Add (e, x) },
            else_branch = b () => (float[2] f) { f = Neg (x) }
        >
    }";
    // Version 8 of the format introduced optionals: for earlier ones the checker warns, and the
    // model runs.
    for ir in [7, 8, 10] {
        let options = Options::with_threads(1);
        let session = Session::compile(&model(ir, graph), &NoExternalData, &options).unwrap();
        let required: Vec<bool> = session.inputs().iter().map(|port| port.is_required()).collect();
        assert_eq!(required, [true, false]);
        let (x, o) = (floats(&[1.0, 2.0]), floats(&[10.0, 20.0]));
        let with = floats(&[11.0, 22.0]);
        for given in [Value::from(o.clone()), Value::some(o.clone().into())] {
            let outputs = run(&session, &[("x", x.clone().into()), ("o", given)]).unwrap();
            assert_eq!(outputs[0], with.clone().into());
        }
        let outputs = run(&session, &[("x", x.clone().into())]).unwrap();
        assert_eq!(outputs[0], floats(&[-1.0, -2.0]).into());
        // Views of the caller's memory as inputs, and memory of the caller for outputs.
        for (given, expected) in [(Some(&o), [11.0, 22.0]), (None, [-1.0, -2.0])] {
            let mut y = [0f32; 2];
            let mut inputs: Vec<(&str, TensorView<'_>)> = vec![("x", x.view())];
            inputs.extend(given.map(|o| ("o", o.view())));
            let memory = TensorViewMut::from_slice([2], &mut y).unwrap();
            session.run_into(&inputs, &mut [("y", memory)]).unwrap();
            assert_eq!(y, expected);
        }
    }
}

#[test]
fn sparse_tensors_are_dense_within() {
    // TENSOR-34+, TENSOR-35+, TENSOR-38+
    let graph = "g (sparse_tensor(float[N, 3]) a, float[N, 3] b) => (float[N, 3] y, sparse_tensor(float[N, 3]) z) {
        y = Sub (a, b) z = Mul (a, b)
    }";
    let session = session(graph);
    assert_eq!(session.inputs()[0].ty().unwrap().to_string(), "sparse_tensor(float[N, 3])");
    assert_eq!(session.outputs()[1].ty().unwrap().to_string(), "sparse_tensor(float[N, 3])");
    let whole = |elements: &[f32]| Tensor::from_slice([2, 3], elements).unwrap();
    let a = sparse(&[2, 3], &[1, 5], &[4.0, 5.0]);
    let b = whole(&[1.0, 2.0, 3.0, 4.0, 0.0, 6.0]);
    let y = whole(&[-1.0, 2.0, -3.0, -4.0, 0.0, -1.0]);
    let z = sparse(&[2, 3], &[1, 5], &[8.0, 30.0]);
    // Dense and sparse values are interchangeable.
    for (a, b) in [
        (Value::from(a.clone()), Value::from(b.clone())),
        (a.to_dense().unwrap().into(), b.clone().into()),
        (a.to_dense().unwrap().into(), Sparse::from_dense(&b).unwrap().into()),
    ] {
        let outputs = run(&session, &[("a", a), ("b", b)]).unwrap();
        assert_eq!(outputs, [Value::from(y.clone()), z.clone().into()]);
    }
    let three = sparse(&[2, 4], &[1], &[4.0]);
    let error = run(&session, &[("a", three.into()), ("b", b.into())]).unwrap_err();
    assert!(error.to_string().contains("dimension 1 is 4 and should be 3"), "{error}");
}

#[test]
fn what_sparse_tensors_stand_for_is_counted() {
    let graph = "g (float[N] x) => (float[N] y) { y = Neg (x) }";
    let large = || Value::from(sparse(&[1 << 20], &[7], &[1.0]));
    assert!(run(&session(graph), &[("x", large())]).is_ok());
    let error =
        run(&compile_with_limit(graph, Some(1 << 20)), &[("x", large())]).unwrap_err().to_string();
    assert!(error.contains("'x'") && error.contains("memory limit"), "{error}");
    let huge = Value::from(sparse(&[1 << 40], &[7], &[1.0]));
    let error = run(&session(graph), &[("x", huge)]).unwrap_err().to_string();
    assert!(error.contains("1 values are stored for 1099511627776"), "{error}");
}

#[test]
fn growing_sequences_end_at_the_memory_limit() {
    // Each step appends 64 KB to the sequence.
    let mut text = "g (float[16384] x) => (s64) { s0 = SequenceEmpty ()\n".to_string();
    for index in 0..64 {
        let one = index + 1;
        text += &format!(
            "a{index} = Concat <axis = 0> (x) s{one} = SequenceInsert (s{index}, a{index})\n"
        );
    }
    text += "}";
    let x = || [("x", Value::from(floats(&[0.5; 16384])))];
    let needed = 64 * (65536 + Sequence::ITEM_BYTES);
    assert!(run(&compile_with_limit(&text, Some(needed + (1 << 16))), &x()).is_ok());
    let error = run(&compile_with_limit(&text, Some(needed / 2)), &x()).unwrap_err().to_string();
    assert!(error.contains("SequenceInsert") || error.contains("Concat"), "{error}");
    assert!(error.contains("the memory limit is"), "{error}");
    // So do the items of a split of a tensor without elements.
    let cut = "g (float[N, 0] x) => (s) { s = SplitToSequence (x) }";
    let wide = [("x", Tensor::zeros(DataType::Float, [1 << 40, 0]).unwrap().into())];
    let error = run(&compile_with_limit(cut, Some(1 << 30)), &wide).unwrap_err().to_string();
    assert!(error.contains("the memory limit is"), "{error}");
}
