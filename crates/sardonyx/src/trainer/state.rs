//! State variables: which initializers they are, and what they hold.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Arc, OnceLock};

use sardonyx_model::{
    self as graph, Entry, GraphId, Producer, Symbol, TrainingInfo, Type, ValueId,
};
use sardonyx_passes::Form;
use sardonyx_proto::{DataType as NumberedType, closest};
use sardonyx_tensor::{DataType, Tensor, TensorError, TensorView, TensorViewMut};

use crate::devices::{DeviceSession, Parts};
use crate::error::{Error, ErrorKind};
use crate::model::Model;

/// An initializer that training changes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateVariable {
    /// The name of the initializer.
    pub name: String,
    /// The entry of the training information whose algorithm has it; `None` for the main graph.
    pub entry: Option<usize>,
    /// Element type; `None` if the file's number is not one of the standard's.
    pub data_type: Option<DataType>,
    /// Dimensions, as the file has them.
    pub dims: Vec<i64>,
}

/// An entry of the training information, as the file says it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrainingEntry {
    /// Name of the initialization graph; `None` if there is none.
    pub initialization: Option<String>,
    /// Name of the algorithm; `None` if there is none.
    pub algorithm: Option<String>,
    /// Inputs of the algorithm.
    pub inputs: Vec<String>,
    /// Outputs of the algorithm.
    pub outputs: Vec<String>,
    /// State variables, and the outputs of the initialization that they get.
    pub initialization_binding: Vec<(String, String)>,
    /// State variables, and the outputs of a training step that they get.
    pub update_binding: Vec<(String, String)>,
}

/// Place of a state variable in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) graph: GraphId,
    slot: Slot,
}

/// Position of a state variable among the dense or the sparse initializers of its graph. Dense ones
/// come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Slot {
    Dense(usize),
    Sparse(usize),
}

impl Place {
    /// The value of the initializer.
    pub(super) fn value(self, model: &graph::Model) -> Option<ValueId> {
        let graph = model.graph(self.graph);
        match self.slot {
            Slot::Dense(index) => graph.initializers[index].value,
            Slot::Sparse(index) => graph.sparse_initializers[index].value,
        }
    }

    /// The stored tensor: that of the values, if the initializer is sparse.
    fn stored(self, model: &graph::Model) -> Option<&graph::TensorProto> {
        let graph = model.graph(self.graph);
        match self.slot {
            Slot::Dense(index) => Some(&graph.initializers[index].tensor),
            Slot::Sparse(index) => graph.sparse_initializers[index].tensor.values.as_ref(),
        }
    }

    /// Dimensions, as the file has them.
    fn dims(self, model: &graph::Model) -> &[i64] {
        let graph = model.graph(self.graph);
        match self.slot {
            Slot::Dense(index) => &graph.initializers[index].tensor.dims,
            Slot::Sparse(index) => &graph.sparse_initializers[index].tensor.dims,
        }
    }
}

/// The initializers that bindings name.
pub(super) struct Places {
    /// Those of the main graph, then those of the algorithms, in the order of the file, with the
    /// entry whose algorithm has them.
    pub(super) all: Vec<(Option<usize>, Place)>,
    by_name: HashMap<(GraphId, Symbol), usize>,
    main: Option<GraphId>,
}

impl Places {
    pub(super) fn of(model: &graph::Model) -> Places {
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
            for key in bindings(info).filter_map(|binding| binding.key) {
                let at = |graph: Option<GraphId>| slot_of.get(&(graph?, key)).copied();
                let found = at(model.main).map(|slot| (None, slot));
                wanted.extend(found.or_else(|| Some((Some(entry), at(info.algorithm)?))));
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
            if let Some(name) = place.stored(model).and_then(|stored| stored.name) {
                places.by_name.insert((graph, name), places.all.len());
            }
            places.all.push((entry, place));
        }
        places
    }

