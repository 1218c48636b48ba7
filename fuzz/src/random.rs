//! Random numbers that are equal on every platform, so that an input can be made again from a seed
//! and an index.

/// SplitMix64: one addition and two multiplications per number, and good enough to choose mutations
/// with.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a stream that differs for every pair.
    pub fn new(seed: u64, index: u64) -> Random {
        // Mixed twice because states that differ by a multiple of the step give one stream,
        // shifted.
        let start = Random(seed).number().wrapping_add(index);
        Random(Random(start).number())
    }

    /// Draws any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The bias of the remainder does not matter here.
        (self.number() >> 16) as usize % end.max(1)
    }

    /// Draws a number below `times`. Returns whether it is 0.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Draws an item.
    ///
    /// # Panics
    /// If there are no items.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_and_distinct() {
        let numbers = |seed, index| {
            let mut random = Random::new(seed, index);
            [random.number(), random.number(), random.number()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
        // Neighbouring streams must not be one stream, shifted by one.
        assert_ne!(numbers(1, 2)[1], numbers(1, 3)[0]);
        let mut random = Random::new(7, 7);
        assert!((0..1000).all(|_| random.below(3) < 3));
        assert_eq!(random.below(0), 0);
    }
}
