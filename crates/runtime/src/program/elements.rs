//! Functions of the elements at one position of several tensors, in one step.
//!
//! An optimizer computes new weights and moments of their gradients from old ones. As one step
//! these functions pass over memory once, and may overwrite old values. Registers are numbered like
//! those of [scalars](super::scalars): operands in order, then constants, then one for the result
//! of each instruction.

use sardonyx_kernels::elementwise;
use sardonyx_tensor::{DataType, Tensor};
use smallvec::SmallVec;

use super::verify::Verifier;
use super::{Instruction, ScalarFunction, Slot, same_shape};

/// Instructions over the elements at one position of several tensors.
#[derive(Debug)]
pub(crate) struct Elements {
    /// Type of all operands and results.
    pub(crate) elem: DataType,
    /// First the old value of each result, in order and of its shape; the others have that shape,
    /// or one element.
    pub(crate) operands: SmallVec<[Slot; 8]>,
    /// Tensors of one element.
    pub(crate) constants: Vec<Tensor>,
    /// Functions of one type each.
    pub(crate) instructions: Vec<Instruction>,
    /// Register of each output of the step.
    pub(crate) results: SmallVec<[u32; 3]>,
}

impl Elements {
    /// Returns the functions for kernels; `None` if they are too many, or a kernel does not have
    /// one.
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
            self.results.iter().map(|register| *register as usize).collect();
        let read = self.operands.len() + self.constants.len();
        elementwise::Update::new(read, &functions?, &results)
    }
}

impl Verifier<'_> {
    /// Finds a contradiction between functions of elements and their operands or results.
    pub(super) fn contradiction_in_elements(
        &self,
        elements: &Elements,
        outputs: &[Option<Slot>],
    ) -> Option<String> {
        if elements.functions().is_none() {
            return Some("its functions cannot be one step".to_string());
        }
        if elements.results.len() != outputs.len() {
            let (has, wanted) = (elements.results.len(), outputs.len());
            return Some(format!("it makes {has} values, and {wanted} are read"));
        }
        let slots = elements.operands.iter().copied().chain(outputs.iter().copied().flatten());
        if let Some(other) = self.find_other_type(slots, elements.elem) {
            return Some(other);
        }
        let is_one =
            |constant: &Tensor| constant.len() == 1 && constant.data_type() == elements.elem;
        if !elements.constants.iter().all(is_one) {
            return Some(format!("a constant is not one {}", elements.elem));
        }
        outputs.iter().enumerate().find_map(|(position, slot)| {
            let (new, old) = ((*slot)?, elements.operands.get(position).copied());
            let shape = |slot: Slot| self.program.shape(slot);
            let has_its_shape = match (old.and_then(shape), shape(new)) {
                (Some(old), Some(new)) => same_shape(old, new),
                _ => false,
            };
            (!has_its_shape).then(|| {
                format!("{} does not have the shape of operand {position}", self.name(new))
            })
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sardonyx_kernels::elementwise::Unary;
    use sardonyx_model::{Id, NodeId, Type, ValueId};
    use smallvec::smallvec;

    use super::*;
    use crate::program::{Op, Order, Program, Step, Value};

    /// Makes a program that negates two floats.
    pub(crate) fn valid() -> Program {
        let value = |index: usize| Value {
            value: ValueId::new(index),
            ty: Some(Type::tensor(DataType::Float, [2i64])),
            constant: None,
            order: Order::Rows,
        };
        let neg = ScalarFunction::Unary(Unary::Neg, DataType::Float);
        let elements = Elements {
            elem: DataType::Float,
            operands: smallvec![Slot(0)],
            constants: Vec::new(),
            instructions: vec![Instruction { function: neg, a: 0, b: 0 }],
            results: smallvec![1],
        };
        Program {
            values: vec![value(0), value(1)],
            steps: vec![Step {
                op: Op::Elements(Box::new(elements)),
                outputs: smallvec![Some(Slot(1))],
                origins: smallvec![NodeId::new(0)],
            }],
            inputs: vec![Some(Slot(0))],
            outputs: vec![Slot(1)],
            ..Program::default()
        }
    }

    pub(crate) fn elements(program: &mut Program) -> &mut Elements {
        match &mut program.steps[0].op {
            Op::Elements(elements) => elements,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_contradicts_itself_is_found() {
        assert_eq!(valid().verify(), Ok(()));
        let changes: [(fn(&mut Program), &str); 5] = [
            (|p| elements(p).operands.clear(), "its functions cannot be one step"),
            (
                |p| p.values[1].ty = Some(Type::tensor(DataType::Float, [3i64])),
                "%1 does not have the shape of operand 0",
            ),
            (|p| elements(p).instructions[0].a = 1, "its functions cannot be one step"),
            (
                |p| elements(p).constants.push(Tensor::scalar(1f64)),
                "its functions cannot be one step",
            ),
            (|p| elements(p).elem = DataType::Double, "%0 is not of type double"),
        ];
        for (change, expected) in changes {
            let mut program = valid();
            change(&mut program);
            let broken = program.verify().map_err(|broken| broken.what);
            assert_eq!(broken, Err(expected.to_string()));
        }
        let mut program = valid();
        elements(&mut program).constants.push(Tensor::scalar(1f64));
        elements(&mut program).results[0] = 2;
        let broken = program.verify().map_err(|broken| broken.what);
        assert_eq!(broken, Err("a constant is not one float".to_string()));
    }
}
