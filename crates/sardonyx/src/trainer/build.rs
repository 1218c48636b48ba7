//! Compiles the training information of a model: a program for each training step, for each
//! initialization and for inference.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use sardonyx_model::{self as graph, Dim, Entry, GraphId, Symbol, TrainingInfo, Type, ValueId};
use sardonyx_passes::{CheckOptions, Severity, check, order::first_too_early, place_of_node};
use sardonyx_runtime::{Precision, StatePorts};

use super::devices::{DeviceOptions, TrainingDevices};
use super::program::{EntryPrograms, StateOutput, StepBuffers, TrainingProgram, TrainingPrograms};
use super::state::{Places, State, to_type};
use super::{Run, Runner, Trainer};
use crate::error::{Error, ErrorKind, catch_panic};
use crate::model::Model;
use crate::session::{Choices, Session, SessionBuilder};

/// Builder that collects the options of a [`Trainer`]; see [`Trainer::builder`].
#[derive(Debug, Clone)]
pub struct TrainerBuilder<'m> {
    model: &'m Model,
    session: SessionBuilder<'m>,
    /// Names of outputs that training steps return; all outputs if `None`.
    outputs: Option<Vec<String>>,
    pub(super) devices: Option<DeviceOptions>,
}

/// Compiler of the programs of one trainer.
struct ProgramCompiler<'m> {
    model: &'m Model,
    choices: Choices,
    outputs: Option<Vec<String>>,
    places: Places,
    state: State,
    devices: Option<TrainingDevices>,
}

/// Graph of a program that runs on devices, and the use of its ports.
#[cfg_attr(
    not(feature = "device"),
    expect(dead_code, reason = "only sessions on devices read the fields")
)]
pub(super) struct DeviceProgram<'c> {
    pub(super) model: &'c Model,
    pub(super) choices: &'c Choices,
    pub(super) state: &'c State,
    pub(super) bound: &'c BoundPorts,
    /// Names of the inputs.
    pub(super) inputs: Vec<String>,
    /// Whether each output is returned to the caller.
    pub(super) returned: &'c [bool],
}

