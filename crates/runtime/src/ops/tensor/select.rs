//! Compress, NonZero, TopK: select elements by their values.

use std::marker::PhantomData;

use sardonyx_kernels::choose::{count_where, positions_where};
use sardonyx_kernels::copy::Indices;
use sardonyx_kernels::{Loops, MoveLoops, Pool};
use sardonyx_tensor::{
    Bool8, Complex64, Complex128, DataType, Dims, Element, shape::normalize_axis,
};

use super::moves::{Movement, dense, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::ops::math::softmax::split_at_axis;
use crate::ops::text::texts;

/// Binds `Compress`.
pub(crate) fn bind_compress(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Compress { axis: site.int("axis") }))
}

/// Binds `NonZero`.
pub(crate) fn bind_non_zero(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    // An integer or boolean is not zero if one of its bytes is not.
    Ok(match site.elem(0)? {
        DataType::Bool | DataType::Int8 | DataType::Uint8 => Box::new(NonZeroBytes::<1>),
        DataType::Int16 | DataType::Uint16 => Box::new(NonZeroBytes::<2>),
        DataType::Int32 | DataType::Uint32 => Box::new(NonZeroBytes::<4>),
        DataType::Int64 | DataType::Uint64 => Box::new(NonZeroBytes::<8>),
        DataType::String => Box::new(NonEmptyStrings),
        elem => {
            return for_element!(
                site, elem, [f32, f64, half::f16, half::bf16, Complex64, Complex128], T => NonZero::<T>(PhantomData)
            );
        }
    })
}

/// Binds `TopK`.
pub(crate) fn bind_top_k(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, largest) = (site.need_int("axis")?, site.need_int("largest")? != 0);
    // Sorted order is also valid without 'sorted'.
    for_element!(site, site.elem(0)?, numeric, T => TopK::<T> { axis, largest, elements: PhantomData })
}

struct Compress {
    /// Axis; `None` for elements of the flattened input.
    axis: Option<i64>,
}

impl Kernel for Compress {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let mut dims = Dims::from_slice(&[data.len()]);
        let (mut at, mut sizes) = (0, [1, data.len(), 1]);
        if let Some(axis) = self.axis {
            dims = data.dims().into();
            (at, sizes) = (normalize_axis(axis, dims.len())?, split_at_axis(&dims, axis)?);
        }
        let [condition_len] = call.tensor(1)?.dims() else {
            fail!("the condition has rank {}, not 1", call.tensor(1)?.rank());
        };
        let condition = call.slice::<Bool8>(1)?;
        // A condition may be shorter than the axis, or longer if it ends in `false`.
        let holds = |holds: Bool8| holds.0 != 0;
        if let Some(last) = condition.iter().rposition(|condition| holds(*condition))
            && last >= sizes[1]
        {
            fail!(
                "the condition has {condition_len} elements and is true at {last}, but there are {} slices",
                sizes[1]
            );
        }
        let count = count_where(condition, holds);
        let mut indices = call.scratch::<i64>(count)?;
        positions_where(&[*condition_len], condition, holds, &mut indices);
        dims[at] = count;
        move_elements(call, 0, &dims, &[data], &Slices { sizes, indices: &indices })
    }

    fn describe(&self) -> String {
        "gather where true".to_string()
    }
}

/// Slices of an axis at valid indices.
pub(super) struct Slices<'a> {
    /// Numbers of elements before the axis, along it and after it.
    pub(super) sizes: [usize; 3],
    pub(super) indices: &'a [i64],
}

impl Movement for Slices<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::gather(pool, self.sizes.into(), sources[0], Indices::Long(self.indices), out)
            .map_err(|failure| KernelError::from_failure(failure, |error| error.to_string()))
    }
}

struct NonZeroBytes<const WIDTH: usize>;

impl<const WIDTH: usize> Kernel for NonZeroBytes<WIDTH> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let bytes = dense(call, call.tensor(0)?)?;
        non_zero(call, bytes.as_chunks::<WIDTH>().0, |x| x != [0; WIDTH])
    }
}

/// Elements with several zeros: floats have two, complex numbers four.
struct NonZero<T>(PhantomData<fn() -> T>);

impl<T: Element + Default + PartialEq> Kernel for NonZero<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        non_zero(call, call.slice::<T>(0)?, |x| x != T::default())
    }
}

/// Strings, which count as zero if empty, as in NumPy.
struct NonEmptyStrings;

