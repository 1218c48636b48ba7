//! Every version of every operator of the standard runs, and gives what the files of
//! `tests/versions` say: whether inputs are constants, have known shapes, or are of any rank.

use std::collections::BTreeSet;
use std::fs;

use sardonyx::{Model, Session, Tolerance};
use sardonyx_ops::Registry;

const FILES: [&str; 3] = ["ai.onnx", "ai.onnx.ml", "ai.onnx.preview"];

/// Versions that no block can run, and why.
const OTHERS: [(&str, u32); 3] = [
    // Each format of images is a subject of its own.
    ("ImageDecoder", 20),
    // Maps only come into a graph from outside; `crates/runtime/tests/maps.rs` passes some.
    ("ai.onnx.ml.CastMap", 1),
    ("ai.onnx.ml.DictVectorizer", 1),
];

/// The values are written with as many digits as `float` has, or fewer.
const TOLERANCE: Tolerance = Tolerance { rtol: 1e-5, atol: 1e-6 };

/// What is run, and what comes of it.
struct Block {
    line: usize,
    operator: String,
    versions: Vec<u32>,
    /// Whether inputs must have known ranks.
    is_ranked: bool,
    /// Whether inputs may not be constants: inference refuses the values.
    is_variable: bool,
    /// Inputs with their values.
    inputs: Vec<String>,
    nodes: Vec<String>,
    /// Outputs, most with their values.
    outputs: Vec<String>,
}

/// How inputs are there.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Inputs {
    Constant,
    Shaped,
    OfAnyRank,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        if line.is_empty() {
            is_open = false;
            continue;
        }
        if !is_open {
            let mut words = line.split(' ');
            let operator = words.next().unwrap().to_string();
            let numbers = words.clone().filter_map(|word| word.parse().ok());
            found.push(Block {
                line: index + 1,
                operator,
                versions: numbers.collect(),
                is_ranked: words.clone().any(|word| word == "ranked"),
                is_variable: words.any(|word| word == "variable"),
                inputs: Vec::new(),
                nodes: Vec::new(),
                outputs: Vec::new(),
            });
            is_open = true;
            continue;
        }
        let block = found.last_mut().unwrap();
        let (list, text) = match line.split_at(2) {
            ("< ", text) => (&mut block.inputs, text),
            ("> ", text) => (&mut block.outputs, text),
            ("  ", text) => (&mut block.nodes, text),
            _ => panic!("line {}: begins with neither of '< ', '> ' and two spaces", index + 1),
        };
        list.push(text.to_string());
    }
    found
}

fn declared(operand: &str) -> &str {
    operand.split(" = ").next().unwrap()
}

/// `float[2] x` as `float[] x`.
fn of_any_rank(declared: &str) -> String {
    let (ty, name) = declared.rsplit_once(' ').unwrap();
    format!("{}[] {name}", ty.split('[').next().unwrap())
}

impl Block {
    fn model(&self, version: u32, inputs: Inputs) -> String {
        let imports = match self.operator.rsplit_once('.') {
            Some((domain, _)) => format!("\"\": 21, \"{domain}\": {version}"),
            None => format!("\"\": {version}"),
        };
        let given: Vec<String> = match inputs {
            Inputs::Constant => Vec::new(),
            Inputs::Shaped => self.inputs.iter().map(|input| declared(input).to_string()).collect(),
            Inputs::OfAnyRank => {
                self.inputs.iter().map(|input| of_any_rank(declared(input))).collect()
            }
        };
        let outputs: Vec<&str> = self.outputs.iter().map(|output| declared(output)).collect();
        let (given, outputs) = (given.join(", "), outputs.join(", "));
        let values = match &self.inputs[..] {
            [] => String::new(),
            values => format!("<{}>", values.join(", ")),
        };
        let nodes = self.nodes.join("\n");
        format!(
            "<ir_version: 10, opset_import: [{imports}]>
             g ({given}) => ({outputs}) {values} {{ {nodes} }}"
        )
    }

    /// What is wrong about a version.
    fn check(&self, version: u32, inputs: Inputs) -> Result<(), String> {
        let outputs = run(&self.model(version, inputs))?;
        for output in self.outputs.iter().filter(|output| output.contains(" = ")) {
            let (ty, name) = declared(output).rsplit_once(' ').unwrap();
            let wanted = run(&format!(
                "<ir_version: 10, opset_import: [\"\": 21]>
                 g () => ({ty} wanted) <{output}> {{ wanted = Identity ({name}) }}"
            ))?;
            let (got, wanted) = (outputs.get(name).unwrap(), wanted.get("wanted").unwrap());
            got.compare(wanted, TOLERANCE).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }
}

/// The outputs of a model all of whose inputs have a default value.
fn run(text: &str) -> Result<sardonyx::Outputs, String> {
    let model = Model::from_text(text).map_err(|error| error.to_string())?;
    let session = Session::builder(&model).threads(1).build().map_err(|error| error.to_string())?;
    session.run([] as [(&str, sardonyx::Value); 0]).map_err(|error| error.to_string())
}

fn for_each_block(mut see: impl FnMut(&str, &Block)) {
    for file in FILES {
        let path = format!("{}/../../tests/versions/{file}.txt", env!("CARGO_MANIFEST_DIR"));
        for block in blocks(&fs::read_to_string(path).unwrap()) {
            see(file, &block);
        }
    }
}

fn check_all(inputs: Inputs) {
    let mut wrong = Vec::new();
    for_each_block(|file, block| {
        let is_left_out = match inputs {
            Inputs::Constant => block.is_variable,
            Inputs::Shaped => false,
            Inputs::OfAnyRank => block.is_ranked,
        };
        if is_left_out {
            return;
        }
        for version in &block.versions {
            if let Err(why) = block.check(*version, inputs) {
                let Block { line, operator, .. } = block;
                wrong.push(format!("{file}.txt:{line}: {operator} {version}: {why}"));
            }
        }
    });
    assert!(wrong.is_empty(), "inputs are {inputs:?}\n{}", wrong.join("\n"));
}

/// OPSET-25+: with the outputs that the files say.
#[test]
fn every_version_runs_on_constants() {
    check_all(Inputs::Constant);
}

#[test]
fn every_version_runs_on_inputs() {
    check_all(Inputs::Shaped);
}

#[test]
fn every_version_runs_on_inputs_of_any_rank() {
    check_all(Inputs::OfAnyRank);
}

/// OPSET-25-: a version that is in the table of operators and that no block runs fails here.
#[test]
fn no_version_is_left_out() {
    let mut listed: BTreeSet<(String, u32)> = BTreeSet::new();
    for_each_block(|_, block| {
        let versions = block.versions.iter();
        listed.extend(versions.map(|version| (block.operator.clone(), *version)));
    });
    listed.extend(OTHERS.map(|(operator, version)| (operator.to_string(), version)));
    let registry = Registry::standard();
    let all = registry.operators().flat_map(|operator| {
        operator.versions().map(move |version| (operator.full_name(), version.since))
    });
    let all: BTreeSet<(String, u32)> = all.collect();
    assert_eq!(all.len(), 659);
    assert_eq!(all.difference(&listed).collect::<Vec<_>>(), Vec::<&(String, u32)>::new());
    assert_eq!(listed.difference(&all).collect::<Vec<_>>(), Vec::<&(String, u32)>::new());
}
