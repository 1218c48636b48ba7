//! MatMulNBits: product with a matrix of few bits.
//!
//! Constant weights are packed once and stay in their bits. Where the model or the session lets
//! left operands be rounded (`accuracy_level` 4, `Precision::Fast`), their blocks become bytes and
//! sums over a block integers. Other weights, and those whose zero points are not codes, are
//! dequantized some columns at a time in each run, so that memory does not grow with their number.

use sardonyx_kernels::Isa;
use sardonyx_kernels::gemm::{
    Bias, Epilogue, FewBits, Lhs, MatRef, Rhs, gemm, gemm_few_bits, gemm_few_bits_in_bytes,
    gemm_few_bits_in_bytes_scratch, gemm_few_bits_scratch, gemm_scratch,
};
use sardonyx_kernels::quantized::{Columns, Zeros};
use sardonyx_tensor::{DataType, Dims, TensorView};

use super::codes::codes;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Ending, Kernel, Selected, Site};
use crate::ops::narrow::{narrow, numbers};
use crate::precision::{Precision, count_multiply_adds};
use crate::program::{
    self, CodeOrder, Op, Product, ProductForm, ProductTypes, Quantized, QuantizedLayout,
};
use crate::weights::Packed;

const A: usize = 0;
const B: usize = 1;
const SCALES: usize = 2;
const ZEROS: usize = 3;
const GROUPS: usize = 4;
const BIAS: usize = 5;

/// Limit: floats that columns are dequantized to at a time. They stay in a cache during the
/// product, and scratch memory does not grow with the matrix.
const MOST_FLOATS: usize = 1 << 18;

/// Value: `accuracy_level` of left operands in 8 bits.
const LEVEL_OF_BYTES: i64 = 4;

/// Lowers `MatMulNBits`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let size = |name: &str| {
        let given = site.need_int(name)?;
        let size = usize::try_from(given).ok().filter(|size| *size > 0);
        size.ok_or_else(|| BindError::Invalid(format!("attribute '{name}' is {given}")))
    };
    let elem = site.elem(A)?;
    if !matches!(elem, DataType::Float | DataType::Float16 | DataType::Bfloat16) {
        return site.unsupported_type(elem);
    }
    if site.int("weight_prepacked").unwrap_or(0) != 0 {
        return Err(BindError::Unsupported(
            "weights were packed for one kind of device (weight_prepacked); use the original model, \
             or quantize it again without packing"
                .to_string(),
        ));
    }
    let bits = size("bits")?;
    if ![2, 4, 8].contains(&bits) {
        return Err(BindError::Invalid(format!("attribute 'bits' is {bits}, not 2, 4 or 8")));
    }
    let block = size("block_size")?;
    if !(block * bits).is_multiple_of(8) {
        return Err(BindError::Invalid(format!(
            "a block of {block} elements of {bits} bits ends within a byte"
        )));
    }
    let slot = |index: usize| site.has_input(index).then(|| site.slot(index)).transpose();
    let quantized = Quantized {
        scales: site.slot(SCALES)?,
        zeros: slot(ZEROS)?,
        groups: slot(GROUPS)?,
        bias: slot(BIAS)?,
        layout: QuantizedLayout {
            depth: size("K")?,
            cols: size("N")?,
            bits,
            signed: false,
            block,
            order: CodeOrder::Columns,
        },
        allows_bytes: site.int("accuracy_level") == Some(LEVEL_OF_BYTES),
    };
    Ok(Op::Product(Box::new(Product {
        form: ProductForm::MatMul,
        types: ProductTypes { a: elem, b: site.elem(B)?, sum: DataType::Float, result: elem },
        a: site.slot(A)?,
        b: site.slot(B)?,
        a_zero_point: None,
        b_zero_point: None,
        trans_a: false,
        trans_b: false,
        alpha: 1.0,
        factors: None,
        quantized: Some(Box::new(quantized)),
        addend: None,
        epilogue: program::Epilogue::default(),
    })))
}

