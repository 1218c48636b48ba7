//! The blocked product: the order in which panels meet, and its distribution over threads.
//!
//! Blocking follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
//! (2008), and the BLIS loops of Van Zee and van de Geijn (2015): k is cut into blocks of [`KC`]
//! steps, so that a panel of each operand stays in the first-level cache and a column block of B in
//! the second.
//!
//! The output is cut into chunks, k is not. Packed panels of B come from one of three places: they
//! were packed before; each chunk packs its own columns (many columns); or all threads pack B first
//! (few columns, many rows).

use super::epilogue::{ApplyFunction, TileEpilogue};
use super::form::{Form, PanelForm};
use super::gemv::Gemv;
use super::matrix::MatRef;
use super::pack::{PackSource, Panels, SendPtr, pack_all, panel_width, rows_in_place};
use super::short::Short;
use super::sizes::{FewRows, MatrixLayout, OperandKind, PacksB, Sizes};
use super::tile::{STRIPS, Tile};
use sardonyx_simd::buffer::with_scratch;
use sardonyx_simd::{Body, Ended, Grid, Simd, dispatch};
use sardonyx_simd::{Caches, Exec, Isa};
use sardonyx_simd::{Pool, split_even};

/// Sums: most steps of a k block. A panel of 32 floats and 256 steps is 32 KB.
pub(super) const KC: usize = 256;
/// Work: tiles of two panels per thread from which no thread waits long for another.
const FINE_PANELS: usize = 16;
/// Cache: column panels between which A is read again for the next k block, if it is larger than
/// the second-level cache.
const GROUP: usize = 16;

/// One operand of a product.
#[derive(Clone, Copy)]
pub(crate) enum Operand<'a> {
    /// Panels over all of k.
    Panels(Panels),
    /// A matrix in memory, as steps by columns (A is transposed).
    Matrix(&'a MatRef<'a>),
    /// A source that packs itself into panels.
    Source(&'a dyn PackSource),
}

impl Operand<'_> {
    /// Returns the kind of memory of the operand.
    pub(crate) fn kind(&self) -> OperandKind {
        match self {
            Operand::Panels(_) => OperandKind::Panels,
            Operand::Matrix(matrix) => OperandKind::Matrix(MatrixLayout::from_matrix(matrix)),
            Operand::Source(_) => OperandKind::Source,
        }
    }
}

/// A product C = epilogue(A B) with checked sizes: the input of the loops.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a, F: Form = PanelForm> {
    pub(crate) isa: Isa,
    pub(crate) caches: Caches,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) a: Operand<'a>,
    pub(crate) b: Operand<'a>,
    pub(crate) c: SendPtr<F::Sum>,
    pub(crate) ldc: usize,
    /// Epilogue of sums that are floats; unused for integers.
    pub(crate) epilogue: TileEpilogue,
    pub(crate) form: F,
    pub(crate) sweep: Sweep,
}

/// Order in which each thread reads the panels of a packed right operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// First panel first.
    FromFirst,
    /// Last panel first. Repeated products with one large matrix sweep it to and fro, so that the
    /// panels read last are still in the cache. Read in one order each time, a matrix a little
    /// larger than the cache would never be found there.
    FromLast,
}

impl Sweep {
    /// Returns the part at position `index`. The threads share all parts evenly; `FromLast`
    /// reverses each share.
    pub(super) fn part(self, index: usize, parts: usize, threads: usize) -> usize {
        if self == Sweep::FromFirst {
            return index;
        }
        let shares = threads.min(parts);
        let share = (0..shares).map(|share| split_even(parts, shares, share));
        let own = share.into_iter().find(|share| share.contains(&index));
        own.map_or(index, |own| own.start + own.end - 1 - index)
    }
}

