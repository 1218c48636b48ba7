//! Reductions of axes to one element each, and positions of extremes.

use std::marker::PhantomData;

use sardonyx_kernels::Loops;
use sardonyx_kernels::elementwise::{Logic, MAX_RANK, Strided, logic};
use sardonyx_kernels::pixels::Total;
use sardonyx_kernels::reduce::{Extreme, Reduce, Ties};
use sardonyx_tensor::{DataType, Dims, Element, shape::normalize_axis};
use smallvec::SmallVec;

use super::math::binary::bytes;
use super::math::for_element;
use super::math::softmax::split_at_axis;
use super::nn::images::{OverPixels, WithPixels};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::Images;

/// A binding per row: `bind_reduce_sum: wide, Reduce::Sum;` becomes
///
/// ```text
/// pub(crate) fn bind_reduce_sum(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
///     wide(site, Reduce::Sum)
/// }
/// ```
///
/// The list of bindings holds plain functions, and these differ by a value only.
macro_rules! rows {
    ($($name:ident: $bind:ident, $op:expr;)*) => { $(
        pub(crate) fn $name(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
            $bind(site, $op)
        }
    )* };
}

rows! {
    bind_arg_max: position, Extreme::Max;
    bind_arg_min: position, Extreme::Min;
    bind_reduce_l1: wide, Reduce::L1;
    bind_reduce_l2: wide, Reduce::L2;
    bind_reduce_log_sum: floats, Reduce::LogSum;
    bind_reduce_log_sum_exp: floats, Reduce::LogSumExp;
    bind_reduce_max: extreme, Reduce::Max;
    bind_reduce_mean: wide, Reduce::Mean;
    bind_reduce_min: extreme, Reduce::Min;
    bind_reduce_prod: wide, Reduce::Prod;
    bind_reduce_sum: wide, Reduce::Sum;
    bind_reduce_sum_square: wide, Reduce::SumSquare;
}

fn wide(site: &Site<'_>, op: Reduce) -> Result<Box<dyn Kernel>, BindError> {
    let rows: Result<Box<dyn Kernel>, BindError> =
        for_element!(site, site.elem(0)?, high_precision, T => Reduction::<T>::new(site, op)?);
    let total = match op {
        Reduce::Sum => Total::Sum,
        Reduce::Mean => Total::Mean,
        Reduce::Max => Total::Max,
        Reduce::Min => Total::Min,
        _ => return rows,
    };
    if images(site) != Images::Read {
        return rows;
    }
    let keeps_dims = site.need_int("keepdims")? != 0;
    Ok(WithPixels::reading(rows?, OverPixels::Total(total, keeps_dims)))
}

/// Returns how the kernel reads images: for all spatial axes there are loops over pixels.
pub(crate) fn images(site: &Site<'_>) -> Images {
    let rank = site.shape(0).map_or(0, |shape| shape.len());
    let axes = site.constant(1).and_then(|axes| axes.to_vec::<i64>().ok());
    let (Some(axes), Ok(DataType::Float), true) = (axes, site.elem(0), rank > 2) else {
        return Images::Rows;
    };
    let mut spatial: SmallVec<[usize; 6]> =
        axes.iter().filter_map(|axis| normalize_axis(*axis, rank).ok()).collect();
    spatial.sort_unstable();
    if spatial.iter().copied().eq(2..rank) { Images::Read } else { Images::Rows }
}

fn floats(site: &Site<'_>, op: Reduce) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, floats, T => Reduction::<T>::new(site, op)?)
}

fn extreme(site: &Site<'_>, op: Reduce) -> Result<Box<dyn Kernel>, BindError> {
    match site.elem(0)? {
        DataType::Bool => Ok(Box::new(TruthReduction { op, axes: Axes::new(site)? })),
        elem @ (DataType::Int8 | DataType::Uint8) => {
            for_element!(site, elem, [i8, u8], T => Reduction::<T>::new(site, op)?)
        }
        _ => wide(site, op),
    }
}

fn position(site: &Site<'_>, which: Extreme) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, keeps_dims) = (site.need_int("axis")?, site.need_int("keepdims")? != 0);
    let ties = if site.need_int("select_last_index")? != 0 { Ties::Last } else { Ties::First };
    for_element!(
        site, site.elem(0)?, numeric, T => Position::<T> { which, ties, axis, keeps_dims, elements: PhantomData }
    )
}

