//! Netpbm images: PBM, PGM and PPM as text or binary (`P1` to `P6`), and PAM (`P7`).

use super::allocate_zeros;
use super::bitmaps::{BitmapLayout, Samples};

/// A Netpbm image (PBM, PGM, PPM or PAM) whose header has been read.
#[derive(Debug)]
pub(super) struct Pnm<'a> {
    /// Encoded samples: the bytes after the header.
    data: &'a [u8],
    width: usize,
    height: usize,
    channels: usize,
    /// Sample value of full intensity (`maxval`), from 1 to 65,535.
    max: u16,
    coding: Coding,
}

/// Coding of the samples in a Netpbm file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Coding {
    /// Digits 0 and 1 as text; 1 is black.
    BitDigits,
    /// One bit a sample, rows padded to bytes; 1 is black.
    Bits,
    /// Decimal numbers as text, separated by whitespace.
    Numbers,
    /// One byte a sample, or two in big-endian order if `max` is above 255.
    Bytes,
    /// One byte a sample, 0 or 1; 1 is white.
    Flags,
}

/// Whether a byte is whitespace in a Netpbm file.
fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | 0x0b | 0x0c | b'\r' | b' ')
}

/// Reads the next number of a PNM header, and one whitespace byte after it. A comment extends from
/// `#` to the end of the line, even within a number.
fn read_number(rest: &mut &[u8]) -> Result<usize, String> {
    let (mut number, mut is_comment) = (None, false);
    while let Some((byte, after)) = rest.split_first() {
        *rest = after;
        match *byte {
            b'\n' | b'\r' if is_comment => is_comment = false,
            _ if is_comment => {}
            b'#' => is_comment = true,
            digit @ b'0'..=b'9' => {
                let sum = number.unwrap_or(0u32).checked_mul(10);
                let sum = sum.and_then(|sum| sum.checked_add(u32::from(digit - b'0')));
                number = Some(sum.ok_or("a number of the header is too large")?);
            }
            space if is_space(space) => {
                if number.is_some() {
                    break;
                }
            }
            other => {
                return Err(format!("the header has the byte {other:02x} in place of a number"));
            }
        }
    }
    number.map(|number| number as usize).ok_or_else(|| "the header is truncated".to_string())
}

/// Reads the next line of a PAM header, without its line break; empty for a comment.
fn read_line<'a>(rest: &mut &'a [u8]) -> Result<&'a str, String> {
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or("the header is truncated")?;
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    match std::str::from_utf8(line) {
        // Comments may contain any bytes.
        _ if line.starts_with(b"#") => Ok(""),
        Ok(text) if text.is_ascii() => Ok(text),
        _ => Err("a line of the header is not ASCII".to_string()),
    }
}

/// Checks the sample value of full intensity (`maxval`), which must be from 1 to 65,535.
fn check_max(number: usize) -> Result<u16, String> {
    match u16::try_from(number) {
        Ok(max) if max > 0 => Ok(max),
        _ => Err(format!("the largest sample must be from 1 to 65535, not {number}")),
    }
}

