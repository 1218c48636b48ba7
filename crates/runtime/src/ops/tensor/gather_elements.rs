//! GatherElements and GatherND: pick elements by index or by tuples of indices.

use sardonyx_kernels::copy::Indices;
use sardonyx_kernels::{MoveLoops, Pool};
use sardonyx_tensor::{DataType, Dims, shape::normalize_axis};

use super::moves::{Movement, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Binds `GatherElements`.
pub(crate) fn bind_gather_elements(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(GatherElements { axis: site.need_int("axis")? }))
}

/// Binds `GatherND`.
pub(crate) fn bind_gather_nd(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(GatherNd { batch_dims: site.need_int("batch_dims")? }))
}

/// Returns the indices of an input.
pub(super) fn indices_of<'a>(call: &Call<'a>, index: usize) -> Result<Indices<'a>, KernelError> {
    match call.tensor(index)?.data_type() {
        DataType::Int64 => Ok(Indices::Long(call.slice(index)?)),
        DataType::Int32 => Ok(Indices::Short(call.slice(index)?)),
        other => fail!("indices have type {}, not int64 or int32", other.name()),
    }
}

/// Refuses indices that are not an index for some positions of `dims`, any number along the axis.
pub(super) fn check_elements(
    dims: &[usize],
    index_dims: &[usize],
    axis: usize,
) -> Result<(), KernelError> {
    if dims.len() != index_dims.len() {
        fail!("the data has rank {} and the indices have rank {}", dims.len(), index_dims.len());
    }
    let sizes = dims.iter().zip(index_dims).enumerate();
    for (other, (size, indices)) in sizes.filter(|(other, _)| *other != axis) {
        if indices > size {
            fail!("axis {other} has size {indices} in the indices, but {size} in the data");
        }
    }
    Ok(())
}

struct GatherElements {
    axis: i64,
}

impl Kernel for GatherElements {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let axis = normalize_axis(self.axis, data.rank())?;
        let index_dims = Dims::from(call.tensor(1)?.dims());
        check_elements(data.dims(), &index_dims, axis)?;
        let picked = GatheredElements {
            axis,
            dims: data.dims().into(),
            index_dims: &index_dims,
            indices: indices_of(call, 1)?,
        };
        move_elements(call, 0, &index_dims, &[data], &picked)
    }

    fn describe(&self) -> String {
        "gather elements".to_string()
    }
}

struct GatheredElements<'a> {
    axis: usize,
    dims: Dims,
    index_dims: &'a [usize],
    indices: Indices<'a>,
}

impl Movement for GatheredElements<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        let &GatheredElements { axis, ref dims, index_dims, indices } = self;
        T::gather_elements(pool, axis, dims, sources[0], index_dims, indices, out).map_err(
            |failure| KernelError::from_failure(failure, |error| format!("axis {axis}: {error}")),
        )
    }
}

struct GatherNd {
    batch_dims: i64,
}

impl Kernel for GatherNd {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let from = Dims::from(data.dims());
        let [outer @ .., depth] = call.tensor(1)?.dims() else {
            fail!("the indices must not be a scalar");
        };
        let (outer, depth) = (Dims::from(outer), *depth);
        let batch_dims = usize::try_from(self.batch_dims).unwrap_or(usize::MAX);
        if batch_dims > outer.len() || batch_dims > from.len() {
            fail!(
                "batch_dims is {}, but the data has dimensions {from:?} and the indices have {} before the tuples",
                self.batch_dims,
                outer.len()
            );
        }
        if from[..batch_dims] != outer[..batch_dims] {
            fail!(
                "the first {batch_dims} dimensions of the data, {:?}, and of the indices, {:?}, differ",
                &from[..batch_dims],
                &outer[..batch_dims]
            );
        }
        if depth == 0 || depth > from.len() - batch_dims {
            fail!(
                "tuples have {depth} indices, but there are {} dimensions to index",
                from.len() - batch_dims
            );
        }
        let mut dims = outer;
        dims.extend_from_slice(&from[batch_dims + depth..]);
        let indices = call.slice::<i64>(1)?;
        move_elements(call, 0, &dims, &[data], &Tuples { dims: from, batch_dims, depth, indices })
    }

    fn describe(&self) -> String {
        "gather by tuples".to_string()
    }
}

