//! `QMoE`: a mixture of experts whose weights are quantized to few bits.

use sardonyx_tensor::DataType::{Bfloat16, Float, Float8e4m3fn, Float8e8m0, Float16, Uint8};

use super::DOMAIN;
use super::packed::unpack;
use crate::def::OpDef;
use crate::facts::{float, input, int, output, string, types};
use crate::function::{Expand, FLOAT, float_scalar, vector};
use crate::rules::same_as_first;
use crate::typeset::TypeSet;

pub(crate) static Q_MOE: OpDef = OpDef::new("QMoE")
    .domain(DOMAIN)
    .about(
        "Mixture of experts with quantized weights. Each row of the input goes through the `k` \
         experts with the largest `router_probs`, each a product (FC1), an activation and a second \
         product (FC2). The results are added with the softmax of these `k` values as weights, or \
         with those of `router_weights`.",
    )
    .since(
        1,
        &[
            input("input", "T"),
            input("router_probs", "T"),
            input("fc1_experts_weights", "T1"),
            input("fc1_scales", "T2").optional(),
            input("fc1_experts_bias", "T").optional(),
            input("fc2_experts_weights", "T1"),
            input("fc2_scales", "T2").optional(),
            input("fc2_experts_bias", "T").optional(),
            input("fc3_experts_weights", "T1").optional(),
            input("fc3_scales", "T2").optional(),
            input("fc3_experts_bias", "T").optional(),
            input("fc1_zero_points", "T1").optional(),
            input("fc2_zero_points", "T1").optional(),
            input("fc3_zero_points", "T1").optional(),
            input("router_weights", "T").optional(),
            input("fc1_global_scale", "T4").optional(),
            input("fc2_global_scale", "T4").optional(),
            input("fc1_act_scale", "T4").optional(),
            input("fc2_act_scale", "T4").optional(),
            input("fc1_act_block_scale", "T2").optional(),
            input("fc2_act_block_scale", "T2").optional(),
            output("output", "T"),
            int("accuracy_level").or(0),
            float("activation_alpha").or_float(1.0),
            float("activation_beta").or_float(0.0),
            string("activation_type").or_word("relu"),
            int("block_size"),
            int("expert_weight_bits").or(4),
            int("fc1_expert_weight_bits"),
            int("fc2_expert_weight_bits"),
            int("fc3_expert_weight_bits"),
            int("k").or(1),
            int("normalize_routing_weights").or(0),
            string("quant_type").or_word("int"),
            float("swiglu_limit"),
            int("swiglu_fusion").or(0),
            int("use_sparse_mixer").or(0),
            int("weights_prepacked").or(-1),
            types("T", TypeSet::tensors(&[Bfloat16, Float, Float16])),
            types("T1", TypeSet::tensors(&[Float8e4m3fn, Uint8])),
            types("T2", TypeSet::tensors(&[Bfloat16, Float, Float16, Float8e4m3fn, Float8e8m0])),
            types("T4", TypeSet::tensors(&[Float])),
        ],
    )
    .infer(same_as_first)
    .body_or_reason(1, body)
    .unknown_cost();

/// Layer of all experts: indices of the inputs that hold it.
struct Layer {
    name: &'static str,
    scales: usize,
    bias: usize,
    zeros: usize,
}

const FC1: Layer = Layer { name: "fc1", scales: 3, bias: 4, zeros: 11 };
const FC2: Layer = Layer { name: "fc2", scales: 6, bias: 7, zeros: 12 };
const FC3: Layer = Layer { name: "fc3", scales: 9, bias: 10, zeros: 13 };
const FC3_WEIGHTS: usize = 8;
const ROUTER_WEIGHTS: usize = 14;
/// First of the inputs for weights and activations that are small floats.
const SMALL_FLOATS: usize = 15;

/// Fails for forms that ONNX Runtime has only on devices.
fn refuse_unsupported(cx: &Expand<'_>) -> Result<(), String> {
    let kind = cx.string("quant_type").unwrap_or_default();
    let is_fused = cx.int("swiglu_fusion").unwrap_or(0) != 0;
    let is_swiglu = cx.string("activation_type").is_some_and(|name| name == "swiglu");
    let reason = if kind != "int" {
        return Err(format!("its quant_type '{kind}' is not supported, only 'int'"));
    } else if (SMALL_FLOATS..cx.input_count()).any(|index| cx.has_input(index)) {
        "global scales and scales of activations are not supported"
    } else if cx.int("weights_prepacked") == Some(1) {
        "weights packed for a device are not supported (weights_prepacked)"
    } else if cx.int("use_sparse_mixer").unwrap_or(0) != 0 {
        "use_sparse_mixer is not supported"
    } else if cx.has_input(FC3_WEIGHTS) && !is_swiglu {
        "fc3_experts_weights are supported only with the activation swiglu"
    } else if is_swiglu && cx.has_input(FC3_WEIGHTS) == is_fused {
        "swiglu requires either fc3_experts_weights or swiglu_fusion"
    } else {
        return Ok(());
    };
    Err(reason.to_string())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    refuse_unsupported(cx)?;
    let is_float = cx.elem(0) == Some(FLOAT);
    let mut text = vector("flat", &[-1])
        + "features = Shape <start = -1> (input)
        row_sizes = Concat <axis = 0> (flat, features)
        given_rows = Reshape (input, row_sizes)\n";
    text += &format!("rows = Cast <to = {FLOAT}> (given_rows)\n");
    text += &FC1.product(cx, "rows")?;
    text += &build_activation(cx)?;
    text += &FC2.product(cx, "hidden")?;
    text += &build_mixture(cx)?;
    text += "sizes = Shape (input)\n";
    text += if is_float {
        "output = Reshape (sum, sizes)"
    } else {
        "wide_output = Reshape (sum, sizes)
        output = CastLike (wide_output, input)"
    };
    Ok(text)
}