/// Selects the kernel of a product with a matrix of few bits.
pub(crate) fn select(
    site: &Site<'_>,
    product: &Product,
    quantized: &Quantized,
) -> Result<Selected, BindError> {
    let packed = site.pack_few_bits(quantized.layout);
    if packed.is_none() && quantized.layout.order != CodeOrder::Columns {
        // A rewrite has made it of constants that fit.
        return Err(BindError::Unsupported("the weights cannot be packed in few bits".to_string()));
    }
    let is_packed = packed.is_some();
    let QuantizedLayout { depth, cols, .. } = quantized.layout;
    let is_small = count_multiply_adds(site.shape(A), [depth, cols]) <= site.exact_up_to;
    let may_round = site.precision == Precision::Fast && !is_small;
    let given = [B, SCALES, ZEROS, GROUPS].into_iter().filter(|index| site.has_input(*index));
    let kernel = MatMulNBits {
        elem: product.types.a,
        layout: quantized.layout,
        packed,
        in_bytes: is_packed && (quantized.allows_bytes || may_round),
        ending: Ending::new(&product.epilogue, BIAS + 1),
        isa: site.isa,
    };
    Ok(Selected::new(kernel).with_packed(given.filter(|_| is_packed)))
}

struct MatMulNBits {
    elem: DataType,
    layout: QuantizedLayout,
    packed: Option<Packed<FewBits>>,
    /// Whether rows of A become bytes.
    in_bytes: bool,
    ending: Ending,
    isa: Isa,
}

/// Sizes of the left operand.
struct Left<'a> {
    elements: &'a [f32],
    rows: usize,
}

impl MatMulNBits {
    /// Returns the zero points of all blocks.
    fn zeros<'a>(
        &self,
        view: Option<&TensorView<'a>>,
        made: Option<&'a [f32]>,
    ) -> Result<Zeros<'a>, KernelError> {
        let QuantizedLayout { depth, cols, bits, block, .. } = self.layout;
        let blocks = depth.div_ceil(block);
        if let Some(numbers) = made {
            if numbers.len() != cols * blocks {
                fail!("{} zero points for {} blocks", numbers.len(), cols * blocks);
            }
            return Ok(Zeros::Floats(numbers));
        }
        let Some(view) = view else {
            return Ok(Zeros::One((1 << (bits - 1)) as f32));
        };
        let codes = codes(view, bits)?;
        let bytes = cols * (blocks * bits).div_ceil(8);
        if codes.bytes.len() != bytes {
            fail!("zero points have {} bytes, not {bytes}", codes.bytes.len());
        }
        Ok(Zeros::Rows(codes))
    }

    /// Returns the block of each row, if they are given.
    fn groups<'a>(&self, call: &Call<'a>) -> Result<&'a [i32], KernelError> {
        if call.maybe_tensor(GROUPS)?.is_none() {
            return Ok(&[]);
        }
        let QuantizedLayout { depth, block, .. } = self.layout;
        let blocks = depth.div_ceil(block);
        let groups = call.slice::<i32>(GROUPS)?;
        let Some(groups) = groups.get(..depth) else {
            fail!("g_idx has {} elements, but K is {depth}", groups.len());
        };
        let is_block = |group: &i32| usize::try_from(*group).is_ok_and(|group| group < blocks);
        if let Some(other) = groups.iter().find(|group| !is_block(group)) {
            fail!("g_idx has {other}, but there are {blocks} blocks");
        }
        Ok(groups)
    }

    /// Computes the product with columns that are dequantized for it.
    fn multiply_by_columns(
        &self,
        call: &Call<'_>,
        a: &Left<'_>,
        epilogue: &Epilogue<'_>,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let QuantizedLayout { depth, cols, bits, block, .. } = self.layout;
        let blocks = depth.div_ceil(block);
        let b = codes(call.tensor(B)?, bits)?;
        let bytes = cols * blocks * (block * bits / 8);
        if b.bytes.len() != bytes {
            fail!(
                "B has {} bytes, but {cols} columns of {blocks} blocks need {bytes}",
                b.bytes.len()
            );
        }
        let scales = numbers(call, SCALES)?;
        if scales.len() != cols * blocks {
            fail!("{} scales for {} blocks", scales.len(), cols * blocks);
        }
        let given = call.maybe_tensor(ZEROS)?;
        let made = match given.map(TensorView::data_type) {
            None | Some(DataType::Uint8) => None,
            Some(_) => Some(numbers(call, ZEROS)?),
        };
        let zeros = self.zeros(given, made.as_deref())?;
        let groups = self.groups(call)?;
        let columns = Columns { codes: b, depth, block, scales: &scales, zeros, groups };
        let step = (MOST_FLOATS / depth).clamp(1, cols);
        let mut some = call.scratch::<f32>(step * depth)?;
        let left = Lhs::Plain(MatRef::row_major(a.elements, a.rows, depth));
        call.reserve(gemm_scratch(
            call.exec,
            &left,
            &Rhs::Plain(MatRef::col_major(&some, depth, step)),
        ))?;
        for first in (0..cols).step_by(step) {
            let count = step.min(cols - first);
            let some = &mut some[..count * depth];
            columns.dequantize(call.exec, first, some)?;
            let bias = match epilogue.bias {
                Some(Bias::Col(bias)) => Some(Bias::Col(&bias[first..first + count])),
                other => other,
            };
            let [residual, factor] = [epilogue.residual, epilogue.factor]
                .map(|operand| operand.map(|operand| &operand[first..]));
            let epilogue = Epilogue { bias, residual, factor, ..*epilogue };
            let right = Rhs::Plain(MatRef::col_major(some, depth, count));
            gemm(call.exec, left, right, &mut y[first..], cols, &epilogue)?;
        }
        Ok(())
    }
}

