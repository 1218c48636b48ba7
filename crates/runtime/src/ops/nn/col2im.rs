//! Col2Im: adds columns of blocks back to the images that they were taken from.

use bytemuck::Pod;
use half::{bf16, f16};
use sardonyx_kernels::columns::{BlockAxis, MAX_AXES, any_of_columns};
use sardonyx_kernels::{Ended, Exec, Loops};
use sardonyx_tensor::{DataType, Dims};
use smallvec::SmallVec;

use super::window::{counts, per_axis};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::tensor::moves::dense_aligned;

type Axes = SmallVec<[BlockAxis; 8]>;

struct Col2Im {
    strides: Option<Vec<usize>>,
    dilations: Option<Vec<usize>>,
    /// Padding before all axes, then after them.
    pads: Option<Vec<usize>>,
    elem: DataType,
    add_up: AddUp,
}

/// Function that adds up columns. Takes elements as bytes, so that the computation of sizes is
/// compiled only once.
type AddUp = fn(&Exec<'_>, &mut Axes, &[u8], &mut [u8]) -> Result<(), Ended>;

/// Binds `Col2Im`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (strides, dilations) = (per_axis(site, "strides")?, per_axis(site, "dilations")?);
    let pads = counts(site, "pads")?;
    let elem = site.elem(0)?;
    let add_up = match elem {
        DataType::Float => numbers::<f32>,
        DataType::Double => numbers::<f64>,
        DataType::Float16 => numbers::<f16>,
        DataType::Bfloat16 => numbers::<bf16>,
        DataType::Int8 => numbers::<i8>,
        DataType::Int16 => numbers::<i16>,
        DataType::Int32 => numbers::<i32>,
        DataType::Int64 => numbers::<i64>,
        DataType::Uint8 => numbers::<u8>,
        DataType::Uint16 => numbers::<u16>,
        DataType::Uint32 => numbers::<u32>,
        DataType::Uint64 => numbers::<u64>,
        DataType::Bool => truth_values,
        DataType::Complex64 => complex::<f32>,
        DataType::Complex128 => complex::<f64>,
        other => return site.unsupported_type(other),
    };
    Ok(Box::new(Col2Im { strides, dilations, pads, elem, add_up }))
}

impl Col2Im {
    /// Describes the axes of images under blocks.
    fn axes(&self, images: &[i64], blocks: &[i64]) -> Result<Axes, KernelError> {
        let rank = images.len();
        // Complex numbers need one more axis for their parts.
        if blocks.len() != rank || rank >= MAX_AXES {
            fail!(
                "image_shape has {rank} sizes and block_shape has {}; these must be equal and less than {MAX_AXES}",
                blocks.len()
            );
        }
        for (name, list, len) in [
            ("strides", &self.strides, rank),
            ("dilations", &self.dilations, rank),
            ("pads", &self.pads, 2 * rank),
        ] {
            if let Some(list) = list.as_ref().filter(|list| list.len() != len) {
                fail!("{name} has {} elements, not {len} for {rank} spatial axes", list.len());
            }
        }
        let sizes = images.iter().zip(blocks).enumerate();
        sizes.map(|(axis, (image, block))| self.axis(axis, rank, *image, *block)).collect()
    }

    fn axis(
        &self,
        axis: usize,
        rank: usize,
        image: i64,
        block: i64,
    ) -> Result<BlockAxis, KernelError> {
        let given = |list: &Option<Vec<usize>>, at: usize, absent: usize| {
            list.as_ref().and_then(|list| list.get(at)).copied().unwrap_or(absent)
        };
        let (stride, dilation) = (given(&self.strides, axis, 1), given(&self.dilations, axis, 1));
        let (before, after) = (given(&self.pads, axis, 0), given(&self.pads, axis + rank, 0));
        let (Ok(image), Ok(block @ 1..)) = (usize::try_from(image), usize::try_from(block)) else {
            fail!(
                "axis {axis}: the image size {image} must not be negative and the block size {block} must be positive"
            );
        };
        let reach = (block - 1).checked_mul(dilation).and_then(|last| last.checked_add(1));
        let room = image.checked_add(before).and_then(|room| room.checked_add(after));
        let (Some(reach), Some(room)) = (reach, room) else {
            fail!(
                "axis {axis} of size {image} is too large, with pads {before} and {after}, blocks of size {block} and \
                 dilation {dilation}"
            );
        };
        let count = room.checked_sub(reach).map_or(0, |room| room / stride + 1);
        Ok(BlockAxis { image, block, stride, dilation, before, count })
    }
}

