//! Sampling of images at coordinates between their elements, and its gradients.
//!
//! What is read at a place is a sum of a few elements with weights, which are products of one
//! weight for each axis. Each of these is a polynomial of the distance between the place and the
//! element before it, so its slope is one as well.

use crate::gradient::{Backward, Expr};

/// How elements make up what is between them: for each element that is read along an axis how far
/// it is from the one before the place, and the coefficients of its weight, from the constant on.
#[derive(Clone, Copy)]
pub(crate) struct Between(&'static [(i64, [f64; 4])]);

/// The element before a place.
pub(crate) const NEAREST: Between = Between(&[(0, [1.0, 0.0, 0.0, 0.0])]);

pub(crate) const LINEAR: Between =
    Between(&[(0, [1.0, -1.0, 0.0, 0.0]), (1, [0.0, 1.0, 0.0, 0.0])]);

/// Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981, with parameter
/// -0.75.
pub(crate) const CUBIC: Between = Between(&[
    (-1, [0.0, -0.75, 1.5, -0.75]),
    (0, [1.0, 0.0, -2.25, 1.25]),
    (1, [0.0, 0.75, 1.5, -1.25]),
    (2, [0.0, 0.0, -0.75, 0.75]),
]);

/// What is read outside of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Zero,
    /// The nearest element.
    Border,
    /// The image, turned around at the border as often as it takes.
    Reflection {
        /// Whether it is turned around at the centres of elements, not at their sides.
        at_centres: bool,
    },
}

/// Images that are read.
pub(crate) struct Images<'s, 'c> {
    /// `[images, channels, elements]`
    pub(crate) x: Expr<'c>,
    /// Sizes of the axes that elements have.
    pub(crate) sizes: &'s [Expr<'c>],
    /// Where the image of each place begins in `elements`, if that are several images one after the
    /// other: `[images, places]`.
    pub(crate) start: Option<Expr<'c>>,
}

/// What is read along one axis: `[images, places, elements]` each.
struct Along<'c> {
    indices: Expr<'c>,
    weights: Expr<'c>,
    slopes: Expr<'c>,
}

/// Places in images, and the elements that make up what is read there.
pub(crate) struct Samples<'c> {
    /// `[images, channels, elements]`
    x: Expr<'c>,
    /// The elements, within an image: `[images, channels, places * count]`.
    indices: Expr<'c>,
    /// `[images, places, count]`
    weights: Expr<'c>,
    /// By axis: of the weights by the coordinate of the place.
    slopes: Vec<Expr<'c>>,
    /// What is read: `[images, channels, places, count]`.
    elements: Expr<'c>,
}

/// The elements of an axis at `[images, places]` coordinates.
fn along<'c>(
    cx: &'c Backward<'_>,
    (between, outside): (Between, Outside),
    size: Expr<'c>,
    coordinates: Expr<'c>,
) -> Along<'c> {
    let elem = coordinates.elem();
    let floor = coordinates.op("Floor");
    let part = (coordinates - floor).unsqueeze(&[-1]);
    let steps: Vec<i64> = between.0.iter().map(|(step, _)| *step).collect();
    let [c0, c1, c2, c3] = [0, 1, 2, 3].map(|power| {
        let of_power: Vec<f64> = between.0.iter().map(|(_, weights)| weights[power]).collect();
        cx.numbers_of(&of_power, elem)
    });
    let (weights, slopes) = match between.0 {
        // A sample of one element reads it at any place, also at NaN.
        [_] => {
            let sizes = part.shape();
            (part.number(1.0).expand(sizes), part.number(0.0).expand(sizes))
        }
        _ => {
            let weights = c0 + part * (c1 + part * (c2 + part * c3));
            (weights, c1 + part * (c2 * 2.0 + part * c3 * 3.0))
        }
    };
    // A place that is no number reads the first element, with a weight that is none either.
    let first = floor.compare("Equal", floor).choose(floor, floor.number(0.0));
    let first = first.cast(sardonyx_tensor::DataType::Int64).unsqueeze(&[-1]);
    let indices = first + cx.ints_of(&steps);
    let last = size - 1.0;
    let zero = indices.number(0.0);
    match outside {
        Outside::Zero => {
            let is_inside = indices.compare("GreaterOrEqual", zero);
            let is_inside = is_inside.op_with("And", &[indices.compare("Less", size)], &[]);
            let none = weights.number(0.0);
            let [weights, slopes] = [weights, slopes].map(|value| is_inside.choose(value, none));
            Along { indices: indices.clamped(last), weights, slopes }
        }
        Outside::Border => Along { indices: indices.clamped(last), weights, slopes },
        Outside::Reflection { at_centres } => {
            // The first elements are those of an image and of its reflection, one after the other.
            let (period, end) = if at_centres {
                ((last * 2.0).op_with("Max", &[zero + 1.0], &[]), last * 2.0)
            } else {
                (size * 2.0, size * 2.0 - 1.0)
            };
            let mirrored = indices.op_with("Mod", &[period], &[]);
            let indices = mirrored.op_with("Min", &[end - mirrored], &[]);
            Along { indices, weights, slopes }
        }
    }
}