impl Layer {
    /// Builds `{name}_result` for all experts: `[experts, rows, outputs]`.
    fn product(&self, cx: &Expand<'_>, of: &str) -> Result<String, String> {
        let name = self.name;
        let mut text = self.weights(cx)?;
        text += &format!(
            "{name}_columns = Transpose <perm = [0, 2, 1]> ({name}_dequantized)
            {name}_product = MatMul ({of}, {name}_columns)\n"
        );
        text += &if cx.has_input(self.bias) {
            vector(&format!("{name}_row_axis"), &[1])
                + &format!(
                    "{name}_bias = Cast <to = {FLOAT}> ({name}_experts_bias)
                    {name}_bias_rows = Unsqueeze ({name}_bias, {name}_row_axis)
                    {name}_result = Add ({name}_product, {name}_bias_rows)\n"
                )
        } else {
            format!("{name}_result = Identity ({name}_product)\n")
        };
        Ok(text)
    }

    /// Builds `{name}_dequantized`: `[experts, outputs, inputs]`.
    fn weights(&self, cx: &Expand<'_>) -> Result<String, String> {
        let name = self.name;
        if !cx.has_input(self.scales) {
            return Err(format!("the input {name}_scales is missing"));
        }
        let own = cx.int(&format!("{name}_expert_weight_bits"));
        let bits = match own.or(cx.int("expert_weight_bits")) {
            Some(bits @ (2 | 4 | 8)) => bits,
            bits => {
                let bits = bits.unwrap_or_default();
                return Err(format!("the weights of {name} must have 2, 4 or 8 bits, not {bits}"));
            }
        };
        let block = cx.int("block_size").filter(|size| *size > 0);
        let mut text =
            unpack(&format!("{name}_experts_weights"), bits, false, &format!("{name}_codes"));
        text += &format!(
            "{name}_code_floats = Cast <to = {FLOAT}> ({name}_codes)
            {name}_wide_scales = Cast <to = {FLOAT}> ({name}_scales)\n"
        );
        text += &self.zeros(cx, bits, block.is_some());
        text += &vector(&format!("{name}_last"), &[-1]);
        text += &match block {
            // A block becomes an axis.
            Some(block) => {
                vector(&format!("{name}_block_sizes"), &[0, 0, -1, block])
                    + &vector(&format!("{name}_matrix_sizes"), &[0, 0, -1])
                    + &format!(
                        "{name}_blocks = Reshape ({name}_code_floats, {name}_block_sizes)
                        {name}_block_scales = Unsqueeze ({name}_wide_scales, {name}_last)
                        {name}_centered = Sub ({name}_blocks, {name}_zero)
                        {name}_scaled = Mul ({name}_centered, {name}_block_scales)
                        {name}_dequantized = Reshape ({name}_scaled, {name}_matrix_sizes)\n"
                    )
            }
            None => format!(
                "{name}_row_scales = Unsqueeze ({name}_wide_scales, {name}_last)
                {name}_centered = Sub ({name}_code_floats, {name}_zero)
                {name}_dequantized = Mul ({name}_centered, {name}_row_scales)\n"
            ),
        };
        Ok(text)
    }

    /// Builds `{name}_zero`, with an axis of size 1 after those of the scales: the middle of the
    /// range, or the zero points of the node.
    fn zeros(&self, cx: &Expand<'_>, bits: i64, has_blocks: bool) -> String {
        let name = self.name;
        if !cx.has_input(self.zeros) {
            let middle = f32::from(1_u8 << (bits - 1));
            return float_scalar(&format!("{name}_zero"), middle);
        }
        let axis = if has_blocks { 2 } else { 1 };
        vector(&format!("{name}_zero_from"), &[0])
            + &vector(&format!("{name}_zero_axis"), &[axis])
            + &vector(&format!("{name}_zero_last"), &[-1])
            + &unpack(&format!("{name}_zero_points"), bits, false, &format!("{name}_zero_codes"))
            + &format!(
                "{name}_zero_count = Shape <start = {axis}, end = {}> ({name}_scales)
                {name}_zero_list = Slice ({name}_zero_codes, {name}_zero_from, {name}_zero_count, {name}_zero_axis)
                {name}_zero_floats = Cast <to = {FLOAT}> ({name}_zero_list)
                {name}_zero = Unsqueeze ({name}_zero_floats, {name}_zero_last)\n",
                axis + 1
            )
    }
}

