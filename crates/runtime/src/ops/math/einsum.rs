//! Einsum: products and sums over labelled axes, as matrix products.
//!
//! Operands are multiplied from left to right. An axis that neither the result nor a later operand
//! has is summed over as soon as that is possible: before a product if only one side has it, else
//! in the product. What is left of a pair are the axes of both (a batch), of the left one (rows)
//! and of the right one (columns). Axes that lie as a product wants them are read in place.

use std::marker::PhantomData;

use bytemuck::Pod;
use sardonyx_kernels::elementwise::{Binary, MAX_RANK, Strided};
use sardonyx_kernels::gemm::{
    self, BatchMat, BatchOut, BatchRhs, Epilogue, gemm_batch, gemm_batch_generic,
    gemm_batch_scratch,
};
use sardonyx_kernels::reduce::Reduce;
use sardonyx_kernels::{Ended, Exec, Loops};
use sardonyx_ops::{Equation, Term};
use sardonyx_tensor::{DataType, Dims, Element, shape};
use smallvec::SmallVec;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::narrow::{narrow, widen};
use crate::ops::tensor::moves::{Read, dense_aligned};
use crate::scratch::{Contents, Scratch};

/// Binds `Einsum`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let Some(equation) = site.string("equation") else {
        return Err(BindError::Invalid("attribute 'equation' is missing".to_string()));
    };
    let equation = Equation::parse(&equation).map_err(BindError::Invalid)?;
    if equation.operands.len() != site.inputs.len() {
        return Err(BindError::Invalid(format!(
            "the equation has {} operands, the node has {} inputs",
            equation.operands.len(),
            site.inputs.len()
        )));
    }
    let elem = site.elem(0)?;
    let numbers = match elem {
        DataType::Float | DataType::Float16 | DataType::Bfloat16 => Numbers::new::<f32>(),
        DataType::Double => Numbers::new::<f64>(),
        DataType::Int8 => Numbers::new::<i8>(),
        DataType::Int16 => Numbers::new::<i16>(),
        DataType::Int32 => Numbers::new::<i32>(),
        DataType::Int64 => Numbers::new::<i64>(),
        DataType::Uint8 => Numbers::new::<u8>(),
        DataType::Uint16 => Numbers::new::<u16>(),
        DataType::Uint32 => Numbers::new::<u32>(),
        DataType::Uint64 => Numbers::new::<u64>(),
        other => return site.unsupported_type(other),
    };
    Ok(Box::new(Einsum { equation, elem, numbers }))
}

struct Einsum {
    equation: Equation,
    elem: DataType,
    numbers: Numbers,
}

/// The type that products and sums are computed in. Elements are bytes everywhere else: what
/// decides how axes are combined is compiled once, not for each type.
#[derive(Clone, Copy)]
struct Numbers {
    data_type: DataType,
    /// Bytes of an element.
    width: usize,
    arithmetic: &'static dyn Arithmetic,
}

impl Numbers {
    fn new<T: Multiplied>() -> Numbers {
        let arithmetic = &Of::<T>(PhantomData);
        Numbers { data_type: T::DATA_TYPE, width: size_of::<T>(), arithmetic }
    }

    /// Memory for `elems` elements.
    fn scratch(self, call: &Call<'_>, elems: usize) -> Result<Scratch<u8>, KernelError> {
        call.scratch_uninit(elems.saturating_mul(self.width))
    }
}

/// Products and sums of elements that are given as bytes, aligned as their type must be.
trait Arithmetic: Sync {
    /// Sums `x`, of sizes `dims`, over the axes that `gone` marks.
    fn sum_axes(
        &self,
        exec: &Exec<'_>,
        dims: &[usize],
        gone: &[bool],
        x: &[u8],
        sums: &mut [u8],
    ) -> Result<(), Ended>;

    /// Products of elements at places given by steps, for all indices of `dims`.
    fn multiply(
        &self,
        exec: &Exec<'_>,
        dims: &[usize],
        a: Stepped<'_>,
        b: Stepped<'_>,
        y: &mut [u8],
    ) -> Result<(), Ended>;

