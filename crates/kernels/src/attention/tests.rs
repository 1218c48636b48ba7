//! Compares attention with its definition.

use super::*;
use sardonyx_simd::{Caches, Exec, Isa, Pool};

/// Returns numbers between -1 and 1 that look random.
pub(crate) fn numbers(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    (0..len)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// Returns strides with heads in front of rows, or after them as projections leave them.
fn strides(sizes: [usize; 4], heads_in_front: bool) -> [usize; 4] {
    let [_, heads, rows, features] = sizes;
    if heads_in_front {
        [heads * rows * features, rows * features, features, 1]
    } else {
        [heads * rows * features, features, heads * features, 1]
    }
}

/// Mask of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Masked {
    Not,
    /// Numbers by batch, query and key, some of them minus infinity.
    Added,
    /// Numbers by batch and key.
    AddedToKeys,
    /// Numbers by head, key and query: the last axis has a stride of its own.
    AddedTransposed,
    /// Keys by batch.
    KeptKeys,
    /// Keys by head, query and key.
    Kept,
    /// Keys by batch, key and query.
    KeptTransposed,
    /// Numbers that hide all keys from query 1.
    Blind,
}

struct Case {
    sizes: Sizes,
    mask: Masked,
    softcap: f64,
    window: (isize, isize),
    front: bool,
}

fn sizes(
    [batch, heads, shared_heads]: [usize; 3],
    [queries, keys]: [usize; 2],
    [features, value_features]: [usize; 2],
) -> Sizes {
    Sizes { batch, heads, shared_heads, queries, keys, features, value_features }
}

/// Caches of the smallest size, of a small and of a large processor.
const CACHES: [Caches; 3] = [
    Caches { near: 4 << 10, own: 4 << 10, shared: 4 << 10 },
    Caches::FALLBACK,
    Caches { near: 64 << 10, own: 4 << 20, shared: 64 << 20 },
];

/// Returns a causal window with a past of this length.
const fn causal(past: isize) -> (isize, isize) {
    (isize::MIN, past)
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (sizes, mask, window) in [
        (sizes([1, 2, 2], [5, 7], [8, 8]), Masked::Not, NO_WINDOW),
        (sizes([2, 4, 2], [33, 65], [16, 24]), Masked::Added, NO_WINDOW),
        (sizes([1, 6, 2], [1, 129], [64, 64]), Masked::KeptKeys, NO_WINDOW),
        (sizes([1, 3, 3], [1, 40], [64, 32]), Masked::Added, NO_WINDOW),
        // More keys than three tiles, more queries than a vector and a panel of each set.
        (sizes([1, 2, 1], [150, 600], [20, 17]), Masked::Added, causal(450)),
        (sizes([1, 1, 1], [300, 300], [7, 5]), Masked::Not, (-3, 2)),
        (sizes([2, 2, 2], [3, 0], [4, 4]), Masked::Not, NO_WINDOW),
        (sizes([1, 2, 1], [6, 0], [4, 4]), Masked::Not, NO_WINDOW),
        (sizes([1, 2, 2], [0, 3], [4, 4]), Masked::Not, NO_WINDOW),
        (sizes([1, 2, 2], [3, 3], [4, 0]), Masked::Not, NO_WINDOW),
        // Scores are 0.
        (sizes([1, 2, 1], [9, 11], [0, 4]), Masked::Not, NO_WINDOW),
        // Rows that see nothing, by the mask and by the window.
        (sizes([1, 1, 1], [4, 4], [4, 4]), Masked::Blind, NO_WINDOW),
        (sizes([1, 2, 2], [18, 4], [4, 4]), Masked::Blind, NO_WINDOW),
        (sizes([1, 2, 1], [40, 20], [4, 4]), Masked::Not, (5, 30)),
        (sizes([1, 1, 1], [3, 9], [4, 4]), Masked::Not, (-20, -1)),
        // Tiles of keys and of features with all kinds of rests.
        (sizes([1, 1, 1], [8, 191], [64, 9]), Masked::Not, NO_WINDOW),
        (sizes([1, 1, 1], [16, 192], [1, 1]), Masked::AddedToKeys, NO_WINDOW),
        (sizes([1, 1, 1], [17, 193], [65, 67]), Masked::KeptKeys, NO_WINDOW),
        (sizes([1, 2, 2], [31, 200], [33, 43]), Masked::AddedTransposed, NO_WINDOW),
        (sizes([2, 1, 1], [65, 390], [16, 20]), Masked::KeptTransposed, NO_WINDOW),
        // Heads that share keys in one vector, in several, and each with panels of its own.
        (sizes([2, 14, 2], [1, 200], [16, 16]), Masked::Kept, NO_WINDOW),
        (sizes([1, 6, 2], [5, 30], [16, 16]), Masked::AddedTransposed, causal(25)),
        (sizes([1, 4, 2], [70, 70], [12, 12]), Masked::Kept, causal(0)),
        (sizes([1, 40, 1], [1, 20], [8, 8]), Masked::AddedToKeys, (-1, 12)),
        // Windows that begin and end within tiles.
        (sizes([1, 1, 1], [500, 500], [4, 4]), Masked::Not, (-100, 0)),
        (sizes([1, 1, 1], [40, 900], [4, 4]), Masked::KeptKeys, (700, 860)),
        (sizes([1, 1, 1], [200, 10], [4, 4]), Masked::Added, (-180, -150)),
    ] {
        for front in [true, false] {
            for softcap in [0.0, 1.5] {
                cases.push(Case { sizes, mask, softcap, window, front });
            }
        }
    }
    cases
}

