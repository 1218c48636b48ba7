//! Discrete Fourier transforms of any length.
//!
//! All types are computed in double precision and rounded once. Lengths whose prime factors are at
//! most `LARGEST_RADIX` go through the stages of Stockham's form of the algorithm of Cooley and
//! Tukey ("An Algorithm for the Machine Calculation of Complex Fourier Series", 1965), which needs
//! no reordering. Other lengths become a convolution with a chirp, computed by transforms of a
//! power of two (Bluestein, "A Linear Filtering Approach to the Computation of Discrete Fourier
//! Transform", 1970).

use std::f64::consts::FRAC_PI_4;

use sardonyx_simd::buffer::with_scratch_of;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Exec, Isa, Pool};
use sardonyx_simd::{Level, Loop};

/// Complex number: real and imaginary part.
type Complex = [f64; 2];

/// Sums: largest prime factor with stages of its own.
const LARGEST_RADIX: usize = 13;
/// Limit: most factors of a length.
const MAX_FACTORS: usize = 64;

/// Length, direction and form of the transform of each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spectrum {
    /// Length of the transform, at least 1. Longer lines are cut to it, shorter ones padded with
    /// zeros.
    pub length: usize,
    /// Whether to transform from spectrum to signal, with a factor of `1 / length`.
    pub inverse: bool,
    /// Whether only the first half of the spectrum, `length / 2 + 1` elements, is written, or read
    /// if `inverse`. The signal is real, so the other half is its conjugate.
    pub half: bool,
    /// Whether elements of the input are pairs of real and imaginary part.
    pub complex: bool,
}

impl Spectrum {
    /// Returns the number of elements that a line of the input has at most.
    fn inputs(&self) -> usize {
        if self.half && self.inverse { self.length / 2 + 1 } else { self.length }
    }

    /// Returns the number of elements in a line of the output.
    pub fn outputs(&self) -> usize {
        if self.half && !self.inverse { self.length / 2 + 1 } else { self.length }
    }

    /// Returns the number of floats in an element of the output: 1 for a real signal, else 2.
    pub fn parts(&self) -> usize {
        if self.half && self.inverse { 1 } else { 2 }
    }

    /// Returns the size of the scratch memory on `threads` threads, in bytes; `None` on overflow.
    pub fn scratch(&self, threads: usize) -> Option<usize> {
        Sizes::new(self.length)?.work.checked_mul(threads)?.checked_mul(size_of::<Complex>())
    }
}

/// Layout of lines, which form a grid. Strides count elements, whether these are pairs or not.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// Number of lines along each axis of the grid.
    pub grid: [usize; 2],
    /// Elements in a line of the input.
    pub len: usize,
    /// Strides of the input: between lines along each axis of the grid, and between elements of a
    /// line.
    pub x: [usize; 3],
    /// Strides of the output: between lines along each axis of the grid, and between elements of a
    /// line.
    pub y: [usize; 3],
}

/// Transforms lines of `x`, each scaled by `window` first, into lines of `y`.
///
/// # Panics
///
/// If the tables are for another length, or lines exceed `x` or `y`.
pub fn transform<T: Number>(
    exec: &Exec<'_>,
    tables: &Tables,
    spectrum: Spectrum,
    lines: Lines,
    window: Option<&[T]>,
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    let count = lines.grid[0] * lines.grid[1];
    if count == 0 {
        return Ok(());
    }
    assert_eq!(tables.length, spectrum.length, "the length of the tables");
    let work_len = Sizes::new(spectrum.length).expect("tables fit into memory").work;
    let read = lines.len.min(spectrum.inputs());
    assert!(window.is_none_or(|window| window.len() >= read), "one factor per element");
    let parts = if spectrum.complex { 2 } else { 1 };
    let (level, shared) = (Level::new(exec.isa), Shared::new(y));
    ranges(exec.pool, count, 8 * work_len, |range| {
        with_scratch_of::<Complex, _>(work_len, |work| {
            let (values, work) = work.split_at_mut(spectrum.length);
            for line in range {
                let (a, b) = (line / lines.grid[1], line % lines.grid[1]);
                let [x_a, x_b, x_step] = lines.x;
                for (i, value) in values.iter_mut().enumerate() {
                    *value = [0.0; 2];
                    if i < read {
                        let at = (a * x_a + b * x_b + i * x_step) * parts;
                        let factor = window.map_or(1.0, |window| window[i].to_f64());
                        for (part, x) in value.iter_mut().zip(&x[at..at + parts]) {
                            *part = x.to_f64() * factor;
                        }
                    }
                }
                if spectrum.half && spectrum.inverse {
                    mirror(values);
                }
                tables.run(level, spectrum.inverse, values, work)?;
                let [y_a, y_b, y_step] = lines.y;
                let parts = spectrum.parts();
                for (i, value) in values.iter().enumerate().take(spectrum.outputs()) {
                    let at = (a * y_a + b * y_b + i * y_step) * parts;
                    // SAFETY: each element of each line is written by one thread.
                    let y = unsafe { shared.part(at, parts) };
                    for (y, part) in y.iter_mut().zip(value) {
                        *y = T::from_f64(*part);
                    }
                }
            }
            Ok(())
        })
    })
}

