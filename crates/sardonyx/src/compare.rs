//! Comparison of two models that should compute the same: runs both on the same inputs, and finds
//! the first value that differs.
//!
//! Both models run in segments, in turn, so that only live values and values whose partner has not
//! been computed yet are in memory, with the constants of one segment.

mod bisect;
mod cause;
mod measure;
mod walk;

use std::collections::{HashMap, HashSet};
use std::fmt;

use sardonyx_model::{self as graph, Producer, Type, ValueId};
use sardonyx_passes::{self as passes, MatchedValue, ModelWithData, match_values, place_of_node};
use sardonyx_runtime::{Optimization, Port};
use sardonyx_tensor::{CastOptions, Class, DataType, Value, WorstElement, cast};

use sardonyx_ops::Registry;

use crate::edit::InlineOptions;
use crate::error::{Error, ErrorKind};
use crate::filling::{Fill, FillOptions};
use crate::model::Model;
use crate::session::{Session, SessionBuilder};

pub use cause::DivergingPart;

use measure::{Limits, Measured, measure};
use walk::Walk;

/// Default size of a segment: of the values that its nodes compute and the constants that they
/// read, in bytes.
const SEGMENT_BYTES: usize = 64 << 20;

/// Sets options of the sessions of a comparison.
type Configure<'a> = &'a dyn for<'m> Fn(SessionBuilder<'m>) -> SessionBuilder<'m>;

/// Options of [`Model::compare`].
#[derive(Clone)]
pub struct CompareOptions<'a> {
    limits: Limits,
    fill: FillOptions,
    inputs: Vec<(String, Value)>,
    optimization: Optimization,
    segment_bytes: usize,
    bisects: bool,
    goes_on: bool,
    configure: Option<Configure<'a>>,
}

impl Default for CompareOptions<'_> {
    fn default() -> Self {
        CompareOptions {
            limits: Limits::default(),
            fill: FillOptions::new(),
            inputs: Vec::new(),
            optimization: Optimization::All,
            segment_bytes: SEGMENT_BYTES,
            bisects: false,
            goes_on: false,
            configure: None,
        }
    }
}

impl fmt::Debug for CompareOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompareOptions")
            .field("limits", &self.limits)
            .field("fill", &self.fill)
            .field("optimization", &self.optimization)
            .field("segment_bytes", &self.segment_bytes)
            .field("bisects", &self.bisects)
            .field("goes_on", &self.goes_on)
            .finish_non_exhaustive()
    }
}