    /// Counts the memory that products of such matrices take.
    fn reserve(&self, call: &Call<'_>, a: Matrices<'_>, b: Matrices<'_>)
    -> Result<(), KernelError>;

    /// Products of matrices, written one after the other.
    fn multiply_matrices(
        &self,
        exec: &Exec<'_>,
        a: Matrices<'_>,
        b: Matrices<'_>,
        y: &mut [u8],
    ) -> Result<(), Ended>;
}

/// Bytes of elements, and the elements from one to the next along each axis.
#[derive(Clone, Copy)]
struct Stepped<'a> {
    data: &'a [u8],
    steps: &'a [usize],
}

/// Bytes of the elements of matrices, and how these lie.
#[derive(Clone, Copy)]
struct Matrices<'a> {
    data: &'a [u8],
    layout: &'a Layout,
}

impl<'a> Matrices<'a> {
    fn of<T: Pod>(self) -> BatchMat<'a, T> {
        let Layout { rows, cols, batch_steps, .. } = self.layout;
        BatchMat {
            data: bytemuck::cast_slice(self.data),
            rows: rows.size,
            cols: cols.size,
            row_stride: rows.step,
            col_stride: cols.step,
            batch_strides: batch_steps,
        }
    }
}

/// The arithmetic of a type.
struct Of<T>(PhantomData<fn() -> T>);

impl<T: Multiplied> Arithmetic for Of<T> {
    fn sum_axes(
        &self,
        exec: &Exec<'_>,
        dims: &[usize],
        gone: &[bool],
        x: &[u8],
        sums: &mut [u8],
    ) -> Result<(), Ended> {
        let (x, sums) = (bytemuck::cast_slice(x), bytemuck::cast_slice_mut(sums));
        T::reduce(exec, Reduce::Sum, dims, gone, x, sums)
    }

    fn multiply(
        &self,
        exec: &Exec<'_>,
        dims: &[usize],
        a: Stepped<'_>,
        b: Stepped<'_>,
        y: &mut [u8],
    ) -> Result<(), Ended> {
        let a = Strided::new(bytemuck::cast_slice(a.data), a.steps);
        let b = Strided::new(bytemuck::cast_slice(b.data), b.steps);
        T::binary(exec, Binary::Mul, dims, a, b, bytemuck::cast_slice_mut(y))
    }

    fn reserve(
        &self,
        call: &Call<'_>,
        a: Matrices<'_>,
        b: Matrices<'_>,
    ) -> Result<(), KernelError> {
        call.reserve(T::scratch(call.exec, &a.layout.dims, a.of(), b.of()))
    }

    fn multiply_matrices(
        &self,
        exec: &Exec<'_>,
        a: Matrices<'_>,
        b: Matrices<'_>,
        y: &mut [u8],
    ) -> Result<(), Ended> {
        T::multiply(exec, &a.layout.dims, a.of(), b.of(), bytemuck::cast_slice_mut(y))
    }
}

/// An axis: the letter of a label, or, above all letters, the place of an axis of `...` from the
/// end.
type Axis = u32;

/// One axis of an operand.
#[derive(Clone, Copy)]
struct Part {
    axis: Axis,
    size: usize,
    /// From one element to the next.
    step: usize,
}

type Parts = SmallVec<[Part; 8]>;

/// An operand, or the product of some of them.
struct Operand<'a> {
    numbers: Numbers,
    data: Contents<'a, u8>,
    /// Each axis once.
    parts: Parts,
}

/// Elements that products and sums are computed of.
trait Multiplied: Element + Loops + gemm::Number + Pod {
    /// Bytes of scratch memory of such products.
    fn scratch(
        _exec: &Exec<'_>,
        _dims: &[usize],
        _a: BatchMat<'_, Self>,
        _b: BatchMat<'_, Self>,
    ) -> usize {
        0
    }

    /// Products of matrices at regular distances, one after the other.
    fn multiply(
        exec: &Exec<'_>,
        dims: &[usize],
        a: BatchMat<'_, Self>,
        b: BatchMat<'_, Self>,
        y: &mut [Self],
    ) -> Result<(), Ended>;
}

impl Multiplied for f32 {
    fn scratch(
        exec: &Exec<'_>,
        dims: &[usize],
        a: BatchMat<'_, f32>,
        b: BatchMat<'_, f32>,
    ) -> usize {
        gemm_batch_scratch(exec, dims, a, BatchRhs::Plain(b))
    }

