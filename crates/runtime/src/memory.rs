//! What runs keep: plans for sizes of inputs, and memory.

use std::mem::take;
use std::sync::{Arc, Mutex};

use sardonyx_model::Type;
use sardonyx_tensor::{Arena, DataType, Dims, TensorView, TensorViewMut, Value};

use crate::error::RunError;
use crate::executable::Body;
use crate::iteration_plan::IterationPlan;
use crate::plan::{Plan, plan};
use crate::program::RegionKind;
use crate::schedule::Schedule;
use crate::sizes::Sizes;

/// What a run keeps for the next one.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) arena: Option<Arena>,
    pub(crate) plans: Plans,
    /// Empty between runs, as the next three.
    pub(crate) held: Vec<Held<'static>>,
    pub(crate) given: Given<'static>,
    /// Memory of old values that new values of state are written over.
    pub(crate) lent: Given<'static>,
    pub(crate) wanted: Wanted<'static>,
    /// What iterations read and write besides the arena.
    pub(crate) buffers: Option<Arena>,
    /// For inner graphs, of which one runs at a time.
    pub(crate) inner: Option<Box<Memory>>,
}

/// Memories that no run uses at the moment. Nobody waits here: a place that somebody else looks at
/// is passed by.
#[derive(Debug)]
pub(crate) struct Memories([Mutex<Option<Box<Memory>>>; 32]);

/// A plan and what follows from it for a run.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) schedule: Schedule,
    /// The types of inputs that inference has not seen: if a step fails, it may know better why.
    pub(crate) uninferred: Option<Vec<Option<Type>>>,
    /// By number of a step with inner graphs, in order: what is planned for these.
    pub(crate) inner: Vec<(usize, Vec<Planned>)>,
    /// What happens between iterations, for the body of a loop.
    pub(crate) iterations: Option<Box<IterationPlan>>,
}

impl Planned {
    /// Plans for values of these sizes, which inference has seen.
    pub(crate) fn new(body: &Body, mut sizes: Sizes) -> Planned {
        let inner = take(&mut sizes.inner).into_iter().filter_map(|(index, sizes)| {
            let region = body.steps[index].region()?;
            let bodies = region.bodies.iter().zip(sizes);
            let planned = bodies.map(|(body, sizes)| Planned::in_region(&region.kind, body, sizes));
            Some((index, planned.collect()))
        });
        let inner = inner.collect();
        let plan = plan(body, sizes);
        let schedule = Schedule::new(body, &plan);
        Planned { inner, schedule, plan, uninferred: None, iterations: None }
    }

    /// The same for a body of a region.
    pub(crate) fn in_region(kind: &RegionKind, body: &Body, sizes: Sizes) -> Planned {
        let planned = Planned::new(body, sizes);
        let iterations = kind
            .has_iterations()
            .then(|| Box::new(IterationPlan::new(kind, body, &planned.plan, &planned.schedule)));
        Planned { iterations, ..planned }
    }

    /// What is planned for the inner graphs of a step.
    pub(crate) fn inner(&self, step: usize) -> &[Planned] {
        let found = self.inner.binary_search_by_key(&step, |(index, _)| *index);
        found.map_or(&[], |at| &self.inner[at].1)
    }
}

/// The plans that were used last, by the inputs that they are for.
#[derive(Debug, Default)]
pub(crate) struct Plans(Vec<(Key, Arc<Planned>)>);

