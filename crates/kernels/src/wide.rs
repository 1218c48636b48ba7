//! Kernels of 16-bit floats by those of f32: slices of the operands are widened into scratch
//! memory, computed there, and rounded once.
//!
//! All kernels that compute slices one by one use this, so that their loops are compiled only for
//! types that compute in themselves. Slices that fit a second-level cache are widened by the thread
//! that computes them. A larger slice is widened, computed and rounded by all threads.

use std::ops::Range;

use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, fill, ranges};
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Exec, Level, Pool};

/// Cache: most elements of the input and output of a slice that one thread computes alone: 1 MB of
/// a second-level cache.
const LARGEST: usize = 1 << 18;
/// Cache: elements of inputs and outputs of slices that are widened together: 16 KB, half of a
/// first-level cache.
const TOGETHER: usize = 1 << 12;

/// Slices of an input and an output; each output slice depends on one input slice.
#[derive(Clone, Copy)]
pub(crate) struct Slices {
    pub(crate) count: usize,
    /// Number of elements of an input slice.
    pub(crate) input: usize,
    /// Number of elements of an output slice.
    pub(crate) output: usize,
    /// Work of a slice, in operations.
    pub(crate) work: usize,
}

/// Kernel of a range of slices, called with their indices, inputs and outputs.
pub(crate) type SliceKernel<'a, W> =
    dyn Fn(&Exec<'_>, Range<usize>, &[W], &mut [W]) -> Result<(), Ended> + Sync + 'a;

/// Returns the size in bytes of the scratch memory that all threads share for a slice of so many
/// input and output elements; each thread also has up to a few hundred KB of its own.
#[must_use]
pub fn scratch_bytes<T: Number>(elements: usize) -> usize {
    let is_wide = size_of::<T>() == size_of::<T::Wide>();
    if is_wide || elements <= LARGEST { 0 } else { elements.saturating_mul(size_of::<T::Wide>()) }
}

/// Computes output slices from input slices, in place without `x`. A type that computes in itself
/// has all its slices computed at once.
///
/// # Errors
///
/// If the run is cancelled.
pub(crate) fn by_slices<T: Number>(
    exec: &Exec<'_>,
    slices: Slices,
    x: Option<&[T]>,
    y: &mut [T],
    kernel: &SliceKernel<'_, T::Wide>,
) -> Result<(), Ended> {
    let Slices { count, input, output, work } = slices;
    if let (Some(x), Some(y)) = (x.and_then(T::as_wide), T::as_wide_mut(y)) {
        return kernel(exec, 0..count, x, y);
    }
    let each = input + output;
    if each == 0 || count == 0 {
        return Ok(());
    }
    let level = Level::new(exec.isa);
    let y = Shared::new(y);
    let read_input = |first: usize, len: usize| match x {
        Some(x) => &x[first..][..len],
        // SAFETY: a slice is read before it is written, and only by the thread that writes it.
        None => unsafe { y.read(first, len) },
    };
    if each > LARGEST {
        for slice in 0..count {
            with_scratch_of(each, |wide: &mut [T::Wide]| {
                let (wide_x, wide_y) = wide.split_at_mut(input);
                let x = read_input(slice * input, input);
                fill(exec.pool, wide_x, 1, |start, wide| {
                    T::widen_all(level, &x[start..][..wide.len()], wide);
                })?;
                kernel(exec, slice..slice + 1, wide_x, wide_y)?;
                // SAFETY: no other part of this slice lives.
                let y = unsafe { y.part(slice * output, output) };
                let wide_y = &*wide_y;
                fill(exec.pool, y, 1, |start, y| {
                    T::narrow_all(level, &wide_y[start..][..y.len()], y);
                })
            })?;
        }
        return Ok(());
    }
    let together = (TOGETHER / each).max(1);
    let serial = Exec { pool: Pool::serial(), ..*exec };
    ranges(exec.pool, count.div_ceil(together), work.saturating_mul(together), |tiles| {
        for tile in tiles {
            let slices = tile * together..count.min((tile + 1) * together);
            let n = slices.len();
            with_scratch_of(n * each, |wide: &mut [T::Wide]| {
                let (wide_x, wide_y) = wide.split_at_mut(n * input);
                T::widen_all(level, read_input(slices.start * input, n * input), wide_x);
                kernel(&serial, slices.clone(), wide_x, wide_y)?;
                // SAFETY: each slice is in one tile.
                let y = unsafe { y.part(slices.start * output, n * output) };
                T::narrow_all(level, wide_y, y);
                Ok(())
            })?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::softmax::{Softmax, softmax};
    use sardonyx_simd::Isa;

    /// Computes slices of all sizes; each result is the slice's number plus twice the input.
    fn check<T: Number<Wide = f32>>() {
        for (count, len) in [(0, 3), (5, 0), (7, 1), (1000, 5), (3, TOGETHER), (2, LARGEST)] {
            let x: Vec<T> = (0..count * len).map(|i| T::from_f64((i % 8) as f64)).collect();
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let exec = Exec::new(&pool, Isa::detect());
                let slices = Slices { count, input: len, output: len, work: len };
                let number_of = |slice: usize| (slice % 16) as f32;
                let kernel = |_: &Exec<'_>, slices: Range<usize>, x: &[f32], y: &mut [f32]| {
                    let each = x.chunks_exact(len).zip(y.chunks_exact_mut(len));
                    for (slice, (x, y)) in slices.zip(each) {
                        for (y, x) in y.iter_mut().zip(x) {
                            *y = number_of(slice) + 2.0 * x;
                        }
                    }
                    Ok::<(), Ended>(())
                };
                let mut y = vec![T::ONE; x.len()];
                by_slices(&exec, slices, Some(&x), &mut y, &kernel).unwrap();
                let mut in_place = x.clone();
                by_slices(&exec, slices, None, &mut in_place, &kernel).unwrap();
                assert_eq!(y, in_place);
                for (i, (y, x)) in y.iter().zip(&x).enumerate() {
                    assert_eq!(
                        y.to_f64() as f32,
                        number_of(i / len) + 2.0 * x.widen(),
                        "{len} {i}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_slice_is_computed_once() {
        check::<f16>();
        check::<bf16>();
    }

    /// Compares results for all sizes of slices with those of f32, rounded once.
    #[test]
    fn results_are_those_of_floats_rounded_once() {
        for dims in [[40, 30, 1], [1, 200_000, 1], [3, 7, 50], [1, 300, 700]] {
            let len = dims.iter().product();
            let numbers = (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) / 8.0);
            let x: Vec<f16> = numbers.map(f16::from_f32).collect();
            let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
            let pool = Pool::new(2);
            for &isa in Isa::available() {
                let exec = Exec::new(&pool, isa);
                let (mut y, mut expected) = (vec![f16::ONE; len], vec![0.0; len]);
                for op in [Softmax::Softmax, Softmax::LogSoftmax, Softmax::Hardmax] {
                    softmax(&exec, op, dims.into(), &wide, &mut expected).unwrap();
                    softmax(&exec, op, dims.into(), &x, &mut y).unwrap();
                    let rounded: Vec<f16> = expected.iter().map(|x| f16::from_f32(*x)).collect();
                    assert_eq!(y, rounded, "{isa:?} {op:?} {dims:?}");
                }
            }
        }
    }

    #[test]
    fn only_large_slices_of_narrow_types_need_memory() {
        assert_eq!(scratch_bytes::<f32>(usize::MAX), 0);
        assert_eq!(scratch_bytes::<f16>(LARGEST), 0);
        assert_eq!(scratch_bytes::<f16>(LARGEST + 1), 4 * (LARGEST + 1));
    }
}
