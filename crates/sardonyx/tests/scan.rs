//! Findings of the security scan: for each code, a minimal model that has only this finding.

use std::fs;
use std::path::Path;

use sardonyx::check::{ScanOptions, ScanReport, Severity};
use sardonyx_proto::{WireType, push_tag, push_varint};
use tempfile::tempdir;

/// Encodes a field with text, bytes or a message.
fn len(number: u32, content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_tag(&mut bytes, number, WireType::Len);
    push_varint(&mut bytes, content.as_ref().len() as u64);
    bytes.extend(content.as_ref());
    bytes
}

/// Encodes a field with a number.
fn int(number: u32, value: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_tag(&mut bytes, number, WireType::Varint);
    push_varint(&mut bytes, value as u64);
    bytes
}

const FLOAT: i64 = 1;
const INT64: i64 = 7;
const STRING: i64 = 8;

/// Encodes a model with `fields` beside version and operator set, and a graph called g with the
/// fields `graph`.
fn model_with(graph: &[Vec<u8>], fields: &[Vec<u8>]) -> Vec<u8> {
    let graph = [len(2, "g"), graph.concat()].concat();
    let opset = [len(1, ""), int(2, 21)].concat();
    [int(1, 10), len(7, graph), len(8, opset), fields.concat()].concat()
}

fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    model_with(graph, &[])
}

/// Encodes the fields of a tensor.
fn tensor(name: &str, data_type: i64, dims: &[i64], more: &[Vec<u8>]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| int(1, *dim)).collect();
    let name = match name {
        "" => Vec::new(),
        _ => len(8, name),
    };
    [dims, int(2, data_type), name, more.concat()].concat()
}

fn raw(bytes: usize) -> Vec<u8> {
    len(9, vec![0; bytes])
}

/// Encodes a model with one initializer.
fn with_tensor(data_type: i64, dims: &[i64], more: &[Vec<u8>]) -> Vec<u8> {
    model(&[len(5, tensor("w", data_type, dims, more))])
}

/// Encodes an initializer of integers.
fn shape(name: &str, numbers: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    let dims = [numbers.len() as i64];
    len(5, tensor(name, INT64, &dims, &[len(9, bytes)]))
}

/// Encodes a node, as a field of a graph.
fn node(op: &str, inputs: &[&str], outputs: &[&str], more: &[Vec<u8>]) -> Vec<u8> {
    len(1, node_fields(op, inputs, outputs, more))
}

fn node_fields(op: &str, inputs: &[&str], outputs: &[&str], more: &[Vec<u8>]) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|name| len(1, name)).collect();
    let outputs: Vec<u8> = outputs.iter().flat_map(|name| len(2, name)).collect();
    [inputs, outputs, len(4, op), more.concat()].concat()
}

/// Encodes an attribute, as a field of a node.
fn attribute(name: &str, ty: i64, value: Vec<u8>) -> Vec<u8> {
    len(5, [len(1, name), value, int(20, ty)].concat())
}

/// Encodes a function of the domain `own`, as a field of a model. Its body calls functions of that
/// domain.
fn function(name: &str, calls: &[&str]) -> Vec<u8> {
    let nodes = calls.iter().flat_map(|callee| {
        let domain = if *callee == "Relu" { "" } else { "own" };
        len(7, node_fields(callee, &["x"], &[], &[len(7, domain)]))
    });
    let nodes: Vec<u8> = nodes.collect();
    len(25, [len(1, name), len(4, "x"), nodes, len(10, "own")].concat())
}

/// Encodes an entry of `external_data`.
fn entry(key: &str, value: &str) -> Vec<u8> {
    len(13, [len(1, key), len(2, value)].concat())
}

/// Encodes an external tensor of four floats, as a field of a graph.
fn external(name: &str, entries: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<Vec<u8>> = entries.iter().map(|(key, value)| entry(key, value)).collect();
    let more = [entries.concat(), int(14, 1)];
    len(5, tensor(name, FLOAT, &[4], &more))
}

/// Returns the distinct codes of a report, in its order.
fn codes(report: &ScanReport) -> Vec<&'static str> {
    let mut codes: Vec<&'static str> = report.findings.iter().map(|found| found.code).collect();
    codes.dedup();
    codes
}

fn scan(bytes: &[u8]) -> ScanReport {
    ScanOptions::new().scan_bytes(bytes.to_vec()).unwrap()
}

/// Checks that each model has exactly the given findings.
fn check(rows: &[(&str, Vec<u8>, &[&str])]) {
    for (what, bytes, expected) in rows {
        let report = scan(bytes);
        assert_eq!(codes(&report), *expected, "{what}: {:#?}", report.findings);
    }
}

