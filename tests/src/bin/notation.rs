//! Our side of `cargo xtask notation`: converts texts to messages, for Python to compare with those
//! of the reference parser.
//!
//! Each line of standard input is a question, `{"kind": "node", "text_hex": "…"}`. Each line of
//! standard output is an answer, in the same order: `{"ok": "<hex of the message>"}` or `{"error":
//! "<description>"}`.
//!
//! With `--print-models`, each line of standard input is the path of a model, and its answer
//! `{"text_hex": "…", "left_out": [{"what": "…", "first": "…", "count": 1}]}` in the portable form,
//! or again an error.

use sardonyx::tool::{TextPart, parse_part};
use sardonyx_model::Model;
use sardonyx_tensor::Buffer;
use sardonyx_text::{PrintOptions, TextForm, model_to_text};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::process::ExitCode;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let answer = match std::env::args().nth(1).as_deref() {
        None => parse,
        Some("--print-models") => print,
        Some(other) => {
            eprintln!("notation: no option {other}");
            return ExitCode::from(2);
        }
    };
    match serve(answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("notation: {error}");
            ExitCode::from(2)
        }
    }
}

fn serve(answer: fn(&str) -> Result<Value>) -> Result {
    let mut output = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&line?)?;
        // Flushed, so that the first missing answer belongs to the text that ends the process.
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn parse(line: &str) -> Result<Value> {
    let (part, text) = parse_question(line)?;
    Ok(match parse_part(part, text) {
        Ok(message) => json!({ "ok": to_hex(&message)? }),
        Err(error) => json!({ "error": error.to_string() }),
    })
}

fn print(path: &str) -> Result<Value> {
    let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    let model = match Model::read(Buffer::from_vec(bytes)) {
        Ok(model) => model,
        Err(error) => return Ok(json!({ "error": error.to_string() })),
    };
    let options = PrintOptions { form: TextForm::Portable, ..PrintOptions::default() };
    let (text, left_out) = model_to_text(&model, options)?;
    let kinds: Vec<Value> = left_out
        .kinds()
        .iter()
        .map(|kind| json!({ "what": kind.what, "first": kind.first, "count": kind.count }))
        .collect();
    Ok(json!({ "text_hex": to_hex(&text)?, "left_out": kinds }))
}

fn parse_question(line: &str) -> Result<(TextPart, Vec<u8>)> {
    let question: Value = serde_json::from_str(line)?;
    let field = |name: &str| {
        let value = question[name].as_str();
        value.ok_or_else(|| format!("a question without `{name}`: {line}"))
    };
    let part = match field("kind")? {
        "model" => TextPart::Model,
        "graph" => TextPart::Graph,
        "function" => TextPart::Function,
        "node" => TextPart::Node,
        other => return Err(format!("no kind of text: {other}").into()),
    };
    Ok((part, from_hex(field("text_hex")?)?))
}

fn from_hex(digits: &str) -> Result<Vec<u8>> {
    let (pairs, []) = digits.as_bytes().as_chunks::<2>() else {
        return Err("an odd number of hexadecimal digits".into());
    };
    let byte = |pair: &[u8; 2]| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?);
    pairs.iter().map(byte).collect()
}

fn to_hex(bytes: &[u8]) -> Result<String> {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(digits, "{byte:02x}")?;
    }
    Ok(digits)
}
