//! Operators on one tensor: functions, signs and rounding, activations, and turning truth values
//! and bits.

use std::marker::PhantomData;

use sardonyx_kernels::elementwise::{
    Bitwise, Integer, Strided, Unary, UnaryElement, bitwise, not, unary, unary_in_place,
};
use sardonyx_kernels::number::Arith;
use sardonyx_tensor::{DataType, Dims, Element};

use super::binary::bytes;
use super::{for_element, steps};
use crate::kernel::{BindError, Call, Kernel, KernelError, Pointwise, Site};

/// A binding per row: `bind_neg: signed, Unary::Neg;` becomes
///
/// ```text
/// pub(crate) fn bind_neg(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
///     signed(site, Unary::Neg)
/// }
/// ```
///
/// The list of bindings holds plain functions, and these differ by a value only.
macro_rules! rows {
    ($($name:ident: $bind:ident, $op:expr;)*) => { $(
        pub(crate) fn $name(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
            $bind(site, $op)
        }
    )* };
}

rows! {
    bind_abs: numeric, Unary::Abs;
    bind_acos: floats, Unary::Acos;
    bind_acosh: floats, Unary::Acosh;
    bind_asin: floats, Unary::Asin;
    bind_asinh: floats, Unary::Asinh;
    bind_atan: floats, Unary::Atan;
    bind_atanh: floats, Unary::Atanh;
    bind_ceil: floats, Unary::Ceil;
    bind_cos: floats, Unary::Cos;
    bind_cosh: floats, Unary::Cosh;
    bind_erf: floats, Unary::Erf;
    bind_exp: floats, Unary::Exp;
    bind_floor: floats, Unary::Floor;
    bind_hard_swish: floats, Unary::HardSwish;
    bind_log: floats, Unary::Log;
    bind_mish: floats, Unary::Mish;
    bind_neg: signed, Unary::Neg;
    bind_reciprocal: floats, Unary::Reciprocal;
    bind_relu: signed, Unary::Relu;
    bind_round: floats, Unary::Round;
    bind_sigmoid: floats, Unary::Sigmoid;
    bind_sign: numeric, Unary::Sign;
    bind_sin: floats, Unary::Sin;
    bind_sinh: floats, Unary::Sinh;
    bind_softplus: floats, Unary::Softplus;
    bind_softsign: floats, Unary::Softsign;
    bind_sqrt: floats, Unary::Sqrt;
    bind_tan: floats, Unary::Tan;
    bind_tanh: floats, Unary::Tanh;
}

pub(super) fn floats(site: &Site<'_>, op: Unary) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, floats, T => Map::<T> { op, elements: PhantomData })
}

fn signed(site: &Site<'_>, op: Unary) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, signed, T => Map::<T> { op, elements: PhantomData })
}

fn numeric(site: &Site<'_>, op: Unary) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, numeric, T => Map::<T> { op, elements: PhantomData })
}

/// A float attribute that must be there; all of the activations have defaults.
pub(super) fn number(site: &Site<'_>, name: &str) -> Result<f32, BindError> {
    site.float(name).ok_or_else(|| BindError::Invalid(format!("attribute '{name}' is missing")))
}

/// `Celu`
pub(crate) fn bind_celu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    floats(site, Unary::Celu { alpha: number(site, "alpha")? })
}

/// `Elu`
pub(crate) fn bind_elu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    floats(site, Unary::Elu { alpha: number(site, "alpha")? })
}

/// `Gelu`
pub(crate) fn bind_gelu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    match site.string("approximate").as_deref() {
        None | Some("none") => floats(site, Unary::Gelu),
        Some("tanh") => floats(site, Unary::GeluTanh),
        Some(other) => Err(BindError::Invalid(format!(
            "attribute 'approximate' is '{other}', not none or tanh"
        ))),
    }
}

/// `HardSigmoid`
pub(crate) fn bind_hard_sigmoid(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    floats(site, Unary::HardSigmoid { alpha: number(site, "alpha")?, beta: number(site, "beta")? })
}

/// `LeakyRelu`
pub(crate) fn bind_leaky_relu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    floats(site, Unary::LeakyRelu { alpha: number(site, "alpha")? })
}

/// `Selu`
pub(crate) fn bind_selu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    floats(site, Unary::Selu { alpha: number(site, "alpha")?, gamma: number(site, "gamma")? })
}

/// `ThresholdedRelu`
pub(crate) fn bind_thresholded_relu(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    floats(site, Unary::ThresholdedRelu { alpha: number(site, "alpha")? })
}

/// `Not`
pub(crate) fn bind_not(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    match site.elem(0)? {
        DataType::Bool => Ok(Box::new(Not)),
        other => site.unsupported_type(other),
    }
}

/// `BitwiseNot`
pub(crate) fn bind_bitwise_not(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, integers, T => BitwiseNot::<T> { elements: PhantomData })
}

/// A function of each element.
struct Map<T> {
    op: Unary,
    elements: PhantomData<T>,
}

impl<T: UnaryElement + Element> Kernel for Map<T> {
    fn in_place(&self) -> &[usize] {
        &[0]
    }

    fn pointwise(&self) -> Option<Pointwise> {
        Some(Pointwise::Unary(self.op))
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        if let Some((_, x)) = call.in_place::<T>()? {
            unary_in_place(exec, self.op, x);
            return Ok(());
        }
        let x = call.slice::<T>(0)?;
        unary(exec, self.op, x, call.output_like::<T>()?);
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Truth values turned.
struct Not;

impl Kernel for Not {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, x, dims) = (call.exec.pool, bytes(call, 0)?, Dims::from(call.tensor(0)?.dims()));
        not(pool, x, call.output(0, DataType::Bool, &dims)?.bytes_mut());
        Ok(())
    }

    fn describe(&self) -> String {
        format!("not of {}", DataType::Bool)
    }
}

/// Bits turned.
struct BitwiseNot<T> {
    elements: PhantomData<T>,
}

impl<T: Integer + Arith + Element> Kernel for BitwiseNot<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let (x, dims) = (call.slice::<T>(0)?, Dims::from(call.tensor(0)?.dims()));
        let (x_steps, repeated) = (steps(&dims, &dims)?, steps(&[], &dims)?);
        // Exactly one of a bit and a set bit: -1 has all bits set, and wraps to that where there is
        // no sign.
        let ones = [Arith::sub(T::ZERO, T::ONE)];
        let out = call.output_slice::<T>(0, &dims)?;
        bitwise(
            exec,
            Bitwise::Xor,
            &dims,
            Strided::new(x, &x_steps),
            Strided::new(&ones, &repeated),
            out,
        );
        Ok(())
    }

    fn describe(&self) -> String {
        format!("bitwise not of {}", T::DATA_TYPE)
    }
}