    fn multiply(
        exec: &Exec<'_>,
        dims: &[usize],
        a: BatchMat<'_, f32>,
        b: BatchMat<'_, f32>,
        y: &mut [f32],
    ) -> Result<(), Ended> {
        let out = BatchOut { data: y, ldc: b.cols, stride: a.rows * b.cols };
        gemm_batch(exec, dims, a, BatchRhs::Plain(b), out, &Epilogue::default())
    }
}

macro_rules! plainly {
    ($($t:ty)*) => {$(
        impl Multiplied for $t {
            fn multiply(
                exec: &Exec<'_>,
                dims: &[usize],
                a: BatchMat<'_, $t>,
                b: BatchMat<'_, $t>,
                y: &mut [$t],
            ) -> Result<(), Ended> {
                gemm_batch_generic(exec, dims, a, b, y)
            }
        }
    )*};
}
plainly!(f64 i8 i16 i32 i64 u8 u16 u32 u64);

impl Kernel for Einsum {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let sizes = Sizes::new(&self.equation, call)?;
        let result = sizes.axes(&self.equation.result, sizes.ellipsis);
        let dims: Dims = result.iter().map(|axis| sizes.size(*axis)).collect();
        if dims.len() > MAX_RANK {
            fail!("the result has rank {}; at most {MAX_RANK} is supported", dims.len());
        }
        shape::elems(&dims)?;
        let wanted = |axis: Axis, later: usize| {
            let of_later = (later..self.equation.operands.len())
                .any(|index| sizes.operands[index].iter().any(|part| part.axis == axis));
            of_later || result.contains(&axis)
        };
        let mut product = self.operand(call, &sizes, 0)?;
        product = product.summed(call, |axis| wanted(axis, 1))?;
        let (exec, count) = (call.exec, self.equation.operands.len());
        for index in 1..count {
            let next = self.operand(call, &sizes, index)?;
            let next = next.summed(call, |axis| product.has(axis) || wanted(axis, index + 1))?;
            let (y, parts) = {
                let times = product.times(call, &next, &result, |axis| wanted(axis, index + 1))?;
                let is_last = index + 1 == count && self.elem == self.numbers.data_type;
                if is_last && are_in_order(&times.made, &result) {
                    times.write(exec, call.output(0, self.elem, &dims)?.bytes_mut())?;
                    return Ok(());
                }
                let mut y = self.numbers.scratch(call, elems(times.made.iter())?)?;
                times.write(exec, &mut y)?;
                (y, times.made)
            };
            product = Operand { numbers: self.numbers, data: Contents::Made(y), parts };
        }
        if self.elem == self.numbers.data_type {
            product.write(exec, &result, call.output(0, self.elem, &dims)?.bytes_mut())?;
            return Ok(());
        }
        let mut y = self.numbers.scratch(call, dims.iter().product())?;
        product.write(exec, &result, &mut y)?;
        narrow(call, 0, self.elem, &dims, bytemuck::cast_slice(&y))
    }

    fn describe(&self) -> String {
        format!("products of {}", self.numbers.data_type)
    }
}

impl Einsum {
    fn operand<'a>(
        &self,
        call: &Call<'a>,
        sizes: &Sizes,
        index: usize,
    ) -> Result<Operand<'a>, KernelError> {
        let (numbers, parts) = (self.numbers, sizes.operands[index].clone());
        let view = call.tensor(index)?;
        if self.elem == numbers.data_type {
            return Ok(Operand { numbers, data: dense_aligned(call, view)?, parts });
        }
        let wide = widen(call, view)?;
        let mut data = numbers.scratch(call, wide.len())?;
        data.copy_from_slice(bytemuck::cast_slice(&wide));
        Ok(Operand { numbers, data: Contents::Made(data), parts })
    }
}

/// The sizes of all axes, and the axes of all operands.
struct Sizes {
    all: Parts,
    operands: SmallVec<[Parts; 3]>,
    /// How many axes `...` stands for.
    ellipsis: usize,
}

