//! Peak of live memory.

use sardonyx_model::{Dim, NodeId};

use super::sum::{Adder, Assumed, Sum};

/// Maximum of the memory that activations take at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peak {
    /// Number of bytes. A formula belongs to the step that is largest if every symbol is
    /// [`ASSUMED_SIZE`](super::ASSUMED_SIZE). All activations of the graph without a known size, at
    /// any time, count as missing.
    pub bytes: Sum,
    /// Node that runs at the peak.
    pub node: Option<NodeId>,
}

/// Memory that is live from one step to another, inclusive.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) bytes: Dim,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// Returns the first step with the most live memory, and the number of its bytes.
pub(super) fn largest(spans: &[Span], steps: usize, assumed: &mut Assumed) -> (usize, Sum) {
    // Memory that becomes live at a step, minus memory that was freed before it.
    let mut changes = vec![0i128; steps + 1];
    for span in spans {
        let size = assumed.size(&span.bytes);
        changes[span.first] += size;
        changes[span.last + 1] -= size;
    }
    let (mut step, mut most, mut alive) = (0, 0, 0);
    for (index, change) in changes.iter().enumerate() {
        alive += change;
        if alive > most {
            (step, most) = (index, alive);
        }
    }
    let mut adder = Adder::default();
    for span in spans {
        let is_alive = (span.first..=span.last).contains(&step);
        if is_alive || span.bytes.is_unknown() {
            adder.add(&span.bytes.clone().into());
        }
    }
    (step, adder.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_step_counts() {
        let span = |bytes: Dim, first, last| Span { bytes, first, last };
        let n = Dim::symbol("N");
        let spans = [
            span(Dim::Known(2000), 0, 0),
            span(n.clone(), 0, 1),
            span(n.clone(), 1, 2),
            span(n.mul(&Dim::Known(2)), 2, 3),
            span(Dim::Unknown, 3, 3),
        ];
        let (step, bytes) = largest(&spans, 4, &mut Assumed::default());
        assert_eq!((step, bytes.known.to_string()), (2, "3*N".to_string()));
        assert_eq!(bytes.missing, 1);
    }
}
