//! Resize: the nearest element, or one pass of weighted sums for each axis that changes.

use bytemuck::Pod;
use sardonyx_kernels::MoveLoops;
use sardonyx_kernels::copy::PickDims;
use sardonyx_kernels::pixels::{self, Pixels};
use sardonyx_kernels::resize::Taps;
use sardonyx_kernels::{Ended, Exec, Loops, Pool, ResizeLoops};
use sardonyx_ops::{Resized, resized};
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, Tensor, TensorView, cast, shape};
use smallvec::{SmallVec, smallvec};

use super::places::{Axis, Blend, Nearest, Transform};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::over_images::over_pixels;
use crate::ops::nn::batch_normalization::widen_input;
use crate::ops::tensor::moves::{Movement, copy_view, move_elements};
use crate::ops::tensor::reshape::axes;
use crate::program::Images;
use crate::scratch::Scratch;

/// Position of the operand.
const REGION: usize = 1;
const SCALES: usize = 2;
const SIZES: usize = 3;

struct Resize {
    elem: DataType,
    transform: Transform,
    method: Method,
    /// Axes that change; `None` for all.
    axes: Option<Vec<i64>>,
    policy: Policy,
    /// Value of outputs whose coordinate is outside of the input.
    outside: f32,
    /// `outside` as an element; `None` for strings.
    outside_element: Option<Tensor>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Method {
    Nearest(Nearest),
    Blend(Blend),
}

/// Policy for sizes that change proportions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Stretch,
    NotLarger,
    NotSmaller,
}

/// Binds `Resize`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let transform = site.string("coordinate_transformation_mode");
    bind_to(site, Transform::new(transform.as_deref())?)
}

/// Binds `Resize` of version 11 with the mode [`FOR_NEAREST`](crate::ops::FOR_NEAREST).
pub(crate) fn bind_for_nearest(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind_to(site, Transform::HalfPixelForNearest)
}

fn bind_to(site: &Site<'_>, transform: Transform) -> Result<Box<dyn Kernel>, BindError> {
    let elem = site.elem(0)?;
    let word = |name: &str| site.string(name);
    let antialias = site.int("antialias").unwrap_or(0) != 0;
    let blend = |cubic: Option<f64>| {
        let exclude_outside = site.int("exclude_outside").unwrap_or(0) != 0;
        Method::Blend(Blend { cubic, antialias, exclude_outside })
    };
    let method = match word("mode").as_deref() {
        Some("nearest") | None if antialias => {
            return Err(BindError::Invalid("antialias requires mode linear or cubic".to_string()));
        }
        Some("nearest") | None => Method::Nearest(Nearest::new(word("nearest_mode").as_deref())?),
        Some("linear") => blend(None),
        Some("cubic") => blend(Some(f64::from(site.float("cubic_coeff_a").unwrap_or(-0.75)))),
        Some(other) => {
            return Err(BindError::Invalid(format!("unknown mode \"{other}\"")));
        }
    };
    if let (Method::Blend(_), DataType::Bool | DataType::String) = (method, elem) {
        return Err(BindError::Unsupported(format!(
            "elements of type {} cannot be interpolated: use mode nearest, or cast to a number first",
            elem.name()
        )));
    }
    let policy = match word("keep_aspect_ratio_policy").as_deref() {
        Some("stretch") | None => Policy::Stretch,
        Some("not_larger") => Policy::NotLarger,
        Some("not_smaller") => Policy::NotSmaller,
        Some(other) => {
            return Err(BindError::Invalid(format!(
                "unknown keep_aspect_ratio_policy \"{other}\""
            )));
        }
    };
    let outside = site.float("extrapolation_value").unwrap_or(0.0);
    let outside_element = element_of(elem, outside)?;
    // An empty list means all axes, as in the reference.
    let axes = site.ints("axes").filter(|axes| !axes.is_empty());
    Ok(Box::new(Resize { elem, transform, method, axes, policy, outside, outside_element }))
}

