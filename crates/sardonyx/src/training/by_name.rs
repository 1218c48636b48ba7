//! Optimizers by the names that users write, with the numbers that are usual for each.

use super::{Optimizer, OptimizerKind};

/// An optimizer by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptimizerName {
    /// Gradient descent.
    Sgd,
    /// Gradient descent with momentum.
    Momentum,
    /// Gradient descent with Nesterov's momentum.
    Nesterov,
    /// Steps over the root of the sum of squared gradients.
    Adagrad,
    /// Running means of gradients and of their squares.
    Adam,
    /// Adam with weight decay apart from the gradient.
    AdamW,
}

/// Numbers of an optimizer. Those that are left out are the usual ones. An optimizer does not look
/// at numbers that it does not have.
#[derive(Debug, Clone, Copy, Default)]
pub struct OptimizerNumbers {
    /// The default of the learning rate: 0.01, and 0.001 for Adam and AdamW.
    pub learning_rate: Option<f64>,
    /// The part of the sum of gradients that stays: 0.9.
    pub momentum: Option<f64>,
    /// The part of the mean of gradients that Adam keeps: 0.9.
    pub beta1: Option<f64>,
    /// The part of the mean of squared gradients that Adam keeps: 0.999.
    pub beta2: Option<f64>,
    /// Added to divisors: 1e-8, and 1e-10 for Adagrad.
    pub epsilon: Option<f64>,
    /// The decay of the learning rate of Adagrad: 0.
    pub rate_decay: Option<f64>,
    /// The part of each weight that is added to its gradient: 0, and 0.01 for AdamW.
    pub weight_decay: Option<f64>,
}

impl OptimizerName {
    /// All names.
    pub const ALL: [OptimizerName; 6] = [
        OptimizerName::Sgd,
        OptimizerName::Momentum,
        OptimizerName::Nesterov,
        OptimizerName::Adagrad,
        OptimizerName::Adam,
        OptimizerName::AdamW,
    ];

    /// The name as users write it, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            OptimizerName::Sgd => "sgd",
            OptimizerName::Momentum => "momentum",
            OptimizerName::Nesterov => "nesterov",
            OptimizerName::Adagrad => "adagrad",
            OptimizerName::Adam => "adam",
            OptimizerName::AdamW => "adamw",
        }
    }

    /// The optimizer of that name with these numbers, as nodes of `ai.onnx`.
    pub fn with(self, numbers: &OptimizerNumbers) -> Optimizer {
        let momentum = numbers.momentum.unwrap_or(0.9);
        let adam = |decoupled| OptimizerKind::Adam {
            beta1: numbers.beta1.unwrap_or(0.9),
            beta2: numbers.beta2.unwrap_or(0.999),
            epsilon: numbers.epsilon.unwrap_or(1e-8),
            decoupled,
        };
        let (kind, learning_rate, weight_decay) = match self {
            OptimizerName::Sgd => (OptimizerKind::Sgd, 0.01, 0.0),
            OptimizerName::Momentum => {
                (OptimizerKind::Momentum { momentum, nesterov: false }, 0.01, 0.0)
            }
            OptimizerName::Nesterov => {
                (OptimizerKind::Momentum { momentum, nesterov: true }, 0.01, 0.0)
            }
            OptimizerName::Adagrad => {
                let epsilon = numbers.epsilon.unwrap_or(1e-10);
                let decay = numbers.rate_decay.unwrap_or(0.0);
                (OptimizerKind::Adagrad { epsilon, decay }, 0.01, 0.0)
            }
            OptimizerName::Adam => (adam(false), 0.001, 0.0),
            OptimizerName::AdamW => (adam(true), 0.001, 0.01),
        };
        Optimizer {
            kind,
            learning_rate: numbers.learning_rate.unwrap_or(learning_rate),
            weight_decay: numbers.weight_decay.unwrap_or(weight_decay),
            as_operator: false,
        }
    }
}
