//! GridSample: samples images at the coordinates of a grid.

use std::marker::PhantomData;

use sardonyx_kernels::grid::{
    self, ElementDims, ImageBatch, Interpolation, MOST_ELEMENTS, OutsideValue, Sampling,
};
use sardonyx_kernels::{FloatLoops, Loops, MoveLoops, Pool, ResizeLoops};
use sardonyx_tensor::{Bool8, Complex64, Complex128, DataType, Dims, Element};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::ops::tensor::moves::{Movement, copy_strided, move_elements};
use crate::scratch::Scratch;

/// Binds `GridSample`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let invalid = |name: &str, word: &str| {
        Err(BindError::Invalid(format!("attribute '{name}' must not be \"{word}\"")))
    };
    let between = match site.string("mode").as_deref() {
        None | Some("linear") => Interpolation::Linear,
        Some("nearest") => Interpolation::Nearest,
        Some("cubic") => Interpolation::Cubic,
        Some(other) => return invalid("mode", other),
    };
    let outside = match site.string("padding_mode").as_deref() {
        None | Some("zeros") => OutsideValue::Zero,
        Some("border") => OutsideValue::Border,
        Some("reflection") => OutsideValue::Reflection,
        Some(other) => return invalid("padding_mode", other),
    };
    let align_corners = site.need_int("align_corners")? != 0;
    let how = Sampling { between, outside, align_corners };
    if between == Interpolation::Nearest {
        return Ok(Box::new(Nearest(how)));
    }
    for_element!(
        site, site.elem(0)?,
        [f32, f64, half::f16, half::bf16, i8, i16, i32, i64, u8, u16, u32, u64, Bool8, Complex64, Complex128],
        T => Interpolated::<T> { how, elements: PhantomData }
    )
}

/// Sampling coordinates and sizes.
struct Places {
    images: usize,
    channels: usize,
    /// Sizes of the spatial axes.
    sizes: Dims,
    /// Dimensions of the output.
    dims: Dims,
    /// Coordinates of samples, `[images, places, axes]`.
    at: Scratch<f64>,
}

impl Places {
    fn new(call: &Call<'_>, how: Sampling) -> Result<Places, KernelError> {
        let (x, grid) = (call.tensor(0)?.dims(), call.tensor(1)?.dims());
        let (&[images, channels, ref sizes @ ..], &[grid_images, ref places @ .., axes]) =
            (x, grid)
        else {
            fail!("the input has rank {} and the grid {}, not at least 3", x.len(), grid.len());
        };
        if sizes.is_empty() || grid.len() != x.len() || grid_images != images || axes != sizes.len()
        {
            fail!(
                "the grid {grid:?} does not match the input {x:?}: it must have rank {}, at least 3, start with \
                 {images} and end with {}",
                x.len(),
                sizes.len()
            );
        }
        let dims: Dims = x[..2].iter().chain(places).copied().collect();
        if sizes.contains(&0) && sardonyx_tensor::shape::elems(&dims)? > 0 {
            fail!("the input is empty: {x:?}");
        }
        let at = match call.tensor(1)?.data_type() {
            DataType::Float => coordinates::<f32>(call, how, sizes)?,
            DataType::Double => coordinates::<f64>(call, how, sizes)?,
            DataType::Float16 => coordinates::<half::f16>(call, how, sizes)?,
            DataType::Bfloat16 => coordinates::<half::bf16>(call, how, sizes)?,
            other => fail!("the grid has type {other}, which is not a floating-point type"),
        };
        Ok(Places { images, channels, sizes: sizes.into(), dims, at })
    }

    /// Returns the number of samples in each image.
    fn count(&self) -> usize {
        self.dims[2..].iter().product()
    }

    /// Returns the number of elements of a channel.
    fn image(&self) -> usize {
        self.sizes.iter().product()
    }
}

fn coordinates<G: FloatLoops + Element>(
    call: &Call<'_>,
    how: Sampling,
    sizes: &[usize],
) -> Result<Scratch<f64>, KernelError> {
    let given = call.slice::<G>(1)?;
    let mut at = call.scratch::<f64>(given.len())?;
    G::coordinates(call.exec.pool, how, sizes, given, &mut at)?;
    Ok(at)
}

