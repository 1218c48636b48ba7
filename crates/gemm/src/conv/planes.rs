//! Convolution of planes: vectors are neighbouring outputs of a plane, so that groups with few
//! output channels fill them.
//!
//! The inputs under a block of outputs are copied so that neighbouring outputs meet neighbouring
//! inputs with every tap: inputs whose distance is a multiple of the stride have a piece of their
//! own, with zeros for padding. All lines of a copy are equally long, so the rows of a block are
//! one long row to the loops, whose sums between two rows of outputs are dropped. An input without
//! padding and strides is read in place.
//!
//! Sums go through the taps of one channel after the other, in chains of at most [`CHAIN`] steps,
//! which are added up in order. Channels and kernel alone decide where chains end.

use std::mem::MaybeUninit;

use super::copy::{copy_every, is_inside, places_before};
use super::{Geometry, Order, Side};
use crate::gemm::{ApplyFunction, TileEpilogue};
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::{Body, Caches, Ended, Isa, Operation, Pool, Simd, Work, dispatch, split_even};
use smallvec::SmallVec;

/// Sums: most steps of a chain of sums, like in direct convolutions.
pub(super) const CHAIN: usize = 128;
/// Geometry: most steps whose offsets are listed. The list is used again for later channels.
const LISTED: usize = 1024;
/// Geometry: floats that a vector may reach beyond the last place of a copy, and of sums.
const SLACK: usize = 16;
/// Work: blocks per thread, if there are rows for as many.
const UNITS_PER_THREAD: usize = 2;
/// Geometry: most output channels of a tile.
const MOST_ROWS: usize = 4;

/// Weights of a convolution, with their strides in floats.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a> {
    pub(super) all: &'a [f32],
    /// Stride between groups.
    pub(super) group: usize,
    /// Stride between output channels of a group.
    pub(super) output: usize,
    /// Stride between steps: taps of a channel, then channels.
    pub(super) step: usize,
}

/// A convolution by planes with checked sizes.
pub(super) struct Planes<'a> {
    pub(super) isa: Isa,
    pub(super) caches: Caches,
    pub(super) geometry: &'a Geometry,
    pub(super) groups: usize,
    /// Numbers of input and output channels of a group.
    pub(super) group_in: usize,
    pub(super) group_out: usize,
    pub(super) weights: Weights<'a>,
    /// Most steps of a chain of sums.
    pub(super) chain: usize,
    pub(super) images: usize,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    pub(super) input: Side,
    /// Output, written by this call alone.
    pub(super) output: Side,
    /// Epilogue of an output whose rows are planes, or pixels if it has channels last.
    pub(super) epilogue: TileEpilogue,
}

/// Place of a tap of an axis: the piece of the copy, and the offset from its start.
#[derive(Clone, Copy)]
struct TapPlace {
    piece: usize,
    offset: usize,
}

/// Pieces into which the inputs under a block of outputs are copied along an axis. Neighbouring
/// places of a piece are inputs a stride apart.
struct Pieces {
    /// Distance in inputs from the first tap of the first output to the first place of each piece.
    firsts: SmallVec<[usize; 4]>,
    /// Place of each tap.
    taps: SmallVec<[TapPlace; 8]>,
    /// Number of places of the longest piece.
    places: usize,
}

impl Pieces {
    /// Cuts the inputs under `outputs` outputs of axis `axis`. With `is_apart`, each tap has a
    /// piece of its own; else taps a whole number of strides apart share one.
    fn new(g: &Geometry, axis: usize, outputs: usize, is_apart: bool) -> Pieces {
        let (kernel, stride, dilation) = (g.kernel[axis], g.strides[axis], g.dilations[axis]);
        let mut pieces = Pieces { firsts: SmallVec::new(), taps: SmallVec::new(), places: outputs };
        for tap in 0..kernel {
            let at = tap * dilation;
            let mut firsts = pieces.firsts.iter();
            let shared = if is_apart {
                None
            } else {
                firsts.position(|first| (at - first).is_multiple_of(stride))
            };
            let piece = match shared {
                Some(piece) => piece,
                None => {
                    pieces.firsts.push(at);
                    pieces.firsts.len() - 1
                }
            };
            let offset = (at - pieces.firsts[piece]) / stride;
            pieces.taps.push(TapPlace { piece, offset });
            pieces.places = pieces.places.max(outputs.saturating_add(offset));
        }
        pieces
    }

