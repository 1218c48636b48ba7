//! Inference functions that Python code set.
//!
//! Inference runs in a thread of its own while such functions are registered, and the thread that
//! Python called from runs them: the two take turns. So a function of Python may ask for more, and
//! inference of a graph inside of a node that it asks for may call further functions. Neither side
//! holds anything of the other.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use sardonyx_model::{Model, NodeId, Part, Producer, ValueId};
use sardonyx_ops::{Infer, InferError, Inferred, Known, Registry, Schema};
use sardonyx_passes::{RuleAnswer, Rules};

use super::context::InferenceContext;
use super::protos;
use crate::errors::InferenceError;
use crate::registry::Key;

/// Inference functions by operator.
pub(crate) type Functions = HashMap<Key, Arc<Py<PyAny>>>;

/// Bytes of stack of the thread that infers: as many as main threads have.
const STACK: usize = 8 << 20;

/// Runs inference with functions of Python as rules.
///
/// # Errors
///
/// The exception that one of them raised.
pub(crate) fn with_functions<R: Send>(
    py: Python<'_>,
    registry: &Registry,
    functions: &Functions,
    infer: impl FnOnce(Option<&dyn Rules>) -> R + Send,
) -> PyResult<R> {
    if functions.is_empty() {
        return Ok(py.detach(|| infer(None)));
    }
    let (to_python, from_engine) = channel();
    let (to_engine, from_python) = channel();
    let rules = Asking {
        registry: registry.clone(),
        keys: functions.keys().copied().collect(),
        to_python,
        from_python,
        stopped: Cell::new(false),
    };
    let line = Arc::new(Line {
        to_engine: Mutex::new(to_engine),
        from_engine: Mutex::new(from_engine),
        depth: AtomicUsize::new(0),
        owner: thread::current().id(),
        raised: Mutex::new(None),
        functions: functions.iter().map(|(key, function)| (*key, Arc::clone(function))).collect(),
    });
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK);
        let engine = builder.spawn_scoped(scope, move || infer(Some(&rules)))?;
        // The line ends with the thread, and so do the questions.
        while line.answer(py).is_some() {}
        let result = py.detach(|| engine.join());
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        match lock(&line.raised).take() {
            Some(raised) => Err(raised),
            None => Ok(result),
        }
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What inference says to Python.
enum ToPython {
    /// Call the function of an operator for a node.
    Call(Key, Facts),
    /// The message that was asked for.
    Attribute(Option<Vec<u8>>),
    /// Types of outputs, as TypeProtos.
    Types(Result<Vec<Vec<u8>>, String>),
}

/// What Python says to inference.
enum ToEngine {
    /// What is the attribute?
    Attribute(String),
    /// What are the types of the outputs of a graph that is an attribute?
    Graph(String, Vec<Vec<u8>>),
    /// What does the rule of an operator of the standard say?
    Rule(Key),
    /// The function has returned, with these types of outputs; or it raised an exception.
    Done(Option<Vec<Vec<u8>>>),
}

/// What a function of Python may know of a node, as messages.
pub(super) struct Facts {
    pub(super) name: String,
    /// By input, as the fields that follow.
    pub(super) types: Vec<Option<Vec<u8>>>,
    pub(super) data: Vec<Option<Vec<u8>>>,
    pub(super) sparse_data: Vec<Option<Vec<u8>>>,
    pub(super) symbolic: Vec<Option<Vec<u8>>>,
    pub(super) has_input: Vec<bool>,
    pub(super) has_output: Vec<bool>,
}

impl Facts {
    fn of(model: &Model, node: NodeId, cx: &Infer<'_>) -> Facts {
        let inputs = 0..model.inputs(node).len();
        let found = model.node(node);
        let op = model.display(found.op_type);
        let mut name = format!("node {op}");
        let domain = model.display(found.domain);
        if !domain.is_empty() {
            name += &format!("[{domain}]");
        }
        let own = model.display(found.name);
        if !own.is_empty() {
            name += &format!(" ({own})");
        }
        Facts {
            name,
            types: inputs
                .clone()
                .map(|index| Some(protos::type_message(Some(cx.input(index)?))))
                .collect(),
            data: inputs
                .clone()
                .map(|index| match cx.known(index)? {
                    Known::Tensor(tensor) => Some(protos::tensor_message(tensor.clone())),
                    Known::Ints { .. } => None,
                })
                .collect(),
            sparse_data: inputs
                .clone()
                .map(|index| sparse_constant(model, model.inputs(node).nth(index)??))
                .collect(),
            symbolic: inputs
                .clone()
                .map(|index| match cx.known(index)? {
                    Known::Tensor(_) => None,
                    Known::Ints { values, .. } => Some(protos::shape_message(values)),
                })
                .collect(),
            has_input: inputs.map(|index| cx.has_input(index)).collect(),
            has_output: model.outputs(node).iter().map(Option::is_some).collect(),
        }
    }
}

