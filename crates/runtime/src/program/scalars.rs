//! Sequence of functions of single elements, in one step.
//!
//! Loops count, compare and index: many small steps, each of which takes longer to start than to
//! compute. As one step they are instructions over registers. Registers are numbered: operands in
//! order, then constants, then one for the result of each instruction.

use sardonyx_kernels::elementwise::{Binary, Unary};
use sardonyx_model::Type;
use sardonyx_tensor::{DataType, Tensor};
use smallvec::SmallVec;

use super::verify::Verifier;
use super::{Conversion, Program, Slot, Test};

/// Instructions over single elements.
#[derive(Debug)]
pub(crate) struct Scalars {
    /// Operands, each a tensor of one element.
    pub(crate) operands: SmallVec<[Slot; 4]>,
    /// Tensors of one element.
    pub(crate) constants: Vec<Tensor>,
    pub(crate) instructions: Vec<Instruction>,
    /// Register and rank of each output of the step.
    pub(crate) outputs: SmallVec<[ScalarOutput; 2]>,
}

/// Register that becomes a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScalarOutput {
    pub(crate) register: u32,
    /// Number of axes, of one element each.
    pub(crate) rank: usize,
}

/// Function and the registers that it reads. A function of one element ignores the second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    pub(crate) function: ScalarFunction,
    pub(crate) a: u32,
    pub(crate) b: u32,
}

/// Function of one or two elements.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ScalarFunction {
    Unary(Unary, DataType),
    Binary(Binary, DataType),
    Test(Test),
    Cast(Conversion),
}

impl ScalarFunction {
    /// Returns the number of elements that it reads.
    pub(crate) fn arity(self) -> usize {
        match self {
            ScalarFunction::Unary(..) | ScalarFunction::Cast(_) => 1,
            ScalarFunction::Test(Test::Not) => 1,
            ScalarFunction::Binary(..) | ScalarFunction::Test(_) => 2,
        }
    }

    /// Returns the type of its arguments, and that of its result.
    pub(crate) fn types(self) -> (DataType, DataType) {
        match self {
            ScalarFunction::Unary(_, elem) | ScalarFunction::Binary(_, elem) => (elem, elem),
            ScalarFunction::Test(Test::Compare(_, elem)) => (elem, DataType::Bool),
            ScalarFunction::Test(_) => (DataType::Bool, DataType::Bool),
            ScalarFunction::Cast(conversion) => (conversion.from, conversion.to),
        }
    }
}

/// Returns element type and rank of a type whose tensors have one element for all sizes of the
/// inputs.
pub(crate) fn single(ty: &Type) -> Option<(DataType, usize)> {
    let Type::Tensor(tensor) = ty else { return None };
    let shape = tensor.shape.as_ref()?;
    let is_single = shape.iter().all(|dim| dim.known() == Some(1));
    is_single.then_some((tensor.elem?, shape.len()))
}

impl Program {
    /// Returns the element type of a value that has one element for all sizes of the inputs.
    pub(crate) fn single(&self, slot: Slot) -> Option<DataType> {
        single(self.value(slot).ty.as_ref()?).map(|(elem, _)| elem)
    }
}

impl Verifier<'_> {
    /// Finds a contradiction between instructions and their operands or results.
    pub(super) fn contradiction_in_scalars(
        &self,
        scalars: &Scalars,
        outputs: &[Option<Slot>],
    ) -> Option<String> {
        let mut types = Vec::new();
        for slot in &scalars.operands {
            let Some(elem) = self.program.single(*slot) else {
                return Some(format!("{} is not known to be one element", self.name(*slot)));
            };
            types.push(elem);
        }
        if scalars.constants.iter().any(|constant| constant.len() != 1) {
            return Some("a constant is not one element".to_string());
        }
        types.extend(scalars.constants.iter().map(Tensor::data_type));
        for (number, Instruction { function, a, b }) in scalars.instructions.iter().enumerate() {
            let (wanted, made) = function.types();
            for register in [a, b].into_iter().take(function.arity()) {
                match types.get(*register as usize) {
                    None => {
                        return Some(format!(
                            "instruction {number} reads register {register} too early"
                        ));
                    }
                    Some(found) if *found != wanted => {
                        return Some(format!(
                            "instruction {number} reads register {register}, a {found}, as {wanted}"
                        ));
                    }
                    Some(_) => {}
                }
            }
            types.push(made);
        }
        if scalars.outputs.len() != outputs.len() {
            let (has, wanted) = (scalars.outputs.len(), outputs.len());
            return Some(format!("it makes {has} values, and {wanted} are read"));
        }
        scalars.outputs.iter().zip(outputs).find_map(|(output, slot)| {
            let (slot, made) = ((*slot)?, types.get(output.register as usize).copied());
            let has_rank = self.program.shape(slot).is_some_and(|shape| shape.len() == output.rank);
            let fits = made.is_some() && self.program.single(slot) == made && has_rank;
            (!fits)
                .then(|| format!("{} differs from register {}", self.name(slot), output.register))
        })
    }
}
