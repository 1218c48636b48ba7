//! Recording of the results for the outputs of nodes.

use sardonyx_model::{Dim, Id, NodeAttributes, NodeId, Type, ValueId};
use sardonyx_ops::{AttrValue, Attributes, Demand, RuleOutcome};
use smallvec::SmallVec;

use super::ProblemKind;
use super::engine::{Engine, drop_expressions, element};
use super::problems::MOST_LISTED;
use super::unknown::{Missing, Unknown, usual_reason};

impl Engine<'_> {
    pub(super) fn note(
        &mut self,
        value: ValueId,
        missing: Missing,
        node: Option<NodeId>,
        reason: String,
        symbol: Option<String>,
    ) {
        self.complaints.count += 1;
        if self.options.explain && self.found.unknown.len() < MOST_LISTED {
            let call = self.calls.first().map(|call| call.node);
            self.found.unknown.push(Unknown { value, missing, node, reason, call, symbol });
        }
    }

    /// Records the results of a node's rule.
    pub(super) fn outputs(&mut self, node: NodeId, outcome: RuleOutcome) {
        let model = self.model;
        for fact in outcome.cut_windows {
            self.found.add_cut_window(node, fact);
        }
        if self.style().learns_equalities() {
            let replaced = self.equalities.count();
            for (a, b) in &outcome.equal {
                let fresh = &self.fresh;
                self.equalities
                    .learn(node, a, b, self.options.sizes, |name| fresh.number(name).is_some());
            }
            // From here on, equal inputs result in types with other symbols.
            if self.equalities.count() > replaced {
                self.repeats.clear();
            }
            if self.options.sizes.is_some() {
                let equal = outcome.equal.into_iter().map(|(a, b)| Demand::Equal(a, b));
                self.demands.extend(equal.chain(outcome.demands));
            }
        }
        let is_constant = || {
            let found = model.node(node);
            model.maybe_text(found.op_type) == Some(b"Constant") && model.domain_of(node).is_empty()
        };
        let follows = self.style().follows_values() || is_constant();
        let mut known = outcome.known.into_iter();
        for (index, (value, ty)) in model.outputs(node).iter().zip(outcome.types).enumerate() {
            let known = known.next().flatten().filter(|_| follows);
            let Some(value) = *value else { continue };
            let reasons = outcome.reasons.iter().filter(|(output, _)| *output == index);
            let mut reasons = reasons.map(|(_, reason)| reason.as_ref());
            self.output(node, index, value, ty, &mut reasons);
            let before = self.options.known.and_then(|known| known(value));
            self.found.known[value.index()] = before.or(known).map(Box::new);
        }
    }

    fn output(
        &mut self,
        node: NodeId,
        index: usize,
        value: ValueId,
        ty: Option<Type>,
        reasons: &mut dyn Iterator<Item = &str>,
    ) {
        let style = self.style();
        let Some(mut ty) = ty else {
            if self.found.ty(value).is_none() {
                self.note_unless_it_follows(node, value, Missing::Type, reasons);
            }
            return;
        };
        if style.learns_equalities() {
            self.equalities.apply_to(&mut ty);
            if let Type::Sequence(_) = ty {
                // Names that were made up while a body ran for one element do not hold for the
                // others.
                let (fresh, first) = (&self.fresh, self.first_name);
                ty.for_each_dim(&mut |dim| {
                    let is_new = |name: &String| fresh.number(name).is_some_and(|n| n >= first);
                    if dim.symbols().iter().any(is_new) {
                        *dim = Dim::Unknown;
                    }
                });
            }
        } else {
            // The reference implementation has only numbers and names, and names other sizes at
            // once.
            self.name_unknown(node, value, &mut ty, reasons);
        }
        let declared = self.found.types.take(value);
        if self.declarations.undefined_elements.contains(&value) && element(&ty) != Some(None) {
            let fact =
                format!("the node computes {ty}, but the model declares an undefined element type");
            self.problem(node, ProblemKind::Declared, fact);
        }
        let mut merged = match declared {
            None => ty,
            Some(declared) => {
                // A declared type adds to what was inferred, but what was inferred is what will
                // happen.
                // A loop without iterations returns the optional that it begins with. A file may
                // declare the type that the body returns.
                let merged = style.join(&ty, &declared).or_else(|| match &ty {
                    Type::Optional(inner) if self.is_opened_by_body(node, index) => {
                        style.join(inner, &declared)
                    }
                    _ => None,
                });
                merged.unwrap_or_else(|| {
                    let fact = format!("the node computes {ty}, but the model declares {declared}");
                    self.problem(node, ProblemKind::Declared, fact);
                    if style.prefers_declarations() { declared } else { ty }
                })
            }
        };
        if style.explains() {
            self.name_unknown(node, value, &mut merged, reasons);
            if let Type::Tensor(tensor) = &merged {
                if tensor.elem.is_none() {
                    self.note_unless_it_follows(node, value, Missing::Elem, reasons);
                }
                if tensor.shape.is_none() {
                    self.note_unless_it_follows(node, value, Missing::Rank, reasons);
                }
            }
        }
        self.found.types.set(value, Some(merged));
    }

    /// Whether a node is a `Loop` whose body does not return an optional for this output.
    fn is_opened_by_body(&self, node: NodeId, output: usize) -> bool {
        let model = self.model;
        let is_loop = model.maybe_text(model.node(node).op_type) == Some(b"Loop")
            && model.domain_of(node).is_empty();
        let Some(AttrValue::Graph(body)) =
            NodeAttributes::new(model, node).attribute("body").filter(|_| is_loop)
        else {
            return false;
        };
        // The first output of a body is the condition.
        let made = model.graph(body).outputs.get(output + 1).and_then(|info| info.value);
        let ty = made.and_then(|made| self.found.ty(made));
        ty.is_some_and(|ty| !matches!(ty, Type::Optional(_)))
    }

    /// Names unknown sizes, so that they can be propagated.
    fn name_unknown(
        &mut self,
        node: NodeId,
        value: ValueId,
        ty: &mut Type,
        reasons: &mut dyn Iterator<Item = &str>,
    ) {
        let named = self.name_open(ty);
        if named.is_empty() || !self.style().explains() || !self.options.explain {
            return;
        }
        let reason = self.reason(node, reasons);
        for (axis, name) in named {
            self.note(value, Missing::Dim(axis), Some(node), reason.clone(), Some(name));
        }
    }

    /// Names open sizes. Returns the axes and their names.
    pub(super) fn name_open(&mut self, ty: &mut Type) -> SmallVec<[(usize, String); 2]> {
        let style = self.style();
        let mut axis = 0;
        let mut named = SmallVec::new();
        if self.alone {
            ty.for_each_dim(&mut drop_expressions);
            return named;
        }
        if matches!(ty, Type::Sequence(_) | Type::Map(..)) && !style.names_sizes_of_elements() {
            return named;
        }
        ty.for_each_dim(&mut |dim| {
            if style.leaves_open(dim) {
                let name = self.fresh.next(self.model);
                *dim = Dim::symbol(&name);
                named.push((axis, name));
            }
            axis += 1;
        });
        named
    }

    /// Lists a missing type or size of an output, unless as much is missing of an input.
    fn note_unless_it_follows(
        &mut self,
        node: NodeId,
        value: ValueId,
        missing: Missing,
        reasons: &mut dyn Iterator<Item = &str>,
    ) {
        if !self.options.explain {
            return;
        }
        let mut inputs = self.model.inputs(node).flatten();
        let follows = inputs.any(|input| match self.found.ty(input) {
            None => true,
            Some(Type::Tensor(tensor)) => match missing {
                Missing::Elem => tensor.elem.is_none(),
                _ => tensor.shape.is_none(),
            },
            Some(_) => false,
        });
        let outcome = reasons.next();
        if outcome.is_some() || !follows {
            let reason = self.reason(node, &mut outcome.into_iter());
            self.note(value, missing, Some(node), reason, None);
        }
    }

    /// Returns the reason why something of an output stays unknown.
    fn reason(&self, node: NodeId, outcome: &mut dyn Iterator<Item = &str>) -> String {
        match outcome.next() {
            Some(reason) => format!("{reason} is known only at run time"),
            None => usual_reason(
                self.model,
                node,
                |value| self.found.ty(value).cloned(),
                |value| self.found.known[value.index()].is_some(),
            ),
        }
    }
}
