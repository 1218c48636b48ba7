//! Convolutions against the plain loop in f64.

// A failure to set up a case is a failed test.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gemm::Activation;
use crate::gemm::tests::random;
use crate::{Isa, Pool};

struct Case {
    what: &'static str,
    batch: usize,
    channels: (usize, usize),
    groups: usize,
    spatial: &'static [usize],
    kernel: &'static [usize],
    strides: &'static [usize],
    dilations: &'static [usize],
    pads: (&'static [usize], &'static [usize]),
}

impl Case {
    fn params(&self) -> ConvParams {
        ConvParams {
            in_channels: self.channels.0,
            out_channels: self.channels.1,
            groups: self.groups,
            kernel: self.kernel.to_vec(),
            strides: self.strides.to_vec(),
            dilations: self.dilations.to_vec(),
            pads_begin: self.pads.0.to_vec(),
            pads_end: self.pads.1.to_vec(),
        }
    }
}

const fn case(
    what: &'static str,
    channels: (usize, usize),
    spatial: &'static [usize],
    kernel: &'static [usize],
) -> Case {
    const ONES: &[usize] = &[1, 1, 1];
    const ZEROS: &[usize] = &[0, 0, 0];
    let rank = kernel.len();
    let (ones, zeros) = (ONES.split_at(rank).0, ZEROS.split_at(rank).0);
    Case {
        what,
        batch: 1,
        channels,
        groups: 1,
        spatial,
        kernel,
        strides: ones,
        dilations: ones,
        pads: (zeros, zeros),
    }
}

const CASES: &[Case] = &[
    Case { batch: 2, ..case("pointwise", (5, 7), &[9, 11], &[1, 1]) },
    Case { strides: &[2, 2], ..case("strided pointwise", (5, 40), &[9, 11], &[1, 1]) },
    Case { pads: (&[1, 2], &[0, 1]), ..case("padded pointwise", (3, 4), &[5, 6], &[1, 1]) },
    Case { pads: (&[1, 1], &[1, 1]), batch: 2, ..case("3x3", (6, 33), &[13, 17], &[3, 3]) },
    Case { pads: (&[1, 1], &[1, 1]), ..case("7x7 plane", (70, 70), &[7, 7], &[3, 3]) },
    case("no padding", (3, 5), &[8, 40], &[3, 3]),
    Case {
        pads: (&[1, 1], &[1, 1]),
        strides: &[2, 2],
        ..case("3x3 stride 2", (4, 9), &[20, 21], &[3, 3])
    },
    Case {
        pads: (&[3, 3], &[3, 3]),
        strides: &[2, 2],
        ..case("first layer", (3, 20), &[30, 43], &[7, 7])
    },
    Case {
        pads: (&[0, 2], &[3, 1]),
        strides: &[3, 1],
        ..case("asymmetric", (2, 3), &[10, 12], &[4, 5])
    },
    Case {
        pads: (&[2, 4], &[2, 4]),
        dilations: &[2, 4],
        ..case("dilated", (3, 4), &[12, 14], &[3, 3])
    },
    Case { strides: &[1, 3], dilations: &[3, 2], ..case("all", (3, 4), &[12, 44], &[3, 3]) },
    Case {
        groups: 3,
        batch: 3,
        pads: (&[1, 1], &[1, 1]),
        ..case("groups", (6, 9), &[7, 9], &[3, 3])
    },
    Case { pads: (&[9, 9], &[9, 9]), ..case("mostly padding", (2, 3), &[2, 2], &[3, 3]) },
    Case { pads: (&[2], &[1]), ..case("1-D", (4, 5), &[37], &[4]) },
    Case { pads: (&[2], &[1]), strides: &[4], ..case("1-D stride 4", (4, 5), &[137], &[4]) },
    Case {
        pads: (&[1, 0, 1], &[1, 1, 0]),
        strides: &[1, 2, 1],
        ..case("3-D", (3, 4), &[4, 6, 7], &[3, 2, 3])
    },
    case("one column", (40, 70), &[9, 1], &[3, 1]),
    case("deep", (80, 40), &[5, 5], &[3, 3]),
    Case { batch: 2, ..case("one position", (40, 70), &[1, 1], &[1, 1]) },
    Case { batch: 0, ..case("empty batch", (3, 4), &[5, 5], &[3, 3]) },
    Case { pads: (&[1, 1], &[1, 1]), ..case("no input channels", (0, 4), &[5, 5], &[3, 3]) },
    Case {
        groups: 6,
        batch: 2,
        pads: (&[1, 1], &[1, 1]),
        ..case("depthwise", (6, 6), &[13, 37], &[3, 3])
    },
    Case { groups: 4, pads: (&[1, 1], &[1, 1]), ..case("depthwise 7x7", (4, 4), &[7, 7], &[3, 3]) },
    Case {
        groups: 6,
        pads: (&[0, 1], &[1, 1]),
        strides: &[2, 2],
        ..case("depthwise stride 2", (6, 6), &[14, 70], &[3, 3])
    },
    Case {
        groups: 4,
        pads: (&[2, 2], &[2, 2]),
        strides: &[1, 1],
        ..case("depthwise 5x5", (4, 4), &[14, 40], &[5, 5])
    },
    Case {
        groups: 4,
        pads: (&[2, 2], &[2, 2]),
        strides: &[3, 3],
        dilations: &[2, 3],
        ..case("depthwise odd", (4, 12), &[14, 70], &[3, 4])
    },
    Case {
        groups: 5,
        pads: (&[1, 1, 1], &[1, 1, 1]),
        ..case("depthwise 3-D", (5, 5), &[4, 5, 18], &[3, 3, 3])
    },
    Case { groups: 5, pads: (&[3], &[0]), ..case("depthwise 1-D", (5, 5), &[50], &[4]) },
    Case { groups: 3, pads: (&[40], &[2]), ..case("depthwise 1-D, long", (3, 3), &[90], &[41]) },
    Case {
        groups: 3,
        pads: (&[0, 9], &[1, 9]),
        ..case("depthwise, wide kernel", (3, 3), &[9, 60], &[2, 19])
    },
];

