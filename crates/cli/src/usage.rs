//! Errors of the argument parser: in the colours and in the form that the arguments ask for, as far
//! as they can be read.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, Command, Error};

/// What has to be known before the arguments are parsed, because it also holds when they cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    pub(crate) color: ColorChoice,
}

/// What failures are answered in on stdout, beside the prose on stderr.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Prose,
    Json,
    Sarif,
}

impl Wanted {
    /// Looks at the arguments one by one. The only values that begin with a hyphen are numbers.
    pub(crate) fn of(args: impl IntoIterator<Item = OsString>) -> Wanted {
        let mut wanted = Wanted { form: Form::Prose, color: ColorChoice::Auto };
        let mut args = args.into_iter().take_while(|arg| arg != "--").peekable();
        while let Some(arg) = args.next() {
            let arg = arg.to_string_lossy();
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(OsString::from(value))),
                None => (&*arg, None),
            };
            let value = value.or_else(|| args.peek().cloned());
            match (name, value.as_deref().and_then(OsStr::to_str)) {
                ("--json", _) | ("--format", Some("json")) => wanted.form = Form::Json,
                // `--json` counts where both are given.
                ("--format", Some("sarif")) if wanted.form == Form::Prose => {
                    wanted.form = Form::Sarif;
                }
                ("--color", Some("always")) => wanted.color = ColorChoice::Always,
                ("--color", Some("never")) => wanted.color = ColorChoice::Never,
                _ => {}
            }
        }
        wanted
    }
}

/// Lets every option that takes a value take a negative number. Its own parser then says what is
/// wrong with that; otherwise the number counts as an unknown option.
pub(crate) fn with_negative_numbers(command: Command) -> Command {
    command.mut_subcommands(|command| {
        command.mut_args(|arg| {
            let takes_value = arg.get_action().takes_values() && !arg.is_positional();
            if takes_value { arg.allow_negative_numbers(true) } else { arg }
        })
    })
}

/// What the parser says: a message, advice, and what it says about which argument.
pub(crate) struct Told {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) arguments: Vec<(&'static str, String)>,
}

/// What the parser found wrong, without its layout.
pub(crate) fn told(error: &Error) -> Told {
    let list = |value: &ContextValue| match value {
        ContextValue::String(text) => vec![text.clone()],
        ContextValue::Strings(texts) => texts.clone(),
        ContextValue::Number(number) => vec![number.to_string()],
        ContextValue::StyledStr(text) => vec![text.to_string()],
        ContextValue::StyledStrs(texts) => texts.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    let role = |kind: ContextKind| {
        Some(match kind {
            ContextKind::InvalidArg => "argument",
            ContextKind::InvalidValue => "value",
            ContextKind::InvalidSubcommand => "command",
            ContextKind::PriorArg => "other-argument",
            _ => return None,
        })
    };
    let arguments: Vec<(&'static str, String)> = error
        .context()
        .filter_map(|(kind, value)| Some((role(kind)?, value)))
        .flat_map(|(role, value)| list(value).into_iter().map(move |text| (role, text)))
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
    // Why a value was refused, as the function that reads it says.
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
    let suggested = suggested.map(list).unwrap_or_default();
    let help = match &suggested[..] {
        [] => {
            let valid = [ContextKind::ValidValue, ContextKind::ValidSubcommand];
            let valid = valid.into_iter().find_map(|kind| error.get(kind));
            let valid = valid.map(list).unwrap_or_default();
            (!valid.is_empty()).then(|| format!("valid values: {}", valid.join(", ")))
        }
        near => Some(format!("did you mean '{}'?", near.join("' or '"))),
    };
    Told { message, help, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_looked_at_before_they_are_parsed() {
        let rows: [(&[&str], Form, ColorChoice); 10] = [
            (&[], Form::Prose, ColorChoice::Auto),
            (&["info", "--json"], Form::Json, ColorChoice::Auto),
            (&["check", "--format", "json"], Form::Json, ColorChoice::Auto),
            (&["check", "--format=json"], Form::Json, ColorChoice::Auto),
            (&["check", "--format", "sarif"], Form::Sarif, ColorChoice::Auto),
            (&["check", "--format=sarif"], Form::Sarif, ColorChoice::Auto),
            (&["check", "--format=sarif", "--json"], Form::Json, ColorChoice::Auto),
            (&["--color", "never", "x"], Form::Prose, ColorChoice::Never),
            (&["--color=always", "x"], Form::Prose, ColorChoice::Always),
            (&["info", "--", "--json"], Form::Prose, ColorChoice::Auto),
        ];
        for (args, form, color) in rows {
            let found = Wanted::of(args.iter().map(OsString::from));
            assert_eq!(found, Wanted { form, color }, "{args:?}");
        }
    }
}
