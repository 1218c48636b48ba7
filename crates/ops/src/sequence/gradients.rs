//! Gradients of operators on sequences. The gradient of a sequence is a sequence of the gradients
//! of its items.
//!
//! Rules read a sequence itself only if necessary: positions are counted in its gradient, which has
//! the same length, so that a sequence that a loop grows need not be kept for each iteration.

use sardonyx_tensor::{CastOptions, DataType};

use crate::adapt::Refusal;
use crate::attributes::AttrValue;
use crate::gradient::{Backward, Expr};
use crate::sequence::items::PerItem;

type Result = std::result::Result<(), Refusal>;

/// Returns the position that an input holds, counted from the front of a sequence of `length`
/// items; `None` if it is absent.
fn from_front<'c>(
    cx: &'c Backward<'_>,
    index: usize,
    length: impl FnOnce() -> Expr<'c>,
) -> Option<Expr<'c>> {
    let position = cx.input_if(index)?.cast(DataType::Int64);
    let known = cx.constant(index).and_then(|known| {
        let known = sardonyx_tensor::cast(&known, DataType::Int64, CastOptions::default()).ok()?;
        known.to_vec::<i64>().ok()
    });
    if known.is_some_and(|known| known.iter().all(|position| *position >= 0)) {
        return Some(position);
    }
    let is_from_end = position.compare("Less", position.number(0.0));
    Some(is_from_end.choose(position + length(), position))
}

/// Sets the gradient of `SequenceAt`: adds it to that of one item. Other items keep the gradients
/// from other readers, so that reading all items one by one takes time in proportion to their
/// number.
pub(crate) fn at(cx: &Backward<'_>) -> Result {
    let (items, position, dy) = (cx.input(0)?, cx.input(1)?, cx.arriving()?);
    let (all, sum) = match cx.gathered_gradient(0) {
        Some(all) => (all, all.at(position) + dy),
        None => (cx.per_item(&[items], PerItem::Zeros(dy.elem())), dy),
    };
    let place = from_front(cx, 1, || all.length());
    cx.give_total(0, all.remove_item(place).with_item(sum, place));
    Ok(())
}

pub(crate) fn construct(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    let wanted = (0..cx.input_count()).filter(|index| cx.wants(*index));
    for index in wanted {
        cx.give(index, dy.at(cx.position(index as i64)));
    }
    Ok(())
}

/// Sets the gradients of `SequenceInsert`: the new item gets its own, and the sequence the others.
pub(crate) fn insert(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    let place = from_front(cx, 2, || dy.length() - 1.0);
    if cx.wants(0) {
        cx.give(0, dy.remove_item(place));
    }
    if cx.wants(1) {
        cx.give(1, dy.at(place.unwrap_or_else(|| cx.position(-1))));
    }
    Ok(())
}

/// Sets the gradient of `SequenceErase`: the erased item gets zeros.
pub(crate) fn erase(cx: &Backward<'_>) -> Result {
    let (items, dy) = (cx.input(0)?, cx.arriving()?);
    let place = from_front(cx, 1, || dy.length() + 1.0);
    let gone = items.at(place.unwrap_or_else(|| cx.position(-1)));
    cx.give(0, dy.with_item(gone.zeros(), place));
    Ok(())
}

/// Sets the gradient of `ConcatFromSequence`: each item gets its part.
pub(crate) fn concat(cx: &Backward<'_>) -> Result {
    let (items, dy) = (cx.input(0)?, cx.arriving()?);
    let axis = cx.int("axis").unwrap_or(0);
    let attributes = [("axis", AttrValue::Int(axis)), ("keepdims", AttrValue::Int(0))];
    if cx.int("new_axis").unwrap_or(0) != 0 {
        cx.give(0, dy.op_with("SplitToSequence", &[], &attributes));
        return Ok(());
    }
    let sizes = cx.per_item(&[items], PerItem::Size { axis });
    let sizes = sizes.op_with("ConcatFromSequence", &[], &[("axis", AttrValue::Int(0))]);
    cx.give(0, dy.op_with("SplitToSequence", &[sizes], &attributes[..1]));
    Ok(())
}

/// Sets the gradient of `SplitToSequence`: the joined parts. If the sequence may be empty, an
/// additional part is joined and then removed.
pub(crate) fn split<'c>(cx: &'c Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let axis = cx.int("axis").unwrap_or(0);
    let drops_axis = cx.int("keepdims") == Some(0) && cx.input_if(1).is_none();
    let new_axis = AttrValue::Int(drops_axis.into());
    let attributes = [("axis", AttrValue::Int(axis)), ("new_axis", new_axis)];
    let join = |items: Expr<'c>| items.op_with("ConcatFromSequence", &[], &attributes);
    let size = cx.shape_of(x).and_then(|shape| {
        let index = if axis < 0 { axis + shape.len() as i64 } else { axis };
        shape.get(usize::try_from(index).ok()?)?.known()
    });
    if size.is_some_and(|size| size > 0) {
        cx.give(0, join(dy));
        return Ok(());
    }
    let [start, axes] = [0, axis].map(|value| cx.ints_of(&[value]));
    if drops_axis {
        let before = x.sizes(0, Some(axis));
        let others = match axis {
            -1 => before,
            _ => before.concat(&[x.sizes(axis + 1, None)], 0),
        };
        let more = dy.with_item(dy.number(0.0).expand(others), None);
        let size = x.shape().gather(axes, 0);
        cx.give(0, join(more).op_with("Slice", &[start, size, axes], &[]));
    } else {
        let nothing = x.op_with("Slice", &[start, start, axes], &[]);
        cx.give(0, join(dy.with_item(nothing, None)));
    }
    Ok(())
}
