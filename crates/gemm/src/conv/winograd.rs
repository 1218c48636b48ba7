//! Convolution by 3 x 3 kernels with 16 products for four outputs instead of 36.
//!
//! F(2x2, 3x3) of Lavin and Gray, "Fast algorithms for convolutional neural networks" (2016), after
//! Winograd: two by two outputs are computed from four by four inputs. Inputs and weights become 16
//! *points* by sums of a few of them, points are multiplied and summed over channels, and sums of
//! points are the outputs. The sums over channels are 16 matrix products of tiles by channels,
//! which the tiles of direct convolution compute.
//!
//! Weights are transformed in double precision and rounded once. Sums over channels are chains of
//! at most [`CHAIN`] steps: the sums of points lose about a bit, which shorter chains regain.
//! Channels alone decide where chains end, so neither threads, nor blocks, nor the layout of images
//! change a bit of the result.
//!
//! A point is a sum or difference of up to four inputs. If an input is infinite, outputs whose
//! window contains it may be NaN instead of infinite; other outputs do not change. Sums of inputs
//! may overflow from a quarter of the largest float on.

use std::ops::Range;

use super::tile::{Ahead, Run, Tile, WriteOperands, write_operands};
use super::{ConvParams, Geometry, Order, PackedConv, Side};
use crate::conv::pitch_of;
use crate::gemm::tile::Mac;
use crate::gemm::{FinishTransposed, SendPtr, TileEnd, TileEpilogue, finish};
use sardonyx_simd::Pool;
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::{Body, Ended, Grid, Operation, Simd, Work, dispatch, split_even};

/// Value: points of a tile.
pub(super) const POINTS: usize = 16;
/// Value: inputs of a tile along each axis.
const INPUTS: usize = 4;
/// Value: outputs of a tile along each axis.
const OUTPUTS: usize = 2;
/// Sums: fewest input and output channels. With fewer, sums of points take longer than products
/// save.
const LEAST_CHANNELS: usize = 32;
/// Sums: fewest pixels of all images. With fewer, reading the weights, which are more than in other
/// algorithms, takes too long.
pub(super) const LEAST_PIXELS: usize = 32;
/// Geometry: vectors of output channels of a tile of the products.
const PANEL: usize = 2;
/// Sums: most steps of a chain of sums.
const CHAIN: usize = 128;
/// Work: fewest tiles of a block, if there are as many, as each block reads all weights.
const LEAST_TILES: usize = 48;
/// Work: fewest tiles of a block if threads would wait for each other otherwise.
const FEWEST_TILES: usize = 12;
/// Work: blocks per thread, so that a late thread does not make all others wait.
const BLOCKS_PER_THREAD: usize = 2;

/// Whether Winograd's algorithm can compute a convolution, and it has enough channels.
pub(super) fn suits(params: &ConvParams, geometry: &Geometry) -> bool {
    let is_plain = params.groups == 1
        && geometry.kernel == [1, 3, 3]
        && geometry.strides == [1; 3]
        && geometry.dilations == [1; 3]
        && params.kernel.len() <= 2;
    is_plain && params.in_channels.min(params.out_channels) >= LEAST_CHANNELS
}

/// Transforms the nine weights of a kernel to its points, for `L` output channels.
#[inline(always)]
pub(super) fn transform_weights<const L: usize>(g: &[[f64; L]; 9]) -> [[f64; L]; POINTS] {
    let mut rows = [[[0.0; L]; 3]; INPUTS];
    for col in 0..3 {
        for lane in 0..L {
            let [a, b, c] = [g[col][lane], g[3 + col][lane], g[6 + col][lane]];
            rows[0][col][lane] = a;
            rows[1][col][lane] = (a + b + c) / 2.0;
            rows[2][col][lane] = (a - b + c) / 2.0;
            rows[3][col][lane] = c;
        }
    }
    let mut points = [[0.0; L]; POINTS];
    for (row, points) in rows.iter().zip(points.chunks_exact_mut(INPUTS)) {
        for lane in 0..L {
            let [a, b, c] = [row[0][lane], row[1][lane], row[2][lane]];
            points[0][lane] = a;
            points[1][lane] = (a + b + c) / 2.0;
            points[2][lane] = (a - b + c) / 2.0;
            points[3][lane] = c;
        }
    }
    points
}

