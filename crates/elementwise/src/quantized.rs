//! Numbers of few bits: tensors, slices or blocks of them have a scale and perhaps a zero point.

mod linear;
mod requantize;
mod spread;

pub use linear::{
    Code, Dividend, Precision, Scaling, Stored, dequantize, dequantize_packed, divide, limits,
    quantize, quantize_packed,
};
pub use requantize::{Factors, Requantize, requantize};
pub use spread::Spread;

use half::{bf16, f16};
use sardonyx_simd::chunks::rows;
use sardonyx_simd::number::{bf16_to_f32, f16_to_f32};
use sardonyx_simd::{Ended, Exec};

/// Integers of 2, 4 or 8 bits, packed from the lowest bits of each byte on.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    pub bytes: &'a [u8],
    /// Number of bits of a code.
    pub bits: usize,
    /// Whether the highest bit of a code is a sign.
    pub signed: bool,
}

impl Codes<'_> {
    /// Returns the number of codes, including padding in the last byte.
    pub fn len(&self) -> usize {
        self.bytes.len() * (8 / self.bits)
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the code at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is out of range.
    #[inline]
    pub fn get(&self, index: usize) -> i32 {
        let per_byte = 8 / self.bits;
        let byte = u32::from(self.bytes[index / per_byte]);
        let above = 32 - self.bits - index % per_byte * self.bits;
        let at_top = byte << above;
        let down = 32 - self.bits;
        if self.signed { at_top.cast_signed() >> down } else { (at_top >> down).cast_signed() }
    }
}

/// Zero points of blocks.
#[derive(Clone, Copy, Debug)]
pub enum Zeros<'a> {
    /// One zero point for all blocks.
    One(f32),
    /// Codes, of which each row of blocks begins at a byte boundary.
    Rows(Codes<'a>),
    /// Codes without padding between rows.
    Dense(Codes<'a>),
    /// Floats.
    Floats(&'a [f32]),
}

impl Zeros<'_> {
    /// Returns the zero point of a block of a row with `blocks` blocks.
    #[inline]
    pub fn get(&self, row: usize, block: usize, blocks: usize) -> f32 {
        match self {
            Zeros::One(zero) => *zero,
            Zeros::Rows(codes) => {
                let per_byte = 8 / codes.bits;
                codes.get(row * blocks.div_ceil(per_byte) * per_byte + block) as f32
            }
            Zeros::Dense(codes) => codes.get(row * blocks + block) as f32,
            Zeros::Floats(zeros) => zeros[row * blocks + block],
        }
    }
}

/// Columns of a matrix, each quantized in blocks. All blocks of a column have the same length, even
/// if the matrix uses only a part of the last.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// Codes, column by column.
    pub codes: Codes<'a>,
    /// Number of elements of a column.
    pub depth: usize,
    /// Number of elements of a block.
    pub block: usize,
    /// Scale of each block, column by column.
    pub scales: &'a [f32],
    pub zeros: Zeros<'a>,
    /// Block whose scale and zero point belong to each element of a column; if empty, the block
    /// that holds it.
    pub groups: &'a [i32],
}

impl Columns<'_> {
    /// Returns the number of blocks of a column.
    pub fn blocks(&self) -> usize {
        self.depth.div_ceil(self.block)
    }

    /// Dequantizes columns from column `first` on, column by column.
    ///
    /// # Panics
    ///
    /// If `out` is not a whole number of columns, or there are fewer columns.
    pub fn dequantize(&self, exec: &Exec<'_>, first: usize, out: &mut [f32]) -> Result<(), Ended> {
        let (blocks, depth) = (self.blocks(), self.depth);
        rows(exec.pool, out, depth, 2 * depth, |skipped, out| {
            for (index, column) in out.chunks_exact_mut(depth).enumerate() {
                let at = first + skipped + index;
                if !self.groups.is_empty() {
                    self.dequantize_groups(at, column);
                    continue;
                }
                for (block, elements) in column.chunks_mut(self.block).enumerate() {
                    let scale = self.scales[at * blocks + block];
                    let zero = self.zeros.get(at, block, blocks);
                    let start = (at * blocks + block) * self.block;
                    for (offset, element) in elements.iter_mut().enumerate() {
                        *element = (self.codes.get(start + offset) as f32 - zero) * scale;
                    }
                }
            }
        })
    }

    /// Dequantizes a column whose elements belong to the blocks in `groups`.
    fn dequantize_groups(&self, at: usize, column: &mut [f32]) {
        let blocks = self.blocks();
        let start = at * blocks * self.block;
        for (offset, (element, group)) in column.iter_mut().zip(self.groups).enumerate() {
            let block = *group as usize;
            let zero = self.zeros.get(at, block, blocks);
            let number = self.codes.get(start + offset) as f32 - zero;
            *element = number * self.scales[at * blocks + block];
        }
    }
}

