//! `NegativeLogLikelihoodLoss`, to which other losses are expanded.

use std::marker::PhantomData;

use sardonyx_kernels::loss::{ClassScores, NoClass};
use sardonyx_kernels::number::Number;
use sardonyx_tensor::{DataType, Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LossReduction {
    None,
    Sum,
    Mean,
}

/// Binds `NegativeLogLikelihoodLoss`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let names =
        [("mean", LossReduction::Mean), ("sum", LossReduction::Sum), ("none", LossReduction::None)];
    let reduction = site.find_named("reduction", &names)?;
    let ignored = site.int("ignore_index");
    for_element!(site, site.elem(0)?, floats, T => Loss::<T> { reduction, ignored, elements: PhantomData })
}

struct Loss<T> {
    reduction: LossReduction,
    ignored: Option<i64>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + Number> Kernel for Loss<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.tensor(1)?.data_type() {
            DataType::Int32 => self.with::<i32>(call),
            DataType::Int64 => self.with::<i64>(call),
            other => fail!("the targets have type {}, not int64 or int32", other.name()),
        }
    }

    fn describe(&self) -> String {
        let reduced = match self.reduction {
            LossReduction::None => "each",
            LossReduction::Sum => "their sum",
            LossReduction::Mean => "their mean",
        };
        format!("losses of {}, {reduced}", T::DATA_TYPE)
    }
}

impl<T: Element + Number> Loss<T> {
    fn with<L: Element + Copy + Into<i64>>(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (dims, split) = sizes(call)?;
        let mut one = None;
        let scored = ClassScores {
            scores: call.slice::<T>(0)?,
            split,
            labels: call.slice::<L>(1)?,
            weights: if call.has_input(2) { Some(call.slice::<T>(2)?) } else { None },
            ignored: self.ignored,
        };
        let result = match self.reduction {
            LossReduction::None => scored.losses(call.output_slice::<T>(0, &dims)?),
            LossReduction::Sum | LossReduction::Mean => scored.sums().map(|[sum, weights]| {
                let is_mean = self.reduction == LossReduction::Mean;
                one = Some(if is_mean { sum / weights } else { sum });
            }),
        };
        if let Err(NoClass { at, label }) = result {
            let classes = split[1];
            let most = classes.saturating_sub(1);
            fail!(
                "target {at} is {label}, but there are {classes} classes: targets are 0 to {most}, \
                 or ignore_index"
            );
        }
        if let Some(one) = one {
            call.output_slice::<T>(0, &Dims::new())?[0] = T::from_f64(one);
        }
        Ok(())
    }
}

/// Returns the dimensions of the losses, and the numbers of scores before, along and after the axis
/// of classes. Operands do not broadcast.
fn sizes(call: &Call<'_>) -> Result<(Dims, [usize; 3]), KernelError> {
    let (scores, targets) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
    let [batch, classes, after @ ..] = scores else {
        fail!("the scores have rank {}, not at least 2", scores.len());
    };
    let dims: Dims = [*batch].iter().chain(after).copied().collect();
    if targets != &dims[..] {
        fail!("the targets are {targets:?}, but scores of {scores:?} need targets of {dims:?}");
    }
    if call.has_input(2) {
        let weights = call.tensor(2)?.dims();
        if weights != [*classes] {
            fail!("the weights are {weights:?}, but there are {classes} classes");
        }
    }
    Ok((dims, [*batch, *classes, after.iter().product()]))
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, tensor, text};

    const OP: &str = "NegativeLogLikelihoodLoss";

    #[test]
    fn losses() {
        let x = tensor(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let (targets, weights) = (tensor(&[2], &[1i64, 2]), tensor(&[3], &[1.0f32, 0.5, 2.0]));
        let one = |reduction, weights: Option<&Tensor>| {
            let attributes = [text("reduction", reduction)];
            run(OP, &attributes, &[Some(&x), Some(&targets), weights], 1).unwrap().remove(0)
        };
        assert_eq!(one("none", None), tensor(&[2], &[-2.0f32, -6.0]));
        assert_eq!(one("none", Some(&weights)), tensor(&[2], &[-1.0f32, -12.0]));
        assert_eq!(one("sum", Some(&weights)), tensor(&[], &[-13.0f32]));
        assert_eq!(one("mean", Some(&weights)), tensor(&[], &[-5.2f32]));
        assert_eq!(one("mean", None), tensor(&[], &[-4.0f32]));
        // Ignored targets have no weight.
        let ignored = [("ignore_index", Int(2))];
        let found = run(OP, &ignored, &[Some(&x), Some(&targets)], 1).unwrap();
        assert_eq!(found[0], tensor(&[], &[-2.0f32]));
        let error = run(OP, &[], &[Some(&x), Some(&tensor(&[2], &[0i64, 3]))], 1).unwrap_err();
        assert!(
            error.contains("target 1 is 3, but there are 3 classes: targets are 0 to 2"),
            "{error}"
        );
    }
}
