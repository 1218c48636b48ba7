//! Writes functions of operators as messages, for `tests/conformance/compare_bodies.py`.
//!
//! Answers requests on standard input, one per line:
//!
//! - `list`: a line for each version of each operator that has functions: domain, name, version,
//!   and the opset versions of the functions, with a `*` after those that depend on the call.
//! - `plain DOMAIN NAME OPSET`: the function of an operator as a `FunctionProto`, in hexadecimal
//!   digits, or `none`.
//! - `call NODE TYPES OPSET`: the same for a call. NODE is a `NodeProto`, TYPES a `ModelProto`
//!   whose inputs have the types of the node's inputs, both in hexadecimal digits.
//!
//! Fields are separated by tabs. An answer of several lines ends with an empty one.

use std::error::Error;
use std::io::{self, BufRead, Write};

use sardonyx::Model;
use sardonyx::tool::OperatorFunction;
use sardonyx::tool::schema::Registry;

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let fields: Vec<&str> = line.split('\t').collect();
        let function = match fields[..] {
            ["list"] => {
                list(&mut out)?;
                continue;
            }
            ["plain", domain, name, opset] => OperatorFunction::find(domain, name, opset.parse()?),
            ["call", node, types, opset] => {
                let inputs = Model::from_bytes(parse_hex(types)?)?.inputs();
                let types: Vec<_> = inputs.iter().map(|input| input.ty().cloned()).collect();
                OperatorFunction::from_call(parse_hex(node)?, &types, opset.parse()?)?
            }
            _ => return Err(format!("no request: {line:?}").into()),
        };
        match function {
            None => writeln!(out, "none")?,
            Some(function) => {
                let message = function.to_bytes()?;
                let digits: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
                writeln!(out, "{digits}")?;
            }
        }
    }
    Ok(out.flush()?)
}

fn list(out: &mut impl Write) -> io::Result<()> {
    for operator in Registry::standard().operators() {
        for version in operator.versions() {
            let functions = operator.functions_of(version.since);
            if functions.is_empty() {
                continue;
            }
            let opsets: Vec<String> = functions
                .iter()
                .map(|function| {
                    let star = if function.needs_call { "*" } else { "" };
                    format!("{}{star}", function.since)
                })
                .collect();
            let (domain, name) = (operator.domain, operator.name);
            writeln!(out, "{domain}\t{name}\t{}\t{}", version.since, opsets.join(" "))?;
        }
    }
    writeln!(out)
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?)).collect()
}
