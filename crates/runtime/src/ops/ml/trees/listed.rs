//! `TreeEnsembleClassifier` and `TreeEnsembleRegressor`: nodes are numbered within their trees, and
//! weights are lists that refer to leaves.

use hashbrown::HashMap;
use sardonyx_kernels::ml::PostTransform;
use sardonyx_kernels::trees::{Aggregate, Ensemble, Fault, Finish, Next, Split, Test};
use sardonyx_ops::AttrValue;
use sardonyx_tensor::DataType;

use super::super::attributes::{ints, post_transform};
use super::super::labels::Labels;
use super::{
    AGGREGATES, Classes, Numbers, OutputScores, ReadEnsemble, demand_length, feature, greatest,
    place, refuse, targets, tensor,
};
use crate::error::BindError;
use crate::kernel::{Kernel, Site};

/// Names of the attributes of weights.
struct Names {
    tree: &'static str,
    node: &'static str,
    id: &'static str,
    weights: &'static str,
}

/// Binds `TreeEnsembleRegressor`.
pub(crate) fn bind_regressor(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let names = Names {
        tree: "target_treeids",
        node: "target_nodeids",
        id: "target_ids",
        weights: "target_weights",
    };
    let targets = targets(site)?;
    let finish = Finish {
        aggregate: site.find_named("aggregate_function", &AGGREGATES)?,
        bases: bases(site, targets, "targets")?,
        transform: post_transform(site)?,
        is_binary: false,
        greatest: greatest(DataType::Float),
    };
    let ids = ints(site, names.id)?;
    let ids = ids.iter().enumerate().map(|(at, id)| place(names.id, at, *id, targets, "targets"));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    bind(site, &names, targets, Ids::Each(&ids), finish, None)
}

/// Binds `TreeEnsembleClassifier`.
pub(crate) fn bind_classifier(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let names = Names {
        tree: "class_treeids",
        node: "class_nodeids",
        id: "class_ids",
        weights: "class_weights",
    };
    let (labels, count) = labels(site)?;
    let ids = ints(site, names.id)?;
    let ids = ids.iter().enumerate().map(|(at, id)| place(names.id, at, *id, count, "classes"));
    let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
    // One column of weights separates two classes; it is the score of the second.
    let is_binary = count == 2 && !ids.is_empty() && ids.iter().all(|id| *id == ids[0]);
    let bases = match numbers(site, "base_values")?.0 {
        // Converters write only the base value of that column.
        one if is_binary && one.len() == 1 => one,
        _ => match bases(site, count, "classes")? {
            both if is_binary && !both.is_empty() => vec![both[ids[0]]],
            bases => bases,
        },
    };
    let transform = post_transform(site)?;
    let mut finish = Finish {
        aggregate: Aggregate::Sum,
        bases,
        transform,
        is_binary,
        greatest: greatest(DataType::Float),
    };
    let classes = |scores| Classes { labels, scores };
    if count == 1 {
        ids.fill(1);
        finish.bases = finish.bases.first().map_or(Vec::new(), |base| vec![0.0, *base]);
        return bind(site, &names, 2, Ids::Each(&ids), finish, Some(classes(OutputScores::Second)));
    }
    if !is_binary {
        let ids = Ids::Each(&ids);
        return bind(site, &names, count, ids, finish, Some(classes(OutputScores::All)));
    }
    let (weights, _) = numbers(site, names.weights)?;
    if transform == PostTransform::None && weights.iter().any(|weight| *weight < 0.0) {
        // Treats scores as margins, as converters do: the boundary between the classes is 0.
        finish.is_binary = false;
        finish.bases = finish.bases.first().map_or(Vec::new(), |base| vec![-base, *base]);
        let both = Ids::Mirrored(ids.len());
        return bind(site, &names, 2, both, finish, Some(classes(OutputScores::All)));
    }
    ids.fill(0);
    bind(site, &names, 1, Ids::Each(&ids), finish, Some(classes(OutputScores::All)))
}

