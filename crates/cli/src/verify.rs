//! `convert --verify` and `simplify --verify`: comparison of a model with the changed one, by
//! running both.

use sardonyx::Model;
use sardonyx::check::{FailedRun, Verified, VerifyOptions};
use sardonyx::convert::ConvertReport;
use sardonyx::value::Tolerance;
use sardonyx::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::filling::note_assumed;
use crate::human::format_count;
use crate::session::SizeArgs;
use crate::terminal::Terminal;

/// First IR version in which an input with an initializer is not a constant.
const OVERRIDABLE: i64 = 4;

/// Runs the original and the changed model on the same pseudo-random inputs, and compares the
/// outputs.
///
/// # Errors
///
/// If a model cannot be run, or fails on its pseudo-random inputs.
pub(crate) fn verify(
    original: &Model,
    changed: &Model,
    options: VerifyOptions<'_>,
    runs: u64,
    sizes: &SizeArgs,
    terminal: &Terminal,
) -> Result<Verified, Failure> {
    let fill = sizes.resolve(original)?.to_fill_options();
    let bar = terminal.progress("verifying", Some(runs));
    let advance = |_| bar.inc(1);
    let verified = original.verify(changed, &options.runs(runs).fill(fill).progress(&advance));
    bar.finish_and_clear();
    let verified = verified.map_err(add_advice)?;
    note_assumed(&verified.assumed, terminal);
    for (name, fill) in &verified.rules {
        terminal.detail(&format!("the input '{name}' is filled with {fill}"));
    }
    Ok(verified)
}

/// Converts an error of the verification, and adds advice on how to do without it.
fn add_advice(error: Error) -> Failure {
    // For a wrong option, the remedy is another option and not to omit --verify.
    let help = error.help().filter(|_| error.kind() != ErrorKind::Argument);
    let help = help.map(|help| format!("{help}; remove --verify to skip the comparison"));
    let failure = Failure::from(error);
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// Returns the options for a converted model: bits must be equal if it computes the results in the
/// same steps as the original.
pub(crate) fn choose_options(original: &Model, report: &ConvertReport) -> VerifyOptions<'static> {
    // Inputs that are not constants in the new IR version are not folded or packed ahead of time,
    // so that sums with them may be computed in another order.
    let is_freed = report.ir_version.0.unwrap_or(0) < OVERRIDABLE
        && report.ir_version.1 >= OVERRIDABLE
        && original.inputs().iter().any(|port| !port.is_required());
    let is_exact = report.wrapped == 0 && report.expanded.is_empty() && !is_freed;
    let options = VerifyOptions::new();
    if is_exact { options.tolerance(Tolerance::EXACT) } else { options }
}

/// Formats the result as text: the number of runs, or the first difference.
pub(crate) fn format_text(verified: &Verified) -> String {
    let Verified { runs, tolerance, failed, .. } = verified;
    let closeness = if *tolerance == Tolerance::EXACT {
        "the same bits".to_string()
    } else {
        format!("the same within {} of each number plus {}", tolerance.rtol, tolerance.atol)
    };
    match failed {
        None => {
            let runs = format_count(usize::try_from(*runs).unwrap_or(usize::MAX), "run");
            format!("verified by {runs} of both models: {closeness}\n")
        }
        Some(FailedRun { run, output, what, first, .. }) => {
            let first = first.as_ref().map_or(String::new(), |first| {
                let what = first.describe().unwrap_or_default();
                format!("first differing value: '{}', of {}: {what}\n", first.name, first.node)
            });
            format!("run {run}: the output '{output}' differs: {what}\n{first}")
        }
    }
}

/// Converts the result to JSON.
pub(crate) fn to_json(verified: &Verified) -> Value {
    let failed = verified.failed.as_ref().map(|failed| {
        let first = failed.first.as_ref().map(
            |first| json!({"value": first.name, "node": first.node, "message": first.describe()}),
        );
        json!({
            "run": failed.run,
            "output": failed.output,
            "message": failed.what,
            "first": first,
        })
    });
    json!({
        "runs": verified.runs,
        "rtol": verified.tolerance.rtol,
        "atol": verified.tolerance.atol,
        "difference": failed,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::usage::FailureFormat;

    #[derive(clap::Parser)]
    struct Sized {
        #[command(flatten)]
        sizes: SizeArgs,
    }

    fn verify_nodes(after: &str) -> Verified {
        let model = |nodes: &str| {
            let text = format!(
                "<ir_version: 10, opset_import: [\"\": 21]>
                 g (float[N] x) => (float[N] y) {{ {nodes} }}"
            );
            Model::from_text(&text).unwrap()
        };
        let sizes = Sized::parse_from(["convert", "--set", "N=3"]).sizes;
        let before = model("a = Exp (x) y = Neg (a)");
        let options = choose_options(&before, &ConvertReport::default());
        let terminal = Terminal::plain(FailureFormat::Prose);
        verify(&before, &model(after), options, 2, &sizes, &terminal).unwrap()
    }

    #[test]
    fn differences_are_reported() {
        let same = verify_nodes("b = Exp (x) y = Neg (b)");
        assert_eq!(format_text(&same), "verified by 2 runs of both models: the same bits\n");
        assert_eq!(to_json(&same)["difference"], Value::Null);
        let other = verify_nodes("a = Abs (x) y = Neg (a)");
        let text = format_text(&other);
        assert!(text.starts_with("run 1: the output 'y' differs: 3 of 3"), "{text}");
        assert!(text.contains("'a', of Exp node that makes 'a'"), "{text}");
        assert_eq!(to_json(&other)["difference"]["first"]["value"], "a");
    }
}
