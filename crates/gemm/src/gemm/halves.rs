//! Right operands stored in 16 bits: half the memory to read, widened to floats in the microkernel.
//!
//! Panels have the form of panels of floats with half the bytes. Sums are floats, and so is the
//! left operand. Constants of such a type lose nothing, and neither do floats that were widened
//! from one, as many exporters write them. Other floats may be rounded to the nearest f16 on
//! request: with eleven bits the error is an eighth of that of bfloat16, and products of few rows,
//! which wait for memory, take half the time.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::matrix::{MatRef, strided_len};
use super::pack::{PackPlan, PackSource, Packed, panel_width};
use super::sizes::TRANSPOSED_COLS;
use super::tile::{Ending, Mac};
use super::{amx, bf16};
use sardonyx_simd::Isa;
use sardonyx_simd::buffer::{Lasts, with_scratch};
use sardonyx_simd::number::{bf16_to_f32, f16_to_f32};
use sardonyx_simd::{Body, Ended, Loop, Simd, check_isa, dispatch};

/// Type of elements in memory. Sums are floats for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    F32,
    F16,
    Bf16,
}

impl Storage {
    /// Returns the bytes of an element.
    pub const fn bytes(self) -> usize {
        match self {
            Storage::F32 => 4,
            Storage::F16 | Storage::Bf16 => 2,
        }
    }

    /// Returns the floats of memory that `count` elements take. `count` is even.
    pub(crate) const fn floats(self, count: usize) -> usize {
        count * self.bytes() / size_of::<f32>()
    }
}

/// Treatment of a right operand in 16 bits in products of many rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ManyRows {
    /// Its elements are widened to floats, as in products of few rows.
    Widened,
    /// Both operands are rounded to bfloat16 and multiplied as pairs in vectors.
    Pairs,
    /// Both operands are rounded to bfloat16 and multiplied as pairs in the tile registers of AMX.
    Tiles,
}

impl ManyRows {
    /// Returns the fastest treatment for operands that may be rounded.
    pub(super) fn fastest(isa: Isa) -> ManyRows {
        if amx::is_available(isa) {
            ManyRows::Tiles
        } else if bf16::is_faster(isa) {
            ManyRows::Pairs
        } else {
            ManyRows::Widened
        }
    }
}

/// A matrix of little-endian elements at any alignment: element (i, j) has the index `i *
/// row_stride + j * col_stride`.
#[derive(Clone, Copy)]
pub struct LeMatrix<'a> {
    bytes: &'a [u8],
    storage: Storage,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    next_columns: Option<&'a (dyn Fn(Range<usize>) + Sync)>,
}

impl std::fmt::Debug for LeMatrix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (storage, rows, cols) = (self.storage, self.rows, self.cols);
        write!(f, "LeMatrix({storage:?}, {rows} x {cols})")
    }
}

impl<'a> LeMatrix<'a> {
    /// Views `bytes` as a matrix with these strides, in elements.
    ///
    /// # Panics
    ///
    /// If an element is outside `bytes`.
    pub fn new(
        bytes: &'a [u8],
        storage: Storage,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        let end = strided_len(rows, cols, row_stride, col_stride);
        assert!(
            end.is_some_and(|end| end <= bytes.len() / storage.bytes()),
            "{rows} x {cols} of {storage:?} with strides {row_stride}, {col_stride} in {} bytes",
            bytes.len()
        );
        LeMatrix { bytes, storage, rows, cols, row_stride, col_stride, next_columns: None }
    }

    /// Sets a callback for the columns that packing reads next. Packing a large matrix calls it
    /// several times and in order. The columns begin anew if they do not fit the first form that
    /// was tried.
    pub fn with_column_callback(self, next_columns: &'a (dyn Fn(Range<usize>) + Sync)) -> Self {
        LeMatrix { next_columns: Some(next_columns), ..self }
    }

    /// Views `bytes` as a matrix whose rows follow each other.
    ///
    /// # Panics
    ///
    /// If `bytes` are fewer than `rows * cols` elements.
    pub fn row_major(bytes: &'a [u8], storage: Storage, rows: usize, cols: usize) -> Self {
        LeMatrix::new(bytes, storage, rows, cols, cols, 1)
    }

