//! Property: every version of every operator runs or returns an error that gives the reason, for
//! any types, shapes, values and attributes, within limits of memory, time and iterations. A run
//! that succeeds without rewrites also succeeds with them.
//!
//! All bytes together choose a node of `tests/versions`; the bytes in their order choose the
//! version and the changes to the node.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sardonyx::run::Optimization;
use sardonyx::{DataType, Error, ErrorKind, Model, RunOptions, Session, Tensor};

/// Valid examples of every version.
const TEXTS: [&str; 3] = [
    include_str!("../../tests/versions/ai.onnx.txt"),
    include_str!("../../tests/versions/ai.onnx.ml.txt"),
    include_str!("../../tests/versions/ai.onnx.preview.txt"),
];

const MEMORY: usize = 16 << 20;
/// Limit of the iterations of all loops of a run.
const ITERATIONS: u64 = 200;
/// Time after which a run ends before its next step.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time that a run may take: no step of a model within the memory limit takes longer, also without
/// optimisation.
const LONGEST: Duration = Duration::from_secs(30);
/// Most elements of an input.
const ELEMENTS: usize = 1 << 12;

/// Element types that may replace the type of an input.
const TYPES: [DataType; 14] = [
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int64,
    DataType::Int32,
    DataType::Int16,
    DataType::Int8,
    DataType::Uint64,
    DataType::Uint32,
    DataType::Uint16,
    DataType::Uint8,
    DataType::Bool,
    DataType::Complex64,
];

/// Sizes that may replace the size of an axis.
const SIZES: [usize; 8] = [0, 1, 2, 3, 1, 4, 7, 17];

/// Numbers that may replace an integer of an attribute.
const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "2",
    "-2",
    "3",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "64",
];

/// Example of some versions of an operator, with one or more nodes.
struct Block {
    operator: &'static str,
    versions: Vec<u32>,
    inputs: Vec<&'static str>,
    nodes: Vec<&'static str>,
    outputs: Vec<&'static str>,
}

fn read_blocks() -> &'static [Block] {
    static BLOCKS: OnceLock<Vec<Block>> = OnceLock::new();
    BLOCKS.get_or_init(|| TEXTS.into_iter().flat_map(read).collect())
}

fn read(text: &'static str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some(block) = found.last_mut().filter(|_| is_open && !line.is_empty()) else {
            is_open = !line.is_empty();
            if is_open {
                let mut words = line.split(' ');
                let operator = words.next().unwrap_or_default();
                let versions = words.filter_map(|word| word.parse().ok()).collect();
                let (inputs, nodes, outputs) = (Vec::new(), Vec::new(), Vec::new());
                found.push(Block { operator, versions, inputs, nodes, outputs });
            }
            continue;
        };
        match line.split_at(2) {
            ("< ", input) => block.inputs.push(input),
            ("> ", output) => block.outputs.push(output),
            (_, node) => block.nodes.push(node),
        }
    }
    found
}

/// Bytes that have not been used yet.
struct Choices<'b>(&'b [u8]);

impl Choices<'_> {
    fn next(&mut self) -> usize {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                usize::from(*first)
            }
            None => 0,
        }
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() << 8 | self.next()) % count.max(1)
    }

    /// Draws a byte. Returns true for one in `times` values of it.
    fn one_in(&mut self, times: usize) -> bool {
        self.next() % times == times - 1
    }
}

/// Input that is passed to a run.
struct Given {
    name: String,
    tensor: Tensor,
}

/// Runs the node that the bytes choose.
pub(crate) fn check(input: &[u8]) {
    run(input);
}

/// Runs the node that the bytes choose, without rewrites and with all of them. Returns whether the
/// run without them succeeded.
fn run(input: &[u8]) -> bool {
    let (text, given) = write_model(input);
    let Ok(model) = Model::from_text(&text) else {
        return false;
    };
    let began = Instant::now();
    let run = |optimization| -> Result<(), Error> {
        let builder = Session::builder(&model).threads(1).memory_limit(MEMORY).seed(1);
        let session = builder.optimization(optimization).build()?;
        let inputs = given.iter().map(|given| (given.name.clone(), given.tensor.clone()));
        let options =
            RunOptions::new().iteration_limit(ITERATIONS).deadline(Instant::now() + DEADLINE);
        session.run(inputs, &options).map(|_| ())
    };
    let [plain, rewritten] = [Optimization::Off, Optimization::All].map(run);
    for error in [&plain, &rewritten].into_iter().filter_map(|result| result.as_ref().err()) {
        assert!(!error.to_string().is_empty());
        let kind = error.kind();
        assert!(!matches!(kind, ErrorKind::Output | ErrorKind::Internal), "{error}\n{text}");
    }
    if let (Ok(()), Err(error)) = (&plain, &rewritten) {
        panic!("only the rewritten model fails: {error}\n{text}");
    }
    assert!(began.elapsed() < LONGEST, "it took {:?}\n{text}", began.elapsed());
    plain.is_ok()
}

/// Hashes the input with FNV-1a. Every byte counts, so that mutations of one input reach all nodes.
fn hash(input: &[u8]) -> usize {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    (input.iter().fold(0xcbf2_9ce4_8422_2325, add) >> 8) as usize
}

