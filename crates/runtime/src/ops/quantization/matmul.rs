//! QLinearMatMul: quantized product of quantized matrices. Bytes are multiplied exactly; small
//! floats are dequantized first.

use sardonyx_kernels::gemm::{
    ByteMatrix, ByteRhs, Bytes, Epilogue, Lhs, MatRef, Rhs, ZeroPoints, gemm, gemm_bytes,
    gemm_bytes_scratch, gemm_scratch,
};
use sardonyx_kernels::quantized::{Factors, Precision, Scaling, Spread};
use sardonyx_kernels::{CodeLoops, Isa, StoredLoops};
use sardonyx_tensor::{DataType, Element};

use super::linear::{FLOAT8, write_quantized};
use super::{bytes, is_byte, one_byte, one_number};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::ops::math::matmul::{OperandLayout, Shapes};
use crate::ops::math::matmul_integer::{Lines, PerLine};
use crate::ops::narrow::numbers;
use crate::right::Right;

const A: usize = 0;
const B: usize = 3;
const Y_SCALE: usize = 6;
const Y_ZERO: usize = 7;

/// Limit: sums that exist at a time if the right operand is packed.
const MOST_SUMS: usize = 1 << 18;

/// Binds `QLinearMatMul`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Selected, BindError> {
    let code_type = |input: usize| {
        let elem = site.elem(input)?;
        let is_known = is_byte(elem) || FLOAT8.contains(&elem);
        if is_known { Ok(elem) } else { site.unsupported_type(elem) }
    };
    let types = [code_type(A)?, code_type(B)?, code_type(Y_ZERO)?];
    let precision = match site.elem(A + 1)? {
        DataType::Float => Precision::Same,
        DataType::Float16 => Precision::F16,
        DataType::Bfloat16 => Precision::Bf16,
        other => return site.unsupported_type(other),
    };
    let is_exact = types.iter().all(|elem| is_byte(*elem));
    let packed = if is_exact { site.pack_right_of_bytes(B, false) } else { None };
    let position = packed.as_ref().map(|_| B);
    let kernel = QLinearMatMul { types, precision, is_exact, packed, isa: site.isa };
    Ok(Selected::new(kernel).with_packed(position))
}

struct QLinearMatMul {
    /// Types of both operands and the result.
    types: [DataType; 3],
    precision: Precision,
    /// Whether all of them are integers.
    is_exact: bool,
    packed: Option<Right<Bytes>>,
    isa: Isa,
}

/// Scales and zero points of an operand. Zero points are stored values or floats.
struct Parameters<'a, T> {
    scales: PerLine<'a, f32>,
    zeros: PerLine<'a, T>,
}

impl<'a, T> Parameters<'a, T> {
    fn new(
        call: &Call<'_>,
        operand: usize,
        scales: &'a [f32],
        zeros: &'a [T],
        shapes: &Shapes,
    ) -> Result<Self, KernelError> {
        let lines =
            if operand == A { Lines::Rows(shapes.rows) } else { Lines::Columns(shapes.cols) };
        let (scale_dims, zero_dims) =
            (call.tensor(operand + 1)?.dims(), call.tensor(operand + 2)?.dims());
        Ok(Parameters {
            scales: PerLine::new("scales", scales, scale_dims, lines, &shapes.batch)?,
            zeros: PerLine::new("zero points", zeros, zero_dims, lines, &shapes.batch)?,
        })
    }
}

