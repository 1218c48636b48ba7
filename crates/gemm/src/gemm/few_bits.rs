//! Right operands of few bits: integers of 2, 4 or 8 bits in blocks of k. Each block of a column
//! has a scale and a zero point.
//!
//! Panels keep the bits, so a product of few rows reads no more than the file holds. A word of 32
//! bits has the codes of neighbouring steps of one column, the first in the lowest bits. A code
//! becomes a float without a conversion: its bits, left in their place in the word, replace the
//! lowest bits of the mantissa of a power of two that is large enough for one of them to count as
//! 1. The power of two and the zero point are then subtracted together, exactly.
//!
//! - **Few rows**: each weight is read once and widened in registers. The sum over a block is of
//!   whole numbers times elements of A, and is multiplied by the scale of the block once.
//! - **Many rows**: panels are widened block by block of k, as the product of floats packs any
//!   virtual operand. Each float is the code less its zero point, times the scale, as when weights
//!   are dequantized first.
//!
//! No copy of the weights in floats outlives the block for which it was made.

mod bytes;
#[cfg(test)]
mod tests;

use std::ops::Range;

use half::f16;
use sardonyx_elementwise::quantized::Codes;
use sardonyx_simd::buffer::{Lasts, PackedBuf, with_scratch};
use sardonyx_simd::chunks::rows;
use sardonyx_simd::{Body, Ended, Exec, Integers, Isa, Operation, Pool, Simd, Work};
use sardonyx_simd::{check_isa, dispatch, split_even};

use super::epilogue::{Epilogue, TileEpilogue};
use super::matrix::{MatRef, strided_len};
use super::pack::{PackSource, SendPtr, panel_width};
use super::tile::{TileEnd, finish_shared};
use super::{Lhs, Rhs, gemm, gemm_scratch};

pub use bytes::{gemm_few_bits_in_bytes, gemm_few_bits_in_bytes_scratch};

/// Choice: rows of A up to which weights are widened in registers. Widening a panel costs as much
/// as some ten rows of a product with it.
const FEW_ROWS: usize = 12;
/// Choice: value of `FEW_ROWS` with AVX-512. Five times the time of four rows is 0.88 to 1.02 of
/// the time of 20 rows with panels of floats (Xeon with AMX, codes of 4 bits, 896 x 4864 and 4864 x
/// 896).
const FEW_ROWS_OF_AVX512: usize = 20;
/// Choice: value of `FEW_ROWS` with AVX2, which has fewer registers. Panels of floats take as long
/// from about 8 rows on, by the line through 16 and 20 rows (the same machine and sizes).
const FEW_ROWS_OF_AVX2: usize = 8;
/// Sums: most steps that are added up before they are multiplied by their scale. Longer chains
/// round more.
const MOST_STEPS: usize = 256;
/// Geometry: distance in rows of words at which a panel is prefetched from memory.
const STREAM_ROWS: usize = 64;

/// Returns the most rows of A with which weights are widened in registers.
fn few_rows(isa: Isa) -> usize {
    match isa {
        Isa::Avx512 => FEW_ROWS_OF_AVX512,
        Isa::Avx2 => FEW_ROWS_OF_AVX2,
        Isa::Portable | Isa::Neon => FEW_ROWS,
    }
}

/// Numbers of the blocks of a matrix: block `i` of column `j` has `numbers[i * block_stride + j *
/// col_stride]`.
#[derive(Clone, Copy, Debug)]
pub struct PerBlock<'a> {
    pub numbers: &'a [f32],
    pub block_stride: usize,
    pub col_stride: usize,
}

impl PerBlock<'_> {
    /// Whether it has all of `blocks` by `cols` numbers.
    fn covers(&self, blocks: usize, cols: usize) -> bool {
        let end = strided_len(blocks, cols, self.block_stride, self.col_stride);
        end.is_some_and(|end| end <= self.numbers.len())
    }

    #[inline]
    fn get(&self, block: usize, col: usize) -> f32 {
        self.numbers[block * self.block_stride + col * self.col_stride]
    }
}

/// A matrix of integers of few bits. A code has the value `(code - zero point) * scale`, with the
/// numbers of its block: some neighbouring steps of a column.
#[derive(Clone, Copy, Debug)]
pub struct BlockMatrix<'a> {
    pub codes: Codes<'a>,
    pub depth: usize,
    pub cols: usize,
    /// Stride between steps and between columns, in codes.
    pub step_stride: usize,
    pub col_stride: usize,
    /// Number of steps of a block. The last block of a column may have fewer.
    pub block: usize,
    pub scales: PerBlock<'a>,
    pub zeros: PerBlock<'a>,
    /// Step that each place of a column holds; empty if each place holds the step of its own index.
    /// Blocks are of places.
    pub order: &'a [u32],
}

