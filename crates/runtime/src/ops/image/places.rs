//! Coordinates of output elements of Resize in the input, and the weights of their neighbours.
//!
//! Works on one axis at a time, in double precision: the standard defines coordinates without a
//! precision, and the reference evaluator computes them in double. Only a coordinate that is the
//! quotient of an index by a scale is rounded to single precision before it selects an element.
//! Coordinates are divided by the input's length times the scale, which may have a fraction, as the
//! test suite of the standard does; its text divides by the length of the output.

use sardonyx_kernels::copy::NOWHERE;
use sardonyx_kernels::resize::cubic_weight;

use crate::error::BindError;

/// Limit: coordinate from which on single precision cannot represent halves between elements.
const LARGEST_SINGLE: f64 = 4_194_304.0;

/// Formula from coordinates of the output to coordinates of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transform {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    /// `tf_half_pixel_for_nn` of version 11: half an element after `HalfPixel`. An axis of scale 1
    /// is not shifted, so that channels are not mixed.
    HalfPixelForNearest,
    /// The region of interest fills the output.
    CropAndResize,
}

impl Transform {
    pub(super) fn new(word: Option<&str>) -> Result<Transform, BindError> {
        Ok(match word {
            Some("half_pixel") | None => Transform::HalfPixel,
            Some("half_pixel_symmetric") => Transform::HalfPixelSymmetric,
            Some("pytorch_half_pixel") => Transform::PytorchHalfPixel,
            Some("align_corners") => Transform::AlignCorners,
            Some("asymmetric") => Transform::Asymmetric,
            Some("tf_crop_and_resize") => Transform::CropAndResize,
            Some(other) => {
                return Err(BindError::Invalid(format!(
                    "unknown coordinate_transformation_mode \"{other}\""
                )));
            }
        })
    }
}

/// Rule that selects one of the two neighbours of a coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nearest {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

impl Nearest {
    pub(super) fn new(word: Option<&str>) -> Result<Nearest, BindError> {
        Ok(match word {
            Some("round_prefer_floor") | None => Nearest::RoundPreferFloor,
            Some("round_prefer_ceil") => Nearest::RoundPreferCeil,
            Some("floor") => Nearest::Floor,
            Some("ceil") => Nearest::Ceil,
            Some(other) => {
                return Err(BindError::Invalid(format!("unknown nearest_mode \"{other}\"")));
            }
        })
    }
}

/// Interpolation as a weighted sum of neighbours.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Blend {
    /// Parameter of the cubic; `None` for linear interpolation.
    pub(super) cubic: Option<f64>,
    /// Whether the neighbourhood grows for outputs smaller than the input.
    pub(super) antialias: bool,
    /// Whether neighbours outside of the input have no weight. Otherwise they repeat the edge.
    pub(super) exclude_outside: bool,
}

impl Blend {
    /// Returns the weight of a neighbour at a distance in elements.
    fn weight(&self, distance: f64) -> f64 {
        match self.cubic {
            None => (1.0 - distance.abs()).max(0.0),
            Some(a) => cubic_weight(a, distance),
        }
    }

    /// Returns the factor by which distances shrink, and the number of neighbours, which is even.
    fn reach(&self, scale: f64) -> (f64, usize) {
        let radius = if self.cubic.is_some() { 2.0 } else { 1.0 };
        let shrink = if self.antialias { scale.min(1.0) } else { 1.0 };
        (shrink, 2 * (radius / shrink).ceil() as usize)
    }
}

/// Axis of the input and the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    pub(super) len: usize,
    pub(super) out: usize,
    /// Scale in formulas with sizes.
    pub(super) scale: f64,
    /// Scale as stored in the file, for formulas that divide an index alone.
    pub(super) stored: f64,
    /// Part of the axis that fills the output, as fractions of the length.
    pub(super) region: (f64, f64),
}

impl Axis {
    /// Returns the coordinate in the input; `None` outside of it.
    fn place(&self, transform: Transform, at: usize) -> Option<f64> {
        let at = at as f64;
        let (last, width) = (self.len as f64 - 1.0, self.scale * self.len as f64);
        let half = |at: f64| (at + 0.5) / self.scale - 0.5;
        Some(match transform {
            Transform::HalfPixel => half(at),
            Transform::HalfPixelSymmetric => {
                let excess = 1.0 - self.out as f64 / width;
                // Evaluated in the order of the reference, so that a coordinate on an element stays
                // on it.
                self.len as f64 / 2.0 * excess + (at + 0.5) / self.scale - 0.5
            }
            // Follows the standard. The reference uses -0.5, which differs for a cubic.
            Transform::PytorchHalfPixel if self.out == 1 => 0.0,
            Transform::PytorchHalfPixel => half(at),
            Transform::AlignCorners if width == 1.0 => 0.0,
            Transform::AlignCorners => at * last / (width - 1.0),
            Transform::Asymmetric => at / self.stored,
            Transform::HalfPixelForNearest if self.scale == 1.0 => at,
            Transform::HalfPixelForNearest => (at + 0.5) / self.scale,
            Transform::CropAndResize => {
                let (start, end) = self.region;
                let within = if self.out == 1 {
                    (end - start) * last / 2.0
                } else {
                    at * (end - start) * last / (width - 1.0)
                };
                let place = within + start * last;
                return (0.0..=last).contains(&place).then_some(place);
            }
        })
    }

    /// Splits a coordinate into the element before it and the distance from that, above 0 and at
    /// most 1.
    fn split(place: f64) -> (i64, f64) {
        let before = place.ceil() - 1.0;
        (before as i64, place - before)
    }

