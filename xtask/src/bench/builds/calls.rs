//! Calls of rustc: the wrapper that times them, and its log.

use crate::Result;
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// Environment variable with the path of the log. This program is a wrapper of rustc if it is set.
pub(crate) const LOG: &str = "SARDONYX_BUILD_LOG";

/// Clock ticks of a second in `/proc`. The kernel's `USER_HZ` is 100 on all processors that we
/// build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Time of one or more processes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Time {
    pub(super) wall_s: f64,
    /// Sum of user and system time, in seconds.
    pub(super) cpu_s: f64,
}

impl Time {
    pub(super) fn to_json(self) -> Value {
        json!({ "wall_s": self.wall_s, "cpu_s": self.cpu_s })
    }
}

/// Kinds of programs and libraries that rustc is called for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallKind {
    Library,
    /// Program or example.
    Program,
    /// Unit tests of a library or program.
    UnitTests,
    /// Test program of its own, from `tests/`.
    TestProgram,
    BuildScript,
}

impl CallKind {
    pub(super) const ALL: &[CallKind] = &[
        CallKind::Library,
        CallKind::Program,
        CallKind::UnitTests,
        CallKind::TestProgram,
        CallKind::BuildScript,
    ];

    fn name(self) -> &'static str {
        match self {
            CallKind::Library => "library",
            CallKind::Program => "program",
            CallKind::UnitTests => "unit tests",
            CallKind::TestProgram => "test program",
            CallKind::BuildScript => "build script",
        }
    }
}

/// One call of rustc by cargo.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) package: String,
    pub(super) kind: CallKind,
    /// Whether the package is from outside the workspace.
    pub(super) is_outside: bool,
    pub(super) time: Time,
}

impl Call {
    /// Returns the call with these arguments and environment variables.
    ///
    /// `None` for calls that build no crate of cargo: queries of the target, and build scripts that
    /// probe the compiler.
    fn new(
        arguments: &[OsString],
        variable: impl Fn(&str) -> Option<String>,
        time: Time,
    ) -> Option<Call> {
        let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
        let values = |option: &'static str| {
            let pairs = arguments.windows(2).filter(move |pair| pair[0] == option);
            pairs.filter_map(|pair| pair[1].to_str())
        };
        let crate_name = variable("CARGO_CRATE_NAME")?;
        if values("--crate-name").next() != Some(crate_name.as_str()) {
            return None;
        }
        let kind = if crate_name.starts_with("build_script_") {
            CallKind::BuildScript
        // Cargo sets this variable only for test programs and benches, with or without a harness.
        } else if variable("CARGO_TARGET_TMPDIR").is_some() {
            CallKind::TestProgram
        } else if has("--test") {
            CallKind::UnitTests
        } else if values("--crate-type").any(|kind| kind == "bin") {
            CallKind::Program
        } else {
            CallKind::Library
        };
        // Cargo passes this option for packages from a registry or from git.
        let is_outside = has("--cap-lints");
        Some(Call { package: variable("CARGO_PKG_NAME")?, kind, is_outside, time })
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "package": self.package,
            "kind": self.kind.name(),
            "is_outside": self.is_outside,
            "wall_s": self.time.wall_s,
            "cpu_s": self.time.cpu_s,
        })
    }

    /// Reads the output of [`Call::to_json`].
    fn from_json(call: &Value) -> Option<Call> {
        let kind = CallKind::ALL.iter().find(|kind| call["kind"] == kind.name())?;
        Some(Call {
            package: call["package"].as_str()?.to_string(),
            kind: *kind,
            is_outside: call["is_outside"].as_bool()?,
            time: Time { wall_s: call["wall_s"].as_f64()?, cpu_s: call["cpu_s"].as_f64()? },
        })
    }
}

/// Runs the rustc that our arguments name with the rest of them, and appends the call to the log.
///
/// Standard streams and exit status pass through; a signal is reported as a shell does.
pub(crate) fn wrap_rustc(log: &OsStr) -> Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let rustc = arguments.next().ok_or_else(|| {
        format!(
            "the variable {LOG} is set, but no rustc command was given; unset it: \
             `cargo xtask bench builds` sets it itself"
        )
    })?;
    let arguments: Vec<OsString> = arguments.collect();
    let (status, time) = time_call(|| {
        let status = Command::new(&rustc).args(&arguments).env_remove(LOG).status();
        Ok(status.map_err(|error| format!("cannot start {}: {error}", rustc.display()))?)
    })?;
    let variable = |name: &str| std::env::var(name).ok();
    if let Some(call) = Call::new(&arguments, variable, time) {
        append(log, &call).map_err(|error| format!("{}: {error}", log.display()))?;
    }
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Appends a line in one write, so that lines of calls that end at once stay whole.
fn append(log: &OsStr, call: &Call) -> std::io::Result<()> {
    let line = format!("{}\n", call.to_json());
    fs::OpenOptions::new().append(true).open(log)?.write_all(line.as_bytes())
}

