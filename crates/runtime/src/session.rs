//! A compiled model, and running it.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sardonyx_kernels::Pool;
use sardonyx_model::{Dim, ExternalData, Model, Type};
use sardonyx_passes::{Fusion, name_of_node, place_of_node};
use sardonyx_tensor::{Arena, Dims, Recycler, Tensor, TensorView, Value, ViewData};
use smallvec::SmallVec;

use crate::compile::{Options, Program, Slot, compile};
use crate::dims;
use crate::error::{CompileError, RunError};
use crate::kernel::{Call, Operand, Target, value_type};
use crate::plan::{Place, Plan, plan};
use crate::report::CompileReport;

/// A model ready to run, from any number of threads at once.
pub struct Session {
    pub(crate) program: Program,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    pool: SharedPool,
    memory_limit: Option<usize>,
    plans: Mutex<HashMap<Vec<Option<Type2>>, Arc<Plan>>>,
    /// Memory of outputs, which comes back when they are dropped.
    memory: Arc<Recycler>,
    /// Arenas that no run uses at the moment.
    arenas: Mutex<Vec<Arena>>,
}

/// Key of a plan: the type of an input down to its dimensions.
type Type2 = (i32, Dims);

/// An input or output of a session.
#[derive(Debug, Clone)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Its type; dimensions that depend on the inputs are symbols.
    pub ty: Option<Type>,
    /// Whether a run must be given it: an input that the model has a value for is not required.
    pub required: bool,
}

/// What a step of a session is, for profiles and `explain`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepInfo {
    /// The node of the file, for people.
    pub place: String,
    /// The name of the node, or that of its first output if it has none.
    pub node: String,
    /// Its operator.
    pub op: &'static str,
    /// Operators of the nodes that are done while its result is stored, in order.
    pub with: Vec<String>,
    /// Which loops run.
    pub kernel: String,
}

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

enum SharedPool {
    Global(&'static Pool),
    Private(Pool),
}

impl SharedPool {
    fn get(&self) -> &Pool {
        match self {
            SharedPool::Global(pool) => pool,
            SharedPool::Private(pool) => pool,
        }
    }
}

/// More sets of input dimensions than this are not remembered.
const MAX_PLANS: usize = 32;

impl Session {
    /// Compiles a model. `external` finds values that lie outside the model.
    ///
    /// # Errors
    ///
    /// A model that contradicts itself or needs what this release cannot run: everything that stands in the way.
    pub fn compile(
        model: &Model,
        external: &dyn ExternalData,
        options: &Options,
    ) -> Result<Session, CompileError> {
        let pool = match options.threads {
            None if !options.private_pool => SharedPool::Global(Pool::global()),
            Some(threads) if !options.private_pool && threads == Pool::global().threads() => {
                SharedPool::Global(Pool::global())
            }
            threads => {
                let threads = threads.unwrap_or_else(Pool::available_threads);
                SharedPool::Private(Pool::new(threads.max(1)))
            }
        };
        let program = compile(model, external, options, pool.get())?;
        let model = program.resolved.model();
        let graph = model.graph(program.resolved.main());
        let initialized = |value| {
            graph
                .initializers
                .iter()
                .any(|initializer| initializer.value == value)
        };
        let inputs = graph
            .inputs
            .iter()
            .map(|info| Port {
                name: model.display(info.name).into_owned(),
                ty: info
                    .ty
                    .as_ref()
                    .and_then(|ty| Some(dims::fix(model.type_of(ty)?, &program.dims))),
                required: !initialized(info.value),
            })
            .collect();
        let outputs = graph
            .outputs
            .iter()
            .map(|info| Port {
                name: model.display(info.name).into_owned(),
                ty: info
                    .value
                    .and_then(|value| program.inference.ty(value))
                    .cloned(),
                required: true,
            })
            .collect();
        Ok(Session {
            program,
            inputs,
            outputs,
            pool,
            memory_limit: options.memory_limit,
            plans: Mutex::default(),
            memory: Arc::default(),
            arenas: Mutex::default(),
        })
    }

    /// What a run is given, in the order of the model.
    pub fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    /// What a run gives back, in the order of the model.
    pub fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    /// Threads that a run uses, the calling one included.
    pub fn threads(&self) -> usize {
        self.pool.get().threads()
    }

    /// The steps of a run, in order.
    pub fn steps(&self) -> Vec<StepInfo> {
        let steps = self.program.steps.iter();
        let model = self.program.resolved.model();
        steps
            .map(|step| StepInfo {
                place: step.place.clone(),
                node: name_of_node(model, step.node),
                op: step.op,
                with: absorbed_by(&step.place, &place_of_node(model, step.node)),
                kernel: step.kernel.describe(),
            })
            .collect()
    }

