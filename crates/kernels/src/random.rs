//! Random numbers, drawn in an order that does not depend on the number of threads.
//!
//! [`Mt19937`] draws one number after the other, so it fills a block serially, whose pieces threads
//! then transform. [`Philox`] computes each number from its position alone, so each thread draws
//! its own.
//!
//! Numbers are drawn in double precision and rounded to the type of the output, again after scaling
//! and again after shifting, like those of numpy. Both are computed in the type that the output
//! [widens](Number::Wide) to.

mod mt19937;
mod philox;

pub use mt19937::Mt19937;
pub use philox::Philox;

use std::f64::consts::TAU;

use sardonyx_simd::Level;
use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::number::{Arith, Number};
use sardonyx_simd::{Ended, Exec, Failure};

/// Generator of uniform numbers.
#[derive(Debug, Clone)]
pub enum Generator {
    Mt19937(Mt19937),
    Philox(Philox),
}

/// Work: numbers that one thread transforms at a time: whole groups of Philox, and whole pairs for
/// normal numbers.
const PIECE: usize = 128 * philox::GROUP;
/// Work: numbers that are drawn serially before threads transform them.
const BLOCK: usize = 16 * PIECE;

/// Distribution of the numbers before scale and shift.
#[derive(Debug, Clone, Copy)]
enum Distribution {
    /// Uniform in `0..1`, 1 excluded. Philox draws `bits` bits, Mt19937 always 53.
    Uniform { bits: u32 },
    /// Standard normal.
    Normal,
}

/// Fills `y` with numbers uniform in `low..low + range`.
///
/// Numbers of Philox stay below 1 before they are scaled, as only as many bits are drawn as the
/// type holds. Those of Mt19937 may be rounded up to 1, as in numpy.
pub fn uniform<T: Number>(
    exec: &Exec<'_>,
    generator: Generator,
    range: f64,
    low: f64,
    y: &mut [T],
) -> Result<(), Ended> {
    let distribution = Distribution::Uniform { bits: bits_below_one::<T>() };
    fill_scaled(exec, generator, distribution, range, low, y)
}

/// Fills `y` with normal numbers. Mt19937 uses the polar method, Philox that of Box and Muller ("A
/// note on the generation of random normal deviates", 1958), which rejects no numbers, so that the
/// position of each is known.
pub fn normal<T: Number>(
    exec: &Exec<'_>,
    generator: Generator,
    scale: f64,
    mean: f64,
    y: &mut [T],
) -> Result<(), Ended> {
    fill_scaled(exec, generator, Distribution::Normal, scale, mean, y)
}

/// Draws one trial for each probability `p[i]`.
///
/// # Errors
///
/// The index of the first probability outside of 0 to 1, in which case no number is drawn; or
/// cancellation of the run.
///
/// # Panics
///
/// If `p` and `y` differ in length.
pub fn bernoulli<T: Number, B: From<bool> + Send>(
    exec: &Exec<'_>,
    generator: Generator,
    p: &[T],
    y: &mut [B],
) -> Result<(), Failure<usize>> {
    assert_eq!(p.len(), y.len());
    if let Some(index) = p.iter().position(|p| !(0.0..=1.0).contains(&p.to_f64())) {
        return Err(Failure::Operand(index));
    }
    in_pieces(exec, generator, Distribution::Uniform { bits: 53 }, y, |first, numbers, y| {
        for ((p, number), y) in p[first..].iter().zip(numbers).zip(y) {
            *y = B::from(succeeds(p.to_f64(), *number));
        }
    })?;
    Ok(())
}

/// Whether a trial with probability `p` succeeds, as in numpy's `binomial`: by inversion for the
/// rarer outcome, the complement of whose probability is computed through a logarithm. Leaves out
/// numpy's second draw, which is needed where the probabilities of both outcomes round to a sum
/// below the number: once in 10^15 numbers.
fn succeeds(p: f64, number: f64) -> bool {
    let is_rare = p <= 0.5;
    let rare = if is_rare { p } else { 1.0 - p };
    (number > (1.0 - rare).ln().exp()) == is_rare
}

