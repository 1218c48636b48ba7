//! Sets of types that a type variable may take, small enough to be written in a `static`.

use sardonyx_model::{TensorType, Type, normalize_domain};
use sardonyx_tensor::DataType;

/// Set of types: for each way to wrap a tensor, one bit per element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeSet {
    /// Whether every type is in the set, regardless of the other fields.
    any: bool,
    tensor: u32,
    sparse: u32,
    sequence: u32,
    optional: u32,
    optional_sequence: u32,
    /// Types that occur rarely, spelled out, such as `map(int64, tensor(float))`.
    other: &'static [&'static str],
}

/// Returns a bit mask of element types, by their numbers.
const fn bits(elems: &[DataType]) -> u32 {
    let mut bits = 0;
    let mut index = 0;
    while index < elems.len() {
        bits |= 1 << elems[index].number();
        index += 1;
    }
    bits
}

impl TypeSet {
    const NONE: TypeSet = TypeSet {
        any: false,
        tensor: 0,
        sparse: 0,
        sequence: 0,
        optional: 0,
        optional_sequence: 0,
        other: &[],
    };

    /// All types.
    pub const ANY: TypeSet = TypeSet { any: true, ..TypeSet::NONE };

    /// Makes a set of dense tensors of these element types.
    pub const fn tensors(elems: &[DataType]) -> TypeSet {
        TypeSet { tensor: bits(elems), ..TypeSet::NONE }
    }

    /// Makes a set of types that are spelled out.
    pub const fn spelled(other: &'static [&'static str]) -> TypeSet {
        TypeSet { other, ..TypeSet::NONE }
    }

    /// Returns the union of two sets. At most one of them may have types that are spelled out.
    pub const fn and(self, more: TypeSet) -> TypeSet {
        TypeSet {
            any: self.any || more.any,
            tensor: self.tensor | more.tensor,
            sparse: self.sparse | more.sparse,
            sequence: self.sequence | more.sequence,
            optional: self.optional | more.optional,
            optional_sequence: self.optional_sequence | more.optional_sequence,
            other: match (self.other.is_empty(), more.other.is_empty()) {
                (_, true) => self.other,
                (true, false) => more.other,
                (false, false) => {
                    panic!("only one of the sets may have types that are spelled out")
                }
            },
        }
    }

    /// Returns the set without tensors of these element types.
    pub const fn except(self, elems: &[DataType]) -> TypeSet {
        TypeSet { tensor: self.tensor & !bits(elems), ..self }
    }

    /// Returns the sequences of the tensors of this set.
    pub(crate) const fn as_sequences(self) -> TypeSet {
        TypeSet { sequence: self.tensor, ..TypeSet::NONE }
    }

    /// Returns the optionals of the tensors and sequences of this set.
    pub(crate) const fn as_optionals(self) -> TypeSet {
        TypeSet { optional: self.tensor, optional_sequence: self.sequence, ..TypeSet::NONE }
    }

    /// Whether a type belongs to the set. A type that is not known well enough to decide does.
    pub fn allows(&self, ty: &Type) -> bool {
        let has = |bits: u32, elem: Option<DataType>| {
            elem.map_or(bits != 0, |elem| bits & (1 << elem.number()) != 0)
        };
        if self.any {
            return true;
        }
        let fits = match ty {
            Type::Tensor(tensor) => has(self.tensor, tensor.elem),
            Type::SparseTensor(tensor) => has(self.sparse, tensor.elem),
            Type::Sequence(inner) => {
                matches!(&**inner, Type::Tensor(tensor) if has(self.sequence, tensor.elem))
            }
            Type::Optional(inner) => match &**inner {
                Type::Tensor(tensor) => has(self.optional, tensor.elem),
                Type::Sequence(inner) => {
                    matches!(&**inner, Type::Tensor(tensor) if has(self.optional_sequence, tensor.elem))
                }
                _ => false,
            },
            Type::Map(..) | Type::Opaque { .. } => false,
        };
        fits || self.other.iter().any(|spelled| {
            // The standard omits `tensor(...)` around the values of maps.
            read_type(spelled).is_some_and(|spelled| spell(&spelled) == spell(ty))
        })
    }

    /// Lists the types for a message: the first few of them and the number of others.
    pub fn words(&self) -> String {
        /// Types that are named.
        const NAMED: usize = 8;
        let names = self.names();
        match names.len() {
            _ if self.any => "any type".to_string(),
            0..=NAMED => names.join(", "),
            count => format!("{} and {} others", names[..NAMED].join(", "), count - NAMED),
        }
    }

    /// Returns the only type of the set, if it has just one.
    pub fn only(&self) -> Option<Type> {
        match &self.names()[..] {
            [only] => read_type(only),
            _ => None,
        }
    }

    /// Returns the names of the types, such as `tensor(float)`, sorted.
    pub fn names(&self) -> Vec<String> {
        let forms = [
            (self.tensor, "tensor(", ")"),
            (self.sparse, "sparse_tensor(", ")"),
            (self.sequence, "seq(tensor(", "))"),
            (self.optional, "optional(tensor(", "))"),
            (self.optional_sequence, "optional(seq(tensor(", ")))"),
        ];
        let mut names: Vec<String> = self.other.iter().map(|name| name.to_string()).collect();
        for (bits, open, close) in forms {
            let elems = DataType::ALL.into_iter().filter(|elem| bits & (1 << elem.number()) != 0);
            names.extend(elems.map(|elem| format!("{open}{}{close}", elem.name())));
        }
        names.sort();
        names
    }

    /// Returns the element types of the dense tensors of the set.
    pub fn tensor_elems(&self) -> impl Iterator<Item = DataType> {
        let bits = self.tensor;
        DataType::ALL.into_iter().filter(move |elem| bits & (1 << elem.number()) != 0)
    }
}

