//! DeformConv: convolution over patches whose elements are sampled at shifted coordinates.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::deform::{Deform, MOST_DIMS};
use sardonyx_kernels::gemm::{self, Number};
use sardonyx_kernels::{Loops, ResizeLoops};
use sardonyx_tensor::{Dims, Element, shape};
use smallvec::SmallVec;

use super::window::per_axis;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::scratch::Scratch;

struct DeformConv<T> {
    kernel: Option<Vec<usize>>,
    strides: Option<Vec<usize>>,
    dilations: Option<Vec<usize>>,
    pads: Option<Vec<isize>>,
    group: usize,
    offset_group: usize,
    elements: PhantomData<fn() -> T>,
}

/// Binds `DeformConv`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let positive = |name: &str| -> Result<usize, BindError> {
        let number = site.need_int(name)?;
        match usize::try_from(number) {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(BindError::Invalid(format!("{name} must be positive, not {number}"))),
        }
    };
    let pads = site.ints("pads").map(|pads| pads.into_iter().map(isize::try_from).collect());
    let pads: Option<Result<Vec<isize>, _>> = pads;
    let pads = pads.transpose();
    let pads = pads.map_err(|_| BindError::Invalid("pads are too large".to_string()))?;
    for_element!(site, site.elem(0)?, floats, T => DeformConv::<T> {
        kernel: per_axis(site, "kernel_shape")?,
        strides: per_axis(site, "strides")?,
        dilations: per_axis(site, "dilations")?,
        pads,
        group: positive("group")?,
        offset_group: positive("offset_group")?,
        elements: PhantomData,
    })
}

/// Sizes of a call.
struct DeformSizes {
    /// Number of output channels.
    out_channels: usize,
    strides: SmallVec<[usize; 4]>,
    dilations: SmallVec<[usize; 4]>,
    pads: SmallVec<[isize; 4]>,
    /// Spatial sizes of the output.
    output: Dims,
}

impl<T: Element> DeformConv<T> {
    fn place(&self, call: &Call<'_>) -> Result<DeformSizes, KernelError> {
        let (x, w) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
        if x.len() < 3 || w.len() != x.len() || x.len() > MOST_DIMS + 2 {
            fail!(
                "the input {x:?} and the weights {w:?} must have the same number of dimensions, \
                 from three to {}",
                MOST_DIMS + 2
            );
        }
        let rank = x.len() - 2;
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| kernel[..] != w[2..]) {
            fail!("kernel_shape is {kernel:?}, but the weights have dimensions {w:?}");
        }
        if w[1].checked_mul(self.group) != Some(x[1]) || !w[0].is_multiple_of(self.group) {
            fail!(
                "the input {x:?} and the weights {w:?} have channels that do not fit in {} groups",
                self.group
            );
        }
        if !x[1].is_multiple_of(self.offset_group) {
            fail!("{} channels cannot be divided into {} offset groups", x[1], self.offset_group);
        }
        let list = |name: &str, list: &Option<Vec<usize>>| match list {
            Some(list) if list.len() != rank => {
                fail!("{name} has {} elements, but there are {rank} spatial axes", list.len())
            }
            Some(list) => Ok::<_, KernelError>(SmallVec::from_slice(list)),
            None => Ok(SmallVec::from_elem(1, rank)),
        };
        let mut pads: SmallVec<[isize; 4]> = SmallVec::from_elem(0, 2 * rank);
        match &self.pads {
            Some(given) if given.len() != 2 * rank => {
                fail!("pads must be {} numbers, not {given:?}", 2 * rank)
            }
            Some(given) => pads.copy_from_slice(given),
            None => {}
        }
        let mut placed = DeformSizes {
            out_channels: w[0],
            strides: list("strides", &self.strides)?,
            dilations: list("dilations", &self.dilations)?,
            output: Dims::new(),
            pads,
        };
        for axis in 0..rank {
            let reach = (w[axis + 2] as i128 - 1).checked_mul(placed.dilations[axis] as i128);
            let padding = placed.pads[axis] as i128 + placed.pads[axis + rank] as i128;
            let room = reach.map(|reach| x[axis + 2] as i128 + padding - reach - 1);
            let count = room.map(|room| room.div_euclid(placed.strides[axis] as i128) + 1);
            let count = count.filter(|count| *count > 0).and_then(|count| count.try_into().ok());
            let Some(count) = count else {
                fail!("the kernel does not fit into spatial axis {axis} of the padded input {x:?}");
            };
            placed.output.push(count);
        }
        placed.pads.truncate(rank);
        Ok(placed)
    }
}

/// Refuses an input without the dimensions that the others imply.
fn demand(call: &Call<'_>, index: usize, name: &str, dims: &[usize]) -> Result<(), KernelError> {
    match call.maybe_tensor(index)? {
        Some(view) if view.dims() != dims => {
            fail!("{name} has dimensions {:?}, but must have {dims:?}", view.dims())
        }
        _ => Ok(()),
    }
}

impl<T: Element + Loops> DeformConv<T>
where
    T::Real: ResizeLoops + Pod,
{
    /// Converts an input to the type in which it is multiplied.
    fn reals(call: &Call<'_>, index: usize) -> Result<Scratch<T::Real>, KernelError> {
        let x = call.slice::<T>(index)?;
        let mut reals = call.scratch::<T::Real>(x.len())?;
        T::to_reals(call.exec, x, &mut reals)?;
        Ok(reals)
    }

    fn maybe_reals(call: &Call<'_>, index: usize) -> Result<Option<Scratch<T::Real>>, KernelError> {
        if call.has_input(index) { Self::reals(call, index).map(Some) } else { Ok(None) }
    }
}

