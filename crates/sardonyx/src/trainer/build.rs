//! Programs out of training information: one for each entry and initialization, and one for
//! inference.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use sardonyx_model::{self as graph, Dim, Entry, GraphId, Symbol, TrainingInfo, Type, ValueId};
use sardonyx_passes::{CheckOptions, Severity, check, first_too_early, place_of_node};
use sardonyx_runtime::Precision;

use super::program::{EntryPrograms, StepBuffers, TrainingProgram, TrainingPrograms};
use super::state::{Places, State, type_of};
use super::{Run, Runner, Trainer};
use crate::devices::{
    DeviceOptions, DeviceSession, ResidentVariable, ResidentVariables, StateForms,
};
use crate::error::{Error, ErrorKind, guarded};
use crate::model::Model;
use crate::session::{Choices, Session, SessionBuilder};

/// Options of a trainer that is about to be made; see [`Trainer::builder`].
#[derive(Debug, Clone)]
pub struct TrainerBuilder<'m> {
    model: &'m Model,
    session: SessionBuilder<'m>,
    /// Outputs of training steps that callers want; all if `None`.
    outputs: Option<Vec<String>>,
    devices: Option<DeviceOptions>,
}

/// What the programs of a trainer are made of.
struct Making<'m> {
    model: &'m Model,
    choices: Choices,
    outputs: Option<Vec<String>>,
    places: Places,
    state: State,
    devices: Option<DeviceSession>,
    /// The forms of state variables on the devices.
    forms: Arc<StateForms>,
}

