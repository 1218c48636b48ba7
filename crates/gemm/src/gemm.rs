//! Matrix products C = epilogue(A B): in f32 at the speed of the machine, in bytes with sums of 32
//! bits, and in any number type correctly.
//!
//! ```
//! use sardonyx_gemm::gemm::{Epilogue, Lhs, MatRef, PackedB, Rhs, gemm};
//! use sardonyx_simd::{Exec, Isa, Pool};
//!
//! # fn main() -> Result<(), sardonyx_simd::Ended> {
//! let exec = &Exec::new(Pool::global(), Isa::detect());
//! let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
//! let b = PackedB::new(exec.isa, MatRef::row_major(&b, 2, 2))?; // once, for constants
//! let mut c = [0.0; 4];
//! let a = Lhs::Plain(MatRef::row_major(&a, 2, 2));
//! gemm(exec, a, Rhs::Packed(&b), &mut c, 2, &Epilogue::default())?;
//! assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
//! # Ok(())
//! # }
//! ```
//!
//! The bits of an output element do not depend on the path: it is always one sum, made of chains of
//! multiply-adds over blocks of k, in order. Blocking, threads and orientation do not change it.
//! The instruction set may, and so may the number of rows in two cases: a product of few rows with
//! an unpacked matrix reads that without packing, and a product of many rows with a rounded
//! constant rounds both operands to bfloat16.

#[macro_use]
pub(crate) mod tile;

pub(crate) mod amx;
mod batch;
pub(crate) mod bf16;
mod blocked;
#[cfg(target_arch = "aarch64")]
pub(crate) mod by_lane;
mod doubles;
mod epilogue;
#[cfg(feature = "quantization")]
mod few_bits;
mod form;
mod gemv;
mod generic;
mod halves;
#[cfg(feature = "quantization")]
mod integer;
mod matrix;
pub(crate) mod pack;
mod repeated;
mod segments;
mod short;
mod sizes;
mod tables;

pub use batch::{BatchMat, BatchOut, BatchRhs, gemm_batch, gemm_batch_generic, gemm_batch_scratch};
pub use blocked::Sweep;
pub use epilogue::{Activation, Bias, Epilogue};
#[cfg(feature = "quantization")]
pub use few_bits::{
    BlockMatrix, FewBits, PerBlock, gemm_few_bits, gemm_few_bits_in_bytes,
    gemm_few_bits_in_bytes_scratch, gemm_few_bits_scratch,
};
pub use form::Elements;
pub use generic::{Number, gemm_generic};
pub use halves::{LeMatrix, ManyRows, Storage};
#[cfg(feature = "quantization")]
pub use integer::{
    ByteMatrix, ByteRhs, Bytes, ZeroPoints, gemm_bytes, gemm_bytes_scratch, gemm_bytes_to_floats,
};
pub use matrix::MatRef;
pub use pack::{PackSource, PackedA, PackedB};
pub use repeated::Repeated;

pub(crate) use blocked::{FinishTransposed, Operand, Product};
pub(crate) use epilogue::{ApplyFunction, ShortEpilogue, TileEpilogue};
pub(crate) use form::PanelForm;
pub(crate) use pack::SendPtr;
pub(crate) use sizes::{MatrixLayout, OperandKind, Sizes};
pub(crate) use tile::{TileEnd, finish};

use amx::product::ProductByTiles;
use matrix::strided_len;
use sardonyx_simd::{Ended, Exec, check_isa};

