//! Tensors that a model stores: their description, storage and values.

use sardonyx_model::{SparsePart, TensorId, TensorProto};
use sardonyx_proto::{DataLocation, DataType as NumberedType};
use sardonyx_tensor::{DataType, Tensor};

use crate::error::{Error, ErrorKind};
use crate::model::Model;

/// Description of a tensor that a model stores, without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredTensor {
    /// Name of the tensor; empty for most tensors in attributes.
    pub name: String,
    /// Location in the model, such as `graph.initializer[3]` or `graph.node[7].attribute[0]
    /// 'value'`.
    pub place: String,
    /// Use of the tensor in the model.
    pub role: TensorRole,
    /// Element type; `None` if the file has a type number that the standard does not define.
    pub data_type: Option<DataType>,
    /// Number of the element type in the file; 0 if the file has none.
    pub type_number: i32,
    /// Dimensions as stored in the file, not validated.
    pub dims: Vec<i64>,
    /// Size of the values as stored, in bytes; `None` if only the data file shows the size.
    pub bytes: Option<u64>,
    /// Storage of the tensor's values.
    pub storage: TensorStorage,
    id: TensorId,
}

/// Use of a stored tensor in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorRole {
    /// A dense initializer of a graph.
    Initializer,
    /// A tensor in an attribute of a node, or in an attribute default of a function.
    Attribute,
    /// The non-zero values of a sparse tensor.
    SparseValues,
    /// The indices of the non-zero values of a sparse tensor.
    SparseIndices,
}

/// Storage of a tensor's values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorStorage {
    /// The field `raw_data`.
    Raw,
    /// A typed list with this field name, such as `float_data`.
    Typed(&'static str),
    /// A data file.
    External {
        /// Path relative to the directory of the model, not validated.
        location: String,
        /// Offset in bytes of the tensor in the data file.
        offset: u64,
        /// Number of bytes of the tensor in the data file; `None` if the model does not state it.
        length: Option<u64>,
        /// SHA-1 checksum of the data file; `None` if the model does not state it.
        checksum: Option<String>,
    },
    /// Missing or contradictory storage, with the problem in words.
    Broken(String),
    /// No storage, as is valid for a tensor without elements.
    Nothing,
}

impl TensorStorage {
    /// Returns the name of this storage in JSON answers, such as `raw` or `external`.
    #[doc(hidden)]
    pub fn name(&self) -> &'static str {
        match self {
            TensorStorage::Raw => "raw",
            TensorStorage::Typed(_) => "typed",
            TensorStorage::External { .. } => "external",
            TensorStorage::Broken(_) => "broken",
            TensorStorage::Nothing => "nothing",
        }
    }
}

/// Listing and reading of stored tensors.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let model = sardonyx::Model::open(path)?;
/// let tensors = model.tensors();
/// let value = model.value_of(&tensors[0])?;
/// assert_eq!(value.dims().len(), tensors[0].dims.len());
/// # Ok::<(), sardonyx::Error>(())
/// ```
impl Model {
    /// Lists all stored tensors in the order of the file: initializers and attributes of the main
    /// graph and its subgraphs, of training graphs and of functions. Opens no data file.
    pub fn tensors(&self) -> Vec<StoredTensor> {
        let places = self.graph.tensor_places();
        let listed = self.graph.tensors().into_iter().zip(places);
        listed.map(|(id, place)| self.describe_stored(id, place)).collect()
    }

    /// Describes a stored tensor; `place` is its location in the model.
    fn describe_stored(&self, id: TensorId, place: String) -> StoredTensor {
        let tensor = self.graph.stored_tensor(id);
        let (storage, bytes) = self.find_storage(tensor);
        let type_number = tensor.data_type.unwrap_or(0);
        StoredTensor {
            name: self.graph.display(tensor.name).into_owned(),
            place,
            role: match id.sparse_part() {
                Some(SparsePart::Values) => TensorRole::SparseValues,
                Some(SparsePart::Indices) => TensorRole::SparseIndices,
                None if id.is_initializer() => TensorRole::Initializer,
                None => TensorRole::Attribute,
            },
            data_type: DataType::from_number(type_number),
            type_number,
            dims: tensor.dims.to_vec(),
            bytes,
            storage,
            id,
        }
    }