impl BlockMatrix<'_> {
    /// Returns the number of blocks of a column.
    fn blocks(&self) -> usize {
        self.depth.div_ceil(self.block)
    }

    /// Returns the difference between a code as an unsigned integer and the code in the matrix.
    fn offset(&self) -> f32 {
        if self.codes.signed { (1u32 << (self.codes.bits - 1)) as f32 } else { 0.0 }
    }

    /// Whether the matrix can be packed: zero points must be codes, as other numbers cannot be
    /// subtracted exactly.
    ///
    /// # Panics
    ///
    /// If sizes do not fit each other, or a code has neither 2, 4 nor 8 bits.
    pub fn can_pack(&self) -> bool {
        let (blocks, bits) = (self.blocks(), self.codes.bits);
        assert!(matches!(bits, 2 | 4 | 8), "codes of {bits} bits");
        let end = strided_len(self.depth, self.cols, self.step_stride, self.col_stride);
        assert!(end.is_some_and(|end| end <= self.codes.len()), "codes of {self:?}");
        assert!(self.scales.covers(blocks, self.cols), "scales of {blocks} blocks");
        assert!(self.zeros.covers(blocks, self.cols), "zero points of {blocks} blocks");
        assert!(self.order.is_empty() || self.order.len() == self.depth, "order of all steps");
        assert!(self.order.iter().all(|step| (*step as usize) < self.depth), "order of steps");
        let (offset, end) = (self.offset(), (1u32 << bits) as f32);
        let is_code = |zero: &f32| zero.fract() == 0.0 && (0.0..end).contains(&(zero + offset));
        self.zeros.numbers.iter().all(is_code)
    }

    /// Returns the bits of a code, converted to an unsigned integer.
    #[inline]
    fn bits_at(&self, place: usize, col: usize) -> u32 {
        let step = self.order.get(place).map_or(place, |step| *step as usize);
        let at = (step * self.step_stride + col * self.col_stride) * self.codes.bits;
        let mask = (1u32 << self.codes.bits) - 1;
        let flip = if self.codes.signed { 1 << (self.codes.bits - 1) } else { 0 };
        (u32::from(self.codes.bytes[at / 8]) >> (at % 8)) & mask ^ flip
    }

    /// Returns the word of some places of a column, the first in the lowest bits.
    #[inline]
    fn word(&self, places: Range<usize>, col: usize) -> u32 {
        let bits = self.codes.bits;
        let first = (places.start * self.step_stride + col * self.col_stride) * bits;
        if self.step_stride == 1 && self.order.is_empty() && first.is_multiple_of(8) {
            let len = (places.len() * bits).div_ceil(8);
            let mut bytes = [0; 4];
            bytes[..len].copy_from_slice(&self.codes.bytes[first / 8..][..len]);
            let used = u32::MAX >> (32 - places.len() * bits);
            // The highest bit of each code.
            let high = (u32::MAX / ((1 << bits) - 1)) << (bits - 1);
            let flip = if self.codes.signed { high } else { 0 };
            return (u32::from_le_bytes(bytes) ^ flip) & used;
        }
        let codes = places.enumerate();
        codes.fold(0, |word, (at, place)| word | self.bits_at(place, col) << (at * bits))
    }
}

/// Neighbouring places of a panel with one scale per column.
#[derive(Clone, Copy, Debug)]
struct Segment {
    /// First place.
    start: usize,
    /// Number of places.
    len: usize,
    /// Index of the block that has the scales and zero points.
    block: usize,
    /// Offset in a panel, in words.
    at: usize,
    /// Offset of the elements in a row of A that is laid out like the panels, in floats.
    a_at: usize,
    /// Number of words of a column.
    rows: usize,
}

/// Form of scales and zero points in panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Numbers {
    Floats,
    /// Floats of 16 bits, which hold all of these numbers exactly.
    Halves,
}

impl Numbers {
    /// Returns the number of words of a row of `width` numbers. `width` is even.
    fn words(self, width: usize) -> usize {
        match self {
            Numbers::Floats => width,
            Numbers::Halves => width / 2,
        }
    }