/// The left operand of a product.
#[derive(Clone, Copy)]
pub enum Lhs<'a> {
    Plain(MatRef<'a>),
    Packed(&'a PackedA),
    /// A matrix that exists only as the packing routine of its transpose.
    Virtual(&'a dyn PackSource),
}

/// The right operand of a product.
#[derive(Clone, Copy)]
pub enum Rhs<'a> {
    Plain(MatRef<'a>),
    Packed(&'a PackedB),
    /// A matrix that exists only as its packing routine.
    Virtual(&'a dyn PackSource),
}

impl std::fmt::Debug for Lhs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, (m, k)) = match self {
            Lhs::Plain(_) => ("Plain", self.size()),
            Lhs::Packed(_) => ("Packed", self.size()),
            Lhs::Virtual(_) => ("Virtual", self.size()),
        };
        write!(f, "{kind}({m} x {k})")
    }
}

impl std::fmt::Debug for Rhs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, (k, n)) = match self {
            Rhs::Plain(_) => ("Plain", self.size()),
            Rhs::Packed(_) => ("Packed", self.size()),
            Rhs::Virtual(_) => ("Virtual", self.size()),
        };
        write!(f, "{kind}({k} x {n})")
    }
}

impl<'a> Lhs<'a> {
    /// Returns the number of rows and the depth.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Lhs::Plain(a) => (a.rows(), a.cols()),
            Lhs::Packed(a) => (a.rows(), a.depth()),
            Lhs::Virtual(a) => (a.width(), a.depth()),
        }
    }

    fn kind(&self) -> OperandKind {
        match self {
            Lhs::Plain(a) => OperandKind::Matrix(MatrixLayout::from_matrix(&a.transpose())),
            Lhs::Packed(_) => OperandKind::Panels,
            Lhs::Virtual(_) => OperandKind::Source,
        }
    }
}

impl<'a> Rhs<'a> {
    /// Returns the depth and the number of columns.
    pub fn size(&self) -> (usize, usize) {
        match self {
            Rhs::Plain(b) => (b.rows(), b.cols()),
            Rhs::Packed(b) => (b.depth(), b.cols()),
            Rhs::Virtual(b) => (b.depth(), b.width()),
        }
    }

    fn kind(&self) -> OperandKind {
        match self {
            Rhs::Plain(b) => OperandKind::Matrix(MatrixLayout::from_matrix(b)),
            Rhs::Packed(_) => OperandKind::Panels,
            Rhs::Virtual(_) => OperandKind::Source,
        }
    }
}

/// Returns the treatment of a right operand that may be rounded: pairs or tiles of bfloat16 if A
/// has so many rows that rounding pays, else elements widened to floats.
fn rounding(a: &Lhs<'_>, b: &Rhs<'_>) -> ManyRows {
    let (rows, depth) = a.size();
    match b {
        Rhs::Packed(b) if !matches!(a, Lhs::Packed(_)) && rows >= bf16::MIN_ROWS && depth > 0 => {
            b.many_rows()
        }
        _ => ManyRows::Widened,
    }
}

/// Returns an upper bound of the scratch memory in bytes that [`gemm`] takes for these operands, as
/// far as it grows with their sizes. Each thread takes a few hundred KB more, whatever the sizes.
pub fn gemm_scratch(exec: &Exec<'_>, a: &Lhs<'_>, b: &Rhs<'_>) -> usize {
    let &Exec { pool, isa, .. } = exec;
    let ((m, k), (_, n)) = (a.size(), b.size());
    let floats = match rounding(a, b) {
        ManyRows::Pairs => bf16::pairs_len(isa, m, k),
        ManyRows::Tiles => amx::product::scratch_floats(exec, m, k),
        ManyRows::Widened => {
            let sizes = Sizes {
                isa,
                m,
                n,
                k,
                a: a.kind(),
                b: b.kind(),
                may_turn: !matches!(b, Rhs::Packed(b) if b.storage() != Storage::F32),
            };
            sizes.scratch_floats(pool)
        }
    };
    floats.saturating_mul(size_of::<f32>())
}

/// Computes C = epilogue(A B), where row i of C is `c[i * ldc..][..n]`. Floats of `c` between rows
/// keep their values.
///
/// With k = 0 the product is zero, and the epilogue still applies.
///
/// # Panics
///
/// If the sizes of the operands, of `c` or of a part of the epilogue do not fit each other, rows of
/// C overlap, a packed operand was packed for another instruction set, or this machine does not
/// have `isa`.
pub fn gemm(
    exec: &Exec<'_>,
    a: Lhs<'_>,
    b: Rhs<'_>,
    c: &mut [f32],
    ldc: usize,
    epilogue: &Epilogue<'_>,
) -> Result<(), Ended> {
    gemm_swept(exec, a, b, c, ldc, epilogue, Sweep::FromFirst)
}

