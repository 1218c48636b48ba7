//! Values for graph inputs that no file gives: the options `--random`, `--shape` and `--fill`.

use sardonyx::check::{Fill, FillOptions};
use sardonyx::tool::filling::matches_name;
use sardonyx::tool::{Glob, ModelExt};
use sardonyx::{ErrorKind, Model, Port, Value};

use crate::failure::Failure;
use crate::human::parse_optional;
use crate::session::Sizes;
use crate::terminal::Terminal;

/// Options that fill inputs.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub(crate) struct Args {
    /// Fill inputs that are not given with pseudo-random values: floats from -1 to 1, integers from
    /// 0 to 9 or valid indices of the table that they index, ones for masks, zeros for token types.
    /// The same SEED gives the same values [default: 0]
    #[arg(
        long,
        value_name = "SEED",
        num_args = 0..=1,
        default_missing_value = "0",
        value_parser = |text: &str| parse_optional(text, 0..=u64::MAX)
    )]
    random: Option<u64>,
    /// Sizes of an input to fill, such as x=1,3,224,224; may be given several times. Implies
    /// --random 0
    #[arg(long, value_name = "NAME=SIZES", value_parser = parse_shape)]
    shape: Vec<(String, Vec<usize>)>,
    /// Values to fill an input with: zeros, ones, arange (0, 1, 2, …), a number, or pseudo-random
    /// numbers from LO to below HI as LO..HI. NAME may be a pattern such as 'past_*'; the last
    /// option that matches an input applies. Implies --random 0
    #[arg(long, value_name = "NAME=FILL", value_parser = parse_fill)]
    fill: Vec<(String, Fill)>,
}

/// Parses an input name and its shape, as `NAME=1,3,224,224` or `NAME=1x3x224x224`. `NAME=` is a
/// scalar.
fn parse_shape(text: &str) -> Result<(String, Vec<usize>), String> {
    let wrong = || format!("'{text}' is not of the form NAME=SIZES, such as x=1,3,224,224");
    let (name, sizes) = text.rsplit_once('=').ok_or_else(wrong)?;
    if name.is_empty() {
        return Err(wrong());
    }
    let sizes = match sizes {
        "" => Ok(Vec::new()),
        _ => sizes.split([',', 'x']).map(|size| size.trim().parse()).collect(),
    };
    Ok((name.to_string(), sizes.map_err(|_| wrong())?))
}

/// Parses `NAME=FILL`, an input name and the rule for its elements.
fn parse_fill(text: &str) -> Result<(String, Fill), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, fill)| Some((name, Fill::parse(fill)?)));
    match parsed {
        Some((name, fill)) if !name.is_empty() => Ok((name.to_string(), fill)),
        _ => Err(format!(
            "'{text}' is not of the form NAME=FILL, where FILL is zeros, ones, arange, a number, or LO..HI with LO below HI"
        )),
    }
}

impl Args {
    /// Creates options that fill every graph input with pseudo-random values.
    pub(crate) fn with_seed(seed: u64) -> Args {
        Args { random: Some(seed), ..Args::default() }
    }

    /// Returns the seed of pseudo-random elements; `None` if no option fills inputs.
    pub(crate) fn seed(&self) -> Option<u64> {
        let is_implied = !self.shape.is_empty() || !self.fill.is_empty();
        self.random.or(is_implied.then_some(0))
    }

    /// Returns the options of the library with the sizes of `--set`.
    pub(crate) fn to_options(&self, sizes: &Sizes) -> FillOptions {
        let mut options = sizes.to_fill_options().seed(self.seed().unwrap_or(0));
        for (input, dims) in &self.shape {
            options = options.shape(input, dims.as_slice());
        }
        for (input, fill) in &self.fill {
            options = options.fill(input, *fill);
        }
        options
    }

    /// Checks that each `--shape` and `--fill` matches an input of the model, and that no file
    /// gives an input that the option names. `given` is true for inputs that a file gives.
    pub(crate) fn check(
        &self,
        ports: &[Port],
        given: &dyn Fn(&str) -> bool,
    ) -> Result<(), Failure> {
        let shapes = self.shape.iter().map(|(name, _)| ("--shape", name, false));
        let fills = self.fill.iter().map(|(name, _)| ("--fill", name, Glob::is_pattern(name)));
        for (option, name, is_pattern) in shapes.chain(fills) {
            let found = ports
                .iter()
                .any(|port| port.name() == name || is_pattern && matches_name(name, port.name()));
            if !found {
                let message = format!("{option}: the model has no input '{name}'");
                let failure = Failure::new(message).code(ErrorKind::Input);
                let names = ports.iter().map(Port::name);
                return Err(match sardonyx::tool::suggest::closest(name, names.clone()) {
                    Some(near) => failure.help(format!("did you mean '{near}'?")),
                    None => {
                        let names: Vec<&str> = names.take(20).collect();
                        failure.help(format!("the inputs of the model are: {}", names.join(", ")))
                    }
                });
            }
            if given(name) {
                let message = format!("{option} cannot be used: a file gives the input '{name}'");
                return Err(Failure::new(message)
                    .code(ErrorKind::Input)
                    .help(format!("remove the file or {option}")));
            }
        }
        Ok(())
    }
}

/// Makes values for the graph inputs that are not given and are required or named in `options`, and
/// notes on the terminal which sizes are assumed.
pub(crate) fn fill_inputs(
    options: &FillOptions,
    model: &Model,
    ports: &[Port],
    given: &[(String, Value)],
    terminal: &Terminal,
) -> Result<Vec<(String, Value)>, Failure> {
    let filled = model.fill_inputs(ports, given, options)?;
    note_assumed(&filled.assumed, terminal);
    for (name, fill) in &filled.rules {
        terminal.detail(&format!("the input '{name}' is filled with {fill}"));
    }
    Ok(filled.values)
}

/// Notes on the terminal which dimensions are assumed to be 1.
pub(crate) fn note_assumed(assumed: &[String], terminal: &Terminal) {
    if !assumed.is_empty() {
        let names = assumed.join(", ");
        terminal.note(&format!("unknown dimensions are set to 1 (see --set): {names}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_and_fills_are_read() {
        let shape = |text| parse_shape(text).ok().map(|(_, sizes)| sizes);
        assert_eq!(parse_shape("a=b=1,3").unwrap(), ("a=b".to_string(), vec![1, 3]));
        assert_eq!(shape("x=1x3x224x224"), Some(vec![1, 3, 224, 224]));
        assert_eq!(shape("x="), Some(vec![]));
        for wrong in ["x", "=1", "x=-1", "x=1,", "x=N", "x=1.5"] {
            assert_eq!(shape(wrong), None, "{wrong}");
        }
        let fill = |text| parse_fill(text).ok().map(|(_, fill)| fill.to_string());
        let rows = [
            ("x=zeros", Some("0")),
            ("x=ones", Some("1")),
            ("x=-2.5", Some("-2.5")),
            ("x=arange", Some("0, 1, 2, …")),
            ("x=-1..1", Some("pseudo-random numbers from -1 to below 1")),
            ("x=1..1", None),
            ("x=nan", None),
            ("x=twos", None),
            ("=zeros", None),
            ("zeros", None),
        ];
        for (text, expected) in rows {
            assert_eq!(fill(text).as_deref(), expected, "{text}");
        }
    }
}
