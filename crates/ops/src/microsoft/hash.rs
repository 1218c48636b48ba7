//! Hashes of elements. These operators have a kernel and no function.

use sardonyx_tensor::DataType::{Double, Float, Int32, Int64, String, Uint32, Uint64};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, int, output, types};
use crate::infer::{Infer, InferError};
use crate::typeset::TypeSet;

pub(crate) static MURMUR_HASH_3: OpDef = OpDef::new("MurmurHash3")
    .domain(DOMAIN)
    .about(
        "32-bit MurmurHash3 of each element. The bytes of the element are hashed. The hash is \
         unsigned if `positive` is 1, else signed.",
    )
    .since(
        1,
        &[
            input("X", "T1"),
            output("Y", "T2"),
            int("positive").or(1),
            int("seed").or(0),
            types("T1", TypeSet::tensors(&[Uint32, Int32, Uint64, Int64, Float, Double, String])),
            types("T2", TypeSet::tensors(&[Uint32, Int32])),
        ],
    )
    .infer(infer);

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = if cx.int("positive").unwrap_or(1) != 0 { Uint32 } else { Int32 };
    cx.set_tensor(0, Some(elem), cx.shape(0).cloned());
    Ok(())
}