    /// Returns the cheaper of both cuts. Each place between rows of outputs costs as much as
    /// `waste` copied ones.
    fn cheaper(g: &Geometry, axis: usize, outputs: usize, waste: usize) -> Pieces {
        let [joined, apart] = [false, true].map(|is_apart| Pieces::new(g, axis, outputs, is_apart));
        if apart.cost(waste) < joined.cost(waste) { apart } else { joined }
    }

    /// Estimates the cost of a cut whose places each cost as much as copying `waste` ones.
    fn cost(&self, waste: usize) -> usize {
        self.places.saturating_mul(self.firsts.len().saturating_add(waste))
    }
}

/// Distances of the inputs that the loops read, in floats.
struct Layout {
    /// Distance of rows of outputs.
    line: usize,
    /// Distance of channels.
    channel: usize,
    /// Distance of slices of a channel.
    slice: usize,
    /// Pieces of a copy; `None` if the input is read in place.
    copy: Option<CopyPieces>,
}

/// Pieces along rows and columns.
struct CopyPieces {
    rows: Pieces,
    cols: Pieces,
}

impl Layout {
    /// Returns the floats of a block's copy.
    fn copy_floats(&self, channels: usize) -> usize {
        let floats = self.channel.saturating_mul(channels).saturating_add(SLACK);
        if self.copy.is_some() { floats } else { 0 }
    }
}

/// Sizes of an image by which algorithms are compared.
pub(super) struct Plane<'a> {
    pub(super) geometry: &'a Geometry,
    pub(super) lanes: usize,
    /// Number of output channels of a group.
    pub(super) group_out: usize,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
}

// Costs are cycles times lanes. The constants were fitted to 400 convolutions of random attributes
// with AVX-512, so that few convolutions by planes take longer than by other loops.
impl Plane<'_> {
    /// Estimates the cost of an input channel of a group by planes.
    fn cost(&self) -> usize {
        /// Choice: cycles of a line of a copy, and of a row of outputs.
        const LINE: usize = 40;
        const ROW: usize = 30;
        let &Plane { geometry: g, lanes, group_out, in_dims, out_dims } = self;
        let [out_d, out_h, out_w] = out_dims;
        let is_in_place = !g.padded && g.strides == [1; 3] && out_w >= lanes;
        let (copy, line) = if is_in_place {
            (0, in_dims[2])
        } else {
            let CopyPieces { rows, cols } =
                CopyPieces::new(g, group_out, BlockSize { rows: out_h, cols: out_w });
            let lines = g.kernel[0] * rows.firsts.len() * cols.firsts.len();
            let each = if g.strides[2] == 1 { 2 } else { 3 * lanes / 2 };
            let line = LINE * lanes + cols.places.saturating_mul(each);
            (lines.saturating_mul(rows.places).saturating_mul(line), cols.places)
        };
        let places = (out_h.max(1) - 1).saturating_mul(line).saturating_add(out_w);
        let vectors = places.div_ceil(lanes).saturating_mul(g.taps() * group_out);
        let macs = vectors.saturating_mul(lanes);
        // Neighbouring output channels share the inputs of a step.
        let macs = if group_out == 1 { macs / 4 * 3 } else { macs / 5 * 3 };
        let rows = out_h.saturating_mul(group_out * ROW * lanes);
        out_d.saturating_mul(copy.saturating_add(macs).saturating_add(rows))
    }

    /// Whether planes take less time than direct loops.
    pub(super) fn beats_direct(&self) -> bool {
        let &Plane { geometry: g, lanes, group_out, out_dims, .. } = self;
        let pixels: usize = out_dims.iter().product();
        let each = g.taps() * group_out.div_ceil(lanes) * 7 / 4 + 5 * g.kernel[0];
        self.cost() <= pixels.saturating_mul(each * lanes)
    }

    /// Whether planes take less time than loops over taps of `channels` depthwise channels, which
    /// leave out taps in padding.
    pub(super) fn beats_depthwise(&self, channels: usize) -> bool {
        let &Plane { geometry: g, lanes, in_dims, out_dims, .. } = self;
        // Pairs of an output and a tap inside along each axis.
        let pairs = (0..3).map(|i| {
            let taps = (0..g.kernel[i]).map(|tap| {
                let first = (tap * g.dilations[i]) as isize - g.pads_begin[i] as isize;
                let (stride, outputs) = (g.strides[i], out_dims[i]);
                let end = places_before(in_dims[i] as isize - first, stride, outputs);
                end.saturating_sub(places_before(-first, stride, outputs))
            });
            taps.sum::<usize>()
        });
        let pairs = pairs.fold(3 * lanes / lanes.min(channels).max(1), usize::saturating_mul);
        let [pixels, inputs] = [out_dims, in_dims].map(|dims| dims.iter().product::<usize>());
        let moves = pixels.saturating_add(inputs).saturating_mul(lanes);
        self.cost() <= pairs.saturating_add(moves)
    }
}

