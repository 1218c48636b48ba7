//! Normalizations that look at one example only.

use std::borrow::Cow;
use std::marker::PhantomData;

use sardonyx_kernels::elementwise::MAX_RANK;
use sardonyx_kernels::number::Number;
use sardonyx_kernels::{FloatLoops, Pool, copy};
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, cast_slices, shape::normalize_axis};

use super::batch_normalization::wide;
use crate::kernel::{BindError, Call, Kernel, KernelError, Site, fail};
use crate::ops::math::for_element;
use crate::ops::narrow::narrow;

/// `LayerNormalization`
pub(crate) fn bind_layer(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, epsilon) = (site.need_int("axis")?, epsilon(site));
    // Sums are kept in double precision whatever it says; what is left of it is the type of the statistics.
    let stash = stash_type(site)?;
    for_element!(site, site.elem(0)?, floats, T => LayerNormalization::<T> {
        axis,
        epsilon,
        stash,
        elements: PhantomData,
    })
}

/// `RMSNormalization`
pub(crate) fn bind_root_mean_square(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, epsilon) = (site.need_int("axis")?, epsilon(site));
    let (elem, scale) = (site.elem(0)?, site.elem(1)?);
    if elem != scale {
        // Any pair of floats.
        for elem in [elem, scale] {
            if !elem_is_float(elem) {
                return site.unsupported_type(elem);
            }
        }
        return Ok(Box::new(MixedRootMeanSquare {
            axis,
            epsilon,
            scale,
        }));
    }
    for_element!(site, elem, floats, T => RootMeanSquare::<T> {
        axis,
        epsilon,
        elements: PhantomData,
    })
}

fn elem_is_float(elem: DataType) -> bool {
    matches!(
        elem,
        DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16
    )
}

fn epsilon(site: &Site<'_>) -> f64 {
    f64::from(site.float("epsilon").unwrap_or(1e-5))
}

/// The type that statistics are computed in.
fn stash_type(site: &Site<'_>) -> Result<DataType, BindError> {
    let number = site.int("stash_type").unwrap_or(1);
    let found = i32::try_from(number).ok().and_then(DataType::from_number);
    match found {
        Some(stash) if elem_is_float(stash) => Ok(stash),
        Some(other) => site.unsupported_type(other),
        None => Err(BindError::Invalid(format!(
            "attribute 'stash_type' is {number}, which is no element type"
        ))),
    }
}

struct LayerNormalization<T> {
    axis: i64,
    epsilon: f64,
    stash: DataType,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for LayerNormalization<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let axis = normalize_axis(self.axis, dims.len())?;
        let rows = [product(&dims[..axis]), product(&dims[axis..])];
        let (pool, isa, x) = (call.pool, call.isa, call.slice::<T>(0)?);
        let scale = over_rows::<T>(call, 1, &dims, axis)?;
        let bias = match call.has_input(2) {
            true => Some(over_rows::<T>(call, 2, &dims, axis)?),
            false => None,
        };
        let statistic = |wanted: bool| wanted.then(|| vec![0f32; rows[0]]);
        let (mut means, mut inverses) =
            (statistic(call.has_output(1)), statistic(call.has_output(2)));
        let y = call.output_slice::<T>(0, &dims)?;
        T::layer_norm(
            pool,
            isa,
            rows,
            x,
            None,
            &scale,
            bias.as_deref(),
            self.epsilon,
            y,
            None,
            means.as_deref_mut(),
            inverses.as_deref_mut(),
        );
        let mut reduced = dims;
        reduced[axis..].fill(1);
        for (index, statistic) in [(1, means), (2, inverses)] {
            if let Some(statistic) = statistic {
                narrow(call, index, self.stash, &reduced, statistic)?;
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("layer normalization of {}", T::DATA_TYPE)
    }
}

struct RootMeanSquare<T> {
    axis: i64,
    epsilon: f64,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for RootMeanSquare<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let axis = normalize_axis(self.axis, dims.len())?;
        let rows = [product(&dims[..axis]), product(&dims[axis..])];
        let (pool, isa, x) = (call.pool, call.isa, call.slice::<T>(0)?);
        let scale = over_rows::<T>(call, 1, &dims, axis)?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::rms_norm(pool, isa, rows, x, None, &scale, self.epsilon, y, None);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("root-mean-square normalization of {}", T::DATA_TYPE)
    }
}

