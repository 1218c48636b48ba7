//! Products of integers of 8 bits with zero points, added up exactly in 32 bits.
//!
//! A word of 32 bits, which holds one step of k in panels of floats, holds several neighbouring
//! steps here: two as integers of 16 bits, or four as bytes where the machine multiplies those
//! (`VPDPBUSD`, or tiles of AMX for many rows; `SDOT`). Panels and blocks are thus those of floats.
//! The multiply-add of a lane is another [`Mac`](super::tile::Mac), and its sum is an integer in
//! the bits of a lane. With AVX2, a constant right operand stays bytes in memory: two steps are
//! half a word, which tiles widen.
//!
//! Elements are packed without their zero points `z` and `y`, so that the form of a constant does
//! not depend on them. Their contribution to a sum is subtracted at the end: `sum (a - z) (b - y) =
//! sum a b - z sum b - y (sum a - k z)`, where sums of single elements are computed while these are
//! packed. Where four bytes are multiplied, one side must be unsigned and the other signed, or both
//! signed. Elements of the other kind move by 128 to get there, and so do their zero points, which
//! changes no difference. All sums wrap at 32 bits.

pub(super) mod macs;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

use super::amx::{
    self,
    bytes::{self, BytesByTiles},
};
use super::blocked::{FinishRow, KC, Operand, Product, Sweep};
use super::epilogue::{ApplyFunction, Epilogue, TileEpilogue};
use super::form::{Elements, Form};
use super::matrix::MatRef;
use super::pack::{
    PackPlan, Packed, PackedB, Panels, SendPtr, for_each_chunk, panel_width, rows_in_place,
};
use super::sizes::{ALIASED, NARROW, count_threads};
#[cfg(target_arch = "x86_64")]
use super::tables::PAIRS_OF_BYTES;
use super::tables::tiles_of_shorts;
use super::tile::TileTable;
use sardonyx_simd::buffer::{Lasts, with_scratch};
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Exec, Isa};
use sardonyx_simd::{Level, Loop, check_isa, dispatch};

/// Content of the words of panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Two steps as integers of 16 bits.
    Pairs,
    /// Two steps as integers of 16 bits in A, and as signed bytes in B, which tiles widen.
    PairsOfBytes,
    /// Four steps as bytes, in A signed if [`LEFT_HAS_SIGN`], in B signed.
    Quads,
}

/// Whether the instruction that multiplies four bytes takes those of A as signed.
const LEFT_HAS_SIGN: bool = cfg!(target_arch = "aarch64");

impl Words {
    /// Returns the form with the most steps per instruction, in which packed constants take the
    /// least memory.
    fn best(isa: Isa) -> Words {
        let all = [Words::Quads, Words::PairsOfBytes];
        all.into_iter().find(|words| words.is_available(isa)).unwrap_or(Words::Pairs)
    }

    /// Returns the form of operands that are packed for one product.
    fn in_full(self) -> Words {
        if self == Words::PairsOfBytes { Words::Pairs } else { self }
    }

    /// Whether this machine multiplies such words on that instruction set.
    fn is_available(self, isa: Isa) -> bool {
        match self {
            Words::Pairs => isa.is_available(),
            #[cfg(target_arch = "x86_64")]
            Words::PairsOfBytes => isa == Isa::Avx2 && isa.is_available(),
            #[cfg(target_arch = "x86_64")]
            Words::Quads => {
                isa == Isa::Avx512 && isa.is_available() && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Words::Quads => isa == Isa::Neon && std::arch::is_aarch64_feature_detected!("dotprod"),
            #[cfg(not(target_arch = "x86_64"))]
            Words::PairsOfBytes => false,
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            Words::Quads => false,
        }
    }

    /// Returns the number of steps of k in a word.
    fn steps(self) -> usize {
        match self {
            Words::Pairs | Words::PairsOfBytes => 2,
            Words::Quads => 4,
        }
    }

    /// Returns the conversion of the bits of A to the integers that are multiplied.
    fn of_left(self, signed: bool) -> Reading {
        match self {
            Words::Pairs | Words::PairsOfBytes => Reading { flip: 0, signed },
            Words::Quads => {
                let flip = if signed == LEFT_HAS_SIGN { 0 } else { 0x80 };
                Reading { flip, signed: LEFT_HAS_SIGN }
            }
        }
    }

    /// Returns the conversion of the bits of B to the integers that are multiplied.
    fn of_right(self, signed: bool) -> Reading {
        match self {
            Words::Pairs => Reading { flip: 0, signed },
            Words::PairsOfBytes | Words::Quads => {
                Reading { flip: if signed { 0 } else { 0x80 }, signed: true }
            }
        }
    }
}

impl Form for Words {
    type Sum = i32;

