//! Times matrix products of typical shapes, and an empty parallel region.
//!
//! `cargo run --release -p sardonyx-kernels --example products [threads] [rounds]`

use std::time::Instant;

use sardonyx_kernels::gemm::{Epilogue, Lhs, MatRef, PackedB, Rhs, gemm};
use sardonyx_kernels::{Isa, Pool};

/// Rows, columns, depth.
const SHAPES: &[(usize, usize, usize)] = &[
    (1, 1000, 2048),
    (1, 4096, 4096),
    (8, 4096, 1024),
    (32, 512, 512),
    (128, 768, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (512, 512, 512),
    (1000, 1000, 1000),
    (2048, 2048, 2048),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let threads = args.next().and_then(|a| a.parse().ok()).unwrap_or(1);
    let rounds: usize = args.next().and_then(|a| a.parse().ok()).unwrap_or(20);
    let pool = Pool::new(threads);
    let isa = Isa::detect();

    let region = best(rounds, || {
        for _ in 0..1000 {
            pool.run(threads, |_| {});
        }
    });
    println!(
        "{isa:?}, {threads} threads; a region costs {:.2} us",
        region * 1e3
    );
    for &(m, n, k) in SHAPES {
        let numbers =
            |len: usize| -> Vec<f32> { (0..len).map(|i| (i % 13) as f32 - 6.0).collect() };
        let (a, b, bt) = (numbers(m * k), numbers(k * n), numbers(n * k));
        let a = Lhs::Plain(MatRef::row_major(&a, m, k));
        let packed = PackedB::new(isa, MatRef::row_major(&b, k, n));
        let mut c = vec![0.0; m * n];
        let mut speed = |b: Rhs<'_>| {
            let time = best(rounds, || {
                gemm(&pool, isa, a, b, &mut c, n, &Epilogue::default());
            });
            format!(
                "{:9.1} us {:6.1} GFLOP/s",
                time * 1e6,
                2e-9 * (m * n * k) as f64 / time
            )
        };
        println!(
            "{m:5} x {n:5} x {k:5}: packed {}, plain {}, transposed {}",
            speed(Rhs::Packed(&packed)),
            speed(Rhs::Plain(MatRef::row_major(&b, k, n))),
            speed(Rhs::Plain(MatRef::col_major(&bt, k, n)))
        );
    }
}

fn best(rounds: usize, mut f: impl FnMut()) -> f64 {
    (0..rounds)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}
