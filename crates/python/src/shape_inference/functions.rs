//! Inference functions that Python code registered.
//!
//! While such functions exist, inference runs in a thread of its own, and the calling thread runs
//! the Python functions: one of the two threads waits for the other at any time. So a Python
//! function may query the inference thread, and inferring a subgraph for it may call further Python
//! functions. The threads share no locks.

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

/// Inference functions of Python code, by operator.
pub(crate) type Functions = HashMap<Key, Arc<Py<PyAny>>>;

/// Stack size of the inference thread in bytes, the usual size for a main thread.
const STACK: usize = 8 << 20;

/// Calls `infer` with rules in which the Python inference functions `functions` take precedence
/// over the built-in rules.
///
/// # Errors
///
/// The exception that one of the functions raised.
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
    let rules = PythonRules {
        registry: registry.clone(),
        keys: functions.keys().copied().collect(),
        to_python,
        from_python,
        stopped: Cell::new(false),
    };
    let link = Arc::new(InferenceLink {
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
        // Runs functions until the inference thread has ended and so closed its channel.
        while link.wait_for_reply(py).is_some() {}
        let result = py.detach(|| engine.join());
        let result = result.unwrap_or_else(|panic| resume_unwind(panic));
        match lock(&link.raised).take() {
            Some(raised) => Err(raised),
            None => Ok(result),
        }
    })
}

/// Locks a mutex and ignores poisoning: the values stay consistent when a thread panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Message from the inference thread to the Python thread.
enum ToPython {
    /// Request to call the function of an operator for a node.
    Call(Key, NodeFacts),
    /// Reply with a serialized AttributeProto; `None` if the node does not have the attribute.
    Attribute(Option<Vec<u8>>),
    /// Reply with serialized TypeProtos of outputs, or with an error message.
    Types(Result<Vec<Vec<u8>>, String>),
}

/// Message from the Python thread to the inference thread.
enum ToEngine {
    /// Query for an attribute of the node.
    Attribute(String),
    /// Query for the output types of a subgraph: the name of the attribute, and input types.
    Graph(String, Vec<Vec<u8>>),
    /// Query for the output types by the rule of a standard operator.
    Rule(Key),
    /// Return of the inference function, with the output types, or `None` after an exception.
    Done(Option<Vec<Vec<u8>>>),
}

/// Inputs and outputs of a node for an inference function, as serialized messages.
pub(super) struct NodeFacts {
    /// Text that identifies the node in messages.
    pub(super) name: String,
    /// Type of each input, as a TypeProto.
    pub(super) types: Vec<Option<Vec<u8>>>,
    /// Value of each constant input, as a TensorProto.
    pub(super) data: Vec<Option<Vec<u8>>>,
    /// Value of each constant sparse input, as a SparseTensorProto.
    pub(super) sparse_data: Vec<Option<Vec<u8>>>,
    /// Elements that inference has computed for each input, as a TensorShapeProto.
    pub(super) symbolic: Vec<Option<Vec<u8>>>,
    /// Whether each input is present.
    pub(super) has_input: Vec<bool>,
    /// Whether each output is present.
    pub(super) has_output: Vec<bool>,
}

impl NodeFacts {
    /// Serializes the types and constants of a node's inputs, and lists which inputs and outputs
    /// the node has.
    fn from_node(node: &NodeTypes<'_, '_>) -> NodeFacts {
        let inputs = 0..node.input_count();
        let types = inputs.clone().map(|index| Some(type_to_bytes(Some(node.input(index)?))));
        let data = inputs.clone().map(|index| {
            let constant = node.constant(index)?.clone();
            write_value(&constant.into(), "").ok()
        });
        let sparse_data = inputs.clone().map(|index| node.sparse_constant(index));
        let symbolic = inputs.clone().map(|index| Some(shape_to_bytes(node.sizes(index)?)));
        NodeFacts {
            name: node.describe(),
            types: types.collect(),
            data: data.collect(),
            sparse_data: sparse_data.collect(),
            symbolic: symbolic.collect(),
            has_input: inputs.clone().map(|index| node.has_input(index)).collect(),
            has_output: node.outputs().collect(),
        }
    }
}

/// Python thread's end of the channels to the inference thread.
pub(super) struct InferenceLink {
    to_engine: Mutex<Sender<ToEngine>>,
    from_engine: Mutex<Receiver<ToPython>>,
    /// Number of inference functions that are running, nested in each other.
    depth: AtomicUsize,
    /// Thread in which the inference functions run.
    owner: ThreadId,
    /// Exception that an inference function raised, until a caller takes it.
    raised: Mutex<Option<PyErr>>,
    /// Inference functions by operator.
    functions: Functions,
}

impl InferenceLink {
    /// Waits for a reply of the inference thread, and runs the functions that it requests
    /// meanwhile. `None` once that thread has ended.
    fn wait_for_reply(self: &Arc<InferenceLink>, py: Python<'_>) -> Option<ToPython> {
        loop {
            let message = py.detach(|| lock(&self.from_engine).recv());
            match message.ok()? {
                ToPython::Call(key, facts) => {
                    let outputs = self.call(py, key, facts);
                    let done = outputs.map_err(|raised| *lock(&self.raised) = Some(raised));
                    self.send(ToEngine::Done(done.ok()));
                }
                answer => return Some(answer),
            }
        }
    }

