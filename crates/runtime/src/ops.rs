//! Bindings of operators to kernels, one file each at the path of the operator's definition.
//!
//! An operator that rewrites look into is lowered to an operation of the [program](crate::program),
//! for which a kernel is selected at the end. For any other, a kernel is made from the node. Both
//! read attributes and types once; at run time the kernel passes slices to a loop. Bindings
//! implement the newest form of an operator only; older nodes have been upgraded, except those that
//! [have no newer form](has_no_newer_form).

#[cfg(feature = "vision")]
mod image;
mod math;
mod microsoft;
#[cfg(feature = "ml")]
mod ml;
mod narrow;
mod nn;
mod optional;
#[cfg(feature = "quantization")]
mod quantization;
mod random;
mod reduction;
mod sequence;
#[cfg(feature = "signal")]
mod signal;
mod tensor;
#[cfg(test)]
mod testing;
mod text;
#[cfg(feature = "training")]
mod training;

use std::sync::LazyLock;

use hashbrown::HashMap;
use sardonyx_model::{NodeAttributes, NodeId};
use sardonyx_ops::operators::GRADIENT;
use sardonyx_ops::{Attributes, OpDef, Schema};
use sardonyx_passes::Resolved;
use sardonyx_tensor::DataType;

use crate::error::BindError;
use crate::kernel::{Kernel, Selected, Site};
use crate::program::{Images, Op, Order, ProductForm};

pub(crate) use math::pointwise::limits;

use math::over_images::OverImages;
use tensor::constant_of_shape::ConstantOfShape;

/// Makes the binding of an operator that only programs with a feature run. The loops behind it are
/// compiled with the feature of the same name of `sardonyx-kernels`.
macro_rules! family {
    ($feature:literal, $binding:expr) => {{
        let family = Family { feature: $feature, is_compiled: cfg!(feature = $feature) };
        #[cfg(feature = $feature)]
        let binding = $binding;
        #[cfg(not(feature = $feature))]
        let binding = REGION;
        Binding { family: Some(family), ..binding }
    }};
}

