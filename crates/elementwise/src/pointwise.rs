//! Several operations on every element, one after the other, in one pass over memory.
//!
//! The output is cut into tiles that stay in the first cache. On each tile the first operation
//! writes the output, and all others work on it in place, with the loops that they have on their
//! own: results are the bits of separate calls.

use std::array;

use super::binary::{Binary, BinaryElement, Side, part, part_in_place};
use super::broadcast::{Strided, Walk, Way};
use super::unary::{Unary, UnaryElement, clip_all, clip_all_in_place};
use sardonyx_simd::Level;
use sardonyx_simd::chunks::fill;
use sardonyx_simd::{Ended, Exec, Pool};

/// Limit: most operations that are fused. Where their operands are is kept on the stack, and most
/// memory traffic is saved after a few.
pub const MAX_LINKS: usize = 16;

/// Cache: bytes of a tile. It shares a first-level cache of 32 KB with the operand that is read,
/// and is long enough for the calls on it to cost little. 12 KB take as long in a cache of 48 KB.
const TILE: usize = 8 << 10;

/// An operation on what the one before it gives.
#[derive(Clone, Copy, Debug)]
pub enum Link<'a, T> {
    Unary(Unary),
    /// As [`clip`](super::clip).
    Clip {
        low: T,
        high: T,
    },
    /// With another operand.
    Binary {
        op: Binary,
        /// Which operand the result of the link before is.
        side: Side,
        other: &'a [T],
        /// As in [`binary`](super::binary).
        strides: &'a [usize],
    },
}

impl<T> Link<'_, T> {
    fn work(&self) -> usize {
        match self {
            Link::Unary(op) => op.work(),
            Link::Clip { .. } => 1,
            Link::Binary { op, .. } => op.work(),
        }
    }
}

/// `out` is what the last of `links` gives, of which the first reads `x`; over output dims `dims`.
///
/// `x` has strides as operands of [`binary`](super::binary) do. Where the first link has no other
/// operand, it is contiguous with dims `dims`. `out` is contiguous.
///
/// # Panics
///
/// If there are no links or more than [`MAX_LINKS`], `out` or `x` has not the size of `dims`, a
/// stride list not their length, or an operand is too short for its strides.
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

/// Replaces every element of `x`, contiguous with dims `dims`, by what the last of `links` gives,
/// of which the first reads it.
///
/// # Panics
///
/// As [`pointwise`].
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

/// Calls `body(start, tile)` for tiles that make up `out`.
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

/// The first link, with what it reads.
enum First<'a, T> {
    Unary(Unary, &'a [T]),
    Clip(T, T, &'a [T]),
    Binary(Binary, Way<'a, 2>, &'a [T], &'a [T]),
}

impl<'a, T: UnaryElement + BinaryElement> First<'a, T> {
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

    /// Writes the elements from number `start` on.
    fn run(&self, level: Level, start: usize, out: &mut [T]) {
        match self {
            First::Unary(op, x) => T::unary(level, *op, &x[start..start + out.len()], out),
            First::Clip(low, high, x) => {
                clip_all(level, *low, *high, &x[start..start + out.len()], out);
            }
            First::Binary(op, way, a, b) => part(level, *op, *way, start, a, b, out),
        }
    }
}

/// Choice: as many links as most steps have, for which less memory is prepared: that of
/// [`MAX_LINKS`] takes longer than a few links on a few elements.
const FEW_LINKS: usize = 4;

/// Calls `body` with the ways of the links through their other operands, link by link.
fn with_ways<T, R>(
    dims: &[usize],
    links: &[Link<'_, T>],
    body: impl FnOnce(&[Way<'_, 1>]) -> R,
) -> R {
    if links.len() <= FEW_LINKS {
        body(&ways::<T, FEW_LINKS>(dims, links, &mut no_walks()))
    } else {
        body(&ways::<T, MAX_LINKS>(dims, links, &mut no_walks()))
    }
}

/// No walk yet. Made element by element: a copy of a constant array clears all of its bytes.
fn no_walks<const N: usize>() -> [Option<Walk<1>>; N] {
    array::from_fn(|_| None)
}

/// The ways of at most `N` links; `walks` is where those go that need one.
fn ways<'a, T, const N: usize>(
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

/// Replaces the elements from number `start` on by what the last link gives, of which the first
/// reads them.
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
                part_in_place(level, op, side, *way, start, x, other)
            }
        }
    }
}

#[cfg(test)]
mod tests;
