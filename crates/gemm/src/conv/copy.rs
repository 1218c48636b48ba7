//! Copies of input pixels in the form of the operands that tiles read: the channels of a pixel are
//! adjacent, planes become pixels on the way, and rounded operands are rounded.

use std::ops::Range;

use super::tile::{WriteOperands, write_operands};
use super::{Operands, Order, Side};
use crate::conv::interleave;
use crate::gemm::bf16::{Planes, Rows};
use crate::gemm::tile::Mac;
use sardonyx_simd::{Body, Isa, Simd, dispatch};

/// Body that copies channels of neighbouring pixels exactly, so that they are adjacent.
pub(super) struct CopyPixels<'a> {
    pub(super) input: &'a Side,
    pub(super) image: usize,
    pub(super) pixel: usize,
    pub(super) channels: Range<usize>,
    /// Target, a pixel at each `step`.
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
            // SAFETY: the caller has these pixels inside the input.
            Order::Rows => unsafe { self.planes::<S>(count) },
            Order::ChannelsLast { pitch } => {
                let from = self.input.pixel(self.image, self.pixel);
                let from = from.wrapping_add(self.channels.start).cast_const();
                let to = self.to.as_mut_ptr();
                // SAFETY: the caller has the channels of `count` pixels readable.
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
    /// Copies the pixels in the form of `operands`, in which a pixel takes `words` words.
    ///
    /// # Safety
    ///
    /// The pixels must be inside the input. The machine must have `isa`, and the instructions that
    /// round if operands are rounded.
    pub(super) unsafe fn copy(self, isa: Isa, operands: Operands, words: usize) {
        // SAFETY: the caller has the pixels inside the input, and the instructions.
        unsafe {
            match (operands, self.input.order) {
                (Operands::Exact, _) => dispatch(isa, self),
                (_, Order::ChannelsLast { pitch }) => self.into_rows(pitch, words).round(),
                (_, Order::Rows) if self.channels.len() <= Planes::MOST => {
                    self.into_planes(words).round();
                }
                (_, Order::Rows) => {
                    write_operands(isa, operands, RoundPlanes { pixels: self, words });
                }
            }
        }
    }

    /// Describes the rows to round of an input whose pixels are `pitch` floats apart and become
    /// `words` words.
    fn into_rows(self, pitch: usize, words: usize) -> Rows {
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

    /// Describes the planes to round of an input in rows whose pixels become `words` words.
    fn into_planes(self, words: usize) -> Planes {
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

    /// Copies `count` pixels of an input in rows.
    ///
    /// # Safety
    ///
    /// The demands of [`Body::run`] must hold.
    #[inline(always)]
    unsafe fn planes<S: Simd>(self, count: usize) {
        let plane = self.input.plane;
        let first = self.image * self.input.channels + self.channels.start;
        let from = self.input.data.get().cast_const().wrapping_add(first * plane + self.pixel);
        let to = self.to.as_mut_ptr();
        let channels = self.channels.len();
        let (whole_channels, whole_pixels) =
            (channels / S::LANES * S::LANES, count / S::LANES * S::LANES);
        // SAFETY: the caller has `count` pixels of these planes readable, and the copy has room for
        // as many.
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

/// Loop that copies pixels of an input in rows and rounds each channel to bfloat16, so that a word
/// has two. Zeros follow the last channel up to the last word.
struct RoundPlanes<'a> {
    pixels: CopyPixels<'a>,
    words: usize,
}

impl WriteOperands for RoundPlanes<'_> {
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
                // SAFETY: the caller has the channels of these pixels readable, and words for as
                // many writable.
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

/// Writes `n` floats, at most a vector, as channels of a pixel from channel `at` on, and a
/// zero after an odd number.
///
/// # Safety
///
/// The demands of [`Simd`] and [`Mac`] must hold, `n` floats must be readable at `from`, and words
/// for as many must be writable at `to`.
#[inline(always)]
unsafe fn round<S: Simd, M: Mac<S>>(from: *const f32, n: usize, to: *mut f32, at: usize) {
    // SAFETY: the caller has `n` floats readable, and words for them writable. Channels before a
    // part of a vector are whole words.
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

/// Returns how many of `places` places precede an input. Inputs of neighbouring places are `step`
/// apart, and all inputs count from that of the first place.
pub(super) fn places_before(input: isize, step: usize, places: usize) -> usize {
    usize::try_from(input).unwrap_or(0).div_ceil(step).min(places)
}

/// Whether index `at` is inside an axis of `size` elements.
pub(super) fn is_inside(at: isize, size: usize) -> bool {
    usize::try_from(at).is_ok_and(|at| at < size)
}

/// Copies elements that are `distance` apart, so that they are adjacent.
///
/// # Safety
///
/// Elements at that distance must be readable for each element of `to`.
#[inline(always)]
pub(super) unsafe fn copy_every(from: *const f32, distance: usize, to: &mut [f32]) {
    // SAFETY: the caller has an element readable at that distance for each element of `to`.
    unsafe {
        // With a constant distance the loop vectorizes.
        match distance {
            2 => copy_each::<2>(from, to),
            3 => copy_each::<3>(from, to),
            4 => copy_each::<4>(from, to),
            _ => to.iter_mut().enumerate().for_each(|(i, x)| *x = *from.add(i * distance)),
        }
    }
}

/// Copies every `D`th element.
///
/// # Safety
///
/// Elements at that distance must be readable for each element of `to`.
#[inline(always)]
unsafe fn copy_each<const D: usize>(from: *const f32, to: &mut [f32]) {
    for (i, x) in to.iter_mut().enumerate() {
        // SAFETY: the caller has an element readable at that distance for each element of `to`.
        *x = unsafe { *from.add(i * D) };
    }
}
