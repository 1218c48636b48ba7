//! Tests of products of integers against their definition.

use super::*;
use crate::gemm::{Activation, Bias};
use sardonyx_simd::Pool;

/// Computes a product by its definition.
fn naive(a: &ByteMatrix<'_>, b: &ByteMatrix<'_>, zero_points: ZeroPoints<'_>) -> Vec<i32> {
    let (m, n, k) = (a.bits.rows(), b.bits.cols(), a.bits.cols());
    let value = |bits: u8, signed: bool| {
        if signed { i64::from(bits.cast_signed()) } else { i64::from(bits) }
    };
    let point = |points: &[u8], index: usize, signed: bool| match points {
        [] => 0,
        [one] => value(*one, signed),
        several => value(several[index], signed),
    };
    let sum = |i: usize, j: usize| {
        (0..k).fold(0, |sum, p| {
            let x = value(a.bits.get(i, p), a.signed) - point(zero_points.a, i, a.signed);
            let y = value(b.bits.get(p, j), b.signed) - point(zero_points.b, j, b.signed);
            sum + x * y
        })
    };
    (0..m * n).map(|at| sum(at / n, at % n) as i32).collect()
}

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| ((i + salt) * 7919 % 65_537 * 31 % 257) as u8).collect()
}

/// Compares products on every instruction set and in every form, packed ahead of time or not, with
/// the definition.
fn check(a: ByteMatrix<'_>, b: ByteMatrix<'_>, zero_points: ZeroPoints<'_>, what: &str) {
    let want = naive(&a, &b, zero_points);
    for &isa in Isa::available() {
        for words in [Words::Pairs, Words::PairsOfBytes, Words::Quads] {
            if !words.is_available(isa) {
                continue;
            }
            let packed = PackedB::pack_words(isa, words, b).unwrap();
            let elements = packed.panels.elements;
            let (depth, cols) = (b.bits.rows(), b.bits.cols());
            assert_eq!(PackedB::bytes_of(isa, elements, depth, cols), Some(packed.bytes()));
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let exec = &Exec::new(&pool, isa);
                for right in [ByteRhs::Plain(b), ByteRhs::Packed(&packed)] {
                    let mut c = vec![-1; want.len()];
                    product(exec, words, a, right, zero_points, &mut c, None).unwrap();
                    assert!(c == want, "{what}, {isa:?} {words:?}, {threads} threads, {right:?}");
                }
            }
        }
    }
}

#[test]
fn products_of_bytes_are_exact() {
    for (m, n, k) in [
        (1, 1, 1),
        (1, 17, 3),
        (2, 3, 4),
        (5, 31, 5),
        (12, 32, 6),
        (13, 33, 7),
        (33, 65, 8),
        (70, 5, 131),
        (40, 70, 1030),
        (14, 9, 2048),
        (14, 9, 4096),
        (3, 100, 2049),
        (16, 40, 64),
        (33, 70, 256),
        (45, 33, 768),
        (300, 20, 96),
        (4, 4, 0),
    ] {
        for (a_signed, b_signed) in [(false, false), (false, true), (true, false), (true, true)] {
            let (a, b) = (bytes(m * k, 1), bytes(k * n, 2));
            let (a_zeros, b_zeros) = (bytes(m, 3), bytes(n, 4));
            let points: [(&[u8], &[u8]); 4] =
                [(&[], &[]), (&[200], &[7]), (&a_zeros, &[]), (&a_zeros, &b_zeros)];
            for (a_points, b_points) in points {
                let zero_points = ZeroPoints { a: a_points, b: b_points };
                let left = ByteMatrix { bits: MatRef::row_major(&a, m, k), signed: a_signed };
                let right = ByteMatrix { bits: MatRef::row_major(&b, k, n), signed: b_signed };
                let what = format!(
                    "{m}x{n}x{k}, signed {a_signed} {b_signed}, {} and {} zero points",
                    a_points.len(),
                    b_points.len()
                );
                check(left, right, zero_points, &what);
                let left = ByteMatrix { bits: MatRef::col_major(&a, m, k), ..left };
                let right = ByteMatrix { bits: MatRef::col_major(&b, k, n), ..right };
                check(left, right, zero_points, &format!("{what}, columns"));
            }
        }
    }
}

