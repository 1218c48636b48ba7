//! The Python submodule `sardonyx._core.generation`: language models and encoders of directories.
//!
//! Every run of a model releases the interpreter. Signals are handled between tokens.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};
use sardonyx::Tensor;
use sardonyx_generate::{
    Classifier, ContextLimit, EmbedOptions, Embedder, FinishReason, GenerateOptions, Generator,
    LoadOptions, Piece, Prompt, TextStream, Tokenizer,
};

use crate::session::PyStopFlag;
use crate::session::errors::{argument_error, new_error, set_attributes, to_exception};
use crate::session::give::to_python;

/// Adds the classes of `sardonyx._core.generation` to `module`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyGenerator>()?;
    module.add_class::<PyGeneration>()?;
    module.add_class::<PyPiece>()?;
    module.add_class::<PyTextStream>()?;
    module.add_class::<PyEmbedder>()?;
    module.add_class::<PyClassifier>()
}

/// Converts an error to an exception with its code, message, place and advice.
fn convert_error(py: Python<'_>, error: sardonyx_generate::Error) -> PyErr {
    let text = error.to_string();
    match error.into_engine() {
        Ok(error) => to_exception(py, &error),
        Err(error) => set_attributes(
            py,
            crate::errors::Error::new_err(text),
            error.kind(),
            error.message(),
            error.place(),
            error.help(),
            Vec::new(),
        ),
    }
}

/// Makes the options of opening from Python arguments.
fn make_load_options(
    model: Option<String>,
    threads: Option<usize>,
    memory_limit: Option<usize>,
) -> LoadOptions {
    let mut options = LoadOptions::new();
    options.model = model;
    options.threads = threads;
    options.memory_limit = memory_limit;
    options
}

/// Converts a tokenizer of the packages `tokenizers` or `transformers`, or the path of a file
/// `tokenizer.json`.
fn convert_tokenizer(given: &Bound<'_, PyAny>) -> PyResult<Tokenizer> {
    let py = given.py();
    // Fast tokenizers of transformers keep one of the package tokenizers.
    let backend = given.getattr("backend_tokenizer").unwrap_or_else(|_| given.clone());
    if let Ok(method) = backend.getattr("to_str") {
        let json: String = method.call0()?.extract()?;
        return Tokenizer::from_bytes(json.as_bytes()).map_err(|error| convert_error(py, error));
    }
    let path: std::path::PathBuf = backend.extract().map_err(|_| {
        PyTypeError::new_err(
            "tokenizer is not a path, a tokenizers.Tokenizer or a fast tokenizer of transformers",
        )
    })?;
    Tokenizer::open(path).map_err(|error| convert_error(py, error))
}

