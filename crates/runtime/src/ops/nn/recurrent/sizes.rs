//! Sizes of a recurrent layer, and offsets in its inputs and outputs.

use std::ops::Range;

use sardonyx_kernels::recurrent::{Outputs, Strides};
use sardonyx_tensor::Dims;

use super::settings::Settings;
use super::{B, INITIAL_C, INITIAL_H, LENGTHS, NAMES, PEEPHOLES, R, Recurrent, W, Weights, X};
use crate::error::{KernelError, fail};
use crate::kernel::Call;
use crate::scratch::Scratch;

/// Sizes of a call.
#[derive(Clone, Copy)]
pub(super) struct RecurrentSizes {
    pub(super) directions: usize,
    pub(super) gates: usize,
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) input: usize,
    pub(super) hidden: usize,
    batch_first: bool,
}

impl RecurrentSizes {
    /// Returns the dimensions of hidden or cell states.
    pub(super) fn state_dims(&self) -> [usize; 3] {
        let &RecurrentSizes { directions, batch, hidden, batch_first, .. } = self;
        if batch_first { [batch, directions, hidden] } else { [directions, batch, hidden] }
    }

    /// Returns the offset of a direction's states, and the distance of sequences.
    pub(super) fn state_offset(&self, direction: usize) -> (usize, usize) {
        let &RecurrentSizes { directions, batch, hidden, batch_first, .. } = self;
        if batch_first {
            (direction * hidden, directions * hidden)
        } else {
            (direction * batch * hidden, hidden)
        }
    }

    pub(super) fn output_dims(&self) -> [usize; 4] {
        let &RecurrentSizes { directions, steps, batch, hidden, batch_first, .. } = self;
        if batch_first {
            [batch, steps, directions, hidden]
        } else {
            [steps, directions, batch, hidden]
        }
    }

    /// Splits `y` into the states after each step, for directions from `first` on.
    pub(super) fn outputs<'y, T>(&self, first: usize, y: &'y mut [T]) -> Outputs<'y, T> {
        let ((start, sequence), (pass_stride, _)) =
            (self.state_offset(first), self.state_offset(1));
        let step = self.directions * self.hidden;
        let strides = if self.batch_first {
            [step, self.steps * sequence]
        } else {
            [step * self.batch, sequence]
        };
        Outputs { y: y.get_mut(start..).unwrap_or_default(), strides, pass_stride }
    }

    /// Returns the distance, in rows of X, from a step and from a sequence to the next.
    pub(super) fn rows_of_x(&self) -> Strides {
        if self.batch_first { [1, self.steps] } else { [self.batch, 1] }
    }

    /// Yields the ranges of each state: ordered by direction, then by sequence, and as in inputs
    /// and outputs.
    pub(super) fn states(self) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let RecurrentSizes { directions, batch, hidden, .. } = self;
        (0..directions).flat_map(move |direction| {
            let (start, apart) = self.state_offset(direction);
            (0..batch).map(move |sequence| {
                let ours = (direction * batch + sequence) * hidden;
                let theirs = start + sequence * apart;
                (ours..ours + hidden, theirs..theirs + hidden)
            })
        })
    }
}

/// Multiplies sizes, saturating.
pub(super) fn elements(dims: &[usize]) -> usize {
    dims.iter().fold(1, |product, size| product.saturating_mul(*size))
}

impl Recurrent {
    /// Computes the sizes of X and the weights, which must fit each other.
    pub(super) fn sizes(&self, call: &Call<'_>) -> Result<RecurrentSizes, KernelError> {
        let Settings { kind, ref directions, batch_first, hidden_size, .. } = self.settings;
        let dims_of = |index: usize, weights: &Option<Weights>| -> Result<Dims, KernelError> {
            match weights {
                Some(weights) => Ok(Dims::from_slice(&weights.dims)),
                None => Ok(call.tensor(index)?.dims().into()),
            }
        };
        let [first, second, input] = *call.tensor(X)?.dims() else {
            fail!("X has dimensions {:?}, not 3", call.tensor(X)?.dims());
        };
        let r = dims_of(R, &self.state_weights)?;
        let Some(&hidden) = r.get(2) else {
            fail!("R has dimensions {r:?}, not 3");
        };
        if let Some(given @ 1..) = hidden_size
            && usize::try_from(given) != Ok(hidden)
        {
            fail!("hidden_size is {given}, but R has dimensions {r:?}");
        }
        let (batch, steps) = if batch_first { (first, second) } else { (second, first) };
        let (directions, gates) = (directions.len(), kind.gates());
        let sizes = RecurrentSizes { directions, gates, steps, batch, input, hidden, batch_first };
        // The sizes of an empty tensor may overflow without the one that is zero.
        if elements(&[steps.max(1), batch.max(1), directions, 2 * gates, hidden.max(1)])
            == usize::MAX
        {
            fail!("{steps} steps of {batch} sequences with {hidden} elements are too many");
        }
        let rows = gates * hidden;
        demand(R, &r, &[directions, rows, hidden])?;
        demand(W, &dims_of(W, &self.input_weights)?, &[directions, rows, input])?;
        let state = sizes.state_dims();
        let expected: [(usize, &[usize]); 5] = [
            (B, &[directions, 2 * rows]),
            (LENGTHS, &[batch]),
            (INITIAL_H, &state),
            (INITIAL_C, &state),
            (PEEPHOLES, &[directions, 3 * hidden]),
        ];
        for (index, expected) in expected {
            if let Some(tensor) = call.maybe_tensor(index)? {
                demand(index, tensor.dims(), expected)?;
            }
        }
        Ok(sizes)
    }
}

/// Refuses an input without the dimensions that the others require.
fn demand(index: usize, dims: &[usize], expected: &[usize]) -> Result<(), KernelError> {
    if dims != expected {
        fail!(
            "{} has dimensions {dims:?}, but the other inputs require {expected:?}",
            NAMES[index]
        );
    }
    Ok(())
}

/// Returns the number of steps of each sequence, if given.
pub(super) fn lengths(
    call: &Call<'_>,
    sizes: &RecurrentSizes,
) -> Result<Option<Scratch<usize>>, KernelError> {
    if !call.has_input(LENGTHS) {
        return Ok(None);
    }
    let given = call.ints(LENGTHS)?;
    let mut lengths = call.scratch(given.len())?;
    for (at, (to, from)) in lengths.iter_mut().zip(given).enumerate() {
        match usize::try_from(from) {
            Ok(length) if length <= sizes.steps => *to = length,
            _ => fail!("sequence_lens[{at}] is {from}, but X has {} steps", sizes.steps),
        }
    }
    Ok(Some(lengths))
}
