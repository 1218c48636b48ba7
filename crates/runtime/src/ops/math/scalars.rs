//! Sequence of functions of single elements, as one step.

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Site};
use crate::program::Scalars;
use crate::registers::{ScalarCode, bytes_of, word_of};

/// Selects the kernel.
pub(crate) fn select(site: &Site<'_>, scalars: &Scalars) -> Result<Box<dyn Kernel>, BindError> {
    let types = (0..scalars.operands.len()).map(|position| site.elem(position));
    let code = ScalarCode::new(scalars, types.collect::<Result<_, _>>()?)?;
    Ok(Box::new(ScalarStep { code }))
}

/// Step that computes scalar functions.
struct ScalarStep {
    code: ScalarCode,
}

impl Kernel for ScalarStep {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let mut registers = self.code.registers(0);
        for position in 0..call.input_count() {
            registers[position] = word_of(call.tensor(position)?, self.code.types()[position])?;
        }
        self.code.run(&mut registers)?;
        for (index, made) in self.code.outputs().iter().enumerate() {
            if call.has_output(index) {
                let word = registers[made.register as usize].to_le_bytes();
                let mut output = call.output(index, made.elem, &made.dims)?;
                output.bytes_mut().copy_from_slice(&word[..bytes_of(made.elem)]);
            }
        }
        Ok(())
    }

    fn scalars(&self) -> Option<&ScalarCode> {
        Some(&self.code)
    }

    fn describe(&self) -> String {
        match self.code.len() {
            1 => "1 function of scalars".to_string(),
            count => format!("{count} functions of scalars"),
        }
    }
}
