//! State variables of a trainer: their initializers in the model and their current values.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};

use sardonyx_model::{
    self as graph, Entry, GraphId, Producer, Symbol, TrainingInfo, Type, ValueId,
};
use sardonyx_proto::{DataType as NumberedType, closest};
use sardonyx_runtime::OldValue;
use sardonyx_tensor::{DataType, Tensor, TensorError, TensorView};

use super::devices::Parts;
use super::program::StateOutput;
use crate::error::{Error, ErrorKind};
use crate::model::Model;

/// Initializer whose value training changes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateVariable {
    /// Name of the initializer.
    pub name: String,
    /// Index of the training entry whose algorithm has the initializer; `None` for the main graph.
    pub entry: Option<usize>,
    /// Element type; `None` if the file has a type number that the standard does not define.
    pub data_type: Option<DataType>,
    /// Dimensions as stored in the file, not validated.
    pub dims: Vec<i64>,
}

/// Entry of the field `training_info` as declared in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrainingEntry {
    /// Name of the initialization graph; `None` if the entry has no initialization graph.
    pub initialization: Option<String>,
    /// Name of the algorithm graph; `None` if the entry has no algorithm.
    pub algorithm: Option<String>,
    /// Names of the inputs of the algorithm graph.
    pub inputs: Vec<String>,
    /// Names of the outputs of the algorithm graph.
    pub outputs: Vec<String>,
    /// Pairs of names: a state variable, and the output of the initialization that is assigned to
    /// it.
    pub initialization_binding: Vec<(String, String)>,
    /// Pairs of names: a state variable, and the output of a training step that is assigned to it.
    pub update_binding: Vec<(String, String)>,
}

/// Location of a state variable's initializer in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) graph: GraphId,
    slot: Slot,
}

/// Index of a state variable among the dense or the sparse initializers of its graph. Dense
/// initializers are ordered before sparse ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Slot {
    Dense(usize),
    Sparse(usize),
}

impl Place {
    /// Returns the graph value that the initializer defines; `None` if it has no name.
    pub(super) fn find_value(self, model: &graph::Model) -> Option<ValueId> {
        let graph = model.graph(self.graph);
        match self.slot {
            Slot::Dense(index) => graph.initializers[index].value,
            Slot::Sparse(index) => graph.sparse_initializers[index].value,
        }
    }

    /// Returns the initializer's tensor; for a sparse initializer, the tensor of its non-zero
    /// values, or `None` if it has no values.
    fn find_tensor(self, model: &graph::Model) -> Option<&graph::TensorProto> {
        let graph = model.graph(self.graph);
        match self.slot {
            Slot::Dense(index) => Some(&graph.initializers[index].tensor),
            Slot::Sparse(index) => graph.sparse_initializers[index].tensor.values.as_ref(),
        }
    }

    /// Returns the dimensions of the initializer as stored in the file.
    fn dims(self, model: &graph::Model) -> &[i64] {
        let graph = model.graph(self.graph);
        match self.slot {
            Slot::Dense(index) => &graph.initializers[index].tensor.dims,
            Slot::Sparse(index) => &graph.sparse_initializers[index].tensor.dims,
        }
    }
}

/// State variables of a model: initializers that the bindings of the training information name.
pub(super) struct Places {
    /// State variables of the main graph, then those of the algorithms with the index of their
    /// entry, in the order of the file.
    pub(super) all: Vec<(Option<usize>, Place)>,
    by_name: HashMap<(GraphId, Symbol), usize>,
    main: Option<GraphId>,
}