/// Converts a number to an element, rounded and saturated like interpolated elements; `None` for
/// strings.
fn element_of(elem: DataType, number: f32) -> Result<Option<Tensor>, BindError> {
    // Casting a float to an integer saturates.
    let whole = number.round_ties_even();
    Ok(Some(match elem {
        DataType::String => return Ok(None),
        DataType::Int8 => Tensor::scalar(whole as i8),
        DataType::Int16 => Tensor::scalar(whole as i16),
        DataType::Int32 => Tensor::scalar(whole as i32),
        DataType::Int64 => Tensor::scalar(whole as i64),
        DataType::Uint8 => Tensor::scalar(whole as u8),
        DataType::Uint16 => Tensor::scalar(whole as u16),
        DataType::Uint32 => Tensor::scalar(whole as u32),
        DataType::Uint64 => Tensor::scalar(whole as u64),
        _ => cast(&Tensor::scalar(number), elem, CastOptions::default())?,
    }))
}

/// Moves the axis of channels, which does not change, to the end.
fn pixels_of(mut axes: SmallVec<[Axis; 6]>, dims: &[usize]) -> SmallVec<[Axis; 6]> {
    let mut channels = axes.remove(1);
    if let Some(pitch) = dims.last() {
        (channels.len, channels.out) = (*pitch, *pitch);
    }
    axes.push(channels);
    axes
}

/// Returns the images whose channels certainly do not change.
pub(crate) fn images(site: &Site<'_>) -> Images {
    let mode = site.string("coordinate_transformation_mode");
    let is_cropped = mode.as_deref() == Some("tf_crop_and_resize");
    if !is_cropped && keeps_channels(site) == Some(true) {
        Images::Alike { gain: 0 }
    } else {
        Images::Rows
    }
}

/// Whether the number of channels stays; `None` if that is unknown.
fn keeps_channels(site: &Site<'_>) -> Option<bool> {
    let shape = site.shape(0)?;
    let channels = shape.get(1)?.known()?;
    if let Some(axes) = site.ints("axes").filter(|axes| !axes.is_empty()) {
        let rank = shape.len() as i64;
        return Some(axes.iter().all(|axis| (axis + rank) % rank != 1));
    }
    let scales = site.constant(SCALES).filter(|scales| !scales.is_empty());
    if let Some(scales) = scales.and_then(|scales| scales.to_vec::<f32>().ok()) {
        return Some(scales.get(1) == Some(&1.0));
    }
    let sizes = site.constant(SIZES)?.to_vec::<i64>().ok()?;
    let is_plain = site.string("keep_aspect_ratio_policy").is_none_or(|policy| policy == "stretch");
    Some(is_plain && sizes.get(1) == Some(&channels))
}

impl Kernel for Resize {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let x = call.tensor(0)?.clone();
        let axes = self.axes(call, x.dims())?;
        if call.has_layout(0) {
            if let Method::Nearest(nearest) = self.method
                && let Some(x) = call.pixels(0)?
            {
                return self.pick_pixels(call, x, &axes, nearest);
            }
            return over_pixels(call, |call, x| self.run_on(call, x, pixels_of(axes, x.dims())));
        }
        self.run_on(call, &x, axes)
    }

    fn describe(&self) -> String {
        let method = match self.method {
            Method::Nearest(nearest) => format!("nearest, {nearest:?}"),
            Method::Blend(Blend { cubic: Some(_), .. }) => "cubic".to_string(),
            Method::Blend(_) => "linear".to_string(),
        };
        format!("{method}, {:?}", self.transform).to_lowercase()
    }
}

impl Resize {
    fn run_on(
        &self,
        call: &mut Call<'_>,
        x: &TensorView<'_>,
        axes: SmallVec<[Axis; 6]>,
    ) -> Result<(), KernelError> {
        let dims: Dims = axes.iter().map(|axis| axis.out).collect();
        if is_empty(&axes)? {
            let moved = Picked { dims: &dims, axes: &axes, tables: &[] };
            return move_elements(call, 0, &dims, std::slice::from_ref(x), &moved);
        }
        match (self.method, self.elem) {
            (Method::Nearest(nearest), _) => self.pick(call, x, &axes, &dims, nearest),
            (Method::Blend(blend), DataType::Float) => self.blend::<f32>(call, x, axes, &blend),
            (Method::Blend(blend), DataType::Double) => self.blend::<f64>(call, x, axes, &blend),
            (Method::Blend(blend), DataType::Complex64) => {
                self.blend_parts::<f32>(call, x, axes, &blend)
            }
            (Method::Blend(blend), DataType::Complex128) => {
                self.blend_parts::<f64>(call, x, axes, &blend)
            }
            (Method::Blend(blend), _) => self.blend_converted(call, x, axes, &blend),
        }
    }