/// A convolution by Winograd's algorithm with checked sizes.
pub(super) struct Winograd<'a> {
    pub(super) conv: &'a PackedConv,
    pub(super) geometry: &'a Geometry,
    pub(super) images: usize,
    /// Height and width of the input, and of the output.
    pub(super) in_dims: [usize; 2],
    pub(super) out_dims: [usize; 2],
    pub(super) input: Side,
    /// Output, written by this call alone.
    pub(super) output: Side,
    /// Epilogue of an output whose rows are pixels, or planes if it is in rows.
    pub(super) epilogue: TileEpilogue,
}

/// A cut of the work.
#[derive(Clone, Copy, Debug)]
struct Cut {
    threads: usize,
    blocks: usize,
    /// Number of parts into which the vectors of output channels are cut.
    parts: usize,
    /// Strides of the points of inputs, and of outputs.
    inputs: Points,
    outputs: Points,
    /// Floats of the outputs of a block that are not written in place.
    out_floats: usize,
}

/// Strides of points in scratch memory, in floats.
#[derive(Clone, Copy, Debug)]
struct Points {
    /// Stride between tiles.
    tile: usize,
    /// Stride between points of a tile.
    point: usize,
}

impl Points {
    /// Makes the strides for `tiles` tiles of `tile` floats.
    fn new(tiles: usize, tile: usize) -> Points {
        // Not a multiple of 4 KB, as the points of a tile would share a few sets of the cache.
        Points { tile, point: (tiles * tile).next_multiple_of(1024) + 16 }
    }

    /// Returns the floats of all points.
    fn floats(self) -> usize {
        POINTS * self.point
    }
}

/// Position of a tile.
#[derive(Clone, Copy)]
struct Place {
    image: usize,
    /// Row and column of its first output.
    row: usize,
    col: usize,
}