impl<'a> CompareOptions<'a> {
    /// Creates the default options: drawn inputs, default tolerances, and an end at the first value
    /// that differs.
    pub fn new() -> CompareOptions<'a> {
        CompareOptions::default()
    }

    /// Sets the largest difference relative to each element. The default is 1e-3 for float and
    /// double, 1/64 for float16, 1/16 for bfloat16, 1/4 for 8-bit floats, and 0 for integers; of
    /// two types, that of the shorter one counts. Without this option and
    /// [`atol`](CompareOptions::atol), a part of the largest element of a tensor is allowed too:
    /// 1e-4 for float and double, 1/256 for float16, 1/32 for bfloat16, 1/8 for 8-bit floats.
    #[must_use]
    pub fn rtol(mut self, rtol: f64) -> Self {
        self.limits.rtol = Some(rtol);
        self
    }

    /// Sets the largest absolute difference, which is added to the relative one. The default is
    /// 1e-7, and 0 for integers.
    #[must_use]
    pub fn atol(mut self, atol: f64) -> Self {
        self.limits.atol = Some(atol);
        self
    }

    /// Sets how inputs are filled that [`inputs`](CompareOptions::inputs) does not give.
    #[must_use]
    pub fn fill(self, fill: FillOptions) -> Self {
        CompareOptions { fill, ..self }
    }

    /// Gives inputs by the names that they have in the first model.
    #[must_use]
    pub fn inputs(self, inputs: Vec<(String, Value)>) -> Self {
        CompareOptions { inputs, ..self }
    }

    /// Sets the optimization level of both models. A value that is compared is computed as its
    /// model defines it; nodes between two such values may be fused. The default is
    /// [`Optimization::All`].
    #[must_use]
    pub fn optimization(self, optimization: Optimization) -> Self {
        CompareOptions { optimization, ..self }
    }

    /// Sets the size of a segment in bytes: of the values that its nodes compute and the constants
    /// that they read. Smaller segments take less memory and more time. The default is 64 MiB.
    #[must_use]
    pub fn segment_bytes(self, segment_bytes: usize) -> Self {
        CompareOptions { segment_bytes, ..self }
    }

    /// Sets whether values are compared one after the other, each by a run of both models, from
    /// differing outputs backwards. This takes the memory of a usual run, and finds differences
    /// that reach an output. Off by default.
    #[must_use]
    pub fn bisect(self, bisects: bool) -> Self {
        CompareOptions { bisects, ..self }
    }

    /// Sets whether all values are compared, also after the first one that differs, and listed in
    /// [`Comparison::values`]. Off by default.
    #[must_use]
    pub fn all(self, goes_on: bool) -> Self {
        CompareOptions { goes_on, ..self }
    }

    /// Sets a function that sets options of the sessions, such as the number of threads. A
    /// comparison makes a session for each segment of a model.
    #[must_use]
    pub fn session(self, configure: Configure<'a>) -> Self {
        CompareOptions { configure: Some(configure), ..self }
    }

    /// Builds a session with the options of the caller. With a fixed seed, random nodes draw equal
    /// numbers if their outputs have equal names.
    fn build_session(&self, model: &Model) -> Result<Session, Error> {
        let builder = Session::builder(model).optimization(self.optimization).seed(0);
        match self.configure {
            Some(configure) => configure(builder).build(),
            None => builder.build(),
        }
    }
}

/// Value of two models that was compared.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ComparedValue {
    /// Name of the value in the first model.
    pub name: String,
    /// Name of the value in the second model, or of the stored value.
    pub other_name: String,
    /// Node of the first model that computes the value.
    pub node: String,
    /// Node of the second model that computes the value; empty for a stored value.
    pub other_node: String,
    /// Type of the value in the first model, with its sizes.
    pub ty: String,
    /// Whether name or computation show that the values should be equal. Otherwise they are at the
    /// same position in both models, and a difference counts only if it reaches another value.
    pub is_sure: bool,
    /// Whether an element differs by more than the tolerance, or types or shapes differ.
    pub differs: bool,
    /// Difference of type, shape or length; `None` if elements could be compared.
    pub mismatch: Option<String>,
    /// Number of elements.
    pub elements: usize,
    /// Number of elements that differ by more than the tolerance.
    pub differing: usize,
    /// Largest absolute difference.
    pub largest: f64,
    /// Mean absolute difference.
    pub mean: f64,
    /// Largest difference relative to an element of the reference.
    pub relative: f64,
    /// Signal-to-noise ratio in decibels; `None` if all bits are equal.
    pub decibels: Option<f64>,
    /// Element that exceeds its tolerance by the largest factor.
    pub worst: Option<WorstElement>,
}

impl ComparedValue {
    /// Describes the difference in one line; `None` if the values agree.
    pub fn describe(&self) -> Option<String> {
        if !self.differs {
            return None;
        }
        let ComparedValue { differing, elements, largest, .. } = self;
        self.mismatch.clone().or_else(|| {
            let WorstElement { index, got, want, .. } = self.worst.as_ref()?;
            Some(format!(
                "{differing} of {elements} elements differ, by up to {largest:.3e}; worst at \
                 {index:?}: {got}, should be {want}"
            ))
        })
    }
}

