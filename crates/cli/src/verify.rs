//! `convert --verify` and `simplify --verify`: comparison of a model with the changed one, by
//! running both.

use sardonyx::convert::ConvertReport;
use sardonyx::run::Optimization;
use sardonyx::tool::{Difference, ModelExt};
use sardonyx::value::Tolerance;
use sardonyx::{
    DataType, Dim, ErrorKind, Model, Port, RunOptions, Session, Type, Value as Operand,
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::human::format_count;
use crate::session::{SizeArgs, Sizes};
use crate::terminal::Terminal;
use crate::{filling, random};

/// Allowed difference of results if the converted model computes them in other steps than the
/// original model.
const TOLERANCE: Tolerance = Tolerance { rtol: 1e-4, atol: 1e-5 };

/// Allowed relative difference of results in float16: two units in the last place.
const FLOAT16_RTOL: f64 = 1.0 / 512.0;

/// First IR version in which an input with an initializer is not a constant.
const OVERRIDABLE: i64 = 4;

/// Result of comparing the original model with the converted model.
pub(crate) struct Verified {
    runs: u64,
    /// Allowed difference of results: zero if both models compute the results in the same steps.
    tolerance: Tolerance,
    /// First run in which the outputs of the models differ; `None` if all outputs agree.
    pub(crate) failed: Option<Failed>,
}

/// Run in which the outputs of the original and the converted model differ.
pub(crate) struct Failed {
    /// Number of the run, from 1.
    run: u64,
    /// Name of the first graph output that differs.
    output: String,
    /// Description of the difference between the outputs.
    what: String,
    /// First intermediate value that differs between the two models; `None` if none was found.
    first: Option<Difference>,
}

/// Runs the original and the converted model on the same pseudo-random inputs, and compares the
/// outputs.
///
/// # Errors
///
/// If a model cannot be run, or fails on its pseudo-random inputs.
pub(crate) fn verify(
    original: &Model,
    converted: &Model,
    report: &ConvertReport,
    runs: u64,
    sizes: &SizeArgs,
    terminal: &Terminal,
) -> Result<Verified, Failure> {
    // Inputs that are not constants in the new IR version are not folded or packed ahead of time,
    // so that sums with them may be computed in another order.
    let is_freed = report.ir_version.0.unwrap_or(0) < OVERRIDABLE
        && report.ir_version.1 >= OVERRIDABLE
        && original.inputs().iter().any(|port| !port.is_required());
    let is_exact = report.wrapped == 0 && report.expanded.is_empty() && !is_freed;
    let changed = Changed { model: converted, is_exact, optimization: Optimization::All };
    verify_changed(original, &changed, runs, sizes, terminal)
}

/// Model that was changed, and how it is compared with the original.
pub(crate) struct Changed<'a> {
    pub(crate) model: &'a Model,
    /// Whether results must have the same bits.
    pub(crate) is_exact: bool,
    /// Optimization of both sessions.
    pub(crate) optimization: Optimization,
}

/// Runs the original and the changed model on the same pseudo-random inputs, and compares the
/// outputs.
///
/// # Errors
///
/// If a model cannot be run, or fails on its pseudo-random inputs.
pub(crate) fn verify_changed(
    original: &Model,
    changed: &Changed<'_>,
    runs: u64,
    sizes: &SizeArgs,
    terminal: &Terminal,
) -> Result<Verified, Failure> {
    let Changed { model: converted, is_exact, optimization } = *changed;
    let sizes = sizes.resolve(original)?;
    let before = build_session(original, &sizes, optimization, "the model")?;
    let mut elems = before.outputs().iter().map(|port| port.ty().and_then(Type::elem));
    let tolerance = if is_exact {
        Tolerance::EXACT
    } else if elems.any(|elem| elem == Some(DataType::Float16)) {
        Tolerance { rtol: FLOAT16_RTOL, ..TOLERANCE }
    } else {
        TOLERANCE
    };
    let after = build_session(converted, &sizes, optimization, "the changed model")?;
    let bar = terminal.progress("verifying", Some(runs));
    let (mut failed, options) = (None, RunOptions::default());
    for run in 1..=runs {
        // Only the first run notes how inputs are filled.
        let notes = (run == 1).then_some(terminal);
        let filling = filling::Args::with_seed(run);
        let inputs = random::fill_inputs(&filling, original, &sizes, before.inputs(), &[], notes)?;
        let wanted = before.run(inputs.clone(), &options).map_err(|error| {
            Failure::from(error).help(advise_on_inputs(run, &inputs, before.inputs()))
        })?;
        let got = after.run(inputs.clone(), &options)?;
        let mut pairs = wanted.iter().zip(got.iter());
        let differs = pairs.find_map(|((name, wanted), (_, got))| {
            Some((name.to_string(), got.compare(wanted, tolerance).err()?))
        });
        bar.inc(1);
        if let Some((output, what)) = differs {
            let first = find_first_difference(original, converted, &inputs, tolerance);
            failed = Some(Failed { run, output, what, first });
            break;
        }
    }
    bar.finish_and_clear();
    Ok(Verified { runs, tolerance, failed })
}