/// Fills the second half of the spectrum of a real signal with conjugates of the first. Elements
/// without a counterpart become real.
fn mirror(values: &mut [Complex]) {
    let n = values.len();
    values[0][1] = 0.0;
    if n.is_multiple_of(2) {
        values[n / 2][1] = 0.0;
    }
    for i in n / 2 + 1..n {
        let [re, im] = values[n - i];
        values[i] = [re, -im];
    }
}

/// Factors of a length, in the order of the stages.
#[derive(Clone, Copy, Debug)]
struct Factors {
    list: [u8; MAX_FACTORS],
    count: usize,
}

impl Factors {
    /// Factors `n`; `None` if a prime factor exceeds [`LARGEST_RADIX`].
    fn from_length(mut n: usize) -> Option<Factors> {
        let mut factors = Factors { list: [0; MAX_FACTORS], count: 0 };
        for radix in [4, 2, 3, 5, 7, 11, LARGEST_RADIX] {
            while n.is_multiple_of(radix) {
                factors.list[factors.count] = radix as u8;
                factors.count += 1;
                n /= radix;
            }
        }
        (n == 1).then_some(factors)
    }

    /// Returns the factors in order.
    fn radixes(&self) -> impl Iterator<Item = usize> {
        self.list[..self.count].iter().map(|radix| usize::from(*radix))
    }
}

/// Sizes of the memory for a length, in complex numbers.
struct Sizes {
    /// Length of the transforms that are computed in stages.
    staged: usize,
    /// Factors of `staged`.
    factors: Factors,
    /// Length of all tables.
    tables: usize,
    /// Length of the scratch memory of a line: its values and intermediate results.
    work: usize,
}

impl Sizes {
    /// Computes the sizes for a length; `None` on overflow.
    fn new(length: usize) -> Option<Sizes> {
        assert!(length > 0, "a transform of nothing");
        if let Some(factors) = Factors::from_length(length) {
            let work = length.checked_mul(2)?;
            return Some(Sizes { staged: length, factors, tables: length, work });
        }
        let staged = length.checked_mul(2)?.checked_next_power_of_two()?;
        let factors = Factors::from_length(staged)?;
        // Roots, spectrum of the filter, and chirp.
        let tables = staged.checked_mul(2)?.checked_add(length)?;
        let work = staged.checked_mul(2)?.checked_add(length)?;
        Some(Sizes { staged, factors, tables, work })
    }
}

/// Tables for transforms of one length. They take longer to compute than a transform, so callers
/// keep them.
#[derive(Debug)]
pub struct Tables {
    length: usize,
    factors: Factors,
    /// Roots of unity `exp(-2 pi i k / staged)`.
    roots: Vec<Complex>,
    /// Chirp of Bluestein's form; empty if the length itself has stages.
    chirp: Vec<Complex>,
    /// Spectrum of the filter that the chirp is convolved with.
    filter: Vec<Complex>,
}

impl Tables {
    /// Returns the size of the tables for a length, in bytes; `None` on overflow.
    ///
    /// # Panics
    ///
    /// If the length is 0.
    pub fn bytes_of(length: usize) -> Option<usize> {
        Sizes::new(length)?.tables.checked_mul(size_of::<Complex>())
    }

    /// Computes the tables for a length; `None` if memory cannot be allocated.
    ///
    /// # Errors
    ///
    /// If the run is cancelled.
    ///
    /// # Panics
    ///
    /// If the length is 0.
    pub fn new(isa: Isa, length: usize) -> Result<Option<Tables>, Ended> {
        let Some((mut tables, mut filter)) = Tables::with_room(length) else { return Ok(None) };
        if !filter.is_empty() {
            let level = Level::new(isa);
            let len = filter.len();
            with_scratch_of(len, |work| tables.stages(level, &mut filter, work))?;
            tables.filter = filter;
        }
        Ok(Some(tables))
    }

