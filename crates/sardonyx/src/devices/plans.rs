//! Sharding plans of a model: made for the input types of a run, cached, reused for other sizes.

use std::sync::{Arc, MutexGuard, PoisonError};

use sardonyx_model::{self as graph, Dim, Type, ValueId};
use sardonyx_ops::Registry;
use sardonyx_shard::{
    Device, EXCHANGE, EXCHANGE_DOMAIN, Local, Numbers, OutputsAt, Plan, ShardError, ShardOptions,
    prepare_to_shard, shard,
};
use sardonyx_tensor::{DataType, Value};

use super::DeviceSession;
use super::exchange::{Exchange, Link, Routes};
use super::seat::Inputs;
use super::shard::shard_error;
use crate::error::{Error, ErrorKind, catch_panic};
use crate::model::Model;
use crate::session::Session;

/// Maximum number of sharding plans in the cache of a session.
const MOST_PLANS: usize = 4;

/// Prepared graph from which sharding plans are made, with the names and types of its inputs.
pub(super) struct ShardSource {
    graph: graph::Model,
    /// Names of the graph inputs, including inputs with an initializer as default.
    pub(super) names: Vec<Arc<str>>,
    /// Declared types of the graph inputs; `None` for inputs without a type.
    declared: Vec<Option<Type>>,
    /// Types of the initializers that are defaults of graph inputs; `None` for inputs without one.
    defaults: Vec<Option<Type>>,
    /// Symbolic dimensions whose sizes the session's options fix.
    sizes: Vec<(String, i64)>,
}

impl ShardSource {
    /// Prepares the graph of a model to be sharded, with `sizes` for its symbolic dimensions.
    pub(super) fn new(
        model: &Model,
        registry: &Registry,
        sizes: Vec<(String, i64)>,
    ) -> Result<ShardSource, Error> {
        let graph = prepare_to_shard(&model.graph, registry);
        let graph = graph.map_err(|error| shard_error(error, model))?;
        let (mut names, mut declared, mut defaults) = (Vec::new(), Vec::new(), Vec::new());
        for info in graph.main_graph().into_iter().flat_map(|main| &main.inputs) {
            names.push(Arc::from(&*graph.display(info.name)));
            declared.push(info.ty.as_ref().and_then(|ty| graph.type_of(ty)));
            defaults.push(info.value.and_then(|input| find_default_type(&graph, input)));
        }
        Ok(ShardSource { graph, names, declared, defaults, sizes })
    }
}

/// A sharding plan with the compiled sessions of this process's devices.
pub(super) struct CompiledPlan {
    /// Types of the graph inputs for which the plan was made, with symbols for open sizes; `None`
    /// for the declared type.
    inputs: Vec<Option<Type>>,
    pub(super) plan: Arc<Plan>,
    /// Compiled sessions, one for each device of this process.
    pub(super) parts: Vec<LocalSession>,
}

/// A compiled sharding plan with the sizes that its symbols have in one run.
#[derive(Clone)]
pub(super) struct SizedPlan {
    pub(super) prepared: Arc<CompiledPlan>,
    pub(super) numbers: Arc<Numbers>,
}

/// Compiled session of the part of a model that one device runs.
pub(super) struct LocalSession {
    pub(super) session: Session,
    pub(super) exchange: Exchange,
    /// Index of the session's output for each output of the model; `None` if another device returns
    /// the model's output.
    pub(super) outputs: Vec<Option<usize>>,
    /// Index of the session's output that holds the device's new shard of each state variable;
    /// `None` if the device has no shard or the run does not assign the variable.
    pub(super) kept: Vec<Option<usize>>,
}

impl CompiledPlan {
    /// Matches the types `inputs` of a run against the plan's input types, and returns the sizes of
    /// the plan's symbols; `None` if the plan does not apply to `inputs`.
    fn match_sizes(&self, inputs: &[Option<Type>]) -> Option<Numbers> {
        let mut numbers: Vec<(String, i64)> = Vec::new();
        for (own, given) in self.inputs.iter().zip(inputs) {
            let (Some(own), Some(given)) = (own, given) else {
                (own.is_none() && given.is_none()).then_some(())?;
                continue;
            };
            let (dims, sizes) = (own.shape()?, given.shape()?);
            if own.elem() != given.elem() || dims.len() != sizes.len() {
                return None;
            }
            for (dim, size) in dims.iter().zip(sizes) {
                match dim.as_symbol() {
                    None => (dim == size).then_some(())?,
                    Some(symbol) => {
                        let number = size.known().filter(|number| *number > 1)?;
                        match numbers.iter().find(|(known, _)| known == symbol) {
                            None => numbers.push((symbol.to_string(), number)),
                            Some((_, known)) => (*known == number).then_some(())?,
                        }
                    }
                }
            }
        }
        let numbers = numbers.into_iter().collect();
        self.plan.holds(&numbers).then_some(numbers)
    }
}

