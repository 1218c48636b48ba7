//! Running other programs: their output goes through, and errors name the command.

use crate::Result;
use std::process::Command;

/// Runs the command to its end with our own standard streams.
pub(crate) fn run(command: &mut Command) -> Result {
    let status = command.status().map_err(|error| could_not_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", line(command)).into()) }
}

/// Runs the command and returns its output; its standard error goes through.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    command.stderr(std::process::Stdio::inherit());
    let output = command.output().map_err(|error| could_not_start(command, &error))?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?)
    } else {
        Err(format!("{}: {}", line(command), output.status).into())
    }
}

/// Runs the command and returns its output or, where it fails, its standard error
/// or else its status.
pub(crate) fn attempt(command: &mut Command) -> Result<std::result::Result<String, String>> {
    let output = command.output().map_err(|error| could_not_start(command, &error))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprint!("{said}");
        Ok(Ok(String::from_utf8(output.stdout)?))
    } else if said.trim().is_empty() {
        Ok(Err(output.status.to_string()))
    } else {
        Ok(Err(said.into_owned()))
    }
}

/// Formats the command for a shell.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quote_word(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quote_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_string() } else { format!("'{word}'") }
}

fn could_not_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start {}: {error}", command.get_program().to_string_lossy())
}
