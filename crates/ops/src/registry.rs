//! The list of all definitions, and looking operators up.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::def::OpDef;
use crate::schema::Schema;
use crate::{math, nn, reduction, tensor};

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
    &math::binary::AND,
    &reduction::ARG_MAX,
    &reduction::ARG_MIN,
    &math::unary::ASIN,
    &math::unary::ASINH,
    &math::unary::ATAN,
    &math::unary::ATANH,
    &nn::average_pool::AVERAGE_POOL,
    &nn::batch_normalization::BATCH_NORMALIZATION,
    &math::binary::BIT_SHIFT,
    &math::binary::BITWISE_AND,
    &math::unary::BITWISE_NOT,
    &math::binary::BITWISE_OR,
    &math::binary::BITWISE_XOR,
    &tensor::cast::CAST,
    &math::unary::CEIL,
    &math::unary::CELU,
    &math::clip::CLIP,
    &tensor::concat::CONCAT,
    &tensor::constant::CONSTANT,
    &tensor::constant_of_shape::CONSTANT_OF_SHAPE,
    &nn::conv::CONV,
    &math::unary::COS,
    &math::unary::COSH,
    &math::binary::DIV,
    &nn::dropout::DROPOUT,
    &math::unary::ELU,
    &math::binary::EQUAL,
    &math::unary::ERF,
    &math::unary::EXP,
    &tensor::expand::EXPAND,
    &tensor::flatten::FLATTEN,
    &math::unary::FLOOR,
    &tensor::gather::GATHER,
    &math::unary::GELU,
    &math::gemm::GEMM,
    &nn::global_pool::GLOBAL_AVERAGE_POOL,
    &nn::global_pool::GLOBAL_MAX_POOL,
    &math::binary::GREATER,
    &math::binary::GREATER_OR_EQUAL,
    &math::unary::HARD_SIGMOID,
    &math::unary::HARD_SWISH,
    &math::softmax::HARDMAX,
    &tensor::identity::IDENTITY,
    &nn::instance_normalization::INSTANCE_NORMALIZATION,
    &nn::lrn::LRN,
    &math::unary::LEAKY_RELU,
    &math::binary::LESS,
    &math::binary::LESS_OR_EQUAL,
    &math::unary::LOG,
    &math::softmax::LOG_SOFTMAX,
    &math::matmul::MATMUL,
    &math::variadic::MAX,
    &nn::max_pool::MAX_POOL,
    &math::variadic::MEAN,
    &math::variadic::MIN,
    &math::unary::MISH,
    &math::binary::MOD,
    &math::binary::MUL,
    &math::unary::NEG,
    &math::unary::NOT,
    &math::binary::OR,
    &math::prelu::PRELU,
    &tensor::pad::PAD,
    &math::binary::POW,
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
    &math::unary::RELU,
    &tensor::reshape::RESHAPE,
    &math::unary::ROUND,
    &math::unary::SELU,
    &tensor::shape::SHAPE,
    &math::unary::SIGMOID,
    &math::unary::SIGN,
    &math::unary::SIN,
    &math::unary::SINH,
    &tensor::size::SIZE,
    &tensor::slice::SLICE,
    &math::softmax::SOFTMAX,
    &math::unary::SOFTPLUS,
    &math::unary::SOFTSIGN,
    &tensor::split::SPLIT,
    &math::unary::SQRT,
    &tensor::squeeze::SQUEEZE,
    &math::binary::SUB,
    &math::variadic::SUM,
    &math::unary::TAN,
    &math::unary::TANH,
    &math::unary::THRESHOLDED_RELU,
    &tensor::transpose::TRANSPOSE,
    &tensor::unsqueeze::UNSQUEEZE,
    &tensor::where_::WHERE,
    &math::binary::XOR,
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