    /// Makes a matrix that repeats the first element of `bytes` throughout.
    ///
    /// # Panics
    ///
    /// If `bytes` are fewer than one element.
    pub fn from_element(bytes: &'a [u8], storage: Storage, rows: usize, cols: usize) -> Self {
        LeMatrix::new(bytes, storage, rows, cols, 0, 0)
    }

    /// Returns a view with rows and columns exchanged.
    pub fn transpose(self) -> Self {
        LeMatrix {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    pub(crate) fn storage(&self) -> Storage {
        self.storage
    }

    fn get(&self, row: usize, col: usize) -> f32 {
        let at = row * self.row_stride + col * self.col_stride;
        let bytes = &self.bytes[at * self.storage.bytes()..];
        let half = || u16::from_le_bytes([bytes[0], bytes[1]]);
        match self.storage {
            Storage::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Storage::F16 => f16_to_f32(half::f16::from_bits(half())),
            Storage::Bf16 => bf16_to_f32(half::bf16::from_bits(half())),
        }
    }
}

impl PackSource for LeMatrix<'_> {
    fn depth(&self) -> usize {
        self.rows
    }

    fn width(&self) -> usize {
        self.cols
    }

    fn next_columns(&self, columns: Range<usize>) {
        if let Some(tell) = self.next_columns {
            tell(columns);
        }
    }

    fn pack(&self, isa: Isa, depth: Range<usize>, start: usize, out: &mut [f32]) {
        check_isa(isa);
        let w = panel_width(isa);
        assert!(depth.start <= depth.end && depth.end <= self.rows && start <= self.cols);
        assert_eq!(out.len(), depth.len() * w);
        if cfg!(target_endian = "big") {
            for (out, k) in out.chunks_exact_mut(w).zip(depth) {
                for (j, out) in out.iter_mut().enumerate() {
                    *out = if start + j < self.cols { self.get(k, start + j) } else { 0.0 };
                }
            }
            return;
        }
        if self.storage == Storage::F32 {
            // SAFETY: all elements are inside `bytes`, and packing reads unaligned.
            let matrix = unsafe {
                MatRef::from_raw(
                    self.bytes.as_ptr().cast(),
                    self.rows,
                    self.cols,
                    self.row_stride,
                    self.col_stride,
                )
            };
            return matrix.pack(isa, depth, start, out);
        }
        let at = depth.start * self.row_stride + start * self.col_stride;
        let body = PackHalves {
            src: self.bytes.as_ptr().cast::<u16>().wrapping_add(at),
            bf16: self.storage == Storage::Bf16,
            depth: depth.len(),
            width: w.min(self.cols - start),
            ks: self.row_stride,
            ws: self.col_stride,
            out: out.as_mut_ptr(),
        };
        // SAFETY: the machine has `isa`; source and destination were checked above.
        unsafe { dispatch(isa, body) }
    }
}

/// Body that packs a part of a panel of floats from elements of 16 bits in the machine's byte
/// order.
struct PackHalves {
    src: *const u16,
    bf16: bool,
    depth: usize,
    width: usize,
    ks: usize,
    ws: usize,
    out: *mut f32,
}

impl Body for PackHalves {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `pack` makes the body with valid elements and room for the rows.
        unsafe { if self.bf16 { self.widen::<S, Bf16>() } else { self.widen::<S, F16>() } }
    }
}

