//! Direct convolution, which never materializes patches.
//!
//! A tile is some neighbouring outputs of a row by some vectors of output channels. Its sums run
//! over the taps of the kernel and the channels of a pixel, which are adjacent. Taps along the
//! width join into one run if pixels are as far apart as they have channels. The input is read in
//! place if it has channels last and no padding. Else the rows that a block of output rows needs
//! are copied once into scratch memory that stays in the second-level cache, with zeros for
//! padding; planes become pixels on the way, and inputs that no tap meets are left out. The layout
//! and the loops are those of XNNPACK and of oneDNN's channels-last convolutions without their
//! lists of pointers.
//!
//! | job | file |
//! | --- | --- |
//! | blocks of outputs for caches and threads | [`cut`] |
//! | runs of adjacent steps, chains of sums | [`runs`] |
//! | inputs that a block needs along an axis | [`footprint`] |
//! | copies of inputs | [`inputs`] |
//! | order of tiles, prefetches | [`tiles`], by AMX [`strips`] |
//! | multiply-adds of a tile | [`tile`](super::tile) |
//!
//! Sums are chains of at most [`CHAIN`] steps, which are added up in order. Channels and kernel
//! alone decide where chains end, so neither threads, nor tiles, nor the layout of the input change
//! a bit of the result.

mod cut;
mod footprint;
mod inputs;
mod runs;
mod strips;
mod tiles;

use std::ops::Range;

use cut::{Cut, Source};

use super::tile::Run;
use super::{ConvError, Geometry, Operands, Order, PackedConv, Side, check_memory};
use crate::gemm::{FinishTransposed, TileEnd, TileEpilogue};
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::{Ended, Pool, dispatch};

/// Sums: most steps of a chain of sums: 512 doubles the error without being faster.
const CHAIN: usize = 128;

/// A convolution, other than a depthwise one, with checked sizes.
pub(super) struct Direct<'a> {
    pub(super) conv: &'a PackedConv,
    pub(super) geometry: &'a Geometry,
    pub(super) images: usize,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    pub(super) input: Side,
    /// Factors of the input's channels, `[images, in_channels]`.
    pub(super) gate: Option<&'a [f32]>,
    /// Output, written by this call alone.
    pub(super) output: Side,
    /// Epilogue of an output whose rows are pixels, or planes if it is in rows.
    pub(super) epilogue: TileEpilogue,
}

/// Outputs that are computed from one copy of inputs, by some panels of a group's weights.
struct Block {
    image: usize,
    depth: usize,
    rows: Range<usize>,
    cols: Range<usize>,
    group: usize,
    panels: Range<usize>,
}

/// Addresses of pixels or windows in memory. Distances are in floats.
struct Places<P> {
    first: P,
    /// Distance of neighbouring rows of outputs.
    row: usize,
    /// Distance of neighbouring outputs of a row.
    col: usize,
}

/// State shared by all tiles of a work unit.
struct Unit<'a> {
    direct: &'a Direct<'a>,
    cut: &'a Cut,
    sizes: Sizes,
    runs: &'a [Run],
    block: &'a Block,
    /// Windows of the outputs.
    windows: Places<*const f32>,
    /// First channels of the output pixels.
    outputs: Places<*mut f32>,
    /// Channels of a group that a pixel has room for: whole vectors in scratch memory.
    room: usize,
    /// Operations on the outputs from the first pixel on. Outputs in rows are finished later.
    epilogue: TileEpilogue,
}

/// Quotients that all tiles need, computed once, as a division takes as long as several
/// multiply-adds.
#[derive(Clone, Copy)]
struct Sizes {
    lanes: usize,
    /// Number of steps of a sum.
    depth: usize,
    /// Number of output channels of a group, and of their vectors.
    group_out: usize,
    group_vectors: usize,
}

/// Neighbouring vectors of output channels of a group.
#[derive(Clone, Copy)]
struct Channels {
    weights: *const f32,
    /// First channel of the group.
    first: usize,
    vectors: usize,
    /// Number of channels of whole vectors.
    width: usize,
}

