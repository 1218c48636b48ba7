//! Adds training information and gradients to models.

mod by_name;

use sardonyx_model::ExternalData;
use sardonyx_ops::Registry;
use sardonyx_passes as passes;
use sardonyx_proto::suggest::hint;

use crate::edit_error::EditError;
use crate::glob::Glob;
use crate::model::Model;

pub use by_name::{OptimizerName, OptimizerNumbers};
use sardonyx_passes::{
    Clipping, GradientReport, Initialization, Loss, Optimizer, OptimizerKind, TrainingReport,
};

/// Options for adding training information; see [`Model::add_training`].
#[derive(Debug, Clone)]
pub struct TrainingOptions {
    loss: Loss,
    optimizer: Optimizer,
    clipping: Option<Clipping>,
    variables: Option<Vec<String>>,
    frozen: Vec<String>,
    initialization: Initialization,
    training_mode: bool,
    gradient_nodes: bool,
    float_copies: bool,
}

impl TrainingOptions {
    /// Makes options that minimize a loss by stochastic gradient descent with the learning rate
    /// 0.01.
    pub fn new(loss: Loss) -> TrainingOptions {
        let optimizer = OptimizerName::Sgd.usual_optimizer();
        TrainingOptions {
            loss,
            optimizer,
            clipping: None,
            variables: None,
            frozen: Vec::new(),
            initialization: Initialization::Keep,
            training_mode: false,
            gradient_nodes: false,
            float_copies: true,
        }
    }

    /// Sets the optimizer and its default learning rate. The learning rate is an input of each
    /// training step.
    #[must_use]
    pub fn optimizer(mut self, kind: OptimizerKind, learning_rate: f64) -> TrainingOptions {
        self.optimizer.kind = kind;
        self.optimizer.learning_rate = learning_rate;
        self
    }

    /// Sets the optimizer with all its hyperparameters.
    #[must_use]
    #[doc(hidden)]
    pub fn with_optimizer(mut self, optimizer: Optimizer) -> TrainingOptions {
        self.optimizer = optimizer;
        self
    }

    /// Sets gradient clipping, which comes before weight decay and the optimizer. By default
    /// gradients are not clipped.
    #[must_use]
    pub fn clipping(mut self, clipping: Clipping) -> TrainingOptions {
        self.clipping = Some(clipping);
        self
    }

    /// Sets the weight decay: the fraction of each weight that is added to its gradient. For AdamW,
    /// the fraction that is subtracted from the weight, times the learning rate. The default is 0.
    #[must_use]
    pub fn weight_decay(mut self, decay: f64) -> TrainingOptions {
        self.optimizer.weight_decay = decay;
        self
    }

    /// Sets whether the optimizer is written as an operator of `ai.onnx.preview.training`, which
    /// exists for Adagrad, Adam and Momentum. By default it is written as nodes of `ai.onnx`.
    #[must_use]
    pub fn optimizer_operator(mut self, is_wanted: bool) -> TrainingOptions {
        self.optimizer.as_operator = is_wanted;
        self
    }

