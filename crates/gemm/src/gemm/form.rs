//! Forms of panels, over which [`Packed`](super::pack::Packed) and
//! [`Product`](super::blocked::Product) are generic.
//!
//! Panels are rows of words of 32 bits: a float, two elements of 16 bits, or neighbouring steps of
//! k. The loops only pass words on. Only the code that packs a word and the
//! [`Mac`](super::tile::Mac) that multiplies it interpret its bits.

use super::blocked::KC;
use super::halves::{ManyRows, Storage, Widen};
use super::pack::panel_width;
use super::tables::tiles;
use super::tile::TileTable;
use sardonyx_simd::Isa;
use sardonyx_simd::dispatch;

/// Type of the elements of a right operand in panels.
pub trait Elements: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// Data kept beside the panels of a right operand.
    type Beside: std::fmt::Debug + Send + Sync;
    /// Returns the number of rows of a panel for `depth` steps.
    fn rows(self, depth: usize) -> usize;
    /// Returns the number of words in a row of `width` columns. `width` is even.
    fn words(self, width: usize) -> usize;
    /// Returns the bytes of the data kept beside the panels of `cols` columns.
    fn bytes_beside(self, cols: usize) -> usize;
}

impl Elements for Storage {
    type Beside = ManyRows;

    fn rows(self, depth: usize) -> usize {
        depth
    }

    fn words(self, width: usize) -> usize {
        self.floats(width)
    }

    fn bytes_beside(self, _cols: usize) -> usize {
        0
    }
}

/// Form of the panels of both operands of a product and of its sums.
pub(crate) trait Form: Copy + Sync {
    /// Type of an element of C, of 32 bits.
    type Sum;
    /// Returns the functions that multiply panels of this form.
    fn tiles(self, isa: Isa) -> TileTable;
    /// Returns the most steps of a k block. Sums of floats depend on it.
    fn most_steps(self) -> usize {
        KC
    }
    /// Whether a product with A packed ahead of time blocks for A coming from memory.
    fn waits_for_left(self) -> bool;
    /// Returns the form into which each panel of B is converted before a product of `rows` rows;
    /// `None` if panels are multiplied as they are.
    fn conversion(self, isa: Isa, rows: usize) -> Option<Self>;
    /// Converts the rows from `k0` to `k1` of a panel of B and writes them to `to`. `panel` points
    /// at row `k0`.
    ///
    /// # Safety
    ///
    /// The panel must have these rows, `to` must have room for as many rows of floats, and the
    /// machine must have the instructions of the form.
    unsafe fn turn_panel(self, isa: Isa, panel: *const f32, k0: usize, k1: usize, to: *mut f32);
}

/// Form of panels whose products are added up in floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelForm {
    /// B in this type, A in floats.
    Right(Storage),
    /// A in pairs of bfloat16, which `k` of the product counts, and B in 16 bits, of this many
    /// steps. B is converted to pairs panel by panel.
    Pairs(Storage, usize),
}

impl PanelForm {
    pub(crate) const FLOATS: PanelForm = PanelForm::Right(Storage::F32);
}

impl Form for PanelForm {
    type Sum = f32;

    fn tiles(self, isa: Isa) -> TileTable {
        match self {
            PanelForm::Right(storage) => tiles(isa, storage),
            #[cfg(target_arch = "x86_64")]
            PanelForm::Pairs(..) => super::bf16::tiles::PAIRS,
            #[cfg(not(target_arch = "x86_64"))]
            PanelForm::Pairs(..) => unreachable!("no machine but x86 multiplies pairs"),
        }
    }

    fn waits_for_left(self) -> bool {
        matches!(self, PanelForm::Right(_))
    }

    /// Converts to pairs always, and elements of 16 bits where widening them in each tile takes
    /// many instructions.
    fn conversion(self, isa: Isa, rows: usize) -> Option<PanelForm> {
        match self {
            PanelForm::Pairs(..) => Some(self),
            PanelForm::Right(Storage::F32) => None,
            PanelForm::Right(_) => {
                let pays = isa == Isa::Portable && rows > self.tiles(isa).rows();
                pays.then_some(PanelForm::FLOATS)
            }
        }
    }

    unsafe fn turn_panel(self, isa: Isa, panel: *const f32, k0: usize, k1: usize, to: *mut f32) {
        // SAFETY: the caller has the rows of the panel, room for them in `to`, and the
        // instructions.
        unsafe {
            match self {
                PanelForm::Pairs(storage, depth) => {
                    let steps = depth.min(2 * k1) - 2 * k0;
                    super::bf16::make_pairs(storage, panel, steps, to);
                }
                PanelForm::Right(storage) => {
                    let count = (k1 - k0) * panel_width(isa);
                    dispatch(isa, Widen { storage, from: panel, count, to });
                }
            }
        }
    }
}