impl Kernel for Col2Im {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let &[batch, columns, blocks] = call.tensor(0)?.dims() else {
            fail!("the input has rank {}, not 3", call.tensor(0)?.rank());
        };
        let mut axes = self.axes(&call.ints(1)?, &call.ints(2)?)?;
        let product = |size: fn(&BlockAxis) -> usize| {
            axes.iter().try_fold(1usize, |product, axis| product.checked_mul(size(axis)))
        };
        let block = product(|axis| axis.block);
        let Some(block) = block.filter(|block| columns.is_multiple_of(*block)) else {
            let sizes: Dims = axes.iter().map(|axis| axis.block).collect();
            fail!("{columns} elements of columns cannot be divided into blocks of {sizes:?}");
        };
        if product(|axis| axis.count) != Some(blocks) {
            let counts: Dims = axes.iter().map(|axis| axis.count).collect();
            fail!(
                "the input has {blocks} blocks, but {counts:?} along the axes fit into the image"
            );
        }
        let mut dims = Dims::from_slice(&[batch, columns / block]);
        dims.extend(axes.iter().map(|axis| axis.image));
        let (exec, x) = (call.exec, dense_aligned(call, call.tensor(0)?)?);
        // Each thread accumulates one image.
        let width = self.elem.bits().unwrap_or_default() / 8;
        let image = dims[2..].iter().fold(width.max(4), |n, dim| n.saturating_mul(*dim));
        let images = exec.pool.threads().min(dims[0].saturating_mul(dims[1]));
        call.reserve(images.saturating_mul(image))?;
        (self.add_up)(exec, &mut axes, &x, call.output(0, self.elem, &dims)?.bytes_mut())?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("columns of {} added up", self.elem)
    }
}

fn numbers<T: Loops + Pod>(
    exec: &Exec<'_>,
    axes: &mut Axes,
    x: &[u8],
    y: &mut [u8],
) -> Result<(), Ended> {
    T::add_columns(exec, axes, bytemuck::cast_slice(x), bytemuck::cast_slice_mut(y))
}

/// Adds up booleans: true if any is.
fn truth_values(exec: &Exec<'_>, axes: &mut Axes, x: &[u8], y: &mut [u8]) -> Result<(), Ended> {
    any_of_columns(exec, axes, x, y)
}