/// Language model of a directory.
#[pyclass(frozen, name = "Generator", module = "sardonyx.generation")]
pub(crate) struct PyGenerator(Generator);

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (directory, *, model=None, threads=None, memory_limit=None, tokenizer=None))]
    fn new(
        py: Python<'_>,
        directory: std::path::PathBuf,
        model: Option<String>,
        threads: Option<usize>,
        memory_limit: Option<usize>,
        tokenizer: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyGenerator> {
        let options = make_load_options(model, threads, memory_limit);
        let opened = py.detach(|| Generator::open_with(directory, &options));
        let mut generator = opened.map_err(|error| convert_error(py, error))?;
        if let Some(tokenizer) = tokenizer {
            let replaced = generator.with_tokenizer(convert_tokenizer(tokenizer)?);
            generator = replaced.map_err(|error| convert_error(py, error))?;
        }
        Ok(PyGenerator(generator))
    }

    /// Continues a prompt, or each of several.
    #[pyo3(signature = (prompt, **options))]
    fn generate<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = self.make_options(py, options)?;
        let prompts = self.convert_prompts(prompt, &options)?;
        let given: Vec<Prompt<'_>> = prompts.list.iter().map(Prompt::from).collect();
        let mut stream = py
            .detach(|| self.0.stream_batch(&given, &options))
            .map_err(|error| convert_error(py, error))?;
        let mut answers: Vec<PyGeneration> = Vec::new();
        answers.resize_with(given.len(), PyGeneration::default);
        for (answer, prompt) in answers.iter_mut().zip(&prompts.list) {
            answer.prompt_tokens = prompt.len();
        }
        while let Some(piece) = advance(py, &mut stream)? {
            let answer = &mut answers[piece.member];
            answer.text += &piece.text;
            answer.tokens.extend(piece.token);
            if let Some(found) = piece.logprob {
                answer.logprobs.push(found.logprob);
                answer.top_logprobs.push(found.top);
            }
            if let Some(reason) = piece.finish_reason {
                answer.finish_reason = reason.name();
            }
        }
        if prompts.is_one {
            let answer = answers.pop().unwrap_or_default();
            return Ok(Bound::new(py, answer)?.into_any());
        }
        Ok(PyList::new(py, answers)?.into_any())
    }

    /// Continues a prompt token by token.
    #[pyo3(signature = (prompt, **options))]
    fn stream(
        &self,
        py: Python<'_>,
        prompt: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyTextStream> {
        let options = self.make_options(py, options)?;
        let prompts = self.convert_prompts(prompt, &options)?;
        let given: Vec<Prompt<'_>> = prompts.list.iter().map(Prompt::from).collect();
        let stream = self.0.stream_batch(&given, &options);
        let stream = stream.map_err(|error| convert_error(py, error))?;
        Ok(PyTextStream(Mutex::new(Some(stream))))
    }

    /// Returns the probability of each token to come after a prompt.
    #[pyo3(signature = (prompt, **options))]
    fn next_probabilities<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let options = self.make_options(py, options)?;
        let prompts = self.convert_prompts(prompt, &options)?;
        let [prompt] = &prompts.list[..] else {
            return Err(argument_error(py, "prompt: expected one prompt", None));
        };
        let found = py.detach(|| self.0.next_probabilities(prompt, &options));
        let found = found.map_err(|error| convert_error(py, error))?;
        give_floats(py, &[found.len()], found)
    }

    /// Converts a text to tokens.
    #[pyo3(signature = (text, add_special_tokens=true))]
    fn encode(&self, py: Python<'_>, text: &str, add_special_tokens: bool) -> PyResult<Vec<u32>> {
        let tokenizer = self.0.tokenizer().map_err(|error| convert_error(py, error))?;
        let tokens = tokenizer.encode(text, add_special_tokens);
        Ok(tokens.map_err(|error| convert_error(py, error))?.ids)
    }

    /// Converts tokens to a text.
    #[pyo3(signature = (tokens, skip_special_tokens=true))]
    fn decode(
        &self,
        py: Python<'_>,
        tokens: Vec<u32>,
        skip_special_tokens: bool,
    ) -> PyResult<String> {
        let tokenizer = self.0.tokenizer().map_err(|error| convert_error(py, error))?;
        let text = tokenizer.decode(&tokens, skip_special_tokens);
        text.map_err(|error| convert_error(py, error))
    }

    /// Returns the text of a conversation by the chat template.
    #[pyo3(signature = (messages, add_generation_prompt=true, **variables))]
    fn apply_chat_template(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        add_generation_prompt: bool,
        variables: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let Some(template) = self.0.chat_template() else {
            return Err(new_error(
                py,
                sardonyx::ErrorKind::Unsupported,
                "the directory has no chat template",
                Some("models without one continue texts: give a prompt in place of messages"),
            ));
        };
        let messages = to_json(messages)?;
        let variables = match variables {
            Some(variables) => match to_json(variables.as_any())? {
                serde_json::Value::Object(variables) => variables,
                _ => serde_json::Map::new(),
            },
            None => serde_json::Map::new(),
        };
        let text = template.render_json(&messages, add_generation_prompt, &variables);
        text.map_err(|error| convert_error(py, error))
    }

    /// Returns the maximum number of tokens of prompt and answer; None without a limit.
    #[getter]
    fn context_length(&self) -> Option<usize> {
        self.0.context_length()
    }

    /// Returns the size of keys and values of one token, in bytes.
    #[getter]
    fn state_bytes_per_token(&self) -> usize {
        self.0.state_bytes_per_token()
    }

    /// Drops the keys and values that a later prompt could reuse.
    fn forget_prefix(&self) {
        self.0.forget_prefix();
    }
}

