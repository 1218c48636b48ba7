//! Inputs along an axis from which a block of outputs is computed, as a copy holds them.
//!
//! A copy has no input that no tap meets. Strides and dilations with a common divisor only meet
//! every so many inputs. If taps are further apart than a block is long, each tap has its own piece
//! of the copy, so a copy is never longer than taps times outputs.

use super::Direct;
use crate::conv::transpose::greatest_divisor;
use crate::conv::{Geometry, Operands};

/// Inputs of a block along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Number of pieces of the copy: one, or one for each tap.
    pub(super) pieces: usize,
    /// Number of places of a piece.
    pub(super) places: usize,
    /// Distance in inputs of neighbouring places of a piece.
    pub(super) step: usize,
    /// Distance in inputs of the first places of neighbouring pieces.
    pub(super) apart: usize,
    /// Distance in places of neighbouring taps of a window.
    pub(super) tap: usize,
    /// Distance in places of neighbouring outputs.
    pub(super) output: usize,
}

impl Footprint {
    /// Returns the number of places of all pieces.
    pub(super) fn len(&self) -> usize {
        self.pieces.saturating_mul(self.places)
    }
}

impl Geometry {
    /// Returns the inputs along axis `i` of a block of `outputs` outputs.
    fn footprint(&self, i: usize, outputs: usize) -> Footprint {
        let (kernel, stride, dilation) = (self.kernel[i], self.strides[i], self.dilations[i]);
        let outputs = outputs.max(1);
        // For a single tap all strides are equivalent.
        let step = if kernel == 1 { stride } else { greatest_divisor(stride, dilation) };
        let (output, tap) = (stride / step, dilation / step);
        let places = (outputs - 1) * output + (kernel - 1) * tap + 1;
        let by_taps = outputs.saturating_mul(kernel);
        // Adjacent taps join into one run, which is worth a longer copy.
        let limit = if tap == 1 { places / 2 } else { places - 1 };
        if by_taps <= limit {
            return Footprint {
                pieces: kernel,
                places: outputs,
                step: stride,
                apart: dilation,
                tap: outputs,
                output: 1,
            };
        }
        Footprint { pieces: 1, places, step, apart: 0, tap, output }
    }
}

impl Direct<'_> {
    /// Returns the inputs of a block of `rows` rows by `cols` columns along rows and columns.
    pub(super) fn footprints(&self, rows: usize, cols: usize) -> [Footprint; 2] {
        let g = self.geometry;
        let mut along = [g.footprint(1, rows), g.footprint(2, cols)];
        // Tiles of AMX may span several adjacent taps.
        if self.conv.algorithm.operands() == Operands::Tiles && g.dilations[2] == 1 {
            let places = g.extent(2, cols);
            let [_, col] = &mut along;
            *col = Footprint { pieces: 1, places, step: 1, apart: 0, tap: 1, output: g.strides[2] };
        }
        along
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::ConvParams;

    /// Returns the inputs that the taps of outputs meet in a copy, by output and tap.
    fn inputs_met(kernel: usize, stride: usize, dilation: usize, outputs: usize) -> Vec<usize> {
        let mut params = ConvParams::new(1, 1, &[kernel]);
        (params.strides[0], params.dilations[0]) = (stride, dilation);
        let footprint = Geometry::new(&params).unwrap().footprint(2, outputs);
        let inputs: Vec<usize> = (0..footprint.pieces)
            .flat_map(|piece| {
                (0..footprint.places).map(move |i| piece * footprint.apart + i * footprint.step)
            })
            .collect();
        assert_eq!(inputs.len(), footprint.len());
        let longest = (outputs - 1) * stride + (kernel - 1) * dilation + 1;
        assert!(footprint.len() <= longest.min(2 * outputs * kernel));
        let windows = (0..outputs).flat_map(|output| (0..kernel).map(move |tap| (output, tap)));
        windows.map(|(o, t)| inputs[o * footprint.output + t * footprint.tap]).collect()
    }

    #[test]
    fn taps_meet_the_inputs_of_their_windows() {
        for kernel in 1..=5 {
            for stride in 1..=6 {
                for dilation in [1, 2, 3, 4, 8, 100, 4096] {
                    for outputs in [1, 2, 3, 7, 50, 300] {
                        let met = inputs_met(kernel, stride, dilation, outputs);
                        let windows = (0..outputs)
                            .flat_map(|o| (0..kernel).map(move |tap| o * stride + tap * dilation));
                        assert!(met.into_iter().eq(windows), "{kernel} {stride} {dilation}");
                    }
                }
            }
        }
    }
}
