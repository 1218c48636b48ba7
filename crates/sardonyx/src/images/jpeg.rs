//! JPEG images (ITU-T T.81): baseline, extended and progressive, 8 bits, with Huffman coding.
//!
//! The operator ImageDecoder requires exactly the bytes of libjpeg. Other decoders round the IDCT,
//! the upsampling and the color conversion differently, so this module implements them itself.

mod huffman;
mod scan;
mod transform;
mod upsample;

use huffman::Huffman;
use scan::{Coefficients, Scan};
use transform::{QuantizationTable, transform_block};
use upsample::{Plane, ycc_to_rgb};

use sardonyx_runtime::PixelFormat;

use super::Image;
use super::orientation::Orientation;
use super::pixels::{cmyk_to_rgb, convert_pixels};

/// Result of decoding a JPEG file. An error message gives the byte offset and the problem.
type Result<T> = std::result::Result<T, String>;

/// Maximum number of scans of a JPEG image. Encoders write some dozens at most, and even an empty
/// scan costs a pass over the whole image.
const MOST_SCANS: usize = 256;

/// Zigzag order: index in the block, row by row, of each coefficient in the order of the file
/// (ITU-T T.81, figure A.6).
const ZIGZAG: [u8; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
    13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59,
    52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// A color component of a JPEG image: its sampling factors and sizes.
#[derive(Debug, Clone)]
struct Component {
    /// Identifier by which scan headers refer to the component.
    id: u8,
    /// Horizontal sampling factor: number of blocks across in a unit (MCU) of an interleaved scan.
    across: usize,
    /// Vertical sampling factor: number of blocks down in a unit (MCU) of an interleaved scan.
    down: usize,
    /// Number of the component's quantization table.
    table: usize,
    /// Width in samples, without the padding of blocks.
    width: usize,
    /// Height in samples, without the padding of blocks.
    height: usize,
    /// Number of blocks across and down that the file stores, including the padding of units.
    stored: [usize; 2],
}

/// Contents of a JPEG frame header: size and components of the image.
struct Frame {
    width: usize,
    height: usize,
    components: Vec<Component>,
    is_progressive: bool,
    /// Number of units (MCUs) of an interleaved scan, across and down.
    units: [usize; 2],
}

/// A JPEG image whose frame header has been read.
pub(super) struct Jpeg<'a> {
    bytes: &'a [u8],
    /// Byte offset of the first segment after the frame header.
    at: usize,
    frame: Frame,
    tables: Tables,
}

/// Tables and metadata from the JPEG segments read so far, which apply to the next scan.
#[derive(Default)]
struct Tables {
    quantization: [Option<QuantizationTable>; 4],
    /// Huffman tables of DC coefficients, then of AC coefficients; `None` for an undefined table.
    huffman: [[Option<Huffman>; 4]; 2],
    /// Number of units between restart markers; 0 without markers.
    restart: usize,
    is_jfif: bool,
    /// Color transform in the Adobe segment; `None` without this segment.
    adobe: Option<u8>,
    /// Orientation in the Exif data; upright by default.
    orientation: Orientation,
}

/// Color space of the components of a JPEG image.
#[derive(Clone, Copy, PartialEq)]
enum Colours {
    Grey,
    Rgb,
    /// Luma and two chroma differences (YCbCr).
    Ycc,
    Cmyk,
    /// CMYK whose inks are converted to YCbCr.
    Ycck,
}

/// A JPEG marker with its byte offset and the bytes of its segment.
struct Segment<'a> {
    marker: u8,
    at: usize,
    body: &'a [u8],
}

impl Segment<'_> {
    /// Returns an error about the segment: its byte offset and the problem `what`.
    fn fail<T>(&self, what: &str) -> Result<T> {
        Err(format!("at byte {}: {what}", self.at))
    }
}

/// Returns the byte offset of the next JPEG marker at or after byte offset `at`; fails if there is
/// none.
fn next_marker(bytes: &[u8], at: usize) -> Result<usize> {
    let pairs = bytes.get(at..).unwrap_or_default().windows(2);
    let mut markers = pairs.zip(at..).filter(|(pair, _)| pair[0] == 0xff);
    match markers.find(|(pair, _)| !matches!(pair[1], 0 | 0xff)) {
        Some((_, at)) => Ok(at),
        None => Err(format!("at byte {}: the file ends before its last marker", bytes.len())),
    }
}

