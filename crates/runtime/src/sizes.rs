//! Types of all values for one set of sizes of the inputs.
//!
//! If the model fixes all sizes of its inputs, what was inferred when the session was made is all
//! that there is to know. Otherwise the first set is inferred. When a second one comes, inference
//! runs once more with a symbol for every size of an input, and what it says becomes a list of
//! operations over these sizes, together with the conditions under which it holds: sizes that must
//! be equal, divisions that must come out. Computing the list is all that the second set and every
//! later one cost. Where a condition does not hold, inference runs with the numbers: as a rule it
//! finds an error.
//!
//! If the list does not say of the first set of sizes what inference says, because formulas cannot
//! say what numbers can, every set is inferred. What neither knows, data decides.
//!
//! A body whose inputs have other sizes in every iteration of a loop is treated the same way.

use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Computed, Dim, Formula, Formulas, GraphId, Type, ValueId};
use sardonyx_ops::Known;
use sardonyx_passes::{Conditions, InferOptions, Inference, infer, infer_inside};
use sardonyx_tensor::{DataType, Dims, Tensor};
use smallvec::SmallVec;

use crate::error::{InputError, RunError};
use crate::executable::{Body, Executable};
use crate::program::{MoveKind, Slot};

/// What is known of the values of a run before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// By slot: type and dimensions, where known.
    pub(crate) types: Vec<Option<(DataType, Dims)>>,
    /// Values that say where elements lie, by slot.
    pub(crate) ints: HashMap<Slot, Vec<i64>>,
    /// By number of a step with inner graphs, in order: the sizes in these.
    pub(crate) inner: Vec<(usize, Vec<Sizes>)>,
}

/// A program whose sizes are wanted: that of the main graph, or one of an inner graph.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'e> {
    pub(crate) executable: &'e Executable,
    pub(crate) body: &'e Body,
    /// The inner graph.
    graph: Option<GraphId>,
}

impl<'e> Scope<'e> {
    /// The main graph.
    pub(crate) fn main(executable: &'e Executable) -> Scope<'e> {
        Scope { executable, body: &executable.body, graph: None }
    }

    /// An inner graph. Its inputs are what it is given, then what it captures.
    pub(crate) fn inside(executable: &'e Executable, body: &'e Body) -> Scope<'e> {
        Scope { executable, body, graph: body.graph }
    }

    /// The inputs by position, as values of the model.
    fn inputs(self) -> Vec<Option<ValueId>> {
        let Some(_) = self.graph else {
            let resolved = &self.executable.resolved;
            let inputs = &resolved.model().graph(resolved.main()).inputs;
            return inputs.iter().map(|info| info.value).collect();
        };
        let slots = self.body.inputs.iter();
        slots.map(|slot| slot.map(|slot| self.body.slots[slot.index()].value)).collect()
    }
}

impl Sizes {
    /// Infers them for inputs of the given types, by position.
    pub(crate) fn inferred(scope: Scope<'_>, inputs: &[Option<Type>]) -> Result<Sizes, RunError> {
        let inference = inferred(scope, inputs)?;
        Ok(Sizes::of(scope.executable, scope.body, &inference))
    }

    /// What inference said when the session was made, if it knew these types of the inputs then:
    /// to infer them again would take most of the time of a first run. `None` if it knew less.
    pub(crate) fn compiled(scope: Scope<'_>, inputs: &[Option<Type>]) -> Option<Sizes> {
        let Scope { executable, body, graph: None } = scope else { return None };
        let known = |value: ValueId| executable.inference.ty(value).and_then(sized);
        let is_known = |(value, given): (Option<ValueId>, &Option<Type>)| match given {
            // Nothing is known of it in a run either.
            None => true,
            Some(given) => {
                let known = value.and_then(known);
                known.is_some() && known == sized(given)
            }
        };
        let is_known = scope.inputs().into_iter().zip(inputs).all(is_known);
        is_known.then(|| Sizes::of(executable, body, &executable.inference))
    }

