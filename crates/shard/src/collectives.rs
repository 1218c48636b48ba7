//! Moves in the model of a rank that is written to a file: collectives of other engines in place of
//! exchanges.
//!
//! A move becomes a collective of the engine with exactly its effect, if there is one: an
//! all-reduce combines partial sums, an all-gather joins even parts of an axis, and an all-to-all
//! exchanges even parts of one axis for even parts of another. Any other move becomes an all-gather
//! of the senders' parts, padded to the size of the largest, from which each rank takes its new
//! part. This sends more elements than the move needs, but rounds none.

mod blocks;
mod moves;
mod stages;

use std::fmt;

use sardonyx_model::ExternalData;
use sardonyx_ops::Combine;
use sardonyx_tensor::DataType;

/// Collectives of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collectives {
    /// `AllReduce`, `AllGather` and `AllToAll` of the domain `com.microsoft`, which ONNX Runtime
    /// has in builds for several GPUs. All ranks take part in each.
    Microsoft,
    /// `DistCollective` of the default domain, which TensorRT and its tools have.
    TensorRt,
}

/// Move for which an engine has no collectives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotExpressible {
    /// Message with the value, the forms and the reason.
    pub what: String,
    /// Advice on making the move expressible.
    pub help: &'static str,
}

impl fmt::Display for NotExpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for NotExpressible {}

impl Collectives {
    /// Whether an all-reduce can combine elements of type `elem` by the operation `combine`.
    pub(crate) fn reduces(self, elem: DataType, combine: Combine) -> bool {
        use DataType::{Bfloat16, Double, Float, Float16, Int8, Int32, Int64, Uint8};
        match self {
            Collectives::Microsoft => {
                combine == Combine::Sum && matches!(elem, Float | Float16 | Double)
            }
            Collectives::TensorRt => {
                matches!(elem, Float | Float16 | Bfloat16 | Int8 | Uint8 | Int32 | Int64)
            }
        }
    }

    /// Returns the element type in which elements of type `elem` are gathered. It represents all
    /// their values exactly. `None` if there is no such type.
    fn carrier(self, elem: DataType) -> Option<DataType> {
        use DataType::{
            Bfloat16, Bool, Double, Float, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2,
            Float8e5m2fnuz, Float16, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32,
        };
        let is_float8 = matches!(elem, Float8e4m3fn | Float8e4m3fnuz | Float8e5m2 | Float8e5m2fnuz);
        match (self, elem) {
            (_, Float | Float16 | Int64) => Some(elem),
            (Collectives::Microsoft, Double | Bool) => Some(elem),
            (Collectives::Microsoft, Int8 | Uint8 | Int16 | Uint16 | Int32 | Uint32) => Some(Int64),
            (Collectives::Microsoft, Bfloat16) => Some(Float),
            (Collectives::TensorRt, Bfloat16 | Int8 | Uint8 | Int32) => Some(elem),
            (Collectives::TensorRt, Bool) => Some(Uint8),
            (Collectives::TensorRt, Int16 | Uint16) => Some(Int32),
            (Collectives::TensorRt, Uint32) => Some(Int64),
            _ if is_float8 => Some(Float),
            _ => None,
        }
    }

    /// Whether a collective can run on a group of some ranks.
    fn has_groups(self) -> bool {
        self == Collectives::TensorRt
    }

    /// Whether all-to-all exchanges are available.
    fn has_all_to_all(self) -> bool {
        self == Collectives::Microsoft
    }
}

/// Engine for which the model of a rank is written, and the source of its external data.
#[derive(Clone, Copy)]
pub(crate) struct Spelling<'p> {
    pub(crate) collectives: Collectives,
    pub(crate) external: &'p dyn ExternalData,
}
