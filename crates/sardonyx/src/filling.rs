//! Values for graph inputs that no file and no caller gives: pseudo-random numbers, which are equal
//! on every machine.
//!
//! Element i of an input is made from the i-th output u (64 bits) of SplitMix64 (Steele, Lea, Flood
//! 2014), seeded with SEED xor the FNV-1a hash of the input's name. So the values of an input do
//! not depend on other inputs.
//! - Floats from a to below b are a + (b - a) (u >> 40) / 2^24, then rounded to narrower types. By
//!   default a is -1 and b is 1.
//! - Integers from a to below b are a + (u >> 32) mod (b - a). [`DefaultFills`] chooses a and b.
//! - Truth values are the highest bit of u, strings are an integer as text.

use std::collections::HashMap;
use std::fmt;

use sardonyx_model::{Dim, Shape, Type};
use sardonyx_runtime::Port;
use sardonyx_tensor::{
    CastOptions, DataType, Sequence, StringArray, Tensor, TensorError, Value, cast,
};

use crate::error::{Error, ErrorKind};
use crate::glob::Glob;
use crate::inference::{InferOptions, Inferred};
use crate::model::Model;

/// Rule that generates the elements of a graph input.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill(Rule);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    /// One number in all elements.
    Number(Number),
    /// Numbers 0, 1, 2, … in row-major order.
    Arange,
    /// Pseudo-random numbers, at least the first number and less than the second.
    Range(Number, Number),
}

/// Number of a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Number {
    float: f64,
    /// The number as an integer; `None` if it is not written as an integer.
    whole: Option<i64>,
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
    /// Rule that makes every element 0.
    pub const ZEROS: Fill = Fill(Rule::Number(Number { float: 0.0, whole: Some(0) }));
    /// Rule that makes every element 1.
    pub const ONES: Fill = Fill(Rule::Number(Number { float: 1.0, whole: Some(1) }));
    /// Rule that draws numbers from -1 to below 1.
    pub const UNIT: Fill = Fill(Rule::Range(
        Number { float: -1.0, whole: Some(-1) },
        Number { float: 1.0, whole: Some(1) },
    ));

    /// Creates the rule of pseudo-random integers from 0 to below `limit`.
    pub fn from_limit(limit: i64) -> Fill {
        Fill(Rule::Range(Number::from_integer(0), Number::from_integer(limit)))
    }

    /// Parses `zeros`, `ones`, `arange`, a number, or `LO..HI` for pseudo-random numbers from LO to
    /// below HI; `None` for other text.
    ///
    /// ```
    /// # use sardonyx::check::Fill;
    /// assert_eq!(Fill::parse("0..10"), Some(Fill::from_limit(10)));
    /// assert_eq!(Fill::parse("1..1"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Fill> {
        Some(match text {
            "zeros" => Fill::ZEROS,
            "ones" => Fill::ONES,
            "arange" => Fill(Rule::Arange),
            _ => Fill(match text.split_once("..") {
                Some((low, high)) => {
                    let (low, high) = (Number::parse(low)?, Number::parse(high)?);
                    (low.float < high.float).then_some(Rule::Range(low, high))?
                }
                None => Rule::Number(Number::parse(text)?),
            }),
        })
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Rule::Number(number) => write!(f, "{}", number.float),
            Rule::Arange => f.write_str("0, 1, 2, …"),
            Rule::Range(low, high) => {
                write!(f, "pseudo-random numbers from {} to below {}", low.float, high.float)
            }
        }
    }
}

/// Options that fill graph inputs with generated values.
///
/// By default floats are drawn from -1 to 1; integers from 0 to 9, or from the valid indices of the
/// table that they index; masks are ones and token types are zeros. Unknown dimensions are 1.
///
/// ```
/// use sardonyx::check::{Fill, FillOptions};
///
/// let options = FillOptions::new().seed(7).dim("batch", 2).fill("past_*", Fill::ZEROS);
/// ```
#[derive(Debug, Clone, Default)]
pub struct FillOptions {
    seed: u64,
    /// Sizes of symbolic dimensions by name.
    dims: Vec<(String, usize)>,
    /// Sizes of dimensions without a name.
    open: Vec<OpenDim>,
    /// Dimensions of inputs by the name of the input.
    shapes: Vec<(String, Vec<usize>)>,
    /// Rules by the name of an input, or by a pattern.
    fills: Vec<(String, Fill)>,
}

