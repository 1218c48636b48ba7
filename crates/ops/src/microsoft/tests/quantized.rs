//! Types and refusals of the operators on quantized tensors.

use super::{Given, check_reasons, check_types};
use crate::AttrValue::{Int, Strings};
use crate::tensor::testing::{ints, word};

#[test]
fn types_of_outputs_of_elements() {
    let axis = |axis| [("axis", Int(axis))];
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        (
            "QLinearAdd",
            &[],
            "uint8[N, 1, 4]; float; uint8; uint8[3, 1]; float; uint8; float",
            "uint8[N, 3, 4]",
        ),
        (
            "QLinearMul",
            &[],
            "int8[2]; float; int8; int8[3]; float; int8; float",
            "QLinearMul: sizes 2 and 3 of axis 0 do not broadcast",
        ),
        ("QLinearSigmoid", &[], "int8[N, ?]; float; _; float", "int8[N, ?]"),
        ("QLinearLeakyRelu", &[], "uint8[N]; float; uint8; float", "uint8[N]"),
        ("QLinearSoftmax", &[], "uint8[N, 3]; float; uint8; float; uint8", "uint8[N, 3]"),
        (
            "QLinearWhere",
            &[],
            "bool[N, 1]; int8[4]; float; int8; int8; float; int8; float; int8",
            "int8[N, 4]",
        ),
        (
            "QLinearConcat",
            &axis(1),
            "float; uint8; uint8[N, 2]; float; uint8; uint8[N, C]; float; uint8",
            "uint8[N, C + 2]",
        ),
        (
            "QLinearConcat",
            &axis(0),
            "float; uint8; uint8[N, 2]; float; uint8; uint8[N, 3]; float; uint8",
            "QLinearConcat: sizes of axis 1 of inputs 0 and 1 differ (2 and 3)",
        ),
        (
            "QLinearConcat",
            &axis(0),
            "float; uint8; uint8[N, 2]; float",
            "QLinearConcat: inputs must be a tensor, its scale and its zero point for each part, but there are 2",
        ),
    ];
    check_types(rows);
}

#[test]
fn types_of_outputs_of_pools() {
    let last = || ("channels_last", Int(1));
    let kernel = || ("kernel_shape", ints(&[2, 3]));
    let strides = || ("strides", ints(&[2, 1]));
    let mean = |axes, keepdims| [("axes", ints(axes)), ("keepdims", Int(keepdims))];
    let conv = "uint8[N, 8, 7, 4]; float; uint8; int8[6, 4, 3, 3]; float; int8; float; uint8";
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        (
            "QLinearAveragePool",
            &[kernel(), strides()],
            "uint8[N, C, 8, 7]; float; _; float",
            "uint8[N, C, 4, 5]",
        ),
        (
            "QLinearAveragePool",
            &[kernel(), last()],
            "int8[N, 8, 7, C]; float; _; float",
            "int8[N, 7, 5, C]",
        ),
        ("QLinearAveragePool", &[kernel(), last()], "int8[...]; float", "int8[?, ?, ?, ?]"),
        (
            "QLinearAveragePool",
            &[kernel()],
            "int8[N, 8]; float",
            "QLinearAveragePool: a kernel with 2 spatial axes requires an input of rank 4, not 2",
        ),
        (
            "NhwcMaxPool",
            &[kernel(), strides()],
            "uint8[N, H, 7, 3]",
            "uint8[N, floor((H - 2)/2) + 1, 5, 3]",
        ),
        ("QLinearGlobalAveragePool", &[], "uint8[N, C, H, W]; float", "uint8[N, C, 1, 1]"),
        ("QLinearGlobalAveragePool", &[last()], "uint8[N, H, W, C]; float", "uint8[N, 1, 1, C]"),
        ("QLinearReduceMean", &mean(&[1, -1], 1), "int8[N, C, H]; float", "int8[N, 1, 1]"),
        ("QLinearReduceMean", &mean(&[1], 0), "int8[N, C, H]; float", "int8[N, H]"),
        ("QLinearConv", &[last()], conv, "uint8[N, 6, 5, 6]"),
    ];
    check_types(rows);
}

