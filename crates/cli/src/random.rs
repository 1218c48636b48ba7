//! Filling inputs with numbers that look random and are the same everywhere.
//!
//! Element i of an input is made from the i-th output of SplitMix64 (Steele, Lea, Flood 2014),
//! started with SEED xor the FNV-1a hash of the input's name: so an input does not depend on the
//! others, nor on the machine. Of the 64 bits u,
//! - floats from a to below b are a + (b - a) (u >> 40) / 2^24, then rounded to narrower types; a
//!   is -1 and b is 1 unless something else is asked for,
//! - integers from a to below b are a + (u >> 32) mod (b - a); what a and b are is in `filling`,
//! - truth values are the highest bit, strings an integer as text.

use std::collections::HashMap;

use sardonyx::infer::InferOptions;
use sardonyx::tool::{CastOptions, cast};
use sardonyx::value::{Sequence, StringArray};
use sardonyx::{DataType, Dim, ErrorKind, Model, Port, Shape, Tensor, Type, Value};

use crate::failure::{Code, Failure};
use crate::filling::{self, DefaultFills, Fill, Number, input_type};
use crate::session::{self, OpenSize};
use crate::terminal::Terminal;

/// The sizes of inputs that are filled.
pub(crate) struct Sizes<'a> {
    /// By name: what was set, what inputs that are given say, and what is taken as 1.
    known: HashMap<String, usize>,
    open: &'a [OpenSize],
    /// What is open and taken as 1.
    assumed: Vec<String>,
}

impl<'a> Sizes<'a> {
    /// From the command line and from inputs that are given.
    pub(crate) fn new(
        set: &'a session::Sizes,
        ports: &[Port],
        given: &[(String, Value)],
    ) -> Sizes<'a> {
        let mut known: HashMap<String, usize> = set.fixed.iter().cloned().collect();
        // What the given inputs say about named dims holds for the others too.
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

