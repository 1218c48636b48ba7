//! Compares recurrent layers with their definitions in f64, one element at a time.

use super::*;
use crate::attention::tests::numbers as random_singles;
use sardonyx_simd::{Caches, Isa, Pool};

/// Sizes for which weights stay in a second-level cache, and for which they do not.
const CACHES: [Caches; 2] = [
    Caches { near: 4 << 10, own: 16 << 10, shared: 64 << 10 },
    Caches { near: 48 << 10, own: 2 << 20, shared: 32 << 20 },
];

/// The cells without their weights.
#[derive(Clone, Copy, Debug)]
enum CellKind {
    Plain,
    ResetFirst,
    ResetLast,
    Memory { peepholes: bool, coupled: bool },
}

const KINDS: [CellKind; 6] = [
    CellKind::Plain,
    CellKind::ResetFirst,
    CellKind::ResetLast,
    CellKind::Memory { peepholes: false, coupled: false },
    CellKind::Memory { peepholes: true, coupled: false },
    CellKind::Memory { peepholes: true, coupled: true },
];

impl CellKind {
    fn gates(self) -> usize {
        match self {
            CellKind::Plain => 1,
            CellKind::ResetFirst | CellKind::ResetLast => 3,
            CellKind::Memory { .. } => 4,
        }
    }
}

/// All that a layer is given. The weights of the state are one row for each element of each gate.
#[derive(Clone)]
struct Given<T> {
    kind: CellKind,
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

/// Returns numbers between -1 and 1 that look random.
fn random<T: RecurrentElement>(len: usize, seed: u32) -> Vec<T> {
    random_singles(len, seed).into_iter().map(|x| T::from_f64(f64::from(x))).collect()
}

fn to_doubles<T: RecurrentElement>(list: &[T]) -> Vec<f64> {
    list.iter().map(|x| x.to_f64()).collect()
}

impl<T: RecurrentElement> Given<T> {
    fn new(kind: CellKind, hidden: usize, lengths: &[usize], steps: usize) -> Given<T> {
        let batch = lengths.len();
        Given {
            kind,
            clip: None,
            hidden,
            lengths: lengths.to_vec(),
            steps,
            backwards: false,
            batch_first: false,
            x: random(steps * batch * kind.gates() * hidden, 1),
            weights: random(kind.gates() * hidden * hidden, 2),
            extra: random(3 * hidden, 3),
            h: random(batch * hidden, 4),
            c: random(batch * hidden, 5),
        }
    }

    fn strides(&self, width: usize) -> Strides {
        if self.batch_first {
            [width, self.steps * width]
        } else {
            [self.lengths.len() * width, width]
        }
    }