#[test]
fn types_of_outputs_of_quantized_products() {
    let transposed = || [("transA", Int(1)), ("transB", Int(1))];
    let bnb4 = |transposed| {
        [
            ("K", Int(8)),
            ("N", Int(5)),
            ("block_size", Int(16)),
            ("quant_type", Int(1)),
            ("transB", Int(transposed)),
        ]
    };
    let heads = || [("num_heads", Int(2))];
    let qgemm = "uint8[3, M]; float; uint8; int8[5, 3]; float; int8";
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        ("MatMulIntegerToFloat", &[], "uint8[B, S, 3]; int8[3, 4]; float16", "float16[B, S, 4]"),
        (
            "DynamicQuantizeMatMul",
            &[],
            "float[S, 3]; int8[4, 5]; float",
            "DynamicQuantizeMatMul: the inner sizes differ (3 and 4)",
        ),
        ("QGemm", &transposed(), qgemm, "float[M, 5]"),
        ("QGemm", &transposed(), &format!("{qgemm}; int32[7, 1]; float; int8"), "int8[7, 5]"),
        (
            "QGemm",
            &[],
            "uint8[3, 4]; float; uint8; int8[5, 3]; float; int8",
            "QGemm: the inner sizes differ (4 and 5)",
        ),
        ("MatMulBnb4", &bnb4(1), "float16[B, S, 8]; uint8[20]; float16[3]", "float16[B, S, 5]"),
        ("MatMulBnb4", &bnb4(0), "float[B, 5]; uint8[20]; float[3]", "float[B, 8]"),
        (
            "MatMulBnb4",
            &bnb4(1),
            "float[B, 7]; uint8[20]; float[3]",
            "MatMulBnb4: the last size of A and the rows of the right matrix differ (7 and 8)",
        ),
        (
            "QAttention",
            &heads(),
            "uint8[B, S, 12]; int8[12, 48]; float[48]; float; float; _; uint8; int8; float[2, B, 2, P, 8]",
            "float[B, S, 16]; float[2, B, 2, P + S, 8]",
        ),
        (
            "QEmbedLayerNormalization",
            &[],
            "int32[B, S]; _; uint8[V, 8]; uint8[P, ?]; _; uint8[8]; uint8[8]; int32[B, S]",
            "float[B, S, 8]; int32[B]",
        ),
        ("QMoE", &[], "float16[T, 8]; float16[T, 4]; uint8[4, 6, 4]", "float16[T, 8]"),
        (
            "DynamicQuantizeLSTM",
            &[],
            "float[T, B, 5]; int8[1, 5, 32]; int8[1, 8, 32]",
            "float[T, 1, B, 8]; float[1, B, 8]; float[1, B, 8]",
        ),
        (
            "DynamicQuantizeLSTM",
            &[("direction", word("bidirectional"))],
            "float[T, B, 5]; int8[2, 6, 32]; int8[2, 8, 32]",
            "DynamicQuantizeLSTM: the size of the input of input 1 and of others differ (5 and 6)",
        ),
    ];
    check_types(rows);
}

#[test]
fn quantized_forms_without_function_have_a_reason() {
    let bits = |kind| [("K", Int(8)), ("N", Int(5)), ("block_size", Int(16)), ("quant_type", kind)];
    let swiglu = || ("activation_type", word("swiglu"));
    let moe =
        "float[T, 8]; float[T, 4]; uint8[4, 6, 4]; float[4, 6]; _; uint8[4, 8, 3]; float[4, 8]";
    let qgemm = "uint8[3, M]; float; uint8; int8[M, 3]; float; int8";
    let rows: &[(&str, Given<'_>, &str, usize, &str)] = &[
        (
            "MatMulIntegerToFloat",
            &[],
            "uint8[4, 3]; int8[3, 5]; float[4]; float",
            1,
            "a_scale has 4 elements, but A can have one scale alone",
        ),
        (
            "QGemm",
            &[],
            &format!("{qgemm}; _; float"),
            1,
            "y_scale and y_zero_point must both be present or absent",
        ),
        (
            "MatMulBnb4",
            &bits(Int(2)),
            "float[3, 8]; uint8[20]; float[3]",
            1,
            "quant_type must be 0 (FP4) or 1 (NF4), not 2",
        ),
        (
            "QLinearGlobalAveragePool",
            &[],
            "uint8[...]; float; uint8; float; uint8",
            1,
            "the rank of its input is unknown",
        ),
        (
            "QAttention",
            &[("num_heads", Int(2)), ("do_rotary", Int(1))],
            "uint8[B, S, 12]; int8[12, 48]; float[48]; float; float",
            1,
            "do_rotary is not supported",
        ),
        (
            "QEmbedLayerNormalization",
            &[],
            "int32[B, S]; int32[B, S]; uint8[V, 8]; uint8[P, 8]; _; uint8[8]; uint8[8]",
            2,
            "segment_ids, segment_embedding, its scale and its zero point must all be present or \
             absent",
        ),
        (
            "QMoE",
            &[("quant_type", word("fp4"))],
            moe,
            1,
            "its quant_type 'fp4' is not supported, only 'int'",
        ),
        (
            "QMoE",
            &[("expert_weight_bits", Int(3))],
            moe,
            1,
            "the weights of fc1 must have 2, 4 or 8 bits, not 3",
        ),
        (
            "QMoE",
            &[swiglu()],
            moe,
            1,
            "swiglu requires either fc3_experts_weights or swiglu_fusion",
        ),
        ("QMoE", &[("use_sparse_mixer", Int(1))], moe, 1, "use_sparse_mixer is not supported"),
        (
            "DynamicQuantizeLSTM",
            &[("activations", Strings(vec![b"Sigmoid"[..].into()]))],
            "float[T, B, 5]; int8[1, 5, 32]; int8[1, 8, 32]",
            1,
            "activations has 1 functions, not 3",
        ),
    ];
    check_reasons(rows);
}