/// Builds the session of a model, which `what` names in messages.
fn build_session(
    model: &Model,
    sizes: &Sizes,
    optimization: Optimization,
    what: &str,
) -> Result<Session, Failure> {
    let mut builder = Session::builder(model).optimization(optimization);
    for (name, size) in &sizes.fixed {
        builder = builder.dim(name, *size);
    }
    let help = format!("{what} cannot be run, so the models cannot be compared; remove --verify");
    builder.build().map_err(|error| {
        // For a wrong option, the remedy is another option and not to omit --verify.
        let is_option = error.kind() == ErrorKind::Argument;
        let failure = Failure::from(error);
        if is_option { failure } else { failure.help(help) }
    })
}

/// Returns advice for an original model that fails on its pseudo-random inputs, mostly because it
/// does not accept their sizes.
fn advise_on_inputs(run: u64, inputs: &[(String, Operand)], ports: &[Port]) -> String {
    /// Maximum number of inputs that the advice names.
    const SHOWN: usize = 6;
    let shown = inputs.iter().take(SHOWN).map(|(name, value)| match value.as_tensor() {
        Some(tensor) => {
            let dims = tensor.dims().iter().copied();
            format!("{name}: {}", Type::tensor(tensor.data_type(), dims))
        }
        None => format!("{name}: {}", value.value_type()),
    });
    let shown: Vec<String> = shown.collect();
    let open = ports.iter().find_map(|port| {
        let shape = port.ty()?.shape()?;
        // From the last axis on, because the first one mostly counts examples and accepts any size.
        let mut axes = shape.iter().enumerate().rev();
        axes.find_map(|(axis, dim)| match dim {
            Dim::Known(_) => None,
            dim if dim.is_unknown() => Some(format!("'{}[{axis}]=SIZE'", port.name())),
            dim => dim.as_symbol().map(|name| format!("{name}=SIZE")),
        })
    });
    let sizes = match open {
        Some(open) => format!("set sizes that the model takes, such as --set {open}, or "),
        None => String::new(),
    };
    format!(
        "run {run} of the original model fails on its pseudo-random inputs ({}); {sizes}remove \
         --verify",
        shown.join(", ")
    )
}

/// Finds the first intermediate value that differs between the two models; `None` if none was
/// found.
fn find_first_difference(
    original: &Model,
    converted: &Model,
    inputs: &[(String, Operand)],
    tolerance: Tolerance,
) -> Option<Difference> {
    original.find_first_difference(converted, inputs, tolerance).ok().flatten()
}

impl Verified {
    /// Formats the result as text: the number of runs, or the first difference.
    pub(crate) fn text(&self) -> String {
        let Verified { runs, tolerance, failed } = self;
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
            Some(Failed { run, output, what, first }) => {
                let first = first.as_ref().map_or(String::new(), |first| {
                    let Difference { node, value, what, .. } = first;
                    format!("first differing value: '{value}', of {node}: {what}\n")
                });
                format!("run {run} of {runs}: the output '{output}' differs: {what}\n{first}")
            }
        }
    }

    /// Converts the result to JSON.
    pub(crate) fn json(&self) -> Value {
        let failed = self.failed.as_ref().map(|failed| {
            let first = failed.first.as_ref().map(
                |first| json!({"value": first.value, "node": first.node, "message": first.what}),
            );
            json!({
                "run": failed.run,
                "output": failed.output,
                "message": failed.what,
                "first": first,
            })
        });
        json!({
            "runs": self.runs,
            "rtol": self.tolerance.rtol,
            "atol": self.tolerance.atol,
            "difference": failed,
        })
    }
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
        let report = ConvertReport::default();
        let terminal = Terminal::plain(FailureFormat::Prose);
        verify(&before, &model(after), &report, 2, &sizes, &terminal).unwrap()
    }

    #[test]
    fn differences_are_reported() {
        let same = verify_nodes("b = Exp (x) y = Neg (b)");
        assert_eq!(same.text(), "verified by 2 runs of both models: the same bits\n");
        assert_eq!(same.json()["difference"], Value::Null);
        let other = verify_nodes("a = Abs (x) y = Neg (a)");
        let text = other.text();
        assert!(text.starts_with("run 1 of 2: the output 'y' differs: 3 of 3"), "{text}");
        assert!(text.contains("'a', of Exp node that makes 'a'"), "{text}");
        assert_eq!(other.json()["difference"]["first"]["value"], "a");
    }
}
