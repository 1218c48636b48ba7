//! Protobuf messages as trees of records, independent of their meaning: parsed, changed and written
//! again.
//!
//! Changing a byte at random often invalidates the lengths of all records around it, so nearly
//! every input would fail at its first level. Writing a tree sets the lengths again, except where a
//! record has a wrong one on purpose.

/// Field of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Field number, which may be an invalid one.
    pub number: u32,
    /// Value of the field.
    pub value: Value,
}

/// Encoding after the tag.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Number in as few bytes as possible.
    Varint(u64),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// Text, binary data or packed numbers.
    Bytes(Vec<u8>),
    /// Content that can be parsed as a message.
    Message(Vec<Record>),
    /// Wrong length and content.
    WrongLength(u64, Vec<u8>),
    /// Bytes without a tag in the place of a record.
    Raw(Vec<u8>),
}

/// Greatest depth at which content is parsed as a message.
const MAX_DEPTH: usize = 12;

/// Greatest field number of a message. Those of ONNX end at 26, so content with greater ones is
/// unlikely to be one.
const MAX_NUMBER: u32 = 30;

/// Makes a record with a number.
pub fn number(number: u32, value: i64) -> Record {
    Record { number, value: Value::Varint(value as u64) }
}

/// Makes a record with text or bytes.
pub fn bytes(number: u32, content: impl AsRef<[u8]>) -> Record {
    Record { number, value: Value::Bytes(content.as_ref().to_vec()) }
}

/// Makes a record with a message.
pub fn message(number: u32, fields: impl Into<Vec<Record>>) -> Record {
    Record { number, value: Value::Message(fields.into()) }
}

/// Parses a message. Returns `None` if the bytes are not a message.
pub fn parse(bytes: &[u8]) -> Option<Vec<Record>> {
    parse_level(bytes, 0)
}

fn parse_level(bytes: &[u8], depth: usize) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let tag = take_varint(&mut rest)?;
        let number = u32::try_from(tag >> 3).ok()?;
        if number == 0 || number > MAX_NUMBER && depth > 0 {
            return None;
        }
        let value = match tag & 7 {
            0 => Value::Varint(take_varint(&mut rest)?),
            1 => Value::Fixed64(*take(&mut rest, 8)?.first_chunk()?),
            5 => Value::Fixed32(*take(&mut rest, 4)?.first_chunk()?),
            2 => {
                let length = usize::try_from(take_varint(&mut rest)?).ok()?;
                let content = take(&mut rest, length)?;
                let inner = (depth < MAX_DEPTH && !content.is_empty())
                    .then(|| parse_level(content, depth + 1))
                    .flatten();
                match inner {
                    Some(fields) => Value::Message(fields),
                    None => Value::Bytes(content.to_vec()),
                }
            }
            _ => return None,
        };
        records.push(Record { number, value });
    }
    Some(records)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for index in 0..10 {
        let byte = *rest.get(index)?;
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *rest = &rest[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends a varint.
pub fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a message.
pub fn write(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        write_record(record, &mut out);
    }
    out
}

fn write_record(record: &Record, out: &mut Vec<u8>) {
    let tag = |out: &mut Vec<u8>, wire_type| {
        push_varint(out, u64::from(record.number) << 3 | wire_type);
    };
    match &record.value {
        Value::Varint(value) => {
            tag(out, 0);
            push_varint(out, *value);
        }
        Value::Fixed64(bytes) => {
            tag(out, 1);
            out.extend_from_slice(bytes);
        }
        Value::Fixed32(bytes) => {
            tag(out, 5);
            out.extend_from_slice(bytes);
        }
        Value::Bytes(bytes) => {
            tag(out, 2);
            push_varint(out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        Value::Message(fields) => {
            let inner = write(fields);
            tag(out, 2);
            push_varint(out, inner.len() as u64);
            out.extend_from_slice(&inner);
        }
        Value::WrongLength(length, bytes) => {
            tag(out, 2);
            push_varint(out, *length);
            out.extend_from_slice(bytes);
        }
        Value::Raw(bytes) => out.extend_from_slice(bytes),
    }
}

/// Counts the records on all levels.
pub fn count(records: &[Record]) -> usize {
    records
        .iter()
        .map(|record| match &record.value {
            Value::Message(fields) => 1 + count(fields),
            _ => 1,
        })
        .sum()
}

/// Returns the record with an index that counts over all levels, in the order of the message.
pub fn get(records: &[Record], index: usize) -> Option<&Record> {
    let mut left = index;
    for record in records {
        if left == 0 {
            return Some(record);
        }
        left -= 1;
        if let Value::Message(fields) = &record.value {
            let below = count(fields);
            if left < below {
                return get(fields, left);
            }
            left -= below;
        }
    }
    None
}

/// Finds the record with an index that counts over all levels. Returns the list that holds it and
/// its position in the list.
pub fn find(records: &mut Vec<Record>, index: usize) -> Option<(&mut Vec<Record>, usize)> {
    let mut left = index;
    let mut inside = None;
    for (position, record) in records.iter().enumerate() {
        if left == 0 {
            return Some((records, position));
        }
        left -= 1;
        if let Value::Message(fields) = &record.value {
            let below = count(fields);
            if left < below {
                inside = Some(position);
                break;
            }
            left -= below;
        }
    }
    match &mut records[inside?].value {
        Value::Message(fields) => find(fields, left),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_equal_after_a_round_trip() {
        let tree = vec![
            number(1, -1),
            bytes(2, b"\xff\xff"),
            message(7, vec![bytes(1, b""), message(5, vec![number(2, 300)])]),
            Record { number: 14, value: Value::Fixed32([1, 2, 3, 4]) },
        ];
        let written = write(&tree);
        assert_eq!(parse(&written), Some(tree.clone()));
        assert_eq!(count(&tree), 7);
        assert_eq!(parse(&written[..written.len() - 1]), None);
        assert_eq!(get(&tree, 5), Some(&number(2, 300)));
        let mut tree = tree;
        let (list, position) = find(&mut tree, 5).unwrap();
        assert_eq!(list[position], number(2, 300));
        assert!(find(&mut tree, 7).is_none());
    }

    #[test]
    fn a_wrong_length_is_written_as_given() {
        let record = Record { number: 1, value: Value::WrongLength(300, vec![7]) };
        assert_eq!(write(&[record]), b"\x0a\xac\x02\x07");
    }
}