/// Takes the nearest element, of any type.
struct Nearest(Sampling);

impl Kernel for Nearest {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, places) = (call.exec.pool, Places::new(call, self.0)?);
        let mut elements = call.scratch::<usize>(places.images * places.count())?;
        grid::nearest(pool, self.0, &places.sizes, &places.at, &mut elements)?;
        let data = call.tensor(0)?.clone();
        let sizes = ElementDims {
            images: places.images,
            channels: places.channels,
            image: places.image(),
            places: places.count(),
        };
        move_elements(call, 0, &places.dims, &[data], &GridElements { sizes, elements: &elements })
    }

    fn describe(&self) -> String {
        "nearest elements at grid locations".to_string()
    }
}

struct GridElements<'a> {
    sizes: ElementDims,
    elements: &'a [usize],
}

impl Movement for GridElements<'_> {
    fn run<T: MoveLoops>(
        &self,
        pool: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        T::read_elements(pool, self.sizes, self.elements, sources[0], out)?;
        Ok(())
    }
}

struct Interpolated<T> {
    how: Sampling,
    elements: PhantomData<fn() -> T>,
}

impl<T: Blended> Kernel for Interpolated<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let axes = call.tensor(0)?.rank().saturating_sub(2);
        if self.how.between.elements(axes).is_none() {
            fail!(
                "{:?} interpolation along {axes} axes reads more than {MOST_ELEMENTS} elements for each output",
                self.how.between
            );
        }
        let places = Places::new(call, self.how)?;
        T::read(call, self.how, &places)
    }

    fn describe(&self) -> String {
        format!("{:?} interpolation of {} at grid locations", self.how.between, T::DATA_TYPE)
    }
}

