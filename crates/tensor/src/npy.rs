//! NumPy's `.npy` format: reads and writes one array.
//!
//! A file is a magic number, a version, a header that is a Python dict (`descr`, `fortran_order`,
//! `shape`), and the elements. Reads versions 1 to 3, either byte order and either element order;
//! writes version 1, little-endian and row-major, like NumPy.
//!
//! Types that NumPy does not have (bfloat16, float8, int4 ...) are written like NumPy writes arrays
//! of the package ml_dtypes: as bare bytes, `<V2` or `<V1`, and types narrower than one byte with
//! one code per byte. `array.view(ml_dtypes.bfloat16)` restores the array. Other programs use the
//! name of an integer type. The file does not identify such types, so reading them requires the
//! type; see [`read_as`].
//!
//! Allocates memory only for elements that are present in the file. Pickled arrays (`O`) and
//! records are rejected.

use crate::buffer::Buffer;
use crate::element::{DataType, swap_bytes};
use crate::error::{TensorError, err};
use crate::shape::{Dims, elems};
use crate::strings::StringArray;
use crate::tensor::Tensor;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Maximum length of a header, in bytes; NumPy's own limit is 10,000.
const MAX_HEADER: usize = 1 << 16;

/// Maximum number of dims; NumPy allows 64.
const MAX_RANK: usize = 64;

/// Reads the array in a `.npy` file. Bytes are shared, not copied, if they are row-major and in
/// host order.
///
/// # Errors
/// `Parse` if it is not such a file or is truncated, `Unsupported` if its elements are not numbers,
/// booleans or strings.
pub fn read(file: &Buffer) -> Result<Tensor, TensorError> {
    read_with(file, None)
}

/// Reads an array like [`read`], but takes elements without a type in NumPy as `data_type`. Their
/// width must be that of `data_type`; types narrower than one byte, which the file stores one per
/// byte, are packed.
///
/// # Errors
/// An error of [`read`], or the width differs.
pub fn read_as(file: &Buffer, data_type: DataType) -> Result<Tensor, TensorError> {
    read_with(file, Some(data_type))
}

fn read_with(file: &Buffer, raw: Option<DataType>) -> Result<Tensor, TensorError> {
    let bytes = file.as_slice();
    let (header, start) = split_header(bytes)?;
    let header = Header::parse(header)?;
    let count = elems(&header.shape)?;
    let encoding = ElementEncoding::parse(&header.descr, raw)?;
    let Some(need) = count.checked_mul(encoding.width) else {
        return err!(Overflow, "npy: {count} elements of {} bytes", encoding.width);
    };
    let have = bytes.len() - start;
    if have < need {
        return err!(
            Parse,
            "npy: {count} elements of {} bytes need {need}, the file has {have}",
            encoding.width
        );
    }
    // Bytes after the elements are ignored: a file may contain several arrays.
    let tensor = match encoding.content {
        Content::Bytes(data_type) => {
            let mut data = file.slice(start..start + need)?;
            if encoding.swapped {
                swap_bytes(data_type, data.make_mut()?)?;
            }
            Tensor::from_buffer(data_type, flat_dims(count), data)?
        }
        Content::Codes(data_type) => {
            Tensor::from_codes(data_type, flat_dims(count), &bytes[start..start + need])?
        }
        Content::Utf32 | Content::Ascii => {
            // Strings of width 0 take no bytes, so their number must not depend on the shape alone.
            if encoding.width == 0 && count > have.max(MAX_HEADER) {
                return err!(Unsupported, "npy: {count} empty strings");
            }
            let data = &bytes[start..start + need];
            let strings = (0..count).map(|i| {
                let cell = &data[i * encoding.width..(i + 1) * encoding.width];
                match encoding.content {
                    Content::Utf32 => decode_utf32(cell, encoding.swapped),
                    _ => Ok(trim_nul(cell).to_vec()),
                }
            });
            Tensor::from_strings(flat_dims(count), strings.collect::<Result<StringArray, _>>()?)?
        }
    };
    if !header.fortran_order {
        return tensor.reshape(&header.shape);
    }
    // A column-major array is a row-major one with reversed dims, transposed.
    let reversed: Dims = header.shape.iter().rev().copied().collect();
    let perm: Dims = (0..reversed.len()).rev().collect();
    tensor.reshape(&reversed)?.view().transpose(&perm)?.to_tensor()
}