/// The output has the type of the scale, which is not that of the input. Computed in double precision.
struct MixedRootMeanSquare {
    axis: i64,
    epsilon: f64,
    scale: DataType,
}

impl Kernel for MixedRootMeanSquare {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let axis = normalize_axis(self.axis, dims.len())?;
        let rows = [product(&dims[..axis]), product(&dims[axis..])];
        let (pool, isa) = (call.pool, call.isa);
        let (x, scale) = (wide(call.tensor(0)?)?, wide(call.tensor(1)?)?);
        let scale = stretched(pool, 1, &scale, call.tensor(1)?.dims(), &dims, axis)?;
        let mut y = vec![0f64; x.len()];
        f64::rms_norm(
            pool,
            isa,
            rows,
            &x,
            None,
            &scale,
            self.epsilon,
            &mut y,
            None,
        );
        let mut output = call.output(0, self.scale, &dims)?;
        Ok(cast_slices(
            DataType::Double,
            bytemuck::cast_slice(&y),
            self.scale,
            output.bytes_mut(),
            y.len(),
            CastOptions::default(),
        )?)
    }

    fn describe(&self) -> String {
        format!("root-mean-square normalization to {}", self.scale)
    }
}

fn product(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// The elements of an input that stretches over all elements of an axis and those behind it: one row of them, or one for
/// each row of the output where they differ from row to row.
fn over_rows<'a, T: Element + Number>(
    call: &Call<'a>,
    index: usize,
    dims: &[usize],
    axis: usize,
) -> Result<Cow<'a, [T]>, KernelError> {
    let (values, own) = (call.slice::<T>(index)?, call.tensor(index)?.dims());
    stretched(call.pool, index, values, own, dims, axis)
}

