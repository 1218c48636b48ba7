//! Transpositions between rows of queries and lanes of panels.

use super::Strides;
use super::panels::{Block, Panel, State};
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::{Body, Simd};

/// Geometry: lanes of the longest vector, in floats.
pub(super) const MOST_LANES: usize = 16;

/// Square of floats, indexed by row and lane or by lane and row.
#[repr(align(64))]
pub(super) struct Square(pub(super) [[f32; MOST_LANES]; MOST_LANES]);

impl Square {
    /// Transposes the first `S::LANES` rows and columns.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    pub(super) unsafe fn transpose<S: Simd>(&self) -> Square {
        let mut out = Square([[0.0; MOST_LANES]; MOST_LANES]);
        let (from, to) = (self.0.as_ptr().cast(), out.0.as_mut_ptr().cast());
        // SAFETY: the caller promises the instruction set of `S`; a vector has at most as many
        // lanes as a square.
        unsafe { S::transpose(from, MOST_LANES, to, MOST_LANES) };
        out
    }
}

/// Rows of floats in memory, one for each lane of a vector.
pub(super) struct LaneRows<'a> {
    data: &'a [f32],
    /// Index in `data` of the first float of each row.
    starts: [usize; MOST_LANES],
    /// Number of rows. The remaining lanes are empty.
    count: usize,
    /// Stride from one float of a row to the next.
    step: usize,
}

impl<'a> LaneRows<'a> {
    /// Finds the rows of `data` that belong to the lanes of one vector of a panel.
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

    /// Returns floats `from..from + len` of each row, transposed: indexed by float and lane. Empty
    /// lanes are 0.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`.
    #[inline(always)]
    pub(super) unsafe fn transpose_part<S: Simd>(&self, from: usize, len: usize) -> Square {
        let mut given = Square([[0.0; MOST_LANES]; MOST_LANES]);
        for (to, start) in given.0.iter_mut().zip(&self.starts[..self.count]) {
            if self.step == 1 {
                let row = &self.data[start + from..][..len];
                if len == S::LANES {
                    // A copy of constant length compiles to one load and one store.
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
        // SAFETY: the caller promises the instruction set of `S`.
        unsafe { given.transpose::<S>() }
    }
}

/// Body that scales the queries of a panel and writes them to `to`, indexed by feature and query.
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
                // SAFETY: the caller promises the instruction set of `S`; each row of a square and
                // each `to` is a whole vector.
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

/// Body that divides weighted sums of values by the sums of weights and writes them to rows of the
/// output.
pub(super) struct Finish<'a> {
    pub(super) block: &'a Block<'a>,
    pub(super) panel: &'a Panel,
    pub(super) state: State<'a>,
    /// Output, each of whose rows belongs to one panel.
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
            // SAFETY: the caller promises the instruction set of `S`; rows of weights and sums are
            // whole vectors.
            let scale = unsafe { S::load(softmax.weights[lane..][..S::LANES].as_ptr()) };
            for first in (0..features).step_by(S::LANES) {
                let mut scaled = Square([[0.0; MOST_LANES]; MOST_LANES]);
                for (i, to) in scaled.0[..S::LANES.min(features - first)].iter_mut().enumerate() {
                    let from = &sums[(first + i) * panel.width + lane..][..S::LANES];
                    // SAFETY: the caller promises the instruction set of `S`; both slices hold a
                    // vector.
                    unsafe { S::store(to.as_mut_ptr(), S::mul(S::load(from.as_ptr()), scale)) };
                }
                // SAFETY: the caller promises the instruction set of `S`.
                let by_row = unsafe { scaled.transpose::<S>() };
                let rows = panel.rows_of::<S>(vector);
                for (place, values) in block.places(&rows).zip(&by_row.0) {
                    let start = block.start(strides, place) + first;
                    let len = S::LANES.min(features - first);
                    // SAFETY: rows of the output do not overlap, and no other panel has this row.
                    let to = unsafe { out.part(start, len) };
                    to.copy_from_slice(&values[..len]);
                }
            }
        }
    }
}