fn flat_dims(count: usize) -> [usize; 1] {
    [count]
}

/// Builds the header of an array of numbers or booleans, for writing without a copy. The elements
/// must follow in little-endian order, those of packed types as the codes that [`Tensor::to_codes`]
/// returns.
///
/// # Errors
/// `Unsupported` for strings, whose width depends on all of them.
pub fn header(data_type: DataType, dims: &[usize]) -> Result<Vec<u8>, TensorError> {
    match descr_of(data_type) {
        Some(descr) => make_header(&descr, dims),
        None => err!(Unsupported, "npy: the width of {data_type} elements depends on their values"),
    }
}

/// Whether a file identifies elements of this type. Elements of other types are bare bytes, whose
/// type the reader must know.
pub fn names_type(data_type: DataType) -> bool {
    data_type == DataType::String || letter_of(data_type).is_some()
}

/// Encodes a tensor as a `.npy` file.
///
/// # Errors
/// `Unsupported` for strings that NumPy cannot represent: those that end in NUL or are not UTF-8.
pub fn write(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
    let Some(strings) = tensor.strings() else {
        let mut out = header(tensor.data_type(), tensor.dims())?;
        if tensor.data_type().is_packed() {
            out.extend_from_slice(&tensor.to_codes()?);
            return Ok(out);
        }
        out.extend_from_slice(tensor.bytes());
        if cfg!(target_endian = "big") {
            let start = out.len() - tensor.bytes().len();
            swap_bytes(tensor.data_type(), &mut out[start..])?;
        }
        return Ok(out);
    };
    let mut chars = 1; // NumPy writes no width 0
    for (i, string) in strings.iter().enumerate() {
        match std::str::from_utf8(string) {
            Ok(text) if !text.ends_with('\0') => chars = chars.max(text.chars().count()),
            Ok(_) => {
                return err!(Unsupported, "npy: string {i} ends in NUL, which NumPy drops");
            }
            Err(_) => return err!(Unsupported, "npy: string {i} is not UTF-8"),
        }
    }
    let Some(total) = chars.checked_mul(4).and_then(|width| width.checked_mul(strings.len()))
    else {
        return err!(Overflow, "npy: {} strings of up to {chars} characters", strings.len());
    };
    let mut out = make_header(&format!("<U{chars}"), tensor.dims())?;
    if out.try_reserve(total).is_err() {
        return err!(Overflow, "not enough memory for {total} bytes");
    }
    for string in strings.iter() {
        let end = out.len() + 4 * chars;
        let text = std::str::from_utf8(string).unwrap_or_default(); // checked above
        text.chars().for_each(|c| out.extend_from_slice(&(c as u32).to_le_bytes()));
        out.resize(end, 0);
    }
    Ok(out)
}

/// Encoding of the elements in a file.
struct ElementEncoding {
    content: Content,
    /// Bytes per element.
    width: usize,
    /// Whether the byte order differs from the host's.
    swapped: bool,
}

enum Content {
    /// Bytes in the layout of a tensor.
    Bytes(DataType),
    /// Codes, one per byte, to be packed.
    Codes(DataType),
    /// Strings of 4-byte characters, padded with NUL.
    Utf32,
    /// Byte strings, padded with NUL.
    Ascii,
}

