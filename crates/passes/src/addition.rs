//! Nodes that are added to a model: a graph of their own that reads values of the main graph by
//! name, as the algorithm of a training step does.
//!
//! The nodes are made in a copy of the main graph, in the newest forms of their operators: there
//! functions can become their bodies and gradients can be derived without a change of the main
//! graph. In the end the copy loses what the main graph computes as well, and the rest is brought
//! to the versions that the model imports, or to the oldest newer ones that can say it.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    AttrValue, GraphId, Model, NodeId, OperatorSetId, Producer, Symbol, TrainingInfo, Type,
    ValueId, normalize_domain,
};
use sardonyx_ops::Registry;
use sardonyx_ops::operators::GRADIENT;
use sardonyx_tensor::{DataType, Tensor, TensorError, shape};

use crate::convert::{ConvertError, ConvertOptions, Target, convert_in_any_order};
pub(crate) use crate::differentiate::TRAINING;
use crate::differentiate::{bind_gradients, differentiate};
use crate::expand::{Expansions, expand_calls};
use crate::finding::{Finding, Places, Spot, SpotPart};
use crate::infer::{InferOptions, Inference, declaration, infer};
use crate::ir_version::{PLAIN_INITIALIZERS, import_implied};
use crate::order::{reads, tree};
use crate::resolve::{Resolved, resolve};
use crate::results::Origins;
use crate::upgrade::upgrade;

/// A graph that is added to a model, in the making.
pub(crate) struct Addition {
    /// The model as it is given, of which findings speak.
    original: Model,
    /// A model whose main graph is the copy.
    resolved: Resolved,
    registry: Registry,
    /// The main graph of the model.
    main: GraphId,
    /// What its values are called.
    names: HashSet<Symbol>,
    functions: usize,
    training: Vec<TrainingInfo>,
    opset: u32,
    newest: u32,
    /// Values of the copy that are not what the main graph computes under their names.
    changed: HashSet<ValueId>,
    outputs: Vec<ValueId>,
    /// Gradients, with the values that they belong to, whose types they have.
    gradients: HashMap<ValueId, ValueId>,
    /// Nodes of the copy and of graphs in it, and those of which they are copies.
    copies: Origins,
    /// Operators that became their functions, by domain and name.
    pub(crate) expansions: Expansions,
}

/// A model with a graph that is added to it.
pub(crate) struct Added {
    /// The model; its main graph computes what it did.
    pub(crate) model: Model,
    /// The graph, which stands alone.
    pub(crate) graph: GraphId,
    /// The version of `ai.onnx` that the model had, and the one that it has.
    pub(crate) opset: (u32, u32),
    /// Nodes of the graph.
    pub(crate) nodes: usize,
    /// For which nodes of the model that was given the nodes were made.
    pub(crate) origins: Origins,
}