impl Sizes {
    fn new(equation: &Equation, call: &Call<'_>) -> Result<Sizes, KernelError> {
        let mut sizes = Sizes { all: Parts::new(), operands: SmallVec::new(), ellipsis: 0 };
        for (index, term) in equation.operands.iter().enumerate() {
            let dims = call.tensor(index)?.dims();
            let covered = dims.len().checked_sub(term.labels.len());
            let Some(covered) = covered.filter(|n| *n == 0 || term.ellipsis.is_some()) else {
                fail!(
                    "input {index} has rank {}, but the equation has {} labels for it",
                    dims.len(),
                    term.labels.len()
                );
            };
            sizes.ellipsis = sizes.ellipsis.max(covered);
            let mut parts = Parts::new();
            let axes = sizes.axes(term, covered);
            for ((axis, size), step) in axes.iter().zip(dims).zip(shape::strides(dims)) {
                sizes.add(*axis, *size)?;
                let part = Part { axis: *axis, size: *size, step: step as usize };
                match parts.iter_mut().find(|part| part.axis == *axis) {
                    None => parts.push(part),
                    // The diagonal of both; one of size 1 is repeated.
                    Some(found) if found.size == 1 => *found = part,
                    Some(_) if *size == 1 => {}
                    Some(found) => found.step += part.step,
                }
            }
            sizes.operands.push(parts);
        }
        // Who has one element of an axis that has more repeats it, as who does not have the axis.
        let all = &sizes.all;
        for parts in &mut sizes.operands {
            parts.retain(|part| {
                let whole = all.iter().find(|all| all.axis == part.axis);
                whole.is_some_and(|whole| whole.size == part.size)
            });
        }
        Ok(sizes)
    }

    /// The axes of a term in whose `...` are so many.
    fn axes(&self, term: &Term, covered: usize) -> SmallVec<[Axis; 8]> {
        let mut axes: SmallVec<[Axis; 8]> = term.labels.iter().map(|c| u32::from(*c)).collect();
        if let Some(at) = term.ellipsis {
            let hidden = (0..covered as u32).rev().map(|place| u32::from(char::MAX) + place);
            axes.insert_many(at, hidden);
        }
        axes
    }

    fn add(&mut self, axis: Axis, size: usize) -> Result<(), KernelError> {
        match self.all.iter_mut().find(|part| part.axis == axis) {
            None => self.all.push(Part { axis, size, step: 0 }),
            Some(found) if found.size == size || size == 1 => {}
            Some(found) if found.size == 1 => found.size = size,
            Some(found) => match char::from_u32(axis).filter(|_| axis < u32::from(char::MAX)) {
                Some(label) => fail!("the label {label} has sizes {} and {size}", found.size),
                None => fail!("axes of ... have sizes {} and {size}", found.size),
            },
        }
        Ok(())
    }

    fn size(&self, axis: Axis) -> usize {
        self.all.iter().find(|part| part.axis == axis).map_or(1, |part| part.size)
    }
}

/// How matrices of a batch lie, in elements.
struct Layout {
    dims: Dims,
    /// Rows and columns, and from one to the next.
    rows: Part,
    cols: Part,
    batch_steps: SmallVec<[usize; 8]>,
}

impl Layout {
    /// Some axes are a batch of matrices, the next ones together are rows, and the last ones are
    /// columns.
    /// `None` if their elements do not lie at regular distances.
    fn of(batch: &[Part], rows: &[Part], cols: &[Part]) -> Option<Layout> {
        Some(Layout {
            dims: batch.iter().map(|part| part.size).collect(),
            rows: joined(rows)?,
            cols: joined(cols)?,
            batch_steps: batch.iter().map(|part| part.step).collect(),
        })
    }
}

/// Axes that lie as one.
fn joined(parts: &[Part]) -> Option<Part> {
    if parts.iter().any(|part| part.size == 0) {
        return Some(Part { axis: 0, size: 0, step: 1 });
    }
    let mut all = Part { axis: 0, size: 1, step: 1 };
    for part in parts.iter().rev().filter(|part| part.size != 1) {
        if all.size == 1 {
            all.step = part.step;
        } else if part.step != all.step * all.size {
            return None;
        }
        all.size *= part.size;
    }
    Some(all)
}

/// The axes of elements that lie one after the other.
fn dense_parts<'a>(parts: impl Iterator<Item = &'a Part>) -> Parts {
    let mut dense: Parts = parts.copied().collect();
    let mut step = 1;
    for part in dense.iter_mut().rev() {
        part.step = step;
        step *= part.size.max(1);
    }
    dense
}