impl ElementEncoding {
    /// Parses `descr`: byte order, letter and width.
    fn parse(descr: &str, raw: Option<DataType>) -> Result<ElementEncoding, TensorError> {
        let (order, rest) = match descr.as_bytes().first() {
            Some(b'<' | b'>' | b'|' | b'=') => descr.split_at(1),
            _ => ("=", descr),
        };
        if rest.starts_with('O') {
            return err!(
                Unsupported,
                "npy: pickled Python objects ('{descr}') are not read; save an array of numbers, or of strings with astype(str)"
            );
        }
        let (Some(letter), Ok(width)) =
            (rest.chars().next(), rest.get(1..).unwrap_or("").parse::<usize>())
        else {
            return err!(
                Unsupported,
                "npy: element type '{descr}' is not a number, boolean or string type"
            );
        };
        let big = order == ">" || order == "=" && cfg!(target_endian = "big");
        let swapped = order != "|" && big != cfg!(target_endian = "big");
        if let (Some(raw), 'U' | 'S' | 'a') = (raw, letter) {
            return err!(Type, "npy: strings ('{descr}') cannot be {raw}");
        }
        let content = match letter {
            'U' => {
                let Some(width) = width.checked_mul(4) else {
                    return err!(Parse, "npy: strings of {width} characters");
                };
                return Ok(ElementEncoding { content: Content::Utf32, width, swapped });
            }
            'S' | 'a' => Content::Ascii,
            'b' | 'i' | 'u' | 'f' | 'c' | 'V' => {
                let known = match (letter, width) {
                    ('b', 1) => Some(DataType::Bool),
                    ('i', 1) => Some(DataType::Int8),
                    ('i', 2) => Some(DataType::Int16),
                    ('i', 4) => Some(DataType::Int32),
                    ('i', 8) => Some(DataType::Int64),
                    ('u', 1) => Some(DataType::Uint8),
                    ('u', 2) => Some(DataType::Uint16),
                    ('u', 4) => Some(DataType::Uint32),
                    ('u', 8) => Some(DataType::Uint64),
                    ('f', 2) => Some(DataType::Float16),
                    ('f', 4) => Some(DataType::Float),
                    ('f', 8) => Some(DataType::Double),
                    ('c', 8) => Some(DataType::Complex64),
                    ('c', 16) => Some(DataType::Complex128),
                    _ => None,
                };
                match (known, raw) {
                    (Some(data_type), None) => Content::Bytes(data_type),
                    (_, Some(raw)) if raw.element_bytes() == Some(width) => Content::Bytes(raw),
                    (_, Some(raw)) if raw.is_packed() && width == 1 => Content::Codes(raw),
                    (_, Some(raw)) => {
                        return err!(
                            Type,
                            "npy: elements of {width} bytes ('{descr}') cannot be {raw}"
                        );
                    }
                    (None, None) => {
                        return err!(
                            Unsupported,
                            "npy: '{descr}' does not define the type of its elements of {width} bytes; give the type (as bfloat16 or float8e4m3fn), or save them as float32"
                        );
                    }
                }
            }
            'M' | 'm' => return err!(Unsupported, "npy: dates ('{descr}'); save them as int64"),
            _ => return err!(Unsupported, "npy: element type '{descr}'"),
        };
        Ok(ElementEncoding { content, width, swapped })
    }
}

/// Returns NumPy's letter for the kind of a type; `None` if NumPy has no such type.
fn letter_of(data_type: DataType) -> Option<char> {
    Some(match data_type {
        DataType::Bool => 'b',
        DataType::Float16 | DataType::Float | DataType::Double => 'f',
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => 'i',
        DataType::Uint8 | DataType::Uint16 | DataType::Uint32 | DataType::Uint64 => 'u',
        DataType::Complex64 | DataType::Complex128 => 'c',
        _ => return None,
    })
}

/// Returns NumPy's name of a type in little-endian order, the name of bare bytes for types of
/// ml_dtypes; `None` for strings.
fn descr_of(data_type: DataType) -> Option<String> {
    let letter = letter_of(data_type);
    let width = match data_type {
        DataType::String => return None,
        _ if data_type.is_packed() => 1,
        _ => data_type.element_bytes()?,
    };
    // ml_dtypes writes a byte order even for types of one byte.
    let order = if width == 1 && letter.is_some() { '|' } else { '<' };
    Some(format!("{order}{}{width}", letter.unwrap_or('V')))
}

fn make_header(descr: &str, dims: &[usize]) -> Result<Vec<u8>, TensorError> {
    let shape = match dims {
        [one] => format!("({one},)"),
        _ => format!("({})", dims.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")),
    };
    let mut dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Padded with spaces and a newline, so that the elements start at a multiple of 64 bytes.
    let unpadded = MAGIC.len() + 4 + dict.len() + 1;
    dict.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    dict.push('\n');
    let Ok(len) = u16::try_from(dict.len()) else {
        return err!(Unsupported, "npy: rank {}", dims.len());
    };
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[1, 0]);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(dict.as_bytes());
    Ok(out)
}

