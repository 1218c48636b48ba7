//! Dropout: the identity at inference, with a mask of ones; random elements are dropped in
//! training.

use std::marker::PhantomData;

use sardonyx_kernels::number::Number;
use sardonyx_kernels::random;
use sardonyx_tensor::{Bool8, DataType, Dims, Element, Tensor};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::layout::{Layout, ViewSite};
use crate::ops::math::for_element;
use crate::ops::narrow::{narrow, widen};
use crate::ops::random::{describe_generator, int_seed};
use crate::ops::tensor::moves::copy_view;
use crate::program::{Dropout, MoveKind, Op};
use crate::scratch::Scratch;

/// Lowers `Dropout`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let is_zero = |index: usize| {
        let constant = site.constant(index).map(Tensor::bytes);
        constant.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    };
    let trains = site.has_input(2) && !is_zero(2);
    // Training with a constant ratio of 0 is inference.
    if trains && !is_zero(1) {
        return Ok(Op::opaque(site));
    }
    let dropout = Dropout { has_mask: site.has_output(1) };
    Ok(Op::moves(MoveKind::Dropout(dropout), site))
}

/// Binds `Dropout` that may train.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let seed = int_seed(site)?;
    match site.elem(0)? {
        DataType::Float8e4m3fn
        | DataType::Float8e4m3fnuz
        | DataType::Float8e5m2
        | DataType::Float8e5m2fnuz => Ok(Box::new(TrainingNarrow { seed })),
        elem => {
            for_element!(site, elem, floats, T => Training::<T> { seed, elements: PhantomData })
        }
    }
}

impl Dropout {
    pub(in crate::ops) fn view(self, site: &ViewSite<'_>) -> Option<Layout> {
        // A mask has to be written, so the node has to run.
        (!self.has_mask).then(|| site.layout.clone())
    }
}

impl Kernel for Dropout {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        keep_all(call)
    }

    fn describe(&self) -> String {
        if self.has_mask { "copy" } else { "view" }.to_string()
    }
}

/// Copies the input and fills the mask, as at inference.
fn keep_all(call: &mut Call<'_>) -> Result<(), KernelError> {
    let input = call.tensor(0)?.clone();
    let dims: Dims = input.dims().into();
    if call.has_output(0) {
        copy_view(call, 0, &input, &dims)?;
    }
    if call.has_output(1) {
        call.output_slice::<Bool8>(1, &dims)?.fill(Bool8::from(true));
    }
    Ok(())
}

/// Ratio of dropped elements, and the factor of the others.
struct Dropped {
    ratio: f64,
    scale: f64,
}

impl Dropped {
    /// Reads the inputs; `None` at inference, and if no element is dropped.
    fn read(call: &Call<'_>) -> Result<Option<Dropped>, KernelError> {
        let trains = match call.maybe_tensor(2)? {
            Some(flag) => flag.contiguous_bytes() != Some(&[0]),
            None => false,
        };
        if !trains {
            return Ok(None);
        }
        let dropped = match call.maybe_tensor(1)? {
            None => Dropped { ratio: 0.5, scale: 2.0 },
            Some(ratio) if ratio.len() != 1 => {
                fail!("the ratio must have one element, not {}", ratio.len());
            }
            // Computed in the precision of ratio or data: a 32-bit scale would be inexact for
            // doubles.
            Some(ratio) if ratio.data_type() == DataType::Double => {
                let ratio = call.slice::<f64>(1)?[0];
                Dropped { ratio, scale: 1.0 / (1.0 - ratio) }
            }
            Some(ratio) => {
                let narrow = widen(call, ratio)?[0];
                let ratio = f64::from(narrow);
                let scale = match call.tensor(0)?.data_type() {
                    DataType::Double => 1.0 / (1.0 - ratio),
                    _ => f64::from(1.0 / (1.0 - narrow)),
                };
                Dropped { ratio, scale }
            }
        };
        let ratio = dropped.ratio;
        if !(0.0..1.0).contains(&ratio) {
            fail!("the ratio is {ratio}, but must be at least 0 and less than 1");
        }
        Ok((ratio != 0.0).then_some(dropped))
    }
}

struct Training<T> {
    seed: Option<u32>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element> Kernel for Training<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Some(Dropped { ratio, scale }) = Dropped::read(call)? else {
            return keep_all(call);
        };
        let (exec, generator) = (call.exec, call.random.generator(self.seed));
        let dims = Dims::from(call.tensor(0)?.dims());
        let x = call.slice::<T>(0)?;
        let mut mask = mask_for(call, x.len())?;
        let out = call.output_slice::<T>(0, &dims)?;
        random::dropout(exec, generator, ratio, scale, x, out, mask.as_deref_mut())?;
        write_mask(call, &dims, mask)
    }

    fn describe(&self) -> String {
        describe_generator(&format!("training {}", T::DATA_TYPE), self.seed)
    }
}

/// Training on floats of 8 bits, computed in `f32`.
struct TrainingNarrow {
    seed: Option<u32>,
}

impl Kernel for TrainingNarrow {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Some(Dropped { ratio, scale }) = Dropped::read(call)? else {
            return keep_all(call);
        };
        let (exec, generator) = (call.exec, call.random.generator(self.seed));
        let input = call.tensor(0)?.clone();
        let dims = Dims::from(input.dims());
        let x = widen(call, &input)?;
        let mut y = call.scratch::<f32>(x.len())?;
        let mut mask = mask_for(call, x.len())?;
        random::dropout(exec, generator, ratio, scale, &x, &mut y, mask.as_deref_mut())?;
        narrow(call, 0, input.data_type(), &dims, &y)?;
        write_mask(call, &dims, mask)
    }

    fn describe(&self) -> String {
        describe_generator("training, widened", self.seed)
    }
}

