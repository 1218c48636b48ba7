//! Gemm: `alpha * A' * B' + beta * C`. Packs a constant B once; adds C and applies the activation
//! while the result is written.

use sardonyx_kernels::Isa;
use sardonyx_kernels::gemm::{
    Bias, Epilogue, Lhs, MatRef, Number, Rhs, gemm, gemm_generic, gemm_scratch,
};
use sardonyx_tensor::{DataType, Dims, Element, TensorView};

use super::matmul::product_types;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::Selected;
use crate::kernel::{Call, Ending, Kernel, Site};
use crate::ops::narrow::{narrow, widen};
use crate::program::{self, Addend, Op, Product, ProductForm, ProductTypes};
use crate::right::{Right, describe_right};

struct Gemm {
    types: ProductTypes,
    alpha: f32,
    beta: f32,
    trans_a: bool,
    trans_b: bool,
    packed: Option<Right>,
    has_c: bool,
    ending: Ending,
    isa: Isa,
}

/// Lowers `Gemm`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let beta = site.float("beta").unwrap_or(1.0);
    let addend = if site.has_input(2) { Some(Addend { c: site.slot(2)?, beta }) } else { None };
    Ok(Op::Product(Box::new(Product {
        form: ProductForm::Gemm,
        types: product_types(site)?,
        a: site.slot(0)?,
        b: site.slot(1)?,
        a_zero_point: None,
        b_zero_point: None,
        trans_a: site.need_int("transA")? != 0,
        trans_b: site.need_int("transB")? != 0,
        alpha: site.float("alpha").unwrap_or(1.0),
        factors: None,
        quantized: None,
        addend,
        epilogue: program::Epilogue::default(),
    })))
}

/// Selects the kernel of a product of the form [`ProductForm::Gemm`].
pub(crate) fn select(site: &Site<'_>, product: &Product) -> Selected {
    let packed = site.pack_right(1, product.trans_b);
    let is_packed = packed.is_some();
    let has_c = product.addend.is_some();
    let kernel = Gemm {
        types: product.types,
        alpha: product.alpha,
        beta: product.addend.map_or(1.0, |addend| addend.beta),
        trans_a: product.trans_a,
        trans_b: product.trans_b,
        packed,
        has_c,
        ending: Ending::new(&product.epilogue, 2 + usize::from(has_c)),
        isa: site.isa,
    };
    Selected::new(kernel).with_packed(is_packed.then_some(1))
}

/// Matrix, possibly transposed, with its rows and columns after transposition.
struct Matrix {
    rows: usize,
    cols: usize,
    transposed: bool,
}

impl Matrix {
    fn new(view: &TensorView<'_>, transposed: bool, name: &str) -> Result<Self, KernelError> {
        match view.dims() {
            [rows, cols] if transposed => Ok(Matrix { rows: *cols, cols: *rows, transposed }),
            [rows, cols] => Ok(Matrix { rows: *rows, cols: *cols, transposed }),
            other => fail!("{name} must be a matrix, but has dimensions {other:?}"),
        }
    }

    fn view<'a, T>(&self, elements: &'a [T]) -> MatRef<'a, T> {
        if self.transposed {
            MatRef::col_major(elements, self.rows, self.cols)
        } else {
            MatRef::row_major(elements, self.rows, self.cols)
        }
    }
}

/// Returns the strides with which C broadcasts over the result, per row and column, in elements.
fn broadcast(c: &[usize], rows: usize, cols: usize) -> Result<(usize, usize), KernelError> {
    let (c_rows, c_cols) = match c {
        [] => (1, 1),
        [cols] => (1, *cols),
        [rows, cols] => (*rows, *cols),
        other => fail!("C has dimensions {other:?} and does not broadcast to {rows}x{cols}"),
    };
    if (c_rows != 1 && c_rows != rows) || (c_cols != 1 && c_cols != cols) {
        fail!("C has dimensions {c:?} and does not broadcast to {rows}x{cols}");
    }
    Ok((if c_rows == 1 { 0 } else { c_cols }, if c_cols == 1 { 0 } else { 1 }))
}

