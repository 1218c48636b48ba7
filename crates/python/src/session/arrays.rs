//! Conversion between tensors and arrays of numpy and ml_dtypes. Both packages are optional and are
//! imported only when the first array is returned or read.

use pyo3::PyErr;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple, PyType};
use sardonyx::{DataType, Tensor};

use super::elements;
use super::memory::PyTensor;
use super::memory::numpy::{Interface, SmallArray};
use super::take::{ValueName, read_dims, tensor_error};
use super::tensor;

/// Imported objects of numpy.
pub(crate) struct Numpy {
    /// The module `numpy`.
    module: Py<PyModule>,
    /// The class `numpy.ndarray`.
    array: Py<PyType>,
    /// C interface for small arrays; `None` if its version is unknown.
    interface: Option<Interface>,
    /// Cached dtypes, indexed by element type number.
    types: [PyOnceLock<Option<Py<PyAny>>>; 29],
}

/// Imported numpy: empty before the first use, `None` if numpy is not installed.
static NUMPY: PyOnceLock<Option<Numpy>> = PyOnceLock::new();

/// Imports numpy on the first call and returns its objects; `None` if numpy is not installed.
pub(crate) fn import_numpy(py: Python<'_>) -> Option<&'static Numpy> {
    NUMPY.get_or_init(py, || Numpy::import(py).ok()).as_ref()
}

/// Borrows the elements of a small numpy array in place. `None` for other objects, and before
/// [`import_numpy`] has imported numpy, because this check must not import it.
pub(crate) fn read_small<'a>(object: &'a Bound<'_, PyAny>) -> Option<SmallArray<'a>> {
    find_interface(object.py())?.read_small(object)
}

/// Returns numpy's C interface. `None` if its version is unknown, and before [`import_numpy`] has
/// imported numpy, because this check must not import it.
pub(crate) fn find_interface(py: Python<'_>) -> Option<&'static Interface> {
    NUMPY.get(py)?.as_ref()?.interface.as_ref()
}

impl Numpy {
    /// Imports numpy and loads its C interface.
    fn import(py: Python<'_>) -> Result<Numpy, PyErr> {
        let module = py.import("numpy")?;
        let array = module.getattr("ndarray")?.cast_into::<PyType>()?.unbind();
        let interface = Interface::load(&module).ok().flatten();
        let types = [const { PyOnceLock::new() }; 29];
        Ok(Numpy { module: module.unbind(), array, interface, types })
    }

    /// Returns the numpy dtype of an element type; `None` if the dtype needs ml_dtypes, which is
    /// not installed.
    fn load_dtype<'py>(&self, py: Python<'py>, data_type: DataType) -> Option<&Bound<'py, PyAny>> {
        let place = self.types.get(usize::try_from(data_type.number()).ok()?)?;
        let found = place.get_or_init(py, || self.find_dtype(py, data_type).ok());
        found.as_ref().map(|dtype| dtype.bind(py))
    }

    /// Looks up the dtype of an element type in numpy or ml_dtypes.
    fn find_dtype(&self, py: Python<'_>, data_type: DataType) -> Result<Py<PyAny>, PyErr> {
        let name = elements::find_dtype_name(data_type);
        let dtype = self.module.bind(py).getattr("dtype")?;
        let of = if elements::is_of_ml_dtypes(data_type) {
            py.import("ml_dtypes")?.getattr(name)?
        } else {
            name.into_pyobject(py)?.into_any()
        };
        Ok(dtype.call1((of,))?.unbind())
    }

    /// Converts a tensor to a numpy array: a copy of a small tensor, else a view of its memory.
    /// Returns a `Tensor` if numpy has no dtype for the element type.
    pub(crate) fn to_array<'py>(
        &self,
        py: Python<'py>,
        tensor: Tensor,
    ) -> Result<Bound<'py, PyAny>, PyErr> {
        if let Some(interface) = &self.interface
            && let Some(array) = interface.to_array(py, &tensor)?
        {
            return Ok(array);
        }
        let data_type = tensor.data_type();
        let Some(dtype) = self.load_dtype(py, data_type) else {
            return Ok(Bound::new(py, PyTensor::new(py, tensor)?)?.into_any());
        };
        let shape = PyTuple::new(py, tensor.dims())?;
        if data_type == DataType::String {
            let strings = PyList::new(py, tensor::to_objects(py, &tensor)?)?;
            let array = self.module.bind(py).getattr("empty")?.call1((&shape, dtype))?;
            array.setattr("flat", strings)?;
            return Ok(array);
        }
        let tensor = if data_type.is_packed() { unpack_elements(py, &tensor)? } else { tensor };
        let memory = Bound::new(py, PyTensor::new(py, tensor)?)?;
        self.array.bind(py).call1((shape, dtype, memory))
    }
}

