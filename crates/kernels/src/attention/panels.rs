//! Attention of many queries: panels of queries meet tiles of keys.
//!
//! A block of panels keeps its queries, scaled and transposed, and its sums in the second-level
//! cache while all keys and values pass by once, tile by tile. Scores exist for one tile and one
//! panel at a time, in the first-level cache.
//!
//! Panels begin at multiples of their width and tiles at multiples of [`KEYS`], and blocks consist
//! of whole panels. So results depend neither on the caches nor on the number of threads, which
//! only decide how many panels a block has.

use super::lanes::{Finish, PackQueries};
use super::masks::MaskScores;
use super::tile::{CHUNK, CapScores, Narrow, RunningSoftmax, Scores, Values, WeighScores, Wide};
use super::{Attention, Heads, NO_WINDOW, Strides};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::chunks::Shared;
#[cfg(target_arch = "aarch64")]
use sardonyx_simd::neon::Neon;
use sardonyx_simd::portable::Portable;
use sardonyx_simd::{Ended, Exec, Isa, Pool, Simd, check_isa, split_even};
#[cfg(target_arch = "x86_64")]
use sardonyx_simd::{avx2::Avx2, avx512::Avx512};
use std::ops::Range;

/// Sums: keys of a tile. The running softmax updates the greatest score once a tile.
const KEYS: usize = 192;
/// Choice: panels of a block from which on keys and values are copied. Rows of a copy lie in few
/// pages and in different sets of the first-level cache.
const COPY_FROM: usize = 4;
/// Work: parts for each thread, so that threads that finish early can take more.
const PARTS: usize = 3;
/// Work: fewest multiply-adds of a chunk. Distributing smaller chunks costs more time than it
/// saves.
const SERIAL_WORK: usize = 64 * 1024;
/// Geometry: row stride in floats whose multiples map all rows to the same few sets of a
/// first-level cache.
const ALIASED: usize = 1024;
/// Geometry: floats of a 64-byte cache line.
const LINE: usize = 16;

/// Returns the number of queries in a panel: two vectors.
const fn panel_width(isa: Isa) -> usize {
    2 * isa.lanes()
}

/// Computes an attention whose sizes have been checked. Rows of `out` are contiguous and do not
/// overlap.
pub(super) fn attention(
    exec: &Exec<'_>,
    job: &Attention<'_>,
    out: &Shared<'_, f32>,
    strides: Strides,
) -> Result<(), Ended> {
    check_isa(exec.isa);
    let s = job.sizes;
    let (width, rows) = (panel_width(exec.isa), job.group() * s.queries);
    let (panels, heads) = (rows.div_ceil(width), s.batch * s.shared_heads);
    let fed = match exec.pool.threads() {
        1 => 1,
        threads => (PARTS * threads).div_ceil(heads),
    };
    let parts = panels.div_ceil(most_panels(exec, job)).max(fed).min(panels);
    let units = heads * parts;
    let work = rows.div_ceil(parts) * s.keys * (s.features + s.value_features);
    let per_chunk = (SERIAL_WORK / work.max(1)).max(1);
    exec.pool.run(units.div_ceil(per_chunk), |chunk| {
        for index in chunk * per_chunk..units.min((chunk + 1) * per_chunk) {
            let (head, panels) = (index / parts, split_even(panels, parts, index % parts));
            let block = Block {
                job,
                isa: exec.isa,
                batch: head / s.shared_heads,
                shared_head: head % s.shared_heads,
                rows: panels.start * width..rows.min(panels.end * width),
            };
            block.run(out, strides)?;
        }
        Ok(())
    })
}

/// Returns the number of panels whose queries and sums fit half of the second-level cache, together
/// with a tile of keys and values.
fn most_panels(exec: &Exec<'_>, job: &Attention<'_>) -> usize {
    let s = job.sizes;
    let features = s.features + s.value_features;
    let (tile, panel) = (KEYS * features, panel_width(exec.isa) * features);
    (exec.caches.own_floats(1, 2).saturating_sub(tile) / panel.max(1)).max(COPY_FROM)
}

/// Consecutive panels of queries that share keys.
#[derive(Clone, Debug)]
pub(super) struct Block<'a> {
    pub(super) job: &'a Attention<'a>,
    isa: Isa,
    pub(super) batch: usize,
    shared_head: usize,
    /// Queries of all heads that share keys, numbered by head, then query.
    rows: Range<usize>,
}

