//! Tests of packed weights: sessions of one model share them, as long as one of them lives.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::draft::{Draft, floats, values};
use sardonyx_model::{Model, NoExternalData};
use sardonyx_runtime::{Options, Precision, Session, SharedWeights};
use sardonyx_tensor::{Buffer, Pages};

/// Makes a convolution and two products.
fn model() -> Model {
    let numbers = |count: u8| (0..count).map(|n| f32::from(n % 7) - 3.0).collect();
    Draft::new(13)
        .input("x", &["N", "4", "6", "6"])
        .constant("k", &[4, 4, 3, 3], numbers(144))
        .constant("w", &[4, 5], numbers(20))
        .constant("t", &[5, 6], numbers(30))
        .node("Conv", &["x", "k"], &["c"])
        .node("MatMul", &["c", "w"], &["p"])
        .node("MatMul", &["p", "t"], &["y"])
        .model()
}

fn session(model: &Model, weights: &SharedWeights, precision: Precision) -> Session {
    let mut options = Options::with_threads(1);
    options.weights = weights.clone();
    options.precision = precision;
    Session::compile(model, &NoExternalData, &options).unwrap()
}

#[test]
fn sessions_share_what_they_pack() {
    let (model, weights) = (model(), SharedWeights::default());
    let first = session(&model, &weights, Precision::Exact);
    assert_eq!(weights.in_use(), 3);
    let second = session(&model, &weights, Precision::Exact);
    assert_eq!(weights.in_use(), 3);
    let x: Vec<f32> = (0..144u8).map(f32::from).collect();
    let run = |session: &Session| {
        let outputs = session.run(values(&[("x", &[1, 4, 6, 6], &x)])).unwrap();
        floats(&outputs[0].1)
    };
    let expected = run(&first);
    assert_eq!(run(&second), expected);
    drop(first);
    assert_eq!(weights.in_use(), 3);
    assert_eq!(run(&second), expected);
    drop(second);
    assert_eq!(weights.in_use(), 0);
    assert_eq!(run(&session(&model, &weights, Precision::Exact)), expected);
}

#[test]
fn other_forms_and_other_models_have_their_own() {
    let (one, weights) = (model(), SharedWeights::default());
    let exact = session(&one, &weights, Precision::Exact);
    let fast = session(&one, &weights, Precision::Fast);
    assert_eq!(weights.in_use(), 5, "two products in two forms, and a convolution");
    // Equal values at another address.
    let other = session(&model(), &weights, Precision::Exact);
    assert_eq!(weights.in_use(), 8);
    drop((exact, fast, other));
    assert_eq!(weights.in_use(), 0);
}

/// Makes one constant in three convolutions, whose results are normalized: twice by a, and once by
/// b.
fn normalized_model() -> Model {
    Draft::new(13)
        .input("x", &["N", "4", "6", "6"])
        .constant("k", &[4, 4, 3, 3], (0..144u8).map(|n| f32::from(n % 7) - 3.0).collect())
        .constant("a", &[4], vec![1.0, 2.0, 3.0, 4.0])
        .constant("b", &[4], vec![1.0, 2.0, 3.0, 5.0])
        .constant("m", &[4], vec![0.5, -0.5, 0.25, 1.0])
        .constant("v", &[4], vec![1.0, 0.5, 2.0, 1.5])
        .node("Conv", &["x", "k"], &["p"])
        .node("BatchNormalization", &["p", "a", "m", "m", "v"], &["o"])
        .node("Relu", &["x"], &["r"])
        .node("Conv", &["r", "k"], &["q"])
        .node("BatchNormalization", &["q", "a", "m", "m", "v"], &["z"])
        .node("Neg", &["x"], &["n"])
        .node("Conv", &["n", "k"], &["s"])
        .node("BatchNormalization", &["s", "b", "m", "m", "v"], &["u"])
        .node("Sum", &["z", "u"], &["sum"])
        .node("Sub", &["o", "sum"], &["y"])
        .model()
}

#[test]
fn weights_are_shared_if_their_channels_have_the_same_factors() {
    let model = normalized_model();
    let weights = SharedWeights::default();
    let fused = session(&model, &weights, Precision::Exact);
    assert_eq!(weights.in_use(), 2, "two normalizations are the same");
    let again = session(&model, &weights, Precision::Exact);
    assert_eq!(weights.in_use(), 2);
    let mut options = Options::with_threads(1);
    options.weights = weights.clone();
    options.without = vec!["epilogue".to_string()];
    let plain = Session::compile(&model, &NoExternalData, &options).unwrap();
    assert_eq!(weights.in_use(), 3, "those without factors are others");
    let x: Vec<f32> = (0..144u8).map(|n| f32::from(n % 11) - 5.0).collect();
    let run = |session: &Session| {
        let outputs = session.run(values(&[("x", &[1, 4, 6, 6], &x)])).unwrap();
        floats(&outputs[0].1)
    };
    let (expected, found) = (run(&plain), run(&fused));
    let largest = expected.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    for (expected, found) in expected.iter().zip(&found) {
        assert!((expected - found).abs() <= 1e-5 * largest, "{expected} and {found}");
    }
    assert_eq!(run(&again), found);
}

