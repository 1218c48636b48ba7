//! Tests of gradient rules against central differences in double precision. The blocks of
//! `tests/gradients` run with known shapes, with known ranks only and with unknown ranks, and
//! second derivatives are tested too.

mod masks;
mod sequences;

use std::collections::BTreeSet;
use std::fs;

use sardonyx::check::Severity;
use sardonyx::tool::{CastOptions, cast};
use sardonyx::train::GradientOptions;
use sardonyx::{DataType, Model, Outputs, Session, Tensor, Value, check};
use sardonyx_ops::{Differentiability, OpDef, Param, Registry};

/// Tolerance of a gradient, relative to the largest element or 1.
const TOLERANCE: f64 = 1e-6;

/// Tolerance of a second derivative, which is compared with differences of gradients.
const SECOND_TOLERANCE: f64 = 1e-5;

/// Tolerance of a value that is computed beside its gradient: functions of the standard have
/// single-precision constants.
const SAME_TOLERANCE: f64 = 1e-7;

/// Shape information that a model declares for the differentiated inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Shapes,
    /// The rank of the first input, and the shapes of the others.
    Ranks,
    Nothing,
}

#[derive(Clone)]
struct Block {
    line: usize,
    operator: String,
    /// Whether the rule requires inputs of known rank.
    is_ranked: bool,
    /// Whether second derivatives are not tested.
    is_once: bool,
    /// Whether an input `mask` selects the elements of the result that count in the loss, and
    /// boolean constants of the block become inputs.
    is_masked: bool,
    inputs: Vec<Input>,
    nodes: Vec<String>,
}

/// An input and its elements.
#[derive(Clone)]
struct Input {
    /// Type in the notation, such as `double[2, 3]`.
    ty: String,
    name: String,
    /// Values in the notation; `None` for an input that is differentiated.
    text: Option<String>,
    /// Dimensions of an input that is differentiated.
    dims: Vec<usize>,
    elements: Vec<f64>,
}

/// Random numbers from 0 to 1 by Knuth's linear congruential generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn range(&mut self, low: f64, high: f64, count: usize) -> Vec<f64> {
        (0..count).map(|_| low + (high - low) * self.next()).collect()
    }
}

impl Input {
    fn read(text: &str, random: &mut Random) -> Input {
        let (declared, values) = match text.split_once(" = ") {
            Some((declared, values)) => (declared, Some(values)),
            None => (text.split_once(" in ").unwrap().0, None),
        };
        let (ty, name) = declared.rsplit_once(' ').unwrap();
        let dims: Vec<usize> = match ty.split_once('[') {
            Some((_, dims)) => {
                dims.trim_end_matches(']').split(", ").map(|size| size.parse().unwrap()).collect()
            }
            None => Vec::new(),
        };
        let count = dims.iter().product();
        let is_varied = ty.starts_with("double");
        let elements = match values {
            _ if !is_varied => Vec::new(),
            Some(values) => {
                let values = values.trim_matches(['{', '}']).split(", ");
                values.map(|value| value.parse().unwrap()).collect()
            }
            None => {
                let range = text.split_once(" in ").unwrap().1.split_once(' ').unwrap();
                random.range(range.0.parse().unwrap(), range.1.parse().unwrap(), count)
            }
        };
        let text = values.filter(|_| !is_varied).map(str::to_string);
        Input { ty: ty.to_string(), name: name.to_string(), text, dims, elements }
    }

    fn is_varied(&self) -> bool {
        self.text.is_none()
    }

    fn is_of_truths(&self) -> bool {
        self.ty.starts_with("bool")
    }

    /// Declares the input in the notation, with the element type `varied` if it is differentiated.
    fn declare(&self, known: Known, varied: &str) -> String {
        let elem = self.ty.split('[').next().unwrap();
        let elem = if self.is_varied() { varied } else { elem };
        let ty = match known {
            Known::Ranks if !self.dims.is_empty() => {
                format!("{elem}[{}]", vec!["?"; self.dims.len()].join(", "))
            }
            Known::Shapes | Known::Ranks => match self.ty.split_once('[') {
                Some((_, dims)) => format!("{elem}[{dims}"),
                None => elem.to_string(),
            },
            Known::Nothing => format!("{elem}[]"),
        };
        format!("{ty} {}", self.name)
    }

    fn tensor(&self, elements: &[f64]) -> Value {
        Value::Tensor(Tensor::from_slice(&self.dims[..], elements).unwrap())
    }
}

fn parse_blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut is_open = false;
    let mut random = Random(1);
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        if line.is_empty() {
            is_open = false;
        } else if !is_open {
            let mut words = line.split(' ');
            let operator = words.next().unwrap().to_string();
            let has = |word: &str| words.clone().any(|found| found == word);
            let (is_ranked, is_once) = (has("ranked"), has("once"));
            let (inputs, nodes) = (Vec::new(), Vec::new());
            let line = index + 1;
            let is_masked = false;
            found.push(Block { line, operator, is_ranked, is_once, is_masked, inputs, nodes });
            is_open = true;
        } else if let Some(input) = line.strip_prefix("< ") {
            found.last_mut().unwrap().inputs.push(Input::read(input, &mut random));
        } else {
            found.last_mut().unwrap().nodes.push(line.trim().to_string());
        }
    }
    found
}

/// Order of the derivative that a session computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    /// No derivative: only `y`.
    Zero,
    /// Gradient of the weighted sum of `y`.
    First,
    /// Gradient of a weighted sum of the first gradient.
    Second,
}

impl Block {
    fn varied_inputs(&self) -> Vec<&Input> {
        self.inputs.iter().filter(|input| input.is_varied()).collect()
    }

    fn session(&self, order: Order, known: Known) -> Result<Session, String> {
        self.session_of(order, known, "double")
    }