/// Operands of a case.
struct Data {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    added: Vec<f32>,
    kept: Vec<u8>,
}

fn len(dims: [usize; 4]) -> usize {
    dims.iter().product()
}

impl Case {
    /// Returns the dims of queries, keys, values and outputs.
    fn dims(&self) -> [[usize; 4]; 4] {
        let s = self.sizes;
        [
            [s.batch, s.heads, s.queries, s.features],
            [s.batch, s.shared_heads, s.keys, s.features],
            [s.batch, s.shared_heads, s.keys, s.value_features],
            [s.batch, s.heads, s.queries, s.value_features],
        ]
    }

    fn y_strides(&self) -> [usize; 4] {
        strides(self.dims()[3], !self.front)
    }

    fn data(&self) -> Data {
        let (s, [q, k, v, _]) = (self.sizes, self.dims());
        let scores = s.batch * s.heads * s.queries * s.keys;
        let mut added = numbers(scores, 4);
        for (i, x) in added.iter_mut().enumerate() {
            let is_blind = self.mask == Masked::Blind && i / s.keys == 1;
            if i % 5 == 3 || is_blind {
                *x = f32::NEG_INFINITY;
            }
        }
        let kept = (0..scores).map(|i| u8::from(i % 3 != 1)).collect();
        Data { q: numbers(len(q), 1), k: numbers(len(k), 2), v: numbers(len(v), 3), added, kept }
    }

    fn job<'a>(&self, data: &'a Data) -> Attention<'a> {
        let (s, [q, k, v, _]) = (self.sizes, self.dims());
        let (queries, keys) = (s.queries, s.keys);
        let added = |strides| Some(Mask::Add(Heads { data: &data.added, strides }));
        let kept = |strides| Some(Mask::Keep(Heads { data: &data.kept, strides }));
        Attention {
            sizes: s,
            q: Heads { data: &data.q, strides: strides(q, self.front) },
            k: Heads { data: &data.k, strides: strides(k, self.front) },
            v: Heads { data: &data.v, strides: strides(v, !self.front) },
            mask: match self.mask {
                Masked::Not => None,
                Masked::Added | Masked::Blind => added([queries * keys, 0, keys, 1]),
                Masked::AddedToKeys => added([keys, 0, 0, 1]),
                Masked::AddedTransposed => added([0, queries * keys, 1, queries]),
                Masked::KeptKeys => kept([keys, 0, 0, 1]),
                Masked::Kept => kept([0, queries * keys, keys, 1]),
                Masked::KeptTransposed => kept([queries * keys, 0, 1, queries]),
            },
            scale: 0.37,
            softcap: self.softcap,
            window: self.window,
            blind_is_zero: self.front,
        }
    }
}

