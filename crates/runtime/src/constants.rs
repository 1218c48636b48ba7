//! Constants: the values that are known before anything runs, there or still to be made.
//!
//! [`fold`](mod@crate::fold) decides which values become constants, and [`make`](crate::make)
//! computes them. Of a constant that is one element in all places there is only that element until
//! something wants all of it.

use hashbrown::{HashMap, HashSet};

use sardonyx_model::{ConstantError, ExternalData, Id, NodeId, Producer, ValueId};
use sardonyx_ops::Known;
use sardonyx_passes::{Inference, Resolved};
use sardonyx_tensor::{Buffer, DataType, Dims, Sparse, Tensor, TensorError};
use smallvec::SmallVec;

use crate::account::{Account, Refused};
use crate::border::demand_density;
use crate::error::CompileError;
use crate::weights::{Elements, SharedWeights, Weight};

/// Limit: bytes up to which a value is computed at once and kept.
pub(crate) const SMALL: usize = 64 << 10;
/// Limit: ratio of the size of a value to what the file stores of it: `Cast`, `DequantizeLinear`,
/// `Transpose` and their like need that.
const GROWTH: usize = 8;
/// Limit: ratio of the size of all such values together to what the file stores: each may become
/// several others on its way.
const GROWTH_OF_ALL: usize = 32;
/// Limit: bytes that all other values may have together.
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
    /// Shared copies of constants that leave mapped files.
    copies: SharedWeights,
}

/// A constant that is made when it is wanted.
struct Later {
    outline: Outline,
    how: How,
    /// Whether its bytes are taken in the account.
    charged: bool,
    /// How many nodes still want it.
    wanted: usize,
}

/// What is known of a value that has not been made.
pub(crate) struct Outline {
    pub(crate) data_type: DataType,
    pub(crate) dims: Dims,
    pub(crate) bytes: usize,
}

/// A constant as kernels see it.
pub(crate) struct Look<'a> {
    /// The value, if it is there.
    pub(crate) there: Option<&'a Tensor>,
    pub(crate) weight: Weight<'a>,
}

/// How a constant is made.
pub(crate) enum How {
    /// By running the node.
    Run(NodeId),
    /// From one element, which all others are like. The node is also among those that remain.
    Fill(Tensor),
    /// From the elements that are not zero.
    Sparse(Box<Sparse>),
}

