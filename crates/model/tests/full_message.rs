//! Checks that models with every field of the format are written back byte for byte.

// In a test, a panic is the report.
#![allow(clippy::unwrap_used)]

use sardonyx_model::{Model, NoExternalData};
use sardonyx_proto::{FieldKind, Label, MessageDef, MessageType, ModelProto};
use sardonyx_tensor::{Buffer, DataType};

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn tag(out: &mut Vec<u8>, number: u32, wire_type: u64) {
    varint(out, u64::from(number) << 3 | wire_type);
}

fn field(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    tag(out, number, 2);
    varint(out, content.len() as u64);
    out.extend(content);
}

/// Builds messages with every field of the table, in the order and encoding of the reference's
/// writer.
struct Maker {
    /// Counter that makes texts distinct.
    texts: u32,
    /// Position of the member that is set in each `oneof`, modulo the number of members.
    member: usize,
    /// Whether fields outside the table follow each field.
    unknown: bool,
    /// Whether fields are present but hold their defaults.
    defaults: bool,
}

impl Maker {
    fn message(&mut self, def: &MessageDef, depth: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let members = def.fields.iter().filter(|field| field.label == Label::OneOf);
        let members: Vec<u32> = members.map(|field| field.number).collect();
        let chosen = members.get(self.member % members.len().max(1)).copied();
        for known in def.fields {
            if known.label == Label::OneOf && chosen != Some(known.number) {
                continue;
            }
            self.push_known(&mut out, known.number, known.kind, known.label, depth);
            if self.unknown {
                // A number between this field's and the next one's, or else one that no message
                // uses.
                let free = (known.number + 1..).find(|number| def.field(*number).is_none());
                field(&mut out, free.unwrap_or(999), b"\x00later");
            }
        }
        if self.unknown {
            // The other wire types, including a group.
            out.extend(
                b"\xb8\x3e\x05\xb9\x3e\x01\x02\x03\x04\x05\x06\x07\x08\xbd\x3e\x01\x02\x03\x04",
            );
            out.extend(b"\xbb\x3e\x08\x01\xbc\x3e");
        }
        out
    }

