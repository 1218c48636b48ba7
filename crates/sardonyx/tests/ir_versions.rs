//! Checks that all operations that change a model follow the rules of the IR version that they
//! write, on random models of all IR versions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::random::Random;
use sardonyx::check::Severity;
use sardonyx::convert::{ConvertOptions, Target};
use sardonyx::edit::{InlineOptions, StripOptions};
use sardonyx::infer::InferOptions;
use sardonyx::tool::NEWEST_IR_VERSION;
use sardonyx::train::{GradientOptions, Loss, TrainingOptions};
use sardonyx::{Model, Session, Tensor, check};

/// Number of random models of each IR version.
const MODELS: u64 = 16;

/// Newest version of `ai.onnx` of each IR version, from 1 on.
const NEWEST_OPSETS: [u32; 14] = [1, 1, 8, 9, 10, 11, 14, 18, 20, 22, 23, 24, 27, 28];

/// Draws a version from a range that includes both ends.
fn version(random: &mut Random, least: i64, most: i64) -> i64 {
    least + random.next_below((most - least + 1) as usize) as i64
}

/// Random model under construction, as ONNX text.
struct Draft {
    random: Random,
    ir_version: i64,
    opset: u32,
    nodes: String,
    constants: Vec<(String, String)>,
    function: bool,
}

impl Draft {
    /// Adds a constant to the main graph, and returns its name.
    fn constant(&mut self, ty: &str, values: &str) -> String {
        let name = format!("w{}", self.constants.len());
        self.constants.push((format!("{ty} {name}"), values.to_string()));
        name
    }

    /// Makes the header of a subgraph with a constant `c`, which is an input too before IR
    /// version 4.
    fn inner(&mut self, inputs: &str, outputs: &str, constant: &str) -> String {
        let comma = if inputs.is_empty() { "" } else { ", " };
        let constant = format!("{constant} c");
        let also = match self.ir_version {
            ..4 => format!("{comma}{constant}"),
            _ => String::new(),
        };
        let values = if constant.contains("[2, 2]") { "{1, 2, 3, 4}" } else { "{0.5, 2}" };
        format!("inner ({inputs}{also}) => ({outputs}) <{constant} = {values}>")
    }

    /// Adds one or two nodes that compute `y` from `x`.
    fn node(&mut self, x: &str, y: &str) {
        // Without attributes in IR version 1, which has no types of attributes.
        let kinds = if self.ir_version == 1 { 4 } else { 9 };
        let text = match self.random.next_below(kinds) {
            0 => format!("{y} = Tanh ({x})"),
            1 => {
                let w = self.constant("float[2, 2]", "{1, -2, 0.5, 3}");
                format!("{y} = MatMul ({x}, {w})")
            }
            2 => {
                let w = self.constant("float[2, 2]", "{0.5, 0.25, -1, 2}");
                format!("{y} = Add ({x}, {w})")
            }
            3 => format!("{y} = Mul ({x}, {x})"),
            4 => {
                let on = self.constant("bool", "{1}");
                let (one, other) = (self.inner("", "float[2, 2] r", "float[2, 2]"), "Abs");
                format!(
                    "{y} = If ({on}) <then_branch = {one} {{ r = Mul ({x}, c) }}, \
                     else_branch = other () => (float[2, 2] r) {{ r = {other} ({x}) }}>"
                )
            }
            5 => {
                let (turns, on) = (self.constant("int64", "{2}"), self.constant("bool", "{1}"));
                let inputs = "int64 i, bool on, float[2, 2] a";
                let body = self.inner(inputs, "bool on2, float[2, 2] r", "float[2, 2]");
                format!(
                    "{y} = Loop ({turns}, {on}, {x}) <body = {body} {{ on2 = Identity (on) r = Add (a, c) }}>"
                )
            }
            6 if self.opset >= 8 => {
                let start = self.constant("float[2]", "{0, 1}");
                // Scan has a batch axis in operator set 8.
                let (none, part, c) = match self.opset {
                    8 => ("\"\", ", "float", "float[2]"),
                    _ => ("", "float[2]", "float[2]"),
                };
                let body =
                    self.inner(&format!("{part} s, {part} e"), &format!("{part} t, {part} r"), c);
                let last = match self.opset {
                    8 => "r = Add (e, s)",
                    _ => "r = Mul (t, c)",
                };
                format!(
                    "last_{y}, {y} = Scan <num_scan_inputs = 1, body = {body} {{ t = Add (s, e) {last} }}> ({none}{start}, {x})"
                )
            }
            7 => {
                // The axes are an attribute before operator set 13, and an input from it on.
                if self.opset < 13 {
                    format!(
                        "u_{y} = Unsqueeze <axes = [0]> ({x}) {y} = Squeeze <axes = [0]> (u_{y})"
                    )
                } else {
                    let axes = self.constant("int64[1]", "{0}");
                    format!("u_{y} = Unsqueeze ({x}, {axes}) {y} = Squeeze (u_{y}, {axes})")
                }
            }
            _ if self.ir_version >= 8 => {
                self.function = true;
                format!("{y} = local.f ({x})")
            }
            _ if self.opset < 11 => format!("{y} = Clip <min = -1.5, max = 2.5> ({x})"),
            _ => format!("{y} = Identity ({x})"),
        };
        writeln!(self.nodes, "  {text}").unwrap();
    }