/// Queries side by side in lanes.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    index: usize,
    pub(super) rows: Range<usize>,
    /// Vectors that hold the rows, one or two.
    pub(super) vectors: usize,
    /// Lanes of the vectors.
    pub(super) width: usize,
    /// Range that covers each key that some query of the panel sees.
    seen: Range<usize>,
    /// Keys that all queries of the panel see: no window test is needed.
    pub(super) clear: Range<usize>,
}

/// Head and query of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) head: usize,
    pub(super) query: usize,
}

impl Place {
    /// Returns head and query of the next row, where each head has `queries` queries.
    fn next(self, queries: usize) -> Place {
        let is_last = self.query + 1 == queries;
        let head = self.head + usize::from(is_last);
        Place { head, query: if is_last { 0 } else { self.query + 1 } }
    }
}

/// Keys or values, read in place or through copies of their rows.
#[derive(Clone, Copy, Debug)]
struct Operand<'a> {
    heads: &'a Heads<'a>,
    features: usize,
    /// Row stride of a copy, in floats; 0 if rows are read in place.
    pitch: usize,
}

impl<'a> Operand<'a> {
    /// Decides whether rows are copied: if `panels` panels read them, if features are not adjacent,
    /// or if rows alias in the cache.
    fn new(heads: &'a Heads<'a>, features: usize, panels: usize) -> Operand<'a> {
        let Strides { row, element, .. } = heads.strides();
        let copies = panels >= COPY_FROM || element != 1 || row.is_multiple_of(ALIASED);
        // An odd number of cache lines, so that rows map to different sets.
        let pitch = if copies { features.next_multiple_of(2 * LINE) + LINE } else { 0 };
        Operand { heads, features, pitch }
    }
}

impl Panel {
    /// Returns the rows in the lanes of one vector.
    pub(super) fn rows_of<S: Simd>(&self, vector: usize) -> Range<usize> {
        let start = self.rows.start + vector * S::LANES;
        start..self.rows.end.min(start + S::LANES)
    }
}

