//! Steps of optimizers as nodes.
//!
//! Momentum: Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in
//! deep learning", ICML 2013. Adagrad: Duchi, Hazan, Singer, "Adaptive Subgradient Methods", JMLR
//! 12, 2011. Adam: Kingma, Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, Algorithm
//! 1. AdamW: Loshchilov, Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
//!
//! Float copies of weights of 16 bits in two parts: Kalamkar et al., "Optimizing Deep Learning
//! Recommender Systems Training on CPU Cluster Architectures", SC 2020 (Split-SGD).

use hashbrown::HashMap;
use sardonyx_model::{AttrValue, TensorType, Type, ValueId};
use sardonyx_ops::scalar;
use sardonyx_tensor::{DataType, Tensor, TensorError};

use super::variables::Variable;
use crate::addition::{Addition, TRAINING};
use crate::derivatives::DeriveError;

/// Rule that updates weights by their gradients, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    /// Update rule.
    pub kind: OptimizerKind,
    /// Default of the learning rate, which is an input of the algorithm.
    pub learning_rate: f64,
    /// Multiple of a weight that is added to its gradient. For AdamW this multiple, times the
    /// learning rate, is subtracted from the weight.
    pub weight_decay: f64,
    /// Whether the step is an operator of `ai.onnx.preview.training`, which has Adagrad, Adam and
    /// Momentum, and not nodes of `ai.onnx`. The operator Adam adds epsilon before the correction
    /// of the bias; the nodes add it after that, like Algorithm 1 of the paper.
    pub as_operator: bool,
}

/// Rule that updates a weight w by its gradient g and the learning rate r. The step t counts from
/// the first update.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum OptimizerKind {
    /// Stochastic gradient descent: w ← w − r·g.
    Sgd,
    /// Momentum: v ← m·v + g; w ← w − r·v, or w − r·(g + m·v) with Nesterov's momentum.
    Momentum {
        /// Factor m of the velocity v.
        momentum: f64,
        /// Whether Nesterov's momentum is used.
        nesterov: bool,
    },
    /// Adagrad: h ← h + g²; w ← w − r/(1 + t·d)·g/(√h + ε).
    Adagrad {
        /// Term ε, which avoids a division by 0.
        epsilon: f64,
        /// Decay d of the learning rate.
        decay: f64,
    },
    /// Adam: m ← β₁m + (1−β₁)g; v ← β₂v + (1−β₂)g²; w ← w − r·m̂/(√v̂ + ε), with m̂ = m/(1−β₁ᵗ) and
    /// v̂ = v/(1−β₂ᵗ).
    Adam {
        /// Decay β₁ of the mean of gradients.
        beta1: f64,
        /// Decay β₂ of the mean of squared gradients.
        beta2: f64,
        /// Term ε, which avoids a division by 0.
        epsilon: f64,
        /// Whether weight decay bypasses the gradient (AdamW).
        decoupled: bool,
    },
}

impl OptimizerKind {
    /// Makes Adam with the usual parameters: β₁ = 0.9, β₂ = 0.999, ε = 10⁻⁸, weight decay as part
    /// of the gradient.
    pub fn adam() -> OptimizerKind {
        OptimizerKind::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decoupled: false }
    }
}

impl Optimizer {
    /// Checks that the parameters are in their ranges.
    pub(super) fn check(&self) -> Result<(), String> {
        let Optimizer { kind, learning_rate, weight_decay, as_operator } = self;
        let is_part = |x: f64| (0.0..1.0).contains(&x);
        let fail =
            |what: &str, demand: &str, x: f64| Err(format!("{what} must be {demand}, not {x}"));
        if !(learning_rate.is_finite() && *learning_rate > 0.0) {
            return fail("the learning rate", "greater than 0", *learning_rate);
        }
        if !(weight_decay.is_finite() && *weight_decay >= 0.0) {
            return fail("the weight decay", "at least 0", *weight_decay);
        }
        let epsilon = |epsilon: f64| epsilon.is_finite() && epsilon >= 0.0;
        match *kind {
            OptimizerKind::Momentum { momentum, .. } if !is_part(momentum) => {
                fail("the momentum", "at least 0 and less than 1", momentum)
            }
            OptimizerKind::Adam { beta1, .. } if !is_part(beta1) => {
                fail("beta1", "at least 0 and less than 1", beta1)
            }
            OptimizerKind::Adam { beta2, .. } if !is_part(beta2) => {
                fail("beta2", "at least 0 and less than 1", beta2)
            }
            OptimizerKind::Adam { epsilon: e, .. } | OptimizerKind::Adagrad { epsilon: e, .. }
                if !epsilon(e) =>
            {
                fail("epsilon", "at least 0", e)
            }
            OptimizerKind::Adagrad { decay, .. } if !(decay.is_finite() && decay >= 0.0) => {
                fail("the decay of the learning rate", "at least 0", decay)
            }
            OptimizerKind::Sgd | OptimizerKind::Adam { decoupled: true, .. } if *as_operator => {
                let name = if *kind == OptimizerKind::Sgd { "SGD" } else { "AdamW" };
                Err(format!(
                    "{} has no operator {name}; it has Momentum, Adagrad and Adam",
                    TRAINING.0
                ))
            }
            _ => Ok(()),
        }
    }
}

