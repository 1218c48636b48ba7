//! Weights in few bits: a product whose right operand is dequantized from a constant reads the
//! constant itself, with its scales and zero points, and so does a look-up of rows. Both share one
//! packed form.
//!
//! Dequantizing ahead of time would make four to sixteen times the bytes, all of which a product of
//! few rows waits for.

use sardonyx_tensor::DataType;
use sardonyx_tensor::shape::normalize_axis;

use super::Note;
use crate::program::{
    CodeOrder, CodeScales, Dequantize, GatherCodes, MoveKind, Op, Product, ProductForm, Program,
    Quantized, QuantizedLayout, Slot,
};

/// Replaces dequantized right operands of products, and tables of look-ups. The steps that
/// dequantize may be dead afterwards.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    let mut notes = Vec::new();
    // Step that dequantizes each slot.
    let mut makers: Vec<Option<usize>> = vec![None; program.values.len()];
    for (index, step) in program.steps.iter().enumerate() {
        if let (Op::Dequantize(_), Some(Some(output))) = (&step.op, step.outputs.first()) {
            makers[output.index()] = Some(index);
        }
    }
    gather(program, &makers, &mut notes);
    for index in 0..program.steps.len() {
        let Op::Product(product) = &program.steps[index].op else { continue };
        let Some(maker) = makers[product.b.index()] else { continue };
        let (step, dequantizing) = (&program.steps[index], &program.steps[maker]);
        let Op::Dequantize(dequantize) = &dequantizing.op else { continue };
        let quantized = match quantize(program, product, dequantize) {
            Ok(quantized) => quantized,
            Err(why) => {
                notes.push(Note::near_miss(step, dequantizing, why));
                continue;
            }
        };
        notes.push(Note::fused(step, dequantizing));
        let x = dequantize.x;
        let elem = program.elem(x);
        if let (Op::Product(product), Some(elem)) = (&mut program.steps[index].op, elem) {
            product.b = x;
            product.types.b = elem;
            product.form = ProductForm::MatMul;
            product.trans_b = false;
            product.addend = None;
            product.quantized = Some(Box::new(quantized));
        }
    }
    tie(program);
    notes
}

/// Replaces look-ups of rows in dequantized tables.
fn gather(program: &mut Program, makers: &[Option<usize>], notes: &mut Vec<Note>) {
    for index in 0..program.steps.len() {
        let step = &program.steps[index];
        let Op::Move(moved) = &step.op else { continue };
        let (MoveKind::Gather(gather), [Some(table), Some(indices)]) =
            (&moved.kind, &moved.operands[..])
        else {
            continue;
        };
        let Some(maker) = makers[table.index()] else { continue };
        let dequantizing = &program.steps[maker];
        let Op::Dequantize(dequantize) = &dequantizing.op else { continue };
        let found = match program.elem(*table) {
            _ if normalize_axis(gather.axis, 2) != Ok(0) => Err("the axis is not the first one"),
            None => Err("a type is not known"),
            Some(elem) => layout(program, dequantize, true).map(|layout| GatherCodes {
                table: dequantize.x,
                indices: *indices,
                scales: dequantize.scale,
                zeros: dequantize.zero,
                elem,
                layout,
                is_tied: false,
            }),
        };
        match found {
            Ok(gather) => {
                notes.push(Note::fused(step, dequantizing));
                program.steps[index].op = Op::GatherCodes(Box::new(gather));
            }
            Err(why) => notes.push(Note::near_miss(step, dequantizing, why)),
        }
    }
}

/// Marks tables of look-ups that products read in the same form.
fn tie(program: &mut Program) {
    let products = program.steps.iter().filter_map(|step| match &step.op {
        Op::Product(product) => {
            let Quantized { scales, zeros, layout, .. } = product.quantized.as_deref()?;
            Some((product.b, *scales, *zeros, *layout))
        }
        _ => None,
    });
    let products: Vec<_> = products.collect();
    for step in &mut program.steps {
        if let Op::GatherCodes(gather) = &mut step.op {
            let own = (gather.table, gather.scales, gather.zeros, gather.layout);
            gather.is_tied = products.contains(&own);
        }
    }
}