    /// Computes the new size and scale of each axis.
    fn axes(&self, call: &Call<'_>, dims: &[usize]) -> Result<SmallVec<[Axis; 6]>, KernelError> {
        let whole = |len: &usize| Axis {
            len: *len,
            out: *len,
            scale: 1.0,
            stored: 1.0,
            region: (0.0, 1.0),
        };
        let mut all: SmallVec<[Axis; 6]> = dims.iter().map(whole).collect();
        let changed = match &self.axes {
            Some(list) => axes(list, dims.len())?,
            None => (0..dims.len()).collect(),
        };
        let given = |index: usize| -> Result<bool, KernelError> {
            Ok(call.maybe_tensor(index)?.is_some_and(|view| !view.is_empty()))
        };
        let demand = |name: &str, found: usize, per_axis: usize| {
            if found != changed.len() * per_axis {
                fail!("{name} has {found} elements for {} axes", changed.len());
            }
            Ok::<(), KernelError>(())
        };
        match (given(SCALES)?, given(SIZES)?) {
            (true, false) => {
                let scales = call.slice::<f32>(SCALES)?;
                demand("scales", scales.len(), 1)?;
                for (axis, scale) in changed.iter().zip(scales) {
                    all[*axis].enlarge(*scale)?;
                }
            }
            (false, true) => {
                let sizes = call.ints(SIZES)?;
                demand("sizes", sizes.len(), 1)?;
                self.fit(&mut all, &changed, &sizes)?;
            }
            // Without axes, no axis changes.
            (false, false) if changed.is_empty() => {}
            (true, true) => fail!("both scales and sizes are given: remove one of them"),
            (false, false) => fail!("neither scales nor sizes are given"),
        }
        if self.transform == Transform::CropAndResize {
            if !given(REGION)? && !changed.is_empty() {
                fail!(
                    "tf_crop_and_resize requires the input roi, with a start and an end for each axis"
                );
            }
            let region = widen_input(call, REGION)?;
            demand("roi", region.len(), 2)?;
            if let Some(number) = region.iter().find(|number| !number.is_finite()) {
                fail!("roi has the element {number}: starts and ends must be finite");
            }
            let (starts, ends) = region.split_at(changed.len());
            for (index, axis) in changed.iter().enumerate() {
                all[*axis].region = (starts[index], ends[index]);
            }
        }
        Ok(all)
    }

    /// Sets the sizes of axes as requested, or to keep proportions.
    fn fit(&self, all: &mut [Axis], changed: &[usize], sizes: &[i64]) -> Result<(), KernelError> {
        for (axis, size) in changed.iter().zip(sizes) {
            let Ok(size) = usize::try_from(*size) else {
                fail!("a size must not be negative, not {size} for axis {axis}");
            };
            let axis = &mut all[*axis];
            let scale = size as f64 / axis.len as f64;
            (axis.out, axis.scale, axis.stored) = (size, scale, scale);
        }
        let scales = changed.iter().map(|axis| all[*axis].scale);
        let scale = match self.policy {
            // A single axis has no proportions.
            _ if changed.len() < 2 => None,
            Policy::Stretch => None,
            Policy::NotLarger => scales.reduce(f64::min),
            Policy::NotSmaller => scales.reduce(f64::max),
        };
        if let Some(scale) = scale {
            for axis in changed {
                let axis = &mut all[*axis];
                axis.resize(scale, (scale * axis.len as f64).round())?;
            }
        }
        Ok(())
    }

