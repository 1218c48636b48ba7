//! MatMul: NumPy's rules for vectors and broadcast batch dimensions. Packs a constant matrix once.

use sardonyx_kernels::Isa;
use sardonyx_kernels::gemm::{
    BatchMat, BatchOut, BatchRhs, Bias, Epilogue, Number, gemm_batch, gemm_batch_generic,
    gemm_batch_scratch,
};
use sardonyx_tensor::shape::{self, broadcast_dims};
use sardonyx_tensor::{DataType, Dims, Element, Strides, TensorView};
use smallvec::SmallVec;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::Selected;
use crate::kernel::{Call, Ending, Inputs, Kernel, MemoryRules, Site};
use crate::layout::Layout;
use crate::ops::narrow::{narrow, widen};
use crate::program::{self, Op, Product, ProductForm, ProductTypes};
use crate::right::{Right, describe_right};

struct MatMul {
    types: ProductTypes,
    /// Whether a right operand that is not packed is read transposed.
    trans_b: bool,
    packed: Option<Right>,
    ending: Ending,
    isa: Isa,
}

/// Lowers `MatMul`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::Product(Box::new(Product {
        form: ProductForm::MatMul,
        types: product_types(site)?,
        a: site.slot(0)?,
        b: site.slot(1)?,
        a_zero_point: None,
        b_zero_point: None,
        trans_a: false,
        trans_b: false,
        alpha: 1.0,
        factors: None,
        quantized: None,
        addend: None,
        epilogue: program::Epilogue::default(),
    })))
}

/// Returns the types of a product whose operands have one type.
pub(super) fn product_types(site: &Site<'_>) -> Result<ProductTypes, BindError> {
    use DataType::{Bfloat16, Double, Float, Float16, Int32, Int64, Uint32, Uint64};
    let elem = site.elem(0)?;
    if !matches!(elem, Float | Double | Float16 | Bfloat16 | Int32 | Int64 | Uint32 | Uint64) {
        return site.unsupported_type(elem);
    }
    Ok(ProductTypes::uniform(elem))
}

/// Selects the kernel of a product of the form [`ProductForm::MatMul`].
pub(crate) fn select(site: &Site<'_>, product: &Product) -> Selected {
    let packed = site.pack_right(1, product.trans_b);
    let is_packed = packed.is_some();
    let kernel = MatMul {
        types: product.types,
        trans_b: product.trans_b,
        packed,
        ending: Ending::new(&product.epilogue, 2),
        isa: site.isa,
    };
    Selected::new(kernel).with_packed(is_packed.then_some(1))
}

/// Sizes and strides of a batch of products.
pub(in crate::ops) struct Shapes {
    /// Batch dimensions of the result.
    pub(in crate::ops) batch: Dims,
    pub(in crate::ops) rows: usize,
    pub(in crate::ops) depth: usize,
    pub(in crate::ops) cols: usize,
    pub(in crate::ops) a: Side,
    pub(in crate::ops) b: Side,
    /// Dimensions of the result, without the axes added to vectors.
    pub(in crate::ops) output: Dims,
}

/// Strides of an operand's matrices, in elements.
pub(in crate::ops) struct Side {
    pub(in crate::ops) row_step: usize,
    pub(in crate::ops) col_step: usize,
    /// Distance of matrices along each batch dimension; 0 where the operand broadcasts.
    pub(in crate::ops) steps: SmallVec<[usize; 6]>,
}

/// Dimensions and strides of an operand.
pub(in crate::ops) struct OperandLayout<'a> {
    pub(in crate::ops) dims: &'a [usize],
    pub(in crate::ops) strides: Strides,
}

impl<'a> OperandLayout<'a> {
    pub(in crate::ops) fn from_view(view: &'a TensorView<'_>) -> Self {
        OperandLayout { dims: view.dims(), strides: view.strides() }
    }

    pub(in crate::ops) fn dense(dims: &'a [usize]) -> Self {
        OperandLayout { dims, strides: shape::strides(dims) }
    }

