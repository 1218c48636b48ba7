//! Inputs and scratch memory of a call of a recurrent layer.

use sardonyx_kernels::gemm::{MatRef, PackedB, Storage};
use sardonyx_kernels::recurrent::{
    Candidate, Cell, Input, Layer, Pass, RecurrentElement, Sequences,
};
use sardonyx_kernels::{Exec, RecurrentLoops};
use sardonyx_tensor::{DataType, Element};
use smallvec::SmallVec;

use super::settings::CellKind;
use super::sizes::{RecurrentSizes, elements, lengths};
use super::{B, INITIAL_C, INITIAL_H, PEEPHOLES, R, Recurrent, W, X};
use crate::error::{KernelError, fail};
use crate::kernel::Call;
use crate::ops::narrow::{narrow, widen};
use crate::scratch::{Contents, Scratch};

/// Type that layers are computed in.
pub(super) trait WideElement: Element + RecurrentLoops {
    /// Returns an input's elements.
    fn read<'a>(call: &Call<'a>, index: usize) -> Result<Contents<'a, Self>, KernelError>;

    /// Writes an output.
    fn write(
        call: &mut Call<'_>,
        index: usize,
        elem: DataType,
        dims: &[usize],
        elements: &[Self],
    ) -> Result<(), KernelError>;

    /// Packs a matrix that several products read, for the time of the call.
    fn pack(call: &Call<'_>, matrix: MatRef<'_, Self>) -> Result<Option<PackedB>, KernelError>;
}

impl WideElement for f32 {
    fn read<'a>(call: &Call<'a>, index: usize) -> Result<Contents<'a, f32>, KernelError> {
        let view = call.tensor(index)?;
        match view.data_type() {
            DataType::Float => Ok(Contents::Borrowed(call.slice(index)?)),
            _ => Ok(Contents::Made(widen(call, view)?)),
        }
    }

    fn write(
        call: &mut Call<'_>,
        index: usize,
        elem: DataType,
        dims: &[usize],
        elements: &[f32],
    ) -> Result<(), KernelError> {
        narrow(call, index, elem, dims, elements)
    }

    fn pack(call: &Call<'_>, matrix: MatRef<'_>) -> Result<Option<PackedB>, KernelError> {
        let (isa, rows, cols) = (call.exec.isa, matrix.rows(), matrix.cols());
        call.reserve(PackedB::bytes_of(isa, Storage::F32, rows, cols).unwrap_or(usize::MAX))?;
        Ok(Some(PackedB::new(isa, matrix)?))
    }
}

impl WideElement for f64 {
    fn read<'a>(call: &Call<'a>, index: usize) -> Result<Contents<'a, f64>, KernelError> {
        Ok(Contents::Borrowed(call.slice(index)?))
    }

    fn write(
        call: &mut Call<'_>,
        index: usize,
        _: DataType,
        dims: &[usize],
        elements: &[f64],
    ) -> Result<(), KernelError> {
        call.output_slice::<f64>(index, dims)?.copy_from_slice(elements);
        Ok(())
    }

    fn pack(_: &Call<'_>, _: MatRef<'_, f64>) -> Result<Option<PackedB>, KernelError> {
        Ok(None)
    }
}

/// Inputs of a call.
pub(super) struct RecurrentOperands<'k, 'a, T: WideElement> {
    of: &'k Recurrent,
    exec: &'a Exec<'a>,
    pub(super) sizes: RecurrentSizes,
    x: Contents<'a, T>,
    /// Weights that are not packed.
    w: Option<Contents<'a, T>>,
    r: Option<Contents<'a, T>>,
    b: Option<Contents<'a, T>>,
    peepholes: Option<Contents<'a, T>>,
    lengths: Option<Scratch<usize>>,
    /// Recurrent weights that are not constant, packed for the time of the call.
    packed: SmallVec<[Option<PackedB>; 2]>,
}

/// Scratch memory of a call, allocated before the first product.
pub(super) struct Work<T> {
    /// Hidden states by direction, then by sequence.
    pub(super) h: Scratch<T>,
    /// Cell states; empty if the layer has none.
    pub(super) c: Scratch<T>,
    /// Biases added to the product of the input, for each direction that is computed concurrently.
    bias: Scratch<T>,
    /// Product of the input with the weights of each direction that is computed concurrently.
    product: Scratch<T>,
    scratch: Scratch<T>,
}

