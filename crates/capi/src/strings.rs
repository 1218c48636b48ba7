//! Tensors of strings: reading and filling them.

use std::ffi::c_char;
use std::sync::{MutexGuard, PoisonError};

use crate::failure::{Error, StatusPointer, answer, argument, demand};
use crate::handles::Handle;
use crate::pointers::{Array, Out, Text};
use crate::values::{Strings, Value};

fn lock(value: &Value) -> Result<MutexGuard<'_, Strings>, Error> {
    let strings = value.strings();
    let strings = strings.ok_or_else(|| argument("the OrtValue is not a tensor of strings"))?;
    Ok(strings.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) extern "C" fn fill_string_tensor(
    value: Handle<Value>,
    strings: Array<Text>,
    count: usize,
) -> StatusPointer {
    answer("FillStringTensor", || {
        let given = strings.read(count, "strings")?.iter();
        let given: Option<Vec<Vec<u8>>> =
            given.map(|string| string.bytes().map(<[u8]>::to_vec)).collect();
        let given = given.ok_or_else(|| argument("a string is a null pointer"))?;
        lock(value.get()?)?.fill(given)
    })
}

pub(crate) extern "C" fn fill_string_tensor_element(
    value: Handle<Value>,
    string: Text,
    index: usize,
) -> StatusPointer {
    answer("FillStringTensorElement", || {
        let string = string.bytes().ok_or_else(|| argument("the string is a null pointer"))?;
        *lock(value.get()?)?.change_one(index)? = string.to_vec();
        Ok(())
    })
}

pub(crate) extern "C" fn get_resized_string_tensor_element_buffer(
    value: Handle<Value>,
    index: usize,
    len: usize,
    out: Out<*mut c_char>,
) -> StatusPointer {
    answer("GetResizedStringTensorElementBuffer", || {
        let out = out.demand()?;
        let mut strings = lock(value.get()?)?;
        let element = strings.change_one(index)?;
        let more = len.saturating_sub(element.len());
        demand(element.try_reserve(more).is_ok(), || format!("not enough memory for {len} bytes"))?;
        element.resize(len, 0);
        out.set(element.as_mut_ptr().cast())
    })
}

pub(crate) extern "C" fn get_string_tensor_data_length(
    value: Handle<Value>,
    out: Out<usize>,
) -> StatusPointer {
    answer("GetStringTensorDataLength", || {
        let mut total = 0;
        lock(value.get()?)?.for_each(|string| total += string.len());
        out.set(total)
    })
}

pub(crate) extern "C" fn get_string_tensor_content(
    value: Handle<Value>,
    place: Out<u8>,
    room: usize,
    offsets: Out<usize>,
    count: usize,
) -> StatusPointer {
    answer("GetStringTensorContent", || {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        lock(value.get()?)?.for_each(|string| {
            starts.push(bytes.len());
            bytes.extend_from_slice(string);
        });
        demand(starts.len() == count, || {
            format!("there is room for {count} offsets of {} strings", starts.len())
        })?;
        demand(bytes.len() <= room, || {
            format!("the strings have {} bytes, and there is room for {room}", bytes.len())
        })?;
        place.set_all(&bytes)?;
        offsets.set_all(&starts)
    })
}

pub(crate) extern "C" fn get_string_tensor_element_length(
    value: Handle<Value>,
    index: usize,
    out: Out<usize>,
) -> StatusPointer {
    answer("GetStringTensorElementLength", || out.set(lock(value.get()?)?.get(index)?.len()))
}

pub(crate) extern "C" fn get_string_tensor_element(
    value: Handle<Value>,
    room: usize,
    index: usize,
    place: Out<u8>,
) -> StatusPointer {
    answer("GetStringTensorElement", || {
        let strings = lock(value.get()?)?;
        let string = strings.get(index)?;
        demand(string.len() <= room, || {
            format!("the string has {} bytes, and there is room for {room}", string.len())
        })?;
        place.set_all(string)
    })
}