/// Result of [`Model::compare`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Comparison {
    /// Number of values that were compared.
    pub compared: usize,
    /// Number of pairs of values that match; not all are compared if the comparison ends at a
    /// difference.
    pub matched: usize,
    /// Number of the first model's values that have no partner.
    pub unmatched: usize,
    /// First value that differs, in the order of the first model's nodes; `None` if all agree.
    pub first: Option<ComparedValue>,
    /// Smallest parts of both models that compute the first value from values that agree.
    pub part: Option<DivergingPart>,
    /// Number of values that differ. With [`CompareOptions::all`] of all values, otherwise up to
    /// the first.
    pub differing: usize,
    /// Number of values matched by position that differ although values that are computed from
    /// them agree.
    pub doubtful: usize,
    /// All compared values, in the order of the first model's nodes, with [`CompareOptions::all`];
    /// otherwise empty.
    pub values: Vec<ComparedValue>,
    /// Names of stored values that the model does not have.
    pub unknown: Vec<String>,
    /// Nodes that [`Model::compare_with_double`] runs in their former types, because their
    /// operators do not take double.
    pub narrow: Vec<String>,
    /// Names of the input dimensions that are assumed to be 1.
    pub assumed: Vec<String>,
    /// Rules by which inputs are filled, by the names of inputs.
    pub rules: Vec<(String, Fill)>,
}

impl Model {
    /// Runs this model and `other` on the same inputs, and finds the first value that differs.
    /// Values are matched like in a diff: by name, by what computes them, and by position. Those of
    /// the main graphs are compared.
    ///
    /// ```
    /// use sardonyx::{Model, check::CompareOptions};
    ///
    /// let model = |nodes: &str| Model::from_text(&format!(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[3] x) => (float[3] y) {{ {nodes} }}"
    /// ));
    /// let before = model("a = Exp (x) b = Neg (a) c = Abs (b) y = Sqrt (c)")?;
    /// let after = model("p = Exp (x) q = Ceil (p) r = Abs (q) y = Sqrt (r)")?;
    /// let found = before.compare(&after, &CompareOptions::new())?;
    /// let first = found.first.unwrap();
    /// assert_eq!((&*first.name, &*first.other_name), ("c", "r"));
    /// // The part begins at values that agree: the result of Exp.
    /// assert_eq!(found.part.unwrap().nodes.len(), 2);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a model cannot be run or fails, [`ErrorKind::Input`] if the inputs of the models do not
    /// fit together, [`ErrorKind::Output`] if no values match.
    pub fn compare(
        &self,
        other: &Model,
        options: &CompareOptions<'_>,
    ) -> Result<Comparison, Error> {
        let pairs = match_values(self.with_files(), other.with_files());
        if pairs.is_empty() {
            let message = "no node outputs of the models match, so nothing can be compared";
            return Err(Error::new(ErrorKind::Output, message));
        }
        let setup = Setup::new(self, options)?;
        let others = setup.match_inputs(other)?;
        let run = Comparing {
            model: walk::fix_inputs(self, &setup.inputs),
            other: Some(walk::fix_inputs(other, &others)),
            options,
            setup: &setup,
            others,
            reference: Reference::First,
        };
        run.compare(pairs, Vec::new())
    }

