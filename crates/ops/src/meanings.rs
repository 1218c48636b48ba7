//! What inputs, outputs and attributes are for, in a sentence or two each.
//!
//! Names mean the same in most operators that have them, so a row without operators holds for all
//! of them, and a row with operators for these instead. Every name in the standard has a row;
//! another one, in an operator of a program, is described by what is declared.

use std::fmt::Write;

use crate::schema::{Arity, Attribute, Param, Schema};

/// A name, the operators for which the row holds (none: all that no other row names), what it is
/// for.
type Row = (&'static str, &'static [&'static str], &'static str);

impl Schema {
    /// What an input of this operator is for; `None` if its name says nothing in operators of the
    /// standard.
    pub fn input_meaning(&self, input: &Param) -> Option<&'static str> {
        find(INPUTS, self.name, input.name)
    }

    /// What an output of this operator holds; `None` if its name says nothing in operators of the
    /// standard.
    pub fn output_meaning(&self, output: &Param) -> Option<&'static str> {
        find(OUTPUTS, self.name, output.name)
    }

    /// What an attribute of this operator says; `None` if its name says nothing in operators of the
    /// standard.
    pub fn attribute_meaning(&self, attribute: &Attribute) -> Option<&'static str> {
        find(ATTRIBUTES, self.name, attribute.name)
    }

    /// What an input of this operator is for, and how often it occurs.
    pub fn about_input(&self, input: &Param) -> String {
        about_param("input", self.input_meaning(input), input)
    }

    /// What an output of this operator holds, and how often it occurs.
    pub fn about_output(&self, output: &Param) -> String {
        about_param("output", self.output_meaning(output), output)
    }

    /// What an attribute of this operator says, and what its absence means.
    pub fn about_attribute(&self, attribute: &Attribute) -> String {
        let ty = attribute.ty;
        let meaning = self.attribute_meaning(attribute);
        let mut text =
            meaning.map_or_else(|| format!("An attribute of type `{ty}`."), String::from);
        match (attribute.required, attribute.default) {
            (true, _) => text.push_str(" Required."),
            (false, Some(default)) => {
                let _ = write!(text, " Default: {default}.");
            }
            (false, None) if text.contains("If absent") => {}
            (false, None) => text.push_str(" Optional."),
        }
        text
    }

    /// What a type variable stands for: the inputs and outputs that have its type.
    pub fn about_type(&self, name: &str) -> String {
        let names = |params: &[Param]| {
            let having = params.iter().filter(|param| param.ty == name);
            having.map(|param| format!("`{}`", param.name)).collect()
        };
        let (inputs, outputs): (Vec<String>, Vec<String>) =
            (names(&self.inputs), names(&self.outputs));
        let list = |what: &str, names: &[String]| match names {
            [] => None,
            [name] => Some(format!("{what} {name}")),
            names => Some(format!("{what}s {}", names.join(", "))),
        };
        match (list("input", &inputs), list("output", &outputs)) {
            (Some(inputs), Some(outputs)) => format!("The type of {inputs} and {outputs}."),
            (Some(only), None) | (None, Some(only)) => format!("The type of {only}."),
            (None, None) => "The type of no input or output.".to_string(),
        }
    }
}

fn find(rows: &[Row], operator: &str, name: &str) -> Option<&'static str> {
    let named = || rows.iter().filter(|row| row.0 == name);
    let own = named().find(|row| row.1.contains(&operator));
    own.or_else(|| named().find(|row| row.1.is_empty())).map(|row| row.2)
}

fn about_param(what: &str, meaning: Option<&str>, param: &Param) -> String {
    let ty = param.ty;
    let mut text = meaning.map_or_else(|| format!("An {what} of type `{ty}`."), String::from);
    match param.arity {
        Arity::Single => {}
        Arity::Optional if text.contains("If absent") => {}
        Arity::Optional => text.push_str(" Optional."),
        Arity::Variadic { min, homogeneous } => {
            let types = if homogeneous { "of one type" } else { "of any types" };
            let _ = write!(text, " {min} or more, {types}.");
        }
    }
    text
}

// A row a line, by name: in most of them the sentence is longer than what formatting would put on
// one.

