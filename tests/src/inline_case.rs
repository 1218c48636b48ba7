//! Checks that a case whose operators are replaced by the bodies of their functions is valid and
//! still has the results of the case.

use crate::cases::Case;
use crate::convert_case::full_errors;
use crate::outcome::{Class, Failure, Outcome};
use crate::run_case::{catch_panic, failure, run_model, unreadable};
use sardonyx::Model;
use sardonyx::edit::InlineOptions;
use sardonyx::value::Tolerance;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Depth to which calls are inlined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Bodies of the operator that the case is named after.
    Alone,
    /// Bodies of all operators, those in bodies too.
    End,
    /// Bodies of all functions of the model, then of all operators.
    Functions,
}

impl Depth {
    pub const ALL: [Depth; 3] = [Depth::Alone, Depth::End, Depth::Functions];

    /// Returns the name that [`from_str`](FromStr::from_str) takes.
    pub fn name(self) -> &'static str {
        match self {
            Depth::Alone => "alone",
            Depth::End => "end",
            Depth::Functions => "functions",
        }
    }

    fn options(self, case: &Case) -> InlineOptions {
        let none = Vec::<String>::new();
        match self {
            Depth::Alone => InlineOptions::new().functions(none).operators([operator(case)]),
            Depth::End => InlineOptions::new().functions(none).operators(["*"]),
            Depth::Functions => InlineOptions::new().operators(["*"]),
        }
    }
}

impl fmt::Display for Depth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inline={}", self.name())
    }
}

impl FromStr for Depth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Depth::ALL.into_iter().find(|depth| depth.name() == text);
        found.ok_or_else(|| format!("--depth is '{text}', which names no depth of inlining"))
    }
}

/// Returns the operator that a case is named after, as `Clip` for `body/Clip-13-4`.
pub fn operator(case: &Case) -> &str {
    let name = case.id.split_once('/').map_or("", |(_, name)| name);
    name.split('-').next().unwrap_or_default()
}

/// Inlines calls, writes the model to a directory if there is one, checks it in full and runs it. A
/// model that keeps the operator counts as refused.
pub fn inline_case(case: &Case, depth: Depth, written: Option<&Path>) -> Outcome {
    catch_panic(|| {
        let original = Model::open(case.model()).map_err(failure)?;
        let mut inlined = original.clone();
        let report = inlined
            .inline(&depth.options(case))
            .map_err(|refusal| Failure::new(Class::Refused, refusal.to_string()))?;
        let name = operator(case).rsplit('.').next();
        if let Some(kept) = report.without_body.iter().find(|kept| Some(&*kept.name) == name) {
            return Err(Failure::new(Class::Refused, &kept.why));
        }
        if report.operators.is_empty() {
            return Err(Failure::new(Class::Error, "nothing was inlined"));
        }
        // Run as it is read from its bytes, so that writing is checked too.
        let bytes = inlined.to_bytes();
        if let Some(directory) = written {
            write(&bytes, &path_in(directory, depth, case)).map_err(unreadable)?;
        }
        let inlined = Model::from_bytes(bytes).map_err(failure)?;
        if full_errors(&original).is_empty()
            && let Some(first) = full_errors(&inlined).first()
        {
            return Err(Failure::new(Class::Error, format!("not valid any more: {first}")));
        }
        let tolerance = case.tolerance().map_err(unreadable)?;
        // Bodies round between their nodes, up to two units in the last place of a 16-bit float.
        let rtol = tolerance.rtol.max(1.0 / 512.0);
        run_model(case, &inlined, Tolerance { rtol, ..tolerance })
    })
}

/// Returns the path under which an inlined model is written.
fn path_in(directory: &Path, depth: Depth, case: &Case) -> PathBuf {
    directory.join(depth.to_string()).join(format!("{}.onnx", case.id))
}

fn write(bytes: &[u8], path: &Path) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, bytes)
}