    /// Runs this model as it is and with all floats in double, and finds the first value whose
    /// rounding errors exceed the tolerance. Calls of functions are inlined before.
    ///
    /// ```
    /// use sardonyx::{Model, Tensor, check::CompareOptions};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[1] x, float[1] z) => (float[1] y) { a = Add (x, z) y = Sub (a, z) }",
    /// )?;
    /// let number = |number: f32| Tensor::from_vec([1], vec![number]);
    /// let inputs = vec![("x".into(), number(0.1)?.into()), ("z".into(), number(1e7)?.into())];
    /// let found = model.compare_with_double(&CompareOptions::new().inputs(inputs))?;
    /// // Of 0.1, the sum keeps nothing.
    /// assert_eq!(found.first.unwrap().name, "y");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`compare`](Model::compare).
    pub fn compare_with_double(&self, options: &CompareOptions<'_>) -> Result<Comparison, Error> {
        let mut model = self.clone();
        model.inline(&InlineOptions::new()).map_err(|error| {
            Error::new(ErrorKind::Invalid, error.to_string()).with_source(error)
        })?;
        let mut graph = model.graph.clone_to_run();
        let main = model.graph.main_graph();
        let nodes = main.map_or(&[][..], |main| &main.nodes);
        let values = nodes.iter().flat_map(|node| model.graph.outputs(*node)).flatten();
        let pairs =
            values.map(|value| MatchedValue { before: *value, after: *value, is_sure: true });
        let pairs: Vec<MatchedValue> = pairs.collect();
        let widened = passes::widen(&mut graph, &Registry::with_microsoft());
        let setup = Setup::new(&model, options)?;
        let double = model.with_graph(graph);
        let run = Comparing {
            model: walk::fix_inputs(&model, &setup.inputs),
            other: Some(walk::fix_inputs(&double, &setup.inputs)),
            options,
            setup: &setup,
            others: setup.inputs.clone(),
            reference: Reference::Second,
        };
        let mut comparison = run.compare(pairs, Vec::new())?;
        let narrow = widened.narrow.iter().map(|node| place_of_node(&model.graph, *node));
        comparison.narrow = narrow.collect();
        Ok(comparison)
    }
}

impl Comparing<'_> {
    /// Compares the values of pairs. `unknown` are names of stored values without a partner.
    fn compare(&self, pairs: Vec<MatchedValue>, unknown: Vec<String>) -> Result<Comparison, Error> {
        let comparer = if self.options.bisects {
            bisect::compare(self, pairs)?
        } else {
            let wanted = pairs.iter().map(|pair| pair.after).collect();
            let other = self.other.as_ref().unwrap_or(&self.model);
            let mut walk = Walk::new(other, &self.others, &wanted, self.options)?;
            let mut comparer = Comparer::new(self, pairs);
            comparer.run(self, Some(&mut walk))?;
            comparer
        };
        comparer.finish(self, unknown)
    }
}

impl Model {
    /// Runs this model, and compares values of its main graph with stored ones, such as those of
    /// another runtime, by name. The option [`bisect`](CompareOptions::bisect) has no effect.
    ///
    /// ```
    /// use sardonyx::{Model, Tensor, check::CompareOptions};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[2] x) => (float[2] y) { a = Neg (x) y = Exp (a) }",
    /// )?;
    /// let x = Tensor::from_vec([2], vec![0f32, 1.0])?;
    /// let a = Tensor::from_vec([2], vec![0f32, 1.0])?;
    /// let options = CompareOptions::new().inputs(vec![("x".into(), x.into())]);
    /// let found = model.compare_stored(vec![("a".into(), a.into())], &options)?;
    /// assert_eq!(found.first.unwrap().name, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Like [`compare`](Model::compare).
    pub fn compare_stored(
        &self,
        stored: Vec<(String, Value)>,
        options: &CompareOptions<'_>,
    ) -> Result<Comparison, Error> {
        let mut values: HashMap<String, Value> = stored.into_iter().collect();
        let main = self.graph.main_graph();
        let nodes = main.map_or(&[][..], |main| &main.nodes);
        let (mut pairs, mut theirs) = (Vec::new(), HashMap::new());
        for value in nodes.iter().flat_map(|node| self.graph.outputs(*node)).flatten() {
            let name = self.graph.display(Some(self.graph.value(*value).name));
            if let Some(stored) = values.remove(&*name) {
                theirs.insert(pairs.len(), stored);
                pairs.push(MatchedValue { before: *value, after: *value, is_sure: true });
            }
        }
        let mut unknown: Vec<String> = values.into_keys().collect();
        unknown.sort_unstable();
        if pairs.is_empty() {
            let message = "the model has none of the stored values";
            let error = Error::new(ErrorKind::Output, message);
            let known = self.outputs();
            let known: Vec<&str> = known.iter().map(Port::name).take(SHOWN_NAMES).collect();
            return Err(error.with_help(format!(
                "values are matched by name; the outputs of the model are: {}",
                known.join(", ")
            )));
        }
        let setup = Setup::new(self, options)?;
        let run = Comparing {
            model: walk::fix_inputs(self, &setup.inputs),
            other: None,
            options,
            setup: &setup,
            others: Vec::new(),
            reference: Reference::Second,
        };
        let mut comparer = Comparer::new(&run, pairs);
        comparer.theirs = theirs;
        comparer.run(&run, None)?;
        comparer.finish(&run, unknown)
    }

