//! Cases whose outputs are drawn at random, so that the stored outputs are other numbers: the cases
//! of Bernoulli. They are judged by type, shape, values and frequency.

use crate::cases::Case;
use crate::outcome::Outcome;
use crate::run_case::{failure, wrong};
use sardonyx::tool::{CastOptions, cast};
use sardonyx::{DataType, Session, Tensor, Value};

/// Returns whether the outputs of a case are the results of trials.
pub(crate) fn is_random(case: &Case) -> bool {
    case.id.rsplit('/').next().is_some_and(|name| name.starts_with("test_bernoulli"))
}

/// Number of runs.
const RUNS: usize = 400;
/// Greatest deviation of a frequency from its mean, in standard deviations. One in 10^9 exceeds it.
const DEVIATIONS: f64 = 6.0;

/// Judges the first output of a session, a trial for each probability.
pub(crate) fn judge(
    case: &Case,
    session: &Session,
    inputs: &[(&str, Value)],
    expected: &Value,
) -> Outcome {
    let [(_, Value::Tensor(probabilities))] = inputs else {
        return Err(wrong("there is not one input of probabilities".to_string()));
    };
    let mut probabilities = numbers(probabilities)?;
    // The cases were written with the function of the reference, which compares in the wrong
    // direction: it draws 1 with the probability of 0.
    if case.id.contains("_expanded") {
        probabilities.iter_mut().for_each(|p| *p = 1.0 - *p);
    }
    // With a seed, all runs give equal numbers.
    let has_seed = case.id.contains("_seed");
    let mut counts = vec![0.0; probabilities.len()];
    let mut first = None;
    for _ in 0..RUNS {
        let outputs = session.run(inputs.iter().cloned(), &Default::default()).map_err(failure)?;
        let Some((_, value)) = outputs.iter().next() else {
            return Err(wrong("there is no output".to_string()));
        };
        let (Value::Tensor(drawn), Value::Tensor(expected)) = (value, expected) else {
            return Err(wrong(format!("{} instead of a tensor", value.value_type())));
        };
        if drawn.data_type() != expected.data_type() || drawn.dims() != expected.dims() {
            let fault = format!("{}, not {}", value.value_type(), expected.data_type().name());
            return Err(wrong(fault));
        }
        let trials = numbers(drawn)?;
        if let Some(other) = trials.iter().find(|trial| ![0.0, 1.0].contains(*trial)) {
            return Err(wrong(format!("{other} is neither 0 nor 1")));
        }
        counts.iter_mut().zip(&trials).for_each(|(count, trial)| *count += trial);
        if has_seed && *first.get_or_insert_with(|| trials.clone()) != trials {
            return Err(wrong("the numbers of a seed are not the same in every run".to_string()));
        }
    }
    if has_seed {
        let count = counts.iter().sum::<f64>() / RUNS as f64;
        return check_bounds("trials succeed", count, 1.0, &probabilities);
    }
    for (index, (count, p)) in counts.iter().zip(&probabilities).enumerate() {
        check_bounds(&format!("trials of element {index} succeed"), *count, RUNS as f64, &[*p])?;
    }
    Ok(())
}

/// Checks that about as many trials succeed as the probabilities give, each tried `times` times.
fn check_bounds(counted: &str, count: f64, times: f64, probabilities: &[f64]) -> Outcome {
    let mean: f64 = probabilities.iter().sum::<f64>() * times;
    let variance: f64 = probabilities.iter().map(|p| p * (1.0 - p)).sum::<f64>() * times;
    // Half a trial is added because counts are whole numbers.
    if (count - mean).abs() > DEVIATIONS * variance.sqrt() + 0.5 {
        return Err(wrong(format!("{count} {counted}, {mean:.1} are expected")));
    }
    Ok(())
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>, crate::outcome::Failure> {
    let doubles = cast(tensor, DataType::Double, CastOptions::default());
    doubles.and_then(|doubles| doubles.to_vec()).map_err(|error| wrong(error.to_string()))
}
