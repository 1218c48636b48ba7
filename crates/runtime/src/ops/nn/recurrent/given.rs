//! A call of a recurrent layer: what it is given, and the memory that it works in.

use sardonyx_kernels::gemm::{MatRef, PackedB, Storage};
use sardonyx_kernels::recurrent::{
    Candidate, Cell, Input, Layer, Pass, RecurrentElement, Sequences,
};
use sardonyx_kernels::{Exec, RecurrentLoops};
use sardonyx_tensor::{DataType, Element};
use smallvec::SmallVec;

use super::settings::Kind;
use super::sizes::{Sizes, elements, lengths};
use super::{B, INITIAL_C, INITIAL_H, PEEPHOLES, R, Recurrent, W, X};
use crate::error::{KernelError, fail};
use crate::kernel::Call;
use crate::ops::narrow::{narrow, widen};
use crate::scratch::{Contents, Scratch};

/// A type that layers are computed in.
pub(super) trait Wide: Element + RecurrentLoops {
    /// Returns an input's elements.
    fn read<'a>(call: &Call<'a>, index: usize) -> Result<Contents<'a, Self>, KernelError>;

    /// Gives an output.
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

impl Wide for f32 {
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

impl Wide for f64 {
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

/// What a call is given.
pub(super) struct Given<'k, 'a, T: Wide> {
    of: &'k Recurrent,
    exec: &'a Exec<'a>,
    pub(super) sizes: Sizes,
    x: Contents<'a, T>,
    /// Where they are not packed.
    w: Option<Contents<'a, T>>,
    r: Option<Contents<'a, T>>,
    b: Option<Contents<'a, T>>,
    peepholes: Option<Contents<'a, T>>,
    lengths: Option<Scratch<usize>>,
    /// The weights of states that are not constant, packed for the time of the call.
    packed: SmallVec<[Option<PackedB>; 2]>,
}

/// The memory of a call, taken before the first product.
pub(super) struct Work<T> {
    /// By direction, then by sequence.
    pub(super) h: Scratch<T>,
    /// Empty if the layer has none.
    pub(super) c: Scratch<T>,
    /// What is added to the product of the input, for each direction that is computed at once.
    bias: Scratch<T>,
    /// The product of the input with the weights of each direction that is computed at once.
    product: Scratch<T>,
    scratch: Scratch<T>,
}

impl<'k, 'a, T: Wide> Given<'k, 'a, T> {
    pub(super) fn new(of: &'k Recurrent, call: &Call<'a>) -> Result<Self, KernelError> {
        let sizes = of.sizes(call)?;
        let maybe = |index: usize, is_read: bool| {
            (is_read && call.has_input(index)).then(|| T::read(call, index)).transpose()
        };
        let mut given = Given {
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
        // A single product packs what it wants to by itself.
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
        let Sizes { steps, batch, input, .. } = self.sizes;
        MatRef::row_major(&self.x, steps * batch, input)
    }

    /// The weights of the input for a direction, transposed.
    fn input_weights(&self, direction: usize) -> Result<T::Right<'_>, KernelError> {
        let Sizes { gates, hidden, input, .. } = self.sizes;
        let rows = gates * hidden;
        if let Some(weights) = &self.of.input_weights {
            return packed::<T>(weights.packed[direction].panels()?);
        }
        match self.w.as_deref() {
            Some(w) => {
                Ok(T::plain(MatRef::col_major(row_of(w, direction, rows * input), input, rows)))
            }
            None => fail!("input {W} is missing"),
        }
    }

    /// The weights of the state for one of the products of a direction, transposed, where no
    /// session has packed them.
    fn plain_state(&self, direction: usize, product: usize) -> Option<MatRef<'_, T>> {
        let Sizes { gates, hidden, .. } = self.sizes;
        let products = self.of.settings.kind.products();
        let before: usize = products[..product].iter().sum();
        let start = (direction * gates + before) * hidden * hidden;
        let rows = products[product] * hidden;
        let weights = &self.r.as_deref()?[start..][..rows * hidden];
        Some(MatRef::col_major(weights, hidden, rows))
    }

    /// The weights of the state for one of the products of a direction.
    fn state_weights(&self, direction: usize, product: usize) -> Result<T::Right<'_>, KernelError> {
        let products = self.of.settings.kind.products();
        let at = direction * products.len() + product;
        if let Some(weights) = &self.of.state_weights {
            return packed::<T>(weights.packed[at].panels()?);
        }
        if let Some(Some(made)) = self.packed.get(at) {
            return packed::<T>(made);
        }
        match self.plain_state(direction, product) {
            Some(plain) => Ok(T::plain(plain)),
            None => fail!("input {R} is missing"),
        }
    }

