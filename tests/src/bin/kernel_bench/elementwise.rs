//! Functions of elements, rows and copies, which stand between the products of a network.

use super::{Bench, Group, Work, numbers};
use sardonyx_kernels::elementwise::{
    Binary, Link, Side, Strided, Unary, broadcast_strides, unary, unary_in_place,
};
use sardonyx_kernels::norm::{Affine, RowNormalization, Statistics};
use sardonyx_kernels::softmax::Softmax;
use sardonyx_kernels::{ElementLoops, FloatLoops, MoveLoops};

const FUNCTIONS: &[(&str, Unary)] = &[
    ("exp", Unary::Exp),
    ("tanh", Unary::Tanh),
    ("erf", Unary::Erf),
    ("gelu", Unary::Gelu),
    ("gelu by tanh", Unary::GeluTanh),
    ("sigmoid", Unary::Sigmoid),
    ("silu", Unary::Silu),
    ("relu", Unary::Relu),
];
/// Elements of each thread: with the result half of a usual second-level cache.
const CACHED: usize = 64 << 10;

/// Rows and their length: attention of bert, attention of vit, logits of gpt2.
const ROWS: &[(usize, usize)] = &[(12 * 128, 128), (12 * 197, 197), (1, 50257)];

/// Dims and the order that they are brought into.
const TRANSPOSITIONS: &[(&str, &[usize], &[usize])] = &[
    ("heads to the front", &[128, 12, 64], &[1, 0, 2]),
    ("keys to columns", &[128, 12, 64], &[1, 2, 0]),
    ("channels to the back", &[96, 56, 56], &[1, 2, 0]),
    ("a matrix of 64 MB", &[4096, 4096], &[1, 0]),
];

/// Dims of the result and of the second operand.
const SUMS: &[(&str, &[usize], &[usize])] = &[
    ("128 x 768, same dims", &[128, 768], &[128, 768]),
    ("128 x 3072, a row", &[128, 3072], &[3072]),
    ("12 x 128 x 128, a mask", &[12, 128, 128], &[128, 128]),
    ("64 MB each", &[16 << 20], &[16 << 20]),
];

pub(super) fn run(bench: &Bench) {
    functions(&mut Group::new(bench, "functions"));
    rows(&mut Group::new(bench, "rows"));
    sums(&mut Group::new(bench, "sums"));
    measure_fused(&mut Group::new(bench, "pointwise"));
    copies(&mut Group::new(bench, "copies"));
}

fn functions(group: &mut Group<'_>) {
    let bench = group.bench;
    let len = CACHED * bench.threads;
    for (name, function) in FUNCTIONS {
        let (x, mut y) = (numbers(len), vec![0.0; len]);
        group.time(name, describe_move(2 * len), |_| unary(&bench.exec(), *function, &x, &mut y));
    }
}

fn rows(group: &mut Group<'_>) {
    let bench = group.bench;
    for &(count, len) in ROWS {
        let (x, mut y) = (numbers(count * len), vec![0.0; count * len]);
        let name = format!("softmax, {count} of {len}");
        group.time(&name, describe_move(2 * x.len()), |_| {
            let dims = [count, len, 1];
            f32::softmax(&bench.exec(), Softmax::Softmax, dims.into(), &x, &mut y)
        });
    }
    let (count, len) = (128, 768);
    let (x, mut y) = (numbers(count * len), vec![0.0; count * len]);
    let (scale, shift) = (numbers(len), numbers(len));
    for (name, statistics) in [
        ("layer normalisation", Statistics::MeanVariance),
        ("root mean square", Statistics::RootMeanSquare),
    ] {
        group.time(&format!("{name}, {count} of {len}"), describe_move(2 * x.len()), |_| {
            f32::normalize_rows(
                &bench.exec(),
                RowNormalization {
                    statistics,
                    len,
                    epsilon: 1e-5,
                    affine: Affine::Elements(&scale, Some(&shift)),
                },
                &x,
                &mut y,
                None,
                None,
            )
        });
    }
}

