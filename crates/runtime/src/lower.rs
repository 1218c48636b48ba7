//! Lowering of resolved nodes to a [program](crate::program), and selection of kernels for its
//! operations.

mod regions;

use std::borrow::Cow;
use std::sync::Arc;

use sardonyx_kernels::Isa;
use sardonyx_model::{GraphId, Id, Model, NodeAttributes, NodeId, Type, ValueId};
use sardonyx_ops::{AttributeView, Schema};
use sardonyx_passes::{Finding, Inference, Resolved, Spot};
use smallvec::SmallVec;

use crate::constants::{ConstantView, Constants};
use crate::custom::CustomOperators;
use crate::error::BindError;
use crate::error::CompileError;
use crate::images::ImageDecoder;
use crate::kernel::Selected;
use crate::kernel::{Site, SiteInput, SiteOrders};
use crate::ops;
use crate::precision::Precision;
use crate::program::{Constant, Op, Order, Program, SMALL, Slot, Step, Value};
use crate::unsupported::Unsupported;
use crate::weights::{Elements, Packer, Weight};

/// Inputs of lowering and selection.
pub(crate) struct Lowering<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) inference: &'a Inference,
    pub(crate) isa: Isa,
    pub(crate) precision: Precision,
    /// Multiply-adds up to which products are exact, like [`Site::exact_up_to`].
    pub(crate) exact_up_to: usize,
    pub(crate) weights: &'a Packer<'a>,
    pub(crate) operators: &'a CustomOperators,
    pub(crate) images: Option<&'a Arc<dyn ImageDecoder>>,
}

/// Operands of an operation by position: slots, and the model's values in them.
pub(crate) type Read = SmallVec<[Option<(Slot, ValueId)>; 6]>;

