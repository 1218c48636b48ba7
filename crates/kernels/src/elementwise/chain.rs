//! Several operations on every element, one after the other, in one pass over memory.
//!
//! The output is cut into tiles that stay in the first cache. On each tile the first operation writes the output, and
//! all others work on it in place, with the loops that they have on their own: results are the bits of separate calls.

use super::binary::{Binary, BinaryElement, Side, part, part_in_place};
use super::broadcast::Walk;
use super::chunks::fill;
use super::unary::{Clip, ClipInPlace, Unary, UnaryElement};
use crate::vecmath::Level;
use crate::{Isa, Pool};

/// The most operations of a chain. Where their operands are is kept on the stack, and most memory traffic is saved
/// after a few.
pub const MAX_LINKS: usize = 16;

/// Bytes of a tile. It shares a first cache of usually 32 KiB with the operand that is read at the time, and is long
/// enough for the calls on it to cost little.
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
/// `x` has strides as operands of [`binary`](super::binary) do. Where the first link has no other operand, it is
/// contiguous with dims `dims`. `out` is contiguous.
///
/// # Panics
///
/// If there are no links or more than [`MAX_LINKS`], `out` or `x` has not the size of `dims`, a stride list not their
/// length, or an operand is too short for its strides.
pub fn chain<T: UnaryElement + BinaryElement>(
    pool: &Pool,
    isa: Isa,
    dims: &[usize],
    x: &[T],
    x_strides: &[usize],
    links: &[Link<'_, T>],
    out: &mut [T],
) {
    let level = Level::new(isa);
    let (first, rest) = links.split_first().expect("a chain has links");
    let begin = Begin::new(dims, x, x_strides, first);
    assert_eq!(out.len(), begin.len(), "the output has other dims");
    let mut ready = [const { None }; MAX_LINKS];
    Ready::prepare(dims, rest, &mut ready);
    by_tiles(pool, links, out, |start, tile| {
        begin.run(level, start, tile);
        for link in ready.iter().flatten() {
            link.run(level, start, tile);
        }
    });
}

/// Replaces every element of `x`, contiguous with dims `dims`, by what the last of `links` gives, of which the first
/// reads it.
///
/// # Panics
///
/// As [`chain`].
pub fn chain_in_place<T: UnaryElement + BinaryElement>(
    pool: &Pool,
    isa: Isa,
    dims: &[usize],
    links: &[Link<'_, T>],
    x: &mut [T],
) {
    let level = Level::new(isa);
    let len: usize = dims.iter().product();
    assert_eq!(x.len(), len, "the elements have other dims");
    let mut ready = [const { None }; MAX_LINKS];
    Ready::prepare(dims, links, &mut ready);
    by_tiles(pool, links, x, |start, tile| {
        for link in ready.iter().flatten() {
            link.run(level, start, tile);
        }
    });
}

/// Calls `body(start, tile)` for tiles that make up `out`.
fn by_tiles<T: Send>(
    pool: &Pool,
    links: &[Link<'_, T>],
    out: &mut [T],
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let count = links.len();
    assert!((1..=MAX_LINKS).contains(&count), "a chain of {count} links");
    let len = TILE / size_of::<T>();
    let work = links.iter().map(Link::work).sum();
    fill(pool, out, work, |start, chunk| {
        for (i, tile) in chunk.chunks_mut(len).enumerate() {
            body(start + i * len, tile);
        }
    });
}

/// The first link, with what it reads.
#[allow(clippy::large_enum_variant)] // On the stack: nothing is allocated per call.
enum Begin<'a, T> {
    Unary(Unary, &'a [T]),
    Clip(T, T, &'a [T]),
    Binary(Binary, Walk<2>, &'a [T], &'a [T]),
}

impl<'a, T: UnaryElement + BinaryElement> Begin<'a, T> {
    fn new(dims: &[usize], x: &'a [T], x_strides: &[usize], link: &Link<'a, T>) -> Self {
        let whole = || {
            assert_eq!(x.len(), dims.iter().product(), "the input has other dims");
            x
        };
        match *link {
            Link::Unary(op) => Begin::Unary(op, whole()),
            Link::Clip { low, high } => Begin::Clip(low, high, whole()),
            Link::Binary {
                op,
                side,
                other,
                strides,
            } => {
                let (a, a_strides, b, b_strides) = match side {
                    Side::Left => (x, x_strides, other, strides),
                    Side::Right => (other, strides, x, x_strides),
                };
                let walk = Walk::new(dims, [a_strides, b_strides], [a.len(), b.len()]);
                Begin::Binary(op, walk, a, b)
            }
        }
    }

    /// Output elements.
    fn len(&self) -> usize {
        match self {
            Begin::Unary(_, x) | Begin::Clip(_, _, x) => x.len(),
            Begin::Binary(_, walk, ..) => walk.len,
        }
    }

    /// Writes the elements from number `start` on.
    fn run(&self, level: Level, start: usize, out: &mut [T]) {
        match self {
            Begin::Unary(op, x) => T::unary(level, *op, &x[start..start + out.len()], out),
            Begin::Clip(low, high, x) => T::run(
                level,
                Clip {
                    low: *low,
                    high: *high,
                    x: &x[start..start + out.len()],
                    y: out,
                },
            ),
            Begin::Binary(op, walk, a, b) => part(level, *op, walk, start, a, b, out),
        }
    }
}

/// A link that works in place, with the way through its other operand.
#[allow(clippy::large_enum_variant)] // On the stack: nothing is allocated per call.
enum Ready<'a, T> {
    Unary(Unary),
    Clip(T, T),
    Binary(Binary, Side, Walk<1>, &'a [T]),
}

impl<'a, T: UnaryElement + BinaryElement> Ready<'a, T> {
    /// Fills in what there are links for, where it stays: a walk is hundreds of bytes, and most chains are short.
    fn prepare(dims: &[usize], links: &[Link<'a, T>], ready: &mut [Option<Self>; MAX_LINKS]) {
        for (ready, link) in ready.iter_mut().zip(links) {
            *ready = Some(Self::new(dims, link));
        }
    }

    fn new(dims: &[usize], link: &Link<'a, T>) -> Self {
        match *link {
            Link::Unary(op) => Ready::Unary(op),
            Link::Clip { low, high } => Ready::Clip(low, high),
            Link::Binary {
                op,
                side,
                other,
                strides,
            } => {
                let walk = Walk::new(dims, [strides], [other.len()]);
                Ready::Binary(op, side, walk, other)
            }
        }
    }

    /// Replaces the elements from number `start` on.
    fn run(&self, level: Level, start: usize, x: &mut [T]) {
        match self {
            Ready::Unary(op) => T::unary_in_place(level, *op, x),
            Ready::Clip(low, high) => T::run(
                level,
                ClipInPlace {
                    low: *low,
                    high: *high,
                    x,
                },
            ),
            Ready::Binary(op, side, walk, other) => {
                part_in_place(level, *op, *side, walk, start, x, other);
            }
        }
    }
}

#[cfg(test)]
mod tests;
