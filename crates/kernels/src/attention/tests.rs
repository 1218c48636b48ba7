//! Attention against its definition.

use super::*;
use sardonyx_simd::{Exec, Isa, Pool};

/// Numbers between -1 and 1 that look random.
pub(crate) fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Heads in front of rows, or after them as projections leave them.
fn strides(sizes: [usize; 4], heads_in_front: bool) -> [usize; 4] {
    let [_, heads, rows, features] = sizes;
    if heads_in_front {
        [heads * rows * features, rows * features, features, 1]
    } else {
        [heads * rows * features, features, heads * features, 1]
    }
}

struct Case {
    sizes: Sizes,
    mask: u8,
    softcap: f64,
    window: (isize, isize),
    front: bool,
}

#[test]
fn every_instruction_set_agrees_with_the_definition() {
    let sizes = |batch, heads, shared_heads, queries, keys, features, value_features| Sizes {
        batch,
        heads,
        shared_heads,
        queries,
        keys,
        features,
        value_features,
    };
    let mut cases = Vec::new();
    for (sizes, mask, window) in [
        (sizes(1, 2, 2, 5, 7, 8, 8), 0, NO_WINDOW),
        (sizes(2, 4, 2, 33, 65, 16, 24), 1, NO_WINDOW),
        (sizes(1, 6, 2, 1, 129, 64, 64), 2, NO_WINDOW),
        (sizes(1, 3, 3, 1, 40, 64, 32), 1, NO_WINDOW),
        // More queries than a block, more keys than two tiles.
        (sizes(1, 2, 1, 150, 600, 20, 17), 1, (isize::MIN, 450)),
        (sizes(1, 1, 1, 300, 300, 7, 5), 0, (-3, 2)),
        (sizes(2, 2, 2, 3, 0, 4, 4), 0, NO_WINDOW),
        (sizes(1, 2, 2, 0, 3, 4, 4), 0, NO_WINDOW),
        (sizes(1, 2, 2, 3, 3, 4, 0), 0, NO_WINDOW),
        // Rows that see nothing.
        (sizes(1, 1, 1, 4, 4, 4, 4), 3, NO_WINDOW),
    ] {
        for front in [true, false] {
            for softcap in [0.0, 1.5] {
                cases.push(Case { sizes, mask, softcap, window, front });
            }
        }
    }
    for case in cases {
        check(&case);
    }
}

fn check(case: &Case) {
    let s = case.sizes;
    let q_dims = [s.batch, s.heads, s.queries, s.features];
    let k_dims = [s.batch, s.shared_heads, s.keys, s.features];
    let v_dims = [s.batch, s.shared_heads, s.keys, s.value_features];
    let y_dims = [s.batch, s.heads, s.queries, s.value_features];
    let len = |dims: [usize; 4]| dims.iter().product::<usize>();
    let (q, k, v) = (numbers(len(q_dims), 1), numbers(len(k_dims), 2), numbers(len(v_dims), 3));
    let mut added = numbers(s.batch * s.queries * s.keys, 4);
    for (i, x) in added.iter_mut().enumerate() {
        if i % 5 == 3 || case.mask == 3 && i / s.keys == 1 {
            *x = f32::NEG_INFINITY;
        }
    }
    let kept: Vec<u8> = (0..s.batch * s.keys).map(|i| u8::from(i % 3 != 1)).collect();
    let of_batch = [s.queries * s.keys, 0, s.keys, 1];
    fn heads<T>(data: &[T], strides: [usize; 4]) -> Heads<'_, T> {
        Heads { data, strides }
    }
    let job = Attention {
        sizes: s,
        q: heads(&q, strides(q_dims, case.front)),
        k: heads(&k, strides(k_dims, case.front)),
        v: heads(&v, strides(v_dims, !case.front)),
        mask: match case.mask {
            1 | 3 => Some(Mask::Add(heads(&added, of_batch))),
            2 => Some(Mask::Keep(heads(&kept, [s.keys, 0, 0, 1]))),
            _ => None,
        },
        scale: 0.37,
        softcap: case.softcap,
        window: case.window,
        blind_is_zero: case.front,
    };
    let y_strides = strides(y_dims, !case.front);
    let mut want = vec![0.0; len(y_dims)];
    attention_plain(&job, &mut want, y_strides, None);
    for &isa in Isa::available() {
        let mut first = None;
        for threads in [1, 2, 4] {
            let mut y = vec![9.0; len(y_dims)];
            attention(&Exec::new(&Pool::new(threads), isa), &job, &mut y, y_strides).unwrap();
            for (i, (y, want)) in y.iter().zip(&want).enumerate() {
                // Weights sum to 1 and values are below 1: a few roundings per key at most.
                let close = (y - want).abs() <= 4e-6;
                assert!(
                    close || y.is_nan() && want.is_nan(),
                    "{s:?} mask {} {isa:?}: element {i} is {y}, not {want}",
                    case.mask
                );
            }
            let bits: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
            assert_eq!(first.get_or_insert(bits.clone()), &bits, "{threads} threads");
        }
    }
}

#[test]
fn not_a_number_reaches_only_the_queries_that_see_it() {
    let s = Sizes {
        batch: 1,
        heads: 1,
        shared_heads: 1,
        queries: 3,
        keys: 3,
        features: 2,
        value_features: 2,
    };
    let (q, mut k, v) = (numbers(6, 1), numbers(6, 2), numbers(6, 3));
    k[4] = f32::NAN;
    let strides = [6, 6, 2, 1];
    let job = Attention {
        sizes: s,
        q: Heads { data: &q, strides },
        k: Heads { data: &k, strides },
        v: Heads { data: &v, strides },
        mask: None,
        scale: 1.0,
        softcap: 0.0,
        window: (isize::MIN, 0),
        blind_is_zero: false,
    };
    for &isa in Isa::available() {
        let mut y = [0.0; 6];
        attention(&Exec::new(Pool::serial(), isa), &job, &mut y, strides).unwrap();
        let nan: Vec<bool> = y.iter().map(|y| y.is_nan()).collect();
        assert_eq!(nan, [false, false, false, false, true, true], "{isa:?}");
    }
}
