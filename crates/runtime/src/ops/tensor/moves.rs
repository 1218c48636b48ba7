//! Moves of elements of any type: the bridge between tensors and the copy loops.
//!
//! The loops move plain values of a few widths. Elements of whole bytes are such values. Elements
//! below one byte are unpacked to codes, moved, and packed again. Strings stay in place, and their
//! indices are moved.

use bytemuck::Pod;
use sardonyx_kernels::copy::{StridedMut, StridedRef};
use sardonyx_kernels::elementwise::broadcast_strides;
use sardonyx_kernels::{Ended, MoveLoops, Pool};
use sardonyx_tensor::{
    Dims, Strides, StringArray, Tensor, TensorView, Value, ViewData, packed, shape,
};
use smallvec::SmallVec;

use crate::error::{KernelError, fail};
use crate::kernel::Call;
use crate::layout::Layout;
use crate::scratch::{Contents, Scratch};

/// Limit: dimensions that the loops accept.
pub(super) const MAX_RANK: usize = 32;
/// Number of sources that are listed without an allocation.
const MANY: usize = 8;

/// Movement of elements by an operator, for any type.
pub(in crate::ops) trait Movement {
    /// Fills `out`, which is not empty. `sources` has one slice for each tensor to read.
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError>;
}

/// A [`Movement`] on bytes, as an object, so that the preparation of operands is compiled once and
/// not for each movement and width.
pub(in crate::ops) trait ByteMovement {
    /// Fills `out` with elements of `width` bytes: 1, 2, 4, 8 or 16.
    fn run_bytes(
        &self,
        pool: &Pool,
        width: usize,
        sources: &[&[u8]],
        out: &mut [u8],
    ) -> Result<(), KernelError>;
}

impl<M: Movement> ByteMovement for M {
    fn run_bytes(
        &self,
        pool: &Pool,
        width: usize,
        sources: &[&[u8]],
        out: &mut [u8],
    ) -> Result<(), KernelError> {
        match width {
            1 => self.run(pool, &chunks::<1>(sources), out.as_chunks_mut().0),
            2 => self.run(pool, &chunks::<2>(sources), out.as_chunks_mut().0),
            4 => self.run(pool, &chunks::<4>(sources), out.as_chunks_mut().0),
            8 => self.run(pool, &chunks::<8>(sources), out.as_chunks_mut().0),
            16 => self.run(pool, &chunks::<16>(sources), out.as_chunks_mut().0),
            _ => unreachable!("no element has {width} bytes"),
        }
    }
}

/// Splits the bytes of each source into elements of `WIDTH` bytes.
fn chunks<'a, const WIDTH: usize>(sources: &[&'a [u8]]) -> SmallVec<[&'a [[u8; WIDTH]]; MANY]> {
    sources.iter().map(|bytes| bytes.as_chunks().0).collect()
}

