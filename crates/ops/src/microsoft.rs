//! Operators that ONNX Runtime adds to the standard, as far as exported models use them, and
//! TensorRT's operator for collectives.
//!
//! They are separate from the standard's lists: their domain `com.microsoft` has a single version,
//! in which operators are added and changed, and most of its operators are not here. All but
//! `MatMulNBits`, `GatherBlockQuantized`, the operators on hashes and tokens, and collectives have
//! a function of operators of the standard at their newest versions. It uses the larger operators
//! where possible, so that the engine runs it as if the model itself had them. A function refuses,
//! with a reason, what it cannot express: forms of an operator that only a device has, and buffers
//! that are written while they are read.

mod activation;
mod attention;
mod bias;
mod bnb4;
mod cache;
mod causal_conv;
mod collective;
mod distance;
mod dynamic_lstm;
mod early;
mod group_norm;
mod group_query;
mod hash;
mod integer_products;
mod linear;
mod linear_attention;
mod linear_elements;
mod linear_pools;
mod mask;
mod mixture;
mod multi_head;
mod nhwc_conv;
mod normalization;
mod packed;
mod product;
mod q_attention;
mod q_embedding;
mod q_moe;
mod quantize;
mod quantized;
mod rotary;
mod sparse_attention;
mod tokenizer;
mod window;

use crate::list::List;

/// Domain of nearly all of them.
pub(crate) const DOMAIN: &str = "com.microsoft";

/// Sorted by domain and name.
pub(crate) static LIST: List = List::new(&[
    &collective::DIST_COLLECTIVE,
    &early::LAYER_NORMALIZATION,
    &normalization::SIMPLIFIED_OF_DEFAULT_DOMAIN,
    &early::THRESHOLDED_RELU,
    &collective::ALL_GATHER,
    &collective::ALL_REDUCE,
    &collective::ALL_TO_ALL,
    &attention::ATTENTION,
    &bias::BIAS_ADD,
    &activation::BIAS_GELU,
    &bias::BIAS_SPLIT_GELU,
    &distance::CDIST,
    &causal_conv::CAUSAL_CONV_WITH_STATE,
    &quantize::DEQUANTIZE,
    &dynamic_lstm::DYNAMIC_QUANTIZE_LSTM,
    &integer_products::DYNAMIC_QUANTIZE_MATMUL,
    &normalization::EMBED,
    &activation::FAST_GELU,
    &product::FUSED_CONV,
    &product::FUSED_GEMM,
    &product::FUSED_MATMUL,
    &quantized::GATHER_BLOCK_QUANTIZED,
    &activation::GELU,
    &group_norm::GROUP_NORM,
    &group_query::GROUP_QUERY_ATTENTION,
    &linear_attention::LINEAR_ATTENTION,
    &bnb4::MATMUL_BNB4,
    &integer_products::MATMUL_INTEGER_TO_FLOAT,
    &quantized::MATMUL_N_BITS,
    &mixture::MOE,
    &multi_head::MULTI_HEAD_ATTENTION,
    &hash::MURMUR_HASH_3,
    &nhwc_conv::NHWC_CONV,
    &linear_pools::NHWC_MAX_POOL,
    &q_attention::Q_ATTENTION,
    &q_embedding::Q_EMBED,
    &integer_products::QGEMM,
    &linear_elements::ADD,
    &linear_pools::AVERAGE,
    &linear_elements::CONCAT_CODES,
    &linear_pools::CONV,
    &linear_pools::GLOBAL_AVERAGE,
    &linear_elements::LEAKY_RELU,
    &linear_elements::MUL,
    &linear_pools::MEAN,
    &linear_elements::SIGMOID,
    &linear_elements::SOFTMAX,
    &linear_elements::WHERE,
    &q_moe::Q_MOE,
    &quantize::QUANTIZE,
    &activation::QUICK_GELU,
    &rotary::ROTARY_EMBEDDING,
    &normalization::SIMPLIFIED,
    &group_norm::SKIP_GROUP_NORM,
    &normalization::SKIP,
    &normalization::SKIP_SIMPLIFIED,
    &sparse_attention::SPARSE_ATTENTION,
    &tokenizer::TOKENIZER,
]);

#[cfg(test)]
mod tests;
