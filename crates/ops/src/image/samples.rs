//! Sampling of images at coordinates between their elements, and its gradients.
//!
//! The value at a position is a weighted sum of a few elements. Each weight is a product of one
//! weight for each axis, which is a polynomial of the distance between the position and the element
//! before it, so its slope is a polynomial too.

use crate::gradient::{Backward, Expr};

/// Interpolation between elements: for each element that is read along an axis, its distance from
/// the one before the position, and the coefficients of its weight by rising power.
#[derive(Clone, Copy)]
pub(crate) struct Between(&'static [(i64, [f64; 4])]);

/// Reads the element before a position.
pub(crate) const NEAREST: Between = Between(&[(0, [1.0, 0.0, 0.0, 0.0])]);

pub(crate) const LINEAR: Between =
    Between(&[(0, [1.0, -1.0, 0.0, 0.0]), (1, [0.0, 1.0, 0.0, 0.0])]);

/// Reads four elements: Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981,
/// with parameter -0.75.
pub(crate) const CUBIC: Between = Between(&[
    (-1, [0.0, -0.75, 1.5, -0.75]),
    (0, [1.0, 0.0, -2.25, 1.25]),
    (1, [0.0, 0.75, 1.5, -1.25]),
    (2, [0.0, 0.0, -0.75, 0.75]),
]);

/// Elements outside an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outside {
    Zero,
    /// Nearest element.
    Border,
    /// Image reflected at its border, repeatedly if necessary.
    Reflection {
        /// Whether the centres of elements are the axes of reflection, not their sides.
        at_centres: bool,
    },
}

/// Interpolation between elements and rule for elements outside of an image.
#[derive(Clone, Copy)]
pub(crate) struct Sampling {
    pub(crate) between: Between,
    pub(crate) outside: Outside,
}

/// Images to sample.
pub(crate) struct Images<'s, 'c> {
    /// `[images, channels, elements]`
    pub(crate) x: Expr<'c>,
    /// Sizes of the spatial axes.
    pub(crate) sizes: &'s [Expr<'c>],
    /// Index in `elements` at which the image of each position begins, if it holds several images
    /// one after the other: `[images, places]`.
    pub(crate) start: Option<Expr<'c>>,
}

/// Samples along one axis: `[images, places, elements]` each.
struct Along<'c> {
    indices: Expr<'c>,
    weights: Expr<'c>,
    slopes: Expr<'c>,
}

/// Positions in images, and the elements that are read there.
pub(crate) struct Samples<'c> {
    /// `[images, channels, elements]`
    x: Expr<'c>,
    /// Indices of elements within an image: `[images, channels, places * count]`.
    indices: Expr<'c>,
    /// `[images, places, count]`
    weights: Expr<'c>,
    /// Derivatives of the weights by the coordinates of the position, by axis.
    slopes: Vec<Expr<'c>>,
    /// Elements that are read: `[images, channels, places, count]`.
    elements: Expr<'c>,
}

/// Samples an axis at `[images, places]` coordinates.
fn sample_axis<'c>(
    cx: &'c Backward<'_>,
    Sampling { between, outside }: Sampling,
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
        // A single element is read at any position, also at NaN.
        [_] => {
            let sizes = part.shape();
            (part.number(1.0).expand(sizes), part.number(0.0).expand(sizes))
        }
        _ => {
            let weights = c0 + part * (c1 + part * (c2 + part * c3));
            (weights, c1 + part * (c2 * 2.0 + part * c3 * 3.0))
        }
    };
    // A position of NaN reads the first element, with a weight that is NaN too.
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
            Along { indices: indices.clamp(last), weights, slopes }
        }
        Outside::Border => Along { indices: indices.clamp(last), weights, slopes },
        Outside::Reflection { at_centres } => {
            // A period consists of the image and its reflection.
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
    /// Samples images at `[images, places]` coordinates for each axis.
    pub(crate) fn new(
        cx: &'c Backward<'_>,
        sampling: Sampling,
        Images { x, sizes, start }: Images<'_, 'c>,
        coordinates: &[Expr<'c>],
    ) -> Samples<'c> {
        let axes = sizes.len();
        let count = sampling.between.0.len().pow(axes as u32) as i64;
        let all: Vec<Along<'c>> = sizes
            .iter()
            .zip(coordinates)
            .map(|(size, coordinates)| sample_axis(cx, sampling, *size, *coordinates))
            .collect();
        // Gives the elements along each axis an axis of their own.
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

    /// Makes each element times its weight: `[images, channels, places, count]`.
    pub(crate) fn parts(&self) -> Expr<'c> {
        self.weights.unsqueeze(&[1]).scale_by(self.elements)
    }

    /// Makes the value at each position: `[images, channels, places]`.
    pub(crate) fn values(&self) -> Expr<'c> {
        self.parts().sum(&[3], false)
    }

    /// Makes the gradient of `x`. `dy` has the gradients of the parts, or one for all parts of a
    /// position.
    pub(crate) fn image_gradients(&self, dy: Expr<'c>) -> Expr<'c> {
        let parts = dy.scale_by(self.weights.unsqueeze(&[1])).reshape(self.indices.shape());
        let attributes = [("axis", 2.into()), ("reduction", "add".into())];
        self.x.zeros().op_with("ScatterElements", &[self.indices, parts], &attributes)
    }

    /// Makes the gradients of coordinates, by axis.
    pub(crate) fn coordinate_gradients(&self, dy: Expr<'c>) -> Vec<Expr<'c>> {
        let sums = dy.scale_by(self.elements).sum(&[1], false);
        let of_axis = |slopes: &Expr<'c>| {
            // An element without a slope, like all outside, is not read and may be infinite.
            let read = sums.drop_unused(*slopes);
            (read * slopes.drop_unused(sums)).sum(&[2], false)
        };
        self.slopes.iter().map(of_axis).collect()
    }
}
