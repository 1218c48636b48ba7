//! Products of many left operands with one right operand, one for each step of a sequence.
//!
//! Orientation, packing and cuts depend on sizes only, so they are decided once. These decisions
//! take longer than the product of a small state.

use super::blocked::{Cut, Operand, Product, Sweep};
use super::form::PanelForm;
use super::halves::ManyRows;
use super::matrix::strided_len;
use super::pack::{Panels, SendPtr, rows_in_place};
use super::{Epilogue, Lhs, MatRef, PackedB, Rhs, gemm_swept, rounding};
use sardonyx_simd::{Ended, Exec, Pool};

/// A right operand for multiplications by many left operands of one size.
#[derive(Debug)]
pub struct Repeated<'a> {
    right: Rhs<'a>,
    /// Operand and cut of products that the calling thread computes alone, reading the left operand
    /// in place; `None` if products run like any other.
    in_place: Option<(&'a PackedB, Cut)>,
    /// Number of rows of a left operand, and its row stride in floats.
    left: [usize; 2],
}

impl<'a> Repeated<'a> {
    /// Decides how matrices with the sizes and strides of `left` are multiplied by `right`.
    ///
    /// # Panics
    ///
    /// If the depths of the operands differ, or a packed operand was packed for another instruction
    /// set.
    pub fn new(exec: &Exec<'_>, left: MatRef<'_>, right: Rhs<'a>) -> Repeated<'a> {
        assert_eq!(left.cols(), right.size().0, "depth of A and B");
        let in_place = match right {
            Rhs::Packed(b) if rounding(&Lhs::Plain(left), &right) == ManyRows::Widened => {
                assert_eq!(b.isa(), exec.isa, "instruction set of the packed B");
                let a = left.transpose();
                let product = Repeated::product(exec, b, &a, Sweep::FromFirst);
                product.cut_in_place(exec.pool).map(|cut| (b, cut))
            }
            _ => None,
        };
        Repeated { right, in_place, left: [left.rows(), left.row_stride()] }
    }

    /// Describes the product of `a` and `b`, without an output.
    fn product<'p>(exec: &Exec<'_>, b: &PackedB, a: &'p MatRef<'p>, sweep: Sweep) -> Product<'p> {
        Product {
            isa: exec.isa,
            caches: exec.caches,
            m: a.cols(),
            n: b.cols(),
            k: b.depth(),
            a: Operand::Matrix(a),
            b: Operand::Panels(b.panels.view()),
            c: SendPtr(std::ptr::null_mut()),
            ldc: 0,
            epilogue: Epilogue::default().raw(0),
            form: PanelForm::Right(b.storage()),
            sweep,
        }
    }

    /// Computes `c = a right`, where the row stride of `c` is `ldc` elements, with the bits of
    /// [`gemm`](super::gemm). Threads and caches are those of [`Repeated::new`].
    ///
    /// # Panics
    ///
    /// If `a` has other sizes or strides than the matrix passed to [`Repeated::new`], `exec` has
    /// another instruction set, `c` is too short, or rows of it overlap.
    pub fn multiply(
        &self,
        exec: &Exec<'_>,
        a: MatRef<'_>,
        c: &mut [f32],
        ldc: usize,
        sweep: Sweep,
    ) -> Result<(), Ended> {
        let Some((b, cut)) = &self.in_place else {
            let epilogue = Epilogue::default();
            return gemm_swept(exec, Lhs::Plain(a), self.right, c, ldc, &epilogue, sweep);
        };
        let (rows, cols) = (a.rows(), b.cols());
        assert_eq!(b.isa(), exec.isa, "instruction set of the packed B");
        assert_eq!([rows, a.row_stride()], self.left, "rows of A and their distance");
        assert_eq!((a.cols(), a.col_stride()), (b.depth(), 1), "columns of A");
        assert!(ldc >= cols || rows <= 1, "rows of C overlap: {ldc} < {cols}");
        let c_len = strided_len(rows, cols, ldc, 1);
        assert!(c_len.is_some_and(|len| len <= c.len()), "{rows} x {cols} in {}", c.len());
        Pool::check_ended()?;
        let a = a.transpose();
        let product =
            Product { c: SendPtr(c.as_mut_ptr()), ldc, ..Repeated::product(exec, b, &a, sweep) };
        let a = Panels::from_matrix(&a, rows_in_place(exec.isa));
        let parts = cut.parts();
        for index in 0..parts {
            // SAFETY: sizes were checked, `c` is borrowed mutably, and the machine has the
            // instruction set that the operand was packed for.
            unsafe { product.run_part(a, b.panels.view(), cut, sweep.part(index, parts, 1)) };
        }
        Ok(())
    }
}
