//! What must hold of a program before and after each rewrite.

use std::fmt;

use super::{Constant, Op, Program, Slot, Stage, same_shape};
use crate::program::{Link, ProductForm};

/// Why a program is not one: a step, if it is about one, and what does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) step: Option<usize>,
    pub(crate) what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Program {
    /// Checks that each value is defined once and before it is read, that operands have the types,
    /// ranks and shapes that their operation demands, and that each step says which nodes it does.
    ///
    /// # Errors
    ///
    /// The first thing that does not hold.
    pub(crate) fn verify(&self) -> Result<(), Broken> {
        let mut defined = vec![false; self.values.len()];
        let outside = |what: String| Broken { step: None, what };
        for (slot, value) in self.values.iter().enumerate() {
            defined[slot] = matches!(value.constant, Some(Constant::Small(_) | Constant::Large));
        }
        for slot in self.inputs.iter().flatten() {
            let Some(is_defined) = defined.get_mut(slot.index()) else {
                return Err(outside(format!("an input is {slot}, which does not exist")));
            };
            if std::mem::replace(is_defined, true) {
                return Err(outside(format!("the input {slot} is defined twice")));
            }
        }
        for (index, step) in self.steps.iter().enumerate() {
            let broken = |what: String| Broken { step: Some(index), what };
            if step.origins.is_empty() {
                return Err(broken("no node of the model stands behind it".to_string()));
            }
            for slot in step.op.operands().into_iter().flatten() {
                match defined.get(slot.index()) {
                    None => return Err(broken(format!("{slot} does not exist"))),
                    // A fill may be a constant although a step computes it.
                    Some(false) if !self.is_constant(slot) => {
                        return Err(broken(format!("{slot} is read before it is computed")));
                    }
                    Some(_) => {}
                }
            }
            if let Some(what) = self.contradiction(&step.op, &step.outputs) {
                return Err(broken(what));
            }
            for slot in step.outputs.iter().flatten() {
                match defined.get_mut(slot.index()) {
                    None => return Err(broken(format!("{slot} does not exist"))),
                    Some(true) => return Err(broken(format!("{slot} is defined twice"))),
                    Some(is_defined) => *is_defined = true,
                }
            }
        }
        for slot in &self.outputs {
            let is_there = |slot: Slot| defined[slot.index()] || self.is_constant(slot);
            if slot.index() >= defined.len() || !is_there(*slot) {
                return Err(outside(format!("the output {slot} is not computed")));
            }
        }
        Ok(())
    }

    /// What an operation demands of its operands and does not get.
    fn contradiction(&self, op: &Op, outputs: &[Option<Slot>]) -> Option<String> {
        let result = outputs.first().copied().flatten();
        match op {
            Op::Product(product) => {
                let of_type = [Some(product.a), Some(product.b)]
                    .into_iter()
                    .flatten()
                    .find(|slot| self.elem(*slot).is_some_and(|elem| elem != product.elem));
                if let Some(slot) = of_type {
                    return Some(format!("{slot} is not of type {}", product.elem));
                }
                let rank = |slot: Slot| Some(self.shape(slot)?.len());
                if product.form == ProductForm::Gemm
                    && let Some(slot) = [product.a, product.b]
                        .into_iter()
                        .find(|s| rank(*s).is_some_and(|r| r != 2))
                {
                    return Some(format!("{slot} is not a matrix"));
                }
                self.contradiction_after(&product.epilogue.0, result)
            }
            Op::Conv(conv) => {
                if self.elem(conv.x).is_some_and(|elem| elem != conv.elem) {
                    return Some(format!("{} is not of type {}", conv.x, conv.elem));
                }
                self.contradiction_after(&conv.epilogue.0, result)
            }
            Op::Pointwise(pointwise) => {
                if pointwise.links.is_empty() {
                    return Some("no function is applied".to_string());
                }
                let other = pointwise.operands.iter();
                let other = other
                    .chain(&result)
                    .find(|slot| self.elem(**slot).is_some_and(|elem| elem != pointwise.elem));
                if let Some(slot) = other {
                    return Some(format!("{slot} is not of type {}", pointwise.elem));
                }
                let beyond = pointwise.links.iter().find_map(|link| match link {
                    Link::Binary { other, .. } if *other >= pointwise.operands.len() => {
                        Some(*other)
                    }
                    _ => None,
                });
                beyond.map(|other| format!("there is no operand {other}"))
            }
            Op::Norm(norm) => {
                if self.elem(norm.x).is_some_and(|elem| elem != norm.elem) {
                    return Some(format!("{} is not of type {}", norm.x, norm.elem));
                }
                let residual = norm.residual?;
                if residual.sum >= outputs.len() {
                    return Some(format!("there is no output {} for the sum", residual.sum));
                }
                self.other_shape(norm.x, residual.with)
            }
            Op::Move(moved) => match moved.operands.first() {
                Some(Some(_)) => None,
                _ => Some("there is nothing to move".to_string()),
            },
            Op::Attention(attention) => {
                let order = attention.permute.as_deref()?;
                let is_order = (0..order.len()).all(|axis| order.contains(&axis));
                (order.len() != 4 || !is_order)
                    .then(|| format!("{order:?} is not an order of four axes"))
            }
            Op::Fill(fill) => {
                (fill.one.len() != 1).then(|| format!("it fills with {} elements", fill.one.len()))
            }
            Op::Opaque(_) => None,
        }
    }

    /// What the stages of an epilogue demand and do not get; the result has the shape that it has
    /// in all stages.
    fn contradiction_after(&self, stages: &[Stage], result: Option<Slot>) -> Option<String> {
        let result = result?;
        stages.iter().find_map(|stage| match stage {
            // The result may have other dimensions after it was written.
            Stage::Add(slot) | Stage::Mul(slot) => {
                let (elem, wanted) = (self.elem(*slot)?, self.elem(result)?);
                (elem != wanted).then(|| format!("{slot} is not of the type of {result}"))
            }
            Stage::Bias(slot) => {
                let shape = self.shape(*slot)?;
                let leading = shape.split_last().map_or(&[][..], |(_, leading)| leading);
                let is_vector = leading.iter().all(|dim| dim.known() == Some(1));
                (!is_vector).then(|| format!("the bias {slot} is not a vector"))
            }
            Stage::Scale(_) | Stage::Activation(_) => None,
        })
    }

    fn other_shape(&self, a: Slot, b: Slot) -> Option<String> {
        let is_same = same_shape(self.shape(a)?, self.shape(b)?);
        (!is_same).then(|| format!("{a} and {b} do not have one shape"))
    }
}
