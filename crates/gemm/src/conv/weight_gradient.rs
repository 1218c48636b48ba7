//! The gradient of the weights of a convolution.
//!
//! For an output channel `o`, an input channel `c` and a tap it is the sum, over all outputs of all
//! images, of the gradient of the output times the input that the tap met there. As a convolution
//! its kernel is as large as an image (Dumoulin, Visin, "A guide to convolution arithmetic for deep
//! learning", 2016); as loops it is a product of two matrices with a step for each output pixel.
//! The loops here are the tiles of [direct convolution](super::direct): rows of a tile are inputs
//! of neighbouring taps and channels, its vectors are output channels.
//!
//! Pixels are cut into chunks of about [`CHUNK`]. The gradients of the outputs are packed first,
//! the pixels of a vector of channels after one another, so that a tile reads them in order. A unit
//! of work has some input channels. For each chunk it copies the input rows that the chunk meets,
//! once for each tap along the width, with zeros for padding: then the inputs of neighbouring
//! outputs are adjacent, whatever stride and dilation, and taps along other axes are lines of the
//! same copy.
//!
//! A chunk is a chain of sums, and chunks are added up in order. The sizes of images alone decide
//! where they end, so threads change no bit of the result.

use std::ops::Range;

use super::copy::CopyPixels;
use super::tile::{Ahead, Run, Tile, tiles};
use super::{
    ConvError, ConvParams, Geometry, Operands, Order, Side, check_len, check_memory, product,
    three_dims,
};
use crate::gemm::{SendPtr, TileEnd, TileEpilogue};
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::{Body, Ended, Simd, dispatch};
use sardonyx_simd::{Caches, Exec, Isa, Pool, split_even};

/// Sums: approximate pixels of a chunk, for which two vectors of each fit a first-level cache.
/// Chunks are added up one after the other.
const CHUNK: usize = 256;
/// Geometry: rows of a tile of two vectors with AVX-512. A unit has at least as many if there are.
const TILE_ROWS: usize = 12;
/// Cache: output channels for which the sums of all taps stay in a first-level cache.
const WRITTEN_AT_ONCE: usize = 16;

/// A convolution of one group whose weights have a gradient. `params` are those of the forward
/// convolution; the padding at the end of its input does not matter.
#[derive(Clone, Copy, Debug)]
pub struct WeightGradient<'a> {
    pub params: &'a ConvParams,
    pub images: usize,
    /// Spatial sizes of the input, and of the output.
    pub inputs: &'a [usize],
    pub outputs: &'a [usize],
}

impl WeightGradient<'_> {
    /// Returns an upper bound of the scratch memory in bytes that [`run`](Self::run) takes on all
    /// threads, except a few KB.
    ///
    /// # Errors
    ///
    /// If the sizes do not fit each other, or the size exceeds any memory.
    pub fn scratch(&self, exec: &Exec<'_>) -> Result<usize, ConvError> {
        match Work::new(self, exec)? {
            Some(work) => work.scratch(&work.cut(exec.pool), exec.pool),
            None => Ok(0),
        }
    }

    /// Writes the gradient of the weights, `[out_channels, in_channels, kernel..]`, for the
    /// input `x`, `[images, in_channels, inputs..]`, and the gradient of the output `dy`, `[images,
    /// out_channels, outputs..]`.
    ///
    /// # Errors
    ///
    /// If a length does not fit, or the scratch memory would exceed any memory.
    pub fn run(
        &self,
        exec: &Exec<'_>,
        x: &[f32],
        dy: &[f32],
        dw: &mut [f32],
    ) -> Result<(), ConvError> {
        let params = self.params;
        let len = |channels: usize, spatial: &[usize]| {
            let count = channels.checked_mul(self.images)?;
            count.checked_mul(product(spatial)?)
        };
        let [x_len, dy_len] =
            [len(params.in_channels, self.inputs), len(params.out_channels, self.outputs)];
        check_len("input", x_len.ok_or(ConvError::TooLarge)?, x.len())?;
        check_len("gradient of the output", dy_len.ok_or(ConvError::TooLarge)?, dy.len())?;
        let weights = params.weights_len().ok_or(ConvError::TooLarge)?;
        check_len("gradient of the weights", weights, dw.len())?;
        let Some(work) = Work::new(self, exec)? else {
            dw.fill(0.0);
            return Ok(());
        };
        let cut = work.cut(exec.pool);
        work.scratch(&cut, exec.pool)?;
        Ok(work.run(&cut, exec.pool, x, dy, dw)?)
    }
}

