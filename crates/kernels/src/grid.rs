//! Images sampled at the places of a grid.
//!
//! For any number of axes and each interpolation, a sample is a weighted sum of a few elements,
//! with the same elements and weights for all channels. So the elements and weights of a block of
//! places are listed once, and then each channel is read.

use crate::copy::{NOWHERE, Plain};
use crate::resize::cubic_weight;
use sardonyx_simd::Pool;
use sardonyx_simd::buffer::{AnyBits, with_scratch_of};
use sardonyx_simd::chunks::{Shared, ranges, rows};
use sardonyx_simd::number::{Math, Number};
use sardonyx_simd::{Ended, Exec};

/// Values outside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideValue {
    Zero,
    /// The nearest element.
    Border,
    /// The image mirrored at its borders, as often as necessary.
    Reflection,
}

/// Interpolation between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest element; of two, the one with the even index.
    Nearest,
    /// Linear along each axis.
    Linear,
    /// Cubic convolution along each axis, by [`cubic_weight`] with parameter -0.75.
    Cubic,
}

impl Interpolation {
    /// Returns the number of elements read along an axis.
    const fn taps(self) -> usize {
        match self {
            Interpolation::Nearest => 1,
            Interpolation::Linear => 2,
            Interpolation::Cubic => 4,
        }
    }

    /// Returns the number of elements read for a place in an image of `axes` axes; `None` for more
    /// than [`MOST_ELEMENTS`].
    pub fn elements(self, axes: usize) -> Option<usize> {
        let elements = self.taps().checked_pow(u32::try_from(axes).ok()?)?;
        Some(elements).filter(|elements| *elements <= MOST_ELEMENTS)
    }
}

/// Value: parameter of the cubic convolution.
const KEYS: f64 = -0.75;

/// Limit: most elements read for a place.
pub const MOST_ELEMENTS: usize = 1 << 16;

/// Interpolation, borders and coordinates of a sampling.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    pub between: Interpolation,
    pub outside: OutsideValue,
    /// Whether -1 and 1 are the centres of the first and last element, not their outer sides.
    pub align_corners: bool,
}

impl Sampling {
    /// Converts a coordinate between -1 and 1 to one of elements, along an axis of `len` elements.
    /// Computes in the type of the grid, whose rounding decides between two nearest elements.
    #[inline]
    fn coordinate<R: Math>(&self, len: usize, place: R) -> f64 {
        let (len, half) = (len as f64, R::from_f64(0.5));
        let place = place.add(R::ONE);
        let place = if self.align_corners {
            place.mul(half).mul(R::from_f64(len - 1.0))
        } else {
            place.mul(R::from_f64(len)).sub(R::ONE).mul(half)
        };
        let place = match self.between {
            Interpolation::Nearest => place.round_even().to_f64(),
            Interpolation::Linear | Interpolation::Cubic => place.to_f64(),
        };
        let [low, high] = if self.align_corners { [0.0, len - 1.0] } else { [-0.5, len - 0.5] };
        // Comparisons with NaN are false: NaN stays.
        let is_outside = place < low || place > high;
        match self.outside {
            OutsideValue::Border if is_outside => place.clamp(0.0, (len - 1.0).max(0.0)),
            OutsideValue::Reflection if is_outside => {
                R::from_f64(reflect(place, low, high)).to_f64()
            }
            _ => place,
        }
    }

    /// Maps an index, perhaps outside the axis, to the element read there; `None` for 0.
    #[inline]
    fn element(&self, index: i64, len: usize) -> Option<usize> {
        let (last, index) = (len as i128 - 1, i128::from(index));
        let inside = match self.outside {
            OutsideValue::Zero => Some(index).filter(|index| (0..=last).contains(index))?,
            OutsideValue::Border => index.clamp(0, last),
            // `at` and `2 * last - at` are mirror images.
            OutsideValue::Reflection if self.align_corners => {
                let index = index.rem_euclid((2 * last).max(1));
                index.min(2 * last - index)
            }
            OutsideValue::Reflection => {
                let index = index.rem_euclid(2 * (last + 1));
                index.min(2 * last + 1 - index)
            }
        };
        Some(inside as usize)
    }

