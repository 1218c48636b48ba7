//! Tensors generated from an index, a size or bounds: EyeLike, OneHot, Range, Trilu.

use std::marker::PhantomData;

use sardonyx_kernels::copy::MatrixDims;
use sardonyx_kernels::elementwise::{self, Ranged};
use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_tensor::shape::normalize_axis;
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, Tensor, cast_slices};

use super::moves::{Movement, dense, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::element_type;
use crate::ops::math::for_element;
use crate::scratch::Scratch;

/// Binds `EyeLike`.
pub(crate) fn bind_eye_like(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let elem = match element_type(site, "dtype")? {
        Some(elem) => elem,
        None => site.elem(0)?,
    };
    let mut one = Tensor::zeros(elem, [1])?;
    let options = CastOptions::default();
    let from = 1f32.to_ne_bytes();
    cast_slices(DataType::Float, &from, elem, one.bytes_mut()?, 1, options)?;
    Ok(Box::new(EyeLike { diagonal: site.need_int("k")?, one }))
}

/// Binds `OneHot`.
pub(crate) fn bind_one_hot(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(OneHot { axis: site.need_int("axis")?, counts_back: true }))
}

/// Binds `OneHot` of version 9.
pub(crate) fn bind_one_hot_without_negative(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(OneHot { axis: site.need_int("axis")?, counts_back: false }))
}

/// Binds `Trilu`.
pub(crate) fn bind_trilu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Trilu { upper: site.need_int("upper")? != 0 }))
}

/// Binds `Range`.
pub(crate) fn bind_range(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let double = site.int("stash_type") == Some(11);
    for_element!(
        site, site.elem(0)?, [f32, f64, half::f16, half::bf16, i16, i32, i64],
        T => Range::<T> { double, elements: PhantomData }
    )
}

struct Range<T> {
    /// Whether narrow floats are counted in double precision.
    double: bool,
    elements: PhantomData<fn() -> T>,
}

impl<T: Ranged + Element> Kernel for Range<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let [start, limit, delta] = [0, 1, 2].map(|index| one::<T>(call, index));
        let (start, limit, delta) = (start?, limit?, delta?);
        // The same formula as inference uses.
        let count = T::steps(start, limit, delta, self.double);
        if count.is_nan() || count > MOST {
            fail!(
                "delta is {delta:?} (start {start:?}, limit {limit:?}): {count} elements are not possible"
            );
        }
        let count = count.max(0.0) as usize;
        let out = call.output_slice::<T>(0, &[count])?;
        elementwise::range(exec, start, delta, out)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("range of {}", T::DATA_TYPE)
    }
}

/// Returns the only element of an input.
fn one<T: Element>(call: &Call<'_>, index: usize) -> Result<T, KernelError> {
    match call.slice::<T>(index)? {
        [element] => Ok(*element),
        elements => fail!("input {index} must have one element, not {}", elements.len()),
    }
}

struct EyeLike {
    /// Offset of the diagonal in columns to the right.
    diagonal: i64,
    one: Tensor,
}

impl Kernel for EyeLike {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = Dims::from(call.tensor(0)?.dims());
        let &[_, width] = &dims[..] else {
            fail!("the input has rank {}, not 2", dims.len());
        };
        let ones = Diagonal { width, diagonal: self.diagonal };
        move_elements(call, 0, &dims, &[self.one.view()], &ones)
    }
}

/// One value on a diagonal, the default elsewhere.
struct Diagonal {
    width: usize,
    diagonal: i64,
}

impl Movement for Diagonal {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::fill(pool, T::default(), out)?;
        for (row, out) in (0i64..).zip(out.chunks_exact_mut(self.width)) {
            let column = usize::try_from(row.saturating_add(self.diagonal)).ok();
            if let Some(one) = column.and_then(|column| out.get_mut(column)) {
                *one = sources[0][0];
            }
        }
        Ok(())
    }
}

struct OneHot {
    axis: i64,
    /// Whether a negative index counts from the end; otherwise it stands for no element.
    counts_back: bool,
}

