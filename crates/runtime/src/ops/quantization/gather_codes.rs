//! Rows of a table of few bits, as numbers: Gather of a constant that is dequantized, which no run
//! widens as a whole. A table that a product reads too, as the head of a language model reads that
//! of its tokens, is packed once for both.

use sardonyx_kernels::gemm::FewBits;
use sardonyx_kernels::quantized::{Codes, Slices, Zeros};
use sardonyx_tensor::{DataType, Dims, TensorView};

use super::scales;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::ops::narrow::narrow;
use crate::program::{self, CodeOrder, CodeScales, QuantizedLayout};
use crate::weights::Packed;

const INDICES: usize = 0;
const TABLE: usize = 1;
const SCALES: usize = 2;
const ZEROS: usize = 3;

/// Selects the kernel of a look-up in a table of few bits.
pub(crate) fn select(
    site: &Site<'_>,
    gather: &program::GatherCodes,
) -> Result<Selected, BindError> {
    let layout = gather.layout;
    let packed = if gather.is_tied { site.pack_few_bits(layout) } else { None };
    let is_packed = packed.is_some();
    let given = [TABLE, SCALES, ZEROS].into_iter().filter(|index| site.has_input(*index));
    let kernel = GatherCodes { elem: gather.elem, layout, packed };
    Ok(Selected::new(kernel).with_packed(given.filter(|_| is_packed)))
}

struct GatherCodes {
    elem: DataType,
    layout: QuantizedLayout,
    /// The table as the right operand of a product.
    packed: Option<Packed<FewBits>>,
}

impl GatherCodes {
    /// Returns the elements of a tensor of codes.
    fn codes<'a>(&self, view: &TensorView<'a>, count: usize) -> Result<Codes<'a>, KernelError> {
        let QuantizedLayout { bits, signed, .. } = self.layout;
        let Some(bytes) = view.contiguous_bytes() else {
            fail!("the elements are not dense");
        };
        let wanted = count.checked_mul(bits).map(|bits| bits.div_ceil(8));
        if wanted != Some(bytes.len()) {
            fail!("{count} elements of {bits} bits in {} bytes", bytes.len());
        }
        Ok(Codes { bytes, bits, signed })
    }

    /// Gathers rows of a table that is not packed.
    fn gather(&self, call: &Call<'_>, places: &[i64], y: &mut [f32]) -> Result<(), KernelError> {
        let QuantizedLayout { depth, cols, block, order, .. } = self.layout;
        let all = cols * depth;
        let (cut, block) = match order {
            CodeOrder::Matrix { scales: CodeScales::One, .. } => ([1, all, 1], all),
            CodeOrder::Matrix { scales: CodeScales::Columns, .. } => ([cols, depth, 1], depth),
            CodeOrder::Matrix { .. } | CodeOrder::Columns => ([cols, depth, 1], block),
        };
        let count = cut[0] * cut[1].div_ceil(block);
        let scales = scales(call.tensor(SCALES)?)?;
        if scales.len() != count {
            fail!("{} scales for {count} blocks", scales.len());
        }
        let zeros = match call.maybe_tensor(ZEROS)? {
            Some(view) => Zeros::Dense(self.codes(view, count)?),
            None => Zeros::One(0.0),
        };
        let codes = self.codes(call.tensor(TABLE)?, all)?;
        let taken = [1, cols, depth];
        let slices = Slices { codes, taken, cut, block, scales, zeros };
        Ok(slices.gather(call.exec, places, y)?)
    }
}

impl Kernel for GatherCodes {
    fn describe(&self) -> String {
        let QuantizedLayout { bits, block, .. } = self.layout;
        let form = if self.packed.is_some() { "packed with a product, " } else { "" };
        format!("{form}{bits} bits in blocks of {block}")
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let QuantizedLayout { depth, cols, .. } = self.layout;
        let places = call.ints(INDICES)?;
        let range = -(cols as i64)..cols as i64;
        if let Some(index) = places.iter().find(|index| !range.contains(index)) {
            fail!("axis 0: index {index} is outside of a dimension of size {cols}");
        }
        let mut dims: Dims = call.tensor(INDICES)?.dims().into();
        dims.push(depth);
        let mut y = call.scratch::<f32>(places.len() * depth)?;
        match &self.packed {
            Some(packed) => packed.get()?.gather_columns(call.exec, &places, &mut y)?,
            None => self.gather(call, &places, &mut y)?,
        }
        narrow(call, 0, self.elem, &dims, &y)
    }
}