impl Plans {
    /// The plan for inputs such as these.
    pub(crate) fn find(&mut self, given: &[Held<'_>]) -> Option<Arc<Planned>> {
        let found = self.0.iter().position(|(key, _)| fits(key, given))?;
        self.0[..=found].rotate_right(1);
        Some(self.0[0].1.clone())
    }

    /// Keeps a plan in the place of the one that was not used for longest.
    pub(crate) fn keep(&mut self, key: Key, planned: Arc<Planned>) {
        self.0.truncate(MAX_PLANS - 1);
        self.0.insert(0, (key, planned));
    }
}

/// Element types and sizes of the inputs; `None` for what is no tensor, or not given.
pub(crate) type Key = Vec<Option<(i32, Dims)>>;

/// Limit: most sets of input sizes that are remembered.
const MAX_PLANS: usize = 32;

/// A value outside of the arena and the constants.
#[derive(Debug, Default)]
pub(crate) enum Held<'a> {
    /// Not there yet, or no longer.
    #[default]
    Nothing,
    /// With the bytes that the run has taken for it.
    Value(Value, usize),
    /// Given by the caller, with elements at addresses of their type.
    Input(TensorView<'a>),
    /// A value of the program around this one.
    Borrowed(&'a Value),
    /// Memory of the caller, for an output. It has been written when a step reads it.
    Output(&'a mut [u8]),
}

impl Held<'_> {
    pub(crate) fn as_view(&self) -> Option<TensorView<'_>> {
        match self {
            Held::Value(Value::Tensor(tensor), _) => Some(tensor.view()),
            Held::Input(view) => Some(view.clone()),
            Held::Borrowed(Value::Tensor(tensor)) => Some(tensor.view()),
            Held::Value(..) | Held::Borrowed(_) => None,
            Held::Output(_) | Held::Nothing => None,
        }
    }

    /// Element type and dimensions of a tensor. Costs less than a view, which has to be copied.
    pub(crate) fn sized(&self) -> Option<(DataType, &[usize])> {
        match self {
            Held::Value(Value::Tensor(tensor), _) | Held::Borrowed(Value::Tensor(tensor)) => {
                Some((tensor.data_type(), tensor.dims()))
            }
            Held::Input(view) => Some((view.data_type(), view.dims())),
            Held::Value(..) | Held::Borrowed(_) => None,
            Held::Output(_) | Held::Nothing => None,
        }
    }

    /// The type of a value, with the dimensions of a tensor.
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
    /// An arena that is large enough.
    pub(crate) fn arena(&mut self, planned: &Planned) -> Result<&mut Arena, RunError> {
        let refused = |error: sardonyx_tensor::TensorError| RunError::Resources(error.to_string());
        let bytes = planned.plan.arena_bytes;
        match &mut self.arena {
            Some(arena) => {
                if bytes > arena.len() {
                    // Inputs that grow a little with every run do not want a new arena every time.
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
    pub(crate) fn take(&self) -> Box<Memory> {
        let mut free = self.0.iter().filter_map(|place| place.try_lock().ok());
        free.find_map(|mut place| place.take()).unwrap_or_default()
    }

    /// Drops those that no run uses.
    pub(crate) fn clear(&self) {
        self.0.iter().filter_map(|place| place.try_lock().ok()).for_each(|mut place| *place = None);
    }

    /// If there is no room, the memory goes back to the system.
    pub(crate) fn give_back(&self, memory: Box<Memory>) {
        let mut free = self.0.iter().filter_map(|place| place.try_lock().ok());
        if let Some(mut place) = free.find(|place| place.is_none()) {
            *place = Some(memory);
        }
    }
}

/// The values of a run, by input of the model.
pub(crate) type Given<'a> = Vec<Held<'a>>;

/// Memory of the caller for outputs, by output of the model.
pub(crate) type Wanted<'a> = Vec<Option<(&'a str, TensorViewMut<'a>)>>;

/// Element types and sizes of some inputs.
pub(crate) fn key_of(given: &[Held<'_>]) -> Key {
    let of = |value: &Held<'_>| {
        let (data_type, dims) = value.sized()?;
        Some((data_type.number(), dims.into()))
    };
    given.iter().map(of).collect()
}

/// Whether a plan is for inputs such as these.
pub(crate) fn fits(key: &Key, given: &[Held<'_>]) -> bool {
    let fits = |(wanted, given): (&Option<(i32, Dims)>, &Held<'_>)| match (wanted, given.sized()) {
        (Some((elem, dims)), Some((data_type, given))) => {
            *elem == data_type.number() && dims[..] == *given
        }
        (None, None) => true,
        _ => false,
    };
    key.iter().zip(given).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(arena_bytes: usize) -> Arc<Planned> {
        let body = Body::default();
        let mut planned = Planned::new(&body, Sizes::default());
        planned.plan.arena_bytes = arena_bytes;
        Arc::new(planned)
    }

    fn given(size: usize) -> Given<'static> {
        let zeros = sardonyx_tensor::Tensor::zeros(DataType::Float, [size]);
        let zeros = Value::Tensor(zeros.expect("a little memory"));
        [Held::Value(zeros, 0)].into_iter().collect()
    }

    #[test]
    fn the_plan_goes_that_was_not_used_for_longest() {
        let mut plans = Plans::default();
        let key = |size: usize| vec![Some((DataType::Float.number(), [size].as_slice().into()))];
        for size in 0..MAX_PLANS {
            plans.keep(key(size), planned(size));
        }
        assert!(plans.find(&given(0)).is_some());
        plans.keep(key(MAX_PLANS), planned(0));
        let found: Vec<usize> =
            (0..=MAX_PLANS).filter(|size| plans.find(&given(*size)).is_none()).collect();
        assert_eq!(found, [1]);
    }

    #[test]
    fn an_arena_grows_by_more_than_a_little() {
        let mut memory = Memory::default();
        let mut sizes: Vec<usize> = (4096..=8192)
            .step_by(64)
            .map(|bytes| memory.arena(&planned(bytes)).expect("a little memory").len())
            .collect();
        sizes.dedup();
        assert!(sizes.len() <= 7, "{sizes:?}");
    }
}
