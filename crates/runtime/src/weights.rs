//! Packed constants shared between the sessions of a model.
//!
//! The packed form of a constant depends on its bytes and on a few decisions, its [`Form`]. If
//! another session holds the bytes in that form, a new session shares it. Constants are identified
//! by the address of their bytes, which costs nothing; equal bytes elsewhere are packed again.
//!
//! Constants that kernels read unpacked are copied out of mapped files, as another program may
//! change or truncate the file while the session lives. Sessions of a model share these copies too,
//! identified by their position in the file.

use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sardonyx_kernels::Isa;
use sardonyx_kernels::conv::{Algorithm, ConvParams};
use sardonyx_tensor::{Buffer, BufferName, DataType, Dims, Tensor, TensorError};

use crate::account::Account;
use crate::error::{KernelError, fail};
use crate::precision::Precision;
use crate::program::QuantizedLayout;

/// Constant that a kernel may pack.
#[derive(Clone, Copy)]
pub(crate) struct Weight<'a> {
    pub(crate) data_type: DataType,
    pub(crate) dims: &'a [usize],
    pub(crate) elements: Elements<'a>,
    /// Whether the file stores its bytes.
    pub(crate) stored: bool,
}

/// Elements of a constant.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    All(&'a Tensor),
    /// One repeated element, given as a tensor of one element.
    Fill(&'a Tensor),
    /// Not computed, because the session is only inspected.
    Unmade,
}

impl Weight<'_> {
    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }
}

/// Cache of packed constants, shared between sessions. Clones refer to one cache, which keeps no
/// constant alive by itself.
#[derive(Clone, Default)]
pub struct SharedWeights(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    packed: HashMap<WeightKey, Weak<dyn Any + Send + Sync>>,
    /// Copies of bytes that are mapped or unaligned, by the bytes' position.
    copies: HashMap<BufferName, BufferName>,
    /// Number of packed constants at which unused ones are removed.
    sweep_at: usize,
    /// Number of copies at which dropped ones are removed.
    sweep_copies_at: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct WeightKey {
    bytes: BufferName,
    data_type: DataType,
    dims: Dims,
    form: Form,
}

/// Packed form of a constant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Right operand of products; `transposed` if the constant is its transpose.
    Right { isa: Isa, precision: Precision, transposed: bool },
    /// Right operand of few bits: the layout, and what else it is made of.
    FewBits { isa: Isa, layout: QuantizedLayout, beside: [Option<BufferName>; 3] },
    /// Weights of a convolution, each channel multiplied by its number in `scale`, if given.
    Convolution { isa: Isa, params: ConvParams, algorithm: Algorithm, scale: Option<Bits> },
}

/// Numbers that are compared by their bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Bits(Box<[u64]>);

impl Bits {
    pub(crate) fn new(numbers: &[f64]) -> Bits {
        Bits(numbers.iter().map(|number| number.to_bits()).collect())
    }
}

impl SharedWeights {
    /// Returns the number of packed constants that sessions hold.
    pub fn in_use(&self) -> usize {
        let entries = self.entries();
        let packed = entries.packed.values();
        packed.filter(|packed| packed.strong_count() > 0).count()
    }

    /// Copies bytes into memory of their own, or returns the copy that another session holds.
    ///
    /// # Errors
    ///
    /// If memory is refused.
    pub fn copy_of(&self, bytes: &Buffer) -> Result<Buffer, TensorError> {
        let name = bytes.name();
        let find = |entries: &Entries| entries.copies.get(&name).and_then(BufferName::buffer);
        if let Some(found) = find(&self.entries()) {
            return Ok(found);
        }
        let copy =
            if bytes.is_mapped() { bytes.unmapped() } else { Buffer::copy_of(bytes.as_ref()) };
        let copy = copy?;
        let mut entries = self.entries();
        // Another session may have copied them meanwhile.
        if let Some(found) = find(&entries) {
            return Ok(found);
        }
        if entries.copies.len() >= entries.sweep_copies_at {
            entries.copies.retain(|_, copy| copy.buffer().is_some());
            entries.sweep_copies_at = 2 * entries.copies.len() + 64;
        }
        entries.copies.insert(name, copy.name());
        Ok(copy)
    }

    /// Copies the elements of a tensor out of mapped files.
    pub(crate) fn copy_if_mapped(&self, tensor: Tensor) -> Result<Tensor, TensorError> {
        match tensor.buffer().filter(|bytes| bytes.is_mapped()) {
            Some(bytes) => {
                let copy = self.copy_of(bytes)?;
                tensor.with_buffer(copy)
            }
            None => Ok(tensor),
        }
    }

