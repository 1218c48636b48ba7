//! Plans for iterations whose input sizes change.
//!
//! With a plan for unknown sizes all values have memory of their own, so iterations get plans for
//! their actual sizes. New plans are cheap, but not free: after three new sets of sizes in a row,
//! iterations run without until sizes repeat.

use std::sync::{Arc, Mutex, PoisonError};

use sardonyx_model::Type;
use sardonyx_tensor::{DataType, Dims};

use crate::executable::{Body, Executable};
use crate::memory::{Held, InputTypes, Planned, Plans, fits, key_of};
use crate::program::RegionKind;
use crate::sizes::{KnownSizes, Scope};

/// Limit: new sets of sizes in a row that get a plan.
const PATIENCE: usize = 3;

/// Plans for the iterations of a region with inputs of unknown sizes, from all runs.
#[derive(Debug, Default)]
pub(crate) struct IterationPlans {
    sizes: KnownSizes,
    plans: Mutex<Plans>,
}

/// State of the choice of plans in one run of a region.
#[derive(Debug, Default)]
pub(super) struct Choice {
    /// Sizes of the previous iteration.
    last: Option<InputTypes>,
    /// Number of new sets of sizes in a row.
    new: usize,
}

impl IterationPlans {
    /// Drops the plans.
    pub(crate) fn forget(&self) {
        *self.plans.lock().unwrap_or_else(PoisonError::into_inner) = Plans::default();
    }

    /// Returns the plan for an iteration with the given values; `None` to use the one for unknown
    /// sizes.
    pub(super) fn choose(
        &self,
        executable: &Executable,
        kind: &RegionKind,
        body: &Body,
        given: &[Held<'_>],
        choice: &mut Choice,
    ) -> Option<Arc<Planned>> {
        let plans = || self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(planned) = plans().find(given) {
            choice.new = 0;
            return Some(Arc::clone(planned));
        }
        let repeats = choice.last.as_ref().is_some_and(|last| fits(last, given));
        if choice.new >= PATIENCE && !repeats {
            choice.last = Some(key_of(given));
            return None;
        }
        choice.new = if repeats { 0 } else { choice.new + 1 };
        let key = key_of(given);
        choice.last = Some(key.clone());
        // A contradiction is an error of the step that it is about, which describes it better.
        let found = self.sizes.find(Scope::inner(executable, body), &types_of(given)).ok()?;
        let planned = Arc::new(Planned::in_region(kind, body, found.sizes));
        plans().keep(key, planned.clone());
        Some(planned)
    }

    /// Returns the types of the values of a body, by slot, for inputs of these types; `None` if
    /// they contradict each other.
    pub(super) fn types(
        &self,
        executable: &Executable,
        body: &Body,
        given: &[Option<Type>],
    ) -> Option<Vec<Option<(DataType, Dims)>>> {
        let found = self.sizes.find(Scope::inner(executable, body), given).ok()?;
        Some(found.sizes.types)
    }
}

/// Returns the types of values; `None` for those that are not tensors.
pub(super) fn types_of(given: &[Held<'_>]) -> Vec<Option<Type>> {
    let types = given.iter().map(|value| {
        let view = value.as_view()?;
        Some(Type::tensor(view.data_type(), view.dims().iter().copied()))
    });
    types.collect()
}
