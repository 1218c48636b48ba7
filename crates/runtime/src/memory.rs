//! What runs keep: plans for sizes of inputs, and memory.

use std::sync::{Arc, Mutex};

use sardonyx_tensor::{Arena, Dims, TensorView, Value};
use smallvec::SmallVec;

use crate::error::RunError;
use crate::plan::Plan;
use crate::schedule::Schedule;

/// What a run keeps for the next one.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(crate) arena: Option<Arena>,
    /// The latest used of the plans, by the inputs that they are for.
    pub(crate) plans: Vec<(Key, Arc<Planned>)>,
    /// Empty between runs.
    pub(crate) held: Vec<Held<'static>>,
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
}

/// Element types and sizes of the inputs; `None` for what is no tensor, or not given.
pub(crate) type Key = Vec<Option<(i32, Dims)>>;

/// More sets of input sizes than this are not remembered.
pub(crate) const MAX_PLANS: usize = 32;

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
    /// Memory of the caller, for an output. It has been written when a step reads it.
    Output(&'a mut [u8]),
}

impl Held<'_> {
    pub(crate) fn as_view(&self) -> Option<TensorView<'_>> {
        match self {
            Held::Value(Value::Tensor(tensor), _) => Some(tensor.view()),
            Held::Input(view) => Some(view.clone()),
            Held::Value(..) | Held::Output(_) | Held::Nothing => None,
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
                arena.reserve(bytes).map_err(refused)?;
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

    /// If there is no room, the memory goes back to the system.
    pub(crate) fn give_back(&self, memory: Box<Memory>) {
        let mut free = self.0.iter().filter_map(|place| place.try_lock().ok());
        if let Some(mut place) = free.find(|place| place.is_none()) {
            *place = Some(memory);
        }
    }
}

/// The values of a run, by input of the model.
pub(crate) type Given<'a> = SmallVec<[Held<'a>; 8]>;

/// Whether a plan is for inputs such as these.
pub(crate) fn fits(key: &Key, given: &Given<'_>) -> bool {
    let fits = |(wanted, given): (&Option<(i32, Dims)>, &Held<'_>)| match (wanted, given.as_view())
    {
        (Some((elem, dims)), Some(view)) => {
            *elem == view.data_type().number() && dims[..] == *view.dims()
        }
        (None, None) => true,
        _ => false,
    };
    key.iter().zip(given).all(fits)
}

/// The same memory for values that live for another time.
pub(crate) fn emptied<'b>(mut held: Vec<Held<'_>>) -> Vec<Held<'b>> {
    held.clear();
    // Collecting in place keeps the memory: the two types differ in a lifetime only.
    held.into_iter().map(|_| Held::Nothing).collect()
}
