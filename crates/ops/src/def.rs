//! The definition of an operator: its versions as differences, and the functions that belong to
//! them.

use sardonyx_model::{Dim, Type};

use crate::adapt::{Adapt, Refusal};
use crate::cost::{Cost, CostFn, Counted};
use crate::denotation::Format;
use crate::facts::Fact;
use crate::function::{Body, BodyFn, CallBodyFn, ReasonedFn};
use crate::gradient::GradientFn;
use crate::infer::{Infer, InferError};
use crate::schema::{AttrType, Attribute, Determinism, Schema, TypeVar};
use crate::sharding::{Linear, SplitFn};

/// Computes the types of a node's outputs, and their values where they describe shapes.
pub type InferFn = fn(&mut Infer<'_>) -> Result<(), InferError>;

/// Returns the difference of a node's outputs on ONNX Runtime, if there is one. If it depends on
/// the values of inputs, the text names them.
pub type DiffersFn = fn(&Infer<'_>) -> Option<String>;

/// Turns a node of one version into a node of a neighbouring one, in place.
pub type AdapterFn = fn(&mut Adapt<'_>) -> Result<(), Refusal>;

/// Effect on a node of crossing the boundary between two neighbouring versions of its operator.
#[derive(Debug, Clone, Copy)]
pub enum Crossing {
    /// The node stays unchanged.
    Same,
    /// The node stays unchanged if its types, and its attributes that the target has, fit the
    /// schema of the target.
    Types,
    /// The adapter changes the node or refuses. Downwards, its types must also fit the schema of
    /// the target.
    Adapter(AdapterFn),
    /// No node can cross, for this reason.
    Never(&'static str),
}

/// An operator in all of its versions.
#[derive(Debug)]
pub struct OpDef {
    /// Name.
    pub name: &'static str,
    /// Domain; empty for `ai.onnx`.
    pub domain: &'static str,
    /// Description in one or a few sentences.
    pub about: &'static str,
    versions: List<Version, 16>,
    inference: List<(u32, InferFn), 4>,
    adapters: List<Adapter, 12>,
    bodies: List<(u32, Body), 4>,
    formats: Option<&'static [(usize, Format)]>,
    cost: Cost,
    gradient: Option<GradientFn>,
    gradient_body: Option<ReasonedFn>,
    split: Option<SplitFn>,
    split_body: Option<BodyFn>,
    call_body: Option<CallBodyFn>,
    scalars: &'static [usize],
    linear: Linear,
    deciding: &'static [usize],
    reads_part: bool,
    collective: bool,
    replacement: Option<&'static str>,
    without_reference_rule: &'static [u32],
    reference_rule: Option<InferFn>,
    differs: Option<DiffersFn>,
}

/// One version, as the difference to the previous one.
#[derive(Debug, Clone, Copy)]
pub struct Version {
    /// Opset version that introduced it.
    pub since: u32,
    /// Facts that changed, or all facts if `whole`.
    pub(crate) facts: &'static [Fact],
    /// Whether the facts are complete.
    pub(crate) whole: bool,
    /// Declared crossing of a node from the previous version, unless an adapter does it.
    up: Option<Crossing>,
    /// Declared crossing of a node to the previous version, unless an adapter does it.
    down: Option<Crossing>,
}

/// Adapter from one version to a neighbouring one.
#[derive(Debug, Clone, Copy)]
pub struct Adapter {
    /// Opset version of the node.
    pub from: u32,
    /// Opset version of the result: `from + 1`, or `from - 1`.
    pub to: u32,
    /// Function that changes the node.
    pub adapt: AdapterFn,
}

impl OpDef {
    /// Begins the definition of an operator of the default domain, without versions.
    pub(crate) const fn new(name: &'static str) -> OpDef {
        OpDef {
            name,
            domain: "",
            about: "",
            versions: List::EMPTY,
            inference: List::EMPTY,
            adapters: List::EMPTY,
            bodies: List::EMPTY,
            formats: None,
            cost: Cost::Nothing,
            gradient: None,
            gradient_body: None,
            split: None,
            split_body: None,
            call_body: None,
            scalars: &[],
            linear: Linear::No,
            deciding: &[],
            reads_part: false,
            collective: false,
            replacement: None,
            without_reference_rule: &[],
            reference_rule: None,
            differs: None,
        }
    }

    /// Sets the domain.
    pub(crate) const fn domain(self, domain: &'static str) -> OpDef {
        OpDef { domain, ..self }
    }

    /// Sets the description, in one or a few sentences.
    pub(crate) const fn about(self, about: &'static str) -> OpDef {
        OpDef { about, ..self }
    }

    /// Adds the next version, as the difference to the previous one. The first one is written in
    /// full.
    pub(crate) const fn since(self, since: u32, facts: &'static [Fact]) -> OpDef {
        let whole = self.versions.len == 0;
        let version = Version { since, facts, whole, up: None, down: None };
        OpDef { versions: self.versions.push(version), ..self }
    }

    /// Adds the next version in full, since its form changed.
    pub(crate) const fn since_anew(self, since: u32, facts: &'static [Fact]) -> OpDef {
        let version = Version { since, facts, whole: true, up: None, down: None };
        OpDef { versions: self.versions.push(version), ..self }
    }

    /// Declares that the last version differs from the previous one only by more types: upwards a
    /// node stays unchanged, downwards its types have to fit.
    pub(crate) const fn widens(self) -> OpDef {
        self.declare(Some(Crossing::Same), Some(Crossing::Types))
    }

    /// Declares that nodes of the last two versions mean the same, both ways.
    pub(crate) const fn same(self) -> OpDef {
        self.declare(Some(Crossing::Same), Some(Crossing::Same))
    }

    /// Declares that a node of the previous version means the same in the last one.
    pub(crate) const fn same_up(self) -> OpDef {
        self.declare(Some(Crossing::Same), None)
    }

    /// Declares that a node of the last version means the same in the previous one.
    pub(crate) const fn same_down(self) -> OpDef {
        self.declare(None, Some(Crossing::Same))
    }

    /// Declares that a node of the last version means the same in the previous one if its types
    /// fit.
    pub(crate) const fn types_down(self) -> OpDef {
        self.declare(None, Some(Crossing::Types))
    }

    /// Declares that no node of the last version has a meaning in the previous one, with the
    /// reason.
    pub(crate) const fn never_down(self, why: &'static str) -> OpDef {
        self.declare(None, Some(Crossing::Never(why)))
    }

    const fn declare(mut self, up: Option<Crossing>, down: Option<Crossing>) -> OpDef {
        assert!(self.versions.len > 1, "the first version has no boundary");
        let Some(version) = &mut self.versions.items[self.versions.len - 1] else {
            panic!("the list has fewer items than its length");
        };
        if up.is_some() {
            assert!(version.up.is_none(), "a boundary is declared once");
            version.up = up;
        }
        if down.is_some() {
            assert!(version.down.is_none(), "a boundary is declared once");
            version.down = down;
        }
        self
    }

    /// Sets the inference of all versions.
    pub(crate) const fn infer(self, infer: InferFn) -> OpDef {
        self.infer_since(1, infer)
    }

    /// Sets the inference of the versions from `since` on.
    pub(crate) const fn infer_since(self, since: u32, infer: InferFn) -> OpDef {
        OpDef { inference: self.inference.push((since, infer)), ..self }
    }

    /// Adds the adapter of a node from opset version `from` to `to`, where the node cannot stay
    /// unchanged.
    pub(crate) const fn adapter(self, from: u32, to: u32, adapt: AdapterFn) -> OpDef {
        assert!(from + 1 == to || from == to + 1, "an adapter crosses one version");
        OpDef { adapters: self.adapters.push(Adapter { from, to, adapt }), ..self }
    }

    /// Declares that the last version only deprecates the operator in favour of another one of its
    /// domain, which the last adapter turns its nodes into.
    pub(crate) const fn replaced_by(self, name: &'static str) -> OpDef {
        OpDef { replacement: Some(name), ..self }
    }

    /// Sets the nodes of the operator's function, in ONNX text. They hold for each of these opset
    /// versions and the following ones, until the next function or until an operator in it changes.
    pub(crate) const fn body(mut self, since: &[u32], nodes: &'static str) -> OpDef {
        let mut index = 0;
        while index < since.len() {
            self.bodies = self.bodies.push((since[index], Body::Text(nodes)));
            index += 1;
        }
        self
    }

    /// Sets the builder of the nodes of the operator's function for a call, from an opset version
    /// on.
    pub(crate) const fn body_from(self, since: u32, build: BodyFn) -> OpDef {
        OpDef { bodies: self.bodies.push((since, Body::Built(build))), ..self }
    }

    /// Sets the builder of the nodes of the operator's function for a call, from an opset version
    /// on. The builder returns a reason if a call has no function.
    pub(crate) const fn body_or_reason(self, since: u32, build: ReasonedFn) -> OpDef {
        OpDef { bodies: self.bodies.push((since, Body::Reasoned(build))), ..self }
    }

    /// Sets the builder of nodes that replace a call for which the operator's function is wrong.
    pub(crate) const fn call_body(self, build: CallBodyFn) -> OpDef {
        OpDef { call_body: Some(build), ..self }
    }

    /// Lists the inputs that the operator's function needs as scalars, although the operator also
    /// takes vectors of one element.
    pub(crate) const fn scalars(self, inputs: &'static [usize]) -> OpDef {
        OpDef { scalars: inputs, ..self }
    }

    /// Declares that the outputs have the format of the first input, whatever formats other inputs
    /// have, and lists the inputs with their expected formats.
    pub(crate) const fn keeps_format(self, inputs: &'static [(usize, Format)]) -> OpDef {
        OpDef { formats: Some(inputs), ..self }
    }

    /// Sets the rule that counts multiply-adds. Operators without one have none.
    pub(crate) const fn cost(self, count: CostFn) -> OpDef {
        OpDef { cost: Cost::Counted(count), ..self }
    }

    /// Declares that the operator multiplies and adds, but that the implementation decides how
    /// often.
    pub(crate) const fn unknown_cost(self) -> OpDef {
        OpDef { cost: Cost::Unknown, ..self }
    }

    /// Sets the rule that makes the gradients of inputs from those of outputs, for a node in the
    /// newest form. An operator without a rule is differentiated through its function if it has
    /// one.
    pub(crate) const fn gradient(self, rule: GradientFn) -> OpDef {
        OpDef { gradient: Some(rule), ..self }
    }

    /// Sets the builder of the nodes through which a node of the newest form is differentiated, for
    /// an operator that has neither a rule nor a function. The builder returns a reason if a node
    /// has none.
    pub(crate) const fn gradient_by(self, build: ReasonedFn) -> OpDef {
        OpDef { gradient_body: Some(build), ..self }
    }

    /// Sets the rule that returns the factors of the operands' axes, for a node in the newest form.
    /// Without a rule, a node is computed whole.
    pub(crate) const fn split_by(self, rule: SplitFn) -> OpDef {
        OpDef { split: Some(rule), ..self }
    }

    /// Sets the builder of nodes that compute a node of the newest form where axes are split that
    /// the operator itself needs whole.
    pub(crate) const fn split_body(self, build: BodyFn) -> OpDef {
        OpDef { split_body: Some(build), ..self }
    }

    /// Declares how the result of a node in the newest form follows from inputs that are partial
    /// sums.
    pub(crate) const fn linear_in(self, linear: Linear) -> OpDef {
        OpDef { linear, ..self }
    }

    /// Lists the inputs whose integers determine the shapes of outputs.
    pub(crate) const fn shapes_by(self, inputs: &'static [usize]) -> OpDef {
        OpDef { deciding: inputs, ..self }
    }

    /// Declares that of the first input only those elements are read that the output takes.
    pub(crate) const fn reads_part_of_first(self) -> OpDef {
        OpDef { reads_part: true, ..self }
    }

    /// Declares that the ranks of a model run nodes of the operator together: the outputs of one
    /// rank depend on the inputs of others.
    pub(crate) const fn collective(self) -> OpDef {
        OpDef { collective: true, ..self }
    }

    /// Lists the versions for which the reference implementation has no inference rule.
    pub(crate) const fn without_reference_rule(self, versions: &'static [u32]) -> OpDef {
        OpDef { without_reference_rule: versions, ..self }
    }

    /// Sets the inference of the reference implementation where it is not a weaker form of this
    /// operator's: it refuses other nodes, or looks at other inputs.
    pub(crate) const fn infer_as_reference(self, infer: InferFn) -> OpDef {
        OpDef { reference_rule: Some(infer), ..self }
    }

    /// Sets the rule that describes how outputs differ on ONNX Runtime beyond rounding.
    pub(crate) const fn differs(self, differs: DiffersFn) -> OpDef {
        OpDef { differs: Some(differs), ..self }
    }

    /// Returns the rule that describes how outputs differ on ONNX Runtime beyond rounding, if they
    /// do.
    pub fn difference_rule(&self) -> Option<DiffersFn> {
        self.differs
    }

    /// Returns the gradient rule of nodes in the newest form, if there is one.
    pub fn gradient_rule(&self) -> Option<GradientFn> {
        self.gradient
    }

    /// Returns the rule for the factors of the axes of a node in the newest form, if it can be
    /// computed in parts.
    pub fn split_rule(&self) -> Option<SplitFn> {
        self.split
    }

    /// Whether other nodes can compute a node of the newest form where axes are split that it needs
    /// whole.
    pub fn has_split_nodes(&self) -> bool {
        self.split_body.is_some()
    }

    /// Returns the builder of nodes that compute a node where axes are split that it needs whole.
    pub(crate) fn split_nodes(&self) -> Option<BodyFn> {
        self.split_body
    }

    /// Returns how the result of a node in the newest form follows from inputs that are partial
    /// sums.
    pub fn linear(&self) -> Linear {
        self.linear
    }

    /// Whether both are the same definition, compared by address.
    pub fn is(&self, other: &OpDef) -> bool {
        std::ptr::eq(self, other)
    }

    /// Returns the multiply-adds of a node, given the context of its inference rule and the types
    /// of its outputs. `None` if the inputs are not known well enough, or the implementation
    /// decides.
    pub fn multiply_adds(&self, cx: &Infer<'_>, outputs: &[Option<&Type>]) -> Option<Dim> {
        let count = match self.cost {
            Cost::Nothing => Some(Dim::Known(0)),
            Cost::Counted(count) => count(&Counted { cx, outputs }),
            Cost::Unknown => None,
        };
        count.filter(|count| !count.is_unknown())
    }

    /// Returns the inputs whose integers determine the shapes of outputs: shapes cannot be inferred
    /// if one is a constant that cannot be read. Lists only inputs that the reference
    /// implementation reads for that.
    pub fn deciding_inputs(&self) -> &'static [usize] {
        self.deciding
    }

    /// Whether of the first input only those elements are read that the output takes.
    pub fn is_part_of_first(&self) -> bool {
        self.reads_part
    }

    /// Whether the ranks of a model run nodes of the operator together, each in a process of its
    /// own with a model of its own.
    pub fn is_collective(&self) -> bool {
        self.collective
    }

    /// Whether the reference implementation has an inference rule at an opset version, provided
    /// that the operator has one.
    pub fn has_reference_rule(&self, version: u32) -> bool {
        !self.without_reference_rule.contains(&version)
    }

    /// Returns the expected formats of inputs, for an operator whose outputs have the format of the
    /// first input.
    pub fn formats(&self) -> Option<&'static [(usize, Format)]> {
        self.formats
    }

    /// Returns the name with its domain, unless that is `ai.onnx`: `Conv`, `ai.onnx.ml.Scaler`.
    pub fn full_name(&self) -> String {
        match self.domain {
            "" => self.name.to_string(),
            domain => format!("{domain}.{}", self.name),
        }
    }

    /// Returns the versions, oldest first.
    pub fn versions(&self) -> impl DoubleEndedIterator<Item = &Version> {
        self.versions.iter()
    }

    /// Returns the number of the newest version.
    pub fn newest(&self) -> u32 {
        self.versions().next_back().map_or(0, |version| version.since)
    }

    /// Returns the number of the version that is current at an opset version.
    pub fn version_at(&self, opset: u32) -> Option<u32> {
        self.versions().rev().map(|version| version.since).find(|since| *since <= opset)
    }

    /// Returns the inference at an opset version.
    pub fn inference_at(&self, opset: u32) -> Option<InferFn> {
        self.inference.iter().rfind(|(since, _)| *since <= opset).map(|(_, infer)| *infer)
    }

    /// Returns the inference of the reference implementation at an opset version.
    pub fn reference_inference_at(&self, opset: u32) -> Option<InferFn> {
        self.reference_rule.or_else(|| self.inference_at(opset))
    }

    /// Returns the adapter across a version boundary.
    pub fn adapter_at(&self, from: u32, to: u32) -> Option<AdapterFn> {
        self.adapters
            .iter()
            .find(|adapter| adapter.from == from && adapter.to == to)
            .map(|adapter| adapter.adapt)
    }

    /// Returns the operator of the same domain that nodes call in their newest form, if it is
    /// another one.
    pub fn replacement(&self) -> Option<&'static str> {
        self.replacement
    }

    /// Returns the declared crossing from a version to its neighbour, both named by the opset
    /// version that introduced them. `None` if nothing is declared, or if they are not neighbours.
    pub fn crossing(&self, from_since: u32, to_since: u32) -> Option<Crossing> {
        let is_up = from_since < to_since;
        let (older, newer) = (from_since.min(to_since), from_since.max(to_since));
        let version = self.versions().find(|version| version.since == newer)?;
        // Another operator may precede the first version, for which there is an adapter.
        let before = newer.checked_sub(1)?;
        if self.version_at(before).unwrap_or(before) != older {
            return None;
        }
        let (adapter, declared) = if is_up {
            (self.adapter_at(newer - 1, newer), version.up)
        } else {
            (self.adapter_at(newer, newer - 1), version.down)
        };
        adapter.map(Crossing::Adapter).or(declared)
    }

    /// Returns all adapters.
    pub fn adapters(&self) -> impl Iterator<Item = &Adapter> {
        self.adapters.iter()
    }

    /// Returns the functions, oldest first.
    pub(crate) fn bodies(&self) -> impl DoubleEndedIterator<Item = (u32, Body)> {
        self.bodies.iter().copied()
    }

    /// Whether a node of the newest form is differentiated through other nodes, for an operator
    /// that has neither a rule nor a function.
    pub fn has_gradient_nodes(&self) -> bool {
        self.gradient_body.is_some()
    }

    /// Returns the builder of nodes that replace a call for which the function is wrong.
    pub(crate) fn call_nodes(&self) -> Option<CallBodyFn> {
        self.call_body
    }

    /// Returns the inputs that the function needs as scalars.
    pub(crate) fn scalar_inputs(&self) -> &'static [usize] {
        self.scalars
    }

    /// Returns the builder of the nodes through which a node is differentiated.
    pub(crate) fn gradient_body(&self) -> Option<ReasonedFn> {
        self.gradient_body
    }

    /// Returns the schema at an opset version: the sum of the differences up to it.
    pub fn schema_at(&self, opset: u32) -> Option<Schema> {
        let since = self.version_at(opset)?;
        let mut schema = Schema {
            name: self.name,
            domain: self.domain,
            since,
            deprecated: false,
            determinism: Determinism::Deterministic,
            inputs: Vec::new(),
            outputs: Vec::new(),
            attributes: Vec::new(),
            any_attributes: false,
            types: Vec::new(),
            notes: Vec::new(),
        };
        let mut determinism = None;
        for version in self.versions().take_while(|version| version.since <= since) {
            schema.deprecated = false;
            if version.whole {
                determinism = None;
                schema.inputs.clear();
                schema.outputs.clear();
                schema.attributes.clear();
                schema.types.clear();
                schema.notes.clear();
            }
            for fact in version.facts {
                match *fact {
                    Fact::Input(param) => put(&mut schema.inputs, param, |p| p.name == param.name),
                    Fact::Output(param) => {
                        put(&mut schema.outputs, param, |p| p.name == param.name)
                    }
                    Fact::Attribute(attribute) => {
                        put(&mut schema.attributes, attribute, |a| a.name == attribute.name)
                    }
                    Fact::Types(name, allowed) => {
                        put(&mut schema.types, TypeVar { name, allowed }, |t| t.name == name)
                    }
                    Fact::WithoutInput(name) => schema.inputs.retain(|p| p.name != name),
                    Fact::WithoutAttribute(name) => schema.attributes.retain(|a| a.name != name),
                    Fact::WithoutTypes(name) => schema.types.retain(|t| t.name != name),
                    Fact::Deprecated => schema.deprecated = true,
                    Fact::Determinism(declared) => determinism = Some(declared),
                    Fact::Note(note) => schema.notes.push(note),
                }
            }
        }
        schema.attributes.sort_by_key(|attribute| attribute.name);
        // A node whose attribute is a graph may call any operator.
        schema.determinism = determinism.unwrap_or(if schema.attributes.iter().any(is_graph) {
            Determinism::NonDeterministic
        } else {
            Determinism::Deterministic
        });
        Some(schema)
    }
}

fn is_graph(attribute: &Attribute) -> bool {
    matches!(attribute.ty, AttrType::Graph | AttrType::Graphs)
}

fn put<T>(list: &mut Vec<T>, item: T, same: impl Fn(&T) -> bool) {
    match list.iter().position(same) {
        Some(index) => list[index] = item,
        None => list.push(item),
    }
}

/// A list that can grow in a constant.
#[derive(Clone, Copy)]
struct List<T, const MAX: usize> {
    items: [Option<T>; MAX],
    len: usize,
}

impl<T: Copy, const MAX: usize> List<T, MAX> {
    const EMPTY: Self = List { items: [None; MAX], len: 0 };

    const fn push(mut self, item: T) -> Self {
        self.items[self.len] = Some(item);
        self.len += 1;
        self
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.items[..self.len].iter().flatten()
    }
}

impl<T: Copy + std::fmt::Debug, const MAX: usize> std::fmt::Debug for List<T, MAX> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