    fn tiles(self, isa: Isa) -> TileTable {
        match self {
            Words::Pairs => tiles_of_shorts(isa),
            #[cfg(target_arch = "x86_64")]
            Words::PairsOfBytes => PAIRS_OF_BYTES,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Words::Quads => macs::quads::QUADS,
            #[cfg(not(target_arch = "x86_64"))]
            Words::PairsOfBytes => unreachable!("no machine but x86 has such tiles"),
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            Words::Quads => unreachable!("no such machine multiplies four bytes"),
        }
    }

    /// Returns the most steps of a k block: twice those of floats if steps are half as large. Sums
    /// of integers do not depend on it.
    fn most_steps(self) -> usize {
        if self == Words::PairsOfBytes { 2 * KC } else { KC }
    }

    /// Returns `false`, as A is packed in each product.
    fn waits_for_left(self) -> bool {
        false
    }

    fn conversion(self, _isa: Isa, _rows: usize) -> Option<Words> {
        None
    }

    unsafe fn turn_panel(self, _: Isa, _: *const f32, _: usize, _: usize, _: *mut f32) {
        unreachable!("words are multiplied as they are")
    }
}

/// Conversion of the bits of an element to the integer that is multiplied.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Bits that are flipped first: the highest bit if elements move by 128.
    flip: u8,
    /// Whether the integer is signed.
    signed: bool,
}

impl Reading {
    /// Converts one element.
    #[inline(always)]
    fn value(self, bits: u8) -> i32 {
        let mask = if self.signed { -1 } else { 0xff };
        i32::from((bits ^ self.flip).cast_signed()) & mask
    }

    /// Sums the elements, in vectors of 16 bits as long as these hold the sums.
    #[inline(always)]
    fn sum(self, bits: &[u8]) -> i32 {
        /// Geometry: integers of 16 bits in a vector of AVX2.
        const LANES: usize = 16;
        /// Limit: elements whose sum is less than 2^15.
        const MOST: usize = 128;
        let mut total = 0i32;
        for block in bits.chunks(LANES * MOST) {
            let (groups, rest) = block.as_chunks::<LANES>();
            let mut lanes = [0i16; LANES];
            for group in groups {
                for (lane, bits) in lanes.iter_mut().zip(group) {
                    *lane += self.value(*bits) as i16;
                }
            }
            let rest = rest.iter().map(|bits| self.value(*bits));
            let sum: i32 = lanes.into_iter().map(i32::from).chain(rest).sum();
            total = total.wrapping_add(sum);
        }
        total
    }

    /// Returns the zero point of a row of A or a column of B, converted like the elements.
    fn zero_point(self, zero_points: &[u8], index: usize) -> i32 {
        self.value(match zero_points {
            [] => 0,
            [one] => *one,
            several => several[index],
        })
    }
}

/// Type of the elements of a right operand of integers of 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    words: Words,
    signed: bool,
}

impl Bytes {
    /// Returns the type whose products are fastest on `isa`.
    pub fn new(isa: Isa, signed: bool) -> Bytes {
        Bytes { words: Words::best(isa), signed }
    }
}

impl Elements for Bytes {
    /// Sum of the converted elements of each column.
    type Beside = Vec<i32>;

    fn rows(self, depth: usize) -> usize {
        depth.div_ceil(self.words.steps())
    }

    fn words(self, width: usize) -> usize {
        if self.words == Words::PairsOfBytes { width / 2 } else { width }
    }

    fn bytes_beside(self, cols: usize) -> usize {
        cols.saturating_mul(size_of::<i32>())
    }
}

/// A matrix of integers of 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct ByteMatrix<'a> {
    /// Bits of the elements.
    pub bits: MatRef<'a, u8>,
    pub signed: bool,
}

