//! The turns of a loop whose graph is one step of functions of scalars: what it carries stays in
//! registers.

use sardonyx_model::Type;
use sardonyx_tensor::{Dims, TensorView, Value};
use smallvec::SmallVec;

use super::stack::Stack;
use super::turns::limits;
use super::{Failed, Run, Watch};
use crate::error::KernelError;
use crate::executable::{Region, Step};
use crate::kernel::{Call, Operand};
use crate::program::Along;
use crate::registers::{Made, Registers, ScalarCode, ScalarTurns, bytes_of, word_of};

/// What turns stack, and the register that each is in.
type Stacks<'t, 'o> = SmallVec<[(Stack<'t, 'o>, &'t Made); 2]>;

impl Run<'_> {
    /// Takes all turns of a loop. Says `false`, having done nothing, if what it is given is not
    /// what was inferred.
    pub(super) fn scalar_turns(
        &self,
        (step, region): (&Step, &Region),
        turns: &ScalarTurns,
        call: &mut Call<'_>,
        watch: &mut Option<Watch<'_>>,
    ) -> Result<bool, Failed> {
        let inside = region.bodies.first().and_then(|body| body.steps.first());
        let Some((inside, code)) = inside.and_then(|inside| Some((inside, inside.scalars()?)))
        else {
            return Ok(false);
        };
        let Some(mut registers) = given(turns, code, call) else {
            return Ok(false);
        };
        let (most, goes_on) = limits(&region.kind, call)?;
        let Some((finals, stacked)) = call.targets.split_at_mut_checked(turns.carried.len()) else {
            return Ok(false);
        };
        let stacks = stacked.iter_mut().map(|target| Stack::new(target, Along::FIRST));
        let mut stacks: Stacks<'_, '_> = stacks.zip(&turns.stacked).collect();
        let turn = Watch::step(watch, inside.number, |_| {
            let limits = (most, goes_on);
            self.take_scalar_turns(step, (turns, code), &mut registers, &mut stacks, limits)
        })?;
        for (carried, target) in turns.carried.iter().zip(finals) {
            let word = registers[carried.read as usize].to_le_bytes();
            let bytes = &word[..bytes_of(carried.elem)];
            let view = TensorView::over(carried.elem, &carried.dims, bytes)?;
            self.deliver(target, Operand::Tensor(view))?;
        }
        for (stack, made) in stacks {
            let slice = Type::tensor(made.elem, made.dims.iter().copied());
            self.finish(stack, Some(&slice), turn)?;
        }
        Ok(true)
    }

    /// Takes turns until there are no more; gives how many there were.
    fn take_scalar_turns(
        &self,
        step: &Step,
        (turns, code): (&ScalarTurns, &ScalarCode),
        registers: &mut Registers,
        stacks: &mut Stacks<'_, '_>,
        (most, mut goes_on): (u64, bool),
    ) -> Result<usize, Failed> {
        let mut next = Registers::from_elem(0, turns.carried.len());
        let mut turn = 0;
        while goes_on && turn < most {
            if let Some(reason) = self.limits.take_turn() {
                return Err(Failed::Inside(self.stopped(reason, step, Some(turn as usize))));
            }
            if let Some(number) = turns.number {
                registers[number as usize] = turn;
            }
            if let Some(is_on) = turns.is_on {
                registers[is_on as usize] = 1;
            }
            let in_turn = |error: KernelError| format!("in iteration {turn}: {error}");
            code.run(registers).map_err(in_turn)?;
            goes_on = registers[turns.goes_on as usize] != 0;
            for (stack, made) in &mut *stacks {
                let word = registers[made.register as usize].to_le_bytes();
                let view = TensorView::over(made.elem, &made.dims, &word[..bytes_of(made.elem)])?;
                stack.push(&view, self.recycler, self.account).map_err(in_turn)?;
            }
            // All at once, as values may change places.
            for (next, carried) in next.iter_mut().zip(&turns.carried) {
                *next = registers[carried.made as usize];
            }
            for (next, carried) in next.iter().zip(&turns.carried) {
                registers[carried.read as usize] = *next;
            }
            turn += 1;
        }
        Ok(turn as usize)
    }
}

/// The registers of the first turn, if what is given is what was inferred.
fn given(turns: &ScalarTurns, code: &ScalarCode, call: &Call<'_>) -> Option<Registers> {
    let mut registers = code.registers(turns.more);
    for (register, word) in &turns.constants {
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
    for (index, carried) in turns.carried.iter().enumerate() {
        registers[carried.read as usize] = word(2 + index, carried.elem, Some(&carried.dims))?;
    }
    for (operand, register, elem) in &turns.captured {
        registers[*register as usize] = word(*operand, *elem, None)?;
    }
    Some(registers)
}
