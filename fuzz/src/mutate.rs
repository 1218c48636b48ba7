//! Changes to inputs: of bytes, of the records of a message, of the words of a text, and between
//! two inputs.

use crate::corpus::{Corpus, Form};
use crate::random::Random;
use crate::wire_tree::{self, Record, Value, push_varint};

/// Longest input that is made, in bytes. Small inputs allow more inputs a second.
pub const MAX_INPUT: usize = 16 << 10;

/// Numbers near the bounds of types and limits.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    8,
    9,
    16,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    999,
    1000,
    1001,
    4096,
    65_535,
    65_536,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    1 << 61,
    (1 << 62) - 1,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Invalid or unknown records, to be put in the place of a record.
const INTRUDERS: &[&[u8]] = &[
    b"\x00",
    b"\x00\x00",
    b"\x0b",
    b"\x0c",
    b"\x0b\x0c",
    b"\x0b\x13\x14\x0c",
    b"\x0b\x14",
    b"\x0e",
    b"\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\x8a\x80\x80\x80\x00\x00",
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\xf8\xff\xff\xff\x0f\x00",
    b"\x80\x80\x80\x80\x10\x00",
    b"\xb8\x3e\x05",
    b"\xbb\x3e\x08\x01\xbc\x3e",
];

/// Words of the texts that are read: JSON, protobuf's text format and headers of arrays.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "<",
    ">",
    "\"",
    "'",
    ":",
    ",",
    ";",
    "#",
    "\\",
    "\n",
    " ",
    "-",
    "+",
    ".",
    "e9",
    "null",
    "true",
    "false",
    "NaN",
    "Infinity",
    "-Infinity",
    "inf",
    "nan",
    "\\u0000",
    "\\ud800",
    "\\udc00",
    "\\x00",
    "\\377",
    "\\400",
    "0x",
    "017",
    "1e999",
    "-0",
    "0.5",
    "1.",
    "[]",
    "{}",
    "\"\"",
    "{{{{{{{{",
    "[[[[[[[[",
    "((((((((",
    "\"__metadata__\"",
    "\"dtype\"",
    "\"shape\"",
    "\"data_offsets\"",
    "'descr'",
    "'fortran_order'",
    "'shape'",
    "True",
    "'<f4'",
    "'|O'",
    "'<U9'",
    "graph",
    "node",
    "initializer",
    "dims",
    "rawData",
    "int32Data",
    "EXTERNAL",
    "\u{feff}",
    "é",
];

/// Makes an input from one or two samples of a corpus.
pub fn mutate(corpus: &Corpus, random: &mut Random) -> Vec<u8> {
    let sample = random.choose(&corpus.samples);
    let mut bytes = match &sample.tree {
        Some(tree) if !random.one_in(3) => {
            let mut tree = tree.clone();
            for _ in 0..draw_rounds(random) {
                change_tree(&mut tree, corpus, random);
            }
            let mut selector = corpus.selector_of(sample).to_vec();
            if random.one_in(8) {
                selector.iter_mut().for_each(|byte| *byte = random.number() as u8);
            }
            [selector, wire_tree::write(&tree)].concat()
        }
        _ => {
            let mut bytes = sample.bytes.clone();
            if random.one_in(8) {
                bytes = splice(&bytes, &random.choose(&corpus.samples).bytes, random);
            }
            for _ in 0..draw_rounds(random) {
                match corpus.form {
                    Form::Text if random.one_in(2) => change_text(&mut bytes, random),
                    _ => change_bytes(&mut bytes, random),
                }
            }
            bytes
        }
    };
    if random.one_in(12) {
        change_bytes(&mut bytes, random);
    }
    if !random.one_in(8) {
        (corpus.repair)(&mut bytes);
    }
    bytes.truncate(MAX_INPUT);
    bytes
}

/// Draws the number of changes: mostly one, rarely many.
fn draw_rounds(random: &mut Random) -> usize {
    let mut rounds = 1;
    while rounds < 16 && random.one_in(2) {
        rounds += 1;
    }
    rounds
}

fn draw_number(random: &mut Random) -> u64 {
    let number = *random.choose(NUMBERS);
    match random.below(6) {
        0 => number.wrapping_sub(1),
        1 => number.wrapping_add(1),
        2 => number.wrapping_neg(),
        3 => random.number() >> random.below(64),
        _ => number,
    }
}

/// Joins the beginning of `a` and the end of `b`.
fn splice(a: &[u8], b: &[u8], random: &mut Random) -> Vec<u8> {
    let (end, start) = (random.below(a.len() + 1), random.below(b.len() + 1));
    [&a[..end], &b[start..]].concat()
}