fn sums(group: &mut Group<'_>) {
    let bench = group.bench;
    for (name, dims, second) in SUMS {
        if !group.wants(name) {
            continue;
        }
        let (mut a_strides, mut b_strides) = (vec![0; dims.len()], vec![0; dims.len()]);
        broadcast_strides(dims, dims, &mut a_strides).expect("the dims fit");
        broadcast_strides(second, dims, &mut b_strides).expect("the dims fit");
        let (a, b) = (numbers(size(dims)), numbers(size(second)));
        let mut out = vec![0.0; a.len()];
        let work = bench.describe_move_maybe_far(2 * a.len() + b.len());
        group.time(name, work, |_| {
            f32::binary(
                &bench.exec(),
                Binary::Add,
                dims,
                Strided::new(&a, &a_strides),
                Strided::new(&b, &b_strides),
                &mut out,
            )
        });
    }
}

/// Measures five operations in one pass over memory and in a pass each.
fn measure_fused(group: &mut Group<'_>) {
    five_links(group, "a million elements", 1024);
    five_links(group, "64 MB each", 16 << 10);
}

fn five_links(group: &mut Group<'_>, size: &str, rows: usize) {
    let names = ["in one pass", "one by one"].map(|how| format!("{size}, five links {how}"));
    if !names.iter().any(|name| group.wants(name)) {
        return;
    }
    let bench = group.bench;
    let exec = &bench.exec();
    let (dims, whole, row) = ([rows, 1024], [1024, 1], [0, 1]);
    let count = rows * 1024;
    let (x, other, bias) = (numbers(count), numbers(count), numbers(1024));
    let mut y = vec![0.0; x.len()];
    let links = [
        Link::Binary { op: Binary::Add, side: Side::Left, other: &bias, strides: &row },
        Link::Unary(Unary::HardSwish),
        Link::Binary { op: Binary::Mul, side: Side::Left, other: &other, strides: &whole },
        Link::Unary(Unary::Abs),
        Link::Clip { low: 0.0, high: 0.5 },
    ];
    let work = bench.describe_move_maybe_far(3 * x.len());
    group.time(&names[0], work, |_| {
        f32::pointwise(exec, &dims, Strided::new(&x, &whole), &links, &mut y)
    });
    // Each pass reads and writes the result, and one of them reads another operand of its size.
    let work = bench.describe_move_maybe_far((2 + 2 + 3 + 2 + 2) * x.len());
    group.time(&names[1], work, |_| {
        f32::binary(
            exec,
            Binary::Add,
            &dims,
            Strided::new(&x, &whole),
            Strided::new(&bias, &row),
            &mut y,
        )?;
        unary_in_place(exec, Unary::HardSwish, &mut y)?;
        let (op, side) = (Binary::Mul, Side::Left);
        f32::binary_in_place(exec, op, side, &dims, &mut y, Strided::new(&other, &whole))?;
        unary_in_place(exec, Unary::Abs, &mut y)?;
        f32::clip_in_place(exec, 0.0, 0.5, &mut y)
    });
}

fn copies(group: &mut Group<'_>) {
    let bench = group.bench;
    for (name, dims, order) in TRANSPOSITIONS {
        if !group.wants(name) {
            continue;
        }
        // Elements of four bytes, as the runtime moves them.
        let x: Vec<[u8; 4]> = (0u32..).map(u32::to_ne_bytes).take(size(dims)).collect();
        let mut y = vec![[0; 4]; x.len()];
        let work = bench.describe_move_maybe_far(2 * x.len());
        let out: Vec<usize> = order.iter().map(|&axis| dims[axis]).collect();
        let strides: Vec<isize> =
            order.iter().map(|&axis| size(&dims[axis + 1..]) as isize).collect();
        group.time(name, work, |_| {
            MoveLoops::copy_strided(&bench.pool, &out, 0, &strides, &x, &mut y)
        });
    }
}

impl Bench {
    /// Returns the work of moving elements of four bytes, from and to memory if there are many.
    fn describe_move_maybe_far(&self, elements: usize) -> Work {
        let work = describe_move(elements);
        Work { from_memory: work.bytes > self.beyond_caches as f64, ..work }
    }
}

/// Returns the work of moving elements of four bytes, from and to caches.
fn describe_move(elements: usize) -> Work {
    Work { bytes: 4.0 * elements as f64, ..Work::default() }
}

fn size(dims: &[usize]) -> usize {
    dims.iter().product()
}