/// Bindings of the newest forms by domain and name, sorted.
static BINDINGS: &[(&str, &str, Binding)] = &[
    ("", "Abs", lower_by(math::unary::lower_abs)),
    ("", "Acos", lower_by(math::unary::lower_acos)),
    ("", "Acosh", lower_by(math::unary::lower_acosh)),
    ("", "Add", lower_by(math::binary::lower_add)),
    ("", "And", lower_by(math::binary::lower_and)),
    ("", "ArgMax", bind(reduction::bind_arg_max)),
    ("", "ArgMin", bind(reduction::bind_arg_min)),
    ("", "Asin", lower_by(math::unary::lower_asin)),
    ("", "Asinh", lower_by(math::unary::lower_asinh)),
    ("", "Atan", lower_by(math::unary::lower_atan)),
    ("", "Atanh", lower_by(math::unary::lower_atanh)),
    ("", "Attention", lower_by(nn::attention::dot_product::lower)),
    ("", "AveragePool", bind_images(nn::pool::bind_average, nn::pool::windows)),
    (
        "",
        "BatchNormalization",
        lower_or_bind(nn::batch_normalization::lower, nn::batch_normalization::bind),
    ),
    ("", "Bernoulli", bind(random::bind_bernoulli)),
    ("", "BitCast", lower_or_bind(tensor::bit_cast::lower, tensor::bit_cast::bind)),
    ("", "BitShift", bind(math::binary::bind_bit_shift)),
    ("", "BitwiseAnd", bind(math::binary::bind_bitwise_and)),
    ("", "BitwiseNot", bind(math::unary::bind_bitwise_not)),
    ("", "BitwiseOr", bind(math::binary::bind_bitwise_or)),
    ("", "BitwiseXor", bind(math::binary::bind_bitwise_xor)),
    ("", "Cast", lower_or_bind(tensor::cast::lower, tensor::cast::bind)),
    ("", "Ceil", lower_by(math::unary::lower_ceil)),
    ("", "Celu", lower_by(math::unary::lower_celu)),
    ("", "Clip", lower_or_bind(math::clip::lower, math::clip::bind)),
    ("", "Col2Im", family!("vision", bind(nn::col2im::bind))),
    ("", "Compress", bind(tensor::select::bind_compress)),
    ("", "Concat", lower_by(tensor::concat::lower)),
    ("", "ConcatFromSequence", bind(sequence::bind_concat)),
    ("", "Constant", bind(tensor::constant::bind)),
    ("", "ConstantOfShape", lower_by(tensor::constant_of_shape::lower)),
    ("", "Conv", lower_by(nn::conv::lower)),
    ("", "ConvInteger", family!("quantization", bind_packing(quantization::conv::bind_integer))),
    ("", "ConvTranspose", bind_packing(nn::conv_transpose::bind)),
    ("", "Cos", lower_by(math::unary::lower_cos)),
    ("", "Cosh", lower_by(math::unary::lower_cosh)),
    ("", "CumProd", bind(math::cumulative::bind_product)),
    ("", "CumSum", bind(math::cumulative::bind_sum)),
    ("", "DFT", family!("signal", bind(signal::fourier::bind_dft))),
    ("", "DeformConv", family!("vision", bind(nn::deform_conv::bind))),
    (
        "",
        "DequantizeLinear",
        family!("quantization", lower_by(quantization::linear::lower_dequantize)),
    ),
    ("", "Det", bind(math::linear::bind_det)),
    ("", "Div", lower_by(math::binary::lower_div)),
    ("", "Dropout", lower_or_bind(nn::dropout::lower, nn::dropout::bind)),
    (
        "",
        "DynamicQuantizeLinear",
        family!("quantization", bind(quantization::linear::bind_dynamic)),
    ),
    ("", "Einsum", bind(math::einsum::bind)),
    ("", "Elu", lower_by(math::unary::lower_elu)),
    ("", "Equal", lower_or_bind(math::binary::lower_equal, math::binary::bind_equal)),
    ("", "Erf", lower_by(math::unary::lower_erf)),
    ("", "Exp", lower_by(math::unary::lower_exp)),
    ("", "Expand", lower_by(tensor::expand::lower)),
    ("", "EyeLike", bind(tensor::generate::bind_eye_like)),
    ("", "Flatten", lower_by(tensor::reshape::lower_flatten)),
    ("", "Floor", lower_by(math::unary::lower_floor)),
    ("", "GRU", family!("recurrent", bind_packing(nn::recurrent::bind_gru))),
    ("", "Gather", lower_by(tensor::gather::lower)),
    ("", "GatherElements", bind(tensor::gather_elements::bind_gather_elements)),
    ("", "GatherND", bind(tensor::gather_elements::bind_gather_nd)),
    ("", "Gelu", lower_by(math::unary::lower_gelu)),
    ("", "Gemm", lower_by(math::gemm::lower)),
    ("", "GlobalAveragePool", bind_images(nn::global_pool::bind_average, nn::images::reads)),
    ("", "GlobalLpPool", bind(nn::global_pool::bind_lp)),
    ("", "GlobalMaxPool", bind_images(nn::global_pool::bind_max, nn::images::reads)),
    ("", "Greater", lower_by(math::binary::lower_greater)),
    ("", "GreaterOrEqual", lower_by(math::binary::lower_greater_or_equal)),
    ("", "GridSample", family!("vision", bind(image::grid_sample::bind))),
    (
        "",
        "GroupNormalization",
        bind_images(nn::layer_normalization::bind_groups, nn::images::gains),
    ),
    ("", "HardSigmoid", lower_by(math::unary::lower_hard_sigmoid)),
    ("", "HardSwish", lower_by(math::unary::lower_hard_swish)),
    ("", "Hardmax", bind(math::softmax::bind_hardmax)),
    ("", "Identity", lower_by(tensor::reshape::lower_identity)),
    ("", "If", REGION),
    ("", "ImageDecoder", family!("vision", bind(image::image_decoder::bind))),
    ("", "InstanceNormalization", bind_images(nn::instance_normalization::bind, nn::images::gains)),
    ("", "IsInf", bind(math::classify::bind_is_inf)),
    ("", "IsNaN", bind(math::classify::bind_is_nan)),
    ("", "LRN", bind_images(nn::lrn::bind, nn::images::gains)),
    ("", "LSTM", family!("recurrent", bind_packing(nn::recurrent::bind_lstm))),
    ("", "LayerNormalization", lower_by(nn::layer_normalization::lower_layer)),
    ("", "LeakyRelu", lower_by(math::unary::lower_leaky_relu)),
    ("", "Less", lower_by(math::binary::lower_less)),
    ("", "LessOrEqual", lower_by(math::binary::lower_less_or_equal)),
    ("", "Log", lower_by(math::unary::lower_log)),
    ("", "LogSoftmax", bind_images(math::softmax::bind_log_softmax, math::softmax::images)),
    ("", "Loop", REGION),
    ("", "LpNormalization", bind(nn::layer_normalization::bind_lp)),
    ("", "LpPool", bind(nn::pool::bind_lp)),
    ("", "MatMul", lower_by(math::matmul::lower)),
    ("", "MatMulInteger", family!("quantization", lower_by(math::matmul_integer::lower))),
    ("", "Max", lower_or_bind(math::variadic::lower_max, math::variadic::bind_max)),
    ("", "MaxPool", bind_images(nn::pool::bind_max, nn::pool::images_of_max)),
    ("", "MaxRoiPool", family!("vision", bind(image::max_roi_pool::bind))),
    ("", "MaxUnpool", family!("vision", bind(nn::max_unpool::bind))),
    ("", "Mean", bind(math::variadic::bind_mean)),
    ("", "MeanVarianceNormalization", bind(nn::layer_normalization::bind_mean_variance)),
    ("", "MelWeightMatrix", family!("signal", bind(signal::bind_mel_weight_matrix))),
    ("", "Min", lower_or_bind(math::variadic::lower_min, math::variadic::bind_min)),
    ("", "Mish", lower_by(math::unary::lower_mish)),
    ("", "Mod", lower_by(math::binary::lower_mod)),
    ("", "Mul", lower_by(math::binary::lower_mul)),
    ("", "Multinomial", bind(random::bind_multinomial)),
    ("", "Neg", lower_by(math::unary::lower_neg)),
    ("", "NegativeLogLikelihoodLoss", family!("training", bind(nn::loss::bind))),
    ("", "NonMaxSuppression", family!("vision", bind(image::non_max_suppression::bind))),
    ("", "NonZero", bind(tensor::select::bind_non_zero)),
    ("", "Not", lower_by(math::binary::lower_not)),
    ("", "OneHot", bind(tensor::generate::bind_one_hot)),
    ("", "Optional", bind(optional::bind)),
    (
        "",
        "OptionalGetElement",
        lower_or_bind(optional::lower_get_element, optional::bind_get_element),
    ),
    ("", "OptionalHasElement", bind(optional::bind_has_element)),
    ("", "Or", lower_by(math::binary::lower_or)),
    ("", "PRelu", lower_by(math::prelu::lower)),
    ("", "Pad", bind(tensor::pad::bind)),
    ("", "Pow", lower_or_bind(math::binary::lower_pow, math::binary::bind_pow)),
    ("", "QLinearConv", family!("quantization", bind_packing(quantization::conv::bind_quantized))),
    ("", "QLinearMatMul", family!("quantization", bind_packing(quantization::matmul::bind))),
    ("", "QuantizeLinear", family!("quantization", bind(quantization::linear::bind_quantize))),
    (
        "",
        "RMSNormalization",
        lower_or_bind(
            nn::layer_normalization::lower_root_mean_square,
            nn::layer_normalization::bind_root_mean_square,
        ),
    ),
    ("", "RNN", family!("recurrent", bind_packing(nn::recurrent::bind_rnn))),
    ("", "RandomNormal", bind(random::bind_normal)),
    ("", "RandomNormalLike", bind(random::bind_normal_like)),
    ("", "RandomUniform", bind(random::bind_uniform)),
    ("", "RandomUniformLike", bind(random::bind_uniform_like)),
    ("", "Range", bind(tensor::generate::bind_range)),
    ("", "Reciprocal", lower_by(math::unary::lower_reciprocal)),
    ("", "ReduceL1", bind(reduction::bind_reduce_l1)),
    ("", "ReduceL2", bind(reduction::bind_reduce_l2)),
    ("", "ReduceLogSum", bind(reduction::bind_reduce_log_sum)),
    ("", "ReduceLogSumExp", bind(reduction::bind_reduce_log_sum_exp)),
    ("", "ReduceMax", bind_images(reduction::bind_reduce_max, reduction::images)),
    ("", "ReduceMean", bind_images(reduction::bind_reduce_mean, reduction::images)),
    ("", "ReduceMin", bind_images(reduction::bind_reduce_min, reduction::images)),
    ("", "ReduceProd", bind(reduction::bind_reduce_prod)),
    ("", "ReduceSum", bind_images(reduction::bind_reduce_sum, reduction::images)),
    ("", "ReduceSumSquare", bind(reduction::bind_reduce_sum_square)),
    ("", "RegexFullMatch", family!("strings", bind(text::full_match::bind))),
    ("", "Relu", lower_by(math::unary::lower_relu)),
    ("", "Reshape", lower_by(tensor::reshape::lower_reshape)),
    ("", "Resize", family!("vision", bind_images(image::resize::bind, image::resize::images))),
    ("", "ReverseSequence", bind(tensor::rearrange::bind_reverse_sequence)),
    ("", "RoiAlign", family!("vision", bind(image::roi_align::bind))),
    ("", "RotaryEmbedding", bind(nn::attention::rotary::bind)),
    ("", "Round", lower_by(math::unary::lower_round)),
    ("", "STFT", family!("signal", bind(signal::fourier::bind_stft))),
    ("", "Scan", REGION),
    (
        "",
        "ScatterElements",
        lower_or_bind(tensor::scatter::lower_elements, tensor::scatter::bind_scatter_elements),
    ),
    ("", "ScatterND", bind(tensor::scatter::bind_scatter_nd)),
    ("", "Selu", lower_by(math::unary::lower_selu)),
    ("", "SequenceAt", bind(sequence::bind_at)),
    ("", "SequenceConstruct", bind(sequence::bind_construct)),
    ("", "SequenceEmpty", bind(sequence::bind_empty)),
    ("", "SequenceErase", bind(sequence::bind_erase)),
    ("", "SequenceInsert", bind(sequence::bind_insert)),
    ("", "SequenceLength", bind(sequence::bind_length)),
    ("", "Shape", bind(tensor::shape::bind)),
    ("", "Shrink", lower_by(math::unary::lower_shrink)),
    ("", "Sigmoid", lower_by(math::unary::lower_sigmoid)),
    ("", "Sign", lower_by(math::unary::lower_sign)),
    ("", "Sin", lower_by(math::unary::lower_sin)),
    ("", "Sinh", lower_by(math::unary::lower_sinh)),
    ("", "Size", bind(tensor::size::bind)),
    ("", "Slice", lower_by(tensor::slice::lower)),
    ("", "Softmax", bind_images(math::softmax::bind_softmax, math::softmax::images)),
    ("", "Softplus", lower_by(math::unary::lower_softplus)),
    ("", "Softsign", lower_by(math::unary::lower_softsign)),
    ("", "Split", lower_by(tensor::split::lower)),
    ("", "SplitToSequence", bind(sequence::bind_split)),
    ("", "Sqrt", lower_by(math::unary::lower_sqrt)),
    ("", "Squeeze", lower_by(tensor::reshape::lower_squeeze)),
    ("", "StringConcat", bind(text::bind_concat)),
    ("", "StringNormalizer", family!("strings", bind(text::normalize::bind))),
    ("", "StringSplit", family!("strings", bind(text::split::bind))),
    ("", "Sub", lower_by(math::binary::lower_sub)),
    ("", "Sum", lower_or_bind(math::variadic::lower_sum, math::variadic::bind_sum)),
    ("", "SwiGLU", lower_or_bind(math::gated::lower_swiglu, math::gated::bind_swiglu)),
    ("", "Swish", lower_by(math::gated::lower_swish)),
    ("", "Tan", lower_by(math::unary::lower_tan)),
    ("", "Tanh", lower_by(math::unary::lower_tanh)),
    ("", "TensorScatter", lower_by(tensor::write_rows::lower)),
    ("", "TfIdfVectorizer", family!("strings", bind(text::tf_idf::bind))),
    ("", "ThresholdedRelu", lower_by(math::unary::lower_thresholded_relu)),
    ("", "Tile", lower_by(tensor::rearrange::lower_tile)),
    ("", "TopK", bind(tensor::select::bind_top_k)),
    ("", "Transpose", lower_by(tensor::transpose::lower)),
    ("", "Trilu", bind(tensor::generate::bind_trilu)),
    ("", "Unique", bind(tensor::unique::bind)),
    ("", "Unsqueeze", lower_by(tensor::reshape::lower_unsqueeze)),
    ("", "Where", lower_by(tensor::where_::lower)),
    ("", "Xor", lower_by(math::binary::lower_xor)),
    (
        "ai.onnx.ml",
        "ArrayFeatureExtractor",
        family!("ml", bind(ml::features::bind_array_feature_extractor)),
    ),
    ("ai.onnx.ml", "Binarizer", family!("ml", bind(ml::features::bind_binarizer))),
    ("ai.onnx.ml", "CastMap", family!("ml", bind(ml::maps::bind_cast_map))),
    ("ai.onnx.ml", "CategoryMapper", family!("ml", bind(ml::maps::bind_category_mapper))),
    ("ai.onnx.ml", "DictVectorizer", family!("ml", bind(ml::maps::bind_dict_vectorizer))),
    ("ai.onnx.ml", "FeatureVectorizer", family!("ml", bind(ml::features::bind_feature_vectorizer))),
    ("ai.onnx.ml", "Imputer", family!("ml", bind(ml::features::bind_imputer))),
    ("ai.onnx.ml", "LabelEncoder", family!("ml", bind(ml::maps::bind_label_encoder))),
    ("ai.onnx.ml", "LinearClassifier", family!("ml", bind(ml::models::bind_linear_classifier))),
    ("ai.onnx.ml", "LinearRegressor", family!("ml", bind(ml::models::bind_linear_regressor))),
    ("ai.onnx.ml", "Normalizer", family!("ml", bind(ml::features::bind_normalizer))),
    ("ai.onnx.ml", "OneHotEncoder", family!("ml", bind(ml::features::bind_one_hot_encoder))),
    ("ai.onnx.ml", "SVMClassifier", family!("ml", bind(ml::models::bind_svm_classifier))),
    ("ai.onnx.ml", "SVMRegressor", family!("ml", bind(ml::models::bind_svm_regressor))),
    ("ai.onnx.ml", "Scaler", family!("ml", bind(ml::features::bind_scaler))),
    ("ai.onnx.ml", "TreeEnsemble", family!("ml", bind(ml::trees::bind))),
    ("ai.onnx.ml", "TreeEnsembleClassifier", family!("ml", bind(ml::trees::bind_classifier))),
    ("ai.onnx.ml", "TreeEnsembleRegressor", family!("ml", bind(ml::trees::bind_regressor))),
    ("ai.onnx.ml", "ZipMap", family!("ml", bind(ml::maps::bind_zip_map))),
    ("ai.onnx.preview.training", "Adagrad", family!("training", bind(training::bind_adagrad))),
    ("ai.onnx.preview.training", "Adam", family!("training", bind(training::bind_adam))),
    ("ai.onnx.preview.training", "Momentum", family!("training", bind(training::bind_momentum))),
    (
        "com.microsoft",
        "GatherBlockQuantized",
        family!("quantization", bind(microsoft::gather_block_quantized::bind)),
    ),
    (
        "com.microsoft",
        "MatMulNBits",
        family!("quantization", lower_by(microsoft::matmul_n_bits::lower)),
    ),
    ("com.microsoft", "MurmurHash3", family!("strings", bind(microsoft::murmur_hash_3::bind))),
    ("com.microsoft", "Tokenizer", family!("strings", bind(text::tokenizer::bind))),
];