impl Places {
    /// Finds the initializers that the bindings of the training information name.
    pub(super) fn new(model: &graph::Model) -> Places {
        let mut wanted: BTreeSet<(Option<usize>, Slot)> = BTreeSet::new();
        let mut slot_of: HashMap<(GraphId, Symbol), Slot> = HashMap::new();
        let algorithms = model.training_info.iter().filter_map(|info| info.algorithm);
        for id in model.main.into_iter().chain(algorithms) {
            let graph = model.graph(id);
            let dense = graph.initializers.iter().enumerate();
            let dense = dense.map(|(index, found)| (found.tensor.name, Slot::Dense(index)));
            let sparse = graph.sparse_initializers.iter().enumerate().map(|(index, found)| {
                let values = found.tensor.values.as_ref();
                (values.and_then(|values| values.name), Slot::Sparse(index))
            });
            for (name, slot) in dense.chain(sparse) {
                if let Some(name) = name {
                    slot_of.entry((id, name)).or_insert(slot);
                }
            }
        }
        for (entry, info) in model.training_info.iter().enumerate() {
            for key in list_bindings(info).filter_map(|binding| binding.key) {
                let slot_in = |graph: Option<GraphId>| slot_of.get(&(graph?, key)).copied();
                let found = slot_in(model.main).map(|slot| (None, slot));
                wanted.extend(found.or_else(|| Some((Some(entry), slot_in(info.algorithm)?))));
            }
        }
        let mut places = Places { all: Vec::new(), by_name: HashMap::new(), main: model.main };
        for (entry, slot) in wanted {
            let graph = match entry {
                Some(entry) => model.training_info[entry].algorithm,
                None => model.main,
            };
            let Some(graph) = graph else { continue };
            let place = Place { graph, slot };
            if let Some(name) = place.find_tensor(model).and_then(|stored| stored.name) {
                places.by_name.insert((graph, name), places.all.len());
            }
            places.all.push((entry, place));
        }
        places
    }

    /// Resolves a name in a binding of an entry to the index of its state variable; `None` for an
    /// unknown name. Names of the main graph come before those of the entry's algorithm.
    pub(super) fn find(&self, info: &TrainingInfo, name: Symbol) -> Option<usize> {
        let graphs = [self.main, info.algorithm];
        graphs.into_iter().flatten().find_map(|graph| self.by_name.get(&(graph, name)).copied())
    }
}

/// Returns the initialization bindings, then the update bindings of a training entry.
fn list_bindings(info: &TrainingInfo) -> impl Iterator<Item = &Entry> {
    info.initialization_binding.iter().chain(&info.update_binding)
}

impl Model {
    /// Returns the entries of the training information as declared, without checks.
    /// [`Trainer`](crate::Trainer) runs them.
    pub(crate) fn training_entries(&self) -> Vec<TrainingEntry> {
        let model = &self.graph;
        let entries = model.training_info.iter().map(|info| {
            let algorithm = info.algorithm.map(|algorithm| model.graph(algorithm));
            let (inputs, outputs) = match algorithm {
                Some(graph) => {
                    (self.list_port_names(&graph.inputs), self.list_port_names(&graph.outputs))
                }
                None => (Vec::new(), Vec::new()),
            };
            TrainingEntry {
                initialization: info
                    .initialization
                    .map(|id| self.display_name(model.graph(id).name)),
                algorithm: algorithm.map(|algorithm| self.display_name(algorithm.name)),
                inputs,
                outputs,
                initialization_binding: self.list_binding_names(&info.initialization_binding),
                update_binding: self.list_binding_names(&info.update_binding),
            }
        });
        entries.collect()
    }

    /// Returns the names of graph inputs or outputs; empty for an unnamed one.
    fn list_port_names(&self, ports: &[graph::ValueInfo]) -> Vec<String> {
        ports.iter().map(|port| self.display_name(port.name)).collect()
    }

    /// Returns key and value of each binding: a state variable, and the output that is assigned to
    /// it.
    fn list_binding_names(&self, bindings: &[Entry]) -> Vec<(String, String)> {
        let names = bindings
            .iter()
            .map(|entry| (self.display_name(entry.key), self.display_name(entry.value)));
        names.collect()
    }

