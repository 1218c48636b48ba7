//! Conversion of single nodes from one version of their operator to another, boundary by boundary,
//! by the adapters that operators declare. The engine's [`upgrade`](crate::upgrade) and
//! [`convert`](crate::convert) differ only in the target versions.
//!
//! Each node is visited once, and so is each node that is made for it: the time is linear in the
//! number of nodes. New nodes are inserted into their graphs after all have been made.

mod fits;
mod types;

use std::fmt;
use std::rc::Rc;

use hashbrown::HashMap;
use sardonyx_model::{
    AttrValue, AttributeId, MadeNodes, Model, NodeBuilder, NodeId, Symbol, ValueId, shown_domain,
};
use sardonyx_ops::{
    Adapt, Adapted, Arity, Assumption, Crossing, OpDef, OpRef, Refusal, Registry, Schema,
    ValueTypes,
};
use sardonyx_tensor::{DataType, Tensor};

use fits::Fit;
pub(crate) use types::Types;

/// First version of `ai.onnx` from which the nodes that operators of other domains need are stable.
const STABLE: u32 = 13;

/// Target versions of nodes.
pub(crate) enum Goal<'a> {
    /// Newest versions of the operators.
    Newest,
    /// Versions of operator sets, by domain. Nodes of other domains stay.
    Opsets(&'a HashMap<String, u32>),
}

impl Goal<'_> {
    /// Returns the target opset version for a node of an operator.
    fn of(&self, op: OpRef) -> u32 {
        match self {
            Goal::Newest => op.def.newest(),
            Goal::Opsets(opsets) => opsets.get(op.def.domain).copied().unwrap_or(op.opset),
        }
    }
}

/// Conversion of nodes to their target versions.
pub(crate) struct Crossings<'a> {
    goal: Goal<'a>,
    types: Types<'a>,
    granted: &'a [Assumption],
    /// Versions that the scope of the current nodes imports after the conversion, by domain.
    imports: HashMap<String, u32>,
    /// Steps of each operator, by the opset versions of the node and of its target.
    ways: HashMap<(*const OpDef, u32, u32), Rc<Way>>,
    /// Requirements of each operator at an opset version.
    fits: HashMap<(*const OpDef, u32), Fit>,
}

/// Result of the conversion of a node.
#[derive(Debug, Default)]
pub(crate) struct Crossed {
    /// Whether the node changed, or new nodes were made for it.
    pub(crate) is_rewritten: bool,
    /// Whether the node was moved into a subgraph, or placed between two new nodes.
    pub(crate) is_wrapped: bool,
    /// The node and the nodes that were made for it, each with the opset version of its form.
    pub(crate) forms: Vec<(NodeId, u32)>,
    /// Boundaries that could not be crossed.
    pub(crate) stops: Vec<Stop>,
    /// Assumptions on which the conversion relies.
    pub(crate) assumed: Vec<Assumption>,
}

/// Boundary that a node cannot cross.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) node: NodeId,
    pub(crate) op: OpRef,
    /// Version that the node cannot have.
    pub(crate) to: u32,
    /// Nearest version that the node can have.
    pub(crate) last: Option<u32>,
    pub(crate) why: Why,
}

#[derive(Debug, Clone)]
pub(crate) enum Why {
    /// The operator was added later, in this version.
    TooNew(u32),
    /// The operator is deprecated.
    Deprecated,
    Refused(Refusal),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::TooNew(first) => write!(f, "the operator was added in version {first}"),
            Why::Deprecated => f.write_str("the operator is deprecated in that version"),
            Why::Refused(refusal) => f.write_str(&refusal.why),
        }
    }
}

/// Steps of the nodes of one operator from one version to another.
struct Way {
    /// Boundaries at which nodes may change.
    steps: Vec<Step>,
    /// Version that nodes cannot have, nearest one that they can have, and the reason; `None` if
    /// they can have the target version.
    end: Option<(u32, u32, Why)>,
}

