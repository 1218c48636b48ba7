//! Slices that iterations read, and outputs that they stack slice by slice.

use std::mem::take;
use std::sync::Arc;

use sardonyx_model::Type;
use sardonyx_tensor::shape::{elems, normalize_axis, strides};
use sardonyx_tensor::{
    Buffer, DataType, Dims, Recycler, StringArray, Tensor, TensorView, TensorViewMut, Value,
    ViewData, packed,
};

use crate::account::Account;
use crate::error::{KernelError, fail};
use crate::kernel::{Call, Operand, Target};
use crate::memory::Held;
use crate::program::{Along, RegionKind};

/// Values that a `Scan` reads slice by slice.
pub(super) struct Slices<'o> {
    scanned: Vec<Scanned<'o>>,
    len: usize,
}

/// Tensor whose slices are adjacent.
struct Scanned<'o> {
    data: Data<'o>,
    elem: DataType,
    /// Dimensions of a slice.
    dims: Dims,
    is_backward: bool,
}

enum Data<'o> {
    Given(TensorView<'o>),
    /// Copy with the scanned axis first.
    Copied(Tensor),
}

impl<'o> Slices<'o> {
    /// Makes the slices of a region; `None` for a kind without any.
    pub(super) fn from_call(
        kind: &RegionKind,
        call: &Call<'o>,
    ) -> Result<Option<Slices<'o>>, KernelError> {
        let RegionKind::Scan { carried, scanned, .. } = kind else {
            return Ok(None);
        };
        let mut slices = Slices { scanned: Vec::new(), len: 0 };
        for (index, (_, along)) in scanned.iter().enumerate() {
            let input = carried.len() + index;
            let view = call.tensor(input)?;
            let axis = normalize_axis(along.axis, view.rank())?;
            let mut dims = Dims::from(view.dims());
            let len = dims.remove(axis);
            if index > 0 && len != slices.len {
                let first = slices.len;
                fail!("input {input} has {len} slices, but the first scan input has {first}");
            }
            slices.len = len;
            let data = if axis == 0 {
                Data::Given(view.clone())
            } else {
                let order = (0..view.rank()).filter(|other| *other != axis);
                let order: Dims = std::iter::once(axis).chain(order).collect();
                call.reserve(view.data_type().storage_bytes(view.len()).unwrap_or(0))?;
                Data::Copied(view.transpose(&order)?.to_tensor()?)
            };
            let (elem, is_backward) = (view.data_type(), along.is_backward);
            slices.scanned.push(Scanned { data, elem, dims, is_backward });
        }
        Ok(Some(slices))
    }

    /// Keeps the first slices, at most `len`.
    pub(super) fn truncate(self, len: usize) -> Slices<'o> {
        Slices { len: len.min(self.len), ..self }
    }

    /// Returns the number of slices.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of scanned inputs.
    pub(super) fn count(&self) -> usize {
        self.scanned.len()
    }

    /// Yields the types of the slices, by scanned input.
    pub(super) fn types(&self) -> impl Iterator<Item = Type> {
        let scanned = self.scanned.iter();
        scanned.map(|scanned| Type::tensor(scanned.elem, scanned.dims.iter().copied()))
    }

    /// Yields the slices of an iteration, by scanned input.
    pub(super) fn at(
        &self,
        iteration: usize,
    ) -> impl Iterator<Item = Result<Held<'_>, KernelError>> {
        self.scanned.iter().map(move |scanned| {
            let index = if scanned.is_backward { self.len - 1 - iteration } else { iteration };
            scanned.at(index)
        })
    }
}

impl Scanned<'_> {
    fn at(&self, index: usize) -> Result<Held<'_>, KernelError> {
        let all = match &self.data {
            Data::Given(view) => view.clone(),
            Data::Copied(tensor) => tensor.view(),
        };
        let len = elems(&self.dims)?;
        if let (Some(bits), Some(bytes)) = (self.elem.bits(), all.contiguous_bytes())
            && bits % 8 == 0
        {
            let size = len * (bits / 8);
            let bytes = &bytes[index * size..(index + 1) * size];
            return Ok(Held::Input(TensorView::over(self.elem, &self.dims, bytes)?));
        }
        // Strings, and elements below one byte, have no address.
        let (steps, offset) = (strides(&self.dims), index * len + all.offset());
        let slice = TensorView::with_strides(self.elem, &self.dims, &steps, offset, all.data())?;
        Ok(Held::Value(Value::Tensor(slice.to_tensor()?), 0))
    }
}