impl Gemm {
    fn run_f32(
        &self,
        call: &mut Call<'_>,
        a: &Matrix,
        depth: usize,
        cols: usize,
    ) -> Result<(), KernelError> {
        let left = call.slice::<f32>(0)?;
        let b;
        let right = match &self.packed {
            Some(packed) => Rhs::Packed(packed.panels()?),
            None => {
                b = Matrix::new(call.tensor(1)?, self.trans_b, "B")?;
                Rhs::Plain(b.view(call.slice::<f32>(1)?))
            }
        };
        let mut epilogue = self.ending.epilogue(call, a.rows * cols, cols, Bias::Col)?;
        epilogue.alpha *= self.alpha;
        if self.has_c {
            let view = call.tensor(2)?;
            let (row_step, col_step) = broadcast(view.dims(), a.rows, cols)?;
            let c = view.as_slice::<f32>()?;
            match (row_step, col_step) {
                (0, 1) if self.beta == 1.0 => epilogue.bias = Some(Bias::Col(c)),
                _ => {
                    epilogue.addend =
                        Some((self.beta, MatRef::new(c, a.rows, cols, row_step, col_step)))
                }
            }
        }
        debug_assert_eq!(right.size(), (depth, cols));
        let exec = call.exec;
        let left = Lhs::Plain(a.view(left));
        call.reserve(gemm_scratch(exec, &left, &right))?;
        let y = call.output_slice::<f32>(0, &[a.rows, cols])?;
        gemm(exec, left, right, y, cols, &epilogue)?;
        Ok(())
    }

    fn run_plainly<T: Element + Number>(
        &self,
        call: &mut Call<'_>,
        a: &Matrix,
        b: &Matrix,
        alpha: T,
        beta: T,
    ) -> Result<(), KernelError> {
        let (left, right) = (a.view(call.slice::<T>(0)?), b.view(call.slice::<T>(1)?));
        let addend = if self.has_c {
            let view = call.tensor(2)?;
            let (row_step, col_step) = broadcast(view.dims(), a.rows, b.cols)?;
            Some((beta, MatRef::new(view.as_slice::<T>()?, a.rows, b.cols, row_step, col_step)))
        } else {
            None
        };
        let exec = call.exec;
        let y = call.output_slice::<T>(0, &[a.rows, b.cols])?;
        gemm_generic(exec, alpha, left, right, addend, y, b.cols)?;
        Ok(())
    }

    /// Multiplies integers by fractional factors: as in the reference implementation, in `double`
    /// after the sums, truncated.
    fn run_fractions(
        &self,
        call: &mut Call<'_>,
        a: &Matrix,
        b: &Matrix,
    ) -> Result<(), KernelError> {
        macro_rules! with {
            ($T:ty) => {
                self.run_fractions_of(call, a, b, 1 as $T, |x| x as f64, |x| x as $T)
            };
        }
        match self.types.sum {
            DataType::Int32 => with!(i32),
            DataType::Int64 => with!(i64),
            DataType::Uint32 => with!(u32),
            DataType::Uint64 => with!(u64),
            other => fail!("type not implemented: {}", other.name()),
        }
    }

    fn run_fractions_of<T: Element + Number>(
        &self,
        call: &mut Call<'_>,
        a: &Matrix,
        b: &Matrix,
        one: T,
        to: impl Fn(T) -> f64,
        from: impl Fn(f64) -> T,
    ) -> Result<(), KernelError> {
        let [alpha, beta] = [self.alpha, self.beta].map(f64::from);
        let (left, right) = (a.view(call.slice::<T>(0)?), b.view(call.slice::<T>(1)?));
        let addend = if self.has_c {
            let view = call.tensor(2)?;
            let (row_step, col_step) = broadcast(view.dims(), a.rows, b.cols)?;
            Some(MatRef::new(view.as_slice::<T>()?, a.rows, b.cols, row_step, col_step))
        } else {
            None
        };
        let exec = call.exec;
        let y = call.output_slice::<T>(0, &[a.rows, b.cols])?;
        gemm_generic(exec, one, left, right, None, y, b.cols)?;
        for (at, y) in y.iter_mut().enumerate() {
            let c = addend.map_or(0.0, |c| to(c.get(at / b.cols, at % b.cols)));
            *y = from(to(*y) * alpha + c * beta);
        }
        Ok(())
    }

