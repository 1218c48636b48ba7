//! Where loops over steps read one number of each of several rows.
//!
//! An address on x86 is a register, and another one times 1, 2, 4 or 8. Left alone, the compiler
//! adds the distance of rows again and again in every step. These additions take the place of
//! multiply-adds, as the same units do both: a tile of 12 rows and 2 vectors reaches 84 % of the
//! multiply-adds that the processor can do, and 90 % without these additions (Sapphire Rapids).

/// Geometry: rows of one pointer: distances times 0, 1, 2 and 4, and the triple distance in a
/// register of its own.
const OF_START: usize = 5;
/// Geometry: pointers of [`Rows`].
const STARTS: usize = 4;

/// Places in `R` rows a constant distance apart.
#[derive(Clone, Copy, Debug)]
pub struct Rows<const R: usize> {
    /// Those of every fifth row. Pointers beyond the last row are not used.
    starts: [*const f32; STARTS],
    distance: usize,
    triple: usize,
}

impl<const R: usize> Rows<R> {
    /// The first places are `distance` floats apart.
    #[inline(always)]
    pub fn new(first: *const f32, distance: usize) -> Rows<R> {
        const { assert!(R <= STARTS * OF_START) };
        let mut starts = [first; STARTS];
        for (i, start) in starts.iter_mut().enumerate() {
            *start = first.wrapping_add(i * OF_START * distance);
        }
        // The triple is an offset from nothing, so that it is hidden as a pointer is.
        let triple = opaque(std::ptr::without_provenance(3 * distance)).addr();
        let mut rows = Rows { starts, distance, triple };
        rows.step(0);
        rows
    }

    /// The place in a row.
    #[inline(always)]
    pub fn row<const I: usize>(&self) -> *const f32 {
        let start = self.starts[I / OF_START];
        match I % OF_START {
            3 => start.wrapping_add(self.triple),
            i => start.wrapping_add(i * self.distance),
        }
    }

    /// Moves the place in each row by so many floats.
    #[inline(always)]
    pub fn step(&mut self, floats: usize) {
        for (i, start) in self.starts.iter_mut().enumerate() {
            if i * OF_START < R {
                *start = opaque(start.wrapping_add(floats));
            }
        }
    }
}

/// The same pointer. The compiler does not know that, so that it cannot replace it by a sum.
#[allow(clippy::pointers_in_nomem_asm_block)] // Nothing is read there.
#[inline(always)]
pub fn opaque(p: *const f32) -> *const f32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut hidden = p;
        // SAFETY: no instruction.
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
