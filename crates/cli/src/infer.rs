//! `sardonyx infer`: types and shapes of all values, and why some stay unknown.

use sardonyx::infer::{self, Dim, Inferred, Missing, Naming, Options, Style, Type, ValueType};
use sardonyx::{Model, SaveOptions, Weights, check};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::glob::Glob;
use crate::human::{Align, columns, count};
use crate::symbols::dim_json;
use crate::terminal::Terminal;
use crate::{ModelArg, Verdict, saving, symbols};

/// Infer types and shapes of all values, and say why some stay unknown
///
/// Sizes are numbers, names of the file, or expressions over these such as 2*N + 5. With --output or --in-place the types
/// are written into the model; nothing else in it changes.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    symbols: symbols::Args,
    /// List the values with their types, or those whose names fit a pattern
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*", value_parser = Glob::parse)]
    show: Option<Glob>,
    /// List what stays unknown, with the node where that begins and the reason, and which sizes must be equal or divide
    #[arg(long)]
    explain: bool,
    /// Write nothing if something contradicts itself
    #[arg(long)]
    strict: bool,
    /// Write no expressions as sizes, only numbers and names
    #[arg(long, conflicts_with = "like_onnx")]
    no_expressions: bool,
    /// Reason as the onnx package does: unknown sizes get names such as unk__0, and no expressions
    #[arg(long)]
    like_onnx: bool,
    /// With --like-onnx: follow the values that shapes are made of
    #[arg(long, requires = "like_onnx")]
    data_prop: bool,
}

/// The name and version of the form of the JSON answer. New keys may be added; a change of meaning gets a new number.
const SCHEMA: &str = "sardonyx.infer/1";

pub(crate) fn infer(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut model = args.model.open()?;
    let target = match args.saving.is_wanted() {
        true => Some(args.saving.target(&args.model, &model)?),
        false => None,
    };
    let options = args.options(&model)?;
    let found = model.infer(&options);
    let report = found.report(&model);
    let wrong = !report.findings.is_empty();
    let pictures = report.findings.iter();
    let pictures = pictures.map(|found| check::render(&model, found, &args.model.name()) + "\n\n");
    let pictures: String = pictures.collect();
    if wrong && args.strict && !args.saving.json {
        terminal.print(&pictures)?;
        return Ok(Verdict::Findings);
    }
    let values = found.values(&model);
    let mut answer = json!({
        "schema": SCHEMA,
        "model": args.model.name(),
        "values": values.iter().map(value_json).collect::<Vec<_>>(),
        "unknown": unknown_json(&model, &found),
        "equal": equal_json(&model, &found),
        "problems": report.findings.iter().map(|found| json!({
            "code": found.code.name,
            "place": found.place.path,
            "message": found.fact,
            "advice": found.advice,
        })).collect::<Vec<_>>(),
    });
    let text = args.as_text(&model, &found, &values);
    if let Some(target) = target.filter(|_| !(wrong && args.strict)) {
        model.add_types(&found);
        let save = SaveOptions::new();
        let saved = args
            .saving
            .save(&args.model, &model, save, Weights::Keep, target, terminal)?;
        match args.saving.json {
            true => answer["saved"] = saved.json(),
            false => {
                terminal.remark(&(pictures.clone() + &summary(&values)));
                saved.say(terminal);
            }
        }
    }
    match args.saving.json {
        true => terminal.json(&answer, true)?,
        false if args.saving.is_wanted() => terminal.print(&text)?,
        false => terminal.print(&(pictures + &text))?,
    }
    // Without a model to write, what was found is the answer.
    Ok(match wrong && (args.strict || !args.saving.is_wanted()) {
        true => Verdict::Findings,
        false => Verdict::Fine,
    })
}

impl Args {
    fn options(&self, model: &Model) -> Result<Options, Failure> {
        let mut options = self.symbols.options(model)?;
        if self.like_onnx {
            options = options.naming(Naming::Reference).style(Style::Reference {
                data_prop: self.data_prop,
            });
        } else if self.no_expressions {
            options = options.naming(Naming::Names);
        }
        Ok(options)
    }

    fn as_text(&self, model: &Model, found: &Inferred, values: &[ValueType]) -> String {
        let mut text = String::new();
        if let Some(pattern) = &self.show {
            text += &list(values.iter().filter(|value| pattern.matches(&value.name)));
        }
        if self.explain {
            text += &explanation(model, found);
        }
        if self.show.is_none() && !self.explain && !self.saving.is_wanted() {
            text += &format!("{}\n", summary(values));
        }
        text
    }
}

