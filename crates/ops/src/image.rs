//! Pictures: reading them, their sizes, places in them.

pub(crate) mod affine_grid;

use sardonyx_tensor::DataType::{Bool, Double, Float, Float16, Int32, Int64, Uint8};

use crate::def::OpDef;
use crate::facts::{
    ALL, ALL_IR4, FLOATS, FLOATS_IR4, deprecated, float, floats, input, int, ints, output, string,
    types, without_attribute,
};
use crate::typeset::TypeSet;

pub(crate) static GRID_SAMPLE: OpDef = OpDef::new("GridSample")
    .about("Reads an image at the places that a grid names, in coordinates from -1 to 1, and interpolates between \
         elements.")
    .since(
        16,
        &[
            input("X", "T1").differentiable(),
            input("grid", "T2").non_differentiable(),
            output("Y", "T1").differentiable(),
            int("align_corners").or(0),
            string("mode").or_string("bilinear"),
            string("padding_mode").or_string("zeros"),
            types("T1", ALL),
            types("T2", FLOATS),
        ],
    )
    .since(20, &[string("mode").or_string("linear")])
    .since(22, &[types("T1", ALL_IR4), types("T2", FLOATS_IR4)]);

pub(crate) static IMAGE_DECODER: OpDef = OpDef::new("ImageDecoder")
    .about("Turns an encoded picture, such as a PNG or JPEG file, into pixels.")
    .since(
        20,
        &[
            input("encoded_stream", "T1").non_differentiable(),
            output("image", "T2").non_differentiable(),
            string("pixel_format").or_string("RGB"),
            types("T1", TypeSet::tensors(&[Uint8])),
            types("T2", TypeSet::tensors(&[Uint8])),
        ],
    );

pub(crate) static MAX_ROI_POOL: OpDef = OpDef::new("MaxRoiPool")
    .about("Divides regions of interest into a grid of equal cells and takes the largest element of each.")
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
    .since(22, &[types("T", FLOATS_IR4)]);

pub(crate) static NON_MAX_SUPPRESSION: OpDef = OpDef::new("NonMaxSuppression")
    .about("Keeps the boxes of the best scores and drops those that overlap one that was kept by more than a threshold, \
         for each class of each batch.")
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
    .since(11, &[]);

pub(crate) static RESIZE: OpDef = OpDef::new("Resize")
    .about("Changes the size of an image, or of any tensor, to a size or by factors: takes the nearest element or \
         interpolates. How places of the output correspond to places of the input has several answers, of which one \
         is chosen.")
    .since(
        10,
        &[
            input("X", "T"),
            input("scales", "tensor(float)"),
            output("Y", "T"),
            string("mode").or_string("nearest"),
            types("T", ALL),
        ],
    )
    .since_anew(
        11,
        &[
            input("X", "T1"),
            input("roi", "T2"),
            input("scales", "tensor(float)"),
            input("sizes", "tensor(int64)").optional(),
            output("Y", "T1"),
            string("coordinate_transformation_mode").or_string("half_pixel"),
            float("cubic_coeff_a").or_float(-0.75),
            int("exclude_outside").or(0),
            float("extrapolation_value").or_float(0.0),
            string("mode").or_string("nearest"),
            string("nearest_mode").or_string("round_prefer_floor"),
            types("T1", ALL),
            types("T2", FLOATS),
        ],
    )
    .since(
        13,
        &[
            input("X", "T1").differentiable(),
            input("roi", "T2").optional().non_differentiable(),
            input("scales", "tensor(float)")
                .optional()
                .non_differentiable(),
            input("sizes", "tensor(int64)")
                .optional()
                .non_differentiable(),
            output("Y", "T1").differentiable(),
            types("T1", ALL_IR4),
        ],
    )
    .since(
        18,
        &[
            int("antialias").or(0),
            ints("axes"),
            string("keep_aspect_ratio_policy").or_string("stretch"),
        ],
    )
    .since(19, &[]);

pub(crate) static ROI_ALIGN: OpDef = OpDef::new("RoiAlign")
    .about("Divides regions of interest into cells and takes the mean or the largest of points between elements in each.")
    .since(
        10,
        &[
            input("X", "T1"),
            input("rois", "T1"),
            input("batch_indices", "T2"),
            output("Y", "T1"),
            string("mode").or_string("avg"),
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
        &[string("coordinate_transformation_mode").or_string("half_pixel")],
    )
    .since(22, &[types("T1", FLOATS_IR4)]);

pub(crate) static UPSAMPLE: OpDef = OpDef::new("Upsample")
    .about("The first form of `Resize`: larger by factors, by the nearest element or by linear interpolation.")
    .since(
        1,
        &[
            input("X", "T"),
            output("Y", "T"),
            float("height_scale").required(),
            string("mode").or_string("nearest"),
            float("width_scale").required(),
            types(
                "T",
                TypeSet::tensors(&[Float16, Float, Double, Int32, Int64, Bool]),
            ),
        ],
    )
    .since(
        7,
        &[
            without_attribute("height_scale"),
            without_attribute("width_scale"),
            floats("scales").required(),
            types("T", ALL),
        ],
    )
    .since(
        9,
        &[
            input("scales", "tensor(float)"),
            without_attribute("scales"),
        ],
    )
    .since(10, &[deprecated()]);
