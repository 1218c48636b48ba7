//! Addresses in several rows for loops over steps that read one number of each row.
//!
//! An address on x86 is a register plus another one times 1, 2, 4 or 8. Left alone, the compiler
//! adds the row stride again and again in every step. These additions compete with multiply-adds
//! for execution units: a tile of 12 rows and 2 vectors reaches 84 % of the peak multiply-adds of
//! the processor, and 90 % without these additions (Sapphire Rapids).

/// Geometry: rows addressed from one pointer: strides times 0, 1, 2 and 4, and the triple stride in
/// a register of its own.
const ROWS_PER_START: usize = 5;
/// Geometry: number of pointers in [`Rows`].
const STARTS: usize = 4;

/// Addresses in `R` rows, a constant stride apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<const R: usize> {
    /// Addresses in every fifth row. Pointers beyond the last row are not used.
    starts: [*const f32; STARTS],
    /// Row stride in floats.
    distance: usize,
    /// Three row strides in floats.
    triple: usize,
}

impl<const R: usize> Rows<R> {
    /// Makes the addresses of rows that are `distance` floats apart, starting at `first`.
    #[inline(always)]
    pub fn new(first: *const f32, distance: usize) -> Rows<R> {
        const { assert!(R <= STARTS * ROWS_PER_START) };
        let mut starts = [first; STARTS];
        for (i, start) in starts.iter_mut().enumerate() {
            *start = first.wrapping_add(i * ROWS_PER_START * distance);
        }
        // The triple stride is computed as an offset from null, so that `opaque` hides it like a
        // pointer.
        let triple = opaque(std::ptr::without_provenance(3 * distance)).addr();
        let mut rows = Rows { starts, distance, triple };
        rows.step(0);
        rows
    }

    /// Returns the current address in row `I`.
    #[inline(always)]
    pub fn row<const I: usize>(&self) -> *const f32 {
        let start = self.starts[I / ROWS_PER_START];
        match I % ROWS_PER_START {
            3 => start.wrapping_add(self.triple),
            i => start.wrapping_add(i * self.distance),
        }
    }

    /// Moves the address in each row by `floats` floats.
    #[inline(always)]
    pub fn step(&mut self, floats: usize) {
        for (i, start) in self.starts.iter_mut().enumerate() {
            if i * ROWS_PER_START < R {
                *start = opaque(start.wrapping_add(floats));
            }
        }
    }
}

/// Returns `p` unchanged, but hides its value from the compiler, which then cannot replace it by a
/// sum.
#[allow(clippy::pointers_in_nomem_asm_block)] // The block reads no memory.
#[inline(always)]
pub fn opaque(p: *const f32) -> *const f32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut hidden = p;
        // SAFETY: the block contains no instruction.
        unsafe {
            std::arch::asm!(
                "/* {} */",
                inout(reg) hidden,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        hidden
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found() {
        let floats: Vec<f32> = (0u16..200).map(f32::from).collect();
        let mut rows = Rows::<16>::new(floats.as_ptr(), 7);
        rows.step(2);
        // SAFETY: the last place is number 107 of 200.
        unsafe {
            let found = [
                *rows.row::<0>(),
                *rows.row::<1>(),
                *rows.row::<3>(),
                *rows.row::<4>(),
                *rows.row::<5>(),
                *rows.row::<8>(),
                *rows.row::<12>(),
                *rows.row::<15>(),
            ];
            assert_eq!(found, [2.0, 9.0, 23.0, 30.0, 37.0, 58.0, 86.0, 107.0]);
        }
    }
}
