//! Windows at run time: how much padding `auto_pad` stands for, and how many windows there are.

use sardonyx_tensor::Dims;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::Site;
use crate::program::{Padding, Window};

/// Windows over an input of known size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Placed {
    pub(crate) pads_begin: Dims,
    pub(crate) pads_end: Dims,
    /// Windows per spatial axis.
    pub(crate) counts: Dims,
}

/// Elements of a padded axis at most, so that places on it can be added up.
const LONGEST: usize = isize::MAX as usize / 4;

/// A list of numbers that are not negative, if the node has it.
pub(super) fn counts(site: &Site<'_>, name: &str) -> Result<Option<Vec<usize>>, BindError> {
    let Some(values) = site.ints(name) else {
        return Ok(None);
    };
    match values.iter().map(|value| usize::try_from(*value)).collect() {
        Ok(values) => Ok(Some(values)),
        Err(_) => Err(BindError::Invalid(format!("{name} must not be negative, as in {values:?}"))),
    }
}

/// A list of positive numbers, if the node has it.
pub(super) fn per_axis(site: &Site<'_>, name: &str) -> Result<Option<Vec<usize>>, BindError> {
    match counts(site, name)? {
        Some(values) if values.contains(&0) => {
            Err(BindError::Invalid(format!("{name} must be positive numbers, not {values:?}")))
        }
        values => Ok(values),
    }
}

impl Window {
    /// Reads the attributes; `kernel` comes from them or from the weights.
    pub(crate) fn new(site: &Site<'_>, kernel: Vec<usize>) -> Result<Window, BindError> {
        let rank = kernel.len();
        let sizes = |name: &str| -> Result<Option<Vec<usize>>, BindError> {
            let Some(values) = site.ints(name) else {
                return Ok(None);
            };
            let values: Result<Vec<usize>, _> = values.into_iter().map(usize::try_from).collect();
            match values {
                Ok(values) => Ok(Some(values)),
                Err(_) => {
                    Err(BindError::Unsupported(format!("negative {name} are not implemented")))
                }
            }
        };
        let per_axis = |name: &str| -> Result<Vec<usize>, BindError> {
            match sizes(name)? {
                Some(values) if values.len() != rank || values.contains(&0) => {
                    Err(BindError::Invalid(format!(
                        "{name} must be {rank} positive numbers, not {values:?}"
                    )))
                }
                Some(values) => Ok(values),
                None => Ok(vec![1; rank]),
            }
        };
        let padding = match site.string("auto_pad").as_deref() {
            Some("SAME_UPPER") => Padding::SameUpper,
            Some("SAME_LOWER") => Padding::SameLower,
            Some("VALID") => Padding::Explicit(vec![0; rank], vec![0; rank]),
            Some("NOTSET") | None => match sizes("pads")? {
                Some(pads) if pads.len() != 2 * rank => {
                    return Err(BindError::Invalid(format!(
                        "pads must be {} numbers, not {pads:?}",
                        2 * rank
                    )));
                }
                Some(pads) => Padding::Explicit(pads[..rank].to_vec(), pads[rank..].to_vec()),
                None => Padding::Explicit(vec![0; rank], vec![0; rank]),
            },
            Some(other) => {
                return Err(BindError::Invalid(format!("unknown auto_pad '{other}'")));
            }
        };
        Ok(Window {
            strides: per_axis("strides")?,
            dilations: per_axis("dilations")?,
            kernel,
            padding,
            ceil: site.int("ceil_mode") == Some(1),
        })
    }

    /// Windows of these sizes, stride 1, without padding.
    pub(crate) fn unpadded(kernel: Vec<usize>) -> Window {
        let rank = kernel.len();
        let padding = Padding::Explicit(vec![0; rank], vec![0; rank]);
        Window { strides: vec![1; rank], dilations: vec![1; rank], kernel, padding, ceil: false }
    }

    /// The padding, if it does not depend on the size of the input.
    pub(crate) fn fixed_pads(&self) -> Option<(Dims, Dims)> {
        if let Padding::Explicit(begin, end) = &self.padding {
            return Some((begin.as_slice().into(), end.as_slice().into()));
        }
        // Windows that move by one element need as much for any input that is not empty.
        let placed = self.place(&vec![1; self.kernel.len()]).ok()?;
        let is_fixed = self.strides.iter().all(|stride| *stride == 1);
        is_fixed.then_some((placed.pads_begin, placed.pads_end))
    }

    /// The windows over an input with these spatial sizes.
    pub(crate) fn place(&self, spatial: &[usize]) -> Result<Placed, KernelError> {
        if spatial.len() != self.kernel.len() {
            fail!(
                "the kernel has {} spatial axes, but the input has {}",
                self.kernel.len(),
                spatial.len()
            );
        }
        let mut placed =
            Placed { pads_begin: Dims::new(), pads_end: Dims::new(), counts: Dims::new() };
        for (axis, size) in spatial.iter().enumerate() {
            let stride = self.strides[axis];
            let reach = self.kernel[axis].saturating_sub(1).saturating_mul(self.dilations[axis]);
            let reach = reach.saturating_add(1);
            let (begin, end, count) = match &self.padding {
                Padding::Explicit(begin, end) => {
                    let (begin, end) = (begin[axis], end[axis]);
                    let padded = size.checked_add(begin).and_then(|size| size.checked_add(end));
                    let Some(padded) = padded.filter(|size| *size <= LONGEST) else {
                        fail!(
                            "spatial axis {axis} of {size} elements is too long with padding {begin} and {end}"
                        );
                    };
                    let Some(room) = padded.checked_sub(reach) else {
                        fail!(
                            "the kernel spans {reach} elements, but spatial axis {axis} has {size} with padding {begin} and {end}"
                        );
                    };
                    let mut count =
                        if self.ceil { room.div_ceil(stride) } else { room / stride } + 1;
                    // The last window must begin before the padding at the end.
                    if self.ceil && (count - 1) * stride >= size + begin {
                        count -= 1;
                    }
                    (begin, end, count)
                }
                same => {
                    let count = size.div_ceil(stride);
                    let last = count.saturating_sub(1) * stride;
                    let total = last.saturating_add(reach).saturating_sub(*size);
                    if total > LONGEST {
                        fail!(
                            "the kernel spans {reach} elements, too many to pad {size} of spatial axis {axis}"
                        );
                    }
                    let half = total / 2;
                    match same {
                        Padding::SameUpper => (half, total - half, count),
                        _ => (total - half, half, count),
                    }
                }
            };
            placed.pads_begin.push(begin);
            placed.pads_end.push(end);
            placed.counts.push(count);
        }
        Ok(placed)
    }
}
