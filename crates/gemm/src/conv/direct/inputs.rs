//! Copies of inputs: rows under a block of outputs with zeros where there is padding, or the pixels
//! of a tile. Gates are multiplied in on the way.

use std::ops::Range;

use super::{Block, Cut, Direct};
use crate::conv::copy::CopyPixels;
use crate::conv::gated::{GatePixels, of_image};
use crate::conv::{Operands, Order, Side};
use crate::gemm::SendPtr;
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::dispatch;

/// Neighbouring pixels of a row of an image.
#[derive(Clone, Copy)]
pub(super) struct PixelStart {
    pub(super) image: usize,
    /// First pixel.
    pub(super) pixel: usize,
    /// Group whose channels are copied.
    pub(super) group: usize,
}

impl Direct<'_> {
    /// Copies the input rows of a block.
    pub(super) fn copy_rows(&self, cut: &Cut, block: &Block, to: &mut [f32]) {
        let g = &self.conv.geometry;
        let [in_d, in_h, in_w] = self.in_dims;
        let (lines, pixels) = (g.extent(1, cut.rows), g.extent(2, cut.cols));
        let (rows, cols) = (g.extent(1, block.rows.len()), g.extent(2, block.cols.len()));
        let d0 = g.first_input(0, block.depth);
        let (h0, w0) = (g.first_input(1, block.rows.start), g.first_input(2, block.cols.start));
        // The pixels of a row that are inside the input.
        let low = (-w0).clamp(0, cols as isize) as usize;
        let high = (in_w as isize - w0).clamp(low as isize, cols as isize) as usize;
        let line = pixels * cut.pixel;
        for kd in 0..g.kernel[0] {
            let d = d0 + (kd * g.dilations[0]) as isize;
            for i in 0..rows {
                let h = h0 + i as isize;
                let to = &mut to[(kd * lines + i) * line..][..line];
                let is_inside = d >= 0 && d < in_d as isize && h >= 0 && h < in_h as isize;
                if !is_inside || low == high {
                    to.fill(0.0);
                    continue;
                }
                to[..low * cut.pixel].fill(0.0);
                to[high * cut.pixel..cols * cut.pixel].fill(0.0);
                let row = (d as usize * in_h + h as usize) * in_w;
                let pixel = row + (w0 + low as isize) as usize;
                let start = PixelStart { image: block.image, pixel, group: block.group };
                self.copy_pixels(cut, start, &mut to[low * cut.pixel..high * cut.pixel]);
            }
        }
    }

    /// Copies the channels of a group of neighbouring pixels, in the form of the operands.
    pub(super) fn copy_pixels(&self, cut: &Cut, start: PixelStart, to: &mut [f32]) {
        let count = self.group_in();
        let PixelStart { image, pixel, group } = start;
        let channels = group * count..(group + 1) * count;
        if let Some(gate) = self.gate {
            return self.copy_gated(cut, start, channels, gate, to);
        }
        let pixels = CopyPixels { input: &self.input, image, pixel, channels, to, step: cut.pixel };
        // SAFETY: the callers' pixels are inside the input, and the machine has `isa`; weights for
        // rounded operands exist only where instructions round.
        unsafe { pixels.copy(self.conv.isa, self.conv.algorithm.operands(), self.conv.words()) }
    }

    /// Copies pixels with each channel multiplied by its factor.
    fn copy_gated(
        &self,
        cut: &Cut,
        start: PixelStart,
        channels: Range<usize>,
        gate: &[f32],
        mut to: &mut [f32],
    ) {
        let plane = self.input.plane;
        let PixelStart { image, mut pixel, group } = start;
        // A row of all pixels goes through images.
        while !to.is_empty() {
            let (further, first) = (pixel / plane, pixel % plane);
            let (part, rest) = to.split_at_mut(to.len().min((plane - first) * cut.pixel));
            let all = self.conv.params.in_channels;
            let gate = of_image(gate, image + further, all, channels.clone());
            let count = part.len() / cut.pixel;
            self.gate_pixels(cut, PixelStart { image, pixel, group }, channels.clone(), gate, part);
            pixel += count;
            to = rest;
        }
    }

    /// Copies pixels with each channel multiplied by its number in `gate`.
    fn gate_pixels(
        &self,
        cut: &Cut,
        start: PixelStart,
        channels: Range<usize>,
        gate: &[f32],
        to: &mut [f32],
    ) {
        let (isa, operands) = (self.conv.isa, self.conv.algorithm.operands());
        let PixelStart { image, pixel, .. } = start;
        let multiply = |to: &mut [f32], step: usize| {
            let channels = channels.clone();
            let pixels = CopyPixels { input: &self.input, image, pixel, channels, to, step };
            // SAFETY: the callers' pixels are inside the input, and the machine has `isa`.
            unsafe { dispatch(isa, GatePixels { pixels, gate }) }
        };
        if operands == Operands::Exact {
            return multiply(to, cut.pixel);
        }
        let (count, width) = (to.len() / cut.pixel, gate.len());
        with_scratch(count * width, |products| {
            multiply(&mut *products, width);
            let data = SendPtr(products.as_mut_ptr());
            let order = Order::ChannelsLast { pitch: width };
            let input = &Side { data, order, channels: width, plane: count };
            let channels = 0..width;
            let pixels = CopyPixels { input, image: 0, pixel: 0, channels, to, step: cut.pixel };
            // SAFETY: as many pixels are in `products`; weights for rounded operands exist only
            // where instructions round.
            unsafe { pixels.copy(isa, operands, self.conv.words()) }
        });
    }
}
