//! Functions of the elements at one position, such as new values of state variables, as one step:
//! see [`update`](crate::rewrite::update).

use sardonyx_kernels::UpdateLoops;
use sardonyx_kernels::elementwise::{self, MAX_RESULTS, Source};
use sardonyx_tensor::{DataType, Dims, Element};
use smallvec::SmallVec;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Operand, Target};
use crate::program;

/// Selects the kernel.
pub(crate) fn select(elements: &program::Elements) -> Result<Box<dyn Kernel>, BindError> {
    let Some(functions) = elements.functions() else {
        fail!("the functions of elements cannot be one step");
    };
    Ok(match elements.elem {
        DataType::Double => Box::new(UpdateStep::<f64>::new(elements, functions)?),
        _ => Box::new(UpdateStep::<f32>::new(elements, functions)?),
    })
}

struct UpdateStep<T> {
    functions: elementwise::Update,
    /// Constants that functions read, numbered after the operands.
    constants: Vec<T>,
    /// Number of outputs. Each has the shape of the input at its position, and may overwrite it.
    results: usize,
}

impl<T: Element + UpdateLoops> Kernel for UpdateStep<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let dims = self.dims(call)?;
        let len: usize = dims.iter().product();
        let mut sources: SmallVec<[Source<'_, T>; 16]> = SmallVec::new();
        for input in 0..call.input_count() {
            if let Some(Operand::InPlace) = call.operands.get(input) {
                if input >= self.results {
                    fail!("input {input} is being overwritten");
                }
                sources.push(Source::Result(input));
                continue;
            }
            sources.push(match call.slice::<T>(input)? {
                elements if elements.len() == len => Source::All(elements),
                [element] => Source::One(*element),
                _ => {
                    let other = call.tensor(input)?.dims();
                    fail!("input {input} is {other:?}, but the state is {:?}", &dims[..]);
                }
            });
        }
        sources.extend(self.constants.iter().map(|constant| Source::One(*constant)));
        let all: [usize; MAX_RESULTS] = std::array::from_fn(|output| output);
        let results = call.output_slices_at::<T, MAX_RESULTS>(all, &dims)?;
        let mut results: SmallVec<[&mut [T]; MAX_RESULTS]> =
            results.into_iter().flatten().collect();
        if results.len() != self.results {
            fail!("{} of {} outputs are wanted", results.len(), self.results);
        }
        T::update(exec, &self.functions, &sources, &mut results)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{} functions of {}, in one pass", self.functions.len(), T::DATA_TYPE)
    }
}

impl<T: Element + UpdateLoops> UpdateStep<T> {
    fn new(
        elements: &program::Elements,
        functions: elementwise::Update,
    ) -> Result<Self, BindError> {
        let constants = elements.constants.iter().map(|constant| constant.item::<T>());
        let constants = constants.collect::<Result<_, _>>()?;
        Ok(UpdateStep { functions, constants, results: elements.results.len() })
    }

    /// Returns the dimensions of all outputs.
    fn dims(&self, call: &Call<'_>) -> Result<Dims, KernelError> {
        match call.targets.first() {
            Some(Target::Planned { dims, .. }) => Ok((*dims).clone()),
            _ => Ok(call.tensor(0)?.dims().into()),
        }
    }
}
