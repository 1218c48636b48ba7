//! Memory that crosses the border between Python and Rust: bytes that an object of Python lends,
//! and tensors of ours that Python reads and writes in place.
//!
//! This file and those within are the only ones of the crate with unsafe code. Both directions go
//! through the buffer protocol, whose contract is what each block relies on: whoever lends memory
//! keeps it where it is, and as long as it is, until the loan is given back. What other libraries
//! hand over by DLPack is read in [`dlpack`]. Small arrays of numpy take a shorter way, in
//! [`numpy`](self::numpy) and [`in_place`].

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

use super::errors::wrong_argument;
use super::take::{Taker, What, unfit};
use super::tensor;

/// Dense bytes that an object of Python lends.
///
/// Nobody can stop other threads of Python from writing them while a run reads them; its results
/// are then of no particular value. Small values are copied for that reason, and because it is
/// faster.
pub(crate) struct Lent(PyUntypedBuffer);

impl Lent {
    /// The bytes of a buffer; the buffer itself if its elements do not lie densely in the order of
    /// C.
    pub(crate) fn new(buffer: PyUntypedBuffer) -> Result<Lent, PyUntypedBuffer> {
        if buffer.is_c_contiguous() { Ok(Lent(buffer)) } else { Err(buffer) }
    }

    /// The dimensions of the array that lends them.
    pub(crate) fn dims(&self) -> &[usize] {
        self.0.shape()
    }
}

impl AsRef<[u8]> for Lent {
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

/// A tensor, as runs return them where numpy is not installed or has no type for the elements.
///
/// `Tensor(values)` makes one of anything that a run takes: a copy, with which `torch.from_dlpack`
/// takes elements over that numpy has no type for, such as `bfloat16`. It lends its memory through
/// the buffer protocol, writable: `memoryview(tensor)`. `dtype` is the ONNX name of the element
/// type, such as `float` or `bfloat16`.
#[pyclass(frozen, name = "Tensor", module = "sardonyx")]
pub(crate) struct PyTensor {
    /// Nothing else refers to its memory.
    tensor: Tensor,
    start: Address,
}

/// Where the elements of a tensor begin.
struct Address(*mut u8);

// SAFETY: it is the address of memory that the tensor beside it owns, and is only handed to Python,
// whose objects may be used by any thread.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// What a view points to beside the elements.
struct Layout {
    format: CString,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
}

impl PyTensor {
    /// Takes over a tensor.
    ///
    /// # Errors
    ///
    /// Memory for a copy is refused, where others refer to its values.
    pub(crate) fn new(py: Python<'_>, mut tensor: Tensor) -> Result<PyTensor, PyErr> {
        let start = match tensor.data_type() {
            DataType::String => ptr::null_mut(),
            _ => match tensor.bytes_mut() {
                Ok(bytes) => bytes.as_mut_ptr(),
                Err(error) => return Err(unfit(py, &What::Other("an output"), &error)),
            },
        };
        Ok(PyTensor { tensor, start: Address(start) })
    }

    /// The tensor.
    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// A copy of the tensor, as it is given to a run.
    ///
    /// # Errors
    ///
    /// Memory for it is refused.
    pub(crate) fn copied(&self) -> Result<Tensor, sardonyx::value::TensorError> {
        self.tensor.view().to_tensor()
    }

    /// The format of the elements for a view with these flags.
    fn format(&self, flags: c_int) -> Result<&'static str, String> {
        let data_type = self.tensor.data_type();
        if data_type == DataType::String {
            return Err("a tensor of strings has no buffer; use tolist()".to_string());
        }
        if wants(flags, ffi::PyBUF_F_CONTIGUOUS) && self.tensor.rank() > 1 {
            return Err("the elements are in C order, not Fortran order".to_string());
        }
        match format_of(data_type) {
            Some(format) => Ok(format),
            None if wants(flags, ffi::PyBUF_FORMAT) => {
                Err(format!("elements of type {data_type} have no format in the buffer protocol"))
            }
            None => Ok("B"),
        }
    }

