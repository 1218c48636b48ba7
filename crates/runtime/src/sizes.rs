//! Types of all values for one set of input sizes.
//!
//! If the model fixes all sizes of its inputs, the types inferred at compilation are complete.
//! Otherwise the first set is inferred. For a second set, inference runs once more with a symbol
//! for every size of an input, and its results become formulas over these sizes, with the
//! conditions under which they hold: sizes that must be equal, divisions without remainder.
//! Computing the formulas is all that the second set and every later one cost. If a condition does
//! not hold, inference runs with the numbers: it mostly finds an error.
//!
//! If the formulas differ from inference for the first set of sizes, because formulas cannot
//! express some cases, the next set takes its place: a cache is empty before the first token, and
//! rules for empty tensors are their own. After a few such sets every set is inferred. Sizes that
//! depend on data are unknown to both.
//!
//! A body whose inputs have other sizes in every iteration of a loop is treated in the same way.

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

/// Types of values known before a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Type and dimensions of each slot, where known.
    pub(crate) types: Vec<Option<(DataType, Dims)>>,
    /// Values that decide layouts, by slot.
    pub(crate) ints: HashMap<Slot, Vec<i64>>,
    /// Sizes of inner graphs, by number of their step, sorted.
    pub(crate) inner: Vec<(usize, Vec<Sizes>)>,
}

/// Program whose sizes are computed: that of the main graph, or of an inner graph.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'e> {
    pub(crate) executable: &'e Executable,
    pub(crate) body: &'e Body,
    /// Inner graph; `None` for the main one.
    graph: Option<GraphId>,
}

impl<'e> Scope<'e> {
    /// Makes the scope of the main graph.
    pub(crate) fn main(executable: &'e Executable) -> Scope<'e> {
        Scope { executable, body: &executable.body, graph: None }
    }

    /// Makes the scope of an inner graph. Its inputs are its own, then its captures.
    pub(crate) fn inner(executable: &'e Executable, body: &'e Body) -> Scope<'e> {
        Scope { executable, body, graph: body.graph }
    }

    /// Returns the inputs by position, as values of the model.
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
    /// Infers the types for inputs of the given types, by position.
    pub(crate) fn infer(scope: Scope<'_>, inputs: &[Option<Type>]) -> Result<Sizes, RunError> {
        let inference = infer_types(scope, inputs)?;
        Ok(Sizes::from_inference(scope.executable, scope.body, &inference))
    }

    /// Returns the types inferred at compilation, if these input types were known then: inferring
    /// them again would take most of the time of a first run. `None` if fewer were known.
    pub(crate) fn from_compilation(scope: Scope<'_>, inputs: &[Option<Type>]) -> Option<Sizes> {
        let Scope { executable, body, graph: None } = scope else { return None };
        let known = |value: ValueId| executable.inference.ty(value).and_then(elem_and_dims);
        let is_known = |(value, given): (Option<ValueId>, &Option<Type>)| match given {
            // An input of unknown type is unknown in a run, too.
            None => true,
            Some(given) => {
                let known = value.and_then(known);
                known.is_some() && known == elem_and_dims(given)
            }
        };
        let is_known = scope.inputs().into_iter().zip(inputs).all(is_known);
        is_known.then(|| Sizes::from_inference(executable, body, &executable.inference))
    }

    /// Makes the sizes of a program from inferred types that are known numbers.
    pub(crate) fn from_inference(
        executable: &Executable,
        body: &Body,
        inference: &Inference,
    ) -> Sizes {
        let types = body.slots.iter().map(|slot| {
            slot.constant_type().or_else(|| inference.ty(slot.value).and_then(elem_and_dims))
        });
        let types = types.collect();
        let ints = layout_slots(executable, body).filter_map(|slot| {
            let info = &body.slots[slot.index()];
            let known = || inference.known(info.value).and_then(Known::to_tensor);
            Some((slot, integers(&info.constant.as_deref().cloned().or_else(known)?)?))
        });
        let steps = body.steps.iter().enumerate();
        let inner = steps.filter(|(_, step)| !step.bodies().is_empty()).map(|(index, step)| {
            let bodies = step.bodies().iter();
            (index, bodies.map(|body| Sizes::from_inference(executable, body, inference)).collect())
        });
        Sizes { types, ints: ints.collect(), inner: inner.collect() }
    }
}

/// Infers types for inputs of the given types, by position.
///
/// # Errors
///
/// Types with which the model contradicts itself.
pub(crate) fn infer_types(
    scope: Scope<'_>,
    inputs: &[Option<Type>],
) -> Result<Inference, RunError> {
    inferred_over(scope, inputs, None)
}