    /// Computes the tables without the filter, and the filter's impulse response, whose transform
    /// is the filter; it is empty if the length itself has stages. `None` if memory cannot be
    /// allocated.
    fn with_room(length: usize) -> Option<(Tables, Vec<Complex>)> {
        let Sizes { staged, factors, .. } = Sizes::new(length)?;
        let n = staged as u128;
        let roots = collect_exact((0..staged).map(|k| root(k as u128, n)))?;
        let mut tables = Tables { length, factors, roots, chirp: Vec::new(), filter: Vec::new() };
        if staged == length {
            return Some((tables, Vec::new()));
        }
        let n = 2 * length as u128;
        let chirp = collect_exact((0..length).map(|j| root((j as u128).pow(2) % n, n)))?;
        let mut filter = collect_exact(std::iter::repeat_n([0.0; 2], staged))?;
        for (j, [re, im]) in chirp.iter().enumerate() {
            filter[j] = [*re, -*im];
            filter[(staged - j) % staged] = [*re, -*im];
        }
        tables.chirp = chirp;
        Some((tables, filter))
    }

    /// Transforms a line in place.
    fn run(
        &self,
        level: Level,
        inverse: bool,
        values: &mut [Complex],
        work: &mut [Complex],
    ) -> Result<(), Ended> {
        // The inverse is the transform with real and imaginary part exchanged, before and after.
        if inverse {
            values.iter_mut().for_each(|[re, im]| std::mem::swap(re, im));
        }
        if self.chirp.is_empty() {
            self.stages(level, values, &mut work[..self.roots.len()])?;
        } else {
            self.convolve(level, values, work)?;
        }
        if inverse {
            let scale = 1.0 / values.len() as f64;
            for value in values {
                *value = [value[1] * scale, value[0] * scale];
            }
        }
        Ok(())
    }

    /// Transforms a line by Bluestein's form: a convolution with the chirp.
    fn convolve(
        &self,
        level: Level,
        values: &mut [Complex],
        work: &mut [Complex],
    ) -> Result<(), Ended> {
        let (signal, work) = work.split_at_mut(self.roots.len());
        let work = &mut work[..self.roots.len()];
        signal.fill([0.0; 2]);
        for ((to, value), chirp) in signal.iter_mut().zip(&*values).zip(&self.chirp) {
            *to = times(*value, *chirp);
        }
        self.stages(level, signal, work)?;
        for (value, filter) in signal.iter_mut().zip(&self.filter) {
            let [re, im] = times(*value, *filter);
            *value = [im, re];
        }
        self.stages(level, signal, work)?;
        let scale = 1.0 / self.roots.len() as f64;
        for ((to, [im, re]), chirp) in values.iter_mut().zip(signal).zip(&self.chirp) {
            *to = times([*re * scale, *im * scale], *chirp);
        }
        Ok(())
    }

