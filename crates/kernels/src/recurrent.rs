//! Recurrent layers: RNN, GRU and LSTM.
//!
//! The product of the input with its weights does not depend on the state, so it is one large
//! product before the first step. A step computes only the product of the state, a matrix with a
//! row for each sequence, and then functions of gates, row by row, while a row is in the
//! first-level cache.
//!
//! Sequences may end before the last step. Their rows then rest: they keep their state, and their
//! outputs are zero. A backward pass starts each sequence at the sequence's own last step, so no
//! sequence is ever reversed.
//!
//! Sequences do not depend on each other, nor do the directions of a layer. So threads divide these
//! where possible, each computing all steps, and wait for each other once. Only if the weights
//! exceed the second-level cache do threads divide each step.

mod cell;
mod steps;

use std::fmt::Debug;

use sardonyx_elementwise::{Unary, UnaryElement};
use sardonyx_gemm::gemm::{
    Bias, Epilogue, Lhs, ManyRows, MatRef, PackedB, Repeated, Rhs, Sweep, gemm, gemm_generic,
    gemm_scratch,
};
use sardonyx_simd::chunks::Shared;
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec, Pool, split_even};
use smallvec::SmallVec;
use steps::{Group, Work};

/// Function of the elements of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    /// An elementwise operation.
    Of(Unary),
    /// `alpha * x + beta`
    Affine { alpha: f32, beta: f32 },
    /// `alpha * tanh(beta * x)`
    ScaledTanh { alpha: f32, beta: f32 },
}

/// Step of a layer, given x, the step's row of the input's product, the state h of a sequence, and
/// the transposed weights U of the state. A gate is `hidden` elements of a row.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a, T: RecurrentElement> {
    /// `h = f(x + h U)`
    Plain { function: Gate, state: T::Right<'a> },
    /// Gated unit (GRU), with a gate z that keeps and a gate r that resets, after Cho et al.
    /// ("Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine
    /// Translation", 2014), with the functions f and g:
    ///
    /// ```text
    /// z, r = f(x + h U), and c according to Candidate
    /// h = (1 - z) c + z h
    /// ```
    ///
    /// The gates of a row are z, r, c.
    Gated { functions: [Gate; 2], candidate: Candidate<'a, T> },
    /// Long short-term memory (LSTM) after Hochreiter and Schmidhuber ("Long Short-Term
    /// Memory", 1997) with the forget gate and the peepholes p of Gers, Schraudolph and Schmidhuber
    /// ("Learning Precise Timing with LSTM Recurrent Networks", 2002), with the functions f, g and
    /// q:
    ///
    /// ```text
    /// i, k = f(x + h U + p c)
    /// c = k c + i g(x + h U)
    /// o = f(x + h U + p c)
    /// h = o q(c)
    /// ```
    ///
    /// The gates of a row are i, o, k, and the argument of g.
    Memory {
        functions: [Gate; 3],
        state: T::Right<'a>,
        /// Weights of the cell for the gates i, o and k.
        peepholes: Option<&'a [T]>,
        /// Whether k is `1 - i` instead.
        coupled: bool,
    },
}

/// Candidate for the state of a gated unit.
#[derive(Clone, Copy, Debug)]
pub enum Candidate<'a, T: RecurrentElement> {
    /// `c = g(x + (r h) U)`: a product of its own, with weights of its own.
    ResetFirst { gates: T::Right<'a>, own: T::Right<'a> },
    /// `c = g(x + r (h U + bias))`, with the weights of all gates in one matrix.
    ResetLast { state: T::Right<'a>, bias: Option<&'a [T]> },
}

/// Cell, and bounds of the arguments of its functions.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a, T: RecurrentElement> {
    pub cell: Cell<'a, T>,
    /// Bound: arguments of the gates' functions are clipped to `-clip..=clip`.
    pub clip: Option<T>,
}

/// Sequences of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// Number of steps of the longest sequence, or more.
    pub steps: usize,
    /// Number of sequences.
    pub batch: usize,
    /// Number of elements of a sequence's state.
    pub hidden: usize,
    /// Number of steps of each sequence, unless all have `steps`.
    pub lengths: Option<&'a [usize]>,
}

