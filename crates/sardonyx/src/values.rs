//! Reads and writes files that hold one value, such as the test data `input_0.pb` and
//! `output_0.pb`.

use sardonyx_model::Type;
use sardonyx_tensor::{Buffer, Value};

use crate::error::{Error, ErrorKind};

/// Decodes a value from the bytes of a `TensorProto`, `SparseTensorProto`, `SequenceProto`,
/// `MapProto` or `OptionalProto`. The bytes do not identify their message type, so `ty`, the type
/// of the value, selects it. Shapes in `ty` are ignored.
///
/// ```
/// use sardonyx::{DataType, Tensor, Type, Value};
/// use sardonyx::io::{read_value, write_value};
///
/// let value = Value::from(Tensor::from_vec([2], vec![1.0f32, 2.0])?);
/// let bytes = write_value(&value, "x")?;
/// assert_eq!(read_value(bytes, &Type::unranked(DataType::Float))?, value);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Format`] if the bytes are not a message of this type, or if the message contradicts
/// itself.
pub fn read_value(bytes: impl Into<Buffer>, ty: &Type) -> Result<Value, Error> {
    sardonyx_model::read_value(bytes.into(), ty).map_err(|what| {
        Error::new(ErrorKind::Format, format!("the bytes are not a value of type {ty}: {what}"))
    })
}

/// Encodes a value under a name, which may be empty, as bytes of the protobuf message of its type,
/// such as `TensorProto`.
///
/// ```
/// use sardonyx::Tensor;
/// use sardonyx::io::write_value;
///
/// let bytes = write_value(&Tensor::scalar(1i64).into(), "one")?;
/// assert_eq!(bytes, b"\x10\x07\x42\x03one\x4a\x08\x01\0\0\0\0\0\0\0");
/// # Ok::<(), sardonyx::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::Format`] for an opaque value, or one that contains an opaque value: no message can
/// hold it.
pub fn write_value(value: &Value, name: &str) -> Result<Vec<u8>, Error> {
    sardonyx_model::write_value(value, name).map_err(|what| Error::new(ErrorKind::Format, what))
}