    fn push_known(
        &mut self,
        out: &mut Vec<u8>,
        number: u32,
        kind: FieldKind,
        label: Label,
        depth: usize,
    ) {
        if label == Label::Packed {
            let block: &[u8] = match kind {
                FieldKind::Float => &[0, 0, 0x80, 0x3f, 1, 0, 0xc0, 0x7f],
                FieldKind::Double => &[1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
                _ => b"\x05\x96\x01\x00",
            };
            return field(out, number, block);
        }
        let times = if label == Label::Repeated { 2 } else { 1 };
        for time in 0..times {
            let value = if self.defaults { 0 } else { 1 + time };
            match kind {
                FieldKind::Int64 | FieldKind::Uint64 => {
                    tag(out, number, 0);
                    varint(out, if value == 0 { 0 } else { u64::MAX - value });
                }
                FieldKind::Int32 | FieldKind::Enum(_) => {
                    tag(out, number, 0);
                    varint(out, value * 77);
                }
                FieldKind::Float => {
                    tag(out, number, 5);
                    out.extend((value as f32).to_le_bytes());
                }
                FieldKind::Double => {
                    tag(out, number, 1);
                    out.extend((value as f64).to_le_bytes());
                }
                FieldKind::Text | FieldKind::Blob if self.defaults => field(out, number, b""),
                FieldKind::Text | FieldKind::Blob => {
                    self.texts += 1;
                    let text = format!("é{}\0\u{1F600}", self.texts);
                    field(out, number, text.as_bytes());
                }
                FieldKind::Message(_) if depth == 0 => field(out, number, b""),
                FieldKind::Message(def) => {
                    let inner = self.message(def(), depth - 1);
                    field(out, number, &inner);
                }
            }
        }
    }
}

#[test]
fn every_field_comes_back() {
    // WIRE-17+, WIRE-18+-, WIRE-20+-, WIRE-24+, WIRE-26, WIRE-33, MODEL-20+-, MODEL-23+-,
    // META-02+, META-08+
    for (member, unknown, defaults) in [
        (0, false, false),
        (1, true, false),
        (2, false, true),
        (3, true, true),
        (4, true, false),
        (5, false, false),
    ] {
        let mut maker = Maker { texts: 0, member, unknown, defaults };
        let bytes = maker.message(ModelProto::DEF, 6);
        assert!(bytes.len() > 1000);
        let model = Model::read(Buffer::from_vec(bytes.clone())).unwrap();
        let again = model.to_bytes();
        let differs = bytes.iter().zip(&again).position(|(a, b)| a != b);
        assert_eq!(differs, None, "of {} and {} bytes", bytes.len(), again.len());
        assert_eq!(bytes.len(), again.len());
        assert_eq!(model.to_encoded().bytes(), bytes.len() as u64);
        assert!(!model.tensors().is_empty());
        let places = model.tensor_places();
        assert_eq!(model.tensors().len(), places.len());
        // EXT-21: including those of graphs in the defaults of functions.
        let in_default =
            |place: &String| place.contains(".attribute_proto[") && place.contains(".initializer[");
        assert!(places.iter().any(in_default), "{places:#?}");
    }
}

#[test]
fn an_empty_name_of_a_node_stays_empty() {
    // WIRE-18
    let mut nodes = Vec::new();
    for name in [None, Some("")] {
        let mut node = Vec::new();
        field(&mut node, 1, b"x");
        field(&mut node, 2, b"y");
        if let Some(name) = name {
            field(&mut node, 3, name.as_bytes());
        }
        field(&mut node, 4, b"Op");
        field(&mut nodes, 1, &node);
    }
    let mut bytes = Vec::new();
    field(&mut bytes, 7, &nodes);
    let model = Model::read(Buffer::from_vec(bytes.clone())).unwrap();
    assert_eq!(model.to_bytes(), bytes);
}

#[test]
fn the_last_of_two_alternatives_stays() {
    fn nest(numbers: &[u32], content: &[u8]) -> Vec<u8> {
        let mut content = content.to_vec();
        for number in numbers.iter().rev() {
            let mut outer = Vec::new();
            field(&mut outer, *number, &content);
            content = outer;
        }
        content
    }
    // Position of the alternatives in a model, both of them, and the last one.
    let dimension = [7, 11, 2, 1, 2, 1];
    let rows: [(&[u32], &[u8], &[u8]); 4] = [
        // TYPE-21-: a tensor, then a sequence; and in reverse order
        (&[7, 11, 2], b"\x0a\x02\x08\x01\x22\x00", b"\x22\x00"),
        (&[7, 11, 2], b"\x22\x00\x0a\x02\x08\x01", b"\x0a\x02\x08\x01"),
        // SHAPE-01-: a number, then a name; and in reverse order
        (&dimension, b"\x08\x03\x12\x01N", b"\x12\x01N"),
        (&dimension, b"\x12\x01N\x08\x03", b"\x08\x03"),
    ];
    for (place, both, last) in rows {
        let model = Model::read(Buffer::from_vec(nest(place, both))).unwrap();
        assert_eq!(model.to_bytes(), nest(place, last), "{place:?} {both:x?}");
    }
}

/// Builds a model with one tensor from its encoded fields.
fn with_tensor(fields: &[u8]) -> Model {
    let mut graph = Vec::new();
    field(&mut graph, 5, fields);
    let mut bytes = b"\x08\x0e".to_vec();
    field(&mut bytes, 7, &graph);
    let model = Model::read(Buffer::from_vec(bytes.clone())).unwrap();
    assert!(model.to_bytes() == bytes, "{bytes:x?}");
    model
}

#[test]
fn every_element_type_in_every_form_of_storage() {
    // TENSOR-08, TENSOR-12, TENSOR-13, TENSOR-19, TENSOR-20, TENSOR-21, TENSOR-22+, WIRE-15+,
    // WIRE-38-
    for number in 1..=28 {
        let data_type = DataType::from_number(number).unwrap();
        if data_type == DataType::String {
            continue;
        }
        // Eight elements fill whole bytes for every type; booleans are 0 or 1.
        let len = data_type.storage_bytes(8).unwrap();
        let raw: Vec<u8> =
            (0..len as u8)
                .map(|byte| {
                    if data_type == DataType::Bool {
                        byte & 1
                    } else {
                        byte.wrapping_mul(37) & 0x7f
                    }
                })
                .collect();
        let head = |fields: &mut Vec<u8>| {
            tag(fields, 1, 0);
            varint(fields, 8);
            tag(fields, 2, 0);
            varint(fields, number as u64);
        };
        let value = |fields: &[u8]| {
            let model = with_tensor(fields);
            let id = model.tensors()[0];
            let tensor = model.tensor(model.stored_tensor(id), &NoExternalData).unwrap();
            tensor.buffer().unwrap().as_slice().to_vec()
        };
        let mut in_raw = Vec::new();
        head(&mut in_raw);
        field(&mut in_raw, 9, &raw);
        assert_eq!(value(&in_raw), raw, "{data_type} raw");

        let typed = sardonyx_proto::DataType(number);
        let entries = sardonyx_proto::encode_typed(typed, &raw, 8).unwrap();
        let list = typed.typed_field().unwrap().name();
        let fields = sardonyx_proto::TensorProto::DEF.fields;
        let list = fields.iter().find(|field| field.name == list);
        let number = list.unwrap().number;
        let (mut packed, mut single) = (Vec::new(), Vec::new());
        let (mut in_block, mut one_by_one) = (Vec::new(), Vec::new());
        head(&mut in_block);
        head(&mut one_by_one);
        for entry in entries {
            match number {
                4 => {
                    packed.extend((entry as u32).to_le_bytes());
                    tag(&mut single, number, 5);
                    single.extend((entry as u32).to_le_bytes());
                }
                10 => {
                    packed.extend(entry.to_le_bytes());
                    tag(&mut single, number, 1);
                    single.extend(entry.to_le_bytes());
                }
                _ => {
                    varint(&mut packed, entry);
                    tag(&mut single, number, 0);
                    varint(&mut single, entry);
                }
            }
        }
        field(&mut in_block, number, &packed);
        one_by_one.extend(&single);
        assert_eq!(value(&in_block), raw, "{data_type} packed");
        assert_eq!(value(&one_by_one), raw, "{data_type} one tag each");
    }
}
