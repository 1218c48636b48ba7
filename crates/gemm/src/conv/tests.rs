//! Convolutions against the plain loop in f64.

// A failure to set up a case is a failed test.
#![allow(clippy::unwrap_used)]

use half::{bf16, f16};

use super::*;
use crate::conv::pitch_of;
use crate::gemm::Activation;
use crate::gemm::tests::{CACHES, random};
use sardonyx_simd::{Exec, Isa, Pool};

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
            kernel: self.kernel.into(),
            strides: self.strides.into(),
            dilations: self.dilations.into(),
            pads_begin: self.pads.0.into(),
            pads_end: self.pads.1.into(),
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
        pads: (&[1, 1], &[1, 1]),
        strides: &[2, 2],
        ..case("first layer, blocks in the nearest cache", (3, 16), &[67, 224], &[3, 3])
    },
    Case {
        strides: &[4, 4],
        batch: 2,
        ..case("first layer of patches", (3, 40), &[56, 224], &[4, 4])
    },
    Case { batch: 2, ..case("outputs beyond the cache", (20, 72), &[68, 57], &[1, 1]) },
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
    Case {
        pads: (&[1, 1], &[1, 1]),
        batch: 2,
        ..case("points, many blocks", (72, 100), &[25, 24], &[3, 3])
    },
    Case { pads: (&[0, 2], &[3, 0]), ..case("points, uneven pads", (65, 64), &[8, 5], &[3, 3]) },
    Case { pads: (&[1, 1], &[1, 1]), ..case("points of a pixel", (64, 81), &[1, 1], &[3, 3]) },
    Case { batch: 3, ..case("points, deep", (300, 64), &[5, 9], &[3, 3]) },
    case("one column", (40, 70), &[9, 1], &[3, 1]),
    case("deep", (80, 40), &[5, 5], &[3, 3]),
    case("many weights", (600, 500), &[7, 9], &[1, 1]),
    case("taps that share tiles", (9, 33), &[6, 19], &[3, 5]),
    Case { dilations: &[1, 2], ..case("taps apart", (9, 33), &[6, 19], &[3, 5]) },
    Case { groups: 2, ..case("two groups, many rows", (66, 70), &[5, 50], &[1, 3]) },
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
    Case {
        groups: 240,
        batch: 2,
        pads: (&[3, 3], &[3, 3]),
        ..case("depthwise 7x7", (240, 240), &[14, 15], &[7, 7])
    },
    Case {
        groups: 17,
        pads: (&[2, 2], &[2, 2]),
        strides: &[2, 2],
        ..case("depthwise 5x5 stride 2", (17, 17), &[15, 31], &[5, 5])
    },
    Case {
        groups: 40,
        pads: (&[1, 1], &[1, 1]),
        ..case("depthwise 3x3", (40, 40), &[17, 16], &[3, 3])
    },
    Case {
        groups: 4,
        pads: (&[1, 1], &[1, 1]),
        ..case("depthwise with a multiplier", (4, 8), &[9, 9], &[3, 3])
    },
    Case { batch: 3, ..case("pointwise, many channels", (1040, 50), &[7, 7], &[1, 1]) },
    Case { pads: (&[1, 1], &[1, 1]), ..case("256 channels", (256, 48), &[14, 14], &[3, 3]) },
    Case { strides: &[2, 2], ..case("pointwise, stride 2", (64, 33), &[14, 15], &[1, 1]) },
    Case { strides: &[4, 4], ..case("patches", (3, 96), &[16, 32], &[4, 4]) },
    Case { pads: (&[1], &[1]), ..case("1-D, long rows", (80, 40), &[3000], &[3]) },
    Case { groups: 5, pads: (&[3], &[0]), ..case("depthwise 1-D", (5, 5), &[50], &[4]) },
    Case { groups: 3, pads: (&[40], &[2]), ..case("depthwise 1-D, long", (3, 3), &[90], &[41]) },
    Case { dilations: &[2000], ..case("1-D, taps far apart", (20, 24), &[5000], &[3]) },
    Case {
        dilations: &[30, 33],
        pads: (&[30, 33], &[30, 33]),
        ..case("taps far apart", (5, 18), &[40, 55], &[3, 3])
    },
    Case {
        strides: &[2, 4],
        dilations: &[2, 2],
        pads: (&[1, 3], &[2, 0]),
        ..case("strides and dilations with a divisor", (18, 20), &[23, 45], &[3, 3])
    },
    Case { strides: &[3, 1], batch: 2, ..case("pointwise, uneven", (20, 40), &[13, 9], &[1, 1]) },
    Case { strides: &[5, 4], ..case("taps of every stride", (3, 20), &[41, 60], &[2, 2]) },
    Case { pads: (&[2, 2], &[2, 2]), batch: 2, ..case("one output", (7, 1), &[30, 33], &[5, 5]) },
    Case { pads: (&[1, 1], &[1, 1]), ..case("three outputs", (300, 3), &[20, 21], &[3, 3]) },
    Case { strides: &[2, 3], ..case("few outputs, strides", (9, 5), &[31, 40], &[3, 4]) },
    Case {
        groups: 6,
        dilations: &[1, 40],
        pads: (&[1, 20], &[1, 60]),
        ..case("few outputs of a group, taps far apart", (12, 18), &[9, 50], &[3, 3])
    },
    Case {
        groups: 7,
        dilations: &[1, 3],
        strides: &[2, 2],
        pads: (&[4, 3], &[0, 3]),
        ..case("depthwise, dilated", (7, 7), &[28, 31], &[5, 3])
    },
    Case {
        groups: 3,
        pads: (&[0, 9], &[1, 9]),
        ..case("depthwise, wide kernel", (3, 3), &[9, 60], &[2, 19])
    },
];

