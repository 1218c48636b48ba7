//! Images as inputs: decoded, resized to the shape of the input, scaled to its value range.
//!
//! An image is stretched to height and width of the input (bilinear, averaging where it shrinks).
//! Its alpha channel is dropped, and its EXIF orientation is applied. Value range and channel order
//! come from the options, or else from the model's metadata (`Image.NominalPixelRange`,
//! `Image.BitmapPixelFormat`).

use sardonyx::io::{DecodeLimits, DecodedImage};
use sardonyx::tool::{CastOptions, cast};
use sardonyx::{DataType, Dim, ErrorKind, Model, Port, Tensor, Type};

use crate::failure::{Code, Failure};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Axis order of image inputs; by default guessed from which axis has size 1 or 3
    #[arg(long, value_enum)]
    layout: Option<AxisOrder>,
    /// Mean of each image channel, subtracted after scaling to 0..1, such as 0.485,0.456,0.406
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', allow_hyphen_values = true)]
    mean: Vec<f32>,
    /// Standard deviation of each image channel, a divisor after --mean, such as 0.229,0.224,0.225
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    std: Vec<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum AxisOrder {
    /// Channels first: [N, C, H, W]
    Nchw,
    /// Channels last: [N, H, W, C]
    Nhwc,
}

/// Decodes an image file and converts it to a tensor for the graph input `port`.
pub(crate) fn load_image(
    bytes: &[u8],
    port: &Port,
    args: &Args,
    model: &Model,
) -> Result<Tensor, Failure> {
    let wanted = ImageInput::from_port(port, args.layout)?;
    let scale = Scale::new(wanted.elem, wanted.channels, args, model)?;
    let image = decode_image(bytes)?;
    let height = wanted.height.unwrap_or(image.height());
    let width = wanted.width.unwrap_or(image.width());
    let pixels = resize_pixels(image, wanted.channels, height, width, read_pixel_order(model)?)?;
    let mut values = Vec::new();
    values.try_reserve_exact(pixels.len()).map_err(|_| {
        Failure::new(format!("not enough memory for {} pixels", pixels.len())).code(Code::Memory)
    })?;
    let channels = wanted.channels;
    match wanted.layout {
        AxisOrder::Nhwc => values
            .extend(pixels.iter().enumerate().map(|(i, pixel)| scale.apply(*pixel, i % channels))),
        AxisOrder::Nchw => {
            for channel in 0..channels {
                values.extend(
                    pixels[channel..]
                        .iter()
                        .step_by(channels)
                        .map(|pixel| scale.apply(*pixel, channel)),
                );
            }
        }
    }
    let dims = match (wanted.layout, wanted.rank) {
        (AxisOrder::Nchw, 4) => vec![1, channels, height, width],
        (AxisOrder::Nhwc, 4) => vec![1, height, width, channels],
        (AxisOrder::Nchw, 3) => vec![channels, height, width],
        (AxisOrder::Nhwc, 3) => vec![height, width, channels],
        _ => vec![height, width],
    };
    Ok(cast(&Tensor::from_vec(dims, values)?, wanted.elem, CastOptions::default())?)
}

/// Element type, axes and sizes of a graph input that takes an image.
#[derive(Debug, PartialEq)]
struct ImageInput {
    elem: DataType,
    layout: AxisOrder,
    rank: usize,
    channels: usize,
    /// Height in pixels; `None` if the graph input accepts any, so that the image keeps its height.
    height: Option<usize>,
    /// Width in pixels; `None` if the graph input accepts any, so that the image keeps its width.
    width: Option<usize>,
}

impl ImageInput {
    /// Derives from the type of `port` how an image is converted to a tensor for this input. Fails
    /// if the input cannot take an image. Without `layout`, guesses the channel axis from the sizes
    /// of the axes.
    fn from_port(port: &Port, layout: Option<AxisOrder>) -> Result<ImageInput, Failure> {
        let Some(ty @ Type::Tensor(_)) = port.ty() else {
            return Err(refuse_input(port, "it is not a dense tensor"));
        };
        let (Some(elem), Some(shape)) = (ty.elem(), ty.shape()) else {
            let why = "its element type or rank is unknown";
            return Err(refuse_input(port, why).help("pass an array as .npy"));
        };
        let wide = elem.bits().is_some_and(|bits| bits >= 8) && elem != DataType::Int8;
        if !(elem.is_float() || elem.is_integer() && wide) {
            return Err(refuse_input(port, "its element type is not supported for pixels"));
        }
        let dims = match shape.len() {
            4 => {
                if shape[0].known().is_some_and(|n| n != 1) {
                    let why = format!("it expects a batch of {} images", shape[0]);
                    return Err(refuse_input(port, &why).help("pass a batch of images as .npy"));
                }
                &shape[1..]
            }
            2 | 3 => &shape[..],
            rank => {
                let why = format!("an image has 2 to 4 dimensions, not {rank}");
                return Err(refuse_input(port, &why));
            }
        };
        let rank = shape.len();
        if rank == 2 {
            let (height, width) = (dims[0].size(), dims[1].size());
            return Ok(ImageInput {
                elem,
                layout: AxisOrder::Nhwc,
                rank,
                channels: 1,
                height,
                width,
            });
        }
        let layout = match layout {
            Some(layout) => layout,
            None if is_channel_count(&dims[0]) => AxisOrder::Nchw,
            None if is_channel_count(&dims[2]) => AxisOrder::Nhwc,
            None if dims[0].known().is_none() => AxisOrder::Nchw,
            None => {
                return Err(refuse_input(port, "no axis has 1 or 3 channels")
                    .help("name the order of axes with --layout"));
            }
        };
        let (channels, height, width) = match layout {
            AxisOrder::Nchw => (&dims[0], &dims[1], &dims[2]),
            AxisOrder::Nhwc => (&dims[2], &dims[0], &dims[1]),
        };
        let channels = match channels.known() {
            None => 3,
            Some(n @ (1 | 3 | 4)) => n as usize,
            Some(n) => {
                let why = format!("it has {n} channels, but an image has 1, 3 or 4");
                return Err(refuse_input(port, &why));
            }
        };
        Ok(ImageInput { elem, layout, rank, channels, height: height.size(), width: width.size() })
    }
}