impl Winograd<'_> {
    /// Returns the number of tiles along height and width.
    fn grid(&self) -> [usize; 2] {
        self.out_dims.map(|outputs| outputs.div_ceil(OUTPUTS))
    }

    /// Returns the number of tiles of all images.
    fn all_tiles(&self) -> usize {
        self.images * self.grid().iter().product::<usize>()
    }

    /// Returns the position of tile `tile`.
    fn place(&self, tile: usize) -> Place {
        let [rows, cols] = self.grid();
        let (line, col) = (tile / cols, tile % cols);
        Place { image: line / rows, row: line % rows * OUTPUTS, col: col * OUTPUTS }
    }

    /// Returns the number of vectors of output channels.
    fn vectors(&self) -> usize {
        self.conv.params.out_channels.div_ceil(self.conv.isa.lanes())
    }

    /// Cuts the work for the threads of `pool`.
    fn cut(&self, pool: &Pool) -> Cut {
        let lanes = self.conv.isa.lanes();
        let (pitch, width) = (pitch_of(self.conv.words()), self.vectors() * lanes);
        // Inputs and outputs of all points stay in half of the second-level cache.
        let block = self.conv.caches.own_floats(1, 2);
        let most = (block / POINTS / (pitch + width)).max(LEAST_TILES);
        let all = self.all_tiles();
        let products = all.saturating_mul(POINTS * self.conv.params.out_channels);
        let macs = products.saturating_mul(self.conv.words());
        let work =
            Work::new(Operation::MultiplyAdd, macs).in_pieces(all.saturating_mul(self.vectors()));
        let threads = work.threads(pool);
        let wanted = if threads == 1 { 1 } else { threads * BLOCKS_PER_THREAD };
        let blocks = all.div_ceil(most).max(wanted.min(all / LEAST_TILES)).max(1);
        let Grid { rows: parts, cols: blocks } = if blocks >= threads {
            // Give each thread as many blocks.
            Grid { rows: 1, cols: blocks.next_multiple_of(threads) }
        } else {
            let pieces = Grid { rows: self.vectors().div_ceil(PANEL).max(1), cols: all };
            let most = (all / FEWEST_TILES).max(blocks);
            let counts = [blocks, blocks + 1, 2 * blocks, 3 * blocks, 4 * blocks, most];
            pieces.choose(threads, counts.map(|blocks| blocks.min(most)), |blocks| Grid {
                rows: wanted.div_ceil(blocks).min(pieces.rows),
                cols: blocks,
            })
        };
        let tiles = all.div_ceil(blocks);
        let is_rows = self.output.order == Order::Rows;
        let pixels = OUTPUTS * OUTPUTS * tiles + lanes;
        Cut {
            threads,
            blocks,
            parts,
            inputs: Points::new(tiles, pitch),
            outputs: Points::new(tiles, width),
            out_floats: if is_rows { pixels * width } else { 0 },
        }
    }

    /// Returns the bytes of scratch memory of all threads.
    pub(super) fn scratch(&self, pool: &Pool) -> usize {
        let cut = self.cut(pool);
        let threads = cut.threads.min(cut.blocks * cut.parts);
        let inputs = if cut.parts > 1 { cut.blocks } else { threads };
        let own = (cut.outputs.floats() + cut.out_floats).saturating_mul(threads);
        let floats = cut.inputs.floats().saturating_mul(inputs).saturating_add(own);
        floats.saturating_mul(size_of::<f32>())
    }

    /// Computes all outputs.
    pub(super) fn run(&self, pool: &Pool) -> Result<(), Ended> {
        let cut = self.cut(pool);
        let words = self.conv.words();
        let pieces = words.div_ceil(CHAIN);
        with_scratch_of::<Run, _>(pieces, |runs| {
            for (piece, run) in runs.iter_mut().enumerate() {
                let steps = split_even(words, pieces, piece);
                *run = Run::new(steps.start, steps.len(), piece + 1 < pieces);
            }
            let runs = &*runs;
            if cut.parts > 1 {
                return self.run_parts(&cut, runs, pool);
            }
            pool.run_on(cut.threads, cut.blocks, |block| {
                with_scratch(cut.inputs.floats(), |inputs| {
                    let inputs = inputs.as_mut_ptr();
                    self.write_points(&cut, self.block(&cut, block), inputs);
                    self.run_unit(&cut, runs, block, inputs);
                });
            })
        })
    }

    /// Computes all outputs in two passes: the points of all inputs first, which the parts of the
    /// channels of a block share.
    fn run_parts(&self, cut: &Cut, runs: &[Run], pool: &Pool) -> Result<(), Ended> {
        let floats = cut.inputs.floats();
        with_scratch(cut.blocks * floats, |inputs| {
            let inputs = SendPtr(inputs.as_mut_ptr());
            let pieces = cut.threads.div_ceil(cut.blocks);
            pool.run_on(cut.threads, cut.blocks * pieces, |piece| {
                let (block, piece) = (piece / pieces, piece % pieces);
                let tiles = self.block(cut, block);
                let part = split_even(tiles.len(), pieces, piece);
                let to = inputs.get().wrapping_add(block * floats + part.start * cut.inputs.tile);
                self.write_points(cut, tiles.start + part.start..tiles.start + part.end, to);
            })?;
            pool.run_on(cut.threads, cut.blocks * cut.parts, |unit| {
                let inputs = inputs.get().wrapping_add(unit / cut.parts * floats);
                self.run_unit(cut, runs, unit, inputs);
            })
        })
    }

    /// Returns the tiles of a block.
    fn block(&self, cut: &Cut, block: usize) -> Range<usize> {
        split_even(self.all_tiles(), cut.blocks, block)
    }

    /// Writes the points of some tiles of a block to `to`, the address of the first tile's
    /// points.
    fn write_points(&self, cut: &Cut, tiles: Range<usize>, to: *mut f32) {
        let to_points = ToPoints { conv: self, tiles, to, at: cut.inputs };
        // SAFETY: the machine has `isa`, there is room for the points of the block's tiles, and no
        // other thread writes those of these tiles.
        unsafe { write_operands(self.conv.isa, self.conv.algorithm.operands(), to_points) };
    }

    /// Computes the outputs of some channels of a block whose input points are written.
    fn run_unit(&self, cut: &Cut, runs: &[Run], unit: usize, inputs: *mut f32) {
        with_scratch(cut.outputs.floats(), |outputs| {
            with_scratch(cut.out_floats, |out| {
                self.write_outputs(cut, runs, unit, inputs, outputs, out);
            });
        });
    }

    /// Multiplies the points of a unit and writes its outputs. `outputs` and `out` are scratch
    /// memory.
    fn write_outputs(
        &self,
        cut: &Cut,
        runs: &[Run],
        unit: usize,
        inputs: *mut f32,
        outputs: &mut [f32],
        out: &mut [f32],
    ) {
        let tiles = self.block(cut, unit / cut.parts);
        let panels = self.vectors().div_ceil(PANEL);
        let panels = split_even(panels, cut.parts, unit % cut.parts);
        let vectors = panels.start * PANEL..self.vectors().min(panels.end * PANEL);
        let isa = self.conv.isa;
        let of_outputs = outputs.as_mut_ptr();
        for point in 0..POINTS {
            self.multiply(cut, runs, point, tiles.len(), vectors.clone(), [inputs, of_outputs]);
        }
        let lanes = isa.lanes();
        let channels =
            vectors.start * lanes..self.conv.params.out_channels.min(vectors.end * lanes);
        let from_points = FromPoints {
            conv: self,
            tiles: tiles.clone(),
            from: of_outputs,
            at: cut.outputs,
            channels: channels.clone(),
            out: out.as_mut_ptr(),
        };
        // SAFETY: the machine has `isa`, the points of these channels have been written, and the
        // unit owns these outputs.
        unsafe { dispatch(isa, from_points) };
        if self.output.order == Order::Rows {
            self.write_planes(cut, &tiles, channels, out);
        }
    }

    /// Computes the products of one point of all tiles of a block.
    fn multiply(
        &self,
        cut: &Cut,
        runs: &[Run],
        point: usize,
        count: usize,
        vectors: Range<usize>,
        [inputs, outputs]: [*mut f32; 2],
    ) {
        let lanes = self.conv.isa.lanes();
        let depth = self.conv.words();
        let table = self.conv.tiles();
        let inputs = inputs.wrapping_add(point * cut.inputs.point).cast_const();
        let outputs = outputs.wrapping_add(point * cut.outputs.point);
        for vector in vectors.clone().step_by(PANEL) {
            let width = PANEL.min(vectors.end - vector);
            let functions = table[width - 1];
            let weights = (point * self.vectors() + vector) * depth * lanes;
            let weights = self.conv.weights[weights..].as_ptr();
            let blocks = count.div_ceil(functions.len());
            let share = (width * depth * lanes).div_ceil(blocks.max(1));
            for block in 0..blocks {
                let rows = split_even(count, blocks, block);
                let next = weights.wrapping_add(width * depth * lanes + block * share);
                let tile = Tile {
                    runs,
                    a: inputs.wrapping_add(rows.start * cut.inputs.tile),
                    a_rs: cut.inputs.tile,
                    b: weights,
                    b_vs: depth * lanes,
                    ahead: [Ahead { at: next, step: share.div_ceil(depth) }, Ahead::none(weights)],
                    end: TileEnd {
                        c: outputs.wrapping_add(rows.start * cut.outputs.tile + vector * lanes),
                        ldc: cut.outputs.tile,
                        n: width * lanes,
                        epilogue: std::ptr::null(),
                    },
                    fetches: false,
                };
                // SAFETY: the points of these tiles have been written, and weights were packed for
                // these channels and an instruction set that this machine has.
                unsafe { functions[rows.len() - 1](&tile) };
            }
        }
    }

    /// Writes the outputs of a block, which are in rows of tiles, into their planes.
    fn write_planes(&self, cut: &Cut, tiles: &Range<usize>, channels: Range<usize>, out: &[f32]) {
        let [out_h, out_w] = self.out_dims;
        let plane = out_h * out_w;
        let width = cut.outputs.tile;
        let all_channels = self.conv.params.out_channels;
        let cols = self.grid()[1];
        let mut tile = tiles.start;
        while tile < tiles.end {
            let end = tiles.end.min((tile / cols + 1) * cols);
            let place = self.place(tile);
            for row in 0..OUTPUTS.min(out_h - place.row) {
                let pixel = (place.row + row) * out_w + place.col;
                let from = OUTPUTS * (row * tiles.len() + tile - tiles.start);
                let first = place.image * all_channels + channels.start;
                let body = FinishTransposed {
                    src: out[from * width + channels.start..].as_ptr(),
                    ld: width,
                    out: self.output.data.get().wrapping_add(first * plane + pixel),
                    ldc: plane,
                    rows: channels.len(),
                    cols: (OUTPUTS * (end - tile)).min(out_w - place.col),
                    epilogue: self
                        .epilogue
                        .at(channels.start, pixel)
                        .skip(place.image * all_channels * plane),
                };
                // SAFETY: the outputs are whole vectors of pixels and channels, with room after the
                // last, and the unit owns these parts of the planes.
                unsafe { dispatch(self.conv.isa, body) };
            }
            tile = end;
        }
    }
}

