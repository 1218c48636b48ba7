//! JPEG 2000 images in a JP2 file or as a bare codestream, decoded by the crate `hayro-jpeg2000`.

use hayro_jpeg2000::{ColorSpace, DecodeSettings, DecoderContext, Image};
use sardonyx_runtime::PixelFormat;

use super::pixels::convert_pixels;

/// Memory of the JPEG 2000 decoder for each sample, in bytes: coefficients and samples as floats,
/// and at most one code-block for 16 samples.
const BYTES_PER_SAMPLE: usize = 40;

/// Memory of the JPEG 2000 decoder for each sample, in bytes, if precincts have fewer than eight
/// samples along a side.
const BYTES_PER_SAMPLE_OF_SMALL_PRECINCTS: usize = 300;

/// Length of the shortest JPEG 2000 tile-part, in bytes: header and start-of-data marker.
const SHORTEST_TILE: usize = 14;

/// First bytes of a JPEG 2000 codestream: the markers SOC (start) and SIZ (size).
const CODESTREAM: &[u8] = &[0xff, 0x4f, 0xff, 0x51];

/// Maximum number of codestreams in a JPEG 2000 file. A file has one, and other bytes rarely look
/// like a codestream.
const MOST_CODESTREAMS: usize = 8;

/// Whether a file begins with the signature of JP2 or of a bare codestream.
pub(super) fn has_signature(encoded: &[u8]) -> bool {
    encoded.starts_with(b"\0\0\0\x0cjP  ") || encoded.starts_with(CODESTREAM)
}

/// A JPEG 2000 image whose header has been read.
pub(super) struct Jpeg2000<'a> {
    image: Image<'a>,
    bytes_per_sample: usize,
}

impl<'a> Jpeg2000<'a> {
    /// Reads the headers of a JPEG 2000 file, and checks the memory that decoding takes.
    pub(super) fn open(encoded: &'a [u8]) -> Result<Jpeg2000<'a>, String> {
        // Without `strict`, a truncated file decodes to a blurred image.
        let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
        let image = Image::new(encoded, &settings).map_err(|error| error.to_string())?;
        let has_small_precincts = check_codestreams(encoded)?;
        let bytes_per_sample = if has_small_precincts {
            BYTES_PER_SAMPLE_OF_SMALL_PRECINCTS
        } else {
            BYTES_PER_SAMPLE
        };
        Ok(Jpeg2000 { image, bytes_per_sample })
    }

    /// Returns the number of channels in the JPEG 2000 file, including alpha.
    fn count_components(&self) -> usize {
        usize::from(self.image.color_space().num_channels()) + usize::from(self.image.has_alpha())
    }
}

impl super::Image for Jpeg2000<'_> {
    fn size(&self) -> [usize; 2] {
        [self.image.width() as usize, self.image.height() as usize]
    }

    fn working_bytes(&self) -> usize {
        let [width, height] = self.size();
        let samples = width.saturating_mul(height).saturating_mul(self.count_components());
        samples.saturating_mul(self.bytes_per_sample)
    }

    fn decode(self: Box<Self>, format: PixelFormat, out: &mut [u8]) -> Result<(), String> {
        let colours = match (self.image.color_space(), self.image.color_space().num_channels()) {
            (ColorSpace::Gray, _) | (ColorSpace::Icc { .. }, 1) => 1,
            (ColorSpace::RGB, _) | (ColorSpace::Icc { .. }, 3) => 3,
            (ColorSpace::CMYK, _) => return Err("CMYK is not supported".to_string()),
            (_, count) => {
                return Err(format!(
                    "{count} channels of an unknown color space are not supported"
                ));
            }
        };
        let mut context = DecoderContext::default();
        let image = self.image.decode(&mut context).map_err(|error| error.to_string())?;
        let count = out.len() / format.channels();
        let planes = image.components();
        if planes.len() < colours || planes.iter().any(|plane| plane.samples().len() != count) {
            return Err("the components have different sizes".to_string());
        }
        let pixels = (0..count).map(|at| {
            let channels = if colours == 1 { [0; 3] } else { [0, 1, 2] };
            channels.map(|channel: usize| {
                let plane = &planes[channel];
                // Samples above 8 bits keep their upper 8; shorter ones are scaled to 0 to 255.
                let value = match plane.bit_depth() {
                    0..=8 => {
                        let most = (1u32 << plane.bit_depth()) - 1;
                        plane.samples()[at].round() * 255.0 / most.max(1) as f32
                    }
                    bits => plane.samples()[at] / (1u64 << (bits - 8).min(32)) as f32,
                };
                value as u8
            })
        });
        convert_pixels(format, pixels, out);
        Ok(())
    }

    /// Returns the number of color channels; alpha is not decoded.
    fn channels(&self) -> usize {
        if self.image.color_space().num_channels() == 1 { 1 } else { 3 }
    }
}

