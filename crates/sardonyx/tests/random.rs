//! Random numbers that are equal on every machine.

/// Generator xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators,
/// scrambled", 2016). The seed must not be 0.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Draws a number from 0 to `bound`, exclusive.
    pub(crate) fn next_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    /// Draws an element of a list.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.next_below(all.len())]
    }
}
