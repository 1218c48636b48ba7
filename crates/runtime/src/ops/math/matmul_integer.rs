//! MatMulInteger: products of bytes with zero points, accumulated in 32 bits. Packs a constant
//! matrix once. Sums become floats in the same step if nothing else reads them.

use sardonyx_kernels::Isa;
use sardonyx_kernels::gemm::{
    Bias, ByteMatrix, ByteRhs, Bytes, Epilogue, MatRef, ZeroPoints, gemm_bytes, gemm_bytes_scratch,
    gemm_bytes_to_floats,
};
use sardonyx_tensor::{DataType, Dims};

use super::matmul::Shapes;
use super::steps;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Ending, Inputs, Kernel, MemoryRules, Selected, Site};
use crate::program::{self, Op, Product, ProductForm, ProductTypes, Slot};
use crate::right::Right;

/// Lowers `MatMulInteger`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let byte_type = |input: usize| {
        let elem = site.elem(input)?;
        if is_byte(elem) { Ok(elem) } else { site.unsupported_type(elem) }
    };
    let zero_point = |input: usize| -> Result<Option<Slot>, BindError> {
        site.has_input(input).then(|| site.slot(input)).transpose()
    };
    let (a, b) = (byte_type(0)?, byte_type(1)?);
    Ok(Op::Product(Box::new(Product {
        form: ProductForm::MatMul,
        types: ProductTypes { a, b, sum: DataType::Int32, result: DataType::Int32 },
        a: site.slot(0)?,
        b: site.slot(1)?,
        a_zero_point: zero_point(2)?,
        b_zero_point: zero_point(3)?,
        trans_a: false,
        trans_b: false,
        alpha: 1.0,
        factors: None,
        quantized: None,
        addend: None,
        epilogue: program::Epilogue::default(),
    })))
}

fn is_byte(elem: DataType) -> bool {
    matches!(elem, DataType::Int8 | DataType::Uint8)
}

/// Whether the operands of a product are bytes.
pub(crate) fn has_bytes(product: &Product) -> bool {
    is_byte(product.types.a)
}

/// Selects the kernel of a product of bytes.
pub(crate) fn select(site: &Site<'_>, product: &Product) -> Selected {
    let packed = site.pack_right_of_bytes(1, product.trans_b);
    let is_packed = packed.is_some();
    let is_signed = |elem: DataType| elem == DataType::Int8;
    let has_zero_points = product.a_zero_point.is_some() || product.b_zero_point.is_some();
    let after = if has_zero_points { 4 } else { 2 };
    let factors = product.factors.map(|_| after);
    let ending = Ending::new(&product.epilogue, after + usize::from(factors.is_some()));
    let is_float = product.types.result == DataType::Float;
    let kernel = MatMulInteger {
        is_signed: [is_signed(product.types.a), is_signed(product.types.b)],
        has_zero_points,
        floats: is_float.then_some(Floats { factors, ending }),
        trans_b: product.trans_b,
        packed,
        isa: site.isa,
    };
    Selected::new(kernel).with_packed(is_packed.then_some(1))
}

struct MatMulInteger {
    /// Whether the bytes of each operand are signed.
    is_signed: [bool; 2],
    has_zero_points: bool,
    /// Operations on the sums as floats, if they become floats.
    floats: Option<Floats>,
    /// Whether a right operand that is not packed is read transposed.
    trans_b: bool,
    packed: Option<Right<Bytes>>,
    isa: Isa,
}

/// Factors and epilogue of sums as floats.
struct Floats {
    /// Position of the numbers that they are multiplied by.
    factors: Option<usize>,
    ending: Ending,
}

/// Numbers for the rows of a left operand or the columns of a right one.
pub(in crate::ops) struct PerLine<'a, T> {
    numbers: &'a [T],
    /// Count of numbers of each matrix.
    pub(in crate::ops) each: usize,
    /// Distance of the numbers of matrices along each batch dimension.
    steps: Dims,
}

/// Rows of the left operand or columns of the right one, with their number in each matrix.
#[derive(Clone, Copy)]
pub(in crate::ops) enum Lines {
    Rows(usize),
    Columns(usize),
}

impl<'a, T> PerLine<'a, T> {
    /// Makes an empty list for each matrix.
    fn none(batch: &Dims) -> Self {
        PerLine { numbers: &[], each: 0, steps: Dims::from_elem(0, batch.len()) }
    }