/// The right operand of a product.
#[derive(Clone, Copy, Debug)]
pub enum ByteRhs<'a> {
    Plain(ByteMatrix<'a>),
    Packed(&'a PackedB<Bytes>),
}

impl ByteRhs<'_> {
    /// Returns the depth and the number of columns.
    fn size(&self) -> (usize, usize) {
        match self {
            ByteRhs::Plain(b) => (b.bits.rows(), b.bits.cols()),
            ByteRhs::Packed(b) => (b.depth(), b.cols()),
        }
    }

    /// Returns the content of the words in a product with this operand.
    fn words(&self, isa: Isa) -> Words {
        match self {
            ByteRhs::Plain(_) => Words::best(isa),
            ByteRhs::Packed(b) => b.panels.elements.words,
        }
    }
}

/// Numbers that are subtracted from the elements before they are multiplied, as bits of the type of
/// the elements: none, one for all elements, or one for each row of A or column of B.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZeroPoints<'a> {
    pub a: &'a [u8],
    pub b: &'a [u8],
}

impl PackedB<Bytes> {
    /// Packs `b` (k x n) for products with any zero points.
    ///
    /// # Panics
    ///
    /// If this machine does not have `isa`.
    pub fn from_bytes(isa: Isa, b: ByteMatrix<'_>) -> Result<PackedB<Bytes>, Ended> {
        PackedB::pack_words(isa, Words::best(isa), b)
    }

    /// Packs `b` in words of this content.
    fn pack_words(isa: Isa, words: Words, b: ByteMatrix<'_>) -> Result<PackedB<Bytes>, Ended> {
        let elements = Bytes { words, signed: b.signed };
        let side = Side { matrix: b.bits, words, reading: words.of_right(b.signed) };
        let plan = PackPlan {
            isa,
            elements,
            depth: b.bits.rows(),
            width: b.bits.cols(),
            lasts: Lasts::ForGood,
        };
        let w = panel_width(isa);
        let sums: Vec<AtomicI32> = (0..b.bits.cols()).map(|_| AtomicI32::new(0)).collect();
        let panels = Packed::pack_chunks(
            plan,
            |_| {},
            |chunk, start, out| {
                let columns = start..b.bits.cols().min(start + w);
                let target = Target { out: out.as_mut_ptr().cast(), ks: w, ws: 1 };
                // SAFETY: `out` has the rows of the chunk.
                unsafe { side.pack(isa, chunk, columns, target, &sums) }
            },
        )?;
        Ok(PackedB { panels, beside: sums.into_iter().map(AtomicI32::into_inner).collect() })
    }
}

/// Returns the bytes of scratch memory that [`gemm_bytes`] takes for these operands.
pub fn gemm_bytes_scratch(exec: &Exec<'_>, a: &ByteMatrix<'_>, b: &ByteRhs<'_>) -> usize {
    let w = panel_width(exec.isa);
    let rows = a.bits.cols().div_ceil(b.words(exec.isa).steps());
    // The words of each column and their sum.
    let words = |width: usize| width.next_multiple_of(w).saturating_mul(rows).saturating_add(width);
    let right = match b {
        ByteRhs::Plain(b) => words(b.bits.cols()),
        ByteRhs::Packed(_) => 0,
    };
    let height = a.bits.rows();
    let in_place = height.saturating_mul(pitch_of(rows)).saturating_add(height);
    let left = if is_in_place(a) { in_place } else { words(height) };
    left.saturating_add(right).saturating_mul(size_of::<i32>())
}

/// Returns the stride in words between rows of `words` adjacent words. Rows with a stride that is a
/// multiple of [`ALIASED`] would evict each other from the first-level cache.
fn pitch_of(words: usize) -> usize {
    if words.is_multiple_of(ALIASED) { words + 16 } else { words }
}

/// Whether the words of each row of A are adjacent, so that tiles read the rows in place. They are
/// if the elements are, as packing then widens bytes in order, and for few rows, which need no
/// padding to a panel then.
fn is_in_place(a: &ByteMatrix<'_>) -> bool {
    a.bits.col_stride() == 1 || a.bits.rows() <= NARROW
}

/// Computes C = (A - zero points) (B - zero points). `c` holds all rows, one after the other. Sums
/// wrap at 32 bits.
///
/// # Panics
///
/// If the sizes of the operands, of their zero points or of `c` do not fit each other, the packed
/// operand was packed for another instruction set, or this machine does not have `isa`.
pub fn gemm_bytes(
    exec: &Exec<'_>,
    a: ByteMatrix<'_>,
    b: ByteRhs<'_>,
    zero_points: ZeroPoints<'_>,
    c: &mut [i32],
) -> Result<(), Ended> {
    product(exec, b.words(exec.isa), a, b, zero_points, c, None)
}

