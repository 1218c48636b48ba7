//! RotaryEmbedding: rotates pairs of features by their position.

use std::marker::PhantomData;

use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::rotary::{Angles, Rotary, RotaryDims};
use sardonyx_tensor::{Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

/// Binds `RotaryEmbedding`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let size = |name: &str, size: i64| match usize::try_from(size) {
        Ok(size) => Ok(size),
        Err(_) => Err(BindError::Invalid(format!("attribute '{name}' is {size}"))),
    };
    let interleaved = site.need_int("interleaved")? != 0;
    let heads = size("num_heads", site.int("num_heads").unwrap_or(0))?;
    let rotated = size("rotary_embedding_dim", site.int("rotary_embedding_dim").unwrap_or(0))?;
    for_element!(site, site.elem(0)?, [f32, half::f16, half::bf16], T => RotaryEmbedding::<T> {
        interleaved,
        heads,
        rotated,
        elements: PhantomData,
    })
}

struct RotaryEmbedding<T> {
    interleaved: bool,
    /// Heads packed into the last axis of an input of rank 3.
    heads: usize,
    /// Number of rotated features; 0 for all.
    rotated: usize,
    elements: PhantomData<fn() -> T>,
}

impl<T> RotaryEmbedding<T> {
    /// Returns batch, length, and the dims of the heads.
    fn layout(&self, dims: &[usize]) -> Result<(usize, usize, RotaryDims), KernelError> {
        match *dims {
            [batch, heads, length, features] => {
                Ok((batch, length, RotaryDims { outer: batch, heads, inner: length, features }))
            }
            [batch, length, packed] => {
                if self.heads == 0 || packed % self.heads != 0 {
                    fail!("{packed} features cannot be divided into {} heads", self.heads);
                }
                let features = packed / self.heads;
                let outer = batch * length;
                Ok((batch, length, RotaryDims { outer, heads: self.heads, inner: 1, features }))
            }
            _ => fail!("the input has rank {}, not 3 or 4", dims.len()),
        }
    }
}

