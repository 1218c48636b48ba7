//! New values of state variables as one step: see [`update`](crate::rewrite::update).

use sardonyx_kernels::TrainingLoops;
use sardonyx_kernels::elementwise::{self, MAX_RESULTS, Source};
use sardonyx_tensor::{DataType, Dims, Element};
use smallvec::SmallVec;

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Operand, Target};
use crate::program;

/// The kernel.
pub(crate) fn select(update: &program::Update) -> Result<Box<dyn Kernel>, BindError> {
    let Some(functions) = update.functions() else {
        fail!("the functions of an update cannot be one step");
    };
    let over = update.outputs.iter().map(|output| output.over).collect();
    Ok(match update.elem {
        DataType::Double => Box::new(UpdateStep::<f64>::new(update, functions, over)?),
        _ => Box::new(UpdateStep::<f32>::new(update, functions, over)?),
    })
}

struct UpdateStep<T> {
    functions: elementwise::Update,
    /// What functions read after the operands.
    constants: Vec<T>,
    /// By output: the input whose shape it has, and over which it may be written.
    over: Over,
}

/// By output.
type Over = SmallVec<[usize; MAX_RESULTS]>;

impl<T: Element + TrainingLoops> Kernel for UpdateStep<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let exec = call.exec;
        let dims = self.dims(call)?;
        let len: usize = dims.iter().product();
        let mut sources: SmallVec<[Source<'_, T>; 16]> = SmallVec::new();
        for input in 0..call.input_count() {
            if let Some(Operand::InPlace) = call.operands.get(input) {
                match self.over.iter().position(|over| *over == input) {
                    Some(output) => sources.push(Source::Result(output)),
                    None => fail!("input {input} is being overwritten"),
                }
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
        if results.len() != self.over.len() {
            fail!("{} of {} outputs are wanted", results.len(), self.over.len());
        }
        T::update(exec, &self.functions, &sources, &mut results)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("{} functions of {}, in one pass", self.functions.len(), T::DATA_TYPE)
    }
}

impl<T: Element + TrainingLoops> UpdateStep<T> {
    fn new(
        update: &program::Update,
        functions: elementwise::Update,
        over: Over,
    ) -> Result<Self, BindError> {
        let constants = update.constants.iter().map(|constant| constant.item::<T>());
        Ok(UpdateStep { functions, constants: constants.collect::<Result<_, _>>()?, over })
    }

    /// The dimensions of all outputs.
    fn dims(&self, call: &Call<'_>) -> Result<Dims, KernelError> {
        match (call.targets.first(), self.over.first()) {
            (Some(Target::Planned { dims, .. }), _) => Ok((*dims).clone()),
            (_, Some(over)) => Ok(call.tensor(*over)?.dims().into()),
            _ => fail!("an update has no outputs"),
        }
    }
}