    /// Returns the graphs with the files that hold their data.
    fn with_files(&self) -> ModelWithData<'_> {
        ModelWithData { model: &self.graph, data: &*self.data }
    }
}

/// Maximum number of names that a message lists.
const SHOWN_NAMES: usize = 10;

/// Inputs of a comparison.
struct Setup {
    ports: Vec<Port>,
    /// Values by the names of the first model's inputs.
    inputs: Vec<(String, Value)>,
    assumed: Vec<String>,
    rules: Vec<(String, Fill)>,
}

impl Setup {
    /// Collects the inputs of `model`: those that options give, and drawn ones.
    fn new(model: &Model, options: &CompareOptions<'_>) -> Result<Setup, Error> {
        let mut builder = Session::builder(model).inspect_only();
        for (name, size) in options.fill.dims() {
            builder = builder.dim(name, *size);
        }
        let session = builder.build()?;
        let filled = model.fill_inputs(session.inputs(), &options.inputs, &options.fill)?;
        let inputs = [options.inputs.as_slice(), &filled.values].concat();
        // Finds unknown names, and types and sizes that do not fit the model.
        let types = inputs.iter().filter_map(|(name, value)| Some((name, walk::to_type(value)?)));
        session.details(types)?;
        let missing = session
            .inputs()
            .iter()
            .find(|port| port.is_required() && !inputs.iter().any(|(name, _)| name == port.name()));
        if let Some(missing) = missing {
            let message = format!("the input '{}' is missing", missing.name());
            return Err(Error::new(ErrorKind::Input, message));
        }
        let ports = session.inputs().to_vec();
        Ok(Setup { ports, inputs, assumed: filled.assumed, rules: filled.rules })
    }

    /// Returns the inputs for another model: by name, else by position. Floats are converted to the
    /// type that the model takes.
    fn match_inputs(&self, other: &Model) -> Result<Vec<(String, Value)>, Error> {
        let session = Session::builder(other).inspect_only().build()?;
        let ports = session.inputs();
        let mut matched = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let own = self.inputs.iter().find(|(name, _)| name == port.name());
            let own = own.or_else(|| {
                let own = self.ports.get(index)?.name();
                let is_free = !ports.iter().any(|port| port.name() == own);
                self.inputs.iter().find(|(name, _)| is_free && name == own)
            });
            let Some((_, value)) = own else {
                if port.is_required() {
                    let message = format!(
                        "the second model has the input '{}', for which the first has no partner",
                        port.name()
                    );
                    return Err(Error::new(ErrorKind::Input, message));
                }
                continue;
            };
            let wanted = port.ty().and_then(Type::elem);
            matched.push((port.name().to_string(), to_float_type(value, wanted)?));
        }
        let types = matched.iter().filter_map(|(name, value)| Some((name, walk::to_type(value)?)));
        session.details(types)?;
        Ok(matched)
    }
}

/// Converts a tensor of floats to another type of floats. Other values stay as they are.
fn to_float_type(value: &Value, wanted: Option<DataType>) -> Result<Value, Error> {
    match (value.as_tensor(), wanted) {
        (Some(tensor), Some(wanted))
            if wanted != tensor.data_type()
                && wanted.class() == Class::Float
                && tensor.data_type().class() == Class::Float =>
        {
            let converted = cast(tensor, wanted, CastOptions::default());
            let converted = converted.map_err(|error| {
                Error::new(ErrorKind::Input, error.to_string()).with_source(error)
            })?;
            Ok(converted.into())
        }
        _ => Ok(value.clone()),
    }
}