impl CopyPieces {
    /// Cuts the inputs under a block of `group_out` output channels.
    fn new(g: &Geometry, group_out: usize, size: BlockSize) -> CopyPieces {
        // A place takes a multiply-add for each tap and output, and a few instructions to copy.
        let waste = (g.taps() * group_out).div_ceil(3);
        CopyPieces {
            rows: Pieces::cheaper(g, 1, size.rows, 0),
            cols: Pieces::cheaper(g, 2, size.cols, waste),
        }
    }
}

/// Size of a block of outputs.
#[derive(Clone, Copy)]
struct BlockSize {
    rows: usize,
    cols: usize,
}

/// A cut of the work.
struct Cut {
    layout: Layout,
    row_blocks: usize,
    col_blocks: usize,
    /// Floats of the sums of a block, and of a channel of them.
    sums: usize,
    plane_of_sums: usize,
}

/// Outputs of a group that are computed from one copy.
struct Block {
    image: usize,
    group: usize,
    depth: usize,
    row: usize,
    col: usize,
    size: BlockSize,
}

impl Planes<'_> {
    /// Whether the input has the form of a copy: neighbouring outputs meet neighbouring inputs.
    fn is_in_place(&self) -> bool {
        let g = self.geometry;
        let is_dense = !g.padded && g.strides == [1; 3];
        is_dense && self.input.order == Order::Rows && self.out_dims[2] >= self.isa.lanes()
    }

    /// Returns the distances of the inputs of a block.
    fn layout(&self, size: BlockSize) -> Layout {
        let g = self.geometry;
        if self.is_in_place() {
            let [_, in_h, line] = self.in_dims;
            let slice = in_h * line * g.dilations[0];
            return Layout { line, channel: self.input.plane, slice, copy: None };
        }
        let CopyPieces { rows, cols } = CopyPieces::new(g, self.group_out, size);
        let line = cols.places;
        let pieces = rows.firsts.len() * cols.firsts.len();
        let slice = rows.places.saturating_mul(line).saturating_mul(pieces);
        let channel = slice.saturating_mul(g.kernel[0]);
        Layout { line, channel, slice, copy: Some(CopyPieces { rows, cols }) }
    }

    /// Returns the number of channels whose steps are listed.
    fn count_listed(&self) -> usize {
        (LISTED / self.geometry.taps()).clamp(1, self.group_in.max(1))
    }

    /// Writes the offsets of the inputs of the listed steps from the first place of a block.
    fn list_offsets(&self, layout: &Layout, offsets: &mut [usize]) {
        let g = self.geometry;
        let [_, kh, kw] = g.kernel;
        let taps = g.taps();
        for (step, offset) in offsets.iter_mut().enumerate() {
            let (c, tap) = (step / taps, step % taps);
            let [d, h, w] = [tap / kw / kh, tap / kw % kh, tap % kw];
            let in_slice = match &layout.copy {
                Some(CopyPieces { rows, cols }) => {
                    let (row, col) = (rows.taps[h], cols.taps[w]);
                    let piece = row.piece * cols.firsts.len() + col.piece;
                    (piece * rows.places + row.offset) * layout.line + col.offset
                }
                None => h * g.dilations[1] * layout.line + w * g.dilations[2],
            };
            *offset = c * layout.channel + d * layout.slice + in_slice;
        }
    }

    /// Returns the floats of the sums of a channel of a block.
    fn plane_of_sums(layout: &Layout, size: BlockSize) -> usize {
        let places = (size.rows - 1).saturating_mul(layout.line).saturating_add(size.cols);
        places.next_multiple_of(SLACK).saturating_add(SLACK)
    }

    /// Returns the floats of the copy and the sums of a block.
    fn block_floats(&self, size: BlockSize) -> usize {
        let layout = self.layout(size);
        let sums = Self::plane_of_sums(&layout, size).saturating_mul(self.group_out);
        layout.copy_floats(self.group_in).saturating_add(sums)
    }

    /// Returns the number of multiply-adds.
    fn macs(&self) -> usize {
        let depth = self.group_in.saturating_mul(self.geometry.taps());
        let outputs = self.images.saturating_mul(self.groups * self.group_out);
        let plane: usize = self.out_dims.iter().product();
        outputs.saturating_mul(plane).saturating_mul(depth)
    }

    fn work(&self) -> Work {
        Work::new(Operation::ShortMultiplyAdd, self.macs())
    }

    /// Cuts planes into blocks that the cache holds, for the threads of `pool`.
    fn cut(&self, pool: &Pool) -> Cut {
        let [out_d, out_h, out_w] = self.out_dims;
        let planes = (self.images * self.groups * out_d).max(1);
        // A copy, which is written once and read by each tile of channels, stays in half of the
        // second-level cache; so do sums.
        let most = self.caches.own_floats(1, 2);
        let mut size = BlockSize { rows: out_h, cols: out_w };
        while self.block_floats(size) > most && (size.rows > 1 || size.cols > 16 * self.isa.lanes())
        {
            if size.rows > 1 {
                size.rows = size.rows.div_ceil(2);
            } else {
                size.cols = size.cols.div_ceil(2);
            }
        }
        let threads = self.work().threads(pool);
        if threads > 1 {
            let blocks = out_h.div_ceil(size.rows) * out_w.div_ceil(size.cols) * planes;
            let more = (threads * UNITS_PER_THREAD).div_ceil(blocks.max(1));
            size.rows = size.rows.div_ceil(more);
        }
        let layout = self.layout(size);
        let plane_of_sums = Self::plane_of_sums(&layout, size);
        Cut {
            row_blocks: out_h.div_ceil(size.rows),
            col_blocks: out_w.div_ceil(size.cols),
            sums: plane_of_sums.saturating_mul(self.group_out),
            plane_of_sums,
            layout,
        }
    }

    fn units(&self, cut: &Cut) -> usize {
        self.images * self.groups * self.out_dims[0] * cut.row_blocks * cut.col_blocks
    }

    /// Returns the bytes of scratch memory of all threads.
    pub(super) fn scratch(&self, pool: &Pool) -> usize {
        let cut = self.cut(pool);
        let floats = cut.layout.copy_floats(self.group_in).saturating_add(cut.sums);
        let threads = pool.threads().min(self.units(&cut));
        floats.saturating_mul(threads).saturating_mul(size_of::<f32>())
    }

    /// Computes all outputs.
    pub(super) fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let cut = self.cut(pool);
        let units = self.units(&cut);
        let parts = self.work().in_pieces(units).cut(pool);
        with_scratch_of::<usize, _>(self.count_listed() * self.geometry.taps(), |offsets| {
            self.list_offsets(&cut.layout, offsets);
            let offsets = &*offsets;
            parts.run(pool, |part| {
                with_scratch(cut.layout.copy_floats(self.group_in), |copy| {
                    with_scratch(cut.sums, |sums| {
                        for unit in split_even(units, parts.count, part) {
                            let (copy, sums) = (&mut *copy, &mut *sums);
                            let block = self.block(&cut, unit);
                            let planes = self;
                            let body = Compute { planes, cut: &cut, offsets, block, copy, sums };
                            // SAFETY: the machine has `isa`, and the unit owns the outputs of its
                            // block.
                            unsafe { dispatch(self.isa, body) };
                        }
                    });
                });
            })
        })
    }

    /// Returns the outputs of a work unit.
    fn block(&self, cut: &Cut, unit: usize) -> Block {
        let [out_d, out_h, out_w] = self.out_dims;
        let (col, rest) = (unit % cut.col_blocks, unit / cut.col_blocks);
        let (row, rest) = (rest % cut.row_blocks, rest / cut.row_blocks);
        let (depth, rest) = (rest % out_d, rest / out_d);
        let (group, image) = (rest % self.groups, rest / self.groups);
        let rows = split_even(out_h, cut.row_blocks, row);
        let cols = split_even(out_w, cut.col_blocks, col);
        let size = BlockSize { rows: rows.len(), cols: cols.len() };
        Block { image, group, depth, row: rows.start, col: cols.start, size }
    }
}