    /// The instruction set that kernels use, in lower case: `portable`, `avx2`, …
    pub fn instruction_set(&self) -> String {
        format!("{:?}", self.program.isa).to_lowercase()
    }

    /// What compiling did.
    pub fn report(&self) -> &CompileReport {
        &self.program.report
    }

    /// What was recognised as a larger operator, and what nearly was.
    pub fn fusions(&self) -> &[Fusion] {
        &self.program.fusions
    }

    /// Which nodes are done while the result of another is stored: the other, then the node.
    pub fn absorbed(&self) -> &[(String, String)] {
        &self.program.absorbed
    }

    /// Runs the model.
    ///
    /// # Errors
    ///
    /// Inputs that are missing, unknown or of another type than declared; a node that cannot compute its outputs.
    pub fn run(&self, inputs: Vec<(String, Value)>) -> Result<Vec<(String, Value)>, RunError> {
        self.run_watched(inputs, None)
    }

    /// As [`Session::run`]; `watch` is told of every step that has run.
    ///
    /// # Errors
    ///
    /// As [`Session::run`].
    pub fn run_watched(
        &self,
        inputs: Vec<(String, Value)>,
        watch: Option<&mut dyn FnMut(StepEvent)>,
    ) -> Result<Vec<(String, Value)>, RunError> {
        let given = self.sort_inputs(inputs)?;
        let plan = self.plan_for(&given)?;
        if let Some(limit) = self.memory_limit
            && plan.arena_bytes > limit
        {
            return Err(RunError::Resources(format!(
                "with inputs of these sizes a run needs {} bytes between its inputs and outputs, but the limit is {limit}",
                plan.arena_bytes
            )));
        }
        let mut arena = self.arena(plan.arena_bytes)?;
        let result = self.run_steps(&plan, &mut arena, given, watch);
        self.arenas
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(arena);
        result
    }

    /// The inputs in the order of the model, checked against what it declares.
    fn sort_inputs(&self, inputs: Vec<(String, Value)>) -> Result<Vec<Option<Value>>, RunError> {
        let mut given: Vec<Option<Value>> = self.inputs.iter().map(|_| None).collect();
        for (name, value) in inputs {
            let Some(index) = self.inputs.iter().position(|port| port.name == name) else {
                return Err(RunError::Input(format!(
                    "the model has no input '{name}'; {}",
                    self.describe_inputs()
                )));
            };
            if given[index].is_some() {
                return Err(RunError::Input(format!("input '{name}' is given twice")));
            }
            given[index] = Some(value);
        }
        let mut symbols = HashMap::new();
        for (port, value) in self.inputs.iter().zip(&given) {
            match value {
                Some(value) => check_input(port, value, &mut symbols)
                    .map_err(|error| dims::refusal(error, &self.program.dims))?,
                None if port.required => {
                    return Err(RunError::Input(format!(
                        "input '{}' is missing; {}",
                        port.name,
                        self.describe_inputs()
                    )));
                }
                None => {}
            }
        }
        Ok(given)
    }

    fn describe_inputs(&self) -> String {
        let inputs: Vec<String> = self
            .inputs
            .iter()
            .take(20)
            .map(|port| match &port.ty {
                Some(ty) => format!("'{}' {ty}", port.name),
                None => format!("'{}'", port.name),
            })
            .collect();
        let more = if self.inputs.len() > 20 { ", …" } else { "" };
        format!("its inputs are {}{more}", inputs.join(", "))
    }

    fn plan_for(&self, given: &[Option<Value>]) -> Result<Arc<Plan>, RunError> {
        let tensor = |value: &Option<Value>| {
            value
                .as_ref()
                .and_then(Value::as_tensor)
                .map(|t| (t.data_type(), Dims::from(t.dims())))
        };
        let key: Vec<Option<Type2>> = given
            .iter()
            .map(|value| tensor(value).map(|(elem, dims)| (elem.number(), dims)))
            .collect();
        if let Some(plan) = self
            .plans
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(plan.clone());
        }
        let model = self.program.resolved.model();
        let graph = model.graph(self.program.resolved.main());
        let types: Vec<Option<Type>> = given
            .iter()
            .zip(&graph.inputs)
            .map(|(value, info)| match tensor(value) {
                Some((elem, dims)) => Some(Type::tensor(elem, dims)),
                None => {
                    // Not given: the model's own value.
                    let own = graph
                        .initializers
                        .iter()
                        .find(|initializer| initializer.value == info.value);
                    let dims = own?.tensor.dims.iter().map(|dim| Dim::Known(*dim));
                    Some(Type::tensor(
                        sardonyx_tensor::DataType::from_number(own?.tensor.data_type?)?,
                        dims,
                    ))
                }
            })
            .collect();
        let plan = Arc::new(plan(&self.program, &types)?);
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        plans.insert(key, plan.clone());
        Ok(plan)
    }

