//! RoiAlign: regions of feature maps, divided into cells.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::number::Number;
use sardonyx_kernels::roi::{CellValue, ImageRegions, MOST_SAMPLES, RoiAlign};
use sardonyx_kernels::{Loops, ResizeLoops};
use sardonyx_tensor::{Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::scratch::Scratch;

struct Regions<T> {
    how: RoiAlign<f64>,
    elements: PhantomData<fn() -> T>,
}

/// Binds `RoiAlign`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let size = |name: &str| -> Result<usize, BindError> {
        let size = site.need_int(name)?;
        usize::try_from(size)
            .map_err(|_| BindError::Invalid(format!("{name} must not be negative, not {size}")))
    };
    let value = match site.string("mode").as_deref() {
        Some("avg") | None => CellValue::Mean,
        Some("max") => CellValue::Max,
        Some(other) => return Err(BindError::Invalid(format!("unknown mode \"{other}\""))),
    };
    let half_pixel = match site.string("coordinate_transformation_mode").as_deref() {
        Some("half_pixel") | None => true,
        Some("output_half_pixel") => false,
        Some(other) => {
            return Err(BindError::Invalid(format!(
                "unknown coordinate_transformation_mode \"{other}\""
            )));
        }
    };
    // As in the reference, a ratio below 1 means about one sample per element.
    let sampling = usize::try_from(site.need_int("sampling_ratio")?).unwrap_or(0);
    let how = RoiAlign {
        value,
        cells: [size("output_height")?, size("output_width")?],
        sampling,
        scale: f64::from(site.float("spatial_scale").unwrap_or(1.0)),
        half_pixel,
    };
    for_element!(site, site.elem(0)?, floats, T => Regions::<T> { how, elements: PhantomData })
}

/// Converts an input to the type in which it is interpolated.
fn reals<T: Element + Loops>(call: &Call<'_>, index: usize) -> Result<Scratch<T::Real>, KernelError>
where
    T::Real: Pod,
{
    let x = call.slice::<T>(index)?;
    let mut reals = call.scratch::<T::Real>(x.len())?;
    T::to_reals(call.exec, x, &mut reals)?;
    Ok(reals)
}

impl<T: Element + Loops> Kernel for Regions<T>
where
    T::Real: ResizeLoops + Pod,
{
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Ok(dims) = <[usize; 4]>::try_from(call.tensor(0)?.dims()) else {
            fail!("the input must have four dimensions, not {:?}", call.tensor(0)?.dims());
        };
        let regions = reals::<T>(call, 1)?;
        let numbers = call.slice::<i64>(2)?;
        let region_dims = call.tensor(1)?.dims();
        if region_dims != [numbers.len(), 4] {
            fail!(
                "rois has dimensions {region_dims:?}, but batch_indices has {} regions",
                numbers.len()
            );
        }
        let mut images = call.scratch::<usize>(numbers.len())?;
        for (image, number) in images.iter_mut().zip(numbers) {
            match usize::try_from(*number) {
                Ok(number) if number < dims[0] => *image = number,
                _ => fail!("batch index {number} is out of range: there are {} images", dims[0]),
            }
        }
        let RoiAlign { value, cells, sampling, scale, half_pixel } = self.how;
        let scale = T::Real::from_f64(scale);
        let how = RoiAlign { value, cells, sampling, scale, half_pixel };
        let samples = how.most_samples(&regions);
        if samples > MOST_SAMPLES {
            fail!(
                "a cell of a region needs {samples} samples along an axis, more than {MOST_SAMPLES}: set \
                 sampling_ratio, or check rois and spatial_scale"
            );
        }
        let out: Dims = [numbers.len(), dims[1], cells[0], cells[1]].into_iter().collect();
        let x = reals::<T>(call, 0)?;
        let elems = sardonyx_tensor::shape::elems(&out)?;
        if elems > 0 && dims[2] * dims[3] == 0 {
            fail!("the input is empty: {dims:?}");
        }
        let mut y = call.scratch::<T::Real>(elems)?;
        let exec = call.exec;
        T::Real::roi_align(
            exec,
            &how,
            dims.into(),
            &x,
            ImageRegions { corners: &regions, images: &images },
            &mut y,
        )?;
        T::from_reals(exec, &y, call.output_slice::<T>(0, &out)?)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Float, Int};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn cells_of_regions() {
        let x: Vec<f32> = (0..16).map(|at| at as f32).collect();
        let x = tensor(&[1, 1, 4, 4], &x);
        let rois = tensor(&[1, 4], &[0f32, 0.0, 8.0, 8.0]);
        let given = [
            ("output_height", Int(2)),
            ("output_width", Int(2)),
            ("spatial_scale", Float(0.5)),
            ("sampling_ratio", Int(2)),
        ];
        let images = tensor(&[1], &[0i64]);
        let found = run("RoiAlign", &given, &[Some(&x), Some(&rois), Some(&images)], 1).unwrap();
        assert!(found[0].bit_eq(&tensor(&[1, 1, 2, 2], &[2.5f32, 4.5, 10.5, 12.5])), "{found:?}");
        let images = tensor(&[1], &[1i64]);
        let found = run("RoiAlign", &given, &[Some(&x), Some(&rois), Some(&images)], 1);
        assert!(found.unwrap_err().contains("batch index 1 is out of range: there are 1 images"));
        let (images, rois) = (tensor(&[1], &[0i64]), tensor(&[1, 4], &[0f32, 0.0, 1e30, 1.0]));
        let found = run("RoiAlign", &[], &[Some(&x), Some(&rois), Some(&images)], 1);
        assert!(found.unwrap_err().contains("set sampling_ratio"));
        let found = run(
            "RoiAlign",
            &[("mode", AttrValue::from("sum"))],
            &[Some(&x), Some(&rois), Some(&images)],
            1,
        );
        assert!(found.unwrap_err().contains("unknown mode \"sum\""));
    }
}
