//! Denotations: meanings of the dimensions of operands, such as batch or channel, for the operators
//! that the standard defines them for.

/// Denotations of an operand's dimensions in order; the last one holds for all further dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format([&'static str; 3]);

/// Images and other tensors with features at positions.
pub(crate) const IMAGES: Format = Format(["DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE"]);
/// Kernels of convolutions.
pub(crate) const FILTERS: Format =
    Format(["FILTER_OUT_CHANNEL", "FILTER_IN_CHANNEL", "FILTER_SPATIAL"]);

impl Format {
    /// Returns the denotation of a dimension.
    pub fn of(self, axis: usize) -> &'static str {
        self.0[axis.min(self.0.len() - 1)]
    }
}