/// Targets of weights.
#[derive(Clone, Copy)]
enum Ids<'a> {
    /// Target of each weight.
    Each(&'a [usize]),
    /// All weights belong to the second target, and negated to the first. Holds their number.
    Mirrored(usize),
}

impl Ids<'_> {
    fn len(self) -> usize {
        match self {
            Ids::Each(ids) => ids.len(),
            Ids::Mirrored(count) => count,
        }
    }
}

/// Returns the classes and the number of scores.
fn labels(site: &Site<'_>) -> Result<(Labels, usize), BindError> {
    match Labels::read(site, "classlabels_int64s")? {
        // The label of the other class is only defined for this number.
        Labels::Ints(numbers) if numbers == [1] => Ok((Labels::Ints(vec![0, 1]), 1)),
        labels => match labels.len() {
            0 => {
                refuse!("attributes 'classlabels_int64s' and 'classlabels_strings' are both empty")
            }
            1 => refuse!(
                "the node has one class label; the label of the other class is defined only for the integer 1"
            ),
            count => Ok((labels, count)),
        },
    }
}

/// Returns a list of floats, which may be a tensor under a longer name.
fn numbers(site: &Site<'_>, name: &str) -> Result<Numbers, BindError> {
    let long = tensor(site, &format!("{name}_as_tensor"))?;
    match (site.attributes.get(name), long) {
        (None, long) => Ok(long.unwrap_or_default()),
        (Some(AttrValue::Floats(values)), long) if values.is_empty() => {
            Ok(long.unwrap_or_default())
        }
        (Some(AttrValue::Floats(values)), None) => {
            Ok((values.iter().copied().map(f64::from).collect(), false))
        }
        (Some(AttrValue::Floats(_)), Some(_)) => {
            refuse!("the node has both '{name}' and '{name}_as_tensor'")
        }
        (Some(_), _) => refuse!("attribute '{name}' is not a list of floats"),
    }
}

/// Returns the attribute `base_values`: none, or one for each target.
fn bases(site: &Site<'_>, count: usize, of: &str) -> Result<Vec<f64>, BindError> {
    let (bases, _) = numbers(site, "base_values")?;
    if !bases.is_empty() && bases.len() != count {
        refuse!(
            "attribute 'base_values' has length {}, but there are {count} {of}; give each a value",
            bases.len()
        );
    }
    Ok(bases)
}

fn bind(
    site: &Site<'_>,
    names: &Names,
    targets: usize,
    ids: Ids<'_>,
    finish: Finish,
    classes: Option<Classes>,
) -> Result<Box<dyn Kernel>, BindError> {
    let elem = site.elem(0)?;
    if !matches!(elem, DataType::Float | DataType::Double | DataType::Int32 | DataType::Int64) {
        return site.unsupported_type(elem);
    }
    let nodes = Nodes::read(site)?;
    let (leaves, weights) = nodes.weights(site, names, ids)?;
    let ensemble = Ensemble {
        members: Vec::new(),
        leaves,
        weights,
        roots: nodes.roots()?,
        targets,
        // Integers and 64-bit thresholds are compared without rounding.
        is_wide: nodes.is_wide || elem != DataType::Float,
        is_whole: true,
        splits: nodes.splits,
    };
    let name = |split: usize| {
        let at = nodes.numbers[split];
        format!("node {} of tree {}", nodes.ids[at], nodes.trees[at])
    };
    ReadEnsemble { ensemble, finish, elem: DataType::Float, classes }.kernel(site, |fault| {
        match fault {
            Fault::TwoWays(split) => format!("{} has two parents", name(split)),
            Fault::NoWay(split) => format!("{} cannot be reached from its root", name(split)),
            Fault::TooMany => "the trees have more than 2,147,483,647 nodes".to_string(),
        }
    })
}

