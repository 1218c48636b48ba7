//! Attention of a few queries that share keys, such as those of one step of text generation:
//! products of few rows with a matrix, which read keys and values once and are bound by memory.

use super::{Attention, Mask, Strides};
use crate::reduce::{Maximum, Sum, run};
use sardonyx_gemm::gemm::{Epilogue, Lhs, MatRef, Rhs, gemm};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec, Isa, Level, Loop, Pool};

/// Returns the largest number of queries sharing keys that is computed as products of rows. More
/// queries fill the lanes of vectors so far that panels are faster (AVX-512, 12 heads of 1,000
/// keys: 5 queries take 490 µs in panels and 380 µs as products, 16 queries 500 µs and 640 µs).
const fn most_rows(isa: Isa) -> usize {
    match isa {
        Isa::Portable | Isa::Neon | Isa::Avx2 => 5,
        Isa::Avx512 => 8,
    }
}

/// Sums: keys of a tile.
const KEYS: usize = 256;
/// Work: fewest multiply-adds of a chunk. Distributing smaller chunks costs more time than it
/// saves.
const SERIAL_WORK: usize = 64 * 1024;

/// Few queries that share keys, with one stride between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FewRows {
    /// One query of each of several heads.
    Heads(usize),
    /// Several queries of one head.
    Queries(usize),
}

impl FewRows {
    /// Returns the queries that share keys, or `None` if there are more than [`most_rows`].
    pub(super) fn from_job(job: &Attention<'_>, isa: Isa) -> Option<FewRows> {
        let rows = match (job.group(), job.sizes.queries) {
            (1, queries) => FewRows::Queries(queries),
            (heads, 1) => FewRows::Heads(heads),
            _ => return None,
        };
        Some(rows).filter(|rows| rows.count() <= most_rows(isa))
    }

    /// Returns the number of rows.
    fn count(self) -> usize {
        match self {
            FewRows::Heads(count) | FewRows::Queries(count) => count,
        }
    }
}

/// Computes an attention whose sizes have been checked. Rows of `out` are contiguous and do not
/// overlap.
pub(super) fn attention(
    exec: &Exec<'_>,
    job: &Attention<'_>,
    rows: FewRows,
    out: &Shared<'_, f32>,
    strides: Strides,
) -> Result<(), Ended> {
    let alone = Exec { pool: Pool::serial(), ..*exec };
    let s = job.sizes;
    let units = s.batch * s.shared_heads;
    let work = s.keys * (s.features + s.value_features) * rows.count();
    let per_chunk = (SERIAL_WORK / work.max(1)).max(1);
    exec.pool.run(units.div_ceil(per_chunk), |chunk| {
        for index in chunk * per_chunk..units.min((chunk + 1) * per_chunk) {
            let (batch, head) = (index / s.shared_heads, index % s.shared_heads);
            Unit { job, alone, batch, head, rows }.run(out, strides)?;
        }
        Ok(())
    })
}

/// Queries that share a head of keys.
struct Unit<'a> {
    job: &'a Attention<'a>,
    /// Execution without other threads: a unit is computed on one thread.
    alone: Exec<'a>,
    batch: usize,
    /// Head of keys and values.
    head: usize,
    rows: FewRows,
}

impl Unit<'_> {
    /// Returns head and query of `row`.
    fn place(&self, row: usize) -> (usize, usize) {
        match self.rows {
            FewRows::Heads(group) => (self.head * group + row, 0),
            FewRows::Queries(_) => (self.head, row),
        }
    }

    /// Computes the outputs of all rows of the unit.
    fn run(&self, out: &Shared<'_, f32>, y_strides: Strides) -> Result<(), Ended> {
        let (job, s, count) = (self.job, self.job.sizes, self.rows.count());
        let (q_strides, k_strides, v_strides) = (job.q.strides(), job.k.strides(), job.v.strides());
        let row_stride = match self.rows {
            FewRows::Heads(_) => q_strides.head,
            FewRows::Queries(_) => q_strides.row,
        };
        let (head, query) = self.place(0);
        let q = MatRef::new(
            job.q.data.get(job.q.at(self.batch, head, query)..).unwrap_or_default(),
            count,
            s.features,
            row_stride,
            q_strides.element,
        );
        // Keys that the window hides from all rows are not read.
        let seen = (0..count).map(|row| job.seen_keys(self.place(row).1));
        let (first, end) =
            seen.fold((s.keys, 0), |(first, end), seen| (first.min(seen.start), end.max(seen.end)));
        let tile = KEYS.min(s.keys.max(1));
        let dv = s.value_features;
        let len = count * (tile + 2 * dv + 2);
        with_scratch(len, |scratch| {
            let (scores, scratch) = scratch.split_at_mut(count * tile);
            let (sums, scratch) = scratch.split_at_mut(count * dv);
            let (part, scratch) = scratch.split_at_mut(count * dv);
            let (greatest, weights) = scratch.split_at_mut(count);
            sums.fill(0.0);
            greatest.fill(f32::NEG_INFINITY);
            weights.fill(0.0);
            let mut key = first;
            while key < end {
                let keys = tile.min(end - key);
                let k = MatRef::new(
                    job.k.data.get(job.k.at(self.batch, self.head, key)..).unwrap_or_default(),
                    s.features,
                    keys,
                    k_strides.element,
                    k_strides.row,
                );
                // Scores are scaled later, together with the mask in one multiply-add.
                let alone = &self.alone;
                let plain = Epilogue::default();
                gemm(alone, Lhs::Plain(q), Rhs::Plain(k), scores, keys, &plain)?;
                let tile =
                    Tile { unit: self, first_key: key, keys, scores, sums, greatest, weights };
                Level::new(self.alone.isa).run(tile);
                let p = MatRef::row_major(scores, count, keys);
                let v = MatRef::new(
                    &job.v.data[job.v.at(self.batch, self.head, key)..],
                    keys,
                    dv,
                    v_strides.row,
                    v_strides.element,
                );
                let into = if key == first { &mut *sums } else { &mut *part };
                gemm(alone, Lhs::Plain(p), Rhs::Plain(v), into, dv, &plain)?;
                if key != first {
                    for (sum, part) in sums.iter_mut().zip(part.iter()) {
                        *sum += part;
                    }
                }
                key += keys;
            }
            for (row, weight) in weights.iter().enumerate() {
                let (head, query) = self.place(row);
                let start = y_strides.row_start(self.batch, head, query);
                // SAFETY: the caller has checked that rows of the output do not overlap, and no
                // other unit has these rows.
                let y = unsafe { out.part(start, dv) };
                let scale = job.inverse(*weight);
                for (y, sum) in y.iter_mut().zip(&sums[row * dv..]) {
                    *y = sum * scale;
                }
            }
            Ok(())
        })
    }
}

