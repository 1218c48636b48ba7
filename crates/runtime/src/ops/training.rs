//! Steps of optimizers: `Adagrad`, `Adam` and `Momentum`.

use sardonyx_kernels::optimizer::Optimizer;
use sardonyx_tensor::{CastOptions, DataType, Dims, cast_slices};

use super::nn::batch_normalization::wide;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Inputs before the weights: the learning rate and the number of steps so far.
const FIRST: usize = 2;

struct Step {
    kind: Kind,
    /// By how much of a weight its gradient grows.
    norm: f64,
    /// How many tensors of weights there are.
    weights: usize,
}

/// An optimizer, but for what depends on the number of steps.
enum Kind {
    Adagrad { epsilon: f64, decay_factor: f64 },
    Adam { alpha: f64, beta: f64, epsilon: f64, decay: f64 },
    Momentum { alpha: f64, beta: f64, looks_ahead: bool },
}

/// `Adagrad`
pub(crate) fn bind_adagrad(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let float = |name, default| f64::from(site.float(name).unwrap_or(default));
    let kind =
        Kind::Adagrad { epsilon: float("epsilon", 1e-6), decay_factor: float("decay_factor", 0.0) };
    bind(site, kind)
}

/// `Adam`
pub(crate) fn bind_adam(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let float = |name, default| f64::from(site.float(name).unwrap_or(default));
    let kind = Kind::Adam {
        alpha: float("alpha", 0.9),
        beta: float("beta", 0.999),
        epsilon: float("epsilon", 1e-6),
        decay: float("norm_coefficient_post", 0.0),
    };
    bind(site, kind)
}

/// `Momentum`
pub(crate) fn bind_momentum(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let float = |name| f64::from(site.float(name).unwrap_or(0.0));
    let looks_ahead = site.named("mode", &[("standard", false), ("nesterov", true)])?;
    bind(site, Kind::Momentum { alpha: float("alpha"), beta: float("beta"), looks_ahead })
}

fn bind(site: &Site<'_>, kind: Kind) -> Result<Box<dyn Kernel>, BindError> {
    let norm = f64::from(site.float("norm_coefficient").unwrap_or(0.0));
    let given = site.inputs.len().saturating_sub(FIRST);
    let weights = given / (2 + kind.optimizer(0).states());
    Ok(Box::new(Step { kind, norm, weights }))
}

impl Kind {
    /// The optimizer after that many steps.
    fn optimizer(&self, steps: i64) -> Optimizer {
        match *self {
            Kind::Adagrad { epsilon, .. } => Optimizer::Adagrad { epsilon },
            Kind::Adam { alpha, beta, epsilon, decay } => {
                Optimizer::Adam { alpha, beta, epsilon, decay }
            }
            Kind::Momentum { alpha, beta, looks_ahead } => {
                // The first gradient counts in full.
                let beta = if steps > 0 { beta } else { 1.0 };
                Optimizer::Momentum { alpha, beta, looks_ahead }
            }
        }
    }

    /// The learning rate after that many steps.
    fn rate(&self, rate: f64, steps: i64) -> f64 {
        let count = steps as f64;
        match *self {
            Kind::Adagrad { decay_factor, .. } => rate / (1.0 + count * decay_factor),
            // Means that begin at 0 are too small at first.
            Kind::Adam { alpha, beta, .. } if steps > 0 => {
                rate * (1.0 - beta.powf(count)).sqrt() / (1.0 - alpha.powf(count))
            }
            Kind::Adam { .. } | Kind::Momentum { .. } => rate,
        }
    }
}

impl Kernel for Step {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (rate, steps) = (wide(call, 0)?, call.ints(1)?);
        let (&[rate], &[steps]) = (&rate[..], &steps[..]) else {
            fail!("inputs 0 and 1, the learning rate and the number of steps, must be scalars");
        };
        let optimizer = self.kind.optimizer(steps);
        let (rate, states) = (self.kind.rate(rate, steps), optimizer.states());
        for index in 0..self.weights {
            let input = |part: usize| FIRST + part * self.weights + index;
            let dims = Dims::from(call.tensor(input(0))?.dims());
            for part in 1..2 + states {
                let other = call.tensor(input(part))?.dims();
                if other != &dims[..] {
                    fail!(
                        "input {} is {other:?}, but its weights are {:?}",
                        input(part),
                        &dims[..]
                    );
                }
            }
            let (mut x, g) = (wide(call, input(0))?, wide(call, input(1))?);
            let mut first = wide(call, input(2))?;
            let mut second = if states > 1 { wide(call, input(3))? } else { call.scratch(0)? };
            optimizer.step(rate, self.norm, &mut x, &g, [&mut first, &mut second]);
            for (part, values) in [&x, &first, &second].into_iter().enumerate().take(1 + states) {
                let output = part * self.weights + index;
                // After the weights and the gradients come the states.
                let of = if part == 0 { input(0) } else { input(1 + part) };
                write(call, output, of, &dims, values)?;
            }
        }
        Ok(())
    }
}

/// Writes an output in the type of an input.
fn write(
    call: &mut Call<'_>,
    output: usize,
    input: usize,
    dims: &[usize],
    values: &[f64],
) -> Result<(), KernelError> {
    if !call.has_output(output) {
        return Ok(());
    }
    let elem = call.tensor(input)?.data_type();
    let mut target = call.output(output, elem, dims)?;
    let (bytes, options) = (bytemuck::cast_slice(values), CastOptions::default());
    cast_slices(DataType::Double, bytes, elem, target.bytes_mut(), values.len(), options)?;
    Ok(())
}
