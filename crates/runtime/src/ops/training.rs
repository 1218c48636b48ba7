//! Optimizer steps: `Adagrad`, `Adam` and `Momentum`.

use sardonyx_kernels::TrainingLoops;
use sardonyx_kernels::optimizer::{Optimizer, Step, Weights};
use sardonyx_tensor::{DataType, Dims, Element};

use super::nn::batch_normalization::widen_input;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Number of inputs before the weights: the learning rate and the number of steps so far.
const FIRST: usize = 2;

struct Update {
    kind: OptimizerKind,
    /// Factor of the weight that is added to its gradient.
    norm: f64,
    /// Number of weight tensors.
    weights: usize,
}

/// Optimizer, without its dependence on the number of steps.
enum OptimizerKind {
    Adagrad { epsilon: f64, decay_factor: f64 },
    Adam { alpha: f64, beta: f64, epsilon: f64, decay: f64 },
    Momentum { alpha: f64, beta: f64, looks_ahead: bool },
}

/// Binds `Adagrad`.
pub(crate) fn bind_adagrad(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let float = |name, default| f64::from(site.float(name).unwrap_or(default));
    let kind = OptimizerKind::Adagrad {
        epsilon: float("epsilon", 1e-6),
        decay_factor: float("decay_factor", 0.0),
    };
    bind(site, kind)
}

/// Binds `Adam`.
pub(crate) fn bind_adam(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let float = |name, default| f64::from(site.float(name).unwrap_or(default));
    let kind = OptimizerKind::Adam {
        alpha: float("alpha", 0.9),
        beta: float("beta", 0.999),
        epsilon: float("epsilon", 1e-6),
        decay: float("norm_coefficient_post", 0.0),
    };
    bind(site, kind)
}

/// Binds `Momentum`.
pub(crate) fn bind_momentum(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let float = |name| f64::from(site.float(name).unwrap_or(0.0));
    let looks_ahead = site.find_named("mode", &[("standard", false), ("nesterov", true)])?;
    bind(site, OptimizerKind::Momentum { alpha: float("alpha"), beta: float("beta"), looks_ahead })
}

fn bind(site: &Site<'_>, kind: OptimizerKind) -> Result<Box<dyn Kernel>, BindError> {
    let norm = f64::from(site.float("norm_coefficient").unwrap_or(0.0));
    let given = site.inputs.len().saturating_sub(FIRST);
    let weights = given / (2 + kind.optimizer(0).states());
    Ok(Box::new(Update { kind, norm, weights }))
}

impl OptimizerKind {
    /// Returns the optimizer after `steps` steps.
    fn optimizer(&self, steps: i64) -> Optimizer {
        match *self {
            OptimizerKind::Adagrad { epsilon, .. } => Optimizer::Adagrad { epsilon },
            OptimizerKind::Adam { alpha, beta, epsilon, decay } => {
                Optimizer::Adam { alpha, beta, epsilon, decay }
            }
            OptimizerKind::Momentum { alpha, beta, looks_ahead } => {
                // The first gradient counts fully.
                let beta = if steps > 0 { beta } else { 1.0 };
                Optimizer::Momentum { alpha, beta, looks_ahead }
            }
        }
    }

    /// Returns the learning rate after `steps` steps.
    fn rate(&self, rate: f64, steps: i64) -> f64 {
        let count = steps as f64;
        match *self {
            OptimizerKind::Adagrad { decay_factor, .. } => rate / (1.0 + count * decay_factor),
            // Corrects the bias of means that start at 0.
            OptimizerKind::Adam { alpha, beta, .. } if steps > 0 => {
                rate * (1.0 - beta.powf(count)).sqrt() / (1.0 - alpha.powf(count))
            }
            OptimizerKind::Adam { .. } | OptimizerKind::Momentum { .. } => rate,
        }
    }
}

impl Kernel for Update {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (rate, steps) = (widen_input(call, 0)?, call.ints(1)?);
        let (&[rate], &[steps]) = (&rate[..], &steps[..]) else {
            fail!("inputs 0 and 1, the learning rate and the number of steps, must be scalars");
        };
        let optimizer = self.kind.optimizer(steps);
        let step = Step { optimizer, rate: self.kind.rate(rate, steps), norm: self.norm };
        for index in 0..self.weights {
            match call.tensor(self.input(0, index))?.data_type() {
                DataType::Double => self.update::<f64>(call, step, index)?,
                _ => self.update::<f32>(call, step, index)?,
            }
        }
        Ok(())
    }
}

impl Update {
    /// Returns the input with a part of a weight's state: the weight, its gradient, or an optimizer
    /// state.
    fn input(&self, part: usize, index: usize) -> usize {
        FIRST + part * self.weights + index
    }

    /// Updates the weights of one tensor.
    fn update<T: Element + TrainingLoops>(
        &self,
        call: &mut Call<'_>,
        step: Step,
        index: usize,
    ) -> Result<(), KernelError> {
        let (exec, states) = (call.exec, step.optimizer.states());
        let dims = Dims::from(call.tensor(self.input(0, index))?.dims());
        for input in (1..2 + states).map(|part| self.input(part, index)) {
            let other = call.tensor(input)?.dims();
            if other != &dims[..] {
                fail!("input {input} is {other:?}, but its weights are {:?}", &dims[..]);
            }
        }
        let slice = |part: usize| call.slice::<T>(self.input(part, index));
        let (old, gradients, first) = (slice(0)?, slice(1)?, slice(2)?);
        let second = if states > 1 { slice(3)? } else { &[] };
        let outputs = [0, 1, 2].map(|part| part * self.weights + index);
        // The kernel computes all outputs, also those without readers.
        let spare = |part: usize| {
            let is_wanted = part > states || call.has_output(outputs[part]);
            call.scratch::<T>(if is_wanted { 0 } else { old.len() })
        };
        let mut spare = [spare(0)?, spare(1)?, spare(2)?];
        let [for_weights, for_first, for_second] = spare.each_mut();
        let [new, new_first, new_second] = call.output_slices_at::<T, 3>(outputs, &dims)?;
        let weights = Weights {
            old,
            new: new.unwrap_or(for_weights),
            gradients,
            old_states: [first, second],
            new_states: [new_first.unwrap_or(for_first), new_second.unwrap_or(for_second)],
        };
        T::optimizer_step(exec, step, weights)?;
        Ok(())
    }
}