/// Computes an output of dimensions `dims` whose elements all come from `sources`, which have one
/// element type. Strings are empty where a movement leaves the default value.
pub(in crate::ops) fn move_elements(
    call: &mut Call<'_>,
    index: usize,
    dims: &[usize],
    sources: &[TensorView<'_>],
    movement: &dyn ByteMovement,
) -> Result<(), KernelError> {
    let Some(data_type) = sources.first().map(TensorView::data_type) else {
        fail!("there are no inputs");
    };
    if let Some(other) = sources.iter().find(|view| view.data_type() != data_type) {
        fail!("inputs have different types {} and {}", data_type.name(), other.data_type().name());
    }
    let rank = sources.iter().map(TensorView::rank).fold(dims.len(), usize::max);
    if rank > MAX_RANK {
        fail!("rank {rank} is not supported; the maximum is {MAX_RANK}");
    }
    match data_type.bits() {
        None => strings(call, index, dims, sources, movement),
        Some(bits @ (8 | 16 | 32 | 64 | 128)) => {
            wide(call, index, dims, sources, movement, bits / 8)
        }
        Some(bits) => codes(call, index, dims, sources, movement, bits),
    }
}

/// Copies the elements of a view, possibly strided, to an output of as many elements of dimensions
/// `dims`.
pub(in crate::ops) fn copy_view(
    call: &mut Call<'_>,
    index: usize,
    view: &TensorView<'_>,
    dims: &[usize],
) -> Result<(), KernelError> {
    let pool = call.exec.pool;
    if let ViewData::Strings(_) = view.data() {
        // Strings are shared, not copied as bytes.
        let copy = view.to_tensor()?.reshape(dims)?;
        return call.set_output(index, Value::Tensor(copy));
    }
    if call.has_layout(index) {
        return copy_to_images(call, index, view, dims);
    }
    let mut output = call.output(index, view.data_type(), dims)?;
    if output.len() != view.len() {
        fail!("{} elements cannot have the shape {dims:?}", view.len());
    }
    copy_elements(pool, view, output.bytes_mut())
}

/// Copies a view to an output of equal dimensions that is not in rows.
fn copy_to_images(
    call: &mut Call<'_>,
    index: usize,
    view: &TensorView<'_>,
    dims: &[usize],
) -> Result<(), KernelError> {
    let pool = call.exec.pool;
    let (bytes, layout) = call.output_with_layout(index, view.data_type(), dims)?;
    let ViewData::Bytes(data) = view.data() else {
        fail!("strings have no bytes to copy");
    };
    if view.dims() != dims || view.data_type().bits() != Some(32) {
        fail!("{:?} cannot be written as {dims:?} with channels last", view.dims());
    }
    let from = Layout { offset: view.offset(), strides: view.strides() };
    Ok(copy_images(pool, dims, data, &from, bytes, layout)?)
}

/// Copies images with elements of 32 bits between two layouts.
pub(in crate::ops) fn copy_images(
    pool: &Pool,
    dims: &[usize],
    from: &[u8],
    x: &Layout,
    to: &mut [u8],
    y: &Layout,
) -> Result<(), Ended> {
    // Writes channels innermost.
    let order = || std::iter::once(0).chain(2..dims.len()).chain([1]);
    let over_pixels: Dims = order().map(|axis| dims[axis]).collect();
    let x_strides: Strides = order().map(|axis| x.strides[axis]).collect();
    let y_strides: Dims = order().map(|axis| y.strides[axis] as usize).collect();
    MoveLoops::copy_between(
        pool,
        &over_pixels,
        StridedRef { data: from.as_chunks::<4>().0, start: x.offset, strides: &x_strides },
        StridedMut { data: to.as_chunks_mut::<4>().0, start: y.offset, strides: &y_strides },
    )
}

/// Copies a view into memory of its own, whose bytes are charged until [`Call::uncount`].
pub(in crate::ops) fn copy(call: &Call<'_>, view: &TensorView<'_>) -> Result<Tensor, KernelError> {
    if let ViewData::Strings(_) = view.data() {
        let copy = view.to_tensor()?;
        call.reserve(copy.held_bytes())?;
        return Ok(copy);
    }
    let mut copy = call.new_tensor(view.data_type(), view.dims())?;
    copy_elements(call.exec.pool, view, copy.bytes_mut()?)?;
    Ok(copy)
}

/// Writes the elements of a view, except strings, in row-major order.
fn copy_elements(pool: &Pool, view: &TensorView<'_>, out: &mut [u8]) -> Result<(), KernelError> {
    let ViewData::Bytes(data) = view.data() else {
        fail!("strings have no bytes to copy");
    };
    let strides = view.strides();
    let from = Read { dims: view.dims(), start: view.offset(), strides: &strides };
    match view.data_type().bits() {
        Some(bits @ (8 | 16 | 32 | 64 | 128)) if view.rank() <= MAX_RANK => {
            from.copy(pool, bits / 8, data, out)?;
        }
        _ => view.copy_to(out)?,
    }
    Ok(())
}

/// Writes elements of `dims` in row-major order, read through strides in elements.
pub(in crate::ops) fn copy_strided<T: Pod>(
    pool: &Pool,
    dims: &[usize],
    strides: &[isize],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let (x, y) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y));
    Read { dims, start: 0, strides }.copy(pool, size_of::<T>(), x, y)
}

/// Broadcasts `x` of dimensions `dims` to `y` of dimensions `out_dims`.
pub(in crate::ops) fn expand<T: Pod>(
    pool: &Pool,
    dims: &[usize],
    out_dims: &[usize],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let mut strides: Dims = out_dims.into();
    let fits = broadcast_strides(dims, out_dims, &mut strides);
    assert!(fits.is_some(), "{dims:?} does not broadcast to {out_dims:?}");
    let strides: Strides = strides.iter().map(|stride| *stride as isize).collect();
    copy_strided(pool, out_dims, &strides, x, y)
}