/// Draws a range within `len` bytes. Most are short, as records are.
fn draw_range(len: usize, random: &mut Random) -> std::ops::Range<usize> {
    let start = random.below(len + 1);
    let most = if random.one_in(4) { len } else { 16 };
    let end = (start + 1 + random.below(most)).min(len);
    start..end.max(start)
}

fn change_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len());
    let some = !bytes.is_empty();
    match random.below(11) {
        0 if some => bytes[at] ^= 1 << random.below(8),
        1 if some => bytes[at] = *random.choose(&[0, 1, 0x7f, 0x80, 0xff, b'0', b'9', 0x0a, 0x12]),
        2 if some => bytes[at] = random.number() as u8,
        3 if some => bytes[at] = bytes[at].wrapping_add(random.below(9) as u8).wrapping_sub(4),
        4 => change_length(bytes, random),
        5 => bytes.truncate(at),
        6 => {
            let copied = bytes[draw_range(bytes.len(), random)].to_vec();
            let times = if random.one_in(8) { 1 + random.below(64) } else { 1 };
            let room = MAX_INPUT.saturating_sub(bytes.len());
            let many = copied.repeat(times.min(room / copied.len().max(1)));
            insert(bytes, &many, random);
        }
        7 => {
            bytes.drain(draw_range(bytes.len(), random));
        }
        8 => {
            let mut number = Vec::new();
            match random.below(4) {
                0 => push_varint(&mut number, draw_number(random)),
                1 => number.extend((draw_number(random) as u32).to_le_bytes()),
                2 => number.extend(draw_number(random).to_le_bytes()),
                _ => number.extend(draw_number(random).to_string().bytes()),
            }
            if random.one_in(2) {
                insert(bytes, &number, random);
            } else {
                overwrite(bytes, &number, random);
            }
        }
        9 => {
            let intruder = *random.choose(INTRUDERS);
            insert(bytes, intruder, random);
        }
        _ => {
            let noise: Vec<u8> = (0..1 + random.below(8)).map(|_| random.number() as u8).collect();
            insert(bytes, &noise, random);
        }
    }
}

fn insert(bytes: &mut Vec<u8>, new: &[u8], random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    bytes.splice(at..at, new.iter().copied());
}

fn overwrite(bytes: &mut [u8], new: &[u8], random: &mut Random) {
    let at = random.below(bytes.len());
    for (old, new) in bytes[at..].iter_mut().zip(new) {
        *old = *new;
    }
}

/// Finds a byte that may be the tag of a length-prefixed value and changes the length after it by a
/// little or by a lot.
fn change_length(bytes: &mut Vec<u8>, random: &mut Random) {
    let start = random.below(bytes.len());
    let tag = (start..bytes.len().saturating_sub(1)).find(|at| bytes[*at] & 0x87 == 2);
    let Some(at) = tag.map(|tag| tag + 1) else {
        return;
    };
    let end = (at..bytes.len()).find(|end| bytes[*end] < 0x80).map_or(bytes.len(), |last| last + 1);
    let old =
        bytes[at..end].iter().rev().fold(0u64, |value, byte| value << 7 | u64::from(byte & 0x7f));
    let new = match random.below(4) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => (bytes.len() - end) as u64,
        _ => draw_number(random),
    };
    let mut varint = Vec::new();
    push_varint(&mut varint, new);
    bytes.splice(at..end, varint);
}

fn change_text(bytes: &mut Vec<u8>, random: &mut Random) {
    match random.below(4) {
        0 => {
            let word = *random.choose(WORDS);
            insert(bytes, word.as_bytes(), random);
        }
        1 => {
            // Replace a number.
            let start = random.below(bytes.len());
            let Some(at) = (start..bytes.len()).find(|at| bytes[*at].is_ascii_digit()) else {
                return;
            };
            let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit());
            let end = at + digits.count();
            let number = draw_number(random);
            let text = match random.below(4) {
                0 => (number as i64).to_string(),
                _ => number.to_string(),
            };
            bytes.splice(at..end, text.into_bytes());
        }
        2 => {
            // Remove or repeat the text between two word breaks.
            let breaks: Vec<usize> = (0..bytes.len())
                .filter(|at| {
                    matches!(bytes[*at], b' ' | b',' | b'{' | b'}' | b'[' | b']' | b'\n' | b'"')
                })
                .collect();
            if breaks.is_empty() {
                return;
            }
            let (a, b) = (*random.choose(&breaks), *random.choose(&breaks));
            let (a, b) = (a.min(b), a.max(b));
            if random.one_in(2) {
                bytes.drain(a..b);
            } else {
                let copied = bytes[a..b].to_vec();
                bytes.splice(a..a, copied);
            }
        }
        _ => {
            // Replace a range with a word.
            let range = draw_range(bytes.len(), random);
            let word = *random.choose(WORDS);
            bytes.splice(range, word.bytes());
        }
    }
}

