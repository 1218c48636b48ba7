//! Normalizations within one example: LayerNormalization, RMSNormalization, GroupNormalization,
//! LpNormalization, MeanVarianceNormalization.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::elementwise::{Binary, MAX_RANK, Side, Strided};
use sardonyx_kernels::norm::{Affine, Norm, RowInputs, RowNormalization, RowOutputs, Statistics};
use sardonyx_kernels::number::Number;
use sardonyx_kernels::pixels::{self, Pixels, PixelsMut};
use sardonyx_kernels::reduce::Reduce;
use sardonyx_kernels::{Exec, FloatLoops, Loops};
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, cast_slices, shape::normalize_axis};

use super::batch_normalization::widen_input;
use super::images::{OverPixels, WithPixels};
use super::instance_normalization::per_channel;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::Layout;
use crate::ops::math::softmax::split_at_axis;
use crate::ops::math::{for_element, steps};
use crate::ops::narrow::{narrow, widen};
use crate::ops::tensor::moves::expand;
use crate::program::{self, NormKind, Op};
use crate::scratch::Contents;

/// Lowers `LayerNormalization`.
pub(crate) fn lower_layer(site: &Site<'_>) -> Result<Op, BindError> {
    let (axis, epsilon) = (site.need_int("axis")?, epsilon(site));
    // Sums are always in double precision; `stash_type` decides only the type of the statistics.
    let stash = stash_type(site)?;
    norm(site, NormKind::Layer { axis, epsilon, stash })
}

/// Lowers `RMSNormalization`. Input and scale may have different types.
pub(crate) fn lower_root_mean_square(site: &Site<'_>) -> Result<Op, BindError> {
    if site.elem(0)? != site.elem(1)? {
        return Ok(Op::opaque(site));
    }
    norm(site, NormKind::RootMeanSquare { axis: site.need_int("axis")?, epsilon: epsilon(site) })
}

fn norm(site: &Site<'_>, kind: NormKind) -> Result<Op, BindError> {
    let elem = site.elem(0)?;
    if !elem_is_float(elem) {
        return site.unsupported_type(elem);
    }
    let bias = if site.has_input(2) { Some(site.slot(2)?) } else { None };
    let (x, scale) = (site.slot(0)?, site.slot(1)?);
    Ok(Op::Norm(Box::new(program::Norm { kind, elem, x, scale, bias, residual: None })))
}

/// Selects the kernel of a normalization of rows.
pub(crate) fn select(site: &Site<'_>, norm: &program::Norm) -> Result<Box<dyn Kernel>, BindError> {
    let input = 2 + usize::from(norm.bias.is_some());
    let sum = norm.residual.map(|residual| Sum { input, output: residual.sum });
    match norm.kind {
        NormKind::Layer { axis, epsilon, stash } => {
            let has_bias = norm.bias.is_some();
            for_element!(site, norm.elem, floats, T => LayerNormalization::<T> {
                axis,
                epsilon,
                stash,
                has_bias,
                sum,
                takes_pitch: takes_pitch(site, norm, axis),
                elements: PhantomData,
            })
        }
        NormKind::RootMeanSquare { axis, epsilon } => {
            for_element!(site, norm.elem, floats, T => RootMeanSquare::<T> {
                axis,
                epsilon,
                sum,
                elements: PhantomData,
            })
        }
    }
}

/// Whether the kernel accepts rows with a pitch, such as pixels with channels last: float rows
/// along the last axis, without other outputs.
fn takes_pitch(site: &Site<'_>, norm: &program::Norm, axis: i64) -> bool {
    let rank = |input: usize| site.shape(input).map(|shape| shape.len() as i64);
    let is_last = axis == -1 || rank(0) == Some(axis + 1);
    let are_vectors = rank(1) == Some(1) && (norm.bias.is_none() || rank(2) == Some(1));
    let is_alone = norm.residual.is_none() && !site.has_output(1) && !site.has_output(2);
    norm.elem == DataType::Float && is_last && are_vectors && is_alone
}

