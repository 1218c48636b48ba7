//! A protobuf message as a tree of records, without knowing what it means: taken apart, changed,
//! put together again.
//!
//! Changing bytes at random breaks the length of everything around them, so nearly every input
//! would fail at its first level. Here the lengths are right again unless a record is told to lie.

/// A field as it stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Field number. Numbers that are not allowed can be written too.
    pub number: u32,
    /// Its value.
    pub value: Value,
}

/// What follows the tag.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number, in as few bytes as possible.
    Varint(u64),
    /// Four bytes.
    Fixed32([u8; 4]),
    /// Eight bytes.
    Fixed64([u8; 8]),
    /// A text, a blob or packed numbers.
    Bytes(Vec<u8>),
    /// What looks like a message.
    Message(Vec<Record>),
    /// A length that is not that of the content.
    Lying(u64, Vec<u8>),
    /// Bytes without a tag, in the place of a record.
    Raw(Vec<u8>),
}

/// Deeper than this, content is taken as bytes.
const MAX_DEPTH: usize = 12;

/// Field numbers of ONNX end at 26; content with others is hardly a message.
const MAX_NUMBER: u32 = 30;

/// A record with a number.
pub fn number(number: u32, value: i64) -> Record {
    Record { number, value: Value::Varint(value as u64) }
}

/// A record with a text or bytes.
pub fn bytes(number: u32, content: impl AsRef<[u8]>) -> Record {
    Record { number, value: Value::Bytes(content.as_ref().to_vec()) }
}

/// A record with a message.
pub fn message(number: u32, fields: impl Into<Vec<Record>>) -> Record {
    Record { number, value: Value::Message(fields.into()) }
}

/// Takes a message apart; `None` if the bytes are none.
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

/// Puts a message together.
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
        Value::Lying(length, bytes) => {
            tag(out, 2);
            push_varint(out, *length);
            out.extend_from_slice(bytes);
        }
        Value::Raw(bytes) => out.extend_from_slice(bytes),
    }
}

/// How many records there are on all levels.
pub fn count(records: &[Record]) -> usize {
    records
        .iter()
        .map(|record| match &record.value {
            Value::Message(fields) => 1 + count(fields),
            _ => 1,
        })
        .sum()
}

/// The record with this number, counted over all levels.
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

/// The list that holds the record with this number, counted over all levels, and its position
/// there.
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
    fn trees_come_back() {
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
    fn lies_are_written_as_told() {
        let record = Record { number: 1, value: Value::Lying(300, vec![7]) };
        assert_eq!(write(&[record]), b"\x0a\xac\x02\x07");
    }
}