    /// Returns the state variables, which are initializers that a binding of the training
    /// information names: first those of the main graph, then those of the algorithms.
    pub fn state_variables(&self) -> Vec<StateVariable> {
        let places = Places::new(&self.graph);
        let variables = places.all.iter().map(|(entry, place)| {
            let stored = place.find_tensor(&self.graph);
            let number = stored.and_then(|stored| stored.data_type);
            StateVariable {
                name: self.display_name(stored.and_then(|stored| stored.name)),
                entry: *entry,
                data_type: number.and_then(DataType::from_number),
                dims: place.dims(&self.graph).to_vec(),
            }
        });
        variables.collect()
    }

    /// Returns a name for messages; empty if `name` is absent.
    pub(super) fn display_name(&self, name: Option<Symbol>) -> String {
        self.graph.display(name).into_owned()
    }
}

/// Position of training in the training data. A [`Trainer`](crate::Trainer) only stores it for the
/// caller, and [`save`](crate::Trainer::save) writes it to the file of the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataPosition {
    /// Number of complete passes over the training data.
    pub epochs: u64,
    /// Number of examples that training has taken in the current pass over the data.
    pub examples: u64,
}

/// New value of a state variable.
pub(super) enum NewValue {
    /// Tensor in memory of this process.
    Whole(Tensor),
    /// Tensor whose shards are on devices.
    #[cfg(feature = "device")]
    OnDevices(Arc<Parts>),
}

/// Value of a state variable. Cloning shares the elements.
#[derive(Clone)]
pub(super) enum Held {
    /// Tensor in memory, and its shards on devices once they have been made.
    Whole(Tensor, Arc<OnceLock<Arc<Parts>>>),
    /// Tensor whose shards are only on devices.
    #[cfg(feature = "device")]
    OnDevices(Arc<Parts>),
}

impl Held {
    /// Holds a tensor in memory, without shards on devices.
    pub(super) fn from_tensor(value: Tensor) -> Held {
        Held::Whole(value, Arc::default())
    }

    /// Replaces the held value of a state variable, and drops the shards of the old value.
    fn replace(&mut self, value: NewValue) {
        match value {
            #[cfg(feature = "device")]
            NewValue::OnDevices(parts) => *self = Held::OnDevices(parts),
            NewValue::Whole(value) => match self {
                Held::Whole(old, known) => {
                    forget_shards(known);
                    *old = value;
                }
                #[cfg(feature = "device")]
                Held::OnDevices(_) => *self = Held::from_tensor(value),
            },
        }
    }

    /// Returns the tensor in memory; `None` for a value whose shards are only on devices.
    fn whole(&self) -> Option<&Tensor> {
        match self {
            Held::Whole(value, _) => Some(value),
            #[cfg(feature = "device")]
            Held::OnDevices(_) => None,
        }
    }

    fn whole_mut(&mut self) -> Option<&mut Tensor> {
        match self {
            Held::Whole(value, _) => Some(value),
            #[cfg(feature = "device")]
            Held::OnDevices(_) => None,
        }
    }

    /// Returns the held value as one tensor; gathers the shards of a value on devices.
    fn to_tensor(&self) -> Result<Tensor, Error> {
        match self {
            Held::Whole(value, _) => Ok(value.clone()),
            #[cfg(feature = "device")]
            Held::OnDevices(parts) => parts.gather_whole(),
        }
    }
}

/// Converts the error of a copy of a value.
fn convert_error(error: TensorError) -> Error {
    Error::new(ErrorKind::Run, error.to_string())
}

/// Drops the shards of an old value. Reuses their allocation unless a clone of the state shares it.
fn forget_shards(known: &mut Arc<OnceLock<Arc<Parts>>>) {
    match Arc::get_mut(known) {
        Some(known) => drop(known.take()),
        None => *known = Arc::default(),
    }
}

/// Name, location and stored value of a state variable.
pub(super) struct Variable {
    /// Name of the initializer, prefixed by the entry if it is not unique.
    name: String,
    place: Place,
    /// Whether the initializer is the default of an input of the main graph.
    is_default: bool,
    /// Value in the model file. Every new value has the type and shape of this tensor.
    stored: Tensor,
}

