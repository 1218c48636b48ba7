//! Operators on images: `GridSample`, `ImageDecoder`, `MaxRoiPool`, `NonMaxSuppression`,
//! `RoiAlign`. The others have their own files.

pub(crate) mod affine_grid;
pub(crate) mod center_crop_pad;
pub(crate) mod factors;
pub(crate) mod gradients;
mod non_max_suppression;
pub(crate) mod resize;
mod samples;

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Int64, Uint8};

use crate::attributes::Attributes;
use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, FLOATS_IR4, float, input, int, ints, output, string, types,
};
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static GRID_SAMPLE: OpDef = OpDef::new("GridSample")
    .about("Samples an input at the locations of a grid, with nearest, linear or cubic interpolation. \
         Each location `(x, y)` or `(x, y, z)` has coordinates from -1 to 1 across the input. \
         Locations outside are handled by `padding_mode`. Nearest rounds half to even.")
    .since(
        16,
        &[
            input("X", "T1").differentiable(),
            input("grid", "T2").non_differentiable(),
            output("Y", "T1").differentiable(),
            int("align_corners").or(0),
            string("mode").or_word("bilinear"),
            string("padding_mode").or_word("zeros"),
            types("T1", ALL),
            types("T2", FLOATS),
        ],
    )
    .since(20, &[string("mode").or_word("linear")])
    .since(22, &[types("T1", ALL_IR4), types("T2", FLOATS_IR4)])
    .widens()
    .infer(infer_samples)
    .differs(border_differs)
    .adapter(20, 19, |cx| {
        if cx.rank(0) != Some(4) {
            return Err(cx.refuse("version 16 supports only 2-D images, and the rank of the input is not 4 or unknown"));
        }
        match cx.string("mode").as_deref() {
            None | Some("linear") => cx.set("mode", "bilinear"),
            Some("cubic") => cx.set("mode", "bicubic"),
            _ => {}
        }
        Ok(())
    })
    .adapter(19, 20, |cx| {
        match cx.string("mode").as_deref() {
            Some("bilinear") => cx.set("mode", "linear"),
            Some("bicubic") => cx.set("mode", "cubic"),
            _ => {}
        }
        Ok(())
    })
    .gradient(gradients::grid_sample);

pub(crate) static IMAGE_DECODER: OpDef = OpDef::new("ImageDecoder")
    .about(
        "Decodes an encoded image, such as a PNG or JPEG file, into pixels. Sardonyx reports an \
         error if the image cannot be decoded.",
    )
    .since(
        20,
        &[
            input("encoded_stream", "T1").non_differentiable(),
            output("image", "T2").non_differentiable(),
            string("pixel_format").or_word("RGB"),
            types("T1", TypeSet::tensors(&[Uint8])),
            types("T2", TypeSet::tensors(&[Uint8])),
        ],
    )
    .infer(infer_decoded);

pub(crate) static MAX_ROI_POOL: OpDef = OpDef::new("MaxRoiPool")
    .about(
        "Max pooling over regions of interest. Each region is scaled by `spatial_scale`, divided \
         into a grid of `pooled_shape` cells, and the maximum of each cell is taken.",
    )
    .since(
        1,
        &[
            input("X", "T").differentiable(),
            input("rois", "T").non_differentiable(),
            output("Y", "T").differentiable(),
            ints("pooled_shape").required(),
            float("spatial_scale").or_float(1.0),
            types("T", FLOATS),
        ],
    )
    .since(22, &[types("T", FLOATS_IR4)])
    .widens()
    .infer(infer_max_of_regions)
    .gradient(gradients::max_roi_pool);