#[rustfmt::skip]
const INPUTS: &[Row] = &[
    ("A", &["Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Mul", "Or", "Sub", "Xor"], "The left operand. Its shape is broadcast with that of `B`."),
    ("A", &["Gemm"], "The left matrix, `[M, K]`, or `[K, M]` where `transA` is set."),
    ("A", &["MatMul"], "The left matrices. Axes before the last two are broadcast."),
    ("A", &["MatMulInteger"], "The left matrices, quantized."),
    ("A", &["SwiGLU"], "What goes through Swish."),
    ("B", &["Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Mul", "Or", "Sub", "Xor"], "The right operand. Its shape is broadcast with that of `A`."),
    ("B", &["BatchNormalization"], "What is added, for each channel."),
    ("B", &["Conv", "ConvTranspose", "DeformConv", "QLinearConv"], "The bias, a number for each output channel: `[M]`."),
    ("B", &["GRU"], "The biases of the input, then those of the state: `[directions, 6 * hidden]`. Absent ones are 0."),
    ("B", &["Gemm"], "The right matrix, `[K, N]`, or `[N, K]` where `transB` is set."),
    ("B", &["InstanceNormalization"], "What is added, for each channel."),
    ("B", &["LSTM"], "The biases of the input, then those of the state: `[directions, 8 * hidden]`. Absent ones are 0."),
    ("B", &["LayerNormalization"], "What is added; broadcast to the axes that are normalized."),
    ("B", &["MatMul"], "The right matrices. Axes before the last two are broadcast."),
    ("B", &["MatMulInteger"], "The right matrices, quantized."),
    ("B", &["RNN"], "The biases of the input, then those of the state: `[directions, 2 * hidden]`. Absent ones are 0."),
    ("B", &["SwiGLU"], "What that is multiplied with."),
    ("C", &["Gemm"], "What is added to the product; broadcast to `[M, N]`."),
    ("I", &["MaxUnpool"], "Where each of them was, as `MaxPool` gave it."),
    ("Inputs", &["Einsum"], "The operands, in the order of the equation."),
    ("Inputs", &["Gradient"], "The values of `xs`, then those of `zs`."),
    ("K", &["Attention", "FlexAttention"], "The keys, `[batch, heads, length, head size]`; in `Attention` also `[batch, length, heads * head size]`."),
    ("K", &["TopK"], "How many elements are taken from each slice."),
    ("M", &["Loop"], "The most iterations: one number. If absent, there is no limit."),
    ("P", &["LSTM"], "The weights by which gates i, o and f see the cell: `[directions, 3 * hidden]`. If absent, they are 0."),
    ("Q", &["Attention", "FlexAttention"], "The queries, `[batch, heads, length, head size]`; in `Attention` also `[batch, length, heads * head size]`."),
    ("R", &["Adagrad", "Adam", "Momentum"], "The learning rate: one number."),
    ("R", &["GRU"], "The weights of the last state for the gates z, r and h, for each direction: `[directions, 3 * hidden, hidden]`."),
    ("R", &["LSTM"], "The weights of the last state for the gates i, o, f and c, for each direction: `[directions, 4 * hidden, hidden]`."),
    ("R", &["RNN"], "The weights of the last state for each direction: `[directions, hidden, hidden]`."),
    ("Scale", &["LayerNormalization"], "Factors; broadcast to the axes that are normalized."),
    ("T", &["Adagrad", "Adam", "Momentum"], "How many steps have been taken: one number."),
    ("V", &["Attention", "FlexAttention"], "The values, `[batch, heads, length, head size]`; in `Attention` also `[batch, length, heads * head size]`."),
    ("W", &["Conv"], "The kernels, `[M, C / group, K1, …]`."),
    ("W", &["ConvTranspose"], "The kernels, `[C, M / group, K1, …]`."),
    ("W", &["DeformConv"], "The kernels, `[M, C / group, KH, KW]`."),
    ("W", &["GRU"], "The weights of the input for the gates z, r and h, for each direction: `[directions, 3 * hidden, features]`."),
    ("W", &["LSTM"], "The weights of the input for the gates i, o, f and c, for each direction: `[directions, 4 * hidden, features]`."),
    ("W", &["RNN"], "The weights of the input for each direction: `[directions, hidden, features]`."),
    ("X", &[], "The input tensor."),
    ("X", &["ArrayFeatureExtractor"], "The tensor whose columns are taken."),
    ("X", &["AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool"], "The input, `[N, C, D1, …]`."),
    ("X", &["BatchNormalization"], "The input; its channels are axis 1."),
    ("X", &["Binarizer", "Imputer", "Normalizer", "OneHotEncoder", "Scaler"], "The features."),
    ("X", &["BitShift"], "The numbers whose bits are shifted. The shape is broadcast with that of `Y`."),
    ("X", &["CastMap", "DictVectorizer"], "The map."),
    ("X", &["CategoryMapper", "LabelEncoder"], "The elements that are looked up."),
    ("X", &["Conv", "ConvTranspose"], "The input, `[N, C, D1, …]`."),
    ("X", &["DeformConv"], "The input, `[N, C, H, W]`."),
    ("X", &["Det"], "Square matrices; axes before the last two are a batch."),
    ("X", &["FeatureVectorizer"], "The features that are joined."),
    ("X", &["GRU", "LSTM", "RNN"], "The sequences, `[sequence, batch, features]`, or the batch first where `layout` is 1."),
    ("X", &["GridSample"], "The images, `[N, C, D1, …]`."),
    ("X", &["GroupNormalization"], "The input; its channels are axis 1."),
    ("X", &["IsInf", "IsNaN"], "The numbers to test."),
    ("X", &["LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor", "TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"], "The features, a row for each sample."),
    ("X", &["MaxRoiPool", "RoiAlign"], "Feature maps, `[N, C, H, W]`."),
    ("X", &["MaxUnpool"], "The maxima, as `MaxPool` gave them."),
    ("X", &["Pow"], "The bases. The shape is broadcast with that of `Y`."),
    ("X", &["RegexFullMatch", "StringNormalizer", "StringSplit"], "The texts."),
    ("X", &["Resize", "Upsample"], "The tensor to scale."),
    ("X", &["RotaryEmbedding"], "The features to turn, `[batch, heads, length, head size]` or `[batch, length, heads * head size]`."),
    ("X", &["StringConcat"], "The first parts of the texts. The shape is broadcast with that of `Y`."),
    ("X", &["TfIdfVectorizer"], "The sequences, as rows of texts or integers."),
    ("X", &["TopK"], "The tensor that is searched."),
    ("X", &["Unique"], "The tensor whose elements or slices are compared."),
    ("X", &["Where"], "What is taken where the condition is true."),
    ("X", &["ZipMap"], "The scores, a row for each sample."),
    ("Y", &["ArrayFeatureExtractor"], "Positions on the last axis: the columns that are taken."),
    ("Y", &["BitShift"], "By how many bits. The shape is broadcast with that of `X`."),
    ("Y", &["Pow"], "The exponents. The shape is broadcast with that of `X`."),
    ("Y", &["StringConcat"], "The last parts of the texts. The shape is broadcast with that of `X`."),
    ("Y", &["Where"], "What is taken where the condition is false."),
    ("a", &["QLinearMatMul"], "The left matrices, quantized."),
    ("a_scale", &[], "The scale of the left matrices: one number, or one for each row."),
    ("a_zero_point", &[], "The number that stands for 0 on the left: one, or one for each row."),
    ("additional_inputs", &["SequenceMap"], "Further arguments of the body: of a sequence it gets one element at a time, a tensor whole."),
    ("attn_mask", &["Attention"], "What is added to the scores, or, as booleans, which keys each query may see. Broadcast to `[batch, heads, queries, keys]`."),
    ("axes", &["Pad"], "The axes that `pads` speaks of. If absent, all."),
    ("axes", &["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"], "The axes that are reduced; negative ones count from the end. What an empty or absent list means, `noop_with_empty_axes` says."),
    ("axes", &["Slice"], "The axes that are cut. If absent, the first ones."),
    ("axes", &["Squeeze"], "The axes of size 1 that are removed. If absent, all of size 1."),
    ("axes", &["Unsqueeze"], "Where axes of size 1 are in the output."),
    ("axis", &["CumProd", "CumSum"], "The axis along which elements are summed or multiplied up: one number."),
    ("axis", &["DFT"], "The axis of the signal. If absent, the last but one."),
    ("axis", &["Tile"], "The axis along which the tensor is repeated: one number."),
    ("b", &["QLinearMatMul"], "The right matrices, quantized."),
    ("b_scale", &[], "The scale of the right matrices: one number, or one for each column."),
    ("b_zero_point", &[], "The number that stands for 0 on the right: one, or one for each column."),
    ("batch_indices", &["RoiAlign"], "The image that each region belongs to."),
    ("beta", &["LinearAttention"], "How much each step changes the state."),
    ("bias", &["CausalConvWithState"], "What is added, for each channel."),
    ("bias", &["GroupNormalization"], "What is added, for each channel."),
    ("block_shape", &["Col2Im"], "The sizes of a block."),
    ("boxes", &["NonMaxSuppression"], "The boxes, `[batch, boxes, 4]`."),
    ("cond", &["If"], "Which branch runs: one boolean."),
    ("cond", &["Loop"], "Whether the first iteration runs: one boolean. If absent, it does."),
    ("condition", &["Compress"], "Which slices are kept, one for each slice from the start. Those beyond its length are left out."),
    ("condition", &["Where"], "Which of the two operands each element is taken from. The shapes of all three are broadcast."),
    ("constant_value", &["Pad"], "The new elements in the mode `constant`. If absent, 0, an empty text or false."),
    ("cos_cache", &["RotaryEmbedding"], "The cosines of the angles, for each position or for each element of the batch and step."),
    ("data", &[], "The input tensor."),
    ("data", &["Scatter", "ScatterElements", "ScatterND"], "The tensor that is copied, with some elements replaced."),
    ("data", &["Shape", "Size"], "A tensor. Only its shape is read."),
    ("data", &["Transpose"], "The tensor whose axes are reordered."),
    ("data_0", &["Max", "Mean", "Min", "Sum"], "The operands. Their shapes are broadcast."),
    ("decay", &["LinearAttention"], "The logarithm of the factor by which the state fades at each step."),
    ("delta", &["Range"], "The distance of two numbers; not 0."),
    ("depth", &["OneHot"], "The size of the new axis: one number."),
    ("dft_length", &["DFT"], "The length of the signal: longer ones are cut, shorter ones are filled with 0. If absent, that of the axis."),
    ("dft_length", &["MelWeightMatrix"], "The length of the transform that made the spectrum."),
    ("encoded_stream", &["ImageDecoder"], "The bytes of the file."),
    ("ends", &["Slice"], "Where each axis ends, not included; negative positions count from the end."),
    ("frame_length", &["STFT"], "The length of a window. If absent, that of `window`."),
    ("frame_step", &["STFT"], "How far apart the windows start."),
    ("grid", &["GridSample"], "The place that each output element is taken from, from -1 to 1 on each axis."),
    ("image_shape", &["Col2Im"], "The sizes of the image."),
    ("indices", &["Gather", "GatherElements", "GatherND"], "Positions on the axis; in `GatherND` the last axis holds a position for each axis of the data. Negative ones count from the end."),
    ("indices", &["OneHot"], "The place of the `on` value for each element. What is out of range gives none."),
    ("indices", &["Scatter", "ScatterElements", "ScatterND"], "Where the updates go. Negative positions count from the end."),
    ("initial_c", &["LSTM"], "The cell at the start, `[directions, batch, hidden]`. If absent, it is 0."),
    ("initial_h", &["GRU", "LSTM", "RNN"], "The state at the start, `[directions, batch, hidden]`. If absent, it is 0."),
    ("initial_state_and_scan_inputs", &["Scan"], "The states at the start, then the tensors whose slices the body gets."),
    ("input", &[], "The input tensor."),
    ("input", &["Bernoulli"], "Probabilities, from 0 to 1."),
    ("input", &["CausalConvWithState"], "The input, `[batch, channels, length]`."),
    ("input", &["Col2Im"], "The columns, `[N, C * block size, L]`."),
    ("input", &["ConstantOfShape"], "The shape of the output, as a list of sizes."),
    ("input", &["DFT"], "The signal; its last axis holds real numbers (size 1) or complex ones (size 2)."),
    ("input", &["EyeLike", "RandomNormalLike", "RandomUniformLike"], "A tensor that gives the shape, and the type where `dtype` is absent."),
    ("input", &["InstanceNormalization"], "The input; its channels are axis 1."),
    ("input", &["Multinomial"], "Logarithms of probabilities that need not sum to 1: `[batch, classes]`."),
    ("input", &["NegativeLogLikelihoodLoss"], "The logarithms of probabilities, `[N, C, D1, …]`."),
    ("input", &["Optional"], "The value that is wrapped. If absent, the optional is empty."),
    ("input", &["OptionalGetElement"], "The optional value, which must not be empty; or a value that is given back as it is."),
    ("input", &["OptionalHasElement"], "The optional value. If absent, there is none."),
    ("input", &["Split", "SplitToSequence"], "The tensor to split."),
    ("input", &["Tile"], "The tensor to repeat."),
    ("input", &["Trilu"], "Matrices; axes before the last two are a batch."),
    ("input_data", &["CenterCropPad"], "The tensor to cut or fill."),
    ("input_mean", &["BatchNormalization"], "The mean of each channel; in training, the running one so far."),
    ("input_sequence", &[], "The sequence."),
    ("input_sequence", &["ConcatFromSequence"], "The tensors that are joined."),
    ("input_var", &["BatchNormalization"], "The variance of each channel; in training, the running one so far."),
    ("inputs", &["Adagrad"], "The weights, then their gradients, then their sums of squares of gradients."),
    ("inputs", &["Adam"], "The weights, then their gradients, then their running means, then their running means of squares."),
    ("inputs", &["Concat"], "The tensors that are joined. They differ in size on the axis only."),
    ("inputs", &["Momentum"], "The weights, then their gradients, then their momentums."),
    ("inputs", &["SequenceConstruct"], "The tensors of the sequence, in order."),
    ("iou_threshold", &["NonMaxSuppression"], "From which overlap on a box with a lower score is dropped: the common area divided by that of both."),
    ("k", &["Trilu"], "Which diagonal is the border: 0 is the main one, larger numbers lie above it. If absent, 0."),
    ("key", &["LinearAttention"], "The keys, `[batch, length, heads * head size]`."),
    ("labels", &["SoftmaxCrossEntropyLoss"], "The right class of each element: `[N, D1, …]`."),
    ("limit", &["Range"], "Where the numbers end, not included."),
    ("lower_edge_hertz", &["MelWeightMatrix"], "The lowest frequency of the bands."),
    ("mask", &["DeformConv"], "Factors for what each place of the kernel sees: `[N, offset_group * KH * KW, OH, OW]`."),
    ("max", &["Clip"], "The largest value. If absent, there is none."),
    ("max_output_boxes_per_class", &["NonMaxSuppression"], "The most boxes that are selected for a class of an image. If absent, none is."),
    ("mean", &["BatchNormalization"], "The mean of each channel; in training, the running one so far."),
    ("min", &["Clip"], "The smallest value. If absent, there is none."),
    ("nonpad_kv_seqlen", &["Attention"], "How many keys of each sequence of the batch are valid; the others are padding."),
    ("num_mel_bins", &["MelWeightMatrix"], "The number of bands."),
    ("offset", &["DeformConv"], "By how much each place of the kernel moves, for each output element: `[N, offset_group * KH * KW * 2, OH, OW]`."),
    ("output_shape", &["MaxUnpool"], "The shape of the output."),
    ("pads", &["Pad"], "How many elements are added at the start of each axis, then at the end of each. Negative numbers remove."),
    ("past_cache", &["TensorScatter"], "The cache so far."),
    ("past_key", &["Attention"], "The keys of earlier calls, which come before those of `K`."),
    ("past_state", &["CausalConvWithState"], "The last `K - 1` steps of the call before, `[batch, channels, K - 1]`. If absent, they are 0."),
    ("past_state", &["LinearAttention"], "The state at the end of the call before. If absent, it is 0."),
    ("past_value", &["Attention"], "The values of earlier calls, which come before those of `V`."),
    ("position", &["SequenceAt"], "The place of the tensor; negative places count from the end."),
    ("position", &["SequenceErase"], "The place of the tensor that is removed; negative places count from the end. If absent, the last."),
    ("position", &["SequenceInsert"], "The place of the tensor in the output; negative places count from the end. If absent, the end."),
    ("position_ids", &["RotaryEmbedding"], "The position of each step, by which angles are looked up."),
    ("query", &["LinearAttention"], "The queries, `[batch, length, heads * head size]`."),
    ("ratio", &["Dropout"], "The share of elements that training replaces by 0. If absent, 0.5."),
    ("repeats", &["Tile"], "How often the tensor is repeated along each axis."),
    ("roi", &["Resize"], "The start of the region on each axis, then the end on each; read where `coordinate_transformation_mode` is `tf_crop_and_resize`."),
    ("rois", &["MaxRoiPool"], "Regions, `[R, 5]`: the image and two corners of each."),
    ("rois", &["RoiAlign"], "Regions, `[R, 4]`: two corners of each."),
    ("sample_rate", &["MelWeightMatrix"], "Samples per second."),
    ("scale", &["BatchNormalization"], "A factor for each channel."),
    ("scale", &["GroupNormalization", "InstanceNormalization"], "A factor for each channel."),
    ("scale", &["RMSNormalization"], "Factors; broadcast to the input."),
    ("scales", &["Resize", "Upsample"], "The factor for each axis."),
    ("score_threshold", &["NonMaxSuppression"], "Boxes with lower scores are dropped."),
    ("scores", &["NonMaxSuppression"], "The score of each box for each class: `[batch, classes, boxes]`."),
    ("scores", &["SoftmaxCrossEntropyLoss"], "The scores, before the softmax: `[N, C, D1, …]`."),
    ("sequence_lens", &["GRU", "LSTM", "RNN"], "The length of each sequence of the batch. If absent, all are as long as the tensor."),
    ("sequence_lens", &["ReverseSequence"], "How many elements of each sequence are reversed."),
    ("sequence_lens", &["Scan"], "How many steps each element of the batch has. If absent, all."),
    ("shape", &["CenterCropPad"], "The sizes of the axes in the output."),
    ("shape", &["Expand"], "The shape that the input is broadcast with."),
    ("shape", &["Reshape"], "The new shape. One size may be -1, for what is left; 0 copies a size, unless `allowzero` is set."),
    ("signal", &["STFT"], "The signals, `[batch, length, 1]`, or 2 in the place of 1 for complex ones."),
    ("sin_cache", &["RotaryEmbedding"], "The sines of the angles, in the shape of `cos_cache`."),
    ("size", &["AffineGrid"], "The shape of the images that the grid is for: `[N, C, H, W]` or `[N, C, D, H, W]`."),
    ("size", &["BlackmanWindow", "HammingWindow", "HannWindow"], "The number of elements of the window."),
    ("sizes", &["Resize"], "The size of each axis, in the place of `scales`."),
    ("slope", &["PRelu"], "The factor for elements below 0; broadcast to the input."),
    ("split", &["Split", "SplitToSequence"], "The sizes of the parts."),
    ("start", &["Range"], "The first number."),
    ("starts", &["Slice"], "Where each axis begins; negative positions count from the end."),
    ("steps", &["Slice"], "The distance of elements on each axis; negative ones go backwards. If absent, 1."),
    ("target", &["NegativeLogLikelihoodLoss"], "The right class of each element: `[N, D1, …]`."),
    ("target_type", &["CastLike"], "A tensor of the type that is wanted. Its values are not read."),
    ("tensor", &["SequenceInsert"], "The tensor that is added."),
    ("theta", &["AffineGrid"], "A matrix for each image: `[N, 2, 3]`, or `[N, 3, 4]` in three dimensions."),
    ("tiles", &["Tile"], "How often the tensor is repeated: one number."),
    ("training_mode", &["Dropout"], "Whether elements are dropped. If absent, they are not."),
    ("update", &["TensorScatter"], "The new entries."),
    ("updates", &["Scatter", "ScatterElements", "ScatterND"], "What is written or combined with what is there."),
    ("upper_edge_hertz", &["MelWeightMatrix"], "The highest frequency of the bands."),
    ("v_initial", &["Loop"], "The values that iterations hand on, as they are at the start."),
    ("value", &["LinearAttention"], "The values, `[batch, length, heads * head size]`."),
    ("values", &["OneHot"], "Two elements: the value everywhere else, and the one at the place."),
    ("var", &["BatchNormalization"], "The variance of each channel; in training, the running one so far."),
    ("w", &["ConvInteger", "QLinearConv"], "The kernels, quantized: `[M, C / group, K1, …]`."),
    ("w_scale", &[], "The scale of `w`: one number, or one for each output channel."),
    ("w_zero_point", &[], "The number that stands for 0 in `w`: one, or one for each output channel."),
    ("weight", &["CausalConvWithState"], "The kernel of each channel, `[channels, 1, K]`."),
    ("weight", &["NegativeLogLikelihoodLoss"], "How much each class counts. If absent, 1."),
    ("weights", &["SoftmaxCrossEntropyLoss"], "How much each class counts. If absent, 1."),
    ("window", &["STFT"], "The weights within a window. If absent, all are 1."),
    ("write_indices", &["TensorScatter"], "Where the entries of each sequence begin. If absent, at 0."),
    ("x", &[], "The input tensor."),
    ("x", &["ConvInteger", "QLinearConv"], "The input, quantized: `[N, C, D1, …]`."),
    ("x", &["DequantizeLinear"], "The quantized tensor."),
    ("x", &["DynamicQuantizeLinear", "QuantizeLinear"], "The tensor to quantize."),
    ("x_scale", &[], "The scale of `x`."),
    ("x_scale", &["DequantizeLinear"], "The scale: one number, one for each slice of `axis`, or one for each block along it."),
    ("x_zero_point", &[], "The number that stands for 0 in `x`."),
    ("y_scale", &[], "The scale of `y`."),
    ("y_scale", &["QuantizeLinear"], "The scale: one number, one for each slice of `axis`, or one for each block along it."),
    ("y_zero_point", &[], "The number that stands for 0 in `y`. Its type is that of the output."),
];