/// Size of a dimension of a graph input that has no name in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDim {
    /// Name of the input.
    pub input: String,
    /// Index of the dimension.
    pub axis: usize,
    /// Size of the dimension.
    pub size: usize,
}

impl FillOptions {
    /// Creates the default options.
    pub fn new() -> FillOptions {
        FillOptions::default()
    }

    /// Sets the seed of pseudo-random elements, 0 by default. Equal seeds give equal values.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> FillOptions {
        self.seed = seed;
        self
    }

    /// Sets the size of a symbolic dimension.
    #[must_use]
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> FillOptions {
        self.dims.push((name.into(), size));
        self
    }

    /// Sets the size of a dimension without a name, for an input that is filled.
    #[must_use]
    pub fn open_dim(mut self, input: impl Into<String>, axis: usize, size: usize) -> FillOptions {
        self.open.push(OpenDim { input: input.into(), axis, size });
        self
    }

    /// Sets the dimensions of an input.
    #[must_use]
    pub fn shape(mut self, input: impl Into<String>, dims: impl Into<Vec<usize>>) -> FillOptions {
        self.shapes.push((input.into(), dims.into()));
        self
    }

    /// Sets the rule for the elements of an input, or of all inputs that match a pattern such as
    /// `past_*`. The last rule that matches an input applies.
    #[must_use]
    pub fn fill(mut self, input: impl Into<String>, fill: Fill) -> FillOptions {
        self.fills.push((input.into(), fill));
        self
    }

    /// Returns the sizes of symbolic dimensions, which sessions can fix.
    pub(crate) fn dims(&self) -> &[(String, usize)] {
        &self.dims
    }

    /// Returns the dimensions that [`shape`](FillOptions::shape) gives for an input.
    #[doc(hidden)]
    pub fn find_shape(&self, input: &str) -> Option<&[usize]> {
        let mut shapes = self.shapes.iter().rev();
        shapes.find(|(name, _)| name == input).map(|(_, shape)| shape.as_slice())
    }

    /// Returns the rule that the last matching [`fill`](FillOptions::fill) gives for an input.
    #[doc(hidden)]
    pub fn find_fill(&self, input: &str) -> Option<Fill> {
        let mut fills = self.fills.iter().rev();
        fills.find(|(name, _)| matches_name(name, input)).map(|(_, fill)| *fill)
    }
}

/// Whether the name of an input matches a name or a glob pattern. A pattern also matches its
/// literal text.
pub fn matches_name(pattern: &str, input: &str) -> bool {
    pattern == input || Glob::parse(pattern).is_ok_and(|glob| glob.matches(input))
}

/// Chooser of default elements for inputs that neither a file nor an option gives.
struct DefaultFills<'m> {
    model: &'m Model,
    /// Types of the model's values; `None` until the first integer input needs them.
    types: Option<Inferred>,
}