#[test]
fn honest_models_have_no_findings() {
    let rows: [(&str, Vec<u8>, &[&str]); 6] = [
        ("nothing", model(&[]), &[]),
        ("an empty tensor", with_tensor(FLOAT, &[0, 5], &[]), &[]), // TENSOR-04
        ("a scalar", with_tensor(FLOAT, &[], &[raw(4)]), &[]),      // TENSOR-03
        ("padding of a packed type", with_tensor(22, &[3], &[raw(2)]), &[]), // TENSOR-17
        (
            "an initializer with an input",
            model(&[
                shape("s", &[2]),
                len(11, len(1, "s")),
                node("ConstantOfShape", &["s"], &["y"], &[]),
            ]),
            &[],
        ),
        (
            "a function",
            model_with(&[node("F", &["x"], &["y"], &[len(7, "own")])], &[function("F", &["Relu"])]),
            &[],
        ), // FUNC-26
    ];
    check(&rows);
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx");
    let report = ScanOptions::new().scan(&digits).unwrap();
    assert_eq!(report.worst(), None, "{:#?}", report.findings);
    let facts = &report.facts;
    assert_eq!(facts.size, fs::metadata(&digits).unwrap().len());
    assert_eq!((facts.ir_version, facts.opsets[0].version), (Some(10), 21));
    assert_eq!((facts.graphs, facts.functions), (1, 0));
    assert!(facts.nodes > 5 && facts.tensors > 5 && facts.depth >= 3);
    assert!(facts.inside_bytes > 100_000 && facts.inside_bytes < facts.size);
    assert_eq!((facts.outside_claimed, facts.outside_present), (0, 0));
    assert_eq!(facts.domains[0].domain, "");
    assert_eq!(facts.domains[0].nodes, facts.nodes);
}

#[test]
fn files_that_are_no_models() {
    let whole = with_tensor(FLOAT, &[2], &[raw(8)]);
    let rows: [(&str, Vec<u8>, &[&str]); 9] = [
        ("nothing at all", Vec::new(), &["empty"]), // WIRE-36
        ("a web page", b"<html><body>404</body></html>".to_vec(), &["not-a-model"]),
        ("an image", b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec(), &["not-a-model"]),
        ("a pickle", b"\x80\x02}q\x00.".to_vec(), &["not-a-model"]),
        ("a pointer", b"version https://git-lfs.github.com/spec/v1\n".to_vec(), &["not-a-model"]),
        ("text", b"Hello, this is text.\n".to_vec(), &["not-a-model"]),
        ("a header only", int(1, 10), &["not-a-model"]),
        ("cut off", whole[..whole.len() - 9].to_vec(), &["truncated"]), // WIRE-12
        ("cut off in a number", b"\x08\x80".to_vec(), &["truncated"]),  // WIRE-07
    ];
    check(&rows);
    assert!(ScanOptions::new().scan("does/not/exist.onnx").is_err());
    let directory = tempdir().unwrap();
    assert!(ScanOptions::new().scan(directory.path()).is_err());
    let limited = ScanOptions::new().max_bytes(10);
    assert!(limited.scan_reader(&whole[..]).is_err());
    assert_eq!(ScanOptions::new().scan_reader(&whole[..]).unwrap().worst(), None);
}

#[test]
fn bytes_that_are_no_message() {
    let rows: [(&str, Vec<u8>, &str); 7] = [
        // WIRE-06, WIRE-04, WIRE-05, WIRE-07, WIRE-23, and WIRE-13-: enough bytes follow the
        // message.
        ("field 0", model(&[vec![0, 0]]), "field number 0"),
        ("wire type 6", model(&[vec![0x0e]]), "wire type 6"),
        ("an end without group", model(&[vec![0x0c]]), "group"),
        ("a length beyond its message", model(&[vec![0x12, 9, b'x']]), "9 bytes"),
        ("a long number", with_tensor(FLOAT, &[], &[vec![0x10; 1], vec![0xff; 11]]), "ten bytes"),
        ("half a float", with_tensor(FLOAT, &[1], &[len(4, [0; 6])]), "6 bytes"),
        ("half a number", with_tensor(INT64, &[1], &[len(7, [0x80])]), "ends inside"),
    ];
    for (what, bytes, words) in rows {
        let report = scan(&bytes);
        assert_eq!(codes(&report), ["malformed"], "{what}");
        let found = &report.findings[0];
        assert!(found.message.contains(words), "{what}: {found}");
        assert!(found.place.starts_with("byte "), "{what}: {found}");
        assert!(found.place.contains("field graph"), "{what}: {found}");
        assert_eq!(found.severity, Severity::Error);
        assert_eq!(found.requirement, Some("WIRE-12"));
    }
}

/// Encodes graphs that are nested in attributes of nodes, this many levels deep.
fn nest_graphs(levels: usize) -> Vec<u8> {
    let mut graph = len(2, "innermost");
    for _ in 0..levels {
        graph = node("If", &["c"], &[], &[attribute("then_branch", 5, len(6, graph))]);
    }
    [int(1, 10), len(7, graph)].concat()
}

#[test]
fn depth_and_number_of_messages_are_bounded() {
    // WIRE-32: a nested graph costs three levels
    let rows: [(&str, Vec<u8>, &[&str]); 4] = [
        ("100 levels", nest_graphs(33), &[]),
        ("103 levels", nest_graphs(34), &["deep-nesting"]),
        ("1003 levels", nest_graphs(334), &["too-deep", "deep-nesting"]),
        ("groups", model(&[vec![0x0b; 100_000]]), &["too-deep"]),
    ];
    check(&rows);
    assert_eq!(scan(&nest_graphs(33)).facts.depth, 100);
    let many = model(&vec![vec![0x0a, 0]; 1000]);
    let report = ScanOptions::new().max_messages(1000).scan_bytes(many.clone()).unwrap();
    assert_eq!(codes(&report), ["too-many-messages"]);
    assert_eq!(scan(&many).facts.nodes, 1000);
    // Elements of number lists count towards the limit; here each takes one byte.
    let list = attribute("a", 7, len(8, vec![1; (1 << 26) + 1]));
    let report = scan(&model(&[node("X", &[], &[], &[list])]));
    assert_eq!(codes(&report), ["too-many-messages"]);
    // The text of a place stays short at any depth.
    let report = scan(&nest_graphs(5000));
    assert!(report.findings[0].place.len() < 500);
}

