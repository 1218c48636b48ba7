//! Requests: what annotations demand of nodes.

use std::collections::{BTreeMap, BTreeSet};

use sardonyx_model::{NodeId, ValueId};
use sardonyx_passes::{NodeAnnotation, ShardingSpec, annotations, configurations};
use sardonyx_proto::shown;

use super::Planner;
use crate::form::{Device, Form};
use crate::plan::FormId;
use crate::prepare::Prepared;
use crate::spec::Reading;
use crate::suggest::Columns;

/// Forms and stage that a node's annotation for the chosen configuration requests.
#[derive(Default)]
pub(super) struct Request {
    /// Requested form of each input.
    pub(super) inputs: Vec<Option<FormId>>,
    /// Requested form of each output.
    pub(super) outputs: Vec<Option<FormId>>,
    pub(super) stage: Option<i64>,
}

impl Request {
    /// Makes a request of nothing.
    pub(super) fn new(inputs: usize, outputs: usize) -> Request {
        Request { inputs: vec![None; inputs], outputs: vec![None; outputs], stage: None }
    }
}

/// Input or output of a node.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Input(usize),
    Output(usize),
}

/// Annotations of a model for the chosen configuration.
pub(super) struct Requests<'r> {
    prepared: &'r Prepared,
    /// Devices of each pipeline stage.
    stages: BTreeMap<i64, BTreeSet<Device>>,
    /// State of a search for annotations, in which those of the model are not read.
    pub(super) search: Option<Columns>,
}

impl<'r> Requests<'r> {
    pub(super) fn new(prepared: &'r Prepared) -> Requests<'r> {
        Requests { prepared, stages: BTreeMap::new(), search: None }
    }

    /// Determines the devices of each pipeline stage: the devices that annotations of its nodes
    /// list. A stage without such devices gets an even share of all devices, by the order of stage
    /// numbers.
    pub(super) fn find_stages(&mut self) {
        let prepared = self.prepared;
        let devices = prepared.devices;
        for node in prepared.resolved.order_of(prepared.resolved.main()) {
            let Some(annotation) = prepared.annotation(*node) else { continue };
            let Some(stage) = annotation.stage else { continue };
            let named = annotation.specs.iter().flat_map(devices_of);
            let named = named.filter_map(|device| Device::try_from(device).ok());
            let named = named.filter(|device| (*device as usize) < devices);
            self.stages.entry(stage).or_default().extend(named);
        }
        let count = self.stages.len();
        for (index, stage) in self.stages.values_mut().enumerate() {
            if stage.is_empty() {
                let (from, to) = (index * devices / count, (index + 1) * devices / count);
                let range = from..to.max(from + 1).min(devices);
                stage.extend(range.filter_map(|device| Device::try_from(device).ok()));
            }
        }
    }

    /// Returns the devices of a pipeline stage.
    pub(super) fn stage(&self, stage: i64) -> Option<&BTreeSet<Device>> {
        self.stages.get(&stage)
    }

    /// Whether a node has an annotation for the chosen configuration.
    pub(super) fn is_annotated(&self, node: NodeId) -> bool {
        self.prepared.annotation(node).is_some()
    }
}

impl Prepared {
    /// Returns a node's annotation for the chosen configuration.
    pub(super) fn annotation(&self, node: NodeId) -> Option<NodeAnnotation<'_>> {
        let name = self.configuration.as_bytes();
        annotations(self.resolved.model(), node).find(|one| one.configuration == name)
    }
}

impl Planner<'_> {
    /// Returns what a node's annotation requests, or in a search, the splits to try. Records the
    /// specifications that request no form.
    pub(super) fn request(&mut self, node: NodeId) -> Request {
        let model = &self.typed.model;
        let mut request = Request::new(model.inputs(node).len(), model.outputs(node).len());
        if self.requests.search.is_some() {
            let forms = [self.rows_of(node), self.columns_of(node)];
            for (wish, form) in request.inputs.iter_mut().zip(forms) {
                *wish = form;
            }
            return request;
        }
        self.refuse_unknown(node);
        let Some(annotation) = self.prepared.annotation(node) else { return request };
        request.stage = annotation.stage;
        let forms: Vec<_> = annotation.specs.iter().map(|spec| self.read(spec, node)).collect();
        for (spec, form) in annotation.specs.iter().zip(forms) {
            let (operands, form) = match form {
                Ok(form) => form,
                Err(why) => {
                    self.steps.refuse(node, Some(spec.tensor), why);
                    continue;
                }
            };
            let id = self.forms.number(form);
            for operand in operands {
                // The planner may have removed inputs, such as that of a `CastLike`.
                let wish = match operand {
                    Operand::Input(index) => request.inputs.get_mut(index),
                    Operand::Output(index) => request.outputs.get_mut(index),
                };
                wish.into_iter().for_each(|wish| *wish = Some(id));
            }
        }
        request
    }

    /// Records annotations of a node for configurations that the model does not have.
    fn refuse_unknown(&mut self, node: NodeId) {
        let model = self.prepared.resolved.model();
        let chosen = self.prepared.configuration.as_bytes();
        let names = annotations(model, node).map(|one| one.configuration);
        // Most nodes have no annotation, or one for the chosen configuration.
        let others: Vec<&[u8]> = names.filter(|name| *name != chosen).collect();
        if others.is_empty() {
            return;
        }
        let known = configurations(model);
        for name in others {
            if known.iter().all(|one| one.name != name) {
                let name = shown(name);
                let why =
                    format!("refers to the configuration '{name}', which the model does not have");
                self.steps.refuse(node, None, why);
            }
        }
    }

    /// Returns the operands that a specification applies to, and the form that it requests.
    ///
    /// # Errors
    ///
    /// The reason why the form is not available, as a sentence without its subject, which is the
    /// specification.
    fn read(&self, spec: &ShardingSpec<'_>, node: NodeId) -> Result<(Vec<Operand>, Form), String> {
        // Specifications have names of the resolved model. The planner has replaced known values by
        // constants with other names.
        let model = self.prepared.resolved.model();
        let inputs = model.inputs(node).enumerate();
        let inputs = inputs.map(|(index, value)| (Operand::Input(index), value));
        let outputs = model.outputs(node).iter().copied().enumerate();
        let outputs = outputs.map(|(index, value)| (Operand::Output(index), value));
        let named = inputs.chain(outputs).filter_map(|(operand, value)| {
            let value = value?;
            (model.text(model.value(value).name) == spec.tensor).then_some((operand, value))
        });
        let named: Vec<(Operand, ValueId)> = named.collect();
        let first = named.first().map(|(_, value)| *value);
        let value = first.ok_or("is about a tensor that the node neither reads nor makes")?;
        if !self.typed.can_move(value) {
            return Err("is about a value that is not a tensor of numbers".into());
        }
        let symbol = |name: &str| self.prepared.symbols.get(name).copied();
        let reading = Reading { devices: self.prepared.devices, symbol: &symbol };
        let dims = self.typed.tensor(value).and_then(|(_, dims)| dims);
        let form = reading.form(spec, dims.as_deref())?;
        Ok((named.into_iter().map(|(operand, _)| operand).collect(), form))
    }
}

/// Returns the devices that a specification lists, with groups expanded.
fn devices_of<'s>(spec: &'s ShardingSpec<'_>) -> impl Iterator<Item = i64> + 's {
    spec.devices.iter().flat_map(|entry| match spec.groups.get(entry) {
        Some(group) => group.clone(),
        None => vec![*entry],
    })
}
