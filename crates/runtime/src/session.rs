//! Sessions: compiled models that are ready to run.

mod end;
mod kept;
mod kept_state;
mod runs;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sardonyx_kernels::Pool;
use sardonyx_model::{ConstantError, ExternalData, Model, SparseInitializer, Type, ValueInfo};
use sardonyx_passes::{Fusion, name_of_node};
use sardonyx_tensor::{Recycler, Tensor};

use crate::account::{MemoryBudget, Reservation};
use crate::border::{as_run, demand_density};
use crate::branch_inputs::only_readers;
use crate::compile::{Compiled, compile};
use crate::dims;
use crate::error::{CompileError, InputError};
use crate::executable::Executable;
use crate::inputs::{InputPorts, Port, declare, find};
use crate::memory::{Memories, Plans};
use crate::node_error::operators;
use crate::options::Options;
use crate::random::{Seed, draws};
use crate::report::CompileReport;
use crate::rewrite::Note;
use crate::run::IterationPlans;
use crate::sizes::KnownSizes;
use crate::spans;

pub use end::{OldValue, Pending, PendingError};
pub use kept_state::{KeptPorts, KeptState, StateUse};
pub use runs::{Input, Lend};

/// Compiled model, which any number of threads may run at the same time.
pub struct Session {
    /// Number of the session in the process.
    pub(crate) number: u64,
    pub(crate) executable: Executable,
    pub(crate) report: CompileReport,
    fusions: Vec<Fusion>,
    notes: Vec<Note>,
    printed: Option<String>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Default value of each input, from the model.
    pub(crate) defaults: Vec<Option<Tensor>>,
    pub(crate) pool: Pool,
    pub(crate) memory_limit: Option<usize>,
    /// Part of the budget that the values of the session take until it is dropped.
    reserved: Reservation,
    /// Seed of random operators without one of their own.
    pub(crate) seed: Seed,
    /// Plans of all runs.
    pub(crate) plans: Mutex<Plans>,
    /// Plans of the iterations of loops, by step.
    pub(crate) iteration_plans: Vec<IterationPlans>,
    /// Formulas for the sizes of all values, from those of the inputs.
    pub(crate) sizes: KnownSizes,
    /// Memory of outputs, which returns when they are dropped.
    pub(crate) recycler: Arc<Recycler>,
    pub(crate) memories: Memories,
}

/// Number of the next session.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Description of a step of a session, for profiles and `explain`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepInfo {
    /// Path of the node in the file, for messages.
    pub place: String,
    /// Name of the node, or of its first output if it has none.
    pub node: String,
    /// Operator of the node.
    pub op: &'static str,
    /// Operators of the nodes fused into the step, in order.
    pub with: Vec<&'static str>,
    /// Description of the loops that run.
    pub kernel: String,
}

/// Returns the pool for a session with these options: its own or that of the process, limited to a
/// number of threads.
fn pool_of(options: &Options) -> Result<Pool, CompileError> {
    let most = Pool::MOST_THREADS;
    if let Some(threads) = options.threads.filter(|threads| *threads > most) {
        let what = format!("the number of threads is {threads}, which is above {most}");
        return Err(CompileError::Option(what));
    }
    Ok(match (&options.pool, options.threads) {
        (Some(pool), None) => pool.0.clone(),
        (Some(pool), Some(threads)) => pool.0.at_most(threads),
        (None, threads) => Pool::new_shared(threads.unwrap_or_else(Pool::available_threads)),
    })
}

/// Makes a dense tensor of a sparse initializer that is the default value of an input.
fn sparse_default(
    model: &Model,
    initializer: &SparseInitializer,
    external: &dyn ExternalData,
) -> Result<Tensor, CompileError> {
    let sparse = model.sparse_tensor(&initializer.tensor, external);
    let sparse = sparse.map_err(CompileError::Constant)?;
    let dense = demand_density(&sparse).map_err(|refused| refused.to_string());
    let dense = dense.and_then(|()| sparse.to_dense().map_err(|error| error.to_string()));
    dense.map_err(|what| {
        let name = initializer.tensor.values.as_ref().and_then(|values| values.name);
        let name = model.display(name).into_owned();
        CompileError::Constant(ConstantError::new(name, what))
    })
}

