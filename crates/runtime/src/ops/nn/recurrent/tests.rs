//! Tests of recurrent layers against results of ONNX Runtime 1.31.

use sardonyx_ops::AttrValue::{self, Float, Floats, Int, Strings};
use sardonyx_tensor::{Element, Tensor};

use super::*;
use crate::ops::testing::{run_with_constants, tensor};

type Attribute = (&'static str, AttrValue<'static>);

fn words(list: &[&'static str]) -> AttrValue<'static> {
    Strings(list.iter().map(|word| word.as_bytes().into()).collect())
}

/// Makes numbers between -0.8 and 0.8, by a formula that the reference script shares.
fn numbers<T: Element>(dims: &[usize], factor: usize, of: fn(f32) -> T) -> Tensor {
    let len: usize = dims.iter().product();
    let numbers = (0..len).map(|i| of(((i * factor % 17) as f32 - 8.0) / 10.0));
    tensor(dims, &numbers.collect::<Vec<T>>())
}

/// Makes inputs of two steps of two sequences, two input and two hidden features; the second
/// sequence has one step.
fn make_inputs<T: Element>(op: &str, directions: usize, of: fn(f32) -> T) -> Vec<Tensor> {
    let (gates, states) = match op {
        "LSTM" => (4, [directions, 2, 2]),
        "GRU" => (3, [directions, 2, 2]),
        _ => (1, [directions, 2, 2]),
    };
    let mut inputs = vec![
        numbers(&[2, 2, 2], 5, of),
        numbers(&[directions, 2 * gates, 2], 7, of),
        numbers(&[directions, 2 * gates, 2], 3, of),
        numbers(&[directions, 4 * gates], 11, of),
        tensor(&[2], &[2i32, 1]),
        numbers(&states, 13, of),
    ];
    if op == "LSTM" {
        inputs.extend([numbers(&states, 2, of), numbers(&[directions, 6], 6, of)]);
    }
    inputs
}

fn outputs(
    op: &str,
    attributes: &[Attribute],
    inputs: &[Tensor],
    constants: &[usize],
) -> Result<Vec<Tensor>, String> {
    let inputs: Vec<_> = inputs.iter().map(Some).collect();
    let count = if op == "LSTM" { 3 } else { 2 };
    run_with_constants(op, attributes, &inputs, constants, count)
}

#[track_caller]
fn close<T: Element + Into<f64>>(found: &Tensor, expected: &[f64], tolerance: f64) {
    let found = found.to_vec::<T>().unwrap();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.into_iter().zip(expected) {
        let found: f64 = found.into();
        assert!((found - expected).abs() <= tolerance, "{found}, not {expected}");
    }
}

/// Operator, attributes, and expected outputs.
type RecurrentCase = (&'static str, Vec<Attribute>, Vec<Vec<f64>>);

fn cases() -> Vec<RecurrentCase> {
    let both = || ("direction", AttrValue::from("bidirectional"));
    vec![
        (
            "LSTM",
            vec![both()],
            vec![
                vec![
                    -0.224108, 0.011511, -0.070816, 0.03129, -0.308303, 0.079427, 0.246485,
                    0.176756, -0.179692, 0.094495, 0.0, 0.0, -0.167219, 0.058943, 0.0, 0.0,
                ],
                vec![
                    -0.179692, 0.094495, -0.070816, 0.03129, -0.308303, 0.079427, 0.246485,
                    0.176756,
                ],
                vec![-0.658973, 0.171032, -0.27145, 0.04675, -0.471699, 0.1584, 0.334898, 0.471377],
            ],
        ),
        (
            "LSTM",
            vec![
                ("direction", "reverse".into()),
                ("clip", Float(0.5)),
                ("input_forget", Int(1)),
                // The defaults, in letters of any case.
                ("activations", words(&["sigmoid", "TANH", "Tanh"])),
            ],
            vec![
                vec![-0.153668, 0.077245, -0.085379, 0.014466, -0.147064, 0.006211, 0.0, 0.0],
                vec![-0.153668, 0.077245, -0.085379, 0.014466],
                vec![-0.432038, 0.157309, -0.230122, 0.023244],
            ],
        ),
        (
            "GRU",
            vec![both()],
            vec![
                vec![
                    -0.4669, 0.136132, 0.241217, -0.548171, -0.469679, 0.191971, -0.01551,
                    -0.115584, -0.172407, -0.187008, 0.0, 0.0, -0.543078, 0.116125, 0.0, 0.0,
                ],
                vec![
                    -0.172407, -0.187008, 0.241217, -0.548171, -0.469679, 0.191971, -0.01551,
                    -0.115584,
                ],
            ],
        ),
        (
            "GRU",
            vec![("linear_before_reset", Int(1)), ("clip", Float(0.4))],
            vec![
                vec![-0.329146, 0.149864, 0.254148, -0.336188, -0.053159, -0.091158, 0.0, 0.0],
                vec![-0.053159, -0.091158, 0.254148, -0.336188],
            ],
        ),
        (
            "RNN",
            vec![
                both(),
                ("activations", words(&["Affine", "ScaledTanh"])),
                ("activation_alpha", Floats(vec![0.5, 2.0].into())),
                ("activation_beta", Floats(vec![0.25, 0.75].into())),
            ],
            vec![
                vec![
                    0.23, 0.725, -0.38, 0.695, 1.491351, -1.499611, 0.596322, 0.194384, -0.37325,
                    0.66325, 0.0, 0.0, 1.166666, -0.074965, 0.0, 0.0,
                ],
                vec![-0.37325, 0.66325, -0.38, 0.695, 1.491351, -1.499611, 0.596322, 0.194384],
            ],
        ),
    ]
}

/// Exchanges the leading axes of a tensor, as `layout` 1 requires.
fn transpose<T: Element>(from: &Tensor, [a, b, c]: [usize; 3], order: [usize; 3]) -> Tensor {
    let dims = [a, b, c];
    let inner = from.len() / (a * b * c);
    let elements = from.to_vec::<T>().unwrap();
    let to = order.map(|axis| dims[axis]);
    let mut all = Vec::new();
    for i in 0..to[0] {
        for j in 0..to[1] {
            for k in 0..to[2] {
                let mut at = [0; 3];
                (at[order[0]], at[order[1]], at[order[2]]) = (i, j, k);
                let start = ((at[0] * b + at[1]) * c + at[2]) * inner;
                all.extend_from_slice(&elements[start..start + inner]);
            }
        }
    }
    let mut full: Vec<usize> = to.to_vec();
    full.push(inner);
    tensor(if from.rank() == 4 { &full } else { &to }, &all)
}

#[test]
fn layers_of_every_kind() {
    for (op, attributes, expected) in cases() {
        let directions = expected[1].len() / 4;
        for constants in [&[][..], &[W, R], &[R]] {
            let inputs = make_inputs(op, directions, |x| x);
            let found = outputs(op, &attributes, &inputs, constants).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                close::<f32>(found, expected, 2e-6);
            }
            let half = make_inputs(op, directions, half::f16::from_f32);
            let found = outputs(op, &attributes, &half, constants).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                close::<half::f16>(found, expected, 4e-3);
            }
        }
        let found = outputs(op, &attributes, &make_inputs(op, directions, f64::from), &[]).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            close::<f64>(found, expected, 2e-6);
        }
    }
}

