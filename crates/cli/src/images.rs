//! Images as inputs: decoded, resized to the model's input, scaled to the range it wants.
//!
//! The image is stretched to height and width of the input (bilinear, averaging where it
//! shrinks); an alpha channel is dropped; the orientation that cameras store is applied. What the
//! model's metadata says about its images holds where no option says otherwise.

use sardonyx::io::{DecodeLimits, DecodedImage};
use sardonyx::tool::{CastOptions, cast};
use sardonyx::{DataType, Dim, ErrorKind, Model, Port, Tensor, Type};

use crate::failure::{Code, Failure};

#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Axis order of image inputs; by default guessed from which axis has size 1 or 3
    #[arg(long, value_enum)]
    layout: Option<Layout>,
    /// Mean of each image channel, subtracted after scaling to 0..1, such as 0.485,0.456,0.406
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', allow_hyphen_values = true)]
    mean: Vec<f32>,
    /// Standard deviation of each image channel, a divisor after --mean, such as 0.229,0.224,0.225
    #[arg(long, value_name = "A,B,C", value_delimiter = ',')]
    std: Vec<f32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Layout {
    /// Channels first: [N, C, H, W]
    Nchw,
    /// Channels last: [N, H, W, C]
    Nhwc,
}

/// The image as a value of the input.
pub(crate) fn load(
    bytes: &[u8],
    port: &Port,
    args: &Args,
    model: &Model,
) -> Result<Tensor, Failure> {
    let want = Want::of(port, args.layout)?;
    let scale = Scale::of(want.elem, want.channels, args, model)?;
    let image = decode(bytes)?;
    let height = want.height.unwrap_or(image.height());
    let width = want.width.unwrap_or(image.width());
    let pixels = pixels(image, want.channels, height, width, pixel_order(model)?)?;
    let mut values = Vec::new();
    values.try_reserve_exact(pixels.len()).map_err(|_| {
        Failure::new(format!("not enough memory for {} pixels", pixels.len())).code(Code::Memory)
    })?;
    let channels = want.channels;
    match want.layout {
        Layout::Nhwc => values
            .extend(pixels.iter().enumerate().map(|(i, pixel)| scale.apply(*pixel, i % channels))),
        Layout::Nchw => {
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
    let dims = match (want.layout, want.rank) {
        (Layout::Nchw, 4) => vec![1, channels, height, width],
        (Layout::Nhwc, 4) => vec![1, height, width, channels],
        (Layout::Nchw, 3) => vec![channels, height, width],
        (Layout::Nhwc, 3) => vec![height, width, channels],
        _ => vec![height, width],
    };
    Ok(cast(&Tensor::from_vec(dims, values)?, want.elem, CastOptions::default())?)
}

/// What an input wants of an image.
#[derive(Debug, PartialEq)]
struct Want {
    elem: DataType,
    layout: Layout,
    rank: usize,
    channels: usize,
    /// `None` where the image's own size may stay.
    height: Option<usize>,
    width: Option<usize>,
}

impl Want {
    fn of(port: &Port, layout: Option<Layout>) -> Result<Want, Failure> {
        let no = |why: &str| {
            Failure::new(format!("the input '{port}' cannot take an image: {why}"))
                .code(ErrorKind::Input)
        };
        let Some(ty @ Type::Tensor(_)) = port.ty() else {
            return Err(no("it is not a dense tensor"));
        };
        let (Some(elem), Some(shape)) = (ty.elem(), ty.shape()) else {
            return Err(no("its element type or rank is unknown").help("pass an array as .npy"));
        };
        let wide = elem.bits().is_some_and(|bits| bits >= 8) && elem != DataType::Int8;
        if !(elem.is_float() || elem.is_integer() && wide) {
            return Err(no("its element type is not supported for pixels"));
        }
        let dims = match shape.len() {
            4 => {
                if shape[0].known().is_some_and(|n| n != 1) {
                    return Err(no(&format!("it expects a batch of {} images", shape[0]))
                        .help("pass a batch of images as .npy"));
                }
                &shape[1..]
            }
            2 | 3 => &shape[..],
            rank => return Err(no(&format!("an image has 2 to 4 dimensions, not {rank}"))),
        };
        let rank = shape.len();
        if rank == 2 {
            let (height, width) = (dims[0].size(), dims[1].size());
            return Ok(Want { elem, layout: Layout::Nhwc, rank, channels: 1, height, width });
        }
        let is_channels = |dim: &Dim| matches!(dim.known(), Some(1 | 3 | 4));
        let layout = match layout {
            Some(layout) => layout,
            None if is_channels(&dims[0]) => Layout::Nchw,
            None if is_channels(&dims[2]) => Layout::Nhwc,
            None if dims[0].known().is_none() => Layout::Nchw,
            None => {
                return Err(
                    no("no axis has 1 or 3 channels").help("name the order of axes with --layout")
                );
            }
        };
        let (channels, height, width) = match layout {
            Layout::Nchw => (&dims[0], &dims[1], &dims[2]),
            Layout::Nhwc => (&dims[2], &dims[0], &dims[1]),
        };
        let channels = match channels.known() {
            None => 3,
            Some(n @ (1 | 3 | 4)) => n as usize,
            Some(n) => return Err(no(&format!("it has {n} channels, but an image has 1, 3 or 4"))),
        };
        Ok(Want { elem, layout, rank, channels, height: height.size(), width: width.size() })
    }
}

/// From a pixel's byte to the model's number: `(byte * factor + offset)`, per channel.
struct Scale(Vec<(f32, f32)>);

impl Scale {
    fn of(elem: DataType, channels: usize, args: &Args, model: &Model) -> Result<Scale, Failure> {
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
        let per_channel = |values: &[f32], default: f32, option: &str| match values.len() {
            0 => Ok(vec![default; channels]),
            1 => Ok(vec![values[0]; channels]),
            n if n == channels => Ok(values.to_vec()),
            n => Err(Failure::new(format!(
                "{option} has {n} numbers, but the input has {channels} channels"
            ))),
        };
        let (mean, std) =
            (per_channel(&args.mean, 0.0, "--mean")?, per_channel(&args.std, 1.0, "--std")?);
        if let Some(bad) = std.iter().find(|std| !std.is_normal()) {
            return Err(Failure::new(format!("--std {bad} would divide by it")));
        }
        Ok(Scale(
            mean.iter().zip(&std).map(|(mean, std)| (1.0 / (255.0 * std), -mean / std)).collect(),
        ))
    }

    fn apply(&self, pixel: u8, channel: usize) -> f32 {
        let (factor, offset) = self.0[channel];
        // At the ends of the range, where models have seen exact numbers, the product with 1/255
        // would be off by a bit.
        if offset == 0.0 && factor == 1.0 / 255.0 {
            f32::from(pixel) / 255.0
        } else {
            f32::from(pixel) * factor + offset
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PixelOrder {
    Rgb,
    Bgr,
}

/// Keys and values of the metadata are those of the standard's section on images.
fn pixel_order(model: &Model) -> Result<PixelOrder, Failure> {
    match model.metadata_value("Image.BitmapPixelFormat").as_deref() {
        Some("Bgr8" | "Bgra8") => Ok(PixelOrder::Bgr),
        None | Some("" | "Gray8" | "Rgb8" | "Rgba8") => Ok(PixelOrder::Rgb),
        Some(other) => Err(Failure::new(format!(
            "the model expects images in the format '{other}', which is not supported"
        ))
        .code(ErrorKind::Unsupported)
        .help("the formats are Gray8, Rgb8, Bgr8, Rgba8 and Bgra8; pass an array as .npy")),
    }
}

fn decode(bytes: &[u8]) -> Result<DecodedImage, Failure> {
    DecodedImage::decode(bytes, &DecodeLimits::default()).map_err(|error| {
        Failure::from(error)
            .help("it must be a complete BMP, JPEG, JPEG 2000, PNG, PNM, TIFF or WebP file")
    })
}

/// Bytes per pixel and channel, row by row.
fn pixels(
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
    // Channels first, so that resizing does not touch what is dropped.
    let mut bytes = image.into_channels(channels)?.resize(width, height)?.into_samples();
    if order == PixelOrder::Bgr && channels >= 3 {
        bytes.chunks_exact_mut(channels).for_each(|pixel| pixel.swap(0, 2));
    }
    Ok(bytes)
}