/// Prompts as tokens.
struct Prompts {
    list: Vec<Vec<u32>>,
    /// Whether one prompt was given, not a list of them.
    is_one: bool,
}

/// Converts a Python value to JSON, through Python's module `json`.
fn to_json(value: &Bound<'_, PyAny>) -> PyResult<serde_json::Value> {
    let text = value.py().import("json")?.call_method1("dumps", (value,))?;
    let text: String = text.extract()?;
    serde_json::from_str(&text)
        .map_err(|error| argument_error(value.py(), format!("messages: {error}"), None))
}

impl PyGenerator {
    /// Converts a prompt: a text, a conversation as a list of dictionaries, tokens, or a list of
    /// texts, conversations or lists of tokens.
    fn convert_prompts(
        &self,
        given: &Bound<'_, PyAny>,
        options: &GenerateOptions,
    ) -> PyResult<Prompts> {
        let is_list = given.cast::<PyList>().is_ok();
        let first = if is_list { given.cast::<PyList>()?.iter().next() } else { None };
        let holds_prompts = first
            .is_some_and(|item| item.is_instance_of::<PyString>() || item.cast::<PyList>().is_ok());
        if !holds_prompts {
            return Ok(Prompts { list: vec![self.convert_prompt(given, options)?], is_one: true });
        }
        let items = given.cast::<PyList>()?.iter();
        let list = items.map(|item| self.convert_prompt(&item, options));
        Ok(Prompts { list: list.collect::<PyResult<_>>()?, is_one: false })
    }

    fn convert_prompt(
        &self,
        given: &Bound<'_, PyAny>,
        options: &GenerateOptions,
    ) -> PyResult<Vec<u32>> {
        let py = given.py();
        if let Ok(text) = given.extract::<String>() {
            return self.encode(py, &text, options.add_special_tokens);
        }
        if let Ok(tokens) = given.extract::<Vec<u32>>() {
            return Ok(tokens);
        }
        let is_conversation = given.try_iter().is_ok_and(|mut items| {
            items.next().is_some_and(|item| item.is_ok_and(|item| item.cast::<PyDict>().is_ok()))
        });
        if is_conversation {
            let text = self.apply_chat_template(py, given, true, None)?;
            return self.encode(py, &text, false);
        }
        Err(PyTypeError::new_err(
            "prompt is not a string, a list of tokens, a list of messages or a list of these",
        ))
    }

