//! The list of all definitions, and looking operators up.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::def::OpDef;
use crate::schema::Schema;
use crate::{
    control, image, math, ml, nn, optional, quantization, random, reduction, sequence, signal,
    tensor, text, training,
};

/// Newest version of each operator set that this release knows.
pub const DOMAIN_VERSIONS: &[(&str, u32)] = &[
    ("", 28),
    ("ai.onnx.ml", 5),
    ("ai.onnx.preview", 1),
    ("ai.onnx.preview.training", 1),
];

/// Every operator, by domain and name. One line each; a test compares the list with the files.
static OPERATORS: &[&OpDef] = &[
    &math::unary::ABS,
    &math::unary::ACOS,
    &math::unary::ACOSH,
    &math::binary::ADD,
    &image::affine_grid::AFFINE_GRID,
    &math::binary::AND,
    &reduction::ARG_MAX,
    &reduction::ARG_MIN,
    &math::unary::ASIN,
    &math::unary::ASINH,
    &math::unary::ATAN,
    &math::unary::ATANH,
    &nn::attention::ATTENTION,
    &nn::average_pool::AVERAGE_POOL,
    &nn::batch_normalization::BATCH_NORMALIZATION,
    &random::BERNOULLI,
    &tensor::cast_like::BIT_CAST,
    &math::binary::BIT_SHIFT,
    &math::binary::BITWISE_AND,
    &math::unary::BITWISE_NOT,
    &math::binary::BITWISE_OR,
    &math::binary::BITWISE_XOR,
    &signal::BLACKMAN_WINDOW,
    &tensor::cast::CAST,
    &tensor::cast_like::CAST_LIKE,
    &nn::attention::CAUSAL_CONV_WITH_STATE,
    &math::unary::CEIL,
    &math::unary::CELU,
    &tensor::rearrange::CENTER_CROP_PAD,
    &math::clip::CLIP,
    &nn::conv_variants::COL2IM,
    &tensor::select::COMPRESS,
    &tensor::concat::CONCAT,
    &sequence::CONCAT_FROM_SEQUENCE,
    &tensor::constant::CONSTANT,
    &tensor::constant_of_shape::CONSTANT_OF_SHAPE,
    &nn::conv::CONV,
    &quantization::CONV_INTEGER,
    &nn::conv_variants::CONV_TRANSPOSE,
    &math::unary::COS,
    &math::unary::COSH,
    &math::cumulative::CUM_PROD,
    &math::cumulative::CUM_SUM,
    &signal::DFT,
    &nn::conv_variants::DEFORM_CONV,
    &tensor::rearrange::DEPTH_TO_SPACE,
    &quantization::DEQUANTIZE_LINEAR,
    &math::linear::DET,
    &math::binary::DIV,
    &nn::dropout::DROPOUT,
    &quantization::DYNAMIC_QUANTIZE_LINEAR,
    &math::linear::EINSUM,
    &math::unary::ELU,
    &math::binary::EQUAL,
    &math::unary::ERF,
    &math::unary::EXP,
    &tensor::expand::EXPAND,
    &tensor::generate::EYE_LIKE,
    &tensor::flatten::FLATTEN,
    &math::unary::FLOOR,
    &nn::recurrent::GRU,
    &tensor::gather::GATHER,
    &tensor::gather_elements::GATHER_ELEMENTS,
    &tensor::gather_elements::GATHER_ND,
    &math::unary::GELU,
    &math::gemm::GEMM,
    &nn::global_pool::GLOBAL_AVERAGE_POOL,
    &nn::lp_pool::GLOBAL_LP_POOL,
    &nn::global_pool::GLOBAL_MAX_POOL,
    &math::binary::GREATER,
    &math::binary::GREATER_OR_EQUAL,
    &image::GRID_SAMPLE,
    &nn::layer_normalization::GROUP_NORMALIZATION,
    &signal::HAMMING_WINDOW,
    &signal::HANN_WINDOW,
    &math::unary::HARD_SIGMOID,
    &math::unary::HARD_SWISH,
    &math::softmax::HARDMAX,
    &tensor::identity::IDENTITY,
    &control::IF,
    &image::IMAGE_DECODER,
    &nn::instance_normalization::INSTANCE_NORMALIZATION,
    &math::classify::IS_INF,
    &math::classify::IS_NAN,
    &nn::lrn::LRN,
    &nn::recurrent::LSTM,
    &nn::layer_normalization::LAYER_NORMALIZATION,
    &math::unary::LEAKY_RELU,
    &math::binary::LESS,
    &math::binary::LESS_OR_EQUAL,
    &nn::attention::LINEAR_ATTENTION,
    &math::unary::LOG,
    &math::softmax::LOG_SOFTMAX,
    &control::LOOP,
    &nn::layer_normalization::LP_NORMALIZATION,
    &nn::lp_pool::LP_POOL,
    &math::matmul::MATMUL,
    &quantization::MATMUL_INTEGER,
    &math::variadic::MAX,
    &nn::max_pool::MAX_POOL,
    &image::MAX_ROI_POOL,
    &nn::max_unpool::MAX_UNPOOL,
    &math::variadic::MEAN,
    &nn::layer_normalization::MEAN_VARIANCE_NORMALIZATION,
    &signal::MEL_WEIGHT_MATRIX,
    &math::variadic::MIN,
    &math::unary::MISH,
    &math::binary::MOD,
    &math::binary::MUL,
    &random::MULTINOMIAL,
    &math::unary::NEG,
    &nn::loss::NEGATIVE_LOG_LIKELIHOOD_LOSS,
    &image::NON_MAX_SUPPRESSION,
    &tensor::select::NON_ZERO,
    &math::unary::NOT,
    &tensor::generate::ONE_HOT,
    &optional::OPTIONAL,
    &optional::OPTIONAL_GET_ELEMENT,
    &optional::OPTIONAL_HAS_ELEMENT,
    &math::binary::OR,
    &math::prelu::PRELU,
    &tensor::pad::PAD,
    &math::binary::POW,
    &quantization::QLINEAR_CONV,
    &quantization::QLINEAR_MATMUL,
    &quantization::QUANTIZE_LINEAR,
    &nn::layer_normalization::RMS_NORMALIZATION,
    &nn::recurrent::RNN,
    &random::RANDOM_NORMAL,
    &random::RANDOM_NORMAL_LIKE,
    &random::RANDOM_UNIFORM,
    &random::RANDOM_UNIFORM_LIKE,
    &tensor::generate::RANGE,
    &math::unary::RECIPROCAL,
    &reduction::REDUCE_L1,
    &reduction::REDUCE_L2,
    &reduction::REDUCE_LOG_SUM,
    &reduction::REDUCE_LOG_SUM_EXP,
    &reduction::REDUCE_MAX,
    &reduction::REDUCE_MEAN,
    &reduction::REDUCE_MIN,
    &reduction::REDUCE_PROD,
    &reduction::REDUCE_SUM,
    &reduction::REDUCE_SUM_SQUARE,
    &text::REGEX_FULL_MATCH,
    &math::unary::RELU,
    &tensor::reshape::RESHAPE,
    &image::RESIZE,
    &tensor::rearrange::REVERSE_SEQUENCE,
    &image::ROI_ALIGN,
    &nn::attention::ROTARY_EMBEDDING,
    &math::unary::ROUND,
    &signal::STFT,
    &control::SCAN,
    &tensor::scatter::SCATTER,
    &tensor::scatter::SCATTER_ELEMENTS,
    &tensor::scatter::SCATTER_ND,
    &math::unary::SELU,
    &sequence::SEQUENCE_AT,
    &sequence::SEQUENCE_CONSTRUCT,
    &sequence::SEQUENCE_EMPTY,
    &sequence::SEQUENCE_ERASE,
    &sequence::SEQUENCE_INSERT,
    &sequence::SEQUENCE_LENGTH,
    &sequence::SEQUENCE_MAP,
    &tensor::shape::SHAPE,
    &math::gated::SHRINK,
    &math::unary::SIGMOID,
    &math::unary::SIGN,
    &math::unary::SIN,
    &math::unary::SINH,
    &tensor::size::SIZE,
    &tensor::slice::SLICE,
    &math::softmax::SOFTMAX,
    &nn::loss::SOFTMAX_CROSS_ENTROPY_LOSS,
    &math::unary::SOFTPLUS,
    &math::unary::SOFTSIGN,
    &tensor::rearrange::SPACE_TO_DEPTH,
    &tensor::split::SPLIT,
    &sequence::SPLIT_TO_SEQUENCE,
    &math::unary::SQRT,
    &tensor::squeeze::SQUEEZE,
    &text::STRING_CONCAT,
    &text::STRING_NORMALIZER,
    &text::STRING_SPLIT,
    &math::binary::SUB,
    &math::variadic::SUM,
    &math::gated::SWIGLU,
    &math::gated::SWISH,
    &math::unary::TAN,
    &math::unary::TANH,
    &tensor::scatter::TENSOR_SCATTER,
    &text::TF_IDF_VECTORIZER,
    &math::unary::THRESHOLDED_RELU,
    &tensor::rearrange::TILE,
    &tensor::select::TOP_K,
    &tensor::transpose::TRANSPOSE,
    &tensor::generate::TRILU,
    &tensor::select::UNIQUE,
    &tensor::unsqueeze::UNSQUEEZE,
    &image::UPSAMPLE,
    &tensor::where_::WHERE,
    &math::binary::XOR,
    &ml::features::ARRAY_FEATURE_EXTRACTOR,
    &ml::features::BINARIZER,
    &ml::maps::CAST_MAP,
    &ml::maps::CATEGORY_MAPPER,
    &ml::maps::DICT_VECTORIZER,
    &ml::features::FEATURE_VECTORIZER,
    &ml::features::IMPUTER,
    &ml::maps::LABEL_ENCODER,
    &ml::models::LINEAR_CLASSIFIER,
    &ml::models::LINEAR_REGRESSOR,
    &ml::features::NORMALIZER,
    &ml::features::ONE_HOT_ENCODER,
    &ml::models::SVM_CLASSIFIER,
    &ml::models::SVM_REGRESSOR,
    &ml::features::SCALER,
    &ml::models::TREE_ENSEMBLE,
    &ml::models::TREE_ENSEMBLE_CLASSIFIER,
    &ml::models::TREE_ENSEMBLE_REGRESSOR,
    &ml::maps::ZIP_MAP,
    &nn::attention::FLEX_ATTENTION,
    &training::ADAGRAD,
    &training::ADAM,
    &training::GRADIENT,
    &training::MOMENTUM,
];

