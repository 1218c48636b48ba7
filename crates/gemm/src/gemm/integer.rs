//! Products of integers of 8 bits with zero points, summed up exactly in 32 bits.
//!
//! The idea: a word of 32 bits, which holds one step of k in panels of floats, holds several
//! neighbouring steps here: two as integers of 16 bits, or four as bytes where the machine
//! multiplies those (`VPDPBUSD`, or tiles of AMX for many rows; `SDOT`). Panels and blocks are thus
//! those of floats; what a lane multiplies and adds is another [`Mac`](super::tile::Mac), and its
//! sum is an integer in the bits of a lane. With AVX2, a constant right operand stays bytes in
//! memory: two steps are half a word, which tiles widen.
//!
//! Elements are packed without their zero points `z` and `y`, so a constant has one form whatever
//! these are. What they add to a sum is taken off at the end:
//! `sum (a - z) (b - y) = sum a b - z sum b - y (sum a - k z)`, where sums of single elements are
//! taken while these are packed. Where four bytes are multiplied, one side must be unsigned and the
//! other signed, or both signed. Elements of the other kind move by 128 to get there, and so do
//! their zero points, which changes no difference. All sums wrap at 32 bits.

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
use super::pack::{Packed, PackedB, Panels, SendPtr, each_chunk, panel_width, rows_in_place};
use super::sizes::{ALIASED, NARROW, threads};
#[cfg(target_arch = "x86_64")]
use super::tables::PAIRS_OF_BYTES;
use super::tables::tiles_of_shorts;
use super::tile::TileTable;
use sardonyx_simd::buffer::{Lasts, with_scratch};
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Ended, Exec, Isa};
use sardonyx_simd::{Level, Loop, check_isa, dispatch};

/// What the words of panels hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Two steps as integers of 16 bits.
    Pairs,
    /// Two steps as integers of 16 bits in A, and as bytes with sign in B, which tiles widen.
    PairsOfBytes,
    /// Four steps as bytes: of A with sign if [`LEFT_HAS_SIGN`], of B with sign.
    Quads,
}

/// Whether the instruction that multiplies four bytes takes a sign for those of A.
const LEFT_HAS_SIGN: bool = cfg!(target_arch = "aarch64");

impl Words {
    /// Returns the form with the most steps per instruction, of which packed constants take the
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

    /// Steps of k in a word.
    fn steps(self) -> usize {
        match self {
            Words::Pairs | Words::PairsOfBytes => 2,
            Words::Quads => 4,
        }
    }

    /// How bits of A become what is multiplied.
    fn of_left(self, signed: bool) -> Reading {
        match self {
            Words::Pairs | Words::PairsOfBytes => Reading { flip: 0, signed },
            Words::Quads => {
                let flip = if signed == LEFT_HAS_SIGN { 0 } else { 0x80 };
                Reading { flip, signed: LEFT_HAS_SIGN }
            }
        }
    }

    /// How bits of B become what is multiplied.
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

    /// Integers add up to the same sums in blocks of any length: panels of half the bytes have
    /// twice the steps.
    fn most_steps(self) -> usize {
        if self == Words::PairsOfBytes { 2 * KC } else { KC }
    }

    /// A is packed in each product.
    fn waits_for_left(self) -> bool {
        false
    }

    fn converted(self, _isa: Isa, _rows: usize) -> Option<Words> {
        None
    }

    unsafe fn turn_panel(self, _: Isa, _: *const f32, _: usize, _: usize, _: *mut f32) {
        unreachable!("words are multiplied as they are")
    }
}

/// How the bits of an element are read as the integer that is multiplied.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// Bits that are exchanged first: the highest one where elements move by 128.
    flip: u8,
    /// Whether what is multiplied has a sign.
    signed: bool,
}

impl Reading {
    #[inline(always)]
    fn value(self, bits: u8) -> i32 {
        let mask = if self.signed { -1 } else { 0xff };
        i32::from((bits ^ self.flip).cast_signed()) & mask
    }

    /// Adds up elements, in vectors of 16 bits as long as these hold the sums.
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

    /// The zero point of a row of A or a column of B: what stands for zero, moved as the elements.
    fn zero_point(self, zero_points: &[u8], index: usize) -> i32 {
        self.value(match zero_points {
            [] => 0,
            [one] => *one,
            several => several[index],
        })
    }
}

/// The elements of a right operand of integers of 8 bits.
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    words: Words,
    signed: bool,
}

impl Bytes {
    /// The form with which products are fastest.
    pub fn new(isa: Isa, signed: bool) -> Bytes {
        Bytes { words: Words::best(isa), signed }
    }
}

