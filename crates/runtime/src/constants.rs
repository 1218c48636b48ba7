//! Constants: reading them, and computing ahead of time whatever depends on nothing else.

use std::collections::HashMap;

use sardonyx_kernels::{Isa, Pool};
use sardonyx_model::{ConstantError, ExternalData, Id, NodeId, Producer, ValueId};
use sardonyx_ops::{AttrValue, Attributes, Known};
use sardonyx_passes::{Inference, NodeAttributes, Resolved, place_of_node};
use sardonyx_tensor::{DataType, Tensor, Value};
use smallvec::SmallVec;

use crate::compile::Binder;
use crate::error::{CompileError, RunError};
use crate::kernel::{BindError, Call, Kernel, Operand, Target};

/// A sparse constant that stands for more elements than this, and for more than [`DENSE_RATIO`] times those it stores, is
/// a few bytes made to take all memory. Kernels want the whole tensor.
const DENSE_ELEMENTS: usize = 1 << 28;
const DENSE_RATIO: usize = 1000;
/// Elements from which on the transpose of a constant is not made.
const WORTH_PACKING: usize = 1 << 14;

/// The values that are known before anything runs.
#[derive(Default)]
pub(crate) struct Constants {
    tensors: HashMap<ValueId, Tensor>,
    /// Values that are transposes of constants and only wanted packed: what they are transposes of.
    turned: HashMap<ValueId, ValueId>,
}

impl Constants {
    /// Reads the initializers that something reads. Raw values are shared with the file, not copied.
    pub(crate) fn read(
        resolved: &Resolved,
        external: &dyn ExternalData,
    ) -> Result<Self, CompileError> {
        let mut constants = Constants::default();
        constants.read_initializers(resolved, external)?;
        let model = resolved.model();
        let graph = model.graph(resolved.main());
        for initializer in &graph.sparse_initializers {
            let Some(value) = initializer.value.filter(|value| model.is_read(*value)) else {
                continue;
            };
            if let Producer::SparseInitializer(_) = model.value(value).producer {
                let sparse = model
                    .sparse_tensor(&initializer.tensor, external)
                    .map_err(CompileError::Constant)?;
                let error = |what: String| {
                    let name = model.display(Some(model.value(value).name)).into_owned();
                    CompileError::Constant(ConstantError { name, what })
                };
                let elems = sparse.dims().iter().product::<usize>();
                let stored = sparse.values().len();
                if elems > DENSE_ELEMENTS && elems / DENSE_RATIO > stored {
                    return Err(error(format!(
                        "it stores {stored} values and stands for {elems}, which is refused"
                    )));
                }
                let tensor = sparse.to_dense().map_err(|e| error(e.to_string()))?;
                constants.tensors.insert(value, tensor);
            }
        }
        Ok(constants)
    }

    /// Reads the initializers that something reads and that are not there yet.
    pub(crate) fn read_initializers(
        &mut self,
        resolved: &Resolved,
        external: &dyn ExternalData,
    ) -> Result<(), CompileError> {
        let model = resolved.model();
        for initializer in &model.graph(resolved.main()).initializers {
            let read = |value: &ValueId| model.is_read(*value) && self.get(*value).is_none();
            let Some(value) = initializer.value.filter(read) else {
                continue;
            };
            if let Producer::Initializer(_) = model.value(value).producer {
                let tensor = model
                    .tensor(&initializer.tensor, external)
                    .map_err(CompileError::Constant)?;
                self.tensors.insert(value, tensor);
            }
        }
        Ok(())
    }

    pub(crate) fn get(&self, value: ValueId) -> Option<&Tensor> {
        self.tensors.get(&value)
    }

