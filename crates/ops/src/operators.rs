//! Definitions that other code compares with: [`OpDef::is`](crate::OpDef::is) returns whether a
//! node calls one of them. Facts about an operator itself are in its definition.

pub use crate::control::{IF, LOOP, SCAN};
pub use crate::image::NON_MAX_SUPPRESSION;
pub use crate::image::resize::RESIZE;
pub use crate::math::binary::{
    ADD, AND, BIT_SHIFT, BITWISE_AND, BITWISE_OR, BITWISE_XOR, DIV, EQUAL, GREATER,
    GREATER_OR_EQUAL, LESS, LESS_OR_EQUAL, MOD, MUL, OR, POW, SUB, XOR,
};
pub use crate::math::classify::IS_NAN;
pub use crate::math::clip::CLIP;
pub use crate::math::gated::{SWIGLU, SWISH};
pub use crate::math::gemm::GEMM;
pub use crate::math::linear::EINSUM;
pub use crate::math::matmul::MATMUL;
pub use crate::math::softmax::{LOG_SOFTMAX, SOFTMAX};
pub use crate::math::unary::{
    ABS, CEIL, COS, ERF, EXP, FLOOR, GELU, HARD_SIGMOID, HARD_SWISH, LOG, MISH, NEG, NOT,
    RECIPROCAL, RELU, ROUND, SIGMOID, SIGN, SIN, SOFTPLUS, SOFTSIGN, SQRT, TANH,
};
pub use crate::math::variadic::{MAX, MEAN, MIN, SUM};
pub use crate::nn::attention::{ATTENTION, FLEX_ATTENTION, ROTARY_EMBEDDING};
pub use crate::nn::average_pool::AVERAGE_POOL;
pub use crate::nn::batch_normalization::BATCH_NORMALIZATION;
pub use crate::nn::conv::CONV;
pub use crate::nn::conv_variants::CONV_TRANSPOSE;
pub use crate::nn::dropout::DROPOUT;
pub use crate::nn::global_pool::{GLOBAL_AVERAGE_POOL, GLOBAL_MAX_POOL};
pub use crate::nn::layer_normalization::{LAYER_NORMALIZATION, RMS_NORMALIZATION};
pub use crate::nn::max_pool::MAX_POOL;
pub use crate::nn::max_unpool::MAX_UNPOOL;
pub use crate::nn::recurrent::{GRU, LSTM, RNN};
pub use crate::quantization::MATMUL_INTEGER;
pub use crate::quantization::linear::{DEQUANTIZE_LINEAR, QUANTIZE_LINEAR};
pub use crate::reduction::{
    REDUCE_L1, REDUCE_L2, REDUCE_LOG_SUM, REDUCE_LOG_SUM_EXP, REDUCE_MAX, REDUCE_MEAN, REDUCE_MIN,
    REDUCE_PROD, REDUCE_SUM, REDUCE_SUM_SQUARE,
};
pub use crate::sequence::{
    SEQUENCE_AT, SEQUENCE_CONSTRUCT, SEQUENCE_INSERT, SEQUENCE_LENGTH, SPLIT_TO_SEQUENCE,
};
pub use crate::signal::fourier::STFT;
pub use crate::tensor::cast::CAST;
pub use crate::tensor::cast_like::CAST_LIKE;
pub use crate::tensor::concat::CONCAT;
pub use crate::tensor::constant::CONSTANT;
pub use crate::tensor::constant_of_shape::CONSTANT_OF_SHAPE;
pub use crate::tensor::expand::EXPAND;
pub use crate::tensor::flatten::FLATTEN;
pub use crate::tensor::gather::GATHER;
pub use crate::tensor::gather_elements::{GATHER_ELEMENTS, GATHER_ND};
pub use crate::tensor::generate::RANGE;
pub use crate::tensor::identity::IDENTITY;
pub use crate::tensor::pad::PAD;
pub use crate::tensor::rearrange::{CENTER_CROP_PAD, DEPTH_TO_SPACE, SPACE_TO_DEPTH, TILE};
pub use crate::tensor::reshape::RESHAPE;
pub use crate::tensor::scatter::{SCATTER_ELEMENTS, SCATTER_ND};
pub use crate::tensor::select::{TOP_K, UNIQUE};
pub use crate::tensor::shape::SHAPE;
pub use crate::tensor::slice::SLICE;
pub use crate::tensor::split::SPLIT;
pub use crate::tensor::squeeze::SQUEEZE;
pub use crate::tensor::transpose::TRANSPOSE;
pub use crate::tensor::unsqueeze::UNSQUEEZE;
pub use crate::tensor::where_::WHERE;
pub use crate::training::GRADIENT;
