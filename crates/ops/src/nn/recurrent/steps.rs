//! Recurrent layers as scans over their steps, through which they are differentiated and through
//! which the one with quantized weights runs.
//!
//! The product of the whole input with its weights comes before the scan. A direction from the last
//! step to the first scans backwards. Sequences that end early keep their states during missing
//! steps, and return zeros there. Floats of 16 bits are computed in 32 bits, like in the kernels.
//!
//! With quantized weights, the left operand of each product is quantized when it is available: the
//! whole input at once, states step by step for all sequences of the batch. Missing steps of
//! sequences that end early are 0, and each sequence begins backwards at its own end, so that a
//! step has the same states as on ONNX Runtime.

use std::fmt::Write;

use sardonyx_tensor::DataType;

use crate::function::{Expand, FLOAT, vector};

/// Kind of a recurrent layer.
#[derive(Clone, Copy, PartialEq)]
enum LayerKind {
    Plain,
    Gated { is_linear_first: bool },
    Memory { is_coupled: bool },
}

impl LayerKind {
    /// Returns the number of matrices in the weights of a direction.
    fn gates(self) -> usize {
        match self {
            LayerKind::Plain => 1,
            LayerKind::Gated { .. } => 3,
            LayerKind::Memory { .. } => 4,
        }
    }

    /// Returns the default functions of a direction.
    fn functions(self) -> &'static [&'static str] {
        match self {
            LayerKind::Plain => &["Tanh"],
            LayerKind::Gated { .. } => &["Sigmoid", "Tanh"],
            LayerKind::Memory { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }

    /// Returns the names of the values that are carried from step to step.
    fn states(self) -> &'static [&'static str] {
        match self {
            LayerKind::Plain | LayerKind::Gated { .. } => &["h"],
            LayerKind::Memory { .. } => &["h", "c"],
        }
    }
}

/// Function of a gate.
#[derive(Debug, PartialEq)]
enum Gate {
    /// Operator, with its attributes.
    Operator(&'static str, String),
    /// `alpha * x + beta`
    Affine { alpha: f32, beta: f32 },
    /// `alpha * tanh(beta * x)`
    ScaledTanh { alpha: f32, beta: f32 },
}

/// Form in which the weights of a layer are stored.
#[derive(Clone, Copy, PartialEq)]
enum Weights {
    /// Floats, a row for each output.
    Floats,
    /// Quantized numbers, a column for each output, with scales and zero points of a direction or
    /// of each of its columns.
    Codes,
}

/// Builds the scan of an `RNN`.
pub(super) fn build_plain(call: &Expand<'_>) -> Result<String, String> {
    Layer::from_floats(call, LayerKind::Plain)?.text()
}

/// Builds the scan of a `GRU`.
pub(super) fn build_gated(call: &Expand<'_>) -> Result<String, String> {
    let is_linear_first = call.int("linear_before_reset").unwrap_or(0) != 0;
    Layer::from_floats(call, LayerKind::Gated { is_linear_first })?.text()
}

/// Builds the scan of an `LSTM`.
pub(super) fn build_memory(call: &Expand<'_>) -> Result<String, String> {
    let is_coupled = call.int("input_forget").unwrap_or(0) != 0;
    Layer::from_floats(call, LayerKind::Memory { is_coupled })?.text()
}

/// Builds the scan of a `DynamicQuantizeLSTM`.
pub(crate) fn build_quantized_memory(call: &Expand<'_>) -> Result<String, String> {
    let is_coupled = call.int("input_forget").unwrap_or(0) != 0;
    Layer::new(call, LayerKind::Memory { is_coupled }, Weights::Codes, DataType::Float)?.text()
}

/// Recurrent layer whose text is being built.
struct Layer<'a> {
    call: &'a Expand<'a>,
    kind: LayerKind,
    weights: Weights,
    /// Type in which the layer is computed.
    elem: DataType,
    /// Number of the type of the layer, if that is another one.
    rounded: Option<i64>,
    /// Whether each direction scans from the last step to the first.
    backwards: &'static [bool],
    gates: Vec<Gate>,
    clip: Option<f32>,
    is_batch_first: bool,
    text: String,
    constants: usize,
}

