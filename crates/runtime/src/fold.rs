//! Constant folding: decides which nodes are computed ahead of time.
//!
//! Decides by sizes, before anything is computed. Small values are computed at once. Large ones are
//! [materialized](crate::make) when they are packed or kept, one after the other, and dropped after
//! their last reader.

#[cfg(test)]
mod tests;

use sardonyx_kernels::Pool;
use sardonyx_model::{NodeAttributes, NodeId, ValueId};
use sardonyx_ops::operators::{DEQUANTIZE_LINEAR, GATHER, GEMM, MATMUL, MATMUL_INTEGER, TRANSPOSE};
use sardonyx_ops::{AttrValue, Attributes, Determinism, Known, OpDef};
use sardonyx_passes::{Inference, Resolved};
use sardonyx_tensor::{DataType, Tensor, shape};
use smallvec::SmallVec;

use crate::account::Account;
use crate::constants::{Constants, Outline, Recipe, SMALL};
use crate::error::{BindError, CompileError};
use crate::lower::Lowering;
use crate::make::{Alone, Maker};
use crate::sizes::elem_and_dims;

/// Choice: elements from which on a transposed constant is packed by its readers instead of folded.
const WORTH_PACKING: usize = 1 << 14;
/// Choice: bytes of an input from which on folding is deferred, as the input may have to be copied.
const LARGE_INPUT: usize = 1 << 20;

impl Constants {
    /// Decides which nodes that depend only on constants are computed ahead of time, and computes
    /// those of small values. Skips nodes whose outputs inference knows. Returns the remaining
    /// nodes; all of them unless `all`.
    pub(crate) fn fold(
        &mut self,
        resolved: &Resolved,
        inference: &Inference,
        lowering: &Lowering<'_>,
        pool: &Pool,
        all: bool,
    ) -> Result<Vec<NodeId>, CompileError> {
        let model = resolved.model();
        let looking = lowering.weights.for_inspection();
        let looking = Lowering { weights: &looking, ..*lowering };
        let mut remaining = Vec::new();
        let mut all_stored = self.all_stored_bytes();
        self.limit_growth(all_stored);
        let graphs = resolved.graphs().iter();
        for node in graphs.flat_map(|graph| resolved.order_of(*graph)) {
            let outputs: SmallVec<[Option<ValueId>; 2]> =
                model.outputs(*node).iter().copied().collect();
            let known: Option<Vec<(ValueId, Tensor)>> = outputs
                .iter()
                .flatten()
                .map(|value| Some((*value, inference.known(*value).and_then(Known::to_tensor)?)))
                .collect();
            if let Some(known) = known {
                for (value, tensor) in known {
                    // A node without inputs stores the value itself.
                    let stored = match model.inputs(*node).len() {
                        0 => tensor.held_bytes(),
                        _ => 0,
                    };
                    all_stored = all_stored.saturating_add(stored);
                    self.raise_growth(stored);
                    self.insert(value, tensor, stored);
                }
                continue;
            }
            let mut inputs: SmallVec<[ValueId; 6]> = model.inputs(*node).flatten().collect();
            if !inputs.iter().all(|value| self.contains(*value)) {
                remaining.push(*node);
                continue;
            }
            // Constants are tensors; a sequence of constants is built in each run.
            let has_others = outputs.iter().flatten().any(|value| is_no_tensor(inference, *value));
            if has_others || is_left_to_products(self, resolved, *node) {
                remaining.push(*node);
                continue;
            }
            let schema = resolved.schema(*node);
            if !schema.is_some_and(|schema| schema.determinism == Determinism::Deterministic) {
                remaining.push(*node);
                continue;
            }
            // Nodes that cannot be bound are reported later, all together.
            let alone = match Alone::new(&looking, *node, self) {
                Ok(alone) if all => alone,
                Ok(_) | Err(BindError::Unsupported(_) | BindError::Invalid(_)) => {
                    remaining.push(*node);
                    continue;
                }
            };
            let first = inputs.first().and_then(|value| self.one_element(*value));
            let fill = alone.op.fill(first).cloned();
            inputs.sort_unstable();
            inputs.dedup();
            let stored = self.stored_bytes(&inputs).min(all_stored);
            let folds = match sizes_of(inference, &outputs) {
                Some(made) => {
                    let inputs = &inputs[..];
                    let candidate = Candidate { node: *node, inputs, made, fill, stored };
                    self.fold_sized(&looking, &alone, candidate)
                }
                // The size of the value is known, and charged, once it is computed.
                None => {
                    if inputs.iter().all(|value| self.get(*value).is_some()) {
                        Folds::Now
                    } else {
                        Folds::Not
                    }
                }
            };
            match folds {
                Folds::Not => remaining.push(*node),
                Folds::Later => {}
                Folds::Now => {
                    // Small values are kept.
                    let maker = Maker { lowering, pool, memory: None };
                    let account = maker.account();
                    let room = self.room_for(stored).min(account.left());
                    let local = Account::new(Some(room), 0);
                    let made = match maker.run_once(self, *node, &local) {
                        // A run may never enter an inner graph, so its error is reported then.
                        Err(_) if model.node(*node).graph != resolved.main() => None,
                        made => made?,
                    };
                    let Some(values) = made else {
                        remaining.push(*node);
                        continue;
                    };
                    let bytes = values.iter().flatten().map(Tensor::held_bytes).sum();
                    if account.charge(bytes).is_err() || !self.draw(bytes, stored) {
                        remaining.push(*node);
                        continue;
                    }
                    for (value, tensor) in outputs.iter().zip(values) {
                        if let (Some(value), Some(tensor)) = (value, tensor) {
                            self.insert(*value, tensor, stored);
                        }
                    }
                }
            }
        }
        Ok(remaining)
    }

