//! MaxRoiPool: the largest elements of regions of feature maps, divided into cells.

use std::marker::PhantomData;

use sardonyx_kernels::FloatLoops;
use sardonyx_kernels::number::{Arith, Number};
use sardonyx_kernels::roi::MOST_COORDINATE;
use sardonyx_tensor::{Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;

struct MaxRoiPool<T> {
    /// Numbers of rows and columns of cells.
    cells: [usize; 2],
    /// Factor from coordinates of regions to those of elements.
    scale: f32,
    elements: PhantomData<fn() -> T>,
}

/// Binds `MaxRoiPool`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let shape = site.ints("pooled_shape").unwrap_or_default();
    let sizes: Vec<usize> = shape
        .iter()
        .filter_map(|size| usize::try_from(*size).ok().filter(|size| *size > 0))
        .collect();
    let (Ok(cells), 2) = (<[usize; 2]>::try_from(sizes), shape.len()) else {
        return Err(BindError::Invalid(format!(
            "pooled_shape must be two positive sizes, not {shape:?}"
        )));
    };
    let scale = site.float("spatial_scale").unwrap_or(1.0);
    for_element!(site, site.elem(0)?, floats, T => MaxRoiPool::<T> { cells, scale, elements: PhantomData })
}

impl<T: Element + FloatLoops> MaxRoiPool<T> {
    /// Converts a region to `[image, x1, y1, x2, y2]` in elements.
    fn region(
        &self,
        index: usize,
        numbers: &[T; 5],
        images: usize,
    ) -> Result<[i64; 5], KernelError> {
        let [image, corners @ ..] = numbers.map(T::to_real);
        let image = image.to_f64();
        if !(image >= 0.0 && image < images as f64 && image.fract() == 0.0) {
            fail!("region {index} has batch index {image}, but there are {images} images");
        }
        let scale = T::Real::from_f64(f64::from(self.scale));
        let corners = corners.map(|corner| corner.mul(scale).to_f64().round());
        if corners.iter().any(|corner| !corner.is_finite()) {
            fail!("region {index} has invalid coordinates: {corners:?}");
        }
        let [x1, y1, x2, y2] =
            corners.map(|corner| (corner as i64).clamp(-MOST_COORDINATE, MOST_COORDINATE));
        Ok([image as i64, x1, y1, x2, y2])
    }
}

impl<T: Element + FloatLoops> Kernel for MaxRoiPool<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Ok(dims) = <[usize; 4]>::try_from(call.tensor(0)?.dims()) else {
            fail!("the input must have four dimensions, not {:?}", call.tensor(0)?.dims());
        };
        let &[count, 5] = call.tensor(1)?.dims() else {
            fail!("rois must be [regions, 5], not {:?}", call.tensor(1)?.dims());
        };
        let (x, rois) = (call.slice::<T>(0)?, call.slice::<T>(1)?);
        let mut regions = call.scratch::<[i64; 5]>(count)?;
        for (index, (region, numbers)) in
            regions.iter_mut().zip(rois.as_chunks::<5>().0).enumerate()
        {
            *region = self.region(index, numbers, dims[0])?;
        }
        let out = Dims::from_slice(&[count, dims[1], self.cells[0], self.cells[1]]);
        let exec = call.exec;
        let y = call.output_slice::<T>(0, &out)?;
        T::max_roi_pool(exec, self.cells, dims.into(), x, &regions, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("maximum of cells of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Float, Ints};

    use crate::ops::testing::{run, tensor};

    fn cells(shape: &[i64]) -> (&'static str, AttrValue<'static>) {
        ("pooled_shape", Ints(shape.to_vec().into()))
    }

    #[test]
    fn cells_of_regions() {
        let x: Vec<f32> = (0..16).map(|at| at as f32).collect();
        let rois = [0f32, 0.0, 0.0, 3.0, 3.0, 0.0, 1.0, 1.0, 2.0, 1.0, 0.0, 9.0, 9.0, 9.0, 9.0];
        let expected = [5f32, 7.0, 13.0, 15.0, 5.0, 6.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0];
        let (x, rois) = (tensor(&[1, 1, 4, 4], &x), tensor(&[3, 5], &rois));
        let found = run("MaxRoiPool", &[cells(&[2, 2])], &[Some(&x), Some(&rois)], 1).unwrap();
        assert_eq!(found[0], tensor(&[3, 1, 2, 2], &expected));
        let rois = tensor(&[1, 5], &[0f32, 2.0, 0.0, 6.0, 0.0]);
        let given = [cells(&[1, 1]), ("spatial_scale", Float(0.5))];
        let found = run("MaxRoiPool", &given, &[Some(&x), Some(&rois)], 1).unwrap();
        assert_eq!(found[0], tensor(&[1, 1, 1, 1], &[3f32]));
        let none = tensor::<f32>(&[0, 5], &[]);
        let found = run("MaxRoiPool", &given, &[Some(&x), Some(&none)], 1).unwrap();
        assert_eq!(found[0].dims(), [0, 1, 1, 1]);
    }

    #[test]
    fn what_is_refused() {
        let x = tensor(&[1, 1, 2, 2], &[0f64; 4]);
        let rows: [(&[usize], [f64; 5], &str); 5] = [
            (
                &[1, 5],
                [1.0, 0.0, 0.0, 1.0, 1.0],
                "region 0 has batch index 1, but there are 1 images",
            ),
            (&[1, 5], [-1.0, 0.0, 0.0, 1.0, 1.0], "region 0 has batch index -1"),
            (&[1, 5], [0.5, 0.0, 0.0, 1.0, 1.0], "region 0 has batch index 0.5"),
            (&[1, 5], [0.0, f64::NAN, 0.0, 1.0, 1.0], "region 0 has invalid coordinates"),
            (&[5], [0.0; 5], "rois must be [regions, 5], not [5]"),
        ];
        for (dims, rois, refusal) in rows {
            let rois = tensor(dims, &rois);
            let found = run("MaxRoiPool", &[cells(&[1, 1])], &[Some(&x), Some(&rois)], 1);
            let found = found.unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
        let rois = tensor(&[1, 5], &[0f64, 1e300, -1e300, 1e300, 1e300]);
        let found = run("MaxRoiPool", &[cells(&[1, 1])], &[Some(&x), Some(&rois)], 1).unwrap();
        assert_eq!(found[0], tensor(&[1, 1, 1, 1], &[0f64]));
        for shape in [&[2][..], &[2, 0], &[2, 2, -1]] {
            let found = run("MaxRoiPool", &[cells(shape)], &[Some(&x), Some(&rois)], 1);
            assert!(found.unwrap_err().contains("pooled_shape must be two positive sizes"));
        }
    }
}
