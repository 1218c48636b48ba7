//! Constants: values that are known before a run, materialized or deferred.
//!
//! [`fold`](mod@crate::fold) decides which values become constants, and [`make`](crate::make)
//! computes them. A constant that repeats one element stays that element until a reader needs all
//! of it.

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

/// Limit: bytes up to which a constant is computed at once and kept.
pub(crate) const SMALL: usize = 64 << 10;
/// Limit: ratio of a constant's size to the bytes in the file it is computed from. `Cast`,
/// `DequantizeLinear` and `Transpose` need some growth.
const GROWTH: usize = 8;
/// Limit: ratio of the total size of such constants to the bytes in the file: a stored value may
/// pass through several forms.
const GROWTH_OF_ALL: usize = 32;
/// Limit: total bytes of all other constants.
const OTHERS: usize = 64 << 20;

/// Values that are known before a run.
#[derive(Default)]
pub(crate) struct Constants {
    /// Materialized constants.
    tensors: HashMap<ValueId, Tensor>,
    /// Constants that can be materialized on demand.
    later: HashMap<ValueId, Later>,
    /// Number of bytes in the file that a value is computed from.
    stored: HashMap<ValueId, usize>,
    /// Bytes left for values of at most [`GROWTH`] times the bytes they are computed from, and for
    /// all others.
    grown_left: usize,
    others_left: usize,
    /// Copies of constants from mapped files, shared between sessions.
    copies: SharedWeights,
}

/// Constant that is materialized on demand.
struct Later {
    outline: Outline,
    how: Recipe,
    /// Whether its bytes are charged to the account.
    charged: bool,
    /// Number of nodes and steps that still need it.
    wanted: usize,
}

/// Type and size of a value that is not materialized.
pub(crate) struct Outline {
    pub(crate) data_type: DataType,
    pub(crate) dims: Dims,
    pub(crate) bytes: usize,
}

/// Constant as kernels see it.
pub(crate) struct ConstantView<'a> {
    /// The value, if it is materialized.
    pub(crate) there: Option<&'a Tensor>,
    pub(crate) weight: Weight<'a>,
}

/// Recipe for a constant.
pub(crate) enum Recipe {
    /// Run the node.
    Run(NodeId),
    /// Repeat one element. The node also remains in the program.
    Fill(Tensor),
    /// Fill a dense tensor from the non-zero elements.
    Sparse(Box<Sparse>),
}