#[test]
fn the_batch_first() {
    for (op, mut attributes, expected) in cases() {
        let directions = expected[1].len() / 4;
        let mut inputs = make_inputs(op, directions, |x| x);
        let steps_first = outputs(op, &attributes, &inputs, &[]).unwrap();
        attributes.push(("layout", Int(1)));
        inputs[X] = transpose::<f32>(&inputs[X], [2, 2, 2], [1, 0, 2]);
        for index in [INITIAL_H, INITIAL_C] {
            if let Some(states) = inputs.get_mut(index) {
                *states = transpose::<f32>(states, [directions, 2, 2], [1, 0, 2]);
            }
        }
        let found = outputs(op, &attributes, &inputs, &[W, R]).unwrap();
        let y = transpose::<f32>(&steps_first[0], [2, directions, 2], [2, 0, 1]);
        let mut expected = vec![y];
        for states in &steps_first[1..] {
            expected.push(transpose::<f32>(states, [directions, 2, 2], [1, 0, 2]));
        }
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.dims(), expected.dims());
            let expected = expected.to_vec::<f32>().unwrap();
            close::<f32>(found, &expected.into_iter().map(f64::from).collect::<Vec<_>>(), 1e-6);
        }
    }
}

#[test]
fn functions_by_name() {
    let [alpha, beta] = [("activation_alpha", 0.3), ("activation_beta", 0.6)]
        .map(|(name, number)| (name, Floats(vec![number].into())));
    let rows = [
        ("Relu", true, [0.0, 0.895, 0.0, 0.89]),
        ("LeakyRelu", true, [-0.34962, 0.8974, -0.378, 0.89]),
        ("ThresholdedRelu", true, [0.0, 0.895, 0.0, 0.89]),
        ("HardSigmoid", true, [0.11613, 0.83127, 0.222, 0.867]),
        ("Elu", true, [-0.206478, 0.897353, -0.214904, 0.89]),
        ("Softsign", true, [-0.477212, 0.461326, -0.557522, 0.470899]),
        ("Softplus", true, [0.142389, 1.166294, 0.249711, 1.234055]),
        ("Sigmoid", true, [0.189608, 0.68441, 0.220974, 0.70889]),
        ("LeakyRelu", false, [-0.011747, 0.89508, -0.0126, 0.89]),
        ("HardSigmoid", false, [0.21228, 0.65412, 0.248, 0.678]),
        ("Elu", false, [-0.68134, 0.902842, -0.716346, 0.89]),
    ];
    for (name, with_numbers, expected) in rows {
        let mut attributes = vec![("activations", words(&[name]))];
        if with_numbers {
            attributes.extend([alpha.clone(), beta.clone()]);
        }
        let found = outputs("RNN", &attributes, &make_inputs("RNN", 1, |x| x), &[]).unwrap();
        close::<f32>(&found[1], &expected, 2e-6);
    }
}