    fn layer(&self, direction: usize) -> Result<Layer<'_, T>, KernelError> {
        let Sizes { gates, hidden, .. } = self.sizes;
        let functions = &self.of.settings.directions[direction].functions;
        let state = self.state_weights(direction, 0)?;
        let cell = match (self.of.settings.kind, &functions[..]) {
            (Kind::Rnn, &[function]) => Cell::Plain { function, state },
            (Kind::Gru { linear_before_reset }, &[f, g]) => {
                let candidate = if linear_before_reset {
                    // The last rows of R's half of the biases.
                    let b = self.b.as_deref().map(|b| row_of(b, direction, 2 * gates * hidden));
                    Candidate::ResetLast { state, bias: b.map(|b| &b[5 * hidden..]) }
                } else {
                    Candidate::ResetFirst { gates: state, own: self.state_weights(direction, 1)? }
                };
                Cell::Gated { functions: [f, g], candidate }
            }
            (Kind::Lstm { input_forget: coupled }, &[f, g, q]) => {
                let peepholes = self.peepholes.as_deref();
                let peepholes = peepholes.map(|p| row_of(p, direction, 3 * hidden));
                Cell::Memory { functions: [f, g, q], state, peepholes, coupled }
            }
            (kind, functions) => fail!("{kind:?} with {} functions", functions.len()),
        };
        Ok(Layer { cell, clip: self.of.settings.clip.map(|clip| T::from_f64(f64::from(clip))) })
    }

    /// What is added to the input's product: both biases, but for one that the reset gate is
    /// multiplied with.
    fn add_biases(&self, direction: usize, bias: &mut [T]) -> bool {
        let Sizes { gates, hidden, .. } = self.sizes;
        let width = gates * hidden;
        let Some(b) = &self.b else { return false };
        let (of_input, of_state) = row_of(b, direction, 2 * width).split_at(width);
        bias.copy_from_slice(of_input);
        let with_state = match self.of.settings.kind {
            Kind::Gru { linear_before_reset: true } => 2 * hidden,
            _ => width,
        };
        for (bias, other) in bias.iter_mut().zip(&of_state[..with_state]) {
            *bias = bias.add(*other);
        }
        true
    }

    fn sequences(&self) -> Sequences<'_> {
        let Sizes { steps, batch, hidden, .. } = self.sizes;
        Sequences { steps, batch, hidden, lengths: self.lengths.as_deref() }
    }

    /// Returns the number of directions whose products of the input are there at the same time: all
    /// that threads may go through side by side.
    fn at_once(&self) -> usize {
        if self.exec.pool.threads() > 1 { self.sizes.directions } else { 1 }
    }

    /// Goes through the steps of all directions.
    pub(super) fn run(
        &self,
        work: &mut Work<T>,
        mut y: Option<&mut [T]>,
    ) -> Result<(), KernelError> {
        let Sizes { directions, gates, batch, hidden, .. } = self.sizes;
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

impl<T: Wide> Work<T> {
    pub(super) fn new(given: &Given<'_, '_, T>, call: &Call<'_>) -> Result<Work<T>, KernelError> {
        let Sizes { gates, batch, hidden, .. } = given.sizes;
        let is_lstm = matches!(given.of.settings.kind, Kind::Lstm { .. });
        let h = initial(call, INITIAL_H, given.sizes)?;
        let c = if is_lstm { initial(call, INITIAL_C, given.sizes)? } else { call.scratch(0)? };
        let at_once = given.at_once();
        let bias = call.scratch(at_once * gates * hidden)?;
        // All directions take the same.
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
        let of_state = |product| {
            let weights = given.state_weights(0, product)?;
            Ok::<_, KernelError>(T::product_scratch(call.exec, state, weights))
        };
        let mut most = of_input;
        for product in 0..given.of.settings.kind.products().len() {
            most = most.max(of_state(product)?);
        }
        call.reserve(most)?;
        Ok(Work { h, c, bias, product, scratch })
    }
}

/// Row `index` of rows of `len` elements.
fn row_of<T>(rows: &[T], index: usize, len: usize) -> &[T] {
    &rows[index * len..][..len]
}

fn packed<T: RecurrentElement>(matrix: &PackedB) -> Result<T::Right<'_>, KernelError> {
    match T::packed(matrix) {
        Some(right) => Ok(right),
        None => fail!("this type has no packed form"),
    }
}

/// The states that an input gives, by direction and then by sequence; zeros without.
fn initial<T: Wide>(
    call: &Call<'_>,
    index: usize,
    sizes: Sizes,
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
