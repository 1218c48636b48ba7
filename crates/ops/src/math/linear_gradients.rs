//! Gradients of `Det` and `Einsum`.

use std::collections::BTreeMap;

use sardonyx_model::{Dim, Shape};

use super::einsum::{Equation, Term};
use crate::adapt::Refusal;
use crate::gradient::{Backward, Expr};

type Result<T = ()> = std::result::Result<T, Refusal>;

/// Sets the gradient of `Det` to the cofactors: determinants of the matrix without the row and the
/// column of an element. They also exist where the determinant is 0. An `n` by `n` matrix takes `n
/// * n` determinants.
pub(crate) fn det(cx: &Backward<'_>) -> Result {
    let (x, dy) = (cx.input(0)?, cx.arriving()?);
    let Some(stack) = cx.rank_of(x)?.checked_sub(2) else {
        return Err(cx.refuse("its input has fewer than 2 axes"));
    };
    let size = x.sizes(-1, None).squeeze(&[0]);
    let all = cx.count_up(size);
    let (down, across) = (all.unsqueeze(&[1]), all.unsqueeze(&[0]));
    // Row `i` holds all indices but `i`.
    let left = cx.count_up(size - 1.0).unsqueeze(&[0]);
    let others = left + left.compare("GreaterOrEqual", down).cast(left.elem());
    let parts = x.gather(others, -2).gather(others, -1);
    let mut axes: Vec<i64> = (0..stack as i64 + 4).collect();
    axes.swap(stack + 1, stack + 2);
    let minors = parts.transpose(&axes).op("Det");
    let is_odd = (down + across).op_with("Mod", &[all.number(2.0)], &[]);
    let signs = (1.0 - is_odd * 2.0).cast(x.elem());
    cx.give(0, dy.unsqueeze(&[-1, -2]).scale_by(minors * signs));
    Ok(())
}

/// Sets the gradients of `Einsum`: the product of the other operands with the gradient. Labels that
/// only one operand has are multiplied by ones, and those that occur twice in it by a unit matrix.
pub(crate) fn einsum(cx: &Backward<'_>) -> Result {
    let dy = cx.arriving()?;
    let text = cx.string("equation").unwrap_or_default();
    let equation = Equation::parse(&text).map_err(|why| cx.refuse(why))?;
    if equation.operands.len() != cx.input_count() {
        return Err(
            cx.refuse(format_args!("the equation {text} does not match the number of operands"))
        );
    }
    for index in (0..cx.input_count()).filter(|index| cx.wants(*index)) {
        let other = |other| drop_uncounted(cx, &equation, other, dy);
        cx.give(index, make_gradient(cx, &equation, index, dy, &other)?);
    }
    Ok(())
}

/// Returns the gradient of an operand, where `value` returns the factor for each other operand.
fn make_gradient<'c>(
    cx: &'c Backward<'_>,
    equation: &Equation,
    index: usize,
    dy: Expr<'c>,
    value: &dyn Fn(usize) -> Result<Expr<'c>>,
) -> Result<Expr<'c>> {
    let (x, own) = (cx.input(index)?, &equation.operands[index]);
    let (mut terms, mut values) = (vec![equation.result.clone()], vec![dy]);
    for (other, term) in equation.operands.iter().enumerate().filter(|(other, _)| *other != index) {
        terms.push(term.clone());
        values.push(value(other)?);
    }
    let mut result = own.clone();
    for (place, label) in own.labels.iter().enumerate() {
        let size = size_at(x, own, place);
        if own.labels[..place].contains(label) {
            let fresh = fresh_label(&terms, &result);
            let fresh = fresh.ok_or_else(|| cx.refuse("the equation has no label left"))?;
            result.labels[place] = fresh;
            terms.push(Term { labels: vec![*label, fresh], ellipsis: None });
            values.push(dy.number(0.0).expand(size.concat(&[size], 0)).op("EyeLike"));
        } else if !terms.iter().any(|term| term.labels.contains(label)) {
            terms.push(Term { labels: vec![*label], ellipsis: None });
            values.push(dy.number(1.0).expand(size));
        }
    }
    if let Some(at) = own.ellipsis
        && !terms.iter().any(|term| term.ellipsis.is_some())
    {
        let after = own.labels.len() - at;
        let sizes = x.sizes(at as i64, (after > 0).then_some(-(after as i64)));
        terms.push(Term { labels: Vec::new(), ellipsis: Some(0) });
        values.push(dy.number(1.0).expand(sizes));
    }
    // Some runtimes refuse an equation that sums over the axes of `...`.
    let summed = count_hidden_axes(cx, equation).filter(|_| own.ellipsis.is_none());
    result.ellipsis = result.ellipsis.or(summed.map(|_| 0));
    let operands: Vec<String> = terms.iter().map(spell).collect();
    let text = format!("{}->{}", operands.join(","), spell(&result));
    let mut gradient = dy.op_with("Einsum", &values[1..], &[("equation", text.as_str().into())]);
    if let Some(count) = summed {
        let axes: Vec<i64> = (0..count as i64).collect();
        gradient = gradient.sum(&axes, false);
    }
    if are_alike(cx, equation) {
        return Ok(gradient);
    }
    // An axis of size 1 in one operand broadcasts to the size that the label has in another.
    Ok(cx.unbroadcast_to(gradient.expand(x.shape()), x, false))
}

