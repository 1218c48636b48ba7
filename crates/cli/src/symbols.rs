//! Sizes that have names: `--set NAME=SIZE` gives numbers to them.
//!
//! The sessions' `--set` is in `session.rs`.

use sardonyx::Model;
use sardonyx::infer::InferOptions;

use crate::failure::Failure;
use crate::session::OpenSize;

/// Numbers for names of sizes.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Replace a symbolic dimension by a number, in the whole model. INPUT[AXIS], such as x[0],
    /// sets a dimension of an input that has no name
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
    /// Options of inference with these numbers; those of dimensions without a name are set in the
    /// model. Fails for a name that the model does not have.
    pub(crate) fn apply(&self, model: &mut Model) -> Result<InferOptions, Failure> {
        let mut options = InferOptions::new();
        let names = model.symbols();
        let inputs = model.inputs();
        for (name, size) in &self.set {
            let bounded = usize::try_from(*size).unwrap_or(usize::MAX);
            if let Some(OpenSize { input, axis, .. }) = OpenSize::of(&inputs, name, bounded)? {
                // The axis was just found.
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
