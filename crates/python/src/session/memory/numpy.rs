//! Small arrays of numpy, read and made through numpy's C interface.
//!
//! A run of a small model takes less time than Python needs to look up an attribute, so small
//! arrays are read and written by the fields of their structure, and made by the function that
//! numpy offers to extensions. All other arrays take the buffer protocol.
//!
//! Structures and numbers are those of numpy's headers, which 1.x and 2.x have in common. Before
//! they are relied on, an array of known content is compared with what Python says about it.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::ptr;

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyType};
use pyo3::{PyErr, ffi};
use sardonyx::{DataType, Tensor};

use crate::session::take::COPIED_BYTES;

/// Arrays of more dimensions are not made here.
const MOST_DIMS: usize = 8;

/// The flags of an array whose elements lie densely in the order of C, at addresses that suit them:
/// `NPY_ARRAY_C_CONTIGUOUS` and `NPY_ARRAY_ALIGNED`.
const DENSE: c_int = 0x0001 | 0x0100;

/// The flag of an array that may be written: `NPY_ARRAY_WRITEABLE`.
const WRITEABLE: c_int = 0x0400;

/// The beginning of `PyArrayObject_fields`.
#[repr(C)]
struct ArrayFields {
    head: ffi::PyObject,
    data: *mut u8,
    nd: c_int,
    dimensions: *const isize,
    strides: *const isize,
    base: *mut ffi::PyObject,
    descr: *const DescrFields,
    flags: c_int,
}

/// The beginning of `PyArray_Descr`, as far as all versions have it in common.
#[repr(C)]
struct DescrFields {
    head: ffi::PyObject,
    typeobj: *mut ffi::PyTypeObject,
    kind: c_char,
    letter: c_char,
    byteorder: c_char,
    flags: c_char,
    type_num: c_int,
}

/// `PyArray_GetNDArrayCVersion`.
type Version = unsafe extern "C" fn() -> c_uint;

/// `PyArray_New`: class, number of dimensions, dimensions, number of the element type, strides,
/// elements, bytes of an element, flags, and an object. The array has memory of its own if no
/// elements are given.
type New = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    c_int,
    *const isize,
    c_int,
    *const isize,
    *mut c_void,
    c_int,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The places of these two in the table of functions.
const VERSION: usize = 0;
const NEW: usize = 93;

/// What is used of numpy's C interface.
pub(crate) struct Interface {
    /// `numpy.ndarray`.
    class: Py<PyType>,
    new: New,
}

/// A small array whose elements lie densely.
pub(crate) struct SmallArray<'a> {
    pub(crate) data_type: DataType,
    pub(crate) dims: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

/// An array of any size whose elements lie densely, at addresses of their type.
pub(super) struct DenseArray<'a> {
    pub(super) data_type: DataType,
    pub(super) dims: &'a [usize],
    /// Address of the first element; of no meaning if there are 0 bytes.
    pub(super) start: *mut u8,
    /// Bytes of all elements.
    pub(super) len: usize,
    pub(super) is_writable: bool,
}

impl Interface {
    /// The interface of the numpy that is loaded; `None` if it is one that this file does not know.
    ///
    /// # Errors
    ///
    /// What Python raises while it is asked.
    pub(crate) fn load(numpy: &Bound<'_, PyModule>) -> Result<Option<Interface>, PyErr> {
        let py = numpy.py();
        let module = py
            .import("numpy._core._multiarray_umath")
            .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let table = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        let table = table.pointer_checked(None)?.as_ptr().cast_const().cast::<*const c_void>();
        // SAFETY: the capsule holds the table of numpy's C interface, which lives as long as the
        // process, and its first function, in all versions, says the version.
        let version =
            unsafe { std::mem::transmute::<*const c_void, Version>(*table.add(VERSION))() };
        if !matches!(version >> 24, 1 | 2) {
            return Ok(None);
        }
        // SAFETY: versions 1 and 2 have `PyArray_New` in this place of the table.
        let new = unsafe { std::mem::transmute::<*const c_void, New>(*table.add(NEW)) };
        let class = numpy.getattr("ndarray")?.cast_into::<PyType>()?;
        let interface = Interface { class: class.unbind(), new };
        Ok(interface.is_as_expected(numpy)?.then_some(interface))
    }

