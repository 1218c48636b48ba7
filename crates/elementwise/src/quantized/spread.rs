//! Assignment of scales and zero points to the elements of a tensor.

/// Elements that each scale of a tensor belongs to. Sizes are those before, along and after an
/// axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// One scale for all elements.
    One,
    /// One scale for each index along the axis.
    Slices([usize; 3]),
    /// One scale for each block of neighbours along the axis, in the order of the elements. The
    /// last block along the axis may be shorter.
    Blocks { sizes: [usize; 3], block: usize },
}

/// Run of elements with one scale, or with consecutive scales.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Number of elements.
    pub(super) len: usize,
    /// Index of the first element's scale.
    pub(super) first: usize,
    /// Whether scales are consecutive, rather than the same for all elements.
    pub(super) varies: bool,
}

impl Spread {
    /// Returns the number of scales.
    pub fn scales(&self) -> usize {
        match *self {
            Spread::One => 1,
            Spread::Slices([_, along, _]) => along,
            Spread::Blocks { sizes: [before, along, after], block } => {
                before * along.div_ceil(block) * after
            }
        }
    }

    /// Checks the sizes for a tensor of so many elements.
    ///
    /// # Panics
    ///
    /// If the product of the sizes is not `elements`, or blocks have length 0.
    pub(super) fn check(&self, elements: usize) {
        if let Spread::Slices(sizes) | Spread::Blocks { sizes, .. } = self {
            let [before, along, after] = *sizes;
            assert_eq!(before * along * after, elements, "elements of {self:?}");
        }
        assert!(!matches!(self, Spread::Blocks { block: 0, .. }), "a block has elements");
    }

    /// Returns the longest piece from `at` on that does not exceed `end`; `at` is below `end`.
    #[inline(always)]
    pub(super) fn piece(&self, at: usize, end: usize) -> Piece {
        let piece = match *self {
            Spread::One => Piece { len: end - at, first: 0, varies: false },
            Spread::Slices([_, along, 1]) => {
                let place = at % along;
                Piece { len: along - place, first: place, varies: true }
            }
            Spread::Slices([_, along, after]) => {
                Piece { len: after - at % after, first: at / after % along, varies: false }
            }
            Spread::Blocks { sizes: [_, along, 1], block } => {
                let (row, place) = (at / along, at % along);
                let len = (block - place % block).min(along - place);
                let first = row * along.div_ceil(block) + place / block;
                Piece { len, first, varies: false }
            }
            Spread::Blocks { sizes: [_, along, after], block } => {
                let (row, column) = (at / after, at % after);
                let block = row / along * along.div_ceil(block) + row % along / block;
                Piece { len: after - column, first: block * after + column, varies: true }
            }
        };
        Piece { len: piece.len.min(end - at), ..piece }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_each_element_its_scale() {
        for (sizes, block) in [
            ([1usize, 1, 1], 1),
            ([2, 3, 1], 2),
            ([2, 3, 4], 2),
            ([3, 7, 1], 3),
            ([3, 7, 2], 3),
            ([1, 5, 3], 9),
            ([2, 1, 5], 1),
            ([0, 3, 2], 2),
            ([2, 3, 0], 2),
        ] {
            let [before, along, after] = sizes;
            let len = before * along * after;
            type Which<'a> = Box<dyn Fn(usize, usize, usize) -> usize + 'a>;
            let blocks = along.div_ceil(block);
            let spreads: [(Spread, Which<'_>); 3] = [
                (Spread::One, Box::new(|_, _, _| 0)),
                (Spread::Slices(sizes), Box::new(|_, place, _| place)),
                (
                    Spread::Blocks { sizes, block },
                    Box::new(|o, place, i| (o * blocks + place / block) * after + i),
                ),
            ];
            for (spread, which) in spreads {
                spread.check(len);
                for start in 0..len.min(5) {
                    let mut at = start;
                    while at < len {
                        let piece = spread.piece(at, len);
                        assert!(piece.len > 0);
                        for offset in 0..piece.len {
                            let here = at + offset;
                            let want =
                                which(here / (along * after), here / after % along, here % after);
                            let found = piece.first + if piece.varies { offset } else { 0 };
                            assert_eq!(found, want, "{spread:?} at {here}");
                            assert!(found < spread.scales());
                        }
                        at += piece.len;
                    }
                }
            }
        }
    }
}
