//! Arithmetic on values that describe shapes: small arrays of integers, symbolic or not.
//!
//! Exporters write `Reshape` targets as chains such as `Shape -> Gather -> Div -> Concat`.
//! Following the integers through them keeps shapes known that no rule about types alone could
//! give.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType;

use crate::infer::Infer;
use crate::known::{Dims, Known, MAX_KNOWN, elements, held};

/// An array of integers.
#[derive(Clone)]
pub(crate) struct Ints {
    /// Element type.
    pub(crate) elem: DataType,
    /// Sizes; none for a scalar.
    pub(crate) dims: Dims,
    /// The elements, row by row.
    pub(crate) values: Vec<Dim>,
}

impl Ints {
    /// An array without axes.
    pub(crate) fn scalar(elem: DataType, value: Dim) -> Ints {
        Ints { elem, dims: Dims::new(), values: vec![value] }
    }

    /// An array with one axis.
    pub(crate) fn vector(elem: DataType, values: Vec<Dim>) -> Ints {
        Ints { elem, dims: [values.len()].into_iter().collect(), values }
    }

    /// The array whose elements `at` gives by index, unless it is too large.
    pub(crate) fn build(
        elem: DataType,
        dims: Dims,
        mut at: impl FnMut(&[usize]) -> Dim,
    ) -> Option<Ints> {
        let count = elements(&dims).filter(|count| *count <= MAX_KNOWN)?;
        let mut index = vec![0; dims.len()];
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(held(elem, at(&index)));
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

    /// The array whose element at each index is the one at the index that `from` makes of it.
    pub(crate) fn pick(
        &self,
        dims: Dims,
        mut from: impl FnMut(&[usize]) -> Option<Dims>,
    ) -> Option<Ints> {
        Ints::build(self.elem, dims, |index| {
            from(index).map_or(Dim::Unknown, |index| self.at(&index))
        })
    }

    /// The element at an index; unknown where there is none.
    pub(crate) fn at(&self, index: &[usize]) -> Dim {
        self.offset(index)
            .and_then(|offset| self.values.get(offset))
            .cloned()
            .unwrap_or(Dim::Unknown)
    }

    /// Where the element at an index is.
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

    /// The same, broadcast to these sizes.
    pub(crate) fn broadcast(&self, dims: Dims) -> Option<Ints> {
        Ints::build(self.elem, dims, |index| self.broadcast_at(index))
    }

    /// The element that broadcasting brings to an index of a result.
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

/// The integers of an input, if they are known.
pub(crate) fn of_input(cx: &Infer<'_>, index: usize) -> Option<Ints> {
    let known = cx.known(index)?;
    Some(Ints { elem: known.elem(), dims: known.dims().into(), values: known.elements()? })
}

/// The same, with unknown elements if nothing is known but how many there are.
pub(crate) fn of_input_or_unknown(cx: &Infer<'_>, index: usize) -> Option<Ints> {
    of_input(cx, index).or_else(|| {
        let dims = sizes(cx.shape(index)?)?;
        Ints::build(cx.elem(index)?, dims, |_| Dim::Unknown)
    })
}

/// Says that the first output has these integers.
pub(crate) fn set(cx: &mut Infer<'_>, ints: Ints) {
    set_output(cx, 0, ints);
}

/// Says that an output has these integers.
pub(crate) fn set_output(cx: &mut Infer<'_>, output: usize, ints: Ints) {
    if let Some(known) = Known::array(ints.elem, ints.dims, ints.values) {
        cx.set_known(output, known);
    }
}

/// The first output has these integers, if there are any.
pub(crate) fn set_if(cx: &mut Infer<'_>, ints: Option<Ints>) {
    if let Some(ints) = ints {
        set(cx, ints);
    }
}

/// The sizes of a shape that is known in full.
pub(crate) fn sizes(shape: &Shape) -> Option<Dims> {
    shape.iter().map(Dim::size).collect()
}

/// The elements of the first input reach the first output as they are, in a shape that may be
/// another one. One size of it need not be known.
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

/// The sizes to which arrays broadcast.
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

/// The first output is `f` over all inputs, element by element.
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

/// The first output is what `f` says of two inputs, element by element.
pub(crate) fn decide(cx: &mut Infer<'_>, f: impl Fn(&Dim, &Dim) -> Option<bool>) {
    let (Some(a), Some(b)) = (of_input(cx, 0), of_input(cx, 1)) else {
        return;
    };
    let decided = broadcast(DataType::Bool, [&a, &b], |[a, b]| truth(f(a, b)));
    set_if(cx, decided);
}

/// `f` over arrays that broadcast to each other's sizes.
pub(crate) fn broadcast<const N: usize>(
    elem: DataType,
    of: [&Ints; N],
    f: impl Fn([&Dim; N]) -> Dim,
) -> Option<Ints> {
    let dims = broadcast_dims(of.iter().map(|ints| &ints.dims[..]))?;
    Ints::build(elem, dims, |index| {
        let elements = of.map(|ints| ints.broadcast_at(index));
        f(elements.each_ref())
    })
}

/// The first output is `f` of the first input, element by element.
pub(crate) fn map(cx: &mut Infer<'_>, f: impl Fn(&Dim) -> Dim) {
    if let Some(known) = cx.known(0) {
        map_to(cx, known.elem(), f);
    }
}

/// The same with another element type.
pub(crate) fn map_to(cx: &mut Infer<'_>, elem: DataType, f: impl Fn(&Dim) -> Dim) {
    let Some(ints) = of_input(cx, 0) else { return };
    let values = ints.values.iter().map(f).collect();
    let dims = ints.dims;
    set(cx, Ints { elem, dims, values });
}

/// Division of an element type: that of integers drops the fraction.
pub(crate) fn divide(elem: DataType) -> fn(&Dim, &Dim) -> Dim {
    if elem.is_integer() { divide_integers } else { |a, b| a.exact_div(b).unwrap_or(Dim::Unknown) }
}

fn divide_integers(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) => a.checked_div(*b).map_or(Dim::Unknown, Dim::Known),
        // Only without signs is that rounding down.
        _ if a.is_never_negative() && b.is_never_negative() => a.floor_div(b),
        _ => a.exact_div(b).unwrap_or(Dim::Unknown),
    }
}

