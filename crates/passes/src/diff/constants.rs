//! Pairs of inputs and constants of two graphs, and the distance between values.

use std::hash::{DefaultHasher, Hash, Hasher};

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, SparseTensorProto, TensorProto, ValueId};
use sardonyx_tensor::{DataType, Tensor, Tolerance};

use super::matching::Matching;
use super::queues::Queues;
use super::side::Side;
use super::{DiffOptions, GraphPair};
use crate::pages::give_back_pages;

/// Number of elements to compare, or bytes to hash, at a time. A multiple of 8, so that elements of
/// a few bits fill their bytes.
const PIECE: usize = 1 << 20;

/// A constant that only one of the graphs has, or that differs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConstantChange {
    /// Name and type in the first graph, such as `float[64, 3, 7, 7] conv1.weight`.
    pub before: Option<String>,
    /// Name and type in the second graph.
    pub after: Option<String>,
    /// Name in the second graph, or in the first if only that has it.
    pub name: String,
    /// Whether its type, shape or values differ.
    pub content: TensorChange,
}

/// Difference between two tensors.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum TensorChange {
    /// The tensors are equal.
    None,
    /// Element type or shape differ.
    Type,
    /// Values differ.
    Values(Spread),
    /// The values cannot be read, so nothing is known.
    Unknown(String),
}

impl TensorChange {
    /// Whether the tensors are known to be equal.
    pub fn is_none(&self) -> bool {
        *self == TensorChange::None
    }
}

/// Distance between the elements of two tensors.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub struct Spread {
    /// Number of elements that differ.
    pub count: usize,
    /// Number of elements.
    pub total: usize,
    /// Largest absolute difference; infinite where a difference is not a number, and for texts.
    pub largest: f64,
    /// Mean absolute difference of all elements.
    pub mean: f64,
}

