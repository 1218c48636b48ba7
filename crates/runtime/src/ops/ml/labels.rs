//! Labels of classifiers: integers or strings.

use sardonyx_tensor::Dims;

use super::attributes::{ints, strings};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Site};
use crate::ops::text::set_texts;

/// Labels of classes.
pub(super) enum Labels {
    /// Integers; none if classes have their position as label.
    Ints(Vec<i64>),
    Texts(Vec<Box<[u8]>>),
}

impl Labels {
    /// Reads the labels of a node. `integers` is the name of the attribute for integers.
    pub(super) fn read(site: &Site<'_>, integers: &'static str) -> Result<Labels, BindError> {
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

    /// Adds a class 0 for inputs outside of the only labelled class.
    pub(super) fn with_other(self) -> Labels {
        match self {
            Labels::Ints(labels) => Labels::Ints(vec![0, labels.first().copied().unwrap_or(1)]),
            Labels::Texts(mut labels) => {
                labels.insert(0, Box::default());
                Labels::Texts(labels)
            }
        }
    }

    /// Writes the labels of classes as the first output.
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
