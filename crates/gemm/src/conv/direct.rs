//! Direct convolution: no patches are written anywhere.
//!
//! A tile is some neighbouring outputs of a row by some vectors of output channels. Its sums run
//! over the taps of the kernel and the channels of a pixel, which are adjacent; taps along the
//! width join into one run where pixels lie a pixel's channels apart. The input is read where it
//! lies if it has channels last and no padding. Else the rows that a block of output rows needs are
//! copied once into scratch memory that stays in the second-level cache, with zeros where there is
//! padding; planes become pixels on the way. The layout and the loops are those of XNNPACK and of
//! oneDNN's channels-last convolutions without their lists of pointers.
//!
//! Sums are chains of at most [`CHAIN`] steps, which are added up in order. Where chains end
//! follows from channels and kernel alone, so neither threads, nor tiles, nor where the input lies
//! changes a bit of the result.

mod cut;
mod strips;

use std::ops::Range;

use cut::Cut;

use super::gated::{GatePixels, of_image};
use super::tile::{Ahead, Run, Tile, TileFn, Writes, write_operands};
use super::{ConvError, Geometry, Operands, Order, PackedConv, Side, check_memory};
use crate::conv::interleave;
use crate::gemm::bf16::{Planes, Rows};
use crate::gemm::tile::Mac;
use crate::gemm::{FinishTransposed, SendPtr, TileEpilogue};
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::{Body, Ended, Simd, dispatch};
use sardonyx_simd::{Pool, split_even};

/// Most steps of a chain of sums: with 512 errors are twice as large, and nothing is faster.
const CHAIN: usize = 128;

/// One convolution that is not depthwise, sizes checked.
pub(super) struct Direct<'a> {
    pub(super) conv: &'a PackedConv,
    pub(super) images: usize,
    pub(super) in_dims: [usize; 3],
    pub(super) out_dims: [usize; 3],
    pub(super) input: Side,
    /// What the input is multiplied with, if that is done here: `[images, in_channels]`.
    pub(super) gate: Option<&'a [f32]>,
    /// Written by this call alone.
    pub(super) output: Side,
    /// Of an output whose rows are pixels, or planes if it is in rows.
    pub(super) epilogue: TileEpilogue,
}

/// What the tiles of a unit of work have in common.
struct Unit<'a> {
    cut: &'a Cut,
    runs: &'a [Run],
    block: &'a Block,
    group: usize,
    /// Those of the unit.
    panels: Range<usize>,
    /// The window of the first output, and from the windows of a row of outputs to the next.
    from: *const f32,
    from_line: usize,
    /// The first output pixel, and from a row or pixel of outputs to the next.
    to: *mut f32,
    to_line: usize,
    ldc: usize,
    /// That of the first output pixel.
    epilogue: TileEpilogue,
}

/// What the tiles of a panel of a unit have in common.
struct Panel {
    /// Whether the unit has no panel before it.
    is_first: bool,
    functions: &'static [TileFn],
    weights: *const f32,
    /// The first output channel, and as many as whole vectors have.
    channel: usize,
    width: usize,
    /// How many tiles a row of a block has. They have `cols` columns, the first `longer` of them
    /// one more.
    tiles: usize,
    cols: usize,
    longer: usize,
    /// Floats of the next panel that each tile fetches, and how many in a step.
    share: usize,
    step: usize,
}

impl Panel {
    /// The columns of a tile.
    fn cols(&self, part: usize) -> Range<usize> {
        let start = part * self.cols + part.min(self.longer);
        start..start + self.cols + usize::from(part < self.longer)
    }
}

/// Outputs that are computed from one copy of input rows.
struct Block {
    image: usize,
    depth: usize,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl Direct<'_> {
    /// The same over as few and as long rows as there can be: of a pointwise convolution all pixels
    /// are one row.
    pub(super) fn flattened(mut self) -> Self {
        if self.conv.geometry.is_pointwise() {
            let plane: usize = self.in_dims.iter().product();
            let joins = self.input.order != Order::Rows && self.output.order != Order::Rows;
            let (images, pixels) =
                if joins { (1, self.images * plane) } else { (self.images, plane) };
            self.images = images;
            (self.in_dims, self.out_dims) = ([1, 1, pixels], [1, 1, pixels]);
        }
        self
    }

