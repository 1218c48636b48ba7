//! Optimizers by the names that users write, with the numbers that are usual for each.

use std::fmt;

use super::{Optimizer, OptimizerKind};

/// A number that an optimizer does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForeignNumber {
    /// The optimizer.
    pub optimizer: OptimizerName,
    /// The field of [`OptimizerNumbers`].
    pub number: &'static str,
    /// The optimizers that have it.
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

/// Numbers of an optimizer. Those that are left out are the usual ones; those that the optimizer
/// does not have must be left out.
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

    /// The optimizer of that name with its usual numbers, as nodes of `ai.onnx`.
    pub fn usual(self) -> Optimizer {
        self.made(&OptimizerNumbers::default())
    }

    /// The optimizer of that name with these numbers, as nodes of `ai.onnx`.
    ///
    /// ```
    /// use sardonyx::tool::{OptimizerName, OptimizerNumbers};
    ///
    /// let numbers = OptimizerNumbers { momentum: Some(0.5), ..OptimizerNumbers::default() };
    /// assert!(OptimizerName::Nesterov.with(&numbers).is_ok());
    /// assert_eq!(
    ///     OptimizerName::Adam.with(&numbers).unwrap_err().to_string(),
    ///     "the optimizer adam has no momentum; momentum and nesterov have it",
    /// );
    /// ```
    ///
    /// # Errors
    ///
    /// A number that the optimizer does not have.
    pub fn with(self, numbers: &OptimizerNumbers) -> Result<Optimizer, ForeignNumber> {
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
            None => Ok(self.made(numbers)),
        }
    }

    fn made(self, numbers: &OptimizerNumbers) -> Optimizer {
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