    /// Returns the number of bytes of copies that sessions hold.
    pub fn copied_bytes(&self) -> usize {
        let entries = self.entries();
        let copies = entries.copies.values();
        copies.filter_map(BufferName::buffer).map(|copy| copy.len()).sum()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find<T: Any + Send + Sync>(&self, key: &WeightKey) -> Option<Arc<T>> {
        let found = self.entries().packed.get(key).and_then(Weak::upgrade);
        found?.downcast().ok()
    }

    fn keep<T: Any + Send + Sync>(&self, key: WeightKey, packed: &Arc<T>) {
        let mut entries = self.entries();
        if entries.packed.len() >= entries.sweep_at {
            entries.packed.retain(|_, packed| packed.strong_count() > 0);
            entries.sweep_at = 2 * entries.packed.len() + 64;
        }
        let packed: Arc<dyn Any + Send + Sync> = packed.clone();
        entries.packed.insert(key, Arc::downgrade(&packed));
    }
}

/// Limit: bytes of packed fills in a session, which cost the file nothing.
const FILL_BYTES: usize = 1 << 30;

/// Packer of a session's constants, which charges those that the file does not store.
pub(crate) struct Packer<'a> {
    shared: &'a SharedWeights,
    pub(crate) account: &'a Account,
    /// Bytes that packed fills may still take.
    fills_left: Cell<usize>,
    /// Whether nothing is actually packed, because the session is only inspected.
    looks: bool,
}

/// Constant that a kernel has packed.
pub(crate) enum Packed<T> {
    Made(Arc<T>),
    /// The session is only inspected.
    Outline,
}

impl<T> Packed<T> {
    pub(crate) fn get(&self) -> Result<&Arc<T>, KernelError> {
        match self {
            Packed::Made(made) => Ok(made),
            Packed::Outline => fail!("the session was built without weights and cannot run"),
        }
    }
}

/// Data that a run computes with.
pub(crate) enum Prepared<T> {
    /// Kept for later runs.
    Kept(Arc<T>),
    ForThisRun(T),
}

impl<T> Deref for Prepared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Prepared::Kept(kept) => kept,
            Prepared::ForThisRun(made) => made,
        }
    }
}

impl<'a> Packer<'a> {
    pub(crate) fn new(shared: &'a SharedWeights, account: &'a Account, looks: bool) -> Self {
        Packer { shared, account, fills_left: Cell::new(FILL_BYTES), looks }
    }

    pub(crate) fn looks(&self) -> bool {
        self.looks
    }

    /// Copies a tensor out of mapped files for a kernel that keeps it.
    pub(crate) fn keep(&self, tensor: &Tensor) -> Result<Tensor, TensorError> {
        if self.looks { Ok(tensor.clone()) } else { self.shared.copy_if_mapped(tensor.clone()) }
    }

    /// Returns a packer that does not pack.
    pub(crate) fn for_inspection(&self) -> Packer<'a> {
        Packer {
            shared: self.shared,
            account: self.account,
            fills_left: self.fills_left.clone(),
            looks: true,
        }
    }

    /// Returns a constant in a form that a session holds, or packs it into `bytes` bytes; `None` if
    /// memory is refused.
    pub(crate) fn find_or_pack<T, E>(
        &self,
        constant: &Weight<'_>,
        form: Form,
        bytes: usize,
        pack: impl FnOnce(Unpacked<'_>) -> Result<T, E>,
    ) -> Result<Option<Packed<T>>, E>
    where
        T: Any + Send + Sync,
    {
        let (elements, is_fill) = match constant.elements {
            Elements::All(elements) => (Some(elements), false),
            Elements::Fill(one) => (Some(one), true),
            Elements::Unmade => (None, false),
        };
        let key = elements.and_then(Tensor::buffer).map(|buffer| WeightKey {
            bytes: buffer.name(),
            data_type: constant.data_type,
            dims: constant.dims.into(),
            form,
        });
        if let Some(found) = key.as_ref().and_then(|key| self.shared.find(key)) {
            return Ok(Some(Packed::Made(found)));
        }
        if is_fill && bytes > self.fills_left.get() {
            return Ok(None);
        }
        if !self.looks && !is_available(bytes) {
            return Ok(None);
        }
        if !constant.stored && self.account.charge(bytes).is_err() {
            return Ok(None);
        }
        if is_fill {
            self.fills_left.set(self.fills_left.get() - bytes);
        }
        let elements = match elements {
            Some(elements) if !self.looks => elements,
            _ => return Ok(Some(Packed::Outline)),
        };
        // Others may pack it at the same time, which only duplicates work.
        let unpacked = Unpacked { elements, is_fill };
        let packed = Arc::new(pack_once(unpacked, pack)?);
        if let Some(key) = key {
            self.shared.keep(key, &packed);
        }
        Ok(Some(Packed::Made(packed)))
    }
}

