//! Operators that only say where elements lie: which there are, and what each says.

use std::fmt;

use sardonyx_tensor::Dims;

use super::expand::Expand;
use super::gather::Gather;
use super::rearrange::Tile;
use super::reshape::Reshape;
use super::slice::Slice;
use super::split::Split;
use super::transpose::Transpose;
use crate::kernel::{Kernel, Site};
use crate::layout::{Layout, ViewSite};
use crate::ops::nn::dropout::Dropout;
use crate::program::{Move, Op, Opaque};

/// How elements of the first operand of a [`Move`] become the result.
#[derive(Debug, Clone)]
pub(crate) enum MoveKind {
    Dropout(Dropout),
    Expand(Expand),
    Gather(Gather),
    /// Also `Identity`, and a `Cast` to the same type.
    Reshape(Reshape),
    Slice(Slice),
    Split(Split),
    Tile(Tile),
    Transpose(Transpose),
}

impl MoveKind {
    /// The first operand as it is.
    pub(crate) const SAME: MoveKind = MoveKind::Reshape(Reshape::SAME);

    /// Where an output lies within the first operand, if strides can say it.
    pub(crate) fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        match self {
            MoveKind::Dropout(dropout) => dropout.view(site),
            MoveKind::Expand(expand) => expand.view(site),
            MoveKind::Gather(gather) => gather.view(site),
            MoveKind::Reshape(reshape) => reshape.view(site),
            MoveKind::Slice(slice) => slice.view(site),
            MoveKind::Split(split) => split.view(site),
            MoveKind::Tile(_) => None,
            MoveKind::Transpose(transpose) => transpose.view(site),
        }
    }

    /// Whether the result consists of one element wherever the first operand does.
    pub(crate) fn keeps_fills(&self) -> bool {
        match self {
            MoveKind::Expand(_)
            | MoveKind::Reshape(_)
            | MoveKind::Tile(_)
            | MoveKind::Transpose(_) => true,
            MoveKind::Dropout(_)
            | MoveKind::Gather(_)
            | MoveKind::Slice(_)
            | MoveKind::Split(_) => false,
        }
    }

    /// Whether the result is all of the first operand, in the same order.
    pub(crate) fn only_reshapes(&self) -> bool {
        matches!(self, MoveKind::Reshape(_))
    }

    /// The order that the axes are brought into, if it is written down and nothing else happens.
    pub(crate) fn order(&self) -> Option<&Dims> {
        match self {
            MoveKind::Transpose(transpose) => transpose.given_order(),
            _ => None,
        }
    }

    /// Whether this is the transpose of a matrix.
    pub(crate) fn transposes_matrix(&self) -> bool {
        match self {
            MoveKind::Transpose(transpose) => {
                transpose.given_order().is_none_or(|order| order[..] == [1, 0])
            }
            _ => false,
        }
    }

    /// What moves the elements where no view can say where they lie.
    pub(crate) fn kernel(&self) -> Box<dyn Kernel> {
        match self {
            MoveKind::Dropout(dropout) => Box::new(*dropout),
            MoveKind::Expand(expand) => Box::new(*expand),
            MoveKind::Gather(gather) => Box::new(*gather),
            MoveKind::Reshape(reshape) => Box::new(*reshape),
            MoveKind::Slice(slice) => Box::new(*slice),
            MoveKind::Split(split) => Box::new(*split),
            MoveKind::Tile(tile) => Box::new(*tile),
            MoveKind::Transpose(transpose) => Box::new(transpose.clone()),
        }
    }
}

/// The name in printed programs.
impl fmt::Display for MoveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MoveKind::Dropout(_) => "dropout",
            MoveKind::Expand(_) => "expand",
            MoveKind::Gather(_) => "gather",
            MoveKind::Reshape(_) => "reshape",
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

impl Op {
    /// A move of all operands of a site.
    pub(in crate::ops) fn moves(kind: MoveKind, site: &Site<'_>) -> Op {
        Op::Move(Move { kind, operands: site.operands() })
    }

    /// An operator that no rewrite looks into.
    pub(crate) fn opaque(site: &Site<'_>) -> Op {
        Op::Opaque(Opaque { operands: site.operands() })
    }
}
