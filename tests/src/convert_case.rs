//! Checks that a case whose model is converted to another version of an operator set is refused or
//! still has the results of the case.

use crate::cases::Case;
use crate::outcome::{Class, Failure, Outcome};
use crate::run_case::{catch_panic, failure, run_model, unreadable};
use sardonyx::check::Severity;
use sardonyx::convert::{ConvertOptions, Target};
use sardonyx::edit::EditError;
use sardonyx::value::Tolerance;
use sardonyx::{Model, check};
use sardonyx_model::{normalize_domain, shown_domain};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A version of an operator set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Opset {
    /// Empty for `ai.onnx`.
    pub domain: String,
    pub version: u32,
}

impl fmt::Display for Opset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", shown_domain(&self.domain), self.version)
    }
}

impl FromStr for Opset {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (domain, version) = text.split_once('=').unwrap_or(("ai.onnx", text));
        let domain = normalize_domain(domain);
        let version = version.parse().map_err(|_| format!("'{version}' is not a version"))?;
        Ok(Opset { domain: domain.to_string(), version })
    }
}

/// Returns the version of an operator set that a case's model imports.
pub fn version_of(case: &Case, domain: &str) -> Option<i64> {
    let model = Model::open(case.model()).ok()?;
    version(&model, domain)
}

fn version(model: &Model, domain: &str) -> Option<i64> {
    let found = model.opsets().into_iter().find(|set| set.domain == domain)?;
    Some(found.version)
}

/// Converts the model of a case, writes it to a directory if there is one, checks it and runs it.
/// Then converts it back to its original version and runs that model. A refusal to convert back
/// does not count.
pub fn convert_case(case: &Case, to: &Opset, written: Option<&Path>) -> Outcome {
    catch_panic(|| {
        let original = Model::open(case.model()).map_err(failure)?;
        let from = version(&original, &to.domain);
        let (converted, tolerance) = convert(case, &original, to)?;
        if let Some(directory) = written {
            write(&converted, &path_in(directory, to, case)).map_err(|error| {
                Failure::new(Class::Error, format!("the model cannot be written: {error}"))
            })?;
        }
        if full_errors(&original).is_empty()
            && let Some(first) = full_errors(&converted).first()
        {
            return Err(Failure::new(Class::Error, format!("not valid any more: {first}")));
        }
        run_model(case, &converted, tolerance)?;
        let Some(version) = from.and_then(|from| u32::try_from(from).ok()) else { return Ok(()) };
        match convert(case, &converted, &Opset { version, ..to.clone() }) {
            Err(failure) if failure.class == Class::Refused => Ok(()),
            back => {
                let (back, closeness) = back?;
                let rtol = tolerance.rtol.max(closeness.rtol);
                run_model(case, &back, Tolerance { rtol, ..tolerance }).map_err(|failure| {
                    Failure::new(failure.class, format!("after the way back: {}", failure.detail))
                })
            }
        }
    })
}

/// Lists the errors of a model, those of types and shapes too.
pub fn full_errors(model: &Model) -> Vec<String> {
    let report = model.check(&check::CheckOptions::new().types(true));
    let errors = report.findings.into_iter();
    let errors = errors.filter(|finding| finding.severity == Severity::Error);
    errors.map(|finding| finding.to_string()).collect()
}

/// Returns the path of a converted model.
pub fn path_in(directory: &Path, to: &Opset, case: &Case) -> PathBuf {
    directory.join(to.to_string()).join(format!("{}.onnx", case.id))
}

fn write(model: &Model, path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, model.to_bytes())
}

/// Converts a model and reads it again from its bytes. Also returns the tolerance of its results:
/// bodies of functions round where their operators do not, up to two units in the last place of a
/// 16-bit float.
fn convert(case: &Case, model: &Model, to: &Opset) -> Result<(Model, Tolerance), Failure> {
    let target = Target::new().opset(&to.domain, to.version);
    match model.convert(&ConvertOptions::new(target)) {
        Ok((converted, report)) => {
            let tolerance = case.tolerance().map_err(unreadable)?;
            let rtol = if report.expanded.is_empty() { 0.0 } else { 1.0 / 512.0 };
            let tolerance = Tolerance { rtol: tolerance.rtol.max(rtol), ..tolerance };
            Ok((Model::from_bytes(converted.to_bytes()).map_err(failure)?, tolerance))
        }
        Err(EditError::NotConvertible(findings)) => {
            let first = findings.first().map_or("without a reason", |found| &found.fact);
            Err(Failure::new(Class::Refused, first))
        }
        Err(error) => Err(Failure::new(Class::Error, error.to_string())),
    }
}