    fn text(mut self) -> String {
        let Draft { ir_version, opset, .. } = self;
        let count = 1 + self.random.next_below(5);
        for index in 0..count {
            let x = if index == 0 { "x".to_string() } else { format!("v{index}") };
            let y = if index + 1 == count { "y".to_string() } else { format!("v{}", index + 1) };
            self.node(&x, &y);
        }
        let mut inputs = "float[2, 2] x".to_string();
        for (constant, _) in &self.constants {
            if ir_version < 4 || self.random.next_below(3) == 0 {
                inputs += &format!(", {constant}");
            }
        }
        let values: Vec<String> = self
            .constants
            .iter()
            .map(|(constant, values)| format!("{constant} = {values}"))
            .collect();
        let (mut imports, mut function) = (String::new(), String::new());
        if ir_version >= 3 {
            imports = format!(", opset_import: [\"\": {opset}]");
        }
        if self.function {
            imports = format!(", opset_import: [\"\": {opset}, \"local\": 1]");
            function = format!(
                "\n<domain: \"local\", opset_import: [\"\": {opset}]> f (a) => (b) {{ t = Tanh (a) b = Mul (t, a) }}"
            );
        }
        let lists =
            if values.is_empty() { String::new() } else { format!("<{}>", values.join(", ")) };
        format!(
            "<ir_version: {ir_version}{imports}>\ng ({inputs}) => (float[2, 2] y) {lists} {{\n{}}}{function}",
            self.nodes
        )
    }
}

fn draft(seed: u64, ir_version: i64) -> String {
    let mut random = Random(seed * 97 + ir_version as u64 + 1);
    let newest = NEWEST_OPSETS[ir_version as usize - 1];
    let opset = match random.next_below(2) {
        0 => newest,
        _ => version(&mut random, 1, i64::from(newest)) as u32,
    };
    let (nodes, constants) = (String::new(), Vec::new());
    Draft { random, ir_version, opset, nodes, constants, function: false }.text()
}

/// Lists the errors of a model, and the features that its IR version lacks.
fn list_errors(model: &Model) -> Vec<String> {
    let report = model.check(&check::CheckOptions::new().types(true));
    let found = report.findings.iter().filter(|found| {
        found.severity == Severity::Error || found.code.name == "ir-version-too-old"
    });
    found
        .map(|found| format!("{}: {} ({})", found.code.name, found.fact, found.place.path))
        .collect()
}

/// Runs a model, and returns its output `y`.
fn run(model: &Model) -> Result<Vec<f32>, sardonyx::Error> {
    let x = Tensor::from_vec([2, 2], vec![-1.0f32, 0.5, 2.0, 0.25]).unwrap();
    let outputs =
        Session::builder(model).threads(1).build()?.run([("x", x)], &Default::default())?;
    Ok(outputs.tensor("y")?.to_vec::<f32>().unwrap())
}