    /// Whether the fields of an array say what Python says about it.
    fn is_as_expected(&self, numpy: &Bound<'_, PyModule>) -> Result<bool, PyErr> {
        let py = numpy.py();
        let array = numpy.call_method1("zeros", ((2, 3), "float64"))?;
        let dtype = array.getattr("dtype")?;
        let size = |class: &Bound<'_, PyType>| class.getattr("__basicsize__")?.extract::<usize>();
        if size(self.class.bind(py))? < size_of::<ArrayFields>()
            || size(&dtype.get_type())? < size_of::<DescrFields>()
            || !array.get_type().is(&self.class)
        {
            return Ok(false);
        }
        let address = array.getattr("__array_interface__")?.get_item("data")?.get_item(0)?;
        let flags: c_int = array.getattr("flags")?.getattr("num")?.extract()?;
        // SAFETY: objects of these classes are at least as large as the structures.
        let (fields, descr) = unsafe {
            (&*array.as_ptr().cast::<ArrayFields>(), &*dtype.as_ptr().cast::<DescrFields>())
        };
        if fields.data.addr() != address.extract::<usize>()?
            || fields.nd != 2
            || !ptr::addr_eq(fields.descr, dtype.as_ptr())
            || fields.flags != flags
            || descr.type_num != dtype.getattr("num")?.extract::<c_int>()?
            || number_of(DataType::Double) != Some(descr.type_num)
            || fields.dimensions.is_null()
        {
            return Ok(false);
        }
        // SAFETY: all fields around it are what they should be, so this one points to the sizes of
        // the two dimensions.
        let dims = unsafe { std::slice::from_raw_parts(fields.dimensions, 2) };
        Ok(dims == [2, 3])
    }

    /// The elements of an array, where they lie; `None` for other objects, large arrays, and those
    /// whose elements lie otherwise or have no ONNX type of the same form.
    pub(crate) fn small<'a>(&self, object: &'a Bound<'_, PyAny>) -> Option<SmallArray<'a>> {
        let DenseArray { data_type, dims, start, len, .. } = self.dense(object)?;
        let bytes: &[u8] = match len {
            0 => &[],
            // SAFETY: the elements lie densely from `start` on, and stay while the array is held.
            1..=COPIED_BYTES => unsafe { std::slice::from_raw_parts(start, len) },
            _ => return None,
        };
        Some(SmallArray { data_type, dims, bytes })
    }

    /// Describes an array; `None` for other objects, and for arrays whose elements lie otherwise or
    /// have no ONNX type of the same form.
    pub(super) fn dense<'a>(&self, object: &'a Bound<'_, PyAny>) -> Option<DenseArray<'a>> {
        if !ptr::addr_eq(object.get_type_ptr(), self.class.as_ptr()) {
            return None;
        }
        // SAFETY: it is an object of the class `ndarray` itself, whose fields have been compared
        // with what Python says. They are read while the interpreter is held.
        let array = unsafe { &*object.as_ptr().cast::<ArrayFields>() };
        if array.flags & DENSE != DENSE {
            return None;
        }
        // SAFETY: an array refers to its element type as long as it lives.
        let descr = unsafe { &*array.descr };
        let data_type = type_of(descr.type_num)?;
        if !is_native(descr.byteorder as u8) {
            return None;
        }
        let dims: &[usize] = match usize::try_from(array.nd).ok()? {
            0 => &[],
            // SAFETY: an array of `nd` dimensions points to as many sizes, none of which is
            // negative. They stay while it is held, as only code of Python changes them.
            nd => unsafe { std::slice::from_raw_parts(array.dimensions.cast::<usize>(), nd) },
        };
        let elems = dims.iter().try_fold(1usize, |elems, dim| elems.checked_mul(*dim))?;
        let len = elems.checked_mul(data_type.element_bytes()?)?;
        let is_writable = array.flags & WRITEABLE == WRITEABLE;
        Some(DenseArray { data_type, dims, start: array.data, len, is_writable })
    }