/// Loop that writes the points of the inputs of tiles.
struct ToPoints<'a> {
    conv: &'a Winograd<'a>,
    tiles: Range<usize>,
    to: *mut f32,
    at: Points,
}

impl WriteOperands for ToPoints<'_> {
    #[inline(always)]
    unsafe fn write<S: Simd, M: Mac<S>>(self) {
        let Winograd { conv, geometry, in_dims: [in_h, in_w], input, .. } = self.conv;
        let pads = geometry.pads_begin;
        let channels = conv.params.in_channels;
        let plane = in_h * in_w;
        // Distances of neighbouring pixels, and of neighbouring channels of a pixel.
        let (pixel, channel) = match input.order {
            Order::Rows => (1, plane),
            Order::ChannelsLast { pitch } => (pitch, 1),
        };
        let nowhere = (std::ptr::null(), 0);
        for (index, tile) in self.tiles.clone().enumerate() {
            let place = self.conv.place(tile);
            let row = place.row as isize - pads[1] as isize;
            let col = place.col as isize - pads[2] as isize;
            let image = input.pixel(place.image, 0).cast_const();
            let has = |at: isize, size: usize| at >= 0 && at as usize + INPUTS <= size;
            let to = self.to.wrapping_add(index * self.at.tile);
            let mut done = 0;
            if channel == 1 && has(row, *in_h) && has(col, *in_w) {
                let at = image.wrapping_add((row as usize * in_w + col as usize) * pixel);
                done = channels / S::LANES * S::LANES;
                for c in (0..done).step_by(S::LANES) {
                    // SAFETY: all inputs of the tile are inside the image; the caller has room for
                    // the points.
                    unsafe {
                        let d = load_whole_inputs::<S>(at.add(c), in_w * pixel, pixel);
                        store_points::<S, M>(&d, to, self.at.point, c);
                    }
                }
            }
            if done == channels {
                continue;
            }
            let mut inputs = [nowhere; INPUTS * INPUTS];
            for (i, input) in inputs.iter_mut().enumerate() {
                let (row, col) = (row + (i / INPUTS) as isize, col + (i % INPUTS) as isize);
                let is_inside =
                    row >= 0 && row < *in_h as isize && col >= 0 && col < *in_w as isize;
                if is_inside {
                    let at = row as usize * in_w + col as usize;
                    *input = (image.wrapping_add(at * pixel), channel);
                }
            }
            for c in (done..channels).step_by(S::LANES) {
                // SAFETY: these inputs are inside the image, or zeros; the caller has room for the
                // points.
                unsafe {
                    let d = load_some_inputs::<S>(&inputs, c, S::LANES.min(channels - c));
                    store_points::<S, M>(&d, to, self.at.point, c);
                }
            }
        }
    }
}

