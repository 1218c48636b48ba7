//! Functions of single elements, one after the other, as one step.

use smallvec::SmallVec;

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::program::Scalars;
use crate::registers::{ScalarCode, bytes_of, word_of};

/// The kernel. Operands that are constant are in its code.
pub(crate) fn select(site: &Site<'_>, scalars: &Scalars) -> Result<Selected, BindError> {
    let (mut types, mut constants) = (Vec::new(), Vec::new());
    let mut packed: SmallVec<[usize; 4]> = SmallVec::new();
    for position in 0..scalars.operands.len() {
        let elem = site.elem(position)?;
        types.push(elem);
        if let Some(tensor) = site.constant(position) {
            constants.push((position as u32, word_of(&tensor.view(), elem)?));
            packed.push(position);
        }
    }
    let code = ScalarCode::new(scalars, &types, constants)?;
    Ok(Selected::new(ScalarStep { code }).packing(packed))
}

/// A step of functions of scalars.
struct ScalarStep {
    code: ScalarCode,
}

impl Kernel for ScalarStep {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let mut registers = self.code.registers(0);
        for position in 0..call.input_count() {
            if let Some(view) = call.maybe_tensor(position)? {
                registers[position] = word_of(view, self.code.types()[position])?;
            }
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