    /// Bytes of scratch memory of all threads.
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

    fn units(&self, cut: &Cut) -> usize {
        let blocks = cut.row_blocks * cut.col_blocks * self.out_dims[0] * self.images;
        blocks * self.conv.params.groups * cut.parts
    }

    fn rounds(&self) -> bool {
        self.conv.algorithm.operands() != Operands::Exact
    }

    /// Most steps of a chain of sums. Those of AMX are one chain.
    fn chain(&self) -> usize {
        if self.conv.algorithm.operands() == Operands::Tiles { usize::MAX } else { CHAIN }
    }

    /// # Errors
    ///
    /// If the copies of rows are larger than any memory.
    pub(super) fn run(&self, pool: &Pool) -> Result<(), ConvError> {
        let cut = self.cut(pool);
        check_memory(self.scratch_of(&cut))?;
        self.run_cut(&cut, pool)?;
        Ok(())
    }

    /// The same on this thread alone, if there is as much memory as [`Direct::scratch`] says.
    pub(super) fn run_here(&self) -> Result<(), Ended> {
        self.run_cut(&self.cut(Pool::serial()), Pool::serial())
    }

    fn run_cut(&self, cut: &Cut, pool: &Pool) -> Result<(), Ended> {
        let units = self.units(cut);
        let pieces = self.conv.words().div_ceil(self.chain()).max(1);
        let depth_of_runs = self.conv.geometry.taps() * pieces;
        with_scratch_of::<Run, _>(depth_of_runs, |runs| {
            let runs = self.runs(cut, runs);
            let one = |unit: usize| {
                with_scratch(cut.copy_floats, |copy| {
                    with_scratch(cut.out_floats, |out| self.unit(cut, runs, unit, copy, out));
                });
            };
            if cut.parts * self.images == 0 { Ok(()) } else { pool.run_on(cut.threads, units, one) }
        })
    }

