//! Inlining of functions that import other versions of operator sets than the model: their bodies
//! are converted first, where operators are not the same in both.

use hashbrown::HashSet;
use sardonyx_model::Model;
use sardonyx_ops::Registry;

use crate::convert::{ConvertError, ConvertOptions, Target, convert_functions};
use crate::finding::Finding;
use crate::function_id::FunctionId;
use crate::inline::{InlineOptions, InlineRefusal, InlineReport, conflicting, inline_as_they_are};

/// A model with calls inlined, and what was done.
///
/// # Errors
///
/// Functions that call themselves, calls that do not fit their functions, functions that mean
/// something else at the versions that the model imports and cannot be converted, and more nodes
/// than the limit.
pub fn inline(
    model: &Model,
    registry: &Registry,
    options: &InlineOptions<'_>,
) -> Result<(Model, InlineReport), InlineRefusal> {
    let functions =
        if options.convert { conflicting(model, registry, options)? } else { Vec::new() };
    if functions.is_empty() {
        return inline_as_they_are(model, registry, options);
    }
    let mut aligned = Aligned {
        model: model.clone(),
        registry,
        options: ConvertOptions {
            target: target(model, registry, &functions),
            expand: true,
            granted: Vec::new(),
            like_reference: false,
        },
        functions: Vec::new(),
        refusals: Vec::new(),
    };
    aligned.convert(&functions);
    let Aligned { model: aligned, functions, refusals, .. } = aligned;
    match inline_as_they_are(&aligned, registry, options) {
        Ok((inlined, mut report)) => {
            report.converted =
                functions.iter().map(|at| FunctionId::of(model, &model.functions[*at])).collect();
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

/// The versions that the model imports of operator sets that functions import in others.
fn target(model: &Model, registry: &Registry, functions: &[usize]) -> Target {
    let mut target = Target::new();
    for function in functions {
        for (domain, version) in model.opsets_in(&model.functions[*function].opset_import) {
            let wanted = model.opset(&domain).filter(|wanted| *wanted != version);
            let wanted = wanted.and_then(|wanted| u32::try_from(wanted).ok());
            if let (Some(wanted), Some(_)) = (wanted, registry.versions(&domain)) {
                target = target.opset(&domain, wanted);
            }
        }
    }
    target
}

/// A model whose functions are brought to its versions.
struct Aligned<'a> {
    model: Model,
    registry: &'a Registry,
    options: ConvertOptions,
    /// Those that were converted.
    functions: Vec<usize>,
    /// Why the others could not be.
    refusals: Vec<Finding>,
}

impl Aligned<'_> {
    /// Converts functions: all at once, and where one of them is refused, one half after the other,
    /// so that few refusals cost few attempts.
    fn convert(&mut self, functions: &[usize]) {
        let set: HashSet<usize> = functions.iter().copied().collect();
        match convert_functions(&self.model, self.registry, &self.options, &set) {
            Ok(converted) => {
                self.model = converted.model;
                self.functions.extend(functions);
            }
            Err(ConvertError::Refused(_)) if functions.len() > 1 => {
                let (first, second) = functions.split_at(functions.len() / 2);
                self.convert(first);
                self.convert(second);
            }
            Err(ConvertError::Refused(refusals)) => self.refusals.extend(refusals),
            // A version that is not known is told of where it matters.
            Err(ConvertError::Target(_) | ConvertError::NotHeld(_)) => {}
        }
    }
}
