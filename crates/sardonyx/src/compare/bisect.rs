//! Search for the first value that differs, by runs of both models that compute a few values each.

use std::collections::HashSet;

use sardonyx_model::{Producer, ValueId};
use sardonyx_passes::MatchedValue;
use sardonyx_passes::order::reads_outside;
use sardonyx_runtime::RunOptions;
use sardonyx_tensor::Value;

use super::{Comparer, Comparing};
use crate::error::Error;
use crate::model::Model;

/// Compares outputs, and follows the first one that differs backwards: half of the values that it
/// is computed from are left out by each run of both models. Each model runs alone, so that its
/// session is the only one in memory.
pub(super) fn compare<'a>(
    run: &'a Comparing<'_>,
    pairs: Vec<MatchedValue>,
) -> Result<Comparer<'a>, Error> {
    let mut comparer = Comparer::new(run, pairs);
    let outputs = (0..comparer.pairs.len()).filter(|index| {
        let pair = comparer.pairs[*index];
        comparer.graph.value(pair.before).is_output
    });
    for index in outputs.collect::<Vec<_>>() {
        probe(run, &mut comparer, index)?;
        if comparer.first.is_some() {
            break;
        }
    }
    let Some(mut first) = comparer.first else { return Ok(comparer) };
    let mut candidates = list_ancestors(&comparer, first);
    while !candidates.is_empty() {
        let middle = candidates[candidates.len() / 2];
        if probe(run, &mut comparer, middle)? {
            first = middle;
            let ancestors: HashSet<usize> = list_ancestors(&comparer, middle).into_iter().collect();
            candidates.retain(|index| *index != middle && ancestors.contains(index));
        } else {
            // What agrees is computed from values that agree, unless differences cancel out.
            let ancestors: HashSet<usize> = list_ancestors(&comparer, middle).into_iter().collect();
            candidates.retain(|index| *index != middle && !ancestors.contains(index));
        }
    }
    comparer.first = Some(first);
    Ok(comparer)
}

/// Lists the positions of the sure pairs that the value of a pair is computed from, in ascending
/// order.
fn list_ancestors(comparer: &Comparer<'_>, index: usize) -> Vec<usize> {
    let mut seen: HashSet<ValueId> = HashSet::new();
    let mut left = vec![comparer.pairs[index].before];
    let mut found = Vec::new();
    while let Some(value) = left.pop() {
        let Producer::Node(node, _) = comparer.graph.value(value).producer else { continue };
        for read in reads_outside(comparer.graph, node) {
            if seen.insert(read) {
                left.push(read);
                let position = comparer.positions.get(&read).copied();
                found.extend(position.filter(|position| comparer.pairs[*position].is_sure));
            }
        }
    }
    found.sort_unstable();
    found
}

/// Runs both models up to the values of a pair and compares these. Returns whether they differ.
fn probe(run: &Comparing<'_>, comparer: &mut Comparer<'_>, index: usize) -> Result<bool, Error> {
    let pair = comparer.pairs[index];
    let mine = run_to(run, &run.model, pair.before, &run.setup.inputs)?;
    let other = run.other.as_ref().unwrap_or(&run.model);
    let theirs = run_to(run, other, pair.after, &run.others)?;
    comparer.compare(index, &mine, &theirs);
    Ok(comparer.differs[index] == Some(true))
}

/// Runs a model up to a value.
fn run_to(
    run: &Comparing<'_>,
    model: &Model,
    value: ValueId,
    inputs: &[(String, Value)],
) -> Result<Value, Error> {
    let mut graph = model.graph.clone();
    if let Some(main) = graph.main {
        graph.retain_outputs(main, |_, info| info.value == Some(value));
        if graph.graph(main).outputs.is_empty() {
            graph.add_graph_output(main, value);
        }
    }
    let session = run.options.build_session(&model.with_graph(graph))?;
    let ports = session.inputs();
    let inputs = inputs.iter().filter(|(name, _)| ports.iter().any(|port| port.name() == name));
    let outputs = session.run(inputs.cloned(), &RunOptions::new().seed(0))?;
    outputs
        .into_values()
        .next()
        .ok_or_else(|| Error::new(crate::ErrorKind::Output, "the model does not compute the value"))
}
