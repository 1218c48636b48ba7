mod quantized;

use super::LIST;
use crate::AttrValue::{Float, Int};
use crate::function::Call;
use crate::math::testing::ty;
use crate::tensor::testing::{ints, outputs, word};
use crate::{AttrValue, Attributes, OpDef, Registry};

type Given<'a> = &'a [(&'static str, AttrValue<'static>)];

fn operator(name: &str) -> &'static OpDef {
    let is_in_default = ["DistCollective", "SimplifiedLayerNormalization"].contains(&name);
    let domain = if is_in_default { "" } else { "com.microsoft" };
    LIST.find(domain, name).expect("it is in the list").def()
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[test]
fn types_of_outputs() {
    let n_bits = || [("K", Int(8)), ("N", Int(5)), ("block_size", Int(16))];
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        ("BiasGelu", &[], "float[B, S, 8]; float[8]", "float[B, S, 8]"),
        ("FastGelu", &[], "float16[B, S]", "float16[B, S]"),
        (
            "SimplifiedLayerNormalization",
            &[],
            "float16[B, S, 8]; float16[8]",
            "float16[B, S, 8]; float[B, S, 1]",
        ),
        (
            "SkipLayerNormalization",
            &[],
            "float16[B, S, 8]; float16[S, 8]; float16[8]",
            "float16[B, S, 8]; float[B, S, 1]; float[B, S, 1]; float16[B, S, 8]",
        ),
        (
            "EmbedLayerNormalization",
            &[],
            "int32[B, S]; _; float[V, 8]; float[P, ?]; _; float[8]; float[8]",
            "float[B, S, 8]; int32[B]; float[B, S, 8]",
        ),
        ("FusedMatMul", &[("transB", Int(1))], "float[B, S, 8]; float[4, 8]", "float[B, S, 4]"),
        (
            "FusedMatMul",
            &[("transBatchA", Int(1)), ("transA", Int(1))],
            "float[K, B, C, M]; float[B, C, K, N]",
            "float[B, C, M, N]",
        ),
        (
            "FusedMatMul",
            &[],
            "float[2, 3]; float[4, 5]",
            "FusedMatMul: the inner sizes differ (3 and 4)",
        ),
        ("FusedGemm", &[("transA", Int(1))], "float[3, M]; float[3, 5]; float[5]", "float[M, 5]"),
        (
            "FusedConv",
            &[("strides", ints(&[2, 2]))],
            "float[N, 4, 7, 7]; float[8, 4, 3, 3]",
            "float[N, 8, 3, 3]",
        ),
        ("RotaryEmbedding", &[], "float[B, S, 16]; int64[1]; float[9, 4]", "float[B, S, 16]"),
        ("MatMulNBits", &n_bits(), "float[B, S, 8]; uint8[5, 1, 8]", "float[B, S, 5]"),
        (
            "MatMulNBits",
            &n_bits(),
            "float[B, 7]; uint8[5, 1, 8]",
            "MatMulNBits: the last size of A and K differ (7 and 8)",
        ),
        (
            "GatherBlockQuantized",
            &[],
            "uint8[V, 16]; int64[B, S]; float16[V, 1]",
            "float16[B, S, 32]",
        ),
        ("GatherBlockQuantized", &[], "uint4[V, 16]; int64[]; float[V, 1]", "float[16]"),
        ("BiasAdd", &[], "float16[N, S, 8]; float16[8]; float16[N, S, 8]", "float16[N, S, 8]"),
        ("BiasSplitGelu", &[], "float[N, S, C]; float[C]", "float[N, S, floor(C/2)]"),
        (
            "BiasSplitGelu",
            &[],
            "float[N, S, 7]; float[7]",
            "BiasSplitGelu: the last axis has size 7, which has no halves",
        ),
        (
            "GroupNorm",
            &[("groups", Int(4))],
            "float16[N, H, W, 8]; float[8]",
            "float16[N, H, W, 8]",
        ),
        (
            "GroupNorm",
            &[("groups", Int(3))],
            "float[N, H, W, 8]; float[8]",
            "GroupNorm: 8 channels cannot be divided into 3 groups",
        ),
        (
            "SkipGroupNorm",
            &[("groups", Int(4)), ("channels_last", Int(0))],
            "float[N, 8, H, W]; float[8]; float[8]; float[N, 8]",
            "float[N, 8, H, W]; float[N, 8, H, W]",
        ),
        (
            "NhwcConv",
            &[("strides", ints(&[2, 2])), ("pads", ints(&[1, 1, 1, 1]))],
            "float[N, H, 7, 4]; float[5, 3, 3, 4]; float[5]",
            "float[N, floor((H - 1)/2) + 1, 4, 5]",
        ),
        (
            "NhwcConv",
            &[],
            "float[N, 7, 7, 4]; float[5, 3, 3, 3]",
            "NhwcConv: channels of X and of W times group differ (4 and 3)",
        ),
        (
            "MoE",
            &[("k", Int(2))],
            "float[B, S, 8]; float[T, 4]; float[4, 6, 8]; _; float[4, 8, 6]",
            "float[B, S, 8]",
        ),
        (
            "MoE",
            &[("k", Int(5))],
            "float[T, 8]; float[T, 4]; float[4, 6, 8]; _; float[4, 8, 6]",
            "MoE: k is 5, but there are 4 experts",
        ),
        (
            "CausalConvWithState",
            &[("dilation", Int(2))],
            "float[N, 6, L]; float[6, 1, 4]",
            "float[N, 6, L]; float[N, 6, 6]",
        ),
        (
            "CausalConvWithState",
            &[("channels_last", Int(1)), ("state_window", Int(3))],
            "float[N, L, 2, 3]; float[6, 1, 4]",
            "float[N, L, 2, 3]; float[3, N, 3, 2, 3]",
        ),
        (
            "CausalConvWithState",
            &[("state_window", Int(9))],
            "float[N, 6, L]; float[6, 1, 4]",
            "CausalConvWithState: state_window must be between 0 and 8, not 9",
        ),
        ("CDist", &[], "double[N, 3]; double[M, 3]", "double[N, M]"),
        ("CDist", &[], "-; float[4, ?]", "float[?, 4]"),
        (
            "CDist",
            &[],
            "float[N, 3]; float[M, 4]",
            "CDist: the number of columns of input 1 and of others differ (3 and 4)",
        ),
        ("MurmurHash3", &[], "string[N, 2]", "uint32[N, 2]"),
        ("MurmurHash3", &[("positive", Int(0))], "int64[N]", "int32[N]"),
        ("Tokenizer", &[], "string[N]", "string[N, ?]"),
        ("Tokenizer", &[], "string[N, 0]", "string[N, 0]"),
        ("Tokenizer", &[], "string[]", "Tokenizer: the input must have rank 1 or 2, not 0"),
    ];
    check_types(rows);
}