/// Names of inputs, by their indices.
const INPUTS: [&str; 8] = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"];
/// Names of inputs as the nodes read them.
const OPERANDS: [&str; 8] = ["x", "w", "r", "b", "lengths", "states_h", "states_c", "p"];
const BIAS: usize = 3;
const LENGTHS: usize = 4;
const INITIAL: usize = 5;
const PEEPHOLES: usize = 7;

impl<'a> Layer<'a> {
    fn from_floats(call: &'a Expand<'a>, kind: LayerKind) -> Result<Layer<'a>, String> {
        if call.since() < 14 {
            return Err("an older version of the layer".to_string());
        }
        let given = call.tensor(0).and_then(|tensor| tensor.elem);
        let given = given.ok_or("the element type of input 0 is unknown")?;
        Layer::new(call, kind, Weights::Floats, given)
    }

    fn new(
        call: &'a Expand<'a>,
        kind: LayerKind,
        weights: Weights,
        given: DataType,
    ) -> Result<Layer<'a>, String> {
        let (elem, rounded) = match given {
            DataType::Double | DataType::Float => (given, None),
            _ => (DataType::Float, Some(i64::from(given.number()))),
        };
        let backwards: &[bool] = match call.string("direction").as_deref() {
            Some("reverse") => &[true],
            Some("bidirectional") => &[false, true],
            _ => &[false],
        };
        let gates = gates(call, kind, backwards.len())?;
        let is_batch_first = call.int("layout").is_some_and(|layout| layout != 0);
        let (clip, text) = (call.float("clip"), String::new());
        let constants = 0;
        Ok(Layer {
            call,
            kind,
            weights,
            elem,
            rounded,
            backwards,
            gates,
            clip,
            is_batch_first,
            text,
            constants,
        })
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{line}");
    }

    /// Adds a scalar of the type in which the layer is computed, and returns its name.
    fn number(&mut self, value: f32) -> String {
        self.constants += 1;
        let name = format!("number_{}", self.constants);
        let (elem, value) = (self.elem.name(), f64::from(value));
        self.line(format_args!("{name} = Constant <value = {elem} {{{value:?}}}> ()"));
        name
    }

    fn text(mut self) -> Result<String, String> {
        self.text += &vector("axis_0", &[0]);
        self.text += &vector("axis_1", &[1]);
        for index in (0..INPUTS.len()).filter(|index| *index != LENGTHS) {
            if self.call.has_input(index) {
                self.add_operand(index);
            }
        }
        let zero = self.number(0.0);
        // The rows of float weights are outputs, those of quantized ones inputs.
        let axis = if self.weights == Weights::Codes { 1 } else { 2 };
        self.line(format_args!("hidden = Shape <start = {axis}, end = {}> (r)", axis + 1));
        self.line(format_args!("batch = Shape <start = 1, end = 2> (x)"));
        self.line(format_args!("sizes = Concat <axis = 0> (batch, hidden)"));
        if self.call.has_input(LENGTHS) {
            self.text += "steps_vector = Shape <start = 0, end = 1> (x)
                steps = Squeeze (steps_vector, axis_0)
                first = Constant <value = int64 {0}> ()
                next = Constant <value = int64 {1}> ()
                numbers = Range (first, steps, next)
                lengths_vector = Cast <to = 7> (sequence_lens)
                lengths = Unsqueeze (lengths_vector, axis_1)
                are_any = Greater (lengths, first)\n";
        }
        if self.weights == Weights::Codes {
            self.quantize_input(&zero);
        }
        for direction in 0..self.backwards.len() {
            self.direction(direction, &zero);
        }
        let all = |name: &str| {
            let names = (0..self.backwards.len()).map(|direction| format!("{name}_{direction}"));
            names.collect::<Vec<_>>().join(", ")
        };
        let mut outputs = vec![("Y", all("y"), 1, "[2, 0, 1, 3]")];
        for (output, state) in ["Y_h", "Y_c"].into_iter().zip(self.kind.states()) {
            outputs.push((output, all(&format!("last_{state}")), 0, "[1, 0, 2]"));
        }
        for (output, parts, axis, order) in outputs {
            self.line(format_args!("all_{output} = Concat <axis = {axis}> ({parts})"));
            let mut name = format!("all_{output}");
            if self.is_batch_first {
                self.line(format_args!("turned_{output} = Transpose <perm = {order}> ({name})"));
                name = format!("turned_{output}");
            }
            match self.rounded {
                Some(to) => self.line(format_args!("{output} = Cast <to = {to}> ({name})")),
                None => self.line(format_args!("{output} = Identity ({name})")),
            }
        }
        Ok(self.text)
    }

    /// Names an operand for the nodes: with the batch second, in the type in which the layer is
    /// computed.
    fn add_operand(&mut self, index: usize) {
        let (mut from, to) = (INPUTS[index].to_string(), OPERANDS[index]);
        if self.rounded.is_some() {
            self.line(format_args!("{to}_wide = Cast <to = {FLOAT}> ({from})"));
            from = format!("{to}_wide");
        }
        let has_batch = index == 0 || (INITIAL..PEEPHOLES).contains(&index);
        if self.is_batch_first && has_batch {
            self.line(format_args!("{to}_turned = Transpose <perm = [1, 0, 2]> ({from})"));
            from = format!("{to}_turned");
        }
        self.line(format_args!("{to} = Identity ({from})"));
    }

    /// Quantizes the steps of the input that a sequence has.
    fn quantize_input(&mut self, zero: &str) {
        if self.call.has_input(LENGTHS) {
            self.text += "longest = ReduceMax (lengths_vector)
                are_read_flat = Less (numbers, longest)
                step_axes = Constant <value = int64[2] {1, 2}> ()
                are_read = Unsqueeze (are_read_flat, step_axes)\n";
            self.line(format_args!("x_read = Where (are_read, x, {zero})"));
        } else {
            self.line(format_args!("x_read = Identity (x)"));
        }
        self.line(format_args!("x_codes, x_scale, x_zero = DynamicQuantizeLinear (x_read)"));
    }

    /// Adds the part of an operand that belongs to a direction, without the axis of directions.
    fn part(&mut self, index: usize, direction: usize, to: &str) {
        self.part_of(OPERANDS[index], direction, to);
    }

    fn part_of(&mut self, name: &str, direction: usize, to: &str) {
        if self.backwards.len() == 1 {
            self.line(format_args!("{to} = Squeeze ({name}, axis_0)"));
        } else {
            self.line(format_args!(
                "{to}_number = Constant <value = int64 {{{direction}}}> ()
                 {to} = Gather <axis = 0> ({name}, {to}_number)"
            ));
        }
    }

    /// Adds the scan of a direction.
    fn direction(&mut self, d: usize, zero: &str) {
        let (kind, gates) = (self.kind, self.kind.gates());
        self.part(1, d, &format!("w_{d}"));
        self.part(2, d, &format!("r_{d}"));
        match self.weights {
            Weights::Floats => {
                self.line(format_args!("wt_{d} = Transpose <perm = [1, 0]> (w_{d})"));
                self.line(format_args!("rt_{d} = Transpose <perm = [1, 0]> (r_{d})"));
                self.line(format_args!("xw_{d} = MatMul (x, wt_{d})"));
            }
            Weights::Codes => self.product_of_input(d),
        }
        let is_linear_first = kind == LayerKind::Gated { is_linear_first: true };
        let mut input = format!("xw_{d}");
        if self.call.has_input(BIAS) {
            self.part(BIAS, d, &format!("b_{d}"));
            self.line(format_args!("wb_{d}, rb_{d} = Split <axis = 0, num_outputs = 2> (b_{d})"));
            if is_linear_first {
                self.line(format_args!("xb_{d} = Add (xw_{d}, wb_{d})"));
            } else {
                self.line(format_args!("sb_{d} = Add (wb_{d}, rb_{d})"));
                self.line(format_args!("xb_{d} = Add (xw_{d}, sb_{d})"));
            }
            input = format!("xb_{d}");
        }
        if kind == (LayerKind::Gated { is_linear_first: false }) {
            self.line(format_args!(
                "rz_{d}, rr_{d}, rc_{d} = Split <axis = 1, num_outputs = {gates}> (rt_{d})"
            ));
            self.line(format_args!("rzr_{d} = Concat <axis = 1> (rz_{d}, rr_{d})"));
        }
        if self.call.has_input(PEEPHOLES) {
            self.part(PEEPHOLES, d, &format!("p_{d}"));
            self.line(format_args!(
                "pi_{d}, po_{d}, pk_{d} = Split <axis = 0, num_outputs = 3> (p_{d})"
            ));
        }
        for (index, state) in kind.states().iter().enumerate() {
            let first = format!("first_{state}_{d}");
            if !self.call.has_input(INITIAL + index) {
                self.line(format_args!("{first} = Expand ({zero}, sizes)"));
            } else if self.call.has_input(LENGTHS) {
                self.part(INITIAL + index, d, &format!("given_{state}_{d}"));
                self.line(format_args!("{first} = Where (are_any, given_{state}_{d}, {zero})"));
            } else {
                self.part(INITIAL + index, d, &first);
            }
        }
        let body = self.body(d, zero);
        self.scan(d, &input, &body);
    }

    /// Adds the product of the quantized input with its quantized weights.
    fn product_of_input(&mut self, d: usize) {
        for (name, part) in [("W", "w"), ("R", "r")] {
            self.part_of(&format!("{name}_scale"), d, &format!("{part}_scale_{d}"));
            self.part_of(&format!("{name}_zero_point"), d, &format!("{part}_zero_{d}"));
        }
        let mut codes = "x_codes".to_string();
        if self.starts_at_ends(d) {
            codes = format!("x_reversed_{d}");
            self.line(format_args!(
                "{codes} = ReverseSequence <batch_axis = 1, time_axis = 0> (x_codes, lengths_vector)"
            ));
        }
        self.line(format_args!(
            "xw_sums_{d} = MatMulInteger ({codes}, w_{d}, x_zero, w_zero_{d})
            xw_floats_{d} = Cast <to = {FLOAT}> (xw_sums_{d})
            xw_scale_{d} = Mul (x_scale, w_scale_{d})
            xw_{d} = Mul (xw_floats_{d}, xw_scale_{d})"
        ));
    }

    /// Whether a direction scans backwards and each sequence begins at its own end: its steps are
    /// reversed before and after the scan.
    fn starts_at_ends(&self, d: usize) -> bool {
        self.weights == Weights::Codes && self.backwards[d] && self.call.has_input(LENGTHS)
    }

    /// Adds the scan itself, and its outputs with an axis of directions.
    fn scan(&mut self, d: usize, input: &str, body: &str) {
        let (states, elem) = (self.kind.states(), self.elem.name());
        let has_lengths = self.call.has_input(LENGTHS);
        let list = |of: &dyn Fn(&str) -> String| {
            states.iter().map(|state| of(state)).collect::<Vec<_>>().join(", ")
        };
        let starts_at_ends = self.starts_at_ends(d);
        let backwards = i64::from(self.backwards[d] && !starts_at_ends);
        let (count, directions, taken, given) = if has_lengths {
            (
                2,
                format!("[{backwards}, {backwards}]"),
                format!(", int64 t_{d}"),
                format!("{input}, numbers"),
            )
        } else {
            (1, format!("[{backwards}]"), String::new(), input.to_string())
        };
        let outer = list(&|state| format!("last_plain_{state}_{d}"));
        let first = list(&|state| format!("first_{state}_{d}"));
        let before = list(&|state| format!("{elem}[] {state}_{d}"));
        let after = list(&|state| format!("{elem}[] after_{state}_{d}"));
        self.line(format_args!(
            "{outer}, y_plain_{d} = Scan <
             num_scan_inputs = {count},
             scan_input_directions = {directions},
             scan_output_directions = [{backwards}],
             body = step_{d} ({before}, {elem}[] x_{d}{taken}) => ({after}, {elem}[] step_y_{d}) {{
             {body}
             }}
             > ({first}, {given})"
        ));
        let mut y = format!("y_plain_{d}");
        if starts_at_ends {
            y = format!("y_reversed_{d}");
            self.line(format_args!(
                "{y} = ReverseSequence <batch_axis = 1, time_axis = 0> (y_plain_{d}, lengths_vector)"
            ));
        }
        self.line(format_args!("y_{d} = Unsqueeze ({y}, axis_1)"));
        for state in states {
            self.line(format_args!(
                "last_{state}_{d} = Unsqueeze (last_plain_{state}_{d}, axis_0)"
            ));
        }
    }

    /// Builds a step of a direction: carried and returned values follow from `h`, in some layers
    /// `c`, and the step's part `x` of the product of the input.
    fn body(&mut self, d: usize, zero: &str) -> String {
        let mut step = Step {
            d,
            weights: self.weights,
            text: String::new(),
            clip: None,
            names: 0,
            ended: None,
        };
        if self.weights == Weights::Codes && self.call.has_input(LENGTHS) {
            step.ended = Some(zero.to_string());
        }
        if let Some(clip) = self.clip {
            step.clip = Some((self.number(-clip), self.number(clip)));
        }
        let functions = self.kind.functions().len();
        let gates: Vec<Applied> = (0..functions)
            .map(|index| {
                let gate = &self.gates[d * functions + index];
                match *gate {
                    Gate::Operator(name, ref attributes) => {
                        Applied::Operator(name, attributes.clone())
                    }
                    Gate::Affine { alpha, beta } => {
                        Applied::Affine(self.number(alpha), self.number(beta))
                    }
                    Gate::ScaledTanh { alpha, beta } => {
                        Applied::ScaledTanh(self.number(alpha), self.number(beta))
                    }
                }
            })
            .collect();
        let next: Vec<String> = match self.kind {
            LayerKind::Plain => vec![step.build_plain(&gates)],
            LayerKind::Gated { is_linear_first } => {
                let one = self.number(1.0);
                let has_bias = self.call.has_input(BIAS);
                vec![step.build_gated(&gates, &one, is_linear_first.then_some(has_bias))]
            }
            LayerKind::Memory { is_coupled } => {
                let one = is_coupled.then(|| self.number(1.0));
                let [h, c] =
                    step.build_memory(&gates, one.as_deref(), self.call.has_input(PEEPHOLES));
                vec![h, c]
            }
        };
        let has_lengths = self.call.has_input(LENGTHS);
        if has_lengths {
            let _ = writeln!(step.text, "moves_{d} = Less (t_{d}, lengths)");
        }
        for (state, next) in self.kind.states().iter().zip(&next) {
            let after = if has_lengths {
                format!("Where (moves_{d}, {next}, {state}_{d})")
            } else {
                format!("Identity ({next})")
            };
            let _ = writeln!(step.text, "after_{state}_{d} = {after}");
        }
        let y = if has_lengths {
            format!("Where (moves_{d}, {}, {zero})", next[0])
        } else {
            format!("Identity ({})", next[0])
        };
        let _ = writeln!(step.text, "step_y_{d} = {y}");
        step.text
    }
}