/// A value that is a sparse constant, as a SparseTensorProto.
fn sparse_constant(model: &Model, value: ValueId) -> Option<Vec<u8>> {
    let value = model.value(value);
    let Producer::SparseInitializer(index) = value.producer else {
        return None;
    };
    let constants = &model.graph(value.graph).sparse_initializers;
    let tensor = &constants.get(index as usize)?.tensor;
    Some(model.part_to_bytes(Part::SparseTensor(tensor)))
}

/// The side of Python.
pub(super) struct Line {
    to_engine: Mutex<Sender<ToEngine>>,
    from_engine: Mutex<Receiver<ToPython>>,
    /// Functions that run, one within the other.
    depth: AtomicUsize,
    /// The thread in which they run.
    owner: ThreadId,
    /// The exception of one that failed, until somebody takes it.
    raised: Mutex<Option<PyErr>>,
    functions: Functions,
}

impl Line {
    /// What inference answers; functions that it asks for are called in the meantime. `None` when
    /// it has come to its end.
    fn answer(self: &Arc<Line>, py: Python<'_>) -> Option<ToPython> {
        loop {
            let said = py.detach(|| lock(&self.from_engine).recv());
            match said.ok()? {
                ToPython::Call(key, facts) => {
                    let outputs = self.call(py, key, facts);
                    let done = outputs.map_err(|raised| *lock(&self.raised) = Some(raised));
                    self.say(ToEngine::Done(done.ok()));
                }
                answer => return Some(answer),
            }
        }
    }

