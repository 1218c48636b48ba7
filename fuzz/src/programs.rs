//! Property: a model of nested branches, loops and scans over tensors, strings and sequences runs
//! or returns an error that gives the reason, within limits of memory and iterations, and gives
//! equal results with and without rewrites.
//!
//! The bytes choose each next node, its inputs and the depth of its graphs.

use std::fmt::Write;
use std::time::{Duration, Instant};

use sardonyx::run::Optimization;
use sardonyx::{Error, ErrorKind, Model, Outputs, RunOptions, Session, Value};

/// Most nodes of a model, those of all graphs together.
const MOST_NODES: usize = 60;
/// Greatest depth of graphs within graphs.
const DEEPEST: usize = 4;
/// Limit of the iterations of all loops of a run.
const ITERATIONS: u64 = 300;
const MEMORY: usize = 8 << 20;

/// Makes the model that the bytes choose and runs it with and without rewrites.
pub(crate) fn check(input: &[u8]) {
    run_model(input);
}

/// Runs the model that the bytes choose, without rewrites and with all of them. Returns whether the
/// run without them succeeded.
fn run_model(input: &[u8]) -> bool {
    let (text, model) = (write_model(input), make_model(input));
    let run = |optimization| -> Result<Outputs, Error> {
        let session = Session::builder(&model)
            .threads(1)
            .optimization(optimization)
            .memory_limit(MEMORY)
            .build()?;
        let deadline = Instant::now() + Duration::from_secs(20);
        let options = RunOptions::new().iteration_limit(ITERATIONS).deadline(deadline);
        session.run(std::iter::empty::<(&str, Value)>(), &options)
    };
    match (run(Optimization::Off), run(Optimization::All)) {
        (Ok(plain), Ok(rewritten)) => {
            for ((name, a), (_, b)) in plain.iter().zip(rewritten.iter()) {
                assert!(is_equal(a, b), "'{name}' is {a:?} and {b:?}\n{text}");
            }
            true
        }
        (Ok(_), Err(error)) => panic!("only the rewritten model fails: {error}\n{text}"),
        // Without rewrites a node may fail that no output depends on.
        (Err(error), _) => {
            assert!(!error.to_string().is_empty());
            assert!(error.kind() != ErrorKind::Internal, "{error}\n{text}");
            false
        }
    }
}

/// Makes the model that the bytes choose.
pub(crate) fn make_model(input: &[u8]) -> Model {
    let text = write_model(input);
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns whether values are equal, where NaN equals NaN.
pub(crate) fn is_equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Tensor(a), Value::Tensor(b)) => {
            let texts = |tensor: &sardonyx::Tensor| -> Vec<String> {
                (0..tensor.len()).map(|index| tensor.element_text(index)).collect()
            };
            a.dims() == b.dims() && texts(a) == texts(b)
        }
        (Value::Sequence(a), Value::Sequence(b)) => {
            a.len() == b.len() && a.items().iter().zip(b.items()).all(|(a, b)| is_equal(a, b))
        }
        _ => a == b,
    }
}

/// Type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// One float.
    Number,
    /// Two floats.
    Pair,
    /// Vector of floats of unknown length.
    Row,
    Int,
    Truth,
    Strings,
    Sequence,
}

const KINDS: [Kind; 7] =
    [Kind::Number, Kind::Pair, Kind::Row, Kind::Int, Kind::Truth, Kind::Strings, Kind::Sequence];

/// Writer of a model.
struct Writer<'b> {
    choices: &'b [u8],
    names: usize,
    nodes: usize,
}

/// Values that a node may read, with those of enclosing graphs.
type Scope = Vec<(String, Kind)>;