/// Attributes about the axes of the second input.
struct Axes {
    keeps_dims: bool,
    /// Whether an empty list means no axes instead of all.
    none_means_none: bool,
}

impl Axes {
    fn new(site: &Site<'_>) -> Result<Axes, BindError> {
        Ok(Axes {
            keeps_dims: site.need_int("keepdims")? != 0,
            none_means_none: site.need_int("noop_with_empty_axes")? != 0,
        })
    }

    /// Resolves the axes, and computes the dimensions of the output.
    fn resolve(&self, call: &Call<'_>) -> Result<Resolved, KernelError> {
        let from = Dims::from(call.tensor(0)?.dims());
        if from.len() > MAX_RANK {
            fail!("the rank is {}; at most {MAX_RANK} is supported", from.len());
        }
        let listed = if call.has_input(1) { call.ints(1)? } else { Default::default() };
        let mut reduced = [listed.is_empty() && !self.none_means_none; MAX_RANK];
        for axis in listed {
            reduced[normalize_axis(axis, from.len())?] = true;
        }
        let to = remove_axes(&from, &reduced, self.keeps_dims);
        Ok(Resolved { from, reduced, to })
    }
}

struct Resolved {
    from: Dims,
    /// Whether each axis is reduced. Longer than the rank.
    reduced: [bool; MAX_RANK],
    to: Dims,
}

impl Resolved {
    fn axes(&self) -> &[bool] {
        &self.reduced[..self.from.len()]
    }
}

/// Removes the marked dimensions, or replaces them by 1.
fn remove_axes(dims: &[usize], marked: &[bool], keeps_dims: bool) -> Dims {
    let sizes = dims.iter().zip(marked);
    sizes
        .filter_map(|(size, marked)| match (marked, keeps_dims) {
            (false, _) => Some(*size),
            (true, true) => Some(1),
            (true, false) => None,
        })
        .collect()
}

struct Reduction<T> {
    op: Reduce,
    axes: Axes,
    elements: PhantomData<T>,
}

impl<T> Reduction<T> {
    fn new(site: &Site<'_>, op: Reduce) -> Result<Self, BindError> {
        Ok(Reduction { op, axes: Axes::new(site)?, elements: PhantomData })
    }
}

impl<T: Loops + Element> Kernel for Reduction<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let axes = self.axes.resolve(call)?;
        let out = call.output_slice::<T>(0, &axes.to)?;
        T::reduce(exec, self.op, &axes.from, axes.axes(), x, out)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Maximum or minimum of booleans: whether any, or all, are true.
struct TruthReduction {
    op: Reduce,
    axes: Axes,
}

impl Kernel for TruthReduction {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, bytes(call, 0)?);
        let axes = self.axes.resolve(call)?;
        let mut found = call.scratch::<u8>(axes.to.iter().product())?;
        let mut out = call.output(0, DataType::Bool, &axes.to)?;
        let out = out.bytes_mut();
        u8::reduce(exec, self.op, &axes.from, axes.axes(), x, &mut found)?;
        // Any byte but 0 is true; the output is 0 or 1.
        let len = found.len();
        logic(exec, Logic::Or, &[len], Strided::flat(&found), Strided::flat(&found), out)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, DataType::Bool)
    }
}

struct Position<T> {
    which: Extreme,
    ties: Ties,
    axis: i64,
    keeps_dims: bool,
    elements: PhantomData<T>,
}

impl<T: Loops + Element> Kernel for Position<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let sizes = split_at_axis(&dims, self.axis)?;
        let axis = normalize_axis(self.axis, dims.len())?;
        let marked: SmallVec<[bool; 6]> = (0..dims.len()).map(|other| other == axis).collect();
        let out = call.output_slice::<i64>(0, &remove_axes(&dims, &marked, self.keeps_dims))?;
        if sizes[1] == 0 && !out.is_empty() {
            fail!("axis {axis} of {dims:?} is empty");
        }
        T::arg_extreme(exec, self.which, self.ties, sizes.into(), x, out)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("position of {:?} of {}", self.which, T::DATA_TYPE)
    }
}
