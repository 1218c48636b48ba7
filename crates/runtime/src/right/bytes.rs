//! Constant matrices of integers of 8 bits as the right operands of products.

use sardonyx_kernels::Pool;
use sardonyx_kernels::gemm::{ByteMatrix, Bytes, MatRef, PackedB};
use sardonyx_tensor::DataType;

use super::{Right, with_rows};
use crate::kernel::Site;
use crate::precision::Precision;
use crate::weights::{Form, Weight};

impl Site<'_> {
    /// Packs a constant matrix of integers of 8 bits as a right operand.
    pub(crate) fn pack_right_of_bytes(
        &self,
        index: usize,
        transposed: bool,
    ) -> Option<Right<Bytes>> {
        self.pack_bytes(&self.weight(index)?, transposed)
    }

    /// Packs the transposes of the rows of a constant of integers of 8 bits, the same number of
    /// rows for each of `groups` groups. A row is all that an element of the first axis has.
    pub(crate) fn pack_groups_of_bytes(
        &self,
        index: usize,
        groups: usize,
    ) -> Option<Vec<Right<Bytes>>> {
        let all = self.weight(index)?;
        let (rows, others) = all.dims.split_first()?;
        let cols = others.iter().try_fold(1usize, |cols, size| cols.checked_mul(*size))?;
        if groups == 0 || !rows.is_multiple_of(groups) {
            return None;
        }
        let each = rows / groups;
        let pack = |rows: &Weight<'_>| self.pack_bytes(rows, true);
        let group = |group: usize| with_rows(&all, group * each..(group + 1) * each, cols, pack);
        (0..groups).map(group).collect()
    }

    fn pack_bytes(&self, b: &Weight<'_>, transposed: bool) -> Option<Right<Bytes>> {
        let isa = self.isa;
        let signed = match b.data_type {
            DataType::Int8 => true,
            DataType::Uint8 => false,
            _ => return None,
        };
        let form = Form::Right { isa, precision: Precision::Exact, transposed };
        self.pack(b, form, Bytes::new(isa, signed), |constant, [rows, cols]| {
            let bits = match constant.fill() {
                Some(fill) => MatRef::new(fill, rows, cols, 0, 0),
                None => MatRef::row_major(constant.read_all(), rows, cols),
            };
            let bits = if transposed { bits.transpose() } else { bits };
            Pool::run_to_end(|| PackedB::from_bytes(isa, ByteMatrix { bits, signed }))
        })
    }
}
