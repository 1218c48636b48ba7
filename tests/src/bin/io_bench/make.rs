//! Files that are measured. They are made on the spot and are the same on every machine.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use sardonyx_proto::{
    AttributeType, DataLocation, DataType, Encoder, attribute, graph, node, string_string_entry,
    tensor,
};
use sardonyx_tests::bench::write_model;

/// Sizes of the files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    /// Bytes of the weights inside the model file.
    inline_bytes: usize,
    /// Bytes of the weights in the file beside the model.
    external_bytes: usize,
    nodes: usize,
    /// Length of each of the three packed lists.
    numbers: usize,
}

impl Scale {
    /// Sizes with which ratios are measured.
    pub(crate) const FULL: Scale = Scale {
        inline_bytes: 1 << 30,
        external_bytes: 3 << 30,
        nodes: 100_000,
        numbers: 2_000_000,
    };
    /// Sizes that suffice to check that everything runs and agrees.
    pub(crate) const SMOKE: Scale =
        Scale { inline_bytes: 1 << 20, external_bytes: 3 << 20, nodes: 1_000, numbers: 10_000 };
}

/// Size of each tensor of weights in bytes, as of the layers of a network.
const TENSOR_BYTES: usize = 16 << 20;
const DATA_FILE: &str = "external.data";

/// Writes all files into a directory.
pub(crate) fn write_all(directory: &Path, scale: Scale) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let weights = make_bytes(TENSOR_BYTES.min(scale.inline_bytes));
    let file = |name: &str| directory.join(name);
    write_model(&file("inline.onnx"), "io_bench", |out| write_inline(out, scale, &weights))?;
    write_model(&file("external.onnx"), "io_bench", |out| {
        write_external(out, scale, weights.len())
    })?;
    write_model(&file("nodes.onnx"), "io_bench", |out| write_nodes(out, scale.nodes))?;
    let numbers = Numbers::new(scale.numbers);
    write_model(&file("packed.onnx"), "io_bench", |out| numbers.encode(out))?;

    let mut data = BufWriter::new(File::create(directory.join(DATA_FILE))?);
    for _ in 0..scale.external_bytes / weights.len() {
        data.write_all(&weights)?;
    }
    data.flush()
}

fn write_inline<'a>(out: &mut Encoder<'a>, scale: Scale, weights: &'a [u8]) {
    out.put(graph::Name, b"inline");
    for index in 0..scale.inline_bytes / weights.len() {
        out.put_message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[weights.len() as i64 / 4]);
            out.put(tensor::DataType, DataType::FLOAT.0);
            out.put(tensor::Name, format!("layer.{index}.weight").as_bytes());
            out.put_payload(tensor::RawData, weights);
        });
    }
}

fn write_external(out: &mut Encoder<'_>, scale: Scale, length: usize) {
    out.put(graph::Name, b"external");
    for index in 0..scale.external_bytes / length {
        let entries = [
            ("location", DATA_FILE.to_string()),
            ("offset", (index * length).to_string()),
            ("length", length.to_string()),
        ];
        out.put_message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[length as i64 / 4]);
            out.put(tensor::DataType, DataType::FLOAT.0);
            out.put(tensor::Name, format!("layer.{index}.weight").as_bytes());
            for (key, value) in &entries {
                out.put_message(tensor::ExternalData, |out| {
                    out.put(string_string_entry::Key, key.as_bytes());
                    out.put(string_string_entry::Value, value.as_bytes());
                });
            }
            out.put(tensor::DataLocation, DataLocation::EXTERNAL);
        });
    }
}

/// Writes small nodes as an exporter does: each reads its predecessor and an older value.
fn write_nodes(out: &mut Encoder<'_>, count: usize) {
    const OPERATORS: [&str; 6] = ["Gemm", "Concat", "Softmax", "Add", "LeakyRelu", "Split"];
    let operator = |index: usize| OPERATORS[index % OPERATORS.len()];
    let value = |index: usize| format!("/blk.{}/v_{index}", index / 1000);
    for index in 1..=count {
        let name = format!("/blk.{}/{}_{index}", index / 1000, operator(index));
        out.put_message(graph::Node, |out| {
            out.put(node::Input, value(index - 1).as_bytes());
            out.put(node::Input, value(index * 7 / 9).as_bytes());
            out.put(node::Output, value(index).as_bytes());
            out.put(node::Name, name.as_bytes());
            out.put(node::OpType, operator(index).as_bytes());
            if index % 2 == 0 {
                out.put_message(node::Attribute, |out| {
                    out.put(attribute::Name, b"alpha");
                    out.put(attribute::F, index as f32 / 16.0);
                    out.put(attribute::Type, AttributeType::FLOAT);
                });
            }
            if index % 2 == 1 || index % 3 == 0 {
                out.put_message(node::Attribute, |out| {
                    out.put(attribute::Name, b"axis");
                    out.put(attribute::I, (index % 200) as i64);
                    out.put(attribute::Type, AttributeType::INT);
                });
            }
        });
    }
    out.put(graph::Name, b"nodes");
}

/// Typed lists as an exporter without `raw_data` writes them. Holds the packed blocks in their
/// encoded form.
struct Numbers {
    count: usize,
    int64: Vec<u8>,
    int32: Vec<u8>,
    float: Vec<u8>,
}

impl Numbers {
    fn new(count: usize) -> Numbers {
        let mut random = Random::new();
        let mut numbers =
            Numbers { count, int64: Vec::new(), int32: Vec::new(), float: Vec::new() };
        for _ in 0..count {
            // Mostly six bytes when encoded.
            push_varint(&mut numbers.int64, random.next() >> 24);
            // One or two bytes, as of the 8-bit types that are stored in this list.
            push_varint(&mut numbers.int32, random.next() >> 56);
            let number = (random.next() >> 40) as f32 / (1 << 24) as f32;
            numbers.float.extend(number.to_le_bytes());
        }
        numbers
    }

    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put(graph::Name, b"packed");
        self.tensor(out, DataType::INT64, |out| out.put_packed(tensor::Int64Data, &self.int64));
        self.tensor(out, DataType::INT32, |out| out.put_packed(tensor::Int32Data, &self.int32));
        self.tensor(out, DataType::FLOAT, |out| out.put_packed(tensor::FloatData, &self.float));
    }

    fn tensor<'a>(
        &self,
        out: &mut Encoder<'a>,
        data_type: DataType,
        list: impl FnOnce(&mut Encoder<'a>),
    ) {
        out.put_message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[self.count as i64]);
            out.put(tensor::DataType, data_type.0);
            list(out);
            out.put(tensor::Name, data_type.name().unwrap_or("").as_bytes());
        });
    }
}

fn push_varint(block: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        block.push(value as u8 | 0x80);
        value >>= 7;
    }
    block.push(value as u8);
}

fn make_bytes(count: usize) -> Vec<u8> {
    let mut random = Random::new();
    (0..count / 8).flat_map(|_| random.next().to_le_bytes()).collect()
}

/// Linear congruential generator with Knuth's constants. These files do not need better numbers.
struct Random(u64);

impl Random {
    fn new() -> Random {
        Random(1)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // The low bits of such a generator repeat soon.
        self.0 ^ self.0 >> 32
    }
}