#[test]
fn bytes_that_readers_take_differently() {
    let name = |name: &str| model(&[len(10, ""), node("Relu", &["x"], &[name], &[])]);
    let long = "n".repeat((64 << 10) + 1);
    let metadata = |value: &str| {
        let value = [len(1, "key"), len(2, value)].concat();
        model_with(&[], &[len(14, value)])
    };
    let elem_type = len(2, len(1, int(1, 99)));
    let rows: [(&str, Vec<u8>, &[&str]); 17] = [
        ("unknown field", model_with(&[], &[len(999, "x")]), &["unknown-field"]), // WIRE-19
        ("string for a number", model_with(&[], &[len(5, "x")]), &["wrong-wire-type"]), // WIRE-25
        ("two versions", model_with(&[], &[int(1, 9)]), &["field-twice"]),        // WIRE-21
        (
            "attribute type",
            model(&[node("Relu", &[], &[], &[attribute("a", 99, Vec::new())])]),
            &["unknown-enum"],
        ), // WIRE-24
        (
            "element type of an input",
            model(&[len(11, [len(1, "x"), elem_type].concat())]),
            &["unknown-enum"],
        ),
        ("data location", with_tensor(FLOAT, &[0], &[int(14, 7)]), &["unknown-enum"]), // TENSOR-30
        ("not UTF-8", model(&[len(10, b"\xff")]), &["invalid-utf8"]),                  // WIRE-35
        ("escape in a name", name("a\u{1b}[2J"), &["control-characters"]),
        ("line in a name", name("a\nb"), &["control-characters"]),
        ("line in documentation", model(&[len(10, "a\n\tb")]), &[]),
        ("escape in documentation", model(&[len(10, "a\u{1b}")]), &["control-characters"]),
        ("order of characters", name("a\u{202e}b"), &["deceptive-characters"]),
        ("no width", name("a\u{200b}b"), &["deceptive-characters"]),
        ("other letters", name("größe"), &[]),
        ("long name", name(&long), &["long-name"]),
        ("pickle", metadata("gASVDgAAAAAAAACMCmhlbGxvlC4="), &["pickle"]),
        ("base64", metadata("gAAVDgAAAAAAAACMCmhlbGxvlC4="), &[]),
    ];
    check(&rows);
    let pickle = attribute("s", 3, len(4, b"\x80\x04\x95\x01N."));
    let report = scan(&model(&[node("Relu", &[], &[], &[pickle])]));
    assert_eq!(codes(&report), ["pickle"]);
    let two = model_with(&[len(999, "x"), len(999, "y")], &[int(888, 1)]);
    let report = scan(&two);
    assert_eq!(report.notes, 2);
    let messages: Vec<&str> = report.findings.iter().map(|f| f.message.as_str()).collect();
    assert!(messages[0].contains("field 999 of GraphProto"), "{messages:?}");
    assert!(messages[0].contains("2 times, 8 bytes"), "{messages:?}");
    assert!(report.findings[0].place.contains("field graph"));
}

#[test]
fn tensors_that_contradict_themselves() {
    let floats = |count: usize| len(4, vec![0; 4 * count]);
    let rank = vec![1; 65];
    let rows: [(&str, Vec<u8>, &[&str]); 27] = [
        ("negative", with_tensor(FLOAT, &[-1], &[]), &["negative-dim"]), // TENSOR-33
        ("overflow", with_tensor(FLOAT, &[1 << 40, 1 << 40], &[]), &["size-overflow"]), // TENSOR-32
        ("overflow and 0", with_tensor(FLOAT, &[1 << 40, 1 << 40, 0], &[]), &["size-overflow"]),
        ("no type", with_tensor(0, &[0], &[]), &["unknown-element-type"]), // TENSOR-09
        ("other type", with_tensor(99, &[0], &[]), &["unknown-element-type"]),
        ("rank", with_tensor(FLOAT, &rank, &[raw(4)]), &["high-rank"]),
        ("segment", with_tensor(FLOAT, &[0], &[len(3, int(1, 0))]), &["segment"]), // TENSOR-29
        ("huge of nothing", with_tensor(FLOAT, &[1 << 40], &[]), &["no-data"]),    // TENSOR-11
        ("huge of little", with_tensor(FLOAT, &[1 << 40], &[raw(4)]), &["data-too-short"]), // TENSOR-26
        ("scalar of nothing", with_tensor(FLOAT, &[], &[]), &["no-data"]), // TENSOR-03
        ("too few", with_tensor(FLOAT, &[6], &[floats(5)]), &["data-too-short"]), // TENSOR-01
        ("empty list", with_tensor(FLOAT, &[6], &[floats(0)]), &["no-data"]),
        ("one of both parts", with_tensor(14, &[1], &[floats(1)]), &["data-too-short"]), // TENSOR-12
        ("packed", with_tensor(22, &[3], &[raw(1)]), &["data-too-short"]), // TENSOR-17
        ("packed list", with_tensor(22, &[3], &[len(5, [1, 2])]), &[]),    // TENSOR-15
        ("two bits", with_tensor(26, &[4], &[len(5, [1])]), &[]),          // TENSOR-16
        ("six bits", with_tensor(27, &[4], &[raw(3)]), &[]),               // TENSOR-40
        ("six bits in a list", with_tensor(27, &[4], &[len(5, [1, 2, 3])]), &["data-too-short"]), // TENSOR-41
        ("surplus", with_tensor(FLOAT, &[1], &[raw(5)]), &["surplus-bytes"]),
        ("surplus of nothing", with_tensor(FLOAT, &[0], &[raw(5)]), &["surplus-bytes"]), // TENSOR-04
        ("strings", with_tensor(STRING, &[1], &[len(6, "a"), len(6, "b")]), &["surplus-bytes"]),
        ("no packing", with_tensor(INT64, &[2], &[int(7, 1), int(7, 2)]), &[]), // WIRE-14
        ("two payloads", with_tensor(FLOAT, &[1], &[raw(4), floats(1)]), &["two-payloads"]), // TENSOR-10
        ("two lists", with_tensor(FLOAT, &[1], &[floats(1), len(7, [1])]), &["two-payloads"]),
        ("wrong list", with_tensor(INT64, &[1], &[len(5, [1])]), &["wrong-list"]), // TENSOR-19
        ("strings in bytes", with_tensor(STRING, &[1], &[raw(8)]), &["strings-in-raw-data"]), // TENSOR-23
        (
            "in an attribute",
            model(&[node(
                "Constant",
                &[],
                &["c"],
                &[attribute("value", 4, len(5, tensor("", 99, &[0], &[])))],
            )]),
            &["unknown-element-type"],
        ),
    ];
    check(&rows);
}