/// Elements in some layout, with NaN between them.
#[derive(Clone)]
struct LaidOut {
    data: Vec<f32>,
    order: Order,
}

impl LaidOut {
    /// Converts elements in rows, `[images, channels, plane]`, to a layout.
    fn new(rows: &[f32], [images, channels, plane]: [usize; 3], order: Order) -> LaidOut {
        let Order::ChannelsLast { pitch } = order else {
            return LaidOut { data: rows.to_vec(), order };
        };
        let mut data = vec![f32::NAN; order.len(images, channels, plane).unwrap()];
        for (i, x) in rows.iter().enumerate() {
            let (image, channel, at) = (i / plane / channels, i / plane % channels, i % plane);
            data[(image * plane + at) * pitch + channel] = *x;
        }
        LaidOut { data, order }
    }

    /// Returns the elements in rows. Elements between pixels must be NaN.
    fn rows(&self, [images, channels, plane]: [usize; 3]) -> Vec<f32> {
        let Order::ChannelsLast { pitch } = self.order else {
            return self.data.clone();
        };
        let mut data = self.data.clone();
        let mut rows = vec![0.0; images * channels * plane];
        for (i, x) in rows.iter_mut().enumerate() {
            let (image, channel, at) = (i / plane / channels, i / plane % channels, i % plane);
            *x = std::mem::replace(&mut data[(image * plane + at) * pitch + channel], f32::NAN);
        }
        assert!(data.iter().all(|x| x.is_nan()), "elements between pixels were written");
        rows
    }

    fn get(&self) -> Ordered<'_> {
        Ordered { data: &self.data, order: self.order }
    }

    fn get_mut(&mut self) -> OrderedMut<'_> {
        OrderedMut { data: &mut self.data, order: self.order }
    }
}

/// Epilogue of a result, with its parts in rows.
struct Ending {
    bias: Option<Vec<f32>>,
    residual: Option<Vec<f32>>,
    activation: Activation,
    factor: Option<Vec<f32>>,
}

const PLAIN: Ending =
    Ending { bias: None, residual: None, activation: Activation::None, factor: None };

/// Input of a case, and its sizes.
struct Data {
    input: Vec<f32>,
    in_sizes: [usize; 3],
    out_sizes: [usize; 3],
}

impl Data {
    fn new(case: &Case) -> Data {
        let out_dims = case.params().output_dims(case.spatial).unwrap();
        let in_sizes = [case.batch, case.channels.0, product(case.spatial).unwrap()];
        let out_sizes = [case.batch, case.channels.1, product(&out_dims).unwrap()];
        Data { input: random(in_sizes.iter().product(), 1), in_sizes, out_sizes }
    }

    /// Convolves with input and output in some layouts, and returns the result in rows.
    fn run(
        &self,
        case: &Case,
        conv: &PackedConv,
        pool: &Pool,
        [from, to]: [Order; 2],
        ending: &Ending,
    ) -> Vec<f32> {
        let input = LaidOut::new(&self.input, self.in_sizes, from);
        let mut output =
            LaidOut::new(&vec![f32::NAN; self.out_sizes.iter().product()], self.out_sizes, to);
        // A residual may be a part of another value.
        let other = match to {
            Order::Rows => to,
            Order::ChannelsLast { pitch } => Order::ChannelsLast { pitch: pitch + 1 },
        };
        let laid = |part: &Option<Vec<f32>>, order| {
            part.as_ref().map(|part| LaidOut::new(part, self.out_sizes, order))
        };
        let (residual, factor) = (laid(&ending.residual, other), laid(&ending.factor, to));
        let epilogue = ConvEpilogue {
            bias: ending.bias.as_deref(),
            residual: residual.as_ref().map(LaidOut::get),
            activation: ending.activation,
            factor: factor.as_ref().map(LaidOut::get),
        };
        let (input, out) = (input.get(), output.get_mut());
        conv.run(pool, case.batch, case.spatial, input, out, &epilogue).unwrap();
        output.rows(self.out_sizes)
    }
}

