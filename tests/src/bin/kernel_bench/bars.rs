//! Speeds that kernels must reach on every processor, as shares of the multiply-adds that the
//! instruction set can do in the same run.
//!
//! A bar is independent of the machine's clock, because each case measures the peak directly before
//! and after it. Operands are in the caches, but for cases called "from memory".

use super::convolutions::{self, Shape};
use super::{Bench, numbers};
use sardonyx_kernels::attention::{Attention, Heads, HeadsMut, NO_WINDOW, Sizes, attention};
use sardonyx_kernels::elementwise::Unary;
use sardonyx_kernels::gemm::{
    Activation, ByteMatrix, ByteRhs, Epilogue, Lhs, MatRef, PackedB, Rhs, ZeroPoints, gemm,
    gemm_bytes,
};
use sardonyx_kernels::recurrent::{Cell, Gate, Input, Layer, Outputs, Pass, Sequences};
use sardonyx_kernels::{Ended, Pool, RecurrentLoops};
use serde_json::json;
use std::time::{Duration, Instant};

/// Multiply-adds of the naive algorithm for each one of Winograd's F(4 x 4, 3 x 3).
const WINOGRAD: f64 = 2.25;

/// Rows, columns, depth, and the bar and the aim as shares of the peak.
const PRODUCTS: &[(usize, usize, usize, f64, f64)] = &[
    (96, 64, 256, 0.90, 0.95),
    (128, 768, 768, 0.85, 0.90),
    (128, 3072, 768, 0.80, 0.86),
    (512, 768, 768, 0.80, 0.88),
    (197, 3072, 768, 0.78, 0.86),
    (1500, 1536, 384, 0.78, 0.86),
    (3136, 384, 96, 0.78, 0.86),
];
/// Products that are measured with Gelu as well.
const WITH_GELU: &[(usize, usize, usize)] =
    &[(128, 3072, 768), (197, 3072, 768), (1500, 1536, 384), (3136, 384, 96)];

/// A convolution with its bar and its aim.
struct Convolution {
    shape: Shape,
    /// Whether weights come from memory.
    is_cold: bool,
    /// Multiply-adds of the sum for each that is done.
    saved: f64,
    bar: f64,
    aim: f64,
}

/// Functions with the cycles that 8 numbers may take, and the aim.
const FUNCTIONS: &[(&str, Activation, f64, f64)] = &[
    ("Swish", Activation::Swish(1.0), 12.0, 9.0),
    ("Gelu", Activation::Gelu, 20.0, 14.0),
    ("Sigmoid", Activation::Sigmoid, 11.0, 8.0),
];

/// Heads, queries and keys, features, with the bar and the aim.
const ATTENTIONS: &[(usize, usize, usize, f64, f64)] =
    &[(12, 128, 64, 0.60, 0.70), (6, 1500, 64, 0.60, 0.72)];

/// Sequences and hidden units of LSTM layers, with the bar and the aim.
const LAYERS: &[(usize, usize, f64, f64)] =
    &[(1, 256, 0.50, 0.60), (8, 128, 0.60, 0.70), (8, 256, 0.68, 0.78), (32, 256, 0.70, 0.80)];
/// Steps of these layers.
const STEPS: usize = 32;

/// Seconds of several calls, and multiply-adds of the peak in one second around them.
struct Timed {
    /// Duration of the fastest call.
    seconds: f64,
    /// Operations per second, two for each multiply-add.
    peak: f64,
}

