//! Plans: the steps of a model on its devices, and what they send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sardonyx_model::{Dim, GraphId, Model, NodeId, Shape, ValueId};
use sardonyx_ops::Change;
use sardonyx_tensor::DataType;

use crate::assign::Assignment;
use crate::bodies::Bodies;
use crate::form::{Device, Form};
use crate::options::OutputsAt;
use crate::resident::Kept;
use crate::sizes::{Scope, bytes_of, stand_in};
use crate::transfers::{elements_of, givers, is_within, reducing, transfers};
use crate::typed::TypedModel;

/// Number of a form in a plan. Equal forms have equal numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FormId(pub(crate) u32);

/// Step that brings a value into another form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// Value in the model of the plan.
    pub value: ValueId,
    /// Graph of the model of the plan in which the value is moved, once per run of the graph.
    pub graph: GraphId,
    /// Form that the value has.
    pub from: FormId,
    /// Form that the value gets on the devices that need it.
    pub to: FormId,
    /// Form `to` before devices that do not need the value were removed from it. Nodes refer to the
    /// moved value by this form.
    pub(crate) form: FormId,
    /// Element type.
    pub elem: DataType,
    /// Sizes, known along split axes. `None` if they do not follow from those of the inputs; both
    /// forms are whole then.
    pub dims: Option<Shape>,
}

/// Step that runs a node on some devices.
#[derive(Debug, Clone)]
pub struct Computed {
    /// Node in the model of the plan.
    pub node: NodeId,
    /// Form in which each input is read; `None` for an absent one.
    pub inputs: Vec<Option<FormId>>,
    /// Form of each output; `None` for an absent one.
    pub outputs: Vec<Option<FormId>>,
    /// Values that graphs in the node capture, with the forms in which they are read.
    pub(crate) captured: Vec<(ValueId, FormId)>,
    /// Attributes and inputs of the node that hold sizes.
    pub(crate) changes: Vec<Change>,
    pub(crate) assignment: Assignment,
    /// Graphs in the node whose nodes are steps of their own, which precede this step.
    pub(crate) bodies: Option<Bodies>,
}

impl Computed {
    /// Returns the devices that run the node.
    pub fn devices(&self) -> impl Iterator<Item = Device> + '_ {
        self.assignment.places.keys().copied()
    }
}

/// Step of a plan. All devices take their steps in the same order. Steps in the graphs of a node
/// precede that of the node.
#[derive(Debug, Clone)]
pub enum Step {
    /// Moves a value.
    Move(Move),
    /// Runs a node.
    Node(Computed),
}

/// Counts of the steps of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanFacts {
    /// Moves with communication.
    pub moves: usize,
    /// Nodes computed in parts.
    pub in_parts: usize,
    /// Nodes with partial results, which are combined later.
    pub partial: usize,
}

/// Annotation that a plan does not follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotHonored {
    /// The node, in the model of the plan.
    pub node: NodeId,
    /// Name of the tensor that the annotation is about, if it is about one.
    pub tensor: Option<String>,
    /// Reason, as a sentence whose subject is the specification or the node.
    pub why: String,
}

/// Plan for running a model on several devices. The planner makes it, and nothing changes it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) typed: TypedModel,
    pub(crate) configuration: String,
    pub(crate) devices: usize,
    pub(crate) sizes: Vec<(String, i64)>,
    /// Sizes of symbols for which the plan holds, if it was made for several.
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) forms: Vec<Form>,
    pub(crate) steps: Vec<Step>,
    pub(crate) not_honored: Vec<NotHonored>,
    /// Location of each output of the model after a run; `None` for an output that is not returned.
    pub(crate) outputs: Vec<Option<Given>>,
    /// State of each resident.
    pub(crate) kept: Vec<Kept>,
    /// Devices that read each input of the model.
    pub(crate) readers: Vec<BTreeSet<Device>>,
}

/// Location of an output of the model after a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given {
    pub(crate) value: ValueId,
    pub(crate) form: FormId,
    /// First device that has the output.
    pub(crate) by: Device,
    pub(crate) at: OutputsAt,
}

impl Given {
    /// Whether `device` returns the output, which has this form.
    pub(crate) fn is_by(&self, device: Device, form: &Form) -> bool {
        match self.at {
            OutputsAt::One => self.by == device,
            OutputsAt::All | OutputsAt::Parts => form.is_on(device),
        }
    }
}

