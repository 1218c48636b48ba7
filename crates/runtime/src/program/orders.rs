//! Orders in which each operation reads and writes its values.

use sardonyx_model::Shape;
use sardonyx_tensor::DataType;
use smallvec::{SmallVec, smallvec};

use super::{
    Conv, Images, Move, MoveKind, Op, Parameters, Pointwise, Program, Slot, Step, same_shape,
};

/// Order of the elements of a value in memory of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// Row-major: the last axis is contiguous.
    #[default]
    Rows,
    /// Axis 1 is contiguous, and pixels are a [pitch](sardonyx_kernels::pixels::pitch_of) apart.
    ChannelsLast,
}

/// Order that an operation accepts for an operand or a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Rows,
    /// The common order of all operands and results marked like this.
    Alike,
    /// Either order, with its costs in rows and with channels last, in elements moved for each
    /// element.
    Either {
        rows: u64,
        last: u64,
    },
    /// Any order, without a preference.
    Any,
}

/// Orders that a step accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepOrders {
    /// Order of each operand, omitted ones included.
    pub(crate) operands: SmallVec<[Takes; 6]>,
    pub(crate) outputs: SmallVec<[Takes; 2]>,
    /// Cost of rows for the `Alike` values, in elements moved for each element of the first output.
    pub(crate) alike_in_rows: u64,
}

/// Limit: spatial axes of values with channels last.
const MAX_SPATIAL: usize = 3;
/// Choice: channels below which a convolution reads and writes planes as fast as pixels.
const FEW_CHANNELS: i64 = 8;

impl Program {
    /// Whether a value may have channels last: images of floats with a known number of channels and
    /// more than one pixel.
    pub(crate) fn may_have_channels_last(&self, slot: Slot) -> bool {
        self.elem(slot) == Some(DataType::Float)
            && self.shape(slot).is_some_and(|shape| {
                let is_image = (3..=2 + MAX_SPATIAL).contains(&shape.len());
                let sized = shape.iter().all(|dim| !dim.is_unknown());
                let has_channels = shape.get(1).is_some_and(|dim| dim.known() > Some(0));
                is_image && sized && has_channels && !is_pixel(shape)
            })
    }

    /// Returns the orders that a step accepts.
    pub(crate) fn orders_of(&self, step: &Step) -> StepOrders {
        let operands = step.op.operands();
        let outputs = step.outputs.len();
        let mut orders = StepOrders {
            operands: SmallVec::from_elem(Takes::Rows, operands.len()),
            outputs: SmallVec::from_elem(Takes::Rows, outputs),
            alike_in_rows: 0,
        };
        let Some(result) = step.outputs.iter().copied().flatten().next() else {
            return orders;
        };
        match &step.op {
            Op::Conv(conv) => self.orders_of_conv(conv, result, &mut orders),
            Op::Pointwise(pointwise) => self.orders_of_pointwise(pointwise, result, &mut orders),
            Op::BatchNorm(norm) => {
                let is_folded = matches!(norm.parameters, Parameters::Folded { .. });
                if is_folded && norm.elem == DataType::Float {
                    (orders.operands[0], orders.outputs[0]) = (Takes::Alike, Takes::Alike);
                }
            }
            Op::Move(moved) => self.orders_of_move(moved, result, &mut orders),
            Op::Opaque(opaque) => match opaque.images {
                Images::Rows => {}
                Images::Windows if self.shape(result).is_some_and(is_pixel) => {
                    orders.operands[0] = Takes::Either { rows: 1, last: 0 };
                }
                Images::Windows | Images::Alike { .. } => {
                    orders.operands[0] = Takes::Alike;
                    orders.outputs[0] = Takes::Alike;
                    orders.alike_in_rows = match opaque.images {
                        Images::Alike { gain } => gain,
                        _ => 1,
                    };
                }
                Images::Read => orders.operands[0] = Takes::Either { rows: 0, last: 0 },
            },
            Op::Reorder(_) => {
                orders.operands[0] = Takes::Any;
                orders.outputs[0] = Takes::Any;
            }
            _ => {}
        }
        orders
    }