    /// Shape and strides for a view, in bytes.
    fn layout(&self, format: &str, itemsize: ffi::Py_ssize_t) -> Layout {
        let dims = self.tensor.dims();
        let mut layout = Layout {
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

/// Whether flags have all bits of one.
fn wants(flags: c_int, flag: c_int) -> bool {
    flags & flag == flag
}

#[pymethods]
impl PyTensor {
    /// A copy of an array, a list or a number, as elements of the type with the ONNX name `dtype`;
    /// by default of their own type, and float for floats in lists.
    #[new]
    #[pyo3(signature = (values, dtype=None))]
    fn of(values: &Bound<'_, PyAny>, dtype: Option<&str>) -> PyResult<PyTensor> {
        let py = values.py();
        let wanted = |name: &str| {
            let found = DataType::ALL.iter().find(|ty| ty.name() == name).copied();
            found.ok_or_else(|| {
                let what =
                    format!("dtype is '{name}', which is not the ONNX name of an element type");
                wrong_argument(py, what, Some("use a name such as 'float' or 'bfloat16'"))
            })
        };
        let wanted = dtype.map(wanted).transpose()?;
        let what = What::Other("the tensor");
        let tensor = Taker::copying().tensor(values, wanted, &what)?;
        let tensor = match wanted {
            Some(wanted) if wanted != tensor.data_type() => {
                let made = cast(&tensor, wanted, CastOptions::default());
                made.map_err(|error| unfit(py, &what, &error))?
            }
            _ => tensor,
        };
        PyTensor::new(py, tensor)
    }

    /// The dimensions.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.dims())
    }

    /// The ONNX name of the element type, such as `float`.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.tensor.data_type().name()
    }

    /// The bytes of the elements in the order of this machine, packed if an element takes less than
    /// one; none for strings.
    fn tobytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.tensor.bytes())
    }

    /// The elements in lists, nested as the tensor has dimensions; a single one for a tensor
    /// without dimensions.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        tensor::to_lists(py, &self.tensor)
    }

    /// Hands the memory over to another library: `torch.from_dlpack(tensor)`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<(i64, i64)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Memory of the CPU has no streams, and every library takes the first version.
        let _ = (stream, max_version);
        if dl_device.is_some_and(|device| device != (1, 0)) {
            return Err(PyBufferError::new_err("the tensor is on the CPU"));
        }
        let py = slf.py();
        let owner = if copy == Some(true) {
            let tensor = slf.get().copied();
            let tensor = tensor.map_err(|error| unfit(py, &What::Other("a tensor"), &error))?;
            &Bound::new(py, PyTensor::new(py, tensor)?)?
        } else {
            slf
        };
        dlpack::capsule(owner, owner.get().start.0)
    }

    /// Where it lies: on the CPU.
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
            return Err(PyBufferError::new_err("the view is null"));
        }
        // SAFETY: the interpreter gives a view that may be written.
        let view = unsafe { &mut *view };
        // Consumers look at `obj` even when an error is raised.
        view.obj = ptr::null_mut();
        let this = slf.get();
        let format = this.format(flags).map_err(PyBufferError::new_err)?;
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
        if wants(flags, ffi::PyBUF_FORMAT) || wants(flags, ffi::PyBUF_ND) {
            let mut layout = Box::new(this.layout(format, itemsize));
            if wants(flags, ffi::PyBUF_FORMAT) {
                view.format = layout.format.as_ptr().cast_mut();
            }
            if wants(flags, ffi::PyBUF_ND) {
                view.shape = layout.shape.as_mut_ptr();
            }
            if wants(flags, ffi::PyBUF_STRIDES) {
                view.strides = layout.strides.as_mut_ptr();
            }
            view.internal = Box::into_raw(layout).cast();
        }
        view.obj = slf.into_any().into_ptr();
        Ok(())
    }

    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: the interpreter releases a view once, and hands over what was filled in.
        let layout = unsafe { (*view).internal.cast::<Layout>() };
        if !layout.is_null() {
            // SAFETY: it is the box that was put there.
            drop(unsafe { Box::from_raw(layout) });
        }
    }
}

/// How the buffer protocol calls the elements of a type.
fn format_of(data_type: DataType) -> Option<&'static str> {
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
