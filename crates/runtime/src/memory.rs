//! State kept between runs: plans for input sizes, and memory.

use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use sardonyx_model::Type;
use sardonyx_tensor::{Arena, DataType, Dims, TensorView, TensorViewMut, Value};

use crate::error::RunError;
use crate::executable::Body;
use crate::iteration_plan::IterationPlan;
use crate::kernel::CallLists;
use crate::plan::{KeptRows, Plan, make_plan};
use crate::program::RegionKind;
use crate::schedule::Schedule;
use crate::sizes::Sizes;

/// Memory that a run leaves to the next one.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) arena: Option<Arena>,
    pub(crate) plans: Plans,
    /// Held values; empty between runs like the next three.
    pub(crate) held: Vec<Held<'static>>,
    pub(crate) given: HeldValues<'static>,
    /// Memory of old values that new state overwrites.
    pub(crate) lent: HeldValues<'static>,
    pub(crate) wanted: Wanted<'static>,
    pub(crate) lists: CallLists,
    /// Buffers of iterations besides the arena.
    pub(crate) buffers: Option<Arena>,
    /// Memory for inner graphs, of which one runs at a time.
    pub(crate) inner: Option<Box<Memory>>,
}

/// Memories for the runs of a session. A run holds the lock of its slot to the end. Never blocks:
/// skips a contended slot (`try_lock`).
#[derive(Debug)]
pub(crate) struct Memories([Mutex<Option<Box<Memory>>>; 32]);

/// Slot that a run holds.
pub(crate) type MemorySlot<'m> = MutexGuard<'m, Option<Box<Memory>>>;

/// Plan and schedule of a run.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) schedule: Schedule,
    /// Types of inputs that inference has not seen: if a step fails, inference may find the cause.
    pub(crate) uninferred: Option<Vec<Option<Type>>>,
    /// Plans of inner graphs, by number of their step, sorted.
    pub(crate) inner: Vec<(usize, Vec<Planned>)>,
    /// Movement of values between iterations, for the body of a loop.
    pub(crate) iterations: Option<Box<IterationPlan>>,
}

impl Planned {
    /// Plans a body whose values have these inferred sizes.
    pub(crate) fn new(body: &Body, sizes: Sizes) -> Planned {
        Planned::with_kept(body, sizes, &[])
    }

    /// Plans a body like [`Planned::new`], with some inputs in memory of a state.
    pub(crate) fn with_kept(body: &Body, mut sizes: Sizes, kept: &[KeptRows]) -> Planned {
        let inner = take(&mut sizes.inner).into_iter().filter_map(|(index, sizes)| {
            let region = body.steps[index].region()?;
            let bodies = region.bodies.iter().zip(sizes);
            let planned = bodies.map(|(body, sizes)| Planned::in_region(&region.kind, body, sizes));
            Some((index, planned.collect()))
        });
        let inner = inner.collect();
        let plan = make_plan(body, sizes, kept);
        let schedule = Schedule::new(body, &plan);
        Planned { inner, schedule, plan, uninferred: None, iterations: None }
    }

    /// Plans a body of a region, and its iterations if it has any.
    pub(crate) fn in_region(kind: &RegionKind, body: &Body, sizes: Sizes) -> Planned {
        let planned = Planned::new(body, sizes);
        let iterations = kind
            .has_iterations()
            .then(|| Box::new(IterationPlan::new(kind, body, &planned.plan, &planned.schedule)));
        Planned { iterations, ..planned }
    }

    /// Returns the plans for the inner graphs of a step.
    pub(crate) fn inner(&self, step: usize) -> &[Planned] {
        let found = self.inner.binary_search_by_key(&step, |(index, _)| *index);
        found.map_or(&[], |at| &self.inner[at].1)
    }
}

/// Least recently used cache of plans, by input sizes.
#[derive(Debug, Default)]
pub(crate) struct Plans(Vec<(InputTypes, Arc<Planned>)>);

impl Plans {
    /// Moves the plan for inputs of these sizes to the front and returns it.
    pub(crate) fn find(&mut self, given: &[Held<'_>]) -> Option<&Arc<Planned>> {
        let found = self.0.iter().position(|(key, _)| fits(key, given))?;
        if found != 0 {
            self.0[..=found].rotate_right(1);
        }
        Some(self.newest())
    }

    /// Returns the plan that was found or inserted last.
    pub(crate) fn newest(&self) -> &Arc<Planned> {
        &self.0.first().expect("a plan was found or inserted").1
    }

    /// Inserts a plan and evicts the least recently used one.
    pub(crate) fn keep(&mut self, key: InputTypes, planned: Arc<Planned>) {
        self.0.truncate(MAX_PLANS - 1);
        self.0.insert(0, (key, planned));
    }
}

/// Types of the inputs; `None` for an omitted one, or one that is not a tensor.
pub(crate) type InputTypes = Vec<Option<InputType>>;

/// Type of an input, and its rows in memory of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputType {
    /// Number of the element type.
    elem: i32,
    dims: Dims,
    rows: Option<KeptRows>,
}