    /// Sets the orders of a convolution. It converts between planes and pixels itself, at about the
    /// cost of a conversion before it without the writing. For few channels that costs nothing:
    /// they are copied anyway, or do not fill cache lines.
    fn orders_of_conv(&self, conv: &Conv, result: Slot, orders: &mut StepOrders) {
        if !conv.takes_stages() {
            return;
        }
        let rows = |slot: Slot| {
            let channels = self.shape(slot).and_then(|shape| shape.get(1)?.known());
            u64::from(channels.is_none_or(|channels| channels >= FEW_CHANNELS))
        };
        orders.operands[0] = Takes::Either { rows: rows(conv.x), last: 0 };
        orders.outputs[0] = Takes::Alike;
        orders.alike_in_rows = rows(result);
        // Operands of stages precede only those of an expansion and a gate.
        let first = 1 + conv.own_operand_count() - conv.epilogue.operand_count();
        let stages = conv.epilogue.0.iter().filter(|stage| stage.operand().is_some());
        for (takes, stage) in orders.operands[first..].iter_mut().zip(stages) {
            if stage.is_elementwise() {
                *takes = Takes::Alike;
            }
        }
    }

    fn orders_of_pointwise(&self, pointwise: &Pointwise, result: Slot, orders: &mut StepOrders) {
        if pointwise.elem != DataType::Float {
            return;
        }
        let shape = self.shape(result);
        for (takes, slot) in orders.operands.iter_mut().zip(&pointwise.operands) {
            let is_whole = match (shape, self.shape(*slot)) {
                (Some(shape), Some(other)) => same_shape(shape, other),
                _ => false,
            };
            // An operand that may broadcast is read in rows.
            *takes = if is_whole { Takes::Alike } else { Takes::Rows };
        }
        if orders.operands.contains(&Takes::Alike) {
            orders.outputs[0] = Takes::Alike;
        }
    }

    fn orders_of_move(&self, moved: &Move, result: Slot, orders: &mut StepOrders) {
        let Some(Some(x)) = moved.operands.first().copied() else {
            return;
        };
        let Some(rank) = self.shape(result).map(|shape| shape.len()) else {
            return;
        };
        let copies = Takes::Either { rows: 1, last: 0 };
        match &moved.kind {
            MoveKind::Transpose(transpose) => {
                let Some(order) = &transpose.order else {
                    return;
                };
                if is_to_last(order) {
                    // Pixels with channels last are rows of the result.
                    orders.operands[0] = copies;
                } else if is_from_last(order) && self.may_have_channels_last(result) {
                    orders.outputs[0] = copies;
                }
            }
            MoveKind::Split(split) if split.axis == 1 || split.axis == 1 - rank as i64 => {
                orders.operands[0] = Takes::Alike;
                orders.outputs = SmallVec::from_elem(Takes::Alike, orders.outputs.len());
            }
            MoveKind::Slice(_) if self.cuts_channels_only(x, result) => {
                (orders.operands[0], orders.outputs[0]) = (Takes::Alike, Takes::Alike);
            }
            MoveKind::Concat(concat) if concat.axis == 1 || concat.axis == 1 - rank as i64 => {
                orders.operands = SmallVec::from_elem(Takes::Alike, orders.operands.len());
                orders.outputs = smallvec![Takes::Alike];
            }
            MoveKind::Shuffle(_) => {
                (orders.operands[0], orders.outputs[0]) = (Takes::Alike, Takes::Alike);
            }
            kind if kind.is_same() => {
                (orders.operands[0], orders.outputs[0]) = (Takes::Alike, Takes::Alike);
            }
            _ => {}
        }
    }

    /// Whether a part has all images and pixels of a value.
    fn cuts_channels_only(&self, whole: Slot, part: Slot) -> bool {
        let (Some(whole), Some(part)) = (self.shape(whole), self.shape(part)) else {
            return false;
        };
        let axes = whole.iter().zip(part).enumerate();
        whole.len() == part.len()
            && axes.filter(|(axis, _)| *axis != 1).all(|(_, (a, b))| a.surely_equals(b))
    }
}

/// Whether images have one pixel, for which both orders are equal.
fn is_pixel(shape: &Shape) -> bool {
    shape.iter().skip(2).all(|dim| dim.known() == Some(1))
}

/// Whether axis 1 moves to the end and all others keep their order.
fn is_to_last(order: &[usize]) -> bool {
    let rank = order.len();
    rank >= 3 && order[0] == 0 && order[rank - 1] == 1 && (1..rank - 1).all(|i| order[i] == i + 1)
}

/// Whether the last axis moves to axis 1 and all others keep their order.
fn is_from_last(order: &[usize]) -> bool {
    let rank = order.len();
    rank >= 3 && order[0] == 0 && order[1] == rank - 1 && (2..rank).all(|i| order[i] == i - 1)
}
