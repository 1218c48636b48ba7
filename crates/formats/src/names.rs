//! Look-up of field names, with suggestions.

use sardonyx_proto::{FieldDef, MessageDef, shown};

use crate::error::ErrorKind;

/// Names by which a form finds a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// The name in the table: `float_data`.
    Table,
    /// The name in the table, or the one that JSON prefers: `floatData`.
    TableOrCamel,
}

/// Returns the field with that name and its index in the message.
pub(crate) fn find(
    def: &'static MessageDef,
    name: &[u8],
    spelling: Spelling,
) -> Result<(usize, &'static FieldDef), ErrorKind> {
    let matches = |field: &FieldDef| {
        field.name.as_bytes() == name
            || (spelling == Spelling::TableOrCamel && is_camel_of(name, field.name))
    };
    match def.fields.iter().position(matches) {
        Some(index) => Ok((index, &def.fields[index])),
        None => Err(ErrorKind::UnknownField {
            message: def.name,
            name: shown(name),
            suggestion: closest(def, name),
        }),
    }
}

/// Whether `camel` is `name` with each underscore removed and the letter after it in upper case.
fn is_camel_of(camel: &[u8], name: &str) -> bool {
    let mut rest = camel.iter();
    let mut upper = false;
    for byte in name.bytes() {
        if byte == b'_' {
            upper = true;
            continue;
        }
        let expected = if upper { byte.to_ascii_uppercase() } else { byte };
        upper = false;
        if rest.next() != Some(&expected) {
            return false;
        }
    }
    rest.next().is_none()
}

/// Returns the field whose name is closest, if it is close enough for a typing error.
fn closest(def: &'static MessageDef, name: &[u8]) -> Option<&'static str> {
    let names = def.fields.iter().map(|field| field.name);
    sardonyx_proto::closest(&String::from_utf8_lossy(name), names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_proto::{MESSAGES, MessageType, TensorProto};

    #[test]
    fn fields_are_found_in_both_spellings() {
        let rows = [
            ("float_data", Some("float_data"), Some("float_data")),
            ("floatData", None, Some("float_data")),
            ("int32Data", None, Some("int32_data")),
            ("floatdata", None, None),
            ("float_Data", None, None),
            ("float_dat", None, None),
            ("", None, None),
        ];
        for (name, table, both) in rows {
            let found = |spelling| {
                find(TensorProto::DEF, name.as_bytes(), spelling).ok().map(|(_, field)| field.name)
            };
            assert_eq!(found(Spelling::Table), table, "{name}");
            assert_eq!(found(Spelling::TableOrCamel), both, "{name}");
        }
    }

    #[test]
    fn typing_errors_get_a_suggestion() {
        let rows = [
            ("rawdata", Some("raw_data")),
            ("datatype", Some("data_type")),
            ("dim", Some("dims")),
            ("flaot_data", Some("float_data")),
            ("weights", None),
        ];
        for (name, expected) in rows {
            assert_eq!(closest(TensorProto::DEF, name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn no_two_fields_share_a_name_in_any_spelling() {
        for def in MESSAGES {
            for (index, field) in def.fields.iter().enumerate() {
                let name = field.name.as_bytes();
                let found = find(def, name, Spelling::TableOrCamel).unwrap();
                assert_eq!(found.0, index, "{}.{}", def.name, field.name);
            }
        }
    }
}
