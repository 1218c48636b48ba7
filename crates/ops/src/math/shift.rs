//! `BitShift` of version 28 for older versions, which take only unsigned integers and leave shifts
//! by at least as many bits as a number has undefined.

use sardonyx_model::ValueId;
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};
use crate::downward::ints_of;

/// Shifts with 64 unsigned bits, and selects the result of version 28 for shifts that are too
/// large.
pub(super) fn limit_shift(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let elem = cx.input_type(0).or(cx.input_type(1)).and_then(|ty| ty.elem());
    let Some(elem) = elem.filter(|elem| elem.is_integer()) else {
        return Err(cx.refuse("the type of its inputs is unknown"));
    };
    let bits = elem.bits().unwrap_or_default() as i64;
    let known = cx.constant(1).and_then(|tensor| ints_of(&tensor));
    let is_few = known.is_some_and(|values| values.iter().all(|by| (0..bits).contains(by)));
    if is_few && !elem.is_signed() {
        return Ok(());
    }
    let is_left = cx.string("direction").as_deref() == Some("LEFT");
    let mut shift = Shift { cx };
    let (x, by) = (shift.cx.input(0), shift.cx.input(1));
    if !elem.is_signed() {
        let limit = shift.number(bits, elem)?;
        let zero = shift.number(0, elem)?;
        let fits = shift.make("Less", &[by, limit]);
        let by = shift.make("Where", &[fits, by, zero]);
        let direction = if is_left { "LEFT" } else { "RIGHT" };
        let direction = [("direction", AttrValue::from(direction))];
        let shifted = Some(shift.cx.before("BitShift", &[x, by], &direction));
        shift.choose(fits, shifted, zero);
        return Ok(());
    }
    let (x, by) = (shift.to(x, DataType::Int64), shift.to(by, DataType::Int64));
    let zero = shift.number(0, DataType::Int64)?;
    let mut fits = None;
    let mut by = by;
    if !is_few {
        let limit = shift.number(bits, DataType::Int64)?;
        let small = shift.make("Less", &[by, limit]);
        let negative = shift.make("Less", &[by, zero]);
        let positive = shift.make("Not", &[negative]);
        fits = shift.make("And", &[small, positive]);
        by = shift.make("Where", &[fits, by, zero]);
    }
    // A negative number that is shifted to the right by too many bits becomes -1, all sign bits.
    let ones = shift.number(-1, DataType::Int64)?;
    let below = if is_left { None } else { shift.make("Less", &[x, zero]) };
    let shifted =
        if is_left { shift.shift(x, by, "LEFT") } else { shift.right(x, by, below, ones) };
    if fits.is_none() {
        cx.clear_attributes();
        cx.become_operator("Cast");
        cx.set("to", i64::from(elem.number()));
        cx.set_inputs(&[shifted]);
        return Ok(());
    }
    let beyond = match below {
        Some(_) => shift.make("Where", &[below, ones, zero]),
        None => zero,
    };
    let (shifted, beyond) = (shift.to(shifted, elem), shift.to(beyond, elem));
    shift.choose(fits, shifted, beyond);
    Ok(())
}

struct Shift<'c, 'a> {
    cx: &'c mut Adapt<'a>,
}

impl Shift<'_, '_> {
    fn number(&mut self, value: i64, elem: DataType) -> Result<Option<ValueId>, Refusal> {
        let value = cast(&Tensor::scalar(value), elem, CastOptions::default());
        let value = value.map_err(|error| self.cx.refuse(error))?;
        Ok(Some(self.cx.add_constant(value)))
    }

    fn make(&mut self, op: &'static str, inputs: &[Option<ValueId>]) -> Option<ValueId> {
        Some(self.cx.before(op, inputs, &[]))
    }

    fn to(&mut self, value: Option<ValueId>, elem: DataType) -> Option<ValueId> {
        let to = [("to", AttrValue::Int(elem.number().into()))];
        Some(self.cx.before("Cast", &[value], &to))
    }

    /// Shifts in 64 bits. The final cast to a narrower type drops excess bits.
    fn shift(
        &mut self,
        x: Option<ValueId>,
        by: Option<ValueId>,
        direction: &'static str,
    ) -> Option<ValueId> {
        let (x, by) = (self.to(x, DataType::Uint64), self.to(by, DataType::Uint64));
        let direction = [("direction", AttrValue::from(direction))];
        Some(self.cx.before("BitShift", &[x, by], &direction))
    }

    /// Shifts to the right. A negative number is shifted as its complement `-1 - x`, which is not
    /// negative.
    fn right(
        &mut self,
        x: Option<ValueId>,
        by: Option<ValueId>,
        below: Option<ValueId>,
        ones: Option<ValueId>,
    ) -> Option<ValueId> {
        let complement = self.make("Sub", &[ones, x]);
        let magnitude = self.make("Where", &[below, complement, x]);
        let shifted = self.shift(magnitude, by, "RIGHT");
        let shifted = self.to(shifted, DataType::Int64);
        let complement = self.make("Sub", &[ones, shifted]);
        self.make("Where", &[below, complement, shifted])
    }

    /// Adds a node that selects between two values.
    fn choose(
        &mut self,
        condition: Option<ValueId>,
        value: Option<ValueId>,
        other: Option<ValueId>,
    ) {
        self.cx.clear_attributes();
        self.cx.become_operator("Where");
        self.cx.set_inputs(&[condition, value, other]);
    }
}
