//! Optimizers by name, with their usual hyperparameters.

use std::fmt;

use super::{Optimizer, OptimizerKind};

/// Error for a hyperparameter that an optimizer does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignNumber {
    /// Optimizer that does not have the hyperparameter.
    pub optimizer: OptimizerName,
    /// Name of the rejected hyperparameter, a field of [`OptimizerNumbers`].
    pub number: &'static str,
    /// Optimizers that have the hyperparameter.
    pub optimizers: &'static [OptimizerName],
}

impl fmt::Display for ForeignNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ForeignNumber { optimizer, number, .. } = self;
        write!(f, "the optimizer {} has no {number}; ", optimizer.name())?;
        let names = self.optimizers.iter().map(|optimizer| optimizer.name());
        let names: Vec<&str> = names.collect();
        match &names[..] {
            [name] => write!(f, "{name} has it"),
            [names @ .., last] => write!(f, "{} and {last} have it", names.join(", ")),
            [] => f.write_str("no optimizer has it"),
        }
    }
}

impl std::error::Error for ForeignNumber {}

/// Name of an optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OptimizerName {
    /// Stochastic gradient descent.
    Sgd,
    /// Stochastic gradient descent with momentum.
    Momentum,
    /// Stochastic gradient descent with Nesterov momentum.
    Nesterov,
    /// Adagrad: divides each step by the root of the sum of squared gradients.
    Adagrad,
    /// Adam: running means of gradients and of their squares.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
}

/// Hyperparameters of an optimizer. `None` stands for the usual value; a hyperparameter that the
/// optimizer does not have must be `None`.
#[derive(Debug, Clone, Copy, Default)]
pub struct OptimizerNumbers {
    /// Default learning rate. Usually 0.01, for Adam and AdamW 0.001.
    pub learning_rate: Option<f64>,
    /// Fraction of the accumulated gradient that each step keeps. Usually 0.9.
    pub momentum: Option<f64>,
    /// Decay of Adam's running mean of gradients. Usually 0.9.
    pub beta1: Option<f64>,
    /// Decay of Adam's running mean of squared gradients. Usually 0.999.
    pub beta2: Option<f64>,
    /// Constant that is added to divisors. Usually 1e-8, for Adagrad 1e-10.
    pub epsilon: Option<f64>,
    /// Decay of Adagrad's learning rate. Usually 0.
    pub rate_decay: Option<f64>,
    /// Fraction of each weight that is added to its gradient. Usually 0, for AdamW 0.01.
    pub weight_decay: Option<f64>,
}

impl OptimizerName {
    /// All optimizers, in the order of the variants.
    pub const ALL: [OptimizerName; 6] = [
        OptimizerName::Sgd,
        OptimizerName::Momentum,
        OptimizerName::Nesterov,
        OptimizerName::Adagrad,
        OptimizerName::Adam,
        OptimizerName::AdamW,
    ];

    /// Returns the name of the optimizer in lower case, such as `adamw`.
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

    /// Returns the optimizer with its usual hyperparameters, as nodes of `ai.onnx`.
    pub fn usual_optimizer(self) -> Optimizer {
        self.make_optimizer(&OptimizerNumbers::default())
    }

    /// Returns the optimizer with the given hyperparameters, as nodes of `ai.onnx`.
    ///
    /// ```
    /// use sardonyx::tool::{OptimizerName, OptimizerNumbers};
    ///
    /// let numbers = OptimizerNumbers { momentum: Some(0.5), ..OptimizerNumbers::default() };
    /// assert!(OptimizerName::Nesterov.to_optimizer(&numbers).is_ok());
    /// assert_eq!(
    ///     OptimizerName::Adam.to_optimizer(&numbers).unwrap_err().to_string(),
    ///     "the optimizer adam has no momentum; momentum and nesterov have it",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// [`ForeignNumber`] for a hyperparameter that the optimizer does not have.
    pub fn to_optimizer(self, numbers: &OptimizerNumbers) -> Result<Optimizer, ForeignNumber> {
        use OptimizerName::{Adagrad, Adam, AdamW, Momentum, Nesterov};
        let given: [(_, Option<f64>, &'static [OptimizerName]); 5] = [
            ("momentum", numbers.momentum, &[Momentum, Nesterov]),
            ("beta1", numbers.beta1, &[Adam, AdamW]),
            ("beta2", numbers.beta2, &[Adam, AdamW]),
            ("epsilon", numbers.epsilon, &[Adagrad, Adam, AdamW]),
            ("rate_decay", numbers.rate_decay, &[Adagrad]),
        ];
        let foreign = given
            .into_iter()
            .find(|(_, number, optimizers)| number.is_some() && !optimizers.contains(&self));
        match foreign {
            Some((number, _, optimizers)) => {
                Err(ForeignNumber { optimizer: self, number, optimizers })
            }
            None => Ok(self.make_optimizer(numbers)),
        }
    }

    /// Makes the optimizer; absent hyperparameters get their usual values.
    fn make_optimizer(self, numbers: &OptimizerNumbers) -> Optimizer {
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
