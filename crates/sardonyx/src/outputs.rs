//! What a run gives back.

use std::iter::Map;
use std::ops::Index;
use std::sync::Arc;
use std::vec;

use sardonyx_tensor::{Tensor, Value};

use crate::error::{Error, ErrorKind};
use sardonyx_proto::closest;

/// The outputs of a run, in the model's order, by name or position.
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

/// Output with its name, which the outputs of other runs share.
type Named = (Arc<str>, Value);

impl Outputs {
    pub(crate) fn new(values: Vec<Named>) -> Outputs {
        Outputs(values)
    }

    /// How many outputs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The output with a name, if there is one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(own, _)| **own == *name).map(|(_, value)| value)
    }

    /// The output with a name, as a dense tensor.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Output`] if there is none of that name, or it is no tensor.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, Error> {
        let Some(value) = self.get(name) else {
            let names: Vec<&str> = self.names().collect();
            let error = Error::new(ErrorKind::Output, format!("the model has no output '{name}'"));
            return Err(match closest(name, names.iter().copied()) {
                Some(near) => error.with_help(format!("did you mean '{near}'?")),
                None => error.with_help(format!("use one of its outputs: {}", names.join(", "))),
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

    /// Names, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| &**name)
    }

    /// Takes the values, in order.
    pub fn into_values(self) -> impl ExactSizeIterator<Item = Value> {
        self.0.into_iter().map(|(_, value)| value)
    }

    /// Names and values, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }
}

/// Values by name, in the order in which they come.
impl FromIterator<(String, Value)> for Outputs {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Outputs {
        Outputs(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl Index<&str> for Outputs {
    type Output = Value;

    /// # Panics
    ///
    /// If there is no output of that name; see [`Outputs::get`].
    fn index(&self, name: &str) -> &Value {
        match self.get(name) {
            Some(value) => value,
            None => panic!("no output '{name}' exists"),
        }
    }
}

impl Index<usize> for Outputs {
    type Output = Value;

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
