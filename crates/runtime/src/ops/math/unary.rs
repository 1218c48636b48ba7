//! Unary operators: functions, signs and rounding, activations, logical and bitwise NOT.

use std::marker::PhantomData;

use sardonyx_kernels::elementwise::{
    Bitwise, Integer, Strided, Unary, UnaryElement, bitwise, unary, unary_in_place,
};
use sardonyx_kernels::number::Arith;
use sardonyx_tensor::{Dims, Element};

use super::pointwise::{self, FLOATS, NUMERIC, SIGNED};
use super::{for_element, steps};
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::program::Op;

/// A function per row: `lower_neg: SIGNED, Unary::Neg;` becomes
///
/// ```text
/// pub(crate) fn lower_neg(site: &Site<'_>) -> Result<Op, BindError> {
///     unary(site, SIGNED, Unary::Neg)
/// }
/// ```
///
/// The list of bindings holds plain functions, and these differ by values only.
macro_rules! rows {
    ($($name:ident: $types:expr, $op:expr;)*) => { $(
        pub(crate) fn $name(site: &Site<'_>) -> Result<Op, BindError> {
            pointwise::unary(site, $types, $op)
        }
    )* };
}

rows! {
    lower_abs: NUMERIC, Unary::Abs;
    lower_acos: FLOATS, Unary::Acos;
    lower_acosh: FLOATS, Unary::Acosh;
    lower_asin: FLOATS, Unary::Asin;
    lower_asinh: FLOATS, Unary::Asinh;
    lower_atan: FLOATS, Unary::Atan;
    lower_atanh: FLOATS, Unary::Atanh;
    lower_ceil: FLOATS, Unary::Ceil;
    lower_cos: FLOATS, Unary::Cos;
    lower_cosh: FLOATS, Unary::Cosh;
    lower_erf: FLOATS, Unary::Erf;
    lower_exp: FLOATS, Unary::Exp;
    lower_floor: FLOATS, Unary::Floor;
    lower_hard_swish: FLOATS, Unary::HardSwish;
    lower_log: FLOATS, Unary::Log;
    lower_mish: FLOATS, Unary::Mish;
    lower_neg: SIGNED, Unary::Neg;
    lower_reciprocal: FLOATS, Unary::Reciprocal;
    lower_relu: SIGNED, Unary::Relu;
    lower_round: FLOATS, Unary::Round;
    lower_sigmoid: FLOATS, Unary::Sigmoid;
    lower_sign: NUMERIC, Unary::Sign;
    lower_sin: FLOATS, Unary::Sin;
    lower_sinh: FLOATS, Unary::Sinh;
    lower_softplus: FLOATS, Unary::Softplus;
    lower_softsign: FLOATS, Unary::Softsign;
    lower_sqrt: FLOATS, Unary::Sqrt;
    lower_tan: FLOATS, Unary::Tan;
    lower_tanh: FLOATS, Unary::Tanh;
}

/// Returns a required float attribute; those of activations have defaults.
pub(super) fn number(site: &Site<'_>, name: &str) -> Result<f32, BindError> {
    site.float(name).ok_or_else(|| BindError::Invalid(format!("attribute '{name}' is missing")))
}

/// Lowers `Celu`.
pub(crate) fn lower_celu(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(site, FLOATS, Unary::Celu { alpha: number(site, "alpha")? })
}

/// Lowers `Elu`.
pub(crate) fn lower_elu(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(site, FLOATS, Unary::Elu { alpha: number(site, "alpha")? })
}

/// Lowers `Gelu`.
pub(crate) fn lower_gelu(site: &Site<'_>) -> Result<Op, BindError> {
    match site.string("approximate").as_deref() {
        None | Some("none") => pointwise::unary(site, FLOATS, Unary::Gelu),
        Some("tanh") => pointwise::unary(site, FLOATS, Unary::GeluTanh),
        Some(other) => Err(BindError::Invalid(format!(
            "attribute 'approximate' is '{other}', not none or tanh"
        ))),
    }
}

/// Lowers `HardSigmoid`.
pub(crate) fn lower_hard_sigmoid(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(
        site,
        FLOATS,
        Unary::HardSigmoid { alpha: number(site, "alpha")?, beta: number(site, "beta")? },
    )
}

/// Lowers `LeakyRelu`.
pub(crate) fn lower_leaky_relu(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(site, FLOATS, Unary::LeakyRelu { alpha: number(site, "alpha")? })
}

/// Lowers `Selu`.
pub(crate) fn lower_selu(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(
        site,
        FLOATS,
        Unary::Selu { alpha: number(site, "alpha")?, gamma: number(site, "gamma")? },
    )
}

/// Lowers `Shrink`. As in the reference, integers are compared and moved as floats.
pub(crate) fn lower_shrink(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(
        site,
        NUMERIC,
        Unary::Shrink { lambda: number(site, "lambd")?, bias: number(site, "bias")? },
    )
}

/// Lowers `ThresholdedRelu`.
pub(crate) fn lower_thresholded_relu(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::unary(site, FLOATS, Unary::ThresholdedRelu { alpha: number(site, "alpha")? })
}

/// Binds `BitwiseNot`.
pub(crate) fn bind_bitwise_not(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, integers, T => BitwiseNot::<T> { elements: PhantomData })
}

/// Function of each element.
pub(super) struct Map<T> {
    op: Unary,
    elements: PhantomData<T>,
}

impl<T> Map<T> {
    pub(super) fn new(op: Unary) -> Self {
        Map { op, elements: PhantomData }
    }
}

impl<T: UnaryElement + Element> Kernel for Map<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        if let Some((_, x)) = call.in_place::<T>()? {
            unary_in_place(exec, self.op, x)?;
            return Ok(());
        }
        let x = call.slice::<T>(0)?;
        unary(exec, self.op, x, call.output_like::<T>()?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.op, T::DATA_TYPE)
    }
}

/// Bitwise NOT of each element.
struct BitwiseNot<T> {
    elements: PhantomData<T>,
}

impl<T: Integer + Arith + Element> Kernel for BitwiseNot<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let (x, dims) = (call.slice::<T>(0)?, Dims::from(call.tensor(0)?.dims()));
        let (x_steps, repeated) = (steps(&dims, &dims)?, steps(&[], &dims)?);
        // XOR with all bits set, which is -1, wrapped for unsigned types.
        let ones = [Arith::sub(T::ZERO, T::ONE)];
        let out = call.output_slice::<T>(0, &dims)?;
        bitwise(
            exec,
            Bitwise::Xor,
            &dims,
            Strided::new(x, &x_steps),
            Strided::new(&ones, &repeated),
            out,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("bitwise not of {}", T::DATA_TYPE)
    }
}
