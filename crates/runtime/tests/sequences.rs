//! Tests of sequences and optionals within a model: results, and costs.

use std::fmt::Write;

use crate::both_ways::{compile, complete};
use allocation_counter::measure;
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Optimization, Options, Session};
use sardonyx_tensor::{
    Bool8, Buffer, DataType, Element, Sequence, StringArray, Tensor, Value, ValueType,
};
use sardonyx_text::{ParseOptions, parse_model};

fn session(graph: &str) -> Session {
    compile(&complete(graph), Optimization::All, 1)
}

fn run(graph: &str, inputs: &[(&str, Value)]) -> Result<Vec<Value>, String> {
    let given = || inputs.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let mut found = [Optimization::Off, Optimization::All].map(|optimization| {
        let outputs = compile(&complete(graph), optimization, 1).run(given());
        let outputs = outputs.map_err(|error| error.to_string())?;
        Ok(outputs.into_iter().map(|(_, value)| value).collect())
    });
    let [plain, all] = &mut found;
    assert_eq!(plain, all, "{graph}");
    std::mem::replace(all, Ok(Vec::new()))
}

fn tensor<T: Element>(dims: &[usize], elements: &[T]) -> Tensor {
    Tensor::from_slice(dims, elements).unwrap()
}

fn strings(texts: &[&str]) -> Tensor {
    Tensor::from_strings([texts.len()], texts.iter().collect::<StringArray>()).unwrap()
}

fn sequence(items: &[Tensor]) -> Value {
    let elem = items[0].data_type();
    Value::Sequence(Sequence::from_tensors(elem, items.iter().cloned()).unwrap())
}

fn ints(numbers: &[i64]) -> Tensor {
    tensor(&[numbers.len()], numbers)
}

/// Makes three vectors of different lengths, for several element types.
fn triples() -> Vec<[Tensor; 3]> {
    let codes =
        |elem: DataType, codes: &[u8]| Tensor::from_codes(elem, [codes.len()], codes).unwrap();
    let mut all: Vec<[Tensor; 3]> = [DataType::Int4, DataType::Uint2, DataType::Bool]
        .map(|elem| [codes(elem, &[1]), codes(elem, &[1, 0, 1]), codes(elem, &[])])
        .into();
    all.push([strings(&["a"]), strings(&["", "ü", "c"]), strings(&[])]);
    all.push([tensor(&[1], &[1.5f32]), tensor(&[3], &[2f32, 3.0, 4.0]), tensor(&[0], &[0f32; 0])]);
    all
}

#[test]
fn items_are_found_put_in_and_taken_out() {
    // TYPE-15+
    for [a, b, c] in triples() {
        let elem = a.data_type();
        let abc = || sequence(&[a.clone(), b.clone(), c.clone()]);
        let graph =
            |op: &str| format!("g (seq({elem}[n]) s, {elem}[m] x, int64 p) => (y) {{ y = {op} }}");
        let (item, some) = (|of: &Tensor| Value::Tensor(of.clone()), Value::Tensor(b.clone()));
        let rows: [(&str, i64, Value); 12] = [
            ("SequenceAt (s, p)", 0, item(&a)),
            ("SequenceAt (s, p)", -1, item(&c)),
            ("SequenceAt (s, p)", -3, item(&a)),
            ("SequenceInsert (s, x)", 0, sequence(&[a.clone(), b.clone(), c.clone(), b.clone()])),
            (
                "SequenceInsert (s, x, p)",
                0,
                sequence(&[b.clone(), a.clone(), b.clone(), c.clone()]),
            ),
            (
                "SequenceInsert (s, x, p)",
                3,
                sequence(&[a.clone(), b.clone(), c.clone(), b.clone()]),
            ),
            (
                "SequenceInsert (s, x, p)",
                -1,
                sequence(&[a.clone(), b.clone(), b.clone(), c.clone()]),
            ),
            ("SequenceErase (s)", 0, sequence(&[a.clone(), b.clone()])),
            ("SequenceErase (s, p)", 1, sequence(&[a.clone(), c.clone()])),
            ("SequenceErase (s, p)", -3, sequence(&[b.clone(), c.clone()])),
            ("SequenceLength (s)", 0, Value::Tensor(Tensor::scalar(3i64))),
            ("SequenceConstruct (x, x)", 0, sequence(&[b.clone(), b.clone()])),
        ];
        for (op, position, expected) in rows {
            // Positions of any type and shape with one element.
            for p in [Tensor::scalar(position), ints(&[position]), Tensor::scalar(position as i32)]
            {
                let graph = graph(op).replace("int64 p", &format!("{}[...] p", p.data_type()));
                let graph = graph.replace("[...] p", if p.rank() == 0 { " p" } else { "[1] p" });
                let inputs = [("s", abc()), ("x", some.clone()), ("p", Value::Tensor(p))];
                let found = run(&graph, &inputs).unwrap();
                assert_eq!(found, std::slice::from_ref(&expected), "{op} {position}");
            }
        }
    }
}