    /// Splits the strides into those of the batch and of the matrix. The missing axis of a vector
    /// has stride 0.
    fn side(&self, batch: &Dims, is_left: bool) -> Result<Side, KernelError> {
        let Ok(strides) = self
            .strides
            .iter()
            .map(|stride| usize::try_from(*stride))
            .collect::<Result<SmallVec<[usize; 6]>, _>>()
        else {
            fail!("a matrix product cannot read backwards");
        };
        let (leading, row_step, col_step) = match &strides[..] {
            [step] if is_left => (&[][..], 0, *step),
            [step] => (&[][..], *step, 0),
            [leading @ .., row, col] => (leading, *row, *col),
            [] => (&[][..], 0, 0),
        };
        let mut steps = SmallVec::from_elem(0, batch.len());
        let added = batch.len() - leading.len();
        for (axis, step) in leading.iter().enumerate() {
            if self.dims[axis] != 1 {
                steps[added + axis] = *step;
            }
        }
        Ok(Side { row_step, col_step, steps })
    }
}

impl Shapes {
    /// Makes the shapes of a call's operands in place. A packed right operand has the dimensions
    /// `packed`; any other may be read transposed.
    pub(in crate::ops) fn from_call(
        call: &Call<'_>,
        packed: Option<[usize; 2]>,
        trans_b: bool,
    ) -> Result<Self, KernelError> {
        let left = OperandLayout::from_view(call.tensor(0)?);
        match packed {
            Some(dims) => Shapes::new(&left, &OperandLayout::dense(&dims)),
            None if trans_b => {
                let right = call.tensor(1)?;
                let &[rows, cols] = right.dims() else {
                    fail!("the right operand has {} dimensions, not 2", right.rank());
                };
                let (layout, dims) = (Layout::from_view(right).transpose(&[1, 0]), [cols, rows]);
                let right = layout.to_view(right, &dims)?;
                Shapes::new(&left, &OperandLayout::from_view(&right))
            }
            None => Shapes::new(&left, &OperandLayout::from_view(call.tensor(1)?)),
        }
    }

    pub(in crate::ops) fn new(
        a_form: &OperandLayout<'_>,
        b_form: &OperandLayout<'_>,
    ) -> Result<Self, KernelError> {
        let (a, b) = (a_form.dims, b_form.dims);
        if a.is_empty() || b.is_empty() {
            fail!("a matrix product of scalars is not defined");
        }
        // A vector is a row on the left and a column on the right.
        let (a_batch, rows, depth) = match a {
            [depth] => (&[][..], 1, *depth),
            [batch @ .., rows, depth] => (batch, *rows, *depth),
            [] => (&[][..], 1, 1),
        };
        let (b_batch, b_depth, cols) = match b {
            [depth] => (&[][..], *depth, 1),
            [batch @ .., depth, cols] => (batch, *depth, *cols),
            [] => (&[][..], 1, 1),
        };
        if depth != b_depth {
            fail!("{a:?} and {b:?} cannot be multiplied: {depth} columns, {b_depth} rows");
        }
        let batch = broadcast_dims(&[a_batch, b_batch])?;
        let (a_side, b_side) = (a_form.side(&batch, true)?, b_form.side(&batch, false)?);
        let mut output = batch.clone();
        if a.len() > 1 {
            output.push(rows);
        }
        if b.len() > 1 {
            output.push(cols);
        }
        shape::elems(&output)?;
        Ok(Shapes { batch, rows, depth, cols, a: a_side, b: b_side, output })
    }

    pub(in crate::ops) fn count(&self) -> usize {
        self.batch.iter().product()
    }

    /// Whether the matrices of the left operand form one matrix, their rows equally spaced.
    pub(in crate::ops) fn left_is_one_matrix(&self) -> bool {
        let mut next = self.rows * self.a.row_step;
        self.batch.iter().zip(&self.a.steps).rev().all(|(dim, step)| {
            let follows = *dim == 1 || *step == next;
            next *= dim;
            follows
        })
    }

    /// Returns the offset of matrix number `index` of an operand.
    pub(in crate::ops) fn start(&self, steps: &[usize], mut index: usize) -> usize {
        let mut start = 0;
        for (dim, step) in self.batch.iter().zip(steps).rev() {
            start += index % dim * step;
            index /= dim;
        }
        start
    }

    fn left<'a, T>(&'a self, data: &'a [T]) -> BatchMat<'a, T> {
        BatchMat {
            data,
            rows: self.rows,
            cols: self.depth,
            row_stride: self.a.row_step,
            col_stride: self.a.col_step,
            batch_strides: &self.a.steps,
        }
    }

