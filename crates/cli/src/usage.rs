//! Errors of the argument parser, with the colors and the format that the arguments select, as far
//! as these can be read.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, Command, Error};

/// Options that are read before the arguments are parsed, because they also apply to errors of the
/// parser.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EarlyOptions {
    pub(crate) format: FailureFormat,
    pub(crate) color: ColorChoice,
}

/// Format in which failures are written to stdout, in addition to the prose on stderr. Prose is not
/// written to stdout.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureFormat {
    #[default]
    Prose,
    Json,
    Sarif,
}

impl EarlyOptions {
    /// Scans the arguments for `--json`, `--format` and `--color`. An argument that begins with two
    /// hyphens is always an option, because the only values that begin with a hyphen are numbers.
    pub(crate) fn from_args(args: impl IntoIterator<Item = OsString>) -> EarlyOptions {
        let mut wanted = EarlyOptions { format: FailureFormat::Prose, color: ColorChoice::Auto };
        let mut args = args.into_iter().take_while(|arg| arg != "--").peekable();
        while let Some(arg) = args.next() {
            let arg = arg.to_string_lossy();
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (&*arg, None),
            };
            let value = value.or_else(|| args.peek().cloned());
            match (name, value.as_deref().and_then(OsStr::to_str)) {
                ("--json", _) | ("--format", Some("json")) => wanted.format = FailureFormat::Json,
                // `--json` takes precedence if both are given.
                ("--format", Some("sarif")) if wanted.format == FailureFormat::Prose => {
                    wanted.format = FailureFormat::Sarif;
                }
                ("--color", Some("always")) => wanted.color = ColorChoice::Always,
                ("--color", Some("never")) => wanted.color = ColorChoice::Never,
                _ => {}
            }
        }
        wanted
    }
}

/// Allows negative numbers as values of all options, so that the parser of the value refuses them
/// with its own message. Otherwise clap reports an unknown option.
pub(crate) fn allow_negative_numbers(command: Command) -> Command {
    command.mut_subcommands(|command| {
        command.mut_args(|arg| {
            let takes_value = arg.get_action().takes_values() && !arg.is_positional();
            if takes_value { arg.allow_negative_numbers(true) } else { arg }
        })
    })
}

/// Error of the argument parser as message, help and arguments, without the layout for terminals.
pub(crate) struct UsageError {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Roles and texts of the arguments that caused the error.
    pub(crate) arguments: Vec<(&'static str, String)>,
}

/// Returns the texts in a context value of a parser error; empty for values without text.
fn list_context_texts(value: &ContextValue) -> Vec<String> {
    match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        ContextValue::Number(number) => vec![number.to_string()],
        ContextValue::StyledStr(text) => vec![text.to_string()],
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    }
}

/// Returns the role of an argument in an error; `None` for context that is not an argument.
fn find_argument_role(kind: ContextKind) -> Option<&'static str> {
    Some(match kind {
        ContextKind::InvalidArg => "argument",
        ContextKind::InvalidValue => "value",
        ContextKind::InvalidSubcommand => "command",
        ContextKind::PriorArg => "other-argument",
        _ => return None,
    })
}

/// Extracts message, advice and arguments from an error of the argument parser.
pub(crate) fn describe_error(error: &Error) -> UsageError {
    let arguments: Vec<(&'static str, String)> = error
        .context()
        .filter_map(|(kind, value)| Some((find_argument_role(kind)?, value)))
        .flat_map(|(role, value)| {
            list_context_texts(value).into_iter().map(move |text| (role, text))
        })
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let mut message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            ErrorKind::MissingSubcommand.as_str()
        }
        kind => kind.as_str(),
    }
    .unwrap_or("the arguments are wrong")
    .to_string();
    if !arguments.is_empty() {
        let named: Vec<&str> = arguments.iter().map(|(_, text)| text.as_str()).collect();
        message += &format!(": {}", named.join(", "));
    }
    // The source of the error is the message of the value's own parser.
    if let Some(why) = std::error::Error::source(error) {
        message += &format!(": {why}");
    }
    let suggested = [
        ContextKind::SuggestedCommand,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ];
    let suggested = suggested.into_iter().find_map(|kind| error.get(kind));
    let suggested = suggested.map(list_context_texts).unwrap_or_default();
    let help = match &suggested[..] {
        [] => {
            let valid = [ContextKind::ValidValue, ContextKind::ValidSubcommand];
            let valid = valid.into_iter().find_map(|kind| error.get(kind));
            let valid = valid.map(list_context_texts).unwrap_or_default();
            (!valid.is_empty()).then(|| format!("valid values: {}", valid.join(", ")))
        }
        near => Some(format!("did you mean '{}'?", near.join("' or '"))),
    };
    UsageError { message, help, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_options_are_read_from_raw_arguments() {
        let rows: [(&[&str], FailureFormat, ColorChoice); 10] = [
            (&[], FailureFormat::Prose, ColorChoice::Auto),
            (&["info", "--json"], FailureFormat::Json, ColorChoice::Auto),
            (&["check", "--format", "json"], FailureFormat::Json, ColorChoice::Auto),
            (&["check", "--format=json"], FailureFormat::Json, ColorChoice::Auto),
            (&["check", "--format", "sarif"], FailureFormat::Sarif, ColorChoice::Auto),
            (&["check", "--format=sarif"], FailureFormat::Sarif, ColorChoice::Auto),
            (&["check", "--format=sarif", "--json"], FailureFormat::Json, ColorChoice::Auto),
            (&["--color", "never", "x"], FailureFormat::Prose, ColorChoice::Never),
            (&["--color=always", "x"], FailureFormat::Prose, ColorChoice::Always),
            (&["info", "--", "--json"], FailureFormat::Prose, ColorChoice::Auto),
        ];
        for (args, format, color) in rows {
            let found = EarlyOptions::from_args(args.iter().map(OsString::from));
            assert_eq!(found, EarlyOptions { format, color }, "{args:?}");
        }
    }
}