/// Checks that tensors are checked in every place, with a main graph or without.
#[test]
fn tensors_are_found_wherever_they_stand() {
    let value = tensor("", FLOAT, &[-1], &[]);
    let constant = node("Constant", &[], &["c"], &[attribute("value", 4, len(5, value))]);
    let branch = attribute("then_branch", 5, len(6, constant.clone()));
    let default = [len(1, "value"), len(5, tensor("", FLOAT, &[-1], &[])), int(20, 4)].concat();
    let body = |fields: &[u8]| len(25, [len(1, "F"), fields.to_vec(), len(10, "own")].concat());
    let rows: [(Vec<u8>, &str); 5] = [
        (with_tensor(FLOAT, &[-1], &[]), "graph.initializer[0] 'w'"),
        (model(std::slice::from_ref(&constant)), "graph.node[0] (Constant) 'value'"),
        (
            model(&[node("If", &["c"], &[], &[branch])]),
            "graph.node[0] 'then_branch'.node[0] (Constant) 'value'",
        ),
        (body(&len(7, &constant[2..])), "functions[0] 'F'.node[0] (Constant) 'value'"),
        (body(&len(11, default)), "functions[0] 'F'.attribute_proto[0]"),
    ];
    for (bytes, place) in rows {
        let report = scan(&bytes);
        assert_eq!(codes(&report), ["negative-dim"], "{place}: {:#?}", report.findings);
        assert_eq!(report.findings[0].place, place);
    }
    // Findings beyond the limit of a code are counted.
    let many = model(&vec![len(5, tensor("w", FLOAT, &[-1], &[])); 50]);
    let report = ScanOptions::new().findings_per_code(3).scan_bytes(many).unwrap();
    assert_eq!((report.errors, report.warnings, report.findings.len()), (50, 49, 8));
}

#[test]
fn long_lists_are_estimated_and_not_read() {
    // Two million bytes of varints, which may encode from 200 thousand to two million numbers.
    let block = len(7, vec![1u8; 2_000_000]);
    for (elements, expected) in
        [(2_000_000, None), (2_000_001, Some("data-too-short")), (199_999, Some("surplus-bytes"))]
    {
        let report = scan(&with_tensor(INT64, &[elements], std::slice::from_ref(&block)));
        assert_eq!(codes(&report).first().copied(), expected);
    }
}

#[test]
fn sparse_tensors_that_grow() {
    // TENSOR-34: values, indices, dims
    let sparse = |dims: &[i64]| {
        let values = len(1, tensor("s", FLOAT, &[1], &[raw(4)]));
        let indices = len(2, tensor("", INT64, &[1], &[raw(8)]));
        let dims: Vec<u8> = dims.iter().flat_map(|dim| int(3, *dim)).collect();
        model(&[len(15, [values, indices, dims].concat())])
    };
    let rows: [(&str, Vec<u8>, &[&str]); 4] = [
        ("fine", sparse(&[1 << 14, 1 << 14]), &[]),
        ("bomb", sparse(&[1 << 20, 1 << 20]), &["sparse-expansion"]),
        ("overflow", sparse(&[1 << 40, 1 << 40]), &["size-overflow"]),
        ("negative", sparse(&[-5]), &["negative-dim"]),
    ];
    check(&rows);
    let strict = ScanOptions::new().max_sparse(10, 10);
    let report = strict.scan_bytes(sparse(&[5, 5])).unwrap();
    assert_eq!(codes(&report), ["sparse-expansion"]);
}