pub(crate) fn write_model(input: &[u8]) -> String {
    let mut writer = Writer { choices: input, names: 0, nodes: 0 };
    let inputs = [
        ("float", "n", "1.5", Kind::Number),
        ("float[2]", "p", "1, -2", Kind::Pair),
        ("float[3]", "r", "1, 2, 3", Kind::Row),
        ("int64", "i", "2", Kind::Int),
        ("int64", "j", "3", Kind::Int),
        ("bool", "t", "1", Kind::Truth),
        ("string[2]", "s", "\"a\", \"bc\"", Kind::Strings),
    ];
    let [given, defaults] = [0, 1].map(|with| {
        let one = inputs.iter().map(|(ty, name, value, _)| match with {
            0 => format!("{ty} {name}"),
            _ => format!("{ty} {name} = {{{value}}}"),
        });
        one.collect::<Vec<_>>().join(", ")
    });
    let mut scope: Scope =
        inputs.iter().map(|(_, name, _, kind)| (name.to_string(), *kind)).collect();
    let mut nodes = String::new();
    let _ = writeln!(nodes, "q = SequenceConstruct (p, p)");
    scope.push(("q".to_string(), Kind::Sequence));
    writer.write_nodes(&mut nodes, &mut scope, 0);
    let given_count = inputs.len();
    let outputs: Vec<String> = scope[given_count..]
        .iter()
        .rev()
        .take(4)
        .map(|(name, kind)| writer.declare(*kind, name))
        .collect();
    format!(
        "<ir_version: 10, opset_import: [\"\": 21]>\ng ({given}) => ({})\n\
         <{defaults}, int64 two = {{2}}>\n{{\n{nodes}}}\n",
        outputs.join(", ")
    )
}