    /// The runs of a window, joined where they are adjacent. There is room for one for each tap
    /// and part of a chain.
    fn runs<'m>(&self, cut: &Cut, runs: &'m mut [Run]) -> &'m [Run] {
        let g = &self.conv.geometry;
        let words = self.conv.words();
        let [_, in_h, in_w] = self.in_dims;
        let (line, slice) = if cut.copies {
            // A copy has the slices and rows that the kernel meets.
            let line = g.extent(2, cut.cols) * cut.pixel;
            (line, g.extent(1, cut.rows) * line)
        } else {
            (in_w * cut.pixel, in_h * in_w * cut.pixel * g.dilations[0])
        };
        let pieces = words.div_ceil(self.chain()).max(1);
        let taps = g.taps();
        // Whole taps to a chain, or parts of one, all of about the same length.
        let chains = (taps * words).div_ceil(self.chain()).max(1);
        let taps_of_chain = if pieces > 1 { 1 } else { taps.div_ceil(chains) };
        let mut count = 0;
        let mut tap = 0;
        let mut joins: Option<(usize, usize)> = None;
        for kd in 0..g.kernel[0] {
            for kh in 0..g.kernel[1] {
                for kw in 0..g.kernel[2] {
                    let at =
                        kd * slice + kh * g.dilations[1] * line + kw * g.dilations[2] * cut.pixel;
                    for piece in 0..pieces {
                        let part = split_even(words, pieces, piece);
                        let (offset, steps) = (at + part.start, part.len());
                        let ends = pieces > 1 || (tap + 1) % taps_of_chain == 0;
                        let is_last = tap + 1 == taps && piece + 1 == pieces;
                        let ends = ends && !is_last;
                        let (from, before) = match joins {
                            Some((from, before)) if from + before == offset => (from, before),
                            Some((from, before)) => {
                                runs[count] = Run::new(from, before, false);
                                count += 1;
                                (offset, 0)
                            }
                            None => (offset, 0),
                        };
                        joins = Some((from, before + steps));
                        if ends || is_last {
                            runs[count] = Run::new(from, before + steps, ends);
                            count += 1;
                            joins = None;
                        }
                    }
                    tap += 1;
                }
            }
        }
        &runs[..count]
    }

    /// Which outputs a unit computes, with which panels.
    fn block(&self, cut: &Cut, unit: usize) -> (Block, usize, usize) {
        // Of few pixels, each thread computes channels of its own: it reads those weights alone.
        let blocks = self.units(cut) / cut.parts;
        let (part, rest) = (unit / blocks, unit % blocks);
        let (group, rest) = (rest % self.conv.params.groups, rest / self.conv.params.groups);
        let (col, rest) = (rest % cut.col_blocks, rest / cut.col_blocks);
        let (row, rest) = (rest % cut.row_blocks, rest / cut.row_blocks);
        let (depth, image) = (rest % self.out_dims[0], rest / self.out_dims[0]);
        let [_, out_h, out_w] = self.out_dims;
        let cols = split_even(out_w.div_ceil(cut.col_unit), cut.col_blocks, col);
        let block = Block {
            image,
            depth,
            rows: split_even(out_h, cut.row_blocks, row),
            cols: cols.start * cut.col_unit..out_w.min(cols.end * cut.col_unit),
        };
        (block, group, part)
    }

    fn unit(&self, cut: &Cut, runs: &[Run], unit: usize, copy: &mut [f32], out: &mut [f32]) {
        let (block, group, part) = self.block(cut, unit);
        let g = &self.conv.geometry;
        let [_, in_h, in_w] = self.in_dims;
        // The window of the first output, and the distance of rows of windows.
        let (first, line) = if cut.copies {
            self.copy_rows(cut, &block, group, copy);
            (copy.as_ptr(), g.extent(2, cut.cols) * cut.pixel)
        } else if cut.copies_tiles {
            (copy.as_ptr(), 0)
        } else {
            let row = (block.depth * g.strides[0] * in_h + block.rows.start * g.strides[1]) * in_w;
            let pixel = row + block.cols.start * g.strides[2];
            let start = self.input.pixel(block.image, pixel);
            (start.wrapping_add(group * self.group_in()).cast_const(), in_w * cut.pixel)
        };
        let lanes = self.conv.isa.lanes();
        let group_out = self.group_out();
        let group_vectors = group_out.div_ceil(lanes);
        let panels = group_vectors.div_ceil(cut.vectors);
        let panels = split_even(panels, cut.parts, part);
        let [_, out_h, out_w] = self.out_dims;
        let pixel = (block.depth * out_h + block.rows.start) * out_w + block.cols.start;
        let is_rows = self.output.order == Order::Rows;
        // Where the first output pixel is, and the distance of rows and pixels there.
        let ld = group_vectors * lanes;
        let (to, to_line, ldc) = match self.output.order {
            Order::Rows => (out.as_mut_ptr(), block.cols.len() * ld, ld),
            Order::ChannelsLast { pitch } => {
                let start = self.output.pixel(block.image, pixel);
                (start.wrapping_add(group * group_out), out_w * pitch, pitch)
            }
        };
        let unit = Unit {
            cut,
            runs,
            block: &block,
            group,
            panels: panels.clone(),
            from: first,
            from_line: line,
            to,
            to_line,
            ldc,
            epilogue: self.epilogue.at(block.image * out_h * out_w * self.out_dims[0] + pixel, 0),
        };
        if self.conv.algorithm.operands() == Operands::Tiles {
            self.strips(&unit, copy);
        } else {
            self.tiles(&unit, copy);
        }
        if is_rows {
            let channels =
                panels.start * cut.vectors * lanes..group_out.min(panels.end * cut.vectors * lanes);
            self.write_planes(&block, pixel, group * group_out, channels, out, ld);
        }
    }

    /// Computes the tiles of a unit.
    fn tiles(&self, unit: &Unit<'_>, copy: &mut [f32]) {
        let Unit { cut, block, group, panels, .. } = unit;
        let rows = block.rows.len();
        if cut.by_pixels {
            let first = self.panel(unit, panels.start);
            for (row, part) in (0..rows).flat_map(|row| (0..first.tiles).map(move |i| (row, i))) {
                if cut.copies_tiles {
                    let cols = first.cols(part);
                    let pixel = block.cols.start + cols.start;
                    let to = &mut copy[..cols.len() * cut.pixel];
                    self.copy_pixels(cut, block.image, pixel, *group, to);
                }
                self.tile(unit, &first, row, first.cols(part), part);
                for index in panels.start + 1..panels.end {
                    self.tile(unit, &self.panel(unit, index), row, first.cols(part), part);
                }
            }
        } else {
            for index in panels.clone() {
                let panel = self.panel(unit, index);
                for row in 0..rows {
                    for part in 0..panel.tiles {
                        self.tile(unit, &panel, row, panel.cols(part), part);
                    }
                }
            }
        }
    }

    /// What the tiles of a panel have in common.
    fn panel(&self, unit: &Unit<'_>, index: usize) -> Panel {
        let Unit { cut, block, group, .. } = unit;
        let lanes = self.conv.isa.lanes();
        let (depth, group_vectors) = (self.conv.depth(), self.group_out().div_ceil(lanes));
        let first = index * cut.vectors;
        let vectors = cut.vectors.min(group_vectors - first);
        let functions = self.conv.tiles()[vectors - 1];
        let weights = (group * group_vectors + first) * depth * lanes;
        let cols = block.cols.len();
        let tiles = cols.div_ceil(functions.len());
        // The weights of the next panel, spread over the tiles of this one.
        let of_all = if cut.by_pixels { 1 } else { (block.rows.len() * tiles).max(1) };
        let share = (vectors * depth * lanes).div_ceil(of_all);
        let has_next = !cut.copies_tiles && index + 1 < unit.panels.end;
        Panel {
            is_first: index == unit.panels.start,
            functions,
            weights: self.conv.weights[weights..].as_ptr(),
            channel: first * lanes,
            width: vectors * lanes,
            tiles,
            cols: cols / tiles.max(1),
            longer: cols % tiles.max(1),
            share: if has_next { share } else { 0 },
            step: if has_next { share.div_ceil(depth.max(1)) } else { 0 },
        }
    }

    /// What tile `part` of a row fetches, whose columns are `cols` and whose first input is at `a`.
    fn ahead(
        &self,
        unit: &Unit<'_>,
        panel: &Panel,
        [row, part]: [usize; 2],
        cols: &Range<usize>,
        a: *const f32,
    ) -> [Ahead; 2] {
        let Unit { cut, block, .. } = unit;
        let &Panel { weights, channel, width, .. } = panel;
        let depth = self.conv.depth();
        let mut ahead = [Ahead::none(weights); 2];
        if cut.copies_tiles {
            if let Order::ChannelsLast { pitch } = self.input.order
                && panel.is_first
            {
                // The pixels of the next tile.
                let next = self.input.pixel(block.image, block.cols.start + cols.end);
                let half = (cols.len() * pitch).div_ceil(2);
                let step = half.div_ceil(depth.max(1));
                ahead = [0, half].map(|at| Ahead { at: next.wrapping_add(at).cast_const(), step });
            }
            return ahead;
        }
        if cut.by_pixels && row + part > 0 {
            // The panels before have read all weights.
            let pixel = row * self.out_dims[2] + cols.end;
            let to = unit.to.wrapping_add(row * unit.to_line + cols.end * unit.ldc);
            let outputs = (to.cast_const(), unit.ldc);
            let epilogue = &unit.epilogue;
            let lines = if epilogue.residual.is_null() {
                [Some(outputs), None]
            } else {
                let added = epilogue.at(pixel, 0).residual;
                [Some((added, epilogue.residual_rs)), (!panel.is_first).then_some(outputs)]
            };
            // Those of the next tile that this panel's share is, if most of them are of this value.
            let all = self.group_out();
            for (ahead, lines) in ahead.iter_mut().zip(lines) {
                if let Some((at, pitch)) = lines.filter(|lines| lines.1 < all + all / 4 + 16) {
                    let share = |channel: usize| cols.len() * pitch * channel / all;
                    let (from, to) = (share(channel), share(all.min(channel + width)));
                    let step = (to - from).div_ceil(depth.max(1));
                    *ahead = Ahead { at: at.wrapping_add(from), step };
                }
            }
        } else if panel.step > 0 {
            let tile = if cut.by_pixels { 0 } else { row * panel.tiles + part };
            let at = weights.wrapping_add(width * depth + tile * panel.share);
            ahead[0] = Ahead { at, step: panel.step };
        }
        if !cut.copies && self.conv.geometry.taps() == 1 && panel.is_first {
            // The pixels of the next tile, which nobody has read yet.
            let pixels = cols.len() * self.conv.geometry.strides[2] * cut.pixel;
            ahead[1] = Ahead { at: a.wrapping_add(pixels), step: pixels.div_ceil(depth.max(1)) };
        }
        ahead
    }

    /// Computes tile `part` of a row, whose columns are `cols`.
    fn tile(&self, unit: &Unit<'_>, panel: &Panel, row: usize, cols: Range<usize>, part: usize) {
        let Unit { cut, group, .. } = unit;
        let (group_out, depth) = (self.group_out(), self.conv.depth());
        let is_rows = self.output.order == Order::Rows;
        let &Panel { weights, channel, width, .. } = panel;
        let strides = self.conv.geometry.strides;
        let a_rs = strides[2] * cut.pixel;
        let a = if cut.copies_tiles {
            unit.from
        } else {
            unit.from.wrapping_add(row * strides[1] * unit.from_line + cols.start * a_rs)
        };
        let ahead = self.ahead(unit, panel, [row, part], &cols, a);
        let end;
        let mut tile = Tile {
            runs: unit.runs,
            a,
            a_rs,
            b: weights,
            b_vs: depth * self.conv.isa.lanes(),
            ahead,
            c: unit.to.wrapping_add(row * unit.to_line + cols.start * unit.ldc + channel),
            ldc: unit.ldc,
            n: if is_rows { width } else { (group_out - channel).min(width) },
            epilogue: std::ptr::null(),
            fetches: !is_rows,
        };
        if !is_rows && !unit.epilogue.is_plain() {
            let pixels = row * self.out_dims[2] + cols.start;
            end = unit.epilogue.at(pixels, group * group_out + channel);
            tile.epilogue = &end;
        }
        // SAFETY: windows of these outputs are inside the input, or the copy; weights were packed
        // for these channels and an instruction set that this machine has; the unit owns these
        // outputs.
        unsafe { panel.functions[cols.len() - 1](&tile) };
    }

    /// Writes the outputs of a block, which lie by pixels, into their planes.
    fn write_planes(
        &self,
        block: &Block,
        pixel: usize,
        first: usize,
        channels: Range<usize>,
        out: &[f32],
        ld: usize,
    ) {
        let plane: usize = self.out_dims.iter().product();
        let row = block.image * self.conv.params.out_channels + first + channels.start;
        let body = FinishTransposed {
            src: out[channels.start.min(out.len())..].as_ptr(),
            ld,
            out: self.output.data.get().wrapping_add(row * plane + pixel),
            ldc: plane,
            rows: channels.len(),
            cols: block.rows.len() * block.cols.len(),
            epilogue: self
                .epilogue
                .at(first + channels.start, pixel)
                .after(block.image * self.conv.params.out_channels * plane),
        };
        // SAFETY: the block's outputs are whole vectors of pixels and channels; the unit owns
        // these parts of the planes.
        unsafe { dispatch(self.conv.isa, body) };
    }

    /// Copies the input rows of a block.
    fn copy_rows(&self, cut: &Cut, block: &Block, group: usize, to: &mut [f32]) {
        let g = &self.conv.geometry;
        let [in_d, in_h, in_w] = self.in_dims;
        let (lines, pixels) = (g.extent(1, cut.rows), g.extent(2, cut.cols));
        let needed = (g.extent(1, block.rows.len()), g.extent(2, block.cols.len()));
        let first = |i: usize, at: usize| (at * g.strides[i]) as isize - g.pads_begin[i] as isize;
        let (d0, h0, w0) =
            (first(0, block.depth), first(1, block.rows.start), first(2, block.cols.start));
        // The pixels of a row that are inside the input.
        let low = (-w0).clamp(0, needed.1 as isize) as usize;
        let high = (in_w as isize - w0).clamp(low as isize, needed.1 as isize) as usize;
        let line = pixels * cut.pixel;
        for kd in 0..g.kernel[0] {
            let d = d0 + (kd * g.dilations[0]) as isize;
            for i in 0..needed.0 {
                let h = h0 + i as isize;
                let to = &mut to[(kd * lines + i) * line..][..line];
                let is_inside = d >= 0 && d < in_d as isize && h >= 0 && h < in_h as isize;
                if !is_inside || low == high {
                    to.fill(0.0);
                    continue;
                }
                to[..low * cut.pixel].fill(0.0);
                to[high * cut.pixel..needed.1 * cut.pixel].fill(0.0);
                let row = (d as usize * in_h + h as usize) * in_w;
                let pixel = row + (w0 + low as isize) as usize;
                let to = &mut to[low * cut.pixel..high * cut.pixel];
                self.copy_pixels(cut, block.image, pixel, group, to);
            }
        }
    }

    /// Copies the channels of a group of neighbouring pixels, in the form of the operands.
    fn copy_pixels(&self, cut: &Cut, image: usize, pixel: usize, group: usize, to: &mut [f32]) {
        let count = self.group_in();
        let channels = group * count..(group + 1) * count;
        let (isa, operands) = (self.conv.isa, self.conv.algorithm.operands());
        if let Some(gate) = self.gate {
            // A row of all pixels goes through images.
            let (plane, mut pixel, mut to) = (self.input.plane, pixel, to);
            while !to.is_empty() {
                let (further, first) = (pixel / plane, pixel % plane);
                let (part, rest) = to.split_at_mut(to.len().min((plane - first) * cut.pixel));
                let all = self.conv.params.in_channels;
                let gate = of_image(gate, image + further, all, channels.clone());
                self.gate_pixels(cut, [image, pixel], channels.clone(), gate, part);
                pixel += part.len() / cut.pixel;
                to = rest;
            }
            return;
        }
        let body = CopyPixels { input: &self.input, image, pixel, channels, to, step: cut.pixel };
        // SAFETY: the callers' pixels are inside the input, and the machine has `isa`; who has
        // weights for rounded operands has the instructions that round.
        unsafe {
            match (operands, self.input.order) {
                (Operands::Exact, _) => dispatch(isa, body),
                (_, Order::ChannelsLast { pitch }) => {
                    body.rows(pitch, self.conv.words()).round();
                }
                (_, Order::Rows) if count <= Planes::MOST => {
                    body.planes_of(self.conv.words()).round();
                }
                (_, Order::Rows) => {
                    let words = self.conv.words();
                    write_operands(isa, operands, RoundPlanes { pixels: body, words });
                }
            }
        }
    }
}

