//! Arithmetic on values that describe shapes: small arrays of integers, which may be symbolic.
//!
//! Exporters write `Reshape` targets as chains such as `Shape -> Gather -> Div -> Concat`.
//! Following the integers through a chain finds shapes that rules about types alone cannot.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::infer::Infer;
use crate::known::{Dims, Known, MAX_KNOWN, elements, keep_if_exact};

/// Array of integers.
#[derive(Clone)]
pub(crate) struct Ints {
    /// Element type.
    pub(crate) elem: DataType,
    /// Sizes; empty for a scalar.
    pub(crate) dims: Dims,
    /// Elements in row-major order.
    pub(crate) values: Vec<Dim>,
}

impl Ints {
    /// Makes an array without axes.
    pub(crate) fn scalar(elem: DataType, value: Dim) -> Ints {
        Ints { elem, dims: Dims::new(), values: vec![value] }
    }

    /// Makes an array with one axis.
    pub(crate) fn vector(elem: DataType, values: Vec<Dim>) -> Ints {
        Ints { elem, dims: [values.len()].into_iter().collect(), values }
    }

    /// Makes an array whose elements `at` returns by index. `None` if it would be too large.
    pub(crate) fn build(
        elem: DataType,
        dims: Dims,
        mut at: impl FnMut(&[usize]) -> Dim,
    ) -> Option<Ints> {
        let count = elements(&dims).filter(|count| *count <= MAX_KNOWN)?;
        let mut index = vec![0; dims.len()];
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(keep_if_exact(elem, at(&index)));
            for (axis, size) in index.iter_mut().zip(&dims).rev() {
                *axis += 1;
                if *axis < *size {
                    break;
                }
                *axis = 0;
            }
        }
        Some(Ints { elem, dims, values })
    }

    /// Makes an array of elements of this one: `from` returns the source index for each index.
    pub(crate) fn pick(
        &self,
        dims: Dims,
        mut from: impl FnMut(&[usize]) -> Option<Dims>,
    ) -> Option<Ints> {
        Ints::build(self.elem, dims, |index| {
            from(index).map_or(Dim::Unknown, |index| self.at(&index))
        })
    }

    /// Returns the element at an index, or an unknown one if there is none.
    pub(crate) fn at(&self, index: &[usize]) -> Dim {
        self.offset(index)
            .and_then(|offset| self.values.get(offset))
            .cloned()
            .unwrap_or(Dim::Unknown)
    }

    /// Returns the offset of the element at an index.
    pub(crate) fn offset(&self, index: &[usize]) -> Option<usize> {
        let mut offset = 0;
        for (axis, size) in index.iter().zip(&self.dims) {
            if axis >= size {
                return None;
            }
            offset = offset * size + axis;
        }
        (index.len() == self.dims.len()).then_some(offset)
    }

    /// Broadcasts the array to these sizes.
    pub(crate) fn broadcast(&self, dims: Dims) -> Option<Ints> {
        Ints::build(self.elem, dims, |index| self.broadcast_at(index))
    }

    /// Returns the element that broadcasting brings to an index of the result.
    fn broadcast_at(&self, index: &[usize]) -> Dim {
        let skipped = index.len().saturating_sub(self.dims.len());
        let index: Dims = index[skipped..]
            .iter()
            .zip(&self.dims)
            .map(|(axis, size)| if *size == 1 { 0 } else { *axis })
            .collect();
        self.at(&index)
    }
}

/// Returns the integers of an input, if they are known.
pub(crate) fn of_input(cx: &Infer<'_>, index: usize) -> Option<Ints> {
    let known = cx.known_value(index)?;
    Some(Ints { elem: known.elem(), dims: known.dims().into(), values: known.elements()? })
}

/// Returns the integers of an input; unknown ones if only the shape is known.
pub(crate) fn of_input_or_unknown(cx: &Infer<'_>, index: usize) -> Option<Ints> {
    of_input(cx, index).or_else(|| {
        let dims = sizes(cx.shape(index)?)?;
        Ints::build(cx.elem(index)?, dims, |_| Dim::Unknown)
    })
}

/// Sets the integers of the first output.
pub(crate) fn set(cx: &mut Infer<'_>, ints: Ints) {
    set_output(cx, 0, ints);
}