    /// Loads number `index` and those after it as floats.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd::load`] must hold.
    #[inline(always)]
    unsafe fn load<S: Simd>(self, p: *const f32, index: usize) -> S::V {
        // SAFETY: the caller has a vector of numbers readable there.
        unsafe {
            match self {
                Numbers::Floats => S::load(p.add(index)),
                Numbers::Halves => S::load_f16(p.cast::<u16>().add(index)),
            }
        }
    }
}

/// A right operand of few bits, packed once.
#[derive(Debug)]
pub struct FewBits {
    isa: Isa,
    bits: usize,
    depth: usize,
    cols: usize,
    segments: Vec<Segment>,
    scales: Numbers,
    /// Zero point of all codes as panels hold them; `None` if each block has its own, in 16 bits
    /// after its scales.
    zero: Option<f32>,
    /// Order of the steps, see [`BlockMatrix::order`].
    order: Vec<u32>,
    /// Number of words of a panel.
    stride: usize,
    /// Number of floats of a row of A that is laid out like the panels.
    pitch: usize,
    data: PackedBuf,
}

impl FewBits {
    /// Returns an upper bound of the memory in bytes that a packed matrix takes, by its sizes;
    /// `None` on overflow.
    pub fn bytes_of(
        isa: Isa,
        bits: usize,
        depth: usize,
        cols: usize,
        block: usize,
    ) -> Option<usize> {
        let block = block.clamp(1, depth.max(1));
        let words = segment_steps(block, bits).div_ceil(32 / bits).checked_add(2)?;
        let segments = depth.div_ceil(block).checked_mul(block.div_ceil(MOST_STEPS))?;
        let panels = cols.div_ceil(panel_width(isa)).checked_mul(panel_width(isa))?;
        let order = depth.checked_mul(size_of::<u32>())?;
        segments.checked_mul(words)?.checked_mul(panels)?.checked_mul(4)?.checked_add(order)
    }

    /// Packs a matrix for which [`BlockMatrix::can_pack`] holds.
    ///
    /// # Panics
    ///
    /// If it does not hold, or this machine does not have `isa`.
    pub fn new(isa: Isa, matrix: &BlockMatrix<'_>) -> Result<FewBits, Ended> {
        check_isa(isa);
        assert!(matrix.can_pack(), "zero points must be whole numbers in the range of the codes");
        let BlockMatrix { depth, cols, .. } = *matrix;
        let (bits, w, offset) = (matrix.codes.bits, panel_width(isa), matrix.offset());
        let zeros = matrix.zeros.numbers;
        let zero = match zeros {
            [] => Some(0.0),
            [first, rest @ ..] => rest.iter().all(|zero| zero == first).then_some(first + offset),
        };
        let is_half = |x: &f32| f16::from_f32(*x).to_f32().to_bits() == x.to_bits();
        let are_halves = matrix.scales.numbers.iter().all(is_half);
        let scales = if are_halves { Numbers::Halves } else { Numbers::Floats };
        let beside = scales.words(w) + if zero.is_none() { w / 2 } else { 0 };
        let mut segments = Vec::new();
        let (mut stride, mut pitch) = (0, 0);
        let most = segment_steps(matrix.block, bits);
        for block in 0..matrix.blocks() {
            let end = depth.min((block + 1) * matrix.block);
            let mut start = block * matrix.block;
            while start < end {
                let len = most.min(end - start);
                let rows = len.div_ceil(32 / bits);
                segments.push(Segment { start, len, block, at: stride, a_at: pitch, rows });
                stride += beside + rows * w;
                pitch += rows * (32 / bits);
                start += len;
            }
        }
        let panels = cols.div_ceil(w);
        let len = panels.checked_mul(stride).expect("packed size overflows");
        // SAFETY: the panels below fill all of it.
        let mut data = unsafe { PackedBuf::new_uninit(len, Lasts::ForGood) };
        let out = SendPtr(data.as_mut_ptr());
        let packing = Packing { matrix, w, scales, has_zeros: zero.is_none(), offset };
        let pool = Pool::for_packing();
        let work = Work::new(Operation::Element, depth.saturating_mul(cols)).in_pieces(panels);
        pool.run_on(work.threads(&pool), panels, |panel| {
            // SAFETY: panels are disjoint parts of `data`. Each is cleared before it is lent.
            let out = unsafe {
                let start = out.get().add(panel * stride);
                start.write_bytes(0, stride);
                std::slice::from_raw_parts_mut(start, stride)
            };
            packing.pack_panel(&segments, panel, out);
        })?;
        let order = matrix.order.to_vec();
        Ok(FewBits { isa, bits, depth, cols, segments, scales, zero, order, stride, pitch, data })
    }