impl Plan {
    /// Returns the model whose nodes and values the plan refers to. Calls are inlined, and nodes
    /// have the newest versions of their operators.
    pub fn model(&self) -> &Model {
        &self.typed.model
    }

    /// Returns the name of the configuration.
    pub fn configuration(&self) -> &str {
        &self.configuration
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Returns the symbols of the model on whose sizes the plan depends, with these sizes, ordered
    /// by name. The plan holds for any sizes of other symbols.
    pub fn sizes(&self) -> &[(String, i64)] {
        &self.sizes
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the annotations that are not followed.
    pub fn not_honored(&self) -> &[NotHonored] {
        &self.not_honored
    }

    /// Returns the form with a number.
    pub fn form(&self, id: FormId) -> &Form {
        &self.forms[id.0 as usize]
    }

    /// Returns for each output of the model the device that has it after a run; others may lack it.
    /// `None` for an output that is not returned.
    pub fn givers_of_outputs(&self) -> impl ExactSizeIterator<Item = Option<Device>> + '_ {
        self.outputs.iter().map(|given| given.map(|given| given.by))
    }

    /// Returns the form in which devices have an output of the model after a run, and its sizes if
    /// they follow from those of the inputs. `None` for an output that is not returned.
    pub fn form_of_output(&self, index: usize) -> Option<(&Form, Option<Shape>)> {
        let given = (*self.outputs.get(index)?)?;
        Some((self.form(given.form), self.tensor(given.value).and_then(|(_, dims)| dims)))
    }

    /// Whether `device` returns an output of the model.
    pub(crate) fn gives(&self, given: Given, device: Device) -> bool {
        given.is_by(device, self.form(given.form))
    }

    /// Returns for each input of the model, initializers among them, the devices that must be given
    /// it. No device is given a resident.
    pub fn readers_of_inputs(&self) -> &[BTreeSet<Device>] {
        &self.readers
    }

    /// Returns the number of bytes that devices send each other, as far as it is known before a
    /// run. Moves in a graph of a node count once, however often the graph runs.
    pub fn bytes(&self) -> Dim {
        let moves = self.steps.iter().map(|step| match step {
            Step::Move(moved) => self.bytes_moved(moved),
            Step::Node(_) => Dim::Known(0),
        });
        moves.fold(Dim::Known(0), |all, bytes| all.add(&bytes))
    }

    /// Returns the number of bytes that devices send each other in a move.
    pub fn bytes_moved(&self, moved: &Move) -> Dim {
        self.traffic(moved).values().fold(Dim::Known(0), |all, bytes| all.add(bytes))
    }

    /// Counts the steps of the plan.
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

    /// Returns the element type of a tensor, and its sizes if they follow from those of the inputs.
    pub fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.typed.tensor(value)
    }

    /// Whether a move takes no communication, as each device has its new part already.
    pub fn is_local(&self, moved: &Move) -> bool {
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        is_within(from, to, moved.dims.as_deref())
    }

    /// Whether a move is in a graph of a node and thus made in each run of that graph.
    pub fn is_inner(&self, moved: &Move) -> bool {
        self.model().main != Some(moved.graph)
    }

    /// Returns the devices whose part of a value is read when it is moved.
    pub fn givers(&self, moved: &Move) -> BTreeSet<Device> {
        givers(self.form(moved.from), self.form(moved.to), moved.dims.as_deref())
    }

    /// Returns the group of devices, `device` included, that combine their partial results of its
    /// part, one device for each partial result, if each of them gets the combined part. Sorted;
    /// `None` if there is no such group.
    pub fn reducing(&self, moved: &Move, device: Device) -> Option<Vec<Device>> {
        reducing(self.form(moved.from), self.form(moved.to), device)
    }

    /// Returns the number of bytes that each device sends to each other one, where it is known. A
    /// reduction in a group counts as a reduce-scatter and an all-gather.
    pub fn traffic(&self, moved: &Move) -> BTreeMap<(Device, Device), Dim> {
        let mut bytes: BTreeMap<(Device, Device), Dim> = BTreeMap::new();
        if self.is_local(moved) {
            return bytes;
        }
        let Some(dims) = &moved.dims else { return bytes };
        let (from, to) = (self.form(moved.from), self.form(moved.to));
        // Open sizes change the amount of data that devices send, but neither sender nor receiver.
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
