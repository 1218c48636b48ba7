//! The labels of classifiers: integers or strings.

use sardonyx_tensor::Dims;

use super::attributes::{ints, strings};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Site};
use crate::ops::text::set_texts;

/// What classes are called.
pub(super) enum Labels {
    /// Their numbers; none if classes are called by their position.
    Ints(Vec<i64>),
    Texts(Vec<Box<[u8]>>),
}

impl Labels {
    /// Those of a node whose attribute of integers has that name.
    pub(super) fn of(site: &Site<'_>, integers: &'static str) -> Result<Labels, BindError> {
        let numbers = ints(site, integers)?;
        let texts = strings(site, "classlabels_strings")?;
        match (numbers.is_empty(), texts.is_empty()) {
            (false, false) => {
                fail!("the node has both '{integers}' and 'classlabels_strings'")
            }
            (_, true) => Ok(Labels::Ints(numbers)),
            (true, false) => Ok(Labels::Texts(texts)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Labels::Ints(labels) => labels.len(),
            Labels::Texts(labels) => labels.len(),
        }
    }

    /// The labels by position, where class 0 is that of what the only label does not fit.
    pub(super) fn with_other(self) -> Labels {
        match self {
            Labels::Ints(labels) => Labels::Ints(vec![0, labels.first().copied().unwrap_or(1)]),
            Labels::Texts(mut labels) => {
                labels.insert(0, Box::default());
                Labels::Texts(labels)
            }
        }
    }

    /// Gives the labels of the classes at some positions as the first output.
    pub(super) fn write(&self, call: &mut Call<'_>, classes: &[i64]) -> Result<(), KernelError> {
        if !call.has_output(0) {
            return Ok(());
        }
        let outside = || KernelError::Failed("a class has no label".to_string());
        let dims = Dims::from(&[classes.len()][..]);
        match self {
            Labels::Ints(labels) => {
                let y = call.output_slice::<i64>(0, &dims)?;
                for (y, class) in y.iter_mut().zip(classes) {
                    *y = match labels.len() {
                        0 => *class,
                        _ => *labels.get(*class as usize).ok_or_else(outside)?,
                    };
                }
                Ok(())
            }
            Labels::Texts(labels) => {
                if classes.iter().any(|class| *class as usize >= labels.len()) {
                    return Err(outside());
                }
                let texts = classes.iter().map(|class| &labels[*class as usize][..]);
                set_texts(call, 0, &dims, texts)
            }
        }
    }
}