/// Declarations in sources that no wheel for CPUs contains: `RegisterCollectiveOps` in ONNX
/// Runtime's `collective_defs.cc`, and the output of `polygraphy multi-device shard` for TensorRT.
#[test]
fn collectives_match_their_sources() {
    let moved = "tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int64)";
    let rows: &[(&str, &str, &str, &str)] = &[
        ("AllReduce", "1 or more", "", "tensor(double) tensor(float) tensor(float16)"),
        ("AllGather", "1 or more", "axis: int = 1; group_size: int = 1", moved),
        ("AllToAll", "1 or more", "group_size: int = 1", moved),
        (
            "DistCollective",
            "",
            "collective_operation: string, required; group_size: int = 0; groups: ints; \
             nb_rank: int = 1; reduce_op: string = \"none\"; root: int = -1",
            "tensor(bfloat16) tensor(float) tensor(float16) tensor(int32) tensor(int64) \
             tensor(int8) tensor(uint8)",
        ),
    ];
    for (name, arity, attributes, types) in rows {
        let schema = operator(name).schema_at(1).expect("there is one version");
        let params = |params: &[crate::Param]| {
            params.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        let of = |what: &str| match *arity {
            "" => format!("{what}: T"),
            arity => format!("{what}: T, {arity}"),
        };
        assert_eq!(params(&schema.inputs), of("input"), "{name}");
        assert_eq!(params(&schema.outputs), of("output"), "{name}");
        let own: Vec<String> = schema.attributes.iter().map(ToString::to_string).collect();
        assert_eq!(own.join("; "), *attributes, "{name}");
        let own: Vec<String> =
            schema.types.iter().map(|var| var.allowed.names().join(" ")).collect();
        assert_eq!(own, [*types], "{name}");
        assert!(operator(name).is_collective(), "{name}");
    }
}

#[test]
fn types_of_outputs_of_collectives() {
    let ranks = |count| [("group_size", Int(count))];
    let gather = |axis, count| [("axis", Int(axis)), ("group_size", Int(count))];
    let dist =
        |operation, ranks| [("collective_operation", word(operation)), ("nb_rank", Int(ranks))];
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        ("AllReduce", &[], "float16[N, 3]", "float16[N, 3]"),
        ("AllReduce", &[], "float[N, 3]; float[2]", "float[N, 3]; float[2]"),
        // The default axis is 1, as in ONNX Runtime's schema.
        ("AllGather", &ranks(4), "int64[N, 3]", "int64[N, 12]"),
        ("AllGather", &gather(0, 4), "bool[N, 3]", "bool[4*N, 3]"),
        ("AllGather", &gather(-1, 2), "float[...]", "float[...]"),
        ("AllGather", &gather(2, 2), "float[N, 3]", "AllGather: axis 2 is out of range for rank 2"),
        (
            "AllGather",
            &gather(0, 0),
            "float[N, 3]",
            "AllGather: group_size must be 1 or more, not 0",
        ),
        ("AllToAll", &ranks(2), "double[6]", "double[6]"),
        ("DistCollective", &dist("all_reduce", 2), "float[N, 3]", "float[N, 3]"),
        ("DistCollective", &dist("all_gather", 2), "float[N, 3]", "float[2*N, 3]"),
        ("DistCollective", &dist("REDUCE_SCATTER", 2), "float[6, 3]", "float[3, 3]"),
        ("DistCollective", &dist("broadcast", 2), "int32[6, 3]", "int32[6, 3]"),
        (
            "DistCollective",
            &dist("reduce_scatter", 4),
            "float[6, 3]",
            "DistCollective: 6 rows cannot be divided among 4 ranks",
        ),
        (
            "DistCollective",
            &dist("all_sort", 2),
            "float[6, 3]",
            "DistCollective: the collective operation 'all_sort' is unknown",
        ),
    ];
    check_types(rows);
}