/// Scales in their stored type.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    Floats(&'a [f32]),
    Float16(&'a [f16]),
    Bfloat16(&'a [bf16]),
}

impl Scales<'_> {
    /// Returns the number of scales.
    pub fn len(&self) -> usize {
        match self {
            Scales::Floats(scales) => scales.len(),
            Scales::Float16(scales) => scales.len(),
            Scales::Bfloat16(scales) => scales.len(),
        }
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the scale at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is out of range.
    #[inline]
    pub fn get(&self, index: usize) -> f32 {
        match self {
            Scales::Floats(scales) => scales[index],
            Scales::Float16(scales) => f16_to_f32(scales[index]),
            Scales::Bfloat16(scales) => bf16_to_f32(scales[index]),
        }
    }
}

/// Tensor that is quantized in blocks along one axis, and from which slices along another are
/// gathered.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a> {
    pub codes: Codes<'a>,
    /// Sizes before, along and after the axis of the slices.
    pub taken: [usize; 3],
    /// Sizes before, along and after the axis that is cut into blocks.
    pub cut: [usize; 3],
    /// Number of elements of a block.
    pub block: usize,
    /// Scale of each block, in the order of the elements. Only scales of gathered slices are
    /// widened.
    pub scales: Scales<'a>,
    /// Zero point of each block, in the same order; rows begin at a byte boundary only if the last
    /// axis is cut.
    pub zeros: Zeros<'a>,
}

