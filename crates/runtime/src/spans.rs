//! Spans of the crate `tracing`, for programs that observe their libraries with it. Empty without
//! the feature `tracing`.
//!
//! All have the target `sardonyx`, as its crates are parts of one library.

#[cfg(not(feature = "tracing"))]
pub(crate) use absent::{enter_plan, enter_run, enter_step};
#[cfg(feature = "tracing")]
pub(crate) use present::{enter_plan, enter_run, enter_step};

#[cfg(feature = "tracing")]
mod present {
    use sardonyx_model::Model;
    use tracing::span::EnteredSpan;

    use crate::executable::{Executable, Step};

    /// Enters the span of a compilation.
    pub(crate) fn enter_plan(model: &Model) -> EnteredSpan {
        let nodes = || model.graphs().map(|(_, graph)| graph.nodes.len()).sum::<usize>();
        tracing::debug_span!(target: "sardonyx", "plan", nodes = nodes()).entered()
    }

    /// Enters the span of a run.
    pub(crate) fn enter_run() -> EnteredSpan {
        tracing::debug_span!(target: "sardonyx", "run").entered()
    }

    /// Enters the span of a step. Its fields are computed only if a subscriber records the span.
    pub(crate) fn enter_step(executable: &Executable, step: &Step) -> EnteredSpan {
        let node = || executable.label(&step.origins);
        tracing::trace_span!(target: "sardonyx", "step", number = step.number, node = node())
            .entered()
    }
}

#[cfg(not(feature = "tracing"))]
mod absent {
    use sardonyx_model::Model;

    use crate::executable::{Executable, Step};

    /// Span that is not recorded.
    pub(crate) struct Absent;

    pub(crate) fn enter_plan(_: &Model) -> Absent {
        Absent
    }

    #[inline]
    pub(crate) fn enter_run() -> Absent {
        Absent
    }

    #[inline]
    pub(crate) fn enter_step(_: &Executable, _: &Step) -> Absent {
        Absent
    }
}
