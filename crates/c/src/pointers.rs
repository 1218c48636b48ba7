//! Arguments that C code passes by pointer: objects, texts, arrays, and places for results.
//!
//! Each type is a pointer that may be null; its methods check that and dereference it. Their
//! promise is that of the interface: a pointer that is not null points to what the header declares,
//! for as long as the call takes, and an object is not changed while another thread uses it.

use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char};
use std::path::PathBuf;
use std::{ptr, slice};

use crate::error::{Failure, argument};

/// Pointer to an object, for reading.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ref<T>(*const T);

impl<T> Ref<T> {
    /// Returns the object.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn get(&self) -> Result<&T, Failure> {
        self.optional().ok_or_else(|| argument(format!("the {} is a null pointer", name::<T>())))
    }

    /// Returns the object; `None` for a null pointer.
    pub(crate) fn optional(&self) -> Option<&T> {
        // SAFETY: the caller passes null or a live object.
        unsafe { self.0.as_ref() }
    }

    /// Returns the address of the object.
    pub(crate) fn address(&self) -> *const T {
        self.0
    }
}

/// Pointer to an object, for a change.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Mut<T>(*mut T);

impl<T> Mut<T> {
    /// Returns the object.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn get(&mut self) -> Result<&mut T, Failure> {
        // SAFETY: the caller passes null or a live object that no other thread uses meanwhile.
        let object = unsafe { self.0.as_mut() };
        object.ok_or_else(|| argument(format!("the {} is a null pointer", name::<T>())))
    }
}

/// Pointer to an object that the caller hands over.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Owned<T>(*mut T);

impl<T> Owned<T> {
    /// Frees an object of [`give`]. Ignores a null pointer.
    pub(crate) fn free(self) {
        if !self.0.is_null() {
            // SAFETY: the caller passes an object of `give`, once.
            drop(unsafe { Box::from_raw(self.0) });
        }
    }
}

/// Returns the name of a type without its modules.
fn name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.rsplit("::").next().unwrap_or(name)
}

/// Hands an object to the caller, who frees it.
pub(crate) fn give<T>(object: T) -> *mut T {
    Box::into_raw(Box::new(object))
}

/// Frees a text of [`give_text`]. Ignores a null pointer.
pub(crate) fn free_text(text: Owned<c_char>) {
    if !text.0.is_null() {
        // SAFETY: the caller passes a text of `give_text`, once.
        drop(unsafe { CString::from_raw(text.0) });
    }
}

/// Hands a text to the caller, who frees it with `sardonyx_text_free`.
pub(crate) fn give_text(text: &str) -> *mut c_char {
    to_c_string(text).into_raw()
}

/// Converts a text to a C string. A zero byte ends it, as it would for the reader.
pub(crate) fn to_c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Bytes that the library has allocated.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct Bytes(*mut u8);

impl Bytes {
    /// Frees the bytes. Ignores a null pointer.
    pub(crate) fn free(self, count: usize) {
        if !self.0.is_null() {
            // SAFETY: the caller passes bytes of `give_bytes` with their number, once.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.0, count)) });
        }
    }
}

/// Hands bytes to the caller, who frees them with `sardonyx_bytes_free`.
pub(crate) fn give_bytes(bytes: Vec<u8>) -> *mut u8 {
    Box::into_raw(bytes.into_boxed_slice()).cast()
}

/// Text that ends with a zero byte.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text(*const c_char);

impl Text {
    fn bytes(&self, what: &str) -> Result<&[u8], Failure> {
        if self.0.is_null() {
            return Err(argument(format!("the {what} is a null pointer")));
        }
        // SAFETY: the pointer is not null, and the caller promises that a zero byte follows.
        Ok(unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// Returns the text; bytes that are not UTF-8 are replaced.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn read(&self, what: &str) -> Result<Cow<'_, str>, Failure> {
        self.bytes(what).map(String::from_utf8_lossy)
    }

    /// Returns the text as a path.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        let bytes = self.bytes("path")?;
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt;
            Ok(std::ffi::OsStr::from_bytes(bytes).into())
        }
        #[cfg(not(unix))]
        {
            Ok(String::from_utf8_lossy(bytes).into_owned().into())
        }
    }
}

/// Elements that the caller has, without their number.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Array<T>(*const T);

impl<T> Array<T> {
    /// Wraps the address of the first element.
    pub(crate) fn new(start: *const T) -> Array<T> {
        Array(start)
    }

    /// Returns the array as one of other elements, whose alignment [`Array::read`] checks.
    pub(crate) fn cast<U>(self) -> Array<U> {
        Array(self.0.cast())
    }

    /// Returns the elements.
    ///
    /// # Errors
    ///
    /// A null pointer, unless `count` is 0; an array without alignment or larger than memory.
    pub(crate) fn read(&self, count: usize, what: &str) -> Result<&[T], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.0.is_null() {
            return Err(argument(format!("the array of {what} is a null pointer")));
        }
        let bytes = count.checked_mul(size_of::<T>());
        if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) || !self.0.is_aligned() {
            return Err(argument(format!("the array of {count} {what} is not one of memory")));
        }
        // SAFETY: the pointer is not null and is aligned, and the caller promises the elements.
        Ok(unsafe { slice::from_raw_parts(self.0, count) })
    }
}

/// Place that the caller has for a result, or for several in a row.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks that the pointer is not null, before anything is done that a failure would undo.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn demand(self) -> Result<Self, Failure> {
        if self.0.is_null() {
            return Err(argument("the place for the result is a null pointer"));
        }
        Ok(self)
    }

    /// Writes the result.
    ///
    /// # Errors
    ///
    /// A null pointer.
    pub(crate) fn set(self, result: T) -> Result<(), Failure> {
        let place = self.demand()?;
        // SAFETY: the pointer is not null, and the caller promises a place for a `T`.
        unsafe { place.0.write_unaligned(result) };
        Ok(())
    }

    /// Writes several results in a row.
    ///
    /// # Errors
    ///
    /// A null pointer with at least one result.
    pub(crate) fn set_all(self, results: Vec<T>) -> Result<(), Failure> {
        if results.is_empty() {
            return Ok(());
        }
        let place = self.demand()?;
        for (index, result) in results.into_iter().enumerate() {
            // SAFETY: the caller promises room for as many results.
            unsafe { place.0.add(index).write_unaligned(result) };
        }
        Ok(())
    }
}