/// Returns an operand without elements that are not finite and do not contribute, since all results
/// that depend on them are masked.
fn drop_uncounted<'c>(
    cx: &'c Backward<'_>,
    equation: &Equation,
    index: usize,
    dy: Expr<'c>,
) -> Result<Expr<'c>> {
    let (operand, term) = (cx.input(index)?, &equation.operands[index]);
    if !cx.may_be_infinite(index) {
        return Ok(operand);
    }
    let (labels, result) = (&term.labels, &equation.result);
    let is_repeated = |(place, label): (usize, &char)| labels[..place].contains(label);
    if [term, result].iter().any(|term| term.ellipsis.is_some())
        || labels.iter().enumerate().any(is_repeated)
    {
        // The sum of the magnitudes that each element contributes to is its gradient if all other
        // operands are 1.
        let ones = |other: usize| -> Result<Expr<'c>> {
            Ok(dy.number(1.0).expand(cx.input(other)?.shape()))
        };
        let sums = make_gradient(cx, equation, index, dy.op("Abs"), &ones)?;
        return Ok(operand.drop_unused(sums));
    }
    let shared = |label: &&char| result.labels.contains(label);
    let common: Vec<char> = labels.iter().filter(shared).copied().collect();
    if common.is_empty() {
        let sums = dy.reshape(cx.ints_of(&[-1])).sum_magnitudes(&[0]).squeeze(&[0]);
        return Ok(operand.drop_unused(sums));
    }
    let absent: Vec<i64> = (0..labels.len())
        .filter(|place| !shared(&&labels[*place]))
        .map(|place| place as i64)
        .collect();
    let text = format!("{}->{}", spell(result), spell(&Term { labels: common, ellipsis: None }));
    let mut sums = dy.op("Abs").op_with("Einsum", &[], &[("equation", text.as_str().into())]);
    if !absent.is_empty() {
        sums = sums.unsqueeze(&absent);
    }
    Ok(operand.drop_unused(sums))
}

/// Returns the number of axes of `...`, if it is known and at least 1.
fn count_hidden_axes(cx: &Backward<'_>, equation: &Equation) -> Option<usize> {
    let mut terms = equation.operands.iter().enumerate();
    let (index, term) = terms.find(|(_, term)| term.ellipsis.is_some())?;
    let rank = cx.shape_of(cx.input(index).ok()?)?.len();
    rank.checked_sub(term.labels.len()).filter(|count| *count > 0)
}

/// Returns the size of the axis that a label stands for.
fn size_at<'c>(x: Expr<'c>, term: &Term, place: usize) -> Expr<'c> {
    let axis = match term.ellipsis {
        // Labels after `...` count from the end.
        Some(at) if place >= at => place as i64 - term.labels.len() as i64,
        _ => place as i64,
    };
    x.sizes(axis, (axis != -1).then_some(axis + 1))
}

/// Returns a letter that no term has.
fn fresh_label(terms: &[Term], result: &Term) -> Option<char> {
    let is_free =
        |letter: &char| !terms.iter().chain([result]).any(|term| term.labels.contains(letter));
    ('a'..='z').chain('A'..='Z').find(is_free)
}

fn spell(term: &Term) -> String {
    let mut text: String = term.labels.iter().collect();
    if let Some(at) = term.ellipsis {
        // Labels are ASCII, so `at` is also a byte offset.
        text.insert_str(at, "...");
    }
    text
}

/// Whether each label has the same size in all operands, so that none broadcasts.
fn are_alike(cx: &Backward<'_>, equation: &Equation) -> bool {
    let mut labels: BTreeMap<char, Dim> = BTreeMap::new();
    let mut hidden: Option<Shape> = None;
    for (index, term) in equation.operands.iter().enumerate() {
        let shape = cx.input(index).ok().and_then(|input| cx.shape_of(input));
        let Some(shape) = shape.filter(|shape| shape.len() >= term.labels.len()) else {
            return false;
        };
        if shape.iter().any(Dim::is_unknown) {
            return false;
        }
        let covered = shape.len() - term.labels.len();
        let at = term.ellipsis.unwrap_or(term.labels.len());
        if term.ellipsis.is_some() {
            let own: Shape = shape[at..at + covered].into();
            if *hidden.get_or_insert_with(|| own.clone()) != own {
                return false;
            }
        }
        for (place, label) in term.labels.iter().enumerate() {
            let size = shape[if place < at { place } else { place + covered }].clone();
            if *labels.entry(*label).or_insert_with(|| size.clone()) != size {
                return false;
            }
        }
    }
    true
}
