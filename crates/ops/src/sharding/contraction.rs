//! Matrix products and sums of products.

use sardonyx_model::Dim;

use super::{Change, Combine, Factors, Operands};

/// The factors of the last axes of both sides, `[rows, inner]` and `[inner, columns]`, for those
/// that have these axes.
struct Product {
    found: Factors,
    rows: Option<usize>,
    columns: Option<usize>,
}

/// Products as numpy's `matmul` makes them of the inputs `a` and `b`: rows of one, columns of the
/// other, axes before them that broadcast, and what is summed over, if `sums`.
fn product(cx: &Operands<'_>, (a, b): (usize, usize), sums: bool) -> Option<Product> {
    let (left, right, out) = (cx.dims(a)?, cx.dims(b)?, cx.output_dims(0)?);
    let mut found = Factors::whole(cx);
    let inner = left.last()?;
    if sums {
        let inner = found.combined(inner.clone(), Combine::Sum);
        found.input(a, left.len() - 1, inner);
        found.input(b, right.len().saturating_sub(2), inner);
    }
    let (has_rows, has_columns) = (left.len() > 1, right.len() > 1);
    let mut last = out.len();
    let columns = has_columns.then(|| {
        last -= 1;
        let columns = found.factor(right[right.len() - 1].clone());
        found.input(b, right.len() - 1, columns);
        found.output(0, last, columns);
        columns
    });
    let rows = has_rows.then(|| {
        last -= 1;
        let rows = found.factor(left[left.len() - 2].clone());
        found.input(a, left.len() - 2, rows);
        found.output(0, last, rows);
        rows
    });
    for (axis, size) in out[..last].iter().enumerate() {
        let factor = found.factor(size.clone());
        found.output(0, axis, factor);
        for (input, dims) in [(a, left), (b, right)] {
            let own = dims.len().saturating_sub(2);
            let Some(own) = (axis + own).checked_sub(last) else { continue };
            found.broadcast(cx, (input, own), factor)?;
        }
    }
    Some(Product { found, rows, columns })
}

/// `MatMul`.
pub(crate) fn matmul(cx: &Operands<'_>) -> Option<Factors> {
    product(cx, (0, 1), true).map(|product| product.found)
}

/// Gives a vector beside an operand the factor of its rows or columns.
fn beside(
    cx: &Operands<'_>,
    found: &mut Factors,
    input: usize,
    factor: Option<usize>,
) -> Option<()> {
    match (cx.dims(input), factor) {
        (None | Some([] | [Dim::Known(1)]), _) => {}
        (Some([_]), Some(factor)) => found.input(input, 0, factor),
        _ => return None,
    }
    Some(())
}

/// `MatMulInteger`, whose zero points may be one for each row or column.
pub(crate) fn matmul_integer(cx: &Operands<'_>) -> Option<Factors> {
    let Product { mut found, rows, columns } = product(cx, (0, 1), true)?;
    beside(cx, &mut found, 2, rows)?;
    beside(cx, &mut found, 3, columns)?;
    Some(found)
}

/// `QLinearMatMul`: the sum is rounded, so what is summed over is whole.
pub(crate) fn qlinear_matmul(cx: &Operands<'_>) -> Option<Factors> {
    let Product { mut found, rows, columns } = product(cx, (0, 3), false)?;
    for (input, factor) in [(1, rows), (2, rows), (4, columns), (5, columns)] {
        beside(cx, &mut found, input, factor)?;
    }
    for input in [6, 7] {
        beside(cx, &mut found, input, None)?;
    }
    Some(found)
}

/// `Gemm`. What is added is added to one of the partial results.
pub(crate) fn gemm(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = Factors::whole(cx);
    let transposed = |name| cx.int(name).map(|given| usize::from(given != 0));
    let (a, b) = (transposed("transA")?, transposed("transB")?);
    let (left, right) = (cx.dims(0)?, cx.dims(1)?);
    if left.len() != 2 || right.len() != 2 {
        return None;
    }
    let (rows, columns) = (found.factor(left[a].clone()), found.factor(right[1 - b].clone()));
    found.input(0, a, rows);
    found.input(1, 1 - b, columns);
    found.output(0, 0, rows);
    found.output(0, 1, columns);
    let inner = found.combined(left[1 - a].clone(), Combine::Sum);
    found.input(0, 1 - a, inner);
    found.input(1, b, inner);
    if let Some(dims) = cx.dims(2) {
        let before = 2usize.checked_sub(dims.len())?;
        for axis in 0..dims.len() {
            found.broadcast(cx, (2, axis), [rows, columns][before + axis])?;
        }
        found.changes.push(Change::Once { input: 2, rest: None });
    }
    Some(found)
}

/// `Einsum` whose letters stand for one size each: without an ellipsis, and without a letter twice
/// in one operand.
pub(crate) fn einsum(cx: &Operands<'_>) -> Option<Factors> {
    let equation: String = cx.string("equation")?.chars().filter(|c| !c.is_whitespace()).collect();
    if equation.contains('.') {
        return None;
    }
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, right.to_string()),
        None => (equation.as_str(), implied(&equation)),
    };
    let operands: Vec<&str> = left.split(',').collect();
    if operands.len() != cx.input_count() {
        return None;
    }
    let mut found = Factors::whole(cx);
    let mut letters: Vec<(char, usize)> = Vec::new();
    for (input, letter_list) in operands.iter().enumerate() {
        let dims = cx.dims(input)?;
        if letter_list.chars().count() != dims.len() {
            return None;
        }
        for (axis, letter) in letter_list.chars().enumerate() {
            if letter_list.matches(letter).count() > 1 {
                return None;
            }
            let known = letters.iter().find(|(known, _)| *known == letter);
            let factor = match known {
                Some((_, factor)) if found.factors[*factor].size == dims[axis] => *factor,
                Some(_) => return None,
                None => {
                    let factor = if right.contains(letter) {
                        found.factor(dims[axis].clone())
                    } else {
                        found.combined(dims[axis].clone(), Combine::Sum)
                    };
                    letters.push((letter, factor));
                    factor
                }
            };
            found.input(input, axis, factor);
        }
    }
    for (axis, letter) in right.chars().enumerate() {
        let (_, factor) = letters.iter().find(|(known, _)| *known == letter)?;
        found.output(0, axis, *factor);
    }
    Some(found)
}

/// The output of an equation that names none: letters that occur once, in their order.
fn implied(left: &str) -> String {
    let mut once: Vec<char> = left.chars().filter(|c| c.is_alphabetic()).collect();
    once.sort_unstable();
    once.into_iter().filter(|letter| left.matches(*letter).count() == 1).collect()
}
