//! Moves in the model of a rank that is written to a file: collectives of other engines in place of
//! exchanges.
//!
//! A move becomes a collective of the engine with exactly its effect, if there is one: an
//! all-reduce combines partial sums, an all-gather joins even parts of an axis, and an all-to-all
//! exchanges even parts of one axis for even parts of another. Any other move becomes an all-gather
//! of the senders' parts, padded to the size of the largest, from which each rank takes its new
//! part. This sends more elements than the move needs, but rounds none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sardonyx_model::{
    AttrValue, Attributes, ExternalData, NodeAttributes, NodeId, Producer, Type, ValueId,
};
use sardonyx_ops::{Combine, Sizes};
use sardonyx_passes::import_operator_set;
use sardonyx_tensor::{Buffer, DataType, Tensor};

use crate::form::{Device, Form, Ranges, Run};
use crate::local::{Building, signed};
use crate::plan::{Move, Plan, Step};
use crate::sizes::Numbers;
use crate::transfers::{Transfer, elements_of, is_within, reducing, transfers};

/// Collectives of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collectives {
    /// `AllReduce`, `AllGather` and `AllToAll` of the domain `com.microsoft`, which ONNX Runtime
    /// has in builds for several GPUs. All ranks take part in each.
    Microsoft,
    /// `DistCollective` of the default domain, which TensorRT and its tools have.
    TensorRt,
}

/// Move for which an engine has no collectives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotExpressible {
    /// Message with the value, the forms and the reason.
    pub what: String,
    /// Advice on making the move expressible.
    pub help: &'static str,
}

impl fmt::Display for NotExpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for NotExpressible {}

impl Collectives {
    /// Whether an all-reduce can combine elements of type `elem` by the operation `combine`.
    fn reduces(self, elem: DataType, combine: Combine) -> bool {
        use DataType::{Bfloat16, Double, Float, Float16, Int8, Int32, Int64, Uint8};
        match self {
            Collectives::Microsoft => {
                combine == Combine::Sum && matches!(elem, Float | Float16 | Double)
            }
            Collectives::TensorRt => {
                matches!(elem, Float | Float16 | Bfloat16 | Int8 | Uint8 | Int32 | Int64)
            }
        }
    }

    /// Returns the element type in which elements of type `elem` are gathered. It represents all
    /// their values exactly. `None` if there is no such type.
    fn carrier(self, elem: DataType) -> Option<DataType> {
        use DataType::{
            Bfloat16, Bool, Double, Float, Float8e4m3fn, Float8e4m3fnuz, Float8e5m2,
            Float8e5m2fnuz, Float16, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32,
        };
        let is_float8 = matches!(elem, Float8e4m3fn | Float8e4m3fnuz | Float8e5m2 | Float8e5m2fnuz);
        match (self, elem) {
            (_, Float | Float16 | Int64) => Some(elem),
            (Collectives::Microsoft, Double | Bool) => Some(elem),
            (Collectives::Microsoft, Int8 | Uint8 | Int16 | Uint16 | Int32 | Uint32) => Some(Int64),
            (Collectives::Microsoft, Bfloat16) => Some(Float),
            (Collectives::TensorRt, Bfloat16 | Int8 | Uint8 | Int32) => Some(elem),
            (Collectives::TensorRt, Bool) => Some(Uint8),
            (Collectives::TensorRt, Int16 | Uint16) => Some(Int32),
            (Collectives::TensorRt, Uint32) => Some(Int64),
            _ if is_float8 => Some(Float),
            _ => None,
        }
    }

    /// Whether a collective can run on a group of some ranks.
    fn has_groups(self) -> bool {
        self == Collectives::TensorRt
    }

    /// Whether all-to-all exchanges are available.
    fn has_all_to_all(self) -> bool {
        self == Collectives::Microsoft
    }
}

/// Method by which the ranks carry out a stage of a move.
#[derive(Debug, Clone)]
enum Way {
    /// Each rank takes its new part from its own old part.
    Take,
    /// Groups combine their partial results by an all-reduce.
    Reduce { groups: Vec<Vec<Device>>, combine: Combine },
    /// Groups concatenate even parts of an axis by an all-gather.
    Gather { groups: Vec<Vec<Device>>, axis: usize },
    /// All ranks exchange even parts of one axis for even parts of another.
    AllToAll { from: usize, to: usize },
    /// A group gathers the parts of all senders.
    Blocks { group: Vec<Device> },
}