impl PackHalves {
    /// Packs elements that `P` widens.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold; `depth` x `width` source elements and `depth` rows of two
    /// vectors are valid.
    #[inline(always)]
    unsafe fn widen<S: Simd, P: Mac<S>>(self) {
        let (lanes, row) = (S::LANES, 2 * S::LANES);
        let mut block = [0.0f32; 256];
        // SAFETY: the caller has the elements and the rows; a block holds 16 vectors of 16, at
        // least `LANES` of each.
        unsafe {
            for half in 0..2 {
                let n = self.width.saturating_sub(half * lanes).min(lanes);
                let src = self.src.wrapping_add(half * lanes * self.ws);
                let out = self.out.add(half * lanes);
                let mut k = 0;
                if n == lanes && self.ws == 1 {
                    while k < self.depth {
                        let x = P::wide(src.wrapping_add(k * self.ks).cast());
                        S::store(out.add(k * row), x);
                        k += 1;
                    }
                } else if n == lanes && self.ks == 1 {
                    while k + lanes <= self.depth {
                        for j in 0..lanes {
                            let x = P::wide(src.wrapping_add(j * self.ws + k).cast());
                            S::store(block.as_mut_ptr().add(j * lanes), x);
                        }
                        S::transpose(block.as_ptr(), lanes, out.add(k * row), row);
                        k += lanes;
                    }
                }
                let mut some = [0u16; 16];
                if self.ks == 0 && self.ws == 0 && k < self.depth {
                    // All rows are one row.
                    some[..n].fill(src.read_unaligned());
                    let x = P::wide(some.as_ptr().cast());
                    while k < self.depth {
                        S::store(out.add(k * row), x);
                        k += 1;
                    }
                }
                while k < self.depth {
                    for (j, to) in some.iter_mut().enumerate().take(n) {
                        *to = src.wrapping_add(k * self.ks + j * self.ws).read_unaligned();
                    }
                    S::store(out.add(k * row), P::wide(some.as_ptr().cast()));
                    k += 1;
                }
            }
        }
    }
}

/// Wide operands of f16, which floats hold exactly.
pub(crate) struct F16;

impl<S: Simd> Mac<S> for F16 {
    const HALVES: bool = true;
    const ENDING: Ending = Ending::Shared;

    #[inline(always)]
    unsafe fn wide(p: *const f32) -> S::V {
        // SAFETY: the caller has a vector of f16 readable at `p`.
        unsafe { S::load_f16(p.cast()) }
    }
}

/// Wide operands of bfloat16, the upper halves of floats.
pub(crate) struct Bf16;

impl<S: Simd> Mac<S> for Bf16 {
    const HALVES: bool = true;
    const ENDING: Ending = Ending::Shared;

    #[inline(always)]
    unsafe fn wide(p: *const f32) -> S::V {
        // SAFETY: the caller has a vector of bfloat16 readable at `p`.
        unsafe { S::load_bf16(p.cast()) }
    }
}

/// Body that widens whole vectors of a panel.
pub(super) struct Widen {
    pub(super) storage: Storage,
    pub(super) from: *const f32,
    pub(super) count: usize,
    pub(super) to: *mut f32,
}

impl Body for Widen {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let from = self.from.cast::<u16>();
        // SAFETY: the code that makes the body has `count` elements, a whole number of vectors,
        // valid in both.
        unsafe {
            for at in (0..self.count).step_by(S::LANES) {
                let x = match self.storage {
                    Storage::F16 => S::load_f16(from.add(at)),
                    Storage::Bf16 => S::load_bf16(from.add(at)),
                    Storage::F32 => S::load(self.from.add(at)),
                };
                S::store(self.to.add(at), x);
            }
        }
    }
}

/// The largest finite f16.
const MOST: f32 = 65504.0;
/// Magnitude of the largest element below which a matrix is not stored as f16: near zero these are
/// 2^-24 apart, which leaves the smaller elements too few bits.
const LEAST: f32 = 1.0 / 4096.0;

/// Choice: bytes of floats from which a matrix is packed in 16 bits if that changes no element.
/// Smaller ones are read from a second-level cache, where widening takes longer than reading.
const LEAST_HALVED: usize = 1 << 20;

impl Packed {
    /// Packs all panels of a matrix of floats in 16 bits if either all elements are bfloat16 or all
    /// are f16, else returns `None`, also if products would not be faster. The first chunk with
    /// another element ends the attempt; for weights that were trained in floats that is the first
    /// chunk.
    pub(super) fn pack_losslessly(
        isa: Isa,
        source: &dyn PackSource,
    ) -> Result<Option<Packed>, Ended> {
        let (depth, width) = (source.depth(), source.width());
        let bytes = depth.saturating_mul(width).saturating_mul(size_of::<f32>());
        // Widening takes longer than reading on the portable instruction set. Products with few
        // columns run in an orientation that has no panels of 16 bits.
        if isa == Isa::Portable || width <= TRANSPOSED_COLS || bytes < LEAST_HALVED {
            return Ok(None);
        }
        for storage in [Storage::Bf16, Storage::F16] {
            let plan = PackPlan { isa, elements: storage, depth, width, lasts: Lasts::ForGood };
            let packed = Packed::try_pack_chunks(
                plan,
                |columns| source.next_columns(columns),
                |steps, start, out| {
                    with_scratch(4 * out.len(), |floats| {
                        let (floats, widened) = floats.split_at_mut(2 * out.len());
                        source.pack(isa, steps, start, floats);
                        let to = out.as_mut_ptr().cast();
                        let body = Narrow { storage, from: floats, to, widened };
                        // SAFETY: the machine has `isa`; `out` has the bytes of as many elements in
                        // 16 bits.
                        unsafe { dispatch(isa, body) }
                    })
                },
            )?;
            if packed.is_some() {
                return Ok(packed);
            }
        }
        Ok(None)
    }