/// Where operators are looked up. A value to pass around: user-defined operators will be a layer over the standard's.
#[derive(Debug, Clone, Copy)]
pub struct Registry(());

impl Registry {
    /// The operators of the standard.
    pub fn standard() -> Registry {
        Registry(())
    }

    /// All operators, by domain and name.
    pub fn operators(self) -> impl Iterator<Item = &'static OpDef> {
        OPERATORS.iter().copied()
    }

    /// An operator in all of its versions.
    pub fn operator(self, domain: &str, name: &str) -> Option<&'static OpDef> {
        let domain = if domain == "ai.onnx" { "" } else { domain };
        OPERATORS
            .binary_search_by(|op| (op.domain, op.name).cmp(&(domain, name)))
            .ok()
            .map(|index| OPERATORS[index])
    }

    /// What an operator says at an opset version. Expanded once and kept.
    pub fn schema(self, domain: &str, name: &str, opset: u32) -> Option<&'static Schema> {
        static EXPANDED: OnceLock<HashMap<(&'static str, &'static str, u32), Schema>> =
            OnceLock::new();
        let op = self.operator(domain, name)?;
        let since = op.version_at(opset)?;
        let expanded = EXPANDED.get_or_init(|| {
            let versions = OPERATORS
                .iter()
                .flat_map(|op| op.versions().map(|version| (*op, version.since)));
            versions
                .filter_map(|(op, since)| Some(((op.domain, op.name, since), op.schema_at(since)?)))
                .collect()
        });
        expanded.get(&(op.domain, op.name, since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_every_version_expands() {
        assert!(
            OPERATORS
                .windows(2)
                .all(|pair| (pair[0].domain, pair[0].name) < (pair[1].domain, pair[1].name))
        );
        for op in OPERATORS {
            assert!(op.about.ends_with('.'), "{} says what it does", op.name);
            let versions: Vec<u32> = op.versions().map(|version| version.since).collect();
            assert!(
                versions.windows(2).all(|pair| pair[0] < pair[1]),
                "{}",
                op.name
            );
            for since in versions {
                assert_eq!(
                    op.schema_at(since).map(|schema| schema.since),
                    Some(since),
                    "{}",
                    op.name
                );
            }
            for adapter in op.adapters() {
                let boundary = adapter.from.max(adapter.to);
                assert!(
                    op.versions().any(|version| version.since == boundary),
                    "{} has no version {boundary}",
                    op.name
                );
            }
        }
    }
}
