//! BatchNormalization: one multiplication and one addition per element. In training, mean and
//! variance are those of the input, and running statistics are outputs.
//!
//! Scale, shift, mean and variance may each have another type than the input. If all four are
//! constant, they are folded once, and a preceding convolution can absorb the result.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::norm::fold_batch_norm;
use sardonyx_kernels::number::{Math, Number};
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, TensorView, cast_slices};

use super::images::{OverPixels, WithPixels};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::ops::math::for_element;
use crate::program::{BatchNorm, Op, Parameters};
use crate::scratch::Scratch;

/// Lowers `BatchNormalization`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    if site.int("training_mode") == Some(1) {
        return Ok(Op::opaque(site));
    }
    let epsilon = f64::from(site.float("epsilon").unwrap_or(1e-5));
    let parameters = match constants(site, epsilon)? {
        Some((scale, shift)) => Parameters::Folded { scale: scale.into(), shift: shift.into() },
        None => {
            let slots = [site.slot(1)?, site.slot(2)?, site.slot(3)?, site.slot(4)?];
            Parameters::Given { slots, epsilon }
        }
    };
    let norm = BatchNorm { elem: site.elem(0)?, x: site.slot(0)?, parameters };
    Ok(Op::BatchNorm(Box::new(norm)))
}

/// Binds `BatchNormalization` in training.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let epsilon = f64::from(site.float("epsilon").unwrap_or(1e-5));
    let momentum = f64::from(site.float("momentum").unwrap_or(0.9));
    for_element!(site, site.elem(0)?, floats, T => Training::<T> { epsilon, momentum, elements: PhantomData })
}

struct Training<T> {
    epsilon: f64,
    momentum: f64,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element + FloatLoops> Kernel for Training<T>
where
    T::Real: Pod,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        // A vector is a batch with one channel.
        let (batch, channels) =
            (dims.first().copied().unwrap_or(1), dims.get(1).copied().unwrap_or(1));
        let inner = dims.iter().skip(2).product();
        let (gamma, beta) = (widen_input(call, 1)?, widen_input(call, 2)?);
        let mut running = [widen_input(call, 3)?, widen_input(call, 4)?];
        let mut found = call.scratch::<[f64; 2]>(channels)?;
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        T::channel_statistics(exec, [batch, channels, inner].into(), x, &mut found)?;
        let mut split = [call.scratch::<f64>(channels)?, call.scratch::<f64>(channels)?];
        for (which, split) in split.iter_mut().enumerate() {
            let values = split.iter_mut().zip(&found[..]);
            values.for_each(|(value, found)| *value = found[which]);
        }
        let mut scale = call.scratch::<T::Real>(channels)?;
        let mut shift = call.scratch::<T::Real>(channels)?;
        let parameters = [&gamma[..], &beta, &split[0], &split[1]];
        fold(parameters, self.epsilon, &mut scale, &mut shift)?;
        if call.has_output(0) {
            call.reserve_slices::<T>(2 * inner)?;
            let y = call.output_slice::<T>(0, &dims)?;
            T::scale_shift(exec, inner, &scale, &shift, x, y)?;
        }
        for (which, running) in running.iter_mut().enumerate() {
            if running.len() != channels {
                fail!("input {} has {} elements for {channels} channels", 3 + which, running.len());
            }
            if !call.has_output(1 + which) {
                continue;
            }
            for (running, found) in running.iter_mut().zip(&split[which][..]) {
                *running = *running * self.momentum + found * (1.0 - self.momentum);
            }
            let data_type = call.tensor(3 + which)?.data_type();
            let mut output = call.output(1 + which, data_type, &[channels])?;
            let (bytes, options) = (bytemuck::cast_slice(running), CastOptions::default());
            let target = output.bytes_mut();
            cast_slices(DataType::Double, bytes, data_type, target, channels, options)?;
        }
        Ok(())
    }
}

/// Returns scale and shift per channel, if all parameters are materialized constants.
fn constants(site: &Site<'_>, epsilon: f64) -> Result<Option<Folded<f64>>, BindError> {
    let constants: Option<Vec<Vec<f64>>> =
        (1..5).map(|index| site.constant(index).and_then(|c| widen(&c.view()).ok())).collect();
    let Some(constants) = constants else {
        return Ok(None);
    };
    let (mut scale, mut shift) = (vec![0.0; constants[0].len()], vec![0.0; constants[0].len()]);
    let parameters = std::array::from_fn(|index| &constants[index][..]);
    fold(parameters, epsilon, &mut scale, &mut shift)?;
    Ok(Some((scale, shift)))
}

/// Selects the kernel of a normalization of channels.
pub(crate) fn select(site: &Site<'_>, norm: &BatchNorm) -> Result<Selected, BindError> {
    let (folded, epsilon) = match &norm.parameters {
        Parameters::Folded { scale, shift } => (Some((scale.to_vec(), shift.to_vec())), 0.0),
        Parameters::Given { epsilon, .. } => (constants(site, *epsilon)?, *epsilon),
    };
    let is_given = matches!(norm.parameters, Parameters::Given { .. });
    let packed = if is_given && folded.is_some() { 1..5 } else { 0..0 };
    let pixels = folded.as_ref().map(|(scale, shift)| OverPixels::Affine {
        scale: narrow::<f32>(scale),
        shift: narrow::<f32>(shift),
    });
    let kernel: Result<Box<dyn Kernel>, BindError> = for_element!(site, norm.elem, floats, T => BatchNormalization::<T> {
        epsilon,
        folded: folded.map(|(scale, shift)| (narrow::<T>(&scale), narrow::<T>(&shift))),
        elements: PhantomData,
    });
    let kernel = match pixels {
        Some(pixels) => WithPixels::with_same_order(site, kernel?, pixels),
        None => kernel?,
    };
    Ok(Selected::from(kernel).with_packed(packed))
}

