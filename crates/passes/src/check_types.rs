//! Rules about types and shapes, which inference checks.

use sardonyx_model::Model;

use crate::check::CheckOptions;
use crate::codes;
use crate::finding::{CheckReport, Findings, Reference, Severity};
use crate::infer::{InferOptions, Inference, infer_model, infer_with_training};

/// Infers types and shapes, including those in training steps, and finds contradictions.
pub fn check_types(model: &Model, options: &CheckOptions) -> CheckReport {
    let mut found = Findings::new(options.per_code);
    add_contradictions(model, options, &infer_to_check(model, options), &mut found);
    CheckReport { types_checked: true, ..found.report() }
}

/// Infers the types that a check compares.
pub(crate) fn infer_to_check(model: &Model, options: &CheckOptions) -> Inference {
    let registry = &options.registry;
    if options.levels.shared_only {
        infer_model(model, registry, InferOptions::FULL_CHECK)
    } else {
        let differences = options.levels.of(&codes::RUNTIMES_DIFFER).is_some();
        let options = InferOptions { check_types: true, differences, ..InferOptions::default() };
        infer_with_training(model, registry, options)
    }
}

/// Adds contradictions of types and shapes to the findings.
pub(crate) fn add_contradictions(
    model: &Model,
    options: &CheckOptions,
    inferred: &Inference,
    found: &mut Findings,
) {
    let levels = &options.levels;
    inferred.findings(model, found, |code| {
        if levels.shared_only && code.reference == Reference::Accepts {
            // Inference gave up, so the findings of the reference are unknown, which is an error.
            Some(Severity::Error)
        } else {
            levels.of(code)
        }
    });
    if !levels.shared_only {
        inferred.fixed_sizes(model, found, |code| levels.of(code));
        inferred.differences(model, found, |code| levels.of(code));
        inferred.cut_windows(model, found, |code| levels.of(code));
        inferred.sharded_axes(model, found, |code| levels.of(code));
    }
}