    pub fn depth(&self) -> usize {
        self.depth
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Returns the bytes of memory that the matrix takes.
    pub fn bytes(&self) -> usize {
        let beside = self.segments.len() * size_of::<Segment>() + self.order.len() * 4;
        self.data.len() * size_of::<f32>() + beside
    }

    /// Writes some columns as numbers, one after the other. Negative indices count from the end.
    ///
    /// # Panics
    ///
    /// If `out` does not have the elements of as many columns, or a column does not exist.
    pub fn gather_columns(
        &self,
        exec: &Exec<'_>,
        places: &[i64],
        out: &mut [f32],
    ) -> Result<(), Ended> {
        assert_eq!(out.len(), places.len() * self.depth, "{} columns", places.len());
        if out.is_empty() {
            return Ok(());
        }
        rows(exec.pool, out, self.depth, 4 * self.depth, |first, out| {
            for (column, place) in out.chunks_exact_mut(self.depth).zip(&places[first..]) {
                let col = if *place < 0 { place + self.cols as i64 } else { *place };
                let col = usize::try_from(col).ok().filter(|col| *col < self.cols);
                self.write_column(col.expect("a column of the matrix"), column);
            }
        })
    }

    /// Writes column `col` as numbers, in the order of its steps.
    fn write_column(&self, col: usize, out: &mut [f32]) {
        let w = panel_width(self.isa);
        let (zeros_at, words_at) = self.offsets();
        let (panel, lane) = (&self.data[col / w * self.stride..][..self.stride], col % w);
        let mask = (1u32 << self.bits) - 1;
        for segment in &self.segments {
            let scale = match self.scales {
                Numbers::Floats => panel[segment.at + lane],
                Numbers::Halves => get_half(&panel[segment.at..], lane),
            };
            let zero = match self.zero {
                Some(zero) => zero,
                None => get_half(&panel[segment.at + zeros_at..], lane),
            };
            for offset in 0..segment.len {
                let (row, at) = (offset / (32 / self.bits), offset % (32 / self.bits));
                let word = panel[segment.at + words_at + row * w + lane].to_bits();
                let code = word >> (at * self.bits) & mask;
                let place = segment.start + offset;
                let step = self.order.get(place).map_or(place, |step| *step as usize);
                out[step] = (code as f32 - zero) * scale;
            }
        }
    }

    /// Returns the offsets of the zero points and of the words in a segment.
    fn offsets(&self) -> (usize, usize) {
        let w = panel_width(self.isa);
        let zeros = self.scales.words(w);
        (zeros, zeros + if self.zero.is_none() { w / 2 } else { 0 })
    }
}

/// Returns the number of steps of the segments of a block: the whole block, or an even part in
/// whole words.
fn segment_steps(block: usize, bits: usize) -> usize {
    let parts = block.div_ceil(MOST_STEPS).max(1);
    if parts == 1 { block } else { block.div_ceil(parts).next_multiple_of(32 / bits) }
}

/// Input of the packing of panels.
struct Packing<'a> {
    matrix: &'a BlockMatrix<'a>,
    w: usize,
    scales: Numbers,
    has_zeros: bool,
    offset: f32,
}

impl Packing<'_> {
    /// Writes a panel, which must be all zeros.
    fn pack_panel(&self, segments: &[Segment], panel: usize, out: &mut [f32]) {
        let Packing { matrix, w, scales, has_zeros, offset } = *self;
        let first = panel * w;
        let width = w.min(matrix.cols - first);
        let per_word = 32 / matrix.codes.bits;
        for segment in segments {
            let out = &mut out[segment.at..];
            let (scale_row, out) = out.split_at_mut(scales.words(w));
            let scale_of = |j: usize| matrix.scales.get(segment.block, first + j);
            match scales {
                Numbers::Floats => {
                    for (j, to) in scale_row.iter_mut().enumerate().take(width) {
                        *to = scale_of(j);
                    }
                }
                Numbers::Halves => put_halves(scale_row, width, scale_of),
            }
            let (zero_row, out) = out.split_at_mut(if has_zeros { w / 2 } else { 0 });
            put_halves(zero_row, if has_zeros { width } else { 0 }, |j| {
                matrix.zeros.get(segment.block, first + j) + offset
            });
            for j in 0..width {
                for row in 0..segment.rows {
                    let start = segment.start + row * per_word;
                    let end = (start + per_word).min(segment.start + segment.len);
                    out[row * w + j] = f32::from_bits(matrix.word(start..end, first + j));
                }
            }
        }
    }
}

