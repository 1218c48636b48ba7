//! Compiler from a model to an [executable](crate::executable): the order of its stages.

use std::sync::Arc;

use hashbrown::HashSet;
use sardonyx_kernels::Pool;
use sardonyx_model::{ExternalData, Id, Model, NodeId, Producer, ValueId};
use sardonyx_ops::OpRef;
use sardonyx_ops::operators::{CONSTANT, SCAN};
use sardonyx_passes::codes::{INPUT_TYPE, MALFORMED_NODE, TYPES_CONTRADICT};
use sardonyx_passes::{
    Finding, Fusion, InferOptions, Inference, ProblemKind, Resolved, differentiate,
    eliminate_common, fuse, infer, infer_model, needed, remove_dead, unpack_sequences, upgrade,
};
use sardonyx_tensor::Recycler;

use crate::account::{Account, Reservation};
use crate::constants::Constants;
use crate::declared::{check_inside, check_outputs};
use crate::dims;
use crate::error::CompileError;
use crate::executable::Executable;
use crate::expanded::{Expanded, Outside, count_nodes, expand, has_kernel};
use crate::lower::{Lowering, refuse_node};
use crate::make::Maker;
use crate::ops::has_no_newer_form;
use crate::options::{Optimization, Options};
use crate::precision::{Precision, find_exact_limit};
use crate::program::{Broken, Program};
use crate::report::{Clock, CompileReport};
use crate::rewrite::{LOWERING, Note, REWRITES};
use crate::select::select;
use crate::weights::Packer;

/// Limit: contradictions of types that an error lists.
const MOST_CONTRADICTIONS: usize = 8;

/// Compiled model and what the compiler did.
pub(crate) struct Compiled {
    pub(crate) executable: Executable,
    /// Counts and times of the stages.
    pub(crate) report: CompileReport,
    /// Patterns that were fused into larger operators, and near misses.
    pub(crate) fusions: Vec<Fusion>,
    /// Changes that rewrites made to the program, and near misses.
    pub(crate) notes: Vec<Note>,
    /// The program after the rewrite of [`Options::print_after`].
    pub(crate) printed: Option<String>,
    /// Memory of the constants that is charged to the budget.
    pub(crate) reserved: Reservation,
}

/// Model before any constant is computed.
struct Front {
    /// All functions expanded, all nodes at their newest version, duplicate nodes shared, dead ones
    /// removed.
    resolved: Resolved,
    inference: Inference,
    constants: Constants,
}

/// Checks, expands and upgrades `model` and reads its constants.
fn front(
    model: &Model,
    external: &dyn ExternalData,
    options: &Options,
    account: &Account,
    report: &mut CompileReport,
    clock: &mut Clock,
) -> Result<Front, CompileError> {
    dims::check(model, &options.dims)?;
    check_names(options)?;
    let rules = options.operators.rules();
    let declared = InferOptions {
        symbols: &options.dims,
        rules,
        inner_may_contradict: options.inner_may_contradict(),
        ..InferOptions::default()
    };
    // Nodes to expand because they have no exact newest form; mostly none.
    let mut not_upgraded: Vec<HashSet<NodeId>> = Vec::new();
    let (mut resolved, at_file_versions) = loop {
        let outside = Outside { data: external, weights: &options.weights };
        let expanded = expand(model, Some(outside), declared, &options.operators, &not_upgraded)?;
        report.nodes = expanded.nodes;
        clock.lap(report, "resolve");
        let missing = expanded.list_unsupported(&options.operators);
        if !missing.is_empty() {
            return Err(CompileError::Unsupported(missing));
        }
        let Expanded { mut resolved, inference, expansions, .. } = expanded;
        check_inside(model, &resolved, &inference)?;
        report.expanded = expansions;
        let before = count_nodes(&resolved);
        match upgrade(&mut resolved, &inference, &keeps_version) {
            Ok(upgraded) => {
                report.upgraded = upgraded;
                report.added = count_nodes(&resolved) - before;
                break (resolved, inference);
            }
            // The nodes were refused before, so they have no body either.
            Err(refused) if not_upgraded.last() == Some(&refused.nodes) => {
                return Err(CompileError::Invalid(refused.findings));
            }
            Err(refused) => not_upgraded.push(refused.nodes),
        }
    };
    let unpacks = options.optimization >= Optimization::All;
    let unpacked = if unpacks { unpack_sequences(&mut resolved, &at_file_versions) } else { 0 };
    let has_no_kernel =
        |op: OpRef| !has_kernel(op) && !options.operators.has(op.def.domain, op.def.name);
    let counts = &mut report.expanded;
    // Without training, models with gradients were refused as unsupported.
    let are_gradients = cfg!(feature = "training")
        && differentiate(&mut resolved, declared, &keeps_version, &has_no_kernel, counts)
            .map_err(CompileError::Invalid)?;
    clock.lap(report, "upgrade");
    let constants = Constants::read(&resolved, external, account, &options.weights)?;
    clock.lap(report, "read");
    let inference = if report.upgraded.is_empty() && !are_gradients && unpacked == 0 {
        at_file_versions
    } else {
        infer(&resolved, declared).map_err(CompileError::Invalid)?
    };
    if options.optimization >= Optimization::All {
        // Runs before constants are computed, so that folding does not repeat duplicates either.
        report.common =
            eliminate_common(&mut resolved, &inference, &|value| constants.get(value).cloned());
    }
    report.dead = remove_dead(&mut resolved);
    check_outputs(&resolved, &inference)?;
    clock.lap(report, "cse");
    Ok(Front { resolved, inference, constants })
}