/// Reads all bytes as one big-endian integer.
fn read_big_endian(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Checks the headers of JPEG 2000 codestreams, by which the decoder allocates memory: rejects more
/// tiles than the file has bytes for, and returns whether precincts have fewer than eight samples
/// along a side.
///
/// Checks every position where a codestream may begin: in a malformed file, the decoder may read
/// any of them.
fn check_codestreams(encoded: &[u8]) -> Result<bool, String> {
    let mut has_small_precincts = false;
    let starts = encoded.windows(4).enumerate().filter(|(_, bytes)| *bytes == CODESTREAM);
    for (index, (at, _)) in starts.enumerate() {
        if index == MOST_CODESTREAMS {
            return Err(format!("the file has more than {MOST_CODESTREAMS} codestreams"));
        }
        has_small_precincts |= check_codestream(&encoded[at..])?;
    }
    Ok(has_small_precincts)
}

/// Checks one JPEG 2000 codestream like [`check_codestreams`]. Other bytes may follow it. Assumes
/// small precincts if marker segments are malformed.
fn check_codestream(codestream: &[u8]) -> Result<bool, String> {
    // Width and height of: image, its origin, tiles, their origin.
    if let Some(fields) = codestream.get(8..40) {
        let fields: [usize; 8] =
            std::array::from_fn(|index| read_big_endian(&fields[4 * index..][..4]));
        let [across, down] = [0, 1].map(|axis| {
            fields[axis].saturating_sub(fields[axis + 6]).div_ceil(fields[axis + 4].max(1))
        });
        let most = codestream.len() / SHORTEST_TILE;
        if across.saturating_mul(down) > most.max(1) {
            return Err(format!("{across} x {down} tiles do not fit in the file"));
        }
    }
    let mut has_small_precincts = false;
    // The marker SOC has no segment.
    let mut at = 2;
    // End of the current tile-part; 0 if it extends to the end of the codestream.
    let mut end_of_part = 0;
    loop {
        match codestream.get(at..at + 2) {
            // SOD: the data of the tile-part follow, up to the next one.
            Some([0xff, 0x93]) if end_of_part > at => {
                at = end_of_part;
                continue;
            }
            Some([0xff, 0x93 | 0xd9]) => return Ok(has_small_precincts),
            Some([0xff, _]) => {}
            _ => return Ok(true),
        }
        let Some(length) = codestream.get(at + 2..at + 4).map(read_big_endian) else {
            return Ok(true);
        };
        let Some(body) = codestream.get(at + 4..at + 2 + length) else { return Ok(true) };
        match codestream[at + 1] {
            // SOT: length of the tile-part.
            0x90 if body.len() == 8 => match read_big_endian(&body[2..6]) {
                0 => end_of_part = 0,
                length => end_of_part = at + length,
            },
            // COD sets the precincts of all components, COC those of one, whose number has one or
            // two bytes.
            0x52 if body.first().is_some_and(|style| style & 1 == 1) => {
                has_small_precincts |= body.iter().skip(10).any(|sides| is_small(*sides));
            }
            0x53 => has_small_precincts |= body.iter().skip(7).any(|sides| is_small(*sides)),
            _ => {}
        }
        at += 2 + length;
    }
}

/// Whether a precinct has fewer than eight samples along a side. `sides` holds the base-2
/// logarithms of both sides, four bits each.
fn is_small(sides: u8) -> bool {
    sides >> 4 < 3 || sides & 15 < 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a codestream of 100 x 100 samples and one component, with one empty tile-part.
    fn make_codestream(tile_width: u32, tile_height: u32, precincts: Option<u8>) -> Vec<u8> {
        let mut bytes = vec![0xff, 0x4f, 0xff, 0x51, 0, 41, 0, 0];
        let fields = [100, 100, 0, 0, tile_width, tile_height, 0, 0];
        bytes.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
        bytes.extend([0, 1, 7, 1, 1]);
        let style = u8::from(precincts.is_some());
        bytes.extend([0xff, 0x52, 0, 12 + style, style, 0, 0, 1, 0, 0, 4, 4, 0, 1]);
        bytes.extend(precincts);
        bytes.extend([0xff, 0x90, 0, 10, 0, 0, 0, 0, 0, 14, 0, 1, 0xff, 0x93, 0xff, 0xd9]);
        bytes
    }

    #[test]
    fn what_is_allocated_is_known_before() {
        let cases = [
            (make_codestream(100, 100, None), Ok(false)),
            (make_codestream(100, 100, Some(0x33)), Ok(false)),
            (make_codestream(100, 100, Some(0x23)), Ok(true)),
            (make_codestream(100, 100, Some(0x30)), Ok(true)),
            (make_codestream(100, 100, Some(0x33))[..50].to_vec(), Ok(true)),
            (make_codestream(1, 50, None), Err("100 x 2 tiles do not fit in the file".to_string())),
            (vec![], Ok(false)),
        ];
        for (bytes, want) in cases {
            assert_eq!(check_codestreams(&bytes), want);
            for end in 0..bytes.len() {
                let _ = check_codestreams(&bytes[..end]);
            }
            // In a JP2 file, boxes precede the codestream.
            let boxed = [b"any boxes", &bytes[..]].concat();
            assert_eq!(check_codestreams(&boxed), want);
        }
        let error = check_codestreams(&CODESTREAM.repeat(9)).unwrap_err();
        assert_eq!(error, "the file has more than 8 codestreams");
    }
}
