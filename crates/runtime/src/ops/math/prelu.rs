//! PRelu: multiplies negative elements by a slope, which broadcasts to the input.

use std::marker::PhantomData;

use sardonyx_kernels::Loops;
use sardonyx_kernels::elementwise::{Binary, Strided};
use sardonyx_tensor::{Dims, Element};

use super::binary::Arithmetic;
use super::pointwise::{self, HIGH_PRECISION};
use super::steps;
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::program::Op;

/// Lowers `PRelu`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    pointwise::binary(site, HIGH_PRECISION, Binary::PRelu)
}

pub(super) struct PRelu<T> {
    elements: PhantomData<T>,
}

impl<T> PRelu<T> {
    pub(super) fn new() -> Self {
        PRelu { elements: PhantomData }
    }
}

impl<T: Loops + Element> Kernel for PRelu<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.over.is_some() {
            return Arithmetic::<T>::new(Binary::PRelu).run(call);
        }
        let exec = call.exec;
        let (x, slope) = (call.slice::<T>(0)?, call.slice::<T>(1)?);
        // Unlike in other binary operators, the first input does not broadcast.
        let dims = Dims::from(call.tensor(0)?.dims());
        let (x_steps, slope_steps) = (steps(&dims, &dims)?, steps(call.tensor(1)?.dims(), &dims)?);
        let out = call.output_slice::<T>(0, &dims)?;
        T::binary(
            exec,
            Binary::PRelu,
            &dims,
            Strided::new(x, &x_steps),
            Strided::new(slope, &slope_steps),
            out,
        )?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}", Binary::PRelu, T::DATA_TYPE)
    }
}