impl Product<'_> {
    /// Returns the sizes and the kinds of the operands.
    fn sizes(&self) -> Sizes {
        Sizes {
            isa: self.isa,
            m: self.m,
            n: self.n,
            k: self.k,
            a: self.a.kind(),
            b: self.b.kind(),
            may_turn: self.form == PanelForm::FLOATS,
        }
    }

    /// Computes the product.
    ///
    /// # Safety
    ///
    /// Panels, output and epilogue must be valid for the sizes, the output for writing by this call
    /// alone, and the machine must have `isa`.
    pub(crate) unsafe fn run(&self, pool: &Pool) -> Result<(), Ended> {
        if self.m == 0 || self.n == 0 {
            return Ok(());
        }
        let sizes = self.sizes();
        // SAFETY: the caller has valid operands, output and epilogue on a machine with `isa`.
        unsafe {
            if let Some(few) = sizes.few_rows()
                && let (Operand::Matrix(a), Operand::Matrix(b)) = (self.a, self.b)
            {
                return self.run_gemv(pool, few, a, b);
            }
            if let (Operand::Matrix(a), Operand::Matrix(b)) = (self.a, self.b)
                && sizes.may_turn
                && Short::suits(self.m, b)
            {
                let Product { isa, c, ldc, epilogue, .. } = *self;
                let short = Short { isa, a: a.transpose(), b: *b, c, ldc, epilogue };
                return short.run(pool, sizes.threads(pool));
            }
            let source: &dyn PackSource = match self.a {
                Operand::Panels(a) => return self.run_packed_a(pool, a),
                Operand::Matrix(a) if !sizes.packs_a() => {
                    let a = Panels::from_matrix(a, self.rows_in_place(&sizes, pool));
                    return self.run_packed_a(pool, a);
                }
                Operand::Matrix(a) => a,
                Operand::Source(source) => source,
            };
            let w = panel_width(self.isa);
            with_scratch(self.m.div_ceil(w) * w * self.k, |buf| {
                pack_all(&Exec::new(pool, self.isa), source, buf)?;
                self.run_packed_a(pool, Panels::from_packed(self.isa, buf, self.k))
            })
        }
    }

    /// Returns the cut into parts if the calling thread computes the product alone and tiles read A
    /// in place with packed panels of B; else `None`.
    pub(super) fn cut_in_place(&self, pool: &Pool) -> Option<Cut> {
        let sizes = self.sizes();
        let is_plain = !sizes.packs_a() && !sizes.prefers_transposed();
        let fits = is_plain && sizes.threads(pool) == 1 && !self.goes_by_rows(self.k_block());
        let is_empty = self.m == 0 || self.n == 0;
        (fits && !is_empty).then(|| self.cut_panels(1, rows_in_place(self.isa)))
    }

    /// Returns the rows of a panel of A that is read in place: half of the usual number if whole
    /// panels are too few for all threads and tiles keep their size.
    fn rows_in_place(&self, sizes: &Sizes, pool: &Pool) -> usize {
        let rows = rows_in_place(self.isa);
        let threads = sizes.threads(pool);
        let panels = self.m.div_ceil(rows) * self.n.div_ceil(panel_width(self.isa));
        let is_fine = panels >= FINE_PANELS * threads || self.m % rows > rows / 2;
        if threads == 1 || is_fine || self.isa == Isa::Portable { rows } else { rows / 2 }
    }

    /// Multiplies an unpacked matrix by very few rows or columns.
    unsafe fn run_gemv(
        &self,
        pool: &Pool,
        few: FewRows,
        a: &MatRef<'_>,
        b: &MatRef<'_>,
    ) -> Result<(), Ended> {
        let transposed = few == FewRows::Right;
        let (x, b) = if transposed { (b, a) } else { (a, b) };
        let gemv = Gemv {
            isa: self.isa,
            x: x.transpose(),
            b: *b,
            c: self.c,
            ldc: self.ldc,
            epilogue: self.epilogue,
            transposed,
        };
        // SAFETY: the caller has valid operands, output and epilogue on a machine with `isa`.
        unsafe { gemv.run(pool, self.sizes().threads(pool)) }
    }

    /// Multiplies packed panels of A by B, which is packed first if it must be.
    unsafe fn run_packed_a(&self, pool: &Pool, a: Panels) -> Result<(), Ended> {
        let w = panel_width(self.isa);
        let sizes = self.sizes();
        let threads = sizes.threads(pool);
        let (transposed, packs) = (sizes.prefers_transposed(), sizes.packs_b(threads));
        // SAFETY: the caller has valid operands, output and epilogue on a machine with `isa`.
        unsafe {
            let source: &dyn PackSource = match self.b {
                Operand::Panels(b) => return self.run_packed(pool, threads, a, b, transposed),
                Operand::Matrix(b) if packs == PacksB::Not => {
                    let b = Panels::from_matrix(b, w);
                    return self.run_packed(pool, threads, a, b, transposed);
                }
                Operand::Matrix(b) => b,
                Operand::Source(source) => source,
            };
            if packs == PacksB::ByChunk {
                return self.run_local(pool, threads, a, source);
            }
            with_scratch(self.n.div_ceil(w) * w * self.k, |buf| {
                pack_all(&Exec::new(pool, self.isa), source, buf)?;
                let b = Panels::from_packed(self.isa, buf, self.k);
                self.run_packed(pool, threads, a, b, transposed)
            })
        }
    }

    /// Packs the columns of each chunk of B in the chunk itself and multiplies all rows by them.
    unsafe fn run_local(
        &self,
        pool: &Pool,
        threads: usize,
        a: Panels,
        source: &dyn PackSource,
    ) -> Result<(), Ended> {
        let w = panel_width(self.isa);
        let panels = self.n.div_ceil(w);
        let kc = self.k_block();
        let most = self.column_block(kc);
        let chunk = if threads == 1 { most } else { (panels / (threads * 6)).clamp(1, most) };
        let parts = panels.div_ceil(chunk);
        pool.run_on(threads, parts, |part| {
            let cols = split_even(panels, parts, part);
            with_scratch(cols.len() * kc * w, |buf| {
                for (k0, k1) in self.k_blocks(kc) {
                    source.pack_panels(self.isa, k0..k1, cols.start * w, cols.len(), kc * w, buf);
                    let b = Panels::from_packed(self.isa, buf, kc);
                    let block = Block {
                        rows: 0..self.m.div_ceil(a.width),
                        cols: cols.clone(),
                        b_first: cols.start,
                        k0,
                        b_k0: k0,
                        k1,
                    };
                    // SAFETY: the panels of this block are packed, and the chunk owns these columns
                    // of C.
                    unsafe { self.multiply_block(a, b, block) };
                }
            });
        })
    }

    /// Multiplies packed operands in either orientation.
    unsafe fn run_packed(
        &self,
        pool: &Pool,
        threads: usize,
        a: Panels,
        b: Panels,
        transposed: bool,
    ) -> Result<(), Ended> {
        if !transposed {
            // SAFETY: the caller has valid operands, output and epilogue on a machine with `isa`.
            return unsafe { self.run_panels(pool, threads, a, b) };
        }
        let row_panels = self.m.div_ceil(panel_width(self.isa));
        let kc = self.k_block();
        let chunk = (row_panels / (threads * 4)).clamp(1, 4);
        let parts = row_panels.div_ceil(chunk);
        pool.run_on(threads, parts, |part| {
            let rows = split_even(row_panels, parts, part);
            // SAFETY: all panels are packed, and the chunk owns these rows of C.
            unsafe { self.multiply_rows_transposed(a, b, rows, kc) }
        })
    }

    /// Computes whole rows of C with A wide and B narrow. The transposed result stays in scratch
    /// memory until all of k is done.
    unsafe fn multiply_rows_transposed(
        &self,
        a: Panels,
        b: Panels,
        row_panels: std::ops::Range<usize>,
        kc: usize,
    ) {
        let w = panel_width(self.isa);
        let tiles = self.form.tiles(self.isa);
        let is_unit = b.ws == 1;
        let ld = row_panels.len() * w;
        // Whole vectors of rows, so that the end can be transposed in blocks.
        with_scratch(self.n.next_multiple_of(w) * ld, |buf| {
            let out = buf.as_mut_ptr();
            for (k0, k1) in self.k_blocks(kc) {
                for (i, row_panel) in row_panels.clone().enumerate() {
                    let vectors = w.min(self.m - row_panel * w).div_ceil(w / 2);
                    let next = if row_panel + 1 < row_panels.end {
                        a.at(row_panel + 1, k0)
                    } else {
                        a.at(row_panels.start, k1)
                    };
                    let per_panel = self.n.div_ceil(tiles.rows());
                    let now = a.at(row_panel, k0);
                    let mut ahead = self.prefetches(a, now, next, k1 - k0, per_panel);
                    let mut col = 0;
                    while col < self.n {
                        let cols = w.min(self.n - col);
                        let tile_cols = cols.div_ceil(cols.div_ceil(tiles.rows()));
                        let b_panel = b.at(col / w, k0);
                        let mut j = 0;
                        while j < cols {
                            let count = tile_cols.min(cols - j);
                            let tile = Tile {
                                k: k1 - k0,
                                a: b_panel.wrapping_add(j * b.ws),
                                a_rs: b.ws,
                                a_ks: b.ks,
                                b: a.at(row_panel, k0),
                                b_vs: w / 2,
                                b_ks: w,
                                b_ps: 0,
                                ahead: ahead.advance(),
                                ahead_step: ahead.step,
                                c: out.wrapping_add((col + j) * ld + i * w),
                                ldc: ld,
                                n: vectors * (w / 2),
                                resume: k0 != 0,
                                epilogue: std::ptr::null(),
                            };
                            // SAFETY: panels hold `k` steps of whole vectors, and the tile is
                            // inside the scratch memory.
                            unsafe { tiles.tile(count, vectors, is_unit)(&tile) };
                            j += count;
                        }
                        col += cols;
                    }
                }
            }
            let row0 = row_panels.start * w;
            let body = FinishTransposed {
                src: buf.as_ptr(),
                ld,
                out: self.c.get().wrapping_add(row0 * self.ldc),
                ldc: self.ldc,
                rows: self.m.min(row_panels.end * w) - row0,
                cols: self.n,
                epilogue: self.epilogue.at(row0, 0),
            };
            // SAFETY: the machine has `isa`, the scratch memory holds whole blocks, and the chunk
            // owns these rows of C.
            unsafe { dispatch(self.isa, body) };
        });
    }
}