impl Lowering<'_> {
    /// Lowers a node whose operands are in the slots of `read`.
    pub(crate) fn operation(
        &self,
        node: NodeId,
        read: Read,
        constants: &Constants,
    ) -> Result<Op, BindError> {
        self.with_site(node, (read, SiteOrders::default()), constants, |schema, site| {
            if self.operators.has(schema.domain, schema.name) {
                return Ok(Op::opaque(site));
            }
            ops::lower(schema, site)
        })
    }

    /// Selects the kernel of an operation that was made from a node, for values in the given
    /// orders.
    pub(crate) fn kernel_of(
        &self,
        node: NodeId,
        op: &Op,
        (read, orders): (Read, SiteOrders),
        constants: &Constants,
    ) -> Result<Selected, BindError> {
        self.with_site(node, (read, orders), constants, |schema, site| {
            // A rewrite may have put another operation before the node, under its name.
            let own = match op {
                Op::Opaque(_) => self.operators.kernel(self.resolved, self.inference, node, schema),
                _ => None,
            };
            match own {
                Some(kernel) => Ok(kernel.into()),
                None => ops::select(op, schema, site),
            }
        })
    }

    fn with_site<R>(
        &self,
        node: NodeId,
        (read, orders): (Read, SiteOrders),
        constants: &Constants,
        then: impl FnOnce(&'static Schema, &Site<'_>) -> Result<R, BindError>,
    ) -> Result<R, BindError> {
        let model = self.resolved.model();
        let schema = self.resolved.schema(node).ok_or_else(ops::not_implemented)?;
        let attributes = NodeAttributes::new(model, node);
        let input = |(slot, value): (Slot, ValueId)| {
            let look = constants.look(value);
            // A constant's type is more precise than the inferred one, as inference skips large
            // constants.
            let ty = match &look {
                Some(ConstantView { weight, .. }) => Some(Cow::Owned(type_of_weight(weight))),
                None => self.inference.ty(value).map(Cow::Borrowed),
            };
            let constant = look.as_ref().and_then(|look| look.there);
            SiteInput { slot, ty, constant, weight: look.map(|look| look.weight) }
        };
        let outputs = model.outputs(node).iter();
        let first = model.outputs(node).iter().next().copied().flatten();
        let shape = first.and_then(|value| self.inference.ty(value)?.shape());
        let site = Site {
            attributes: AttributeView::new(schema, &attributes),
            inputs: read.into_iter().map(|operand| operand.map(input)).collect(),
            outputs: outputs.map(|value| value.is_some_and(|value| model.is_read(value))).collect(),
            rank: shape.map(|shape| shape.len()),
            isa: self.isa,
            precision: self.precision,
            exact_up_to: self.exact_up_to,
            weights: self.weights,
            images: self.images,
            orders,
        };
        then(schema, &site)
    }

    /// Returns the inputs of a node that is compiled alone, with positions as slots.
    pub(crate) fn read_alone(&self, node: NodeId) -> Read {
        let inputs = self.resolved.model().inputs(node).enumerate();
        inputs.map(|(index, value)| value.map(|value| (Slot(index as u32), value))).collect()
    }

    /// Lowers the main graph. Skips nodes that are not `live`.
    ///
    /// # Errors
    ///
    /// All operators that cannot run, or a node that contradicts the standard.
    pub(crate) fn program(
        &self,
        live: &dyn Fn(NodeId) -> bool,
        constants: &Constants,
    ) -> Result<Program, CompileError> {
        let model = self.resolved.model();
        let mut is_read = vec![false; model.value_count()];
        for graph in self.resolved.graphs() {
            let nodes = self.resolved.order_of(*graph).iter().filter(|node| live(**node));
            let read = nodes.flat_map(|node| model.inputs(*node).flatten());
            let outputs = model.graph(*graph).outputs.iter().filter_map(|output| output.value);
            read.chain(outputs).for_each(|value| is_read[value.index()] = true);
        }
        let mut making = Making {
            lowering: self,
            constants,
            live,
            is_read,
            slots: vec![(0, Slot(0)); model.value_count()],
            scopes: 0,
            unsupported: Unsupported::new(model),
        };
        let mut scope = Scope::new(&mut making.scopes);
        making.graph(&mut scope, self.resolved.main())?;
        if !making.unsupported.is_empty() {
            return Err(CompileError::Unsupported(making.unsupported.into_sorted()));
        }
        let inputs = model.graph(self.resolved.main()).inputs.iter();
        scope.program.inputs = inputs
            .map(|info| {
                let value = info.value.filter(|value| making.is_read[value.index()])?;
                Some(making.slot(&mut scope, value))
            })
            .collect();
        Ok(scope.program)
    }
}

/// State of the lowering of a model's graphs.
struct Making<'a> {
    lowering: &'a Lowering<'a>,
    constants: &'a Constants,
    live: &'a dyn Fn(NodeId) -> bool,
    /// Whether a live node or an output of a graph reads each value of the model.
    is_read: Vec<bool>,
    /// Slot of each value of the model in the innermost scope that has one, and the number of that
    /// scope; 0 for none.
    slots: Vec<(u32, Slot)>,
    /// Number of scopes so far.
    scopes: u32,
    unsupported: Unsupported<'a>,
}

/// Graph that is being lowered to a program.
struct Scope {
    number: u32,
    program: Program,
    /// Slots of outer scopes, restored when this one ends.
    outer: Vec<(ValueId, (u32, Slot))>,
    /// Values that the graph captures, with their slots here.
    captures: Vec<(ValueId, Slot)>,
}

impl Scope {
    fn new(scopes: &mut u32) -> Scope {
        *scopes += 1;
        let program = Program::default();
        Scope { number: *scopes, program, outer: Vec::new(), captures: Vec::new() }
    }
}