/// Boundary between two versions of an operator.
struct Step {
    /// Version after the boundary.
    to: u32,
    /// Opset version of nodes that are made at the boundary: the nearest one after it.
    made_in: u32,
    crossing: Option<Crossing>,
    /// Inputs that the version before the boundary requires, by index and name.
    needs: Vec<(usize, &'static str)>,
    /// Requirements of the version after the boundary.
    fit: Fit,
}

impl Way {
    /// Finds the steps of a node to the version `to`. With `replaces`, a node of a version that
    /// only deprecates the operator starts at the version before, and can become its replacement.
    fn of(op: OpRef, to: u32, replaces: bool) -> Way {
        let OpRef { def, opset, .. } = op;
        let versions: Vec<u32> = def.versions().map(|version| version.since).collect();
        let mut at = def.version_at(opset).unwrap_or(opset);
        if replaces
            && op.schema.deprecated
            && let Some(before) = at.checked_sub(1).and_then(|before| def.version_at(before))
        {
            at = before;
        }
        let first = versions.first().copied().unwrap_or(at);
        let mut ahead: Vec<u32> = if to >= at {
            versions.into_iter().filter(|since| (at + 1..=to).contains(since)).collect()
        } else {
            let last = def.version_at(to).unwrap_or(first);
            versions.into_iter().rev().filter(|since| (last..at).contains(since)).collect()
        };
        let mut end = None;
        if to < first {
            // Some operators replaced others.
            match first.checked_sub(1).and_then(|before| def.crossing(first, before)) {
                Some(_) => ahead.push(first - 1),
                None => end = Some((to, first, Why::TooNew(first))),
            }
        } else if def.version_at(to) != Some(at)
            && def.schema_at(to).is_some_and(|schema| schema.deprecated)
        {
            let since = def.version_at(to).unwrap_or(to);
            end = Some((to, since.saturating_sub(1), Why::Deprecated));
        }
        let mut steps = Vec::new();
        let mut from = at;
        for to in ahead {
            let crossing = def.crossing(from, to);
            if !matches!(crossing, Some(Crossing::Same)) {
                let made_in = if to > from { to } else { from - 1 };
                let needs = def.schema_at(from).map(|schema| needed_inputs(&schema));
                let (needs, fit) = (needs.unwrap_or_default(), Fit::new(def, from, to));
                steps.push(Step { to, made_in, crossing, needs, fit });
            }
            from = to;
        }
        Way { steps, end }
    }
}

impl<'a> Crossings<'a> {
    pub(crate) fn new(goal: Goal<'a>, types: Types<'a>) -> Crossings<'a> {
        let (imports, ways, fits) = (HashMap::new(), HashMap::new(), HashMap::new());
        Crossings { goal, types, granted: &[], imports, ways, fits }
    }

    /// Sets the assumptions that the caller grants.
    pub(crate) fn granting(self, granted: &'a [Assumption]) -> Crossings<'a> {
        Crossings { granted, ..self }
    }

    /// Sets the versions that the scope of the following nodes imports after the conversion.
    pub(crate) fn import(&mut self, imports: HashMap<String, u32>) {
        self.imports = imports;
    }

    /// Returns a value that inference knows.
    pub(crate) fn constant(&self, value: ValueId) -> Option<Tensor> {
        self.types.known(value)?.to_tensor()
    }

    /// Returns the element type of a tensor, if it is known.
    pub(crate) fn elem(&self, value: ValueId) -> Option<DataType> {
        self.types.ty(value).and_then(|ty| ty.elem())
    }

    /// Converts a node, which calls `op`, and the nodes that are made for it to their target
    /// versions.
    pub(crate) fn cross(
        &mut self,
        model: &mut Model,
        made: &mut MadeNodes,
        registry: &Registry,
        node: NodeId,
        op: OpRef,
    ) -> Crossed {
        let mut crossed = Crossed::default();
        let mut open = vec![(node, op)];
        while let Some((node, op)) = open.pop() {
            let mut on_the_way = OnTheWay {
                crossings: &mut *self,
                model: &mut *model,
                made: &mut *made,
                registry,
                open: &mut open,
                assumed: &mut crossed.assumed,
                is_wrapped: &mut crossed.is_wrapped,
            };
            match on_the_way.go(node, op, &mut crossed.is_rewritten) {
                Ok(form) => crossed.forms.push((node, form)),
                Err(stop) => crossed.stops.push(stop),
            }
        }
        crossed
    }

    /// Returns the reason why a converted node, or a node that was made for it, is not valid in its
    /// form: the schema requires other types, attributes or numbers of operands. `None` if all fit.
    pub(crate) fn misfit(
        &mut self,
        model: &Model,
        registry: &Registry,
        crossed: &Crossed,
    ) -> Option<String> {
        crossed.forms.iter().find_map(|(node, form)| {
            let op = find_operator(model, registry, *node, *form)?;
            let fit = self.fits.entry((std::ptr::from_ref(op.def), *form));
            let fit = fit.or_insert_with(|| Fit::new(op.def, *form, *form));
            let why = fit.check(model, *node, &self.types).err()?;
            Some(format!("as {} of version {form}, {why}", op.def.full_name()))
        })
    }

    fn way(&mut self, op: OpRef, to: u32) -> Rc<Way> {
        let key = (std::ptr::from_ref(op.def), op.opset, to);
        let replaces = matches!(self.goal, Goal::Newest);
        self.ways.entry(key).or_insert_with(|| Rc::new(Way::of(op, to, replaces))).clone()
    }
}

/// State for the conversion of one node.
struct OnTheWay<'c, 'a> {
    crossings: &'c mut Crossings<'a>,
    model: &'c mut Model,
    made: &'c mut MadeNodes,
    registry: &'c Registry,
    /// New nodes to be converted, with their operators.
    open: &'c mut Vec<(NodeId, OpRef)>,
    assumed: &'c mut Vec<Assumption>,
    is_wrapped: &'c mut bool,
}

impl OnTheWay<'_, '_> {
    /// Converts the node, and returns the opset version of its form.
    fn go(&mut self, node: NodeId, op: OpRef, is_rewritten: &mut bool) -> Result<u32, Stop> {
        let mut op = op;
        'operator: loop {
            let goal = self.crossings.goal.of(op);
            let way = self.crossings.way(op, goal);
            for step in &way.steps {
                let refused = |why: Refusal| {
                    let Step { to, made_in, .. } = *step;
                    let last = Some(if to < op.opset { made_in + 1 } else { to - 1 });
                    Stop { node, op, to, last, why: Why::Refused(why) }
                };
                let before = Shape::of(self.model, node);
                self.step(node, op, step).map_err(refused)?;
                let after = Shape::of(self.model, node);
                *is_rewritten |= after != before;
                if after.names != before.names {
                    let form = self.form(node, op, step).ok();
                    let other =
                        form.and_then(|form| find_operator(self.model, self.registry, node, form));
                    let Some(other) = other else {
                        return Err(refused("its replacement is not known".to_string().into()));
                    };
                    op = other;
                    continue 'operator;
                }
            }
            return match &way.end {
                None => Ok(goal),
                Some((to, last, why)) => {
                    Err(Stop { node, op, to: *to, last: Some(*last), why: why.clone() })
                }
            };
        }
    }