    /// The number of the state variable that a binding of an entry names.
    pub(super) fn find(&self, info: &TrainingInfo, name: Symbol) -> Option<usize> {
        let graphs = [self.main, info.algorithm];
        graphs.into_iter().flatten().find_map(|graph| self.by_name.get(&(graph, name)).copied())
    }
}

/// All bindings of an entry.
fn bindings(info: &TrainingInfo) -> impl Iterator<Item = &Entry> {
    info.initialization_binding.iter().chain(&info.update_binding)
}

/// What training information says; nothing is judged.
impl Model {
    /// The entries of the training information. [`Trainer`](crate::Trainer) runs them.
    pub(crate) fn training_entries(&self) -> Vec<TrainingEntry> {
        let model = &self.graph;
        let pairs = |list: &[Entry]| {
            let pair = |entry: &Entry| [entry.key, entry.value].map(|name| self.shown(name));
            list.iter().map(|entry| pair(entry).into()).collect()
        };
        let names =
            |infos: &[graph::ValueInfo]| infos.iter().map(|info| self.shown(info.name)).collect();
        let entry = |info: &TrainingInfo| {
            let algorithm = info.algorithm.map(|algorithm| model.graph(algorithm));
            TrainingEntry {
                initialization: info.initialization.map(|id| self.shown(model.graph(id).name)),
                algorithm: algorithm.map(|algorithm| self.shown(algorithm.name)),
                inputs: algorithm.map(|algorithm| names(&algorithm.inputs)).unwrap_or_default(),
                outputs: algorithm.map(|algorithm| names(&algorithm.outputs)).unwrap_or_default(),
                initialization_binding: pairs(&info.initialization_binding),
                update_binding: pairs(&info.update_binding),
            }
        };
        model.training_info.iter().map(entry).collect()
    }

    /// The initializers that a binding of the training information names: those of the main graph,
    /// then those of the algorithms.
    pub fn state_variables(&self) -> Vec<StateVariable> {
        let places = Places::of(&self.graph);
        let variable = |(entry, place): &(Option<usize>, Place)| {
            let stored = place.stored(&self.graph);
            let number = stored.and_then(|stored| stored.data_type);
            StateVariable {
                name: self.shown(stored.and_then(|stored| stored.name)),
                entry: *entry,
                data_type: number.and_then(DataType::from_number),
                dims: place.dims(&self.graph).to_vec(),
            }
        };
        places.all.iter().map(variable).collect()
    }

    pub(super) fn shown(&self, name: Option<Symbol>) -> String {
        self.graph.display(name).into_owned()
    }
}

/// The position of training in its data. A [`Trainer`](crate::Trainer) keeps it for its
/// caller, and [`save`](crate::Trainer::save) writes it to the file of the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataPosition {
    /// Passes over the data that are complete.
    pub epochs: u64,
    /// Examples that steps of the pass after these have taken.
    pub examples: u64,
}

/// What becomes the value of a state variable.
pub(super) enum New {
    /// A tensor here.
    Whole(Tensor),
    /// A tensor that only devices have.
    OnDevices(Arc<Parts>),
    /// It has been written over the old value.
    InPlace,
}

/// A value of a state variable. Cloning copies no element.
#[derive(Clone)]
pub(super) enum Held {
    /// A tensor here, and what devices have of it once they have read it.
    Whole(Tensor, Arc<OnceLock<Arc<Parts>>>),
    /// A tensor that only devices have.
    OnDevices(Arc<Parts>),
}

impl Held {
    pub(super) fn whole(value: Tensor) -> Held {
        Held::Whole(value, Arc::default())
    }

    /// Takes another value.
    fn replace(&mut self, value: New) {
        match value {
            New::OnDevices(parts) => *self = Held::OnDevices(parts),
            New::Whole(value) => match self {
                Held::Whole(old, known) => {
                    forget(known);
                    *old = value;
                }
                Held::OnDevices(_) => *self = Held::whole(value),
            },
            New::InPlace => {
                if let Held::Whole(_, known) = self {
                    forget(known);
                }
            }
        }
    }

