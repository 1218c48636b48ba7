//! Spans of the front for the crate `tracing`. Without the feature of that name a span is nothing.

/// Enters the tracing span of opening a model. Calls `source` for the name of the model's source
/// only if a subscriber is enabled.
#[cfg(feature = "tracing")]
pub(crate) fn enter_open(source: impl FnOnce() -> String) -> tracing::span::EnteredSpan {
    tracing::debug_span!(target: "sardonyx", "open", source = source()).entered()
}

/// Placeholder for a span, without the feature `tracing`.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Absent;

/// Does nothing: the feature `tracing` is off.
#[cfg(not(feature = "tracing"))]
pub(crate) fn enter_open(_: impl FnOnce() -> String) -> Absent {
    Absent
}