impl DeviceSession {
    /// Makes the sharding plan of a run whose inputs have the types `inputs`. Inputs that `inputs`
    /// does not name have their declared types.
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceSession::run`] before anything runs.
    #[doc(hidden)]
    pub fn plan(&self, inputs: &[(&str, Type)]) -> Result<Plan, Error> {
        let types = self.list_types(|name| {
            inputs.iter().find(|(given, _)| *given == name).map(|(_, ty)| ty.clone())
        });
        // Plans of training steps hold for fixed sizes only.
        let open = (!self.stays.is_empty()).then_some(&[][..]);
        catch_panic(|| self.make_plan(&self.stays.set_types(types), open))
    }

    /// Returns the sharding plan of the last run; `None` before the first run.
    #[doc(hidden)]
    pub fn last_plan(&self) -> Option<Arc<Plan>> {
        self.lock_plans().last().map(|prepared| Arc::clone(&prepared.plan))
    }

    /// Returns the result of `ty` for the name of each graph input, in the order of the inputs.
    pub(super) fn list_types(&self, ty: impl Fn(&str) -> Option<Type>) -> Vec<Option<Type>> {
        self.source.names.iter().map(|name| ty(name)).collect()
    }

    /// Returns the type of each graph input: the type of its tensor in `inputs`, else of its
    /// initializer; `None` without a tensor or initializer.
    pub(super) fn find_types(&self, inputs: &Inputs) -> Vec<Option<Type>> {
        let names = self.source.names.iter();
        let given = names.map(|name| inputs.iter().find(|(given, _)| given == name));
        let types = given.zip(&self.source.defaults).map(|(given, default)| match given {
            Some((_, Value::Tensor(tensor))) => {
                Some(Type::tensor(tensor.data_type(), tensor.dims().iter().copied()))
            }
            Some(_) => None,
            None => default.clone(),
        });
        types.collect()
    }

    /// Locks the cache of compiled plans, the most recently used last.
    fn lock_plans(&self) -> MutexGuard<'_, Vec<Arc<CompiledPlan>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a sharding plan for graph inputs of the types `inputs`. The symbols in `open`, with
    /// their sizes in this run, may have other sizes in later runs.
    fn make_plan(
        &self,
        inputs: &[Option<Type>],
        open: Option<&[(String, i64)]>,
    ) -> Result<Plan, Error> {
        let residents = self.stays.describe_residents();
        let registry = self.choices.options.operators.registry();
        let options = ShardOptions {
            configuration: self.crew.options.configuration.as_deref(),
            inputs,
            symbols: &self.source.sizes,
            open,
            outputs: if self.crew.splits_outputs() { OutputsAt::Parts } else { OutputsAt::One },
            residents: &residents,
            unreturned: &self.stays.unreturned,
            whole_bodies: false,
        };
        shard(self.source.graph.clone(), &registry, options).map_err(|error| match error {
            // The model was valid when the session was made, so the input types are at fault.
            ShardError::Invalid(findings) if open.is_some() => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                let lines = lines.join("\n  ");
                let message = format!("the model is invalid for inputs of these shapes\n  {lines}");
                Error::new(ErrorKind::Input, message)
            }
            error => shard_error(error, &self.model),
        })
    }

    /// Returns a cached sharding plan that applies to graph inputs of the types `inputs`, or makes
    /// and caches a new plan.
    pub(super) fn fit_plan(&self, inputs: &[Option<Type>]) -> Result<SizedPlan, Error> {
        let mut plans = self.lock_plans();
        let known = plans
            .iter()
            .enumerate()
            .rev()
            .find_map(|(at, known)| Some((at, known.match_sizes(inputs)?)));
        if let Some((at, numbers)) = known {
            let prepared = plans.remove(at);
            plans.push(Arc::clone(&prepared));
            return Ok(SizedPlan { prepared, numbers: Arc::new(numbers) });
        }
        let (open_inputs, open) = self.replace_open_sizes(inputs);
        let numbers: Numbers = open.iter().cloned().collect();
        // Training uses few batch sizes, and gradient computations depend on them, so its plans
        // hold for fixed sizes.
        let plan = self.stays.is_empty().then(|| self.make_plan(&open_inputs, Some(&open)));
        let plan = plan.and_then(Result::ok).filter(|plan| plan.holds(&numbers));
        let (plan, pattern, numbers) = match plan {
            Some(plan) => (plan, open_inputs, numbers),
            // No plan covers varying sizes: make one for these sizes alone.
            None => (self.make_plan(inputs, Some(&[]))?, inputs.to_vec(), Numbers::default()),
        };
        let plan = Arc::new(plan);
        self.stays.settle_forms(&plan);
        let mut parts = Vec::with_capacity(self.crew.seats.len());
        for seat in self.crew.seats.iter() {
            let link = seat.link.clone();
            parts.push(self.make_part(&plan, seat.device, link, &numbers, false)?);
        }
        let prepared = Arc::new(CompiledPlan { inputs: pattern, plan, parts });
        if plans.len() == MOST_PLANS {
            plans.remove(0);
        }
        plans.push(Arc::clone(&prepared));
        Ok(SizedPlan { prepared, numbers: Arc::new(numbers) })
    }

    /// Replaces the sizes in input types that the model leaves open by symbols, so that one plan
    /// serves other sizes. Returns the types and the size of each symbol. Sizes of 0 and 1 stay
    /// fixed, as operators treat them specially (empty tensors, broadcasting).
    fn replace_open_sizes(
        &self,
        inputs: &[Option<Type>],
    ) -> (Vec<Option<Type>>, Vec<(String, i64)>) {
        let mut symbols: Vec<(String, i64)> = Vec::new();
        let all = inputs.iter().zip(&self.source.declared).zip(&self.source.names);
        let types = all.map(|((ty, declared), name)| {
            let mut ty = ty.clone()?;
            let declared = declared.as_ref().and_then(Type::shape);
            let mut axis = 0;
            ty.for_each_dim(&mut |dim| {
                let declared = declared.and_then(|dims| dims.get(axis));
                let own = declared.and_then(Dim::as_symbol).map(str::to_string);
                let symbol = own.unwrap_or_else(|| format!("{name}[{axis}]"));
                axis += 1;
                let Some(number) = dim.known().filter(|number| *number > 1) else { return };
                if declared.is_some_and(|dim| dim.known().is_some()) {
                    return;
                }
                match symbols.iter().find(|(known, _)| *known == symbol) {
                    None => symbols.push((symbol.clone(), number)),
                    Some((_, known)) if *known == number => {}
                    // The symbol stands for another size already: this one stays fixed.
                    Some(_) => return,
                }
                *dim = Dim::symbol(&symbol);
            });
            Some(ty)
        });
        let types = types.collect();
        (types, symbols)
    }

    /// Compiles the session of the steps of a sharding plan that `device` runs. With `looks`, the
    /// session is never run and only describes the steps.
    pub(super) fn make_part(
        &self,
        plan: &Arc<Plan>,
        device: Device,
        link: Link,
        numbers: &Numbers,
        looks: bool,
    ) -> Result<LocalSession, Error> {
        self.model.demand_unchanged_files()?;
        let Local { model, outputs, kept } = plan.local(device);
        let model = self.model.with_graph(model);
        let exchange = Exchange::new(Routes::new(Arc::clone(plan), device, numbers), link);
        let builder = self.choices.to_builder(&model);
        let builder = builder.operator(EXCHANGE_DOMAIN, EXCHANGE, exchange.clone());
        let session = if looks { builder.inspect_only() } else { builder }.build()?;
        Ok(LocalSession { session, exchange, outputs, kept })
    }
}

/// Returns the type of the dense or sparse initializer that is the default of an input of the main
/// graph; `None` if the input has no initializer.
fn find_default_type(model: &graph::Model, input: ValueId) -> Option<Type> {
    let main = model.main_graph()?;
    let dense = main.initializers.iter().find(|default| default.value == Some(input));
    let (elem, dims) = match dense {
        Some(default) => (default.tensor.data_type, &default.tensor.dims),
        None => {
            let mut defaults = main.sparse_initializers.iter();
            let tensor = &defaults.find(|default| default.value == Some(input))?.tensor;
            (tensor.values.as_ref()?.data_type, &tensor.dims)
        }
    };
    let elem = DataType::from_number(elem?)?;
    let sizes = dims.iter().map(|size| Dim::Known(*size));
    Some(Type::tensor(elem, sizes.collect::<Vec<_>>()))
}