    /// The value in one piece.
    fn tensor(&self) -> Result<Tensor, Error> {
        match self {
            Held::Whole(value, _) => Ok(value.clone()),
            Held::OnDevices(parts) => parts.whole(),
        }
    }

    /// What devices have of it. The form of a variable is always the same.
    pub(super) fn parts(&self, devices: &DeviceSession, form: &Form) -> Result<Arc<Parts>, Error> {
        match self {
            Held::OnDevices(parts) => Ok(Arc::clone(parts)),
            Held::Whole(value, known) => {
                if let Some(parts) = known.get() {
                    return Ok(Arc::clone(parts));
                }
                let parts = Arc::new(devices.parts_of(value, form)?);
                Ok(Arc::clone(known.get_or_init(|| parts)))
            }
        }
    }
}

/// Forgets what devices have of an old value. Its place stays, if nobody else has it.
fn forget(known: &mut Arc<OnceLock<Arc<Parts>>>) {
    match Arc::get_mut(known) {
        Some(known) => drop(known.take()),
        None => *known = Arc::default(),
    }
}

/// A state variable.
pub(super) struct Variable {
    /// Its name, or one that tells it from a variable of another entry.
    name: String,
    place: Place,
    /// Whether it is an input of the main graph as well.
    is_default: bool,
    /// The value before any was assigned, whose type all others have.
    stored: Tensor,
}

/// What a state variable holds. Cloning copies no value.
#[derive(Clone)]
struct Current {
    held: Held,
    /// Whether it was assigned since it had its stored value.
    is_assigned: bool,
}

impl Current {
    fn stored(value: &Tensor) -> Current {
        Current { held: Held::whole(value.clone()), is_assigned: false }
    }
}

/// The state of a trainer.
#[derive(Clone)]
pub(super) struct State {
    variables: Arc<[Variable]>,
    /// By variable.
    current: Vec<Current>,
    seed: u64,
    /// Steps and initializations that have drawn random numbers, or could have.
    draws: u64,
    pub(super) position: DataPosition,
    /// Whether a panic left some variables with new values and others with old ones.
    is_torn: bool,
}

impl State {
    /// Every variable with its stored value.
    pub(super) fn new(model: &Model, places: &Places, seed: Option<u64>) -> Result<State, Error> {
        demand_density(&model.graph, places)?;
        let stored = places.all.iter().map(|(_, place)| place.stored(&model.graph));
        let names: Vec<String> =
            stored.map(|stored| model.shown(stored.and_then(|stored| stored.name))).collect();
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
        // The hasher of the standard library has keys from the system.
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        let current = variables.iter().map(|variable| Current::stored(&variable.stored)).collect();
        let position = DataPosition::default();
        Ok(State { variables: variables.into(), current, seed, draws: 0, position, is_torn: false })
    }

    /// Names and types.
    pub(super) fn types(&self) -> impl ExactSizeIterator<Item = (&str, Type)> {
        let variables = self.variables.iter();
        variables.map(|variable| (variable.name.as_str(), type_of(&variable.stored)))
    }

    /// Names, and the values before any was assigned.
    pub(super) fn stored_values(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.variables.iter().map(|variable| (variable.name.as_str(), &variable.stored))
    }

    /// Notes that the values are not those of one point of training.
    pub(super) fn tear(&mut self) {
        self.is_torn = true;
    }

    /// Notes that every variable has a value of its own again.
    pub(super) fn mend(&mut self) {
        self.is_torn = false;
    }

