//! Small numpy arrays, read and made through numpy's C interface.
//!
//! A run of a small model takes less time than an attribute look-up in Python, so small arrays are
//! accessed through the fields of their C structure and made by `PyArray_New`. All other arrays go
//! through the buffer protocol.
//!
//! The structures and constants are those of the headers of numpy 1.x and 2.x. [`Interface::load`]
//! compares them with the Python attributes of an array before they are used.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::ptr;

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods, PyType};
use pyo3::{PyErr, ffi};
use sardonyx::{DataType, Tensor};

use crate::session::take::COPIED_BYTES;

/// Maximum rank of an array that [`Interface::make_array`] creates.
const MOST_DIMS: usize = 8;

/// Flags of a contiguous, aligned array in C order: `NPY_ARRAY_C_CONTIGUOUS` and
/// `NPY_ARRAY_ALIGNED`.
const DENSE: c_int = 0x0001 | 0x0100;

/// Flag of a writable array: `NPY_ARRAY_WRITEABLE`.
const WRITEABLE: c_int = 0x0400;

/// First fields of the C structure `PyArrayObject_fields`.
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

/// First fields of the C structure `PyArray_Descr`, as far as numpy 1.x and 2.x agree.
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

/// Type of `PyArray_GetNDArrayCVersion`.
type Version = unsafe extern "C" fn() -> c_uint;

/// Type of `PyArray_New`. The arguments are class, rank, shape, element type number, strides, data,
/// element size, flags, and an object. The array allocates its memory if data is null.
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

/// Index of `PyArray_GetNDArrayCVersion` in the function table of numpy's C interface.
const VERSION: usize = 0;
/// Index of `PyArray_New` in the function table of numpy's C interface.
const NEW: usize = 93;

/// Functions and classes of numpy's C interface.
pub(crate) struct Interface {
    /// The class `numpy.ndarray`.
    class: Py<PyType>,
    /// The function `PyArray_New`.
    new: New,
}

/// Contiguous elements of a numpy array of at most [`COPIED_BYTES`] bytes.
pub(crate) struct SmallArray<'a> {
    pub(crate) data_type: DataType,
    pub(crate) dims: &'a [usize],
    pub(crate) bytes: &'a [u8],
}

/// Contiguous, aligned elements of a numpy array of any size.
pub(super) struct DenseArray<'a> {
    pub(super) data_type: DataType,
    pub(super) dims: &'a [usize],
    /// Address of the first element; arbitrary if `len` is 0.
    pub(super) start: *mut u8,
    /// Size of all elements in bytes.
    pub(super) len: usize,
    pub(super) is_writable: bool,
}

impl Interface {
    /// Loads the C interface of the imported numpy; `None` if its version is unknown or its
    /// structures differ from those here.
    ///
    /// # Errors
    ///
    /// An exception of an import or attribute look-up.
    pub(crate) fn load(numpy: &Bound<'_, PyModule>) -> Result<Option<Interface>, PyErr> {
        let py = numpy.py();
        let module = py
            .import("numpy._core._multiarray_umath")
            .or_else(|_| py.import("numpy.core._multiarray_umath"))?;
        let table = module.getattr("_ARRAY_API")?.cast_into::<PyCapsule>()?;
        let table = table.pointer_checked(None)?.as_ptr().cast_const().cast::<*const c_void>();
        // SAFETY: the capsule holds the function table of numpy's C interface, which lives as long
        // as the process. Its first function returns the version, in all versions.
        let version =
            unsafe { std::mem::transmute::<*const c_void, Version>(*table.add(VERSION))() };
        if !matches!(version >> 24, 1 | 2) {
            return Ok(None);
        }
        // SAFETY: versions 1 and 2 have `PyArray_New` at this index.
        let new = unsafe { std::mem::transmute::<*const c_void, New>(*table.add(NEW)) };
        let class = numpy.getattr("ndarray")?.cast_into::<PyType>()?;
        let interface = Interface { class: class.unbind(), new };
        Ok(interface.is_as_expected(numpy)?.then_some(interface))
    }

    /// Whether the structure fields of an array agree with its Python attributes.
    fn is_as_expected(&self, numpy: &Bound<'_, PyModule>) -> Result<bool, PyErr> {
        let py = numpy.py();
        let array = numpy.call_method1("zeros", ((2, 3), "float64"))?;
        let dtype = array.getattr("dtype")?;
        if read_basic_size(self.class.bind(py))? < size_of::<ArrayFields>()
            || read_basic_size(&dtype.get_type())? < size_of::<DescrFields>()
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
            || find_type_number(DataType::Double) != Some(descr.type_num)
            || fields.dimensions.is_null()
        {
            return Ok(false);
        }
        // SAFETY: the fields around `dimensions` have the expected values, so it points to the
        // sizes of the 2 dimensions.
        let dims = unsafe { std::slice::from_raw_parts(fields.dimensions, 2) };
        Ok(dims == [2, 3])
    }