    /// Takes nearest elements of any type.
    fn pick(
        &self,
        call: &mut Call<'_>,
        x: &TensorView<'_>,
        axes: &[Axis],
        dims: &[usize],
        nearest: Nearest,
    ) -> Result<(), KernelError> {
        let tables = self.tables(call, axes.iter(), nearest)?;
        let mut sources: SmallVec<[TensorView<'_>; 2]> = smallvec![x.clone()];
        sources.extend(self.outside_element.as_ref().map(Tensor::view));
        move_elements(call, 0, dims, &sources, &Picked { dims, axes, tables: &tables })
    }

    /// Takes nearest pixels of images with channels last, whose channels do not change.
    fn pick_pixels(
        &self,
        call: &mut Call<'_>,
        x: Pixels<'_>,
        axes: &[Axis],
        nearest: Nearest,
    ) -> Result<(), KernelError> {
        let dims: Dims = axes.iter().map(|axis| axis.out).collect();
        let moving =
            || axes.iter().enumerate().filter(|(axis, _)| *axis != 1).map(|(_, axis)| axis);
        let from: Dims = moving().map(|axis| axis.len).collect();
        let to: Dims = moving().map(|axis| axis.out).collect();
        let exec = call.exec;
        if is_empty(axes)? {
            call.output_pixels(0, &dims)?;
            return Ok(());
        }
        let tables = self.tables(call, moving(), nearest)?;
        pixels::pick(
            exec,
            PickDims { input: &from, output: &to },
            &tables,
            x,
            call.output_pixels(0, &dims)?,
        )?;
        Ok(())
    }

    /// Returns the indices of the nearest elements along each axis, concatenated.
    fn tables<'a>(
        &self,
        call: &Call<'_>,
        axes: impl Iterator<Item = &'a Axis> + Clone,
        nearest: Nearest,
    ) -> Result<Scratch<usize>, KernelError> {
        let outs: Dims = axes.clone().map(|axis| axis.out).collect();
        let mut tables = call.scratch::<usize>(total(&outs)?)?;
        let mut rest = &mut tables[..];
        for axis in axes {
            let (table, after) = std::mem::take(&mut rest).split_at_mut(axis.out);
            axis.indices(self.transform, nearest, table);
            rest = after;
        }
        Ok(tables)
    }

    /// Interpolates elements of a type that sums are computed in.
    fn blend<R: ResizeLoops + Element + Pod>(
        &self,
        call: &mut Call<'_>,
        x: &TensorView<'_>,
        axes: SmallVec<[Axis; 6]>,
        blend: &Blend,
    ) -> Result<(), KernelError> {
        let dims: Dims = axes.iter().map(|axis| axis.out).collect();
        let mut passes = Passes::<R>::new(self, call, &axes, blend, 1)?;
        if passes.list.is_empty() {
            return copy_view(call, 0, x, &dims);
        }
        let (exec, x) = (call.exec, x.as_slice::<R>()?);
        let y = call.output_slice::<R>(0, &dims)?;
        passes.run(exec, x, y)?;
        Ok(())
    }

    /// Interpolates pairs of numbers, each part by itself.
    fn blend_parts<R: ResizeLoops + Pod>(
        &self,
        call: &mut Call<'_>,
        x: &TensorView<'_>,
        axes: SmallVec<[Axis; 6]>,
        blend: &Blend,
    ) -> Result<(), KernelError> {
        let dims: Dims = axes.iter().map(|axis| axis.out).collect();
        let mut passes = Passes::<R>::new(self, call, &axes, blend, 2)?;
        if passes.list.is_empty() {
            return copy_view(call, 0, x, &dims);
        }
        let Some(bytes) = x.contiguous_bytes() else {
            fail!("the input is not dense");
        };
        let exec = call.exec;
        let mut parts = call.scratch::<R>(bytes.len() / size_of::<R>())?;
        bytemuck::cast_slice_mut::<R, u8>(&mut parts).copy_from_slice(bytes);
        let mut made = call.scratch::<R>(2 * shape::elems(&dims)?)?;
        passes.run(exec, &parts, &mut made)?;
        let mut output = call.output(0, self.elem, &dims)?;
        output.bytes_mut().copy_from_slice(bytemuck::cast_slice(&made));
        Ok(())
    }

    /// Interpolates elements in a wider type.
    fn blend_converted(
        &self,
        call: &mut Call<'_>,
        x: &TensorView<'_>,
        axes: SmallVec<[Axis; 6]>,
        blend: &Blend,
    ) -> Result<(), KernelError> {
        match self.elem {
            DataType::Float16 => self.blend_as::<half::f16>(call, x, axes, blend),
            DataType::Bfloat16 => self.blend_as::<half::bf16>(call, x, axes, blend),
            DataType::Int8 => self.blend_as::<i8>(call, x, axes, blend),
            DataType::Int16 => self.blend_as::<i16>(call, x, axes, blend),
            DataType::Int32 => self.blend_as::<i32>(call, x, axes, blend),
            DataType::Int64 => self.blend_as::<i64>(call, x, axes, blend),
            DataType::Uint8 => self.blend_as::<u8>(call, x, axes, blend),
            DataType::Uint16 => self.blend_as::<u16>(call, x, axes, blend),
            DataType::Uint32 => self.blend_as::<u32>(call, x, axes, blend),
            DataType::Uint64 => self.blend_as::<u64>(call, x, axes, blend),
            other => fail!("type not implemented: {}", other.name()),
        }
    }