#[test]
fn nodes_that_make_much_of_nothing() {
    let huge = [1 << 20, 1 << 20];
    let made = |op: &str, inputs: &[&str], more: &[Vec<u8>]| {
        let shapes = [
            shape("huge", &huge),
            shape("pads", &[0, 0, 1 << 40, 0]),
            shape("many", &[1 << 40]),
            shape("zero", &[0]),
            shape("one", &[1]),
        ];
        let names = ["huge", "pads", "many", "zero", "one"];
        let mut fields: Vec<Vec<u8>> = Vec::new();
        for (name, shape) in names.iter().zip(shapes) {
            if inputs.contains(name) {
                fields.push(shape);
            }
        }
        fields.push(node(op, inputs, &["y"], more));
        model(&fields)
    };
    let ints: Vec<u8> = huge.iter().flat_map(|n| int(8, *n)).collect();
    let shape_attribute = attribute("shape", 7, ints.clone());
    let scales: Vec<u8> = [1e6f32, 1e6]
        .iter()
        .flat_map(|scale| [&[0x3d][..], &scale.to_le_bytes()].concat())
        .collect();
    let rows: [(&str, Vec<u8>, &[&str]); 20] = [
        ("ConstantOfShape", made("ConstantOfShape", &["huge"], &[]), &["expansion"]),
        ("a variable", made("ConstantOfShape", &["x"], &[]), &[]),
        ("Expand", made("Expand", &["x", "huge"], &[]), &["expansion"]),
        ("Tile", made("Tile", &["x", "huge"], &[]), &["expansion"]),
        ("Range", made("Range", &["zero", "many", "one"], &[]), &["expansion"]),
        ("Range without steps", made("Range", &["zero", "many", "zero"], &[]), &["expansion"]),
        (
            "RandomNormal",
            made("RandomNormal", &[], std::slice::from_ref(&shape_attribute)),
            &["expansion"],
        ),
        (
            "RandomUniform",
            made("RandomUniform", &[], std::slice::from_ref(&shape_attribute)),
            &["expansion"],
        ),
        ("Pad", made("Pad", &["x", "pads"], &[]), &["expansion"]),
        ("old Pad", made("Pad", &["x"], &[attribute("pads", 7, ints.clone())]), &[]),
        ("Resize to sizes", made("Resize", &["x", "", "", "huge"], &[]), &["expansion"]),
        ("Resize by scales", made("Resize", &["x", "", "huge"], &[]), &["expansion"]),
        (
            "old Upsample",
            made("Upsample", &["x"], &[attribute("scales", 6, scales)]),
            &["expansion"],
        ),
        ("Upsample", made("Upsample", &["x", "huge"], &[]), &["expansion"]),
        ("OneHot", made("OneHot", &["x", "many", "x"], &[]), &["expansion"]),
        (
            "EyeLike",
            model(&[
                len(5, tensor("w", FLOAT, &[1 << 20, 1 << 20], &[])),
                node("EyeLike", &["w"], &["y"], &[]),
            ]),
            &["no-data", "expansion"],
        ),
        ("HannWindow", made("HannWindow", &["many"], &[]), &["expansion"]),
        ("Loop", made("Loop", &["many", "c"], &[]), &["long-loop"]),
        (
            "a default of an input",
            model(&[
                shape("huge", &huge),
                len(11, len(1, "huge")),
                node("ConstantOfShape", &["huge"], &["y"], &[]),
            ]),
            &["expansion"],
        ),
        (
            "a Constant",
            model(&[
                node("Constant", &[], &["huge"], &[attribute("value_ints", 7, ints)]),
                node("ConstantOfShape", &["huge"], &["y"], &[]),
            ]),
            &["expansion"],
        ),
    ];
    check(&rows);
    let small = made("ConstantOfShape", &["one"], &[]);
    let report = ScanOptions::new().max_elements(0).scan_bytes(small).unwrap();
    assert_eq!(codes(&report), ["expansion"]);
    assert!(report.findings[0].place.contains("graph.node[0] (ConstantOfShape)"));
}

#[test]
fn operators_of_others() {
    // MODEL-19
    let of = |domain: &str, op: &str| model(&[node(op, &["x"], &["y"], &[len(7, domain)])]);
    let rows: [(&str, Vec<u8>, &[&str]); 8] = [
        ("standard", of("ai.onnx", "Relu"), &[]),
        ("standard too", of("ai.onnx.ml", "Scaler"), &[]),
        ("custom", of("com.acme", "Op"), &["custom-domain"]),
        ("Python", of("ai.onnx.contrib", "PyOp"), &["foreign-code", "custom-domain"]),
        ("Python too", of("com.microsoft", "PythonOp"), &["foreign-code", "custom-domain"]),
        ("compiled", of("com.microsoft", "EPContext"), &["foreign-code", "custom-domain"]),
        ("network", of("com.microsoft.extensions", "X"), &["foreign-code", "custom-domain"]),
        (
            "own",
            model_with(
                &[node("PyOp", &["x"], &["y"], &[len(7, "own")])],
                &[function("PyOp", &["Relu"])],
            ),
            &[],
        ),
    ];
    check(&rows);
    let two = [
        node("A", &[], &["a"], &[len(7, "com.acme")]),
        node("A", &[], &["b"], &[len(7, "com.acme")]),
        node("B", &[], &["c"], &[len(7, "com.acme")]),
    ];
    let report = scan(&model(&two));
    assert_eq!(report.findings[0].message, "3 nodes of the domain 'com.acme': A, B");
    assert_eq!(report.facts.domains[0].operators, 2);
}

