//! Iterations of a loop whose graph is one step of scalar functions: carried values stay in
//! registers.

use sardonyx_model::Type;
use sardonyx_tensor::{Dims, TensorView, Value};
use smallvec::SmallVec;

use super::iterations::LoopLimits;
use super::stack::Stack;
use super::{Failed, RegionStep, Run, Watch};
use crate::error::KernelError;
use crate::executable::Step;
use crate::kernel::{Call, Operand};
use crate::program::Along;
use crate::registers::{Made, Registers, ScalarCode, ScalarIterations, bytes_of, word_of};
use crate::spans;

/// Stacked outputs, and the register of each.
type Stacks<'t, 'o> = SmallVec<[(Stack<'t, 'o>, &'t Made); 2]>;

/// Loop whose graph is scalar code.
#[derive(Clone, Copy)]
struct ScalarLoop<'s> {
    step: &'s Step,
    iterations: &'s ScalarIterations,
    code: &'s ScalarCode,
}

impl Run<'_> {
    /// Runs all iterations of a loop. Returns `false` without any effect if the operands differ
    /// from the inferred types.
    pub(super) fn run_scalar_loop(
        &self,
        RegionStep { step, region }: RegionStep<'_>,
        iterations: &ScalarIterations,
        call: &mut Call<'_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<bool, Failed> {
        let inside = region.bodies.first().and_then(|body| body.steps.first());
        let Some((inside, code)) = inside.and_then(|inside| Some((inside, inside.scalars()?)))
        else {
            return Ok(false);
        };
        let Some(mut registers) = init_registers(iterations, code, call) else {
            return Ok(false);
        };
        let limits = LoopLimits::read(&region.kind, call)?;
        let Some((finals, stacked)) = call.targets.split_at_mut_checked(iterations.carried.len())
        else {
            return Ok(false);
        };
        let stacks = stacked.iter_mut().map(|target| Stack::new(target, Along::FIRST));
        let mut stacks: Stacks<'_, '_> = stacks.zip(&iterations.stacked).collect();
        let iteration = Watch::step(watch, inside.number, |_| {
            let _span = spans::enter_step(self.executable, inside);
            let scalars = ScalarLoop { step, iterations, code };
            self.run_scalar_iterations(scalars, limits, &mut registers, &mut stacks)
        })?;
        for (carried, target) in iterations.carried.iter().zip(finals) {
            let word = registers[carried.read as usize].to_le_bytes();
            let bytes = &word[..bytes_of(carried.elem)];
            let view = TensorView::over(carried.elem, &carried.dims, bytes)?;
            self.deliver(target, Operand::Tensor(view))?;
        }
        for (stack, made) in stacks {
            let slice = Type::tensor(made.elem, made.dims.iter().copied());
            self.finish(stack, Some(&slice), iteration)?;
        }
        Ok(true)
    }

    /// Runs all iterations, and returns their number.
    fn run_scalar_iterations(
        &self,
        ScalarLoop { step, iterations, code }: ScalarLoop<'_>,
        LoopLimits { most, mut goes_on }: LoopLimits,
        registers: &mut Registers,
        stacks: &mut Stacks<'_, '_>,
    ) -> Result<usize, Failed> {
        let mut next = Registers::from_elem(0, iterations.carried.len());
        let mut iteration = 0;
        while goes_on && iteration < most {
            if let Some(reason) = self.limits.take_iteration() {
                return Err(Failed::Inside(self.make_stop_error(
                    reason,
                    step,
                    Some(iteration as usize),
                )));
            }
            if let Some(number) = iterations.number {
                registers[number as usize] = iteration;
            }
            if let Some(is_on) = iterations.is_on {
                registers[is_on as usize] = 1;
            }
            let in_iteration = |error: KernelError| format!("in iteration {iteration}: {error}");
            code.run(registers).map_err(in_iteration)?;
            goes_on = registers[iterations.goes_on as usize] != 0;
            for (stack, made) in &mut *stacks {
                let word = registers[made.register as usize].to_le_bytes();
                let view = TensorView::over(made.elem, &made.dims, &word[..bytes_of(made.elem)])?;
                stack.push(&view, self.recycler, self.account).map_err(in_iteration)?;
            }
            // Assigns all at once, as values may be swapped.
            for (next, carried) in next.iter_mut().zip(&iterations.carried) {
                *next = registers[carried.made as usize];
            }
            for (next, carried) in next.iter().zip(&iterations.carried) {
                registers[carried.read as usize] = *next;
            }
            iteration += 1;
        }
        Ok(iteration as usize)
    }
}

/// Returns the registers of the first iteration, if the operands have the inferred types.
fn init_registers(
    iterations: &ScalarIterations,
    code: &ScalarCode,
    call: &Call<'_>,
) -> Option<Registers> {
    let mut registers = code.registers(iterations.more);
    for (register, word) in &iterations.constants {
        registers[*register as usize] = *word;
    }
    let word = |operand: usize, elem, dims: Option<&Dims>| {
        let view = match call.operands.get(operand)? {
            Operand::Tensor(view) => view.clone(),
            Operand::Taken(Value::Tensor(tensor)) => tensor.view(),
            _ => return None,
        };
        let fits = dims.is_none_or(|dims| view.dims() == &dims[..]);
        fits.then(|| word_of(&view, elem).ok())?
    };
    for (index, carried) in iterations.carried.iter().enumerate() {
        registers[carried.read as usize] = word(2 + index, carried.elem, Some(&carried.dims))?;
    }
    for (operand, register, elem) in &iterations.captured {
        registers[*register as usize] = word(*operand, *elem, None)?;
    }
    Some(registers)
}