impl Matching<'_, '_> {
    /// Pairs the inputs of two graphs: by name, and the others by position.
    pub(super) fn pair_inputs(&mut self, graphs: GraphPair) {
        let (old, new) = (self.before, self.after);
        let inputs = |side: &Side<'_>, graph: GraphId| -> Vec<Option<ValueId>> {
            side.model.graph(graph).inputs.iter().map(|info| info.value).collect()
        };
        let (before, after) = (inputs(old, graphs.before), inputs(new, graphs.after));
        self.pair_names(before.iter().flatten().copied(), after.iter().flatten().copied());
        for (before, after) in before.into_iter().zip(after) {
            if let (Some(before), Some(after)) = (before, after) {
                self.pair_values(before, after);
            }
        }
    }

    /// Pairs the constants of two graphs: by name, then by content, and the others by type and
    /// shape in the order of the files.
    pub(super) fn pair_constants(&mut self, graphs: GraphPair) {
        let old = list_constants(self.before, graphs.before);
        let new = list_constants(self.after, graphs.after);
        self.pair_names(old.iter().map(|found| found.value), new.iter().map(|found| found.value));
        for with_values in [true, false] {
            let is_left = |constant: &Constant<'_>| self.value_after(constant.value).is_none();
            let old: Vec<Constant<'_>> = old.iter().copied().filter(is_left).collect();
            let is_left = |constant: &Constant<'_>| self.value_before(constant.value).is_none();
            let new: Vec<Constant<'_>> = new.iter().copied().filter(is_left).collect();
            if old.is_empty() || new.is_empty() {
                return;
            }
            // Reads only constants with a partner of their type and shape.
            let kinds: HashSet<u64> = new.iter().map(Constant::hash_kind).collect();
            let mut by_key = Queues::with_capacity(old.len());
            for constant in old.iter().filter(|constant| kinds.contains(&constant.hash_kind())) {
                let key = constant.hash(self.before, with_values);
                by_key.add(key, constant.value);
            }
            let kinds: HashSet<u64> = old.iter().map(Constant::hash_kind).collect();
            for constant in new.iter().filter(|constant| kinds.contains(&constant.hash_kind())) {
                match by_key.take(&constant.hash(self.after, with_values)) {
                    Some(partner) if with_values => self.pair_values(partner, constant.value),
                    Some(partner) => self.pair_loosely(partner, constant.value),
                    None => {}
                }
            }
        }
    }

    /// Compares the constants of two graphs.
    pub(super) fn compare_constants(
        &self,
        graphs: GraphPair,
        options: DiffOptions,
    ) -> Vec<ConstantChange> {
        let old = list_constants(self.before, graphs.before);
        let new = list_constants(self.after, graphs.after);
        let partners: HashMap<ValueId, Constant<'_>> =
            old.iter().map(|constant| (constant.value, *constant)).collect();
        let mut changes = Vec::new();
        for constant in &new {
            let partner = self.value_before(constant.value);
            let partner = partner.and_then(|value| partners.get(&value));
            let content = partner.map_or(TensorChange::None, |partner| {
                self.compare_tensors(partner.tensors, constant.tensors, options)
            });
            let is_named_equally = partner.is_some_and(|partner| {
                self.before.name(partner.value) == self.after.name(constant.value)
            });
            if !is_named_equally || !content.is_none() {
                changes.push(ConstantChange {
                    before: partner.map(|partner| partner.format(self.before)),
                    after: Some(constant.format(self.after)),
                    name: self.after.show(constant.value),
                    content,
                });
            }
        }
        let kept: HashSet<ValueId> = new.iter().map(|constant| constant.value).collect();
        for constant in &old {
            let partner = self.value_after(constant.value);
            if !partner.is_some_and(|value| kept.contains(&value)) {
                changes.push(ConstantChange {
                    before: Some(constant.format(self.before)),
                    after: None,
                    name: self.before.show(constant.value),
                    content: TensorChange::None,
                });
            }
        }
        changes
    }

    /// Compares two stored tensors: type and shape, then values.
    pub(super) fn compare_tensors(
        &self,
        old: Tensors<'_>,
        new: Tensors<'_>,
        options: DiffOptions,
    ) -> TensorChange {
        let (before, after) = (self.before, self.after);
        let is_same_kind = match (old, new) {
            (Tensors::Dense(_), Tensors::Dense(_)) => true,
            (Tensors::Sparse(old), Tensors::Sparse(new)) => old.dims == new.dims,
            _ => false,
        };
        if !is_same_kind {
            return TensorChange::Type;
        }
        let mut found = TensorChange::None;
        for (old, new) in old.list().into_iter().zip(new.list()) {
            let (Some(old), Some(new)) = (old, new) else {
                if old.is_some() != new.is_some() {
                    return TensorChange::Type;
                }
                continue;
            };
            if (old.data_type, &old.dims) != (new.data_type, &new.dims) {
                return TensorChange::Type;
            }
            if !options.values {
                continue;
            }
            let change = match (
                before.model.tensor(old, before.data),
                after.model.tensor(new, after.data),
            ) {
                (Ok(old), Ok(new)) => {
                    measure(&old, &new).map_or(TensorChange::None, TensorChange::Values)
                }
                (Err(error), _) | (_, Err(error)) => TensorChange::Unknown(error.to_string()),
            };
            if found.is_none() {
                found = change;
            }
        }
        found
    }
}

/// An initializer, dense or sparse.
#[derive(Clone, Copy)]
struct Constant<'m> {
    value: ValueId,
    tensors: Tensors<'m>,
}

/// The tensors that a constant is stored in.
#[derive(Clone, Copy)]
pub(super) enum Tensors<'m> {
    Dense(&'m TensorProto),
    Sparse(&'m SparseTensorProto),
}

fn list_constants<'m>(side: &Side<'m>, graph: GraphId) -> Vec<Constant<'m>> {
    let graph = side.model.graph(graph);
    let dense = graph.initializers.iter().filter_map(|found| {
        Some(Constant { value: found.value?, tensors: Tensors::Dense(&found.tensor) })
    });
    let sparse = graph.sparse_initializers.iter().filter_map(|found| {
        Some(Constant { value: found.value?, tensors: Tensors::Sparse(&found.tensor) })
    });
    dense.chain(sparse).collect()
}

