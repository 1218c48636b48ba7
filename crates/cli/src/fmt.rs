//! `sardonyx fmt`: formats models in text form.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sardonyx::Model;

use crate::failure::{self, Failure};
use crate::files;
use crate::model_arg::is_stdin;
use crate::terminal::Terminal;
use crate::verdict::Verdict;

/// Format models in text form
///
/// Rewrites changed files in place and keeps comments. With - reads stdin and writes stdout.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Text files (.onnxtxt), or - for stdin
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<PathBuf>,
    /// Change nothing; list the files that would change, and exit with 1 if there are any
    #[arg(long)]
    check: bool,
}

/// Formats all model texts of the command line. If a file fails, the other files are still
/// formatted.
pub(crate) fn fmt(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let mut verdict = Verdict::Fine;
    let mut failures = Vec::new();
    for path in &args.texts {
        match format_file(args, path, terminal) {
            Ok(true) => verdict = Verdict::Findings,
            Ok(false) => {}
            Err(failure) => failures.push(failure),
        }
    }
    let last = failures.pop();
    for failure in &failures {
        terminal.print_failure(failure);
    }
    last.map_or(Ok(verdict), Err)
}

/// Formats the model text at `path`. Returns whether `--check` found the text not formatted.
fn format_file(args: &Args, path: &Path, terminal: &Terminal) -> Result<bool, Failure> {
    let from_stdin = is_stdin(path);
    let before = if from_stdin {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        bytes
    } else {
        files::read(path)?.as_slice().to_vec()
    };
    let name = if from_stdin { "standard input".to_string() } else { path.display().to_string() };
    let after = Model::format_text(before.clone())
        .map_err(|error| failure::syntax_failure(&error, &name))?;
    let changes = after != before;
    if args.check {
        if changes {
            terminal.print(&format!("{name}\n"))?;
        }
        return Ok(changes);
    }
    if from_stdin {
        io::stdout().lock().write_all(&after)?;
    } else if changes {
        let permissions = std::fs::metadata(path)?.permissions();
        files::write(path, |file| {
            file.write_all(&after)?;
            Ok(file.set_permissions(permissions)?)
        })?;
    }
    Ok(false)
}