    /// Computes the nodes that depend on constants only, in order, until `budget` bytes are spent. Nodes whose outputs
    /// inference knows are not even run. Returns which nodes remain.
    pub(crate) fn fold(
        &mut self,
        resolved: &Resolved,
        inference: &Inference,
        binder: &Binder<'_>,
        pool: &Pool,
        mut budget: usize,
    ) -> Result<Vec<NodeId>, CompileError> {
        let model = resolved.model();
        let mut remaining = Vec::new();
        for node in resolved.order() {
            let outputs: SmallVec<[Option<ValueId>; 2]> =
                model.outputs(*node).iter().copied().collect();
            let known: Option<Vec<(ValueId, Tensor)>> = outputs
                .iter()
                .flatten()
                .map(|value| Some((*value, inference.known(*value).and_then(Known::to_tensor)?)))
                .collect();
            if let Some(known) = known {
                self.tensors.extend(known);
                continue;
            }
            if !model
                .inputs(*node)
                .flatten()
                .all(|value| self.tensors.contains_key(&value))
            {
                remaining.push(*node);
                continue;
            }
            if self.is_wanted_packed(resolved, *node) {
                let source = model.inputs(*node).next().flatten();
                let output = outputs.first().copied().flatten();
                self.turned.extend(output.zip(source));
                remaining.push(*node);
                continue;
            }
            // What cannot be bound is reported later, with everything else that cannot.
            let kernel = match binder.bind(*node, self) {
                Ok(kernel) if kernel.deterministic() => kernel,
                Ok(_) | Err(BindError::Unsupported(_) | BindError::Invalid(_)) => {
                    remaining.push(*node);
                    continue;
                }
            };
            let values = self.run_once(resolved, *node, &*kernel, pool, binder.isa)?;
            let bytes: usize = values
                .iter()
                .flatten()
                .map(|tensor| tensor.bytes().len())
                .sum();
            if bytes > budget {
                remaining.push(*node);
                continue;
            }
            budget -= bytes;
            for (value, tensor) in outputs.iter().zip(values) {
                if let (Some(value), Some(tensor)) = (value, tensor) {
                    self.tensors.insert(*value, tensor);
                }
            }
        }
        Ok(remaining)
    }

    /// Whether a node is the transpose of a large constant matrix that only products want, which pack it anyway.
    fn is_wanted_packed(&self, resolved: &Resolved, node: NodeId) -> bool {
        let model = resolved.model();
        let is = |node: NodeId, name: &str| {
            resolved
                .schema(node)
                .is_some_and(|schema| schema.domain.is_empty() && schema.name == name)
        };
        let source = model.inputs(node).next().flatten();
        let Some(matrix) = source.and_then(|source| self.get(source)) else {
            return false;
        };
        let Some(output) = model.outputs(node).first().copied().flatten() else {
            return false;
        };
        is(node, "Transpose")
            && matrix.rank() == 2
            && matrix.data_type() == DataType::Float
            && matrix.len() >= WORTH_PACKING
            && NodeAttributes::new(model, node)
                .attribute("perm")
                .is_none_or(|perm| matches!(perm, AttrValue::Ints(perm) if *perm == [1, 0]))
            && !model.value(output).is_output
            && model
                .uses(output)
                .all(|(reader, position)| position == 1 && is(reader, "MatMul"))
    }

    /// The constant that a value is the transpose of.
    pub(crate) fn turned(&self, value: ValueId) -> Option<&Tensor> {
        self.get(*self.turned.get(&value)?)
    }

    fn run_once(
        &self,
        resolved: &Resolved,
        node: NodeId,
        kernel: &dyn Kernel,
        pool: &Pool,
        isa: Isa,
    ) -> Result<Vec<Option<Tensor>>, CompileError> {
        let model = resolved.model();
        let failed = |what: String| {
            let place = place_of_node(model, node);
            CompileError::Resources(
                RunError::Node {
                    place,
                    what: format!("computing it ahead of time: {what}"),
                }
                .to_string(),
            )
        };
        let inputs: Vec<Option<Tensor>> = model
            .inputs(node)
            .map(|value| {
                value
                    .and_then(|value| self.get(value))
                    .map(Tensor::aligned)
                    .transpose()
            })
            .collect::<Result<_, _>>()
            .map_err(|error| failed(error.to_string()))?;
        let operands = inputs.iter().map(|tensor| match tensor {
            Some(tensor) => Operand::Tensor(tensor.view()),
            None => Operand::Absent,
        });
        let targets = model.outputs(node).iter().map(|output| match output {
            Some(_) => Target::Owned(None),
            None => Target::Absent,
        });
        let mut call = Call {
            operands: operands.collect(),
            targets: targets.collect(),
            over: None,
            pool,
            isa,
            memory: None,
        };
        kernel.run(&mut call).map_err(|error| failed(error.0))?;
        Ok(call
            .targets
            .into_iter()
            .map(|target| match target {
                Target::Owned(Some(Value::Tensor(tensor))) => Some(tensor),
                _ => None,
            })
            .collect())
    }

    /// Gives a constant up, once it has been taken in by all of its readers.
    pub(crate) fn take(&mut self, value: ValueId) -> Option<Tensor> {
        self.tensors.remove(&value)
    }

    /// What inference may know of constants.
    pub(crate) fn known(&self, value: ValueId) -> Option<Known> {
        self.get(value)
            .filter(|tensor| tensor.len() <= sardonyx_ops::MAX_KNOWN)
            .cloned()
            .map(Known::Tensor)
    }
}

impl std::fmt::Debug for Constants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.tensors.keys().map(|value| value.index()))
            .finish()
    }
}