/// Current value of a state variable. Cloning shares the elements.
#[derive(Clone)]
struct Current {
    held: Held,
    /// Whether a value was assigned since the state was reset to the stored values.
    is_assigned: bool,
}

impl Current {
    fn from_stored(value: &Tensor) -> Current {
        Current { held: Held::from_tensor(value.clone()), is_assigned: false }
    }
}

/// Current values of all state variables, random generator and position in the data.
#[derive(Clone)]
pub(super) struct State {
    variables: Arc<[Variable]>,
    /// Current values, in the order of `variables`.
    current: Vec<Current>,
    generator: Generator,
    pub(super) position: DataPosition,
    /// Whether a panic interrupted an assignment, so that old and new values are mixed.
    is_torn: bool,
}

/// Seed of the random operators and the number of runs that have used it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Generator {
    pub(super) seed: u64,
    /// Number of steps and initializations since the seed was set. Each draws from its own
    /// sequence.
    pub(super) draws: u64,
}

impl State {
    /// Makes the state before training: reads the stored value of every state variable.
    pub(super) fn new(model: &Model, places: &Places, seed: Option<u64>) -> Result<State, Error> {
        demand_density(&model.graph, places)?;
        let stored = places.all.iter().map(|(_, place)| place.find_tensor(&model.graph));
        let names: Vec<String> = stored
            .map(|stored| model.display_name(stored.and_then(|stored| stored.name)))
            .collect();
        let mut count: HashMap<&str, usize> = HashMap::new();
        for name in &names {
            *count.entry(name).or_default() += 1;
        }
        let mut variables = Vec::with_capacity(names.len());
        for ((entry, place), name) in places.all.iter().zip(&names) {
            let name = match entry {
                Some(entry) if count[name.as_str()] > 1 => format!("training_info[{entry}].{name}"),
                _ => name.clone(),
            };
            variables.push(Variable::new(model, *place, name)?);
        }
        let mut known = HashSet::new();
        if let Some(twice) = variables.iter().find(|variable| !known.insert(&variable.name)) {
            let message = format!("duplicate state variable name '{}'", twice.name);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        // `RandomState` is keyed by the system's entropy.
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let current =
            variables.iter().map(|variable| Current::from_stored(&variable.stored)).collect();
        Ok(State {
            variables: variables.into(),
            current,
            generator: Generator { seed, draws: 0 },
            position: DataPosition::default(),
            is_torn: false,
        })
    }

    /// Returns names and types of the state variables.
    pub(super) fn list_types(&self) -> impl ExactSizeIterator<Item = (&str, Type)> {
        let variables = self.variables.iter();
        variables.map(|variable| (variable.name.as_str(), to_type(&variable.stored)))
    }

    /// Returns names of the state variables and their values in the model file.
    pub(super) fn stored_values(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.variables.iter().map(|variable| (variable.name.as_str(), &variable.stored))
    }

    /// Marks the values of the state variables as a mix of old and new ones.
    pub(super) fn mark_torn(&mut self) {
        self.is_torn = true;
    }

    /// Marks the values of the state variables as consistent again.
    pub(super) fn mark_consistent(&mut self) {
        self.is_torn = false;
    }

    /// Refuses a state in which old and new values are mixed.
    pub(super) fn demand_consistent(&self) -> Result<(), Error> {
        if self.is_torn {
            Err(Error::new(
                ErrorKind::Internal,
                "a panic during a training step left some state variables with new values and \
                 others with old ones",
            )
            .with_help("initialize the trainer, or load a saved state"))
        } else {
            Ok(())
        }
    }

    /// Returns names and current values of the state variables.
    pub(super) fn gather_values(&self) -> Result<Vec<(&str, Tensor)>, Error> {
        self.demand_consistent()?;
        let values = self.variables.iter().zip(&self.current);
        values
            .map(|(variable, current)| Ok((variable.name.as_str(), current.held.to_tensor()?)))
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.variables.len()
    }

    /// Returns the index of the state variable called `name`.
    pub(super) fn find(&self, name: &str) -> Result<usize, Error> {
        let found = self.variables.iter().position(|variable| variable.name == name);
        found.ok_or_else(|| {
            let message = format!("state variable '{name}' does not exist");
            let error = Error::new(ErrorKind::Input, message);
            let names: Vec<&str> = self.list_types().map(|(name, _)| name).collect();
            match closest(name, names.iter().copied()) {
                Some(near) => error.with_help(format!("did you mean '{near}'?")),
                None => {
                    error.with_help(format!("use one of the state variables: {}", names.join(", ")))
                }
            }
        })
    }

    /// Returns the unique name of a state variable.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.variables[index].name
    }

