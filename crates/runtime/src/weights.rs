//! Packed constants that the sessions of a model share.
//!
//! What a kernel makes of a constant depends on the bytes of the constant and on a few decisions,
//! its [`Form`]. A session that is made while another holds the same bytes in the same form takes
//! that. Constants are told apart by where their bytes are, which costs nothing; bytes that only
//! look alike are packed again.
//!
//! What kernels read as it is leaves the mapped file that it is in: another program may change or
//! shorten the file while the session lives. Sessions of a model share these copies too, which are
//! told apart by where in the file the bytes are.

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

/// A constant, for kernels that take it in in a form of their own.
#[derive(Clone, Copy)]
pub(crate) struct Weight<'a> {
    pub(crate) data_type: DataType,
    pub(crate) dims: &'a [usize],
    pub(crate) elements: Elements<'a>,
    /// Whether the file stores it as it is.
    pub(crate) stored: bool,
}

/// The elements of a constant.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    All(&'a Tensor),
    /// One throughout, given as a tensor of one element.
    Fill(&'a Tensor),
    /// They have not been computed, because the session is only looked at.
    Unmade,
}

impl Weight<'_> {
    /// How many elements there are.
    pub(crate) fn len(&self) -> usize {
        self.dims.iter().product()
    }
}

/// Where sessions find what others have packed. Clones are the same place; it keeps nothing alive
/// by itself.
#[derive(Clone, Default)]
pub struct SharedWeights(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    packed: HashMap<Key, Weak<dyn Any + Send + Sync>>,
    /// By bytes that are mapped, or lie where kernels cannot read them: their copies.
    copies: HashMap<BufferName, BufferName>,
    /// With so many packed constants it is time to look for those that nobody uses any more.
    sweep_at: usize,
    /// With so many copies it is time to look for those that are gone.
    sweep_copies_at: usize,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    bytes: BufferName,
    data_type: DataType,
    dims: Dims,
    form: Form,
}

/// What is made of a constant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// The right operand of products; `transposed` if the constant is its transpose.
    Right { isa: Isa, precision: Precision, transposed: bool },
    /// The weights of a convolution, each channel multiplied with a number if there are some.
    Convolution { isa: Isa, params: ConvParams, algorithm: Algorithm, scale: Option<Bits> },
}

/// Numbers that are the same if their bits are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Bits(Box<[u64]>);

impl Bits {
    pub(crate) fn of(numbers: &[f64]) -> Bits {
        Bits(numbers.iter().map(|number| number.to_bits()).collect())
    }
}

impl SharedWeights {
    /// How many packed constants sessions hold.
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
        // Another session may have been made meanwhile.
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

    /// A tensor with its elements outside of mapped files.
    pub(crate) fn unmapped(&self, tensor: Tensor) -> Result<Tensor, TensorError> {
        match tensor.buffer().filter(|bytes| bytes.is_mapped()) {
            Some(bytes) => {
                let copy = self.copy_of(bytes)?;
                tensor.with_buffer(copy)
            }
            None => Ok(tensor),
        }
    }

    /// Number of bytes of copies that sessions hold.
    pub fn copied_bytes(&self) -> usize {
        let entries = self.entries();
        let copies = entries.copies.values();
        copies.filter_map(BufferName::buffer).map(|copy| copy.len()).sum()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find<T: Any + Send + Sync>(&self, key: &Key) -> Option<Arc<T>> {
        let found = self.entries().packed.get(key).and_then(Weak::upgrade);
        found?.downcast().ok()
    }

    fn keep<T: Any + Send + Sync>(&self, key: Key, packed: &Arc<T>) {
        let mut entries = self.entries();
        if entries.packed.len() >= entries.sweep_at {
            entries.packed.retain(|_, packed| packed.strong_count() > 0);
            entries.sweep_at = 2 * entries.packed.len() + 64;
        }
        let packed: Arc<dyn Any + Send + Sync> = packed.clone();
        entries.packed.insert(key, Arc::downgrade(&packed));
    }
}

/// Limit: bytes that packed forms of constants of one value may take in a session: they cost the
/// file nothing.
const FILL_BYTES: usize = 1 << 30;

/// Packs the constants of a session and counts what the file does not store.
pub(crate) struct Packer<'a> {
    shared: &'a SharedWeights,
    pub(crate) account: &'a Account,
    /// Bytes that constants of one value may still take.
    fills_left: Cell<usize>,
    /// Whether nothing is packed in fact, because the session is only looked at.
    looks: bool,
}

/// What a kernel has of a constant that it took in.
pub(crate) enum Packed<T> {
    Made(Arc<T>),
    /// The session is only looked at.
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

/// What a run computes with.
pub(crate) enum Prepared<T> {
    /// For later runs as well.
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

    /// A tensor of the model for a kernel that keeps it, outside of mapped files.
    pub(crate) fn kept(&self, tensor: &Tensor) -> Result<Tensor, TensorError> {
        if self.looks { Ok(tensor.clone()) } else { self.shared.unmapped(tensor.clone()) }
    }

    /// The same for looking only.
    pub(crate) fn looking(&self) -> Packer<'a> {
        Packer {
            shared: self.shared,
            account: self.account,
            fills_left: self.fills_left.clone(),
            looks: true,
        }
    }

    /// A constant in a form that somebody has, or packed now into `bytes`; `None` where these are
    /// not to be had.
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
        let key = elements.and_then(Tensor::buffer).map(|buffer| Key {
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
        if !self.looks && !is_to_be_had(bytes) {
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
        // Others may pack meanwhile, at worst the same.
        let unpacked = Unpacked { elements, is_fill };
        let packed = Arc::new(pack_once(unpacked, pack)?);
        if let Some(key) = key {
            self.shared.keep(key, &packed);
        }
        Ok(Some(Packed::Made(packed)))
    }
}

/// Whether the system would give as much memory. Packing itself cannot go on without.
fn is_to_be_had(bytes: usize) -> bool {
    /// Limit: bytes below which the system is not asked.
    const WORTH_ASKING: usize = 16 << 20;
    bytes < WORTH_ASKING || Vec::<u8>::new().try_reserve_exact(bytes).is_ok()
}

impl fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWeights({} in use)", self.in_use())
    }
}

/// The bytes of a constant that is being packed.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked<'a> {
    elements: &'a Tensor,
    /// Whether the only element is that of all places.
    is_fill: bool,
}

impl<'a> Unpacked<'a> {
    /// The bytes of the one element that all places have, if that is so.
    pub(crate) fn fill(&self) -> Option<&'a [u8]> {
        self.is_fill.then(|| self.elements.bytes())
    }

    /// All of them, to be read in any order.
    pub(crate) fn at_once(&self) -> &'a [u8] {
        if let Some(buffer) = self.elements.buffer() {
            buffer.fetch_pages();
        }
        self.elements.bytes()
    }

    /// All of them, to be read range after range: [`Unpacked::next`] is told of each.
    pub(crate) fn in_order(&self) -> &'a [u8] {
        self.elements.bytes()
    }

    /// Ranges are of one size, but for the last. Memory that only holds a copy of what is before
    /// them in a file is given back.
    pub(crate) fn next(&self, range: Range<usize>) {
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

/// Lets `pack` read the bytes of a constant once; memory that only holds a copy of a file is given
/// back afterwards.
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

    /// Notes what is done with its pages.
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
            assert_eq!(constant.in_order().len(), 80);
            for range in [0..32, 32..64, 64..80] {
                constant.next(range);
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