/// Returns the failure for a graph input that cannot take an image for the reason `why`.
fn refuse_input(port: &Port, why: &str) -> Failure {
    Failure::new(format!("the input '{port}' cannot take an image: {why}")).code(ErrorKind::Input)
}

/// Whether an axis of the size `dim` can hold the channels of an image: 1, 3 or 4.
fn is_channel_count(dim: &Dim) -> bool {
    matches!(dim.known(), Some(1 | 3 | 4))
}

/// Linear map of a pixel's byte to an element of the tensor: `byte * factor + offset`, with factor
/// and offset for each image channel.
struct Scale(Vec<(f32, f32)>);

impl Scale {
    /// Creates the map from `--mean` and `--std`, or else from the value range in the model's
    /// metadata. By default bytes map to 0..1 for float elements and to 0..255 for integer
    /// elements.
    fn new(elem: DataType, channels: usize, args: &Args, model: &Model) -> Result<Scale, Failure> {
        if args.mean.is_empty() && args.std.is_empty() {
            let (low, high) = match model.metadata_value("Image.NominalPixelRange").as_deref() {
                Some("NominalRange_0_255") => (0.0, 255.0),
                Some("Normalized_0_1") => (0.0, 1.0),
                Some("Normalized_1_1") => (-1.0, 1.0),
                Some("NominalRange_16_235") => (16.0, 235.0),
                _ if elem.is_float() => (0.0, 1.0),
                _ => (0.0, 255.0),
            };
            return Ok(Scale(vec![((high - low) / 255.0, low); channels]));
        }
        let mean = expand_to_channels("--mean", &args.mean, 0.0, channels)?;
        let std = expand_to_channels("--std", &args.std, 1.0, channels)?;
        if let Some(bad) = std.iter().find(|std| !std.is_normal()) {
            return Err(Failure::new(format!(
                "--std {bad} is not a divisor: expected a finite number that is not 0"
            )));
        }
        Ok(Scale(
            mean.iter().zip(&std).map(|(mean, std)| (1.0 / (255.0 * std), -mean / std)).collect(),
        ))
    }

    /// Maps the byte of a pixel in a channel to an element of the tensor.
    fn apply(&self, pixel: u8, channel: usize) -> f32 {
        let (factor, offset) = self.0[channel];
        // A division, as the product with 1/255 can be off by one bit at the ends of the range,
        // where models have seen exact numbers.
        if offset == 0.0 && factor == 1.0 / 255.0 {
            f32::from(pixel) / 255.0
        } else {
            f32::from(pixel) * factor + offset
        }
    }
}

/// Returns one number of `option` for each image channel. A single number applies to all channels;
/// without numbers, `default` does. Fails for any other number of `values`.
fn expand_to_channels(
    option: &str,
    values: &[f32],
    default: f32,
    channels: usize,
) -> Result<Vec<f32>, Failure> {
    match values.len() {
        0 => Ok(vec![default; channels]),
        1 => Ok(vec![values[0]; channels]),
        n if n == channels => Ok(values.to_vec()),
        n => Err(Failure::new(format!(
            "{option} has {n} numbers, but the input has {channels} channels"
        ))),
    }
}

/// Order of the color channels of a pixel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PixelOrder {
    Rgb,
    Bgr,
}

/// Returns the channel order that the model's metadata declares, with the keys and values of the
/// ONNX standard's section on image metadata; RGB by default.
fn read_pixel_order(model: &Model) -> Result<PixelOrder, Failure> {
    match model.metadata_value("Image.BitmapPixelFormat").as_deref() {
        Some("Bgr8" | "Bgra8") => Ok(PixelOrder::Bgr),
        None | Some("" | "Gray8" | "Rgb8" | "Rgba8") => Ok(PixelOrder::Rgb),
        Some(other) => Err(Failure::new(format!(
            "the model expects images in the pixel format '{other}', which is not supported"
        ))
        .code(ErrorKind::Unsupported)
        .help("the formats are Gray8, Rgb8, Bgr8, Rgba8 and Bgra8; pass an array as .npy")),
    }
}

/// Decodes an image file within the default limits.
fn decode_image(bytes: &[u8]) -> Result<DecodedImage, Failure> {
    DecodedImage::decode(bytes, &DecodeLimits::default()).map_err(|error| {
        Failure::from(error)
            .help("an image must be a complete BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP file")
    })
}

/// Resizes an image and returns its samples, one byte each, in row-major order with the channels of
/// a pixel adjacent.
fn resize_pixels(
    image: DecodedImage,
    channels: usize,
    height: usize,
    width: usize,
    order: PixelOrder,
) -> Result<Vec<u8>, Failure> {
    let max_side = DecodeLimits::default().max_side;
    if [height, width].iter().any(|side| !(1..=max_side).contains(side)) {
        return Err(Failure::new(format!(
            "an image cannot be resized to {width} x {height} pixels"
        )));
    }
    // Channels are dropped before resizing, so that no work is done on them.
    let mut bytes = image.into_channels(channels)?.resize(width, height)?.into_samples();
    if order == PixelOrder::Bgr && channels >= 3 {
        bytes.chunks_exact_mut(channels).for_each(|pixel| pixel.swap(0, 2));
    }
    Ok(bytes)
}