impl Elements for Bytes {
    /// The sum of each column, as it is multiplied.
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
    /// The bits of the elements.
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
    /// Depth and columns.
    fn size(&self) -> (usize, usize) {
        match self {
            ByteRhs::Plain(b) => (b.bits.rows(), b.bits.cols()),
            ByteRhs::Packed(b) => (b.depth(), b.cols()),
        }
    }

    fn words(&self, isa: Isa) -> Words {
        match self {
            ByteRhs::Plain(_) => Words::best(isa),
            ByteRhs::Packed(b) => b.panels.elements.words,
        }
    }
}

/// What is taken off the elements before they are multiplied: the bits of nothing, of one number
/// for all, or of one for each row of A or column of B. They have the type of the elements.
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
        PackedB::in_words(isa, Words::best(isa), b)
    }

    fn in_words(isa: Isa, words: Words, b: ByteMatrix<'_>) -> Result<PackedB<Bytes>, Ended> {
        let elements = Bytes { words, signed: b.signed };
        let side = Side { matrix: b.bits, words, reading: words.of_right(b.signed) };
        let size = [b.bits.rows(), b.bits.cols()];
        let w = panel_width(isa);
        let sums: Vec<AtomicI32> = (0..b.bits.cols()).map(|_| AtomicI32::new(0)).collect();
        let panels = Packed::by_chunks(
            isa,
            elements,
            size,
            Lasts::ForGood,
            |_| {},
            |chunk, start, out| {
                let columns = start..b.bits.cols().min(start + w);
                // SAFETY: `out` has the rows of the chunk.
                unsafe { side.pack(isa, chunk, columns, out.as_mut_ptr().cast(), (w, 1), &sums) }
            },
        )?;
        Ok(PackedB { panels, beside: sums.into_iter().map(AtomicI32::into_inner).collect() })
    }
}

/// Bytes of scratch memory that [`gemm_bytes`] takes for these operands.
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

/// Returns the distance in words between rows of `words` adjacent words: rows that are a multiple
/// of [`ALIASED`] apart evict each other from the first-level cache.
fn pitch_of(words: usize) -> usize {
    if words.is_multiple_of(ALIASED) { words + 16 } else { words }
}

/// Whether the words of each row of A are adjacent, as its elements are: packing widens bytes in
/// order, and tiles read the rows in place. Few rows are not padded so.
fn is_in_place(a: &ByteMatrix<'_>) -> bool {
    a.bits.col_stride() == 1 || a.bits.rows() <= NARROW
}

/// C = (A - zero points) (B - zero points), of which `c` has all rows, one after the other. Sums
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
/// Panics like [`gemm_bytes`], or if the sizes of `factors` or of a part of the epilogue do not
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
    // SAFETY: an integer of 32 bits has the size and alignment of a float, and any bits are either.
    let sums = unsafe { slice::from_raw_parts_mut(c.as_mut_ptr().cast::<i32>(), c.len()) };
    product(exec, b.words(exec.isa), a, b, zero_points, sums, Some(&floats))
}

