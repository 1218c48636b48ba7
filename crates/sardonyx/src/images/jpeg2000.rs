//! JPEG 2000, as a file (JP2) or as a bare codestream.

use hayro_jpeg2000::{ColorSpace, DecodeSettings, DecoderContext, Image};
use sardonyx_runtime::PixelFormat;

use super::pixels::put;

/// Bytes for each sample: coefficients and samples as floats, and at most one block of codes for 16
/// samples.
const BYTES_PER_SAMPLE: usize = 40;

/// The same where precincts are so small that each has few samples.
const BYTES_PER_SAMPLE_OF_SMALL_PRECINCTS: usize = 300;

/// Bytes of the shortest part of a tile: its header, and the marker of its data.
const SHORTEST_TILE: usize = 14;

/// How a codestream begins: its start, and the marker of its size.
const CODESTREAM: &[u8] = &[0xff, 0x4f, 0xff, 0x51];

/// The most codestreams of a file: it has one, and bytes that look like another are rare.
const MOST_CODESTREAMS: usize = 8;

/// Whether a file begins as such files do.
pub(super) fn is(encoded: &[u8]) -> bool {
    encoded.starts_with(b"\0\0\0\x0cjP  ") || encoded.starts_with(CODESTREAM)
}

/// An image that is not decoded yet.
pub(super) struct Jpeg2000<'a> {
    image: Image<'a>,
    bytes_per_sample: usize,
}

impl<'a> Jpeg2000<'a> {
    pub(super) fn open(encoded: &'a [u8]) -> Result<Jpeg2000<'a>, String> {
        // Without `strict`, a file that is cut off gives a blurred image.
        let settings = DecodeSettings { strict: true, ..DecodeSettings::default() };
        let image = Image::new(encoded, &settings).map_err(|error| error.to_string())?;
        let has_small_precincts = look(encoded)?;
        let bytes_per_sample = if has_small_precincts {
            BYTES_PER_SAMPLE_OF_SMALL_PRECINCTS
        } else {
            BYTES_PER_SAMPLE
        };
        Ok(Jpeg2000 { image, bytes_per_sample })
    }

    /// Returns how many channels the file has.
    fn components(&self) -> usize {
        usize::from(self.image.color_space().num_channels()) + usize::from(self.image.has_alpha())
    }
}

impl super::Image for Jpeg2000<'_> {
    fn size(&self) -> [usize; 2] {
        [self.image.width() as usize, self.image.height() as usize]
    }

    fn working_bytes(&self) -> usize {
        let [width, height] = self.size();
        let samples = width.saturating_mul(height).saturating_mul(self.components());
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
        let sample = |plane: usize, at: usize| {
            let plane = &planes[plane];
            // Of more than 8 bits the upper 8 remain; fewer are spread over all values.
            let value = match plane.bit_depth() {
                0..=8 => {
                    let most = (1u32 << plane.bit_depth()) - 1;
                    plane.samples()[at].round() * 255.0 / most.max(1) as f32
                }
                bits => plane.samples()[at] / (1u64 << (bits - 8).min(32)) as f32,
            };
            value as u8
        };
        if colours == 1 {
            put(format, (0..count).map(|at| [sample(0, at); 3]), out);
        } else {
            put(format, (0..count).map(|at| [0, 1, 2].map(|plane| sample(plane, at))), out);
        }
        Ok(())
    }

    /// Returns the channels of the colors, without alpha.
    fn channels(&self) -> usize {
        if self.image.color_space().num_channels() == 1 { 1 } else { 3 }
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte))
}

/// Looks at what decoding allocates before it has read any data: refuses more tiles than there are
/// bytes for, and says whether precincts have fewer than eight samples along a side.
///
/// Wherever a codestream may begin, it is looked at: which one a damaged file has is for the
/// decoder to say.
fn look(encoded: &[u8]) -> Result<bool, String> {
    let mut has_small_precincts = false;
    let starts = encoded.windows(4).enumerate().filter(|(_, bytes)| *bytes == CODESTREAM);
    for (index, (at, _)) in starts.enumerate() {
        if index == MOST_CODESTREAMS {
            return Err(format!("it has more than {MOST_CODESTREAMS} codestreams"));
        }
        has_small_precincts |= look_at(&encoded[at..])?;
    }
    Ok(has_small_precincts)
}