impl Block<'_> {
    /// Returns head and query of `row`.
    pub(super) fn place(&self, row: usize) -> Place {
        let queries = self.job.sizes.queries;
        let first = self.shared_head * self.job.group();
        Place { head: first + row / queries, query: row % queries }
    }

    /// Returns head and query of each of `rows`.
    pub(super) fn places(&self, rows: &Range<usize>) -> impl Iterator<Item = Place> + use<> {
        let queries = self.job.sizes.queries;
        let first = Some(self.place(rows.start));
        std::iter::successors(first, move |place| Some(place.next(queries))).take(rows.len())
    }

    /// Returns the index of the first element of a row of queries, of the output or of a mask.
    pub(super) fn start(&self, strides: Strides, place: Place) -> usize {
        strides.row_start(self.batch, place.head, place.query)
    }

    /// Returns the rows of the block, cut into panels.
    fn panels(&self) -> impl Iterator<Item = Panel> {
        let width = panel_width(self.isa);
        self.rows.clone().step_by(width).enumerate().map(move |(index, start)| {
            let rows = start..self.rows.end.min(start + width);
            let (lanes, job) = (self.isa.lanes(), self.job);
            let vectors = rows.len().div_ceil(lanes);
            let (first, last) = (self.place(start), self.place(rows.end - 1));
            // A later query sees no earlier first or last key.
            let is_one_head = first.head == last.head;
            let [first, last] =
                if is_one_head { [first.query, last.query] } else { [0, job.sizes.queries - 1] };
            let (first, last) = (job.seen_keys(first), job.seen_keys(last));
            let seen = first.start..last.end.max(first.start);
            let clear = last.start..first.end;
            Panel { index, rows, vectors, width: vectors * lanes, seen, clear }
        })
    }

    /// Computes the outputs of all panels with the kernel of the machine.
    fn run(&self, out: &Shared<'_, f32>, strides: Strides) -> Result<(), Ended> {
        // SAFETY: `attention` checked that the machine has `isa`.
        unsafe {
            by_isa!(
                self.isa,
                self.run_as::<Avx512, 8, 7>(out, strides),
                self.run_as::<Avx2, 6, 5>(out, strides),
                self.run_as::<Neon, 8, 7>(out, strides),
                self.run_as::<Portable, 4, 3>(out, strides),
            )
        }
    }

    /// Computes the outputs of all panels with register tiles of `R` and `LESS` rows.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`.
    unsafe fn run_as<S: Simd, const R: usize, const LESS: usize>(
        &self,
        out: &Shared<'_, f32>,
        strides: Strides,
    ) -> Result<(), Ended> {
        let (job, s) = (self.job, self.job.sizes);
        let panels = self.rows.len().div_ceil(2 * S::LANES);
        let k = Operand::new(&job.k, s.features, panels);
        let v = Operand::new(&job.v, s.value_features, panels);
        let layout = BlockLayout {
            width: 2 * S::LANES,
            features: s.features.next_multiple_of(S::LANES),
            value_features: s.value_features.next_multiple_of(S::LANES),
            panels,
        };
        let copies = [k, v].map(|operand| KEYS * operand.pitch);
        with_scratch(layout.len() + copies[0] + copies[1], |scratch| {
            let (states, copy) = scratch.split_at_mut(layout.len());
            let mut memory = Memory::new(layout, states);
            let (k_copy, v_copy) = copy.split_at_mut(copies[0]);
            let (mut first, mut end) = (s.keys, 0);
            for panel in self.panels() {
                if !panel.seen.is_empty() {
                    (first, end) = (first.min(panel.seen.start), end.max(panel.seen.end));
                }
                let State { queries, sums, softmax } = memory.states.panel_state(&panel);
                sums.fill(0.0);
                softmax.greatest.fill(f32::NEG_INFINITY);
                softmax.weights.fill(0.0);
                // SAFETY: the caller promises the instruction set of `S`.
                unsafe { S::call(PackQueries { block: self, panel: &panel, to: queries }) };
            }
            for tile in first / KEYS..end.div_ceil(KEYS) {
                Pool::check_ended()?;
                let keys = first.max(tile * KEYS)..end.min((tile + 1) * KEYS);
                let k = self.rows_of(k, &keys, k_copy);
                let v = self.rows_of(v, &keys, v_copy);
                for panel in self.panels() {
                    let tile = Tile { block: self, panel: &panel, first: keys.start, k, v };
                    // SAFETY: the caller promises the instruction set of `S`; `k` and `v` have a
                    // row for each of `keys`.
                    unsafe { tile.run::<S, R, LESS>(&mut memory) };
                }
            }
            for panel in self.panels() {
                let state = memory.states.panel_state(&panel);
                let body = Finish { block: self, panel: &panel, state, out, strides };
                // SAFETY: the caller promises the instruction set of `S`.
                unsafe { S::call(body) };
            }
            Ok(())
        })
    }

    /// Returns the index of the first element of a key or value.
    fn key_start(&self, heads: &Heads<'_>, key: usize) -> usize {
        heads.at(self.batch, self.shared_head, key)
    }

    /// Returns the rows of `keys`, copied to `copy` unless they are read in place.
    fn rows_of(&self, operand: Operand<'_>, keys: &Range<usize>, copy: &mut [f32]) -> Narrow {
        let Operand { heads, features, pitch } = operand;
        if pitch == 0 {
            let start = heads.data.as_ptr().wrapping_add(self.key_start(heads, keys.start));
            return Narrow { start, stride: heads.strides().row, rows: keys.len(), features };
        }
        for (key, row) in keys.clone().zip(copy.chunks_exact_mut(pitch)) {
            let row = &mut row[..features];
            match heads.strides().element {
                _ if features == 0 => {}
                1 => {
                    let start = self.key_start(heads, key);
                    row.copy_from_slice(&heads.data[start..][..features]);
                }
                step => {
                    let start = self.key_start(heads, key);
                    for (i, x) in row.iter_mut().enumerate() {
                        *x = heads.data[start + i * step];
                    }
                }
            }
        }
        Narrow { start: copy.as_ptr(), stride: pitch, rows: keys.len(), features }
    }
}

/// One tile of keys and values, and the panel that meets it.
struct Tile<'a> {
    block: &'a Block<'a>,
    panel: &'a Panel,
    /// Index of the first key.
    first: usize,
    k: Narrow,
    v: Narrow,
}