/// Strided elements of a source.
pub(in crate::ops) struct Read<'a> {
    pub(in crate::ops) dims: &'a [usize],
    pub(in crate::ops) start: usize,
    pub(in crate::ops) strides: &'a [isize],
}

impl Read<'_> {
    /// Copies elements of `width` bytes: 1, 2, 4, 8 or 16.
    pub(in crate::ops) fn copy(
        &self,
        pool: &Pool,
        width: usize,
        x: &[u8],
        y: &mut [u8],
    ) -> Result<(), Ended> {
        match width {
            1 => self.copy_wide::<1>(pool, x, y),
            2 => self.copy_wide::<2>(pool, x, y),
            4 => self.copy_wide::<4>(pool, x, y),
            8 => self.copy_wide::<8>(pool, x, y),
            16 => self.copy_wide::<16>(pool, x, y),
            _ => unreachable!("no element has {width} bytes"),
        }
    }

    fn copy_wide<const WIDTH: usize>(
        &self,
        pool: &Pool,
        x: &[u8],
        y: &mut [u8],
    ) -> Result<(), Ended>
    where
        [u8; WIDTH]: MoveLoops,
    {
        let (x, y) = (x.as_chunks::<WIDTH>().0, y.as_chunks_mut::<WIDTH>().0);
        MoveLoops::copy_strided(pool, self.dims, self.start, self.strides, x, y)
    }
}

/// Moves elements of `width` bytes.
fn wide(
    call: &mut Call<'_>,
    index: usize,
    dims: &[usize],
    sources: &[TensorView<'_>],
    movement: &dyn ByteMovement,
    width: usize,
) -> Result<(), KernelError> {
    let pool = call.exec.pool;
    let contents: SmallVec<[Contents<'_, u8>; MANY]> =
        sources.iter().map(|view| dense(call, view)).collect::<Result<_, _>>()?;
    let bytes: SmallVec<[&[u8]; MANY]> = contents.iter().map(|contents| &**contents).collect();
    let mut output = call.output(index, sources[0].data_type(), dims)?;
    let out = output.bytes_mut();
    if out.is_empty() {
        return Ok(());
    }
    movement.run_bytes(pool, width, &bytes, out)
}

/// Moves elements below one byte, each unpacked to a byte.
fn codes(
    call: &mut Call<'_>,
    index: usize,
    dims: &[usize],
    sources: &[TensorView<'_>],
    movement: &dyn ByteMovement,
    bits: usize,
) -> Result<(), KernelError> {
    let pool = call.exec.pool;
    let unpacked = |view: &TensorView<'_>| -> Result<Scratch<u8>, KernelError> {
        let mut codes = call.scratch::<u8>(view.len())?;
        packed::unpack_to_u8(&dense(call, view)?, bits, &mut codes)?;
        Ok(codes)
    };
    let codes: SmallVec<[Scratch<u8>; MANY]> =
        sources.iter().map(unpacked).collect::<Result<_, _>>()?;
    let bytes: SmallVec<[&[u8]; MANY]> = codes.iter().map(|codes| &**codes).collect();
    let mut out = call.scratch::<u8>(shape::elems(dims)?)?;
    let mut output = call.output(index, sources[0].data_type(), dims)?;
    if out.is_empty() {
        return Ok(());
    }
    movement.run_bytes(pool, 1, &bytes, &mut out)?;
    Ok(packed::pack_from_codes(&out, bits, output.bytes_mut())?)
}

/// Moves the indices of strings as 64-bit values; index 0 is the empty string.
fn strings(
    call: &mut Call<'_>,
    index: usize,
    dims: &[usize],
    sources: &[TensorView<'_>],
    movement: &dyn ByteMovement,
) -> Result<(), KernelError> {
    let tensors = sources.iter().map(TensorView::to_tensor).collect::<Result<Vec<_>, _>>()?;
    let mut all: Vec<&[u8]> = vec![b""];
    let mut numbers: Vec<Vec<u64>> = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let start = all.len();
        all.extend(tensor.strings().into_iter().flat_map(StringArray::iter));
        numbers.push((start as u64..all.len() as u64).collect());
    }
    let bytes: Vec<&[u8]> = numbers.iter().map(|numbers| bytemuck::cast_slice(numbers)).collect();
    let mut out = call.scratch::<u64>(shape::elems(dims)?)?;
    if !out.is_empty() {
        let out = bytemuck::cast_slice_mut(&mut out);
        movement.run_bytes(call.exec.pool, size_of::<u64>(), &bytes, out)?;
    }
    let moved: StringArray = out.iter().map(|number| all[*number as usize]).collect();
    call.set_output(index, Value::Tensor(Tensor::from_strings(dims, moved)?))
}

/// Returns the bytes of the elements in row-major order. Inputs of a node are mostly dense and not
/// copied.
pub(in crate::ops) fn dense<'a>(
    call: &Call<'_>,
    view: &TensorView<'a>,
) -> Result<Contents<'a, u8>, KernelError> {
    if let Some(bytes) = view.contiguous_bytes() {
        return Ok(Contents::Borrowed(bytes));
    }
    let Some(len) = view.data_type().storage_bytes(view.len()) else {
        fail!("strings have no bytes to move");
    };
    let mut bytes = call.scratch::<u8>(len)?;
    view.copy_to(&mut bytes)?;
    Ok(Contents::Made(bytes))
}