/// Reads the next marker at or after byte offset `from`, and its segment. Returns the segment and
/// the byte offset after it.
fn read_segment(bytes: &[u8], from: usize) -> Result<(Segment<'_>, usize)> {
    let at = next_marker(bytes, from)?;
    let marker = bytes[at + 1];
    // The markers SOI, EOI, RST and TEM have no segment.
    if matches!(marker, 0x01 | 0xd0..=0xd9) {
        return Ok((Segment { marker, at, body: &[] }, at + 2));
    }
    let length = bytes.get(at + 2..at + 4).map(|b| usize::from(b[0]) << 8 | usize::from(b[1]));
    let body = length.and_then(|length| bytes.get(at + 4..at + 2 + length));
    match body {
        Some(body) => Ok((Segment { marker, at, body }, at + 4 + body.len())),
        None => Err(format!("at byte {at}: the segment of the marker FF{marker:02X} is truncated")),
    }
}

impl<'a> Jpeg<'a> {
    /// Reads the segments of a JPEG file up to the frame header.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Jpeg<'a>> {
        let mut tables = Tables::default();
        let mut at = 2;
        loop {
            let (segment, next) = read_segment(bytes, at)?;
            at = next;
            match segment.marker {
                0xc0..=0xc2 => {
                    let frame = Frame::read(&segment)?;
                    return Ok(Jpeg { bytes, at, frame, tables });
                }
                0xda => return segment.fail("a scan comes before the frame header"),
                0xd9 => return segment.fail("the image ends before its frame header"),
                _ => tables.read(&segment)?,
            }
        }
    }
}

impl Image for Jpeg<'_> {
    fn size(&self) -> [usize; 2] {
        [self.frame.width, self.frame.height]
    }

    /// Returns the size of all coefficients and samples of the image, in bytes.
    fn working_bytes(&self) -> usize {
        let blocks = self.frame.components.iter().map(|c| c.stored[0] * c.stored[1]);
        blocks.sum::<usize>() * 64 * 3
    }

    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<()> {
        let Jpeg { bytes, mut at, frame, mut tables } = *self;
        let mut coefficients =
            frame.components.iter().map(Coefficients::new).collect::<Result<Vec<_>>>()?;
        let mut colours = None;
        let mut scans = 0;
        loop {
            let (segment, next) = match read_segment(bytes, at) {
                Ok(found) => found,
                // Some files lack the end marker.
                Err(_) if coefficients.iter().all(Coefficients::is_present) && scans > 0 => break,
                Err(error) => return Err(error),
            };
            at = next;
            match segment.marker {
                0xd9 => break,
                0xda => {
                    scans += 1;
                    if scans > MOST_SCANS {
                        return segment
                            .fail(&format!("the image has more than {MOST_SCANS} scans"));
                    }
                    // The segments before the first scan determine the color space.
                    let found =
                        colours.get_or_insert_with(|| tables.find_colours(&frame.components));
                    found.as_ref().map_err(Clone::clone)?;
                    let scan = Scan::read(&segment, &frame, &tables, &mut coefficients)?;
                    at = scan.decode(bytes, at, &mut coefficients)?;
                }
                0xc0..=0xc2 => return segment.fail("the image has a second frame header"),
                _ => tables.read(&segment)?,
            }
        }
        let missing = coefficients.iter().position(|c| !c.is_present());
        if let Some(component) = missing {
            return Err(format!("at byte {at}: no scan holds component {component}"));
        }
        let colours = colours.unwrap_or(Ok(Colours::Grey))?;
        let planes = frame.components.iter().zip(coefficients);
        let planes =
            planes.map(|(component, coefficients)| frame.make_plane(component, coefficients));
        let planes = planes.collect::<Result<Vec<Plane>>>()?;
        write_pixels(&planes, colours, frame.width, format, out);
        Ok(())
    }

    fn channels(&self) -> usize {
        if self.frame.components.len() == 1 { 1 } else { 3 }
    }

    fn orientation(&mut self) -> Orientation {
        self.tables.orientation
    }
}