/// Nodes of all trees.
struct Nodes {
    trees: Vec<i64>,
    ids: Vec<i64>,
    /// Position of a node in the lists, by tree and number.
    places: HashMap<(i64, i64), usize>,
    /// Split or leaf of each node.
    kinds: Vec<Next>,
    splits: Vec<Split>,
    /// Position of each split in the lists.
    numbers: Vec<usize>,
    is_wide: bool,
}

impl Nodes {
    fn read(site: &Site<'_>) -> Result<Nodes, BindError> {
        let tests = modes(site)?;
        let count = tests.len();
        let same = |name: &str, len: usize| demand_length(name, len, "nodes_modes", count);
        let list = |name: &str| {
            let values = ints(site, name)?;
            same(name, values.len())?;
            Ok::<_, BindError>(values)
        };
        let (trees, ids) = (list("nodes_treeids")?, list("nodes_nodeids")?);
        let (on_true, on_false) = (list("nodes_truenodeids")?, list("nodes_falsenodeids")?);
        let features = list("nodes_featureids")?;
        let (thresholds, is_wide) = numbers(site, "nodes_values")?;
        same("nodes_values", thresholds.len())?;
        let missing = ints(site, "nodes_missing_value_tracks_true")?;
        if !missing.is_empty() {
            same("nodes_missing_value_tracks_true", missing.len())?;
        }
        let mut places = HashMap::with_capacity(count);
        let (mut splits, mut leaves) = (0, 0);
        let mut kinds = Vec::with_capacity(count);
        for (at, test) in tests.iter().enumerate() {
            if let Some(other) = places.insert((trees[at], ids[at]), at) {
                refuse!(
                    "attribute 'nodes_nodeids': elements {other} and {at} are both node {} of tree {}",
                    ids[at],
                    trees[at]
                );
            }
            let (next, kind): (_, fn(usize) -> Next) = match test {
                Some(_) => (&mut splits, Next::Split),
                None => (&mut leaves, Next::Leaf),
            };
            kinds.push(kind(*next));
            *next += 1;
        }
        let mut made = Nodes {
            trees,
            ids,
            places,
            kinds,
            splits: Vec::with_capacity(splits),
            numbers: Vec::with_capacity(splits),
            is_wide,
        };
        for (at, test) in tests.into_iter().enumerate() {
            let Some(test) = test else { continue };
            let split = Split {
                feature: feature(at, features[at])?,
                test,
                threshold: thresholds[at],
                missing: missing.get(at).is_some_and(|missing| *missing != 0),
                on_true: made.way("nodes_truenodeids", at, on_true[at])?,
                on_false: made.way("nodes_falsenodeids", at, on_false[at])?,
            };
            made.splits.push(split);
            made.numbers.push(at);
        }
        Ok(made)
    }

    /// Returns the split or leaf of another node of the tree.
    fn way(&self, name: &str, at: usize, id: i64) -> Result<Next, BindError> {
        let tree = self.trees[at];
        match self.places.get(&(tree, id)) {
            Some(place) => Ok(self.kinds[*place]),
            None => {
                refuse!(
                    "attribute '{name}': element {at} is {id}, but tree {tree} has no such node"
                )
            }
        }
    }

    /// Returns the root of each tree: the node that no split leads to. Trees are in the order of
    /// their first listing.
    fn roots(&self) -> Result<Vec<Next>, BindError> {
        let leaves = self.kinds.len() - self.splits.len();
        let (mut splits, mut leaves) = (vec![false; self.splits.len()], vec![false; leaves]);
        for split in &self.splits {
            for way in [split.on_true, split.on_false] {
                match way {
                    Next::Split(place) => splits[place] = true,
                    Next::Leaf(place) => leaves[place] = true,
                }
            }
        }
        let mut trees: Vec<(i64, Option<usize>)> = Vec::new();
        let mut places: HashMap<i64, usize> = HashMap::new();
        for (at, kind) in self.kinds.iter().enumerate() {
            let place = *places.entry(self.trees[at]).or_insert_with(|| {
                trees.push((self.trees[at], None));
                trees.len() - 1
            });
            let is_after = match *kind {
                Next::Split(place) => splits[place],
                Next::Leaf(place) => leaves[place],
            };
            let (tree, root) = &mut trees[place];
            match root {
                _ if is_after => {}
                None => *root = Some(at),
                Some(other) => refuse!(
                    "tree {tree} has two roots: node {} and node {}",
                    self.ids[*other],
                    self.ids[at]
                ),
            }
        }
        let roots = trees.into_iter().map(|(tree, root)| match root {
            Some(at) => Ok(self.kinds[at]),
            None => refuse!("tree {tree} has no root: every node has a parent"),
        });
        roots.collect()
    }

