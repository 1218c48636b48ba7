//! Sizes of contiguous operands, as kernels divide them.

/// Sizes before, along and after one axis. The axis of an operand `[batch, channels, inner]` is
/// that of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisDims {
    /// Product of the dims before the axis.
    pub outer: usize,
    /// Size of the axis.
    pub axis: usize,
    /// Product of the dims after the axis.
    pub inner: usize,
}

impl AxisDims {
    /// Returns the number of elements.
    pub fn elements(self) -> usize {
        self.outer * self.axis * self.inner
    }
}

impl From<[usize; 3]> for AxisDims {
    fn from([outer, axis, inner]: [usize; 3]) -> AxisDims {
        AxisDims { outer, axis, inner }
    }
}

/// Number and length of contiguous rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowDims {
    /// Number of rows.
    pub count: usize,
    /// Number of elements of a row.
    pub width: usize,
}

impl From<[usize; 2]> for RowDims {
    fn from([count, width]: [usize; 2]) -> RowDims {
        RowDims { count, width }
    }
}

/// Sizes of images with two spatial axes, whose channels are contiguous.
#[cfg(feature = "vision")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageDims {
    /// Number of images.
    pub batch: usize,
    /// Number of channels of an image.
    pub channels: usize,
    /// Number of rows of a channel.
    pub height: usize,
    /// Number of columns of a channel.
    pub width: usize,
}

#[cfg(feature = "vision")]
impl From<[usize; 4]> for ImageDims {
    fn from([batch, channels, height, width]: [usize; 4]) -> ImageDims {
        ImageDims { batch, channels, height, width }
    }
}