/// Checked sizes of a gradient that is not empty.
struct Work {
    isa: Isa,
    caches: Caches,
    geometry: Geometry,
    /// Numbers of input and output channels.
    channels: [usize; 2],
    images: usize,
    in_dims: [usize; 3],
    out_dims: [usize; 3],
    /// Most output rows and columns of a piece.
    piece: [usize; 2],
    /// Numbers of pieces into which the rows and columns of a plane are cut.
    pieces: [usize; 2],
    /// Number of pieces of a chunk.
    together: usize,
}

/// Some output rows of a plane, or a part of one row.
struct Piece {
    image: usize,
    depth: usize,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl Piece {
    fn pixels(&self) -> usize {
        self.rows.len() * self.cols.len()
    }
}

/// A cut of the work for threads.
struct Cut {
    /// Number of parts of the input channels.
    in_parts: usize,
    /// Number of parts of the vectors of output channels.
    out_parts: usize,
    /// Floats of a unit's copies and sums.
    copy_floats: usize,
    sum_floats: usize,
}

impl Work {
    /// Checks the sizes. Returns `None` if the gradient is empty or zero.
    fn new(gradient: &WeightGradient<'_>, exec: &Exec<'_>) -> Result<Option<Work>, ConvError> {
        let WeightGradient { params, images, inputs, outputs } = *gradient;
        params.check()?;
        if params.groups != 1 {
            let (in_channels, out_channels) = (params.in_channels, params.out_channels);
            return Err(ConvError::Groups { groups: params.groups, in_channels, out_channels });
        }
        let geometry = Geometry::new(params)?;
        let rank = params.kernel.len();
        for sizes in [inputs, outputs] {
            if sizes.len() != rank {
                return Err(ConvError::Rank { want: rank, got: sizes.len() });
            }
        }
        let channels = [params.in_channels, params.out_channels];
        let is_empty = images == 0 || channels.contains(&0) || outputs.contains(&0);
        let (in_dims, out_dims) = (three_dims(inputs), three_dims(outputs));
        if is_empty {
            return Ok(None);
        }
        // Places of windows are computed without overflow.
        for (i, outputs) in out_dims.iter().enumerate() {
            let windows = (outputs - 1).checked_mul(geometry.strides[i]);
            let reach = (geometry.kernel[i] - 1).checked_mul(geometry.dilations[i]);
            let end = windows.and_then(|windows| windows.checked_add(reach?));
            if end.is_none_or(|end| end > isize::MAX as usize / 4) {
                return Err(ConvError::TooLarge);
            }
        }
        let [_, out_h, out_w] = out_dims;
        let col_pieces = out_w.div_ceil(CHUNK);
        let cols = out_w.div_ceil(col_pieces);
        let row_pieces = out_h.div_ceil(CHUNK / cols);
        let rows = out_h.div_ceil(row_pieces);
        let pieces = [row_pieces, col_pieces];
        let together = (CHUNK / (rows * cols)).max(1);
        let piece = [rows, cols];
        Ok(Some(Work {
            isa: exec.isa,
            caches: exec.caches,
            geometry,
            channels,
            images,
            in_dims,
            out_dims,
            piece,
            pieces,
            together,
        }))
    }

    /// Returns the number of pieces of all images.
    fn piece_count(&self) -> usize {
        self.images * self.out_dims[0] * self.pieces[0] * self.pieces[1]
    }

    /// Returns the number of chunks.
    fn chunks(&self) -> usize {
        self.piece_count().div_ceil(self.together)
    }

    /// Returns the most pixels of a chunk.
    fn chunk_pixels(&self) -> usize {
        self.together * self.piece[0] * self.piece[1]
    }

    /// Returns the number of vectors of output channels.
    fn vectors(&self) -> usize {
        self.channels[1].div_ceil(self.isa.lanes())
    }

    /// Returns the pieces of a chunk.
    fn pieces_of_chunk(&self, chunk: usize) -> impl Iterator<Item = Piece> + Clone + '_ {
        let first = chunk * self.together;
        (first..self.piece_count().min(first + self.together)).map(|index| {
            let [row_pieces, col_pieces] = self.pieces;
            let (col, rest) = (index % col_pieces, index / col_pieces);
            let (row, plane) = (rest % row_pieces, rest / row_pieces);
            let [depths, out_h, out_w] = self.out_dims;
            Piece {
                image: plane / depths,
                depth: plane % depths,
                rows: split_even(out_h, row_pieces, row),
                cols: split_even(out_w, col_pieces, col),
            }
        })
    }

