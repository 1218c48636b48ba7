//! Inference of `Einsum`: parsing the equation.

use std::collections::BTreeMap;

use sardonyx_model::{Dim, Shape};

use crate::cost::elements;
use crate::infer::{Demand, Infer, InferError};
use crate::rules::broadcast_shapes;

/// Infers the product. Its axes have the sizes of the labels on the right side, or, without one, of
/// the labels that occur once on the left side.
pub(super) fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = (0..cx.input_count()).find_map(|index| cx.elem(index));
    let shape = match cx.string("equation") {
        Some(equation) if !equation.is_empty() => product_shape(cx, &equation)?,
        _ => None,
    };
    cx.set_tensor(0, elem, shape);
    Ok(())
}

/// Parsed equation of an `Einsum`: `ij,jk->ik`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equation {
    pub operands: Vec<Term>,
    /// Term on the right of the arrow. Without an arrow: the axes of `...`, then the labels that
    /// occur once, in alphabetical order.
    pub result: Term,
}

/// Labels of an operand or of the result, and the number of labels before `...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub labels: Vec<char>,
    pub ellipsis: Option<usize>,
}

impl Equation {
    /// Parses an equation.
    ///
    /// # Errors
    ///
    /// A character that is not a label, or a result with a duplicate label or with one that no
    /// operand has.
    pub fn parse(text: &str) -> Result<Equation, String> {
        let (left, right) = match text.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (text, None),
        };
        let operands = left.split(',').map(Term::parse).collect::<Result<Vec<Term>, String>>()?;
        let mut uses: BTreeMap<char, usize> = BTreeMap::new();
        for label in operands.iter().flat_map(|term| &term.labels) {
            *uses.entry(*label).or_default() += 1;
        }
        let has_ellipsis = operands.iter().any(|term| term.ellipsis.is_some());
        let mut result = match right {
            Some(right) => Term::parse(right)?,
            None => {
                let once = uses.iter().filter(|(_, uses)| **uses == 1);
                Term { labels: once.map(|(label, _)| *label).collect(), ellipsis: Some(0) }
            }
        };
        result.ellipsis = result.ellipsis.filter(|_| has_ellipsis);
        for (place, label) in result.labels.iter().enumerate() {
            if !uses.contains_key(label) {
                return Err(format!("no operand has the label {label} of the result"));
            }
            if result.labels[..place].contains(label) {
                return Err(format!("the result has the label {label} twice"));
            }
        }
        Ok(Equation { operands, result })
    }
}

impl Term {
    fn parse(text: &str) -> Result<Term, String> {
        let mut term = Term { labels: Vec::new(), ellipsis: None };
        let mut rest = text.trim_start();
        while let Some(char) = rest.chars().next() {
            if char.is_ascii_alphabetic() {
                term.labels.push(char);
                rest = &rest[1..];
            } else if let (Some(after), None) = (rest.strip_prefix("..."), term.ellipsis) {
                term.ellipsis = Some(term.labels.len());
                rest = after;
            } else {
                return Err(format!("{char:?} in the equation is not a label"));
            }
            rest = rest.trim_start();
        }
        Ok(term)
    }
}

/// Sizes of the labels according to the operands.
#[derive(Default)]
struct Sizes {
    labels: BTreeMap<char, Dim>,
    /// Sizes of the axes of `...`, and the first operand that has them.
    ellipsis: Option<(usize, Shape)>,
}

fn product_shape(cx: &Infer<'_>, equation: &str) -> Result<Option<Shape>, InferError> {
    let (equation, sizes) = parse_operands(cx, equation)?;
    let result = &equation.result;
    let size = |label| sizes.labels.get(label).cloned().unwrap_or(Dim::Unknown);
    let mut shape: Shape = result.labels.iter().map(size).collect();
    match (result.ellipsis, sizes.ellipsis) {
        (Some(at), Some((_, dims))) => shape.insert_many(at, dims),
        (Some(_), None) => return Ok(None),
        (None, _) => {}
    }
    Ok(Some(shape))
}

/// Counts one multiply-add for each combination of all labels, if there are at least two operands.
/// Three or more operands can be multiplied in an order that takes fewer.
pub(crate) fn multiply_adds(cx: &Infer<'_>) -> Option<Dim> {
    if cx.input_count() < 2 {
        return Some(Dim::Known(0));
    }
    let (equation, sizes) = parse_operands(cx, &cx.string("equation")?).ok()?;
    let mut all: Shape = sizes.labels.into_values().collect();
    match sizes.ellipsis {
        Some((_, dims)) => all.extend(dims),
        None if equation.operands.iter().any(|term| term.ellipsis.is_some()) => return None,
        None => {}
    }
    elements(&all)
}

/// Returns the equation and the sizes of its labels according to all operands.
fn parse_operands(cx: &Infer<'_>, equation: &str) -> Result<(Equation, Sizes), InferError> {
    let equation = match Equation::parse(equation) {
        Ok(equation) => equation,
        Err(why) => return cx.fail(why),
    };
    if equation.operands.len() != cx.input_count() {
        return cx.fail(format_args!(
            "the equation has {} operands, the node has {} inputs",
            equation.operands.len(),
            cx.input_count()
        ));
    }
    let mut sizes = Sizes::default();
    for (index, term) in equation.operands.iter().enumerate() {
        sizes.add(cx, index, term)?;
    }
    Ok((equation, sizes))
}

