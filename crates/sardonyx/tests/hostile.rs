//! Opens malicious files: each must give an error that names the fault, quickly and in little
//! memory.
//!
//! A process of its own opens each file, so that a stack overflow or a kill by the system fails
//! only that row, and so that peak memory can be measured. Opening a file means reading the model,
//! loading the values of all its tensors, and building a session.

#![allow(clippy::unwrap_used)] // a panic is the report

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use sardonyx::{Error, ErrorKind, Model, Session};
use tempfile::tempdir;

/// Time limit for opening a file. Larger in debug builds, which are slow and run in parallel.
const TIME: Duration = Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 100 });

/// Limit of the process's peak memory in bytes, the program included.
const MEMORY: u64 = 64 << 20;

/// Environment variable with the path of the file that the child process opens.
const VARIABLE: &str = "SARDONYX_HOSTILE_FILE";

struct Row {
    name: &'static str,
    /// Name of the file, whose suffix may select its form.
    file: &'static str,
    /// Returns the content of the file, and may create other files in the directory.
    make: Box<dyn Fn(&Path) -> Vec<u8>>,
    expected: Expected,
}

enum Expected {
    /// Opening fails with this kind of error and these words in its message.
    Refused(ErrorKind, &'static str),
    /// Opening may succeed or fail: only time and memory are checked.
    Borne,
}

fn row(
    name: &'static str,
    make: impl Fn(&Path) -> Vec<u8> + 'static,
    kind: ErrorKind,
    words: &'static str,
) -> Row {
    Row { name, file: "model.onnx", make: Box::new(make), expected: Expected::Refused(kind, words) }
}

/// Makes a row for a file with fixed content.
fn bytes(
    name: &'static str,
    bytes: impl Into<Vec<u8>>,
    kind: ErrorKind,
    words: &'static str,
) -> Row {
    let bytes = bytes.into();
    row(name, move |_| bytes.clone(), kind, words)
}

/// Makes a row for a file that is valid but large.
fn large(name: &'static str, bytes: Vec<u8>) -> Row {
    Row { expected: Expected::Borne, ..self::bytes(name, bytes, ErrorKind::Format, "") }
}

/// Makes a row for a file in a textual form, which the name of the file selects.
fn text(
    name: &'static str,
    file: &'static str,
    content: impl Into<Vec<u8>>,
    words: &'static str,
) -> Row {
    Row { file, ..bytes(name, content, ErrorKind::Format, words) }
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Encodes a length-prefixed field.
fn field(number: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&varint(number << 3 | 2), &varint(content.len() as u64), content].concat()
}

/// Encodes a varint field.
fn number(field: u64, value: i64) -> Vec<u8> {
    [varint(field << 3), varint(value as u64)].concat()
}

/// Encodes nested length-prefixed fields: `wrap(&[7, 1], …)` is a node of a model's graph.
fn wrap(path: &[u64], content: impl AsRef<[u8]>) -> Vec<u8> {
    let innermost = content.as_ref().to_vec();
    path.iter().rev().fold(innermost, |content, number| field(*number, content))
}

/// Encodes a model with this graph, an IR version and an operator set import.
fn model(graph: impl AsRef<[u8]>) -> Vec<u8> {
    let opset = field(8, [field(1, ""), number(2, 17)].concat());
    [number(1, 8), field(7, graph), opset].concat()
}

/// Encodes a float tensor `w` with these dims and further fields.
fn tensor(dims: &[i64], rest: &[Vec<u8>]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| number(1, *dim)).collect();
    [dims, number(2, 1), field(8, "w"), rest.concat()].concat()
}

/// Encodes a model whose graph has only an initializer.
fn initializer(tensor: Vec<u8>) -> Vec<u8> {
    model([field(2, "g"), field(5, tensor)].concat())
}

fn node(op: &str, attribute: &[u8]) -> Vec<u8> {
    let attribute = if attribute.is_empty() { vec![] } else { field(5, attribute) };
    field(1, [field(2, "y"), field(4, op), attribute].concat())
}

