//! Interpreter for instructions over single elements in registers.
//!
//! A register is a word with the bits of an element in its low bytes; a boolean is 0 or 1.

use sardonyx_kernels::elementwise::{ScalarElement, ScalarFn, scalar_logic};
use sardonyx_tensor::{DataType, Dims, TensorView, cast_slices};
use smallvec::SmallVec;

use crate::error::{BindError, KernelError, fail};
use crate::program::{Conversion, ScalarFunction, ScalarOutput, Scalars, Test};

/// Maps an element type of scalars to its Rust type; `None` for any other.
macro_rules! for_scalar {
    ($elem:expr, $T:ident => $value:expr) => {
        for_scalar!($elem, [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64], $T => $value)
    };
    ($elem:expr, [$($t:ty),*], $T:ident => $value:expr) => {
        match $elem {
            $(<$t as sardonyx_tensor::Element>::DATA_TYPE => {
                type $T = $t;
                $value
            })*
            _ => None,
        }
    };
}

/// Whether registers can hold elements of a type.
pub(crate) fn has_registers(elem: DataType) -> bool {
    elem == DataType::Bool || for_scalar!(elem, T => Some(size_of::<T>())).is_some()
}

/// Whether a function can be an instruction.
pub(crate) fn is_instruction(function: ScalarFunction) -> bool {
    code_of(function).is_some()
}

fn code_of(function: ScalarFunction) -> Option<Run> {
    let function = match function {
        ScalarFunction::Unary(op, elem) => for_scalar!(elem, T => T::scalar_unary(op)),
        ScalarFunction::Binary(op, elem) => for_scalar!(elem, T => T::scalar_binary(op)),
        ScalarFunction::Test(Test::Compare(op, elem)) => {
            for_scalar!(elem, T => Some(T::scalar_compare(op)))
        }
        ScalarFunction::Test(Test::Logic(op)) => Some(scalar_logic(op)),
        ScalarFunction::Test(Test::Same) => Some((|a, b| u64::from(a == b)) as ScalarFn),
        ScalarFunction::Test(Test::Not) => Some((|a, _| u64::from(a == 0)) as ScalarFn),
        ScalarFunction::Cast(conversion) => {
            let both = [conversion.from, conversion.to].into_iter().all(has_registers);
            return both.then_some(Run::Cast(conversion));
        }
    };
    function.map(Run::Function)
}

/// Compiled instructions.
pub(crate) struct ScalarCode {
    instructions: Vec<Code>,
    /// Registers of constants, with their words.
    constants: Vec<(u32, u64)>,
    /// Type of each register: of operands, constants, results.
    types: Vec<DataType>,
    outputs: Vec<Made>,
}

/// Register that becomes a tensor.
#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) register: u32,
    pub(crate) elem: DataType,
    /// Dimensions, all 1.
    pub(crate) dims: Dims,
}

struct Code {
    run: Run,
    a: u32,
    b: u32,
    to: u32,
}

enum Run {
    Function(ScalarFn),
    Cast(Conversion),
}

/// Registers of a run.
pub(crate) type Registers = SmallVec<[u64; 24]>;

impl ScalarCode {
    /// Compiles instructions with operands of some types.
    ///
    /// # Errors
    ///
    /// A function that cannot be an instruction.
    pub(crate) fn new(scalars: &Scalars, operands: Vec<DataType>) -> Result<ScalarCode, BindError> {
        let mut types = operands;
        let mut constants = Vec::with_capacity(scalars.constants.len());
        for constant in &scalars.constants {
            let elem = constant.data_type();
            constants.push((types.len() as u32, word_of(&constant.view(), elem)?));
            types.push(elem);
        }
        let mut instructions = Vec::with_capacity(scalars.instructions.len());
        for instruction in &scalars.instructions {
            let Some(run) = code_of(instruction.function) else {
                let what = format!("{:?} is not a function of scalars", instruction.function);
                return Err(BindError::Unsupported(what));
            };
            let a = instruction.a;
            let b = if instruction.function.arity() == 1 { a } else { instruction.b };
            instructions.push(Code { run, a, b, to: types.len() as u32 });
            types.push(instruction.function.types().1);
        }
        let outputs = scalars.outputs.iter().map(|output| {
            let ScalarOutput { register, rank } = *output;
            Made { register, elem: types[register as usize], dims: Dims::from_elem(1, rank) }
        });
        let outputs = outputs.collect();
        Ok(ScalarCode { instructions, constants, types, outputs })
    }

