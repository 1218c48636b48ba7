//! State that stays between runs: outputs that become inputs of the next run.

use sardonyx_model::Type;
use sardonyx_runtime::{Input, KeptPorts, KeptState, Port, RunOptions, StatePorts, StateUse};
use sardonyx_tensor::{DataType, Tensor, Value};

use crate::error::{Error, ErrorKind};
use crate::outputs::Outputs;
use crate::runner::collect_inputs;
use crate::session::Session;

/// Prefixes of inputs that are state, with those of their outputs.
const PREFIXES: [(&str, &[&str]); 3] = [
    ("past_key_values", &["present", "present_key_values"]),
    ("past", &["present"]),
    ("cache_in", &["cache_out"]),
];

/// Parts of the names of dimensions that count positions.
const POSITION_NAMES: [&str; 4] = ["past", "seq", "len", "total"];

/// An output and the input that it becomes in the next run, such as `present.0.key` and
/// `past_key_values.0.key`.
///
/// ```
/// use sardonyx::run::StatePair;
///
/// let pair = StatePair::new("keys_in", "keys_out").first_dims([2, 8, 0, 64]);
/// assert_eq!(pair.input(), "keys_in");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatePair {
    input: String,
    output: String,
    dims: Option<Vec<usize>>,
    axis: Option<usize>,
    batch_axis: Option<usize>,
}

impl StatePair {
    /// Pairs an input with the output that becomes its next value.
    pub fn new(input: impl Into<String>, output: impl Into<String>) -> StatePair {
        StatePair {
            input: input.into(),
            output: output.into(),
            dims: None,
            axis: None,
            batch_axis: None,
        }
    }

    /// Sets the dims of the input before the first run. By default they follow from its type: the
    /// axis of rows is 0, the first open axis is the batch.
    #[must_use]
    pub fn first_dims(mut self, dims: impl Into<Vec<usize>>) -> StatePair {
        self.dims = Some(dims.into());
        self
    }

    /// Sets the axis of rows, which [`SessionState::truncate`] cuts. It is found where runs append
    /// to the input.
    #[must_use]
    pub fn axis(mut self, axis: usize) -> StatePair {
        self.axis = Some(axis);
        self
    }

    /// Sets the axis of sequences, of which [`SessionState::select`] keeps some. By default it is
    /// the axis whose name contains `batch`, or else the first one if its size is open.
    #[must_use]
    pub fn batch_axis(mut self, axis: usize) -> StatePair {
        self.batch_axis = Some(axis);
        self
    }

    /// Returns the name of the input.
    pub fn input(&self) -> &str {
        &self.input
    }

    /// Returns the name of the output.
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Returns the indices of the input and the output.
    pub(crate) fn find_ports(&self, session: &Session) -> Result<StatePorts, Error> {
        let input = find_port(session.inputs(), "input", &self.input)?;
        Ok(StatePorts { input, output: find_port(session.outputs(), "output", &self.output)? })
    }

    /// Makes the error for a pair that cannot be kept.
    fn refuse(&self, why: &str) -> Error {
        Error::new(ErrorKind::Argument, format!("the state '{}': {why}", self.input))
    }

    /// Finds pairs by names and types: `past_key_values.0.key` with `present.0.key`, `past_0` with
    /// `present_0`, `cache_in` with `cache_out`, and the like. Both are tensors of one element type
    /// and one rank.
    ///
    /// ```
    /// # use sardonyx::{Model, run::StatePair};
    /// let model = Model::from_text(
    ///     "<ir_version: 11, opset_import: [\"\": 21]>
    ///      g (float[1, 4] x, float[p, 4] past_0) => (float[q, 4] present_0) {
    ///          present_0 = Concat <axis = 0> (past_0, x)
    ///      }",
    /// )?;
    /// let pairs = StatePair::find(&model.inputs(), &model.outputs());
    /// assert_eq!(pairs, [StatePair::new("past_0", "present_0")]);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn find(inputs: &[Port], outputs: &[Port]) -> Vec<StatePair> {
        let pairs = inputs.iter().filter_map(|input| {
            let output = find_present(input, outputs)?;
            Some(StatePair::new(input.name(), output))
        });
        pairs.collect()
    }
}