    fn right<'a, T>(&'a self, data: &'a [T]) -> BatchMat<'a, T> {
        BatchMat {
            data,
            rows: self.depth,
            cols: self.cols,
            row_stride: self.b.row_step,
            col_stride: self.b.col_step,
            batch_strides: &self.b.steps,
        }
    }
}

impl MatMul {
    fn run_plainly<T: Element + Number>(
        &self,
        call: &mut Call<'_>,
        shapes: &Shapes,
    ) -> Result<(), KernelError> {
        let (a, b) = (call.slice::<T>(0)?, call.slice::<T>(1)?);
        let exec = call.exec;
        let y = call.output_slice::<T>(0, &shapes.output)?;
        gemm_batch_generic(exec, &shapes.batch, shapes.left(a), shapes.right(b), y)?;
        Ok(())
    }
}

impl Kernel for MatMul {
    fn memory(&self) -> MemoryRules {
        let is_strided = self.types.a == DataType::Float;
        let strided = if is_strided { Inputs::from_positions(&[0, 1]) } else { Inputs::default() };
        MemoryRules { strided, ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        let form = describe_right(self.packed.as_ref());
        format!("{form}, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let packed = self.packed.as_ref().map(|packed| [packed.depth, packed.cols]);
        let shapes = if self.types.a == DataType::Float {
            Shapes::from_call(call, packed, self.trans_b)?
        } else {
            // Operands of other types are read, or widened, densely.
            let b_dims: Dims = match packed {
                Some(dims) => Dims::from_slice(&dims),
                None => call.tensor(1)?.dims().into(),
            };
            Shapes::new(
                &OperandLayout::dense(call.tensor(0)?.dims()),
                &OperandLayout::dense(&b_dims),
            )?
        };
        match self.types.sum {
            DataType::Float if self.types.a == DataType::Float => {
                let a = call.strided_slice::<f32>(0)?;
                let right = match &self.packed {
                    Some(packed) => BatchRhs::Packed(packed.panels()?),
                    None => BatchRhs::Plain(shapes.right(call.strided_slice::<f32>(1)?)),
                };
                let elems = shapes.output.iter().product();
                let epilogue = self.ending.epilogue(call, elems, shapes.cols, Bias::Col)?;
                let (exec, left) = (call.exec, shapes.left(a));
                call.reserve(gemm_batch_scratch(exec, &shapes.batch, left, right))?;
                let y = call.output_slice::<f32>(0, &shapes.output)?;
                let size = shapes.rows * shapes.cols;
                gemm_batch(
                    exec,
                    &shapes.batch,
                    left,
                    right,
                    BatchOut { data: y, ldc: shapes.cols, stride: size },
                    &epilogue,
                )?;
                Ok(())
            }
            DataType::Double => self.run_plainly::<f64>(call, &shapes),
            DataType::Int32 => self.run_plainly::<i32>(call, &shapes),
            DataType::Int64 => self.run_plainly::<i64>(call, &shapes),
            DataType::Uint32 => self.run_plainly::<u32>(call, &shapes),
            DataType::Uint64 => self.run_plainly::<u64>(call, &shapes),
            DataType::Float => {
                let a = widen(call, call.tensor(0)?)?;
                let b;
                let right = match &self.packed {
                    Some(packed) => BatchRhs::Packed(packed.panels()?),
                    None => {
                        b = widen(call, call.tensor(1)?)?;
                        BatchRhs::Plain(shapes.right(&b))
                    }
                };
                let left = shapes.left(&a);
                call.reserve(gemm_batch_scratch(call.exec, &shapes.batch, left, right))?;
                let mut y = call.scratch::<f32>(shapes.output.iter().product())?;
                let size = shapes.rows * shapes.cols;
                let epilogue = Epilogue::default();
                gemm_batch(
                    call.exec,
                    &shapes.batch,
                    left,
                    right,
                    BatchOut { data: &mut y, ldc: shapes.cols, stride: size },
                    &epilogue,
                )?;
                narrow(call, 0, self.types.result, &shapes.output, &y)
            }
            other => fail!("type not implemented: {}", other.name()),
        }
    }
}
