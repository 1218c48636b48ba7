//! Python functions `sardonyx.add_training` and `sardonyx.differentiate`: add a loss, gradients and
//! an optimizer to a model. The Python package declares the options with their defaults and passes
//! them as a dict.

use pyo3::prelude::*;
use sardonyx::Model;
use sardonyx::edit::EditError;
use sardonyx::tool::{Optimizer, OptimizerName, OptimizerNumbers};
use sardonyx::train::{Clipping, GradientOptions, Initialization, Loss, TrainingOptions};

use super::errors::{ArgumentProblem, argument_error, to_exception};
use super::opened::{find_parser, open_model, to_argument_form};
use crate::items::Items;

/// Arguments of `sardonyx.add_training`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct TrainingArguments {
    loss: Option<String>,
    loss_value: Option<String>,
    of: Option<String>,
    class_axis: Option<i64>,
    ignore_class: Option<i64>,
    optimizer: String,
    learning_rate: Option<f64>,
    momentum: Option<f64>,
    beta1: Option<f64>,
    beta2: Option<f64>,
    epsilon: Option<f64>,
    rate_decay: Option<f64>,
    weight_decay: Option<f64>,
    clip_norm: Option<f64>,
    clip_value: Option<f64>,
    optimizer_operator: bool,
    train: Option<Items<String>>,
    freeze: Items<String>,
    init: String,
    training_mode: bool,
    gradient_nodes: bool,
    float_copies: bool,
}

/// Arguments of `sardonyx.differentiate`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GradientArguments {
    of: Option<String>,
    by: Option<Items<String>>,
    gradient_node: bool,
    expand: bool,
}

/// Names of the built-in losses.
const LOSSES: [&str; 2] = ["cross-entropy", "squared-error"];

/// Returns the model with a loss, gradients and an optimizer, as an object of the same class or as
/// bytes.
#[pyfunction]
#[pyo3(signature = (model, arguments, /))]
pub(crate) fn add_training<'py>(
    model: &Bound<'py, PyAny>,
    arguments: TrainingArguments,
) -> PyResult<Bound<'py, PyAny>> {
    let options = arguments.into_options().map_err(|wrong| wrong.into_exception(model.py()))?;
    change_model(model, |model| Ok(model.add_training(&options)?.0))
}

/// Returns the model with gradients as additional outputs; with `expand`, the model whose Gradient
/// nodes are replaced by the nodes that compute them.
#[pyfunction]
#[pyo3(signature = (model, arguments, /))]
pub(crate) fn differentiate<'py>(
    model: &Bound<'py, PyAny>,
    arguments: GradientArguments,
) -> PyResult<Bound<'py, PyAny>> {
    let GradientArguments { of, by, gradient_node, expand } = arguments;
    if expand {
        if of.is_some() || by.is_some() || gradient_node {
            let wrong = ArgumentProblem::from("expand excludes of, by and gradient_node");
            return Err(wrong.into_exception(model.py()));
        }
        return change_model(model, |model| Ok(model.expand_gradients()?.0));
    }
    let mut options = GradientOptions::new().gradient_node(gradient_node);
    if let Some(of) = &of {
        options = options.differentiate(of);
    }
    if let Some(by) = by {
        options = options.with_respect_to(by.0);
    }
    change_model(model, |model| Ok(model.add_gradients(&options)?.0))
}

/// Applies `change` to a model and returns the result in the form of the argument: an object of the
/// same class, or bytes.
pub(super) fn change_model<'py>(
    given: &Bound<'py, PyAny>,
    change: impl FnOnce(&Model) -> Result<Model, EditError> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    let class = find_parser(given)?;
    let (model, source) = open_model(given)?;
    let model = py.detach(|| change(&model)).map_err(|refusal| match refusal {
        EditError::Option(what) => argument_error(py, what, None),
        refusal => to_exception(py, &refusal.into()),
    })?;
    to_argument_form(py, model, &source, class.as_ref())
}

impl TrainingArguments {
    /// Converts the arguments to training options.
    ///
    /// # Errors
    ///
    /// Arguments that exclude each other, or an unknown name.
    fn into_options(self) -> Result<TrainingOptions, ArgumentProblem> {
        let init = self.init.parse::<Initialization>();
        let init = init.map_err(|what| format!("init is '{}', which is {what}", self.init))?;
        let mut options = TrainingOptions::new(self.to_loss()?)
            .with_optimizer(self.to_optimizer()?)
            .freeze(self.freeze.0)
            .initialization(init)
            .training_mode(self.training_mode)
            .gradient_nodes(self.gradient_nodes)
            .float_copies(self.float_copies);
        match (self.clip_norm, self.clip_value) {
            (Some(_), Some(_)) => return Err("clip_norm and clip_value exclude each other".into()),
            (Some(norm), None) => options = options.clipping(Clipping::Norm(norm)),
            (None, Some(value)) => options = options.clipping(Clipping::Value(value)),
            (None, None) => {}
        }
        Ok(match self.train {
            Some(patterns) => options.variables(patterns.0),
            None => options,
        })
    }

    /// Converts the arguments `loss`, `loss_value`, `of`, `class_axis` and `ignore_class` to a
    /// loss.
    ///
    /// # Errors
    ///
    /// No loss, two losses, an unknown loss, or arguments of another loss.
    fn to_loss(&self) -> Result<Loss, ArgumentProblem> {
        let output = self.of.clone();
        let of_classes = self.class_axis.is_some() || self.ignore_class.is_some();
        match (self.loss.as_deref(), &self.loss_value) {
            (None, Some(_)) if output.is_some() || of_classes => {
                Err("loss_value excludes of, class_axis and ignore_class".into())
            }
            (None, Some(value)) => Ok(Loss::Value(value.clone())),
            (Some("cross-entropy"), None) => {
                Ok(Loss::CrossEntropy { output, axis: self.class_axis, ignored: self.ignore_class })
            }
            (Some("squared-error"), None) if of_classes => {
                Err("class_axis and ignore_class are for the loss cross-entropy".into())
            }
            (Some("squared-error"), None) => Ok(Loss::SquaredError { output }),
            (Some(other), None) => Err(ArgumentProblem::unknown_value("loss", other, &LOSSES)),
            (Some(_), Some(_)) => Err("loss and loss_value exclude each other".into()),
            (None, None) => Err(ArgumentProblem {
                what: "neither loss nor loss_value is given".to_string(),
                help: Some(format!("give a loss: {}", LOSSES.join(", "))),
            }),
        }
    }

    /// Converts the arguments `optimizer`, `learning_rate`, `momentum` and so on to an optimizer.
    ///
    /// # Errors
    ///
    /// An unknown optimizer, or a number that the optimizer does not have.
    fn to_optimizer(&self) -> Result<Optimizer, ArgumentProblem> {
        let mut names = OptimizerName::ALL.into_iter();
        let Some(name) = names.find(|name| name.name() == self.optimizer) else {
            let names = OptimizerName::ALL.map(OptimizerName::name);
            return Err(ArgumentProblem::unknown_value("optimizer", &self.optimizer, &names));
        };
        let optimizer = name.to_optimizer(&OptimizerNumbers {
            learning_rate: self.learning_rate,
            momentum: self.momentum,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            rate_decay: self.rate_decay,
            weight_decay: self.weight_decay,
        });
        let optimizer = optimizer.map_err(|foreign| ArgumentProblem {
            what: foreign.to_string(),
            help: Some(format!("leave out {}", foreign.number)),
        })?;
        Ok(Optimizer { as_operator: self.optimizer_operator, ..optimizer })
    }
}