/// Body that computes a block.
struct Compute<'a> {
    planes: &'a Planes<'a>,
    cut: &'a Cut,
    /// Offsets of the inputs of the listed steps.
    offsets: &'a [usize],
    block: Block,
    copy: &'a mut [f32],
    sums: &'a mut [f32],
}

impl Body for Compute<'_> {
    type Out = ();

    /// Copies inputs, multiplies and writes outputs.
    ///
    /// # Safety
    ///
    /// The outputs of the block must be written by this call alone.
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let Compute { planes, cut, ref block, .. } = self;
        let first_channel = block.group * planes.group_in;
        let inputs = match &cut.layout.copy {
            Some(pieces) => {
                // SAFETY: the caller runs on a machine with `S`.
                unsafe { self.copy_inputs::<S>(pieces) };
                self.copy.as_ptr()
            }
            None => {
                let [_, in_h, in_w] = planes.in_dims;
                let pixel = (block.depth * in_h + block.row) * in_w + block.col;
                let first = planes.input.pixel(block.image, pixel);
                first.wrapping_add(first_channel * planes.input.plane).cast_const()
            }
        };
        // SAFETY: the caller owns the outputs of the block; the copy has the inputs of all steps.
        unsafe {
            self.multiply::<S>(inputs);
            match planes.output.order {
                Order::Rows => self.write_planes::<S>(),
                Order::ChannelsLast { pitch } => self.write_pixels::<S>(pitch),
            }
        }
    }
}

