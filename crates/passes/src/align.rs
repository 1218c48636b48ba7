//! Bodies in other versions of operator sets. Where a function replaces calls and its operators
//! differ at the versions of the caller, a copy of the function is converted. Other calls use the
//! unchanged function.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashSet;
use sardonyx_model::{Model, NodeId};
use sardonyx_ops::Registry;

use crate::check::find_changing_faults;
use crate::codes;
use crate::convert::{ConvertError, ConvertOptions, Target, convert_functions};
use crate::finding::Finding;
use crate::inline::{
    Copies, Functions, InlineOptions, InlineRefusal, InlineReport, Inlining, Versions, conflicting,
    inline_with, specialize_to_inline,
};
use crate::order::nodes_of_tree;
use crate::origins::Origins;
use crate::results::{Accepted, JobInput, JobKind};

/// Inlines calls. Returns the model and a report.
///
/// # Errors
///
/// The model has a function that calls itself, a call that does not fit its function, a function
/// that has another meaning at the versions that count where it is called and that cannot be
/// converted, or more nodes than the limit; or the result has errors that the model does not have.
/// If any of these holds, or the result has errors of the model, the faults of the model that
/// inlining changes count too: undefined names, nodes in an order in which they cannot run,
/// references that have a value as well, and omitted operands that an operator requires.
pub fn inline(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<(Model, InlineReport), InlineRefusal> {
    let input = JobInput { job: JobKind::Inline, model, registry };
    match inline_in_any_order(model, registry, options) {
        Ok(Inlining { model, report, origins }) => match input.accept(model, &origins) {
            Ok(Accepted { model, has_errors }) => {
                let is_reason = has_errors || has_references_with_values(input.model);
                match is_reason.then(|| find_lost_faults(input)).flatten() {
                    Some(refusal) => Err(refusal),
                    None => Ok((model, report)),
                }
            }
            Err(rejected) => {
                Err(find_lost_faults(input).unwrap_or(InlineRefusal::Invalid(rejected)))
            }
        },
        Err(refusal) => Err(find_lost_faults(input).unwrap_or(refusal)),
    }
}

/// Returns the faults of a model that inlining cannot carry over. They are errors of the result
/// too, or prevent it, so they are searched for only then.
fn find_lost_faults(input: JobInput<'_>) -> Option<InlineRefusal> {
    let mut found = find_changing_faults(input.model, input.registry);
    // The caller may want to keep such a call.
    found.retain(|finding| finding.code.name != codes::CALL_WITHOUT_INPUT.name);
    (!found.is_empty()).then_some(InlineRefusal::Findings(found))
}

/// Returns whether a function has an attribute that is a reference and has a value as well.
/// Inlining the function loses this fault.
fn has_references_with_values(model: &Model) -> bool {
    let bodies = model.functions.iter().map(|function| function.body);
    let mut nodes = bodies.flat_map(|body| nodes_of_tree(model, body));
    nodes.any(|node| {
        let attributes = model.attributes(node).iter().map(|id| model.attribute(*id));
        let mut attributes = attributes.filter(|found| !found.values.is_empty());
        attributes.any(|found| !model.is_blank(found.ref_attr_name()))
    })
}

/// Inlines calls like [`inline`], but accepts nodes in any order and does not check the result.
pub fn inline_in_any_order(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<Inlining, InlineRefusal> {
    let functions = Functions::of(model, registry)?;
    let found = find_conflicting(model, registry, options, &functions);
    match specialize_to_inline(model, registry, options, &functions, &found)? {
        None => inline_converting(model, registry, options, &functions, found),
        Some(special) => special.inline(model, options, |options| {
            let functions = Functions::of(&special.model, registry)?;
            let found = find_conflicting(&special.model, registry, options, &functions);
            inline_converting(&special.model, registry, options, &functions, found)
        }),
    }
}

/// Finds the functions that must be converted, by the versions that count where they are called.
fn find_conflicting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    functions: &Functions,
) -> BTreeMap<Versions, BTreeSet<usize>> {
    if options.convert { conflicting(model, registry, options, functions) } else { BTreeMap::new() }
}

/// Inlines calls of functions with the same meaning, and of other functions by converted copies.
fn inline_converting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    functions: &Functions,
    conflicting: BTreeMap<Versions, BTreeSet<usize>>,
) -> Result<Inlining, InlineRefusal> {
    if conflicting.is_empty() {
        return inline_with(model, registry, options, functions, &Copies::none(model));
    }
    let (mut aligned, mut copies, mut refusals) = (model.clone(), Copies::none(model), Vec::new());
    let mut origins = Origins::default();
    for (versions, functions) in conflicting {
        let found = convert_copies(&mut aligned, registry, &versions, &functions);
        copies.add(&versions, found.copies);
        refusals.extend(found.refusals);
        origins = origins.append(found.origins);
    }
    let functions = Functions::new(&aligned, registry, &copies);
    let functions = functions.map_err(InlineRefusal::Findings)?;
    match inline_with(&aligned, registry, options, &functions, &copies) {
        Ok(mut inlined) => {
            // Calls that stay are explained by the reasons against the conversion.
            if !inlined.report.kept.is_empty() {
                inlined.report.kept.extend(refusals);
            }
            inlined.origins = origins.append(inlined.origins);
            Ok(inlined)
        }
        Err(InlineRefusal::Findings(mut findings)) => {
            findings.extend(refusals);
            Err(InlineRefusal::Findings(findings))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Functions with their converted copies, and the reasons against other copies.
struct ConvertedCopies {
    copies: Vec<(usize, usize)>,
    refusals: Vec<Finding>,
    /// Nodes of functions for which those of the copies were made.
    origins: Origins,
}

/// Adds copies of functions to a model and converts them to versions of operator sets.
fn convert_copies(
    model: &mut Model,
    registry: &Registry,
    versions: &Versions,
    functions: &BTreeSet<usize>,
) -> ConvertedCopies {
    let mut number = model.functions.len();
    let mut overload = |model: &Model| loop {
        number += 1;
        let text = format!("copy {number}");
        if model.symbol(text.as_bytes()).is_none() {
            break text;
        }
    };
    let copies: Vec<(usize, usize)> = functions
        .iter()
        .map(|function| {
            let overload = overload(model);
            model.copy_function(*function);
            let copy = model.functions.len() - 1;
            model.functions[copy].overload = Some(model.intern(&overload));
            (*function, copy)
        })
        .collect();
    let nodes = |functions: &mut dyn Iterator<Item = usize>| -> Vec<NodeId> {
        let bodies = functions.map(|function| model.functions[function].body);
        bodies.flat_map(|body| nodes_of_tree(model, body)).collect()
    };
    let of = nodes(&mut copies.iter().map(|(function, _)| *function));
    let origins =
        Origins::default().then_copies(nodes(&mut copies.iter().map(|(_, copy)| *copy)), of);
    // The original is converted, since its calls determine the types in it. The copy stays
    // unchanged, and then the two are swapped.
    let mut converting = Converting::new(model, registry, versions);
    converting.convert(&functions.iter().copied().collect::<Vec<_>>());
    let Converting { converted, refusals, origins: made, .. } = converting;
    for (function, copy) in &copies {
        let [original, copy] = model
            .functions
            .get_disjoint_mut([*function, *copy])
            .expect("a copy is another function");
        std::mem::swap(original, copy);
        std::mem::swap(&mut original.overload, &mut copy.overload);
    }
    let copies = copies.into_iter().filter(|(function, _)| converted.contains(function));
    ConvertedCopies {
        copies: copies.collect(),
        refusals: refusals.into_iter().map(|(_, refusal)| refusal).collect(),
        origins: origins.append(made),
    }
}

/// Converts functions to versions of operator sets in place. Returns those that cannot be
/// converted, with the reasons.
pub(crate) fn convert_bodies(
    model: &mut Model,
    registry: &Registry,
    versions: &Versions,
    functions: &[usize],
) -> Vec<(usize, Finding)> {
    let mut converting = Converting::new(model, registry, versions);
    converting.convert(functions);
    converting.refusals
}

/// Conversion of functions to other versions.
struct Converting<'a> {
    model: &'a mut Model,
    registry: &'a Registry,
    options: ConvertOptions,
    converted: HashSet<usize>,
    /// Functions that cannot be converted, with the reasons.
    refusals: Vec<(usize, Finding)>,
    /// Nodes for which others were made.
    origins: Origins,
}

impl Converting<'_> {
    fn new<'a>(
        model: &'a mut Model,
        registry: &'a Registry,
        versions: &Versions,
    ) -> Converting<'a> {
        let target = versions
            .iter()
            .fold(Target::new(), |target, (domain, version)| target.opset(domain, *version));
        let options =
            ConvertOptions { target, expand: true, granted: Vec::new(), like_reference: false };
        let (converted, refusals, origins) = (HashSet::new(), Vec::new(), Origins::default());
        Converting { model, registry, options, converted, refusals, origins }
    }

    /// Converts functions: first all at once and, if one of them is refused, each half on its own,
    /// so that few refusals cost few attempts.
    fn convert(&mut self, functions: &[usize]) {
        let set: HashSet<usize> = functions.iter().copied().collect();
        match convert_functions(self.model, self.registry, &self.options, &set) {
            Ok(converted) => {
                *self.model = converted.model;
                self.origins = std::mem::take(&mut self.origins).append(converted.origins);
                self.converted.extend(functions);
            }
            Err(ConvertError::Refused(_)) if functions.len() > 1 => {
                let (first, second) = functions.split_at(functions.len() / 2);
                self.convert(first);
                self.convert(second);
            }
            Err(ConvertError::Refused(refusals)) => {
                // The options of `convert` are not available here.
                let refusals = refusals.into_iter().map(|refusal| {
                    let advice = "change the node, or keep the calls of the function: inline --keep-conflicting";
                    (functions[0], refusal.with_advice(advice))
                });
                self.refusals.extend(refusals);
            }
            // An unknown version is reported where it matters.
            Err(ConvertError::Target(_) | ConvertError::NotHeld(_) | ConvertError::Invalid(_)) => {}
        }
    }
}