impl QLinearMatMul {
    /// Multiplies integers exactly.
    fn run_exactly<T: CodeLoops + Element>(
        &self,
        call: &mut Call<'_>,
        shapes: &Shapes,
        y_zero: T,
    ) -> Result<(), KernelError> {
        let [a_type, b_type, _] = self.types;
        let (m, n, k) = (shapes.rows, shapes.cols, shapes.depth);
        let (a_scales, b_scales) = (numbers(call, A + 1)?, numbers(call, B + 1)?);
        let zeros = |operand: usize, elem: DataType| bytes(call, operand + 2, elem);
        let of_a = Parameters::new(call, A, &a_scales, zeros(A, a_type)?, shapes)?;
        let of_b = Parameters::new(call, B, &b_scales, zeros(B, b_type)?, shapes)?;
        let result = one_number(call, Y_SCALE)?;
        let a = bytes(call, A, a_type)?;
        let b = if self.packed.is_none() { bytes(call, B, b_type)? } else { &[] };
        let (a_signed, b_signed) = (a_type == DataType::Int8, b_type == DataType::Int8);
        let left = |index: usize, first: usize, rows: usize| {
            let a = &a[shapes.start(&shapes.a.steps, index) + first * k..][..rows * k];
            ByteMatrix { bits: MatRef::row_major(a, rows, k), signed: a_signed }
        };
        let right = |index: usize| -> Result<ByteRhs<'_>, KernelError> {
            if let Some(packed) = &self.packed {
                return Ok(ByteRhs::Packed(packed.panels()?));
            }
            let b = &b[shapes.start(&shapes.b.steps, index)..][..k * n];
            Ok(ByteRhs::Plain(ByteMatrix { bits: MatRef::row_major(b, k, n), signed: b_signed }))
        };
        let (exec, count) = (call.exec, shapes.count());
        if m * n * count == 0 {
            return call.output_slice::<T>(0, &shapes.output).map(|_| ());
        }
        // An operand that is not packed would be packed for each block, so all rows are one block.
        let most = if self.packed.is_some() { (MOST_SUMS / n).clamp(48, m.max(48)) } else { m };
        let step = most.min(m);
        let mut sums = call.scratch::<i32>(step * n)?;
        call.reserve(gemm_bytes_scratch(exec, &left(0, 0, step), &right(0)?))?;
        let y = call.output_slice::<T>(0, &shapes.output)?;
        for (index, y) in y.chunks_exact_mut(m * n).enumerate() {
            let (a_scales, a_zeros) =
                (of_a.scales.matrix(shapes, index), of_a.zeros.matrix(shapes, index));
            let columns = of_b.scales.matrix(shapes, index);
            let b_zeros = of_b.zeros.matrix(shapes, index);
            for (block, y) in y.chunks_mut(step * n).enumerate() {
                let (first, rows) = (block * step, y.len() / n);
                let sums = &mut sums[..y.len()];
                let zero_points = ZeroPoints { a: some_rows(a_zeros, first, rows), b: b_zeros };
                gemm_bytes(exec, left(index, first, rows), right(index)?, zero_points, sums)?;
                let factors = Factors {
                    rows: some_rows(a_scales, first, rows),
                    columns,
                    result,
                    precision: self.precision,
                };
                T::requantize(exec, &factors, y_zero, n, sums, y)?;
            }
        }
        Ok(())
    }

    /// Multiplies in floats, by the operators that the function consists of.
    fn run_in_floats(&self, call: &mut Call<'_>, shapes: &Shapes) -> Result<(), KernelError> {
        let (m, n, k) = (shapes.rows, shapes.cols, shapes.depth);
        let (exec, count) = (call.exec, shapes.count());
        let (a_scales, b_scales) = (numbers(call, A + 1)?, numbers(call, B + 1)?);
        let (a_zeros, b_zeros) = (numbers(call, A + 2)?, numbers(call, B + 2)?);
        let of_a = Parameters::new(call, A, &a_scales, &a_zeros, shapes)?;
        let of_b = Parameters::new(call, B, &b_scales, &b_zeros, shapes)?;
        let result = one_number(call, Y_SCALE)?;
        let y_zero = one_number(call, Y_ZERO)?;
        let (a, b) = (numbers(call, A)?, numbers(call, B)?);
        let mut a_real = call.scratch::<f32>(m * k)?;
        let mut b_real = call.scratch::<f32>(k * n)?;
        let mut y = call.scratch::<f32>(count * m * n)?;
        let of_product = gemm_scratch(
            exec,
            &Lhs::Plain(MatRef::row_major(&a_real, m, k)),
            &Rhs::Plain(MatRef::row_major(&b_real, k, n)),
        );
        call.reserve(of_product)?;
        for (index, y) in y.chunks_exact_mut((m * n).max(1)).enumerate() {
            let a = &a[shapes.start(&shapes.a.steps, index)..][..m * k];
            let b = &b[shapes.start(&shapes.b.steps, index)..][..k * n];
            for (of, spread, x, real) in [
                (&of_a, Spread::Slices([1, m, k]), a, &mut *a_real),
                (&of_b, Spread::Slices([k, n, 1]), b, &mut *b_real),
            ] {
                let (scales, zeros) =
                    (of.scales.matrix(shapes, index), of.zeros.matrix(shapes, index));
                if zeros.len() > scales.len() {
                    fail!("{} zero points for {} scales", zeros.len(), scales.len());
                }
                let spread = if scales.len() == 1 { Spread::One } else { spread };
                f32::dequantize(exec, &Scaling { spread, scales, zeros }, x, real)?;
            }
            let left = Lhs::Plain(MatRef::row_major(&a_real, m, k));
            let right = Rhs::Plain(MatRef::row_major(&b_real, k, n));
            gemm(exec, left, right, y, n, &Epilogue::default())?;
        }
        let scaling = Scaling { spread: Spread::One, scales: &[result], zeros: &[y_zero] };
        write_quantized(call, self.types[2], true, &scaling, &y, &shapes.output)
    }
}