impl Constant<'_> {
    /// Hashes type and shape.
    fn hash_kind(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self.tensors {
            Tensors::Dense(tensor) => (tensor.data_type, &tensor.dims).hash(&mut hasher),
            Tensors::Sparse(tensor) => {
                let values = tensor.values.as_ref().map(|values| values.data_type);
                ("sparse", values, &tensor.dims).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// Hashes type and shape, and values if `with_values` asks for them and they can be read.
    fn hash(&self, side: &Side<'_>, with_values: bool) -> u64 {
        if !with_values {
            return self.hash_kind();
        }
        let mut hasher = DefaultHasher::new();
        self.hash_kind().hash(&mut hasher);
        for tensor in self.tensors.list().into_iter().flatten() {
            if let Ok(tensor) = side.model.tensor(tensor, side.data) {
                hash_elements(&tensor, &mut hasher);
            }
        }
        hasher.finish()
    }

    /// Formats the type, shape and name for people.
    fn format(&self, side: &Side<'_>) -> String {
        let name = side.show(self.value);
        match self.tensors {
            Tensors::Dense(tensor) => {
                format!("{} {name}", format_type(tensor.data_type, &tensor.dims))
            }
            Tensors::Sparse(tensor) => {
                let values = tensor.values.as_ref().and_then(|values| values.data_type);
                format!("sparse {} {name}", format_type(values, &tensor.dims))
            }
        }
    }
}

impl<'m> Tensors<'m> {
    /// Lists the dense tensors: one, or values and indices.
    fn list(self) -> [Option<&'m TensorProto>; 2] {
        match self {
            Tensors::Dense(tensor) => [Some(tensor), None],
            Tensors::Sparse(tensor) => [tensor.values.as_ref(), tensor.indices.as_ref()],
        }
    }
}

/// Formats the element type and shape for people.
fn format_type(data_type: Option<i32>, dims: &[i64]) -> String {
    let number = data_type.unwrap_or(0);
    let ty = DataType::from_number(number).map_or(format!("?{number}"), |ty| ty.name().to_string());
    if dims.is_empty() {
        return ty;
    }
    let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
    format!("{ty}[{}]", dims.join(", "))
}

/// Hashes the elements of a tensor, a piece at a time, and gives the pages of each piece back.
fn hash_elements(tensor: &Tensor, hasher: &mut DefaultHasher) {
    match (tensor.strings(), tensor.buffer()) {
        (Some(strings), _) => strings.iter().for_each(|text| text.hash(hasher)),
        (None, Some(buffer)) => {
            for start in (0..buffer.len()).step_by(PIECE) {
                let Ok(piece) = buffer.slice(start..buffer.len().min(start + PIECE)) else {
                    continue;
                };
                hasher.write(piece.as_slice());
                piece.give_back_pages();
            }
        }
        (None, None) => tensor.bytes().hash(hasher),
    }
}

/// Measures the distance between two tensors of one type and shape; `None` if their bits are equal.
fn measure(before: &Tensor, after: &Tensor) -> Option<Spread> {
    let total = before.len();
    let mut spread = Spread { total, ..Spread::default() };
    let mut differs = false;
    let mut add = |before: &Tensor, after: &Tensor| {
        if before.bit_eq(after) {
            return;
        }
        differs = true;
        // Types and shapes are equal.
        if let Ok(distance) = after.distance(before, Tolerance::EXACT) {
            spread.count += distance.count;
            spread.largest = spread.largest.max(distance.absolute);
            spread.mean += distance.mean * distance.total as f64 / total as f64;
        }
    };
    match (before.buffer(), after.buffer(), before.data_type().bits()) {
        (Some(old), Some(new), Some(bits)) if total > PIECE => {
            for start in (0..total).step_by(PIECE) {
                let len = PIECE.min(total - start);
                let bytes = start * bits / 8..(start * bits / 8) + (len * bits).div_ceil(8);
                let piece = |buffer: &sardonyx_tensor::Buffer| {
                    let bytes = buffer.slice(bytes.clone()).ok()?;
                    Tensor::from_buffer(before.data_type(), [len], bytes).ok()
                };
                if let (Some(old), Some(new)) = (piece(old), piece(new)) {
                    add(&old, &new);
                    give_back_pages(&old);
                    give_back_pages(&new);
                }
            }
        }
        _ => {
            add(before, after);
            give_back_pages(before);
            give_back_pages(after);
        }
    }
    differs.then_some(spread)
}