/// Builds `hidden`, the activation of `fc1_result`.
fn build_activation(cx: &Expand<'_>) -> Result<String, String> {
    let name = cx.string("activation_type").unwrap_or_default();
    let node = match name.as_str() {
        "relu" => "Relu",
        // ONNX Runtime's CPU computes the approximation.
        "gelu" => "Gelu <approximate = \"tanh\">",
        "silu" => "Swish",
        "identity" => "Identity",
        "swiglu" => return swiglu(cx),
        _ => return Err(format!("its activation '{name}' is not implemented")),
    };
    Ok(format!("hidden = {node} (fc1_result)\n"))
}

/// Builds the gated activation: gates and linear parts are neighbours, halves of each row, or
/// results of two layers.
fn swiglu(cx: &Expand<'_>) -> Result<String, String> {
    let mut text = match cx.int("swiglu_fusion") {
        Some(1) => {
            vector("gate_from", &[0])
                + &vector("linear_from", &[1])
                + &vector("pair_end", &[i64::MAX])
                + &vector("pair_axis", &[2])
                + &vector("pair_step", &[2])
                + "gate_given = Slice (fc1_result, gate_from, pair_end, pair_axis, pair_step)
                linear_given = Slice (fc1_result, linear_from, pair_end, pair_axis, pair_step)\n"
        }
        Some(2) => "gate_given, linear_given = Split <axis = 2, num_outputs = 2> (fc1_result)\n"
            .to_string(),
        Some(0) | None => {
            FC3.product(cx, "rows")?
                + "gate_given = Identity (fc1_result)
                linear_given = Identity (fc3_result)\n"
        }
        Some(fusion) => return Err(format!("swiglu_fusion must be 0, 1 or 2, not {fusion}")),
    };
    text += &match cx.float("swiglu_limit") {
        Some(limit) => {
            float_scalar("limit", limit)
                + &float_scalar("negative_limit", -limit)
                + "gate = Min (gate_given, limit)
                linear = Clip (linear_given, negative_limit, limit)\n"
        }
        None => "gate = Identity (gate_given)
            linear = Identity (linear_given)\n"
            .to_string(),
    };
    let alpha = cx.float("activation_alpha").unwrap_or(1.0);
    text += &float_scalar("beta", cx.float("activation_beta").unwrap_or(0.0));
    text += &format!(
        "gated = Swish <alpha = {alpha:?}> (gate)
        moved = Add (linear, beta)
        hidden = Mul (gated, moved)\n"
    );
    Ok(text)
}

/// Builds `sum`, the contributions of the selected experts to each row.
fn build_mixture(cx: &Expand<'_>) -> Result<String, String> {
    let count = match cx.int("k") {
        Some(count @ 1..) => count,
        count => return Err(format!("k must be positive, not {}", count.unwrap_or_default())),
    };
    let mut text = vector("expert_count", &[count])
        + &vector("first_axis", &[0])
        + &format!(
            "router = Cast <to = {FLOAT}> (router_probs)
            largest, experts = TopK <axis = 1> (router, expert_count)\n"
        );
    text += &if cx.has_input(ROUTER_WEIGHTS) {
        let gathered = format!(
            "router_weight_floats = Cast <to = {FLOAT}> (router_weights)
            chosen = GatherElements <axis = 1> (router_weight_floats, experts)\n"
        );
        let parts = if cx.int("normalize_routing_weights").unwrap_or(0) != 0 {
            "second_axis = Constant <value = int64[1] {1}> ()
            chosen_sum = ReduceSum (chosen, second_axis)
            parts = Div (chosen, chosen_sum)\n"
        } else {
            "parts = Identity (chosen)\n"
        };
        gathered + parts
    } else {
        "parts = Softmax <axis = 1> (largest)\n".to_string()
    };
    // Other experts contribute nothing to a row.
    Ok(text
        + &vector("part_axis", &[2])
        + &float_scalar("no_part", 0.0)
        + "router_sizes = Shape (router)
        no_parts = Expand (no_part, router_sizes)
        all_parts = ScatterElements <axis = 1> (no_parts, experts, parts)
        parts_of_experts = Transpose <perm = [1, 0]> (all_parts)
        factors = Unsqueeze (parts_of_experts, part_axis)
        contributions = Mul (fc2_result, factors)
        sum = ReduceSum <keepdims = 0> (contributions, first_axis)\n")
}
