//! Steps of optimizers: new weights and states from old ones and gradients. Each element is
//! computed in the type of the weights; factors shared by all elements are computed in double
//! precision and rounded once.
//!
//! Adagrad: Duchi, Hazan, Singer, "Adaptive Subgradient Methods", JMLR 12, 2011. Adam: Kingma, Ba,
//! "Adam: A Method for Stochastic Optimization", 2015. Momentum: Sutskever, Martens, Dahl, Hinton,
//! "On the importance of initialization and momentum in deep learning", 2013.

use sardonyx_simd::Exec;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Level, Loop};

/// Rule by which weights move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// Moves by the gradient divided by the root of the sum of its squares.
    Adagrad {
        /// Added to the root.
        epsilon: f64,
    },
    /// Moves by a running mean of the gradient divided by the root of a running mean of its square.
    Adam {
        /// Factor by which the mean decays in a step.
        alpha: f64,
        /// Factor by which the mean of squares decays in a step.
        beta: f64,
        /// Added to the root.
        epsilon: f64,
        /// Fraction that weights lose at the end of a step.
        decay: f64,
    },
    /// Moves by a decaying sum of gradients.
    Momentum {
        /// Factor by which the sum decays in a step.
        alpha: f64,
        /// Factor of the gradient in the sum.
        beta: f64,
        /// Whether weights move by the gradient plus `alpha` times the sum (Nesterov's momentum).
        looks_ahead: bool,
    },
}

impl Optimizer {
    /// Returns the number of state values for each weight.
    pub fn states(self) -> usize {
        match self {
            Optimizer::Adagrad { .. } | Optimizer::Momentum { .. } => 1,
            Optimizer::Adam { .. } => 2,
        }
    }
}

/// One step of an optimizer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    pub optimizer: Optimizer,
    /// Learning rate.
    pub rate: f64,
    /// Factor of the weight that is added to its gradient (L2 regularization).
    pub norm: f64,
}

/// Weights and states before and after a step. All slices have one length; optimizers with one
/// state ignore the second.
#[derive(Debug)]
pub struct Weights<'a, T> {
    pub old: &'a [T],
    pub new: &'a mut [T],
    pub gradients: &'a [T],
    pub old_states: [&'a [T]; 2],
    pub new_states: [&'a mut [T]; 2],
}

/// Computes new weights and states.
///
/// # Panics
///
/// If lengths differ.
pub fn step<T: Math>(exec: &Exec<'_>, step: Step, weights: Weights<'_, T>) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let Weights { old, new, gradients, old_states, new_states } = weights;
    let (level, states) = (Level::new(isa), step.optimizer.states());
    assert_eq!((new.len(), gradients.len()), (old.len(), old.len()), "one of each per weight");
    for (old_state, new_state) in old_states.iter().zip(&new_states).take(states) {
        let lengths = (old_state.len(), new_state.len());
        assert_eq!(lengths, (old.len(), old.len()), "one state per weight");
    }
    let new = Shared::new(new);
    let new_states = new_states.map(Shared::new);
    ranges(pool, old.len(), 2 + states, |range| {
        let (start, len) = (range.start, range.len());
        let states_of = |index: usize| {
            let is_used = index < states;
            let (start, len) = if is_used { (start, len) } else { (0, 0) };
            // SAFETY: ranges are disjoint.
            (&old_states[index][start..start + len], unsafe { new_states[index].part(start, len) })
        };
        let ((old_first, new_first), (old_second, new_second)) = (states_of(0), states_of(1));
        let part = Weights {
            old: &old[range.clone()],
            // SAFETY: ranges are disjoint.
            new: unsafe { new.part(start, len) },
            gradients: &gradients[range],
            old_states: [old_first, old_second],
            new_states: [new_first, new_second],
        };
        T::run(level, StepLoop { step, part });
    })
}

/// Loop of one step over a range of weights.
struct StepLoop<'a, T> {
    step: Step,
    part: Weights<'a, T>,
}

