//! Descriptions of inputs, outputs and attributes, in a sentence or two each.
//!
//! Many operators share a name and its meaning, so a row without operators holds for all of them,
//! and a row with operators takes precedence for these. Each name of the standard and of
//! `com.microsoft` has a row. A parameter of an operator that a program defines is described by its
//! type if its name has no row.

mod microsoft;

use std::fmt::Write;

use crate::microsoft::DOMAIN;
use crate::schema::{Arity, Attribute, Param, Schema};

/// Name, the operators for which the row holds (empty: all operators that no other row lists), and
/// the description.
type Row = (&'static str, &'static [&'static str], &'static str);

impl Schema {
    /// Returns the description of an input; `None` if no operator here has an input of that name.
    pub fn input_meaning(&self, input: &Param) -> Option<&'static str> {
        self.find(INPUTS, microsoft::INPUTS, input.name)
    }

    /// Returns the description of an output; `None` if no operator here has an output of that name.
    pub fn output_meaning(&self, output: &Param) -> Option<&'static str> {
        self.find(OUTPUTS, microsoft::OUTPUTS, output.name)
    }

    /// Returns the description of an attribute; `None` if no operator here has an attribute of that
    /// name.
    pub fn attribute_meaning(&self, attribute: &Attribute) -> Option<&'static str> {
        self.find(ATTRIBUTES, microsoft::ATTRIBUTES, attribute.name)
    }

    /// Describes the purpose of an input of this operator, and how often it occurs.
    pub fn about_input(&self, input: &Param) -> String {
        about_param("input", self.input_meaning(input), input)
    }

    /// Describes the contents of an output of this operator, and how often it occurs.
    pub fn about_output(&self, output: &Param) -> String {
        about_param("output", self.output_meaning(output), output)
    }

    /// Describes an attribute of this operator, and the meaning of its absence.
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

    /// Finds the description of a name in the table of the standard, or in that of `com.microsoft`.
    fn find(
        &self,
        standard: &'static [Row],
        microsoft: &'static [Row],
        name: &str,
    ) -> Option<&'static str> {
        let rows = if self.domain == DOMAIN { microsoft } else { standard };
        find(rows, self.name, name)
    }

    /// Describes a type variable by the inputs and outputs that have its type.
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
            let types = if homogeneous { "all of the same type" } else { "types may differ" };
            let _ = write!(text, " Variadic: {min} or more, {types}.");
        }
    }
    text
}

// Rows are sorted by name. They are not formatted because most would take more lines.

