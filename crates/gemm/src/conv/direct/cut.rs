//! The cut of a direct convolution into blocks of outputs that the caches hold, and into units for
//! threads.

use super::{Block, Direct};
use crate::conv::tile::{MAX_VECTORS, TileTable};
use crate::conv::{Operands, Order};
use crate::gemm::amx;
use sardonyx_simd::{Grid as Pieces, Operation, Pool, Work, split_even};

/// Geometry: row stride in floats at which rows of tiles share a few sets of a first-level cache.
/// Its ways have 4 KB on every processor.
const ALIASED: usize = 1024;
/// Choice: channels from which pixels are read in place if nothing else prevents it. A run of fewer
/// channels is not worth its start.
const READ_IN_PLACE: usize = 16;
/// Work: units of work per thread, so that a late thread does not make all others wait.
const UNITS_PER_THREAD: usize = 4;
/// Work: panels per thread below which panels alone do not share the work evenly.
const PANELS_PER_THREAD: usize = 4;
/// Work: fewest rows of a block that is cut for threads, as kernel rows are copied for each block.
const LEAST_ROWS: usize = 4;
/// Work: fewest rows of a block if threads would wait for each other otherwise.
const FEWEST_ROWS: usize = 2;
/// Work: fewest tiles of a block of a single row that is cut for threads.
const LEAST_TILES: usize = 2;

/// Memory from which tiles read inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The input itself.
    Input,
    /// A copy of the rows under a block.
    Rows,
    /// Copies of the pixels of a tile, each made just before the tile.
    Pixels,
}

/// A cut of the work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Number of threads that take part.
    pub(super) threads: usize,
    /// Output rows and columns of a block. A block of some of the columns has one row.
    pub(super) rows: usize,
    pub(super) cols: usize,
    /// Numbers of blocks along rows and columns of an output plane.
    pub(super) row_blocks: usize,
    pub(super) col_blocks: usize,
    /// Divisor of the columns of each block except the last.
    pub(super) col_unit: usize,
    /// Number of vectors of output channels of a tile.
    pub(super) vectors: usize,
    /// Number of parts into which the panels of a group are cut.
    pub(super) parts: usize,
    pub(super) source: Source,
    /// Whether all panels compute some pixels before the next pixels.
    pub(super) by_pixels: bool,
    /// Distance of pixels where tiles read them, in floats.
    pub(super) pixel: usize,
    /// Floats of a block's copy of the input.
    pub(super) copy_floats: usize,
    /// Floats of a block's outputs that are not written in place.
    pub(super) out_floats: usize,
}

/// Numbers of blocks into which an output plane is cut.
#[derive(Clone, Copy)]
struct Grid {
    rows: usize,
    cols: usize,
    /// Divisor of the columns of each block except the last.
    unit: usize,
}

