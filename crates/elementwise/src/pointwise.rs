//! Chains of operations on each element, in one pass over memory.
//!
//! The output is cut into tiles that stay in the first-level cache. On each tile the first
//! operation writes the output, and the others work in place, with the loops that they have
//! elsewhere: results are bit-identical to those of separate calls.

use std::array;

use super::binary::{Binary, BinaryElement, Side, compute_part, compute_part_in_place};
use super::broadcast::{Strided, Walk, Way};
use super::unary::{Unary, UnaryElement, clip_all, clip_all_in_place};
use sardonyx_simd::Level;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::{Ended, Exec, Pool};

/// Limit: most fused operations. The paths of their operands are on the stack, and most memory
/// traffic is saved by the first few.
pub const MAX_LINKS: usize = 16;

/// Cache: bytes of a tile. It shares a first-level cache of 32 KB with one operand, and is long
/// enough that calls on it cost little. 12 KB take as long in a cache of 48 KB.
const TILE: usize = 8 << 10;

/// Operation on the result of the previous link.
#[derive(Clone, Copy, Debug)]
pub enum Link<'a, T> {
    Unary(Unary),
    /// Limits, see [`clip`](super::clip).
    Clip {
        low: T,
        high: T,
    },
    /// Operation with another operand.
    Binary {
        op: Binary,
        /// Side of the previous link's result.
        side: Side,
        /// Elements of the other operand.
        other: &'a [T],
        /// Strides with which it is broadcast, see [`Strided`].
        strides: &'a [usize],
    },
}

impl<T> Link<'_, T> {
    /// Estimates the cost of one element, in cheap operations.
    fn work(&self) -> usize {
        match self {
            Link::Unary(op) => op.work(),
            Link::Clip { .. } => 1,
            Link::Binary { op, .. } => op.work(),
        }
    }
}