/// Computes C = epilogue(A B) like [`gemm`], with panels of columns in the order of `sweep`. The
/// order changes no bit of C.
///
/// # Panics
///
/// In the cases of [`gemm`].
pub fn gemm_swept(
    exec: &Exec<'_>,
    a: Lhs<'_>,
    b: Rhs<'_>,
    c: &mut [f32],
    ldc: usize,
    epilogue: &Epilogue<'_>,
    sweep: Sweep,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    let ((m, k), (depth, n)) = (a.size(), b.size());
    assert_eq!(k, depth, "depth of A and B");
    assert!(ldc >= n || m <= 1, "rows of C overlap: {ldc} < {n}");
    let c_len = strided_len(m, n, ldc, 1);
    assert!(c_len.is_some_and(|len| len <= c.len()), "{m} x {n}, rows {ldc} apart, in {}", c.len());
    epilogue.check(m, n, c_len.unwrap_or(0));
    let c = SendPtr(c.as_mut_ptr());
    let rounding = rounding(&a, &b);
    let a_turned;
    let a = match a {
        Lhs::Packed(a) => {
            assert_eq!(a.isa(), isa, "instruction set of the packed A");
            Operand::Panels(a.panels.view())
        }
        Lhs::Plain(a) => {
            a_turned = a.transpose();
            Operand::Matrix(&a_turned)
        }
        Lhs::Virtual(a) => Operand::Source(a),
    };
    let a_source: Option<&dyn PackSource> = match a {
        Operand::Panels(_) => None,
        Operand::Matrix(a) => Some(a),
        Operand::Source(a) => Some(a),
    };
    if let (Rhs::Packed(b), ManyRows::Tiles) = (&b, rounding) {
        assert_eq!(b.isa(), isa, "instruction set of the packed B");
        let (caches, epilogue) = (exec.caches, epilogue.raw(ldc));
        let product = ProductByTiles { isa, caches, m, k, a, b, c, ldc, epilogue };
        // SAFETY: sizes were checked, `c` is borrowed mutably, and only a machine that multiplies
        // tiles has such operands.
        return unsafe { product.run(pool) };
    }
    if let (Some(a), Rhs::Packed(b), ManyRows::Pairs) = (a_source, &b, rounding) {
        assert_eq!(b.isa(), isa, "instruction set of the packed B");
        return bf16::with_pairs(exec, a, |a| {
            let product = Product {
                isa,
                caches: exec.caches,
                m,
                n,
                k: k.div_ceil(2),
                a: Operand::Panels(a),
                b: Operand::Panels(b.panels.view_of_pairs()),
                c,
                ldc,
                epilogue: epilogue.raw(ldc),
                form: PanelForm::Pairs(b.storage(), k),
                sweep,
            };
            // SAFETY: sizes were checked, `c` is borrowed mutably, and operands are rounded only if
            // the machine multiplies pairs.
            unsafe { product.run(pool) }
        });
    }
    let b_given = b;
    let b = match &b_given {
        Rhs::Packed(b) => {
            assert_eq!(b.isa(), isa, "instruction set of the packed B");
            Operand::Panels(b.panels.view())
        }
        Rhs::Plain(b) => Operand::Matrix(b),
        Rhs::Virtual(b) => Operand::Source(*b),
    };
    let product = Product {
        isa,
        caches: exec.caches,
        m,
        n,
        k,
        a,
        b,
        c,
        ldc,
        epilogue: epilogue.raw(ldc),
        form: PanelForm::Right(match &b_given {
            Rhs::Packed(b) => b.storage(),
            Rhs::Plain(_) | Rhs::Virtual(_) => Storage::F32,
        }),
        sweep,
    };
    // SAFETY: sizes were checked, `c` is borrowed mutably, the machine has `isa`.
    unsafe { product.run(pool) }
}

#[cfg(test)]
pub(crate) mod tests;
