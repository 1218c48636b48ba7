//! `QEmbedLayerNormalization`: embeddings from quantized tables, normalized.

use sardonyx_model::Shape;
use sardonyx_tensor::DataType::{Float, Int32};

use super::DOMAIN;
use super::linear::{BYTES, Codes, Given, Lines};
use super::normalization::{first_positions, mask_index};
use crate::def::OpDef;
use crate::facts::{float, input, output, types};
use crate::function::Expand;
use crate::infer::{Infer, InferError};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

pub(crate) static Q_EMBED: OpDef = OpDef::new("QEmbedLayerNormalization")
    .domain(DOMAIN)
    .about(
        "`EmbedLayerNormalization` with quantized tables, scale factors and bias. What is gathered \
         is dequantized.",
    )
    .since(
        1,
        &[
            input("input_ids", "T1"),
            input("segment_ids", "T1").optional(),
            input("word_embedding_quant", "T2"),
            input("position_embedding_quant", "T2"),
            input("segment_embedding", "T2").optional(),
            input("gamma_quant", "T2"),
            input("beta_quant", "T2"),
            input("mask", "T1").optional(),
            input("word_embedding_scale", "T"),
            input("position_embedding_scale", "T"),
            input("segment_embedding_scale", "T").optional(),
            input("gamma_scale", "T"),
            input("beta_scale", "T"),
            input("word_embedding_zero_point", "T2"),
            input("position_embedding_zero_point", "T2"),
            input("segment_embedding_zero_point", "T2").optional(),
            input("gamma_zero_point", "T2"),
            input("beta_zero_point", "T2"),
            output("layernorm_out", "T"),
            output("mask_index_out", "T1"),
            float("epsilon").or_float(1e-12),
            types("T", TypeSet::tensors(&[Float])),
            types("T1", TypeSet::tensors(&[Int32])),
            types("T2", BYTES),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .scalars(&[8, 9, 10, 11, 12, 13, 14, 15, 16, 17]);

/// Inputs that only nodes with segments have.
const SEGMENTS: [usize; 4] = [1, 4, 10, 15];

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    for (input, rank) in [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2), (5, 1), (6, 1), (7, 2)] {
        cx.demand_rank(input, rank)?;
    }
    let batch = shared_dim(cx, "the batch", &[(0, 0), (1, 0), (7, 0)])?;
    let length = shared_dim(cx, "the length", &[(0, 1), (1, 1), (7, 1)])?;
    let places = [(2, 1), (3, 1), (4, 1), (5, 0), (6, 0)];
    let hidden = shared_dim(cx, "the size of an embedding", &places)?;
    cx.set_tensor(0, Some(Float), Some(Shape::from_iter([batch.clone(), length, hidden])));
    cx.set_tensor(1, Some(Int32), Some(Shape::from_iter([batch])));
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    let present = SEGMENTS.map(|index| cx.has_input(index));
    if present.iter().any(|is_there| *is_there != present[0]) {
        return Err("segment_ids, segment_embedding, its scale and its zero point must all be \
                    present or absent"
            .to_string());
    }
    let mut lines = Lines::new(cx, "gamma_quant");
    let mut dequantize = |value: &'static str, scale: &'static str, zero: Given, into: &str| {
        lines.dequantize(Codes { value, scale, zero }, into);
    };
    dequantize("gamma_quant", "gamma_scale", (16, "gamma_zero_point"), "gamma");
    dequantize("beta_quant", "beta_scale", (17, "beta_zero_point"), "beta");
    lines.line(format_args!(
        "{}word_codes = Gather (word_embedding_quant, input_ids)",
        first_positions("position_embedding_quant", "position_codes")
    ));
    let words = Codes {
        value: "word_codes",
        scale: "word_embedding_scale",
        zero: (13, "word_embedding_zero_point"),
    };
    let positions = Codes {
        value: "position_codes",
        scale: "position_embedding_scale",
        zero: (14, "position_embedding_zero_point"),
    };
    lines.dequantize(words, "words");
    lines.dequantize(positions, "positions");
    let mut sum = "at_positions";
    lines.line(format_args!("at_positions = Add (words, positions)"));
    if present[0] {
        lines.line(format_args!("segment_codes = Gather (segment_embedding, segment_ids)"));
        let segments = Codes {
            value: "segment_codes",
            scale: "segment_embedding_scale",
            zero: (15, "segment_embedding_zero_point"),
        };
        lines.dequantize(segments, "segments");
        lines.line(format_args!("sum = Add (at_positions, segments)"));
        sum = "sum";
    }
    lines.line(format_args!(
        "layernorm_out = LayerNormalization <epsilon: float = @epsilon> ({sum}, gamma, beta)"
    ));
    let index = mask_index(cx.has_input(7), "mask_index_out");
    lines.line(format_args!("{index}"));
    Ok(lines.finish())
}
