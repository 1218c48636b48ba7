//! Materialization of constants: nodes are lowered, bound to a kernel and run alone, before any
//! run.

use std::sync::Arc;

use sardonyx_kernels::{Exec, Pool};
use sardonyx_model::{NodeId, Producer, Type, ValueId};
use sardonyx_tensor::{Buffer, Recycler, Tensor, Value};
use smallvec::SmallVec;

use crate::account::Account;
use crate::constants::{Constants, Recipe, sort_unique};
use crate::error::{BindError, CompileError};
use crate::kernel::{Call, Operand, Selected, SiteOrders, Target};
use crate::lower::Lowering;
use crate::node_error::{NodeError, NodeInput};
use crate::program::Op;
use crate::random::Draws;

/// Context of materialization.
pub(crate) struct Maker<'a> {
    pub(crate) lowering: &'a Lowering<'a>,
    pub(crate) pool: &'a Pool,
    /// Recycler of memory for large constants, which return it once they are packed. Freed blocks
    /// would lie between packed ones, too small for the next constant of the same size after
    /// alignment.
    pub(crate) memory: Option<&'a Arc<Recycler>>,
}

impl Maker<'_> {
    pub(crate) fn account(&self) -> &Account {
        self.lowering.weights.account
    }

    /// Materializes the constants that a step may pack, except fills.
    pub(crate) fn make_for(
        &self,
        constants: &mut Constants,
        values: &[ValueId],
    ) -> Result<(), CompileError> {
        for value in sort_unique(values) {
            if !constants.is_fill(value) {
                self.make(constants, value)?;
            }
        }
        Ok(())
    }

    /// Materializes a constant and those that it is computed from.
    pub(crate) fn make(
        &self,
        constants: &mut Constants,
        value: ValueId,
    ) -> Result<(), CompileError> {
        let resolved = self.lowering.resolved;
        let model = resolved.model();
        let mut pending = vec![value];
        // Avoids recursion, as the chain of nodes may be long.
        while let Some(value) = pending.last().copied() {
            let node = match constants.recipe(value) {
                None => {
                    pending.pop();
                    continue;
                }
                Some(Recipe::Run(node)) => *node,
                Some(Recipe::Fill(_) | Recipe::Sparse(_)) => {
                    self.make_alone(constants, value)?;
                    continue;
                }
            };
            let missing = |value: &ValueId| constants.recipe(*value).is_some();
            let before = pending.len();
            pending.extend(model.inputs(node).flatten().filter(missing));
            if pending.len() > before {
                continue;
            }
            let outputs: SmallVec<[Option<ValueId>; 2]> =
                model.outputs(node).iter().copied().collect();
            let mut bytes = 0;
            for value in outputs.iter().flatten() {
                self.charge(constants, *value)?;
                bytes += constants.bytes_of(*value);
            }
            let local = self.account().with_less(bytes);
            let Some(values) = self.run_once(constants, node, &local)? else {
                let refused = local.last_refused().map(|refused| refused.to_string());
                return Err(self.failure(constants, node, refused.unwrap_or_default()));
            };
            for (value, tensor) in outputs.iter().zip(values) {
                if let (Some(value), Some(tensor)) = (value, tensor) {
                    constants.insert_materialized(*value, tensor);
                }
            }
            if constants.get(value).is_none() {
                return Err(self.failure(
                    constants,
                    node,
                    "the result is not a tensor".to_string(),
                ));
            }
            let inputs: SmallVec<[ValueId; 6]> = model.inputs(node).flatten().collect();
            // The value was copied, for example a slice of a large constant, and its file pages are
            // not read again.
            let read = inputs.iter().filter_map(|input| constants.get(*input)?.buffer());
            read.for_each(Buffer::give_back_pages);
            constants.release(&inputs, self.account(), |_| false);
            let unwanted = outputs.iter().flatten().filter(|made| **made != value);
            for made in unwanted {
                constants.drop_unwanted(*made, self.account());
            }
        }
        Ok(())
    }

    /// Materializes a constant that no node computes.
    fn make_alone(&self, constants: &mut Constants, value: ValueId) -> Result<(), CompileError> {
        self.charge(constants, value)?;
        let (Some(how), Some((_, dims))) = (constants.recipe(value), constants.outline(value))
        else {
            return Ok(());
        };
        let made = match how {
            Recipe::Run(_) => return Ok(()),
            Recipe::Fill(one) => {
                one.view().broadcast_to(dims).and_then(|repeated| repeated.to_tensor())
            }
            Recipe::Sparse(sparse) => sparse.to_dense(),
        };
        let made = made.map_err(|error| CompileError::Resources(error.to_string()))?;
        constants.insert_materialized(value, made);
        Ok(())
    }

    /// Charges a constant that is about to be materialized.
    fn charge(&self, constants: &mut Constants, value: ValueId) -> Result<(), CompileError> {
        let model = self.lowering.resolved.model();
        let charged = constants.charge(value, self.account());
        charged.map_err(|refused| match model.value(value).producer {
            Producer::Node(node, _) => self.failure(constants, node, refused.to_string()),
            _ => CompileError::Resources(refused.to_string()),
        })
    }

    /// Runs a node with materialized inputs, charging `account`; `None` if the charge is refused or
    /// an output is not a tensor.
    pub(crate) fn run_once(
        &self,
        constants: &Constants,
        node: NodeId,
        account: &Account,
    ) -> Result<Option<Vec<Option<Tensor>>>, CompileError> {
        let model = self.lowering.resolved.model();
        let failed = |what: String| self.failure(constants, node, what);
        let alone = match Alone::new(self.lowering, node, constants) {
            Ok(alone) => alone,
            Err(BindError::Unsupported(why) | BindError::Invalid(why)) => return Err(failed(why)),
        };
        let inputs: Vec<Option<Tensor>> = model
            .inputs(node)
            .enumerate()
            .map(|(position, value)| {
                let tensor = value.and_then(|value| constants.get(value));
                tensor
                    .map(|tensor| {
                        if alone.reads_unaligned(position) {
                            Ok(tensor.clone())
                        } else {
                            tensor.aligned()
                        }
                    })
                    .transpose()
            })
            .collect::<Result<_, _>>()
            .map_err(|error| failed(error.to_string()))?;
        let operands = alone.op.operands();
        let operands = operands.iter().map(|slot| {
            let tensor = slot.and_then(|slot| inputs[slot.index()].as_ref());
            tensor.map_or(Operand::Absent, |tensor| Operand::Tensor(tensor.view()))
        });
        let targets = model.outputs(node).iter().map(|output| match output {
            Some(_) => Target::Owned(None),
            None => Target::Absent,
        });
        let exec = Exec::new(self.pool, self.lowering.isa);
        let mut call = Call {
            operands: operands.collect(),
            targets: targets.collect(),
            over: None,
            exec: &exec,
            random: Draws::default(),
            memory: self.memory,
            account,
        };
        match alone.selected.kernel.run(&mut call) {
            Ok(()) => {}
            Err(_) if account.last_refused().is_some() => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        }
        let made = call.targets.into_iter().map(|target| match target {
            Target::Owned(Some(Value::Tensor(tensor))) => Some(Some(tensor)),
            Target::Owned(Some(_)) => None,
            Target::Owned(None) | Target::Absent | Target::Planned { .. } => Some(None),
        });
        Ok(made.collect())
    }

    /// Makes the error of a node that fails to compute a constant.
    fn failure(&self, constants: &Constants, node: NodeId, what: String) -> CompileError {
        let resolved = self.lowering.resolved;
        let inputs = resolved.model().inputs(node).map(|value| {
            let (name, outline) = (resolved.name_of(value?), constants.outline(value?));
            let ty = outline.map(|(elem, dims)| Type::tensor(elem, dims.iter().copied()));
            Some(NodeInput { name, ty })
        });
        let mut error = NodeError::new(resolved, &[node], inputs.collect(), what);
        error.is_constant = true;
        CompileError::Node(Box::new(error))
    }
}

/// Node outside of a program: its operation, with input positions as slots, and its kernel.
pub(crate) struct Alone {
    pub(crate) op: Op,
    selected: Selected,
}

impl Alone {
    pub(crate) fn new(
        lowering: &Lowering<'_>,
        node: NodeId,
        constants: &Constants,
    ) -> Result<Alone, BindError> {
        let inputs = lowering.read_alone(node);
        let op = lowering.operation(node, inputs.clone(), constants)?;
        let operands = op.operands();
        let read = operands.iter().map(|slot| inputs[(*slot)?.index()]).collect();
        let selected = lowering.kernel_of(node, &op, (read, SiteOrders::default()), constants)?;
        Ok(Alone { op, selected })
    }

    /// Whether the kernel moves the elements of an input as bytes.
    pub(crate) fn reads_unaligned(&self, input: usize) -> bool {
        let unaligned = self.selected.kernel.memory().unaligned;
        let operands = self.op.operands().into_iter().enumerate();
        let mut readers =
            operands.filter(|(_, slot)| slot.is_some_and(|slot| slot.index() == input));
        readers.any(|(position, _)| unaligned.contains(position))
    }
}
