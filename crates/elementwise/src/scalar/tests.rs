//! Compares each function with the loop over slices of the same name.

use super::*;
use crate::binary::tests::ALL as ALL_BINARY;
use crate::{BinaryElement, Strided, UnaryElement, binary, compare, logic, unary};
use sardonyx_simd::{Exec, Isa, Pool};

const UNARY: [Unary; 12] = [
    Unary::Abs,
    Unary::Neg,
    Unary::Ceil,
    Unary::Floor,
    Unary::Round,
    Unary::Sign,
    Unary::Sqrt,
    Unary::Reciprocal,
    Unary::Square,
    Unary::Relu,
    Unary::Exp,
    Unary::Tanh,
];

const COMPARE: [Compare; 5] = [
    Compare::Equal,
    Compare::Less,
    Compare::LessOrEqual,
    Compare::Greater,
    Compare::GreaterOrEqual,
];

/// Whether the bits are equal, or both elements are NaN.
fn are_same<T: ScalarElement>(word: u64, wanted: T) -> bool {
    word == wanted.to_word() || T::of_word(word).is_nan() && wanted.is_nan()
}

fn check<T: ScalarElement + BinaryElement + UnaryElement>(values: &[T]) {
    let pool = Pool::new(1);
    for &isa in Isa::available() {
        let exec = Exec::new(&pool, isa);
        for a in values {
            assert!(are_same(a.to_word(), *a), "{a:?}");
            for op in UNARY {
                let Some(function) = T::scalar_unary(op) else { continue };
                let mut out = [T::ZERO];
                unary(&exec, op, &[*a], &mut out).unwrap();
                assert!(are_same(function(a.to_word(), 0), out[0]), "{op:?} of {a:?}");
            }
            for b in values {
                let (one, other) = (Strided::flat(std::slice::from_ref(a)), [*b]);
                let words = (a.to_word(), b.to_word());
                for op in ALL_BINARY {
                    let Some(function) = T::scalar_binary(op) else { continue };
                    let mut out = [T::ZERO];
                    binary(&exec, op, &[1], one, Strided::flat(&other), &mut out).unwrap();
                    assert!(are_same(function(words.0, words.1), out[0]), "{op:?} of {a:?}, {b:?}");
                }
                for op in COMPARE {
                    let mut out = [7];
                    compare(&exec, op, &[1], one, Strided::flat(&other), &mut out).unwrap();
                    let found = T::scalar_compare(op)(words.0, words.1);
                    assert_eq!(found, u64::from(out[0]), "{op:?} of {a:?}, {b:?}");
                }
            }
        }
    }
}

macro_rules! integers {
    ($($t:ty),*) => { $( {
        // 0 if the type is unsigned.
        let minus_one = 0 as $t - (<$t>::MIN != 0) as $t;
        check::<$t>(&[<$t>::MIN, <$t>::MAX, 0, 1, 2, 7, 100, <$t>::MAX - 1, <$t>::MIN + 1, minus_one]);
    } )* };
}

#[test]
fn results_are_those_of_slices() {
    integers!(i8, i16, i32, i64, u8, u16, u32, u64);
    let floats = [0.0, -0.0, 1.0, -1.5, 2.5, 3.7, 1e30, f32::MIN_POSITIVE, f32::NAN, f32::INFINITY];
    check::<f32>(&floats);
    check::<f32>(&floats.map(|x| -x));
    check::<f64>(&floats.map(f64::from));
    check::<f64>(&[0.1, -0.3, 1e300, f64::NEG_INFINITY]);
}

#[test]
fn logic_is_that_of_slices() {
    let pool = Pool::new(1);
    let exec = Exec::new(&pool, Isa::available()[0]);
    for op in [Logic::And, Logic::Or, Logic::Xor] {
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1), (0, 255)] {
            let mut out = [7];
            logic(&exec, op, &[1], Strided::flat(&[a]), Strided::flat(&[b]), &mut out).unwrap();
            assert_eq!(scalar_logic(op)(u64::from(a), u64::from(b)), u64::from(out[0]), "{op:?}");
        }
    }
}