/// Returns number `index` of those that [`put_halves`] wrote into words.
fn get_half(words: &[f32], index: usize) -> f32 {
    let [a, b, c, d] = words[index / 2].to_bits().to_ne_bytes();
    let bytes = if index.is_multiple_of(2) { [a, b] } else { [c, d] };
    f16::from_ne_bytes(bytes).to_f32()
}

/// Writes `count` numbers as f16 into words, followed by zeros.
fn put_halves(words: &mut [f32], count: usize, number: impl Fn(usize) -> f32) {
    let half = |j: usize| if j < count { f16::from_f32(number(j)).to_bits() } else { 0 };
    for (i, to) in words.iter_mut().enumerate() {
        let [low, high] = [half(2 * i).to_ne_bytes(), half(2 * i + 1).to_ne_bytes()];
        *to = f32::from_bits(u32::from_ne_bytes([low[0], low[1], high[0], high[1]]));
    }
}

/// Returns the bytes of scratch memory that [`gemm_few_bits`] takes for these operands.
pub fn gemm_few_bits_scratch(exec: &Exec<'_>, a: &MatRef<'_>, b: &FewBits) -> usize {
    let rows = a.rows();
    let bytes = |floats: usize| rows.saturating_mul(floats).saturating_mul(size_of::<f32>());
    if rows <= few_rows(b.isa) {
        return bytes(b.pitch);
    }
    let permuted = if b.order.is_empty() { 0 } else { bytes(b.depth) };
    gemm_scratch(exec, &Lhs::Plain(*a), &Rhs::Virtual(b)).saturating_add(permuted)
}

/// Computes C = epilogue(A B), where row i of C is `c[i * ldc..][..n]`.
///
/// # Panics
///
/// If the sizes of the operands, of `c` or of a part of the epilogue do not fit each other, rows of
/// C overlap, B was packed for another instruction set, or this machine does not have it.
pub fn gemm_few_bits(
    exec: &Exec<'_>,
    a: MatRef<'_>,
    b: &FewBits,
    c: &mut [f32],
    ldc: usize,
    epilogue: &Epilogue<'_>,
) -> Result<(), Ended> {
    let (m, n) = (a.rows(), b.cols);
    assert_eq!(b.isa, exec.isa, "instruction set of the packed B");
    assert_eq!(a.cols(), b.depth, "depth of A and B");
    if m <= few_rows(b.isa) {
        check_isa(b.isa);
        assert!(ldc >= n || m <= 1, "rows of C overlap: {ldc} < {n}");
        let c_len = strided_len(m, n, ldc, 1);
        assert!(c_len.is_some_and(|len| len <= c.len()), "{m} x {n}, rows {ldc} apart");
        epilogue.check(m, n, c_len.unwrap_or(0));
        if m == 0 || n == 0 {
            return Ok(());
        }
        return with_scratch(m * b.pitch, |rows| {
            for (i, row) in rows.chunks_exact_mut(b.pitch.max(1)).enumerate() {
                lay_out(b, &a, i, row);
            }
            let c = SendPtr(c.as_mut_ptr());
            FewRows { b, rows, m, c, ldc, epilogue: epilogue.raw(ldc) }.run(exec)
        });
    }
    if b.order.is_empty() {
        return gemm(exec, Lhs::Plain(a), Rhs::Virtual(b), c, ldc, epilogue);
    }
    with_scratch(m * b.depth, |permuted| {
        for (i, row) in permuted.chunks_exact_mut(b.depth.max(1)).enumerate() {
            for (to, step) in row.iter_mut().zip(&b.order) {
                *to = a.get(i, *step as usize);
            }
        }
        let a = Lhs::Plain(MatRef::row_major(permuted, m, b.depth));
        gemm(exec, a, Rhs::Virtual(b), c, ldc, epilogue)
    })
}

