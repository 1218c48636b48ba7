//! Memory that crosses the border between Python and Rust: buffers that Python objects lend, and
//! tensors whose memory Python reads and writes.
//!
//! Unsafe code of the crate is confined to this module. Most of it relies on the contract of the
//! buffer protocol: an exporter neither moves nor resizes its memory until the buffer is released.
//! [`dlpack`] reads and exports DLPack capsules. [`numpy`](self::numpy) and [`in_place`] access
//! small numpy arrays directly, which is faster than the buffer protocol.

#![allow(unsafe_code)]

pub(crate) mod dlpack;
pub(crate) mod in_place;
pub(crate) mod numpy;

use std::ffi::{CString, c_int};
use std::ptr;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use pyo3::{PyErr, ffi};
use sardonyx::tool::{CastOptions, cast};
use sardonyx::{DataType, Tensor};

use super::errors::argument_error;
use super::take::{InputConverter, ValueName, tensor_error};
use super::tensor;

/// Contiguous bytes in C order that a Python object lends through the buffer protocol.
///
/// Other Python threads may write to them while a run reads them; the results of such a run are
/// unspecified. Small values are copied instead, which is also faster.
pub(crate) struct BorrowedBuffer(PyUntypedBuffer);

impl BorrowedBuffer {
    /// Wraps a buffer if its elements are contiguous in C order, else returns it unchanged.
    pub(crate) fn new(buffer: PyUntypedBuffer) -> Result<BorrowedBuffer, PyUntypedBuffer> {
        if buffer.is_c_contiguous() { Ok(BorrowedBuffer(buffer)) } else { Err(buffer) }
    }

    /// Returns the dimensions of the exporting array.
    pub(crate) fn dims(&self) -> &[usize] {
        self.0.shape()
    }
}

impl AsRef<[u8]> for BorrowedBuffer {
    fn as_ref(&self) -> &[u8] {
        let (start, len) = (self.0.buf_ptr(), self.0.len_bytes());
        if len == 0 || start.is_null() {
            return &[];
        }
        // SAFETY: the buffer is contiguous, so `len` bytes from `start` on are its elements, and
        // its exporter keeps them there until the buffer is released, which happens when `self` is
        // dropped.
        unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) }
    }
}

/// Tensor that runs return where numpy is not installed or has no dtype for its elements.
///
/// `Tensor(values)` copies anything that a run accepts. `torch.from_dlpack(tensor)` then shares
/// element types that numpy does not have, such as `bfloat16`. `memoryview(tensor)` gives writable
/// access to the memory. `dtype` is the ONNX name of the element type, such as `float` or
/// `bfloat16`; the default is the type of `values`.
#[pyclass(frozen, name = "Tensor", module = "sardonyx")]
pub(crate) struct PyTensor {
    /// Sole owner of its memory, so that Python may write to it.
    tensor: Tensor,
    /// Address of the first element of `tensor`; null for strings.
    start: Address,
}

/// Address of the first element of a tensor; null for strings.
struct Address(*mut u8);

// SAFETY: the address belongs to memory that the tensor in the same object owns, and is only passed
// to Python, whose objects may be used by any thread.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Format, shape and strides that a buffer view points to. Freed with the view.
struct ViewLayout {
    format: CString,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

impl PyTensor {
    /// Wraps a tensor for Python. Copies the tensor if its memory is shared.
    ///
    /// # Errors
    ///
    /// The allocation of the copy fails.
    pub(crate) fn new(py: Python<'_>, mut tensor: Tensor) -> Result<PyTensor, PyErr> {
        let start = match tensor.data_type() {
            DataType::String => ptr::null_mut(),
            _ => match tensor.bytes_mut() {
                Ok(bytes) => bytes.as_mut_ptr(),
                Err(error) => return Err(tensor_error(py, &ValueName::Other("an output"), &error)),
            },
        };
        Ok(PyTensor { tensor, start: Address(start) })
    }

    /// Returns the wrapped tensor.
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Copies the tensor, so that a run does not alias memory that Python can write to.
    ///
    /// # Errors
    ///
    /// The allocation fails.
    pub(crate) fn copy(&self) -> Result<Tensor, sardonyx::value::TensorError> {
        self.tensor.view().to_tensor()
    }

    /// Returns the element format, in the notation of the buffer protocol, for a view requested
    /// with `flags`.
    ///
    /// # Errors
    ///
    /// The request cannot be met: strings, Fortran order, or an element type without a format.
    fn find_buffer_format(&self, flags: c_int) -> Result<&'static str, String> {
        let data_type = self.tensor.data_type();
        if data_type == DataType::String {
            return Err("a tensor of strings has no buffer; use tolist()".to_string());
        }
        if has_flags(flags, ffi::PyBUF_F_CONTIGUOUS) && self.tensor.rank() > 1 {
            return Err("a Tensor exports no buffer in Fortran order: its elements are in C order"
                .to_string());
        }
        match find_format_code(data_type) {
            Some(format) => Ok(format),
            None if has_flags(flags, ffi::PyBUF_FORMAT) => {
                Err(format!("elements of type {data_type} have no format in the buffer protocol"))
            }
            None => Ok("B"),
        }
    }

    /// Computes shape and strides (in bytes) for a buffer view.
    fn make_layout(&self, format: &str, itemsize: ffi::Py_ssize_t) -> ViewLayout {
        let dims = self.tensor.dims();
        let mut layout = ViewLayout {
            format: CString::new(format).unwrap_or_default(),
            shape: dims.iter().map(|dim| *dim as ffi::Py_ssize_t).collect(),
            strides: vec![itemsize; dims.len()],
        };
        for axis in (1..dims.len()).rev() {
            layout.strides[axis - 1] =
                layout.strides[axis].saturating_mul(layout.shape[axis].max(1));
        }
        layout
    }
}