/// Computes C = epilogue(factors (A - zero points) (B - zero points)): sums of integers, which wrap
/// at 32 bits, become floats and are multiplied by one number, or by one for each column.
///
/// # Panics
///
/// In the cases of [`gemm_bytes`], or if the sizes of `factors` or of a part of the epilogue do not
/// fit.
pub fn gemm_bytes_to_floats(
    exec: &Exec<'_>,
    a: ByteMatrix<'_>,
    b: ByteRhs<'_>,
    zero_points: ZeroPoints<'_>,
    factors: &[f32],
    epilogue: &Epilogue<'_>,
    c: &mut [f32],
) -> Result<(), Ended> {
    let (m, n) = (a.bits.rows(), b.size().1);
    assert!(factors.len() == 1 || factors.len() == n, "{} factors for {n}", factors.len());
    epilogue.check(m, n, c.len());
    let floats = ToFloats { factors, epilogue: epilogue.raw(n) };
    // SAFETY: an integer of 32 bits has the size and alignment of a float, and any bits are a value
    // of either.
    let sums = unsafe { slice::from_raw_parts_mut(c.as_mut_ptr().cast::<i32>(), c.len()) };
    product(exec, b.words(exec.isa), a, b, zero_points, sums, Some(&floats))
}

/// Conversion of sums to floats.
struct ToFloats<'a> {
    /// One factor, or one for each column.
    factors: &'a [f32],
    epilogue: TileEpilogue,
}

/// Computes a product in words of this content, with sums converted to floats if `floats` is given.
fn product(
    exec: &Exec<'_>,
    words: Words,
    a: ByteMatrix<'_>,
    b: ByteRhs<'_>,
    zero_points: ZeroPoints<'_>,
    c: &mut [i32],
    floats: Option<&ToFloats<'_>>,
) -> Result<(), Ended> {
    check_isa(exec.isa);
    assert!(words.is_available(exec.isa), "this machine does not multiply {words:?}");
    let words = if let ByteRhs::Plain(_) = b { words.in_full() } else { words };
    let (m, k) = (a.bits.rows(), a.bits.cols());
    let (depth, n) = b.size();
    assert_eq!(k, depth, "depth of A and B");
    assert_eq!(Some(c.len()), m.checked_mul(n), "{m} x {n} products");
    for (points, count) in [(zero_points.a.len(), m), (zero_points.b.len(), n)] {
        assert!(points <= 1 || points == count, "{points} zero points for {count}");
    }
    if c.is_empty() {
        return Ok(());
    }
    let of_left = words.of_left(a.signed);
    let left = Side { matrix: a.bits.transpose(), words: words.in_full(), reading: of_left };
    left.with_panels(exec, is_in_place(&a), |a, a_sums| {
        let mut multiply = |b: Panels, b_sums: &[i32], of_right: Reading| {
            let product = Product {
                isa: exec.isa,
                caches: exec.caches,
                m,
                n,
                k: k.div_ceil(words.steps()),
                a: Operand::Panels(a),
                b: Operand::Panels(b),
                c: SendPtr(c.as_mut_ptr()),
                ldc: n,
                epilogue: Epilogue::default().raw(0),
                form: words,
                sweep: Sweep::FromFirst,
            };
            // SAFETY: sizes were checked and are not zero, panels are packed, `c` is borrowed
            // mutably, and the machine multiplies such words.
            unsafe {
                match tiles_for(&product, &a) {
                    Some(tiles) => tiles.run(exec.pool)?,
                    None => {
                        let threads = count_threads(exec.pool, m, n, product.k);
                        product.run_panels(exec.pool, threads, a, b)?;
                    }
                }
            };
            let zeros = Zeros {
                depth: k as i32,
                a: ZeroSide { reading: of_left, points: zero_points.a, sums: a_sums },
                b: ZeroSide { reading: of_right, points: zero_points.b, sums: b_sums },
            };
            match floats {
                Some(floats) => zeros.subtract_to_floats(exec, n, c, floats),
                None => zeros.subtract(exec, n, c),
            }
        };
        match b {
            ByteRhs::Packed(b) => {
                assert_eq!(b.isa(), exec.isa, "instruction set of the packed B");
                multiply(b.panels.view(), &b.beside, words.of_right(b.panels.elements.signed))
            }
            ByteRhs::Plain(b) => {
                let reading = words.of_right(b.signed);
                let right = Side { matrix: b.bits, words, reading };
                right.with_panels(exec, false, |b, sums| multiply(b, sums, reading))
            }
        }
    })
}