fn change_tree(tree: &mut Vec<Record>, corpus: &Corpus, random: &mut Random) {
    let index = random.below(wire_tree::count(tree));
    let foreign = if random.one_in(3) { choose_foreign_record(corpus, random) } else { None };
    let Some((list, at)) = wire_tree::find(tree, index) else {
        tree.extend(foreign);
        return;
    };
    if let Some(foreign) = foreign {
        match random.below(3) {
            0 => list[at].value = foreign.value,
            1 => list[at] = foreign,
            _ => list.insert(at, foreign),
        }
        return;
    }
    match random.below(10) {
        0 => {
            list.remove(at);
        }
        1 => {
            let copy = list[at].clone();
            let times = if random.one_in(8) { 1 + random.below(40) } else { 1 };
            list.splice(at..at, std::iter::repeat_n(copy, times));
        }
        2 => {
            let other = random.below(list.len());
            list.swap(at, other);
        }
        3 => {
            list[at].number = match random.below(4) {
                0 => *random.choose(&[0, 999, (1 << 29) - 1, 1 << 29]),
                1 => list[at].number.wrapping_add(1) & 0x1f,
                _ => 1 + random.below(26) as u32,
            }
        }
        4 => {
            let intruder = random.choose(INTRUDERS).to_vec();
            let value = Value::Raw(intruder);
            list.insert(at, Record { number: 0, value });
        }
        5 => {
            // Nest the record in records of its own number, a few times or very often.
            let times =
                if random.one_in(16) { 50 + random.below(700) } else { 1 + random.below(4) };
            let number = list[at].number;
            for _ in 0..times {
                let inner = std::mem::replace(&mut list[at], wire_tree::number(number, 0));
                list[at] = wire_tree::message(number, vec![inner]);
            }
        }
        6 => {
            let content = match &list[at].value {
                Value::Bytes(bytes) => bytes.clone(),
                Value::Message(fields) => wire_tree::write(fields),
                _ => Vec::new(),
            };
            let length = match random.below(3) {
                0 => (content.len() as u64).wrapping_add(1),
                1 => (content.len() as u64).wrapping_sub(1),
                _ => draw_number(random),
            };
            list[at].value = Value::WrongLength(length, content);
        }
        _ => change_value(&mut list[at].value, random),
    }
}

fn choose_foreign_record(corpus: &Corpus, random: &mut Random) -> Option<Record> {
    let tree = random.choose(&corpus.samples).tree.as_ref()?;
    let index = random.below(wire_tree::count(tree));
    wire_tree::get(tree, index).cloned()
}

fn change_value(value: &mut Value, random: &mut Random) {
    if random.one_in(8) {
        // Replace the value with one of another wire type.
        *value = match random.below(4) {
            0 => Value::Varint(draw_number(random)),
            1 => Value::Fixed32((draw_number(random) as u32).to_le_bytes()),
            2 => Value::Fixed64(draw_number(random).to_le_bytes()),
            _ => Value::Bytes(draw_number(random).to_le_bytes().to_vec()),
        };
        return;
    }
    match value {
        Value::Varint(number) => {
            *number = match random.below(3) {
                0 => number.wrapping_add(random.below(5) as u64).wrapping_sub(2),
                _ => draw_number(random),
            }
        }
        Value::Fixed32(bytes) => *bytes = (draw_number(random) as u32).to_le_bytes(),
        Value::Fixed64(bytes) => *bytes = draw_number(random).to_le_bytes(),
        Value::Bytes(bytes) if random.one_in(2) => change_text(bytes, random),
        Value::Bytes(bytes) => change_bytes(bytes, random),
        Value::Message(fields) => {
            fields.clear();
        }
        Value::WrongLength(length, _) => *length = draw_number(random),
        Value::Raw(bytes) => change_bytes(bytes, random),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROPERTIES;

    #[test]
    fn inputs_are_repeatable_and_mostly_small_and_distinct() {
        for property in PROPERTIES {
            let corpus = Corpus::load(property).unwrap();
            let make = |index| mutate(&corpus, &mut Random::new(1, index));
            let inputs: Vec<Vec<u8>> = (0..2000).map(make).collect();
            assert!(inputs.iter().enumerate().all(|(i, input)| *input == make(i as u64)));
            assert!(inputs.iter().all(|input| input.len() <= MAX_INPUT));
            let small = inputs.iter().filter(|input| input.len() < 4 << 10).count();
            assert!(small > 1800, "{}: {small}", property.name);
            let distinct: std::collections::HashSet<_> = inputs.iter().collect();
            assert!(distinct.len() > 1500, "{}: {}", property.name, distinct.len());
        }
    }
}
