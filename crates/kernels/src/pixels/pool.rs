//! Pooling: each output pixel combines the pixels of its window, all channels at a time.
//!
//! Large windows of maximum pooling that move by one along the last dim are combined in two steps:
//! all rows of each column first, then the columns of each window.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Pixels, PixelsMut, VectorFold, load, over_channels, store};
use crate::pooling::taps;
use crate::pooling::taps::Taps;
use crate::pooling::{Divisor, Window};
use crate::reduce::{Maximum, Sum};
use sardonyx_simd::Exec;
use sardonyx_simd::buffer::{with_scratch, with_scratch_of};
use sardonyx_simd::chunks::ranges;
use sardonyx_simd::{Body, Ended, Simd, check_isa, dispatch};

/// Computes the maximum of each window of each channel, for `images` images. Windows are those of
/// [`max_pool`](crate::pooling::max_pool).
///
/// # Panics
///
/// If sizes do not fit.
pub fn max_pool(
    exec: &Exec<'_>,
    images: usize,
    window: &Window<'_>,
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let last = window.input.len() - 1;
    // Worth it for columns that four or more windows share; three rows of three columns gain
    // nothing.
    let twice = window.kernel[last] > 3 && window.strides[last] == 1;
    let twice = twice && window.taps() > window.kernel[last];
    pool_images::<Maximum, false>(exec, images, Pooling { window, divisor: None, twice }, &x, &y)
}

/// Computes the average of each window of each channel, for `images` images. Windows and divisors
/// are those of [`average_pool`](crate::pooling::average_pool).
///
/// # Panics
///
/// If sizes do not fit.
pub fn average_pool(
    exec: &Exec<'_>,
    images: usize,
    window: &Window<'_>,
    divisor: Divisor,
    x: Pixels<'_>,
    y: PixelsMut<'_>,
) -> Result<(), Ended> {
    let pooling = Pooling { window, divisor: Some(divisor), twice: false };
    pool_images::<Sum, true>(exec, images, pooling, &x, &y)
}

/// Windows and divisor of a pooling, and its number of steps.
#[derive(Clone, Copy)]
struct Pooling<'a> {
    window: &'a Window<'a>,
    divisor: Option<Divisor>,
    /// Whether rows are combined first, then columns.
    twice: bool,
}

/// Pools all images with the fold `F`, divided between threads by rows of the output.
fn pool_images<F: VectorFold, const AVERAGE: bool>(
    exec: &Exec<'_>,
    images: usize,
    pooling: Pooling<'_>,
    x: &Pixels<'_>,
    y: &PixelsMut<'_>,
) -> Result<(), Ended> {
    let &Exec { pool, isa, .. } = exec;
    check_isa(isa);
    let window = pooling.window;
    window.check(images, x.count, y.count);
    assert_eq!(x.channels, y.channels, "as many channels out as in");
    let (width, last) = (window.width(), window.input.len() - 1);
    if y.count == 0 || y.channels == 0 {
        return Ok(());
    }
    let taps = window.taps();
    let outer: usize = window.kernel[..last].iter().product();
    let columns =
        if pooling.twice { window.input[last] * x.channels.next_multiple_of(16) } else { 0 };
    ranges(pool, y.count / width, width * taps * x.channels, |rows| {
        with_scratch_of::<usize, _>(outer, |starts| {
            with_scratch(columns, |columns| {
                let rows = Rows::<AVERAGE> { pooling, x, y, rows, starts, columns };
                // SAFETY: `check_isa` checked the instruction set; each row belongs to one thread.
                unsafe { dispatch(isa, PoolRows(rows, PhantomData::<F>)) }
            });
        });
    })
}

/// Range of rows of output pixels.
struct Rows<'a, const AVERAGE: bool> {
    pooling: Pooling<'a>,
    x: &'a Pixels<'a>,
    y: &'a PixelsMut<'a>,
    rows: Range<usize>,
    /// Scratch memory for the first pixel of each input row that an output row reads.
    starts: &'a mut [usize],
    /// Scratch memory for a row of pixels with [`Pooling::twice`].
    columns: &'a mut [f32],
}

/// Body over a range of rows, with the fold `F`.
struct PoolRows<'a, F, const AVERAGE: bool>(Rows<'a, AVERAGE>, PhantomData<F>);