/// Stage of a move, from one form to another.
#[derive(Debug, Clone)]
struct Stage {
    from: Form,
    to: Form,
    way: Way,
}

impl Plan {
    /// Checks that the collectives of an engine can express all moves of the plan.
    ///
    /// # Errors
    ///
    /// The first move that they cannot express.
    pub fn is_expressible(&self, collectives: Collectives) -> Result<(), NotExpressible> {
        for step in &self.steps {
            if let Step::Move(moved) = step
                && !self.is_local(moved)
            {
                self.stages(moved, collectives)?;
            }
        }
        Ok(())
    }

    /// Divides a move into stages that the collectives of an engine can express.
    fn stages(&self, moved: &Move, collectives: Collectives) -> Result<Vec<Stage>, NotExpressible> {
        let refuse = |why: &str, help| {
            let name = self.model.display(Some(self.model.value(moved.value).name));
            let (from, to) = (self.form(moved.from), self.form(moved.to));
            let what = format!("'{name}' cannot be moved from {from} to {to}: {why}");
            Err(NotExpressible { what, help })
        };
        let (mut from, to) = (self.form(moved.from).clone(), self.form(moved.to).clone());
        let Some(dims) = &known_sizes(moved) else {
            let help = "give sizes of inputs that the model leaves open, as --set NAME=SIZE does";
            return refuse("its sizes are not known before the run", help);
        };
        let all: Vec<Device> = (0..Device::try_from(self.devices).unwrap_or(Device::MAX)).collect();
        let mut stages = Vec::new();
        let givers = self.givers(moved);
        let gives_all = from.devices().all(|device| givers.contains(&device));
        let is_whole_group =
            |groups: &[Vec<Device>]| collectives.has_groups() || *groups == [&all[..]];
        if let Some((combine, _)) = from.partial()
            && gives_all
            && collectives.reduces(moved.elem, combine)
            && let Some(groups) = groups_of_sums(&from).filter(|groups| is_whole_group(groups))
        {
            let combined = from.combined();
            let way = Way::Reduce { groups, combine };
            stages.push(Stage { from, to: combined.clone(), way });
            from = combined;
        }
        if is_within(&from, &to, moved.dims.as_deref()) {
            stages.push(Stage { from, to, way: Way::Take });
            return Ok(stages);
        }
        if collectives.carrier(moved.elem).is_none() {
            let why = format!("no collective takes elements of type {}", moved.elem);
            return refuse(
                &why,
                "let the value stay on its devices, or cast it before it is moved",
            );
        }
        let is_complete = !stages.is_empty() || gives_all;
        if is_complete
            && let Some((axis, groups)) = groups_of_parts(&from, dims)
            && is_whole_group(&groups)
            && to.is_whole()
            && to.devices().all(|device| from.is_on(device))
        {
            stages.push(Stage { from, to, way: Way::Gather { groups, axis } });
            return Ok(stages);
        }
        if is_complete
            && collectives.has_all_to_all()
            && let (Some(own), Some(other)) =
                (even_axis(&from, dims, &all), even_axis(&to, dims, &all))
        {
            stages.push(Stage { from, to, way: Way::AllToAll { from: own, to: other } });
            return Ok(stages);
        }
        let group = if collectives.has_groups() {
            let senders = transfers(&from, &to, dims).into_iter().map(|transfer| transfer.from);
            let members: BTreeSet<Device> = senders.chain(to.devices()).collect();
            members.into_iter().collect()
        } else {
            all
        };
        stages.push(Stage { from, to, way: Way::Blocks { group } });
        Ok(stages)
    }
}

/// Returns the sizes of a moved value, if all are numbers.
fn known_sizes(moved: &Move) -> Option<Sizes> {
    Numbers::default().of(moved.dims.as_deref()?)
}

/// Returns the groups of devices that combine their partial results, one group for each part.
/// `None` if a device has no such group.
fn groups_of_sums(from: &Form) -> Option<Vec<Vec<Device>>> {
    let combined = from.combined();
    let groups: Option<BTreeSet<Vec<Device>>> =
        from.devices().map(|device| reducing(from, &combined, device)).collect();
    Some(groups?.into_iter().collect())
}