/// Sets the integers of an output.
pub(crate) fn set_output(cx: &mut Infer<'_>, output: usize, ints: Ints) {
    if let Some(known) = Known::array(ints.elem, ints.dims, ints.values) {
        cx.set_known(output, known);
    }
}

/// Sets the integers of the first output, if they are known.
pub(crate) fn set_if(cx: &mut Infer<'_>, ints: Option<Ints>) {
    if let Some(ints) = ints {
        set(cx, ints);
    }
}

/// Returns the sizes of a shape if all are known.
pub(crate) fn sizes(shape: &Shape) -> Option<Dims> {
    shape.iter().map(Dim::size).collect()
}

/// Passes the elements of the first input to the first output, which may have another shape. One
/// size of that may be unknown.
pub(crate) fn pass(cx: &mut Infer<'_>, shape: Option<&Shape>) {
    let (Some(shape), Some(ints)) = (shape, of_input(cx, 0)) else {
        return;
    };
    let mut dims: Dims = shape.iter().map(|size| size.size().unwrap_or(1)).collect();
    let mut open = shape.iter().enumerate().filter(|(_, size)| size.size().is_none());
    if let (Some((axis, _)), None) = (open.next(), open.next()) {
        let Some(rest) = elements(&dims).filter(|rest| *rest > 0) else {
            return;
        };
        dims[axis] = ints.values.len() / rest;
    }
    set(cx, Ints { dims, ..ints });
}

/// Returns the sizes to which arrays broadcast.
pub(crate) fn broadcast_dims<'a>(all: impl IntoIterator<Item = &'a [usize]>) -> Option<Dims> {
    let mut result = Dims::new();
    for dims in all {
        while result.len() < dims.len() {
            result.insert(0, 1);
        }
        let skipped = result.len() - dims.len();
        for (size, other) in result[skipped..].iter_mut().zip(dims) {
            match (*size, *other) {
                (1, other) => *size = other,
                (_, 1) => {}
                (size, other) if size != other => return None,
                _ => {}
            }
        }
    }
    Some(result)
}

/// Sets the first output to `f` folded over all inputs, element by element.
pub(crate) fn combine(cx: &mut Infer<'_>, f: impl Fn(&Dim, &Dim) -> Dim) {
    if !(0..cx.input_count()).all(|index| cx.is_known(index)) {
        return;
    }
    let mut result: Option<Ints> = None;
    for index in 0..cx.input_count() {
        let Some(next) = of_input(cx, index) else {
            return;
        };
        result = match result {
            None => Some(next),
            Some(result) => broadcast(result.elem, [&result, &next], |[a, b]| f(a, b)),
        };
    }
    set_if(cx, result);
}

/// Sets the first output to the truth value that `f` returns for two inputs, element by element.
pub(crate) fn set_comparison(cx: &mut Infer<'_>, f: impl Fn(&Dim, &Dim) -> Option<bool>) {
    let (Some(a), Some(b)) = (of_input(cx, 0), of_input(cx, 1)) else {
        return;
    };
    let decided = broadcast(DataType::Bool, [&a, &b], |[a, b]| truth(f(a, b)));
    set_if(cx, decided);
}

/// Computes `f` over arrays that broadcast to each other's sizes.
pub(crate) fn broadcast<const N: usize>(
    elem: DataType,
    operands: [&Ints; N],
    f: impl Fn([&Dim; N]) -> Dim,
) -> Option<Ints> {
    let dims = broadcast_dims(operands.iter().map(|ints| &ints.dims[..]))?;
    Ints::build(elem, dims, |index| {
        let elements = operands.map(|ints| ints.broadcast_at(index));
        f(elements.each_ref())
    })
}

/// Sets the first output to `f` of the first input, element by element.
pub(crate) fn map(cx: &mut Infer<'_>, f: impl Fn(&Dim) -> Dim) {
    if let Some(known) = cx.known_value(0) {
        map_to(cx, known.elem(), f);
    }
}

/// Sets the first output to `f` of the first input, element by element, with another element type.
pub(crate) fn map_to(cx: &mut Infer<'_>, elem: DataType, f: impl Fn(&Dim) -> Dim) {
    let Some(ints) = of_input(cx, 0) else { return };
    let values = ints.values.iter().map(f).collect();
    let dims = ints.dims;
    set(cx, Ints { elem, dims, values });
}

