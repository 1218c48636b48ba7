//! Pointwise kernels over images with channels last.
//!
//! A pointwise kernel computes each element from those at its position, in any order. So it runs
//! unchanged over pixels: dimensions `[images, channels, spatial…]` become `[images, spatial…,
//! pitch]`, in which the value is dense. Broadcast operands get the same axes. Their channels are
//! padded to the pitch if they are as many as those of the result, even a single one, as an operand
//! must cover all lanes of the result together.

use std::mem::take;

use sardonyx_tensor::{DataType, Dims, Strides, TensorView, ViewData, emptied};
use smallvec::SmallVec;

use crate::error::{KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Operand, Target};
use crate::layout::Layout;
use crate::ops::tensor::moves::copy_images;
use crate::random::Draws;
use crate::scratch::Contents;

/// Kernel that computes each element from those at its position.
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
        let operands = take(&mut call.operands);
        let found: SmallVec<[Option<PixelOperand<'_>>; 6]> = operands
            .iter()
            .map(|operand| match operand {
                Operand::Tensor(view) => images.find(call, view).map(Some),
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        let mut over = operands;
        for (operand, found) in over.iter_mut().zip(&found) {
            if let Some(found) = found {
                *operand = Operand::Tensor(found.view()?);
            }
        }
        into_pixels(call, over, |inner| self.0.run(inner))
    }
}

/// Runs `body` on the first input over pixels, in a call whose first output has channels last and
/// the same axes.
pub(in crate::ops) fn over_pixels(
    call: &mut Call<'_>,
    body: impl FnOnce(&mut Call<'_>, &TensorView<'_>) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let x = call.tensor(0)?.clone();
    let dims = Dims::from(x.dims());
    let images = Images::new(&dims);
    let found = images.find(call, &x)?;
    let x = found.view()?;
    let operands = emptied(take(&mut call.operands));
    into_pixels(call, operands, |inner| body(inner, &x))
}

/// Runs `body` on `operands`, in a call whose first output is that of `call` over pixels.
fn into_pixels(
    call: &mut Call<'_>,
    operands: Vec<Operand<'_>>,
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
    // The list of an only target is used for the inner call, as a new one would be allocated.
    let mut others = take(&mut call.targets);
    let Target::Planned { bytes, .. } = others.remove(0) else {
        fail!("an output has moved");
    };
    let list = if others.is_empty() { take(&mut others) } else { Vec::new() };
    let target = match &mut apart {
        Some(apart) => apart,
        None => &mut bytes[..images.bytes()],
    };
    let mut targets: Vec<Target<'_>> = emptied(list);
    targets.push(Target::Planned { data_type, dims: &images.pixels, bytes: target, laid: None });
    let mut inner =
        Call { operands, targets, over, exec, random: Draws::default(), memory: None, account };
    body(&mut inner)?;
    call.operands = emptied(inner.operands);
    call.targets = if others.is_empty() { emptied(inner.targets) } else { others };
    if let Some(apart) = apart {
        copy_images(exec.pool, dims, &apart, &images.own, bytes, laid.layout)?;
    }
    let own = Target::Planned { data_type, dims, bytes, laid: Some(laid) };
    call.targets.insert(0, own);
    Ok(())
}

/// Operand over pixels.
struct PixelOperand<'v> {
    dims: Dims,
    bytes: Contents<'v, u8>,
}

impl PixelOperand<'_> {
    fn view(&self) -> Result<TensorView<'_>, KernelError> {
        Ok(TensorView::over(DataType::Float, &self.dims, &self.bytes)?)
    }
}

/// Shape of images of floats over pixels.
struct Images<'a> {
    dims: &'a Dims,
    /// Layout of a value in memory of its own.
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

    /// Returns dimensions and layout of an operand with leading axes added up to the rank of the
    /// result.
    fn align(&self, view: &TensorView<'_>) -> (Dims, Layout) {
        let added = self.dims.len().saturating_sub(view.rank());
        let dims = std::iter::repeat_n(1, added).chain(view.dims().iter().copied()).collect();
        let mut strides = Strides::from_elem(0, added);
        strides.extend(view.strides());
        (dims, Layout { offset: view.offset(), strides })
    }

    /// Whether an operand with that many channels has an element for each lane of the result,
    /// padding included.
    fn fills_lanes(&self, channels: usize) -> bool {
        channels != 1 || self.dims[1] == 1
    }

    /// Returns an operand in place if its layout fits, else a copy.
    fn find<'v>(
        &self,
        call: &Call<'_>,
        view: &TensorView<'v>,
    ) -> Result<PixelOperand<'v>, KernelError> {
        let ViewData::Bytes(data) = view.data() else {
            fail!("strings are not supported");
        };
        let (dims, from) = self.align(view);
        if let Some(bytes) = self.in_place(&dims, &from, view, data) {
            let is_whole = dims == *self.dims;
            let dims = if is_whole { self.pixels.clone() } else { channels_last(&dims).collect() };
            return Ok(PixelOperand { dims, bytes: Contents::Borrowed(bytes) });
        }
        // Channels that do not broadcast are padded.
        let mut pixels: Dims = channels_last(&dims).collect();
        let rank = pixels.len();
        if self.fills_lanes(dims[1]) {
            pixels[rank - 1] = self.pixels[rank - 1];
        }
        let mut copy = call.scratch::<u8>(pixels.iter().product::<usize>() * size_of::<f32>())?;
        let order: Dims = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        let to = Layout::dense(&pixels).transpose(&order);
        copy_images(call.exec.pool, &dims, data, &from, &mut copy, &to)?;
        Ok(PixelOperand { dims: pixels, bytes: Contents::Made(copy) })
    }

    /// Returns the elements of an operand in place, if their layout fits.
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

/// Yields the dimensions with channels last.
fn channels_last(dims: &[usize]) -> impl Iterator<Item = usize> {
    std::iter::once(dims[0]).chain(dims[2..].iter().copied()).chain([dims[1]])
}
