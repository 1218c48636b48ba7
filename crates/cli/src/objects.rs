//! Objects of JSON answers.

use serde_json::Value;

/// Adds the members of an object to another one.
pub(crate) fn merged(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