/// Writes the model that the bytes choose and makes its inputs.
fn write_model(input: &[u8]) -> (String, Vec<Given>) {
    let mut choices = Choices(input);
    let blocks = read_blocks();
    let block = &blocks[hash(input) % blocks.len()];
    let version = block.versions[choices.below(block.versions.len())];
    let imports = match block.operator.rsplit_once('.') {
        Some((domain, _)) => format!("\"\": 21, \"{domain}\": {version}"),
        None => format!("\"\": {version}"),
    };
    let (mut declared, mut constants, mut given) = (Vec::new(), Vec::new(), Vec::new());
    for input in &block.inputs {
        let (ty, name) =
            input.split(" = ").next().unwrap_or(input).rsplit_once(' ').unwrap_or(("", input));
        match make_tensor(ty, &mut choices) {
            Some(tensor) => {
                let elem = tensor.data_type();
                declared.push(if choices.one_in(3) {
                    format!("{elem}[] {name}")
                } else {
                    format!("{elem}{} {name}", write_dims(tensor.dims()))
                });
                given.push(Given { name: name.to_string(), tensor });
            }
            None => constants.push((*input).to_string()),
        }
    }
    let nodes: Vec<String> =
        block.nodes.iter().map(|node| change_numbers(node, &mut choices)).collect();
    // The output type depends on the changed inputs, so it is left out.
    let outputs = block.outputs.iter().map(|output| {
        let declared = output.split(" = ").next().unwrap_or(output);
        declared.rsplit_once(' ').map_or(declared, |(_, name)| name).to_string()
    });
    let constants = match &constants[..] {
        [] => String::new(),
        constants => format!("<{}>", constants.join(", ")),
    };
    let text = format!(
        "<notation: \"full\", ir_version: 14, opset_import: [{imports}]>\n g ({}) => ({})\n{constants} {{ {} }}",
        declared.join(", "),
        outputs.collect::<Vec<_>>().join(", "),
        nodes.join("\n"),
    );
    (text, given)
}

fn write_dims(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    if dims.is_empty() { String::new() } else { format!("[{}]", dims.join(", ")) }
}

/// Makes a tensor in the place of an input of a type such as `float[2, 3]`. Returns `None` if the
/// input stays as it is.
fn make_tensor(ty: &str, choices: &mut Choices<'_>) -> Option<Tensor> {
    let (elem, dims) = ty.split_once('[').unwrap_or((ty, "]"));
    let mut elem = DataType::from_name(elem)?;
    if choices.next().is_multiple_of(4) {
        return None;
    }
    let dims = dims.trim_end_matches(']').split(", ").filter(|size| !size.is_empty());
    let mut dims: Vec<usize> = dims.map(|size| size.parse().unwrap_or(2)).collect();
    if choices.one_in(6) {
        elem = TYPES[choices.below(TYPES.len())];
    }
    for size in &mut dims {
        if choices.one_in(5) {
            *size = SIZES[choices.below(SIZES.len())];
        }
    }
    if choices.one_in(12) {
        dims.push(SIZES[choices.below(SIZES.len())]);
    } else if choices.one_in(12) {
        dims.pop();
    }
    if dims.iter().product::<usize>() > ELEMENTS {
        return None;
    }
    let mut tensor = Tensor::zeros(elem, &dims).ok()?;
    let Some(width) = elem.bits().filter(|bits| bits % 8 == 0).map(|bits| bits / 8) else {
        return Some(tensor);
    };
    let is_small = !choices.one_in(4);
    for element in tensor.bytes_mut().ok()?.chunks_mut(width) {
        let choice = choices.next() as u8;
        match elem {
            DataType::Bool => element[0] = choice % 2,
            DataType::Float if is_small => {
                element.copy_from_slice(&(f32::from(choice as i8) / 16.0).to_le_bytes());
            }
            DataType::Double if is_small => {
                element.copy_from_slice(&(f64::from(choice as i8) / 16.0).to_le_bytes());
            }
            // Integers from -2 to 5, sign-extended.
            _ if is_small => {
                let small = i64::from(choice % 8) - 2;
                let bytes = small.to_le_bytes();
                for (place, byte) in element.iter_mut().enumerate() {
                    *byte = bytes.get(place).copied().unwrap_or_default();
                }
            }
            // Extreme values: the smallest, the largest, NaN and others.
            _ => {
                let fill = [0x00, 0xff, 0x7f, 0x80][usize::from(choice % 4)];
                element.fill(fill);
                if let Some(last) = element.last_mut() {
                    *last = [0x7f, 0x80, 0xff, choice][usize::from(choice / 4 % 4)];
                }
            }
        }
    }
    Some(tensor)
}

/// Replaces some integers among the attributes of a node.
fn change_numbers(node: &str, choices: &mut Choices<'_>) -> String {
    let Some((head, rest)) = node.split_once('<') else {
        return node.to_string();
    };
    let mut out = format!("{head}<");
    let mut number = String::new();
    for character in rest.chars() {
        let continues = character.is_ascii_digit() || character == '.' || character == 'e';
        let begins = number.is_empty() && character == '-';
        if begins || continues && (!number.is_empty() || out.ends_with([' ', '[', '-', '{'])) {
            number.push(character);
            continue;
        }
        let is_integer = number.parse::<i64>().is_ok();
        let changes = is_integer && choices.one_in(8);
        out.push_str(if changes { NUMBERS[choices.below(NUMBERS.len())] } else { &number });
        number.clear();
        out.push(character);
    }
    out + &number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Checks that the changes leave enough of the nodes valid.
    #[test]
    fn more_than_a_fifth_of_the_nodes_run() {
        let mut random = Random::new(1, 1);
        let count = 400;
        let run = (0..count).filter(|_| {
            let choices: Vec<u8> = (0..400).map(|_| random.below(256) as u8).collect();
            run(&choices)
        });
        let run = run.count();
        assert!(run > count / 5, "{run} of {count} run");
    }

    #[test]
    fn only_integers_of_attributes_change() {
        let always = [7; 40];
        let found = change_numbers(
            "y = Op <axis = -1, pads = [0, 2], f = 1.5> (x1)",
            &mut Choices(&always),
        );
        assert_eq!(found, "y = Op <axis = 64, pads = [64, 64], f = 1.5> (x1)");
    }
}
