//! Arithmetic on values that describe shapes: integers in scalars and vectors, symbolic or not.
//!
//! Exporters write `Reshape` targets as chains such as `Shape -> Gather -> Div -> Concat`. Following the integers through
//! them keeps shapes known that no rule about types alone could give.

use sardonyx_model::Dim;
use sardonyx_tensor::DataType;

use crate::infer::{Infer, Known};

/// A scalar or vector of integers.
pub(crate) struct Ints {
    /// Element type.
    pub(crate) elem: DataType,
    /// Whether the rank is 0.
    pub(crate) scalar: bool,
    /// The elements.
    pub(crate) values: Vec<Dim>,
}

/// The integers of an input, if they are known.
pub(crate) fn of_input(cx: &Infer<'_>, index: usize) -> Option<Ints> {
    let known = cx.known(index)?;
    let elem = match known {
        Known::Ints { elem, .. } => *elem,
        Known::Tensor(tensor) => tensor.data_type(),
    };
    Some(Ints {
        elem,
        scalar: known.is_scalar(),
        values: known.ints()?,
    })
}

/// Says that the only output has these integers.
pub(crate) fn set(cx: &mut Infer<'_>, mut ints: Ints) {
    for value in &mut ints.values {
        // What overflows 32 bits wraps at run time; `Dim` does not.
        if ints.elem == DataType::Int32
            && value
                .known()
                .is_some_and(|value| i32::try_from(value).is_err())
        {
            *value = Dim::Unknown;
        }
    }
    // Mere unknowns would say no more than the type does.
    if ints.values.is_empty() || !ints.values.iter().all(Dim::is_unknown) {
        cx.set_known(
            0,
            Known::Ints {
                elem: ints.elem,
                scalar: ints.scalar,
                values: ints.values,
            },
        );
    }
}

/// The only output is `f` over all inputs, element by element.
pub(crate) fn combine(cx: &mut Infer<'_>, f: fn(&Dim, &Dim) -> Dim) {
    let Some(mut result) = of_input(cx, 0) else {
        return;
    };
    for index in 1..cx.input_count() {
        let Some(next) = of_input(cx, index) else {
            return;
        };
        let Some(values) = broadcast(&result.values, &next.values, f) else {
            return;
        };
        result = Ints {
            elem: result.elem,
            scalar: result.scalar && next.scalar,
            values,
        };
    }
    set(cx, result);
}

/// The only output is `f` of the first input, element by element.
pub(crate) fn map(cx: &mut Infer<'_>, f: fn(&Dim) -> Dim) {
    let Some(ints) = of_input(cx, 0) else { return };
    let values = ints.values.iter().map(f).collect();
    set(cx, Ints { values, ..ints });
}

fn broadcast(a: &[Dim], b: &[Dim], f: fn(&Dim, &Dim) -> Dim) -> Option<Vec<Dim>> {
    Some(match (a, b) {
        (a, [b]) => a.iter().map(|a| f(a, b)).collect(),
        ([a], b) => b.iter().map(|b| f(a, b)).collect(),
        (a, b) if a.len() == b.len() => a.iter().zip(b).map(|(a, b)| f(a, b)).collect(),
        _ => return None,
    })
}

/// Integer division, which drops the fraction.
pub(crate) fn divide(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Known(a), Dim::Known(b)) => a.checked_div(*b).map_or(Dim::Unknown, Dim::Known),
        // Only without signs is that rounding down.
        _ if never_negative(a) && never_negative(b) => a.floor_div(b),
        _ => a.exact_div(b).unwrap_or(Dim::Unknown),
    }
}

/// Absolute value.
pub(crate) fn absolute(value: &Dim) -> Dim {
    match value {
        Dim::Known(number) => number.checked_abs().map_or(Dim::Unknown, Dim::Known),
        _ if never_negative(value) => value.clone(),
        _ => Dim::Unknown,
    }
}

/// The same with the sign turned.
pub(crate) fn negate(value: &Dim) -> Dim {
    Dim::Known(0).sub(value)
}

/// Whether the value surely is 0 or more: symbols are sizes, and nothing is subtracted from them.
fn never_negative(value: &Dim) -> bool {
    match value {
        Dim::Known(number) => *number >= 0,
        // Sums, products, quotients and extremes of sizes and of positive numbers have no sign in writing. A name may
        // have one, which only loses an answer.
        Dim::Expr(_) => !value.to_string().contains('-'),
        Dim::Unknown => false,
    }
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
            (n.clone(), Dim::Known(2), "floor((N)/(2))"),
            (n.mul(&6i64.into()), Dim::Known(-3), "-2*N"),
            (n.sub(&3i64.into()), Dim::Known(2), "?"), // rounds up while N is 2
            (n.clone(), n, "1"),
            (Dim::Unknown, Dim::Known(2), "?"),
        ];
        for (a, b, expected) in rows {
            assert_eq!(divide(&a, &b).to_string(), expected, "{a} / {b}");
        }
    }
}