impl<'m> DefaultFills<'m> {
    fn new(model: &'m Model) -> DefaultFills<'m> {
        DefaultFills { model, types: None }
    }

    /// Returns the default rule for an input with elements of type `elem`: ones for masks, zeros
    /// for token types, valid indices for integers, else numbers from -1 to 1.
    fn choose_fill(&mut self, input: &str, elem: DataType) -> Fill {
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
                _ => Fill::UNIT,
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
pub fn find_input_type(port: &Port) -> Option<&Type> {
    match port.ty()? {
        Type::Optional(inner) => Some(inner),
        ty => Some(ty),
    }
}

/// Sizes of the dimensions of graph inputs that are filled.
#[derive(Debug)]
pub struct Sizes<'a> {
    /// Sizes of symbolic dimensions: set by options, fixed by given inputs, or assumed to be 1.
    known: HashMap<String, usize>,
    /// Sizes of dimensions without a name.
    open: &'a [OpenDim],
    /// Names of the dimensions that are assumed to be 1.
    assumed: Vec<String>,
}

impl<'a> Sizes<'a> {
    /// Collects the sizes of symbolic dimensions that options and given inputs fix.
    pub fn new(options: &'a FillOptions, ports: &[Port], given: &[(String, Value)]) -> Sizes<'a> {
        let mut known: HashMap<String, usize> = options.dims.iter().cloned().collect();
        // A given input fixes its symbolic dimensions for all other inputs.
        for (name, value) in given {
            let shape = ports
                .iter()
                .find(|port| port.name() == name)
                .and_then(Port::ty)
                .and_then(Type::shape);
            if let (Some(shape), Some(tensor)) = (shape, value.as_tensor()) {
                for (dim, size) in shape.iter().zip(tensor.dims()) {
                    known.extend(dim.as_symbol().map(|symbol| (symbol.to_string(), *size)));
                }
            }
        }
        Sizes { known, open: &options.open, assumed: Vec::new() }
    }

    /// Applies the dimensions that options give to the graph input `port`, whose symbolic
    /// dimensions get these sizes in all other inputs too. Fails if the sizes contradict the type
    /// of the input or known sizes.
    fn set_shape(&mut self, port: &Port, given: &[usize]) -> Result<(), Error> {
        let Some(shape) = find_input_type(port).and_then(Type::shape) else { return Ok(()) };
        if shape.len() != given.len() {
            let (given, wanted) = (given.len(), shape.len());
            let what = format!("the number of dimensions is {given} and should be {wanted}");
            return Err(refuse_shape(port, &what));
        }
        for (axis, (dim, size)) in shape.iter().zip(given).enumerate() {
            match (self.resolve_dim(dim), dim.as_symbol()) {
                (Some(known), _) if known != *size => {
                    let name = dim.as_symbol().map(|name| format!(" ({name})"));
                    let name = name.unwrap_or_default();
                    let what = format!("dimension {axis}{name} is {size} and should be {known}");
                    return Err(refuse_shape(port, &what));
                }
                (None, Some(symbol)) => {
                    self.known.insert(symbol.to_string(), *size);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the sizes of `shape`, a shape of the graph input `port`. Unknown dimensions are
    /// assumed to be 1.
    pub fn resolve_shape(&mut self, port: &Port, shape: &Shape) -> Vec<usize> {
        let mut dims = Vec::new();
        for (axis, dim) in shape.iter().enumerate() {
            let set = self.open.iter().rev();
            let mut set = set.filter(|set| set.input == port.name() && set.axis == axis);
            if let Some(set) = set.next() {
                dims.push(set.size);
                continue;
            }
            for symbol in dim.symbols() {
                // All symbols of an expression get a size, so that its value is known.
                if !self.known.contains_key(&symbol) {
                    self.known.insert(symbol.clone(), 1);
                    self.assumed.push(symbol);
                }
            }
            dims.push(self.resolve_dim(dim).unwrap_or_else(|| {
                let name = if dim.is_unknown() {
                    format!("{}[{axis}]", port.name())
                } else {
                    dim.to_string()
                };
                if !self.assumed.contains(&name) {
                    self.assumed.push(name);
                }
                1
            }));
        }
        dims
    }

    /// Returns the size of a dimension; `None` if the size of a symbol in it is unknown.
    fn resolve_dim(&self, dim: &Dim) -> Option<usize> {
        dim.substitute(&|name: &str| Some(Dim::Known(i64::try_from(*self.known.get(name)?).ok()?)))
            .size()
    }

    /// Refuses sizes that break an equality of dimensions which a node requires. A run with such
    /// sizes would fail inside of the model, with an error that does not name the inputs.
    fn check_relations(&self, model: &Model) -> Result<(), Error> {
        if self.known.is_empty() {
            return Ok(());
        }
        for relation in model.infer(&InferOptions::new()).equalities(model) {
            let (Some(left), Some(right)) =
                (self.resolve_dim(&relation.left), self.resolve_dim(&relation.right))
            else {
                continue;
            };
            if left == right {
                continue;
            }
            let names = relation.left.symbols().into_iter().chain(relation.right.symbols());
            let mut sizes: Vec<String> = names
                .filter_map(|name| Some(format!("{name} = {}", self.known.get(&name)?)))
                .collect();
            sizes.sort_unstable();
            sizes.dedup();
            let message = format!(
                "the sizes of the inputs do not match: {} requires {} = {}, but {}",
                relation.node,
                relation.left,
                relation.right,
                sizes.join(", ")
            );
            return Err(Error::new(ErrorKind::Input, message).with_help(
                "set matching sizes with --set; `sardonyx infer --explain` lists the requirements",
            ));
        }
        Ok(())
    }

    /// Returns the names of the dimensions that are assumed to be 1.
    pub fn list_assumed(&self) -> &[String] {
        &self.assumed
    }
}

/// Returns the error for given dimensions that do not fit the graph input `port`.
fn refuse_shape(port: &Port, what: &str) -> Error {
    Error::new(ErrorKind::Input, format!("the given shape does not fit the input '{port}': {what}"))
}

/// Values that fill graph inputs, with the assumptions behind them.
#[derive(Debug)]
pub struct Filled {
    /// Values by the names of inputs.
    pub values: Vec<(String, Value)>,
    /// Names of the dimensions that are assumed to be 1.
    pub assumed: Vec<String>,
    /// Rules by the names of inputs.
    pub rules: Vec<(String, Fill)>,
}

impl Model {
    /// Makes values for the graph inputs that are not given and are required or named in
    /// `options`. A sequence gets one item.
    pub(crate) fn fill_inputs(
        &self,
        ports: &[Port],
        given: &[(String, Value)],
        options: &FillOptions,
    ) -> Result<Filled, Error> {
        let (planned, assumed) = plan_inputs(self, ports, given, options)?;
        let rules = planned.iter().map(|planned| (planned.name.to_string(), planned.fill));
        let rules = rules.collect();
        let values = planned.into_iter().map(|planned| planned.make_value(options.seed));
        Ok(Filled { values: values.collect::<Result<_, Error>>()?, assumed, rules })
    }
}

/// Chooses dimensions and rules for the inputs that are not given. Returns the names of dimensions
/// that are assumed to be 1 as well.
fn plan_inputs<'p>(
    model: &Model,
    ports: &'p [Port],
    given: &[(String, Value)],
    options: &FillOptions,
) -> Result<(Vec<Planned<'p>>, Vec<String>), Error> {
    let mut sizes = Sizes::new(options, ports, given);
    let ports = ports.iter().filter(|port| {
        let name = port.name();
        !given.iter().any(|(given, _)| given == name)
            && (port.is_required()
                || options.find_shape(name).is_some()
                || options.find_fill(name).is_some())
    });
    let ports: Vec<&Port> = ports.collect();
    for port in &ports {
        if let Some(shape) = options.find_shape(port.name()) {
            sizes.set_shape(port, shape)?;
        }
    }
    let mut fitting = DefaultFills::new(model);
    let mut planned = Vec::new();
    for port in ports {
        let (item, is_sequence) = match find_input_type(port) {
            Some(Type::Sequence(item)) => (Some(&**item), true),
            ty => (ty, false),
        };
        // An input that is a sparse tensor accepts a dense one.
        let tensor = match item {
            Some(Type::Tensor(tensor) | Type::SparseTensor(tensor)) => Some(tensor),
            _ => None,
        };
        let elem = tensor.and_then(|tensor| tensor.elem);
        let dims = match (options.find_shape(port.name()), tensor) {
            (Some(dims), _) => Some(dims.to_vec()),
            (None, Some(tensor)) => {
                tensor.shape.as_ref().map(|shape| sizes.resolve_shape(port, shape))
            }
            (None, None) => None,
        };
        let Some((elem, dims)) = elem.zip(dims) else {
            let (what, help) = match elem {
                Some(_) => {
                    ("rank", "give a value for the input, or its sizes (--shape NAME=SIZES)")
                }
                None => ("element type", "give a value for the input"),
            };
            let message = format!("the input '{port}' cannot be filled: its {what} is not known");
            return Err(Error::new(ErrorKind::Input, message).with_help(help));
        };
        let fill = options
            .find_fill(port.name())
            .unwrap_or_else(|| fitting.choose_fill(port.name(), elem));
        planned.push(Planned { name: port.name(), elem, dims, fill, is_sequence });
        if is_sequence {
            sizes.assumed.push(format!("the length of {}", port.name()));
        }
    }
    sizes.check_relations(model)?;
    Ok((planned, sizes.assumed))
}

/// Graph input that will be filled, with all that determines its value.
struct Planned<'a> {
    name: &'a str,
    elem: DataType,
    dims: Vec<usize>,
    fill: Fill,
    is_sequence: bool,
}

impl Planned<'_> {
    /// Makes the value of the graph input, and returns it with the name of the input.
    fn make_value(self, seed: u64) -> Result<(String, Value), Error> {
        let Planned { name, elem, dims, fill, is_sequence } = self;
        let tensor = make_tensor(SplitMix64::new(seed, name), elem, &dims, fill)
            .map_err(|error| error.with_place(format!("input '{name}'")))?;
        let value = if is_sequence {
            Value::Sequence(Sequence::from_tensors(elem, [tensor]).map_err(refuse_tensor)?)
        } else {
            Value::Tensor(tensor)
        };
        Ok((name.to_string(), value))
    }
}

/// Makes a tensor with the elements that `fill` describes. Pseudo-random elements are drawn from
/// `stream`.
pub(crate) fn make_tensor(
    stream: SplitMix64,
    elem: DataType,
    dims: &[usize],
    Fill(fill): Fill,
) -> Result<Tensor, Error> {
    let count = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    let Some(count) = count else {
        let message = format!("a tensor of shape {dims:?} has too many elements");
        return Err(Error::new(ErrorKind::Run, message));
    };
    if elem == DataType::Bool && matches!(fill, Rule::Range(..)) {
        let bools = collect_numbers(stream.map(|u| u >> 63 != 0), count)?;
        return Tensor::from_bools(dims, &bools).map_err(refuse_tensor);
    }
    let is_whole = elem.is_integer() || matches!(elem, DataType::Bool | DataType::String);
    let made = if is_whole {
        let numbers = match fill {
            Rule::Number(number) => {
                collect_numbers(std::iter::repeat(to_whole_number(number, elem)?), count)?
            }
            Rule::Arange => collect_numbers(0i64.., count)?,
            Rule::Range(low, high) => {
                let low = to_whole_number(low, elem)?;
                let span = to_whole_number(high, elem)?.abs_diff(low);
                collect_numbers(stream.map(|u| low.wrapping_add_unsigned((u >> 32) % span)), count)?
            }
        };
        if elem == DataType::String {
            let strings: StringArray = numbers.iter().map(i64::to_string).collect();
            return Tensor::from_strings(dims, strings).map_err(refuse_tensor);
        }
        Tensor::from_vec(dims, numbers).map_err(refuse_tensor)?
    } else {
        let numbers = match fill {
            Rule::Number(number) => collect_numbers(std::iter::repeat(number.float), count)?,
            Rule::Arange => collect_numbers((0u64..).map(|index| index as f64), count)?,
            Rule::Range(low, high) => {
                let (low, span) = (low.float, high.float - low.float);
                let numbers = stream.map(|u| {
                    let share = (u >> 40) as f64 / (1u64 << 24) as f64;
                    low + span * share
                });
                collect_numbers(numbers, count)?
            }
        };
        Tensor::from_vec(dims, numbers).map_err(refuse_tensor)?
    };
    cast(&made, elem, CastOptions::default()).map_err(refuse_tensor)
}

/// Converts the error about a tensor that cannot be made.
fn refuse_tensor(error: TensorError) -> Error {
    Error::new(ErrorKind::Input, error.to_string()).with_source(error)
}

/// Returns `number` as an integer for elements of the type `elem`. Fails if it is not whole.
fn to_whole_number(number: Number, elem: DataType) -> Result<i64, Error> {
    number.whole.ok_or_else(|| {
        let message = format!("{} is not a whole number, as {elem} needs", number.float);
        Error::new(ErrorKind::Input, message)
    })
}

/// Collects the first `count` numbers of `stream`, or fails if there is not enough memory.
fn collect_numbers<T>(stream: impl Iterator<Item = T>, count: usize) -> Result<Vec<T>, Error> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| {
        Error::new(ErrorKind::Run, format!("not enough memory for {count} elements"))
    })?;
    out.extend(stream.take(count));
    Ok(out)
}

/// Pseudo-random number generator SplitMix64, with a separate stream for each seed and name.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the stream of pseudo-random numbers of `seed` for the graph input `name`.
    pub fn new(seed: u64, name: &str) -> SplitMix64 {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        SplitMix64(seed ^ hash)
    }

    /// Skips the next `numbers` numbers of the stream in constant time.
    #[must_use]
    pub fn skip_numbers(self, numbers: u64) -> SplitMix64 {
        SplitMix64(self.0.wrapping_add(INCREMENT.wrapping_mul(numbers)))
    }
}

/// Increment of the generator's state for each number.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

impl Iterator for SplitMix64 {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(INCREMENT);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_matches_the_reference() {
        // First outputs of the reference implementation for seed 1234567.
        let stream: Vec<u64> = SplitMix64(1234567).take(3).collect();
        assert_eq!(stream, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
        let rest: Vec<u64> = SplitMix64(1234567).skip_numbers(2).take(1).collect();
        assert_eq!(rest, stream[2..]);
    }

