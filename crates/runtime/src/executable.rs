//! What a run walks over, before memory is planned for particular dimensions.

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
    /// Sizes that are fixed for all runs.
    pub(crate) dims: Vec<(String, i64)>,
    /// Operators that the program brings.
    pub(crate) operators: Arc<CustomOperators>,
}

/// A program with kernels for its steps.
#[derive(Default)]
pub(crate) struct Body {
    /// Values that exist while running, by slot.
    pub(crate) slots: Vec<SlotInfo>,
    pub(crate) steps: Vec<Step>,
    /// Slot of each graph input; `None` if nothing reads it.
    pub(crate) inputs: Vec<Option<Slot>>,
    /// Slot of each graph output, then values that are kept until the end of a run. In place of an
    /// output that is only computed then: its old value.
    pub(crate) outputs: Vec<Slot>,
    /// Number of outputs that are not those of the graph, but kept for the end.
    pub(crate) kept: usize,
    /// End of a run, in the program of the main graph.
    pub(crate) commit: Option<Box<Commit>>,
    /// The graph of an inner one.
    pub(crate) graph: Option<GraphId>,
}

/// A [commit program](crate::program::Commit) with kernels for its steps. A slot of a capture has
/// the number of that; those of new values follow.
pub(crate) struct Commit {
    pub(crate) body: Body,
    pub(crate) captures: Vec<Capture>,
    /// Numbers of the graph's outputs that the new values are. The old value of each is the
    /// capture at the same position.
    pub(crate) outputs: Vec<usize>,
}

/// Value that a commit program reads.
pub(crate) struct Capture {
    /// The output of the main program that it is.
    pub(crate) output: usize,
    pub(crate) elem: DataType,
    pub(crate) dims: Dims,
}

/// A value that may exist while running.
pub(crate) struct SlotInfo {
    pub(crate) value: ValueId,
    pub(crate) constant: Option<Box<Tensor>>,
    /// Type and dimensions of a constant that is not there, because the session is only looked at.
    pub(crate) outline: Option<Box<(DataType, Dims)>>,
    /// How the elements lie, where it has memory of its own in a plan.
    pub(crate) order: Order,
}

impl SlotInfo {
    /// Type and dimensions of a constant.
    pub(crate) fn fixed(&self) -> Option<(DataType, Dims)> {
        match &self.constant {
            Some(tensor) => Some((tensor.data_type(), tensor.dims().into())),
            None => self.outline.as_deref().cloned(),
        }
    }

    /// Whether it is known before anything runs.
    pub(crate) fn is_constant(&self) -> bool {
        self.constant.is_some() || self.outline.is_some()
    }
}

/// What a step runs.
pub(crate) enum Work {
    Kernel(Box<dyn Kernel>),
    Region(Box<Region>),
}

/// Inner graphs, ready to run.
pub(crate) struct Region {
    pub(crate) kind: RegionKind,
    pub(crate) bodies: Vec<Body>,
    /// If its iterations can keep what they carry in registers.
    pub(crate) scalars: Option<Box<ScalarIterations>>,
}

/// One kernel or region with what it reads and writes. Models have many, so what few have is behind
/// a pointer.
pub(crate) struct Step {
    /// Its number among all steps of the model: those of inner graphs come after the step that
    /// they are in.
    pub(crate) number: usize,
    pub(crate) work: Work,
    pub(crate) rules: MemoryRules,
    /// How the outputs lie in the first input, if strides may say it.
    pub(crate) movement: Option<Box<MoveKind>>,
    /// By position; `None` for an operand that is left out or packed.
    pub(crate) inputs: SmallVec<[Option<Slot>; 6]>,
    /// Operands that the kernel has packed, with their positions.
    pub(crate) packed: Box<[(usize, Slot)]>,
    pub(crate) outputs: SmallVec<[Option<Slot>; 2]>,
    /// The nodes that it does: the one that it was made from, then those that joined it.
    pub(crate) origins: SmallVec<[NodeId; 1]>,
}

impl Step {
    /// The inner graphs.
    pub(crate) fn region(&self) -> Option<&Region> {
        match &self.work {
            Work::Region(region) => Some(region),
            Work::Kernel(_) => None,
        }
    }

    /// Its instructions, if it is functions of scalars.
    pub(crate) fn scalars(&self) -> Option<&ScalarCode> {
        match &self.work {
            Work::Kernel(kernel) => kernel.scalars(),
            Work::Region(_) => None,
        }
    }

    /// The programs of inner graphs.
    pub(crate) fn bodies(&self) -> &[Body] {
        self.region().map_or(&[], |region| &region.bodies)
    }

    /// What runs, for profiles and `explain`.
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
    /// Returns the number of outputs of the graph.
    pub(crate) fn graph_outputs(&self) -> usize {
        self.outputs.len() - self.kept
    }

    /// Returns the outputs of the graph that are computed last, by number.
    pub(crate) fn list_committed(&self) -> &[usize] {
        self.commit.as_ref().map_or(&[], |commit| &commit.outputs)
    }

    /// Returns the program itself, then the one that runs last.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = &Body> {
        std::iter::once(self).chain(self.commit.as_ref().map(|commit| &commit.body))
    }

    /// Gives numbers to the steps.
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

    /// All steps by number, also those of inner graphs.
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
    /// Nodes that are done together, for people.
    pub(crate) fn label(&self, nodes: &[NodeId]) -> String {
        let Some((first, others)) = nodes.split_first() else {
            return String::new();
        };
        place(&self.resolved.path_of(*first), &operators(&self.resolved, others))
    }
}
