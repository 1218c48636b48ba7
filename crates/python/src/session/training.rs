//! Training and gradients for models that have none. The package says which options there are and
//! what they are by default, and gives them as a dict.

use pyo3::prelude::*;
use sardonyx::Model;
use sardonyx::edit::EditError;
use sardonyx::tool::{Optimizer, OptimizerName, OptimizerNumbers};
use sardonyx::train::{Clipping, GradientOptions, Initialization, Loss, TrainingOptions};

use super::errors::{Wrong, raised, wrong_argument};
use super::opened::{as_given, class_of, opened};

/// The options of `sardonyx.add_training`.
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
    train: Option<Vec<String>>,
    freeze: Vec<String>,
    init: String,
    training_mode: bool,
    gradient_nodes: bool,
    float_copies: bool,
}

/// The options of `sardonyx.differentiate`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GradientArguments {
    of: Option<String>,
    by: Option<Vec<String>>,
    gradient_node: bool,
    expand: bool,
}

/// The losses that have a name.
const LOSSES: [&str; 2] = ["cross-entropy", "squared-error"];

/// A model with a loss, gradients and an optimizer.
#[pyfunction]
#[pyo3(signature = (model, arguments, /))]
pub(crate) fn add_training<'py>(
    model: &Bound<'py, PyAny>,
    arguments: TrainingArguments,
) -> PyResult<Bound<'py, PyAny>> {
    let options = arguments.options().map_err(|wrong| wrong.raised(model.py()))?;
    changed(model, |model| Ok(model.add_training(&options)?.0))
}

/// A model with gradients as outputs, or with the nodes that its Gradient nodes mean.
#[pyfunction]
#[pyo3(signature = (model, arguments, /))]
pub(crate) fn differentiate<'py>(
    model: &Bound<'py, PyAny>,
    arguments: GradientArguments,
) -> PyResult<Bound<'py, PyAny>> {
    let GradientArguments { of, by, gradient_node, expand } = arguments;
    if expand {
        if of.is_some() || by.is_some() || gradient_node {
            let wrong = Wrong::from("expand goes with none of of, by and gradient_node");
            return Err(wrong.raised(model.py()));
        }
        return changed(model, |model| Ok(model.expand_gradients()?.0));
    }
    let mut options = GradientOptions::new().gradient_node(gradient_node);
    if let Some(of) = &of {
        options = options.of(of);
    }
    if let Some(by) = by {
        options = options.by(by);
    }
    changed(model, |model| Ok(model.add_gradients(&options)?.0))
}

/// What becomes of a model, as what was given: an object of the same class, or bytes.
fn changed<'py>(
    given: &Bound<'py, PyAny>,
    change: impl FnOnce(&Model) -> Result<Model, EditError> + Send,
) -> PyResult<Bound<'py, PyAny>> {
    let py = given.py();
    let class = class_of(given)?;
    let (model, source) = opened(given)?;
    let model = py.detach(|| change(&model)).map_err(|refusal| match refusal {
        EditError::Option(what) => wrong_argument(py, what, None),
        refusal => raised(py, &refusal.into()),
    })?;
    as_given(py, model, &source, class.as_ref())
}

impl TrainingArguments {
    fn options(self) -> Result<TrainingOptions, Wrong> {
        let init = self.init.parse::<Initialization>();
        let init = init.map_err(|what| format!("init is '{}', which is {what}", self.init))?;
        let mut options = TrainingOptions::new(self.loss()?)
            .with_optimizer(self.optimizer()?)
            .frozen(self.freeze)
            .initialization(init)
            .training_mode(self.training_mode)
            .gradient_nodes(self.gradient_nodes)
            .float_copies(self.float_copies);
        match (self.clip_norm, self.clip_value) {
            (Some(_), Some(_)) => return Err("clip_norm and clip_value are both given".into()),
            (Some(norm), None) => options = options.clipping(Clipping::Norm(norm)),
            (None, Some(value)) => options = options.clipping(Clipping::Value(value)),
            (None, None) => {}
        }
        Ok(match self.train {
            Some(patterns) => options.variables(patterns),
            None => options,
        })
    }

    fn loss(&self) -> Result<Loss, Wrong> {
        let output = self.of.clone();
        let of_classes = self.class_axis.is_some() || self.ignore_class.is_some();
        match (self.loss.as_deref(), &self.loss_value) {
            (None, Some(_)) if output.is_some() || of_classes => {
                Err("loss_value goes with none of of, class_axis and ignore_class".into())
            }
            (None, Some(value)) => Ok(Loss::Value(value.clone())),
            (Some("cross-entropy"), None) => {
                Ok(Loss::CrossEntropy { output, axis: self.class_axis, ignored: self.ignore_class })
            }
            (Some("squared-error"), None) if of_classes => {
                Err("class_axis and ignore_class are for the loss cross-entropy".into())
            }
            (Some("squared-error"), None) => Ok(Loss::SquaredError { output }),
            (Some(other), None) => Err(Wrong::unknown("loss", other, &LOSSES)),
            (Some(_), Some(_)) => Err("loss and loss_value are both given".into()),
            (None, None) => Err(Wrong {
                what: "neither loss nor loss_value is given".to_string(),
                help: Some(format!("give a loss: {}", LOSSES.join(", "))),
            }),
        }
    }

    fn optimizer(&self) -> Result<Optimizer, Wrong> {
        let mut names = OptimizerName::ALL.into_iter();
        let Some(name) = names.find(|name| name.name() == self.optimizer) else {
            let names = OptimizerName::ALL.map(OptimizerName::name);
            return Err(Wrong::unknown("optimizer", &self.optimizer, &names));
        };
        let optimizer = name.with(&OptimizerNumbers {
            learning_rate: self.learning_rate,
            momentum: self.momentum,
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            rate_decay: self.rate_decay,
            weight_decay: self.weight_decay,
        });
        let optimizer = optimizer.map_err(|foreign| Wrong {
            what: foreign.to_string(),
            help: Some(format!("leave out {}", foreign.number)),
        })?;
        Ok(Optimizer { as_operator: self.optimizer_operator, ..optimizer })
    }
}