/// Writes a row of A in the order of the places of panels. The places of a word that hold no step
/// become zero.
fn lay_out(b: &FewBits, a: &MatRef<'_>, i: usize, row: &mut [f32]) {
    for segment in &b.segments {
        let places = segment.rows * (32 / b.bits);
        let (used, unused) = row[segment.a_at..][..places].split_at_mut(segment.len);
        unused.fill(0.0);
        if let Some(all) = a.row(i).filter(|_| b.order.is_empty()) {
            used.copy_from_slice(&all[segment.start..][..segment.len]);
            continue;
        }
        for (offset, to) in used.iter_mut().enumerate() {
            let place = segment.start + offset;
            let step = b.order.get(place).map_or(place, |step| *step as usize);
            *to = a.get(i, step);
        }
    }
}

/// A product of few rows with checked sizes.
struct FewRows<'a> {
    b: &'a FewBits,
    /// Rows of A, laid out like the panels.
    rows: &'a [f32],
    m: usize,
    c: SendPtr,
    ldc: usize,
    epilogue: TileEpilogue,
}

impl FewRows<'_> {
    /// Computes the product.
    fn run(&self, exec: &Exec<'_>) -> Result<(), Ended> {
        let b = self.b;
        let panels = b.cols.div_ceil(panel_width(b.isa));
        let macs = self.m.saturating_mul(b.cols).saturating_mul(b.depth);
        let work = Work::new(Operation::MultiplyAdd, macs).with_bytes(b.bytes()).in_pieces(panels);
        let parts = work.cut(exec.pool);
        parts.run(exec.pool, |part| {
            let panels = split_even(panels, parts.count, part);
            // SAFETY: the machine has the instruction set, sizes were checked, and the part owns
            // the columns of its panels.
            unsafe { dispatch(b.isa, Part { product: self, panels }) };
        })
    }
}

/// Body that multiplies all rows by some panels.
struct Part<'a> {
    product: &'a FewRows<'a>,
    panels: Range<usize>,
}

impl Body for Part<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Part { product: p, panels } = self;
        let (b, w) = (p.b, 2 * S::LANES);
        let is_plain = p.epilogue.is_plain();
        for panel in panels {
            let col = panel * w;
            let mut row = 0;
            while row < p.m {
                let epilogue;
                let count = match p.m - row {
                    1 => 1,
                    2 | 3 => 2,
                    _ => 4,
                };
                let tile = Widening {
                    b,
                    panel: b.data.as_ptr().wrapping_add(panel * b.stride),
                    a: p.rows.as_ptr().wrapping_add(row * b.pitch),
                    end: TileEnd {
                        c: p.c.get().wrapping_add(row * p.ldc + col),
                        ldc: p.ldc,
                        n: w.min(b.cols - col),
                        epilogue: if is_plain {
                            std::ptr::null()
                        } else {
                            epilogue = p.epilogue.at(row, col);
                            &epilogue
                        },
                    },
                };
                // SAFETY: the part owns these columns; the rows and the panel are valid.
                unsafe {
                    match (b.bits, count) {
                        (2, 1) => S::call(Rows::<2, 1, 4>(&tile)),
                        (2, 2) => S::call(Rows::<2, 2, 2>(&tile)),
                        (2, _) => S::call(Rows::<2, 4, 1>(&tile)),
                        (4, 1) => S::call(Rows::<4, 1, 4>(&tile)),
                        (4, 2) => S::call(Rows::<4, 2, 2>(&tile)),
                        (4, _) => S::call(Rows::<4, 4, 1>(&tile)),
                        (_, 1) => S::call(Rows::<8, 1, 4>(&tile)),
                        (_, 2) => S::call(Rows::<8, 2, 2>(&tile)),
                        (..) => S::call(Rows::<8, 4, 1>(&tile)),
                    }
                }
                row += count;
            }
        }
    }
}

/// A tile whose wide operand is widened in registers.
struct Widening<'a> {
    /// Packed right operand.
    b: &'a FewBits,
    panel: *const f32,
    /// Rows of A, with the pitch of `b` as their stride.
    a: *const f32,
    end: TileEnd,
}

/// Geometry: most codes in a word.
const MOST_CODES: usize = 16;

/// Returns the number of codes of a word that fit the mantissa of a float without a shift.
const fn codes_in_place(bits: usize) -> usize {
    23 / bits
}

/// Returns the power of two whose mantissa has the value 1 at bit `at`.
#[inline(always)]
const fn power_at(at: usize) -> f32 {
    f32::from_bits(((127 + 23 - at) as u32) << 23)
}