#[rustfmt::skip]
const OUTPUTS: &[Row] = &[
    ("C", &["Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Mul", "Or", "Sub", "Xor"], "The result, in the shape that both operands are broadcast to."),
    ("Indices", &["MaxPool"], "Where each maximum was in the flattened input, for `MaxUnpool`."),
    ("Indices", &["TopK"], "Where the elements were on the axis."),
    ("InvStdDev", &["LayerNormalization"], "The factor that the differences were multiplied with: 1 over the standard deviation."),
    ("Mean", &["LayerNormalization"], "The mean that was subtracted."),
    ("Output", &["Einsum"], "The result."),
    ("Outputs", &["Gradient"], "The derivative of `y` with respect to each of `xs`."),
    ("Values", &["TopK"], "The elements that were taken."),
    ("Y", &[], "The result."),
    ("Y", &["Attention", "FlexAttention"], "The weighted values, in the layout of the queries."),
    ("Y", &["GRU", "LSTM", "RNN"], "The state after each step, `[sequence, directions, batch, hidden]`, or the batch first where `layout` is 1."),
    ("Y", &["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"], "The best class of each sample."),
    ("Y", &["LinearRegressor", "SVMRegressor", "TreeEnsemble", "TreeEnsembleRegressor"], "The numbers of each sample."),
    ("Y", &["StringSplit"], "The parts of each text along a new last axis, filled with empty texts."),
    ("Y", &["Unique"], "The different elements or slices."),
    ("Y_c", &["LSTM"], "The last cell, `[directions, batch, hidden]`, or the batch first where `layout` is 1."),
    ("Y_h", &["GRU", "LSTM", "RNN"], "The last state, `[directions, batch, hidden]`, or the batch first where `layout` is 1."),
    ("Z", &[], "The result."),
    ("Z", &["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"], "The score of each class for each sample."),
    ("Z", &["StringSplit"], "The number of parts of each text."),
    ("Z", &["ZipMap"], "A map from class to score for each sample."),
    ("concat_result", &[], "The joined tensor."),
    ("counts", &["Unique"], "How often each of them occurs."),
    ("expanded", &["Unsqueeze"], "The same elements with the new axes."),
    ("final_state_and_scan_outputs", &["Scan"], "The states at the end, then what each step gave, joined along a new axis."),
    ("grid", &["AffineGrid"], "Places from -1 to 1, as `GridSample` takes them."),
    ("image", &["ImageDecoder"], "The pixels, `[H, W, C]`."),
    ("indices", &["Unique"], "Where each of them occurs first."),
    ("inverse_indices", &["Unique"], "Which of them each element or slice of the input is."),
    ("length", &["SequenceLength"], "The number of tensors."),
    ("log_prob", &["SoftmaxCrossEntropyLoss"], "The logarithms of the probabilities."),
    ("loss", &[], "The loss: one number, or one for each element where `reduction` is `none`."),
    ("mask", &["Dropout"], "Which elements were kept."),
    ("max", &[], "The largest element at each place."),
    ("mean", &[], "The mean at each place."),
    ("mean", &["BatchNormalization"], "The new running mean of each channel; only in training."),
    ("min", &[], "The smallest element at each place."),
    ("out_sequence", &["SequenceMap"], "For each output of the body, the sequence of what it gave."),
    ("output", &[], "The result."),
    ("output", &["OptionalHasElement"], "Whether there is a value: one boolean."),
    ("output", &["SoftmaxCrossEntropyLoss"], "The loss: one number, or one for each element where `reduction` is `none`."),
    ("output_data", &["CenterCropPad"], "The result."),
    ("output_sequence", &[], "The sequence."),
    ("outputs", &["Adagrad", "Momentum"], "The new weights, then what is kept for the next step."),
    ("outputs", &["Adam"], "The new weights, then the new running means, then the new running means of squares."),
    ("outputs", &["If"], "The outputs of the branch that ran."),
    ("outputs", &["Split"], "The parts, in order."),
    ("outputs...", &["Split"], "The parts, in order."),
    ("present_cache", &["TensorScatter"], "The cache with the new entries."),
    ("present_key", &["Attention"], "All keys, those of earlier calls first."),
    ("present_state", &["CausalConvWithState"], "The last `K - 1` steps, for the next call."),
    ("present_state", &["LinearAttention"], "The state at the end, for the next call."),
    ("present_value", &["Attention"], "All values, those of earlier calls first."),
    ("qk_matmul_output", &["Attention"], "The scores at the stage that `qk_matmul_output_mode` names."),
    ("reduced", &[], "The result; reduced axes have size 1, or are gone where `keepdims` is 0."),
    ("reshaped", &["Reshape"], "The same elements in the new shape."),
    ("running_mean", &["BatchNormalization"], "The new running mean of each channel; only in training."),
    ("running_var", &["BatchNormalization"], "The new running variance of each channel; only in training."),
    ("saved_mean", &["BatchNormalization"], "The mean of each channel of the batch; only in training."),
    ("saved_var", &["BatchNormalization"], "The variance of each channel of the batch; only in training."),
    ("selected_indices", &["NonMaxSuppression"], "The image, class and box of each box that was selected: `[selected, 3]`."),
    ("shape", &["Shape"], "The sizes of the axes."),
    ("size", &["Size"], "The number of elements."),
    ("squeezed", &["Squeeze"], "The same elements without those axes."),
    ("sum", &[], "The sum at each place."),
    ("tensor", &["SequenceAt"], "The tensor at that place."),
    ("transposed", &["Transpose"], "The same elements with the axes in the new order."),
    ("v_final_and_scan_outputs", &["Loop"], "The values that iterations hand on, as they are at the end, then what each iteration gave, joined along a new first axis."),
    ("var", &["BatchNormalization"], "The new running variance of each channel; only in training."),
    ("y", &[], "The result."),
    ("y", &["DynamicQuantizeLinear"], "The quantized tensor."),
    ("y_scale", &["DynamicQuantizeLinear"], "The scale that was chosen."),
    ("y_zero_point", &["DynamicQuantizeLinear"], "The number that stands for 0 in `y`."),
];

