//! Running the command, and making small models.

// Each test file uses its own part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sardonyx_model::{Model, NewAttribute};

pub(crate) fn digits() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits")
}

pub(crate) fn digits_model() -> String {
    digits().join("digits.onnx").display().to_string()
}

/// What a run of the command gave.
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
    let file = std::fs::File::open(stdin).unwrap();
    answer(
        Command::new(env!("CARGO_BIN_EXE_sardonyx"))
            .args(args)
            .stdin(file)
            .output()
            .unwrap(),
    )
}

fn answer(output: Output) -> Answer {
    Answer {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Answer {
    /// Fine: exit code 0, and its answer.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// Refused as bad input must be: exit code 2, one screen on stderr, no trace of a panic, and these words in it.
    pub(crate) fn refused(self, words: &[&str]) {
        let text = &self.stderr;
        assert_eq!(
            self.code,
            Some(2),
            "stdout: {}\nstderr: {text}",
            self.stdout
        );
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

/// A field of a message: its number and its content.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
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

/// `name` as a float tensor; dims below 100 are numbers, others are called N.
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

/// A model `y = op(op(… x))` on floats of some shape; the bytes of its file.
pub(crate) fn chain(ops: &[&str], dims: &[u8]) -> Vec<u8> {
    let mut graph = Vec::new();
    for (i, op) in ops.iter().enumerate() {
        let from = if i == 0 {
            "x".to_string()
        } else {
            format!("h{i}")
        };
        let to = if i + 1 == ops.len() {
            "y".to_string()
        } else {
            format!("h{}", i + 1)
        };
        let node = [
            field(1, from.as_bytes()),
            field(2, to.as_bytes()),
            field(4, op.as_bytes()),
        ];
        graph.extend(field(1, &node.concat()));
    }
    graph.extend(field(2, b"chain"));
    graph.extend(field(11, &value_info("x", dims)));
    graph.extend(field(12, &value_info("y", dims)));
    let opset = field(8, &[field(1, b""), vec![2 << 3, 13]].concat());
    [vec![1 << 3, 8], field(7, &graph), opset].concat()
}

/// `y = x + w`, with the four floats of w in the file `location`.
pub(crate) fn with_external_data(location: &str) -> Vec<u8> {
    let entry = |key: &str, value: &str| {
        field(
            13,
            &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat(),
        )
    };
    let w = [
        vec![1 << 3, 4, 2 << 3, 1],
        field(8, b"w"),
        entry("location", location),
        entry("length", "16"),
        vec![14 << 3, 1],
    ];
    let node = [
        field(1, b"x"),
        field(1, b"w"),
        field(2, b"y"),
        field(4, b"Add"),
    ];
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

/// The digits model with other metadata or nodes, by the graph's own functions.
pub(crate) fn edited_digits(edit: impl FnOnce(&mut Model)) -> Vec<u8> {
    let bytes = std::fs::read(digits().join("digits.onnx")).unwrap();
    let mut model = Model::read(bytes.into()).unwrap();
    edit(&mut model);
    model.to_bytes()
}

/// Adds an unsupported node at the front of the main graph, unused.
pub(crate) fn add_node(model: &mut Model, op: &str, domain: &str) {
    let main = model.main.unwrap();
    let input = model.graph(main).inputs[0].value;
    let node = model.add_node(main, 0, op, domain, &[input], 1);
    model.set_attribute(node, "alpha", NewAttribute::Float(1.0));
}

/// A `.npy` file of little-endian elements.
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
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}