/// Allocates a mask if it has a reader.
fn mask_for(call: &Call<'_>, len: usize) -> Result<Option<Scratch<u8>>, KernelError> {
    call.has_output(1).then(|| call.scratch(len)).transpose()
}

fn write_mask(
    call: &mut Call<'_>,
    dims: &Dims,
    mask: Option<Scratch<u8>>,
) -> Result<(), KernelError> {
    if let Some(mask) = mask {
        call.output(1, DataType::Bool, dims)?.bytes_mut().copy_from_slice(&mask);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::{CastOptions, cast};

    use super::*;
    use crate::ops::testing::{run, run_with_constants, tensor};

    /// Runs with seed 0. `RandomState(0).rand(4)` is 0.5488, 0.7152, 0.6028, 0.5449.
    fn run_seeded(inputs: &[Option<&Tensor>]) -> Result<Vec<Tensor>, String> {
        run("Dropout", &[("seed", Int(0))], inputs, 2)
    }

    #[test]
    fn every_type_trains() {
        let on = tensor(&[], &[Bool8(1)]);
        let to = |tensor: &Tensor, elem| cast(tensor, elem, CastOptions::default()).unwrap();
        let types = [
            DataType::Float,
            DataType::Double,
            DataType::Float16,
            DataType::Bfloat16,
            DataType::Float8e4m3fn,
            DataType::Float8e4m3fnuz,
            DataType::Float8e5m2,
            DataType::Float8e5m2fnuz,
        ];
        // 0.625 is an 8-bit float, its scale is not: 2.6666667.
        let x = tensor(&[2, 2], &[1f32, 3.0, -6.0, 8.0]);
        let expected = tensor(&[2, 2], &[0f32, 8.0, -0.0, 0.0]);
        let mask = tensor(&[2, 2], &[0, 1, 0, 0].map(Bool8));
        for data in types {
            for elem in types {
                let ratio = to(&tensor(&[], &[0.625f32]), elem);
                let found = run_seeded(&[Some(&to(&x, data)), Some(&ratio), Some(&on)]).unwrap();
                assert_eq!(found, [to(&expected, data), mask.clone()], "{data:?} {elem:?}");
            }
        }
        let halves = [1.0, -2.0].map(f16::from_f32);
        let found = run_seeded(&[Some(&tensor(&[2], &halves)), None, Some(&on)]).unwrap();
        assert_eq!(found[0], tensor(&[2], &[2.0, -4.0].map(f16::from_f32)));
        assert_eq!(found[1], tensor(&[2], &[Bool8(1); 2]));
    }

    #[test]
    fn nothing_drops_at_inference_or_with_a_ratio_of_zero() {
        let x = tensor(&[2, 2], &[1f32, f32::NAN, -4.0, 8.0]);
        let all = tensor(&[2, 2], &[Bool8(1); 4]);
        let [off, on] = [0, 1].map(|flag| tensor(&[], &[Bool8(flag)]));
        let [none, minus, half, two] = [0.0, -0.0, 0.5, 2.0f32].map(|ratio| tensor(&[], &[ratio]));
        for inputs in [
            &[Some(&x)][..],
            &[Some(&x), Some(&two), Some(&off)],
            &[Some(&x), None, Some(&off)],
            &[Some(&x), Some(&none), Some(&on)],
            &[Some(&x), Some(&minus), Some(&on)],
        ] {
            for constants in [&[][..], &[1, 2]] {
                let found = run_with_constants("Dropout", &[], inputs, constants, 2).unwrap();
                assert_eq!((found[0].bytes(), &found[1]), (x.bytes(), &all));
            }
        }
        let found = run_seeded(&[Some(&x), Some(&half), Some(&on)]).unwrap();
        assert_eq!(found[1], all);
        let inputs = [Some(&x), Some(&half), Some(&on)];
        assert_eq!(run("Dropout", &[("seed", Int(0))], &inputs, 1).unwrap().len(), 1);
    }

    #[test]
    fn ratios_and_seeds_are_refused() {
        let (x, on) = (tensor(&[2], &[1f32; 2]), tensor(&[], &[Bool8(1)]));
        for (ratio, refusal) in [
            (tensor(&[], &[1f32]), "the ratio is 1, but must be at least 0 and less than 1"),
            (tensor(&[], &[-0.5f64]), "the ratio is -0.5, but must be at least 0 and less than 1"),
            (tensor(&[], &[bf16::NAN]), "the ratio is NaN, but must be at least 0 and less than 1"),
            (tensor(&[2], &[0.5f32; 2]), "the ratio must have one element, not 2"),
        ] {
            let found = run_seeded(&[Some(&x), Some(&ratio), Some(&on)]);
            assert_eq!(found.unwrap_err(), refusal);
        }
        for seed in [-1, 1 << 32] {
            let found = run("Dropout", &[("seed", Int(seed))], &[Some(&x), None, Some(&on)], 1);
            let refusal = format!("attribute 'seed' is {seed}, but must be from 0 to 4294967295");
            assert_eq!(found.unwrap_err(), refusal);
        }
    }
}