impl Writer<'_> {
    /// Draws a choice below `count`.
    fn below(&mut self, count: usize) -> usize {
        match self.choices.split_first() {
            Some((first, rest)) => {
                self.choices = rest;
                usize::from(*first) % count.max(1)
            }
            None => 0,
        }
    }

    fn make_name(&mut self) -> String {
        self.names += 1;
        format!("v{}", self.names)
    }

    /// Writes a value with its type.
    fn declare(&mut self, kind: Kind, name: &str) -> String {
        let ty = match kind {
            Kind::Number => "float".to_string(),
            Kind::Pair => "float[2]".to_string(),
            Kind::Row => format!("float[{}]", self.make_name()),
            Kind::Int => "int64".to_string(),
            Kind::Truth => "bool".to_string(),
            Kind::Strings => format!("string[{}]", self.make_name()),
            Kind::Sequence => format!("seq(float[{}])", self.make_name()),
        };
        format!("{ty} {name}")
    }

    /// Chooses a value of a kind. The main graph starts with one of each.
    fn pick(&mut self, scope: &Scope, kind: Kind) -> String {
        let of_kind: Vec<&String> =
            scope.iter().filter(|(_, other)| *other == kind).map(|(name, _)| name).collect();
        // Recent values, so that nodes form chains.
        let back = self.below(4.min(of_kind.len()));
        of_kind[of_kind.len() - 1 - back].clone()
    }

    /// Writes up to six nodes of a graph.
    fn write_nodes(&mut self, out: &mut String, scope: &mut Scope, depth: usize) {
        for _ in 0..1 + self.below(6) {
            if self.nodes >= MOST_NODES {
                return;
            }
            self.nodes += 1;
            self.write_node(out, scope, depth);
        }
    }

    /// Draws whether a node may be one that often fails.
    fn draw_risk(&mut self) -> bool {
        self.below(16) == 0
    }

    /// Writes a position in a row or a sequence: mostly 0 or 1, which are valid for most.
    fn write_position(&mut self, out: &mut String, scope: &Scope) -> String {
        let number = self.pick(scope, Kind::Int);
        if self.draw_risk() {
            return number;
        }
        let name = self.make_name();
        let _ = writeln!(out, "{name} = Mod ({number}, two)");
        name
    }

    fn write_simple(
        &mut self,
        out: &mut String,
        scope: &mut Scope,
        operator: &str,
        reads: &[Kind],
        makes: Kind,
    ) {
        let inputs: Vec<String> = reads.iter().map(|kind| self.pick(scope, *kind)).collect();
        let name = self.make_name();
        let _ = writeln!(out, "{name} = {operator} ({})", inputs.join(", "));
        scope.push((name, makes));
    }

    fn write_node(&mut self, out: &mut String, scope: &mut Scope, depth: usize) {
        let choices = if depth < DEEPEST { 20 } else { 17 };
        use Kind::{Int, Number, Pair, Row, Sequence, Strings, Truth};
        match self.below(choices) {
            0 => self.write_simple(out, scope, "Add", &[Pair, Pair], Pair),
            1 => self.write_simple(out, scope, "Mul", &[Row, Number], Row),
            2 if self.draw_risk() => self.write_simple(out, scope, "Add", &[Row, Row], Row),
            2 => self.write_simple(out, scope, "Add", &[Row, Number], Row),
            3 => self.write_simple(out, scope, "Concat <axis = 0>", &[Row, Pair], Row),
            4 => self.write_simple(out, scope, "Sub", &[Int, Int], Int),
            5 => self.write_simple(out, scope, "Add", &[Int, Int], Int),
            6 => self.write_simple(out, scope, "Less", &[Int, Int], Truth),
            7 => self.write_simple(out, scope, "Not", &[Truth], Truth),
            8 => {
                let at = self.write_position(out, scope);
                let (row, name) = (self.pick(scope, Row), self.make_name());
                let _ = writeln!(out, "{name} = Gather ({row}, {at})");
                scope.push((name, Number));
            }
            9 => self.write_simple(out, scope, "Concat <axis = 0>", &[Strings, Strings], Strings),
            10 => self.write_simple(out, scope, "SequenceInsert", &[Sequence, Row], Sequence),
            11 => {
                let at = self.write_position(out, scope);
                let (sequence, pair) = (self.pick(scope, Sequence), self.pick(scope, Pair));
                let name = self.make_name();
                let _ = writeln!(out, "{name} = SequenceInsert ({sequence}, {pair}, {at})");
                scope.push((name, Sequence));
            }
            12 => {
                let at = self.write_position(out, scope);
                let (sequence, name) = (self.pick(scope, Sequence), self.make_name());
                let _ = writeln!(out, "{name} = SequenceAt ({sequence}, {at})");
                scope.push((name, Row));
            }
            13 if self.draw_risk() => {
                self.write_simple(out, scope, "SequenceErase", &[Sequence], Sequence)
            }
            13 => self.write_simple(out, scope, "SequenceInsert", &[Sequence, Pair], Sequence),
            14 => self.write_simple(out, scope, "SequenceLength", &[Sequence], Int),
            15 => self.write_simple(out, scope, "ConcatFromSequence <axis = 0>", &[Sequence], Row),
            16 => {
                let kind = KINDS[self.below(KINDS.len())];
                self.write_simple(out, scope, "Identity", &[kind], kind);
            }
            17 => self.write_branch(out, scope, depth),
            18 => self.write_loop(out, scope, depth),
            _ => self.write_scan(out, scope, depth),
        }
    }

    /// Draws the kinds of the values that a node with graphs returns.
    fn draw_kinds(&mut self, most: usize) -> Vec<Kind> {
        (0..1 + self.below(most)).map(|_| KINDS[self.below(KINDS.len())]).collect()
    }

    fn write_branch(&mut self, out: &mut String, scope: &mut Scope, depth: usize) {
        let kinds = self.draw_kinds(2);
        let condition = self.pick(scope, Kind::Truth);
        let branches = ["then_branch", "else_branch"].map(|attribute| {
            let (mut inner, mut nodes) = (scope.clone(), String::new());
            self.write_nodes(&mut nodes, &mut inner, depth + 1);
            let (outputs, copies) = self.write_outputs(&inner, &kinds);
            let graph = self.make_name();
            format!("{attribute} = {graph} () => ({outputs}) {{\n{nodes}{copies}}}")
        });
        self.write_call(out, scope, &kinds, &format!("If ({condition})"), &branches.join(",\n"));
    }

    /// Writes the outputs of a graph and the nodes that compute them.
    fn write_outputs(&mut self, scope: &Scope, kinds: &[Kind]) -> (String, String) {
        let (mut outputs, mut copies) = (Vec::new(), String::new());
        for kind in kinds {
            let (from, name) = (self.pick(scope, *kind), self.make_name());
            outputs.push(self.declare(*kind, &name));
            let _ = writeln!(copies, "{name} = Identity ({from})");
        }
        (outputs.join(", "), copies)
    }

    fn write_call(
        &mut self,
        out: &mut String,
        scope: &mut Scope,
        kinds: &[Kind],
        call: &str,
        graphs: &str,
    ) {
        let names: Vec<String> = kinds.iter().map(|_| self.make_name()).collect();
        let _ = writeln!(out, "{} = {call} <\n{graphs}>", names.join(", "));
        scope.extend(names.into_iter().zip(kinds.iter().copied()));
    }

    fn write_loop(&mut self, out: &mut String, scope: &mut Scope, depth: usize) {
        let carried = self.draw_kinds(3);
        let count = match self.below(3) {
            0 => String::new(),
            _ => self.pick(scope, Kind::Int),
        };
        let condition = match self.below(2) {
            0 => String::new(),
            _ => self.pick(scope, Kind::Truth),
        };
        let initial: Vec<String> = carried.iter().map(|kind| self.pick(scope, *kind)).collect();
        let (mut inner, mut nodes) = (scope.clone(), String::new());
        let (number, goes_on) = (self.make_name(), self.make_name());
        let mut inputs = vec![format!("int64 {number}"), format!("bool {goes_on}")];
        inner.push((number, Kind::Int));
        inner.push((goes_on, Kind::Truth));
        for kind in &carried {
            let name = self.make_name();
            inputs.push(self.declare(*kind, &name));
            inner.push((name, *kind));
        }
        self.write_nodes(&mut nodes, &mut inner, depth + 1);
        // Stacked pairs and strings have another rank than values of these kinds, so no node reads
        // them.
        let stacked = [Kind::Number, Kind::Pair, Kind::Strings][self.below(3)];
        let gives: Vec<Kind> =
            [Kind::Truth].into_iter().chain(carried.iter().copied()).chain([stacked]).collect();
        let (outputs, copies) = self.write_outputs(&inner, &gives);
        let graph = self.make_name();
        let body =
            format!("body = {graph} ({}) => ({outputs}) {{\n{nodes}{copies}}}", inputs.join(", "));
        let call = format!("Loop ({count}, {condition}, {})", initial.join(", "));
        let names: Vec<String> = carried.iter().map(|_| self.make_name()).collect();
        let stack = self.make_name();
        let _ = writeln!(out, "{}, {stack} = {call} <\n{body}>", names.join(", "));
        scope.extend(names.into_iter().zip(carried));
        if stacked == Kind::Number {
            scope.push((stack, Kind::Row));
        }
    }

    fn write_scan(&mut self, out: &mut String, scope: &mut Scope, depth: usize) {
        let scanned = self.pick(scope, Kind::Row);
        let state = self.pick(scope, Kind::Number);
        let backward = self.below(2);
        let (mut inner, mut nodes) = (scope.clone(), String::new());
        let [before, slice] = [self.make_name(), self.make_name()];
        inner.push((before.clone(), Kind::Number));
        inner.push((slice.clone(), Kind::Number));
        self.write_nodes(&mut nodes, &mut inner, depth + 1);
        let (outputs, copies) = self.write_outputs(&inner, &[Kind::Number, Kind::Number]);
        let graph = self.make_name();
        let body = format!(
            "body = {graph} (float {before}, float {slice}) => ({outputs}) {{\n{nodes}{copies}}}"
        );
        let call = format!("Scan ({state}, {scanned})");
        let attributes =
            format!("num_scan_inputs = 1, scan_input_directions = [{backward}],\n{body}");
        self.write_call(out, scope, &[Kind::Number, Kind::Row], &call, &attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn more_than_half_of_the_models_run() {
        let stream = |index: u64| {
            let mut random = Random::new(9, index);
            (0..400).map(|_| random.below(256) as u8).collect::<Vec<u8>>()
        };
        let ran = (0..200).filter(|index| run_model(&stream(*index))).count();
        assert!(ran > 100, "{ran} of 200");
    }
}