    /// Returns the storage of a tensor, and the size of its stored values in bytes.
    fn find_storage(&self, tensor: &TensorProto) -> (TensorStorage, Option<u64>) {
        if tensor.is_external() {
            return match self.graph.external_reference(tensor) {
                Ok(reference) => {
                    let bytes = reference.length.or_else(|| self.graph.implied_bytes(tensor));
                    let storage = TensorStorage::External {
                        location: reference.location,
                        offset: reference.offset,
                        length: reference.length,
                        checksum: reference.checksum,
                    };
                    (storage, bytes)
                }
                Err(what) => (TensorStorage::Broken(what), None),
            };
        }
        if let Some(location) = tensor.data_location
            && location != DataLocation::DEFAULT
        {
            let what = format!("data location {} is not defined by the standard", location.0);
            return (TensorStorage::Broken(what), None);
        }
        // An empty raw_data beside a typed list counts as absent.
        let raw = tensor.raw_data.filter(|raw| raw.len > 0 || tensor.typed.is_empty());
        match (raw, tensor.typed.first()) {
            (Some(_), Some(_)) => {
                let what = "the tensor has both raw_data and a typed field".to_string();
                (TensorStorage::Broken(what), None)
            }
            (Some(raw), None) => (TensorStorage::Raw, Some(tensor.skipped.unwrap_or(raw.len))),
            (None, Some(run)) => {
                let stored: u64 = tensor.typed.iter().map(|run| run.records.len).sum();
                let bytes = stored + tensor.skipped.unwrap_or(0);
                (TensorStorage::Typed(find_field_name(run.number)), Some(bytes))
            }
            (None, None) if tensor.dims.contains(&0) => (TensorStorage::Nothing, Some(0)),
            (None, None) => {
                (TensorStorage::Broken("the tensor has no values".to_string()), Some(0))
            }
        }
    }

    /// Describes the first tensor whose `raw_data` does not have the size that type and shape
    /// imply; `None` if there is none. Such a tensor is printed without values.
    pub(crate) fn find_wrong_raw_data(&self) -> Option<String> {
        let model = &self.graph;
        let mut ids = model.tensors().into_iter().enumerate();
        ids.find_map(|(index, id)| {
            let tensor = model.stored_tensor(id);
            let (raw, data_type) =
                (tensor.raw_data?, DataType::from_number(tensor.data_type.unwrap_or(0))?);
            if tensor.is_external() || model.implied_bytes(tensor) == Some(raw.len) {
                return None;
            }
            let places = model.tensor_places();
            let place = places.get(index).map_or("a tensor", String::as_str);
            Some(format!(
                "{place} has {} bytes of raw_data, which do not match its shape {:?} of {}",
                raw.len,
                tensor.dims,
                data_type.name()
            ))
        })
    }

    /// Reads the values of a stored tensor, and opens its data file if it has one. The returned
    /// tensor shares the bytes of the model or of the mapped file where their alignment allows it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] for a tensor that contradicts itself, [`ErrorKind::ExternalData`] if
    /// its data file is missing, too short or cannot be opened.
    ///
    /// # Panics
    ///
    /// If the tensor comes from another model.
    pub fn value_of(&self, tensor: &StoredTensor) -> Result<Tensor, Error> {
        let proto = self.graph.stored_tensor(tensor.id);
        self.graph.tensor(proto, &*self.data).map_err(|error| {
            let kind =
                if proto.is_external() { ErrorKind::ExternalData } else { ErrorKind::Invalid };
            Error::new(kind, error.to_string()).with_place(tensor.place.clone())
        })
    }
}

/// Returns the name of the field of `TensorProto` with a number; empty if there is none.
fn find_field_name(number: u32) -> &'static str {
    use sardonyx_proto::MessageType;
    let field = sardonyx_proto::TensorProto::DEF.field(number);
    field.map_or("", |field| field.name)
}

impl StoredTensor {
    /// Returns the number of elements; `None` for a negative dimension or an overflow.
    pub fn elements(&self) -> Option<u64> {
        self.dims
            .iter()
            .try_fold(1u64, |product, dim| product.checked_mul(u64::try_from(*dim).ok()?))
    }

    /// Returns the name of the element type, such as `float16`; the number in the file for an
    /// unknown type.
    pub fn type_name(&self) -> String {
        match self.data_type {
            Some(data_type) => data_type.name().to_string(),
            None => match NumberedType(self.type_number).name() {
                Some(name) => name.to_ascii_lowercase(),
                None => self.type_number.to_string(),
            },
        }
    }
}
