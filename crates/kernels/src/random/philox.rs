//! Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
//! SC 2011.

use sardonyx_simd::number::Number;
use sardonyx_simd::{Level, Loop};

/// Geometry: blocks that are computed side by side, so that loops over them compile to vector
/// instructions.
const LANES: usize = 8;
/// Geometry: numbers that are drawn together: so many of one word each, or half as many of two.
pub(super) const GROUP: usize = 4 * LANES;

/// Stream of numbers, each of which is a function of the stream and its position.
#[derive(Debug, Clone)]
pub struct Philox {
    key: [u32; 2],
    /// Upper half of the counter.
    stream: [u32; 2],
}

impl Philox {
    /// Creates one of the 2^128 streams of a seed. All streams of a seed differ, as the cipher that
    /// derives them permutes 128 bits.
    pub fn new(seed: u64, stream: [u32; 4]) -> Philox {
        let found = encrypt(stream.map(|word| [word; LANES]), halves(seed)).map(|words| words[0]);
        Philox { key: [found[0], found[1]], stream: [found[2], found[3]] }
    }

    /// Fills `numbers` with numbers uniform in `0..1`, 1 excluded, of `bits` bits, 1 to 53, from
    /// position `first` on, a multiple of [`GROUP`].
    pub(super) fn uniform(&self, level: Level, first: usize, bits: u32, numbers: &mut [f64]) {
        f64::run(level, Draw { philox: self, first, bits, numbers });
    }

    /// Computes the words of [`LANES`] consecutive blocks, from block `first` on.
    #[inline(always)]
    fn group(&self, first: u64) -> [[u32; LANES]; 4] {
        let mut low = [0; LANES];
        let mut high = [0; LANES];
        for lane in 0..LANES {
            [low[lane], high[lane]] = halves(first.wrapping_add(lane as u64));
        }
        let [upper, lower] = self.stream.map(|word| [word; LANES]);
        encrypt([low, high, upper, lower], self.key)
    }
}

/// Loop of [`Philox::uniform`].
struct Draw<'a> {
    philox: &'a Philox,
    first: usize,
    bits: u32,
    numbers: &'a mut [f64],
}

impl Loop for Draw<'_> {
    type Out = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Draw { philox, first, bits, numbers } = self;
        let unit = (0.5f64).powi(bits as i32);
        let mut group = [0.0; GROUP];
        // Words are converted as signed ones, for which all instruction sets have vector
        // instructions.
        if bits < 32 {
            let mut block = (first / GROUP * LANES) as u64;
            for numbers in numbers.chunks_mut(GROUP) {
                let drawn = philox.group(block);
                for (numbers, words) in group.chunks_exact_mut(LANES).zip(drawn) {
                    for (number, word) in numbers.iter_mut().zip(words) {
                        *number = f64::from((word >> (32 - bits)) as i32) * unit;
                    }
                }
                numbers.copy_from_slice(&group[..numbers.len()]);
                block = block.wrapping_add(LANES as u64);
            }
            return;
        }
        let mut block = (first / (GROUP / 2) * LANES) as u64;
        let lower_bits = bits - 27;
        for numbers in numbers.chunks_mut(GROUP / 2) {
            let drawn = philox.group(block);
            let pairs = [(drawn[0], drawn[1]), (drawn[2], drawn[3])];
            for (numbers, (upper, lower)) in group.chunks_exact_mut(LANES).zip(pairs) {
                for (number, (upper, lower)) in numbers.iter_mut().zip(upper.into_iter().zip(lower))
                {
                    let upper = f64::from((upper >> 5) as i32) * f64::from(1 << lower_bits);
                    let lower = f64::from((lower >> (32 - lower_bits)) as i32);
                    *number = (upper + lower) * unit;
                }
            }
            numbers.copy_from_slice(&group[..numbers.len()]);
            block = block.wrapping_add(LANES as u64);
        }
    }
}

/// Returns the lower and upper half of a word.
#[inline(always)]
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Encrypts four words of each lane: ten rounds of the cipher.
#[inline(always)]
fn encrypt(counters: [[u32; LANES]; 4], key: [u32; 2]) -> [[u32; LANES]; 4] {
    let [mut a, mut b, mut c, mut d] = counters;
    let [mut left, mut right] = key;
    for _ in 0..10 {
        for lane in 0..LANES {
            let first = u64::from(a[lane]) * 0xd251_1f53;
            let second = u64::from(c[lane]) * 0xcd9e_8d57;
            a[lane] = (second >> 32) as u32 ^ b[lane] ^ left;
            b[lane] = second as u32;
            c[lane] = (first >> 32) as u32 ^ d[lane] ^ right;
            d[lane] = first as u32;
        }
        left = left.wrapping_add(0x9e37_79b9);
        right = right.wrapping_add(0xbb67_ae85);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_simd::Isa;

    #[test]
    fn the_vectors_of_the_authors() {
        for (counter, key, expected) in [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ] {
            let found = encrypt(counter.map(|word| [word; LANES]), key);
            assert_eq!(found, expected.map(|word: u32| [word; LANES]));
        }
    }

    #[test]
    fn a_number_depends_on_its_place_alone() {
        let stream = Philox::new(7, [1, 2, 3, 4]);
        for bits in [8, 24, 31, 32, 53] {
            let draw = |stream: &Philox, isa, first, len| {
                let mut numbers = vec![0.0; len];
                stream.uniform(Level::new(isa), first, bits, &mut numbers);
                numbers
            };
            let all = draw(&stream, Isa::Portable, 0, 4 * GROUP + 7);
            let unit = (0.5f64).powi(bits as i32);
            assert!(all.iter().all(|x| (0.0..1.0).contains(x) && (x / unit).fract() == 0.0));
            for first in [0, GROUP, 3 * GROUP] {
                for &isa in Isa::available() {
                    for end in [first, first + 1, first + GROUP + 5, all.len()] {
                        let end = end.min(all.len());
                        assert_eq!(draw(&stream, isa, first, end - first), all[first..end]);
                    }
                }
            }
            let other = draw(&Philox::new(7, [1, 2, 3, 5]), Isa::Portable, 0, 100);
            assert_ne!(all[..100], other);
            let other = draw(&Philox::new(8, [1, 2, 3, 4]), Isa::Portable, 0, 100);
            assert_ne!(all[..100], other);
        }
    }
}