/// Returns the only split axis of a form, and groups of devices that each hold all its parts, in
/// the order of the device numbers. `None` if several axes are split, the parts are uneven, or some
/// parts are on more devices than others.
fn groups_of_parts(form: &Form, dims: &[usize]) -> Option<(usize, Vec<Vec<Device>>)> {
    let (axis, parts) = split_axis(form, dims)?;
    let mut holders: Vec<Vec<Device>> = vec![Vec::new(); parts];
    for (device, place) in form.places() {
        holders.get_mut(*place.first()?)?.push(*device);
    }
    let count = holders.first()?.len();
    if count == 0 || holders.iter().any(|devices| devices.len() != count) {
        return None;
    }
    let groups = (0..count).map(|at| holders.iter().map(|devices| devices[at]).collect());
    let groups: Vec<Vec<Device>> = groups.collect();
    groups.iter().all(|group| group.is_sorted()).then_some((axis, groups))
}

/// Returns the only split axis of a form and the number of its parts. `None` if another axis is
/// split as well, the parts are uneven, or the form has partial results.
fn split_axis(form: &Form, dims: &[usize]) -> Option<(usize, usize)> {
    let mut split = form
        .axes()
        .iter()
        .enumerate()
        .filter(|(_, factors)| factors.iter().any(|factor| factor.parts > 1));
    let (axis, factors) = split.next()?;
    let [factor] = &factors[..] else { return None };
    let is_even = dims.get(axis)?.is_multiple_of(factor.parts);
    let is_only = split.next().is_none() && form.partial().is_none();
    (is_even && is_only).then_some((axis, factor.parts))
}

/// Returns the only split axis of a form if each device has one of its even parts, in the order of
/// the device numbers.
fn even_axis(form: &Form, dims: &[usize], all: &[Device]) -> Option<usize> {
    let (axis, groups) = groups_of_parts(form, dims)?;
    (groups == [all]).then_some(axis)
}

/// Engine for which the model of a rank is written, and the source of its external data.
#[derive(Clone, Copy)]
pub(super) struct Spelling<'p> {
    pub(super) collectives: Collectives,
    pub(super) external: &'p dyn ExternalData,
}

/// Operation of a collective.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Reduce(Combine),
    Gather(usize),
    AllToAll,
}

