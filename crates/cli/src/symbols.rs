//! Symbolic dimensions: the option `--set NAME=SIZE` of commands that infer types. The option
//! `--set` of sessions is in `session.rs`.

use sardonyx::infer::InferOptions;
use sardonyx::tool::filling::OpenDim;
use sardonyx::{Model, Port, Type};

use crate::failure::Failure;

/// Options that give sizes to symbolic dimensions.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Replace a symbolic dimension by a number, in the whole model. INPUT[AXIS], such as x[0],
    /// sets a dimension of an input that has no name
    #[arg(long, alias = "dim", value_name = "NAME=SIZE", value_parser = parse_size)]
    set: Vec<(String, i64)>,
}

/// Parses `NAME=SIZE`, where SIZE is a whole number of at least 0.
pub(crate) fn parse_size(text: &str) -> Result<(String, i64), String> {
    let parts = text.rsplit_once('=').map(|(name, size)| (name, size.parse()));
    match parts {
        Some((name, Ok(size @ 0..))) if !name.is_empty() => Ok((name.to_string(), size)),
        _ => Err(format!("'{text}' is not of the form NAME=SIZE, such as batch=4")),
    }
}

/// Resolves `INPUT[AXIS]` to a dimension of a graph input. `None` if `name` does not have this form
/// or INPUT is not an input; fails if the dimension has a size or a name.
pub(crate) fn find_open_dim(
    inputs: &[Port],
    name: &str,
    size: usize,
) -> Result<Option<OpenDim>, Failure> {
    let port = split_axis(name).and_then(|(input, axis)| {
        let port = inputs.iter().find(|port| port.name() == input)?;
        Some((port, axis))
    });
    let Some((port, axis)) = port else { return Ok(None) };
    match port.ty().and_then(Type::shape).and_then(|shape| shape.get(axis)) {
        Some(dim) if dim.is_unknown() => {
            Ok(Some(OpenDim { input: port.name().to_string(), axis, size }))
        }
        Some(dim) => {
            let failure =
                Failure::new(format!("cannot set dimension {axis} of '{port}', which is {dim}"));
            Err(match dim.as_symbol() {
                Some(symbol) => {
                    failure.help(format!("set the dimension by its name: {symbol}={size}"))
                }
                None => failure.help("only dimensions without a fixed size can be set"),
            })
        }
        None => Err(Failure::new(format!("the input '{port}' has no known dimension {axis}"))),
    }
}

/// Splits `INPUT[AXIS]` into a name and an axis; `None` if `text` does not have this form.
fn split_axis(text: &str) -> Option<(&str, usize)> {
    let (input, axis) = text.strip_suffix(']')?.rsplit_once('[')?;
    Some((input, axis.parse().ok()?))
}

impl Args {
    /// Returns options of inference with the sizes of symbolic dimensions that `--set` gives. Sizes
    /// of unnamed dimensions are set in `model`. Fails for a name that the model does not have.
    pub(crate) fn apply(&self, model: &mut Model) -> Result<InferOptions, Failure> {
        let mut options = InferOptions::new();
        let names = model.symbols();
        let inputs = model.inputs();
        for (name, size) in &self.set {
            let bounded = usize::try_from(*size).unwrap_or(usize::MAX);
            if let Some(OpenDim { input, axis, .. }) = find_open_dim(&inputs, name, bounded)? {
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
                        failure.help(format!(
                            "use one of the model's dimensions: {}",
                            names.join(", ")
                        ))
                    }
                });
            }
            options = options.set(name, *size);
        }
        Ok(options)
    }
}