/// Returns the bytes like [`dense`], aligned to the element type.
pub(in crate::ops) fn dense_aligned<'a>(
    call: &Call<'_>,
    view: &TensorView<'a>,
) -> Result<Contents<'a, u8>, KernelError> {
    let contents = dense(call, view)?;
    let width = (view.data_type().bits().unwrap_or_default() / 8).max(1);
    if contents.as_ptr().addr().is_multiple_of(width) {
        return Ok(contents);
    }
    let mut copy = call.scratch::<u8>(contents.len())?;
    copy.copy_from_slice(&contents);
    Ok(Contents::Made(copy))
}

#[cfg(test)]
mod tests {
    use sardonyx_kernels::{Exec, Isa};
    use sardonyx_tensor::DataType;

    use super::*;
    use crate::account::Account;
    use crate::kernel::{Operand, Target};

    /// The first source reversed, then the first element of the second and a default.
    struct Backwards;

    impl Movement for Backwards {
        fn run<T: MoveLoops>(
            &self,
            _: &Pool,
            sources: &[&[T]],
            out: &mut [T],
        ) -> Result<(), KernelError> {
            let moved = sources[0].iter().rev().chain(&sources[1][..1]);
            out.iter_mut().zip(moved).for_each(|(out, moved)| *out = *moved);
            Ok(())
        }
    }

    fn run_movement(first: &Tensor, second: &Tensor) -> Result<Tensor, KernelError> {
        let mut call = Call {
            operands: vec![Operand::Absent],
            targets: vec![Target::Owned(None)],
            over: None,
            exec: &Exec::new(Pool::global(), Isa::detect()),
            random: crate::random::Draws::default(),
            memory: None,
            account: &Account::new(None, 0),
        };
        move_elements(&mut call, 0, &[5], &[first.view(), second.view()], &Backwards)?;
        match call.targets.pop() {
            Some(Target::Owned(Some(Value::Tensor(tensor)))) => Ok(tensor),
            _ => fail!("there is no output"),
        }
    }

    #[test]
    fn elements_of_every_type_move() {
        for data_type in DataType::ALL {
            let Some(bits) = data_type.bits() else {
                continue;
            };
            let tensor = |numbers: &[u8]| {
                if bits <= 8 {
                    return Tensor::from_codes(data_type, [numbers.len()], numbers).unwrap();
                }
                let element = |number: &u8| std::iter::repeat_n(*number, bits / 8);
                let bytes = numbers.iter().flat_map(element).collect();
                let bytes = sardonyx_tensor::Buffer::from_vec(bytes);
                Tensor::from_buffer(data_type, [numbers.len()], bytes).unwrap()
            };
            let found = run_movement(&tensor(&[1, 2, 3]), &tensor(&[1, 3])).unwrap();
            assert!(found.bit_eq(&tensor(&[3, 2, 1, 1, 0])), "{data_type}");
        }
        let strings = |texts: &[&str]| {
            Tensor::from_strings([texts.len()], texts.iter().collect::<StringArray>()).unwrap()
        };
        let found = run_movement(&strings(&["a", "", "c"]), &strings(&["d"])).unwrap();
        assert!(found.bit_eq(&strings(&["c", "", "a", "d", ""])));
        assert!(run_movement(&strings(&["a"]), &Tensor::scalar(1i32)).is_err());
    }
}