impl<'m> TrainerBuilder<'m> {
    pub(super) fn new(model: &'m Model) -> TrainerBuilder<'m> {
        TrainerBuilder { model, session: Session::builder(model), outputs: None, devices: None }
    }

    /// How many threads a run uses; see [`SessionBuilder::threads`].
    pub fn threads(self, threads: usize) -> Self {
        self.session(|session| session.threads(threads))
    }

    /// How exact products are; see [`SessionBuilder::precision`].
    pub fn precision(self, precision: Precision) -> Self {
        self.session(|session| session.precision(precision))
    }

    /// Bytes that each program and one run of it may take; see [`SessionBuilder::memory_limit`].
    /// The values of state variables do not count.
    pub fn memory_limit(self, bytes: usize) -> Self {
        self.session(|session| session.memory_limit(bytes))
    }

    /// Other options of the sessions in which the programs run: operators of the caller, fixed
    /// sizes and so on.
    pub fn session(
        mut self,
        change: impl FnOnce(SessionBuilder<'m>) -> SessionBuilder<'m>,
    ) -> Self {
        self.session = change(self.session);
        self
    }

    /// What operators without an attribute `seed` draw random numbers by. Trainers of a model that
    /// have the same seed draw the same numbers, and so does a trainer again after
    /// [`Trainer::initialize`]. By default a seed from the system.
    pub fn seed(self, seed: u64) -> Self {
        self.session(|session| session.seed(seed))
    }

    /// Which outputs of the main graph and of the algorithms training steps return; all by default.
    /// Of the others only those are computed that an `update_binding` names. An entry returns those
    /// that it has; making the trainer fails if none has one of them.
    pub fn outputs<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.outputs = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Runs training steps and inference on the devices of a configuration of the model, as
    /// [`SessionBuilder::devices`] does. The annotations are those of the main graph and of the
    /// algorithms; nodes without one follow from what they read. Results are the same, except for
    /// the rounding of sums.
    ///
    /// State variables stay on the devices from step to step, each in the form in which the first
    /// step leaves its new value: a weight that is split by columns, its gradient and what the
    /// optimizer keeps for it are only ever split by columns. Gradients of whole weights are summed
    /// up where examples are divided among the devices. [`Trainer::state`] and the methods that
    /// write a state put the parts together. Initialization runs without devices. All devices are
    /// threads of this process: making the trainer fails with [`DeviceOptions::transport`].
    pub fn devices(mut self, options: DeviceOptions) -> Self {
        self.devices = Some(options);
        self
    }

    /// Makes the trainer: checks the training information, reads the state variables, and compiles
    /// a program for inference, for each training step and for each initialization.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the model has no training information, or this contradicts itself
    /// or the standard; [`ErrorKind::Unsupported`] if a state variable is a tensor of strings;
    /// [`ErrorKind::Output`] for an output that no entry has; else as [`SessionBuilder::build`].
    pub fn build(self) -> Result<Trainer, Error> {
        guarded(|| self.make())
    }

    fn make(self) -> Result<Trainer, Error> {
        // Saved states and exported models read it for as long as the trainer lives.
        let own = self.model.in_own_memory()?;
        let model = &own;
        if model.graph.training_info.is_empty() {
            let message = "the model has no training information";
            return Err(Error::new(ErrorKind::Invalid, message).with_help(
                "add it with `sardonyx add-training` (Python: sardonyx.add_training; Rust: \
                 Model::add_training)",
            ));
        }
        model.check_complete()?;
        let mut warnings = checked(model)?;
        warnings.extend(unsorted(&model.graph));
        let choices = self.session.choices().clone();
        if self.devices.as_ref().is_some_and(DeviceOptions::has_transport) {
            let message = "training does not run on devices of several processes";
            return Err(Error::new(ErrorKind::Unsupported, message)
                .with_help("leave out the transport: devices are threads of this process then"));
        }
        let session = choices.of_model(model);
        let devices = self.devices.map(|options| session.devices(options)).transpose()?;
        devices.as_ref().map_or(Ok(()), DeviceSession::check_gathers)?;
        let seed = devices.as_ref().map_or(choices.options.seed, DeviceSession::seed);
        let places = Places::of(&model.graph);
        let state = State::new(model, &places, seed)?;
        let forms = Arc::new(StateForms::new(state.len()));
        let making =
            Making { model, choices, outputs: self.outputs, places, state, devices, forms };
        let mut entries = Vec::with_capacity(model.graph.training_info.len());
        for index in 0..model.graph.training_info.len() {
            entries.push(making.programs(index)?);
        }
        making.check_outputs(&entries)?;
        let inference = making.inference()?;
        let Making { devices, state, .. } = making;
        let (model, identity) = (model.clone(), OnceLock::new());
        let programs = TrainingPrograms { model, entries, inference, warnings, identity, devices };
        Ok(Trainer { programs: Arc::new(programs), state, buffers: StepBuffers::default() })
    }
}

impl Making<'_> {
    fn programs(&self, index: usize) -> Result<EntryPrograms, Error> {
        let info = &self.model.graph.training_info[index];
        let initialization = match info.initialization {
            Some(graph) => Some(self.initialization(index, graph)?),
            None => None,
        };
        Ok(EntryPrograms { initialization, step: self.step(index)? })
    }

    /// The initialization graph alone: it sees no value of another graph.
    fn initialization(
        &self,
        index: usize,
        initialization: GraphId,
    ) -> Result<TrainingProgram, Error> {
        let mut graph = untrained(self.model, Some(initialization));
        graph.main = Some(initialization);
        let info = &self.model.graph.training_info[index];
        let binding = &info.initialization_binding;
        let program = self.program(graph, (info, binding), None, |_| false)?;
        self.check_types(&program, &format!("training_info[{index}].initialization_binding"))?;
        Ok(program)
    }

    /// The main graph followed by the algorithm of an entry, with state variables as inputs.
    fn step(&self, index: usize) -> Result<TrainingProgram, Error> {
        let info = &self.model.graph.training_info[index];
        let graph = step_graph(self.model, index, &self.places)?;
        let wanted = |name: &str| match &self.outputs {
            Some(names) => names.iter().any(|wanted| wanted == name),
            None => true,
        };
        let devices = self.devices.as_ref();
        let program = self.program(graph, (info, &info.update_binding), devices, wanted)?;
        self.check_types(&program, &format!("training_info[{index}].update_binding"))?;
        Ok(program)
    }

    /// The main graph, with state variables as inputs.
    fn inference(&self) -> Result<TrainingProgram, Error> {
        let mut graph = untrained(self.model, None);
        let main = main_of(&graph)?;
        let variables = values_of(self.model, &self.places);
        graph.make_inputs(main, false, |_, value| variables.contains(&value));
        let info = TrainingInfo::default();
        let program = self.program(graph, (&info, &[]), self.devices.as_ref(), |_| true)?;
        Ok(TrainingProgram { takes_defaults: true, ..program })
    }

    /// Compiles a graph, for devices if there are some. Of its outputs those stay that are
    /// returned or assigned, so nothing else is computed.
    fn program(
        &self,
        mut graph: graph::Model,
        (info, assigned): (&TrainingInfo, &[Entry]),
        devices: Option<&DeviceSession>,
        returned: impl Fn(&str) -> bool,
    ) -> Result<TrainingProgram, Error> {
        let main = main_of(&graph)?;
        let sources: HashSet<Symbol> = assigned.iter().filter_map(|entry| entry.value).collect();
        graph.retain_outputs(main, |graph, output| {
            let is_assigned = output.name.is_some_and(|name| sources.contains(&name));
            is_assigned || returned(&graph.display(output.name))
        });
        let (inputs, outputs) = names(&graph, main);
        let Bound { variables, assignments } =
            Bound::of(&self.places, (info, assigned), &inputs, &outputs);
        let shown = |name: Option<Symbol>| self.model.shown(name);
        let returned: Vec<bool> = outputs.iter().map(|name| returned(&shown(*name))).collect();
        let mut model = self.model.with_graph(graph);
        let mut updated = Vec::new();
        let session: Runner = match devices {
            None => {
                model.updates = pairs(&variables, &assignments);
                let session = self.choices.of_model(&model).build()?;
                let numbers = session.updates().into_iter();
                updated.extend(numbers.filter_map(|(input, _)| {
                    let read = variables.iter().find(|(read, _)| *read == input)?;
                    Some((shown(inputs[input]), read.1))
                }));
                updated.sort_unstable_by_key(|(_, number)| *number);
                session.into()
            }
            Some(devices) => {
                let stay = |(input, variable): &(usize, usize)| {
                    let assigned = assignments.iter().find(|(assigned, _)| assigned == variable);
                    let stored = self.state.stored(*variable);
                    ResidentVariable {
                        variable: *variable,
                        name: shown(inputs[*input]).into(),
                        input: *input,
                        output: assigned.map(|(_, output)| *output),
                        ty: (stored.data_type(), stored.dims().to_vec()),
                    }
                };
                let unreturned = (0..returned.len()).filter(|output| !returned[*output]);
                let stays = ResidentVariables {
                    all: variables.iter().map(stay).collect(),
                    unreturned: unreturned.collect(),
                    forms: Arc::clone(&self.forms),
                };
                devices.make_sibling(&model, &self.choices, stays)?.into()
            }
        };
        let names = session.outputs().iter().zip(&returned).filter(|(_, returned)| **returned);
        let names = names.map(|(port, _)| Arc::from(port.name())).collect();
        let variables = variables.into_iter();
        Ok(TrainingProgram {
            variables: variables.map(|(input, number)| (shown(inputs[input]), number)).collect(),
            updated,
            assignments,
            returned,
            names,
            takes_defaults: false,
            session,
        })
    }

    /// Refuses a program of which it is known that it assigns what does not fit.
    fn check_types(&self, program: &TrainingProgram, place: &str) -> Result<(), Error> {
        for (variable, output) in &program.assignments {
            let port = &program.session.outputs()[*output];
            let value = self.state.stored(*variable);
            let fits = match port.ty() {
                None => true,
                Some(Type::Tensor(ty)) => {
                    let dims = value.dims();
                    let same = |(dim, size): (&Dim, &usize)| match dim {
                        Dim::Known(known) => i64::try_from(*size) == Ok(*known),
                        _ => true,
                    };
                    ty.elem.is_none_or(|elem| elem == value.data_type())
                        && ty.shape.as_ref().is_none_or(|shape| {
                            shape.len() == dims.len() && shape.iter().zip(dims).all(same)
                        })
                }
                Some(_) => false,
            };
            if !fits {
                let (name, ty) = (self.state.name(*variable), type_of(value));
                let message = format!(
                    "{place} assigns '{port}' to the state variable '{name}', which is {ty}: its type and shape cannot change"
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        Ok(())
    }

    /// Refuses to return what no entry has.
    fn check_outputs(&self, entries: &[EntryPrograms]) -> Result<(), Error> {
        let has = |name: &str| {
            let steps = entries.iter().map(|programs| &programs.step.session);
            steps.flat_map(Runner::outputs).any(|port| port.name() == name)
        };
        let unknown = self.outputs.iter().flatten().find(|name| !has(name));
        match unknown {
            Some(name) => Err(Error::new(
                ErrorKind::Output,
                format!("neither the main graph nor an algorithm has an output '{name}'"),
            )),
            None => Ok(()),
        }
    }
}

/// Which inputs and outputs of a graph are state variables.
struct Bound {
    /// Number of an input, and that of the state variable that it is.
    variables: Vec<(usize, usize)>,
    /// Number of a state variable, and that of the output whose value it gets.
    assignments: Vec<(usize, usize)>,
}

impl Bound {
    /// As an entry says it, of whose bindings `assigned` are meant.
    fn of(
        places: &Places,
        (info, assigned): (&TrainingInfo, &[Entry]),
        inputs: &[Option<Symbol>],
        outputs: &[Option<Symbol>],
    ) -> Bound {
        let variable_of = |name: Option<Symbol>| places.find(info, name?);
        let variables = inputs.iter().enumerate();
        let variables = variables.filter_map(|(input, name)| Some((input, variable_of(*name)?)));
        let assignments = assigned.iter().filter_map(|entry| {
            let output = outputs.iter().position(|name| *name == entry.value)?;
            Some((variable_of(entry.key)?, output))
        });
        Bound { variables: variables.collect(), assignments: assignments.collect() }
    }
}

/// The names of the inputs and of the outputs of a graph.
fn names(model: &graph::Model, graph: GraphId) -> (Vec<Option<Symbol>>, Vec<Option<Symbol>>) {
    let graph = model.graph(graph);
    let names = |infos: &[graph::ValueInfo]| infos.iter().map(|info| info.name).collect();
    (names(&graph.inputs), names(&graph.outputs))
}

/// Inputs, and outputs that take their place, by number.
fn pairs(variables: &[(usize, usize)], assignments: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let pair = |(input, variable): &(usize, usize)| {
        let (_, output) = assignments.iter().find(|(assigned, _)| assigned == variable)?;
        Some((*input, *output))
    };
    variables.iter().filter_map(pair).collect()
}

/// A copy of the structure without training information, but with the nodes of one of its graphs.
fn untrained(model: &Model, kept: Option<GraphId>) -> graph::Model {
    let mut graph = model.graph.clone();
    graph.remove_training(kept);
    graph
}

/// The main graph followed by the algorithm of an entry. State variables stay initializers.
fn appended(model: &Model, entry: usize) -> Result<graph::Model, Error> {
    let algorithm = model.graph.training_info[entry].algorithm;
    let mut graph = untrained(model, algorithm);
    let main = main_of(&graph)?;
    if let Some(algorithm) = algorithm {
        graph.append_graph(main, algorithm);
    }
    Ok(graph)
}

/// The main graph followed by the algorithm of an entry, with state variables as inputs.
fn step_graph(model: &Model, entry: usize, places: &Places) -> Result<graph::Model, Error> {
    let mut graph = appended(model, entry)?;
    let main = main_of(&graph)?;
    let variables = values_of(model, places);
    graph.make_inputs(main, true, |_, value| variables.contains(&value));
    Ok(graph)
}

impl Model {
    /// What a training step of an entry computes, as a model without training information: the main
    /// graph followed by the algorithm. State variables are inputs, and their new values are among
    /// the outputs. [`Trainer::step`] runs this and assigns the new values.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if there is no such entry.
    pub fn training_step(&self, entry: usize) -> Result<Model, Error> {
        self.check_entry(entry)?;
        let places = Places::of(&self.graph);
        let graph = step_graph(self, entry, &places)?;
        let (inputs, outputs) = names(&graph, main_of(&graph)?);
        let info = &self.graph.training_info[entry];
        let bound = Bound::of(&places, (info, &info.update_binding), &inputs, &outputs);
        let updates = pairs(&bound.variables, &bound.assignments);
        Ok(Model { updates, ..self.with_graph(graph) })
    }

    /// As [`training_step`](Model::training_step), but state variables stay initializers, and
    /// `Gradient` nodes are replaced by what they mean: the form of which
    /// [`cost`](Model::cost) counts the state as parameters.
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
    /// [`ErrorKind::Argument`] if there is no such entry; [`ErrorKind::Invalid`] if an operator on
    /// the way of a `Gradient` node has no gradient.
    pub(crate) fn training_step_with_state(&self, entry: usize) -> Result<Model, Error> {
        self.check_entry(entry)?;
        let (step, _) = self.with_graph(appended(self, entry)?).expand_gradients()?;
        Ok(step)
    }

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

fn main_of(graph: &graph::Model) -> Result<GraphId, Error> {
    graph.main.ok_or_else(|| Error::new(ErrorKind::Invalid, "the model has no graph"))
}

/// The values of all state variables.
fn values_of(model: &Model, places: &Places) -> HashSet<ValueId> {
    let initializers = places.all.iter();
    initializers.filter_map(|(_, place)| place.value(&model.graph)).collect()
}

/// What the checker says about training information: the errors are refused, the warnings returned.
/// What else it finds does not stand against running the model, or compiling finds it.
fn checked(model: &Model) -> Result<Vec<String>, Error> {
    let report = check(&model.graph, &CheckOptions::default());
    let found = report.findings.iter();
    let found = found.filter(|finding| finding.code.requirement.starts_with("TRAIN-"));
    let (errors, warnings): (Vec<_>, Vec<_>) =
        found.partition(|finding| finding.severity == Severity::Error);
    let lines = |findings: Vec<&sardonyx_passes::Finding>| {
        findings.iter().map(ToString::to_string).collect::<Vec<String>>()
    };
    if errors.is_empty() {
        return Ok(lines(warnings));
    }
    let message =
        format!("the training information is not valid:\n  {}", lines(errors).join("\n  "));
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Warnings about graphs of training entries whose nodes are not sorted topologically.
fn unsorted(model: &graph::Model) -> Vec<String> {
    let entries = model.training_info.iter().enumerate();
    let graphs = entries.flat_map(|(entry, info)| {
        let initialization = info.initialization.map(|graph| (entry, "initialization", graph));
        initialization.into_iter().chain(info.algorithm.map(|graph| (entry, "algorithm", graph)))
    });
    let warning = |(entry, field, graph)| {
        let (node, producer) = first_too_early(model, graph)?;
        let [node, producer] = [node, producer].map(|node| place_of_node(model, node));
        Some(format!(
            "training_info[{entry}].{field} is not sorted topologically: {node} uses an output of \
             {producer}, which comes after it; it runs in sorted order, and other runtimes may \
             refuse it"
        ))
    };
    graphs.filter_map(warning).collect()
}
