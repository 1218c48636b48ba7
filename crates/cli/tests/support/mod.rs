//! Runs the command in tests, and encodes small models and arrays.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sardonyx_model::{AttrValue, Model};
use tempfile::{TempDir, tempdir};

/// Temporary directory with the files of a test.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new(files: &[(&str, Vec<u8>)]) -> Files {
        let directory = tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(directory.path().join(name), bytes).unwrap();
        }
        Files(directory)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Returns the content of all files in the directory, by name.
    pub(crate) fn content(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.map(|name| (name.clone(), self.read(&name))).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.content().into_keys().collect()
    }

    /// Runs the command on a model in the directory.
    pub(crate) fn run(&self, command: &str, model: &str, more: &[&str]) -> Answer {
        let model = self.path(model);
        sardonyx(&[&[command, &model], more].concat())
    }
}

pub(crate) fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits")
}

pub(crate) fn digits_model() -> String {
    digits().join("digits.onnx").display().to_string()
}

/// Exit code and output of a run of the command.
pub(crate) struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub(crate) fn sardonyx(args: &[&str]) -> Answer {
    answer(
        Command::new(env!("CARGO_BIN_EXE_sardonyx"))
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap(),
    )
}

pub(crate) fn sardonyx_with_stdin(args: &[&str], stdin: &Path) -> Answer {
    let file = fs::File::open(stdin).unwrap();
    answer(Command::new(env!("CARGO_BIN_EXE_sardonyx")).args(args).stdin(file).output().unwrap())
}

