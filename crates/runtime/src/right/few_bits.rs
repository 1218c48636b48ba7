//! Constant matrices of few bits as the right operands of products: packed with their scales and
//! zero points, in the bits that they have.

use std::convert::Infallible;

use sardonyx_kernels::Pool;
use sardonyx_kernels::gemm::{BlockMatrix, FewBits, PerBlock};
use sardonyx_kernels::quantized::Codes;
use sardonyx_tensor::{CastOptions, DataType, Tensor, cast};

use crate::kernel::Site;
use crate::program::{CodeOrder, CodeScales, QuantizedLayout};
use crate::weights::{Elements, Form, Packed};

/// Value: position of the elements.
const B: usize = 1;
/// Value: position of the scales.
const SCALES: usize = 2;
/// Value: position of the zero points.
const ZEROS: usize = 3;
/// Value: position of the blocks of rows.
const GROUPS: usize = 4;

impl Site<'_> {
    /// Packs a constant matrix of few bits with its scales, zero points and groups, the operands
    /// after it. `None` if one of them is not a constant, they do not fit each other or the packed
    /// form, or without memory.
    pub(crate) fn pack_few_bits(&self, layout: QuantizedLayout) -> Option<Packed<FewBits>> {
        let given = [ZEROS, GROUPS].into_iter().filter(|index| self.has_input(*index));
        let operands = [B, SCALES].into_iter().chain(given);
        let are_constant = operands.clone().all(|index| self.weight(index).is_some());
        if !are_constant {
            return None;
        }
        if self.weights.looks() {
            return Some(Packed::Outline);
        }
        let QuantizedLayout { depth, cols, bits, signed, block, order: code_order } = layout;
        let b = self.weight(B)?;
        let Elements::All(elements) = b.elements else { return None };
        let places = Places::new(layout)?;
        if elements.bytes().len() != places.codes.checked_mul(bits)?.div_ceil(8) {
            return None;
        }
        let scales = self.numbers_of(SCALES)?;
        let order = if self.has_input(GROUPS) { self.order_of(layout)? } else { Vec::new() };
        let zero = match code_order {
            CodeOrder::Columns => (1u32 << (bits - 1)) as f32,
            CodeOrder::Matrix { .. } => 0.0,
        };
        let zeros = match code_order {
            _ if !self.has_input(ZEROS) => vec![zero],
            CodeOrder::Columns => self.zeros_of(layout)?,
            CodeOrder::Matrix { .. } => self.numbers_of(ZEROS)?,
        };
        let per_block = |numbers| {
            let [block_stride, col_stride] = places.scale_strides;
            PerBlock { numbers, block_stride, col_stride }
        };
        let matrix = BlockMatrix {
            codes: Codes { bytes: elements.bytes(), bits, signed },
            depth,
            cols,
            step_stride: places.strides[0],
            col_stride: places.strides[1],
            block,
            scales: per_block(&scales),
            zeros: match &zeros[..] {
                one @ [_] => PerBlock { numbers: one, block_stride: 0, col_stride: 0 },
                zeros => per_block(zeros),
            },
            order: &order,
        };
        let is_whole = scales.len() == places.scales && [1, places.scales].contains(&zeros.len());
        if !is_whole || !matrix.can_pack() {
            return None;
        }
        let name = |index: usize| match self.weight(index)?.elements {
            Elements::All(tensor) | Elements::Fill(tensor) => Some(tensor.buffer()?.name()),
            Elements::Unmade => None,
        };
        let beside = [SCALES, ZEROS, GROUPS].map(name);
        let form = Form::FewBits { isa: self.isa, layout, beside };
        let bytes = FewBits::bytes_of(self.isa, bits, depth, cols, block)?;
        let packed = self.weights.find_or_pack(&b, form, bytes, |constant| {
            let codes = Codes { bytes: constant.read_all(), ..matrix.codes };
            let matrix = BlockMatrix { codes, ..matrix };
            Ok::<_, Infallible>(Pool::run_to_end(|| FewBits::new(self.isa, &matrix)))
        });
        match packed {
            Ok(packed) => packed,
            Err(never) => match never {},
        }
    }

    /// Returns the elements of a constant as floats.
    fn numbers_of(&self, index: usize) -> Option<Vec<f32>> {
        let weight = self.weight(index)?;
        match weight.elements {
            Elements::All(tensor) => floats(tensor),
            Elements::Fill(one) => Some(vec![*floats(one)?.first()?; weight.len()]),
            Elements::Unmade => None,
        }
    }

    /// Returns the zero point of each block: numbers, or codes of which each column begins with a
    /// byte of its own.
    fn zeros_of(&self, layout: QuantizedLayout) -> Option<Vec<f32>> {
        let Elements::All(tensor) = self.weight(ZEROS)?.elements else { return None };
        if tensor.data_type() != DataType::Uint8 {
            return floats(tensor);
        }
        let QuantizedLayout { depth, cols, bits, block, .. } = layout;
        let blocks = depth.div_ceil(block);
        let row = (blocks * bits).div_ceil(8);
        let bytes = tensor.bytes();
        if bytes.len() != cols.checked_mul(row)? {
            return None;
        }
        let zeros = bytes.chunks_exact(row.max(1)).flat_map(|bytes| {
            let codes = Codes { bytes, bits, signed: false };
            (0..blocks).map(move |block| codes.get(block) as f32)
        });
        Some(zeros.collect())
    }

    /// Returns the row at each place of the matrix when rows are sorted by their blocks; none if
    /// these are whole blocks already.
    fn order_of(&self, layout: QuantizedLayout) -> Option<Vec<u32>> {
        let Elements::All(tensor) = self.weight(GROUPS)?.elements else { return None };
        let groups = tensor.view();
        let groups = groups.as_slice::<i32>().ok()?.get(..layout.depth)?;
        let mut order: Vec<u32> = (0..u32::try_from(layout.depth).ok()?).collect();
        order.sort_by_key(|row| groups[*row as usize]);
        let fits = order.iter().enumerate().all(|(place, row)| {
            let group = usize::try_from(groups[*row as usize]);
            group.is_ok_and(|group| group == place / layout.block)
        });
        if !fits {
            return None;
        }
        Some(if order.is_sorted() { Vec::new() } else { order })
    }
}