/// Models and inputs of a comparison.
struct Comparing<'a> {
    model: Model,
    /// The second model; `None` for stored values.
    other: Option<Model>,
    options: &'a CompareOptions<'a>,
    setup: &'a Setup,
    /// Inputs of the second model.
    others: Vec<(String, Value)>,
    reference: Reference,
}

/// Side of a comparison whose values the others should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reference {
    /// The first model, of which the second one is a changed version.
    First,
    /// The second model, or stored values.
    Second,
}

/// Returns the name of a value.
fn name_of(graph: &graph::Model, value: ValueId) -> String {
    graph.display(Some(graph.value(value).name)).into_owned()
}

/// Describes the node that computes a value.
fn describe_maker(graph: &graph::Model, value: ValueId) -> String {
    match graph.value(value).producer {
        Producer::Node(node, _) => place_of_node(graph, node),
        _ => String::new(),
    }
}

/// Comparison in progress.
struct Comparer<'a> {
    graph: &'a graph::Model,
    other: Option<&'a graph::Model>,
    options: &'a CompareOptions<'a>,
    reference: Reference,
    pairs: Vec<MatchedValue>,
    /// Position in `pairs` of a value of the first model.
    positions: HashMap<ValueId, usize>,
    /// Whether the values of a pair differ; `None` as long as they have not been compared.
    differs: Vec<Option<bool>>,
    /// Results for pairs that differ.
    found: HashMap<usize, ComparedValue>,
    /// Values by the positions of their pairs, until the values of their partners arrive.
    mine: HashMap<usize, Value>,
    theirs: HashMap<usize, Value>,
    /// Pair that is reported as the first difference.
    first: Option<usize>,
    /// Compared values in their order, if all are compared.
    values: Vec<ComparedValue>,
}