/// Loads a row of a panel's words, two vectors, and prefetches a later one.
///
/// # Safety
///
/// The machine has the instructions of [`Simd`], and the row is readable.
#[inline(always)]
unsafe fn load_row<S: Simd>(words: *const f32) -> [S::I32; 2] {
    let ahead = words.wrapping_add(STREAM_ROWS * 2 * S::LANES);
    // SAFETY: the caller has the row readable; a prefetch never faults.
    unsafe {
        S::prefetch(ahead);
        if S::LANES == 16 {
            S::prefetch(ahead.wrapping_add(S::LANES));
        }
        [S::I32::of_bits(S::load(words)), S::I32::of_bits(S::load(words.add(S::LANES)))]
    }
}

/// Returns the numbers to subtract from the codes of a panel's words, by place and vector.
///
/// # Safety
///
/// The machine has the instructions of [`Simd`].
#[inline(always)]
unsafe fn bases<S: Simd>(bits: usize, zeros: [S::V; 2]) -> [[S::V; 2]; MOST_CODES] {
    // SAFETY: the caller runs on a machine with `S`.
    unsafe {
        let mut bases = [zeros; MOST_CODES];
        for (place, base) in bases.iter_mut().enumerate().take(codes_in_place(bits)) {
            let power = S::splat(power_at(place * bits));
            *base = [S::add(power, zeros[0]), S::add(power, zeros[1])];
        }
        bases
    }
}

/// Returns the code at a place of each word, less its zero point.
///
/// # Safety
///
/// The machine has the instructions of [`Simd`]. The words must be shifted so that the place is in
/// the mantissa.
#[inline(always)]
unsafe fn number<S: Simd>(bits: usize, place: usize, words: S::I32, base: S::V) -> S::V {
    let mask = ((1u32 << bits) - 1) << (place * bits);
    // SAFETY: the caller runs on a machine with `S`.
    unsafe {
        let code = words.and(S::I32::splat(mask.cast_signed()));
        let power = power_at(place * bits).to_bits().cast_signed();
        S::sub(code.or(S::I32::splat(power)).to_bits(), base)
    }
}

impl FewBits {
    /// Returns the zero points of a segment of a panel, two vectors.
    ///
    /// # Safety
    ///
    /// The machine has the instructions of [`Simd`], and the segment begins at `p`.
    #[inline(always)]
    unsafe fn zeros<S: Simd>(&self, p: *const f32, at: usize) -> [S::V; 2] {
        // SAFETY: the caller has the segment readable at `p`.
        unsafe {
            match self.zero {
                Some(zero) => [S::splat(zero); 2],
                None => {
                    let p = p.add(at);
                    [Numbers::Halves.load::<S>(p, 0), Numbers::Halves.load::<S>(p, S::LANES)]
                }
            }
        }
    }
}

/// Body that computes `R` rows of a tile. The sums of a segment are `CHAINS` chains.
struct Rows<'a, const BITS: usize, const R: usize, const CHAINS: usize>(&'a Widening<'a>);

impl<const BITS: usize, const R: usize, const CHAINS: usize> Body for Rows<'_, BITS, R, CHAINS> {
    type Out = ();

    /// Computes the tile.
    ///
    /// # Safety
    ///
    /// The machine has the instructions of [`Simd`]. `R` rows of A, the panel and the output must
    /// be valid.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let t = self.0;
        let (b, w) = (t.b, 2 * S::LANES);
        let (zeros_at, words_at) = b.offsets();
        // SAFETY: the caller has valid rows, panel and output.
        unsafe {
            let zero = S::splat(0.0);
            let mut totals = [[zero; 2]; R];
            for segment in &b.segments {
                let start = t.panel.add(segment.at);
                let base = bases::<S>(BITS, b.zeros::<S>(start, zeros_at));
                let mut words = start.add(words_at);
                let mut a = t.a.add(segment.a_at);
                let mut sums = [[[zero; 2]; CHAINS]; R];
                for _ in 0..segment.rows {
                    let all = load_row::<S>(words);
                    macro_rules! each_code {
                        ($($code:literal)*) => {$(
                            if $code < 32 / BITS {
                                let place = $code % codes_in_place(BITS);
                                // Codes beyond the mantissa are shifted down together.
                                let down = ($code - place) * BITS;
                                for v in 0..2 {
                                    let words =
                                        if down > 0 { all[v].shift_right(down as u32) } else { all[v] };
                                    let x = number::<S>(BITS, place, words, base[place][v]);
                                    for (r, sums) in sums.iter_mut().enumerate() {
                                        let narrow = S::splat(*a.add(r * b.pitch + $code));
                                        let sum = &mut sums[$code % CHAINS][v];
                                        *sum = S::fma(narrow, x, *sum);
                                    }
                                }
                            }
                        )*};
                    }
                    each_code!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                    words = words.add(w);
                    a = a.add(32 / BITS);
                }
                for v in 0..2 {
                    let scale = b.scales.load::<S>(start, v * S::LANES);
                    for (total, sums) in totals.iter_mut().zip(&sums) {
                        let mut sum = sums[0][v];
                        for other in &sums[1..] {
                            sum = S::add(sum, other[v]);
                        }
                        total[v] = S::fma(scale, sum, total[v]);
                    }
                }
            }
            if t.end.n > S::LANES {
                finish_shared::<S, R, 2>(&t.end, &totals);
            } else {
                let mut half = [[zero; 1]; R];
                for (half, total) in half.iter_mut().zip(&totals) {
                    half[0] = total[0];
                }
                finish_shared::<S, R, 1>(&t.end, &half);
            }
        }
    }
}

