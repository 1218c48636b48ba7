//! MatMulNBits: product with a matrix of few bits. Dequantizes some columns at a time, so that
//! memory does not grow with their number.

use sardonyx_kernels::gemm::{Bias, Epilogue, Lhs, MatRef, Rhs, gemm, gemm_scratch};
use sardonyx_kernels::quantized::{Columns, Zeros};
use sardonyx_tensor::{DataType, Dims, TensorView};

use super::codes::codes;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::narrow::{narrow, numbers};

const A: usize = 0;
const B: usize = 1;
const SCALES: usize = 2;
const ZEROS: usize = 3;
const GROUPS: usize = 4;
const BIAS: usize = 5;

/// Limit: floats that columns are dequantized to at a time. They stay in a cache during the
/// product, and scratch memory does not grow with the matrix.
const MOST_FLOATS: usize = 1 << 18;

/// Binds `MatMulNBits`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let size = |name: &str| {
        let given = site.need_int(name)?;
        let size = usize::try_from(given).ok().filter(|size| *size > 0);
        size.ok_or_else(|| BindError::Invalid(format!("attribute '{name}' is {given}")))
    };
    let unsupported = |why: &str| Err(BindError::Unsupported(why.to_string()));
    let elem = site.elem(A)?;
    if !matches!(elem, DataType::Float | DataType::Float16 | DataType::Bfloat16) {
        return site.unsupported_type(elem);
    }
    if site.has_input(GROUPS) {
        return unsupported("g_idx is not supported");
    }
    if site.int("weight_prepacked").unwrap_or(0) != 0 {
        return unsupported("weights packed for a device are not supported (weight_prepacked)");
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
    Ok(Box::new(MatMulNBits { elem, depth: size("K")?, cols: size("N")?, bits, block }))
}

struct MatMulNBits {
    elem: DataType,
    depth: usize,
    cols: usize,
    bits: usize,
    /// Number of elements of a block.
    block: usize,
}

impl MatMulNBits {
    /// Returns the zero points of all blocks.
    fn zeros<'a>(
        &self,
        view: Option<&TensorView<'a>>,
        made: Option<&'a [f32]>,
    ) -> Result<Zeros<'a>, KernelError> {
        let blocks = self.depth.div_ceil(self.block);
        if let Some(numbers) = made {
            if numbers.len() != self.cols * blocks {
                fail!("{} zero points for {} blocks", numbers.len(), self.cols * blocks);
            }
            return Ok(Zeros::Floats(numbers));
        }
        let Some(view) = view else {
            return Ok(Zeros::One((1 << (self.bits - 1)) as f32));
        };
        let codes = codes(view, self.bits)?;
        let bytes = self.cols * (blocks * self.bits).div_ceil(8);
        if codes.bytes.len() != bytes {
            fail!("zero points have {} bytes, not {bytes}", codes.bytes.len());
        }
        Ok(Zeros::Rows(codes))
    }

    /// Computes the product in floats.
    fn product(
        &self,
        call: &Call<'_>,
        a: &[f32],
        rows: usize,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let (depth, cols) = (self.depth, self.cols);
        let blocks = depth.div_ceil(self.block);
        let b = codes(call.tensor(B)?, self.bits)?;
        let bytes = cols * blocks * (self.block * self.bits / 8);
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
        let bias = call.maybe_tensor(BIAS)?.map(|_| numbers(call, BIAS)).transpose()?;
        let bias = bias.as_deref();
        if let Some(bias) = bias.filter(|bias| bias.len() != cols) {
            fail!("the bias has {} elements, not {cols}", bias.len());
        }
        let columns = Columns { codes: b, depth, block: self.block, scales: &scales, zeros };
        let step = (MOST_FLOATS / depth).clamp(1, cols);
        let mut some = call.scratch::<f32>(step * depth)?;
        let a = Lhs::Plain(MatRef::row_major(a, rows, depth));
        call.reserve(gemm_scratch(
            call.exec,
            &a,
            &Rhs::Plain(MatRef::col_major(&some, depth, step)),
        ))?;
        for first in (0..cols).step_by(step) {
            let count = step.min(cols - first);
            let some = &mut some[..count * depth];
            columns.dequantize(call.exec, first, some)?;
            let bias = bias.map(|bias| Bias::Col(&bias[first..first + count]));
            let epilogue = Epilogue { bias, ..Epilogue::default() };
            let right = Rhs::Plain(MatRef::col_major(some, depth, count));
            gemm(call.exec, a, right, &mut y[first..], cols, &epilogue)?;
        }
        Ok(())
    }
}

impl Kernel for MatMulNBits {
    fn describe(&self) -> String {
        format!("{} bits in blocks of {}, by columns", self.bits, self.block)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let mut dims: Dims = call.tensor(A)?.dims().into();
        let Some(last) = dims.last_mut() else {
            fail!("A is a scalar");
        };
        if *last != self.depth {
            fail!("rows of A have {last} elements, but K is {}", self.depth);
        }
        *last = self.cols;
        let rows: usize = dims[..dims.len() - 1].iter().product();
        let a = numbers(call, A)?;
        let mut y = call.scratch::<f32>(rows * self.cols)?;
        if rows > 0 {
            self.product(call, &a, rows, &mut y)?;
        }
        narrow(call, 0, self.elem, &dims, &y)
    }
}
