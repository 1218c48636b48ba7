//! Calls of functions.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Bindings, Dim, Model, NodeId, Producer, ValueId};
use sardonyx_ops::{InferError, Inferred, Known, RuleOutcome};
use sardonyx_proto::shown;

use super::CalledBody;
use super::engine::Engine;
use super::problems::MOST_LISTED;
use super::rulebook::Given;
use super::unknown::Unknown;

/// Call in progress.
pub(super) struct Call {
    pub(super) function: usize,
    pub(super) bindings: Rc<Bindings>,
    pub(super) node: NodeId,
    /// Whether each input is present; those beyond the end are absent.
    present: Vec<bool>,
    /// Whether it stands for any call, so that attributes are unknown.
    is_any: bool,
}

impl Call {
    /// Makes a call that stands for any, with all inputs present. `node` may be any node.
    pub(super) fn any(model: &Model, function: usize, node: NodeId) -> Call {
        let inputs = model.graph(model.functions[function].body).inputs.len();
        let present = vec![true; inputs];
        Call { function, bindings: Rc::default(), node, present, is_any: true }
    }

    /// Whether a node has attributes that are unknown.
    pub(super) fn leaves_open(&self, model: &Model, node: NodeId) -> bool {
        let mut attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
        self.is_any && attributes.any(|attribute| attribute.ref_attr_name().is_some())
    }
}

/// Call with everything that determines its outputs.
pub(super) struct Asked {
    function: usize,
    inputs: Vec<Inferred>,
    present: Vec<bool>,
    bindings: Rc<Bindings>,
}

impl PartialEq for Asked {
    fn eq(&self, other: &Asked) -> bool {
        self.function == other.function
            && self.inputs == other.inputs
            && self.present == other.present
            && self.bindings.surely_equal(&other.bindings)
    }
}

// Calls with unknown attributes equal no call, not even themselves, so they are inferred again.
impl Eq for Asked {}

impl Hash for Asked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.function, &self.present).hash(state);
        for input in &self.inputs {
            input.ty.hash(state);
            match &input.known {
                Some(Known::Ints { values, .. }) => values.hash(state),
                Some(Known::Tensor(tensor)) => tensor.bytes().hash(state),
                None => {}
            }
        }
    }
}

/// Results of a call.
pub(super) struct Answer {
    outputs: Vec<Inferred>,
    /// Numbers of the names that the call made up. Another call gets new ones.
    fresh: Range<usize>,
    /// Unknown sizes that were listed during the call and are sizes of its outputs.
    unknown: Vec<Unknown>,
    /// The number that the observer gave it.
    observed: Option<usize>,
}