/// Sets each element to 0 with probability `ratio`, and multiplies the others by `scale`. `mask`
/// receives which elements are kept.
///
/// # Panics
///
/// If the slices differ in length.
pub fn dropout<T: Number, B: From<bool> + Send>(
    exec: &Exec<'_>,
    generator: Generator,
    ratio: f64,
    scale: f64,
    x: &[T],
    y: &mut [T],
    mask: Option<&mut [B]>,
) -> Result<(), Ended> {
    assert_eq!(x.len(), y.len());
    assert!(mask.as_ref().is_none_or(|mask| mask.len() == y.len()));
    let scale = T::Wide::from_f64(scale);
    let mask = mask.map(Shared::new);
    in_pieces(exec, generator, Distribution::Uniform { bits: 53 }, y, |first, numbers, y| {
        for ((x, number), y) in x[first..].iter().zip(numbers).zip(y) {
            // A product rather than a choice: zeros keep their sign, and NaN stays NaN.
            let kept = if *number >= ratio { T::Wide::ONE } else { T::Wide::ZERO };
            *y = T::narrow(x.widen().mul(kept).mul(scale));
        }
        if let Some(mask) = &mask {
            // SAFETY: pieces are disjoint.
            let mask = unsafe { mask.part(first, numbers.len()) };
            for (mask, number) in mask.iter_mut().zip(numbers) {
                *mask = B::from(*number >= ratio);
            }
        }
    })
}

/// Sizes of [`multinomial`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleDims {
    /// Number of rows.
    pub rows: usize,
    /// Number of classes of a row.
    pub classes: usize,
    /// Number of classes to draw for each row.
    pub samples: usize,
}

/// Draws `samples` classes for each row, with probabilities proportional to the exponentials of its
/// logits. `logits` is `[rows, classes]`, `y` is `[rows, samples]`.
///
/// # Errors
///
/// The first row without valid weights (one is NaN or infinite, all are 0, or `classes` is 0), in
/// which case no number is drawn; or cancellation of the run.
///
/// # Panics
///
/// If lengths do not fit the dims.
pub fn multinomial<T: Number, I: Number>(
    exec: &Exec<'_>,
    generator: Generator,
    logits: &[T],
    SampleDims { rows, classes, samples }: SampleDims,
    y: &mut [I],
) -> Result<(), Failure<usize>> {
    assert_eq!(logits.len(), rows * classes);
    assert_eq!(y.len(), rows * samples);
    let logits_of = |row: usize| &logits[row * classes..][..classes];
    if let Some(row) = (0..rows).find(|index| !has_weights(logits_of(*index))) {
        return Err(Failure::Operand(row));
    }
    in_pieces(exec, generator, Distribution::Uniform { bits: 53 }, y, |first, numbers, y| {
        with_scratch_of(classes, |sums: &mut [f64]| {
            let mut summed = usize::MAX;
            for (place, (number, y)) in (first..).zip(numbers.iter().zip(y)) {
                if place / samples != summed {
                    summed = place / samples;
                    accumulate_weights(logits_of(summed), sums);
                }
                let total = sums.last().copied().unwrap_or(0.0);
                let class = sums.partition_point(|sum| *sum <= number * total);
                *y = I::from_f64(class.min(classes - 1) as f64);
            }
        });
    })?;
    Ok(())
}

/// Whether all logits are below infinity and one is finite, so that weights can be computed.
fn has_weights<T: Number>(logits: &[T]) -> bool {
    logits.iter().all(|x| x.to_f64() < f64::INFINITY) && greatest_logit(logits).is_finite()
}

/// Returns the greatest logit; NaN is ignored.
fn greatest_logit<T: Number>(logits: &[T]) -> f64 {
    logits.iter().map(|x| x.to_f64()).fold(f64::NEG_INFINITY, f64::max)
}

/// Computes the cumulative weights of the classes, relative to the greatest weight.
fn accumulate_weights<T: Number>(logits: &[T], sums: &mut [f64]) {
    let greatest = greatest_logit(logits);
    let mut sum = 0.0;
    for (x, to) in logits.iter().zip(sums) {
        sum += (x.to_f64() - greatest).exp();
        *to = sum;
    }
}

