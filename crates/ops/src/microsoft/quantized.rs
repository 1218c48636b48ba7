//! `MatMulNBits` and `GatherBlockQuantized`: weights of few bits, quantized in blocks along one
//! axis. These operators have kernels and no functions.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{
    Bfloat16, Float, Float4e2m1, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz, Float16,
    Int4, Int32, Int64, Uint4, Uint8,
};

use super::DOMAIN;
use crate::def::OpDef;
use crate::facts::{input, int, output, types};
use crate::infer::{Infer, InferError};
use crate::typeset::TypeSet;

pub(crate) static MATMUL_N_BITS: OpDef = OpDef::new("MatMulNBits")
    .domain(DOMAIN)
    .about(
        "`MatMul` with a right matrix whose weights are quantized to 2, 4 or 8 bits in blocks. `B` \
         holds `N` columns of `K` weights. The weights of a column are divided into blocks of \
         `block_size`, each with a scale and optionally a zero point.",
    )
    .since(
        1,
        &[
            input("A", "T1"),
            input("B", "T2"),
            input("scales", "T1"),
            input("zero_points", "T3").optional(),
            input("g_idx", "T4").optional(),
            input("bias", "T1").optional(),
            output("Y", "T1"),
            int("K").required(),
            int("N").required(),
            int("accuracy_level").or(0),
            int("bits").or(4),
            int("block_size").required(),
            int("weight_prepacked").or(0),
            types("T1", TypeSet::tensors(&[Float, Float16, Bfloat16])),
            types("T2", TypeSet::tensors(&[Uint8])),
            types("T3", TypeSet::tensors(&[Uint8, Float16, Float, Bfloat16])),
            types("T4", TypeSet::tensors(&[Int32])),
        ],
    )
    .infer(infer_product)
    .cost(|node| {
        let depth = Dim::Known(node.cx.int("K")?);
        Some(node.output_elements()?.mul(&depth))
    });

pub(crate) static GATHER_BLOCK_QUANTIZED: OpDef = OpDef::new("GatherBlockQuantized")
    .domain(DOMAIN)
    .about(
        "`Gather` from a tensor that is quantized in blocks along an axis; the gathered elements \
         are dequantized. In uint8 data, elements of fewer than 8 bits are packed along the last \
         axis, lowest bits first.",
    )
    .since(
        1,
        &[
            input("data", "T1"),
            input("indices", "Tind"),
            input("scales", "T2"),
            input("zero_points", "T1").optional(),
            output("output", "T2"),
            int("bits").or(4),
            int("block_size").or(128),
            int("gather_axis").or(0),
            int("quantize_axis").or(1),
            types(
                "T1",
                TypeSet::tensors(&[
                    Int4,
                    Uint4,
                    Uint8,
                    Float8e4m3fn,
                    Float8e4m3fnuz,
                    Float8e5m2,
                    Float8e5m2fnuz,
                    Float4e2m1,
                ]),
            ),
            types("T2", TypeSet::tensors(&[Float, Float16, Bfloat16])),
            types("Tind", TypeSet::tensors(&[Int32, Int64])),
        ],
    )
    .infer(infer_gather);

/// Infers a product with a matrix of `K` rows and `N` columns.
fn infer_product(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let [Some(depth), Some(columns)] = ["K", "N"].map(|name| cx.int(name)) else {
        return cx.fail("attributes 'K' and 'N' are missing");
    };
    let Some(shape) = cx.shape(0) else {
        cx.set_tensor(0, cx.elem(0), None);
        return Ok(());
    };
    let [rows @ .., inner] = &shape[..] else {
        return cx.fail("input 0 must not be a scalar");
    };
    cx.same_dim(inner, &Dim::Known(depth), "the last size of A and K")?;
    let shape = rows.iter().cloned().chain([Dim::Known(columns)]).collect();
    cx.set_tensor(0, cx.elem(0), Some(shape));
    Ok(())
}

/// Infers a `Gather`: the axes of the indices replace the gathered axis.
fn infer_gather(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let elem = cx.elem(2);
    let (Some(data), Some(indices)) = (cx.shape(0), cx.shape(1)) else {
        cx.set_tensor(0, elem, None);
        return Ok(());
    };
    let axis = cx.axis(cx.int("gather_axis").unwrap_or(0), data.len())?;
    let mut data = data.clone();
    let bits = cx.int("bits").unwrap_or(4);
    if cx.elem(0) == Some(Uint8)
        && let (2 | 4, Some(last)) = (bits, data.last_mut())
    {
        *last = last.mul(&Dim::Known(8 / bits));
    }
    let sizes = data[..axis].iter().chain(indices).chain(&data[axis + 1..]);
    let shape: Shape = sizes.cloned().collect();
    cx.set_tensor(0, elem, Some(shape));
    Ok(())
}
