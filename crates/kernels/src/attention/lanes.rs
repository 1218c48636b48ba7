//! Moves between rows of queries and lanes of panels.

use super::Strides;
use super::panels::{Block, Panel, State};
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::{Body, Simd};

/// Geometry: lanes of the longest vector.
pub(super) const MOST_LANES: usize = 16;

/// Square of numbers, by row and lane or the other way round.
#[repr(align(64))]
pub(super) struct Square(pub(super) [[f32; MOST_LANES]; MOST_LANES]);

impl Square {
    /// Returns the first `S::LANES` rows and columns transposed.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold.
    #[inline(always)]
    pub(super) unsafe fn transpose<S: Simd>(&self) -> Square {
        let mut out = Square([[0.0; MOST_LANES]; MOST_LANES]);
        let (from, to) = (self.0.as_ptr().cast(), out.0.as_mut_ptr().cast());
        // SAFETY: the caller's promise; a vector has at most as many lanes as a square.
        unsafe { S::transpose(from, MOST_LANES, to, MOST_LANES) };
        out
    }
}

/// Rows of numbers in memory, one for each lane of a vector.
pub(super) struct LaneRows<'a> {
    data: &'a [f32],
    /// Place of the first number of each row.
    starts: [usize; MOST_LANES],
    /// Rows. Other lanes are empty.
    count: usize,
    /// Distance of the numbers of a row.
    step: usize,
}

impl<'a> LaneRows<'a> {
    /// Finds the rows that the lanes of a vector of a panel read.
    #[inline(always)]
    pub(super) fn new<S: Simd>(
        block: &Block<'_>,
        panel: &Panel,
        vector: usize,
        data: &'a [f32],
        strides: Strides,
    ) -> LaneRows<'a> {
        let mut starts = [0; MOST_LANES];
        let rows = panel.rows_of::<S>(vector);
        for (start, place) in starts.iter_mut().zip(block.places(&rows)) {
            *start = block.start(strides, place);
        }
        let count = rows.len();
        LaneRows { data, starts, count, step: strides.element }
    }

    /// Returns numbers `from..from + len` of each row, by number and lane. Empty lanes are 0.
    ///
    /// # Safety
    ///
    /// The demands of [`Simd`] must hold.
    #[inline(always)]
    pub(super) unsafe fn transpose_part<S: Simd>(&self, from: usize, len: usize) -> Square {
        let mut given = Square([[0.0; MOST_LANES]; MOST_LANES]);
        for (to, start) in given.0.iter_mut().zip(&self.starts[..self.count]) {
            if self.step == 1 {
                let row = &self.data[start + from..][..len];
                if len == S::LANES {
                    // A copy of constant length is a load and a store.
                    to[..S::LANES].copy_from_slice(&row[..S::LANES]);
                } else {
                    to[..len].copy_from_slice(row);
                }
            } else {
                for (i, x) in to[..len].iter_mut().enumerate() {
                    *x = self.data[start + (from + i) * self.step];
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { given.transpose::<S>() }
    }
}

/// Scales queries and writes them by feature and query.
pub(super) struct PackQueries<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) panel: &'a Panel,
    pub(super) to: &'a mut [f32],
}

impl Body for PackQueries<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let PackQueries { block, panel, to } = self;
        let (job, features) = (block.job, block.job.sizes.features);
        for vector in 0..panel.vectors {
            let rows = LaneRows::new::<S>(block, panel, vector, job.q.data, job.q.strides());
            for first in (0..features).step_by(S::LANES) {
                let len = S::LANES.min(features - first);
                // SAFETY: the caller's promise; all squares have whole vectors.
                unsafe {
                    let by_feature = rows.transpose_part::<S>(first, len);
                    let scale = S::splat(job.query_scale());
                    for (i, lanes) in by_feature.0[..len].iter().enumerate() {
                        let at = (first + i) * panel.width + vector * S::LANES;
                        let to = &mut to[at..][..S::LANES];
                        S::store(to.as_mut_ptr(), S::mul(S::load(lanes.as_ptr()), scale));
                    }
                }
            }
        }
    }
}

/// Divides weighted sums by the sums of weights, and writes them to rows of the output.
pub(super) struct Finish<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) panel: &'a Panel,
    pub(super) state: State<'a>,
    /// Output, whose rows belong to one panel each.
    pub(super) out: &'a Shared<'a, f32>,
    pub(super) strides: Strides,
}

impl Body for Finish<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Finish { block, panel, state, out, strides } = self;
        let features = block.job.sizes.value_features;
        let State { sums, softmax, .. } = state;
        for weight in softmax.weights.iter_mut() {
            *weight = block.job.inverse(*weight);
        }
        for vector in 0..panel.vectors {
            let lane = vector * S::LANES;
            // SAFETY: the caller's promise; weights and sums are rows of whole vectors.
            let scale = unsafe { S::load(softmax.weights[lane..][..S::LANES].as_ptr()) };
            for first in (0..features).step_by(S::LANES) {
                let mut scaled = Square([[0.0; MOST_LANES]; MOST_LANES]);
                for (i, to) in scaled.0[..S::LANES.min(features - first)].iter_mut().enumerate() {
                    let from = &sums[(first + i) * panel.width + lane..][..S::LANES];
                    // SAFETY: as above.
                    unsafe { S::store(to.as_mut_ptr(), S::mul(S::load(from.as_ptr()), scale)) };
                }
                // SAFETY: the caller's promise.
                let by_row = unsafe { scaled.transpose::<S>() };
                let rows = panel.rows_of::<S>(vector);
                for (place, values) in block.places(&rows).zip(&by_row.0) {
                    let start = block.start(strides, place) + first;
                    let len = S::LANES.min(features - first);
                    // SAFETY: no two rows of the output overlap, and this panel alone has the row.
                    let to = unsafe { out.part(start, len) };
                    to.copy_from_slice(&values[..len]);
                }
            }
        }
    }
}