    fn arena(&self, bytes: usize) -> Result<Arena, RunError> {
        let free = self
            .arenas
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let refused = |error: sardonyx_tensor::TensorError| RunError::Resources(error.to_string());
        match free {
            Some(mut arena) => {
                arena.reserve(bytes).map_err(refused)?;
                Ok(arena)
            }
            None => Arena::new(bytes).map_err(refused),
        }
    }

    fn run_steps(
        &self,
        plan: &Plan,
        arena: &mut Arena,
        given: Vec<Option<Value>>,
        mut watch: Option<&mut dyn FnMut(StepEvent)>,
    ) -> Result<Vec<(String, Value)>, RunError> {
        let began = watch.is_some().then(Instant::now);
        let program = &self.program;
        let mut own: Vec<Option<Value>> = program.slots.iter().map(|_| None).collect();
        for (index, (slot, value)) in program.inputs.iter().zip(given).enumerate() {
            let Some(slot) = slot else { continue };
            own[slot.index()] = Some(match value {
                Some(Value::Tensor(tensor)) => {
                    let aligned = tensor
                        .aligned()
                        .map_err(|error| RunError::Resources(error.to_string()))?;
                    Value::Tensor(aligned)
                }
                Some(value) => value,
                None => self.own_value(index)?,
            });
        }
        for index in 0..program.steps.len() {
            if plan.skip[index] {
                continue;
            }
            let start = began.map(|began| began.elapsed());
            let made = self.run_step(plan, arena, &own, index)?;
            if let (Some(watch), Some(began), Some(start)) = (&mut watch, began, start) {
                watch(StepEvent {
                    step: index,
                    start,
                    took: began.elapsed() - start,
                });
            }
            for (slot, value) in program.steps[index].outputs.iter().zip(made) {
                if let (Some(slot), Some(value)) = (slot, value) {
                    own[slot.index()] = Some(value);
                }
            }
            for slot in &plan.last_use[index] {
                own[slot.index()] = None;
            }
        }
        let mut outputs = Vec::with_capacity(self.outputs.len());
        for (index, (port, slot)) in self.outputs.iter().zip(&program.outputs).enumerate() {
            // The same value may be several outputs, or an input, or a constant.
            let again = program.outputs[index + 1..].contains(slot);
            let value = if again {
                own[slot.index()].clone()
            } else {
                own[slot.index()].take()
            };
            let constant = || {
                program.slots[slot.index()]
                    .constant
                    .clone()
                    .map(Value::Tensor)
            };
            let value = value.or_else(constant).ok_or_else(|| RunError::Node {
                place: format!("output '{}'", port.name),
                what: "no step produced it".to_string(),
            })?;
            outputs.push((port.name.clone(), value));
        }
        Ok(outputs)
    }

    /// The model's own value of an input that was not given.
    fn own_value(&self, index: usize) -> Result<Value, RunError> {
        let model = self.program.resolved.model();
        let graph = model.graph(self.program.resolved.main());
        let value = graph.inputs[index].value;
        let own = graph
            .initializers
            .iter()
            .find(|initializer| initializer.value == value);
        let own = own.ok_or_else(|| {
            RunError::Input(format!("input '{}' is missing", self.inputs[index].name))
        })?;
        let tensor = model.tensor(&own.tensor, &sardonyx_model::NoExternalData);
        let tensor = tensor.map_err(|error| RunError::Input(error.to_string()))?;
        tensor
            .aligned()
            .map(Value::Tensor)
            .map_err(|error| RunError::Resources(error.to_string()))
    }