/// Converts numbers to the type in which elements are computed.
fn narrow<T: Number>(numbers: &[f64]) -> Vec<T::Real> {
    numbers.iter().map(|number| T::Real::from_f64(*number)).collect()
}

struct BatchNormalization<T: Number> {
    epsilon: f64,
    /// Scale and shift per channel.
    folded: Option<Folded<T::Real>>,
    elements: PhantomData<fn() -> T>,
}

type Folded<R> = (Vec<R>, Vec<R>);

/// Widens an input to double precision for the time of the call.
pub(in crate::ops) fn widen_input(
    call: &Call<'_>,
    index: usize,
) -> Result<Scratch<f64>, KernelError> {
    let view = call.tensor(index)?;
    let mut wide = call.scratch::<f64>(view.len())?;
    widen_into(view, &mut wide)?;
    Ok(wide)
}

/// Widens a constant to double precision.
fn widen(view: &TensorView<'_>) -> Result<Vec<f64>, KernelError> {
    let mut wide = vec![0f64; view.len()];
    widen_into(view, &mut wide)?;
    Ok(wide)
}

fn widen_into(view: &TensorView<'_>, wide: &mut [f64]) -> Result<(), KernelError> {
    let Some(bytes) = view.contiguous_bytes() else {
        fail!("a parameter is not dense");
    };
    let (target, options) = (bytemuck::cast_slice_mut(wide), CastOptions::default());
    Ok(cast_slices(view.data_type(), bytes, DataType::Double, target, view.len(), options)?)
}

/// Computes scale and shift per channel from `parameters`.
fn fold<R: Math>(
    parameters: [&[f64]; 4],
    epsilon: f64,
    scale: &mut [R],
    shift: &mut [R],
) -> Result<(), KernelError> {
    let lengths = parameters.map(<[f64]>::len);
    if lengths != [scale.len(); 4] {
        fail!("the parameters have {lengths:?} elements, but must have one for each channel");
    }
    let [gamma, beta, mean, variance] = parameters;
    fold_batch_norm(gamma, beta, mean, variance, epsilon, scale, shift);
    Ok(())
}

impl<T: Element + FloatLoops> Kernel for BatchNormalization<T>
where
    T::Real: Pod,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims: Dims = call.tensor(0)?.dims().into();
        // A vector is a batch with one channel.
        let channels = dims.get(1).copied().unwrap_or(1);
        let inner = dims.iter().skip(2).product();
        let mut given;
        let (scale, shift) = match &self.folded {
            Some((scale, shift)) => (&scale[..], &shift[..]),
            None => {
                let [gamma, beta, mean, variance] =
                    [1, 2, 3, 4].map(|index| widen_input(call, index));
                let (gamma, beta, mean, variance) = (gamma?, beta?, mean?, variance?);
                let count = gamma.len();
                given = (call.scratch::<T::Real>(count)?, call.scratch::<T::Real>(count)?);
                let (scale, shift) = (&mut given.0[..], &mut given.1[..]);
                fold([&gamma, &beta, &mean, &variance], self.epsilon, scale, shift)?;
                (&*scale, &*shift)
            }
        };
        if scale.len() != channels {
            fail!(
                "the input has {channels} channels, but there are parameters for {}",
                scale.len()
            );
        }
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        call.reserve_slices::<T>(2 * inner)?;
        let y = call.output_slice::<T>(0, &dims)?;
        T::scale_shift(exec, inner, scale, shift, x, y)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{Float, Int};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn training_takes_the_statistics_of_the_input() {
        let given = [("training_mode", Int(1)), ("momentum", Float(0.5)), ("epsilon", Float(0.0))];
        let x = tensor(&[2, 2, 2], &[1f32, 3.0, 0.0, 0.0, 5.0, 7.0, 2.0, 2.0]);
        let (scale, bias) = (tensor(&[2], &[1f32, 2.0]), tensor(&[2], &[0f32, 10.0]));
        let (mean, variance) = (tensor(&[2], &[0f64, 1.0]), tensor(&[2], &[1f64, 3.0]));
        let inputs = [Some(&x), Some(&scale), Some(&bias), Some(&mean), Some(&variance)];
        let found = run("BatchNormalization", &given, &inputs, 3).unwrap();
        let y = found[0].to_vec::<f32>().unwrap();
        assert_eq!(y[2..4], [8.0, 8.0]);
        assert_eq!(y[6..], [12.0, 12.0]);
        assert!((y[0] + 3.0 / 5f32.sqrt()).abs() < 1e-6, "{y:?}");
        assert!(found[1].bit_eq(&tensor(&[2], &[2f64, 1.0])), "{found:?}");
        assert!(found[2].bit_eq(&tensor(&[2], &[3f64, 2.0])), "{found:?}");
        let mean = tensor(&[3], &[0f64; 3]);
        let inputs = [Some(&x), Some(&scale), Some(&bias), Some(&mean), Some(&variance)];
        let found = run("BatchNormalization", &given, &inputs, 3).unwrap_err();
        assert!(found.contains("input 3 has 3 elements for 2 channels"), "{found}");
    }
}
