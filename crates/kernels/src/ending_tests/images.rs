//! Kernels of images: windows, regions, grids and pixels.

use crate::boxes::{BoxDims, Suppression, suppress};
use crate::columns::{BlockAxis, add_columns, any_of_columns};
use crate::copy::PickDims;
use crate::deform::{Deform, deformed_patches};
use crate::grid::{
    ElementDims, ImageBatch, Interpolation, OutsideValue, Sampling, coordinates, nearest,
    read_between, read_elements,
};
use crate::norm::LocalResponse;
use crate::pixels::{self, GroupNorm, Pixels, PixelsMut, Total};
use crate::pooling::{
    Divisor, Order, Window, average_pool, lp_pool, lp_pool_scratch, max_pool, max_pool_gradient,
    max_pool_with_indices,
};
use crate::resize::{Taps, along_axis, from_reals, to_reals};
use crate::roi::{CellValue, ImageRegions, RoiAlign, max_roi_pool, roi_align};
use crate::rotary::{Angles, Rotary, RotaryDims, rotary};
use crate::softmax::Softmax;
use crate::{Ended, Exec};

use super::{Case, MANY, case, floats, indices};

/// Height and width of images.
const SIZE: usize = 30;
const PLANE: usize = SIZE * SIZE;
/// Number of planes of an input.
const PLANES: usize = 60;

const WINDOW: Window<'static> = Window {
    input: &[SIZE; 2],
    output: &[SIZE; 2],
    kernel: &[3; 2],
    strides: &[1; 2],
    dilations: &[1; 2],
    pads_begin: &[1; 2],
    pads_end: &[1; 2],
};

pub(super) fn cases() -> Vec<Case> {
    [window_cases(), region_cases(), grid_cases(), pixel_cases()].into_iter().flatten().collect()
}

fn x() -> Vec<f32> {
    floats(PLANES * PLANE)
}

fn window_cases() -> Vec<Case> {
    let len = PLANES * PLANE;
    let axes = |count: usize| {
        [BlockAxis { image: SIZE, block: 3, stride: 1, dilation: 1, before: 0, count }; 2]
    };
    vec![
        case("kernels/pooling max_pool", len, |exec, y: &mut [f32]| {
            max_pool(exec, PLANES, &WINDOW, &x(), y)
        }),
        case("kernels/pooling average_pool", len, |exec, y: &mut [f32]| {
            average_pool(exec, PLANES, &WINDOW, Divisor::Inside, &x(), y)
        }),
        case("kernels/pooling lp_pool", len, |exec, y: &mut [f32]| {
            let mut scratch = vec![f32::NAN; lp_pool_scratch(PLANES, &WINDOW)];
            lp_pool(exec, PLANES, &WINDOW, 2, &x(), &mut scratch, y)
        }),
        case("kernels/pooling max_pool_with_indices", len, |exec, y: &mut [i64]| {
            let mut values = vec![f32::NAN; y.len()];
            max_pool_with_indices(exec, PLANES, &WINDOW, Order::ColumnMajor, &x(), &mut values, y)
        }),
        case("kernels/pooling/gradient max_pool_gradient", len, |exec, y: &mut [f32]| {
            let places = indices(PLANES * PLANE, PLANE);
            max_pool_gradient(exec, PLANE, &places, &x(), y)
        }),
        case("kernels/columns add_columns", 8 * PLANE, move |exec, y: &mut [f32]| {
            let axes = axes(SIZE - 2);
            add_columns(exec, &axes, &floats(8 * 9 * (SIZE - 2).pow(2)), y)
        }),
        case("kernels/columns any_of_columns", 8 * PLANE, move |exec, y: &mut [u8]| {
            let axes = axes(SIZE - 2);
            let x: Vec<u8> = (0..8 * 9 * (SIZE - 2).pow(2)).map(|at| (at % 3) as u8).collect();
            any_of_columns(exec, &axes, &x, y)
        }),
        case("kernels/deform deformed_patches", 4 * 9 * PLANE, |exec, y: &mut [f32]| {
            let geometry = Deform {
                channels: 4,
                offset_groups: 1,
                input: &[SIZE; 2],
                output: &[SIZE; 2],
                kernel: &[3; 2],
                strides: &[1; 2],
                dilations: &[1; 2],
                pads_begin: &[1; 2],
            };
            deformed_patches(exec, &geometry, &floats(4 * PLANE), &floats(18 * PLANE), None, y)
        }),
    ]
}