#[test]
fn all_strategies_agree_with_the_plain_loop() {
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3)];
    for case in CASES {
        let params = case.params();
        let out_dims = params.output_dims(case.spatial).unwrap();
        let out_plane = product(&out_dims).unwrap();
        let in_len = case.batch * case.channels.0 * product(case.spatial).unwrap();
        let out_len = case.batch * case.channels.1 * out_plane;
        let input = random(in_len, 1);
        let weights = random(params.weights_len().unwrap(), 2);
        let bias = random(case.channels.1, 3);
        let residual = random(out_len, 4);
        let reference = |f: fn(f32) -> f64, bias: Option<&[f64]>| {
            let wide = |x: &[f32]| x.iter().map(|&x| f(x)).collect::<Vec<f64>>();
            let mut out = vec![0.0; out_len];
            let (x, w) = (wide(&input), wide(&weights));
            conv_naive(&params, case.batch, case.spatial, &x, &w, bias, &mut out).unwrap();
            out
        };
        let want = reference(f64::from, None);
        let magnitude = reference(|x| f64::from(x.abs()), None);
        let bytes: Vec<u8> =
            std::iter::once(0).chain(weights.iter().flat_map(|x| x.to_le_bytes())).collect();
        let (per_position, factor) = (random(out_plane, 5), random(out_len, 6));
        let addend = random(case.channels.1 * out_plane, 7);
        let addend = MatRef::row_major(&addend, case.channels.1, out_plane);
        let epilogues = [
            Epilogue::default(),
            Epilogue {
                bias: Some(Bias::Row(&bias)),
                residual: Some(&residual),
                activation: Activation::Relu,
                ..Epilogue::default()
            },
            Epilogue {
                bias: Some(Bias::Row(&bias)),
                activation: Activation::Swish(1.0),
                ..Epilogue::default()
            },
            Epilogue {
                alpha: 0.5,
                bias: Some(Bias::Col(&per_position)),
                addend: Some((0.25, addend)),
                residual: Some(&residual),
                activation: Activation::Gelu,
                factor: Some(&factor),
            },
        ];
        let element = |epilogue: &Epilogue<'_>, i: usize| {
            let (channel, position) = (i / out_plane % case.channels.1, i % out_plane);
            let mut x = f64::from(epilogue.alpha) * want[i];
            x += match epilogue.bias {
                Some(Bias::Row(bias)) => f64::from(bias[channel]),
                Some(Bias::Col(bias)) => f64::from(bias[position]),
                None => 0.0,
            };
            if let Some((beta, addend)) = epilogue.addend {
                x += f64::from(beta * addend.get(channel, position));
            }
            x += epilogue.residual.map_or(0.0, |residual| f64::from(residual[i]));
            let x = f64::from(epilogue.activation.apply(x as f32));
            x * epilogue.factor.map_or(1.0, |factor| f64::from(factor[i]))
        };
        for &isa in Isa::available() {
            let conv = PackedConv::new(isa, params.clone(), &weights).unwrap();
            let source = WeightSource::LeBytes(&bytes[1..]);
            let again = PackedConv::scaled(isa, params.clone(), source, None).unwrap();
            for (number, epilogue) in epilogues.iter().enumerate() {
                let run = |conv: &PackedConv, pool: &Pool| {
                    let mut out = vec![f32::NAN; out_len];
                    conv.run(pool, case.batch, case.spatial, &input, &mut out, epilogue).unwrap();
                    out
                };
                let got = run(&conv, &pools[0]);
                for i in 0..out_len {
                    let x = element(epilogue, i);
                    // A chain of roundings, each at most eps / 2 of the magnitudes so far; random
                    // signs stay far below.
                    let bound = 64.0 * f64::from(f32::EPSILON) * (magnitude[i] + 2.0);
                    assert!(
                        (f64::from(got[i]) - x).abs() <= bound,
                        "{} {isa:?} epilogue {number} at {i}: {}, not {x}",
                        case.what,
                        got[i]
                    );
                }
                for pool in &pools[1..] {
                    assert_eq!(got, run(&conv, pool), "{} {isa:?} {pool:?}", case.what);
                }
                assert_eq!(got, run(&again, &pools[1]), "{} from bytes", case.what);
            }
        }
    }
}