    /// Makes a session in which the differentiated inputs have the element type `elem`.
    fn session_of(&self, order: Order, known: Known, elem: &str) -> Result<Session, String> {
        let model = self.model_of(order, known, elem)?;
        let session = Session::builder(&model).threads(1).build();
        session.map_err(|error| format!("{error}\n{}", model.to_text()))
    }

    /// Makes the model with `Gradient` nodes.
    fn model_of(&self, order: Order, known: Known, elem: &str) -> Result<Model, String> {
        let mut given: Vec<String> = Vec::new();
        let mut constants: Vec<String> = Vec::new();
        let mut held = vec!["weights".to_string()];
        for input in &self.inputs {
            let declared = input.declare(self.known_of(input, known), elem);
            match &input.text {
                // As a default of an input, the value is not known to inference.
                Some(values)
                    if known == Known::Nothing || self.is_masked && input.is_of_truths() =>
                {
                    held.push(input.name.clone());
                    given.push(declared.clone());
                    constants.push(format!("{} {} = {values}", input.ty, input.name));
                }
                Some(values) => constants.push(format!("{} {} = {values}", input.ty, input.name)),
                None => given.push(declared),
            }
        }
        let varied: Vec<&str> =
            self.varied_inputs().iter().map(|input| input.name.as_str()).collect();
        let directions: Vec<String> = varied.iter().map(|name| format!("v_{name}")).collect();
        let mut nodes = self.nodes.join("\n");
        let mut outputs = vec![format!("{elem}[] y")];
        let gradient = |names: &[String], y: &str, held: &[String]| {
            let quoted = |names: &[&str]| {
                names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
            };
            let held: Vec<&str> = held.iter().map(String::as_str).collect();
            format!(
                "\n{} = ai.onnx.preview.training.Gradient \
                 <xs = [{}], zs = [{}], y = \"{y}\"> ({})",
                names.join(", "),
                quoted(&varied),
                quoted(&held),
                varied.iter().chain(&held).copied().collect::<Vec<_>>().join(", "),
            )
        };
        if order >= Order::First {
            given.push(format!("{elem}[] weights"));
            let names: Vec<String> = varied.iter().map(|name| format!("g_{name}")).collect();
            let mut counted = "y";
            if self.is_masked {
                given.push("bool[] mask".to_string());
                held.push("mask".to_string());
                constants.push(format!("{elem} masked = {{0}}"));
                nodes += "\nshown = Where (mask, y, masked)";
                counted = "shown";
            }
            nodes += &format!(
                "\nweighted = Mul ({counted}, weights)\nloss = ReduceSum <keepdims = 0> (weighted)"
            );
            nodes += &gradient(&names, "loss", &held);
            outputs = names.iter().map(|name| format!("{elem}[] {name}")).collect();
            if order == Order::First {
                outputs.push(format!("{elem}[] y"));
            }
        }
        if order == Order::Second {
            let names: Vec<String> = varied.iter().map(|name| format!("h_{name}")).collect();
            let mut sums = Vec::new();
            for (input, direction) in self.varied_inputs().iter().zip(&directions) {
                let name = &input.name;
                let ty = input.declare(self.known_of(input, known), elem);
                given.push(format!("{} {direction}", ty.rsplit_once(' ').unwrap().0));
                nodes += &format!(
                    "\np_{name} = Mul (g_{name}, {direction})
                     s_{name} = ReduceSum <keepdims = 0> (p_{name})"
                );
                sums.push(format!("s_{name}"));
            }
            held.extend(directions.iter().cloned());
            nodes += &format!("\nsecond = Sum ({})", sums.join(", "));
            nodes += &gradient(&names, "second", &held);
            outputs = names.iter().map(|name| format!("{elem}[] {name}")).collect();
        }
        let constants = match &constants[..] {
            [] => String::new(),
            constants => format!("<{}>", constants.join(", ")),
        };
        let text = format!(
            "<ir_version: 14, opset_import: [\"\": 28, \"ai.onnx.preview.training\": 1]>
             g ({}) => ({}) {constants} {{ {nodes} }}",
            given.join(", "),
            outputs.join(", ")
        );
        Model::from_text(&text).map_err(|error| format!("{error}\n{text}"))
    }

    /// Expands the `Gradient` nodes, writes the model to bytes and reads it back, and compares its
    /// outputs with a session of the original.
    fn check_written(&self) -> Result<(), String> {
        let orders =
            if self.is_once { &[Order::First][..] } else { &[Order::First, Order::Second] };
        for order in orders {
            let model = self.model_of(*order, Known::Shapes, "double")?;
            let session = self.session(*order, Known::Shapes)?;
            let (written, _) = model.expand_gradients().map_err(|error| error.to_string())?;
            let written =
                Model::from_bytes(written.to_bytes()).map_err(|error| error.to_string())?;
            let written = Session::builder(&written).threads(1).build();
            let written = written.map_err(|error| error.to_string())?;
            let inputs = session.inputs().iter().map(|port| {
                let given = self.inputs.iter().find(|input| input.name == port.name());
                match given.filter(|input| input.is_varied()) {
                    Some(input) => Ok((port.name(), input.tensor(&input.elements))),
                    None => Err(port.name()),
                }
            });
            let (given, held): (Vec<_>, Vec<_>) = inputs.partition(Result::is_ok);
            let mut given: Vec<(&str, Value)> = given.into_iter().flatten().collect();
            for name in held.into_iter().filter_map(Result::err) {
                let of = name.strip_prefix("v_");
                let of = of.and_then(|of| self.inputs.iter().find(|input| input.name == of));
                let dims = match of {
                    Some(input) => input.dims.clone(),
                    None => self.dims_of_y()?,
                };
                let elements = Random(3).range(-1.0, 1.0, dims.iter().product());
                let tensor = Tensor::from_slice(&dims[..], &elements).unwrap();
                given.push((name, Value::Tensor(tensor)));
            }
            let run = |session: &Session| {
                let outputs = session.run(
                    given.iter().map(|(name, value)| (*name, value.clone())),
                    &Default::default(),
                );
                outputs.map(|outputs| flat(&outputs)).map_err(|error| error.to_string())
            };
            close(&run(&written)?, &run(&session)?, TOLERANCE)?;
        }
        Ok(())
    }

