//! Additions to a model: nodes in a graph of their own, which reads values of the main graph by
//! name, like the algorithm of a training step.
//!
//! The nodes are made in a copy of the main graph, in the newest forms of their operators. There,
//! functions can be expanded and gradients derived without changes of the main graph. Finally,
//! nodes whose values the main graph computes are removed from the copy, and the others are
//! converted to the versions that the model imports, or to the oldest newer ones in which they have
//! an equivalent.

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
use crate::origins::Origins;
use crate::resolve::{Resolved, resolve};
use crate::upgrade::upgrade;

/// State of a graph that is being added to a model.
pub(crate) struct Addition {
    /// Original model, whose nodes findings refer to.
    original: Model,
    /// Model whose main graph is the copy.
    resolved: Resolved,
    registry: Registry,
    /// Main graph of the original model.
    main: GraphId,
    /// Names of the values of the main graph.
    names: HashSet<Symbol>,
    functions: usize,
    training: Vec<TrainingInfo>,
    opset: u32,
    newest: u32,
    /// Values of the copy that differ from those of the main graph with their names.
    changed: HashSet<ValueId>,
    outputs: Vec<ValueId>,
    /// Value that each gradient belongs to, which has the type of the gradient.
    gradients: HashMap<ValueId, ValueId>,
    /// Nodes of the copy and its subgraphs, with the nodes that they were copied from.
    copies: Origins,
    /// Number of nodes that were expanded to functions, by domain and name of their operators.
    pub(crate) expansions: Expansions,
}

/// Model with an added graph.
pub(crate) struct Added {
    /// The model, whose main graph is equivalent to the original one.
    pub(crate) model: Model,
    /// Added graph. No node or field of the model refers to it yet.
    pub(crate) graph: GraphId,
    /// Version of `ai.onnx` before and after.
    pub(crate) opset: (u32, u32),
    /// Number of nodes in the graph.
    pub(crate) nodes: usize,
    /// Nodes of the input model from which the nodes of the result were made.
    pub(crate) origins: Origins,
}