/// Binds `RMSNormalization` of an input and a scale of different types.
pub(crate) fn bind_root_mean_square(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, epsilon) = (site.need_int("axis")?, epsilon(site));
    let (elem, scale) = (site.elem(0)?, site.elem(1)?);
    // Any pair of float types.
    for elem in [elem, scale] {
        if !elem_is_float(elem) {
            return site.unsupported_type(elem);
        }
    }
    Ok(Box::new(MixedRootMeanSquare { axis, epsilon, scale }))
}

/// Binds `GroupNormalization`.
pub(crate) fn bind_groups(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (epsilon, groups) = (epsilon(site), site.need_int("num_groups")?);
    let Some(groups) = usize::try_from(groups).ok().filter(|groups| *groups > 0) else {
        return Err(BindError::Invalid(format!(
            "attribute 'num_groups' must be positive, not {groups}"
        )));
    };
    let rows: Result<Box<dyn Kernel>, BindError> = for_element!(site, site.elem(0)?, floats, T => GroupNormalization::<T> {
        groups,
        epsilon,
        elements: PhantomData,
    });
    Ok(WithPixels::with_same_order(
        site,
        rows?,
        OverPixels::Groups { groups: Some(groups), epsilon },
    ))
}

/// Binds `LpNormalization`.
pub(crate) fn bind_lp(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let axis = site.need_int("axis")?;
    let norm = match site.need_int("p")? {
        1 => Norm::L1,
        2 => Norm::L2,
        other => {
            return Err(BindError::Invalid(format!("attribute 'p' is {other}, not 1 or 2")));
        }
    };
    for_element!(site, site.elem(0)?, floats, T => LpNormalization::<T> {
        axis,
        norm,
        elements: PhantomData,
    })
}

/// Binds `MeanVarianceNormalization`.
pub(crate) fn bind_mean_variance(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let Some(axes) = site.ints("axes") else {
        return Err(BindError::Invalid("attribute 'axes' is missing".to_string()));
    };
    match site.elem(0)? {
        DataType::Float16 | DataType::Bfloat16 => {
            Ok(Box::new(NarrowMeanVariance(MeanVariance { axes })))
        }
        elem => for_element!(site, elem, [f32, f64], T => WideMeanVariance::<T> {
            of: MeanVariance { axes },
            elements: PhantomData,
        }),
    }
}

fn elem_is_float(elem: DataType) -> bool {
    matches!(elem, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
}

fn epsilon(site: &Site<'_>) -> f64 {
    f64::from(site.float("epsilon").unwrap_or(1e-5))
}

/// Returns the type that statistics are computed in.
fn stash_type(site: &Site<'_>) -> Result<DataType, BindError> {
    let number = site.int("stash_type").unwrap_or(1);
    let found = i32::try_from(number).ok().and_then(DataType::from_number);
    match found {
        Some(stash) if elem_is_float(stash) => Ok(stash),
        Some(other) => site.unsupported_type(other),
        None => Err(BindError::Invalid(format!(
            "attribute 'stash_type' is {number}, which is not an element type"
        ))),
    }
}

/// Sum that is normalized: positions of its other operand among the inputs and of its result among
/// the outputs.
#[derive(Clone, Copy)]
struct Sum {
    input: usize,
    output: usize,
}

/// Returns the other operand of a sum.
fn residual<'a, T: Element>(
    sum: Option<Sum>,
    call: &Call<'a>,
) -> Result<Option<&'a [T]>, KernelError> {
    let Some(sum) = sum else { return Ok(None) };
    let (a, b) = (call.tensor(0)?.dims(), call.tensor(sum.input)?.dims());
    if a != b {
        fail!("{a:?} and {b:?} are added, but the model declares equal shapes");
    }
    Ok(Some(call.slice::<T>(sum.input)?))
}

/// Returns the elements of the first output, and of the sum if it has a reader.
fn normalized_and_sum<'c, T: Element>(
    sum: Option<Sum>,
    call: &'c mut Call<'_>,
    dims: &[usize],
) -> Result<(&'c mut [T], Option<&'c mut [T]>), KernelError> {
    match sum {
        Some(sum) => call.output_slices::<T, T>(sum.output, dims),
        None => Ok((call.output_slice::<T>(0, dims)?, None)),
    }
}