    /// Returns the current value of a state variable as one tensor.
    pub(super) fn gather_value(&self, index: usize) -> Result<Tensor, Error> {
        self.demand_consistent()?;
        self.current[index].held.to_tensor()
    }

    /// Returns the current value of a state variable, in memory or on devices.
    #[cfg(feature = "device")]
    pub(super) fn held_value(&self, index: usize) -> &Held {
        &self.current[index].held
    }

    /// Returns the value of a state variable in the model file. Every new value has its type and
    /// shape.
    pub(super) fn stored_value(&self, index: usize) -> &Tensor {
        &self.variables[index].stored
    }

    /// Whether a state variable is the default of an input of the main graph.
    pub(super) fn is_default(&self, index: usize) -> bool {
        self.variables[index].is_default
    }

    /// Fails if a value differs from a state variable in type or shape.
    pub(super) fn check(&self, index: usize, value: &Tensor, kind: ErrorKind) -> Result<(), Error> {
        self.variables[index].check(&value.view(), kind)
    }

    pub(super) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Copies the stored value of a variable, so that a new value can be written over it in place.
    /// A value that a clone of the trainer shares is not copied: the new value gets memory of its
    /// own. A loaded value that lies at an address where kernels do not write is moved.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if memory for the copy cannot be allocated.
    pub(super) fn make_exclusive(&mut self, index: usize) -> Result<(), Error> {
        let (variable, current) = (&self.variables[index], &mut self.current[index]);
        let Some(value) = current.held.whole_mut() else { return Ok(()) };
        if !current.is_assigned && !value.is_unique() {
            value.view_mut().map_err(convert_error)?;
            variable.give_back_pages();
        }
        // The largest alignment of an element.
        let is_aligned = value.buffer().is_none_or(|buffer| buffer.is_aligned_to(8));
        if !is_aligned && value.is_unique() {
            *value = value.aligned().map_err(convert_error)?;
        }
        Ok(())
    }