fn bits(y: &[f32]) -> Vec<u32> {
    y.iter().map(|y| y.to_bits()).collect()
}

#[test]
fn every_instruction_set_agrees_with_the_definition() {
    for case in cases() {
        check(&case);
    }
}

fn check(case: &Case) {
    let (s, data, y_strides) = (case.sizes, case.data(), case.y_strides());
    let job = case.job(&data);
    let y_len = len(case.dims()[3]);
    let mut want = vec![0.0; y_len];
    attention_plain(&job, HeadsMut { data: &mut want, strides: y_strides }, None);
    for &isa in Isa::available() {
        let mut y = vec![9.0; y_len];
        attention(
            &Exec::new(Pool::serial(), isa),
            &job,
            HeadsMut { data: &mut y, strides: y_strides },
        )
        .unwrap();
        for (i, (y, want)) in y.iter().zip(&want).enumerate() {
            // Weights sum to 1 and values are below 1: a few roundings per key at most.
            let close = (y - want).abs() <= 4e-6;
            assert!(
                close || y.is_nan() && want.is_nan(),
                "{s:?} mask {:?} {isa:?}: element {i} is {y}, not {want}",
                case.mask
            );
        }
    }
}

/// Returns numbers that are not floats.
fn to_doubles(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x) / 3.0).collect()
}

/// Returns heads that lie like others.
fn heads<'a>(data: &'a [f64], like: Heads<'_>) -> Heads<'a, f64> {
    Heads { data, strides: like.strides }
}

#[test]
fn doubles_agree_with_the_definition() {
    let pools = [1, 3].map(Pool::new);
    for case in cases() {
        let (data, y_strides) = (case.data(), case.y_strides());
        let job = case.job(&data);
        let [q, k, v, added] = [&data.q, &data.k, &data.v, &data.added].map(|x| to_doubles(x));
        let job = Attention {
            sizes: job.sizes,
            q: heads(&q[..], job.q),
            k: heads(&k[..], job.k),
            v: heads(&v[..], job.v),
            mask: match job.mask {
                Some(Mask::Add(mask)) => Some(Mask::Add(heads(&added[..], mask))),
                Some(Mask::Keep(mask)) => Some(Mask::Keep(mask)),
                None => None,
            },
            scale: job.scale,
            softcap: job.softcap,
            window: job.window,
            blind_is_zero: job.blind_is_zero,
        };
        let mut want = vec![0.0; len(case.dims()[3])];
        attention_plain(&job, HeadsMut { data: &mut want, strides: y_strides }, None);
        for &isa in Isa::available() {
            let mut expected: Option<Vec<u64>> = None;
            for pool in &pools {
                let mut y = vec![9.0; want.len()];
                attention_doubles(
                    &Exec::new(pool, isa),
                    &job,
                    HeadsMut { data: &mut y, strides: y_strides },
                )
                .unwrap();
                for (i, (y, want)) in y.iter().zip(&want).enumerate() {
                    assert!(
                        (y - want).abs() <= 1e-14 || y.is_nan() && want.is_nan(),
                        "{:?} mask {:?} {isa:?}: element {i} is {y}, not {want}",
                        case.sizes,
                        case.mask
                    );
                }
                let bits = y.iter().map(|y| y.to_bits()).collect();
                assert_eq!(*expected.get_or_insert_with(|| Vec::clone(&bits)), bits);
            }
        }
    }
}