impl<'a> Pnm<'a> {
    /// Reads the header of a PNM or PAM file.
    pub(super) fn open(encoded: &'a [u8]) -> Result<Pnm<'a>, String> {
        let (magic, mut rest) = encoded.split_at_checked(2).ok_or("the header is truncated")?;
        let (channels, coding) = match magic[1] {
            b'1' => (1, Coding::BitDigits),
            b'2' => (1, Coding::Numbers),
            b'3' => (3, Coding::Numbers),
            b'4' => (1, Coding::Bits),
            b'5' => (1, Coding::Bytes),
            b'6' => (3, Coding::Bytes),
            _ => return Pnm::open_pam(rest),
        };
        let (width, height) = (read_number(&mut rest)?, read_number(&mut rest)?);
        let max = match coding {
            Coding::BitDigits | Coding::Bits => 1,
            _ => check_max(read_number(&mut rest)?)?,
        };
        Ok(Pnm { data: rest, width, height, channels, max, coding })
    }

    /// Reads the header of a PAM file, after the magic number `P7`.
    fn open_pam(mut rest: &'a [u8]) -> Result<Pnm<'a>, String> {
        if !read_line(&mut rest)?.is_empty() {
            return Err("the PAM header has no line break after the magic number P7".to_string());
        }
        const KEYS: [&str; 4] = ["WIDTH", "HEIGHT", "DEPTH", "MAXVAL"];
        let (mut numbers, mut tuple) = ([None; 4], None);
        loop {
            let line = read_line(&mut rest)?.trim();
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let value = value.trim();
            match (key, KEYS.iter().position(|name| *name == key)) {
                ("", _) => {}
                ("ENDHDR", _) => break,
                ("TUPLTYPE", _) if tuple.is_none() => tuple = Some(value),
                (_, Some(index)) if numbers[index].is_none() => {
                    let number = value.parse::<u32>().ok();
                    let number =
                        number.ok_or_else(|| format!("the header line {key} is not a number"))?;
                    numbers[index] = Some(number as usize);
                }
                ("TUPLTYPE", _) | (_, Some(_)) => {
                    return Err(format!("duplicate line {key} in the header"));
                }
                _ => return Err(format!("unknown line {key} in the header")),
            }
        }
        if let Some(index) = numbers.iter().position(Option::is_none) {
            return Err(format!("the header has no line {}", KEYS[index]));
        }
        let [width, height, channels, max] = numbers.map(Option::unwrap_or_default);
        let max = check_max(max)?;
        let depth = match tuple {
            None if (1..=4).contains(&channels) => channels,
            None => return Err(format!("{channels} channels without TUPLTYPE are not supported")),
            Some("BLACKANDWHITE" | "GRAYSCALE") => 1,
            Some("BLACKANDWHITE_ALPHA" | "GRAYSCALE_ALPHA") => 2,
            Some("RGB") => 3,
            Some("RGB_ALPHA") => 4,
            Some(other) => return Err(format!("the TUPLTYPE {other} is not supported")),
        };
        let is_flags = tuple.is_some_and(|tuple| tuple.starts_with("BLACKANDWHITE"));
        if channels != depth || (is_flags && max != 1) {
            let tuple = tuple.unwrap_or_default();
            return Err(format!("{tuple} cannot have DEPTH {channels} and MAXVAL {max}"));
        }
        let coding = if is_flags { Coding::Flags } else { Coding::Bytes };
        Ok(Pnm { data: rest, width, height, channels, max, coding })
    }

    /// Returns the encoded samples, after a check that they have at least `needed` bytes. A `None`
    /// stands for a number of bytes that overflows, and fails.
    fn check_length(&self, needed: Option<usize>) -> Result<&'a [u8], String> {
        let stored = needed.filter(|needed| *needed <= self.data.len());
        stored.map(|_| self.data).ok_or_else(|| {
            let Pnm { width, height, .. } = self;
            format!(
                "{} bytes of samples are too few for {width} x {height} pixels",
                self.data.len()
            )
        })
    }

    /// Decodes samples of one bit (binary PBM).
    fn read_bits(&self) -> Result<Vec<u8>, String> {
        let stride = self.width.div_ceil(8);
        let stored = self.check_length(stride.checked_mul(self.height))?;
        let mut out = allocate_zeros(self.layout().count_bytes())?;
        if self.width > 0 {
            for (row, stored) in out.chunks_exact_mut(self.width).zip(stored.chunks_exact(stride)) {
                for (x, sample) in row.iter_mut().enumerate() {
                    *sample = if stored[x / 8] << (x % 8) & 0x80 == 0 { 255 } else { 0 };
                }
            }
        }
        Ok(out)
    }

    /// Decodes samples that are digits 0 and 1 (plain PBM).
    fn read_bit_digits(&self) -> Result<Vec<u8>, String> {
        let mut stored = self.check_length(Some(self.layout().count_bytes()))?.iter();
        let mut out = allocate_zeros(self.layout().count_bytes())?;
        for sample in &mut out {
            *sample = match stored.find(|byte| !is_space(**byte)) {
                Some(b'0') => 255,
                Some(b'1') => 0,
                Some(other) => {
                    return Err(format!("the samples have the byte {other:02x}, not 0 or 1"));
                }
                None => return Err("the samples end early".to_string()),
            };
        }
        Ok(out)
    }

    /// Decodes samples that are decimal numbers (plain PGM and PPM), without scaling.
    fn read_numbers(&self) -> Result<Vec<u8>, String> {
        let layout = self.layout();
        let samples = layout.count_samples();
        // A sample has at least one digit, and whitespace separates samples.
        let stored = self.check_length(samples.checked_mul(2).map(|len| len.saturating_sub(1)))?;
        let mut out = allocate_zeros(layout.count_bytes())?;
        let mut words = stored.split(|byte| is_space(*byte)).filter(|word| !word.is_empty());
        let size = if layout.is_wide { 2 } else { 1 };
        for sample in out.chunks_exact_mut(size) {
            let word = words.next().ok_or("the samples end early")?;
            let text = std::str::from_utf8(word).ok().filter(|_| word[0].is_ascii_digit());
            let value = text.and_then(|text| text.parse::<u16>().ok());
            let bytes = value.unwrap_or(u16::MAX).to_be_bytes();
            if value.is_none() || (size == 1 && bytes[0] > 0) {
                let word = String::from_utf8_lossy(&word[..word.len().min(20)]);
                return Err(format!("the sample {word:?} is not a number up to {}", self.max));
            }
            sample.copy_from_slice(&bytes[2 - size..]);
        }
        Ok(out)
    }

    /// Decodes samples of one or two bytes (binary PGM, PPM and PAM), without scaling.
    fn read_bytes(&self) -> Result<Vec<u8>, String> {
        let len = self.layout().count_bytes();
        let stored = &self.check_length(Some(len))?[..len];
        let mut out = allocate_zeros(len)?;
        out.copy_from_slice(stored);
        Ok(out)
    }

    /// Scales samples in `out` from the range 0 to `max` to the full range of one or two bytes.
    /// Samples above `max` saturate.
    fn scale(&self, out: &mut [u8]) {
        if matches!(self.max, 255 | u16::MAX) {
            return;
        }
        if self.layout().is_wide {
            let factor = 65535.0 / f32::from(self.max);
            for sample in out.as_chunks_mut().0 {
                let value = f32::from(u16::from_be_bytes(*sample)) * factor;
                *sample = (value.round() as u16).to_be_bytes();
            }
        } else {
            let factor = 255.0 / f32::from(self.max);
            for sample in out {
                *sample = (f32::from(*sample) * factor).round() as u8;
            }
        }
    }
}

impl Samples for Pnm<'_> {
    fn layout(&self) -> BitmapLayout {
        let Pnm { width, height, channels, max, .. } = *self;
        BitmapLayout { width, height, channels, is_wide: max > 255 }
    }

