//! Recurrent layers: LSTM, GRU and RNN.
//!
//! Multiplies the whole input first, then runs the steps of each direction. Packs constant weights
//! once. Floats of 16 bits are computed in 32 bits and rounded once, at the end.

mod given;
mod settings;
mod sizes;

use sardonyx_kernels::Isa;
use sardonyx_tensor::DataType;

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::right::{Right, describe_right};
use given::{RecurrentOperands, WideElement, Work};
use settings::{CellKind, Settings};

const X: usize = 0;
const W: usize = 1;
const R: usize = 2;
const B: usize = 3;
const LENGTHS: usize = 4;
const INITIAL_H: usize = 5;
const INITIAL_C: usize = 6;
const PEEPHOLES: usize = 7;

/// Names of the inputs, for messages.
const NAMES: [&str; 8] = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"];

struct Recurrent {
    settings: Settings,
    elem: DataType,
    input_weights: Option<Weights>,
    state_weights: Option<Weights>,
    isa: Isa,
}

/// Packed weights: for each direction one matrix per product.
struct Weights {
    dims: [usize; 3],
    packed: Vec<Right>,
}

/// Binds `RNN`.
pub(crate) fn bind_rnn(site: &Site<'_>) -> Result<Selected, BindError> {
    bind(site, CellKind::Rnn)
}

/// Binds `GRU`.
pub(crate) fn bind_gru(site: &Site<'_>) -> Result<Selected, BindError> {
    let linear_before_reset = site.int("linear_before_reset").unwrap_or(0) != 0;
    bind(site, CellKind::Gru { linear_before_reset })
}

/// Binds `LSTM`.
pub(crate) fn bind_lstm(site: &Site<'_>) -> Result<Selected, BindError> {
    bind(site, CellKind::Lstm { input_forget: site.int("input_forget").unwrap_or(0) != 0 })
}

fn bind(site: &Site<'_>, kind: CellKind) -> Result<Selected, BindError> {
    let elem = site.elem(X)?;
    if !matches!(elem, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
    {
        return site.unsupported_type(elem);
    }
    let settings = Settings::new(site, kind)?;
    let (directions, gates) = (settings.directions.len(), kind.gates());
    let input_weights = Weights::pack(site, W, directions, gates, &[gates]);
    let state_weights = Weights::pack(site, R, directions, gates, kind.products());
    let packed = [input_weights.is_some().then_some(W), state_weights.is_some().then_some(R)];
    let kernel = Recurrent { settings, elem, input_weights, state_weights, isa: site.isa };
    Ok(Selected::new(kernel).with_packed(packed.into_iter().flatten()))
}

impl Weights {
    /// Packs constant weights; `None` if they are not constant, have a type without packed form, or
    /// wrong dimensions, which are an error of the run.
    fn pack(
        site: &Site<'_>,
        index: usize,
        directions: usize,
        gates: usize,
        products: &[usize],
    ) -> Option<Weights> {
        let [count, rows, depth] = *site.weight(index)?.dims else { return None };
        if count != directions || !rows.is_multiple_of(gates) {
            return None;
        }
        let (hidden, mut next) = (rows / gates, 0);
        let ranges = (0..directions).flat_map(|_| products).map(|gates| {
            let start = next;
            next += gates * hidden;
            start..next
        });
        let packed: Option<Vec<Right>> =
            ranges.map(|rows| site.pack_right_of_rows(index, rows)).collect();
        Some(Weights { dims: [count, rows, depth], packed: packed? })
    }
}

impl Kernel for Recurrent {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match self.elem {
            DataType::Double => self.run_as::<f64>(call),
            _ => self.run_as::<f32>(call),
        }
    }

    fn describe(&self) -> String {
        let of = |weights: &Option<Weights>| {
            describe_right(weights.as_ref().and_then(|weights| weights.packed.first()))
        };
        let (input, state) = (of(&self.input_weights), of(&self.state_weights));
        format!("step by step, input with {input}, state with {state}, {:?}", self.isa)
    }
}

impl Recurrent {
    fn run_as<T: WideElement>(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let given = RecurrentOperands::<T>::new(self, call)?;
        let mut work = Work::new(&given, call)?;
        let (sizes, dims) = (given.sizes, given.sizes.output_dims());
        if !call.has_output(0) {
            given.run(&mut work, None)?;
        } else if T::DATA_TYPE == self.elem {
            given.run(&mut work, Some(call.output_slice::<T>(0, &dims)?))?;
        } else {
            let mut y = call.scratch::<T>(sizes::elements(&dims))?;
            given.run(&mut work, Some(&mut y))?;
            T::write(call, 0, self.elem, &dims, &y)?;
        }
        let Work { h, c, .. } = work;
        for (index, states) in [(1, h), (2, c)] {
            if call.has_output(index) {
                let mut ordered = call.scratch::<T>(states.len())?;
                for (ours, theirs) in sizes.states() {
                    ordered[theirs].copy_from_slice(&states[ours]);
                }
                T::write(call, index, self.elem, &sizes.state_dims(), &ordered)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
