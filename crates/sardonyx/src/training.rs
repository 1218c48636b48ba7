//! Training information and gradients that are added to models.

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

/// How a model is to be trained: see [`Model::add_training`].
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
    /// To make this loss small, by gradient descent with the learning rate 0.01.
    pub fn new(loss: Loss) -> TrainingOptions {
        let optimizer = OptimizerName::Sgd.usual();
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

    /// How weights move, and the default of the learning rate, which is an input of each step.
    #[must_use]
    pub fn optimizer(mut self, kind: OptimizerKind, learning_rate: f64) -> TrainingOptions {
        self.optimizer.kind = kind;
        self.optimizer.learning_rate = learning_rate;
        self
    }

    /// Rule by which weights move, with all its numbers.
    #[must_use]
    #[doc(hidden)]
    pub fn with_optimizer(mut self, optimizer: Optimizer) -> TrainingOptions {
        self.optimizer = optimizer;
        self
    }

    /// Makes gradients smaller that are too large, before weight decay and the optimizer use them.
    #[must_use]
    pub fn clipping(mut self, clipping: Clipping) -> TrainingOptions {
        self.clipping = Some(clipping);
        self
    }

    /// The part of each weight that is added to its gradient; for AdamW the part that it loses,
    /// times the learning rate.
    #[must_use]
    pub fn weight_decay(mut self, decay: f64) -> TrainingOptions {
        self.optimizer.weight_decay = decay;
        self
    }

    /// Writes the step as an operator of `ai.onnx.preview.training`, which Adagrad, Adam and
    /// Momentum have, and not as nodes of `ai.onnx`.
    #[must_use]
    pub fn optimizer_operator(mut self, is_wanted: bool) -> TrainingOptions {
        self.optimizer.as_operator = is_wanted;
        self
    }

    /// Trains the initializers that one of these patterns fits: `*` stands for any characters, `?`
    /// for one. By default those that
    /// operators read as weights: matrices and filters, biases, factors of normalizations, tables
    /// that rows are taken from.
    #[must_use]
    pub fn variables<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> TrainingOptions {
        self.variables = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Does not train the initializers that one of these patterns fits: `*` stands for any
    /// characters, `?` for one.
    #[must_use]
    pub fn frozen<P: Into<String>>(
        mut self,
        patterns: impl IntoIterator<Item = P>,
    ) -> TrainingOptions {
        self.frozen = patterns.into_iter().map(Into::into).collect();
        self
    }

    /// What weights are after [`Trainer::initialize`](crate::Trainer::initialize); by default what
    /// the model stores.
    #[must_use]
    pub fn initialization(mut self, initialization: Initialization) -> TrainingOptions {
        self.initialization = initialization;
        self
    }

    /// Runs Dropout and BatchNormalization as in training; running means and variances are state
    /// then. The main graph runs them as it did.
    #[must_use]
    pub fn training_mode(mut self, is_on: bool) -> TrainingOptions {
        self.training_mode = is_on;
        self
    }

    /// Writes gradients as a `Gradient` node and not as the nodes of `ai.onnx` that it means. Few
    /// runtimes know this operator.
    #[must_use]
    pub fn gradient_nodes(mut self, is_wanted: bool) -> TrainingOptions {
        self.gradient_nodes = is_wanted;
        self
    }

    /// Keeps a float copy of weights of float16 and bfloat16, which is the default: a state
    /// variable of float beside each, `w_remainder` for `w`, has what rounding to 16 bits leaves
    /// off, and the sum of both is the copy. Without it a step below half a unit in the last place
    /// of a weight changes nothing, however many such steps there are.
    ///
    /// ```
    /// use sardonyx::{Model, train};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float16[2] x) => (float16[2] y) <float16[2] w = raw {1, 2}> { y = Mul (x, w) }",
    /// )?;
    /// let options = train::TrainingOptions::new(train::Loss::SquaredError { output: None });
    /// let state = |options: &train::TrainingOptions| {
    ///     let (model, report) = model.add_training(options)?;
    ///     let names = model.state_variables().into_iter().map(|variable| variable.name);
    ///     Ok::<_, edit::EditError>((names.collect::<Vec<String>>(), report.float_copies))
    /// };
    /// assert_eq!(state(&options)?, (vec!["w".to_string(), "w_remainder".to_string()], 1));
    /// assert_eq!(state(&options.float_copies(false))?, (vec!["w".to_string()], 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn float_copies(mut self, are_kept: bool) -> TrainingOptions {
        self.float_copies = are_kept;
        self
    }
}