impl Kernel for MatMulNBits {
    fn describe(&self) -> String {
        let QuantizedLayout { bits, block, .. } = self.layout;
        let form = if self.packed.is_some() { "packed B" } else { "B, widened by columns," };
        let left = if self.in_bytes { ", A in 8 bits" } else { "" };
        format!("{form} of {bits} bits in blocks of {block}{left}, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let QuantizedLayout { depth, cols, .. } = self.layout;
        let mut dims: Dims = call.tensor(A)?.dims().into();
        let Some(last) = dims.last_mut() else {
            fail!("A is a scalar");
        };
        if *last != depth {
            fail!("rows of A have {last} elements, but K is {depth}");
        }
        *last = cols;
        let rows: usize = dims[..dims.len() - 1].iter().product();
        let elements = numbers(call, A)?;
        let a = Left { elements: &elements, rows };
        let bias = call.maybe_tensor(BIAS)?.map(|_| numbers(call, BIAS)).transpose()?;
        if let Some(bias) = bias.as_deref().filter(|bias| bias.len() != cols) {
            fail!("the bias has {} elements, not {cols}", bias.len());
        }
        let mut epilogue = self.ending.epilogue(call, rows * cols, cols, Bias::Col)?;
        if let Some(bias) = &bias {
            epilogue.bias = Some(Bias::Col(bias));
        }
        let Some(packed) = &self.packed else {
            let mut y = call.scratch::<f32>(rows * cols)?;
            if rows > 0 {
                self.multiply_by_columns(call, &a, &epilogue, &mut y)?;
            }
            return narrow(call, 0, self.elem, &dims, &y);
        };
        let (b, exec) = (packed.get()?, call.exec);
        let left = MatRef::row_major(a.elements, rows, depth);
        let scratch = if self.in_bytes {
            gemm_few_bits_in_bytes_scratch(&left, b)
        } else {
            gemm_few_bits_scratch(exec, &left, b)
        };
        call.reserve(scratch)?;
        let multiply = if self.in_bytes { gemm_few_bits_in_bytes } else { gemm_few_bits };
        if self.elem == DataType::Float {
            let y = call.output_slice::<f32>(0, &dims)?;
            multiply(exec, left, b, y, cols, &epilogue)?;
            return Ok(());
        }
        let mut y = call.scratch::<f32>(rows * cols)?;
        multiply(exec, left, b, &mut y, cols, &epilogue)?;
        narrow(call, 0, self.elem, &dims, &y)
    }
}

#[cfg(test)]
mod tests {
    use half::f16;
    use sardonyx_ops::AttrValue;
    use sardonyx_tensor::{CastOptions, Tensor, cast};

    use super::*;
    use crate::ops::testing::{run_with_constants, tensor};

    const OPERATOR: &str = "com.microsoft.MatMulNBits";

    /// Inputs of a node by position, and what its output is in double precision.
    struct Example {
        inputs: [Option<Tensor>; 6],
        attributes: Vec<(&'static str, AttrValue<'static>)>,
        expected: Vec<f64>,
    }

    /// Set of optional inputs.
    #[derive(Clone, Copy, Debug, Default)]
    struct Given {
        zeros: bool,
        float_zeros: bool,
        groups: Option<fn(usize) -> i32>,
        bias: bool,
    }

    /// Sizes of a product, in elements.
    #[derive(Clone, Copy, Debug)]
    struct ProductSizes {
        rows: usize,
        depth: usize,
        cols: usize,
        block: usize,
    }

    impl Example {
        fn with_groups(groups: Option<fn(usize) -> i32>) -> Example {
            let sizes = ProductSizes { rows: 2, depth: 64, cols: 3, block: 32 };
            Example::new(4, sizes, Given { groups, ..Given::default() })
        }

