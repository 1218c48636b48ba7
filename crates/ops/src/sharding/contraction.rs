//! Matrix products and sums of products.

use sardonyx_model::Dim;

use super::{Change, Combine, Factors, Operands};

/// Product of two inputs with the factors of their last axes, `[rows, inner]` and `[inner,
/// columns]`. A vector has only the inner one.
struct ProductFactors {
    found: Factors,
    rows: Option<usize>,
    columns: Option<usize>,
}

/// Splits the product of the inputs `a` and `b`, which follows numpy's `matmul`, by rows, columns
/// and broadcast axes. Also splits the inner axis, whose partial sums are combined, if `sums` is
/// set.
fn split_product(cx: &Operands<'_>, a: usize, b: usize, sums: bool) -> Option<ProductFactors> {
    let (left, right, out) = (cx.dims(a)?, cx.dims(b)?, cx.output_dims(0)?);
    let mut found = Factors::whole(cx);
    let inner = left.last()?;
    if sums {
        let inner = found.add_combined(inner.clone(), Combine::Sum);
        found.append_to_input(a, left.len() - 1, inner);
        found.append_to_input(b, right.len().saturating_sub(2), inner);
    }
    let (has_rows, has_columns) = (left.len() > 1, right.len() > 1);
    let mut last = out.len();
    let columns = has_columns.then(|| {
        last -= 1;
        let columns = found.add_factor(right[right.len() - 1].clone());
        found.append_to_input(b, right.len() - 1, columns);
        found.append_to_output(0, last, columns);
        columns
    });
    let rows = has_rows.then(|| {
        last -= 1;
        let rows = found.add_factor(left[left.len() - 2].clone());
        found.append_to_input(a, left.len() - 2, rows);
        found.append_to_output(0, last, rows);
        rows
    });
    for (axis, size) in out[..last].iter().enumerate() {
        let factor = found.add_factor(size.clone());
        found.append_to_output(0, axis, factor);
        for (input, dims) in [(a, left), (b, right)] {
            let own = dims.len().saturating_sub(2);
            let Some(own) = (axis + own).checked_sub(last) else { continue };
            found.broadcast(cx, input, own, factor)?;
        }
    }
    Some(ProductFactors { found, rows, columns })
}

/// Splits `MatMul` by rows, columns, broadcast axes and the inner axis.
pub(crate) fn matmul(cx: &Operands<'_>) -> Option<Factors> {
    split_product(cx, 0, 1, true).map(|product| product.found)
}

/// Gives a vector that belongs to an operand the factor of the operand's rows or columns.
fn split_vector(
    cx: &Operands<'_>,
    found: &mut Factors,
    input: usize,
    factor: Option<usize>,
) -> Option<()> {
    match (cx.dims(input), factor) {
        (None | Some([] | [Dim::Known(1)]), _) => {}
        (Some([_]), Some(factor)) => found.append_to_input(input, 0, factor),
        _ => return None,
    }
    Some(())
}

/// Splits `MatMulInteger`, which may have a zero point for each row or column.
pub(crate) fn matmul_integer(cx: &Operands<'_>) -> Option<Factors> {
    let ProductFactors { mut found, rows, columns } = split_product(cx, 0, 1, true)?;
    split_vector(cx, &mut found, 2, rows)?;
    split_vector(cx, &mut found, 3, columns)?;
    Some(found)
}

/// Splits `QLinearMatMul`. The inner axis stays whole, since the sum is rounded.
pub(crate) fn qlinear_matmul(cx: &Operands<'_>) -> Option<Factors> {
    let ProductFactors { mut found, rows, columns } = split_product(cx, 0, 3, false)?;
    for (input, factor) in [(1, rows), (2, rows), (4, columns), (5, columns)] {
        split_vector(cx, &mut found, input, factor)?;
    }
    for input in [6, 7] {
        split_vector(cx, &mut found, input, None)?;
    }
    Some(found)
}

/// Splits `Gemm`. The addend is added to one of the partial results.
pub(crate) fn gemm(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = Factors::whole(cx);
    let a = usize::from(cx.int("transA")? != 0);
    let b = usize::from(cx.int("transB")? != 0);
    let (left, right) = (cx.dims(0)?, cx.dims(1)?);
    if left.len() != 2 || right.len() != 2 {
        return None;
    }
    let (rows, columns) =
        (found.add_factor(left[a].clone()), found.add_factor(right[1 - b].clone()));
    found.append_to_input(0, a, rows);
    found.append_to_input(1, 1 - b, columns);
    found.append_to_output(0, 0, rows);
    found.append_to_output(0, 1, columns);
    let inner = found.add_combined(left[1 - a].clone(), Combine::Sum);
    found.append_to_input(0, 1 - a, inner);
    found.append_to_input(1, b, inner);
    if let Some(dims) = cx.dims(2) {
        let before = 2usize.checked_sub(dims.len())?;
        for axis in 0..dims.len() {
            found.broadcast(cx, 2, axis, [rows, columns][before + axis])?;
        }
        found.changes.push(Change::Once { input: 2, rest: None });
    }
    Some(found)
}

/// Splits `Einsum` by its letters. Each letter must have one size; an ellipsis, and a letter that
/// occurs twice in an operand, are not supported.
pub(crate) fn einsum(cx: &Operands<'_>) -> Option<Factors> {
    let equation: String = cx.string("equation")?.chars().filter(|c| !c.is_whitespace()).collect();
    if equation.contains('.') {
        return None;
    }
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, right.to_string()),
        None => (equation.as_str(), make_output_term(&equation)),
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
                        found.add_factor(dims[axis].clone())
                    } else {
                        found.add_combined(dims[axis].clone(), Combine::Sum)
                    };
                    letters.push((letter, factor));
                    factor
                }
            };
            found.append_to_input(input, axis, factor);
        }
    }
    for (axis, letter) in right.chars().enumerate() {
        let (_, factor) = letters.iter().find(|(known, _)| *known == letter)?;
        found.append_to_output(0, axis, *factor);
    }
    Some(found)
}

/// Returns the output term of an equation without `->`: the letters that occur once, sorted.
fn make_output_term(left: &str) -> String {
    let mut once: Vec<char> = left.chars().filter(|c| c.is_alphabetic()).collect();
    once.sort_unstable();
    once.into_iter().filter(|letter| left.matches(*letter).count() == 1).collect()
}
