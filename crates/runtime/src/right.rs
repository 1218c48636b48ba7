//! Constant matrices as the right operands of products: packed once, in the form that type and
//! precision decide, and shared between sessions.

#[cfg(feature = "quantization")]
mod bytes;
#[cfg(feature = "quantization")]
mod few_bits;

use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;

use sardonyx_kernels::gemm::{Elements, LeMatrix, ManyRows, PackedB, Storage};
use sardonyx_kernels::{Isa, Pool};
use sardonyx_tensor::{DataType, Tensor};

use crate::error::KernelError;
use crate::kernel::Site;
use crate::precision::{Precision, count_multiply_adds};
use crate::weights::{self, Form, Packed, Unpacked, Weight};

/// Constant matrix as the right operand of products.
pub(crate) struct Right<E: Elements = Storage> {
    pub(crate) depth: usize,
    pub(crate) cols: usize,
    elements: E,
    precision: Precision,
    isa: Isa,
    panels: Packed<PackedB<E>>,
}

impl<E: Elements> Right<E> {
    /// Returns the packed matrix; fails if the session is only inspected.
    pub(crate) fn panels(&self) -> Result<&PackedB<E>, KernelError> {
        self.shared_panels().map(|panels| &**panels)
    }

    /// Returns the packed matrix as a shared pointer.
    pub(crate) fn shared_panels(&self) -> Result<&Arc<PackedB<E>>, KernelError> {
        self.panels.get()
    }
}

impl Site<'_> {
    /// Packs a constant matrix of floats, or its transpose, as the right operand of products.
    /// `None` if the input is not such a matrix, for types without packed form, or without memory.
    pub(crate) fn pack_right(&self, index: usize, transposed: bool) -> Option<Right> {
        self.pack_matrix(&self.weight(index)?, transposed)
    }

    /// Packs the transpose of some rows of a constant like [`Site::pack_right`]; rows are along its
    /// last axis.
    pub(crate) fn pack_right_of_rows(&self, index: usize, rows: Range<usize>) -> Option<Right> {
        let all = self.weight(index)?;
        let cols = *all.dims.last()?;
        with_rows(&all, rows, cols, |rows| self.pack_matrix(rows, true))
    }

    fn pack_matrix(&self, b: &Weight<'_>, transposed: bool) -> Option<Right> {
        let isa = self.isa;
        let storage = storage(b.data_type)?;
        let [rows, cols] = *b.dims else { return None };
        let sizes = if transposed { [cols, rows] } else { [rows, cols] };
        let is_small = count_multiply_adds(self.shape(0), sizes) <= self.exact_up_to;
        let precision = if is_small { Precision::Exact } else { self.precision };
        let form = Form::Right { isa, precision, transposed };
        self.pack(b, form, storage, |constant, [rows, cols]| {
            let bytes_of = |rows: usize| rows.saturating_mul(cols.saturating_mul(storage.bytes()));
            let next_rows = |rows: Range<usize>| {
                constant.announce(bytes_of(rows.start)..bytes_of(rows.end));
            };
            let matrix = |bytes| LeMatrix::row_major(bytes, storage, rows, cols);
            let matrix = match (constant.fill(), transposed) {
                (Some(fill), false) => LeMatrix::from_element(fill, storage, rows, cols),
                (Some(fill), true) => LeMatrix::from_element(fill, storage, cols, rows),
                (None, false) => matrix(constant.read_all()),
                (None, true) => {
                    matrix(constant.read_in_order()).transpose().with_column_callback(&next_rows)
                }
            };
            Pool::run_to_end(|| match precision {
                Precision::Exact => PackedB::from_le(isa, &matrix),
                Precision::Fast => PackedB::rounded_from_le(isa, &matrix),
            })
        })
    }

    /// Packs a constant matrix in a form; `pack` receives its elements and dimensions.
    fn pack<E: Elements>(
        &self,
        b: &Weight<'_>,
        form: Form,
        elements: E,
        pack: impl FnOnce(Unpacked<'_>, [usize; 2]) -> PackedB<E>,
    ) -> Option<Right<E>> {
        let [rows, cols] = *b.dims else { return None };
        let Form::Right { isa, precision, transposed } = form else { return None };
        let (depth, width) = if transposed { (cols, rows) } else { (rows, cols) };
        let bytes = PackedB::bytes_of(isa, elements, depth, width)?;
        let pack = |constant: Unpacked<'_>| Ok::<_, Infallible>(pack(constant, [rows, cols]));
        let panels = match self.weights.find_or_pack(b, form, bytes, pack) {
            Ok(panels) => panels?,
            Err(never) => match never {},
        };
        Some(Right { depth, cols: width, elements, precision, isa, panels })
    }
}

/// Passes some rows of a constant to `f`, as a matrix with `cols` columns.
fn with_rows<R>(
    all: &Weight<'_>,
    rows: Range<usize>,
    cols: usize,
    f: impl FnOnce(&Weight<'_>) -> Option<R>,
) -> Option<R> {
    let dims = [rows.len(), cols];
    let row = all.data_type.storage_bytes(cols)?;
    let part;
    let elements = match all.elements {
        weights::Elements::All(tensor) => {
            let bytes = rows.start.checked_mul(row)?..rows.end.checked_mul(row)?;
            let bytes = tensor.buffer()?.slice(bytes).ok()?;
            part = Tensor::from_buffer(all.data_type, dims, bytes).ok()?;
            weights::Elements::All(&part)
        }
        other => other,
    };
    f(&Weight { dims: &dims, elements, ..*all })
}

/// Returns the storage of a type in packed matrices; `None` for types without packed form.
fn storage(elem: DataType) -> Option<Storage> {
    match elem {
        DataType::Float => Some(Storage::F32),
        DataType::Float16 => Some(Storage::F16),
        DataType::Bfloat16 => Some(Storage::Bf16),
        _ => None,
    }
}

/// Describes a product's right operand, for profiles and `explain`.
pub(crate) fn describe_right(packed: Option<&Right>) -> &'static str {
    let Some(right) = packed else {
        return "plain B";
    };
    let (storage, many_rows) = match right.panels.get() {
        Ok(packed) => (packed.storage(), packed.many_rows()),
        // The kind of 16-bit float depends on the elements.
        Err(_) => match (right.elements, right.precision) {
            (Storage::F32, Precision::Fast) if right.isa != Isa::Portable => {
                return "packed B in 16 bits";
            }
            (storage, _) => (storage, ManyRows::Widened),
        },
    };
    if right.elements == Storage::F32 && right.precision == Precision::Exact {
        return match storage {
            Storage::F32 => "packed B",
            Storage::F16 => "packed B, each float a float16",
            Storage::Bf16 => "packed B, each float a bfloat16",
        };
    }
    match (storage, many_rows) {
        (Storage::F32, _) => "packed B",
        (Storage::F16, ManyRows::Widened) => "packed B in float16",
        (Storage::Bf16, ManyRows::Widened) => "packed B in bfloat16",
        (Storage::F16, ManyRows::Pairs) => "packed B in float16, many rows in bfloat16",
        (Storage::Bf16, ManyRows::Pairs) => "packed B and many rows in bfloat16",
        (Storage::F16, ManyRows::Tiles) => "packed B in float16, many rows in bfloat16 by AMX",
        (Storage::Bf16, ManyRows::Tiles) => "packed B and many rows in bfloat16 by AMX",
    }
}