/// Element types that can be interpolated.
trait Blended: Element {
    fn read(call: &mut Call<'_>, how: Sampling, places: &Places) -> Result<(), KernelError>;
}

macro_rules! as_they_are {
    ($($t:ty)*) => { $(
        impl Blended for $t {
            fn read(call: &mut Call<'_>, how: Sampling, places: &Places) -> Result<(), KernelError> {
                let (exec, x) = (call.exec, call.slice::<$t>(0)?);
                let y = call.output_slice::<$t>(0, &places.dims)?;
                let images = ImageBatch {
                    images: places.images,
                    channels: places.channels,
                    sizes: &places.sizes,
                };
                <$t>::read_between(exec, how, images, x, &places.at, y)?;
                Ok(())
            }
        }
    )* };
}

as_they_are!(f32 f64);

/// Samples elements that were converted to floats, `parts` of each, into new memory.
fn read_reals<R: ResizeLoops + bytemuck::Pod>(
    call: &Call<'_>,
    how: Sampling,
    places: &Places,
    parts: usize,
    reals: &[R],
) -> Result<Scratch<R>, KernelError> {
    let len = sardonyx_tensor::shape::elems(&places.dims)?;
    let mut y = call.scratch::<R>(len.saturating_mul(parts))?;
    let images = ImageBatch {
        images: places.images,
        channels: places.channels * parts,
        sizes: &places.sizes,
    };
    R::read_between(call.exec, how, images, reals, &places.at, &mut y)?;
    Ok(y)
}

/// Integers are truncated at the end.
macro_rules! as_reals {
    ($($t:ty)*) => { $(
        impl Blended for $t {
            fn read(call: &mut Call<'_>, how: Sampling, places: &Places) -> Result<(), KernelError> {
                let (exec, x) = (call.exec, call.slice::<$t>(0)?);
                let mut reals = call.scratch(x.len())?;
                <$t>::to_reals(exec, x, &mut reals)?;
                let y = read_reals(call, how, places, 1, &reals)?;
                <$t>::from_reals(exec, &y, call.output_slice::<$t>(0, &places.dims)?)?;
                Ok(())
            }
        }
    )* };
}

as_reals!(half::f16 half::bf16 i8 i16 i32 i64 u8 u16 u32 u64);

/// Samples booleans as 0 and 1; a result other than 0 is true.
impl Blended for Bool8 {
    fn read(call: &mut Call<'_>, how: Sampling, places: &Places) -> Result<(), KernelError> {
        let x = call.slice::<Bool8>(0)?;
        let mut reals = call.scratch::<f32>(x.len())?;
        reals.iter_mut().zip(x).for_each(|(real, x)| *real = f32::from(u8::from(x.0 != 0)));
        let found = read_reals(call, how, places, 1, &reals)?;
        let y = call.output_slice::<Bool8>(0, &places.dims)?;
        y.iter_mut().zip(&*found).for_each(|(y, found)| *y = Bool8(u8::from(*found != 0.0)));
        Ok(())
    }
}

/// Samples the parts of complex numbers like channels.
macro_rules! by_parts {
    ($($t:ty: $part:ty;)*) => { $(
        impl Blended for $t {
            fn read(call: &mut Call<'_>, how: Sampling, places: &Places) -> Result<(), KernelError> {
                let (pool, x) = (call.exec.pool, call.slice::<$t>(0)?);
                let planes = places.images * places.channels;
                let apart = |parts: &[$part], len: usize, apart: &mut [$part]| {
                    let strides = [2 * len as isize, 1, 2];
                    copy_strided(pool, &[planes, 2, len], &strides, parts, apart)
                };
                let mut reals = call.scratch::<$part>(2 * x.len())?;
                apart(bytemuck::cast_slice(x), places.image(), &mut reals)?;
                let found = read_reals(call, how, places, 2, &reals)?;
                let count = places.count();
                let y = bytemuck::cast_slice_mut(call.output_slice::<$t>(0, &places.dims)?);
                let strides = [2 * count as isize, 1, count as isize];
                copy_strided(pool, &[planes, count, 2], &strides, &found, y)?;
                Ok(())
            }
        }
    )* };
}

by_parts! {
    Complex64: f32;
    Complex128: f64;
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use sardonyx_ops::AttrValue;
    use sardonyx_tensor::{StringArray, Tensor};

    use super::*;
    use crate::ops::testing::{run, tensor};

    fn make_attributes(
        mode: &'static str,
        padding: &'static str,
    ) -> [(&'static str, AttrValue<'static>); 2] {
        [("mode", AttrValue::from(mode)), ("padding_mode", AttrValue::from(padding))]
    }

    /// Places in two columns: at the first, between both, at the second, outside.
    fn grid() -> Tensor {
        tensor(&[1, 1, 4, 2], &[-0.5f32, 0.0, 0.0, 0.0, 0.5, 0.0, 5.0, 0.0])
    }

    #[test]
    fn every_type() {
        let dims = [1, 1, 1, 4];
        macro_rules! of {
            ($number:expr) => {{
                let x = tensor(&[1, 1, 1, 2], &[2u8, 4].map($number));
                let found = run(
                    "GridSample",
                    &make_attributes("linear", "zeros"),
                    &[Some(&x), Some(&grid())],
                    1,
                );
                assert_eq!(found.unwrap()[0], tensor(&dims, &[2u8, 3, 4, 0].map($number)));
                let found = run(
                    "GridSample",
                    &make_attributes("nearest", "border"),
                    &[Some(&x), Some(&grid())],
                    1,
                );
                assert_eq!(found.unwrap()[0], tensor(&dims, &[2u8, 2, 4, 4].map($number)));
            }};
        }
        of!(f32::from);
        of!(f64::from);
        of!(|x| f16::from_f32(f32::from(x)));
        of!(|x| bf16::from_f32(f32::from(x)));
        of!(|x| x as i8);
        of!(i16::from);
        of!(i32::from);
        of!(i64::from);
        of!(|x| x);
        of!(u16::from);
        of!(u32::from);
        of!(u64::from);
        of!(|x| Complex64 { re: f32::from(x), im: f32::from(x) / 4.0 });
        of!(|x| Complex128 { re: 0.0, im: f64::from(x) });
        let x = tensor(&[1, 1, 1, 2], &[0, 9].map(Bool8));
        let inputs = [Some(&x), Some(&grid())];
        let found = run("GridSample", &make_attributes("linear", "zeros"), &inputs, 1).unwrap();
        assert_eq!(found[0], tensor(&dims, &[0, 1, 1, 0].map(Bool8)));
        let strings = |dims: &[usize], texts: &[&str]| {
            Tensor::from_strings(dims, texts.iter().collect::<StringArray>()).unwrap()
        };
        let x = strings(&[1, 1, 1, 2], &["a", "b"]);
        let inputs = [Some(&x), Some(&grid())];
        let found = run("GridSample", &make_attributes("nearest", "zeros"), &inputs, 1).unwrap();
        assert_eq!(found[0], strings(&dims, &["a", "a", "b", ""]));
        let found = run("GridSample", &make_attributes("cubic", "zeros"), &inputs, 1);
        assert_eq!(found.unwrap_err(), "type not implemented: string");
    }

    #[test]
    fn grids_of_every_type() {
        let x = tensor(&[1, 2, 2, 1], &[1f32, 2.0, 3.0, 4.0]);
        let places = [0.0f32, -0.5, 0.0, 1.5];
        for grid in [
            tensor(&[1, 2, 1, 2], &places),
            tensor(&[1, 2, 1, 2], &places.map(f64::from)),
            tensor(&[1, 2, 1, 2], &places.map(f16::from_f32)),
            tensor(&[1, 2, 1, 2], &places.map(bf16::from_f32)),
        ] {
            let inputs = [Some(&x), Some(&grid)];
            let found =
                run("GridSample", &make_attributes("linear", "reflection"), &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[1, 2, 2, 1], &[1f32, 2.0, 3.0, 4.0]));
        }
        // Without places there is nothing to read, and so no image is needed.
        let inputs = [Some(&tensor(&[1, 2, 0], &[0f32; 0])), Some(&tensor(&[1, 0, 1], &[0f32; 0]))];
        let found = run("GridSample", &make_attributes("linear", "border"), &inputs, 1).unwrap();
        assert_eq!(found[0].dims(), [1, 2, 0]);
    }