impl<'m> TrainerBuilder<'m> {
    /// Returns a builder with default options.
    pub(super) fn new(model: &'m Model) -> TrainerBuilder<'m> {
        TrainerBuilder { model, session: Session::builder(model), outputs: None, devices: None }
    }

    /// Sets the number of threads of a run; see [`SessionBuilder::threads`].
    pub fn threads(self, threads: usize) -> Self {
        self.session(|session| session.threads(threads))
    }

    /// Sets the precision of matrix products and convolutions; see [`SessionBuilder::precision`].
    pub fn precision(self, precision: Precision) -> Self {
        self.session(|session| session.precision(precision))
    }

    /// Limits the bytes that each compiled program and one run of it take; see
    /// [`SessionBuilder::memory_limit`]. Values of state variables are not counted.
    pub fn memory_limit(self, bytes: usize) -> Self {
        self.session(|session| session.memory_limit(bytes))
    }

    /// Changes the options of the sessions in which the training steps, the initializations and
    /// inference run: custom operators, fixed sizes and so on.
    pub fn session(
        mut self,
        change: impl FnOnce(SessionBuilder<'m>) -> SessionBuilder<'m>,
    ) -> Self {
        self.session = change(self.session);
        self
    }

    /// Sets the seed for random operators without an attribute `seed`. Trainers of one model with
    /// equal seeds draw equal numbers, and [`Trainer::initialize`] restarts the sequence. The
    /// default is a seed from the system.
    pub fn seed(self, seed: u64) -> Self {
        self.session(|session| session.seed(seed))
    }

    /// Selects the outputs of the main graph and of the algorithms that training steps return; all
    /// by default. Other outputs are computed only if an `update_binding` names them. A training
    /// step without a selected output omits it; building the trainer fails for an output that no
    /// entry has.
    pub fn outputs<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.outputs = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Builds the trainer: checks the training information, reads the state variables, and compiles
    /// a program for inference, for each training step and for each initialization.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the model has no training information, or if this is inconsistent
    /// or violates the standard; [`ErrorKind::Unsupported`] if a state variable is a tensor of
    /// strings; [`ErrorKind::Output`] for an output that no entry has; errors of
    /// [`SessionBuilder::build`].
    pub fn build(self) -> Result<Trainer, Error> {
        catch_panic(|| self.make())
    }

    /// Builds the trainer without catching panics.
    fn make(self) -> Result<Trainer, Error> {
        // The trainer reads the model as long as it lives, for saved states and exported models. In
        // owned memory, a later change of the file has no effect.
        let own = self.model.copy_to_own_memory()?;
        let model = &own;
        if model.graph.training_info.is_empty() {
            let message = "the model has no training information";
            return Err(Error::new(ErrorKind::Invalid, message).with_help(
                "add training information with `sardonyx add-training` (Python: \
                 sardonyx.add_training; Rust: Model::add_training)",
            ));
        }
        model.check_complete()?;
        let mut warnings = check_training_info(model)?;
        warnings.extend(warn_of_unsorted_graphs(&model.graph));
        let choices = self.session.choices().clone();
        let places = Places::new(&model.graph);
        let variables = places.all.len();
        let connect =
            |options| TrainingDevices::connect(options, choices.to_builder(model), variables);
        let devices = self.devices.map(connect).transpose()?;
        let seed = devices.as_ref().map_or(choices.options.seed, TrainingDevices::seed);
        let state = State::new(model, &places, seed)?;
        let compiler =
            ProgramCompiler { model, choices, outputs: self.outputs, places, state, devices };
        let mut entries = Vec::with_capacity(model.graph.training_info.len());
        for index in 0..model.graph.training_info.len() {
            entries.push(compiler.compile_entry(index)?);
        }
        compiler.check_outputs(&entries)?;
        let inference = compiler.compile_inference()?;
        let ProgramCompiler { devices, state, .. } = compiler;
        let (model, identity) = (model.clone(), OnceLock::new());
        let programs = TrainingPrograms { model, entries, inference, warnings, identity, devices };
        Ok(Trainer { programs: Arc::new(programs), state, buffers: StepBuffers::default() })
    }
}

impl ProgramCompiler<'_> {
    /// Compiles the initialization and the training step of an entry of the training information.
    fn compile_entry(&self, index: usize) -> Result<EntryPrograms, Error> {
        let info = &self.model.graph.training_info[index];
        let initialization = match info.initialization {
            Some(graph) => Some(self.compile_initialization(index, graph)?),
            None => None,
        };
        Ok(EntryPrograms { initialization, step: self.compile_step(index)? })
    }

    /// Compiles an initialization graph, which reads no value of another graph.
    fn compile_initialization(
        &self,
        index: usize,
        initialization: GraphId,
    ) -> Result<TrainingProgram, Error> {
        let mut graph = copy_without_training(self.model, Some(initialization));
        graph.main = Some(initialization);
        let info = &self.model.graph.training_info[index];
        let bindings = Bindings { info, assigned: &info.initialization_binding };
        let program = self.compile(graph, bindings, None, |_| false)?;
        self.check_types(&program, &format!("training_info[{index}].initialization_binding"))?;
        Ok(program)
    }

    /// Compiles the training step of an entry: the main graph followed by the entry's algorithm,
    /// with state variables as inputs.
    fn compile_step(&self, index: usize) -> Result<TrainingProgram, Error> {
        let info = &self.model.graph.training_info[index];
        let graph = make_step_graph(self.model, index, &self.places)?;
        let bindings = Bindings { info, assigned: &info.update_binding };
        let program =
            self.compile(graph, bindings, self.devices.as_ref(), |name| match &self.outputs {
                Some(names) => names.iter().any(|returned| returned == name),
                None => true,
            })?;
        self.check_types(&program, &format!("training_info[{index}].update_binding"))?;
        Ok(program)
    }

    /// Compiles the main graph with state variables as inputs.
    fn compile_inference(&self) -> Result<TrainingProgram, Error> {
        let mut graph = copy_without_training(self.model, None);
        let main = demand_main_graph(&graph)?;
        let variables = find_state_values(self.model, &self.places);
        graph.make_inputs(main, false, |_, value| variables.contains(&value));
        let bindings = Bindings { info: &TrainingInfo::default(), assigned: &[] };
        let program = self.compile(graph, bindings, self.devices.as_ref(), |_| true)?;
        Ok(TrainingProgram { takes_defaults: true, ..program })
    }

    /// Compiles a graph for one session, or for `devices` if they are given. Outputs that are
    /// neither returned nor assigned are removed first, so that they are not computed.
    fn compile(
        &self,
        mut graph: graph::Model,
        bindings: Bindings<'_>,
        devices: Option<&TrainingDevices>,
        returned: impl Fn(&str) -> bool,
    ) -> Result<TrainingProgram, Error> {
        let main = demand_main_graph(&graph)?;
        let assigned = bindings.assigned.iter();
        let sources: HashSet<Symbol> = assigned.filter_map(|entry| entry.value).collect();
        graph.retain_outputs(main, |graph, output| {
            let is_assigned = output.name.is_some_and(|name| sources.contains(&name));
            is_assigned || returned(&graph.display(output.name))
        });
        let ports = graph.graph(main);
        let (inputs, outputs) = (list_names(&ports.inputs), list_names(&ports.outputs));
        let bound = BoundPorts::new(&self.places, bindings, &inputs, &outputs);
        let shown = |name: Option<Symbol>| self.model.display_name(name);
        let returned: Vec<bool> = outputs.iter().map(|name| returned(&shown(*name))).collect();
        let mut model = self.model.with_graph(graph);
        let mut overwritable = Vec::new();
        let session: Runner = match devices {
            None => {
                model.state = pair_state(&bound.variables, &bound.assignments);
                let session = self.choices.to_builder(&model).build()?;
                overwritable.extend(session.list_state().into_iter().filter_map(|ports| {
                    let mut variables = bound.variables.iter();
                    let (_, variable) = variables.find(|(read, _)| *read == ports.input)?;
                    Some(StateOutput { output: ports.output, variable: *variable })
                }));
                overwritable.sort_unstable_by_key(|state| state.variable);
                session.into()
            }
            Some(devices) => devices.compile(&DeviceProgram {
                model: &model,
                choices: &self.choices,
                state: &self.state,
                bound: &bound,
                inputs: inputs.iter().map(|name| shown(*name)).collect(),
                returned: &returned,
            })?,
        };
        let BoundPorts { variables, assignments } = bound;
        let names = session.outputs().iter().zip(&returned).filter(|(_, returned)| **returned);
        let names = names.map(|(port, _)| Arc::from(port.name())).collect();
        let variables = variables.into_iter();
        Ok(TrainingProgram {
            variables: variables.map(|(input, number)| (shown(inputs[input]), number)).collect(),
            overwritable,
            assignments,
            returned,
            names,
            takes_defaults: false,
            session,
        })
    }

    /// Fails if inference proves that a new value differs from its state variable in type or shape.
    fn check_types(&self, program: &TrainingProgram, place: &str) -> Result<(), Error> {
        for (variable, output) in &program.assignments {
            let port = &program.session.outputs()[*output];
            let value = self.state.stored_value(*variable);
            let fits = match port.ty() {
                None => true,
                Some(Type::Tensor(ty)) => {
                    let has_type = ty.elem.is_none_or(|elem| elem == value.data_type());
                    let has_shape = ty.shape.as_ref().is_none_or(|shape| {
                        let mut sizes = shape.iter().zip(value.dims());
                        shape.len() == value.dims().len()
                            && sizes.all(|(dim, size)| match dim {
                                Dim::Known(known) => i64::try_from(*size) == Ok(*known),
                                _ => true,
                            })
                    });
                    has_type && has_shape
                }
                Some(_) => false,
            };
            if !fits {
                let (name, ty) = (self.state.name(*variable), to_type(value));
                let message = format!(
                    "{place} assigns '{port}' to the state variable '{name}', which is {ty}: type and shape of a state variable cannot change"
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        Ok(())
    }

    /// Fails if an output that [`TrainerBuilder::outputs`] selects exists in no entry.
    fn check_outputs(&self, entries: &[EntryPrograms]) -> Result<(), Error> {
        let steps = entries.iter().map(|programs| &programs.step.session);
        let ports: Vec<_> = steps.flat_map(Runner::outputs).collect();
        let mut selected = self.outputs.iter().flatten();
        let unknown = selected.find(|name| ports.iter().all(|port| port.name() != name.as_str()));
        match unknown {
            Some(name) => Err(Error::new(
                ErrorKind::Output,
                format!("neither the main graph nor an algorithm has an output '{name}'"),
            )),
            None => Ok(()),
        }
    }
}

/// Bindings of outputs to state variables that a program assigns, and the training entry in which
/// their names are resolved.
#[derive(Clone, Copy)]
struct Bindings<'i> {
    info: &'i TrainingInfo,
    assigned: &'i [Entry],
}

/// State variables among the inputs and outputs of a graph.
pub(super) struct BoundPorts {
    /// Pairs of indices: an input, and the state variable that the input reads.
    pub(super) variables: Vec<(usize, usize)>,
    /// Pairs of indices: a state variable, and the output that is assigned to it.
    pub(super) assignments: Vec<(usize, usize)>,
}

impl BoundPorts {
    /// Resolves the names of inputs, outputs and bindings to state variables.
    fn new(
        places: &Places,
        Bindings { info, assigned }: Bindings<'_>,
        inputs: &[Option<Symbol>],
        outputs: &[Option<Symbol>],
    ) -> BoundPorts {
        let variables = inputs.iter().enumerate();
        let variables =
            variables.filter_map(|(input, name)| Some((input, places.find(info, (*name)?)?)));
        let assignments = assigned.iter().filter_map(|entry| {
            let output = outputs.iter().position(|name| *name == entry.value)?;
            Some((places.find(info, entry.key?)?, output))
        });
        BoundPorts { variables: variables.collect(), assignments: assignments.collect() }
    }
}

/// Returns the names of graph inputs or outputs; `None` for an unnamed one.
fn list_names(ports: &[graph::ValueInfo]) -> Vec<Option<Symbol>> {
    ports.iter().map(|port| port.name).collect()
}

/// Pairs the index of each input that reads a state variable with the index of the output that is
/// assigned to the variable: the output can be written in place.
fn pair_state(variables: &[(usize, usize)], assignments: &[(usize, usize)]) -> Vec<StatePorts> {
    let pairs = variables.iter().filter_map(|(input, variable)| {
        let (_, output) = assignments.iter().find(|(assigned, _)| assigned == variable)?;
        Some(StatePorts { input: *input, output: *output })
    });
    pairs.collect()
}

/// Copies a model without its training information, but keeps the nodes of the graph `kept`.
fn copy_without_training(model: &Model, kept: Option<GraphId>) -> graph::Model {
    let mut graph = model.graph.clone();
    graph.remove_training(kept);
    graph
}

/// Returns a copy of the model in which the algorithm of an entry is appended to the main graph.
/// State variables stay initializers.
fn append_algorithm(model: &Model, entry: usize) -> Result<graph::Model, Error> {
    let algorithm = model.graph.training_info[entry].algorithm;
    let mut graph = copy_without_training(model, algorithm);
    let main = demand_main_graph(&graph)?;
    if let Some(algorithm) = algorithm {
        graph.append_graph(main, algorithm);
    }
    Ok(graph)
}

/// Returns a copy of the model in which the algorithm of an entry is appended to the main graph,
/// and state variables are inputs.
fn make_step_graph(model: &Model, entry: usize, places: &Places) -> Result<graph::Model, Error> {
    let mut graph = append_algorithm(model, entry)?;
    let main = demand_main_graph(&graph)?;
    let variables = find_state_values(model, places);
    graph.make_inputs(main, true, |_, value| variables.contains(&value));
    Ok(graph)
}

impl Model {
    /// Returns the training step of an entry as a model without training information: the main
    /// graph followed by the entry's algorithm. State variables are inputs, and their new values
    /// are among the outputs. [`Trainer::step`] runs this model and assigns the new values.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist.
    pub fn training_step(&self, entry: usize) -> Result<Model, Error> {
        self.check_entry(entry)?;
        let places = Places::new(&self.graph);
        let graph = make_step_graph(self, entry, &places)?;
        let ports = graph.graph(demand_main_graph(&graph)?);
        let (inputs, outputs) = (list_names(&ports.inputs), list_names(&ports.outputs));
        let info = &self.graph.training_info[entry];
        let bindings = Bindings { info, assigned: &info.update_binding };
        let bound = BoundPorts::new(&places, bindings, &inputs, &outputs);
        let state = pair_state(&bound.variables, &bound.assignments);
        Ok(Model { state, ..self.with_graph(graph) })
    }

    /// Returns the training step of an entry with state variables as initializers and with expanded
    /// `Gradient` nodes, so that [`cost`](Model::cost) counts the state as parameters.
    ///
    /// ```
    /// use sardonyx::{Model, infer, tool::ModelExt, train};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[N, 4] x) => (float[N, 2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
    ///          y = MatMul (x, w)
    ///      }",
    /// )?;
    /// let options = train::TrainingOptions::new(train::Loss::SquaredError { output: None });
    /// let (model, _) = model.add_training(&options)?;
    /// let step = model.training_step_with_state(0)?.cost(&infer::InferOptions::new());
    /// // The product, and the gradient of the weights.
    /// assert_eq!(step.total.multiply_adds.known.to_string(), "16*N");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the entry does not exist; [`ErrorKind::Invalid`] if an operator
    /// that a `Gradient` node differentiates has no gradient.
    pub(crate) fn training_step_with_state(&self, entry: usize) -> Result<Model, Error> {
        self.check_entry(entry)?;
        let (step, _) = self.with_graph(append_algorithm(self, entry)?).expand_gradients()?;
        Ok(step)
    }

    /// Fails if the model has no training entry with an index.
    fn check_entry(&self, entry: usize) -> Result<(), Error> {
        let entries = self.graph.training_info.len();
        if entry < entries {
            return Ok(());
        }
        let message = match entries {
            0 => "the model has no training information".to_string(),
            _ => format!(
                "training entry {entry} does not exist: entries are 0 to {}",
                entries.saturating_sub(1)
            ),
        };
        Err(Error::new(ErrorKind::Argument, message))
    }
}

/// Returns the main graph; fails if the model has none.
fn demand_main_graph(graph: &graph::Model) -> Result<GraphId, Error> {
    graph.main.ok_or_else(|| Error::new(ErrorKind::Invalid, "the model has no graph"))
}

/// Returns the graph values that the initializers of all state variables define.
fn find_state_values(model: &Model, places: &Places) -> HashSet<ValueId> {
    let initializers = places.all.iter();
    initializers.filter_map(|(_, place)| place.find_value(&model.graph)).collect()
}

/// Checks the training information. Fails if the checker finds errors, else returns its warnings.
/// Findings about other parts of the model are dropped: they are harmless, or the compiler reports
/// them.
fn check_training_info(model: &Model) -> Result<Vec<String>, Error> {
    let report = check(&model.graph, &CheckOptions::default());
    let found = report.findings.iter();
    let found = found.filter(|finding| finding.code.requirement.starts_with("TRAIN-"));
    let (errors, warnings): (Vec<_>, Vec<_>) =
        found.partition(|finding| finding.severity == Severity::Error);
    if errors.is_empty() {
        return Ok(to_lines(&warnings));
    }
    let lines = to_lines(&errors).join("\n  ");
    let message = format!("the training information is not valid:\n  {lines}");
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Formats each finding as a line of a message.
fn to_lines(findings: &[&sardonyx_passes::Finding]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// Returns warnings about initialization and algorithm graphs whose nodes are not sorted
/// topologically.
fn warn_of_unsorted_graphs(model: &graph::Model) -> Vec<String> {
    let mut warnings = Vec::new();
    for (entry, info) in model.training_info.iter().enumerate() {
        for (field, graph) in
            [("initialization", info.initialization), ("algorithm", info.algorithm)]
        {
            let early = graph.and_then(|graph| first_too_early(model, graph));
            let Some((node, producer)) = early else { continue };
            let [node, producer] = [node, producer].map(|node| place_of_node(model, node));
            warnings.push(format!(
                "training_info[{entry}].{field} is not sorted topologically: {node} uses an \
                 output of {producer}, which comes after it; Sardonyx sorts the nodes, and other \
                 runtimes may refuse the model"
            ));
        }
    }
    warnings
}