/// Describes the sum for profiles and `explain`.
fn describe_sum(sum: Option<Sum>) -> &'static str {
    if sum.is_some() { "a sum of " } else { "" }
}

struct LayerNormalization<T> {
    axis: i64,
    epsilon: f64,
    stash: DataType,
    has_bias: bool,
    sum: Option<Sum>,
    takes_pitch: bool,
    elements: PhantomData<fn() -> T>,
}

/// Normalizes float rows with a pitch.
fn normalize_pixels(
    call: &mut Call<'_>,
    dims: &Dims,
    epsilon: f64,
    has_bias: bool,
) -> Result<(), KernelError> {
    let view = call.tensor(0)?;
    let layout = Layout { offset: view.offset(), strides: view.strides() };
    let Some(pitch) = layout.row_pitch(dims) else {
        fail!("the rows of input 0 are not one distance apart");
    };
    let last = dims.len() - 1;
    let (count, width) = (product(&dims[..last]), dims[last]);
    let x = Pixels::new(call.strided_slice::<f32>(0)?, count, width, pitch);
    let exec = call.exec;
    let scale = over_rows::<f32>(call, 1, dims, last)?;
    let bias = if has_bias { Some(over_rows::<f32>(call, 2, dims, last)?) } else { None };
    let y = PixelsMut::new(call.output_slice::<f32>(0, dims)?, count, width, width);
    pixels::layer_norm(exec, &scale, bias.as_deref(), epsilon, Some(x), y)?;
    Ok(())
}

impl<T> LayerNormalization<T> {
    /// Whether the mean (1) or the inverse deviation (2) has a reader.
    fn has_statistic(&self, call: &Call<'_>, index: usize) -> bool {
        call.has_output(index) && self.sum.is_none_or(|sum| sum.output != index)
    }
}