impl Compute<'_> {
    /// Copies the inputs under the block.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold.
    #[inline(always)]
    unsafe fn copy_inputs<S: Simd>(&mut self, pieces: &CopyPieces) {
        let CopyPieces { rows, cols } = pieces;
        let Compute { planes, cut, ref block, .. } = *self;
        let g = planes.geometry;
        let [in_d, in_h, in_w] = planes.in_dims;
        let line = cut.layout.line;
        let input = &planes.input;
        // Distances in floats of neighbouring pixels and of neighbouring channels.
        let (pixel, channel) = match input.order {
            Order::Rows => (1, input.plane),
            Order::ChannelsLast { pitch } => (pitch, 1),
        };
        let d0 = g.first_input(0, block.depth);
        let (h0, w0) = (g.first_input(1, block.row), g.first_input(2, block.col));
        for c in 0..planes.group_in {
            let from = input.pixel(block.image, 0).cast_const();
            let from = from.wrapping_add((block.group * planes.group_in + c) * channel);
            let mut to = self.copy[c * cut.layout.channel..].as_mut_ptr();
            for kd in 0..g.kernel[0] {
                let d = d0 + (kd * g.dilations[0]) as isize;
                for first_row in &rows.firsts {
                    for first_col in &cols.firsts {
                        let line_of = Line {
                            first: w0 + *first_col as isize,
                            stride: g.strides[2],
                            in_w,
                            pixel,
                            places: line,
                        };
                        for i in 0..rows.places {
                            let h = h0 + (first_row + i * g.strides[1]) as isize;
                            let row = (is_inside(d, in_d) && is_inside(h, in_h)).then(|| {
                                let row = d as usize * in_h + h as usize;
                                from.wrapping_add(row * in_w * pixel)
                            });
                            // SAFETY: the row is inside the input; a line begins where the one
                            // before it ends, and the copy has room for a vector after the last.
                            unsafe { line_of.copy::<S>(row, to) };
                            to = to.wrapping_add(line);
                        }
                    }
                }
            }
        }
    }

    /// Computes the sums of the block.
    ///
    /// # Safety
    ///
    /// The inputs of all steps must be readable at `inputs`.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(&mut self, inputs: *const f32) {
        let Compute { planes, cut, ref block, .. } = *self;
        let places = (block.size.rows - 1) * cut.layout.line + block.size.cols;
        let weights = planes.weights;
        let first = weights.all[block.group * weights.group..].as_ptr();
        let tile = Tile {
            offsets: self.offsets,
            channel: cut.layout.channel,
            channels: planes.group_in,
            taps: planes.geometry.taps(),
            chain: planes.chain,
            inputs,
            weights: first,
            weights_output: weights.output,
            weights_step: weights.step,
            sums: self.sums.as_mut_ptr(),
            sums_output: cut.plane_of_sums,
        };
        let most = if planes.group_out == 1 { 8 } else { 4 };
        let mut done = 0;
        while done < places {
            let whole = (places / S::LANES).max(1);
            let vectors = match (places - done).div_ceil(S::LANES).min(whole).min(most) {
                8.. => 8,
                4.. => 4,
                few => few,
            };
            // The last tile recomputes some sums instead of reading beyond the input.
            let at = done.min(places.saturating_sub(vectors * S::LANES));
            let mut output = 0;
            let tiles = planes.group_out.div_ceil(MOST_ROWS);
            for index in 0..tiles {
                let rows = split_even(planes.group_out, tiles, index).len();
                // SAFETY: the caller has the inputs of all steps readable; sums have room for the
                // block.
                unsafe { tile.at(at, output).run::<S>(rows, vectors) };
                output += rows;
            }
            done = at + vectors * S::LANES;
        }
    }

    /// Returns the first pixel of row `row` of the block in its output plane.
    #[inline(always)]
    fn pixel(&self, row: usize) -> usize {
        let [_, out_h, out_w] = self.planes.out_dims;
        let Block { depth, row: first, col, .. } = self.block;
        (depth * out_h + first + row) * out_w + col
    }

    /// Finishes the sums and writes them to their planes.
    ///
    /// # Safety
    ///
    /// The demands of [`Compute`] must hold.
    #[inline(always)]
    unsafe fn write_planes<S: Simd>(&self) {
        let Compute { planes, cut, ref block, .. } = *self;
        let plane = planes.output.plane;
        let channel = block.group * planes.group_out;
        let image = block.image * planes.output.channels * plane;
        // Rows without a gap are one row.
        let BlockSize { rows, cols } = block.size;
        let is_dense = cut.layout.line == cols && cols == planes.out_dims[2];
        let (rows, cols) = if is_dense { (1, rows * cols) } else { (rows, cols) };
        let finish = planes.epilogue.skip(image);
        let before = finish.before_function();
        for output in 0..planes.group_out {
            let channel = channel + output;
            let sums = self.sums[output * cut.plane_of_sums..].as_ptr();
            for row in 0..rows {
                let pixel = self.pixel(row);
                // SAFETY: the caller owns these outputs; masks leave out pixels beyond the last.
                unsafe {
                    let out = planes.output.data.get().add(image + channel * plane + pixel);
                    let sums = sums.add(row * cut.layout.line);
                    let before = before.at(channel, pixel);
                    for col in (0..cols).step_by(S::LANES) {
                        let n = S::LANES.min(cols - col);
                        let x = before.finish_linear::<S>(S::load(sums.add(col)), col, n);
                        S::store_m(out.add(col), S::first(n), x);
                    }
                    let epilogue = finish.at(channel, pixel);
                    if epilogue.activation.is_function() {
                        let ldc = cols;
                        S::call(ApplyFunction { epilogue, out, rows: 1, cols, ldc });
                    }
                }
            }
        }
    }

    /// Finishes the sums and writes them to pixels.
    ///
    /// # Safety
    ///
    /// The demands of [`Compute`] must hold.
    #[inline(always)]
    unsafe fn write_pixels<S: Simd>(&self, pitch: usize) {
        let Compute { planes, cut, ref block, .. } = *self;
        let channel = block.group * planes.group_out;
        let image = block.image * planes.output.plane;
        let BlockSize { rows, cols } = block.size;
        for row in 0..rows {
            let pixel = image + self.pixel(row);
            let epilogue = planes.epilogue.at(pixel, channel);
            let before = epilogue.before_function();
            // SAFETY: the caller owns these outputs; masks leave out channels beyond the last.
            unsafe {
                let out = planes.output.data.get().add(pixel * pitch + channel);
                for col in 0..cols {
                    let sums = self.sums.as_ptr().add(row * cut.layout.line + col);
                    let before = before.at(col, 0);
                    for first in (0..planes.group_out).step_by(S::LANES) {
                        let n = S::LANES.min(planes.group_out - first);
                        let lanes = ((1u64 << n) - 1) as u32;
                        let sums = sums.add(first * cut.plane_of_sums);
                        let x = S::select(S::splat(0.0), lanes, sums, cut.plane_of_sums);
                        let x = before.finish_linear::<S>(x, first, n);
                        S::store_m(out.add(col * pitch + first), S::first(n), x);
                    }
                }
                if epilogue.activation.is_function() {
                    let (rows, cols) = (cols, planes.group_out);
                    S::call(ApplyFunction { epilogue, out, rows, cols, ldc: pitch });
                }
            }
        }
    }
}