type Command = (&'static str, fn(&Model, &mut Random) -> Option<Model>);

/// Operations that change a model. They return `None` if they fail for it.
const COMMANDS: &[Command] = &[
    ("convert to an operator set", |model, random| {
        let target = Target::new().opset("", version(random, 1, 28) as u32);
        Some(model.convert(&ConvertOptions::new(target)).ok()?.0)
    }),
    ("convert to an IR version", |model, random| {
        let target = Target::new().ir_version(version(random, 3, NEWEST_IR_VERSION));
        Some(model.convert(&ConvertOptions::new(target)).ok()?.0)
    }),
    ("convert to both", |model, random| {
        let target = Target::new().opset("", version(random, 1, 28) as u32);
        let target = target.ir_version(version(random, 3, NEWEST_IR_VERSION));
        Some(model.convert(&ConvertOptions::new(target)).ok()?.0)
    }),
    ("convert as the reference does", |model, random| {
        let target = Target::new().opset("", version(random, 7, 28) as u32);
        Some(model.convert(&ConvertOptions::new(target).like_onnx()).ok()?.0)
    }),
    ("set the IR version", |model, random| {
        let mut model = model.clone();
        model.set_ir_version(version(random, 1, NEWEST_IR_VERSION)).ok()?;
        Some(model)
    }),
    ("differentiate", |model, _| Some(model.add_gradients(&GradientOptions::new()).ok()?.0)),
    ("differentiate by x", |model, _| {
        Some(model.add_gradients(&GradientOptions::new().with_respect_to(["x"])).ok()?.0)
    }),
    ("add Gradient nodes", |model, _| {
        Some(model.add_gradients(&GradientOptions::new().gradient_node(true)).ok()?.0)
    }),
    ("expand Gradient nodes", |model, _| {
        let (model, _) = model.add_gradients(&GradientOptions::new().gradient_node(true)).ok()?;
        Some(model.expand_gradients().ok()?.0)
    }),
    ("add training", |model, _| {
        let loss = Loss::SquaredError { output: None };
        Some(model.add_training(&TrainingOptions::new(loss)).ok()?.0)
    }),
    ("inline", |model, _| {
        let mut model = model.clone();
        model.inline(&InlineOptions::new()).ok()?;
        Some(model)
    }),
    ("inline operators", |model, _| {
        let mut model = model.clone();
        model.inline(&InlineOptions::new().operators(["Clip", "Relu"])).ok()?;
        Some(model)
    }),
    ("infer", |model, _| {
        let mut model = model.clone();
        let found = model.infer(&InferOptions::new());
        model.add_types(&found);
        Some(model)
    }),
    ("strip", |model, _| {
        let mut model = model.clone();
        let options = StripOptions {
            unused_initializers: true,
            inferred_types: true,
            ..StripOptions::default()
        };
        model.strip(&options).unwrap();
        Some(model)
    }),
];

#[test]
fn results_obey_their_ir_version() {
    // VER-23+, VER-24+, GRAPH-08+, GRAPH-20+, MODEL-26+: random models of all IR versions, and the
    // results of each operation on them, are valid in their version and compute equal values.
    let (mut written, mut crossed, mut ran) = (BTreeMap::<&str, usize>::new(), 0, 0);
    for ir_version in 1..=NEWEST_IR_VERSION {
        for seed in 0..MODELS {
            let text = draft(seed, ir_version);
            let model = Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            assert_eq!(list_errors(&model), Vec::<String>::new(), "{text}");
            let expected = run(&model);
            for (index, (name, command)) in COMMANDS.iter().enumerate() {
                let mut random = Random((seed + 1) * 31 + index as u64);
                let Some(changed) = command(&model, &mut random) else { continue };
                let changed = Model::from_bytes(changed.to_bytes()).unwrap();
                let context = || format!("{name}\n{text}\n{}", changed.to_text());
                assert_eq!(list_errors(&changed), Vec::<String>::new(), "{}", context());
                *written.entry(name).or_default() += 1;
                let version = changed.ir_version().unwrap();
                crossed += usize::from((ir_version < 4) != (version < 4));
                if let Ok(expected) = &expected {
                    let found = run(&changed);
                    let found = found.unwrap_or_else(|error| panic!("{error}\n{}", context()));
                    assert_eq!(found.len(), expected.len(), "{name}\n{text}");
                    for (a, b) in found.iter().zip(expected) {
                        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} {b} {name}\n{text}");
                    }
                    ran += 1;
                }
            }
        }
    }
    let models = MODELS as usize * NEWEST_IR_VERSION as usize;
    for (name, _) in COMMANDS {
        let count = written.get(name).copied().unwrap_or_default();
        assert!(count * 3 >= models, "{name}: {count} of {models}, {written:?}");
    }
    assert!(crossed > 200 && ran > 1600, "{crossed} {ran} {written:?}");
}