impl Addition {
    /// Copies the main graph of a model. Graphs in `also`, which see the values of the main graph,
    /// are appended to the copy and emptied.
    ///
    /// # Errors
    ///
    /// Findings because of which the model cannot run.
    pub(crate) fn new(
        mut model: Model,
        registry: &Registry,
        also: &[GraphId],
    ) -> Result<Addition, Vec<Finding>> {
        let original = model.clone();
        // Reports findings about the original model, not about the copy.
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
            // All initializers are inputs in these versions, whether callers may override them or
            // not.
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

    /// Returns the model whose main graph is the copy.
    pub(crate) fn model(&self) -> &Model {
        self.resolved.model()
    }

    /// Returns the resolved model whose main graph is the copy.
    pub(crate) fn resolved(&self) -> &Resolved {
        &self.resolved
    }

    pub(crate) fn model_mut(&mut self) -> &mut Model {
        self.resolved.model_mut()
    }

    /// Returns the copy.
    pub(crate) fn graph(&self) -> GraphId {
        self.resolved.main()
    }

    /// Infers the types of all values.
    ///
    /// # Errors
    ///
    /// Contradictory types.
    pub(crate) fn types(&self) -> Result<Inference, Vec<Finding>> {
        infer(&self.resolved, InferOptions::default()).map_err(|findings| {
            findings.into_iter().map(|finding| self.as_of_original(finding)).collect()
        })
    }

    /// Returns the value of the copy with a name.
    pub(crate) fn value(&self, name: &str) -> Option<ValueId> {
        let model = self.model();
        let symbol = model.symbol(name.as_bytes())?;
        let graph = self.graph();
        let defines = |value: &sardonyx_model::Value| {
            value.graph == graph && value.name == symbol && value.producer != Producer::Nothing
        };
        model.values().find(|(_, value)| defines(value)).map(|(id, _)| id)
    }

    /// Returns the message about a name without a value.
    pub(crate) fn no_value(&self, name: &str) -> String {
        let (model, graph) = (self.model(), self.graph());
        let defined = model
            .values()
            .filter(|(_, value)| value.graph == graph && value.producer != Producer::Nothing);
        let names: Vec<_> = defined.map(|(_, value)| model.display(Some(value.name))).collect();
        let near = sardonyx_proto::suggest::hint(name, names.iter().map(|name| &**name));
        format!("the model has no value '{name}'{near}")
    }

    /// Returns the name of a value.
    pub(crate) fn name(&self, value: ValueId) -> String {
        self.model().display(Some(self.model().value(value).name)).into_owned()
    }

    /// Adds a node of the default domain with one output.
    pub(crate) fn node(
        &mut self,
        op: &str,
        inputs: &[Option<ValueId>],
        attributes: &[(&str, AttrValue<'_>)],
    ) -> ValueId {
        self.node_of("", self.newest, op, inputs, 1, attributes)[0]
    }

    /// Casts a value to another element type. Returns the value itself if the types are equal.
    pub(crate) fn cast(&mut self, value: ValueId, from: DataType, to: DataType) -> ValueId {
        if from == to {
            return value;
        }
        self.node("Cast", &[Some(value)], &[("to", AttrValue::Int(to.number().into()))])
    }

    /// Adds a node of a domain, in the form of an opset version.
    pub(crate) fn node_of(
        &mut self,
        domain: &str,
        version: u32,
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

    /// Records that an added or changed node has the newest form of its operator.
    pub(crate) fn renew(&mut self, node: NodeId) {
        self.resolved.set_opset(node, self.newest);
    }

    /// Adds a constant with this name, or a similar one if a value has the name.
    pub(crate) fn constant(&mut self, name: &str, tensor: &Tensor) -> ValueId {
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let name = model.free_name(name);
        let value = model.add_initializer(graph, "constant", tensor);
        model.rename_value(value, name);
        value
    }

    /// Adds a constant of zeros with this name, or a similar one if a value has the name. It takes
    /// up to 64 bytes in a file, whatever its size.
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
        /// Size in bytes above which zeros are sparse. Scalars and empty tensors have no sparse
        /// form.
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

    /// Adds an input with this name, or a similar one if a value has the name.
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

    /// Makes a constant the default of an input with its name.
    pub(crate) fn make_default(&mut self, constant: ValueId, ty: &Type) {
        let graph = self.graph();
        let model = self.resolved.model_mut();
        let declared = declaration(model, ty);
        model.make_input(graph, constant, Some(declared));
    }

    /// Renames a value to this name, or a similar one if a value has the name.
    pub(crate) fn rename(&mut self, value: ValueId, name: &str) {
        let model = self.resolved.model_mut();
        let name = model.free_name(name);
        model.rename_value(value, name);
    }

    /// Adds a value of the added graph to its outputs.
    pub(crate) fn output(&mut self, value: ValueId) {
        if !self.outputs.contains(&value) {
            self.outputs.push(value);
        }
    }

    /// Marks nodes of the copy that differ from those of the main graph. The added graph computes
    /// their outputs, and values that depend on them, under other names.
    pub(crate) fn change(&mut self, nodes: &[NodeId]) {
        let model = self.resolved.model();
        let mut open: HashSet<NodeId> = nodes.iter().copied().collect();
        // A changed node in a subgraph changes the nodes around it.
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

    /// Adds a value of the main graph to the outputs of the added graph, which computes it itself.
    pub(crate) fn take_over(&mut self, value: ValueId) {
        self.changed.insert(value);
        self.output(value);
    }

    /// Whether the main graph has a value with the name of this one.
    fn has_name_of_main(&self, value: ValueId) -> bool {
        let found = self.model().value(value);
        found.graph == self.graph() && self.names.contains(&found.name)
    }

    /// Whether a value equals the value of the main graph with its name.
    fn is_of_main(&self, value: ValueId) -> bool {
        self.has_name_of_main(value) && !self.changed.contains(&value)
    }

    /// Returns a value and all values that it depends on.
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

    /// Returns the output of the main graph with a name, or the only output. The error lists the
    /// outputs.
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

    /// Adds a `Gradient` node that computes the gradients of `y` with respect to `xs`, where `zs`
    /// are further inputs that `y` depends on. Returns the gradients, whose names are those of the
    /// `xs` with the suffix `_grad`. With `is_left` the node stays; otherwise
    /// [`derive`](Self::derive) replaces it.
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
            // Inputs like those of a bound node.
            inputs.extend_from_within(..);
            inputs.push(Some(y));
        }
        let gradients =
            self.node_of(TRAINING.0, TRAINING.1, GRADIENT.name, &inputs, xs.len(), &attributes);
        self.gradients.extend(gradients.iter().copied().zip(xs.iter().copied()));
        for (gradient, x) in gradients.iter().zip(&of_xs) {
            self.rename(*gradient, &format!("{x}_grad"));
        }
        gradients
    }

    /// Replaces all `Gradient` nodes by nodes that compute the gradients.
    ///
    /// # Errors
    ///
    /// Operators and values without a gradient.
    pub(crate) fn derive(&mut self) -> Result<(), Vec<Finding>> {
        let made_before = self.makers_of_main();
        let declared = InferOptions::default();
        let (resolved, counts) = (&mut self.resolved, &mut self.expansions);
        let derived = differentiate(resolved, declared, &|_, _| false, &|_| false, counts);
        derived.map(drop).map_err(|findings| -> Vec<Finding> {
            findings.into_iter().map(|finding| self.as_of_original(finding)).collect()
        })?;
        // The results of a function and of its operator can differ by rounding. Gradients of
        // functions compare values for equality, so that they must read the results of the
        // function.
        let made_after: HashSet<(ValueId, NodeId)> = self.makers_of_main().into_iter().collect();
        for (value, _) in made_before.into_iter().filter(|made| !made_after.contains(made)) {
            let name = self.name(value);
            self.changed.insert(value);
            self.rename(value, &name);
        }
        Ok(())
    }

    /// Returns the outputs of nodes that the main graph computes as well, with their nodes.
    fn makers_of_main(&self) -> Vec<(ValueId, NodeId)> {
        let nodes = self.resolved.order().iter();
        let made = nodes.flat_map(|node| {
            let outputs = self.model().outputs(*node).iter().flatten();
            outputs.map(|value| (*value, *node))
        });
        made.filter(|(value, _)| self.is_of_main(*value)).collect()
    }

    /// Moves a finding from the copy to the original model.
    fn as_of_original(&self, finding: Finding) -> Finding {
        as_of_original(&self.original, &self.resolved, finding)
    }

    /// Removes nodes whose values the main graph computes, and converts the others to the higher
    /// one of `at_least` and the version of the model, or to the oldest newer version in which they
    /// have an exact equivalent.
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
        let mut origins = copies.append(made);
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
                origins = origins.append(converted.origins);
                break;
            }
        }
        model.header = header;
        (model.main, model.functions, model.training_info) = (Some(main), own, training);
        if reached > opset {
            match convert_in_any_order(&model, &registry, &to(reached)) {
                Ok(converted) => {
                    model = converted.model;
                    origins = origins.append(converted.origins);
                }
                Err(ConvertError::Refused(findings)) => return Err(findings),
                Err(ConvertError::NotHeld(finding)) => return Err(vec![*finding]),
                // Versions up to the newest one exist, and the result is not checked here.
                Err(ConvertError::Target(_) | ConvertError::Invalid(_)) => {}
            }
        }
        rebind(&mut model, graph, graph, main);
        give_back(&mut model, graph, &borrowed);
        model.graph_mut(graph).parent = Some(main);
        let nodes = model.graph(graph).nodes.len();
        Ok(Added { model, graph, opset: (opset, reached), nodes, origins })
    }