/// Source of a line of a copy.
struct Line {
    /// Input of the first place, in pixels from the first pixel of the row.
    first: isize,
    /// Distance in pixels of the inputs of neighbouring places.
    stride: usize,
    /// Number of pixels of a row.
    in_w: usize,
    /// Distance of pixels in floats.
    pixel: usize,
    /// Number of places of the line.
    places: usize,
}

impl Line {
    /// Copies the line from a row of the input, or fills it with zeros.
    ///
    /// # Safety
    ///
    /// The row must be readable, and up to a vector after the line writable.
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, row: Option<*const f32>, to: *mut f32) {
        let &Line { first, stride, in_w, pixel, places } = self;
        let (low, high) = match row {
            Some(_) => {
                let end = in_w as isize - first;
                (places_before(-first, stride, places), places_before(end, stride, places))
            }
            None => (places, places),
        };
        let high = high.max(low);
        // SAFETY: the caller has the row readable, and up to a vector after the line writable.
        unsafe {
            zero::<S>(to, low);
            if let Some(row) = row
                && low < high
            {
                let input = first.wrapping_add_unsigned(low * stride) as usize;
                let (from, to) = (row.add(input * pixel), to.add(low));
                let (count, distance) = (high - low, stride * pixel);
                if distance == 1 {
                    let whole = count / S::LANES * S::LANES;
                    for i in (0..whole).step_by(S::LANES) {
                        S::store(to.add(i), S::load(from.add(i)));
                    }
                    let mask = S::first(count - whole);
                    S::store_m(to.add(whole), mask, S::load_m(from.add(whole), mask));
                } else {
                    copy_every(from, distance, std::slice::from_raw_parts_mut(to, count));
                }
            }
            zero::<S>(to.add(high), places - high);
        }
    }
}