impl Kernel for OneHot {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let index_dims = Dims::from(call.tensor(0)?.dims());
        let axis = normalize_axis(self.axis, index_dims.len() + 1)?;
        let depth = integers(call, 1)?;
        let &[depth] = &depth[..] else {
            fail!("depth must have one element, not {}", depth.len());
        };
        let Ok(depth) = usize::try_from(depth) else {
            fail!("depth is {depth}");
        };
        let values = call.tensor(2)?.clone();
        if values.len() != 2 {
            fail!("values must have two elements, not {}", values.len());
        }
        let (before, after) = index_dims.split_at(axis);
        let sizes = [before.iter().product(), depth, after.iter().product()];
        let mut dims = index_dims.clone();
        dims.insert(axis, depth);
        let mut indices = integers(call, 0)?;
        if !self.counts_back {
            let negative = indices.iter_mut().filter(|index| **index < 0);
            negative.for_each(|index| *index = i64::MAX);
        }
        move_elements(call, 0, &dims, &[values], &Hot { sizes, indices })
    }
}

/// Converts an input of any type to integers; fractions are truncated.
fn integers(call: &Call<'_>, index: usize) -> Result<Scratch<i64>, KernelError> {
    let view = call.tensor(index)?;
    let mut wide = call.scratch::<i64>(view.len())?;
    let target = bytemuck::cast_slice_mut(&mut wide);
    let options = CastOptions::default();
    let (from, len) = (view.data_type(), view.len());
    cast_slices(from, &dense(call, view)?, DataType::Int64, target, len, options)?;
    Ok(wide)
}

struct Hot {
    /// Numbers of indices before the new axis, its depth, and number of indices after it.
    sizes: [usize; 3],
    indices: Scratch<i64>,
}

impl Movement for Hot {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        let (off, on) = (sources[0][0], sources[0][1]);
        T::one_hot(pool, self.sizes.into(), &self.indices, off, on, out)?;
        Ok(())
    }
}

struct Trilu {
    upper: bool,
}

impl Kernel for Trilu {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let [outer @ .., height, width] = data.dims() else {
            fail!("the input has rank {}, not 2 or more", data.rank());
        };
        let diagonal = if call.has_input(1) { one::<i64>(call, 1)? } else { 0 };
        let part = Triangle {
            upper: self.upper,
            diagonal,
            sizes: MatrixDims { matrices: outer.iter().product(), height: *height, width: *width },
        };
        let dims = Dims::from(data.dims());
        move_elements(call, 0, &dims, &[data], &part)
    }
}

struct Triangle {
    upper: bool,
    diagonal: i64,
    sizes: MatrixDims,
}

impl Movement for Triangle {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::triangle(pool, self.upper, self.diagonal, self.sizes, sources[0], out)?;
        Ok(())
    }
}