#[test]
fn functions_in_circles_and_avalanches() {
    let call = |name: &str| [node(name, &["x"], &["y"], &[len(7, "own")])];
    let mut avalanche = vec![function("F0", &["Relu"; 10])];
    for level in 1..=12 {
        let callee = format!("F{}", level - 1);
        avalanche.push(function(&format!("F{level}"), &[callee.as_str(); 10]));
    }
    let rows: [(&str, Vec<u8>, &[&str]); 6] = [
        ("itself", model_with(&call("F"), &[function("F", &["F"])]), &["recursive-functions"]),
        (
            "each other",
            model_with(
                &[],
                &[function("F", &["G"]), function("G", &["F"]), function("H", &["F", "Relu"])],
            ),
            &["recursive-functions"],
        ),
        // FUNC-26
        (
            "a chain",
            model_with(&call("F"), &[function("F", &["G", "G"]), function("G", &["Relu"])]),
            &[],
        ),
        ("ten to the thirteenth", model_with(&call("F12"), &avalanche), &["billion-laughs"]),
        ("not called", model_with(&call("F2"), &avalanche), &[]),
        // FUNC-02
        (
            "twice",
            model_with(&call("F"), &[function("F", &["Relu"]), function("F", &["Relu"])]),
            &["duplicate-function"],
        ),
    ];
    check(&rows);
    let report = scan(&rows[1].1);
    assert_eq!(report.errors, 2, "{:#?}", report.findings);
    let report = scan(&rows[3].1);
    assert!(report.findings[0].message.contains("10000000000000 nodes"));
}

#[test]
fn graphs_that_contradict_themselves() {
    let input = |name: &str| len(11, len(1, name));
    let relu = |from: &str, to: &str| node("Relu", &[from], &[to], &[]);
    let branch = len(6, [len(2, "b"), relu("y", "z")].concat());
    let rows: [(&str, Vec<u8>, &[&str]); 9] = [
        // NAME-02, GRAPH-10
        ("inputs", model(&[input("x"), input("x")]), &["duplicate-definition"]),
        ("initializers", model(&[shape("w", &[1]), shape("w", &[1])]), &["duplicate-definition"]),
        ("outputs", model(&[relu("x", "y"), relu("x", "y")]), &["duplicate-definition"]),
        ("input and output", model(&[input("x"), relu("x", "x")]), &["duplicate-definition"]),
        ("left out", model(&[node("Split", &["x"], &["", "", "y"], &[])]), &[]),
        // GRAPH-03
        ("a circle", model(&[relu("a", "b"), relu("b", "a"), relu("b", "c")]), &["cycle"]),
        ("itself", model(&[relu("a", "a")]), &["cycle"]),
        (
            "through a branch",
            model(&[node("If", &["c"], &["y"], &[attribute("then_branch", 5, branch)])]),
            &["cycle"],
        ),
        ("another order", model(&[relu("a", "b"), relu("x", "a")]), &[]),
    ];
    check(&rows);
    let report = scan(&rows[5].1);
    assert_eq!(report.findings[0].message, "2 nodes depend on each other's results");
}

#[test]
fn references_that_make_no_sense() {
    let rows: [(&str, Vec<u8>, &[&str]); 19] = [
        ("no location", model(&[external("w", &[])]), &["location-missing"]), // EXT-02
        ("empty", model(&[external("w", &[("location", "")])]), &["location-empty"]),
        ("escapes", model(&[external("w", &[("location", "../w")])]), &["location-escapes"]), // EXT-09
        ("absolute", model(&[external("w", &[("location", "/w")])]), &["location-absolute"]), // EXT-10
        ("memory", model(&[external("w", &[("location", "#w")])]), &["location-address"]), // EXT-26
        (
            "address",
            model(&[external(
                "w",
                &[("location", "_ORT_MEM_ADDR_"), ("offset", "140737488355328")],
            )]),
            &["location-address"],
        ),
        ("offset", model(&[external("w", &[("location", "w"), ("offset", "x")])]), &["bad-offset"]), // EXT-07
        (
            "negative",
            model(&[external("w", &[("location", "w"), ("offset", "-1")])]),
            &["bad-offset"],
        ),
        ("sign", model(&[external("w", &[("location", "w"), ("length", "+16")])]), &["bad-length"]),
        (
            "too large",
            model(&[external("w", &[("location", "w"), ("length", "99999999999999999999")])]),
            &["bad-length"],
        ),
        (
            "overflow",
            model(&[external(
                "w",
                &[("location", "w"), ("offset", "18446744073709551615"), ("length", "16")],
            )]),
            &["range-overflow", "unaligned"],
        ), // EXT-14
        (
            "other length",
            model(&[external("w", &[("location", "w"), ("length", "17")])]),
            &["length-mismatch"],
        ), // EXT-16
        (
            "unknown key",
            model(&[external("w", &[("location", "w"), ("foo", "1")])]),
            &["unknown-key"],
        ), // EXT-15
        ("after loading", model(&[external("w", &[("location", "w"), ("basepath", "/x")])]), &[]),
        (
            "two keys",
            model(&[external("w", &[("location", "v"), ("location", "w")])]),
            &["duplicate-key"],
        ), // META-08
        (
            "unaligned",
            model(&[external("w", &[("location", "w"), ("offset", "16")])]),
            &["unaligned"],
        ), // EXT-12
        (
            "strings",
            model(&[len(5, tensor("w", STRING, &[4], &[entry("location", "w"), int(14, 1)]))]),
            &["external-strings"],
        ), // EXT-18
        (
            "both",
            model(&[len(
                5,
                tensor("w", FLOAT, &[4], &[entry("location", "w"), int(14, 1), raw(16)]),
            )]),
            &["external-and-inline"],
        ), // EXT-03
        (
            "no effect",
            model(&[len(5, tensor("w", FLOAT, &[4], &[entry("location", "w"), raw(16)]))]),
            &["external-data-ignored"],
        ), // EXT-17-
    ];
    for (what, bytes, expected) in rows {
        let report = scan(&bytes);
        // EXT-22: without a directory, data files are not checked
        let found: Vec<&str> =
            codes(&report).into_iter().filter(|code| *code != "data-files-not-looked-at").collect();
        assert_eq!(found, expected, "{what}: {:#?}", report.findings);
    }
    // EXT-21: external tensors in attributes, subgraphs and functions
    let value = tensor("", FLOAT, &[1], &[entry("location", "/etc/x"), int(14, 1)]);
    let constant = node("Constant", &[], &["c"], &[attribute("value", 4, len(5, value))]);
    let branch = attribute("then_branch", 5, len(6, constant.clone()));
    let body = [len(1, "F"), len(7, &constant[2..])].concat();
    for graph in [
        model(std::slice::from_ref(&constant)),
        model(&[node("If", &["c"], &[], &[branch])]),
        model_with(&[], &[len(25, body)]),
    ] {
        assert_eq!(scan(&graph).findings[0].code, "location-absolute");
    }
}