/// Factors and epilogue of sums as floats.
struct ToFloats<'a> {
    factors: &'a [f32],
    epilogue: TileEpilogue,
}

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
    let left = Side { matrix: a.bits.transposed(), words: words.in_full(), reading: of_left };
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
            // mutably; the machine multiplies such words.
            unsafe {
                match tiles_for(&product, &a) {
                    Some(tiles) => tiles.run(exec.pool)?,
                    None => {
                        let threads = threads(exec.pool, [m, n, product.k]);
                        product.run_panels(exec.pool, threads, a, b)?;
                    }
                }
            };
            let zeros = Zeros {
                depth: k as i32,
                a: (of_left, zero_points.a, a_sums),
                b: (of_right, zero_points.b, b_sums),
            };
            match floats {
                Some(floats) => zeros.take_off_floats(exec, n, c, floats),
                None => zeros.take_off(exec, n, c),
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

/// Returns the same product by matrix tiles, where these are faster.
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
    /// Lends panels of words, and the sums of their columns. With `in_columns`, the words of each
    /// column are adjacent; only the narrow operand of a tile can be read so.
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
            // and any bits are one. Nothing else uses this part of the scratch.
            let sums = unsafe {
                sums.as_mut_ptr().write_bytes(0, width);
                slice::from_raw_parts(sums.as_ptr().cast::<AtomicI32>(), width)
            };
            let out = SendPtr(words.as_mut_ptr().cast::<u32>());
            each_chunk(exec.pool, rows, 0..panels, w, |panel, chunk: Range<usize>| {
                let columns = panel * w..width.min((panel + 1) * w);
                // SAFETY: chunks are disjoint parts of the scratch.
                unsafe {
                    let of_panel = if in_columns { w * pitch } else { w * rows };
                    let out = out.get().add(panel * of_panel + chunk.start * ks);
                    if columns.len() < w && !in_columns {
                        out.write_bytes(0, chunk.len() * w);
                    }
                    self.pack(exec.isa, chunk, columns, out, (ks, ws), sums);
                }
            })?;
            // SAFETY: as above; all threads are done with them.
            let sums = unsafe { slice::from_raw_parts(sums.as_ptr().cast::<i32>(), width) };
            let ptr = words.as_ptr();
            let width = if in_columns { rows_in_place(exec.isa) } else { w };
            let stride = width * if in_columns { pitch } else { rows };
            f(Panels { ptr, stride, ks, ws, width }, sums)
        })
    }

    /// Writes some rows of words of some columns, at most those of a panel, and adds the columns
    /// to `sums`, which has one for each column of the matrix.
    ///
    /// # Safety
    ///
    /// Word (i, j) of them is written to `out[i * ks + j * ws]`, which must be valid. A pair of
    /// bytes is half a word.
    unsafe fn pack(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        out: *mut u32,
        (ks, ws): (usize, usize),
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
            out,
            ks,
            ws,
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

/// Words from a part of a matrix of steps by columns. Steps after the last one are zero, whatever
/// the zero point. Whoever makes it promises that elements and words are valid.
struct PackWords<'a> {
    words: Words,
    reading: Reading,
    src: *const u8,
    /// Steps.
    depth: usize,
    row_stride: usize,
    col_stride: usize,
    out: *mut u32,
    /// From word to word of a column.
    ks: usize,
    /// From column to column.
    ws: usize,
    /// Of each column.
    sums: &'a mut [i32],
}

impl Loop for PackWords<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // What is adjacent in memory is read in one go.
        match (self.words, self.col_stride, self.row_stride) {
            (Words::Pairs, cs, 1) if self.is_in_order() => self.pairs_in_order(cs),
            (Words::Quads, cs, 1) if self.is_in_order() => self.quads_in_order(cs),
            (Words::Pairs, 1, rs) => self.by_rows::<2, 16>(rs, 1),
            (Words::Pairs, cs, 1) => self.by_columns::<2, 16>(1, cs),
            (Words::Pairs, cs, rs) => self.by_columns::<2, 16>(rs, cs),
            (Words::PairsOfBytes, 1, rs) => self.by_rows::<2, 8>(rs, 1),
            (Words::PairsOfBytes, cs, 1) => self.by_columns::<2, 8>(1, cs),
            (Words::PairsOfBytes, cs, rs) => self.by_columns::<2, 8>(rs, cs),
            (Words::Quads, 1, rs) => self.by_rows::<4, 8>(rs, 1),
            (Words::Quads, cs, 1) => self.by_columns::<4, 8>(1, cs),
            (Words::Quads, cs, rs) => self.by_columns::<4, 8>(rs, cs),
        }
    }
}