#[test]
fn without_steps_states_are_zero() {
    for op in ["LSTM", "GRU", "RNN"] {
        let mut inputs = make_inputs(op, 1, |x| x);
        inputs[LENGTHS] = tensor(&[2], &[0i32, 0]);
        for found in outputs(op, &[], &inputs, &[]).unwrap() {
            assert!(found.to_vec::<f32>().unwrap().iter().all(|number| *number == 0.0), "{op}");
        }
        inputs[X] = numbers(&[0, 2, 2], 1, |x| x);
        let found = outputs(op, &[], &inputs, &[W, R]).unwrap();
        assert_eq!((found[0].dims(), found[1].dims()), (&[0, 1, 2, 2][..], &[1, 2, 2][..]));
    }
}

#[test]
fn nothing_to_do() {
    for [steps, batch, input, hidden] in
        [[2, 0, 2, 2], [2, 2, 2, 0], [1 << 40, 0, 2, 2], [2, 1, 0, 3], [0, 0, 0, 0]]
    {
        let zeros = |dims: &[usize]| numbers(dims, 0, |x| x);
        let inputs = [
            zeros(&[steps, batch, input]),
            zeros(&[1, 4 * hidden, input]),
            zeros(&[1, 4 * hidden, hidden]),
        ];
        for constants in [&[][..], &[W, R]] {
            let found = outputs("LSTM", &[], &inputs, constants).unwrap();
            assert_eq!(found[0].dims(), [steps, 1, batch, hidden]);
            assert_eq!(found[2].dims(), [1, batch, hidden]);
        }
    }
    let inputs = [[1 << 40, 1 << 20, 0], [1, 8, 0], [1, 8, 2]].map(|dims| numbers(&dims, 0, |x| x));
    assert_eq!(
        outputs("LSTM", &[], &inputs, &[]).unwrap_err(),
        "1099511627776 steps of 1048576 sequences with 2 elements are too many"
    );
}

#[test]
fn what_the_standard_does_not_know() {
    let rows: [(&str, AttrValue<'static>, &str); 6] = [
        (
            "direction",
            "sideways".into(),
            "attribute 'direction' is 'sideways', not forward, reverse or bidirectional",
        ),
        ("clip", Float(-1.0), "attribute 'clip' is -1, but must be positive"),
        ("layout", Int(2), "attribute 'layout' is 2, not 0 or 1"),
        ("activations", words(&["Tanh"]), "attribute 'activations' has 1 functions, not 3"),
        (
            "activations",
            words(&["Tanh", "Tangent", "Tanh"]),
            "attribute 'activations' names 'Tangent', which is not an activation function",
        ),
        ("hidden_size", Int(3), "hidden_size is 3, but R has dimensions [1, 8, 2]"),
    ];
    for (name, value, expected) in rows {
        let found = outputs("LSTM", &[(name, value)], &make_inputs("LSTM", 1, |x| x), &[R]);
        assert_eq!(found.unwrap_err(), expected);
    }
}

#[test]
fn inputs_that_do_not_fit() {
    let zeros = |dims: &[usize]| numbers(dims, 0, |x| x);
    let rows = [
        (X, zeros(&[2, 2]), "X has dimensions [2, 2], not 3"),
        (
            X,
            zeros(&[2, 2, 3]),
            "W has dimensions [1, 8, 2], but the other inputs require [1, 8, 3]",
        ),
        (
            W,
            zeros(&[2, 8, 2]),
            "W has dimensions [2, 8, 2], but the other inputs require [1, 8, 2]",
        ),
        (
            R,
            zeros(&[1, 9, 2]),
            "R has dimensions [1, 9, 2], but the other inputs require [1, 8, 2]",
        ),
        (R, zeros(&[8]), "R has dimensions [8], not 3"),
        (B, zeros(&[1, 8]), "B has dimensions [1, 8], but the other inputs require [1, 16]"),
        (
            INITIAL_C,
            zeros(&[1, 3, 2]),
            "initial_c has dimensions [1, 3, 2], but the other inputs require [1, 2, 2]",
        ),
        (PEEPHOLES, zeros(&[1, 2]), "P has dimensions [1, 2], but the other inputs require [1, 6]"),
        (LENGTHS, tensor(&[2], &[1i32, 3]), "sequence_lens[1] is 3, but X has 2 steps"),
        (LENGTHS, tensor(&[2], &[-1i32, 3]), "sequence_lens[0] is -1, but X has 2 steps"),
    ];
    for constants in [&[][..], &[W, R]] {
        for (index, wrong, expected) in &rows {
            let mut inputs = make_inputs("LSTM", 1, |x| x);
            inputs[*index] = wrong.clone();
            let found = outputs("LSTM", &[], &inputs, constants);
            assert_eq!(found.unwrap_err(), *expected, "{constants:?}");
        }
    }
}
