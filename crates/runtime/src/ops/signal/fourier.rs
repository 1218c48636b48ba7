//! DFT and STFT: Fourier transforms of lines, and of frames of a signal.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::fourier::{Lines, Spectrum, Tables};
use sardonyx_tensor::{Dims, Element, shape, shape::normalize_axis};

use super::size;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::ops::math::softmax::split_at_axis;

/// Position of an input of DFT.
const LENGTH: usize = 1;
const AXIS: usize = 2;

/// Position of an input of STFT.
const STEP: usize = 1;
const WINDOW: usize = 2;
const FRAME: usize = 3;

/// Binds `DFT`.
pub(crate) fn bind_dft(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (inverse, half) = (site.need_int("inverse")? != 0, site.need_int("onesided")? != 0);
    for_element!(site, site.elem(0)?, floats, T => Dft::<T> {
        inverse, half, kept: LastTables::default(), elements: PhantomData,
    })
}

/// Binds `STFT`.
pub(crate) fn bind_stft(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let half = site.need_int("onesided")? != 0;
    for_element!(site, site.elem(0)?, floats, T => Stft::<T> {
        half, kept: LastTables::default(), elements: PhantomData,
    })
}

struct Dft<T> {
    inverse: bool,
    half: bool,
    kept: LastTables,
    elements: PhantomData<fn() -> T>,
}

impl<T: FloatLoops + Element> Kernel for Dft<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let [signal @ .., parts] = &dims[..] else {
            fail!("the input has rank 0, not at least 2");
        };
        let axis = self.axis(call, dims.len())?;
        let complex = complex(*parts, self.half.then_some(self.inverse))?;
        let length = match size(call, LENGTH, "dft_length")? {
            Some(length) => length,
            // An even length, as half a spectrum fits two lengths.
            None if self.half && self.inverse => match signal[axis] {
                2.. => 2 * (signal[axis] - 1),
                len => {
                    fail!("a one-sided spectrum of {len} elements has no signal: set dft_length")
                }
            },
            None => signal[axis],
        };
        let mut to = dims.clone();
        if length == 0 {
            to[dims.len() - 1] = 2;
            call.output_slice::<T>(0, &to)?;
            return Ok(());
        }
        let spectrum = Spectrum { length, inverse: self.inverse, half: self.half, complex };
        (to[axis], to[dims.len() - 1]) = (spectrum.outputs(), spectrum.parts());
        shape::elems(&to)?;
        let [outer, len, inner] = split_at_axis(signal, axis as i64)?;
        let lines = Lines {
            grid: [outer, inner],
            len,
            x: [len * inner, 1, inner],
            y: [to[axis] * inner, 1, inner],
        };
        let tables = self.kept.tables(call, &spectrum)?;
        let y = call.output_slice::<T>(0, &to)?;
        T::fourier_transform(exec, &tables, spectrum, lines, None, x, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        let direction = if self.inverse { "inverse transform" } else { "transform" };
        format!("Fourier {direction} of {}", T::DATA_TYPE)
    }
}

impl<T> Dft<T> {
    fn axis(&self, call: &Call<'_>, rank: usize) -> Result<usize, KernelError> {
        let mut axis = -2;
        if call.has_input(AXIS) {
            let given = call.ints(AXIS)?;
            let &[given] = &given[..] else {
                fail!("the axis must have one element, not {}", given.len());
            };
            axis = given;
        }
        let resolved = normalize_axis(axis, rank)?;
        if resolved + 1 == rank {
            fail!("axis {axis} is the last axis, which holds the parts of complex numbers");
        }
        Ok(resolved)
    }
}

/// Whether a signal with `parts` numbers per element is complex. `half`: half of the spectrum of
/// the spectrum is written (`false`) or read (`true`).
fn complex(parts: usize, half: Option<bool>) -> Result<bool, KernelError> {
    match (parts, half) {
        (1, None | Some(false)) => Ok(false),
        (2, None | Some(true)) => Ok(true),
        (2, Some(false)) => {
            fail!("onesided requires a real signal: the last axis must have size 1, not 2")
        }
        (1, Some(true)) => {
            fail!("a one-sided spectrum must be complex: the last axis must have size 2, not 1")
        }
        _ => fail!("the last axis must have size 1 (real) or 2 (complex), not {parts}"),
    }
}