/// Runs the command, which must succeed, and returns the bytes of its stdout. `stdin` names a file
/// to read from.
pub(crate) fn sardonyx_bytes(args: &[&str], stdin: Option<&str>) -> Vec<u8> {
    let stdin = stdin.map_or(Stdio::null(), |path| Stdio::from(fs::File::open(path).unwrap()));
    let output =
        Command::new(env!("CARGO_BIN_EXE_sardonyx")).args(args).stdin(stdin).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    output.stdout
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Answer {
    /// Checks that the command succeeded with exit code 0, and returns its output.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Checks that the command had findings, which exit code 1 means, and returns its output.
    pub(crate) fn finds(self) -> String {
        assert_eq!(self.code, Some(1), "{}", self.stderr);
        self.stdout
    }

    /// Checks the schema and the other keys of a JSON answer, and returns it.
    pub(crate) fn json(self, schema: &str, keys: &[&str]) -> serde_json::Value {
        assert!(matches!(self.code, Some(0 | 1)), "{}", self.stderr);
        let json: serde_json::Value = serde_json::from_str(&self.stdout).unwrap();
        assert_eq!(json["schema"], schema);
        let found: Vec<&String> = json.as_object().unwrap().keys().skip(1).collect();
        assert_eq!(found, keys, "keys of {schema}");
        json
    }

    /// Checks that the command refused bad input: exit code 2, a message of at most 30 lines that
    /// holds `words`, and no trace of a panic.
    pub(crate) fn fails_with(self, words: &[&str]) {
        let text = &self.stderr;
        assert_eq!(self.code, Some(2), "stdout: {}\nstderr: {text}", self.stdout);
        assert!(text.starts_with("error: "), "{text}");
        assert!(text.lines().count() <= 30, "{text}");
        for trace in ["panicked", "internal error", "RUST_BACKTRACE"] {
            assert!(!text.contains(trace), "{text}");
        }
        for word in words {
            assert!(text.contains(word), "lacks '{word}':\n{text}");
        }
    }
}

/// Encodes a length-delimited field of a protobuf message.
pub(crate) fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut len = content.len();
    while len >= 0x80 {
        bytes.push(len as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes.extend_from_slice(content);
    bytes
}

/// Encodes a `TensorProto`. `content` has its fields with values, already encoded.
pub(crate) fn tensor(name: &str, data_type: u8, dims: &[u8], content: Vec<u8>) -> Vec<u8> {
    let dims = dims.iter().flat_map(|dim| [1 << 3, *dim]).collect();
    let data_type = vec![2 << 3, data_type];
    [dims, data_type, field(8, name.as_bytes()), content].concat()
}

/// Encodes a model with these initializers and nodes, without inputs and outputs.
pub(crate) fn model(initializers: &[Vec<u8>], nodes: &[Vec<u8>]) -> Vec<u8> {
    let nodes = nodes.iter().flat_map(|node| field(1, node));
    let mut graph: Vec<u8> = nodes.collect();
    graph.extend(field(2, b"g"));
    initializers.iter().for_each(|tensor| graph.extend(field(5, tensor)));
    let opset = field(8, &[field(1, b""), vec![2 << 3, 13]].concat());
    [vec![1 << 3, 8], field(7, &graph), opset].concat()
}

/// Encodes a model with tensors of many types, in the graph, an attribute and a subgraph. Two have
/// an equal name, and one has none.
pub(crate) fn many_tensors() -> Vec<u8> {
    let raw = |bytes: &[u8]| field(9, bytes);
    let w = tensor("w", 1, &[2, 2], raw(&floats(&[0.0, 1.5, -2.0, 0.0])));
    let h = tensor("layer.10.h", 10, &[2], raw(&[0x00, 0x3c, 0x00, 0x7e])); // 1 and NaN
    let ids = tensor("layer.2.ids", 7, &[3], field(7, &[1, 2, 3]));
    let words = tensor("words", 8, &[2], [field(6, b"a"), field(6, b"b,c")].concat());
    let none = tensor("none", 1, &[0, 4], Vec::new());
    let inner = tensor("w", 11, &[1], raw(&7.5f64.to_le_bytes()));
    let subgraph = [field(2, b"then"), field(5, &inner)].concat();
    let attribute = |name: &[u8], value: Vec<u8>| field(5, &[field(1, name), value].concat());
    let constant = [
        field(2, b"c"),
        field(4, b"Constant"),
        attribute(b"value", field(5, &tensor("", 6, &[], raw(&[5, 0, 0, 0])))),
    ];
    let branch = [field(2, b"y"), field(4, b"If"), attribute(b"then_branch", field(6, &subgraph))];
    model(&[w, h, ids, words, none], &[constant.concat(), branch.concat()])
}

/// Encodes a model whose tensors are damaged, except the one called `good`.
pub(crate) fn broken_tensors() -> Vec<u8> {
    let raw = |bytes: &[u8]| field(9, bytes);
    let four = floats(&[1.0, 2.0, 3.0, 4.0]);
    model(
        &[
            tensor("good", 1, &[4], raw(&four)),
            tensor("short", 1, &[5], raw(&four)),
            tensor("unknown", 99, &[4], raw(&four)),
            tensor("valueless", 1, &[4], Vec::new()),
            tensor("both", 1, &[4], [raw(&four), field(4, &four)].concat()),
            tensor("lost", 1, &[4], vec![14 << 3, 1]),
            tensor("list", 1, &[4], field(4, &four[..8])),
        ],
        &[],
    )
}

/// Encodes a `ValueInfoProto` of a float tensor. A dim of 100 or more stands for the symbol N.
fn value_info(name: &str, dims: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims
        .iter()
        .flat_map(|dim| match dim {
            0..100 => field(1, &[1 << 3, *dim]),
            _ => field(1, &field(2, b"N")),
        })
        .collect();
    let tensor = [vec![1 << 3, 1], field(2, &dims)].concat();
    [field(1, name.as_bytes()), field(2, &field(1, &tensor))].concat()
}

/// Encodes a model `y = op(op(… x))` on floats with these dims.
pub(crate) fn chain(ops: &[&str], dims: &[u8]) -> Vec<u8> {
    let mut graph = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let from = if i == 0 { "x".to_string() } else { format!("h{i}") };
        let to = if i + 1 == ops.len() { "y".to_string() } else { format!("h{}", i + 1) };
        let node = [field(1, from.as_bytes()), field(2, to.as_bytes()), field(4, op.as_bytes())];
        graph.extend(field(1, &node.concat()));
    }
    graph.extend(field(2, b"chain"));
    graph.extend(field(11, &value_info("x", dims)));
    graph.extend(field(12, &value_info("y", dims)));
    let opset = field(8, &[field(1, b""), vec![2 << 3, 13]].concat());
    [vec![1 << 3, 8], field(7, &graph), opset].concat()
}

/// Encodes a model `y = x + w` with the four floats of `w` in the file `location`.
pub(crate) fn with_external_data(location: &str) -> Vec<u8> {
    let entry = |key: &str, value: &str| {
        field(13, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat())
    };
    let w = [
        vec![1 << 3, 4, 2 << 3, 1],
        field(8, b"w"),
        entry("location", location),
        entry("length", "16"),
        vec![14 << 3, 1],
    ];
    let node = [field(1, b"x"), field(1, b"w"), field(2, b"y"), field(4, b"Add")];
    let graph = [
        field(1, &node.concat()),
        field(2, b"g"),
        field(5, &w.concat()),
        field(11, &value_info("x", &[4])),
        field(12, &value_info("y", &[4])),
    ];
    let opset = field(8, &[field(1, b""), vec![2 << 3, 13]].concat());
    [vec![1 << 3, 8], field(7, &graph.concat()), opset].concat()
}

/// Returns the bytes of the digits model after an edit of its graph.
pub(crate) fn edited_digits(edit: impl FnOnce(&mut Model)) -> Vec<u8> {
    let bytes = fs::read(digits().join("digits.onnx")).unwrap();
    let mut model = Model::read(bytes.into()).unwrap();
    edit(&mut model);
    model.to_bytes()
}

/// Adds an unsupported node, whose output is not used, to the main graph.
pub(crate) fn add_node(model: &mut Model, op: &str, domain: &str) {
    let main = model.main.unwrap();
    let input = model.graph(main).inputs[0].value;
    let node = model.add_node(main, op, domain, &[input], 1);
    model.set_attribute(node, "alpha", AttrValue::Float(1.0));
}

/// Encodes a `.npy` file. `elements` has the bytes of little-endian elements.
pub(crate) fn npy(descr: &str, shape: &str, elements: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(elements);
    bytes
}

pub(crate) fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