impl Direct<'_> {
    /// The same, each channel multiplied with its number in `gate`.
    fn gate_pixels(
        &self,
        cut: &Cut,
        [image, pixel]: [usize; 2],
        channels: Range<usize>,
        gate: &[f32],
        to: &mut [f32],
    ) {
        let (isa, operands) = (self.conv.isa, self.conv.algorithm.operands());
        let copy = |to: &mut [f32], step: usize| {
            let input = &self.input;
            let pixels = CopyPixels { input, image, pixel, channels: channels.clone(), to, step };
            // SAFETY: the callers' pixels are inside the input, and the machine has `isa`.
            unsafe { dispatch(isa, GatePixels { pixels, gate }) }
        };
        if operands == Operands::Exact {
            return copy(to, cut.pixel);
        }
        let (count, width) = (to.len() / cut.pixel, gate.len());
        with_scratch(count * width, |products| {
            copy(&mut *products, width);
            let data = SendPtr(products.as_mut_ptr());
            let order = Order::ChannelsLast { pitch: width };
            let input = &Side { data, order, channels: width, plane: count };
            let channels = 0..width;
            let pixels = CopyPixels { input, image: 0, pixel: 0, channels, to, step: cut.pixel };
            // SAFETY: as many pixels are in `products`; who has weights for rounded operands has
            // the instructions that round.
            unsafe { pixels.rows(width, self.conv.words()).round() }
        });
    }
}