/// Whether a node keeps its version.
fn keeps_version(resolved: &Resolved, node: NodeId) -> bool {
    has_lengths(resolved, node) || has_no_newer_form(resolved, node)
}

/// Whether a node is a `Scan` with an input of sequence lengths, which only version 8 has. A region
/// runs that form.
fn has_lengths(resolved: &Resolved, node: NodeId) -> bool {
    resolved.is(node, &SCAN)
        && resolved.schema(node).is_some_and(|schema| schema.since < 9)
        && resolved.model().inputs(node).next().flatten().is_some()
}

/// Compiles a model.
pub(crate) fn compile(
    model: &Model,
    external: &dyn ExternalData,
    options: &Options,
    pool: &Pool,
) -> Result<Compiled, CompileError> {
    compile_stages(model, external, options, pool)
        .map_err(|error| from_types(model, options, error))
}

/// Replaces a type error by one at the nodes whose inputs have types that their operators do not
/// accept, where the contradiction begins. A stage may report it nodes later.
fn from_types(model: &Model, options: &Options, error: CompileError) -> CompileError {
    let may_follow = matches!(&error, CompileError::Invalid(findings) if findings.iter().all(
        |finding| [&MALFORMED_NODE, &TYPES_CONTRADICT].contains(&finding.code)
    ));
    if !may_follow {
        return error;
    }
    let settings = InferOptions {
        symbols: &options.dims,
        rules: options.operators.rules(),
        check_types: true,
        ..InferOptions::default()
    };
    let found = infer_model(model, &options.operators.registry(), settings);
    let wrong = found.problems().iter().filter(|problem| problem.kind == ProblemKind::Signature);
    let wrong: Vec<Finding> = wrong
        .take(MOST_CONTRADICTIONS)
        .map(|problem| {
            let fact = problem.fact.clone();
            let advice = format!("{}; {}", INPUT_TYPE.help, problem.advice);
            Finding::new(model, &TYPES_CONTRADICT, problem.spot, fact).with_advice(advice)
        })
        .collect();
    if wrong.is_empty() { error } else { CompileError::Invalid(wrong) }
}

fn compile_stages(
    model: &Model,
    external: &dyn ExternalData,
    options: &Options,
    pool: &Pool,
) -> Result<Compiled, CompileError> {
    let (mut report, mut clock) = (CompileReport::default(), Clock::start());
    let account = Account::with_budget(options.memory_limit, 0, options.memory_budget.as_ref());
    let Front { mut resolved, inference: first, mut constants } =
        front(model, external, options, &account, &mut report, &mut clock)?;
    let fuses = options.optimization >= Optimization::All;
    let isa = options.chosen_isa()?;
    let packer = Packer::new(&options.weights, &account, options.only_looks);
    let lowering = Lowering {
        resolved: &resolved,
        inference: &first,
        isa,
        precision: Precision::Exact,
        exact_up_to: 0,
        weights: &packer,
        operators: &options.operators,
        images: options.images.as_ref(),
    };
    let folds = options.optimization > Optimization::Off;
    let remaining = constants.fold(&resolved, &first, &lowering, pool, folds)?;
    // Computed constants may determine shapes.
    let mut inference =
        if constants.teach(&first) { infer_with(&resolved, &constants, options)? } else { first };
    let folded: HashSet<NodeId> = {
        let remaining: HashSet<NodeId> = remaining.into_iter().collect();
        let graphs = resolved.graphs().iter();
        let all = graphs.flat_map(|graph| resolved.order_of(*graph)).copied();
        all.filter(|node| !remaining.contains(node)).collect()
    };
    note_folded(&mut report, &resolved, &constants, &folded);
    clock.lap(&mut report, "fold");
    let mut fusions = Vec::new();
    if fuses {
        fusions = fuse(&mut resolved, &inference, &|value| constants.contains(value), &|value| {
            constants.get(value).cloned()
        });
        if fusions.iter().any(|fusion| fusion.nodes > 0) {
            constants.read_initializers(&resolved, external)?;
            inference = infer_with(&resolved, &constants, options)?;
        }
    }
    let nodes = resolved.order().iter().copied();
    let remaining: Vec<NodeId> = nodes.filter(|node| !folded.contains(node)).collect();
    clock.lap(&mut report, "fuse");

    let is_folded = |value: ValueId| match resolved.model().value(value).producer {
        Producer::Node(node, _) => folded.contains(&node),
        _ => false,
    };
    let needed = needed(&resolved, &is_folded);
    let live = |node: NodeId| !folded.contains(&node) && needed[node.index()];
    let lowering = Lowering {
        resolved: &resolved,
        inference: &inference,
        isa,
        precision: options.precision,
        exact_up_to: 0,
        weights: &packer,
        operators: &options.operators,
        images: options.images.as_ref(),
    };
    report.dead += remaining.iter().filter(|node| !live(**node)).count();
    let mut program = lowering.program(&live, &constants)?;
    program.state.clone_from(&options.state);
    check_types(&program, &resolved)?;
    clock.lap(&mut report, "lower");
    let (notes, printed) = rewrite(&mut program, &resolved, options);
    // Rewrites find the matrices whose weights stay in a few bits.
    let exact_up_to = find_exact_limit(program.constant_products());
    let lowering = Lowering { exact_up_to, ..lowering };
    clock.lap(&mut report, "rewrite");
    // Constants are always computed exactly, whatever the precision of the session.
    let exactly = Lowering { precision: Precision::Exact, exact_up_to: 0, ..lowering };
    let memory = Arc::new(Recycler::default());
    let maker = Maker { lowering: &exactly, pool, memory: Some(&memory) };
    let body = select(&lowering, &maker, constants, program, options.keeps_mapped, &mut report)?;
    report.made_bytes = account.charged_bytes();
    let reserved = account.reserve();
    clock.lap(&mut report, "select");
    let (dims, operators) = (options.dims.clone(), Arc::clone(&options.operators));
    let executable = Executable { resolved, inference, body, isa, dims, operators };
    Ok(Compiled { executable, report, fusions, notes, printed, reserved })
}

