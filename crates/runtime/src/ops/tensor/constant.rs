//! Constant: a value written into the graph.
//!
//! Compilation takes the value from inference, so the kernel normally does not run.

use sardonyx_ops::AttrValue;
use sardonyx_tensor::{StringArray, Tensor, Value};

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Site};

struct Constant(Tensor);

const FORMS: [&str; 8] = [
    "sparse_value",
    "value",
    "value_float",
    "value_floats",
    "value_int",
    "value_ints",
    "value_string",
    "value_strings",
];

/// Binds `Constant`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let given: Vec<_> =
        FORMS.iter().filter_map(|name| Some((*name, site.attributes.get(name)?))).collect();
    let (name, value) = match &given[..] {
        [(name, value)] => (*name, value),
        [] => return Err(BindError::Invalid("no value attribute is present".to_string())),
        [(first, _), (second, _), ..] => {
            return Err(BindError::Invalid(format!("the node has both {first} and {second}")));
        }
    };
    let strings = |dims: &[usize], texts: StringArray| Tensor::from_strings(dims, texts);
    let tensor = match value {
        AttrValue::Tensor(tensor) => site.weights.keep(tensor)?,
        AttrValue::Float(value) => Tensor::scalar(*value),
        AttrValue::Floats(values) => Tensor::from_slice([values.len()], values)?,
        AttrValue::Int(value) => Tensor::scalar(*value),
        AttrValue::Ints(values) => Tensor::from_slice([values.len()], values)?,
        AttrValue::String(text) => strings(&[], StringArray::from_iter([text]))?,
        AttrValue::Strings(texts) => strings(&[texts.len()], texts.iter().collect())?,
        AttrValue::Unread(_) | AttrValue::Graph(_) | AttrValue::Type(_) | AttrValue::Other => {
            return Err(BindError::Unsupported(format!("attribute '{name}' cannot be read")));
        }
    };
    Ok(Box::new(Constant(tensor)))
}

impl Kernel for Constant {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        call.set_output(0, Value::Tensor(self.0.clone()))
    }

    fn describe(&self) -> String {
        "constant".to_string()
    }
}