/// How forms of operators run that no newer form says, by domain, name and version: nodes
/// [stay](has_no_newer_form) in them.
static OLD_BINDINGS: &[(&str, &str, u32, Binding)] = &[
    ("", "OneHot", 9, bind(tensor::generate::bind_one_hot_without_negative)),
    (
        "",
        "Resize",
        11,
        family!("vision", bind_images(image::resize::bind_for_nearest, image::resize::images)),
    ),
];

/// Coordinates of nearest elements that versions of `Resize` after 12 do not have.
pub(crate) const FOR_NEAREST: &str = "tf_half_pixel_for_nn";

/// How an operator runs.
#[derive(Clone, Copy)]
pub(crate) struct Binding {
    /// Lowers a node to an operation that rewrites look into, or to an opaque one; without it, the
    /// node is opaque.
    lower: Option<Lower>,
    /// Makes the kernel of an opaque operation.
    bind: Option<Bind>,
    /// Makes the kernel of an opaque operation, and may pack constants.
    pack: Option<Pack>,
    /// Returns what the kernel of an opaque operation accepts of images whose channels come last.
    images: Option<fn(&Site<'_>) -> Images>,
    /// Family that a program may leave out.
    family: Option<Family>,
}

/// Operators that only programs with a feature run.
#[derive(Clone, Copy)]
struct Family {
    feature: &'static str,
    is_compiled: bool,
}

impl Binding {
    fn is_compiled(&self) -> bool {
        self.family.is_none_or(|family| family.is_compiled)
    }
}

type Lower = fn(&Site<'_>) -> Result<Op, BindError>;

type Bind = fn(&Site<'_>) -> Result<Box<dyn Kernel>, BindError>;

type Pack = fn(&Site<'_>) -> Result<Selected, BindError>;

/// An operator whose graphs become a [region](crate::program::Region). [`lower`](mod@crate::lower)
/// does that, as it needs the whole model.
const REGION: Binding = Binding { lower: None, bind: None, pack: None, images: None, family: None };

/// Makes the binding of an operator that is opaque to rewrites.
const fn bind(bind: Bind) -> Binding {
    Binding { bind: Some(bind), ..REGION }
}

/// Makes the binding of an operator that is opaque to rewrites, whose kernel may pack constants.
const fn bind_packing(pack: Pack) -> Binding {
    Binding { pack: Some(pack), ..REGION }
}

/// Makes the binding of an opaque operator whose kernel accepts images with channels last.
const fn bind_images(bind: Bind, images: fn(&Site<'_>) -> Images) -> Binding {
    Binding { bind: Some(bind), images: Some(images), ..REGION }
}

/// Makes the binding of an operator with an operation of its own.
const fn lower_by(lower: Lower) -> Binding {
    Binding { lower: Some(lower), ..REGION }
}

/// Makes the binding of an operator that has an operation of its own in some cases, and is opaque
/// in others.
const fn lower_or_bind(lower: Lower, bind: Bind) -> Binding {
    Binding { lower: Some(lower), bind: Some(bind), ..REGION }
}

/// Lowers a node by its operator's binding.
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

/// Selects the kernel of an operation that was made from a node.
pub(crate) fn select(op: &Op, schema: &Schema, site: &Site<'_>) -> Result<Selected, BindError> {
    Ok(match op {
        #[cfg(feature = "quantization")]
        Op::Product(product) if let Some(quantized) = &product.quantized => {
            microsoft::matmul_n_bits::select(site, product, quantized)?
        }
        Op::Product(product) => match product.form {
            #[cfg(feature = "quantization")]
            ProductForm::MatMul if math::matmul_integer::has_bytes(product) => {
                math::matmul_integer::select(site, product)
            }
            ProductForm::MatMul => math::matmul::select(site, product),
            ProductForm::Gemm => math::gemm::select(site, product),
        },
        Op::Conv(conv) => nn::conv::select(site, conv)?,
        #[cfg(feature = "training")]
        Op::WeightGradient(gradient) => nn::weight_gradient::select(site, gradient).into(),
        Op::ScatterAdd(scatter) => tensor::scatter::select_add(site, scatter)?.into(),
        #[cfg(feature = "training")]
        Op::PoolGradient(gradient) => nn::pool_gradient::select(site, gradient)?.into(),
        Op::Attention(attention) => nn::attention::dot_product::select(site, attention)?.into(),
        Op::Pointwise(pointwise) => {
            over_images(math::pointwise::select(site, pointwise)?, site).into()
        }
        Op::Truth(truth) => math::binary::select_truth(site, truth.test)?.into(),
        Op::Select(_) => Selected::new(tensor::where_::Where),
        #[cfg(feature = "quantization")]
        Op::Dequantize(_) => quantization::linear::select_dequantize(site)?.into(),
        #[cfg(feature = "quantization")]
        Op::GatherCodes(gather) => quantization::gather_codes::select(site, gather)?,
        #[cfg(not(feature = "quantization"))]
        Op::Dequantize(_) | Op::GatherCodes(_) => return Err(not_implemented()),
        Op::Cast(cast) => Selected::new(tensor::cast::Cast(cast.conversion)),
        Op::Scalars(scalars) => math::scalars::select(site, scalars)?.into(),
        Op::Elements(elements) => math::update::select(elements)?.into(),
        Op::Norm(norm) => nn::layer_normalization::select(site, norm)?.into(),
        Op::BatchNorm(norm) => nn::batch_normalization::select(site, norm)?,
        Op::Move(moved) => moved.kind.kernel().into(),
        Op::Reorder(_) => Selected::new(tensor::reorder::Reorder { to: site.orders.output }),
        Op::Fill(fill) => Selected::new(ConstantOfShape(fill.one.clone())),
        // Only rewrites of training make them.
        #[cfg(not(feature = "training"))]
        Op::WeightGradient(_) | Op::PoolGradient(_) => return Err(not_implemented()),
        // A region runs the kernels of its bodies.
        Op::Region(_) => return Err(not_implemented()),
        Op::Opaque(_) => match binding_in(schema) {
            Some(Binding { bind: Some(bind), .. }) => bind(site)?.into(),
            Some(Binding { pack: Some(pack), .. }) => pack(site)?,
            _ => return Err(not_implemented()),
        },
    })
}

/// Lets a pointwise kernel write images with channels last, if the step's result has that order.
fn over_images(kernel: Box<dyn Kernel>, site: &Site<'_>) -> Box<dyn Kernel> {
    match site.orders.output {
        Order::Rows => kernel,
        Order::ChannelsLast => Box::new(OverImages(kernel)),
    }
}

/// Returns the element type that an optional attribute names.
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

/// Whether a node has a bound version without an equivalent newer one.
pub(crate) fn has_no_newer_form(resolved: &Resolved, node: NodeId) -> bool {
    let Some(schema) = resolved.schema(node) else { return false };
    match (schema.domain, schema.name, schema.since) {
        ("ai.onnx.ml", "TreeEnsembleClassifier" | "TreeEnsembleRegressor", _) => true,
        ("", "OneHot", 9) => true,
        ("", "Resize", 11) => {
            let attributes = NodeAttributes::new(resolved.model(), node);
            let mode = attributes.string("coordinate_transformation_mode");
            mode.as_deref() == Some(FOR_NEAREST)
        }
        _ => false,
    }
}

/// Returns the binding of the version of a schema.
fn binding_in(schema: &Schema) -> Option<&'static Binding> {
    let is_old = |old: &&(&str, &str, u32, Binding)| {
        (old.0, old.1, old.2) == (schema.domain, schema.name, schema.since)
    };
    let old = OLD_BINDINGS.iter().find(is_old).map(|(.., binding)| binding);
    old.or_else(|| binding(schema.domain, schema.name))
}

/// Returns the binding of the newest form of an operator.
pub(crate) fn binding_of(operator: &OpDef) -> Option<&'static Binding> {
    row_of(operator).filter(|binding| binding.is_compiled())
}

/// Returns the row of an operator, also where its family is not compiled in.
fn row_of(operator: &OpDef) -> Option<&'static Binding> {
    // What ONNX Runtime adds to the domain of the standard are functions. Some have the names of
    // operators with kernels, and take other types.
    if operator.domain.is_empty() && operator.is_added() {
        return None;
    }
    // Nodes are brought to their newest form before they are bound.
    row(operator.domain, operator.replacement().unwrap_or(operator.name))
}

/// Returns the feature that an operator needs, if some programs have it and others do not.
pub(crate) fn feature_of(operator: &OpDef) -> Option<&'static str> {
    // Compiling replaces its nodes, so it has no row.
    if operator.is(&GRADIENT) {
        return Some("training");
    }
    row_of(operator).and_then(|binding| binding.family).map(|family| family.feature)
}

/// Returns the binding of a domain and name, unless its family is not compiled in.
fn binding(domain: &str, name: &str) -> Option<&'static Binding> {
    row(domain, name).filter(|binding| binding.is_compiled())
}

/// Returns the row of a domain and name.
fn row(domain: &str, name: &str) -> Option<&'static Binding> {
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