/// Limit: plans that are cached.
const MAX_PLANS: usize = 32;

/// Value outside of the arena and the constants.
#[derive(Debug, Default)]
pub(crate) enum Held<'a> {
    /// Not yet computed, or dropped.
    #[default]
    Nothing,
    /// Owned value, and the bytes charged for it.
    Value(Value, usize),
    /// Input of the caller, with aligned elements.
    Input(TensorView<'a>),
    /// Value of the enclosing program.
    Borrowed(&'a Value),
    /// Memory of the caller for an output. A step that reads it runs after it is written.
    Output(&'a mut [u8]),
    /// Input in memory of a state, which is lent once there is a plan.
    Kept(Box<KeptInput>),
}

/// Input that is kept between runs, in memory with room for the rows of the output.
#[derive(Debug, Clone)]
pub(crate) struct KeptInput {
    pub(crate) elem: DataType,
    pub(crate) dims: Dims,
    pub(crate) rows: KeptRows,
}

impl Held<'_> {
    pub(crate) fn as_view(&self) -> Option<TensorView<'_>> {
        match self {
            Held::Value(Value::Tensor(tensor), _) => Some(tensor.view()),
            Held::Input(view) => Some(view.clone()),
            Held::Borrowed(Value::Tensor(tensor)) => Some(tensor.view()),
            Held::Value(..) | Held::Borrowed(_) => None,
            Held::Output(_) | Held::Kept(_) | Held::Nothing => None,
        }
    }

    /// Returns the rows of a kept input.
    pub(crate) fn rows(&self) -> Option<KeptRows> {
        match self {
            Held::Kept(kept) => Some(kept.rows),
            _ => None,
        }
    }

    /// Returns element type and dimensions of a tensor. Costs less than a view, which copies the
    /// dimensions.
    pub(crate) fn elem_and_dims(&self) -> Option<(DataType, &[usize])> {
        match self {
            Held::Value(Value::Tensor(tensor), _) | Held::Borrowed(Value::Tensor(tensor)) => {
                Some((tensor.data_type(), tensor.dims()))
            }
            Held::Input(view) => Some((view.data_type(), view.dims())),
            Held::Kept(kept) => Some((kept.elem, &kept.dims)),
            Held::Value(..) | Held::Borrowed(_) => None,
            Held::Output(_) | Held::Nothing => None,
        }
    }

    /// Returns the type of a value, with the dimensions of a tensor.
    pub(crate) fn ty(&self) -> Option<Type> {
        match (self.as_view(), self) {
            (Some(view), _) => Some(Type::tensor(view.data_type(), view.dims().iter().copied())),
            (None, Held::Value(value, _)) => Some(Type::from(&value.value_type())),
            (None, Held::Borrowed(value)) => Some(Type::from(&value.value_type())),
            _ => None,
        }
    }
}

impl Default for Memories {
    fn default() -> Self {
        Memories(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Memory {
    /// Returns the arena, grown to the size of the plan.
    pub(crate) fn arena(&mut self, planned: &Planned) -> Result<&mut Arena, RunError> {
        let refused = |error: sardonyx_tensor::TensorError| RunError::Resources(error.to_string());
        let bytes = planned.plan.arena_bytes;
        match &mut self.arena {
            Some(arena) => {
                if bytes > arena.len() {
                    // Inputs that grow a little with every run do not reallocate every time.
                    let more = bytes.max(arena.len() + arena.len() / 8);
                    arena.reserve(more).or_else(|_| arena.reserve(bytes)).map_err(refused)?;
                }
                Ok(arena)
            }
            none => Ok(none.insert(Arena::new(bytes).map_err(refused)?)),
        }
    }
}

impl Memories {
    /// Yields the slots that no run holds.
    fn free(&self) -> impl Iterator<Item = MemorySlot<'_>> {
        self.0.iter().filter_map(|slot| match slot.try_lock() {
            Ok(memory) => Some(memory),
            Err(TryLockError::WouldBlock) => None,
            // What a run has left that panicked is dropped.
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut memory = poisoned.into_inner();
                *memory = None;
                slot.clear_poison();
                Some(memory)
            }
        })
    }

    /// Returns a free slot, preferably one with a memory; `None` if runs hold all slots.
    pub(crate) fn hold(&self) -> Option<MemorySlot<'_>> {
        let mut free = self.free();
        let first = free.next()?;
        if first.is_some() {
            return Some(first);
        }
        free.find(|slot| slot.is_some()).or(Some(first))
    }

