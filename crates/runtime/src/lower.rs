//! From resolved nodes to a [program](crate::program), and from one of its operations to a kernel.

use std::borrow::Cow;

use sardonyx_kernels::Isa;
use sardonyx_model::{Id, NodeAttributes, NodeId, Type, ValueId};
use sardonyx_ops::{AttributeView, Schema};
use sardonyx_passes::{Finding, Inference, Resolved};
use smallvec::SmallVec;

use crate::constants::{Constants, Look};
use crate::error::BindError;
use crate::error::CompileError;
use crate::kernel::Selected;
use crate::kernel::{Site, SiteInput};
use crate::ops;
use crate::precision::Precision;
use crate::program::{Constant, Op, Program, SMALL, Slot, Step, Value};
use crate::unsupported::Unsupported;
use crate::weights::{Elements, Packer, Weight};

/// What lowering and selecting look at.
pub(crate) struct Lowering<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) inference: &'a Inference,
    pub(crate) isa: Isa,
    pub(crate) precision: Precision,
    /// As [`Site::exact_up_to`].
    pub(crate) exact_up_to: usize,
    pub(crate) weights: &'a Packer<'a>,
}

/// What an operation reads, by position: slots with the values of the model that they are.
pub(crate) type Read = SmallVec<[Option<(Slot, ValueId)>; 6]>;

impl Lowering<'_> {
    /// The operation of a node that reads some slots.
    pub(crate) fn operation(
        &self,
        node: NodeId,
        read: Read,
        constants: &Constants,
    ) -> Result<Op, BindError> {
        self.with_site(node, read, constants, ops::lower)
    }

    /// The kernel of an operation that was made from a node.
    pub(crate) fn kernel_of(
        &self,
        node: NodeId,
        op: &Op,
        read: Read,
        constants: &Constants,
    ) -> Result<Selected, BindError> {
        self.with_site(node, read, constants, |schema, site| ops::select(op, schema, site))
    }

    fn with_site<R>(
        &self,
        node: NodeId,
        read: Read,
        constants: &Constants,
        then: impl FnOnce(&'static Schema, &Site<'_>) -> Result<R, BindError>,
    ) -> Result<R, BindError> {
        let model = self.resolved.model();
        let schema = self.resolved.schema(node).ok_or_else(ops::not_implemented)?;
        let attributes = NodeAttributes::new(model, node);
        let input = |(slot, value): (Slot, ValueId)| {
            let look = constants.look(value);
            // A constant says more than inference, which does not look at large ones.
            let ty = match &look {
                Some(Look { weight, .. }) => Some(Cow::Owned(outlined(weight))),
                None => self.inference.ty(value).map(Cow::Borrowed),
            };
            let constant = look.as_ref().and_then(|look| look.there);
            SiteInput { slot, ty, constant, weight: look.map(|look| look.weight) }
        };
        let outputs = model.outputs(node).iter();
        let site = Site {
            attributes: AttributeView::new(schema, &attributes),
            inputs: read.into_iter().map(|operand| operand.map(input)).collect(),
            outputs: outputs.map(|value| value.is_some_and(|value| model.is_read(value))).collect(),
            isa: self.isa,
            precision: self.precision,
            exact_up_to: self.exact_up_to,
            weights: self.weights,
        };
        then(schema, &site)
    }

    /// The inputs of a node with their positions as slots, for one that is looked at alone.
    pub(crate) fn alone(&self, node: NodeId) -> Read {
        let inputs = self.resolved.model().inputs(node).enumerate();
        inputs.map(|(index, value)| value.map(|value| (Slot(index as u32), value))).collect()
    }

    /// The program of the main graph, of which `nodes` are not computed ahead of time, in order.
    ///
    /// # Errors
    ///
    /// All operators that cannot run, or a node that contradicts the standard.
    pub(crate) fn program(
        &self,
        nodes: &[NodeId],
        constants: &Constants,
    ) -> Result<Program, CompileError> {
        let model = self.resolved.model();
        let graph = model.graph(self.resolved.main());
        let mut program = Program::default();
        let mut slots = Slots { slots: vec![None; model.value_count()] };
        let mut unsupported = Unsupported::new(model);
        let mut is_read = vec![false; model.value_count()];
        let outputs = graph.outputs.iter().filter_map(|output| output.value);
        for value in nodes.iter().flat_map(|node| model.inputs(*node).flatten()).chain(outputs) {
            is_read[value.index()] = true;
        }
        for node in nodes {
            let mut slot = |value: ValueId| slots.of(&mut program, self, constants, value);
            let inputs = model.inputs(*node);
            let read = inputs.map(|value| value.map(|value| (slot(value), value))).collect();
            let op = match self.operation(*node, read, constants) {
                Ok(op) => op,
                Err(BindError::Unsupported(why)) => {
                    unsupported.add(*node, 1, why);
                    continue;
                }
                Err(BindError::Invalid(fact)) => {
                    let spot = sardonyx_passes::Spot::node(*node);
                    let code = &sardonyx_passes::check::codes::MALFORMED_NODE;
                    return Err(CompileError::Invalid(vec![Finding::new(model, code, spot, fact)]));
                }
            };
            let outputs = model.outputs(*node).iter();
            let outputs =
                outputs.map(|value| value.filter(|value| is_read[value.index()]).map(&mut slot));
            let outputs = outputs.collect();
            let origins = SmallVec::from_slice(&[*node]);
            program.steps.push(Step { op, outputs, origins });
        }
        if !unsupported.is_empty() {
            return Err(CompileError::Unsupported(unsupported.into_sorted()));
        }
        let mut slot = |value: ValueId| slots.of(&mut program, self, constants, value);
        let outputs = graph.outputs.iter().filter_map(|info| info.value).map(&mut slot).collect();
        let inputs = graph
            .inputs
            .iter()
            .map(|info| info.value.filter(|value| is_read[value.index()]).map(&mut slot));
        let inputs = inputs.collect();
        (program.inputs, program.outputs) = (inputs, outputs);
        Ok(program)
    }
}

/// By value of the model: its slot.
struct Slots {
    slots: Vec<Option<Slot>>,
}

impl Slots {
    fn of(
        &mut self,
        program: &mut Program,
        lowering: &Lowering<'_>,
        constants: &Constants,
        value: ValueId,
    ) -> Slot {
        *self.slots[value.index()].get_or_insert_with(|| {
            let look = constants.look(value);
            let constant = look.as_ref().map(|look| match (look.weight.elements, look.there) {
                (Elements::Fill(one), _) => Constant::Fill(one.clone()),
                (_, Some(tensor)) if tensor.len() <= SMALL => Constant::Small(tensor.clone()),
                _ => Constant::Large,
            });
            let ty = match look {
                Some(look) => Some(outlined(&look.weight)),
                None => lowering.inference.ty(value).cloned(),
            };
            program.values.push(Value { value, ty, constant });
            Slot(program.values.len() as u32 - 1)
        })
    }
}

/// The type of a constant.
fn outlined(weight: &Weight<'_>) -> Type {
    Type::tensor(weight.data_type, weight.dims.iter().copied())
}
