//! Texts by key, the object `OrtKeyValuePairs`.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::ptr;

use crate::failure::{answer_or, release, to_c_string};
use crate::handles::{Handle, Object, give};
use crate::pointers::{Out, Text};

/// Texts by key, in the order of the keys.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pairs: BTreeMap<CString, CString>,
    /// Addresses of the keys and of their values, for callers.
    keys: Vec<Address>,
    values: Vec<Address>,
}

/// Address of a text in the pairs.
#[repr(transparent)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address(*const c_char);

// SAFETY: the text belongs to the pairs that have the address, and is only read.
#[allow(unsafe_code)]
unsafe impl Send for Address {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl Sync for Address {}

impl Object for Pairs {
    const NAME: &'static str = "OrtKeyValuePairs";
}

impl Pairs {
    /// Sets a value.
    pub(crate) fn set(&mut self, key: &str, value: &str) {
        self.pairs.insert(to_c_string(key), to_c_string(value));
        self.collect_addresses();
    }

    fn collect_addresses(&mut self) {
        self.keys = self.pairs.keys().map(|key| Address(key.as_ptr())).collect();
        self.values = self.pairs.values().map(|value| Address(value.as_ptr())).collect();
    }
}

pub(crate) extern "C" fn create_key_value_pairs(out: Out<*mut Pairs>) {
    answer_or("CreateKeyValuePairs", (), || {
        let out = out.demand()?;
        out.set(give(Pairs::default()))
    });
}

pub(crate) extern "C" fn add_key_value_pair(mut pairs: Handle<Pairs>, key: Text, value: Text) {
    answer_or("AddKeyValuePair", (), || {
        let (key, value) = (key.read("key")?, value.read("value")?);
        if !key.is_empty() {
            pairs.change()?.set(&key, &value);
        }
        Ok(())
    });
}

pub(crate) extern "C" fn get_key_value(pairs: Handle<Pairs>, key: Text) -> *const c_char {
    answer_or("GetKeyValue", ptr::null(), || {
        let key = to_c_string(&key.read("key")?);
        Ok(pairs.get()?.pairs.get(&key).map_or(ptr::null(), |value| value.as_ptr()))
    })
}

pub(crate) extern "C" fn get_key_value_pairs(
    pairs: Handle<Pairs>,
    keys: Out<*const Address>,
    values: Out<*const Address>,
    count: Out<usize>,
) {
    answer_or("GetKeyValuePairs", (), || {
        let pairs = pairs.get()?;
        keys.set(pairs.keys.as_ptr())?;
        values.set(pairs.values.as_ptr())?;
        count.set(pairs.keys.len())
    });
}

pub(crate) extern "C" fn remove_key_value_pair(mut pairs: Handle<Pairs>, key: Text) {
    answer_or("RemoveKeyValuePair", (), || {
        let key = to_c_string(&key.read("key")?);
        let pairs = pairs.change()?;
        pairs.pairs.remove(&key);
        pairs.collect_addresses();
        Ok(())
    });
}

pub(crate) extern "C" fn release_key_value_pairs(pairs: Handle<Pairs>) {
    release("ReleaseKeyValuePairs", pairs);
}
