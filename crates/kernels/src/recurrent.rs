//! Layers that keep a state from step to step of sequences.
//!
//! The one idea: what does not depend on the state, the product of the whole input with its
//! weights, is one large product before the first step. What is left of a step is the product of
//! the state, a matrix with a row for each sequence, and then functions of gates, row by row, while
//! a row is in the first-level cache.
//!
//! Sequences may end before the last step. Their rows then rest: they keep their state, and what
//! the layer gives for the steps that they do not have is zero. From the last step to the first
//! they begin to move at their own last step, so no sequence is ever turned round.

mod cell;

use std::fmt::Debug;

use cell::Row;
use sardonyx_elementwise::{Unary, UnaryElement};
use sardonyx_gemm::gemm::{
    Bias, Epilogue, Lhs, MatRef, PackedB, Rhs, Sweep, gemm_generic, gemm_scratch, gemm_swept,
};
use sardonyx_simd::Level;
use sardonyx_simd::chunks::{Shared, ranges};
use sardonyx_simd::number::Math;
use sardonyx_simd::{Ended, Exec};

/// A function of the elements of a gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gate {
    Of(Unary),
    /// `alpha * x + beta`
    Affine {
        alpha: f32,
        beta: f32,
    },
    /// `alpha * tanh(beta * x)`
    ScaledTanh {
        alpha: f32,
        beta: f32,
    },
}

/// What a step computes of x, the step's row of the input's product, of the state h of a sequence,
/// and of the transposed weights U of the state. `hidden` elements of a row are a gate.
#[derive(Clone, Copy, Debug)]
pub enum Cell<'a, T: RecurrentElement> {
    /// `h = f(x + h U)`
    Plain { function: Gate, state: T::Right<'a> },
    /// Units with a gate z that keeps and a gate r that forgets, after Cho et al. ("Learning Phrase
    /// Representations using RNN Encoder-Decoder for Statistical Machine Translation", 2014), with
    /// the functions f and g:
    ///
    /// ```text
    /// z, r = f(x + h U), and c as Candidate says
    /// h = (1 - z) c + z h
    /// ```
    ///
    /// The gates of a row are z, r, c.
    Gated { functions: [Gate; 2], candidate: Candidate<'a, T> },
    /// Long short-term memory after Hochreiter and Schmidhuber ("Long Short-Term Memory", 1997)
    /// with the gate that forgets and the peepholes p of Gers, Schraudolph and Schmidhuber
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
    /// The gates of a row are i, o, k, and the one that g is of.
    Memory {
        functions: [Gate; 3],
        state: T::Right<'a>,
        /// For i, o and k.
        peepholes: Option<&'a [T]>,
        /// k is `1 - i` instead.
        coupled: bool,
    },
}

/// What the state gives to the candidate of a gated unit.
#[derive(Clone, Copy, Debug)]
pub enum Candidate<'a, T: RecurrentElement> {
    /// `c = g(x + (r h) U)`: a product of its own, with weights of its own.
    ResetFirst { gates: T::Right<'a>, own: T::Right<'a> },
    /// `c = g(x + r (h U + bias))`, with the weights of all gates in one matrix.
    ResetLast { state: T::Right<'a>, bias: Option<&'a [T]> },
}

/// A cell, and where its functions' arguments are clipped.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a, T: RecurrentElement> {
    pub cell: Cell<'a, T>,
    /// Arguments of gates' functions are kept between minus this and this.
    pub clip: Option<T>,
}

/// The sequences of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Sequences<'a> {
    /// The number of steps of the longest sequence, or more.
    pub steps: usize,
    /// How many sequences there are.
    pub batch: usize,
    /// The number of elements of a sequence's state.
    pub hidden: usize,
    /// How many steps each sequence has, if not all.
    pub lengths: Option<&'a [usize]>,
    /// From the last step to the first.
    pub backwards: bool,
}

impl Sequences<'_> {
    fn length(&self, sequence: usize) -> usize {
        self.lengths.map_or(self.steps, |lengths| lengths[sequence])
    }

    fn longest(&self) -> usize {
        (0..self.batch).map(|sequence| self.length(sequence)).max().unwrap_or(0)
    }
}

/// Distances of rows: from a step to the next, and from a sequence to the next.
pub type Strides = [usize; 2];

/// What changes from step to step.
#[derive(Debug)]
pub struct States<'a, T> {
    /// `batch` rows of `hidden` elements: the state before the first step, then after the last. A
    /// sequence of no steps has zeros in the end.
    pub h: &'a mut [T],
    /// The same for the cell of [`Cell::Memory`]; empty for all others.
    pub c: &'a mut [T],
    /// Gets the states after all steps.
    pub y: Option<(&'a mut [T], Strides)>,
}

/// An element type of layers with states.
pub trait RecurrentElement: Math + UnaryElement {
    /// The right operand of a product.
    type Right<'a>: Copy + Debug + Send + Sync;