impl Making<'_> {
    /// Lowers the nodes and outputs of a graph.
    fn graph(&mut self, scope: &mut Scope, graph: GraphId) -> Result<(), CompileError> {
        self.nodes(scope, graph)?;
        let outputs = self.lowering.resolved.model().graph(graph).outputs.iter();
        let outputs = outputs.filter_map(|info| info.value);
        scope.program.outputs = outputs.map(|value| self.slot(scope, value)).collect();
        Ok(())
    }

    /// Lowers the nodes of a graph.
    fn nodes(&mut self, scope: &mut Scope, graph: GraphId) -> Result<(), CompileError> {
        let resolved = self.lowering.resolved;
        let model = resolved.model();
        for node in resolved.order_of(graph) {
            if !(self.live)(*node) {
                continue;
            }
            if let Some(branch) = self.taken_branch(*node) {
                self.nodes(scope, branch)?;
                self.give_as(scope, branch, *node);
                continue;
            }
            let op = match self.region(scope, *node)? {
                Some(region) => region,
                None => match self.operation(scope, *node)? {
                    Some(op) => op,
                    None => continue,
                },
            };
            let outputs = model.outputs(*node).iter();
            let outputs = outputs.map(|value| {
                let value = value.filter(|value| self.is_read[value.index()])?;
                Some(self.define(scope, value))
            });
            let outputs = outputs.collect();
            let origins = SmallVec::from_slice(&[*node]);
            scope.program.steps.push(Step { op, outputs, origins });
        }
        Ok(())
    }

    /// Lowers a node without graphs; `None` for one that cannot run.
    fn operation(&mut self, scope: &mut Scope, node: NodeId) -> Result<Option<Op>, CompileError> {
        let model = self.lowering.resolved.model();
        let inputs = model.inputs(node);
        let read = inputs.map(|value| value.map(|value| (self.slot(scope, value), value)));
        let read = read.collect();
        match self.lowering.operation(node, read, self.constants) {
            Ok(op) => Ok(Some(op)),
            Err(BindError::Unsupported(why)) => {
                self.unsupported.add(node, 1, why);
                Ok(None)
            }
            Err(BindError::Invalid(fact)) => Err(refuse_node(model, node, fact)),
        }
    }

    /// Returns the slot of a value that is read.
    fn slot(&mut self, scope: &mut Scope, value: ValueId) -> Slot {
        let (number, slot) = self.slots[value.index()];
        if number == scope.number {
            return slot;
        }
        let look = self.constants.look(value);
        // A fill that an outer graph computes in each run may not be a constant in the end.
        let is_captured = match &look {
            Some(look) => number != 0 && matches!(look.weight.elements, Elements::Fill(_)),
            None => true,
        };
        let slot = self.define(scope, value);
        if is_captured {
            scope.program.values[slot.index()].constant = None;
            scope.captures.push((value, slot));
        }
        slot
    }

    /// Makes the slot of a value, unless it has one.
    fn define(&mut self, scope: &mut Scope, value: ValueId) -> Slot {
        let entry = self.slots[value.index()];
        if entry.0 == scope.number {
            return entry.1;
        }
        let look = self.constants.look(value);
        let constant = look.as_ref().map(|look| match (look.weight.elements, look.there) {
            (Elements::Fill(one), _) => Constant::Fill(Box::new(one.clone())),
            (_, Some(tensor)) if tensor.len() <= SMALL => Constant::Small(Box::new(tensor.clone())),
            _ => Constant::Large,
        });
        let ty = match look {
            Some(look) => Some(type_of_weight(&look.weight)),
            None => self.lowering.inference.ty(value).cloned(),
        };
        scope.program.values.push(Value { value, ty, constant, order: Order::Rows });
        let slot = Slot(scope.program.values.len() as u32 - 1);
        scope.outer.push((value, entry));
        self.slots[value.index()] = (scope.number, slot);
        slot
    }
}

/// Makes the error of a node that contradicts the standard.
pub(crate) fn refuse_node(model: &Model, node: NodeId, fact: String) -> CompileError {
    let code = &sardonyx_passes::codes::MALFORMED_NODE;
    CompileError::Invalid(vec![Finding::new(model, code, Spot::node(node), fact)])
}

/// Returns the type of a constant.
fn type_of_weight(weight: &Weight<'_>) -> Type {
    Type::tensor(weight.data_type, weight.dims.iter().copied())
}
