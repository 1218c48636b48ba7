//! Moves by an all-gather of the senders' parts, from which each rank takes its new part.

use std::collections::{BTreeMap, BTreeSet};

use sardonyx_model::{Type, ValueId};
use sardonyx_ops::Combine;

use super::moves::{Moving, Operation};
use crate::form::{Device, Form};
use crate::local::{Building, signed};
use crate::ranges::Run;
use crate::transfers::{Transfer, elements_of, transfers};

/// Piece of the new part of a rank.
#[derive(Debug, Clone, Copy)]
struct Piece<'r> {
    /// Runs of indices for each axis, with positions in the sender's part and in the new part.
    runs: &'r [Vec<Run>],
    value: ValueId,
}

impl Building<'_> {
    /// Gathers the parts of all senders of a group, padded to the size of the largest, and
    /// assembles the new part of the rank. `None` if the rank gets no part.
    pub(super) fn blocks(
        &mut self,
        of: &Moving<'_>,
        held: Option<ValueId>,
        group: &[Device],
    ) -> Option<ValueId> {
        let (from, to) = (&of.stage.from, &of.stage.to);
        let moves = transfers(from, to, of.dims);
        let elements = |form: &Form, device| {
            form.dims(device, of.dims).map_or(0, |dims| dims.iter().product::<usize>())
        };
        let senders: BTreeSet<Device> = moves.iter().map(|transfer| transfer.from).collect();
        let largest = senders.iter().map(|sender| elements(from, *sender)).max().unwrap_or(0);
        let want = to.dims(self.device, of.dims);
        let own: Vec<&Transfer> =
            moves.iter().filter(|transfer| transfer.to == self.device).collect();
        let all = (largest > 0).then(|| {
            let given = held.filter(|_| senders.contains(&self.device));
            let given = match given {
                Some(held) => {
                    let flat = self.cast(held, of.elem, of.carrier());
                    let flat = self.reshape(flat, &[elements(from, self.device)]);
                    let missing = largest - elements(from, self.device);
                    if missing == 0 {
                        flat
                    } else {
                        let zeros = self.zeros(of.carrier(), &[missing]);
                        self.concat(&[flat, zeros], 0)
                    }
                }
                None => self.zeros(of.carrier(), &[largest]),
            };
            self.collective(of.collectives, Operation::Gather(0), given, group)
        });
        let is_read = own.iter().any(|transfer| transfer.from != self.device);
        if let Some(all) = all.filter(|_| !is_read) {
            self.keep(all, Type::tensor(of.carrier(), [group.len() * largest]));
        }
        let want = want?;
        if want.contains(&0) {
            return Some(self.zeros(of.elem, &want));
        }
        let mut blocks: BTreeMap<Device, ValueId> = BTreeMap::new();
        let mut results: BTreeMap<usize, Vec<Piece<'_>>> = BTreeMap::new();
        for transfer in own {
            let have = from.dims(transfer.from, of.dims)?;
            let block = match (blocks.get(&transfer.from), held) {
                (Some(block), _) => *block,
                (None, Some(held)) if transfer.from == self.device => held,
                _ => {
                    let at = group.iter().position(|rank| *rank == transfer.from)?;
                    let start = at * largest;
                    let end = start + elements(from, transfer.from);
                    let flat = self.slice(all?, &[(0, start, end)]);
                    let flat = self.cast(flat, of.carrier(), of.elem);
                    self.reshape(flat, &have)
                }
            };
            blocks.insert(transfer.from, block);
            let value = self.runs_of(block, &transfer.runs, &have);
            let piece = Piece { runs: &transfer.runs, value };
            results.entry(transfer.partial).or_default().push(piece);
        }
        let combine = from.partial().map(|(combine, _)| combine);
        let mut combined: Option<ValueId> = None;
        for pieces in results.into_values() {
            let result = self.assemble(&pieces, 0);
            combined = Some(match (combined, combine) {
                (Some(before), Some(combine)) => {
                    let op = match combine {
                        Combine::Sum => "Add",
                        Combine::Product => "Mul",
                        Combine::Min => "Min",
                        Combine::Max => "Max",
                    };
                    self.add(op, "", &[Some(before), Some(result)]).1
                }
                _ => result,
            });
        }
        combined
    }

    /// Joins pieces that form a grid, along `axis` and all axes after it.
    fn assemble(&mut self, pieces: &[Piece<'_>], axis: usize) -> ValueId {
        let mut groups: BTreeMap<Vec<usize>, Vec<Piece<'_>>> = BTreeMap::new();
        for piece in pieces {
            let runs = piece.runs.get(axis).into_iter().flatten();
            let places = runs.flat_map(|run| run.to..run.to + run.len).collect();
            groups.entry(places).or_default().push(*piece);
        }
        let is_last = pieces.first().is_none_or(|piece| axis + 1 >= piece.runs.len());
        let mut order = Vec::new();
        let mut parts = Vec::with_capacity(groups.len());
        for (places, group) in groups {
            let part = match (&group[..], is_last) {
                ([piece], true) => piece.value,
                (group, _) => self.assemble(group, axis + 1),
            };
            order.extend(places);
            parts.push(part);
        }
        let joined = if let [part] = parts[..] { part } else { self.concat(&parts, axis) };
        if order.is_sorted() {
            return joined;
        }
        // Brings the indices of interleaved parts into order.
        let mut from = vec![0; order.len()];
        for (position, place) in order.iter().enumerate() {
            if let Some(from) = from.get_mut(*place) {
                *from = signed(position);
            }
        }
        self.take(joined, &from, axis)
    }

    /// Takes the elements in `runs`, axis by axis, from a tensor of sizes `dims`.
    fn runs_of(&mut self, value: ValueId, runs: &[Vec<Run>], dims: &[usize]) -> ValueId {
        let mut bounds = Vec::new();
        let mut gathered = Vec::new();
        for (axis, (runs, size)) in runs.iter().zip(dims).enumerate() {
            match &runs[..] {
                _ if elements_of(runs) == *size => {}
                [run] => bounds.push((axis, run.from, run.from + run.len)),
                runs => {
                    let indices = runs.iter().flat_map(|run| run.from..run.from + run.len);
                    gathered.push((axis, indices.map(signed).collect::<Vec<i64>>()));
                }
            }
        }
        let mut part = if bounds.is_empty() { value } else { self.slice(value, &bounds) };
        for (axis, indices) in gathered {
            part = self.take(part, &indices, axis);
        }
        part
    }
}
