//! Test support: models written as text, random inputs for them, and comparison of optimized and
//! plain runs.
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{Optimization, Options, Session};
use sardonyx_tensor::{Buffer, DataType, StringArray, Tensor, Value};
use sardonyx_text::{ParseOptions, parse_model};

/// Pseudorandom numbers, equal in every run (xorshift, Marsaglia 2003).
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub(crate) fn number_below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Returns a number between -1 and 1.
    pub(crate) fn float(&mut self) -> f32 {
        (self.next() % (1 << 20)) as f32 / (1 << 19) as f32 - 1.0
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

/// Writes the nodes of a constant of different numbers.
pub(crate) fn constant(name: &str, dims: &[usize]) -> String {
    let count: usize = dims.iter().product();
    let (rank, dims) = (dims.len(), dims.iter().map(usize::to_string).collect::<Vec<_>>());
    format!(
        "{name}_n = Constant <value = float {{{count}}}> ()
        {name}_0 = Constant <value = float {{0}}> ()
        {name}_1 = Constant <value = float {{1}}> ()
        {name}_f = Constant <value = float {{0.7}}> ()
        {name}_d = Constant <value = int64[{rank}] {{{}}}> ()
        {name}_r = Range ({name}_0, {name}_n, {name}_1)
        {name}_m = Mul ({name}_r, {name}_f)
        {name}_s = Sin ({name}_m)
        {name} = Reshape ({name}_s, {name}_d)\n",
        dims.join(", ")
    )
}

/// Completes a model from the signature and body of its graph: `g (float[N, 4] x) => (y) { … }`.
pub(crate) fn complete(graph: &str) -> String {
    format!("<ir_version: 10, opset_import: [\"\" : 23]>\n{graph}")
}

pub(crate) fn compile(text: &str, optimization: Optimization, threads: usize) -> Session {
    let parsed = parse_model(Buffer::from(text.as_bytes().to_vec()), ParseOptions::default());
    let model = parsed.unwrap_or_else(|error| panic!("{error:?}\n{text}")).model;
    let mut options = Options::with_threads(threads);
    options.optimization = optimization;
    Session::compile(&model, &NoExternalData, &options)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Session without any optimization, and with all.
pub(crate) struct Both {
    pub(crate) plain: Session,
    pub(crate) fused: Session,
    pub(crate) text: String,
}

impl Both {
    pub(crate) fn new(graph: &str) -> Both {
        let text = complete(graph);
        Both {
            plain: compile(&text, Optimization::Off, 1),
            fused: compile(&text, Optimization::All, 1),
            text,
        }
    }

    /// Makes random inputs, with numbers for the names of sizes.
    pub(crate) fn inputs(&self, sizes: &[(&str, usize)], seed: u64) -> Vec<(String, Value)> {
        inputs(&self.plain, sizes, seed)
    }

    /// Runs both and compares.
    #[track_caller]
    pub(crate) fn agree(&self, sizes: &[(&str, usize)]) {
        for seed in 1..3 {
            let inputs = self.inputs(sizes, seed);
            let (plain, fused) = (self.plain.run(inputs.clone()), self.fused.run(inputs));
            match (plain, fused) {
                (Ok(plain), Ok(fused)) => check_equal(&plain, &fused, 1e-5, &self.text),
                (plain, fused) => panic!(
                    "plain: {:?}\nfused: {:?}\n{}",
                    plain.err().map(|error| error.to_string()),
                    fused.err().map(|error| error.to_string()),
                    self.text
                ),
            }
        }
    }

    /// Lists the operators of the optimized session's steps.
    pub(crate) fn ops(&self) -> Vec<&'static str> {
        self.fused.steps().iter().map(|step| step.op).collect()
    }

    /// Lists the patterns that were fused.
    pub(crate) fn fused_patterns(&self) -> Vec<&'static str> {
        let done = self.fused.fusions().iter();
        done.filter(|fusion| fusion.nodes > 0).map(|fusion| fusion.pattern).collect()
    }

    /// Lists the reasons for near misses.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let all = self.fused.fusions().iter();
        all.filter_map(|fusion| fusion.why_not.clone()).collect()
    }

    /// Describes fusions and steps for messages.
    pub(crate) fn listing(&self) -> String {
        let steps = self.fused.steps();
        let steps: Vec<String> = steps
            .iter()
            .map(|step| format!("{} ({}): {}", step.place, step.op, step.kernel))
            .collect();
        format!("{:?}\n{}", self.fused.fusions(), steps.join("\n"))
    }
}

/// Makes random inputs of the declared types; booleans, strings and integers as well.
pub(crate) fn inputs(
    session: &Session,
    sizes: &[(&str, usize)],
    seed: u64,
) -> Vec<(String, Value)> {
    let mut numbers = Numbers::new(seed);
    let ports = session.inputs().iter().filter(|port| port.is_required());
    ports
        .map(|port| {
            let ty = port.ty().unwrap();
            let size = |dim: &sardonyx_model::Dim| match (dim.size(), dim.as_symbol()) {
                (Some(size), _) => size,
                (_, Some(name)) => {
                    let found = sizes.iter().find(|(known, _)| *known == name);
                    found.unwrap_or_else(|| panic!("no size for {name}")).1
                }
                _ => 1,
            };
            let dims: Vec<usize> = ty.shape().unwrap().iter().map(size).collect();
            let count = dims.iter().product();
            let tensor = match ty.elem().unwrap() {
                DataType::Float => Tensor::from_slice(&dims[..], &numbers.floats(count)),
                DataType::Double => {
                    let elements: Vec<f64> =
                        (0..count).map(|_| f64::from(numbers.float())).collect();
                    Tensor::from_slice(&dims[..], &elements)
                }
                DataType::Int64 => {
                    let elements: Vec<i64> =
                        (0..count).map(|_| numbers.number_below(100) as i64).collect();
                    Tensor::from_slice(&dims[..], &elements)
                }
                DataType::Bool => {
                    let elements: Vec<bool> =
                        (0..count).map(|_| numbers.number_below(3) > 0).collect();
                    Tensor::from_bools(&dims[..], &elements)
                }
                DataType::String => {
                    let elements: Vec<String> =
                        (0..count).map(|_| format!("s{}", numbers.number_below(9))).collect();
                    Tensor::from_strings(&dims[..], elements.iter().collect::<StringArray>())
                }
                small => {
                    let codes: Vec<u8> =
                        (0..count).map(|_| numbers.number_below(4) as u8).collect();
                    Tensor::from_codes(small, &dims[..], &codes)
                }
            };
            (port.name().to_string(), tensor.unwrap().into())
        })
        .collect()
}

