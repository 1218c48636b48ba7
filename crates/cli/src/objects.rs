//! Operations on the objects of JSON answers.

use serde_json::Value;

/// Adds the members of the JSON object `other` to `one`, in place of members with the same keys.
pub(crate) fn merge_objects(mut one: Value, other: Value) -> Value {
    if let (Value::Object(one), Value::Object(other)) = (&mut one, other) {
        one.extend(other);
    }
    one
}