/// Returns the numbers of some rows, if there is one per row; else the one for all rows.
fn some_rows<T>(numbers: &[T], first: usize, rows: usize) -> &[T] {
    if numbers.len() == 1 { numbers } else { &numbers[first..first + rows] }
}

impl Kernel for QLinearMatMul {
    fn describe(&self) -> String {
        match (self.is_exact, &self.packed) {
            (false, _) => format!("in floats, {:?}", self.isa),
            (true, Some(_)) => format!("packed B of bytes, {:?}", self.isa),
            (true, None) => format!("plain B of bytes, {:?}", self.isa),
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let a = OperandLayout::from_view(call.tensor(A)?);
        let shapes = match &self.packed {
            Some(packed) => Shapes::new(&a, &OperandLayout::dense(&[packed.depth, packed.cols]))?,
            None => Shapes::new(&a, &OperandLayout::from_view(call.tensor(B)?))?,
        };
        let y_type = self.types[2];
        if !self.is_exact {
            return self.run_in_floats(call, &shapes);
        }
        let zero = one_byte(call, Y_ZERO, y_type)?;
        match y_type {
            DataType::Int8 => self.run_exactly(call, &shapes, zero.cast_signed()),
            _ => self.run_exactly(call, &shapes, zero),
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::{CastOptions, Tensor, cast};

    use super::*;
    use crate::ops::testing::{any_bytes, run, run_with_constants, tensor};

    fn scales(dims: &[usize]) -> (Tensor, Vec<f32>) {
        let scales: Vec<f32> =
            (0..dims.iter().product()).map(|i| 0.01 + 0.003 * i as f32).collect();
        (tensor(dims, &scales), scales)
    }

    #[test]
    fn all_signs_and_forms_of_scales() {
        let (batch, m, n, k) = (2, 3, 5, 7);
        // Dimensions of parameters, and for matrix, row or column which of them it is.
        type Which = fn(usize, usize) -> usize;
        let lefts: [(&[usize], Which); 3] =
            [(&[], |_, _| 0), (&[3], |_, i| i), (&[2, 3, 1], |p, i| p * 3 + i)];
        let rights: [(&[usize], Which); 3] =
            [(&[1], |_, _| 0), (&[5], |_, j| j), (&[2, 1, 5], |p, j| p * 5 + j)];
        for (index, (left, right)) in
            lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))).enumerate()
        {
            let ((a_dims, a_which), (b_dims, b_which)) = (left, right);
            let (a_signed, b_signed, y_signed) = (index & 1 == 1, index & 2 == 0, index & 4 == 0);
            let ((a, a_is), (b, b_is)) =
                (any_bytes(&[batch, m, k], a_signed, 1), any_bytes(&[k, n], b_signed, 2));
            let ((z, z_is), (w, w_is)) =
                (any_bytes(a_dims, a_signed, 3), any_bytes(b_dims, b_signed, 4));
            let ((s, s_is), (t, t_is)) = (scales(a_dims), scales(b_dims));
            let (y_scale, (y, y_is)) = (tensor(&[], &[0.7f32]), any_bytes(&[], y_signed, 5));
            let limits = if y_signed { (-128.0, 127.0) } else { (0.0, 255.0) };
            let want = (0..batch * m * n).map(|at| {
                let (p, i, j) = (at / (m * n), at / n % m, at % n);
                let (left, right) = (a_which(p, i), b_which(p, j));
                let terms = (0..k).map(|q| {
                    (a_is[(p * m + i) * k + q] - z_is[left]) * (b_is[q * n + j] - w_is[right])
                });
                let factor = s_is[left] * t_is[right] / 0.7;
                let real = f64::from(terms.sum::<i32>()) * f64::from(factor);
                (real.round_ties_even() + f64::from(y_is[0])).clamp(limits.0, limits.1) as i32
            });
            let want: Vec<i32> = want.collect();
            let all = [&a, &s, &z, &b, &t, &w, &y_scale, &y].map(Some);
            for constants in [&[][..], &[3], &[3, 4, 5]] {
                let found = run_with_constants("QLinearMatMul", &[], &all, constants, 1).unwrap();
                assert_eq!(found[0].dims(), [batch, m, n]);
                assert_eq!(found[0].data_type(), y.data_type());
                let found = cast(&found[0], DataType::Int32, CastOptions::default()).unwrap();
                assert_eq!(found.to_vec::<i32>().unwrap(), want, "{a_dims:?} {b_dims:?}");
            }
        }
    }