#[test]
fn caches_and_threads_change_no_bit() {
    let pools = [1, 2, 4, 9].map(Pool::new);
    for case in cases() {
        let (data, y_strides) = (case.data(), case.y_strides());
        let job = case.job(&data);
        for &isa in Isa::available() {
            let mut expected = None;
            for caches in CACHES {
                for pool in &pools {
                    let mut y = vec![9.0; len(case.dims()[3])];
                    let exec = Exec::new(pool, isa).with_caches(caches);
                    attention(&exec, &job, HeadsMut { data: &mut y, strides: y_strides }).unwrap();
                    let expected = expected.get_or_insert_with(|| bits(&y));
                    assert!(
                        *expected == bits(&y),
                        "{:?} mask {:?} {isa:?}, {caches}, {} threads",
                        case.sizes,
                        case.mask,
                        pool.threads()
                    );
                }
            }
        }
    }
}

/// Checks keys and values far apart, which are copied or not as the number of panels in a block
/// demands.
#[test]
fn distant_rows_are_read_in_place_or_copied_alike() {
    let s = sizes([1, 1, 1], [200, 40], [16, 16]);
    for row in [1024, 1040] {
        let (q, x) = (numbers(200 * 16, 1), numbers(40 * row, 2));
        let job = Attention {
            sizes: s,
            q: Heads { data: &q, strides: [0, 0, 16, 1] },
            k: Heads { data: &x, strides: [0, 0, row, 1] },
            v: Heads { data: &x[3..], strides: [0, 0, row, 2] },
            mask: None,
            scale: 1.0,
            softcap: 0.0,
            window: NO_WINDOW,
            blind_is_zero: false,
        };
        let y_strides = [0, 0, 16, 1];
        let mut want = vec![0.0; q.len()];
        attention_plain(&job, HeadsMut { data: &mut want, strides: y_strides }, None);
        for &isa in Isa::available() {
            let mut expected = None;
            for threads in [1, 2, 16] {
                let mut y = vec![9.0; q.len()];
                attention(
                    &Exec::new(&Pool::new(threads), isa),
                    &job,
                    HeadsMut { data: &mut y, strides: y_strides },
                )
                .unwrap();
                assert!(y.iter().zip(&want).all(|(y, want)| (y - want).abs() <= 4e-6), "{isa:?}");
                assert_eq!(*expected.get_or_insert_with(|| bits(&y)), bits(&y), "{isa:?}");
            }
        }
    }
}

/// Whether a key is one of those that [`hidden_values_do_not_show`] hides.
fn is_hidden(key: usize) -> bool {
    key % 7 == 2 || (100..230).contains(&key)
}

/// Checks that weights of hidden keys are 0 exactly: no value is so large that it shows.
#[test]
fn hidden_values_do_not_show() {
    for (queries, shared_heads) in [(3, 2), (40, 2), (5, 1)] {
        let s = sizes([1, 2, shared_heads], [queries, 250], [8, 8]);
        let dims = [1, shared_heads, 250, 8];
        let (q, k) = (numbers(2 * queries * 8, 1), numbers(len(dims), 2));
        let mut v = numbers(len(dims), 3);
        for (i, x) in v.iter_mut().enumerate().filter(|(i, _)| is_hidden(i / 8 % 250)) {
            *x = if i % 2 == 0 { 3e38 } else { -3e38 };
        }
        let kept: Vec<u8> = (0..250).map(|key| u8::from(!is_hidden(key))).collect();
        let added: Vec<f32> =
            (0..250).map(|key| if is_hidden(key) { f32::NEG_INFINITY } else { 0.0 }).collect();
        let y_strides = strides([1, 2, queries, 8], true);
        let job = Attention {
            sizes: s,
            q: Heads { data: &q, strides: y_strides },
            k: Heads { data: &k, strides: strides(dims, true) },
            v: Heads { data: &v, strides: strides(dims, true) },
            mask: Some(Mask::Keep(Heads { data: &kept, strides: [0, 0, 0, 1] })),
            scale: 1.0,
            softcap: 0.0,
            window: NO_WINDOW,
            blind_is_zero: false,
        };
        let mut want = vec![0.0; 2 * queries * 8];
        attention_plain(&job, HeadsMut { data: &mut want, strides: y_strides }, None);
        let adds = Mask::Add(Heads { data: &added, strides: [0, 0, 0, 1] });
        for mask in [job.mask, Some(adds)] {
            for &isa in Isa::available() {
                let mut y = vec![9.0; want.len()];
                let job = Attention { mask, ..job };
                attention(
                    &Exec::new(Pool::serial(), isa),
                    &job,
                    HeadsMut { data: &mut y, strides: y_strides },
                )
                .unwrap();
                assert!(
                    y.iter().zip(&want).all(|(y, want)| (y - want).abs() <= 4e-6),
                    "{queries} queries, {isa:?}"
                );
            }
        }
    }
}

