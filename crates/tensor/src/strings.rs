//! String elements: one block of bytes, and the end of each string in it.
//!
//! Elements are byte strings. ONNX requires UTF-8, but files may violate this, so no code relies on
//! it; [`StringArray::get_str`] checks an element.

use std::fmt;

use crate::TensorError;
use crate::error::err;

/// Array of byte strings, the elements of a tensor of type `string`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    /// End of each string in `bytes`; each starts where the one before ends.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl StringArray {
    /// Makes an empty array.
    pub fn new() -> StringArray {
        StringArray::default()
    }

    /// Makes an empty array with capacity for `strings` strings of `bytes` bytes in total.
    pub fn with_capacity(strings: usize, bytes: usize) -> StringArray {
        StringArray { ends: Vec::with_capacity(strings), bytes: Vec::with_capacity(bytes) }
    }

    /// Makes an empty array with capacity like [`StringArray::with_capacity`], but fails instead of
    /// aborting if memory is refused. For code that takes the sizes from data.
    ///
    /// # Errors
    /// Memory cannot be allocated.
    pub fn try_with_capacity(strings: usize, bytes: usize) -> Result<StringArray, TensorError> {
        let mut array = StringArray::new();
        let room = array.ends.try_reserve_exact(strings);
        match room.and_then(|()| array.bytes.try_reserve_exact(bytes)) {
            Ok(()) => Ok(array),
            Err(_) => {
                err!(Overflow, "not enough memory for {strings} strings of {bytes} bytes in total")
            }
        }
    }

    /// Makes an array of `len` empty strings.
    pub fn empty_strings(len: usize) -> StringArray {
        StringArray { ends: vec![0; len], bytes: Vec::new() }
    }

    /// Appends a string.
    pub fn push(&mut self, string: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(string.as_ref());
        self.ends.push(self.bytes.len());
    }

    /// Appends one string: the concatenation of `parts`.
    pub fn push_parts<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) {
        parts.into_iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(self.bytes.len());
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the array has no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the total number of bytes of all strings.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the string at `index`, as bytes.
    ///
    /// # Panics
    /// If `index` is not below [`StringArray::len`].
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// Returns the string at `index` as text; `None` if it is not UTF-8.
    ///
    /// # Panics
    /// If `index` is not below [`StringArray::len`].
    pub fn get_str(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.get(index)).ok()
    }

    /// Iterates over the strings in order, as bytes.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|i| self.get(i))
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut out = StringArray::new();
        strings.into_iter().for_each(|s| out.push(s));
        out
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StringArray({} strings, {} bytes)", self.len(), self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_survive() {
        // TENSOR-18+, TYPE-06: empty strings, embedded NUL, and bytes that are not text.
        let source: [&[u8]; 5] = [b"", b"a\0b", b"\xff\xfe", "ü".as_bytes(), b""];
        let array = StringArray::from_iter(source);
        assert_eq!(array.iter().collect::<Vec<_>>(), source);
        assert_eq!((array.len(), array.total_bytes()), (5, 7));
        assert_eq!((array.get_str(2), array.get_str(3)), (None, Some("ü")));
        assert_eq!(StringArray::empty_strings(2), StringArray::from_iter(["", ""]));
        assert!(StringArray::try_with_capacity(5, 7).is_ok_and(|array| array.is_empty()));
        assert!(StringArray::try_with_capacity(usize::MAX / 2, 0).is_err());
        assert_ne!(StringArray::from_iter(["ab", "c"]), StringArray::from_iter(["a", "bc"]));
    }
}