impl PackSource for FewBits {
    fn depth(&self) -> usize {
        self.depth
    }

    fn width(&self) -> usize {
        self.cols
    }

    /// Widens some places of a panel.
    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        check_isa(isa);
        let w = panel_width(isa);
        assert_eq!(isa, self.isa, "instruction set of the packed matrix");
        assert!(depth.start <= depth.end && depth.end <= self.depth && start < self.cols);
        assert_eq!((out.len(), start % w), (depth.len() * w, 0));
        let panel = self.data.as_ptr().wrapping_add(start / w * self.stride);
        let (b, out) = (self, out.as_mut_ptr());
        // SAFETY: the machine has `isa`, and `out` has a row for each step.
        unsafe {
            match self.bits {
                2 => dispatch(isa, Widen::<2> { b, panel, steps: depth, out }),
                4 => dispatch(isa, Widen::<4> { b, panel, steps: depth, out }),
                _ => dispatch(isa, Widen::<8> { b, panel, steps: depth, out }),
            }
        }
    }
}

/// Body that widens a part of a panel to floats.
struct Widen<'a, const BITS: usize> {
    b: &'a FewBits,
    panel: *const f32,
    steps: Range<usize>,
    out: *mut f32,
}

impl<const BITS: usize> Body for Widen<'_, BITS> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Widen { b, panel, steps, out } = self;
        let (w, per_word) = (2 * S::LANES, 32 / BITS);
        let (zeros_at, words_at) = b.offsets();
        let first =
            b.segments.partition_point(|segment| segment.start + segment.len <= steps.start);
        // SAFETY: `pack` makes the body with a valid panel; only the rows of `steps` are written.
        unsafe {
            for segment in &b.segments[first..] {
                if segment.start >= steps.end {
                    break;
                }
                let start = panel.add(segment.at);
                let base = bases::<S>(BITS, b.zeros::<S>(start, zeros_at));
                let scale = [b.scales.load::<S>(start, 0), b.scales.load::<S>(start, S::LANES)];
                let end = steps.end.min(segment.start + segment.len);
                let skipped = steps.start.saturating_sub(segment.start) / per_word;
                for row in skipped..segment.rows {
                    let step = segment.start + row * per_word;
                    if step >= end {
                        break;
                    }
                    let words = start.add(words_at + row * w);
                    let all = [
                        S::I32::of_bits(S::load(words)),
                        S::I32::of_bits(S::load(words.add(S::LANES))),
                    ];
                    // Places of the word that are requested.
                    let from = steps.start.saturating_sub(step);
                    let to = end - step;
                    let out = out.wrapping_add((step * w).wrapping_sub(steps.start * w));
                    macro_rules! each_code {
                        ($wanted:expr; $($code:literal)*) => {$(
                            if $code < per_word && $wanted.contains(&$code) {
                                let place = $code % codes_in_place(BITS);
                                let down = ($code - place) * BITS;
                                for v in 0..2 {
                                    let words =
                                        if down > 0 { all[v].shift_right(down as u32) } else { all[v] };
                                    let x = number::<S>(BITS, place, words, base[place][v]);
                                    let to = out.wrapping_add($code * w + v * S::LANES);
                                    S::store(to, S::mul(x, scale[v]));
                                }
                            }
                        )*};
                    }
                    if from == 0 && to >= per_word {
                        each_code!((0..per_word); 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                    } else {
                        each_code!((from..to); 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
                    }
                }
            }
        }
    }
}