    /// Takes a memory out of its slot, for a run that outlives the call.
    pub(crate) fn take(&self) -> Box<Memory> {
        self.free().find_map(|mut slot| slot.take()).unwrap_or_default()
    }

    /// Drops the memories that no run uses.
    pub(crate) fn clear(&self) {
        self.free().for_each(|mut slot| *slot = None);
    }

    /// Returns a memory to a free slot; drops it if there is none.
    pub(crate) fn give_back(&self, memory: Box<Memory>) {
        if let Some(mut slot) = self.free().find(|slot| slot.is_none()) {
            *slot = Some(memory);
        }
    }
}

/// Values of a run, by input of the model.
pub(crate) type HeldValues<'a> = Vec<Held<'a>>;

/// Memory of the caller for outputs, by output of the model.
pub(crate) type Wanted<'a> = Vec<Option<(&'a str, TensorViewMut<'a>)>>;

/// Returns the cache key of inputs.
pub(crate) fn key_of(given: &[Held<'_>]) -> InputTypes {
    let of = |value: &Held<'_>| {
        let (data_type, dims) = value.elem_and_dims()?;
        Some(InputType { elem: data_type.number(), dims: dims.into(), rows: value.rows() })
    };
    given.iter().map(of).collect()
}

/// Whether inputs have the element types and sizes of a key.
pub(crate) fn fits(key: &InputTypes, given: &[Held<'_>]) -> bool {
    let fits =
        |(wanted, given): (&Option<InputType>, &Held<'_>)| match (wanted, given.elem_and_dims()) {
            (Some(wanted), Some((data_type, dims))) => {
                wanted.elem == data_type.number()
                    && wanted.dims[..] == *dims
                    && wanted.rows == given.rows()
            }
            (None, None) => true,
            _ => false,
        };
    key.len() == given.len() && (0..key.len()).all(|index| fits((&key[index], &given[index])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_planned(arena_bytes: usize) -> Arc<Planned> {
        let body = Body::default();
        let mut planned = Planned::new(&body, Sizes::default());
        planned.plan.arena_bytes = arena_bytes;
        Arc::new(planned)
    }

    fn make_inputs(size: usize) -> HeldValues<'static> {
        let zeros = sardonyx_tensor::Tensor::zeros(DataType::Float, [size]);
        let zeros = Value::Tensor(zeros.expect("a little memory"));
        [Held::Value(zeros, 0)].into_iter().collect()
    }

    #[test]
    fn the_plan_goes_that_was_not_used_for_longest() {
        let mut plans = Plans::default();
        let key = |size: usize| key_of(&make_inputs(size));
        for size in 0..MAX_PLANS {
            plans.keep(key(size), make_planned(size));
        }
        assert!(plans.find(&make_inputs(0)).is_some());
        plans.keep(key(MAX_PLANS), make_planned(0));
        let found: Vec<usize> =
            (0..=MAX_PLANS).filter(|size| plans.find(&make_inputs(*size)).is_none()).collect();
        assert_eq!(found, [1]);
    }

    #[test]
    fn each_run_holds_a_slot() {
        let memories = Memories::default();
        let (first, mut second) = (memories.hold().unwrap(), memories.hold().unwrap());
        *second = Some(Box::default());
        drop((first, second));
        let with_memory = memories.hold().unwrap();
        assert!(with_memory.is_some(), "slots with a memory come first");
        let others: Vec<MemorySlot<'_>> = (1..32).filter_map(|_| memories.hold()).collect();
        assert_eq!(others.len(), 31);
        assert!(memories.hold().is_none());
        drop(others);
        drop(with_memory);
        let taken = memories.take();
        assert!(memories.hold().unwrap().is_none());
        memories.give_back(taken);
        assert!(memories.hold().unwrap().is_some());
    }

    #[test]
    fn what_a_run_leaves_that_panics_is_dropped() {
        let memories = Memories::default();
        let ran = sardonyx_kernels::catch_panic(|| {
            let mut slot = memories.hold().unwrap();
            slot.get_or_insert_default();
            panic!("in a run");
        });
        assert!(ran.is_err());
        let slots: Vec<MemorySlot<'_>> = (0..32).filter_map(|_| memories.hold()).collect();
        assert!(slots.len() == 32 && slots.iter().all(|slot| slot.is_none()));
    }

    #[test]
    fn an_arena_grows_by_more_than_a_little() {
        let mut memory = Memory::default();
        let mut sizes: Vec<usize> = (4096..=8192)
            .step_by(64)
            .map(|bytes| memory.arena(&make_planned(bytes)).expect("a little memory").len())
            .collect();
        sizes.dedup();
        assert!(sizes.len() <= 7, "{sizes:?}");
    }
}