/// Converts a product to one by matrix tiles, where these are faster.
fn tiles_for(product: &Product<'_, Words>, a: &Panels) -> Option<BytesByTiles> {
    let Operand::Panels(b) = product.b else { return None };
    let is_wide = product.m >= bytes::LEAST_ROWS && product.form == Words::Quads && a.ks == 1;
    let depth = bytes::depth_of(product.k).filter(|_| is_wide)?;
    amx::multiplies_bytes(product.isa).then_some(BytesByTiles {
        caches: product.caches,
        size: [product.m, product.n],
        words: product.k,
        depth,
        a: *a,
        b,
        c: product.c,
    })
}

/// An operand as steps by columns.
struct Side<'a> {
    matrix: MatRef<'a, u8>,
    words: Words,
    reading: Reading,
}

impl Side<'_> {
    /// Packs the operand into scratch memory and lends its panels and the sums of its columns to
    /// `f`. With `in_columns`, the words of each column are adjacent, which only the narrow operand
    /// of a tile may be.
    fn with_panels<R>(
        &self,
        exec: &Exec<'_>,
        in_columns: bool,
        f: impl FnOnce(Panels, &[i32]) -> Result<R, Ended>,
    ) -> Result<R, Ended> {
        let w = panel_width(exec.isa);
        let (rows, width) = (self.matrix.rows().div_ceil(self.words.steps()), self.matrix.cols());
        let panels = width.div_ceil(w);
        let pitch = pitch_of(rows);
        let (len, (ks, ws)) =
            if in_columns { (width * pitch, (1, pitch)) } else { (panels * w * rows, (w, 1)) };
        with_scratch(len + width, |all| {
            let (words, sums) = all.split_at_mut(len);
            // SAFETY: integers of 32 bits, atomic or not, have the size and alignment of floats,
            // and any bits are a value. No other code uses this part of the scratch memory.
            let sums = unsafe {
                sums.as_mut_ptr().write_bytes(0, width);
                slice::from_raw_parts(sums.as_ptr().cast::<AtomicI32>(), width)
            };
            let out = SendPtr(words.as_mut_ptr().cast::<u32>());
            for_each_chunk(exec.pool, rows, 0..panels, w, |panel, chunk: Range<usize>| {
                let columns = panel * w..width.min((panel + 1) * w);
                // SAFETY: chunks are disjoint parts of the scratch memory.
                unsafe {
                    let of_panel = if in_columns { w * pitch } else { w * rows };
                    let out = out.get().add(panel * of_panel + chunk.start * ks);
                    if columns.len() < w && !in_columns {
                        out.write_bytes(0, chunk.len() * w);
                    }
                    self.pack(exec.isa, chunk, columns, Target { out, ks, ws }, sums);
                }
            })?;
            // SAFETY: like above, and all threads are done with them.
            let sums = unsafe { slice::from_raw_parts(sums.as_ptr().cast::<i32>(), width) };
            let ptr = words.as_ptr();
            let width = if in_columns { rows_in_place(exec.isa) } else { w };
            let stride = width * if in_columns { pitch } else { rows };
            f(Panels { ptr, stride, ks, ws, width }, sums)
        })
    }

    /// Packs some rows of words of some columns, at most those of a panel, and adds the columns to
    /// `sums`, which has one for each column of the matrix.
    ///
    /// # Safety
    ///
    /// The words of the target must be writable.
    unsafe fn pack(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        target: Target,
        sums: &[AtomicI32],
    ) {
        let per_word = self.words.steps();
        assert!(rows.end <= self.matrix.rows().div_ceil(per_word));
        assert!(columns.end <= self.matrix.cols() && columns.len() <= MAX_PANEL);
        let first = rows.start * per_word;
        let (row_stride, col_stride) = (self.matrix.row_stride(), self.matrix.col_stride());
        let mut found = [0i32; MAX_PANEL];
        let body = PackWords {
            words: self.words,
            reading: self.reading,
            src: self.matrix.as_ptr().wrapping_add(first * row_stride + columns.start * col_stride),
            depth: self.matrix.rows().min(rows.end * per_word) - first,
            row_stride,
            col_stride,
            target,
            sums: &mut found[..columns.len()],
        };
        Level::new(isa).run_avx2(body);
        for (sum, found) in sums[columns].iter().zip(found) {
            sum.fetch_add(found, Relaxed);
        }
    }
}

