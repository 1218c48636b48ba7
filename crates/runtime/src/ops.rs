//! The bindings: how each operator runs, one file each at the path of its meaning.
//!
//! An operator that rewrites look into is lowered to an operation of the [program](crate::program),
//! for which a kernel is selected in the end. For any other a kernel is made from the node. Either
//! reads attributes and types once; at run time the kernel hands slices to a loop. Only the newest
//! form of an operator is known here; older nodes have been upgraded.

mod math;
mod narrow;
mod nn;
mod reduction;
mod tensor;
#[cfg(test)]
mod testing;

use sardonyx_ops::compare_domains;

use crate::error::BindError;
use crate::kernel::Selected;
use crate::kernel::{Kernel, Site};
use crate::program::{Op, ProductForm};

pub(crate) use math::pointwise::limits;

use tensor::constant_of_shape::ConstantOfShape;

/// Every binding, by domain and name, sorted.
static BINDINGS: &[(&str, &str, Binding)] = &[
    ("", "Abs", lower(math::unary::lower_abs)),
    ("", "Acos", lower(math::unary::lower_acos)),
    ("", "Acosh", lower(math::unary::lower_acosh)),
    ("", "Add", lower(math::binary::lower_add)),
    ("", "And", bind(math::binary::bind_and)),
    ("", "ArgMax", bind(reduction::bind_arg_max)),
    ("", "ArgMin", bind(reduction::bind_arg_min)),
    ("", "Asin", lower(math::unary::lower_asin)),
    ("", "Asinh", lower(math::unary::lower_asinh)),
    ("", "Atan", lower(math::unary::lower_atan)),
    ("", "Atanh", lower(math::unary::lower_atanh)),
    ("", "Attention", lower(nn::attention::dot_product::lower)),
    ("", "AveragePool", bind(nn::pool::bind_average)),
    ("", "BatchNormalization", pack(nn::batch_normalization::bind)),
    ("", "BitShift", bind(math::binary::bind_bit_shift)),
    ("", "BitwiseAnd", bind(math::binary::bind_bitwise_and)),
    ("", "BitwiseNot", bind(math::unary::bind_bitwise_not)),
    ("", "BitwiseOr", bind(math::binary::bind_bitwise_or)),
    ("", "BitwiseXor", bind(math::binary::bind_bitwise_xor)),
    ("", "Cast", either(tensor::cast::lower, tensor::cast::bind)),
    ("", "Ceil", lower(math::unary::lower_ceil)),
    ("", "Celu", lower(math::unary::lower_celu)),
    ("", "Clip", either(math::clip::lower, math::clip::bind)),
    ("", "Concat", bind(tensor::concat::bind)),
    ("", "Constant", bind(tensor::constant::bind)),
    ("", "ConstantOfShape", lower(tensor::constant_of_shape::lower)),
    ("", "Conv", lower(nn::conv::lower)),
    ("", "Cos", lower(math::unary::lower_cos)),
    ("", "Cosh", lower(math::unary::lower_cosh)),
    ("", "CumSum", bind(math::cumulative::bind_sum)),
    ("", "Div", lower(math::binary::lower_div)),
    ("", "Dropout", lower(nn::dropout::lower)),
    ("", "Elu", lower(math::unary::lower_elu)),
    ("", "Equal", bind(math::binary::bind_equal)),
    ("", "Erf", lower(math::unary::lower_erf)),
    ("", "Exp", lower(math::unary::lower_exp)),
    ("", "Expand", lower(tensor::expand::lower)),
    ("", "EyeLike", bind(tensor::generate::bind_eye_like)),
    ("", "Flatten", lower(tensor::reshape::lower_flatten)),
    ("", "Floor", lower(math::unary::lower_floor)),
    ("", "Gather", lower(tensor::gather::lower)),
    ("", "GatherElements", bind(tensor::gather_elements::bind_gather_elements)),
    ("", "GatherND", bind(tensor::gather_elements::bind_gather_nd)),
    ("", "Gelu", lower(math::unary::lower_gelu)),
    ("", "Gemm", lower(math::gemm::lower)),
    ("", "GlobalAveragePool", bind(nn::global_pool::bind_average)),
    ("", "GlobalMaxPool", bind(nn::global_pool::bind_max)),
    ("", "Greater", bind(math::binary::bind_greater)),
    ("", "GreaterOrEqual", bind(math::binary::bind_greater_or_equal)),
    ("", "GroupNormalization", bind(nn::layer_normalization::bind_groups)),
    ("", "HardSigmoid", lower(math::unary::lower_hard_sigmoid)),
    ("", "HardSwish", lower(math::unary::lower_hard_swish)),
    ("", "Hardmax", bind(math::softmax::bind_hardmax)),
    ("", "Identity", lower(tensor::reshape::lower_identity)),
    ("", "InstanceNormalization", bind(nn::instance_normalization::bind)),
    ("", "IsInf", bind(math::classify::bind_is_inf)),
    ("", "IsNaN", bind(math::classify::bind_is_nan)),
    ("", "LRN", bind(nn::lrn::bind)),
    ("", "LayerNormalization", lower(nn::layer_normalization::lower_layer)),
    ("", "LeakyRelu", lower(math::unary::lower_leaky_relu)),
    ("", "Less", bind(math::binary::bind_less)),
    ("", "LessOrEqual", bind(math::binary::bind_less_or_equal)),
    ("", "Log", lower(math::unary::lower_log)),
    ("", "LogSoftmax", bind(math::softmax::bind_log_softmax)),
    ("", "LpNormalization", bind(nn::layer_normalization::bind_lp)),
    ("", "MatMul", lower(math::matmul::lower)),
    ("", "Max", either(math::variadic::lower_max, math::variadic::bind_max)),
    ("", "MaxPool", bind(nn::pool::bind_max)),
    ("", "Mean", bind(math::variadic::bind_mean)),
    ("", "MeanVarianceNormalization", bind(nn::layer_normalization::bind_mean_variance)),
    ("", "Min", either(math::variadic::lower_min, math::variadic::bind_min)),
    ("", "Mish", lower(math::unary::lower_mish)),
    ("", "Mod", lower(math::binary::lower_mod)),
    ("", "Mul", lower(math::binary::lower_mul)),
    ("", "Neg", lower(math::unary::lower_neg)),
    ("", "NonZero", bind(tensor::select::bind_non_zero)),
    ("", "Not", bind(math::unary::bind_not)),
    ("", "OneHot", bind(tensor::generate::bind_one_hot)),
    ("", "Or", bind(math::binary::bind_or)),
    ("", "PRelu", lower(math::prelu::lower)),
    ("", "Pad", bind(tensor::pad::bind)),
    ("", "Pow", either(math::binary::lower_pow, math::binary::bind_pow)),
    (
        "",
        "RMSNormalization",
        either(
            nn::layer_normalization::lower_root_mean_square,
            nn::layer_normalization::bind_root_mean_square,
        ),
    ),
    ("", "Range", bind(tensor::generate::bind_range)),
    ("", "Reciprocal", lower(math::unary::lower_reciprocal)),
    ("", "ReduceL1", bind(reduction::bind_reduce_l1)),
    ("", "ReduceL2", bind(reduction::bind_reduce_l2)),
    ("", "ReduceLogSum", bind(reduction::bind_reduce_log_sum)),
    ("", "ReduceLogSumExp", bind(reduction::bind_reduce_log_sum_exp)),
    ("", "ReduceMax", bind(reduction::bind_reduce_max)),
    ("", "ReduceMean", bind(reduction::bind_reduce_mean)),
    ("", "ReduceMin", bind(reduction::bind_reduce_min)),
    ("", "ReduceProd", bind(reduction::bind_reduce_prod)),
    ("", "ReduceSum", bind(reduction::bind_reduce_sum)),
    ("", "ReduceSumSquare", bind(reduction::bind_reduce_sum_square)),
    ("", "Relu", lower(math::unary::lower_relu)),
    ("", "Reshape", lower(tensor::reshape::lower_reshape)),
    ("", "RotaryEmbedding", bind(nn::attention::rotary::bind)),
    ("", "Round", lower(math::unary::lower_round)),
    ("", "ScatterElements", bind(tensor::scatter::bind_scatter_elements)),
    ("", "ScatterND", bind(tensor::scatter::bind_scatter_nd)),
    ("", "Selu", lower(math::unary::lower_selu)),
    ("", "Shape", bind(tensor::shape::bind)),
    ("", "Sigmoid", lower(math::unary::lower_sigmoid)),
    ("", "Sign", lower(math::unary::lower_sign)),
    ("", "Sin", lower(math::unary::lower_sin)),
    ("", "Sinh", lower(math::unary::lower_sinh)),
    ("", "Size", bind(tensor::size::bind)),
    ("", "Slice", lower(tensor::slice::lower)),
    ("", "Softmax", bind(math::softmax::bind_softmax)),
    ("", "Softplus", lower(math::unary::lower_softplus)),
    ("", "Softsign", lower(math::unary::lower_softsign)),
    ("", "Split", lower(tensor::split::lower)),
    ("", "Sqrt", lower(math::unary::lower_sqrt)),
    ("", "Squeeze", lower(tensor::reshape::lower_squeeze)),
    ("", "Sub", lower(math::binary::lower_sub)),
    ("", "Sum", either(math::variadic::lower_sum, math::variadic::bind_sum)),
    ("", "Swish", lower(math::gated::lower_swish)),
    ("", "Tan", lower(math::unary::lower_tan)),
    ("", "Tanh", lower(math::unary::lower_tanh)),
    ("", "ThresholdedRelu", lower(math::unary::lower_thresholded_relu)),
    ("", "Tile", lower(tensor::rearrange::lower_tile)),
    ("", "TopK", bind(tensor::select::bind_top_k)),
    ("", "Transpose", lower(tensor::transpose::lower)),
    ("", "Trilu", bind(tensor::generate::bind_trilu)),
    ("", "Unsqueeze", lower(tensor::reshape::lower_unsqueeze)),
    ("", "Where", bind(tensor::where_::bind)),
    ("", "Xor", bind(math::binary::bind_xor)),
];