/// Step that was added.
pub(super) struct Step {
    /// Names of state variables, with their new values.
    pub(super) updates: Vec<(String, ValueId)>,
    /// Name of the input for the learning rate.
    pub(super) learning_rate: String,
    /// Number of variables that have a float copy.
    pub(super) float_copies: usize,
}

/// Adds a step that updates variables by their gradients. Variables of 16 bits have a float copy if
/// `keeps_copies` is true.
pub(super) fn add(
    add: &mut Addition,
    optimizer: &Optimizer,
    keeps_copies: bool,
    variables: &[Variable],
    gradients: &[ValueId],
) -> Result<Step, DeriveError> {
    let all_double = variables.iter().all(|variable| variable.elem == DataType::Double);
    let elem = if all_double { DataType::Double } else { DataType::Float };
    let rate = add.constant("learning_rate", &scalar(elem, optimizer.learning_rate));
    let scalar = TensorType { elem: Some(elem), shape: Some(Default::default()) };
    add.make_default(rate, &Type::Tensor(scalar));
    let learning_rate = add.name(rate);
    let mut nodes = Nodes {
        add,
        optimizer,
        keeps_copies,
        rate: (rate, elem),
        constants: HashMap::new(),
        updates: Vec::new(),
        float_copies: 0,
    };
    if optimizer.as_operator {
        nodes.operator(variables, gradients)?;
    } else {
        nodes.all(variables, gradients)?;
    }
    Ok(Step { updates: nodes.updates, learning_rate, float_copies: nodes.float_copies })
}

/// Decay of a running mean, with the names of its constants.
#[derive(Clone, Copy)]
struct Decay {
    name: &'static str,
    /// Name of the constant 1 - `value`.
    rest_name: &'static str,
    value: f64,
}

struct Nodes<'a> {
    add: &'a mut Addition,
    optimizer: &'a Optimizer,
    keeps_copies: bool,
    rate: (ValueId, DataType),
    /// Scalars that the steps of all variables share, by name and type.
    constants: HashMap<(&'static str, DataType), ValueId>,
    updates: Vec<(String, ValueId)>,
    float_copies: usize,
}

