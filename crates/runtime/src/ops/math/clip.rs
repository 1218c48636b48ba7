//! Clip: clamps elements between two limits.

use sardonyx_kernels::Loops;
use sardonyx_tensor::{Dims, Element};

use super::for_element;
use super::pointwise::{self, NUMERIC};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Site};
use crate::program::{Link, Op};

/// Lowers `Clip`. Constant limits become part of the operation.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let limit = |index: usize| {
        if !site.has_input(index) {
            return Some(None);
        }
        site.constant(index).filter(|limit| limit.len() == 1).cloned().map(Some)
    };
    match (limit(1), limit(2)) {
        (Some(low), Some(high)) => pointwise::lower_link(
            site,
            NUMERIC,
            Link::Clip(Box::new([low, high])),
            &[site.slot(0)?],
        ),
        _ => Ok(Op::opaque(site)),
    }
}

/// Binds `Clip` with limits that are computed at run time.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, site.elem(0)?, numeric, T => Clip::<T> { limits: None })
}

pub(super) struct Clip<T> {
    /// Limits; `None` if they are inputs 1 and 2.
    limits: Option<[T; 2]>,
}

impl<T: Element> Clip<T> {
    pub(super) fn with_limits(low: T, high: T) -> Self {
        Clip { limits: Some([low, high]) }
    }
}

impl<T: Loops + Element> Kernel for Clip<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let [low, high] = match self.limits {
            Some(limits) => limits,
            None => [limit(call, 1, T::LOWEST)?, limit(call, 2, T::HIGHEST)?],
        };
        if let Some((_, x)) = call.in_place::<T>()? {
            T::clip_in_place(exec, low, high, x)?;
            return Ok(());
        }
        let (x, dims) = (call.slice::<T>(0)?, Dims::from(call.tensor(0)?.dims()));
        T::clip(exec, low, high, x, call.output_slice::<T>(0, &dims)?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("Clip of {}", T::DATA_TYPE)
    }
}

/// Returns the only number of an input, or `absent` if it is omitted.
pub(in crate::ops) fn limit<T: Element>(
    call: &Call<'_>,
    index: usize,
    absent: T,
) -> Result<T, KernelError> {
    match call.maybe_slice::<T>(index)? {
        None => Ok(absent),
        Some([limit]) => Ok(*limit),
        Some(limits) => {
            fail!("input {index} must have one element, not {}", limits.len())
        }
    }
}