pub static NON_MAX_SUPPRESSION: OpDef = OpDef::new("NonMaxSuppression")
    .about("Selects the boxes with the highest scores and suppresses boxes that overlap a selected \
         box. Runs separately for each class of each image. A box is suppressed if its intersection \
         over union (IoU) with a selected box is greater than `iou_threshold`; a box whose IoU is \
         equal to the threshold is kept.")
    .since(
        10,
        &[
            input("boxes", "tensor(float)"),
            input("scores", "tensor(float)"),
            input("max_output_boxes_per_class", "tensor(int64)").optional(),
            input("iou_threshold", "tensor(float)").optional(),
            input("score_threshold", "tensor(float)").optional(),
            output("selected_indices", "tensor(int64)"),
            int("center_point_box").or(0),
        ],
    )
    .since(11, &[])
    .same()
    .infer(non_max_suppression::infer);

pub(crate) static ROI_ALIGN: OpDef = OpDef::new("RoiAlign")
    .about("Pools regions of interest (ROI Align) to a fixed size with bilinear interpolation. Each \
         region is divided into cells; points in each cell are interpolated, and their average or \
         maximum is the output. Since version 16 `coordinate_transformation_mode` selects whether \
         coordinates are shifted by half a pixel; the default is `half_pixel`, while version 10 \
         does not shift.")
    .since(
        10,
        &[
            input("X", "T1"),
            input("rois", "T1"),
            input("batch_indices", "T2"),
            output("Y", "T1"),
            string("mode").or_word("avg"),
            int("output_height").or(1),
            int("output_width").or(1),
            int("sampling_ratio").or(0),
            float("spatial_scale").or_float(1.0),
            types("T1", FLOATS),
            types("T2", TypeSet::tensors(&[Int64])),
        ],
    )
    .since(
        16,
        &[string("coordinate_transformation_mode").or_word("half_pixel")],
    )
    .since(22, &[types("T1", FLOATS_IR4)])
    .widens()
    .infer(infer_aligned_regions)
    .adapter(16, 15, |cx| {
        let mode = cx.string("coordinate_transformation_mode");
        if mode.as_deref() != Some("output_half_pixel") {
            return Err(cx.refuse("coordinate_transformation_mode must be output_half_pixel, which older versions use"));
        }
        cx.remove("coordinate_transformation_mode");
        Ok(())
    })
    .adapter(15, 16, |cx| {
        cx.set("coordinate_transformation_mode", "output_half_pixel");
        Ok(())
    })
    .gradient(gradients::roi_align);

/// Returns the difference of cubic interpolation, which reads pixels outside the image.
fn border_differs(cx: &Infer<'_>) -> Option<String> {
    cx.string("mode").filter(|mode| mode == "cubic" || mode == "bicubic")?;
    cx.string("padding_mode").filter(|mode| mode == "border")?;
    Some(
        "a location is moved into the image before pixels around it are read; ONNX Runtime moves \
         each pixel"
            .to_string(),
    )
}

/// Infers one element per position of the grid `[N, D1, …, axes]`.
fn infer_samples(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let shape = match cx.rank(0).or(cx.rank(1)) {
        Some(rank @ ..3) => {
            return cx.fail(format_args!("the inputs have rank {rank}, not at least 3"));
        }
        Some(rank) => Some(sample_shape(cx, rank)?),
        None => None,
    };
    cx.set_tensor(0, cx.elem(0), shape);
    Ok(())
}

fn sample_shape(cx: &Infer<'_>, rank: usize) -> Result<Shape, InferError> {
    cx.demand_rank(1, rank)?;
    let axes = shared_dim(cx, "axes", &[(1, rank - 1)])?;
    cx.same_dim(&axes, &Dim::from(rank - 2), "the last size of the grid and spatial axes")?;
    let batch = shared_dim(cx, "elements of the batch", &[(0, 0), (1, 0)])?;
    let channels = shared_dim(cx, "channels", &[(0, 1)])?;
    let mut shape: Shape = [batch, channels].into_iter().collect();
    for axis in 1..rank - 1 {
        shape.push(shared_dim(cx, "places", &[(1, axis)])?);
    }
    Ok(shape)
}