    /// Checks the dimensions of an input: one number, one per line, or a list of either for each
    /// matrix of the batch.
    pub(in crate::ops) fn new(
        what: &str,
        numbers: &'a [T],
        dims: &[usize],
        lines: Lines,
        batch: &Dims,
    ) -> Result<Self, KernelError> {
        let (leading, own) = dims.split_at(dims.len().saturating_sub(2));
        let (Lines::Rows(count) | Lines::Columns(count)) = lines;
        let each = match (lines, own) {
            (_, [] | [1] | [1, 1]) => 1,
            (_, [each]) | (Lines::Rows(_), [each, 1]) | (Lines::Columns(_), [1, each])
                if *each == count =>
            {
                count
            }
            (Lines::Rows(_), _) => fail!("{what} have dimensions {dims:?} for {count} rows"),
            (Lines::Columns(_), _) => fail!("{what} have dimensions {dims:?} for {count} columns"),
        };
        let mut steps = steps(leading, batch)?;
        steps.iter_mut().for_each(|step| *step *= each);
        Ok(PerLine { numbers, each, steps })
    }

    pub(in crate::ops) fn matrix(&self, shapes: &Shapes, index: usize) -> &'a [T] {
        &self.numbers[shapes.start(&self.steps, index)..][..self.each]
    }

    /// Whether all matrices share their numbers.
    pub(in crate::ops) fn are_shared(&self) -> bool {
        self.steps.iter().all(|step| *step == 0)
    }
}

impl MatMulInteger {
    /// Returns the bytes of an operand, from its first element on.
    fn bits<'a>(&self, call: &Call<'a>, operand: usize) -> Result<&'a [u8], KernelError> {
        Ok(if self.is_signed[operand] {
            bytemuck::cast_slice(call.strided_slice::<i8>(operand)?)
        } else {
            call.strided_slice::<u8>(operand)?
        })
    }

    /// Returns the zero points of an operand.
    fn points<'a>(
        &self,
        call: &Call<'a>,
        operand: usize,
        lines: Lines,
        batch: &Dims,
    ) -> Result<PerLine<'a, u8>, KernelError> {
        let index = operand + 2;
        let given = if self.has_zero_points { call.maybe_tensor(index)? } else { None };
        let Some(view) = given else {
            return Ok(PerLine::none(batch));
        };
        let bits = match (self.is_signed[operand], view.data_type()) {
            (true, DataType::Int8) => bytemuck::cast_slice(call.slice::<i8>(index)?),
            (false, DataType::Uint8) => call.slice::<u8>(index)?,
            _ => fail!("input {index} is the zero point of input {operand}, but has another type"),
        };
        PerLine::new("zero points", bits, view.dims(), lines, batch)
    }
}

