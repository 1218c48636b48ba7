//! Plans: the steps of a model on its devices, and what they send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Dim, GraphId, Model, NodeId, Shape, ValueId};
use sardonyx_ops::Change;
use sardonyx_passes::Inference;
use sardonyx_tensor::DataType;

use crate::assign::Assignment;
use crate::bodies::Bodies;
use crate::form::{Device, Form};
use crate::options::OutputsAt;
use crate::resident::Kept;
use crate::sizes::{self, Scope, bytes_of, stand_in};
use crate::transfers::{elements_of, givers, is_within, reducing, transfers};

/// A form of a plan, by number. Equal forms have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormId(pub(crate) u32);

/// A value that gets another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The value, in the model of the plan.
    pub value: ValueId,
    /// The graph in which it is moved, in the model of the plan: each time that the graph runs.
    pub graph: GraphId,
    /// The form that it has.
    pub from: FormId,
    /// The form that it gets, on those devices that need it.
    pub to: FormId,
    /// That form on all devices that could have it: what nodes say that they read.
    pub(crate) form: FormId,
    /// Its element type.
    pub elem: DataType,
    /// Its sizes, numbers where the forms are split; `None` if they do not follow from those of
    /// inputs, in which case both forms are whole.
    pub dims: Option<Shape>,
}

/// A node that runs on some devices.
#[derive(Debug, Clone)]
pub struct Computed {
    /// The node, in the model of the plan.
    pub node: NodeId,
    /// The form in which each input is read; `None` for an absent one.
    pub inputs: Vec<Option<FormId>>,
    /// The form of each output.
    pub outputs: Vec<Option<FormId>>,
    /// Values that graphs in the node read.
    pub(crate) captured: Vec<(ValueId, FormId)>,
    /// What of the node holds sizes.
    pub(crate) changes: Vec<Change>,
    pub(crate) assignment: Assignment,
    /// The graphs of the node whose nodes are steps of their own, before that of the node.
    pub(crate) bodies: Option<Bodies>,
}

impl Computed {
    /// The devices that run it.
    pub fn devices(&self) -> impl Iterator<Item = Device> + '_ {
        self.assignment.places.keys().copied()
    }
}

/// A step of a plan. All devices take theirs in the same order. Steps in the graphs of a node stand
/// before the node.
#[derive(Debug, Clone)]
pub enum Step {
    /// A value gets another form.
    Move(Move),
    /// A node runs.
    Node(Computed),
}

/// What a plan does, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanFacts {
    /// Moves for which devices send something.
    pub moves: usize,
    /// Nodes that are computed in parts.
    pub in_parts: usize,
    /// Nodes whose results are partial.
    pub partial: usize,
}

/// Something that the model asks for and that is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHonored {
    /// The node, in the model of the plan.
    pub node: NodeId,
    /// The name of the tensor that it is about, if it is about one.
    pub tensor: Option<String>,
    /// Why, as a sentence whose subject is the specification or the node.
    pub why: String,
}

/// How a model runs on several devices.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The model: calls are inlined, and nodes have the newest forms of their operators.
    pub(crate) model: Model,
    /// The name of the configuration.
    pub configuration: String,
    /// The number of its devices.
    pub devices: usize,
    /// The symbols of the model whose numbers the plan depends on, in the order of their names. It
    /// holds for any sizes of others.
    pub sizes: Vec<(String, i64)>,
    /// Symbols of inputs that are open.
    pub(crate) open: HashSet<String>,
    /// For which numbers in their place the plan holds, if it was made for several.
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) forms: Vec<Form>,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// What is asked for and not done.
    pub not_honored: Vec<NotHonored>,
    /// The types of all values that are known.
    pub(crate) types: Inference,
    /// Types of values that the plan added.
    pub(crate) added: HashMap<ValueId, (DataType, Option<Shape>)>,
    /// By output of the model, where it is when everything is done; `None` where nobody is given
    /// it.
    pub(crate) outputs: Vec<Option<Given>>,
    /// By resident.
    pub(crate) kept: Vec<Kept>,
    /// By input of the model, the devices that read it.
    pub(crate) readers: Vec<BTreeSet<Device>>,
}

/// Where an output of the model is when everything is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) value: ValueId,
    pub(crate) form: FormId,
    /// The first device that has it.
    pub(crate) by: Device,
    pub(crate) at: OutputsAt,
}

impl Plan {
    /// The model that nodes and values of the plan belong to.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// A form.
    pub fn form(&self, id: FormId) -> &Form {
        &self.forms[id.0 as usize]
    }

