//! Compares declared types with computed ones. Random models declare the type that a node computes,
//! or another one; `check` with types, `infer` and a session must accept the first and reject the
//! second.

use std::collections::BTreeMap;

use crate::random::Random;
use sardonyx::value::{Sequence, Sparse};
use sardonyx::{DataType, Model, Session, Tensor, Value, check, infer};

/// Type that can be printed as ONNX text.
#[derive(Clone, PartialEq)]
enum Ty {
    Tensor(&'static str, Vec<String>),
    Sparse(&'static str, Vec<String>),
    Sequence(Box<Ty>),
    Map(&'static str, Box<Ty>),
    Optional(Box<Ty>),
}

impl Ty {
    fn text(&self) -> String {
        match self {
            Ty::Tensor(elem, dims) => match &dims[..] {
                [] => elem.to_string(),
                dims => format!("{elem}[{}]", dims.join(", ")),
            },
            Ty::Sparse(elem, dims) => {
                format!("sparse_tensor({})", Ty::Tensor(elem, dims.clone()).text())
            }
            Ty::Sequence(inner) => format!("seq({})", inner.text()),
            Ty::Map(key, inner) => format!("map({key}, {})", inner.text()),
            Ty::Optional(inner) => format!("optional({})", inner.text()),
        }
    }

    /// Returns the element type and the sizes of the innermost tensor.
    fn tensor(&mut self) -> (&mut &'static str, &mut Vec<String>) {
        match self {
            Ty::Tensor(elem, dims) | Ty::Sparse(elem, dims) => (elem, dims),
            Ty::Sequence(inner) | Ty::Map(_, inner) | Ty::Optional(inner) => inner.tensor(),
        }
    }
}

fn tensor(elem: &'static str, dims: &[&str]) -> Ty {
    Ty::Tensor(elem, dims.iter().map(ToString::to_string).collect())
}

fn seq(inner: Ty) -> Ty {
    Ty::Sequence(Box::new(inner))
}

fn optional(inner: Ty) -> Ty {
    Ty::Optional(Box::new(inner))
}

/// Difference between a declared type and the computed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Difference {
    /// Declared type is equal, or less specific.
    None,
    /// Another element type, or another kind of value: all three reject it.
    Kind,
    /// Another rank or size: `check` and `infer` reject it. A session ignores it
    /// (`docs/decisions/0014`), except for inputs of bodies.
    Size,
    /// Sparse where a dense tensor is computed: `check` and `infer` reject it, and a session
    /// converts the value.
    Sparse,
}

/// Draws a type to declare for a value of type `made`, and returns the difference.
fn draw_declared_type(random: &mut Random, made: &Ty) -> (Ty, Difference) {
    let mut ty = made.clone();
    match random.next_below(13) {
        0 => (ty, Difference::None),
        1 | 2 => {
            // An unknown size, or a symbol of its own.
            let (_, dims) = ty.tensor();
            let open = ["?", "Free"][random.next_below(2)];
            let index = random.next_below(dims.len().max(1));
            if let Some(dim) = dims.get_mut(index) {
                *dim = open.to_string();
            }
            (ty, Difference::None)
        }
        3 | 4 => {
            let (elem, _) = ty.tensor();
            let others: Vec<&'static str> = ["float", "int64", "bool", "string"]
                .into_iter()
                .filter(|other| other != elem)
                .collect();
            *elem = others[random.next_below(others.len())];
            (ty, Difference::Kind)
        }
        5 => {
            let (_, dims) = ty.tensor();
            match dims.pop() {
                Some(_) => {}
                None => dims.push("2".to_string()),
            }
            (ty, Difference::Size)
        }
        6 => {
            let (_, dims) = ty.tensor();
            match dims.first_mut() {
                Some(dim) => *dim = "7".to_string(),
                None => dims.push("1".to_string()),
            }
            (ty, Difference::Size)
        }
        7 | 8 => match ty {
            Ty::Optional(inner) => (*inner, Difference::Kind),
            other => (optional(other), Difference::Kind),
        },
        9 | 10 => match ty {
            Ty::Sequence(inner) => (*inner, Difference::Kind),
            Ty::Optional(inner) => match *inner {
                Ty::Sequence(inner) => (optional(*inner), Difference::Kind),
                other => (optional(seq(other)), Difference::Kind),
            },
            other => (seq(other), Difference::Kind),
        },
        11 => match ty {
            // A sparse tensor cannot be a scalar.
            Ty::Tensor(elem, dims) if !dims.is_empty() => {
                (Ty::Sparse(elem, dims), Difference::Sparse)
            }
            other => (other, Difference::None),
        },
        _ => (Ty::Map("int64", Box::new(tensor("float", &["2"]))), Difference::Kind),
    }
}

const INPUTS: &str = "bool c, float[2, 3] x, int64[2] i, seq(float[2, 3]) s, \
    optional(float[2, 3]) o, optional(seq(float[2, 3])) os, sparse_tensor(float[2, 3]) p";

/// Lists expressions with the types that they compute. Maps occur only in sequences, as `ZipMap`
/// makes them: no `Identity` takes a map.
fn expressions() -> Vec<(&'static str, Ty)> {
    let x = || tensor("float", &["2", "3"]);
    let i = || tensor("int64", &["2"]);
    vec![
        ("Neg(x)", x()),
        ("Shape(x)", i()),
        ("Cast<to = 9>(x)", tensor("bool", &["2", "3"])),
        ("ReduceSum<keepdims = 0>(x)", tensor("float", &[])),
        ("Identity(x)", x()),
        ("Identity(s)", seq(x())),
        ("Identity(o)", optional(x())),
        ("Identity(os)", optional(seq(x()))),
        ("Optional(x)", optional(x())),
        ("Optional(i)", optional(i())),
        ("Optional(s)", optional(seq(x()))),
        ("OptionalGetElement(o)", x()),
        ("OptionalGetElement(os)", seq(x())),
        ("OptionalGetElement(x)", x()),
        ("OptionalHasElement(o)", tensor("bool", &[])),
        ("SequenceConstruct(x, x)", seq(x())),
        ("SequenceInsert(s, x)", seq(x())),
        ("SequenceLength(s)", tensor("int64", &[])),
        ("SplitToSequence<keepdims = 0>(x)", seq(tensor("float", &["3"]))),
        (
            "ai.onnx.ml.ZipMap<classlabels_int64s = [1, 2, 3]>(x)",
            seq(Ty::Map("int64", Box::new(tensor("float", &[])))),
        ),
    ]
}

/// Places of the declaration in a model.
const PLACES: [&str; 7] =
    ["output", "value", "branch", "value in a branch", "loop", "scan", "function"];

/// Makes the text of a model that declares the type `declared` for a value that `expression`
/// computes with the type `made`.
fn model(place: &str, expression: &str, made: &Ty, declared: &Ty) -> String {
    let (made, declared) = (made.text(), declared.text());
    let header = "<ir_version: 10, opset_import: [\"\": 21, \"ai.onnx.ml\": 3, \"local\": 1]>\n";
    let graph = match place {
        "output" => format!("g ({INPUTS}) => ({declared} y) {{ y = {expression} }}"),
        "value" => format!(
            "g ({INPUTS}) => (float[2, 3] z) <{declared} y> {{ y = {expression} z = Abs(x) }}"
        ),
        "branch" => format!(
            "g ({INPUTS}) => ({made} y) {{ y = If(c) <
                then_branch = t () => ({declared} a) {{ a = {expression} }},
                else_branch = e () => ({made} b) {{ b = {expression} }}> }}"
        ),
        "value in a branch" => format!(
            "g ({INPUTS}) => (float[2, 3] y) {{ y = If(c) <
                then_branch = t () => (float[2, 3] a) <{declared} v> {{ v = {expression} a = Abs(x) }},
                else_branch = e () => (float[2, 3] b) {{ b = Neg(x) }}> }}"
        ),
        "loop" => format!(
            "g ({INPUTS}) => ({made} y) <int64 n = {{2}}, bool k = {{1}}> {{
                first = {expression}
                y = Loop(n, k, first) <body = b (int64 t, bool go, {declared} a) => (bool go2, {made} r)
                    {{ go2 = Identity(go) r = Identity(a) }}> }}"
        ),
        "scan" => format!(
            "g ({INPUTS}) => ({made} y) {{
                first = {expression}
                y, u = Scan<num_scan_inputs = 1, body = b ({declared} a, float[3] row) => ({made} r, float[3] q)
                    {{ r = Identity(a) q = Neg(row) }}>(first, x) }}"
        ),
        _ => format!(
            "g ({INPUTS}) => ({made} y) {{ v = {expression} y = local.f(v) }}
            <domain: \"local\", opset_import: [\"\": 21]>
            f (a) => (r) <{declared} w> {{ w = Identity(a) r = Identity(w) }}"
        ),
    };
    header.to_string() + &graph
}