    /// Returns the type of an output. The type of a gradient is merged with that of the value that
    /// it belongs to: inference does not find the shape of a tensor that is concatenated from a
    /// sequence, for example.
    fn type_of_output(&self, value: ValueId, types: &Inference) -> Option<Type> {
        let found = types.ty(value);
        let source = self.gradients.get(&value).and_then(|x| types.ty(*x));
        let merged = found.zip(source).and_then(|(found, source)| found.merge(source));
        merged.or_else(|| found.or(source).cloned())
    }

    /// Removes nodes from the copy that the outputs do not need, or whose values the main graph
    /// computes. The other nodes read these values as inputs or initializers. Returns their names.
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
        // A node may be needed for one output, while the main graph has another one: this gets a
        // new name.
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
        // Some runtimes refuse nodes with equal names.
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

/// Moves a finding from a copy of the main graph to the original model: to the node that computes
/// the value with the same name, if there is one.
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

/// Replaces values of the graph `from` that nodes of `graph` and its subgraphs read by the values
/// of the graph `to` with the same names.
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

/// Removes initializers and inputs from a graph that are values of the main graph.
fn give_back(model: &mut Model, graph: GraphId, borrowed: &HashSet<Symbol>) {
    model.retain_initializers(graph, |_, found| {
        found.tensor.name.is_none_or(|name| !borrowed.contains(&name))
    });
    model.retain_inputs(graph, |info| info.name.is_none_or(|name| !borrowed.contains(&name)));
}

/// Sets the version of `ai.onnx` that a model imports.
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

/// Imports an operator set, if the model does not.
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
