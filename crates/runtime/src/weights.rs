//! Packed constants that the sessions of a model share.
//!
//! What a kernel makes of a constant depends on the bytes of the constant and on a few decisions, its [`Form`]. A session
//! that is made while another holds the same bytes in the same form takes that. Constants are told apart by where their bytes
//! are, which costs nothing; bytes that only look alike are packed again.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sardonyx_kernels::Isa;
use sardonyx_kernels::conv::ConvParams;
use sardonyx_tensor::{BufferName, DataType, Dims, Tensor};

use crate::precision::Precision;

/// Where sessions find what others have packed. Clones are the same place; it keeps nothing alive by itself.
#[derive(Clone, Default)]
pub struct SharedWeights(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    packed: HashMap<Key, Weak<dyn Any + Send + Sync>>,
    /// With so many entries it is time to look for those that nobody uses any more.
    sweep_at: usize,
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
    /// The right operand of products; `turned` if the constant is its transpose.
    Right {
        isa: Isa,
        precision: Precision,
        turned: bool,
    },
    /// The weights of a convolution.
    Convolution { isa: Isa, params: ConvParams },
}

impl SharedWeights {
    /// How many packed constants sessions hold.
    pub fn in_use(&self) -> usize {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let packed = entries.packed.values();
        packed.filter(|packed| packed.strong_count() > 0).count()
    }

    /// A constant in a form that somebody has, or packed now.
    pub(crate) fn find_or_pack<T, E>(
        &self,
        constant: &Tensor,
        form: Form,
        pack: impl FnOnce(Unpacked<'_>) -> Result<T, E>,
    ) -> Result<Arc<T>, E>
    where
        T: Any + Send + Sync,
    {
        let key = constant.buffer().map(|buffer| Key {
            bytes: buffer.name(),
            data_type: constant.data_type(),
            dims: constant.dims().into(),
            form,
        });
        let entries = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(key) = &key {
            let found = entries().packed.get(key).and_then(Weak::upgrade);
            if let Some(found) = found.and_then(|found| found.downcast().ok()) {
                return Ok(found);
            }
        }
        // Others may pack meanwhile, at worst the same.
        let packed = Arc::new(pack_once(constant, pack)?);
        if let Some(key) = key {
            let mut entries = entries();
            if entries.packed.len() >= entries.sweep_at {
                entries.packed.retain(|_, packed| packed.strong_count() > 0);
                entries.sweep_at = 2 * entries.packed.len() + 64;
            }
            let packed: Arc<dyn Any + Send + Sync> = packed.clone();
            entries.packed.insert(key, Arc::downgrade(&packed));
        }
        Ok(packed)
    }
}

impl fmt::Debug for SharedWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedWeights({} in use)", self.in_use())
    }
}

/// The bytes of a constant that is being packed.
pub(crate) struct Unpacked<'a>(&'a Tensor);

impl<'a> Unpacked<'a> {
    /// All of them, to be read in any order.
    pub(crate) fn at_once(&self) -> &'a [u8] {
        if let Some(buffer) = self.0.buffer() {
            buffer.fetch_pages();
        }
        self.0.bytes()
    }

    /// All of them, to be read range after range: [`Unpacked::next`] is told of each.
    pub(crate) fn in_order(&self) -> &'a [u8] {
        self.0.bytes()
    }

    /// Ranges are of one size, but for the last. Memory that only holds a copy of what is before them in a file is given back.
    pub(crate) fn next(&self, range: Range<usize>) {
        let Some(buffer) = self.0.buffer() else {
            return;
        };
        let before = range.start.saturating_sub(range.len())..range.start;
        if let (Ok(before), Ok(next)) = (buffer.slice(before), buffer.slice(range)) {
            before.give_back_pages();
            next.fetch_pages();
        }
    }
}

/// Lets `pack` read the bytes of a constant once; memory that only holds a copy of a file is given back afterwards.
fn pack_once<R>(constant: &Tensor, pack: impl FnOnce(Unpacked<'_>) -> R) -> R {
    let packed = pack(Unpacked(constant));
    if let Some(buffer) = constant.buffer() {
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
        let form = || Form::Right {
            isa: Isa::Portable,
            precision: Precision::Exact,
            turned: false,
        };
        let pack = |data_type: DataType| {
            let constant = Tensor::from_buffer(data_type, [2, 2], buffer.clone()).unwrap();
            let packed =
                weights.find_or_pack(&constant, form(), |_| Ok::<_, Infallible>(data_type));
            packed.unwrap()
        };
        let kept = [pack(DataType::Float16), pack(DataType::Bfloat16)];
        assert_eq!(
            [*kept[0], *kept[1]],
            [DataType::Float16, DataType::Bfloat16]
        );
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
        let pages = Arc::new(Noting {
            bytes: vec![0; 100],
            ..Noting::default()
        });
        let buffer = Buffer::from_pages(pages.clone()).slice(10..90).unwrap();
        let constant = Tensor::from_buffer(DataType::Float, [5, 4], buffer).unwrap();
        pack_once(&constant, |constant| {
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