    /// Decides whether to fold a node whose outputs have known sizes.
    fn fold_sized(
        &mut self,
        lowering: &Lowering<'_>,
        alone: &Alone,
        candidate: Candidate<'_>,
    ) -> Folds {
        let Candidate { node, inputs, made, fill, stored } = candidate;
        let account = lowering.weights.account;
        let Some(bytes) = made.iter().try_fold(0usize, |sum, (_, ty)| sum.checked_add(ty.bytes))
        else {
            return Folds::Not;
        };
        if let (Some(one), [(value, outline)]) = (fill, &made[..])
            && bytes > SMALL
            && let Ok(one) = one.reshape([])
        {
            let (data_type, dims) = (outline.data_type, outline.dims.clone());
            self.defer(*value, Outline { data_type, dims, bytes }, Recipe::Fill(one), false);
            return Folds::Not;
        }
        // Fills among the inputs are materialized temporarily.
        let fills = inputs.iter().filter(|value| self.is_fill(**value));
        let fills = fills.fold(0usize, |sum, value| sum.saturating_add(self.bytes_of(*value)));
        let room = account.left();
        if fills > self.others_left() || bytes.saturating_add(fills) > room {
            return Folds::Not;
        }
        let waits = |(position, value): (usize, &ValueId)| {
            let is_large = self.bytes_of(*value) > LARGE_INPUT;
            self.get(*value).is_none() || is_large && !alone.reads_unaligned(position)
        };
        let model = lowering.resolved.model();
        let mut given = model.inputs(node).enumerate();
        let waits = given.any(|(at, value)| value.is_some_and(|value| waits((at, &value))));
        if bytes <= SMALL && !waits {
            return Folds::Now;
        }
        if !self.draw(bytes, stored) || account.charge(bytes).is_err() {
            return Folds::Not;
        }
        for (value, outline) in made {
            self.set_stored(value, stored);
            self.defer(value, outline, Recipe::Run(node), true);
        }
        Folds::Later
    }
}

/// Whether a node transposes or dequantizes a large constant matrix that only products read: a
/// rewrite lets them pack the matrix itself.
fn is_left_to_products(constants: &Constants, resolved: &Resolved, node: NodeId) -> bool {
    let model = resolved.model();
    let is =
        |node: NodeId, operator: &OpDef| resolved.op(node).is_some_and(|op| op.def.is(operator));
    if is(node, &DEQUANTIZE_LINEAR) {
        return is_left_in_few_bits(constants, resolved, node);
    }
    let source = model.inputs(node).next().flatten();
    let Some((data_type, dims)) = source.and_then(|source| constants.outline(source)) else {
        return false;
    };
    let Some(output) = model.outputs(node).first().copied().flatten() else {
        return false;
    };
    let product = match data_type {
        DataType::Float => &MATMUL,
        DataType::Int8 | DataType::Uint8 => &MATMUL_INTEGER,
        _ => return false,
    };
    is(node, &TRANSPOSE)
        && dims.len() == 2
        && dims.iter().product::<usize>() >= WORTH_PACKING
        && !source.is_some_and(|source| constants.is_fill(source))
        && NodeAttributes::new(model, node)
            .attribute("perm")
            .is_none_or(|perm| matches!(perm, AttrValue::Ints(perm) if *perm == [1, 0]))
        && !model.value(output).is_output
        && model.uses(output).all(|(reader, position)| position == 1 && is(reader, product))
}