    /// Refuses a state whose values are not those of one point of training.
    pub(super) fn demand_whole(&self) -> Result<(), Error> {
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

    /// Names and values.
    pub(super) fn values(&self) -> Result<Vec<(&str, Tensor)>, Error> {
        self.demand_whole()?;
        let values = self.variables.iter().zip(&self.current);
        values
            .map(|(variable, current)| Ok((variable.name.as_str(), current.held.tensor()?)))
            .collect()
    }

    pub(super) fn len(&self) -> usize {
        self.variables.len()
    }

    pub(super) fn find(&self, name: &str) -> Result<usize, Error> {
        let found = self.variables.iter().position(|variable| variable.name == name);
        found.ok_or_else(|| {
            let message = format!("state variable '{name}' does not exist");
            let error = Error::new(ErrorKind::Input, message);
            let names: Vec<&str> = self.types().map(|(name, _)| name).collect();
            match closest(name, names.iter().copied()) {
                Some(near) => error.with_help(format!("did you mean '{near}'?")),
                None => error.with_help(format!("use one of: {}", names.join(", "))),
            }
        })
    }

    pub(super) fn name(&self, index: usize) -> &str {
        &self.variables[index].name
    }

    /// The value of a variable in one piece.
    pub(super) fn value(&self, index: usize) -> Result<Tensor, Error> {
        self.demand_whole()?;
        self.current[index].held.tensor()
    }

    pub(super) fn held(&self, index: usize) -> &Held {
        &self.current[index].held
    }

    /// The value of a variable before any was assigned, whose type all others have.
    pub(super) fn stored(&self, index: usize) -> &Tensor {
        &self.variables[index].stored
    }

    pub(super) fn is_default(&self, index: usize) -> bool {
        self.variables[index].is_default
    }

    /// Refuses a value of another type or shape than a variable has.
    pub(super) fn check(&self, index: usize, value: &Tensor, kind: ErrorKind) -> Result<(), Error> {
        self.variables[index].check(&value.view(), kind)
    }

    pub(super) fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// Whether the memory of the value of a variable is nobody else's, so that a new value can be
    /// written over it. A stored value is copied for that once. A value that others hold, as a
    /// clone does, is not: to copy it takes as much memory as the new value, and longer.
    ///
    /// # Errors
    ///
    /// If there is no memory for the copy.
    pub(super) fn make_own(&mut self, index: usize) -> Result<bool, Error> {
        let (variable, current) = (&self.variables[index], &mut self.current[index]);
        let Held::Whole(value, _) = &mut current.held else { return Ok(false) };
        if !current.is_assigned && !value.is_unique() {
            let refused = |error: TensorError| Error::new(ErrorKind::Run, error.to_string());
            value.view_mut().map_err(refused)?;
            variable.give_back_pages();
        }
        Ok(value.is_unique())
    }

    /// All variables, and for some the memory of their values, which is [their
    /// own](State::make_own). `names` has these, with what they are called elsewhere, in the order
    /// of their numbers.
    pub(super) fn overwritable<'s>(
        &'s mut self,
        names: impl Iterator<Item = &'s (String, usize)>,
    ) -> (&'s [Variable], impl Iterator<Item = (&'s str, TensorViewMut<'s>)>) {
        let State { variables, current, .. } = self;
        let mut names = names.peekable();
        let memory = current.iter_mut().enumerate().filter_map(move |(number, current)| {
            let (name, _) = names.next_if(|(_, wanted)| *wanted == number)?;
            match &mut current.held {
                // It is nobody else's: nothing is copied that could fail.
                Held::Whole(value, _) => Some((name.as_str(), value.view_mut().ok()?)),
                Held::OnDevices(_) => None,
            }
        });
        (variables, memory)
    }

    /// Gives one variable a value that fits.
    pub(super) fn set(&mut self, index: usize, value: New) {
        let (variable, current) = (&self.variables[index], &mut self.current[index]);
        if !current.is_assigned {
            variable.give_back_pages();
        }
        current.held.replace(value);
        current.is_assigned = true;
    }

    /// Takes over what a run has computed. Cannot fail: all has been checked.
    pub(super) fn assign(&mut self, values: &mut Vec<(usize, New)>) {
        for (index, value) in values.drain(..) {
            self.set(index, value);
        }
        self.draws += 1;
    }