impl Constants {
    /// Reads the initializers that something reads. Raw values are shared with the file, not
    /// copied.
    pub(crate) fn read(
        resolved: &Resolved,
        external: &dyn ExternalData,
        account: &Account,
        copies: &SharedWeights,
    ) -> Result<Self, CompileError> {
        let mut constants = Constants { copies: copies.clone(), ..Constants::default() };
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
                    CompileError::Constant(ConstantError::new(name, what))
                };
                demand_density(&sparse).map_err(|refused| error(refused.to_string()))?;
                let elems = sparse.dims().iter().product::<usize>();
                let data_type = sparse.values().data_type();
                let bytes = data_type.storage_bytes(elems);
                let Some(bytes) = bytes.filter(|bytes| *bytes > SMALL) else {
                    let tensor = sparse.to_dense().map_err(|e| error(e.to_string()))?;
                    constants.tensors.insert(value, tensor);
                    continue;
                };
                account.charge(bytes).map_err(|e| error(e.to_string()))?;
                let outline = Outline { data_type, dims: sparse.dims().into(), bytes };
                constants.put_off(value, outline, How::Sparse(Box::new(sparse)), true);
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
                let stored = tensor.held_bytes();
                self.insert(value, self.outside_of_files(tensor)?, stored);
            }
        }
        Ok(())
    }

    /// A tensor of a data file, copied if inference may come to know and keep it.
    fn outside_of_files(&self, tensor: Tensor) -> Result<Tensor, CompileError> {
        if tensor.len() > sardonyx_ops::MAX_KNOWN {
            return Ok(tensor);
        }
        let copied = self.copies.unmapped(tensor);
        copied.map_err(|error| CompileError::Resources(error.to_string()))
    }

    /// Adds a value that is made of some bytes of the file.
    pub(crate) fn insert(&mut self, value: ValueId, tensor: Tensor, stored: usize) {
        self.stored.insert(value, stored);
        self.tensors.insert(value, tensor);
    }

    /// Adds a value that is made when it is wanted. `charged` says whether its bytes are taken in
    /// the account.
    pub(crate) fn put_off(&mut self, value: ValueId, outline: Outline, how: How, charged: bool) {
        self.later.insert(value, Later { outline, how, charged, wanted: 0 });
    }

    /// Says of how many bytes of the file a value is made that is put off.
    pub(crate) fn set_stored(&mut self, value: ValueId, stored: usize) {
        self.stored.insert(value, stored);
    }

    /// How many bytes of the file some values are made of.
    pub(crate) fn stored<'v>(&self, values: impl IntoIterator<Item = &'v ValueId>) -> usize {
        let stored = values.into_iter().filter_map(|value| self.stored.get(value));
        stored.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// How many bytes of the file all constants are made of.
    pub(crate) fn all_stored(&self) -> usize {
        self.stored.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Adds one that was put off and has been made now.
    pub(crate) fn insert_made(&mut self, value: ValueId, tensor: Tensor) {
        if self.later.contains_key(&value) {
            self.tensors.insert(value, tensor);
        }
    }

    /// How a constant is made that is not there.
    pub(crate) fn how(&self, value: ValueId) -> Option<&How> {
        match self.get(value) {
            Some(_) => None,
            None => self.later.get(&value).map(|later| &later.how),
        }
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
        let outline = &self.later.get(&value)?.outline;
        Some((outline.data_type, &outline.dims))
    }

    /// Bytes of a constant, there or not.
    pub(crate) fn bytes_of(&self, value: ValueId) -> usize {
        match (self.get(value), self.later.get(&value)) {
            (Some(tensor), _) => tensor.bytes().len(),
            (None, Some(later)) => later.outline.bytes,
            (None, None) => 0,
        }
    }

    /// Whether a constant is one that is made when it is wanted.
    pub(crate) fn is_made(&self, value: ValueId) -> bool {
        self.later.contains_key(&value)
    }

    /// What kernels may read of a value, or pack in place of it; `None` if it is not a constant.
    pub(crate) fn look(&self, value: ValueId) -> Option<Look<'_>> {
        let (there, later) = (self.tensors.get(&value), self.later.get(&value));
        let (data_type, dims) = match (there, later) {
            (Some(tensor), _) => (tensor.data_type(), tensor.dims()),
            (None, Some(later)) => (later.outline.data_type, &later.outline.dims[..]),
            (None, None) => return None,
        };
        let elements = match (later.map(|later| &later.how), there) {
            (Some(How::Fill(one)), _) => Elements::Fill(one),
            (_, Some(tensor)) => Elements::All(tensor),
            (_, None) => Elements::Unmade,
        };
        // Small values take little in any form.
        let weight = Weight { data_type, dims, elements, stored: later.is_none() };
        Some(Look { there, weight })
    }

    /// Whether a value is one element repeated, and not small.
    pub(crate) fn is_fill(&self, value: ValueId) -> bool {
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
    pub(crate) fn one_element(&self, value: ValueId) -> Option<&Tensor> {
        let small = || self.get(value).filter(|tensor| tensor.len() == 1);
        self.one_of_fill(value).or_else(small)
    }

    /// Says how much values may have that are computed of what the file stores, and of nothing.
    pub(crate) fn limit_growth(&mut self, all_stored: usize) {
        self.grown_left = all_stored.saturating_mul(GROWTH_OF_ALL);
        self.others_left = OTHERS;
    }

    /// The same for more bytes that the file stores.
    pub(crate) fn raise_growth(&mut self, stored: usize) {
        self.grown_left = self.grown_left.saturating_add(stored.saturating_mul(GROWTH_OF_ALL));
    }

    /// Bytes that a value may have that is made of `stored` bytes of the file.
    pub(crate) fn room_for(&self, stored: usize) -> usize {
        self.grown_left.min(stored.saturating_mul(GROWTH)).max(self.others_left)
    }

    /// Bytes that values may still have that are made of little.
    pub(crate) fn others_left(&self) -> usize {
        self.others_left
    }

    /// Takes bytes from what values may still have, for one that is made of `stored` bytes of the
    /// file.
    pub(crate) fn draw(&mut self, bytes: usize, stored: usize) -> bool {
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

    /// Says that a step has what it wanted of some values. Constants that nothing else wants go,
    /// but for those that are `kept`.
    pub(crate) fn done_with(
        &mut self,
        values: &[ValueId],
        account: &Account,
        kept: impl Fn(ValueId) -> bool,
    ) {
        for value in each_once(values) {
            if let Some(later) = self.later.get_mut(&value) {
                later.wanted = later.wanted.saturating_sub(1);
                if later.wanted == 0 && !kept(value) {
                    self.drop_made(value, account);
                }
            }
        }
    }

    /// Drops a constant that was made and that nothing wants.
    pub(crate) fn drop_unwanted(&mut self, value: ValueId, account: &Account) {
        if self.later.get(&value).is_some_and(|later| later.wanted == 0) {
            self.drop_made(value, account);
        }
    }

    fn drop_made(&mut self, value: ValueId, account: &Account) {
        if let Some(later) = self.later.get_mut(&value)
            && self.tensors.remove(&value).is_some()
            && later.charged
        {
            later.charged = false;
            account.credit(later.outline.bytes);
        }
    }

    /// Takes the bytes of a constant that is about to be made, unless they are taken.
    pub(crate) fn charge(&mut self, value: ValueId, account: &Account) -> Result<(), Refused> {
        if let Some(later) = self.later.get_mut(&value).filter(|later| !later.charged) {
            account.charge(later.outline.bytes)?;
            later.charged = true;
        }
        Ok(())
    }

    /// Whether a fill may be made in full and kept: it is one of the values that are made of
    /// little.
    pub(crate) fn may_keep_fill(&mut self, value: ValueId, account: &Account) -> bool {
        let Some(later) = self.later.get_mut(&value) else {
            return false;
        };
        if later.outline.bytes > self.others_left || account.charge(later.outline.bytes).is_err() {
            return false;
        }
        self.others_left -= later.outline.bytes;
        later.charged = true;
        true
    }

    /// Gives back what is taken in the account for constants that have not been made in the end.
    pub(crate) fn settle(&mut self, account: &Account, kept: impl Fn(ValueId) -> bool) {
        for (value, later) in &mut self.later {
            if later.charged && !kept(*value) {
                later.charged = false;
                account.credit(later.outline.bytes);
            }
        }
    }

    /// Gives a constant up, once it has been taken in by all of its readers.
    pub(crate) fn take(&mut self, value: ValueId) -> Option<Tensor> {
        self.tensors.remove(&value)
    }

    /// Whether inference may find more if it knows the constants.
    pub(crate) fn teach(&self, inference: &Inference) -> bool {
        self.tensors
            .keys()
            .any(|value| inference.known(*value).is_none() && self.known(*value).is_some())
    }

    /// A constant that is there, with its elements at addresses of their type.
    pub(crate) fn aligned(&mut self, value: ValueId) -> Result<Option<&Tensor>, TensorError> {
        let Some(tensor) = self.tensors.get_mut(&value) else {
            return Ok(None);
        };
        *tensor = tensor.aligned()?;
        Ok(Some(tensor))
    }

    /// Takes a constant that is there out of the mapped file that it is in, and puts its elements
    /// at addresses of their type. Sessions of a model share the copy.
    pub(crate) fn leave_file(&mut self, value: ValueId) -> Result<(), TensorError> {
        if let Some(tensor) = self.tensors.get_mut(&value) {
            *tensor = self.copies.unmapped(tensor.clone())?;
        }
        Ok(())
    }

    /// What inference may know of constants.
    pub(crate) fn known(&self, value: ValueId) -> Option<Known> {
        self.get(value)
            .filter(|tensor| tensor.len() <= sardonyx_ops::MAX_KNOWN)
            // A part of a large constant, which inference would keep.
            .filter(|tensor| !tensor.buffer().is_some_and(Buffer::is_mapped))
            .cloned()
            .map(Known::Tensor)
    }
}

/// Values in order, none of them twice.
pub(crate) fn each_once(values: &[ValueId]) -> SmallVec<[ValueId; 6]> {
    let mut values = SmallVec::from_slice(values);
    values.sort_unstable();
    values.dedup();
    values
}

impl std::fmt::Debug for Constants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.tensors.keys().chain(self.later.keys()).map(|value| value.index()))
            .finish()
    }
}