    fn fill_tensor(name: &str, elem: DataType, dims: &[usize], fill: &str) -> Tensor {
        let fill = Fill::parse(fill).unwrap();
        make_tensor(SplitMix64::new(7, name), elem, dims, fill).unwrap()
    }

    #[test]
    fn every_type_can_be_filled() {
        for elem in DataType::ALL {
            let fills = ["0..2", "zeros", "ones", "arange"];
            for fill in fills {
                let tensor = fill_tensor("x", elem, &[1, 2], fill);
                assert_eq!((tensor.data_type(), tensor.dims()), (elem, &[1usize, 2][..]));
            }
        }
        let floats = fill_tensor("x", DataType::Float, &[1000], "-1..1");
        let floats = floats.as_slice::<f32>().unwrap();
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(floats.iter().sum::<f32>().abs() < 100.0);
        let four = |name| fill_tensor(name, DataType::Float, &[4], "-1..1");
        assert_eq!(four("x"), four("x"));
        assert_ne!(four("x"), four("y"));
        assert!(
            make_tensor(SplitMix64::new(7, "x"), DataType::Float, &[usize::MAX, 2], Fill::UNIT)
                .is_err()
        );
    }

    #[test]
    fn fills_have_the_requested_values() {
        let integers =
            |fill| fill_tensor("x", DataType::Int32, &[4], fill).to_vec::<i32>().unwrap();
        assert_eq!(integers("zeros"), [0; 4]);
        assert_eq!(integers("-3"), [-3; 4]);
        assert_eq!(integers("arange"), [0, 1, 2, 3]);
        assert!(integers("5..7").iter().all(|x| (5..7).contains(x)));
        // The first outputs of the generator, mod 10.
        let stream: Vec<i32> =
            SplitMix64::new(7, "x").take(4).map(|u| ((u >> 32) % 10) as i32).collect();
        assert_eq!(integers("0..10"), stream);
        let halves = fill_tensor("x", DataType::Float, &[2], "0.5");
        assert_eq!(halves.as_slice::<f32>().unwrap(), [0.5, 0.5]);
        let half = Fill::parse("0.5").unwrap();
        let error = make_tensor(SplitMix64::new(7, "x"), DataType::Int64, &[2], half).unwrap_err();
        assert!(error.message().contains("0.5 is not a whole number"));
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
