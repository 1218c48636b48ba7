//! Functions of elements of images whose channels come last.
//!
//! Whatever the order, each element is computed from the elements at its place. So the kernel of a
//! function runs as it is, over pixels instead of planes: dimensions `[images, channels, spatial…]`
//! become `[images, spatial…, pitch]`, in which the value is dense. What broadcasts gets the same
//! axes; channels of it that are as many as those of the result are filled up to the pitch, also a
//! single one, as operands must span all lanes of the result together.

use std::mem::take;

use sardonyx_tensor::{DataType, Dims, Strides, TensorView, ViewData};
use smallvec::{SmallVec, smallvec};

use crate::error::{KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Operand, OperandList, Target};
use crate::layout::Layout;
use crate::ops::tensor::moves::copy_images;
use crate::random::Draws;
use crate::scratch::Contents;

/// A kernel that computes each element from those at its place.
pub(crate) struct OverImages(pub(crate) Box<dyn Kernel>);

impl Kernel for OverImages {
    fn memory(&self) -> MemoryRules {
        self.0.memory()
    }

    fn describe(&self) -> String {
        format!("{}, channels last", self.0.describe())
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Some(Target::Planned { laid: Some(_), dims, .. }) = call.targets.first() else {
            return self.0.run(call);
        };
        let images = Images::new(dims);
        let operands: OperandList<'_> = take(&mut call.operands);
        let found: SmallVec<[Option<Found<'_>>; 6]> = operands
            .iter()
            .map(|operand| match operand {
                Operand::Tensor(view) => images.find(call, view).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        let mut over = SmallVec::new();
        for (operand, found) in operands.into_iter().zip(&found) {
            over.push(match found {
                Some(found) => Operand::Tensor(found.view()?),
                None => operand,
            });
        }
        into_pixels(call, over, |inner| self.0.run(inner))
    }
}

/// Runs `body` on the first input over pixels, in a call whose first output has the axes of pixels
/// as well. That has its channels last.
pub(in crate::ops) fn over_pixels(
    call: &mut Call<'_>,
    body: impl FnOnce(&mut Call<'_>, &TensorView<'_>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let x = call.tensor(0)?.clone();
    let dims = Dims::from(x.dims());
    let images = Images::new(&dims);
    let found = images.find(call, &x)?;
    let x = found.view()?;
    into_pixels(call, SmallVec::new(), |inner| body(inner, &x))
}

/// Runs `body` in a call with these operands whose first output is that of `call` over pixels.
fn into_pixels(
    call: &mut Call<'_>,
    operands: OperandList<'_>,
    body: impl FnOnce(&mut Call<'_>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let Some(Target::Planned { laid: Some(laid), dims, data_type, .. }) = call.targets.first()
    else {
        fail!("the output is in rows");
    };
    let (laid, dims, data_type) = (*laid, *dims, *data_type);
    let images = Images::new(dims);
    let mut apart = None;
    if laid.is_part {
        apart = Some(call.scratch::<u8>(images.bytes())?);
    }
    let (over, exec, account) = (call.over, call.exec, call.account);
    let Some(Target::Planned { bytes, .. }) = call.targets.first_mut() else {
        fail!("an output has moved");
    };
    let target = match &mut apart {
        Some(apart) => apart,
        None => &mut bytes[..images.bytes()],
    };
    let mut shorter = SmallVec::new();
    // One by one, as their lifetimes become that of the target.
    for operand in operands {
        shorter.push(operand);
    }
    let mut inner = Call {
        operands: shorter,
        targets: smallvec![Target::Planned {
            data_type,
            dims: &images.pixels,
            bytes: target,
            laid: None,
        }],
        over,
        exec,
        random: Draws::default(),
        memory: None,
        account,
    };
    body(&mut inner)?;
    drop(inner);
    if let Some(apart) = apart {
        copy_images(exec.pool, dims, (&apart, &images.own), (bytes, laid.layout))?;
    }
    Ok(())
}

/// An operand over pixels.
struct Found<'v> {
    dims: Dims,
    bytes: Contents<'v, u8>,
}

impl Found<'_> {
    fn view(&self) -> Result<TensorView<'_>, KernelError> {
        Ok(TensorView::over(DataType::Float, &self.dims, &self.bytes)?)
    }
}

/// Images of floats over pixels.
struct Images<'a> {
    dims: &'a Dims,
    /// How a value of its own lies.
    own: Layout,
    /// `[images, spatial…, pitch]`
    pixels: Dims,
}

impl Images<'_> {
    fn new(dims: &Dims) -> Images<'_> {
        let own = Layout::channels_last(dims);
        let mut pixels: Dims = channels_last(dims).collect();
        if let Some(last) = pixels.last_mut() {
            *last = sardonyx_kernels::pixels::pitch_of(dims[1]);
        }
        Images { dims, own, pixels }
    }

    fn bytes(&self) -> usize {
        self.pixels.iter().product::<usize>() * size_of::<f32>()
    }

    /// The dimensions of an operand with as many axes as the result has, and where its elements lie
    /// along them.
    fn aligned(&self, view: &TensorView<'_>) -> (Dims, Layout) {
        let added = self.dims.len().saturating_sub(view.rank());
        let dims = std::iter::repeat_n(1, added).chain(view.dims().iter().copied()).collect();
        let mut strides = Strides::from_elem(0, added);
        strides.extend(view.strides());
        (dims, Layout { offset: view.offset(), strides })
    }

    /// Whether an operand of so many channels gives each lane of the result its own element, those
    /// beside the channels included.
    fn fills_lanes(&self, channels: usize) -> bool {
        channels != 1 || self.dims[1] == 1
    }

    /// An operand where it lies, or a copy of one whose elements do not lie as they are wanted.
    fn find<'v>(&self, call: &Call<'_>, view: &TensorView<'v>) -> Result<Found<'v>, KernelError> {
        let ViewData::Bytes(data) = view.data() else {
            fail!("strings are not supported");
        };
        let (dims, from) = self.aligned(view);
        if let Some(bytes) = self.in_place(&dims, &from, view, data) {
            let is_whole = dims == *self.dims;
            let dims = if is_whole { self.pixels.clone() } else { channels_last(&dims).collect() };
            return Ok(Found { dims, bytes: Contents::Borrowed(bytes) });
        }
        // Channels are filled up where they do not broadcast.
        let mut pixels: Dims = channels_last(&dims).collect();
        let rank = pixels.len();
        if self.fills_lanes(dims[1]) {
            pixels[rank - 1] = self.pixels[rank - 1];
        }
        let mut copy = call.scratch::<u8>(pixels.iter().product::<usize>() * size_of::<f32>())?;
        let order: Dims = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        let to = Layout::dense(&pixels).transposed(&order);
        copy_images(call.exec.pool, &dims, (data, &from), (&mut copy, &to))?;
        Ok(Found { dims: pixels, bytes: Contents::Made(copy) })
    }

    /// The elements of an operand of these dimensions, if they lie as they are wanted.
    fn in_place<'v>(
        &self,
        dims: &Dims,
        from: &Layout,
        view: &TensorView<'v>,
        data: &'v [u8],
    ) -> Option<&'v [u8]> {
        let pitch = self.pixels.last().copied()?;
        if dims == self.dims && from.pitch(dims) == Some(pitch) {
            return data.get(from.offset * size_of::<f32>()..)?.get(..self.bytes());
        }
        let is_vector = dims[2..].iter().all(|dim| *dim == 1);
        let fits = !self.fills_lanes(dims[1]) || (is_vector && dims[1] == pitch);
        view.contiguous_bytes().filter(|_| fits)
    }
}

/// The axes with channels last.
fn channels_last(dims: &[usize]) -> impl Iterator<Item = usize> {
    std::iter::once(dims[0]).chain(dims[2..].iter().copied()).chain([dims[1]])
}
