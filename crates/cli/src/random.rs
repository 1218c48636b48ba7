//! Filling inputs with numbers that look random and are the same everywhere.
//!
//! Element i of an input is made from the i-th output of SplitMix64 (Steele, Lea, Flood 2014),
//! started with SEED xor the FNV-1a hash of the input's name: so an input does not depend on the
//! others, nor on the machine. Of the 64 bits u,
//! - floats are 2 (u >> 40) / 2^24 - 1, evenly from -1 to below 1 (then rounded to narrower types),
//! - integers are (u >> 32) mod 10, mod 2 for types of 2 bits,
//! - truth values are the highest bit, strings the digit as text.

use std::collections::HashMap;

use sardonyx::infer::Options;
use sardonyx::{
    CastOptions, DataType, Dim, ErrorKind, Model, Port, Sequence, Shape, StringArray, Tensor, Type,
    Value, cast,
};

use crate::failure::{Code, Failure};
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
        for relation in model.infer(&Options::new()).equalities(model) {
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

/// Values for the required inputs that are not given: a sequence gets one item. What is taken as 1
/// is said, if there is a terminal to say it on.
pub(crate) fn fill(
    seed: u64,
    model: &Model,
    set: &session::Sizes,
    ports: &[Port],
    given: &[(String, Value)],
    terminal: Option<&Terminal>,
) -> Result<Vec<(String, Value)>, Failure> {
    let mut sizes = Sizes::new(set, ports, given);
    let mut shapes = Vec::new();
    for port in ports.iter().filter(|port| port.is_required()) {
        if given.iter().any(|(name, _)| name == port.name()) {
            continue;
        }
        let (item, is_sequence) = match port.ty() {
            Some(Type::Sequence(item)) => (Some(&**item), true),
            ty => (ty, false),
        };
        let known = match item {
            // The whole of a sparse tensor is taken as well.
            Some(Type::Tensor(tensor) | Type::SparseTensor(tensor)) => {
                tensor.elem.zip(tensor.shape.as_ref())
            }
            _ => None,
        };
        let Some((elem, shape)) = known else {
            return Err(Failure::new(format!(
                "the input '{port}' cannot be filled: its type or rank is unknown"
            ))
            .code(ErrorKind::Input)
            .help("pass it as NAME=FILE"));
        };
        shapes.push((port.name(), elem, sizes.of(port, shape), is_sequence));
        if is_sequence {
            sizes.assumed.push(format!("the length of {}", port.name()));
        }
    }
    if let Some(terminal) = terminal {
        sizes.note(terminal);
    }
    sizes.demand_relations(model)?;
    let value = |(name, elem, dims, is_sequence): (&str, DataType, Vec<usize>, bool)| {
        let tensor = tensor(seed, name, elem, &dims)
            .map_err(|failure| failure.at(format!("input '{name}'")))?;
        let value = if is_sequence {
            Value::Sequence(Sequence::from_tensors(elem, [tensor])?)
        } else {
            Value::Tensor(tensor)
        };
        Ok((name.to_string(), value))
    };
    shapes.into_iter().map(value).collect()
}

/// A tensor of pseudo-random elements.
fn tensor(seed: u64, name: &str, elem: DataType, dims: &[usize]) -> Result<Tensor, Failure> {
    let count = dims.iter().try_fold(1usize, |product, dim| product.checked_mul(*dim));
    let Some(count) = count else {
        return Err(Failure::new(format!("{dims:?} has too many elements")).code(Code::Memory));
    };
    let stream = SplitMix64::new(seed, name);
    let made = match elem {
        DataType::String => {
            let digits = collect(stream.map(|u| (u >> 32) % 10), count)?;
            let strings: StringArray = digits.iter().map(u64::to_string).collect();
            return Ok(Tensor::from_strings(dims, strings)?);
        }
        DataType::Bool => {
            let bools = collect(stream.map(|u| u >> 63 != 0), count)?;
            return Ok(Tensor::from_bools(dims, &bools)?);
        }
        _ if elem.is_integer() => {
            let range = if elem.bits() == Some(2) { 2 } else { 10 };
            // int4 ends at 7.
            let range = if elem == DataType::Int4 { 8 } else { range };
            Tensor::from_vec(dims, collect(stream.map(|u| ((u >> 32) % range) as i64), count)?)?
        }
        _ => Tensor::from_vec(
            dims,
            collect(stream.map(|u| (u >> 40) as f32 / (1u64 << 23) as f32 - 1.0), count)?,
        )?,
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
}

impl Iterator for SplitMix64 {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
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
    }

    #[test]
    fn every_type_can_be_filled() {
        for elem in DataType::ALL {
            let tensor = tensor(7, "x", elem, &[3, 5]).unwrap();
            assert_eq!((tensor.data_type(), tensor.dims()), (elem, &[3usize, 5][..]));
        }
        let floats = tensor(7, "x", DataType::Float, &[1000]).unwrap();
        let floats = floats.as_slice::<f32>().unwrap();
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)));
        assert!(floats.iter().sum::<f32>().abs() < 100.0);
        assert_eq!(
            tensor(7, "x", DataType::Float, &[4]).unwrap(),
            tensor(7, "x", DataType::Float, &[4]).unwrap()
        );
        assert_ne!(
            tensor(7, "x", DataType::Float, &[4]).unwrap(),
            tensor(7, "y", DataType::Float, &[4]).unwrap()
        );
        assert!(tensor(7, "x", DataType::Float, &[usize::MAX, 2]).is_err());
    }
}
