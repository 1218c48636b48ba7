//! Compares chains with the same operations called one by one.

use half::{bf16, f16};
use sardonyx_simd::{Exec, Isa, Pool};

use super::*;
use crate::binary::tests::ALL as BINARY;
use crate::{binary, broadcast_strides, clip, unary};
use sardonyx_simd::number::Arith;

/// Pseudorandom numbers: a xorshift generator (Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    /// Draws a number below `end`.
    fn draw_below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % end as u64) as usize
    }

    fn elements<T: BinaryElement>(&mut self, count: usize) -> Vec<T> {
        (0..count)
            .map(|_| match self.draw_below(60) {
                0 if T::IS_FLOAT => T::from_f64(f64::NAN),
                1 => T::HIGHEST,
                2 => T::LOWEST,
                3 => T::ZERO,
                4 if T::IS_FLOAT => T::from_f64(-0.0),
                _ => T::from_f64(self.draw_below(4001) as f64 / 500.0 - 4.0),
            })
            .collect()
    }
}

/// Value: output dims, some larger than a tile, none a multiple of one.
const DIMS: [&[usize]; 10] = [
    &[],
    &[1],
    &[37],
    &[0, 5],
    &[3, 1, 7],
    &[5, 1031],
    &[2049],
    &[3, 4, 5, 67],
    &[10_007],
    &[7, 1, 9001],
];

const UNARY: [Unary; 12] = [
    Unary::Abs,
    Unary::Neg,
    Unary::Relu,
    Unary::Exp,
    Unary::Sin,
    Unary::Gelu,
    Unary::Sigmoid,
    Unary::Sqrt,
    Unary::Round,
    Unary::Tanh,
    Unary::LeakyRelu { alpha: 0.25 },
    Unary::Swish { alpha: 0.5 },
];

/// Link that owns its other operand.
struct Owned<T: 'static> {
    link: Link<'static, T>,
    other: Vec<T>,
    strides: Vec<usize>,
}

impl<T: BinaryElement> Owned<T> {
    fn link(&self) -> Link<'_, T> {
        match self.link {
            Link::Binary { op, side, .. } => {
                Link::Binary { op, side, other: &self.other, strides: &self.strides }
            }
            ref link => *link,
        }
    }
}

/// Draws an operand that broadcasts to `dims`: whole, scalar, a vector along the last axis, or with
/// some dims of 1.
fn operand<T: BinaryElement>(numbers: &mut Numbers, dims: &[usize]) -> (Vec<T>, Vec<usize>) {
    let from = match numbers.draw_below(5) {
        0 | 1 => dims.to_vec(),
        2 => Vec::new(),
        3 => dims[dims.len().saturating_sub(1)..].to_vec(),
        _ => dims.iter().map(|dim| if numbers.draw_below(2) == 0 { 1 } else { *dim }).collect(),
    };
    let mut strides = vec![0; dims.len()];
    broadcast_strides(&from, dims, &mut strides).expect("the dims fit");
    (numbers.elements(from.iter().product()), strides)
}

fn links<T: BinaryElement>(numbers: &mut Numbers, dims: &[usize], count: usize) -> Vec<Owned<T>> {
    (0..count)
        .map(|_| {
            let (other, strides) = operand(numbers, dims);
            let link = match numbers.draw_below(9) {
                0..=3 => Link::Unary(UNARY[numbers.draw_below(UNARY.len())]),
                4 => Link::Clip { low: T::from_f64(-1.5), high: T::from_f64(2.0) },
                _ => Link::Binary {
                    op: BINARY[numbers.draw_below(BINARY.len())],
                    side: [Side::Left, Side::Right][numbers.draw_below(2)],
                    other: &[],
                    strides: &[],
                },
            };
            Owned { link, other, strides }
        })
        .collect()
}

/// Computes the links one by one, each into memory of its own.
fn run_separately<T: UnaryElement + BinaryElement>(
    isa: Isa,
    dims: &[usize],
    x: &[T],
    x_strides: &[usize],
    links: &[Link<'_, T>],
) -> Vec<T> {
    let pool = Pool::new(1);
    let mut whole = vec![0; dims.len()];
    broadcast_strides(dims, dims, &mut whole).expect("the dims fit");
    let (mut state, mut state_strides) = (x.to_vec(), x_strides);
    for link in links {
        let mut out = vec![T::ZERO; dims.iter().product()];
        match *link {
            Link::Unary(op) => unary(&Exec::new(&pool, isa), op, &state, &mut out).unwrap(),
            Link::Clip { low, high } => {
                clip(&Exec::new(&pool, isa), low, high, &state, &mut out).unwrap();
            }
            Link::Binary { op, side, other, strides } => {
                let (a, a_strides, b, b_strides) = match side {
                    Side::Left => (&state[..], state_strides, other, strides),
                    Side::Right => (other, strides, &state[..], state_strides),
                };
                binary(
                    &Exec::new(&pool, isa),
                    op,
                    dims,
                    Strided::new(a, a_strides),
                    Strided::new(b, b_strides),
                    &mut out,
                )
                .unwrap();
            }
        }
        (state, state_strides) = (out, &whole);
    }
    state
}

#[track_caller]
fn assert_same<T: BinaryElement>(found: &[T], expected: &[T], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (x, y)) in found.iter().zip(expected).enumerate() {
        // Which of two NaN results depends on the order of operands in the processor.
        let nan = x.widen().is_nan() && y.widen().is_nan();
        // Zeros of both signs are equal, but their inverses are not.
        let same = x == y && x.to_f64().to_bits() == y.to_f64().to_bits();
        assert!(same || nan, "{what} at {i}: {x:?}, not {y:?}");
    }
}