/// Encodes a model whose initializer `w` of four floats has these `external_data` entries.
fn external(entries: &[(&str, &str)]) -> Vec<u8> {
    let entries: Vec<u8> = entries
        .iter()
        .flat_map(|(key, value)| field(13, [field(1, key), field(2, value)].concat()))
        .collect();
    initializer(tensor(&[4], &[entries, number(14, 1)]))
}

/// Encodes a model whose initializer `w` of four floats is in the data file at `location`.
fn external_at(location: &str) -> Vec<u8> {
    external(&[("location", location)])
}

/// Encodes length-prefixed fields that are nested `levels` times along `path`. Computes lengths
/// from the inside out, as copying each level would take quadratic time.
fn nest(levels: usize, path: &[u64], innermost: &[u8]) -> Vec<u8> {
    let mut heads: Vec<Vec<u8>> = Vec::new();
    let mut length = innermost.len();
    for number in path.iter().rev().cycle().take(levels * path.len()) {
        let head = [varint(number << 3 | 2), varint(length as u64)].concat();
        length += head.len();
        heads.push(head);
    }
    heads.reverse();
    [heads.concat(), innermost.to_vec()].concat()
}

/// Lists files that are not valid protobuf.
fn broken_structure() -> Vec<Row> {
    use ErrorKind::Format;
    let announced = "is declared, but only";
    let mut rows = vec![
        bytes("empty", [], Format, "is empty"),
        bytes("zeros", [0; 1000], Format, "field number 0"),
        bytes("length beyond the end of the file", b"\x3a\x64\x0a\x00", Format, announced),
        bytes("length beyond the end of a graph", field(7, b"\x0a\x64\x0a\x00"), Format, announced),
        bytes("length of 2^63", b"\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", Format, announced),
        bytes(
            "length of 2^64 - 1",
            b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            Format,
            announced,
        ),
        bytes("name of 2^31 bytes", field(7, b"\x12\x80\x80\x80\x80\x08name"), Format, announced),
        bytes("overlong tag", [0x80; 11], Format, "more than ten bytes"),
        bytes(
            "overlong number",
            [&[0x08][..], &[0xff; 11]].concat(),
            Format,
            "more than ten bytes",
        ),
        bytes(
            "overlong length",
            [&[0x3a][..], &[0xff; 11]].concat(),
            Format,
            "more than ten bytes",
        ),
        bytes("field number 0 in a node", wrap(&[7, 1], b"\x02\x00"), Format, "field number 0"),
        bytes("field number 2^29", b"\x80\x80\x80\x80\x10\x00", Format, "field number 536870912"),
        bytes("wire type 6", b"\x08\x0a\x3e", Format, "wire type 6"),
        bytes("wire type 7 in an attribute", wrap(&[7, 1, 5], b"\x0f"), Format, "wire type 7"),
        bytes("group end without a group", b"\x08\x0a\x7c", Format, "end of a group"),
        bytes("group ended by another", b"\x7b\x08\x01\x84\x01", Format, "end of a group"),
        bytes("group without an end", b"\x7b\x08\x01", Format, "the data ends"),
        bytes(
            "groups 10,000 deep",
            [[0x0b; 10_000], [0x0c; 10_000]].concat(),
            Format,
            "nested more than",
        ),
        bytes(
            "packed floats that are not whole",
            wrap(&[7, 5, 4], [0; 23]),
            Format,
            "whole number of 4-byte",
        ),
        bytes(
            "packed doubles that are not whole",
            wrap(&[7, 5, 10], [0; 9]),
            Format,
            "whole number of 8-byte",
        ),
        bytes("packed dims that end early", wrap(&[7, 5, 1], b"\x01\x80"), Format, "the data ends"),
        bytes(
            "packed ints that end early",
            wrap(&[7, 1, 5, 8], b"\x01\x80"),
            Format,
            "the data ends",
        ),
    ];
    // Truncated at every level, with correct lengths around the cut.
    let levels: [(&'static str, &[u64]); 16] = [
        ("graph", &[7]),
        ("node", &[7, 1]),
        ("attribute", &[7, 1, 5]),
        ("attribute tensor", &[7, 1, 5, 5]),
        ("subgraph", &[7, 1, 5, 6]),
        ("node of a subgraph", &[7, 1, 5, 6, 1]),
        ("initializer", &[7, 5]),
        ("external data entry", &[7, 5, 13]),
        ("sparse initializer", &[7, 15, 1]),
        ("value info", &[7, 11]),
        ("type", &[7, 11, 2]),
        ("shape", &[7, 11, 2, 1, 2]),
        ("dimension", &[7, 11, 2, 1, 2, 1]),
        ("operator set", &[8]),
        ("function", &[25]),
        ("training step", &[20, 1]),
    ];
    for (name, path) in levels {
        let cut = wrap(path, b"\x0a");
        // With a graph, so that the cut is the only fault.
        rows.push(bytes(name, [field(7, field(2, "g")), cut].concat(), Format, "the data ends"));
    }
    rows
}

/// Lists files with messages that are nested in themselves 10,000 times.
fn deep() -> Vec<Row> {
    let too_deep = "nested more than";
    let rows: [(&'static str, &[u64], &[u64]); 6] = [
        ("graphs 10,000 deep", &[], &[1, 5, 6]),
        ("lists of graphs 10,000 deep", &[], &[1, 5, 11]),
        ("sequence types 10,000 deep", &[11, 2], &[4, 1]),
        ("optional types 10,000 deep", &[11, 2], &[9, 1]),
        ("map types 10,000 deep", &[13, 2], &[5, 2]),
        ("types in an attribute 10,000 deep", &[1, 5, 14], &[9, 1, 4, 1]),
    ];
    let mut rows: Vec<Row> = rows
        .into_iter()
        .map(|(name, path, repeated)| {
            let graph = wrap(path, nest(10_000, repeated, b""));
            bytes(name, model(graph), ErrorKind::Format, too_deep)
        })
        .collect();
    rows.push(bytes(
        "graphs of functions 10,000 deep",
        [field(7, field(2, "g")), wrap(&[25, 7, 5, 6], nest(10_000, &[1, 5, 6], b""))].concat(),
        ErrorKind::Format,
        too_deep,
    ));
    rows
}

/// Encodes a model whose graph has only a `Constant` with this tensor.
fn constant(value: Vec<u8>) -> Vec<u8> {
    let attribute = [field(1, "value"), field(5, value), number(20, 4)].concat();
    model([node("Constant", &attribute), field(2, "g"), field(12, field(1, "y"))].concat())
}

/// Encodes a model with a sparse initializer. A node reads it, so that values and indices are
/// checked against each other.
fn sparse_initializer(values: Vec<u8>, indices: Vec<u8>, dims: i64) -> Vec<u8> {
    let sparse = [field(1, values), field(2, indices), number(3, dims)].concat();
    let reader = [field(1, "w"), field(2, "y"), field(4, "Identity")].concat();
    let output = field(12, field(1, "y"));
    model([field(1, reader), field(2, "g"), field(15, sparse), output].concat())
}

/// Encodes an int64 tensor without a name.
fn int64_tensor(values: &[i64]) -> Vec<u8> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    [number(1, values.len() as i64), number(2, 7), field(9, bytes)].concat()
}

/// Encodes the field `raw_data` with this number of zero bytes.
fn raw(count: usize) -> Vec<u8> {
    field(9, vec![0; count])
}

/// Lists files with invalid tensors.
#[expect(clippy::too_many_lines, reason = "a table")]
fn impossible_tensors() -> Vec<Row> {
    use ErrorKind::Invalid;
    let one = |name, tensor: Vec<u8>, words| bytes(name, initializer(tensor), Invalid, words);
    let many = 1i64 << 40;
    vec![
        one(
            "dims that overflow",
            tensor(&[1 << 32, 1 << 32], &[raw(4)]),
            "more elements than can be addressed",
        ),
        one(
            "dims that overflow beside a zero",
            tensor(&[0, i64::MAX, i64::MAX], &[]),
            "more elements than can be addressed",
        ),
        one("a negative dim", tensor(&[-4], &[raw(16)]), "dimension -4 is negative"),
        one("2^40 elements and no values", tensor(&[many], &[]), "no values"),
        one(
            "2^40 elements and empty raw data",
            tensor(&[many], &[raw(0)]),
            "elements and no values",
        ),
        one(
            "2^40 elements and one typed value",
            tensor(&[many], &[field(4, [0; 4])]),
            "but there are 4",
        ),
        one(
            "2^40 strings",
            [number(1, many), number(2, 8), field(6, "a"), field(8, "w")].concat(),
            "1099511627776",
        ),
        one(
            "2^40 int4 elements",
            [number(1, many), number(2, 22), field(8, "w"), raw(1)].concat(),
            "but there are 1",
        ),
        bytes(
            "a constant of 2^40 elements",
            constant(tensor(&[many], &[raw(0)])),
            Invalid,
            "elements and no values",
        ),
        bytes(
            "2^40 sparse values",
            sparse_initializer(tensor(&[many], &[raw(0)]), int64_tensor(&[]), many),
            Invalid,
            "elements and no values",
        ),
        bytes(
            "a sparse index out of range",
            sparse_initializer(tensor(&[1], &[raw(4)]), int64_tensor(&[many]), 4),
            Invalid,
            "1099511627776",
        ),
        bytes(
            "sparse indices out of order",
            sparse_initializer(tensor(&[2], &[raw(8)]), int64_tensor(&[3, 1]), 4),
            Invalid,
            "ind",
        ),
        one(
            "raw data that is too short",
            tensor(&[4], &[raw(15)]),
            "needs 16 bytes, but there are 15",
        ),
        one(
            "raw data that is too long",
            tensor(&[4], &[raw(17)]),
            "needs 16 bytes, but there are 17",
        ),
        one(
            "raw and typed data",
            tensor(&[1], &[raw(4), field(4, [0; 4])]),
            "both raw_data and float_data",
        ),
        one(
            "typed data of another type",
            tensor(&[1], &[field(7, [1])]),
            "must be in float_data, not in int64_data",
        ),
        one(
            "typed data that ends early",
            [number(1, 2), number(2, 7), field(7, b"\x01\x80")].concat(),
            "the data ends",
        ),
        one(
            "an unknown element type",
            [number(1, 1), number(2, 99), raw(4)].concat(),
            "element type 99",
        ),
        one(
            "a negative element type",
            [number(1, 1), number(2, -1), raw(4)].concat(),
            "element type -1",
        ),
        one("no element type", [number(1, 1), raw(4)].concat(), "no element type"),
        one(
            "a segment",
            tensor(&[1], &[field(3, [number(1, 0), number(2, 1)].concat()), raw(4)]),
            "segment",
        ),
        one(
            "strings in raw data",
            [number(1, 1), number(2, 8), raw(4)].concat(),
            "strings cannot be stored in raw_data",
        ),
        one("an unknown data location", tensor(&[1], &[raw(4), number(14, 7)]), "data location 7"),
    ]
}

/// Makes a row for a model with a data file `w.bin` of 20 bytes beside it.
fn with_data_file(name: &'static str, model: Vec<u8>, words: &'static str) -> Row {
    let make = move |directory: &Path| {
        fs::write(directory.join("w.bin"), [0; 20]).unwrap();
        model.clone()
    };
    row(name, make, ErrorKind::ExternalData, words)
}

/// Lists files with invalid references to data files.
fn impossible_references() -> Vec<Row> {
    use ErrorKind::ExternalData;
    let with =
        |name, entries: &[(&str, &str)], words| with_data_file(name, external(entries), words);
    let file = ("location", "w.bin");
    let absolute = "is an absolute path";
    let strings = initializer(
        [
            number(1, 1),
            number(2, 8),
            field(13, [field(1, "location"), field(2, "w.bin")].concat()),
            number(14, 1),
        ]
        .concat(),
    );
    let huge = initializer(tensor(
        &[1 << 40],
        &[field(13, [field(1, "location"), field(2, "w.bin")].concat()), number(14, 1)],
    ));
    vec![
        with("an offset that is no number", &[file, ("offset", "1e3")], "offset is '1e3'"),
        with("a negative offset", &[file, ("offset", "-1")], "offset is '-1'"),
        with("an offset with a sign", &[file, ("offset", "+16")], "offset is '+16'"),
        with("an offset of 2^70", &[file, ("offset", "1180591620717411303424")], "not a number"),
        with("an empty length", &[file, ("length", "")], "length is ''"),
        with("a length that is no number", &[file, ("length", "sixteen")], "length is 'sixteen'"),
        with(
            "offset and length that overflow",
            &[file, ("offset", "18446744073709551615"), ("length", "16")],
            "beyond the end",
        ),
        with("an offset beyond the end", &[file, ("offset", "21")], "beyond the end"),
        with(
            "a length beyond the end",
            &[file, ("offset", "8"), ("length", "16")],
            "which has 20 bytes",
        ),
        with("a length that is not the shape's", &[file, ("length", "20")], "require 16"),
        with("a length of 2^63", &[file, ("length", "9223372036854775808")], "require 16"),
        with_data_file("2^40 elements in a small file", huge, "which has 20 bytes"),
        with("no location", &[("offset", "0")], "no location"),
        bytes("strings in a data file", strings, ExternalData, "strings cannot be external"),
        with("a location that goes up", &[("location", "../w.bin")], "'..' part"),
        with("a location that goes down and up", &[("location", "a/../../w.bin")], "'..' part"),
        with(
            "a location that goes up with backslashes",
            &[("location", "a\\..\\..\\w.bin")],
            "'..' part",
        ),
        with("an absolute location", &[("location", "/etc/passwd")], absolute),
        with("a location with a drive letter", &[("location", "C:\\Windows\\win.ini")], absolute),
        with("a location on another machine", &[("location", "\\\\host\\share")], absolute),
        with("a location with NUL", &[("location", "w.bin\0.txt")], "NUL"),
        with("a location in memory", &[("location", "#w.bin")], "memory"),
        with("an empty location", &[("location", "")], "is empty"),
        with("a missing data file", &[("location", "v.bin")], "missing"),
        with("a data file in a file", &[("location", "w.bin/x")], "w.bin/x"),
        with("a location of 100,000 characters", &[("location", &"a".repeat(100_000))], "location"),
    ]
}

/// Lists models whose data file is a symlink, a device or another thing that must not be read.
#[cfg(unix)]
#[expect(clippy::too_many_lines, reason = "a table")]
fn traps() -> Vec<Row> {
    use ErrorKind::ExternalData;
    use std::os::unix::fs::symlink;

    /// Makes a row whose data file `set` prepares. The model's directory has a parent of its own,
    /// in which `set` may create targets outside.
    fn trap(
        name: &'static str,
        location: &'static str,
        set: fn(&Path),
        words: &'static str,
    ) -> Row {
        let make = move |directory: &Path| {
            set(directory);
            external_at(location)
        };
        row(name, make, ExternalData, words)
    }
    fn run(program: &str, args: &[&str], directory: &Path) {
        let status = Command::new(program).args(args).current_dir(directory).status();
        assert!(status.is_ok_and(|status| status.success()), "{program} {args:?}");
    }
    let outside = "outside of the model's directory";
    vec![
        trap(
            "a link out of the directory",
            "w.bin",
            |directory| {
                let secret = directory.parent().unwrap().join("secret");
                fs::write(&secret, [0; 16]).unwrap();
                symlink(secret, directory.join("w.bin")).unwrap();
            },
            outside,
        ),
        trap(
            "a relative link out of the directory",
            "w.bin",
            |directory| {
                fs::write(directory.parent().unwrap().join("secret"), [0; 16]).unwrap();
                symlink("../secret", directory.join("w.bin")).unwrap();
            },
            outside,
        ),
        trap(
            "a directory that is a link",
            "d/secret",
            |directory| {
                fs::write(directory.parent().unwrap().join("secret"), [0; 16]).unwrap();
                symlink("..", directory.join("d")).unwrap();
            },
            outside,
        ),
        trap(
            "a link that leads to itself",
            "w.bin",
            |directory| symlink("w.bin", directory.join("w.bin")).unwrap(),
            "symbolic links form a cycle",
        ),
        trap(
            "two links that form a cycle",
            "a",
            |directory| {
                symlink("b", directory.join("a")).unwrap();
                symlink("a", directory.join("b")).unwrap();
            },
            "symbolic links form a cycle",
        ),
        trap(
            "a link to nothing",
            "w.bin",
            |directory| symlink("nothing", directory.join("w.bin")).unwrap(),
            "missing",
        ),
        trap(
            "a link to a device",
            "w.bin",
            |directory| symlink("/dev/zero", directory.join("w.bin")).unwrap(),
            outside,
        ),
        trap(
            "a link to this process",
            "w.bin",
            |directory| {
                symlink("/proc/self/environ", directory.join("w.bin")).unwrap();
            },
            outside,
        ),
        trap("a pipe", "w.bin", |directory| run("mkfifo", &["w.bin"], directory), "a pipe"),
        trap(
            "a socket",
            "w.bin",
            |directory| {
                drop(std::os::unix::net::UnixListener::bind(directory.join("w.bin")).unwrap());
            },
            "a socket",
        ),
        trap(
            "a directory",
            "w.bin",
            |directory| fs::create_dir(directory.join("w.bin")).unwrap(),
            "a directory",
        ),
        trap("the model's directory", ".", |_| {}, "a directory"),
        trap(
            "the model's directory, with a slash",
            "d/",
            |directory| fs::create_dir(directory.join("d")).unwrap(),
            "a directory",
        ),
        trap(
            "an unreadable device",
            "w.bin",
            |directory| {
                // Creating a device needs root, and fails in some containers. A directory gives the
                // same message.
                let made = Command::new("mknod")
                    .args(["w.bin", "c", "1", "5"])
                    .current_dir(directory)
                    .output();
                if !made.is_ok_and(|output| output.status.success()) {
                    fs::create_dir(directory.join("w.bin")).unwrap();
                }
            },
            "values are read only from regular files",
        ),
    ]
}

#[cfg(not(unix))]
fn traps() -> Vec<Row> {
    Vec::new()
}

/// Lists small files that take much memory when read, and files of other formats.
#[expect(clippy::too_many_lines, reason = "a table")]
fn bombs() -> Vec<Row> {
    use ErrorKind::{Format, Unsupported};
    let million = |content: &[u8]| content.repeat(1_000_000);
    let named = |tail: Vec<u8>| [field(2, "g"), tail].concat();
    let thousands = |content: &[u8]| content.repeat(100_000);
    // A zip archive with a member `w.npy`, whose local header declares a size of 4 GiB.
    let archive = [
        b"PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0".as_slice(),
        &[0xff; 8],
        &[5, 0, 0, 0],
        b"w.npy",
        &[0; 64],
    ]
    .concat();
    let header =
        br#"{"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}"#;
    let weights = [&(header.len() as u64).to_le_bytes()[..], header].concat();
    vec![
        bytes(
            "a million empty nodes",
            model(named(million(b"\x0a\x00"))),
            Format,
            "more than 38 MiB of memory",
        ),
        large("a million empty initializers", model(named(million(b"\x2a\x00")))),
        large("a million empty inputs", model(named(million(b"\x5a\x00")))),
        large("a million empty types of values", model(named(million(b"\x6a\x00")))),
        large("a million empty attributes", model(named(field(1, million(b"\x2a\x00"))))),
        large("a million empty inputs of a node", model(named(field(1, million(b"\x0a\x00"))))),
        large("a million empty dims", model(named(wrap(&[11, 2, 1, 2], million(b"\x0a\x00"))))),
        large("a million dims of a tensor", initializer(field(1, million(b"\x01")))),
        large("a million integers", model(named(wrap(&[1, 5, 8], million(b"\x01"))))),
        large("a million operator sets", [model(named(vec![])), million(b"\x42\x00")].concat()),
        large("a million metadata entries", [model(named(vec![])), million(b"\x72\x00")].concat()),
        large("a million functions", [model(named(vec![])), million(b"\xca\x01\x00")].concat()),
        large(
            "a million training steps",
            [model(named(vec![])), million(b"\xa2\x01\x00")].concat(),
        ),
        large(
            "a million unknown fields",
            [model(named(vec![])), million(b"\xb8\x3e\x05")].concat(),
        ),
        large("a million empty graphs", [million(b"\x3a\x00"), model(named(vec![]))].concat()),
        large("100,000 graph names", model(named(thousands(b"\x12\x01n")))),
        large(
            "100,000 raw data fields",
            initializer(tensor(&[1], &[thousands(b"\x4a\x04\0\0\0\0")])),
        ),
        large(
            "100,000 typed fields in turn",
            initializer(tensor(&[1], &[thousands(b"\x22\x00\x2a\x00")])),
        ),
        large("100,000 values of one name", model(named(thousands(&field(11, field(1, "x")))))),
        large(
            "100,000 initializers of one name",
            model(named(thousands(&field(5, field(8, "w"))))),
        ),
        large(
            "100,000 nodes that read one value",
            model(named(thousands(&field(1, [field(1, "x"), field(4, "Relu")].concat())))),
        ),
        large(
            "100,000 external data entries",
            initializer(tensor(
                &[4],
                &[
                    thousands(&field(13, [field(1, "location"), field(2, "w")].concat())),
                    number(14, 1),
                ],
            )),
        ),
        bytes(
            "an operator with a name that is no text",
            model(named(node_named(b"\xff\xfe"))),
            Unsupported,
            "",
        ),
        bytes("an operator with an empty name", model(named(node("", b""))), Unsupported, ""),
        bytes("an archive that declares 4 GiB", archive, Format, "zip archive"),
        bytes("weights that declare 4 TiB", weights, Format, "safetensors"),
        text(
            "JSON 10,000 deep",
            "model.json",
            format!("{{\"graph\":{}", "{\"node\":[{\"attribute\":[{\"g\":".repeat(10_000)),
            "nested",
        ),
        text(
            "JSON lists 10,000 deep",
            "model.json",
            format!("{{\"later\":{}", "[".repeat(10_000)),
            "later",
        ),
        text(
            "JSON that ends early",
            "model.json",
            "{\"graph\": {\"name\": \"g",
            "the end of the text",
        ),
        text(
            "text 10,000 deep",
            "model.textproto",
            format!("graph{{{}", "node{attribute{g{".repeat(10_000)),
            "nested",
        ),
        text("text that ends early", "model.textproto", "graph { name: \"g", "the end of the text"),
    ]
}

fn node_named(name: &[u8]) -> Vec<u8> {
    field(1, [field(2, "y"), field(4, name)].concat())
}

fn rows() -> Vec<Row> {
    let mut rows = broken_structure();
    rows.extend(deep());
    rows.extend(impossible_tensors());
    rows.extend(impossible_references());
    rows.extend(traps());
    rows.extend(bombs());
    rows
}

/// Opens a model, loads the values of all its tensors, and builds a session.
fn open(path: &Path) -> Result<(), Error> {
    let model = Model::open(path)?;
    for tensor in model.tensors() {
        model.value_of(&tensor)?;
    }
    Session::builder(&model).threads(1).build().map(drop)
}

/// Opens a file in a child process. Returns a line with the kind of error, the time in
/// microseconds, the peak memory in bytes and the message.
fn open_and_measure(path: &Path) -> String {
    let start = Instant::now();
    let outcome = open(path);
    let time = start.elapsed().as_micros();
    let (kind, message) = match outcome {
        Ok(()) => ("Opened".to_string(), String::new()),
        Err(error) => {
            // A message must fit on a screen, even if names in the file are long.
            let message = error.to_string();
            let shown: String = message.chars().take(2000).collect();
            let rest = if shown.len() < message.len() { "… TOO LONG" } else { "" };
            (format!("{:?}", error.kind()), format!("{shown}{rest}"))
        }
    };
    format!("{VARIABLE}\t{kind}\t{time}\t{}\t{}", peak_memory(), message.escape_debug())
}

/// Returns the peak memory of this process in bytes; 0 on systems without `/proc`.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

/// Opens the file of a row; does nothing without the environment variable. The child processes run
/// only this test.
#[test]
fn one_file() {
    if let Some(path) = std::env::var_os(VARIABLE) {
        println!("{}", open_and_measure(Path::new(&path)));
    }
}

/// Opens the file of a row in a child process. Returns what differs from the expected outcome.
fn fault(row: &Row) -> Option<String> {
    let scratch = tempdir().unwrap();
    let directory = scratch.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let path = directory.join(row.file);
    fs::write(&path, (row.make)(&directory)).unwrap();
    let mut last = None;
    // Retries a slow file twice: the machine may be busy.
    for _ in 0..3 {
        let (output, status) = match run(&path, scratch.path()) {
            Ok(answer) => answer,
            Err(fault) => return Some(fault),
        };
        let Some(line) = output.lines().find_map(|line| line.split_once(&format!("{VARIABLE}\t")))
        else {
            return Some(format!("ended by itself: {status}"));
        };
        let (fault, slow) = fault_of(row, line.1);
        last = fault;
        if !slow {
            break;
        }
    }
    last
}

/// Opens a file in a child process. Returns its output and exit status.
fn run(path: &Path, scratch: &Path) -> Result<(String, ExitStatus), String> {
    let answer = scratch.join("answer");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "one_file", "--nocapture"])
        .env(VARIABLE, path)
        .stdout(fs::File::create(&answer).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > 10 * TIME + Duration::from_secs(1) {
            child.kill().unwrap();
            child.wait().unwrap();
            return Err(format!("not done after {} ms", start.elapsed().as_millis()));
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let output = String::from_utf8_lossy(&fs::read(answer).unwrap()).into_owned();
    Ok((output, status))
}

/// Compares the line of a child process with the expected outcome. Returns the differences, and
/// whether the time is the only one.
fn fault_of(row: &Row, line: &str) -> (Option<String>, bool) {
    let parts: Vec<&str> = line.splitn(4, '\t').collect();
    let [kind, time, memory, message] = parts[..] else {
        return (Some(format!("unexpected output: {line}")), false);
    };
    let (time, memory): (u64, u64) = (time.parse().unwrap(), memory.parse().unwrap());
    let mut faults = Vec::new();
    if let Expected::Refused(expected, words) = row.expected {
        let words: String = words.escape_debug().collect();
        if kind != format!("{expected:?}") || !message.contains(&words) {
            faults.push(format!("expected {expected:?} with '{words}', but: {kind}: {message}"));
        }
    }
    if message.ends_with("TOO LONG") {
        faults.push(format!(
            "a message for more than a screen: {}",
            &message[..message.floor_char_boundary(300)]
        ));
    }
    if memory > MEMORY {
        faults.push(format!("took {} MiB", memory >> 20));
    }
    let slow = u128::from(time) > TIME.as_micros();
    let only_slow = slow && faults.is_empty();
    if slow {
        faults.push(format!("took {} ms", time / 1000));
    }
    let fault = (!faults.is_empty()).then(|| faults.join("; "));
    (fault, only_slow)
}

#[test]
fn every_file_is_refused_quickly_and_by_name() {
    // WIRE-04, WIRE-06, WIRE-32, EXT-09, EXT-10, EXT-14
    let rows = rows();
    assert!(rows.len() >= 60);
    let mut faults = Vec::new();
    for row in &rows {
        if let Some(fault) = fault(row) {
            faults.push(format!("{}: {fault}", row.name));
        }
    }
    assert!(faults.is_empty(), "{} of {} files:\n{}", faults.len(), rows.len(), faults.join("\n"));
}