/// How an operator runs.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// How a node becomes an operation that rewrites look into, or an opaque one; without, it is
    /// opaque.
    lower: Option<Lower>,
    /// How an opaque operation becomes a kernel.
    bind: Option<Bind>,
}

type Lower = fn(&Site<'_>) -> Result<Op, BindError>;

#[derive(Clone, Copy)]
enum Bind {
    Kernel(fn(&Site<'_>) -> Result<Box<dyn Kernel>, BindError>),
    /// A kernel that packs constants.
    Packing(fn(&Site<'_>) -> Result<Selected, BindError>),
}

/// An operator that is opaque to rewrites.
const fn bind(bind: fn(&Site<'_>) -> Result<Box<dyn Kernel>, BindError>) -> Binding {
    Binding { lower: None, bind: Some(Bind::Kernel(bind)) }
}

/// An opaque operator whose kernel packs constants.
const fn pack(bind: fn(&Site<'_>) -> Result<Selected, BindError>) -> Binding {
    Binding { lower: None, bind: Some(Bind::Packing(bind)) }
}

/// An operator with an operation of its own.
const fn lower(lower: Lower) -> Binding {
    Binding { lower: Some(lower), bind: None }
}

/// An operator with an operation of its own in some cases, which is opaque in others.
const fn either(
    lower: Lower,
    bind: fn(&Site<'_>) -> Result<Box<dyn Kernel>, BindError>,
) -> Binding {
    Binding { lower: Some(lower), bind: Some(Bind::Kernel(bind)) }
}

impl Binding {
    /// The operation of a node.
    pub(crate) fn lower(&self, site: &Site<'_>) -> Result<Op, BindError> {
        match self.lower {
            Some(lower) => lower(site),
            None => Ok(Op::opaque(site)),
        }
    }

    /// The kernel of an opaque operation.
    fn select(&self, site: &Site<'_>) -> Result<Selected, BindError> {
        match self.bind {
            Some(Bind::Kernel(bind)) => bind(site).map(Selected::from),
            Some(Bind::Packing(bind)) => bind(site),
            None => Err(BindError::Unsupported("operator not implemented".to_string())),
        }
    }
}

/// The kernel of an operation. `binding` is that of the operator that it was made from.
pub(crate) fn select(op: &Op, binding: &Binding, site: &Site<'_>) -> Result<Selected, BindError> {
    Ok(match op {
        Op::Product(product) => match product.form {
            ProductForm::MatMul => math::matmul::select(site, product),
            ProductForm::Gemm => math::gemm::select(site, product),
        },
        Op::Conv(conv) => nn::conv::select(site, conv)?,
        Op::Attention(attention) => nn::attention::dot_product::select(site, attention)?.into(),
        Op::Pointwise(pointwise) => math::pointwise::select(site, pointwise)?.into(),
        Op::Norm(norm) => nn::layer_normalization::select(site, norm)?.into(),
        Op::Move(moved) => moved.kind.kernel().into(),
        Op::Fill(fill) => Selected::new(ConstantOfShape(fill.one.clone())),
        Op::Opaque(_) => binding.select(site)?,
    })
}

/// The binding of an operator.
pub(crate) fn binding(domain: &str, name: &str) -> Option<&'static Binding> {
    let index = BINDINGS
        .binary_search_by(|(d, n, _)| compare_domains(d, domain).then_with(|| n.cmp(&name)))
        .ok()?;
    Some(&BINDINGS[index].2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(BINDINGS.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}