    /// Borrows the old values of variables, sorted by index, for the outputs that are their new
    /// values: exclusive memory to be overwritten, other values to be read.
    pub(super) fn lend<'s>(
        &'s mut self,
        variables: &'s [StateOutput],
    ) -> impl Iterator<Item = (usize, OldValue<'s>)> {
        let mut variables = variables.iter().peekable();
        self.current.iter_mut().enumerate().filter_map(move |(number, current)| {
            let state = variables.next_if(|state| state.variable == number)?;
            let value = current.held.whole_mut()?;
            let old = if value.is_unique() {
                // `view_mut` copies nothing and cannot fail.
                OldValue::Over(value.view_mut().ok()?)
            } else {
                OldValue::Beside(value.view())
            };
            Some((state.output, old))
        })
    }

    /// Lends all values to be read, unlike [`State::lend`].
    pub(super) fn show<'s>(
        &'s self,
        variables: &'s [StateOutput],
    ) -> impl Iterator<Item = (usize, OldValue<'s>)> {
        variables.iter().filter_map(|state| {
            let value = self.current[state.variable].held.whole()?;
            Some((state.output, OldValue::Beside(value.view())))
        })
    }

    /// Notes that a new value has been written over the old one of a variable.
    pub(super) fn note_overwritten(&mut self, index: usize) {
        let current = &mut self.current[index];
        current.is_assigned = true;
        match &mut current.held {
            Held::Whole(_, known) => forget_shards(known),
            #[cfg(feature = "device")]
            Held::OnDevices(_) => {}
        }
    }

    /// Replaces the value of a state variable. The new value must have the variable's type and
    /// shape.
    pub(super) fn set(&mut self, index: usize, value: NewValue) {
        let (variable, current) = (&self.variables[index], &mut self.current[index]);
        if !current.is_assigned {
            variable.give_back_pages();
        }
        current.held.replace(value);
        current.is_assigned = true;
    }

    /// Assigns the new values that a run computed for state variables. Cannot fail, because every
    /// value has been checked.
    pub(super) fn assign(&mut self, values: &mut Vec<(usize, NewValue)>) {
        for (index, value) in values.drain(..) {
            self.set(index, value);
        }
        self.generator.draws += 1;
    }

    /// Returns the state before training: stored values, no random number drawn, start of the data.
    pub(super) fn to_initial_state(&self) -> State {
        let mut state = self.clone();
        for (variable, current) in self.variables.iter().zip(&mut state.current) {
            *current = Current::from_stored(&variable.stored);
        }
        state.generator.draws = 0;
        state.position = DataPosition::default();
        state.mark_consistent();
        state
    }

    pub(super) fn seed(&self) -> u64 {
        self.generator.seed
    }

    pub(super) fn generator(&self) -> Generator {
        self.generator
    }

    pub(super) fn set_generator(&mut self, generator: Generator) {
        self.generator = generator;
    }

    /// Returns the seed for random operators of the next training step or initialization.
    pub(super) fn make_step_seed(&self) -> u64 {
        mix_seed(self.generator, 0)
    }

    /// Returns the seed for random operators of inference between the last training step and the
    /// next.
    pub(super) fn make_inference_seed(&self) -> u64 {
        mix_seed(self.generator, 1)
    }

    /// Writes changed values of state variables into the initializers of a model. Unchanged
    /// initializers keep their encoding in the file.
    pub(super) fn write_into(&self, model: &mut Model) -> Result<(), Error> {
        self.demand_consistent()?;
        let assigned = self.variables.iter().zip(&self.current);
        let mut sparse: HashMap<GraphId, SparseStates> = HashMap::new();
        for (Variable { place, stored, .. }, Current { held, .. }) in
            assigned.filter(|(_, current)| current.is_assigned)
        {
            let value = held.to_tensor()?;
            // Loading a state assigns every variable, changed or not.
            if value.bytes() == stored.bytes() {
                continue;
            }
            let proto = model.graph.tensor_proto(&value);
            match place.slot {
                Slot::Dense(index) => {
                    let initializers = &mut model.graph.graph_mut(place.graph).initializers;
                    let tensor = &mut initializers[index].tensor;
                    tensor.raw_data = proto.raw_data;
                    tensor.typed = proto.typed;
                    tensor.external_data.clear();
                    tensor.data_location = None;
                }
                Slot::Sparse(index) => {
                    sparse.entry(place.graph).or_default().insert(index, proto);
                }
            }
        }
        for (graph, dense) in sparse {
            model.graph.replace_sparse_initializers(graph, dense);
        }
        Ok(())
    }
}

