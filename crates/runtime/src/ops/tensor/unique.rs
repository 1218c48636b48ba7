//! Unique: lists distinct elements or slices.

use sardonyx_kernels::unique::{Groups, KeyRows, NAN_KEY, unique};
use sardonyx_kernels::{Ended, Loops, Pool};
use sardonyx_tensor::shape::normalize_axis;
use sardonyx_tensor::{Bool8, Complex64, Complex128, DataType, Dims, Element, StringArray};

use super::moves::move_elements;
use super::select::Slices;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::ops::math::softmax::split_at_axis;

/// Binds `Unique`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (axis, sorted) = (site.int("axis"), site.need_int("sorted")? != 0);
    if site.elem(0)? == DataType::String {
        return Ok(Box::new(Unique::new::<Strings>(axis, sorted)));
    }
    for_element!(
        site, site.elem(0)?,
        [f32, f64, half::f16, half::bf16, i8, i16, i32, i64, u8, u16, u32, u64, Bool8, Complex64, Complex128],
        T => Unique::new::<T>(axis, sorted)
    )
}

struct Unique {
    /// Axis; `None` for elements of the flattened input.
    axis: Option<i64>,
    /// Whether results are sorted; otherwise they are in the order of first occurrence.
    sorted: bool,
    /// Number of keys of an element.
    keys_per_element: usize,
    has_nan: bool,
    write_keys: WriteKeys,
}

impl Unique {
    fn new<T: Keyed>(axis: Option<i64>, sorted: bool) -> Unique {
        let (keys_per_element, has_nan, write_keys) = (T::KEYS, T::HAS_NAN, T::keys);
        Unique { axis, sorted, keys_per_element, has_nan, write_keys }
    }
}