impl Session {
    /// Compiles a model. `external` finds tensors outside of the model file.
    ///
    /// # Errors
    ///
    /// A model that contradicts itself or that this release cannot run: lists all reasons.
    pub fn compile(
        model: &Model,
        external: &dyn ExternalData,
        options: &Options,
    ) -> Result<Session, CompileError> {
        let _span = spans::enter_plan(model);
        let pool = pool_of(options)?;
        let as_run = as_run(model, &options.dims);
        let model_to_run = as_run.as_ref().unwrap_or(model);
        // A custom operator may compile within a run, whose limits do not apply here.
        let compile = || Ok(pool.pack_within(|| compile(model_to_run, external, options, &pool)));
        let compiled = Pool::run_to_end(compile)?;
        let Compiled { mut executable, report, fusions, notes, printed, reserved } = compiled;
        let declared = model;
        let model = executable.resolved.model();
        let graph = model.graph(executable.resolved.main());
        let default = |info: &ValueInfo| {
            let mut dense = graph.initializers.iter();
            let mut sparse = graph.sparse_initializers.iter();
            let tensor = match dense.find(|initializer| initializer.value == info.value) {
                Some(own) => model.tensor(&own.tensor, external).map_err(CompileError::Constant),
                None => {
                    let own = sparse.find(|initializer| initializer.value == info.value)?;
                    sparse_default(model, own, external)
                }
            };
            Some(tensor.and_then(|tensor| {
                let own = if options.keeps_mapped {
                    Ok(tensor)
                } else {
                    options.weights.copy_if_mapped(tensor)
                };
                let aligned = own.and_then(|tensor| tensor.aligned());
                aligned.map_err(|error| CompileError::Resources(error.to_string()))
            }))
        };
        let defaults: Vec<Option<Tensor>> =
            graph.inputs.iter().map(|info| default(info).transpose()).collect::<Result<_, _>>()?;
        let mut inputs: Vec<Port> = graph
            .inputs
            .iter()
            .zip(&defaults)
            .zip(only_readers(&executable))
            .map(|((info, default), only_in)| {
                let ty = info.ty.as_ref().and_then(|ty| model.type_of(ty));
                let ty = ty.map(|ty| dims::fix_sizes(ty, &executable.dims));
                let is_optional = matches!(ty, Some(Type::Optional(_)));
                let is_required = default.is_none() && !is_optional;
                Port::new(model.display(info.name).into_owned(), ty, is_required).read_in(only_in)
            })
            .collect();
        let mut outputs: Vec<Port> = graph
            .outputs
            .iter()
            .map(|info| {
                let ty = info.value.and_then(|value| executable.inference.ty(value)).cloned();
                Port::new(model.display(info.name).into_owned(), ty, true)
            })
            .collect();
        if as_run.is_some() {
            declare(declared, &executable.dims, &mut inputs, &mut outputs);
        }
        executable.resolved.drop_mapped();
        executable.inference.forget_mapped();
        let steps = executable.body.all_steps().len();
        let seed = Seed::new(options.seed, draws(&executable.resolved));
        Ok(Session {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            iteration_plans: (0..steps).map(|_| IterationPlans::default()).collect(),
            executable,
            report,
            fusions,
            notes,
            printed,
            inputs,
            outputs,
            defaults,
            pool,
            memory_limit: options.memory_limit,
            reserved,
            seed,
            plans: Mutex::default(),
            sizes: KnownSizes::default(),
            recycler: Arc::default(),
            memories: Memories::default(),
        })
    }

    /// Returns the inputs of a run, in the order of the model.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// Returns the input of a name and its index.
    ///
    /// # Errors
    ///
    /// An unknown name; the message lists the inputs.
    pub fn input(&self, name: &str) -> Result<(usize, &Port), InputError> {
        let index = find(&self.inputs, 0, name).ok_or_else(|| self.input_ports().unknown(name))?;
        Ok((index, &self.inputs[index]))
    }

    /// Lists the required inputs, one per line, and the sizes that the session fixed, for messages.
    pub fn describe_inputs(&self) -> String {
        self.input_ports().list_inputs()
    }

    /// Returns the ports that runs are checked against.
    pub(crate) fn input_ports(&self) -> InputPorts<'_> {
        InputPorts { ports: &self.inputs, fixed: &self.executable.dims }
    }

    /// Returns the outputs of a run, in the order of the model.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Returns the budget that the session and its runs charge.
    pub(crate) fn budget(&self) -> Option<&MemoryBudget> {
        self.reserved.budget()
    }

    /// Returns the number of threads of a run, the calling one included.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Describes the steps of a run, in order.
    pub fn steps(&self) -> Vec<StepInfo> {
        let executable = &self.executable;
        let steps = executable.body.all_steps().into_iter();
        steps
            .map(|step| {
                let names = operators(&executable.resolved, &step.origins);
                StepInfo {
                    place: executable.label(&step.origins),
                    node: name_of_node(executable.resolved.model(), step.origins[0]),
                    op: names[0],
                    with: names[1..].to_vec(),
                    kernel: step.describe(),
                }
            })
            .collect()
    }

    /// Returns the name of the instruction set of the kernels, in lower case: `portable`, `avx2`, …
    pub fn instruction_set(&self) -> String {
        self.executable.isa.name().to_string()
    }

    /// Returns counts and times of the compilation.
    pub fn report(&self) -> &CompileReport {
        &self.report
    }

    /// Returns the patterns that were fused into larger operators, and near misses.
    pub fn fusions(&self) -> &[Fusion] {
        &self.fusions
    }

    /// Lists the fused nodes: the node of the step, then the node fused into it.
    pub fn fused_steps(&self) -> Vec<(String, String)> {
        let label = |nodes| self.executable.label(nodes);
        let joined = self.notes.iter().filter(|note| note.missed.is_none());
        joined.map(|note| (label(&note.by), label(&note.nodes))).collect()
    }

    /// Returns the program after the rewrite of [`Options::print_after`]: a line for each input,
    /// constant, step and output, and for near misses of rewrites.
    pub fn program(&self) -> Option<&str> {
        self.printed.as_deref()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("steps", &self.executable.body.steps.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
