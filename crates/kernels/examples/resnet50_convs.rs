//! Times every convolution of ResNet-50 (batch 1, 224 x 224) and sets it against the machine's own peak.
//!
//! `cargo run --release -p sardonyx-kernels --example resnet50_convs [threads] [rounds]`
//!
//! Rounds go over all shapes in turn, so that noise from other processes hits all alike; the best round of each shape
//! counts. `peak` is what a loop of independent multiply-adds reaches on one core in the same run. The last line is one
//! pass over all 53 convolutions with weights of their own, as in the network.

// Intrinsics of the peak measurement.
#![allow(unsafe_code)]

use std::time::Instant;

use sardonyx_kernels::conv::{ConvEpilogue, ConvParams, PackedConv};
use sardonyx_kernels::gemm::Activation;
use sardonyx_kernels::{Isa, Pool};

/// Input channels, output channels, input size, kernel, stride, count.
const SHAPES: &[(usize, usize, usize, usize, usize, usize)] = &[
    (3, 64, 224, 7, 2, 1),
    (64, 64, 56, 1, 1, 1),
    (64, 64, 56, 3, 1, 3),
    (64, 256, 56, 1, 1, 4),
    (256, 64, 56, 1, 1, 2),
    (256, 128, 56, 1, 1, 1),
    (128, 128, 56, 3, 2, 1),
    (128, 512, 28, 1, 1, 4),
    (256, 512, 56, 1, 2, 1),
    (512, 128, 28, 1, 1, 3),
    (128, 128, 28, 3, 1, 3),
    (512, 256, 28, 1, 1, 1),
    (256, 256, 28, 3, 2, 1),
    (256, 1024, 14, 1, 1, 6),
    (512, 1024, 28, 1, 2, 1),
    (1024, 256, 14, 1, 1, 5),
    (256, 256, 14, 3, 1, 5),
    (1024, 512, 14, 1, 1, 1),
    (512, 512, 14, 3, 2, 1),
    (512, 2048, 7, 1, 1, 3),
    (1024, 2048, 14, 1, 2, 1),
    (2048, 512, 7, 1, 1, 2),
    (512, 512, 7, 3, 1, 2),
];

struct Layer {
    /// One per occurrence in the network.
    convs: Vec<PackedConv>,
    size: usize,
    input: Vec<f32>,
    output: Vec<f32>,
    bias: Vec<f32>,
    gflop: f64,
    best: f64,
}

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let rounds = args.next().and_then(|a| a.parse().ok()).unwrap_or(10);
    let pool = Pool::new(threads);
    let isa = Isa::detect();
    let mut layers: Vec<Layer> = SHAPES.iter().map(|&shape| layer(isa, shape)).collect();

    let mut peak = 0.0f64;
    let mut whole = f64::INFINITY;
    for _ in 0..rounds {
        peak = peak.max(fma_gflops(isa));
        for layer in &mut layers {
            for _ in 0..3 {
                let start = Instant::now();
                run(&pool, layer, 0);
                layer.best = layer.best.min(start.elapsed().as_secs_f64());
            }
        }
        let start = Instant::now();
        for layer in &mut layers {
            for i in 0..layer.convs.len() {
                run(&pool, layer, i);
            }
        }
        whole = whole.min(start.elapsed().as_secs_f64());
    }

    println!("{isa:?}, {threads} threads, peak of one core {peak:.1} GFLOP/s");
    let (mut time, mut gflop) = (0.0, 0.0);
    for (layer, &(c, m, size, kernel, stride, count)) in layers.iter().zip(SHAPES) {
        let speed = layer.gflop / layer.best;
        println!(
            "{c:5} -> {m:5} at {size:3}, {kernel}x{kernel}/{stride} x{count}: {:7.3} ms {speed:7.1} GFLOP/s {:3.0} %",
            layer.best * 1e3,
            speed / peak * 100.0
        );
        time += layer.best * count as f64;
        gflop += layer.gflop * count as f64;
    }
    let report = |what: &str, time: f64| {
        let speed = gflop / time;
        println!(
            "{what}: {:.2} ms, {speed:.1} GFLOP/s, {:.0} % of one core's peak",
            time * 1e3,
            speed / peak * 100.0
        );
    };
    report("sum of the best", time);
    report("one pass, own weights", whole);
}

fn layer(
    isa: Isa,
    (c, m, size, kernel, stride, count): (usize, usize, usize, usize, usize, usize),
) -> Layer {
    let pad = kernel / 2;
    let params = ConvParams {
        strides: vec![stride; 2],
        pads_begin: vec![pad; 2],
        pads_end: vec![pad; 2],
        ..ConvParams::new(c, m, &[kernel; 2])
    };
    let out = params.output_dims(&[size; 2]).expect("the shapes fit");
    let plane = out[0] * out[1];
    let weights = numbers(m * c * kernel * kernel);
    Layer {
        convs: (0..count)
            .map(|_| PackedConv::new(isa, params.clone(), &weights).expect("the shapes fit"))
            .collect(),
        size,
        input: numbers(c * size * size),
        output: vec![0.0; m * plane],
        bias: numbers(m),
        gflop: 2e-9 * (m * c * kernel * kernel * plane) as f64,
        best: f64::INFINITY,
    }
}

fn run(pool: &Pool, layer: &mut Layer, index: usize) {
    let epilogue = ConvEpilogue {
        bias: Some(&layer.bias),
        activation: Activation::Relu,
        ..ConvEpilogue::default()
    };
    layer.convs[index]
        .run(
            pool,
            1,
            &[layer.size; 2],
            &layer.input,
            &mut layer.output,
            &epilogue,
        )
        .expect("the shapes fit");
}

fn numbers(len: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0)
        .collect()
}

/// Multiply-adds per second of independent chains in registers, in GFLOP/s.
fn fma_gflops(isa: Isa) -> f64 {
    const STEPS: usize = 1_000_000;
    let start = Instant::now();
    let lanes = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            // SAFETY: the machine has AVX-512.
            unsafe { peak::avx512(STEPS) };
            16
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => {
            // SAFETY: the machine has AVX2 and FMA.
            unsafe { peak::avx2(STEPS) };
            8
        }
        _ => return f64::NAN,
    };
    (STEPS * 12 * lanes * 2) as f64 / start.elapsed().as_secs_f64() * 1e-9
}

#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512(steps: usize) {
        let x = black_box(_mm512_set1_ps(0.5));
        let mut acc = [x; 12];
        for _ in 0..steps {
            for a in &mut acc {
                *a = _mm512_fmadd_ps(*a, x, x);
            }
        }
        black_box(acc);
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2(steps: usize) {
        let x = black_box(_mm256_set1_ps(0.5));
        let mut acc = [x; 12];
        for _ in 0..steps {
            for a in &mut acc {
                *a = _mm256_fmadd_ps(*a, x, x);
            }
        }
        black_box(acc);
    }
}