impl Addition {
    /// For a model. `also` are graphs that see the values of the main graph and come after it in
    /// the copy; they are empty afterwards.
    ///
    /// # Errors
    ///
    /// Everything that stands against running the model.
    pub(crate) fn new(
        mut model: Model,
        registry: &Registry,
        also: &[GraphId],
    ) -> Result<Addition, Vec<Finding>> {
        let original = model.clone();
        // What stands against running the model is said of the model, and not of the copy.
        let of_original =
            |findings| resolve(original.clone(), registry.clone()).err().unwrap_or(findings);
        let Some(main) = model.main else { return Err(of_original(Vec::new())) };
        let training = std::mem::take(&mut model.training_info);
        let names = model
            .values()
            .filter(|(_, value)| value.graph == main && value.producer != Producer::Nothing);
        let names: HashSet<Symbol> = names.map(|(_, value)| value.name).collect();
        let copy = model.copy_graph(main);
        let nodes = |root| {
            let graphs = tree(&model, root).into_iter();
            graphs.flat_map(|graph| model.graph(graph).nodes.clone()).collect::<Vec<NodeId>>()
        };
        let copies = Origins::default().then_copies(nodes(copy), nodes(main));
        if model.header.ir_version.unwrap_or(0) < PLAIN_INITIALIZERS {
            // All initializers are inputs there, which says nothing about overriding them.
            model.fix_default_inputs(copy);
        }
        for graph in also {
            model.append_graph(copy, *graph);
        }
        rebind(&mut model, copy, main, copy);
        let functions = model.functions.len();
        let opset = model.opset("").and_then(|opset| u32::try_from(opset).ok()).unwrap_or(1);
        model.main = Some(copy);
        bind_gradients(&mut model)?;
        let mut resolved = resolve(model, registry.clone()).map_err(of_original)?;
        let mut expansions = Expansions::default();
        let mut prepare = || {
            expand_calls(&mut resolved, &mut expansions)?;
            let inference = infer(&resolved, InferOptions::default())?;
            let upgraded = upgrade(&mut resolved, &inference, &|_, _| false);
            upgraded.map(drop).map_err(|refused| refused.findings)
        };
        if let Err(findings) = prepare() {
            let findings = findings.into_iter();
            return Err(findings
                .map(|found| as_of_original(&original, &resolved, found))
                .collect());
        }
        let newest = registry.versions("").map_or(opset, |(_, newest)| newest);
        let (outputs, changed) = (Vec::new(), HashSet::new());
        let registry = registry.clone();
        Ok(Addition {
            original,
            resolved,
            registry,
            main,
            names,
            functions,
            training,
            opset,
            newest,
            changed,
            outputs,
            gradients: HashMap::new(),
            copies,
            expansions,
        })
    }

    /// The model, whose main graph is the copy.
    pub(crate) fn model(&self) -> &Model {
        self.resolved.model()
    }

    /// The model with its operators.
    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    pub(crate) fn model_mut(&mut self) -> &mut Model {
        self.resolved.model_mut()
    }

    /// The copy.
    pub(crate) fn graph(&self) -> GraphId {
        self.resolved.main()
    }

    /// The types of all values.
    ///
    /// # Errors
    ///
    /// Types that contradict each other.
    pub(crate) fn types(&self) -> Result<Inference, Vec<Finding>> {
        infer(&self.resolved, InferOptions::default()).map_err(|findings| {
            findings.into_iter().map(|finding| self.as_of_original(finding)).collect()
        })
    }

    /// The value of a name in the copy.
    pub(crate) fn value(&self, name: &str) -> Option<ValueId> {
        let model = self.model();
        let symbol = model.symbol(name.as_bytes())?;
        let graph = self.graph();
        let defines = |value: &sardonyx_model::Value| {
            value.graph == graph && value.name == symbol && value.producer != Producer::Nothing
        };
        model.values().find(|(_, value)| defines(value)).map(|(id, _)| id)
    }

    /// What is said of a name that no value has.
    pub(crate) fn no_value(&self, name: &str) -> String {
        let (model, graph) = (self.model(), self.graph());
        let defined = model
            .values()
            .filter(|(_, value)| value.graph == graph && value.producer != Producer::Nothing);
        let names: Vec<_> = defined.map(|(_, value)| model.display(Some(value.name))).collect();
        let near = sardonyx_proto::suggest::hint(name, names.iter().map(|name| &**name));
        format!("the model has no value '{name}'{near}")
    }

    /// The name of a value.
    pub(crate) fn name(&self, value: ValueId) -> String {
        self.model().display(Some(self.model().value(value).name)).into_owned()
    }

    /// A new node of the default domain with one output.
    pub(crate) fn node(
        &mut self,
        op: &str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        self.node_of(("", self.newest), op, inputs, 1, attributes)[0]
    }

    /// A value in another element type; the value itself if it has that.
    pub(crate) fn cast(&mut self, value: ValueId, from: DataType, to: DataType) -> ValueId {
        if from == to {
            return value;
        }
        self.node("Cast", &[Some(value)], &[("to", AttrValue::Int(to.number().into()))])
    }