impl Variable {
    /// Reads the stored value of an initializer; fails if it is a string tensor or unreadable.
    fn new(model: &Model, place: Place, name: String) -> Result<Variable, Error> {
        let graph = &model.graph;
        let initializer = place.find_tensor(graph);
        let number = initializer.and_then(|initializer| initializer.data_type);
        if number == Some(NumberedType::STRING.0) {
            let message = format!(
                "the state variable '{name}' has type string, which training cannot assign"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let unreadable = |error: &dyn fmt::Display| {
            let is_external = initializer.is_some_and(graph::TensorProto::is_external);
            let kind = if is_external { ErrorKind::ExternalData } else { ErrorKind::Invalid };
            Error::new(kind, format!("the state variable '{name}' has no stored value: {error}"))
        };
        let lists = graph.graph(place.graph);
        let stored = match place.slot {
            Slot::Dense(index) => graph.tensor(&lists.initializers[index].tensor, &*model.data),
            Slot::Sparse(index) => {
                let sparse = &lists.sparse_initializers[index].tensor;
                let sparse = graph.sparse_tensor(sparse, &*model.data);
                let sparse = sparse.map_err(|error| unreadable(&error))?;
                Ok(sparse.to_dense().map_err(|error| unreadable(&error))?)
            }
        };
        let stored = stored.map_err(|error| unreadable(&error))?;
        let is_default = place
            .find_value(graph)
            .is_some_and(|value| matches!(graph.value(value).producer, Producer::Input(_)));
        Ok(Variable { is_default, name, place, stored })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Evicts the mapped pages of the stored value, which is read again only if training is reset.
    /// Otherwise they would take memory beside the current value.
    fn give_back_pages(&self) {
        if let Some(buffer) = self.stored.buffer() {
            buffer.give_back_pages();
        }
    }

    /// Fails if a value differs from the state variable in type or shape.
    pub(super) fn check(&self, value: &TensorView<'_>, kind: ErrorKind) -> Result<(), Error> {
        let Variable { name, stored, .. } = self;
        if value.data_type() == stored.data_type() && value.dims() == stored.dims() {
            return Ok(());
        }
        let given = Type::tensor(value.data_type(), value.dims().iter().copied());
        let message = format!("the state variable '{name}' is {}, not {given}", to_type(stored));
        Err(Error::new(kind, message))
    }
}

/// Dense replacements of a graph's sparse initializers, by position.
type SparseStates = BTreeMap<usize, graph::TensorProto>;

/// Maximum number of elements of the sparse state variables of any model, whatever its size.
const SPARSE_ELEMENTS: u64 = 1 << 28;
/// Maximum number of elements of sparse state variables per element of dense ones, in a larger
/// model. Adam keeps two for each weight, and a third one for a 16-bit weight.
const SPARSE_RATIO: u64 = 8;

/// Fails if sparse state variables take much more memory than the dense values in the file: a few
/// bytes of a sparse tensor stand for any number of elements, and a trainer materializes all of
/// them.
fn demand_density(model: &graph::Model, places: &Places) -> Result<(), Error> {
    let (mut dense, mut sparse) = (0u64, 0u64);
    for (_, place) in &places.all {
        let sizes = place.dims(model).iter().map(|size| u64::try_from(*size).unwrap_or(0));
        let elements = sizes.fold(1, u64::saturating_mul);
        let sum = if matches!(place.slot, Slot::Sparse(_)) { &mut sparse } else { &mut dense };
        *sum = sum.saturating_add(elements);
    }
    if sparse <= SPARSE_ELEMENTS.max(dense.saturating_mul(SPARSE_RATIO)) {
        return Ok(());
    }
    let message = format!(
        "the sparse state variables have {sparse} elements, more than {SPARSE_RATIO} for each of \
         the {dense} elements of dense state variables"
    );
    Err(Error::new(ErrorKind::Invalid, message)
        .with_help("store the sparse state variables as dense initializers"))
}

/// Returns the type of a tensor.
pub(super) fn to_type(tensor: &Tensor) -> Type {
    Type::tensor(tensor.data_type(), tensor.dims().iter().copied())
}

/// Derives a seed for one run from the generator by the rounds of SplitMix64. Seeds for different
/// `draws` and `purpose` are independent.
fn mix_seed(generator: Generator, purpose: u64) -> u64 {
    let mut mixed = generator.seed;
    for word in [generator.draws, purpose] {
        mixed = (mixed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed
}