/// Geometry: columns of the widest panel.
const MAX_PANEL: usize = panel_width(Isa::Avx512);

/// Words to write: word `i` of column `j` is `out[i * ks + j * ws]`. A pair of bytes is half a
/// word.
#[derive(Clone, Copy)]
struct Target {
    out: *mut u32,
    ks: usize,
    ws: usize,
}

/// Loop that packs words from a part of a matrix of steps by columns. Steps after the last one are
/// zero, whatever the zero point. The code that makes it must have valid elements and words.
struct PackWords<'a> {
    words: Words,
    reading: Reading,
    src: *const u8,
    /// Number of steps.
    depth: usize,
    row_stride: usize,
    col_stride: usize,
    target: Target,
    /// Sum of each column.
    sums: &'a mut [i32],
}

impl Loop for PackWords<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // Adjacent elements are read in one go.
        match (self.words, self.col_stride, self.row_stride) {
            (Words::Pairs, cs, 1) if self.is_in_order() => self.pack_pairs_in_order(cs),
            (Words::Quads, cs, 1) if self.is_in_order() => self.pack_quads_in_order(cs),
            (Words::Pairs, 1, rs) => self.pack_by_rows::<2, 16>(rs, 1),
            (Words::Pairs, cs, 1) => self.pack_by_columns::<2, 16>(1, cs),
            (Words::Pairs, cs, rs) => self.pack_by_columns::<2, 16>(rs, cs),
            (Words::PairsOfBytes, 1, rs) => self.pack_by_rows::<2, 8>(rs, 1),
            (Words::PairsOfBytes, cs, 1) => self.pack_by_columns::<2, 8>(1, cs),
            (Words::PairsOfBytes, cs, rs) => self.pack_by_columns::<2, 8>(rs, cs),
            (Words::Quads, 1, rs) => self.pack_by_rows::<4, 8>(rs, 1),
            (Words::Quads, cs, 1) => self.pack_by_columns::<4, 8>(1, cs),
            (Words::Quads, cs, rs) => self.pack_by_columns::<4, 8>(rs, cs),
        }
    }
}