impl<T: Element + Loops> Kernel for DeformConv<T>
where
    T::Real: ResizeLoops + Pod + Number,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let placed = self.place(call)?;
        let x_dims: Dims = call.tensor(0)?.dims().into();
        let w_dims: Dims = call.tensor(1)?.dims().into();
        let (batch, channels, rank) = (x_dims[0], x_dims[1], x_dims.len() - 2);
        let (taps, outputs) = (shape::elems(&w_dims[2..])?, shape::elems(&placed.output)?);
        let moved = self.offset_group.saturating_mul(taps);
        let around = |count: usize| -> Dims {
            [batch, count].into_iter().chain(placed.output.iter().copied()).collect()
        };
        demand(call, 2, "offset", &around(moved.saturating_mul(rank)))?;
        demand(call, 4, "mask", &around(moved))?;
        demand(call, 3, "B", &[placed.out_channels])?;
        let (x, w, offsets) = (Self::reals(call, 0)?, Self::reals(call, 1)?, Self::reals(call, 2)?);
        let (bias, mask) = (Self::maybe_reals(call, 3)?, Self::maybe_reals(call, 4)?);
        let depth = channels.saturating_mul(taps);
        let mut patches = call.scratch::<T::Real>(shape::elems(&[depth, outputs])?)?;
        let dims = around(placed.out_channels);
        let mut y = call.scratch::<T::Real>(shape::elems(&dims)?)?;
        let geometry = Deform {
            channels,
            offset_groups: self.offset_group,
            input: &x_dims[2..],
            output: &placed.output,
            kernel: &w_dims[2..],
            strides: &placed.strides,
            dilations: &placed.dilations,
            pads_begin: &placed.pads,
        };
        let exec = call.exec;
        let (plane, of_image) = (shape::elems(&x_dims[1..])?, moved * outputs);
        let (rows, deep) = (placed.out_channels / self.group, depth / self.group);
        for image in 0..batch {
            let offsets = &offsets[image * of_image * rank..][..of_image * rank];
            let mask = mask.as_ref().map(|mask| &mask[image * of_image..][..of_image]);
            let x = &x[image * plane..][..plane];
            T::Real::deformed_patches(exec, &geometry, x, offsets, mask, &mut patches)?;
            for group in 0..self.group {
                let first = group * rows;
                let a = gemm::MatRef::row_major(&w[first * deep..][..rows * deep], rows, deep);
                let b = &patches[group * deep * outputs..][..deep * outputs];
                let b = gemm::MatRef::row_major(b, deep, outputs);
                let y = &mut y[(image * placed.out_channels + first) * outputs..];
                gemm::gemm_generic(
                    exec,
                    T::Real::ONE,
                    a,
                    b,
                    None,
                    &mut y[..rows * outputs],
                    outputs,
                )?;
            }
        }
        if let Some(bias) = bias.filter(|_| outputs > 0) {
            for (row, y) in y.chunks_exact_mut(outputs).enumerate() {
                let bias = bias[row % placed.out_channels];
                y.iter_mut().for_each(|y| *y = y.plus(bias));
            }
        }
        T::from_reals(exec, &y, call.output_slice::<T>(0, &dims)?)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{Int, Ints};
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn taps_are_moved() {
        // One axis, a kernel of two, half an element to the right, the second tap outside.
        let x = tensor(&[1, 1, 3], &[1f32, 2.0, 4.0]);
        let w = tensor(&[1, 1, 2], &[1f32, 10.0]);
        let offset = tensor(&[1, 2, 2], &[0.5f32, 0.5, 0.0, 9.0]);
        let (bias, mask) = (tensor(&[1], &[100f32]), tensor(&[1, 2, 2], &[1f32, 2.0, 0.5, 1.0]));
        let deformed = |inputs: &[Option<&Tensor>]| run("DeformConv", &[], inputs, 1);
        let found = deformed(&[Some(&x), Some(&w), Some(&offset)]).unwrap();
        assert!(found[0].bit_eq(&tensor(&[1, 1, 2], &[21.5f32, 3.0])), "{found:?}");
        let all = [Some(&x), Some(&w), Some(&offset), Some(&bias), Some(&mask)];
        let found = deformed(&all).unwrap();
        assert!(found[0].bit_eq(&tensor(&[1, 1, 2], &[111.5f32, 106.0])), "{found:?}");
        let found = deformed(&[Some(&x), Some(&w), Some(&mask), None, Some(&x)]).unwrap_err();
        assert!(
            found.contains("mask has dimensions [1, 1, 3], but must have [1, 2, 2]"),
            "{found}"
        );
    }

    #[test]
    fn groups_and_double_precision() {
        let given =
            [("group", Int(2)), ("offset_group", Int(2)), ("pads", Ints(vec![0, -1].into()))];
        let x = tensor(&[1, 2, 3], &[1f64, 2.0, 4.0, 8.0, 16.0, 32.0]);
        let w = tensor(&[2, 1, 1], &[1f64, -1.0]);
        let offset = tensor(&[1, 2, 2], &[0f64, 0.5, 1.0, -1.0]);
        let found = run("DeformConv", &given, &[Some(&x), Some(&w), Some(&offset)], 1).unwrap();
        assert!(found[0].bit_eq(&tensor(&[1, 2, 2], &[1f64, 3.0, -16.0, -8.0])), "{found:?}");
        let found =
            run("DeformConv", &[("group", Int(3))], &[Some(&x), Some(&w), Some(&offset)], 1);
        assert!(found.unwrap_err().contains("do not fit in 3 groups"));
    }
}
