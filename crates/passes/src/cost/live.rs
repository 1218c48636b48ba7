//! How much is alive at a time.

use sardonyx_model::{Dim, NodeId};

use super::sum::{Adder, Assumed, Sum};

/// The most memory that activations take at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes. A formula is that of the step that is largest when every symbol is
    /// [`ASSUMED_SIZE`](super::ASSUMED_SIZE); missing are the activations of the graph, at any
    /// time, that have no size in advance.
    pub bytes: Sum,
    /// The node that runs then.
    pub node: Option<NodeId>,
}

/// Memory from one step to another, both included.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) bytes: Dim,
    pub(super) first: usize,
    pub(super) last: usize,
}

/// The step at which most is alive, and how much that is. Of equals the first counts.
pub(super) fn largest(spans: &[Span], steps: usize, assumed: &mut Assumed) -> (usize, Sum) {
    // What is added at a step, and what is gone before it.
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
