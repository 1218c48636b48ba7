//! Constants: reading them, and computing ahead of time whatever depends on nothing else.
//!
//! What is computed ahead of time is chosen by its size, before it is computed. Small values are
//! computed at once. Large ones are computed when they are packed or kept, one after the other, and
//! dropped as soon as nothing else wants them; of a constant that is one value throughout there is
//! only that value until something wants all of it.

#[cfg(test)]
mod tests;

use hashbrown::{HashMap, HashSet};

use sardonyx_kernels::{Exec, Pool};
use sardonyx_model::{ConstantError, ExternalData, Id, NodeAttributes, NodeId, Producer, ValueId};
use sardonyx_ops::operators::{MATMUL, TRANSPOSE};
use sardonyx_ops::{AttrValue, Attributes, Determinism, Known, OpDef};
use sardonyx_passes::{Inference, Resolved, place_of_node};
use sardonyx_tensor::{DataType, Dims, Sparse, Tensor, Value, shape};
use smallvec::SmallVec;

use crate::account::{Account, Refused};
use crate::error::{CompileError, RunError};
use crate::kernel::{BindError, Call, Elements, Operand, Target, Weight};
use crate::lower::Lowering;
use crate::plan::sized;
use crate::program::Op;
use crate::select::Selected;

/// A sparse constant that stands for more elements than this, and for more than [`DENSE_RATIO`]
/// times those it stores, is a few bytes made to take all memory. Kernels want the whole tensor.
const DENSE_ELEMENTS: usize = 1 << 28;
const DENSE_RATIO: usize = 1000;
/// Elements from which on the transpose of a constant is not made.
const WORTH_PACKING: usize = 1 << 14;
/// Bytes up to which a value is computed at once and kept.
const SMALL: usize = 64 << 10;
/// Bytes of an input from which on what is computed of it waits: it may have to be copied.
const LARGE_INPUT: usize = 1 << 20;
/// A value may be as many times as large as what the file stores of it: `Cast`, `DequantizeLinear`,
/// `Transpose` and their like need that.
const GROWTH: usize = 8;
/// All such values together may be as many times as large as what the file stores: each may become
/// several others on its way.
const GROWTH_OF_ALL: usize = 32;
/// Bytes that all other values may have together.
const OTHERS: usize = 64 << 20;

/// The values that are known before anything runs.
#[derive(Default)]
pub(crate) struct Constants {
    /// Those that are there.
    tensors: HashMap<ValueId, Tensor>,
    /// Those that can be made.
    later: HashMap<ValueId, Later>,
    /// How many bytes of the file a value is made of.
    stored: HashMap<ValueId, usize>,
    /// Bytes that values may still have: those that are no more than [`GROWTH`] times as large as
    /// what they are made of, and all others.
    grown_left: usize,
    others_left: usize,
}

/// A constant that is made when it is wanted.
struct Later {
    data_type: DataType,
    dims: Dims,
    bytes: usize,
    how: How,
    /// Whether its bytes are taken in the account.
    charged: bool,
    /// How many nodes still want it.
    wanted: usize,
}

/// How a constant is made.
enum How {
    /// By running the node.
    Run(NodeId),
    /// From one element, which all others are like. The node is also among those that remain.
    Fill(Tensor),
    /// From the elements that are not zero.
    Sparse(Box<Sparse>),
}

/// What making constants needs.
pub(crate) struct Maker<'a> {
    pub(crate) lowering: &'a Lowering<'a>,
    pub(crate) pool: &'a Pool,
}

impl Maker<'_> {
    fn account(&self) -> &Account {
        self.lowering.weights.account
    }
}