    /// Selects the initializers to train by patterns, in which `*` matches any characters and `?`
    /// exactly one. By default initializers are trained that operators read as weights: matrices
    /// and filters, biases, scales of normalizations, embedding tables.
    #[must_use]
    pub fn variables<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> TrainingOptions {
        self.variables = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Excludes the initializers that match one of these patterns from training: `*` matches any
    /// characters, `?` exactly one.
    #[must_use]
    pub fn freeze<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> TrainingOptions {
        self.frozen = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the initial values that [`Trainer::initialize`](crate::Trainer::initialize) gives the
    /// weights. By default they keep the values in the model.
    #[must_use]
    pub fn initialization(mut self, initialization: Initialization) -> TrainingOptions {
        self.initialization = initialization;
        self
    }

    /// Sets whether Dropout and BatchNormalization run in training mode in a training step; running
    /// means and variances then become state. Off by default. The main graph, and so inference,
    /// does not change.
    #[must_use]
    pub fn training_mode(mut self, is_on: bool) -> TrainingOptions {
        self.training_mode = is_on;
        self
    }

    /// Sets whether gradients are written as a `Gradient` node, which few runtimes support. By
    /// default they are written as nodes of `ai.onnx`.
    #[must_use]
    pub fn gradient_nodes(mut self, is_wanted: bool) -> TrainingOptions {
        self.gradient_nodes = is_wanted;
        self
    }

    /// Sets whether float copies of float16 and bfloat16 weights are kept, as they are by default.
    /// Beside each such weight `w` is a float state variable `w_remainder` with its rounding error;
    /// the sum of both is the copy. Without copies, an update below half a unit in the last place
    /// of a weight is lost, however often it is repeated.
    ///
    /// ```
    /// use sardonyx::{Model, train};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float16[2] x) => (float16[2] y) <float16[2] w = raw {1, 2}> { y = Mul (x, w) }",
    /// )?;
    /// let options = train::TrainingOptions::new(train::Loss::SquaredError { output: None });
    /// let (kept, report) = model.add_training(&options)?;
    /// assert_eq!((kept.state_variables().len(), report.float_copies), (2, 1));
    /// assert_eq!(kept.state_variables()[1].name, "w_remainder");
    /// let (without, report) = model.add_training(&options.float_copies(false))?;
    /// assert_eq!((without.state_variables().len(), report.float_copies), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn float_copies(mut self, are_kept: bool) -> TrainingOptions {
        self.float_copies = are_kept;
        self
    }
}

/// Options for adding gradients; see [`Model::add_gradients`].
#[derive(Debug, Clone, Default)]
pub struct GradientOptions {
    of: Option<String>,
    by: Option<Vec<String>>,
    gradient_node: bool,
}

impl GradientOptions {
    /// Creates the default options: gradients of the only output with respect to all floating-point
    /// inputs and initializers.
    pub fn new() -> GradientOptions {
        GradientOptions::default()
    }

    /// Sets the name of the value to differentiate; the default is the only graph output. Gradients
    /// of a value that is not a scalar are those of the sum of its elements.
    #[must_use]
    pub fn differentiate(mut self, name: &str) -> GradientOptions {
        self.of = Some(name.to_string());
        self
    }

    /// Sets the values with respect to which to differentiate: inputs and initializers that match
    /// one of these patterns, in which `*` matches any characters and `?` exactly one, and
    /// intermediate values by their whole names.
    #[must_use]
    pub fn with_respect_to<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> GradientOptions {
        self.by = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Sets whether gradients are added as one `Gradient` node, which few runtimes support. By
    /// default nodes of `ai.onnx` are added.
    #[must_use]
    pub fn gradient_node(mut self, is_wanted: bool) -> GradientOptions {
        self.gradient_node = is_wanted;
        self
    }
}

/// Parses glob patterns and pairs each with its text; drops invalid patterns.
fn parse_globs(patterns: &[String]) -> Vec<(Glob, &str)> {
    let parsed = patterns.iter().filter_map(|text| Some((Glob::parse(text).ok()?, text.as_str())));
    parsed.collect()
}

impl Model {
    /// Returns the model with an entry of training information: a loss, its gradients with respect
    /// to the weights, and an optimizer step. [`Trainer`](crate::Trainer) runs such a model. The
    /// main graph still computes its outputs; it is converted to a newer version of `ai.onnx` only
    /// if the training step cannot be expressed in the model's version.
    ///
    /// # Errors
    ///
    /// [`EditError`] for options that do not fit the model, and for operators without a
    /// gradient between weights and loss.
    pub fn add_training(
        &self,
        options: &TrainingOptions,
    ) -> Result<(Model, TrainingReport), EditError> {
        let frozen = parse_globs(&options.frozen);
        let chosen = options.variables.as_deref().map(parse_globs);
        if let Some(unmatched) = self.find_unmatched_pattern(options) {
            return Err(EditError::Option(unmatched));
        }
        let is_frozen = |name: &str| frozen.iter().any(|(glob, _)| glob.matches(name));
        let is_chosen = |name: &str| {
            let chosen = chosen.as_deref().unwrap_or_default();
            chosen.iter().any(|(glob, _)| glob.matches(name))
        };
        let passes = passes::TrainingOptions {
            loss: options.loss.clone(),
            optimizer: options.optimizer.clone(),
            clipping: options.clipping,
            variables: chosen.is_some().then_some(&is_chosen),
            frozen: &is_frozen,
            initialization: options.initialization,
            training_mode: options.training_mode,
            gradient_nodes: options.gradient_nodes,
            float_copies: options.float_copies,
        };
        let external: &dyn ExternalData = &*self.data;
        let added = passes::add_training(&self.graph, &Registry::default(), external, &passes);
        let (graph, report) = added.map_err(|error| EditError::from_derivation(self, error))?;
        Ok((self.with_graph(graph), report))
    }