    fn run_narrow(&self, call: &mut Call<'_>, a: &Matrix, cols: usize) -> Result<(), KernelError> {
        let left = widen(call, call.tensor(0)?)?;
        let b;
        let right = match &self.packed {
            Some(packed) => Rhs::Packed(packed.panels()?),
            None => {
                b = widen(call, call.tensor(1)?)?;
                Rhs::Plain(Matrix::new(call.tensor(1)?, self.trans_b, "B")?.view(&b))
            }
        };
        let dims: Dims = Dims::from_slice(&[a.rows, cols]);
        let mut y = call.scratch::<f32>(a.rows * cols)?;
        let c = if self.has_c {
            Some((widen(call, call.tensor(2)?)?, Dims::from(call.tensor(2)?.dims())))
        } else {
            None
        };
        let addend = match &c {
            Some((c, c_dims)) => {
                let (row_step, col_step) = broadcast(c_dims, a.rows, cols)?;
                Some((self.beta, MatRef::new(c, a.rows, cols, row_step, col_step)))
            }
            None => None,
        };
        let epilogue = Epilogue { alpha: self.alpha, addend, ..Epilogue::default() };
        let left = Lhs::Plain(a.view(&left));
        call.reserve(gemm_scratch(call.exec, &left, &right))?;
        gemm(call.exec, left, right, &mut y, cols, &epilogue)?;
        narrow(call, 0, self.types.result, &dims, &y)
    }
}

impl Kernel for Gemm {
    fn describe(&self) -> String {
        let form = describe_right(self.packed.as_ref());
        format!("{form}, {:?}", self.isa)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let a = Matrix::new(call.tensor(0)?, self.trans_a, "A")?;
        let (depth, cols) = match &self.packed {
            Some(packed) => (packed.depth, packed.cols),
            None => {
                let b = Matrix::new(call.tensor(1)?, self.trans_b, "B")?;
                (b.rows, b.cols)
            }
        };
        if a.cols != depth {
            fail!("A has {} columns, but B has {depth} rows", a.cols);
        }
        if self.types.sum == DataType::Float {
            return match self.types.a {
                DataType::Float => self.run_f32(call, &a, depth, cols),
                _ => self.run_narrow(call, &a, cols),
            };
        }
        let b = Matrix::new(call.tensor(1)?, self.trans_b, "B")?;
        // The standard's factors are floats even for integer matrices.
        if self.types.sum.is_integer() && [self.alpha, self.beta].iter().any(|x| x.fract() != 0.0) {
            return self.run_fractions(call, &a, &b);
        }
        match self.types.sum {
            DataType::Double => {
                self.run_plainly::<f64>(call, &a, &b, self.alpha.into(), self.beta.into())
            }
            DataType::Int32 => {
                self.run_plainly::<i32>(call, &a, &b, self.alpha as i32, self.beta as i32)
            }
            DataType::Int64 => {
                self.run_plainly::<i64>(call, &a, &b, self.alpha as i64, self.beta as i64)
            }
            DataType::Uint32 => {
                self.run_plainly::<u32>(call, &a, &b, self.alpha as u32, self.beta as u32)
            }
            DataType::Uint64 => {
                self.run_plainly::<u64>(call, &a, &b, self.alpha as u64, self.beta as u64)
            }
            other => fail!("type not implemented: {}", other.name()),
        }
    }
}