    /// A new array with the values of a small tensor; `None` for large ones, and for those of types
    /// that numpy does not have.
    ///
    /// # Errors
    ///
    /// Memory for it is refused.
    pub(crate) fn array<'py>(
        &self,
        py: Python<'py>,
        tensor: &Tensor,
    ) -> Result<Option<Bound<'py, PyAny>>, PyErr> {
        let bytes = tensor.bytes();
        let Some((array, start)) = self.make(py, tensor.data_type(), tensor.dims(), bytes.len())?
        else {
            return Ok(None);
        };
        // SAFETY: a new array of these sizes has as many bytes as the tensor, lying densely, and
        // nothing else refers to it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        Ok(Some(array))
    }

    /// Makes an array of `len` bytes that no code of Python has seen, and returns it with the
    /// address of its memory, whose content is undefined. `None` if it is large, or numpy has no
    /// such type.
    ///
    /// # Errors
    ///
    /// Memory for it is refused.
    pub(super) fn make<'py>(
        &self,
        py: Python<'py>,
        data_type: DataType,
        sizes: &[usize],
        len: usize,
    ) -> Result<Option<(Bound<'py, PyAny>, *mut u8)>, PyErr> {
        let Some(number) = number_of(data_type) else { return Ok(None) };
        if len > COPIED_BYTES || sizes.len() > MOST_DIMS {
            return Ok(None);
        }
        let mut dims = [0isize; MOST_DIMS];
        for (dim, size) in dims.iter_mut().zip(sizes) {
            let Ok(size) = isize::try_from(*size) else { return Ok(None) };
            *dim = size;
        }
        // SAFETY: the interpreter is held. The class is `ndarray`, and there are as many sizes as
        // dimensions, at most eight. Without elements, numpy takes memory of its own.
        let array = unsafe {
            let made = (self.new)(
                self.class.as_ptr().cast(),
                sizes.len() as c_int,
                dims.as_ptr(),
                number,
                ptr::null(),
                ptr::null_mut(),
                0,
                0,
                ptr::null_mut(),
            );
            Bound::from_owned_ptr_or_err(py, made)?
        };
        // SAFETY: it is an array, which begins with these fields.
        let start = unsafe { (*array.as_ptr().cast::<ArrayFields>()).data };
        Ok(Some((array, start)))
    }
}

/// Whether a letter says the byte order of this machine, or that there is none.
fn is_native(letter: u8) -> bool {
    matches!(letter, b'=' | b'|')
        || letter == if cfg!(target_endian = "little") { b'<' } else { b'>' }
}

/// The element types that numpy has, by its numbers; those that depend on the system come last.
const NUMBERS: [(DataType, c_int); 14] = [
    (DataType::Float, 11),
    (DataType::Double, 12),
    (DataType::Bool, 0),
    (DataType::Int8, 1),
    (DataType::Uint8, 2),
    (DataType::Int16, 3),
    (DataType::Uint16, 4),
    (DataType::Int32, 5),
    (DataType::Uint32, 6),
    (DataType::Complex64, 14),
    (DataType::Complex128, 15),
    (DataType::Float16, 23),
    (DataType::Int64, if size_of::<c_long>() == 8 { 7 } else { 9 }),
    (DataType::Uint64, if size_of::<c_long>() == 8 { 8 } else { 10 }),
];

fn number_of(data_type: DataType) -> Option<c_int> {
    NUMBERS.iter().find(|(known, _)| *known == data_type).map(|(_, number)| *number)
}

fn type_of(number: c_int) -> Option<DataType> {
    NUMBERS.iter().find(|(_, known)| *known == number).map(|(data_type, _)| *data_type)
}