#[test]
fn types_of_outputs_of_attention() {
    let heads = |count| ("num_heads", Int(count));
    let group = || [heads(4), ("kv_num_heads", Int(2))];
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        (
            "MultiHeadAttention",
            &[heads(2)],
            "float[B, S, 16]; float[B, L, 16]; float[B, L, 8]; _; _; _; float[B, 2, P, 8]",
            "float[B, S, 8]; float[B, 2, L + P, 8]; float[B, 2, L + P, 4]; float[B, 2, S, L + P]",
        ),
        (
            "MultiHeadAttention",
            &[heads(2)],
            "float[B, S, 2, 3, 8]",
            "float[B, S, 16]; float[B, 2, S, 8]; float[B, 2, S, 8]; float[B, 2, S, S]",
        ),
        (
            "MultiHeadAttention",
            &[heads(2)],
            "float[B, S, 16]; float[B, 2, L, 8]; float[B, 2, L, 8]",
            "float[B, S, 16]; float[B, 2, L, 8]; float[B, 2, L, 8]; float[B, 2, S, L]",
        ),
        (
            "Attention",
            &[heads(2)],
            "float[B, S, 12]; float[12, 48]; float[48]; _; float[2, B, 2, P, 8]",
            "float[B, S, 16]; float[2, B, 2, P + S, 8]",
        ),
        (
            "Attention",
            &[heads(2), ("qkv_hidden_sizes", ints(&[16, 16, 8]))],
            "float[B, S, 12]; float[12, 40]",
            "float[B, S, 8]; float[2, B, 2, S, 8]",
        ),
        (
            "GroupQueryAttention",
            &group(),
            "float[B, S, 64]; _; _; float[B, 2, 6, 8]; _; int32[B]; =7",
            "float[B, S, 32]; float[B, 2, 7, 8]; float[B, 2, 7, 8]",
        ),
        (
            "GroupQueryAttention",
            &group(),
            "float[B, S, 32]; float[B, S, 16]; float[B, S, 16]; _; _; int32[B]; int32",
            "float[B, S, 32]; float[B, 2, S, 8]; float[B, 2, S, 8]",
        ),
    ];
    check_types(rows);
}