    /// Borrows the elements of a small array in place. `None` for other objects, large arrays,
    /// arrays that are not contiguous, and element types without an ONNX type of the same
    /// representation.
    pub(crate) fn read_small<'a>(&self, object: &'a Bound<'_, PyAny>) -> Option<SmallArray<'a>> {
        let DenseArray { data_type, dims, start, len, .. } = self.describe(object)?;
        let bytes: &[u8] = match len {
            0 => &[],
            // SAFETY: the elements are contiguous from `start` on, and stay while the array is
            // held and no Python code runs.
            1..=COPIED_BYTES => unsafe { std::slice::from_raw_parts(start, len) },
            _ => return None,
        };
        Some(SmallArray { data_type, dims, bytes })
    }

    /// Describes the memory of an array. `None` for other objects, arrays that are not contiguous,
    /// and element types without an ONNX type of the same representation.
    pub(super) fn describe<'a>(&self, object: &'a Bound<'_, PyAny>) -> Option<DenseArray<'a>> {
        if !ptr::addr_eq(object.get_type_ptr(), self.class.as_ptr()) {
            return None;
        }
        // SAFETY: the object is an instance of `ndarray` itself, whose structure `load` has
        // verified. The GIL is held while its fields are read.
        let array = unsafe { &*object.as_ptr().cast::<ArrayFields>() };
        if array.flags & DENSE != DENSE {
            return None;
        }
        // SAFETY: an array keeps its dtype alive.
        let descr = unsafe { &*array.descr };
        let data_type = find_type_by_number(descr.type_num)?;
        if !is_native(descr.byteorder as u8) {
            return None;
        }
        let dims: &[usize] = match usize::try_from(array.nd).ok()? {
            0 => &[],
            // SAFETY: `dimensions` points to `nd` sizes, none of which is negative. They stay while
            // the array is held, because only Python code changes them.
            nd => unsafe { std::slice::from_raw_parts(array.dimensions.cast::<usize>(), nd) },
        };
        let elems = dims.iter().try_fold(1usize, |elems, dim| elems.checked_mul(*dim))?;
        let len = elems.checked_mul(data_type.element_bytes()?)?;
        let is_writable = array.flags & WRITEABLE == WRITEABLE;
        Some(DenseArray { data_type, dims, start: array.data, len, is_writable })
    }

    /// Copies a small tensor to a new array; `None` for a large tensor, and for element types that
    /// numpy does not have.
    ///
    /// # Errors
    ///
    /// `MemoryError` if the allocation fails.
    pub(crate) fn to_array<'py>(
        &self,
        py: Python<'py>,
        tensor: &Tensor,
    ) -> Result<Option<Bound<'py, PyAny>>, PyErr> {
        let bytes = tensor.bytes();
        let Some((array, start)) =
            self.make_array(py, tensor.data_type(), tensor.dims(), bytes.len())?
        else {
            return Ok(None);
        };
        // SAFETY: the new array has as many contiguous bytes as the tensor, and no other owner.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        Ok(Some(array))
    }

    /// Creates a numpy array of `len` bytes and returns the array with the address of its memory,
    /// which is uninitialized and not yet visible to Python code. `None` for a large array, or if
    /// numpy does not have the element type.
    ///
    /// # Errors
    ///
    /// `MemoryError` if the allocation fails.
    pub(super) fn make_array<'py>(
        &self,
        py: Python<'py>,
        data_type: DataType,
        sizes: &[usize],
        len: usize,
    ) -> Result<Option<(Bound<'py, PyAny>, *mut u8)>, PyErr> {
        let Some(number) = find_type_number(data_type) else { return Ok(None) };
        if len > COPIED_BYTES || sizes.len() > MOST_DIMS {
            return Ok(None);
        }
        let mut dims = [0isize; MOST_DIMS];
        for (dim, size) in dims.iter_mut().zip(sizes) {
            let Ok(size) = isize::try_from(*size) else { return Ok(None) };
            *dim = size;
        }
        // SAFETY: the GIL is held. The class is `ndarray`, and `dims` has at least `sizes.len()`
        // sizes. As data is null, numpy allocates the memory.
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
        // SAFETY: the object is an array, whose structure begins with these fields.
        let start = unsafe { (*array.as_ptr().cast::<ArrayFields>()).data };
        Ok(Some((array, start)))
    }
}

/// Whether a `byteorder` character means the byte order of this machine, or none.
fn is_native(letter: u8) -> bool {
    matches!(letter, b'=' | b'|')
        || letter == if cfg!(target_endian = "little") { b'<' } else { b'>' }
}

/// Element types with their numpy type numbers. The last two depend on the width of C's `long`.
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

/// Returns the size in bytes of the C structure of a class's instances.
fn read_basic_size(class: &Bound<'_, PyType>) -> PyResult<usize> {
    class.getattr("__basicsize__")?.extract()
}

/// Returns the numpy type number of an element type; `None` if numpy does not have the type.
fn find_type_number(data_type: DataType) -> Option<c_int> {
    NUMBERS.iter().find(|(known, _)| *known == data_type).map(|(_, number)| *number)
}

/// Returns the element type of a numpy type number; `None` for any other number.
fn find_type_by_number(number: c_int) -> Option<DataType> {
    NUMBERS.iter().find(|(_, known)| *known == number).map(|(data_type, _)| *data_type)
}