    /// Returns the elements along an axis that make up the value at a coordinate, and their
    /// weights.
    #[inline]
    fn taps<R: Math>(&self, len: usize, coordinate: f64) -> [(Option<usize>, R); 4] {
        let floor = coordinate.floor();
        let (first, t) = (floor as i64, coordinate - floor);
        let tap_at = |step: i64, weight: f64| match self.element(first.saturating_add(step), len) {
            Some(element) => (Some(element), R::from_f64(weight)),
            None => (None, R::ZERO),
        };
        match self.between {
            Interpolation::Nearest => [tap_at(0, 1.0); 4],
            Interpolation::Linear => {
                let (first, second) = (tap_at(0, 1.0 - t), tap_at(1, t));
                [first, second, second, second]
            }
            Interpolation::Cubic => {
                [-1, 0, 1, 2].map(|step| tap_at(step, cubic_weight(KEYS, step as f64 - t)))
            }
        }
    }

    /// Lists the elements of an image that make up the value at a place, and their weights.
    fn list<R: Math>(
        &self,
        sizes: &[usize],
        place: &[f64],
        elements: &mut [usize],
        weights: &mut [R],
    ) {
        (elements[0], weights[0]) = (0, R::ONE);
        let (mut count, taps) = (1, self.between.taps());
        for (len, coordinate) in sizes.iter().zip(place) {
            let along = self.taps::<R>(*len, *coordinate);
            // From the end, so that each of the first `count` entries is read before it is
            // replaced.
            for at in (0..count).rev() {
                let (element, weight) = (elements[at], weights[at]);
                for (tap, (along, part)) in along[..taps].iter().enumerate() {
                    let to = at * taps + tap;
                    (elements[to], weights[to]) = match along {
                        Some(along) if element != NOWHERE => {
                            (element * len + along, weight.mul(*part))
                        }
                        _ => (NOWHERE, R::ZERO),
                    };
                }
            }
            count *= taps;
        }
    }
}

/// Mirrors a place outside `low..high` at the borders until it is inside.
fn reflect(place: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if range <= 0.0 {
        return low;
    }
    let is_below = place < low;
    let beyond = if is_below { low - place } else { place - high };
    let times = (beyond / range).trunc();
    let rest = beyond - times * range;
    let is_odd = times % 2.0 == 1.0;
    if is_below == is_odd { high - rest } else { low + rest }
}

/// Converts the places of a grid, `[.., axes]` with the last axis first, to coordinates of
/// elements, `[.., axes]` with the first axis first, in images of the given sizes.
///
/// # Panics
///
/// If lengths do not fit.
pub fn coordinates<G: Number>(
    pool: &Pool,
    how: Sampling,
    sizes: &[usize],
    grid: &[G],
    places: &mut [f64],
) -> Result<(), Ended> {
    assert_eq!(grid.len(), places.len(), "one coordinate per number");
    let axes = sizes.len();
    rows(pool, places, axes.max(1), 8 * axes, |first, places| {
        let grid = grid[first * axes..].chunks_exact(axes);
        for (place, from) in places.chunks_exact_mut(axes).zip(grid) {
            for ((place, from), len) in place.iter_mut().zip(from.iter().rev()).zip(sizes) {
                *place = how.coordinate(*len, from.to_real());
            }
        }
    })
}

/// Finds the element nearest to each place: its index within an image, or [`NOWHERE`].
///
/// # Panics
///
/// If lengths do not fit.
pub fn nearest(
    pool: &Pool,
    how: Sampling,
    sizes: &[usize],
    places: &[f64],
    elements: &mut [usize],
) -> Result<(), Ended> {
    let axes = sizes.len();
    assert_eq!(places.len(), elements.len() * axes, "one coordinate per axis");
    if sizes.contains(&0) {
        elements.fill(NOWHERE);
        return Ok(());
    }
    rows(pool, elements, 1, 4 * axes, |first, elements| {
        let places = (first..).map(|at| &places[at * axes..][..axes]);
        for (element, place) in elements.iter_mut().zip(places) {
            let along = sizes.iter().zip(place);
            let found = along.clone().try_fold(0, |element, (len, coordinate)| {
                // A coordinate beyond the range of integers saturates, which is outside the image,
                // too.
                Some(element * len + how.element(*coordinate as i64, *len)?)
            });
            *element = found.unwrap_or(NOWHERE);
        }
    })
}

