//! Tests of gates inside the pointwise convolutions that read them: results have the same bits as
//! without fusion.

use crate::both_ways::{check_equal, complete, constant, inputs};
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Options, Precision, Session};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_model};

/// Writes a convolution of 72 channels, the gate, and the nodes after it.
fn block(sizes: &str, ending: &str) -> String {
    let mut text = format!("g (float[{sizes}] x) => (y) {{\n");
    for (name, dims) in [
        ("w0", &[72, 3, 3, 3][..]),
        ("w1", &[8, 72, 1, 1]),
        ("w2", &[72, 8, 1, 1]),
        ("w3", &[24, 72, 1, 1]),
        ("w4", &[24, 72, 3, 3]),
        ("b3", &[24]),
    ] {
        text += &constant(name, dims);
    }
    text + &format!(
        "wide = Conv <pads = [1, 1, 1, 1]> (x, w0)
        mean = GlobalAveragePool (wide)
        few = Conv (mean, w1)
        some = Relu (few)
        many = Conv (some, w2)
        gate = HardSigmoid (many)
        {ending}
    }}"
    )
}

fn compile(text: &str, threads: usize, change: impl Fn(&mut Options)) -> Session {
    let parsed = parse_model(Buffer::from(text.as_bytes().to_vec()), ParseOptions::default());
    let model = parsed.unwrap_or_else(|error| panic!("{error:?}\n{text}")).model;
    let mut options = Options::with_threads(threads);
    change(&mut options);
    Session::compile(&model, &NoExternalData, &options).unwrap()
}

fn gated_kernels(session: &Session) -> usize {
    session.steps().iter().filter(|step| step.kernel.starts_with("gate")).count()
}

#[test]
fn results_have_the_same_bits() {
    let plain = "high = Mul (wide, gate)\n y = Conv (high, w3)";
    let ended = "high = Mul (gate, wide)\n low = Conv (high, w3, b3)\n y = Relu (low)";
    let twice = "high = Mul (gate, wide)\n a = Conv (high, w3)\n b = Conv (high, w4)
                 c = GlobalMaxPool (b)\n y = Add (a, c)";
    let strided = "high = Mul (wide, gate)\n y = Conv <strides = [2, 2]> (high, w3)";
    let taps = "high = Mul (wide, gate)\n y = Conv (high, w4)";
    for (sizes, ending, count) in [
        ("N, 3, 28, 28", plain, 1),
        ("N, 3, 7, 9", ended, 1),
        ("2, 3, 5, 5", ended, 1),
        ("N, 3, H, W", ended, 1),
        ("N, 3, 12, 12", twice, 0),
        ("N, 3, 12, 12", strided, 0),
        ("N, 3, 12, 12", taps, 0),
    ] {
        let text = complete(&block(sizes, ending));
        for precision in [Precision::Exact, Precision::Fast] {
            let without = compile(&text, 1, |options| {
                options.without = vec!["gate".to_string()];
                options.precision = precision;
            });
            assert_eq!(gated_kernels(&without), 0);
            for threads in 1..=3 {
                let with = compile(&text, threads, |options| options.precision = precision);
                assert_eq!(gated_kernels(&with), count, "{sizes} {ending}");
                let batches: &[usize] = if sizes.starts_with('N') { &[0, 1, 3] } else { &[2] };
                for batch in batches {
                    let sizes = [("N", *batch), ("H", 30), ("W", 41)];
                    let x = inputs(&with, &sizes, 7);
                    let expected = without.run(x.clone()).unwrap();
                    check_equal(&expected, &with.run(x).unwrap(), 0.0, &text);
                }
            }
        }
    }
}