    /// Calls the Python inference function of an operator and returns the output types that it has
    /// set.
    fn call(
        self: &Arc<InferenceLink>,
        py: Python<'_>,
        key: Key,
        facts: NodeFacts,
    ) -> PyResult<Vec<Vec<u8>>> {
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

    /// Sends a message to the inference thread.
    fn send(&self, words: ToEngine) {
        // An error means that the inference thread has ended; the next receive reports that.
        let _ = lock(&self.to_engine).send(words);
    }

    /// Sends a query for the function at a nesting depth and returns the reply.
    ///
    /// # Errors
    ///
    /// `RuntimeError` if that function is not the innermost running one, or is used from another
    /// thread; the exception of a nested function.
    fn send_query(
        self: &Arc<InferenceLink>,
        py: Python<'_>,
        depth: usize,
        words: ToEngine,
    ) -> PyResult<ToPython> {
        let is_running = depth == self.depth.load(Ordering::SeqCst);
        if !is_running || thread::current().id() != self.owner {
            return Err(PyRuntimeError::new_err(
                "the InferenceContext is used after its inference function has returned, or in another thread",
            ));
        }
        self.send(words);
        let answer = self.wait_for_reply(py);
        if let Some(raised) = lock(&self.raised).take() {
            return Err(raised);
        }
        answer.ok_or_else(|| {
            PyRuntimeError::new_err("shape inference ended before it answered the InferenceContext")
        })
    }

    /// Returns an attribute of the node as a serialized AttributeProto; `None` if the node does not
    /// have it.
    ///
    /// # Errors
    ///
    /// The errors of [`InferenceLink::send_query`].
    pub(super) fn query_attribute(
        self: &Arc<InferenceLink>,
        py: Python<'_>,
        depth: usize,
        name: &str,
    ) -> PyResult<Option<Vec<u8>>> {
        match self.send_query(py, depth, ToEngine::Attribute(name.to_string()))? {
            ToPython::Attribute(found) => Ok(found),
            ToPython::Call(..) | ToPython::Types(_) => Ok(None),
        }
    }

    /// Infers the subgraph in an attribute for these input types and returns its output types, as
    /// serialized TypeProtos.
    ///
    /// # Errors
    ///
    /// `InferenceError` if inference fails; those of [`InferenceLink::send_query`].
    pub(super) fn infer_subgraph(
        self: &Arc<InferenceLink>,
        py: Python<'_>,
        depth: usize,
        attribute: &str,
        inputs: Vec<Vec<u8>>,
    ) -> PyResult<Vec<Vec<u8>>> {
        self.query_types(py, depth, ToEngine::Graph(attribute.to_string(), inputs))
    }

    /// Infers the output types of the node by the rule of a standard operator.
    ///
    /// # Errors
    ///
    /// `InferenceError` if the rule fails; those of [`InferenceLink::send_query`].
    pub(super) fn infer_by_rule(
        self: &Arc<InferenceLink>,
        py: Python<'_>,
        depth: usize,
        key: Key,
    ) -> PyResult<Vec<Vec<u8>>> {
        self.query_types(py, depth, ToEngine::Rule(key))
    }

    /// Sends a query whose reply is a list of types.
    fn query_types(
        self: &Arc<InferenceLink>,
        py: Python<'_>,
        depth: usize,
        question: ToEngine,
    ) -> PyResult<Vec<Vec<u8>>> {
        match self.send_query(py, depth, question)? {
            ToPython::Types(types) => types.map_err(InferenceError::new_err),
            ToPython::Call(..) | ToPython::Attribute(_) => Ok(Vec::new()),
        }
    }
}

/// Inference thread's end of the channels, which serves as inference rules.
struct PythonRules {
    registry: Registry,
    /// Operators with an inference function.
    keys: HashSet<Key>,
    to_python: Sender<ToPython>,
    from_python: Receiver<ToEngine>,
    /// Whether an inference function has raised an exception, so that no further functions are
    /// called.
    stopped: Cell<bool>,
}

impl InferRules for PythonRules {
    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let schema = node.schema();
        let key = (schema.domain, schema.name, schema.since);
        if !self.keys.contains(&key) {
            return RuleAnswer::NoRule;
        }
        let done = if self.stopped.get() { None } else { self.call(key, node) };
        match done {
            Some(()) => RuleAnswer::Inferred,
            None => {
                // The caller raises the exception of the function.
                self.stopped.set(true);
                RuleAnswer::Failed
            }
        }
    }
}

impl PythonRules {
    /// Requests a call of the Python inference function of an operator and answers the queries of
    /// the function. `None` if the function raised an exception.
    fn call(&self, key: Key, node: &mut NodeTypes<'_, '_>) -> Option<()> {
        self.to_python.send(ToPython::Call(key, NodeFacts::from_node(node))).ok()?;
        loop {
            let answer = match self.from_python.recv().ok()? {
                ToEngine::Attribute(name) => ToPython::Attribute(node.attribute(&name)),
                ToEngine::Graph(name, inputs) => {
                    self.to_reply(node.graph_outputs(&name, types_from_bytes(&inputs)))
                }
                ToEngine::Rule((domain, operator, version)) => {
                    self.to_reply(node.infer_by_rule(&self.registry, domain, operator, version))
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

    /// Converts inferred types to a reply for the Python thread. The inference function receives an
    /// error as an exception and may catch it, so inference is not stopped any more.
    fn to_reply(&self, types: Result<Vec<Option<Type>>, String>) -> ToPython {
        self.stopped.set(false);
        ToPython::Types(
            types.map(|types| types.iter().map(|ty| type_to_bytes(ty.as_ref())).collect()),
        )
    }
}