    /// Returns the opset version of the form of a node that is made at a boundary of `op`. Nodes of
    /// another domain have the form that is valid in all versions from [`STABLE`].
    fn form(&self, node: NodeId, op: OpRef, step: &Step) -> Result<u32, String> {
        let domain = self.model.domain_of(node);
        if domain == op.def.domain {
            return Ok(step.made_in);
        }
        let Crossings { goal, imports, .. } = &*self.crossings;
        let form = match goal {
            Goal::Newest => self.registry.versions(&domain).map(|(_, newest)| newest),
            Goal::Opsets(_) => imports.get(&*domain).copied(),
        };
        form.filter(|form| !domain.is_empty() || *form >= STABLE).ok_or_else(|| {
            let domain = shown_domain(&domain);
            format!("it requires nodes of {domain}, version {STABLE} or newer")
        })
    }

    /// Casts integers, which the older version does not allow, to 64-bit floats around a node.
    /// Returns whether the node then fits.
    fn as_floats(&mut self, node: NodeId, op: OpRef, step: &Step) -> bool {
        let types = &mut self.crossings.types;
        let Some(casts) = step.fit.casts(self.model, node, types) else { return false };
        let to = |elem: DataType| [("to", AttrValue::Int(elem.number().into()))];
        let mut build = NodeBuilder::new(self.model, self.made, node);
        let mut made = Vec::new();
        for index in &casts.inputs {
            let input = build.model().inputs(node).nth(*index).flatten();
            let (cast, value) = build.before("Cast", "", &[input], &to(DataType::Double));
            build.model_mut().set_input(node, *index, Some(value));
            made.push(cast);
        }
        for (index, elem) in casts.outputs {
            made.extend(build.after(index, "Cast", "", &[], &to(elem)));
        }
        for cast in &made {
            let Some(op) = find_operator(self.model, self.registry, *cast, step.made_in) else {
                return false;
            };
            self.open.push((*cast, op));
        }
        if !op.def.domain.is_empty() {
            return false;
        }
        types.follow(self.model, self.registry, &made, node, |_| step.made_in);
        let fits = step.fit.check(self.model, node, types).is_ok();
        if fits {
            self.assumed.push(Assumption::IntegersInFloats);
        }
        fits
    }