impl<F: Form> Product<'_, F> {
    /// Returns the block size that cuts `k` evenly.
    fn k_block(&self) -> usize {
        self.k.div_ceil(self.k.div_ceil(self.form.most_steps()).max(1))
    }

    /// Returns the first and last step of each block of k. Without steps there is one empty block,
    /// as results are stored even then.
    fn k_blocks(&self, kc: usize) -> impl Iterator<Item = (usize, usize)> {
        let count = self.k.div_ceil(kc.max(1)).max(1);
        (0..count).map(move |block| (block * kc, self.k.min((block + 1) * kc)))
    }

    /// Multiplies packed operands in chunks that are rectangles of panels.
    ///
    /// # Safety
    ///
    /// The demands of [`Product::run`] must hold.
    pub(super) unsafe fn run_panels(
        &self,
        pool: &Pool,
        threads: usize,
        a: Panels,
        b: Panels,
    ) -> Result<(), Ended> {
        if self.goes_by_rows(self.k_block()) {
            // SAFETY: the caller upholds the demands of `Product::run`.
            return unsafe { self.run_by_rows(pool, threads, a, b) };
        }
        let cut = self.cut_panels(threads, a.width);
        let parts = cut.parts();
        pool.run_on(threads, parts, |index| {
            let part = self.sweep.part(index, parts, threads);
            // SAFETY: all panels are packed, and the chunk owns this rectangle of C.
            unsafe { self.run_part(a, b, &cut, part) };
        })
    }

    /// Cuts C for `threads` threads. Panels of A have `width` rows.
    fn cut_panels(&self, threads: usize, width: usize) -> Cut {
        let (row_panels, col_panels) =
            (self.m.div_ceil(width), self.n.div_ceil(panel_width(self.isa)));
        let kc = self.k_block();
        // As many rows as stay in the second-level cache for a k block; columns in chunks that keep
        // the threads busy.
        let kept = (self.m * kc).div_ceil(self.caches.own_floats(1, 2)).clamp(1, row_panels);
        // Few columns do not keep all threads busy.
        let fed = (threads * 4).div_ceil(col_panels).clamp(1, row_panels);
        let row_parts = kept.max(if threads == 1 { 1 } else { fed });
        let group_of = |row_parts: usize| {
            // Rows that stay in three quarters of the cache over all of k meet whole panels of
            // columns.
            let whole = self.m.div_ceil(row_parts) * self.k <= self.caches.own_floats(3, 4);
            match threads {
                _ if self.m == 1 => (col_panels / threads).clamp(1, STRIPS[0]),
                _ if whole => 1,
                1 => GROUP,
                _ => (col_panels * row_parts / (threads * 4)).clamp(1, GROUP),
            }
        };
        let cut = |row_parts: usize| {
            let groups = col_panels.div_ceil(group_of(row_parts));
            let per_chunk = match threads {
                1 => groups,
                _ => (groups * row_parts / (threads * 8)).clamp(1, groups),
            };
            Grid { rows: row_parts, cols: groups.div_ceil(per_chunk) }
        };
        let cut = if threads == 1 || row_panels == 1 {
            cut(row_parts)
        } else {
            // More parts of the rows read B more often: only where threads would wait otherwise.
            let more = [0, 1, 2, 3, row_parts, 2 * row_parts, 3 * row_parts, row_panels];
            let pieces = Grid { rows: row_panels, cols: col_panels };
            pieces.choose(threads, more.map(|more| (row_parts + more).min(row_panels)), cut)
        };
        let (row_parts, col_parts) = (cut.rows, cut.cols);
        let group = group_of(row_parts);
        let groups = col_panels.div_ceil(group);
        Cut { kc, row_panels, col_panels, row_parts, col_parts, groups, group }
    }

    /// Computes one part of a cut.
    ///
    /// # Safety
    ///
    /// The demands of [`Product::run`] must hold, and no other thread may use this part of C.
    pub(super) unsafe fn run_part(&self, a: Panels, b: Panels, cut: &Cut, part: usize) {
        let &Cut { kc, row_panels, col_panels, row_parts, col_parts, groups, group } = cut;
        // Parts first go through all rows of some columns, so that a thread reads few columns of B.
        let rows = split_even(row_panels, row_parts, part % row_parts);
        let own = split_even(groups, col_parts, part / row_parts);
        for group_index in own.clone() {
            let group_index = match self.sweep {
                Sweep::FromFirst => group_index,
                Sweep::FromLast => own.start + own.end - 1 - group_index,
            };
            let cols = group_index * group..col_panels.min((group_index + 1) * group);
            let after = match self.sweep {
                Sweep::FromFirst => cols.end,
                Sweep::FromLast => cols.start.saturating_sub(group),
            };
            for (k0, k1) in self.k_blocks(kc) {
                let block =
                    Block { rows: rows.clone(), cols: cols.clone(), b_first: 0, k0, b_k0: 0, k1 };
                // SAFETY: the caller has valid operands and owns this part of C.
                unsafe { self.multiply_block_by_columns(a, b, block, after) };
            }
        }
    }

    /// Whether blocks of B stay in the second-level cache while all rows of A pass by, rather than
    /// blocks of A.
    fn goes_by_rows(&self, kc: usize) -> bool {
        // Weights of a convolution are packed ahead of time and come from memory.
        let waits_for_left = matches!(self.a, Operand::Panels(_)) && self.form.waits_for_left();
        // A column panel that is converted first should meet all rows.
        let converts = self.form.conversion(self.isa, self.m).is_some();
        // Rows that stay in half of the cache for a k block meet the columns one panel after the
        // other, which reads B once and in order: 91 % of the peak in place of 86 (AVX2, 197 x 3072
        // x 768). For rows that do not stay, going by rows reaches 90 in place of 67 (3136 x 384 x
        // 96).
        let has_many_rows = self.m * kc > self.caches.own_floats(1, 2);
        waits_for_left || (has_many_rows && !converts)
    }

    /// Returns the number of column panels that fill a quarter of the second-level cache in a block
    /// of `kc` steps.
    fn column_block(&self, kc: usize) -> usize {
        let panel = kc.max(1) * panel_width(self.isa);
        (self.caches.own_floats(1, 4) / panel).max(1)
    }

    /// Multiplies block by block of columns. Each block stays in the second-level cache while all
    /// rows of A pass by.
    unsafe fn run_by_rows(
        &self,
        pool: &Pool,
        threads: usize,
        a: Panels,
        b: Panels,
    ) -> Result<(), Ended> {
        let w = panel_width(self.isa);
        let (row_panels, col_panels) = (self.m.div_ceil(a.width), self.n.div_ceil(w));
        let kc = self.k_block();
        let most = self.column_block(kc);
        let col_parts = col_panels.div_ceil(most);
        let row_parts = if threads == 1 {
            1
        } else {
            let pieces = Grid { rows: row_panels, cols: col_panels };
            let chosen = pieces.choose(threads, [6, 5, 4, 7, 8, 3, 12], |each| Grid {
                rows: (threads * each).div_ceil(col_parts).clamp(1, row_panels),
                cols: col_parts,
            });
            chosen.rows
        };
        pool.run_on(threads, row_parts * col_parts, |part| {
            let rows = split_even(row_panels, row_parts, part % row_parts);
            let cols = split_even(col_panels, col_parts, part / row_parts);
            for (k0, k1) in self.k_blocks(kc) {
                let block =
                    Block { rows: rows.clone(), cols: cols.clone(), b_first: 0, k0, b_k0: 0, k1 };
                // SAFETY: all panels are packed, and the chunk owns this rectangle of C.
                unsafe { self.multiply_block(a, b, block) };
            }
        })
    }

    /// Multiplies the panels of one block, column panel by column panel. Each stays in the
    /// first-level cache while all rows meet it, and the next one is prefetched meanwhile: panels
    /// of constants come from memory and are used once for every part of the rows, so nothing else
    /// hides that latency. `after` is the first column panel of the next block.
    #[inline]
    unsafe fn multiply_block_by_columns(&self, a: Panels, b: Panels, block: Block, after: usize) {
        let w = panel_width(self.isa);
        let steps = block.k1 - block.k0;
        let rows = self.m.min(block.rows.end * a.width) - block.rows.start * a.width;
        let tiles_of_column = rows.div_ceil(self.form.tiles(self.isa).rows());
        // Panels that are converted once for all rows, and the product of the converted form.
        let converts = self.form.conversion(self.isa, rows);
        let product = Product { form: converts.unwrap_or(self.form), ..*self };
        let converted = if converts.is_some() { steps * w } else { 0 };
        let mut cols = block.cols.clone();
        if rows == 1 && converts.is_none() {
            // SAFETY: the caller has valid panels and owns the block of C.
            cols.start = unsafe { self.multiply_strips(a, b, &block) };
        }
        with_scratch(converted, |converted| {
            for col_panel in cols {
                let mut b_panel = b.at(col_panel, block.k0);
                let next = if col_panel + 1 < block.cols.end {
                    b.at(col_panel + 1, block.k0)
                } else if block.k1 < self.k {
                    b.at(block.cols.start, block.k1)
                } else {
                    b.at(after, 0)
                };
                let mut ahead = Ahead::new(b_panel, next, steps, b.ks, tiles_of_column);
                let mut b = b;
                if converts.is_some() {
                    let to = converted.as_mut_ptr();
                    // SAFETY: the panel has the steps of the block, the scratch memory has room for
                    // them, and the caller runs on a machine with the instructions of the form.
                    unsafe { self.form.turn_panel(self.isa, b_panel, block.k0, block.k1, to) };
                    (b_panel, b.ks) = (to, w);
                }
                for row_panel in block.rows.clone() {
                    // SAFETY: the caller has valid panels and owns the block of C.
                    unsafe {
                        let b = WidePanel { ptr: b_panel, ks: b.ks, index: col_panel };
                        product.multiply_tiles(a, row_panel, b, &block, &mut ahead);
                    }
                }
            }
        });
    }

    /// Multiplies the one row of a block by the column panels that fill strips, and returns the
    /// first panel that is left.
    #[inline(always)]
    unsafe fn multiply_strips(&self, a: Panels, b: Panels, block: &Block) -> usize {
        let w = panel_width(self.isa);
        let tiles = self.form.tiles(self.isa);
        let last = block.k1 == self.k && !self.epilogue.is_plain();
        let row = block.rows.start * a.width;
        // Prefetching lines that are in the cache already takes as many loads as the product.
        let fetches = self.k * self.n >= self.caches.own_floats(2, 1);
        let mut col_panel = block.cols.start;
        loop {
            let col = col_panel * w;
            // The last panel may end beyond the last column.
            let cols = self.n.min(block.cols.end * w).saturating_sub(col);
            let Some((strip, panels)) = tiles.strip(cols.div_ceil(w / 2), fetches) else {
                return col_panel;
            };
            let b_panel = b.at(col_panel, block.k0);
            let epilogue;
            let tile = Tile {
                k: block.k1 - block.k0,
                a: a.at(block.rows.start, block.k0),
                a_rs: a.ws,
                a_ks: a.ks,
                b: b_panel,
                b_vs: b.ks / 2,
                b_ks: b.ks,
                b_ps: b.stride,
                ahead: b_panel,
                ahead_step: 0,
                c: self.c.get().cast::<f32>().wrapping_add(row * self.ldc + col),
                ldc: self.ldc,
                n: cols.min(panels * w),
                resume: block.k0 != 0,
                epilogue: if last {
                    epilogue = self.epilogue.at(row, col);
                    &epilogue
                } else {
                    std::ptr::null()
                },
            };
            // SAFETY: the panels hold `k` steps, padded to whole vectors, and the strip is inside
            // C.
            unsafe { strip(&tile) };
            col_panel += panels;
        }
    }

    /// Multiplies one panel of rows by one of columns, tile by tile.
    #[inline(always)]
    unsafe fn multiply_tiles(
        &self,
        a: Panels,
        row_panel: usize,
        b: WidePanel,
        block: &Block,
        ahead: &mut Ahead,
    ) {
        let w = panel_width(self.isa);
        let tiles = self.form.tiles(self.isa);
        let is_unit = a.ws == 1;
        let last = block.k1 == self.k && !self.epilogue.is_plain();
        let (row0, col0) = (row_panel * a.width, b.index * w);
        let rows = a.width.min(self.m - row0);
        let mut tiles_left = rows.div_ceil(tiles.rows());
        let a_panel = a.at(row_panel, block.k0);
        let n = w.min(self.n - col0);
        let vectors = n.div_ceil(w / 2);
        let mut r = 0;
        while r < rows {
            let count = (rows - r).div_ceil(tiles_left);
            tiles_left -= 1;
            let row = row0 + r;
            let epilogue;
            let tile = Tile {
                k: block.k1 - block.k0,
                a: a_panel.wrapping_add(r * a.ws),
                a_rs: a.ws,
                a_ks: a.ks,
                b: b.ptr,
                b_vs: b.ks / 2,
                b_ks: b.ks,
                b_ps: 0,
                ahead: ahead.advance(),
                ahead_step: ahead.step,
                c: self.c.get().cast::<f32>().wrapping_add(row * self.ldc + col0),
                ldc: self.ldc,
                n,
                resume: block.k0 != 0,
                epilogue: if last {
                    epilogue = self.epilogue.at(row, col0);
                    &epilogue
                } else {
                    std::ptr::null()
                },
            };
            // SAFETY: panels hold `k` steps, padded to whole vectors, and the tile is inside C.
            unsafe { tiles.tile(count, vectors, is_unit)(&tile) };
            r += count;
        }
    }

    /// Multiplies the panels of one block with A narrow and B wide.
    #[inline]
    unsafe fn multiply_block(&self, a: Panels, b: Panels, block: Block) {
        let steps = block.k1 - block.k0;
        for row_panel in block.rows.clone() {
            let rows = a.width.min(self.m - row_panel * a.width);
            // Next is the panel after this one, or the first one of the next k block.
            let next = if row_panel + 1 < block.rows.end {
                a.at(row_panel + 1, block.k0)
            } else {
                a.at(block.rows.start, block.k1)
            };
            let per_panel = block.cols.len() * rows.div_ceil(self.form.tiles(self.isa).rows());
            let now = a.at(row_panel, block.k0);
            let mut ahead = self.prefetches(a, now, next, steps, per_panel);
            for col_panel in block.cols.clone() {
                let b_panel = b.at(col_panel - block.b_first, block.k0 - block.b_k0);
                // SAFETY: the caller has valid panels and owns the block of C.
                unsafe {
                    let b = WidePanel { ptr: b_panel, ks: b.ks, index: col_panel };
                    self.multiply_tiles(a, row_panel, b, &block, &mut ahead);
                }
            }
        }
    }

    /// Returns the prefetches of the panel of `steps` steps of A at `next`, spread over `tiles`
    /// tiles. A small A is in the cache by itself after the first column block, and prefetching it
    /// again would only delay the stores.
    fn prefetches(
        &self,
        a: Panels,
        now: *const f32,
        next: *const f32,
        steps: usize,
        tiles: usize,
    ) -> Ahead {
        // A smaller A stays in the second-level cache beside a block of columns.
        let worth = self.m * self.k >= self.caches.own_floats(1, 2);
        let next = if worth { next } else { now };
        Ahead::new(now, next, if worth { steps } else { 0 }, a.width, tiles)
    }
}

