//! The bindings: how each operator runs, one file each at the path of its meaning.
//!
//! An operator that rewrites look into is lowered to an operation of the [program](crate::program),
//! for which a kernel is selected in the end. For any other a kernel is made from the node. Either
//! reads attributes and types once; at run time the kernel hands slices to a loop. Only the newest
//! form of an operator is known here; older nodes have been upgraded, but for those that
//! [have no newer form](has_no_newer_form).

mod image;
mod math;
mod microsoft;
mod ml;
mod narrow;
mod nn;
mod optional;
mod quantization;
mod random;
mod reduction;
mod sequence;
mod signal;
mod tensor;
#[cfg(test)]
mod testing;
mod text;
mod training;

use std::sync::LazyLock;

use hashbrown::HashMap;
use sardonyx_model::{NodeAttributes, NodeId};
use sardonyx_ops::{Attributes, OpDef, Schema};
use sardonyx_passes::Resolved;
use sardonyx_tensor::DataType;

use crate::error::BindError;
use crate::kernel::{Kernel, Selected, Site};
use crate::program::{Images, Op, Order, ProductForm};

pub(crate) use math::pointwise::limits;

use math::over_images::OverImages;
use tensor::constant_of_shape::ConstantOfShape;

/// Every binding, by domain and name, sorted.
static BINDINGS: &[(&str, &str, Binding)] = &[
    ("", "Abs", lowered(math::unary::lower_abs)),
    ("", "Acos", lowered(math::unary::lower_acos)),
    ("", "Acosh", lowered(math::unary::lower_acosh)),
    ("", "Add", lowered(math::binary::lower_add)),
    ("", "And", lowered(math::binary::lower_and)),
    ("", "ArgMax", bind(reduction::bind_arg_max)),
    ("", "ArgMin", bind(reduction::bind_arg_min)),
    ("", "Asin", lowered(math::unary::lower_asin)),
    ("", "Asinh", lowered(math::unary::lower_asinh)),
    ("", "Atan", lowered(math::unary::lower_atan)),
    ("", "Atanh", lowered(math::unary::lower_atanh)),
    ("", "Attention", lowered(nn::attention::dot_product::lower)),
    ("", "AveragePool", of_images(nn::pool::bind_average, nn::pool::windows)),
    (
        "",
        "BatchNormalization",
        either(nn::batch_normalization::lower, nn::batch_normalization::bind),
    ),
    ("", "Bernoulli", bind(random::bind_bernoulli)),
    ("", "BitCast", either(tensor::bit_cast::lower, tensor::bit_cast::bind)),
    ("", "BitShift", bind(math::binary::bind_bit_shift)),
    ("", "BitwiseAnd", bind(math::binary::bind_bitwise_and)),
    ("", "BitwiseNot", bind(math::unary::bind_bitwise_not)),
    ("", "BitwiseOr", bind(math::binary::bind_bitwise_or)),
    ("", "BitwiseXor", bind(math::binary::bind_bitwise_xor)),
    ("", "Cast", either(tensor::cast::lower, tensor::cast::bind)),
    ("", "Ceil", lowered(math::unary::lower_ceil)),
    ("", "Celu", lowered(math::unary::lower_celu)),
    ("", "Clip", either(math::clip::lower, math::clip::bind)),
    ("", "Col2Im", bind(nn::col2im::bind)),
    ("", "Compress", bind(tensor::select::bind_compress)),
    ("", "Concat", lowered(tensor::concat::lower)),
    ("", "ConcatFromSequence", bind(sequence::bind_concat)),
    ("", "Constant", bind(tensor::constant::bind)),
    ("", "ConstantOfShape", lowered(tensor::constant_of_shape::lower)),
    ("", "Conv", lowered(nn::conv::lower)),
    ("", "ConvInteger", packing(quantization::conv::bind_integer)),
    ("", "ConvTranspose", packing(nn::conv_transpose::bind)),
    ("", "Cos", lowered(math::unary::lower_cos)),
    ("", "Cosh", lowered(math::unary::lower_cosh)),
    ("", "CumProd", bind(math::cumulative::bind_product)),
    ("", "CumSum", bind(math::cumulative::bind_sum)),
    ("", "DFT", bind(signal::fourier::bind_dft)),
    ("", "DeformConv", bind(nn::deform_conv::bind)),
    ("", "DequantizeLinear", bind(quantization::linear::bind_dequantize)),
    ("", "Det", bind(math::linear::bind_det)),
    ("", "Div", lowered(math::binary::lower_div)),
    ("", "Dropout", either(nn::dropout::lower, nn::dropout::bind)),
    ("", "DynamicQuantizeLinear", bind(quantization::linear::bind_dynamic)),
    ("", "Einsum", bind(math::einsum::bind)),
    ("", "Elu", lowered(math::unary::lower_elu)),
    ("", "Equal", either(math::binary::lower_equal, math::binary::bind_equal)),
    ("", "Erf", lowered(math::unary::lower_erf)),
    ("", "Exp", lowered(math::unary::lower_exp)),
    ("", "Expand", lowered(tensor::expand::lower)),
    ("", "EyeLike", bind(tensor::generate::bind_eye_like)),
    ("", "Flatten", lowered(tensor::reshape::lower_flatten)),
    ("", "Floor", lowered(math::unary::lower_floor)),
    ("", "GRU", packing(nn::recurrent::bind_gru)),
    ("", "Gather", lowered(tensor::gather::lower)),
    ("", "GatherElements", bind(tensor::gather_elements::bind_gather_elements)),
    ("", "GatherND", bind(tensor::gather_elements::bind_gather_nd)),
    ("", "Gelu", lowered(math::unary::lower_gelu)),
    ("", "Gemm", lowered(math::gemm::lower)),
    ("", "GlobalAveragePool", of_images(nn::global_pool::bind_average, nn::images::reads)),
    ("", "GlobalLpPool", bind(nn::global_pool::bind_lp)),
    ("", "GlobalMaxPool", of_images(nn::global_pool::bind_max, nn::images::reads)),
    ("", "Greater", lowered(math::binary::lower_greater)),
    ("", "GreaterOrEqual", lowered(math::binary::lower_greater_or_equal)),
    ("", "GridSample", bind(image::grid_sample::bind)),
    ("", "GroupNormalization", of_images(nn::layer_normalization::bind_groups, nn::images::gains)),
    ("", "HardSigmoid", lowered(math::unary::lower_hard_sigmoid)),
    ("", "HardSwish", lowered(math::unary::lower_hard_swish)),
    ("", "Hardmax", bind(math::softmax::bind_hardmax)),
    ("", "Identity", lowered(tensor::reshape::lower_identity)),
    ("", "If", REGION),
    ("", "ImageDecoder", bind(image::image_decoder::bind)),
    ("", "InstanceNormalization", of_images(nn::instance_normalization::bind, nn::images::gains)),
    ("", "IsInf", bind(math::classify::bind_is_inf)),
    ("", "IsNaN", bind(math::classify::bind_is_nan)),
    ("", "LRN", of_images(nn::lrn::bind, nn::images::gains)),
    ("", "LSTM", packing(nn::recurrent::bind_lstm)),
    ("", "LayerNormalization", lowered(nn::layer_normalization::lower_layer)),
    ("", "LeakyRelu", lowered(math::unary::lower_leaky_relu)),
    ("", "Less", lowered(math::binary::lower_less)),
    ("", "LessOrEqual", lowered(math::binary::lower_less_or_equal)),
    ("", "Log", lowered(math::unary::lower_log)),
    ("", "LogSoftmax", of_images(math::softmax::bind_log_softmax, math::softmax::images)),
    ("", "Loop", REGION),
    ("", "LpNormalization", bind(nn::layer_normalization::bind_lp)),
    ("", "LpPool", bind(nn::pool::bind_lp)),
    ("", "MatMul", lowered(math::matmul::lower)),
    ("", "MatMulInteger", lowered(math::matmul_integer::lower)),
    ("", "Max", either(math::variadic::lower_max, math::variadic::bind_max)),
    ("", "MaxPool", of_images(nn::pool::bind_max, nn::pool::images_of_max)),
    ("", "MaxRoiPool", bind(image::max_roi_pool::bind)),
    ("", "MaxUnpool", bind(nn::max_unpool::bind)),
    ("", "Mean", bind(math::variadic::bind_mean)),
    ("", "MeanVarianceNormalization", bind(nn::layer_normalization::bind_mean_variance)),
    ("", "MelWeightMatrix", bind(signal::bind_mel_weight_matrix)),
    ("", "Min", either(math::variadic::lower_min, math::variadic::bind_min)),
    ("", "Mish", lowered(math::unary::lower_mish)),
    ("", "Mod", lowered(math::binary::lower_mod)),
    ("", "Mul", lowered(math::binary::lower_mul)),
    ("", "Multinomial", bind(random::bind_multinomial)),
    ("", "Neg", lowered(math::unary::lower_neg)),
    ("", "NegativeLogLikelihoodLoss", bind(nn::loss::bind)),
    ("", "NonMaxSuppression", bind(image::non_max_suppression::bind)),
    ("", "NonZero", bind(tensor::select::bind_non_zero)),
    ("", "Not", lowered(math::binary::lower_not)),
    ("", "OneHot", bind(tensor::generate::bind_one_hot)),
    ("", "Optional", bind(optional::bind)),
    ("", "OptionalGetElement", either(optional::lower_get_element, optional::bind_get_element)),
    ("", "OptionalHasElement", bind(optional::bind_has_element)),
    ("", "Or", lowered(math::binary::lower_or)),
    ("", "PRelu", lowered(math::prelu::lower)),
    ("", "Pad", bind(tensor::pad::bind)),
    ("", "Pow", either(math::binary::lower_pow, math::binary::bind_pow)),
    ("", "QLinearConv", packing(quantization::conv::bind_quantized)),
    ("", "QLinearMatMul", packing(quantization::matmul::bind)),
    ("", "QuantizeLinear", bind(quantization::linear::bind_quantize)),
    (
        "",
        "RMSNormalization",
        either(
            nn::layer_normalization::lower_root_mean_square,
            nn::layer_normalization::bind_root_mean_square,
        ),
    ),
    ("", "RNN", packing(nn::recurrent::bind_rnn)),
    ("", "RandomNormal", bind(random::bind_normal)),
    ("", "RandomNormalLike", bind(random::bind_normal_like)),
    ("", "RandomUniform", bind(random::bind_uniform)),
    ("", "RandomUniformLike", bind(random::bind_uniform_like)),
    ("", "Range", bind(tensor::generate::bind_range)),
    ("", "Reciprocal", lowered(math::unary::lower_reciprocal)),
    ("", "ReduceL1", bind(reduction::bind_reduce_l1)),
    ("", "ReduceL2", bind(reduction::bind_reduce_l2)),
    ("", "ReduceLogSum", bind(reduction::bind_reduce_log_sum)),
    ("", "ReduceLogSumExp", bind(reduction::bind_reduce_log_sum_exp)),
    ("", "ReduceMax", of_images(reduction::bind_reduce_max, reduction::images)),
    ("", "ReduceMean", of_images(reduction::bind_reduce_mean, reduction::images)),
    ("", "ReduceMin", of_images(reduction::bind_reduce_min, reduction::images)),
    ("", "ReduceProd", bind(reduction::bind_reduce_prod)),
    ("", "ReduceSum", of_images(reduction::bind_reduce_sum, reduction::images)),
    ("", "ReduceSumSquare", bind(reduction::bind_reduce_sum_square)),
    ("", "RegexFullMatch", bind(text::full_match::bind)),
    ("", "Relu", lowered(math::unary::lower_relu)),
    ("", "Reshape", lowered(tensor::reshape::lower_reshape)),
    ("", "Resize", of_images(image::resize::bind, image::resize::images)),
    ("", "ReverseSequence", bind(tensor::rearrange::bind_reverse_sequence)),
    ("", "RoiAlign", bind(image::roi_align::bind)),
    ("", "RotaryEmbedding", bind(nn::attention::rotary::bind)),
    ("", "Round", lowered(math::unary::lower_round)),
    ("", "STFT", bind(signal::fourier::bind_stft)),
    ("", "Scan", REGION),
    (
        "",
        "ScatterElements",
        either(tensor::scatter::lower_elements, tensor::scatter::bind_scatter_elements),
    ),
    ("", "ScatterND", bind(tensor::scatter::bind_scatter_nd)),
    ("", "Selu", lowered(math::unary::lower_selu)),
    ("", "SequenceAt", bind(sequence::bind_at)),
    ("", "SequenceConstruct", bind(sequence::bind_construct)),
    ("", "SequenceEmpty", bind(sequence::bind_empty)),
    ("", "SequenceErase", bind(sequence::bind_erase)),
    ("", "SequenceInsert", bind(sequence::bind_insert)),
    ("", "SequenceLength", bind(sequence::bind_length)),
    ("", "Shape", bind(tensor::shape::bind)),
    ("", "Shrink", lowered(math::unary::lower_shrink)),
    ("", "Sigmoid", lowered(math::unary::lower_sigmoid)),
    ("", "Sign", lowered(math::unary::lower_sign)),
    ("", "Sin", lowered(math::unary::lower_sin)),
    ("", "Sinh", lowered(math::unary::lower_sinh)),
    ("", "Size", bind(tensor::size::bind)),
    ("", "Slice", lowered(tensor::slice::lower)),
    ("", "Softmax", of_images(math::softmax::bind_softmax, math::softmax::images)),
    ("", "Softplus", lowered(math::unary::lower_softplus)),
    ("", "Softsign", lowered(math::unary::lower_softsign)),
    ("", "Split", lowered(tensor::split::lower)),
    ("", "SplitToSequence", bind(sequence::bind_split)),
    ("", "Sqrt", lowered(math::unary::lower_sqrt)),
    ("", "Squeeze", lowered(tensor::reshape::lower_squeeze)),
    ("", "StringConcat", bind(text::bind_concat)),
    ("", "StringNormalizer", bind(text::normalize::bind)),
    ("", "StringSplit", bind(text::split::bind)),
    ("", "Sub", lowered(math::binary::lower_sub)),
    ("", "Sum", either(math::variadic::lower_sum, math::variadic::bind_sum)),
    ("", "SwiGLU", either(math::gated::lower_swiglu, math::gated::bind_swiglu)),
    ("", "Swish", lowered(math::gated::lower_swish)),
    ("", "Tan", lowered(math::unary::lower_tan)),
    ("", "Tanh", lowered(math::unary::lower_tanh)),
    ("", "TensorScatter", bind(tensor::scatter::bind_tensor_scatter)),
    ("", "TfIdfVectorizer", bind(text::tf_idf::bind)),
    ("", "ThresholdedRelu", lowered(math::unary::lower_thresholded_relu)),
    ("", "Tile", lowered(tensor::rearrange::lower_tile)),
    ("", "TopK", bind(tensor::select::bind_top_k)),
    ("", "Transpose", lowered(tensor::transpose::lower)),
    ("", "Trilu", bind(tensor::generate::bind_trilu)),
    ("", "Unique", bind(tensor::unique::bind)),
    ("", "Unsqueeze", lowered(tensor::reshape::lower_unsqueeze)),
    ("", "Where", lowered(tensor::where_::lower)),
    ("", "Xor", lowered(math::binary::lower_xor)),
    ("ai.onnx.ml", "ArrayFeatureExtractor", bind(ml::features::bind_array_feature_extractor)),
    ("ai.onnx.ml", "Binarizer", bind(ml::features::bind_binarizer)),
    ("ai.onnx.ml", "CastMap", bind(ml::maps::bind_cast_map)),
    ("ai.onnx.ml", "CategoryMapper", bind(ml::maps::bind_category_mapper)),
    ("ai.onnx.ml", "DictVectorizer", bind(ml::maps::bind_dict_vectorizer)),
    ("ai.onnx.ml", "FeatureVectorizer", bind(ml::features::bind_feature_vectorizer)),
    ("ai.onnx.ml", "Imputer", bind(ml::features::bind_imputer)),
    ("ai.onnx.ml", "LabelEncoder", bind(ml::maps::bind_label_encoder)),
    ("ai.onnx.ml", "LinearClassifier", bind(ml::models::bind_linear_classifier)),
    ("ai.onnx.ml", "LinearRegressor", bind(ml::models::bind_linear_regressor)),
    ("ai.onnx.ml", "Normalizer", bind(ml::features::bind_normalizer)),
    ("ai.onnx.ml", "OneHotEncoder", bind(ml::features::bind_one_hot_encoder)),
    ("ai.onnx.ml", "SVMClassifier", bind(ml::models::bind_svm_classifier)),
    ("ai.onnx.ml", "SVMRegressor", bind(ml::models::bind_svm_regressor)),
    ("ai.onnx.ml", "Scaler", bind(ml::features::bind_scaler)),
    ("ai.onnx.ml", "TreeEnsemble", bind(ml::trees::bind)),
    ("ai.onnx.ml", "TreeEnsembleClassifier", bind(ml::trees::bind_classifier)),
    ("ai.onnx.ml", "TreeEnsembleRegressor", bind(ml::trees::bind_regressor)),
    ("ai.onnx.ml", "ZipMap", bind(ml::maps::bind_zip_map)),
    ("ai.onnx.preview.training", "Adagrad", bind(training::bind_adagrad)),
    ("ai.onnx.preview.training", "Adam", bind(training::bind_adam)),
    ("ai.onnx.preview.training", "Momentum", bind(training::bind_momentum)),
    ("com.microsoft", "GatherBlockQuantized", bind(microsoft::gather_block_quantized::bind)),
    ("com.microsoft", "MatMulNBits", bind(microsoft::matmul_n_bits::bind)),
    ("com.microsoft", "MurmurHash3", bind(microsoft::murmur_hash_3::bind)),
    ("com.microsoft", "Tokenizer", bind(text::tokenizer::bind)),
];

