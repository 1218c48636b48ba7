//! Matrix products of the shapes of real networks.

use super::{Bench, Group, Work, copies_of, numbers};
use sardonyx_kernels::Pool;
use sardonyx_kernels::gemm::{
    ByteMatrix, ByteRhs, Epilogue, Lhs, MatRef, PackedB, Rhs, ZeroPoints, gemm, gemm_bytes,
};

/// Rows, columns, depth.
type Shape = (usize, usize, usize);

/// Networks that shapes are from.
const GROUPS: &[(&str, &[Shape])] = &[
    ("products, bert", &[(128, 768, 768), (128, 3072, 768), (128, 768, 3072)]),
    (
        "products, gpt2",
        &[(128, 50257, 768), (1, 2304, 768), (1, 3072, 768), (1, 768, 3072), (1, 50257, 768)],
    ),
    ("products, qwen2", &[(1, 4864, 896), (1, 896, 4864), (128, 4864, 896), (128, 896, 4864)]),
    (
        "products, others",
        &[
            (1, 1000, 2048),
            (1, 4096, 4096),
            (8, 4096, 1024),
            (32, 512, 512),
            (512, 512, 512),
            (1000, 1000, 1000),
            (2048, 2048, 2048),
        ],
    ),
];

pub(super) fn run(bench: &Bench) {
    for (name, shapes) in GROUPS {
        let mut group = Group::new(bench, name);
        for &shape in *shapes {
            product(&mut group, shape);
        }
    }
    let (_, shapes) = GROUPS[0];
    let mut group = Group::new(bench, "products of bytes, bert");
    for &shape in shapes {
        product_of_bytes(&mut group, shape);
    }
}

/// Measures one shape with weights packed ahead and as rows. Where the machine multiplies four
/// bytes in one instruction, this may pass the peak, which is that of floats.
fn product_of_bytes(group: &mut Group<'_>, (m, n, k): Shape) {
    let bench = group.bench;
    let work = Work {
        flops: 2.0 * count(m, n) * k as f64,
        bytes: count(m, k) + count(k, n) + size_of::<i32>() as f64 * count(m, n),
        from_memory: bench.exceeds_caches(n * k),
    };
    let [packed, plain] = ["packed", "plain"].map(|form| format!("{m} x {n} x {k}, {form}"));
    if !group.wants(&packed) && !group.wants(&plain) {
        return;
    }
    let a = byte_numbers(m * k);
    let a = ByteMatrix { bits: MatRef::row_major(&a, m, k), signed: false };
    let mut c = vec![0; m * n];
    let mut multiply =
        |b: ByteRhs<'_>| gemm_bytes(&bench.exec(), a, b, ZeroPoints { a: &[128], b: &[] }, &mut c);
    let copies = copies_of(n * k);
    let weights: Vec<Vec<u8>> = (0..copies).map(|_| byte_numbers(k * n)).collect();
    if group.wants(&packed) {
        let weights: Vec<_> = (0..copies)
            .map(|i| {
                Pool::run_to_end(|| PackedB::from_bytes(bench.isa, view_signed(&weights[i], k, n)))
            })
            .collect();
        group.time_layer(&packed, work, copies, |i| multiply(ByteRhs::Packed(&weights[i])));
    }
    group.time_layer(&plain, work, copies, |i| {
        multiply(ByteRhs::Plain(view_signed(&weights[i], k, n)))
    });
}

/// Returns the number of elements of a matrix.
fn count(rows: usize, cols: usize) -> f64 {
    rows as f64 * cols as f64
}

/// Makes bytes of many values.
fn byte_numbers(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7919 % 251) as u8).collect()
}

/// Views bytes as a matrix of signed integers with adjacent rows.
fn view_signed(bytes: &[u8], rows: usize, cols: usize) -> ByteMatrix<'_> {
    ByteMatrix { bits: MatRef::row_major(bytes, rows, cols), signed: true }
}

/// Measures one shape with weights in each form: packed ahead, as rows, and as columns (a matrix
/// stored transposed).
fn product(group: &mut Group<'_>, (m, n, k): Shape) {
    let bench = group.bench;
    let work = Work {
        flops: 2.0 * count(m, n) * k as f64,
        bytes: size_of::<f32>() as f64 * (count(m, k) + count(k, n) + count(m, n)),
        from_memory: bench.exceeds_caches(n * k * size_of::<f32>()),
    };
    let names = ["packed", "plain", "transposed"].map(|form| format!("{m} x {n} x {k}, {form}"));
    if !names.iter().any(|name| group.wants(name)) {
        return;
    }
    let a = numbers(m * k);
    let a = Lhs::Plain(MatRef::row_major(&a, m, k));
    let mut c = vec![0.0; m * n];
    let mut multiply = |b: Rhs<'_>| {
        let epilogue = Epilogue::default();
        gemm(&bench.exec(), a, b, &mut c, n, &epilogue)
    };
    let copies = copies_of(n * k * size_of::<f32>());
    let weights: Vec<Vec<f32>> = (0..copies).map(|_| numbers(k * n)).collect();
    let [packed, plain, transposed] = &names;
    if group.wants(packed) {
        let pack =
            |b: &Vec<f32>| Pool::run_to_end(|| PackedB::new(bench.isa, MatRef::row_major(b, k, n)));
        let weights: Vec<PackedB> = weights.iter().map(pack).collect();
        group.time_layer(packed, work, copies, |i| multiply(Rhs::Packed(&weights[i])));
    }
    group.time_layer(plain, work, copies, |i| {
        multiply(Rhs::Plain(MatRef::row_major(&weights[i], k, n)))
    });
    group.time_layer(transposed, work, copies, |i| {
        multiply(Rhs::Plain(MatRef::col_major(&weights[i], k, n)))
    });
}
