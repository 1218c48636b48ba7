//! The walk over the steps of a program, in the order and in the places that a schedule says.

use std::mem::take;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sardonyx_kernels::Exec;
use sardonyx_tensor::{Arena, Recycler, TensorView, Value, ViewData};
use smallvec::SmallVec;

use crate::account::Account;
use crate::error::RunError;
use crate::executable::{Body, Executable};
use crate::kernel::{Call, Operand, Target};
use crate::memory::{Held, Planned};
use crate::plan::Plan;
use crate::schedule::{Goal, Scheduled, Source};

/// A step of a run that has just ended.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct StepEvent {
    /// Its number among [`Session::steps`].
    pub step: usize,
    /// When it began, since the beginning of the run.
    pub start: Duration,
    /// How long it took.
    pub took: Duration,
}

/// One run.
pub(crate) struct Run<'r> {
    pub(crate) executable: &'r Executable,
    pub(crate) exec: Exec<'r>,
    /// Where memory for outputs comes from that have no place in the plan.
    pub(crate) recycler: &'r Arc<Recycler>,
    /// What is charged for memory before it is taken.
    pub(crate) account: &'r Account,
}

impl Run<'_> {
    /// Runs the steps of a program.
    pub(crate) fn walk(
        &self,
        body: &Body,
        planned: &Planned,
        arena: &mut Arena,
        held: &mut [Held<'_>],
        mut watch: Option<&mut dyn FnMut(StepEvent)>,
    ) -> Result<(), RunError> {
        let began = watch.is_some().then(Instant::now);
        let schedule = &planned.schedule;
        for scheduled in &schedule.steps {
            let start = began.map(|began| began.elapsed());
            self.run_step(body, planned, arena, held, scheduled).map_err(|what| {
                let nodes = &body.steps[scheduled.step].origins;
                RunError::Node { place: self.executable.label(nodes), what }
            })?;
            if let (Some(watch), Some(began), Some(start)) = (&mut watch, began, start) {
                watch(StepEvent { step: scheduled.step, start, took: began.elapsed() - start });
            }
            for place in schedule.dead(scheduled) {
                if let Held::Value(_, bytes) = take(&mut held[*place as usize]) {
                    self.account.credit(bytes);
                }
            }
        }
        Ok(())
    }

    fn run_step<'a>(
        &self,
        body: &Body,
        planned: &Planned,
        arena: &mut Arena,
        held: &mut [Held<'a>],
        scheduled: &Scheduled,
    ) -> Result<(), String> {
        let account = self.account;
        let taken = account.taken();
        let (plan, schedule) = (&planned.plan, &planned.schedule);
        let step = &body.steps[scheduled.step];
        let goals = schedule.goals(scheduled);
        let (read, mut written) = arena
            .borrow(schedule.reads(scheduled), schedule.writes(scheduled))
            .map_err(|error| error.to_string())?;
        let makes_values = goals.iter().any(|goal| matches!(goal, Goal::Held(..)));
        // Memory of the caller leaves its place while it is written.
        let mut lent: SmallVec<[(u32, &'a mut [u8]); 2]> = SmallVec::new();
        if makes_values {
            for goal in goals {
                if let Goal::Held(place, _) = goal
                    && let place_of = &mut held[*place as usize]
                    && matches!(place_of, Held::Output(_))
                    && let Held::Output(bytes) = take(place_of)
                {
                    lent.push((*place, bytes));
                }
            }
        }
        let mut call = Call {
            operands: SmallVec::new(),
            targets: SmallVec::new(),
            over: scheduled.over,
            exec: &self.exec,
            memory: Some(self.recycler),
            account,
        };
        let mut read = read.iter().copied();
        for source in schedule.sources(scheduled) {
            let bytes = match source {
                Source::Arena(_) => read.next(),
                _ => None,
            };
            call.operands.push(body.operand(plan, held, *source, bytes)?);
        }
        let mut written = written.iter_mut().map(|bytes| &mut **bytes);
        let mut memories = lent.iter_mut().peekable();
        for goal in goals {
            let (slot, bytes) = match goal {
                Goal::Absent => {
                    call.targets.push(Target::Absent);
                    continue;
                }
                Goal::Arena(slot) => (slot, written.next()),
                Goal::Held(place, slot) => {
                    let memory = memories.next_if(|(of, _)| of == place);
                    (slot, memory.map(|(_, bytes)| &mut **bytes))
                }
            };
            call.targets.push(match (&plan.types[slot.index()], bytes) {
                (Some((data_type, dims)), Some(bytes)) => {
                    Target::Planned { data_type: *data_type, dims, bytes }
                }
                _ => Target::Owned(None),
            });
        }
        step.kernel.run(&mut call).map_err(|error| error.0)?;
        if !makes_values {
            account.settle(taken);
            return Ok(());
        }
        let targets = take(&mut call.targets);
        drop(call);
        let mut made: SmallVec<[(u32, Value); 1]> = SmallVec::new();
        for (goal, target) in goals.iter().zip(targets) {
            if let (Goal::Held(place, _), Target::Owned(Some(value))) = (goal, target) {
                made.push((*place, value));
            }
        }
        let mut kept = taken;
        for (place, value) in made {
            let bytes = value.bytes();
            kept = kept.saturating_add(bytes);
            held[place as usize] = Held::Value(value, bytes);
        }
        account.settle(kept);
        for (place, bytes) in lent {
            held[place as usize] = Held::Output(bytes);
        }
        Ok(())
    }
}

impl Body {
    /// What a step reads: bytes of the arena, a constant, or a held value; each under the slot's
    /// own dimensions.
    #[inline]
    pub(crate) fn operand<'c>(
        &'c self,
        plan: &'c Plan,
        held: &'c [Held<'_>],
        source: Source,
        bytes: Option<&'c [u8]>,
    ) -> Result<Operand<'c>, String> {
        let absent = || "an input has not been computed".to_string();
        let (slot, bytes) = match source {
            Source::Absent => return Ok(Operand::Absent),
            Source::InPlace => return Ok(Operand::InPlace),
            Source::Arena(slot) => (slot, bytes.ok_or_else(absent)?),
            Source::Constant { root, slot } => {
                let constant = self.slots[root.index()].constant.as_ref();
                let constant = constant.ok_or_else(absent)?;
                if root == slot {
                    return Ok(Operand::Tensor(constant.view()));
                }
                (slot, constant.bytes())
            }
            Source::Held { place, root, slot } => match &held[place as usize] {
                Held::Nothing => return Err(absent()),
                Held::Output(bytes) => (slot, &**bytes),
                Held::Value(Value::Tensor(tensor), _) if root == slot => {
                    return Ok(Operand::Tensor(tensor.view()));
                }
                Held::Input(view) if root == slot => return Ok(Operand::Tensor(view.clone())),
                Held::Value(Value::Tensor(tensor), _) => (slot, tensor.bytes()),
                Held::Input(view) => (slot, view.contiguous_bytes().ok_or_else(absent)?),
                Held::Value(value, _) => return Ok(Operand::Value(value)),
            },
        };
        let (data_type, dims) = plan.types[slot.index()]
            .as_ref()
            .ok_or_else(|| "a planned value has no shape".to_string())?;
        let view = match plan.layout(slot) {
            None => TensorView::over(*data_type, dims, bytes),
            Some(layout) => TensorView::with_strides(
                *data_type,
                dims,
                &layout.strides,
                layout.offset,
                ViewData::Bytes(bytes),
            ),
        };
        Ok(Operand::Tensor(view.map_err(|error| error.to_string())?))
    }
}