impl Building<'_> {
    /// Adds the nodes that move a value by collectives.
    pub(super) fn move_by_collectives(&mut self, moved: &Move, collectives: Collectives) {
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
    fn collective(
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

    /// Gathers the parts of all senders of a group, padded to the size of the largest, and
    /// assembles the new part of the rank. `None` if the rank gets no part.
    fn blocks(
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

    /// Takes a slice of a value along axes. Each item of `bounds` has an axis, its first index, and
    /// the index after its last one.
    pub(super) fn slice(&mut self, value: ValueId, bounds: &[(usize, usize, usize)]) -> ValueId {
        let starts: Vec<i64> = bounds.iter().map(|(_, start, _)| signed(*start)).collect();
        let ends: Vec<i64> = bounds.iter().map(|(_, _, end)| signed(*end)).collect();
        let axes: Vec<i64> = bounds.iter().map(|(axis, _, _)| signed(*axis)).collect();
        let [starts, ends, axes] = [starts, ends, axes].map(|values| Some(self.constant(&values)));
        self.add("Slice", "", &[Some(value), starts, ends, axes]).1
    }

    /// Gathers the elements of a value at `indices` of an axis.
    pub(super) fn take(&mut self, value: ValueId, indices: &[i64], axis: usize) -> ValueId {
        let indices = self.constant(indices);
        let (node, output) = self.add("Gather", "", &[Some(value), Some(indices)]);
        self.model.set_attribute(node, "axis", AttrValue::Int(signed(axis)));
        output
    }

    fn cast(&mut self, value: ValueId, from: DataType, to: DataType) -> ValueId {
        if from == to {
            return value;
        }
        let (node, output) = self.add("Cast", "", &[Some(value)]);
        self.model.set_attribute(node, "to", AttrValue::Int(i64::from(to.number())));
        output
    }

    fn reshape(&mut self, value: ValueId, dims: &[usize]) -> ValueId {
        let dims: Vec<i64> = dims.iter().map(|size| signed(*size)).collect();
        let dims = self.constant(&dims);
        self.add("Reshape", "", &[Some(value), Some(dims)]).1
    }

    fn transpose(&mut self, value: ValueId, order: &[usize]) -> ValueId {
        let order: Vec<i64> = order.iter().map(|axis| signed(*axis)).collect();
        let (node, output) = self.add("Transpose", "", &[Some(value)]);
        self.model.set_attribute(node, "perm", AttrValue::from(&order[..]));
        output
    }

    fn concat(&mut self, values: &[ValueId], axis: usize) -> ValueId {
        let values: Vec<Option<ValueId>> = values.iter().copied().map(Some).collect();
        let (node, output) = self.add("Concat", "", &values);
        self.model.set_attribute(node, "axis", AttrValue::Int(signed(axis)));
        output
    }

    fn zeros(&mut self, elem: DataType, dims: &[usize]) -> ValueId {
        let zero = sardonyx_ops::scalar(elem, 0.0);
        let zero = self.model.add_initializer(self.graph, "zero", &zero);
        let dims: Vec<i64> = dims.iter().map(|size| signed(*size)).collect();
        let dims = self.constant(&dims);
        self.add("Expand", "", &[Some(zero), Some(dims)]).1
    }

    /// Adds a constant with the elements of `value` in `ranges`. `None` if `value` is not a
    /// constant or cannot be cut, and in the model of a session, which has no external data.
    pub(super) fn cut_constant(&mut self, value: ValueId, ranges: &[Ranges]) -> Option<ValueId> {
        let external = self.spelling?.external;
        let tensor = match self.model.value(value).producer {
            Producer::Initializer(_) => {
                let initializer = self.model.initializer(value)?;
                match self.model.tensor(&initializer.tensor, external) {
                    Ok(tensor) => tensor,
                    Err(error) => {
                        self.failed.get_or_insert(error.to_string());
                        return None;
                    }
                }
            }
            Producer::Node(node, _) if self.is_constant_node(node) => {
                match NodeAttributes::new(&self.model, node).attribute("value")? {
                    AttrValue::Tensor(tensor) => tensor,
                    _ => return None,
                }
            }
            _ => return None,
        };
        let part = cut(&tensor, ranges)?;
        let name = self.model.display(Some(self.model.value(value).name)).into_owned();
        Some(self.model.add_initializer(self.graph, &name, &part))
    }

    fn is_constant_node(&self, node: NodeId) -> bool {
        let op_type = self.model.display(self.model.node(node).op_type);
        op_type == "Constant" && self.model.domain_of(node).is_empty()
    }
}

/// Piece of the new part of a rank.
#[derive(Debug, Clone, Copy)]
struct Piece<'r> {
    /// Runs of indices for each axis, with positions in the sender's part and in the new part.
    runs: &'r [Vec<Run>],
    value: ValueId,
}

/// Stage of a move, with the properties of the moved value.
struct Moving<'m> {
    collectives: Collectives,
    elem: DataType,
    dims: &'m Sizes,
    stage: &'m Stage,
}

impl Moving<'_> {
    /// Returns the element type in which elements are gathered.
    fn carrier(&self) -> DataType {
        self.collectives.carrier(self.elem).unwrap_or(self.elem)
    }
}

/// Copies the elements of a tensor whose indices are in `ranges`. `None` if elements are not whole
/// bytes, or if memory runs out.
fn cut(tensor: &Tensor, ranges: &[Ranges]) -> Option<Tensor> {
    let elem = tensor.data_type();
    let size = elem.bits().filter(|bits| bits % 8 == 0)? / 8;
    let view = tensor.view();
    let bytes = view.contiguous_bytes()?;
    let dims: Vec<usize> = ranges.iter().map(Ranges::len).collect();
    let wanted = dims.iter().product::<usize>() * size;
    let mut part = Vec::new();
    part.try_reserve_exact(wanted).ok()?;
    walk(tensor.dims(), ranges, 0, &mut |from, len| {
        if let Some(run) = bytes.get(from * size..(from + len) * size) {
            part.extend_from_slice(run);
        }
    });
    Tensor::from_buffer(elem, dims, Buffer::from_vec(part)).ok()
}

/// Calls `each` for each contiguous run of elements in `ranges`, with the index of its first
/// element and the number of elements.
fn walk(dims: &[usize], ranges: &[Ranges], base: usize, each: &mut dyn FnMut(usize, usize)) {
    let (Some((_, inner)), Some((own, rest))) = (dims.split_first(), ranges.split_first()) else {
        return each(base, 1);
    };
    let stride: usize = inner.iter().product();
    let is_all = rest.iter().zip(inner).all(|(range, size)| range.len() == *size);
    for range in own.iter() {
        if is_all {
            each(base + range.start * stride, range.len() * stride);
            continue;
        }
        for index in range.clone() {
            walk(inner, rest, base + index * stride, each);
        }
    }
}
