//! Operators on two tensors: arithmetic, powers, remainders, comparison, logic, bits.

use std::marker::PhantomData;

use sardonyx_kernels::elementwise::{
    Binary, Bitwise, Compare, Integer, Logic, Side, Strided, bitwise, logic, not,
};
use sardonyx_kernels::{ElementLoops, Loops};
use sardonyx_tensor::shape::{NdLoop, broadcast_strides_of};
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, ViewData, cast_slices};
use smallvec::smallvec;

use super::pointwise::{self, NUMERIC};
use super::{Pair, dims_in_place, for_element, steps};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::ops::tensor::moves::dense;
use crate::program::{self, Op, Test};

/// A function per row: `lower_and: logical, Logic::And;` becomes
///
/// ```text
/// pub(crate) fn lower_and(site: &Site<'_>) -> Result<Op, BindError> {
///     logical(site, Logic::And)
/// }
/// ```
///
/// The list of bindings holds plain functions, and these differ by a value only.
macro_rules! rows {
    ($($name:ident: $result:ty, $bind:ident, $op:expr;)*) => { $(
        pub(crate) fn $name(site: &Site<'_>) -> Result<$result, BindError> {
            $bind(site, $op)
        }
    )* };
}

rows! {
    lower_greater: Op, compare_ordered, Compare::Greater;
    lower_greater_or_equal: Op, compare_ordered, Compare::GreaterOrEqual;
    lower_less: Op, compare_ordered, Compare::Less;
    lower_less_or_equal: Op, compare_ordered, Compare::LessOrEqual;
    lower_and: Op, logical, Logic::And;
    lower_or: Op, logical, Logic::Or;
    lower_xor: Op, logical, Logic::Xor;
    bind_bitwise_and: Box<dyn Kernel>, bits, Bitwise::And;
    bind_bitwise_or: Box<dyn Kernel>, bits, Bitwise::Or;
    bind_bitwise_xor: Box<dyn Kernel>, bits, Bitwise::Xor;
}

/// Lowers `Add`.
pub(crate) fn lower_add(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::binary(site, NUMERIC, Binary::Add)
}

/// Lowers `Sub`.
pub(crate) fn lower_sub(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::binary(site, NUMERIC, Binary::Sub)
}

/// Lowers `Mul`.
pub(crate) fn lower_mul(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::binary(site, NUMERIC, Binary::Mul)
}

/// Lowers `Div`.
pub(crate) fn lower_div(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::binary(site, NUMERIC, Binary::Div)
}

fn compare_ordered(site: &Site<'_>, op: Compare) -> Result<Op, BindError> {
    let elem = site.elem(0)?;
    if !NUMERIC.contains(&elem) {
        return site.unsupported_type(elem);
    }
    truth(site, Test::Compare(op, elem))
}

fn logical(site: &Site<'_>, op: Logic) -> Result<Op, BindError> {
    match site.elem(0)? {
        DataType::Bool => truth(site, Test::Logic(op)),
        other => site.unsupported_type(other),
    }
}

/// Lowers `Not`.
pub(crate) fn lower_not(site: &Site<'_>) -> Result<Op, BindError> {
    match site.elem(0)? {
        DataType::Bool => {
            let operands = smallvec![site.slot(0)?];
            Ok(Op::Truth(Box::new(program::Truth { test: Test::Not, operands })))
        }
        other => site.unsupported_type(other),
    }
}

fn truth(site: &Site<'_>, test: Test) -> Result<Op, BindError> {
    let operands = smallvec![site.slot(0)?, site.slot(1)?];
    Ok(Op::Truth(Box::new(program::Truth { test, operands })))
}

/// Selects the kernel of a test.
pub(crate) fn select_truth(site: &Site<'_>, test: Test) -> Result<Box<dyn Kernel>, BindError> {
    match test {
        Test::Compare(op, elem) => {
            for_element!(site, elem, numeric, T => Comparison::<T> { op, elements: PhantomData })
        }
        Test::Logic(op) => Ok(Box::new(Truth { op, negated: false })),
        // Equal unless exactly one is true; any byte other than 0 is true.
        Test::Same => Ok(Box::new(Truth { op: Logic::Xor, negated: true })),
        Test::Not => Ok(Box::new(Not)),
    }
}

fn bits(site: &Site<'_>, op: Bitwise) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, integers, T => Bits::<T> { op, elements: PhantomData })
}

/// Lowers `Mod`.
pub(crate) fn lower_mod(site: &Site<'_>) -> Result<Op, BindError> {
    let like_c = site.need_int("fmod")? != 0;
    pointwise::binary(site, NUMERIC, if like_c { Binary::Fmod } else { Binary::Mod })
}

/// Types of bases.
const BASES: &[DataType] = &[
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int32,
    DataType::Int64,
];

/// Lowers `Pow`: pointwise if bases and exponents have one type, else opaque.
pub(crate) fn lower_pow(site: &Site<'_>) -> Result<Op, BindError> {
    if site.elem(0)? == site.elem(1)? {
        pointwise::binary(site, BASES, Binary::Pow)
    } else {
        Ok(Op::opaque(site))
    }
}

