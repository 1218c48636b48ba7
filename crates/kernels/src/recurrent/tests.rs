//! Layers with states against their definitions in f64, one element at a time.

use super::*;
use crate::attention::tests::numbers as random;
use sardonyx_simd::{Isa, Pool};

/// The cells without their weights.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    ResetFirst,
    ResetLast,
    Memory { peepholes: bool, coupled: bool },
}

const KINDS: [Kind; 6] = [
    Kind::Plain,
    Kind::ResetFirst,
    Kind::ResetLast,
    Kind::Memory { peepholes: false, coupled: false },
    Kind::Memory { peepholes: true, coupled: false },
    Kind::Memory { peepholes: true, coupled: true },
];

impl Kind {
    fn gates(self) -> usize {
        match self {
            Kind::Plain => 1,
            Kind::ResetFirst | Kind::ResetLast => 3,
            Kind::Memory { .. } => 4,
        }
    }
}

/// All that a layer is given. The weights of the state are one row for each element of each gate.
struct Given<T> {
    kind: Kind,
    clip: Option<f64>,
    hidden: usize,
    lengths: Vec<usize>,
    steps: usize,
    backwards: bool,
    batch_first: bool,
    x: Vec<T>,
    weights: Vec<T>,
    /// Peepholes, or the bias of the candidate.
    extra: Vec<T>,
    h: Vec<T>,
    c: Vec<T>,
}

/// States after all steps, in the order of the inputs, and the last of both kinds.
type Found<T> = [Vec<T>; 3];

impl<T: RecurrentElement> Given<T> {
    fn new(kind: Kind, hidden: usize, lengths: &[usize], steps: usize) -> Given<T> {
        let batch = lengths.len();
        let numbers = |len, seed| -> Vec<T> {
            random(len, seed).into_iter().map(|x| T::from_f64(f64::from(x))).collect()
        };
        Given {
            kind,
            clip: None,
            hidden,
            lengths: lengths.to_vec(),
            steps,
            backwards: false,
            batch_first: false,
            x: numbers(steps * batch * kind.gates() * hidden, 1),
            weights: numbers(kind.gates() * hidden * hidden, 2),
            extra: numbers(3 * hidden, 3),
            h: numbers(batch * hidden, 4),
            c: numbers(batch * hidden, 5),
        }
    }

    fn strides(&self, width: usize) -> Strides {
        if self.batch_first {
            [width, self.steps * width]
        } else {
            [self.lengths.len() * width, width]
        }
    }

    /// What it must be.
    fn naively(&self) -> Found<f64> {
        let (n, batch) = (self.hidden, self.lengths.len());
        let real = |list: &[T]| list.iter().map(|x| x.to_f64()).collect::<Vec<f64>>();
        let (x, u, extra) = (real(&self.x), real(&self.weights), real(&self.extra));
        let (mut h, mut c) = (real(&self.h), real(&self.c));
        let mut y = vec![0.0; self.steps * batch * n];
        let clip = self.clip.unwrap_or(f64::INFINITY);
        let clipped = |x: f64| x.clamp(-clip, clip);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-clipped(x)).exp());
        let tanh = |x: f64| clipped(x).tanh();
        let width = self.kind.gates() * n;
        let [of_step, of_sequence] = self.strides(width);
        for b in 0..batch {
            let (h, c) = (&mut h[b * n..][..n], &mut c[b * n..][..n]);
            if self.lengths[b] == 0 {
                h.fill(0.0);
                c.fill(0.0);
            }
            for turn in 0..self.lengths[b] {
                let t = if self.backwards { self.lengths[b] - 1 - turn } else { turn };
                let x = &x[t * of_step + b * of_sequence..][..width];
                let s = |state: &[f64], row: usize| -> f64 {
                    u[row * n..][..n].iter().zip(state).map(|(u, h)| u * h).sum()
                };
                let old = h.to_vec();
                let r: Vec<f64> = match self.kind {
                    Kind::ResetFirst | Kind::ResetLast => {
                        (n..2 * n).map(|j| sigmoid(x[j] + s(&old, j))).collect()
                    }
                    _ => Vec::new(),
                };
                let reset: Vec<f64> = r.iter().zip(&old).map(|(r, h)| r * h).collect();
                for j in 0..n {
                    let sum = |gate: usize| x[gate * n + j] + s(&old, gate * n + j);
                    h[j] = match self.kind {
                        Kind::Plain => tanh(sum(0)),
                        Kind::ResetFirst | Kind::ResetLast => {
                            let share = match self.kind {
                                Kind::ResetFirst => s(&reset, 2 * n + j),
                                _ => r[j] * (s(&old, 2 * n + j) + extra[j]),
                            };
                            let candidate = tanh(x[2 * n + j] + share);
                            let z = sigmoid(sum(0));
                            (1.0 - z) * candidate + z * old[j]
                        }
                        Kind::Memory { peepholes, coupled } => {
                            let peep = |k: usize, c: f64| {
                                if peepholes { extra[k * n + j] * c } else { 0.0 }
                            };
                            let i = sigmoid(sum(0) + peep(0, c[j]));
                            let k = sigmoid(sum(2) + peep(2, c[j]));
                            let k = if coupled { 1.0 - i } else { k };
                            c[j] = k * c[j] + i * tanh(sum(3));
                            sigmoid(sum(1) + peep(1, c[j])) * c[j].tanh()
                        }
                    };
                }
                let [of_step, of_sequence] = self.strides(n);
                y[t * of_step + b * of_sequence..][..n].copy_from_slice(h);
            }
        }
        [y, h, c]
    }

    fn run(&self, isa: Isa, threads: usize) -> Found<T> {
        let (n, batch) = (self.hidden, self.lengths.len());
        let rows = |gates: std::ops::Range<usize>| {
            let weights = &self.weights[gates.start * n * n..gates.end * n * n];
            T::plain(MatRef::col_major(weights, n, gates.len() * n))
        };
        let [f, g] = [Gate::Of(Unary::Sigmoid), Gate::Of(Unary::Tanh)];
        let cell = match self.kind {
            Kind::Plain => Cell::Plain { function: g, state: rows(0..1) },
            Kind::ResetFirst => {
                let candidate = Candidate::ResetFirst { gates: rows(0..2), own: rows(2..3) };
                Cell::Gated { functions: [f, g], candidate }
            }
            Kind::ResetLast => {
                let bias = Some(&self.extra[..n]);
                let candidate = Candidate::ResetLast { state: rows(0..3), bias };
                Cell::Gated { functions: [f, g], candidate }
            }
            Kind::Memory { peepholes, coupled } => Cell::Memory {
                functions: [f, g, g],
                state: rows(0..4),
                peepholes: peepholes.then_some(&self.extra),
                coupled,
            },
        };
        let (mut h, mut c) = (self.h.clone(), self.c.clone());
        let mut scratch = vec![T::ONE; cell.scratch_len(batch, n)];
        let mut y = vec![T::ONE; self.steps * batch * n];
        let sequences = Sequences {
            steps: self.steps,
            batch,
            hidden: n,
            lengths: Some(&self.lengths),
            backwards: self.backwards,
        };
        let has_memory = matches!(self.kind, Kind::Memory { .. });
        let states = States {
            h: &mut h,
            c: if has_memory { &mut c } else { &mut [] },
            y: Some((&mut y, self.strides(n))),
        };
        let layer = Layer { cell, clip: self.clip.map(T::from_f64) };
        let inputs = (&self.x[..], self.strides(cell.gates() * n));
        recur(
            &Exec::new(&Pool::new(threads), isa),
            &layer,
            &sequences,
            inputs,
            states,
            &mut scratch,
        )
        .unwrap();
        [y, h, c]
    }

    #[track_caller]
    fn check(&self, isa: Isa, tolerance: f64) {
        let found = self.run(isa, 1);
        let expected = self.naively();
        let has_memory = matches!(self.kind, Kind::Memory { .. });
        for (found, expected) in found.iter().zip(expected).take(if has_memory { 3 } else { 2 }) {
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                let error = (found.to_f64() - expected).abs();
                assert!(error <= tolerance, "{isa:?} {:?} {at}: {found:?} {expected}", self.kind);
            }
        }
        assert!(self.run(isa, 3) == found, "{isa:?} {:?}: other bits on three threads", self.kind);
    }
}