    /// Returns the dimensions of `y`.
    fn dims_of_y(&self) -> Result<Vec<usize>, String> {
        let inputs = self.varied_inputs();
        let inputs =
            inputs.iter().map(|input| (input.name.as_str(), input.tensor(&input.elements)));
        let outputs = self.session(Order::Zero, Known::Shapes)?.run(inputs, &Default::default());
        let outputs = outputs.map_err(|error| error.to_string())?;
        Ok(outputs.get("y").and_then(Value::as_tensor).unwrap().dims().to_vec())
    }

    /// Returns the shape information that the model declares for one input.
    fn known_of(&self, input: &Input, known: Known) -> Known {
        let is_first = self.varied_inputs().first().is_some_and(|first| first.name == input.name);
        match known {
            Known::Ranks if !is_first => Known::Shapes,
            _ if !input.is_varied() => Known::Shapes,
            known => known,
        }
    }

    /// Returns the values of the differentiated inputs.
    fn elements(&self) -> Vec<Vec<f64>> {
        self.varied_inputs().iter().map(|input| input.elements.clone()).collect()
    }

    /// Runs a session with the differentiated inputs set to `at`, and concatenates its outputs.
    fn run(
        &self,
        session: &Session,
        at: &[Vec<f64>],
        others: &[(String, Value)],
    ) -> Result<Vec<f64>, String> {
        let varied = self.varied_inputs();
        let inputs = varied.iter().zip(at);
        let inputs = inputs.map(|(input, at)| (input.name.clone(), input.tensor(at)));
        let inputs: Vec<(String, Value)> = inputs.chain(others.iter().cloned()).collect();
        let inputs = inputs.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let outputs =
            session.run(inputs, &Default::default()).map_err(|error| error.to_string())?;
        Ok(flat(&outputs))
    }

    fn check(&self, known: Known) -> Result<(), String> {
        let mut random = Random(2);
        let forward = self.session(Order::Zero, known)?;
        let at = self.elements();
        let inputs = self.varied_inputs();
        let inputs =
            inputs.iter().map(|input| (input.name.as_str(), input.tensor(&input.elements)));
        let y = forward.run(inputs, &Default::default()).map_err(|error| error.to_string())?;
        let alone = flat(&y);
        let dims = y.get("y").and_then(Value::as_tensor).unwrap().dims().to_vec();
        let weights = random.range(-1.0, 1.0, dims.iter().product());
        let w = Value::Tensor(Tensor::from_slice(&dims[..], &weights).unwrap());
        let w = [("weights".to_string(), w)];
        let first = self.session(Order::First, known)?;
        let mut found = self.run(&first, &at, &w)?;
        // An operator without a rule is replaced by other nodes, which must compute equal values.
        let count = at.iter().map(Vec::len).sum();
        let beside = found.split_off(count);
        close(&beside, &alone, SAME_TOLERANCE).map_err(|why| format!("value: {why}"))?;
        let mut expected = Vec::new();
        for input in 0..at.len() {
            for element in 0..at[input].len() {
                let step = 1e-5 * at[input][element].abs().max(1.0);
                let moved = |by: f64| {
                    let mut moved = at.clone();
                    moved[input][element] += by;
                    let y = self.run(&forward, &moved, &[])?;
                    Ok::<f64, String>(y.iter().zip(&weights).map(|(y, w)| y * w).sum())
                };
                expected.push((moved(step)? - moved(-step)?) / (2.0 * step));
            }
        }
        close(&found, &expected, TOLERANCE).map_err(|why| format!("gradient: {why}"))?;
        if self.is_once {
            return Ok(());
        }
        let along: Vec<Vec<f64>> = at.iter().map(|at| random.range(-1.0, 1.0, at.len())).collect();
        let second = self.session(Order::Second, known)?;
        let directions = self.varied_inputs().into_iter().zip(&along);
        let directions =
            directions.map(|(input, along)| (format!("v_{}", input.name), input.tensor(along)));
        let held: Vec<(String, Value)> = w.iter().cloned().chain(directions).collect();
        let found = self.run(&second, &at, &held)?;
        let step = 1e-5;
        let moved = |by: f64| {
            let moved = at.iter().zip(&along);
            let moved = moved.map(|(at, along)| {
                at.iter().zip(along).map(|(at, along)| at + by * along).collect()
            });
            let found = self.run(&first, &moved.collect::<Vec<_>>(), &w);
            found.map(|found| found[..count].to_vec())
        };
        let (above, below) = (moved(step)?, moved(-step)?);
        let expected =
            above.iter().zip(&below).map(|(above, below)| (above - below) / (2.0 * step));
        let expected: Vec<f64> = expected.collect();
        close(&found, &expected, SECOND_TOLERANCE).map_err(|why| format!("second: {why}"))
    }
}

/// Concatenates the elements of all outputs.
fn flat(outputs: &Outputs) -> Vec<f64> {
    let tensors = outputs.iter().map(|(_, value)| value.as_tensor().unwrap());
    tensors.flat_map(|tensor| tensor.as_slice::<f64>().unwrap().to_vec()).collect()
}