#[test]
fn types_of_outputs_of_sparse_and_linear_attention() {
    let sparse =
        || [("num_heads", Int(4)), ("kv_num_heads", Int(2)), ("sparse_block_size", Int(16))];
    let linear = |heads, key_heads, window| {
        [
            ("q_num_heads", Int(heads)),
            ("kv_num_heads", Int(key_heads)),
            ("state_window", Int(window)),
            ("update_rule", word("linear")),
        ]
    };
    let rows: &[(&str, Given<'_>, &str, &str)] = &[
        (
            "SparseAttention",
            &sparse(),
            "float[B, S, 64]; _; _; float[B, 2, 96, 8]; float[B, 2, 96, 8]; int32[2, 7]; int32[2, \
             20]; int32[1]; int32[B]",
            "float[B, S, 32]; float[B, 2, 96, 8]; float[B, 2, 96, 8]",
        ),
        (
            "LinearAttention",
            &linear(4, 2, 0),
            "float16[B, T, 32]; float16[B, T, 16]; float16[B, T, 10]; float[B, 2, 8, 5]",
            "float16[B, T, 20]; float[B, 2, 8, 5]",
        ),
        (
            "LinearAttention",
            &linear(2, 6, 3),
            "float[B, T, 16]; float[B, T, 48]; float[B, T, 30]",
            "float[B, T, 30]; float[3, B, 6, 8, 5]",
        ),
        (
            "LinearAttention",
            &linear(2, 3, 0),
            "float[B, T, 16]; float[B, T, 24]; float[B, T, 15]",
            "LinearAttention: 2 query heads and 3 key heads cannot share each other",
        ),
    ];
    check_types(rows);
}

/// Checks rows of names, attributes, inputs and outputs.
fn check_types(rows: &[(&str, Given<'_>, &str, &str)]) {
    for (name, attributes, inputs, expected) in rows {
        let count = if expected.contains(": ") && !expected.contains("; ") { 1 } else { 0 };
        let count = count.max(expected.split(';').count());
        let found = outputs(operator(name), 1, attributes, inputs, count);
        assert_eq!(found, *expected, "{name} {attributes:?} of {inputs}");
    }
}

/// Attributes of a node, by name.
struct Named<'a>(Given<'a>);

impl Attributes for Named<'_> {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let found = self.0.iter().find(|(other, _)| *other == name);
        found.map(|(_, value)| value.clone())
    }
}

/// Returns the function of a call with that many outputs, or the reason why there is none.
fn function(name: &str, attributes: Given<'_>, inputs: &str, outputs: usize) -> String {
    let inputs: Vec<&str> = inputs.split(';').map(str::trim).collect();
    let present: Vec<bool> = inputs.iter().map(|input| *input != "_").collect();
    let types: Vec<_> =
        inputs.iter().map(|input| if *input == "_" { None } else { ty(input) }).collect();
    let call = Call {
        attributes: &Named(attributes),
        inputs: &present,
        outputs: &vec![true; outputs],
        types: &types,
        graphs: &|_, _| None,
    };
    let operator = operator(name);
    match operator.function_text(&Registry::with_microsoft(), 1, Some(&call)) {
        Some(text) => text,
        None => operator.why_no_function(1, &call).unwrap_or_default(),
    }
}