/// Checks that constants of bytes are packed in one form, for any precision and zero points.
#[test]
fn bytes_have_one_form() {
    let signed = |elements: &[i8]| elements.iter().map(|element| element.cast_unsigned()).collect();
    let model = Draft::new(13)
        .input("x", &["2", "3"])
        .bytes("w", &[3, 2], true, signed(&[1, -2, 3, -4, 5, -128]))
        .bytes("z", &[], false, vec![1])
        .bytes("v", &[2], true, signed(&[-1, 2]))
        .node("Cast", &["x"], &["b"])
        .with(&[("to", 2)])
        .node("MatMulInteger", &["b", "w", "z"], &["p"])
        .node("MatMulInteger", &["b", "w", "z", "v"], &["q"])
        .node("Sub", &["p", "q"], &["d"])
        .node("Concat", &["p", "d"], &["c"])
        .with(&[("axis", 0)])
        .node("Cast", &["c"], &["y"])
        .with(&[("to", 1)])
        .model();
    let weights = SharedWeights::default();
    let sessions = [Precision::Exact, Precision::Fast].map(|precision| {
        let session = session(&model, &weights, precision);
        assert_eq!(weights.in_use(), 1);
        session
    });
    for session in &sessions {
        let x = [0.0, 1.0, 2.0, 253.0, 254.0, 255.0];
        let outputs = session.run(values(&[("x", &[2, 3], &x)])).unwrap();
        let products = [4.0, -126.0, 252.0 + 759.0 + 1270.0, -504.0 - 1012.0 - 254.0 * 128.0];
        // Contribution of the zero points of `w`: one for each 1 in the row of `x`.
        let less = [0.0, 0.0, -759.0, 2.0 * 759.0];
        assert_eq!(floats(&outputs[0].1), [products, less].concat());
    }
    drop(sessions);
    assert_eq!(weights.in_use(), 0);
}

/// Mapped file, and its bytes after another program has changed it.
struct Changing {
    before: Vec<u8>,
    after: Vec<u8>,
    has_changed: AtomicBool,
}

impl AsRef<[u8]> for Changing {
    fn as_ref(&self) -> &[u8] {
        if self.has_changed.load(Ordering::Relaxed) { &self.after } else { &self.before }
    }
}

impl Pages for Changing {
    fn fetch(&self, _: Range<usize>) {}
    fn give_back(&self, _: Range<usize>) {}
}

#[test]
fn sessions_of_a_mapped_file_share_one_copy_of_what_stays() {
    // More elements than inference keeps of a value, and fewer.
    let numbers = |count: u16| (0..count).map(|n| f32::from(n % 7) - 3.0).collect();
    let mut draft = Draft::new(13)
        .input("x", &["N", "40"])
        .constant("large", &[40, 40], numbers(1600))
        .constant("small", &[40], numbers(40))
        .constant("packed", &[40, 40], numbers(1600))
        .node("MatMul", &["x", "packed"], &["p"])
        .node("Add", &["c", "small"], &["y"]);
    draft.nodes.push(("Concat", &["p", "large"], &["c"], &[("axis", 0)]));
    let bytes = draft.model().to_bytes();
    let read = |bytes: &[u8]| Model::read(Buffer::from_vec(bytes.to_vec())).unwrap();
    let x: Vec<f32> = (0..80u8).map(f32::from).collect();
    let run = |session: &Session| {
        let outputs = session.run(values(&[("x", &[2, 40], &x)])).unwrap();
        floats(&outputs[0].1)
    };
    let expected = run(&session(&read(&bytes), &SharedWeights::default(), Precision::Exact));
    let file = Arc::new(Changing {
        after: bytes.iter().map(|byte| byte ^ 0x55).collect(),
        before: bytes,
        has_changed: AtomicBool::new(false),
    });
    let (model, weights) =
        (Model::read(Buffer::from_pages(file.clone())).unwrap(), SharedWeights::default());
    let first = session(&model, &weights, Precision::Exact);
    let copied = weights.copied_bytes();
    assert!((6400..6400 + 512).contains(&copied), "{copied} bytes");
    let second = session(&model, &weights, Precision::Exact);
    assert_eq!((weights.copied_bytes(), weights.in_use()), (copied, 1));
    drop(model);
    assert_eq!(Arc::strong_count(&file), 1);
    file.has_changed.store(true, Ordering::Relaxed);
    for session in [&first, &second] {
        assert_eq!(run(session), expected);
        assert!(session.steps().iter().all(|step| step.place.contains("node")));
    }
    drop(first);
    assert_eq!(run(&second), expected);
    drop(second);
    assert_eq!(weights.copied_bytes(), 0);
}