    /// What inference says with numbers of the values of a program.
    pub(crate) fn of(executable: &Executable, body: &Body, inference: &Inference) -> Sizes {
        let type_of = |value| inference.ty(value).and_then(sized);
        let slots = body.slots.iter();
        let types = slots.map(|slot| slot.fixed().or_else(|| type_of(slot.value))).collect();
        let ints = pointing_slots(executable, body).filter_map(|slot| {
            let info = &body.slots[slot.index()];
            let known = || inference.known(info.value).and_then(Known::to_tensor);
            Some((slot, integers(&info.constant.as_deref().cloned().or_else(known)?)?))
        });
        let steps = body.steps.iter().enumerate();
        let inner = steps.filter(|(_, step)| !step.bodies().is_empty()).map(|(index, step)| {
            let bodies = step.bodies().iter();
            (index, bodies.map(|body| Sizes::of(executable, body, inference)).collect())
        });
        Sizes { types, ints: ints.collect(), inner: inner.collect() }
    }
}

/// What inference says for inputs of the given types, by position.
///
/// # Errors
///
/// Types with which the model contradicts itself.
pub(crate) fn inferred(scope: Scope<'_>, inputs: &[Option<Type>]) -> Result<Inference, RunError> {
    inferred_over(scope, inputs, None)
}

fn inferred_over(
    scope: Scope<'_>,
    inputs: &[Option<Type>],
    sizes: Option<&HashSet<String>>,
) -> Result<Inference, RunError> {
    let executable = scope.executable;
    let constant = |value: ValueId| settled(executable, value);
    let options = InferOptions {
        symbols: &executable.dims,
        known: Some(&constant),
        rules: executable.operators.rules(),
        sizes,
        // What does not fit in a branch fails in its step, if the branch is taken at all.
        inner_may_contradict: true,
        ..InferOptions::default()
    };
    let found = match scope.graph {
        None => infer(&executable.resolved, InferOptions { inputs, ..options }),
        Some(graph) => {
            let given = scope.inputs().into_iter().zip(inputs);
            let given: Vec<(ValueId, Type)> =
                given.filter_map(|(value, ty)| Some((value?, ty.clone()?))).collect();
            infer_inside(&executable.resolved, graph, &executable.inference, &given, options)
        }
    };
    found.map_err(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        RunError::Input(InputError::new(format!(
            "the model is invalid for inputs of these shapes\n  {}",
            lines.join("\n  ")
        )))
    })
}

/// What is known of a value for all sizes of the inputs. What was known only as a formula of these
/// is found anew.
fn settled(executable: &Executable, value: ValueId) -> Option<Known> {
    let known = executable.inference.known(value)?;
    let is_settled = match known {
        Known::Tensor(_) => true,
        Known::Ints { values, .. } => values.iter().all(|value| value.known().is_some()),
    };
    is_settled.then(|| known.clone())
}

/// Element type and dimensions of a tensor of which everything is known.
pub(crate) fn sized(ty: &Type) -> Option<(DataType, Dims)> {
    let dims = ty.shape()?.iter().map(|dim| dim.size()).collect::<Option<Dims>>()?;
    Some((ty.elem()?, dims))
}

/// The elements of a tensor of integers.
pub(crate) fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.data_type() {
        DataType::Int64 => tensor.to_vec().ok(),
        DataType::Int32 => Some(tensor.to_vec::<i32>().ok()?.into_iter().map(i64::from).collect()),
        _ => None,
    }
}

/// Slots whose values say where the elements of others lie.
fn pointing_slots(executable: &Executable, body: &Body) -> impl Iterator<Item = Slot> {
    let steps = body.steps.iter();
    // What is joined is data, and says nothing of where it lies.
    let points = |movement: &MoveKind| !matches!(movement, MoveKind::Concat(_));
    let moves = steps.filter_map(|step| Some((step, step.movement.as_ref()?)));
    let moves = moves.filter(move |(_, movement)| points(movement));
    moves.flat_map(|(step, movement)| {
        let slots = step.inputs.iter().skip(1).flatten().copied();
        // A slice of its own has an address, several that are picked have none.
        let is_one = |slot: &Slot| is_one_element(executable, body, *slot);
        let is_gather = matches!(**movement, MoveKind::Gather(_));
        slots.filter(move |slot| !is_gather || is_one(slot))
    })
}