/// Function that writes the keys of elements: see [`Keyed::keys`].
type WriteKeys = fn(&Call<'_>, [usize; 3], &mut [u64]) -> Result<(), KernelError>;

impl Kernel for Unique {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let mut dims = Dims::from_slice(&[data.len()]);
        let (mut at, mut sizes) = (0, [1, data.len(), 1]);
        if let Some(axis) = self.axis {
            dims = data.dims().into();
            (at, sizes) = (normalize_axis(axis, dims.len())?, split_at_axis(&dims, axis)?);
        }
        let (len, width) = (sizes[1], sizes[0] * sizes[2] * self.keys_per_element);
        let mut keys = call.scratch::<u64>(len.saturating_mul(width))?;
        (self.write_keys)(call, sizes, &mut keys)?;
        if self.keys_per_element > 1 && self.axis.is_none() {
            // Complex numbers with a NaN part count as one number.
            let with_nan = |number: &&mut [u64]| number.contains(&NAN_KEY);
            keys.chunks_exact_mut(self.keys_per_element)
                .filter(with_nan)
                .for_each(|number| number.fill(NAN_KEY));
        }
        // As in numpy, NaN elements are equal, but slices with NaN are not.
        let nan_differs = self.has_nan && self.axis.is_some();
        let mut order = call.scratch::<[u64; 2]>(len)?;
        let mut first = call.scratch::<i64>(len)?;
        let mut of_row = call.scratch::<i64>(len)?;
        let mut counts = call.scratch::<i64>(len)?;
        let mut groups = Groups { first: &mut first, of_row: &mut of_row, counts: &mut counts };
        let rows = KeyRows { keys: &keys, width, nan_differs };
        let count = unique(rows, self.sorted, &mut order, &mut groups)?;
        dims[at] = count;
        if call.has_output(0) {
            let indices = &first[..count];
            move_elements(call, 0, &dims, &[data], &Slices { sizes, indices })?;
        }
        for (output, values) in [(1, &first[..count]), (2, &of_row[..]), (3, &counts[..count])] {
            if call.has_output(output) {
                call.output_slice::<i64>(output, &[values.len()])?.copy_from_slice(values);
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "unique".to_string()
    }
}

/// Elements that can be compared by integer keys.
trait Keyed {
    /// Number of keys of an element.
    const KEYS: usize;
    const HAS_NAN: bool;

    /// Writes the keys of the elements of the first input; keys of a slice of the axis are
    /// adjacent.
    fn keys(call: &Call<'_>, sizes: [usize; 3], keys: &mut [u64]) -> Result<(), KernelError>;
}

macro_rules! numbers {
    ($($has_nan:literal: $($t:ty)*;)*) => { $($(
        impl Keyed for $t {
            const KEYS: usize = 1;
            const HAS_NAN: bool = $has_nan;

            fn keys(
                call: &Call<'_>,
                sizes: [usize; 3],
                keys: &mut [u64],
            ) -> Result<(), KernelError> {
                <$t as Loops>::keys(call.exec.pool, sizes.into(), call.slice::<$t>(0)?, keys)?;
                Ok(())
            }
        }
    )*)* };
}

numbers! {
    true: f32 f64 half::f16 half::bf16;
    false: i8 i16 i32 i64 u8 u16 u32 u64;
}

impl Keyed for Bool8 {
    const KEYS: usize = 1;
    const HAS_NAN: bool = false;

    fn keys(call: &Call<'_>, sizes: [usize; 3], keys: &mut [u64]) -> Result<(), KernelError> {
        let bytes: &[u8] = bytemuck::cast_slice(call.slice::<Bool8>(0)?);
        <u8 as Loops>::keys(call.exec.pool, sizes.into(), bytes, keys)?;
        // Any byte but 0 is true.
        keys.iter_mut().for_each(|key| *key = (*key).min(1));
        Ok(())
    }
}

/// Writes the key of the real part, then that of the imaginary one.
fn keys_of_parts<T: Element, P: Element + Loops>(
    call: &Call<'_>,
    [outer, axis, inner]: [usize; 3],
    keys: &mut [u64],
) -> Result<(), KernelError> {
    let parts: &[P] = bytemuck::cast_slice(call.slice::<T>(0)?);
    P::keys(call.exec.pool, [outer, axis, 2 * inner].into(), parts, keys)?;
    Ok(())
}

impl Keyed for Complex64 {
    const KEYS: usize = 2;
    const HAS_NAN: bool = true;

    fn keys(call: &Call<'_>, sizes: [usize; 3], keys: &mut [u64]) -> Result<(), KernelError> {
        keys_of_parts::<Complex64, f32>(call, sizes, keys)
    }
}

impl Keyed for Complex128 {
    const KEYS: usize = 2;
    const HAS_NAN: bool = true;

    fn keys(call: &Call<'_>, sizes: [usize; 3], keys: &mut [u64]) -> Result<(), KernelError> {
        keys_of_parts::<Complex128, f64>(call, sizes, keys)
    }
}

struct Strings;

/// Keys of strings: the number of distinct smaller strings.
impl Keyed for Strings {
    const KEYS: usize = 1;
    const HAS_NAN: bool = false;

    fn keys(call: &Call<'_>, sizes: [usize; 3], keys: &mut [u64]) -> Result<(), KernelError> {
        let tensor = call.tensor(0)?.to_tensor()?;
        let Some(strings) = tensor.strings() else {
            fail!("the input is {}, not strings", tensor.data_type());
        };
        let mut ranks = call.scratch::<u64>(strings.len())?;
        call.reserve(strings.len().saturating_mul(size_of::<(&[u8], usize)>()))?;
        rank_strings(call.exec.pool, strings, &mut ranks, sizes, keys)?;
        Ok(())
    }
}

fn rank_strings(
    pool: &Pool,
    strings: &StringArray,
    ranks: &mut [u64],
    sizes: [usize; 3],
    keys: &mut [u64],
) -> Result<(), Ended> {
    let mut order: Vec<(&[u8], usize)> = strings.iter().zip(0..).collect();
    order.sort_unstable();
    let mut rank = 0;
    for (at, (string, position)) in order.iter().enumerate() {
        if at > 0 && order[at - 1].0 != *string {
            rank += 1;
        }
        ranks[*position] = rank;
    }
    <u64 as Loops>::keys(pool, sizes.into(), ranks, keys)
}

#[cfg(test)]
mod tests {
    use half::f16;
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use super::*;
    use crate::ops::testing::{run, tensor};

    fn check(
        x: &Tensor,
        (axis, sorted): (Option<i64>, i64),
        expected: (&Tensor, &[i64], &[i64], &[i64]),
    ) {
        let mut given = vec![("sorted", Int(sorted))];
        given.extend(axis.map(|axis| ("axis", Int(axis))));
        let found = run("Unique", &given, &[Some(x)], 4).unwrap();
        assert!(found[0].bit_eq(expected.0), "{:?} {:?}", found[0], expected.0);
        for (found, expected) in found[1..].iter().zip([expected.1, expected.2, expected.3]) {
            assert_eq!(*found, tensor(&[expected.len()], expected), "{x:?} {axis:?} {sorted}");
        }
        let alone = run("Unique", &given, &[Some(x)], 1).unwrap();
        assert!(alone[0].bit_eq(expected.0));
    }

    fn strings(dims: &[usize], texts: &[&str]) -> Tensor {
        Tensor::from_strings(dims, texts.iter().collect::<StringArray>()).unwrap()
    }

    #[test]
    fn elements_that_differ() {
        let numbers = [2u8, 1, 1, 3, 4, 3];
        let (up, as_found) = ([1u8, 2, 3, 4], [2u8, 1, 3, 4]);
        macro_rules! of {
            ($t:ty, $number:expr) => {{
                let tensor = |numbers: &[u8]| {
                    let numbers: Vec<$t> = numbers.iter().copied().map($number).collect();
                    tensor(&[numbers.len()], &numbers)
                };
                let x = tensor(&numbers);
                let first: [&[i64]; 3] = [&[1, 0, 3, 4], &[1, 0, 0, 2, 3, 2], &[2, 1, 2, 1]];
                check(&x, (None, 1), (&tensor(&up), first[0], first[1], first[2]));
                check(&x, (Some(-1), 1), (&tensor(&up), first[0], first[1], first[2]));
                let first: [&[i64]; 3] = [&[0, 1, 3, 4], &[0, 1, 1, 2, 3, 2], &[1, 2, 2, 1]];
                check(&x, (None, 0), (&tensor(&as_found), first[0], first[1], first[2]));
            }};
        }
        of!(f32, f32::from);
        of!(f16, |x| f16::from_f32(f32::from(x) - 3.0));
        of!(half::bf16, |x| half::bf16::from_f32(f32::from(x) - 3.0));
        of!(f64, |x| f64::from(x) * 1e300);
        of!(i8, |x| x as i8 - 3);
        of!(i64, |x| i64::from(x) - 3);
        of!(u64, |x| u64::MAX - 4 + u64::from(x));
        of!(Complex64, |x| Complex64 { re: 1.0, im: f32::from(x) });
        of!(Complex128, |x| Complex128 { re: f64::from(x) - 2.0, im: -f64::from(x) });
        let x = strings(&[2, 2], &["b", "", "b", "ab"]);
        let y = strings(&[3], &["", "ab", "b"]);
        check(&x, (None, 1), (&y, &[1, 3, 0], &[2, 0, 2, 1], &[1, 1, 2]));
        let y = strings(&[3], &["b", "", "ab"]);
        check(&x, (None, 0), (&y, &[0, 1, 3], &[0, 1, 0, 2], &[2, 1, 1]));
        let x = tensor(&[4], &[7, 1, 0, 255].map(Bool8));
        check(&x, (None, 1), (&tensor(&[2], &[0, 7].map(Bool8)), &[2, 0], &[1, 1, 0, 1], &[1, 3]));
        let scalar = tensor(&[], &[5i32]);
        check(&scalar, (None, 1), (&tensor(&[1], &[5i32]), &[0], &[0], &[1]));
        check(&tensor::<f32>(&[0], &[]), (None, 1), (&tensor::<f32>(&[0], &[]), &[], &[], &[]));
    }

    #[test]
    fn slices_that_differ() {
        let x = tensor(&[3, 3], &[1f32, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
        let y = tensor(&[2, 3], &[0f32, 3.0, 4.0, 1.0, 0.0, 0.0]);
        check(&x, (Some(0), 1), (&y, &[2, 0], &[1, 1, 0], &[1, 2]));
        let y = tensor(&[2, 3], &[1f32, 0.0, 0.0, 0.0, 3.0, 4.0]);
        check(&x, (Some(-2), 0), (&y, &[0, 2], &[0, 0, 1], &[2, 1]));
        let x = tensor(&[2, 4, 1], &[1i16, 0, 2, 0, 1, 1, 1, 1]);
        let y = tensor(&[2, 3, 1], &[0i16, 1, 2, 1, 1, 1]);
        check(&x, (Some(1), 1), (&y, &[1, 0, 2], &[1, 0, 2, 0], &[2, 1, 1]));
        let x = strings(&[3, 2], &["b", "a", "a", "c", "b", "a"]);
        let y = strings(&[2, 2], &["a", "c", "b", "a"]);
        check(&x, (Some(0), 1), (&y, &[1, 0], &[1, 0, 1], &[1, 2]));
        // Slices without elements are all equal.
        let x = tensor::<u32>(&[3, 0], &[]);
        check(&x, (Some(0), 1), (&tensor::<u32>(&[1, 0], &[]), &[0], &[0, 0, 0], &[3]));
        check(&x, (Some(1), 1), (&x, &[], &[], &[]));
        let found = run("Unique", &[("axis", Int(2))], &[Some(&x)], 4);
        assert_eq!(found.unwrap_err(), "axis 2 is out of range for rank 2");
    }

    #[test]
    fn what_is_no_number() {
        let nan = f64::NAN;
        let x = tensor(&[5], &[nan, 1.0, -nan, -0.0, 0.0]);
        let y = tensor(&[3], &[-0.0, 1.0, nan]);
        check(&x, (None, 1), (&y, &[3, 1, 0], &[2, 1, 2, 0, 0], &[2, 1, 2]));
        let y = tensor(&[4], &[-0.0, 1.0, nan, -nan]);
        check(&x, (Some(0), 1), (&y, &[3, 1, 0, 2], &[2, 1, 3, 0, 0], &[2, 1, 1, 1]));
        let number = |re, im| Complex64 { re, im };
        let nan = f32::NAN;
        let x = tensor(&[3], &[number(nan, 1.0), number(0.0, 1.0), number(2.0, nan)]);
        let y = tensor(&[2], &[number(0.0, 1.0), number(nan, 1.0)]);
        check(&x, (None, 1), (&y, &[1, 0], &[1, 0, 1], &[1, 2]));
    }
}
