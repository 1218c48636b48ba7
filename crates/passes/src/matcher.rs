//! Looks at the nodes around an anchor, for patterns and rules that replace several nodes by
//! others.

use sardonyx_model::{
    AttrValue, Attributes, Dim, GraphId, Model, NodeAttributes, NodeId, Producer, Shape, ValueId,
};
use sardonyx_ops::OpDef;
use sardonyx_tensor::{DataType, Tensor};

use crate::infer::Inference;
use crate::resolve::Resolved;

/// Result of a pattern at a node.
pub(crate) enum Match {
    /// Nothing: the node is something else.
    No,
    /// It would be this, but for the reason given.
    Nearly(String),
    /// It is this.
    Yes(Rewrite),
}

/// Gives up a match without or with a reason.
macro_rules! give_up {
    () => {
        return $crate::matcher::Match::No
    };
    ($($why:tt)+) => {
        return $crate::matcher::Match::Nearly(format!($($why)+))
    };
}
pub(crate) use give_up;

/// Nodes or values in the place of an anchor.
#[derive(Default)]
pub(crate) struct Rewrite {
    /// Nodes to be made, in order; the last one takes the place of the anchor.
    pub(crate) steps: Vec<Step>,
    /// The nodes that the anchor stands for, itself excluded.
    pub(crate) fused: Vec<NodeId>,
    /// Value that equals the first output of the anchor once the edits are made; no node is made
    /// then.
    pub(crate) value: Option<ValueId>,
    /// Inputs of other nodes that change. Nothing but the anchor depends on these nodes.
    pub(crate) edits: Vec<InputEdit>,
}

/// Change of one input of a node.
pub(crate) struct InputEdit {
    pub(crate) node: NodeId,
    pub(crate) index: usize,
    pub(crate) source: Source,
}

/// One new node.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) op: &'static OpDef,
    pub(crate) inputs: Vec<Source>,
    pub(crate) attributes: Vec<(&'static str, AttrValue<'static>)>,
}

/// Input of a new node.
#[derive(Clone)]
pub(crate) enum Source {
    Value(ValueId),
    /// The output of the step of that number.
    Step(usize),
    /// A constant.
    Constant(Tensor),
    Absent,
}

impl Source {
    /// Makes a constant vector of integers.
    pub(crate) fn ints(numbers: Vec<i64>) -> Option<Source> {
        Tensor::from_vec([numbers.len()], numbers).ok().map(Source::Constant)
    }
}

impl Rewrite {
    /// Replaces the first output of the anchor by a value that equals it.
    pub(crate) fn with_value(value: ValueId, fused: Vec<NodeId>) -> Rewrite {
        Rewrite { value: Some(value), fused, ..Rewrite::default() }
    }

    pub(crate) fn fusing(fused: Vec<NodeId>) -> Rewrite {
        Rewrite { fused, ..Rewrite::default() }
    }

    /// Adds a step and returns the source by which others read it.
    pub(crate) fn step(
        &mut self,
        op: &'static OpDef,
        inputs: Vec<Source>,
        attributes: Vec<(&'static str, AttrValue<'static>)>,
    ) -> Source {
        self.steps.push(Step { op, inputs, attributes });
        Source::Step(self.steps.len() - 1)
    }
}

/// Surroundings of a node, for patterns and rules.
pub(crate) struct Matcher<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) model: &'a Model,
    /// The graph of the anchor, in which all nodes of a pattern stand: others run less often.
    pub(crate) graph: GraphId,
    pub(crate) inference: &'a Inference,
    pub(crate) is_constant: &'a dyn Fn(ValueId) -> bool,
    pub(crate) constant: &'a dyn Fn(ValueId) -> Option<Tensor>,
    /// Version of `ai.onnx` in whose forms nodes are and are made; `None` for the newest forms.
    pub(crate) opset: Option<u32>,
}

impl<'a> Matcher<'a> {
    /// Whether a node calls that operator.
    pub(crate) fn is(&self, node: NodeId, op: &OpDef) -> bool {
        self.resolved.is(node, op)
    }