/// The same for one codestream, whatever is after it. Where segments do not follow each other,
/// small precincts are assumed.
fn look_at(codestream: &[u8]) -> Result<bool, String> {
    // The size and the origin of the image, the size and the origin of tiles.
    if let Some(fields) = codestream.get(8..40) {
        let field = |index: usize| number(&fields[4 * index..][..4]);
        let tiles = |axis: usize| {
            field(axis).saturating_sub(field(axis + 6)).div_ceil(field(axis + 4).max(1))
        };
        let most = codestream.len() / SHORTEST_TILE;
        let [across, down] = [0, 1].map(tiles);
        if across.saturating_mul(down) > most.max(1) {
            return Err(format!("{across} x {down} tiles do not fit in the file"));
        }
    }
    let mut has_small_precincts = false;
    // The first marker has no segment.
    let mut at = 2;
    // Where the part of a tile that is being read ends.
    let mut end_of_part = 0;
    loop {
        match codestream.get(at..at + 2) {
            // Data follow, up to the next part; the last one may leave out where that is.
            Some([0xff, 0x93]) if end_of_part > at => {
                at = end_of_part;
                continue;
            }
            Some([0xff, 0x93 | 0xd9]) => return Ok(has_small_precincts),
            Some([0xff, _]) => {}
            _ => return Ok(true),
        }
        let Some(length) = codestream.get(at + 2..at + 4).map(number) else { return Ok(true) };
        let Some(body) = codestream.get(at + 4..at + 2 + length) else { return Ok(true) };
        match codestream[at + 1] {
            0x90 if body.len() == 8 => match number(&body[2..6]) {
                0 => end_of_part = 0,
                length => end_of_part = at + length,
            },
            // What holds for all components, and for one, whose number has one or two bytes.
            0x52 if body.first().is_some_and(|style| style & 1 == 1) => {
                has_small_precincts |= body.iter().skip(10).any(|sides| is_small(*sides));
            }
            0x53 => has_small_precincts |= body.iter().skip(7).any(|sides| is_small(*sides)),
            _ => {}
        }
        at += 2 + length;
    }
}

/// Whether one of two exponents of two is below three.
fn is_small(sides: u8) -> bool {
    sides >> 4 < 3 || sides & 15 < 3
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A main header of an image of one component, the part of a tile, and the end.
    fn header(size: [u32; 2], tile: [u32; 2], precincts: Option<u8>) -> Vec<u8> {
        let mut bytes = vec![0xff, 0x4f, 0xff, 0x51, 0, 41, 0, 0];
        let fields = [size[0], size[1], 0, 0, tile[0], tile[1], 0, 0];
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
        let header = |tile, precincts| header([100, 100], tile, precincts);
        let cut = |bytes: Vec<u8>, len: usize| bytes[..len].to_vec();
        let cases = [
            (header([100, 100], None), Ok(false)),
            (header([100, 100], Some(0x33)), Ok(false)),
            (header([100, 100], Some(0x23)), Ok(true)),
            (header([100, 100], Some(0x30)), Ok(true)),
            (cut(header([100, 100], Some(0x33)), 50), Ok(true)),
            (header([1, 50], None), Err("100 x 2 tiles do not fit in the file".to_string())),
            (vec![], Ok(false)),
        ];
        for (bytes, want) in cases {
            assert_eq!(look(&bytes), want);
            for end in 0..bytes.len() {
                let _ = look(&bytes[..end]);
            }
            // As in a file, where boxes stand before it.
            let boxed = [b"any boxes", &bytes[..]].concat();
            assert_eq!(look(&boxed), want);
        }
        let error = look(&CODESTREAM.repeat(9)).unwrap_err();
        assert_eq!(error, "it has more than 8 codestreams");
    }
}