/// Copies channels of neighbouring pixels next to each other.
pub(super) struct CopyPixels<'a> {
    pub(super) input: &'a Side,
    pub(super) image: usize,
    pub(super) pixel: usize,
    pub(super) channels: Range<usize>,
    /// A pixel at each `step`.
    pub(super) to: &'a mut [f32],
    pub(super) step: usize,
}

impl Body for CopyPixels<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let channels = self.channels.len();
        if channels == 0 {
            return;
        }
        let count = self.to.len() / self.step;
        match self.input.order {
            // SAFETY: the caller's promise.
            Order::Rows => unsafe { self.planes::<S>(count) },
            Order::ChannelsLast { pitch } => {
                let from = self.input.pixel(self.image, self.pixel);
                let from = from.wrapping_add(self.channels.start).cast_const();
                let to = self.to.as_mut_ptr();
                // SAFETY: the caller's promise: `count` pixels are readable, of each its channels.
                unsafe {
                    if pitch == channels && self.step == channels {
                        return std::ptr::copy_nonoverlapping(from, to, count * channels);
                    }
                    for i in 0..count {
                        let (from, to) = (from.add(i * pitch), to.add(i * self.step));
                        let whole = channels / S::LANES * S::LANES;
                        for c in (0..whole).step_by(S::LANES) {
                            S::store(to.add(c), S::load(from.add(c)));
                        }
                        if whole < channels {
                            let mask = S::first(channels - whole);
                            S::store_m(to.add(whole), mask, S::load_m(from.add(whole), mask));
                        }
                    }
                }
            }
        }
    }
}