impl Kernel for NonEmptyStrings {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let strings = texts(call.tensor(0)?)?;
        let mut lengths = call.scratch::<usize>(strings.len())?;
        for (length, string) in lengths.iter_mut().zip(strings) {
            *length = string?.len();
        }
        non_zero(call, &lengths, |length| length != 0)
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
        let sizes = split_at_axis(&dims, self.axis)?;
        let k = call.ints(1)?;
        let &[k] = &k[..] else {
            fail!("K must have one element, not {}", k.len());
        };
        let Some(k) = usize::try_from(k).ok().filter(|k| *k <= dims[axis]) else {
            fail!("axis {axis} has {} elements, but K is {k}", dims[axis]);
        };
        dims[axis] = k;
        if call.has_output(0)
            && let (values, Some(positions)) = call.output_slices::<T, i64>(1, &dims)?
        {
            T::top_k(pool, self.largest, sizes.into(), k, x, values, positions)?;
            return Ok(());
        }
        // Only one of the two outputs has a reader.
        let len = dims.iter().product();
        let mut values = call.scratch::<T>(len)?;
        let mut positions = call.scratch::<i64>(len)?;
        T::top_k(pool, self.largest, sizes.into(), k, x, &mut values, &mut positions)?;
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
    use sardonyx_tensor::{Bool8, Complex64, Complex128, Tensor};

    use crate::ops::testing::{run, strings, tensor};

    fn condition(holds: &[u8]) -> Tensor {
        tensor(&[holds.len()], &holds.iter().map(|holds| Bool8(*holds)).collect::<Vec<_>>())
    }

    #[test]
    fn what_a_condition_holds_for() {
        let x = tensor(&[2, 3], &[1i16, 2, 3, 4, 5, 6]);
        // (axis, condition, dimensions, elements)
        type SelectionRow = (Option<i64>, &'static [u8], &'static [usize], &'static [i16]);
        let rows: [SelectionRow; 9] = [
            (Some(0), &[0, 1], &[1, 3], &[4, 5, 6]),
            (Some(1), &[1, 0, 1], &[2, 2], &[1, 3, 4, 6]),
            (Some(-1), &[0, 255], &[2, 1], &[2, 5]),
            (Some(-2), &[], &[0, 3], &[]),
            (Some(0), &[1, 0, 0, 0], &[1, 3], &[1, 2, 3]),
            (None, &[0, 1, 0, 0, 1], &[2], &[2, 5]),
            (None, &[1; 6], &[6], &[1, 2, 3, 4, 5, 6]),
            (None, &[0, 0, 0, 0, 0, 1, 0, 0], &[1], &[6]),
            (None, &[], &[0], &[]),
        ];
        for (axis, holds, dims, expected) in rows {
            let given: Vec<_> = axis.map(|axis| ("axis", Int(axis))).into_iter().collect();
            let inputs = [Some(&x), Some(&condition(holds))];
            let found = run("Compress", &given, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(dims, expected), "{axis:?} {holds:?}");
        }
        let inputs = [Some(&strings(&[3], &["a", "b", "c"])), Some(&condition(&[1, 0, 1]))];
        assert_eq!(run("Compress", &[], &inputs, 1).unwrap()[0], strings(&[2], &["a", "c"]));
        let inputs = [Some(&tensor(&[], &[7u8])), Some(&condition(&[1]))];
        assert_eq!(run("Compress", &[], &inputs, 1).unwrap()[0], tensor(&[1], &[7u8]));
        let nothing = tensor::<f64>(&[0, 2], &[]);
        let inputs = [Some(&nothing), Some(&condition(&[0, 1]))];
        let found = run("Compress", &[("axis", Int(1))], &inputs, 1).unwrap();
        assert_eq!(found[0].dims(), [0, 1]);
        for (axis, holds, refusal) in [
            (Some(0), condition(&[0, 0, 1]), "is true at 2, but there are 2 slices"),
            (None, condition(&[1; 7]), "has 7 elements and is true at 6, but there are 6"),
            (Some(2), condition(&[1]), "axis 2 is out of range for rank 2"),
            (None, tensor(&[], &[Bool8(1)]), "the condition has rank 0, not 1"),
        ] {
            let given: Vec<_> = axis.map(|axis| ("axis", Int(axis))).into_iter().collect();
            let found = run("Compress", &given, &[Some(&x), Some(&holds)], 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
    }

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
            tensor(&[2, 3], &elements.map(|x| Complex64 { re: -0.0, im: x.into() })),
            tensor(&[2, 3], &elements.map(|x| Complex128 { re: x.into(), im: -0.0 })),
            strings(&[2, 3], &["a", "", "0", "", " ", ""]),
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
            (&[4i64][..], "axis 1 has 3 elements, but K is 4"),
            (&[-1], "axis 1 has 3 elements, but K is -1"),
            (&[1, 2], "K must have one element, not 2"),
        ] {
            let inputs = [Some(&x), Some(&tensor(&[k.len()], k))];
            assert_eq!(run("TopK", &[], &inputs, 2).unwrap_err(), refusal);
        }
    }
}