    /// Packs all panels of a matrix of floats rounded to 16 bits: f16 if its elements are in their
    /// range, else bfloat16.
    pub(super) fn pack_rounded(isa: Isa, source: &dyn PackSource) -> Result<Packed, Ended> {
        let (packed, most) = Packed::pack_halves(isa, source, Storage::F16)?;
        if most == 0.0 || (LEAST..=MOST).contains(&most) {
            return Ok(packed);
        }
        drop(packed);
        Ok(Packed::pack_halves(isa, source, Storage::Bf16)?.0)
    }

    /// Packs all panels in 16 bits, and returns the largest magnitude of an element with them.
    pub(super) fn pack_halves(
        isa: Isa,
        source: &dyn PackSource,
        storage: Storage,
    ) -> Result<(Packed, f32), Ended> {
        let most = AtomicU32::new(0);
        let packed = Packed::from_source(isa, storage, source, |steps, start, out| {
            with_scratch(2 * out.len(), |floats| {
                source.pack(isa, steps, start, floats);
                let body = Round {
                    from: floats,
                    bf16: storage == Storage::Bf16,
                    to: out.as_mut_ptr().cast(),
                };
                // SAFETY: the machine has `isa`; `out` has the bytes of as many elements in 16
                // bits.
                let largest = unsafe { dispatch(isa, body) };
                // Floats that are not negative are ordered like their bits.
                most.fetch_max(largest.to_bits(), Relaxed);
            });
        })?;
        Ok((packed, f32::from_bits(most.into_inner())))
    }
}

/// Body that narrows whole vectors of floats to 16 bits, and checks that they keep all their bits.
struct Narrow<'a> {
    storage: Storage,
    from: &'a [f32],
    to: *mut u16,
    /// Scratch memory, as long as `from`.
    widened: &'a mut [f32],
}

impl Body for Narrow<'_> {
    type Out = bool;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> bool {
        let Narrow { storage, from, to, widened } = self;
        // SAFETY: `to` has room for as many elements as `from` has floats, a whole number of
        // vectors.
        unsafe {
            for at in (0..from.len()).step_by(S::LANES) {
                let x = S::load(from.as_ptr().add(at));
                if storage == Storage::Bf16 {
                    S::store_bf16(to.add(at), x);
                } else {
                    S::store_f16(to.add(at), x);
                }
            }
            let (count, back) = (from.len(), widened.as_mut_ptr());
            Widen { storage, from: to.cast(), count, to: back }.run::<S>();
        }
        S::run_loop(SameBits(from, widened))
    }
}

/// Loop that compares the bits of two slices.
struct SameBits<'a>(&'a [f32], &'a [f32]);

impl Loop for SameBits<'_> {
    type Out = bool;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> bool {
        let pairs = self.0.iter().zip(self.1);
        pairs.fold(0, |other, (x, y)| other | (x.to_bits() ^ y.to_bits())) == 0
    }
}

/// Body that rounds whole vectors of floats to 16 bits and finds the largest magnitude.
struct Round<'a> {
    from: &'a [f32],
    bf16: bool,
    to: *mut u16,
}

