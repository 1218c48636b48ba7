//! Tests of products with constants in 16 bits: of narrow models, which lose no precision, and
//! rounded ones.

use crate::both_ways::{Numbers, compile, complete, constant, inputs};
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Optimization, Options, Precision, Session};
use sardonyx_tensor::{Buffer, Value};
use sardonyx_text::{ParseOptions, parse_model};

fn list(numbers: &mut Numbers, count: usize) -> String {
    let numbers: Vec<String> = numbers.floats(count).iter().map(f32::to_string).collect();
    numbers.join(", ")
}

fn bytes(outputs: &[(String, Value)], name: &str) -> Vec<u8> {
    let (_, value) = outputs.iter().find(|(other, _)| other == name).unwrap();
    value.as_tensor().unwrap().bytes().to_vec()
}

/// Writes each product twice: with a constant, which is packed, and with an equal matrix that is
/// computed.
fn narrow_model(elem: u8) -> String {
    let mut numbers = Numbers::new(5);
    let (w, t, c) =
        (list(&mut numbers, 40 * 37), list(&mut numbers, 37 * 40), list(&mut numbers, 37));
    let to = format!("Cast <to = {elem}>");
    complete(&format!(
        "g (float[M, 40] x, float zero) => (y, y2, t, t2, g, g2) \
         <float[40, 37] wf = {{{w}}}, float[37, 40] tf = {{{t}}}, float[37] cf = {{{c}}}> {{ \
         a = {to} (x) w = {to} (wf) tn = {to} (tf) c = {to} (cf) \
         wz = Add (wf, zero) w2 = {to} (wz) tz = Add (tf, zero) tn2 = {to} (tz) \
         y = MatMul (a, w) y2 = MatMul (a, w2) \
         u = Transpose (tn) t = MatMul (a, u) u2 = Transpose (tn2) t2 = MatMul (a, u2) \
         g = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (a, tn, c) \
         g2 = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (a, tn2, c) }}"
    ))
}

#[test]
fn constants_of_narrow_models_are_packed_as_they_are() {
    for (elem, name) in [(10, "packed B in float16"), (16, "packed B in bfloat16")] {
        let text = narrow_model(elem);
        for threads in [1, 2] {
            let session = compile(&text, Optimization::All, threads);
            let steps = session.steps();
            let packed = steps.iter().filter(|step| step.kernel.starts_with(name));
            assert_eq!(packed.count(), 3, "{steps:#?}");
            for rows in [0, 7, 50] {
                let mut given = inputs(&session, &[("M", rows)], 3);
                given[1].1 = Value::from(
                    sardonyx_tensor::Tensor::zeros(sardonyx_tensor::DataType::Float, []).unwrap(),
                );
                let outputs = session.run(given).unwrap();
                for (packed, plain) in [("y", "y2"), ("t", "t2"), ("g", "g2")] {
                    let (packed, plain) = (bytes(&outputs, packed), bytes(&outputs, plain));
                    assert!(packed == plain, "{name}, {rows} rows");
                }
            }
        }
    }
}

/// Checks that floats which are numbers of 16 bits are packed so, with the bits of a matrix that is
/// computed in each run, and that others are not.
#[test]
fn floats_that_are_halves_are_packed_as_halves() {
    for (elem, name) in [
        (16, "packed B, each float a bfloat16"),
        (10, "packed B, each float a float16"),
        (1, "packed B,"),
    ] {
        let text = complete(&format!(
            "g (float[M, 512] x, float zero) => (y, y2) {{ {} n = Cast <to = {elem}> (w) \
             b = Cast <to = 1> (n) y = MatMul (x, b) b2 = Add (b, zero) y2 = MatMul (x, b2) }}",
            constant("w", &[512, 600])
        ));
        for threads in [1, 3] {
            let session = compile(&text, Optimization::All, threads);
            let steps = session.steps();
            if session.instruction_set() == "portable" {
                eprintln!("skipped: halves are not faster on the portable instruction set");
                return;
            }
            let packed = steps.iter().filter(|step| step.kernel.starts_with("packed B"));
            let kernels: Vec<&str> = packed.map(|step| step.kernel.as_str()).collect();
            assert!(kernels.len() == 1 && kernels[0].starts_with(name), "{steps:#?}");
            for rows in [13, 64] {
                let mut given = inputs(&session, &[("M", rows)], 3);
                given[1].1 = Value::from(
                    sardonyx_tensor::Tensor::zeros(sardonyx_tensor::DataType::Float, []).unwrap(),
                );
                let outputs = session.run(given).unwrap();
                assert!(bytes(&outputs, "y") == bytes(&outputs, "y2"), "{name}, {rows} rows");
            }
        }
    }
}