    /// Returns the start of each leaf's weights, and the targets with their weights.
    fn weights(
        &self,
        site: &Site<'_>,
        names: &Names,
        ids: Ids<'_>,
    ) -> Result<(Vec<usize>, Vec<(usize, f64)>), BindError> {
        let (weights, _) = numbers(site, names.weights)?;
        let (trees, nodes) = (ints(site, names.tree)?, ints(site, names.node)?);
        for (name, len) in
            [(names.tree, trees.len()), (names.node, nodes.len()), (names.id, ids.len())]
        {
            demand_length(name, len, names.weights, weights.len())?;
        }
        let mut of_leaves = Vec::with_capacity(weights.len());
        let mut starts = vec![0; self.kinds.len() - self.splits.len() + 1];
        for (at, (tree, node)) in trees.iter().zip(&nodes).enumerate() {
            let leaf = match self.places.get(&(*tree, *node)).map(|place| self.kinds[*place]) {
                Some(Next::Leaf(leaf)) => leaf,
                Some(Next::Split(_)) => refuse!(
                    "attribute '{}': element {at} is node {node} of tree {tree}, which is not a leaf",
                    names.node
                ),
                None => refuse!(
                    "attribute '{}': element {at} is {node}, but tree {tree} has no such node",
                    names.node
                ),
            };
            starts[leaf + 1] += 1;
            of_leaves.push(leaf);
        }
        for leaf in 1..starts.len() {
            starts[leaf] += starts[leaf - 1];
        }
        let (mut next, mut placed) = (starts.clone(), vec![(0, 0.0); weights.len()]);
        for (at, (leaf, weight)) in of_leaves.into_iter().zip(weights).enumerate() {
            let id = match ids {
                Ids::Each(ids) => ids[at],
                Ids::Mirrored(_) => 1,
            };
            placed[next[leaf]] = (id, weight);
            next[leaf] += 1;
        }
        if matches!(ids, Ids::Mirrored(_)) {
            placed = placed.into_iter().flat_map(|(_, w)| [(0, -w), (1, w)]).collect();
            starts.iter_mut().for_each(|start| *start *= 2);
        }
        Ok((starts, placed))
    }
}

/// Returns the test of each node; `None` for leaves.
fn modes(site: &Site<'_>) -> Result<Vec<Option<Test>>, BindError> {
    let modes = match site.attributes.get("nodes_modes") {
        Some(AttrValue::Strings(modes)) if !modes.is_empty() => modes,
        _ => refuse!("attribute 'nodes_modes' is empty: there are no trees"),
    };
    let tests = modes.iter().enumerate().map(|(at, mode)| {
        Ok(Some(match &mode[..] {
            b"LEAF" => return Ok(None),
            b"BRANCH_LEQ" => Test::LessOrEqual,
            b"BRANCH_LT" => Test::Less,
            b"BRANCH_GTE" => Test::GreaterOrEqual,
            b"BRANCH_GT" => Test::Greater,
            b"BRANCH_EQ" => Test::Equal,
            b"BRANCH_NEQ" => Test::NotEqual,
            other => refuse!(
                "attribute 'nodes_modes': element {at} is '{}', which is not a node mode",
                String::from_utf8_lossy(other)
            ),
        }))
    });
    tests.collect()
}
