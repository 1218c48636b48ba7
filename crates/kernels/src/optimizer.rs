//! Steps of optimizers: what becomes of weights, given their gradients and what was kept of the
//! gradients before. Each element is computed in double precision.
//!
//! Adagrad: Duchi, Hazan, Singer, "Adaptive Subgradient Methods", JMLR 12, 2011. Adam: Kingma, Ba,
//! "Adam: A Method for Stochastic Optimization", 2015. Momentum: Sutskever, Martens, Dahl, Hinton,
//! "On the importance of initialization and momentum in deep learning", 2013.

/// How weights move.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    /// By the gradient over the root of the sum of its squares.
    Adagrad {
        /// Added to the root.
        epsilon: f64,
    },
    /// By a running mean of the gradient over the root of one of its squares.
    Adam {
        /// The part of the mean that stays.
        alpha: f64,
        /// The part of the mean of squares that stays.
        beta: f64,
        /// Added to the root.
        epsilon: f64,
        /// The part that weights lose at the end.
        decay: f64,
    },
    /// By a sum of gradients that fades.
    Momentum {
        /// The part of the sum that stays.
        alpha: f64,
        /// The part of the gradient that is added.
        beta: f64,
        /// Whether weights move by what the sum will be after the next step (Nesterov).
        looks_ahead: bool,
    },
}

impl Optimizer {
    /// How many values are kept for each weight.
    pub fn states(self) -> usize {
        match self {
            Optimizer::Adagrad { .. } | Optimizer::Momentum { .. } => 1,
            Optimizer::Adam { .. } => 2,
        }
    }

    /// Moves weights and changes what is kept. `norm` times the weight is added to each gradient.
    /// Optimizers with one state leave the second alone.
    ///
    /// # Panics
    ///
    /// If gradients or states that are needed are fewer than the weights.
    pub fn step(
        self,
        rate: f64,
        norm: f64,
        weights: &mut [f64],
        gradients: &[f64],
        states: [&mut [f64]; 2],
    ) {
        let [first, second] = states;
        assert!(gradients.len() >= weights.len() && first.len() >= weights.len());
        for (index, x) in weights.iter_mut().enumerate() {
            let g = norm * *x + gradients[index];
            let kept = &mut first[index];
            match self {
                Optimizer::Adagrad { epsilon } => {
                    *kept += g * g;
                    *x -= rate * g / (kept.sqrt() + epsilon);
                }
                Optimizer::Adam { alpha, beta, epsilon, decay } => {
                    let squares = &mut second[index];
                    *kept = alpha * *kept + (1.0 - alpha) * g;
                    *squares = beta * *squares + (1.0 - beta) * (g * g);
                    let moved = *x - rate * (*kept / (squares.sqrt() + epsilon));
                    *x = (1.0 - decay) * moved;
                }
                Optimizer::Momentum { alpha, beta, looks_ahead } => {
                    *kept = alpha * *kept + beta * g;
                    let by = if looks_ahead { g + alpha * *kept } else { *kept };
                    *x -= rate * by;
                }
            }
        }
    }
}