/// Limit: numbers of a range, more than fit any memory.
const MOST: f64 = (1u64 << 48) as f64;

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::{Bool8, StringArray};

    use super::*;
    use crate::ops::testing::{run, tensor};

    #[test]
    fn ranges() {
        let half = half::f16::from_f32;
        let brain = half::bf16::from_f32;
        fn range<T: Element>(numbers: [T; 3]) -> Result<Tensor, String> {
            let [start, limit, delta] = numbers.map(Tensor::scalar);
            let inputs = [Some(&start), Some(&limit), Some(&delta)];
            run("Range", &[("stash_type", Int(1))], &inputs, 1).map(|mut found| found.remove(0))
        }
        assert_eq!(range([1i64, 10, 4]).unwrap(), tensor(&[3], &[1i64, 5, 9]));
        assert_eq!(range([10i32, 4, -2]).unwrap(), tensor(&[3], &[10i32, 8, 6]));
        assert_eq!(range([3i16, 3, 1]).unwrap(), tensor::<i16>(&[0], &[]));
        assert_eq!(range([1f32, 2.0, 0.25]).unwrap(), tensor(&[4], &[1f32, 1.25, 1.5, 1.75]));
        assert_eq!(range([1f64, 0.0, 0.5]).unwrap(), tensor::<f64>(&[0], &[]));
        assert_eq!(
            range([half(1.0), half(2.0), half(0.5)]).unwrap(),
            tensor(&[2], &[half(1.0), half(1.5)])
        );
        assert_eq!(
            range([brain(0.0), brain(-2.0), brain(-1.0)]).unwrap(),
            tensor(&[2], &[brain(0.0), brain(-1.0)])
        );
        assert_eq!(
            range([1i64, 5, 0]).unwrap_err(),
            "delta is 0 (start 1, limit 5): NaN elements are not possible"
        );
        assert!(range([0f32, f32::INFINITY, 1.0]).is_err());
        assert!(range([0f32, f32::NAN, 1.0]).is_err());
        assert!(range([0f64, 1.0, 1e-300]).is_err());
    }

    #[test]
    fn eyes() {
        let x = tensor(&[2, 3], &[9i32; 6]);
        let of =
            |attributes: &[_]| run("EyeLike", attributes, &[Some(&x)], 1).map(|mut y| y.remove(0));
        assert_eq!(of(&[]).unwrap(), tensor(&[2, 3], &[1i32, 0, 0, 0, 1, 0]));
        assert_eq!(
            of(&[("k", Int(-1)), ("dtype", Int(11))]).unwrap(),
            tensor(&[2, 3], &[0f64, 0.0, 0.0, 1.0, 0.0, 0.0])
        );
        assert_eq!(
            of(&[("k", Int(2)), ("dtype", Int(9))]).unwrap(),
            tensor(&[2, 3], &[0, 0, 1, 0, 0, 0].map(Bool8))
        );
        assert_eq!(of(&[("k", Int(i64::MIN))]).unwrap(), tensor(&[2, 3], &[0i32; 6]));
        assert!(of(&[("dtype", Int(-7))]).is_err());
    }

    #[test]
    fn one_is_hot() {
        let indices = tensor(&[3], &[1f32, -1.0, 7.0]);
        let values = tensor(&[2], &[5u8, 6]);
        for (axis, dims, expected) in
            [(-1, [3, 2], [5u8, 6, 5, 6, 5, 5]), (0, [2, 3], [5, 5, 5, 6, 6, 5])]
        {
            let inputs = [Some(&indices), Some(&tensor(&[1], &[2i32])), Some(&values)];
            let found = run("OneHot", &[("axis", Int(axis))], &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&dims, &expected));
        }
        let strings = Tensor::from_strings([2], ["no", "yes"].iter().collect::<StringArray>());
        let inputs =
            [Some(&tensor(&[1], &[1i8])), Some(&tensor(&[], &[2i64])), Some(&strings.unwrap())];
        let found = run("OneHot", &[], &inputs, 1).unwrap();
        let expected = Tensor::from_strings([1, 2], ["no", "yes"].iter().collect::<StringArray>());
        assert_eq!(found[0], expected.unwrap());
        for (depth, values, refusal) in [
            (tensor(&[], &[-2i64]), tensor(&[2], &[0u8, 1]), "depth is -2"),
            (
                tensor(&[2], &[1i64, 2]),
                tensor(&[2], &[0u8, 1]),
                "depth must have one element, not 2",
            ),
            (tensor(&[], &[2i64]), tensor(&[1], &[0u8]), "values must have two elements, not 1"),
        ] {
            let inputs = [Some(&indices), Some(&depth), Some(&values)];
            assert_eq!(run("OneHot", &[], &inputs, 1).unwrap_err(), refusal);
        }
    }

    #[test]
    fn triangles() {
        let x = tensor(&[1, 2, 3], &[1u16, 2, 3, 4, 5, 6]);
        for (upper, k, expected) in [
            (1, None, [1u16, 2, 3, 0, 5, 6]),
            (0, None, [1, 0, 0, 4, 5, 0]),
            (1, Some(1i64), [0, 2, 3, 0, 0, 6]),
            (0, Some(-1), [0, 0, 0, 4, 0, 0]),
        ] {
            let k = k.map(|k| tensor(&[], &[k]));
            let found = run("Trilu", &[("upper", Int(upper))], &[Some(&x), k.as_ref()], 1).unwrap();
            assert_eq!(found[0], tensor(&[1, 2, 3], &expected));
        }
        let vector = tensor(&[3], &[1u16, 2, 3]);
        let found = run("Trilu", &[], &[Some(&vector)], 1);
        assert_eq!(found.unwrap_err(), "the input has rank 1, not 2 or more");
    }
}