/// Lists the algorithms that a convolution has on each instruction set of the machine.
fn algorithms(params: &ConvParams) -> impl Iterator<Item = (Isa, Algorithm)> + use<'_> {
    let all = [
        Algorithm::Depthwise,
        Algorithm::Direct(Operands::Exact),
        Algorithm::Direct(Operands::Rounded),
        Algorithm::Direct(Operands::Tiles),
        Algorithm::Winograd(Operands::Exact),
        Algorithm::Winograd(Operands::Rounded),
        Algorithm::Planes,
    ];
    let geometry = Geometry::new(params).unwrap();
    let both = Isa::available().iter().flat_map(move |isa| all.map(|algorithm| (*isa, algorithm)));
    both.filter(move |(isa, algorithm)| algorithm.check(*isa, params, &geometry).is_ok())
}

/// Lists layouts of input and output, with pitches of whole values and of parts of others.
fn orders(case: &Case) -> [[Order; 2]; 4] {
    let last = |channels: usize, more: usize| Order::ChannelsLast { pitch: channels + more };
    let (from, to) = case.channels;
    [
        [Order::Rows, Order::Rows],
        [last(pitch_of(from), 0), last(pitch_of(to), 0)],
        [last(from, 3), Order::Rows],
        [Order::Rows, last(to, 5)],
    ]
}

#[test]
fn a_gate_gives_the_bits_of_products_before() {
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3), Pool::new(16)];
    for (batch, channels, spatial) in [
        (1, (5, 7), &[9, 11][..]),
        (3, (72, 40), &[14, 13]),
        (2, (256, 33), &[5, 31]),
        // More weights than are read again for each tile.
        (2, (960, 160), &[7, 7]),
        (1, (16, 96), &[40]),
    ] {
        let case = Case { batch, ..case("gated", channels, spatial, &[1, 1][..spatial.len()]) };
        let params = case.params();
        let mut data = Data::new(&case);
        let gate = random(batch * channels.0, 3);
        let weights = random(params.weights_len().unwrap(), 2);
        let bias = Some(random(channels.1, 4));
        let ending = Ending { bias, activation: Activation::Relu, ..PLAIN };
        let plain = data.input.clone();
        let plane = data.in_sizes[2];
        for (row, by) in data.input.chunks_exact_mut(plane).zip(&gate) {
            row.iter_mut().for_each(|x| *x *= by);
        }
        for (isa, algorithm) in algorithms(&params).filter(|(_, how)| *how != Algorithm::Planes) {
            let source = WeightSource::Floats(&weights);
            let conv = PackedConv::from_source(
                isa,
                params.clone(),
                algorithm,
                source,
                None,
                Lasts::ForGood,
            )
            .unwrap();
            let gated = GatedConv::new(&conv, &gate).unwrap();
            for (pool, [from, to]) in pools.iter().flat_map(|pool| orders(&case).map(|o| (pool, o)))
            {
                let want = data.run(&case, &conv, pool, [from, to], &ending);
                let input = LaidOut::new(&plain, data.in_sizes, from);
                let nothing = vec![f32::NAN; data.out_sizes.iter().product()];
                let mut output = LaidOut::new(&nothing, data.out_sizes, to);
                let epilogue = ConvEpilogue {
                    bias: ending.bias.as_deref(),
                    activation: ending.activation,
                    ..ConvEpilogue::default()
                };
                assert!(gated.scratch(pool, batch, spatial, from, to).is_ok());
                let (x, y) = (input.get(), output.get_mut());
                gated.run(pool, batch, spatial, x, y, &epilogue).unwrap();
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let same = bits(&output.rows(data.out_sizes)) == bits(&want);
                assert!(same, "{channels:?} {isa:?} {algorithm:?} {from:?} {to:?}");
            }
        }
    }
}

#[test]
fn gates_of_other_sizes_and_convolutions_are_errors() {
    let params = case("gated", (4, 6), &[5, 5], &[1, 1]).params();
    let conv = PackedConv::new(Isa::available()[0], params, &[0.5; 24]).unwrap();
    let gated = GatedConv::new(&conv, &[1.0; 5]).unwrap();
    let error = gated.scratch(&Pool::new(1), 1, &[5, 5], Order::Rows, Order::Rows).unwrap_err();
    assert!(error.to_string().contains("gate"), "{error}");
    let params = case("3x3", (4, 6), &[5, 5], &[3, 3]).params();
    let conv = PackedConv::new(Isa::available()[0], params, &[0.5; 216]).unwrap();
    assert!(GatedConv::new(&conv, &[1.0; 4]).is_err());
}