impl Direct<'_> {
    /// Joins the rows of a pointwise convolution: all pixels of an image, or of all images if
    /// neither side is in rows, become one row.
    pub(super) fn join_rows(mut self) -> Self {
        if self.geometry.is_pointwise() {
            let plane: usize = self.in_dims.iter().product();
            let joins = self.input.order != Order::Rows && self.output.order != Order::Rows;
            let (images, pixels) =
                if joins { (1, self.images * plane) } else { (self.images, plane) };
            self.images = images;
            (self.in_dims, self.out_dims) = ([1, 1, pixels], [1, 1, pixels]);
        }
        self
    }

    /// Returns the bytes of scratch memory of all threads.
    pub(super) fn scratch(&self, pool: &Pool) -> usize {
        self.scratch_of(&self.cut(pool))
    }

    fn scratch_of(&self, cut: &Cut) -> usize {
        let threads = cut.threads.min(self.units(cut));
        let floats = cut.copy_floats.saturating_add(cut.out_floats);
        floats.saturating_mul(threads).saturating_mul(size_of::<f32>())
    }

    fn group_in(&self) -> usize {
        self.conv.params.in_channels / self.conv.params.groups
    }

    fn group_out(&self) -> usize {
        self.conv.params.out_channels / self.conv.params.groups
    }

    /// Returns the number of vectors of a group's output channels.
    fn group_vectors(&self) -> usize {
        self.group_out().div_ceil(self.conv.isa.lanes())
    }

    /// Whether operands are rounded.
    fn rounds(&self) -> bool {
        self.conv.algorithm.operands() != Operands::Exact
    }

    /// Computes all outputs.
    ///
    /// # Errors
    ///
    /// If the copies of rows would exceed any memory, or the work was cancelled.
    pub(super) fn run(&self, pool: &Pool) -> Result<(), ConvError> {
        let cut = self.cut(pool);
        check_memory(self.scratch_of(&cut))?;
        self.run_cut(&cut, pool)?;
        Ok(())
    }

    /// Computes all outputs on this thread alone, if there is as much memory as [`Direct::scratch`]
    /// returns.
    pub(super) fn run_here(&self) -> Result<(), Ended> {
        self.run_cut(&self.cut(Pool::serial()), Pool::serial())
    }

    fn run_cut(&self, cut: &Cut, pool: &Pool) -> Result<(), Ended> {
        if cut.parts * self.images == 0 {
            return Ok(());
        }
        with_scratch_of::<Run, _>(self.most_runs(), |runs| {
            let runs = self.write_runs(cut, runs);
            pool.run_on(cut.threads, self.units(cut), |unit| {
                with_scratch(cut.copy_floats, |copy| {
                    with_scratch(cut.out_floats, |out| {
                        self.run_block(cut, runs, &self.block(cut, unit), copy, out);
                    });
                });
            })
        })
    }

    /// Computes the outputs of a block. `copy` and `out` are scratch memory for inputs and outputs
    /// that tiles do not read or write in place.
    fn run_block(&self, cut: &Cut, runs: &[Run], block: &Block, copy: &mut [f32], out: &mut [f32]) {
        let sizes = Sizes {
            lanes: self.conv.isa.lanes(),
            depth: self.conv.depth(),
            group_out: self.group_out(),
            group_vectors: self.group_vectors(),
        };
        let Sizes { group_out, .. } = sizes;
        let width = sizes.group_vectors * sizes.lanes;
        let pixel = self.first_pixel(block);
        let plane: usize = self.out_dims.iter().product();
        let (outputs, room, epilogue) = match self.output.order {
            Order::Rows => {
                let (row, col) = (block.cols.len() * width, width);
                let outputs = Places { first: out.as_mut_ptr(), row, col };
                (outputs, width, TileEpilogue::PLAIN)
            }
            Order::ChannelsLast { pitch } => {
                let first = self.output.pixel(block.image, pixel);
                let first = first.wrapping_add(block.group * group_out);
                let outputs = Places { first, row: self.out_dims[2] * pitch, col: pitch };
                (outputs, group_out, self.epilogue.at(block.image * plane + pixel, 0))
            }
        };
        let windows = self.windows(cut, block, copy);
        let mut unit =
            Unit { direct: self, cut, sizes, runs, block, windows, outputs, room, epilogue };
        if self.conv.algorithm.operands() == Operands::Tiles {
            unit.run_strips(copy);
        } else {
            unit.run_tiles(copy);
        }
        if self.output.order == Order::Rows {
            self.write_planes(cut, block, out);
        }
    }

    /// Returns the pixel of an image that is the first output of a block.
    fn first_pixel(&self, block: &Block) -> usize {
        let [_, height, width] = self.out_dims;
        (block.depth * height + block.rows.start) * width + block.cols.start
    }

    /// Returns the addresses of the windows of a block's outputs. Copies the rows under them if
    /// tiles do not read the input in place.
    fn windows(&self, cut: &Cut, block: &Block, copy: &mut [f32]) -> Places<*const f32> {
        let g = self.geometry;
        let [_, in_h, in_w] = self.in_dims;
        match cut.source {
            Source::Rows => {
                self.copy_rows(cut, block, copy);
                let [rows, cols] = self.footprints(cut.rows, cut.cols);
                let row = rows.output * cols.len() * cut.pixel;
                Places { first: copy.as_ptr(), row, col: cols.output * cut.pixel }
            }
            Source::Pixels => Places { first: copy.as_ptr(), row: 0, col: cut.pixel },
            Source::Input => {
                let col = g.strides[2] * cut.pixel;
                let row = block.depth * g.strides[0] * in_h + block.rows.start * g.strides[1];
                let pixel = row * in_w + block.cols.start * g.strides[2];
                let first = self.input.pixel(block.image, pixel);
                let first = first.wrapping_add(block.group * self.group_in()).cast_const();
                Places { first, row: g.strides[1] * in_w * cut.pixel, col }
            }
        }
    }

    /// Writes the outputs of a block, whose channels are adjacent, into their planes.
    fn write_planes(&self, cut: &Cut, block: &Block, out: &[f32]) {
        let lanes = self.conv.isa.lanes();
        let group_out = self.group_out();
        let of_panel = cut.vectors * lanes;
        let channels = block.panels.start * of_panel..group_out.min(block.panels.end * of_panel);
        let first = block.group * group_out + channels.start;
        let plane: usize = self.out_dims.iter().product();
        let image = block.image * self.conv.params.out_channels;
        let pixel = self.first_pixel(block);
        let body = FinishTransposed {
            src: out[channels.start.min(out.len())..].as_ptr(),
            ld: self.group_vectors() * lanes,
            out: self.output.data.get().wrapping_add((image + first) * plane + pixel),
            ldc: plane,
            rows: channels.len(),
            cols: block.rows.len() * block.cols.len(),
            epilogue: self.epilogue.at(first, pixel).skip(image * plane),
        };
        // SAFETY: the block's outputs are whole vectors of pixels and channels, and the unit owns
        // these parts of the planes.
        unsafe { dispatch(self.conv.isa, body) };
    }
}