#[test]
fn tensors_are_cut_and_joined() {
    let x = tensor(&[5, 2], &[0i32, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let part = |dims: &[usize], elements: &[i32]| tensor(dims, elements);
    let split = |attributes: &str, split: Option<&Tensor>| {
        let (input, given) = match split {
            Some(split) if split.rank() == 0 => (", int64 k", "(x, k)"),
            Some(_) => (", int64[n] k", "(x, k)"),
            None => ("", "(x)"),
        };
        let graph = format!(
            "g (int32[5, 2] x{input}) => (y) {{ y = SplitToSequence {attributes} {given} }}"
        );
        let mut inputs = vec![("x", Value::Tensor(x.clone()))];
        inputs.extend(split.map(|split| ("k", Value::Tensor(split.clone()))));
        run(&graph, &inputs).map(|mut outputs| outputs.remove(0))
    };
    let columns = [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]];
    let rows: [(&str, Option<Tensor>, Value); 5] = [
        ("<axis = 1>", None, sequence(&columns.map(|column| part(&[5, 1], &column)))),
        ("<axis = -1, keepdims = 0>", None, sequence(&columns.map(|c| part(&[5], &c)))),
        (
            "<keepdims = 0>",
            Some(Tensor::scalar(2i64)),
            sequence(&[
                part(&[2, 2], &[0, 1, 2, 3]),
                part(&[2, 2], &[4, 5, 6, 7]),
                part(&[1, 2], &[8, 9]),
            ]),
        ),
        (
            "",
            Some(ints(&[0, 4, 1])),
            sequence(&[
                part(&[0, 2], &[]),
                part(&[4, 2], &[0, 1, 2, 3, 4, 5, 6, 7]),
                part(&[1, 2], &[8, 9]),
            ]),
        ),
        ("", Some(ints(&[5])), sequence(std::slice::from_ref(&x))),
    ];
    for (attributes, given, expected) in rows {
        assert_eq!(split(attributes, given.as_ref()).unwrap(), expected, "{attributes}");
    }
    for (given, expected) in [
        (Tensor::scalar(0i64), "the length of a part must be greater than 0, not 0"),
        (ints(&[2, 2]), "the lengths [2, 2] do not add up to the size 5 of axis 0"),
        (ints(&[6, -1]), "the lengths [6, -1] include a negative one"),
    ] {
        let error = split("", Some(&given)).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for [a, b, c] in triples() {
        let elem = a.data_type();
        let items = |items: &[&Tensor]| {
            sequence(&items.iter().map(|item| (*item).clone()).collect::<Vec<_>>())
        };
        let join = |attributes: &str, given: Value| {
            let graph = format!(
                "g (seq({elem}[...]) s) => (y) {{ y = ConcatFromSequence <{attributes}> (s) }}"
            );
            let graph = graph.replace("[...]", "[]");
            run(&graph, &[("s", given)]).map(|mut outputs| outputs.remove(0))
        };
        let joined = join("axis = 0", items(&[&a, &c, &b, &a])).unwrap();
        let cut = format!(
            "g ({elem}[5] x) => (y, a, b) <int64[4] k = {{1, 0, 3, 1}}, int64[1] i = {{-2}}> {{
                y = SplitToSequence (x, k) a = SequenceAt (y, i) t = SequenceErase (y, i)
                b = SequenceLength (t)
            }}"
        );
        let found = run(&cut, &[("x", joined)]).unwrap();
        let expected =
            [items(&[&a, &c, &b, &a]), Value::Tensor(b.clone()), Tensor::scalar(3i64).into()];
        assert_eq!(found, expected);
        let Value::Tensor(stacked) = join("axis = -1, new_axis = 1", items(&[&b, &b])).unwrap()
        else {
            panic!("a tensor")
        };
        assert_eq!(stacked.dims(), [3, 2]);
        let error = join("axis = 0, new_axis = 1", items(&[&b, &b, &a])).unwrap_err();
        assert!(
            error.contains("items 0 and 2 have shapes [3] and [1], which cannot be stacked"),
            "{error}"
        );
    }
    let rank = "g (seq(float[]) s) => (y) { y = ConcatFromSequence <axis = 1> (s) }";
    let items = sequence(&[tensor(&[2, 1], &[1f32, 2.0]), tensor(&[1, 1], &[1f32])]);
    let error = run(rank, &[("s", items)]).unwrap_err();
    assert!(error.contains("items 0 and 1 have shapes [2, 1] and [1, 1]"), "{error}");
}