/// How many types are known.
fn summary(values: &[ValueType]) -> String {
    let open = |value: &&ValueType| !value.ty.as_ref().is_some_and(is_whole);
    let unknown = values.iter().filter(open).count();
    let all = count(values.len(), "value");
    match unknown {
        0 => format!("{all}: the types of all are known"),
        unknown => format!("{all}: of {unknown} not everything is known; --explain says why"),
    }
}

/// Whether a type leaves nothing open. Sizes that are called by names are not open.
fn is_whole(ty: &Type) -> bool {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
            let shape = tensor.shape.as_ref();
            tensor.elem.is_some() && shape.is_some_and(|shape| !shape.iter().any(Dim::is_unknown))
        }
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => is_whole(inner),
        Type::Opaque { .. } => true,
    }
}

/// Values by graph.
fn list<'a>(values: impl Iterator<Item = &'a ValueType>) -> String {
    let mut text = String::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut graph = None;
    let headings = [
        ("  value", Align::Left),
        ("type", Align::Left),
        ("made by", Align::Left),
    ];
    let flush = |rows: &mut Vec<Vec<String>>, text: &mut String| {
        if !rows.is_empty() {
            *text += &columns(&headings, rows);
            rows.clear();
        }
    };
    for value in values {
        if graph != Some(&value.graph) {
            flush(&mut rows, &mut text);
            text += &format!("{}:\n", value.graph);
            graph = Some(&value.graph);
        }
        let ty = value.ty.as_ref().map_or("?".to_string(), Type::to_string);
        rows.push(vec![format!("  {}", value.name), ty, value.made_by.clone()]);
    }
    flush(&mut rows, &mut text);
    text
}

fn explanation(model: &Model, found: &Inferred) -> String {
    let mut text = String::new();
    for unknown in found.unknown(model) {
        let what = match unknown.missing {
            Missing::Type => format!("the type of '{}'", unknown.value),
            Missing::Elem => format!("the element type of '{}'", unknown.value),
            Missing::Rank => format!("the rank of '{}'", unknown.value),
            Missing::Dim(axis) => match &unknown.symbol {
                Some(symbol) => format!("{symbol}, axis {axis} of '{}'", unknown.value),
                None => format!("axis {axis} of '{}'", unknown.value),
            },
        };
        text += &format!("{what}: {}: {}\n", unknown.node, unknown.reason);
    }
    for equality in found.equalities(model) {
        let (left, right) = (&equality.left, &equality.right);
        text += &format!("{left} = {right}: {} demands it\n", equality.node);
    }
    match text.is_empty() {
        true => "nothing stays unknown\n".to_string(),
        false => text,
    }
}

fn value_json(value: &ValueType) -> Value {
    let tensor = value.ty.as_ref().and_then(Type::as_tensor);
    json!({
        "graph": value.graph,
        "name": value.name,
        "made_by": value.made_by,
        "type": value.ty.as_ref().map(Type::to_string),
        "elem": tensor.and_then(|tensor| tensor.elem).map(|elem| elem.name()),
        "shape": tensor
            .and_then(|tensor| tensor.shape.as_ref())
            .map(|shape| shape.iter().map(dim_json).collect::<Vec<_>>()),
    })
}

fn unknown_json(model: &Model, found: &Inferred) -> Value {
    let rows = found.unknown(model).into_iter().map(|unknown| {
        let (what, axis) = match unknown.missing {
            Missing::Type => ("type", None),
            Missing::Elem => ("elem", None),
            Missing::Rank => ("rank", None),
            Missing::Dim(axis) => ("dim", Some(axis)),
        };
        json!({
            "value": unknown.value,
            "what": what,
            "axis": axis,
            "symbol": unknown.symbol,
            "node": unknown.node,
            "reason": unknown.reason,
        })
    });
    rows.collect()
}

fn equal_json(model: &Model, found: &Inferred) -> Value {
    let rows = found
        .equalities(model)
        .into_iter()
        .map(|equality: infer::Equality| {
            json!({
                "left": equality.left.to_string(),
                "right": equality.right.to_string(),
                "node": equality.node,
            })
        });
    rows.collect()
}