fn check<T: UnaryElement + BinaryElement>(seed: u64, rounds: usize) {
    let mut numbers = Numbers(seed);
    for &isa in Isa::available() {
        for round in 0..rounds {
            let dims = DIMS[round % DIMS.len()];
            let count = match round % 7 {
                0 => MAX_LINKS,
                _ => 1 + numbers.draw_below(6),
            };
            let links = links::<T>(&mut numbers, dims, count);
            let links: Vec<Link<'_, T>> = links.iter().map(Owned::link).collect();
            // Only a first link with two operands takes a broadcast input.
            let mut whole = vec![0; dims.len()];
            broadcast_strides(dims, dims, &mut whole).expect("the dims fit");
            let (x, strides) = match links[0] {
                Link::Binary { .. } => operand(&mut numbers, dims),
                _ => (numbers.elements(dims.iter().product()), whole.clone()),
            };
            let expected = run_separately(isa, dims, &x, &strides, &links);
            for threads in [1, 2, 3] {
                let (pool, what) = (Pool::new(threads), format!("{isa:?} {dims:?} {links:?}"));
                let mut out = vec![T::ONE; expected.len()];
                pointwise(
                    &Exec::new(&pool, isa),
                    dims,
                    Strided::new(&x, &strides),
                    &links,
                    &mut out,
                )
                .unwrap();
                assert_same(&out, &expected, &what);
                if x.len() == expected.len() {
                    let mut out = x.clone();
                    pointwise_in_place(&Exec::new(&pool, isa), dims, &links, &mut out).unwrap();
                    assert_same(&out, &expected, &what);
                }
            }
        }
    }
}

#[test]
fn floats_as_one_by_one() {
    check::<f32>(1, 300);
    check::<f64>(2, 60);
    check::<f16>(3, 60);
    check::<bf16>(4, 60);
}

#[test]
fn integers_as_one_by_one() {
    check::<i8>(5, 30);
    check::<i16>(6, 30);
    check::<i32>(7, 60);
    check::<i64>(8, 60);
    check::<u8>(9, 30);
    check::<u16>(10, 30);
    check::<u32>(11, 30);
    check::<u64>(12, 30);
}

/// Checks links with known values: `min(max(2 x + 1, 0), 6) / (-3)`.
#[test]
fn a_chain_by_hand() {
    let x: Vec<f32> = (0..5000).map(|i| i as f32 - 2500.0).collect();
    let (two, one, divisor) = ([2.0], [1.0], [-3.0]);
    let scalar = |op, side, other| Link::Binary { op, side, other, strides: &[0] };
    let links = [
        scalar(Binary::Mul, Side::Right, &two),
        scalar(Binary::Add, Side::Left, &one),
        Link::Clip { low: 0.0, high: 6.0 },
        scalar(Binary::Div, Side::Left, &divisor),
    ];
    for &isa in Isa::available() {
        let mut y = vec![0.0; x.len()];
        pointwise(&Exec::new(&Pool::new(2), isa), &[5000], Strided::flat(&x), &links, &mut y)
            .unwrap();
        for (x, y) in x.iter().zip(&y) {
            assert_eq!(*y, (2.0 * x + 1.0).clamp(0.0, 6.0) / -3.0, "{isa:?} {x}");
        }
    }
}

#[test]
#[should_panic(expected = "too short")]
fn an_operand_too_short_is_refused() {
    let link = Link::Binary { op: Binary::Add, side: Side::Left, other: &[1, 2], strides: &[1] };
    let links = [Link::Unary(Unary::Neg), link];
    pointwise_in_place(&Exec::new(&Pool::new(1), Isa::Portable), &[4], &links, &mut [0; 4])
        .unwrap();
}

#[test]
#[should_panic(expected = "17 links are fused")]
fn too_many_links_are_refused() {
    let links = [Link::<i32>::Unary(Unary::Neg); MAX_LINKS + 1];
    pointwise_in_place(&Exec::new(&Pool::new(1), Isa::Portable), &[4], &links, &mut [0; 4])
        .unwrap();
}
