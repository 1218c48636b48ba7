//! Order of the tiles of a work unit, and their prefetches.

use std::ops::Range;

use super::cut::Source;
use super::inputs::PixelStart;
use super::{Channels, Sizes, Unit};
use crate::conv::Order;
use crate::conv::tile::{Ahead, Tile, TileFn};

/// State shared by the tiles of a panel.
struct Panel {
    channels: Channels,
    functions: &'static [TileFn],
    /// Whether the unit has no panel before it.
    is_first: bool,
    /// Whether the unit has a panel after it, whose weights tiles prefetch.
    has_next: bool,
}

/// A row of outputs, cut into tiles of about the same width.
#[derive(Clone, Copy)]
struct Columns {
    tiles: usize,
    /// Columns of a tile. The first `longer` tiles have one more.
    width: usize,
    longer: usize,
}

/// Position of a tile in a block.
struct Spot {
    row: usize,
    cols: Range<usize>,
}

impl Columns {
    fn new(cols: usize, most: usize) -> Columns {
        let tiles = cols.div_ceil(most);
        Columns { tiles, width: cols / tiles.max(1), longer: cols % tiles.max(1) }
    }

    /// Returns tile `part` of row `row`.
    fn spot(&self, row: usize, part: usize) -> Spot {
        let start = part * self.width + part.min(self.longer);
        let width = self.width + usize::from(part < self.longer);
        Spot { row, cols: start..start + width }
    }
}

