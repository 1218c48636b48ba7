//! Plans of a model on devices: made for inputs of some types, and kept for other sizes.

use std::sync::{Arc, MutexGuard, PoisonError};

use sardonyx_model::{self as graph, Dim, Type, ValueId};
use sardonyx_ops::Registry;
use sardonyx_passes::{
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

/// Most plans that a session keeps.
const MOST_PLANS: usize = 4;

/// Graph that plans are made of, with its inputs in their order.
pub(super) struct ShardSource {
    graph: graph::Model,
    /// Names of the inputs, which initializers may be too.
    pub(super) names: Vec<Arc<str>>,
    /// Declared types of the inputs.
    declared: Vec<Option<Type>>,
    /// Types of the initializers that inputs have where none is given.
    defaults: Vec<Option<Type>>,
    /// Sizes of symbolic dimensions that the session fixes.
    sizes: Vec<(String, i64)>,
}

impl ShardSource {
    pub(super) fn new(
        model: &Model,
        registry: &Registry,
        sizes: Vec<(String, i64)>,
    ) -> Result<ShardSource, Error> {
        let graph = prepare_to_shard(&model.graph, registry);
        let graph = graph.map_err(|error| shard_error(error, model))?;
        let inputs = || graph.main_graph().into_iter().flat_map(|main| &main.inputs);
        let names = inputs().map(|info| Arc::from(&*graph.display(info.name))).collect();
        let declared = inputs().map(|info| graph.type_of(info.ty.as_ref()?)).collect();
        let defaults = inputs().map(|info| default_of(&graph, info.value?)).collect();
        Ok(ShardSource { graph, names, declared, defaults, sizes })
    }
}

/// Plan for inputs of some types, and the sessions of this process for it.
pub(super) struct Prepared {
    /// Types of the inputs, with symbols for open sizes; `None` for the declared type.
    inputs: Vec<Option<Type>>,
    pub(super) plan: Arc<Plan>,
    /// One for each device of this process.
    pub(super) parts: Vec<LocalSession>,
}

/// Plan with the sizes of a run.
#[derive(Clone)]
pub(super) struct Fitted {
    pub(super) prepared: Arc<Prepared>,
    pub(super) numbers: Arc<Numbers>,
}

/// Session of the part of a model that a device runs.
pub(super) struct LocalSession {
    pub(super) session: Session,
    pub(super) exchange: Exchange,
    /// For each output of the model, the output of the session, if the device gives it.
    pub(super) outputs: Vec<Option<usize>>,
    /// For each resident, the output that is the device's part of its new value, if it has one.
    pub(super) kept: Vec<Option<usize>>,
}

impl Prepared {
    /// Returns the open sizes of a run with inputs of these types; `None` if the plan does not hold
    /// for them.
    fn numbers(&self, inputs: &[Option<Type>]) -> Option<Numbers> {
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
    /// Makes the plan by which the model runs on inputs of these types; of the declared types where
    /// none is given.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceSession::run`] before anything runs.
    #[doc(hidden)]
    pub fn plan(&self, inputs: &[(&str, Type)]) -> Result<Plan, Error> {
        let types = self.by_position(|name| {
            inputs.iter().find(|(given, _)| *given == name).map(|(_, ty)| ty.clone())
        });
        // Of training steps, plans are made for numbers alone.
        let open = (!self.stays.is_empty()).then_some(&[][..]);
        catch_panic(|| self.make_plan(&self.stays.with_types(types), open))
    }

    /// Returns the plan of the last run.
    #[doc(hidden)]
    pub fn last_plan(&self) -> Option<Arc<Plan>> {
        self.kept_plans().last().map(|prepared| Arc::clone(&prepared.plan))
    }

    /// Returns the type of each input of the graph by name.
    pub(super) fn by_position(&self, ty: impl Fn(&str) -> Option<Type>) -> Vec<Option<Type>> {
        self.source.names.iter().map(|name| ty(name)).collect()
    }

    /// Returns the type of each input of the graph: that of the tensor that is given, or of its
    /// initializer.
    pub(super) fn types_of(&self, inputs: &Inputs) -> Vec<Option<Type>> {
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

    fn kept_plans(&self) -> MutexGuard<'_, Vec<Arc<Prepared>>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a plan for inputs of these types. Sizes in `open` may differ between runs.
    fn make_plan(
        &self,
        inputs: &[Option<Type>],
        open: Option<&[(String, i64)]>,
    ) -> Result<Plan, Error> {
        let residents = self.stays.residents();
        let registry = self.choices.options.operators.registry();
        let options = ShardOptions {
            configuration: self.crew.options.configuration.as_deref(),
            inputs,
            symbols: &self.source.sizes,
            open,
            outputs: if self.crew.splits_outputs() { OutputsAt::Parts } else { OutputsAt::One },
            residents: &residents,
            unreturned: self.stays.unreturned(),
            whole_bodies: false,
        };
        shard(self.source.graph.clone(), &registry, options).map_err(|error| match error {
            // The model itself has been looked at.
            ShardError::Invalid(findings) if open.is_some() => {
                let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
                let lines = lines.join("\n  ");
                let message = format!("the model is invalid for inputs of these shapes\n  {lines}");
                Error::new(ErrorKind::Input, message)
            }
            error => shard_error(error, &self.model),
        })
    }

    /// Finds a plan for inputs of these types, or makes one.
    pub(super) fn fit_plan(&self, inputs: &[Option<Type>]) -> Result<Fitted, Error> {
        let mut plans = self.kept_plans();
        let known = plans
            .iter()
            .enumerate()
            .rev()
            .find_map(|(at, known)| Some((at, known.numbers(inputs)?)));
        if let Some((at, numbers)) = known {
            let prepared = plans.remove(at);
            plans.push(Arc::clone(&prepared));
            return Ok(Fitted { prepared, numbers: Arc::new(numbers) });
        }
        let (open_inputs, open) = self.left_open(inputs);
        let numbers: Numbers = open.iter().cloned().collect();
        // Batches of training have few sizes, and what gradients are computed by depends on them.
        let plan = self.stays.is_empty().then(|| self.make_plan(&open_inputs, Some(&open)));
        let plan = plan.and_then(Result::ok).filter(|plan| plan.holds(&numbers));
        let (plan, pattern, numbers) = match plan {
            Some(plan) => (plan, open_inputs, numbers),
            // It may hold for these sizes alone.
            None => (self.make_plan(inputs, Some(&[]))?, inputs.to_vec(), Numbers::default()),
        };
        let plan = Arc::new(plan);
        self.stays.settle(&plan);
        let mut parts = Vec::with_capacity(self.crew.seats.len());
        for seat in self.crew.seats.iter() {
            let place = (seat.device, seat.link.clone());
            parts.push(self.make_part(&plan, place, &numbers, false)?);
        }
        let prepared = Arc::new(Prepared { inputs: pattern, plan, parts });
        if plans.len() == MOST_PLANS {
            plans.remove(0);
        }
        plans.push(Arc::clone(&prepared));
        Ok(Fitted { prepared, numbers: Arc::new(numbers) })
    }

    /// Types of inputs with symbols for the sizes that the model leaves open, and the numbers that
    /// these stand for. Sizes of 0 and 1 mean something of their own to many operators and stay
    /// what they are.
    fn left_open(&self, inputs: &[Option<Type>]) -> (Vec<Option<Type>>, Vec<(String, i64)>) {
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
                    // It is no size of its own.
                    Some(_) => return,
                }
                *dim = Dim::symbol(&symbol);
            });
            Some(ty)
        });
        let types = types.collect();
        (types, symbols)
    }

    /// Makes the session of the part of a plan that a device runs; only to be looked at, if
    /// `looks`.
    pub(super) fn make_part(
        &self,
        plan: &Arc<Plan>,
        (device, link): (Device, Link),
        numbers: &Numbers,
        looks: bool,
    ) -> Result<LocalSession, Error> {
        self.model.demand_unchanged_files()?;
        let Local { model, outputs, kept } = plan.local(device);
        let model = self.model.with_graph(model);
        let exchange = Exchange::new(Routes::new(Arc::clone(plan), device, numbers), link);
        let builder = self.choices.of_model(&model);
        let builder = builder.operator(EXCHANGE_DOMAIN, EXCHANGE, exchange.clone());
        let session = if looks { builder.only_look() } else { builder }.build()?;
        Ok(LocalSession { session, exchange, outputs, kept })
    }
}

/// Returns the type of the initializer of an input of the main graph, if it has one.
fn default_of(model: &graph::Model, input: ValueId) -> Option<Type> {
    let main = model.main_graph()?;
    let dense = main.initializers.iter().find(|default| default.value == Some(input));
    let dense = dense.map(|default| (default.tensor.data_type, &default.tensor.dims));
    let sparse = || {
        let mut defaults = main.sparse_initializers.iter();
        let tensor = &defaults.find(|default| default.value == Some(input))?.tensor;
        Some((tensor.values.as_ref()?.data_type, &tensor.dims))
    };
    let (elem, dims) = dense.or_else(sparse)?;
    let elem = DataType::from_number(elem?)?;
    let sizes = dims.iter().map(|size| Dim::Known(*size));
    Some(Type::tensor(elem, sizes.collect::<Vec<_>>()))
}