/// Unpacks elements narrower than a byte to one byte each, as ml_dtypes stores them. Signed
/// elements are sign-extended.
fn unpack_elements(py: Python<'_>, tensor: &Tensor) -> Result<Tensor, PyErr> {
    let failed = |error| tensor_error(py, &ValueName::Other("an output"), &error);
    let mut codes = tensor.to_codes().map_err(failed)?;
    if matches!(tensor.data_type(), DataType::Int4 | DataType::Int2) {
        let unused = 8 - tensor.data_type().bits().unwrap_or(8);
        for code in &mut codes {
            *code = ((*code << unused).cast_signed() >> unused).cast_unsigned();
        }
    }
    Tensor::from_vec(tensor.dims(), codes).map_err(failed)
}

/// Copies an array of an ml_dtypes type, or a numpy array that does not export a buffer, to a
/// tensor; `None` for other objects.
pub(crate) fn tensor_from_ml_dtypes(
    object: &Bound<'_, PyAny>,
    what: &ValueName<'_>,
) -> Result<Option<Tensor>, PyErr> {
    let py = object.py();
    let Some(dtype) = object.getattr_opt("dtype")? else { return Ok(None) };
    let Some(name) = dtype.getattr_opt("name")? else { return Ok(None) };
    let Some(data_type) = name.extract::<String>().ok().and_then(|name| elements::find_type(&name))
    else {
        return Ok(None);
    };
    let Some(numpy) = import_numpy(py) else { return Ok(None) };
    let module = numpy.module.bind(py);
    let is_array = object.is_instance(numpy.array.bind(py))?
        || object.is_instance(&module.getattr("generic")?)?;
    if !is_array {
        return Ok(None);
    }
    let dims = read_dims(&object.getattr("shape")?, what)?;
    let dense = module.call_method1("ascontiguousarray", (object,))?;
    let codes = dense.call_method1("reshape", (-1,))?.call_method1("view", ("uint8",))?;
    let bytes: PyBackedBytes = codes.call_method0("tobytes")?.extract()?;
    let made = if data_type.is_packed() {
        let mask = u8::MAX >> (8 - data_type.bits().unwrap_or(8));
        let codes: Vec<u8> = bytes.iter().map(|code| code & mask).collect();
        Tensor::from_codes(data_type, dims, &codes)
    } else {
        sardonyx::value::Buffer::copy_of(&bytes)
            .and_then(|bytes| Tensor::from_buffer(data_type, dims, bytes))
    };
    made.map(Some).map_err(|error| tensor_error(py, what, &error))
}

/// Converts an array of another library to a numpy array, through DLPack or `__array__`. `None` if
/// the object offers neither, or numpy is not installed.
pub(crate) fn as_array<'py>(
    object: &Bound<'py, PyAny>,
) -> Result<Option<Bound<'py, PyAny>>, PyErr> {
    let py = object.py();
    // `hasattr` finds the methods of instances on their class too, but a class is not an array.
    if object.is_instance_of::<PyType>() {
        return Ok(None);
    }
    let Some(numpy) = import_numpy(py) else { return Ok(None) };
    let module = numpy.module.bind(py);
    // numpy also reads DLPack 1.0, which can mark an array as read-only.
    if object.hasattr("__dlpack__")?
        && let Ok(array) = module.call_method1("from_dlpack", (object,))
    {
        return Ok(Some(array));
    }
    if object.hasattr("__array__")? || object.hasattr("__array_interface__")? {
        return module.call_method1("asarray", (object,)).map(Some);
    }
    Ok(None)
}