impl Engine<'_> {
    /// Whether an input is present: neither left out by the node, nor an input of a function that
    /// the call leaves out.
    pub(super) fn has(&self, value: Option<ValueId>) -> bool {
        let Some(value) = value else { return false };
        let Some(call) = self.calls.last() else {
            return true;
        };
        let found = self.model.value(value);
        let Producer::Input(index) = found.producer else {
            return true;
        };
        found.graph != self.model.functions[call.function].body
            || call.present.get(index as usize).copied().unwrap_or(false)
    }

    /// Infers a call of a function.
    pub(super) fn call(
        &mut self,
        node: NodeId,
        function: usize,
        given: &Given<'_>,
    ) -> Result<RuleOutcome, InferError> {
        let model = self.model;
        let callee = &model.functions[function];
        let name = || shown(model.maybe_text(callee.name).unwrap_or_default());
        if self.calls.iter().any(|call| call.function == function) {
            return Err(InferError(format!("function {} calls itself", name())));
        }
        let formal = model.graph(callee.body).inputs.len();
        if given.inputs.len() > formal && self.style().refuses_inputs_beyond() {
            return Err(InferError(format!(
                "function {} has {formal} inputs, but the node passes {}",
                name(),
                given.inputs.len()
            )));
        }
        let bindings = Rc::new(Bindings::from_call(model, callee, given.attributes));
        let mut inputs: Vec<Inferred> = given
            .inputs
            .iter()
            .zip(&given.known)
            .map(|(ty, known)| Inferred { ty: ty.cloned(), known: known.cloned() })
            .collect();
        inputs.resize(formal, Inferred::default());
        let key = Asked {
            function,
            inputs: inputs.clone(),
            present: given.present.to_vec(),
            bindings: bindings.clone(),
        };
        let outputs = match self.answers.get(&key) {
            Some(answer) => {
                let (outputs, fresh) = (answer.outputs.clone(), answer.fresh.clone());
                let unknown = if fresh.is_empty() { Vec::new() } else { answer.unknown.clone() };
                self.note_call(node, answer.observed);
                self.rename_outputs(node, outputs, &fresh, &unknown)
            }
            None => {
                let (first, listed) = (self.fresh.count(), self.found.unknown.len());
                self.calls.push(Call {
                    function,
                    bindings: bindings.clone(),
                    node,
                    present: given.present.to_vec(),
                    is_any: false,
                });
                let outputs = self.graph(callee.body, &inputs);
                self.join_call(function, outputs.is_ok());
                self.calls.pop();
                let outputs = outputs?;
                let observed = self.options.calls.map(|calls| {
                    calls.observe(CalledBody {
                        model,
                        registry: self.callees.registry,
                        found: &self.found,
                        function,
                        bindings: &bindings,
                    })
                });
                self.note_call(node, observed);
                let answer = Answer {
                    outputs: outputs.clone(),
                    fresh: first..self.fresh.count(),
                    unknown: self.unknown_of(&outputs, listed),
                    observed,
                };
                self.answers.insert(key, answer);
                outputs
            }
        };
        let count = model.outputs(node).len();
        let mut beyond = outputs.iter().skip(count);
        if self.style().refuses_outputs_beyond() && beyond.any(|output| output.ty.is_some()) {
            return Err(InferError(format!(
                "function {} has {} outputs, but the node has {count}",
                name(),
                outputs.len()
            )));
        }
        let mut outcome = RuleOutcome::default();
        for output in
            outputs.into_iter().chain(std::iter::repeat_with(Inferred::default)).take(count)
        {
            outcome.types.push(output.ty);
            outcome.known.push(output.known);
        }
        Ok(outcome)
    }

    /// Returns the unknown sizes from `first` on that are sizes of these outputs.
    fn unknown_of(&self, outputs: &[Inferred], first: usize) -> Vec<Unknown> {
        let listed = self.found.unknown.get(first..).unwrap_or_default();
        if listed.is_empty() {
            return Vec::new();
        }
        let mut names = HashSet::new();
        for ty in outputs.iter().filter_map(|output| output.ty.as_ref()) {
            ty.clone().for_each_dim(&mut |dim| names.extend(dim.symbols()));
        }
        let is_of_output = |unknown: &&Unknown| {
            let symbol = unknown.symbol.as_ref();
            symbol.is_some_and(|symbol| names.contains(symbol))
        };
        listed.iter().filter(is_of_output).cloned().collect()
    }

    /// Hands the node of a call to the observer.
    fn note_call(&self, node: NodeId, call: Option<usize>) {
        if let (Some(calls), Some(call)) = (self.options.calls, call) {
            calls.note(node, call);
        }
    }

    /// Returns the outputs of an equal earlier call, with new names in place of those that it made
    /// up, since sizes may differ with the data.
    fn rename_outputs(
        &mut self,
        node: NodeId,
        mut outputs: Vec<Inferred>,
        old: &Range<usize>,
        unknown: &[Unknown],
    ) -> Vec<Inferred> {
        if old.is_empty() {
            return outputs;
        }
        let mut new: HashMap<String, Dim> = HashMap::new();
        for output in &mut outputs {
            if let Some(ty) = &mut output.ty {
                ty.for_each_dim(&mut |dim| {
                    for name in dim.symbols() {
                        if self.fresh.number(&name).is_some_and(|number| old.contains(&number)) {
                            new.entry(name)
                                .or_insert_with(|| Dim::symbol(&self.fresh.next(self.model)));
                        }
                    }
                    if !new.is_empty() {
                        *dim = dim.substitute(&|name| new.get(name).cloned());
                    }
                });
            }
            // Contents that depend on new names are not propagated.
            output.known = output.known.take().filter(|_| new.is_empty());
        }
        self.explain_again(node, &new, unknown);
        outputs
    }

    /// Lists new names with the reasons of the old ones.
    fn explain_again(&mut self, node: NodeId, new: &HashMap<String, Dim>, old: &[Unknown]) {
        let listed = old.iter().filter_map(|unknown| {
            let name = new.get(unknown.symbol.as_ref()?)?.as_symbol()?;
            let symbol = Some(name.to_string());
            Some(Unknown { symbol, call: Some(node), ..unknown.clone() })
        });
        let mut again: Vec<Unknown> = listed.collect();
        again.sort_by(|a, b| a.symbol.cmp(&b.symbol));
        let room = MOST_LISTED.saturating_sub(self.found.unknown.len());
        self.found.unknown.extend(again.into_iter().take(room));
    }
}