    /// Returns the node that computes a value, unless it is known.
    pub(crate) fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.model.value(value).producer {
            Producer::Node(node, 0)
                if self.model.node(node).graph == self.graph && !(self.is_constant)(value) =>
            {
                Some(node)
            }
            _ => None,
        }
    }

    /// Returns the node of an operator that computes a value.
    pub(crate) fn made_by(&self, value: ValueId, op: &OpDef) -> Option<NodeId> {
        self.producer(value).filter(|node| self.is(*node, op))
    }

    pub(crate) fn input(&self, node: NodeId, index: usize) -> Option<ValueId> {
        self.model.inputs(node).nth(index).flatten()
    }

    /// Returns the two inputs of a node with two inputs.
    pub(crate) fn pair(&self, node: NodeId) -> Option<(ValueId, ValueId)> {
        let mut inputs = self.model.inputs(node);
        match (inputs.next(), inputs.next(), inputs.next()) {
            (Some(Some(a)), Some(Some(b)), None) => Some((a, b)),
            _ => None,
        }
    }

    /// Iterates over the orders of the inputs of a node with two inputs.
    pub(crate) fn either_way(&self, node: NodeId) -> impl Iterator<Item = (ValueId, ValueId)> {
        self.pair(node).into_iter().flat_map(|(a, b)| [(a, b), (b, a)])
    }

    pub(crate) fn output(&self, node: NodeId) -> Option<ValueId> {
        self.model.outputs(node).first().copied().flatten()
    }

    pub(crate) fn constant(&self, value: ValueId) -> Option<Tensor> {
        (self.constant)(value)
    }

    /// Returns the element of a constant with one element.
    pub(crate) fn scalar(&self, value: ValueId) -> Option<f64> {
        let tensor = self.constant(value).filter(|tensor| tensor.len() == 1)?;
        match tensor.data_type() {
            DataType::Float => tensor.to_vec::<f32>().ok()?.first().map(|x| f64::from(*x)),
            DataType::Double => tensor.to_vec::<f64>().ok()?.first().copied(),
            _ => None,
        }
    }

    /// Whether a value is a constant that stands for a number: exactly, or rounded to a few digits
    /// as exporters do.
    pub(crate) fn is_number(&self, value: ValueId, number: f64) -> bool {
        self.scalar(value).is_some_and(|found| (found - number).abs() <= 2e-6 * number.abs())
    }

    /// Whether a value is a constant that stands for a whole exponent, which may be of another type
    /// than what it is the exponent of.
    pub(crate) fn is_power(&self, value: ValueId, exponent: i64) -> bool {
        self.is_number(value, exponent as f64)
            || self.constant(value).filter(|tensor| tensor.len() == 1).is_some_and(|tensor| {
                match tensor.data_type() {
                    DataType::Int64 => tensor.item::<i64>() == Ok(exponent),
                    DataType::Int32 => tensor.item::<i32>().map(i64::from) == Ok(exponent),
                    _ => false,
                }
            })
    }

    /// Returns the elements of a constant list of integers.
    pub(crate) fn ints(&self, value: ValueId) -> Option<Vec<i64>> {
        self.constant(value)?.to_vec::<i64>().ok()
    }

    /// Returns integers that older forms of an operator have as the attribute `name`, newer ones as
    /// the input `index`; `None` if they are unknown or absent.
    pub(crate) fn list(&self, node: NodeId, name: &str, index: usize) -> Option<Vec<i64>> {
        match self.input(node, index) {
            Some(value) => self.ints(value),
            None => self.int_list(node, name),
        }
    }

    /// Whether a node has integers as the attribute `name` or as the input `index`.
    pub(crate) fn has_list(&self, node: NodeId, name: &str, index: usize) -> bool {
        self.input(node, index).is_some()
            || NodeAttributes::new(self.model, node).attribute(name).is_some()
    }

    /// Returns the order of axes of a `Transpose`.
    pub(crate) fn permutation(&self, node: NodeId) -> Option<Vec<i64>> {
        if let Some(perm) = self.int_list(node, "perm") {
            return Some(perm);
        }
        if NodeAttributes::new(self.model, node).attribute("perm").is_some() {
            return None;
        }
        let rank = self.rank(self.input(node, 0)?)? as i64;
        Some((0..rank).rev().collect())
    }

    /// Whether nodes of an operator can be made.
    pub(crate) fn has_op(&self, op: &OpDef) -> bool {
        self.opset.is_none_or(|opset| op.version_at(opset).is_some())
    }

    /// Whether nodes are made in the form that an operator has from version `opset` on.
    pub(crate) fn is_from(&self, opset: u32) -> bool {
        self.opset.is_none_or(|found| found >= opset)
    }

    pub(crate) fn int(&self, node: NodeId, name: &str) -> Option<i64> {
        NodeAttributes::new(self.model, node).int(name)
    }

    pub(crate) fn float(&self, node: NodeId, name: &str) -> Option<f32> {
        NodeAttributes::new(self.model, node).float(name)
    }

    pub(crate) fn int_list(&self, node: NodeId, name: &str) -> Option<Vec<i64>> {
        NodeAttributes::new(self.model, node).ints(name)
    }

    pub(crate) fn shape(&self, value: ValueId) -> Option<&'a Shape> {
        self.inference.ty(value)?.shape()
    }

    pub(crate) fn rank(&self, value: ValueId) -> Option<usize> {
        Some(self.shape(value)?.len())
    }

    /// Whether the result of a node has as many axes as `x`: constants of one element may have
    /// more.
    pub(crate) fn keeps_rank(&self, node: NodeId, x: ValueId) -> bool {
        let found = self.output(node).and_then(|value| self.rank(value));
        found.is_some() && found == self.rank(x)
    }

    /// Returns the only node that reads the result of a node.
    pub(crate) fn only_reader(&self, node: NodeId) -> Option<NodeId> {
        let value = self.output(node)?;
        let mut uses = self.model.uses(value).map(|(reader, _)| reader);
        let reader = uses.next()?;
        let alone = uses.next().is_none() && !self.model.value(value).is_output;
        alone.then_some(reader)
    }

    /// Whether two values surely have the same shape.
    pub(crate) fn same_shape(&self, a: ValueId, b: ValueId) -> bool {
        let (Some(a), Some(b)) = (self.shape(a), self.shape(b)) else {
            return false;
        };
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.surely_equals(b))
    }

    /// Returns size number `axis` from the end.
    pub(crate) fn size_from_end(&self, value: ValueId, axis: usize) -> Option<&'a Dim> {
        let shape = self.shape(value)?;
        shape.get(shape.len().checked_sub(axis)?)
    }

    pub(crate) fn elem(&self, value: ValueId) -> Option<DataType> {
        self.inference.ty(value)?.elem()
    }

    /// Whether an axis, possibly counted from the end, is the last one of a value.
    pub(crate) fn is_last_axis(&self, axis: i64, value: ValueId) -> bool {
        axis == -1 || self.rank(value).is_some_and(|rank| axis + 1 == rank as i64)
    }

    /// Whether nobody but `anchor` and the nodes themselves needs what the nodes compute: else they
    /// would be computed in addition to what is fused.
    pub(crate) fn are_inner(&self, nodes: &[NodeId], anchor: NodeId) -> bool {
        nodes.iter().all(|node| {
            self.model.outputs(*node).iter().flatten().all(|value| {
                !self.model.value(*value).is_output
                    && self
                        .model
                        .uses(*value)
                        .all(|(reader, _)| reader == anchor || nodes.contains(&reader))
            })
        })
    }

    /// Returns the operands of nested nodes of an operator with two, such as the factors of a
    /// product of several, with the inner nodes that only `anchor` needs opened: `(a * b) * c` in
    /// any order. Gives the operands and the nodes opened.
    pub(crate) fn factors(
        &self,
        anchor: NodeId,
        op: &OpDef,
    ) -> Option<(Vec<ValueId>, Vec<NodeId>)> {
        let (a, b) = self.pair(anchor)?;
        let (mut open, mut factors, mut nodes) = (vec![b, a], Vec::new(), Vec::new());
        while let Some(value) = open.pop() {
            let inner = self.made_by(value, op).filter(|_| nodes.len() < MOST_FACTORS);
            let alone = |node: &NodeId| {
                !self.model.value(value).is_output
                    && self.model.uses(value).all(|(reader, _)| {
                        reader == anchor || nodes.contains(&reader) || reader == *node
                    })
            };
            match inner.filter(alone).and_then(|node| Some((node, self.pair(node)?))) {
                Some((node, (a, b))) => {
                    nodes.push(node);
                    open.extend([b, a]);
                }
                None => factors.push(value),
            }
        }
        Some((factors, nodes))
    }
}

/// Products opened for one anchor.
const MOST_FACTORS: usize = 4;