fn inferred_over(
    scope: Scope<'_>,
    inputs: &[Option<Type>],
    sizes: Option<&HashSet<String>>,
) -> Result<Inference, RunError> {
    let executable = scope.executable;
    let constant = |value: ValueId| settled_value(executable, value);
    let options = InferOptions {
        symbols: &executable.dims,
        known: Some(&constant),
        rules: executable.operators.rules(),
        sizes,
        // A branch that does not fit fails in its step, if it is taken.
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

/// Returns a value that is known for all sizes of the inputs. A formula over sizes is computed
/// anew.
fn settled_value(executable: &Executable, value: ValueId) -> Option<Known> {
    let known = executable.inference.known(value)?;
    let is_settled = match known {
        Known::Tensor(_) => true,
        Known::Ints { values, .. } => values.iter().all(|value| value.known().is_some()),
    };
    is_settled.then(|| known.clone())
}

/// Returns element type and dimensions of a tensor type, if all are known.
pub(crate) fn elem_and_dims(ty: &Type) -> Option<(DataType, Dims)> {
    let dims = ty.shape()?.iter().map(|dim| dim.size()).collect::<Option<Dims>>()?;
    Some((ty.elem()?, dims))
}

/// Returns the elements of a tensor of integers.
pub(crate) fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.data_type() {
        DataType::Int64 => tensor.to_vec().ok(),
        DataType::Int32 => Some(tensor.to_vec::<i32>().ok()?.into_iter().map(i64::from).collect()),
        _ => None,
    }
}

/// Yields the slots whose values decide layouts of others.
fn layout_slots(executable: &Executable, body: &Body) -> impl Iterator<Item = Slot> {
    let steps = body.steps.iter();
    let moves = steps.filter_map(|step| Some((step, step.movement.as_ref()?)));
    // Joined and written operands are data, and do not decide a layout.
    let moves = moves.filter(|(_, movement)| {
        !matches!(***movement, MoveKind::Concat(_) | MoveKind::WriteRows(_))
    });
    moves.flat_map(move |(step, movement)| {
        let slots = step.inputs.iter().skip(1).flatten().copied();
        // A single picked slice can be a view, several cannot.
        let is_gather = matches!(**movement, MoveKind::Gather(_));
        slots.filter(move |slot| !is_gather || is_one_element(executable, body, *slot))
    })
}

/// Whether a slot has one element for all sizes of the inputs.
fn is_one_element(executable: &Executable, body: &Body, slot: Slot) -> bool {
    let slot = &body.slots[slot.index()];
    let dims = match slot.constant_type() {
        Some((_, dims)) => Some(dims),
        None => executable.inference.ty(slot.value).and_then(elem_and_dims).map(|(_, dims)| dims),
    };
    dims.is_some_and(|dims| dims.iter().all(|dim| *dim == 1))
}

/// Sizes of a session: inferred, or computed by formulas.
#[derive(Debug, Default)]
pub(crate) struct KnownSizes(Mutex<SizeSource>);

#[derive(Debug, Default)]
struct SizeSource {
    state: State,
    /// Number of sets of inputs whose sizes the formulas did not give.
    refused: usize,
}

/// Limit: sets of inputs for which formulas are made. Each costs an inference.
const MAX_REFUSED: usize = 3;

#[derive(Debug, Default)]
enum State {
    /// No sizes to compare formulas with.
    #[default]
    Nothing,
    /// Types for one set of inputs.
    First(Vec<Option<Type>>, Sizes),
    /// Formulas.
    List(Arc<SizeList>),
    /// Inference with numbers knows more than formulas, or these are too large.
    NoList,
}

/// Sizes and their origin.
pub(crate) struct FoundSizes {
    pub(crate) sizes: Sizes,
    /// Whether inference accepted these numbers. Formulas cannot detect all errors; kernels find
    /// the others.
    pub(crate) is_inferred: bool,
}

impl KnownSizes {
    /// Returns the sizes for inputs of the given types, by position.
    ///
    /// # Errors
    ///
    /// Types with which the model contradicts itself.
    pub(crate) fn find(
        &self,
        scope: Scope<'_>,
        inputs: &[Option<Type>],
    ) -> Result<FoundSizes, RunError> {
        if let Some(sizes) = Sizes::from_compilation(scope, inputs) {
            return Ok(FoundSizes { sizes, is_inferred: true });
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = {
            let mut source = lock();
            if let State::First(first, sizes) = &source.state
                && first != inputs
            {
                let list = SizeList::new(scope, first, sizes);
                source.refused += usize::from(list.is_none());
                source.state = match list {
                    Some(list) => State::List(Arc::new(list)),
                    None if source.refused < MAX_REFUSED => State::Nothing,
                    None => State::NoList,
                };
            }
            match &source.state {
                State::List(list) => Some(list.clone()),
                _ => None,
            }
        };
        if let Some(sizes) = list.and_then(|list| list.compute(inputs)) {
            return Ok(FoundSizes { sizes, is_inferred: false });
        }
        let sizes = Sizes::infer(scope, inputs)?;
        let mut source = lock();
        if let State::Nothing = source.state {
            source.state = State::First(inputs.to_vec(), sizes.clone());
        }
        Ok(FoundSizes { sizes, is_inferred: true })
    }
}

/// Sizes as formulas over the sizes of the inputs.
#[derive(Debug)]
pub(crate) struct SizeList {
    inputs: Vec<Option<Pattern>>,
    /// Number of different symbols among the inputs' sizes.
    symbols: usize,
    formulas: Formulas,
    body: BodyList,
    conditions: Conditions,
}

/// Formulas for the slots of one program.
#[derive(Debug, Default)]
struct BodyList {
    /// Type of each slot.
    types: Vec<SlotType>,
    ints: Vec<(Slot, SlotInts)>,
    /// Formulas of inner graphs, like [`Sizes::inner`].
    inner: Vec<(usize, Vec<BodyList>)>,
}

/// Type of an input that the formulas accept.
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
    /// Type for all sizes: constant, inferred as a number, or unknown.
    Fixed(Option<(DataType, Dims)>),
    Computed(DataType, SmallVec<[Formula; 4]>),
}

#[derive(Debug)]
enum SlotInts {
    Fixed(Vec<i64>),
    Computed(DataType, Vec<Formula>),
}

impl SizeList {
    /// Makes formulas for inputs like `first`, whose sizes are `known`. `None` if the formulas give
    /// other sizes.
    fn new(scope: Scope<'_>, first: &[Option<Type>], known: &Sizes) -> Option<SizeList> {
        let list = SizeList::for_inputs(scope, first)?;
        (list.compute(first)? == *known).then_some(list)
    }

    /// Makes formulas for inputs like `first`.
    pub(crate) fn for_inputs(scope: Scope<'_>, first: &[Option<Type>]) -> Option<SizeList> {
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

    /// Computes the sizes for inputs of the given types. `None` if these are unlike those that the
    /// formulas were made for, or a condition does not hold.
    pub(crate) fn compute(&self, inputs: &[Option<Type>]) -> Option<Sizes> {
        let computed = self.formulas.compute(&self.bind(inputs)?)?;
        if !self.conditions.hold(&computed) {
            return None;
        }
        self.body.sizes(&computed)
    }

    /// Returns the numbers of the symbols.
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
    /// Makes formulas from the inferred types of a program.
    fn new(
        executable: &Executable,
        body: &Body,
        inference: &Inference,
        formulas: &mut Formulas,
    ) -> BodyList {
        let types = body.slots.iter().map(|slot| {
            if let Some(fixed) = slot.constant_type() {
                return SlotType::Fixed(Some(fixed));
            }
            let ty = inference.ty(slot.value);
            if let Some(fixed) = ty.and_then(elem_and_dims) {
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
        let slots: HashSet<Slot> = layout_slots(executable, body).collect();
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

    /// Computes the sizes from numbers. `None` if one is negative.
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
    /// Returns the type with symbols for sizes that may differ.
    fn ty(&self, names: &[String]) -> Type {
        let dims = self.dims.iter().map(|dim| match dim {
            PatternDim::Fixed(number) => Dim::Known(*number),
            PatternDim::Symbol(symbol) => Dim::symbol(&names[*symbol]),
        });
        Type::tensor(self.elem, dims)
    }
}

/// Returns the patterns of the inputs, and names for their symbols. Axes with one name in the model
/// share a symbol. `None` if inputs differ from the declared types.
fn patterns(
    scope: Scope<'_>,
    first: &[Option<Type>],
) -> Option<(Vec<Option<Pattern>>, Vec<String>)> {
    let mut names = Vec::new();
    let mut of_dims: HashMap<Dim, usize> = HashMap::new();
    let patterns = scope.inputs().into_iter().zip(first).map(|(value, ty)| {
        let Some(ty) = ty else { return Some(None) };
        let (elem, dims) = elem_and_dims(ty)?;
        let declared = value.and_then(|value| scope.executable.inference.ty(value));
        let declared = declared.and_then(Type::shape).filter(|shape| shape.len() == dims.len());
        let dims = dims.iter().enumerate().map(|(axis, _)| {
            // No name in a file that is parsed as a size starts with a space.
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