pub(crate) type Outputs = [(String, Value)];

/// Checks that outputs have equal names and shapes, and elements that differ by at most `tolerance`
/// of the largest magnitude.
#[track_caller]
pub(crate) fn check_equal(expected: &Outputs, found: &Outputs, tolerance: f64, text: &str) {
    assert_eq!(expected.len(), found.len());
    for ((name, expected), (other, found)) in expected.iter().zip(found) {
        assert_eq!(name, other);
        let (expected, found) = (expected.as_tensor().unwrap(), found.as_tensor().unwrap());
        assert_eq!(expected.dims(), found.dims(), "{name}\n{text}");
        assert_eq!(expected.data_type(), found.data_type(), "{name}\n{text}");
        let numbers = |tensor: &Tensor| -> Option<Vec<f64>> {
            match tensor.data_type() {
                DataType::Float => {
                    let elements = tensor.to_vec::<f32>().unwrap();
                    Some(elements.into_iter().map(f64::from).collect())
                }
                DataType::Double => Some(tensor.to_vec::<f64>().unwrap()),
                _ => None,
            }
        };
        match (numbers(expected), numbers(found)) {
            (Some(expected), Some(found)) => {
                let largest = expected
                    .iter()
                    .filter(|number| number.is_finite())
                    .fold(0f64, |most, number| most.max(number.abs()));
                for (index, (a, b)) in expected.iter().zip(&found).enumerate() {
                    let near =
                        a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tolerance * largest;
                    assert!(near, "{name}[{index}]: {a} and {b}\n{text}");
                }
            }
            _ => assert!(expected.bit_eq(found), "{name}\n{text}"),
        }
    }
}

/// Returns the bytes of all outputs.
pub(crate) fn bits(outputs: &Outputs) -> Vec<Vec<u8>> {
    outputs.iter().map(|(_, value)| value.as_tensor().unwrap().bytes().to_vec()).collect()
}

/// Makes every intermediate value of a graph an output: each is then computed by a step of its own
/// into memory of its own.
pub(crate) fn expose_values(graph: &str) -> String {
    let (mut plain, mut depth) = (String::new(), 0);
    let body = &graph[graph.find('{').map_or(0, |start| start + 1)..];
    // Constants of the graph precede its body, and have braces as well.
    let body = match graph.find("> {") {
        Some(end) => &graph[end + 3..],
        None => body,
    };
    for letter in body.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let outputs = graph.split("=> (").nth(1).and_then(|rest| rest.split(')').next());
    let already: Vec<&str> = outputs.unwrap().split(',').map(|name| name.trim()).collect();
    let mut names: Vec<&str> = Vec::new();
    let mut parts: Vec<&str> = plain.split('=').collect();
    parts.pop();
    for part in parts {
        let list = part.rsplit(')').next().unwrap();
        names.extend(list.split(',').map(str::trim).filter(|name| !name.is_empty()));
    }
    names.retain(|name| !already.iter().any(|known| known.split(' ').next_back() == Some(name)));
    let more: String = names.iter().map(|name| format!(", {name}")).collect();
    let end = graph.find("=> (").unwrap();
    let end = end + graph[end..].find(')').unwrap();
    format!("{}{more}{}", &graph[..end], &graph[end..])
}

/// Runs a graph without optimization, every node by itself.
#[track_caller]
pub(crate) fn run_one_by_one(graph: &str, inputs: Vec<(String, Value)>) -> Vec<(String, Value)> {
    let text = complete(&expose_values(graph));
    let mut outputs = compile(&text, Optimization::Off, 1)
        .run(inputs)
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let wanted = graph.split("=> (").nth(1).and_then(|rest| rest.split(')').next());
    outputs.truncate(wanted.unwrap().split(',').count());
    outputs
}

/// Checks that a graph computes the same outputs node by node, without and with optimization.
#[track_caller]
pub(crate) fn check(graph: &str, sizes: &[&[(&str, usize)]], tolerance: f64) -> Both {
    let both = Both::new(graph);
    for (seed, sizes) in sizes.iter().enumerate() {
        let inputs = both.inputs(sizes, seed as u64 + 1);
        let expected = run_one_by_one(graph, inputs.clone());
        for session in [&both.plain, &both.fused] {
            // Twice, to reuse memory of the first run.
            for _ in 0..2 {
                let found = session
                    .run(inputs.clone())
                    .unwrap_or_else(|error| panic!("{error}\n{}", both.text));
                check_equal(&expected, &found, tolerance, &both.text);
            }
        }
    }
    both
}
