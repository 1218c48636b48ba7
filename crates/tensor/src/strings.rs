//! String elements: one block of bytes and the ends of each string in it.
//!
//! Elements are byte strings. ONNX says they are UTF-8, but a file may say otherwise, so nothing
//! here depends on it; who needs text asks for it ([`StringArray::get_str`]).

use std::fmt;

use crate::TensorError;
use crate::error::err;

/// An array of byte strings. Immutable once in a tensor, where an `Arc` makes clones cheap.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    /// End of each string in `bytes`; each starts where the one before ends.
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl StringArray {
    /// No strings.
    pub fn new() -> StringArray {
        StringArray::default()
    }

    /// No strings yet, room for `strings` of them with `bytes` bytes in total.
    pub fn with_capacity(strings: usize, bytes: usize) -> StringArray {
        StringArray { ends: Vec::with_capacity(strings), bytes: Vec::with_capacity(bytes) }
    }

    /// The same, where memory may be refused: who computes strings learns their sizes from data.
    ///
    /// # Errors
    /// `Overflow` if there is no such memory.
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

    /// `len` empty strings, the zero of this type.
    pub fn empty_strings(len: usize) -> StringArray {
        StringArray { ends: vec![0; len], bytes: Vec::new() }
    }

    /// Appends one string.
    pub fn push(&mut self, string: impl AsRef<[u8]>) {
        self.bytes.extend_from_slice(string.as_ref());
        self.ends.push(self.bytes.len());
    }

    /// Appends one string that lies in parts.
    pub fn push_parts<'a>(&mut self, parts: impl IntoIterator<Item = &'a [u8]>) {
        parts.into_iter().for_each(|part| self.bytes.extend_from_slice(part));
        self.ends.push(self.bytes.len());
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of all strings together.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The `index`-th string.
    ///
    /// # Panics
    /// If `index` is not below [`StringArray::len`].
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// The `index`-th string as text; `None` if it is not UTF-8.
    ///
    /// # Panics
    /// If `index` is not below [`StringArray::len`].
    pub fn get_str(&self, index: usize) -> Option<&str> {
        std::str::from_utf8(self.get(index)).ok()
    }

    /// All strings in order.
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
        // TENSOR-18+, TYPE-06: empty strings, embedded NUL, and bytes that are no text.
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