    fn call(self: &Arc<Line>, py: Python<'_>, key: Key, facts: Facts) -> PyResult<Vec<Vec<u8>>> {
        let depth = 1 + self.depth.fetch_add(1, Ordering::SeqCst);
        let context = InferenceContext::new(facts, Arc::clone(self), depth);
        let result = Bound::new(py, context).and_then(|context| {
            let function = &self.functions[&key];
            function.bind(py).call1((&context,))?;
            Ok(context.get().outputs())
        });
        self.depth.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn say(&self, words: ToEngine) {
        // Who does not listen any more has ended, which the next answer tells.
        let _ = lock(&self.to_engine).send(words);
    }

    fn ask(self: &Arc<Line>, py: Python<'_>, depth: usize, words: ToEngine) -> PyResult<ToPython> {
        let is_running = depth == self.depth.load(Ordering::SeqCst);
        if !is_running || thread::current().id() != self.owner {
            return Err(PyRuntimeError::new_err(
                "the context of an inference function is for the time and the thread in which that runs",
            ));
        }
        self.say(words);
        let answer = self.answer(py);
        if let Some(raised) = lock(&self.raised).take() {
            return Err(raised);
        }
        answer.ok_or_else(|| PyRuntimeError::new_err("shape inference has ended"))
    }

    /// An attribute of the node of a function at a depth, as an AttributeProto.
    pub(super) fn attribute(
        self: &Arc<Line>,
        py: Python<'_>,
        depth: usize,
        name: &str,
    ) -> PyResult<Option<Vec<u8>>> {
        match self.ask(py, depth, ToEngine::Attribute(name.to_string()))? {
            ToPython::Attribute(found) => Ok(found),
            ToPython::Call(..) | ToPython::Types(_) => Ok(None),
        }
    }

    /// Types of the outputs of a graph that is an attribute, for types of its inputs.
    pub(super) fn graph(
        self: &Arc<Line>,
        py: Python<'_>,
        depth: usize,
        attribute: &str,
        inputs: Vec<Vec<u8>>,
    ) -> PyResult<Vec<Vec<u8>>> {
        self.types(py, depth, ToEngine::Graph(attribute.to_string(), inputs))
    }

    /// What the rule of an operator of the standard says of the outputs.
    pub(super) fn rule(
        self: &Arc<Line>,
        py: Python<'_>,
        depth: usize,
        key: Key,
    ) -> PyResult<Vec<Vec<u8>>> {
        self.types(py, depth, ToEngine::Rule(key))
    }

    fn types(
        self: &Arc<Line>,
        py: Python<'_>,
        depth: usize,
        question: ToEngine,
    ) -> PyResult<Vec<Vec<u8>>> {
        match self.ask(py, depth, question)? {
            ToPython::Types(types) => types.map_err(InferenceError::new_err),
            ToPython::Call(..) | ToPython::Attribute(_) => Ok(Vec::new()),
        }
    }
}

/// The side of inference: functions of Python as rules.
struct Asking {
    registry: Registry,
    /// The operators that have one.
    keys: HashSet<Key>,
    to_python: Sender<ToPython>,
    from_python: Receiver<ToEngine>,
    /// Whether one has raised an exception, after which there is nothing more to do.
    stopped: Cell<bool>,
}

impl Rules for Asking {
    fn infer(
        &self,
        model: &Model,
        node: NodeId,
        schema: &Schema,
        cx: &mut Infer<'_>,
    ) -> RuleAnswer {
        let key = (schema.domain, schema.name, schema.since);
        if !self.keys.contains(&key) {
            return RuleAnswer::NoRule;
        }
        let done = if self.stopped.get() { None } else { self.call(key, model, node, cx) };
        match done {
            Some(()) => RuleAnswer::Said,
            None => {
                // The exception says what there is to say.
                self.stopped.set(true);
                RuleAnswer::Failed
            }
        }
    }
}

impl Asking {
    /// Has a function called, and answers what it asks. `None` if it raised an exception.
    fn call(&self, key: Key, model: &Model, node: NodeId, cx: &mut Infer<'_>) -> Option<()> {
        let facts = Facts::of(model, node, cx);
        self.to_python.send(ToPython::Call(key, facts)).ok()?;
        loop {
            let answer = match self.from_python.recv().ok()? {
                ToEngine::Attribute(name) => ToPython::Attribute(attribute(model, node, &name, cx)),
                ToEngine::Graph(name, inputs) => {
                    ToPython::Types(self.graph(&name, &inputs, cx).map_err(|error| error.0))
                }
                ToEngine::Rule(key) => ToPython::Types(self.rule(key, cx).map_err(|error| error.0)),
                ToEngine::Done(outputs) => {
                    for (index, ty) in protos::read_types(&outputs?).into_iter().enumerate() {
                        if let Some(ty) = ty {
                            cx.set(index, ty);
                        }
                    }
                    return Some(());
                }
            };
            self.to_python.send(answer).ok()?;
        }
    }

    fn graph(
        &self,
        attribute: &str,
        inputs: &[Vec<u8>],
        cx: &Infer<'_>,
    ) -> Result<Vec<Vec<u8>>, InferError> {
        let inputs = protos::read_types(inputs).into_iter();
        let inputs: Vec<Inferred> = inputs.map(|ty| Inferred { ty, known: None }).collect();
        let found = cx.subgraph(attribute, &inputs);
        // The function that asked is told, and may go on.
        self.stopped.set(false);
        let outputs = found?.unwrap_or_default();
        Ok(outputs.iter().map(|output| protos::type_message(output.ty.as_ref())).collect())
    }

    fn rule(&self, key: Key, cx: &Infer<'_>) -> Result<Vec<Vec<u8>>, InferError> {
        let (domain, name, since) = key;
        let operator = self.registry.operator(domain, name);
        let rule = operator.and_then(|operator| operator.inference_at(since));
        let (Some(schema), Some(rule)) = (self.registry.schema(domain, name, since), rule) else {
            return Ok(Vec::new());
        };
        let said = cx.by_rule_of(schema, rule);
        self.stopped.set(false);
        let types = said?.types;
        Ok(types.iter().map(|ty| protos::type_message(ty.as_ref())).collect())
    }
}

/// An attribute as a message. What a function of the model refers to is what its caller gives.
fn attribute(model: &Model, node: NodeId, name: &str, cx: &Infer<'_>) -> Option<Vec<u8>> {
    let attribute = model.attribute_of(node, name)?;
    let reference = model.maybe_text(attribute.ref_attr_name());
    if reference.is_some_and(|reference| !reference.is_empty()) {
        let value = cx.attribute(name)?;
        return Some(protos::attribute_message(model, name, &value));
    }
    Some(model.part_to_bytes(Part::Attribute(attribute)))
}