        fn new(bits: usize, sizes: ProductSizes, given: Given) -> Example {
            let ProductSizes { rows, depth, cols, block } = sizes;
            let blocks = depth.div_ceil(block);
            let noise = |at: usize, salt: usize| ((at + salt) * 7919 % 613) as f32 / 306.0 - 1.0;
            let numbers = |count: usize, salt: usize| -> Vec<f32> {
                (0..count).map(|at| noise(at, salt)).collect()
            };
            let a = numbers(rows * depth, 1);
            let b: Vec<u8> =
                (0..cols * blocks * block * bits / 8).map(|at| (at * 89 % 257) as u8).collect();
            let scales = numbers(cols * blocks, 2);
            let row = (blocks * bits).div_ceil(8);
            let zeros: Vec<u8> = (0..cols * row).map(|at| (at * 53 % 251) as u8).collect();
            let float_zeros = numbers(cols * blocks, 3);
            let bias = numbers(cols, 4);
            let groups: Vec<i32> = (0..depth)
                .map(|at| given.groups.map_or((at / block) as i32, |of| of(at)))
                .collect();
            let code = |bytes: &[u8], at: usize| {
                let mask = (1u32 << bits) - 1;
                f64::from(u32::from(bytes[at * bits / 8]) >> (at * bits % 8) & mask)
            };
            let mut expected = Vec::new();
            for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
                let terms = (0..depth).map(|k| {
                    let group = groups[k] as usize;
                    let zero = if given.float_zeros {
                        f64::from(float_zeros[j * blocks + group])
                    } else if given.zeros {
                        code(&zeros[j * row..], group)
                    } else {
                        f64::from(1 << (bits - 1))
                    };
                    let number = code(&b, j * blocks * block + k) - zero;
                    f64::from(a[i * depth + k]) * number * f64::from(scales[j * blocks + group])
                });
                let bias = if given.bias { f64::from(bias[j]) } else { 0.0 };
                expected.push(terms.sum::<f64>() + bias);
            }
            let int = |x: usize| AttrValue::Int(x as i64);
            let zeros = if given.float_zeros {
                Some(tensor(&[cols * blocks], &float_zeros))
            } else {
                given.zeros.then(|| tensor(&[cols * row], &zeros))
            };
            Example {
                inputs: [
                    Some(tensor(&[rows, depth], &a)),
                    Some(tensor(&[cols, blocks, block * bits / 8], &b)),
                    Some(tensor(&[cols * blocks], &scales)),
                    zeros,
                    given.groups.map(|_| tensor(&[depth], &groups)),
                    given.bias.then(|| tensor(&[cols], &bias)),
                ],
                attributes: vec![
                    ("K", int(depth)),
                    ("N", int(cols)),
                    ("bits", int(bits)),
                    ("block_size", int(block)),
                ],
                expected,
            }
        }

        fn run(&self, constants: &[usize]) -> Result<Vec<f32>, String> {
            let inputs: Vec<Option<&Tensor>> = self.inputs.iter().map(Option::as_ref).collect();
            let found = run_with_constants(OPERATOR, &self.attributes, &inputs, constants, 1)?;
            let found = cast(&found[0], DataType::Float, CastOptions::default()).unwrap();
            Ok(found.to_vec::<f32>().unwrap())
        }

        fn demand_close(&self, found: &[f32], what: &str) {
            assert_eq!(found.len(), self.expected.len(), "{what}");
            for (found, expected) in found.iter().zip(&self.expected) {
                let error = (f64::from(*found) - expected).abs();
                assert!(
                    error <= 2e-4 * expected.abs().max(100.0) / 100.0,
                    "{what}: {found} {expected}"
                );
            }
        }
    }

    /// Checks packed weights, and those that are inputs, for all bits and inputs.
    #[test]
    fn all_bits_and_inputs() {
        let all = [
            Given::default(),
            Given { zeros: true, ..Given::default() },
            Given { zeros: true, bias: true, ..Given::default() },
            Given { float_zeros: true, ..Given::default() },
            // Blocks of rows that are not adjacent, whole and of other lengths.
            Given { zeros: true, groups: Some(|k| (k % 3) as i32), ..Given::default() },
            Given { groups: Some(|k| (k % 2) as i32), bias: true, ..Given::default() },
        ];
        for bits in [2, 4, 8] {
            for (rows, given) in [1, 3, 20].into_iter().flat_map(|rows| all.map(|all| (rows, all)))
            {
                let sizes = ProductSizes { rows, depth: 96, cols: 37, block: 32 };
                let example = Example::new(bits, sizes, given);
                for constants in [&[][..], &[1, 2, 3, 4], &[1, 2, 3, 4, 5], &[1, 2]] {
                    let found = example.run(constants).unwrap();
                    example.demand_close(&found, &format!("{bits} {rows} {given:?} {constants:?}"));
                }
            }
        }
    }