impl Constants {
    /// Reads the initializers that something reads. Raw values are shared with the file, not
    /// copied.
    pub(crate) fn read(
        resolved: &Resolved,
        external: &dyn ExternalData,
        account: &Account,
    ) -> Result<Self, CompileError> {
        let mut constants = Constants::default();
        constants.read_initializers(resolved, external)?;
        let model = resolved.model();
        let graphs = resolved.graphs().iter();
        for initializer in graphs.flat_map(|graph| &model.graph(*graph).sparse_initializers) {
            let Some(value) = initializer.value.filter(|value| model.is_read(*value)) else {
                continue;
            };
            if let Producer::SparseInitializer(_) = model.value(value).producer {
                let sparse = model
                    .sparse_tensor(&initializer.tensor, external)
                    .map_err(CompileError::Constant)?;
                let error = |what: String| {
                    let name = model.display(Some(model.value(value).name)).into_owned();
                    CompileError::Constant(ConstantError { name, what })
                };
                let elems = sparse.dims().iter().product::<usize>();
                let stored = sparse.values().len();
                if elems > DENSE_ELEMENTS && elems / DENSE_RATIO > stored {
                    return Err(error(format!(
                        "it stores {stored} values and stands for {elems}, which is refused"
                    )));
                }
                let data_type = sparse.values().data_type();
                let bytes = data_type.storage_bytes(elems);
                let Some(bytes) = bytes.filter(|bytes| *bytes > SMALL) else {
                    let tensor = sparse.to_dense().map_err(|e| error(e.to_string()))?;
                    constants.tensors.insert(value, tensor);
                    continue;
                };
                account.charge(bytes).map_err(|e| error(e.to_string()))?;
                let later = Later {
                    data_type,
                    dims: sparse.dims().into(),
                    bytes,
                    charged: true,
                    wanted: 0,
                    how: How::Sparse(Box::new(sparse)),
                };
                constants.later.insert(value, later);
            }
        }
        Ok(constants)
    }

    /// Reads the initializers that something reads and that are not there yet.
    pub(crate) fn read_initializers(
        &mut self,
        resolved: &Resolved,
        external: &dyn ExternalData,
    ) -> Result<(), CompileError> {
        let model = resolved.model();
        let graphs = resolved.graphs().iter();
        for initializer in graphs.flat_map(|graph| &model.graph(*graph).initializers) {
            let read = |value: &ValueId| model.is_read(*value) && self.get(*value).is_none();
            let Some(value) = initializer.value.filter(read) else {
                continue;
            };
            if let Producer::Initializer(_) = model.value(value).producer {
                let tensor =
                    model.tensor(&initializer.tensor, external).map_err(CompileError::Constant)?;
                self.insert_stored(value, tensor);
            }
        }
        Ok(())
    }

    /// Adds a value that the file stores.
    fn insert_stored(&mut self, value: ValueId, tensor: Tensor) {
        self.stored.insert(value, tensor.held_bytes());
        self.tensors.insert(value, tensor);
    }

    /// A constant that is there.
    pub(crate) fn get(&self, value: ValueId) -> Option<&Tensor> {
        self.tensors.get(&value)
    }

    /// Whether a value is a constant, there or not.
    pub(crate) fn contains(&self, value: ValueId) -> bool {
        self.tensors.contains_key(&value) || self.later.contains_key(&value)
    }

    /// Type and dimensions of a constant, there or not.
    pub(crate) fn outline(&self, value: ValueId) -> Option<(DataType, &[usize])> {
        if let Some(tensor) = self.get(value) {
            return Some((tensor.data_type(), tensor.dims()));
        }
        let later = self.later.get(&value)?;
        Some((later.data_type, &later.dims))
    }

    /// Bytes of a constant, there or not.
    pub(crate) fn bytes_of(&self, value: ValueId) -> usize {
        match (self.get(value), self.later.get(&value)) {
            (Some(tensor), _) => tensor.bytes().len(),
            (None, Some(later)) => later.bytes,
            (None, None) => 0,
        }
    }

    /// Whether a constant is one that is made when it is wanted.
    pub(crate) fn is_made(&self, value: ValueId) -> bool {
        self.later.contains_key(&value)
    }