impl<T: Math> Loop for StepLoop<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let StepLoop { step: Step { optimizer, rate, norm }, part } = self;
        let Weights { old: x, new: y, gradients, old_states, new_states } = part;
        let ([first, second], [new_first, new_second]) = (old_states, new_states);
        // Slices of one length need no bounds checks in the loops.
        let len = x.len();
        let (y, gradients) = (&mut y[..len], &gradients[..len]);
        let (first, new_first) = (&first[..len], &mut new_first[..len]);
        let (rate, norm) = (T::from_f64(rate), T::from_f64(norm));
        let regularize = |i: usize| x[i].mul(norm).add(gradients[i]);
        match optimizer {
            Optimizer::Adagrad { epsilon } => {
                let epsilon = T::from_f64(epsilon);
                for i in 0..len {
                    let g = regularize(i);
                    let sum = first[i].add(g.mul(g));
                    new_first[i] = sum;
                    y[i] = x[i].sub(rate.mul(g).div(sum.sqrt().add(epsilon)));
                }
            }
            Optimizer::Adam { alpha, beta, epsilon, decay } => {
                let (second, new_second) = (&second[..len], &mut new_second[..len]);
                let parts = [alpha, beta, 1.0 - alpha, 1.0 - beta, epsilon, 1.0 - decay];
                let [alpha, beta, of_gradient, of_square, epsilon, stays] = parts.map(T::from_f64);
                for i in 0..len {
                    let g = regularize(i);
                    let mean = alpha.mul(first[i]).add(of_gradient.mul(g));
                    let squares = beta.mul(second[i]).add(of_square.mul(g.mul(g)));
                    (new_first[i], new_second[i]) = (mean, squares);
                    let by = mean.div(squares.sqrt().add(epsilon));
                    y[i] = stays.mul(x[i].sub(rate.mul(by)));
                }
            }
            Optimizer::Momentum { alpha, beta, looks_ahead } => {
                let [alpha, beta] = [alpha, beta].map(T::from_f64);
                for i in 0..len {
                    let g = regularize(i);
                    let sum = alpha.mul(first[i]).add(beta.mul(g));
                    new_first[i] = sum;
                    let by = if looks_ahead { g.add(alpha.mul(sum)) } else { sum };
                    y[i] = x[i].sub(rate.mul(by));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    /// Computes the new weight and states by the definitions of the operators, in f64.
    fn formula(step: Step, x: f64, gradient: f64, [first, second]: [f64; 2]) -> (f64, [f64; 2]) {
        let Step { optimizer, rate, norm } = step;
        let g = norm * x + gradient;
        match optimizer {
            Optimizer::Adagrad { epsilon } => {
                let squares = first + g * g;
                (x - rate * g / (squares.sqrt() + epsilon), [squares, second])
            }
            Optimizer::Adam { alpha, beta, epsilon, decay } => {
                let mean = alpha * first + (1.0 - alpha) * g;
                let squares = beta * second + (1.0 - beta) * g * g;
                let moved = x - rate * mean / (squares.sqrt() + epsilon);
                ((1.0 - decay) * moved, [mean, squares])
            }
            Optimizer::Momentum { alpha, beta, looks_ahead: false } => {
                let sum = alpha * first + beta * g;
                (x - rate * sum, [sum, second])
            }
            Optimizer::Momentum { alpha, beta, looks_ahead: true } => {
                let sum = alpha * first + beta * g;
                (x - rate * (g + alpha * sum), [sum, second])
            }
        }
    }

    /// Returns steps of all optimizers, with several parameters.
    fn steps() -> Vec<Step> {
        let optimizers = [
            Optimizer::Adagrad { epsilon: 1e-6 },
            Optimizer::Adam { alpha: 0.9, beta: 0.999, epsilon: 1e-8, decay: 0.0 },
            Optimizer::Adam { alpha: 0.5, beta: 0.75, epsilon: 1e-3, decay: 0.1 },
            Optimizer::Momentum { alpha: 0.9, beta: 1.0, looks_ahead: false },
            Optimizer::Momentum { alpha: 0.8, beta: 0.5, looks_ahead: true },
        ];
        [(0.01, 0.0), (1.0, 0.125)]
            .into_iter()
            .flat_map(|(rate, norm)| optimizers.map(|optimizer| Step { optimizer, rate, norm }))
            .collect()
    }

    /// Compares five steps of many weights with the formula, from the same start each.
    fn check<T: Math>(within: f64) {
        // Enough weights for several chunks.
        let len = 3 * 16 * 1024 + 5;
        let make_wave = |scale: f64, speed: f64| move |i: usize| scale * (i as f64 * speed).sin();
        let collect_list = |f: &dyn Fn(usize) -> f64| (0..len).map(|i| T::from_f64(f(i))).collect();
        for step_of in steps() {
            for &isa in Isa::available() {
                let mut x: Vec<T> = collect_list(&make_wave(2.0, 0.37));
                let mut states = [collect_list(&|_| 0.25), collect_list(&|_| 0.5)];
                for turn in 0..5 {
                    let gradients: Vec<T> =
                        collect_list(&make_wave(0.5, 0.1 + 0.07 * f64::from(turn)));
                    let [first, second] = &states;
                    let mut new = vec![T::ZERO; len];
                    let [mut new_first, mut new_second] = [new.clone(), second.clone()];
                    let weights = Weights {
                        old: &x,
                        new: &mut new,
                        gradients: &gradients,
                        old_states: [first, second],
                        new_states: [&mut new_first, &mut new_second],
                    };
                    step(&Exec::new(&Pool::new(2), isa), step_of, weights).unwrap();
                    for i in 0..len {
                        let kept = [first[i].to_f64(), second[i].to_f64()];
                        let (y, [a, b]) =
                            formula(step_of, x[i].to_f64(), gradients[i].to_f64(), kept);
                        let found = [new[i], new_first[i], new_second[i]].map(T::to_f64);
                        for (found, wanted) in found.into_iter().zip([y, a, b]) {
                            let off = (found - wanted).abs();
                            let is_near = off <= within * wanted.abs().max(1.0);
                            assert!(is_near, "{step_of:?}: {found} is not {wanted}");
                        }
                    }
                    (x, states) = (new, [new_first, new_second]);
                }
            }
        }
    }

    #[test]
    fn steps_are_those_of_the_formulas() {
        check::<f32>(4e-7);
        check::<f64>(1e-15);
    }

    #[test]
    fn optimizers_of_one_state_need_no_second() {
        let optimizer = Optimizer::Momentum { alpha: 0.5, beta: 1.0, looks_ahead: false };
        let (mut new, mut sum) = ([0.0f32; 2], [0.0; 2]);
        let weights = Weights {
            old: &[1.0, 2.0],
            new: &mut new,
            gradients: &[0.5, 0.25],
            old_states: [&[1.0, 0.0], &[]],
            new_states: [&mut sum, &mut []],
        };
        let pool = Pool::new(1);
        let exec = Exec::new(&pool, Isa::detect());
        step(&exec, Step { optimizer, rate: 0.5, norm: 0.0 }, weights).unwrap();
        assert_eq!((new, sum), ([0.5, 1.875], [1.0, 0.25]));
    }
}