    /// A new node of a domain and its version.
    pub(crate) fn node_of(
        &mut self,
        (domain, version): (&str, u32),
        op: &str,
        inputs: &[Option<ValueId>],
        outputs: usize,
        attributes: &[(&str, AttrValue<'_>)],
    ) -> Vec<ValueId> {
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let node = model.add_node(graph, op, domain, inputs, outputs);
        for (name, value) in attributes {
            model.set_attribute(node, name, value.clone());
        }
        let outputs = model.outputs(node).iter().flatten().copied().collect();
        self.resolved.set_opset(node, version);
        outputs
    }

    /// Puts a node that was added or changed into the newest form of its operator.
    pub(crate) fn renew(&mut self, node: NodeId) {
        self.resolved.set_opset(node, self.newest);
    }

    /// A new constant, called like this if no value is.
    pub(crate) fn constant(&mut self, name: &str, tensor: &Tensor) -> ValueId {
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let name = model.free_name(name);
        let value = model.add_initializer(graph, "constant", tensor);
        model.rename_value(value, name);
        value
    }

    /// A new constant of zeros, called like this if no value is. It takes up to 64 bytes in a file,
    /// whatever its size.
    ///
    /// # Errors
    ///
    /// It has too many elements.
    pub(crate) fn zeros(
        &mut self,
        name: &str,
        elem: DataType,
        dims: &[usize],
    ) -> Result<ValueId, TensorError> {
        /// Bytes of the sparse form, which a scalar and a tensor without elements do not have.
        const SPARSE: usize = 64;
        let bytes = elem.storage_bytes(shape::elems(dims)?);
        if bytes.is_some_and(|bytes| bytes <= SPARSE) {
            return Ok(self.constant(name, &Tensor::zeros(elem, dims)?));
        }
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let name = model.free_name(name);
        let value = model.add_sparse_zeros(graph, "zeros", elem, dims);
        model.rename_value(value, name);
        Ok(value)
    }

    /// A new input, called like this if no value is.
    pub(crate) fn input(&mut self, name: &str, ty: &Type) -> ValueId {
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let name = model.free_name(name);
        let value = model.add_graph_input(graph, "input");
        model.rename_value(value, name);
        let declared = declaration(model, ty);
        if let Some(info) = model.graph_mut(graph).inputs.last_mut() {
            info.ty = Some(declared);
        }
        value
    }

    /// Lets a constant be the default of an input of its name.
    pub(crate) fn make_default(&mut self, constant: ValueId, ty: &Type) {
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let declared = declaration(model, ty);
        model.make_input(graph, constant, Some(declared));
    }

    /// Names a value like this if no value is called so.
    pub(crate) fn rename(&mut self, value: ValueId, name: &str) {
        let model = self.resolved.model_mut();
        let name = model.free_name(name);
        model.rename_value(value, name);
    }

    /// Lets the added graph give back a value of its own.
    pub(crate) fn output(&mut self, value: ValueId) {
        if !self.outputs.contains(&value) {
            self.outputs.push(value);
        }
    }

    /// Says that nodes of the copy do something else than those of the main graph: what they make,
    /// and what follows from it, is computed by the added graph, under other names.
    pub(crate) fn change(&mut self, nodes: &[NodeId]) {
        let model = self.resolved.model();
        let mut open: HashSet<NodeId> = nodes.iter().copied().collect();
        // A node in a branch changes the node around it.
        for node in nodes {
            let owner = |node: NodeId| model.graph(model.node(node).graph).owner;
            open.extend(std::iter::successors(owner(*node), |node| owner(*node)));
        }
        for node in self.resolved.order() {
            let is_after = || reads(model, *node).iter().any(|value| self.changed.contains(value));
            if open.contains(node) || is_after() {
                self.changed.extend(model.outputs(*node).iter().flatten());
            }
        }
        let changed = self.changed.iter().copied();
        let mut changed: Vec<ValueId> =
            changed.filter(|value| self.has_name_of_main(*value)).collect();
        changed.sort();
        for value in changed {
            let name = self.name(value);
            self.rename(value, &name);
        }
    }

    /// Lets the added graph give back a value of the main graph, which it computes itself.
    pub(crate) fn take_over(&mut self, value: ValueId) {
        self.changed.insert(value);
        self.output(value);
    }

    /// Whether the main graph has a value of that name.
    fn has_name_of_main(&self, value: ValueId) -> bool {
        let found = self.model().value(value);
        found.graph == self.graph() && self.names.contains(&found.name)
    }

    /// Whether a value is what the main graph has under its name.
    fn is_of_main(&self, value: ValueId) -> bool {
        self.has_name_of_main(value) && !self.changed.contains(&value)
    }

    /// All values that a value depends on, and itself.
    pub(crate) fn influences(&self, value: ValueId) -> HashSet<ValueId> {
        let mut influences = HashSet::new();
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if influences.insert(value)
                && let Producer::Node(node, _) = self.model().value(value).producer
            {
                open.extend(reads(self.model(), node));
            }
        }
        influences
    }

    /// An output of the main graph: the only one, if none is named. The error says which there are.
    pub(crate) fn main_output(&self, name: Option<&str>) -> Result<ValueId, String> {
        let model = self.model();
        let outputs = &model.graph(self.graph()).outputs;
        let names = outputs.iter().map(|output| model.display(output.name).into_owned());
        let names: Vec<String> = names.collect();
        let found = match name {
            Some(name) => names.iter().position(|found| found == name),
            None if outputs.len() == 1 => Some(0),
            None => {
                let (count, names) = (outputs.len(), names.join(", "));
                return Err(format!(
                    "the model has {count} outputs; name one of them (--of): {names}"
                ));
            }
        };
        found.and_then(|index| outputs[index].value).ok_or_else(|| {
            let name = name.unwrap_or_default();
            let near = sardonyx_proto::suggest::hint(name, names.iter().map(String::as_str));
            format!("the model has no output '{name}'; it has {}{near}", names.join(", "))
        })
    }

    /// Adds a node that computes the gradients of `y` by `xs`, where `zs` are the inputs besides on
    /// which `y` depends. Gives the gradients, called as what they belong to with `_grad` after it.
    /// `is_left` if the node stays; otherwise [`derive`](Self::derive) replaces it.
    pub(crate) fn gradient(
        &mut self,
        y: ValueId,
        xs: &[ValueId],
        zs: &[ValueId],
        is_left: bool,
    ) -> Vec<ValueId> {
        let names = |of: &[ValueId]| of.iter().map(|value| self.name(*value)).collect();
        let bytes = |names: Vec<String>| {
            AttrValue::Strings(names.into_iter().map(|name| name.into_bytes().into()).collect())
        };
        let (of_xs, of_zs): (Vec<String>, Vec<String>) = (names(xs), names(zs));
        let mut attributes = vec![
            ("xs", bytes(of_xs.clone())),
            ("y", AttrValue::String(self.name(y).into_bytes().into())),
        ];
        if !of_zs.is_empty() {
            attributes.push(("zs", bytes(of_zs)));
        }
        let mut inputs: Vec<Option<ValueId>> = xs.iter().chain(zs).copied().map(Some).collect();
        if !is_left {
            // As bound.
            inputs.extend_from_within(..);
            inputs.push(Some(y));
        }
        let gradients = self.node_of(TRAINING, GRADIENT.name, &inputs, xs.len(), &attributes);
        self.gradients.extend(gradients.iter().copied().zip(xs.iter().copied()));
        for (gradient, x) in gradients.iter().zip(&of_xs) {
            self.rename(*gradient, &format!("{x}_grad"));
        }
        gradients
    }

    /// Replaces all `Gradient` nodes by what they mean.
    ///
    /// # Errors
    ///
    /// What has no gradient.
    pub(crate) fn derive(&mut self) -> Result<(), Vec<Finding>> {
        let made_before = self.makers_of_main();
        let declared = InferOptions::default();
        let (resolved, counts) = (&mut self.resolved, &mut self.expansions);
        let derived = differentiate(resolved, declared, &|_, _| false, &|_| false, counts);
        derived.map(drop).map_err(|findings| -> Vec<Finding> {
            findings.into_iter().map(|finding| self.as_of_original(finding)).collect()
        })?;
        // What a function makes can be off what its operator makes by a rounding. Gradients of
        // functions compare values for equality, so they read those of the function.
        let made_after: HashSet<(ValueId, NodeId)> = self.makers_of_main().into_iter().collect();
        for (value, _) in made_before.into_iter().filter(|made| !made_after.contains(made)) {
            let name = self.name(value);
            self.changed.insert(value);
            self.rename(value, &name);
        }
        Ok(())
    }

    /// The values that the main graph has as well and that nodes make, with these nodes.
    fn makers_of_main(&self) -> Vec<(ValueId, NodeId)> {
        let nodes = self.resolved.order().iter();
        let made = nodes.flat_map(|node| {
            let outputs = self.model().outputs(*node).iter().flatten();
            outputs.map(|value| (*value, *node))
        });
        made.filter(|(value, _)| self.is_of_main(*value)).collect()
    }

    /// A finding about the copy as one about the model.
    fn as_of_original(&self, finding: Finding) -> Finding {
        as_of_original(&self.original, &self.resolved, finding)
    }

    /// Takes out what the main graph has as well and brings the rest to the version `at_least`, or
    /// that of the model, or the oldest newer one in which it has an exact equivalent.
    ///
    /// # Errors
    ///
    /// Nodes of the main graph that have no exact equivalent in that version.
    pub(crate) fn finish(mut self, at_least: u32) -> Result<Added, Vec<Finding>> {
        let types = self.types()?;
        let borrowed = self.prune(&types);
        let Addition {
            resolved, registry, main, functions, training, opset, newest, copies, ..
        } = self;
        let graph = resolved.main();
        let (mut model, made) = resolved.into_parts();
        let mut origins = copies.then(made);
        let local = model.functions.split_off(functions.min(model.functions.len()));
        drop(local);
        let own = std::mem::take(&mut model.functions);
        let header = model.header.clone();
        set_opset(&mut model, newest);
        let first = opset.max(at_least).min(newest);
        let to = |version| ConvertOptions {
            target: Target::new().opset("", version),
            expand: true,
            granted: Vec::new(),
            like_reference: false,
        };
        let mut reached = newest;
        for version in first..newest {
            if let Ok(converted) = convert_in_any_order(&model, &registry, &to(version)) {
                (model, reached) = (converted.model, version);
                origins = origins.then(converted.origins);
                break;
            }
        }
        model.header = header;
        (model.main, model.functions, model.training_info) = (Some(main), own, training);
        if reached > opset {
            match convert_in_any_order(&model, &registry, &to(reached)) {
                Ok(converted) => {
                    model = converted.model;
                    origins = origins.then(converted.origins);
                }
                Err(ConvertError::Refused(findings)) => return Err(findings),
                Err(ConvertError::NotHeld(finding)) => return Err(vec![*finding]),
                // Versions up to the newest one exist, and nothing is checked here.
                Err(ConvertError::Target(_) | ConvertError::Invalid(_)) => {}
            }
        }
        rebind(&mut model, graph, graph, main);
        give_back(&mut model, graph, &borrowed);
        model.graph_mut(graph).parent = Some(main);
        let nodes = model.graph(graph).nodes.len();
        Ok(Added { model, graph, opset: (opset, reached), nodes, origins })
    }

    /// Returns the type of an output. That of a gradient is what is known of it and of the value
    /// that it belongs to: inference gives no shape to a tensor that is joined of a sequence, for
    /// example.
    fn type_of_output(&self, value: ValueId, types: &Inference) -> Option<Type> {
        let found = types.ty(value);
        let source = self.gradients.get(&value).and_then(|x| types.ty(*x));
        let merged = found.zip(source).and_then(|(found, source)| found.merge(source));
        merged.or_else(|| found.or(source).cloned())
    }

    /// Takes nodes out of the copy that nothing needs but what the main graph computes. What is
    /// left reads values of the main graph as inputs, or as the initializers that they are. Gives
    /// their names.
    fn prune(&mut self, types: &Inference) -> HashSet<Symbol> {
        let graph = self.graph();
        let mut needed: HashSet<NodeId> = HashSet::new();
        let mut read: HashSet<ValueId> = HashSet::new();
        let mut open = self.outputs.clone();
        let model = self.model();
        while let Some(value) = open.pop() {
            if model.value(value).graph != graph || !read.insert(value) {
                continue;
            }
            if self.is_of_main(value) {
                continue;
            }
            if let Producer::Node(node, _) = model.value(value).producer
                && needed.insert(node)
            {
                open.extend(reads(model, node));
            }
        }
        let (kept, gone): (Vec<NodeId>, Vec<NodeId>) =
            self.resolved.order().iter().partition(|node| needed.contains(*node));
        // A node that is needed for another output makes what the main graph has under other names.
        let outputs = kept.iter().flat_map(|node| {
            let outputs = model.outputs(*node).iter().enumerate();
            outputs.filter_map(|(index, value)| Some((*node, index, (*value)?)))
        });
        let twins: Vec<_> = outputs.filter(|(_, _, value)| self.is_of_main(*value)).collect();
        let borrowed: HashSet<ValueId> =
            read.iter().copied().filter(|value| self.is_of_main(*value)).collect();
        let own: Vec<(ValueId, Option<Type>)> =
            self.outputs.iter().map(|value| (*value, self.type_of_output(*value, types))).collect();
        let model = self.resolved.model_mut();
        for node in gone {
            model.detach_node(node);
        }
        for (node, index, _) in twins {
            let other = model.add_value(graph, "unused");
            model.redefine_output(node, index, other);
        }
        model.graph_mut(graph).nodes = kept;
        // Some runtimes refuse two nodes of one name.
        for graph in tree(model, graph) {
            for node in model.graph(graph).nodes.clone() {
                model.node_mut(node).name = None;
            }
        }
        model.retain_outputs(graph, |_, _| false);
        for (value, ty) in own {
            model.add_graph_output(graph, value);
            if let Some(ty) = ty {
                let declared = declaration(model, &ty);
                if let Some(info) = model.graph_mut(graph).outputs.last_mut() {
                    info.ty = Some(declared);
                }
            }
        }
        model.retain_inputs(graph, |info| info.value.is_some_and(|value| read.contains(&value)));
        model.retain_initializers(graph, |_, found| {
            found.value.is_some_and(|value| read.contains(&value))
        });
        model.retain_sparse_initializers(graph, |_, found| {
            let is_own = |value: &ValueId| read.contains(value) && !borrowed.contains(value);
            found.value.as_ref().is_some_and(is_own)
        });
        let found = model.graph_mut(graph);
        found.value_info.clear();
        found.quantization_annotation.clear();
        found.metadata_props.clear();
        found.doc_string = None;
        let mut missing: Vec<ValueId> = borrowed.iter().copied().collect();
        missing.sort();
        missing.retain(|value| {
            let producer = self.resolved.model().value(*value).producer;
            !matches!(producer, Producer::Input(_) | Producer::Initializer(_))
        });
        let model = self.resolved.model_mut();
        for value in missing {
            let declared = types.ty(value).cloned().map(|ty| declaration(model, &ty));
            model.make_input(graph, value, declared);
        }
        borrowed.into_iter().map(|value| self.model().value(value).name).collect()
    }
}

/// A finding about a copy of the main graph as one about the model: of the node that makes the same
/// value, if there is one.
fn as_of_original(original: &Model, copy: &Resolved, finding: Finding) -> Finding {
    let spot = match finding.place.spot.part {
        SpotPart::Node(node) => {
            let (model, node) = (copy.model(), copy.origin(node));
            let output = model.outputs(node).iter().flatten().next();
            let name = output.map(|value| model.value(*value).name);
            let main = original.main.map(|main| original.graph(main));
            let mut nodes = main.into_iter().flat_map(|main| &main.nodes);
            let makes = |node: &&NodeId| {
                let made = original.outputs(**node).iter().flatten().next();
                made.map(|value| original.value(*value).name) == name
            };
            let found = name.and_then(|_| nodes.find(makes));
            found.map_or(Spot::MODEL, |node| Spot::node(*node))
        }
        _ => Spot::MODEL,
    };
    Finding { place: Places::default().of(original, spot), ..finding }
}

/// Lets the nodes of a graph, and of the graphs in them, read values of one graph in place of those
/// of another that have the same names.
fn rebind(model: &mut Model, graph: GraphId, from: GraphId, to: GraphId) {
    let defined = model
        .values()
        .filter(|(_, value)| value.graph == to && value.producer != Producer::Nothing);
    let defined: HashMap<Symbol, ValueId> = defined.map(|(id, value)| (value.name, id)).collect();
    let twin = |model: &Model, value: ValueId| {
        let found = model.value(value);
        defined.get(&found.name).copied().filter(|_| found.graph == from)
    };
    for graph in tree(model, graph) {
        for node in model.graph(graph).nodes.clone() {
            let inputs: Vec<Option<ValueId>> = model.inputs(node).collect();
            for (index, value) in inputs.into_iter().enumerate() {
                if let Some(twin) = value.and_then(|value| twin(model, value)) {
                    model.set_input(node, index, Some(twin));
                }
            }
        }
        let mut outputs = std::mem::take(&mut model.graph_mut(graph).outputs);
        for value in outputs.iter_mut().filter_map(|info| info.value.as_mut()) {
            *value = twin(model, *value).unwrap_or(*value);
        }
        model.graph_mut(graph).outputs = outputs;
    }
}

/// Lets a graph define no values of the main graph any more.
fn give_back(model: &mut Model, graph: GraphId, borrowed: &HashSet<Symbol>) {
    model.retain_initializers(graph, |_, found| {
        found.tensor.name.is_none_or(|name| !borrowed.contains(&name))
    });
    model.retain_inputs(graph, |info| info.name.is_none_or(|name| !borrowed.contains(&name)));
}

/// Says which version of `ai.onnx` the nodes of a model are of.
fn set_opset(model: &mut Model, version: u32) {
    let is_standard =
        |import: &OperatorSetId| normalize_domain(&model.display(import.domain)).is_empty();
    let found: Vec<bool> = model.header.opset_import.iter().map(is_standard).collect();
    for (import, is_standard) in model.header.opset_import.iter_mut().zip(&found) {
        if *is_standard {
            import.version = Some(i64::from(version));
        }
    }
    if !found.contains(&true) {
        import_operator_set(model, "", version);
    }
}

/// Lets a model import an operator set, if it does not.
pub fn import_operator_set(model: &mut Model, domain: &str, version: u32) {
    if model.opset(domain).is_some() {
        return;
    }
    import_implied(model);
    let domain = Some(model.intern(domain));
    let version = Some(i64::from(version));
    let import = OperatorSetId { domain, version, ..OperatorSetId::default() };
    model.header.opset_import.push(import);
}