    /// What kernels may pack in place of a value.
    pub(crate) fn weight(&self, value: ValueId) -> Option<Weight<'_>> {
        let (data_type, dims) = self.outline(value)?;
        let later = self.later.get(&value);
        let elements = match (later.map(|later| &later.how), self.get(value)) {
            (Some(How::Fill(one)), _) => Elements::Fill(one),
            (_, Some(tensor)) => Elements::All(tensor),
            (_, None) => Elements::Unmade,
        };
        // Small values take little in any form.
        Some(Weight { data_type, dims, elements, stored: later.is_none() })
    }

    /// Whether a value is one element repeated, and not small.
    fn is_fill(&self, value: ValueId) -> bool {
        self.one_of_fill(value).is_some()
    }

    /// The one element that is in all places of a value that is not small.
    pub(crate) fn one_of_fill(&self, value: ValueId) -> Option<&Tensor> {
        match &self.later.get(&value)?.how {
            How::Fill(one) => Some(one),
            How::Run(_) | How::Sparse(_) => None,
        }
    }

    /// The one element that a value consists of, as a tensor of one element.
    fn one_element(&self, value: ValueId) -> Option<&Tensor> {
        let small = || self.get(value).filter(|tensor| tensor.len() == 1);
        self.one_of_fill(value).or_else(small)
    }

    /// Decides which nodes that depend on constants only are computed ahead of time, and computes
    /// those of small values. Nodes whose outputs inference knows are not even run. Returns which
    /// nodes remain. None is computed if not `all`.
    pub(crate) fn fold(
        &mut self,
        resolved: &Resolved,
        inference: &Inference,
        lowering: &Lowering<'_>,
        pool: &Pool,
        all: bool,
    ) -> Result<Vec<NodeId>, CompileError> {
        let model = resolved.model();
        let looking = lowering.weights.looking();
        let looking = Lowering { weights: &looking, ..*lowering };
        let mut remaining = Vec::new();
        let mut all_stored = self.stored.values().sum::<usize>();
        self.grown_left = all_stored.saturating_mul(GROWTH_OF_ALL);
        self.others_left = OTHERS;
        let graphs = resolved.graphs().iter();
        for node in graphs.flat_map(|graph| resolved.order_of(*graph)) {
            let outputs: SmallVec<[Option<ValueId>; 2]> =
                model.outputs(*node).iter().copied().collect();
            let known: Option<Vec<(ValueId, Tensor)>> = outputs
                .iter()
                .flatten()
                .map(|value| Some((*value, inference.known(*value).and_then(Known::to_tensor)?)))
                .collect();
            if let Some(known) = known {
                for (value, tensor) in known {
                    // What a node has of itself is stored in it.
                    let stored = match model.inputs(*node).len() {
                        0 => tensor.held_bytes(),
                        _ => 0,
                    };
                    all_stored = all_stored.saturating_add(stored);
                    let more = stored.saturating_mul(GROWTH_OF_ALL);
                    self.grown_left = self.grown_left.saturating_add(more);
                    self.stored.insert(value, stored);
                    self.tensors.insert(value, tensor);
                }
                continue;
            }
            let mut inputs: SmallVec<[ValueId; 6]> = model.inputs(*node).flatten().collect();
            if !inputs.iter().all(|value| self.contains(*value)) {
                remaining.push(*node);
                continue;
            }
            if self.is_left_to_products(resolved, *node) {
                remaining.push(*node);
                continue;
            }
            let schema = resolved.schema(*node);
            if !schema.is_some_and(|schema| schema.determinism == Determinism::Deterministic) {
                remaining.push(*node);
                continue;
            }
            // What cannot be bound is reported later, with everything else that cannot.
            let alone = match Alone::of(&looking, *node, self) {
                Ok(alone) if all => alone,
                Ok(_) | Err(BindError::Unsupported(_) | BindError::Invalid(_)) => {
                    remaining.push(*node);
                    continue;
                }
            };
            let first = inputs.first().and_then(|value| self.one_element(*value));
            let fill = alone.op.fill(first).cloned();
            inputs.sort_unstable();
            inputs.dedup();
            let stored = inputs.iter().filter_map(|value| self.stored.get(value));
            let stored = stored.fold(0usize, |sum, bytes| sum.saturating_add(*bytes));
            let stored = stored.min(all_stored);
            let folds = match sizes_of(inference, &outputs) {
                Some(made) => {
                    let inputs = &inputs[..];
                    let candidate = Candidate { node: *node, inputs, made, fill, stored };
                    self.fold_sized(&looking, &alone, candidate)
                }
                // Its size is known when memory is taken, and that is early enough.
                None => {
                    if inputs.iter().all(|value| self.get(*value).is_some()) {
                        Folds::Now
                    } else {
                        Folds::Not
                    }
                }
            };
            match folds {
                Folds::Not => remaining.push(*node),
                Folds::Later => {}
                Folds::Now => {
                    let maker = Maker { lowering, pool };
                    let account = maker.account();
                    let grown = self.grown_left.min(stored.saturating_mul(GROWTH));
                    let room = grown.max(self.others_left).min(account.left());
                    let local = Account::new(Some(room), 0);
                    let Some(values) = self.run_once(resolved, *node, &maker, &local)? else {
                        remaining.push(*node);
                        continue;
                    };
                    let bytes = values.iter().flatten().map(Tensor::held_bytes).sum();
                    if account.charge(bytes).is_err() || !self.draw(bytes, stored) {
                        remaining.push(*node);
                        continue;
                    }
                    for (value, tensor) in outputs.iter().zip(values) {
                        if let (Some(value), Some(tensor)) = (value, tensor) {
                            self.stored.insert(*value, stored);
                            self.tensors.insert(*value, tensor);
                        }
                    }
                }
            }
        }
        Ok(remaining)
    }

    /// Decides about a node whose outputs have known sizes.
    fn fold_sized(
        &mut self,
        lowering: &Lowering<'_>,
        alone: &Alone,
        candidate: Candidate<'_>,
    ) -> Folds {
        let Candidate { node, inputs, made, fill, stored } = candidate;
        let account = lowering.weights.account;
        let Some(bytes) = made.iter().try_fold(0usize, |sum, (_, ty)| sum.checked_add(ty.bytes))
        else {
            return Folds::Not;
        };
        if let (Some(one), [(value, outline)]) = (fill, &made[..])
            && bytes > SMALL
            && let Ok(one) = one.reshape([])
        {
            let later = Later {
                data_type: outline.data_type,
                dims: outline.dims.clone(),
                bytes,
                how: How::Fill(one),
                charged: false,
                wanted: 0,
            };
            self.later.insert(*value, later);
            return Folds::Not;
        }
        // Fills that it reads are made for a moment.
        let fills = inputs.iter().filter(|value| self.is_fill(**value));
        let fills = fills.fold(0usize, |sum, value| sum.saturating_add(self.later[value].bytes));
        let room = account.left();
        if fills > self.others_left || bytes.saturating_add(fills) > room {
            return Folds::Not;
        }
        let waits = |(position, value): (usize, &ValueId)| {
            let is_large = self.bytes_of(*value) > LARGE_INPUT;
            self.get(*value).is_none() || is_large && !alone.reads_unaligned(position)
        };
        let model = lowering.resolved.model();
        let mut given = model.inputs(node).enumerate();
        let waits = given.any(|(at, value)| value.is_some_and(|value| waits((at, &value))));
        if bytes <= SMALL && !waits {
            return Folds::Now;
        }
        if !self.draw(bytes, stored) || account.charge(bytes).is_err() {
            return Folds::Not;
        }
        for (value, outline) in made {
            self.stored.insert(value, stored);
            let later = Later {
                data_type: outline.data_type,
                dims: outline.dims,
                bytes: outline.bytes,
                how: How::Run(node),
                charged: true,
                wanted: 0,
            };
            self.later.insert(value, later);
        }
        Folds::Later
    }

    /// Takes bytes from what values may still have, for one that is made of `stored` bytes of the
    /// file.
    fn draw(&mut self, bytes: usize, stored: usize) -> bool {
        let left = if bytes <= stored.saturating_mul(GROWTH) && bytes <= self.grown_left {
            &mut self.grown_left
        } else {
            &mut self.others_left
        };
        match left.checked_sub(bytes) {
            Some(rest) => *left = rest,
            None => return false,
        }
        true
    }

    /// Counts by how many steps and nodes each constant is wanted that is not there yet: by steps
    /// that read some `values`, and by nodes that are computed for these, which count among the
    /// `readers` of their inputs.
    pub(crate) fn count_wanted<'v>(
        &mut self,
        resolved: &Resolved,
        values: impl Iterator<Item = &'v SmallVec<[ValueId; 6]>>,
        readers: &mut [u32],
    ) {
        let model = resolved.model();
        let mut seen: HashSet<NodeId> = HashSet::new();
        let mut pending: Vec<SmallVec<[ValueId; 6]>> = values.cloned().collect();
        while let Some(values) = pending.pop() {
            for value in each_once(&values) {
                let Some(later) = self.later.get_mut(&value) else {
                    continue;
                };
                later.wanted += 1;
                if let How::Run(maker) = later.how
                    && seen.insert(maker)
                {
                    let inputs: SmallVec<[ValueId; 6]> = model.inputs(maker).flatten().collect();
                    for value in &inputs {
                        readers[value.index()] += 1;
                    }
                    pending.push(inputs);
                }
            }
        }
    }

    /// Makes the constants that a step may pack, but for fills.
    pub(crate) fn make_for(
        &mut self,
        values: &[ValueId],
        maker: &Maker<'_>,
    ) -> Result<(), CompileError> {
        for value in each_once(values) {
            if !self.is_fill(value) {
                self.make(value, maker)?;
            }
        }
        Ok(())
    }

    /// Says that a step has what it wanted of some values. Constants that nothing else wants go,
    /// but for those that are `kept`.
    pub(crate) fn done_with(
        &mut self,
        values: &[ValueId],
        maker: &Maker<'_>,
        kept: impl Fn(ValueId) -> bool,
    ) {
        for value in each_once(values) {
            if let Some(later) = self.later.get_mut(&value) {
                later.wanted = later.wanted.saturating_sub(1);
                if later.wanted == 0 && !kept(value) {
                    self.drop_made(value, maker.account());
                }
            }
        }
    }

    fn drop_made(&mut self, value: ValueId, account: &Account) {
        if let Some(later) = self.later.get_mut(&value)
            && self.tensors.remove(&value).is_some()
            && later.charged
        {
            later.charged = false;
            account.credit(later.bytes);
        }
    }

    /// Makes a constant, and on the way those that it is computed from.
    pub(crate) fn make(&mut self, value: ValueId, maker: &Maker<'_>) -> Result<(), CompileError> {
        let resolved = maker.lowering.resolved;
        let model = resolved.model();
        let mut pending = vec![value];
        // Not by recursion: there may be a long way from what is stored.
        while let Some(value) = pending.last().copied() {
            let later = self.later.get(&value);
            let Some(later) = later.filter(|_| self.get(value).is_none()) else {
                pending.pop();
                continue;
            };
            let node = match &later.how {
                How::Run(node) => *node,
                How::Fill(_) | How::Sparse(_) => {
                    self.make_alone(value, maker)?;
                    continue;
                }
            };
            let missing = |value: &ValueId| self.contains(*value) && self.get(*value).is_none();
            let before = pending.len();
            pending.extend(model.inputs(node).flatten().filter(missing));
            if pending.len() > before {
                continue;
            }
            let outputs: SmallVec<[Option<ValueId>; 2]> =
                model.outputs(node).iter().copied().collect();
            let mut bytes = 0;
            for value in outputs.iter().flatten() {
                self.charge(*value, maker)?;
                bytes += self.bytes_of(*value);
            }
            let local = maker.account().less(bytes);
            let Some(values) = self.run_once(resolved, node, maker, &local)? else {
                return Err(refusal(resolved, node, local.refused()));
            };
            for (value, tensor) in outputs.iter().zip(values) {
                if let (Some(value), Some(tensor)) = (value, tensor)
                    && self.later.contains_key(value)
                {
                    self.tensors.insert(*value, tensor);
                }
            }
            if self.get(value).is_none() {
                let place = place_of_node(model, node);
                let what = format!("{place}: computing it ahead of time: it made no tensor");
                return Err(CompileError::Resources(what));
            }
            let inputs: SmallVec<[ValueId; 6]> = model.inputs(node).flatten().collect();
            self.done_with(&inputs, maker, |_| false);
            let unwanted = outputs.iter().flatten().filter(|made| **made != value);
            for made in unwanted {
                if self.later.get(made).is_some_and(|later| later.wanted == 0) {
                    self.drop_made(*made, maker.account());
                }
            }
        }
        Ok(())
    }

    /// Makes a constant that no node computes.
    fn make_alone(&mut self, value: ValueId, maker: &Maker<'_>) -> Result<(), CompileError> {
        self.charge(value, maker)?;
        let Some(later) = self.later.get(&value) else {
            return Ok(());
        };
        let made = match &later.how {
            How::Run(_) => return Ok(()),
            How::Fill(one) => {
                one.view().broadcast_to(&later.dims).and_then(|repeated| repeated.to_tensor())
            }
            How::Sparse(sparse) => sparse.to_dense(),
        };
        let made = made.map_err(|error| CompileError::Resources(error.to_string()))?;
        self.tensors.insert(value, made);
        Ok(())
    }

    /// Takes the bytes of a constant that is about to be made, unless they are taken.
    fn charge(&mut self, value: ValueId, maker: &Maker<'_>) -> Result<(), CompileError> {
        let Some(later) = self.later.get_mut(&value).filter(|later| !later.charged) else {
            return Ok(());
        };
        let resolved = maker.lowering.resolved;
        let charged = maker.account().charge(later.bytes);
        charged.map_err(|refused| match resolved.model().value(value).producer {
            Producer::Node(node, _) => refusal(resolved, node, Some(refused)),
            _ => CompileError::Resources(refused.to_string()),
        })?;
        later.charged = true;
        Ok(())
    }

    /// Whether a fill may be made in full and kept: it is one of the values that are made of
    /// little.
    pub(crate) fn may_keep_fill(&mut self, value: ValueId, account: &Account) -> bool {
        let Some(later) = self.later.get_mut(&value) else {
            return false;
        };
        if later.bytes > self.others_left || account.charge(later.bytes).is_err() {
            return false;
        }
        self.others_left -= later.bytes;
        later.charged = true;
        true
    }

    /// Gives back what is taken in the account for constants that have not been made in the end.
    pub(crate) fn settle(&mut self, account: &Account, kept: impl Fn(ValueId) -> bool) {
        for (value, later) in &mut self.later {
            if later.charged && !kept(*value) {
                later.charged = false;
                account.credit(later.bytes);
            }
        }
    }

    /// Whether a node is the transpose of a large constant matrix that only products want: a
    /// rewrite lets them pack the matrix itself.
    fn is_left_to_products(&self, resolved: &Resolved, node: NodeId) -> bool {
        let model = resolved.model();
        let is = |node: NodeId, operator: &OpDef| {
            resolved.op(node).is_some_and(|op| op.def.is(operator))
        };
        let source = model.inputs(node).next().flatten();
        let Some((data_type, dims)) = source.and_then(|source| self.outline(source)) else {
            return false;
        };
        let Some(output) = model.outputs(node).first().copied().flatten() else {
            return false;
        };
        is(node, &TRANSPOSE)
            && dims.len() == 2
            && data_type == DataType::Float
            && dims.iter().product::<usize>() >= WORTH_PACKING
            && !source.is_some_and(|source| self.is_fill(source))
            && NodeAttributes::new(model, node)
                .attribute("perm")
                .is_none_or(|perm| matches!(perm, AttrValue::Ints(perm) if *perm == [1, 0]))
            && !model.value(output).is_output
            && model.uses(output).all(|(reader, position)| position == 1 && is(reader, &MATMUL))
    }

    /// Runs a node whose inputs are there, on memory that `account` lets it take; `None` if that
    /// refuses.
    fn run_once(
        &self,
        resolved: &Resolved,
        node: NodeId,
        maker: &Maker<'_>,
        account: &Account,
    ) -> Result<Option<Vec<Option<Tensor>>>, CompileError> {
        let model = resolved.model();
        let failed = |what: String| {
            let place = place_of_node(model, node);
            CompileError::Resources(
                RunError::Node { place, what: format!("computing it ahead of time: {what}") }
                    .to_string(),
            )
        };
        let alone = match Alone::of(maker.lowering, node, self) {
            Ok(alone) => alone,
            Err(BindError::Unsupported(why) | BindError::Invalid(why)) => return Err(failed(why)),
        };
        let inputs: Vec<Option<Tensor>> = model
            .inputs(node)
            .enumerate()
            .map(|(position, value)| {
                let tensor = value.and_then(|value| self.get(value));
                tensor
                    .map(|tensor| {
                        if alone.reads_unaligned(position) {
                            Ok(tensor.clone())
                        } else {
                            tensor.aligned()
                        }
                    })
                    .transpose()
            })
            .collect::<Result<_, _>>()
            .map_err(|error| failed(error.to_string()))?;
        let operands = alone.op.operands();
        let operands = operands.iter().map(|slot| {
            let tensor = slot.and_then(|slot| inputs[slot.index()].as_ref());
            tensor.map_or(Operand::Absent, |tensor| Operand::Tensor(tensor.view()))
        });
        let targets = model.outputs(node).iter().map(|output| match output {
            Some(_) => Target::Owned(None),
            None => Target::Absent,
        });
        let exec = Exec { pool: maker.pool, isa: maker.lowering.isa };
        let mut call = Call {
            operands: operands.collect(),
            targets: targets.collect(),
            over: None,
            exec: &exec,
            memory: None,
            account,
        };
        match alone.selected.kernel.run(&mut call) {
            Ok(()) => {}
            Err(_) if account.refused().is_some() => return Ok(None),
            Err(error) => return Err(failed(error.0)),
        }
        let made = call.targets.into_iter().map(|target| match target {
            Target::Owned(Some(Value::Tensor(tensor))) => Some(tensor),
            _ => None,
        });
        Ok(Some(made.collect()))
    }

    /// Gives a constant up, once it has been taken in by all of its readers.
    pub(crate) fn take(&mut self, value: ValueId) -> Option<Tensor> {
        self.tensors.remove(&value)
    }

    /// What inference may know of constants.
    pub(crate) fn known(&self, value: ValueId) -> Option<Known> {
        self.get(value)
            .filter(|tensor| tensor.len() <= sardonyx_ops::MAX_KNOWN)
            .cloned()
            .map(Known::Tensor)
    }
}

