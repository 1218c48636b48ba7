//! Implements `serde::Serialize` for dimensions.

use serde::{Serialize, Serializer};

use crate::dim::Dim;

/// Writes a number, null if unknown, or an expression as text, such as `"N"` or `"2*N + 1"`.
impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Dim::Known(size) => serializer.serialize_i64(*size),
            Dim::Unknown => serializer.serialize_none(),
            Dim::Expr(_) => serializer.collect_str(self),
        }
    }
}