/// Sizes of [`read_elements`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementDims {
    /// Number of images.
    pub images: usize,
    /// Number of channels of an image.
    pub channels: usize,
    /// Number of elements of a channel.
    pub image: usize,
    /// Number of places in an image.
    pub places: usize,
}

/// Reads each channel of each image at listed elements: `y[n, c, p] = x[n, c, elements[n, p]]`, or
/// the default value for [`NOWHERE`].
///
/// # Panics
///
/// If lengths do not fit, or an index is out of range.
pub fn read_elements<T: Plain>(
    pool: &Pool,
    ElementDims { images, channels, image, places }: ElementDims,
    elements: &[usize],
    x: &[T],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(x.len(), images * channels * image, "the input has other dims");
    assert_eq!(y.len(), images * channels * places, "the output has other dims");
    assert_eq!(elements.len(), images * places, "elements for each image");
    if y.is_empty() {
        return Ok(());
    }
    rows(pool, y, places, 2 * places, |first, y| {
        for (plane, y) in (first..).zip(y.chunks_exact_mut(places)) {
            let x = &x[plane * image..][..image];
            let elements = &elements[plane / channels * places..][..places];
            for (y, element) in y.iter_mut().zip(elements) {
                *y = if *element == NOWHERE { T::default() } else { x[*element] };
            }
        }
    })
}

/// Cache: elements and weights listed at a time, unless one place has more.
const LISTED: usize = 1024;

/// Sizes of a batch of images.
#[derive(Clone, Copy, Debug)]
pub struct ImageBatch<'a> {
    /// Number of images.
    pub images: usize,
    /// Number of channels of an image.
    pub channels: usize,
    /// Sizes of the spatial axes.
    pub sizes: &'a [usize],
}

/// Samples each channel of each image at coordinates: `x` is `[images, channels, sizes..]`,
/// `places` is `[images, places, axes]`, and `y` is `[images, channels, places]`.
///
/// # Panics
///
/// If lengths do not fit, an image has no elements, or a place reads more than [`MOST_ELEMENTS`].
pub fn read_between<R: Math + AnyBits>(
    exec: &Exec<'_>,
    how: Sampling,
    ImageBatch { images, channels, sizes }: ImageBatch<'_>,
    x: &[R],
    places: &[f64],
    y: &mut [R],
) -> Result<(), Ended> {
    let (image, axes) = (sizes.iter().product::<usize>(), sizes.len());
    assert_eq!(x.len(), images * channels * image, "the input has other dims");
    if y.is_empty() {
        return Ok(());
    }
    let count = y.len() / (images * channels);
    assert_eq!(y.len(), images * channels * count, "the output has other dims");
    assert_eq!(places.len(), images * count * axes, "one coordinate per axis");
    assert!(image > 0, "an image has elements");
    let taps = how.between.elements(axes).expect("a place has few elements");
    let block = (LISTED / taps).clamp(1, count);
    let per_image = count.div_ceil(block);
    let shared = Shared::new(y);
    let work = block * taps * (4 + 2 * channels);
    ranges(exec.pool, images * per_image, work, |blocks| {
        with_scratch_of(block * taps, |elements: &mut [usize]| {
            with_scratch_of(block * taps, |weights: &mut [R]| {
                for at in blocks {
                    let (n, first) = (at / per_image, at % per_image * block);
                    let len = block.min(count - first);
                    let places = &places[(n * count + first) * axes..][..len * axes];
                    let lists = elements.chunks_exact_mut(taps).zip(weights.chunks_exact_mut(taps));
                    for (at, (elements, weights)) in lists.take(len).enumerate() {
                        how.list(sizes, &places[at * axes..][..axes], elements, weights);
                    }
                    for c in n * channels..(n + 1) * channels {
                        let x = &x[c * image..][..image];
                        // SAFETY: blocks of places are disjoint, each is sampled by one thread, and
                        // one channel of it is borrowed at a time.
                        let y = unsafe { shared.part(c * count + first, len) };
                        let lists = elements.chunks_exact(taps).zip(weights.chunks_exact(taps));
                        for (y, (elements, weights)) in y.iter_mut().zip(lists) {
                            *y = sum_weighted(x, elements, weights);
                        }
                    }
                }
            });
        });
    })
}

