//! Definitions that other code compares with: [`OpDef::is`](crate::OpDef::is) returns whether a
//! node calls one of them. Facts about an operator itself are in its definition.

pub use crate::control::{IF, LOOP, SCAN};
pub use crate::image::NON_MAX_SUPPRESSION;
pub use crate::image::resize::RESIZE;
pub use crate::math::binary::{ADD, BIT_SHIFT, DIV, MUL, POW, SUB};
pub use crate::math::gated::{SWIGLU, SWISH};
pub use crate::math::gemm::GEMM;
pub use crate::math::matmul::MATMUL;
pub use crate::math::softmax::SOFTMAX;
pub use crate::math::unary::{
    COS, ERF, GELU, HARD_SIGMOID, HARD_SWISH, NEG, RECIPROCAL, SIGMOID, SIN, SQRT, TANH,
};
pub use crate::nn::attention::{ATTENTION, FLEX_ATTENTION, ROTARY_EMBEDDING};
pub use crate::nn::layer_normalization::{LAYER_NORMALIZATION, RMS_NORMALIZATION};
pub use crate::nn::max_pool::MAX_POOL;
pub use crate::nn::max_unpool::MAX_UNPOOL;
pub use crate::nn::recurrent::{GRU, LSTM, RNN};
pub use crate::quantization::MATMUL_INTEGER;
pub use crate::quantization::linear::QUANTIZE_LINEAR;
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
pub use crate::tensor::expand::EXPAND;
pub use crate::tensor::gather::GATHER;
pub use crate::tensor::gather_elements::GATHER_ELEMENTS;
pub use crate::tensor::identity::IDENTITY;
pub use crate::tensor::pad::PAD;
pub use crate::tensor::rearrange::CENTER_CROP_PAD;
pub use crate::tensor::reshape::RESHAPE;
pub use crate::tensor::scatter::{SCATTER_ELEMENTS, SCATTER_ND};
pub use crate::tensor::select::{TOP_K, UNIQUE};
pub use crate::tensor::slice::SLICE;
pub use crate::tensor::split::SPLIT;
pub use crate::tensor::squeeze::SQUEEZE;
pub use crate::tensor::transpose::TRANSPOSE;
pub use crate::tensor::unsqueeze::UNSQUEEZE;
pub use crate::training::GRADIENT;