impl<T: Element + FloatLoops> Kernel for LayerNormalization<T> {
    fn memory(&self) -> MemoryRules {
        let pitched =
            if self.takes_pitch { Inputs::from_positions(&[0]) } else { Inputs::default() };
        MemoryRules { pitched, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        if self.takes_pitch && !call.tensor(0)?.is_contiguous() {
            return normalize_pixels(call, &dims, self.epsilon, self.has_bias);
        }
        let axis = normalize_axis(self.axis, dims.len())?;
        let rows = [product(&dims[..axis]), product(&dims[axis..])];
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let scale = over_rows::<T>(call, 1, &dims, axis)?;
        let bias = if self.has_bias { Some(over_rows::<T>(call, 2, &dims, axis)?) } else { None };
        let residual = residual::<T>(self.sum, call)?;
        let statistic = |wanted: bool| wanted.then(|| call.scratch::<f32>(rows[0])).transpose();
        let (mut means, mut inverses) =
            (statistic(self.has_statistic(call, 1))?, statistic(self.has_statistic(call, 2))?);
        let (y, sum) = normalized_and_sum::<T>(self.sum, call, &dims)?;
        T::layer_norm(
            exec,
            rows.into(),
            RowInputs { x, residual, scale: &scale, epsilon: self.epsilon },
            bias.as_deref(),
            RowOutputs {
                y,
                sum,
                means: means.as_deref_mut(),
                inverse_deviations: inverses.as_deref_mut(),
            },
        )?;
        let mut reduced = dims;
        reduced[axis..].fill(1);
        for (index, statistic) in [(1, means), (2, inverses)] {
            if let Some(statistic) = statistic {
                narrow(call, index, self.stash, &reduced, &statistic)?;
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let of = describe_sum(self.sum);
        format!("layer normalization of {of}{}", T::DATA_TYPE)
    }
}

struct RootMeanSquare<T> {
    axis: i64,
    epsilon: f64,
    sum: Option<Sum>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for RootMeanSquare<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let axis = normalize_axis(self.axis, dims.len())?;
        let rows = [product(&dims[..axis]), product(&dims[axis..])];
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let scale = over_rows::<T>(call, 1, &dims, axis)?;
        let residual = residual::<T>(self.sum, call)?;
        let (y, sum) = normalized_and_sum::<T>(self.sum, call, &dims)?;
        T::rms_norm(
            exec,
            rows.into(),
            RowInputs { x, residual, scale: &scale, epsilon: self.epsilon },
            y,
            sum,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        let of = describe_sum(self.sum);
        format!("root-mean-square normalization of {of}{}", T::DATA_TYPE)
    }
}

/// Normalization whose output has the type of the scale, which differs from that of the input.
/// Computed in double precision.
struct MixedRootMeanSquare {
    axis: i64,
    epsilon: f64,
    scale: DataType,
}

impl Kernel for MixedRootMeanSquare {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let axis = normalize_axis(self.axis, dims.len())?;
        let rows = [product(&dims[..axis]), product(&dims[axis..])];
        let exec = call.exec;
        let (x, scale) = (widen_input(call, 0)?, widen_input(call, 1)?);
        let scale = broadcast(call, 1, &scale, call.tensor(1)?.dims(), &dims, axis)?;
        let mut y = call.scratch::<f64>(x.len())?;
        f64::rms_norm(
            exec,
            rows.into(),
            RowInputs { x: &x, residual: None, scale: &scale, epsilon: self.epsilon },
            &mut y,
            None,
        )?;
        let mut output = call.output(0, self.scale, &dims)?;
        Ok(cast_slices(
            DataType::Double,
            bytemuck::cast_slice(&y),
            self.scale,
            output.bytes_mut(),
            y.len(),
            CastOptions::default(),
        )?)
    }

    fn describe(&self) -> String {
        format!("root-mean-square normalization to {}", self.scale)
    }
}

struct GroupNormalization<T> {
    groups: usize,
    epsilon: f64,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for GroupNormalization<T>
where
    T::Real: Pod,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let [_, channels, spatial @ ..] = &dims[..] else {
            fail!("the input must have batch and channels, not dimensions {:?}", &dims[..]);
        };
        if channels % self.groups != 0 {
            fail!("{channels} channels cannot be divided into {} groups", self.groups);
        }
        let (scale, shift) =
            (per_channel::<T>(call, 1, *channels)?, per_channel::<T>(call, 2, *channels)?);
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let inner = product(spatial);
        call.reserve_slices::<T>(2 * (channels / self.groups) * inner)?;
        let y = call.output_slice::<T>(0, &dims)?;
        if y.is_empty() {
            return Ok(());
        }
        T::normalize_rows(
            exec,
            RowNormalization {
                statistics: Statistics::MeanVariance,
                len: channels / self.groups * inner,
                epsilon: self.epsilon,
                affine: Affine::Groups(inner, &scale, &shift),
            },
            x,
            y,
            None,
            None,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("group normalization of {}", T::DATA_TYPE)
    }
}

struct LpNormalization<T> {
    axis: i64,
    norm: Norm,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for LpNormalization<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let dims: Dims = call.tensor(0)?.dims().into();
        let sizes = split_at_axis(&dims, self.axis)?;
        call.reserve_slices::<T>(2 * sizes[1] * sizes[2])?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::lp_norm(exec, self.norm, sizes.into(), x, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} normalization of {}", self.norm, T::DATA_TYPE)
    }
}

struct MeanVariance {
    axes: Vec<i64>,
}

/// Axes that statistics are computed over.
struct Reduced {
    /// Whether each axis is reduced. Longer than the rank.
    marked: [bool; MAX_RANK],
    /// Dimensions of the statistics.
    dims: Dims,
}

impl MeanVariance {
    fn reduce_dims(&self, dims: &[usize]) -> Result<Reduced, KernelError> {
        let mut marked = [false; MAX_RANK];
        for axis in &self.axes {
            let axis = normalize_axis(*axis, dims.len())?;
            match marked.get_mut(axis) {
                Some(mark) => *mark = true,
                None => fail!("axis {axis} is beyond rank {MAX_RANK}, the largest supported"),
            }
        }
        let sizes = dims.iter().zip(&marked);
        let dims = sizes.map(|(size, marked)| if *marked { 1 } else { *size }).collect();
        Ok(Reduced { marked, dims })
    }
}

impl Reduced {
    /// Subtracts the mean and divides by the deviation. `statistic` has one element per mean.
    fn normalize<T: Element + Loops>(
        &self,
        exec: &Exec<'_>,
        dims: &[usize],
        x: &[T],
        statistic: &mut [T],
        y: &mut [T],
    ) -> Result<(), KernelError> {
        if y.is_empty() {
            return Ok(());
        }
        let (own, repeated) = (steps(dims, dims)?, steps(&self.dims, dims)?);
        let marked = &self.marked[..dims.len()];
        T::reduce(exec, Reduce::Mean, dims, marked, x, statistic)?;
        T::binary(
            exec,
            Binary::Sub,
            dims,
            Strided::new(x, &own),
            Strided::new(statistic, &repeated),
            y,
        )?;
        // Sums squares of differences to the mean: the difference of two large sums would be
        // inexact.
        T::reduce(exec, Reduce::SumSquare, dims, marked, y, statistic)?;
        let count = (y.len() / statistic.len()) as f64;
        for value in statistic.iter_mut() {
            *value = T::from_f64((value.to_f64() / count).sqrt() + 1e-9);
        }
        T::binary_in_place(
            exec,
            Binary::Div,
            Side::Left,
            dims,
            y,
            Strided::new(statistic, &repeated),
        )?;
        Ok(())
    }
}

struct WideMeanVariance<T> {
    of: MeanVariance,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + Loops> Kernel for WideMeanVariance<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let dims: Dims = call.tensor(0)?.dims().into();
        let reduced = self.of.reduce_dims(&dims)?;
        let mut statistic = call.scratch::<T>(product(&reduced.dims))?;
        let y = call.output_slice::<T>(0, &dims)?;
        reduced.normalize(exec, &dims, x, &mut statistic, y)
    }
}