#[test]
fn all_loops_agree_with_the_plain_one() {
    for operands in [Operands::Rounded, Operands::Tiles] {
        if !operands.are_available(Isa::detect()) {
            eprintln!("skipped: this machine does not multiply {operands:?}");
        }
    }
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3), Pool::new(16)];
    for case in CASES {
        let params = case.params();
        let data = Data::new(case);
        let [_, channels, out_plane] = data.out_sizes;
        let out_len = data.out_sizes.iter().product();
        let weights = random(params.weights_len().unwrap(), 2);
        let reference = |f: fn(f32) -> f64| {
            let wide = |x: &[f32]| x.iter().map(|&x| f(x)).collect::<Vec<f64>>();
            let mut out = vec![0.0; out_len];
            let (x, w) = (wide(&data.input), wide(&weights));
            conv_naive(&params, case.batch, case.spatial, &x, &w, None, &mut out).unwrap();
            out
        };
        let (want, magnitude) = (reference(f64::from), reference(|x| f64::from(x.abs())));
        let rounded = reference(|x| bf16::from_f32(x).to_f64());
        let bytes: Vec<u8> =
            std::iter::once(0).chain(weights.iter().flat_map(|x| x.to_le_bytes())).collect();
        let bias = || Some(random(channels, 3));
        let endings = [
            PLAIN,
            Ending {
                bias: bias(),
                residual: Some(random(out_len, 4)),
                activation: Activation::Relu,
                factor: None,
            },
            Ending { bias: bias(), activation: Activation::HardSwish, ..PLAIN },
            Ending {
                bias: bias(),
                residual: Some(random(out_len, 4)),
                activation: Activation::Gelu,
                factor: Some(random(out_len, 6)),
            },
        ];
        let element = |ending: &Ending, want: &[f64], i: usize| {
            let at = |part: &Option<Vec<f32>>, i: usize, absent: f64| {
                part.as_ref().map_or(absent, |part| f64::from(part[i]))
            };
            let x = want[i] + at(&ending.bias, i / out_plane % channels, 0.0);
            let x = x + at(&ending.residual, i, 0.0);
            f64::from(ending.activation.apply(x as f32)) * at(&ending.factor, i, 1.0)
        };
        for (isa, algorithm) in algorithms(&params) {
            let source = WeightSource::Floats(&weights);
            let conv = PackedConv::from_source(
                isa,
                params.clone(),
                algorithm,
                source,
                None,
                Lasts::ForGood,
            )
            .unwrap();
            let source = WeightSource::LeBytes(&bytes[1..]);
            let again = PackedConv::from_source(
                isa,
                params.clone(),
                algorithm,
                source,
                None,
                Lasts::ForGood,
            )
            .unwrap();
            // A chain of roundings, each at most eps / 2 of the magnitudes so far; random signs
            // stay far below. For rounded points only the distance to the exact result is known,
            // which random signs keep far below as well.
            let (want, eps) = match algorithm {
                Algorithm::Direct(Operands::Rounded | Operands::Tiles) => {
                    (&rounded, 64.0 * f64::from(f32::EPSILON))
                }
                Algorithm::Winograd(Operands::Rounded) => (&want, 1.0 / 128.0),
                _ => (&want, 64.0 * f64::from(f32::EPSILON)),
            };
            for (number, ending) in endings.iter().enumerate() {
                let [rows, others @ ..] = orders(case);
                let got = data.run(case, &conv, &pools[0], rows, ending);
                for i in 0..out_len {
                    let x = element(ending, want, i);
                    let bound = eps * (magnitude[i] + 2.0);
                    assert!(
                        (f64::from(got[i]) - x).abs() <= bound,
                        "{} {isa:?} {algorithm:?} ending {number} at {i}: {}, not {x}",
                        case.what,
                        got[i]
                    );
                }
                for (orders, pool) in others.into_iter().zip(pools.iter().cycle()) {
                    let found = data.run(case, &conv, pool, orders, ending);
                    let what = case.what;
                    assert_eq!(got, found, "{what} {isa:?} {algorithm:?} {pool:?} {orders:?}");
                }
                let found = data.run(case, &again, &pools[1], rows, ending);
                assert_eq!(got, found, "{} from bytes", case.what);
            }
        }
    }
}