/// Whether a slot has one element, whatever the sizes of inputs are.
fn is_one_element(executable: &Executable, body: &Body, slot: Slot) -> bool {
    let slot = &body.slots[slot.index()];
    let dims = match slot.fixed() {
        Some((_, dims)) => Some(dims),
        None => executable.inference.ty(slot.value).and_then(sized).map(|(_, dims)| dims),
    };
    dims.is_some_and(|dims| dims.iter().all(|dim| *dim == 1))
}

/// The sizes of a session: inferred, or computed once it is known how.
#[derive(Debug, Default)]
pub(crate) struct KnownSizes(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    /// No sizes were asked for yet.
    #[default]
    Nothing,
    /// Those of one set of inputs.
    First(Vec<Option<Type>>, Sizes),
    /// Computed.
    List(Arc<SizeList>),
    /// Inference with numbers knows more than any list could say, or formulas are too large.
    NoList,
}

/// Sizes, and where they come from.
pub(crate) struct Found {
    pub(crate) sizes: Sizes,
    /// Whether inference with these numbers had nothing to say against them. What a list cannot
    /// know of, kernels find.
    pub(crate) is_inferred: bool,
}

impl KnownSizes {
    /// The sizes for inputs of the given types, by position.
    ///
    /// # Errors
    ///
    /// Types with which the model contradicts itself.
    pub(crate) fn find(
        &self,
        scope: Scope<'_>,
        inputs: &[Option<Type>],
    ) -> Result<Found, RunError> {
        if let Some(sizes) = Sizes::compiled(scope, inputs) {
            return Ok(Found { sizes, is_inferred: true });
        }
        let state = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = {
            let mut state = state();
            if let State::First(first, sizes) = &*state
                && first != inputs
            {
                let list = SizeList::new(scope, first, sizes);
                *state = list.map_or(State::NoList, |list| State::List(Arc::new(list)));
            }
            match &*state {
                State::List(list) => Some(list.clone()),
                _ => None,
            }
        };
        if let Some(sizes) = list.and_then(|list| list.compute(inputs)) {
            return Ok(Found { sizes, is_inferred: false });
        }
        let sizes = Sizes::inferred(scope, inputs)?;
        let mut state = state();
        if let State::Nothing = &*state {
            *state = State::First(inputs.to_vec(), sizes.clone());
        }
        Ok(Found { sizes, is_inferred: true })
    }
}

/// Sizes as operations over the sizes of the inputs.
#[derive(Debug)]
pub(crate) struct SizeList {
    inputs: Vec<Option<Pattern>>,
    /// How many different sizes inputs have.
    symbols: usize,
    formulas: Formulas,
    body: BodyList,
    conditions: Conditions,
}

/// The part of a list that is about the slots of one program.
#[derive(Debug, Default)]
struct BodyList {
    /// By slot.
    types: Vec<SlotType>,
    ints: Vec<(Slot, SlotInts)>,
    /// As [`Sizes::inner`].
    inner: Vec<(usize, Vec<BodyList>)>,
}

/// Which tensors the list is for, by input.
#[derive(Debug)]
struct Pattern {
    elem: DataType,
    dims: SmallVec<[PatternDim; 4]>,
}

#[derive(Debug, Clone, Copy)]
enum PatternDim {
    Fixed(i64),
    Symbol(usize),
}

#[derive(Debug)]
enum SlotType {
    /// The same for all sizes: of a constant, or known for other reasons, or not known.
    Fixed(Option<(DataType, Dims)>),
    Computed(DataType, SmallVec<[Formula; 4]>),
}

#[derive(Debug)]
enum SlotInts {
    Fixed(Vec<i64>),
    Computed(DataType, Vec<Formula>),
}

impl SizeList {
    /// For inputs like some of which the sizes are known. `None` if the list does not say these.
    fn new(scope: Scope<'_>, first: &[Option<Type>], known: &Sizes) -> Option<SizeList> {
        let list = SizeList::like(scope, first)?;
        (list.compute(first)? == *known).then_some(list)
    }