#[test]
fn what_a_sequence_does_not_have_is_said() {
    // TYPE-15-
    let of = |count: usize| {
        let items = (0..count).map(|_| Tensor::scalar(1f32));
        Value::Sequence(Sequence::from_tensors(DataType::Float, items).unwrap())
    };
    let rows: [(&str, usize, i64, &str); 8] = [
        ("SequenceAt (s, p)", 3, 3, "position 3 is out of range: the sequence has 3 items"),
        ("SequenceAt (s, p)", 1, -2, "position -2 is out of range: the sequence has 1 item"),
        ("SequenceAt (s, p)", 0, i64::MIN, "is out of range: the sequence is empty"),
        ("SequenceErase (s)", 0, 0, "position -1 is out of range: the sequence is empty"),
        ("SequenceErase (s, p)", 2, 2, "position 2 is out of range: the sequence has 2 items"),
        ("SequenceInsert (s, x, p)", 2, 3, "position 3 is out of range: the sequence has 2 items"),
        ("SequenceInsert (s, x, p)", 2, -3, "position -3 is out of range: the sequence"),
        ("ConcatFromSequence <axis = 0> (s)", 0, 0, "the sequence is empty"),
    ];
    for (op, count, position, expected) in rows {
        let graph = format!("g (seq(float[]) s, float x, int64 p) => (y) {{ y = {op} }}");
        let x = Value::Tensor(Tensor::scalar(1f32));
        let inputs = [("s", of(count)), ("x", x), ("p", Tensor::scalar(position).into())];
        let error = run(&graph, &inputs).unwrap_err();
        assert!(error.contains(expected), "{error}\nlacks {expected}");
        assert!(error.contains(op.split(' ').next().unwrap()), "{error}");
        assert!(error.contains("seq(float"), "what it was given is told: {error}");
    }
    // Types that meet only at run time.
    let grown = "g (seq(float) s, x, int64 p) => (y) { y = SequenceInsert (s, x) }";
    let inputs =
        [("s", of(1)), ("x", Tensor::scalar(1i64).into()), ("p", Tensor::scalar(0i64).into())];
    let error = run(grown, &inputs).unwrap_err();
    assert!(error.contains("tensor(int64)") || error.contains("int64"), "{error}");
}

/// Writes a sequence that grows by one tensor after another.
fn growing(count: usize, from: &str) -> String {
    let mut text = format!("g (float[256] x) => (s) {{ s0 = {from}\n");
    for index in 0..count {
        let next = if index + 1 == count { "s".to_string() } else { format!("s{}", index + 1) };
        writeln!(
            text,
            "c{index} = Constant <value_float = {index}.0> () a{index} = Add (x, c{index})"
        )
        .unwrap();
        writeln!(text, "{next} = SequenceInsert (s{index}, a{index})").unwrap();
    }
    text + "}"
}

#[test]
fn growing_is_linear() {
    let x = || vec![("x".to_string(), Value::Tensor(tensor(&[256], &[0.5f32; 256])))];
    let taken = |count: usize| {
        let session = session(&growing(count, "SequenceEmpty ()"));
        // The first run makes plans.
        session.run(x()).unwrap();
        let mut items = 0;
        let measured = measure(|| {
            let outputs = session.run(x()).unwrap();
            let Value::Sequence(sequence) = &outputs[0].1 else { panic!("a sequence") };
            items = sequence.len();
        });
        assert_eq!(items, count);
        measured.bytes_total as usize
    };
    // The memory of some items is reused from the previous run.
    let (some, more) = (taken(600), taken(2400));
    // Steps that copied the sequence would take 48 bytes for each item: 138 MB in total.
    assert!(more < 2400 * (4096 + 1024), "{more}");
    assert!(more < some * 8, "{some} {more}");
}