impl Sequences<'_> {
    /// Returns the number of steps of a sequence.
    fn length(&self, sequence: usize) -> usize {
        self.lengths.map_or(self.steps, |lengths| lengths[sequence])
    }

    /// Returns the number of steps whose input is multiplied by its weights at once, in a layer of
    /// `passes` passes with such a cell. Fewer than all keep the product in the second-level cache
    /// until the steps read it.
    ///
    /// `rows` are the strides in rows of [`Input::x`].
    pub fn steps_at_once<T: RecurrentElement>(
        &self,
        exec: &Exec<'_>,
        cell: &Cell<'_, T>,
        passes: usize,
        weights: &T::Right<'_>,
        rows: Strides,
    ) -> usize {
        /// Work: fewest rows for which reading all weights pays.
        const LEAST_ROWS: usize = 96;
        /// Work: fewest sequences. With 8 a layer is 5 % slower in parts, with 32 up to 13 %
        /// faster.
        const LEAST_BATCH: usize = 24;
        let &Sequences { steps, batch, hidden, .. } = self;
        let are_adjacent = rows[0] == batch;
        let sharing = Sharing::new(exec, self, cell, passes);
        let is_one_group = !matches!(sharing, Sharing::Groups(groups) if groups > 1);
        let are_many = batch >= LEAST_BATCH;
        if !are_many || !are_adjacent || !is_one_group || !T::has_independent_rows(weights) {
            return steps;
        }
        let row = (cell.gates() * hidden * (size_of::<T>() / size_of::<f32>())).max(1);
        // The product of the input stays in a quarter of the second-level cache until it is read.
        let rows = (exec.caches.own_floats(1, 4) / row).max(LEAST_ROWS);
        (rows / batch).clamp(1, steps.max(1))
    }
}

/// Strides from a step to the next, and from a sequence to the next.
pub type Strides = [usize; 2];

/// Product of the input with its weights, which have columns for all gates.
#[derive(Debug)]
pub struct Input<'a, 'w, T: RecurrentElement> {
    /// Input rows, one for each step of each sequence.
    pub x: MatRef<'a, T>,
    pub weights: T::Right<'w>,
    pub bias: Option<&'a [T]>,
    /// Memory for the product: rows of as many steps as [`Sequences::steps_at_once`] returns, or
    /// more.
    pub product: &'a mut [T],
}

/// One direction of a layer.
#[derive(Debug)]
pub struct Pass<'a, 'w, T: RecurrentElement> {
    pub layer: Layer<'w, T>,
    /// Whether steps go from the last to the first.
    pub backwards: bool,
    pub input: Input<'a, 'w, T>,
    /// States, `batch` rows of `hidden` elements: before the first step, then after the last. A
    /// sequence without steps ends with zeros.
    pub h: &'a mut [T],
    /// Cells of [`Cell::Memory`] in the layout of `h`; empty for other layers.
    pub c: &'a mut [T],
}

/// Outputs: the states after each step.
#[derive(Debug)]
pub struct Outputs<'a, T> {
    pub y: &'a mut [T],
    pub strides: Strides,
    /// Stride from a pass to the next, in elements.
    pub pass_stride: usize,
}

impl<T> Outputs<'_, T> {
    /// Whether all rows are inside `y` and no two overlap.
    fn fits(&self, sequences: &Sequences<'_>, passes: usize) -> bool {
        let &Sequences { steps, batch, hidden, .. } = sequences;
        let [step, sequence] = self.strides;
        let mut axes = [(step, steps), (sequence, batch), (self.pass_stride, passes)];
        if axes.iter().any(|&(_, count)| count == 0) {
            return true;
        }
        axes.sort_unstable();
        let mut extent = hidden;
        for (stride, count) in axes.into_iter().filter(|&(_, count)| count > 1) {
            if stride < extent {
                return false;
            }
            extent += (count - 1) * stride;
        }
        extent <= self.y.len()
    }
}

/// Element type of recurrent layers.
pub trait RecurrentElement: Math + UnaryElement {
    /// Right operand of a product.
    type Right<'a>: Copy + Debug + Send + Sync;
    /// Right operand of many products, prepared once.
    type Repeated<'a>: Debug + Sync;