fn close(found: &[f64], expected: &[f64], tolerance: f64) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} elements, not {}", found.len(), expected.len()));
    }
    let scale = expected.iter().fold(1.0f64, |scale, value| scale.max(value.abs()));
    let mut pairs = found.iter().zip(expected).enumerate();
    let off = pairs.find(|(_, (found, expected))| {
        let off = (**found - **expected).abs();
        off.is_nan() || off > tolerance * scale
    });
    match off {
        Some((at, (found, expected))) => Err(format!("element {at}: {found} is not {expected}")),
        None => Ok(()),
    }
}

impl Block {
    /// Computes the gradient in the element type `elem`.
    fn gradient_in(&self, elem: DataType, weights: &Tensor) -> Result<Vec<f64>, String> {
        let session = self.session_of(Order::First, Known::Shapes, elem.name())?;
        let cast = |tensor: &Tensor, to| cast(tensor, to, CastOptions::default()).unwrap();
        let varied = self.varied_inputs();
        let inputs = varied.iter().map(|input| {
            let tensor = Tensor::from_slice(&input.dims[..], &input.elements).unwrap();
            (input.name.as_str(), Value::Tensor(cast(&tensor, elem)))
        });
        let inputs = inputs.chain([("weights", Value::Tensor(cast(weights, elem)))]);
        let outputs =
            session.run(inputs, &Default::default()).map_err(|error| error.to_string())?;
        let tensors = outputs.iter().map(|(_, value)| value.as_tensor().unwrap());
        let wide = tensors.map(|tensor| cast(tensor, DataType::Double));
        Ok(wide.flat_map(|tensor| tensor.as_slice::<f64>().unwrap().to_vec()).collect())
    }

    /// Compares gradients in narrower types with those in double, at inputs that are exact in all
    /// types.
    fn check_narrow(&self) -> Result<(), String> {
        let mut block = self.clone();
        let whole = |x: &mut f64| *x = (*x * 64.0).round() / 64.0;
        let inputs = block.inputs.iter_mut();
        inputs.for_each(|input| input.elements.iter_mut().for_each(whole));
        let forward = block.session(Order::Zero, Known::Shapes)?;
        let at = block.elements();
        let inputs = block.varied_inputs();
        let inputs = inputs.iter().zip(&at);
        let inputs = inputs.map(|(input, at)| (input.name.as_str(), input.tensor(at)));
        let y = forward.run(inputs, &Default::default()).map_err(|error| error.to_string())?;
        let dims = y.get("y").and_then(Value::as_tensor).unwrap().dims().to_vec();
        let mut weights = Random(2).range(-1.0, 1.0, dims.iter().product());
        weights.iter_mut().for_each(whole);
        let weights = Tensor::from_slice(&dims[..], &weights).unwrap();
        let expected = block.gradient_in(DataType::Double, &weights)?;
        for (elem, tolerance) in [(DataType::Float, 2e-5), (DataType::Float16, 2e-2)] {
            let found = block.gradient_in(elem, &weights)?;
            close(&found, &expected, tolerance).map_err(|why| format!("{elem}: {why}"))?;
        }
        Ok(())
    }
}

/// Reads the blocks of all files, with the name of the file of each.
fn read_blocks() -> Vec<(String, Block)> {
    let directory = format!("{}/../../tests/gradients", env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "txt")).collect();
    files.sort();
    let mut found = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let blocks = parse_blocks(&fs::read_to_string(path).unwrap());
        found.extend(blocks.into_iter().map(|block| (name.clone(), block)));
    }
    found
}