/// Scans a model in a directory with these files.
fn scan_beside(files: &[(&str, usize)], graph: &[Vec<u8>], options: &ScanOptions) -> ScanReport {
    let directory = tempdir().unwrap();
    for (name, size) in files {
        fs::write(directory.path().join(name), vec![0; *size]).unwrap();
    }
    let path = directory.path().join("model.onnx");
    fs::write(&path, model(graph)).unwrap();
    options.scan(&path).unwrap()
}

#[test]
fn data_files_are_compared_with_what_tensors_claim() {
    let at = |name, offset, length| {
        external(name, &[("location", "w"), ("offset", offset), ("length", length)])
    };
    let options = ScanOptions::new();
    let rows: [(&str, usize, Vec<Vec<u8>>, &[&str]); 11] = [
        ("fits", 16, vec![at("a", "0", "16")], &[]), // EXT-04
        ("no length", 16, vec![external("a", &[("location", "w")])], &[]),
        ("cut off", 15, vec![at("a", "0", "16")], &["range-beyond-end"]), // EXT-14
        (
            "cut off, no length",
            15,
            vec![external("a", &[("location", "w")])],
            &["range-beyond-end"],
        ),
        (
            "far away",
            16,
            vec![at("a", "1000000000000001", "16")],
            &["range-beyond-end", "unaligned"],
        ),
        ("a page each", 8192, vec![at("a", "0", "16"), at("b", "4096", "16")], &[]), // EXT-06+, EXT-12
        ("the same", 16, vec![at("a", "0", "16"), at("b", "0", "16")], &["shared-range"]),
        (
            "meet",
            24,
            vec![at("a", "0", "16"), at("b", "8", "16")],
            &["overlapping-ranges", "unaligned"],
        ), // EXT-06-
        ("hidden", 200_000, vec![at("a", "0", "16")], &["unreferenced-bytes"]),
        (
            "hidden between",
            200_016,
            vec![at("a", "0", "16"), at("b", "200000", "16")],
            &["unaligned", "unreferenced-bytes"],
        ),
        (
            "digest",
            16,
            vec![external("a", &[("location", "w"), ("checksum", "12")])],
            &["checksum-malformed"],
        ), // EXT-05+-
    ];
    for (what, size, graph, expected) in rows {
        let report = scan_beside(&[("w", size)], &graph, &options);
        let mut found = codes(&report);
        found.sort_unstable();
        assert_eq!(found, expected, "{what}: {:#?}", report.findings);
        assert_eq!(report.facts.outside_present, size as u64);
        assert_eq!(report.facts.data_files[0].size, Some(size as u64));
    }
    let report = scan_beside(&[], &[at("a", "0", "16"), at("b", "0", "16")], &options);
    assert_eq!(codes(&report), ["data-file-missing", "shared-range"]);
    assert_eq!((report.errors, report.facts.data_files[0].size), (1, None));
    assert_eq!(report.facts.outside_claimed, 32);
    // A small file whose tensor claims much memory.
    let entries = [entry("location", "w"), int(14, 1)].concat();
    let huge = len(5, tensor("a", FLOAT, &[1 << 30], &[entries]));
    let report = scan_beside(&[("w", 16)], &[huge], &options);
    assert_eq!(codes(&report), ["range-beyond-end", "claims-exceed-files"]);
}

#[test]
fn digests_are_compared_on_request() {
    // EXT-05: 16 zero bytes
    let right = "e129f27c5103bc5cc44bcdf0a15e160d445066ff";
    let wrong = "e129f27c5103bc5cc44bcdf0a15e160d445066fe";
    let with = |name, checksum| external(name, &[("location", "w"), ("checksum", checksum)]);
    let rows = [
        (vec![with("a", right)], false, vec![]),
        (vec![with("a", right)], true, vec![]),
        (vec![with("a", wrong)], false, vec![]),
        (vec![with("a", wrong)], true, vec!["checksum-mismatch"]),
        (
            vec![with("a", right), with("b", wrong)],
            false,
            vec!["checksum-conflict", "shared-range"],
        ),
    ];
    for (graph, compare, expected) in rows {
        let options = ScanOptions::new().checksums(compare);
        let report = scan_beside(&[("w", 16)], &graph, &options);
        assert_eq!(codes(&report), expected, "{:#?}", report.findings);
    }
}

