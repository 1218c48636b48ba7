//! Crates in the JSON form of rustdoc.

use crate::Result;
use crate::workspace::readable_path;
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Version of the JSON form. Its only versions are exact ones, and the pinned toolchain writes one.
const FORMAT: u64 = 57;

/// One crate, with the items that its documentation shows.
pub(super) struct Documented {
    /// Name of the library, with underscores.
    pub(super) name: String,
    json: Value,
    /// Ids of the crate's own items by kind and definition path, such as `struct a::b::C`.
    ids: HashMap<String, String>,
}

impl Documented {
    /// Reads the file that rustdoc has written for a crate.
    pub(super) fn read(path: &Path, name: &str) -> Result<Documented> {
        let text = fs::read(path).map_err(|error| format!("{}: {error}", readable_path(path)))?;
        let json: Value = serde_json::from_slice(&text)
            .map_err(|error| format!("{} is not JSON: {error}", readable_path(path)))?;
        Self::new(json, name).map_err(|error| format!("{}: {error}", readable_path(path)).into())
    }

    pub(super) fn new(json: Value, name: &str) -> Result<Documented> {
        if json["format_version"] != FORMAT {
            let message = format!(
                "rustdoc wrote form {} of its JSON, this reader knows form {FORMAT}: read the changes \
                 of the crate rustdoc-types, then raise `FORMAT`",
                json["format_version"]
            );
            return Err(message.into());
        }
        let paths = json["paths"].as_object().ok_or("rustdoc wrote no paths")?;
        let own = paths.iter().filter(|(_, summary)| summary["crate_id"] == 0);
        let ids = own.map(|(id, summary)| (definition(summary), id.clone())).collect();
        Ok(Documented { name: name.to_string(), json, ids })
    }

    /// Returns the module that holds all others.
    pub(super) fn root(&self) -> String {
        self.json["root"].to_string()
    }

    /// Returns the item, if it is one that the documentation of this crate shows.
    pub(super) fn item(&self, id: &str) -> Option<&Value> {
        self.json["index"].get(id)
    }

    /// Returns all items in arbitrary order.
    pub(super) fn items(&self) -> impl Iterator<Item = &Value> {
        self.json["index"].as_object().into_iter().flat_map(|index| index.values())
    }

    /// Returns the kind and definition path of an item of any crate, such as `struct a::b::C`.
    pub(super) fn definition(&self, id: &str) -> Option<String> {
        self.json["paths"].get(id).map(definition)
    }

    /// Returns the id of an item of this crate.
    pub(super) fn id_of(&self, definition: &str) -> Option<&str> {
        self.ids.get(definition).map(String::as_str)
    }
}

fn definition(summary: &Value) -> String {
    let path = strings(&summary["path"]).collect::<Vec<_>>().join("::");
    format!("{} {path}", summary["kind"].as_str().unwrap_or_default())
}

/// Returns the texts of a list.
pub(super) fn strings(list: &Value) -> impl Iterator<Item = &str> {
    elements(list).iter().filter_map(Value::as_str)
}

/// Returns the elements of a list. Null is an empty one.
pub(super) fn elements(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the only key of an object and its value, which is how rustdoc writes an enum.
pub(super) fn variant(value: &Value) -> (&str, &Value) {
    match value {
        Value::String(name) => (name, &Value::Null),
        _ => {
            let entry = value.as_object().and_then(|object| object.iter().next());
            entry.map_or(("", &Value::Null), |(name, value)| (name, value))
        }
    }
}