/// Returns the index of an input or output.
fn find_port(ports: &[Port], what: &str, name: &str) -> Result<usize, Error> {
    let found = ports.iter().position(|port| port.name() == name);
    found.ok_or_else(|| {
        let error = Error::new(ErrorKind::Argument, format!("the model has no {what} '{name}'"));
        let names: Vec<&str> = ports.iter().map(Port::name).take(10).collect();
        error.with_help(format!("its {what}s begin with '{}'", names.join("', '")))
    })
}

/// Returns the element type and the rank of a tensor.
fn find_form(port: &Port) -> Option<(DataType, usize)> {
    let ty = port.ty()?;
    Some((ty.elem()?, ty.shape()?.len()))
}

/// Returns the name of the output that becomes the next value of an input.
fn find_present<'p>(input: &Port, outputs: &'p [Port]) -> Option<&'p str> {
    let wanted = find_form(input)?;
    PREFIXES.iter().find_map(|(prefix, replacements)| {
        let rest = input.name().strip_prefix(prefix)?;
        replacements.iter().find_map(|replacement| {
            let name = format!("{replacement}{rest}");
            let found = outputs.iter().find(|output| output.name() == name);
            found.filter(|output| find_form(output) == Some(wanted)).map(Port::name)
        })
    })
}

/// Builder of a [`SessionState`]; see [`Session::state`].
#[derive(Debug, Clone)]
pub struct StateBuilder<'s> {
    session: &'s Session,
    pairs: Option<Vec<StatePair>>,
    batch: usize,
    capacity: usize,
    sizes: Vec<(String, usize)>,
}