/// Infers height, width and channels.
fn infer_decoded(cx: &mut Infer<'_>) -> Result<(), InferError> {
    cx.demand_rank(0, 1)?;
    let channels = match cx.string("pixel_format").as_deref() {
        Some("RGB" | "BGR") => 3,
        Some("Grayscale") => 1,
        other => {
            let other = other.unwrap_or_default();
            return cx.fail(format_args!("pixel_format has no value \"{other}\""));
        }
    };
    let shape = [Dim::Unknown, Dim::Unknown, Dim::Known(channels)];
    cx.set_tensor(0, Some(Uint8), Some(shape.into_iter().collect()));
    cx.set_reason(0, "the size of the encoded image");
    Ok(())
}

/// Returns the shape of a grid of `cells` for each channel of the image and each region. A region
/// has `columns` numbers, and the axes `counted` hold the number of regions.
fn region_shape(
    cx: &Infer<'_>,
    columns: i64,
    counted: &[(usize, usize)],
    cells: [Dim; 2],
) -> Result<Shape, InferError> {
    cx.demand_rank(0, 4)?;
    cx.demand_rank(1, 2)?;
    let found = shared_dim(cx, "numbers", &[(1, 1)])?;
    cx.same_dim(&found, &Dim::Known(columns), "numbers of a region")?;
    let count = shared_dim(cx, "regions", counted)?;
    let channels = shared_dim(cx, "channels", &[(0, 1)])?;
    Ok([count, channels].into_iter().chain(cells).collect())
}

fn infer_max_of_regions(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let cells = match cx.ints("pooled_shape").as_deref() {
        None => [Dim::Unknown, Dim::Unknown],
        Some([height, width]) if *height > 0 && *width > 0 => {
            [Dim::Known(*height), Dim::Known(*width)]
        }
        Some(given) => {
            return cx.fail(format_args!("pooled_shape must be two positive sizes, not {given:?}"));
        }
    };
    let shape = region_shape(cx, 5, &[(1, 0)], cells)?;
    cx.set_tensor(0, cx.elem(0), Some(shape));
    Ok(())
}