impl Tile<'_> {
    /// Adds the weighted values of the tile to the sums of the panel.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `S`, and all rows of `k` and `v` are readable.
    unsafe fn run<S: Simd, const R: usize, const LESS: usize>(&self, memory: &mut Memory<'_>) {
        let &Tile { block, panel, first, .. } = self;
        let (job, vectors) = (block.job, panel.vectors);
        let keys = first.max(panel.seen.start)..panel.seen.end.min(first + self.k.rows);
        if keys.is_empty() {
            return;
        }
        let [k, v] = [self.k, self.v].map(|rows| rows.part(keys.start - first, keys.len()));
        let len = keys.len() * vectors * S::LANES;
        let State { queries, sums, mut softmax } = memory.states.panel_state(panel);
        let scores = &mut memory.scores[..len.next_multiple_of(CHUNK)];
        scores[len..].fill(f32::NEG_INFINITY);
        // SAFETY: the caller promises the instruction set of `S` and readable keys and values;
        // `Memory` has room for a tile of scores, and for the queries and sums of the panel.
        unsafe {
            let queries = Wide { start: queries.as_ptr(), vectors };
            S::call(Scores::<R, LESS> { keys: k, queries, out: scores.as_mut_ptr() });
            if job.softcap != 0.0 {
                S::call(CapScores { x: &mut scores[..len], cap: job.softcap as f32 });
            }
            if job.mask.is_some() || job.window != NO_WINDOW {
                S::call(MaskScores { block, panel, keys, scores: &mut scores[..len] });
            }
            S::call(WeighScores { scores, softmax: &mut softmax });
            let weights = Wide { start: scores.as_ptr(), vectors };
            let (factors, sums) = (softmax.factors.as_ptr(), sums.as_mut_ptr());
            S::call(Values::<R, LESS> { values: v, weights, factors, sums });
        }
    }
}

/// Sizes of the scratch memory of a block.
#[derive(Clone, Copy, Debug)]
struct BlockLayout {
    /// Queries of a panel.
    width: usize,
    /// Features of a query, rounded up to whole vectors.
    features: usize,
    /// Features of a value, rounded up to whole vectors.
    value_features: usize,
    panels: usize,
}

impl BlockLayout {
    /// Returns the length of the scratch memory, in floats.
    fn len(&self) -> usize {
        let panel = self.features + self.value_features + RunningSoftmax::ROWS;
        self.width * (self.panels * panel + KEYS.next_multiple_of(CHUNK))
    }

    /// Returns the range of a panel in memory that holds `rows` rows of queries for each panel.
    fn panel_range(&self, panel: &Panel, rows: usize) -> Range<usize> {
        // A last panel of one vector has shorter rows.
        let start = panel.index * self.width * rows;
        start..start + panel.width * rows
    }
}

/// Scratch memory of a block.
struct Memory<'a> {
    /// Scores of one tile and one panel, indexed by key and query.
    scores: &'a mut [f32],
    states: States<'a>,
}

/// Queries, sums and running softmax of all panels, each panel after the other.
struct States<'a> {
    layout: BlockLayout,
    queries: &'a mut [f32],
    sums: &'a mut [f32],
    softmax: &'a mut [f32],
}

/// Queries, sums and running softmax of one panel.
#[derive(Debug)]
pub(super) struct State<'a> {
    /// Scaled queries, indexed by feature and query.
    pub(super) queries: &'a mut [f32],
    /// Weighted sums of values, indexed by feature and query.
    pub(super) sums: &'a mut [f32],
    pub(super) softmax: RunningSoftmax<'a>,
}

impl<'a> Memory<'a> {
    /// Cuts `scratch` into scores and states.
    fn new(layout: BlockLayout, scratch: &'a mut [f32]) -> Memory<'a> {
        let BlockLayout { width, features, value_features, panels } = layout;
        let (scores, scratch) = scratch.split_at_mut(width * KEYS.next_multiple_of(CHUNK));
        let (queries, scratch) = scratch.split_at_mut(panels * width * features);
        let (sums, softmax) = scratch.split_at_mut(panels * width * value_features);
        Memory { scores, states: States { layout, queries, sums, softmax } }
    }
}

impl States<'_> {
    /// Returns the state of `panel`.
    fn panel_state(&mut self, panel: &Panel) -> State<'_> {
        let layout = self.layout;
        let softmax = &mut self.softmax[layout.panel_range(panel, RunningSoftmax::ROWS)];
        State {
            queries: &mut self.queries[layout.panel_range(panel, layout.features)],
            sums: &mut self.sums[layout.panel_range(panel, layout.value_features)],
            softmax: RunningSoftmax::new(softmax),
        }
    }
}