    /// Makes the registers with constants set, and `more` beyond those of the instructions.
    pub(crate) fn registers(&self, more: usize) -> Registers {
        let mut registers = Registers::from_elem(0, self.types.len() + more);
        for (register, word) in &self.constants {
            registers[*register as usize] = *word;
        }
        registers
    }

    /// Returns the number of instructions.
    pub(crate) fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Returns the type of each register.
    pub(crate) fn types(&self) -> &[DataType] {
        &self.types
    }

    /// Returns the outputs of the step.
    pub(crate) fn outputs(&self) -> &[Made] {
        &self.outputs
    }

    /// Runs all instructions.
    #[inline]
    pub(crate) fn run(&self, registers: &mut [u64]) -> Result<(), KernelError> {
        for code in &self.instructions {
            let (a, b) = (registers[code.a as usize], registers[code.b as usize]);
            registers[code.to as usize] = match &code.run {
                Run::Function(function) => function(a, b),
                Run::Cast(conversion) => convert(*conversion, a)?,
            };
        }
        Ok(())
    }
}

#[inline(never)]
fn convert(conversion: Conversion, word: u64) -> Result<u64, KernelError> {
    let Conversion { from, to, options } = conversion;
    let (source, mut target) = (word.to_le_bytes(), [0; size_of::<u64>()]);
    let width = bytes_of(to);
    cast_slices(from, &source[..bytes_of(from)], to, &mut target[..width], 1, options)?;
    Ok(u64::from_le_bytes(target))
}

/// Returns the size of an element in bytes.
pub(crate) fn bytes_of(elem: DataType) -> usize {
    elem.storage_bytes(1).unwrap_or(0).min(size_of::<u64>())
}

/// Reads the element of a tensor of one, as a word.
pub(crate) fn word_of(view: &TensorView<'_>, elem: DataType) -> Result<u64, KernelError> {
    let bytes = view.contiguous_bytes().unwrap_or_default();
    if view.data_type() != elem || bytes.len() != bytes_of(elem) {
        fail!("a scalar of {elem} is {}{:?}", view.data_type(), view.dims());
    }
    let mut word = [0; size_of::<u64>()];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    Ok(if elem == DataType::Bool { u64::from(word != 0) } else { word })
}

/// Registers in the iterations of a loop. Those of its code come first.
pub(crate) struct ScalarIterations {
    /// Number of registers beyond those of the code.
    pub(crate) more: usize,
    /// Register of the iteration number, if it is read.
    pub(crate) number: Option<u32>,
    /// Register of the condition that the graph reads, which is true.
    pub(crate) is_on: Option<u32>,
    /// Register of the condition that the graph computes.
    pub(crate) goes_on: u32,
    pub(crate) carried: Vec<CarriedScalar>,
    pub(crate) stacked: Vec<Made>,
    /// Captured scalars: the operand, its register and type.
    pub(crate) captured: Vec<(usize, u32, DataType)>,
    /// Constants besides those of the code.
    pub(crate) constants: Vec<(u32, u64)>,
}

/// Scalar carried between iterations.
pub(crate) struct CarriedScalar {
    /// Register that the graph reads.
    pub(crate) read: u32,
    /// Register with the value for the next iteration.
    pub(crate) made: u32,
    pub(crate) elem: DataType,
    /// Dimensions, all 1.
    pub(crate) dims: Dims,
}