/// Returns the division of an element type. Division of integers drops the fraction.
pub(crate) fn divide(elem: DataType) -> fn(&Dim, &Dim) -> Dim {
    if elem.is_integer() { divide_integers } else { |a, b| a.exact_div(b).unwrap_or(Dim::Unknown) }
}

fn divide_integers(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) => a.checked_div(*b).map_or(Dim::Unknown, Dim::Known),
        // Division drops the fraction, which is rounding down only if no operand is negative.
        _ if a.is_never_negative() && b.is_never_negative() => a.floor_div(b),
        _ => a.exact_div(b).unwrap_or(Dim::Unknown),
    }
}

/// Computes the remainder with the sign of the dividend.
pub(crate) fn truncated_remainder(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) => a.checked_rem(*b).map_or(Dim::Unknown, Dim::Known),
        _ if a.is_never_negative() && b.is_never_negative() => a.rem(b),
        _ => Dim::Unknown,
    }
}

/// Computes the absolute value.
pub(crate) fn absolute(value: &Dim) -> Dim {
    match value {
        Dim::Known(number) => number.checked_abs().map_or(Dim::Unknown, Dim::Known),
        _ if value.is_never_negative() => value.clone(),
        _ => Dim::Unknown,
    }
}

/// Negates a value.
pub(crate) fn negate(value: &Dim) -> Dim {
    Dim::Known(0).sub(value)
}

/// Converts a truth value to a number.
pub(crate) fn truth(value: Option<bool>) -> Dim {
    value.map_or(Dim::Unknown, |value| Dim::Known(value.into()))
}

/// Returns whether values are equal, if that is certain.
pub(crate) fn equal(a: &Dim, b: &Dim) -> Option<bool> {
    if a.surely_equals(b) {
        Some(true)
    } else if a.surely_differs(b) || greater(a, b) == Some(true) || greater(b, a) == Some(true) {
        Some(false)
    } else {
        None
    }
}

/// Returns whether the first value is greater, if that is certain.
pub(crate) fn greater(a: &Dim, b: &Dim) -> Option<bool> {
    if a.sub(b).sub(&Dim::Known(1)).is_never_negative() {
        Some(true)
    } else if b.sub(a).is_never_negative() {
        Some(false)
    } else {
        None
    }
}

/// Counts a position from the front that may count from the end of an axis.
pub(crate) fn position(index: &Dim, size: usize) -> Option<usize> {
    let index = index.known()?;
    let index = if index < 0 { index.checked_add(i64::try_from(size).ok()?)? } else { index };
    usize::try_from(index).ok().filter(|index| *index < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_drops_the_fraction() {
        let n = Dim::symbol("N");
        let rows = [
            (Dim::Known(7), Dim::Known(2), "3"),
            (Dim::Known(-7), Dim::Known(2), "-3"),
            (Dim::Known(7), Dim::Known(0), "?"),
            (Dim::Known(i64::MIN), Dim::Known(-1), "?"),
            (n.clone(), Dim::Known(2), "floor(N/2)"),
            (n.mul(&6i64.into()), Dim::Known(-3), "-2*N"),
            (n.sub(&3i64.into()), Dim::Known(2), "?"), // rounds up while N is 2
            (n.clone(), n, "1"),
            (Dim::Unknown, Dim::Known(2), "?"),
        ];
        for (a, b, expected) in rows {
            let quotient = divide(DataType::Int64)(&a, &b);
            assert_eq!(quotient.to_string(), expected, "{a} / {b}");
        }
        let half = divide(DataType::Float)(&Dim::Known(7), &Dim::Known(2));
        assert_eq!(half, Dim::Unknown);
    }

    #[test]
    fn comparisons_decide_only_certain_cases() {
        let n = Dim::symbol("N");
        let rows = [
            (n.clone(), n.clone(), Some(true), Some(false)),
            (n.clone(), Dim::Known(-1), Some(false), Some(true)),
            (n.clone(), Dim::Known(1), None, None),
            (n.add(&2i64.into()), n.clone(), Some(false), Some(true)),
            (n.clone(), Dim::symbol("M"), None, None),
            (Dim::Unknown, Dim::Unknown, None, None),
        ];
        for (a, b, same, larger) in rows {
            assert_eq!((equal(&a, &b), greater(&a, &b)), (same, larger), "{a}, {b}");
        }
    }
}