impl<'k, 'a, T: WideElement> RecurrentOperands<'k, 'a, T> {
    pub(super) fn new(of: &'k Recurrent, call: &Call<'a>) -> Result<Self, KernelError> {
        let sizes = of.sizes(call)?;
        let maybe = |index: usize, is_read: bool| {
            (is_read && call.has_input(index)).then(|| T::read(call, index)).transpose()
        };
        let mut given = RecurrentOperands {
            of,
            exec: call.exec,
            sizes,
            x: T::read(call, X)?,
            w: maybe(W, of.input_weights.is_none())?,
            r: maybe(R, of.state_weights.is_none())?,
            b: maybe(B, true)?,
            peepholes: maybe(PEEPHOLES, true)?,
            lengths: lengths(call, &sizes)?,
            packed: SmallVec::new(),
        };
        // A product packs its operand by itself if there is only one step.
        if sizes.steps > 1 && of.state_weights.is_none() {
            for direction in 0..sizes.directions {
                for product in 0..of.settings.kind.products().len() {
                    let plain = given.plain_state(direction, product);
                    let packed = plain.map(|plain| T::pack(call, plain)).transpose()?;
                    given.packed.push(packed.flatten());
                }
            }
        }
        Ok(given)
    }

    fn rows_of_x(&self) -> MatRef<'_, T> {
        let RecurrentSizes { steps, batch, input, .. } = self.sizes;
        MatRef::row_major(&self.x, steps * batch, input)
    }

    /// Returns the input weights of a direction, transposed.
    fn input_weights(&self, direction: usize) -> Result<T::Right<'_>, KernelError> {
        let RecurrentSizes { gates, hidden, input, .. } = self.sizes;
        let rows = gates * hidden;
        if let Some(weights) = &self.of.input_weights {
            return as_right::<T>(weights.packed[direction].panels()?);
        }
        match self.w.as_deref() {
            Some(w) => Ok(T::wrap_matrix(MatRef::col_major(
                row_of(w, direction, rows * input),
                input,
                rows,
            ))),
            None => fail!("input {W} is missing"),
        }
    }

    /// Returns the recurrent weights of one product of a direction, transposed, if the session has
    /// not packed them.
    fn plain_state(&self, direction: usize, product: usize) -> Option<MatRef<'_, T>> {
        let RecurrentSizes { gates, hidden, .. } = self.sizes;
        let products = self.of.settings.kind.products();
        let before: usize = products[..product].iter().sum();
        let start = (direction * gates + before) * hidden * hidden;
        let rows = products[product] * hidden;
        let weights = &self.r.as_deref()?[start..][..rows * hidden];
        Some(MatRef::col_major(weights, hidden, rows))
    }

    /// Returns the recurrent weights of one product of a direction.
    fn state_weights(&self, direction: usize, product: usize) -> Result<T::Right<'_>, KernelError> {
        let products = self.of.settings.kind.products();
        let at = direction * products.len() + product;
        if let Some(weights) = &self.of.state_weights {
            return as_right::<T>(weights.packed[at].panels()?);
        }
        if let Some(Some(made)) = self.packed.get(at) {
            return as_right::<T>(made);
        }
        match self.plain_state(direction, product) {
            Some(plain) => Ok(T::wrap_matrix(plain)),
            None => fail!("input {R} is missing"),
        }
    }

    fn layer(&self, direction: usize) -> Result<Layer<'_, T>, KernelError> {
        let RecurrentSizes { gates, hidden, .. } = self.sizes;
        let functions = &self.of.settings.directions[direction].functions;
        let state = self.state_weights(direction, 0)?;
        let cell = match (self.of.settings.kind, &functions[..]) {
            (CellKind::Rnn, &[function]) => Cell::Plain { function, state },
            (CellKind::Gru { linear_before_reset }, &[f, g]) => {
                let candidate = if linear_before_reset {
                    // Biases of the candidate gate, the last rows of the recurrent half.
                    let b = self.b.as_deref().map(|b| row_of(b, direction, 2 * gates * hidden));
                    Candidate::ResetLast { state, bias: b.map(|b| &b[5 * hidden..]) }
                } else {
                    Candidate::ResetFirst { gates: state, own: self.state_weights(direction, 1)? }
                };
                Cell::Gated { functions: [f, g], candidate }
            }
            (CellKind::Lstm { input_forget: coupled }, &[f, g, q]) => {
                let peepholes = self.peepholes.as_deref();
                let peepholes = peepholes.map(|p| row_of(p, direction, 3 * hidden));
                Cell::Memory { functions: [f, g, q], state, peepholes, coupled }
            }
            (kind, functions) => fail!("{kind:?} with {} functions", functions.len()),
        };
        Ok(Layer { cell, clip: self.of.settings.clip.map(|clip| T::from_f64(f64::from(clip))) })
    }

    /// Adds up the biases of the input's product: both halves, except one that the reset gate
    /// multiplies. Returns whether there are any.
    fn add_biases(&self, direction: usize, bias: &mut [T]) -> bool {
        let RecurrentSizes { gates, hidden, .. } = self.sizes;
        let width = gates * hidden;
        let Some(b) = &self.b else { return false };
        let (of_input, of_state) = row_of(b, direction, 2 * width).split_at(width);
        bias.copy_from_slice(of_input);
        let with_state = match self.of.settings.kind {
            CellKind::Gru { linear_before_reset: true } => 2 * hidden,
            _ => width,
        };
        for (bias, other) in bias.iter_mut().zip(&of_state[..with_state]) {
            *bias = bias.add(*other);
        }
        true
    }

    fn sequences(&self) -> Sequences<'_> {
        let RecurrentSizes { steps, batch, hidden, .. } = self.sizes;
        Sequences { steps, batch, hidden, lengths: self.lengths.as_deref() }
    }

    /// Returns the number of directions whose input products exist at the same time: all that
    /// threads may compute concurrently.
    fn at_once(&self) -> usize {
        if self.exec.pool.threads() > 1 { self.sizes.directions } else { 1 }
    }

    /// Runs the steps of all directions.
    pub(super) fn run(
        &self,
        work: &mut Work<T>,
        mut y: Option<&mut [T]>,
    ) -> Result<(), KernelError> {
        let RecurrentSizes { directions, gates, batch, hidden, .. } = self.sizes;
        let (width, states) = (gates * hidden, batch * hidden);
        if states == 0 {
            return Ok(());
        }
        let sequences = self.sequences();
        let mut h = work.h.chunks_exact_mut(states);
        let mut c = work.c.chunks_exact_mut(states);
        let at_once = self.at_once();
        let product_len = work.product.len() / at_once;
        for first in (0..directions).step_by(at_once) {
            let mut products = work.product.chunks_exact_mut(product_len.max(1));
            let mut biases = work.bias.chunks_exact_mut(width);
            let mut passes = SmallVec::<[Pass<'_, '_, T>; 2]>::new();
            for direction in first..first + at_once {
                let bias = biases.next().unwrap_or_default();
                let has_bias = self.add_biases(direction, bias);
                let input = Input {
                    x: self.rows_of_x(),
                    weights: self.input_weights(direction)?,
                    bias: has_bias.then_some(&*bias),
                    product: products.next().unwrap_or_default(),
                };
                passes.push(Pass {
                    layer: self.layer(direction)?,
                    backwards: self.of.settings.directions[direction].backwards,
                    input,
                    h: h.next().unwrap_or_default(),
                    c: c.next().unwrap_or_default(),
                });
            }
            let outputs = y.as_deref_mut().map(|y| self.sizes.outputs(first, y));
            let (rows, scratch) = (self.sizes.rows_of_x(), &mut work.scratch[..]);
            T::recur(self.exec, &sequences, rows, &mut passes, outputs, scratch)?;
        }
        Ok(())
    }
}