/// How many elements there are.
fn elems<'a>(parts: impl Iterator<Item = &'a Part>) -> Result<usize, KernelError> {
    let sizes: Dims = parts.map(|part| part.size).collect();
    if sizes.len() > MAX_RANK {
        fail!("a product has {} axes; at most {MAX_RANK} are supported", sizes.len());
    }
    Ok(shape::elems(&sizes)?)
}

impl<'a> Operand<'a> {
    fn has(&self, axis: Axis) -> bool {
        self.find(axis).is_some()
    }

    fn find(&self, axis: Axis) -> Option<&Part> {
        self.parts.iter().find(|part| part.axis == axis)
    }

    /// The sum over all axes that are not `kept`.
    fn summed(
        self,
        call: &Call<'_>,
        kept: impl Fn(Axis) -> bool,
    ) -> Result<Operand<'a>, KernelError> {
        let (kept, gone): (Parts, Parts) =
            self.parts.iter().copied().partition(|part| kept(part.axis));
        if gone.is_empty() {
            return Ok(self);
        }
        let all = elems(self.parts.iter())?;
        let mut sums = self.numbers.scratch(call, elems(kept.iter())?)?;
        let dims: Dims = self.parts.iter().map(|part| part.size).collect();
        let flags: SmallVec<[bool; 8]> =
            self.parts.iter().map(|part| gone.iter().any(|gone| gone.axis == part.axis)).collect();
        let arithmetic = self.numbers.arithmetic;
        let dense = dense_parts(self.parts.iter());
        if self.parts.iter().map(|part| part.step).eq(dense.iter().map(|part| part.step)) {
            let x = &self.data[..all * self.numbers.width];
            arithmetic.sum_axes(call.exec, &dims, &flags, x, &mut sums)?;
        } else {
            let dense = self.laid(call, self.parts.iter())?;
            arithmetic.sum_axes(call.exec, &dims, &flags, &dense, &mut sums)?;
        }
        let (numbers, parts) = (self.numbers, dense_parts(kept.iter()));
        Ok(Operand { numbers, data: Contents::Made(sums), parts })
    }

    /// The elements in the order of these axes, one after the other.
    fn laid<'p>(
        &self,
        call: &Call<'_>,
        parts: impl Iterator<Item = &'p Part> + Clone,
    ) -> Result<Scratch<u8>, KernelError> {
        let mut dense = self.numbers.scratch(call, elems(parts.clone())?)?;
        self.copy(call.exec, parts, &mut dense)?;
        Ok(dense)
    }

    fn copy<'p>(
        &self,
        exec: &Exec<'_>,
        parts: impl Iterator<Item = &'p Part> + Clone,
        to: &mut [u8],
    ) -> Result<(), Ended> {
        if to.is_empty() {
            return Ok(());
        }
        let dims: Dims = parts.clone().map(|part| part.size).collect();
        let steps: SmallVec<[isize; 8]> = parts.map(|part| part.step as isize).collect();
        let places = Read { dims: &dims, start: 0, strides: &steps };
        places.copy(exec.pool, self.numbers.width, &self.data, to)
    }

    /// Writes the elements in the order of the result, which has no other axes.
    fn write(&self, exec: &Exec<'_>, result: &[Axis], to: &mut [u8]) -> Result<(), Ended> {
        let one = Part { axis: 0, size: 1, step: 0 };
        let parts: Parts = result.iter().map(|axis| *self.find(*axis).unwrap_or(&one)).collect();
        self.copy(exec, parts.iter(), to)
    }

    /// Matrices of these axes, where they lie or copied.
    fn matrices<'s>(
        &'s self,
        call: &Call<'_>,
        batch: &[Part],
        rows: &[Part],
        cols: &[Part],
    ) -> Result<(Contents<'s, u8>, Layout), KernelError> {
        if let Some(layout) = Layout::of(batch, rows, cols) {
            return Ok((Contents::Borrowed(&self.data), layout));
        }
        let all = batch.iter().chain(rows).chain(cols);
        let dense = dense_parts(all.clone());
        let ((batch, rest), count) = (dense.split_at(batch.len()), rows.len());
        match Layout::of(batch, &rest[..count], &rest[count..]) {
            Some(layout) => Ok((Contents::Made(self.laid(call, all)?), layout)),
            None => fail!("elements one after the other do not lie at regular distances"),
        }
    }

    /// Prepares the product with another operand, summed over axes of both that are not `kept`.
    fn times<'s>(
        &'s self,
        call: &Call<'_>,
        other: &'s Operand<'_>,
        result: &[Axis],
        kept: impl Fn(Axis) -> bool,
    ) -> Result<Times<'s>, KernelError> {
        let place = |part: &Part| result.iter().position(|axis| *axis == part.axis);
        let pick = |parts: &Parts, is_in: &dyn Fn(Axis) -> bool| {
            let mut picked: Parts = parts.iter().filter(|part| is_in(part.axis)).copied().collect();
            // As in the result, which needs no copy then.
            picked.sort_by_key(place);
            picked
        };
        let batch = pick(&self.parts, &|axis| other.has(axis) && kept(axis));
        let gone = pick(&self.parts, &|axis| other.has(axis) && !kept(axis));
        let rows = pick(&self.parts, &|axis| !other.has(axis));
        let cols = pick(&other.parts, &|axis| !self.has(axis));
        let mut made = dense_parts(batch.iter().chain(&rows).chain(&cols));
        let numbers = self.numbers;
        if gone.is_empty() {
            // Elements may be written in any order.
            made.sort_by_key(place);
            let made = dense_parts(made.iter());
            let steps = |operand: &Operand<'_>| -> Dims {
                made.iter()
                    .map(|made| operand.find(made.axis).map_or(0, |part| part.step))
                    .collect()
            };
            let (a_steps, b_steps) = (steps(self), steps(other));
            let factors = Factors::Stepped { a: &self.data, a_steps, b: &other.data, b_steps };
            return Ok(Times { numbers, made, factors });
        }
        // The same axes where they lie in the other operand.
        let there = |parts: &[Part]| -> Parts {
            parts.iter().filter_map(|part| other.find(part.axis)).copied().collect()
        };
        // Where the result has columns before the last rows, matrices of the other operand are the
        // left ones, each of which serves all rows before.
        let first = cols.iter().map(place).min();
        let (before, after) = rows.split_at(
            rows.iter().take_while(|part| first.is_none_or(|first| place(part) < first)).count(),
        );
        let exchanged = dense_parts(batch.iter().chain(before).chain(&cols).chain(after));
        let exchanges = !after.is_empty() && are_in_order(&exchanged, result);
        let (a, a_layout, b, b_layout) = if exchanges {
            made = exchanged;
            let repeated = before.iter().map(|part| Part { step: 0, ..*part });
            let left: Parts = there(&batch).into_iter().chain(repeated).collect();
            let right: Parts = batch.iter().chain(before).copied().collect();
            let (a, a_layout) = other.matrices(call, &left, &cols, &there(&gone))?;
            let (b, b_layout) = self.matrices(call, &right, &gone, after)?;
            (a, a_layout, b, b_layout)
        } else {
            let (a, a_layout) = self.matrices(call, &batch, &rows, &gone)?;
            let (b, b_layout) = other.matrices(call, &there(&batch), &there(&gone), &cols)?;
            (a, a_layout, b, b_layout)
        };
        if elems(made.iter())? > 0 {
            let a = Matrices { data: &a, layout: &a_layout };
            let b = Matrices { data: &b, layout: &b_layout };
            numbers.arithmetic.reserve(call, a, b)?;
        }
        let factors = Factors::Matrices { a, a_layout, b, b_layout };
        Ok(Times { numbers, made, factors })
    }
}