/// Computes a depthwise convolution of two axes by its definition: each output is a chain of
/// multiply-adds over all taps in the order of the kernel, including those over padding.
fn depthwise_chains(case: &Case, x: &[f32], w: &[f32], fuses: bool) -> Vec<f32> {
    let outputs = case.params().output_dims(case.spatial).unwrap();
    let [height, width] = [case.spatial[0], case.spatial[1]];
    let (taps, channels) = (case.kernel[0] * case.kernel[1], case.channels.0);
    let mut all = Vec::new();
    for plane in 0..case.batch * channels {
        for pixel in 0..outputs[0] * outputs[1] {
            let mut sum = 0.0f32;
            for tap in 0..taps {
                let at = |i: usize, output: usize, tap: usize| {
                    let at = output * case.strides[i] + tap * case.dilations[i];
                    at.checked_sub(case.pads.0[i]).filter(|at| *at < case.spatial[i])
                };
                let row = at(0, pixel / outputs[1], tap / case.kernel[1]);
                let col = at(1, pixel % outputs[1], tap % case.kernel[1]);
                let x = match (row, col) {
                    (Some(row), Some(col)) => x[(plane * height + row) * width + col],
                    _ => 0.0,
                };
                let w = w[plane % channels * taps + tap];
                sum = if fuses { w.mul_add(x, sum) } else { w * x + sum };
            }
            all.push(sum);
        }
    }
    all
}

