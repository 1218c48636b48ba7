//! Numbers of few bits: tensors, slices and blocks of them have a scale and perhaps a zero point.

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

/// Integers of 2, 4 or 8 bits, one after the other, from the lowest bits of each byte on.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    pub bytes: &'a [u8],
    pub bits: usize,
    /// Whether the highest bit is a sign.
    pub signed: bool,
}

impl Codes<'_> {
    /// How many there are, with what fills the last byte.
    pub fn len(&self) -> usize {
        self.bytes.len() * (8 / self.bits)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// One of them.
    ///
    /// # Panics
    ///
    /// If there are not that many.
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
    /// One for all.
    One(f32),
    /// Integers, of which each row of blocks begins with a byte of its own.
    Rows(Codes<'a>),
    /// Integers, all of them one after the other.
    Dense(Codes<'a>),
    /// As numbers.
    Floats(&'a [f32]),
}

impl Zeros<'_> {
    /// The zero point of a block of a row that has that many.
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

/// The columns of a matrix, each cut into blocks of its elements. The last block of a column is as
/// long as the others, whether the matrix needs all of it or not.
#[derive(Clone, Copy, Debug)]
pub struct Columns<'a> {
    /// Column by column.
    pub codes: Codes<'a>,
    /// Elements of a column.
    pub depth: usize,
    /// Elements of a block.
    pub block: usize,
    /// Column by column, one for each block.
    pub scales: &'a [f32],
    pub zeros: Zeros<'a>,
    /// Block whose scale and zero point each element of a column has; if empty, its own.
    pub groups: &'a [i32],
}

impl Columns<'_> {
    /// Blocks of a column.
    pub fn blocks(&self) -> usize {
        self.depth.div_ceil(self.block)
    }

    /// The elements of some columns from one on, column by column.
    ///
    /// # Panics
    ///
    /// If `out` is not a whole number of columns, or there are not that many.
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

    /// Writes a column whose elements name their blocks.
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

/// Scales in the type that they have.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    Floats(&'a [f32]),
    Float16(&'a [f16]),
    Bfloat16(&'a [bf16]),
}

impl Scales<'_> {
    pub fn len(&self) -> usize {
        match self {
            Scales::Floats(scales) => scales.len(),
            Scales::Float16(scales) => scales.len(),
            Scales::Bfloat16(scales) => scales.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns one of them.
    ///
    /// # Panics
    ///
    /// If there are not that many.
    #[inline]
    pub fn get(&self, index: usize) -> f32 {
        match self {
            Scales::Floats(scales) => scales[index],
            Scales::Float16(scales) => f16_to_f32(scales[index]),
            Scales::Bfloat16(scales) => bf16_to_f32(scales[index]),
        }
    }
}

/// A tensor that is quantized in blocks along one axis, from which slices along another are taken.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a> {
    pub codes: Codes<'a>,
    /// Elements before, along and after the axis that slices are taken along.
    pub taken: [usize; 3],
    /// Elements before, along and after the axis that is cut into blocks.
    pub cut: [usize; 3],
    /// Elements of a block.
    pub block: usize,
    /// In the order of the elements, with one for each block along the axis that is cut. Only those
    /// of the slices that are taken are widened.
    pub scales: Scales<'a>,
    /// In the same order; rows begin with a byte of their own only if the last axis is cut.
    pub zeros: Zeros<'a>,
}

impl Slices<'_> {
    /// The slices at some places, in the order of their axis; zeros for a place that is not there.
    /// Places count from the end if they are negative.
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
                    Some(place) => self.slice((outer * along + place) * after, slice),
                    None => slice.fill(0.0),
                }
            }
        })
    }

    /// Elements from one on.
    fn slice(&self, start: usize, out: &mut [f32]) {
        let [_, along, after] = self.cut;
        let blocks = along.div_ceil(self.block);
        if after == 1 {
            return self.run_of_blocks(start, blocks, out);
        }
        for (offset, element) in out.iter_mut().enumerate() {
            let at = start + offset;
            let (row, place, column) = (at / (along * after), at / after % along, at % after);
            let block = place / self.block;
            let scale = self.scales.get((row * blocks + block) * after + column);
            // All of these are one row.
            let zero = self.zeros.get(0, (row * blocks + block) * after + column, 0);
            *element = (self.codes.get(at) as f32 - zero) * scale;
        }
    }

    /// Writes elements from one on where the last axis is cut, block by block.
    fn run_of_blocks(&self, start: usize, blocks: usize, mut out: &mut [f32]) {
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
        // Three elements in blocks of two, of two columns: a block of each ends unused.
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
        // The other way round.
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