    /// Computes all states by the definitions of the cells.
    fn expected_states(&self) -> Found<f64> {
        let (n, batch) = (self.hidden, self.lengths.len());
        let (x, u, extra) =
            (to_doubles(&self.x), to_doubles(&self.weights), to_doubles(&self.extra));
        let (mut h, mut c) = (to_doubles(&self.h), to_doubles(&self.c));
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
                    CellKind::ResetFirst | CellKind::ResetLast => {
                        (n..2 * n).map(|j| sigmoid(x[j] + s(&old, j))).collect()
                    }
                    _ => Vec::new(),
                };
                let reset: Vec<f64> = r.iter().zip(&old).map(|(r, h)| r * h).collect();
                for j in 0..n {
                    let sum = |gate: usize| x[gate * n + j] + s(&old, gate * n + j);
                    h[j] = match self.kind {
                        CellKind::Plain => tanh(sum(0)),
                        CellKind::ResetFirst | CellKind::ResetLast => {
                            let share = match self.kind {
                                CellKind::ResetFirst => s(&reset, 2 * n + j),
                                _ => r[j] * (s(&old, 2 * n + j) + extra[j]),
                            };
                            let candidate = tanh(x[2 * n + j] + share);
                            let z = sigmoid(sum(0));
                            (1.0 - z) * candidate + z * old[j]
                        }
                        CellKind::Memory { peepholes, coupled } => {
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

    /// Returns weights that give the input itself, so that `x` is the product.
    fn identity(&self) -> Vec<T> {
        let width = self.kind.gates() * self.hidden;
        (0..width * width).map(|at| if at % (width + 1) == 0 { T::ONE } else { T::ZERO }).collect()
    }

    /// Returns the weights of each product of the state.
    fn matrices(&self) -> Vec<MatRef<'_, T>> {
        let n = self.hidden;
        let gates_of_products: &[usize] = match self.kind {
            CellKind::Plain => &[1],
            CellKind::ResetFirst => &[2, 1],
            CellKind::ResetLast => &[3],
            CellKind::Memory { .. } => &[4],
        };
        let mut weights = &self.weights[..];
        let mut matrices = Vec::new();
        for gates in gates_of_products {
            let (of_product, rest) = weights.split_at(gates * n * n);
            matrices.push(MatRef::col_major(of_product, n, gates * n));
            weights = rest;
        }
        matrices
    }

    fn cell<'a>(&'a self, rights: &[T::Right<'a>]) -> Cell<'a, T> {
        let [f, g] = [Gate::Of(Unary::Sigmoid), Gate::Of(Unary::Tanh)];
        let state = rights[0];
        match self.kind {
            CellKind::Plain => Cell::Plain { function: g, state },
            CellKind::ResetFirst => {
                let candidate = Candidate::ResetFirst { gates: state, own: rights[1] };
                Cell::Gated { functions: [f, g], candidate }
            }
            CellKind::ResetLast => {
                let bias = Some(&self.extra[..self.hidden]);
                let candidate = Candidate::ResetLast { state, bias };
                Cell::Gated { functions: [f, g], candidate }
            }
            CellKind::Memory { peepholes, coupled } => Cell::Memory {
                functions: [f, g, g],
                state,
                peepholes: peepholes.then_some(&self.extra),
                coupled,
            },
        }
    }

    /// Runs a pass in the direction of `self` and, if there is a second, one in the other.
    fn run_passes<'a>(
        &'a self,
        exec: &Exec<'_>,
        input_weights: T::Right<'a>,
        rights: &[T::Right<'a>],
        passes: usize,
    ) -> Vec<Found<T>> {
        let (n, batch) = (self.hidden, self.lengths.len());
        let cell = self.cell(rights);
        let layer = Layer { cell, clip: self.clip.map(T::from_f64) };
        let has_memory = matches!(self.kind, CellKind::Memory { .. });
        let (mut h, mut c) = (vec![self.h.clone(); passes], vec![self.c.clone(); passes]);
        let mut scratch = vec![T::ONE; passes * cell.scratch_len(batch, n)];
        let mut y = vec![T::ONE; self.steps * passes * batch * n];
        let lengths = Some(&self.lengths[..]);
        let sequences = Sequences { steps: self.steps, batch, hidden: n, lengths };
        let width = cell.gates() * n;
        let rows = if self.batch_first { [1, self.steps] } else { [batch, 1] };
        let at_once = sequences.steps_at_once(exec, &cell, passes, &input_weights, rows);
        let mut products = vec![vec![T::ONE; at_once * batch * width]; passes];
        let mut all: Vec<_> = (h.iter_mut().zip(&mut c).zip(&mut products).enumerate())
            .map(|(index, ((h, c), product))| Pass {
                layer,
                backwards: self.backwards ^ (index == 1),
                input: Input {
                    x: MatRef::row_major(&self.x, self.steps * batch, width),
                    weights: input_weights,
                    bias: None,
                    product,
                },
                h,
                c: if has_memory { c } else { &mut [] },
            })
            .collect();
        let (strides, pass_stride) = if self.batch_first {
            ([passes * n, self.steps * passes * n], n)
        } else {
            ([passes * batch * n, n], batch * n)
        };
        let outputs = Outputs { y: &mut y, strides, pass_stride };
        recur(exec, &sequences, rows, &mut all, Some(outputs), &mut scratch).unwrap();
        let mut found = Vec::with_capacity(passes);
        for (pass, (h, c)) in h.into_iter().zip(c).enumerate() {
            let mut own = vec![T::ZERO; self.steps * batch * n];
            for (step, sequence) in (0..self.steps).flat_map(|t| (0..batch).map(move |b| (t, b))) {
                let [of_step, of_sequence] = self.strides(n);
                let from = pass * pass_stride + step * strides[0] + sequence * strides[1];
                own[step * of_step + sequence * of_sequence..][..n]
                    .copy_from_slice(&y[from..from + n]);
            }
            found.push([own, h, c]);
        }
        found
    }

    fn run(&self, isa: Isa, threads: usize) -> Found<T> {
        let (identity, width) = (self.identity(), self.kind.gates() * self.hidden);
        let rights: Vec<_> = self.matrices().into_iter().map(T::wrap_matrix).collect();
        let pool = Pool::new(threads);
        let input = T::wrap_matrix(MatRef::row_major(&identity, width, width));
        self.run_passes(&Exec::new(&pool, isa), input, &rights, 1).remove(0)
    }

    #[track_caller]
    fn compare(&self, found: &Found<T>, tolerance: f64) {
        let expected = self.expected_states();
        let has_memory = matches!(self.kind, CellKind::Memory { .. });
        for (found, expected) in found.iter().zip(expected).take(if has_memory { 3 } else { 2 }) {
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                let error = (found.to_f64() - expected).abs();
                assert!(error <= tolerance, "{:?} {at}: {found:?} {expected}", self.kind);
            }
        }
    }

    #[track_caller]
    fn check(&self, isa: Isa, tolerance: f64) {
        let found = self.run(isa, 1);
        self.compare(&found, tolerance);
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
        let sequences = Sequences { steps: 1, batch: 1, hidden: 2, lengths: None };
        let mut h = [7.0; 2];
        let layer = Layer { cell, clip: None };
        let input = Input {
            x: MatRef::row_major(&[0.5, -0.5], 1, 2),
            weights: MatRef::row_major(&[1.0, 0.0, 0.0, 1.0], 2, 2),
            bias: None,
            product: &mut [0.0; 2],
        };
        let pass = Pass { layer, backwards: false, input, h: &mut h, c: &mut [] };
        recur(exec, &sequences, [1, 1], &mut [pass], None, &mut [0.0; 2]).unwrap();
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

#[test]
fn threads_and_caches_change_no_bit() {
    let pools = [1, 2, 3, 8].map(Pool::new);
    // Few and many sequences, with and without enough work for several threads, of one k block and
    // of several.
    let sizes = [(5, &[3, 3, 1][..], 3), (96, &[12, 5], 12), (64, &[6; 40], 6), (300, &[2], 2)];
    for kind in KINDS {
        for (hidden, lengths, steps) in sizes {
            for (backwards, batch_first) in [(false, false), (true, true)] {
                let mut given = Given::<f32>::new(kind, hidden, lengths, steps);
                // Errors do not grow from step to step.
                given.weights.iter_mut().for_each(|weight| *weight *= 0.1);
                let given = Given { backwards, batch_first, ..given };
                let matrices = given.matrices();
                let (identity, width) = (given.identity(), kind.gates() * hidden);
                for &isa in Isa::available() {
                    let packed: Vec<PackedB> =
                        matrices.iter().map(|b| PackedB::new(isa, *b).unwrap()).collect();
                    let identity = MatRef::row_major(&identity, width, width);
                    let input = &PackedB::new(isa, identity).unwrap();
                    let input = Rhs::Packed(input);
                    let rights: Vec<Rhs<'_>> = packed.iter().map(Rhs::Packed).collect();
                    let expected = given.run_passes(&Exec::new(&pools[0], isa), input, &rights, 2);
                    for (pool, caches) in
                        pools.iter().flat_map(|pool| CACHES.map(|caches| (pool, caches)))
                    {
                        let exec = Exec::new(pool, isa).with_caches(caches);
                        let found = given.run_passes(&exec, input, &rights, 2);
                        assert!(found == expected, "{kind:?} {hidden} {isa:?} {pool:?} {caches}");
                    }
                    let other = Given { backwards: !backwards, ..given.clone() };
                    for (given, found) in [&given, &other].into_iter().zip(&expected) {
                        given.compare(found, 2e-5);
                    }
                }
            }
        }
    }
}

#[test]
fn outputs_may_not_overlap() {
    let sequences = Sequences { steps: 3, batch: 2, hidden: 4, lengths: None };
    let mut y = [0.0f32; 48];
    let mut fits = |strides, pass_stride, len: usize| {
        Outputs { y: &mut y[..len], strides, pass_stride }.fits(&sequences, 2)
    };
    assert!(fits([16, 4], 8, 48) && fits([8, 24], 4, 48) && fits([8, 4], 24, 48));
    assert!(!fits([16, 4], 8, 47), "the last row lies outside");
    assert!(!fits([12, 4], 8, 48), "a pass reaches into the next step");
    assert!(!fits([16, 3], 8, 48), "a sequence reaches into the next");
}