impl Unit<'_> {
    /// Computes all tiles. `copy` is scratch memory for pixels that are copied just before a tile.
    pub(super) fn run_tiles(&mut self, copy: &mut [f32]) {
        if self.cut.by_pixels { self.run_by_pixels(copy) } else { self.run_by_panels() }
    }

    /// Computes all pixels by a panel before the next panel.
    fn run_by_panels(&self) {
        let depth = self.sizes.depth;
        let rows = self.block.rows.len();
        for panel in self.block.panels.clone().map(|index| self.panel(index)) {
            let columns = Columns::new(self.block.cols.len(), panel.functions.len());
            let Channels { weights, width, .. } = panel.channels;
            // The next panel's weights are spread over the tiles of this one.
            let share = (width * depth).div_ceil((rows * columns.tiles).max(1));
            let step = share.div_ceil(depth.max(1));
            let mut next = weights.wrapping_add(width * depth);
            for row in 0..rows {
                for part in 0..columns.tiles {
                    let spot = columns.spot(row, part);
                    let mut ahead = [Ahead::none(weights), self.next_inputs(&panel, &spot)];
                    if panel.has_next {
                        ahead[0] = Ahead { at: next, step };
                        next = next.wrapping_add(share);
                    }
                    self.run_tile(&panel, &spot, ahead);
                }
            }
        }
    }

    /// Computes the pixels of a tile by all panels before the next pixels.
    fn run_by_pixels(&mut self, copy: &mut [f32]) {
        let panels = self.block.panels.clone();
        let most = self.panel(panels.start).functions.len();
        let columns = Columns::new(self.block.cols.len(), most);
        for row in 0..self.block.rows.len() {
            for part in 0..columns.tiles {
                let spot = columns.spot(row, part);
                if self.cut.source == Source::Pixels {
                    self.copy_cols(spot.cols.clone(), copy);
                }
                for panel in panels.clone().map(|index| self.panel(index)) {
                    let ahead = if self.cut.source == Source::Pixels {
                        self.next_pixels(&panel, &spot)
                    } else if row + part > 0 {
                        // The tiles of the first pixels have read all weights.
                        self.next_outputs(&panel, &spot)
                    } else {
                        [self.next_weights(&panel), self.next_inputs(&panel, &spot)]
                    };
                    self.run_tile(&panel, &spot, ahead);
                }
            }
        }
    }

    /// Copies the pixels under columns of the only row, and moves the windows there.
    pub(super) fn copy_cols(&mut self, cols: Range<usize>, copy: &mut [f32]) {
        let (block, cut) = (self.block, self.cut);
        let to = &mut copy[..cols.len() * cut.pixel];
        let pixel = block.cols.start + cols.start;
        let start = PixelStart { image: block.image, pixel, group: block.group };
        self.direct.copy_pixels(cut, start, to);
        self.windows.first = to.as_ptr().wrapping_sub(cols.start * self.windows.col);
    }

    /// Returns panel `index` of the block.
    fn panel(&self, index: usize) -> Panel {
        let channels = self.channels(index);
        Panel {
            channels,
            functions: self.direct.conv.tiles()[channels.vectors - 1],
            is_first: index == self.block.panels.start,
            has_next: index + 1 < self.block.panels.end,
        }
    }

    /// Computes a tile, which prefetches `ahead` meanwhile: inputs, weights or outputs of later
    /// tiles.
    fn run_tile(&self, panel: &Panel, spot: &Spot, ahead: [Ahead; 2]) {
        let mut epilogue = None;
        let tile = Tile {
            runs: self.runs,
            a: self.window(spot.row, spot.cols.start),
            a_rs: self.windows.col,
            b: panel.channels.weights,
            b_vs: self.sizes.depth * self.sizes.lanes,
            ahead,
            end: self.end(spot.row, spot.cols.start, &panel.channels, &mut epilogue),
            fetches: self.direct.output.order != Order::Rows,
        };
        // SAFETY: windows of these outputs are inside the input or the copy, weights were packed
        // for these channels and an instruction set that this machine has, and the unit owns these
        // outputs.
        unsafe { panel.functions[spot.cols.len() - 1](&tile) };
    }

    /// Returns a prefetch of the pixels that are copied for the next tile.
    fn next_pixels(&self, panel: &Panel, spot: &Spot) -> [Ahead; 2] {
        let input = &self.direct.input;
        match input.order {
            Order::ChannelsLast { pitch } if panel.is_first => {
                let next = input.pixel(self.block.image, self.block.cols.start + spot.cols.end);
                let half = (spot.cols.len() * pitch).div_ceil(2);
                let step = half.div_ceil(self.sizes.depth.max(1));
                [0, half].map(|at| Ahead { at: next.wrapping_add(at).cast_const(), step })
            }
            _ => [Ahead::none(panel.channels.weights); 2],
        }
    }

    /// Returns a prefetch of the weights of the next panel.
    fn next_weights(&self, panel: &Panel) -> Ahead {
        let Channels { weights, width, .. } = panel.channels;
        if !panel.has_next {
            return Ahead::none(weights);
        }
        Ahead { at: weights.wrapping_add(width * self.sizes.depth), step: width }
    }

    /// Returns prefetches of the panel's share of the next tile's outputs and of their residual.
    fn next_outputs(&self, panel: &Panel, spot: &Spot) -> [Ahead; 2] {
        let Channels { weights, first, width, .. } = panel.channels;
        let Sizes { depth, group_out: all, .. } = self.sizes;
        let cols = spot.cols.len();
        let share = |at: *const f32, pitch: usize| {
            // Lines that mostly belong to other values are not prefetched.
            if pitch >= all + all / 4 + 16 {
                return Ahead::none(weights);
            }
            let floats = |channel: usize| {
                if pitch == all { cols * channel } else { cols * pitch * channel / all }
            };
            let (from, to) = (floats(first), floats(all.min(first + width)));
            Ahead { at: at.wrapping_add(from), step: (to - from).div_ceil(depth.max(1)) }
        };
        let outputs = share(self.output(spot.row, spot.cols.end).cast_const(), self.outputs.col);
        let residual = if self.epilogue.residual.is_null() {
            None
        } else {
            let pixel = spot.row * self.direct.out_dims[2] + spot.cols.end;
            let at = self.epilogue.residual.wrapping_add(pixel * self.epilogue.residual_rs);
            Some(share(at, self.epilogue.residual_rs))
        };
        match residual {
            // The second prefetch of the first panel is for inputs.
            _ if panel.is_first => [residual.unwrap_or(outputs), self.next_inputs(panel, spot)],
            Some(residual) => [residual, outputs],
            None => [outputs, Ahead::none(weights)],
        }
    }

    /// Returns a prefetch of the inputs of the next tile, if the first panel reads them in place
    /// and once.
    fn next_inputs(&self, panel: &Panel, spot: &Spot) -> Ahead {
        let is_pointwise = self.direct.geometry.taps() == 1;
        if self.cut.source != Source::Input || !is_pointwise || !panel.is_first {
            return Ahead::none(panel.channels.weights);
        }
        let floats = spot.cols.len() * self.windows.col;
        let window = self.window(spot.row, spot.cols.start);
        Ahead { at: window.wrapping_add(floats), step: floats.div_ceil(self.sizes.depth.max(1)) }
    }
}