impl<T: Element + FloatLoops> Kernel for RotaryEmbedding<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        let (batch, length, layout) = self.layout(&dims)?;
        let features = layout.features;
        let rotated = if self.rotated == 0 { features } else { self.rotated };
        if rotated > features || rotated % 2 != 0 {
            fail!("{rotated} of {features} features cannot be rotated in pairs");
        }
        let (cos_dims, sin_dims) = (call.tensor(1)?.dims(), call.tensor(2)?.dims());
        if cos_dims != sin_dims {
            fail!("the caches have different dimensions, {cos_dims:?} and {sin_dims:?}");
        }
        // A single batch is broadcast.
        let for_tokens =
            |found: &[usize]| matches!(*found, [b, l] if l == length && (b == batch || b == 1));
        let (columns, positions) = match (cos_dims, call.maybe_slice::<i64>(3)?) {
            (&[rows, columns], Some(positions)) => {
                let found = call.tensor(3)?.dims();
                if !for_tokens(found) {
                    fail!(
                        "position_ids has shape {found:?}, but there are [{batch}, {length}] tokens"
                    );
                }
                let end = rows as i64;
                if let Some(position) = positions.iter().find(|p| !(-end..end).contains(p)) {
                    fail!("position {position} is out of range: the caches have {rows} rows");
                }
                (columns, Some(positions))
            }
            (&[ref tokens @ .., columns], None) => {
                if !for_tokens(tokens) {
                    fail!(
                        "the caches have angles for {tokens:?}, but there are [{batch}, {length}] tokens"
                    );
                }
                (columns, None)
            }
            (other, _) => fail!("the caches have dimensions {other:?}"),
        };
        if columns < rotated / 2 {
            fail!("the caches have {columns} columns for {} pairs", rotated / 2);
        }
        let which = Rotary { interleaved: self.interleaved, pairs: rotated / 2, columns };
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let (cos, sin) = (call.slice::<T>(1)?, call.slice::<T>(2)?);
        let y = call.output_slice::<T>(0, &dims)?;
        T::rotary(exec, which, layout, x, Angles { cos, sin, positions }, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("rotary embedding of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, tensor};

    /// Makes cosines and sines that rotate position 0 not at all, position 1 by a quarter turn and
    /// position 2 by half a turn.
    fn caches() -> (Tensor, Tensor) {
        (tensor(&[3, 1], &[1f32, 0.0, -1.0]), tensor(&[3, 1], &[0f32, 1.0, 0.0]))
    }

    #[test]
    fn heads_turn() {
        let (cos, sin) = caches();
        let positions = tensor(&[1, 3], &[0i64, 1, -1]);
        let third = |cache: &Tensor| cache.reshape([1, 3, 1]).unwrap();
        // Two heads at three positions, one after the other or beside each other.
        let outside = tensor(&[1, 2, 3, 2], &[1f32, 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12.]);
        let rotated = [1f32, 2., -4., 3., -5., -6., 7., 8., -10., 9., -11., -12.];
        let inside = tensor(&[1, 3, 4], &[1f32, 2., 7., 8., 3., 4., 9., 10., 5., 6., 11., 12.]);
        let rotated_inside = [1f32, 2., 7., 8., -4., 3., -10., 9., -5., -6., -11., -12.];
        for interleaved in [0, 1] {
            let attributes = [("interleaved", Int(interleaved)), ("num_heads", Int(2))];
            for (x, expected) in [(&outside, &rotated), (&inside, &rotated_inside)] {
                let by_position = [Some(x), Some(&cos), Some(&sin), Some(&positions)];
                let found = run("RotaryEmbedding", &attributes, &by_position, 1).unwrap();
                assert_eq!(found[0], tensor(x.dims(), expected));
                let by_token = [Some(x), Some(&third(&cos)), Some(&third(&sin))];
                let found = run("RotaryEmbedding", &attributes, &by_token, 1).unwrap();
                assert_eq!(found[0], tensor(x.dims(), expected));
            }
        }
    }

    #[test]
    fn some_features_stay() {
        let (cos, sin) = (tensor(&[1, 2], &[0f32, -1.0]), tensor(&[1, 2], &[1f32, 0.0]));
        let x = tensor(&[1, 1, 1, 5], &[1f32, 2.0, 3.0, 4.0, 5.0]);
        let positions = tensor(&[1, 1], &[0i64]);
        for (interleaved, rotated, expected) in [
            (0, 4, [-3f32, -2.0, 1.0, -4.0, 5.0]),
            (1, 4, [-2.0, 1.0, -3.0, -4.0, 5.0]),
            (0, 2, [-2.0, 1.0, 3.0, 4.0, 5.0]),
        ] {
            let attributes =
                [("interleaved", Int(interleaved)), ("rotary_embedding_dim", Int(rotated))];
            let inputs = [Some(&x), Some(&cos), Some(&sin), Some(&positions)];
            let found = run("RotaryEmbedding", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[1, 1, 1, 5], &expected), "{interleaved} {rotated}");
        }
    }

    #[test]
    fn what_does_not_fit() {
        let (cos, sin) = caches();
        let of = |dims: &[usize], positions: Option<&Tensor>, heads| {
            let x = Tensor::zeros(sardonyx_tensor::DataType::Float, dims).unwrap();
            let inputs = [Some(&x), Some(&cos), Some(&sin), positions];
            run("RotaryEmbedding", &[("num_heads", Int(heads))], &inputs, 1).unwrap_err()
        };
        let positions = tensor(&[1, 2], &[0i64, 3]);
        for (dims, positions, heads, refusal) in [
            (&[1, 2, 6][..], Some(&positions), 4, "6 features cannot be divided into 4 heads"),
            (&[1, 2, 6], Some(&positions), 2, "3 of 3 features cannot be rotated in pairs"),
            (&[1, 2, 4], Some(&positions), 2, "position 3 is out of range: the caches have 3 rows"),
            (
                &[1, 2, 8],
                Some(&tensor(&[1, 2], &[0i64, 1])),
                2,
                "the caches have 1 columns for 2 pairs",
            ),
            (
                &[1, 3, 4],
                Some(&positions),
                2,
                "position_ids has shape [1, 2], but there are [1, 3] tokens",
            ),
            (&[1, 3, 4], None, 2, "the caches have angles for [3], but there are [1, 3] tokens"),
            (&[2, 2], None, 2, "the input has rank 2, not 3 or 4"),
        ] {
            assert_eq!(of(dims, positions, heads), refusal);
        }
    }
}