    /// Wraps a matrix as a right operand.
    fn wrap_matrix(matrix: MatRef<'_, Self>) -> Self::Right<'_>;

    /// Wraps a packed matrix as a right operand. Returns `None` for types without packed matrices.
    fn wrap_packed(matrix: &PackedB) -> Option<Self::Right<'_>>;

    /// Returns the rows and columns of a right operand.
    fn size(right: &Self::Right<'_>) -> (usize, usize);

    /// Computes `c = a right + bias`. The bias is one row; rows of `c` are adjacent.
    ///
    /// # Panics
    ///
    /// If sizes do not fit.
    fn product(
        exec: &Exec<'_>,
        a: MatRef<'_, Self>,
        right: Self::Right<'_>,
        bias: Option<&[Self]>,
        c: &mut [Self],
    ) -> Result<(), Ended>;

    /// Decides how matrices with the sizes and strides of `left` are multiplied by `right`.
    fn repeat<'a>(
        exec: &Exec<'_>,
        left: MatRef<'_, Self>,
        right: Self::Right<'a>,
    ) -> Self::Repeated<'a>;

    /// Computes `c = a right`. Rows of `c` are `ldc` elements apart.
    ///
    /// # Panics
    ///
    /// If sizes do not fit.
    fn multiply(
        exec: &Exec<'_>,
        right: &Self::Repeated<'_>,
        a: MatRef<'_, Self>,
        c: &mut [Self],
        ldc: usize,
        sweep: Sweep,
    ) -> Result<(), Ended>;

    /// Whether a row of a product has the same bits for any number of rows.
    fn has_independent_rows(right: &Self::Right<'_>) -> bool;

    /// Returns the most bytes of scratch memory that [`RecurrentElement::product`] uses.
    fn product_scratch(exec: &Exec<'_>, a: MatRef<'_, Self>, right: Self::Right<'_>) -> usize;
}

impl RecurrentElement for f32 {
    type Right<'a> = Rhs<'a>;
    type Repeated<'a> = Repeated<'a>;

    fn wrap_matrix(matrix: MatRef<'_>) -> Rhs<'_> {
        Rhs::Plain(matrix)
    }

    fn wrap_packed(matrix: &PackedB) -> Option<Rhs<'_>> {
        Some(Rhs::Packed(matrix))
    }

    fn size(right: &Rhs<'_>) -> (usize, usize) {
        right.size()
    }

    fn product(
        exec: &Exec<'_>,
        a: MatRef<'_>,
        right: Rhs<'_>,
        bias: Option<&[f32]>,
        c: &mut [f32],
    ) -> Result<(), Ended> {
        let epilogue = Epilogue { bias: bias.map(Bias::Col), ..Epilogue::default() };
        gemm(exec, Lhs::Plain(a), right, c, right.size().1, &epilogue)
    }

    fn repeat<'a>(exec: &Exec<'_>, left: MatRef<'_>, right: Self::Right<'a>) -> Self::Repeated<'a> {
        Repeated::new(exec, left, right)
    }

    fn multiply(
        exec: &Exec<'_>,
        right: &Repeated<'_>,
        a: MatRef<'_>,
        c: &mut [f32],
        ldc: usize,
        sweep: Sweep,
    ) -> Result<(), Ended> {
        right.multiply(exec, a, c, ldc, sweep)
    }

    fn has_independent_rows(right: &Rhs<'_>) -> bool {
        matches!(right, Rhs::Packed(packed) if packed.many_rows() == ManyRows::Widened)
    }

    fn product_scratch(exec: &Exec<'_>, a: MatRef<'_>, right: Rhs<'_>) -> usize {
        gemm_scratch(exec, &Lhs::Plain(a), &right)
    }
}

impl RecurrentElement for f64 {
    type Right<'a> = MatRef<'a, f64>;
    type Repeated<'a> = MatRef<'a, f64>;

    fn wrap_matrix(matrix: MatRef<'_, f64>) -> MatRef<'_, f64> {
        matrix
    }

    fn wrap_packed(_: &PackedB) -> Option<MatRef<'_, f64>> {
        None
    }

    fn size(right: &MatRef<'_, f64>) -> (usize, usize) {
        (right.rows(), right.cols())
    }

    fn product(
        exec: &Exec<'_>,
        a: MatRef<'_, f64>,
        right: MatRef<'_, f64>,
        bias: Option<&[f64]>,
        c: &mut [f64],
    ) -> Result<(), Ended> {
        let addend = bias.map(|bias| (1.0, MatRef::new(bias, a.rows(), right.cols(), 0, 1)));
        gemm_generic(exec, 1.0, a, right, addend, c, right.cols())
    }

    fn repeat<'a>(_: &Exec<'_>, _: MatRef<'_, f64>, right: Self::Right<'a>) -> Self::Repeated<'a> {
        right
    }

    fn multiply(
        exec: &Exec<'_>,
        right: &MatRef<'_, f64>,
        a: MatRef<'_, f64>,
        c: &mut [f64],
        ldc: usize,
        _: Sweep,
    ) -> Result<(), Ended> {
        gemm_generic(exec, 1.0, a, *right, None, c, ldc)
    }

    fn has_independent_rows(_: &MatRef<'_, f64>) -> bool {
        true
    }

    fn product_scratch(_: &Exec<'_>, _: MatRef<'_, f64>, _: MatRef<'_, f64>) -> usize {
        0
    }
}