/// Function of a gate, with the names of its numbers.
enum Applied {
    Operator(&'static str, String),
    Affine(String, String),
    ScaledTanh(String, String),
}

/// Nodes of a step.
struct Step {
    d: usize,
    weights: Weights,
    text: String,
    clip: Option<(String, String)>,
    names: usize,
    /// Name of the number that replaces quantized states of sequences that have ended, if any may
    /// have.
    ended: Option<String>,
}

impl Step {
    /// Adds a node with one output and returns the name of the output.
    fn node(&mut self, what: std::fmt::Arguments<'_>) -> String {
        self.names += 1;
        let name = format!("step_{}_{}", self.d, self.names);
        let _ = writeln!(self.text, "{name} = {what}");
        name
    }

    /// Splits the last axis into parts of equal sizes.
    fn split(&mut self, value: &str, count: usize) -> Vec<String> {
        let first = self.names;
        self.names += count;
        let names: Vec<String> =
            (1..=count).map(|index| format!("step_{}_{}", self.d, first + index)).collect();
        let list = names.join(", ");
        let _ = writeln!(self.text, "{list} = Split <axis = -1, num_outputs = {count}> ({value})");
        names
    }

    /// Applies a function to a sum, after clipping it.
    fn apply(&mut self, gate: &Applied, sum: &str) -> String {
        let sum = match self.clip.clone() {
            Some((low, high)) => self.node(format_args!("Clip ({sum}, {low}, {high})")),
            None => sum.to_string(),
        };
        self.function(gate, &sum)
    }

