//! Nodes that move a value by collectives.

use sardonyx_model::{AttrValue, Type, ValueId};
use sardonyx_ops::{Combine, Sizes};
use sardonyx_passes::import_operator_set;
use sardonyx_tensor::DataType;

use super::Collectives;
use super::stages::{Stage, Way, known_sizes};
use crate::form::Device;
use crate::local::{Building, signed};
use crate::plan::Move;
use crate::transfers::{Transfer, transfers};

/// Stage of a move, with the properties of the moved value.
pub(super) struct Moving<'m> {
    pub(super) collectives: Collectives,
    pub(super) elem: DataType,
    pub(super) dims: &'m Sizes,
    pub(super) stage: &'m Stage,
}

impl Moving<'_> {
    /// Returns the element type in which elements are gathered.
    pub(super) fn carrier(&self) -> DataType {
        self.collectives.carrier(self.elem).unwrap_or(self.elem)
    }
}

/// Operation of a collective.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    Reduce(Combine),
    Gather(usize),
    AllToAll,
}

impl Building<'_> {
    /// Adds the nodes that move a value by collectives.
    pub(crate) fn move_by_collectives(&mut self, moved: &Move, collectives: Collectives) {
        let plan = self.plan;
        // `rank_model` has refused moves that cannot be expressed.
        let (Ok(stages), Some(dims)) = (plan.stages(moved, collectives), &known_sizes(moved))
        else {
            return;
        };
        let gives = plan.givers(moved).contains(&self.device);
        let mut held = gives.then(|| self.held(moved.value, moved.from));
        for (number, stage) in stages.into_iter().enumerate() {
            let of = Moving { collectives, elem: moved.elem, dims, stage: &stage };
            held = match &stage.way {
                Way::Take => held.and_then(|held| {
                    let own = stage.to.dims(self.device, dims);
                    // The rank reads nothing of the previous collective, but the other ranks need
                    // it to take part.
                    if own.as_ref().is_none_or(|own| own.contains(&0)) && number > 0 {
                        let all = stage.from.dims(self.device, dims).unwrap_or_default();
                        self.keep(held, Type::tensor(moved.elem, all));
                    }
                    own.map(|_| self.part_of(held, (&stage.from, &stage.to), dims))
                }),
                Way::Reduce { groups, combine } => {
                    let operation = Operation::Reduce(*combine);
                    let group = groups.iter().find(|group| group.contains(&self.device));
                    held.zip(group)
                        .map(|(held, group)| self.collective(collectives, operation, held, group))
                }
                Way::Gather { groups, axis } => {
                    let group = groups.iter().find(|group| group.contains(&self.device));
                    held.zip(group).and_then(|(held, group)| {
                        let whole = self.gather(&of, held, group, *axis);
                        self.taken(&of, whole)
                    })
                }
                Way::AllToAll { from, to } => held.and_then(|held| {
                    let parts = self.all_to_all(&of, held, (*from, *to));
                    self.taken(&of, parts)
                }),
                Way::Blocks { group } => {
                    let gives = |transfer: &Transfer| transfer.from == self.device;
                    if let Some(held) = held.filter(|_| number > 0)
                        && !transfers(&stage.from, &stage.to, dims).iter().any(gives)
                    {
                        let own = stage.from.dims(self.device, dims).unwrap_or_default();
                        self.keep(held, Type::tensor(moved.elem, own));
                    }
                    let takes_part = group.contains(&self.device);
                    takes_part.then(|| self.blocks(&of, held, group)).flatten()
                }
            };
        }
        if let Some(held) = held
            && self.is_on(moved.to)
        {
            self.set_held(moved, held);
        }
    }

    /// Returns the result of a collective if the rank gets it. Otherwise makes it an output, as the
    /// other ranks need this rank to take part.
    fn taken(&mut self, of: &Moving<'_>, result: ValueId) -> Option<ValueId> {
        if of.stage.to.is_on(self.device) {
            return Some(result);
        }
        self.keep(result, Type::tensor(of.elem, of.dims.iter().copied()));
        None
    }

    /// Adds a collective of a group of ranks, and returns its result.
    pub(super) fn collective(
        &mut self,
        collectives: Collectives,
        operation: Operation,
        input: ValueId,
        group: &[Device],
    ) -> ValueId {
        let ranks = AttrValue::Int(signed(group.len()));
        match collectives {
            Collectives::Microsoft => {
                let op = match operation {
                    Operation::Reduce(_) => "AllReduce",
                    Operation::Gather(_) => "AllGather",
                    Operation::AllToAll => "AllToAll",
                };
                import_operator_set(&mut self.model, "com.microsoft", 1);
                let (node, output) = self.add(op, "com.microsoft", &[Some(input)]);
                if let Operation::Gather(axis) = operation {
                    self.model.set_attribute(node, "axis", AttrValue::Int(signed(axis)));
                }
                if !matches!(operation, Operation::Reduce(_)) {
                    self.model.set_attribute(node, "group_size", ranks);
                }
                output
            }
            Collectives::TensorRt => {
                let (name, reduction) = match operation {
                    Operation::Reduce(Combine::Sum) => ("all_reduce", "sum"),
                    Operation::Reduce(Combine::Product) => ("all_reduce", "prod"),
                    Operation::Reduce(Combine::Min) => ("all_reduce", "min"),
                    Operation::Reduce(Combine::Max) => ("all_reduce", "max"),
                    Operation::Gather(_) => ("all_gather", "none"),
                    Operation::AllToAll => ("all_to_all", "none"),
                };
                let (node, output) = self.add("DistCollective", "", &[Some(input)]);
                let is_all = group.len() == self.plan.devices;
                let model = &mut self.model;
                model.set_attribute(node, "collective_operation", AttrValue::from(name));
                model.set_attribute(node, "reduce_op", AttrValue::from(reduction));
                model.set_attribute(node, "root", AttrValue::Int(-1));
                model.set_attribute(node, "nb_rank", ranks.clone());
                let size = if is_all { AttrValue::Int(0) } else { ranks };
                model.set_attribute(node, "group_size", size);
                if !is_all {
                    let group: Vec<i64> = group.iter().map(|rank| i64::from(*rank)).collect();
                    model.set_attribute(node, "groups", AttrValue::from(&group[..]));
                }
                output
            }
        }
    }

    /// Concatenates the parts of a group along an axis. TensorRT gathers along the first axis only,
    /// so that `axis` is moved to the front and back.
    fn gather(&mut self, of: &Moving<'_>, held: ValueId, group: &[Device], axis: usize) -> ValueId {
        let held = self.cast(held, of.elem, of.carrier());
        let gathered = match of.collectives {
            Collectives::Microsoft => {
                self.collective(of.collectives, Operation::Gather(axis), held, group)
            }
            Collectives::TensorRt if axis == 0 => {
                self.collective(of.collectives, Operation::Gather(0), held, group)
            }
            Collectives::TensorRt => {
                let mut swapped: Vec<usize> = (0..of.dims.len()).collect();
                swapped.swap(0, axis);
                let first = self.transpose(held, &swapped);
                let gathered = self.collective(of.collectives, Operation::Gather(0), first, group);
                self.transpose(gathered, &swapped)
            }
        };
        self.cast(gathered, of.carrier(), of.elem)
    }

    /// Exchanges parts of axis `from` for parts of axis `to`. Axis `to` is split into one block for
    /// each rank, and the axis of blocks is moved to the front, where ranks exchange them.
    /// Afterwards this axis numbers the parts of axis `from`.
    fn all_to_all(
        &mut self,
        of: &Moving<'_>,
        held: ValueId,
        (from, to): (usize, usize),
    ) -> ValueId {
        let ranks = self.plan.devices;
        let held = self.cast(held, of.elem, of.carrier());
        let mut own: Vec<usize> = of.dims.to_vec();
        own[from] /= ranks;
        let mut split = own.clone();
        split[to] /= ranks;
        split.insert(to, ranks);
        let split = self.reshape(held, &split);
        // An all-to-all exchanges along the first axis.
        let mut order: Vec<usize> = (0..=of.dims.len()).filter(|axis| *axis != to).collect();
        order.insert(0, to);
        let first = self.transpose(split, &order);
        let group: Vec<Device> = (0..Device::try_from(ranks).unwrap_or(Device::MAX)).collect();
        let swapped = self.collective(of.collectives, Operation::AllToAll, first, &group);
        // The axis of received blocks is the outer factor of axis `from`.
        let mut back: Vec<usize> = (1..=of.dims.len()).collect();
        back.insert(from, 0);
        let joined = self.transpose(swapped, &back);
        let mut dims: Vec<usize> = of.dims.to_vec();
        dims[to] /= ranks;
        let joined = self.reshape(joined, &dims);
        self.cast(joined, of.carrier(), of.elem)
    }
}
