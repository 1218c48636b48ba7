//! Checks comparisons, logic, bits and selection on small tables, and broadcasting for all.

use super::*;
use sardonyx_simd::{Exec, Isa, Pool};

const NAN: f32 = f32::NAN;

#[test]
fn comparisons() {
    let (a, b) = ([1.0, 2.0, 3.0, NAN, NAN, -0.0], [2.0, 2.0, 2.0, 2.0, NAN, 0.0]);
    for &isa in Isa::available() {
        for (op, expected) in [
            (Compare::Equal, [0, 1, 0, 0, 0, 1]),
            (Compare::Less, [1, 0, 0, 0, 0, 0]),
            (Compare::LessOrEqual, [1, 1, 0, 0, 0, 1]),
            (Compare::Greater, [0, 0, 1, 0, 0, 0]),
            (Compare::GreaterOrEqual, [0, 1, 1, 0, 0, 1]),
        ] {
            let mut out = [7; 6];
            compare(
                &Exec::new(&Pool::new(1), isa),
                op,
                &[6],
                Strided::flat(&a),
                Strided::flat(&b),
                &mut out,
            )
            .unwrap();
            assert_eq!(out, expected, "{op:?}");
            // Longer than a vector, constant on either side.
            let many: Vec<i64> = (0..100).collect();
            let mut right = [7; 100];
            compare(
                &Exec::new(&Pool::new(1), isa),
                op,
                &[100],
                Strided::flat(&many),
                Strided::new(&[50], &[0]),
                &mut right,
            )
            .unwrap();
            let mut left = [7; 100];
            compare(
                &Exec::new(&Pool::new(1), isa),
                op,
                &[100],
                Strided::new(&[50], &[0]),
                Strided::flat(&many),
                &mut left,
            )
            .unwrap();
            for (i, x) in many.iter().enumerate() {
                let holds = |a: i64, b: i64| match op {
                    Compare::Equal => a == b,
                    Compare::Less => a < b,
                    Compare::LessOrEqual => a <= b,
                    Compare::Greater => a > b,
                    Compare::GreaterOrEqual => a >= b,
                };
                assert_eq!((right[i], left[i]), (u8::from(holds(*x, 50)), u8::from(holds(50, *x))));
            }
        }
    }
}

#[test]
fn booleans() {
    let (a, b) = ([0, 0, 1, 255], [0, 2, 0, 1]);
    for (op, expected) in
        [(Logic::And, [0, 0, 0, 1]), (Logic::Or, [0, 1, 1, 1]), (Logic::Xor, [0, 1, 1, 0])]
    {
        let mut out = [7; 4];
        logic(
            &Exec::new(&Pool::new(1), Isa::detect()),
            op,
            &[2, 2],
            Strided::new(&a, &[2, 1]),
            Strided::new(&b, &[2, 1]),
            &mut out,
        )
        .unwrap();
        assert_eq!(out, expected, "{op:?}");
    }
    let mut out = [7; 4];
    not(&Pool::new(1), &a, &mut out).unwrap();
    assert_eq!(out, [1, 1, 0, 0]);
}

#[test]
fn bits() {
    let (a, b) = ([0b1100i8, -128, -1, 1], [0b1010, 7, 9, -1]);
    for (op, expected) in [
        (Bitwise::And, [0b1000, 0, 9, 1]),
        (Bitwise::Or, [0b1110, -121, -1, -1]),
        (Bitwise::Xor, [0b0110, -121, -10, -2]),
        (Bitwise::ShiftLeft, [0, 0, 0, 0]),
        (Bitwise::ShiftRight, [0, -1, -1, 0]),
    ] {
        let mut out = [7; 4];
        bitwise(
            &Exec::new(&Pool::new(1), Isa::detect()),
            op,
            &[4],
            Strided::flat(&a),
            Strided::flat(&b),
            &mut out,
        )
        .unwrap();
        assert_eq!(out, expected, "{op:?}");
    }
}

#[test]
fn tests_of_floats() {
    let x = [1.0, f32::INFINITY, f32::NEG_INFINITY, NAN];
    let mut out = [7; 4];
    is_nan(&Pool::new(1), &x, &mut out).unwrap();
    assert_eq!(out, [0, 0, 0, 1]);
    for (negative, positive, expected) in [
        (true, true, [0, 1, 1, 0]),
        (true, false, [0, 0, 1, 0]),
        (false, true, [0, 1, 0, 0]),
        (false, false, [0; 4]),
    ] {
        is_inf(&Pool::new(1), negative, positive, &x, &mut out).unwrap();
        assert_eq!(out, expected);
    }
    is_inf(&Pool::new(1), true, true, &[i32::MAX; 4], &mut out).unwrap();
    assert_eq!(out, [0; 4]);
}

#[test]
fn selection_broadcasts_all_three() {
    let (rows, columns) = (40, 500);
    let n = rows * columns;
    let a: Vec<u32> = (0..n as u32).collect();
    let b: Vec<u32> = (0..n as u32).map(|i| i + 1_000_000).collect();
    let condition: Vec<u8> = (0..n).map(|i| (i * i % 7 < 3) as u8).collect();
    let strides: [[usize; 2]; 5] = [[columns, 1], [0, 0], [1, 0], [0, 1], [1, rows]];
    let dims = [rows, columns];
    for c in strides {
        for sa in strides {
            for sb in strides {
                for threads in [1, 3] {
                    let mut out = vec![0; n];
                    select(
                        &Pool::new(threads),
                        &dims,
                        Strided::new(&condition, &c),
                        Strided::new(&a, &sa),
                        Strided::new(&b, &sb),
                        &mut out,
                    )
                    .unwrap();
                    for (i, out) in out.iter().enumerate() {
                        let at = |s: [usize; 2]| i / columns * s[0] + i % columns * s[1];
                        let expected = if condition[at(c)] != 0 { a[at(sa)] } else { b[at(sb)] };
                        assert_eq!(*out, expected);
                    }
                }
            }
        }
    }
}