/// Writes `count` zeros, and up to a vector more.
///
/// # Safety
///
/// `count` elements, up to whole vectors, must be writable.
#[inline(always)]
unsafe fn zero<S: Simd>(to: *mut f32, count: usize) {
    for i in (0..count).step_by(S::LANES) {
        // SAFETY: the caller has room for whole vectors.
        unsafe { S::store(to.add(i), S::splat(0.0)) };
    }
}

/// Sums of some vectors of places for some output channels.
#[derive(Clone, Copy)]
struct Tile<'a> {
    /// Offsets of the inputs of the steps of some channels.
    offsets: &'a [usize],
    /// Distance of channels of the input.
    channel: usize,
    channels: usize,
    taps: usize,
    chain: usize,
    inputs: *const f32,
    weights: *const f32,
    weights_output: usize,
    weights_step: usize,
    sums: *mut f32,
    /// Distance of the sums of neighbouring output channels.
    sums_output: usize,
}

impl Tile<'_> {
    /// Returns the tile that begins at a place and an output channel.
    #[inline(always)]
    fn at(&self, place: usize, output: usize) -> Self {
        Tile {
            inputs: self.inputs.wrapping_add(place),
            weights: self.weights.wrapping_add(output * self.weights_output),
            sums: self.sums.wrapping_add(output * self.sums_output + place),
            ..*self
        }
    }

    /// Computes `rows` output channels of `vectors` vectors.
    ///
    /// # Safety
    ///
    /// The demands of [`Rows`] must hold.
    #[inline(always)]
    unsafe fn run<S: Simd>(self, rows: usize, vectors: usize) {
        // SAFETY: the caller upholds the demands of `Rows`.
        unsafe {
            match (rows, vectors) {
                (1, 8) => S::call(Rows::<1, 8>(self)),
                (1, 4) => S::call(Rows::<1, 4>(self)),
                (1, 3) => S::call(Rows::<1, 3>(self)),
                (1, 2) => S::call(Rows::<1, 2>(self)),
                (1, _) => S::call(Rows::<1, 1>(self)),
                (2, 4) => S::call(Rows::<2, 4>(self)),
                (2, 3) => S::call(Rows::<2, 3>(self)),
                (2, 2) => S::call(Rows::<2, 2>(self)),
                (2, _) => S::call(Rows::<2, 1>(self)),
                (3, 3..) => {
                    S::call(Rows::<3, 3>(self));
                    if vectors == 4 {
                        S::call(Rows::<3, 1>(self.at(3 * S::LANES, 0)));
                    }
                }
                (3, 2) => S::call(Rows::<3, 2>(self)),
                (3, _) => S::call(Rows::<3, 1>(self)),
                (_, 4) => {
                    S::call(Rows::<4, 2>(self));
                    S::call(Rows::<4, 2>(self.at(2 * S::LANES, 0)));
                }
                (_, 3) => S::call(Rows::<4, 3>(self)),
                (_, 2) => S::call(Rows::<4, 2>(self)),
                (_, _) => S::call(Rows::<4, 1>(self)),
            }
        }
    }
}