/// The remainder with the sign of the dividend.
pub(crate) fn truncated_remainder(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) => a.checked_rem(*b).map_or(Dim::Unknown, Dim::Known),
        _ if a.is_never_negative() && b.is_never_negative() => a.rem(b),
        _ => Dim::Unknown,
    }
}

/// Absolute value.
pub(crate) fn absolute(value: &Dim) -> Dim {
    match value {
        Dim::Known(number) => number.checked_abs().map_or(Dim::Unknown, Dim::Known),
        _ if value.is_never_negative() => value.clone(),
        _ => Dim::Unknown,
    }
}

/// The same with the opposite sign.
pub(crate) fn negate(value: &Dim) -> Dim {
    Dim::Known(0).sub(value)
}

/// A truth value as a number.
pub(crate) fn truth(value: Option<bool>) -> Dim {
    value.map_or(Dim::Unknown, |value| Dim::Known(value.into()))
}

/// Whether values are surely equal or surely not.
pub(crate) fn equal(a: &Dim, b: &Dim) -> Option<bool> {
    if a.surely_equals(b) {
        Some(true)
    } else if a.surely_differs(b) || greater(a, b) == Some(true) || greater(b, a) == Some(true) {
        Some(false)
    } else {
        None
    }
}

/// Whether the first value is surely larger or surely not.
pub(crate) fn greater(a: &Dim, b: &Dim) -> Option<bool> {
    if a.sub(b).sub(&Dim::Known(1)).is_never_negative() {
        Some(true)
    } else if b.sub(a).is_never_negative() {
        Some(false)
    } else {
        None
    }
}

/// A position that may count from the end of an axis.
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
    fn only_what_is_sure_is_decided() {
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