    #[test]
    fn images_without_elements() {
        // Without channels nothing is read.
        let (x, grid) = (tensor::<f32>(&[1, 0, 0, 2], &[]), tensor(&[1, 1, 1, 2], &[9f32; 2]));
        for mode in ["nearest", "linear", "cubic"] {
            for padding in ["zeros", "border", "reflection"] {
                let found =
                    run("GridSample", &make_attributes(mode, padding), &[Some(&x), Some(&grid)], 1);
                assert_eq!(found.unwrap()[0].dims(), [1, 0, 1, 1], "{mode} {padding}");
            }
        }
    }

    #[test]
    fn what_is_refused() {
        let zeros = |dims: &[usize]| tensor(dims, &vec![0f32; dims.iter().product()]);
        let rows: [(&[usize], &[usize], &str); 7] = [
            (&[1, 1], &[1, 2], "the grid [1, 2] does not match the input [1, 1]"),
            (&[1], &[1], "the input has rank 1 and the grid 1, not at least 3"),
            (&[1, 1, 2, 2], &[1, 3, 2], "it must have rank 4"),
            (&[1, 1, 2, 2], &[2, 1, 1, 2], "start with 1 and end with 2"),
            (&[1, 1, 2, 2], &[1, 1, 1, 3], "start with 1 and end with 2"),
            (&[1, 1, 0, 2], &[1, 1, 1, 2], "the input is empty: [1, 1, 0, 2]"),
            (
                &[1; 11],
                &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9],
                "Cubic interpolation along 9 axes reads",
            ),
        ];
        for (x, grid, refusal) in rows {
            let inputs = [Some(&zeros(x)), Some(&zeros(grid))];
            let found =
                run("GridSample", &make_attributes("cubic", "zeros"), &inputs, 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
        let inputs = [Some(&zeros(&[1, 1, 1, 1])), Some(&grid())];
        for (mode, padding, refusal) in [
            ("bilinear", "zeros", "attribute 'mode' must not be \"bilinear\""),
            ("linear", "edge", "attribute 'padding_mode' must not be \"edge\""),
        ] {
            let found = run("GridSample", &make_attributes(mode, padding), &inputs, 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }
}
