//! Runs every version of every operator of the standard, and compares outputs with the files in
//! `tests/versions`, with constant inputs, inputs of known shape, and inputs of unknown rank.

use std::collections::BTreeSet;
use std::fs;

use sardonyx::value::Tolerance;
use sardonyx::{Model, Session};
use sardonyx_ops::{AttrDefault, Registry};

const FILES: [&str; 3] = ["ai.onnx", "ai.onnx.ml", "ai.onnx.preview"];

/// Operator versions that no block can run.
const OTHERS: [(&str, u32); 3] = [
    // `images.rs` tests each image format.
    ("ImageDecoder", 20),
    // A map can only be a model input; `crates/runtime/tests/maps.rs` passes some.
    ("ai.onnx.ml.CastMap", 1),
    ("ai.onnx.ml.DictVectorizer", 1),
];

/// Tolerance for values in the files, which have at most as many digits as `float`.
const TOLERANCE: Tolerance = Tolerance { rtol: 1e-5, atol: 1e-6 };

/// Test case of a file: nodes to run at some versions, with inputs and expected outputs.
#[derive(Clone)]
struct Block {
    line: usize,
    operator: String,
    versions: Vec<u32>,
    /// Whether inputs must have known ranks.
    is_ranked: bool,
    /// Whether inputs must not be constants, because inference rejects the values.
    is_variable: bool,
    /// Declarations of inputs with their values.
    inputs: Vec<String>,
    nodes: Vec<String>,
    /// Declarations of outputs, most with expected values.
    outputs: Vec<String>,
}

/// Form of a model's inputs.
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

fn declaration(operand: &str) -> &str {
    operand.split(" = ").next().unwrap()
}

/// Removes the shape from a declaration: `float[2] x` becomes `float[] x`.
fn remove_rank(declared: &str) -> String {
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
            Inputs::Shaped => {
                self.inputs.iter().map(|input| declaration(input).to_string()).collect()
            }
            Inputs::OfAnyRank => {
                self.inputs.iter().map(|input| remove_rank(declaration(input))).collect()
            }
        };
        let outputs: Vec<&str> = self.outputs.iter().map(|output| declaration(output)).collect();
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

    /// Sets each omitted attribute that takes a keyword to an empty text. `None` if no attribute
    /// takes one.
    fn with_empty_keywords(&self, version: u32) -> Option<Block> {
        let (domain, name) = self.operator.rsplit_once('.').unwrap_or(("", &self.operator));
        let registry = Registry::standard();
        let schema = registry.schema(domain, name, version)?;
        let words = schema.attributes.iter().filter(|attribute| {
            let is_word = matches!(attribute.default, Some(AttrDefault::Word(_)));
            is_word
                && !self.nodes.iter().any(|node| node.contains(&format!("{} = ", attribute.name)))
        });
        let words: Vec<String> =
            words.map(|attribute| format!("{}: string = \"\"", attribute.name)).collect();
        if words.is_empty() {
            return None;
        }
        let (call, list) = (format!("{} ", self.operator), words.join(", "));
        let mut block = self.clone();
        for node in &mut block.nodes {
            let Some((start, end)) = node.split_once(&call) else { continue };
            *node = match end.strip_prefix('<') {
                Some(others) => format!("{start}{call}<{list}, {others}"),
                None => format!("{start}{call}<{list}> {end}"),
            };
        }
        Some(block)
    }

    /// Runs the nodes at one version, and compares the outputs with the expected values.
    fn check(&self, version: u32, inputs: Inputs) -> Result<(), String> {
        let outputs = run(&self.model(version, inputs))?;
        for output in self.outputs.iter().filter(|output| output.contains(" = ")) {
            let (ty, name) = declaration(output).rsplit_once(' ').unwrap();
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

/// Runs a model whose inputs all have default values.
fn run(text: &str) -> Result<sardonyx::Outputs, String> {
    let model = Model::from_text(text).map_err(|error| error.to_string())?;
    let session = Session::builder(&model).threads(1).build().map_err(|error| error.to_string())?;
    session
        .run([] as [(&str, sardonyx::Value); 0], &Default::default())
        .map_err(|error| error.to_string())
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

/// Checks outputs against the files, with constant inputs. OPSET-25+
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

/// Checks that an empty text means the default in every keyword attribute of every version.
/// ATTR-16+
#[test]
fn empty_keywords_mean_the_default() {
    let (mut wrong, mut seen) = (Vec::new(), BTreeSet::new());
    for_each_block(|file, block| {
        for version in &block.versions {
            let Some(other) = block.with_empty_keywords(*version) else { continue };
            for inputs in [Inputs::Constant, Inputs::OfAnyRank] {
                // Some blocks run only with constants, and some only with inputs.
                if block.check(*version, inputs).is_err() {
                    continue;
                }
                seen.insert((block.operator.clone(), *version));
                if let Err(why) = other.check(*version, inputs) {
                    let Block { line, operator, .. } = block;
                    wrong.push(format!("{file}.txt:{line}: {operator} {version}: {why}"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let registry = Registry::standard();
    let all = registry.operators().flat_map(|operator| {
        operator.versions().filter_map(|version| {
            let name = operator.full_name();
            let (domain, short) = name.rsplit_once('.').unwrap_or(("", &name));
            let schema = registry.schema(domain, short, version.since)?;
            let mut attributes = schema.attributes.iter();
            let has_word = attributes.any(|it| matches!(it.default, Some(AttrDefault::Word(_))));
            (has_word && !schema.deprecated).then_some((name, version.since))
        })
    });
    let all: BTreeSet<(String, u32)> = all.collect();
    let others = BTreeSet::from(OTHERS.map(|(name, version)| (name.to_string(), version)));
    let missing: Vec<_> = all.difference(&seen).filter(|it| !others.contains(it)).collect();
    assert_eq!(missing, Vec::<&(String, u32)>::new());
}

/// Fails if no block runs some version in the table of operators. OPSET-25-
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