    /// Returns the distance of the lines of a copy, in lines of the input. With a single tap, lines
    /// that it does not meet are left out.
    fn line_stride(&self) -> usize {
        if self.geometry.kernel[1] == 1 { self.geometry.strides[1] } else { 1 }
    }

    /// Returns, for a piece's copy of a channel and tap, the number of lines of one depth, and of
    /// lines between neighbouring rows of outputs.
    fn lines(&self) -> (usize, usize) {
        let step = self.geometry.strides[1] / self.line_stride();
        let reach = (self.geometry.kernel[1] - 1) * self.geometry.dilations[1];
        ((self.piece[0] - 1) * step + reach + 1, step)
    }

    /// Returns the floats of a piece's copy for a channel and a tap along the width.
    fn area(&self) -> usize {
        self.geometry.kernel[0].saturating_mul(self.lines().0).saturating_mul(self.piece[1])
    }

    /// Returns the stride in floats between the channels, or taps along the width, of a unit's
    /// copies: not a multiple of four cache lines, so that rows of a tile fall into different sets.
    fn row_step(&self) -> usize {
        let floats = self.area().saturating_mul(self.together).next_multiple_of(16);
        if floats.is_multiple_of(64) { floats.saturating_add(16) } else { floats }
    }

    /// Cuts the work for the threads of `pool`.
    fn cut(&self, pool: &Pool) -> Cut {
        let [inputs, _] = self.channels;
        let (taps, width) = (self.geometry.taps(), self.geometry.kernel[2]);
        let ld = self.vectors() * self.isa.lanes();
        let copied = width.saturating_mul(self.row_step());
        let summed = taps.saturating_mul(ld);
        // Copies of rows take a quarter of the second-level cache, sums half, unless a single
        // channel needs more.
        let (copies, sums) = (self.caches.own_floats(1, 4), self.caches.own_floats(1, 2));
        let most = (copies / copied).min(sums / summed).clamp(1, inputs);
        // Give each thread as many units, of tiles that are not too low.
        let least = TILE_ROWS.div_ceil(width).min(inputs);
        let in_parts = inputs.div_ceil(most).next_multiple_of(pool.threads());
        let in_parts = in_parts.min(inputs / least).max(inputs.div_ceil(most));
        let out_parts = pool.threads().div_ceil(in_parts).min(self.vectors());
        let [inputs, vectors] = [inputs.div_ceil(in_parts), self.vectors().div_ceil(out_parts)];
        Cut {
            in_parts,
            out_parts,
            copy_floats: copied.saturating_mul(inputs),
            sum_floats: taps.saturating_mul(inputs).saturating_mul(vectors * self.isa.lanes()),
        }
    }

    /// Returns the floats of all packed gradients of outputs.
    fn packed_floats(&self) -> Option<usize> {
        let pixels = self.chunks().checked_mul(self.chunk_pixels())?;
        pixels.checked_mul(self.vectors() * self.isa.lanes())
    }

    /// Returns the bytes of scratch memory of all threads.
    fn scratch(&self, cut: &Cut, pool: &Pool) -> Result<usize, ConvError> {
        let threads = pool.threads().min(cut.in_parts * cut.out_parts);
        let of_thread = cut.copy_floats.saturating_add(cut.sum_floats).saturating_mul(threads);
        let packed = self.packed_floats().ok_or(ConvError::TooLarge)?;
        check_memory(packed.saturating_add(of_thread).saturating_mul(size_of::<f32>()))
    }

    /// Computes the gradient.
    fn run(
        &self,
        cut: &Cut,
        pool: &Pool,
        x: &[f32],
        dy: &[f32],
        dw: &mut [f32],
    ) -> Result<(), Ended> {
        let floats = self.packed_floats().unwrap_or(0);
        with_scratch(floats, |packed| {
            let to = SendPtr(packed.as_mut_ptr());
            let of_vector = self.chunk_pixels() * self.isa.lanes();
            pool.run(self.chunks(), |chunk| {
                for vector in 0..self.vectors() {
                    let at = (chunk * self.vectors() + vector) * of_vector;
                    // SAFETY: this chunk and vector own this part of the memory.
                    let to = unsafe {
                        std::slice::from_raw_parts_mut(to.get().wrapping_add(at), of_vector)
                    };
                    self.pack(dy, chunk, vector, to);
                }
            })?;
            let dw = SendPtr(dw.as_mut_ptr());
            pool.run(cut.in_parts * cut.out_parts, |unit| {
                with_scratch(cut.sum_floats, |sums| self.run_unit(cut, unit, x, packed, sums, dw));
            })
        })
    }