fn infer_aligned_regions(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let cells = ["output_height", "output_width"].map(|name| match cx.int(name) {
        Some(size) if size < 0 => cx.fail(format_args!("{name} must not be negative, not {size}")),
        size => Ok(size.map_or(Dim::Unknown, Dim::Known)),
    });
    let [height, width] = cells;
    cx.demand_rank(2, 1)?;
    let shape = region_shape(cx, 4, &[(1, 0), (2, 0)], [height?, width?])?;
    cx.set_tensor(0, cx.elem(0), Some(shape));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AttrValue::Int;
    use crate::tensor::testing::{check, ints, word};

    #[test]
    fn each_position_of_the_grid_is_sampled() {
        for opset in [16, 20, 22] {
            check(
                &GRID_SAMPLE,
                opset,
                &[
                    (&[], "float[N, C, H, W]; float[2, P, ?, 2]", "float[2, C, P, ?]"),
                    (&[], "float[1, 1, 3, 3, 3]; float[1, 3, 2, 3, 3]", "float[1, 1, 3, 2, 3]"),
                    (&[], "float[...]; float[N, H, W, 2]", "float[N, ?, H, W]"),
                    (&[], "float[N, C, H, W]; -", "float[N, C, ?, ?]"),
                    (&[], "-; -", "?[...]"),
                    (&[], "float[1, 1]; -", "GridSample: the inputs have rank 2, not at least 3"),
                    (
                        &[],
                        "float[1, 1, 3, 3]; float[1, 3, 2]",
                        "GridSample: input 1 must have rank 4, not 3",
                    ),
                    (
                        &[],
                        "float[1, 1, 3, 3]; float[1, 3, 3, 3]",
                        "GridSample: the last size of the grid and spatial axes differ (3 and 2)",
                    ),
                ],
            );
        }
    }

    #[test]
    fn regions_become_cells() {
        let cells = || ("pooled_shape", ints(&[2, 3]));
        for opset in [1, 22] {
            check(
                &MAX_ROI_POOL,
                opset,
                &[
                    (&[cells()], "float[5, C, H, W]; float[R, 5]", "float[R, C, 2, 3]"),
                    (&[cells()], "-; -", "?[?, ?, 2, 3]"),
                    (&[], "-; -", "?[?, ?, ?, ?]"),
                    (
                        &[("pooled_shape", ints(&[-1, 2]))],
                        "-; -",
                        "MaxRoiPool: pooled_shape must be two positive sizes, not [-1, 2]",
                    ),
                    (
                        &[cells()],
                        "float[5, 3, 4, 4]; float[2, 4]",
                        "MaxRoiPool: numbers of a region differ (4 and 5)",
                    ),
                ],
            );
        }
        let size = || [("output_height", Int(10)), ("output_width", Int(5))];
        for opset in [10, 16, 22] {
            check(
                &ROI_ALIGN,
                opset,
                &[
                    (&size(), "float[N, C, H, W]; float[R, 4]; int64[R]", "float[R, C, 10, 5]"),
                    (&[], "float[N, C, H, W]; float[R, 4]; int64[15]", "float[15, C, 1, 1]"),
                    (&[], "-; -; -", "?[?, ?, 1, 1]"),
                    (
                        &[],
                        "-; float[3, 4]; int64[4]",
                        "RoiAlign: regions of input 2 and of others differ (3 and 4)",
                    ),
                    (
                        &[("output_width", Int(-1))],
                        "-; -; -",
                        "RoiAlign: output_width must not be negative, not -1",
                    ),
                ],
            );
        }
    }

    #[test]
    fn sizes_that_depend_on_data_are_open() {
        check(
            &IMAGE_DECODER,
            20,
            &[
                (&[], "uint8[?]", "uint8[?, ?, 3]"),
                (&[("pixel_format", word("Grayscale"))], "-", "uint8[?, ?, 1]"),
                (
                    &[("pixel_format", word("CMYK"))],
                    "-",
                    "ImageDecoder: pixel_format has no value \"CMYK\"",
                ),
                (&[], "uint8[1, 8]", "ImageDecoder: input 0 must have rank 1, not 2"),
            ],
        );
        for opset in [10, 11] {
            check(
                &NON_MAX_SUPPRESSION,
                opset,
                &[
                    (&[], "float[1, B, 4]; float[1, C, B]", "int64[?, 3]"),
                    (&[], "-; -", "int64[?, 3]"),
                    (
                        &[],
                        "float[1, 6, 4]; float[1, 2, 5]",
                        "NonMaxSuppression: the numbers of boxes and scores differ (6 and 5)",
                    ),
                    (
                        &[],
                        "float[1, 6, 5]; -",
                        "NonMaxSuppression: a box must have four numbers, not 5",
                    ),
                ],
            );
        }
    }

    #[test]
    fn older_forms_are_expressed_by_newer_ones() {
        use crate::math::testing::raise_version;
        let sample =
            |mode: &'static str| raise_version(&GRID_SAMPLE, 19, &[("mode", mode.into())], "-; -");
        assert_eq!(sample("bilinear"), "y = GridSample(a, b) mode=linear");
        assert_eq!(sample("bicubic"), "y = GridSample(a, b) mode=cubic");
        assert_eq!(sample("nearest"), "y = GridSample(a, b) mode=nearest");
        assert_eq!(raise_version(&GRID_SAMPLE, 19, &[], "-; -"), "y = GridSample(a, b)");
        assert_eq!(
            raise_version(&ROI_ALIGN, 15, &[], "-; -; -"),
            "y = RoiAlign(a, b, c) coordinate_transformation_mode=output_half_pixel"
        );
    }
}