    fn function(&mut self, gate: &Applied, x: &str) -> String {
        match gate {
            Applied::Operator(name, attributes) => {
                self.node(format_args!("{name}{attributes} ({x})"))
            }
            Applied::Affine(alpha, beta) => {
                let product = self.node(format_args!("Mul ({x}, {alpha})"));
                self.node(format_args!("Add ({product}, {beta})"))
            }
            Applied::ScaledTanh(alpha, beta) => {
                let product = self.node(format_args!("Mul ({x}, {beta})"));
                let tanh = self.node(format_args!("Tanh ({product})"));
                self.node(format_args!("Mul ({tanh}, {alpha})"))
            }
        }
    }

    /// Adds the product of the quantized states with their quantized weights.
    fn product_of_codes(&mut self) -> String {
        let d = self.d;
        let mut h = format!("h_{d}");
        if let Some(zero) = self.ended.clone() {
            // The step after the last one of a sequence still has its state.
            let moved = self.node(format_args!("LessOrEqual (t_{d}, lengths)"));
            h = self.node(format_args!("Where ({moved}, {h}, {zero})"));
        }
        let _ = writeln!(
            self.text,
            "h_codes_{d}, h_scale_{d}, h_zero_{d} = DynamicQuantizeLinear ({h})"
        );
        let sums =
            self.node(format_args!("MatMulInteger (h_codes_{d}, r_{d}, h_zero_{d}, r_zero_{d})"));
        let floats = self.node(format_args!("Cast <to = {FLOAT}> ({sums})"));
        let scale = self.node(format_args!("Mul (h_scale_{d}, r_scale_{d})"));
        self.node(format_args!("Mul ({floats}, {scale})"))
    }

