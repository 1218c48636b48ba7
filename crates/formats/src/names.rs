//! Field names: finding them and suggesting them.

use sardonyx_proto::{FieldDef, MessageDef, shown};

use crate::error::ErrorKind;

/// Which names of a field a form knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As in the table: `float_data`.
    Table,
    /// Also as JSON likes it: `floatData`.
    TableOrCamel,
}

/// The field with that name and its index in the message.
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

/// Whether `camel` is `name` with each underscore dropped and the letter after it in upper case.
fn is_camel_of(camel: &[u8], name: &str) -> bool {
    let mut rest = camel.iter();
    let mut upper = false;
    for byte in name.bytes() {
        if byte == b'_' {
            upper = true;
            continue;
        }
        let expected = if upper {
            byte.to_ascii_uppercase()
        } else {
            byte
        };
        upper = false;
        if rest.next() != Some(&expected) {
            return false;
        }
    }
    rest.next().is_none()
}

/// The field whose name differs least, if that is at most a third of its letters.
fn closest(def: &'static MessageDef, name: &[u8]) -> Option<&'static str> {
    let name = plain(name);
    let near = def.fields.iter().filter_map(|field| {
        let own = plain(field.name.as_bytes());
        let distance = distance(&name, &own);
        (distance <= own.len().max(name.len()) / 3).then_some((distance, field.name))
    });
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Without underscores and capitals, and no longer than any field name could need.
fn plain(name: &[u8]) -> Vec<u8> {
    let letters = name.iter().filter(|byte| **byte != b'_');
    letters.take(60).map(u8::to_ascii_lowercase).collect()
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let replaced = above[j] + usize::from(a[i] != b[j]);
            let mut best = replaced.min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
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
                find(TensorProto::DEF, name.as_bytes(), spelling)
                    .ok()
                    .map(|(_, field)| field.name)
            };
            assert_eq!(found(Spelling::Table), table, "{name}");
            assert_eq!(found(Spelling::TableOrCamel), both, "{name}");
        }
    }

    #[test]
    fn slips_get_a_suggestion() {
        let rows = [
            ("rawdata", Some("raw_data")),
            ("datatype", Some("data_type")),
            ("dim", Some("dims")),
            ("flaot_data", Some("float_data")),
            ("weights", None),
        ];
        for (name, expected) in rows {
            assert_eq!(
                closest(TensorProto::DEF, name.as_bytes()),
                expected,
                "{name}"
            );
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