/// Prefetches of the next panel of A while another one is used. Packed weights come from memory,
/// and each is used only once per column block, so nothing else hides that latency.
struct Ahead {
    /// Address in use, whose prefetch costs nothing, for tiles without another one.
    now: *const f32,
    /// Address of the next prefetch.
    at: *const f32,
    /// Distance of the prefetched lines, in floats.
    step: usize,
    /// Floats that one tile prefetches.
    tile: usize,
    /// Floats that no tile has prefetched yet.
    left: usize,
}

impl Ahead {
    /// Spreads a panel of `steps` rows of `width` floats at `next` over `tiles` tiles.
    fn new(now: *const f32, next: *const f32, steps: usize, width: usize, tiles: usize) -> Ahead {
        let step = if steps > 0 { (2 * width).div_ceil(tiles) } else { 0 };
        Ahead { now, at: next, step, tile: step * (steps / 2), left: steps * width }
    }

    /// Returns the address at which the next tile starts to prefetch.
    fn advance(&mut self) -> *const f32 {
        let at = self.at;
        if self.left > self.tile {
            self.left -= self.tile;
            self.at = at.wrapping_add(self.tile);
        } else if self.left > 0 {
            // The last tile that prefetches may run over the end, into data that is needed after
            // it.
            self.left = 0;
            self.at = self.now;
        } else {
            self.step = 0;
        }
        at
    }
}