impl Kernel for MatMulInteger {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::from_positions(&[0, 1]), ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        let form = if self.packed.is_some() { "packed B" } else { "plain B" };
        let to = if self.floats.is_some() { " to float" } else { "" };
        format!("{form} of bytes{to}, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let packed = self.packed.as_ref().map(|packed| [packed.depth, packed.cols]);
        let shapes = Shapes::from_call(call, packed, self.trans_b)?;
        let (mut m, n, k) = (shapes.rows, shapes.cols, shapes.depth);
        let a_points = self.points(call, 0, Lines::Rows(m), &shapes.batch)?;
        let b_points = self.points(call, 1, Lines::Columns(n), &shapes.batch)?;
        let mut count = shapes.count();
        // All rows of a batch are multiplied by one matrix.
        let is_one_product = shapes.left_is_one_matrix()
            && shapes.b.steps.iter().all(|step| *step == 0)
            && (a_points.each <= 1 && a_points.are_shared() && b_points.are_shared());
        if is_one_product && count > 0 {
            (m, count) = (m * count, 1);
        }
        let a = self.bits(call, 0)?;
        let b = if packed.is_none() { self.bits(call, 1)? } else { &[] };
        let [a_signed, b_signed] = self.is_signed;
        let left = |index: usize| {
            let a = a.get(shapes.start(&shapes.a.steps, index)..).unwrap_or_default();
            let bits = MatRef::new(a, m, k, shapes.a.row_step, shapes.a.col_step);
            ByteMatrix { bits, signed: a_signed }
        };
        let right = |index: usize| -> Result<ByteRhs<'_>, KernelError> {
            if let Some(packed) = &self.packed {
                return Ok(ByteRhs::Packed(packed.panels()?));
            }
            let b = b.get(shapes.start(&shapes.b.steps, index)..).unwrap_or_default();
            let bits = MatRef::new(b, k, n, shapes.b.row_step, shapes.b.col_step);
            Ok(ByteRhs::Plain(ByteMatrix { bits, signed: b_signed }))
        };
        let exec = call.exec;
        if count > 0 {
            call.reserve(gemm_bytes_scratch(exec, &left(0), &right(0)?))?;
        }
        let points = |index: usize| ZeroPoints {
            a: a_points.matrix(&shapes, index),
            b: b_points.matrix(&shapes, index),
        };
        let size = (m * n).max(1);
        let Some(Floats { factors, ending }) = &self.floats else {
            let y = call.output_slice::<i32>(0, &shapes.output)?;
            for (index, y) in y.chunks_mut(size).enumerate().take(count) {
                gemm_bytes(exec, left(index), right(index)?, points(index), y)?;
            }
            return Ok(());
        };
        let factors = match *factors {
            Some(position) => call.slice::<f32>(position)?,
            None => &[1.0],
        };
        if factors.len() != 1 && factors.len() != n {
            fail!("sums are multiplied by {} numbers, but have {n} columns", factors.len());
        }
        let elems = shapes.output.iter().product();
        let epilogue = ending.epilogue(call, elems, n, Bias::Col)?;
        let y = call.output_slice::<f32>(0, &shapes.output)?;
        for (index, y) in y.chunks_mut(size).enumerate().take(count) {
            let [residual, factor] = [epilogue.residual, epilogue.factor]
                .map(|operand| operand.map(|operand| &operand[index * size..][..size]));
            let epilogue = Epilogue { residual, factor, ..epilogue };
            let (a, b) = (left(index), right(index)?);
            gemm_bytes_to_floats(exec, a, b, points(index), factors, &epilogue, y)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use crate::ops::testing::{any_bytes, run, run_with_constants, tensor};

    #[test]
    fn all_signs_and_all_forms_of_zero_points() {
        let (batch, m, n, k) = (2, 3, 5, 7);
        let both = [false, true];
        // Dimensions of the zero points, and for matrix, row or column which of them it is.
        type Which = fn(usize, usize) -> usize;
        let lefts: [(&[usize], Which); 4] = [
            (&[], |_, _| 0),
            (&[3], |_, i| i),
            (&[2, 3, 1], |p, i| p * 3 + i),
            (&[2, 1, 1], |p, _| p),
        ];
        let rights: [(&[usize], Which); 4] = [
            (&[1], |_, _| 0),
            (&[5], |_, j| j),
            (&[2, 1, 5], |p, j| p * 5 + j),
            (&[1, 1, 5], |_, j| j),
        ];
        for (a_signed, b_signed) in both.into_iter().flat_map(|a| both.map(|b| (a, b))) {
            let (a, a_is) = any_bytes(&[batch, m, k], a_signed, 1);
            // One right operand for all left ones.
            let (b, b_is) = any_bytes(&[k, n], b_signed, 2);
            for ((a_dims, a_which), (b_dims, b_which)) in
                lefts.into_iter().flat_map(|left| rights.map(|right| (left, right)))
            {
                let (z, z_is) = any_bytes(a_dims, a_signed, 3);
                let (y, y_is) = any_bytes(b_dims, b_signed, 4);
                let want = (0..batch * m * n).map(|at| {
                    let (p, i, j) = (at / (m * n), at / n % m, at % n);
                    let terms = (0..k).map(|q| {
                        let a = a_is[(p * m + i) * k + q] - z_is[a_which(p, i)];
                        a * (b_is[q * n + j] - y_is[b_which(p, j)])
                    });
                    terms.sum::<i32>()
                });
                let want: Vec<i32> = want.collect();
                let inputs = [Some(&a), Some(&b), Some(&z), Some(&y)];
                for constants in [&[][..], &[1], &[1, 3]] {
                    let found = run_with_constants("MatMulInteger", &[], &inputs, constants, 1);
                    let found = found.unwrap();
                    assert_eq!(found[0].dims(), [batch, m, n]);
                    assert_eq!(
                        found[0].view().as_slice::<i32>().unwrap(),
                        want,
                        "{a_signed} {b_signed} {a_dims:?} {b_dims:?} {constants:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn vectors_and_missing_zero_points() {
        let (a, b) = (tensor(&[3], &[1u8, 2, 255]), tensor(&[3], &[-128i8, 5, 127]));
        let found = run("MatMulInteger", &[], &[Some(&a), Some(&b), None, None], 1).unwrap();
        assert!(found[0].dims().is_empty());
        assert_eq!(found[0].view().as_slice::<i32>().unwrap(), [-128 + 10 + 255 * 127]);
        let (m, y) = (tensor(&[3, 2], &[1i8, 2, 3, 4, 5, 6]), tensor(&[2], &[1i8, -1]));
        for constants in [&[][..], &[1]] {
            let inputs = [Some(&a), Some(&m), None, Some(&y)];
            let found = run_with_constants("MatMulInteger", &[], &inputs, constants, 1).unwrap();
            assert_eq!(found[0].dims(), [2]);
            let want = [2 * 2 + 255 * 4, 3 + 2 * 5 + 255 * 7];
            assert_eq!(found[0].view().as_slice::<i32>().unwrap(), want);
        }
        let (n, z) = (tensor(&[2, 3], &[1u8, 2, 3, 4, 5, 6]), tensor(&[1], &[1u8]));
        let found = run("MatMulInteger", &[], &[Some(&n), Some(&b), Some(&z), None], 1);
        let found = found.unwrap();
        assert_eq!(found[0].dims(), [2]);
        assert_eq!(found[0].view().as_slice::<i32>().unwrap(), [5 + 254, -3 * 128 + 20 + 5 * 127]);
    }

    /// Checks that batch dimensions of both operands broadcast, and that each matrix has its own
    /// zero points.
    #[test]
    fn batches_broadcast() {
        let (a, a_is) = any_bytes(&[2, 1, 3, 4], false, 1);
        let (b, b_is) = any_bytes(&[5, 4, 6], true, 2);
        let (z, z_is) = any_bytes(&[2, 1, 3, 1], false, 3);
        let (y, y_is) = any_bytes(&[5, 1, 6], true, 4);
        let inputs = [Some(&a), Some(&b), Some(&z), Some(&y)];
        let found = run("MatMulInteger", &[], &inputs, 1).unwrap();
        assert_eq!(found[0].dims(), [2, 5, 3, 6]);
        let want = (0..2 * 5 * 3 * 6).map(|at| {
            let (p, q, i, j) = (at / 90, at / 18 % 5, at / 6 % 3, at % 6);
            let terms = (0..4).map(|t| {
                let a = a_is[(p * 3 + i) * 4 + t] - z_is[p * 3 + i];
                a * (b_is[(q * 4 + t) * 6 + j] - y_is[q * 6 + j])
            });
            terms.sum::<i32>()
        });
        assert_eq!(found[0].view().as_slice::<i32>().unwrap(), want.collect::<Vec<i32>>());
    }

    #[test]
    fn empty_dimensions() {
        for (a_dims, b_dims, want) in [
            (&[0, 3][..], &[3, 4][..], &[0, 4][..]),
            (&[2, 0], &[0, 4], &[2, 4]),
            (&[2, 3], &[3, 0], &[2, 0]),
            (&[0, 2, 3], &[3, 4], &[0, 2, 4]),
            (&[0, 2, 3], &[1, 3, 4], &[0, 2, 4]),
        ] {
            let ((a, _), (b, _)) = (any_bytes(a_dims, false, 1), any_bytes(b_dims, true, 2));
            let (z, y) = (tensor(&[], &[7u8]), tensor(&[], &[9i8]));
            for constants in [&[][..], &[1]] {
                let inputs = [Some(&a), Some(&b), Some(&z), Some(&y)];
                let found = run_with_constants("MatMulInteger", &[], &inputs, constants, 1);
                let found = found.unwrap();
                assert_eq!(found[0].dims(), want);
                assert!(found[0].view().as_slice::<i32>().unwrap().iter().all(|sum| *sum == 0));
            }
        }
    }

    #[test]
    fn zero_points_that_do_not_fit_are_refused() {
        let (a, b) = (tensor(&[2, 3], &[1u8; 6]), tensor(&[3, 4], &[1i8; 12]));
        for (zero, why) in [
            (tensor(&[3], &[0u8; 3]), "zero points have dimensions [3] for 2 rows"),
            (tensor(&[1, 2], &[0u8; 2]), "zero points have dimensions [1, 2] for 2 rows"),
            (tensor(&[5, 2, 1], &[0u8; 10]), "[5] does not broadcast to []"),
            (tensor(&[], &[0i8]), "input 2 is the zero point of input 0, but has another type"),
        ] {
            let error =
                run("MatMulInteger", &[], &[Some(&a), Some(&b), Some(&zero), None], 1).unwrap_err();
            assert_eq!(error, why);
        }
    }
}