/// Parses a log of [`wrap_rustc`].
pub(super) fn parse_log(log: &str) -> Result<Vec<Call>> {
    let call = |line: &str| Call::from_json(&serde_json::from_str(line).ok()?);
    let calls = log.lines().map(|line| {
        call(line).ok_or_else(|| format!("the build log has a line that is not a call: {line:?}"))
    });
    Ok(calls.collect::<std::result::Result<_, _>>()?)
}

/// Runs `work`; returns its result, its wall time and the CPU time of the processes that it waits
/// for.
pub(super) fn time_call<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Time)> {
    let (start, before) = (Instant::now(), children_cpu_s()?);
    let result = work()?;
    let time = Time {
        wall_s: start.elapsed().as_secs_f64(),
        // Whole ticks: the difference of two floats has digits that were not measured.
        cpu_s: ((children_cpu_s()? - before) * TICKS_PER_SECOND).round() / TICKS_PER_SECOND,
    };
    Ok((result, time))
}

/// Returns the CPU seconds of all processes that this one has waited for, and of their children.
fn children_cpu_s() -> Result<f64> {
    let path = "/proc/self/stat";
    let stat = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let ticks = children_ticks(&stat).ok_or_else(|| format!("{path} has no cutime and cstime"))?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

/// Returns the sum of `cutime` and `cstime` in the text of `/proc/self/stat`, in clock ticks.
fn children_ticks(stat: &str) -> Option<u64> {
    // The second field is the name of the program in parentheses, which may hold spaces; `cutime`
    // and `cstime` are fields 16 and 17.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13).map(|field| field.parse::<u64>().ok());
    Some(fields.next()?? + fields.next()??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_calls() {
        let unit = "--crate-name kernels --edition=2024 crates/kernels/src/lib.rs --crate-type lib";
        let time = Time { wall_s: 2.0, cpu_s: 1.5 };
        let kind = |arguments: &str, crate_name: Option<&str>, is_test_program: bool| {
            let arguments: Vec<OsString> =
                arguments.split_whitespace().map(OsString::from).collect();
            let variable = |name: &str| match name {
                "CARGO_CRATE_NAME" => crate_name.map(str::to_string),
                "CARGO_TARGET_TMPDIR" => is_test_program.then(|| "/tmp".to_string()),
                "CARGO_PKG_NAME" => Some("sardonyx-kernels".to_string()),
                _ => None,
            };
            let call = Call::new(&arguments, variable, time)?;
            assert_eq!((call.package.as_str(), call.time), ("sardonyx-kernels", time));
            Some((call.kind, call.is_outside))
        };
        for (arguments, crate_name, is_test_program, wanted) in [
            (unit, "kernels", false, Some((CallKind::Library, false))),
            (
                "--crate-name x --crate-type proc-macro --cap-lints allow",
                "x",
                false,
                Some((CallKind::Library, true)),
            ),
            ("--crate-name x --crate-type bin", "x", false, Some((CallKind::Program, false))),
            ("--crate-name x src/lib.rs --test", "x", false, Some((CallKind::UnitTests, false))),
            ("--crate-name it --test", "it", true, Some((CallKind::TestProgram, false))),
            // Without a harness.
            (
                "--crate-name it --crate-type bin --cfg test",
                "it",
                true,
                Some((CallKind::TestProgram, false)),
            ),
            (
                "--crate-name build_script_build build.rs --crate-type bin --cap-lints allow",
                "build_script_build",
                false,
                Some((CallKind::BuildScript, true)),
            ),
            // Another crate: a build script tries the compiler.
            ("--crate-name probe0 --crate-type lib", "x", false, None),
        ] {
            assert_eq!(kind(arguments, Some(crate_name), is_test_program), wanted, "{arguments}");
        }
        assert_eq!(kind("- --crate-name ___ --print=file-names", None, false), None);
        assert_eq!(kind("-vV", None, false), None);
    }

    #[test]
    fn the_log_reads_as_it_was_written() {
        let calls: Vec<Call> = CallKind::ALL
            .iter()
            .map(|kind| Call {
                package: "sardonyx-ops".to_string(),
                kind: *kind,
                is_outside: *kind == CallKind::BuildScript,
                time: Time { wall_s: 0.125, cpu_s: 12.34 },
            })
            .collect();
        let log: String = calls.iter().map(|call| format!("{}\n", call.to_json())).collect();
        assert_eq!(parse_log(&log).unwrap(), calls);
        for damaged in ["{}", "[", &log[1..]] {
            assert!(parse_log(damaged).is_err(), "{damaged}");
        }
    }

    #[test]
    fn ticks_of_children() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 50 60 700 80 20 0 1 0 99";
        assert_eq!(children_ticks(stat), Some(780));
        assert_eq!(children_ticks("7 (sh) S 1 7"), None);
        assert_eq!(children_ticks(""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn processes_are_timed() {
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let ((), time) =
            time_call(|| crate::shell::run(Command::new("sh").args(["-c", spin]))).unwrap();
        assert!(time.cpu_s > 0.0 && time.wall_s > 0.0, "{time:?}");
    }
}