/// Makes values for all inputs of a model.
fn inputs() -> Vec<(&'static str, Value)> {
    let x = || Tensor::from_slice([2, 3], &[1f32, -2.0, 3.0, -4.0, 5.0, -6.0]).unwrap();
    let s = || Value::Sequence(Sequence::from_tensors(DataType::Float, [x(), x()]).unwrap());
    vec![
        ("c", Tensor::scalar(sardonyx::value::Bool8::from(true)).into()),
        ("x", x().into()),
        ("i", Tensor::from_slice([2], &[3i64, 4]).unwrap().into()),
        ("s", s()),
        ("o", Value::some(x().into())),
        ("os", Value::some(s())),
        ("p", Sparse::from_dense(&x()).unwrap().into()),
    ]
}

/// Returns the first error of `check`, `infer` and a run of a session.
fn verdicts(text: &str) -> [(&'static str, Option<String>); 3] {
    let model = Model::from_text(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let report = model.check(&check::CheckOptions::new().types(true));
    let worst = report.findings.iter().find(|found| found.severity == check::Severity::Error);
    let found = model.infer(&infer::InferOptions::new());
    let inferred = found.report(&model).findings;
    let session = Session::builder(&model).threads(1).build();
    let ran = session.and_then(|session| session.run(inputs(), &Default::default()).map(|_| ()));
    [
        ("check", worst.map(|found| format!("{}: {}", found.code.name, found.fact))),
        ("infer", inferred.first().map(|found| format!("{}: {}", found.code.name, found.fact))),
        ("run", ran.err().map(|error| error.to_string())),
    ]
}

#[test]
fn declared_and_computed_types_get_one_verdict() {
    // NODE-18+-, SHAPE-17-
    let expressions = expressions();
    let mut counts: BTreeMap<(Difference, &str), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for seed in [1, 2, 3] {
        let mut random = Random(seed);
        for _ in 0..2000 {
            let place = *random.one_of(&PLACES);
            let (expression, made) = random.one_of(&expressions);
            // Scan states are tensors, and no operator passes on a map.
            let passes_it_on = match place {
                "scan" => matches!(made, Ty::Tensor(..)),
                "loop" | "function" => !expression.contains("ZipMap"),
                _ => true,
            };
            if !passes_it_on {
                continue;
            }
            let (declared, difference) = draw_declared_type(&mut random, made);
            *counts.entry((difference, place)).or_default() += 1;
            let text = model(place, expression, made, &declared);
            for (job, error) in verdicts(&text) {
                let refuses = match difference {
                    Difference::None => false,
                    // A session takes types in a function's body from the call.
                    Difference::Kind => !(job == "run" && place == "function"),
                    Difference::Size | Difference::Sparse => {
                        job != "run" || ["loop", "scan"].contains(&place)
                    }
                };
                if error.is_some() != refuses {
                    let error = error.unwrap_or_else(|| "no error".to_string());
                    wrong.push(format!(
                        "seed {seed}, {difference:?}, {place}, {job}: {error}\n{text}"
                    ));
                }
            }
        }
    }
    for place in PLACES {
        for difference in [Difference::None, Difference::Kind, Difference::Size, Difference::Sparse]
        {
            assert!(counts[&(difference, place)] >= 10, "{difference:?}, {place}: too few");
        }
    }
    report(&wrong);
}

fn report(wrong: &[String]) {
    let shown = &wrong[..wrong.len().min(10)];
    assert!(wrong.is_empty(), "{} are wrong, such as\n{}", wrong.len(), shown.join("\n\n"));
}

/// Returns the type that an operator computes from an operand of type `made`; `None` if it does not
/// take that type.
fn result_type(operator: &str, made: &Ty) -> Option<Ty> {
    Some(match (operator, made) {
        ("Neg", Ty::Tensor("float" | "int64", _)) | ("Not", Ty::Tensor("bool", _)) => made.clone(),
        ("Shape", Ty::Tensor(_, dims)) => Ty::Tensor("int64", vec![dims.len().to_string()]),
        ("SequenceConstruct", Ty::Tensor(..)) => seq(made.clone()),
        ("SequenceLength", Ty::Sequence(_)) => tensor("int64", &[]),
        ("SequenceErase", Ty::Sequence(_)) => made.clone(),
        ("SequenceAt", Ty::Sequence(inner)) => (**inner).clone(),
        ("Optional", Ty::Tensor(..) | Ty::Sequence(_)) => optional(made.clone()),
        ("OptionalGetElement", Ty::Optional(inner)) => (**inner).clone(),
        ("OptionalGetElement", Ty::Tensor(..) | Ty::Sequence(_)) => made.clone(),
        ("OptionalHasElement", _) => tensor("bool", &[]),
        ("Identity", _) => made.clone(),
        _ => return None,
    })
}

#[test]
fn operands_get_one_verdict() {
    // NODE-18+-, NODE-06-: applies every operator to every expression, in the main graph, a branch
    // and a function.
    let operators = [
        "Neg(v)",
        "Not(v)",
        "Shape(v)",
        "SequenceConstruct(v, v)",
        "SequenceLength(v)",
        "SequenceAt(v, at)",
        "SequenceErase(v)",
        "Optional(v)",
        "OptionalGetElement(v)",
        "OptionalHasElement(v)",
        "Identity(v)",
    ];
    let (mut wrong, mut counts) = (Vec::new(), [0, 0]);
    for (expression, made) in expressions() {
        // `Identity` of a sequence of maps runs, although no version of it permits that.
        if expression.contains("ZipMap") {
            continue;
        }
        for operator in operators {
            let ty = result_type(operator.split_once('(').unwrap().0, &made);
            counts[usize::from(ty.is_none())] += 1;
            // An invalid operand is an error whatever type is declared.
            let shown = ty.as_ref().unwrap_or(&made).text();
            let main = |nodes: String| {
                format!(
                    "<ir_version: 10, opset_import: [\"\": 21, \"local\": 1]>
                    g ({INPUTS}) => ({shown} y) {{ v = {expression} {nodes} }}"
                )
            };
            let at = "at = Constant<value_int = 0>()";
            let texts = [
                main(format!("{at} y = {operator}")),
                main(format!(
                    "{at} y = If(c) <then_branch = t () => ({shown} a) {{ a = {operator} }},
                        else_branch = e () => ({shown} b) {{ b = {operator} }}>"
                )),
                main("y = local.f(v)".to_string())
                    + &format!(
                        "<domain: \"local\", opset_import: [\"\": 21]>
                        f (v) => (w) {{ {at} w = {operator} }}"
                    ),
            ];
            for text in texts {
                for (job, error) in verdicts(&text) {
                    // A session also puts sequences and optionals into sequences, and computes
                    // `Not` of a constant of integers.
                    let is_lenient = operator.starts_with("SequenceConstruct")
                        || (operator, expression) == ("Not(v)", "Shape(x)");
                    if job == "run" && is_lenient && ty.is_none() {
                        continue;
                    }
                    if error.is_some() != ty.is_none() {
                        let error = error.unwrap_or_else(|| "no error".to_string());
                        wrong.push(format!("{operator} of {expression}, {job}: {error}\n{text}"));
                    }
                }
            }
        }
    }
    assert_eq!(counts, [113, 96]);
    report(&wrong);
}
