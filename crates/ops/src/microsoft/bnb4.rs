//! `MatMulBnb4`: a product with 4-bit weights that index the levels of a table, in blocks with one
//! scale each, as the library bitsandbytes stores them.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Float, Float16, Uint8};

use super::DOMAIN;
use super::packed::unpack;
use crate::def::OpDef;
use crate::facts::{input, int, output, types};
use crate::function::{Expand, FLOAT, vector};
use crate::infer::{Infer, InferError};
use crate::typeset::TypeSet;

pub(crate) static MATMUL_BNB4: OpDef = OpDef::new("MatMulBnb4")
    .domain(DOMAIN)
    .about(
        "`MatMul` with a right matrix of 4-bit floats (FP4) or levels of a normal distribution (NF4). \
         `B` holds the `N` rows of `K` weights one after the other, two in a byte. They are divided \
         into blocks of `block_size`, each with a scale.",
    )
    .since(
        1,
        &[
            input("A", "T1"),
            input("B", "T2"),
            input("absmax", "T1"),
            output("Y", "T1"),
            int("K").required(),
            int("N").required(),
            int("block_size").required(),
            int("quant_type").required(),
            int("training_mode").or(0),
            int("transB").or(1),
            types("T1", TypeSet::tensors(&[Float, Float16, Bfloat16])),
            types("T2", TypeSet::tensors(&[Uint8])),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .cost(|node| {
        let summed = if node.cx.int("transB")? != 0 { "K" } else { "N" };
        Some(node.output_elements()?.mul(&Dim::Known(node.cx.int(summed)?)))
    });

/// Magnitudes of 4-bit floats in units of 1/192, by their three lower bits; the highest bit is the
/// sign.
const FLOAT_UNITS: [f32; 8] = [0.0, 1.0, 128.0, 192.0, 64.0, 96.0, 32.0, 48.0];

/// Quantiles of a normal distribution, scaled to [-1, 1]: the data type NF4 of Dettmers et al.,
/// "QLoRA: Efficient Finetuning of Quantized LLMs" (2023).
const NORMAL_LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

fn levels(kind: Option<i64>) -> Result<Vec<f32>, String> {
    match kind {
        Some(0) => {
            let magnitudes = FLOAT_UNITS.map(|units| units / 192.0);
            Ok(magnitudes.into_iter().chain(magnitudes.map(|magnitude| -magnitude)).collect())
        }
        Some(1) => Ok(NORMAL_LEVELS.to_vec()),
        Some(kind) => Err(format!("quant_type must be 0 (FP4) or 1 (NF4), not {kind}")),
        None => Err("attribute 'quant_type' is missing".to_string()),
    }
}

/// Returns the sizes of the matrix that `B` holds.
fn sizes(cx: &Infer<'_>) -> Result<[i64; 2], InferError> {
    match ["N", "K"].map(|name| cx.int(name)) {
        [Some(rows @ 1..), Some(columns @ 1..)] => Ok([rows, columns]),
        [Some(rows), Some(columns)] => {
            cx.fail(format_args!("N and K must be positive, not {rows} and {columns}"))
        }
        _ => cx.fail("attributes 'K' and 'N' are missing"),
    }
}

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let [rows, columns] = sizes(cx)?;
    let is_transposed = cx.int("transB").unwrap_or(1) != 0;
    let (depth, width) = if is_transposed { (columns, rows) } else { (rows, columns) };
    let Some(shape) = cx.shape(0) else {
        cx.set_tensor(0, cx.elem(0), None);
        return Ok(());
    };
    let [batch @ .., inner] = &shape[..] else {
        return cx.fail("input 0 must not be a scalar");
    };
    cx.same_dim(inner, &Dim::Known(depth), "the last size of A and the rows of the right matrix")?;
    let shape: Shape = batch.iter().cloned().chain([Dim::Known(width)]).collect();
    cx.set_tensor(0, cx.elem(0), Some(shape));
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    let levels = levels(cx.int("quant_type"))?;
    let (rows, columns) = match ["N", "K"].map(|name| cx.int(name)) {
        [Some(rows @ 1..), Some(columns @ 1..)] => (rows, columns),
        _ => return Err("attributes 'K' and 'N' must be positive".to_string()),
    };
    let block = match cx.int("block_size") {
        Some(block @ 1..) => block,
        _ => return Err("attribute 'block_size' must be positive".to_string()),
    };
    let count = rows.checked_mul(columns).ok_or("K times N overflows 64 bits")?;
    let levels: Vec<String> = levels.iter().map(|level| format!("{level:?}")).collect();
    // Crops the padding that fills the last byte and the last block.
    let blocks = count / block + i64::from(count % block != 0);
    let missing = blocks.checked_mul(block).ok_or("K times N overflows 64 bits")? - count;
    let mut text = format!(
        "{flat}bytes = Reshape (B, flat)
        {codes}{start}{count}weight_codes = Slice (codes, start, count, start)
        places = Cast <to = 6> (weight_codes)
        levels = Constant <value = float[16] {{{levels}}}> ()
        level_list = Gather (levels, places)\n",
        flat = vector("flat", &[-1]),
        codes = unpack("bytes", 4, true, "codes"),
        start = vector("start", &[0]),
        count = vector("count", &[count]),
        levels = levels.join(", "),
    );
    let mut list = "level_list";
    if missing > 0 {
        text += &vector("pads", &[0, missing]);
        text += "padded = Pad (level_list, pads)\n";
        list = "padded";
    }
    text += &format!(
        "{block_sizes}{column}{matrix}in_blocks = Reshape ({list}, block_sizes)
        scale_column = Reshape (absmax, column)
        scales = Cast <to = {FLOAT}> (scale_column)
        scaled = Mul (in_blocks, scales)
        scaled_list = Reshape (scaled, flat)
        weight_list = Slice (scaled_list, start, count, start)
        matrix = Reshape (weight_list, matrix_sizes)
        weights = CastLike (matrix, A)\n",
        block_sizes = vector("block_sizes", &[blocks, block]),
        column = vector("column", &[blocks, 1]),
        matrix = vector("matrix_sizes", &[rows, columns]),
    );
    text += if cx.int("transB").unwrap_or(1) != 0 {
        "columns = Transpose <perm = [1, 0]> (weights)
        Y = MatMul (A, columns)"
    } else {
        "Y = MatMul (A, weights)"
    };
    Ok(text)
}
