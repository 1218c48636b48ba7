//! One step of one sequence: functions of gates after the product of the state.

use super::{Gate, RecurrentElement};
use sardonyx_elementwise::operations::clamp;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Level, Loop};

/// Operands of a step of one sequence.
pub(super) struct Row<'a, T> {
    pub(super) level: Level,
    /// Number of elements of a gate.
    pub(super) hidden: usize,
    /// The input's product, which is added to each gate.
    pub(super) x: &'a [T],
    /// The state's product for each gate, then the values of the gates.
    pub(super) gates: &'a mut [T],
    /// State of the sequence.
    pub(super) h: &'a mut [T],
    /// Cell of a memory, or the state after the reset of a gated unit.
    pub(super) other: &'a mut [T],
}

impl<T: RecurrentElement> Row<'_, T> {
    /// Computes the step of [`Cell::Plain`](super::Cell).
    pub(super) fn run_plain(&mut self, function: Gate, clip: T) {
        let (level, out) = (self.level, &mut *self.gates);
        T::run(level, Sum { out, x: self.x, peephole: None, clip });
        function.apply(level, self.gates);
        self.h.copy_from_slice(self.gates);
    }

    /// Computes the gates z and r of a gated unit.
    pub(super) fn compute_gates(&mut self, function: Gate, clip: T) {
        let (level, len) = (self.level, 2 * self.hidden);
        let out = &mut self.gates[..len];
        T::run(level, Sum { out, x: &self.x[..len], peephole: None, clip });
        function.apply(level, &mut self.gates[..len]);
    }

    /// Computes the step of a gated unit whose gate r resets the product of the state.
    pub(super) fn run_reset_last(&mut self, functions: [Gate; 2], bias: Option<&[T]>, clip: T) {
        self.compute_gates(functions[0], clip);
        self.reset_product(bias);
        self.finish_candidate(functions[1], clip);
    }

    /// Multiplies the state by the gate r, into `other`.
    pub(super) fn reset(&mut self) {
        let r = &self.gates[self.hidden..2 * self.hidden];
        self.other.copy_from_slice(r);
        T::run(self.level, Scale { out: self.other, by: self.h });
    }

    /// Adds the bias to the candidate's product of the state and multiplies the sum by the gate r.
    fn reset_product(&mut self, bias: Option<&[T]>) {
        let (gates, product) = self.gates.split_at_mut(2 * self.hidden);
        if let Some(bias) = bias {
            let sum = Sum { out: &mut *product, x: bias, peephole: None, clip: T::HIGHEST };
            T::run(self.level, sum);
        }
        T::run(self.level, Scale { out: product, by: &gates[self.hidden..] });
    }

    /// Computes the candidate, to which the state's product has been added, and the new state,
    /// between it and the old one.
    pub(super) fn finish_candidate(&mut self, function: Gate, clip: T) {
        let level = self.level;
        let (gates, candidate) = self.gates.split_at_mut(2 * self.hidden);
        let x = &self.x[2 * self.hidden..];
        T::run(level, Sum { out: &mut *candidate, x, peephole: None, clip });
        function.apply(level, candidate);
        T::run(level, Mix { h: self.h, keep: &gates[..self.hidden], candidate });
    }

    /// Computes the step of [`Cell::Memory`](super::Cell).
    pub(super) fn run_memory(
        &mut self,
        [f, g, q]: [Gate; 3],
        peepholes: Option<&[T]>,
        coupled: bool,
        clip: T,
    ) {
        let (level, n) = (self.level, self.hidden);
        let (h, c) = (&mut *self.h, &mut *self.other);
        if peepholes.is_none() && !coupled {
            // No gate depends on another: all sums at once, and one function for three gates.
            let sum = Sum { out: &mut *self.gates, x: self.x, peephole: None, clip };
            T::run(level, sum);
            let (gates, new) = self.gates.split_at_mut(3 * n);
            f.apply(level, gates);
            g.apply(level, new);
            let [take, o, keep] = [0, 1, 2].map(|gate| &gates[gate * n..][..n]);
            T::run(level, Remember { c, keep, take, new });
            h.copy_from_slice(c);
            q.apply(level, h);
            T::run(level, Scale { out: h, by: o });
            return;
        }
        let (i, rest) = self.gates.split_at_mut(n);
        let (o, rest) = rest.split_at_mut(n);
        let (k, new) = rest.split_at_mut(n);
        let (x, p) = (
            |gate: usize| &self.x[gate * n..][..n],
            |gate: usize| peepholes.map(|peepholes| &peepholes[gate * n..][..n]),
        );
        let compute_gate = |out: &mut [T], gate: usize, peephole: Option<&[T]>, c: &[T]| {
            let peephole = peephole.map(|weights| (weights, c));
            T::run(level, Sum { out, x: x(gate), peephole, clip });
        };
        compute_gate(i, 0, p(0), c);
        f.apply(level, i);
        if coupled {
            T::run(level, Complement { out: k, of: i });
        } else {
            compute_gate(k, 2, p(2), c);
            f.apply(level, k);
        }
        compute_gate(new, 3, None, c);
        g.apply(level, new);
        T::run(level, Remember { c, keep: k, take: i, new });
        compute_gate(o, 1, p(1), c);
        f.apply(level, o);
        h.copy_from_slice(c);
        q.apply(level, h);
        T::run(level, Scale { out: h, by: o });
    }
}