    fn blend_as<T: Element + Loops>(
        &self,
        call: &mut Call<'_>,
        x: &TensorView<'_>,
        axes: SmallVec<[Axis; 6]>,
        blend: &Blend,
    ) -> Result<(), KernelError>
    where
        T::Real: ResizeLoops + Pod,
    {
        let dims: Dims = axes.iter().map(|axis| axis.out).collect();
        let mut passes = Passes::<T::Real>::new(self, call, &axes, blend, 1)?;
        if passes.list.is_empty() {
            return copy_view(call, 0, x, &dims);
        }
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let mut reals = call.scratch::<T::Real>(x.len())?;
        T::to_reals(exec, x, &mut reals)?;
        let mut made = call.scratch::<T::Real>(shape::elems(&dims)?)?;
        passes.run(exec, &reals, &mut made)?;
        T::from_reals(exec, &made, call.output_slice::<T>(0, &dims)?)?;
        Ok(())
    }
}

impl Axis {
    /// Applies a scale factor of the input.
    fn enlarge(&mut self, scale: f32) -> Result<(), KernelError> {
        if !(scale > 0.0 && scale.is_finite()) {
            fail!("a scale must be positive, not {scale:?}");
        }
        let Resized { size, scale: meant } = resized(self.len, scale);
        self.resize(meant, size)?;
        self.stored = f64::from(scale);
        Ok(())
    }

    fn resize(&mut self, scale: f64, size: f64) -> Result<(), KernelError> {
        if size.is_nan() || size >= isize::MAX as f64 {
            fail!(
                "a scale of {scale:?} gives {size:?} instead of {} elements, which is too many",
                self.len
            );
        }
        (self.scale, self.stored, self.out) = (scale, scale, size as usize);
        Ok(())
    }
}

/// Whether the output is empty. Fails if an empty axis would grow.
fn is_empty(axes: &[Axis]) -> Result<bool, KernelError> {
    let outs: Dims = axes.iter().map(|axis| axis.out).collect();
    let is_empty = shape::elems(&outs)? == 0;
    if let Some(axis) = axes.iter().position(|axis| axis.len == 0).filter(|_| !is_empty) {
        fail!("axis {axis} is empty and cannot be resized to {}", outs[axis]);
    }
    Ok(is_empty)
}

/// Adds up sizes.
fn total(dims: &[usize]) -> Result<usize, KernelError> {
    match dims.iter().try_fold(0usize, |sum, dim| sum.checked_add(*dim)) {
        Some(total) => Ok(total),
        None => fail!("the sizes {dims:?} are too large"),
    }
}

/// Selects elements by a table for each axis.
struct Picked<'a> {
    dims: &'a [usize],
    axes: &'a [Axis],
    tables: &'a [usize],
}

impl Picked<'_> {
    /// Returns the number of axes before the trailing ones that do not change.
    fn moving(&self) -> usize {
        let (mut end, mut moving) = (self.tables.len(), self.axes.len());
        for axis in self.axes.iter().rev() {
            let table = &self.tables[end - axis.out..end];
            if axis.len != axis.out || !table.iter().copied().eq(0..axis.out) {
                break;
            }
            (end, moving) = (end - axis.out, moving - 1);
        }
        moving
    }
}

impl Movement for Picked<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        let moving = self.moving();
        let value = sources.get(1).map_or(T::default(), |value| value[0]);
        let dims: Dims = self.axes[..moving].iter().map(|axis| axis.len).collect();
        let run = self.dims[moving..].iter().product();
        let tables = &self.tables[..self.dims[..moving].iter().sum()];
        let dims = PickDims { input: &dims, output: &self.dims[..moving] };
        T::pick(pool, dims, run, tables, value, sources[0], out)?;
        Ok(())
    }
}

/// Interpolation passes, one for each axis that changes.
struct Passes<R> {
    list: SmallVec<[AxisPass<R>; 4]>,
    /// Intermediate results between two passes.
    between: [Scratch<R>; 2],
}

struct AxisPass<R> {
    /// Numbers of elements before the axis, on it, and after it.
    dims: [usize; 3],
    first: Scratch<usize>,
    count: Scratch<usize>,
    weights: Scratch<R>,
    stride: usize,
    outside: R,
}

