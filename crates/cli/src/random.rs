//! Filling inputs with pseudo-random numbers, which are the same on every machine.
//!
//! Element i of an input is made from the i-th output u (64 bits) of SplitMix64 (Steele, Lea, Flood
//! 2014), seeded with SEED xor the FNV-1a hash of the input's name. So the values of an input do
//! not depend on other inputs.
//! - Floats from a to below b are a + (b - a) (u >> 40) / 2^24, then rounded to narrower types. By
//!   default a is -1 and b is 1.
//! - Integers from a to below b are a + (u >> 32) mod (b - a). `filling.rs` chooses a and b.
//! - Truth values are the highest bit of u, strings are an integer as text.

use std::collections::HashMap;

use sardonyx::infer::InferOptions;
use sardonyx::tool::{CastOptions, cast};
use sardonyx::value::{Sequence, StringArray};
use sardonyx::{DataType, Dim, ErrorKind, Model, Port, Shape, Tensor, Type, Value};

use crate::failure::{Code, Failure};
use crate::filling::{self, DefaultFills, Fill, Number, find_input_type};
use crate::session;
use crate::symbols::OpenSize;
use crate::terminal::Terminal;

/// Sizes of the dimensions of graph inputs that are filled.
pub(crate) struct Sizes<'a> {
    /// Sizes of symbolic dimensions: set by options, fixed by given inputs, or assumed to be 1.
    known: HashMap<String, usize>,
    /// Sizes of unnamed dimensions that `--set INPUT[AXIS]=SIZE` gives.
    open: &'a [OpenSize],
    /// Names of the dimensions that are assumed to be 1.
    assumed: Vec<String>,
}

impl<'a> Sizes<'a> {
    /// Collects the sizes of symbolic dimensions that `--set` and the given inputs fix.
    pub(crate) fn new(
        set: &'a session::Sizes,
        ports: &[Port],
        given: &[(String, Value)],
    ) -> Sizes<'a> {
        let mut known: HashMap<String, usize> = set.fixed.iter().cloned().collect();
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
        Sizes { known, open: &set.open, assumed: Vec::new() }
    }

    /// Applies the sizes of `--shape` to the graph input `port`, whose symbolic dimensions get
    /// these sizes in all other inputs too. Fails if the sizes contradict the type of the input or
    /// known sizes.
    fn set_shape(&mut self, port: &Port, given: &[usize]) -> Result<(), Failure> {
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
    pub(crate) fn resolve_shape(&mut self, port: &Port, shape: &Shape) -> Vec<usize> {
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
    fn check_relations(&self, model: &Model) -> Result<(), Failure> {
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
            return Err(Failure::new(format!(
                "the sizes of the inputs do not match: {} requires {} = {}, but {}",
                relation.node,
                relation.left,
                relation.right,
                sizes.join(", ")
            ))
            .code(ErrorKind::Input)
            .help(
                "set matching sizes with --set; `sardonyx infer --explain` lists the requirements",
            ));
        }
        Ok(())
    }

    /// Notes on the terminal which dimensions are assumed to be 1.
    pub(crate) fn note_assumed(&self, terminal: &Terminal) {
        if !self.assumed.is_empty() {
            terminal.note(&format!(
                "unknown dimensions are set to 1 (see --set): {}",
                self.assumed.join(", ")
            ));
        }
    }
}

/// Returns the failure for a value of `--shape` that does not fit the graph input `port`.
fn refuse_shape(port: &Port, what: &str) -> Failure {
    Failure::new(format!("--shape does not fit the input '{port}': {what}")).code(ErrorKind::Input)
}

