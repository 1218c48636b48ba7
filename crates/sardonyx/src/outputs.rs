//! Outputs of a run.

use std::iter::Map;
use std::ops::Index;
use std::sync::Arc;
use std::vec;

use sardonyx_tensor::{Tensor, Value};

use crate::error::{Error, ErrorKind};
use sardonyx_proto::closest;

/// Outputs of a run in the model's order, accessible by name or position.
///
/// ```
/// use sardonyx::{Model, RunOptions, Session, Tensor};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let session = Session::new(&Model::open(path)?)?;
/// let images = Tensor::from_vec([2, 1, 8, 8], vec![0f32; 128])?;
/// let outputs = session.run([("image", images)], &RunOptions::default())?;
/// let by_name = outputs.tensor("probabilities")?;
/// let by_position = &outputs[0];
/// assert_eq!(by_position.as_tensor(), Some(by_name));
/// for (name, value) in outputs {
///     println!("{name}: {}", value.value_type());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outputs(Vec<Named>);

/// Name and value of an output. All runs of a session share the name.
type Named = (Arc<str>, Value);

impl Outputs {
    pub(crate) fn new(values: Vec<Named>) -> Outputs {
        Outputs(values)
    }

    /// Returns the number of outputs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the run returned no outputs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the value of the output called `name`; `None` if no output has this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| **own == *name).map(|(_, value)| value)
    }

    /// Returns the output called `name` as a dense tensor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Output`] if no output has this name, or if it is not a tensor.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        let Some(value) = self.get(name) else {
            let names: Vec<&str> = self.names().collect();
            let error = Error::new(ErrorKind::Output, format!("the model has no output '{name}'"));
            return Err(match closest(name, names.iter().copied()) {
                Some(near) => error.with_help(format!("did you mean '{near}'?")),
                None => error
                    .with_help(format!("use one of the model's outputs: '{}'", names.join("', '"))),
            });
        };
        value.as_tensor().ok_or_else(|| {
            let found = value.value_type();
            Error::new(
                ErrorKind::Output,
                format!("the output '{name}' is not a tensor; its type is {found}"),
            )
        })
    }

    /// Returns the names of the outputs in the model's order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Converts the outputs to their values in the model's order.
    pub fn into_values(self) -> impl ExactSizeIterator<Item = Value> {
        self.0.into_iter().map(|(_, value)| value)
    }

    /// Returns names and values of the outputs in the model's order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }
}

/// Collects outputs from pairs of name and value, in the order of the iterator.
impl FromIterator<(String, Value)> for Outputs {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Outputs {
        Outputs(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Index<&str> for Outputs {
    type Output = Value;

    /// Returns the value of the output called `name`.
    ///
    /// # Panics
    ///
    /// If no output has this name; see [`Outputs::get`].
    fn index(&self, name: &str) -> &Value {
        match self.get(name) {
            Some(value) => value,
            None => panic!("the run has no output '{name}'"),
        }
    }
}

impl Index<usize> for Outputs {
    type Output = Value;

    /// Returns the value of the output at a position.
    ///
    /// # Panics
    ///
    /// If there are not that many outputs.
    fn index(&self, position: usize) -> &Value {
        &self.0[position].1
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Value);
    type IntoIter = Map<vec::IntoIter<Named>, fn(Named) -> (String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(|(name, value)| (name.to_string(), value))
    }
}