#[test]
fn weights_are_scaled_in_double_precision_and_rounded_once() {
    for case in CASES {
        let params = case.params();
        let weights = random(params.weights_len().unwrap(), 2);
        // No float has these bits.
        let scale: Vec<f64> =
            random(case.channels.1, 8).iter().map(|x| f64::from(*x) / 3.0).collect();
        let per_channel = weights.len() / case.channels.1;
        let scaled = |i: usize, weight: f32| (f64::from(weight) * scale[i / per_channel]) as f32;
        let expected: Vec<f32> = weights.iter().enumerate().map(|(i, x)| scaled(i, *x)).collect();
        let filled: Vec<f32> = (0..weights.len()).map(|i| scaled(i, 0.7)).collect();
        let bytes: Vec<u8> = weights.iter().flat_map(|x| x.to_le_bytes()).collect();
        let input = random(case.batch * case.channels.0 * product(case.spatial).unwrap(), 1);
        let out_dims = params.output_dims(case.spatial).unwrap();
        let out_len = case.batch * case.channels.1 * product(&out_dims).unwrap();
        for &isa in Isa::available() {
            let run = |weights: WeightSource<'_>, scale: Option<&[f64]>| {
                let conv = PackedConv::scaled(isa, params.clone(), weights, scale).unwrap();
                let mut out = vec![f32::NAN; out_len];
                let epilogue = Epilogue::default();
                let pool = Pool::new(2);
                conv.run(&pool, case.batch, case.spatial, &input, &mut out, &epilogue).unwrap();
                out
            };
            let want = run(WeightSource::Floats(&expected), None);
            assert_eq!(run(WeightSource::Floats(&weights), Some(&scale)), want, "{}", case.what);
            assert_eq!(run(WeightSource::LeBytes(&bytes), Some(&scale)), want, "{}", case.what);
            let want = run(WeightSource::Floats(&filled), None);
            assert_eq!(run(WeightSource::Fill(0.7), Some(&scale)), want, "{}", case.what);
        }
    }
}