fn check_all<T: RecurrentElement>(tolerance: f64) {
    for &isa in Isa::available() {
        for kind in KINDS {
            for (hidden, lengths, steps) in
                [(5, &[3, 3][..], 3), (33, &[2, 0, 4], 5), (64, &[2; 40], 2), (1, &[0], 0)]
            {
                for (backwards, batch_first) in [(false, false), (true, false), (true, true)] {
                    let given = Given::<T>::new(kind, hidden, lengths, steps);
                    let given = Given { backwards, batch_first, ..given };
                    given.check(isa, tolerance);
                    Given { clip: Some(0.4), ..given }.check(isa, tolerance);
                }
            }
        }
    }
}

#[test]
fn all_cells_in_f32() {
    check_all::<f32>(2e-5);
}

#[test]
fn all_cells_in_f64() {
    check_all::<f64>(1e-13);
}

#[test]
fn nothing_to_do() {
    for kind in KINDS {
        for (hidden, lengths, steps) in [(0, &[2, 2][..], 2), (3, &[], 2)] {
            let [y, h, c] = Given::<f32>::new(kind, hidden, lengths, steps).run(Isa::detect(), 1);
            assert!(y.is_empty() && h.is_empty() && c.is_empty());
        }
    }
}

#[test]
fn functions_of_two_numbers() {
    let pool = Pool::new(1);
    let exec = &Exec::new(&pool, Isa::detect());
    let zero = [0.0f64; 4];
    for (function, expected) in [
        (Gate::Affine { alpha: 2.0, beta: -1.0 }, [0.0, -2.0]),
        (Gate::ScaledTanh { alpha: 3.0, beta: 0.5 }, [3.0 * 0.25f64.tanh(), -3.0 * 0.25f64.tanh()]),
    ] {
        let cell = Cell::Plain { function, state: MatRef::row_major(&zero, 2, 2) };
        let sequences =
            Sequences { steps: 1, batch: 1, hidden: 2, lengths: None, backwards: false };
        let mut h = [7.0; 2];
        let states = States { h: &mut h, c: &mut [], y: None };
        let layer = Layer { cell, clip: None };
        recur(exec, &layer, &sequences, (&[0.5, -0.5], [2, 2]), states, &mut [0.0; 2]).unwrap();
        assert_eq!(h, expected, "{function:?}");
    }
}

#[test]
fn what_is_no_number_stays_in_its_sequence() {
    for kind in KINDS {
        let mut given = Given::<f32>::new(kind, 3, &[2, 2], 2);
        given.x[0] = f32::NAN;
        let [_, h, _] = given.run(Isa::detect(), 1);
        assert!(h[0].is_nan() && h[3..].iter().all(|h| h.is_finite()), "{kind:?} {h:?}");
    }
}
