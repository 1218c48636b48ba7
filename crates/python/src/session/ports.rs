//! `Port`: what a model takes or gives, and what its types are called.

use pyo3::prelude::*;
use pyo3::types::PyList;
use sardonyx::{Dim, Port};
use sardonyx_ort::ports::{tensor_type, type_name};

/// An input or output of a model.
#[pyclass(frozen, skip_from_py_object, name = "Port", module = "sardonyx")]
#[derive(Clone)]
pub(crate) struct PyPort(pub(crate) Port);

impl PyPort {
    /// `name: type`
    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }
}

#[pymethods]
impl PyPort {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Its type in ONNX text, such as `float[N, 3, 224, 224]`; None if the model declares none.
    #[getter]
    fn r#type(&self) -> Option<String> {
        self.0.ty().map(ToString::to_string)
    }

    /// Its type without sizes, as the standard writes it, such as `seq(tensor(float))`; empty if
    /// the model declares none.
    #[getter]
    fn kind(&self) -> String {
        self.0.ty().map_or_else(String::new, type_name)
    }

    /// The element type of a tensor, such as `float`; else None.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        tensor_type(self.0.ty()?)?.elem.map(sardonyx::DataType::name)
    }

    /// The sizes of a tensor: numbers, names of sizes that are open, and None for those of which
    /// nothing is known. None if it is not a tensor, or the model does not say how many there are.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        let ty = self.0.ty().and_then(tensor_type);
        let Some(shape) = ty.and_then(|ty| ty.shape.as_ref()) else { return Ok(None) };
        let list = PyList::empty(py);
        for dim in shape {
            match dim {
                Dim::Known(size) => list.append(size)?,
                dim => list.append(dim.as_symbol())?,
            }
        }
        Ok(Some(list))
    }

    /// Whether a run must be given it.
    #[getter]
    fn required(&self) -> bool {
        self.0.is_required()
    }

    /// What the model says about it; mostly empty.
    #[getter]
    fn doc(&self) -> &str {
        self.0.doc()
    }

    fn __repr__(&self) -> String {
        format!("Port({})", self.text())
    }
}