impl Direct<'_> {
    /// Returns the number of elements of inputs and outputs.
    fn values(&self) -> usize {
        let params = &self.conv.params;
        let inputs = self.in_dims.iter().product::<usize>() * params.in_channels;
        let outputs = self.out_dims.iter().product::<usize>() * params.out_channels;
        (inputs + outputs).saturating_mul(self.images)
    }

    /// Returns the memory from which tiles read inputs. `fits_cache`: weights stay in the
    /// second-level cache.
    fn source(&self, fits_cache: bool) -> Source {
        let g = self.geometry;
        let changes = self.rounds() || self.gate.is_some();
        if changes && g.is_pointwise() && self.output.order != Order::Rows && fits_cache {
            // Pixels come from memory meanwhile.
            return Source::Pixels;
        }
        let Order::ChannelsLast { pitch } = self.input.order else {
            return Source::Rows;
        };
        let is_short = g.kernel[2] > 1 && self.group_in() < READ_IN_PLACE;
        let is_aliased = (pitch * g.strides[2]).is_multiple_of(ALIASED);
        if changes || g.padded || is_short || is_aliased { Source::Rows } else { Source::Input }
    }

    /// Returns the number of work units.
    pub(super) fn units(&self, cut: &Cut) -> usize {
        let blocks = cut.row_blocks * cut.col_blocks * self.out_dims[0] * self.images;
        blocks * self.conv.params.groups * cut.parts
    }

    /// Returns the outputs of a work unit, and the panels that compute them.
    pub(super) fn block(&self, cut: &Cut, unit: usize) -> Block {
        // With few pixels, each thread computes channels of its own, whose weights no other thread
        // reads.
        let blocks = self.units(cut) / cut.parts;
        let (part, rest) = (unit / blocks, unit % blocks);
        let (group, rest) = (rest % self.conv.params.groups, rest / self.conv.params.groups);
        let (col, rest) = (rest % cut.col_blocks, rest / cut.col_blocks);
        let (row, rest) = (rest % cut.row_blocks, rest / cut.row_blocks);
        let (depth, image) = (rest % self.out_dims[0], rest / self.out_dims[0]);
        let [_, out_h, out_w] = self.out_dims;
        let cols = split_even(out_w.div_ceil(cut.col_unit), cut.col_blocks, col);
        let panels = self.group_vectors().div_ceil(cut.vectors);
        Block {
            image,
            depth,
            rows: split_even(out_h, cut.row_blocks, row),
            cols: cols.start * cut.col_unit..out_w.min(cols.end * cut.col_unit),
            group,
            panels: split_even(panels, cut.parts, part),
        }
    }

    /// Returns the number of floats of input rows that stay in the first-level cache beside weights
    /// and outputs.
    fn near_rows(&self) -> usize {
        self.conv.caches.near_floats(3, 4)
    }

    /// Cuts the work for the threads of `pool`.
    pub(super) fn cut(&self, pool: &Pool) -> Cut {
        let g = self.geometry;
        let (words, group_out) = (self.conv.words(), self.group_out());
        let [_, out_h, out_w] = self.out_dims;
        let lanes = self.conv.isa.lanes();
        let group_vectors = self.group_vectors();
        let ld = group_vectors * lanes;
        // Weights stay in half of the second-level cache while pixels pass by.
        let fits_cache = ld.saturating_mul(words) <= self.conv.caches.own_floats(1, 2);
        let is_rows = self.output.order == Order::Rows;
        let source = self.source(fits_cache);
        let copies = source == Source::Rows;
        let pixel = match self.input.order {
            Order::ChannelsLast { pitch } if source == Source::Input => pitch,
            _ if words.is_multiple_of(256) && words > 0 => words + 16,
            _ => words,
        };
        // Floats of the cache that a block of these rows and columns takes.
        let copy = |rows: usize, cols: usize| {
            let [rows, cols] = self.footprints(rows, cols);
            let lines = g.kernel[0].saturating_mul(rows.len());
            lines.saturating_mul(cols.len()).saturating_mul(pixel)
        };
        let weights = ld.saturating_mul(self.conv.depth());
        // Each block reads all weights: if these are many, fewer blocks are worth more cache.
        let caches = &self.conv.caches;
        let budget = (weights / 4).clamp(caches.own_floats(1, 4), caches.own_floats(1, 1));
        let most_copy =
            if copies && !self.rounds() && self.copies_near(out_h, |rows| copy(rows, out_w)) {
                self.near_rows()
            } else {
                budget
            };
        let grid = self.cut_grid(|rows, cols| {
            let outputs = if is_rows { group_out } else { group_out / 2 };
            let outputs = rows.saturating_mul(cols).saturating_mul(outputs);
            copy(rows, cols) <= most_copy && outputs <= 2 * budget
        });
        let panels = |cols: usize| group_vectors.div_ceil(self.vectors(group_vectors, cols));
        let most_panels = panels(grid.largest_block(out_h, out_w)[1]);
        let threads = self.threads(pool);
        let (grid, parts) = self.for_threads(threads, grid, weights, most_panels, copies);
        let [rows, cols] = grid.largest_block(out_h, out_w);
        // Large outputs come from memory, best in order; weights must stay in the cache then.
        let adds = usize::from(!self.epilogue.residual.is_null());
        let outputs = self.planes().saturating_mul(out_h * out_w).saturating_mul(group_out);
        let outputs = outputs.saturating_mul(1 + adds);
        let is_large = !copies && !is_rows && g.taps() == 1 && outputs > caches.own_floats(2, 1);
        let copy_floats = match source {
            Source::Rows => copy(rows, cols),
            // As many pixels as any tile has.
            Source::Pixels => self.most_pixels(1) * pixel,
            Source::Input => 0,
        };
        Cut {
            threads,
            rows,
            cols,
            row_blocks: grid.rows,
            col_blocks: grid.cols,
            col_unit: grid.unit,
            vectors: self.vectors(group_vectors, cols),
            parts: parts.min(panels(cols)).max(1),
            source,
            by_pixels: source == Source::Pixels || is_large && fits_cache,
            pixel,
            copy_floats,
            out_floats: if is_rows { (rows * cols).next_multiple_of(lanes) * ld } else { 0 },
        }
    }

    /// Whether blocks whose copy stays in a first-level cache copy few rows more than once. Sums of
    /// few steps read each copied float only a few times.
    fn copies_near(&self, out_h: usize, copy: impl Fn(usize) -> usize) -> bool {
        let rows = (1..=out_h).take_while(|&rows| copy(rows) <= self.near_rows()).count();
        let [footprint, _] = self.footprints(rows, 1);
        let new = rows.saturating_mul(footprint.output);
        rows > 0 && footprint.len().saturating_sub(new) <= new / 8
    }

    /// Returns the number of output planes of all groups.
    fn planes(&self) -> usize {
        (self.images * self.out_dims[0] * self.conv.params.groups).max(1)
    }

    /// Cuts a plane into the fewest blocks whose rows and columns fit the cache.
    fn cut_grid(&self, fits: impl Fn(usize, usize) -> bool) -> Grid {
        let [_, out_h, out_w] = self.out_dims;
        let least = self.most_pixels(1).min(out_w);
        let cols = find_largest(out_w, |cols| fits(1, cols)).max(least).max(1);
        let rows = if cols >= out_w { find_largest(out_h, |rows| fits(rows, cols)) } else { 1 };
        Grid {
            rows: out_h.div_ceil(rows).max(1),
            cols: out_w.div_ceil(cols).max(1),
            // Whole tiles of the pixels of a plane.
            unit: if out_h == 1 { self.most_pixels(2) } else { 1 },
        }
    }

    /// Returns the number of threads that the convolution is worth.
    pub(in crate::conv) fn threads(&self, pool: &Pool) -> usize {
        let [_, out_h, out_w] = self.out_dims;
        let outputs = self.planes().saturating_mul(out_h * out_w).saturating_mul(self.group_out());
        let macs = outputs.saturating_mul(self.conv.depth());
        Work::new(Operation::MultiplyAdd, macs).threads(pool)
    }

    /// Returns the blocks, and the number of parts of the panels of a group, that give all threads
    /// equal work.
    fn for_threads(
        &self,
        threads: usize,
        mut grid: Grid,
        weights: usize,
        panels: usize,
        copies: bool,
    ) -> (Grid, usize) {
        let [_, out_h, out_w] = self.out_dims;
        let planes = self.planes();
        if threads == 1 {
            return (grid, 1);
        }
        let wanted = threads * UNITS_PER_THREAD;
        let tiles = out_w.div_ceil(grid.unit).max(1);
        let has_few = planes * grid.count() < wanted;
        // With many more weights than pixels, each thread reads its own weights, else its own
        // pixels.
        let weights = weights.saturating_mul(self.conv.params.groups);
        if has_few && panels >= threads && weights / 2 > self.values() {
            if panels < threads * PANELS_PER_THREAD && out_h == 1 {
                grid.cols = grid.cols.max(threads.min(tiles));
            }
            // Each part copies its rows again.
            return (grid, if copies { threads } else { threads * PANELS_PER_THREAD });
        }
        if has_few {
            // Blocks first, then parts of the channels.
            let more = wanted.div_ceil(planes * grid.count());
            if out_h > 1 {
                grid.rows = (grid.rows * more).min(out_h.div_ceil(LEAST_ROWS)).max(grid.rows);
            } else {
                grid.cols = (grid.cols * more).min(tiles.div_ceil(LEAST_TILES)).max(grid.cols);
            }
        }
        // Give each thread as many blocks.
        let (blocks, most, others) = if out_h > 1 {
            (grid.rows, out_h.div_ceil(FEWEST_ROWS).max(grid.rows), planes * grid.cols)
        } else {
            (grid.cols, tiles, planes * grid.rows)
        };
        let pieces = Pieces { rows: planes * out_h.max(tiles), cols: panels.max(1) };
        let even =
            if others * blocks > threads { blocks.next_multiple_of(threads) } else { blocks };
        let counts = [even, blocks + 1, blocks + 2, blocks + blocks / 2, 2 * blocks, 3 * blocks];
        let counts = counts.map(|blocks| blocks.min(most));
        let chosen = pieces.choose(threads, counts, |blocks| {
            let rows = others * blocks;
            Pieces { rows, cols: wanted.div_ceil(rows).min(pieces.cols) }
        });
        let blocks = chosen.rows / others;
        if out_h > 1 {
            grid.rows = blocks
        } else {
            grid.cols = blocks
        }
        (grid, chosen.cols)
    }
}

