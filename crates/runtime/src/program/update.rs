//! New values of what goes from run to run, in one step.
//!
//! An optimizer makes new weights, and new moments of their gradients, of old ones: functions of
//! the elements at the same place. As one step they pass over memory once, and may write new values
//! over old ones. Registers are numbered as those of [scalars](super::scalars): first those of the
//! operands, in order, then those of constants, then one for the result of each instruction.

use sardonyx_kernels::elementwise;
use sardonyx_tensor::{DataType, Tensor};
use smallvec::SmallVec;

use super::verify::Verifier;
use super::{Instruction, ScalarFunction, Slot, same_shape};

/// Instructions over the elements at the same place of several tensors.
#[derive(Debug)]
pub(crate) struct Update {
    /// The type of all operands and results.
    pub(crate) elem: DataType,
    /// Each has the shape of the results, or one element.
    pub(crate) operands: SmallVec<[Slot; 8]>,
    /// Tensors of one element.
    pub(crate) constants: Vec<Tensor>,
    /// Functions of one type each.
    pub(crate) instructions: Vec<Instruction>,
    /// By output of the step.
    pub(crate) outputs: SmallVec<[Updated; 3]>,
}

/// A result of an [`Update`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Updated {
    pub(crate) register: u32,
    /// The operand whose place it takes after the run: an input of the graph.
    pub(crate) over: usize,
}

impl Update {
    /// The functions for kernels; `None` if they are too many at a time, or no such functions.
    pub(crate) fn functions(&self) -> Option<elementwise::Update> {
        let functions = self.instructions.iter().map(|Instruction { function, a, b }| {
            let function = match *function {
                ScalarFunction::Unary(op, _) => elementwise::Function::Unary(op),
                ScalarFunction::Binary(op, _) => elementwise::Function::Binary(op),
                ScalarFunction::Test(_) | ScalarFunction::Cast(_) => return None,
            };
            Some(elementwise::Applied { function, reads: [*a as usize, *b as usize] })
        });
        let functions: Option<Vec<elementwise::Applied>> = functions.collect();
        let results: SmallVec<[usize; 3]> =
            self.outputs.iter().map(|output| output.register as usize).collect();
        let read = self.operands.len() + self.constants.len();
        elementwise::Update::new(read, &functions?, &results)
    }
}

impl Verifier<'_> {
    /// Finds a contradiction between an update and its operands or results.
    pub(super) fn contradiction_in_update(
        &self,
        update: &Update,
        outputs: &[Option<Slot>],
    ) -> Option<String> {
        if update.functions().is_none() {
            return Some("its functions cannot be one step".to_string());
        }
        if update.outputs.len() != outputs.len() {
            let (has, wanted) = (update.outputs.len(), outputs.len());
            return Some(format!("it makes {has} values, and {wanted} are read"));
        }
        let slots = update.operands.iter().copied().chain(outputs.iter().copied().flatten());
        if let Some(other) = self.of_other_type(slots, update.elem) {
            return Some(other);
        }
        let is_one = |constant: &Tensor| constant.len() == 1 && constant.data_type() == update.elem;
        if !update.constants.iter().all(is_one) {
            return Some(format!("a constant is not one {}", update.elem));
        }
        update.outputs.iter().zip(outputs).find_map(|(output, slot)| {
            let (slot, old) = ((*slot)?, update.operands.get(output.over).copied());
            let takes_its_place = self.program.updates.iter().any(|(input, output)| {
                let input = self.program.inputs.get(*input).copied().flatten();
                input == old && self.program.outputs.get(*output) == Some(&slot)
            });
            let shape = |slot: Slot| self.program.shape(slot);
            let has_its_shape = match (old.and_then(shape), shape(slot)) {
                (Some(old), Some(new)) => same_shape(old, new),
                _ => false,
            };
            let fits = takes_its_place && has_its_shape;
            (!fits).then(|| {
                format!("{} does not take the place of operand {}", self.name(slot), output.over)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_kernels::elementwise::Unary;
    use sardonyx_model::{Id, NodeId, Type, ValueId};
    use smallvec::smallvec;

    use super::*;
    use crate::program::{Op, Order, Program, Step, Value};

    /// A state variable of two floats that becomes its negative.
    fn valid() -> Program {
        let value = |index: usize| Value {
            value: ValueId::new(index),
            ty: Some(Type::tensor(DataType::Float, [2i64])),
            constant: None,
            order: Order::Rows,
        };
        let neg = ScalarFunction::Unary(Unary::Neg, DataType::Float);
        let update = Update {
            elem: DataType::Float,
            operands: smallvec![Slot(0)],
            constants: Vec::new(),
            instructions: vec![Instruction { function: neg, a: 0, b: 0 }],
            outputs: smallvec![Updated { register: 1, over: 0 }],
        };
        Program {
            values: vec![value(0), value(1)],
            steps: vec![Step {
                op: Op::Update(Box::new(update)),
                outputs: smallvec![Some(Slot(1))],
                origins: smallvec![NodeId::new(0)],
            }],
            inputs: vec![Some(Slot(0))],
            outputs: vec![Slot(1)],
            updates: vec![(0, 0)],
            graph: None,
        }
    }

    fn update(program: &mut Program) -> &mut Update {
        match &mut program.steps[0].op {
            Op::Update(update) => update,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_contradicts_itself_is_found() {
        assert_eq!(valid().verify(), Ok(()));
        let changes: [(fn(&mut Program), &str); 6] = [
            (|p| p.updates.clear(), "%1 does not take the place of operand 0"),
            (|p| update(p).outputs[0].over = 1, "%1 does not take the place of operand 1"),
            (
                |p| p.values[1].ty = Some(Type::tensor(DataType::Float, [3i64])),
                "%1 does not take the place of operand 0",
            ),
            (|p| update(p).instructions[0].a = 1, "its functions cannot be one step"),
            (
                |p| update(p).constants.push(Tensor::scalar(1f64)),
                "its functions cannot be one step",
            ),
            (|p| update(p).elem = DataType::Double, "%0 is not of type double"),
        ];
        for (change, expected) in changes {
            let mut program = valid();
            change(&mut program);
            let broken = program.verify().map_err(|broken| broken.what);
            assert_eq!(broken, Err(expected.to_string()));
        }
        let mut program = valid();
        update(&mut program).constants.push(Tensor::scalar(1f64));
        update(&mut program).outputs[0].register = 2;
        let broken = program.verify().map_err(|broken| broken.what);
        assert_eq!(broken, Err("a constant is not one float".to_string()));
    }
}