    /// Applies Python's keyword arguments to the options that the directory recommends.
    fn make_options(
        &self,
        py: Python<'_>,
        given: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<GenerateOptions> {
        let mut options = self.0.options();
        for (name, value) in given.into_iter().flatten() {
            let name: String = name.extract()?;
            if !set_option(&mut options, &name, &value)? {
                return Err(PyTypeError::new_err(format!("unexpected option '{name}'")));
            }
        }
        if options.seed == 0 && given.is_none_or(|given| !given.contains("seed").unwrap_or(false)) {
            // Python's generator, so that `random.seed` decides.
            options.seed = py.import("random")?.call_method1("getrandbits", (64,))?.extract()?;
        }
        Ok(options)
    }
}

/// Sets the option called `name`; returns whether there is one.
fn set_option(
    options: &mut GenerateOptions,
    name: &str,
    value: &Bound<'_, PyAny>,
) -> PyResult<bool> {
    match name {
        "max_new_tokens" => options.max_new_tokens = value.extract()?,
        "max_length" => {
            options.max_length = value.extract()?;
            if options.max_length.is_some() {
                options.max_new_tokens = None;
            }
        }
        "min_length" => options.min_length = value.extract()?,
        "min_new_tokens" => options.min_new_tokens = value.extract()?,
        "do_sample" => options.do_sample = value.extract()?,
        "temperature" => options.temperature = value.extract()?,
        "top_k" => options.top_k = value.extract::<Option<usize>>()?.unwrap_or(0),
        "top_p" => options.top_p = value.extract::<Option<f32>>()?.unwrap_or(1.0),
        "min_p" => options.min_p = value.extract::<Option<f32>>()?.unwrap_or(0.0),
        "repetition_penalty" => options.repetition_penalty = value.extract()?,
        "frequency_penalty" => options.frequency_penalty = value.extract()?,
        "presence_penalty" => options.presence_penalty = value.extract()?,
        "no_repeat_ngram_size" => options.no_repeat_ngram_size = value.extract()?,
        "bad_words_ids" => options.bad_words_ids = value.extract()?,
        "suppress_tokens" => options.suppress_tokens = value.extract()?,
        "logit_bias" => options.logit_bias = value.extract()?,
        "seed" => options.seed = value.extract()?,
        "eos_token_id" => {
            options.eos_token_id = match value.extract::<u32>() {
                Ok(one) => vec![one],
                Err(_) => value.extract::<Option<Vec<u32>>>()?.unwrap_or_default(),
            }
        }
        "pad_token_id" => options.pad_token_id = value.extract()?,
        "stop_strings" => {
            options.stop_strings = match value.extract::<String>() {
                Ok(one) => vec![one],
                Err(_) => value.extract::<Option<Vec<String>>>()?.unwrap_or_default(),
            }
        }
        "skip_special_tokens" => options.skip_special_tokens = value.extract()?,
        "add_special_tokens" => options.add_special_tokens = value.extract()?,
        "logprobs" => options.logprobs = value.extract()?,
        "reuse_prefix" => options.reuse_prefix = value.extract()?,
        "context" => {
            let context: String = value.extract()?;
            options.context = match context.as_str() {
                "refuse" => ContextLimit::Refuse,
                "slide" => ContextLimit::Slide,
                other => {
                    let what = format!("context is '{other}', which does not exist");
                    return Err(argument_error(
                        value.py(),
                        what,
                        Some("use one of: refuse, slide"),
                    ));
                }
            }
        }
        "timeout" => {
            let seconds: Option<f64> = value.extract()?;
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            options.deadline = duration.and_then(|duration| Instant::now().checked_add(duration));
        }
        "stop" => {
            let flag = value.extract::<Option<PyRef<'_, PyStopFlag>>>()?;
            options.stop = flag.map(|flag| flag.0.clone());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Runs the model for the next piece, without the interpreter; `None` at the end.
fn advance(py: Python<'_>, stream: &mut TextStream) -> PyResult<Option<Piece>> {
    py.check_signals()?;
    let piece = py.detach(|| stream.next()).transpose();
    piece.map_err(|error| convert_error(py, error))
}

/// Wraps an array of floats: for numpy where it is installed.
fn give_floats<'py>(
    py: Python<'py>,
    dims: &[usize],
    values: Vec<f32>,
) -> PyResult<Bound<'py, PyAny>> {
    let tensor = Tensor::from_vec(dims, values);
    let tensor = tensor.map_err(|error| argument_error(py, error, None))?;
    to_python(py, tensor.into())
}

/// Answer to a prompt.
#[pyclass(frozen, get_all, name = "Generation", module = "sardonyx.generation")]
#[derive(Default)]
pub(crate) struct PyGeneration {
    /// Text of the answer, without the prompt.
    text: String,
    /// Tokens of the answer, with the one that ended it.
    tokens: Vec<u32>,
    /// Number of tokens of the prompt.
    prompt_tokens: usize,
    /// Reason for the end of the answer: `end-token`, `stop-string`, `length` or `stopped`.
    finish_reason: &'static str,
    /// Logarithms of the probabilities of the tokens, if `logprobs` is given.
    logprobs: Vec<f32>,
    /// Most likely tokens at each place, with the logarithms of their probabilities.
    top_logprobs: Vec<Vec<(u32, f32)>>,
}

#[pymethods]
impl PyGeneration {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("Generation({:?}, finish_reason='{}')", self.text, self.finish_reason)
    }
}

/// Piece of an answer: a token, and the text that it completes.
#[pyclass(frozen, get_all, name = "Piece", module = "sardonyx.generation")]
pub(crate) struct PyPiece {
    /// Number of the prompt, from 0.
    member: usize,
    /// Token; None if generation was stopped before one.
    token: Option<u32>,
    /// Text of whole characters, which may be empty.
    text: String,
    /// Logarithm of the token's probability, if `logprobs` is given.
    logprob: Option<f32>,
    /// Most likely tokens, with the logarithms of their probabilities.
    top_logprobs: Vec<(u32, f32)>,
    /// Reason for the end of the answer with this piece; None if it goes on.
    finish_reason: Option<&'static str>,
}

#[pymethods]
impl PyPiece {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        let token = self.token.map_or("None".to_string(), |token| token.to_string());
        format!("Piece({token}, {:?})", self.text)
    }
}