    /// Checks that `accuracy_level` 4 rounds left operands, by at most a 254th of the largest of
    /// their block, and that the other levels do not.
    #[test]
    fn accuracy_levels() {
        for (bits, rows) in [2, 4, 8].into_iter().flat_map(|bits| [(bits, 1), (bits, 20)]) {
            let sizes = ProductSizes { rows, depth: 96, cols: 37, block: 32 };
            let given = Given { zeros: true, bias: true, ..Given::default() };
            let mut example = Example::new(bits, sizes, given);
            let exact = example.run(&[1, 2, 3]).unwrap();
            for level in 0..=3 {
                example.attributes.push(("accuracy_level", AttrValue::Int(level)));
                assert_eq!(example.run(&[1, 2, 3]).unwrap(), exact, "{bits} {level}");
                example.attributes.pop();
            }
            example.attributes.push(("accuracy_level", AttrValue::Int(4)));
            let rounded = example.run(&[1, 2, 3]).unwrap();
            assert_ne!(rounded, exact, "{bits}");
            // Elements of A and scales are at most 1, and codes less zero points below 2^bits.
            let allowed = (96 << bits) as f64 / 254.0 + 1e-3;
            for (found, expected) in rounded.iter().zip(&example.expected) {
                let error = (f64::from(*found) - expected).abs();
                assert!(error <= allowed, "{bits}: {found}, not {expected}");
            }
            // Weights that are not packed are widened to floats.
            example.demand_close(&example.run(&[]).unwrap(), "not constant");
        }
    }

    #[test]
    fn blocks_that_do_not_divide_columns() {
        for (rows, depth) in [(1, 70), (2, 33), (30, 5)] {
            let sizes = ProductSizes { rows, depth, cols: 19, block: 16 };
            let example = Example::new(4, sizes, Given::default());
            for constants in [&[][..], &[1, 2]] {
                let found = example.run(constants).unwrap();
                example.demand_close(&found, &format!("{rows} {depth} {constants:?}"));
            }
        }
    }

    #[test]
    fn halves() {
        let sizes = ProductSizes { rows: 2, depth: 64, cols: 9, block: 32 };
        let mut example = Example::new(4, sizes, Given { bias: true, ..Given::default() });
        for index in [0, 2, 5] {
            let input = example.inputs[index].as_ref().unwrap();
            let half = cast(input, DataType::Float16, CastOptions::default()).unwrap();
            example.inputs[index] = Some(half);
        }
        let packed = example.run(&[1, 2, 5]).unwrap();
        for (found, expected) in packed.iter().zip(&example.expected) {
            assert!((f64::from(*found) - expected).abs() < 0.5, "{found} {expected}");
            assert_eq!(f16::from_f32(*found).to_f32(), *found);
        }
        assert_eq!(example.run(&[]).unwrap(), packed);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cases: [(Option<fn(usize) -> i32>, usize, Tensor, &str); 4] = [
            (
                Some(|k| (k % 2) as i32),
                4,
                tensor(&[64], &[2i32; 64]),
                "g_idx has 2, but there are 2 blocks",
            ),
            (
                Some(|k| (k % 2) as i32),
                4,
                tensor(&[3], &[0i32; 3]),
                "g_idx has 3 elements, but K is 64",
            ),
            (
                None,
                1,
                tensor(&[3, 2, 8], &[0u8; 48]),
                "B has 48 bytes, but 3 columns of 2 blocks need 96",
            ),
            (None, 5, tensor(&[2], &[0f32; 2]), "the bias has 2 elements, not 3"),
        ];
        for (groups, index, input, why) in cases {
            let mut example = Example::with_groups(groups);
            example.inputs[index] = Some(input);
            for constants in [&[][..], &[1, 2, 4, 5]] {
                let error = example.run(constants).unwrap_err();
                assert!(error.contains(why), "{error}");
            }
        }
        let mut packed = Example::with_groups(None);
        packed.attributes.push(("weight_prepacked", AttrValue::Int(1)));
        let error = packed.run(&[]).unwrap_err();
        assert!(error.contains("use the original model, or quantize it again"), "{error}");
    }
}