/// Makes values for the graph inputs that are not given and are required or named in `wanted`. A
/// sequence gets one item. Assumed sizes are noted on the terminal, if there is one.
pub(crate) fn fill_inputs(
    wanted: &filling::Args,
    model: &Model,
    set: &session::Sizes,
    ports: &[Port],
    given: &[(String, Value)],
    terminal: Option<&Terminal>,
) -> Result<Vec<(String, Value)>, Failure> {
    let mut sizes = Sizes::new(set, ports, given);
    let ports = ports.iter().filter(|port| {
        let name = port.name();
        !given.iter().any(|(given, _)| given == name)
            && (port.is_required()
                || wanted.find_shape(name).is_some()
                || wanted.find_fill(name).is_some())
    });
    let ports: Vec<&Port> = ports.collect();
    for port in &ports {
        if let Some(shape) = wanted.find_shape(port.name()) {
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
        let dims = match (wanted.find_shape(port.name()), tensor) {
            (Some(dims), _) => Some(dims.to_vec()),
            (None, Some(tensor)) => {
                tensor.shape.as_ref().map(|shape| sizes.resolve_shape(port, shape))
            }
            (None, None) => None,
        };
        let Some((elem, dims)) = elem.zip(dims) else {
            let (what, help) = match elem {
                Some(_) => {
                    ("rank", "give the input as NAME=FILE, or its sizes with --shape NAME=SIZES")
                }
                None => ("element type", "give the input as NAME=FILE"),
            };
            let message = format!("the input '{port}' cannot be filled: its {what} is not known");
            return Err(Failure::new(message).code(ErrorKind::Input).help(help));
        };
        let fill =
            wanted.find_fill(port.name()).unwrap_or_else(|| fitting.choose_fill(port.name(), elem));
        planned.push(Planned { name: port.name(), elem, dims, fill, is_sequence });
        if is_sequence {
            sizes.assumed.push(format!("the length of {}", port.name()));
        }
    }
    if let Some(terminal) = terminal {
        sizes.note_assumed(terminal);
        for Planned { name, fill, .. } in &planned {
            terminal.detail(&format!("the input '{name}' is filled with {fill}"));
        }
    }
    sizes.check_relations(model)?;
    let seed = wanted.seed().unwrap_or(0);
    planned.into_iter().map(|planned| planned.make_value(seed)).collect()
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
    fn make_value(self, seed: u64) -> Result<(String, Value), Failure> {
        let Planned { name, elem, dims, fill, is_sequence } = self;
        let tensor = make_tensor(SplitMix64::new(seed, name), elem, &dims, fill)
            .map_err(|failure| failure.at(format!("input '{name}'")))?;
        let value = if is_sequence {
            Value::Sequence(Sequence::from_tensors(elem, [tensor])?)
        } else {
            Value::Tensor(tensor)
        };
        Ok((name.to_string(), value))
    }
}

/// Makes a tensor with the elements that `fill` describes. Pseudo-random elements are drawn from
/// `stream`.
fn make_tensor(
    stream: SplitMix64,
    elem: DataType,
    dims: &[usize],
    fill: Fill,
) -> Result<Tensor, Failure> {
    let count = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    let Some(count) = count else {
        return Err(Failure::new(format!("a tensor of shape {dims:?} has too many elements"))
            .code(Code::Memory));
    };
    if elem == DataType::Bool && matches!(fill, Fill::Range(..)) {
        let bools = collect_numbers(stream.map(|u| u >> 63 != 0), count)?;
        return Ok(Tensor::from_bools(dims, &bools)?);
    }
    let is_whole = elem.is_integer() || matches!(elem, DataType::Bool | DataType::String);
    let made = if is_whole {
        let numbers = match fill {
            Fill::Number(number) => {
                collect_numbers(std::iter::repeat(to_whole_number(number, elem)?), count)?
            }
            Fill::Arange => collect_numbers(0i64.., count)?,
            Fill::Range(low, high) => {
                let low = to_whole_number(low, elem)?;
                let span = to_whole_number(high, elem)?.abs_diff(low);
                collect_numbers(stream.map(|u| low.wrapping_add_unsigned((u >> 32) % span)), count)?
            }
        };
        if elem == DataType::String {
            let strings: StringArray = numbers.iter().map(i64::to_string).collect();
            return Ok(Tensor::from_strings(dims, strings)?);
        }
        Tensor::from_vec(dims, numbers)?
    } else {
        let numbers = match fill {
            Fill::Number(number) => collect_numbers(std::iter::repeat(number.float), count)?,
            Fill::Arange => collect_numbers((0u64..).map(|index| index as f64), count)?,
            Fill::Range(low, high) => {
                let (low, span) = (low.float, high.float - low.float);
                let numbers = stream.map(|u| {
                    let share = (u >> 40) as f64 / (1u64 << 24) as f64;
                    low + span * share
                });
                collect_numbers(numbers, count)?
            }
        };
        Tensor::from_vec(dims, numbers)?
    };
    Ok(cast(&made, elem, CastOptions::default())?)
}

/// Returns `number` as an integer for elements of the type `elem`. Fails if it is not whole.
fn to_whole_number(number: Number, elem: DataType) -> Result<i64, Failure> {
    number.whole.ok_or_else(|| {
        let message = format!("{} is not a whole number, as {elem} needs", number.float);
        Failure::new(message).code(ErrorKind::Input)
    })
}

/// Collects the first `count` numbers of `stream`, or fails if there is not enough memory.
fn collect_numbers<T>(stream: impl Iterator<Item = T>, count: usize) -> Result<Vec<T>, Failure> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| {
        Failure::new(format!("not enough memory for {count} elements")).code(Code::Memory)
    })?;
    out.extend(stream.take(count));
    Ok(out)
}

/// Pseudo-random number generator SplitMix64, with a separate stream for each seed and name.
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the stream of pseudo-random numbers of `seed` for the graph input `name`.
    pub(crate) fn new(seed: u64, name: &str) -> SplitMix64 {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        SplitMix64(seed ^ hash)
    }

    /// Skips the next `numbers` numbers of the stream in constant time.
    pub(crate) fn skip_numbers(self, numbers: u64) -> SplitMix64 {
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

    const UNIT: Fill =
        Fill::Range(Number { float: -1.0, whole: Some(-1) }, Number { float: 1.0, whole: Some(1) });

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
            make_tensor(SplitMix64::new(7, "x"), DataType::Float, &[usize::MAX, 2], UNIT).is_err()
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
        let failure =
            make_tensor(SplitMix64::new(7, "x"), DataType::Int64, &[2], half).unwrap_err();
        assert!(failure.message().contains("0.5 is not a whole number"));
    }
}