    /// Every variable with its stored value, no random number drawn, and at the start of the data.
    pub(super) fn at_beginning(&self) -> State {
        let mut state = self.clone();
        for (variable, current) in self.variables.iter().zip(&mut state.current) {
            *current = Current::stored(&variable.stored);
        }
        state.draws = 0;
        state.position = DataPosition::default();
        state.mend();
        state
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// The seed, and how many steps have drawn by it.
    pub(super) fn generator(&self) -> [u64; 2] {
        [self.seed, self.draws]
    }

    pub(super) fn set_generator(&mut self, [seed, draws]: [u64; 2]) {
        (self.seed, self.draws) = (seed, draws);
    }

    /// What the next step or initialization draws by.
    pub(super) fn seed_of_step(&self) -> u64 {
        mixed(self.seed, self.draws, 0)
    }

    /// What inference draws by between the last step and the next.
    pub(super) fn seed_of_inference(&self) -> u64 {
        mixed(self.seed, self.draws, 1)
    }

    /// Puts values that have changed into the initializers; others stay as the file has them.
    pub(super) fn write_into(&self, model: &mut Model) -> Result<(), Error> {
        self.demand_whole()?;
        let assigned = self.variables.iter().zip(&self.current);
        let mut sparse: HashMap<GraphId, SparseStates> = HashMap::new();
        for (Variable { place, stored, .. }, Current { held, .. }) in
            assigned.filter(|(_, current)| current.is_assigned)
        {
            let value = held.tensor()?;
            // A state that was loaded has assigned all of them.
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
    fn new(model: &Model, place: Place, name: String) -> Result<Variable, Error> {
        let graph = &model.graph;
        let initializer = place.stored(graph);
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
        let is_input = |value: ValueId| matches!(graph.value(value).producer, Producer::Input(_));
        Ok(Variable { is_default: place.value(graph).is_some_and(is_input), name, place, stored })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The stored value is read again only if training starts anew: until then, pages of the file
    /// need not be in memory beside the values that took its place.
    fn give_back_pages(&self) {
        if let Some(buffer) = self.stored.buffer() {
            buffer.give_back_pages();
        }
    }

    /// Refuses a value of another type or shape.
    pub(super) fn check(&self, value: &TensorView<'_>, kind: ErrorKind) -> Result<(), Error> {
        let Variable { name, stored, .. } = self;
        if value.data_type() == stored.data_type() && value.dims() == stored.dims() {
            return Ok(());
        }
        let given = Type::tensor(value.data_type(), value.dims().iter().copied());
        let message = format!("the state variable '{name}' is {}, not {given}", type_of(stored));
        Err(Error::new(kind, message))
    }
}

/// Dense tensors that replace the sparse initializers of a graph, by position.
type SparseStates = BTreeMap<usize, graph::TensorProto>;

/// Elements up to which sparse state is accepted whatever the model stores.
const SPARSE_ELEMENTS: u64 = 1 << 28;
/// Elements of sparse state for each element of dense state. Adam keeps two for each weight, and a
/// third one if the weight has 16 bits.
const SPARSE_RATIO: u64 = 8;

/// Refuses sparse state that takes much more memory than the model stores: a few bytes of a file
/// can stand for any number of elements, and a trainer has all of them in memory.
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
         the {dense} elements of dense ones"
    );
    Err(Error::new(ErrorKind::Invalid, message).with_help("store them as dense initializers"))
}

/// The type of a tensor.
pub(super) fn type_of(tensor: &Tensor) -> Type {
    Type::tensor(tensor.data_type(), tensor.dims().iter().copied())
}

/// A number that looks random and is another one for each draw of a generator and each purpose.
fn mixed(seed: u64, draws: u64, purpose: u64) -> u64 {
    let mut mixed = seed;
    for word in [draws, purpose] {
        // The steps of the generator SplitMix64.
        mixed = (mixed ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed
}