impl Gate {
    /// Applies the function in place.
    fn apply<T: RecurrentElement>(self, level: Level, x: &mut [T]) {
        let to_number = |x: f32| T::from_f64(f64::from(x));
        match self {
            Gate::Of(function) => T::unary_in_place(level, function, x),
            Gate::Affine { alpha, beta } => {
                T::run(level, Affine { x, alpha: to_number(alpha), beta: to_number(beta) });
            }
            Gate::ScaledTanh { alpha, beta } => {
                T::run(level, ScaledTanh { x, alpha: to_number(alpha), beta: to_number(beta) });
            }
        }
    }
}

/// Loop that computes `alpha * x + beta` in place.
struct Affine<'a, T> {
    x: &'a mut [T],
    alpha: T,
    beta: T,
}

impl<T: Math> Loop for Affine<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for x in self.x {
            *x = x.mul_add::<FMA>(self.alpha, self.beta);
        }
    }
}

/// Loop that computes `alpha * tanh(beta * x)` in place.
struct ScaledTanh<'a, T> {
    x: &'a mut [T],
    alpha: T,
    beta: T,
}

impl<T: Math> Loop for ScaledTanh<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for x in self.x {
            *x = self.alpha.mul(self.beta.mul(*x).tanh::<FMA>());
        }
    }
}

/// Loop that adds the input's product and, through a peephole, the weighted cell to `out`, then
/// clips.
struct Sum<'a, T> {
    out: &'a mut [T],
    x: &'a [T],
    /// Weights, and the cell that they weigh.
    peephole: Option<(&'a [T], &'a [T])>,
    clip: T,
}

impl<T: Math> Loop for Sum<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (low, high) = (self.clip.neg(), self.clip);
        let pairs = self.out.iter_mut().zip(self.x);
        match self.peephole {
            None => {
                for (out, x) in pairs {
                    *out = clamp(out.add(*x), low, high);
                }
            }
            Some((weights, c)) => {
                for ((out, x), (weight, c)) in pairs.zip(weights.iter().zip(c)) {
                    *out = clamp(weight.mul_add::<FMA>(*c, out.add(*x)), low, high);
                }
            }
        }
    }
}

/// Loop that multiplies `out` by `by`.
struct Scale<'a, T> {
    out: &'a mut [T],
    by: &'a [T],
}

impl<T: Math> Loop for Scale<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (out, by) in self.out.iter_mut().zip(self.by) {
            *out = out.mul(*by);
        }
    }
}

/// Loop that computes `out = 1 - of`.
struct Complement<'a, T> {
    out: &'a mut [T],
    of: &'a [T],
}

impl<T: Math> Loop for Complement<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for (out, of) in self.out.iter_mut().zip(self.of) {
            *out = T::ONE.sub(*of);
        }
    }
}

/// Loop that updates a cell: `c = keep * c + take * new`.
struct Remember<'a, T> {
    c: &'a mut [T],
    keep: &'a [T],
    take: &'a [T],
    new: &'a [T],
}

impl<T: Math> Loop for Remember<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let taken = self.take.iter().zip(self.new);
        for ((c, keep), (take, new)) in self.c.iter_mut().zip(self.keep).zip(taken) {
            *c = take.mul_add::<FMA>(*new, c.mul(*keep));
        }
    }
}

/// Loop that computes the state of a gated unit: `h = keep * h + (1 - keep) * candidate`.
struct Mix<'a, T> {
    h: &'a mut [T],
    keep: &'a [T],
    candidate: &'a [T],
}

impl<T: Math> Loop for Mix<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        for ((h, keep), candidate) in self.h.iter_mut().zip(self.keep).zip(self.candidate) {
            *h = h.mul_add::<FMA>(*keep, T::ONE.sub(*keep).mul(*candidate));
        }
    }
}