/// A node whose outputs have known sizes.
struct Candidate<'a> {
    node: NodeId,
    inputs: &'a [ValueId],
    made: Sizes,
    /// The value that all elements of the output have, if that is known.
    fill: Option<Tensor>,
    /// Bytes of the file from which it is made.
    stored: usize,
}

/// Values in order, none of them twice.
fn each_once(values: &[ValueId]) -> SmallVec<[ValueId; 6]> {
    let mut values = SmallVec::from_slice(values);
    values.sort_unstable();
    values.dedup();
    values
}

/// A node outside of a program: its operation, whose slots are the positions of its inputs, and the
/// kernel.
struct Alone {
    op: Op,
    selected: Selected,
}

impl Alone {
    fn of(
        lowering: &Lowering<'_>,
        node: NodeId,
        constants: &Constants,
    ) -> Result<Alone, BindError> {
        let inputs = lowering.alone(node);
        let op = lowering.operation(node, inputs.clone(), constants)?;
        let operands = op.operands();
        let read = operands.iter().map(|slot| inputs[(*slot)?.index()]).collect();
        let selected = lowering.kernel_of(node, &op, read, constants)?;
        Ok(Alone { op, selected })
    }

    /// Whether the elements of an input are moved as bytes.
    fn reads_unaligned(&self, input: usize) -> bool {
        let unaligned = self.selected.kernel.memory().unaligned;
        let operands = self.op.operands().into_iter().enumerate();
        let mut readers =
            operands.filter(|(_, slot)| slot.is_some_and(|slot| slot.index() == input));
        readers.any(|(position, _)| unaligned.contains(position))
    }
}

