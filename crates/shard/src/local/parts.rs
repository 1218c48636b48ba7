//! Parts that a device takes from values that it has.

use sardonyx_model::{AttrValue, Attributes, NodeAttributes, NodeId, Producer, ValueId};
use sardonyx_tensor::{Buffer, Tensor};

use super::{Building, signed};
use crate::form::Form;
use crate::plan::Move;
use crate::ranges::Ranges;
use crate::sizes::stand_in;

impl Building<'_> {
    /// Takes the new part of a local move from the device's old part.
    pub(super) fn part(&mut self, given: ValueId, moved: &Move) -> ValueId {
        let Some(dims) = moved.dims.as_deref().map(stand_in) else { return given };
        let plan = self.plan;
        self.part_of(given, (plan.form(moved.from), plan.form(moved.to)), &dims)
    }

    /// Takes the device's part in the form `to` from `given`, its part in the form `from`. `dims`
    /// are the sizes of the whole value.
    pub(crate) fn part_of(
        &mut self,
        given: ValueId,
        (from, to): (&Form, &Form),
        dims: &[usize],
    ) -> ValueId {
        let ranges = |form: &Form| form.ranges(self.device, dims);
        let (Some(have), Some(want)) = (ranges(from), ranges(to)) else { return given };
        if have != want
            && from.is_whole()
            && let Some(part) = self.cut_constant(given, &want)
        {
            return part;
        }
        let mut bounds: Vec<(usize, usize, usize)> = Vec::new();
        let mut gathered: Vec<(usize, Vec<i64>)> = Vec::new();
        for (axis, (have, want)) in have.iter().zip(&want).enumerate() {
            if have == want {
                continue;
            }
            match &have.shared(want)[..] {
                // An empty part.
                [] => bounds.push((axis, 0, 0)),
                [run] => bounds.push((axis, run.from, run.from + run.len)),
                runs => {
                    let indices = runs.iter().flat_map(|run| run.from..run.from + run.len);
                    gathered.push((axis, indices.map(signed).collect()));
                }
            }
        }
        let mut part = if bounds.is_empty() { given } else { self.slice(given, &bounds) };
        for (axis, indices) in gathered {
            part = self.take(part, &indices, axis);
        }
        part
    }

    /// Adds a constant with the elements of `value` in `ranges`. `None` if `value` is not a
    /// constant or cannot be cut, and in the model of a session, which has no external data.
    fn cut_constant(&mut self, value: ValueId, ranges: &[Ranges]) -> Option<ValueId> {
        let external = self.spelling?.external;
        let tensor = match self.model.value(value).producer {
            Producer::Initializer(_) => {
                let initializer = self.model.initializer(value)?;
                match self.model.tensor(&initializer.tensor, external) {
                    Ok(tensor) => tensor,
                    Err(error) => {
                        self.failed.get_or_insert(error.to_string());
                        return None;
                    }
                }
            }
            Producer::Node(node, _) if self.is_constant_node(node) => {
                match NodeAttributes::new(&self.model, node).attribute("value")? {
                    AttrValue::Tensor(tensor) => tensor,
                    _ => return None,
                }
            }
            _ => return None,
        };
        let part = cut(&tensor, ranges)?;
        let name = self.model.display(Some(self.model.value(value).name)).into_owned();
        Some(self.model.add_initializer(self.graph, &name, &part))
    }

    fn is_constant_node(&self, node: NodeId) -> bool {
        let op_type = self.model.display(self.model.node(node).op_type);
        op_type == "Constant" && self.model.domain_of(node).is_empty()
    }
}

/// Copies the elements of a tensor whose indices are in `ranges`. `None` if elements are not whole
/// bytes, or if memory runs out.
fn cut(tensor: &Tensor, ranges: &[Ranges]) -> Option<Tensor> {
    let elem = tensor.data_type();
    let size = elem.bits().filter(|bits| bits % 8 == 0)? / 8;
    let view = tensor.view();
    let bytes = view.contiguous_bytes()?;
    let dims: Vec<usize> = ranges.iter().map(Ranges::len).collect();
    let wanted = dims.iter().product::<usize>() * size;
    let mut part = Vec::new();
    part.try_reserve_exact(wanted).ok()?;
    walk(tensor.dims(), ranges, 0, &mut |from, len| {
        if let Some(run) = bytes.get(from * size..(from + len) * size) {
            part.extend_from_slice(run);
        }
    });
    Tensor::from_buffer(elem, dims, Buffer::from_vec(part)).ok()
}

/// Calls `each` for each contiguous run of elements in `ranges`, with the index of its first
/// element and the number of elements.
fn walk(dims: &[usize], ranges: &[Ranges], base: usize, each: &mut dyn FnMut(usize, usize)) {
    let (Some((_, inner)), Some((own, rest))) = (dims.split_first(), ranges.split_first()) else {
        return each(base, 1);
    };
    let stride: usize = inner.iter().product();
    let is_all = rest.iter().zip(inner).all(|(range, size)| range.len() == *size);
    for range in own.iter() {
        if is_all {
            each(base + range.start * stride, range.len() * stride);
            continue;
        }
        for index in range.clone() {
            walk(inner, rest, base + index * stride, each);
        }
    }
}