impl Slices<'_> {
    /// Gathers and dequantizes the slices at `places`, in their order. Negative places count from
    /// the end; a place out of range gives zeros.
    ///
    /// # Panics
    ///
    /// If lengths do not fit the sizes.
    pub fn gather(&self, exec: &Exec<'_>, places: &[i64], out: &mut [f32]) -> Result<(), Ended> {
        let [before, along, after] = self.taken;
        assert_eq!(out.len(), before * places.len() * after, "one slice for each place");
        if out.is_empty() {
            return Ok(());
        }
        rows(exec.pool, out, after, 8 * after, |first, out| {
            for (index, slice) in out.chunks_exact_mut(after).enumerate() {
                let (outer, place) =
                    ((first + index) / places.len(), (first + index) % places.len());
                let place = places[place];
                let place = if place < 0 { place + along as i64 } else { place };
                match usize::try_from(place).ok().filter(|place| *place < along) {
                    Some(place) => self.dequantize_slice((outer * along + place) * after, slice),
                    None => slice.fill(0.0),
                }
            }
        })
    }

    /// Dequantizes the elements from `start` on, one by one unless the last axis is cut.
    fn dequantize_slice(&self, start: usize, out: &mut [f32]) {
        let [_, along, after] = self.cut;
        let blocks = along.div_ceil(self.block);
        if after == 1 {
            return self.dequantize_blocks(start, blocks, out);
        }
        for (offset, element) in out.iter_mut().enumerate() {
            let at = start + offset;
            let (row, place, column) = (at / (along * after), at / after % along, at % after);
            let block = place / self.block;
            let scale = self.scales.get((row * blocks + block) * after + column);
            // Index in a single row of zero points.
            let zero = self.zeros.get(0, (row * blocks + block) * after + column, 0);
            *element = (self.codes.get(at) as f32 - zero) * scale;
        }
    }

    /// Dequantizes the elements from `start` on, block by block, if the last axis is cut.
    fn dequantize_blocks(&self, start: usize, blocks: usize, mut out: &mut [f32]) {
        let along = self.cut[1];
        let mut at = start;
        while !out.is_empty() {
            let (row, place) = (at / along, at % along);
            let block = place / self.block;
            let end = along.min((block + 1) * self.block);
            let (now, rest) = out.split_at_mut(out.len().min(end - place));
            let scale = self.scales.get(row * blocks + block);
            let zero = self.zeros.get(row, block, blocks);
            for (offset, element) in now.iter_mut().enumerate() {
                *element = (self.codes.get(at + offset) as f32 - zero) * scale;
            }
            at += now.len();
            out = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::{Isa, Pool};

    fn codes(bytes: &[u8], bits: usize, signed: bool) -> Vec<i32> {
        let codes = Codes { bytes, bits, signed };
        (0..codes.len()).map(|index| codes.get(index)).collect()
    }

    #[test]
    fn bits_from_the_lowest_on() {
        assert_eq!(codes(&[0x21, 0xF8], 4, false), [1, 2, 8, 15]);
        assert_eq!(codes(&[0x21, 0xF8], 4, true), [1, 2, -8, -1]);
        assert_eq!(codes(&[0b11_10_01_00], 2, false), [0, 1, 2, 3]);
        assert_eq!(codes(&[0, 200], 8, false), [0, 200]);
        assert_eq!(codes(&[0, 200], 8, true), [0, -56]);
    }

    #[test]
    fn columns_end_within_a_block() {
        let exec = Exec::new(Pool::serial(), Isa::Portable);
        // Three elements in blocks of two, in two columns: the last block of each has an unused
        // element.
        let columns = Columns {
            codes: Codes { bytes: &[1, 2, 3, 99, 4, 5, 6, 99], bits: 8, signed: false },
            depth: 3,
            block: 2,
            scales: &[1.0, 10.0, 100.0, 1000.0],
            zeros: Zeros::Rows(Codes { bytes: &[1, 2, 3, 4], bits: 8, signed: false }),
            groups: &[],
        };
        let mut out = [0.0; 6];
        columns.dequantize(&exec, 0, &mut out).unwrap();
        assert_eq!(out, [0.0, 1.0, 10.0, 100.0, 200.0, 2000.0]);
        let mut out = [0.0; 3];
        columns.dequantize(&exec, 1, &mut out).unwrap();
        assert_eq!(out, [100.0, 200.0, 2000.0]);
        let columns = Columns { groups: &[1, 0, 1], ..columns };
        columns.dequantize(&exec, 1, &mut out).unwrap();
        assert_eq!(out, [0.0, 200.0, 2000.0]);
    }

    #[test]
    fn slices_along_either_axis() {
        let exec = Exec::new(Pool::serial(), Isa::Portable);
        let bytes: Vec<u8> = (0..12).collect();
        let codes = Codes { bytes: &bytes, bits: 8, signed: false };
        // [3, 4], cut along the last axis in blocks of two, taken along the first.
        let slices = Slices {
            codes,
            taken: [1, 3, 4],
            cut: [3, 4, 1],
            block: 2,
            scales: Scales::Floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            zeros: Zeros::One(1.0),
        };
        let narrow = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
        let (halves, bf16s) = (narrow.map(f16::from_f32), narrow.map(bf16::from_f32));
        for scales in [slices.scales, Scales::Float16(&halves), Scales::Bfloat16(&bf16s)] {
            let mut out = [9.0; 12];
            Slices { scales, ..slices }.gather(&exec, &[2, -3, 3], &mut out).unwrap();
            let (last, first) = ([35.0, 40.0, 54.0, 60.0], [-1.0, 0.0, 2.0, 4.0]);
            assert_eq!(out, [last, first, [0.0; 4]].concat()[..]);
        }
        // Slices along the second axis, blocks along the first.
        let slices = Slices {
            codes,
            taken: [3, 4, 1],
            cut: [1, 3, 4],
            block: 2,
            scales: Scales::Floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
            zeros: Zeros::Floats(&[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0]),
        };
        let mut out = [9.0; 6];
        slices.gather(&exec, &[1, 3], &mut out).unwrap();
        assert_eq!(out, [0.0, 12.0, 8.0, 28.0, 54.0, 24.0]);
    }
}