#[rustfmt::skip]
const ATTRIBUTES: &[Row] = &[
    ("activation", &["CausalConvWithState"], "The function of the result: `none`, `silu` or `swish`."),
    ("activation_alpha", &["GRU", "LSTM", "RNN"], "The first coefficient of activation functions that have one, in their order."),
    ("activation_beta", &["GRU", "LSTM", "RNN"], "The second coefficient of activation functions that have one, in their order."),
    ("activations", &["GRU", "LSTM", "RNN"], "The names of the activation functions, for each direction in turn."),
    ("aggregate_function", &["TreeEnsemble"], "How the leaves of trees are combined: 0 mean, 1 sum, 2 smallest, 3 largest."),
    ("aggregate_function", &["TreeEnsembleRegressor"], "How the leaves of trees are combined: `SUM`, `AVERAGE`, `MIN` or `MAX`."),
    ("align_corners", &["AffineGrid", "GridSample"], "Whether -1 and 1 are the centers of the outermost elements, rather than their edges."),
    ("allowzero", &["Reshape"], "Whether a size of 0 is meant as such, rather than copied from the input."),
    ("alpha", &["Adam", "Momentum"], "The share of the running mean of gradients that is kept."),
    ("alpha", &["Celu", "Elu"], "The scale of what is below 0."),
    ("alpha", &["Gemm"], "A factor for the product."),
    ("alpha", &["HardSigmoid"], "The slope."),
    ("alpha", &["LRN"], "The factor of the mean of squares."),
    ("alpha", &["LeakyRelu"], "The factor for what is below 0."),
    ("alpha", &["Selu"], "The scale of what is below 0."),
    ("alpha", &["SwiGLU", "Swish"], "The factor within the sigmoid."),
    ("alpha", &["ThresholdedRelu"], "The threshold: what is not above it becomes 0."),
    ("antialias", &["Resize"], "Whether a smaller output takes all elements that lie below it."),
    ("approximate", &["Gelu"], "`none` for the error function, `tanh` for an approximation by the hyperbolic tangent."),
    ("auto_pad", &[], "`NOTSET` takes `pads`, `VALID` adds nothing, `SAME_UPPER` and `SAME_LOWER` add as much as gives one window per stride."),
    ("axes", &["CenterCropPad", "Resize"], "The axes that the sizes belong to. If absent, all."),
    ("axes", &["MeanVarianceNormalization"], "The axes over which mean and variance are taken."),
    ("axes", &["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"], "The axes that are reduced. If absent, all."),
    ("axes", &["Slice"], "The axes that are cut. If absent, the first ones."),
    ("axes", &["Squeeze", "Unsqueeze"], "The axes that are removed or added; negative ones count from the end."),
    ("axis", &[], "The axis; negative ones count from the end."),
    ("axis", &["ArgMax", "ArgMin"], "The axis that is searched; negative ones count from the end."),
    ("axis", &["Compress", "Unique"], "The axis of the slices; negative ones count from the end. If absent, the input counts as flattened."),
    ("axis", &["Concat"], "The axis along which the tensors are joined."),
    ("axis", &["ConcatFromSequence"], "The axis along which the tensors are joined, or where the new one is."),
    ("axis", &["DequantizeLinear", "QuantizeLinear"], "The axis that scales belong to, where there are several."),
    ("axis", &["Flatten"], "Axes before this one become rows, the others columns."),
    ("axis", &["Gather"], "The axis that positions are on; negative ones count from the end."),
    ("axis", &["Hardmax", "LogSoftmax", "Softmax"], "The axis whose elements belong together; negative ones count from the end. Up to version 12, all axes from this one on."),
    ("axis", &["LayerNormalization", "RMSNormalization"], "The first of the axes that are normalized; negative ones count from the end."),
    ("axis", &["OneHot"], "Where the new axis is in the output; negative ones count from the end."),
    ("axis", &["Split", "SplitToSequence"], "The axis that is split; negative ones count from the end."),
    ("axis", &["TensorScatter"], "The axis of the steps; negative ones count from the end."),
    ("axis", &["TopK"], "The axis of the slices; negative ones count from the end."),
    ("base_values", &[], "What is added, for each class or target."),
    ("base_values_as_tensor", &[], "What is added, for each class or target, as a tensor."),
    ("batch_axis", &["ReverseSequence"], "The axis of the batch, 0 or 1."),
    ("batch_dims", &["GatherND"], "How many first axes of data and indices belong together."),
    ("beta", &["Adam"], "The share of the running mean of squares that is kept."),
    ("beta", &["Gemm"], "A factor for `C`."),
    ("beta", &["HardSigmoid"], "The value at 0."),
    ("beta", &["LRN"], "The exponent of that."),
    ("beta", &["Momentum"], "How much a new gradient counts in the momentum."),
    ("bias", &["LRN"], "What is added to the mean of squares times `alpha`."),
    ("bias", &["Shrink"], "By how much the others move towards 0."),
    ("block_size", &["DequantizeLinear", "QuantizeLinear"], "How many elements share a scale along the axis. 0: there are no blocks."),
    ("blocksize", &["DepthToSpace", "SpaceToDepth"], "The size of a block on each axis."),
    ("body", &["Loop"], "The graph of an iteration. It takes the number of the iteration, the condition and the values handed on; it gives the condition, these values, and what is collected."),
    ("body", &["Scan"], "The graph of a step. It takes the states and a slice of each scanned input; it gives the new states and what is collected."),
    ("body", &["SequenceMap"], "The graph that is applied to each element."),
    ("broadcast", &[], "Whether the second operand is broadcast."),
    ("case_change_action", &["StringNormalizer"], "What happens to letters: `LOWER`, `UPPER` or `NONE`."),
    ("cast_to", &["CastMap"], "The type of the output: `TO_FLOAT`, `TO_STRING` or `TO_INT64`."),
    ("cats_int64s", &["CategoryMapper", "OneHotEncoder"], "The categories as integers."),
    ("cats_strings", &["CategoryMapper", "OneHotEncoder"], "The categories as texts."),
    ("ceil_mode", &[], "Whether a last window that is not full counts."),
    ("center_point_box", &["NonMaxSuppression"], "What a box is: 0 two opposite corners, 1 its center, width and height."),
    ("chunk_size", &["LinearAttention"], "How many steps an implementation may compute at once. It does not change the result."),
    ("class_ids", &["TreeEnsembleClassifier"], "The class of each weight."),
    ("class_nodeids", &["TreeEnsembleClassifier"], "The node of each weight."),
    ("class_treeids", &["TreeEnsembleClassifier"], "The tree of each weight."),
    ("class_weights", &["TreeEnsembleClassifier"], "The weights of leaves for classes."),
    ("class_weights_as_tensor", &["TreeEnsembleClassifier"], "The weights of leaves for classes, as a tensor."),
    ("classes_strings", &["LabelEncoder"], "The texts, in the order of their numbers."),
    ("classlabels_int64s", &[], "The classes as integers."),
    ("classlabels_ints", &[], "The classes as integers."),
    ("classlabels_strings", &[], "The classes as texts."),
    ("clip", &["GRU", "LSTM", "RNN"], "The limit of what activation functions are given, on both sides. If absent, there is none."),
    ("coefficients", &["LinearClassifier", "LinearRegressor"], "The weights of the features, for each class or target in turn."),
    ("coefficients", &["SVMClassifier", "SVMRegressor"], "The weights of the support vectors."),
    ("consumed_inputs", &[], "A hint of old versions about memory, which is not used."),
    ("coordinate_transformation_mode", &["Resize"], "Which place of the input a place of the output is computed from."),
    ("coordinate_transformation_mode", &["RoiAlign"], "Whether coordinates are moved by half an element (`half_pixel`) or not (`output_half_pixel`)."),
    ("count_include_pad", &["AveragePool"], "Whether padding counts in the mean."),
    ("cubic_coeff_a", &["Resize"], "The coefficient of cubic interpolation."),
    ("decay_factor", &["Adagrad"], "How the learning rate falls with the number of steps."),
    ("default_float", &["LabelEncoder"], "What an element without an entry becomes, as a float."),
    ("default_int64", &["CategoryMapper", "LabelEncoder"], "What an element without an entry becomes, as an integer."),
    ("default_string", &["CategoryMapper", "LabelEncoder"], "What an element without an entry becomes, as a text."),
    ("default_tensor", &["LabelEncoder"], "What an element without an entry becomes, as a tensor of one element."),
    ("delimiter", &["StringSplit"], "What stands between parts. If absent or empty, any white space."),
    ("detect_negative", &["IsInf"], "Whether negative infinity counts."),
    ("detect_positive", &["IsInf"], "Whether positive infinity counts."),
    ("dilations", &[], "How far apart the elements of a window are, on each spatial axis. If absent, 1."),
    ("direction", &["BitShift"], "`LEFT`, towards higher bits, or `RIGHT`."),
    ("direction", &["GRU", "LSTM", "RNN"], "`forward`, `reverse` or `bidirectional`, which does both."),
    ("directions", &["Scan"], "For each scanned input: 0 from the start, 1 from the end. If absent, 0."),
    ("dtype", &[], "The element type of the output, by its number."),
    ("dtype", &["Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"], "The element type of the output, by its number. If absent, that of the input."),
    ("dtype", &["SequenceEmpty"], "The element type of the tensors, by its number. If absent, float."),
    ("else_branch", &["If"], "The graph that runs if the condition is false. It takes no inputs."),
    ("end", &["Shape"], "The axis before which the sizes end; negative ones count from the end. If absent, all that follow are given."),
    ("ends", &["Slice"], "Where each axis ends, not included; negative positions count from the end."),
    ("epsilon", &[], "What is added to the variance, so that it is not 0."),
    ("epsilon", &["Adagrad", "Adam"], "What is added to a divisor, so that it is not 0."),
    ("epsilon", &["RMSNormalization"], "What is added to the mean of squares, so that it is not 0."),
    ("equation", &["Einsum"], "The letters of the axes of each operand, and after an arrow those of the result."),
    ("exclude_outside", &["Resize"], "Whether elements outside count as absent, and the others as more."),
    ("exclusive", &["CumProd", "CumSum"], "Whether an element leaves itself out."),
    ("extrapolation_value", &["Resize"], "What is outside in the mode `tf_crop_and_resize`."),
    ("fmod", &["Mod"], "Whose sign the result has: 0 that of the divisor, 1 that of the dividend. Floats need 1."),
    ("gamma", &["Selu"], "A factor for everything."),
    ("group", &[], "Into how many groups the channels are split."),
    ("height_scale", &["Upsample"], "The factor for the height."),
    ("hidden_size", &["GRU", "LSTM", "RNN"], "The number of elements of a state."),
    ("high", &["RandomUniform", "RandomUniformLike"], "The end of the range, not included."),
    ("ignore_index", &["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"], "A class whose elements do not count. If absent, all do."),
    ("imputed_value_floats", &["Imputer"], "What replaces a missing float, for each feature or for all."),
    ("imputed_value_int64s", &["Imputer"], "What replaces a missing integer, for each feature or for all."),
    ("input_forget", &["LSTM"], "Whether the forget gate is 1 minus the input gate."),
    ("inputdimensions", &["FeatureVectorizer"], "How many features each input has."),
    ("int64_vocabulary", &["DictVectorizer"], "The keys in the order of the output, as integers."),
    ("intercepts", &["LinearClassifier", "LinearRegressor"], "What is added, for each class or target."),
    ("interleaved", &["RotaryEmbedding"], "Whether the features of a pair are neighbours, rather than half a head apart."),
    ("inverse", &["DFT"], "Whether the transform goes back."),
    ("is_case_sensitive", &["StringNormalizer"], "Whether stop words are compared with their case."),
    ("is_causal", &["Attention"], "Whether a query sees only keys that are not after it."),
    ("is_test", &[], "Whether this is inference, rather than training."),
    ("k", &["EyeLike"], "Which diagonal is 1: 0 is the main one, larger numbers lie above it."),
    ("k", &["TopK"], "How many elements are taken from each slice."),
    ("keep_aspect_ratio_policy", &["Resize"], "Whether `sizes` are taken as they are (`stretch`), or bound from above (`not_larger`) or below (`not_smaller`)."),
    ("keepdims", &[], "Whether reduced axes stay, with size 1."),
    ("keepdims", &["SplitToSequence"], "Whether the axis stays where all parts have size 1."),
    ("kernel_params", &[], "Three coefficients of the kernel: gamma, coef0 and the degree."),
    ("kernel_shape", &[], "The size of a window on each spatial axis."),
    ("kernel_shape", &["Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"], "The size of a kernel on each spatial axis. If absent, that of the weights."),
    ("kernel_shape", &["MaxUnpool"], "The window that `MaxPool` had."),
    ("kernel_type", &[], "The kernel: `LINEAR`, `POLY`, `RBF` or `SIGMOID`."),
    ("keys_floats", &["LabelEncoder"], "What is looked up, as floats."),
    ("keys_int64s", &["LabelEncoder"], "What is looked up, as integers."),
    ("keys_strings", &["LabelEncoder"], "What is looked up, as texts."),
    ("keys_tensor", &["LabelEncoder"], "What is looked up, as a tensor."),
    ("kv_num_heads", &["Attention", "LinearAttention"], "The number of heads of keys and values, which 3-dimensional inputs do not show."),
    ("lambd", &["Shrink"], "The distance from 0 up to which numbers become 0."),
    ("largest", &["TopK"], "Whether the largest elements are taken, rather than the smallest."),
    ("layout", &["GRU", "LSTM", "RNN"], "Which axis is first: 0 the sequence, 1 the batch."),
    ("leaf_targetids", &["TreeEnsemble"], "The target of each leaf."),
    ("leaf_weights", &["TreeEnsemble"], "The weight of each leaf."),
    ("left_window_size", &["Attention"], "How many keys before it a query sees. -1: all."),
    ("linear_before_reset", &["GRU"], "Whether the reset gate is applied after the product with the weights, rather than before it."),
    ("locale", &["StringNormalizer"], "The language by whose rules letters change."),
    ("low", &["RandomUniform", "RandomUniformLike"], "The smallest number."),
    ("map_form", &["CastMap"], "What the keys are: `DENSE` only an order, `SPARSE` positions."),
    ("max", &["Clip"], "The largest value."),
    ("max_gram_length", &["TfIdfVectorizer"], "The most elements of an n-gram."),
    ("max_map", &["CastMap"], "The size of the output in the form `SPARSE`."),
    ("max_skip_count", &["TfIdfVectorizer"], "How many elements may be left out between two elements of an n-gram."),
    ("maxsplit", &["StringSplit"], "The most splits. If absent, there is no limit."),
    ("mean", &["RandomNormal", "RandomNormalLike"], "The mean."),
    ("membership_values", &["TreeEnsemble"], "The sets of nodes that ask for members, one after another, with NaN after each."),
    ("min", &["Clip"], "The smallest value."),
    ("min_gram_length", &["TfIdfVectorizer"], "The fewest elements of an n-gram."),
    ("mode", &["DepthToSpace"], "Which part of the channels are the blocks: the first, `DCR`, or the last, `CRD`."),
    ("mode", &["GridSample"], "How elements are read at places between elements: nearest, linear or cubic."),
    ("mode", &["Momentum"], "`standard`, or `nesterov`, which looks one step ahead."),
    ("mode", &["Pad"], "Where new elements come from: a `constant`, the `edge`, a mirror image (`reflect`), or the other end (`wrap`)."),
    ("mode", &["Resize"], "How elements are computed: `nearest`, `linear` or `cubic`."),
    ("mode", &["RoiAlign"], "What a place of the output is of its samples: `avg` or `max`."),
    ("mode", &["SpaceToDepth"], "Which part of the output channels are the places in a block: the first, `DCR`, or the last, `CRD`."),
    ("mode", &["TensorScatter"], "Whether entries beyond the end are an error (`linear`) or go to the start (`circular`)."),
    ("mode", &["TfIdfVectorizer"], "What is given for an n-gram: `TF` its number of occurrences, `IDF` its weight if it occurs, `TFIDF` the number times the weight."),
    ("mode", &["Upsample"], "How elements are computed: nearest or linear."),
    ("momentum", &["BatchNormalization"], "The share of the running mean and variance that is kept."),
    ("multi_class", &["LinearClassifier"], "How classes are told apart; it does not change the scores."),
    ("n_supports", &["SVMRegressor"], "The number of support vectors."),
    ("n_targets", &[], "The number of targets."),
    ("nearest_mode", &["Resize"], "Which way a place between two elements is rounded."),
    ("new_axis", &["ConcatFromSequence"], "Whether the tensors are joined along a new axis."),
    ("ngram_counts", &["TfIdfVectorizer"], "Where the n-grams of each length begin in the pool."),
    ("ngram_indexes", &["TfIdfVectorizer"], "The place of each n-gram in the output."),
    ("nodes_falseleafs", &["TreeEnsemble"], "Whether what follows where the comparison is false is a leaf."),
    ("nodes_falsenodeids", &["TreeEnsemble"], "The node, or the leaf, that follows where the comparison is false."),
    ("nodes_falsenodeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "The node that follows where the comparison is false."),
    ("nodes_featureids", &["TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"], "The feature that each node compares."),
    ("nodes_hitrates", &["TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"], "How often each node is reached. It does not change the result."),
    ("nodes_hitrates_as_tensor", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "How often each node is reached, as a tensor. It does not change the result."),
    ("nodes_missing_value_tracks_true", &["TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"], "Whether a missing feature, NaN, counts as true, for each node."),
    ("nodes_modes", &["TreeEnsemble"], "How each node compares: 0 less or equal, 1 less, 2 greater or equal, 3 greater, 4 equal, 5 not equal, 6 a member of a set."),
    ("nodes_modes", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "How each node compares: `BRANCH_LEQ`, `BRANCH_LT`, `BRANCH_GTE`, `BRANCH_GT`, `BRANCH_EQ`, `BRANCH_NEQ`; or `LEAF`."),
    ("nodes_nodeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "The number of each node in its tree."),
    ("nodes_splits", &["TreeEnsemble"], "What each node compares with."),
    ("nodes_treeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "The tree of each node."),
    ("nodes_trueleafs", &["TreeEnsemble"], "Whether what follows where the comparison is true is a leaf."),
    ("nodes_truenodeids", &["TreeEnsemble"], "The node, or the leaf, that follows where the comparison is true."),
    ("nodes_truenodeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "The node that follows where the comparison is true."),
    ("nodes_values", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "What each node compares with."),
    ("nodes_values_as_tensor", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "What each node compares with, as a tensor."),
    ("noop_with_empty_axes", &[], "What an empty list of axes means: 0 reduces all of them, 1 none."),
    ("norm", &["Normalizer"], "What rows are divided by: `MAX`, `L1` or `L2`."),
    ("norm_coefficient", &["Adagrad", "Adam", "Momentum"], "How much the square of the weights counts in the loss."),
    ("norm_coefficient_post", &["Adam"], "By which share the weights shrink after the step."),
    ("num_groups", &["GroupNormalization"], "Into how many groups the channels are split."),
    ("num_heads", &["RotaryEmbedding"], "The number of heads, which a 3-dimensional input does not show."),
    ("num_outputs", &["Split"], "The number of parts, of equal size but for the last."),
    ("num_scan_inputs", &["Scan"], "How many of the last inputs are scanned."),
    ("offset", &["Scaler"], "What is subtracted from each feature, or from all."),
    ("offset_group", &["DeformConv"], "Into how many groups the channels are split for offsets."),
    ("one_class", &["SVMRegressor"], "Whether the answer is 1 for what belongs to the class and -1 for the rest."),
    ("onesided", &["DFT", "STFT"], "Whether only the first half of the spectrum is given, which for real signals says everything."),
    ("output_datatype", &[], "The element type of the output, by its number."),
    ("output_dtype", &[], "The element type of the output, by its number. 0: it follows from the inputs."),
    ("output_height", &["RoiAlign"], "The height of the output."),
    ("output_padding", &["ConvTranspose"], "How many elements are added at the end of each spatial axis of the output."),
    ("output_sequence", &["GRU", "LSTM", "RNN"], "Whether the state after each step is given."),
    ("output_shape", &["ConvTranspose"], "The spatial sizes of the output, from which the padding follows."),
    ("output_width", &["RoiAlign"], "The width of the output."),
    ("p", &["GlobalLpPool", "LpNormalization", "LpPool"], "The exponent of the norm."),
    ("padding_mode", &["GridSample"], "What is read outside: `zeros`, the `border`, or a `reflection`."),
    ("paddings", &["Pad"], "How many elements are added at the start of each axis, then at the end of each."),
    ("pads", &[], "How many elements are added at the start of each spatial axis, then at the end of each."),
    ("pads", &["ConvTranspose"], "How many elements of the output are removed at the start of each spatial axis, then at the end of each."),
    ("pads", &["MaxUnpool"], "The padding that `MaxPool` had."),
    ("pads", &["Pad"], "How many elements are added at the start of each axis, then at the end of each."),
    ("pattern", &["RegexFullMatch"], "The regular expression, in the syntax of RE2."),
    ("periodic", &["BlackmanWindow", "HammingWindow", "HannWindow"], "Whether the window is for a signal that repeats, rather than symmetric."),
    ("perm", &["Transpose"], "The axis of the input that each axis of the output is. If absent, the order is reversed."),
    ("pixel_format", &["ImageDecoder"], "The channels of a pixel: `RGB`, `BGR` or `Grayscale`."),
    ("pool_int64s", &["TfIdfVectorizer"], "The n-grams of integers, one after another."),
    ("pool_strings", &["TfIdfVectorizer"], "The n-grams of texts, one after another."),
    ("pooled_shape", &["MaxRoiPool"], "Height and width of the output."),
    ("post_transform", &[], "What scores are turned into: `NONE`, `SOFTMAX`, `LOGISTIC`, `SOFTMAX_ZERO` or `PROBIT`."),
    ("post_transform", &["TreeEnsemble"], "What scores are turned into: 0 nothing, 1 softmax, 2 logistic, 3 softmax of what is not 0, 4 probit."),
    ("precision", &["QuantizeLinear"], "The element type that the division is computed in, by its number. 0: that of the scale."),
    ("prob_a", &["SVMClassifier"], "The slope of the logistic function that makes probabilities."),
    ("prob_b", &["SVMClassifier"], "The offset of the logistic function that makes probabilities."),
    ("prob_mod", &["FlexAttention"], "The graph that changes each weight."),
    ("q_num_heads", &["Attention", "LinearAttention"], "The number of heads of queries, which 3-dimensional inputs do not show."),
    ("qk_matmul_output_mode", &["Attention"], "At which stage scores are given: 0 as products, later numbers after mask, soft cap or softmax."),
    ("ratio", &["Dropout"], "The share of elements that training replaces by 0."),
    ("reduction", &["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"], "`none`, or how the losses become one number: `sum`, or `mean`, in which weights count."),
    ("reduction", &["ScatterElements", "ScatterND"], "How an update is combined with what is there: `none` replaces it, otherwise `add`, `mul`, `max` or `min`."),
    ("replaced_value_float", &["Imputer"], "The float that means a missing one."),
    ("replaced_value_int64", &["Imputer"], "The integer that means a missing one."),
    ("reverse", &["CumProd", "CumSum"], "Whether it goes from the end to the start."),
    ("rho", &[], "What is added to the sums."),
    ("right_window_size", &["Attention"], "How many keys after it a query sees. -1: all."),
    ("rotary_embedding_dim", &["RotaryEmbedding"], "How many features of a head are rotated. 0: all."),
    ("round_mode", &["Cast", "CastLike"], "How numbers are rounded to `float8e8m0`: `up`, `down` or `nearest`."),
    ("sample_size", &["Multinomial"], "How many classes are drawn for each row."),
    ("sampling_ratio", &["RoiAlign"], "How many samples a place of the output has on each axis. 0: as many as its size asks for."),
    ("saturate", &["Cast", "CastLike", "QuantizeLinear"], "Whether numbers beyond the range of an 8-bit float become its limit, rather than infinity or NaN."),
    ("scale", &["Attention", "FlexAttention", "LinearAttention"], "The factor for products of queries and keys. If absent or 0, 1 over the root of the head size."),
    ("scale", &["RandomNormal", "RandomNormalLike"], "The standard deviation."),
    ("scale", &["Scaler"], "The factor for each feature, or one for all."),
    ("scales", &["Upsample"], "The factor for each axis."),
    ("scan_input_axes", &["Scan"], "The axis along which each scanned input is cut. If absent, 0."),
    ("scan_input_directions", &["Scan"], "For each scanned input: 0 from the start, 1 from the end. If absent, 0."),
    ("scan_output_axes", &["Scan"], "The axis along which each output is collected. If absent, 0."),
    ("scan_output_directions", &["Scan"], "For each collected output: 0 appends, 1 prepends. If absent, 0."),
    ("score_mod", &["FlexAttention"], "The graph that changes each score."),
    ("seed", &[], "Where random numbers start. If absent, each run may draw others."),
    ("select_last_index", &["ArgMax", "ArgMin"], "Which of equal elements counts: 0 the first, 1 the last."),
    ("shape", &["RandomNormal", "RandomUniform"], "The shape of the output."),
    ("shape", &["Reshape"], "The new shape. One size may be -1, for what is left; 0 copies a size."),
    ("size", &["LRN"], "How many channels are summed."),
    ("softcap", &["Attention"], "The limit that scores approach, by a hyperbolic tangent. 0: none."),
    ("softmax_precision", &[], "The element type that the weights are computed in, by its number."),
    ("sorted", &["TopK"], "Whether the elements are given in order."),
    ("sorted", &["Unique"], "Whether the output is in ascending order, rather than in the order of the input."),
    ("sparse_value", &["Constant"], "The tensor, sparse."),
    ("spatial", &[], "Whether mean and variance are taken for each channel, rather than for each element."),
    ("spatial_scale", &["MaxRoiPool", "RoiAlign"], "The factor from coordinates of regions to those of the feature map."),
    ("split", &["Split"], "The sizes of the parts."),
    ("start", &["Shape"], "The first axis whose size is given; negative ones count from the end."),
    ("starts", &["Slice"], "Where each axis begins; negative positions count from the end."),
    ("stash_type", &[], "The element type that is computed in, by its number."),
    ("stopwords", &["StringNormalizer"], "Texts that are removed."),
    ("storage_order", &["MaxPool"], "How positions are counted: 0 along rows, 1 along columns."),
    ("strides", &[], "How far apart windows are, on each spatial axis. If absent, 1."),
    ("strides", &["MaxUnpool"], "The strides that `MaxPool` had."),
    ("string_vocabulary", &["DictVectorizer"], "The keys in the order of the output, as texts."),
    ("support_vectors", &[], "The support vectors, one after another."),
    ("target_ids", &["TreeEnsembleRegressor"], "The target of each weight."),
    ("target_nodeids", &["TreeEnsembleRegressor"], "The node of each weight."),
    ("target_treeids", &["TreeEnsembleRegressor"], "The tree of each weight."),
    ("target_weights", &["TreeEnsembleRegressor"], "The weights of leaves for targets."),
    ("target_weights_as_tensor", &["TreeEnsembleRegressor"], "The weights of leaves for targets, as a tensor."),
    ("targets", &["LinearRegressor"], "The number of targets."),
    ("then_branch", &["If"], "The graph that runs if the condition is true. It takes no inputs."),
    ("threshold", &["Binarizer"], "What is above it becomes 1, the rest 0."),
    ("time_axis", &["ReverseSequence"], "The axis of the steps, 0 or 1."),
    ("to", &["BitCast", "Cast"], "The element type of the output, by its number."),
    ("training_mode", &["BatchNormalization"], "Whether mean and variance are those of the batch, and running ones are given."),
    ("transA", &["Gemm"], "Whether `A` is transposed."),
    ("transB", &["Gemm"], "Whether `B` is transposed."),
    ("tree_roots", &["TreeEnsemble"], "The first node of each tree."),
    ("type", &["Optional"], "The type of the value, where none is given."),
    ("update_rule", &["LinearAttention"], "How a step changes the state: `linear`, `gated`, `delta` or `gated_delta`."),
    ("upper", &["Trilu"], "Whether the part above the diagonal is kept, rather than the one below."),
    ("value", &["Constant"], "The tensor."),
    ("value", &["ConstantOfShape"], "The element that fills the output, as a tensor of one element. If absent, the float 0."),
    ("value", &["Pad"], "The new elements in the mode `constant`."),
    ("value_float", &["Constant"], "The number, for a tensor without axes."),
    ("value_floats", &["Constant"], "The numbers, for a tensor of one axis."),
    ("value_int", &["Constant"], "The number, for a tensor without axes."),
    ("value_ints", &["Constant"], "The numbers, for a tensor of one axis."),
    ("value_string", &["Constant"], "The text, for a tensor without axes."),
    ("value_strings", &["Constant"], "The texts, for a tensor of one axis."),
    ("values_floats", &["LabelEncoder"], "What the keys become, as floats."),
    ("values_int64s", &["LabelEncoder"], "What the keys become, as integers."),
    ("values_strings", &["LabelEncoder"], "What the keys become, as texts."),
    ("values_tensor", &["LabelEncoder"], "What the keys become, as a tensor."),
    ("vectors_per_class", &["SVMClassifier"], "How many support vectors each class has."),
    ("weights", &["TfIdfVectorizer"], "The weight of each n-gram. If absent, 1."),
    ("width_scale", &["Upsample"], "The factor for the width."),
    ("xs", &["Gradient"], "The names of the values that `y` is differentiated with respect to."),
    ("y", &["Gradient"], "The name of the value that is differentiated."),
    ("zeros", &["OneHotEncoder"], "Whether an unknown category gives zeros, rather than an error."),
    ("zs", &["Gradient"], "The names of further values that `y` depends on, which are constants here."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_for_something_and_nothing_has_two() {
        let registry = Registry::standard();
        let names = |part: fn(&Schema) -> Vec<&'static str>| -> HashSet<_> {
            let all = registry.schemas().flat_map(move |schema| {
                let names = part(schema).into_iter();
                names.map(|name| (schema.name, name))
            });
            all.collect()
        };
        let inputs = names(|schema| schema.inputs.iter().map(|input| input.name).collect());
        let outputs = names(|schema| schema.outputs.iter().map(|output| output.name).collect());
        let attributes = names(|schema| schema.attributes.iter().map(|found| found.name).collect());
        for (rows, known) in [(INPUTS, inputs), (OUTPUTS, outputs), (ATTRIBUTES, attributes)] {
            let mut seen = HashSet::new();
            for (name, operators, meaning) in rows {
                let new = match operators {
                    [] => seen.insert(("", *name)),
                    _ => operators.iter().all(|op| seen.insert((*op, *name))),
                };
                assert!(new, "{name} of {operators:?} has two rows");
                assert!(meaning.ends_with('.'), "{meaning}");
            }
            for (operator, name) in &seen {
                let used = match *operator {
                    "" => {
                        known.iter().any(|(op, found)| found == name && !seen.contains(&(op, name)))
                    }
                    _ => known.contains(&(*operator, *name)),
                };
                assert!(used, "the row for {name} of '{operator}' is for nothing");
            }
        }
    }

    #[test]
    fn every_part_of_every_version_has_a_row() {
        let registry = Registry::standard();
        let mut missing = Vec::new();
        for schema in registry.schemas() {
            let inputs = schema.inputs.iter().map(|input| (INPUTS, input.name));
            let outputs = schema.outputs.iter().map(|output| (OUTPUTS, output.name));
            let attributes = schema.attributes.iter().map(|found| (ATTRIBUTES, found.name));
            for (rows, name) in inputs.chain(outputs).chain(attributes) {
                if find(rows, schema.name, name).is_none() {
                    missing.push(format!("{}.{name}", schema.name));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn descriptions_say_what_absence_means() {
        let registry = Registry::standard();
        let conv = registry.schema("", "Conv", 22).unwrap();
        let about = |name: &str| conv.about_attribute(conv.attribute(name).unwrap());
        assert_eq!(about("group"), "Into how many groups the channels are split. Default: 1.");
        assert!(about("strides").ends_with("If absent, 1."));
        assert!(about("pads").ends_with("Optional."));
        assert!(conv.about_input(&conv.inputs[2]).ends_with("Optional."));
        assert_eq!(conv.about_type("T"), "The type of inputs `X`, `W`, `B` and output `Y`.");
        let concat = registry.schema("", "Concat", 13).unwrap();
        assert!(concat.about_attribute(&concat.attributes[0]).ends_with("Required."));
        let joined = concat.about_input(&concat.inputs[0]);
        assert!(joined.ends_with("1 or more, of one type."), "{joined}");
        // An operator of a program has no rows but those of names that all have.
        let mut own = Schema::new("com.example", "Own", 1);
        own.inputs.push(Param { name: "unheard_of", ..conv.inputs[0] });
        assert_eq!(own.about_input(&own.inputs[0]), "An input of type `T`.");
    }
}
