//! Windows at run time: padding of `auto_pad`, and number of windows.

use std::borrow::Cow;

use sardonyx_tensor::Dims;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::Site;
use crate::program::{ConvWindow, Padding, PaddingSetting, Window, WindowSettings};

/// Windows over an input of known size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Placed {
    pub(crate) pads_begin: Dims,
    pub(crate) pads_end: Dims,
    /// Number of windows per spatial axis.
    pub(crate) counts: Dims,
}

/// Limit: elements of a padded axis, so that sums of offsets do not overflow.
const LONGEST: usize = isize::MAX as usize / 4;

/// Returns a list of non-negative numbers, if the node has it.
pub(super) fn counts(site: &Site<'_>, name: &str) -> Result<Option<Vec<usize>>, BindError> {
    let Some(values) = site.ints(name) else {
        return Ok(None);
    };
    match values.iter().map(|value| usize::try_from(*value)).collect() {
        Ok(values) => Ok(Some(values)),
        Err(_) => Err(BindError::Invalid(format!("{name} must not be negative, as in {values:?}"))),
    }
}

/// Returns a list of positive numbers, if the node has it.
pub(super) fn per_axis(site: &Site<'_>, name: &str) -> Result<Option<Vec<usize>>, BindError> {
    match counts(site, name)? {
        Some(values) if values.contains(&0) => {
            Err(BindError::Invalid(format!("{name} must be positive numbers, not {values:?}")))
        }
        values => Ok(values),
    }
}

impl WindowSettings {
    /// Reads the attributes of windows.
    pub(crate) fn new(site: &Site<'_>) -> Result<WindowSettings, BindError> {
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
        let padding = match site.string("auto_pad").as_deref() {
            Some("SAME_UPPER") => PaddingSetting::SameUpper,
            Some("SAME_LOWER") => PaddingSetting::SameLower,
            Some("VALID") => PaddingSetting::Pads(None),
            Some("NOTSET") | None => PaddingSetting::Pads(sizes("pads")?),
            Some(other) => {
                return Err(BindError::Invalid(format!("unknown auto_pad '{other}'")));
            }
        };
        Ok(WindowSettings {
            strides: sizes("strides")?,
            dilations: sizes("dilations")?,
            padding,
            ceil: site.int("ceil_mode") == Some(1),
        })
    }

    /// Makes the windows of a kernel.
    ///
    /// # Errors
    ///
    /// Sizes of the kernel, strides or dilations that are 0; lists of the wrong length.
    pub(crate) fn with_kernel(&self, kernel: Vec<usize>) -> Result<Window, KernelError> {
        let rank = kernel.len();
        if rank == 0 || kernel.contains(&0) {
            fail!("the kernel must have positive sizes, not {kernel:?}");
        }
        let per_axis = |name: &str, list: &Option<Vec<usize>>| -> Result<_, KernelError> {
            match list {
                Some(values) if values.len() != rank || values.contains(&0) => {
                    fail!("{name} must be {rank} positive numbers, not {values:?}")
                }
                Some(values) => Ok(values.clone()),
                None => Ok(vec![1; rank]),
            }
        };
        let padding = match &self.padding {
            PaddingSetting::SameUpper => Padding::SameUpper,
            PaddingSetting::SameLower => Padding::SameLower,
            PaddingSetting::Pads(Some(pads)) if pads.len() != 2 * rank => {
                fail!("pads must be {} numbers, not {pads:?}", 2 * rank)
            }
            PaddingSetting::Pads(Some(pads)) => {
                Padding::Explicit(pads[..rank].to_vec(), pads[rank..].to_vec())
            }
            PaddingSetting::Pads(None) => Padding::Explicit(vec![0; rank], vec![0; rank]),
        };
        Ok(Window {
            strides: per_axis("strides", &self.strides)?,
            dilations: per_axis("dilations", &self.dilations)?,
            kernel,
            padding,
            ceil: self.ceil,
            cut: false,
        })
    }
}

impl ConvWindow {
    /// Returns the windows of a convolution of an input `[N, C, D1, …]` with weights `[M, C /
    /// group, K1, …]`.
    ///
    /// # Errors
    ///
    /// Those of [`WindowSettings::with_kernel`]; inputs and weights of different ranks.
    pub(crate) fn for_weights(
        &self,
        input: &[usize],
        weights: &[usize],
    ) -> Result<Cow<'_, Window>, KernelError> {
        if input.len() < 3 || weights.len() != input.len() {
            fail!(
                "the input {input:?} and the weights {weights:?} must have the same number of \
                 dimensions, at least three"
            );
        }
        match self {
            ConvWindow::Known(window) => Ok(Cow::Borrowed(window)),
            ConvWindow::Open(settings) => {
                let kernel = weights.get(2..).unwrap_or_default().to_vec();
                settings.with_kernel(kernel).map(Cow::Owned)
            }
        }
    }
}

impl Window {
    /// Reads the attributes of windows of a given kernel size.
    pub(crate) fn new(site: &Site<'_>, kernel: Vec<usize>) -> Result<Window, BindError> {
        let window = WindowSettings::new(site)?.with_kernel(kernel);
        Ok(window?)
    }

    /// Returns the padding, if it does not depend on the input's size.
    pub(crate) fn fixed_pads(&self) -> Option<(Dims, Dims)> {
        if let Padding::Explicit(begin, end) = &self.padding {
            return Some((begin.as_slice().into(), end.as_slice().into()));
        }
        // Windows with stride 1 need equal padding for any input that is not empty.
        let placed = self.place(&vec![1; self.kernel.len()]).ok()?;
        let is_fixed = self.strides.iter().all(|stride| *stride == 1);
        is_fixed.then_some((placed.pads_begin, placed.pads_end))
    }

    /// Places the windows on an input with these spatial sizes.
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
            // An empty axis has no windows, whatever the kernel size.
            let nothing = (*size == 0).then_some(0);
            let (begin, end, count) = match &self.padding {
                Padding::Explicit(begin, end) => {
                    let (begin, end) = (begin[axis], end[axis]);
                    let padded = size.checked_add(begin).and_then(|size| size.checked_add(end));
                    let Some(padded) = padded.filter(|size| *size <= LONGEST) else {
                        fail!(
                            "spatial axis {axis} of {size} elements is too long with padding {begin} and {end}"
                        );
                    };
                    let Some(mut count) = self.count(padded, reach, stride).or(nothing) else {
                        fail!(
                            "the kernel spans {reach} elements, but spatial axis {axis} has {size} with padding \
                             {begin} and {end}"
                        );
                    };
                    // The last window must begin before the padding at the end.
                    if self.ceil && count > 0 && (count - 1) * stride >= size + begin {
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

    /// Returns the number of windows on a padded axis; `None` if the formula is negative.
    fn count(&self, padded: usize, reach: usize, stride: usize) -> Option<usize> {
        let Some(room) = padded.checked_sub(reach) else {
            let missing = reach - padded;
            let fewer =
                if self.cut || self.ceil { missing / stride } else { missing.div_ceil(stride) };
            return 1usize.checked_sub(fewer);
        };
        Some(if self.ceil { room.div_ceil(stride) } else { room / stride } + 1)
    }
}