/// Normalization of 16-bit floats, computed in `f32`.
struct NarrowMeanVariance(MeanVariance);

impl Kernel for NarrowMeanVariance {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (elem, dims) = (call.tensor(0)?.data_type(), Dims::from(call.tensor(0)?.dims()));
        let x = widen(call, call.tensor(0)?)?;
        let mut y = call.scratch::<f32>(x.len())?;
        let reduced = self.0.reduce_dims(&dims)?;
        let mut statistic = call.scratch::<f32>(product(&reduced.dims))?;
        reduced.normalize(call.exec, &dims, &x, &mut statistic, &mut y)?;
        narrow(call, 0, elem, &dims, &y)
    }
}

fn product(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// Broadcasts an input to the elements of an axis and those after it: one row, or one row per row
/// of the output if they differ.
fn over_rows<'a, T: Element + Number>(
    call: &Call<'a>,
    index: usize,
    dims: &[usize],
    axis: usize,
) -> Result<Contents<'a, T>, KernelError> {
    let (values, own) = (call.slice::<T>(index)?, call.tensor(index)?.dims());
    broadcast(call, index, values, own, dims, axis)
}

fn broadcast<'a, T: Element + Number>(
    call: &Call<'_>,
    index: usize,
    values: &'a [T],
    own: &[usize],
    dims: &[usize],
    axis: usize,
) -> Result<Contents<'a, T>, KernelError> {
    let fits = own.len() <= dims.len() && {
        let pairs = own.iter().rev().zip(dims.iter().rev());
        pairs.into_iter().all(|(own, size)| own == size || *own == 1)
    };
    if !fits {
        fail!("input {index} has dimensions {own:?}, which do not broadcast to {dims:?}");
    }
    if dims.len() > MAX_RANK {
        fail!("the rank is {}; at most {MAX_RANK} is supported", dims.len());
    }
    // Leading axes of size 1 have no effect.
    let first = own.iter().position(|size| *size != 1).unwrap_or(own.len());
    let (skipped, own) = (dims.len() - (own.len() - first), &own[first..]);
    let target = if skipped < axis { dims } else { &dims[axis..] };
    if values.len() == product(target) {
        return Ok(Contents::Borrowed(values));
    }
    let mut all = call.scratch::<T>(product(target))?;
    expand(call.exec.pool, own, target, values, &mut all)?;
    Ok(Contents::Made(all))
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Float, Int};
    use sardonyx_tensor::Tensor;

    use super::*;
    use crate::ops::testing::{run, tensor};

    #[test]
    fn layers() {
        let x = tensor(&[2, 2, 2], &[1f32, 3.0, 5.0, 9.0, -1.0, 1.0, 2.0, 2.0]);
        let of_last = tensor(&[2], &[2f32, 10.0]);
        let exact = [("epsilon", Float(0.0))];
        let found =
            run("LayerNormalization", &exact, &[Some(&x), Some(&of_last), Some(&of_last)], 3)
                .unwrap();
        let expected = [0f32, 20.0, 0.0, 20.0, 0.0, 20.0];
        assert_eq!(found[0].to_vec::<f32>().unwrap()[..6], expected);
        // Two equal elements without an epsilon have no deviation.
        assert!(found[0].to_vec::<f32>().unwrap()[6].is_nan());
        assert_eq!(found[1], tensor(&[2, 2, 1], &[2f32, 7.0, 0.0, 2.0]));
        assert_eq!(found[2], tensor(&[2, 2, 1], &[1f32, 0.5, 1.0, f32::INFINITY]));

        // (axis, dimensions of the scale, its elements, what the output is)
        let rows: [(i64, &[usize], &[f32], [f32; 8]); 4] = [
            (1, &[], &[2.0], [-2.0, 2.0, -2.0, 2.0, -2.0, 2.0, -2.0, 2.0]),
            (1, &[2, 1], &[1.0, 3.0], [-1.0, 1.0, -3.0, 3.0, -1.0, 1.0, -3.0, 3.0]),
            (-2, &[1, 1, 2], &[1.0, 3.0], [-1.0, 3.0, -1.0, 3.0, -1.0, 3.0, -1.0, 3.0]),
            (1, &[2, 1, 1], &[1.0, 3.0], [-1.0, 1.0, -1.0, 1.0, -3.0, 3.0, -3.0, 3.0]),
        ];
        let x = tensor(&[2, 2, 2], &[1f32, 3.0, 1.0, 3.0, -1.0, 1.0, -1.0, 1.0]);
        for (axis, dims, scale, expected) in rows {
            let attributes = [("axis", Int(axis)), exact[0].clone()];
            let inputs = [Some(&x), Some(&tensor(dims, scale))];
            let found = run("LayerNormalization", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 2, 2], &expected), "{axis} {dims:?}");
        }
    }

    #[test]
    fn layers_that_do_not_fit() {
        let of = |dims: &[usize], scale: &[usize], axis| {
            let zeros = |dims: &[usize]| Tensor::zeros(DataType::Float, dims).unwrap();
            let inputs = [Some(&zeros(dims)), Some(&zeros(scale))];
            run("LayerNormalization", &[("axis", Int(axis))], &inputs, 2)
        };
        assert_eq!(
            of(&[2, 3], &[2], -1).unwrap_err(),
            "input 1 has dimensions [2], which do not broadcast to [2, 3]"
        );
        assert_eq!(of(&[2, 3], &[3], 2).unwrap_err(), "axis 2 is out of range for rank 2");
        let nothing = of(&[2, 0], &[0], -1).unwrap();
        assert!(nothing[1].to_vec::<f32>().unwrap().iter().all(|mean| mean.is_nan()));
        assert_eq!(of(&[0, 3], &[3], -1).unwrap()[1].dims(), [0, 1]);
    }

    #[test]
    fn narrow_layers_have_wide_statistics() {
        let half = half::f16::from_f32;
        let x = tensor(&[1, 2], &[half(2.0), half(4.0)]);
        let scale = tensor(&[2], &[half(1.0), half(2.0)]);
        let exact = [("epsilon", Float(0.0))];
        let inputs = [Some(&x), Some(&scale)];
        let found = run("LayerNormalization", &exact, &inputs, 2).unwrap();
        assert_eq!(found[0], tensor(&[1, 2], &[half(-1.0), half(2.0)]));
        assert_eq!(found[1], tensor(&[1, 1], &[3f32]));
        let stash = ("stash_type", Int(16));
        let found = run("LayerNormalization", &[exact[0].clone(), stash], &inputs, 2).unwrap();
        assert_eq!(found[1], tensor(&[1, 1], &[half::bf16::from_f32(3.0)]));
    }

    #[test]
    fn root_mean_squares() {
        let x = tensor(&[2, 2], &[1f32, -7.0, 3.0, 4.0]);
        let exact = [("epsilon", Float(0.0))];
        let scale = tensor(&[2], &[5f32, 10.0]);
        let inputs = [Some(&x), Some(&scale)];
        let found = run("RMSNormalization", &exact, &inputs, 1).unwrap();
        let root = 12.5f32.sqrt();
        let expected = [1.0, -14.0, 15.0 / root, 40.0 / root];
        for (found, expected) in found[0].to_vec::<f32>().unwrap().iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(error <= 2.0 * f32::EPSILON * expected.abs(), "{found} {expected}");
        }
        // All of it at once, with a scale of another type.
        let x = tensor(&[1, 2], &[half::f16::from_f32(1.0), half::f16::from_f32(-7.0)]);
        let axis = [("axis", Int(0)), exact[0].clone()];
        let inputs = [Some(&x), Some(&scale)];
        let found = run("RMSNormalization", &axis, &inputs, 1).unwrap();
        assert_eq!(found[0], tensor(&[1, 2], &[1f32, -14.0]));
    }

    #[test]
    fn groups() {
        let x = tensor(&[1, 4, 2], &[1f32, 3.0, 3.0, 1.0, 5.0, 5.0, 9.0, 9.0]);
        let (scale, bias) =
            (tensor(&[4], &[1f32, 2.0, 3.0, 4.0]), tensor(&[4], &[0f32, 1.0, 0.0, 0.0]));
        let attributes = [("num_groups", Int(2)), ("epsilon", Float(0.0))];
        let inputs = [Some(&x), Some(&scale), Some(&bias)];
        let found = run("GroupNormalization", &attributes, &inputs, 1).unwrap();
        let expected = [-1f32, 1.0, 3.0, -1.0, -3.0, -3.0, 4.0, 4.0];
        assert_eq!(found[0], tensor(&[1, 4, 2], &expected));
        let found = run("GroupNormalization", &[("num_groups", Int(3))], &inputs, 1);
        assert_eq!(found.unwrap_err(), "4 channels cannot be divided into 3 groups");
    }

    #[test]
    fn norms() {
        let x = tensor(&[2, 2], &[3f32, -4.0, 0.0, 0.0]);
        for (axis, p, expected) in [
            (-1, 2, [0.6f32, -0.8, 0.0, 0.0]),
            (-1, 1, [3.0 / 7.0, -4.0 / 7.0, 0.0, 0.0]),
            (0, 2, [1.0, -1.0, 0.0, 0.0]),
        ] {
            let attributes = [("axis", Int(axis)), ("p", Int(p))];
            let found = run("LpNormalization", &attributes, &[Some(&x)], 1).unwrap();
            for (found, expected) in found[0].to_vec::<f32>().unwrap().iter().zip(expected) {
                assert!((found - expected).abs() <= f32::EPSILON, "{found} {expected}");
            }
        }
        let found = run("LpNormalization", &[("p", Int(3))], &[Some(&x)], 1);
        assert_eq!(found.unwrap_err(), "attribute 'p' is 3, not 1 or 2");
    }

    #[test]
    fn means_and_variances() {
        let numbers = [1f32, 10.0, 3.0, 20.0, 1.0, 10.0, 3.0, 20.0];
        let expected = [-1f32, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, 1.0];
        let axes = ("axes", AttrValue::Ints(vec![0, -2].into()));
        for (x, expected) in [
            (tensor(&[2, 2, 2], &numbers), tensor(&[2, 2, 2], &expected)),
            (
                tensor(&[2, 2, 2], &numbers.map(half::f16::from_f32)),
                tensor(&[2, 2, 2], &expected.map(half::f16::from_f32)),
            ),
        ] {
            let attributes = [axes.clone()];
            let found = run("MeanVarianceNormalization", &attributes, &[Some(&x)], 1).unwrap();
            assert_eq!(found[0], expected);
        }
    }
}