impl PackWords<'_> {
    /// Whether steps that are adjacent in memory stay adjacent, in the byte order of the processor.
    fn is_in_order(&self) -> bool {
        self.target.ks == 1 && cfg!(target_endian = "little")
    }

    /// Widens columns of adjacent steps to integers of 16 bits.
    #[inline(always)]
    fn pack_pairs_in_order(self, col_stride: usize) {
        let steps = self.depth.next_multiple_of(2);
        for (column, sum) in self.sums.iter_mut().enumerate() {
            let src = self.src.wrapping_add(column * col_stride);
            let out = self.target.out.wrapping_add(column * self.target.ws).cast::<i16>();
            // SAFETY: `Side::pack` makes the loop with valid elements and words; a word holds two
            // integers.
            let (src, out) = unsafe {
                (slice::from_raw_parts(src, self.depth), slice::from_raw_parts_mut(out, steps))
            };
            for (out, bits) in out.iter_mut().zip(src) {
                *out = self.reading.value(*bits) as i16;
            }
            out[self.depth..].fill(0);
            *sum = sum.wrapping_add(self.reading.sum(src));
        }
    }

    /// Copies columns of adjacent steps, with the bits flipped that move them by 128.
    #[inline(always)]
    fn pack_quads_in_order(self, col_stride: usize) {
        let steps = self.depth.next_multiple_of(4);
        for (column, sum) in self.sums.iter_mut().enumerate() {
            let src = self.src.wrapping_add(column * col_stride);
            let out = self.target.out.wrapping_add(column * self.target.ws).cast::<u8>();
            // SAFETY: `Side::pack` makes the loop with valid elements and words; a word holds four
            // bytes.
            let (src, out) = unsafe {
                (slice::from_raw_parts(src, self.depth), slice::from_raw_parts_mut(out, steps))
            };
            for (out, bits) in out.iter_mut().zip(src) {
                *out = bits ^ self.reading.flip;
            }
            out[self.depth..].fill(0);
            *sum = sum.wrapping_add(self.reading.sum(src));
        }
    }

    /// Packs row by row, for columns that are adjacent.
    #[inline(always)]
    fn pack_by_rows<const STEPS: usize, const BITS: usize>(
        self,
        row_stride: usize,
        col_stride: usize,
    ) {
        for row in 0..self.depth.div_ceil(STEPS) {
            let src = self.src.wrapping_add(row * STEPS * row_stride);
            let steps = self.depth - row * STEPS;
            for (column, sum) in self.sums.iter_mut().enumerate() {
                let src = src.wrapping_add(column * col_stride);
                // SAFETY: `Side::pack` makes the loop with valid elements and words.
                unsafe {
                    let (word, of_word) = if steps >= STEPS {
                        read_word::<STEPS, BITS>(self.reading, src, row_stride, STEPS)
                    } else {
                        read_word::<STEPS, BITS>(self.reading, src, row_stride, steps)
                    };
                    let index = row * self.target.ks + column * self.target.ws;
                    store_word::<STEPS, BITS>(self.target.out, index, word);
                    *sum = sum.wrapping_add(of_word);
                }
            }
        }
    }

    /// Packs column by column.
    #[inline(always)]
    fn pack_by_columns<const STEPS: usize, const BITS: usize>(
        self,
        row_stride: usize,
        col_stride: usize,
    ) {
        for (column, sum) in self.sums.iter_mut().enumerate() {
            let src = self.src.wrapping_add(column * col_stride);
            let first = column * self.target.ws;
            let whole = self.depth / STEPS;
            // SAFETY: `Side::pack` makes the loop with valid elements and words.
            unsafe {
                for row in 0..whole {
                    let src = src.wrapping_add(row * STEPS * row_stride);
                    let (word, of_word) =
                        read_word::<STEPS, BITS>(self.reading, src, row_stride, STEPS);
                    store_word::<STEPS, BITS>(self.target.out, first + row * self.target.ks, word);
                    *sum = sum.wrapping_add(of_word);
                }
                if whole * STEPS < self.depth {
                    let src = src.wrapping_add(whole * STEPS * row_stride);
                    let steps = self.depth - whole * STEPS;
                    let (word, of_word) =
                        read_word::<STEPS, BITS>(self.reading, src, row_stride, steps);
                    store_word::<STEPS, BITS>(
                        self.target.out,
                        first + whole * self.target.ks,
                        word,
                    );
                    *sum = sum.wrapping_add(of_word);
                }
            }
        }
    }
}

/// Writes word `index`, which has 16 bits or 32.
///
/// # Safety
///
/// The word must be writable.
#[inline(always)]
unsafe fn store_word<const STEPS: usize, const BITS: usize>(
    out: *mut u32,
    index: usize,
    word: u32,
) {
    // SAFETY: the caller has the word writable.
    unsafe {
        if STEPS * BITS == 16 {
            out.cast::<u16>().wrapping_add(index).write(word as u16);
        } else {
            out.wrapping_add(index).write(word);
        }
    }
}

/// Reads a word of `STEPS` steps of `BITS` bits, the first `steps` of which exist, and returns it
/// with their sum.
///
/// # Safety
///
/// The steps must be readable.
#[inline(always)]
unsafe fn read_word<const STEPS: usize, const BITS: usize>(
    reading: Reading,
    src: *const u8,
    row_stride: usize,
    steps: usize,
) -> (u32, i32) {
    let mask = u32::MAX >> (32 - BITS);
    let (mut word, mut sum) = (0, 0);
    for step in 0..steps {
        // SAFETY: the caller has the steps readable.
        let value = reading.value(unsafe { *src.wrapping_add(step * row_stride) });
        word |= (value.cast_unsigned() & mask) << (BITS * step);
        sum += value;
    }
    (word, sum)
}

/// Elements of one operand as zero points change their sums.
#[derive(Clone, Copy)]
struct ZeroSide<'a> {
    reading: Reading,
    points: &'a [u8],
    /// Sums of the rows of A, or of the columns of B.
    sums: &'a [i32],
}