impl<F: VectorFold, const AVERAGE: bool> Body for PoolRows<'_, F, AVERAGE> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Rows { pooling: Pooling { window, divisor, twice }, x, y, rows, starts, columns } =
            self.0;
        let (channels, width, last) = (x.channels, window.width(), window.input.len() - 1);
        let (in_width, pad) = (window.input[last], window.pads_begin[last]);
        let (stride, dilation) = (window.strides[last], window.dilations[last]);
        let column_pitch = channels.next_multiple_of(16);
        for row in rows {
            let mut taps = Taps::new(window, row);
            let outer_count = divisor.map_or(1, |divisor| taps.divisor(window, divisor));
            let mut seen = 0;
            while let Some(from) = taps.next_row(window) {
                starts[seen] = from * in_width;
                seen += 1;
            }
            let starts = &starts[..seen];
            if twice {
                for column in 0..in_width {
                    let from = WindowPixels {
                        x: x.pixel(column),
                        pitch: x.pitch,
                        starts,
                        step: 0,
                        taps: 1,
                    };
                    let to = columns.as_mut_ptr().wrapping_add(column * column_pitch);
                    // SAFETY: each column of each row is a pixel of the input, and the buffer has
                    // room for one pixel per column.
                    unsafe {
                        over_channels!(S, channels, |c, mask| fold::<F, AVERAGE>(
                            &from, c, 1.0, to, mask
                        ));
                    }
                }
            }
            for o in 0..width {
                let inside = taps::positions_inside(window, last, o);
                let count = divisor.map_or(1, |divisor| taps::count(window, last, o, divisor));
                let divisor = (outer_count * count) as f32;
                // The place is arbitrary if no tap is inside, as nothing is read.
                let column = (o * stride + inside.start * dilation).saturating_sub(pad);
                let (x, pitch, starts) = if twice {
                    let start = columns.as_ptr().wrapping_add(column * column_pitch);
                    (start, column_pitch, &[0][..])
                } else {
                    (x.pixel(column), x.pitch, starts)
                };
                let from =
                    WindowPixels { x, pitch, starts, step: dilation * pitch, taps: inside.len() };
                let to = y.pixel(row * width + o);
                // SAFETY: the taps inside are pixels of the input or of the buffer; the output has
                // as many channels.
                unsafe {
                    over_channels!(S, channels, |c, mask| fold::<F, AVERAGE>(
                        &from, c, divisor, to, mask
                    ));
                }
            }
        }
    }
}

/// Pixels of a window.
struct WindowPixels<'a> {
    /// First tap of the window, in the first row of the input.
    x: *const f32,
    /// Distance from one pixel to the next, in floats.
    pitch: usize,
    /// Index of the first pixel of each row that the window reads.
    starts: &'a [usize],
    /// Distance from one tap to the next in a row, in floats.
    step: usize,
    /// Number of taps in a row.
    taps: usize,
}

/// Sums: fewest elements after which a chain of additions goes to a total.
const CHAIN: usize = 128;

/// Combines the pixels of a window into `N` vectors of an output pixel, from channel `c` on.
///
/// # Safety
///
/// The machine has the instruction set of `S`; all lanes, with `MASKED` those of the mask, are
/// readable in all pixels of the window and writable in `to`.
#[inline(always)]
unsafe fn fold<S: Simd, F: VectorFold, const AVERAGE: bool, const N: usize, const MASKED: bool>(
    from: &WindowPixels<'_>,
    c: usize,
    divisor: f32,
    to: *mut f32,
    mask: S::M,
) {
    // SAFETY: the caller promises the instruction set of `S` and valid lanes.
    unsafe {
        let start = S::splat(F::START);
        let (mut totals, mut sums, mut chain) = ([start; N], [start; N], 0);
        for row in from.starts {
            let mut x = from.x.wrapping_add(row * from.pitch + c);
            for _ in 0..from.taps {
                let pixel = load::<S, N, MASKED>(x, mask);
                for (sum, x) in sums.iter_mut().zip(&pixel) {
                    *sum = F::add::<S>(*sum, *x);
                }
                x = x.wrapping_add(from.step);
            }
            chain += from.taps;
            if AVERAGE && chain >= CHAIN {
                for (total, sum) in totals.iter_mut().zip(&mut sums) {
                    *total = F::unite::<S>(*total, *sum);
                    *sum = start;
                }
                chain = 0;
            }
        }
        if AVERAGE {
            let divisor = S::splat(divisor);
            for (sum, total) in sums.iter_mut().zip(&totals) {
                *sum = S::div(F::unite::<S>(*total, *sum), divisor);
            }
        }
        store::<S, N, MASKED>(to.add(c), mask, sums);
    }
}
