//! Models whose text is measured. They are made on the spot and are the same on every machine.

use std::fs;
use std::io;
use std::path::Path;

use sardonyx_proto::{AttributeType, DataType, Encoder, attribute, graph, node, tensor};
use sardonyx_tests::bench::{write_model, write_ports};

/// Sizes of the models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    nodes: usize,
    /// Length of each of the three lists.
    numbers: usize,
}

impl Scale {
    /// Sizes with which ratios are measured.
    pub(crate) const FULL: Scale = Scale { nodes: 100_000, numbers: 2_000_000 };
    /// Sizes that suffice to check that everything runs and agrees.
    pub(crate) const SMOKE: Scale = Scale { nodes: 1_000, numbers: 10_000 };
}

/// Writes all models into a directory.
pub(crate) fn write_all(directory: &Path, scale: Scale) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let file = |name: &str| directory.join(name);
    write_model(&file("nodes.onnx"), "text_bench", |out| write_nodes(out, scale.nodes))?;
    let numbers = Numbers::new(scale.numbers);
    write_model(&file("numbers.onnx"), "text_bench", |out| numbers.encode(out))
}

/// Writes the nodes of `io_bench` with names as PyTorch's exporter gives them: each reads its
/// predecessor and an older value.
fn write_nodes(out: &mut Encoder<'_>, count: usize) {
    const OPERATORS: [&str; 6] = ["Gemm", "Concat", "Softmax", "Add", "LeakyRelu", "Split"];
    let operator = |index: usize| OPERATORS[index % OPERATORS.len()];
    let name = |index: usize| {
        let (layer, part) = (index / 1000, index / 100 % 10);
        format!("/model/layers.{layer}/mlp.{part}/{}_{index}", operator(index))
    };
    let value = |index: usize| match index {
        0 => "input_ids".to_string(),
        _ => format!("{}_output_0", name(index)),
    };
    for index in 1..=count {
        out.put_message(graph::Node, |out| {
            out.put(node::Input, value(index - 1).as_bytes());
            out.put(node::Input, value(index * 7 / 9).as_bytes());
            out.put(node::Output, value(index).as_bytes());
            out.put(node::Name, name(index).as_bytes());
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
    out.put(graph::Name, b"main_graph");
    write_ports(out, &value(0), &value(count));
}

/// Numbers in typed lists, of which most of a text consists. Holds the packed blocks in their
/// encoded form.
struct Numbers {
    count: usize,
    float: Vec<u8>,
    int32: Vec<u8>,
    int64: Vec<u8>,
}

impl Numbers {
    fn new(count: usize) -> Numbers {
        let mut random = Random::new();
        let mut numbers =
            Numbers { count, float: Vec::new(), int32: Vec::new(), int64: Vec::new() };
        for _ in 0..count {
            numbers.float.extend(random.draw_normal().to_le_bytes());
            // As many digits as 16-bit numbers have.
            push_varint(&mut numbers.int32, (random.next() as i64 >> 48) as u64);
            // Of either sign, mostly seven digits.
            push_varint(&mut numbers.int64, (random.next() as i64 >> 40) as u64);
        }
        numbers
    }

    fn encode<'a>(&'a self, out: &mut Encoder<'a>) {
        out.put(graph::Name, b"numbers");
        self.tensor(out, DataType::FLOAT, |out| out.put_packed(tensor::FloatData, &self.float));
        self.tensor(out, DataType::INT32, |out| out.put_packed(tensor::Int32Data, &self.int32));
        self.tensor(out, DataType::INT64, |out| out.put_packed(tensor::Int64Data, &self.int64));
    }

    fn tensor<'a>(
        &'a self,
        out: &mut Encoder<'a>,
        data_type: DataType,
        list: impl FnOnce(&mut Encoder<'a>),
    ) {
        out.put_message(graph::Initializer, |out| {
            out.put(tensor::Dims, &[self.count as i64]);
            out.put(tensor::DataType, data_type.0);
            list(out);
            let name = format!("weights_{}", data_type.name().unwrap_or(""));
            out.put(tensor::Name, name.as_bytes());
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

/// Linear congruential generator with Knuth's constants. These models do not need better numbers.
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

    /// Draws a number from 0 to 1, without 0.
    fn draw_fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Draws a normally distributed number (Box and Muller).
    fn draw_normal(&mut self) -> f32 {
        let radius = (-2.0 * self.draw_fraction().ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.draw_fraction()).cos()) as f32
    }
}
