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
use sardonyx::Type;
use sardonyx::io::write_value;
use sardonyx::ops::{NodeTypes, RuleAnswer};
use sardonyx::tool::infer::InferRules;
use sardonyx::tool::message::{shape_to_bytes, type_to_bytes, types_from_bytes};
use sardonyx::tool::schema::Registry;

use super::context::InferenceContext;
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
    infer: impl FnOnce(Option<&dyn InferRules>) -> R + Send,
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
    fn of(node: &NodeTypes<'_, '_>) -> Facts {
        let inputs = 0..node.input_count();
        let each = |fact: &dyn Fn(usize) -> Option<Vec<u8>>| inputs.clone().map(fact).collect();
        Facts {
            name: node.describe(),
            types: each(&|index| Some(type_to_bytes(Some(node.input(index)?)))),
            data: each(&|index| write_value(&node.constant(index)?.clone().into(), "").ok()),
            sparse_data: each(&|index| node.sparse_constant(index)),
            symbolic: each(&|index| Some(shape_to_bytes(node.sizes(index)?))),
            has_input: inputs.clone().map(|index| node.has_input(index)).collect(),
            has_output: node.outputs().collect(),
        }
    }
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

impl InferRules for Asking {
    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let schema = node.schema();
        let key = (schema.domain, schema.name, schema.since);
        if !self.keys.contains(&key) {
            return RuleAnswer::NoRule;
        }
        let done = if self.stopped.get() { None } else { self.call(key, node) };
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
    fn call(&self, key: Key, node: &mut NodeTypes<'_, '_>) -> Option<()> {
        self.to_python.send(ToPython::Call(key, Facts::of(node))).ok()?;
        loop {
            let answer = match self.from_python.recv().ok()? {
                ToEngine::Attribute(name) => ToPython::Attribute(node.attribute(&name)),
                ToEngine::Graph(name, inputs) => {
                    self.told(node.graph_outputs(&name, types_from_bytes(&inputs)))
                }
                ToEngine::Rule((domain, operator, version)) => {
                    self.told(node.infer_by_rule(&self.registry, domain, operator, version))
                }
                ToEngine::Done(outputs) => {
                    for (index, ty) in types_from_bytes(&outputs?).into_iter().enumerate() {
                        if let Some(ty) = ty {
                            node.set_output(index, ty);
                        }
                    }
                    return Some(());
                }
            };
            self.to_python.send(answer).ok()?;
        }
    }

    /// Types as an answer. The function that asked is told, and may go on.
    fn told(&self, types: Result<Vec<Option<Type>>, String>) -> ToPython {
        self.stopped.set(false);
        ToPython::Types(
            types.map(|types| types.iter().map(|ty| type_to_bytes(ty.as_ref())).collect()),
        )
    }
}
