//! Candidate plans, of which the cheapest is taken.

use hashbrown::HashSet;
use sardonyx_model::{Model, NodeId};
use sardonyx_ops::Registry;

use crate::options::{ShardError, ShardOptions};
use crate::plan::Plan;
use crate::planner::{Planner, find_nodes};
use crate::prepare::{Prepared, prepare};
use crate::sizes::{needed, nominal, with_numbers};

/// Makes a plan for a model that was [prepared](crate::prepare_to_shard). A node that is not of the
/// newest version of its operator runs whole.
///
/// # Errors
///
/// A configuration that does not exist or is ambiguous; findings because of which the model cannot
/// run.
pub fn shard(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Plan, ShardError> {
    if options.residents.iter().all(|resident| resident.form.is_some()) {
        return make_plan(model, registry, options);
    }
    // A first plan, with whole residents, shows in which form devices read them.
    let open = make_plan(model.clone(), registry, options)?;
    let residents = open.settled(options.residents);
    make_plan(model, registry, ShardOptions { residents: &residents, ..options })
}

/// Makes a plan in which residents have their given forms; one without a form is whole on all
/// devices.
fn make_plan(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Plan, ShardError> {
    let prepared = prepare(model.clone(), registry, options)?;
    let needed = needed(&prepared, &prepared.open);
    let (sizes, open): (Vec<_>, Vec<_>) = options
        .open
        .unwrap_or_default()
        .iter()
        .cloned()
        .partition(|(name, _)| needed.contains(name));
    if sizes.is_empty() {
        return Ok(find_cheapest(prepared, options));
    }
    let symbols: Vec<_> = options.symbols.iter().chain(&sizes).cloned().collect();
    let inputs = with_numbers(options.inputs, &sizes);
    let options = ShardOptions { inputs: &inputs, symbols: &symbols, open: Some(&open), ..options };
    let prepared = Prepared { sizes, ..prepare(model, registry, options)? };
    Ok(find_cheapest(prepared, options))
}

/// Returns the cheapest plan for a prepared model: the first of the candidates that cost the least.
pub(crate) fn find_cheapest(prepared: Prepared, options: ShardOptions<'_>) -> Plan {
    let Candidates { first, mut others, needs_whole } = Candidates::list(&prepared);
    if !needs_whole.is_empty()
        && let Some(prepared) = prepared.with_split_nodes(&needs_whole, options)
    {
        // In these plans the nodes are expanded into nodes that can be computed in parts.
        let split = Candidates::list(&prepared);
        others.push(split.first);
        others.extend(split.others);
    }
    let cheaper = |best: Plan, plan: Plan| {
        if PlanCost::new(&plan) < PlanCost::new(&best) { plan } else { best }
    };
    others.into_iter().fold(first, cheaper)
}

/// Plans for a prepared model, of which one is chosen.
struct Candidates {
    first: Plan,
    others: Vec<Plan>,
    /// Nodes that need whole values of which devices have parts, and that can be expanded.
    needs_whole: HashSet<NodeId>,
}

impl Candidates {
    /// Makes a plan, and another one in which linear nodes are computed on partial sums, if there
    /// are such nodes.
    fn list(prepared: &Prepared) -> Candidates {
        let first = Planner::new(prepared).plan();
        let linear = find_nodes(&first.plan, prepared);
        let mut others = Vec::new();
        if !linear.is_empty() {
            others.push(Planner::new(prepared).with_nodes_on_sums(linear).plan().plan);
        }
        Candidates { first: first.plan, others, needs_whole: first.needs_whole }
    }
}

/// Cost of a plan.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PlanCost {
    /// Number of annotations that it does not follow.
    not_honored: usize,
    /// Bytes that it sends at nominal sizes.
    bytes: u64,
}

impl PlanCost {
    fn new(plan: &Plan) -> PlanCost {
        PlanCost { not_honored: plan.not_honored().len(), bytes: nominal(&plan.bytes()) }
    }
}