/// Times a call: the best of at least 50.
fn time(bench: &Bench, mut call: impl FnMut(usize) -> Result<(), Ended>) -> Timed {
    const LEAST: usize = 50;
    const LONGEST: Duration = Duration::from_secs(10);
    let before = bench.meter.multiply_add();
    let start = Instant::now();
    let mut best = f64::INFINITY;
    let mut calls = 0;
    while calls < LEAST && start.elapsed() < LONGEST || start.elapsed() < bench.budget {
        let start = Instant::now();
        call(calls).expect("nothing ends a measurement");
        best = best.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    Timed { seconds: best, peak: before.max(bench.meter.multiply_add()) }
}

impl Timed {
    /// Returns the duration in cycles of 32 operations at the peak.
    fn cycles(&self) -> f64 {
        self.seconds * self.peak / 32.0
    }

    /// Returns the share of the peak that `macs` multiply-adds reach.
    fn share(&self, macs: f64) -> f64 {
        2.0 * macs / self.seconds / self.peak
    }
}

/// Prints a value that must be at least `bar`.
fn print_share(name: &str, unit: &str, value: f64, bar: f64, aim: f64) {
    print_bar(name, unit, value, value >= bar, bar, aim);
}

/// Prints a value that must be at most `bar`.
fn print_cost(name: &str, unit: &str, value: f64, bar: f64, aim: f64) {
    print_bar(name, unit, value, value <= bar, bar, aim);
}

/// Prints a value beside its bar and its aim as a line of JSON.
fn print_bar(name: &str, unit: &str, value: f64, is_met: bool, bar: f64, aim: f64) {
    let line = json!({
        "bar_of": name, "unit": unit, "value": value, "bar": bar, "aim": aim, "is_met": is_met,
    });
    println!("{line}");
}

pub(super) fn run(bench: &Bench) {
    for &(m, n, k, bar, aim) in PRODUCTS {
        let name = format!("product {m} x {n} x {k}");
        if name.contains(&bench.filter) {
            let timed = product(bench, ProductSizes { m, n, k }, Activation::None, 1);
            print_share(&name, "of peak", timed.share((m * n * k) as f64), bar, aim);
        }
    }
    for &(m, n, k) in WITH_GELU {
        let name = format!("product {m} x {n} x {k}, lost by Gelu");
        if name.contains(&bench.filter) {
            let plain = product(bench, ProductSizes { m, n, k }, Activation::None, 1);
            let with_gelu = product(bench, ProductSizes { m, n, k }, Activation::Gelu, 1);
            let lost = 1.0 - plain.seconds * plain.peak / (with_gelu.seconds * with_gelu.peak);
            print_cost(&name, "of time", lost, 0.05, 0.03);
        }
    }
    for (m, n, k) in [(128, 768, 768), (128, 768, 3072)] {
        let name = format!("product {m} x {n} x {k}, weights from memory");
        if name.contains(&bench.filter) {
            let turns = bench.turns(n * k * size_of::<f32>());
            let timed = product(bench, ProductSizes { m, n, k }, Activation::None, turns);
            print_share(&name, "of peak", timed.share((m * n * k) as f64), 0.75, 0.85);
        }
    }
    for convolution in &convolutions() {
        run_convolution(bench, convolution);
    }
    for &(name, activation, bar, aim) in FUNCTIONS {
        if name.contains(&bench.filter) {
            print_cost(name, "cycles for 8 numbers", cycles(bench, activation), bar, aim);
        }
    }
    for &(heads, rows, features, bar, aim) in ATTENTIONS {
        let name = format!("attention, {heads} heads of {rows} x {features}");
        if name.contains(&bench.filter) {
            let timed = attention_of(bench, heads, rows, features);
            let macs = (2 * heads * rows * rows * features) as f64;
            print_share(&name, "of peak", timed.share(macs), bar, aim);
        }
    }
    for &(batch, hidden, bar, aim) in LAYERS {
        let name = format!("LSTM, {batch} x {STEPS} x {hidden}");
        if name.contains(&bench.filter) {
            let macs = (2 * batch * STEPS * hidden * 4 * hidden) as f64;
            print_share(&name, "of peak", lstm_of(bench, batch, hidden).share(macs), bar, aim);
        }
    }
    let name = "product of bytes 128 x 768 x 768";
    if name.contains(&bench.filter) {
        let timed = product_of_bytes(bench, ProductSizes { m: 128, n: 768, k: 768 });
        print_share(name, "of peak of floats", timed.share(128.0 * 768.0 * 768.0), 1.4, 1.5);
    }
}

/// Sizes of a product.
#[derive(Clone, Copy)]
struct ProductSizes {
    m: usize,
    n: usize,
    k: usize,
}

/// Times a product whose weights are packed ahead, `turns` copies of them in turn.
fn product(bench: &Bench, sizes: ProductSizes, activation: Activation, turns: usize) -> Timed {
    let ProductSizes { m, n, k } = sizes;
    let (a, b) = (numbers(m * k), numbers(k * n));
    let mut weights = Vec::with_capacity(turns);
    for _ in 0..turns {
        let b = MatRef::row_major(&b, k, n);
        weights.push(Pool::run_to_end(|| PackedB::new(bench.isa, b)));
    }
    let a = Lhs::Plain(MatRef::row_major(&a, m, k));
    let mut c = vec![0.0; m * n];
    let epilogue = Epilogue { activation, ..Epilogue::default() };
    time(bench, |turn| {
        let b = Rhs::Packed(&weights[turn % turns]);
        gemm(&bench.exec(), a, b, &mut c, n, &epilogue)
    })
}

fn product_of_bytes(bench: &Bench, sizes: ProductSizes) -> Timed {
    let ProductSizes { m, n, k } = sizes;
    let bytes: Vec<u8> = (0..m.max(n) * k).map(|i| (i * 7919 % 251) as u8).collect();
    let (a, b) = (&bytes[..m * k], &bytes[..k * n]);
    let a = ByteMatrix { bits: MatRef::row_major(a, m, k), signed: false };
    let b = ByteMatrix { bits: MatRef::row_major(b, k, n), signed: true };
    let packed = Pool::run_to_end(|| PackedB::from_bytes(bench.isa, b));
    let mut c = vec![0; m * n];
    let zero_points = ZeroPoints { a: &[128], b: &[] };
    time(bench, |_| gemm_bytes(&bench.exec(), a, ByteRhs::Packed(&packed), zero_points, &mut c))
}

/// Cycles that a function takes for 8 numbers at the end of a product, where a cycle is that of 32
/// operations at the peak. The product has one step, so that it costs little itself.
fn cycles(bench: &Bench, activation: Activation) -> f64 {
    let sizes = ProductSizes { m: 96, n: 256, k: 1 };
    let plain = product(bench, sizes, Activation::None, 1);
    let with_function = product(bench, sizes, activation, 1);
    (with_function.cycles() - plain.cycles()) / ((sizes.m * sizes.n) as f64 / 8.0)
}

impl Convolution {
    /// Makes a convolution of square images by an algorithm that does every multiply-add.
    fn new(shape: Shape, bar: f64, aim: f64) -> Convolution {
        Convolution { shape, is_cold: false, saved: 1.0, bar, aim }
    }
}

/// Lists the convolutions with a bar.
fn convolutions() -> Vec<Convolution> {
    let mut all = Vec::new();
    // Input channels, output channels, size, kernel, stride.
    for (channels, out_channels, size, kernel, stride, bar, aim) in [
        (1024, 256, 14, 1, 1, 0.85, 0.92),
        (2048, 512, 7, 1, 1, 0.75, 0.82),
        (128, 128, 56, 3, 2, 0.82, 0.90),
    ] {
        let shape =
            Shape { channels, out_channels, size, kernel, stride, depthwise: false, count: 1 };
        all.push(Convolution::new(shape, bar, aim));
    }
    for (channels, size, is_cold, bar, aim) in
        [(64, 56, false, 0.65, 0.75), (256, 14, false, 0.78, 0.85), (512, 7, true, 0.62, 0.70)]
    {
        let direct = Convolution::new(Shape::with_equal_channels(channels, size, 3), bar, aim);
        all.push(Convolution { is_cold, saved: WINOGRAD, ..direct });
    }
    for (channels, size, kernel, bar, aim) in
        [(144, 56, 3, 0.45, 0.58), (672, 14, 5, 0.48, 0.59), (96, 56, 7, 0.58, 0.72)]
    {
        let shape = Shape { depthwise: true, ..Shape::with_equal_channels(channels, size, kernel) };
        all.push(Convolution::new(shape, bar, aim));
    }
    all
}

fn run_convolution(bench: &Bench, convolution: &Convolution) {
    let Convolution { shape, is_cold, saved, bar, aim } = *convolution;
    let kind = if shape.depthwise { "depthwise" } else { "convolution" };
    let from = if is_cold { ", weights from memory" } else { "" };
    let name = format!("{kind} {}{from}", shape.name());
    if !name.contains(&bench.filter) {
        return;
    }
    let copies = if is_cold { bench.turns(shape.weights() * size_of::<f32>()) } else { 1 };
    let mut layer = convolutions::Layer::new(bench, shape, copies);
    let timed = time(bench, |turn| {
        layer.run(bench, turn);
        Ok(())
    });
    let unit = if saved == 1.0 { "of peak" } else { "of 2.25 peak" };
    let macs = shape.work().flops / 2.0;
    print_share(&name, unit, timed.share(macs) / saved, bar, aim);
}

fn attention_of(bench: &Bench, heads: usize, rows: usize, features: usize) -> Timed {
    let x = numbers(heads * rows * features);
    // Rows of all heads, as projections write them.
    let strides = [heads * rows * features, features, heads * features, 1];
    let of_heads = Heads { data: &x, strides };
    let job = Attention {
        sizes: Sizes {
            batch: 1,
            heads,
            shared_heads: heads,
            queries: rows,
            keys: rows,
            features,
            value_features: features,
        },
        q: of_heads,
        k: of_heads,
        v: of_heads,
        mask: None,
        scale: 1.0 / (features as f64).sqrt(),
        softcap: 0.0,
        window: NO_WINDOW,
        blind_is_zero: false,
    };
    let mut y = vec![0.0; x.len()];
    time(bench, |_| attention(&bench.exec(), &job, HeadsMut { data: &mut y, strides }))
}

/// Measures a layer with as many features as hidden units.
fn lstm_of(bench: &Bench, batch: usize, hidden: usize) -> Timed {
    let exec = &bench.exec();
    let (width, rows) = (4 * hidden, STEPS * batch);
    let (x, weights) = (numbers(rows * hidden), numbers(hidden * width));
    let [weights, state] = [(); 2].map(|()| {
        let matrix = MatRef::row_major(&weights, hidden, width);
        Pool::run_to_end(|| PackedB::new(bench.isa, matrix))
    });
    let [f, g] = [Unary::Sigmoid, Unary::Tanh].map(Gate::Of);
    let state = Rhs::Packed(&state);
    let cell = Cell::Memory { functions: [f, g, g], state, peepholes: None, coupled: false };
    let sequences = Sequences { steps: STEPS, batch, hidden, lengths: None };
    let [mut h, mut c] = [(); 2].map(|()| vec![0.0; batch * hidden]);
    let mut y = vec![0.0; rows * hidden];
    let mut product = vec![0.0; rows * width];
    let mut scratch = vec![0.0; cell.scratch_len(batch, hidden)];
    time(bench, |_| {
        let pass = Pass {
            layer: Layer { cell, clip: None },
            backwards: false,
            input: Input {
                x: MatRef::row_major(&x, rows, hidden),
                weights: Rhs::Packed(&weights),
                bias: None,
                product: &mut product,
            },
            h: &mut h,
            c: &mut c,
        };
        let strides = [batch * hidden, hidden];
        let outputs = Outputs { y: &mut y, strides, pass_stride: 0 };
        f32::recur(exec, &sequences, [batch, 1], &mut [pass], Some(outputs), &mut scratch)
    })
}