fn stretched<'a, T: Element + Number>(
    pool: &Pool,
    index: usize,
    values: &'a [T],
    own: &[usize],
    dims: &[usize],
    axis: usize,
) -> Result<Cow<'a, [T]>, KernelError> {
    let fits = own.len() <= dims.len() && {
        let pairs = own.iter().rev().zip(dims.iter().rev());
        pairs
            .into_iter()
            .all(|(own, size)| own == size || *own == 1)
    };
    if !fits {
        fail!("input {index} has dimensions {own:?}, which do not stretch to {dims:?}");
    }
    if dims.len() > MAX_RANK {
        fail!(
            "the rank is {}, but at most {MAX_RANK} is implemented",
            dims.len()
        );
    }
    // Axes of size 1 in front say nothing.
    let first = own.iter().position(|size| *size != 1).unwrap_or(own.len());
    let (skipped, own) = (dims.len() - (own.len() - first), &own[first..]);
    let target = if skipped < axis { dims } else { &dims[axis..] };
    if values.len() == product(target) {
        return Ok(Cow::Borrowed(values));
    }
    let mut all = vec![T::ZERO; product(target)];
    copy::expand(pool, own, target, values, &mut all);
    Ok(Cow::Owned(all))
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{Float, Int};
    use sardonyx_tensor::Tensor;

    use super::*;
    use crate::ops::testing::{run, tensor};

    #[test]
    fn layers() {
        let x = tensor(&[2, 2, 2], &[1f32, 3.0, 5.0, 9.0, -1.0, 1.0, 2.0, 2.0]);
        let of_last = tensor(&[2], &[2f32, 10.0]);
        let exact = [("epsilon", Float(0.0))];
        let found = run(
            "LayerNormalization",
            &exact,
            &[Some(&x), Some(&of_last), Some(&of_last)],
            3,
        )
        .unwrap();
        let expected = [0f32, 20.0, 0.0, 20.0, 0.0, 20.0];
        assert_eq!(found[0].to_vec::<f32>().unwrap()[..6], expected);
        // Two equal elements without an epsilon have no deviation.
        assert!(found[0].to_vec::<f32>().unwrap()[6].is_nan());
        assert_eq!(found[1], tensor(&[2, 2, 1], &[2f32, 7.0, 0.0, 2.0]));
        assert_eq!(
            found[2],
            tensor(&[2, 2, 1], &[1f32, 0.5, 1.0, f32::INFINITY])
        );

        // (axis, dimensions of the scale, its elements, what the output is)
        let rows: [(i64, &[usize], &[f32], [f32; 8]); 4] = [
            (1, &[], &[2.0], [-2.0, 2.0, -2.0, 2.0, -2.0, 2.0, -2.0, 2.0]),
            (
                1,
                &[2, 1],
                &[1.0, 3.0],
                [-1.0, 1.0, -3.0, 3.0, -1.0, 1.0, -3.0, 3.0],
            ),
            (
                -2,
                &[1, 1, 2],
                &[1.0, 3.0],
                [-1.0, 3.0, -1.0, 3.0, -1.0, 3.0, -1.0, 3.0],
            ),
            (
                1,
                &[2, 1, 1],
                &[1.0, 3.0],
                [-1.0, 1.0, -1.0, 1.0, -3.0, 3.0, -3.0, 3.0],
            ),
        ];
        let x = tensor(&[2, 2, 2], &[1f32, 3.0, 1.0, 3.0, -1.0, 1.0, -1.0, 1.0]);
        for (axis, dims, scale, expected) in rows {
            let attributes = [("axis", Int(axis)), exact[0].clone()];
            let inputs = [Some(&x), Some(&tensor(dims, scale))];
            let found = run("LayerNormalization", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 2, 2], &expected), "{axis} {dims:?}");
        }
    }

    #[test]
    fn layers_that_do_not_fit() {
        let of = |dims: &[usize], scale: &[usize], axis| {
            let zeros = |dims: &[usize]| Tensor::zeros(DataType::Float, dims).unwrap();
            let inputs = [Some(&zeros(dims)), Some(&zeros(scale))];
            run("LayerNormalization", &[("axis", Int(axis))], &inputs, 2)
        };
        assert_eq!(
            of(&[2, 3], &[2], -1).unwrap_err(),
            "input 1 has dimensions [2], which do not stretch to [2, 3]"
        );
        assert_eq!(
            of(&[2, 3], &[3], 2).unwrap_err(),
            "axis 2 is outside rank 2"
        );
        let nothing = of(&[2, 0], &[0], -1).unwrap();
        assert!(
            nothing[1]
                .to_vec::<f32>()
                .unwrap()
                .iter()
                .all(|mean| mean.is_nan())
        );
        assert_eq!(of(&[0, 3], &[3], -1).unwrap()[1].dims(), [0, 1]);
    }

    #[test]
    fn narrow_layers_have_wide_statistics() {
        let half = half::f16::from_f32;
        let x = tensor(&[1, 2], &[half(2.0), half(4.0)]);
        let scale = tensor(&[2], &[half(1.0), half(2.0)]);
        let exact = [("epsilon", Float(0.0))];
        let inputs = [Some(&x), Some(&scale)];
        let found = run("LayerNormalization", &exact, &inputs, 2).unwrap();
        assert_eq!(found[0], tensor(&[1, 2], &[half(-1.0), half(2.0)]));
        assert_eq!(found[1], tensor(&[1, 1], &[3f32]));
        let stash = ("stash_type", Int(16));
        let found = run("LayerNormalization", &[exact[0].clone(), stash], &inputs, 2).unwrap();
        assert_eq!(found[1], tensor(&[1, 1], &[half::bf16::from_f32(3.0)]));
    }

    #[test]
    fn root_mean_squares() {
        let x = tensor(&[2, 2], &[1f32, -7.0, 3.0, 4.0]);
        let exact = [("epsilon", Float(0.0))];
        let scale = tensor(&[2], &[5f32, 10.0]);
        let inputs = [Some(&x), Some(&scale)];
        let found = run("RMSNormalization", &exact, &inputs, 1).unwrap();
        let root = 12.5f32.sqrt();
        let expected = [1.0, -14.0, 15.0 / root, 40.0 / root];
        for (found, expected) in found[0].to_vec::<f32>().unwrap().iter().zip(expected) {
            let error = (found - expected).abs();
            assert!(
                error <= 2.0 * f32::EPSILON * expected.abs(),
                "{found} {expected}"
            );
        }
        // All of it at once, with a scale of another type.
        let x = tensor(
            &[1, 2],
            &[half::f16::from_f32(1.0), half::f16::from_f32(-7.0)],
        );
        let axis = [("axis", Int(0)), exact[0].clone()];
        let inputs = [Some(&x), Some(&scale)];
        let found = run("RMSNormalization", &axis, &inputs, 1).unwrap();
        assert_eq!(found[0], tensor(&[1, 2], &[1f32, -14.0]));
    }
}
