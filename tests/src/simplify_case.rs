//! A case whose model is simplified: is the result valid and not larger, and does it still give the
//! same?

use crate::cases::Case;
use crate::convert_case::full_errors;
use crate::outcome::{Class, Failure, Outcome};
use crate::run_case::{catch_panic, failure, read_inputs, run_model, unreadable, wrong};
use sardonyx::edit::{EditError, SimplifyLevel, SimplifyOptions};
use sardonyx::run::Optimization;
use sardonyx::value::Tolerance;
use sardonyx::{Model, Session};

/// Bytes by which any result may be larger, in addition to a hundredth: folded constants.
const SLACK: usize = 1024;

/// Simplifies the model of a case at a level, checks the result in full, and runs it: at `exact`
/// beside the model, with bits compared and no optimization; at `close` against the outputs of the
/// case. A model that cannot be simplified is refused, and so is one whose case fails as it is.
pub fn simplify_case(case: &Case, level: SimplifyLevel) -> Outcome {
    catch_panic(|| {
        let original = Model::open(case.model()).map_err(failure)?;
        let (simplified, report) = original
            .simplify(&SimplifyOptions::new().level(level))
            .map_err(|error| match error {
                EditError::NotSimplifiable(_) => Failure::new(Class::Refused, error.to_string()),
                error => Failure::new(Class::Error, error.to_string()),
            })?;
        if let Some(rejected) = report.rejected.first() {
            let what = format!("{} at {}: {}", rejected.rule, rejected.place, rejected.why);
            return Err(wrong(format!("a rewrite was left out: {what}")));
        }
        // As it is read again after it is written.
        let bytes = simplified.to_bytes();
        let most = original.to_bytes().len();
        if bytes.len() > most + most / 100 + SLACK {
            return Err(wrong(format!("{} bytes became {}", most, bytes.len())));
        }
        let simplified = Model::from_bytes(bytes).map_err(failure)?;
        if full_errors(&original).is_empty()
            && let Some(first) = full_errors(&simplified).first()
        {
            return Err(wrong(format!("not valid any more: {first}")));
        }
        match level {
            SimplifyLevel::Exact => compare_bits(case, &original, &simplified),
            SimplifyLevel::Close => {
                let tolerance = case.tolerance().map_err(unreadable)?;
                run_model(case, &simplified, tolerance).map_err(|failure| {
                    match run_model(case, &original, tolerance) {
                        Ok(()) => failure,
                        Err(_) => Failure::new(Class::Refused, "fails as it is"),
                    }
                })
            }
        }
    })
}

/// Runs both models without optimization, and compares the bits of their outputs.
fn compare_bits(case: &Case, original: &Model, simplified: &Model) -> Outcome {
    let [before, after] = [original, simplified].map(|model| {
        let builder = Session::builder(model).threads(1).seed(0);
        builder.optimization(Optimization::Off).build().map_err(failure)
    });
    // What the engine does not run is not compared.
    let Ok(before) = before else { return Ok(()) };
    let after = after?;
    for data in case.data_sets().map_err(unreadable)? {
        let inputs = read_inputs(&before, &data)?;
        let Ok(wanted) = before.run(inputs.clone(), &Default::default()) else { continue };
        let found = after.run(inputs, &Default::default()).map_err(failure)?;
        for ((name, wanted), (_, found)) in wanted.iter().zip(found.iter()) {
            let same = found.compare(wanted, Tolerance::EXACT);
            same.map_err(|why| wrong(format!("{name}: {why}")))?;
        }
    }
    Ok(())
}