/// Checks sums that become floats and pass through an epilogue, with one rounding per operation.
#[test]
fn sums_become_floats() {
    for (m, n, k) in [(1, 1, 1), (3, 70, 33), (20, 37, 64), (40, 5, 700)] {
        let (a, b) = (bytes(m * k, 1), bytes(k * n, 2));
        let left = ByteMatrix { bits: MatRef::row_major(&a, m, k), signed: false };
        let right = ByteMatrix { bits: MatRef::row_major(&b, k, n), signed: true };
        let floats = |count: usize, salt: usize| -> Vec<f32> {
            bytes(count, salt).into_iter().map(|x| f32::from(x) / 64.0 - 2.0).collect()
        };
        let (bias, residual) = (floats(n, 3), floats(m * n, 4));
        for points in [ZeroPoints::default(), ZeroPoints { a: &[77], b: &[5] }] {
            let sums = naive(&left, &right, points);
            for factors in [vec![0.013], floats(n, 5)] {
                let factor =
                    |at: usize| if factors.len() == 1 { factors[0] } else { factors[at % n] };
                let scaled = (0..m * n).map(|at| sums[at] as f32 * factor(at));
                let scaled: Vec<f32> = scaled.collect();
                let added =
                    (0..m * n).map(|at| (scaled[at] + bias[at % n] + residual[at]).max(0.0));
                let added: Vec<f32> = added.collect();
                let epilogue = Epilogue {
                    bias: Some(Bias::Col(&bias)),
                    residual: Some(&residual),
                    activation: Activation::Relu,
                    ..Epilogue::default()
                };
                for &isa in Isa::available() {
                    let packed = PackedB::from_bytes(isa, right).unwrap();
                    for (threads, b) in [1, 3].into_iter().flat_map(|threads| {
                        [ByteRhs::Plain(right), ByteRhs::Packed(&packed)].map(|b| (threads, b))
                    }) {
                        let pool = Pool::new(threads);
                        let exec = &Exec::new(&pool, isa);
                        for (epilogue, want) in [(Epilogue::default(), &scaled), (epilogue, &added)]
                        {
                            let mut c = vec![f32::NAN; m * n];
                            gemm_bytes_to_floats(
                                exec, left, b, points, &factors, &epilogue, &mut c,
                            )
                            .unwrap();
                            assert_eq!(&c, want, "{m}x{n}x{k} {isa:?} {points:?}");
                        }
                    }
                }
            }
        }
    }
}

/// Multiplies matrices that are parts of others, and one element throughout.
#[test]
fn bytes_may_lie_anywhere() {
    let (m, n, k) = (20, 37, 45);
    let (a, b) = (bytes(3 * m * k, 1), bytes(2 * k * n + k, 2));
    let left = ByteMatrix { bits: MatRef::new(&a, m, k, 3 * k, 3), signed: false };
    for bits in [
        MatRef::new(&b, k, n, 2 * n + 1, 2),
        MatRef::new(&b, k, n, 2 * n + 1, 1),
        MatRef::new(&b, k, n, 1, 2 * k),
        MatRef::new(&b, k, n, 0, 0),
    ] {
        let right = ByteMatrix { bits, signed: true };
        let zero_points = ZeroPoints { a: &[9], b: &[250] };
        check(left, right, zero_points, &format!("{bits:?}"));
    }
}

/// Checks sizes and values at which multiplications of bytes into 16 bits would saturate, and at
/// which sums wrap at 32 bits.
#[test]
fn the_largest_products_do_not_saturate() {
    let k = 35_000;
    let (most, least) = (vec![255; 2 * k], vec![128; 2 * k]);
    for (a, b, a_signed, b_signed) in [
        (&most, &most, false, false),
        (&most, &least, false, true),
        (&least, &least, true, true),
        (&least, &most, true, false),
    ] {
        for (rows, k) in [(2, 2), (2, 4), (2, k), (16, 4096)] {
            let a = MatRef::row_major(a, rows, k);
            let b = MatRef::row_major(b, k, 2);
            let points: [&[u8]; 3] = [&[], &[127], &[128]];
            for points in points {
                let a = ByteMatrix { bits: a, signed: a_signed };
                let b = ByteMatrix { bits: b, signed: b_signed };
                let what = format!("k {k}, signed {a_signed} {b_signed}, {points:?}");
                check(a, b, ZeroPoints { a: points, b: points }, &what);
            }
        }
    }
}

#[test]
#[should_panic(expected = "2 zero points for 3")]
fn zero_points_are_one_or_one_each() {
    let matrix =
        |rows, cols| ByteMatrix { bits: MatRef::row_major(&[1; 6], rows, cols), signed: false };
    let exec = &Exec::new(Pool::serial(), Isa::detect());
    let zero_points = ZeroPoints { a: &[1, 2], b: &[] };
    gemm_bytes(exec, matrix(3, 2), ByteRhs::Plain(matrix(2, 3)), zero_points, &mut [0; 9]).unwrap();
}
