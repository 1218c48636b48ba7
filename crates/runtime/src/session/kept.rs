//! Runs that read and extend a [kept state](KeptState).

use std::mem::take;

use sardonyx_kernels::catch_panic;
use sardonyx_tensor::{Value, emptied};

use super::Session;
use super::kept_state::KeptState;
use super::runs::{Input, Ran, Request, Terms, give_all, with_plans};
use crate::error::RunError;
use crate::options::RunOptions;
use crate::run::{Progress, StepEvent, Watch};
use crate::spans;

impl Session {
    /// Runs the model on the inputs that a state does not keep. Fills `outputs` with all outputs,
    /// in the order of the model, with `None` for those that the state keeps. If the run fails, the
    /// state stays as it was.
    ///
    /// # Errors
    ///
    /// Those of [`Session::run_with`]; a state of another session; an input that the state keeps;
    /// an output whose size is not known before the run.
    pub fn run_kept<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        state: &mut KeptState,
        outputs: &mut Vec<Option<Value>>,
        options: &RunOptions<'_>,
    ) -> Result<(), RunError> {
        let _span = spans::enter_run();
        let outputs = self.make_room(outputs);
        state.demand_session(self)?;
        let progress = Progress::default();
        let ran =
            catch_panic(|| self.run_kept_with_progress(inputs, state, outputs, options, &progress));
        ran.unwrap_or_else(|panic| Err(self.make_panic_error(panic, &progress)))
    }

    /// Runs [`Session::run_kept`] and records its progress.
    fn run_kept_with_progress<'v, N: AsRef<str>>(
        &self,
        inputs: impl Iterator<Item = (N, Input<'v>)>,
        state: &mut KeptState,
        outputs: &mut [Option<Value>],
        options: &RunOptions<'_>,
        progress: &Progress,
    ) -> Result<(), RunError> {
        let (account, own) = self.open_account(state.bytes());
        let recycler = own.as_ref().unwrap_or(&self.recycler);
        let terms = Terms { account: &account, recycler, options, progress };
        let mut tell = options.watch.map(|watch| move |event: StepEvent| watch(event));
        let mut watch = tell.as_mut().map(|tell| Watch::new(tell));
        state.reset_copied();
        self.with_memory(|memory| {
            with_plans(memory, |plans, memory| {
                let ran = {
                    let mut give = give_all(inputs);
                    let request = Request::new(&mut give).with_kept(&mut *state);
                    self.run_main(plans, memory, request, &terms, &mut watch)?
                };
                let Ran { planned, mut held, wanted } = ran;
                self.collect_outputs(&planned.schedule, &mut held, outputs, &account)?;
                let made = self.run_commit(memory, planned, &held, &terms, &mut watch)?;
                for (output, value) in made {
                    outputs[output] = Some(self.release(output, value, &account)?);
                }
                memory.held = emptied(take(&mut held));
                memory.wanted = emptied(wanted);
                drop(held);
                state.commit(self, &planned.plan, outputs)
            })
        })
    }
}