/// Loads a vector of each input of a tile whose inputs are all inside the image.
///
/// # Safety
///
/// The demands of [`Simd`] must hold; rows are `line` floats apart, pixels `pixel` floats.
#[inline(always)]
unsafe fn load_whole_inputs<S: Simd>(
    at: *const f32,
    line: usize,
    pixel: usize,
) -> [[S::V; INPUTS]; INPUTS] {
    // SAFETY: the caller has a vector of each input readable.
    unsafe {
        let mut d = [[S::splat(0.0); INPUTS]; INPUTS];
        for (row, d) in d.iter_mut().enumerate() {
            for (col, d) in d.iter_mut().enumerate() {
                *d = S::load(at.add(row * line + col * pixel));
            }
        }
        d
    }
}

/// Loads `count` channels of each input of any tile. An input is an address with the stride of its
/// channels, 0 for zeros.
///
/// # Safety
///
/// The demands of [`Simd`] must hold; `count` channels of each input from `c` on must be readable.
#[inline(always)]
unsafe fn load_some_inputs<S: Simd>(
    inputs: &[(*const f32, usize); INPUTS * INPUTS],
    c: usize,
    count: usize,
) -> [[S::V; INPUTS]; INPUTS] {
    // SAFETY: the caller has these channels readable; masks leave out others.
    unsafe {
        let zero = S::splat(0.0);
        let mut d = [[zero; INPUTS]; INPUTS];
        for (i, &(at, step)) in inputs.iter().enumerate() {
            let at = at.wrapping_add(c * step);
            d[i / INPUTS][i % INPUTS] = match step {
                0 => zero,
                1 => S::load_m(at, S::first(count)),
                _ => S::select(zero, ((1u64 << count) - 1) as u32, at, step),
            };
        }
        d
    }
}