/// Binds `Pow` with exponents of another type.
pub(crate) fn bind_pow(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let exponent = site.elem(1)?;
    let implemented = match exponent.bits() {
        Some(8) => exponent.is_integer(),
        Some(16 | 32 | 64) => exponent.is_integer() || exponent.is_float(),
        _ => false,
    };
    if !implemented {
        return site.unsupported_type(exponent);
    }
    for_element!(
        site, site.elem(0)?, [f32, f64, half::f16, half::bf16, i32, i64], T => MixedPower::<T>::new()
    )
}

/// Binds `BitShift`.
pub(crate) fn bind_bit_shift(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    match site.string("direction").as_deref() {
        Some("LEFT") => bits(site, Bitwise::ShiftLeft),
        Some("RIGHT") => bits(site, Bitwise::ShiftRight),
        Some(other) => Err(BindError::Invalid(format!(
            "attribute 'direction' is '{other}', not LEFT or RIGHT"
        ))),
        None => Err(BindError::Invalid("attribute 'direction' is missing".to_string())),
    }
}

/// Lowers `Equal` of any type except strings.
pub(crate) fn lower_equal(site: &Site<'_>) -> Result<Op, BindError> {
    match site.elem(0)? {
        DataType::Bool => truth(site, Test::Same),
        DataType::String => Ok(Op::opaque(site)),
        _ => compare_ordered(site, Compare::Equal),
    }
}

/// Binds `Equal` of strings.
pub(crate) fn bind_equal(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(EqualStrings))
}

/// Arithmetic whose operands and result have one type.
pub(super) struct Arithmetic<T> {
    op: Binary,
    elements: PhantomData<T>,
}

impl<T> Arithmetic<T> {
    pub(super) fn new(op: Binary) -> Self {
        Arithmetic { op, elements: PhantomData }
    }
}

impl<T: Loops + Element> Kernel for Arithmetic<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0, 1], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        if let Some(over) = call.over {
            let (other, side) = if over == 0 { (1, Side::Left) } else { (0, Side::Right) };
            let (b, dims) = (call.slice::<T>(other)?, dims_in_place(call)?);
            if call.tensor(other)?.dims() == &dims[..] {
                if let Some((_, a)) = call.in_place::<T>()? {
                    T::binary_in_place(exec, self.op, side, &[b.len()], a, Strided::flat(b))?;
                }
                return Ok(());
            }
            let b_steps = steps(call.tensor(other)?.dims(), dims)?;
            if let Some((_, a)) = call.in_place::<T>()? {
                T::binary_in_place(exec, self.op, side, dims, a, Strided::new(b, &b_steps))?;
            }
            return Ok(());
        }
        let (a, b) = (call.slice::<T>(0)?, call.slice::<T>(1)?);
        if call.tensor(0)?.dims() == call.tensor(1)?.dims() {
            let out = call.output_like::<T>()?;
            T::binary(exec, self.op, &[a.len()], Strided::flat(a), Strided::flat(b), out)?;
            return Ok(());
        }
        let pair = Pair::new(call)?;
        let out = call.output_slice::<T>(0, &pair.dims)?;
        T::binary(
            exec,
            self.op,
            &pair.dims,
            Strided::new(a, &pair.a),
            Strided::new(b, &pair.b),
            out,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Powers with exponents of another type than the bases.
///
/// Exponents that the type of the bases represents exactly, most often whole numbers, are converted
/// to it. Otherwise all is computed in double.
pub(super) struct MixedPower<T> {
    elements: PhantomData<T>,
}

impl<T> MixedPower<T> {
    pub(super) fn new() -> Self {
        MixedPower { elements: PhantomData }
    }
}

impl<T: Loops + Element> Kernel for MixedPower<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, op) = (call.exec, Binary::Pow);
        let (base, pair) = (call.slice::<T>(0)?, Pair::new(call)?);
        let (options, given) = (CastOptions::default(), call.tensor(1)?.clone());
        let (from, len, exponent) = (given.data_type(), given.len(), dense(call, &given)?);
        let mut same = call.scratch::<T>(len)?;
        cast_slices(from, &exponent, T::DATA_TYPE, as_bytes(&mut same), len, options)?;
        let mut back = call.scratch::<u8>(exponent.len())?;
        cast_slices(T::DATA_TYPE, as_bytes(&mut same), from, &mut back, len, options)?;
        if back[..] == exponent[..] {
            let out = call.output_slice::<T>(0, &pair.dims)?;
            T::binary(
                exec,
                op,
                &pair.dims,
                Strided::new(base, &pair.a),
                Strided::new(&same, &pair.b),
                out,
            )?;
            return Ok(());
        }
        let mut a = call.scratch::<f64>(base.len())?;
        for (wide, base) in a.iter_mut().zip(base) {
            *wide = base.to_f64();
        }
        let mut b = call.scratch::<f64>(len)?;
        cast_slices(from, &exponent, DataType::Double, as_bytes(&mut b), len, options)?;
        let mut power = call.scratch::<f64>(pair.dims.iter().product())?;
        f64::binary(
            exec,
            op,
            &pair.dims,
            Strided::new(&a, &pair.a),
            Strided::new(&b, &pair.b),
            &mut power,
        )?;
        let mut out = call.output(0, T::DATA_TYPE, &pair.dims)?;
        cast_slices(
            DataType::Double,
            bytemuck::cast_slice(&power),
            T::DATA_TYPE,
            out.bytes_mut(),
            power.len(),
            options,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {} with exponents of another type", Binary::Pow, T::DATA_TYPE)
    }
}