impl Sizes {
    fn add(&mut self, cx: &Infer<'_>, index: usize, term: &Term) -> Result<(), InferError> {
        let shape = cx.shape(index).map(|shape| &shape[..]);
        if let Some(dims) = shape {
            let covered = dims.len().checked_sub(term.labels.len());
            let Some(covered) = covered.filter(|n| *n == 0 || term.ellipsis.is_some()) else {
                return cx.fail(format_args!(
                    "input {index} has rank {}, but the equation has {} labels for it",
                    dims.len(),
                    term.labels.len()
                ));
            };
            if let Some(at) = term.ellipsis {
                self.add_ellipsis(cx, index, dims[at..at + covered].into())?;
            }
        }
        for (place, label) in term.labels.iter().enumerate() {
            let size = shape.map_or(Dim::Unknown, |dims| {
                // Labels after `...` count from the end.
                let from_end = term.ellipsis.is_some_and(|at| place >= at);
                let skipped = if from_end { dims.len() - term.labels.len() } else { 0 };
                dims[place + skipped].clone()
            });
            self.add_label(cx, *label, size)?;
        }
        Ok(())
    }

    fn add_ellipsis(
        &mut self,
        cx: &Infer<'_>,
        index: usize,
        dims: Shape,
    ) -> Result<(), InferError> {
        match &mut self.ellipsis {
            None => self.ellipsis = Some((index, dims)),
            Some((first, found)) if found.len() != dims.len() => {
                return cx.fail(format_args!(
                    "Ellipsis for input {index} represents {} dimensions, but ellipsis for input {first} represents {} \
                     dimensions.",
                    dims.len(),
                    found.len()
                ));
            }
            Some((_, found)) => *found = broadcast_shapes(cx, &[found, &dims])?,
        }
        Ok(())
    }

    fn add_label(&mut self, cx: &Infer<'_>, label: char, size: Dim) -> Result<(), InferError> {
        let Some(found) = self.labels.get_mut(&label) else {
            self.labels.insert(label, size);
            return Ok(());
        };
        match (found.known(), size.known()) {
            // An axis of size 1 broadcasts.
            (Some(a), Some(b)) if a != b && a != 1 && b != 1 => {
                return cx.fail(format_args!("the label {label} has sizes {a} and {b}"));
            }
            _ => {
                cx.demand(|| Demand::Broadcast(found.clone(), size.clone()));
                *found = found.broadcast(&size);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::attributes::AttrValue;
    use crate::math::linear::EINSUM;
    use crate::math::testing::infer_type;

    #[test]
    fn labels_have_sizes() {
        // SHAPE-16, SHAPE-18
        let rows = [
            ("ij,jk->ik", "float[N, 3]; float[3, M]", "float[N, M]"),
            ("ij,jk", "float[N, 3]; float[3, M]", "float[N, M]"),
            (" b i j , b j k -> b i k ", "float[B, 2, 3]; float[B, 3, 4]", "float[B, 2, 4]"),
            ("ba", "float[N, M]", "float[M, N]"),
            ("Za", "float[N, M]", "float[N, M]"),
            ("ii->i", "float[3, 3]", "float[3]"),
            ("ii", "float[3, 3]", "float"),
            (",ij->ij", "float; float[2, N]", "float[2, N]"),
            ("ij,j->i", "float[2, 1]; float[3]", "float[2]"),
            ("ij,j->j", "float[2, 1]; float[3]", "float[3]"),
            ("...ij,...jk->...ik", "float[5, 1, 2, 3]; float[1, B, 3, 4]", "float[5, B, 2, 4]"),
            ("i...->...i", "float[2, N, 3]", "float[N, 3, 2]"),
            ("i...j", "float[2, N, 3]", "float[N, 2, 3]"),
            ("...i,i", "float[...]; float[3]", "float[...]"),
            ("ij,jk->ik", "float[...]; float[3, M]", "float[?, M]"),
            ("i->", "-", "?"),
            ("", "float[2]", "float[...]"),
            ("i->i", "float", "Einsum: input 0 has rank 0, but the equation has 1 labels for it"),
            (
                "...ij->ij",
                "float[2]",
                "Einsum: input 0 has rank 1, but the equation has 2 labels for it",
            ),
            (
                "...,...->...",
                "float[2, 3]; float",
                "Einsum: Ellipsis for input 1 represents 0 dimensions, but ellipsis for input 0 represents 2 \
                 dimensions.",
            ),
            (
                "i,j,k->i",
                "float[2]; float[3]",
                "Einsum: the equation has 3 operands, the node has 2 inputs",
            ),
            ("i->j", "float[2]", "Einsum: no operand has the label j of the result"),
            ("i->ii", "float[2]", "Einsum: the result has the label i twice"),
            ("i1->i", "float[2]", "Einsum: '1' in the equation is not a label"),
            ("ij,jk->ik", "float[2, 3]; float[4, 5]", "Einsum: the label j has sizes 3 and 4"),
        ];
        for (equation, inputs, expected) in rows {
            let attributes = [("equation", AttrValue::String(equation.as_bytes().into()))];
            assert_eq!(infer_type(&EINSUM, 12, &attributes, inputs), expected, "{equation}");
        }
    }
}
