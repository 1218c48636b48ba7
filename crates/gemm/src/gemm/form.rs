//! What panels hold, and how products of them add up: what [`Packed`](super::pack::Packed) and
//! [`Product`](super::blocked::Product) are generic over.
//!
//! Panels are rows of words of 32 bits. The loops only pass words on; what a word holds is known to
//! the code that packs it and to the [`Mac`](super::tile::Mac) that multiplies it: a float, two
//! elements of 16 bits, or neighbouring steps of k.

use super::blocked::KC;
use super::halves::{ManyRows, Storage, Widen};
use super::pack::panel_width;
use super::tables::tiles;
use super::tile::TileTable;
use sardonyx_simd::Isa;
use sardonyx_simd::dispatch;

/// The elements of a right operand in panels.
pub trait Elements: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// What is kept beside the panels of a right operand.
    type Beside: std::fmt::Debug + Send + Sync;
    /// Rows of a panel that `depth` steps take.
    fn rows(self, depth: usize) -> usize;
    /// Words in a row of `width` columns, an even number of them.
    fn words(self, width: usize) -> usize;
    /// Bytes of what is kept beside the panels of `cols` columns.
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

/// The panels of both operands of a product, and its sums.
pub(crate) trait Form: Copy + Sync {
    /// An element of C, of 32 bits.
    type Sum;
    /// The functions that multiply such panels.
    fn tiles(self, isa: Isa) -> TileTable;
    /// Most steps of a k block. Sums of floats depend on it.
    fn most_steps(self) -> usize {
        KC
    }
    /// Whether A that was packed ahead of time may be the operand to wait for.
    fn waits_for_left(self) -> bool;
    /// The form into which each panel of B is converted before a product of this many rows, if it
    /// is.
    fn converted(self, isa: Isa, rows: usize) -> Option<Self>;
    /// Writes the rows from `k0` to `k1` of a panel of B, which begins with them, in that form.
    ///
    /// # Safety
    ///
    /// The panel must have these rows, `to` room for as many rows of floats, and the machine must
    /// have the instructions of the form.
    unsafe fn turn_panel(self, isa: Isa, panel: *const f32, k0: usize, k1: usize, to: *mut f32);
}

/// Panels whose products are summed up in floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PanelForm {
    /// B in this type, A in floats.
    Right(Storage),
    /// A in pairs of bfloat16, which `k` counts; B in 16 bits, of this many steps: pairs are made
    /// of it panel by panel.
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

    /// Pairs always; elements in 16 bits where widening them in each tile takes many instructions.
    fn converted(self, isa: Isa, rows: usize) -> Option<PanelForm> {
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
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                PanelForm::Pairs(storage, depth) => {
                    let steps = depth.min(2 * k1) - 2 * k0;
                    super::bf16::pairs_of(storage, panel, steps, to);
                }
                PanelForm::Right(storage) => {
                    let count = (k1 - k0) * panel_width(isa);
                    dispatch(isa, Widen { storage, from: panel, count, to });
                }
            }
        }
    }
}