/// Writes channels from `c` on of the points of a tile, which are `point` words apart from
/// `to` on.
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and each point must have room for a vector.
#[inline(always)]
unsafe fn store_points<S: Simd, M: Mac<S>>(
    d: &[[S::V; INPUTS]; INPUTS],
    to: *mut f32,
    point: usize,
    c: usize,
) {
    // SAFETY: the caller has room for a vector at each point.
    unsafe {
        let mut rows = [[S::splat(0.0); INPUTS]; INPUTS];
        let [to_first, to_second, to_third, to_fourth] = &mut rows;
        for col in 0..INPUTS {
            to_first[col] = S::sub(d[0][col], d[2][col]);
            to_second[col] = S::add(d[1][col], d[2][col]);
            to_third[col] = S::sub(d[2][col], d[1][col]);
            to_fourth[col] = S::sub(d[1][col], d[3][col]);
        }
        for (i, row) in rows.iter().enumerate() {
            let to = to.wrapping_add(INPUTS * i * point);
            M::put(to, c, S::sub(row[0], row[2]));
            M::put(to.wrapping_add(point), c, S::add(row[1], row[2]));
            M::put(to.wrapping_add(2 * point), c, S::sub(row[2], row[1]));
            M::put(to.wrapping_add(3 * point), c, S::sub(row[1], row[3]));
        }
    }
}

/// Body that computes the outputs of tiles from the sums of their points.
struct FromPoints<'a> {
    conv: &'a Winograd<'a>,
    tiles: Range<usize>,
    from: *const f32,
    at: Points,
    channels: Range<usize>,
    /// Target of outputs that will be written into planes: the upper rows of all tiles, then the
    /// lower ones.
    out: *mut f32,
}