    /// By output of the model, the device that has it in the end. The others need not have it.
    /// `None` for an output that nobody is given.
    pub fn givers_of_outputs(&self) -> impl ExactSizeIterator<Item = Option<Device>> + '_ {
        self.outputs.iter().map(|given| given.map(|given| given.by))
    }

    /// The form in which devices have an output of the model in the end, and its sizes if they
    /// follow from those of inputs. `None` for an output that nobody is given.
    pub fn form_of_output(&self, index: usize) -> Option<(&Form, Option<Shape>)> {
        let given = (*self.outputs.get(index)?)?;
        Some((self.form(given.form), self.tensor(given.value).and_then(|(_, dims)| dims)))
    }

    /// Whether a device gives an output of the model.
    pub(crate) fn gives(&self, given: Given, device: Device) -> bool {
        match given.at {
            OutputsAt::One => given.by == device,
            OutputsAt::All | OutputsAt::Parts => self.form(given.form).is_on(device),
        }
    }

    /// By input of the model, initializers that are inputs included, the devices that read it and
    /// have to be given it: none of a resident.
    pub fn readers_of_inputs(&self) -> &[BTreeSet<Device>] {
        &self.readers
    }

    /// The bytes that devices send each other, as far as they can be counted before the run. What
    /// is sent in a graph of a node counts once, however often the graph runs.
    pub fn bytes(&self) -> Dim {
        let moves = self.steps.iter().map(|step| match step {
            Step::Move(moved) => self.bytes_moved(moved),
            Step::Node(_) => Dim::Known(0),
        });
        moves.fold(Dim::Known(0), |all, bytes| all.add(&bytes))
    }

    /// The bytes that devices send each other in a move.
    pub fn bytes_moved(&self, moved: &Move) -> Dim {
        self.traffic(moved).values().fold(Dim::Known(0), |all, bytes| all.add(bytes))
    }

    /// What the plan does, in numbers.
    pub fn facts(&self) -> PlanFacts {
        let mut facts = PlanFacts::default();
        for step in &self.steps {
            match step {
                Step::Move(moved) => facts.moves += usize::from(!self.is_local(moved)),
                Step::Node(computed) => {
                    facts.in_parts += usize::from(computed.assignment.is_cut());
                    let forms = computed.outputs.iter().flatten();
                    let partial = forms.filter(|form| self.form(**form).partial().is_some());
                    facts.partial += usize::from(partial.count() > 0);
                }
            }
        }
        facts
    }

    /// Element type and sizes of a tensor, if these follow from the sizes of inputs.
    pub fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.added.get(&value).cloned().or_else(|| sizes::tensor(self.types.ty(value)?, &self.open))
    }

    /// Whether a move takes no communication: each device makes its part of what it holds.
    pub fn is_local(&self, moved: &Move) -> bool {
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        is_within(from, to, moved.dims.as_deref())
    }

    /// Whether a move is in a graph of a node: it is made as often as that graph runs.
    pub fn is_inner(&self, moved: &Move) -> bool {
        self.model.main != Some(moved.graph)
    }

    /// The devices whose part of a value is read when it is moved.
    pub fn givers(&self, moved: &Move) -> BTreeSet<Device> {
        givers(self.form(moved.from), self.form(moved.to), moved.dims.as_deref())
    }

    /// The devices that combine their partial results of the part of a device, itself included, one
    /// for each of these, where all of them get the result. Sorted; `None` if it is not so.
    pub fn reducing(&self, moved: &Move, device: Device) -> Option<Vec<Device>> {
        reducing(self.form(moved.from), self.form(moved.to), device)
    }

    /// The bytes that each device has to send to each other one, where they can be counted. Sums of
    /// a group are counted as a reduce-scatter and an all-gather.
    pub fn traffic(&self, moved: &Move) -> BTreeMap<(Device, Device), Dim> {
        let mut bytes: BTreeMap<(Device, Device), Dim> = BTreeMap::new();
        if self.is_local(moved) {
            return bytes;
        }
        let Some(dims) = &moved.dims else { return bytes };
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        // Who sends what does not depend on open sizes, only how much it is.
        let open = dims.iter().filter(|dim| dim.size().is_none());
        let open = open.fold(Dim::Known(1), |all, dim| all.mul(dim));
        let numbers = stand_in(dims);
        let of = |elements: usize| bytes_of(&open.mul(&elements.into()), moved.elem);
        let mut reduced = BTreeSet::new();
        for device in to.devices() {
            let Some(group) = self.reducing(moved, device) else { continue };
            let elements = to.dims(device, &numbers).map_or(0, |dims| dims.iter().product());
            let others = group.iter().filter(|other| **other != device);
            let part = of(elements).mul(&Dim::Known(2)).floor_div(&group.len().into());
            bytes.extend(others.map(|other| ((device, *other), part.clone())));
            reduced.insert(device);
        }
        for transfer in transfers(from, to, &numbers) {
            if transfer.from != transfer.to && !reduced.contains(&transfer.to) {
                let elements = transfer.runs.iter().map(|axis| elements_of(axis)).product();
                let sent = bytes.entry((transfer.from, transfer.to)).or_insert(Dim::Known(0));
                *sent = sent.add(&of(elements));
            }
        }
        bytes
    }
}