/// Checks all blocks, or only those of the operators in the environment variable `GRADIENTS`.
fn check_all(check: impl Fn(&Block) -> Result<(), String>) {
    let mut wrong = Vec::new();
    let only = std::env::var("GRADIENTS").ok();
    for (file, block) in read_blocks() {
        let is_selected =
            only.as_ref().is_none_or(|only| only.split(',').any(|name| name == block.operator));
        if !is_selected {
            continue;
        }
        if let Err(why) = check(&block) {
            wrong.push(format!("{file}:{}: {}: {why}", block.line, block.operator));
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn gradients_of_known_shapes_are_those_of_differences() {
    check_all(|block| block.check(Known::Shapes));
}

#[test]
fn gradients_that_are_written_run() {
    check_all(Block::check_written);
}

#[test]
fn gradients_of_known_ranks_are_those_of_differences() {
    check_all(|block| block.check(Known::Ranks));
}

#[test]
fn gradients_of_any_rank_are_those_of_differences() {
    check_all(|block| if block.is_ranked { Ok(()) } else { block.check(Known::Nothing) });
}

/// Checks gradients in narrower types. Blocks with nodes that name the type double are skipped.
#[test]
fn gradients_in_narrower_types_are_those_in_double() {
    check_all(|block| {
        let mut nodes = block.nodes.iter();
        if nodes.any(|node| node.contains("= 11") || node.contains("double")) {
            Ok(())
        } else {
            block.check_narrow()
        }
    });
}

/// Checks that every operator with a gradient rule, or with nodes for its gradient, has a block.
#[test]
fn no_rule_is_left_out() {
    let blocks = read_blocks();
    let tried: BTreeSet<&str> = blocks.iter().map(|(_, block)| block.operator.as_str()).collect();
    let registry = Registry::standard();
    let with_rule = registry
        .operators()
        .filter(|def: &&OpDef| def.gradient_rule().is_some() || def.has_gradient_nodes());
    let names: Vec<String> = with_rule.map(|def| def.full_name()).collect();
    let missing: Vec<&String> =
        names.iter().filter(|name| !tried.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "without a block: {missing:?}");
}

/// Makes a session of these inputs, outputs and nodes, with a function that has a `Gradient` node.
fn session(inputs: &str, outputs: &str, nodes: &str) -> Result<Session, String> {
    let text = format!(
        "<ir_version: 14, opset_import: [\"\": 28, \"ai.onnx.preview.training\": 1, \"own\": 1]>
         g ({inputs}) => ({outputs}) {{ {nodes} }}
         <domain: \"own\", opset_import: [\"\": 28, \"ai.onnx.preview.training\": 1]>
         slope (x) => (dx) {{
             square = Mul (x, x)
             dx = ai.onnx.preview.training.Gradient <xs = [\"x\"], y = \"square\"> (x)
         }}"
    );
    let model = Model::from_text(&text).map_err(|error| format!("{error}\n{text}"))?;
    Session::builder(&model).threads(1).build().map_err(|error| error.to_string())
}

#[test]
fn gradients_that_do_not_exist_are_refused() {
    let flat = "h = Exp (a)
        b = BitCast <to = 1> (h)
        low = ReduceSum <keepdims = 0> (b)
        count = Constant <value_int = 16> ()
        high = Constant <value_float = 8.0> ()
        m = MelWeightMatrix (count, count, count, low, high)
        y = ReduceSum <keepdims = 0> (m)";
    for (inputs, nodes, names, refusal) in [
        ("float a", "", r#"xs = ["b"], y = "a"> (a)"#, "it names 'b', which is not defined"),
        (
            "float a",
            "y = Exp (a)",
            r#"xs = ["a"], y = "y"> (a, a)"#,
            "the node has 2 inputs, but xs and zs name 1 values",
        ),
        (
            "int64 i",
            "",
            r#"xs = ["i"], y = "i"> (i)"#,
            "'i' has type int64: only floating-point tensors have gradients",
        ),
        (
            "float a, float b",
            "y = Mul (a, b)",
            r#"xs = ["a"], y = "y"> (a)"#,
            "'y' depends on the input 'b', which is not in xs or zs",
        ),
        (
            "float a, float b",
            "y = Mul (a, b)",
            r#"xs = ["a", "b", "y"], y = "y"> (a, b, y)"#,
            "'y' can be computed from other values in xs and zs",
        ),
        (
            "float[2] a",
            flat,
            r#"xs = ["h"], y = "y"> (h)"#,
            "operators between xs and y have no gradient: BitCast, MelWeightMatrix",
        ),
        (
            "float[2] a, bool c",
            "h = BitCast <to = 1> (a)
             y = If (c) <
                 then_branch = yes () => (float[2] t) {
                     t = Loop <body = iteration (int64 i, bool d, float[2] e) => (bool d2, float[2] e2) {
                         d2 = Identity (d)
                         e2 = BitCast <to = 1> (e)
                     }> (, c, h)
                 },
                 else_branch = no () => (float[2] f) {
                     f = Neg (a)
                 }
             >",
            r#"xs = ["a"], zs = ["c"], y = "y"> (a, c)"#,
            "operators between xs and y have no gradient: BitCast",
        ),
        (
            "float[2] a, int64 n",
            "p = Constant <value = float[2] {1, 2}> ()
             given = Optional (p)
             true = Constant <value = bool {1}> ()
             y, l = Loop <body = iteration (int64 i, bool c, float[2] v, optional(float[2]) d)
                 => (bool c2, float[2] v2, optional(float[2]) d2) {
                 c2 = Identity (c)
                 e = OptionalGetElement (d)
                 v2 = Mul (v, e)
                 f = Neg (e)
                 d2 = Optional (f)
             }> (n, true, a, given)",
            r#"xs = ["a"], zs = ["n"], y = "y"> (a, n)"#,
            "Loop carries 'given' of type optional(float[2]), which is neither a tensor nor a \
             sequence of tensors",
        ),
        (
            "float[2] a, float[2, 2] b, int64 n",
            "s = SequenceConstruct (a, a)
             y, l = Scan <num_scan_inputs = 1, body = iteration (float[2] v, float[2] e)
                 => (float[2] v2, float[2] f) {
                 p = SequenceAt (s, n)
                 v2 = Mul (v, p)
                 f = Mul (e, p)
             }> (a, b)",
            r#"xs = ["a"], zs = ["b", "n"], y = "y"> (a, b, n)"#,
            "Scan reads the sequence 's', whose gradient a Scan cannot carry; a Loop can",
        ),
        (
            "seq(float[2]) s, int64 n",
            "e = SequenceAt (s, n)
             y = ReduceSum (e)",
            r#"xs = ["s"], zs = ["n"], y = "y"> (s, n)"#,
            "'s' has type seq(float[2]): only floating-point tensors have gradients",
        ),
    ] {
        let nodes = format!("{nodes}\nd = ai.onnx.preview.training.Gradient <{names}");
        let found = session(inputs, "float d", &nodes);
        let found = found.err().unwrap_or_else(|| format!("{nodes} runs"));
        assert!(found.contains(refusal), "{nodes}: {found}");
    }
}

/// Checks that 8-bit floats, for which arithmetic is not defined, have gradients only between a
/// cast to and a cast from them.
#[test]
fn gradients_in_8_bits_are_refused() {
    for (inputs, nodes, refusal) in [
        (
            "float8e4m3fn[2, 1] a",
            "b = Transpose (a)
             c = Cast <to = 1> (b)
             y = ReduceSum (c)",
            Some(eight_bit_refusal("a", "float8e4m3fn")),
        ),
        (
            "float[2] a",
            "q = Cast <to = 19> (a)
             b = Cast <to = 1> (q)
             h = Cast <to = 10> (q)
             c = Cast <to = 1> (h)
             e = Mul (b, c)
             y = ReduceSum (e)",
            Some(eight_bit_refusal("q", "float8e5m2")),
        ),
        (
            "float[2] a",
            "q = Cast <to = 19> (a)
             b = Cast <to = 1> (q)
             y = ReduceSum (b)",
            None,
        ),
    ] {
        let gradient = r#"d = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (a)"#;
        let output = if inputs.starts_with("float8") { "float8e4m3fn[] d" } else { "float[] d" };
        let found = session(inputs, output, &format!("{nodes}\n{gradient}"));
        match (found, refusal) {
            (Ok(_), None) => {}
            (Err(found), Some(refusal)) => assert!(found.contains(&refusal), "{nodes}: {found}"),
            (found, _) => panic!("{nodes}: {:?}", found.err()),
        }
    }
}

fn eight_bit_refusal(name: &str, ty: &str) -> String {
    format!(
        "'{name}' has type {ty}, in which gradients are not computed: only a cast may make and \
         read it"
    )
}

/// Checks that `tests/gradients/without_rule.list` lists, with the reason, each operator without
/// gradient rule and function that maps floats to floats or that the standard marks as
/// differentiable.
#[test]
fn operators_without_gradients_are_listed() {
    let path = format!("{}/../../tests/gradients/without_rule.list", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let listed: BTreeSet<&str> = lines
        .map(|line| {
            let (name, reason) = line.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            assert!(!reason.is_empty(), "{line}");
            name
        })
        .collect();
    let registry = Registry::standard();
    let mut found: BTreeSet<String> = BTreeSet::new();
    for def in registry.operators() {
        let Some(schema) = def.schema_at(def.newest()).filter(|schema| !schema.deprecated) else {
            continue;
        };
        let marked = schema
            .inputs
            .iter()
            .any(|input| input.differentiability == Differentiability::Differentiable);
        let takes_floats = |param: &Param| {
            let of_variable = schema.type_var(param.ty).map(|variable| variable.allowed.names());
            let names = of_variable.unwrap_or_else(|| vec![param.ty.to_string()]);
            names.iter().any(|name| name == "tensor(float)")
        };
        let has_floats =
            schema.inputs.iter().any(takes_floats) && schema.outputs.iter().any(takes_floats);
        let has_none = def.gradient_rule().is_none() && def.functions_of(def.newest()).is_empty();
        if has_none && (marked || has_floats) {
            found.insert(def.full_name());
        }
    }
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "not listed: {missing:?}, need not be: {gone:?}"
    );
}

/// Checks the gradients at points where functions have no derivative.
#[test]
fn kinks_have_gradients() {
    let ints = "low = Constant <value_float = -1.0> ()
        high = Constant <value_float = 1.0> ()
        place = Constant <value_ints = [1, 1]> ()
        axis = Constant <value_ints = [0]> ()
        image = Constant <value_ints = [1, 1, -1]> ()
        signs = Constant <value_floats = [1.0, -1.0]> ()
        tensor = Reshape (x, image)";
    let rows: [(&str, &[f32], &[f32]); 24] = [
        ("y = Relu (x)", &[-1.0, 0.0, 1.0], &[0.0, 0.0, 1.0]),
        // NaN is not below 0, so the incoming gradient passes.
        ("y = Relu (x)", &[f32::NAN, f32::INFINITY], &[1.0, 1.0]),
        // An infinite power of a number below 1 is 0 in a neighbourhood of it.
        ("e = Constant <value = float {inf}> ()\ny = Pow (x, e)", &[0.5, 0.0, -0.7], &[0.0; 3]),
        ("y = Abs (x)", &[-1.0, 0.0, 1.0], &[-1.0, 0.0, 1.0]),
        ("y = Sign (x)", &[-1.0, 0.0, 1.0], &[0.0; 3]),
        ("y = Clip (x, low, high)", &[-2.0, -1.0, 1.0, 2.0], &[0.0, 1.0, 1.0, 0.0]),
        ("y = Round (x)", &[0.5, 1.0], &[0.0; 2]),
        ("y = Floor (x)", &[0.0, 1.0], &[0.0; 2]),
        ("y = Ceil (x)", &[0.0, 1.0], &[0.0; 2]),
        ("z = Neg (x)\na = Abs (x)\ny = Max (x, x, z)", &[1.0, 0.0], &[1.0, 1.0 / 3.0]),
        ("y = Max (x, high)", &[0.0, 1.0, 2.0], &[0.0, 0.5, 1.0]),
        ("y = Min (x, high)", &[0.0, 1.0, 2.0], &[1.0, 0.5, 0.0]),
        ("y = ReduceMax (x)", &[2.0, 1.0, 2.0], &[0.5, 0.0, 0.5]),
        ("y = ReduceMin (x)", &[1.0, 1.0, 2.0], &[0.5, 0.5, 0.0]),
        ("y = ReduceL2 (x)", &[0.0, 0.0], &[0.0, 0.0]),
        ("y = ReduceL1 (x)", &[0.0, 2.0], &[0.0, 1.0]),
        ("y = GlobalMaxPool (tensor)", &[2.0, 1.0, 2.0], &[0.5, 0.0, 0.5]),
        ("y = MaxPool <kernel_shape = [3]> (tensor)", &[2.0, 1.0, 2.0], &[1.0, 0.0, 0.0]),
        ("y = LpPool <kernel_shape = [2]> (tensor)", &[0.0, 0.0], &[0.0, 0.0]),
        ("y = GlobalLpPool (tensor)", &[0.0, 0.0], &[0.0, 0.0]),
        // The group is constant, so the divisor is only the epsilon of the deviation.
        (
            "n = MeanVarianceNormalization <axes = [0]> (x)\ny = Mul (n, signs)",
            &[2.0, 2.0],
            &[1e9, -1e9],
        ),
        ("y = LpNormalization (x)", &[0.0, 0.0], &[0.0, 0.0]),
        ("y = Unique (x)", &[3.0, 1.0, 3.0], &[0.5, 1.0, 0.5]),
        (
            "u = Gather (x, place)\ny = ScatterElements <reduction = \"max\"> (x, place, u)",
            &[0.0, 2.0],
            &[1.0, 1.0],
        ),
    ];
    for (nodes, x, expected) in rows {
        let nodes = format!(
            "{ints}\n{nodes}
             d = ai.onnx.preview.training.Gradient <xs = [\"x\"], y = \"y\"> (x)"
        );
        let session = session(&format!("float[{}] x", x.len()), "float[] d", &nodes).unwrap();
        let given = Value::Tensor(Tensor::from_slice([x.len()], x).unwrap());
        let outputs = session.run([("x", given)], &Default::default()).unwrap();
        let found = outputs.tensor("d").unwrap().as_slice::<f32>().unwrap().to_vec();
        assert_eq!(found, expected, "{nodes}");
    }
}

/// Checks RotaryEmbedding, which the standard does not define for double. It is linear in each
/// input, so differences at distant points are exact.
#[test]
fn rotary_embeddings_have_gradients() {
    let inputs = "float[1, 2, 1, 4] x, float[2, 2] c, float[2, 2] s, float[1, 2, 1, 4] w";
    let nodes = "p = Constant <value = int64[1, 1] {1}> ()
        y = RotaryEmbedding (x, c, s, p)
        weighted = Mul (y, w)
        loss = ReduceSum <keepdims = 0> (weighted)";
    let forward = session(inputs, "float loss", nodes).unwrap();
    let derived = format!(
        "{nodes}
         dx, dc, ds = ai.onnx.preview.training.Gradient
             <xs = [\"x\", \"c\", \"s\"], zs = [\"w\"], y = \"loss\"> (x, c, s, w)"
    );
    let derived = session(inputs, "float[] dx, float[] dc, float[] ds", &derived).unwrap();
    let mut random = Random(1);
    let mut given =
        [("x", vec![1, 2, 1, 4]), ("c", vec![2, 2]), ("s", vec![2, 2]), ("w", vec![1, 2, 1, 4])]
            .map(|(name, dims)| {
                let count: usize = dims.iter().product();
                let elements = random.range(-1.0, 1.0, count).iter().map(|x| *x as f32).collect();
                (name, dims, elements)
            });
    let run = |session: &Session, given: &[(&'static str, Vec<usize>, Vec<f32>); 4]| {
        let given = given.iter().map(|(name, dims, elements)| {
            (*name, Value::Tensor(Tensor::from_slice(&dims[..], elements).unwrap()))
        });
        let outputs = session.run(given, &Default::default()).unwrap();
        let tensors = outputs.iter().map(|(_, value)| value.as_tensor().unwrap().clone());
        tensors
            .flat_map(|tensor| tensor.to_vec::<f32>().unwrap())
            .map(f64::from)
            .collect::<Vec<_>>()
    };
    let found = run(&derived, &given);
    let mut expected = Vec::new();
    for input in 0..3 {
        for element in 0..given[input].2.len() {
            let before = given[input].2[element];
            let mut at = |x: f32| {
                given[input].2[element] = x;
                run(&forward, &given)[0]
            };
            expected.push((at(before + 1.0) - at(before - 1.0)) / 2.0);
            given[input].2[element] = before;
        }
    }
    close(&found, &expected, 1e-5).unwrap();
}

#[test]
fn gradients_in_functions_and_branches_run() {
    let run = |session: &Session, given: f32| {
        let given = Value::Tensor(Tensor::from_slice([], &[given]).unwrap());
        let outputs = session.run([("x", given)], &Default::default()).unwrap();
        outputs.tensor("d").unwrap().as_slice::<f32>().unwrap()[0]
    };
    let called = session("float x", "float d", "t = Neg (x)\nd = own.slope (t)").unwrap();
    assert!((run(&called, 3.0) + 6.0).abs() < 1e-6);
    let branches = session(
        "float x",
        "float d",
        "zero = Constant <value_float = 0.0> ()
         above = Greater (x, zero)
         y = Exp (x)
         d = If (above) <
             then_branch = yes () => (float inside) {
                 inside = ai.onnx.preview.training.Gradient <xs = [\"x\"], y = \"y\"> (x)
             },
             else_branch = no () => (float other) { other = Neg (x) }
         >",
    )
    .unwrap();
    assert!((run(&branches, 1.0) - 1f32.exp()).abs() < 1e-6);
    assert!((run(&branches, -1.0) - 1.0).abs() < 1e-6);
}

/// Checks that gradients of 16-bit recurrent layers are computed in float, like their kernels.
#[test]
fn recurrent_layers_of_fewer_bits_have_gradients() {
    let run = |elem: i64| {
        let nodes = format!(
            "a = Cast <to = {elem}> (x)
             b = Cast <to = {elem}> (w)
             c = Cast <to = {elem}> (r)
             all, last = GRU <hidden_size = 2> (a, b, c)
             y = Cast <to = 1> (all)
             d = ai.onnx.preview.training.Gradient
                 <xs = [\"x\"], zs = [\"w\", \"r\"], y = \"y\"> (x, w, r)"
        );
        let inputs = "float[3, 1, 2] x, float[1, 6, 2] w, float[1, 6, 2] r";
        let session = session(inputs, "float[] d, float[] y", &nodes).unwrap();
        let mut random = Random(3);
        let mut tensor = |dims: &[usize]| {
            let elements = random.range(-1.0, 1.0, dims.iter().product());
            let elements: Vec<f32> = elements.into_iter().map(|element| element as f32).collect();
            Value::Tensor(Tensor::from_slice(dims, &elements).unwrap())
        };
        let inputs =
            [("x", tensor(&[3, 1, 2])), ("w", tensor(&[1, 6, 2])), ("r", tensor(&[1, 6, 2]))];
        let outputs = session.run(inputs, &Default::default()).unwrap();
        let tensors = outputs.iter().map(|(_, value)| value.as_tensor().unwrap());
        let elements = tensors.flat_map(|tensor| tensor.as_slice::<f32>().unwrap().to_vec());
        elements.map(f64::from).collect::<Vec<f64>>()
    };
    let (float, half, brain) = (run(1), run(10), run(16));
    assert!(float.iter().any(|element| element.abs() > 0.1), "{float:?}");
    close(&half, &float, 5e-3).unwrap();
    close(&brain, &float, 5e-2).unwrap();
}

/// Checks models whose files hold the nodes of gradients, or a `Gradient` node.
#[test]
fn files_hold_gradients_through_graphs_and_layers() {
    let rows = [
        "s = ReduceSum <keepdims = 0> (x)
         zero = Constant <value = double {0.0}> ()
         c = Greater (s, zero)
         y = If (c) <
             then_branch = yes () => (double[3, 2] a) { a = Mul (x, w) },
             else_branch = no () => (double[3, 2] b) {
                 t = Mul (x, w)
                 b = Tanh (t)
             }
         >",
        "first = Constant <value = double[2] {0.5, -0.5}> ()
         last, all = Scan <num_scan_inputs = 1, body = iteration (double[2] h, double[2] v)
             => (double[2] after, double[2] given) {
             p = Mul (h, w)
             q = Add (p, v)
             after = Tanh (q)
             given = Identity (after)
         }> (first, x)
         y = Mul (all, last)",
        "n = Constant <value = int64 {3}> ()
         yes = Constant <value = bool {1}> ()
         y = Loop <body = iteration (int64 i, bool c, double[3, 2] h)
             => (bool goes_on, double[3, 2] after) {
             goes_on = Identity (c)
             p = Mul (h, w)
             after = Sin (p)
         }> (n, yes, x)",
        "n = Constant <value = int64 {2}> ()
         first = Constant <value = int64[1] {-3}> ()
         last = Constant <value = int64[1] {12}> ()
         all = Loop <body = iteration (int64 i, bool c, double[k, 2] h)
             => (bool goes_on, double[l, 2] after) {
             goes_on = Identity (c)
             p = Mul (h, w)
             s = Sin (p)
             after = Concat <axis = 0> (h, s)
         }> (n, , x)
         y = Slice (all, first, last)",
        "s = SplitToSequence (x)
         n = SequenceLength (s)
         none = SequenceEmpty <dtype = 11> ()
         t = Loop <body = iteration (int64 i, bool c, seq(double[1, 2]) d)
             => (bool goes_on, seq(double[1, 2]) e) {
             goes_on = Identity (c)
             a = SequenceAt (s, i)
             b = Mul (a, w)
             f = Sin (b)
             e = SequenceInsert (d, f)
         }> (n, , none)
         y = ConcatFromSequence <axis = 0> (t)",
        "axis = Constant <value = int64[1] {1}> ()
         z = Mul (x, w)
         sequence = Unsqueeze (z, axis)
         y, h = GRU <hidden_size = 2> (sequence, weights, states)",
    ];
    for nodes in rows {
        let output = if nodes.contains("GRU") { "double[3, 1, 1, 2]" } else { "double[3, 2]" };
        let text = format!(
            "<ir_version: 8, opset_import: [\"\": 17]> g (double[3, 2] x) => ({output} y)
             <double[2] w = {{0.8, -1.1}},
              double[1, 6, 2] weights = {{1, 2, 3, 1, 2, 3, -1, 2, -3, 1, -2, 3}},
              double[1, 6, 2] states = {{1, 2, 3, 1, 2, 3, -1, 2, -3, 1, -2, 3}}> {{ {nodes} }}"
        );
        let model = Model::from_text(&text).unwrap();
        let at = [0.3, -0.2, 0.5, 0.9, -0.7, 0.4];
        let run = |session: &Session, at: &[f64], name: &str| {
            let x = Value::Tensor(Tensor::from_slice([3, 2], at).unwrap());
            let outputs = session
                .run([("x", x)], &Default::default())
                .unwrap_or_else(|error| panic!("{nodes}: {error}"));
            outputs.tensor(name).unwrap().to_vec::<f64>().unwrap()
        };
        let forward = Session::builder(&model).threads(1).build().unwrap();
        let difference = |index: usize| {
            let moved = |by: f64| {
                let mut moved = at;
                moved[index] += by;
                run(&forward, &moved, "y").iter().sum::<f64>()
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        };
        let expected: Vec<f64> = (0..at.len()).map(difference).collect();
        for is_node in [false, true] {
            let options = GradientOptions::new().differentiate("y").with_respect_to(["x", "w"]);
            let options = options.gradient_node(is_node);
            let (changed, _) = model.add_gradients(&options).unwrap();
            let report = changed.check(&check::CheckOptions::new());
            let errors = report.findings.iter().filter(|found| found.severity == Severity::Error);
            let errors: Vec<String> = errors.map(ToString::to_string).collect();
            assert!(errors.is_empty(), "{nodes}: {errors:#?}");
            // Through bytes, so that reading and writing are tested too.
            let changed = Model::from_bytes(changed.to_bytes()).unwrap();
            let session = Session::builder(&changed).threads(1).build();
            let session = session.unwrap_or_else(|error| panic!("{nodes}: {error}"));
            let found = run(&session, &at, "x_grad");
            close(&found, &expected, TOLERANCE).unwrap_or_else(|why| panic!("{nodes}: {why}"));
            assert_eq!(run(&session, &at, "w_grad").len(), 2, "{nodes}");
        }
    }
}