/// Checks scores that rise or fall by more than the exponential's range from tile to tile, and
/// infinite ones.
#[test]
fn extreme_scores_agree_with_the_definition() {
    let patterns: [fn(usize) -> f32; 4] = [
        |key| if key == 250 { f32::INFINITY } else { 1.0 },
        |key| key as f32,
        |key| -(key as f32),
        |key| if key < 300 { f32::NEG_INFINITY } else { -3e38 },
    ];
    for queries in [1, 4, 40] {
        for pattern in patterns {
            let s = sizes([1, 1, 1], [queries, 410], [1, 3]);
            let (q, v) = (vec![1.0; queries], numbers(410 * 3, 3));
            let k: Vec<f32> = (0..410).map(pattern).collect();
            let job = Attention {
                sizes: s,
                q: Heads { data: &q, strides: [0, 0, 1, 1] },
                k: Heads { data: &k, strides: [0, 0, 1, 1] },
                v: Heads { data: &v, strides: [0, 0, 3, 1] },
                mask: None,
                scale: 1.0,
                softcap: 0.0,
                window: NO_WINDOW,
                blind_is_zero: true,
            };
            let y_strides = [0, 0, 3, 1];
            let mut want = vec![0.0; queries * 3];
            attention_plain(&job, HeadsMut { data: &mut want, strides: y_strides }, None);
            for &isa in Isa::available() {
                let mut y = vec![9.0; want.len()];
                attention(
                    &Exec::new(Pool::serial(), isa),
                    &job,
                    HeadsMut { data: &mut y, strides: y_strides },
                )
                .unwrap();
                for (y, want) in y.iter().zip(&want) {
                    let close = (y - want).abs() <= 4e-6;
                    assert!(close || y.is_nan() && want.is_nan(), "{isa:?}: {y}, not {want}");
                }
            }
        }
    }
}

#[test]
fn not_a_number_reaches_only_the_queries_that_see_it() {
    for count in [3, 30] {
        let s = sizes([1, 1, 1], [count, count], [2, 2]);
        let (q, mut k, v) = (numbers(2 * count, 1), numbers(2 * count, 2), numbers(2 * count, 3));
        k[4] = f32::NAN;
        let strides = [2 * count, 2 * count, 2, 1];
        let job = Attention {
            sizes: s,
            q: Heads { data: &q, strides },
            k: Heads { data: &k, strides },
            v: Heads { data: &v, strides },
            mask: None,
            scale: 1.0,
            softcap: 0.0,
            window: causal(0),
            blind_is_zero: false,
        };
        // The boolean mask hides the same keys.
        let kept: Vec<u8> = (0..count * count).map(|i| u8::from(i % count <= i / count)).collect();
        let mask = Some(Mask::Keep(Heads { data: &kept, strides: [0, 0, count, 1] }));
        for job in [job, Attention { mask, window: NO_WINDOW, ..job }] {
            for &isa in Isa::available() {
                let mut y = vec![0.0; 2 * count];
                attention(
                    &Exec::new(Pool::serial(), isa),
                    &job,
                    HeadsMut { data: &mut y, strides },
                )
                .unwrap();
                for (i, y) in y.iter().enumerate() {
                    assert_eq!(y.is_nan(), i >= 4, "{isa:?}: element {i}");
                }
            }
        }
    }
}