/// Output of iterations that is stacked slice by slice.
pub(super) enum Stack<'t, 'o> {
    /// Output without a reader.
    Ignored,
    /// Output that is written in its place.
    Placed {
        elem: DataType,
        /// Dimensions of the whole.
        dims: &'o Dims,
        /// Memory that is not written yet.
        left: &'t mut [u8],
    },
    /// Output that is appended, and written at the end.
    Grown { target: &'t mut Target<'o>, along: Along, grown: Grown },
}

/// Adjacent slices in memory that grows.
#[derive(Default)]
pub(super) struct Grown {
    /// Element type and dimensions of a slice.
    slice: Option<(DataType, Dims)>,
    iterations: usize,
    buffer: Option<Buffer>,
    /// Bytes of the buffer in use.
    used: usize,
    /// Elements of types below one byte, which have no address.
    codes: Vec<u8>,
    strings: StringArray,
    /// Bytes charged to the account.
    taken: usize,
}

impl<'t, 'o> Stack<'t, 'o> {
    pub(super) fn new(target: &'t mut Target<'o>, along: Along) -> Stack<'t, 'o> {
        let may_be_placed = match target {
            Target::Planned { data_type, dims, .. } => {
                let is_whole = data_type.bits().is_some_and(|bits| bits % 8 == 0);
                along == Along::FIRST && is_whole && !dims.is_empty()
            }
            Target::Absent | Target::Owned(_) => false,
        };
        if may_be_placed && let Target::Planned { data_type, dims, bytes, .. } = target {
            return Stack::Placed { elem: *data_type, dims, left: bytes };
        }
        if let Target::Absent = target {
            return Stack::Ignored;
        }
        Stack::Grown { target, along, grown: Grown::default() }
    }

    /// Whether slices are written in their place.
    pub(super) fn is_placed(&self) -> bool {
        matches!(self, Stack::Placed { .. })
    }

    /// Lends memory for the slice of the next iteration, if it has the type of the output.
    pub(super) fn lend(
        &mut self,
        slice: Option<&(DataType, Dims)>,
    ) -> Result<Option<&'t mut [u8]>, KernelError> {
        let Stack::Placed { elem, dims, left } = self else {
            return Ok(None);
        };
        match slice {
            Some((is, sized)) if is == elem && sized[..] == dims[1..] => {
                let bytes = elem.storage_bytes(elems(&dims[1..])?).unwrap_or(0);
                let Some((next, rest)) = take(left).split_at_mut_checked(bytes) else {
                    fail!("there are more iterations than the {} that were inferred", dims[0]);
                };
                *left = rest;
                Ok(Some(next))
            }
            _ => Ok(None),
        }
    }

    /// Appends a slice that was not written into lent memory.
    pub(super) fn push(
        &mut self,
        view: &TensorView<'_>,
        recycler: &Arc<Recycler>,
        account: &Account,
    ) -> Result<(), KernelError> {
        match self {
            Stack::Ignored => Ok(()),
            Stack::Placed { elem, dims, .. } => {
                let slice = (*elem, Dims::from(&dims[1..]));
                if view.data_type() != slice.0 || view.dims() != &slice.1[..] {
                    let (is, inferred) = (
                        format_type(view.data_type(), view.dims()),
                        format_type(slice.0, &slice.1),
                    );
                    fail!("the shape is {is}, but {inferred} was inferred");
                }
                if let Some(bytes) = self.lend(Some(&slice))? {
                    TensorViewMut::over(slice.0, &slice.1, bytes)?.copy_from(view)?;
                }
                Ok(())
            }
            Stack::Grown { grown, .. } => grown.push(view, recycler, account),
        }
    }
}

/// Formats a type for a message: `float[2, 3]`.
pub(super) fn format_type(elem: DataType, dims: &[usize]) -> String {
    format!("{}{dims:?}", elem.name())
}

impl Grown {
    fn push(
        &mut self,
        view: &TensorView<'_>,
        recycler: &Arc<Recycler>,
        account: &Account,
    ) -> Result<(), KernelError> {
        let (elem, dims) = (view.data_type(), view.dims());
        match &self.slice {
            None => self.slice = Some((elem, dims.into())),
            Some((first, sizes)) if *first == elem && sizes[..] == *dims => {}
            Some((first, sizes)) => {
                let (is, was) = (format_type(elem, dims), format_type(*first, sizes));
                fail!("the shape is {is}, but was {was} in earlier iterations");
            }
        }
        self.iterations += 1;
        match elem.bits() {
            None => {
                let ViewData::Strings(strings) = view.data() else {
                    fail!("strings are not stored as strings");
                };
                let before = self.strings.total_bytes();
                let first = view.offset();
                for index in first..first + view.len() {
                    self.strings.push(strings.get(index));
                }
                let more = self.strings.total_bytes() - before + view.len() * size_of::<usize>();
                self.charge(more, account)
            }
            Some(bits) if bits % 8 != 0 => {
                self.charge(view.len(), account)?;
                match view.contiguous_bytes() {
                    Some(bytes) => self.codes.extend(packed::iter(bytes, bits, view.len())),
                    None => self.codes.extend(view.to_tensor()?.to_codes()?),
                }
                Ok(())
            }
            Some(_) => {
                let bytes = elem.storage_bytes(view.len()).unwrap_or(0);
                let end = self.used.saturating_add(bytes);
                if self.buffer.as_ref().is_none_or(|buffer| buffer.len() < end) {
                    self.grow(end, recycler, account)?;
                }
                if let Some(buffer) = &mut self.buffer {
                    view.copy_to(&mut buffer.make_mut()?[self.used..end])?;
                }
                self.used = end;
                Ok(())
            }
        }
    }