impl PackWords<'_> {
    /// Whether steps that are adjacent in memory stay adjacent, in the order of the processor.
    fn is_in_order(&self) -> bool {
        self.ks == 1 && cfg!(target_endian = "little")
    }

    /// Widens columns of adjacent steps to integers of 16 bits.
    #[inline(always)]
    fn pairs_in_order(self, col_stride: usize) {
        let steps = self.depth.next_multiple_of(2);
        for (column, sum) in self.sums.iter_mut().enumerate() {
            let src = self.src.wrapping_add(column * col_stride);
            let out = self.out.wrapping_add(column * self.ws).cast::<i16>();
            // SAFETY: the maker's promise; a word holds two integers.
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

    /// Copies columns of adjacent steps, with the bits exchanged that move them by 128.
    #[inline(always)]
    fn quads_in_order(self, col_stride: usize) {
        let steps = self.depth.next_multiple_of(4);
        for (column, sum) in self.sums.iter_mut().enumerate() {
            let src = self.src.wrapping_add(column * col_stride);
            let out = self.out.wrapping_add(column * self.ws).cast::<u8>();
            // SAFETY: the maker's promise; a word holds four bytes.
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

    #[inline(always)]
    fn by_rows<const STEPS: usize, const BITS: usize>(self, row_stride: usize, col_stride: usize) {
        for row in 0..self.depth.div_ceil(STEPS) {
            let src = self.src.wrapping_add(row * STEPS * row_stride);
            let steps = self.depth - row * STEPS;
            for (column, sum) in self.sums.iter_mut().enumerate() {
                let src = src.wrapping_add(column * col_stride);
                // SAFETY: the maker's promise.
                unsafe {
                    let (word, of_word) = if steps >= STEPS {
                        word::<STEPS, BITS>(self.reading, src, row_stride, STEPS)
                    } else {
                        word::<STEPS, BITS>(self.reading, src, row_stride, steps)
                    };
                    let index = row * self.ks + column * self.ws;
                    store_word::<STEPS, BITS>(self.out, index, word);
                    *sum = sum.wrapping_add(of_word);
                }
            }
        }
    }

    #[inline(always)]
    fn by_columns<const STEPS: usize, const BITS: usize>(
        self,
        row_stride: usize,
        col_stride: usize,
    ) {
        for (column, sum) in self.sums.iter_mut().enumerate() {
            let src = self.src.wrapping_add(column * col_stride);
            let first = column * self.ws;
            let whole = self.depth / STEPS;
            // SAFETY: the maker's promise.
            unsafe {
                for row in 0..whole {
                    let src = src.wrapping_add(row * STEPS * row_stride);
                    let (word, of_word) = word::<STEPS, BITS>(self.reading, src, row_stride, STEPS);
                    store_word::<STEPS, BITS>(self.out, first + row * self.ks, word);
                    *sum = sum.wrapping_add(of_word);
                }
                if whole * STEPS < self.depth {
                    let src = src.wrapping_add(whole * STEPS * row_stride);
                    let steps = self.depth - whole * STEPS;
                    let (word, of_word) = word::<STEPS, BITS>(self.reading, src, row_stride, steps);
                    store_word::<STEPS, BITS>(self.out, first + whole * self.ks, word);
                    *sum = sum.wrapping_add(of_word);
                }
            }
        }
    }
}

/// Writes word number `index`, which has 16 bits or 32.
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
    // SAFETY: the caller's promise.
    unsafe {
        if STEPS * BITS == 16 {
            out.cast::<u16>().wrapping_add(index).write(word as u16);
        } else {
            out.wrapping_add(index).write(word);
        }
    }
}

/// A word of `STEPS` steps of `BITS` bits, of which `steps` are there, and their sum.
///
/// # Safety
///
/// The steps must be readable.
#[inline(always)]
unsafe fn word<const STEPS: usize, const BITS: usize>(
    reading: Reading,
    src: *const u8,
    row_stride: usize,
    steps: usize,
) -> (u32, i32) {
    let mask = u32::MAX >> (32 - BITS);
    let (mut word, mut sum) = (0, 0);
    for step in 0..steps {
        // SAFETY: the caller's promise.
        let value = reading.value(unsafe { *src.wrapping_add(step * row_stride) });
        word |= (value.cast_unsigned() & mask) << (BITS * step);
        sum += value;
    }
    (word, sum)
}

/// What zero points have added to sums of products.
struct Zeros<'a> {
    depth: i32,
    /// How elements are read, their zero points, and the sums of rows of A and columns of B.
    a: (Reading, &'a [u8], &'a [i32]),
    b: (Reading, &'a [u8], &'a [i32]),
}

impl Zeros<'_> {
    /// Takes it off all rows of C, of `n` columns.
    fn take_off(&self, exec: &Exec<'_>, n: usize, c: &mut [i32]) -> Result<(), Ended> {
        let has = |(reading, points, _): (Reading, &[u8], &[i32])| {
            (0..points.len().max(1)).any(|index| reading.zero_point(points, index) != 0)
        };
        if !has(self.a) && !has(self.b) {
            return Ok(());
        }
        let level = Level::new(exec.isa);
        rows(exec.pool, c, n, 2 * n, |first, c| {
            level.run_avx2(TakeOff { zeros: self, first, n, c });
        })
    }
}

impl Zeros<'_> {
    /// Takes it off all rows of C, of `n` columns, and makes floats of the sums in their place.
    fn take_off_floats(
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
                    // SAFETY: as above.
                    unsafe { dispatch(isa, body) };
                }
            }
        })
    }
}

/// Makes floats of a row of integers, in their place.
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

/// Some rows from which [`Zeros`] are taken off.
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
        let Zeros { depth, a: (of_left, a_points, a_sums), b: (of_right, b_points, b_sums) } =
            *self.zeros;
        for (row, c) in (self.first..).zip(self.c.chunks_exact_mut(self.n)) {
            let z = of_left.zero_point(a_points, row);
            // What one unit of a zero point of B has added.
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