impl<'s> StateBuilder<'s> {
    pub(crate) fn new(session: &'s Session) -> StateBuilder<'s> {
        StateBuilder { session, pairs: None, batch: 1, capacity: 0, sizes: Vec::new() }
    }

    /// Sets the pairs. By default they are [found](StatePair::find) by names and types.
    #[must_use]
    pub fn pairs(mut self, pairs: impl IntoIterator<Item = StatePair>) -> Self {
        self.pairs = Some(pairs.into_iter().collect());
        self
    }

    /// Sets the number of sequences, 1 by default.
    #[must_use]
    pub fn batch(mut self, size: usize) -> Self {
        self.batch = size;
        self
    }

    /// Sets the size of the dimension called `name` of the kept inputs.
    #[must_use]
    pub fn dim(mut self, name: impl Into<String>, size: usize) -> Self {
        self.sizes.push((name.into(), size));
        self
    }

    /// Reserves memory for a number of rows, so that it need not grow before. Without it memory
    /// doubles when it is full.
    #[must_use]
    pub fn capacity(mut self, rows: usize) -> Self {
        self.capacity = rows;
        self
    }

    /// Makes the state.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] without any pair, if one names an input or output that does not
    /// exist, and for open dimensions without a size; [`ErrorKind::Run`] if the memory exceeds the
    /// session's limit.
    pub fn build(self) -> Result<SessionState, Error> {
        let session = self.session;
        let pairs = match &self.pairs {
            Some(pairs) => pairs.clone(),
            None => StatePair::find(session.inputs(), session.outputs()),
        };
        if pairs.is_empty() {
            let error = Error::new(ErrorKind::Argument, "no output becomes an input by its name");
            return Err(error.with_help(
                "name the pairs, such as StatePair::new(\"past_keys\", \"present_keys\")",
            ));
        }
        let ports: Vec<KeptPorts> =
            pairs.iter().map(|pair| self.make_ports(pair)).collect::<Result<_, _>>()?;
        let kept = KeptState::new(session.as_runtime(), ports);
        let kept = kept.map_err(|error| session.report_run_error(error))?;
        Ok(SessionState { session: session.clone(), pairs, kept })
    }

    /// Resolves the ports, axes and first value of a pair.
    fn make_ports(&self, pair: &StatePair) -> Result<KeptPorts, Error> {
        let ports = pair.find_ports(self.session)?;
        let ty = self.session.inputs()[ports.input].ty();
        let (Some(elem), Some(shape)) = (ty.and_then(Type::elem), ty.and_then(Type::shape)) else {
            return Err(pair.refuse("its type has no shape"));
        };
        let appended = self.session.as_runtime().find_append_axis(ports).ok();
        let names: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let open: Vec<usize> =
            (0..shape.len()).filter(|axis| shape[*axis].size().is_none()).collect();
        let mut named = open.iter().filter(|axis| names[**axis].contains("batch"));
        let first = open.first().filter(|axis| **axis == 0 && appended != Some(0));
        let batch_axis = pair.batch_axis.or_else(|| named.next().or(first).copied());
        let rest: Vec<usize> = open
            .into_iter()
            .filter(|axis| Some(*axis) != batch_axis && self.find_size(&names[*axis]).is_none())
            .collect();
        let mut counting = rest
            .iter()
            .filter(|axis| POSITION_NAMES.iter().any(|part| names[**axis].contains(part)));
        let only = rest.first().filter(|_| rest.len() == 1);
        let axis = appended.or(pair.axis).or_else(|| counting.next().or(only).copied());
        let dims = match &pair.dims {
            Some(dims) => dims.clone(),
            None => {
                let mut dims = Vec::with_capacity(shape.len());
                for (index, dim) in shape.iter().enumerate() {
                    let given = || self.find_size(&names[index]);
                    let default = || (Some(index) == batch_axis).then_some(self.batch);
                    let size = match dim.size() {
                        None if Some(index) == axis => Some(0),
                        size => size.or_else(given).or_else(default),
                    };
                    dims.push(size.ok_or_else(|| {
                        pair.refuse(&format!("the size of '{}' is open", names[index]))
                            .with_help("set it with StateBuilder::dim")
                    })?);
                }
                dims
            }
        };
        let first = Tensor::zeros(elem, dims).map_err(|error| pair.refuse(&error.to_string()))?;
        Ok(KeptPorts { ports, first, axis, batch_axis, capacity: self.capacity })
    }

    /// Returns the size that was set for a dimension.
    fn find_size(&self, name: &str) -> Option<usize> {
        self.sizes.iter().find(|(own, _)| own == name).map(|(_, size)| *size)
    }
}

/// State of a series of runs, such as the keys and values of a text that a decoder continues:
/// outputs of a run that are inputs of the next one.
///
/// A run writes new rows into the memory of the state and copies no earlier ones where the model
/// joins both by `Concat`, in `Attention` or `GroupQueryAttention`, or writes rows by
/// `TensorScatter`. Results have the bits of runs that pass the same values by hand. A run that
/// fails leaves the state as it was, but for rows in whose place it wrote others. Clones share
/// memory until one of them runs.
///
/// ```
/// use sardonyx::{Model, RunOptions, Session, Tensor};
///
/// let model = Model::from_text(
///     "<ir_version: 11, opset_import: [\"\": 21]>
///      g (float[n, 2] x, float[p, 2] past) => (float[n, q] scores, float[q, 2] present) {
///          present = Concat <axis = 0> (past, x)
///          columns = Transpose (present)
///          scores = MatMul (x, columns)
///      }",
/// )?;
/// let session = Session::new(&model)?;
/// let mut state = session.state().capacity(1000).build()?;
/// for _ in 0..3 {
///     let x = Tensor::from_slice([1, 2], &[1.0f32, 2.0])?;
///     state.run([("x", x)], &RunOptions::default())?;
///     assert_eq!(state.copied_bytes(), 0);
/// }
/// assert_eq!(state.len(), 3);
/// state.truncate(1)?;
/// let x = Tensor::from_slice([1, 2], &[0.0f32, 1.0])?;
/// let outputs = state.run([("x", x)], &RunOptions::default())?;
/// assert_eq!(outputs.tensor("scores")?.to_vec::<f32>()?, [2.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SessionState {
    session: Session,
    pairs: Vec<StatePair>,
    kept: KeptState,
}

impl SessionState {
    /// Runs the session on its inputs that are not in the state, and returns its outputs that are
    /// not. If the run fails, the state stays as it was.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run`]; [`ErrorKind::Input`] for an input that the state keeps, and
    /// for a model that appends a number of rows that depends on values.
    pub fn run<I, N, V>(&mut self, inputs: I, options: &RunOptions<'_>) -> Result<Outputs, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        let session = self.session.clone();
        let inputs = collect_inputs(inputs, session.inputs().iter());
        let inputs = inputs.into_iter().map(|(name, value)| (name, Input::Value(value)));
        session.run_kept(inputs, &mut self.kept, options)
    }