/// Upsamples the components of an image and writes the pixels in the pixel format `format`, row by
/// row.
fn write_pixels(
    planes: &[Plane],
    colours: Colours,
    width: usize,
    format: PixelFormat,
    out: &mut [u8],
) {
    let mut rows: Vec<Vec<u8>> = planes.iter().map(|plane| vec![0; plane.row_len()]).collect();
    for (y, out) in out.chunks_exact_mut(width * format.channels()).enumerate() {
        for (plane, row) in planes.iter().zip(&mut rows) {
            plane.write_row(y, row);
        }
        if colours == Colours::Grey {
            convert_pixels(format, rows[0][..width].iter().map(|grey| [*grey; 3]), out);
            continue;
        }
        let pixels = (0..width).map(|x| [rows[0][x], rows[1][x], rows[2][x]]);
        match colours {
            Colours::Grey | Colours::Rgb => convert_pixels(format, pixels, out),
            Colours::Ycc => convert_pixels(format, pixels.map(ycc_to_rgb), out),
            // All encoders store the inks of CMYK images inverted.
            Colours::Cmyk => {
                let pixels = pixels
                    .zip(&rows[3])
                    .map(|(inks, black)| cmyk_to_rgb(inks.map(|ink| 255 - ink), 255 - black));
                convert_pixels(format, pixels, out);
            }
            Colours::Ycck => {
                let pixels = pixels.zip(&rows[3]);
                let pixels = pixels.map(|(ycc, black)| cmyk_to_rgb(ycc_to_rgb(ycc), 255 - black));
                convert_pixels(format, pixels, out);
            }
        }
    }
}

impl Frame {
    /// Reads a frame header, and computes the sizes of the components.
    fn read(segment: &Segment<'_>) -> Result<Frame> {
        let [bits, h1, h0, w1, w0, count, components @ ..] = segment.body else {
            return segment.fail("the frame header is truncated");
        };
        let (height, width) = ([*h1, *h0], [*w1, *w0]);
        let [height, width] = [height, width].map(|x| usize::from(u16::from_be_bytes(x)));
        if *bits != 8 {
            return segment.fail(&format!("samples of {bits} bits are not supported, only 8 bits"));
        }
        if width == 0 || height == 0 {
            return segment
                .fail(&format!("the image has no pixels: its size is {width} x {height}"));
        }
        if !matches!(count, 1 | 3 | 4) {
            return segment.fail(&format!("an image has 1, 3 or 4 components, not {count}"));
        }
        if components.len() != usize::from(*count) * 3 {
            return segment.fail("the length of the frame header does not match its components");
        }
        let (mut found, mut most) = (Vec::new(), [1, 1]);
        for component in components.chunks_exact(3) {
            let (id, table) = (component[0], usize::from(component[2]));
            // A unit of a single component is one block, whatever its sampling factors are.
            let sampling = if *count == 1 { 0x11 } else { component[1] };
            let (across, down) = (usize::from(sampling >> 4), usize::from(sampling & 15));
            if !(1..=4).contains(&across) || !(1..=4).contains(&down) || table > 3 {
                return segment.fail(&format!(
                    "component {id} has a bad sampling factor or quantization table"
                ));
            }
            most = [most[0].max(across), most[1].max(down)];
            let (width, height, stored) = (0, 0, [0, 0]);
            found.push(Component { id, across, down, table, width, height, stored });
        }
        let units = [width.div_ceil(8 * most[0]), height.div_ceil(8 * most[1])];
        for component in &mut found {
            let Component { id, across, down, .. } = *component;
            if most[0] % across != 0 || most[1] % down != 0 {
                return segment.fail(&format!(
                    "component {id} has {across} x {down} samples for {} x {} pixels, which is not an integer ratio",
                    most[0], most[1]
                ));
            }
            component.width = (width * across).div_ceil(most[0]);
            component.height = (height * down).div_ceil(most[1]);
            component.stored = [units[0] * across, units[1] * down];
        }
        let is_progressive = segment.marker == 0xc2;
        Ok(Frame { width, height, components: found, is_progressive, units })
    }

    /// Transforms the coefficients of a component into samples (IDCT).
    fn make_plane(&self, component: &Component, coefficients: Coefficients) -> Result<Plane> {
        let Component { width, height, stored: [across, _], .. } = *component;
        let Coefficients { blocks, table, .. } = coefficients;
        let Some(table) = table else {
            return Err("a component has no quantization table".to_string());
        };
        let stride = across * 8;
        let mut samples = super::allocate_zeros(blocks.len())?;
        let rows = blocks.chunks_exact(across * 64).zip(samples.chunks_exact_mut(stride * 8));
        for (blocks, samples) in rows {
            for (x, block) in blocks.chunks_exact(64).enumerate() {
                transform_block(block, &table, &mut samples[x * 8..], stride);
            }
        }
        let most_across = self.components.iter().map(|component| component.across).max();
        let most_down = self.components.iter().map(|component| component.down).max();
        let across = most_across.unwrap_or(1) / component.across;
        let down = most_down.unwrap_or(1) / component.down;
        Ok(Plane { samples, stride, width, height, across, down })
    }
}