impl Body for Round<'_> {
    type Out = f32;

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> f32 {
        // SAFETY: `to` has room for as many elements as `from` has floats, a whole number of
        // vectors.
        unsafe {
            let zero = S::splat(0.0);
            let (mut low, mut high) = (zero, zero);
            let mut at = 0;
            while at < self.from.len() {
                let x = S::load(self.from.as_ptr().add(at));
                low = S::min(x, low);
                high = S::max(x, high);
                if self.bf16 {
                    S::store_bf16(self.to.add(at), x)
                } else {
                    S::store_f16(self.to.add(at), x)
                }
                at += S::LANES;
            }
            let mut lanes = [0.0f32; 32];
            S::store(lanes.as_mut_ptr(), low);
            S::store(lanes.as_mut_ptr().add(S::LANES), high);
            lanes.iter().fold(0.0, |most, x| x.abs().max(most))
        }
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;
    use crate::gemm::tests::random;
    use crate::gemm::{Bias, Epilogue, Lhs, PackedA, PackedB, Rhs, gemm};
    use sardonyx_simd::{Exec, Pool};

    /// Stores numbers in a type at an odd address, and returns the bytes and the stored numbers.
    fn store_numbers(numbers: &[f32], storage: Storage) -> (Vec<u8>, Vec<f32>) {
        let mut bytes = vec![0];
        let mut exact = Vec::new();
        for x in numbers {
            match storage {
                Storage::F32 => bytes.extend(x.to_le_bytes()),
                Storage::F16 => bytes.extend(f16::from_f32(*x).to_le_bytes()),
                Storage::Bf16 => bytes.extend(bf16::from_f32(*x).to_le_bytes()),
            }
            exact.push(match storage {
                Storage::F32 => *x,
                Storage::F16 => f16::from_f32(*x).to_f32(),
                Storage::Bf16 => bf16::from_f32(*x).to_f32(),
            });
        }
        (bytes, exact)
    }

    const ALL: [Storage; 3] = [Storage::F32, Storage::F16, Storage::Bf16];

    #[test]
    fn matrices_of_bytes_write_themselves_into_panels() {
        for isa in Isa::available().iter().copied() {
            let w = panel_width(isa);
            for storage in ALL {
                for (rows, cols, row_stride, col_stride) in [
                    (5, 3, 3, 1),
                    (40, 70, 70, 1),
                    (40, 70, 1, 40),
                    (19, 33, 1, 19),
                    (19, 33, 101, 3),
                    (1, w, w, 1),
                    (0, 4, 4, 1),
                ] {
                    let len = strided_len(rows, cols, row_stride, col_stride).expect("fits");
                    let (bytes, exact) = store_numbers(&random(len, 3), storage);
                    let bytes = &bytes[1..];
                    let matrix = LeMatrix::new(bytes, storage, rows, cols, row_stride, col_stride);
                    for start in (0..cols).step_by(w) {
                        for depth in [0..rows, rows / 3..rows, rows / 2..rows / 2] {
                            let mut out = vec![f32::NAN; depth.len() * w];
                            matrix.pack(isa, depth.clone(), start, &mut out);
                            for (at, found) in out.iter().enumerate() {
                                let (k, col) = (depth.start + at / w, start + at % w);
                                let want = if col < cols {
                                    exact[k * row_stride + col * col_stride]
                                } else {
                                    0.0
                                };
                                let what = format!("{isa:?} {storage:?} {rows}x{cols} {k},{col}");
                                assert_eq!(found.to_bits(), want.to_bits(), "{what}");
                                if col < cols {
                                    assert_eq!(matrix.get(k, col), want, "{what}");
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Multiplies, and returns the bits of the results.
    fn multiply(threads: usize, a: Lhs<'_>, b: &PackedB, epilogue: &Epilogue<'_>) -> Vec<u32> {
        let pool = Pool::new(threads);
        let mut c = vec![0.0; a.size().0 * b.cols()];
        let exec = Exec::new(&pool, b.isa());
        gemm(&exec, a, Rhs::Packed(b), &mut c, b.cols(), epilogue).unwrap();
        c.iter().map(|c| c.to_bits()).collect()
    }

    /// Checks that products with a right operand in 16 bits have the bits of products with its
    /// widened floats, as tiles and blocks are equal.
    #[test]
    fn products_are_those_with_widened_operands() {
        for isa in Isa::available().iter().copied() {
            for storage in [Storage::F16, Storage::Bf16] {
                for (m, n, k) in [
                    (1, 40, 700),
                    (3, 5, 1),
                    (12, 64, 513),
                    (13, 31, 2),
                    (70, 300, 300),
                    (40, 3, 40),
                    (2, 8, 0),
                ] {
                    let (a, bias) = (random(m * k, 5), random(n, 7));
                    let (bytes, exact) = store_numbers(&random(k * n, 6), storage);
                    let matrix = LeMatrix::row_major(&bytes[1..], storage, k, n);
                    let packed = PackedB::from_le(isa, &matrix).unwrap();
                    let widened = ManyRows::Widened;
                    assert_eq!((packed.storage(), packed.many_rows()), (storage, widened));
                    let epilogue = Epilogue { bias: Some(Bias::Col(&bias)), ..Epilogue::default() };
                    let a = MatRef::row_major(&a, m, k);
                    let (packed_a, b) =
                        (PackedA::new(isa, a).unwrap(), MatRef::row_major(&exact, k, n));
                    let floats = PackedB::new(isa, b).unwrap();
                    for threads in [1, 2] {
                        let want = multiply(threads, Lhs::Plain(a), &floats, &epilogue);
                        let what = format!("{isa:?} {storage:?} {m}x{n}x{k}, {threads} threads");
                        let found = multiply(threads, Lhs::Plain(a), &packed, &epilogue);
                        assert_eq!(found, want, "{what}");
                        let found = multiply(threads, Lhs::Packed(&packed_a), &packed, &epilogue);
                        assert_eq!(found, want, "{what}");
                    }
                }
            }
        }
    }

    /// Rounds numbers to a type, and puts special numbers of both types and `others` among them.
    fn with_special(numbers: &[f32], storage: Storage, others: &[(usize, f32)]) -> Vec<f32> {
        let (_, mut exact) = store_numbers(numbers, storage);
        let special = [f32::INFINITY, -0.0, 0.0, f32::NAN, 2f32.powi(-24)];
        exact[9..][..special.len()].copy_from_slice(&special);
        for (at, other) in others {
            exact[*at] = *other;
        }
        exact
    }

    /// Checks that floats take 16 bits only if all of them keep their bits, wherever another one
    /// is, and that products have the bits of those with panels of floats.
    #[test]
    fn floats_that_are_halves_take_half_the_memory() {
        let (k, n) = (700, 400);
        // The first has 13 bits, too many for both types.
        let (neither, too_large, of_ten_bits) = (1.0 + 2f32.powi(-12), 1e6, 1.0 + 2f32.powi(-10));
        let last = k * n - 1;
        for (storage, others, expected) in [
            (Storage::Bf16, &[][..], Storage::Bf16),
            (Storage::F16, &[], Storage::F16),
            (Storage::F16, &[(last, -65504.0)], Storage::F16),
            (Storage::F16, &[(last, neither)], Storage::F32),
            (Storage::F16, &[(0, neither)], Storage::F32),
            (Storage::F16, &[(k * n / 2, too_large)], Storage::F32),
            (Storage::Bf16, &[(last, neither)], Storage::F32),
            (Storage::Bf16, &[(n, of_ten_bits), (1, 1e30)], Storage::F32),
            (Storage::Bf16, &[(1, 1e30), (2, f32::from_bits(0x7f81_0000))], Storage::F32),
            (Storage::F32, &[], Storage::F32),
        ] {
            let exact = with_special(&random(k * n, 6), storage, others);
            let (bytes, _) = store_numbers(&exact, Storage::F32);
            let matrix = LeMatrix::row_major(&bytes[1..], Storage::F32, k, n);
            for isa in Isa::available().iter().copied() {
                let expected = if isa == Isa::Portable { Storage::F32 } else { expected };
                let packed = PackedB::from_le(isa, &matrix).unwrap();
                assert_eq!((packed.storage(), packed.many_rows()), (expected, ManyRows::Widened));
                if expected == Storage::F32 {
                    continue;
                }
                let floats = PackedB::new(isa, MatRef::row_major(&exact, k, n)).unwrap();
                assert_eq!(packed.bytes() * 2, floats.bytes());
                for (m, threads) in [(1, 1), (1, 8), (4, 2), (13, 1), (40, 1), (90, 1), (90, 3)] {
                    let a = random(m * k, 5);
                    let a = Lhs::Plain(MatRef::row_major(&a, m, k));
                    let found = multiply(threads, a, &packed, &Epilogue::default());
                    let want = multiply(threads, a, &floats, &Epilogue::default());
                    assert_eq!(found, want, "{isa:?} {m} rows, {threads} threads");
                }
            }
        }
    }

    /// Checks that matrices for which 16 bits save no time stay floats.
    #[test]
    fn small_and_narrow_matrices_stay_floats() {
        for (k, n) in [(512, 511), (4096, TRANSPOSED_COLS)] {
            let bytes = vec![0; k * n * 4];
            let matrix = LeMatrix::row_major(&bytes, Storage::F32, k, n);
            let packed = PackedB::from_le(Isa::detect(), &matrix).unwrap();
            assert_eq!(packed.storage(), Storage::F32, "{k} x {n}");
        }
    }

    #[test]
    fn floats_are_rounded_to_what_reaches_as_far() {
        let isa = Isa::detect();
        if isa == Isa::Portable {
            eprintln!("skipped: nothing is rounded on the portable instruction set");
            return;
        }
        let pack = |numbers: &[f32]| {
            let (bytes, _) = store_numbers(numbers, Storage::F32);
            let matrix = LeMatrix::row_major(&bytes[1..], Storage::F32, 1, numbers.len());
            PackedB::rounded_from_le(isa, &matrix).unwrap()
        };
        for (numbers, storage) in [
            (&[0.0, -0.0][..], Storage::F16),
            (&[0.1, -3.0, 1e-9], Storage::F16),
            (&[65504.0, 1.0], Storage::F16),
            (&[65505.0, 1.0], Storage::Bf16),
            (&[-1e9, 1.0], Storage::Bf16),
            (&[1e-9, 1e-6], Storage::Bf16),
            (&[f32::NEG_INFINITY, 1.0], Storage::Bf16),
            (&[f32::NAN, 1.0], Storage::F16),
        ] {
            let packed = pack(numbers);
            assert_eq!(packed.storage(), storage, "{numbers:?}");
            let mut c = vec![0.0; numbers.len()];
            let one = Lhs::Plain(MatRef::row_major(&[1.0], 1, 1));
            let right = Rhs::Packed(&packed);
            let n = c.len();
            gemm(&Exec::new(Pool::serial(), isa), one, right, &mut c, n, &Epilogue::default())
                .unwrap();
            let (_, exact) = store_numbers(numbers, storage);
            for (c, exact) in c.iter().zip(&exact) {
                assert!(c == exact || c.is_nan() && exact.is_nan(), "{c} {exact}");
            }
        }
    }

    /// Packs shapes that a file may declare although it has no elements.
    #[test]
    fn matrices_of_nothing_are_packed_at_once() {
        let many = 1 << 62;
        for isa in Isa::available().iter().copied() {
            for storage in ALL {
                for (rows, cols) in [(0, many), (many, 0), (0, 0)] {
                    let matrix = LeMatrix::row_major(&[], storage, rows, cols);
                    for matrix in [matrix, matrix.transpose()] {
                        for packed in [
                            PackedB::from_le(isa, &matrix).unwrap(),
                            PackedB::rounded_from_le(isa, &matrix).unwrap(),
                        ] {
                            assert_eq!(packed.bytes(), 0);
                            assert_eq!((packed.depth(), packed.cols()), (matrix.rows, matrix.cols));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn packing_tells_what_it_reads_next() {
        let (rows, cols) = (64, 140_000);
        let bytes = vec![0; rows * cols * 2];
        for (cols, pieces) in [(100, 1), (cols, 3)] {
            let told = std::sync::Mutex::new(Vec::new());
            let tell = |columns: Range<usize>| told.lock().expect("no panic").push(columns);
            let matrix = LeMatrix::row_major(&bytes, Storage::F16, cols, rows);
            PackedB::from_le(Isa::detect(), &matrix.transpose().with_column_callback(&tell))
                .unwrap();
            let told = told.into_inner().expect("no panic");
            assert_eq!(told.len(), pieces);
            assert_eq!((told[0].start, told[pieces - 1].end), (0, cols));
            for pair in told.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
                assert_eq!(pair[0].len(), told[0].len());
            }
        }
    }

    #[test]
    #[should_panic(expected = "3 x 3 of F16 with strides 3, 1 in 17 bytes")]
    fn matrices_do_not_reach_outside() {
        LeMatrix::row_major(&[0; 17], Storage::F16, 3, 3);
    }
}