/// Adds up complex numbers, with their parts as one more axis of blocks of size 1.
fn complex<T: Loops + Pod>(
    exec: &Exec<'_>,
    axes: &mut Axes,
    x: &[u8],
    y: &mut [u8],
) -> Result<(), Ended> {
    axes.push(BlockAxis { image: 2, block: 1, stride: 1, dilation: 1, before: 0, count: 2 });
    numbers::<T>(exec, axes, x, y)
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Ints};
    use sardonyx_tensor::{Bool8, Complex64, Tensor};

    use crate::ops::testing::{run, tensor};

    fn sizes(sizes: &[i64]) -> Tensor {
        tensor(&[sizes.len()], sizes)
    }

    fn lists(given: &[(&'static str, &[i64])]) -> Vec<(&'static str, AttrValue<'static>)> {
        given.iter().map(|(name, list)| (*name, Ints(list.to_vec().into()))).collect()
    }

    #[test]
    fn columns_become_images() {
        let x = [1f32, 2.0, 3.0, 4.0];
        // Blocks of two over an axis of three: the middle is in both.
        let (image, block) = (sizes(&[1, 3]), sizes(&[1, 2]));
        for (x, expected) in [
            (tensor(&[1, 2, 2], &x), tensor(&[1, 1, 1, 3], &[1f32, 5.0, 4.0])),
            (tensor(&[1, 2, 2], &x.map(|x| x as u64)), tensor(&[1, 1, 1, 3], &[1u64, 5, 4])),
            (
                tensor(&[1, 2, 2], &x.map(half::bf16::from_f32)),
                tensor(&[1, 1, 1, 3], &[1f32, 5.0, 4.0].map(half::bf16::from_f32)),
            ),
            (
                tensor(&[1, 2, 2], &[0, 0, 7, 0].map(Bool8)),
                tensor(&[1, 1, 1, 3], &[0, 1, 0].map(Bool8)),
            ),
            (
                tensor(&[1, 2, 2], &x.map(|x| Complex64 { re: x, im: -x })),
                tensor(&[1, 1, 1, 3], &[1f32, 5.0, 4.0].map(|x| Complex64 { re: x, im: -x })),
            ),
            (tensor::<f32>(&[0, 2, 2], &[]), tensor::<f32>(&[0, 1, 1, 3], &[])),
            (tensor::<f32>(&[3, 0, 2], &[]), tensor::<f32>(&[3, 0, 1, 3], &[])),
        ] {
            let inputs = [Some(&x), Some(&image), Some(&block)];
            assert_eq!(run("Col2Im", &[], &inputs, 1).unwrap()[0], expected);
        }
        // No channels, of whatever size.
        let (nothing, large) = (tensor::<f32>(&[1, 0, 4], &[]), i64::MAX - 3);
        let inputs = [Some(&nothing), Some(&sizes(&[i64::MAX])), Some(&sizes(&[large]))];
        assert_eq!(run("Col2Im", &[], &inputs, 1).unwrap()[0].dims(), [1, 0, i64::MAX as usize]);
        let given = lists(&[("strides", &[2]), ("dilations", &[2]), ("pads", &[1, 2])]);
        let x = tensor(&[1, 2, 2], &[1i32, 2, 3, 4]);
        let inputs = [Some(&x), Some(&sizes(&[3])), Some(&sizes(&[2]))];
        // The first block begins before the image.
        assert_eq!(run("Col2Im", &given, &inputs, 1).unwrap()[0], tensor(&[1, 1, 3], &[0, 5, 0]));
    }

    #[test]
    fn what_does_not_fit() {
        let x = tensor(&[1, 4, 2], &[0f32; 8]);
        let far = i64::MAX;
        type Col2ImRow<'a> = (&'a [(&'static str, &'a [i64])], &'a [i64], &'a [i64], &'a str);
        let rows: [Col2ImRow<'_>; 9] = [
            (&[], &[3], &[2, 2], "image_shape has 1 sizes and block_shape has 2"),
            (&[], &[3, -1], &[2, 2], "axis 1: the image size -1 must not be negative"),
            (&[], &[3, 3], &[2, 0], "the block size 0 must be positive"),
            (&[], &[3], &[3], "4 elements of columns cannot be divided into blocks of [3]"),
            (&[], &[3], &[4], "the input has 2 blocks, but [0] along the axes fit"),
            (&[], &[far, far], &[1, 1], "the input has 2 blocks"),
            (&[("dilations", &[far])], &[1], &[far], "is too large"),
            (&[("pads", &[1, 1, 1])], &[1], &[2], "pads has 3 elements, not 2 for 1 spatial axes"),
            (&[("strides", &[0])], &[1], &[2], "strides must be positive numbers, not [0]"),
        ];
        for (given, image, block, refusal) in rows {
            let inputs = [Some(&x), Some(&sizes(image)), Some(&sizes(block))];
            let found = run("Col2Im", &lists(given), &inputs, 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
        let flat = tensor(&[8], &[0f32; 8]);
        let inputs = [Some(&flat), Some(&sizes(&[3])), Some(&sizes(&[2]))];
        assert_eq!(run("Col2Im", &[], &inputs, 1).unwrap_err(), "the input has rank 1, not 3");
    }
}