    /// For inputs like some of which the sizes are known.
    pub(crate) fn like(scope: Scope<'_>, first: &[Option<Type>]) -> Option<SizeList> {
        let (inputs, names) = patterns(scope, first)?;
        let types: Vec<Option<Type>> =
            inputs.iter().map(|pattern| Some(pattern.as_ref()?.ty(&names))).collect();
        let set = names.iter().cloned().collect();
        let inference = inferred_over(scope, &types, Some(&set)).ok()?;
        let mut formulas = Formulas::new(names.iter().map(String::as_str));
        let body = BodyList::new(scope.executable, scope.body, &inference, &mut formulas);
        let values = scope.executable.resolved.model().value_count();
        let conditions = Conditions::new(&inference, values, &mut formulas)?;
        Some(SizeList { inputs, symbols: names.len(), formulas, body, conditions })
    }

    /// The sizes for inputs of the given types. `None` if they are not like those that the list was
    /// made for, or a condition does not hold.
    pub(crate) fn compute(&self, inputs: &[Option<Type>]) -> Option<Sizes> {
        let computed = self.formulas.compute(&self.bind(inputs)?)?;
        if !self.conditions.hold(&computed) {
            return None;
        }
        self.body.sizes(&computed)
    }

    /// The numbers of the symbols.
    fn bind(&self, inputs: &[Option<Type>]) -> Option<SmallVec<[i64; 8]>> {
        if inputs.len() != self.inputs.len() {
            return None;
        }
        let mut numbers: SmallVec<[Option<i64>; 8]> = SmallVec::from_elem(None, self.symbols);
        for (pattern, input) in self.inputs.iter().zip(inputs) {
            let (Some(pattern), Some(input)) = (pattern, input) else {
                if pattern.is_some() || input.is_some() {
                    return None;
                }
                continue;
            };
            let dims = input.shape()?;
            if input.elem() != Some(pattern.elem) || dims.len() != pattern.dims.len() {
                return None;
            }
            for (wanted, dim) in pattern.dims.iter().zip(dims) {
                let number = dim.known()?;
                let fits = match wanted {
                    PatternDim::Fixed(wanted) => *wanted == number,
                    PatternDim::Symbol(symbol) => *numbers[*symbol].get_or_insert(number) == number,
                };
                if !fits {
                    return None;
                }
            }
        }
        numbers.into_iter().collect()
    }
}

impl BodyList {
    /// What inference says of the values of a program.
    fn new(
        executable: &Executable,
        body: &Body,
        inference: &Inference,
        formulas: &mut Formulas,
    ) -> BodyList {
        let types = body.slots.iter().map(|slot| {
            if let Some(fixed) = slot.fixed() {
                return SlotType::Fixed(Some(fixed));
            }
            let ty = inference.ty(slot.value);
            if let Some(fixed) = ty.and_then(sized) {
                return SlotType::Fixed(Some(fixed));
            }
            let dims = ty.and_then(|ty| Some((ty.elem()?, ty.shape()?)));
            let computed = dims.and_then(|(elem, dims)| {
                let dims = dims.iter().map(|dim| formulas.add(dim)).collect::<Option<_>>()?;
                Some(SlotType::Computed(elem, dims))
            });
            computed.unwrap_or(SlotType::Fixed(None))
        });
        let types = types.collect();
        let slots: HashSet<Slot> = pointing_slots(executable, body).collect();
        let ints = slots.into_iter().filter_map(|slot| {
            let info = &body.slots[slot.index()];
            let known = inference.known(info.value);
            let fixed =
                info.constant.as_deref().cloned().or_else(|| known.and_then(Known::to_tensor));
            let ints = match (fixed, known) {
                (Some(tensor), _) => integers(&tensor).map(SlotInts::Fixed),
                (None, Some(Known::Ints { elem, values, .. })) => {
                    let values = values.iter().map(|value| formulas.add(value));
                    values.collect::<Option<_>>().map(|values| SlotInts::Computed(*elem, values))
                }
                (None, _) => None,
            };
            Some((slot, ints?))
        });
        let ints = ints.collect();
        let steps = body.steps.iter().enumerate();
        let inner = steps.filter(|(_, step)| !step.bodies().is_empty()).map(|(index, step)| {
            let bodies = step.bodies().iter();
            let lists = bodies.map(|body| BodyList::new(executable, body, inference, formulas));
            (index, lists.collect())
        });
        BodyList { types, ints, inner: inner.collect() }
    }

