//! Products against a loop in f64, under every instruction set and several thread counts.

// A failure to set up a case is a failed test.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::gemm::BatchOut;
use sardonyx_simd::{Caches, Exec, Isa, Pool};

/// Caches of an old, a usual and a large processor.
pub(crate) const CACHES: [Caches; 3] = [
    Caches { near: 16 << 10, own: 128 << 10, shared: 1 << 20 },
    Caches { near: 32 << 10, own: 512 << 10, shared: 4 << 20 },
    Caches { near: 64 << 10, own: 4 << 20, shared: 64 << 20 },
];

/// Generates repeatable pseudo-random values in [-1, 1).
pub(crate) fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// Computes the product in f64 before the epilogue, and the sum of magnitudes that bounds its
/// rounding error.
fn reference(a: &MatRef<'_>, b: &MatRef<'_>) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for i in 0..a.rows() {
        for j in 0..b.cols() {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for p in 0..a.cols() {
                let x = f64::from(a.get(i, p)) * f64::from(b.get(p, j));
                sum += x;
                magnitude += x.abs();
            }
            out.push((sum, magnitude));
        }
    }
    out
}

/// Returns the bound of one chain of k roundings: `k + 8` eps of the magnitudes, the epilogue
/// included. Random signs stay far below.
fn tolerance(k: usize, magnitude: f64) -> f64 {
    (k.min(64) as f64 + 8.0) * f64::from(f32::EPSILON) * (magnitude + 4.0)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Row,
    Col,
    /// Rows and columns with gaps between their elements.
    Gappy,
}

fn store_numbers(layout: Layout, rows: usize, cols: usize, seed: u64) -> (Vec<f32>, usize, usize) {
    let (rs, cs) = match layout {
        Layout::Row => (cols, 1),
        Layout::Col => (1, rows),
        Layout::Gappy => (3 * cols + 5, 3),
    };
    let len = strided_len(rows, cols, rs, cs).unwrap();
    (random(len, seed), rs, cs)
}

#[derive(Clone, Copy, Debug)]
enum Form {
    Plain,
    PackA,
    PackB,
    PackBoth,
    Virtual,
}

/// Wrapper that hides a matrix behind the trait, so that the virtual path runs.
struct Hidden<'a>(MatRef<'a>);
impl PackSource for Hidden<'_> {
    fn depth(&self) -> usize {
        self.0.rows()
    }
    fn width(&self) -> usize {
        self.0.cols()
    }
    fn pack(&self, isa: Isa, depth: std::ops::Range<usize>, start: usize, out: &mut [f32]) {
        self.0.pack(isa, depth, start, out);
    }
}

fn run(
    exec: &Exec<'_>,
    form: Form,
    a: MatRef<'_>,
    b: MatRef<'_>,
    ldc: usize,
    epilogue: &Epilogue<'_>,
) -> Vec<f32> {
    let isa = exec.isa;
    let (m, n) = (a.rows(), b.cols());
    let mut c = vec![77.0; m * ldc];
    let (pa, pb, hidden);
    let lhs = match form {
        Form::PackA | Form::PackBoth => {
            pa = PackedA::new(isa, a).unwrap();
            Lhs::Packed(&pa)
        }
        _ => Lhs::Plain(a),
    };
    let rhs = match form {
        Form::PackB | Form::PackBoth => {
            pb = PackedB::new(isa, b).unwrap();
            Rhs::Packed(&pb)
        }
        Form::Virtual => {
            hidden = Hidden(b);
            Rhs::Virtual(&hidden)
        }
        _ => Rhs::Plain(b),
    };
    gemm(exec, lhs, rhs, &mut c, ldc, epilogue).unwrap();
    for row in c.chunks(ldc.max(1)) {
        assert!(row[n..].iter().all(|&x| x == 77.0), "wrote between rows");
    }
    c
}