    /// Adds a step of an `RNN`: `h = f(x + h R)`.
    fn build_plain(&mut self, gates: &[Applied]) -> String {
        let d = self.d;
        let product = self.node(format_args!("MatMul (h_{d}, rt_{d})"));
        let sum = self.node(format_args!("Add (x_{d}, {product})"));
        self.apply(&gates[0], &sum)
    }

    /// Adds a step of a `GRU`: `h = (1 - z) n + z h` with the gates `z` and `r` and the candidate
    /// `n`. `linear_first` is set for layers whose product comes before the reset, with whether
    /// that product has a bias.
    fn build_gated(&mut self, gates: &[Applied], one: &str, linear_first: Option<bool>) -> String {
        let d = self.d;
        let x = self.split(&format!("x_{d}"), 3);
        let h = match linear_first {
            None => {
                let product = self.node(format_args!("MatMul (h_{d}, rzr_{d})"));
                self.split(&product, 2)
            }
            Some(has_bias) => {
                let mut product = self.node(format_args!("MatMul (h_{d}, rt_{d})"));
                if has_bias {
                    product = self.node(format_args!("Add ({product}, rb_{d})"));
                }
                self.split(&product, 3)
            }
        };
        let z = self.node(format_args!("Add ({}, {})", x[0], h[0]));
        let z = self.apply(&gates[0], &z);
        let r = self.node(format_args!("Add ({}, {})", x[1], h[1]));
        let r = self.apply(&gates[0], &r);
        let share = match h.get(2) {
            Some(product) => self.node(format_args!("Mul ({r}, {product})")),
            None => {
                let reset = self.node(format_args!("Mul ({r}, h_{d})"));
                self.node(format_args!("MatMul ({reset}, rc_{d})"))
            }
        };
        let n = self.node(format_args!("Add ({}, {share})", x[2]));
        let n = self.apply(&gates[1], &n);
        let other = self.node(format_args!("Sub ({one}, {z})"));
        let new = self.node(format_args!("Mul ({other}, {n})"));
        let kept = self.node(format_args!("Mul ({z}, h_{d})"));
        self.node(format_args!("Add ({new}, {kept})"))
    }

