//! Adapters to `TreeEnsemble` of version 5 of `ai.onnx.ml`, which replaces `TreeEnsembleClassifier`
//! and `TreeEnsembleRegressor`: interior nodes and leaves have their own lists, and each leaf has
//! one weight.

use std::collections::HashMap;

use sardonyx_model::ValueId;
use sardonyx_tensor::{CastOptions, DataType, StringArray, Tensor, cast};

use crate::adapt::{Adapt, Refusal};
use crate::attributes::{AttrValue, Attributes};

/// Maximum number of interior nodes and leaves that an adapter makes of one node: trees are
/// repeated if their leaves have several weights.
const MOST_NODES: usize = 50_000_000;

const DOMAIN: &str = "ai.onnx.ml";

/// Turns a `TreeEnsembleRegressor` into a `TreeEnsemble`.
pub(super) fn convert_regressor(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let aggregate = match cx.string("aggregate_function").as_deref() {
        None | Some("SUM") => Aggregate::Sum,
        Some("AVERAGE") => Aggregate::Average,
        Some("MIN") => Aggregate::Min,
        Some("MAX") => Aggregate::Max,
        Some(other) => return Err(cx.refuse(format_args!("aggregate_function is {other}"))),
    };
    let transforms = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"];
    let transform = cx.string("post_transform").unwrap_or_else(|| "NONE".to_string());
    let Some(transform) = transforms.iter().position(|name| *name == transform) else {
        return Err(cx.refuse(format_args!("post_transform is {transform}")));
    };
    let targets = cx.int("n_targets").unwrap_or(1);
    let elem = element_type(cx)?;
    let prefix = Prefix {
        node: "target_nodeids",
        tree: "target_treeids",
        id: "target_ids",
        weights: "target_weights",
    };
    let ensemble = Ensemble::new(cx, &prefix, aggregate, targets)?;
    let is_exact = cx.input_type(0).and_then(|ty| ty.elem()) == Some(DataType::Float);
    if !is_exact {
        let wide = cast_to(cx, cx.input(0), elem);
        cx.set_input(0, Some(wide));
    }
    cx.clear_attributes();
    cx.become_operator("TreeEnsemble");
    for (name, value) in ensemble.attributes(cx, elem, transform as i64)? {
        cx.set(name, value);
    }
    if !is_exact {
        cx.after(0, "Cast", &[], &[("to", AttrValue::Int(DataType::Float.number().into()))]);
    }
    Ok(())
}

/// Turns a `TreeEnsembleClassifier` into a `TreeEnsemble`, and nodes that find the largest of its
/// scores and the class of that score.
pub(super) fn convert_classifier(cx: &mut Adapt<'_>) -> Result<(), Refusal> {
    let transform = match cx.string("post_transform").as_deref() {
        None | Some("NONE") => None,
        Some("SOFTMAX") => Some("Softmax"),
        Some("LOGISTIC") => Some("Sigmoid"),
        Some(other) => {
            return Err(
                cx.refuse(format_args!("no operator is equivalent to post_transform = {other}"))
            );
        }
    };
    let labels = match (cx.ints("classlabels_int64s"), cx.attribute("classlabels_strings")) {
        (Some(numbers), _) if !numbers.is_empty() => Tensor::from_slice([numbers.len()], &numbers),
        (_, Some(AttrValue::Strings(names))) => {
            let texts: StringArray = names.iter().collect();
            Tensor::from_strings([names.len()], texts)
        }
        _ => return Err(cx.refuse("it has no class labels")),
    };
    let labels = labels.map_err(|error| cx.refuse(error))?;
    let count = labels.dims()[0];
    let classes = cx.ints("class_ids").unwrap_or_default();
    if count < 2 || count == 2 && classes.windows(2).all(|pair| pair[0] == pair[1]) {
        return Err(cx.refuse(
            "scores of two classes from one column of weights are not supported by TreeEnsemble",
        ));
    }
    if !cx.has_output(0) {
        return Err(cx.refuse("its classes are left out"));
    }
    let elem = element_type(cx)?;
    let prefix = Prefix {
        node: "class_nodeids",
        tree: "class_treeids",
        id: "class_ids",
        weights: "class_weights",
    };
    let ensemble = Ensemble::new(cx, &prefix, Aggregate::Sum, count as i64)?;
    let is_exact = cx.input_type(0).and_then(|ty| ty.elem()) == Some(DataType::Float);
    let input = if is_exact { cx.input(0) } else { Some(cast_to(cx, cx.input(0), elem)) };
    let attributes = ensemble.attributes(cx, elem, 0)?;
    let sums = cx.before_in(DOMAIN, "TreeEnsemble", &[input], &attributes);
    let axes = [("axis", AttrValue::Int(1)), ("keepdims", AttrValue::Int(0))];
    let best = cx.before("ArgMax", &[Some(sums)], &axes);
    let labels = cx.add_constant(labels);
    if cx.has_output(1) {
        let mut scores = sums;
        if let Some(transform) = transform {
            let axis = [("axis", AttrValue::Int(1))];
            let attributes = if transform == "Softmax" { &axis[..] } else { &[] };
            scores = cx.before(transform, &[Some(scores)], attributes);
        }
        if !is_exact {
            scores = cast_to(cx, Some(scores), DataType::Float);
        }
        if scores == sums {
            // ArgMax reads them too.
            scores = cx.before("Identity", &[Some(scores)], &[]);
        }
        cx.hand_over(1, scores);
    }
    cx.clear_attributes();
    cx.become_operator_of("", "Gather");
    cx.set_inputs(&[Some(labels), Some(best)]);
    Ok(())
}

