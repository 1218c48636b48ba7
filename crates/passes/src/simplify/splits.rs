//! Slices that together are a whole tensor.

use hashbrown::HashMap;
use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::operators::{SLICE, SPLIT};
use sardonyx_tensor::Tensor;

use super::chains::{bounds_of, clamp_bound, find_slices};
use super::rule::SLICES;
use super::{Job, Scope, is_plain};
use crate::finding::place_of_node;
use crate::infer::Inference;
use crate::matcher::{Match, Matcher};

/// Elements of an axis that a `Slice` gives.
#[derive(Debug, Clone, Copy)]
struct Piece {
    node: NodeId,
    start: i64,
    end: i64,
}

/// A tensor that slices divide along an axis.
struct Division {
    x: ValueId,
    axis: i64,
    size: i64,
    /// Slices in the order of nodes.
    pieces: Vec<Piece>,
}

impl Division {
    /// Returns the pieces in the order of elements, if they are the whole tensor once.
    fn sort_pieces(&self) -> Option<Vec<Piece>> {
        let mut sorted = self.pieces.clone();
        sorted.sort_by_key(|piece| piece.start);
        let mut end = 0;
        for piece in &sorted {
            if piece.start != end || piece.end <= piece.start {
                return None;
            }
            end = piece.end;
        }
        (sorted.len() > 1 && end == self.size).then_some(sorted)
    }
}

impl Job<'_> {
    /// Replaces slices that divide a tensor by a `Split`, and returns by how many nodes that is
    /// fewer.
    pub(super) fn join_slices(&mut self, scope: Scope, inference: &Inference) -> usize {
        // The first version has no sizes of parts of its own.
        if scope.opset < 2 {
            return 0;
        }
        let mut count = 0;
        for graph in self.resolved.graphs().to_vec() {
            let found = self.with_matcher(scope, graph, inference, |cx| find_divisions(self, cx));
            for division in found {
                if let Some(pieces) = division.sort_pieces() {
                    let place = place_of_node(self.resolved.model(), pieces[0].node);
                    self.report.note_place(SLICES.name, place);
                    count += pieces.len() - 1;
                    self.split(scope, &division, &pieces);
                }
            }
        }
        self.resolved.place_made();
        self.note(SLICES.name, count, count);
        count
    }

    fn split(&mut self, scope: Scope, division: &Division, pieces: &[Piece]) {
        let Some(first) = division.pieces.first() else { return };
        let sizes: Vec<i64> = pieces.iter().map(|piece| piece.end - piece.start).collect();
        let axis = ("axis", AttrValue::Int(division.axis));
        let mut build = self.resolved.build(first.node);
        let x = Some(division.x);
        // Before version 13, sizes are an attribute.
        let (split, _) = if scope.opset < 13 {
            build.before(SPLIT.name, "", &[x], &[axis, ("split", sizes.into())])
        } else {
            let Ok(sizes) = Tensor::from_vec([sizes.len()], sizes) else { return };
            let sizes = build.constant("sizes", &sizes);
            build.before(SPLIT.name, "", &[x, Some(sizes)], &[axis])
        };
        let model = self.resolved.model_mut();
        model.fill_outputs(split, pieces.len());
        for (index, piece) in pieces.iter().enumerate() {
            let Some(output) = model.outputs(piece.node).first().copied().flatten() else {
                continue;
            };
            model.drop_output(piece.node, 0);
            model.redefine_output(split, index, output);
        }
        pieces.iter().for_each(|piece| self.resolved.remove(piece.node));
        self.resolved.set_opset(split, scope.opset);
    }
}

/// Finds the tensors of which several slices along an axis are taken.
fn find_divisions(job: &Job<'_>, cx: &Matcher<'_>) -> Vec<Division> {
    let mut found: Vec<Division> = Vec::new();
    let mut places: HashMap<(ValueId, i64), usize> = HashMap::new();
    for node in job.resolved.order_of(cx.graph) {
        if !cx.is(*node, &SLICE) || !is_plain(cx.model, *node) {
            continue;
        }
        let Some((division, piece)) = find_piece(cx, *node) else { continue };
        let place = *places.entry((division.x, division.axis)).or_insert(found.len());
        if place == found.len() {
            found.push(division);
        }
        found[place].pieces.push(piece);
    }
    found
}

/// Finds the elements that a `Slice` of one axis gives, unless the `Slice` merges with its only
/// reader, which leaves as many nodes as a `Split` saves.
fn find_piece(cx: &Matcher<'_>, node: NodeId) -> Option<(Division, Piece)> {
    let x = cx.input(node, 0)?;
    cx.output(node).filter(|output| !(cx.is_constant)(*output))?;
    if cx.only_reader(node).is_some_and(|reader| matches!(find_slices(cx, reader), Match::Yes(_))) {
        return None;
    }
    let bounds = bounds_of(cx, node)?;
    let ([start], [end], [axis], [1]) =
        (&bounds.starts[..], &bounds.ends[..], &bounds.axes[..], &bounds.steps[..])
    else {
        return None;
    };
    let size = cx.shape(x)?.get(usize::try_from(*axis).ok()?)?.known()?;
    let (start, end) = (clamp_bound(*start, size), clamp_bound(*end, size));
    let piece = Piece { node, start, end };
    Some((Division { x, axis: *axis, size, pieces: Vec::new() }, piece))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn division(bounds: &[(i64, i64)]) -> Division {
        let node = sardonyx_model::Id::new(0);
        let pieces = bounds.iter().map(|(start, end)| Piece { node, start: *start, end: *end });
        Division { x: sardonyx_model::Id::new(0), axis: 0, size: 6, pieces: pieces.collect() }
    }

    #[test]
    fn only_whole_tensors_are_divided() {
        let whole = division(&[(4, 6), (0, 3), (3, 4)]).sort_pieces();
        let starts: Option<Vec<i64>> =
            whole.map(|pieces| pieces.iter().map(|piece| piece.start).collect());
        assert_eq!(starts, Some(vec![0, 3, 4]));
        for bounds in
            [&[(0, 6)][..], &[(0, 3)], &[(0, 3), (4, 6)], &[(0, 4), (3, 6)], &[(0, 3), (3, 5)]]
        {
            assert!(division(bounds).sort_pieces().is_none(), "{bounds:?}");
        }
    }
}
