//! Denotations: what the dimensions of operands stand for, such as batch or channel, for the
//! operators that the standard defines it for.

/// The denotations of an operand's dimensions in order; the last one holds for all dimensions that
/// follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format([&'static str; 3]);

/// Images, and whatever else has features at places.
pub(crate) const IMAGES: Format = Format(["DATA_BATCH", "DATA_CHANNEL", "DATA_FEATURE"]);
/// Kernels of convolutions.
pub(crate) const FILTERS: Format =
    Format(["FILTER_OUT_CHANNEL", "FILTER_IN_CHANNEL", "FILTER_SPATIAL"]);

impl Format {
    /// The denotation of a dimension.
    pub fn of(self, axis: usize) -> &'static str {
        self.0[axis.min(self.0.len() - 1)]
    }
}