fn region_cases() -> Vec<Case> {
    vec![
        case("kernels/boxes suppress", 2 * 200, |exec, y: &mut [i64]| {
            let boxes: Vec<f32> =
                (0..1000).flat_map(|at| [at, at, at + 1, at + 1]).map(|at| at as f32).collect();
            y.fill(-1);
            let how = Suppression { overlap: 0.5, score: None };
            let dims = BoxDims { batch: 1, classes: 2, boxes: 1000 };
            suppress(exec, how, dims, &boxes, &floats(2000), y, &mut [0; 2])
        }),
        case("kernels/roi roi_align", 40 * 8 * 49, |exec, y: &mut [f32]| {
            let how = RoiAlign {
                value: CellValue::Mean,
                cells: [7, 7],
                sampling: 2,
                scale: 1.0,
                half_pixel: true,
            };
            let regions: Vec<f32> = (0..40).flat_map(|at| [1.0, 2.0, at as f32, 20.0]).collect();
            roi_align(
                exec,
                &how,
                [1, 8, SIZE, SIZE].into(),
                &floats(8 * PLANE),
                ImageRegions { corners: &regions, images: &[0; 40] },
                y,
            )
        }),
        case("kernels/roi max_roi_pool", 40 * 8 * 49, |exec, y: &mut [f32]| {
            let regions: Vec<[i64; 5]> = (0..40).map(|at| [0, 1, 2, at % 28, 20]).collect();
            max_roi_pool(exec, [7, 7], [1, 8, SIZE, SIZE].into(), &floats(8 * PLANE), &regions, y)
        }),
        case("kernels/rotary rotary", 4 * 8 * 64 * 32, |exec, y: &mut [f32]| {
            let (cos, sin) = (floats(64 * 16), floats(64 * 16));
            let which = Rotary { interleaved: false, pairs: 16, columns: 16 };
            let angles = Angles { cos: &cos, sin: &sin, positions: None };
            let dims = RotaryDims { outer: 1, heads: 8, inner: 64, features: 4 * 32 };
            rotary(exec, which, dims, &floats(4 * 8 * 64 * 32), angles, y)
        }),
    ]
}

fn grid_cases() -> Vec<Case> {
    const READING: Sampling = Sampling {
        between: Interpolation::Linear,
        outside: OutsideValue::Zero,
        align_corners: false,
    };
    const SIZES: &[usize] = &[SIZE; 2];
    fn places(exec: &Exec<'_>) -> Result<Vec<f64>, Ended> {
        let mut places = vec![f64::NAN; 2 * 4000];
        coordinates(exec.pool, READING, SIZES, &floats(2 * 4000), &mut places)?;
        Ok(places)
    }
    vec![
        case("kernels/grid coordinates", MANY, |exec, y: &mut [f64]| {
            coordinates(exec.pool, READING, SIZES, &floats(MANY), y)
        }),
        case("kernels/grid nearest", 4000, |exec, y: &mut [usize]| {
            nearest(exec.pool, READING, SIZES, &places(exec)?, y)
        }),
        case("kernels/grid read_elements", 8 * 4000, |exec, y: &mut [f32]| {
            let elements: Vec<usize> = (0..4000).map(|at| at * 7919 % PLANE).collect();
            let dims = ElementDims { images: 1, channels: 8, image: PLANE, places: 4000 };
            read_elements(exec.pool, dims, &elements, &floats(8 * PLANE), y)
        }),
        case("kernels/grid read_between", 8 * 4000, |exec, y: &mut [f32]| {
            let images = ImageBatch { images: 1, channels: 8, sizes: SIZES };
            read_between(exec, READING, images, &floats(8 * PLANE), &places(exec)?, y)
        }),
        case("kernels/resize along_axis", 2 * MANY, |exec, y: &mut [f32]| {
            let first: Vec<usize> = (0..200).map(|at| at / 2).collect();
            let (count, weights) = (vec![1; 200], vec![0.5; 200]);
            let taps =
                Taps { first: &first, count: &count, weights: &weights, stride: 1, outside: 0.0 };
            along_axis(exec, [MANY / 100, 100, 1].into(), &taps, &floats(MANY), y)
        }),
        case("kernels/resize to_reals", MANY, |exec, y: &mut [f32]| {
            to_reals(exec, &floats(MANY), y)
        }),
        case("kernels/resize from_reals", MANY, |exec, y: &mut [f32]| {
            from_reals(exec, &floats(MANY), y)
        }),
    ]
}