/// Strides of the elements of a matrix of few bits, and of their scales.
struct Places {
    /// Elements.
    codes: usize,
    /// Distances of elements from row to row and from column to column.
    strides: [usize; 2],
    scales: usize,
    /// Distances of scales from block to block and from column to column.
    scale_strides: [usize; 2],
}

impl Places {
    /// Returns those of a layout; `None` if their number overflows.
    fn new(layout: QuantizedLayout) -> Option<Places> {
        let QuantizedLayout { depth, cols, block, order, .. } = layout;
        let blocks = depth.div_ceil(block);
        let whole = cols.checked_mul(blocks)?;
        let (transposed, scales) = match order {
            CodeOrder::Columns => {
                return Some(Places {
                    codes: whole.checked_mul(block)?,
                    strides: [1, blocks * block],
                    scales: whole,
                    scale_strides: [1, blocks],
                });
            }
            CodeOrder::Matrix { transposed, scales } => (transposed, scales),
        };
        let (scales, scale_strides) = match scales {
            CodeScales::One => (1, [0, 0]),
            CodeScales::Columns => (cols, [0, 1]),
            CodeScales::Blocks if transposed => (whole, [1, blocks]),
            CodeScales::Blocks => (whole, [cols, 1]),
        };
        let strides = if transposed { [1, depth] } else { [cols, 1] };
        Some(Places { codes: depth.checked_mul(cols)?, strides, scales, scale_strides })
    }
}

/// Returns the elements of a tensor as floats.
fn floats(tensor: &Tensor) -> Option<Vec<f32>> {
    cast(tensor, DataType::Float, CastOptions::default()).ok()?.to_vec::<f32>().ok()
}