/// Loop that inserts one tensor after another into a sequence.
const LOOP: &str = "g (int64 n, float[1024] x) => (s) {
    e = SequenceEmpty ()
    s = Loop (n, , e) <
        body = iteration (int64 i, bool c, seq(float[1024]) t) => (bool c2, seq(float[1024]) t2) {
            c2 = Identity (c) f = Cast <to = 1> (i) a = Add (x, f) t2 = SequenceInsert (t, a)
        }
    >
}";

fn iterations(n: i64) -> Vec<(String, Value)> {
    let x = tensor(&[1024], &[0.5f32; 1024]);
    vec![("n".to_string(), Tensor::scalar(n).into()), ("x".to_string(), x.into())]
}

#[test]
fn a_loop_that_grows_a_sequence_is_linear() {
    let taken = |n: i64| {
        let session = session(LOOP);
        let mut outputs = Vec::new();
        // A later run would reuse the memory of these items.
        let measured = measure(|| outputs = session.run(iterations(n)).unwrap());
        let Value::Sequence(sequence) = &outputs[0].1 else { panic!("a sequence") };
        assert_eq!(sequence.len(), n as usize);
        let last = sequence.items()[n as usize - 1].as_tensor().unwrap();
        assert_eq!(last.to_vec::<f32>().unwrap(), [n as f32 - 0.5; 1024]);
        measured.bytes_total as usize
    };
    // 4 KB and a little for each item. A copy of the sequence in each iteration would take 1 GB for
    // the handles alone.
    let (some, more) = (taken(1000), taken(6000));
    assert!(more < some * 9 && more < 6000 * 6000, "{some} {more}");
}

#[test]
fn a_loop_that_grows_a_sequence_ends_at_the_memory_limit() {
    let mut options = Options::with_threads(1);
    options.memory_limit = Some(8 << 20);
    let text = Buffer::from(complete(LOOP).into_bytes());
    let model = parse_model(text, ParseOptions::default()).unwrap().model;
    let session = Session::compile(&model, &NoExternalData, &options).unwrap();
    assert!(session.run(iterations(1000)).is_ok());
    let mut error = String::new();
    let measured = measure(|| error = session.run(iterations(1 << 40)).unwrap_err().to_string());
    assert!(error.contains(" in iteration 19"), "{error}");
    assert!(error.contains("the memory limit is 8388608"), "{error}");
    assert!(measured.bytes_max <= 9 << 20, "{}", measured.bytes_max);
}

#[test]
fn each_item_of_a_sequence_is_mapped() {
    let graph = "g (seq(float[N]) s, float[1] x) => (y, z) {
        y, z = SequenceMap (s, x) <
            body = each (float[N] a, float[1] b) => (float[N] c, int64[1] d) {
                c = Add (a, b) d = Shape (a)
            }
        >
    }";
    let s = sequence(&[tensor(&[1], &[1f32]), tensor(&[2], &[2f32, 3.0])]);
    let found = run(graph, &[("s", s), ("x", tensor(&[1], &[10f32]).into())]).unwrap();
    let lengths = [ints(&[1]), ints(&[2])];
    let expected =
        [sequence(&[tensor(&[1], &[11f32]), tensor(&[2], &[12f32, 13.0])]), sequence(&lengths)];
    assert_eq!(found, expected);
    let empty = Value::Sequence(Sequence::new(ValueType::Tensor(DataType::Float)));
    let found = run(graph, &[("s", empty.clone()), ("x", tensor(&[1], &[10f32]).into())]).unwrap();
    let no_ints = Value::Sequence(Sequence::new(ValueType::Tensor(DataType::Int64)));
    assert_eq!(found, [empty, no_ints]);
}

#[test]
fn what_nothing_else_reads_is_put_in_without_a_copy() {
    let graph = "g (float[1024] x) => (s) { e = SequenceEmpty () s = SequenceInsert (e, x) }";
    let session = session(graph);
    let x = tensor(&[1024], &[1f32; 1024]);
    let at = x.bytes().as_ptr();
    let outputs = session.run(vec![("x".to_string(), x.into())]).unwrap();
    let Value::Sequence(sequence) = &outputs[0].1 else { panic!("a sequence") };
    assert_eq!(sequence.items()[0].as_tensor().unwrap().bytes().as_ptr(), at);
    // An item that becomes an output is shared, and the sequence is unchanged.
    let graph = "g (seq(float[1024]) s, int64 p) => (y, s2, z) {
        y = SequenceAt (s, p) s2 = Identity (s) o = Optional (y) z = OptionalGetElement (o)
    }";
    let session = self::session(graph);
    let inputs = vec![
        ("s".to_string(), Value::Sequence(sequence.clone())),
        ("p".to_string(), Tensor::scalar(0i64).into()),
    ];
    let outputs = session.run(inputs).unwrap();
    assert_eq!(outputs[0].1.as_tensor().unwrap().bytes().as_ptr(), at);
    assert_eq!(outputs[0].1, outputs[2].1);
    assert_eq!(outputs[1].1, Value::Sequence(sequence.clone()));
}