/// Iterator over the pieces of answers. Dropping it ends generation.
#[pyclass(frozen, name = "TextStream", module = "sardonyx.generation")]
pub(crate) struct PyTextStream(Mutex<Option<TextStream>>);

#[pymethods]
impl PyTextStream {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyPiece>> {
        // Another thread may be in a run, which needs the interpreter at its end.
        let taken = self.0.try_lock().ok().and_then(|mut stream| stream.take());
        let Some(mut stream) = taken else {
            return Ok(None);
        };
        let found = advance(py, &mut stream);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        let Some(piece) = found? else {
            return Ok(None);
        };
        let (logprob, top_logprobs) = match piece.logprob {
            Some(found) => (Some(found.logprob), found.top),
            None => (None, Vec::new()),
        };
        Ok(Some(PyPiece {
            member: piece.member,
            token: piece.token,
            text: piece.text,
            logprob,
            top_logprobs,
            finish_reason: piece.finish_reason.map(FinishReason::name),
        }))
    }

    /// Ends generation.
    fn close(&self) {
        if let Ok(mut stream) = self.0.try_lock() {
            *stream = None;
        }
    }
}

/// Encoder of a directory that gives vectors.
#[pyclass(frozen, name = "Embedder", module = "sardonyx.generation")]
pub(crate) struct PyEmbedder(Embedder);

/// Counts the characters before a byte of a text, as Python counts no bytes.
fn count_characters(text: &str, end: usize) -> usize {
    text.get(..end).map_or(0, |part| part.chars().count())
}

/// Reads a list of texts, or one.
fn convert_texts(given: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match given.extract::<String>() {
        Ok(one) => Ok(vec![one]),
        Err(_) => given.extract(),
    }
}

#[pymethods]
impl PyEmbedder {
    #[new]
    #[pyo3(signature = (directory, *, model=None, threads=None, memory_limit=None, max_length=None))]
    fn new(
        py: Python<'_>,
        directory: std::path::PathBuf,
        model: Option<String>,
        threads: Option<usize>,
        memory_limit: Option<usize>,
        max_length: Option<usize>,
    ) -> PyResult<PyEmbedder> {
        let mut options = make_load_options(model, threads, memory_limit);
        options.max_length = max_length;
        let opened = py.detach(|| Embedder::open_with(directory, &options));
        opened.map(PyEmbedder).map_err(|error| convert_error(py, error))
    }

