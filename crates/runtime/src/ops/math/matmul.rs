//! MatMul: NumPy's rules for vectors and for leading dimensions that broadcast; a constant matrix
//! is packed once.

use sardonyx_kernels::Isa;
use sardonyx_kernels::gemm::{
    BatchMat, BatchOut, BatchRhs, Bias, Epilogue, MatRef, Number, gemm_batch, gemm_batch_scratch,
    gemm_generic,
};
use sardonyx_tensor::shape::{self, broadcast_dims};
use sardonyx_tensor::{DataType, Dims, Element, Strides, TensorView};
use smallvec::SmallVec;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::Selected;
use crate::kernel::{Call, Ending, Inputs, Kernel, MemoryRules, Right, Site, describe_right};
use crate::ops::narrow::{narrow, widen};
use crate::program::{self, Op, Product, ProductForm};

struct MatMul {
    elem: DataType,
    /// Whether the right operand is read as its transpose, where it is not packed.
    trans_b: bool,
    packed: Option<Right>,
    ending: Ending,
    isa: Isa,
}

/// `MatMul`
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    Ok(Op::Product(Box::new(Product {
        form: ProductForm::MatMul,
        elem: product_type(site)?,
        a: site.slot(0)?,
        b: site.slot(1)?,
        trans_a: false,
        trans_b: false,
        alpha: 1.0,
        addend: None,
        epilogue: program::Epilogue::default(),
    })))
}

/// The type of products.
pub(super) fn product_type(site: &Site<'_>) -> Result<DataType, BindError> {
    use DataType::{Bfloat16, Double, Float, Float16, Int32, Int64, Uint32, Uint64};
    let elem = site.elem(0)?;
    if !matches!(elem, Float | Double | Float16 | Bfloat16 | Int32 | Int64 | Uint32 | Uint64) {
        return site.unsupported_type(elem);
    }
    Ok(elem)
}

/// The kernel of a product of the form [`ProductForm::MatMul`].
pub(crate) fn select(site: &Site<'_>, product: &Product) -> Selected {
    let packed = site.pack_right(1, product.trans_b);
    let is_packed = packed.is_some();
    let kernel = MatMul {
        elem: product.elem,
        trans_b: product.trans_b,
        packed,
        ending: Ending::new(&product.epilogue, 2),
        isa: site.isa,
    };
    Selected::new(kernel).packing(is_packed.then_some(1))
}

/// The products that two shapes stand for.
struct Shapes {
    /// Leading dimensions of the result.
    batch: Dims,
    rows: usize,
    depth: usize,
    cols: usize,
    a: Side,
    b: Side,
    /// Dimensions of the result, without those that vectors stood in for.
    output: Dims,
}

/// Where the matrices of an operand lie, in elements.
struct Side {
    row_step: usize,
    col_step: usize,
    /// From matrix to matrix per leading dimension; 0 where the operand broadcasts.
    steps: SmallVec<[usize; 6]>,
}

/// Dimensions of an operand and the distances of its elements.
struct Form<'a> {
    dims: &'a [usize],
    strides: Strides,
}

impl<'a> Form<'a> {
    fn of(view: &'a TensorView<'_>) -> Self {
        Form { dims: view.dims(), strides: view.strides() }
    }

    fn dense(dims: &'a [usize]) -> Self {
        Form { dims, strides: shape::strides(dims) }
    }

    /// Splits the strides as the dimensions are split; those of a vector's missing axis are 0.
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
    fn new(a_form: &Form<'_>, b_form: &Form<'_>) -> Result<Self, KernelError> {
        let (a, b) = (a_form.dims, b_form.dims);
        if a.is_empty() || b.is_empty() {
            fail!("scalars have no matrix product");
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
            fail!("{a:?} and {b:?} do not multiply: {depth} columns, {b_depth} rows");
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
        Ok(Shapes { batch, rows, depth, cols, a: a_side, b: b_side, output })
    }

    fn count(&self) -> usize {
        self.batch.iter().product()
    }

    /// Where matrix number `index` of an operand begins.
    fn start(&self, steps: &[usize], mut index: usize) -> usize {
        let mut start = 0;
        for (dim, step) in self.batch.iter().zip(steps).rev() {
            start += index % dim * step;
            index /= dim;
        }
        start
    }

    fn left<'a>(&'a self, data: &'a [f32]) -> BatchMat<'a> {
        BatchMat {
            data,
            rows: self.rows,
            cols: self.depth,
            row_stride: self.a.row_step,
            col_stride: self.a.col_step,
            batch_strides: &self.a.steps,
        }
    }

    fn right<'a>(&'a self, data: &'a [f32]) -> BatchMat<'a> {
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
        let size = shapes.rows * shapes.cols;
        for (index, y) in y.chunks_mut(size.max(1)).enumerate().take(shapes.count()) {
            let a = a.get(shapes.start(&shapes.a.steps, index)..).unwrap_or_default();
            let b = b.get(shapes.start(&shapes.b.steps, index)..).unwrap_or_default();
            let (a, b) = (
                MatRef::row_major(a, shapes.rows, shapes.depth),
                MatRef::row_major(b, shapes.depth, shapes.cols),
            );
            gemm_generic(exec, T::ONE, a, b, None, y, shapes.cols);
        }
        Ok(())
    }
}

impl Kernel for MatMul {
    fn memory(&self) -> MemoryRules {
        let is_strided = self.elem == DataType::Float;
        let strided = if is_strided { Inputs::at(&[0, 1]) } else { Inputs::default() };
        MemoryRules { strided, ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        let form = describe_right(self.packed.as_ref());
        format!("{form}, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let b_dims: Dims = match &self.packed {
            Some(packed) => Dims::from_slice(&[packed.depth, packed.cols]),
            None => call.tensor(1)?.dims().into(),
        };
        let left = call.tensor(0)?;
        let shapes = match (self.elem, &self.packed) {
            (DataType::Float, None) if self.trans_b => {
                let right = call.tensor(1)?.transpose(&[1, 0])?;
                Shapes::new(&Form::of(left), &Form::of(&right))?
            }
            (DataType::Float, None) => Shapes::new(&Form::of(left), &Form::of(call.tensor(1)?))?,
            (DataType::Float, Some(_)) => Shapes::new(&Form::of(left), &Form::dense(&b_dims))?,
            // The other types are read, or widened, densely.
            _ => Shapes::new(&Form::dense(left.dims()), &Form::dense(&b_dims))?,
        };
        match self.elem {
            DataType::Float => {
                let a = call.strided::<f32>(0)?;
                let right = match &self.packed {
                    Some(packed) => BatchRhs::Packed(packed.panels()?),
                    None => BatchRhs::Plain(shapes.right(call.strided::<f32>(1)?)),
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
                );
                Ok(())
            }
            DataType::Double => self.run_plainly::<f64>(call, &shapes),
            DataType::Int32 => self.run_plainly::<i32>(call, &shapes),
            DataType::Int64 => self.run_plainly::<i64>(call, &shapes),
            DataType::Uint32 => self.run_plainly::<u32>(call, &shapes),
            DataType::Uint64 => self.run_plainly::<u64>(call, &shapes),
            _ => {
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
                );
                narrow(call, 0, self.elem, &shapes.output, y)
            }
        }
    }
}