impl<R: ResizeLoops + Pod> Passes<R> {
    /// Plans the passes for elements of `parts` numbers each.
    fn new(
        resize: &Resize,
        call: &Call<'_>,
        axes: &[Axis],
        blend: &Blend,
        parts: usize,
    ) -> Result<Passes<R>, KernelError> {
        // Shrinking axes come first. Of equal ones the last comes first: its sums run over longer
        // rows, which is faster.
        let mut order: SmallVec<[usize; 6]> = (0..axes.len()).rev().collect();
        let growth = |axis: &usize| axes[*axis].out as f64 / axes[*axis].len as f64;
        // A stable sort of a few numbers that does not allocate.
        for sorted in 1..order.len() {
            let mut at = sorted;
            while at > 0 && growth(&order[at]) < growth(&order[at - 1]) {
                order.swap(at, at - 1);
                at -= 1;
            }
        }
        let mut dims: Dims = axes.iter().map(|axis| axis.len).collect();
        let mut list: SmallVec<[AxisPass<R>; 4]> = SmallVec::new();
        for index in order {
            let around = [
                shape::elems(&dims[..index])?,
                dims[index],
                shape::elems(&dims[index + 1..])?.saturating_mul(parts),
            ];
            if let Some(pass) = AxisPass::new(resize, call, &axes[index], blend, around)? {
                list.push(pass);
                dims[index] = axes[index].out;
            }
        }
        let mut most = 0;
        for pass in list.iter().rev().skip(1).rev() {
            let [outer, _, inner] = pass.dims;
            most = most.max(shape::elems(&[outer, pass.first.len(), inner])?);
        }
        let second = if list.len() > 2 { most } else { 0 };
        Ok(Passes { list, between: [call.scratch(most)?, call.scratch(second)?] })
    }

    /// Runs the passes, at least one.
    fn run(&mut self, exec: &Exec<'_>, x: &[R], y: &mut [R]) -> Result<(), Ended> {
        let [mut next, mut last] = self.between.each_mut().map(|between| &mut between[..]);
        let (end, mut len) = (self.list.len() - 1, 0);
        for (index, pass) in self.list.iter().enumerate() {
            let made = pass.dims[0] * pass.first.len() * pass.dims[2];
            let from = if index == 0 { x } else { &last[..len] };
            let to = if index == end { &mut *y } else { &mut next[..made] };
            R::along_axis(exec, pass.dims.into(), &pass.taps(), from, to)?;
            std::mem::swap(&mut next, &mut last);
            len = made;
        }
        Ok(())
    }
}

impl<R: ResizeLoops + Pod> AxisPass<R> {
    /// Plans the pass along one axis; `None` if no element moves.
    fn new(
        resize: &Resize,
        call: &Call<'_>,
        axis: &Axis,
        blend: &Blend,
        dims: [usize; 3],
    ) -> Result<Option<AxisPass<R>>, KernelError> {
        let transform = resize.transform;
        let is_cropped = transform == Transform::CropAndResize && axis.region != (0.0, 1.0);
        if axis.len == axis.out && axis.scale == 1.0 && !is_cropped {
            return Ok(None);
        }
        let stride = axis.most_inputs(blend);
        let mut sums = call.scratch::<f64>(stride)?;
        let (mut first, mut count) =
            (call.scratch::<usize>(axis.out)?, call.scratch::<usize>(axis.out)?);
        let mut weights = call.scratch::<R>(axis.out.saturating_mul(stride))?;
        for (at, weights) in weights.chunks_exact_mut(stride.max(1)).enumerate() {
            (first[at], count[at]) = axis.blend(transform, blend, at, &mut sums);
            for (weight, sum) in weights.iter_mut().zip(&sums[..count[at]]) {
                *weight = R::from_f64(*sum);
            }
        }
        let outside = match transform {
            Transform::CropAndResize => R::from_f64(f64::from(resize.outside)),
            _ => R::ZERO,
        };
        Ok(Some(AxisPass { dims, first, count, weights, stride, outside }))
    }