impl<'c> Samples<'c> {
    /// At `[images, places]` coordinates for each axis.
    pub(crate) fn new(
        cx: &'c Backward<'_>,
        how: (Between, Outside),
        Images { x, sizes, start }: Images<'_, 'c>,
        coordinates: &[Expr<'c>],
    ) -> Samples<'c> {
        let axes = sizes.len();
        let count = how.0.0.len().pow(axes as u32) as i64;
        let all: Vec<Along<'c>> = sizes
            .iter()
            .zip(coordinates)
            .map(|(size, coordinates)| along(cx, how, *size, *coordinates))
            .collect();
        // An axis of its own for the elements along each axis.
        let apart = |value: Expr<'c>, axis: usize| {
            let others = (0..axes).filter(|other| *other != axis);
            let others: Vec<i64> = others.map(|other| other as i64 + 2).collect();
            if others.is_empty() { value } else { value.unsqueeze(&others) }
        };
        let together = |value: Expr<'c>| {
            let shape = value.sizes(0, Some(2)).concat(&[cx.ints_of(&[count])], 0);
            value.reshape(shape)
        };
        let mut indices = apart(all[0].indices, 0);
        for (axis, along) in all.iter().enumerate().skip(1) {
            indices = indices * sizes[axis] + apart(along.indices, axis);
        }
        let product = |slope_of: Option<usize>| {
            let factors = all.iter().enumerate().map(|(axis, along)| {
                let is_slope = slope_of == Some(axis);
                apart(if is_slope { along.slopes } else { along.weights }, axis)
            });
            together(factors.reduce(|all, next| all * next).unwrap_or(x))
        };
        let (weights, slopes) =
            (product(None), (0..axes).map(|axis| product(Some(axis))).collect());
        let mut indices = together(indices);
        if let Some(start) = start {
            indices = indices + start.unsqueeze(&[-1]);
        }
        let places = indices.sizes(1, Some(2));
        let one = cx.ints_of(&[1]);
        let in_line = x.sizes(0, Some(1)).concat(&[one, places * cx.ints_of(&[count])], 0);
        let of_channels = x.sizes(0, Some(2)).concat(&[one], 0);
        let indices = indices.reshape(in_line).expand(of_channels);
        let elements = x.op_with("GatherElements", &[indices], &[("axis", 2.into())]);
        let shape = x.sizes(0, Some(2)).concat(&[places, cx.ints_of(&[count])], 0);
        let elements = elements.reshape(shape);
        Samples { x, indices, weights, slopes, elements }
    }

    /// Each element that is read, times its weight: `[images, channels, places, count]`.
    pub(crate) fn parts(&self) -> Expr<'c> {
        self.weights.unsqueeze(&[1]).scale_by(self.elements)
    }

    /// What is read at each place: `[images, channels, places]`.
    pub(crate) fn values(&self) -> Expr<'c> {
        self.parts().sum(&[3], false)
    }

    /// The gradient of `x`, where `dy` has those of the parts, or one for all parts of a place.
    pub(crate) fn of_images(&self, dy: Expr<'c>) -> Expr<'c> {
        let parts = dy.scale_by(self.weights.unsqueeze(&[1])).reshape(self.indices.shape());
        let attributes = [("axis", 2.into()), ("reduction", "add".into())];
        self.x.zeros().op_with("ScatterElements", &[self.indices, parts], &attributes)
    }

    /// The gradients of coordinates, by axis.
    pub(crate) fn of_coordinates(&self, dy: Expr<'c>) -> Vec<Expr<'c>> {
        let sums = dy.scale_by(self.elements).sum(&[1], false);
        let of_axis = |slopes: &Expr<'c>| {
            // An element without a slope, like all outside, is not read: it may be infinite.
            let read = sums.drop_unused(*slopes);
            (read * slopes.drop_unused(sums)).sum(&[2], false)
        };
        self.slopes.iter().map(of_axis).collect()
    }
}