/// Whether a node is computed ahead of time.
enum Folds {
    Not,
    Now,
    Later,
}

/// What is known of a value that has not been made.
struct Outline {
    data_type: DataType,
    dims: Dims,
    bytes: usize,
}

/// Outputs with known sizes.
type Sizes = SmallVec<[(ValueId, Outline); 2]>;

/// The outputs of a node, if all are tensors of known sizes.
fn sizes_of(inference: &Inference, outputs: &[Option<ValueId>]) -> Option<Sizes> {
    let outputs = outputs.iter().flatten();
    outputs
        .map(|value| {
            let (data_type, dims) = sized(inference.ty(*value)?)?;
            let elems = shape::elems(&dims).ok()?;
            let outline = Outline { bytes: data_type.storage_bytes(elems)?, data_type, dims };
            Some((*value, outline))
        })
        .collect()
}

/// A node wants more memory than there is.
fn refusal(resolved: &Resolved, node: NodeId, refused: Option<Refused>) -> CompileError {
    let place = place_of_node(resolved.model(), node);
    let refused = refused.map(|refused| refused.to_string());
    CompileError::Resources(format!(
        "{place}: computing it ahead of time: {}",
        refused.unwrap_or_default()
    ))
}

impl std::fmt::Debug for Constants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.tensors.keys().chain(self.later.keys()).map(|value| value.index()))
            .finish()
    }
}