impl Grid {
    fn count(self) -> usize {
        self.rows * self.cols
    }

    /// Returns the numbers of rows and columns of the largest block of a plane.
    fn largest_block(self, height: usize, width: usize) -> [usize; 2] {
        let cols = width.div_ceil(self.unit).div_ceil(self.cols) * self.unit;
        [height.div_ceil(self.rows).max(1), cols.min(width).max(1)]
    }
}

impl Direct<'_> {
    /// Returns the most pixels of a tile of `vectors` vectors.
    fn most_pixels(&self, vectors: usize) -> usize {
        match self.conv.algorithm.operands() {
            Operands::Tiles => amx::STRIPS * amx::ROWS,
            Operands::Exact | Operands::Rounded => self.conv.tiles()[vectors - 1].len(),
        }
    }

    /// Returns the vectors of channels of a tile for rows of `cols` outputs.
    fn vectors(&self, group_vectors: usize, cols: usize) -> usize {
        match self.conv.algorithm.operands() {
            Operands::Tiles => group_vectors.clamp(1, 2),
            Operands::Exact | Operands::Rounded => {
                vectors(self.conv.tiles(), self.conv.isa.registers(), group_vectors, cols)
            }
        }
    }
}

/// Returns the largest number from 1 to `limit` that fits, or 1 if none does.
fn find_largest(limit: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (1, limit.max(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Returns the number of vectors of a tile that cost the fewest cycles for rows of `cols` outputs,
/// if a cycle does one multiply-add of a vector and reads one.
fn vectors(table: &TileTable, registers: usize, group_vectors: usize, cols: usize) -> usize {
    let cost = |vectors: usize| {
        let most = table[vectors - 1].len();
        let count = cols.div_ceil(most).max(1);
        let tile = cols.div_ceil(count);
        // A multiply-add takes four cycles, and two can begin in each.
        let cycles = (tile * vectors).max(tile + vectors).max(8);
        count * cycles
    };
    // Two vectors have the longest rows of all that keep both units busy.
    let order: [usize; MAX_VECTORS] = [2, 3, 4, 1];
    // Registers hold sums, weights of a step, and a pixel. With AVX2, 3 pixels by 4 vectors need 17
    // registers: 40 % of the peak, in place of 94 with 6 pixels by 2 vectors (49 outputs).
    order
        .into_iter()
        .filter(|vectors| cols.min(table[vectors - 1].len()) * vectors + vectors < registers)
        .min_by_key(|&vectors| {
            let (whole, rest) = (group_vectors / vectors, group_vectors % vectors);
            whole * cost(vectors) + if rest > 0 { cost(rest) } else { 0 }
        })
        .unwrap_or(1)
}