impl ZeroSide<'_> {
    /// Whether a zero point differs from zero.
    fn has_zero_points(&self) -> bool {
        (0..self.points.len().max(1)).any(|index| self.reading.zero_point(self.points, index) != 0)
    }
}

/// Contribution of zero points to sums of products.
struct Zeros<'a> {
    /// Number of steps.
    depth: i32,
    a: ZeroSide<'a>,
    b: ZeroSide<'a>,
}

impl Zeros<'_> {
    /// Subtracts the contribution from all rows of C, of `n` columns.
    fn subtract(&self, exec: &Exec<'_>, n: usize, c: &mut [i32]) -> Result<(), Ended> {
        if !self.a.has_zero_points() && !self.b.has_zero_points() {
            return Ok(());
        }
        let level = Level::new(exec.isa);
        rows(exec.pool, c, n, 2 * n, |first, c| {
            level.run_avx2(TakeOff { zeros: self, first, n, c });
        })
    }
}

impl Zeros<'_> {
    /// Subtracts the contribution from all rows of C, of `n` columns, and converts the sums to
    /// floats in place.
    fn subtract_to_floats(
        &self,
        exec: &Exec<'_>,
        n: usize,
        c: &mut [i32],
        floats: &ToFloats<'_>,
    ) -> Result<(), Ended> {
        let level = Level::new(exec.isa);
        let isa = exec.isa;
        rows(exec.pool, c, n, 4 * n, |first, c| {
            for (row, c) in (first..).zip(c.chunks_exact_mut(n)) {
                level.run_avx2(TakeOff { zeros: self, first: row, n, c: &mut *c });
                level.run(Convert { factors: floats.factors, c: &mut *c });
                if floats.epilogue.is_plain() {
                    continue;
                }
                let (out, epilogue) = (c.as_mut_ptr().cast::<f32>(), floats.epilogue.at(row, 0));
                let body =
                    FinishRow { src: out, stride: 1, out, n, epilogue: epilogue.before_function() };
                // SAFETY: the machine has `isa`, and the epilogue was checked for these rows.
                unsafe { dispatch(isa, body) };
                if epilogue.activation.is_function() {
                    let body = ApplyFunction { epilogue, out, rows: 1, cols: n, ldc: n };
                    // SAFETY: the machine has `isa`, and the epilogue was checked for these rows.
                    unsafe { dispatch(isa, body) };
                }
            }
        })
    }
}

/// Loop that converts a row of integers to floats in place.
struct Convert<'a> {
    factors: &'a [f32],
    c: &'a mut [i32],
}

impl Loop for Convert<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let float = |sum: i32, factor: f32| (sum as f32 * factor).to_bits().cast_signed();
        match *self.factors {
            [factor] => self.c.iter_mut().for_each(|c| *c = float(*c, factor)),
            _ => {
                for (c, factor) in self.c.iter_mut().zip(self.factors) {
                    *c = float(*c, *factor);
                }
            }
        }
    }
}

/// Loop that subtracts [`Zeros`] from some rows.
struct TakeOff<'a> {
    zeros: &'a Zeros<'a>,
    first: usize,
    n: usize,
    c: &'a mut [i32],
}

impl Loop for TakeOff<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Zeros { depth, a, b } = *self.zeros;
        let ZeroSide { reading: of_left, points: a_points, sums: a_sums } = a;
        let ZeroSide { reading: of_right, points: b_points, sums: b_sums } = b;
        for (row, c) in (self.first..).zip(self.c.chunks_exact_mut(self.n)) {
            let z = of_left.zero_point(a_points, row);
            // Contribution of one unit of a zero point of B.
            let unit = a_sums[row].wrapping_sub(depth.wrapping_mul(z));
            if b_points.len() > 1 {
                for ((c, b_sum), y) in c.iter_mut().zip(b_sums).zip(b_points) {
                    let of_b = of_right.value(*y).wrapping_mul(unit);
                    *c = c.wrapping_sub(z.wrapping_mul(*b_sum)).wrapping_sub(of_b);
                }
            } else {
                let of_b = of_right.zero_point(b_points, 0).wrapping_mul(unit);
                for (c, b_sum) in c.iter_mut().zip(b_sums) {
                    *c = c.wrapping_sub(z.wrapping_mul(*b_sum)).wrapping_sub(of_b);
                }
            }
        }
    }
}