/// Whether the system grants that much memory. Packing itself cannot handle a refusal.
fn is_available(bytes: usize) -> bool {
    /// Limit: bytes below which no refusal is expected.
    const WORTH_ASKING: usize = 16 << 20;
    bytes < WORTH_ASKING || Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

impl fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWeights({} in use)", self.in_use())
    }
}

/// Bytes of a constant that is being packed.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked<'a> {
    elements: &'a Tensor,
    /// Whether the only element is repeated.
    is_fill: bool,
}

impl<'a> Unpacked<'a> {
    /// Returns the bytes of the repeated element, if the constant is a fill.
    pub(crate) fn fill(&self) -> Option<&'a [u8]> {
        self.is_fill.then(|| self.elements.bytes())
    }

    /// Returns all bytes, to be read in any order.
    pub(crate) fn read_all(&self) -> &'a [u8] {
        if let Some(buffer) = self.elements.buffer() {
            buffer.fetch_pages();
        }
        self.elements.bytes()
    }

    /// Returns all bytes, to be read range by range, each announced by [`Unpacked::announce`].
    pub(crate) fn read_in_order(&self) -> &'a [u8] {
        self.elements.bytes()
    }

    /// Announces the next range. Ranges have one size, except for the last. Frees the pages before
    /// it, if they only cache a file.
    pub(crate) fn announce(&self, range: Range<usize>) {
        let Some(buffer) = self.elements.buffer() else {
            return;
        };
        let before = range.start.saturating_sub(range.len())..range.start;
        if let (Ok(before), Ok(next)) = (buffer.slice(before), buffer.slice(range)) {
            before.give_back_pages();
            next.fetch_pages();
        }
    }
}

/// Calls `pack` on the bytes of a constant, and frees pages that only cache a file afterwards.
fn pack_once<R>(constant: Unpacked<'_>, pack: impl FnOnce(Unpacked<'_>) -> R) -> R {
    let packed = pack(constant);
    if let Some(buffer) = constant.elements.buffer() {
        buffer.give_back_pages();
    }
    packed
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use sardonyx_tensor::{Buffer, Pages};

    use super::*;

    #[test]
    fn constants_of_other_types_are_others_even_in_one_place() {
        let buffer = Buffer::from(vec![0u8; 8]);
        let weights = SharedWeights::default();
        let form =
            || Form::Right { isa: Isa::Portable, precision: Precision::Exact, transposed: false };
        let pack = |data_type: DataType| {
            let constant = Tensor::from_buffer(data_type, [2, 2], buffer.clone()).unwrap();
            let account = Account::new(None, 0);
            let packer = Packer::new(&weights, &account, false);
            let weight = Weight {
                data_type,
                dims: constant.dims(),
                elements: Elements::All(&constant),
                stored: true,
            };
            let pack = |_: Unpacked<'_>| Ok::<_, Infallible>(data_type);
            match packer.find_or_pack(&weight, form(), 8, pack).unwrap() {
                Some(Packed::Made(packed)) => packed,
                _ => panic!("it is packed"),
            }
        };
        let kept = [pack(DataType::Float16), pack(DataType::Bfloat16)];
        assert_eq!([*kept[0], *kept[1]], [DataType::Float16, DataType::Bfloat16]);
        assert!(Arc::ptr_eq(&kept[0], &pack(DataType::Float16)));
    }

    /// Records the operations on its pages.
    #[derive(Default)]
    struct Noting {
        bytes: Vec<u8>,
        noted: Mutex<Vec<(&'static str, Range<usize>)>>,
    }

    impl AsRef<[u8]> for Noting {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    impl Pages for Noting {
        fn fetch(&self, range: Range<usize>) {
            self.noted.lock().unwrap().push(("fetch", range));
        }

        fn give_back(&self, range: Range<usize>) {
            self.noted.lock().unwrap().push(("give back", range));
        }
    }

    #[test]
    fn pages_of_what_is_read_in_order_go_back_range_by_range() {
        let pages = Arc::new(Noting { bytes: vec![0; 100], ..Noting::default() });
        let buffer = Buffer::from_pages(pages.clone()).slice(10..90).unwrap();
        let constant = Tensor::from_buffer(DataType::Float, [5, 4], buffer).unwrap();
        let unpacked = Unpacked { elements: &constant, is_fill: false };
        pack_once(unpacked, |constant| {
            assert_eq!(constant.read_in_order().len(), 80);
            for range in [0..32, 32..64, 64..80] {
                constant.announce(range);
            }
        });
        let noted = pages.noted.lock().unwrap().clone();
        assert_eq!(
            noted,
            [
                ("give back", 10..10),
                ("fetch", 10..42),
                ("give back", 10..42),
                ("fetch", 42..74),
                // The last range is shorter; the rest goes back in the end.
                ("give back", 58..74),
                ("fetch", 74..90),
                ("give back", 10..90),
            ]
        );
    }
}