#[cfg(unix)]
#[test]
fn only_regular_files_of_the_directory_are_looked_at() {
    // EXT-11
    use std::os::unix::fs::symlink;
    let scratch = tempdir().unwrap();
    let (directory, outside) = (scratch.path().join("directory"), scratch.path().join("outside"));
    fs::create_dir_all(directory.join("sub")).unwrap();
    fs::write(&outside, [0; 16]).unwrap();
    fs::write(directory.join("file"), [0; 16]).unwrap();
    fs::write(directory.join("first"), [0; 16]).unwrap();
    fs::hard_link(directory.join("first"), directory.join("second")).unwrap();
    symlink("file", directory.join("inside")).unwrap();
    symlink(&outside, directory.join("out")).unwrap();
    symlink("..", directory.join("up")).unwrap();
    symlink("nothing", directory.join("dangling")).unwrap();
    symlink("round", directory.join("round")).unwrap();
    let mkfifo = std::process::Command::new("mkfifo").arg(directory.join("pipe")).status();
    assert!(mkfifo.unwrap().success());
    let path = directory.join("model.onnx");
    let rows: [(&[&str], &[&str]); 12] = [
        (&["file"], &[]),
        (&["./file"], &[]),
        (&["file", "./file"], &["same-file", "shared-range"]),
        (&["inside"], &["link-inside"]),
        (&["out"], &["link-outside"]),
        (&["up/outside"], &["link-outside"]),
        (&["dangling"], &["data-file-missing"]),
        (&["round"], &["data-file-unreadable"]),
        (&["second"], &["hard-link"]),
        (&["sub"], &["not-a-file"]),
        (&["pipe"], &["not-a-file"]),
        (&["sub/none"], &["data-file-missing"]),
    ];
    for (locations, expected) in rows {
        let tensors: Vec<Vec<u8>> = locations
            .iter()
            .enumerate()
            .map(|(i, location)| external(&format!("w{i}"), &[("location", location)]))
            .collect();
        fs::write(&path, model(&tensors)).unwrap();
        let report = ScanOptions::new().scan(&path).unwrap();
        assert_eq!(codes(&report), expected, "{locations:?}: {:#?}", report.findings);
        // A scan of bytes with a directory gives equal findings.
        let options = ScanOptions::new().directory(&directory);
        let report = options.scan_bytes(model(&tensors)).unwrap();
        assert_eq!(codes(&report), expected);
    }
}

#[test]
fn reports_stay_small() {
    let tensors: Vec<Vec<u8>> = (0..1000)
        .map(|i| len(5, tensor(&format!("{i}{}", "n".repeat(1000)), FLOAT, &[-1], &[])))
        .collect();
    let report = scan(&model(&tensors));
    assert_eq!((report.findings.len(), report.errors), (21, 1000));
    assert_eq!(report.findings[20].message, "and 980 more findings of this kind");
    assert!(report.findings.iter().all(|found| found.place.len() < 200));
    let report = ScanOptions::new().findings_per_code(3).scan_bytes(model(&tensors)).unwrap();
    assert_eq!((report.findings.len(), report.errors), (4, 1000));
}

#[test]
fn damaged_models_are_scanned_without_harm() {
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits/digits.onnx");
    let mut bytes = fs::read(digits).unwrap();
    // A pseudo-random generator with a fixed seed, so that every run damages the same bytes.
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..300 {
        let at = next() % 2000.min(bytes.len());
        let before = bytes[at];
        bytes[at] = next() as u8;
        let report = scan(&bytes);
        assert!(report.findings.len() < 1000);
        if next() % 3 == 0 {
            bytes[at] = before;
        }
    }
}

#[test]
fn weights_are_not_read() {
    // WIRE-31+: sizes have 64 bits. A sparse file of ten gigabytes, of which the disk stores only
    // the nonzero blocks.
    let bytes = 10u64 << 30;
    let fields = tensor("w", FLOAT, &[(bytes / 4) as i64], &[]);
    let mut payload = Vec::new();
    push_tag(&mut payload, 9, WireType::Len);
    push_varint(&mut payload, bytes);
    let inner = [fields, payload].concat();
    let mut graph = len(2, "g");
    push_tag(&mut graph, 5, WireType::Len);
    push_varint(&mut graph, inner.len() as u64 + bytes);
    graph.extend(&inner);
    let mut start = int(1, 10);
    push_tag(&mut start, 7, WireType::Len);
    push_varint(&mut start, graph.len() as u64 + bytes);
    start.extend(&graph);
    let directory = tempdir().unwrap();
    let path = directory.path().join("large.onnx");
    fs::write(&path, &start).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Some systems do not support sparse files.
    if file.set_len(start.len() as u64 + bytes).is_err() {
        return;
    }
    let begun = std::time::Instant::now();
    let report = ScanOptions::new().scan(&path).unwrap();
    assert!(begun.elapsed().as_secs() < 5);
    assert_eq!(codes(&report), ["large-file"]);
    assert_eq!(report.facts.inside_bytes, bytes);
}

#[test]
fn data_files_are_not_looked_for_forever() {
    let tensors: Vec<Vec<u8>> =
        (0..100_001).map(|i| external("", &[("location", &format!("{i}"))])).collect();
    let report = scan(&model(&tensors));
    let expected = ["too-many-data-files", "data-files-not-looked-at"];
    assert_eq!(codes(&report), expected);
    assert_eq!(report.facts.data_files.len(), 1000);
}
