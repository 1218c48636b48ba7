//! Arguments that C code passes by pointer: texts, paths, arrays, and places for results.
//!
//! Each type is a pointer that may be null; its methods check that and dereference it. Their
//! promise is that of the C interface: a pointer that is not null points to what the header
//! declares, for as long as the call takes.

#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::slice;

use crate::failure::{Error, demand};

/// Text that ends with a zero byte.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    /// Returns the bytes; `None` for a null pointer.
    #[inline]
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: the pointer is not null, and the caller promises that a zero byte follows.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Returns the text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn read(&self, what: &str) -> Result<Cow<'_, str>, Error> {
        demand(!self.0.is_null(), || format!("the {what} is a null pointer"))?;
        Ok(String::from_utf8_lossy(self.bytes().unwrap_or_default()))
    }

    /// Returns the text; `None` for a null pointer.
    pub(crate) fn optional(&self) -> Option<Cow<'_, str>> {
        self.bytes().map(String::from_utf8_lossy)
    }

    /// Returns the text as a path.
    ///
    /// # Errors
    ///
    /// A null pointer.
    #[cfg(unix)]
    pub(crate) fn path(&self, what: &str) -> Result<PathBuf, Error> {
        use std::os::unix::ffi::OsStrExt;
        demand(!self.0.is_null(), || format!("the {what} is a null pointer"))?;
        Ok(std::ffi::OsStr::from_bytes(self.bytes().unwrap_or_default()).into())
    }
}

/// Path, in the characters of the system.
#[cfg(unix)]
pub(crate) type PathText = Text;

/// Path, in the characters of the system.
#[cfg(windows)]
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathText(*const u16);

#[cfg(windows)]
impl PathText {
    /// Returns the path.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn path(&self, what: &str) -> Result<PathBuf, Error> {
        use std::os::windows::ffi::OsStringExt;
        demand(!self.0.is_null(), || format!("the {what} is a null pointer"))?;
        let mut len = 0;
        // SAFETY: the caller promises that a zero follows.
        while unsafe { *self.0.add(len) } != 0 {
            len += 1;
        }
        // SAFETY: the characters before the zero.
        let characters = unsafe { slice::from_raw_parts(self.0, len) };
        Ok(std::ffi::OsString::from_wide(characters).into())
    }
}

/// Elements that the caller has, without their number.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Array<T>(*const T);

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Array<T> {}

impl<T> Array<T> {
    /// Returns the elements.
    ///
    /// # Errors
    ///
    /// A null pointer, unless `len` is 0; a length that no memory has.
    #[inline]
    pub(crate) fn read(&self, len: usize, what: &str) -> Result<&[T], Error> {
        if len == 0 {
            return Ok(&[]);
        }
        demand(!self.0.is_null(), || format!("the array of {what} is a null pointer"))?;
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        demand(bytes.is_some(), || format!("there are {len} {what}, more than memory can hold"))?;
        demand(self.0.is_aligned(), || format!("the array of {what} is not aligned"))?;
        // SAFETY: the pointer is not null and is aligned, and the caller promises `len` elements.
        Ok(unsafe { slice::from_raw_parts(self.0, len) })
    }

    /// Returns the array as one of other elements, whose alignment [`Array::read`] checks.
    pub(crate) fn cast<U>(self) -> Array<U> {
        Array(self.0.cast())
    }

    /// Returns the address of the first element.
    pub(crate) fn address(&self) -> *const T {
        self.0
    }
}

/// Place that the caller has for a result, or for several in a row.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T: Copy> Out<T> {
    /// Wraps the address of memory that was allocated for the caller.
    pub(crate) fn new(address: *mut T) -> Out<T> {
        Out(address)
    }

    /// Checks that the pointer is not null, before anything is done that a failure would undo.
    ///
    /// # Errors
    ///
    /// A null pointer.
    #[inline]
    pub(crate) fn demand(self) -> Result<Self, Error> {
        demand(!self.0.is_null(), || "the place for the result is a null pointer".to_string())?;
        Ok(self)
    }

    /// Whether the pointer is null.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the result.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn set(self, result: T) -> Result<(), Error> {
        self.demand()?;
        // SAFETY: the pointer is not null, and the caller promises a place for a `T`.
        unsafe { self.0.write_unaligned(result) };
        Ok(())
    }

    /// Writes the result at an index of a row of places.
    ///
    /// # Errors
    ///
    /// A null pointer.
    #[inline]
    pub(crate) fn set_at(self, index: usize, result: T) -> Result<(), Error> {
        self.demand()?;
        // SAFETY: the caller promises room for as many results as it asks for.
        unsafe { self.0.add(index).write_unaligned(result) };
        Ok(())
    }

    /// Writes several results in a row.
    ///
    /// # Errors
    ///
    /// A null pointer with at least one result.
    #[inline]
    pub(crate) fn set_all(self, results: &[T]) -> Result<(), Error> {
        if results.is_empty() {
            return Ok(());
        }
        self.demand()?;
        // SAFETY: the caller promises room for as many results, which overlap nothing of ours.
        unsafe { self.0.copy_from_nonoverlapping(results.as_ptr(), results.len()) };
        Ok(())
    }

    /// Reads the value that the caller has put in the place.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn get(self) -> Result<T, Error> {
        self.demand()?;
        // SAFETY: the pointer is not null, and the caller promises that it has written a `T`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Returns the values that the caller has put in a row of places.
    ///
    /// # Errors
    ///
    /// The errors of [`Array::read`].
    #[inline]
    pub(crate) fn read(&self, len: usize, what: &str) -> Result<&[T], Error> {
        let array = Array(self.0.cast_const());
        array.read(len, what)?;
        // SAFETY: `Array::read` has checked the pointer and the length.
        Ok(if len == 0 { &[] } else { unsafe { slice::from_raw_parts(self.0, len) } })
    }

    /// Returns the address of the first place.
    pub(crate) fn address(&self) -> *mut T {
        self.0
    }
}

/// Copies a text to a place of the caller that has room for `size` bytes, and sets `size` to what
/// it needs with its zero byte. Without a place, only the size is set.
///
/// # Errors
///
/// The place is too small.
pub(crate) fn copy_text(text: &str, place: Out<c_char>, size: Out<usize>) -> Result<(), Error> {
    let room = size.get()?;
    let needed = text.len() + 1;
    size.set(needed)?;
    if place.is_null() {
        return Ok(());
    }
    demand(room >= needed, || {
        format!("the text has {needed} bytes with its end, and there is room for {room}")
    })?;
    let bytes: Vec<c_char> = text.bytes().chain([0]).map(|byte| byte as c_char).collect();
    place.set_all(&bytes)
}