struct Tuples<'a> {
    dims: Dims,
    batch_dims: usize,
    depth: usize,
    indices: &'a [i64],
}

impl Movement for Tuples<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::gather_nd(pool, &self.dims, self.batch_dims, self.depth, sources[0], self.indices, out)
            .map_err(|failure| KernelError::from_failure(failure, |error| error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::{StringArray, Tensor};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn elements() {
        let data = tensor(&[2, 3], &[1u8, 2, 3, 4, 5, 6]);
        // (axis, dimensions of the indices, indices, what they pick)
        let rows: [(i64, &[usize], &[i32], &[u8]); 4] = [
            (0, &[1, 3], &[1, 0, -1], &[4, 2, 6]),
            (-1, &[2, 2], &[-1, 0, 1, 1], &[3, 1, 5, 5]),
            (1, &[1, 5], &[0, 1, 2, 1, 0], &[1, 2, 3, 2, 1]),
            (1, &[0, 2], &[], &[]),
        ];
        for (axis, dims, indices, expected) in rows {
            let long: Vec<i64> = indices.iter().map(|index| i64::from(*index)).collect();
            for indices in [tensor(dims, indices), tensor(dims, &long)] {
                let inputs = [Some(&data), Some(&indices)];
                let found = run("GatherElements", &[("axis", Int(axis))], &inputs, 1).unwrap();
                assert_eq!(found[0], tensor(dims, expected), "{axis}");
            }
        }
        for (dims, indices, refusal) in [
            (&[1, 2][..], &[0i64, 3][..], "axis 1: index 3 is outside of a dimension of size 3"),
            (&[2], &[0, 0], "the data has rank 2 and the indices have rank 1"),
            (&[3, 1], &[0, 0, 0], "axis 0 has size 3 in the indices, but 2 in the data"),
        ] {
            let inputs = [Some(&data), Some(&tensor(dims, indices))];
            let found = run("GatherElements", &[("axis", Int(1))], &inputs, 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }

    #[test]
    fn tuples() {
        let strings = |dims: &[usize], texts: &[&str]| {
            Tensor::from_strings(dims, texts.iter().collect::<StringArray>()).unwrap()
        };
        let data = strings(&[2, 2, 2], &["a", "b", "c", "d", "e", "f", "g", "h"]);
        // (batch_dims, dimensions of the indices, indices, dimensions of the output, what they
        // pick)
        type GatherRow =
            (i64, &'static [usize], &'static [i64], &'static [usize], &'static [&'static str]);
        let rows: [GatherRow; 5] = [
            (0, &[2, 3], &[0, 0, 1, -1, 1, -2], &[2], &["b", "g"]),
            (0, &[1, 1], &[-1], &[1, 2, 2], &["e", "f", "g", "h"]),
            (1, &[2, 1], &[1, 0], &[2, 2], &["c", "d", "e", "f"]),
            (2, &[2, 2, 1, 1], &[0, 1, 1, 0], &[2, 2, 1], &["a", "d", "f", "g"]),
            (0, &[0, 2], &[], &[0, 2], &[]),
        ];
        for (batch_dims, dims, indices, out, expected) in rows {
            let inputs = [Some(&data), Some(&tensor(dims, indices))];
            let found = run("GatherND", &[("batch_dims", Int(batch_dims))], &inputs, 1).unwrap();
            assert_eq!(found[0], strings(out, expected), "{batch_dims} {dims:?}");
        }
        for (batch_dims, dims, indices, refusal) in [
            (0, &[1, 2][..], &[1i64, 2][..], "index 2 is outside of a dimension of size 2"),
            (0, &[1, 2], &[-3, 0], "index -3 is outside of a dimension of size 2"),
            (0, &[], &[0], "the indices must not be a scalar"),
            (0, &[1, 4], &[0; 4], "tuples have 4 indices, but there are 3 dimensions to index"),
            (
                1,
                &[3, 1],
                &[0; 3],
                "the first 1 dimensions of the data, [2], and of the indices, [3], differ",
            ),
            (
                2,
                &[2, 1],
                &[0; 2],
                "batch_dims is 2, but the data has dimensions [2, 2, 2] and the indices have 1 before the tuples",
            ),
        ] {
            let inputs = [Some(&data), Some(&tensor(dims, indices))];
            let found = run("GatherND", &[("batch_dims", Int(batch_dims))], &inputs, 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }
}
