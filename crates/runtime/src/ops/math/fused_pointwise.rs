//! Several pointwise operators as one step: see [`pointwise`](crate::rewrite::pointwise).

use sardonyx_kernels::Loops;
use sardonyx_kernels::elementwise::{self, Binary, MAX_LINKS, Side, Strided, Unary};
use sardonyx_tensor::shape::broadcast_dims;
use sardonyx_tensor::{Dims, Element};
use smallvec::SmallVec;

use super::{dims_in_place, steps};
use crate::error::KernelError;
use crate::kernel::{Call, Kernel, MemoryRules};

/// Operator on the result of the previous link; the first reads input 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Link<T> {
    Unary(Unary),
    Clip {
        low: T,
        high: T,
    },
    Binary {
        op: Binary,
        /// Side of the previous result among the operands.
        side: Side,
        /// Index of the input that is the other operand.
        other: usize,
    },
}

/// Chain of pointwise operators, computed block by block.
pub(crate) struct FusedPointwise<T> {
    links: Vec<Link<T>>,
}

impl<T> FusedPointwise<T> {
    /// Makes a kernel of 1 to [`MAX_LINKS`] links. If the first reads another operand, that is
    /// input 1.
    pub(crate) fn new(links: Vec<Link<T>>) -> Self {
        FusedPointwise { links }
    }

    /// Returns the dimensions of the output, which the first link decides.
    fn dims(&self, call: &Call<'_>) -> Result<Dims, KernelError> {
        let first = call.tensor(0)?.dims();
        match self.links.first() {
            // The input of the other links does not broadcast.
            Some(Link::Binary { op, other, .. }) if *op != Binary::PRelu => {
                Ok(broadcast_dims(&[first, call.tensor(*other)?.dims()])?)
            }
            _ => Ok(first.into()),
        }
    }
}

impl<T: Loops + Element> Kernel for FusedPointwise<T> {
    /// Allows reuse of the inputs of the first link only: other links read theirs after parts of
    /// the output are written.
    fn memory(&self) -> MemoryRules {
        let in_place: &[usize] = match self.links.first() {
            Some(Link::Binary { .. }) => &[0, 1],
            _ => &[0],
        };
        MemoryRules { in_place, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, over) = (call.exec, call.over);
        let dims = match over {
            Some(_) => dims_in_place(call)?.clone(),
            None => self.dims(call)?,
        };
        // In the memory of input 1, the first link reads input 0 as its other operand.
        let is_swapped = |other: usize| over == Some(other);
        let input = |other: usize| if is_swapped(other) { 0 } else { other };
        let mut strides: SmallVec<[Dims; MAX_LINKS]> = SmallVec::new();
        for link in &self.links {
            strides.push(match link {
                Link::Binary { other, .. } => steps(call.tensor(input(*other))?.dims(), &dims)?,
                Link::Unary(_) | Link::Clip { .. } => Dims::new(),
            });
        }
        let mut links: SmallVec<[elementwise::Link<'_, T>; MAX_LINKS]> = SmallVec::new();
        for (link, strides) in self.links.iter().zip(&strides) {
            links.push(match *link {
                Link::Unary(op) => elementwise::Link::Unary(op),
                Link::Clip { low, high } => elementwise::Link::Clip { low, high },
                Link::Binary { op, side, other } => elementwise::Link::Binary {
                    op,
                    side: if is_swapped(other) { Side::Right } else { side },
                    other: call.slice::<T>(input(other))?,
                    strides,
                },
            });
        }
        if let Some((_, x)) = call.in_place::<T>()? {
            T::pointwise_in_place(exec, &dims, &links, x)?;
            return Ok(());
        }
        let (x, x_strides) = (call.slice::<T>(0)?, steps(call.tensor(0)?.dims(), &dims)?);
        let out = call.output_slice::<T>(0, &dims)?;
        T::pointwise(exec, &dims, Strided::new(x, &x_strides), &links, out)?;
        Ok(())
    }

    fn describe(&self) -> String {
        let names = self.links.iter().map(|link| match link {
            Link::Unary(op) => format!("{op:?}"),
            Link::Clip { .. } => "Clip".to_string(),
            Link::Binary { op, .. } => format!("{op:?}"),
        });
        let names: Vec<String> = names.collect();
        format!("{} of {}, in one pass", names.join(", "), T::DATA_TYPE)
    }
}