/// Refuses a model whose values do not have the types that its nodes require. Inference tolerates
/// contradictions that do not affect sizes.
fn check_types(program: &Program, resolved: &Resolved) -> Result<(), CompileError> {
    // An error without a step would be a bug of lowering, which tests find after each rewrite.
    let Err(Broken { step: Some(step), what }) = program.verify_for(resolved.model()) else {
        return Ok(());
    };
    let what = format!("its inputs and outputs do not fit together: {what}");
    Err(refuse_node(resolved.model(), program.steps[step].origins[0], what))
}

/// Applies the enabled rewrites. Returns their notes, and the program printed after
/// [`Options::print_after`].
fn rewrite(
    program: &mut Program,
    resolved: &Resolved,
    options: &Options,
) -> (Vec<Note>, Option<String>) {
    let after = options.print_after.as_deref();
    let verifies = cfg!(debug_assertions) || after.is_some();
    let mut notes = Vec::new();
    let mut printed = (after == Some(LOWERING)).then(|| program.text(resolved));
    for rewrite in REWRITES {
        let is_left_out = options.without.iter().any(|name| name == rewrite.name);
        if rewrite.from <= options.optimization && !is_left_out {
            notes.extend(rewrite.apply(program, verifies));
        }
        if after == Some(rewrite.name) {
            printed = Some(program.text(resolved));
            let missed = notes.iter().filter_map(|note| Some((note, note.missed.as_ref()?)));
            for (note, why) in missed {
                let [by, node] =
                    [&note.by, &note.nodes].map(|nodes| resolved.path_of(nodes[0]).to_string());
                printed = printed.map(|text| text + &format!("near  {by} and {node}: {why}\n"));
            }
        }
    }
    (notes, printed)
}

/// Refuses unknown names of rewrites in the options.
fn check_names(options: &Options) -> Result<(), CompileError> {
    let after = options.print_after.as_deref().filter(|name| *name != LOWERING);
    let mut names = options.without.iter().map(String::as_str).chain(after);
    let unknown = names.find(|name| REWRITES.iter().all(|rewrite| rewrite.name != *name));
    let Some(name) = unknown else {
        return Ok(());
    };
    let names: Vec<&str> = REWRITES.iter().map(|rewrite| rewrite.name).collect();
    let names = names.join(", ");
    Err(CompileError::Option(format!("unknown rewrite '{name}'; rewrites are: {names}")))
}

/// Counts the nodes computed ahead of time, except those that only hold a value.
fn note_folded(
    report: &mut CompileReport,
    resolved: &Resolved,
    constants: &Constants,
    folded: &HashSet<NodeId>,
) {
    let model = resolved.model();
    report.folded = folded.len();
    for node in folded {
        if resolved.is(*node, &CONSTANT) {
            report.constant_nodes += 1;
            continue;
        }
        let values = model.outputs(*node).iter().flatten();
        let bytes = values.map(|value| constants.bytes_of(*value));
        report.folded_bytes += bytes.sum::<usize>();
    }
}

/// Infers types and shapes with the known constants.
fn infer_with(
    resolved: &Resolved,
    constants: &Constants,
    options: &Options,
) -> Result<Inference, CompileError> {
    let known = |value: ValueId| constants.known_value(value);
    let options = InferOptions {
        symbols: &options.dims,
        known: Some(&known),
        rules: options.operators.rules(),
        inner_may_contradict: options.inner_may_contradict(),
        ..InferOptions::default()
    };
    infer(resolved, options).map_err(CompileError::Invalid)
}
