//! GatherBlockQuantized: gathers slices of a tensor of few bits and dequantizes them.

use sardonyx_kernels::quantized::{Slices, Zeros};
use sardonyx_tensor::shape::normalize_axis;
use sardonyx_tensor::{DataType, Dims};

use super::codes::codes;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::narrow::narrow;
use crate::ops::quantization::{scales, split_at_axis};

const DATA: usize = 0;
const INDICES: usize = 1;
const SCALES: usize = 2;
const ZEROS: usize = 3;

/// Binds `GatherBlockQuantized`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (data, elem) = (site.elem(DATA)?, site.elem(SCALES)?);
    if !matches!(data, DataType::Uint8 | DataType::Uint4 | DataType::Int4) {
        return site.unsupported_type(data);
    }
    if !matches!(elem, DataType::Float | DataType::Float16 | DataType::Bfloat16) {
        return site.unsupported_type(elem);
    }
    let bits = site.need_int("bits")?;
    let bits = match (data, bits) {
        (DataType::Uint8, 2 | 4 | 8) => bits as usize,
        (DataType::Uint8, _) => {
            return Err(BindError::Invalid(format!("attribute 'bits' is {bits}, not 2, 4 or 8")));
        }
        _ => 4,
    };
    let block = site.need_int("block_size")?;
    let Some(block) = usize::try_from(block).ok().filter(|block| *block > 0) else {
        return Err(BindError::Invalid(format!("attribute 'block_size' is {block}")));
    };
    Ok(Box::new(GatherBlockQuantized {
        elem,
        bits,
        block,
        gather_axis: site.need_int("gather_axis")?,
        quantize_axis: site.need_int("quantize_axis")?,
    }))
}

struct GatherBlockQuantized {
    elem: DataType,
    /// Bits of an element, fewer than 8 where a byte holds several.
    bits: usize,
    block: usize,
    gather_axis: i64,
    quantize_axis: i64,
}

impl Kernel for GatherBlockQuantized {
    fn describe(&self) -> String {
        format!("{} bits in blocks of {}", self.bits, self.block)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(DATA)?;
        let mut dims: Dims = data.dims().into();
        let rank = dims.len();
        let is_bytes = data.data_type() == DataType::Uint8;
        let axis = normalize_axis(self.gather_axis, rank)?;
        let cut = normalize_axis(self.quantize_axis, rank)?;
        if is_bytes && self.bits < 8 {
            if cut + 1 != rank || axis + 1 == rank {
                fail!("packed elements with blocks or a gather axis other than the last axis");
            }
            dims[cut] *= 8 / self.bits;
        }
        let (taken, cut_at) = (split_at_axis(&dims, axis), split_at_axis(&dims, cut));
        let blocks = dims[cut].div_ceil(self.block);
        let mut scale_dims = dims.clone();
        scale_dims[cut] = blocks;
        if call.tensor(SCALES)?.dims() != &scale_dims[..] {
            fail!("scales are {:?}, not {:?}", call.tensor(SCALES)?.dims(), &scale_dims[..]);
        }
        let scales = scales(call.tensor(SCALES)?)?;
        let zeros = match call.maybe_tensor(ZEROS)? {
            None if is_bytes => Zeros::One((1 << (self.bits - 1)) as f32),
            None => Zeros::One(0.0),
            Some(view) => {
                let codes = codes(view, self.bits)?;
                // Packed zero points start at a new byte for each row of blocks.
                let row = if is_bytes { blocks.max(1) } else { scales.len().max(1) };
                let rows = scales.len() / row;
                let bytes = rows * (row * codes.bits).div_ceil(8);
                if codes.bytes.len() != bytes {
                    fail!("zero points have {} bytes, not {bytes}", codes.bytes.len());
                }
                if is_bytes { Zeros::Rows(codes) } else { Zeros::Dense(codes) }
            }
        };
        let slices = Slices {
            codes: codes(data, self.bits)?,
            taken,
            cut: cut_at,
            block: self.block,
            scales,
            zeros,
        };
        let places = call.ints(INDICES)?;
        let indices = call.tensor(INDICES)?.dims();
        let output: Dims =
            dims[..axis].iter().chain(indices).chain(&dims[axis + 1..]).copied().collect();
        let mut y = call.scratch::<f32>(output.iter().product())?;
        slices.gather(call.exec, &places, &mut y)?;
        narrow(call, 0, self.elem, &output, &y)
    }
}