/// Sums the weighted elements. [`NOWHERE`] counts as 0.
#[inline]
fn sum_weighted<R: Math>(x: &[R], elements: &[usize], weights: &[R]) -> R {
    elements.iter().zip(weights).fold(R::ZERO, |sum, (element, weight)| match x.get(*element) {
        Some(x) => sum.add(weight.mul(*x)),
        None => sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::Isa;

    const WAYS: [OutsideValue; 3] =
        [OutsideValue::Zero, OutsideValue::Border, OutsideValue::Reflection];

    /// Interpolates at a place, axis by axis, mapping each index into the image step by step.
    fn naive(how: Sampling, sizes: &[usize], x: &[f64], place: &[f64]) -> f64 {
        let (Some((len, sizes)), Some((at, place))) = (sizes.split_first(), place.split_first())
        else {
            return x[0];
        };
        let inner: usize = sizes.iter().product();
        let value_at = |index: i64| {
            let (mut index, last) = (index, *len as i64 - 1);
            while !(0..=last).contains(&index) {
                index = match how.outside {
                    OutsideValue::Zero => return 0.0,
                    OutsideValue::Border => index.clamp(0, last),
                    OutsideValue::Reflection if last == 0 => 0,
                    OutsideValue::Reflection => {
                        let gap = if how.align_corners { 0 } else { 1 };
                        if index < 0 { -index - gap } else { 2 * last + gap - index }
                    }
                };
            }
            naive(how, sizes, &x[index as usize * inner..][..inner], place)
        };
        let (first, t) = (at.floor() as i64, at - at.floor());
        match how.between {
            Interpolation::Nearest => value_at(at.round_ties_even() as i64),
            Interpolation::Linear => (1.0 - t) * value_at(first) + t * value_at(first + 1),
            Interpolation::Cubic => {
                let terms = (-1..3).map(|step| {
                    let (d, a) = ((t - step as f64).abs(), -0.75);
                    let weight = if d <= 1.0 {
                        (a + 2.0) * d.powi(3) - (a + 3.0) * d.powi(2) + 1.0
                    } else {
                        a * d.powi(3) - 5.0 * a * d.powi(2) + 8.0 * a * d - 4.0 * a
                    };
                    weight * value_at(first + step)
                });
                terms.sum()
            }
        }
    }

    /// Computes a coordinate by the definition, one reflection after the other.
    fn place(how: Sampling, len: usize, at: f64) -> f64 {
        let len = len as f64;
        let (mut at, [low, high]) = if how.align_corners {
            ((at + 1.0) / 2.0 * (len - 1.0), [0.0, len - 1.0])
        } else {
            (((at + 1.0) * len - 1.0) / 2.0, [-0.5, len - 0.5])
        };
        if how.between == Interpolation::Nearest {
            at = at.round_ties_even();
        }
        while (at < low || at > high) && how.outside == OutsideValue::Reflection {
            at = if high == low {
                low
            } else if at < low {
                2.0 * low - at
            } else {
                2.0 * high - at
            };
        }
        let is_outside = at < low || at > high;
        if is_outside && how.outside == OutsideValue::Border {
            at.clamp(0.0, len - 1.0)
        } else {
            at
        }
    }

    /// Compares sampling of all channels with [`naive`].
    fn check(how: Sampling, images: usize, channels: usize, sizes: &[usize], count: usize) {
        let (image, axes) = (sizes.iter().product::<usize>(), sizes.len());
        let make_number = |at: usize| (at * 29 % 31) as f64 / 4.0 - 3.0;
        let x: Vec<f64> = (0..images * channels * image).map(make_number).collect();
        // Multiples of 1/8, so that results are exact.
        let grid: Vec<f64> =
            (0..images * count * axes).map(|at| (at * 7 % 41) as f64 / 8.0 - 2.5).collect();
        let mut places = vec![0.0; grid.len()];
        let pool = Pool::new(2);
        coordinates(&pool, how, sizes, &grid, &mut places).unwrap();
        let expected_place: Vec<f64> = (0..grid.len())
            .map(|at| place(how, sizes[at % axes], grid[at / axes * axes + axes - 1 - at % axes]))
            .collect();
        assert_eq!(places, expected_place, "{how:?} {sizes:?}");
        let mut y = vec![9.0; images * channels * count];
        if how.between == Interpolation::Nearest {
            let mut elements = vec![0; images * count];
            nearest(&pool, how, sizes, &places, &mut elements).unwrap();
            let dims = ElementDims { images, channels, image, places: count };
            read_elements(&pool, dims, &elements, &x, &mut y).unwrap();
        } else {
            for threads in [1, 2] {
                let pool = Pool::new(threads);
                let exec = Exec::new(&pool, Isa::detect());
                let mut again = y.clone();
                read_between(
                    &exec,
                    how,
                    ImageBatch { images, channels, sizes },
                    &x,
                    &places,
                    &mut again,
                )
                .unwrap();
                assert!(threads == 1 || again == y, "threads matter");
                y = again;
            }
        }
        for (at, y) in y.iter().enumerate() {
            let (plane, p) = (at / count, at % count);
            let place = &places[(plane / channels * count + p) * axes..][..axes];
            let expected = naive(how, sizes, &x[plane * image..][..image], place);
            assert!((y - expected).abs() < 1e-9, "{how:?} {sizes:?} {at}: {y} {expected}");
        }
    }

    #[test]
    fn every_way_of_reading() {
        for between in [Interpolation::Nearest, Interpolation::Linear, Interpolation::Cubic] {
            for outside in WAYS {
                for align_corners in [false, true] {
                    let how = Sampling { between, outside, align_corners };
                    check(how, 2, 3, &[4, 5], 70);
                    check(how, 1, 2, &[7], 30);
                    check(how, 2, 1, &[2, 3, 4], 40);
                    check(how, 1, 1, &[1, 2, 1, 3], 25);
                    check(how, 1, 0, &[3, 3], 4);
                    check(how, 0, 2, &[3, 3], 4);
                    check(how, 1, 2, &[3, 3], 0);
                }
            }
        }
        let how = Sampling {
            between: Interpolation::Linear,
            outside: OutsideValue::Border,
            align_corners: false,
        };
        check(how, 2, 4, &[30, 40], 3000);
    }

    #[test]
    fn far_away_and_no_number() {
        let grid = [f32::INFINITY, -f32::INFINITY, 1e30, -1e30, f32::NAN];
        for between in [Interpolation::Nearest, Interpolation::Linear, Interpolation::Cubic] {
            for (outside, align_corners) in
                WAYS.into_iter().flat_map(|way| [(way, false), (way, true)])
            {
                let how = Sampling { between, outside, align_corners };
                let mut places = [0.0; 5];
                coordinates(&Pool::new(1), how, &[3], &grid, &mut places).unwrap();
                let pool = Pool::new(1);
                let exec = Exec::new(&pool, Isa::detect());
                let mut y = [9f32; 5];
                if between == Interpolation::Nearest {
                    let mut elements = [0; 5];
                    nearest(exec.pool, how, &[3], &places, &mut elements).unwrap();
                    assert!(elements.iter().all(|at| *at < 3 || *at == NOWHERE));
                    continue;
                }
                let images = ImageBatch { images: 1, channels: 1, sizes: &[3] };
                read_between(&exec, how, images, &[1.0, 2.0, 3.0], &places, &mut y).unwrap();
                match outside {
                    OutsideValue::Zero => assert_eq!(y[..4], [0.0; 4]),
                    OutsideValue::Border => assert_eq!(y[..4], [3.0, 1.0, 3.0, 1.0]),
                    OutsideValue::Reflection => {}
                }
                assert!(y[4].is_nan(), "{how:?} {y:?}");
            }
        }
        assert_eq!(Interpolation::Cubic.elements(8), Some(MOST_ELEMENTS));
        assert_eq!(Interpolation::Cubic.elements(9), None);
        assert_eq!(Interpolation::Linear.elements(64), None);
        assert_eq!(Interpolation::Nearest.elements(64), Some(1));
    }
}