impl Unit<'_> {
    /// Returns the channels of a panel.
    fn channels(&self, panel: usize) -> Channels {
        let Sizes { lanes, depth, group_vectors, .. } = self.sizes;
        let first = panel * self.cut.vectors;
        let vectors = self.cut.vectors.min(group_vectors - first);
        let weights = (self.block.group * group_vectors + first) * depth * lanes;
        Channels {
            weights: self.direct.conv.weights[weights..].as_ptr(),
            first: first * lanes,
            vectors,
            width: vectors * lanes,
        }
    }

    /// Returns the address of the window of the output in row `row` and column `col` of the block.
    fn window(&self, row: usize, col: usize) -> *const f32 {
        self.windows.first.wrapping_add(row * self.windows.row + col * self.windows.col)
    }

    /// Returns the address of the group's first channel of the output in row `row` and column `col`
    /// of the block.
    fn output(&self, row: usize, col: usize) -> *mut f32 {
        self.outputs.first.wrapping_add(row * self.outputs.row + col * self.outputs.col)
    }

    /// Returns the end of a tile from row `row` and column `col` of the block on. `epilogue` is
    /// room for the operations on its outputs, to which the end refers.
    fn end(
        &self,
        row: usize,
        col: usize,
        channels: &Channels,
        epilogue: &mut Option<TileEpilogue>,
    ) -> TileEnd {
        let mut end = TileEnd {
            c: self.output(row, col).wrapping_add(channels.first),
            ldc: self.outputs.col,
            n: (self.room - channels.first).min(channels.width),
            epilogue: std::ptr::null(),
        };
        if !self.epilogue.is_plain() {
            let pixel = row * self.direct.out_dims[2] + col;
            let channel = self.block.group * self.sizes.group_out + channels.first;
            end.epilogue = epilogue.insert(self.epilogue.at(pixel, channel));
        }
        end
    }
}

impl Geometry {
    /// Returns the input index along a dimension of an output's first tap, which is negative in
    /// padding.
    pub(super) fn first_input(&self, i: usize, output: usize) -> isize {
        (output * self.strides[i]) as isize - self.pads_begin[i] as isize
    }

    /// Returns the number of inputs along a dimension from which neighbouring outputs are computed.
    pub(super) fn extent(&self, i: usize, outputs: usize) -> usize {
        (outputs.max(1) - 1) * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1
    }
}
