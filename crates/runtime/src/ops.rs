//! The bindings: how each operator runs, one file each at the path of its meaning.
//!
//! A binding reads attributes and types once, decides which loop runs, and at run time hands slices
//! to it. It knows the newest form of its operator only; older nodes have been upgraded.

mod math;
mod narrow;
mod nn;
mod reduction;
mod tensor;
#[cfg(test)]
mod testing;

use sardonyx_ops::compare_domains;

use crate::kernel::Bind;

pub(crate) use math::chain::{Chain, Link};

/// Every binding, by domain and name, sorted.
static BINDINGS: &[(&str, &str, Bind)] = &[
    ("", "Abs", math::unary::bind_abs),
    ("", "Acos", math::unary::bind_acos),
    ("", "Acosh", math::unary::bind_acosh),
    ("", "Add", math::binary::bind_add),
    ("", "And", math::binary::bind_and),
    ("", "ArgMax", reduction::bind_arg_max),
    ("", "ArgMin", reduction::bind_arg_min),
    ("", "Asin", math::unary::bind_asin),
    ("", "Asinh", math::unary::bind_asinh),
    ("", "Atan", math::unary::bind_atan),
    ("", "Atanh", math::unary::bind_atanh),
    ("", "Attention", nn::attention::dot_product::bind),
    ("", "AveragePool", nn::pool::bind_average),
    ("", "BatchNormalization", nn::batch_normalization::bind),
    ("", "BitShift", math::binary::bind_bit_shift),
    ("", "BitwiseAnd", math::binary::bind_bitwise_and),
    ("", "BitwiseNot", math::unary::bind_bitwise_not),
    ("", "BitwiseOr", math::binary::bind_bitwise_or),
    ("", "BitwiseXor", math::binary::bind_bitwise_xor),
    ("", "Cast", tensor::cast::bind),
    ("", "Ceil", math::unary::bind_ceil),
    ("", "Celu", math::unary::bind_celu),
    ("", "Clip", math::clip::bind),
    ("", "Concat", tensor::concat::bind),
    ("", "Constant", tensor::constant::bind),
    ("", "ConstantOfShape", tensor::constant_of_shape::bind),
    ("", "Conv", nn::conv::bind),
    ("", "Cos", math::unary::bind_cos),
    ("", "Cosh", math::unary::bind_cosh),
    ("", "CumSum", math::cumulative::bind_sum),
    ("", "Div", math::binary::bind_div),
    ("", "Dropout", nn::dropout::bind),
    ("", "Elu", math::unary::bind_elu),
    ("", "Equal", math::binary::bind_equal),
    ("", "Erf", math::unary::bind_erf),
    ("", "Exp", math::unary::bind_exp),
    ("", "Expand", tensor::expand::bind),
    ("", "EyeLike", tensor::generate::bind_eye_like),
    ("", "Flatten", tensor::reshape::bind_flatten),
    ("", "Floor", math::unary::bind_floor),
    ("", "Gather", tensor::gather::bind),
    ("", "GatherElements", tensor::gather_elements::bind_gather_elements),
    ("", "GatherND", tensor::gather_elements::bind_gather_nd),
    ("", "Gelu", math::unary::bind_gelu),
    ("", "Gemm", math::gemm::bind),
    ("", "GlobalAveragePool", nn::global_pool::bind_average),
    ("", "GlobalMaxPool", nn::global_pool::bind_max),
    ("", "Greater", math::binary::bind_greater),
    ("", "GreaterOrEqual", math::binary::bind_greater_or_equal),
    ("", "GroupNormalization", nn::layer_normalization::bind_groups),
    ("", "HardSigmoid", math::unary::bind_hard_sigmoid),
    ("", "HardSwish", math::unary::bind_hard_swish),
    ("", "Hardmax", math::softmax::bind_hardmax),
    ("", "Identity", tensor::reshape::bind_identity),
    ("", "InstanceNormalization", nn::instance_normalization::bind),
    ("", "IsInf", math::classify::bind_is_inf),
    ("", "IsNaN", math::classify::bind_is_nan),
    ("", "LRN", nn::lrn::bind),
    ("", "LayerNormalization", nn::layer_normalization::bind_layer),
    ("", "LeakyRelu", math::unary::bind_leaky_relu),
    ("", "Less", math::binary::bind_less),
    ("", "LessOrEqual", math::binary::bind_less_or_equal),
    ("", "Log", math::unary::bind_log),
    ("", "LogSoftmax", math::softmax::bind_log_softmax),
    ("", "LpNormalization", nn::layer_normalization::bind_lp),
    ("", "MatMul", math::matmul::bind),
    ("", "Max", math::variadic::bind_max),
    ("", "MaxPool", nn::pool::bind_max),
    ("", "Mean", math::variadic::bind_mean),
    ("", "MeanVarianceNormalization", nn::layer_normalization::bind_mean_variance),
    ("", "Min", math::variadic::bind_min),
    ("", "Mish", math::unary::bind_mish),
    ("", "Mod", math::binary::bind_mod),
    ("", "Mul", math::binary::bind_mul),
    ("", "Neg", math::unary::bind_neg),
    ("", "NonZero", tensor::select::bind_non_zero),
    ("", "Not", math::unary::bind_not),
    ("", "OneHot", tensor::generate::bind_one_hot),
    ("", "Or", math::binary::bind_or),
    ("", "PRelu", math::prelu::bind),
    ("", "Pad", tensor::pad::bind),
    ("", "Pow", math::binary::bind_pow),
    ("", "RMSNormalization", nn::layer_normalization::bind_root_mean_square),
    ("", "Range", tensor::generate::bind_range),
    ("", "Reciprocal", math::unary::bind_reciprocal),
    ("", "ReduceL1", reduction::bind_reduce_l1),
    ("", "ReduceL2", reduction::bind_reduce_l2),
    ("", "ReduceLogSum", reduction::bind_reduce_log_sum),
    ("", "ReduceLogSumExp", reduction::bind_reduce_log_sum_exp),
    ("", "ReduceMax", reduction::bind_reduce_max),
    ("", "ReduceMean", reduction::bind_reduce_mean),
    ("", "ReduceMin", reduction::bind_reduce_min),
    ("", "ReduceProd", reduction::bind_reduce_prod),
    ("", "ReduceSum", reduction::bind_reduce_sum),
    ("", "ReduceSumSquare", reduction::bind_reduce_sum_square),
    ("", "Relu", math::unary::bind_relu),
    ("", "Reshape", tensor::reshape::bind_reshape),
    ("", "RotaryEmbedding", nn::attention::rotary::bind),
    ("", "Round", math::unary::bind_round),
    ("", "ScatterElements", tensor::scatter::bind_scatter_elements),
    ("", "ScatterND", tensor::scatter::bind_scatter_nd),
    ("", "Selu", math::unary::bind_selu),
    ("", "Shape", tensor::shape::bind),
    ("", "Sigmoid", math::unary::bind_sigmoid),
    ("", "Sign", math::unary::bind_sign),
    ("", "Sin", math::unary::bind_sin),
    ("", "Sinh", math::unary::bind_sinh),
    ("", "Size", tensor::size::bind),
    ("", "Slice", tensor::slice::bind),
    ("", "Softmax", math::softmax::bind_softmax),
    ("", "Softplus", math::unary::bind_softplus),
    ("", "Softsign", math::unary::bind_softsign),
    ("", "Split", tensor::split::bind),
    ("", "Sqrt", math::unary::bind_sqrt),
    ("", "Squeeze", tensor::reshape::bind_squeeze),
    ("", "Sub", math::binary::bind_sub),
    ("", "Sum", math::variadic::bind_sum),
    ("", "Swish", math::gated::bind_swish),
    ("", "Tan", math::unary::bind_tan),
    ("", "Tanh", math::unary::bind_tanh),
    ("", "ThresholdedRelu", math::unary::bind_thresholded_relu),
    ("", "Tile", tensor::rearrange::bind_tile),
    ("", "TopK", tensor::select::bind_top_k),
    ("", "Transpose", tensor::transpose::bind),
    ("", "Trilu", tensor::generate::bind_trilu),
    ("", "Unsqueeze", tensor::reshape::bind_unsqueeze),
    ("", "Where", tensor::where_::bind),
    ("", "Xor", math::binary::bind_xor),
];

/// The binding of an operator.
pub(crate) fn binding(domain: &str, name: &str) -> Option<Bind> {
    let index = BINDINGS
        .binary_search_by(|(d, n, _)| compare_domains(d, domain).then_with(|| n.cmp(&name)))
        .ok()?;
    Some(BINDINGS[index].2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(BINDINGS.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}
