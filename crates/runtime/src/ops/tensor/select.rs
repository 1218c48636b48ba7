//! Taking elements by what they are.

use std::marker::PhantomData;

use sardonyx_kernels::Loops;
use sardonyx_kernels::choose::{count_where, positions_where};
use sardonyx_kernels::number::Number;
use sardonyx_tensor::{DataType, Dims, Element, shape::normalize_axis};

use super::moves::dense;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::ops::math::softmax::around;

/// `NonZero`
pub(crate) fn bind_non_zero(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    // Of integers and truth values, what is not zero has a byte that is not zero.
    Ok(match site.elem(0)? {
        DataType::Bool | DataType::Int8 | DataType::Uint8 => Box::new(NonZeroBytes::<1>),
        DataType::Int16 | DataType::Uint16 => Box::new(NonZeroBytes::<2>),
        DataType::Int32 | DataType::Uint32 => Box::new(NonZeroBytes::<4>),
        DataType::Int64 | DataType::Uint64 => Box::new(NonZeroBytes::<8>),
        elem => return for_element!(site, elem, floats, T => NonZero::<T>(PhantomData)),
    })
}

/// `TopK`
pub(crate) fn bind_top_k(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, largest) = (site.need_int("axis")?, site.need_int("largest")? != 0);
    // Without 'sorted' any order will do, and sorted is one.
    for_element!(site, site.elem(0)?, numeric, T => TopK::<T> { axis, largest, elements: PhantomData })
}

struct NonZeroBytes<const WIDTH: usize>;

impl<const WIDTH: usize> Kernel for NonZeroBytes<WIDTH> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let bytes = dense(call, call.tensor(0)?)?;
        non_zero(call, bytes.as_chunks::<WIDTH>().0, |x| x != [0; WIDTH])
    }
}

/// Floats have two zeros.
struct NonZero<T>(PhantomData<fn() -> T>);

impl<T: Number + Element> Kernel for NonZero<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        non_zero(call, call.slice::<T>(0)?, |x| x != T::ZERO)
    }
}

fn non_zero<T: Copy>(
    call: &mut Call<'_>,
    x: &[T],
    passes: impl Fn(T) -> bool,
) -> Result<(), KernelError> {
    let dims = Dims::from(call.tensor(0)?.dims());
    let count = count_where(x, &passes);
    let out = call.output_slice::<i64>(0, &[dims.len(), count])?;
    // A scalar has no coordinates.
    if !dims.is_empty() {
        positions_where(&dims, x, passes, out);
    }
    Ok(())
}

struct TopK<T> {
    axis: i64,
    largest: bool,
    elements: PhantomData<fn() -> T>,
}

impl<T: Loops + Element> Kernel for TopK<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, x) = (call.exec.pool, call.slice::<T>(0)?);
        let mut dims = Dims::from(call.tensor(0)?.dims());
        let axis = normalize_axis(self.axis, dims.len())?;
        let sizes = around(&dims, self.axis)?;
        let k = call.ints(1)?;
        let &[k] = &k[..] else {
            fail!("K must be one number, not {}", k.len());
        };
        let Some(k) = usize::try_from(k).ok().filter(|k| *k <= dims[axis]) else {
            fail!("axis {axis} has {} elements, but {k} are asked for", dims[axis]);
        };
        dims[axis] = k;
        if call.has_output(0)
            && let (values, Some(positions)) = call.output_slices::<T, i64>(1, &dims)?
        {
            T::top_k(pool, self.largest, sizes, k, x, values, positions);
            return Ok(());
        }
        // One of the two is wanted by nobody.
        let len = dims.iter().product();
        let mut values = call.scratch::<T>(len)?;
        let mut positions = call.scratch::<i64>(len)?;
        T::top_k(pool, self.largest, sizes, k, x, &mut values, &mut positions);
        if call.has_output(0) {
            call.output_slice::<T>(0, &dims)?.copy_from_slice(&values);
        }
        if call.has_output(1) {
            call.output_slice::<i64>(1, &dims)?.copy_from_slice(&positions);
        }
        Ok(())
    }

    fn describe(&self) -> String {
        let which = if self.largest { "largest" } else { "smallest" };
        format!("{which} of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Bool8;

    use crate::ops::testing::{run, tensor};

    #[test]
    fn what_is_not_zero() {
        let expected = tensor(&[2, 3], &[0i64, 0, 1, 0, 2, 1]);
        let elements = [1u8, 0, 3, 0, 255, 0];
        for x in [
            tensor(&[2, 3], &elements),
            tensor(&[2, 3], &elements.map(Bool8)),
            tensor(&[2, 3], &elements.map(|x| i64::from(x) << 40)),
            tensor(&[2, 3], &elements.map(|x| -f32::from(x))),
            tensor(&[2, 3], &elements.map(|x| half::bf16::from_f32(-f32::from(x)))),
        ] {
            assert_eq!(run("NonZero", &[], &[Some(&x)], 1).unwrap()[0], expected);
        }
        let scalar = tensor(&[], &[3f32]);
        let found = run("NonZero", &[], &[Some(&scalar)], 1).unwrap();
        assert_eq!(found[0].dims(), [0, 1]);
        let nothing = tensor::<f32>(&[0, 2], &[]);
        let found = run("NonZero", &[], &[Some(&nothing)], 1).unwrap();
        assert_eq!(found[0].dims(), [2, 0]);
    }

    #[test]
    fn the_best() {
        let x = tensor(&[2, 3], &[5u64, 9, 9, u64::MAX, 0, 7]);
        let k = tensor(&[1], &[2i64]);
        let rows: [(i64, i64, [u64; 4], [i64; 4]); 2] =
            [(-1, 1, [9, 9, u64::MAX, 7], [1, 2, 0, 2]), (1, 0, [5, 9, 0, 7], [0, 1, 1, 2])];
        for (axis, largest, values, positions) in rows {
            let attributes = [("axis", Int(axis)), ("largest", Int(largest))];
            let found = run("TopK", &attributes, &[Some(&x), Some(&k)], 2).unwrap();
            assert_eq!(found[0], tensor(&[2, 2], &values));
            assert_eq!(found[1], tensor(&[2, 2], &positions));
        }
        let found = run("TopK", &[("axis", Int(0))], &[Some(&x), Some(&k)], 2).unwrap();
        assert_eq!(found[0], tensor(&[2, 3], &[u64::MAX, 9, 9, 5, 0, 7]));
        for (k, refusal) in [
            (&[4i64][..], "axis 1 has 3 elements, but 4 are asked for"),
            (&[-1], "axis 1 has 3 elements, but -1 are asked for"),
            (&[1, 2], "K must be one number, not 2"),
        ] {
            let inputs = [Some(&x), Some(&tensor(&[k.len()], k))];
            assert_eq!(run("TopK", &[], &inputs, 2).unwrap_err(), refusal);
        }
    }
}