#[test]
fn constants_do_not_become_sequences_ahead_of_time() {
    let graph = "g () => (s, n, h, o, e) <float[2] w = {1, 2}> {
        s0 = SequenceConstruct (w, w) a = SequenceEmpty () b = SequenceEmpty ()
        c = SequenceInsert (a, w) d = SequenceInsert (b, w)
        one = Constant <value_int = -1> () last = SequenceAt (d, one)
        e = Neg (last) s = SequenceInsert (s0, last) n = SequenceLength (c)
        h = OptionalHasElement (w) o = Optional (w)
    }";
    let w = tensor(&[2], &[1f32, 2.0]);
    let expected = [
        sequence(&[w.clone(), w.clone(), w.clone()]),
        Tensor::scalar(1i64).into(),
        Tensor::scalar(Bool8::from(true)).into(),
        Value::some(w.into()),
        tensor(&[2], &[-1f32, -2.0]).into(),
    ];
    assert_eq!(run(graph, &[]).unwrap(), expected);
    // Twice, as a run must not take over values of the session.
    let session = session(graph);
    for _ in 0..2 {
        let outputs = session.run(Vec::new()).unwrap().into_iter().map(|(_, value)| value);
        assert_eq!(outputs.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn optionals_are_made_asked_and_opened() {
    // NODE-19+, TYPE-18+
    let x = || Value::Tensor(tensor(&[2], &[1f32, 2.0]));
    let truth = |value: bool| Value::Tensor(Tensor::scalar(Bool8::from(value)));
    let graph = "g (float[2] x, seq(float[2]) s) => (a, b, c, d, e, f, h) {
        o = Optional (x) a = OptionalGetElement (o) b = OptionalHasElement (o)
        n = Optional <type: type_proto = seq(float[2])> () c = OptionalHasElement (n)
        d = OptionalHasElement ()
        os = Optional (s) t = OptionalGetElement (os) e = SequenceLength (t)
        f = OptionalGetElement (x) h = OptionalHasElement (s)
    }";
    let inputs = [("x", x()), ("s", sequence(&[tensor(&[2], &[1f32, 2.0])]))];
    let one = Tensor::scalar(1i64).into();
    let expected = [x(), truth(true), truth(false), truth(false), one, x(), truth(true)];
    assert_eq!(run(graph, &inputs).unwrap(), expected);
    // NODE-19-
    let graph = "g (optional(float[2]) o) => (y) { [open] y = OptionalGetElement (o) }";
    let error = run(graph, &[("o", Value::none(ValueType::Tensor(DataType::Float)))]).unwrap_err();
    assert!(error.contains("the optional is empty"), "{error}");
    assert!(error.contains("'open'"), "{error}");
}

#[test]
fn branches_give_sequences_and_optionals() {
    let graph = "g (bool c, float[2] x, seq(float[2]) s) => (y, o) {
        y = If (c) <
            then_branch = a () => (seq(float[2]) t) { t = SequenceInsert (s, x) },
            else_branch = b () => (seq(float[2]) e) { e = SequenceConstruct (x, x, x) }
        >
        o = If (c) <
            then_branch = a2 () => (optional(float[2]) t2) { t2 = Optional (x) },
            else_branch = b2 () => (optional(float[2]) e2) { e2 = Optional <type: type_proto = float[2]> () }
        >
    }";
    let x = tensor(&[2], &[1f32, 2.0]);
    for (c, length, o) in [
        (true, 2, Value::some(x.clone().into())),
        (false, 3, Value::none(ValueType::Tensor(DataType::Float))),
    ] {
        let c = Value::Tensor(Tensor::scalar(Bool8::from(c)));
        let inputs = [("c", c), ("x", x.clone().into()), ("s", sequence(std::slice::from_ref(&x)))];
        let expected = [sequence(&vec![x.clone(); length]), o];
        assert_eq!(run(graph, &inputs).unwrap(), expected);
    }
}