fn as_bytes<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

/// Comparison of two elements of one type.
struct Comparison<T> {
    op: Compare,
    elements: PhantomData<T>,
}

impl<T: Loops + Element> Kernel for Comparison<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let (a, b, pair) = (call.slice::<T>(0)?, call.slice::<T>(1)?, Pair::new(call)?);
        let mut out = call.output(0, DataType::Bool, &pair.dims)?;
        T::compare(
            exec,
            self.op,
            &pair.dims,
            Strided::new(a, &pair.a),
            Strided::new(b, &pair.b),
            out.bytes_mut(),
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Logical operation on two booleans.
struct Truth {
    op: Logic,
    negated: bool,
}

impl Kernel for Truth {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let (a, b) = (bytes(call, 0)?, bytes(call, 1)?);
        let pair = Pair::new(call)?;
        let negated =
            if self.negated { Some(call.scratch::<u8>(pair.dims.iter().product())?) } else { None };
        let mut out = call.output(0, DataType::Bool, &pair.dims)?;
        let out = out.bytes_mut();
        if let Some(mut positive) = negated {
            logic(
                exec,
                self.op,
                &pair.dims,
                Strided::new(a, &pair.a),
                Strided::new(b, &pair.b),
                &mut positive,
            )?;
            not(exec.pool, &positive, out)?;
        } else {
            logic(
                exec,
                self.op,
                &pair.dims,
                Strided::new(a, &pair.a),
                Strided::new(b, &pair.b),
                out,
            )?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{}{:?} of {}", if self.negated { "negated " } else { "" }, self.op, DataType::Bool)
    }
}

/// Logical NOT of each element.
struct Not;

impl Kernel for Not {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, x, dims) = (call.exec.pool, bytes(call, 0)?, Dims::from(call.tensor(0)?.dims()));
        not(pool, x, call.output(0, DataType::Bool, &dims)?.bytes_mut())?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("not of {}", DataType::Bool)
    }
}

/// Returns the bytes of a tensor of booleans.
pub(in crate::ops) fn bytes<'a>(call: &Call<'a>, index: usize) -> Result<&'a [u8], KernelError> {
    let view = call.tensor(index)?;
    match view.contiguous_bytes() {
        Some(bytes) if view.data_type() == DataType::Bool => Ok(bytes),
        _ => fail!("input {index} has type {}, not bool", view.data_type()),
    }
}

/// Operation on the bits of two integers.
struct Bits<T> {
    op: Bitwise,
    elements: PhantomData<T>,
}

impl<T: Integer + Element> Kernel for Bits<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let (a, b, pair) = (call.slice::<T>(0)?, call.slice::<T>(1)?, Pair::new(call)?);
        let out = call.output_slice::<T>(0, &pair.dims)?;
        bitwise(
            exec,
            self.op,
            &pair.dims,
            Strided::new(a, &pair.a),
            Strided::new(b, &pair.b),
            out,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("bitwise {:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Comparison of strings, byte by byte.
struct EqualStrings;

impl Kernel for EqualStrings {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = Pair::new(call)?.dims;
        let (a, b) = (call.tensor(0)?, call.tensor(1)?);
        let (ViewData::Strings(left), ViewData::Strings(right)) = (a.data(), b.data()) else {
            fail!("the inputs are {} and {}, not strings", a.data_type(), b.data_type());
        };
        let a_strides = broadcast_strides_of(a.dims(), &a.strides(), &dims)?;
        let b_strides = broadcast_strides_of(b.dims(), &b.strides(), &dims)?;
        let walk = NdLoop::new(&dims, [&a_strides, &b_strides])?;
        let [a_step, b_step] = walk.inner_strides();
        let (a_start, b_start) = (a.offset() as isize, b.offset() as isize);
        let mut out = call.output(0, DataType::Bool, &dims)?;
        let mut out = out.bytes_mut().iter_mut();
        walk.for_each(|[a_run, b_run]| {
            for (i, out) in (0..walk.inner_len() as isize).zip(&mut out) {
                let left = left.get((a_start + a_run + i * a_step) as usize);
                *out = u8::from(left == right.get((b_start + b_run + i * b_step) as usize));
            }
        });
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", Compare::Equal, DataType::String)
    }
}
