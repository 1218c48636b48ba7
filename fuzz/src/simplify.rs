//! Property: a simplified model is valid and runs. At level `exact` it gives the bits of the model.
//!
//! The models are those of the property `programs`: nested branches, loops and scans over tensors,
//! strings and sequences.

use sardonyx::edit::{EditError, SimplifyLevel, SimplifyOptions};
use sardonyx::run::Optimization;
use sardonyx::{Error, Model, Outputs, RunOptions, Session, Value};

use crate::programs::{is_equal, make_model, write_model};

/// Iterations of all loops of a run.
const TURNS: u64 = 300;
const MEMORY: usize = 8 << 20;

/// Makes a model of the choices, simplifies it, and runs both.
pub(crate) fn check(input: &[u8]) {
    simplify_both(input);
}

/// Simplifies a model at both levels. Returns whether it ran to its end.
fn simplify_both(input: &[u8]) -> bool {
    let (text, model) = (write_model(input), make_model(input));
    let plain = run(&model);
    for level in [SimplifyLevel::Exact, SimplifyLevel::Close] {
        let simplified = match model.simplify(&SimplifyOptions::new().level(level)) {
            Ok((simplified, report)) => {
                assert!(report.rejected.is_empty(), "{:?}\n{text}", report.rejected);
                assert!(report.after.nodes <= report.before.nodes, "{report:?}\n{text}");
                simplified
            }
            Err(EditError::NotSimplifiable(_)) => return false,
            Err(error) => panic!("{error}\n{text}"),
        };
        // A node of the model may fail that nothing needs.
        let Ok(plain) = &plain else { return false };
        let simple = run(&simplified);
        let simple = simple.unwrap_or_else(|error| {
            panic!("only the model simplified at {} fails: {error}\n{text}", level.name())
        });
        for ((name, a), (_, b)) in plain.iter().zip(simple.iter()) {
            // At `close`, numbers round, and a rounded one may decide which branch is taken.
            let is_same = level == SimplifyLevel::Close || is_equal(a, b);
            assert!(is_same, "'{name}' is {a:?} and {b:?}\n{text}");
        }
    }
    true
}

/// Runs a model as it is written.
fn run(model: &Model) -> Result<Outputs, Error> {
    let session = Session::builder(model)
        .threads(1)
        .optimization(Optimization::Off)
        .memory_limit(MEMORY)
        .build()?;
    session.run(std::iter::empty::<(&str, Value)>(), &RunOptions::new().iteration_limit(TURNS))
}

#[cfg(test)]
mod tests {
    use crate::random::Random;

    #[test]
    fn many_programs_are_simplified() {
        let ran = (0..150).filter(|index| {
            let mut random = Random::new(65, *index);
            let choices: Vec<u8> = (0..200).map(|_| random.below(256) as u8).collect();
            super::simplify_both(&choices)
        });
        assert!(ran.count() > 50);
    }
}
