//! Concat: joins tensors along one axis.

use sardonyx_kernels::copy::{StridedMut, StridedRef};
use sardonyx_kernels::{Ended, MoveLoops, Pool};
use sardonyx_tensor::{DataType, Dims, TensorView, ViewData, shape, shape::normalize_axis};
use smallvec::SmallVec;

use super::moves::{MAX_RANK, Movement, copy_images, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Operand, OutputLayout, Site, Target};
use crate::layout::Layout;
use crate::program::{Concat, MoveKind, Op};

/// Lowers `Concat`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::moves(MoveKind::Concat(Concat { axis: site.need_int("axis")? }), site))
}

impl Kernel for Concat {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.operands.iter().any(|operand| matches!(operand, Operand::There(_))) {
            return join_rest(call, self.axis);
        }
        let inputs: SmallVec<[TensorView<'_>; 4]> = (0..call.input_count())
            .map(|index| call.tensor(index).cloned())
            .collect::<Result<_, _>>()?;
        join(call, self.axis, &inputs, "inputs")
    }

    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::ALL, ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        "join".to_string()
    }
}

/// Joins tensors along an axis into the first output. `what` names them in messages.
pub(in crate::ops) fn join(
    call: &mut Call<'_>,
    axis: i64,
    inputs: &[TensorView<'_>],
    what: &str,
) -> Result<(), KernelError> {
    let Some(first) = inputs.first() else { fail!("there are no inputs") };
    let axis = normalize_axis(axis, first.rank())?;
    let mut dims = Dims::from(first.dims());
    for (index, input) in inputs.iter().enumerate().skip(1) {
        let same = |other: usize| other == axis || input.dims()[other] == dims[other];
        if input.rank() != dims.len() || !(0..dims.len()).all(same) {
            fail!(
                "{what} 0 and {index} have shapes {:?} and {:?}, which cannot be concatenated along axis {axis}",
                first.dims(),
                input.dims()
            );
        }
        dims[axis] += input.dims()[axis];
    }
    let laid = match call.targets.first() {
        Some(Target::Planned { laid: Some(OutputLayout { layout, .. }), .. }) => {
            Some((*layout).clone())
        }
        _ => None,
    };
    if let Some(layout) = laid {
        return join_into(call, &dims, axis, inputs, &layout);
    }
    if inputs.iter().all(TensorView::is_contiguous)
        || first.data_type().bits().is_none_or(|bits| bits % 8 != 0)
    {
        let outer = dims[..axis].iter().product();
        return move_elements(call, 0, &dims, inputs, &Join { outer });
    }
    join_through_strides(call, &dims, axis, inputs)
}

/// Joins strided inputs, each copied once.
fn join_through_strides(
    call: &mut Call<'_>,
    dims: &Dims,
    axis: usize,
    inputs: &[TensorView<'_>],
) -> Result<(), KernelError> {
    if dims.len() > MAX_RANK {
        fail!("rank {} is not supported; the maximum is {MAX_RANK}", dims.len());
    }
    let pool = call.exec.pool;
    let data_type = inputs[0].data_type();
    let mut output = call.output(0, data_type, dims)?;
    let steps: SmallVec<[usize; 6]> =
        shape::strides(dims).iter().map(|step| *step as usize).collect();
    let mut start = 0;
    for input in inputs {
        let ViewData::Bytes(data) = input.data() else {
            fail!("strings have no bytes to move");
        };
        if input.data_type() != data_type {
            fail!(
                "inputs have different types {} and {}",
                data_type.name(),
                input.data_type().name()
            );
        }
        let part = JoinedInput { pool, input, data, start, steps: &steps };
        part.copy_bits(data_type, output.bytes_mut())?;
        start += input.dims()[axis] * steps[axis];
    }
    Ok(())
}

/// Joins tensors of which some already lie in the output: copies the others.
fn join_rest(call: &mut Call<'_>, axis: i64) -> Result<(), KernelError> {
    let Some(Target::Planned { laid: Some(OutputLayout { layout, .. }), dims, data_type, .. }) =
        call.targets.first()
    else {
        fail!("an input lies in an output that is in rows");
    };
    let (layout, dims, data_type) = ((*layout).clone(), *dims, *data_type);
    let axis = normalize_axis(axis, dims.len())?;
    let mut inputs: SmallVec<[(usize, Option<TensorView<'_>>); 4]> = SmallVec::new();
    let mut end = 0;
    for (index, operand) in call.operands.iter().enumerate() {
        let (of, view) = match operand {
            Operand::There(dims) => (&dims[..], None),
            _ => {
                let view = call.tensor(index)?;
                (view.dims(), Some(view.clone()))
            }
        };
        let is_same = |other: usize| other == axis || of[other] == dims[other];
        if of.len() != dims.len() || !(0..dims.len()).all(is_same) {
            fail!(
                "input {index} of shape {of:?} cannot be concatenated along axis {axis} into shape {:?}",
                &dims[..]
            );
        }
        inputs.push((end, view));
        end += of[axis];
    }
    if end != dims[axis] {
        fail!("inputs with {end} rows along axis {axis} become an output with {}", dims[axis]);
    }
    let pool = call.exec.pool;
    let (bytes, _) = call.output_with_layout(0, data_type, dims)?;
    for (start, input) in inputs {
        let Some(input) = input else { continue };
        let offset = layout.offset + start * layout.strides[axis] as usize;
        copy_into(pool, &input, data_type, bytes, offset, &layout)?;
    }
    Ok(())
}

/// Copies an image, or rows, to their place in an output.
pub(super) fn copy_into(
    pool: &Pool,
    input: &TensorView<'_>,
    data_type: DataType,
    bytes: &mut [u8],
    offset: usize,
    layout: &Layout,
) -> Result<(), KernelError> {
    let (ViewData::Bytes(data), true) = (input.data(), input.data_type() == data_type) else {
        fail!("inputs have different types");
    };
    // Kept rows: pixels of images have a stride of several channels.
    if layout.strides.last() == Some(&1) {
        if input.rank() > MAX_RANK {
            fail!("rank {} is not supported; the maximum is {MAX_RANK}", input.rank());
        }
        let steps: SmallVec<[usize; 6]> =
            layout.strides.iter().map(|step| step.unsigned_abs()).collect();
        let part = JoinedInput { pool, input, data, start: offset, steps: &steps };
        return part.copy_bits(data_type, bytes);
    }
    let from = Layout { offset: input.offset(), strides: input.strides() };
    let to = Layout { offset, strides: layout.strides.clone() };
    Ok(copy_images(pool, input.dims(), data, &from, bytes, &to)?)
}

/// Joins inputs into an output that is not in rows.
fn join_into(
    call: &mut Call<'_>,
    dims: &Dims,
    axis: usize,
    inputs: &[TensorView<'_>],
    layout: &Layout,
) -> Result<(), KernelError> {
    let (pool, data_type) = (call.exec.pool, inputs[0].data_type());
    let (bytes, _) = call.output_with_layout(0, data_type, dims)?;
    let mut start = layout.offset;
    for input in inputs {
        copy_into(pool, input, data_type, bytes, start, layout)?;
        start += input.dims()[axis] * layout.strides[axis] as usize;
    }
    Ok(())
}

/// Input of a join and its destination.
struct JoinedInput<'a> {
    pool: &'a Pool,
    input: &'a TensorView<'a>,
    data: &'a [u8],
    start: usize,
    steps: &'a [usize],
}

impl JoinedInput<'_> {
    /// Copies elements of a type of whole bytes.
    fn copy_bits(&self, data_type: DataType, out: &mut [u8]) -> Result<(), KernelError> {
        match data_type.bits() {
            Some(8) => self.copy::<1>(out)?,
            Some(16) => self.copy::<2>(out)?,
            Some(32) => self.copy::<4>(out)?,
            Some(64) => self.copy::<8>(out)?,
            _ => self.copy::<16>(out)?,
        }
        Ok(())
    }

    fn copy<const WIDTH: usize>(&self, out: &mut [u8]) -> Result<(), Ended>
    where
        [u8; WIDTH]: MoveLoops,
    {
        MoveLoops::copy_between(
            self.pool,
            self.input.dims(),
            StridedRef {
                data: self.data.as_chunks::<WIDTH>().0,
                start: self.input.offset(),
                strides: &self.input.strides(),
            },
            StridedMut {
                data: out.as_chunks_mut::<WIDTH>().0,
                start: self.start,
                strides: self.steps,
            },
        )
    }
}

struct Join {
    outer: usize,
}

impl Movement for Join {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::concat(pool, self.outer, sources, out)?;
        Ok(())
    }
}