/// Computes the chain `links`, whose first link reads `x`, over output dims `dims`.
///
/// `x` is broadcast like operands of [`binary`](super::binary), unless the first link has no other
/// operand: then it is contiguous with dims `dims`. `out` is contiguous.
///
/// # Panics
///
/// If the number of links is 0 or more than [`MAX_LINKS`], the length of `out` or `x` is not the
/// product of `dims`, a stride list has another length than `dims`, or an operand is too short for
/// its strides.
pub fn pointwise<T: UnaryElement + BinaryElement>(
    exec: &Exec<'_>,
    dims: &[usize],
    x: Strided<'_, T>,
    links: &[Link<'_, T>],
    out: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    let len: usize = dims.iter().product();
    assert_eq!(out.len(), len, "the output has other dims");
    let (first, rest) = links.split_first().expect("one link or more");
    let mut walk = None;
    let first = First::new(dims, x.data, x.strides, first, &mut walk);
    with_ways(dims, rest, |ways| {
        by_tiles(pool, links, out, |start, tile| {
            first.run(level, start, tile);
            run_in_place(level, rest, ways, start, tile);
        })
    })
}

/// Computes the chain `links` in place of `x`, which is contiguous with dims `dims`.
///
/// # Panics
///
/// If the number of links is 0 or more than [`MAX_LINKS`], the length of `x` is not the product of
/// `dims`, strides have another length than `dims`, or an operand is too short for its strides.
pub fn pointwise_in_place<T: UnaryElement + BinaryElement>(
    exec: &Exec<'_>,
    dims: &[usize],
    links: &[Link<'_, T>],
    x: &mut [T],
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    let level = Level::new(isa);
    let len: usize = dims.iter().product();
    assert_eq!(x.len(), len, "the elements have other dims");
    with_ways(dims, links, |ways| {
        by_tiles(pool, links, x, |start, tile| {
            run_in_place(level, links, ways, start, tile);
        })
    })
}

/// Calls `body(start, tile)` for tiles that make up `out`, divided between threads.
fn by_tiles<T: Send>(
    pool: &Pool,
    links: &[Link<'_, T>],
    out: &mut [T],
    body: impl Fn(usize, &mut [T]) + Sync,
) -> Result<(), Ended> {
    let count = links.len();
    assert!((1..=MAX_LINKS).contains(&count), "{count} links are fused");
    let len = TILE / size_of::<T>();
    let work = links.iter().map(Link::work).sum();
    fill(pool, out, work, |start, chunk| {
        for (i, tile) in chunk.chunks_mut(len).enumerate() {
            body(start + i * len, tile);
        }
    })
}

/// First link, with its operands.
enum First<'a, T> {
    Unary(Unary, &'a [T]),
    Clip(T, T, &'a [T]),
    Binary(Binary, Way<'a, 2>, &'a [T], &'a [T]),
}

impl<'a, T: UnaryElement + BinaryElement> First<'a, T> {
    /// Prepares the first link, which reads `x`.
    fn new(
        dims: &[usize],
        x: &'a [T],
        x_strides: &[usize],
        link: &Link<'a, T>,
        walk: &'a mut Option<Walk<2>>,
    ) -> Self {
        let whole = || {
            assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
            x
        };
        match *link {
            Link::Unary(op) => First::Unary(op, whole()),
            Link::Clip { low, high } => First::Clip(low, high, whole()),
            Link::Binary { op, side, other, strides } => {
                let (a, a_strides, b, b_strides) = match side {
                    Side::Left => (x, x_strides, other, strides),
                    Side::Right => (other, strides, x, x_strides),
                };
                let way = Way::new(dims, [a_strides, b_strides], [a.len(), b.len()], walk);
                First::Binary(op, way, a, b)
            }
        }
    }

    /// Writes the elements from element `start` on.
    fn run(&self, level: Level, start: usize, out: &mut [T]) {
        match self {
            First::Unary(op, x) => T::unary(level, *op, &x[start..start + out.len()], out),
            First::Clip(low, high, x) => {
                clip_all(level, *low, *high, &x[start..start + out.len()], out);
            }
            First::Binary(op, way, a, b) => compute_part(level, *op, *way, start, a, b, out),
        }
    }
}

/// Choice: number of links that most chains do not exceed. Preparing the memory for [`MAX_LINKS`]
/// takes longer than a few links on a few elements.
const FEW_LINKS: usize = 4;

/// Calls `body` with the paths of the links' other operands, link by link.
fn with_ways<T, R>(
    dims: &[usize],
    links: &[Link<'_, T>],
    body: impl FnOnce(&[Way<'_, 1>]) -> R,
) -> R {
    if links.len() <= FEW_LINKS {
        body(&find_ways::<T, FEW_LINKS>(dims, links, &mut no_walks()))
    } else {
        body(&find_ways::<T, MAX_LINKS>(dims, links, &mut no_walks()))
    }
}

/// Returns empty walks, written element by element: a copy of a constant array would clear all
/// bytes of the walks.
fn no_walks<const N: usize>() -> [Option<Walk<1>>; N] {
    array::from_fn(|_| None)
}

/// Finds the paths of at most `N` links. Paths that need a walk refer to `walks`.
fn find_ways<'a, T, const N: usize>(
    dims: &[usize],
    links: &[Link<'_, T>],
    walks: &'a mut [Option<Walk<1>>; N],
) -> [Way<'a, 1>; N] {
    let mut walks = walks.iter_mut();
    let mut links = links.iter();
    array::from_fn(|_| match (links.next(), walks.next()) {
        (Some(Link::Binary { other, strides, .. }), Some(walk)) => {
            Way::new(dims, [strides], [other.len()], walk)
        }
        _ => Way::Even([0]),
    })
}

/// Computes the chain `links` in place of the elements `x`, which begin at element `start`.
fn run_in_place<T: UnaryElement + BinaryElement>(
    level: Level,
    links: &[Link<'_, T>],
    ways: &[Way<'_, 1>],
    start: usize,
    x: &mut [T],
) {
    for (link, way) in links.iter().zip(ways) {
        match *link {
            Link::Unary(op) => T::unary_in_place(level, op, x),
            Link::Clip { low, high } => clip_all_in_place(level, low, high, x),
            Link::Binary { op, side, other, .. } => {
                compute_part_in_place(level, op, side, *way, start, x, other)
            }
        }
    }
}

#[cfg(test)]
mod tests;