/// One panel of the wide operand.
#[derive(Clone, Copy)]
struct WidePanel {
    /// Address of the first step of the block.
    ptr: *const f32,
    /// Stride between steps, in floats.
    ks: usize,
    /// Index of the panel from the first column of C.
    index: usize,
}

/// Rectangles of panels into which a product is cut, and the groups of column panels in each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Steps of a k block.
    kc: usize,
    row_panels: usize,
    col_panels: usize,
    /// Number of cuts along rows.
    row_parts: usize,
    /// Number of cuts along columns.
    col_parts: usize,
    /// Number of groups of column panels.
    groups: usize,
    /// Column panels of a group.
    group: usize,
}

impl Cut {
    /// Returns the number of rectangles.
    pub(super) fn parts(&self) -> usize {
        self.row_parts * self.col_parts
    }
}

/// Ranges of panels and steps that [`Product::multiply_block`] multiplies.
struct Block {
    rows: std::ops::Range<usize>,
    cols: std::ops::Range<usize>,
    /// First column panel in B's panels.
    b_first: usize,
    k0: usize,
    /// First step in B's panels.
    b_k0: usize,
    k1: usize,
}

/// Body that writes a transposed copy of some rows of C to its place and applies the epilogue.
pub(crate) struct FinishTransposed {
    /// Transposed copy: `cols` rows of `rows` values, `ld` apart, both up to whole vectors.
    pub(crate) src: *const f32,
    pub(crate) ld: usize,
    pub(crate) out: *mut f32,
    pub(crate) ldc: usize,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) epilogue: TileEpilogue,
}