    /// Packs the gradients of a vector of output channels at the pixels of a chunk.
    fn pack(&self, dy: &[f32], chunk: usize, vector: usize, to: &mut [f32]) {
        let lanes = self.isa.lanes();
        let [_, outputs] = self.channels;
        let channels = vector * lanes..outputs.min((vector + 1) * lanes);
        if channels.len() < lanes {
            to.fill(0.0);
        }
        let [_, out_h, out_w] = self.out_dims;
        let input = Side {
            data: SendPtr(dy.as_ptr().cast_mut()),
            order: Order::Rows,
            channels: outputs,
            plane: self.out_dims.iter().product(),
        };
        let mut at = 0;
        for piece in self.pieces_of_chunk(chunk) {
            // Whole rows are adjacent.
            let lines = if piece.cols.len() == out_w { 1 } else { piece.rows.len() };
            let count = piece.pixels() / lines;
            for line in 0..lines {
                let row = piece.depth * out_h + piece.rows.start + line;
                let body = CopyPixels {
                    input: &input,
                    image: piece.image,
                    pixel: row * out_w + piece.cols.start,
                    channels: channels.clone(),
                    to: &mut to[at..at + count * lanes],
                    step: lanes,
                };
                // SAFETY: these pixels are inside the gradient, and the machine has `isa`.
                unsafe { dispatch(self.isa, body) };
                at += count * lanes;
            }
        }
    }

    /// Computes the gradient for some input channels and some output channels.
    fn run_unit(
        &self,
        cut: &Cut,
        unit: usize,
        x: &[f32],
        packed: &[f32],
        sums: &mut [f32],
        dw: SendPtr,
    ) {
        let [in_channels, out_channels] = self.channels;
        let lanes = self.isa.lanes();
        let inputs = split_even(in_channels, cut.in_parts, unit % cut.in_parts);
        let vectors = split_even(self.vectors(), cut.out_parts, unit / cut.in_parts);
        let ld = vectors.len() * lanes;
        let outputs = vectors.start * lanes..out_channels.min(vectors.end * lanes);
        let most_runs = self.together * self.piece[0];
        with_scratch_of::<Run, _>(most_runs, |runs| {
            with_scratch(cut.copy_floats, |copy| {
                for chunk in 0..self.chunks() {
                    self.copy_rows(x, chunk, &inputs, copy);
                    let runs = self.runs(chunk, runs);
                    self.add(chunk, runs, inputs.len(), &vectors, [packed, copy], sums);
                }
            });
        });
        // The sums of all taps and input channels for an output channel are adjacent in the result.
        let g = &self.geometry;
        let [taps, width] = [g.taps(), g.kernel[2]];
        let rows = width * inputs.len();
        let first = |output: usize| (output * in_channels + inputs.start) * taps;
        for block in outputs.clone().step_by(WRITTEN_AT_ONCE) {
            for output in block..outputs.end.min(block + WRITTEN_AT_ONCE) {
                // SAFETY: the unit owns the weights between its channels.
                let to = unsafe {
                    let at = dw.get().wrapping_add(first(output));
                    std::slice::from_raw_parts_mut(at, inputs.len() * taps)
                };
                let from = &sums[output - outputs.start..];
                for (channel, to) in to.chunks_exact_mut(taps).enumerate() {
                    for (line, to) in to.chunks_exact_mut(width).enumerate() {
                        let row = line * rows + channel * width;
                        for (tap, to) in to.iter_mut().enumerate() {
                            *to = from[(row + tap) * ld];
                        }
                    }
                }
            }
        }
    }