    /// Checks a product over several blocks of rows.
    #[test]
    fn many_rows() {
        let (m, n, k) = (1100, 300, 3);
        let ((a, a_is), (b, b_is)) = (any_bytes(&[m, k], false, 1), any_bytes(&[k, n], true, 2));
        let (s, s_is) = (tensor(&[m], &vec![0.5f32; m]), 0.5);
        let (z, z_is) = any_bytes(&[m], false, 3);
        let (t, w, one) = (tensor(&[], &[0.01f32]), tensor(&[], &[0i8]), tensor(&[], &[1.0f32]));
        let y = tensor(&[], &[100u8]);
        let inputs = [&a, &s, &z, &b, &t, &w, &one, &y].map(Some);
        for constants in [&[][..], &[3]] {
            let found = run_with_constants("QLinearMatMul", &[], &inputs, constants, 1).unwrap();
            for (at, found) in found[0].view().as_slice::<u8>().unwrap().iter().enumerate() {
                let (i, j) = (at / n, at % n);
                let terms = (0..k).map(|q| (a_is[i * k + q] - z_is[i]) * b_is[q * n + j]);
                let real = f64::from(terms.sum::<i32>()) * f64::from(s_is * 0.01f32);
                let want = (real.round_ties_even() + 100.0).clamp(0.0, 255.0) as u8;
                assert_eq!(*found, want, "{i} {j}");
            }
        }
    }

    /// Checks that small floats are dequantized, multiplied and quantized.
    #[test]
    fn small_floats() {
        let small = |dims: &[usize], numbers: &[f32]| {
            let to = DataType::Float8e4m3fn;
            cast(&tensor(dims, numbers), to, CastOptions::default()).unwrap()
        };
        let a = small(&[2, 2], &[1.0, 2.0, -3.0, 0.5]);
        let b = small(&[2, 3], &[1.0, 0.0, 2.0, 4.0, -1.0, 8.0]);
        let (s, t) = (tensor(&[2], &[2.0f32, 4.0]), tensor(&[3], &[1.0f32, 0.5, 0.25]));
        let (zero, y_scale) = (small(&[], &[0.0]), tensor(&[], &[0.5f32]));
        // Rows [2, 4] and [-12, 2] by columns [1, 4], [0, -0.5] and [0.5, 2], doubled.
        let want = [36.0, -4.0, 18.0, -8.0, -2.0, -4.0];
        for (y, of) in
            [(small(&[], &[0.0]), DataType::Float8e4m3fn), (tensor(&[], &[0i8]), DataType::Int8)]
        {
            let inputs = [&a, &s, &zero, &b, &t, &zero, &y_scale, &y].map(Some);
            let found = run("QLinearMatMul", &[], &inputs, 1).unwrap();
            assert_eq!(found[0].data_type(), of);
            let found = cast(&found[0], DataType::Float, CastOptions::default()).unwrap();
            assert_eq!(found.to_vec::<f32>().unwrap(), want);
        }
        let (empty, y) = (small(&[0, 2], &[]), small(&[], &[0.0]));
        let one = tensor(&[], &[1.0f32]);
        let inputs = [&empty, &one, &zero, &b, &t, &zero, &y_scale, &y].map(Some);
        assert_eq!(run("QLinearMatMul", &[], &inputs, 1).unwrap()[0].dims(), [0, 3]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (a, b) = (tensor(&[2, 3], &[1u8; 6]), tensor(&[3, 4], &[1i8; 12]));
        let (one, two) = (tensor(&[], &[1.0f32]), tensor(&[2], &[1.0f32; 2]));
        let (u8s, i8s) = (tensor(&[], &[0u8]), tensor(&[], &[0i8]));
        let short = tensor(&[2, 4], &[1i8; 8]);
        for (inputs, why) in [
            (
                [&a, &one, &u8s, &b, &two, &i8s, &one, &u8s],
                "scales have dimensions [2] for 4 columns",
            ),
            (
                [&a, &one, &tensor(&[3], &[0u8; 3]), &b, &one, &i8s, &one, &u8s],
                "zero points have dimensions [3] for 2 rows",
            ),
            ([&a, &one, &i8s, &b, &one, &i8s, &one, &u8s], "input 2 is int8, not uint8"),
            ([&a, &one, &u8s, &b, &one, &i8s, &two, &u8s], "input 6 has 2 elements, not 1"),
            (
                [&a, &one, &u8s, &short, &one, &i8s, &one, &u8s],
                "[2, 3] and [2, 4] cannot be multiplied: 3 columns, 2 rows",
            ),
            ([&a, &one, &u8s, &b, &one, &i8s, &one, &one], "type not implemented: float"),
        ] {
            let error = run("QLinearMatMul", &[], &inputs.map(Some), 1).unwrap_err();
            assert_eq!(error, why);
        }
    }
}