/// How forms of operators run that no newer form says, by domain, name and version: nodes
/// [stay](has_no_newer_form) in them.
static OLD_BINDINGS: [(&str, &str, u32, Binding); 2] = [
    ("", "OneHot", 9, bind(tensor::generate::bind_one_hot_without_negative)),
    ("", "Resize", 11, of_images(image::resize::bind_for_nearest, image::resize::images)),
];

/// How an operator runs.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// How a node becomes an operation that rewrites look into, or an opaque one; without, it is
    /// opaque.
    lower: Option<Lower>,
    /// How an opaque operation becomes a kernel.
    bind: Option<Bind>,
    /// The same, where the kernel may pack constants.
    pack: Option<Pack>,
    /// What the kernel of an opaque operation makes of images whose channels come last.
    images: Option<fn(&Site<'_>) -> Images>,
}

type Lower = fn(&Site<'_>) -> Result<Op, BindError>;

type Bind = fn(&Site<'_>) -> Result<Box<dyn Kernel>, BindError>;

type Pack = fn(&Site<'_>) -> Result<Selected, BindError>;

/// An operator whose graphs become a [region](crate::program::Region): that takes a whole model, so
/// [`lower`](mod@crate::lower) does it.
const REGION: Binding = Binding { lower: None, bind: None, pack: None, images: None };

/// An operator that is opaque to rewrites.
const fn bind(bind: Bind) -> Binding {
    Binding { bind: Some(bind), ..REGION }
}

/// An operator that is opaque to rewrites, whose kernel may pack constants.
const fn packing(pack: Pack) -> Binding {
    Binding { pack: Some(pack), ..REGION }
}

/// An operator that is opaque to rewrites, but for what its kernel makes of images whose channels
/// come last.
const fn of_images(bind: Bind, images: fn(&Site<'_>) -> Images) -> Binding {
    Binding { bind: Some(bind), images: Some(images), ..REGION }
}

/// An operator with an operation of its own.
const fn lowered(lower: Lower) -> Binding {
    Binding { lower: Some(lower), ..REGION }
}

/// An operator with an operation of its own in some cases, which is opaque in others.
const fn either(lower: Lower, bind: Bind) -> Binding {
    Binding { lower: Some(lower), bind: Some(bind), ..REGION }
}

/// The operation of a node of an operator.
pub(crate) fn lower(schema: &Schema, site: &Site<'_>) -> Result<Op, BindError> {
    let binding = binding_in(schema).ok_or_else(not_implemented)?;
    let mut op = match binding.lower {
        Some(lower) => lower(site)?,
        None => Op::opaque(site),
    };
    if let (Op::Opaque(opaque), Some(images)) = (&mut op, binding.images) {
        opaque.images = images(site);
    }
    Ok(op)
}

/// The kernel of an operation that was made from a node of an operator.
pub(crate) fn select(op: &Op, schema: &Schema, site: &Site<'_>) -> Result<Selected, BindError> {
    Ok(match op {
        Op::Product(product) => match product.form {
            ProductForm::MatMul if math::matmul_integer::is_of_bytes(product) => {
                math::matmul_integer::select(site, product)
            }
            ProductForm::MatMul => math::matmul::select(site, product),
            ProductForm::Gemm => math::gemm::select(site, product),
        },
        Op::Conv(conv) => nn::conv::select(site, conv)?,
        Op::WeightGradient(gradient) => nn::weight_gradient::select(site, gradient).into(),
        Op::ScatterAdd(scatter) => tensor::scatter::select_add(site, scatter)?.into(),
        Op::PoolGradient(gradient) => nn::pool_gradient::select(site, gradient)?.into(),
        Op::Attention(attention) => nn::attention::dot_product::select(site, attention)?.into(),
        Op::Pointwise(pointwise) => {
            over_images(math::pointwise::select(site, pointwise)?, site).into()
        }
        Op::Truth(truth) => math::binary::select_truth(site, truth.test)?.into(),
        Op::Select(_) => Selected::new(tensor::where_::Where),
        Op::Cast(cast) => Selected::new(tensor::cast::Cast(cast.conversion)),
        Op::Scalars(scalars) => math::scalars::select(site, scalars)?.into(),
        Op::Elements(elements) => math::update::select(elements)?.into(),
        Op::Norm(norm) => nn::layer_normalization::select(site, norm)?.into(),
        Op::BatchNorm(norm) => nn::batch_normalization::select(site, norm)?,
        Op::Move(moved) => moved.kind.kernel().into(),
        Op::Reorder(_) => Selected::new(tensor::reorder::Reorder { to: site.orders.output }),
        Op::Fill(fill) => Selected::new(ConstantOfShape(fill.one.clone())),
        // Bodies have kernels of their own.
        Op::Region(_) => return Err(not_implemented()),
        Op::Opaque(_) => match binding_in(schema) {
            Some(Binding { bind: Some(bind), .. }) => bind(site)?.into(),
            Some(Binding { pack: Some(pack), .. }) => pack(site)?,
            _ => return Err(not_implemented()),
        },
    })
}

/// A kernel of functions of elements, for the order in which the step gives its result.
fn over_images(kernel: Box<dyn Kernel>, site: &Site<'_>) -> Box<dyn Kernel> {
    match site.orders.output {
        Order::Rows => kernel,
        Order::ChannelsLast => Box::new(OverImages(kernel)),
    }
}

/// The element type that an attribute names, if the node has it.
fn element_type(site: &Site<'_>, attribute: &str) -> Result<Option<DataType>, BindError> {
    let Some(number) = site.int(attribute) else {
        return Ok(None);
    };
    match i32::try_from(number).ok().and_then(DataType::from_number) {
        Some(elem) => Ok(Some(elem)),
        None => Err(BindError::Invalid(format!(
            "attribute '{attribute}' is {number}, which is not an element type"
        ))),
    }
}

pub(crate) fn not_implemented() -> BindError {
    BindError::Unsupported("operator not implemented".to_string())
}

/// Whether a binding knows the form of a node, which a newer version took away without another that
/// says the same.
pub(crate) fn has_no_newer_form(resolved: &Resolved, node: NodeId) -> bool {
    let Some(schema) = resolved.schema(node) else { return false };
    match (schema.domain, schema.name, schema.since) {
        ("ai.onnx.ml", "TreeEnsembleClassifier" | "TreeEnsembleRegressor", _) => true,
        ("", "OneHot", 9) => true,
        ("", "Resize", 11) => {
            let attributes = NodeAttributes::new(resolved.model(), node);
            let mode = attributes.string("coordinate_transformation_mode");
            mode.as_deref() == Some(image::resize::FOR_NEAREST)
        }
        _ => false,
    }
}

/// How a node in the form of a schema runs.
fn binding_in(schema: &Schema) -> Option<&'static Binding> {
    let is_old = |old: &&(&str, &str, u32, Binding)| {
        (old.0, old.1, old.2) == (schema.domain, schema.name, schema.since)
    };
    let old = OLD_BINDINGS.iter().find(is_old).map(|(.., binding)| binding);
    old.or_else(|| binding(schema.domain, schema.name))
}

/// How the newest form of an operator runs.
pub(crate) fn binding_of(operator: &OpDef) -> Option<&'static Binding> {
    // What ONNX Runtime adds to the domain of the standard are functions. Some have the names of
    // operators with kernels, and take other types.
    if operator.domain.is_empty() && operator.is_added() {
        return None;
    }
    // Nodes are brought to their newest form before they are bound.
    binding(operator.domain, operator.replacement().unwrap_or(operator.name))
}

/// The binding of that domain and name.
fn binding(domain: &str, name: &str) -> Option<&'static Binding> {
    // Every node asks, so this is a table: a search down the list compares eight names.
    static BY_NAME: LazyLock<HashMap<(&str, &str), &Binding>> = LazyLock::new(|| {
        let rows = BINDINGS.iter();
        rows.map(|(domain, name, binding)| ((*domain, *name), binding)).collect()
    });
    BY_NAME.get(&(domain, name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(BINDINGS.windows(2).all(|pair| (pair[0].0, pair[0].1) < (pair[1].0, pair[1].1)));
    }
}
