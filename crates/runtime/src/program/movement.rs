//! Operations that only move elements, and windows over axes.

use std::fmt;

use sardonyx_tensor::Dims;

/// Kind of a [`Move`]: how elements of the first operand become the result.
#[derive(Debug, Clone)]
pub(crate) enum MoveKind {
    Concat(Concat),
    Dropout(Dropout),
    Expand(Expand),
    Gather(Gather),
    /// Also `Identity`, and a `Cast` to the same type.
    Reshape(Reshape),
    /// Channel shuffle, which a rewrite makes from three moves.
    Shuffle(Shuffle),
    Slice(Slice),
    Split(Split),
    Tile(Tile),
    Transpose(Transpose),
    WriteRows(WriteRows),
}

/// Concatenation of all operands along one axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Concat {
    pub(crate) axis: i64,
}

/// Identity, and a mask of ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropout {
    pub(crate) has_mask: bool,
}

/// Broadcast to a shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expand;

/// Slices along one axis, by index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather {
    pub(crate) axis: i64,
    /// Whether the first operand is constant. Constants in a file may be unaligned, and a view must
    /// not be.
    pub(crate) from_constant: bool,
}

/// The elements in order, under other dimensions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reshape {
    /// Dimensions of the second operand. A 0 is a size only if zeros are allowed, and otherwise the
    /// size of the input's axis.
    Target { allow_zero: bool },
    /// Two dimensions, split before the axis.
    Flatten { axis: i64 },
    /// Removes the axes of the second operand, or all axes of size 1.
    Squeeze,
    /// Inserts an axis of size 1 at each index of the second operand.
    Unsqueeze,
    /// The dimensions of the input.
    Same,
}

/// Transpose of axis 1, seen as a matrix with `groups` rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shuffle {
    pub(crate) groups: usize,
}

/// Window of a tensor, with steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice;

/// Pieces of a tensor along one axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    pub(crate) axis: i64,
    /// Number of outputs, those without readers included.
    pub(crate) count: usize,
}

/// Repetition along the axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile;

/// Permutation of the axes.
#[derive(Debug, Clone)]
pub(crate) struct Transpose {
    /// Order of the axes; `None` reverses them.
    pub(crate) order: Option<Dims>,
}

/// Entries written into a cache, the first operand, along one axis. The second operand has the new
/// entries, the third the position of the first one for each member of the batch, by default 0. A
/// fourth operand has entries that the cache is extended by before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteRows {
    pub(crate) axis: i64,
    /// Whether positions wrap around the end of the cache.
    pub(crate) around: bool,
    /// Whether each element has bytes of its own.
    pub(crate) in_bytes: bool,
}

/// Windows over the spatial axes, from attributes.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) kernel: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) dilations: Vec<usize>,
    pub(crate) padding: Padding,
    /// Whether a last window counts that only begins inside.
    pub(crate) ceil: bool,
    /// Whether an axis that the kernel exceeds by less than a stride has one window, cut at its
    /// end.
    pub(crate) cut: bool,
}

/// Strides, dilations and padding of windows without the size of the kernel, by axis if given.
#[derive(Debug, Clone)]
pub(crate) struct WindowSettings {
    pub(crate) strides: Option<Vec<usize>>,
    pub(crate) dilations: Option<Vec<usize>>,
    pub(crate) padding: PaddingSetting,
    pub(crate) ceil: bool,
}

/// Attributes that decide a [`Padding`].
#[derive(Debug, Clone)]
pub(crate) enum PaddingSetting {
    /// The list `pads`, if given.
    Pads(Option<Vec<usize>>),
    SameUpper,
    SameLower,
}

/// Windows of a convolution.
#[derive(Debug, Clone)]
pub(crate) enum ConvWindow {
    Known(Window),
    /// Windows whose size depends on weights at run time.
    Open(WindowSettings),
}

impl ConvWindow {
    /// Returns the windows, if their size is known before the run.
    pub(crate) fn fixed(&self) -> Option<&Window> {
        match self {
            ConvWindow::Known(window) => Some(window),
            ConvWindow::Open(_) => None,
        }
    }
}

/// Padding of the spatial axes: explicit at beginnings and ends, or as much as gives one window for
/// every stride.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Padding {
    Explicit(Vec<usize>, Vec<usize>),
    SameUpper,
    SameLower,
}

impl MoveKind {
    /// Identity.
    pub(crate) const SAME: MoveKind = MoveKind::Reshape(Reshape::Same);

    /// Whether the result repeats one element wherever the first operand does.
    pub(crate) fn keeps_fills(&self) -> bool {
        match self {
            MoveKind::Expand(_)
            | MoveKind::Reshape(_)
            | MoveKind::Shuffle(_)
            | MoveKind::Tile(_)
            | MoveKind::Transpose(_) => true,
            MoveKind::Concat(_)
            | MoveKind::Dropout(_)
            | MoveKind::Gather(_)
            | MoveKind::Slice(_)
            | MoveKind::Split(_)
            | MoveKind::WriteRows(_) => false,
        }
    }

    /// Whether the result has all elements of the first operand, in order.
    pub(crate) fn only_reshapes(&self) -> bool {
        matches!(self, MoveKind::Reshape(_))
    }

    /// Whether the result is the first operand, with its dimensions.
    pub(crate) fn is_same(&self) -> bool {
        matches!(self, MoveKind::Reshape(Reshape::Same) | MoveKind::Dropout(_))
    }

    /// Returns the order of the axes, if it is explicit and nothing else happens.
    pub(crate) fn order(&self) -> Option<&Dims> {
        match self {
            MoveKind::Transpose(transpose) => transpose.order.as_ref(),
            _ => None,
        }
    }

    /// Whether this is the transpose of a matrix.
    pub(crate) fn transposes_matrix(&self) -> bool {
        match self {
            MoveKind::Transpose(transpose) => {
                transpose.order.as_ref().is_none_or(|order| order[..] == [1, 0])
            }
            _ => false,
        }
    }
}

/// Prints the name of the move in programs.
impl fmt::Display for MoveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveKind::Concat(_) => "concat",
            MoveKind::Dropout(_) => "dropout",
            MoveKind::Expand(_) => "expand",
            MoveKind::Gather(_) => "gather",
            MoveKind::Reshape(_) => "reshape",
            MoveKind::Shuffle(shuffle) => return write!(f, "shuffle {} groups", shuffle.groups),
            MoveKind::Slice(_) => "slice",
            MoveKind::Split(_) => "split",
            MoveKind::Tile(_) => "tile",
            MoveKind::Transpose(_) => "transpose",
            MoveKind::WriteRows(_) => "write rows",
        })?;
        match self.order() {
            Some(order) => write!(f, " {:?}", &order[..]),
            None => Ok(()),
        }
    }
}