    /// Runs a step and returns what it made in memory of its own, by output.
    fn run_step(
        &self,
        plan: &Plan,
        arena: &mut Arena,
        own: &[Option<Value>],
        index: usize,
    ) -> Result<SmallVec<[Option<Value>; 2]>, RunError> {
        let step = &self.program.steps[index];
        let over = plan.over[index];
        let range = |slot: Slot| -> Option<Range<usize>> {
            match &plan.places[plan.root(slot).index()] {
                Place::Arena(range) => Some(range.clone()),
                _ => None,
            }
        };
        let reads: SmallVec<[Range<usize>; 8]> = step
            .inputs
            .iter()
            .enumerate()
            .filter(|(position, _)| Some(*position) != over)
            .filter_map(|(_, slot)| range((*slot)?))
            .collect();
        let writes: SmallVec<[Range<usize>; 4]> = step
            .outputs
            .iter()
            .flatten()
            .filter(|slot| !plan.is_view(**slot))
            .filter_map(|slot| range(*slot))
            .collect();
        let failed = |what: String| RunError::Node {
            place: step.place.clone(),
            what,
        };
        let (read, written) = arena
            .borrow(&reads, &writes)
            .map_err(|error| failed(error.to_string()))?;

        let mut read = read.into_iter();
        let mut operands: SmallVec<[Operand<'_>; 6]> = SmallVec::new();
        for (position, slot) in step.inputs.iter().enumerate() {
            operands.push(match slot {
                None => Operand::Absent,
                Some(_) if Some(position) == over => Operand::InPlace,
                Some(slot) => {
                    let bytes = if range(*slot).is_some() {
                        read.next()
                    } else {
                        None
                    };
                    self.operand(plan, own, *slot, bytes).map_err(failed)?
                }
            });
        }
        let mut written = written.into_iter();
        let mut targets: SmallVec<[Target<'_>; 2]> = SmallVec::new();
        for slot in &step.outputs {
            targets.push(match slot {
                None => Target::Absent,
                // It lies in the input already.
                Some(slot) if plan.is_view(*slot) => Target::Absent,
                Some(slot) => match (range(*slot), &plan.types[slot.index()]) {
                    (Some(_), Some((data_type, dims))) => {
                        let bytes = written
                            .next()
                            .ok_or_else(|| failed("an output has no memory".to_string()))?;
                        Target::Planned {
                            data_type: *data_type,
                            dims,
                            bytes,
                        }
                    }
                    _ => Target::Owned(None),
                },
            });
        }
        let mut call = Call {
            operands,
            targets,
            over,
            pool: self.pool.get(),
            isa: self.program.isa,
            memory: Some(&self.memory),
        };
        step.kernel
            .run(&mut call)
            .map_err(|error| failed(error.0))?;
        let own = |target| match target {
            Target::Owned(value) => value,
            Target::Planned { .. } | Target::Absent => None,
        };
        Ok(call.targets.into_iter().map(own).collect())
    }

    /// What a step reads: bytes of the arena, a constant, or a value of its own; each under the slot's own dimensions.
    fn operand<'a>(
        &'a self,
        plan: &'a Plan,
        own: &'a [Option<Value>],
        slot: Slot,
        bytes: Option<&'a [u8]>,
    ) -> Result<Operand<'a>, String> {
        let root = plan.root(slot);
        let planned = || {
            plan.types[slot.index()]
                .as_ref()
                .ok_or_else(|| "a planned value has no shape".to_string())
        };
        let own = own[root.index()].as_ref();
        let tensor: Option<&Tensor> = self.program.slots[root.index()]
            .constant
            .as_ref()
            .or(own.and_then(Value::as_tensor));
        let bytes = match (bytes, tensor, own) {
            (Some(bytes), ..) => bytes,
            (None, Some(tensor), _) if root == slot => return Ok(Operand::Tensor(tensor.view())),
            (None, Some(tensor), _) => tensor.bytes(),
            (None, None, Some(value)) => return Ok(Operand::Value(value)),
            (None, None, None) => return Err("an input has not been computed".to_string()),
        };
        let (data_type, dims) = planned()?;
        let view = match plan.layout(slot) {
            None => TensorView::new(*data_type, dims, bytes),
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

/// The operators that the place of a step names behind that of its node.
fn absorbed_by(place: &str, node: &str) -> Vec<String> {
    let rest = place.strip_prefix(node).unwrap_or_default();
    let names = rest.split(" with ").filter(|name| !name.is_empty());
    names.map(str::to_string).collect()
}

/// Compares a value with the declared type, and sizes that share a name with each other.
fn check_input(
    port: &Port,
    value: &Value,
    symbols: &mut HashMap<String, (usize, String)>,
) -> Result<(), RunError> {
    let Some(declared) = &port.ty else {
        return Ok(());
    };
    let wrong = |found: String| {
        RunError::Input(format!(
            "input '{}' must be {declared}, but {found} is given",
            port.name
        ))
    };
    let found = value.value_type();
    if value_type(declared).is_some_and(|declared| declared != found) {
        return Err(wrong(found.to_string()));
    }
    let (Some(tensor), Some(shape)) = (value.as_tensor(), declared.shape()) else {
        return Ok(());
    };
    let given = || format!("{}{:?}", tensor.data_type().name(), tensor.dims());
    if tensor.rank() != shape.len() {
        return Err(wrong(given()));
    }
    for (size, dim) in tensor.dims().iter().zip(shape) {
        match dim {
            Dim::Known(declared) if *declared != *size as i64 => return Err(wrong(given())),
            Dim::Expr(_) => {
                let Some(name) = dim.as_symbol() else {
                    continue;
                };
                let (before, by) = symbols
                    .entry(name.to_string())
                    .or_insert_with(|| (*size, port.name.clone()));
                if *before != *size {
                    return Err(RunError::Input(format!(
                        "size '{name}' is {size} in input '{}', but {before} in input '{by}'",
                        port.name
                    )));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .field("steps", &self.program.steps.len())
            .finish_non_exhaustive()
    }
}