    fn clamp_index(&self, index: i64) -> usize {
        usize::try_from(index).map_or(0, |index| index.min(self.len - 1))
    }

    /// Fills a table with the index of the input element of each output.
    pub(super) fn indices(&self, transform: Transform, nearest: Nearest, table: &mut [usize]) {
        for (at, index) in table.iter_mut().enumerate() {
            let Some(mut place) = self.place(transform, at) else {
                *index = NOWHERE;
                continue;
            };
            // Single precision: element 7 of an axis shrunk by 0.7 is element 10, although the
            // file's float is below 0.7. ONNX Runtime rounds like this, too.
            if transform == Transform::Asymmetric && place < LARGEST_SINGLE {
                place = f64::from(place as f32);
            }
            let (before, ratio) = Axis::split(place);
            let takes_next = match nearest {
                _ if ratio == 1.0 => true,
                Nearest::RoundPreferFloor => ratio > 0.5,
                Nearest::RoundPreferCeil => ratio >= 0.5,
                Nearest::Floor => false,
                Nearest::Ceil => true,
            };
            *index = self.clamp_index(before.saturating_add(i64::from(takes_next)));
        }
    }

    /// Returns the maximum number of input elements of an output.
    pub(super) fn most_inputs(&self, blend: &Blend) -> usize {
        blend.reach(self.scale).1.min(self.len)
    }

    /// Writes the weights of an output element to the front of `weights`, and returns its first
    /// input element and their number.
    pub(super) fn blend(
        &self,
        transform: Transform,
        blend: &Blend,
        at: usize,
        weights: &mut [f64],
    ) -> (usize, usize) {
        let Some(place) = self.place(transform, at) else {
            return (0, 0);
        };
        let (shrink, reach) = blend.reach(self.scale);
        let (before, ratio) = Axis::split(place);
        let half = reach as i64 / 2;
        // Far outside, all neighbours are the edge element.
        let (low, high) = (-(reach as i64), (self.len + reach) as i64);
        let start = before.clamp(low, high) - half + 1;
        let neighbours = (start..start + reach as i64).zip(1 - half..).map(|(index, offset)| {
            let is_outside = index < 0 || index >= self.len as i64;
            let weight = blend.weight((offset as f64 - ratio) * shrink);
            (index, if is_outside && blend.exclude_outside { 0.0 } else { weight })
        });
        let mut total = 1.0;
        if blend.antialias || blend.exclude_outside {
            let sum: f64 = neighbours.clone().map(|(_, weight)| weight).sum();
            total = if sum == 0.0 { 1.0 } else { sum };
        }
        let first = start.clamp(0, (self.len - weights.len()) as i64) as usize;
        weights.fill(0.0);
        for (index, weight) in neighbours {
            weights[self.clamp_index(index) - first] += weight / total;
        }
        // An element without weight is not read, as it may be infinite.
        let Some(low) = weights.iter().position(|weight| *weight != 0.0) else {
            return (0, 0);
        };
        let high = weights.iter().rposition(|weight| *weight != 0.0).unwrap_or(low);
        weights.copy_within(low..=high, 0);
        (first + low, high + 1 - low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(len: usize, out: usize, scale: f64) -> Axis {
        Axis { len, out, scale, stored: scale, region: (0.0, 1.0) }
    }

    #[test]
    fn the_element_before_a_place() {
        assert_eq!(Axis::split(2.25), (2, 0.25));
        assert_eq!(Axis::split(2.0), (1, 1.0));
        assert_eq!(Axis::split(-0.25), (-1, 0.75));
        assert_eq!(Axis::split(0.0), (-1, 1.0));
    }

    #[test]
    fn weights_fall_on_the_edge_or_away() {
        let mut weights = [0.0; 4];
        let (twice, half) = (axis(4, 8, 2.0), Transform::HalfPixel);
        let mut cubic = Blend { cubic: Some(-0.75), antialias: false, exclude_outside: false };
        assert_eq!(twice.blend(half, &cubic, 0, &mut weights), (0, 2));
        assert_eq!(weights[..2], [1.10546875, -0.10546875]);
        cubic.exclude_outside = true;
        assert_eq!(twice.blend(half, &cubic, 0, &mut weights), (0, 2));
        assert_eq!(weights[0] + weights[1], 1.0);
        assert!(weights[0] > 1.1);
        // An output on an element is that element.
        assert_eq!(axis(4, 4, 1.0).blend(half, &cubic, 2, &mut weights), (2, 1));
        assert_eq!(weights[0], 1.0);
        // More neighbours than there are elements.
        let tent = Blend { cubic: None, antialias: true, exclude_outside: false };
        let small = axis(3, 1, 1.0 / 3.0);
        assert_eq!(small.most_inputs(&tent), 3);
        let mut weights = [0.0; 3];
        assert_eq!(small.blend(half, &tent, 0, &mut weights), (0, 3));
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{weights:?}");
    }

    #[test]
    fn places_far_away_are_at_the_edge() {
        let cubic = Blend { cubic: Some(-0.5), antialias: false, exclude_outside: false };
        let mut weights = [0.0; 2];
        let far = axis(2, 1000, 1e-300);
        assert_eq!(far.blend(Transform::Asymmetric, &cubic, 999, &mut weights), (1, 1));
        let mut table = [0; 2];
        far.indices(Transform::Asymmetric, Nearest::Ceil, &mut table);
        assert_eq!(table, [0, 1]);
        let outside = Axis { region: (2.0, 3.0), ..axis(2, 2, 1.0) };
        outside.indices(Transform::CropAndResize, Nearest::Ceil, &mut table);
        assert_eq!(table, [NOWHERE; 2]);
    }
}