/// Whether a node dequantizes a large matrix of few bits that only products of floats and look-ups
/// of rows read.
fn is_left_in_few_bits(constants: &Constants, resolved: &Resolved, node: NodeId) -> bool {
    let model = resolved.model();
    let inputs: SmallVec<[ValueId; 3]> = model.inputs(node).flatten().collect();
    let outline = |value: &ValueId| constants.outline(*value);
    let Some((data_type, dims)) = inputs.first().and_then(outline) else { return false };
    let is_code = matches!(
        data_type,
        DataType::Int8
            | DataType::Uint8
            | DataType::Int4
            | DataType::Uint4
            | DataType::Int2
            | DataType::Uint2
    );
    let Some(output) = model.outputs(node).first().copied().flatten() else { return false };
    let &[rows, columns] = dims else { return false };
    let int = |node: NodeId, name: &str, default: i64| match NodeAttributes::new(model, node)
        .attribute(name)
    {
        Some(AttrValue::Int(value)) => value,
        _ => default,
    };
    let (axis, block) = (int(node, "axis", 1), int(node, "block_size", 0));
    let scales = inputs.get(1).and_then(outline).map(|(_, dims)| dims.iter().product::<usize>());
    // Scales of columns, or of blocks of rows, as the rewrite takes them.
    let fits = |depth_axis: i64| match block {
        _ if scales == Some(1) => true,
        0 => axis.rem_euclid(2) != depth_axis,
        8.. => axis.rem_euclid(2) == depth_axis,
        _ => false,
    };
    let are_readers = model.uses(output).all(|(reader, position)| {
        let Some(operator) = resolved.op(reader) else { return false };
        if operator.def.is(&GATHER) {
            return position == 0 && fits(1) && matches!(int(reader, "axis", 0), 0 | -2);
        }
        if position != 1 || operator.def.is(&MATMUL) {
            return position == 1 && fits(0);
        }
        let transposed = int(reader, "transB", 0) != 0;
        let cols = if transposed { rows } else { columns };
        let one = |name: &str| match NodeAttributes::new(model, reader).attribute(name) {
            Some(AttrValue::Float(value)) => value == 1.0,
            _ => true,
        };
        let is_row = |value: ValueId| {
            let c = constants.outline(value);
            c.is_some_and(|(_, dims)| {
                dims.last() == Some(&cols) && dims.iter().product::<usize>() == cols
            })
        };
        operator.def.is(&GEMM)
            && int(reader, "transA", 0) == 0
            && one("alpha")
            && one("beta")
            && model.inputs(reader).nth(2).flatten().is_none_or(is_row)
            && fits(i64::from(transposed))
    });
    is_code
        && dims.iter().product::<usize>() >= WORTH_PACKING
        && !inputs.iter().any(|input| constants.is_fill(*input))
        && !model.value(output).is_output
        && are_readers
}

/// Node whose outputs have known sizes.
struct Candidate<'a> {
    node: NodeId,
    inputs: &'a [ValueId],
    made: OutputOutlines,
    /// Value that all elements of the output have, if known.
    fill: Option<Tensor>,
    /// Bytes in the file that the outputs are computed from.
    stored: usize,
}

/// Time at which a node is computed.
enum Folds {
    Not,
    Now,
    Later,
}

/// Whether a value is known to be something else than a tensor.
fn is_no_tensor(inference: &Inference, value: ValueId) -> bool {
    inference.ty(value).is_some_and(|ty| ty.as_tensor().is_none())
}

/// Outputs with known sizes.
type OutputOutlines = SmallVec<[(ValueId, Outline); 2]>;

/// Returns the outputs of a node, if all are tensors of known sizes.
fn sizes_of(inference: &Inference, outputs: &[Option<ValueId>]) -> Option<OutputOutlines> {
    let outputs = outputs.iter().flatten();
    outputs
        .map(|value| {
            let (data_type, dims) = elem_and_dims(inference.ty(*value)?)?;
            let elems = shape::elems(&dims).ok()?;
            let outline = Outline { bytes: data_type.storage_bytes(elems)?, data_type, dims };
            Some((*value, outline))
        })
        .collect()
}