#[test]
fn padding_does_not_spread_infinities() {
    // An infinite weight times padding would be NaN if padding were multiplied as a zero input. The
    // product form does multiply it, as every im2col does; what must hold is that finite weights
    // keep NaN inputs local.
    let params = ConvParams {
        pads_begin: vec![1, 1],
        pads_end: vec![1, 1],
        ..ConvParams::new(2, 3, &[3, 3])
    };
    let weights = random(2 * 3 * 9, 1);
    for &isa in Isa::available() {
        let conv = PackedConv::new(isa, params.clone(), &weights).unwrap();
        let mut input = random(2 * 9 * 40, 2);
        input[4 * 40 + 20] = f32::NAN;
        let mut out = vec![0.0; 3 * 9 * 40];
        let relu = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
        conv.run(&Pool::new(1), 1, &[9, 40], &input, &mut out, &relu).unwrap();
        for (i, x) in out.iter().enumerate() {
            let (row, col) = (i / 40 % 9, i % 40);
            let near = row.abs_diff(4) <= 1 && col.abs_diff(20) <= 1;
            assert_eq!(x.is_nan(), near, "{isa:?} at {row}, {col}");
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let isa = Isa::Portable;
    let ok = ConvParams::new(4, 6, &[3, 3]);
    let weights = vec![0.0; 4 * 6 * 9];
    let groups = ConvParams { groups: 3, ..ok.clone() };
    assert!(matches!(PackedConv::new(isa, groups, &weights), Err(ConvError::Groups { .. })));
    let zero = ConvParams { strides: vec![1, 0], ..ok.clone() };
    assert_eq!(PackedConv::new(isa, zero, &weights).unwrap_err(), ConvError::Zero);
    let four = ConvParams::new(1, 1, &[1, 1, 1, 1]);
    assert!(matches!(PackedConv::new(isa, four, &[0.0]), Err(ConvError::Rank { .. })));
    assert!(matches!(PackedConv::new(isa, ok.clone(), &[]), Err(ConvError::Length { .. })));
    let short = PackedConv::scaled(isa, ok.clone(), WeightSource::Fill(1.0), Some(&[1.0; 5]));
    assert_eq!(short.unwrap_err(), ConvError::Length { what: "scale", want: 6, got: 5 });
    let conv = PackedConv::new(isa, ok, &weights).unwrap();
    let run = |spatial: &[usize], input: usize, output: usize| {
        let (input, mut output) = (vec![0.0; input], vec![0.0; output]);
        let epilogue = Epilogue::default();
        conv.run(&Pool::new(1), 1, spatial, &input, &mut output, &epilogue)
    };
    assert_eq!(run(&[3, 3], 36, 6), Ok(()));
    assert!(matches!(run(&[2, 3], 24, 6), Err(ConvError::KernelTooLarge { dim: 0, .. })));
    assert!(matches!(run(&[3, 3], 35, 6), Err(ConvError::Length { what: "input", .. })));
    assert!(matches!(run(&[3], 12, 6), Err(ConvError::Rank { .. })));
    // Of outputs of 6 channels in 2 positions.
    let run = |epilogue: Epilogue<'_>| {
        let mut output = [0.0; 12];
        conv.run(&Pool::new(1), 1, &[3, 4], &[0.0; 48], &mut output, &epilogue)
    };
    let numbers = [0.0; 12];
    let matrix = |rows, cols| MatRef::row_major(&numbers[..rows * cols], rows, cols);
    for (bias, addend, residual, factor, expected) in [
        (Some(Bias::Row(&numbers[..6])), Some((1.0, matrix(6, 2))), 12, 12, None),
        (Some(Bias::Col(&numbers[..2])), None, 12, 12, None),
        (Some(Bias::Row(&numbers[..2])), None, 12, 12, Some("bias")),
        (Some(Bias::Col(&numbers[..6])), None, 12, 12, Some("bias")),
        (None, Some((1.0, matrix(2, 2))), 12, 12, Some("each column of the addend")),
        (None, Some((1.0, matrix(6, 1))), 12, 12, Some("each row of the addend")),
        (None, None, 6, 12, Some("residual")),
        (None, None, 12, 6, Some("factor")),
    ] {
        let found = run(Epilogue {
            bias,
            addend,
            residual: Some(&numbers[..residual]),
            factor: Some(&numbers[..factor]),
            ..Epilogue::default()
        });
        let what = match found {
            Err(ConvError::Length { what, .. }) => Some(what),
            _ => None,
        };
        assert_eq!((found.is_ok(), what), (expected.is_none(), expected));
    }
}