/// Error for a string that is not the name of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownType(
    /// The string.
    pub String,
);

impl std::fmt::Display for UnknownType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = sardonyx_proto::shown(self.0.as_bytes());
        write!(f, "'{shown}' is not a type, such as tensor(float)")
    }
}

impl std::error::Error for UnknownType {}

impl TypeSet {
    /// Makes a set of the types with these names, such as `tensor(float)`, `seq(tensor(int64))`,
    /// `map(string, float)`. A bare element type, such as `int32`, means a tensor.
    ///
    /// Types that do not fit into the bits of the set are never freed; see
    /// [`intern`](crate::intern).
    ///
    /// # Errors
    ///
    /// The first name that does not name a type.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<TypeSet, UnknownType> {
        let mut set = TypeSet::NONE;
        let mut other: Vec<String> = Vec::new();
        for name in names {
            let ty = read_type(name).ok_or_else(|| UnknownType(name.to_string()))?;
            match set.bits_of(&ty) {
                Some((bits, elem)) => *bits |= 1 << elem.number(),
                None => other.push(spell(&ty)),
            }
        }
        other.sort_unstable();
        other.dedup();
        let other: Vec<&str> = other.iter().map(String::as_str).collect();
        set.other = crate::intern::texts(&other);
        Ok(set)
    }

    /// Returns the bit mask that holds a type and the element type of its bit, if it has one.
    fn bits_of(&mut self, ty: &Type) -> Option<(&mut u32, DataType)> {
        let (bits, tensor) = match ty {
            Type::Tensor(tensor) => (&mut self.tensor, tensor),
            Type::SparseTensor(tensor) => (&mut self.sparse, tensor),
            Type::Sequence(inner) => match &**inner {
                Type::Tensor(tensor) => (&mut self.sequence, tensor),
                _ => return None,
            },
            Type::Optional(inner) => match &**inner {
                Type::Tensor(tensor) => (&mut self.optional, tensor),
                Type::Sequence(inner) => match &**inner {
                    Type::Tensor(tensor) => (&mut self.optional_sequence, tensor),
                    _ => return None,
                },
                _ => return None,
            },
            Type::Map(..) | Type::Opaque { .. } => return None,
        };
        Some((bits, tensor.elem?))
    }
}

/// Parses a type such as `seq(tensor(float))`. A bare element type means a tensor.
pub fn read_type(name: &str) -> Option<Type> {
    // Each level has brackets, so this also bounds the depth.
    const LONGEST: usize = 512;
    if name.len() > LONGEST {
        return None;
    }
    let tensor =
        |elem: &str| Some(TensorType { elem: Some(DataType::from_name(elem)?), shape: None });
    let name = name.trim();
    if let Some(elem) = strip_brackets(name, "tensor") {
        return tensor(elem).map(Type::Tensor);
    }
    if let Some(elem) = strip_brackets(name, "sparse_tensor") {
        return tensor(elem).map(Type::SparseTensor);
    }
    if let Some(inner) = strip_brackets(name, "seq") {
        return read_type(inner).map(|inner| Type::Sequence(Box::new(inner)));
    }
    if let Some(inner) = strip_brackets(name, "optional") {
        return read_type(inner).map(|inner| Type::Optional(Box::new(inner)));
    }
    if let Some(inner) = strip_brackets(name, "map") {
        let (key, value) = inner.split_once(',')?;
        let key = DataType::from_name(key.trim())?;
        return read_type(value).map(|value| Type::Map(key, Box::new(value)));
    }
    if let Some(inner) = strip_brackets(name, "opaque") {
        let (domain, name) = inner.split_once(',').unwrap_or(("", inner));
        let plain = !inner.is_empty() && !inner.contains(['(', ')']);
        return plain.then(|| Type::Opaque {
            domain: normalize_domain(domain.trim()).to_string(),
            name: name.trim().to_string(),
        });
    }
    tensor(name).map(Type::Tensor)
}

/// Returns the text in the brackets of `word(...)`.
fn strip_brackets<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.trim().strip_prefix(word)?.trim_start();
    Some(rest.strip_prefix('(')?.strip_suffix(')')?.trim())
}

