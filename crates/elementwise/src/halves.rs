//! Arithmetic on 16-bit floats in vectors: operands are widened and results rounded in registers,
//! so that memory traffic is 16 bits for each element.
//!
//! Kernels that compute in f32 widen and round whole slices instead.

use sardonyx_simd::chunks::fill;
use sardonyx_simd::halves::FloatVectors;
use sardonyx_simd::number::Number;
use sardonyx_simd::{Body, Ended, Exec, Level, Simd};

use super::binary::Binary;
use super::broadcast::Operand;

/// Geometry: elements of a repeated constant: as many as the widest vector has.
const MOST_LANES: usize = 16;

/// Operation that each instruction set has for vectors of floats.
#[derive(Clone, Copy)]
enum Vectored {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    SquaredDifference,
}

impl Vectored {
    /// Returns the vector form of `op`, or `None` if it has none.
    fn new(op: Binary) -> Option<Vectored> {
        Some(match op {
            Binary::Add => Vectored::Add,
            Binary::Sub => Vectored::Sub,
            Binary::Mul => Vectored::Mul,
            Binary::Div => Vectored::Div,
            Binary::Max => Vectored::Max,
            Binary::Min => Vectored::Min,
            Binary::SquaredDifference => Vectored::SquaredDifference,
            _ => return None,
        })
    }

    /// Computes one vector.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    unsafe fn apply<S: Simd>(self, a: S::V, b: S::V) -> S::V {
        // SAFETY: the caller promises the instruction set of `S`.
        unsafe {
            match self {
                Vectored::Add => S::add(a, b),
                Vectored::Sub => S::sub(a, b),
                Vectored::Mul => S::mul(a, b),
                Vectored::Div => S::div(a, b),
                Vectored::Max => S::max_or_nan(a, b),
                Vectored::Min => S::min_or_nan(a, b),
                Vectored::SquaredDifference => {
                    let difference = S::sub(a, b);
                    S::mul(difference, difference)
                }
            }
        }
    }
}

/// Elements to read: adjacent ones, or one element repeatedly.
#[derive(Clone, Copy)]
struct Elements<T> {
    first: *const T,
    /// Distance between elements: 1, or 0 for a vector of one repeated element.
    step: usize,
}

/// Body that computes a row. Results may replace one of the operands.
struct Row<T> {
    op: Vectored,
    a: Elements<T>,
    b: Elements<T>,
    out: *mut T,
    len: usize,
}

/// Writes `op(a, b)` to `out` and returns true if `op` has a vector form.
pub(super) fn row<T: FloatVectors>(
    level: Level,
    op: Binary,
    a: Operand<'_, T>,
    b: Operand<'_, T>,
    out: &mut [T],
) -> bool {
    let Some(op) = Vectored::new(op) else { return false };
    let (mut repeated_a, mut repeated_b) = ([T::ZERO; MOST_LANES], [T::ZERO; MOST_LANES]);
    let a = Elements::new(a, out.len(), &mut repeated_a);
    let b = Elements::new(b, out.len(), &mut repeated_b);
    // SAFETY: the operands have as many elements as the row, or a vector of a constant.
    unsafe { level.run_body(Row { op, a, b, out: out.as_mut_ptr(), len: out.len() }) };
    true
}

/// Replaces `a` by `op(a, b)`, or by `op(b, a)` with `is_reversed`, and returns true if `op` has a
/// vector form.
pub(super) fn row_in_place<T: FloatVectors>(
    level: Level,
    op: Binary,
    is_reversed: bool,
    a: &mut [T],
    b: Operand<'_, T>,
) -> bool {
    let Some(op) = Vectored::new(op) else { return false };
    let mut repeated = [T::ZERO; MOST_LANES];
    let b = Elements::new(b, a.len(), &mut repeated);
    let (out, len) = (a.as_mut_ptr(), a.len());
    let own = Elements { first: out.cast_const(), step: 1 };
    let (a, b) = if is_reversed { (b, own) } else { (own, b) };
    // SAFETY: the operands have as many elements as the row, or a vector of a constant; each
    // element is read before it is replaced.
    unsafe { level.run_body(Row { op, a, b, out, len }) };
    true
}