/// Tables of the length that was transformed last, as lengths rarely change.
#[derive(Default)]
struct LastTables(Mutex<Option<(usize, Arc<Tables>)>>);

impl LastTables {
    /// Returns the tables for a transform, and charges their memory and that of the transform.
    fn tables(&self, call: &Call<'_>, spectrum: &Spectrum) -> Result<Arc<Tables>, KernelError> {
        let length = spectrum.length;
        call.reserve(Tables::bytes_of(length).unwrap_or(usize::MAX))?;
        call.reserve(spectrum.scratch(call.exec.pool.threads()).unwrap_or(usize::MAX))?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = kept.as_ref().filter(|(of, _)| *of == length) {
            return Ok(tables.clone());
        }
        let Some(tables) = Tables::new(call.exec.isa, length)?.map(Arc::new) else {
            fail!("not enough memory for a transform of {length} elements");
        };
        *kept = Some((length, tables.clone()));
        Ok(tables)
    }
}

struct Stft<T> {
    half: bool,
    kept: LastTables,
    elements: PhantomData<fn() -> T>,
}

impl<T: FloatLoops + Element> Kernel for Stft<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x, window) = (call.exec, call.slice::<T>(0)?, call.maybe_slice::<T>(WINDOW)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let (batch, len, parts) = match dims[..] {
            [batch, len] => (batch, len, 1),
            [batch, len, parts] => (batch, len, parts),
            _ => fail!("the signal has rank {}, not 2 or 3", dims.len()),
        };
        let complex = complex(parts, self.half.then_some(false))?;
        let Some(step @ 1..) = size(call, STEP, "frame_step")? else {
            fail!("frame_step must be positive");
        };
        let (window_len, given) = (window.map(<[T]>::len), size(call, FRAME, "frame_length")?);
        let length = match (given, window_len) {
            (Some(length), Some(window)) if length != window => {
                fail!("frame_length is {length}, but the window has {window} elements")
            }
            (Some(length), _) | (None, Some(length)) => length,
            (None, None) => len,
        };
        if length == 0 {
            fail!("frame_length must be positive");
        }
        if length > len {
            fail!("a frame of {length} elements is longer than the signal of {len}");
        }
        let frames = (len - length) / step + 1;
        let spectrum = Spectrum { length, inverse: false, half: self.half, complex };
        let outputs = spectrum.outputs();
        let to = [batch.max(1), frames, outputs, 2];
        shape::elems(&to)?;
        let lines = Lines {
            grid: [batch, frames],
            len: length,
            x: [len, step, 1],
            y: [frames * outputs, outputs, 1],
        };
        let tables = self.kept.tables(call, &spectrum)?;
        let y = call.output_slice::<T>(0, &[batch, frames, outputs, 2])?;
        T::fourier_transform(exec, &tables, spectrum, lines, window, x, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("short-time Fourier transform of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, tensor};

    fn number(n: i64) -> Tensor {
        tensor(&[], &[n])
    }

    #[test]
    fn spectra() {
        let real = tensor(&[1, 4, 1], &[1f32, 2.0, 3.0, 4.0]);
        let whole = [10f32, 0.0, -2.0, 2.0, -2.0, 0.0, -2.0, -2.0];
        let complex = tensor(&[1, 4, 2], &whole);
        let rows: [(_, _, _, Option<i64>, Tensor); 6] = [
            (&real, 0, 0, None, complex.clone()),
            (&real, 0, 1, None, tensor(&[1, 3, 2], &whole[..6])),
            (&real, 0, 0, Some(2), tensor(&[1, 2, 2], &[3f32, 0.0, -1.0, 0.0])),
            (&complex, 1, 0, None, tensor(&[1, 4, 2], &[1f32, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0, 0.0])),
            (&tensor(&[1, 3, 2], &whole[..6]), 1, 1, None, real.clone()),
            (
                &tensor(&[1, 2, 2], &[3f32, 9.0, -1.0, 9.0]),
                1,
                1,
                Some(2),
                tensor(&[1, 2, 1], &[1f32, 2.0]),
            ),
        ];
        for (x, inverse, half, length, expected) in rows {
            let attributes = [("inverse", Int(inverse)), ("onesided", Int(half))];
            let length = length.map(number);
            for axis in [None, Some(1), Some(-2)] {
                let axis = axis.map(number);
                let inputs = [Some(x), length.as_ref(), axis.as_ref()];
                assert_eq!(run("DFT", &attributes, &inputs, 1).unwrap()[0], expected, "{x:?}");
            }
        }
        let empty = tensor::<f32>(&[2, 0, 1], &[]);
        assert_eq!(run("DFT", &[], &[Some(&empty)], 1).unwrap()[0].dims(), [2, 0, 2]);
    }

    #[test]
    fn frames() {
        let x = tensor(&[1, 6, 1], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let window = tensor(&[2], &[1f32, 0.5]);
        let inputs = [Some(&x), Some(&number(3)), Some(&window)];
        let found = run("STFT", &[("onesided", Int(1))], &inputs, 1).unwrap();
        let expected = [2f32, 0.0, 0.0, 0.0, 6.5, 0.0, 1.5, 0.0];
        assert_eq!(found[0], tensor(&[1, 2, 2, 2], &expected));
        let (length, flat) = (number(6), tensor(&[1, 6], &[1f32, 0.0, 0.0, 0.0, 0.0, 0.0]));
        let inputs = [Some(&flat), Some(&number(1)), None, Some(&length)];
        let found = run("STFT", &[("onesided", Int(0))], &inputs, 1).unwrap();
        assert_eq!(found[0], tensor(&[1, 1, 6, 2], &[1f32, 0.0].repeat(6)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let real = tensor(&[1, 4, 1], &[1f32, 2.0, 3.0, 4.0]);
        let pairs = tensor(&[1, 2, 2], &[1f32, 2.0, 3.0, 4.0]);
        let one = tensor(&[1, 1, 2], &[1f32, 2.0]);
        let three = tensor(&[1, 1, 3], &[1f32, 2.0, 3.0]);
        let half = [("onesided", Int(1))];
        let back = [("onesided", Int(1)), ("inverse", Int(1))];
        for (attributes, x, length, axis, refusal) in [
            (&[][..], &real, 0, 1, "dft_length must be positive, not 0"),
            (&[], &real, -3, 1, "dft_length must be positive, not -3"),
            (&[], &real, 4, 2, "axis 2 is the last axis, which holds the parts of complex numbers"),
            (&[], &real, 4, 3, "axis 3 is out of range for rank 3"),
            (&[], &three, 4, 1, "the last axis must have size 1 (real) or 2 (complex), not 3"),
            (
                &half,
                &pairs,
                4,
                1,
                "onesided requires a real signal: the last axis must have size 1, not 2",
            ),
            (
                &back,
                &real,
                4,
                1,
                "a one-sided spectrum must be complex: the last axis must have size 2, not 1",
            ),
        ] {
            let inputs = [Some(x), Some(&number(length)), Some(&number(axis))];
            assert_eq!(run("DFT", attributes, &inputs, 1).unwrap_err(), refusal);
        }
        let found = run("DFT", &back, &[Some(&one)], 1).unwrap_err();
        assert_eq!(found, "a one-sided spectrum of 1 elements has no signal: set dft_length");
        let window = tensor(&[3], &[1f32, 1.0, 1.0]);
        for (step, window, length, refusal) in [
            (0, None, Some(2), "frame_step must be positive, not 0"),
            (1, None, Some(5), "a frame of 5 elements is longer than the signal of 4"),
            (1, Some(&window), Some(2), "frame_length is 2, but the window has 3 elements"),
        ] {
            let length = length.map(number);
            let inputs = [Some(&real), Some(&number(step)), window, length.as_ref()];
            assert_eq!(run("STFT", &[], &inputs, 1).unwrap_err(), refusal);
        }
    }
}