/// Whether `flags` includes all bits of `flag`.
fn has_flags(flags: c_int, flag: c_int) -> bool {
    flags & flag == flag
}

#[pymethods]
impl PyTensor {
    /// Copies an array, a list or a number, converted to the element type `dtype`. By default the
    /// element type is that of `values`, and `float` for lists of floats.
    #[new]
    #[pyo3(signature = (values, dtype=None))]
    fn from_values(values: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<PyTensor> {
        let py = values.py();
        let wanted = match dtype {
            Some(name) => {
                let found = DataType::ALL.iter().find(|ty| ty.name() == name).copied();
                Some(found.ok_or_else(|| {
                    let what =
                        format!("dtype is '{name}', which is not the ONNX name of an element type");
                    argument_error(py, what, Some("use a name such as 'float' or 'bfloat16'"))
                })?)
            }
            None => None,
        };
        let what = ValueName::Other("the tensor");
        let tensor = InputConverter::with_copies().convert_tensor(values, wanted, &what)?;
        let tensor = match wanted {
            Some(wanted) if wanted != tensor.data_type() => {
                let made = cast(&tensor, wanted, CastOptions::default());
                made.map_err(|error| tensor_error(py, &what, &error))?
            }
            _ => tensor,
        };
        PyTensor::new(py, tensor)
    }

    /// Returns the shape as a tuple of ints.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.dims())
    }

    /// Returns the ONNX name of the element type, such as `float`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.data_type().name()
    }

    /// Returns the bytes of the elements in the byte order of this machine. Elements narrower than
    /// a byte are packed. Empty for strings.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.tensor.bytes())
    }

    /// Returns the elements as nested lists, or a single element for a tensor without dimensions.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        tensor::to_lists(py, &self.tensor)
    }

    /// Exports the memory as a DLPack capsule, for `torch.from_dlpack(tensor)`. Raises
    /// `BufferError` for element types that DLPack does not have.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<(i64, i64)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // CPU memory has no streams, and every consumer accepts version 0 of the protocol.
        let _ = (stream, max_version);
        if dl_device.is_some_and(|device| device != (1, 0)) {
            return Err(PyBufferError::new_err(
                "the tensor is on the CPU and cannot be exported to another device",
            ));
        }
        let py = slf.py();
        let owner = if copy == Some(true) {
            let tensor = slf.get().copy();
            let tensor =
                tensor.map_err(|error| tensor_error(py, &ValueName::Other("a tensor"), &error))?;
            &Bound::new(py, PyTensor::new(py, tensor)?)?
        } else {
            slf
        };
        dlpack::export_tensor(owner, owner.get().start.0)
    }

    /// Returns the DLPack device of the memory, `(1, 0)`: the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    fn __repr__(&self) -> String {
        format!("Tensor({}{:?})", self.tensor.data_type(), self.tensor.dims())
    }

    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("the pointer to the buffer view is null"));
        }
        // SAFETY: the interpreter passes a view that may be written.
        let view = unsafe { &mut *view };
        // Consumers read `obj` even if an error is raised.
        view.obj = ptr::null_mut();
        let this = slf.get();
        let format = this.find_buffer_format(flags).map_err(PyBufferError::new_err)?;
        let itemsize = this.tensor.data_type().element_bytes().unwrap_or(1) as ffi::Py_ssize_t;
        view.buf = this.start.0.cast();
        view.len = this.tensor.bytes().len() as ffi::Py_ssize_t;
        view.itemsize = itemsize;
        view.readonly = 0;
        view.ndim = this.tensor.rank() as c_int;
        view.format = ptr::null_mut();
        view.shape = ptr::null_mut();
        view.strides = ptr::null_mut();
        view.suboffsets = ptr::null_mut();
        view.internal = ptr::null_mut();
        if has_flags(flags, ffi::PyBUF_FORMAT) || has_flags(flags, ffi::PyBUF_ND) {
            let mut layout = Box::new(this.make_layout(format, itemsize));
            if has_flags(flags, ffi::PyBUF_FORMAT) {
                view.format = layout.format.as_ptr().cast_mut();
            }
            if has_flags(flags, ffi::PyBUF_ND) {
                view.shape = layout.shape.as_mut_ptr();
            }
            if has_flags(flags, ffi::PyBUF_STRIDES) {
                view.strides = layout.strides.as_mut_ptr();
            }
            view.internal = Box::into_raw(layout).cast();
        }
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter releases each view once, with the fields as `__getbuffer__` set
        // them.
        let layout = unsafe { (*view).internal.cast::<ViewLayout>() };
        if !layout.is_null() {
            // SAFETY: `internal` is the pointer of the box that `__getbuffer__` leaked.
            drop(unsafe { Box::from_raw(layout) });
        }
    }
}

/// Returns the buffer protocol's format character of an element type; `None` if it has none.
fn find_format_code(data_type: DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Float => "f",
        DataType::Double => "d",
        DataType::Float16 => "e",
        DataType::Bool => "?",
        DataType::Int8 => "b",
        DataType::Uint8 => "B",
        DataType::Int16 => "h",
        DataType::Uint16 => "H",
        DataType::Int32 => "i",
        DataType::Uint32 => "I",
        DataType::Int64 => "q",
        DataType::Uint64 => "Q",
        DataType::Complex64 => "Zf",
        DataType::Complex128 => "Zd",
        _ => return None,
    })
}
