//! Predicates on single elements.

use std::marker::PhantomData;

use sardonyx_kernels::elementwise::{is_inf, is_nan};
use sardonyx_kernels::number::Number;
use sardonyx_kernels::{Ended, Pool};
use sardonyx_tensor::{DataType, Dims, Element};

use super::for_element;
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::narrow::widen;

/// Binds `IsInf`.
pub(crate) fn bind_is_inf(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (negative, positive) =
        (site.need_int("detect_negative")? != 0, site.need_int("detect_positive")? != 0);
    bind(site, Question::Infinite { negative, positive })
}

/// Binds `IsNaN`.
pub(crate) fn bind_is_nan(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Question::NotANumber)
}

#[derive(Clone, Copy, Debug)]
enum Question {
    NotANumber,
    Infinite { negative: bool, positive: bool },
}

impl Question {
    fn ask<T: Number>(self, pool: &Pool, x: &[T], out: &mut [u8]) -> Result<(), Ended> {
        match self {
            Question::NotANumber => is_nan(pool, x, out),
            Question::Infinite { negative, positive } => is_inf(pool, negative, positive, x, out),
        }
    }
}

fn bind(site: &Site<'_>, question: Question) -> Result<Box<dyn Kernel>, BindError> {
    match site.elem(0)? {
        DataType::Float8e4m3fn
        | DataType::Float8e4m3fnuz
        | DataType::Float8e5m2
        | DataType::Float8e5m2fnuz => Ok(Box::new(OfBytes(question))),
        elem => for_element!(site, elem, floats, T => Of::<T> { question, elements: PhantomData }),
    }
}

struct Of<T> {
    question: Question,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element> Kernel for Of<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, x) = (call.exec.pool, call.slice::<T>(0)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let mut out = call.output(0, DataType::Bool, &dims)?;
        self.question.ask(pool, x, out.bytes_mut())?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", self.question, T::DATA_TYPE)
    }
}

/// Predicates on floats of one byte, converted to `f32`.
struct OfBytes(Question);

impl Kernel for OfBytes {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (pool, x) = (call.exec.pool, widen(call, call.tensor(0)?)?);
        let dims = Dims::from(call.tensor(0)?.dims());
        let mut out = call.output(0, DataType::Bool, &dims)?;
        self.0.ask(pool, &x, out.bytes_mut())?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of bytes", self.0)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use super::*;
    use crate::ops::testing::{run, tensor};

    #[test]
    fn answers() {
        let numbers = [1f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN];
        // The codes of the same in 5 bits of exponent and 2 of mantissa.
        let codes = [0x3c, 0x7f, 0x7c, 0xfc, 0xfe];
        for x in [
            tensor(&[5], &numbers),
            tensor(&[5], &numbers.map(f64::from)),
            tensor(&[5], &numbers.map(half::f16::from_f32)),
            tensor(&[5], &numbers.map(half::bf16::from_f32)),
            Tensor::from_codes(DataType::Float8e5m2, [5], &codes).unwrap(),
        ] {
            let ask = |op, attributes: &[_]| {
                let found = run(op, attributes, &[Some(&x)], 1).unwrap();
                assert_eq!(found[0].data_type(), DataType::Bool);
                found[0].bytes().to_vec()
            };
            assert_eq!(ask("IsNaN", &[]), [0, 1, 0, 0, 1], "{x:?}");
            assert_eq!(ask("IsInf", &[]), [0, 0, 1, 1, 0]);
            assert_eq!(ask("IsInf", &[("detect_negative", Int(0))]), [0, 0, 1, 0, 0]);
            assert_eq!(ask("IsInf", &[("detect_positive", Int(0))]), [0, 0, 0, 1, 0]);
        }
    }
}