const SIZES: &[(usize, usize, usize)] = &[
    (1, 1, 1),
    (1, 1, 300),
    (1, 100, 70),
    (1, 3000, 9),
    (4, 150, 33),
    (150, 3, 33),
    (9, 130, 40),
    (100, 1, 70),
    (2, 33, 5),
    (3, 7, 0),
    (0, 4, 4),
    (4, 0, 4),
    (5, 300, 17),
    (13, 31, 64),
    (15, 49, 65),
    (64, 49, 300),
    (33, 65, 257),
    (70, 200, 40),
    (130, 97, 600),
    (40, 700, 33),
];

#[test]
fn products_of_all_shapes_layouts_and_forms() {
    let pools = [Pool::new(1), Pool::new(2), Pool::new(3), Pool::new(16)];
    let layouts = [Layout::Row, Layout::Col, Layout::Gappy];
    for &(m, n, k) in SIZES {
        for la in layouts {
            for lb in layouts {
                let (a, ars, acs) = store_numbers(la, m, k, 1);
                let (b, brs, bcs) = store_numbers(lb, k, n, 2);
                let a = MatRef::new(&a, m, k, ars, acs);
                let b = MatRef::new(&b, k, n, brs, bcs);
                let want = reference(&a, &b);
                for &isa in Isa::available() {
                    for form in
                        [Form::Plain, Form::PackA, Form::PackB, Form::PackBoth, Form::Virtual]
                    {
                        let ldc = n + 3;
                        let c =
                            run(&Exec::new(&pools[0], isa), form, a, b, ldc, &Epilogue::default());
                        for (i, &(sum, magnitude)) in want.iter().enumerate() {
                            let got = f64::from(c[i / n * ldc + i % n]);
                            assert!(
                                (got - sum).abs() <= tolerance(k, magnitude),
                                "{m}x{n}x{k} {la:?} {lb:?} {isa:?} {form:?} at {i}: {got}, not {sum}"
                            );
                        }
                        for pool in &pools[1..] {
                            let other =
                                run(&Exec::new(pool, isa), form, a, b, ldc, &Epilogue::default());
                            assert_eq!(c, other, "{m}x{n}x{k} {isa:?} {form:?} {pool:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn epilogues() {
    let pool = Pool::new(2);
    let (alpha, beta) = (0.5, -1.5);
    for &(m, n, k) in
        &[(3, 5, 0), (1, 40, 9), (40, 1, 9), (33, 49, 300), (64, 49, 64), (20, 600, 70)]
    {
        let (a, b) = (random(m * k, 3), random(k * n, 4));
        let a = MatRef::row_major(&a, m, k);
        let b = MatRef::row_major(&b, k, n);
        let want = reference(&a, &b);
        let (row, col, full) = (random(m, 5), random(n, 6), random(m * n, 7));
        let ldc = n + 2;
        let residual = random(m * ldc, 8);
        let addends = [
            ("none", None),
            ("full", Some(MatRef::row_major(&full, m, n))),
            ("transposed", Some(MatRef::col_major(&full, m, n))),
            ("row", Some(MatRef::new(&full, m, n, 0, 1))),
            ("column", Some(MatRef::new(&full, m, n, 1, 0))),
            ("scalar", Some(MatRef::new(&full, m, n, 0, 0))),
        ];
        for &isa in Isa::available() {
            for (what, addend) in addends {
                for bias in [None, Some(Bias::Row(&row)), Some(Bias::Col(&col))] {
                    for activation in [Activation::None, Activation::Clip(-0.5, 0.75)] {
                        for residual in [None, Some(&residual[..])] {
                            let epilogue = Epilogue {
                                alpha,
                                bias,
                                addend: addend.map(|c| (beta, c)),
                                residual,
                                activation,
                                ..Epilogue::default()
                            };
                            for form in [Form::Plain, Form::PackBoth] {
                                let c = run(&Exec::new(&pool, isa), form, a, b, ldc, &epilogue);
                                for (at, &(sum, magnitude)) in want.iter().enumerate() {
                                    let (i, j) = (at / n, at % n);
                                    let mut x = f64::from(alpha) * sum;
                                    x += match bias {
                                        Some(Bias::Row(_)) => f64::from(row[i]),
                                        Some(Bias::Col(_)) => f64::from(col[j]),
                                        None => 0.0,
                                    };
                                    x += addend
                                        .map_or(0.0, |c| f64::from(beta) * f64::from(c.get(i, j)));
                                    x += residual.map_or(0.0, |r| f64::from(r[i * ldc + j]));
                                    if activation != Activation::None {
                                        x = x.clamp(-0.5, 0.75);
                                    }
                                    let got = f64::from(c[i * ldc + j]);
                                    assert!(
                                        (got - x).abs() <= tolerance(k, magnitude),
                                        "{m}x{n}x{k} {isa:?} {form:?} {what} at {at}: {got}, not {x}"
                                    );
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn nan_and_infinity_stay_where_they_belong() {
    let pool = Pool::new(1);
    for &(m, n, k) in &[(40, 49, 30), (3, 70, 40), (1, 40, 20), (40, 1, 20), (64, 49, 30)] {
        for special in [f32::NAN, f32::INFINITY] {
            let (mut a, mut b) = (random(m * k, 1), random(k * n, 2));
            // Keep zero out: infinity times zero is NaN.
            a.iter_mut().chain(&mut b).for_each(|x| *x = x.abs() + 0.5);
            let (row, col) = (m - 1, n / 2);
            a[row * k + k / 2] = special;
            b[k / 3 * n + col] = special;
            let a = MatRef::row_major(&a, m, k);
            let b = MatRef::row_major(&b, k, n);
            for &isa in Isa::available() {
                for activation in [Activation::None, Activation::Relu] {
                    for form in [Form::Plain, Form::PackBoth] {
                        let epilogue = Epilogue { activation, ..Epilogue::default() };
                        let c = run(&Exec::new(&pool, isa), form, a, b, n, &epilogue);
                        for (at, &x) in c.iter().enumerate() {
                            let hit = at / n == row || at % n == col;
                            assert_eq!(!x.is_finite(), hit, "{m}x{n}x{k} {isa:?} at {at}: {x}");
                            assert!(!hit || x.is_nan() == special.is_nan());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn packing_from_unaligned_bytes() {
    let (m, n, k) = (37, 41, 50);
    let (a, b) = (random(m * k, 1), random(k * n, 2));
    let bytes = |x: &[f32]| {
        let mut out = vec![0u8];
        x.iter().for_each(|x| out.extend(x.to_le_bytes()));
        out
    };
    let b8 = bytes(&b);
    let pool = Pool::new(1);
    for &isa in Isa::available() {
        let (am, bm) = (MatRef::row_major(&a, m, k), MatRef::row_major(&b, k, n));
        let want = run(&Exec::new(&pool, isa), Form::PackB, am, bm, n, &Epilogue::default());
        let pb = PackedB::from_le(isa, &LeMatrix::row_major(&b8[1..], Storage::F32, k, n)).unwrap();
        let mut c = vec![0.0; m * n];
        let (lhs, rhs) = (Lhs::Plain(am), Rhs::Packed(&pb));
        gemm(&Exec::new(&pool, isa), lhs, rhs, &mut c, n, &Epilogue::default()).unwrap();
        assert_eq!(c, want);
    }
}

#[test]
fn the_order_of_columns_changes_no_bit() {
    let pools = [1, 2, 3].map(Pool::new);
    for (m, n, k) in [(1, 1, 5), (1, 200, 3), (1, 2048, 300), (3, 700, 300), (40, 1100, 70)] {
        let (a, b, bias) = (random(m * k, 1), random(k * n, 2), random(n, 3));
        let epilogue = Epilogue { bias: Some(Bias::Col(&bias)), ..Epilogue::default() };
        for &isa in Isa::available() {
            let packed = PackedB::new(isa, MatRef::row_major(&b, k, n)).unwrap();
            let product = |pool: &Pool, sweep: Sweep| {
                let (mut c, exec) = (vec![77.0; m * n], Exec::new(pool, isa));
                let a = Lhs::Plain(MatRef::row_major(&a, m, k));
                gemm_swept(&exec, a, Rhs::Packed(&packed), &mut c, n, &epilogue, sweep).unwrap();
                c
            };
            let want = product(&pools[0], Sweep::FromFirst);
            for pool in &pools {
                assert!(product(pool, Sweep::FromLast) == want, "{isa:?} {m} x {n}, {k} steps");
            }
        }
    }
}

/// Checks the bits of a single row, which meets several panels at once, against two rows, which
/// do not.
#[test]
fn a_row_alone_is_the_first_of_two() {
    let pools = [Pool::new(1), Pool::new(3)];
    let widths = [1, 16, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 200, 256, 300, 520];
    for (n, k) in widths.into_iter().flat_map(|n| [3, 64, 300].map(|k| (n, k))) {
        let (a, b, bias) = (random(2 * k, 1), random(k * n, 2), random(n, 3));
        let activation = [Activation::None, Activation::Tanh, Activation::LeakyRelu(0.1)][n % 3];
        let epilogue = Epilogue { bias: Some(Bias::Col(&bias)), activation, ..Epilogue::default() };
        for &isa in Isa::available() {
            for storage in [Storage::F32, Storage::F16, Storage::Bf16] {
                let bytes: Vec<u8> = match storage {
                    Storage::F32 => b.iter().flat_map(|x| x.to_le_bytes()).collect(),
                    Storage::F16 => {
                        b.iter().flat_map(|&x| half::f16::from_f32(x).to_le_bytes()).collect()
                    }
                    Storage::Bf16 => {
                        b.iter().flat_map(|&x| half::bf16::from_f32(x).to_le_bytes()).collect()
                    }
                };
                let packed =
                    PackedB::from_le(isa, &LeMatrix::row_major(&bytes, storage, k, n)).unwrap();
                for (pool, form) in pools.iter().flat_map(|pool| [(pool, false), (pool, true)]) {
                    let product = |rows: usize| {
                        let am = MatRef::row_major(&a[..rows * k], rows, k);
                        let pa = PackedA::new(isa, am).unwrap();
                        let lhs = if form { Lhs::Packed(&pa) } else { Lhs::Plain(am) };
                        let mut c = vec![77.0; rows * n];
                        let exec = Exec::new(pool, isa);
                        gemm(&exec, lhs, Rhs::Packed(&packed), &mut c, n, &epilogue).unwrap();
                        c
                    };
                    assert!(product(1) == product(2)[..n], "{isa:?} {storage:?} {n} x {k}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "depth of A and B")]
fn depths_must_agree() {
    let x = [0.0; 6];
    let (a, b) = (MatRef::row_major(&x, 2, 3), MatRef::row_major(&x, 2, 3));
    let mut c = [0.0; 6];
    let (a, b) = (Lhs::Plain(a), Rhs::Plain(b));
    gemm(&Exec::new(&Pool::new(1), Isa::Portable), a, b, &mut c, 3, &Epilogue::default()).unwrap();
}

#[test]
#[should_panic(expected = "rows 3 apart, in 5")]
fn the_output_must_fit() {
    let x = [0.0; 6];
    let (a, b) = (MatRef::row_major(&x, 2, 2), MatRef::row_major(&x, 2, 3));
    let mut c = [0.0; 5];
    let (a, b) = (Lhs::Plain(a), Rhs::Plain(b));
    gemm(&Exec::new(&Pool::new(1), Isa::Portable), a, b, &mut c, 3, &Epilogue::default()).unwrap();
}
/// Multiplies matrices of a transformer whose positions come before its examples.
#[test]
fn interleaved_matrices_are_one_tall_one() {
    let n = 40;
    for (count, m, k, col_stride) in [(5, 8, 50, 1), (3, 21, 33, 1), (4, 9, 7, 2), (7, 1, 300, 1)] {
        let (a, b) = (random(count * m * k * col_stride, 1), random(k * n, 2));
        let residual = random(count * m * n, 3);
        let strides = [k * col_stride];
        let am = BatchMat {
            data: &a,
            rows: m,
            cols: k,
            row_stride: count * k * col_stride,
            col_stride,
            batch_strides: &strides,
        };
        let bm = BatchMat {
            data: &b,
            rows: k,
            cols: n,
            row_stride: n,
            col_stride: 1,
            batch_strides: &[0],
        };
        for &isa in Isa::available() {
            let packed = PackedB::new(isa, MatRef::row_major(&b, k, n)).unwrap();
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let product = |rhs: BatchRhs<'_>| {
                    let mut c = vec![f32::NAN; count * m * n];
                    let epilogue = Epilogue { residual: Some(&residual), ..Epilogue::default() };
                    gemm_batch(
                        &Exec::new(&pool, isa),
                        &[count],
                        am,
                        rhs,
                        BatchOut { data: &mut c, ldc: n, stride: m * n },
                        &epilogue,
                    )
                    .unwrap();
                    c
                };
                let mut want = vec![f32::NAN; count * m * n];
                for (i, want) in want.chunks_mut(m * n).enumerate() {
                    let start = &a[i * strides[0]..];
                    let one = MatRef::new(start, m, k, am.row_stride, col_stride);
                    let epilogue =
                        Epilogue { residual: Some(&residual[i * m * n..]), ..Epilogue::default() };
                    let (lhs, rhs) = (Lhs::Plain(one), Rhs::Packed(&packed));
                    gemm(&Exec::new(Pool::serial(), isa), lhs, rhs, want, n, &epilogue).unwrap();
                }
                let what = format!("{isa:?} {count} x {m} x {k}, step {col_stride}");
                assert!(product(BatchRhs::Packed(&packed)) == want, "{what}");
                assert!(product(BatchRhs::Plain(bm)) == want, "{what}");
            }
        }
    }
}

/// Copies a matrix into larger memory, where its elements have other strides.
fn spread(matrix: MatRef<'_>, row_stride: usize, col_stride: usize) -> Vec<f32> {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let mut data = vec![f32::NAN; strided_len(rows, cols, row_stride, col_stride).unwrap()];
    for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
        data[i * row_stride + j * col_stride] = matrix.get(i, j);
    }
    data
}

/// Multiplies matrices in memory.
fn multiply(exec: &Exec<'_>, a: MatRef<'_>, b: MatRef<'_>) -> Vec<f32> {
    run(exec, Form::Plain, a, b, b.cols(), &Epilogue::default())
}

/// Checks single columns, as in a cache with positions last that has room for more positions than
/// its only one.
#[test]
fn the_stride_of_a_single_column_changes_no_bit() {
    let pool = Pool::new(1);
    for (m, k) in [(1, 8), (3, 37), (4, 300), (5, 8), (9, 300)] {
        let (a, b) = (random(m * k, 1), random(k, 2));
        let (a, b) = (MatRef::row_major(&a, m, k), MatRef::row_major(&b, k, 1));
        for &isa in Isa::available() {
            let exec = &Exec::new(&pool, isa);
            let want = multiply(exec, a, b);
            for (step, next) in [(40, 1), (1, 1), (1, 77), (40, 3)] {
                let data = spread(b, step, next);
                let column = MatRef::new(&data, k, 1, step, next);
                let found = multiply(exec, a, column);
                assert!(found == want, "{isa:?} {m} x {k}, strides {step}, {next}");
            }
            // A single row, too, beside a matrix that has no adjacent elements.
            if m == 1 {
                let b = random(k * 3, 3);
                let data = spread(MatRef::row_major(&b, k, 3), 20, 5);
                let b = MatRef::new(&data, k, 3, 20, 5);
                let apart = spread(a, 1, 40);
                let row = MatRef::new(&apart, 1, k, 1, 40);
                assert!(multiply(exec, row, b) == multiply(exec, a, b), "{isa:?}, 1 x {k}");
            }
        }
    }
}

/// Checks rows that are not adjacent, as in a state with room for more of them in each example.
#[test]
fn rows_that_lie_apart_have_the_bits_of_rows_side_by_side() {
    let pool = Pool::new(3);
    let sizes = [
        (2, 1, 40, 300),
        (3, 2, 40, 300),
        (2, 3, 4, 37),
        (5, 4, 3, 37),
        (3, 5, 1, 300),
        // Several threads copy the rows.
        (40, 12, 3, 700),
    ];
    for ((count, m, n, k), is_turned) in
        sizes.iter().flat_map(|sizes| [(*sizes, false), (*sizes, true)])
    {
        let (a, b) = (random(count * m * k, 1), random(k * n, 2));
        let example = (m + 3) * k;
        let rows = count * m;
        let mut apart = vec![f32::NAN; count * example];
        for (from, to) in a.chunks(m * k).zip(apart.chunks_mut(example)) {
            to[..m * k].copy_from_slice(from);
        }
        let (row_stride, col_stride) = if is_turned { (1, k) } else { (n, 1) };
        let right =
            BatchMat { data: &b, rows: k, cols: n, row_stride, col_stride, batch_strides: &[0] };
        for &isa in Isa::available() {
            let results = [(&a, m * k), (&apart, example)].map(|(data, stride)| {
                let mut c = vec![f32::NAN; rows * n];
                let left = BatchMat {
                    data,
                    rows: m,
                    cols: k,
                    row_stride: k,
                    col_stride: 1,
                    batch_strides: &[stride],
                };
                let out = BatchOut { data: &mut c, ldc: n, stride: m * n };
                let (exec, right) = (Exec::new(&pool, isa), BatchRhs::Plain(right));
                gemm_batch(&exec, &[count], left, right, out, &Epilogue::default()).unwrap();
                c
            });
            let what = format!("{isa:?} {count} x {m} x {n} x {k}, turned: {is_turned}");
            assert!(results[0] == results[1], "{what}");
        }
    }
}

#[test]
fn batches_with_broadcasting() {
    let pools = [Pool::new(1), Pool::new(3)];
    let (d0, d1) = (2, 3);
    for &(m, n, k) in &[(5, 7, 9), (1, 40, 20), (33, 20, 40), (4, 4, 0)] {
        let (a, b) = (random(d0 * d1 * m * k, 1), random(d0 * d1 * k * n, 2));
        let residual = random(d0 * d1 * m * n, 3);
        let (row_bias, col_bias) = (random(m, 4), random(n, 5));
        let all = [[d1 * m * k, m * k], [0, m * k], [m * k, 0], [0, 0]];
        let all_b = [[d1 * k * n, k * n], [0, k * n], [k * n, 0], [0, 0]];
        for (sa, sb) in all.iter().flat_map(|sa| all_b.iter().map(move |sb| (sa, sb))) {
            for bias in [None, Some(Bias::Row(&row_bias)), Some(Bias::Col(&col_bias))] {
                let epilogue = Epilogue { bias, residual: Some(&residual), ..Epilogue::default() };
                for &isa in Isa::available() {
                    let mut first: Option<Vec<f32>> = None;
                    for pool in &pools {
                        let am = BatchMat {
                            data: &a,
                            rows: m,
                            cols: k,
                            row_stride: k,
                            col_stride: 1,
                            batch_strides: sa,
                        };
                        let bm = BatchMat {
                            data: &b,
                            rows: k,
                            cols: n,
                            row_stride: n,
                            col_stride: 1,
                            batch_strides: sb,
                        };
                        let mut c = vec![f32::NAN; d0 * d1 * m * n];
                        let rhs = BatchRhs::Plain(bm);
                        gemm_batch(
                            &Exec::new(pool, isa),
                            &[d0, d1],
                            am,
                            rhs,
                            BatchOut { data: &mut c, ldc: n, stride: m * n },
                            &epilogue,
                        )
                        .unwrap();
                        for i in 0..d0 * d1 {
                            let (i0, i1) = (i / d1, i % d1);
                            let x = MatRef::row_major(&a[i0 * sa[0] + i1 * sa[1]..], m, k);
                            let y = MatRef::row_major(&b[i0 * sb[0] + i1 * sb[1]..], k, n);
                            for (at, (sum, magnitude)) in reference(&x, &y).into_iter().enumerate()
                            {
                                let want = sum
                                    + f64::from(residual[i * m * n + at])
                                    + match bias {
                                        Some(Bias::Row(b)) => f64::from(b[at / n]),
                                        Some(Bias::Col(b)) => f64::from(b[at % n]),
                                        None => 0.0,
                                    };
                                let got = f64::from(c[i * m * n + at]);
                                assert!((got - want).abs() <= tolerance(k, magnitude));
                            }
                        }
                        assert_eq!(&c, first.get_or_insert_with(|| c.clone()));
                        if sb == &[0, 0] {
                            let b = PackedB::new(isa, MatRef::row_major(&b, k, n)).unwrap();
                            let mut c2 = vec![f32::NAN; d0 * d1 * m * n];
                            let rhs = BatchRhs::Packed(&b);
                            gemm_batch(
                                &Exec::new(pool, isa),
                                &[d0, d1],
                                am,
                                rhs,
                                BatchOut { data: &mut c2, ldc: n, stride: m * n },
                                &epilogue,
                            )
                            .unwrap();
                            assert_eq!(c, c2);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn caches_change_no_bit() {
    // Rows that a small cache holds for a k block and rows that only a large one holds, k of one
    // and of several blocks, columns of one and of several blocks.
    let shapes = [(7, 33, 65), (50, 300, 130), (300, 40, 700), (1100, 90, 300), (1, 2000, 600)];
    let pools = [Pool::new(1), Pool::new(3)];
    for (m, n, k) in shapes {
        let (a, b, bias) = (random(m * k, 1), random(k * n, 2), random(n, 3));
        let (a, b) = (MatRef::row_major(&a, m, k), MatRef::row_major(&b, k, n));
        let epilogue = Epilogue {
            bias: Some(Bias::Col(&bias)),
            activation: Activation::Relu,
            ..Epilogue::default()
        };
        for &isa in Isa::available() {
            for form in [Form::Plain, Form::PackA, Form::PackB, Form::PackBoth, Form::Virtual] {
                let mut expected: Option<Vec<u32>> = None;
                for caches in CACHES {
                    for pool in &pools {
                        let exec = Exec::new(pool, isa).with_caches(caches);
                        let c = run(&exec, form, a, b, n, &epilogue);
                        let bits: Vec<u32> = c.iter().map(|x| x.to_bits()).collect();
                        let expected = expected.get_or_insert_with(|| bits.clone());
                        assert!(
                            bits == *expected,
                            "{m} x {n} x {k}, {isa:?}, {form:?}, {caches}, {} threads",
                            pool.threads()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn repeated_products_are_products() {
    let pools = [Pool::new(1), Pool::new(3)];
    // Rows that are read in place and rows 1,024 floats apart, few and many columns, no rows at
    // all.
    let shapes =
        [(1, 64, 16), (1, 200, 600), (5, 48, 33), (13, 40, 1024), (30, 96, 300), (0, 8, 8)];
    for (m, n, k) in shapes {
        let (a, b) = (random(m * k, 1), random(k * n, 2));
        let bytes: Vec<u8> = b.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (a, b) = (MatRef::row_major(&a, m, k), MatRef::row_major(&b, k, n));
        for &isa in Isa::available() {
            let packed = PackedB::new(isa, b).unwrap();
            let stored = LeMatrix::row_major(&bytes, Storage::F32, k, n);
            let rounded = PackedB::rounded_from_le(isa, &stored).unwrap();
            for right in [Rhs::Plain(b), Rhs::Packed(&packed), Rhs::Packed(&rounded)] {
                for (pool, caches) in pools.iter().flat_map(|pool| CACHES.map(|c| (pool, c))) {
                    let exec = &Exec::new(pool, isa).with_caches(caches);
                    let repeated = Repeated::new(exec, a, right);
                    let (ldc, epilogue) = (n + 3, Epilogue::default());
                    let mut expected = vec![77.0; m * ldc];
                    gemm(exec, Lhs::Plain(a), right, &mut expected, ldc, &epilogue).unwrap();
                    for sweep in [Sweep::FromFirst, Sweep::FromLast] {
                        let mut c = vec![77.0; m * ldc];
                        repeated.multiply(exec, a, &mut c, ldc, sweep).unwrap();
                        assert!(c == expected, "{m} x {n} x {k}, {isa:?}, {right:?}, {caches}");
                    }
                }
            }
        }
    }
}