    /// Returns the session that the state belongs to.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the pairs of the state.
    pub fn pairs(&self) -> &[StatePair] {
        &self.pairs
    }

    /// Whether runs append to the input called `name` in place. Other inputs of the state are
    /// replaced by outputs.
    pub fn is_appended(&self, name: &str) -> bool {
        let mut pairs = self.pairs.iter().zip(self.kept.pairs());
        pairs.any(|(pair, (_, is_appended))| pair.input == name && is_appended)
    }

    /// Explains how a run would keep the state; see `tool::SessionStateExt::explain`.
    pub(crate) fn explain(
        &self,
        inputs: &[(&str, Type)],
    ) -> Result<Vec<(String, StateUse)>, Error> {
        for (name, _) in inputs {
            self.session.input(name)?;
        }
        let kept = self.pairs.iter().map(StatePair::input).zip(self.kept.types());
        let all: Vec<(&str, Type)> = kept.chain(inputs.iter().cloned()).collect();
        self.session.explain_pairs(&self.pairs, &all)
    }

    /// Returns the number of rows: positions of a text. 0 if no pair has rows.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether the state has no rows.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns the number of rows that fit before memory grows; `None` if runs append to no pair.
    pub fn capacity(&self) -> Option<usize> {
        self.kept.capacity()
    }

    /// Returns the size of the memory of the state, in bytes. Clones count what they share.
    pub fn bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// Returns how many bytes of earlier rows the last run copied. It is 0 if runs append to all
    /// pairs, memory did not grow, no clone shared it, and no step had to rearrange it.
    pub fn copied_bytes(&self) -> usize {
        self.kept.copied_bytes()
    }

    /// Whether [`SessionState::truncate`] works: the axis of rows of each pair is known.
    pub fn can_truncate(&self) -> bool {
        self.kept.can_truncate()
    }

    /// Drops all rows after the first `len`, and copies nothing of pairs to which runs append.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if the axis of rows of a pair is not known.
    pub fn truncate(&mut self, len: usize) -> Result<(), Error> {
        let cut = self.kept.truncate(self.session.as_runtime(), len);
        cut.map_err(|error| self.session.report_run_error(error))
    }

    /// Keeps the sequences with these numbers, in this order. A number may occur several times.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] for a number that no sequence has.
    pub fn select(&mut self, members: &[usize]) -> Result<(), Error> {
        let selected = self.kept.select(self.session.as_runtime(), members);
        selected.map_err(|error| self.session.report_run_error(error))
    }

    /// Reserves memory for `rows` rows in all.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Run`] if the memory exceeds the session's limit.
    pub fn reserve(&mut self, rows: usize) -> Result<(), Error> {
        let reserved = self.kept.reserve(self.session.as_runtime(), rows);
        reserved.map_err(|error| self.session.report_run_error(error))
    }

    /// Copies the value of the input called `name`, to save it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the state has no such input.
    pub fn value(&self, name: &str) -> Result<Tensor, Error> {
        let value = self.kept.value(self.find(name)?);
        value.map_err(|error| self.session.report_run_error(error))
    }

    /// Replaces the value of the input called `name`, such as by one that was saved.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the state has no such input; [`ErrorKind::Input`] if the element
    /// type or the rank is not that of the state.
    pub fn set_value(&mut self, name: &str, value: Tensor) -> Result<(), Error> {
        let pair = self.find(name)?;
        let set = self.kept.set(self.session.as_runtime(), pair, value);
        set.map_err(|error| self.session.report_run_error(error))
    }

    fn find(&self, name: &str) -> Result<usize, Error> {
        let found = self.pairs.iter().position(|pair| pair.input == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.pairs.iter().map(StatePair::input).collect();
            let what = format!("the state has no input '{name}'");
            Error::new(ErrorKind::Argument, what)
                .with_help(format!("its inputs are '{}'", names.join("', '")))
        })
    }
}