#[rustfmt::skip]
const INPUTS: &[Row] = &[
    ("A", &["Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Mul", "Or", "Sub", "Xor"],
        "Left operand. Its shape is broadcast with that of `B`."),
    ("A", &["Gemm"], "Left matrix, `[M, K]`, or `[K, M]` if `transA` is 1."),
    ("A", &["MatMul"], "Left matrices, `[..., M, K]`. The axes before the last two are broadcast."),
    ("A", &["MatMulInteger"], "Quantized left matrices, `[..., M, K]`."),
    ("A", &["SwiGLU"], "Gate: the operand to which Swish is applied."),
    ("B", &["Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater",
        "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "Mul", "Or", "Sub", "Xor"],
        "Right operand. Its shape is broadcast with that of `A`."),
    ("B", &["BatchNormalization", "InstanceNormalization"], "Bias of each channel, `[C]`."),
    ("B", &["Conv", "ConvTranspose", "DeformConv"], "Bias of each output channel, `[M]`."),
    ("B", &["QLinearConv"],
        "Bias of each output channel, `[M]`, quantized with scale `x_scale * w_scale` and zero \
         point 0."),
    ("B", &["GRU"],
        "Biases of the input, then of the state, for the gates z, r and h: `[num_directions, 6 * \
         hidden_size]`. If absent, 0."),
    ("B", &["Gemm"], "Right matrix, `[K, N]`, or `[N, K]` if `transB` is 1."),
    ("B", &["LSTM"],
        "Biases of the input, then of the state, for the gates i, o, f and c: `[num_directions, 8 \
         * hidden_size]`. If absent, 0."),
    ("B", &["LayerNormalization"], "Bias, broadcast to the normalized axes."),
    ("B", &["MatMul"], "Right matrices, `[..., K, N]`. The axes before the last two are broadcast."),
    ("B", &["MatMulInteger"], "Quantized right matrices, `[..., K, N]`."),
    ("B", &["RNN"], "Biases of the input, then of the state: `[num_directions, 2 * hidden_size]`. If absent, 0."),
    ("B", &["SwiGLU"], "Value: the operand that is multiplied by the gate. Same shape as `A`."),
    ("C", &["Gemm"], "Matrix added to the product, broadcast to `[M, N]`."),
    ("I", &["MaxUnpool"], "Indices of the maxima in the flattened input of `MaxPool`. Same shape as `X`."),
    ("Inputs", &["Einsum"], "Operands, in the order of the equation."),
    ("Inputs", &["Gradient"], "Values of the tensors named in `xs`, then of those in `zs`."),
    ("K", &["Attention"],
        "Keys, `[batch, kv_num_heads, kv_length, head_size]` or `[batch, kv_length, kv_num_heads \
         * head_size]`."),
    ("K", &["FlexAttention"], "Keys, `[batch, kv_num_heads, kv_length, head_size]`."),
    ("K", &["TopK"], "Number of elements to select from each slice: a 1-D tensor of one element."),
    ("M", &["Loop"], "Maximum number of iterations: a scalar. If absent, there is no maximum."),
    ("P", &["LSTM"], "Peephole weights of the gates i, o and f: `[num_directions, 3 * hidden_size]`. If absent, 0."),
    ("Q", &["Attention"],
        "Queries, `[batch, q_num_heads, q_length, head_size]` or `[batch, q_length, q_num_heads * \
         head_size]`."),
    ("Q", &["FlexAttention"], "Queries, `[batch, q_num_heads, q_length, head_size]`."),
    ("R", &["Adagrad", "Adam", "Momentum"], "Learning rate: a scalar."),
    ("R", &["GRU"], "Recurrence weights of the gates z, r and h: `[num_directions, 3 * hidden_size, hidden_size]`."),
    ("R", &["LSTM"],
        "Recurrence weights of the gates i, o, f and c: `[num_directions, 4 * hidden_size, \
         hidden_size]`."),
    ("R", &["RNN"], "Recurrence weights: `[num_directions, hidden_size, hidden_size]`."),
    ("Scale", &["LayerNormalization"], "Scale factors, broadcast to the normalized axes."),
    ("T", &["Adagrad", "Adam", "Momentum"], "Number of steps taken so far: a scalar."),
    ("V", &["Attention"],
        "Values, `[batch, kv_num_heads, kv_length, v_head_size]` or `[batch, kv_length, \
         kv_num_heads * v_head_size]`."),
    ("V", &["FlexAttention"], "Values, `[batch, kv_num_heads, kv_length, v_head_size]`."),
    ("W", &["Conv"], "Filters, `[M, C / group, K1, …]`."),
    ("W", &["ConvTranspose"], "Filters, `[C, M / group, K1, …]`."),
    ("W", &["DeformConv"], "Filters, `[M, C / group, KH, KW]`."),
    ("W", &["GRU"], "Input weights of the gates z, r and h: `[num_directions, 3 * hidden_size, input_size]`."),
    ("W", &["LSTM"], "Input weights of the gates i, o, f and c: `[num_directions, 4 * hidden_size, input_size]`."),
    ("W", &["RNN"], "Input weights: `[num_directions, hidden_size, input_size]`."),
    ("X", &[], "Input tensor."),
    ("X", &["ArrayFeatureExtractor"], "Tensor from whose last axis elements are selected."),
    ("X", &["AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool",
        "MaxPool"],
        "Input, `[N, C, D1, …]`."),
    ("X", &["BatchNormalization", "GroupNormalization"], "Input, `[N, C, D1, …]`; axis 1 holds the channels."),
    ("X", &["Binarizer", "Imputer", "Normalizer", "OneHotEncoder", "Scaler"], "Features."),
    ("X", &["BitShift"], "Integers whose bits are shifted. The shape is broadcast with that of `Y`."),
    ("X", &["CastMap", "DictVectorizer"], "Map to convert."),
    ("X", &["CategoryMapper", "LabelEncoder"], "Elements to look up."),
    ("X", &["Conv", "ConvTranspose"], "Input, `[N, C, D1, …]`."),
    ("X", &["DeformConv"], "Input, `[N, C, H, W]`."),
    ("X", &["Det"], "Square matrices, `[..., M, M]`."),
    ("X", &["FeatureVectorizer"], "Feature tensors to concatenate."),
    ("X", &["GRU", "LSTM", "RNN"],
        "Input sequences, `[seq_length, batch_size, input_size]`, or `[batch_size, seq_length, \
         input_size]` if `layout` is 1."),
    ("X", &["GridSample"], "Input, `[N, C, D1, …]`."),
    ("X", &["IsInf", "IsNaN"], "Tensor to test."),
    ("X", &["LinearClassifier", "LinearRegressor", "SVMClassifier", "SVMRegressor", "TreeEnsemble",
        "TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "Features, `[samples, features]`."),
    ("X", &["MaxRoiPool", "RoiAlign"], "Feature maps, `[N, C, H, W]`."),
    ("X", &["MaxUnpool"], "Maxima, as returned by `MaxPool`."),
    ("X", &["Pow"], "Base. The shape is broadcast with that of `Y`."),
    ("X", &["RegexFullMatch", "StringSplit"], "Strings."),
    ("X", &["StringNormalizer"], "Strings, `[C]` or `[1, C]`."),
    ("X", &["Resize", "Upsample"], "Tensor to resize."),
    ("X", &["RotaryEmbedding"],
        "Features, `[batch, num_heads, length, head_size]` or `[batch, length, num_heads * \
         head_size]`."),
    ("X", &["StringConcat"], "First part of each string. The shape is broadcast with that of `Y`."),
    ("X", &["TfIdfVectorizer"], "Token sequences of strings or integers, `[C]` or `[N, C]`; each row is one sequence."),
    ("X", &["TopK"], "Tensor to select from."),
    ("X", &["Unique"], "Tensor whose elements or slices are compared."),
    ("X", &["Where"], "Elements selected where `condition` is true."),
    ("X", &["ZipMap"], "Scores, `[samples, classes]`."),
    ("Y", &["ArrayFeatureExtractor"], "Indices on the last axis of `X`."),
    ("Y", &["BitShift"], "Number of positions to shift by. The shape is broadcast with that of `X`."),
    ("Y", &["Pow"], "Exponent. The shape is broadcast with that of `X`."),
    ("Y", &["StringConcat"], "Second part of each string. The shape is broadcast with that of `X`."),
    ("Y", &["Where"], "Elements selected where `condition` is false."),
    ("a", &["QLinearMatMul"], "Quantized left matrices, `[..., M, K]`."),
    ("a_scale", &[], "Scale of the left matrices: a scalar, or one element for each row."),
    ("a_zero_point", &[], "Zero point of the left matrices: a scalar, or one element for each row. If absent, 0."),
    ("additional_inputs", &["SequenceMap"],
        "Further arguments of the body. Of a sequence the body receives the tensor of the same \
         position; a tensor is passed as it is."),
    ("attn_mask", &["Attention"],
        "Mask: booleans, true where a query may attend to a key, or numbers that are added to the \
         scores. Broadcast to `[batch, q_num_heads, q_length, total_length]`."),
    ("axes", &["Pad"], "Axes that `pads` refers to. Negative values count from the end. If absent, all axes."),
    ("axes", &["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"],
        "Axes to reduce. Negative values count from the end. If absent or empty, \
         `noop_with_empty_axes` decides."),
    ("axes", &["Slice"],
        "Axes that `starts` and `ends` refer to. Negative values count from the end. If absent, \
         axes 0, 1, …."),
    ("axes", &["Squeeze"],
        "Axes of size 1 to remove. Negative values count from the end. If absent, all axes of \
         size 1."),
    ("axes", &["Unsqueeze"], "Positions of the new axes in the output. Negative values count from the end."),
    ("axis", &["CumProd", "CumSum"], "Axis: a scalar. A negative value counts from the end."),
    ("axis", &["DFT"],
        "Axis of the signal: a scalar. A negative value counts from the end; the last axis is not \
         allowed. If absent, the second to last axis."),
    ("axis", &["Tile"], "Axis to repeat along: a scalar."),
    ("b", &["QLinearMatMul"], "Quantized right matrices, `[..., K, N]`."),
    ("b_scale", &[], "Scale of the right matrices: a scalar, or one element for each column."),
    ("b_zero_point", &[], "Zero point of the right matrices: a scalar, or one element for each column. If absent, 0."),
    ("batch_indices", &["RoiAlign"], "Batch index of the image of each region, `[regions]`."),
    ("beta", &["LinearAttention"],
        "Update rate, `[batch, length, kv_num_heads]` or `[batch, length, 1]`. Required by the \
         rules `delta` and `gated_delta`."),
    ("bias", &["CausalConvWithState"], "Bias of each channel, `[channels]`."),
    ("bias", &["GroupNormalization"], "Bias of each channel, `[C]`; in version 18 of each group."),
    ("block_shape", &["Col2Im"], "Spatial sizes of a block."),
    ("boxes", &["NonMaxSuppression"], "Boxes, `[batch, boxes, 4]`, in the format of `center_point_box`."),
    ("cond", &["If"], "Condition: one boolean."),
    ("cond", &["Loop"], "Condition of the first iteration: one boolean. If absent, true."),
    ("condition", &["Compress"],
        "Booleans, 1-D: true selects the slice of that index. Slices beyond its length are not \
         selected."),
    ("condition", &["Where"],
        "Booleans that select between `X` and `Y`. The shapes of all three inputs are broadcast."),
    ("constant_value", &["Pad"],
        "Value of the padding in mode `constant`: a scalar. If absent, 0, false or an empty \
         string."),
    ("cos_cache", &["RotaryEmbedding"],
        "Cosines of the angles: `[positions, rotary_embedding_dim / 2]` with `position_ids`, else \
         `[batch, length, rotary_embedding_dim / 2]`."),
    ("data", &[], "Input tensor."),
    ("data", &["Scatter", "ScatterElements", "ScatterND"], "Tensor to copy."),
    ("data", &["Shape", "Size"], "Input tensor. Only its shape is used."),
    ("data", &["Transpose"], "Tensor whose axes are permuted."),
    ("data_0", &["Max", "Mean", "Min", "Sum"],
        "Operands. Since version 8 their shapes are broadcast; before, they must be equal."),
    ("decay", &["LinearAttention"],
        "Logarithm of the decay of the state, `[batch, length, kv_num_heads * head_size]` or \
         `[batch, length, kv_num_heads]`. Required by the rules `gated` and `gated_delta`."),
    ("delta", &["Range"], "Step: a scalar other than 0."),
    ("depth", &["OneHot"], "Number of classes, the size of the new axis: a scalar or a 1-D tensor of one element."),
    ("dft_length", &["DFT"],
        "Length of the transform: a scalar. A longer signal is truncated, a shorter one is padded \
         with 0. If absent, the size of the axis."),
    ("dft_length", &["MelWeightMatrix"], "Length of the DFT: a scalar. The spectrum has `dft_length / 2 + 1` bins."),
    ("encoded_stream", &["ImageDecoder"], "Bytes of the image file, 1-D."),
    ("ends", &["Slice"], "End of the slice on each axis, exclusive. Negative values count from the end."),
    ("frame_length", &["STFT"], "Length of a frame: a scalar. If absent, the length of `window`."),
    ("frame_step", &["STFT"], "Distance between the starts of neighboring frames, in samples: a scalar."),
    ("grid", &["GridSample"],
        "Sampling locations, `[N, D1_out, …, r]` for `r` spatial axes. The last axis of the input \
         comes first: `(x, y)`. Coordinates from -1 to 1 lie within the input."),
    ("image_shape", &["Col2Im"], "Spatial sizes of the image."),
    ("indices", &["Gather", "GatherElements"], "Indices on the axis. Negative values count from the end."),
    ("indices", &["GatherND"], "Index tuples in the last axis. Negative values count from the end."),
    ("indices", &["OneHot"],
        "Class index of each element. Negative values count from the end; values out of range \
         give `off` values only."),
    ("indices", &["Scatter", "ScatterElements"],
        "Indices on the axis, in the shape of `updates`. Negative values count from the end."),
    ("indices", &["ScatterND"], "Index tuples in the last axis. Negative values count from the end."),
    ("initial_c", &["LSTM"],
        "Initial cell state, `[num_directions, batch_size, hidden_size]`, or batch first if \
         `layout` is 1. If absent, 0."),
    ("initial_h", &["GRU", "LSTM", "RNN"],
        "Initial hidden state, `[num_directions, batch_size, hidden_size]`, or batch first if \
         `layout` is 1. If absent, 0."),
    ("initial_state_and_scan_inputs", &["Scan"], "Initial values of the state variables, then the scan inputs."),
    ("input", &[], "Input tensor."),
    ("input", &["Bernoulli"], "Probabilities, from 0 to 1."),
    ("input", &["CausalConvWithState"], "Input, `[batch, channels, length]`."),
    ("input", &["Col2Im"], "Columns of blocks, `[N, C * product of block_shape, blocks]`."),
    ("input", &["ConstantOfShape"], "Shape of the output, 1-D. Empty for a scalar."),
    ("input", &["DFT"], "Signal. The last axis has size 1 (real) or 2 (real and imaginary part)."),
    ("input", &["EyeLike"], "Matrix whose shape the output gets, and whose element type if `dtype` is absent."),
    ("input", &["RandomNormalLike", "RandomUniformLike"],
        "Tensor whose shape the output gets, and whose element type if `dtype` is absent."),
    ("input", &["InstanceNormalization"], "Input, `[N, C, D1, …]`."),
    ("input", &["Multinomial"], "Unnormalized log-probabilities, `[batch_size, classes]`."),
    ("input", &["NegativeLogLikelihoodLoss"], "Log-probabilities, `[N, C, D1, …]`."),
    ("input", &["Optional"], "Value to wrap. If absent, the optional is empty."),
    ("input", &["OptionalGetElement"],
        "Optional with a value. Since version 18 also a tensor or sequence, which is returned \
         unchanged."),
    ("input", &["OptionalHasElement"],
        "Optional. Since version 18 also a tensor or sequence, which counts as a value. If \
         absent, the output is false."),
    ("input", &["Split", "SplitToSequence"], "Tensor to split."),
    ("input", &["Tile"], "Tensor to repeat."),
    ("input", &["Trilu"], "Matrices, `[..., M, N]`."),
    ("input_data", &["CenterCropPad"], "Tensor to crop or pad."),
    ("input_mean", &["BatchNormalization"], "Mean of each channel, `[C]`; in training the running mean so far."),
    ("input_sequence", &[], "Input sequence."),
    ("input_sequence", &["ConcatFromSequence"], "Sequence of tensors to concatenate."),
    ("input_var", &["BatchNormalization"], "Variance of each channel, `[C]`; in training the running variance so far."),
    ("inputs", &["Adagrad"],
        "The tensors to optimize, then their gradients, then their accumulated squared gradients."),
    ("inputs", &["Adam"],
        "The tensors to optimize, then their gradients, then their averaged gradients, then their \
         averaged squared gradients."),
    ("inputs", &["Concat"], "Tensors to concatenate. Their shapes are equal except on `axis`."),
    ("inputs", &["Momentum"], "The tensors to optimize, then their gradients, then their momentums."),
    ("inputs", &["SequenceConstruct"], "Tensors of the sequence, in order."),
    ("iou_threshold", &["NonMaxSuppression"],
        "Threshold of the intersection over union (IoU), from 0 to 1: a scalar. If absent, 0."),
    ("k", &["Trilu"],
        "Diagonal at the border of the triangle: a scalar. 0 is the main diagonal, positive \
         values are above it, negative values below it. If absent, 0."),
    ("key", &["LinearAttention"], "Keys, `[batch, length, kv_num_heads * head_size]`."),
    ("labels", &["SoftmaxCrossEntropyLoss"], "Class index of each element, `[N, D1, …]`."),
    ("limit", &["Range"], "Upper bound, or lower bound if `delta` is negative; exclusive: a scalar."),
    ("lower_edge_hertz", &["MelWeightMatrix"], "Lowest frequency of the filters, in hertz: a scalar."),
    ("mask", &["DeformConv"], "Weight of each sampling position, `[N, offset_group * KH * KW, OH, OW]`. If absent, 1."),
    ("max", &["Clip"], "Upper limit: a scalar. If absent, there is none."),
    ("max_output_boxes_per_class", &["NonMaxSuppression"],
        "Maximum number of boxes to select for each class of each image: a scalar. If absent, 0, \
         so that no box is selected."),
    ("mean", &["BatchNormalization"], "Mean of each channel, `[C]`; in training the running mean so far."),
    ("min", &["Clip"], "Lower limit: a scalar. If absent, there is none."),
    ("nonpad_kv_seqlen", &["Attention"],
        "Number of valid keys of each sequence, `[batch]`; the keys after them are padding."),
    ("num_mel_bins", &["MelWeightMatrix"], "Number of filters: a scalar."),
    ("offset", &["DeformConv"],
        "Shift of each sampling position, `[N, offset_group * KH * KW * 2, OH, OW]`: vertical, \
         then horizontal."),
    ("output_shape", &["MaxUnpool"], "Shape of the output. If absent, it is computed from the window."),
    ("pads", &["Pad"],
        "Number of elements to add at the start of each axis, then at the end of each. Negative \
         values remove elements."),
    ("past_cache", &["TensorScatter"], "Cache to update. Axis 0 is the batch."),
    ("past_key", &["Attention"],
        "Keys of earlier calls, `[batch, kv_num_heads, past_length, head_size]`. They precede \
         `K`."),
    ("past_state", &["CausalConvWithState"],
        "State after the previous call, `[batch, channels, k - 1]`. If absent, 0."),
    ("past_state", &["LinearAttention"],
        "State after the previous call, `[batch, kv_num_heads, head_size, v_head_size]`. If \
         absent, 0."),
    ("past_value", &["Attention"],
        "Values of earlier calls, `[batch, kv_num_heads, past_length, v_head_size]`. They precede \
         `V`."),
    ("position", &["SequenceAt"], "Position of the tensor: a scalar. A negative value counts from the end."),
    ("position", &["SequenceErase"],
        "Position of the tensor to remove: a scalar. A negative value counts from the end. If \
         absent, the last."),
    ("position", &["SequenceInsert"],
        "Position before which the tensor is inserted: a scalar. A negative value counts from the \
         end. If absent, the end."),
    ("position_ids", &["RotaryEmbedding"],
        "Position of each element, `[batch, length]`: the row of the caches. If absent, the \
         caches hold a row for each element."),
    ("query", &["LinearAttention"], "Queries, `[batch, length, q_num_heads * head_size]`."),
    ("ratio", &["Dropout"],
        "Probability that an element is set to 0 in training, from 0 (inclusive) to 1 \
         (exclusive): a scalar. If absent, 0.5."),
    ("repeats", &["Tile"], "Number of repetitions along each axis."),
    ("roi", &["Resize"],
        "Region of interest: the starts on all axes, then the ends, normalized to 0 to 1. Used \
         only if `coordinate_transformation_mode` is `tf_crop_and_resize`."),
    ("rois", &["MaxRoiPool"], "Regions, `[regions, 5]`: batch index, x1, y1, x2, y2."),
    ("rois", &["RoiAlign"], "Regions, `[regions, 4]`: x1, y1, x2, y2."),
    ("sample_rate", &["MelWeightMatrix"], "Sampling rate in samples per second: a scalar."),
    ("scale", &["BatchNormalization", "InstanceNormalization"], "Scale factor of each channel, `[C]`."),
    ("scale", &["GroupNormalization"], "Scale factor of each channel, `[C]`; in version 18 of each group."),
    ("scale", &["RMSNormalization"], "Scale factors, broadcast to the input."),
    ("scales", &["Resize", "Upsample"], "Scale factor of each axis, greater than 0."),
    ("score_threshold", &["NonMaxSuppression"],
        "Minimum score: a scalar. Only boxes with a greater score are selected. If absent, there \
         is none."),
    ("scores", &["NonMaxSuppression"], "Score of each box for each class, `[batch, classes, boxes]`."),
    ("scores", &["SoftmaxCrossEntropyLoss"], "Scores (logits), `[N, C, D1, …]`."),
    ("sequence_lens", &["GRU", "LSTM", "RNN"],
        "Length of each sequence, `[batch_size]`. If absent, all have length `seq_length`."),
    ("sequence_lens", &["ReverseSequence"], "Number of elements to reverse in each sequence, `[batch_size]`."),
    ("sequence_lens", &["Scan"],
        "Number of steps of each sequence of the batch. If absent, the size of the scan axis."),
    ("shape", &["CenterCropPad"], "Size of each of the axes in the output."),
    ("shape", &["Expand"], "Shape to broadcast the input with."),
    ("shape", &["Reshape"],
        "New shape. One size may be -1 (inferred); 0 copies the size of the input, unless \
         `allowzero` is 1."),
    ("signal", &["STFT"], "Signals, `[batch, length, 1]` (real) or `[batch, length, 2]` (complex)."),
    ("sin_cache", &["RotaryEmbedding"], "Sines of the angles, in the shape of `cos_cache`."),
    ("size", &["AffineGrid"], "Shape of the images to sample: `[N, C, H, W]` or `[N, C, D, H, W]`."),
    ("size", &["BlackmanWindow", "HammingWindow", "HannWindow"], "Length of the window: a scalar."),
    ("sizes", &["Resize"], "Size of each axis of the output. Exactly one of `scales` and `sizes` is given."),
    ("slope", &["PRelu"], "Slope for elements below 0, broadcast to the input."),
    ("split", &["Split"], "Sizes of the parts. If absent, the parts have equal sizes."),
    ("split", &["SplitToSequence"], "Size of all parts (scalar) or size of each part (1-D). If absent, 1."),
    ("start", &["Range"], "First number: a scalar."),
    ("starts", &["Slice"], "Start of the slice on each axis. Negative values count from the end."),
    ("steps", &["Slice"], "Step on each axis, not 0. Negative steps go backward. If absent, 1."),
    ("target", &["NegativeLogLikelihoodLoss"], "Class index of each element, `[N, D1, …]`."),
    ("target_type", &["CastLike"], "Tensor whose element type the output gets. Its values are not used."),
    ("tensor", &["SequenceInsert"], "Tensor to insert."),
    ("theta", &["AffineGrid"], "Affine matrices, `[N, 2, 3]` in 2D or `[N, 3, 4]` in 3D."),
    ("tiles", &["Tile"], "Number of repetitions: a scalar."),
    ("training_mode", &["Dropout"], "Whether elements are dropped: a boolean scalar. If absent, false."),
    ("update", &["TensorScatter"], "Entries to write. Its shape differs from that of the cache only on `axis`."),
    ("updates", &["Scatter", "ScatterElements", "ScatterND"], "Values to write."),
    ("upper_edge_hertz", &["MelWeightMatrix"], "Highest frequency of the filters, in hertz: a scalar."),
    ("v_initial", &["Loop"], "Initial values of the loop-carried variables."),
    ("value", &["LinearAttention"], "Values, `[batch, length, kv_num_heads * v_head_size]`."),
    ("values", &["OneHot"], "The values `[off, on]`."),
    ("var", &["BatchNormalization"], "Variance of each channel, `[C]`; in training the running variance so far."),
    ("w", &["ConvInteger", "QLinearConv"], "Quantized filters, `[M, C / group, K1, …]`."),
    ("w_scale", &[], "Scale of `w`: a scalar, or one element for each output channel."),
    ("w_zero_point", &[], "Zero point of `w`: a scalar, or one element for each output channel. If absent, 0."),
    ("weight", &["CausalConvWithState"], "Filter of each channel, `[channels, 1, k]`."),
    ("weight", &["NegativeLogLikelihoodLoss"], "Weight of each class, `[C]`. If absent, 1."),
    ("weights", &["SoftmaxCrossEntropyLoss"], "Weight of each class, `[C]`. If absent, 1."),
    ("window", &["STFT"], "Window function, 1-D of length `frame_length`. If absent, all ones."),
    ("write_indices", &["TensorScatter"], "Position of the first entry of each sequence, `[batch]`. If absent, 0."),
    ("x", &[], "Input tensor."),
    ("x", &["ConvInteger", "QLinearConv"], "Quantized input, `[N, C, D1, …]`."),
    ("x", &["DequantizeLinear"], "Quantized tensor."),
    ("x", &["DynamicQuantizeLinear", "QuantizeLinear"], "Tensor to quantize."),
    ("x_scale", &[], "Scale of `x`: a scalar."),
    ("x_scale", &["DequantizeLinear"],
        "Scale: a scalar, 1-D with one element for each slice of `axis`, or one element for each \
         block."),
    ("x_zero_point", &[], "Zero point of `x`. If absent, 0."),
    ("y_scale", &[], "Scale of `y`: a scalar."),
    ("y_scale", &["QuantizeLinear"],
        "Scale: a scalar, 1-D with one element for each slice of `axis`, or one element for each \
         block."),
    ("y_zero_point", &[], "Zero point of `y`. Its type is the type of the output."),
    ("y_zero_point", &["QuantizeLinear"],
        "Zero point, in the shape of `y_scale`. Its type is the type of the output. If absent, 0."),
];

#[rustfmt::skip]
const OUTPUTS: &[Row] = &[
    ("C", &["Add", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Mod", "Mul", "Sub"],
        "Result, in the broadcast shape of both operands."),
    ("C", &["And", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Or", "Xor"],
        "Boolean result, in the broadcast shape of both operands."),
    ("Indices", &["MaxPool"], "Index of each maximum in the flattened input, for `MaxUnpool`."),
    ("Indices", &["TopK"], "Indices of the selected elements on the axis."),
    ("InvStdDev", &["LayerNormalization"], "Reciprocal of the standard deviation: `1 / sqrt(var + epsilon)`."),
    ("Mean", &["LayerNormalization"], "Mean over the normalized axes."),
    ("Output", &["Einsum"], "Result, with the axes in the order of the equation."),
    ("Outputs", &["Gradient"], "Derivative of `y` with respect to each tensor named in `xs`, in its shape."),
    ("Values", &["TopK"], "The selected elements."),
    ("Y", &[], "Output tensor."),
    ("Y", &["Attention"], "Attention output, in the layout of `Q`."),
    ("Y", &["AveragePool", "LpPool", "MaxPool"], "Pooled output, `[N, C, O1, …]`."),
    ("Y", &["Conv", "ConvTranspose"], "Output, `[N, M, O1, …]`."),
    ("Y", &["DeformConv"], "Output, `[N, M, OH, OW]`."),
    ("Y", &["FlexAttention"], "Attention output, `[batch, q_num_heads, q_length, v_head_size]`."),
    ("Y", &["GRU", "LSTM", "RNN"],
        "Hidden state after each step, `[seq_length, num_directions, batch_size, hidden_size]`, \
         or `[batch_size, seq_length, num_directions, hidden_size]` if `layout` is 1."),
    ("Y", &["GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"], "Pooled output, `[N, C, 1, …]`."),
    ("Y", &["GridSample"], "Sampled values, `[N, C, D1_out, …]`."),
    ("Y", &["IsInf", "IsNaN"], "Boolean result, in the shape of the input."),
    ("Y", &["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"],
        "Predicted class label of each sample, `[samples]`."),
    ("Y", &["LinearRegressor", "SVMRegressor", "TreeEnsemble", "TreeEnsembleRegressor"],
        "Predicted value of each target, `[samples, targets]`."),
    ("Y", &["MaxRoiPool", "RoiAlign"], "Pooled output, `[regions, C, output height, output width]`."),
    ("Y", &["StringSplit"], "Parts of each string along a new last axis, padded with empty strings."),
    ("Y", &["Unique"], "Unique elements (1-D) or unique slices."),
    ("Y_c", &["LSTM"],
        "Final cell state, `[num_directions, batch_size, hidden_size]`, or batch first if \
         `layout` is 1."),
    ("Y_h", &["GRU", "LSTM", "RNN"],
        "Final hidden state, `[num_directions, batch_size, hidden_size]`, or batch first if \
         `layout` is 1."),
    ("Z", &[], "Output tensor."),
    ("Z", &["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"],
        "Score of each class, `[samples, classes]`."),
    ("Z", &["StringSplit"], "Number of parts of each string."),
    ("Z", &["ZipMap"], "Sequence of maps from class label to score, one for each sample."),
    ("concat_result", &[], "Concatenated tensor."),
    ("counts", &["Unique"], "Number of occurrences of each element of `Y` in `X`."),
    ("expanded", &["Unsqueeze"], "The same elements with the new axes."),
    ("final_state_and_scan_outputs", &["Scan"], "Final values of the state variables, then the scan outputs."),
    ("grid", &["AffineGrid"], "Sampling grid, `[N, H, W, 2]` or `[N, D, H, W, 3]`."),
    ("image", &["ImageDecoder"], "Pixels, `[H, W, C]`."),
    ("indices", &["Unique"], "Index of the first occurrence of each element of `Y` in `X`."),
    ("inverse_indices", &["Unique"], "Index in `Y` of each element or slice of `X`."),
    ("length", &["SequenceLength"], "Number of tensors: a scalar."),
    ("log_prob", &["SoftmaxCrossEntropyLoss"], "Log-probabilities: the log-softmax of the scores."),
    ("loss", &[], "Loss: a scalar, or `[N, D1, …]` if `reduction` is `none`."),
    ("mask", &["Dropout"], "True where an element is kept."),
    ("max", &[], "Element-wise maximum."),
    ("mean", &[], "Element-wise mean."),
    ("mean", &["BatchNormalization"], "Updated running mean of each channel; only in training."),
    ("min", &[], "Element-wise minimum."),
    ("out_sequence", &["SequenceMap"], "One sequence for each output of the body."),
    ("output", &[], "Output tensor."),
    ("output", &["OptionalHasElement"], "Whether the optional has a value: a boolean scalar."),
    ("output", &["SoftmaxCrossEntropyLoss"], "Loss: a scalar, or `[N, D1, …]` if `reduction` is `none`."),
    ("output", &["STFT"], "Spectra, `[batch, frames, bins, 2]`."),
    ("output", &["MelWeightMatrix"], "Weights, `[dft_length / 2 + 1, num_mel_bins]`."),
    ("output_data", &["CenterCropPad"], "Cropped or padded tensor."),
    ("output_sequence", &[], "Output sequence."),
    ("outputs", &["Adagrad"], "The new values, then the new accumulated squared gradients."),
    ("outputs", &["Momentum"], "The new values, then the new momentums."),
    ("outputs", &["Adam"], "The new values, then the new averaged gradients, then the new averaged squared gradients."),
    ("outputs", &["If"], "Outputs of the branch that ran."),
    ("outputs", &["Split"], "The parts, in order."),
    ("outputs...", &["Split"], "The parts, in order."),
    ("present_cache", &["TensorScatter"], "Updated cache."),
    ("present_key", &["Attention"], "Concatenation of `past_key` and `K`."),
    ("present_state", &["CausalConvWithState"], "The last `k - 1` positions, for the next call."),
    ("present_state", &["LinearAttention"], "State after the last step, for the next call."),
    ("present_value", &["Attention"], "Concatenation of `past_value` and `V`."),
    ("qk_matmul_output", &["Attention"], "Scores at the stage selected by `qk_matmul_output_mode`."),
    ("reduced", &[], "Result. Reduced axes have size 1, or are removed if `keepdims` is 0."),
    ("reshaped", &["Reshape"], "The same elements in the new shape."),
    ("running_mean", &["BatchNormalization"], "Updated running mean of each channel; only in training."),
    ("running_var", &["BatchNormalization"], "Updated running variance of each channel; only in training."),
    ("saved_mean", &["BatchNormalization"], "Mean of each channel over the batch; only in training."),
    ("saved_var", &["BatchNormalization"], "Variance of each channel over the batch; only in training."),
    ("selected_indices", &["NonMaxSuppression"],
        "Selected boxes, `[selected, 3]`: batch index, class index, box index."),
    ("shape", &["Shape"], "Sizes of the axes, 1-D."),
    ("size", &["Size"], "Number of elements: a scalar."),
    ("squeezed", &["Squeeze"], "The same elements without the removed axes."),
    ("sum", &[], "Element-wise sum."),
    ("tensor", &["SequenceAt"], "Tensor at the position."),
    ("transposed", &["Transpose"], "Tensor with permuted axes."),
    ("v_final_and_scan_outputs", &["Loop"],
        "Final values of the loop-carried variables, then the scan outputs, each stacked along a \
         new first axis."),
    ("var", &["BatchNormalization"], "Updated running variance of each channel; only in training."),
    ("y", &[], "Output tensor."),
    ("y", &["DynamicQuantizeLinear", "QuantizeLinear"], "Quantized tensor."),
    ("y", &["DequantizeLinear"], "Dequantized tensor."),
    ("y", &["ConvInteger", "QLinearConv"], "Output, `[N, M, O1, …]`."),
    ("y_scale", &["DynamicQuantizeLinear"], "Scale: a scalar."),
    ("y_zero_point", &["DynamicQuantizeLinear"], "Zero point: a scalar."),
];

#[rustfmt::skip]
const ATTRIBUTES: &[Row] = &[
    ("activation", &["CausalConvWithState"],
        "Activation applied to the output: `none`, `silu` or `swish` (the same as `silu`)."),
    ("activation_alpha", &["GRU", "LSTM", "RNN"],
        "Values of `alpha` of the activation functions that have one, in the order of \
         `activations`."),
    ("activation_beta", &["GRU", "LSTM", "RNN"],
        "Values of `beta` of the activation functions that have one, in the order of \
         `activations`."),
    ("activations", &["GRU", "LSTM", "RNN"],
        "Activation functions, for each direction in turn: `Relu`, `Tanh`, `Sigmoid`, `Affine`, \
         `LeakyRelu`, `ThresholdedRelu`, `ScaledTanh`, `HardSigmoid`, `Elu`, `Softsign` or \
         `Softplus`."),
    ("aggregate_function", &["TreeEnsemble"],
        "How the leaf weights of a target are combined: 0 average, 1 sum, 2 minimum, 3 maximum."),
    ("aggregate_function", &["TreeEnsembleRegressor"],
        "How the leaf weights of a target are combined: `SUM`, `AVERAGE`, `MIN` or `MAX`."),
    ("align_corners", &["AffineGrid", "GridSample"],
        "What -1 and 1 refer to: the centers (1) or the outer edges (0) of the first and last \
         element."),
    ("allowzero", &["Reshape"], "Meaning of a 0 in `shape`: 0 copies the size of the input, 1 is a size of 0."),
    ("alpha", &["Adam", "Momentum"], "Decay rate of the averaged gradient."),
    ("alpha", &["Celu", "Elu", "Selu"], "Scale of the exponential part."),
    ("alpha", &["Gemm"], "Factor of the product."),
    ("alpha", &["HardSigmoid"], "Slope."),
    ("alpha", &["LRN"], "Scale of the mean of squares."),
    ("alpha", &["LeakyRelu"], "Slope below 0."),
    ("alpha", &["SwiGLU", "Swish"], "Factor inside the sigmoid."),
    ("alpha", &["ThresholdedRelu"], "Threshold. Elements that are not greater become 0."),
    ("antialias", &["Resize"],
        "Whether linear and cubic interpolation use an antialiasing filter when an axis shrinks: \
         0 or 1."),
    ("approximate", &["Gelu"], "`none` for the error function, `tanh` for the tanh approximation."),
    ("auto_pad", &[],
        "How padding is determined. `NOTSET` uses `pads`. `VALID` adds none. `SAME_UPPER` and \
         `SAME_LOWER` add as much as gives `ceil(input size / stride)` outputs; an odd element is \
         added at the end or at the start, respectively."),
    ("axes", &["CenterCropPad"],
        "Axes that `shape` refers to. Negative values count from the end. If absent, all axes."),
    ("axes", &["Resize"],
        "Axes that `roi`, `scales` and `sizes` refer to. Negative values count from the end. If \
         absent, all axes."),
    ("axes", &["MeanVarianceNormalization"], "Axes over which mean and variance are computed."),
    ("axes", &["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
        "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"],
        "Axes to reduce. If absent, all axes."),
    ("axes", &["Slice"], "Axes that `starts` and `ends` refer to. If absent, axes 0, 1, …."),
    ("axes", &["Squeeze"], "Axes of size 1 to remove. If absent, all axes of size 1."),
    ("axes", &["Unsqueeze"], "Positions of the new axes in the output."),
    ("axis", &[], "Axis. A negative value counts from the end."),
    ("axis", &["ArgMax", "ArgMin"], "Axis to search. A negative value counts from the end."),
    ("axis", &["Compress", "Unique"],
        "Axis of the slices. A negative value counts from the end. If absent, the input is \
         flattened."),
    ("axis", &["Concat"], "Axis to concatenate along. A negative value counts from the end."),
    ("axis", &["ConcatFromSequence"],
        "Axis to concatenate along, or position of the new axis. A negative value counts from the \
         end."),
    ("axis", &["DequantizeLinear", "QuantizeLinear"],
        "Axis of the scales, if there is more than one. A negative value counts from the end."),
    ("axis", &["Flatten"], "Number of leading axes that become rows. A negative value counts from the end."),
    ("axis", &["Gather"], "Axis to gather along. A negative value counts from the end."),
    ("axis", &["GatherElements"], "Axis to gather along. A negative value counts from the end."),
    ("axis", &["Hardmax", "LogSoftmax", "Softmax"],
        "Axis over which it is computed. Before version 13, the first of the axes that are \
         flattened into a row. A negative value counts from the end."),
    ("axis", &["LayerNormalization", "RMSNormalization"],
        "First normalized axis. A negative value counts from the end."),
    ("axis", &["LpNormalization"], "Axis to normalize along. A negative value counts from the end."),
    ("axis", &["OneHot"], "Position of the new axis in the output. A negative value counts from the end."),
    ("axis", &["Scatter", "ScatterElements"], "Axis to scatter along. A negative value counts from the end."),
    ("axis", &["Split", "SplitToSequence"], "Axis to split. A negative value counts from the end."),
    ("axis", &["TensorScatter"], "Sequence axis, not 0. A negative value counts from the end."),
    ("axis", &["TopK"], "Axis to select along. A negative value counts from the end."),
    ("base_values", &[], "Value added to the result of each class or target. If absent, 0."),
    ("base_values_as_tensor", &[], "`base_values` as a tensor, for doubles. If absent, 0."),
    ("batch_axis", &["ReverseSequence"], "Axis of the batch: 0 or 1."),
    ("batch_dims", &["GatherND"], "Number of leading batch axes of `data` and `indices`."),
    ("beta", &["Adam"], "Decay rate of the averaged squared gradient."),
    ("beta", &["Gemm"], "Factor of `C`."),
    ("beta", &["HardSigmoid"], "Value at 0."),
    ("beta", &["LRN"], "Exponent of the divisor."),
    ("beta", &["Momentum"], "Factor of the new gradient in the momentum. The first step uses 1."),
    ("bias", &["LRN"], "Constant added to the scaled mean of squares."),
    ("bias", &["Shrink"], "Distance by which elements move toward 0."),
    ("block_size", &["DequantizeLinear", "QuantizeLinear"],
        "Number of elements along `axis` that share a scale. 0: no blocks."),
    ("blocksize", &["DepthToSpace", "SpaceToDepth"], "Height and width of a block."),
    ("body", &["Loop"],
        "Graph of an iteration. Inputs: iteration number, condition, loop-carried values. \
         Outputs: condition, loop-carried values, scan outputs."),
    ("body", &["Scan"],
        "Graph of a step. Inputs: state variables, a slice of each scan input. Outputs: state \
         variables, an element of each scan output."),
    ("body", &["SequenceMap"], "Graph applied to each position of the sequence."),
    ("broadcast", &[], "Whether the right operand is broadcast to the shape of the left one: 0 or 1."),
    ("case_change_action", &["StringNormalizer"], "Case conversion: `LOWER`, `UPPER` or `NONE`."),
    ("cast_to", &["CastMap"], "Element type of the output: `TO_FLOAT`, `TO_STRING` or `TO_INT64`."),
    ("cats_int64s", &["CategoryMapper", "OneHotEncoder"], "Categories as integers."),
    ("cats_strings", &["CategoryMapper", "OneHotEncoder"], "Categories as strings."),
    ("ceil_mode", &[],
        "Rounding of the output size: 0 floor, 1 ceil. With ceil the last window may reach beyond \
         the padding."),
    ("center_point_box", &["NonMaxSuppression"],
        "Format of a box: 0 `[y1, x1, y2, x2]` with two opposite corners, 1 `[x_center, y_center, \
         width, height]`."),
    ("chunk_size", &["LinearAttention"],
        "Number of steps that an implementation may process at once. Does not change the result."),
    ("class_ids", &["TreeEnsembleClassifier"], "Index of the class of each weight."),
    ("class_nodeids", &["TreeEnsembleClassifier"], "Node id of the leaf of each weight."),
    ("class_treeids", &["TreeEnsembleClassifier"], "Tree id of each weight."),
    ("class_weights", &["TreeEnsembleClassifier"], "Weights that leaves add to the scores of classes."),
    ("class_weights_as_tensor", &["TreeEnsembleClassifier"], "`class_weights` as a tensor, for doubles."),
    ("classes_strings", &["LabelEncoder"], "Strings; the index of each is its integer."),
    ("classlabels_int64s", &[], "Class labels as integers."),
    ("classlabels_ints", &[], "Class labels as integers."),
    ("classlabels_strings", &[], "Class labels as strings."),
    ("clip", &["GRU", "LSTM", "RNN"],
        "Limit of the inputs of activation functions: they are clipped to `[-clip, clip]`. If \
         absent, they are not clipped."),
    ("coefficients", &["LinearClassifier", "LinearRegressor"],
        "Weights of the features, for each class or target in turn."),
    ("coefficients", &["SVMClassifier", "SVMRegressor"], "Coefficients of the support vectors."),
    ("consumed_inputs", &[], "Memory hint of old versions. Has no effect."),
    ("coordinate_transformation_mode", &["Resize"],
        "Mapping from output to input coordinates: `half_pixel`, `half_pixel_symmetric` (since \
         version 19), `pytorch_half_pixel`, `align_corners`, `asymmetric`, `tf_crop_and_resize`, or \
         `tf_half_pixel_for_nn` (version 11 only)."),
    ("coordinate_transformation_mode", &["RoiAlign"],
        "`half_pixel` subtracts 0.5 from the input coordinates, `output_half_pixel` does not."),
    ("count_include_pad", &["AveragePool"], "Whether padding counts as elements of the mean: 0 or 1."),
    ("cubic_coeff_a", &["Resize"], "Coefficient `a` of cubic interpolation."),
    ("decay_factor", &["Adagrad"], "Decay of the learning rate: it is divided by `1 + T * decay_factor`."),
    ("default_float", &["LabelEncoder"], "Value of elements that are not a key, as a float."),
    ("default_int64", &["CategoryMapper", "LabelEncoder"], "Value of elements that are not a key, as an integer."),
    ("default_string", &["CategoryMapper", "LabelEncoder"], "Value of elements that are not a key, as a string."),
    ("default_tensor", &["LabelEncoder"], "Value of elements that are not a key, as a tensor of one element."),
    ("delimiter", &["StringSplit"], "String to split at. If absent or empty, runs of whitespace."),
    ("detect_negative", &["IsInf"], "Whether negative infinity gives true: 0 or 1."),
    ("detect_positive", &["IsInf"], "Whether positive infinity gives true: 0 or 1."),
    ("dilations", &[], "Distance between neighboring elements of the window on each spatial axis. If absent, 1."),
    ("direction", &["BitShift"], "`LEFT` (toward higher bits) or `RIGHT`."),
    ("direction", &["GRU", "LSTM", "RNN"], "`forward`, `reverse` or `bidirectional` (both)."),
    ("directions", &["Scan"], "Direction of each scan input: 0 forward, 1 reverse. If absent, 0."),
    ("dtype", &[], "Element type of the output, by its number in `TensorProto.DataType`."),
    ("dtype", &["Bernoulli", "EyeLike", "RandomNormalLike", "RandomUniformLike"],
        "Element type of the output, by its number in `TensorProto.DataType`. If absent, the type \
         of the input."),
    ("dtype", &["SequenceEmpty"],
        "Element type of the tensors, by its number in `TensorProto.DataType`. If absent, float."),
    ("else_branch", &["If"], "Graph to run if the condition is false. It has no inputs."),
    ("end", &["Shape"], "Axis at which to stop, exclusive. A negative value counts from the end. If absent, the rank."),
    ("ends", &["Slice"], "End of the slice on each axis, exclusive. Negative values count from the end."),
    ("epsilon", &[], "Constant added to the variance, to avoid division by zero."),
    ("epsilon", &["Adagrad", "Adam"], "Constant added to the divisor, to avoid division by zero."),
    ("epsilon", &["RMSNormalization"], "Constant added to the mean of squares, to avoid division by zero."),
    ("equation", &["Einsum"],
        "Axis labels of each operand, separated by commas, and after `->` those of the output. \
         Labels are letters."),
    ("exclude_outside", &["Resize"],
        "Whether elements outside of the input get weight 0, with the other weights scaled to sum \
         to 1: 0 or 1."),
    ("exclusive", &["CumProd", "CumSum"], "Whether each element is left out of its own result: 0 or 1."),
    ("extrapolation_value", &["Resize"],
        "Value of output elements outside of the input, in mode `tf_crop_and_resize`."),
    ("fmod", &["Mod"],
        "Sign of the result: 0 that of the divisor, 1 that of the dividend. Before version 28 \
         floats require 1."),
    ("gamma", &["Selu"], "Scale of the output."),
    ("group", &[], "Number of groups that the channels are divided into."),
    ("height_scale", &["Upsample"], "Scale factor of the height."),
    ("hidden_size", &["GRU", "LSTM", "RNN"], "Number of elements of the hidden state."),
    ("high", &["RandomUniform", "RandomUniformLike"], "Upper bound, exclusive."),
    ("ignore_index", &["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"],
        "Class index whose elements do not count. If absent, all count."),
    ("imputed_value_floats", &["Imputer"], "Replacement for missing floats: one value, or one for each feature."),
    ("imputed_value_int64s", &["Imputer"], "Replacement for missing integers: one value, or one for each feature."),
    ("input_forget", &["LSTM"], "Whether input and forget gate are coupled (`f = 1 - i`): 0 or 1."),
    ("inputdimensions", &["FeatureVectorizer"], "Number of features of each input."),
    ("int64_vocabulary", &["DictVectorizer"], "Integer keys; the index of each is its place in the output."),
    ("intercepts", &["LinearClassifier", "LinearRegressor"], "Value added for each class or target. If absent, 0."),
    ("interleaved", &["RotaryEmbedding"],
        "Which features form a pair: 0 those half of the rotated features apart, 1 neighbors."),
    ("inverse", &["DFT"], "Whether to compute the inverse transform: 0 or 1."),
    ("is_case_sensitive", &["StringNormalizer"], "Whether stop words are compared with their case: 0 or 1."),
    ("is_causal", &["Attention"], "Whether a query attends only to keys up to its own position: 0 or 1."),
    ("is_test", &[], "Mode: 0 training, any other value inference."),
    ("k", &["EyeLike"],
        "Diagonal of ones: 0 is the main diagonal, positive values are above it, negative values \
         below it."),
    ("k", &["TopK"], "Number of elements to select from each slice."),
    ("keep_aspect_ratio_policy", &["Resize"],
        "How `sizes` is used: `stretch` takes it as it is; `not_larger` and `not_smaller` keep \
         the aspect ratio with no size larger, or smaller, than given."),
    ("keepdims", &[], "Whether reduced axes are kept with size 1: 0 or 1."),
    ("keepdims", &["SplitToSequence"], "Whether the axis is kept with size 1 if `split` is absent: 0 or 1."),
    ("kernel_params", &[], "Parameters of the kernel: gamma, coef0 and degree."),
    ("kernel_shape", &[], "Size of the window on each spatial axis."),
    ("kernel_shape", &["Conv", "ConvInteger", "ConvTranspose", "DeformConv", "QLinearConv"],
        "Size of the filter on each spatial axis. If absent, taken from the filter tensor."),
    ("kernel_shape", &["MaxUnpool"], "Size of the window of the `MaxPool` on each spatial axis."),
    ("kernel_type", &[], "Kernel function: `LINEAR`, `POLY`, `RBF` or `SIGMOID`."),
    ("keys_floats", &["LabelEncoder"], "Keys as floats."),
    ("keys_int64s", &["LabelEncoder"], "Keys as integers."),
    ("keys_strings", &["LabelEncoder"], "Keys as strings."),
    ("keys_tensor", &["LabelEncoder"], "Keys as a 1-D tensor."),
    ("kv_num_heads", &["Attention"], "Number of heads of keys and values. Required if the inputs are 3-D."),
    ("kv_num_heads", &["LinearAttention"], "Number of heads of keys and values."),
    ("lambd", &["Shrink"], "Threshold: elements from `-lambd` to `lambd` become 0."),
    ("largest", &["TopK"], "Which elements to select: 1 the largest, 0 the smallest."),
    ("layout", &["GRU", "LSTM", "RNN"], "Order of the axes: 0 sequence first, 1 batch first."),
    ("leaf_targetids", &["TreeEnsemble"], "Target of each leaf."),
    ("leaf_weights", &["TreeEnsemble"], "Weight of each leaf."),
    ("left_window_size", &["Attention"],
        "Number of keys before its own position that a query attends to. -1: no limit."),
    ("linear_before_reset", &["GRU"],
        "Whether the reset gate is applied after the product with the recurrence weights (1) or \
         before it (0)."),
    ("locale", &["StringNormalizer"], "Locale of the case conversion."),
    ("low", &["RandomUniform", "RandomUniformLike"], "Lower bound, inclusive."),
    ("map_form", &["CastMap"], "`DENSE`: values in the order of their keys. `SPARSE`: keys are indices."),
    ("max", &["Clip"], "Upper limit."),
    ("max_gram_length", &["TfIdfVectorizer"], "Maximum length of an n-gram."),
    ("max_map", &["CastMap"], "Length of the output in form `SPARSE`."),
    ("max_skip_count", &["TfIdfVectorizer"],
        "Maximum number of tokens skipped between neighboring tokens of an n-gram."),
    ("maxsplit", &["StringSplit"], "Maximum number of splits. If absent, there is no limit."),
    ("mean", &["RandomNormal", "RandomNormalLike"], "Mean."),
    ("membership_values", &["TreeEnsemble"],
        "Members of the sets of the nodes with mode 6, in the order of the nodes. NaN ends each \
         set."),
    ("min", &["Clip"], "Lower limit."),
    ("min_gram_length", &["TfIdfVectorizer"], "Minimum length of an n-gram."),
    ("mode", &["DepthToSpace"], "Order of the channels: `DCR` (block position first) or `CRD` (channel first)."),
    ("mode", &["GridSample"],
        "Interpolation: `linear`, `nearest` or `cubic`; in version 16 `bilinear`, `nearest` or \
         `bicubic`."),
    ("mode", &["Momentum"], "`standard` or `nesterov`."),
    ("mode", &["Pad"],
        "Padding mode: `constant`, `edge` (repeats the outermost element), `reflect` (mirrors at \
         the outermost element), or since version 19 `wrap` (continues at the other end)."),
    ("mode", &["Resize"], "Interpolation: `nearest`, `linear` or `cubic` (since version 11)."),
    ("mode", &["RoiAlign"], "How the points of a cell are combined: `avg` or `max`."),
    ("mode", &["SpaceToDepth"], "Order of the output channels: `DCR` (block position first) or `CRD` (channel first)."),
    ("mode", &["TensorScatter"],
        "`linear`: entries beyond the end of the cache are an error. `circular`: they continue at \
         the start."),
    ("mode", &["TfIdfVectorizer"],
        "`TF`: number of occurrences. `IDF`: the weight if the n-gram occurs. `TFIDF`: number of \
         occurrences times the weight."),
    ("mode", &["Upsample"], "Interpolation: `nearest` or `linear` (`bilinear` in version 1)."),
    ("momentum", &["BatchNormalization"], "Factor of the previous running mean and variance in the update."),
    ("multi_class", &["LinearClassifier"],
        "Strategy for multiple classes: 0 one versus rest, 1 multinomial. Does not change the \
         result."),
    ("n_supports", &["SVMRegressor"], "Number of support vectors. 0: a linear model."),
    ("n_targets", &[], "Number of targets."),
    ("nearest_mode", &["Resize"],
        "Rounding in mode `nearest`: `round_prefer_floor` (half down), `round_prefer_ceil` (half \
         up), `floor` or `ceil`."),
    ("new_axis", &["ConcatFromSequence"],
        "Whether the tensors are stacked along a new axis (1) or concatenated along an existing \
         one (0)."),
    ("ngram_counts", &["TfIdfVectorizer"], "Start of the 1-grams, 2-grams and so on in the pool."),
    ("ngram_indexes", &["TfIdfVectorizer"], "Output index of each n-gram."),
    ("nodes_falseleafs", &["TreeEnsemble"], "Whether the false branch of each node is a leaf: 0 or 1."),
    ("nodes_falsenodeids", &["TreeEnsemble"],
        "Index of the false branch of each node: of a leaf if `nodes_falseleafs` is 1, else of a \
         node."),
    ("nodes_falsenodeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "Node id of the false branch of each node."),
    ("nodes_featureids", &["TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "Index of the feature that each node compares."),
    ("nodes_hitrates", &["TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "Relative frequency of each node. Does not change the result."),
    ("nodes_hitrates_as_tensor", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "`nodes_hitrates` as a tensor, for doubles. Does not change the result."),
    ("nodes_missing_value_tracks_true", &["TreeEnsemble", "TreeEnsembleClassifier",
        "TreeEnsembleRegressor"],
        "Branch that each node takes for NaN: 1 the true branch, 0 the false branch. If absent, \
         0."),
    ("nodes_modes", &["TreeEnsemble"],
        "Comparison of each node: 0 `<=`, 1 `<`, 2 `>=`, 3 `>`, 4 `==`, 5 `!=`, 6 member of a \
         set."),
    ("nodes_modes", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "Comparison of each node: `BRANCH_LEQ`, `BRANCH_LT`, `BRANCH_GTE`, `BRANCH_GT`, \
         `BRANCH_EQ` or `BRANCH_NEQ`; `LEAF` for a leaf."),
    ("nodes_nodeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "Id of each node within its tree."),
    ("nodes_splits", &["TreeEnsemble"], "Threshold of each node."),
    ("nodes_treeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "Tree id of each node."),
    ("nodes_trueleafs", &["TreeEnsemble"], "Whether the true branch of each node is a leaf: 0 or 1."),
    ("nodes_truenodeids", &["TreeEnsemble"],
        "Index of the true branch of each node: of a leaf if `nodes_trueleafs` is 1, else of a \
         node."),
    ("nodes_truenodeids", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "Node id of the true branch of each node."),
    ("nodes_values", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"], "Threshold of each node."),
    ("nodes_values_as_tensor", &["TreeEnsembleClassifier", "TreeEnsembleRegressor"],
        "`nodes_values` as a tensor, for doubles."),
    ("noop_with_empty_axes", &[], "Meaning of absent or empty axes: 0 reduces all axes, 1 reduces none."),
    ("norm", &["Normalizer"], "Norm of a row: `MAX`, `L1` or `L2`."),
    ("norm_coefficient", &["Adagrad", "Adam", "Momentum"],
        "Coefficient of L2 regularization. The gradient grows by `norm_coefficient * X`."),
    ("norm_coefficient_post", &["Adam"],
        "Coefficient of regularization after the step. The new value is scaled by `1 - \
         norm_coefficient_post`."),
    ("num_groups", &["GroupNormalization"], "Number of groups that the channels are divided into."),
    ("num_heads", &["RotaryEmbedding"], "Number of heads. Required if the input is 3-D."),
    ("num_outputs", &["Split"], "Number of parts. They have equal sizes, except that the last may be smaller."),
    ("num_scan_inputs", &["Scan"], "Number of scan inputs; they are the last inputs."),
    ("offset", &["Scaler"], "Value subtracted from each feature: one for each, or one for all."),
    ("offset_group", &["DeformConv"], "Number of groups of channels that have offsets of their own."),
    ("one_class", &["SVMRegressor"],
        "Whether this is a one-class model, whose output is 1 for inliers and -1 for outliers: 0 \
         or 1."),
    ("onesided", &["DFT", "STFT"],
        "Whether only the first `length / 2 + 1` bins of the spectrum are used: 0 or 1. \
         Sufficient for real signals."),
    ("output_datatype", &[], "Element type of the output, by its number in `TensorProto.DataType`."),
    ("output_dtype", &[],
        "Element type of the output, by its number in `TensorProto.DataType`. 0: determined by \
         the inputs."),
    ("output_height", &["RoiAlign"], "Height of the output."),
    ("output_padding", &["ConvTranspose"],
        "Number of elements added at the end of each spatial axis of the output. If absent, 0."),
    ("output_sequence", &["GRU", "LSTM", "RNN"], "Whether the states after all steps are an output: 0 or 1."),
    ("output_shape", &["ConvTranspose"], "Spatial sizes of the output. If given, `pads` is computed from it."),
    ("output_width", &["RoiAlign"], "Width of the output."),
    ("p", &["GlobalLpPool", "LpPool"], "Order of the norm."),
    ("p", &["LpNormalization"], "Order of the norm: 1 or 2."),
    ("padding_mode", &["GridSample"],
        "Values outside of the input: `zeros`, `border` (the nearest element at the border) or \
         `reflection` (mirrored at the border)."),
    ("paddings", &["Pad"], "Number of elements to add at the start of each axis, then at the end of each."),
    ("pads", &[], "Number of elements added at the start of each spatial axis, then at the end of each. If absent, 0."),
    ("pads", &["ConvTranspose"],
        "Number of elements removed from the output at the start of each spatial axis, then at \
         the end of each. If absent, 0."),
    ("pads", &["MaxUnpool"],
        "Padding of the `MaxPool`: at the start of each spatial axis, then at the end of each. If \
         absent, 0."),
    ("pads", &["Pad"], "Number of elements to add at the start of each axis, then at the end of each."),
    ("pattern", &["RegexFullMatch"], "Regular expression in RE2 syntax."),
    ("periodic", &["BlackmanWindow", "HammingWindow", "HannWindow"], "Kind of window: 1 periodic, 0 symmetric."),
    ("perm", &["Transpose"],
        "Permutation: axis `i` of the output is axis `perm[i]` of the input. If absent, the order \
         is reversed."),
    ("pixel_format", &["ImageDecoder"], "Channels of a pixel: `RGB`, `BGR` or `Grayscale`."),
    ("pool_int64s", &["TfIdfVectorizer"], "Vocabulary: the n-grams as integers, concatenated."),
    ("pool_strings", &["TfIdfVectorizer"], "Vocabulary: the n-grams as strings, concatenated."),
    ("pooled_shape", &["MaxRoiPool"], "Height and width of the output."),
    ("post_transform", &[],
        "Transform of the scores: `NONE`, `SOFTMAX`, `LOGISTIC`, `SOFTMAX_ZERO` (softmax of the \
         scores other than 0) or `PROBIT`."),
    ("post_transform", &["TreeEnsemble"],
        "Transform of the scores: 0 none, 1 softmax, 2 logistic, 3 softmax of the scores other \
         than 0, 4 probit."),
    ("precision", &["QuantizeLinear"],
        "Element type of the division, by its number in `TensorProto.DataType`. 0: the type of \
         `y_scale`."),
    ("prob_a", &["SVMClassifier"], "Slopes of the logistic functions that convert scores to probabilities."),
    ("prob_b", &["SVMClassifier"], "Offsets of the logistic functions that convert scores to probabilities."),
    ("prob_mod", &["FlexAttention"],
        "Graph that modifies the probabilities after the softmax. One input and one output of the \
         same shape and type."),
    ("q_num_heads", &["Attention"], "Number of heads of queries. Required if the inputs are 3-D."),
    ("q_num_heads", &["LinearAttention"], "Number of heads of queries, a multiple of `kv_num_heads`."),
    ("qk_matmul_output_mode", &["Attention"],
        "Stage of the scores in `qk_matmul_output`: 0 the scaled product of queries and keys, 1 \
         after the soft cap, 2 after soft cap and mask, 3 after the softmax."),
    ("ratio", &["Dropout"], "Probability that an element is set to 0 in training."),
    ("reduction", &["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"],
        "`none` returns the loss of each element, `sum` their sum, `mean` their weighted mean."),
    ("reduction", &["ScatterElements", "ScatterND"],
        "How an update is combined with the existing element: `none` (replaces it), `add`, `mul`, \
         or since version 18 `max` or `min`."),
    ("replaced_value_float", &["Imputer"], "Float that marks a missing value; may be NaN."),
    ("replaced_value_int64", &["Imputer"], "Integer that marks a missing value."),
    ("reverse", &["CumProd", "CumSum"], "Whether to start at the end of the axis: 0 or 1."),
    ("rho", &[], "Constants added to the decision functions."),
    ("right_window_size", &["Attention"],
        "Number of keys after its own position that a query attends to. -1: no limit."),
    ("rotary_embedding_dim", &["RotaryEmbedding"], "Number of features of a head that are rotated. 0: all."),
    ("round_mode", &["Cast", "CastLike"], "Rounding to `float8e8m0`: `up`, `down` or `nearest`."),
    ("sample_size", &["Multinomial"], "Number of draws for each row."),
    ("sampling_ratio", &["RoiAlign"],
        "Number of points along each axis of a cell. 0: `ceil(region size / output size)`."),
    ("saturate", &["Cast", "CastLike", "QuantizeLinear"],
        "For 8-bit floats: whether values out of range become the largest value (1) or infinity \
         or NaN (0)."),
    ("scale", &["Attention", "FlexAttention"],
        "Factor of the products of queries and keys. If absent, `1 / sqrt(head_size)`."),
    ("scale", &["LinearAttention"], "Factor of the output. 0: `1 / sqrt(head_size)`."),
    ("scale", &["RandomNormal", "RandomNormalLike"], "Standard deviation."),
    ("scale", &["Scaler"], "Factor of each feature: one for each, or one for all."),
    ("scales", &["Upsample"], "Scale factor of each axis."),
    ("scan_input_axes", &["Scan"], "Scan axis of each scan input. If absent, 0."),
    ("scan_input_directions", &["Scan"], "Direction of each scan input: 0 forward, 1 reverse. If absent, 0."),
    ("scan_output_axes", &["Scan"], "Axis along which each scan output is stacked. If absent, 0."),
    ("scan_output_directions", &["Scan"], "Direction of each scan output: 0 appends, 1 prepends. If absent, 0."),
    ("score_mod", &["FlexAttention"],
        "Graph that modifies the scores before the softmax. One input and one output of the same \
         shape and type."),
    ("seed", &[], "Seed of the random number generator. If absent, the numbers differ from run to run."),
    ("select_last_index", &["ArgMax", "ArgMin"], "Which of several equal elements counts: 0 the first, 1 the last."),
    ("shape", &["RandomNormal", "RandomUniform"], "Shape of the output."),
    ("shape", &["Reshape"], "New shape. One size may be -1 (inferred); 0 copies the size of the input."),
    ("size", &["LRN"], "Number of channels in the sum."),
    ("softcap", &["Attention"], "Soft cap of the scores: `softcap * tanh(scores / softcap)`. 0: none."),
    ("softmax_precision", &[], "Element type of the softmax, by its number in `TensorProto.DataType`."),
    ("sorted", &["TopK"], "Whether the selected elements are sorted: 0 or 1."),
    ("sorted", &["Unique"], "Order of the output: 1 ascending, 0 by first occurrence."),
    ("sparse_value", &["Constant"], "Sparse tensor."),
    ("spatial", &[], "Whether mean and variance are computed for each channel (1) or for each element (0)."),
    ("spatial_scale", &["MaxRoiPool", "RoiAlign"], "Factor from region coordinates to feature map coordinates."),
    ("split", &["Split"], "Sizes of the parts."),
    ("start", &["Shape"], "First axis. A negative value counts from the end."),
    ("starts", &["Slice"], "Start of the slice on each axis. Negative values count from the end."),
    ("stash_type", &[], "Element type of the computation, by its number in `TensorProto.DataType`."),
    ("stopwords", &["StringNormalizer"], "Strings to remove. If absent, none."),
    ("storage_order", &["MaxPool"], "Order in which `Indices` counts elements: 0 row-major, 1 column-major."),
    ("strides", &[], "Distance between neighboring windows on each spatial axis. If absent, 1."),
    ("strides", &["MaxUnpool"], "Strides of the `MaxPool` on each spatial axis. If absent, 1."),
    ("string_vocabulary", &["DictVectorizer"], "String keys; the index of each is its place in the output."),
    ("support_vectors", &[], "Support vectors, concatenated."),
    ("target_ids", &["TreeEnsembleRegressor"], "Index of the target of each weight."),
    ("target_nodeids", &["TreeEnsembleRegressor"], "Node id of the leaf of each weight."),
    ("target_treeids", &["TreeEnsembleRegressor"], "Tree id of each weight."),
    ("target_weights", &["TreeEnsembleRegressor"], "Weights that leaves contribute to targets."),
    ("target_weights_as_tensor", &["TreeEnsembleRegressor"], "`target_weights` as a tensor, for doubles."),
    ("targets", &["LinearRegressor"], "Number of targets."),
    ("then_branch", &["If"], "Graph to run if the condition is true. It has no inputs."),
    ("threshold", &["Binarizer"], "Elements that are greater become 1, others 0."),
    ("time_axis", &["ReverseSequence"], "Axis of the sequence: 0 or 1."),
    ("to", &["BitCast", "Cast"], "Element type of the output, by its number in `TensorProto.DataType`."),
    ("training_mode", &["BatchNormalization"], "Mode: 0 inference, 1 training."),
    ("transA", &["Gemm"], "Whether `A` is transposed: 0 or 1."),
    ("transB", &["Gemm"], "Whether `B` is transposed: 0 or 1."),
    ("tree_roots", &["TreeEnsemble"], "Index of the root node of each tree."),
    ("type", &["Optional"], "Type of the value. Required if the input is absent."),
    ("update_rule", &["LinearAttention"], "Recurrence of the state: `linear`, `gated`, `delta` or `gated_delta`."),
    ("upper", &["Trilu"], "Which triangle to keep: 1 the upper, 0 the lower."),
    ("value", &["Constant"], "Tensor."),
    ("value", &["ConstantOfShape"],
        "Value and element type of the output, as a tensor of one element. If absent, 0 as a \
         float."),
    ("value", &["Pad"], "Value of the padding in mode `constant`."),
    ("value_float", &["Constant"], "Float, for a scalar."),
    ("value_floats", &["Constant"], "Floats, for a 1-D tensor."),
    ("value_int", &["Constant"], "Integer, for an int64 scalar."),
    ("value_ints", &["Constant"], "Integers, for a 1-D int64 tensor."),
    ("value_string", &["Constant"], "String, for a scalar."),
    ("value_strings", &["Constant"], "Strings, for a 1-D tensor."),
    ("values_floats", &["LabelEncoder"], "Values of the keys as floats."),
    ("values_int64s", &["LabelEncoder"], "Values of the keys as integers."),
    ("values_strings", &["LabelEncoder"], "Values of the keys as strings."),
    ("values_tensor", &["LabelEncoder"], "Values of the keys as a 1-D tensor."),
    ("vectors_per_class", &["SVMClassifier"], "Number of support vectors of each class."),
    ("weights", &["TfIdfVectorizer"], "Weight of each n-gram. If absent, 1."),
    ("width_scale", &["Upsample"], "Scale factor of the width."),
    ("xs", &["Gradient"], "Names of the tensors to differentiate with respect to."),
    ("y", &["Gradient"], "Name of the tensor to differentiate."),
    ("zeros", &["OneHotEncoder"], "An unknown category gives zeros (1) or an error (0)."),
    ("zs", &["Gradient"], "Names of further tensors that `y` depends on, which are treated as constants."),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;
    use std::collections::HashSet;

    /// Returns the schemas of the standard and those of `com.microsoft`, each with the tables for
    /// them.
    fn list_described() -> [(Vec<Schema>, [&'static [Row]; 3]); 2] {
        let registry = Registry::standard();
        let added = registry.microsoft_operators().filter(|op| op.domain == DOMAIN);
        let added = added.filter_map(|op| op.schema_at(op.newest()));
        [
            (registry.schemas().cloned().collect(), [INPUTS, OUTPUTS, ATTRIBUTES]),
            (added.collect(), [microsoft::INPUTS, microsoft::OUTPUTS, microsoft::ATTRIBUTES]),
        ]
    }

    /// Returns the names of the inputs, outputs and attributes of a schema.
    fn parts(schema: &Schema) -> [Vec<&'static str>; 3] {
        [
            schema.inputs.iter().map(|input| input.name).collect(),
            schema.outputs.iter().map(|output| output.name).collect(),
            schema.attributes.iter().map(|attribute| attribute.name).collect(),
        ]
    }

    #[test]
    fn each_row_is_used_and_each_name_has_one() {
        for (schemas, tables) in list_described() {
            for (part, rows) in tables.into_iter().enumerate() {
                let known: HashSet<(&str, &str)> = schemas
                    .iter()
                    .flat_map(|schema| {
                        parts(schema)[part].clone().into_iter().map(|n| (schema.name, n))
                    })
                    .collect();
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
                    let is_left =
                        |(op, found): &(&str, &str)| found == name && !seen.contains(&(*op, *name));
                    let used = match *operator {
                        "" => known.iter().any(is_left),
                        _ => known.contains(&(*operator, *name)),
                    };
                    assert!(used, "the row for {name} of '{operator}' is for nothing");
                }
            }
        }
    }

    #[test]
    fn every_part_of_every_version_has_a_row() {
        let mut missing = Vec::new();
        for (schemas, tables) in list_described() {
            for schema in &schemas {
                for (names, rows) in parts(schema).iter().zip(tables) {
                    let unknown =
                        names.iter().filter(|name| find(rows, schema.name, name).is_none());
                    missing.extend(unknown.map(|name| format!("{}.{name}", schema.name)));
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_name_of_a_microsoft_operator_has_a_description_of_its_own() {
        let hash = Registry::standard().microsoft_operators().find(|op| op.name == "MurmurHash3");
        let schema = hash.and_then(|op| op.schema_at(1)).expect("it is in the list");
        let about = schema.attribute("seed").map(|seed| schema.about_attribute(seed));
        assert!(about.is_some_and(|about| about.starts_with("Seed of the hash.")));
    }

    #[test]
    fn descriptions_include_the_meaning_of_absence() {
        let registry = Registry::standard();
        let conv = registry.schema("", "Conv", 22).unwrap();
        let about = |name: &str| conv.about_attribute(conv.attribute(name).unwrap());
        assert_eq!(
            about("group"),
            "Number of groups that the channels are divided into. Default: 1."
        );
        assert!(about("strides").ends_with("If absent, 1."));
        assert!(about("pads").ends_with("If absent, 0."));
        assert!(conv.about_input(&conv.inputs[2]).ends_with("Optional."));
        assert_eq!(conv.about_type("T"), "The type of inputs `X`, `W`, `B` and output `Y`.");
        let concat = registry.schema("", "Concat", 13).unwrap();
        assert!(concat.about_attribute(&concat.attributes[0]).ends_with("Required."));
        let joined = concat.about_input(&concat.inputs[0]);
        assert!(joined.ends_with("Variadic: 1 or more, all of the same type."), "{joined}");
        // An operator of a program only has rows of names that all operators share.
        let mut own = Schema::new("com.example", "Own", 1);
        own.inputs.push(Param { name: "unheard_of", ..conv.inputs[0] });
        assert_eq!(own.about_input(&own.inputs[0]), "An input of type `T`.");
    }
}
