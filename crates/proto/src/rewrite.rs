//! Reads a message and writes it again, field by field, along the table.
//!
//! The output equals the input as long as varints are minimal: order, presence, unknown fields and
//! the choice between packed and unpacked are kept. Tools use this to change a message while
//! streaming it; tests use it to check that reader, writer and table agree.

use crate::error::Error;
use crate::read::{Limits, Reader};
use crate::table::MessageType;
use crate::write::{Encoder, try_encode_to_vec};

/// Reads `bytes` as a message and returns its encoding.
///
/// # Errors
///
/// An error of the reader.
pub fn rewrite<M: MessageType>(bytes: &[u8], limits: Limits) -> Result<Vec<u8>, Error> {
    try_encode_to_vec(|out| copy_fields(Reader::<M>::with_limits(bytes, limits), out))
}

pub(crate) fn copy_fields<'a, M: MessageType>(
    reader: Reader<'a, M>,
    out: &mut Encoder<'a>,
) -> Result<(), Error> {
    for field in reader {
        M::write_field(field?, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::*;
    use crate::*;

    /// Field 999 with every wire type; no message has this field.
    const UNKNOWN: &[u8] = b"\xb8\x3e\x05\xb9\x3e\x01\x02\x03\x04\x05\x06\x07\x08\xba\x3e\x02ab\xbd\x3e\x01\x02\x03\x04\xbb\x3e\x08\x01\xbc\x3e";

    /// Builds a message in which every field occurs, repeated ones twice and numbers in both
    /// encodings, nested up to `depth`.
    fn build_full(def: &MessageDef, depth: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let tag = |bytes: &mut Vec<u8>, number: u32, wire: u64| {
            push_varint(bytes, u64::from(number) << 3 | wire)
        };
        for field in def.fields {
            let times = if matches!(field.label, Label::Repeated | Label::Packed) { 2 } else { 1 };
            for time in 0..times {
                match field.kind {
                    FieldKind::Int64 | FieldKind::Uint64 => {
                        tag(&mut bytes, field.number, 0);
                        push_varint(&mut bytes, u64::MAX - time);
                    }
                    FieldKind::Int32 | FieldKind::Enum(_) => {
                        tag(&mut bytes, field.number, 0);
                        push_varint(&mut bytes, 77 + time);
                    }
                    FieldKind::Float => {
                        tag(&mut bytes, field.number, 5);
                        bytes.extend(1.5f32.to_le_bytes());
                    }
                    FieldKind::Double => {
                        tag(&mut bytes, field.number, 1);
                        bytes.extend((-2.5f64).to_le_bytes());
                    }
                    FieldKind::Text | FieldKind::Blob => {
                        tag(&mut bytes, field.number, 2);
                        push_varint(&mut bytes, 3);
                        bytes.extend(b"\x00\xffz");
                    }
                    FieldKind::Message(inner) => {
                        let inner =
                            if depth == 0 { Vec::new() } else { build_full(inner(), depth - 1) };
                        tag(&mut bytes, field.number, 2);
                        push_varint(&mut bytes, inner.len() as u64);
                        bytes.extend(inner);
                    }
                }
            }
            if times == 2
                && !matches!(field.kind, FieldKind::Message(_) | FieldKind::Text | FieldKind::Blob)
            {
                tag(&mut bytes, field.number, 2);
                push_varint(&mut bytes, 16);
                bytes.extend([1; 16]);
            }
        }
        bytes.extend(UNKNOWN);
        bytes
    }

    #[test]
    fn every_field_of_every_message_comes_back() {
        // WIRE-14+, WIRE-17+, WIRE-18+-, WIRE-20+-, WIRE-26
        fn check<M: MessageType>() {
            let bytes = build_full(M::DEF, 2);
            let again = rewrite::<M>(&bytes, Limits::default()).expect("well-formed");
            assert!(bytes == again, "{}", M::DEF.name);
            let known =
                Reader::<M>::new(&bytes).map(|field| format!("{:?}", field.expect("well-formed")));
            assert_eq!(
                known.filter(|field| field.starts_with("Unknown")).count(),
                5,
                "{}",
                M::DEF.name
            );
        }
        check::<ModelProto>();
        check::<OperatorSetIdProto>();
        check::<GraphProto>();
        check::<NodeProto>();
        check::<AttributeProto>();
        check::<ValueInfoProto>();
        check::<TensorProto>();
        check::<TensorSegment>();
        check::<SparseTensorProto>();
        check::<TensorShapeProto>();
        check::<Dimension>();
        check::<TypeProto>();
        check::<TensorTypeProto>();
        check::<SequenceTypeProto>();
        check::<MapTypeProto>();
        check::<OptionalTypeProto>();
        check::<SparseTensorTypeProto>();
        check::<OpaqueTypeProto>();
        check::<FunctionProto>();
        check::<TrainingInfoProto>();
        check::<StringStringEntryProto>();
        check::<TensorAnnotation>();
        check::<DeviceConfigurationProto>();
        check::<NodeDeviceConfigurationProto>();
        check::<ShardingSpecProto>();
        check::<IntIntListEntryProto>();
        check::<ShardedDimProto>();
        check::<SimpleShardedDimProto>();
        check::<OperatorSetProto>();
        check::<OperatorProto>();
        check::<SequenceProto>();
        check::<MapProto>();
        check::<OptionalProto>();
    }

    #[test]
    fn the_table_is_the_standard_s() {
        // WIRE-26: 33 messages with 166 fields, ascending and distinct
        assert_eq!(MESSAGES.len(), 33);
        assert_eq!(MESSAGES.iter().map(|message| message.fields.len()).sum::<usize>(), 166);
        for message in MESSAGES {
            assert!(
                message.fields.windows(2).all(|pair| pair[0].number < pair[1].number),
                "{}",
                message.name
            );
            for field in message.fields {
                assert_eq!(message.field(field.number).map(|f| f.name), Some(field.name));
            }
        }
    }

    #[test]
    fn fields_are_those_of_the_reference_schema() {
        // WIRE-26+, WIRE-16+: numbers, names, types and the set of packed lists
        let mut rows: Vec<String> = MESSAGES
            .iter()
            .flat_map(|message| message.fields.iter().map(|field| (message.name, field)))
            .map(|(message, field)| {
                let form = match field.label {
                    Label::Optional => "single",
                    Label::OneOf => "oneof",
                    Label::Repeated => "repeated",
                    Label::Packed => "packed",
                };
                let FieldDef { number, name, kind, .. } = field;
                format!("{message}\t{number}\t{name}\t{kind:?}\t{form}")
            })
            .collect();
        let reference = include_str!("../tests/fields.tsv").lines();
        let mut reference: Vec<&str> = reference.filter(|line| !line.starts_with('#')).collect();
        assert_eq!(reference.len(), 166);
        rows.sort();
        reference.sort_unstable();
        assert_eq!(rows, reference);
    }

    #[test]
    fn retired_and_foreign_fields_are_not_in_the_table() {
        // ATTR-19-, FUNC-30-: only fields of the table are written, and these are not in it.
        let retired: [(&MessageDef, &[u32], &[&str]); 2] = [
            (AttributeProto::DEF, &[12, 16, 17, 18, 19], &["v"]),
            (FunctionProto::DEF, &[2, 3], &["since_version", "status"]),
        ];
        for (def, numbers, names) in retired {
            for number in numbers {
                assert!(def.field(*number).is_none(), "{} {number}", def.name);
            }
            assert!(def.fields.iter().all(|field| !names.contains(&field.name)));
        }
        // ATTR-12+: attributes with values occur in nodes, and in functions as defaults.
        let mut places = Vec::new();
        for message in MESSAGES {
            for field in message.fields {
                if matches!(field.kind, FieldKind::Message(def) if def().name == "AttributeProto") {
                    places.push((message.name, field.name));
                }
                // TYPE-01-: the element type of a tensor is a number, not a nested type.
                if field.name == "elem_type" && message.name.contains("Tensor") {
                    assert!(matches!(field.kind, FieldKind::Int32), "{}", message.name);
                }
            }
        }
        assert_eq!(places, [("NodeProto", "attribute"), ("FunctionProto", "attribute_proto")]);
        // FUNC-33+: the parts of a function that a call sees
        let names: Vec<&str> = FunctionProto::DEF.fields.iter().map(|f| f.name).collect();
        for part in ["input", "output", "attribute", "attribute_proto", "opset_import", "node"] {
            assert!(names.contains(&part), "{part}");
        }
        // MODEL-21-: a document of the standard gives int32 as the type of an operator set's
        // `ir_version`; the schema has int64.
        let version = OperatorSetProto::DEF.field(2).expect("a field");
        assert_eq!(version.name, "ir_version");
        assert!(matches!(version.kind, FieldKind::Int64));
    }

    #[test]
    fn the_writer_writes_what_the_reader_reads() {
        // WIRE-03+, WIRE-09+, WIRE-16+, WIRE-27+, WIRE-33+, WIRE-34+: the FLOAT [2,3] initializer
        struct Initializer;
        impl Encode for Initializer {
            fn encode(&self, out: &mut Encoder<'_>) {
                out.put(tensor::Dims, &[2, 3]);
                out.put(tensor::DataType, DataType::FLOAT.0);
                out.put(tensor::Name, b"W");
                out.put(tensor::RawData, &[0; 24]);
            }
        }
        let mut expected = b"\x08\x02\x08\x03\x10\x01\x42\x01W\x4a\x18".to_vec();
        expected.extend([0; 24]);
        assert_eq!(encode_to_vec(&Initializer), expected);

        struct Nested<'a>(&'a [u8]);
        impl Encode for Nested<'_> {
            fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
                out.put(model::IrVersion, -1);
                out.put_message(model::Graph, |out| {
                    out.encode(graph::Initializer, &Initializer);
                    out.put_message(graph::Initializer, |out| {
                        out.put_payload(tensor::RawData, self.0)
                    });
                });
                out.put_message(model::Functions, |_| {});
            }
        }
        let payload = vec![7; 100_000];
        let bytes = encode_to_vec(&Nested(&payload));
        assert_eq!(&bytes[..11], b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
        assert_eq!(&bytes[bytes.len() - 3..], b"\xca\x01\x00");
        assert_eq!(Encoded::new(&Nested(&payload)).bytes(), bytes.len() as u64);
        assert_eq!(rewrite::<ModelProto>(&bytes, Limits::default()).as_deref(), Ok(&bytes[..]));

        let mut streamed = Vec::new();
        assert_eq!(
            encode_to_write(&Nested(&payload), &mut streamed).ok(),
            Some(bytes.len() as u64)
        );
        assert_eq!(streamed, bytes);
    }

    /// Builds a message of texts and bytes without the encoder.
    fn encode_by_hand(number: u32, fields: &[(u32, &[u8])]) -> Vec<u8> {
        let put = |out: &mut Vec<u8>, number: u32, content: &[u8]| {
            push_tag(out, number, WireType::Len);
            push_varint(out, content.len() as u64);
            out.extend(content);
        };
        let mut inner = Vec::new();
        for (number, content) in fields {
            put(&mut inner, *number, content);
        }
        let mut out = Vec::new();
        put(&mut out, number, &inner);
        out
    }

    #[test]
    fn payloads_and_lengths_stand_where_they_belong() {
        // Lengths take one to four bytes; contents are copied, stay in place, or are too large to
        // move.
        let sizes = [0, 100, 127, 128, 1_023, 1_024, 20_000, 70_000, 2_100_000];
        let doc = [b'd'; 90];
        let pairs = sizes.iter().flat_map(|first| sizes.map(|second| [*first, second]));
        for pair in pairs {
            let contents = pair.map(|size| vec![size as u8 | 1; size]);
            let graph = contents
                .each_ref()
                .map(|content| encode_by_hand(5, &[(8, b"w"), (9, content), (12, &doc)]));
            let graph = graph.concat();
            let mut expected = Vec::new();
            push_tag(&mut expected, 7, WireType::Len);
            push_varint(&mut expected, graph.len() as u64);
            expected.extend(graph);
            expected.extend(encode_by_hand(7, &[(2, b"g"), (10, &doc)]));
            for copied in [false, true] {
                let encoded = Encoded::from_fields(|out| {
                    out.put_message(model::Graph, |out| {
                        for content in &contents {
                            out.put_message(graph::Initializer, |out| {
                                out.put(tensor::Name, b"w");
                                if copied {
                                    out.put(tensor::RawData, content)
                                } else {
                                    out.put_payload(tensor::RawData, content)
                                }
                                out.put(tensor::DocString, &doc);
                            });
                        }
                    });
                    out.put_message(model::Graph, |out| {
                        out.put(graph::Name, b"g");
                        out.put(graph::DocString, &doc);
                    });
                });
                assert_eq!(encoded.bytes(), expected.len() as u64, "{pair:?}");
                let pieces: Vec<&[u8]> = encoded.slices().collect();
                assert!(pieces.concat() == expected, "{pair:?} in pieces");
                assert!(encoded.into_vec() == expected, "{pair:?} in one");
            }
        }
    }

    #[test]
    fn nested_messages_move_no_byte_often() {
        // WIRE-16: the length of each level takes more than one byte.
        fn write_nested(out: &mut Encoder<'_>, levels: usize) {
            out.put(graph::Name, &[b'n'; 30]);
            if levels > 0 {
                out.put_message(graph::Node, |out| {
                    out.put_message(node::Attribute, |out| {
                        out.put_message(attribute::G, |out| write_nested(out, levels - 1));
                    });
                });
            }
        }
        fn encode_nested(levels: usize) -> Vec<u8> {
            let mut content = Vec::new();
            for level in 0..=levels {
                let mut outer = vec![2 << 3 | 2, 30];
                outer.extend([b'n'; 30]);
                if level > 0 {
                    let attribute = encode_by_hand(5, &[(6, &content)]);
                    outer.push(1 << 3 | 2);
                    push_varint(&mut outer, attribute.len() as u64);
                    outer.extend(attribute);
                }
                content = outer;
            }
            content
        }
        let encoded = Encoded::from_fields(|out| write_nested(out, 2_000));
        assert!(encoded.into_vec() == encode_nested(2_000));
    }
}
