//! Values for graph inputs that no file gives: the options `--random`, `--shape` and `--fill`, and
//! defaults by the name and type of the input.

use std::fmt;

use sardonyx::infer::{InferOptions, Inferred};
use sardonyx::tool::{Glob, ModelExt};
use sardonyx::{DataType, ErrorKind, Model, Port, Type};

use crate::failure::Failure;
use crate::human::parse_optional;

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

/// Rule that generates the elements of a graph input that no file gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fill {
    /// One number in all elements.
    Number(Number),
    /// Numbers 0, 1, 2, … in row-major order.
    Arange,
    /// Pseudo-random numbers, at least the first number and less than the second.
    Range(Number, Number),
}

/// Number given in the option `--fill`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Number {
    pub(crate) float: f64,
    /// The number as an integer; `None` if it is not written as an integer.
    pub(crate) whole: Option<i64>,
}

impl Number {
    fn from_integer(number: i64) -> Number {
        Number { float: number as f64, whole: Some(number) }
    }

    /// Parses a finite number; `None` for other text.
    fn parse(text: &str) -> Option<Number> {
        let float: f64 = text.parse().ok()?;
        let whole = text.parse().ok();
        float.is_finite().then_some(Number { float, whole })
    }
}

impl Fill {
    const ZEROS: Fill = Fill::Number(Number { float: 0.0, whole: Some(0) });
    const ONES: Fill = Fill::Number(Number { float: 1.0, whole: Some(1) });

    /// Creates the rule of pseudo-random numbers from 0 to below `limit`.
    fn from_limit(limit: i64) -> Fill {
        Fill::Range(Number::from_integer(0), Number::from_integer(limit))
    }

    /// Parses `zeros`, `ones`, `arange`, a number or `LO..HI`; `None` for other text.
    pub(crate) fn parse(text: &str) -> Option<Fill> {
        Some(match text {
            "zeros" => Fill::ZEROS,
            "ones" => Fill::ONES,
            "arange" => Fill::Arange,
            _ => match text.split_once("..") {
                Some((low, high)) => {
                    let (low, high) = (Number::parse(low)?, Number::parse(high)?);
                    (low.float < high.float).then_some(Fill::Range(low, high))?
                }
                None => Fill::Number(Number::parse(text)?),
            },
        })
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fill::Number(number) => write!(f, "{}", number.float),
            Fill::Arange => f.write_str("0, 1, 2, …"),
            Fill::Range(low, high) => {
                write!(f, "pseudo-random numbers from {} to below {}", low.float, high.float)
            }
        }
    }
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

    /// Returns the dimensions that `--shape` gives for an input; `None` if it gives none.
    pub(crate) fn find_shape(&self, input: &str) -> Option<&[usize]> {
        let mut shapes = self.shape.iter().rev();
        shapes.find(|(name, _)| name == input).map(|(_, shape)| shape.as_slice())
    }

    /// Returns the rule that the last matching `--fill` gives for the elements of an input; `None`
    /// if no `--fill` matches.
    pub(crate) fn find_fill(&self, input: &str) -> Option<Fill> {
        let mut fills = self.fill.iter().rev();
        fills.find(|(name, _)| matches_name(name, input)).map(|(_, fill)| *fill)
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

/// Whether the name of an input matches a name or a glob pattern. A pattern also matches its
/// literal text.
fn matches_name(pattern: &str, input: &str) -> bool {
    pattern == input || Glob::parse(pattern).is_ok_and(|glob| glob.matches(input))
}

/// Chooser of default elements for inputs that neither a file nor an option gives.
pub(crate) struct DefaultFills<'m> {
    model: &'m Model,
    /// Types of the model's values; `None` until the first integer input needs them.
    types: Option<Inferred>,
}

impl<'m> DefaultFills<'m> {
    pub(crate) fn new(model: &'m Model) -> DefaultFills<'m> {
        DefaultFills { model, types: None }
    }

    /// Returns the default rule for an input with elements of type `elem`: ones for masks, zeros
    /// for token types, valid indices for integers, else numbers from -1 to 1.
    pub(crate) fn choose_fill(&mut self, input: &str, elem: DataType) -> Fill {
        let name_has = |words: &[&str]| {
            let name = input.to_lowercase();
            words.iter().any(|word| name.contains(word))
        };
        let is_integer = elem.is_integer();
        if (is_integer || elem == DataType::Bool) && name_has(&["mask"]) {
            return Fill::ONES;
        }
        if !is_integer {
            return match elem {
                DataType::Bool => Fill::from_limit(2),
                DataType::String => Fill::from_limit(10),
                _ => Fill::Range(Number { float: -1.0, whole: None }, Number::from_integer(1)),
            };
        }
        if name_has(&["token_type", "tokentype", "segment_id"]) {
            return Fill::ZEROS;
        }
        let model = self.model;
        let types = self
            .types
            .get_or_insert_with(|| model.infer(&InferOptions::new().without_reasons(true)));
        let limit = model.find_index_limit(input, types).filter(|limit| *limit > 0);
        let limit = limit.map_or(10, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
        Fill::from_limit(limit.min(compute_exclusive_end(elem)))
    }
}

/// Returns the maximum of an integer type plus 1, limited to `i64::MAX`.
fn compute_exclusive_end(elem: DataType) -> i64 {
    let bits = elem.bits().unwrap_or(64) - usize::from(elem.is_signed());
    1i64.checked_shl(u32::try_from(bits).unwrap_or(u32::MAX))
        .filter(|end| *end > 0)
        .unwrap_or(i64::MAX)
}

/// Returns the type of a graph input; for an optional the type of its content. `None` if the type
/// is unknown.
pub(crate) fn find_input_type(port: &Port) -> Option<&Type> {
    match port.ty()? {
        Type::Optional(inner) => Some(inner),
        ty => Some(ty),
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

    #[test]
    fn default_fills_follow_names_types_and_tables() {
        let words = vec!["1"; 30].join(", ");
        let many = vec!["1"; 300].join(", ");
        let model = Model::from_text(&format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (int64[N] ids, int64[N] kinds, uint8[N] small) => (y, z, u)
             <float[30] words = {{{words}}}, float[2] two = {{1, 2}}, float[300] many = {{{many}}}>
             {{
                 y = Gather (words, ids) z = Gather (two, kinds)
                 i = Cast <to = 7> (small) u = Gather (many, i)
             }}"
        ))
        .unwrap();
        let mut fitting = DefaultFills::new(&model);
        let rows = [
            ("ids", DataType::Int64, Fill::from_limit(30)),
            ("kinds", DataType::Int64, Fill::from_limit(2)),
            ("small", DataType::Uint8, Fill::from_limit(256)),
            ("other", DataType::Int64, Fill::from_limit(10)),
            ("other", DataType::Int4, Fill::from_limit(8)),
            ("other", DataType::Uint2, Fill::from_limit(4)),
            ("other", DataType::Int2, Fill::from_limit(2)),
            ("attention_mask", DataType::Int64, Fill::ONES),
            ("mask", DataType::Bool, Fill::ONES),
            ("token_type_ids", DataType::Int32, Fill::ZEROS),
        ];
        for (name, elem, expected) in rows {
            assert_eq!(fitting.choose_fill(name, elem), expected, "{name}: {elem}");
        }
        let floats = fitting.choose_fill("attention_mask", DataType::Float);
        assert_eq!(floats.to_string(), "pseudo-random numbers from -1 to below 1");
    }
}