impl<'a, T: RecurrentElement> Cell<'a, T> {
    /// Returns the number of gates in a row of the input's product.
    pub fn gates(&self) -> usize {
        match self {
            Cell::Plain { .. } => 1,
            Cell::Gated { .. } => 3,
            Cell::Memory { .. } => 4,
        }
    }

    /// Returns the weights of each product of the state, and its number of gates.
    fn products(&self) -> [Option<(T::Right<'a>, usize)>; 2] {
        match *self {
            Cell::Plain { state, .. } => [Some((state, 1)), None],
            Cell::Memory { state, .. } => [Some((state, 4)), None],
            Cell::Gated { candidate, .. } => match candidate {
                Candidate::ResetFirst { gates, own } => [Some((gates, 2)), Some((own, 1))],
                Candidate::ResetLast { state, .. } => [Some((state, 3)), None],
            },
        }
    }

    /// Returns the length of the scratch memory that [`recur`] needs, in elements.
    pub fn scratch_len(&self, batch: usize, hidden: usize) -> usize {
        let resets = usize::from(self.products()[1].is_some());
        (self.gates() + resets).saturating_mul(batch.saturating_mul(hidden))
    }
}

/// Computes all steps of all sequences in each pass. `rows` are the strides in rows of
/// [`Input::x`]; `scratch` has at least [`Cell::scratch_len`] elements of any value for each pass.
///
/// # Panics
///
/// If lengths of slices or sizes of matrices do not fit, passes have different cells, a sequence
/// has more than `steps` steps, rows of the outputs overlap, or this machine lacks the instruction
/// set.
pub fn recur<T: RecurrentElement>(
    exec: &Exec<'_>,
    sequences: &Sequences<'_>,
    rows: Strides,
    passes: &mut [Pass<'_, '_, T>],
    outputs: Option<Outputs<'_, T>>,
    scratch: &mut [T],
) -> Result<(), Ended> {
    let &Sequences { steps, batch, hidden, lengths } = sequences;
    let states = batch * hidden;
    assert!(lengths.is_none_or(|lengths| lengths.len() == batch), "one length per sequence");
    let longest = (0..batch).map(|sequence| sequences.length(sequence)).max();
    assert!(longest.is_none_or(|longest| longest <= steps), "as many steps as the longest has");
    let has_room = outputs.as_ref().is_none_or(|outputs| outputs.fits(sequences, passes.len()));
    assert!(has_room, "rows of the outputs overlap or lie outside");
    assert!(rows == [batch, 1] || rows == [1, steps], "rows by steps or by sequences");
    for Pass { layer: Layer { cell, .. }, h, c, input, .. } in passes.iter() {
        assert_eq!(input.x.rows(), steps * batch, "one row of the input per step and sequence");
        assert_eq!(h.len(), states, "one state per sequence");
        let has_memory = matches!(cell, Cell::Memory { .. });
        assert_eq!(c.len(), if has_memory { states } else { 0 }, "one cell per sequence");
        for (right, gates) in cell.products().into_iter().flatten() {
            assert_eq!(T::size(&right), (hidden, gates * hidden), "weights of the state");
        }
    }
    let Some(first) = passes.first().filter(|_| states > 0) else {
        return Ok(());
    };
    let (cell, weights) = (first.layer.cell, first.input.weights);
    let at_once = sequences.steps_at_once(exec, &cell, passes.len(), &weights, rows);
    let scratch_len = cell.scratch_len(batch, hidden);
    assert!(scratch.len() >= passes.len() * scratch_len, "scratch for each pass");
    let alone = Exec { pool: Pool::serial(), ..*exec };
    let whole = exec;
    let (pool, groups, exec) = match Sharing::new(exec, sequences, &cell, passes.len()) {
        Sharing::None => (Pool::serial(), 1, &alone),
        Sharing::Groups(groups) => (exec.pool, groups, &alone),
        Sharing::Steps => (Pool::serial(), 1, exec),
    };
    let units = passes.len() * groups;
    if at_once == steps {
        for Pass { input: Input { x, weights, bias, product }, .. } in passes.iter_mut() {
            let len = x.rows() * cell.gates() * hidden;
            T::product(whole, *x, *weights, *bias, &mut product[..len])?;
        }
    }
    let passes: SmallVec<[SharedPass<'_, '_, T>; 2]> =
        passes.iter_mut().map(SharedPass::new).collect();
    let (scratch, of_sequence) = (Shared::new(scratch), cell.scratch_len(1, hidden));
    let outputs = outputs.map(SharedOutputs::new);
    pool.run(units, |unit| {
        let (index, own) = (unit / groups, split_even(batch, groups, unit % groups));
        let pass = &passes[index];
        // SAFETY: units are disjoint ranges of sequences of the passes.
        let work = unsafe {
            Work {
                h: pass.h.part(own.start * hidden, own.len() * hidden),
                c: match cell {
                    Cell::Memory { .. } => pass.c.part(own.start * hidden, own.len() * hidden),
                    _ => &mut [],
                },
                scratch: scratch
                    .part((index * batch + own.start) * of_sequence, own.len() * of_sequence),
            }
        };
        let outputs = outputs.as_ref();
        let group = Group { exec, sequences, own, pass, rows, at_once, outputs, index };
        group.run(work)
    })
}

/// Pass whose sequences are divided between threads.
struct SharedPass<'a, 'w, T: RecurrentElement> {
    layer: Layer<'w, T>,
    backwards: bool,
    x: MatRef<'a, T>,
    weights: T::Right<'w>,
    bias: Option<&'a [T]>,
    product: Shared<'a, T>,
    h: Shared<'a, T>,
    c: Shared<'a, T>,
}

impl<'a, 'w, T: RecurrentElement> SharedPass<'a, 'w, T> {
    fn new(pass: &'a mut Pass<'_, 'w, T>) -> SharedPass<'a, 'w, T> {
        SharedPass {
            layer: pass.layer,
            backwards: pass.backwards,
            x: pass.input.x,
            weights: pass.input.weights,
            bias: pass.input.bias,
            product: Shared::new(pass.input.product),
            h: Shared::new(pass.h),
            c: Shared::new(pass.c),
        }
    }
}

/// Outputs that several threads write.
struct SharedOutputs<'a, T> {
    y: Shared<'a, T>,
    strides: Strides,
    pass_stride: usize,
}