impl<'a> Comparer<'a> {
    fn new(run: &'a Comparing<'_>, pairs: Vec<MatchedValue>) -> Comparer<'a> {
        let positions = pairs.iter().enumerate().map(|(index, pair)| (pair.before, index));
        Comparer {
            graph: &run.model.graph,
            other: run.other.as_ref().map(|other| &other.graph),
            options: run.options,
            reference: run.reference,
            positions: positions.collect(),
            differs: vec![None; pairs.len()],
            found: HashMap::new(),
            mine: HashMap::new(),
            theirs: HashMap::new(),
            first: None,
            values: Vec::new(),
            pairs,
        }
    }

    /// Runs the models in turn and compares values as soon as both are there.
    fn run(&mut self, run: &Comparing<'_>, mut other: Option<&mut Walk<'_>>) -> Result<(), Error> {
        let wanted = self.pairs.iter().map(|pair| pair.before).collect();
        let mut walk = Walk::new(&run.model, &run.setup.inputs, &wanted, run.options)?;
        let partners = self.pairs.iter().enumerate().map(|(index, pair)| (pair.after, index));
        let partners: HashMap<ValueId, usize> = partners.collect();
        while !walk.is_done() && (self.first.is_none() || self.options.goes_on) {
            for (value, found) in walk.advance()? {
                if let Some(index) = self.positions.get(&value) {
                    self.mine.insert(*index, found);
                }
            }
            if let Some(other) = &mut other {
                while !other.is_done() && self.is_waiting() {
                    for (value, found) in other.advance()? {
                        if let Some(index) = partners.get(&value) {
                            self.theirs.insert(*index, found);
                        }
                    }
                }
            }
            let mut ready: Vec<usize> = self.mine.keys().copied().collect();
            ready.sort_unstable();
            for index in ready {
                if self.first.is_some() && !self.options.goes_on {
                    break;
                }
                let Some(mine) = self.mine.remove(&index) else { continue };
                if let Some(theirs) = self.theirs.remove(&index) {
                    self.compare(index, &mine, &theirs);
                }
            }
        }
        Ok(())
    }

    /// Whether a value of the first model waits for its partner.
    fn is_waiting(&self) -> bool {
        self.mine.keys().any(|index| !self.theirs.contains_key(index))
    }

    /// Compares the values of a pair.
    fn compare(&mut self, index: usize, mine: &Value, theirs: &Value) {
        let (found, wanted) = match self.reference {
            Reference::First => (theirs, mine),
            Reference::Second => (mine, theirs),
        };
        let measured = measure(found, wanted, self.options.limits);
        let compared = self.describe(index, mine, measured);
        self.differs[index] = Some(compared.differs);
        if self.options.goes_on {
            self.values.push(compared.clone());
        }
        if !compared.differs {
            return;
        }
        self.found.insert(index, compared);
        if self.pairs[index].is_sure && self.first.is_none() {
            self.first = Some(self.find_origin(index));
        }
    }

    /// Describes the comparison of a pair.
    fn describe(
        &self,
        index: usize,
        mine: &Value,
        measured: Result<Measured, String>,
    ) -> ComparedValue {
        let pair = self.pairs[index];
        let (measured, mismatch) = match measured {
            Ok(measured) => (measured, None),
            Err(mismatch) => (Measured::default(), Some(mismatch)),
        };
        let ty = walk::to_type(mine);
        ComparedValue {
            name: name_of(self.graph, pair.before),
            other_name: name_of(self.other.unwrap_or(self.graph), pair.after),
            node: describe_maker(self.graph, pair.before),
            other_node: self.other.map_or(String::new(), |other| describe_maker(other, pair.after)),
            ty: ty.map_or_else(|| mine.value_type().to_string(), |ty| ty.to_string()),
            is_sure: pair.is_sure,
            differs: measured.count > 0 || mismatch.is_some(),
            mismatch,
            elements: measured.total,
            differing: measured.count,
            largest: measured.absolute,
            mean: measured.mean,
            relative: measured.relative,
            decibels: measured.signal_to_noise(),
            worst: measured.worst,
        }
    }

    /// Returns the first pair that differs among those that the value of `index` is computed from,
    /// up to values that agree. Only a pair that is matched by position can be before `index`.
    fn find_origin(&self, index: usize) -> usize {
        let mut first = index;
        let mut seen = HashSet::new();
        let mut left = vec![self.pairs[index].before];
        while let Some(value) = left.pop() {
            let position = self.positions.get(&value).copied();
            if !seen.insert(value) || position.is_some_and(|position| self.agrees(position)) {
                continue;
            }
            if let Some(position) = position
                && self.differs[position] == Some(true)
            {
                first = first.min(position);
            }
            if let Producer::Node(node, _) = self.graph.value(value).producer {
                left.extend(passes::order::reads_outside(self.graph, node));
            }
        }
        first
    }

    /// Whether the values of a pair are known to stand for each other and to agree.
    fn agrees(&self, index: usize) -> bool {
        self.pairs[index].is_sure && self.differs[index] == Some(false)
    }

    /// Returns the result.
    fn finish(mut self, run: &Comparing<'_>, unknown: Vec<String>) -> Result<Comparison, Error> {
        let part = match self.first {
            Some(first) => Some(cause::find_part(run, &self, first)?),
            None => None,
        };
        let first = self.first.and_then(|first| self.found.remove(&first));
        let sure = self.found.values().filter(|found| found.is_sure).count();
        let main = run.model.graph.main_graph();
        let nodes = main.map_or(&[][..], |main| &main.nodes);
        let values = nodes.iter().flat_map(|node| run.model.graph.outputs(*node)).flatten();
        Ok(Comparison {
            compared: self.differs.iter().flatten().count(),
            matched: self.pairs.len(),
            unmatched: values.count().saturating_sub(self.pairs.len()),
            differing: sure + usize::from(first.is_some()),
            doubtful: self.found.len() - sure,
            first,
            part,
            values: self.values,
            unknown,
            narrow: Vec::new(),
            assumed: run.setup.assumed.clone(),
            rules: run.setup.rules.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::Tensor;

    use super::*;

    fn parse(body: &str) -> Model {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (bool c, float[N, 3] x) => (y, z) <float[3, 3] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}> {{ {body} }}"
        );
        Model::from_text(&text).unwrap()
    }

    const BODY: &str = "
        a = MatMul (x, w) b = Relu (a) r = RandomNormal <shape = [3]> () s = Add (b, r)
        d = If (c) <
            then_branch = t () => (p) { m = Mul (s, a) p = Neg (m) },
            else_branch = e () => (q) { q = Identity (b) }>
        u, v = Split <num_outputs = 2> (d) y = Concat <axis = 0> (v, u) z = Sum (b, d)";

    fn options<'a>(segment_bytes: usize) -> CompareOptions<'a> {
        let fill = FillOptions::new().dim("N", 4).fill("c", Fill::ONES);
        CompareOptions::new().fill(fill).segment_bytes(segment_bytes).all(true)
    }

    #[test]
    fn segments_do_not_change_the_result() {
        let (one, other) = (parse(BODY), parse(&BODY.replace("(b, r)", "(r, b)")));
        let wrong = parse(&BODY.replace("p = Neg", "p = Abs"));
        for segment_bytes in [1, 100, usize::MAX] {
            let same = one.compare(&other, &options(segment_bytes)).unwrap();
            assert_eq!((same.compared, same.differing, same.unmatched), (9, 0, 0));
            assert!(same.first.is_none() && same.part.is_none());
            let found = one.compare(&wrong, &options(segment_bytes)).unwrap();
            let first = found.first.unwrap();
            assert_eq!((&*first.name, found.differing), ("d", 5), "{segment_bytes}");
            let part = found.part.unwrap();
            assert_eq!(part.nodes, ["If node that makes 'd'"]);
            let inputs: Vec<&str> = part.inputs.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(inputs.len(), 4, "{inputs:?}");
            assert!(part.difference.is_some());
            for model in [&part.model, part.other.as_ref().unwrap()] {
                let ports = model.inputs();
                let ports: Vec<&str> = ports.iter().map(Port::name).collect();
                assert_eq!(ports, inputs);
            }
        }
    }

    #[test]
    fn inputs_are_matched_by_name_then_by_position() {
        let one = Model::from_text(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Sub (x, w) }",
        );
        let other = Model::from_text(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float16[2] image, float16[2] w) => (float16[2] y) { y = Sub (image, w) }",
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        let x = Tensor::from_vec([2], vec![3.0f32, 4.0]).unwrap();
        let inputs = vec![("x".to_string(), Value::from(x.clone()))];
        let found = one.compare(&other, &CompareOptions::new().inputs(inputs.clone()));
        let error = found.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.message().contains("'w'"), "{error}");
        let given = [inputs, vec![("w".to_string(), x.into())]].concat();
        let found = one.compare(&other, &CompareOptions::new().inputs(given)).unwrap();
        assert_eq!((found.compared, found.differing), (1, 0));
    }

    /// Writes the nodes of a chain that begins with `v0` and ends with `v40`.
    fn make_chain(nodes: &[String]) -> String {
        format!("v0 = Abs (x) {} y = Exp (v40) z = Identity (x)", nodes.join(" "))
    }

    #[test]
    fn bisection_finds_the_first_difference() {
        let nodes: Vec<String> =
            (0..40).map(|index| format!("v{} = Neg (v{index})", index + 1)).collect();
        let one = parse(&make_chain(&nodes));
        for wrong in [0, 17, 39] {
            let mut changed = nodes.clone();
            changed[wrong] = changed[wrong].replace("Neg", "Ceil");
            let other = parse(&make_chain(&changed));
            let found = one.compare(&other, &options(1).all(false).bisect(true)).unwrap();
            assert_eq!(found.first.unwrap().name, format!("v{}", wrong + 1));
            assert!(found.compared < 12, "{}", found.compared);
            assert_eq!(found.part.unwrap().nodes.len(), 1);
        }
    }
}