/// Returns a type without its shape, as schemas spell it.
pub fn spell(ty: &Type) -> String {
    let elem = |elem: Option<DataType>| elem.map_or("?", DataType::name);
    match ty {
        Type::Tensor(tensor) => format!("tensor({})", elem(tensor.elem)),
        Type::SparseTensor(tensor) => format!("sparse_tensor({})", elem(tensor.elem)),
        Type::Sequence(inner) => format!("seq({})", spell(inner)),
        Type::Map(key, inner) => format!("map({}, {})", key.name(), spell(inner)),
        Type::Optional(inner) => format!("optional({})", spell(inner)),
        Type::Opaque { domain, name } => format!("opaque({domain},{name})"),
    }
}

/// Sets that many operators share, named by their contents and the IR version since which models
/// can hold them.
pub(crate) mod sets {
    use super::TypeSet;
    use sardonyx_tensor::DataType::*;

    /// `float16`, `float`, `double`.
    pub(crate) const FLOATS: TypeSet = TypeSet::tensors(&[Float16, Float, Double]);
    /// Floats with `bfloat16`.
    pub(crate) const FLOATS_IR4: TypeSet = FLOATS.and(TypeSet::tensors(&[Bfloat16]));
    /// Signed integers of 8 to 64 bits.
    pub(crate) const SIGNED: TypeSet = TypeSet::tensors(&[Int8, Int16, Int32, Int64]);
    /// Unsigned integers of 8 to 64 bits.
    pub(crate) const UNSIGNED: TypeSet = TypeSet::tensors(&[Uint8, Uint16, Uint32, Uint64]);
    /// Integers of 8 to 64 bits.
    pub(crate) const INTEGERS: TypeSet = SIGNED.and(UNSIGNED);
    /// Integers and floats.
    pub(crate) const NUMERIC: TypeSet = INTEGERS.and(FLOATS);
    /// Integers and floats with `bfloat16`.
    pub(crate) const NUMERIC_IR4: TypeSet = INTEGERS.and(FLOATS_IR4);
    /// 32- and 64-bit integers and floats, the limits of arithmetic in early versions.
    pub(crate) const HIGH_PRECISION: TypeSet =
        FLOATS.and(TypeSet::tensors(&[Int32, Int64, Uint32, Uint64]));
    /// 32- and 64-bit integers and floats with `bfloat16`.
    pub(crate) const HIGH_PRECISION_IR4: TypeSet =
        HIGH_PRECISION.and(TypeSet::tensors(&[Bfloat16]));
    /// All element types of the first IR versions.
    pub(crate) const ALL: TypeSet =
        NUMERIC.and(TypeSet::tensors(&[String, Bool, Complex64, Complex128]));
    /// Element types since IR version 4, which has `bfloat16`.
    pub(crate) const ALL_IR4: TypeSet = ALL.and(TypeSet::tensors(&[Bfloat16]));
    /// Element types since IR version 9, which has the first four 8-bit floats.
    pub(crate) const ALL_IR9: TypeSet =
        ALL_IR4.and(TypeSet::tensors(&[Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz]));
    /// Element types since IR version 10, which has 4-bit integers.
    pub(crate) const ALL_IR10: TypeSet = ALL_IR9.and(TypeSet::tensors(&[Uint4, Int4]));
    /// Element types since IR version 11, which has the 4-bit float.
    pub(crate) const ALL_IR11: TypeSet = ALL_IR10.and(TypeSet::tensors(&[Float4e2m1]));
    /// Element types since IR version 12, which has the power-of-two scale.
    pub(crate) const ALL_IR12: TypeSet = ALL_IR11.and(TypeSet::tensors(&[Float8e8m0]));
    /// Element types since IR version 13, which has 2-bit integers.
    pub(crate) const ALL_IR13: TypeSet = ALL_IR12.and(TypeSet::tensors(&[Uint2, Int2]));
    /// Element types since IR version 14, which has 6-bit floats.
    pub(crate) const ALL_IR14: TypeSet = ALL_IR13.and(TypeSet::tensors(&[Float6e2m3, Float6e3m2]));
}

#[cfg(test)]
mod tests {
    use super::TypeSet;

    #[test]
    fn sets_are_read_by_the_names_that_they_print() {
        let odd = [
            ("int32", "tensor(int32)"),
            ("seq(float)", "seq(tensor(float))"),
            ("map(int64,float)", "map(int64, tensor(float))"),
            ("opaque(domain, name)", "opaque(domain,name)"),
            ("opaque(name)", "opaque(,name)"),
            ("seq(map(string, tensor(float)))", "seq(map(string, tensor(float)))"),
            ("optional( sparse_tensor(double) )", "optional(sparse_tensor(double))"),
        ];
        for (name, canonical) in odd {
            assert_eq!(TypeSet::parse([name]).unwrap().names(), [canonical]);
        }
        for no_type in [
            "",
            "T",
            "float)",
            "tensor(T)",
            "tensor(float",
            "tensor()",
            "map(float)",
            "map(T, float)",
            "seq(T)",
            "opaque()",
            "seq(seq(real))",
            "tensors(float)",
        ] {
            assert!(TypeSet::parse([no_type]).is_err(), "{no_type}");
        }
        let deep = "seq(".repeat(100_000) + "float" + &")".repeat(100_000);
        assert!(TypeSet::parse([deep.as_str()]).is_err());
    }
}