#[test]
fn calls_without_function_have_a_reason() {
    let rows: &[(&str, Given<'_>, &str, usize, &str)] = &[
        (
            "SkipSimplifiedLayerNormalization",
            &[],
            "float[B, S, 8]; float[B, S, 8]; float[8]",
            2,
            "the output mean is not supported",
        ),
        (
            "FusedGemm",
            &[("activation", word("Snake"))],
            "float[2, 3]; float[3, 4]",
            1,
            "its activation 'Snake' is not implemented",
        ),
        (
            "FusedConv",
            &[("activation", word("Clip"))],
            "float[1, 1, 3, 3]; float[1, 1, 1, 1]",
            1,
            "its activation Clip requires both limits",
        ),
        ("FusedMatMul", &[], "float[...]; float[3, 4]", 1, "the ranks of its operands are unknown"),
        (
            "RotaryEmbedding",
            &[("scale", Float(2.0))],
            "float[B, 2, S, 8]; int64[B, S]; float[9, 4]; float[9, 4]",
            1,
            "a scale is not supported",
        ),
        (
            "CDist",
            &[("metric", word("cosine"))],
            "float[N, 3]; float[M, 3]",
            1,
            "its metric 'cosine' is not implemented",
        ),
        (
            "CausalConvWithState",
            &[("ndim", Int(2))],
            "float[N, 6, H, W]; float[6, 1, 3, 3]",
            2,
            "ndim is 2, and only 1 is supported",
        ),
        (
            "MoE",
            &[("use_sparse_mixer", Int(1))],
            "float[T, 8]; float[T, 4]; float[4, 6, 8]; _; float[4, 8, 6]",
            1,
            "use_sparse_mixer is not supported",
        ),
        (
            "MoE",
            &[("activation_type", word("swiglu"))],
            "float[T, 8]; float[T, 4]; float[4, 6, 8]; _; float[4, 8, 6]",
            1,
            "swiglu without swiglu_fusion requires fc3",
        ),
        (
            "GroupNorm",
            &[("groups", Int(4)), ("activation", Int(2))],
            "float[N, H, W, 8]; float[8]; float[8]",
            1,
            "attribute 'activation' is 2, not 0 or 1",
        ),
    ];
    check_reasons(rows);
}

#[test]
fn forms_of_attention_without_function_have_a_reason() {
    let heads = || ("num_heads", Int(2));
    let group = |name, value| [heads(), ("kv_num_heads", Int(1)), (name, value)];
    let mha = "float[B, S, 16]; float[B, L, 16]; float[B, L, 16]";
    let gqa = "float[B, S, 16]; float[B, S, 8]; float[B, S, 8]; _; _; int32[B]; int32";
    let attention = "float[B, S, 12]; float[12, 48]";
    let rows: &[(&str, Given<'_>, &str, usize, &str)] = &[
        ("MultiHeadAttention", &[], mha, 1, "attribute 'num_heads' is missing"),
        (
            "MultiHeadAttention",
            &[heads()],
            &format!("{mha}; _; _; _; _; _; int32[1]"),
            1,
            "shared buffers of past keys and values are not supported",
        ),
        (
            "MultiHeadAttention",
            &[heads()],
            "float[3, S, 16]; float[B, L, 16]; float[B, L, 16]; _; int32[11]",
            1,
            "its mask has 11 elements for a batch of 3",
        ),
        (
            "Attention",
            &[heads(), ("do_rotary", Int(1))],
            attention,
            1,
            "do_rotary is not supported",
        ),
        (
            "Attention",
            &[heads(), ("past_present_share_buffer", Int(1))],
            attention,
            1,
            "past_present_share_buffer is not supported",
        ),
        (
            "GroupQueryAttention",
            &group("k_quant_type", word("PER_TENSOR")),
            gqa,
            1,
            "a quantized cache is not supported (k_quant_type, v_quant_type)",
        ),
        (
            "GroupQueryAttention",
            &group("sliding_window_cache", Int(1)),
            gqa,
            1,
            "sliding_window_cache is not supported",
        ),
        (
            "GroupQueryAttention",
            &group("do_rotary", Int(1)),
            gqa,
            1,
            "do_rotary requires cos_cache and sin_cache",
        ),
        (
            "GroupQueryAttention",
            &group("scale", Float(0.5)),
            gqa,
            4,
            "the output output_qk is not supported",
        ),
    ];
    check_reasons(rows);
}

/// Checks rows of names, attributes, inputs, the number of outputs, and the reason.
fn check_reasons(rows: &[(&str, Given<'_>, &str, usize, &str)]) {
    for (name, attributes, inputs, outputs, expected) in rows {
        assert_eq!(function(name, attributes, inputs, *outputs), *expected, "{name}");
    }
}

#[test]
fn functions_are_written_for_the_newest_standard() {
    let text = function("Gelu", &[], "float[2]", 1);
    assert!(
        text.starts_with("<domain: \"com.microsoft\", opset_import: [\"com.microsoft\": 1, \"\": ")
    );
    // The domain of an operator that the standard also has has one version in a function.
    let text = function("SimplifiedLayerNormalization", &[], "float[2]; float[2]", 1);
    let newest = Registry::standard().versions("").map_or(0, |(_, newest)| newest);
    assert!(text.starts_with(&format!("<domain: \"\", opset_import: [\"\": {newest}]>")), "{text}");
}