/// Returns the text of the header, and the offset of the elements.
fn split_header(bytes: &[u8]) -> Result<(&str, usize), TensorError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return err!(Parse, "npy: the file does not start with the NPY magic");
    };
    let (len, start) = match *rest {
        [1, _, a, b, ..] => (u16::from_le_bytes([a, b]) as usize, 10),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]) as usize, 12),
        [1..=3, ..] | [] => return err!(Parse, "npy: the header is truncated"),
        [version, ..] => return err!(Unsupported, "npy: version {version}"),
    };
    if len > MAX_HEADER {
        return err!(Parse, "npy: a header of {len} bytes; {MAX_HEADER} are read at most");
    }
    let Some(header) = bytes.get(start..start + len) else {
        return err!(Parse, "npy: the header is truncated");
    };
    match std::str::from_utf8(header) {
        Ok(text) => Ok((text, start + len)),
        Err(_) => err!(Parse, "npy: the header is not text"),
    }
}

struct Header {
    descr: String,
    fortran_order: bool,
    shape: Dims,
}

impl Header {
    /// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }` with keys in any order.
    fn parse(text: &str) -> Result<Header, TensorError> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        let mut at = Cursor { rest: text };
        at.expect('{')?;
        while !at.accept('}') {
            let key = at.read_quoted()?;
            at.expect(':')?;
            match key {
                "descr" => {
                    if at.rest.trim_start().starts_with('[') {
                        return err!(Unsupported, "npy: records with several fields");
                    }
                    descr = Some(at.read_quoted()?.to_owned());
                }
                "fortran_order" => fortran_order = Some(at.read_bool()?),
                "shape" => shape = Some(at.read_shape()?),
                _ => return err!(Parse, "npy: unknown header key {key:?}"),
            }
            if !at.accept(',') {
                at.expect('}')?;
                break;
            }
        }
        if !at.rest.trim_matches([' ', '\n', '\r', '\t', '\0']).is_empty() {
            return err!(Parse, "npy: unexpected data after the header's dict");
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => {
                Ok(Header { descr, fortran_order, shape })
            }
            _ => err!(Parse, "npy: the header lacks descr, fortran_order or shape"),
        }
    }
}

/// Unread part of a header.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn accept(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), TensorError> {
        if self.accept(c) { Ok(()) } else { self.fail_unexpected(&format!("'{c}'")) }
    }

    fn read_quoted(&mut self) -> Result<&'a str, TensorError> {
        let quote = if self.accept('\'') {
            '\''
        } else if self.accept('"') {
            '"'
        } else {
            return self.fail_unexpected("a quoted word");
        };
        let Some((word, rest)) = self.rest.split_once(quote) else {
            return self.fail_unexpected("a closing quote");
        };
        self.rest = rest;
        Ok(word)
    }

    fn read_bool(&mut self) -> Result<bool, TensorError> {
        self.rest = self.rest.trim_start();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word) {
                self.rest = rest;
                return Ok(value);
            }
        }
        self.fail_unexpected("True or False")
    }

    fn read_shape(&mut self) -> Result<Dims, TensorError> {
        let mut dims = Dims::new();
        self.expect('(')?;
        while !self.accept(')') {
            if dims.len() == MAX_RANK {
                return err!(Unsupported, "npy: more than {MAX_RANK} dims");
            }
            self.rest = self.rest.trim_start();
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.rest.split_at(digits);
            let Ok(dim) = number.parse() else {
                return self.fail_unexpected("a dim");
            };
            dims.push(dim);
            self.rest = rest.strip_prefix('L').unwrap_or(rest); // Python 2 wrote 3L
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(dims)
    }

    fn fail_unexpected<T>(&self, wanted: &str) -> Result<T, TensorError> {
        let found: String = self.rest.chars().take(20).collect();
        err!(Parse, "npy: header has {found:?} where {wanted} should be")
    }
}

fn trim_nul(cell: &[u8]) -> &[u8] {
    let end = cell.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    &cell[..end]
}

fn decode_utf32(cell: &[u8], swapped: bool) -> Result<Vec<u8>, TensorError> {
    let (cells, _) = cell.as_chunks::<4>();
    let end = cells.iter().rposition(|c| *c != [0; 4]).map_or(0, |last| last + 1);
    let mut out = String::new();
    for c in &cells[..end] {
        let code = u32::from_ne_bytes(*c);
        let code = if swapped { code.swap_bytes() } else { code };
        match char::from_u32(code) {
            Some(c) => out.push(c),
            None => return err!(Parse, "npy: {code:#x} is not a character"),
        }
    }
    Ok(out.into_bytes())
}