impl Tables {
    /// Reads a segment with tables or metadata; ignores segments of unknown kinds.
    fn read(&mut self, segment: &Segment<'_>) -> Result<()> {
        match (segment.marker, segment.body) {
            (0xc4, body) => self.read_huffman(segment, body),
            (0xdb, body) => self.read_quantization(segment, body),
            (0xdd, [high, low]) => {
                self.restart = usize::from(u16::from_be_bytes([*high, *low]));
                Ok(())
            }
            (0xdd, _) => segment.fail("the restart interval does not have two bytes"),
            (0xe0, [b'J', b'F', b'I', b'F', 0, ..]) => {
                self.is_jfif = true;
                Ok(())
            }
            (0xe1, [b'E', b'x', b'i', b'f', 0, 0, exif @ ..]) => {
                self.orientation = Orientation::from_exif(exif);
                Ok(())
            }
            (0xee, [b'A', b'd', b'o', b'b', b'e', _, _, _, _, _, _, transform, ..]) => {
                self.adobe = Some(*transform);
                Ok(())
            }
            (0xc3 | 0xc7, _) => segment.fail("lossless JPEG is not supported"),
            (0xc5 | 0xc6, _) => segment.fail("hierarchical JPEG is not supported"),
            (0xc9..=0xcf, _) => segment.fail("arithmetic coding is not supported, only Huffman"),
            _ => Ok(()),
        }
    }

    /// Reads the Huffman tables of a segment (DHT).
    fn read_huffman(&mut self, segment: &Segment<'_>, mut body: &[u8]) -> Result<()> {
        while let [kind, rest @ ..] = body {
            let Some((counts, rest)) = rest.split_at_checked(16) else {
                return segment.fail("a Huffman table is truncated");
            };
            let count = counts.iter().map(|count| usize::from(*count)).sum();
            let Some((symbols, rest)) = rest.split_at_checked(count) else {
                return segment.fail("a Huffman table is truncated");
            };
            body = rest;
            let (class, number) = (usize::from(kind >> 4), usize::from(kind & 15));
            let place = self.huffman.get_mut(class).and_then(|tables| tables.get_mut(number));
            let Some(place) = place else {
                return segment.fail(&format!("a Huffman table has the invalid number {kind:02X}"));
            };
            let table = Huffman::new(counts, symbols);
            // With samples of 8 bits, DC differences have at most 15 bits.
            *place = table.filter(|table| class == 1 || table.is_bounded_by(15));
            if place.is_none() {
                return segment.fail("a Huffman table has invalid codes");
            }
        }
        Ok(())
    }

    /// Reads the quantization tables of a segment (DQT).
    fn read_quantization(&mut self, segment: &Segment<'_>, mut body: &[u8]) -> Result<()> {
        while let [kind, rest @ ..] = body {
            let wide = usize::from(kind >> 4) + 1;
            let Some((values, rest)) = rest.split_at_checked(64 * wide).filter(|_| wide <= 2)
            else {
                return segment.fail("a quantization table is truncated or has an unknown width");
            };
            body = rest;
            let Some(place) = self.quantization.get_mut(usize::from(kind & 15)) else {
                return segment
                    .fail(&format!("a quantization table has the invalid number {kind:02X}"));
            };
            let table = place.insert([0; 64]);
            for (to, value) in ZIGZAG.iter().zip(values.chunks_exact(wide)) {
                let value = value.iter().fold(0, |sum, byte| sum << 8 | u16::from(*byte));
                table[usize::from(*to)] = value;
            }
        }
        Ok(())
    }

    /// Determines the color space of an image like libjpeg: from the JFIF and Adobe markers, else
    /// from the identifiers of the components.
    fn find_colours(&self, components: &[Component]) -> Result<Colours> {
        let names: Vec<u8> = components.iter().map(|component| component.id).collect();
        Ok(match (components.len(), self.adobe) {
            (1, _) => Colours::Grey,
            (3, _) if self.is_jfif => Colours::Ycc,
            (3, Some(0)) => Colours::Rgb,
            (3, Some(_)) => Colours::Ycc,
            (3, None) if names == *b"RGB" => Colours::Rgb,
            (3, None) => Colours::Ycc,
            (4, None | Some(0)) => Colours::Cmyk,
            (4, Some(_)) => Colours::Ycck,
            (count, _) => {
                return Err(format!("a JPEG image has 1, 3 or 4 components, not {count}"));
            }
        })
    }
}