impl Nodes<'_> {
    fn constant(&mut self, name: &'static str, value: f64, elem: DataType) -> ValueId {
        match self.constants.get(&(name, elem)) {
            Some(found) => *found,
            None => {
                let made = self.add.constant(name, &scalar(elem, value));
                self.constants.insert((name, elem), made);
                made
            }
        }
    }

    fn two(&mut self, op: &str, first: ValueId, second: ValueId) -> ValueId {
        self.add.node(op, &[Some(first), Some(second)], &[])
    }

    fn root(&mut self, value: ValueId) -> ValueId {
        self.add.node("Sqrt", &[Some(value)], &[])
    }

    fn cast(&mut self, value: ValueId, from: DataType, to: DataType) -> ValueId {
        self.add.cast(value, from, to)
    }

    /// Adds a state variable of zeros for a variable.
    fn state(
        &mut self,
        variable: &Variable,
        suffix: &str,
        elem: DataType,
    ) -> Result<ValueId, DeriveError> {
        let name = format!("{}_{suffix}", variable.name);
        let zeros = self.add.zeros(&name, elem, &variable.dims);
        zeros.map_err(|error: TensorError| DeriveError::Option(format!("{name}: {error}")))
    }

    /// Sets the value that a state variable has after the step.
    fn update(&mut self, variable: ValueId, value: ValueId) {
        let name = self.add.name(variable);
        self.add.rename(value, &format!("{name}_new"));
        self.updates.push((name, value));
    }

    /// Adds a step counter, and returns its values before and after the step, which is 1 after the
    /// first step.
    fn count(&mut self) -> (ValueId, ValueId) {
        let before = self.add.constant("step", &Tensor::scalar(0i64));
        let one = self.add.constant("one", &Tensor::scalar(1i64));
        let after = self.two("Add", before, one);
        self.update(before, after);
        (before, after)
    }

    /// Returns the learning rate in an element type.
    fn rate_as(&mut self, elem: DataType) -> ValueId {
        let (rate, from) = self.rate;
        self.cast_once("learning rate", rate, from, elem)
    }

    /// Casts a scalar that the steps of all variables share, once for each type.
    fn cast_once(
        &mut self,
        name: &'static str,
        value: ValueId,
        from: DataType,
        to: DataType,
    ) -> ValueId {
        if let Some(found) = self.constants.get(&(name, to)) {
            return *found;
        }
        let made = self.cast(value, from, to);
        self.constants.insert((name, to), made);
        made
    }

    /// Adds the step as nodes of `ai.onnx`.
    fn all(&mut self, variables: &[Variable], gradients: &[ValueId]) -> Result<(), DeriveError> {
        let factors = self.factors();
        for (variable, gradient) in variables.iter().zip(gradients) {
            let is_short = matches!(variable.elem, DataType::Float16 | DataType::Bfloat16);
            // Squares of 16-bit floats overflow, and sums lose too many bits.
            let elem = if is_short { DataType::Float } else { variable.elem };
            let mut weight = self.cast(variable.value, variable.elem, elem);
            let remainder = if is_short && self.keeps_copies {
                let remainder = self.state(variable, "remainder", elem)?;
                weight = self.two("Add", weight, remainder);
                Some(remainder)
            } else {
                None
            };
            let gradient = self.cast(*gradient, variable.elem, elem);
            let moved = self.add_update(variable, weight, gradient, elem, factors)?;
            let rounded = self.cast(moved, elem, variable.elem);
            self.update(variable.value, rounded);
            if let Some(remainder) = remainder {
                // The difference is exact, so that the sum of both is the updated weight.
                let rounded = self.cast(rounded, variable.elem, elem);
                let left = self.two("Sub", moved, rounded);
                self.update(remainder, left);
                self.float_copies += 1;
            }
        }
        Ok(())
    }

    /// Adds factors that depend on the number of the step, in double: the learning rate with all
    /// corrections, and for Adam √(1−β₂ᵗ). `None` for rules without such factors.
    fn factors(&mut self) -> Option<(ValueId, ValueId)> {
        let double = DataType::Double;
        match self.optimizer.kind {
            OptimizerKind::Sgd | OptimizerKind::Momentum { .. } => None,
            OptimizerKind::Adagrad { decay, .. } => {
                let rate = self.rate_as(double);
                let (before, _) = self.count();
                let before = self.cast(before, DataType::Int64, double);
                let decay = self.constant("rate_decay", decay, double);
                let one = self.constant("one", 1.0, double);
                let product = self.two("Mul", before, decay);
                let divisor = self.two("Add", product, one);
                let rate = self.two("Div", rate, divisor);
                Some((rate, rate))
            }
            OptimizerKind::Adam { beta1, beta2, .. } => {
                let rate = self.rate_as(double);
                let (_, step) = self.count();
                let step = self.cast(step, DataType::Int64, double);
                let one = self.constant("one", 1.0, double);
                let mut correction = |name, beta| {
                    let beta = self.constant(name, beta, double);
                    let power = self.two("Pow", beta, step);
                    self.two("Sub", one, power)
                };
                let (first, second) = (correction("beta1", beta1), correction("beta2", beta2));
                let rate = self.two("Div", rate, first);
                Some((rate, self.root(second)))
            }
        }
    }

    /// Adds the update of a weight and of its state variables, and returns the new weight.
    fn add_update(
        &mut self,
        variable: &Variable,
        mut weight: ValueId,
        mut gradient: ValueId,
        elem: DataType,
        factors: Option<(ValueId, ValueId)>,
    ) -> Result<ValueId, DeriveError> {
        let Optimizer { kind, weight_decay, .. } = *self.optimizer;
        let is_decoupled = matches!(kind, OptimizerKind::Adam { decoupled: true, .. });
        if weight_decay > 0.0 && is_decoupled {
            let rate = self.rate_as(elem);
            let decay = self.constant("weight_decay", weight_decay, elem);
            let part = self.two("Mul", rate, decay);
            let lost = self.two("Mul", weight, part);
            weight = self.two("Sub", weight, lost);
        } else if weight_decay > 0.0 {
            let decay = self.constant("weight_decay", weight_decay, elem);
            let pull = self.two("Mul", weight, decay);
            gradient = self.two("Add", gradient, pull);
        }
        let by = match kind {
            OptimizerKind::Sgd => gradient,
            OptimizerKind::Momentum { momentum, nesterov } => {
                let state = self.state(variable, "momentum", elem)?;
                let momentum = self.constant("momentum", momentum, elem);
                let kept = self.two("Mul", state, momentum);
                let sum = self.two("Add", kept, gradient);
                self.update(state, sum);
                if nesterov {
                    let next = self.two("Mul", sum, momentum);
                    self.two("Add", gradient, next)
                } else {
                    sum
                }
            }
            OptimizerKind::Adagrad { epsilon, .. } => {
                let state = self.state(variable, "squares", elem)?;
                let square = self.two("Mul", gradient, gradient);
                let sum = self.two("Add", state, square);
                self.update(state, sum);
                let root = self.root(sum);
                let epsilon = self.constant("epsilon", epsilon, elem);
                let divisor = self.two("Add", root, epsilon);
                self.two("Div", gradient, divisor)
            }
            OptimizerKind::Adam { beta1, beta2, epsilon, .. } => {
                let decay = Decay { name: "beta1", rest_name: "one_minus_beta1", value: beta1 };
                let mean = self.mean(variable, "mean", gradient, decay, elem)?;
                let square = self.two("Mul", gradient, gradient);
                let decay = Decay { name: "beta2", rest_name: "one_minus_beta2", value: beta2 };
                let squares = self.mean(variable, "squares", square, decay, elem)?;
                let (_, root) = factors.expect("Adam has factors");
                let root = self.cast_once("root of correction", root, DataType::Double, elem);
                let deviation = self.root(squares);
                let deviation = self.two("Div", deviation, root);
                let epsilon = self.constant("epsilon", epsilon, elem);
                let divisor = self.two("Add", deviation, epsilon);
                self.two("Div", mean, divisor)
            }
        };
        let rate = match factors {
            Some((rate, _)) => self.cast_once("corrected rate", rate, DataType::Double, elem),
            None => self.rate_as(elem),
        };
        let by = self.two("Mul", by, rate);
        Ok(self.two("Sub", weight, by))
    }

    /// Adds a running mean, which is a state variable, and returns its new value.
    fn mean(
        &mut self,
        variable: &Variable,
        suffix: &str,
        value: ValueId,
        decay: Decay,
        elem: DataType,
    ) -> Result<ValueId, DeriveError> {
        let state = self.state(variable, suffix, elem)?;
        let beta = self.constant(decay.name, decay.value, elem);
        let rest = self.constant(decay.rest_name, 1.0 - decay.value, elem);
        let kept = self.two("Mul", state, beta);
        let added = self.two("Mul", value, rest);
        let mean = self.two("Add", kept, added);
        self.update(state, mean);
        Ok(mean)
    }

    /// Adds the step as an operator of `ai.onnx.preview.training`.
    fn operator(
        &mut self,
        variables: &[Variable],
        gradients: &[ValueId],
    ) -> Result<(), DeriveError> {
        let other = variables
            .iter()
            .find(|variable| !matches!(variable.elem, DataType::Float | DataType::Double));
        if let Some(Variable { name, elem, .. }) = other {
            let message = format!(
                "the operators of {} support float and double; '{name}' has type {elem}",
                TRAINING.0
            );
            return Err(DeriveError::Option(message));
        }
        let decay = ("norm_coefficient", AttrValue::Float(self.optimizer.weight_decay as f32));
        let float = |value: f64| AttrValue::Float(value as f32);
        let (name, suffixes, attributes): (_, &[&str], _) = match self.optimizer.kind {
            OptimizerKind::Momentum { momentum, nesterov } => {
                let mode: &[u8] = if nesterov { b"nesterov" } else { b"standard" };
                let mode = AttrValue::String(mode.into());
                let attributes =
                    vec![("alpha", float(momentum)), ("beta", float(1.0)), ("mode", mode), decay];
                ("Momentum", &["momentum"], attributes)
            }
            OptimizerKind::Adagrad { epsilon, decay: of_rate } => {
                let of_rate = ("decay_factor", float(of_rate));
                ("Adagrad", &["squares"], vec![of_rate, ("epsilon", float(epsilon)), decay])
            }
            OptimizerKind::Adam { beta1, beta2, epsilon, .. } => {
                let betas = [("alpha", float(beta1)), ("beta", float(beta2))];
                let mut attributes = betas.to_vec();
                attributes.extend([("epsilon", float(epsilon)), decay]);
                ("Adam", &["mean", "squares"], attributes)
            }
            // `check` has refused this.
            OptimizerKind::Sgd => return Ok(()),
        };
        let (before, after) = self.count();
        // The operator Adam skips the bias correction in step 0, so that it gets the count from 1.
        let step = if name == "Adam" { after } else { before };
        let (rate, _) = self.rate;
        let mut inputs = vec![Some(rate), Some(step)];
        inputs.extend(variables.iter().map(|variable| Some(variable.value)));
        inputs.extend(gradients.iter().copied().map(Some));
        let mut changed: Vec<ValueId> = variables.iter().map(|variable| variable.value).collect();
        for suffix in suffixes {
            for variable in variables {
                let state = self.state(variable, suffix, variable.elem)?;
                changed.push(state);
                inputs.push(Some(state));
            }
        }
        let outputs =
            self.add.node_of(TRAINING.0, TRAINING.1, name, &inputs, changed.len(), &attributes);
        for (variable, value) in changed.into_iter().zip(outputs) {
            self.update(variable, value);
        }
        Ok(())
    }
}