    fn charge(&mut self, bytes: usize, account: &Account) -> Result<(), KernelError> {
        account.charge(bytes)?;
        self.taken += bytes;
        Ok(())
    }

    /// Grows the buffer to at least `bytes` bytes, at least doubling it.
    fn grow(
        &mut self,
        bytes: usize,
        recycler: &Arc<Recycler>,
        account: &Account,
    ) -> Result<(), KernelError> {
        let before = self.buffer.as_ref().map_or(0, Buffer::len);
        let wanted = bytes.max(before.saturating_mul(2)).max(MIN_GROWN);
        // Near the limit there may be memory for the bytes needed, if not for twice as many.
        let (wanted, is_charged) = match account.charge(wanted) {
            Ok(()) => (wanted, true),
            Err(_) => (bytes, false),
        };
        if !is_charged {
            account.charge(wanted)?;
        }
        let mut buffer = recycler.take(wanted)?;
        if let Some(old) = &self.buffer {
            buffer.make_mut()?[..self.used].copy_from_slice(&old.as_slice()[..self.used]);
        }
        self.buffer = Some(buffer);
        account.credit(before);
        self.taken = self.taken - before + wanted;
        Ok(())
    }

    /// Converts the slices to a tensor, stacked along the first axis. `ty` is the inferred type of
    /// a slice, used if there are none.
    fn into_tensor(self, ty: Option<&Type>) -> Result<Tensor, KernelError> {
        let (elem, slice) = match self.slice {
            Some(slice) => slice,
            None => {
                let Some(elem) = ty.and_then(Type::elem) else {
                    fail!("there were no iterations, and the element type of an output is unknown");
                };
                let sizes = ty.and_then(Type::shape);
                let sizes = sizes.map(|sizes| sizes.iter().map(|dim| dim.size().unwrap_or(0)));
                (elem, sizes.map(Iterator::collect).unwrap_or_default())
            }
        };
        let dims: Dims = std::iter::once(self.iterations).chain(slice).collect();
        Ok(match (elem.bits(), self.buffer) {
            (None, _) => Tensor::from_strings(&dims, self.strings)?,
            (Some(bits), _) if bits % 8 != 0 => Tensor::from_codes(elem, &dims, &self.codes)?,
            (Some(_), Some(buffer)) => {
                Tensor::from_buffer(elem, &dims, buffer.slice(0..self.used)?)?
            }
            (Some(_), None) => Tensor::zeros(elem, &dims)?,
        })
    }
}

/// Limit: initial bytes of memory that grows.
const MIN_GROWN: usize = 256;

impl super::Run<'_> {
    /// Writes a stacked output to its target, unless it is there.
    pub(super) fn finish(
        &self,
        stack: Stack<'_, '_>,
        ty: Option<&Type>,
        iterations: usize,
    ) -> Result<(), super::Failed> {
        let (target, along, grown) = match stack {
            Stack::Ignored => return Ok(()),
            Stack::Placed { dims, .. } if dims[0] != iterations => {
                let inferred = dims[0];
                return Err(format!(
                    "there were {iterations} iterations, but {inferred} were inferred"
                )
                .into());
            }
            Stack::Placed { .. } => return Ok(()),
            Stack::Grown { target, along, grown } => (target, along, grown),
        };
        let taken = grown.taken;
        let whole = grown.into_tensor(ty)?;
        if along == Along::FIRST {
            self.deliver(target, Operand::Taken(Value::Tensor(whole)))?;
            self.account.credit(taken);
            return Ok(());
        }
        let axis = normalize_axis(along.axis, whole.rank())?;
        let mut view = whole.view();
        if along.is_backward && iterations > 0 {
            view = view.slice(0, iterations - 1, iterations, -1)?;
        }
        let mut order: Dims = (1..whole.rank()).collect();
        order.insert(axis, 0);
        self.deliver(target, Operand::Tensor(view.transpose(&order)?))?;
        self.account.credit(taken);
        Ok(())
    }
}