/// Moves tensors to lists of 32-bit floats, since versions before 3 have no tensors.
pub(super) fn move_tensors_to_lists(cx: &mut Adapt<'_>, weights: &str) -> Result<(), Refusal> {
    for list in ["base_values", "nodes_hitrates", "nodes_values", weights] {
        let name = format!("{list}_as_tensor");
        if !cx.has(&name) {
            continue;
        }
        let Some(AttrValue::Tensor(tensor)) = cx.attribute(&name) else {
            return Err(cx.refuse(format_args!("{name} cannot be read")));
        };
        let elem = tensor.data_type();
        if elem != DataType::Float {
            return Err(
                cx.refuse(format_args!("{name} must have type float in that version, not {elem}"))
            );
        }
        if cx.has(list) {
            return Err(cx.refuse(format_args!("it has both {list} and {name}")));
        }
        let values = tensor.to_vec::<f32>().map_err(|error| cx.refuse(error))?;
        cx.remove(&name);
        cx.set(list, AttrValue::Floats(values.into()));
    }
    Ok(())
}

fn cast_to(cx: &mut Adapt<'_>, value: Option<ValueId>, elem: DataType) -> ValueId {
    cx.before("Cast", &[value], &[("to", AttrValue::Int(elem.number().into()))])
}

/// Returns the type in which the trees compare and add: that of floating-point features, or 64-bit
/// floats for integers.
fn element_type(cx: &Adapt<'_>) -> Result<DataType, Refusal> {
    match cx.input_type(0).and_then(|ty| ty.elem()) {
        Some(DataType::Float) => Ok(DataType::Float),
        Some(DataType::Double | DataType::Int32 | DataType::Int64) => Ok(DataType::Double),
        _ => Err(cx.refuse("the element type of its input is unknown")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Average = 0,
    Sum = 1,
    Min = 2,
    Max = 3,
}

/// Prefix of the attributes of leaves.
struct Prefix {
    node: &'static str,
    tree: &'static str,
    id: &'static str,
    weights: &'static str,
}

/// Attributes of a `TreeEnsemble`.
#[derive(Default)]
struct Ensemble {
    aggregate: i64,
    targets: i64,
    features: Vec<i64>,
    modes: Vec<u8>,
    splits: Vec<f64>,
    tracks_true: Vec<i64>,
    true_ids: Vec<i64>,
    false_ids: Vec<i64>,
    true_leafs: Vec<i64>,
    false_leafs: Vec<i64>,
    roots: Vec<i64>,
    leaf_targets: Vec<i64>,
    leaf_weights: Vec<f64>,
}

/// Nodes in the lists of older versions.
struct Listed {
    trees: Vec<i64>,
    features: Vec<i64>,
    modes: Vec<Option<u8>>,
    values: Vec<f64>,
    tracks_true: Vec<i64>,
    /// Indices of the two nodes after each node.
    after: Vec<[usize; 2]>,
    /// Targets and weights of each node, in the order of the lists.
    weights: Vec<Vec<(i64, f64)>>,
}

impl Ensemble {
    fn new(
        cx: &Adapt<'_>,
        prefix: &Prefix,
        aggregate: Aggregate,
        targets: i64,
    ) -> Result<Ensemble, Refusal> {
        let listed = Listed::read(cx, prefix, targets)?;
        let mut made = Ensemble { aggregate: aggregate as i64, targets, ..Ensemble::default() };
        for (root, nodes) in listed.group_by_tree(cx)? {
            let weights = |node: usize| listed.weights[node].len();
            let leaves = || nodes.iter().copied().filter(|node| listed.modes[*node].is_none());
            // A leaf now has one weight, so a tree is repeated for further ones.
            let copies = leaves().map(weights).max().unwrap_or(0).max(1);
            let is_even = leaves().all(|leaf| weights(leaf) == copies);
            match aggregate {
                Aggregate::Average if copies > 1 => {
                    return Err(cx.refuse("an average of trees whose leaves have several weights"));
                }
                Aggregate::Min | Aggregate::Max if !is_even => {
                    return Err(cx.refuse("minimum or maximum with leaves that have no weight"));
                }
                _ => {}
            }
            if made.features.len() + made.leaf_weights.len() + copies * nodes.len() > MOST_NODES {
                return Err(cx.refuse(format_args!("its trees have more than {MOST_NODES} nodes")));
            }
            for copy in 0..copies {
                made.add_tree(&listed, root, &nodes, copy);
            }
        }
        let bases = read_numbers(cx, "base_values")?.unwrap_or_default();
        if bases.iter().any(|base| *base != 0.0) {
            if aggregate != Aggregate::Sum || i64::try_from(bases.len()) != Ok(targets) {
                return Err(cx.refuse("base_values does not have one element for each sum"));
            }
            // Each base value becomes a tree of one leaf, added last.
            for (target, base) in bases.into_iter().enumerate() {
                made.add_leaf(target as i64, base);
            }
        }
        Ok(made)
    }

    /// Adds a tree, whose leaves have their weights of index `copy`.
    fn add_tree(&mut self, listed: &Listed, root: usize, nodes: &[usize], copy: usize) {
        let weight = |leaf: usize| listed.weights[leaf].get(copy).copied().unwrap_or((0, 0.0));
        if listed.modes[root].is_none() {
            let (target, weight) = weight(root);
            self.add_leaf(target, weight);
            return;
        }
        // New index of each node; interior nodes and leaves count separately.
        let mut places = HashMap::with_capacity(nodes.len());
        let (mut interior, mut leaves) = (self.features.len(), self.leaf_weights.len());
        for node in nodes {
            let next = if listed.modes[*node].is_some() { &mut interior } else { &mut leaves };
            places.insert(*node, *next as i64);
            *next += 1;
        }
        self.roots.push(places[&root]);
        for node in nodes.iter().copied() {
            let Some(mode) = listed.modes[node] else {
                let (target, weight) = weight(node);
                self.leaf_targets.push(target);
                self.leaf_weights.push(weight);
                continue;
            };
            let [on_true, on_false] = listed.after[node];
            let is_leaf = |node: usize| i64::from(listed.modes[node].is_none());
            self.features.push(listed.features[node]);
            self.modes.push(mode);
            self.splits.push(listed.values[node]);
            self.tracks_true.push(listed.tracks_true[node]);
            self.true_ids.push(places[&on_true]);
            self.false_ids.push(places[&on_false]);
            self.true_leafs.push(is_leaf(on_true));
            self.false_leafs.push(is_leaf(on_false));
        }
    }

    /// Adds a tree that is a leaf, to which both branches lead.
    fn add_leaf(&mut self, target: i64, weight: f64) {
        let leaf = self.leaf_weights.len() as i64;
        self.leaf_targets.push(target);
        self.leaf_weights.push(weight);
        self.roots.push(self.features.len() as i64);
        self.features.push(0);
        self.modes.push(0);
        self.splits.push(0.0);
        self.tracks_true.push(0);
        for ids in [&mut self.true_ids, &mut self.false_ids] {
            ids.push(leaf);
        }
        for leafs in [&mut self.true_leafs, &mut self.false_leafs] {
            leafs.push(1);
        }
    }

    fn attributes(
        self,
        cx: &Adapt<'_>,
        elem: DataType,
        transform: i64,
    ) -> Result<Vec<(&'static str, AttrValue<'static>)>, Refusal> {
        let floats = |values: Vec<f64>| {
            let wide =
                Tensor::from_vec([values.len()], values).map_err(|error| cx.refuse(error))?;
            let stored = cast(&wide, elem, CastOptions::default());
            let stored = stored.map_err(|error| cx.refuse(error))?;
            let again = cast(&stored, DataType::Double, CastOptions::default());
            let is_exact = again.is_ok_and(|again| again.bytes() == wide.bytes());
            if !is_exact {
                let why = "it has 64-bit thresholds for 32-bit features";
                return Err(cx.refuse(why));
            }
            Ok(AttrValue::Tensor(stored))
        };
        let modes = Tensor::from_vec([self.modes.len()], self.modes);
        let modes = modes.map_err(|error| cx.refuse(error))?;
        let mut attributes = vec![
            ("aggregate_function", AttrValue::Int(self.aggregate)),
            ("leaf_targetids", AttrValue::from(self.leaf_targets)),
            ("leaf_weights", floats(self.leaf_weights)?),
            ("n_targets", AttrValue::Int(self.targets)),
            ("nodes_falseleafs", AttrValue::from(self.false_leafs)),
            ("nodes_falsenodeids", AttrValue::from(self.false_ids)),
            ("nodes_featureids", AttrValue::from(self.features)),
        ];
        if self.tracks_true.iter().any(|tracks| *tracks != 0) {
            let tracks = AttrValue::from(self.tracks_true);
            attributes.push(("nodes_missing_value_tracks_true", tracks));
        }
        attributes.extend([
            ("nodes_modes", AttrValue::Tensor(modes)),
            ("nodes_splits", floats(self.splits)?),
            ("nodes_trueleafs", AttrValue::from(self.true_leafs)),
            ("nodes_truenodeids", AttrValue::from(self.true_ids)),
            ("post_transform", AttrValue::Int(transform)),
            ("tree_roots", AttrValue::from(self.roots)),
        ]);
        Ok(attributes)
    }
}

impl Listed {
    fn read(cx: &Adapt<'_>, prefix: &Prefix, targets: i64) -> Result<Listed, Refusal> {
        let ints = |name: &str| cx.ints(name).unwrap_or_default();
        let modes = match cx.attribute("nodes_modes") {
            Some(AttrValue::Strings(modes)) => modes,
            _ => Vec::new(),
        };
        let modes = modes.iter().map(|name| parse_mode(cx, name)).collect::<Result<Vec<_>, _>>()?;
        let count = modes.len();
        let (trees, ids) = (ints("nodes_treeids"), ints("nodes_nodeids"));
        let (on_true, on_false) = (ints("nodes_truenodeids"), ints("nodes_falsenodeids"));
        let features = ints("nodes_featureids");
        let values = read_numbers(cx, "nodes_values")?.unwrap_or_default();
        let mut tracks_true = ints("nodes_missing_value_tracks_true");
        if tracks_true.is_empty() {
            tracks_true = vec![0; count];
        }
        let lists = [&trees, &ids, &on_true, &on_false, &features, &tracks_true];
        if lists.iter().any(|list| list.len() != count) || values.len() != count || count == 0 {
            return Err(cx.refuse("its lists of nodes have different lengths, or none"));
        }
        let keys = trees.iter().copied().zip(ids.iter().copied());
        let places: HashMap<(i64, i64), usize> = keys.zip(0..).collect();
        if places.len() != count {
            return Err(cx.refuse("two nodes of a tree have one id"));
        }
        let find = |tree: i64, node: i64| {
            let unknown = || cx.refuse(format_args!("tree {tree} has no node {node}"));
            places.get(&(tree, node)).copied().ok_or_else(unknown)
        };
        let mut after = vec![[0; 2]; count];
        for (node, after) in after.iter_mut().enumerate() {
            if modes[node].is_some() {
                let find = |id: i64| find(trees[node], id);
                *after = [find(on_true[node])?, find(on_false[node])?];
            }
        }
        let weights = read_numbers(cx, prefix.weights)?.unwrap_or_default();
        let of_leaves = [ints(prefix.tree), ints(prefix.node), ints(prefix.id)];
        if of_leaves.iter().any(|list| list.len() != weights.len()) {
            return Err(cx.refuse("its lists of weights have different lengths"));
        }
        let mut by_leaf = vec![Vec::new(); count];
        for (index, weight) in weights.into_iter().enumerate() {
            let [tree, node, target] = of_leaves.each_ref().map(|list| list[index]);
            if !(0..targets).contains(&target) {
                return Err(cx.refuse(format_args!("target {target} does not exist")));
            }
            let leaf = find(tree, node)?;
            if modes[leaf].is_some() {
                return Err(cx.refuse(format_args!(
                    "node {node} of tree {tree} has a weight, but is not a leaf"
                )));
            }
            by_leaf[leaf].push((target, weight));
        }
        Ok(Listed { trees, features, modes, values, tracks_true, after, weights: by_leaf })
    }

    /// Returns the root and the nodes of each tree, in the order of the lists.
    fn group_by_tree(&self, cx: &Adapt<'_>) -> Result<Vec<(usize, Vec<usize>)>, Refusal> {
        let mut is_after = vec![false; self.modes.len()];
        for (node, after) in self.after.iter().enumerate() {
            for next in after.iter().filter(|_| self.modes[node].is_some()) {
                if std::mem::replace(&mut is_after[*next], true) {
                    return Err(cx.refuse("two ways lead to one node"));
                }
            }
        }
        let mut order: Vec<(i64, Vec<usize>)> = Vec::new();
        let mut places: HashMap<i64, usize> = HashMap::new();
        for (node, tree) in self.trees.iter().enumerate() {
            let place = *places.entry(*tree).or_insert_with(|| {
                order.push((*tree, Vec::new()));
                order.len() - 1
            });
            order[place].1.push(node);
        }
        let trees = order.into_iter().map(|(tree, nodes)| {
            let mut roots = nodes.iter().copied().filter(|node| !is_after[*node]);
            match (roots.next(), roots.next()) {
                (Some(root), None) => Ok((root, nodes)),
                _ => Err(cx.refuse(format_args!("tree {tree} does not have one root"))),
            }
        });
        trees.collect()
    }
}

/// Returns the number of a comparison; `None` for a leaf.
fn parse_mode(cx: &Adapt<'_>, name: &[u8]) -> Result<Option<u8>, Refusal> {
    Ok(Some(match name {
        b"LEAF" => return Ok(None),
        b"BRANCH_LEQ" => 0,
        b"BRANCH_LT" => 1,
        b"BRANCH_GTE" => 2,
        b"BRANCH_GT" => 3,
        b"BRANCH_EQ" => 4,
        b"BRANCH_NEQ" => 5,
        other => {
            let other = String::from_utf8_lossy(other);
            return Err(cx.refuse(format_args!("unknown mode {other}")));
        }
    }))
}

/// Returns the numbers of an attribute that is a list of floats, or a tensor under a longer name.
fn read_numbers(cx: &Adapt<'_>, name: &str) -> Result<Option<Vec<f64>>, Refusal> {
    if let Some(AttrValue::Floats(values)) = cx.attribute(name) {
        return Ok(Some(values.iter().copied().map(f64::from).collect()));
    }
    match cx.attribute(&format!("{name}_as_tensor")) {
        Some(AttrValue::Tensor(tensor)) => {
            let wide = cast(&tensor, DataType::Double, CastOptions::default());
            let wide = wide.and_then(|wide| wide.to_vec::<f64>());
            wide.map(Some).map_err(|error| cx.refuse(format_args!("{name}_as_tensor: {error}")))
        }
        Some(_) => Err(cx.refuse(format_args!("{name}_as_tensor cannot be read"))),
        None => Ok(None),
    }
}