/// Returns how a product reads the operand of a dequantization, or the reason why it cannot.
fn quantize(
    program: &Program,
    product: &Product,
    dequantize: &Dequantize,
) -> Result<Quantized, &'static str> {
    let is_float =
        matches!(product.types.a, DataType::Float | DataType::Float16 | DataType::Bfloat16);
    if !is_float || product.quantized.is_some() {
        return Err("the product is not of floats");
    }
    let layout = layout(program, dequantize, product.trans_b)?;
    let bias = bias(program, product, layout.cols)?;
    let quantized = Quantized {
        scales: dequantize.scale,
        zeros: dequantize.zero,
        groups: None,
        bias,
        layout,
        allows_bytes: false,
    };
    Ok(quantized)
}

/// Returns the layout of a matrix that is dequantized, or of its transpose, as the right operand of
/// a product, or the reason why it has none.
fn layout(
    program: &Program,
    dequantize: &Dequantize,
    transposed: bool,
) -> Result<QuantizedLayout, &'static str> {
    let &Dequantize { x, scale, zero, axis, block } = dequantize;
    let all = [Some(x), Some(scale), zero];
    if !all.into_iter().flatten().all(|slot| program.is_constant(slot)) {
        return Err("weights, scales or zero points are not constant");
    }
    let (bits, signed) = match program.elem(x) {
        Some(DataType::Int8) => (8, true),
        Some(DataType::Uint8) => (8, false),
        Some(DataType::Int4) => (4, true),
        Some(DataType::Uint4) => (4, false),
        Some(DataType::Int2) => (2, true),
        Some(DataType::Uint2) => (2, false),
        _ => return Err("products have no form for weights of this type"),
    };
    let sizes = |slot: Slot| -> Option<Vec<usize>> {
        program.shape(slot)?.iter().map(|size| size.size()).collect()
    };
    let (Some(dims), Some(scales)) = (sizes(x), sizes(scale)) else {
        return Err("a shape is not known");
    };
    let &[rows, columns] = &dims[..] else { return Err("the weights are not a matrix") };
    let Ok(axis) = normalize_axis(axis, 2) else { return Err("the axis is not one of a matrix") };
    let [depth, cols] = if transposed { [columns, rows] } else { [rows, columns] };
    if depth == 0 || cols == 0 {
        return Err("the weights are empty");
    }
    let depth_axis = usize::from(transposed);
    let (block, form) = if scales.iter().product::<usize>() == 1 {
        (depth, CodeScales::One)
    } else if block == 0 {
        if axis == depth_axis {
            return Err("scales are along the rows of the product");
        }
        (depth, CodeScales::Columns)
    } else {
        if axis != depth_axis {
            return Err("blocks are along the columns of the product");
        }
        (block.min(depth), CodeScales::Blocks)
    };
    if block < 8 {
        return Err("blocks have fewer than 8 rows");
    }
    if zero.is_some_and(|zero| sizes(zero).is_none_or(|zeros| zeros != scales)) {
        return Err("zero points are not as many as scales");
    }
    let order = CodeOrder::Matrix { transposed, scales: form };
    Ok(QuantizedLayout { depth, cols, bits, signed, block, order })
}

/// Returns the summand of each column of a product, if that is all that `Gemm` does beside.
fn bias(program: &Program, product: &Product, cols: usize) -> Result<Option<Slot>, &'static str> {
    if product.trans_a || product.alpha != 1.0 {
        return Err("the left matrix is transposed or scaled");
    }
    let Some(addend) = product.addend else { return Ok(None) };
    let shape = program.shape(addend.c).ok_or("a shape is not known")?;
    let is_row = shape.last().and_then(|size| size.size()) == Some(cols)
        && shape.iter().rev().skip(1).all(|size| size.known() == Some(1));
    if addend.beta != 1.0 || !is_row {
        return Err("C is not a summand of each column");
    }
    Ok(Some(addend.c))
}
