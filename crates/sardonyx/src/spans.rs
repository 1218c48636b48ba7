//! Spans of the front for the crate `tracing`. Without the feature of that name a span is nothing.

/// Enters the span of opening a model. Asks for the name of its source only if a subscriber wants
/// the span.
#[cfg(feature = "tracing")]
pub(crate) fn enter_open(source: impl FnOnce() -> String) -> tracing::span::EnteredSpan {
    tracing::debug_span!(target: "sardonyx", "open", source = source()).entered()
}

/// A span that no program can observe.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Absent;

/// Enters the span of opening a model. Asks for the name of its source only if a subscriber wants
/// the span.
#[cfg(not(feature = "tracing"))]
pub(crate) fn enter_open(_: impl FnOnce() -> String) -> Absent {
    Absent
}