    fn taps(&self) -> Taps<'_, R> {
        let AxisPass { first, count, weights, stride, outside, .. } = self;
        Taps { first, count, weights, stride: *stride, outside: *outside }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Float, Int, Ints};
    use sardonyx_tensor::{Bool8, StringArray, Tensor};

    use crate::ops::testing::{run, tensor};

    type ResizeAttributes<'a> = &'a [(&'static str, AttrValue<'static>)];

    fn word(word: &'static str) -> AttrValue<'static> {
        AttrValue::from(word)
    }

    fn resize_by(
        attributes: ResizeAttributes<'_>,
        x: &Tensor,
        scales: &[f32],
    ) -> Result<Tensor, String> {
        let scales = tensor(&[scales.len()], scales);
        let found = run("Resize", attributes, &[Some(x), None, Some(&scales)], 1);
        found.map(|mut found| found.remove(0))
    }

    fn resize_to(
        attributes: ResizeAttributes<'_>,
        x: &Tensor,
        sizes: &[i64],
    ) -> Result<Tensor, String> {
        let sizes = tensor(&[sizes.len()], sizes);
        let found = run("Resize", attributes, &[Some(x), None, None, Some(&sizes)], 1);
        found.map(|mut found| found.remove(0))
    }

    #[test]
    fn the_nearest_element_of_every_type() {
        let floor = [
            ("nearest_mode", word("floor")),
            ("coordinate_transformation_mode", word("asymmetric")),
        ];
        macro_rules! check {
            ($($one:expr, $two:expr, $three:expr;)*) => {$({
                let x = tensor(&[3], &[$one, $two, $three]);
                let expected = tensor(&[6], &[$one, $one, $two, $two, $three, $three]);
                assert!(resize_by(&floor, &x, &[2.0]).unwrap().bit_eq(&expected));
            })*};
        }
        check! {
            1f32, 2f32, 3f32; 1f64, 2f64, 3f64; 1i8, 2i8, 3i8; 1u16, 2u16, 3u16; 1i64, 2i64, i64::MAX;
            Bool8(1), Bool8(0), Bool8(1); half::f16::ONE, half::f16::MAX, half::f16::ZERO;
        }
        let strings = |texts: &[&str]| {
            Tensor::from_strings([texts.len()], texts.iter().collect::<StringArray>()).unwrap()
        };
        let found = resize_by(&floor, &strings(&["a", "b"]), &[1.5]).unwrap();
        assert!(found.bit_eq(&strings(&["a", "a", "b"])));
    }

    #[test]
    fn roundings_of_a_place_between_two() {
        // Places 0.5 and 2.5.
        let x = tensor(&[4], &[1f32, 2.0, 3.0, 4.0]);
        for (mode, expected) in [
            ("round_prefer_floor", [1f32, 3.0]),
            ("round_prefer_ceil", [2.0, 4.0]),
            ("floor", [1.0, 3.0]),
            ("ceil", [2.0, 4.0]),
        ] {
            let found = resize_by(&[("nearest_mode", word(mode))], &x, &[0.5]).unwrap();
            assert!(found.bit_eq(&tensor(&[2], &expected)), "{mode}: {found:?}");
        }
    }

    #[test]
    fn linear_by_coordinates() {
        let x = tensor(&[1, 4], &[1f32, 2.0, 3.0, 4.0]);
        for (mode, expected) in [
            ("half_pixel", [1.5f32, 3.5]),
            ("half_pixel_symmetric", [1.5, 3.5]),
            ("pytorch_half_pixel", [1.5, 3.5]),
            ("align_corners", [1.0, 4.0]),
            ("asymmetric", [1.0, 3.0]),
        ] {
            let given = [("mode", word("linear")), ("coordinate_transformation_mode", word(mode))];
            let found = resize_by(&given, &x, &[1.0, 0.5]).unwrap();
            assert!(found.bit_eq(&tensor(&[1, 2], &expected)), "{mode}: {found:?}");
        }
    }

    #[test]
    fn integers_pairs_and_narrow_floats_between_elements() {
        let linear = [("mode", word("linear")), ("axes", Ints(vec![-1].into()))];
        let x = tensor(&[1, 2], &[0u8, 255]);
        let found = resize_by(&linear, &x, &[2.0]).unwrap();
        assert!(found.bit_eq(&tensor(&[1, 4], &[0u8, 64, 191, 255])), "{found:?}");
        let x = tensor(&[1, 2], &[half::f16::ZERO, half::f16::ONE]);
        let found = resize_by(&linear, &x, &[2.0]).unwrap();
        let expected = [0.0, 0.25, 0.75, 1.0].map(half::f16::from_f32);
        assert!(found.bit_eq(&tensor(&[1, 4], &expected)), "{found:?}");
        // More is not more than the largest number.
        let cubic = [("mode", word("cubic"))];
        let found = resize_by(&cubic, &tensor(&[4], &[0i8, 0, 127, 127]), &[2.0]).unwrap();
        assert_eq!(found.to_vec::<i8>().unwrap().iter().max(), Some(&127));
        let found = resize_by(&linear, &tensor(&[2], &[Bool8(1), Bool8(0)]), &[2.0]).unwrap_err();
        assert!(found.contains("mode nearest"), "{found}");
    }

    #[test]
    fn sizes_keep_proportions() {
        let x = tensor(&[2, 4], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        for (policy, expected) in
            [("stretch", [4, 4]), ("not_larger", [2, 4]), ("not_smaller", [4, 8])]
        {
            let found =
                resize_to(&[("keep_aspect_ratio_policy", word(policy))], &x, &[4, 4]).unwrap();
            assert_eq!(found.dims(), expected, "{policy}");
        }
    }

    #[test]
    fn regions_are_cut_out() {
        let x = tensor(&[3], &[1f32, 2.0, 3.0]);
        let (roi, sizes) = (tensor(&[2], &[0.5f32, 1.5]), tensor(&[1], &[3i64]));
        for (mode, expected) in [("nearest", [2f32, 3.0, -1.0]), ("linear", [2.0, 3.0, -1.0])] {
            let given = [
                ("mode", word(mode)),
                ("coordinate_transformation_mode", word("tf_crop_and_resize")),
                ("extrapolation_value", Float(-1.0)),
            ];
            let found = run("Resize", &given, &[Some(&x), Some(&roi), None, Some(&sizes)], 1);
            assert!(found.unwrap()[0].bit_eq(&tensor(&[3], &expected)), "{mode}");
            let found = run("Resize", &given, &[Some(&x), None, None, Some(&sizes)], 1);
            assert!(found.unwrap_err().contains("requires the input roi"));
        }
    }

    #[test]
    fn several_axes_in_several_passes() {
        // A plane stays a plane inside, whatever the order of the axes.
        let value = |z: f64, y: f64, x: f64| 100.0 * z + 10.0 * y + x;
        let plane = (0..24).map(|i| value((i / 8) as f64, (i / 2 % 4) as f64, (i % 2) as f64));
        let x = tensor(&[3, 4, 2], &plane.collect::<Vec<f64>>());
        for mode in ["linear", "cubic"] {
            let given = [
                ("mode", word(mode)),
                ("coordinate_transformation_mode", word("align_corners")),
                ("cubic_coeff_a", Float(-0.5)),
            ];
            let found = resize_to(&given, &x, &[5, 2, 3]).unwrap();
            let found = found.to_vec::<f64>().unwrap();
            // Corners stay where they are.
            assert!((found[0] - value(0.0, 0.0, 0.0)).abs() < 1e-9, "{mode}");
            assert!((found[29] - value(2.0, 3.0, 1.0)).abs() < 1e-9, "{mode}");
            if mode == "linear" {
                let middle = found[(2 * 2 + 1) * 3 + 1];
                assert!((middle - value(1.0, 3.0, 0.5)).abs() < 1e-9, "{middle}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let x = tensor(&[2, 2], &[1f32, 2.0, 3.0, 4.0]);
        for (found, expected) in [
            (resize_by(&[], &x, &[2.0]), "scales has 1 elements for 2 axes"),
            (resize_by(&[], &x, &[2.0, -1.0]), "a scale must be positive, not -1.0"),
            (resize_by(&[], &x, &[2.0, f32::NAN]), "a scale must be positive, not NaN"),
            (resize_by(&[], &x, &[3e38, 3e38]), "too many"),
            (resize_to(&[], &x, &[2, -2]), "a size must not be negative, not -2 for axis 1"),
            (resize_by(&[("mode", word("best"))], &x, &[1.0, 1.0]), "unknown mode \"best\""),
            (resize_by(&[("antialias", Int(1))], &x, &[1.0, 1.0]), "mode linear or cubic"),
        ] {
            let found = found.unwrap_err();
            assert!(found.contains(expected), "{found}");
        }
        let empty = tensor(&[0], &[0f32; 0]);
        let refused = resize_to(&[], &empty, &[2]).unwrap_err();
        assert_eq!(refused, "axis 0 is empty and cannot be resized to 2");
        assert_eq!(resize_to(&[], &x, &[0, 7]).unwrap().dims(), [0, 7]);
    }
}
