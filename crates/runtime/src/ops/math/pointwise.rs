//! Pointwise operators on one element type: their lowering to [`Pointwise`], and selection of its
//! kernel.

use sardonyx_kernels::elementwise::{Binary, Side, Unary};
use sardonyx_kernels::number::Number;
use sardonyx_tensor::{DataType, Element, Tensor};
use smallvec::{SmallVec, smallvec};

use super::binary::Arithmetic;
use super::clip::Clip;
use super::for_element;
use super::fused_pointwise::{self, FusedPointwise};
use super::prelu::PRelu;
use super::unary::Map;
use crate::error::BindError;
use crate::kernel::{Kernel, Site};
use crate::program::{Link, Op, Pointwise, Slot};

/// `tensor(float16)`, `tensor(float)`, `tensor(double)`, `tensor(bfloat16)`.
pub(super) const FLOATS: &[DataType] =
    &[DataType::Float, DataType::Double, DataType::Float16, DataType::Bfloat16];

/// Floats and signed integers.
pub(super) const SIGNED: &[DataType] = &[
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
];

/// Floats, and integers of 32 bits and more.
pub(super) const HIGH_PRECISION: &[DataType] = &[
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint32,
    DataType::Uint64,
];

/// Floats and integers.
pub(super) const NUMERIC: &[DataType] = &[
    DataType::Float,
    DataType::Double,
    DataType::Float16,
    DataType::Bfloat16,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Uint8,
    DataType::Uint16,
    DataType::Uint32,
    DataType::Uint64,
];

/// Lowers a function of each element of the first input.
pub(super) fn unary(site: &Site<'_>, types: &[DataType], op: Unary) -> Result<Op, BindError> {
    lower_link(site, types, Link::Unary(op), &[site.slot(0)?])
}

/// Lowers a function of each pair of elements of two inputs, which broadcast.
pub(super) fn binary(site: &Site<'_>, types: &[DataType], op: Binary) -> Result<Op, BindError> {
    let link = Link::Binary { op, side: Side::Left, other: 1 };
    lower_link(site, types, link, &[site.slot(0)?, site.slot(1)?])
}

/// Lowers one link on inputs of one of `types`.
pub(super) fn lower_link(
    site: &Site<'_>,
    types: &[DataType],
    link: Link,
    operands: &[Slot],
) -> Result<Op, BindError> {
    let elem = site.elem(0)?;
    if !types.contains(&elem) {
        return site.unsupported_type(elem);
    }
    let operands = SmallVec::from_slice(operands);
    Ok(Op::Pointwise(Box::new(Pointwise { elem, links: smallvec![link], operands })))
}

/// Selects the kernel: one of its own for a single link, which is slightly faster, else a fused
/// one.
pub(crate) fn select(site: &Site<'_>, pointwise: &Pointwise) -> Result<Box<dyn Kernel>, BindError> {
    let elem = pointwise.elem;
    match &pointwise.links[..] {
        [Link::Unary(op)] => for_element!(site, elem, numeric, T => Map::<T>::new(*op)),
        [Link::Clip(given)] => {
            for_element!(site, elem, numeric, T => {
                let [low, high] = limits::<T>(given)?;
                Clip::<T>::with_limits(low, high)
            })
        }
        [Link::Binary { op: Binary::PRelu, .. }] => {
            for_element!(site, elem, high_precision, T => PRelu::<T>::new())
        }
        [Link::Binary { op, .. }] => {
            for_element!(site, elem, numeric, T => Arithmetic::<T>::new(*op))
        }
        links => for_element!(site, elem, numeric, T => {
            let links = links.iter().map(with_type::<T>).collect::<Result<_, _>>()?;
            FusedPointwise::<T>::new(links)
        }),
    }
}

fn with_type<T: Number + Element>(link: &Link) -> Result<fused_pointwise::Link<T>, BindError> {
    Ok(match link {
        Link::Unary(op) => fused_pointwise::Link::Unary(*op),
        Link::Clip(given) => {
            let [low, high] = limits::<T>(given)?;
            fused_pointwise::Link::Clip { low, high }
        }
        Link::Binary { op, side, other } => {
            fused_pointwise::Link::Binary { op: *op, side: *side, other: *other }
        }
    })
}

/// Returns the limits of a `Clip`; a missing one is the lowest or highest number.
pub(crate) fn limits<T: Number + Element>(
    [low, high]: &[Option<Tensor>; 2],
) -> Result<[T; 2], BindError> {
    let limit = |limit: &Option<Tensor>, absent: T| match limit {
        Some(limit) => limit.item::<T>(),
        None => Ok(absent),
    };
    Ok([limit(low, T::LOWEST)?, limit(high, T::HIGHEST)?])
}
