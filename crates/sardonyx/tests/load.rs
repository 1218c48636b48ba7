//! Tests of warnings and positions of loaded texts, and of messages that are not whole models.

use std::fs;

use sardonyx::io::{Access, ModelFormat};
use sardonyx::tool::message::{Header, MessagePart};
use sardonyx::tool::{ModelExt, message};
use sardonyx::{ErrorKind, Model, OpenOptions, check, text, tool};

const TEXT: &str = "<ir_version: 10, opset_import: [\"\": 21]>\n\
    g (float[2] x) => (float[2] y)\n\
    <float[2] \"w\" = {}>\n\
    {\n\
    \x20 y = Add(x, missing)\n\
    }\n";

#[test]
fn a_text_comes_with_its_warnings_and_places() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.onnxtxt");
    fs::write(&path, TEXT).unwrap();
    let options = OpenOptions::new().access(Access::Read);
    for loaded in [options.load(&path), options.load_reader(TEXT.as_bytes())] {
        let loaded = loaded.unwrap();
        let warnings: Vec<&str> =
            loaded.warnings.iter().map(|found| found.message.as_str()).collect();
        assert_eq!(warnings, ["0 values, but the shape asks for 2"]);
        let report = loaded.model.check(&check::CheckOptions::new().skip_data_files(true));
        let places = loaded.positions(&report.findings).into_iter().flatten();
        let lines: Vec<(usize, usize)> = places.map(|found| (found.line, found.column)).collect();
        assert!(lines.contains(&(5, 14)), "{lines:?}");
    }
    // A binary model has no text to point into.
    let loaded = options.load_bytes(Model::from_text(TEXT).unwrap().to_bytes()).unwrap();
    let report = loaded.model.check(&check::CheckOptions::new());
    assert!(loaded.text.is_none() && report.errors > 0);
    assert!(loaded.positions(&report.findings).iter().all(Option::is_none));
}

#[test]
fn empty_messages_are_models_only_for_lenient_readers() {
    // No bytes, and only ir_version 10.
    for bytes in [&b""[..], b"\x08\x0a"] {
        let options = OpenOptions::new().form(ModelFormat::Binary);
        let error = options.from_bytes(bytes.to_vec()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format);
        let model = options.lenient(true).from_bytes(bytes.to_vec()).unwrap();
        assert_eq!(model.node_count(), 0);
        assert_eq!(model.to_bytes(), bytes);
    }
    // Damaged bytes are refused by lenient readers too. WIRE-13-: so is a length beyond the end of
    // its message: of a node, of an operator's name, of a tensor's data. The bytes that follow are
    // valid fields of the model, so a reader that ignores the end of the message would accept them.
    for damaged in [
        &b"\x3a\x05\x0a"[..],
        b"\x3a\x02\x0a\x06\x22\x04Relu",
        b"\x3a\x04\x0a\x02\x22\x04\x12\x02me",
        b"\x3a\x08\x2a\x06\x08\x01\x10\x01\x4a\x04\x12\x02me",
    ] {
        let read =
            OpenOptions::new().form(ModelFormat::Binary).lenient(true).from_bytes(damaged.to_vec());
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Format, "{damaged:x?}");
    }
}

#[test]
fn messages_stand_alone() {
    let header = Header { ir_version: Some(10), opset_imports: [(String::new(), 21)].into() };
    let options = check::CheckOptions::new();
    let rows = [
        (tool::TextPart::Node, "y = Relu<odd = 1>(x)", MessagePart::Node, "unknown-attribute"),
        (tool::TextPart::Tensor, "float[2] t = {1, 2}", MessagePart::Tensor, ""),
        (
            tool::TextPart::Graph,
            "g (float[2] x) => (float[2] y) { y = Relu(z) }",
            MessagePart::Graph,
            "undefined-value",
        ),
    ];
    for (kind, text, part, expected) in rows {
        let bytes = tool::parse_part(kind, text.as_bytes().to_vec()).unwrap();
        let model = message::read(&bytes, part, &header).unwrap();
        let report = model.check_part(part.into(), &options);
        let found = report.findings.first().map_or("", |found| found.code.name);
        assert_eq!(found, expected, "{text}");
        let (printed, _) = text::PrintOptions::new().print_message(&model, part).unwrap();
        assert_eq!(printed.is_empty(), part == MessagePart::Tensor, "{text}");
    }
    let error = message::read(b"\x0a\x05x", MessagePart::Node, &header).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format);
    assert!(error.message().contains("NodeProto"), "{error}");
}
