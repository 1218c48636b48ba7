//! `TreeEnsemble`: interior nodes and leaves are separate lists.

use sardonyx_kernels::trees::{Ensemble, Fault, Finish, Next, Split, Test};
use sardonyx_tensor::DataType;

use super::super::attributes::{TRANSFORMS, ints};
use super::{
    AGGREGATES, Numbers, ReadEnsemble, demand_length, feature, find_numbered, greatest, place,
    refuse, targets, tensor,
};
use crate::error::BindError;
use crate::kernel::{Kernel, Site};

/// Binds `TreeEnsemble`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let elem = site.elem(0)?;
    if !matches!(elem, DataType::Float16 | DataType::Float | DataType::Double) {
        return site.unsupported_type(elem);
    }
    let finish = Finish {
        aggregate: find_numbered(site, "aggregate_function", &AGGREGATES)?,
        bases: Vec::new(),
        transform: find_numbered(site, "post_transform", &TRANSFORMS)?,
        is_binary: false,
        greatest: greatest(elem),
    };
    let ensemble = ensemble(site, elem)?;
    ReadEnsemble { ensemble, finish, elem, classes: None }.kernel(site, |fault| match fault {
        Fault::TwoWays(node) => format!("node {node} has two parents"),
        Fault::NoWay(node) => format!("node {node} cannot be reached from a root"),
        Fault::TooMany => "the trees have more than 2,147,483,647 nodes".to_string(),
    })
}

fn require(site: &Site<'_>, name: &str) -> Result<Numbers, BindError> {
    match tensor(site, name)? {
        Some(numbers) => Ok(numbers),
        None => refuse!("attribute '{name}' is missing"),
    }
}

fn ensemble(site: &Site<'_>, elem: DataType) -> Result<Ensemble, BindError> {
    let targets = targets(site)?;
    let (thresholds, wide_thresholds) = require(site, "nodes_splits")?;
    let count = thresholds.len();
    let same = |name: &str, len: usize| demand_length(name, len, "nodes_splits", count);
    let list = |name: &str| {
        let values = ints(site, name)?;
        same(name, values.len())?;
        Ok::<_, BindError>(values)
    };
    let (modes, _) = require(site, "nodes_modes")?;
    same("nodes_modes", modes.len())?;
    let features = list("nodes_featureids")?;
    let missing = ints(site, "nodes_missing_value_tracks_true")?;
    if !missing.is_empty() {
        same("nodes_missing_value_tracks_true", missing.len())?;
    }
    let (leaf_weights, _) = require(site, "leaf_weights")?;
    let leaf_targets = ints(site, "leaf_targetids")?;
    demand_length("leaf_targetids", leaf_targets.len(), "leaf_weights", leaf_weights.len())?;
    let weights = leaf_targets.iter().zip(&leaf_weights).enumerate().map(|(leaf, (id, weight))| {
        Ok::<_, BindError>((place("leaf_targetids", leaf, *id, targets, "targets")?, *weight))
    });
    let weights = weights.collect::<Result<Vec<_>, _>>()?;
    let ways = |ids: &str, leafs: &str| {
        let (ids_here, leafs_here) = (list(ids)?, list(leafs)?);
        let both = ids_here.iter().zip(&leafs_here).enumerate();
        let ways = both.map(|(node, (id, is_leaf))| {
            if *is_leaf != 0 {
                return Ok(Next::Leaf(place(ids, node, *id, leaf_weights.len(), "leaves")?));
            }
            Ok(Next::Split(place(ids, node, *id, count, "nodes")?))
        });
        ways.collect::<Result<Vec<Next>, BindError>>()
    };
    let on_true = ways("nodes_truenodeids", "nodes_trueleafs")?;
    let on_false = ways("nodes_falsenodeids", "nodes_falseleafs")?;
    let roots = ints(site, "tree_roots")?;
    if roots.is_empty() {
        refuse!("attribute 'tree_roots' is empty: there are no trees");
    }
    let roots = roots.iter().enumerate().map(|(tree, root)| {
        Ok::<_, BindError>(Next::Split(place("tree_roots", tree, *root, count, "nodes")?))
    });
    let roots = roots.collect::<Result<Vec<_>, _>>()?;
    let (members, wide_members) =
        tensor(site, "membership_values")?.unwrap_or_else(|| (Vec::new(), false));
    let tests = tests(&modes, &members)?;
    let mut splits = Vec::with_capacity(count);
    for (node, test) in tests.into_iter().enumerate() {
        splits.push(Split {
            feature: feature(node, features[node])?,
            test,
            threshold: thresholds[node],
            // NaN differs from any threshold, whatever `missing` is.
            missing: missing.get(node).is_some_and(|missing| *missing != 0)
                || test == Test::NotEqual,
            on_true: on_true[node],
            on_false: on_false[node],
        });
    }
    Ok(Ensemble {
        splits,
        members,
        leaves: (0..=weights.len()).collect(),
        weights,
        roots,
        targets,
        is_wide: elem == DataType::Double || wide_thresholds || wide_members,
        is_whole: false,
    })
}

/// Returns the test of each node. Sets of members are in the order of the nodes that use them.
fn tests(modes: &[f64], members: &[f64]) -> Result<Vec<Test>, BindError> {
    let sets = members.iter().filter(|member| member.is_nan()).count();
    let asked = modes.iter().filter(|mode| **mode == 6.0).count();
    if sets != asked {
        refuse!("attribute 'membership_values' has {sets} sets, but {asked} nodes have mode 6");
    }
    let mut from = 0;
    let tests = modes.iter().enumerate().map(|(node, mode)| {
        Ok(match *mode as i64 {
            0 => Test::LessOrEqual,
            1 => Test::Less,
            2 => Test::GreaterOrEqual,
            3 => Test::Greater,
            4 => Test::Equal,
            5 => Test::NotEqual,
            6 => {
                let end = members[from..].iter().position(|member| member.is_nan());
                let to = from + end.unwrap_or(members.len() - from);
                let set = Test::Member(from, to);
                from = (to + 1).min(members.len());
                set
            }
            other => refuse!("attribute 'nodes_modes': element {node} is {other}, not from 0 to 6"),
        })
    });
    tests.collect()
}