impl Constants {
    /// Reads the initializers that have a reader. Raw values share the bytes of the file.
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
                constants.defer(value, outline, Recipe::Sparse(Box::new(sparse)), true);
            }
        }
        Ok(constants)
    }

    /// Reads the initializers that have a reader and are not materialized.
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
                self.insert(value, self.copy_if_known(tensor)?, stored);
            }
        }
        Ok(())
    }

    /// Copies a small tensor of a data file, as inference may keep it; returns a large one
    /// unchanged.
    fn copy_if_known(&self, tensor: Tensor) -> Result<Tensor, CompileError> {
        if tensor.len() > sardonyx_ops::MAX_KNOWN {
            return Ok(tensor);
        }
        let copied = self.copies.copy_if_mapped(tensor);
        copied.map_err(|error| CompileError::Resources(error.to_string()))
    }

    /// Inserts a value that is computed from `stored` bytes of the file.
    pub(crate) fn insert(&mut self, value: ValueId, tensor: Tensor, stored: usize) {
        self.stored.insert(value, stored);
        self.tensors.insert(value, tensor);
    }

    /// Inserts a value that is materialized on demand. `charged`: whether the account holds its
    /// bytes.
    pub(crate) fn defer(&mut self, value: ValueId, outline: Outline, how: Recipe, charged: bool) {
        self.later.insert(value, Later { outline, how, charged, wanted: 0 });
    }

    /// Sets the number of bytes in the file that a deferred value is computed from.
    pub(crate) fn set_stored(&mut self, value: ValueId, stored: usize) {
        self.stored.insert(value, stored);
    }

    /// Sums the bytes in the file that some values are computed from.
    pub(crate) fn stored_bytes<'v>(&self, values: impl IntoIterator<Item = &'v ValueId>) -> usize {
        let stored = values.into_iter().filter_map(|value| self.stored.get(value));
        stored.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Sums the bytes in the file that all constants are computed from.
    pub(crate) fn all_stored_bytes(&self) -> usize {
        self.stored.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Inserts the value of a deferred constant.
    pub(crate) fn insert_materialized(&mut self, value: ValueId, tensor: Tensor) {
        if self.later.contains_key(&value) {
            self.tensors.insert(value, tensor);
        }
    }

    /// Returns the recipe of a constant that is not materialized.
    pub(crate) fn recipe(&self, value: ValueId) -> Option<&Recipe> {
        match self.get(value) {
            Some(_) => None,
            None => self.later.get(&value).map(|later| &later.how),
        }
    }

    /// Returns a materialized constant.
    pub(crate) fn get(&self, value: ValueId) -> Option<&Tensor> {
        self.tensors.get(&value)
    }

    /// Whether a value is a constant, materialized or deferred.
    pub(crate) fn contains(&self, value: ValueId) -> bool {
        self.tensors.contains_key(&value) || self.later.contains_key(&value)
    }

    /// Returns type and dimensions of a constant, materialized or deferred.
    pub(crate) fn outline(&self, value: ValueId) -> Option<(DataType, &[usize])> {
        if let Some(tensor) = self.get(value) {
            return Some((tensor.data_type(), tensor.dims()));
        }
        let outline = &self.later.get(&value)?.outline;
        Some((outline.data_type, &outline.dims))
    }

    /// Returns the size of a constant in bytes, materialized or deferred; 0 for other values.
    pub(crate) fn bytes_of(&self, value: ValueId) -> usize {
        match (self.get(value), self.later.get(&value)) {
            (Some(tensor), _) => tensor.bytes().len(),
            (None, Some(later)) => later.outline.bytes,
            (None, None) => 0,
        }
    }

    /// Whether a constant is materialized on demand.
    pub(crate) fn is_deferred(&self, value: ValueId) -> bool {
        self.later.contains_key(&value)
    }

    /// Returns the view of a constant that kernels may read, or pack instead; `None` for other
    /// values.
    pub(crate) fn look(&self, value: ValueId) -> Option<ConstantView<'_>> {
        let (there, later) = (self.tensors.get(&value), self.later.get(&value));
        let (data_type, dims) = match (there, later) {
            (Some(tensor), _) => (tensor.data_type(), tensor.dims()),
            (None, Some(later)) => (later.outline.data_type, &later.outline.dims[..]),
            (None, None) => return None,
        };
        let elements = match (later.map(|later| &later.how), there) {
            (Some(Recipe::Fill(one)), _) => Elements::Fill(one),
            (_, Some(tensor)) => Elements::All(tensor),
            (_, None) => Elements::Unmade,
        };
        // Only deferred values are large enough to be worth releasing.
        let weight = Weight { data_type, dims, elements, stored: later.is_none() };
        Some(ConstantView { there, weight })
    }

    /// Whether a value is one repeated element, and not small.
    pub(crate) fn is_fill(&self, value: ValueId) -> bool {
        self.fill_element(value).is_some()
    }

    /// Returns the element that a large value repeats.
    pub(crate) fn fill_element(&self, value: ValueId) -> Option<&Tensor> {
        match &self.later.get(&value)?.how {
            Recipe::Fill(one) => Some(one),
            Recipe::Run(_) | Recipe::Sparse(_) => None,
        }
    }

    /// Returns the element of a value with one element or one repeated element.
    pub(crate) fn one_element(&self, value: ValueId) -> Option<&Tensor> {
        let small = || self.get(value).filter(|tensor| tensor.len() == 1);
        self.fill_element(value).or_else(small)
    }

    /// Sets how many bytes values may take: in proportion to `all_stored` bytes of the file, and
    /// [`OTHERS`].
    pub(crate) fn limit_growth(&mut self, all_stored: usize) {
        self.grown_left = all_stored.saturating_mul(GROWTH_OF_ALL);
        self.others_left = OTHERS;
    }

    /// Raises the limit of [`limit_growth`](Self::limit_growth) for `stored` more bytes of the
    /// file.
    pub(crate) fn raise_growth(&mut self, stored: usize) {
        self.grown_left = self.grown_left.saturating_add(stored.saturating_mul(GROWTH_OF_ALL));
    }

    /// Returns the bytes that a value computed from `stored` bytes of the file may take.
    pub(crate) fn room_for(&self, stored: usize) -> usize {
        self.grown_left.min(stored.saturating_mul(GROWTH)).max(self.others_left)
    }

    /// Returns the bytes left for values that are computed from little or nothing.
    pub(crate) fn others_left(&self) -> usize {
        self.others_left
    }

    /// Takes `bytes` of a value computed from `stored` bytes of the file from the limits; whether
    /// they sufficed.
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

    /// Counts the readers of constants that are not yet materialized: steps that read some
    /// `values`, and nodes that are computed for these, which count among the `readers` of their
    /// inputs.
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
            for value in sort_unique(&values) {
                let Some(later) = self.later.get_mut(&value) else {
                    continue;
                };
                later.wanted += 1;
                if let Recipe::Run(maker) = later.how
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

    /// Releases constants that a step has read. Drops those without further readers, except the
    /// `kept`.
    pub(crate) fn release(
        &mut self,
        values: &[ValueId],
        account: &Account,
        kept: impl Fn(ValueId) -> bool,
    ) {
        for value in sort_unique(values) {
            if let Some(later) = self.later.get_mut(&value) {
                later.wanted = later.wanted.saturating_sub(1);
                if later.wanted == 0 && !kept(value) {
                    self.drop_made(value, account);
                }
            }
        }
    }

    /// Drops a materialized constant without readers.
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

    /// Charges a constant that is about to be materialized, unless it is charged.
    pub(crate) fn charge(&mut self, value: ValueId, account: &Account) -> Result<(), Refused> {
        if let Some(later) = self.later.get_mut(&value).filter(|later| !later.charged) {
            account.charge(later.outline.bytes)?;
            later.charged = true;
        }
        Ok(())
    }

    /// Whether a fill may be materialized and kept: the limit for values computed from little
    /// allows it.
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

    /// Credits the account for charged constants that were never materialized.
    pub(crate) fn settle(&mut self, account: &Account, kept: impl Fn(ValueId) -> bool) {
        for (value, later) in &mut self.later {
            if later.charged && !kept(*value) {
                later.charged = false;
                account.credit(later.outline.bytes);
            }
        }
    }

    /// Removes and returns a constant that all readers have packed.
    pub(crate) fn take(&mut self, value: ValueId) -> Option<Tensor> {
        self.tensors.remove(&value)
    }

    /// Whether inference may find more if it knows the constants.
    pub(crate) fn teach(&self, inference: &Inference) -> bool {
        self.tensors
            .keys()
            .any(|value| inference.known(*value).is_none() && self.known_value(*value).is_some())
    }

    /// Returns a materialized constant, its elements aligned to their type.
    pub(crate) fn get_aligned(&mut self, value: ValueId) -> Result<Option<&Tensor>, TensorError> {
        let Some(tensor) = self.tensors.get_mut(&value) else {
            return Ok(None);
        };
        *tensor = tensor.aligned()?;
        Ok(Some(tensor))
    }

    /// Copies a materialized constant out of its mapped file, aligned. Sessions of a model share
    /// the copy.
    pub(crate) fn leave_file(&mut self, value: ValueId) -> Result<(), TensorError> {
        if let Some(tensor) = self.tensors.get_mut(&value) {
            *tensor = self.copies.copy_if_mapped(tensor.clone())?;
        }
        Ok(())
    }

    /// Returns the part of a constant that inference may read.
    pub(crate) fn known_value(&self, value: ValueId) -> Option<Known> {
        self.get(value)
            .filter(|tensor| tensor.len() <= sardonyx_ops::MAX_KNOWN)
            // A mapped tensor may be part of a large file, which inference would keep open.
            .filter(|tensor| !tensor.buffer().is_some_and(Buffer::is_mapped))
            .cloned()
            .map(Known::Tensor)
    }
}

/// Sorts values and removes duplicates.
pub(crate) fn sort_unique(values: &[ValueId]) -> SmallVec<[ValueId; 6]> {
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