/// Whether elements lie in the order of the axes of the result, apart from axes of one element.
fn are_in_order(made: &Parts, result: &[Axis]) -> bool {
    let long = made.iter().filter(|part| part.size != 1);
    let axes: SmallVec<[Axis; 8]> = long.map(|part| part.axis).collect();
    axes.iter().eq(result.iter().filter(|axis| axes.contains(axis)))
}

/// A product of two operands that is ready to be computed.
struct Times<'s> {
    numbers: Numbers,
    /// Axes of the result, one after the other.
    made: Parts,
    factors: Factors<'s>,
}

/// Factors of a product, and where their elements are.
#[allow(clippy::large_enum_variant)] // A box would allocate memory in each run.
enum Factors<'s> {
    /// Each element is multiplied with one of the other factor. Steps are along the axes of the
    /// result.
    Stepped {
        a: &'s [u8],
        a_steps: Dims,
        b: &'s [u8],
        b_steps: Dims,
    },
    Matrices {
        a: Contents<'s, u8>,
        a_layout: Layout,
        b: Contents<'s, u8>,
        b_layout: Layout,
    },
}

impl Times<'_> {
    fn write(&self, exec: &Exec<'_>, y: &mut [u8]) -> Result<(), Ended> {
        if y.is_empty() {
            return Ok(());
        }
        let arithmetic = self.numbers.arithmetic;
        match &self.factors {
            Factors::Matrices { a, a_layout, b, b_layout } => {
                let a = Matrices { data: a, layout: a_layout };
                let b = Matrices { data: b, layout: b_layout };
                arithmetic.multiply_matrices(exec, a, b, y)
            }
            Factors::Stepped { a, a_steps, b, b_steps } => {
                let dims: Dims = self.made.iter().map(|part| part.size).collect();
                let a = Stepped { data: a, steps: a_steps };
                let b = Stepped { data: b, steps: b_steps };
                arithmetic.multiply(exec, &dims, a, b, y)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sardonyx_ops::AttrValue::String as Word;
    use sardonyx_ops::Equation;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, tensor};

    /// After the definition: all combinations of all labels.
    fn naive(equation: &str, dims: &[&[usize]], data: &[Vec<f64>]) -> (Vec<usize>, Vec<f64>) {
        let equation = Equation::parse(equation).unwrap();
        let axes = |term: &sardonyx_ops::Term, rank: usize| -> Vec<String> {
            let mut axes: Vec<String> = term.labels.iter().map(char::to_string).collect();
            if let Some(at) = term.ellipsis {
                let hidden = (0..rank - axes.len()).rev().map(|place| format!("...{place}"));
                axes.splice(at..at, hidden);
            }
            axes
        };
        let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
        let mut hidden = 0;
        for (term, dims) in equation.operands.iter().zip(dims) {
            hidden = hidden.max(dims.len() - term.labels.len());
            for (axis, size) in axes(term, dims.len()).into_iter().zip(*dims) {
                let known = sizes.entry(axis).or_insert(1);
                if *size != 1 {
                    *known = *size;
                }
            }
        }
        let result = axes(&equation.result, equation.result.labels.len() + hidden);
        let out: Vec<usize> = result.iter().map(|axis| sizes[axis]).collect();
        let mut y = vec![0.0; out.iter().product()];
        for number in 0..sizes.values().product() {
            let mut rest: usize = number;
            let mut at: BTreeMap<&str, usize> = BTreeMap::new();
            for (axis, size) in &sizes {
                at.insert(axis, rest % size);
                rest /= size;
            }
            let index = |axes: &[String], dims: &[usize]| {
                let places = axes.iter().zip(dims);
                places.fold(0, |index, (axis, size)| {
                    index * size + if *size == 1 { 0 } else { at[axis.as_str()] }
                })
            };
            let factors = equation.operands.iter().zip(dims).zip(data);
            y[index(&result, &out)] += factors
                .map(|((term, dims), data)| data[index(&axes(term, dims.len()), dims)])
                .product::<f64>();
        }
        (out, y)
    }

    const CASES: &[(&str, &[&[usize]])] = &[
        ("ij->ji", &[&[2, 3]]),
        ("ij", &[&[2, 3]]),
        ("ba", &[&[2, 3]]),
        ("ii->i", &[&[3, 3]]),
        ("ii", &[&[3, 3]]),
        ("iji->j", &[&[3, 2, 3]]),
        ("ij->", &[&[2, 3]]),
        ("ij->i", &[&[2, 3]]),
        ("...ii->...i", &[&[2, 4, 3, 3]]),
        ("i,i", &[&[4], &[4]]),
        ("i,j->ij", &[&[2], &[3]]),
        ("i,j->ji", &[&[2], &[3]]),
        ("ij,ij->ij", &[&[2, 3], &[2, 3]]),
        ("ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("ij,jk", &[&[2, 3], &[3, 4]]),
        ("ij,jk->ki", &[&[2, 3], &[3, 4]]),
        ("ij,kj->ik", &[&[2, 3], &[4, 3]]),
        ("bij,bjk->bik", &[&[2, 2, 3], &[2, 3, 4]]),
        ("bij,jk->bik", &[&[2, 2, 3], &[3, 4]]),
        ("bhid,bhjd->bhij", &[&[2, 2, 3, 5], &[2, 2, 4, 5]]),
        ("bihd,bjhd->bhij", &[&[2, 3, 2, 5], &[2, 4, 2, 5]]),
        ("abc,cd,def->abef", &[&[2, 1, 3], &[3, 4], &[4, 2, 3]]),
        ("ij,jk,kl->il", &[&[2, 3], &[3, 4], &[4, 5]]),
        ("ai,bi,ci->abc", &[&[2, 3], &[3, 3], &[4, 3]]),
        ("i,i,i->i", &[&[3], &[3], &[3]]),
        ("ij,k->", &[&[2, 3], &[4]]),
        ("...ij,...jk->...ik", &[&[2, 1, 2, 3], &[4, 3, 2]]),
        ("...i,...i->...", &[&[2, 3], &[3]]),
        ("i...,i...->...", &[&[2, 3], &[2, 3]]),
        ("ij,jk->ik", &[&[2, 1], &[3, 4]]),
        ("ij,ij->j", &[&[2, 3], &[1, 3]]),
        (" i j , j k -> i k ", &[&[2, 3], &[3, 4]]),
        (",ij->ij", &[&[], &[2, 3]]),
        ("->", &[&[]]),
        ("ij,jk->ik", &[&[2, 0], &[0, 4]]),
        ("ij->i", &[&[2, 0]]),
        ("aik,kj->aij", &[&[2, 0, 3], &[3, 4]]),
        ("aij,ijb->ab", &[&[2, 3, 0], &[3, 0, 4]]),
        ("ij,jk->ik", &[&[0, 3], &[3, 4]]),
        ("abcd,cbe,da->e", &[&[2, 3, 2, 4], &[2, 3, 5], &[4, 2]]),
    ];

    #[test]
    fn equations() {
        for (equation, dims) in CASES {
            let numbers = |n: usize, by: usize| (0..n).map(|i| ((i * by) % 4) as f64).collect();
            let data: Vec<Vec<f64>> = dims
                .iter()
                .enumerate()
                .map(|(i, dims)| numbers(dims.iter().product(), 2 * i + 3))
                .collect();
            let (out, expected) = naive(equation, dims, &data);
            let attributes = [("equation", Word(equation.as_bytes().into()))];
            let by = |convert: &dyn Fn(&[usize], &[f64]) -> Tensor| {
                let inputs: Vec<Tensor> =
                    dims.iter().zip(&data).map(|(dims, data)| convert(dims, data)).collect();
                let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
                let found = run("Einsum", &attributes, &inputs, 1).unwrap();
                assert_eq!(found[0], convert(&out, &expected), "{equation}");
            };
            // Small integers are exact in all types.
            by(&|dims, data| tensor(dims, &data.iter().map(|x| *x as f32).collect::<Vec<f32>>()));
            by(&|dims, data| tensor(dims, data));
            by(&|dims, data| tensor(dims, &data.iter().map(|x| *x as i64).collect::<Vec<i64>>()));
            by(&|dims, data| {
                let wrapped = data.iter().map(|x| *x as i64 as u8);
                tensor(dims, &wrapped.collect::<Vec<u8>>())
            });
            by(&|dims, data| {
                let narrow = data.iter().map(|x| half::f16::from_f64(*x));
                tensor(dims, &narrow.collect::<Vec<half::f16>>())
            });
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (a, b) = (tensor(&[2, 3], &[1f32; 6]), tensor(&[4, 5], &[1f32; 20]));
        for (equation, inputs, refusal) in [
            ("ij,jk->ik", &[&a, &b][..], "the label j has sizes 3 and 4"),
            ("ij", &[&a, &b], "the equation has 1 operands, the node has 2 inputs"),
            ("ijk->i", &[&a], "input 0 has rank 2, but the equation has 3 labels for it"),
            ("ij->k", &[&a], "no operand has the label k of the result"),
            ("ij->ii", &[&a], "the result has the label i twice"),
            ("i1->i", &[&a], "'1' in the equation is not a label"),
            ("...,...->...", &[&a, &b], "axes of ... have sizes 2 and 4"),
        ] {
            let inputs: Vec<Option<&Tensor>> = inputs.iter().map(|x| Some(*x)).collect();
            let found =
                run("Einsum", &[("equation", Word(equation.as_bytes().into()))], &inputs, 1);
            assert_eq!(found.unwrap_err(), refusal, "{equation}");
        }
    }
}