/// Body that computes `V` vectors of places for `R` output channels.
struct Rows<'a, const R: usize, const V: usize>(Tile<'a>);

impl<const R: usize, const V: usize> Body for Rows<'_, R, V> {
    type Out = ();

    /// Multiplies all steps and writes the sums.
    ///
    /// # Safety
    ///
    /// The inputs of all steps must be readable for these places, and the sums writable.
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Rows(t) = self;
        // SAFETY: the caller has the inputs of all steps readable for these places, and the sums
        // writable.
        unsafe {
            let zero = S::splat(0.0);
            let mut sums = [[zero; V]; R];
            // Sum of the chains that have ended. Uninitialized until the first one ends.
            let mut total = [[MaybeUninit::<S::V>::uninit(); V]; R];
            let mut has_ended = false;
            let (mut inputs, mut weights) = (t.inputs, t.weights);
            let mut left = t.channels;
            while left > 0 {
                let channels = left.min(t.offsets.len() / t.taps);
                left -= channels;
                let mut steps = &t.offsets[..channels * t.taps];
                while !steps.is_empty() {
                    let (chain, rest) = steps.split_at(steps.len().min(t.chain));
                    for offset in chain {
                        let x = inputs.add(*offset);
                        let mut wide = [zero; V];
                        for (v, wide) in wide.iter_mut().enumerate() {
                            *wide = S::load(x.add(v * S::LANES));
                        }
                        for (r, sums) in sums.iter_mut().enumerate() {
                            let weight = S::splat(*weights.add(r * t.weights_output));
                            for (sum, wide) in sums.iter_mut().zip(&wide) {
                                *sum = S::fma(weight, *wide, *sum);
                            }
                        }
                        weights = weights.wrapping_add(t.weights_step);
                    }
                    steps = rest;
                    if steps.is_empty() && left == 0 {
                        break;
                    }
                    for (row, all) in sums.iter_mut().zip(&mut total) {
                        for (x, all) in row.iter_mut().zip(all) {
                            let sum = if has_ended { S::add(all.assume_init(), *x) } else { *x };
                            all.write(sum);
                            *x = zero;
                        }
                    }
                    has_ended = true;
                }
                inputs = inputs.wrapping_add(channels * t.channel);
            }
            for (r, (row, all)) in sums.iter().zip(&total).enumerate() {
                for (v, (x, all)) in row.iter().zip(all).enumerate() {
                    let x = if has_ended { S::add(all.assume_init(), *x) } else { *x };
                    S::store(t.sums.add(r * t.sums_output + v * S::LANES), x);
                }
            }
        }
    }
}
