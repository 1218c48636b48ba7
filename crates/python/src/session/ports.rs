//! `Port`: name, type and documentation of an input or output of a model.

use pyo3::prelude::*;
use pyo3::types::PyList;
use sardonyx::{Dim, Port};
use sardonyx_ort::ports::{tensor_type, type_name};

/// Input or output of a model: its name, type and documentation.
#[pyclass(frozen, skip_from_py_object, name = "Port", module = "sardonyx")]
#[derive(Clone)]
pub(crate) struct PyPort(pub(crate) Port);

impl PyPort {
    /// Formats the port as `name: type`.
    pub(crate) fn to_text(&self) -> String {
        self.0.to_string()
    }
}

#[pymethods]
impl PyPort {
    /// Returns the name of the input or output.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns the type in the ONNX text format, such as `float[N, 3, 224, 224]`; None if the model
    /// declares no type.
    #[getter]
    fn r#type(&self) -> Option<String> {
        self.0.ty().map(ToString::to_string)
    }

    /// Returns the type without shape in the notation of the ONNX standard, such as
    /// `seq(tensor(float))`; an empty string if the model declares no type.
    #[getter]
    fn kind(&self) -> String {
        self.0.ty().map_or_else(String::new, type_name)
    }

    /// Returns the ONNX name of a tensor's element type, such as `float`; None for other types.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        tensor_type(self.0.ty()?)?.elem.map(sardonyx::DataType::name)
    }

    /// Returns the shape of a tensor as a list: an int for a fixed size, a str for a symbolic one,
    /// None for an unknown one. None if the type is not a tensor or its rank is not declared.
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

    /// Whether every run must provide a value for this input.
    #[getter(required)]
    fn is_required(&self) -> bool {
        self.0.is_required()
    }

    /// Returns the documentation string of the input or output in the model; often empty.
    #[getter]
    fn doc(&self) -> &str {
        self.0.doc()
    }

    fn __repr__(&self) -> String {
        format!("Port({})", self.to_text())
    }
}

/// Joins the texts of ports, `name: type`, with commas.
pub(crate) fn join_ports<'p>(ports: impl IntoIterator<Item = &'p Port>) -> String {
    ports.into_iter().map(ToString::to_string).collect::<Vec<String>>().join(", ")
}