impl<'a, T> SharedOutputs<'a, T> {
    fn new(outputs: Outputs<'a, T>) -> SharedOutputs<'a, T> {
        let Outputs { y, strides, pass_stride } = outputs;
        SharedOutputs { y: Shared::new(y), strides, pass_stride }
    }
}

/// Division of work between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// The calling thread computes all.
    None,
    /// Sequences of each pass are divided into so many groups; one thread computes all steps of a
    /// group.
    Groups(usize),
    /// Products and rows of each step are divided.
    Steps,
}

impl Sharing {
    /// Chooses the division from the amount of work, and from whether weights stay in the
    /// second-level cache.
    fn new<T: RecurrentElement>(
        exec: &Exec<'_>,
        sequences: &Sequences<'_>,
        cell: &Cell<'_, T>,
        passes: usize,
    ) -> Sharing {
        /// Work: fewest multiply-adds for which waking a thread pays.
        const WORTH: usize = 1 << 19;
        /// Work: fewest multiply-adds of a step that is divided, after which threads wait for each
        /// other.
        const WORTH_STEP: usize = 1 << 18;
        /// Work: sequences for which the multiply-adds of a weight take longer than its load from
        /// the last-level cache.
        const MANY: usize = 24;
        let &Sequences { steps, batch, hidden, .. } = sequences;
        let threads = exec.pool.threads();
        let weights = cell.gates().saturating_mul(hidden).saturating_mul(hidden);
        let step = weights.saturating_mul(batch);
        if threads == 1 || step.saturating_mul(steps).saturating_mul(passes) < WORTH {
            return Sharing::None;
        }
        let products = cell.products();
        let mut rights = products.iter().flatten();
        let may_split = rights.all(|(right, _)| T::has_independent_rows(right));
        let groups = threads.div_ceil(passes).min(if may_split { batch } else { 1 });
        let floats = weights.saturating_mul(size_of::<T>() / size_of::<f32>());
        // Whether each thread finds the weights in its second-level cache in every step.
        let stay = floats <= exec.caches.own_floats(3, 4);
        if passes * groups > 1 && (stay || batch / groups >= MANY) {
            Sharing::Groups(groups)
        } else if step >= WORTH_STEP {
            Sharing::Steps
        } else {
            Sharing::None
        }
    }
}

#[cfg(test)]
mod tests;