impl Body for FromPoints<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Winograd { out_dims: [out_h, out_w], output, epilogue, .. } = self.conv;
        let count = self.tiles.len();
        for (index, tile) in self.tiles.clone().enumerate() {
            let place = self.conv.place(tile);
            let rows = OUTPUTS.min(out_h - place.row);
            let cols = OUTPUTS.min(out_w - place.col);
            let from = self.from.wrapping_add(index * self.at.tile);
            if let Order::ChannelsLast { pitch } = output.order {
                // Prefetches the outputs of the tile after the next.
                let place = self.conv.place((tile + 2).min(self.tiles.end - 1));
                for row in 0..rows.min(out_h - place.row) {
                    let pixel = (place.row + row) * out_w + place.col;
                    let at = output.pixel(place.image, pixel);
                    for channel in self.channels.clone().step_by(16) {
                        // SAFETY: a prefetch never faults.
                        unsafe {
                            S::prefetch_write(at.wrapping_add(channel));
                            S::prefetch_write(at.wrapping_add(pitch + channel));
                        }
                    }
                }
            }
            for channel in self.channels.clone().step_by(S::LANES) {
                // SAFETY: the caller has the sums of points readable; a tile's last channels are
                // followed by zeros up to a whole vector.
                let sums =
                    unsafe { sums_of_points::<S>(from.wrapping_add(channel), self.at.point) };
                for (row, sums) in sums.iter().enumerate().take(rows) {
                    let pixel = (place.row + row) * out_w + place.col;
                    let (c, ldc, n) = match output.order {
                        Order::Rows => {
                            let at = OUTPUTS * (row * count + index) * self.at.tile;
                            (self.out.wrapping_add(at), self.at.tile, S::LANES)
                        }
                        Order::ChannelsLast { pitch } => {
                            let n = S::LANES.min(self.channels.end - channel);
                            (output.pixel(place.image, pixel), pitch, n)
                        }
                    };
                    let end;
                    let mut to =
                        TileEnd { c: c.wrapping_add(channel), ldc, n, epilogue: std::ptr::null() };
                    if output.order != Order::Rows && !epilogue.is_plain() {
                        end = epilogue.at(place.image * out_h * out_w + pixel, channel);
                        to.epilogue = &end;
                    }
                    // SAFETY: these outputs are inside the image, and the caller owns them.
                    unsafe {
                        if cols == OUTPUTS {
                            finish::<S, OUTPUTS, 1>(&to, [[sums[0]], [sums[1]]]);
                        } else {
                            finish::<S, 1, 1>(&to, [[sums[0]]]);
                        }
                    }
                }
            }
        }
    }
}

/// Returns the outputs of a tile, a vector of channels each, from the sums of its points.
///
/// # Safety
///
/// The demands of [`Simd`] must hold, and each point must have a whole vector.
#[inline(always)]
unsafe fn sums_of_points<S: Simd>(from: *const f32, point: usize) -> [[S::V; OUTPUTS]; OUTPUTS] {
    // SAFETY: the caller has a vector readable at each point.
    unsafe {
        let zero = S::splat(0.0);
        let mut rows = [[zero; INPUTS]; OUTPUTS];
        for col in 0..INPUTS {
            let mut m = [zero; INPUTS];
            for (row, m) in m.iter_mut().enumerate() {
                *m = S::load(from.wrapping_add((INPUTS * row + col) * point));
            }
            let [upper, lower] = &mut rows;
            upper[col] = S::add(S::add(m[0], m[1]), m[2]);
            lower[col] = S::sub(S::sub(m[1], m[2]), m[3]);
        }
        let mut sums = [[zero; OUTPUTS]; OUTPUTS];
        for (sums, row) in sums.iter_mut().zip(&rows) {
            sums[0] = S::add(S::add(row[0], row[1]), row[2]);
            sums[1] = S::sub(S::sub(row[1], row[2]), row[3]);
        }
        sums
    }
}