impl<T: WideElement> Work<T> {
    pub(super) fn new(
        given: &RecurrentOperands<'_, '_, T>,
        call: &Call<'_>,
    ) -> Result<Work<T>, KernelError> {
        let RecurrentSizes { gates, batch, hidden, .. } = given.sizes;
        let is_lstm = matches!(given.of.settings.kind, CellKind::Lstm { .. });
        let h = initial(call, INITIAL_H, given.sizes)?;
        let c = if is_lstm { initial(call, INITIAL_C, given.sizes)? } else { call.scratch(0)? };
        let at_once = given.at_once();
        let bias = call.scratch(at_once * gates * hidden)?;
        // All directions take equally many steps.
        let cell = given.layer(0)?.cell;
        let (sequences, rows) = (given.sequences(), given.sizes.rows_of_x());
        let mut steps = 0;
        for direction in 0..given.sizes.directions {
            let weights = given.input_weights(direction)?;
            let more = sequences.steps_at_once::<T>(call.exec, &cell, at_once, &weights, rows);
            steps = steps.max(more);
        }
        let product = call.scratch(elements(&[at_once, steps, batch, gates, hidden]))?;
        let scratch = call.scratch(at_once.saturating_mul(cell.scratch_len(batch, hidden)))?;
        let of_input = T::product_scratch(call.exec, given.rows_of_x(), given.input_weights(0)?);
        let state = MatRef::row_major(&h[..batch * hidden], batch, hidden);
        let mut most = of_input;
        for product in 0..given.of.settings.kind.products().len() {
            let weights = given.state_weights(0, product)?;
            most = most.max(T::product_scratch(call.exec, state, weights));
        }
        call.reserve(most)?;
        Ok(Work { h, c, bias, product, scratch })
    }
}

/// Returns row `index` of rows of `len` elements.
fn row_of<T>(rows: &[T], index: usize, len: usize) -> &[T] {
    &rows[index * len..][..len]
}

fn as_right<T: RecurrentElement>(matrix: &PackedB) -> Result<T::Right<'_>, KernelError> {
    match T::wrap_packed(matrix) {
        Some(right) => Ok(right),
        None => fail!("this type has no packed form"),
    }
}

/// Returns the initial states of an input, by direction and then by sequence; zeros without the
/// input.
fn initial<T: WideElement>(
    call: &Call<'_>,
    index: usize,
    sizes: RecurrentSizes,
) -> Result<Scratch<T>, KernelError> {
    let mut states = call.scratch::<T>(elements(&sizes.state_dims()))?;
    if call.has_input(index) {
        let given = T::read(call, index)?;
        for (ours, theirs) in sizes.states() {
            states[ours].copy_from_slice(&given[theirs]);
        }
    }
    Ok(states)
}