#[test]
fn rounded_constants_are_near_and_rows_decide_how_near() {
    let mut numbers = Numbers::new(7);
    let (w, small) = (list(&mut numbers, 64 * 96), list(&mut numbers, 96 * 3));
    let text = complete(&format!(
        "g (float[M, 64] x) => (y, z) <float[64, 96] w = {{{w}}}, float[96, 3] s = {{{small}}}> {{ \
         y = MatMul (x, w) z = MatMul (y, s) }}"
    ));
    let session = |precision: Precision| {
        let bytes = Buffer::from(text.as_bytes().to_vec());
        let model = parse_model(bytes, ParseOptions::default()).unwrap().model;
        let mut options = Options::with_threads(1);
        options.precision = precision;
        Session::compile(&model, &NoExternalData, &options).unwrap()
    };
    let (exact, fast) = (session(Precision::Exact), session(Precision::Fast));
    if exact.instruction_set() == "portable" {
        eprintln!("skipped: nothing is rounded on the portable instruction set");
        return;
    }
    let kernel = |session: &Session, step: usize| session.steps()[step].kernel.clone();
    assert!(kernel(&fast, 0).starts_with("packed B in float16"));
    assert!(kernel(&exact, 0).starts_with("packed B,"));
    assert!(kernel(&fast, 1).starts_with("packed B,"), "the smallest stay");
    for (rows, bound) in [(1, 4e-4), (5, 4e-4), (64, 6e-3)] {
        let given = inputs(&exact, &[("M", rows)], 3);
        let numbers = |session: &Session| -> Vec<f32> {
            let outputs = session.run(given.clone()).unwrap();
            outputs[0].1.as_tensor().unwrap().to_vec().unwrap()
        };
        let (exact, fast) = (numbers(&exact), numbers(&fast));
        let square = |x: f32| f64::from(x) * f64::from(x);
        let off: f64 = exact.iter().zip(&fast).map(|(a, b)| square(a - b)).sum();
        let all: f64 = exact.iter().map(|a| square(*a)).sum();
        let error = (off / all).sqrt();
        assert!(error > 0.0 && error < bound, "{rows} rows: {error}");
    }
}

#[test]
fn operands_of_attention_may_be_parts_of_another_value() {
    for elem in [10, 16] {
        let to = format!("Cast <to = {elem}>");
        let text = complete(&format!(
            "g (float[2, 3, 24] x) => (y, z) {{ \
             h = {to} (x) q, k, v = Split <axis = 2, num_outputs = 3> (h) \
             a = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) \
             kt = Transpose <perm = [0, 2, 1]> (k) kn = Transpose <perm = [0, 2, 1]> (kt) \
             b = Attention <q_num_heads = 2, kv_num_heads = 2> (q, kn, v) \
             y = Cast <to = 1> (a) z = Cast <to = 1> (b) }}"
        ));
        let session = compile(&text, Optimization::All, 1);
        let outputs = session.run(inputs(&session, &[], 3)).unwrap();
        assert!(bytes(&outputs, "y").iter().any(|byte| *byte != 0));
        assert_eq!(bytes(&outputs, "y"), bytes(&outputs, "z"));
    }
}