impl Body for FinishTransposed {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let before = self.epilogue.before_function();
        let mut block = [[0.0f32; 16]; 16];
        for row0 in (0..self.rows).step_by(S::LANES) {
            for col in (0..self.cols).step_by(S::LANES) {
                let n = S::LANES.min(self.cols - col);
                // SAFETY: the code that makes the body owns the output and has whole blocks in the
                // copy. A block holds 16 rows of 16, at least `LANES` of each.
                unsafe {
                    let src = self.src.add(col * self.ld + row0);
                    S::transpose(src, self.ld, block.as_mut_ptr().cast(), 16);
                    let rows = S::LANES.min(self.rows - row0);
                    for (i, row) in block[..rows].iter().enumerate() {
                        let epilogue = before.at(row0 + i, 0);
                        let x = epilogue.finish_linear::<S>(S::load(row.as_ptr()), col, n);
                        let out = self.out.add((row0 + i) * self.ldc + col);
                        S::store_m(out, S::first(n), x);
                    }
                }
            }
        }
        let Self { epilogue, out, rows, cols, ldc, .. } = self;
        // SAFETY: these rows have been written.
        unsafe { ApplyFunction { epilogue, out, rows, cols, ldc }.run::<S>() }
    }
}

/// Body that gathers one row of the output from a transposed copy and applies the epilogue up to a
/// function.
pub(super) struct FinishRow {
    pub(super) src: *const f32,
    pub(super) stride: usize,
    pub(super) out: *mut f32,
    pub(super) n: usize,
    pub(super) epilogue: TileEpilogue,
}

impl Body for FinishRow {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut col = 0;
        while col < self.n {
            let n = S::LANES.min(self.n - col);
            let lanes = ((1u64 << n) - 1) as u32;
            // SAFETY: the code that makes the body owns the row and has `n` values in the copy.
            unsafe {
                let src = self.src.add(col * self.stride);
                let x = S::select(S::splat(0.0), lanes, src, self.stride);
                let x = self.epilogue.finish_linear::<S>(x, col, n);
                S::store_m(self.out.add(col), S::first(n), x);
            }
            col += n;
        }
    }
}