#[test]
fn depthwise_sums_are_chains_of_taps() {
    let pools = [Pool::new(1), Pool::new(3)];
    let endings = [
        PLAIN,
        Ending { activation: Activation::Relu, ..PLAIN },
        Ending { activation: Activation::LeakyRelu(0.5), ..PLAIN },
    ];
    // Widths around those of tiles, sides in padding, channels below, at and above whole blocks.
    static SIZES: [(usize, [usize; 2]); 6] =
        [(5, [9, 3]), (16, [6, 8]), (33, [11, 14]), (24, [5, 29]), (300, [4, 20]), (72, [8, 5])];
    // Kernel, strides, dilations.
    static KERNELS: [[[usize; 2]; 3]; 9] = [
        [[3, 3], [1, 1], [1, 1]],
        [[3, 3], [2, 2], [1, 1]],
        [[3, 3], [1, 1], [2, 2]],
        [[3, 3], [1, 2], [2, 1]],
        [[5, 5], [1, 1], [1, 1]],
        [[5, 5], [2, 2], [1, 1]],
        [[7, 7], [1, 1], [1, 1]],
        [[7, 7], [2, 2], [1, 1]],
        [[2, 4], [1, 1], [1, 1]],
    ];
    static PADS: [[[usize; 2]; 2]; 4] =
        [[[1, 1], [1, 1]], [[3, 3], [3, 3]], [[0, 6], [4, 0]], [[2, 0], [2, 5]]];
    for (channels, spatial) in &SIZES {
        for [kernel, strides, dilations] in &KERNELS {
            for [begin, end] in &PADS {
                let case = Case {
                    groups: *channels,
                    strides,
                    dilations,
                    pads: (begin, end),
                    ..case("depthwise chains", (*channels, *channels), spatial, kernel)
                };
                let params = case.params();
                if params.output_dims(case.spatial).is_err() {
                    continue;
                }
                let data = Data::new(&case);
                let weights = random(params.weights_len().unwrap(), 2);
                for &isa in Isa::available() {
                    let fuses = isa != Isa::Portable;
                    let want = depthwise_chains(&case, &data.input, &weights, fuses);
                    let conv = PackedConv::new(isa, params.clone(), &weights).unwrap();
                    let [_, last, ..] = orders(&case);
                    for (pool, ending) in pools.iter().cycle().zip(&endings) {
                        let got = data.run(&case, &conv, pool, last, ending);
                        for (i, (got, sum)) in got.iter().zip(&want).enumerate() {
                            let want = ending.activation.apply(*sum);
                            assert!(
                                got.to_bits() == want.to_bits() || (*got, want) == (0.0, 0.0),
                                "{channels} at {spatial:?}, {kernel:?}, {strides:?}, \
                                 {dilations:?}, {begin:?}, {end:?}, {isa:?}, {i}: {got}, not {want}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn caches_change_no_bit() {
    let pools = [Pool::new(1), Pool::new(3)];
    for case in CASES.iter().filter(|case| case.batch > 0) {
        let params = case.params();
        let data = Data::new(case);
        let weights = random(params.weights_len().unwrap(), 2);
        let ending = Ending {
            bias: Some(random(case.channels.1, 3)),
            activation: Activation::HardSwish,
            ..PLAIN
        };
        for (isa, algorithm) in algorithms(&params) {
            let source = WeightSource::Floats(&weights);
            for order in orders(case) {
                let mut expected: Option<Vec<u32>> = None;
                for caches in CACHES {
                    let params = params.clone();
                    let packed = PackedConv::from_source(
                        isa,
                        params,
                        algorithm,
                        source,
                        None,
                        Lasts::ForGood,
                    );
                    let conv = packed.unwrap().with_caches(caches);
                    for pool in &pools {
                        let result = data.run(case, &conv, pool, order, &ending);
                        let bits: Vec<u32> = result.iter().map(|x| x.to_bits()).collect();
                        let expected = expected.get_or_insert_with(|| bits.clone());
                        let threads = pool.threads();
                        assert!(
                            bits == *expected,
                            "{}, {isa:?}, {algorithm:?}, {order:?}, {caches}, {threads} threads",
                            case.what
                        );
                    }
                }
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
        // Weights at odd addresses.
        let halves = weights.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes());
        let halves: Vec<u8> = std::iter::once(0).chain(halves).collect();
        let from_halves: Vec<f32> = weights.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
        let brains = weights.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes());
        let brains: Vec<u8> = std::iter::once(0).chain(brains).collect();
        let from_brains: Vec<f32> = weights.iter().map(|x| bf16::from_f32(*x).to_f32()).collect();
        let data = Data::new(case);
        for (isa, algorithm) in algorithms(&params) {
            let run = |weights: WeightSource<'_>, scale: Option<&[f64]>| {
                let params = params.clone();
                let conv =
                    PackedConv::from_source(isa, params, algorithm, weights, scale, Lasts::ForGood)
                        .unwrap();
                data.run(case, &conv, &Pool::new(2), [Order::Rows; 2], &PLAIN)
            };
            let want = run(WeightSource::Floats(&expected), None);
            assert_eq!(run(WeightSource::Floats(&weights), Some(&scale)), want, "{}", case.what);
            assert_eq!(run(WeightSource::LeBytes(&bytes), Some(&scale)), want, "{}", case.what);
            for (source, floats) in [
                (WeightSource::LeFloat16(&halves[1..]), &from_halves),
                (WeightSource::LeBfloat16(&brains[1..]), &from_brains),
            ] {
                let want = run(WeightSource::Floats(floats), Some(&scale));
                assert_eq!(run(source, Some(&scale)), want, "{}", case.what);
            }
            let want = run(WeightSource::Floats(&filled), None);
            assert_eq!(run(WeightSource::Fill(0.7), Some(&scale)), want, "{}", case.what);
        }
    }
}

#[test]
fn padding_does_not_spread_infinities() {
    // An infinite weight times padding is NaN, as padding is multiplied like any zero. Only finite
    // weights must keep NaN inputs local.
    let params = ConvParams {
        pads_begin: smallvec![1, 1],
        pads_end: smallvec![1, 1],
        ..ConvParams::new(2, 3, &[3, 3])
    };
    let weights = random(2 * 3 * 9, 1);
    for &isa in Isa::available() {
        let conv = PackedConv::new(isa, params.clone(), &weights).unwrap();
        let mut input = random(2 * 9 * 40, 2);
        input[4 * 40 + 20] = f32::NAN;
        let mut out = vec![0.0; 3 * 9 * 40];
        let relu = ConvEpilogue { activation: Activation::Relu, ..ConvEpilogue::default() };
        let input = Ordered { data: &input, order: Order::Rows };
        let output = OrderedMut { data: &mut out, order: Order::Rows };
        conv.run(&Pool::new(1), 1, &[9, 40], input, output, &relu).unwrap();
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
    let zero = ConvParams { strides: smallvec![1, 0], ..ok.clone() };
    assert_eq!(PackedConv::new(isa, zero, &weights).unwrap_err(), ConvError::Zero);
    let four = ConvParams::new(1, 1, &[1, 1, 1, 1]);
    assert!(matches!(PackedConv::new(isa, four, &[0.0]), Err(ConvError::Rank { .. })));
    assert!(matches!(PackedConv::new(isa, ok.clone(), &[]), Err(ConvError::Length { .. })));
    let fill = |algorithm, scale: &[f64]| {
        PackedConv::from_source(
            isa,
            ok.clone(),
            algorithm,
            WeightSource::Fill(1.0),
            Some(scale),
            Lasts::ForGood,
        )
    };
    let rounded = Algorithm::Direct(Operands::Rounded);
    for algorithm in [Algorithm::Depthwise, Algorithm::Winograd(Operands::Exact), rounded] {
        assert_eq!(fill(algorithm, &[1.0; 6]).unwrap_err(), ConvError::Algorithm(algorithm));
    }
    let short = fill(Algorithm::Direct(Operands::Exact), &[1.0; 5]);
    assert_eq!(short.unwrap_err(), ConvError::Length { what: "scale", want: 6, got: 5 });
    let conv = PackedConv::new(isa, ok, &weights).unwrap();
    let run = |spatial: &[usize], input: usize, output: usize| {
        let (input, mut output) = (vec![0.0; input], vec![0.0; output]);
        let input = Ordered { data: &input, order: Order::Rows };
        let output = OrderedMut { data: &mut output, order: Order::Rows };
        conv.run(&Pool::new(1), 1, spatial, input, output, &ConvEpilogue::default())
    };
    assert_eq!(run(&[3, 3], 36, 6), Ok(()));
    assert!(matches!(run(&[2, 3], 24, 6), Err(ConvError::KernelTooLarge { dim: 0, .. })));
    assert!(matches!(run(&[3, 3], 35, 6), Err(ConvError::Length { what: "input", .. })));
    assert!(matches!(run(&[3], 12, 6), Err(ConvError::Rank { .. })));
    // Outputs of 6 channels in 2 positions.
    let numbers = [0.0; 12];
    let run = |bias: usize, residual: (usize, Order), factor: (usize, Order)| {
        let part = |(len, order): (usize, Order)| Some(Ordered { data: &numbers[..len], order });
        let epilogue = ConvEpilogue {
            bias: Some(&numbers[..bias]),
            residual: part(residual),
            activation: Activation::None,
            factor: part(factor),
        };
        let input = Ordered { data: &[0.0; 48], order: Order::Rows };
        let output = OrderedMut { data: &mut [0.0; 12], order: Order::Rows };
        conv.run(&Pool::new(1), 1, &[3, 4], input, output, &epilogue)
    };
    let (rows, last) = (Order::Rows, Order::ChannelsLast { pitch: 6 });
    let short = |what, want, got| Err(ConvError::Length { what, want, got });
    assert_eq!(run(6, (12, rows), (12, rows)), Ok(()));
    assert_eq!(run(2, (12, rows), (12, rows)), short("bias", 6, 2));
    assert_eq!(run(12, (12, rows), (12, rows)), short("bias", 6, 12));
    assert_eq!(run(6, (6, rows), (12, rows)), short("residual", 12, 6));
    assert_eq!(run(6, (12, rows), (6, rows)), short("factor", 12, 6));
    let error = Err(ConvError::Order { what: "residual" });
    assert_eq!(run(6, (12, last), (12, rows)), error);
    // Windows far larger than any memory, whose taps meet one input.
    let far = ConvParams {
        dilations: smallvec![1 << 40; 2],
        pads_begin: smallvec![1 << 40; 2],
        pads_end: smallvec![1 << 40; 2],
        ..ConvParams::new(4, 6, &[3, 3])
    };
    let conv = PackedConv::new(isa, far.clone(), &weights).unwrap();
    let mut output = [0.0; 6];
    let input = Ordered { data: &[1.0; 4], order: rows };
    let out = OrderedMut { data: &mut output, order: rows };
    let plain = ConvEpilogue::default();
    assert_eq!(conv.run(&Pool::new(1), 1, &[1, 1], input, out, &plain), Ok(()));
    for (channel, sum) in output.iter().enumerate() {
        let met: f32 = (0..4).map(|c| weights[(channel * 4 + c) * 9 + 4]).sum();
        assert!((sum - met).abs() < 1e-5, "{channel}: {sum}, not {met}");
    }
    // More outputs than any memory has.
    let wide = ConvParams { dilations: smallvec![1; 2], ..far };
    let conv = PackedConv::new(isa, wide, &weights).unwrap();
    assert_eq!(conv.scratch(&Pool::new(1), 1, &[1, 1], rows, rows), Err(ConvError::TooLarge));
}

/// Computes the gradient of weights by its definition, in double precision.
fn weight_gradient_naive(case: &Case, outputs: &[usize], x: &[f32], dy: &[f32]) -> Vec<f64> {
    let pad_to_three = |list: &[usize], fill: usize| {
        let mut all = vec![fill; 3 - list.len()];
        all.extend(list);
        all
    };
    let (inputs, outputs) = (pad_to_three(case.spatial, 1), pad_to_three(outputs, 1));
    let (kernel, strides) = (pad_to_three(case.kernel, 1), pad_to_three(case.strides, 1));
    let (dilations, pads) = (pad_to_three(case.dilations, 1), pad_to_three(case.pads.0, 0));
    let [plane, out_plane, taps] =
        [&inputs, &outputs, &kernel].map(|sizes| sizes.iter().product::<usize>());
    let place = |index: usize, sizes: &[usize]| {
        [index / sizes[2] / sizes[1], index / sizes[2] % sizes[1], index % sizes[2]]
    };
    let (channels, out_channels) = case.channels;
    let mut all = Vec::new();
    for output in 0..out_channels {
        for channel in 0..channels {
            for tap in (0..taps).map(|tap| place(tap, &kernel)) {
                let mut sum = 0.0;
                for image in 0..case.batch {
                    for pixel in 0..out_plane {
                        let at = place(pixel, &outputs);
                        let at: Option<Vec<usize>> = (0..3)
                            .map(|i| {
                                let at = at[i] * strides[i] + tap[i] * dilations[i];
                                at.checked_sub(pads[i]).filter(|at| *at < inputs[i])
                            })
                            .collect();
                        let Some(at) = at else { continue };
                        let at = (at[0] * inputs[1] + at[1]) * inputs[2] + at[2];
                        let x = x[(image * channels + channel) * plane + at];
                        let dy = dy[(image * out_channels + output) * out_plane + pixel];
                        sum += f64::from(x) * f64::from(dy);
                    }
                }
                all.push(sum);
            }
        }
    }
    all
}

#[test]
fn gradients_of_weights_are_sums_over_outputs() {
    let further = [
        // Several planes and several pieces of one in a chunk, and parts of rows.
        Case {
            batch: 9,
            pads: (&[1, 1], &[1, 1]),
            ..case("small planes", (5, 33), &[7, 7], &[3, 3])
        },
        Case { batch: 2, pads: (&[2], &[2]), ..case("long rows", (3, 17), &[700], &[5]) },
        Case {
            batch: 2,
            strides: &[2, 2],
            pads: (&[3, 3], &[3, 3]),
            ..case("first layer of images", (3, 64), &[70, 66], &[7, 7])
        },
        Case {
            batch: 3,
            strides: &[2, 2],
            ..case("pixels left out", (20, 48), &[15, 15], &[1, 1])
        },
        Case {
            batch: 2,
            strides: &[1, 2, 3],
            dilations: &[2, 1, 2],
            pads: (&[1, 2, 3], &[1, 1, 1]),
            ..case("volumes", (4, 19), &[6, 9, 21], &[2, 3, 3])
        },
        Case { strides: &[5, 4], ..case("strides beyond kernels", (2, 5), &[21, 18], &[2, 3]) },
        Case { pads: (&[6, 7], &[6, 7]), ..case("mostly padding", (2, 5), &[2, 3], &[3, 3]) },
    ];
    for case in CASES.iter().chain(&further).filter(|case| case.groups == 1) {
        let params = case.params();
        let outputs = params.output_dims(case.spatial).unwrap();
        let (channels, out_channels) = case.channels;
        let plane = |sizes: &[usize]| case.batch * sizes.iter().product::<usize>();
        let x = random(channels * plane(case.spatial), 1);
        let dy = random(out_channels * plane(&outputs), 2);
        let want = weight_gradient_naive(case, &outputs, &x, &dy);
        let gradient = WeightGradient {
            params: &params,
            images: case.batch,
            inputs: case.spatial,
            outputs: &outputs,
        };
        for &isa in Isa::available() {
            let mut first: Option<Vec<f32>> = None;
            for threads in [1, 2, 3, 8] {
                let pool = Pool::new(threads);
                let mut got = vec![f32::NAN; want.len()];
                gradient.run(&Exec::new(&pool, isa), &x, &dy, &mut got).unwrap();
                let pixels = plane(&outputs) as f64;
                for (got, want) in got.iter().zip(&want) {
                    let off = (f64::from(*got) - want).abs();
                    assert!(off < 2e-7 * pixels.max(64.0), "{}: {got}, not {want}", case.what);
                }
                let first = first.get_or_insert_with(|| got.clone());
                assert_eq!(*first, got, "{} with {threads} threads", case.what);
            }
        }
    }
}

#[test]
fn gradients_of_weights_refuse_what_does_not_fit() {
    let params = ConvParams { groups: 2, ..ConvParams::new(2, 2, &[1]) };
    let gradient = WeightGradient { params: &params, images: 1, inputs: &[2], outputs: &[2] };
    let exec = Exec::new(Pool::serial(), Isa::detect());
    let run = |gradient: &WeightGradient<'_>, dw: &mut [f32]| {
        gradient.run(&exec, &[1.0; 4], &[1.0; 4], dw)
    };
    assert!(matches!(run(&gradient, &mut [0.0; 2]), Err(ConvError::Groups { .. })));
    let params = ConvParams::new(2, 2, &[1]);
    let gradient = WeightGradient { params: &params, ..gradient };
    assert!(matches!(run(&gradient, &mut [0.0; 3]), Err(ConvError::Length { .. })));
    let longer = WeightGradient { inputs: &[2, 1], ..gradient };
    assert!(matches!(run(&longer, &mut [0.0; 4]), Err(ConvError::Rank { .. })));
    // Empty sums.
    let none = WeightGradient { images: 0, ..gradient };
    let mut dw = [1.0; 4];
    none.run(&exec, &[], &[], &mut dw).unwrap();
    assert_eq!(dw, [0.0; 4]);
}