impl CopyPixels<'_> {
    /// The same as rows to be rounded, of pixels that lie `pitch` apart and become `words` words.
    fn rows(self, pitch: usize, words: usize) -> Rows {
        let from = self.input.pixel(self.image, self.pixel).wrapping_add(self.channels.start);
        Rows {
            from: from.cast_const(),
            from_step: pitch,
            count: self.to.len() / self.step.max(1),
            len: self.channels.len(),
            to: self.to.as_mut_ptr(),
            to_step: self.step,
            words,
        }
    }

    /// The same of an input in rows.
    fn planes_of(self, words: usize) -> Planes {
        let plane = self.input.plane;
        let from = self.input.pixel(self.image, self.pixel);
        Planes {
            from: from.wrapping_add(self.channels.start * plane).cast_const(),
            plane,
            count: self.channels.len(),
            pixels: self.to.len() / self.step.max(1),
            to: self.to.as_mut_ptr(),
            step: self.step,
            words,
        }
    }

    /// # Safety
    ///
    /// As [`Body::run`]; the input is in rows.
    #[inline(always)]
    unsafe fn planes<S: Simd>(self, count: usize) {
        let plane = self.input.plane;
        let first = self.image * self.input.channels + self.channels.start;
        let from = self.input.data.get().cast_const().wrapping_add(first * plane + self.pixel);
        let to = self.to.as_mut_ptr();
        let channels = self.channels.len();
        let (whole_channels, whole_pixels) =
            (channels / S::LANES * S::LANES, count / S::LANES * S::LANES);
        // SAFETY: the caller's promise: `count` pixels of these planes are readable, and the copy
        // has as many.
        unsafe {
            match channels {
                1 if self.step == 1 => return interleave::<1>(from, plane, to, count),
                2 if self.step == 2 => return interleave::<2>(from, plane, to, count),
                3 if self.step == 3 => return interleave::<3>(from, plane, to, count),
                4 if self.step == 4 => return interleave::<4>(from, plane, to, count),
                _ => {}
            }
            for c in (0..whole_channels).step_by(S::LANES) {
                for i in (0..whole_pixels).step_by(S::LANES) {
                    let to = to.add(i * self.step + c);
                    S::transpose(from.add(c * plane + i), plane, to, self.step);
                }
            }
            for c in 0..channels {
                let start = if c < whole_channels { whole_pixels } else { 0 };
                let (from, to) = (from.add(c * plane), to.add(c));
                for i in start..count {
                    *to.add(i * self.step) = *from.add(i);
                }
            }
        }
    }
}