    /// Finds a pattern in the options that matches no initializer, and returns the message about
    /// it; `None` if every pattern matches.
    fn find_unmatched_pattern(&self, options: &TrainingOptions) -> Option<String> {
        let graph = self.graph.graph(self.graph.main?);
        let names: Vec<String> = graph
            .initializers
            .iter()
            .map(|found| self.graph.display(found.tensor.name).into_owned())
            .collect();
        let patterns = options.variables.iter().flatten().chain(&options.frozen);
        let mut patterns = patterns.filter_map(|text| Some((Glob::parse(text).ok()?, text)));
        let unknown = patterns.find(|(glob, _)| !names.iter().any(|name| glob.matches(name)));
        let (_, text) = unknown?;
        let near = hint(text, names.iter().map(String::as_str));
        Some(format!("no initializer '{text}' exists{near}"))
    }

    /// Returns the model with gradients as additional outputs, named like the inputs and
    /// initializers with `_grad` appended. Existing nodes are kept; the model is converted to a
    /// newer version of `ai.onnx` only if the gradients cannot be expressed in its version.
    ///
    /// ```
    /// use sardonyx::{Model, RunOptions, Session, Tensor, train};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 8, opset_import: [\"\": 17]>
    ///      g (float[N] x) => (float[N] y) { a = Mul (x, x) y = Mul (a, x) }",
    /// )?;
    /// let (model, report) = model.add_gradients(&train::GradientOptions::new())?;
    /// assert_eq!(report.gradients, [("x".to_string(), "x_grad".to_string())]);
    /// let x = Tensor::from_vec([2], vec![1f32, 2.0])?;
    /// let outputs = Session::new(&model)?.run([("x", x)], &RunOptions::default())?;
    /// assert_eq!(outputs.tensor("x_grad")?.to_vec::<f32>()?, [3.0, 12.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EditError`] for options that do not fit the model, and for operators without a
    /// gradient between the values.
    pub fn add_gradients(
        &self,
        options: &GradientOptions,
    ) -> Result<(Model, GradientReport), EditError> {
        let by = options.by.as_deref().map(parse_globs);
        let by = |name: &str, kind: passes::GradientBy| match &by {
            Some(patterns) => patterns.iter().any(|(glob, text)| match kind {
                passes::GradientBy::Made => *text == name,
                passes::GradientBy::Input | passes::GradientBy::Initializer => glob.matches(name),
            }),
            None => kind != passes::GradientBy::Made,
        };
        let passes = passes::GradientOptions {
            of: options.of.as_deref(),
            by: &by,
            gradient_node: options.gradient_node,
        };
        let added = passes::add_gradients(&self.graph, &Registry::default(), &passes);
        let (graph, report) = added.map_err(|error| EditError::from_derivation(self, error))?;
        Ok((self.with_graph(graph), report))
    }

    /// Returns the model with every `Gradient` node replaced by nodes of `ai.onnx`.
    ///
    /// # Errors
    ///
    /// [`EditError`] for nodes that name unknown values, and for operators without a gradient.
    pub fn expand_gradients(&self) -> Result<(Model, GradientReport), EditError> {
        let expanded = passes::expand_gradients(&self.graph, &Registry::default());
        let (graph, report) = expanded.map_err(|error| EditError::from_derivation(self, error))?;
        Ok((self.with_graph(graph), report))
    }
}