    /// Converts texts to an array of vectors, or one text to a vector.
    #[pyo3(signature = (texts, *, prompt_name=None, prompt=None, normalize=None, truncate_dim=None, batch_size=32, stop=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn embed<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
        prompt_name: Option<String>,
        prompt: Option<String>,
        normalize: Option<bool>,
        truncate_dim: Option<usize>,
        batch_size: usize,
        stop: Option<PyRef<'py, PyStopFlag>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut options = EmbedOptions::default();
        options.prompt_name = prompt_name;
        options.prompt = prompt;
        options.normalize = normalize;
        options.truncate_dim = truncate_dim;
        options.batch_size = batch_size;
        options.stop = stop.map(|stop| stop.0.clone());
        let is_one = texts.is_instance_of::<PyString>();
        let texts = convert_texts(texts)?;
        let vectors = py.detach(|| self.0.embed(&texts, &options));
        let vectors = vectors.map_err(|error| convert_error(py, error))?;
        let size = vectors.first().map_or(0, Vec::len);
        let count = vectors.len();
        let flat: Vec<f32> = vectors.into_iter().flatten().collect();
        if is_one { give_floats(py, &[size], flat) } else { give_floats(py, &[count, size], flat) }
    }

    /// Returns the maximum number of tokens of a text; None without a limit.
    #[getter]
    fn max_length(&self) -> Option<usize> {
        self.0.max_length()
    }

    /// Returns how the vectors of a text's tokens are combined, such as `mean`.
    #[getter]
    fn pooling(&self) -> &'static str {
        self.0.pooling().name()
    }
}

/// Encoder of a directory that gives labels.
#[pyclass(frozen, name = "Classifier", module = "sardonyx.generation")]
pub(crate) struct PyClassifier(Classifier);

#[pymethods]
impl PyClassifier {
    #[new]
    #[pyo3(signature = (directory, *, model=None, threads=None, memory_limit=None, max_length=None))]
    fn new(
        py: Python<'_>,
        directory: std::path::PathBuf,
        model: Option<String>,
        threads: Option<usize>,
        memory_limit: Option<usize>,
        max_length: Option<usize>,
    ) -> PyResult<PyClassifier> {
        let mut options = make_load_options(model, threads, memory_limit);
        options.max_length = max_length;
        let opened = py.detach(|| Classifier::open_with(directory, &options));
        opened.map(PyClassifier).map_err(|error| convert_error(py, error))
    }

    /// Returns the labels of each text with their probabilities, the most likely one first.
    fn classify<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Vec<Bound<'py, PyDict>>>> {
        let texts = convert_texts(texts)?;
        let found = py.detach(|| self.0.classify(&texts));
        let found = found.map_err(|error| convert_error(py, error))?;
        let texts = found.into_iter().map(|labels| {
            let labels = labels.into_iter().map(|label| {
                let item = PyDict::new(py);
                item.set_item("label", label.label)?;
                item.set_item("score", label.score)?;
                Ok(item)
            });
            labels.collect()
        });
        texts.collect()
    }

    /// Returns how well each document answers a query, from 0 to 1.
    fn rerank<'py>(
        &self,
        py: Python<'py>,
        query: &str,
        documents: Vec<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let scores = py.detach(|| self.0.rerank(query, &documents));
        let scores = scores.map_err(|error| convert_error(py, error))?;
        give_floats(py, &[scores.len()], scores)
    }

    /// Returns the labelled spans of each text, with the places of their characters.
    fn find_spans<'py>(
        &self,
        py: Python<'py>,
        texts: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Vec<Bound<'py, PyDict>>>> {
        let texts = convert_texts(texts)?;
        let found = py.detach(|| self.0.find_spans(&texts));
        let found = found.map_err(|error| convert_error(py, error))?;
        let answers = found.into_iter().zip(&texts).map(|(spans, text)| {
            let spans = spans.into_iter().map(|span| {
                let item = PyDict::new(py);
                item.set_item("text", text.get(span.start..span.end))?;
                item.set_item("start", count_characters(text, span.start))?;
                item.set_item("end", count_characters(text, span.end))?;
                item.set_item("label", span.label)?;
                item.set_item("score", span.score)?;
                Ok(item)
            });
            spans.collect()
        });
        answers.collect()
    }
}