/// Which gradients a model is to give: see [`Model::add_gradients`].
#[derive(Debug, Clone, Default)]
pub struct GradientOptions {
    of: Option<String>,
    by: Option<Vec<String>>,
    gradient_node: bool,
}

impl GradientOptions {
    /// Those of the only output by all inputs and initializers of floats.
    pub fn new() -> GradientOptions {
        GradientOptions::default()
    }

    /// The value to differentiate. If it is no scalar, the gradients are those of the sum of its
    /// elements.
    #[must_use]
    pub fn of(mut self, name: &str) -> GradientOptions {
        self.of = Some(name.to_string());
        self
    }

    /// The values by which it is differentiated: inputs and initializers that one of these
    /// [patterns](Glob) fits, and other values by their whole names.
    #[must_use]
    pub fn by<P: Into<String>>(mut self, patterns: impl IntoIterator<Item = P>) -> GradientOptions {
        self.by = Some(patterns.into_iter().map(Into::into).collect());
        self
    }

    /// Adds one `Gradient` node, which few runtimes know, and not the nodes of `ai.onnx` that it
    /// means.
    #[must_use]
    pub fn gradient_node(mut self, is_wanted: bool) -> GradientOptions {
        self.gradient_node = is_wanted;
        self
    }
}

/// Patterns as they are given.
fn globs(patterns: &[String]) -> Vec<(Glob, &str)> {
    let parsed = patterns.iter().filter_map(|text| Some((Glob::parse(text).ok()?, text.as_str())));
    parsed.collect()
}

impl Model {
    /// The same model with an entry of training information: a loss, its gradients by the weights,
    /// and a step of an optimizer. [`Trainer`](crate::Trainer) runs it. The main graph computes
    /// what it did; it is converted to a newer version of `ai.onnx` only where the step has no
    /// equivalent in that of the model.
    ///
    /// # Errors
    ///
    /// Options that do not fit the model; operators on the way to the loss that have no gradient.
    pub fn add_training(
        &self,
        options: &TrainingOptions,
    ) -> Result<(Model, TrainingReport), EditError> {
        let frozen = globs(&options.frozen);
        let chosen = options.variables.as_deref().map(globs);
        if let Some(unknown) = self.fits_nothing(options) {
            return Err(EditError::Option(unknown));
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

    /// A pattern for initializers that fits none.
    fn fits_nothing(&self, options: &TrainingOptions) -> Option<String> {
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

    /// The same model with gradients as further outputs, called as what they belong to with
    /// `_grad` after it. Nodes that are there stay; the model is converted to a newer version of
    /// `ai.onnx` only where the gradients have no equivalent in its own.
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
    /// Options that do not fit the model; operators on the way that have no gradient.
    pub fn add_gradients(
        &self,
        options: &GradientOptions,
    ) -> Result<(Model, GradientReport), EditError> {
        let by = options.by.as_deref().map(globs);
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

    /// The same model with nodes of `ai.onnx` in the place of all `Gradient` nodes.
    ///
    /// # Errors
    ///
    /// Nodes that name values which do not exist; operators on the way that have no gradient.
    pub fn expand_gradients(&self) -> Result<(Model, GradientReport), EditError> {
        let expanded = passes::expand_gradients(&self.graph, &Registry::default());
        let (graph, report) = expanded.map_err(|error| EditError::from_derivation(self, error))?;
        Ok((self.with_graph(graph), report))
    }
}