    /// A matrix as a right operand.
    fn plain(matrix: MatRef<'_, Self>) -> Self::Right<'_>;

    /// A packed matrix as a right operand; `None` for types that have no such form.
    fn packed(matrix: &PackedB) -> Option<Self::Right<'_>>;

    /// Rows and columns of a right operand.
    fn size(right: &Self::Right<'_>) -> (usize, usize);

    /// `c = a right + bias`, the bias one row; rows of `c` are `ldc` elements apart.
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
        ldc: usize,
        sweep: Sweep,
    ) -> Result<(), Ended>;

    /// The most bytes of scratch memory that [`RecurrentElement::product`] takes.
    fn product_scratch(exec: &Exec<'_>, a: MatRef<'_, Self>, right: Self::Right<'_>) -> usize;
}

impl RecurrentElement for f32 {
    type Right<'a> = Rhs<'a>;

    fn plain(matrix: MatRef<'_>) -> Rhs<'_> {
        Rhs::Plain(matrix)
    }

    fn packed(matrix: &PackedB) -> Option<Rhs<'_>> {
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
        ldc: usize,
        sweep: Sweep,
    ) -> Result<(), Ended> {
        let epilogue = Epilogue { bias: bias.map(Bias::Col), ..Epilogue::default() };
        gemm_swept(exec, Lhs::Plain(a), right, c, ldc, &epilogue, sweep)
    }

    fn product_scratch(exec: &Exec<'_>, a: MatRef<'_>, right: Rhs<'_>) -> usize {
        gemm_scratch(exec, &Lhs::Plain(a), &right)
    }
}

impl RecurrentElement for f64 {
    type Right<'a> = MatRef<'a, f64>;

    fn plain(matrix: MatRef<'_, f64>) -> MatRef<'_, f64> {
        matrix
    }

    fn packed(_: &PackedB) -> Option<MatRef<'_, f64>> {
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
        ldc: usize,
        _: Sweep,
    ) -> Result<(), Ended> {
        let addend = bias.map(|bias| (1.0, MatRef::new(bias, a.rows(), right.cols(), 0, 1)));
        gemm_generic(exec, 1.0, a, right, addend, c, ldc)
    }

    fn product_scratch(_: &Exec<'_>, _: MatRef<'_, f64>, _: MatRef<'_, f64>) -> usize {
        0
    }
}

impl<'a, T: RecurrentElement> Cell<'a, T> {
    /// How many gates a row of the input's product has.
    pub fn gates(&self) -> usize {
        match self {
            Cell::Plain { .. } => 1,
            Cell::Gated { .. } => 3,
            Cell::Memory { .. } => 4,
        }
    }

    /// The weights of the state, and which gates they are for.
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

    /// How many elements of scratch memory [`recur`] wants.
    pub fn scratch_len(&self, batch: usize, hidden: usize) -> usize {
        let resets = usize::from(self.products()[1].is_some());
        (self.gates() + resets).saturating_mul(batch.saturating_mul(hidden))
    }
}

/// Goes through all steps of sequences. `inputs` are the rows of the product of the input, a bias
/// added, with all gates each; `scratch` has at least [`Cell::scratch_len`] elements of any value.
///
/// # Panics
///
/// If lengths of slices or sizes of matrices do not fit, a sequence is longer than there are steps,
/// or this machine does not have the instruction set.
pub fn recur<T: RecurrentElement>(
    exec: &Exec<'_>,
    layer: &Layer<'_, T>,
    sequences: &Sequences<'_>,
    (inputs, strides): (&[T], Strides),
    states: States<'_, T>,
    scratch: &mut [T],
) -> Result<(), Ended> {
    let &Sequences { steps, batch, hidden, lengths, backwards } = sequences;
    let States { h, c, mut y } = states;
    let (cell, rows) = (&layer.cell, batch * hidden);
    let width = cell.gates() * hidden;
    assert!(lengths.is_none_or(|lengths| lengths.len() == batch), "one length per sequence");
    assert!(sequences.longest() <= steps, "as many steps as the longest sequence has");
    assert_eq!(h.len(), rows, "one state per sequence");
    let has_memory = matches!(cell, Cell::Memory { .. });
    assert_eq!(c.len(), if has_memory { rows } else { 0 }, "one cell per sequence");
    for (right, gates) in cell.products().into_iter().flatten() {
        assert_eq!(T::size(&right), (hidden, gates * hidden), "weights of the state");
    }
    if rows == 0 {
        return Ok(());
    }
    for (sequence, h) in h.chunks_exact_mut(hidden).enumerate() {
        if sequences.length(sequence) == 0 {
            h.fill(T::ZERO);
            c.chunks_exact_mut(hidden).skip(sequence).take(1).for_each(|c| c.fill(T::ZERO));
        }
    }
    let (gates, resets) = scratch.split_at_mut(rows * cell.gates());
    let level = Level::new(exec.isa);
    let longest = sequences.longest();
    for turn in 0..steps {
        let step = if backwards { steps - 1 - turn } else { turn };
        if step < longest {
            let input = |sequence: usize| {
                let start = step * strides[0] + sequence * strides[1];
                (sequences.length(sequence) > step).then(|| &inputs[start..start + width])
            };
            let sweep = if turn % 2 == 0 { Sweep::FromFirst } else { Sweep::FromLast };
            let step = Step { exec, level, layer, hidden, input: &input, sweep };
            step.run(&mut *h, &mut *c, gates, resets)?;
        }
        if let Some((y, strides)) = &mut y {
            for (sequence, h) in h.chunks_exact(hidden).enumerate() {
                let y = &mut y[step * strides[0] + sequence * strides[1]..][..hidden];
                if sequences.length(sequence) > step {
                    y.copy_from_slice(h);
                } else {
                    y.fill(T::ZERO);
                }
            }
        }
    }
    Ok(())
}

/// One step of all sequences; `input` has the row of a sequence unless that rests.
struct Step<'a, 'w, T: RecurrentElement, I> {
    exec: &'a Exec<'a>,
    level: Level,
    layer: &'a Layer<'w, T>,
    hidden: usize,
    input: &'a I,
    /// Of the weights of the state.
    sweep: Sweep,
}

impl<'a, T: RecurrentElement, I> Step<'_, '_, T, I>
where
    I: Fn(usize) -> Option<&'a [T]> + Sync,
{
    fn run(
        &self,
        h: &mut [T],
        c: &mut [T],
        gates: &mut [T],
        resets: &mut [T],
    ) -> Result<(), Ended> {
        let (exec, hidden, sweep) = (self.exec, self.hidden, self.sweep);
        let (batch, width) = (h.len() / hidden, self.layer.cell.gates() * hidden);
        let Layer { cell, clip } = *self.layer;
        let clip = clip.unwrap_or(T::HIGHEST);
        match cell {
            Cell::Plain { function, state } => {
                let h_rows = MatRef::row_major(h, batch, hidden);
                T::product(exec, h_rows, state, None, gates, width, sweep)?;
                self.rows(gates, h, &mut [], |mut row| row.plain(function, clip))
            }
            Cell::Memory { functions, state, peepholes, coupled } => {
                let h_rows = MatRef::row_major(h, batch, hidden);
                T::product(exec, h_rows, state, None, gates, width, sweep)?;
                self.rows(gates, h, c, |mut row| row.memory(functions, peepholes, coupled, clip))
            }
            Cell::Gated { functions: [f, g], candidate } => match candidate {
                Candidate::ResetFirst { gates: both, own } => {
                    let state = MatRef::row_major(h, batch, hidden);
                    T::product(exec, state, both, None, gates, width, sweep)?;
                    let resets = &mut resets[..batch * hidden];
                    self.rows(gates, h, resets, |mut row| {
                        row.gates(f, clip);
                        row.reset();
                    })?;
                    let state = MatRef::row_major(resets, batch, hidden);
                    T::product(exec, state, own, None, &mut gates[2 * hidden..], width, sweep)?;
                    self.rows(gates, h, &mut [], |mut row| row.candidate(g, clip))
                }
                Candidate::ResetLast { state, bias } => {
                    let h_rows = MatRef::row_major(h, batch, hidden);
                    T::product(exec, h_rows, state, None, gates, width, sweep)?;
                    self.rows(gates, h, &mut [], |mut row| {
                        row.gates(f, clip);
                        row.reset_product(bias);
                        row.candidate(g, clip);
                    })
                }
            },
        }
    }

    /// Calls `body` for each sequence that does not rest. `other` has a row for each sequence or is
    /// empty.
    fn rows(
        &self,
        gates: &mut [T],
        h: &mut [T],
        other: &mut [T],
        body: impl Fn(Row<'_, T>) + Sync,
    ) -> Result<(), Ended> {
        /// About what a function of a gate costs, in units of a cheap one.
        const WORK: usize = 8;
        let hidden = self.hidden;
        let (batch, width) = (h.len() / hidden, self.layer.cell.gates() * hidden);
        let other_width = other.len() / batch;
        let (gates, h, other) = (Shared::new(gates), Shared::new(h), Shared::new(other));
        ranges(self.exec.pool, batch, width * WORK, |sequences| {
            for sequence in sequences {
                let Some(x) = (self.input)(sequence) else { continue };
                // SAFETY: ranges are disjoint, so each row is taken by one thread.
                let (gates, h, other) = unsafe {
                    (
                        gates.part(sequence * width, width),
                        h.part(sequence * hidden, hidden),
                        other.part(sequence * other_width, other_width),
                    )
                };
                body(Row { level: self.level, hidden, x, gates, h, other });
            }
        })
    }
}

#[cfg(test)]
mod tests;
