//! Tests of pointwise convolutions inside the depthwise ones that read them: results have the same
//! bits as without fusion.

use crate::both_ways::{check_equal, complete, constant, inputs};
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Options, Precision, Session};
use sardonyx_tensor::Buffer;
use sardonyx_text::{ParseOptions, parse_model};

/// Writes a stem of 16 output channels, and an inverted residual block of 64.
fn block(sizes: &str, stride: usize, kernel: usize, ending: &str) -> String {
    let pad = kernel / 2;
    let mut text = format!("g (float[{sizes}] x) => (y) {{\n");
    for (name, dims) in [
        ("w0", &[16, 3, 3, 3][..]),
        ("w1", &[64, 16, 1, 1]),
        ("b1", &[64]),
        ("w2", &[64, 1, kernel, kernel]),
        ("b2", &[64]),
        ("w3", &[16, 64, 1, 1]),
    ] {
        text += &constant(name, dims);
    }
    text + &format!(
        "stem = Conv <pads = [1, 1, 1, 1]> (x, w0)
        wide = Conv (stem, w1, b1)
        many = HardSwish (wide)
        deep = Conv <group = 64, strides = [{stride}, {stride}],
                     pads = [{pad}, {pad}, {pad}, {pad}]> (many, w2, b2)
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

fn kernels_in_bands(session: &Session) -> usize {
    session.steps().iter().filter(|step| step.kernel.contains("in bands")).count()
}

#[test]
fn results_have_the_same_bits() {
    let relu = "high = Relu (deep)\n y = Conv (high, w3)";
    // The other operand of the sum is not an image of the block.
    let sum = "other = Conv <group = 64, pads = [1, 1, 1, 1]> (many, w2)\n y = Add (deep, other)";
    let planes = "y = Sigmoid (deep)";
    for (sizes, stride, kernel, ending, count) in [
        ("N, 3, 48, 60", 1, 3, relu, 1),
        ("N, 3, 57, 44", 2, 3, relu, 1),
        ("2, 3, 48, 48", 2, 5, relu, 1),
        ("N, 3, H, W", 1, 7, relu, 1),
        // Outputs of a graph are in rows.
        ("N, 3, 64, 48", 1, 3, planes, 0),
        // The intermediate image has two readers.
        ("N, 3, 64, 48", 1, 3, sum, 0),
        // An image of this size stays in the cache.
        ("N, 3, 24, 24", 1, 3, relu, 0),
    ] {
        let text = complete(&block(sizes, stride, kernel, ending));
        for precision in [Precision::Exact, Precision::Fast] {
            let without = compile(&text, 1, |options| {
                options.without = vec!["expansion".to_string()];
                options.precision = precision;
            });
            assert_eq!(kernels_in_bands(&without), 0);
            for threads in 1..=3 {
                let with = compile(&text, threads, |options| options.precision = precision);
                assert_eq!(kernels_in_bands(&with), count, "{sizes}");
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

#[test]
fn wrong_channels_are_an_error_with_the_place() {
    let text = complete(&block("N, C, 48, 60", 1, 3, "y = Conv (deep, w3)"));
    let session = compile(&text, 1, |_| {});
    let x = inputs(&session, &[("N", 1), ("C", 4)], 7);
    let error = session.run(x).unwrap_err().to_string();
    assert!(error.contains('4') && error.contains("stem"), "{error}");
}
