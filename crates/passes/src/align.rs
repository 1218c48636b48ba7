//! Bodies in other versions of operator sets: where a function is to come into the place of calls
//! and its operators are not the same there, a copy of it is converted. What calls the function
//! elsewhere keeps it as it is.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashSet;
use sardonyx_model::Model;
use sardonyx_ops::Registry;

use crate::check::{against_changing, codes};
use crate::convert::{ConvertError, ConvertOptions, Target, convert_functions};
use crate::finding::Finding;
use crate::inline::{
    Copies, InlineOptions, InlineRefusal, InlineReport, Versions, conflicting, inline_with,
    specialize_to_inline,
};

/// A model with calls inlined, and what was done.
///
/// # Errors
///
/// Names that nothing defines, nodes in an order in which they cannot run, references that have a
/// value as well, and operands that a node leaves out although its operator requires them.
/// Functions that call themselves, calls that do not fit their functions, functions that mean
/// something else at the versions that count where they are called and cannot be converted, and
/// more nodes than the limit.
pub fn inline(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<(Model, InlineReport), InlineRefusal> {
    let mut against = against_changing(model, registry);
    // Such a call may stay as it is, if the caller wants that.
    against.retain(|finding| finding.code.name != codes::CALL_WITHOUT_INPUT.name);
    if !against.is_empty() {
        return Err(InlineRefusal::Findings(against));
    }
    inline_in_any_order(model, registry, options)
}

/// Like [`inline`], but takes nodes in any order and does not look for what else is wrong with the
/// model.
pub(crate) fn inline_in_any_order(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<(Model, InlineReport), InlineRefusal> {
    let found = find_conflicting(model, registry, options)?;
    match specialize_to_inline(model, registry, options, &found)? {
        None => inline_converting(model, registry, options, found),
        Some(special) => special.inline(model, options, |options| {
            let found = find_conflicting(&special.model, registry, options)?;
            inline_converting(&special.model, registry, options, found)
        }),
    }
}

/// Finds the functions that are to be converted, by the versions that count where they are called.
fn find_conflicting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<BTreeMap<Versions, BTreeSet<usize>>, InlineRefusal> {
    if options.convert { conflicting(model, registry, options) } else { Ok(BTreeMap::new()) }
}

/// Inlines calls where functions mean the same, and others by copies of their functions.
fn inline_converting(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
    conflicting: BTreeMap<Versions, BTreeSet<usize>>,
) -> Result<(Model, InlineReport), InlineRefusal> {
    if conflicting.is_empty() {
        return inline_with(model, registry, options, &Copies::none(model));
    }
    let (mut aligned, mut copies, mut refusals) = (model.clone(), Copies::none(model), Vec::new());
    for (versions, functions) in conflicting {
        let found = convert_copies(&mut aligned, registry, &versions, &functions);
        copies.add(&versions, found.copies);
        refusals.extend(found.refusals);
    }
    match inline_with(&aligned, registry, options, &copies) {
        Ok((inlined, mut report)) => {
            // What stays is explained by why it could not be converted.
            if !report.kept.is_empty() {
                report.kept.extend(refusals);
            }
            Ok((inlined, report))
        }
        Err(InlineRefusal::Findings(mut findings)) => {
            findings.extend(refusals);
            Err(InlineRefusal::Findings(findings))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Functions with a copy of each that was converted, and why others could not be.
struct ConvertedCopies {
    copies: Vec<(usize, usize)>,
    refusals: Vec<Finding>,
}

/// Adds copies of functions to a model, each in versions of operator sets.
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
    // It is the original that is converted, whose calls say which types there are in it, and the
    // copy that stays as it is; then they change places.
    let mut converting = Converting::new(model, registry, versions);
    converting.convert(&functions.iter().copied().collect::<Vec<_>>());
    let Converting { converted, refusals, .. } = converting;
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
    }
}

/// Converts functions to versions of operator sets, where they are. Gives those that could not be,
/// with the reasons.
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

/// Functions that are brought to other versions.
struct Converting<'a> {
    model: &'a mut Model,
    registry: &'a Registry,
    options: ConvertOptions,
    converted: HashSet<usize>,
    /// Why the others could not be.
    refusals: Vec<(usize, Finding)>,
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
        let (converted, refusals) = (HashSet::new(), Vec::new());
        Converting { model, registry, options, converted, refusals }
    }

    /// Converts functions: all at once, and where one of them is refused, one half after the other,
    /// so that few refusals cost few attempts.
    fn convert(&mut self, functions: &[usize]) {
        let set: HashSet<usize> = functions.iter().copied().collect();
        match convert_functions(self.model, self.registry, &self.options, &set) {
            Ok(converted) => {
                *self.model = converted.model;
                self.converted.extend(functions);
            }
            Err(ConvertError::Refused(_)) if functions.len() > 1 => {
                let (first, second) = functions.split_at(functions.len() / 2);
                self.convert(first);
                self.convert(second);
            }
            Err(ConvertError::Refused(refusals)) => {
                // What `convert` may be told does not hold here.
                let refusals = refusals.into_iter().map(|refusal| {
                    let advice = "change the node, or keep the calls of the function: inline --keep-conflicting";
                    (functions[0], refusal.with_advice(advice))
                });
                self.refusals.extend(refusals);
            }
            // A version that is not known is told of where it matters.
            Err(ConvertError::Target(_) | ConvertError::NotHeld(_)) => {}
        }
    }
}