/// The same of an input in rows, each channel rounded to bfloat16, so that a word has two. Zeros
/// follow the last channel up to the last word.
struct RoundPlanes<'a> {
    pixels: CopyPixels<'a>,
    words: usize,
}

impl Writes for RoundPlanes<'_> {
    #[inline(always)]
    unsafe fn write<S: Simd, M: Mac<S>>(self) {
        let CopyPixels { input, image, pixel, channels, to, step } = self.pixels;
        if channels.is_empty() {
            return;
        }
        let whole = channels.len().div_ceil(2);
        if whole < self.words {
            to.chunks_mut(step).for_each(|pixel| pixel[whole..self.words].fill(0.0));
        }
        let pixels = to.len() / step;
        let to = to.as_mut_ptr();
        let plane = input.plane;
        let mut block = [[0.0f32; 16]; 16];
        for c in channels.clone().step_by(S::LANES) {
            let n = S::LANES.min(channels.end - c);
            let at = c - channels.start;
            for first in (0..pixels).step_by(S::LANES) {
                let count = S::LANES.min(pixels - first);
                // SAFETY: the caller's promise: these pixels are readable, of each its channels,
                // and there are words for as many.
                unsafe {
                    let from = input.pixel(image, pixel + first).wrapping_add(c * plane);
                    if (n, count) == (S::LANES, S::LANES) {
                        S::transpose(from, plane, block.as_mut_ptr().cast(), 16);
                    } else {
                        for (i, row) in block.iter_mut().enumerate().take(count) {
                            for (lane, to) in row.iter_mut().enumerate().take(n) {
                                *to = *from.add(lane * plane + i);
                            }
                        }
                    }
                    for (i, row) in block.iter().enumerate().take(count) {
                        round::<S, M>(row.as_ptr(), n, to.wrapping_add((first + i) * step), at);
                    }
                }
            }
        }
    }
}

/// Writes `n` floats, at most a vector, as channels from number `at` on of a pixel, and a zero
/// after an odd number.
///
/// # Safety
///
/// As [`Simd`] and [`Mac`]; so many floats are readable, and there are words for as many.
#[inline(always)]
unsafe fn round<S: Simd, M: Mac<S>>(from: *const f32, n: usize, to: *mut f32, at: usize) {
    // SAFETY: the caller's promise. Channels before a part of a vector are whole words.
    unsafe {
        if n == S::LANES {
            M::put(to, at, S::load(from));
        } else {
            let mut words = [0.0f32; 16];
            M::put(words.as_mut_ptr(), 0, S::load_m(from, S::first(n)));
            std::ptr::copy_nonoverlapping(words.as_ptr(), to.add(at / 2), n.div_ceil(2));
        }
    }
}

impl Geometry {
    /// Inputs along a dimension that neighbouring outputs are computed from.
    pub(super) fn extent(&self, i: usize, outputs: usize) -> usize {
        (outputs.max(1) - 1) * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1
    }
}