    fn read(self: Box<Self>) -> Result<Vec<u8>, String> {
        let mut out = match self.coding {
            Coding::BitDigits => return self.read_bit_digits(),
            Coding::Bits => return self.read_bits(),
            Coding::Numbers => self.read_numbers()?,
            Coding::Bytes | Coding::Flags => self.read_bytes()?,
        };
        if self.coding == Coding::Flags
            && let Some(other) = out.iter().find(|sample| **sample > 1)
        {
            return Err(format!("the sample {other} is not 0 or 1"));
        }
        self.scale(&mut out);
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(file: &[u8]) -> Result<(BitmapLayout, Vec<u8>), String> {
        let pnm = Pnm::open(file)?;
        Ok((pnm.layout(), Box::new(pnm).read()?))
    }

    /// Netpbm files of all variants, each with the expected width, height, channels, bytes of a
    /// sample, and samples.
    #[rustfmt::skip]
    const FILES: [(&[u8], [usize; 4], &[u8]); 22] = [
        (b"P1 3 2\n0 1 0\n110", [3, 2, 1, 1], &[255, 0, 255, 0, 0, 255]),
        (b"P1\n# width\n3 #height\n 1\n 0\t01 ", [3, 1, 1, 1], &[255, 255, 0]),
        (b"P2 2 2 255\n0 7\r\n255 008\n", [2, 2, 1, 1], &[0, 7, 255, 8]),
        (b"P2 3 1 3\n0 1 9", [3, 1, 1, 1], &[0, 85, 255]),
        (b"P2 2 1 1000\n500 1000", [2, 1, 1, 2], &[0x80, 0x00, 255, 255]),
        (b"P3 1 1 255\n1 2 3", [1, 1, 3, 1], &[1, 2, 3]),
        (b"P3 1 1 65535\n1 2 770", [1, 1, 3, 2], &[0, 1, 0, 2, 3, 2]),
        (b"P4 10 2\n\x80\x40\x7f\xbf", [10, 2, 1, 1],
            &[0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0, 255]),
        (b"P5 3 1 255\n\x00\x0a\xff and more", [3, 1, 1, 1], &[0, 10, 255]),
        (b"P5 2 1 15 \x05\x0f", [2, 1, 1, 1], &[85, 255]),
        (b"P5 1 1 65535\n\x12\x34", [1, 1, 1, 2], &[0x12, 0x34]),
        (b"P5 1 1 511\n\x01\x00", [1, 1, 1, 2], &[0x80, 0x40]),
        (b"P6 1 1 255\n\x01\x02\x03", [1, 1, 3, 1], &[1, 2, 3]),
        (b"P6 1 1#12\n00 65535\n\x01\x02\x03\x04", [1, 100, 3, 2], &[]),
        (b"P6 1 1 65535\n\x01\x02\x03\x04\x05\x06", [1, 1, 3, 2], &[1, 2, 3, 4, 5, 6]),
        (b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 1\nMAXVAL 1\nTUPLTYPE BLACKANDWHITE\nENDHDR\n\x01\x00",
            [2, 1, 1, 1], &[255, 0]),
        (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 2\nMAXVAL 1\nTUPLTYPE BLACKANDWHITE_ALPHA\nENDHDR\n\
            \x00\x01",
            [1, 1, 2, 1], &[0, 255]),
        (b"P7\n# note \xff\nTUPLTYPE GRAYSCALE\nMAXVAL 5\n\n DEPTH\t1 \nHEIGHT 1\nWIDTH 1\n\
            ENDHDR\n\x01",
            [1, 1, 1, 1], &[51]),
        (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 2\nMAXVAL 65535\nTUPLTYPE GRAYSCALE_ALPHA\nENDHDR\n\
            \x01\x02\x03\x04",
            [1, 1, 2, 2], &[1, 2, 3, 4]),
        (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n\x01\x02\x03",
            [1, 1, 3, 1], &[1, 2, 3]),
        (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 4\nMAXVAL 255\nTUPLTYPE RGB_ALPHA\nENDHDR\n\
            \x01\x02\x03\x04",
            [1, 1, 4, 1], &[1, 2, 3, 4]),
        (b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 256\nENDHDR\n\
            \x01\x00", [1, 1, 1, 2], &[255, 255]),
    ];

    #[test]
    fn every_variant_gives_its_samples() {
        for (file, [width, height, channels, size], samples) in FILES {
            let name = String::from_utf8_lossy(file);
            let layout = BitmapLayout { width, height, channels, is_wide: size == 2 };
            assert_eq!(Pnm::open(file).unwrap().layout(), layout, "{name}");
            if samples.is_empty() {
                let error = decode(file).unwrap_err();
                assert!(error.contains("are too few for"), "{name}: {error}");
            } else {
                assert_eq!(decode(file), Ok((layout, samples.to_vec())), "{name}");
            }
        }
    }

    /// Makes the header of a PAM file with the given lines.
    fn make_pam(lines: &str) -> Vec<u8> {
        format!("P7\n{lines}\nENDHDR\n").into_bytes()
    }

    #[test]
    fn errors_name_the_reason() {
        let cases = [
            (b"P5 3".to_vec(), "the header is truncated"),
            (b"P5 3 x 255\n".to_vec(), "the header has the byte 78 in place of a number"),
            (b"P5 99999999999 1 255\n".to_vec(), "a number of the header is too large"),
            (b"P5 1 1 0\n\x00".to_vec(), "the largest sample must be from 1 to 65535, not 0"),
            (
                b"P5 1 1 65536\n\x00".to_vec(),
                "the largest sample must be from 1 to 65535, not 65536",
            ),
            (b"P5 2 1 255\n\x00".to_vec(), "1 bytes of samples are too few for 2 x 1 pixels"),
            (b"P1 2 1\n02".to_vec(), "the samples have the byte 32, not 0 or 1"),
            (b"P1 2 1\n0  ".to_vec(), "the samples end early"),
            (b"P2 1 1 255\n256".to_vec(), "the sample \"256\" is not a number up to 255"),
            (b"P2 2 1 999\n+5 6".to_vec(), "the sample \"+5\" is not a number up to 999"),
            (b"P2 2 1 255\n5    ".to_vec(), "the samples end early"),
            (
                b"P7 WIDTH 1\n".to_vec(),
                "the PAM header has no line break after the magic number P7",
            ),
            (b"P7\nWIDTH 1\n".to_vec(), "the header is truncated"),
            (make_pam("WIDTH 1\nDEPTH 1\nMAXVAL 1"), "the header has no line HEIGHT"),
            (make_pam("WIDTH 1\nWIDTH 1"), "duplicate line WIDTH"),
            (make_pam("SIZE 1"), "unknown line SIZE in the header"),
            (make_pam("WIDTH x"), "WIDTH is not a number"),
            (make_pam("WIDTH 1\nHEIGHT 1\nDEPTH 5\nMAXVAL 1"), "5 channels without TUPLTYPE"),
            (
                make_pam("WIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 1\nTUPLTYPE CMYK"),
                "the TUPLTYPE CMYK is not supported",
            ),
            (
                make_pam("WIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 2\nTUPLTYPE BLACKANDWHITE"),
                "BLACKANDWHITE cannot have DEPTH 1 and MAXVAL 2",
            ),
            (
                [make_pam("WIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 1\nTUPLTYPE BLACKANDWHITE"), vec![2]]
                    .concat(),
                "the sample 2 is not 0 or 1",
            ),
        ];
        for (file, what) in cases {
            let error = decode(&file).expect_err(what);
            assert!(error.contains(what), "{error} is not about: {what}");
        }
    }

    #[test]
    fn damaged_files_give_samples_or_an_error() {
        for (file, ..) in FILES {
            for end in 2..file.len() {
                let _ = decode(&file[..end]);
            }
            for bit in 16..8 * file.len() {
                let mut flipped = file.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                let _ = decode(&flipped);
            }
        }
    }
}