    /// Takes the sizes that are given for an input, and what they say about names, which holds for
    /// other inputs too.
    fn take(&mut self, port: &Port, given: &[usize]) -> Result<(), Failure> {
        let Some(shape) = input_type(port).and_then(Type::shape) else { return Ok(()) };
        let wrong = |what: String| {
            let failure = Failure::new(format!("--shape does not fit the input '{port}': {what}"));
            Err(failure.code(ErrorKind::Input))
        };
        if shape.len() != given.len() {
            let (given, wanted) = (given.len(), shape.len());
            return wrong(format!("the number of dimensions is {given} and should be {wanted}"));
        }
        for (axis, (dim, size)) in shape.iter().zip(given).enumerate() {
            match (self.value(dim), dim.as_symbol()) {
                (Some(known), _) if known != *size => {
                    let name = dim.as_symbol().map(|name| format!(" ({name})"));
                    let name = name.unwrap_or_default();
                    return wrong(format!(
                        "dimension {axis}{name} is {size} and should be {known}"
                    ));
                }
                (None, Some(symbol)) => {
                    self.known.insert(symbol.to_string(), *size);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The sizes of a shape, 1 for what is open.
    pub(crate) fn of(&mut self, port: &Port, shape: &Shape) -> Vec<usize> {
        let mut dims = Vec::new();
        for (axis, dim) in shape.iter().enumerate() {
            let set = self.open.iter().rev();
            let mut set = set.filter(|set| set.input == port.name() && set.axis == axis);
            if let Some(set) = set.next() {
                dims.push(set.size);
                continue;
            }
            for symbol in dim.symbols() {
                // All that an expression needs, so that it has the size that follows from them.
                if !self.known.contains_key(&symbol) {
                    self.known.insert(symbol.clone(), 1);
                    self.assumed.push(symbol);
                }
            }
            dims.push(self.value(dim).unwrap_or_else(|| {
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

    /// The number that a size stands for.
    fn value(&self, dim: &Dim) -> Option<usize> {
        let number = |name: &str| Some(Dim::Known(i64::try_from(*self.known.get(name)?).ok()?));
        dim.substitute(&number).size()
    }

    /// Refuses sizes that contradict what the nodes of the model demand of them, which would fail
    /// somewhere inside.
    fn demand_relations(&self, model: &Model) -> Result<(), Failure> {
        if self.known.is_empty() {
            return Ok(());
        }
        for relation in model.infer(&InferOptions::new()).equalities(model) {
            let (Some(left), Some(right)) =
                (self.value(&relation.left), self.value(&relation.right))
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

    /// Says what was taken as 1.
    pub(crate) fn note(&self, terminal: &Terminal) {
        if !self.assumed.is_empty() {
            terminal.note(&format!(
                "these dimensions are unknown and set to 1 (see --set): {}",
                self.assumed.join(", ")
            ));
        }
    }
}

/// Values for the inputs that are not given and are required or named in `wanted`: a sequence gets
/// one item. What is taken as 1 is said, if there is a terminal to say it on.
pub(crate) fn fill(
    wanted: &filling::Args,
    model: &Model,
    set: &session::Sizes,
    ports: &[Port],
    given: &[(String, Value)],
    terminal: Option<&Terminal>,
) -> Result<Vec<(String, Value)>, Failure> {
    let mut sizes = Sizes::new(set, ports, given);
    let is_wanted = |port: &&Port| {
        let is_named =
            || wanted.shape_of(port.name()).is_some() || wanted.fill_of(port.name()).is_some();
        !given.iter().any(|(name, _)| name == port.name()) && (port.is_required() || is_named())
    };
    let ports: Vec<&Port> = ports.iter().filter(is_wanted).collect();
    for port in &ports {
        if let Some(shape) = wanted.shape_of(port.name()) {
            sizes.take(port, shape)?;
        }
    }
    let mut fitting = DefaultFills::new(model);
    let mut planned = Vec::new();
    for port in ports {
        let (item, is_sequence) = match input_type(port) {
            Some(Type::Sequence(item)) => (Some(&**item), true),
            ty => (ty, false),
        };
        // The whole of a sparse tensor is taken as well.
        let tensor = match item {
            Some(Type::Tensor(tensor) | Type::SparseTensor(tensor)) => Some(tensor),
            _ => None,
        };
        let elem = tensor.and_then(|tensor| tensor.elem);
        let dims = match (wanted.shape_of(port.name()), tensor) {
            (Some(dims), _) => Some(dims.to_vec()),
            (None, Some(tensor)) => tensor.shape.as_ref().map(|shape| sizes.of(port, shape)),
            (None, None) => None,
        };
        let Some((elem, dims)) = elem.zip(dims) else {
            let (what, help) = match elem {
                Some(_) => ("rank", "give it as NAME=FILE, or its sizes with --shape NAME=SIZES"),
                None => ("element type", "give it as NAME=FILE"),
            };
            let message = format!("the input '{port}' cannot be filled: its {what} is not known");
            return Err(Failure::new(message).code(ErrorKind::Input).help(help));
        };
        let fill = wanted.fill_of(port.name()).unwrap_or_else(|| fitting.fill(port.name(), elem));
        planned.push(Planned { name: port.name(), elem, dims, fill, is_sequence });
        if is_sequence {
            sizes.assumed.push(format!("the length of {}", port.name()));
        }
    }
    if let Some(terminal) = terminal {
        sizes.note(terminal);
        for Planned { name, fill, .. } in &planned {
            terminal.detail(&format!("the input '{name}' is filled with {fill}"));
        }
    }
    sizes.demand_relations(model)?;
    let seed = wanted.seed().unwrap_or(0);
    planned.into_iter().map(|planned| planned.value(seed)).collect()
}

/// An input that will be filled.
struct Planned<'a> {
    name: &'a str,
    elem: DataType,
    dims: Vec<usize>,
    fill: Fill,
    is_sequence: bool,
}

impl Planned<'_> {
    fn value(self, seed: u64) -> Result<(String, Value), Failure> {
        let Planned { name, elem, dims, fill, is_sequence } = self;
        let tensor = tensor((seed, name), elem, &dims, fill)
            .map_err(|failure| failure.at(format!("input '{name}'")))?;
        let value = if is_sequence {
            Value::Sequence(Sequence::from_tensors(elem, [tensor])?)
        } else {
            Value::Tensor(tensor)
        };
        Ok((name.to_string(), value))
    }
}

/// A tensor of these elements.
fn tensor(
    (seed, name): (u64, &str),
    elem: DataType,
    dims: &[usize],
    fill: Fill,
) -> Result<Tensor, Failure> {
    let count = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    let Some(count) = count else {
        return Err(Failure::new(format!("{dims:?} has too many elements")).code(Code::Memory));
    };
    let stream = SplitMix64::new(seed, name);
    if elem == DataType::Bool && matches!(fill, Fill::Range(..)) {
        let bools = collect(stream.map(|u| u >> 63 != 0), count)?;
        return Ok(Tensor::from_bools(dims, &bools)?);
    }
    let is_whole = elem.is_integer() || matches!(elem, DataType::Bool | DataType::String);
    let made = if is_whole {
        let whole = |number: Number| {
            number.whole.ok_or_else(|| {
                let message = format!("{} is not a whole number, as {elem} needs", number.float);
                Failure::new(message).code(ErrorKind::Input)
            })
        };
        let numbers = match fill {
            Fill::Number(number) => collect(std::iter::repeat(whole(number)?), count)?,
            Fill::Arange => collect(0i64.., count)?,
            Fill::Range(low, high) => {
                let (low, span) = (whole(low)?, whole(high)?.abs_diff(whole(low)?));
                collect(stream.map(|u| low.wrapping_add_unsigned((u >> 32) % span)), count)?
            }
        };
        if elem == DataType::String {
            let strings: StringArray = numbers.iter().map(i64::to_string).collect();
            return Ok(Tensor::from_strings(dims, strings)?);
        }
        Tensor::from_vec(dims, numbers)?
    } else {
        let numbers = match fill {
            Fill::Number(number) => collect(std::iter::repeat(number.float), count)?,
            Fill::Arange => collect((0u64..).map(|index| index as f64), count)?,
            Fill::Range(low, high) => {
                let (low, span) = (low.float, high.float - low.float);
                let share = |u: u64| (u >> 40) as f64 / (1u64 << 24) as f64;
                collect(stream.map(|u| low + span * share(u)), count)?
            }
        };
        Tensor::from_vec(dims, numbers)?
    };
    Ok(cast(&made, elem, CastOptions::default())?)
}

fn collect<T>(stream: impl Iterator<Item = T>, count: usize) -> Result<Vec<T>, Failure> {
    let mut out = Vec::new();
    out.try_reserve_exact(count).map_err(|_| {
        Failure::new(format!("not enough memory for {count} elements")).code(Code::Memory)
    })?;
    out.extend(stream.take(count));
    Ok(out)
}

/// The generator, whose stream is another one for each seed and name.
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64, name: &str) -> SplitMix64 {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        SplitMix64(seed ^ hash)
    }

    /// The stream after so many of its numbers, which are not computed.
    pub(crate) fn skipping(self, numbers: u64) -> SplitMix64 {
        SplitMix64(self.0.wrapping_add(INCREMENT.wrapping_mul(numbers)))
    }
}

/// Increment of the state with each number.
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
    fn the_generator_is_the_published_one() {
        // First outputs for seed 1234567, as in the reference implementation.
        let stream: Vec<u64> = SplitMix64(1234567).take(3).collect();
        assert_eq!(stream, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
        let rest: Vec<u64> = SplitMix64(1234567).skipping(2).take(1).collect();
        assert_eq!(rest, stream[2..]);
    }

    const UNIT: Fill =
        Fill::Range(Number { float: -1.0, whole: Some(-1) }, Number { float: 1.0, whole: Some(1) });

    fn filled(name: &str, elem: DataType, dims: &[usize], fill: &str) -> Tensor {
        let fill = Fill::parse(fill).unwrap();
        tensor((7, name), elem, dims, fill).unwrap()
    }

    #[test]
    fn every_type_can_be_filled() {
        for elem in DataType::ALL {
            let fills = ["0..2", "zeros", "ones", "arange"];
            for fill in fills {
                let tensor = filled("x", elem, &[1, 2], fill);
                assert_eq!((tensor.data_type(), tensor.dims()), (elem, &[1usize, 2][..]));
            }
        }
        let floats = filled("x", DataType::Float, &[1000], "-1..1");
        let floats = floats.as_slice::<f32>().unwrap();
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(floats.iter().sum::<f32>().abs() < 100.0);
        let four = |name| filled(name, DataType::Float, &[4], "-1..1");
        assert_eq!(four("x"), four("x"));
        assert_ne!(four("x"), four("y"));
        assert!(tensor((7, "x"), DataType::Float, &[usize::MAX, 2], UNIT).is_err());
    }

    #[test]
    fn fills_are_what_they_say() {
        let integers = |fill| filled("x", DataType::Int32, &[4], fill).to_vec::<i32>().unwrap();
        assert_eq!(integers("zeros"), [0; 4]);
        assert_eq!(integers("-3"), [-3; 4]);
        assert_eq!(integers("arange"), [0, 1, 2, 3]);
        assert!(integers("5..7").iter().all(|x| (5..7).contains(x)));
        // The first outputs of the generator, mod 10.
        let stream: Vec<i32> =
            SplitMix64::new(7, "x").take(4).map(|u| ((u >> 32) % 10) as i32).collect();
        assert_eq!(integers("0..10"), stream);
        let halves = filled("x", DataType::Float, &[2], "0.5");
        assert_eq!(halves.as_slice::<f32>().unwrap(), [0.5, 0.5]);
        let half = Fill::parse("0.5").unwrap();
        let failure = tensor((7, "x"), DataType::Int64, &[2], half).unwrap_err();
        assert!(failure.message().contains("0.5 is not a whole number"));
    }
}