/// Images and channels of pixels.
const IMAGES: usize = 2;
const CHANNELS: usize = 64;
const PIXELS: usize = IMAGES * PLANE;
const LEN: usize = PIXELS * CHANNELS;

fn pixel_cases() -> Vec<Case> {
    type Kernel = fn(&Exec<'_>, Pixels<'_>, PixelsMut<'_>) -> Result<(), Ended>;
    fn by_pixel(name: &'static str, pixels: usize, kernel: Kernel) -> Case {
        case(name, pixels * CHANNELS, move |exec, y: &mut [f32]| {
            let x = floats(LEN);
            let x = Pixels::new(&x, PIXELS, CHANNELS, CHANNELS);
            kernel(exec, x, PixelsMut::new(y, pixels, CHANNELS, CHANNELS))
        })
    }
    vec![
        by_pixel("kernels/pixels/affine scale_shift", PIXELS, |exec, x, y| {
            pixels::scale_shift(exec, &floats(CHANNELS), &floats(CHANNELS), Some(x), y)
        }),
        by_pixel("kernels/pixels/local local_response_norm", PIXELS, |exec, x, y| {
            let response = LocalResponse { size: 3, alpha: 0.1, beta: 0.75, bias: 1.0 };
            pixels::local_response_norm(exec, response, x, y)
        }),
        by_pixel("kernels/pixels/normalize group_norm", PIXELS, |exec, x, y| {
            let (scale, shift) = (floats(CHANNELS), floats(CHANNELS));
            let norm = GroupNorm { groups: 8, epsilon: 1e-5, scale: &scale, shift: &shift };
            pixels::group_norm(exec, IMAGES, norm, x, y)
        }),
        by_pixel("kernels/pixels/pick pick", PIXELS, |exec, x, y| {
            let tables: Vec<usize> = [IMAGES, SIZE, SIZE].into_iter().flat_map(|n| 0..n).collect();
            let dims = &[IMAGES, SIZE, SIZE][..];
            pixels::pick(exec, PickDims { input: dims, output: dims }, &tables, x, y)
        }),
        by_pixel("kernels/pixels/pool max_pool", PIXELS, |exec, x, y| {
            pixels::max_pool(exec, IMAGES, &WINDOW, x, y)
        }),
        by_pixel("kernels/pixels/pool average_pool", PIXELS, |exec, x, y| {
            pixels::average_pool(exec, IMAGES, &WINDOW, Divisor::Inside, x, y)
        }),
        by_pixel("kernels/pixels/reduce reduce", IMAGES, |exec, x, y| {
            pixels::reduce(exec, Total::Mean, IMAGES, x, y)
        }),
        case("kernels/pixels/reorder from_rows", LEN, |exec, y: &mut [f32]| {
            let y = PixelsMut::new(y, PIXELS, CHANNELS, CHANNELS);
            pixels::from_rows(exec, IMAGES, &floats(LEN), y)
        }),
        case("kernels/pixels/reorder to_rows", LEN, |exec, y: &mut [f32]| {
            let x = floats(LEN);
            pixels::to_rows(exec, IMAGES, Pixels::new(&x, PIXELS, CHANNELS, CHANNELS), y)
        }),
        by_pixel("kernels/pixels/rows softmax", PIXELS, |exec, x, y| {
            pixels::softmax(exec, Softmax::Softmax, Some(x), y)
        }),
        by_pixel("kernels/pixels/rows layer_norm", PIXELS, |exec, x, y| {
            pixels::layer_norm(exec, &floats(CHANNELS), None, 1e-5, Some(x), y)
        }),
        by_pixel("kernels/pixels/shuffle shuffle", PIXELS, |exec, x, y| {
            pixels::shuffle(exec, 8, x, y)
        }),
    ]
}