    fn step(&mut self, node: NodeId, op: OpRef, step: &Step) -> Result<(), Refusal> {
        let (to, types) = (step.to, &mut self.crossings.types);
        match step.crossing {
            Some(Crossing::Same) => Ok(()),
            Some(Crossing::Types) => {
                step.fit.drop_defaults(self.model, node);
                let Err(why) = step.fit.check(self.model, node, types) else { return Ok(()) };
                let assumption = Assumption::IntegersInFloats;
                let is_granted = self.crossings.granted.contains(&assumption);
                if to < op.opset && is_granted && self.as_floats(node, op, step) {
                    return Ok(());
                }
                let may_help = to < op.opset
                    && !is_granted
                    && op.def.domain.is_empty()
                    && step.fit.casts(self.model, node, &self.crossings.types).is_some();
                let unless = may_help.then_some(assumption);
                Err(Refusal { unless, ..Refusal::from(why) })
            }
            Some(Crossing::Never(reason)) => Err(reason.to_string().into()),
            None => Err(format!(
                "the conversion of {} between these versions is not known",
                op.def.full_name()
            )
            .into()),
            Some(Crossing::Adapter(adapt)) => {
                if let Some(name) = reference(self.model, node) {
                    return Err(format!(
                        "its attribute {name} refers to a function attribute, which may differ between calls"
                    )
                    .into());
                }
                let is_given = |index| self.model.inputs(node).nth(index).flatten().is_some();
                let mut needs = step.needs.iter();
                if let Some((_, name)) = needs.find(|(index, _)| !is_given(*index)) {
                    return Err(format!("its input {name} is missing").into());
                }
                if to < op.opset {
                    step.fit.drop_defaults(self.model, node);
                }
                let build = NodeBuilder::new(self.model, self.made, node);
                let runs = matches!(self.crossings.goal, Goal::Newest);
                let mut cx = Adapt::new(build, &*types)
                    .with_granted(self.crossings.granted)
                    .with_running(runs);
                let result = adapt(&mut cx);
                let Adapted { made, assumed, is_wrapped } = cx.finish();
                self.assumed.extend(assumed);
                *self.is_wrapped |= is_wrapped;
                result?;
                let mut forms: HashMap<NodeId, u32> = HashMap::new();
                forms.insert(node, self.form(node, op, step)?);
                for made in &made {
                    let form = self.form(*made, op, step)?;
                    match find_operator(self.model, self.registry, *made, form) {
                        Some(op) => self.open.push((*made, op)),
                        None => {
                            let why = "an operator that it requires is unknown there".to_string();
                            return Err(why.into());
                        }
                    }
                    forms.insert(*made, form);
                }
                let types = &mut self.crossings.types;
                types.follow(self.model, self.registry, &made, node, |node| forms[&node]);
                // An older version allows fewer types, whatever the adapter did.
                if to < op.opset {
                    for made in made.iter().chain([&node]) {
                        let Some(now) =
                            find_operator(self.model, self.registry, *made, step.made_in)
                        else {
                            continue;
                        };
                        if now.def.is(op.def) {
                            step.fit.check(self.model, *made, types)?;
                        } else {
                            let fit = Fit::new(now.def, step.made_in, step.made_in);
                            let name = now.def.full_name();
                            fit.check(self.model, *made, types)
                                .map_err(|why| format!("{name}, which it requires: {why}"))?;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns the operator that a node calls at an opset version of its domain.
fn find_operator(model: &Model, registry: &Registry, node: NodeId, opset: u32) -> Option<OpRef> {
    let name = model.display(model.node(node).op_type);
    registry.op_ref(&model.domain_of(node), &name, opset)
}

/// Returns the required inputs, by index and name.
fn needed_inputs(schema: &Schema) -> Vec<(usize, &'static str)> {
    let inputs = schema.inputs.iter().enumerate();
    let needed = inputs.filter(|(_, input)| matches!(input.arity, Arity::Single));
    needed.map(|(index, input)| (index, input.name)).collect()
}

/// Returns the name of an attribute that takes its value from the call of the function around the
/// node.
fn reference(model: &Model, node: NodeId) -> Option<String> {
    let mut attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
    let found = attributes.find(|attribute| attribute.ref_attr_name().is_some())?;
    Some(model.display(found.name).into_owned())
}

/// Properties of a node that conversion can change.
#[derive(PartialEq)]
struct Shape {
    names: (Option<Symbol>, Option<Symbol>),
    inputs: Vec<Option<ValueId>>,
    outputs: Vec<Option<ValueId>>,
    attributes: Vec<AttributeId>,
}

impl Shape {
    fn of(model: &Model, node: NodeId) -> Shape {
        let found = model.node(node);
        Shape {
            names: (found.domain, found.op_type),
            inputs: model.inputs(node).collect(),
            outputs: model.outputs(node).to_vec(),
            attributes: model.attributes(node).to_vec(),
        }
    }
}