    /// Writes the pixels of a chunk as runs over a copy, in order.
    fn runs<'m>(&self, chunk: usize, runs: &'m mut [Run]) -> &'m [Run] {
        let (_, step) = self.lines();
        let mut count = 0;
        for (index, piece) in self.pieces_of_chunk(chunk).enumerate() {
            let start = index * self.area();
            let joins = step == 1 && piece.cols.len() == self.piece[1];
            let lines = if joins { 1 } else { piece.rows.len() };
            for line in 0..lines {
                let offset = start + line * step * self.piece[1];
                runs[count] = Run::new(offset, piece.pixels() / lines, false);
                count += 1;
            }
        }
        &runs[..count]
    }

    /// Adds the contribution of a chunk to the sums.
    fn add(
        &self,
        chunk: usize,
        runs: &[Run],
        inputs: usize,
        vectors: &Range<usize>,
        [packed, copy]: [&[f32]; 2],
        sums: &mut [f32],
    ) {
        let lanes = self.isa.lanes();
        let table = tiles(self.isa, Operands::Exact);
        let of_vector = self.chunk_pixels() * lanes;
        let ld = vectors.len() * lanes;
        let g = &self.geometry;
        let rows = g.kernel[2] * inputs;
        let line = g.dilations[1] * self.piece[1];
        let slice = self.lines().0 * self.piece[1];
        let count = vectors.len();
        let together = if count % 2 == 1 && count.is_multiple_of(3) { 3 } else { 2 };
        for first in vectors.clone().step_by(together) {
            let count = together.min(vectors.end - first);
            let functions = table[count - 1];
            let weights = &packed[(chunk * self.vectors() + first) * of_vector..];
            let weights = weights[..count * of_vector].as_ptr();
            let column = (first - vectors.start) * lanes;
            let parts = rows.div_ceil(functions.len());
            for (tap, from) in (0..g.kernel[0])
                .flat_map(|d| (0..g.kernel[1]).map(move |h| d * slice + h * line))
                .enumerate()
            {
                for part in (0..parts).map(|part| split_even(rows, parts, part)) {
                    let at = (tap * rows + part.start) * ld + column;
                    let to = &mut sums[at..][..(part.len() - 1) * ld + count * lanes];
                    let mut tile = Tile {
                        runs,
                        a: copy[part.start * self.row_step() + from..].as_ptr(),
                        a_rs: self.row_step(),
                        b: weights,
                        b_vs: of_vector,
                        ahead: [Ahead::none(weights); 2],
                        end: TileEnd {
                            c: to.as_mut_ptr(),
                            ldc: ld,
                            n: count * lanes,
                            epilogue: std::ptr::null(),
                        },
                        fetches: false,
                    };
                    // Sums of the chunks before.
                    let residual = tile.end.c.cast_const();
                    let more = TileEpilogue { residual, residual_rs: ld, ..TileEpilogue::PLAIN };
                    if chunk > 0 {
                        tile.end.epilogue = &more;
                    }
                    // SAFETY: runs are inside the copy of each row, as far as it was written, the
                    // gradients of a chunk's pixels were packed for an instruction set that this
                    // machine has, and the sums have room for the tile.
                    unsafe { functions[part.len() - 1](&tile) };
                }
            }
        }
    }

    /// Copies the lines that the windows of a chunk meet in some channels.
    fn copy_rows(&self, x: &[f32], chunk: usize, channels: &Range<usize>, copy: &mut [f32]) {
        // SAFETY: the machine has `isa`.
        unsafe { dispatch(self.isa, CopyLines { work: self, x, chunk, channels, copy }) }
    }
}

/// Body that copies the lines that the windows of a chunk meet in some channels, once for each tap
/// along the width, so that its inputs for neighbouring outputs are adjacent.
struct CopyLines<'a> {
    work: &'a Work,
    x: &'a [f32],
    chunk: usize,
    channels: &'a Range<usize>,
    copy: &'a mut [f32],
}

impl Body for CopyLines<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(mut self) {
        let work = self.work;
        let g = &work.geometry;
        let (width, channels) = (g.kernel[2], self.channels.clone());
        for (index, piece) in work.pieces_of_chunk(self.chunk).enumerate() {
            let at = index * work.area();
            for tap in 0..width {
                let line = Line::new(work, &piece, tap);
                for (number, channel) in channels.clone().enumerate() {
                    let at = at + (number * width + tap) * work.row_step();
                    self.copy(&piece, &line, channel, at);
                }
            }
        }
    }
}

/// Properties that the lines of a piece share for a tap along the width.
struct Line {
    /// Input column of the first output, which may be before the line.
    start: isize,
    /// Outputs whose input is inside of the line.
    inside: Range<usize>,
    /// Number of outputs.
    outputs: usize,
    /// Whether the lines of copy and input differ only by a shift.
    is_shifted: bool,
}