    /// Transforms as many values as there are roots, in place, stage by stage.
    fn stages(
        &self,
        level: Level,
        values: &mut [Complex],
        work: &mut [Complex],
    ) -> Result<(), Ended> {
        let (mut from, mut to) = (&mut *values, &mut *work);
        let mut done = 1;
        for radix in self.factors.radixes() {
            Pool::check_ended()?;
            let stage = Stage { radix, done, roots: &self.roots, from, to };
            (from, to) = level.run(stage);
            done *= radix;
        }
        if !self.factors.count.is_multiple_of(2) {
            // After an odd number of stages the result is in `work`, and `to` is `values`.
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

/// Collects the elements; `None` if memory cannot be allocated.
fn collect_exact(elements: impl ExactSizeIterator<Item = Complex>) -> Option<Vec<Complex>> {
    let mut list = Vec::new();
    list.try_reserve_exact(elements.len()).ok()?;
    list.extend(elements);
    Some(list)
}

/// Loop of one stage: transforms of `radix` elements, `done` of them side by side, times roots.
struct Stage<'a> {
    radix: usize,
    /// Product of the radixes of earlier stages.
    done: usize,
    roots: &'a [Complex],
    from: &'a mut [Complex],
    to: &'a mut [Complex],
}

impl<'a> Loop for Stage<'a> {
    /// The buffer with the result, then the other one.
    type Out = (&'a mut [Complex], &'a mut [Complex]);

    #[inline(always)]
    fn run<const FMA: bool>(self) -> Self::Out {
        let Stage { radix, done, roots, from, to } = self;
        match radix {
            2 => stage::<2>(done, roots, from, to, |[a, b], _| [plus(a, b), minus(a, b)]),
            4 => stage::<4>(done, roots, from, to, |[a, b, c, d], _| {
                let (even, odd) = ([plus(a, c), minus(a, c)], [plus(b, d), minus(b, d)]);
                let rotated = [odd[1][1], -odd[1][0]];
                [
                    plus(even[0], odd[0]),
                    plus(even[1], rotated),
                    minus(even[0], odd[0]),
                    minus(even[1], rotated),
                ]
            }),
            3 => stage::<3>(done, roots, from, to, butterfly_sums),
            5 => stage::<5>(done, roots, from, to, butterfly_sums),
            7 => stage::<7>(done, roots, from, to, butterfly_sums),
            11 => stage::<11>(done, roots, from, to, butterfly_sums),
            _ => stage::<LARGEST_RADIX>(done, roots, from, to, butterfly_sums),
        }
        (to, from)
    }
}

/// Computes a stage of radix `R` with `butterfly` for the transforms of `R` elements.
#[inline(always)]
fn stage<const R: usize>(
    done: usize,
    roots: &[Complex],
    from: &[Complex],
    to: &mut [Complex],
    butterfly: impl Fn([Complex; R], &[Complex; R]) -> [Complex; R],
) {
    let n = roots.len();
    let groups = n / done / R;
    let of_radix: [Complex; R] = std::array::from_fn(|k| roots[k * (n / R)]);
    for (group, to) in to.chunks_exact_mut(R * done).enumerate() {
        let turns: [Complex; R] = std::array::from_fn(|t| roots[group * t * done]);
        let parts: [&[Complex]; R] =
            std::array::from_fn(|k| &from[(group + k * groups) * done..][..done]);
        for i in 0..done {
            let sums = butterfly(std::array::from_fn(|k| parts[k][i]), &of_radix);
            for (t, (sum, turn)) in sums.into_iter().zip(turns).enumerate() {
                to[t * done + i] = times(sum, turn);
            }
        }
    }
}

/// Transforms a few elements by the definition.
#[inline(always)]
fn butterfly_sums<const R: usize>(values: [Complex; R], roots: &[Complex; R]) -> [Complex; R] {
    std::array::from_fn(|t| {
        let products = (0..R).map(|k| times(values[k], roots[k * t % R]));
        products.fold([0.0; 2], plus)
    })
}

#[inline(always)]
fn plus(a: Complex, b: Complex) -> Complex {
    [a[0] + b[0], a[1] + b[1]]
}

#[inline(always)]
fn minus(a: Complex, b: Complex) -> Complex {
    [a[0] - b[0], a[1] - b[1]]
}

#[inline(always)]
fn times(a: Complex, b: Complex) -> Complex {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// Computes `exp(-2 pi i k / n)`. Takes sines and cosines of at most an eighth of a turn, so that
/// those that are 0, 1 or equal are so exactly.
fn root(k: u128, n: u128) -> Complex {
    let (eighth, rest) = (8 * k / n % 8, 8 * k % n);
    let to_radians = |rest: u128| rest as f64 / n as f64 * FRAC_PI_4;
    let (cos, sin) = if eighth.is_multiple_of(2) {
        (to_radians(rest).cos(), to_radians(rest).sin())
    } else {
        (to_radians(n - rest).sin(), to_radians(n - rest).cos())
    };
    match eighth / 2 {
        0 => [cos, -sin],
        1 => [-sin, -cos],
        2 => [-cos, sin],
        _ => [sin, cos],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::Pool;

    fn numbers(n: usize, by: usize) -> Vec<f64> {
        (0..n).map(|i| ((i * by + 7) % 1009) as f64 / 504.0 - 1.0).collect()
    }

    /// Transforms by the definition. `x` has pairs.
    fn naive(x: &[f64], n: usize, inverse: bool) -> Vec<f64> {
        let mut y = vec![0.0; 2 * n];
        for k in 0..n {
            for j in 0..n.min(x.len() / 2) {
                let turn = (j * k % n) as f64 / n as f64 * std::f64::consts::TAU;
                let (sin, cos) = if inverse { turn.sin_cos() } else { (-turn).sin_cos() };
                y[2 * k] += x[2 * j] * cos - x[2 * j + 1] * sin;
                y[2 * k + 1] += x[2 * j] * sin + x[2 * j + 1] * cos;
            }
        }
        let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
        y.iter().map(|y| y * scale).collect()
    }

    fn close(found: &[f64], expected: &[f64], what: &str) {
        assert_eq!(found.len(), expected.len(), "{what}");
        let size = expected.iter().fold(1.0, |size: f64, x| size.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs() / size;
            assert!(error <= 1e-12, "{what} at {i}: {found}, not {expected}");
        }
    }

    #[test]
    fn every_length() {
        let lengths = (1..70).chain([77, 97, 121, 128, 169, 210, 240, 251, 400, 512, 1001, 1018]);
        for length in lengths {
            let x = numbers(2 * length, 37);
            for isa in Isa::available() {
                let pool = Pool::new(2);
                let exec = Exec::new(&pool, *isa);
                let tables = Tables::new(*isa, length).unwrap().unwrap();
                for inverse in [false, true] {
                    let spectrum = Spectrum { length, inverse, half: false, complex: true };
                    let lines = Lines { grid: [1, 1], len: length, x: [0, 0, 1], y: [0, 0, 1] };
                    let mut y = vec![0.0; 2 * length];
                    transform(&exec, &tables, spectrum, lines, None, &x, &mut y).unwrap();
                    close(&y, &naive(&x, length, inverse), &format!("{length} {isa:?}"));
                }
            }
        }
    }

    #[test]
    fn halves_are_those_of_real_signals() {
        for length in [1, 2, 3, 8, 9, 30, 34] {
            let x = numbers(length, 29);
            let exec = Exec::new(Pool::serial(), Isa::detect());
            let tables = Tables::new(exec.isa, length).unwrap().unwrap();
            let pairs: Vec<f64> = x.iter().flat_map(|x| [*x, 0.0]).collect();
            let whole = naive(&pairs, length, false);
            let lines = Lines { grid: [1, 1], len: length, x: [0, 0, 1], y: [0, 0, 1] };
            let there = Spectrum { length, inverse: false, half: true, complex: false };
            let mut half = vec![0.0; 2 * there.outputs()];
            transform(&exec, &tables, there, lines, None, &x, &mut half).unwrap();
            close(&half, &whole[..half.len()], &format!("half of {length}"));
            let back = Spectrum { inverse: true, complex: true, ..there };
            let lines = Lines { len: length / 2 + 1, ..lines };
            let mut again = vec![0.0; length];
            transform(&exec, &tables, back, lines, None, &half, &mut again).unwrap();
            close(&again, &x, &format!("back from half of {length}"));
        }
    }

    #[test]
    fn lines_of_a_grid_are_cut_filled_up_and_weighted() {
        // Two by three lines of four elements, three apart.
        let x: Vec<f32> = numbers(24, 31).iter().map(|x| *x as f32).collect();
        let window = [0.5f32, 1.0, 2.0, 0.25, 4.0, 8.0];
        for length in [3, 4, 6] {
            let tables = Tables::new(Isa::detect(), length).unwrap().unwrap();
            for window in [None, Some(&window[..])] {
                let spectrum = Spectrum { length, inverse: false, half: false, complex: false };
                let lines = Lines { grid: [2, 3], len: 4, x: [12, 1, 3], y: [3 * length, 1, 3] };
                let mut first: Option<Vec<f32>> = None;
                for threads in [1, 2, 3] {
                    let pool = Pool::new(threads);
                    let exec = Exec::new(&pool, Isa::detect());
                    let mut y = vec![0.0f32; 2 * 6 * length];
                    transform(&exec, &tables, spectrum, lines, window, &x, &mut y).unwrap();
                    for (a, b) in (0..6).map(|line| (line / 3, line % 3)) {
                        let element = |i: usize| {
                            let factor = window.map_or(1.0, |window| f64::from(window[i]));
                            [f64::from(x[a * 12 + b + 3 * i]) * factor, 0.0]
                        };
                        let line: Vec<f64> = (0..4).flat_map(element).collect();
                        let expected = naive(&line, length, false);
                        for (i, expected) in expected.iter().enumerate() {
                            let at = 2 * (a * 3 * length + b + i / 2 * 3) + i % 2;
                            let error = (f64::from(y[at]) - expected).abs();
                            assert!(error <= 1e-6 * (1.0 + expected.abs()), "{length} {a} {b} {i}");
                        }
                    }
                    assert_eq!(first.get_or_insert(y.clone()), &y, "{threads} threads");
                }
            }
        }
    }
}
