//! MaxUnpool: moves elements back to the positions where MaxPool found them, among zeros.

use std::marker::PhantomData;

use sardonyx_kernels::number::Number;
use sardonyx_tensor::{Dims, Element, shape};

use super::window::{counts, per_axis};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

struct MaxUnpool<T> {
    kernel: Vec<usize>,
    strides: Vec<usize>,
    /// Padding before all axes, then after them.
    pads: Vec<usize>,
    elements: PhantomData<fn() -> T>,
}

/// Binds `MaxUnpool`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let kernel = per_axis(site, "kernel_shape")?.unwrap_or_default();
    let rank = kernel.len();
    let strides = per_axis(site, "strides")?.unwrap_or_else(|| vec![1; rank]);
    let pads = counts(site, "pads")?.unwrap_or_else(|| vec![0; 2 * rank]);
    if strides.len() != rank || pads.len() != 2 * rank {
        return Err(BindError::Invalid(format!(
            "kernel_shape has {rank} elements; strides must have as many, not {}, and pads twice as many, not {}",
            strides.len(),
            pads.len()
        )));
    }
    for_element!(site, site.elem(0)?, floats, T => MaxUnpool::<T> {
        kernel,
        strides,
        pads,
        elements: PhantomData,
    })
}

impl<T> MaxUnpool<T> {
    /// Returns the dimensions of MaxPool's input, in which indices are counted.
    fn pooled_dims(&self, x: &[usize]) -> Result<Dims, KernelError> {
        let rank = self.kernel.len();
        if x.len() != rank + 2 {
            fail!("the input {x:?} must have {rank} dimensions after batch and channels");
        }
        let mut dims = Dims::from(&x[..2]);
        for (axis, len) in x[2..].iter().enumerate() {
            let last = (*len as i128 - 1).checked_mul(self.strides[axis] as i128);
            let pads = self.pads[axis] as i128 + self.pads[axis + rank] as i128;
            let size = last.map(|last| last + self.kernel[axis] as i128 - pads);
            let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else {
                fail!(
                    "spatial axis {axis} of {len} windows has an invalid size with strides {:?}, kernel_shape {:?} \
                     and pads {:?}",
                    self.strides,
                    self.kernel,
                    self.pads
                );
            };
            dims.push(size);
        }
        Ok(dims)
    }
}

/// Converts an index in one shape to that of the same coordinates in a shape at least as large.
fn convert_index(index: usize, from: &[usize], to: &[usize]) -> usize {
    let (mut rest, mut stride, mut at) = (index, 1, 0);
    for (from, to) in from.iter().zip(to).rev() {
        at += rest % from * stride;
        rest /= from;
        stride *= to;
    }
    at
}

impl<T: Element + Number> Kernel for MaxUnpool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let pooled = self.pooled_dims(call.tensor(0)?.dims())?;
        let mut dims = pooled.clone();
        if call.has_input(2) {
            let given = call.ints(2)?;
            if given.len() != dims.len() {
                fail!("output_shape has {} elements for {} dimensions", given.len(), dims.len());
            }
            for (axis, size) in given.iter().enumerate() {
                match usize::try_from(*size) {
                    Ok(size) if size >= pooled[axis] => dims[axis] = size,
                    _ => fail!(
                        "output_shape is {size} for axis {axis}, but the pooled size is {}",
                        pooled[axis]
                    ),
                }
            }
        }
        let (x, indices) = (call.slice::<T>(0)?, call.slice::<i64>(1)?);
        if indices.len() != x.len() {
            fail!("there are {} indices for {} elements", indices.len(), x.len());
        }
        let (len, is_larger) = (shape::elems(&pooled)?, dims != pooled);
        let y = call.output_slice::<T>(0, &dims)?;
        y.fill(T::ZERO);
        // Sequential: of several elements for one position the last one stays.
        for (x, index) in x.iter().zip(indices) {
            let Some(at) = usize::try_from(*index).ok().filter(|at| *at < len) else {
                fail!(
                    "index {index} is out of range: the output has {len} elements, {:?}",
                    &pooled[..]
                );
            };
            y[if is_larger { convert_index(at, &pooled, &dims) } else { at }] = *x;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Ints;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn elements_go_back() {
        let given = [("kernel_shape", Ints(vec![2].into())), ("strides", Ints(vec![2].into()))];
        let x = tensor(&[1, 2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let at = tensor(&[1, 2, 2], &[1i64, 2, 4, 7]);
        let found = run("MaxUnpool", &given, &[Some(&x), Some(&at)], 1).unwrap();
        let expected = tensor(&[1, 2, 4], &[0f32, 1.0, 2.0, 0.0, 3.0, 0.0, 0.0, 4.0]);
        assert!(found[0].bit_eq(&expected), "{found:?}");
        // Indices are those of what was pooled, not of the shape that is wanted.
        let shape = tensor(&[3], &[1i64, 2, 5]);
        let found = run("MaxUnpool", &given, &[Some(&x), Some(&at), Some(&shape)], 1).unwrap();
        let expected = [0f32, 1.0, 2.0, 0.0, 0.0, 3.0, 0.0, 0.0, 4.0, 0.0];
        assert!(found[0].bit_eq(&tensor(&[1, 2, 5], &expected)), "{found:?}");
        let shape = tensor(&[3], &[1i64, 2, 3]);
        let found = run("MaxUnpool", &given, &[Some(&x), Some(&at), Some(&shape)], 1);
        assert!(found.unwrap_err().contains("output_shape is 3 for axis 2"));
        let at = tensor(&[1, 2, 2], &[1i64, 2, 4, 8]);
        let found = run("MaxUnpool", &given, &[Some(&x), Some(&at)], 1);
        assert!(found.unwrap_err().contains("index 8 is out of range"));
    }
}
