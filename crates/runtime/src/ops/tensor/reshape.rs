//! Reshape, Flatten, Squeeze, Unsqueeze, Identity: keep the elements and change the dimensions.
//!
//! With planned memory the output is a view and nothing runs. The kernel runs to copy into an
//! output of the model, or if the shape is only known at run time.

use sardonyx_tensor::{Dims, shape, shape::normalize_axis};

use super::moves::copy_view;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{MoveKind, Op, Reshape};

/// Lowers `Reshape`.
pub(crate) fn lower_reshape(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(
        MoveKind::Reshape(Reshape::Target { allow_zero: site.int("allowzero") == Some(1) }),
        site,
    ))
}

/// Lowers `Flatten`.
pub(crate) fn lower_flatten(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Reshape(Reshape::Flatten { axis: site.need_int("axis")? }), site))
}

/// Lowers `Squeeze`.
pub(crate) fn lower_squeeze(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Reshape(Reshape::Squeeze), site))
}

/// Lowers `Unsqueeze`.
pub(crate) fn lower_unsqueeze(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Reshape(Reshape::Unsqueeze), site))
}

/// Lowers `Identity`.
pub(crate) fn lower_identity(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Reshape(Reshape::Same), site))
}

impl Kernel for Reshape {
    fn memory(&self) -> MemoryRules {
        let takes = match self {
            // Takes the input, so that a sequence is not duplicated.
            Reshape::Same => Inputs::from_positions(&[0]),
            _ => Inputs::default(),
        };
        MemoryRules { strided: Inputs::from_positions(&[0]), takes, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if let Reshape::Same = self {
            // Identity accepts any value.
            if call.value(0).is_some() {
                let value = call.take(0)?;
                return call.set_output(0, value);
            }
        }
        let dims = self.dims(call)?;
        let input = call.tensor(0)?.clone();
        copy_view(call, 0, &input, &dims)
    }

    fn describe(&self) -> String {
        "view".to_string()
    }
}

impl Reshape {
    pub(super) fn view(self, site: &ViewSite<'_>) -> Option<Layout> {
        site.layout.reshape(site.from, site.to)
    }

    fn dims(&self, call: &Call<'_>) -> Result<Dims, KernelError> {
        let from = call.tensor(0)?.dims();
        Ok(match self {
            Reshape::Same => from.into(),
            Reshape::Flatten { axis } => {
                // The axis may equal the rank: all dimensions are then before it.
                let axis = if *axis == from.len() as i64 {
                    from.len()
                } else {
                    normalize_axis(*axis, from.len())?
                };
                let product = |dims: &[usize]| dims.iter().product::<usize>();
                Dims::from_slice(&[product(&from[..axis]), product(&from[axis..])])
            }
            Reshape::Squeeze => {
                let axes =
                    if call.has_input(1) { Some(axes(&call.ints(1)?, from.len())?) } else { None };
                let mut dims = Dims::new();
                for (axis, dim) in from.iter().enumerate() {
                    match &axes {
                        Some(axes) if axes.contains(&axis) && *dim != 1 => {
                            fail!("axis {axis} has size {dim} and cannot be squeezed")
                        }
                        Some(axes) if axes.contains(&axis) => {}
                        None if *dim == 1 => {}
                        _ => dims.push(*dim),
                    }
                }
                dims
            }
            Reshape::Unsqueeze => {
                let added = call.ints(1)?;
                let rank = from.len() + added.len();
                shape::demand_rank(rank)?;
                let axes = axes(&added, rank)?;
                let mut rest = from.iter();
                (0..rank)
                    .map(
                        |axis| {
                            if axes.contains(&axis) { 1 } else { rest.next().copied().unwrap_or(1) }
                        },
                    )
                    .collect()
            }
            Reshape::Target { allow_zero } => target_dims(from, &call.ints(1)?, *allow_zero)?,
        })
    }
}

/// Converts axes to indices; refuses duplicates.
pub(in crate::ops) fn axes(axes: &[i64], rank: usize) -> Result<Dims, KernelError> {
    shape::demand_rank(axes.len().max(rank))?;
    let mut list = Dims::with_capacity(axes.len());
    for axis in axes {
        let axis = normalize_axis(*axis, rank)?;
        if list.contains(&axis) {
            fail!("axis {axis} is given twice");
        }
        list.push(axis);
    }
    Ok(list)
}

/// Resolves the target of Reshape: 0 copies a dimension, -1 is inferred.
fn target_dims(from: &[usize], target: &[i64], allow_zero: bool) -> Result<Dims, KernelError> {
    shape::demand_rank(target.len())?;
    let mut dims = Dims::new();
    let mut rest = None;
    // Copied dimensions cancel in the division, so they may even be 0.
    let (mut left, mut divisor) = (Dims::from(from), Dims::new());
    for (index, size) in target.iter().enumerate() {
        match *size {
            0 if !allow_zero => match from.get(index) {
                Some(dim) => {
                    dims.push(*dim);
                    left[index] = 1;
                }
                None => fail!(
                    "the shape {target:?} copies dimension {index}, which {from:?} does not have"
                ),
            },
            -1 if rest.replace(index).is_some() => {
                fail!("the shape {target:?} has more than one -1")
            }
            -1 => dims.push(1),
            size => match usize::try_from(size) {
                Ok(size) => {
                    dims.push(size);
                    divisor.push(size);
                }
                Err(_) => fail!("the shape {target:?} has a negative dimension"),
            },
        }
    }
    let elems = from.iter().product::<usize>();
    if let Some(rest) = rest {
        let (left, divisor) = (shape::elems(&left)?, shape::elems(&divisor)?);
        dims[rest] = match (left.checked_rem(divisor), elems) {
            (Some(0), _) => left / divisor,
            // An empty tensor fits any size.
            (Some(_), 0) => 0,
            _ => fail!(
                "{from:?} cannot be reshaped to {target:?}: {left} elements cannot be divided by {divisor}"
            ),
        };
    }
    if shape::elems(&dims)? != elems {
        fail!("{from:?} with {elems} elements cannot be reshaped to {target:?}");
    }
    Ok(dims)
}