impl<T: FloatVectors> Elements<T> {
    /// Returns the elements of a row's operand; `repeated` is memory for a constant.
    ///
    /// # Panics
    ///
    /// If a slice has fewer than `len` elements.
    fn new(operand: Operand<'_, T>, len: usize, repeated: &mut [T]) -> Self {
        match operand {
            Operand::Slice(x) => Elements { first: x[..len].as_ptr(), step: 1 },
            Operand::Constant(x) => {
                repeated.fill(x);
                Elements { first: repeated.as_ptr(), step: 0 }
            }
        }
    }

    /// Returns a pointer to element `index`.
    fn at(self, index: usize) -> *const T {
        self.first.wrapping_add(index * self.step)
    }
}

impl<T: FloatVectors> Body for Row<T> {
    type Out = ();

    /// Computes the row.
    ///
    /// # Safety
    ///
    /// `len` elements are readable from both operands, or a whole vector if their step is 0, and
    /// `len` elements are writable.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Row { op, a, b, out, len } = self;
        /// Computes whole vectors by one operation, so that the loop does not branch on it, and
        /// returns their end.
        macro_rules! sweep {
            ($op:ident) => {{
                let mut at = 0;
                while at + S::LANES <= len {
                    let (x, y) = (T::load::<S>(a.at(at)), T::load::<S>(b.at(at)));
                    T::store::<S>(out.add(at), Vectored::$op.apply::<S>(x, y));
                    at += S::LANES;
                }
                at
            }};
        }
        // SAFETY: the caller promises valid elements; the remainder is copied through whole vectors
        // on the stack.
        unsafe {
            let at = match op {
                Vectored::Add => sweep!(Add),
                Vectored::Sub => sweep!(Sub),
                Vectored::Mul => sweep!(Mul),
                Vectored::Div => sweep!(Div),
                Vectored::Max => sweep!(Max),
                Vectored::Min => sweep!(Min),
                Vectored::SquaredDifference => sweep!(SquaredDifference),
            };
            let rest = len - at;
            if rest > 0 {
                let [mut x, mut y, mut result] = [[T::ONE; MOST_LANES]; 3];
                for (i, (x, y)) in x.iter_mut().zip(&mut y).take(rest).enumerate() {
                    *x = *a.at(at + i);
                    *y = *b.at(at + i);
                }
                let (x, y) = (T::load::<S>(x.as_ptr()), T::load::<S>(y.as_ptr()));
                T::store::<S>(result.as_mut_ptr(), op.apply::<S>(x, y));
                std::ptr::copy_nonoverlapping(result.as_ptr(), out.add(at), rest);
            }
        }
    }
}

/// Widens elements with all threads.
///
/// # Panics
///
/// If the lengths differ.
pub fn widen<T: Number<Wide = f32>>(
    exec: &Exec<'_>,
    x: &[T],
    wide: &mut [f32],
) -> Result<(), Ended> {
    assert_eq!(x.len(), wide.len(), "one float for each element");
    let level = Level::new(exec.isa);
    fill(exec.pool, wide, 1, |at, wide| T::widen_all(level, &x[at..][..wide.len()], wide))
}

/// Rounds floats to elements with all threads.
///
/// # Panics
///
/// If the lengths differ.
pub fn narrow<T: Number<Wide = f32>>(
    exec: &Exec<'_>,
    wide: &[f32],
    y: &mut [T],
) -> Result<(), Ended> {
    assert_eq!(wide.len(), y.len(), "one float for each element");
    let level = Level::new(exec.isa);
    fill(exec.pool, y, 1, |at, y| T::narrow_all(level, &wide[at..][..y.len()], y))
}