/// Loop that turns the scores of a tile into weights relative to the greatest score so far, and
/// rescales the sums of earlier tiles to it.
struct Tile<'a> {
    unit: &'a Unit<'a>,
    /// Index of the first key of the tile.
    first_key: usize,
    keys: usize,
    scores: &'a mut [f32],
    /// Weighted sums of values over earlier tiles, by row and feature.
    sums: &'a mut [f32],
    /// Greatest score of each row so far.
    greatest: &'a mut [f32],
    /// Sum of weights of each row so far.
    weights: &'a mut [f32],
}

impl Loop for Tile<'_> {
    type Out = ();

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let unit = self.unit;
        let (job, dv) = (unit.job, unit.job.sizes.value_features);
        let (scale, cap) = (job.scale as f32, job.softcap as f32);
        for index in 0..unit.rows.count() {
            let scores = &mut self.scores[index * self.keys..][..self.keys];
            let (head, query) = unit.place(index);
            let added = matches!(job.mask, Some(Mask::Add(mask)) if mask.strides().element == 1);
            if cap != 0.0 {
                for score in scores.iter_mut() {
                    *score = cap * Math::tanh::<FMA>(*score * scale / cap);
                }
            } else if scale != 1.0 && !added {
                for score in scores.iter_mut() {
                    *score *= scale;
                }
            }
            match job.mask {
                Some(Mask::Add(mask)) => match mask.strides().element {
                    1 => {
                        let start = mask.strides().place(unit.batch, head, query, self.first_key);
                        let mask = &mask.data[start..][..scores.len()];
                        let scale = if cap == 0.0 { scale } else { 1.0 };
                        for (score, mask) in scores.iter_mut().zip(mask) {
                            *score = Math::mul_add::<FMA>(*score, scale, *mask);
                        }
                    }
                    step => {
                        let start = mask.strides().place(unit.batch, head, query, self.first_key);
                        for (i, score) in scores.iter_mut().enumerate() {
                            *score += mask.data[start + i * step];
                        }
                    }
                },
                Some(Mask::Keep(mask)) => match mask.strides().element {
                    1 => {
                        let start = mask.strides().place(unit.batch, head, query, self.first_key);
                        let mask = &mask.data[start..][..scores.len()];
                        for (score, mask) in scores.iter_mut().zip(mask) {
                            *score = if *mask != 0 { *score } else { f32::NEG_INFINITY };
                        }
                    }
                    step => {
                        let start = mask.strides().place(unit.batch, head, query, self.first_key);
                        for (i, score) in scores.iter_mut().enumerate() {
                            if mask.data[start + i * step] == 0 {
                                *score = f32::NEG_INFINITY;
                            }
                        }
                    }
                },
                None => {}
            }
            let seen = job.seen_keys(query);
            let inside =
                |key: usize| key.clamp(self.first_key, self.first_key + self.keys) - self.first_key;
            let (from, to) = (inside(seen.start), inside(seen.end).max(inside(seen.start)));
            scores[..from].fill(f32::NEG_INFINITY);
            scores[to..].fill(f32::NEG_INFINITY);

            let before = self.greatest[index];
            let greatest = f32::max(before, run(Maximum, scores) as f32);
            // All keys so far are hidden: subtract 0, as `-inf - -inf` is NaN; all weights
            // become 0.
            let shift = if greatest == f32::NEG_INFINITY { 0.0 } else { greatest };
            for score in scores.iter_mut() {
                *score = Math::exp_nonpositive::<FMA>(*score - shift);
            }
            let factor = Math::exp_nonpositive::<FMA>(before - shift);
            if self.first_key > 0 && factor != 1.0 {
                for sum in &mut self.sums[index * dv..][..dv] {
                    *sum *= factor;
                }
            }
            self.weights[index] = self.weights[index] * factor + run(Sum, scores) as f32;
            self.greatest[index] = greatest;
        }
    }
}
