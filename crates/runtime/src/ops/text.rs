//! Operators on strings: concatenation, splitting, matching, normalization, counting.
//!
//! Elements are bytes. Only operators on characters require UTF-8.

#[cfg(feature = "strings")]
pub(super) mod full_match;
#[cfg(feature = "strings")]
mod longest;
#[cfg(feature = "strings")]
pub(super) mod normalize;
#[cfg(feature = "strings")]
mod re2;
#[cfg(feature = "strings")]
pub(super) mod split;
#[cfg(feature = "strings")]
pub(super) mod tf_idf;
#[cfg(feature = "strings")]
pub(super) mod tokenizer;

use sardonyx_kernels::{Ended, Pace};
use sardonyx_tensor::shape::{NdLoop, broadcast_dims, elems};
use sardonyx_tensor::{StringArray, Tensor, TensorView, Value, ViewData};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

/// Binds `StringConcat`.
pub(crate) fn bind_concat(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Concat))
}

/// Returns the strings of an input.
fn strings_of<'a>(view: &TensorView<'a>) -> Result<&'a StringArray, KernelError> {
    match view.data() {
        ViewData::Strings(strings) => Ok(strings),
        ViewData::Bytes(_) => fail!("the input is {}, not strings", view.data_type()),
    }
}

/// Work: operations that a text counts in addition to its bytes, before the loop checks for
/// cancellation.
const PER_TEXT: usize = 32;

/// Yields the strings of an input in row-major order, until the run is cancelled.
pub(in crate::ops) fn texts<'a>(
    view: &TensorView<'a>,
) -> Result<impl ExactSizeIterator<Item = Result<&'a [u8], Ended>> + Clone + use<'a>, KernelError> {
    let strings = strings_of(view)?;
    if !view.is_contiguous() {
        fail!("the input does not lie in rows");
    }
    let (offset, len) = (view.offset(), view.len());
    let pace = Pace::default();
    Ok((offset..offset + len).map(move |index| {
        let text = strings.get(index);
        // Processing a text takes about as long as that many comparisons.
        pace.count(PER_TEXT + text.len()).map(|()| text)
    }))
}

/// Sets an output of strings: one per element of `dims`, of at most `bytes` bytes in total. Charges
/// the memory first, as sizes come from data.
fn set_strings(
    call: &mut Call<'_>,
    index: usize,
    dims: &[usize],
    bytes: usize,
    fill: impl FnOnce(&mut StringArray) -> Result<(), KernelError>,
) -> Result<(), KernelError> {
    let count = elems(dims)?;
    let held = count.saturating_mul(size_of::<usize>()).saturating_add(bytes);
    call.reserve(held)?;
    let mut strings = StringArray::try_with_capacity(count, bytes)?;
    fill(&mut strings)?;
    let tensor = Tensor::from_strings(dims, strings)?;
    call.uncount(held);
    call.set_output(index, Value::Tensor(tensor))
}

/// Sets an output to existing texts.
pub(in crate::ops) fn set_texts<'t>(
    call: &mut Call<'_>,
    index: usize,
    dims: &[usize],
    texts: impl Iterator<Item = &'t [u8]> + Clone,
) -> Result<(), KernelError> {
    let bytes = texts.clone().map(<[u8]>::len).fold(0, usize::saturating_add);
    set_strings(call, index, dims, bytes, |strings| {
        texts.for_each(|text| strings.push(text));
        Ok(())
    })
}

struct Concat;

impl Kernel for Concat {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = broadcast_dims(&[call.tensor(0)?.dims(), call.tensor(1)?.dims()])?;
        let a = call.tensor(0)?.broadcast_to(&dims)?;
        let b = call.tensor(1)?.broadcast_to(&dims)?;
        let (left, right) = (strings_of(&a)?, strings_of(&b)?);
        let walk = NdLoop::new(&dims, [&a.strides(), &b.strides()])?;
        let [a_step, b_step] = walk.inner_strides();
        let (a_start, b_start) = (a.offset() as isize, b.offset() as isize);
        let each = |with: &mut dyn FnMut(&[u8], &[u8])| {
            walk.for_each(|[a_run, b_run]| {
                for i in 0..walk.inner_len() as isize {
                    let left = left.get((a_start + a_run + i * a_step) as usize);
                    with(left, right.get((b_start + b_run + i * b_step) as usize));
                }
            });
        };
        let mut bytes = 0usize;
        each(&mut |left, right| bytes = bytes.saturating_add(left.len() + right.len()));
        set_strings(call, 0, &dims, bytes, |strings| {
            each(&mut |left, right| strings.push_parts([left, right]));
            Ok(())
        })
    }

    fn describe(&self) -> String {
        "concatenate strings".to_string()
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, strings};

    #[test]
    fn strings_are_put_together() {
        let join = |a: &Tensor, b: &Tensor| run("StringConcat", &[], &[Some(a), Some(b)], 1);
        let row = strings(&[3], &["a", "", "語"]);
        let column = strings(&[2, 1], &["x", ""]);
        // (left, right, dimensions of the result, result)
        let rows: [(&Tensor, &Tensor, &[usize], &[&str]); 6] = [
            (&row, &row, &[3], &["aa", "", "語語"]),
            (&row, &column, &[2, 3], &["ax", "x", "語x", "a", "", "語"]),
            (&column, &row, &[2, 3], &["xa", "x", "x語", "a", "", "語"]),
            (&strings(&[], &["a"]), &strings(&[], &["b"]), &[], &["ab"]),
            (&strings(&[], &["a"]), &row, &[3], &["aa", "a", "a語"]),
            (&strings::<&str>(&[0, 1], &[]), &row, &[0, 3], &[]),
        ];
        for (a, b, dims, expected) in rows {
            assert_eq!(join(a, b).unwrap()[0], strings(dims, expected));
        }
        // Halves of a character, and bytes that are none.
        let found = join(&strings(&[2], &[b"\xc3", b"\xff"]), &strings(&[2], &[b"\xa4", b"\0"]));
        assert_eq!(found.unwrap()[0], strings(&[2], &["ä".as_bytes(), b"\xff\0"]));
        let refusals = [
            (
                join(&row, &strings(&[2], &["", ""])),
                "shapes [[3], [2]] do not broadcast: 3 and 2 in dim 1 from the back",
            ),
            (join(&row, &Tensor::scalar(1f32)), "the input is float, not strings"),
        ];
        for (found, refusal) in refusals {
            assert_eq!(found.unwrap_err(), refusal);
        }
    }
}
