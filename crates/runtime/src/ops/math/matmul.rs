//! MatMul: NumPy's rules for vectors and for leading dimensions that broadcast; a constant matrix is packed once.

use sardonyx_kernels::Isa;
use sardonyx_kernels::gemm::{
    BatchMat, BatchRhs, Epilogue, MatRef, Number, PackedB, gemm_batch, gemm_generic,
};
use sardonyx_tensor::shape::{broadcast_dims, broadcast_strides};
use sardonyx_tensor::{DataType, Dims, Element};
use smallvec::SmallVec;

use crate::kernel::{BindError, Call, Kernel, KernelError, Site, Tail, Tails, fail};
use crate::ops::narrow::{narrow, widen};

struct MatMul {
    elem: DataType,
    packed: Option<PackedB>,
    tails: Tails,
    isa: Isa,
}

/// `MatMul`
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    use DataType::{Bfloat16, Double, Float, Float16, Int32, Int64, Uint32, Uint64};
    let elem = site.elem(0)?;
    if !matches!(
        elem,
        Float | Double | Float16 | Bfloat16 | Int32 | Int64 | Uint32 | Uint64
    ) {
        return site.unsupported_type(elem);
    }
    let packed = match site.constant(1) {
        Some(b) if elem == Float && b.rank() == 2 => {
            let (rows, cols) = (b.dims()[0], b.dims()[1]);
            Some(PackedB::from_le_bytes(
                site.isa,
                b.bytes(),
                rows,
                cols,
                cols,
                1,
            ))
        }
        _ => None,
    };
    Ok(Box::new(MatMul {
        elem,
        packed,
        tails: Tails::default(),
        isa: site.isa,
    }))
}

/// The products that two shapes stand for.
struct Shapes {
    /// Leading dimensions of the result.
    batch: Dims,
    rows: usize,
    depth: usize,
    cols: usize,
    /// Distance between matrices per leading dimension, in elements; 0 where the operand broadcasts.
    a_steps: SmallVec<[usize; 6]>,
    b_steps: SmallVec<[usize; 6]>,
    /// Dimensions of the result, without those that vectors stood in for.
    output: Dims,
}

impl Shapes {
    fn new(a: &[usize], b: &[usize]) -> Result<Self, KernelError> {
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
        let steps = |from: &[usize], elems: usize| -> Result<SmallVec<[usize; 6]>, KernelError> {
            Ok(broadcast_strides(from, &batch)?
                .iter()
                .map(|step| *step as usize * elems)
                .collect())
        };
        let (a_steps, b_steps) = (steps(a_batch, rows * depth)?, steps(b_batch, depth * cols)?);
        let mut output = batch.clone();
        if a.len() > 1 {
            output.push(rows);
        }
        if b.len() > 1 {
            output.push(cols);
        }
        Ok(Shapes {
            batch,
            rows,
            depth,
            cols,
            a_steps,
            b_steps,
            output,
        })
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
            row_stride: self.depth,
            col_stride: 1,
            batch_strides: &self.a_steps,
        }
    }

    fn right<'a>(&'a self, data: &'a [f32]) -> BatchMat<'a> {
        BatchMat {
            data,
            rows: self.depth,
            cols: self.cols,
            row_stride: self.cols,
            col_stride: 1,
            batch_strides: &self.b_steps,
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
        let pool = call.pool;
        let y = call.output_slice::<T>(0, &shapes.output)?;
        let size = shapes.rows * shapes.cols;
        for (index, y) in y.chunks_mut(size.max(1)).enumerate().take(shapes.count()) {
            let a = a
                .get(shapes.start(&shapes.a_steps, index)..)
                .unwrap_or_default();
            let b = b
                .get(shapes.start(&shapes.b_steps, index)..)
                .unwrap_or_default();
            let (a, b) = (
                MatRef::row_major(a, shapes.rows, shapes.depth),
                MatRef::row_major(b, shapes.depth, shapes.cols),
            );
            gemm_generic(pool, self.isa, T::ONE, a, b, None, y, shapes.cols);
        }
        Ok(())
    }
}

impl Kernel for MatMul {
    fn taken_in(&self) -> &[usize] {
        if self.packed.is_some() { &[1] } else { &[] }
    }

    fn absorb(&mut self, tail: Tail) -> bool {
        self.elem == DataType::Float && self.tails.absorb(tail)
    }

    fn describe(&self) -> String {
        format!(
            "{} B, {:?}",
            if self.packed.is_some() {
                "packed"
            } else {
                "plain"
            },
            self.isa
        )
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let b_dims: Dims = match &self.packed {
            Some(packed) => Dims::from_slice(&[packed.depth(), packed.cols()]),
            None => call.tensor(1)?.dims().into(),
        };
        let shapes = Shapes::new(call.tensor(0)?.dims(), &b_dims)?;
        match self.elem {
            DataType::Float => {
                let a = call.slice::<f32>(0)?;
                let right = match &self.packed {
                    Some(packed) => BatchRhs::Packed(packed),
                    None => BatchRhs::Plain(shapes.right(call.slice::<f32>(1)?)),
                };
                let residual = if self.tails.residual {
                    Some(call.slice::<f32>(call.input_count() - 1)?)
                } else {
                    None
                };
                let epilogue = Epilogue {
                    residual,
                    activation: self.tails.activation,
                    ..Epilogue::default()
                };
                let (pool, isa) = (call.pool, self.isa);
                let y = call.output_slice::<f32>(0, &shapes.output)?;
                let size = shapes.rows * shapes.cols;
                gemm_batch(
                    pool,
                    isa,
                    &shapes.batch,
                    shapes.left(a),
                    right,
                    y,
                    shapes.cols,
                    size,
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
                let (a, b) = (widen(call.tensor(0)?)?, widen(call.tensor(1)?)?);
                let mut y = vec![0f32; shapes.output.iter().product()];
                let (left, right) = (shapes.left(&a), BatchRhs::Plain(shapes.right(&b)));
                let size = shapes.rows * shapes.cols;
                let epilogue = Epilogue::default();
                gemm_batch(
                    call.pool,
                    self.isa,
                    &shapes.batch,
                    left,
                    right,
                    &mut y,
                    shapes.cols,
                    size,
                    &epilogue,
                );
                narrow(call, 0, self.elem, &shapes.output, y)
            }
        }
    }
}
