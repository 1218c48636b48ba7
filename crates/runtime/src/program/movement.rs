//! Operations that only say where elements lie, and windows that move over axes.

use std::fmt;

use sardonyx_tensor::Dims;

/// How elements of the first operand of a [`Move`] become the result.
#[derive(Debug, Clone)]
pub(crate) enum MoveKind {
    Concat(Concat),
    Dropout(Dropout),
    Expand(Expand),
    Gather(Gather),
    /// Also `Identity`, and a `Cast` to the same type.
    Reshape(Reshape),
    /// What a rewrite makes of three others.
    Shuffle(Shuffle),
    Slice(Slice),
    Split(Split),
    Tile(Tile),
    Transpose(Transpose),
}

/// All operands joined along one axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Concat {
    pub(crate) axis: i64,
}

/// The input, and a mask that keeps everything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dropout {
    pub(crate) has_mask: bool,
}

/// A tensor repeated to a shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expand;

/// Slices along one axis, picked by number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gather {
    pub(crate) axis: i64,
    /// Constants may lie at any address of a file, which a view of one must not.
    pub(crate) from_constant: bool,
}

/// The same elements in the same order under other dimensions.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reshape {
    /// Those that the second operand says. A 0 is a size only if zeros are allowed, and otherwise
    /// the size of the input's axis.
    Target { allow_zero: bool },
    /// Two dimensions, cut before the axis.
    Flatten { axis: i64 },
    /// Without the axes of the second operand, or without all that are 1.
    Squeeze,
    /// With a 1 at each axis of the second operand.
    Unsqueeze,
    /// The same dimensions.
    Same,
}

/// Axis 1, as a matrix of so many rows, transposed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shuffle {
    pub(crate) groups: usize,
}

/// A window of a tensor, or every n-th element of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice;

/// A tensor cut into pieces along one axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    pub(crate) axis: i64,
    /// Outputs, those that nothing reads counted.
    pub(crate) count: usize,
}

/// A tensor repeated along its axes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile;

/// Another order of the axes.
#[derive(Debug, Clone)]
pub(crate) struct Transpose {
    /// `None` reverses the axes.
    pub(crate) order: Option<Dims>,
}

/// How windows move over the spatial axes, as the attributes say it.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub(crate) kernel: Vec<usize>,
    pub(crate) strides: Vec<usize>,
    pub(crate) dilations: Vec<usize>,
    pub(crate) padding: Padding,
    /// Whether a last window counts that only begins inside.
    pub(crate) ceil: bool,
    /// Whether an axis that the kernel exceeds by less than a stride has one window, cut off at
    /// its end.
    pub(crate) cut: bool,
}

/// Strides, dilations and padding of windows, without the size of the kernel: lists for each axis,
/// where attributes have them.
#[derive(Debug, Clone)]
pub(crate) struct WindowSettings {
    pub(crate) strides: Option<Vec<usize>>,
    pub(crate) dilations: Option<Vec<usize>>,
    pub(crate) padding: PaddingSetting,
    pub(crate) ceil: bool,
}

/// The attributes behind a [`Padding`].
#[derive(Debug, Clone)]
pub(crate) enum PaddingSetting {
    /// The list `pads`, or none at all.
    Pads(Option<Vec<usize>>),
    SameUpper,
    SameLower,
}

/// The windows of a convolution.
#[derive(Debug, Clone)]
pub(crate) enum ConvWindow {
    Known(Window),
    /// Windows whose size only the weights at run time tell.
    Open(WindowSettings),
}

impl ConvWindow {
    /// The windows, if their size is known before the run.
    pub(crate) fn known(&self) -> Option<&Window> {
        match self {
            ConvWindow::Known(window) => Some(window),
            ConvWindow::Open(_) => None,
        }
    }
}

/// The padding around the spatial axes: at their beginnings and ends, or as much as gives one
/// window for every stride.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Padding {
    Explicit(Vec<usize>, Vec<usize>),
    SameUpper,
    SameLower,
}

impl MoveKind {
    /// The first operand as it is.
    pub(crate) const SAME: MoveKind = MoveKind::Reshape(Reshape::Same);

    /// Whether the result consists of one element wherever the first operand does.
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
            | MoveKind::Split(_) => false,
        }
    }

    /// Whether the result is all of the first operand, in the same order.
    pub(crate) fn only_reshapes(&self) -> bool {
        matches!(self, MoveKind::Reshape(_))
    }

    /// Whether the result is the first operand, with its dimensions.
    pub(crate) fn is_same(&self) -> bool {
        matches!(self, MoveKind::Reshape(Reshape::Same) | MoveKind::Dropout(_))
    }

    /// The order that the axes are brought into, if it is written down and nothing else happens.
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

/// The name in printed programs.
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
        })?;
        match self.order() {
            Some(order) => write!(f, " {:?}", &order[..]),
            None => Ok(()),
        }
    }
}