    /// Adds a step of an `LSTM`: `c = k c + i n` and `h = o q(c)` with the gates `i`, `o` and `k`
    /// and the candidate `n`; `k` is `one - i` if `one` is given.
    fn build_memory(
        &mut self,
        gates: &[Applied],
        one: Option<&str>,
        has_peepholes: bool,
    ) -> [String; 2] {
        let d = self.d;
        let product = match self.weights {
            Weights::Floats => self.node(format_args!("MatMul (h_{d}, rt_{d})")),
            Weights::Codes => self.product_of_codes(),
        };
        let sum = self.node(format_args!("Add (x_{d}, {product})"));
        let sums = self.split(&sum, 4);
        let peep = |step: &mut Step, sum: &str, weights: &str, c: &str| {
            if !has_peepholes {
                return sum.to_string();
            }
            let product = step.node(format_args!("Mul ({weights}_{d}, {c})"));
            step.node(format_args!("Add ({sum}, {product})"))
        };
        let c = format!("c_{d}");
        let i = peep(self, &sums[0], "pi", &c);
        let i = self.apply(&gates[0], &i);
        let k = match one {
            Some(one) => self.node(format_args!("Sub ({one}, {i})")),
            None => {
                let k = peep(self, &sums[2], "pk", &c);
                self.apply(&gates[0], &k)
            }
        };
        let n = self.apply(&gates[1], &sums[3]);
        let kept = self.node(format_args!("Mul ({k}, {c})"));
        let new = self.node(format_args!("Mul ({i}, {n})"));
        let c = self.node(format_args!("Add ({kept}, {new})"));
        let o = peep(self, &sums[1], "po", &c);
        let o = self.apply(&gates[0], &o);
        let q = self.function(&gates[2], &c);
        [self.node(format_args!("Mul ({o}, {q})")), c]
    }
}

/// Returns the functions of all directions. Those that need a number take the next one of its list.
fn gates(call: &Expand<'_>, kind: LayerKind, directions: usize) -> Result<Vec<Gate>, String> {
    let given = call.strings("activations").filter(|names| !names.is_empty());
    let names = given.unwrap_or_else(|| {
        let all = std::iter::repeat_n(kind.functions(), directions).flatten();
        all.map(|name| (*name).to_string()).collect()
    });
    let wanted = directions * kind.functions().len();
    if names.len() < wanted {
        return Err(format!("activations has {} functions, not {wanted}", names.len()));
    }
    let numbers = |name: &str| call.floats(name).unwrap_or_default().into_iter();
    let (mut alphas, mut betas) = (numbers("activation_alpha"), numbers("activation_beta"));
    let mut gates = Vec::new();
    for name in names.iter().take(wanted) {
        let mut alpha = |default: f32| alphas.next().unwrap_or(default);
        let mut beta = |default: f32| betas.next().unwrap_or(default);
        let with = |name, alpha: f32| Gate::Operator(name, format!(" <alpha = {alpha:?}>"));
        let alone = |name| Gate::Operator(name, String::new());
        gates.push(match name.to_ascii_lowercase().as_str() {
            "relu" => alone("Relu"),
            "tanh" => alone("Tanh"),
            "sigmoid" => alone("Sigmoid"),
            "softsign" => alone("Softsign"),
            "softplus" => alone("Softplus"),
            "leakyrelu" => with("LeakyRelu", alpha(0.01)),
            "thresholdedrelu" => with("ThresholdedRelu", alpha(1.0)),
            "elu" => with("Elu", alpha(1.0)),
            "hardsigmoid" => {
                let attributes = format!(" <alpha = {:?}, beta = {:?}>", alpha(0.2), beta(0.5));
                Gate::Operator("HardSigmoid", attributes)
            }
            "affine" => Gate::Affine { alpha: alpha(1.0), beta: beta(0.0) },
            "scaledtanh" => Gate::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
            _ => {
                return Err(format!(
                    "activations has '{name}', which is not an activation function"
                ));
            }
        });
    }
    Ok(gates)
}
