//! Sizes that have names: `--set NAME=SIZE` gives numbers to them, and answers in JSON show them.
//!
//! The sessions' `--set` is in `session.rs`; it takes sizes without names as well, by input and
//! axis.

use sardonyx::infer::Options;
use sardonyx::{Dim, Model};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Numbers for names of sizes.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Replace a symbolic dimension by a number, in the whole model
    #[arg(long, alias = "dim", value_name = "NAME=SIZE", value_parser = parse)]
    set: Vec<(String, i64)>,
}

/// `NAME=SIZE` on the command line.
pub(crate) fn parse(text: &str) -> Result<(String, i64), String> {
    let wrong = || format!("'{text}' is not of the form NAME=SIZE, such as batch=4");
    let (name, size) = text.rsplit_once('=').ok_or_else(wrong)?;
    match size.parse() {
        Ok(size @ 0..) if !name.is_empty() => Ok((name.to_string(), size)),
        _ => Err(wrong()),
    }
}

impl Args {
    /// Options of inference with these numbers. Fails for a name that the model does not have.
    pub(crate) fn options(&self, model: &Model) -> Result<Options, Failure> {
        let mut options = Options::new();
        let names = model.symbols();
        for (name, size) in &self.set {
            if !names.contains(name) {
                let failure = Failure::new(format!("the model has no dimension '{name}'"));
                let near = sardonyx::suggest::closest(name, names.iter().map(String::as_str));
                return Err(match (near, names.is_empty()) {
                    (Some(near), _) => failure.help(format!("did you mean '{near}'?")),
                    (None, true) => {
                        failure.help("all dimensions of the model are numbers or unknown")
                    }
                    (None, false) => {
                        let names: Vec<&str> = names.iter().map(String::as_str).take(20).collect();
                        failure.help(format!("use one of: {}", names.join(", ")))
                    }
                });
            }
            options = options.set(name, *size);
        }
        Ok(options)
    }
}

/// A number, a formula as text, or null.
pub(crate) fn dim_json(dim: &Dim) -> Value {
    match dim {
        Dim::Known(size) => json!(size),
        Dim::Unknown => Value::Null,
        Dim::Expr(_) => json!(dim.to_string()),
    }
}
