//! Python enumerations within `OpSchema`, and the Rust enums that stand for them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;
use sardonyx::tool::message::AttributeType;
use sardonyx::tool::schema::{AttrType, Differentiability};

/// Number of values that a node may pass for a formal input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterOption {
    /// Exactly one value.
    Single,
    /// At most one value.
    Optional,
    /// Any number of values; only the last parameter may be variadic.
    Variadic,
}

/// Whether an operator computes equal outputs from equal inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Determinism {
    Unknown,
    NonDeterministic,
    Deterministic,
}

/// Maturity of an operator: in regular use, or experimental.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Support {
    Common,
    Experimental,
}

/// Rust enum with a corresponding Python enumeration within `OpSchema`.
pub(crate) trait Enumeration: Copy + PartialEq + Send + Sync + 'static {
    /// Name of the Python class within `OpSchema`.
    const NAME: &'static str;
    /// Name of the base class in the Python module `enum`.
    const BASE: &'static str = "IntEnum";

    /// Returns name, number and Rust value of each member of the enumeration.
    fn list_members() -> Vec<(&'static str, i32, Self)>;
    /// Returns the cell that stores the Python enumeration once it has been created.
    fn class_cell() -> &'static PyOnceLock<Py<PyAny>>;

    /// Returns the Python enumeration, which the first call creates.
    fn get_or_create_class(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
        let class = Self::class_cell().get_or_try_init(py, || {
            let members: Vec<(&str, i32)> =
                Self::list_members().into_iter().map(|(name, number, _)| (name, number)).collect();
            let place = PyDict::new(py);
            place.set_item("module", "sardonyx.defs")?;
            place.set_item("qualname", format!("OpSchema.{}", Self::NAME))?;
            let module = py.import("enum")?;
            let class = module.getattr(Self::BASE)?.call((Self::NAME, members), Some(&place))?;
            // Every way to format a member gives `AttrType.INT`, like in the onnx package.
            let plain = module.getattr("Enum")?;
            class.setattr("__repr__", plain.getattr("__str__")?)?;
            class.setattr("__str__", plain.getattr("__str__")?)?;
            class.setattr("__format__", plain.getattr("__format__")?)?;
            Ok::<_, PyErr>(class.unbind())
        })?;
        Ok(class.bind(py))
    }

    /// Converts the Rust value to the corresponding member of the Python enumeration.
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let members = Self::list_members();
        let found = members.iter().find(|(_, _, value)| *value == self);
        let number = found.map(|(_, number, _)| *number);
        Self::get_or_create_class(py)?.call1((number,))
    }

    /// Converts a member of the Python enumeration, or the number of a member of an `IntEnum`, to
    /// the Rust value.
    ///
    /// # Errors
    ///
    /// `TypeError` for any other object.
    fn from_python(member: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_member = member.is_instance(Self::get_or_create_class(member.py())?)?;
        let number: Option<i32> = if is_member {
            Some(member.getattr("value")?.extract()?)
        } else if Self::BASE == "IntEnum" {
            member.extract().ok()
        } else {
            None
        };
        let found = Self::list_members().into_iter().find(|(_, known, _)| Some(*known) == number);
        found.map(|(_, _, value)| value).ok_or_else(|| {
            let given = member.repr().map(|text| text.to_string()).unwrap_or_default();
            PyTypeError::new_err(format!("{given} is not a member of OpSchema.{}", Self::NAME))
        })
    }
}

macro_rules! cell {
    () => {
        fn class_cell() -> &'static PyOnceLock<Py<PyAny>> {
            static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            &CLASS
        }
    };
}

impl Enumeration for ParameterOption {
    const NAME: &'static str = "FormalParameterOption";

    fn list_members() -> Vec<(&'static str, i32, Self)> {
        vec![
            ("Single", 0, ParameterOption::Single),
            ("Optional", 1, ParameterOption::Optional),
            ("Variadic", 2, ParameterOption::Variadic),
        ]
    }

    cell!();
}

impl Enumeration for Differentiability {
    const NAME: &'static str = "DifferentiationCategory";

    fn list_members() -> Vec<(&'static str, i32, Self)> {
        vec![
            ("Unknown", 0, Differentiability::Unknown),
            ("Differentiable", 1, Differentiability::Differentiable),
            ("NonDifferentiable", 2, Differentiability::NonDifferentiable),
        ]
    }

    cell!();
}

impl Enumeration for Determinism {
    const NAME: &'static str = "NodeDeterminism";
    const BASE: &'static str = "Enum";

    fn list_members() -> Vec<(&'static str, i32, Self)> {
        vec![
            ("Deterministic", 2, Determinism::Deterministic),
            ("NonDeterministic", 1, Determinism::NonDeterministic),
            ("Unknown", 0, Determinism::Unknown),
        ]
    }

    cell!();
}

impl Enumeration for Support {
    const NAME: &'static str = "SupportType";

    fn list_members() -> Vec<(&'static str, i32, Self)> {
        vec![("COMMON", 0, Support::Common), ("EXPERIMENTAL", 1, Support::Experimental)]
    }

    cell!();
}

impl Enumeration for AttrType {
    const NAME: &'static str = "AttrType";

    fn list_members() -> Vec<(&'static str, i32, Self)> {
        let numbers = (1..).map_while(|number| {
            let in_file = AttributeType(number);
            Some((in_file.name()?, number, AttrType::of_file(in_file)?))
        });
        numbers.collect()
    }

    cell!();
}
