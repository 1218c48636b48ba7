//! Moves at run time: views where strides can express them, and kernels otherwise.

use crate::kernel::{Kernel, Site};
use crate::layout::{Layout, ViewSite};
use crate::program::{Images, Move, MoveKind, Op, Opaque};

impl MoveKind {
    /// Returns the layout of an output within the first operand, if strides can express it.
    pub(crate) fn view(&self, site: &ViewSite<'_>) -> Option<Layout> {
        match self {
            MoveKind::Concat(_)
            | MoveKind::Shuffle(_)
            | MoveKind::Tile(_)
            | MoveKind::WriteRows(_) => None,
            MoveKind::Dropout(dropout) => dropout.view(site),
            MoveKind::Expand(expand) => expand.view(site),
            MoveKind::Gather(gather) => gather.view(site),
            MoveKind::Reshape(reshape) => reshape.view(site),
            MoveKind::Slice(slice) => slice.view(site),
            MoveKind::Split(split) => split.view(site),
            MoveKind::Transpose(transpose) => transpose.view(site),
        }
    }

    /// Returns the kernel that moves the elements if no view can express it.
    pub(crate) fn kernel(&self) -> Box<dyn Kernel> {
        match self {
            MoveKind::Concat(concat) => Box::new(*concat),
            MoveKind::Dropout(dropout) => Box::new(*dropout),
            MoveKind::Expand(expand) => Box::new(*expand),
            MoveKind::Gather(gather) => Box::new(*gather),
            MoveKind::Reshape(reshape) => Box::new(*reshape),
            MoveKind::Shuffle(shuffle) => Box::new(*shuffle),
            MoveKind::Slice(slice) => Box::new(*slice),
            MoveKind::Split(split) => Box::new(*split),
            MoveKind::Tile(tile) => Box::new(*tile),
            MoveKind::Transpose(transpose) => Box::new(transpose.clone()),
            MoveKind::WriteRows(rows) => Box::new(*rows),
        }
    }
}

impl Op {
    /// Makes a move of all operands of a site.
    pub(in crate::ops) fn moves(kind: MoveKind, site: &Site<'_>) -> Op {
        Op::Move(Box::new(Move { kind, operands: site.operands() }))
    }

    /// Makes an operator that rewrites do not look into.
    pub(crate) fn opaque(site: &Site<'_>) -> Op {
        Op::Opaque(Opaque { operands: site.operands(), images: Images::Rows })
    }
}