    /// The sizes for some numbers. `None` for a negative one.
    fn sizes(&self, computed: &Computed) -> Option<Sizes> {
        let types = self.types.iter().map(|ty| match ty {
            SlotType::Fixed(fixed) => Some(fixed.clone()),
            SlotType::Computed(elem, dims) => {
                let dims = dims.iter().map(|dim| usize::try_from(computed.number(*dim)).ok());
                Some(Some((*elem, dims.collect::<Option<Dims>>()?)))
            }
        });
        let types = types.collect::<Option<_>>()?;
        let ints = self.ints.iter().map(|(slot, ints)| (*slot, ints.numbers(computed)));
        let ints = ints.filter_map(|(slot, ints)| Some((slot, ints?)));
        let inner = self.inner.iter().map(|(index, lists)| {
            let bodies = lists.iter().map(|list| list.sizes(computed));
            Some((*index, bodies.collect::<Option<_>>()?))
        });
        Some(Sizes { types, ints: ints.collect(), inner: inner.collect::<Option<_>>()? })
    }
}

impl SlotInts {
    fn numbers(&self, computed: &Computed) -> Option<Vec<i64>> {
        match self {
            SlotInts::Fixed(numbers) => Some(numbers.clone()),
            SlotInts::Computed(elem, formulas) => {
                let numbers = formulas.iter().map(|formula| computed.number(*formula));
                let mut numbers = numbers.map(|number| match elem {
                    DataType::Int64 => Some(number),
                    DataType::Int32 => i32::try_from(number).ok().map(i64::from),
                    _ => None,
                });
                numbers.by_ref().collect()
            }
        }
    }
}

impl Pattern {
    /// The type with symbols where sizes may differ.
    fn ty(&self, names: &[String]) -> Type {
        let dims = self.dims.iter().map(|dim| match dim {
            PatternDim::Fixed(number) => Dim::Known(*number),
            PatternDim::Symbol(symbol) => Dim::symbol(&names[*symbol]),
        });
        Type::tensor(self.elem, dims)
    }
}

/// Which sizes of inputs may differ, and names for them. Axes for which the model has one name have
/// one size. `None` if inputs are not what it declares.
fn patterns(
    scope: Scope<'_>,
    first: &[Option<Type>],
) -> Option<(Vec<Option<Pattern>>, Vec<String>)> {
    let mut names = Vec::new();
    let mut of_dims: HashMap<Dim, usize> = HashMap::new();
    let patterns = scope.inputs().into_iter().zip(first).map(|(value, ty)| {
        let Some(ty) = ty else { return Some(None) };
        let (elem, dims) = sized(ty)?;
        let declared = value.and_then(|value| scope.executable.inference.ty(value));
        let declared = declared.and_then(Type::shape).filter(|shape| shape.len() == dims.len());
        let dims = dims.iter().enumerate().map(|(axis, _)| {
            // No text of a file that is read as a size begins with a space.
            let mut fresh = || {
                names.push(format!(" {}", names.len()));
                names.len() - 1
            };
            match declared.map(|shape| &shape[axis]) {
                Some(Dim::Known(number)) => PatternDim::Fixed(*number),
                Some(dim @ Dim::Expr(_)) => {
                    PatternDim::Symbol(*of_dims.entry(dim.clone()).or_insert_with(fresh))
                }
                Some(Dim::Unknown) | None => PatternDim::Symbol(fresh()),
            }
        });
        Some(Some(Pattern { elem, dims: dims.collect() }))
    });
    Some((patterns.collect::<Option<_>>()?, names))
}