impl Line {
    /// Returns the properties for tap `tap` of a piece.
    #[inline(always)]
    fn new(work: &Work, piece: &Piece, tap: usize) -> Line {
        let (g, in_w) = (&work.geometry, work.in_dims[2]);
        let (outputs, stride) = (piece.cols.len(), g.strides[2]);
        let start =
            (piece.cols.start * stride + tap * g.dilations[2]) as isize - g.pads_begin[2] as isize;
        // Number of outputs whose input is before a place.
        let before = |place: usize| {
            let inputs = (place as isize - start).max(0) as usize;
            inputs.div_ceil(stride).min(outputs)
        };
        let inside = before(0)..before(in_w);
        let is_shifted = stride == 1 && work.line_stride() == 1 && outputs == in_w;
        Line { start, inside, outputs, is_shifted: is_shifted && outputs == work.piece[1] }
    }

    /// Returns the index in the input of the first output inside, whose line begins at `line`.
    #[inline(always)]
    fn first(&self, line: usize, stride: usize) -> usize {
        line + (self.start + (self.inside.start * stride) as isize) as usize
    }
}

impl CopyLines<'_> {
    /// Copies the lines that the windows of a piece meet in a channel.
    #[inline(always)]
    fn copy(&mut self, piece: &Piece, line: &Line, channel: usize, at: usize) {
        let CopyLines { work, x, copy, .. } = self;
        let g = &work.geometry;
        let [in_d, in_h, in_w] = work.in_dims;
        let (lines, step) = work.lines();
        let (stride, pitch) = (work.line_stride(), work.piece[1]);
        let needed = lines - (work.piece[0] - piece.rows.len()) * step;
        let h0 = g.first_input(1, piece.rows.start);
        // Lines inside of the input.
        let before = |place: usize| {
            let inputs = (place as isize - h0).max(0) as usize;
            inputs.div_ceil(stride).min(needed)
        };
        let (low, high) = (before(0), before(in_h));
        for d in 0..g.kernel[0] {
            let depth = g.first_input(0, piece.depth) + (d * g.dilations[0]) as isize;
            let copy = &mut copy[at + d * lines * pitch..][..needed * pitch];
            let depth = usize::try_from(depth).ok().filter(|depth| *depth < in_d);
            let (Some(depth), false, false) = (depth, low == high, line.inside.is_empty()) else {
                copy.fill(0.0);
                continue;
            };
            zero(&mut copy[..low * pitch]);
            zero(&mut copy[high * pitch..]);
            let plane = ((piece.image * work.channels[0] + channel) * in_d + depth) * in_h;
            let first_line = (plane + (h0 + (low * stride) as isize) as usize) * in_w;
            let copy = &mut copy[low * pitch..high * pitch];
            let Range { start, end } = line.inside.clone();
            if line.is_shifted {
                // All lines at once. Elements that came from adjacent lines are padding.
                let to = copy.len() - (pitch - end);
                let to = &mut copy[start..to];
                to.copy_from_slice(&x[line.first(first_line, 1)..][..to.len()]);
                if end - start < pitch {
                    for to in copy.chunks_exact_mut(pitch) {
                        zero(&mut to[..start]);
                        zero(&mut to[end..]);
                    }
                }
                continue;
            }
            for (number, to) in copy.chunks_mut(pitch).enumerate() {
                let to = &mut to[..line.outputs];
                zero(&mut to[..start]);
                zero(&mut to[end..]);
                let from = line.first(first_line + number * stride * in_w, g.strides[2]);
                let (from, to) = (&x[from..], &mut to[start..end]);
                match g.strides[2] {
                    1 => to.copy_from_slice(&from[..to.len()]),
                    // Constant steps vectorize.
                    2 => spread(from, 2, to),
                    stride => spread(from, stride, to),
                }
            }
        }
    }
}

/// Sets elements to zero, mostly one or two, for which a call would take longer.
#[inline(always)]
fn zero(to: &mut [f32]) {
    match to {
        [] => {}
        [one] => *one = 0.0,
        [one, two] => (*one, *two) = (0.0, 0.0),
        more => more.fill(0.0),
    }
}

/// Copies every `stride`th element of a line. There is at least one.
#[inline(always)]
fn spread(line: &[f32], stride: usize, to: &mut [f32]) {
    let last = to.len() - 1;
    for (to, from) in to[..last].iter_mut().zip(line.chunks_exact(stride)) {
        *to = from[0];
    }
    to[last] = line[last * stride];
}
