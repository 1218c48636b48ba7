//! Functions of elements of images whose channels come last.
//!
//! Whatever the order, each element is computed from the elements at its place. So the kernel of a
//! function runs as it is, over pixels instead of planes: dimensions `[images, channels, spatial…]`
//! become `[images, spatial…, pitch]`, in which the value is dense. What broadcasts gets the same
//! axes; channels of it that are as many as those of the result are filled up to the pitch.

use std::mem::take;

use sardonyx_tensor::{Dims, Strides, TensorView, ViewData};
use smallvec::{SmallVec, smallvec};

use crate::error::{KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Operand, Target};
use crate::layout::{Layout, pitch_of_strides};
use crate::ops::tensor::moves::copy_images;
use crate::random::Draws;
use crate::scratch::Scratch;

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
        let operands: SmallVec<[Operand<'_>; 6]> = take(&mut call.operands);
        let copies: SmallVec<[Option<Scratch<u8>>; 4]> = operands
            .iter()
            .map(|operand| match operand {
                Operand::Tensor(view) => images.copied(call, view),
                _ => Ok(None),
            })
            .collect::<Result<_, _>>()?;
        let mut over = SmallVec::new();
        for (operand, copy) in operands.into_iter().zip(&copies) {
            over.push(match operand {
                Operand::Tensor(view) => Operand::Tensor(images.view(&view, copy.as_deref())?),
                other => other,
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
    let copy = images.copied(call, &x)?;
    let x = images.view(&x, copy.as_deref())?;
    into_pixels(call, SmallVec::new(), |inner| body(inner, &x))
}

/// Runs `body` in a call with these operands whose first output is that of `call` over pixels.
fn into_pixels(
    call: &mut Call<'_>,
    operands: SmallVec<[Operand<'_>; 6]>,
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
        copy_images(exec.pool, dims, (&apart, &images.own), (bytes, laid.layout));
    }
    Ok(())
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

    /// The dimensions of an operand with as many axes as the result has.
    fn aligned(&self, view: &TensorView<'_>) -> Dims {
        let added = self.dims.len().saturating_sub(view.rank());
        std::iter::repeat_n(1, added).chain(view.dims().iter().copied()).collect()
    }

    /// Where the elements of an operand are as they are wanted; `None` if they must be copied.
    fn found<'v>(&self, view: &TensorView<'v>) -> Option<(Dims, &'v [u8])> {
        let ViewData::Bytes(data) = view.data() else {
            return None;
        };
        let dims = self.aligned(view);
        if dims == *self.dims
            && pitch_of_strides(&dims, &view.strides()) == self.pixels.last().copied()
        {
            let start = view.offset() * size_of::<f32>();
            let bytes = data.get(start..)?.get(..self.bytes())?;
            return Some((self.pixels.clone(), bytes));
        }
        let bytes = view.contiguous_bytes()?;
        let pitch = self.pixels.last().copied()?;
        let is_vector = dims[2..].iter().all(|dim| *dim == 1);
        let fits = dims[1] == 1 || (is_vector && dims[1] == pitch);
        fits.then(|| (channels_last(&dims).collect(), bytes))
    }

    /// A copy of an operand whose elements do not lie as they are wanted.
    fn copied(
        &self,
        call: &Call<'_>,
        view: &TensorView<'_>,
    ) -> Result<Option<Scratch<u8>>, KernelError> {
        if self.found(view).is_some() {
            return Ok(None);
        }
        let ViewData::Bytes(data) = view.data() else {
            fail!("strings are not computed with");
        };
        let (dims, pixels) = (self.aligned(view), self.copied_dims(view));
        let mut copy = call.scratch::<u8>(pixels.iter().product::<usize>() * size_of::<f32>())?;
        let mut strides = Strides::from_elem(0, dims.len() - view.rank());
        strides.extend(view.strides());
        let from = Layout { offset: view.offset(), strides };
        let rank = pixels.len();
        let order: Dims = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        let to = Layout::dense(&pixels).transposed(&order);
        copy_images(call.exec.pool, &dims, (data, &from), (&mut copy, &to));
        Ok(Some(copy))
    }

    /// Dimensions of the copy of an operand: channels are filled up where they do not broadcast.
    fn copied_dims(&self, view: &TensorView<'_>) -> Dims {
        let mut pixels: Dims = channels_last(&self.aligned(view)).collect();
        if let (Some(last), Some(pitch)) = (pixels.last_mut(), self.pixels.last())
            && *last != 1
        {
            *last = *pitch;
        }
        pixels
    }

    /// An operand over pixels, or its copy.
    fn view<'v>(
        &self,
        view: &TensorView<'v>,
        copy: Option<&'v [u8]>,
    ) -> Result<TensorView<'v>, KernelError> {
        let (dims, bytes) = match copy {
            Some(copy) => (self.copied_dims(view), copy),
            None => match self.found(view) {
                Some(found) => found,
                None => fail!("an operand is neither found nor copied"),
            },
        };
        Ok(TensorView::new(view.data_type(), &dims, bytes)?)
    }
}

/// The axes with channels last.
fn channels_last(dims: &[usize]) -> impl Iterator<Item = usize> {
    std::iter::once(dims[0]).chain(dims[2..].iter().copied()).chain([dims[1]])
}
