//! Compiled programs: slots and steps, before memory is planned for particular sizes.

use std::sync::Arc;

use sardonyx_kernels::Isa;
use sardonyx_model::{GraphId, NodeId, ValueId};
use sardonyx_passes::{Inference, Resolved};
use sardonyx_tensor::{DataType, Dims, Tensor};
use smallvec::SmallVec;

use crate::custom::CustomOperators;
use crate::kernel::{Kernel, MemoryRules};
use crate::node_error::{operators, place};
use crate::program::{MoveKind, Order, RegionKind, Slot};
use crate::registers::{ScalarCode, ScalarIterations};

/// A compiled model.
pub(crate) struct Executable {
    pub(crate) resolved: Resolved,
    pub(crate) inference: Inference,
    /// The program of the main graph.
    pub(crate) body: Body,
    pub(crate) isa: Isa,
    /// Sizes fixed for all runs.
    pub(crate) dims: Vec<(String, i64)>,
    /// Custom operators of the program.
    pub(crate) operators: Arc<CustomOperators>,
}

/// Program with kernels for its steps.
#[derive(Default)]
pub(crate) struct Body {
    /// Values that exist during a run, by slot.
    pub(crate) slots: Vec<SlotInfo>,
    pub(crate) steps: Vec<Step>,
    /// Slot of each graph input; `None` without a reader.
    pub(crate) inputs: Vec<Option<Slot>>,
    /// Slots of the graph outputs, then of values kept for the commit. An output that the commit
    /// computes has its old value here.
    pub(crate) outputs: Vec<Slot>,
    /// Number of entries of `outputs` that are kept for the commit.
    pub(crate) kept: usize,
    /// Commit program of the main graph.
    pub(crate) commit: Option<Box<Commit>>,
    /// Graph of the model that the program was made from; `None` for the main one.
    pub(crate) graph: Option<GraphId>,
}

/// [Commit program](crate::program::Commit) with kernels for its steps. Captures have the first
/// slots, new values follow.
pub(crate) struct Commit {
    pub(crate) body: Body,
    pub(crate) captures: Vec<Capture>,
    /// Indices of the graph outputs that the program computes. The capture at the same position is
    /// the old value.
    pub(crate) outputs: Vec<usize>,
}

/// Value that a commit program reads.
pub(crate) struct Capture {
    /// Index of the value among the main program's outputs.
    pub(crate) output: usize,
    pub(crate) elem: DataType,
    pub(crate) dims: Dims,
}

/// Value that may exist during a run.
pub(crate) struct SlotInfo {
    pub(crate) value: ValueId,
    pub(crate) constant: Option<Box<Tensor>>,
    /// Type and dimensions of a constant that is not materialized, because the session is only
    /// inspected.
    pub(crate) outline: Option<Box<(DataType, Dims)>>,
    /// Order of the elements where a plan gives the value memory of its own.
    pub(crate) order: Order,
}

impl SlotInfo {
    /// Returns type and dimensions of a constant.
    pub(crate) fn constant_type(&self) -> Option<(DataType, Dims)> {
        match &self.constant {
            Some(tensor) => Some((tensor.data_type(), tensor.dims().into())),
            None => self.outline.as_deref().cloned(),
        }
    }

    /// Whether the value is known before a run.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant.is_some() || self.outline.is_some()
    }
}

/// Code of a step.
pub(crate) enum Work {
    Kernel(Box<dyn Kernel>),
    Region(Box<Region>),
}

/// Inner graphs, compiled.
pub(crate) struct Region {
    pub(crate) kind: RegionKind,
    pub(crate) bodies: Vec<Body>,
    /// Compiled iterations whose carried values fit in registers.
    pub(crate) scalars: Option<Box<ScalarIterations>>,
}

/// Kernel or region with its operands. Rare fields are behind pointers, as models have many steps.
pub(crate) struct Step {
    /// Number among all steps of the model. Steps of inner graphs follow the step that contains
    /// them.
    pub(crate) number: usize,
    pub(crate) work: Work,
    pub(crate) rules: MemoryRules,
    /// Arrangement of the outputs within the first input, if strides can express it.
    pub(crate) movement: Option<Box<MoveKind>>,
    /// Slot of each input; `None` for an operand that is omitted or packed.
    pub(crate) inputs: SmallVec<[Option<Slot>; 6]>,
    /// Positions and slots of operands that the kernel has packed.
    pub(crate) packed: Box<[(usize, Slot)]>,
    pub(crate) outputs: SmallVec<[Option<Slot>; 2]>,
    /// Nodes that the step computes: the one that it was made from, then those fused into it.
    pub(crate) origins: SmallVec<[NodeId; 1]>,
}

impl Step {
    /// Returns the inner graphs.
    pub(crate) fn region(&self) -> Option<&Region> {
        match &self.work {
            Work::Region(region) => Some(region),
            Work::Kernel(_) => None,
        }
    }

    /// Returns the instructions of a step that computes scalar functions.
    pub(crate) fn scalars(&self) -> Option<&ScalarCode> {
        match &self.work {
            Work::Kernel(kernel) => kernel.scalars(),
            Work::Region(_) => None,
        }
    }

    /// Returns the programs of inner graphs.
    pub(crate) fn bodies(&self) -> &[Body] {
        self.region().map_or(&[], |region| &region.bodies)
    }

    /// Describes the code for profiles and `explain`.
    pub(crate) fn describe(&self) -> String {
        match &self.work {
            Work::Kernel(kernel) => kernel.describe(),
            Work::Region(region) => match &region.kind {
                RegionKind::If { .. } => "one of two".to_string(),
                RegionKind::Loop { .. } if region.scalars.is_some() => {
                    "iterations in registers".to_string()
                }
                RegionKind::Loop { .. } | RegionKind::Scan { .. } => {
                    "iterations of a graph".to_string()
                }
            },
        }
    }
}

impl Body {
    /// Returns the number of outputs of the graph, without those kept for the commit.
    pub(crate) fn graph_outputs(&self) -> usize {
        self.outputs.len() - self.kept
    }

    /// Returns the indices of outputs that the commit program computes.
    pub(crate) fn committed_outputs(&self) -> &[usize] {
        self.commit.as_ref().map_or(&[], |commit| &commit.outputs)
    }

    /// Yields the program, then its commit program.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = &Body> {
        std::iter::once(self).chain(self.commit.as_ref().map(|commit| &commit.body))
    }

    /// Numbers the steps.
    pub(crate) fn number(&mut self, next: &mut usize) {
        for step in &mut self.steps {
            step.number = *next;
            *next += 1;
            if let Work::Region(region) = &mut step.work {
                region.bodies.iter_mut().for_each(|body| body.number(next));
            }
        }
        if let Some(commit) = &mut self.commit {
            commit.body.number(next);
        }
    }

    /// Returns all steps by number, inner graphs included.
    pub(crate) fn all_steps(&self) -> Vec<&Step> {
        let mut all = Vec::with_capacity(self.steps.len());
        let mut open: Vec<&Step> = self.parts().rev().flat_map(|b| b.steps.iter().rev()).collect();
        while let Some(step) = open.pop() {
            all.push(step);
            open.extend(step.bodies().iter().flat_map(|body| &body.steps).rev());
        }
        all
    }
}

impl Executable {
    /// Describes the nodes of a step for a message.
    pub(crate) fn label(&self, nodes: &[NodeId]) -> String {
        let Some((first, others)) = nodes.split_first() else {
            return String::new();
        };
        place(&self.resolved.path_of(*first), &operators(&self.resolved, others))
    }
}
