//! Symbolic dimensions: the option `--set NAME=SIZE` of commands that infer types, and dimensions
//! in JSON answers. The option `--set` of sessions is in `session.rs`.

use sardonyx::infer::InferOptions;
use sardonyx::{Dim, Model};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::session::OpenSize;

/// Options that give sizes to symbolic dimensions.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Replace a symbolic dimension by a number, in the whole model. INPUT[AXIS], such as x[0],
    /// sets a dimension of an input that has no name
    #[arg(long, alias = "dim", value_name = "NAME=SIZE", value_parser = parse)]
    set: Vec<(String, i64)>,
}

/// Parses `NAME=SIZE`, a size of at least 0.
pub(crate) fn parse(text: &str) -> Result<(String, i64), String> {
    let parts = text.rsplit_once('=').map(|(name, size)| (name, size.parse()));
    match parts {
        Some((name, Ok(size @ 0..))) if !name.is_empty() => Ok((name.to_string(), size)),
        _ => Err(format!("'{text}' is not of the form NAME=SIZE, such as batch=4")),
    }
}

impl Args {
    /// Returns options of inference with the given sizes of symbolic dimensions. Sizes of unnamed
    /// dimensions are set in the model. Fails for a name that the model does not have.
    pub(crate) fn apply(&self, model: &mut Model) -> Result<InferOptions, Failure> {
        let mut options = InferOptions::new();
        let names = model.symbols();
        let inputs = model.inputs();
        for (name, size) in &self.set {
            let bounded = usize::try_from(*size).unwrap_or(usize::MAX);
            if let Some(OpenSize { input, axis, .. }) = OpenSize::from_name(&inputs, name, bounded)?
            {
                // Cannot fail: the line above has found the axis.
                let _ = model.set_input_dim(&input, axis, *size);
                continue;
            }
            if !names.contains(name) {
                let failure = Failure::new(format!("the model has no dimension '{name}'"));
                let near = sardonyx::tool::suggest::closest(name, names.iter().map(String::as_str));
                return Err(match (near, names.is_empty()) {
                    (Some(near), _) => failure.help(format!("did you mean '{near}'?")),
                    (None, true) => failure.help(
                        "no dimension of the model has a name; use INPUT[AXIS] for an unknown \
                         dimension of an input, such as x[0]=1",
                    ),
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

/// Converts a dimension to JSON: a number, an expression as text, or null if it is unknown.
pub(crate) fn dim_json(dim: &Dim) -> Value {
    match dim {
        Dim::Known(size) => json!(size),
        Dim::Unknown => Value::Null,
        Dim::Expr(_) => json!(dim.to_string()),
    }
}