/// Fills `y` with numbers of a distribution, scaled and then shifted.
fn fill_scaled<T: Number>(
    exec: &Exec<'_>,
    generator: Generator,
    distribution: Distribution,
    scale: f64,
    shift: f64,
    y: &mut [T],
) -> Result<(), Ended> {
    let (scale, shift) = (T::Wide::from_f64(scale), T::Wide::from_f64(shift));
    in_pieces(exec, generator, distribution, y, |_, numbers, y| {
        for (number, y) in numbers.iter().zip(y) {
            let scaled = T::narrow(T::from_f64(*number).widen().mul(scale));
            *y = T::narrow(scaled.widen().add(shift));
        }
    })
}

/// Calls `body(first, numbers, piece)` for pieces that make up `y`, each with as many numbers as it
/// has elements. The bounds of pieces do not depend on the number of threads.
fn in_pieces<T: Send>(
    exec: &Exec<'_>,
    generator: Generator,
    distribution: Distribution,
    y: &mut [T],
    body: impl Fn(usize, &[f64], &mut [T]) + Sync,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let len = y.len();
    let shared = Shared::new(y);
    match generator {
        Generator::Mt19937(generator) => {
            with_scratch_of(BLOCK.min(len.next_multiple_of(2)), |block| {
                let mut generator = generator.state();
                for start in (0..len).step_by(BLOCK) {
                    let wanted = BLOCK.min(len - start);
                    // Normal numbers are drawn in pairs; of an odd count, the last one is dropped.
                    let block = &mut block[..wanted.next_multiple_of(2)];
                    match distribution {
                        Distribution::Uniform { .. } => generator.uniform(&mut block[..wanted]),
                        Distribution::Normal => generator.points(block),
                    }
                    let block = Shared::new(block);
                    pool.run(wanted.div_ceil(PIECE), |piece| {
                        let first = piece * PIECE;
                        let len = PIECE.min(wanted - first);
                        // SAFETY: pieces are disjoint and begin at even positions.
                        let (numbers, y) = unsafe {
                            let numbers = block.part(first, len.next_multiple_of(2));
                            (numbers, shared.part(start + first, len))
                        };
                        if let Distribution::Normal = distribution {
                            numbers.chunks_exact_mut(2).for_each(transform_polar);
                        }
                        body(start + first, &numbers[..len], y);
                    })?;
                }
                Ok(())
            })
        }
        Generator::Philox(philox) => {
            let level = Level::new(isa);
            pool.run(len.div_ceil(PIECE), |piece| {
                let first = piece * PIECE;
                let len = PIECE.min(len - first);
                let mut numbers = [0.0; PIECE];
                let numbers = &mut numbers[..len.next_multiple_of(2)];
                // SAFETY: pieces are disjoint.
                let y = unsafe { shared.part(first, len) };
                match distribution {
                    Distribution::Uniform { bits } => philox.uniform(level, first, bits, numbers),
                    Distribution::Normal => {
                        philox.uniform(level, first, 53, numbers);
                        numbers.chunks_exact_mut(2).for_each(transform_box_muller);
                    }
                }
                body(first, &numbers[..len], y);
            })
        }
    }
}

/// Turns a point within the unit circle into two normal numbers (polar method).
fn transform_polar(point: &mut [f64]) {
    let (x, y) = (point[1], point[0]);
    // In this order, for the same bits as numpy.
    let square = x * x + y * y;
    let factor = (-2.0 * square.ln() / square).sqrt();
    point[0] = factor * y;
    point[1] = factor * x;
}

/// Turns two uniform numbers into two normal ones (Box and Muller).
fn transform_box_muller(pair: &mut [f64]) {
    // `1 - x` is never 0, whose logarithm is infinite.
    let radius = (-2.0 * (1.0 - pair[0]).ln()).sqrt();
    let (sin, cos) = (TAU * pair[1]).sin_cos();
    pair[0] = radius * cos;
    pair[1] = radius * sin;
}

/// Returns the most bits with which each fraction below 1 is exactly a `T`.
fn bits_below_one<T: Number>() -> u32 {
    let fraction_of = |bits: u32| 1.0 - (0.5f64).powi(bits as i32);
    let is_exact = |bits: &u32| T::from_f64(fraction_of(*bits)).to_f64() == fraction_of(*bits);
    (1..=53).rev().find(is_exact).unwrap_or(1)
}

#[cfg(test)]
mod tests;
