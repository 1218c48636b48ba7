//! Operators on any number of tensors: element-wise maximum, minimum, sum and mean.

use std::marker::PhantomData;

use sardonyx_kernels::Loops;
use sardonyx_kernels::elementwise::{Binary, Side, Strided};
use sardonyx_tensor::shape::broadcast_dims;
use sardonyx_tensor::{DataType, Dims, Element};
use smallvec::SmallVec;

use super::pointwise::{self, FLOATS, NUMERIC};
use super::{dims_in_place, for_element, steps};
use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::program::Op;

/// Lowers `Max` of two tensors to a binary operator.
pub(crate) fn lower_max(site: &Site<'_>) -> Result<Op, BindError> {
    two_or_opaque(site, NUMERIC, Binary::Max)
}

/// Binds `Max` of one tensor, or of more than two.
pub(crate) fn bind_max(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, numeric, T => Variadic::<T>::new(Binary::Max))
}

/// Lowers `Min` of two tensors to a binary operator.
pub(crate) fn lower_min(site: &Site<'_>) -> Result<Op, BindError> {
    two_or_opaque(site, NUMERIC, Binary::Min)
}

/// Binds `Min` of one tensor, or of more than two.
pub(crate) fn bind_min(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, numeric, T => Variadic::<T>::new(Binary::Min))
}

/// Lowers `Sum` of two tensors to a binary operator.
pub(crate) fn lower_sum(site: &Site<'_>) -> Result<Op, BindError> {
    two_or_opaque(site, FLOATS, Binary::Add)
}

/// Binds `Sum` of one tensor, or of more than two.
pub(crate) fn bind_sum(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, floats, T => Variadic::<T>::new(Binary::Add))
}

/// Binds `Mean`.
pub(crate) fn bind_mean(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, floats, T => Variadic::<T> { mean: true, ..Variadic::new(Binary::Add) })
}

fn two_or_opaque(site: &Site<'_>, types: &[DataType], op: Binary) -> Result<Op, BindError> {
    match site.inputs.len() {
        2 => pointwise::binary(site, types, op),
        _ => Ok(Op::opaque(site)),
    }
}

pub(super) struct Variadic<T> {
    op: Binary,
    /// Whether the result is divided by the number of inputs.
    mean: bool,
    elements: PhantomData<T>,
}

impl<T> Variadic<T> {
    pub(super) fn new(op: Binary) -> Self {
        Variadic { op, mean: false, elements: PhantomData }
    }
}

impl<T: Loops + Element> Kernel for Variadic<T> {
    /// Allows reuse of the first two inputs, which commute: a float sum depends on the order, which
    /// must not depend on memory.
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0, 1], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, count) = (call.exec, call.input_count());
        let all = 0..count;
        let dims: Dims = match call.over {
            Some(_) => dims_in_place(call)?.clone(),
            None => {
                let shapes: SmallVec<[&[usize]; 6]> = all
                    .clone()
                    .map(|index| Ok(call.tensor(index)?.dims()))
                    .collect::<Result<_, KernelError>>()?;
                broadcast_dims(&shapes)?
            }
        };
        let mut inputs: SmallVec<[(&[T], Dims); 6]> = all
            .filter(|index| Some(*index) != call.over)
            .map(|index| Ok((call.slice::<T>(index)?, steps(call.tensor(index)?.dims(), &dims)?)))
            .collect::<Result<_, KernelError>>()?;
        let out = match call.over {
            Some(_) => call.in_place::<T>()?.map(|(_, out)| out).unwrap_or_default(),
            None => {
                let out = call.output_slice::<T>(0, &dims)?;
                match &inputs[..] {
                    [] => {}
                    [(only, _)] => {
                        out.copy_from_slice(only);
                        inputs.clear();
                    }
                    [(a, a_steps), (b, b_steps), ..] => {
                        T::binary(
                            exec,
                            self.op,
                            &dims,
                            Strided::new(a, a_steps),
                            Strided::new(b, b_steps),
                            out,
                        )?;
                        inputs.drain(..2);
                    }
                }
                out
            }
        };
        for (input, steps) in &inputs {
            T::binary_in_place(exec, self.op, Side::Left, &dims, out, Strided::new(input, steps))?;
        }
        if self.mean {
            let (count, repeated) = (T::from_f64(count as f64), Dims::from_elem(0, dims.len()));
            T::binary_in_place(
                exec,
                Binary::Div,
                Side::Left,
                &dims,
                out,
                Strided::new(&[count], &repeated),
            )?;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{:?} of {}{}", self.op, T::DATA_TYPE, if self.mean { ", divided" } else { "" })
    }
}
