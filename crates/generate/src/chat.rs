//! Chat templates: a conversation to the text that a model was trained on.
//!
//! Templates are programs in files of strangers. Each rendering has a budget, which bounds its
//! instructions and the bytes that it makes, so that a hostile one ends with an error.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{AutoEscape, Environment, ErrorKind as TemplateErrorKind, UndefinedBehavior};
use serde_json::Value as Json;

use crate::config::Config;
use crate::error::Error;
use crate::files::Files;

/// Message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Author: `system`, `user` or `assistant`, and others that the template knows.
    pub role: String,
    /// Text of the message.
    pub content: String,
}

impl Message {
    /// Creates a message.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }
}

/// Chat template of a directory.
pub struct ChatTemplate {
    environment: Environment<'static>,
    special_tokens: BTreeMap<String, String>,
}

/// Name of the template in its environment.
const NAME: &str = "chat_template";
/// Budget of a rendering without messages. A unit pays for an instruction or 64 bytes, so this is
/// at most 64 MiB. Templates of hubs take up to 10,000.
const BUDGET: u64 = 1 << 20;
/// Units of the budget for each byte of the conversation, which templates copy several times.
const BUDGET_PER_BYTE: u64 = 16;

impl ChatTemplate {
    /// Reads the chat template of a directory: `chat_template.jinja`, `chat_template.json` or the
    /// one in `tokenizer_config.json`. Returns `None` if there is none.
    pub(crate) fn read(files: &Files, config: &Config) -> Result<Option<ChatTemplate>, Error> {
        let file = "chat_template.jinja";
        let source = match files.read_text(file)? {
            Some(source) => Some(source),
            None => match files.read_json("chat_template.json")? {
                Some(object) => object.text("chat_template")?.map(str::to_string),
                None => config.templates.first().map(|(_, source)| source.clone()),
            },
        };
        let Some(source) = source else {
            return Ok(None);
        };
        let template = ChatTemplate::new(&source, config.special_tokens.clone());
        template.map(Some).map_err(|error| error.at(&files.root().join(file)))
    }

    /// Parses a template. `special_tokens` are the texts of special tokens by role, such as
    /// `bos_token`, which the template may read.
    ///
    /// # Errors
    ///
    /// If the template is not Jinja.
    pub fn new(source: &str, special_tokens: BTreeMap<String, String>) -> Result<Self, Error> {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true);
        environment.set_syntax(syntax.build().map_err(|error| convert_error(&error))?);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_formatter(|out, _, value| {
            // Python's names of constants.
            if value.is_none() {
                out.write_str("None")?;
            } else if let Ok(flag) = bool::try_from(value.clone()) {
                out.write_str(if flag { "True" } else { "False" })?;
            } else {
                write!(out, "{value}")?;
            }
            Ok(())
        });
        environment.add_function("raise_exception", |message: String| -> Result<Value, _> {
            Err(minijinja::Error::new(TemplateErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| format_now(&format));
        environment.add_filter("tojson", to_json);
        let source = replace_generation_tags(source);
        environment.add_template_owned(NAME, source).map_err(|error| convert_error(&error))?;
        Ok(ChatTemplate { environment, special_tokens })
    }

    /// Renders a conversation. With `add_generation_prompt` the text ends where the assistant's
    /// next message begins.
    ///
    /// # Errors
    ///
    /// If the template refuses the conversation, or exceeds its budget of work and memory.
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
    ) -> Result<String, Error> {
        let messages = messages
            .iter()
            .map(|message| serde_json::json!({"role": message.role, "content": message.content}));
        self.render_json(&messages.collect(), add_generation_prompt, &serde_json::Map::new())
    }

    /// Renders a conversation with values of any form, such as tool calls, and further variables
    /// of the template, such as `tools` or `enable_thinking`.
    ///
    /// # Errors
    ///
    /// Those of [`ChatTemplate::render`].
    pub fn render_json(
        &self,
        messages: &Json,
        add_generation_prompt: bool,
        variables: &serde_json::Map<String, Json>,
    ) -> Result<String, Error> {
        let mut context: BTreeMap<String, Value> = BTreeMap::new();
        for (name, text) in &self.special_tokens {
            context.insert(name.clone(), Value::from(text.as_str()));
        }
        context.insert("tools".into(), Value::from(()));
        context.insert("documents".into(), Value::from(()));
        for (name, value) in variables {
            context.insert(name.clone(), Value::from(Serde(value)));
        }
        context.insert("messages".into(), Value::from(Serde(messages)));
        context.insert("add_generation_prompt".into(), Value::from(add_generation_prompt));
        let size = messages.to_string().len() + Json::Object(variables.clone()).to_string().len();
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(BUDGET + BUDGET_PER_BYTE * size as u64));
        let template = environment.get_template(NAME).map_err(|error| convert_error(&error))?;
        template.render(Value::from(context)).map_err(|error| convert_error(&error))
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}

fn convert_error(error: &minijinja::Error) -> Error {
    let line = error.line().map_or(String::new(), |line| format!("line {line}: "));
    let message = match error.kind() {
        TemplateErrorKind::OutOfFuel => "exceeds its budget of work and memory".to_string(),
        _ => error.detail().map_or_else(|| error.kind().to_string(), str::to_string),
    };
    Error::invalid(format!("chat template: {line}{message}"))
}

/// Replaces the tags around answers (`{% generation %}`), which mark tokens for training, by a
/// condition that always holds.
fn replace_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else {
            break;
        };
        let tag = &rest[start..start + length + 2];
        out.push_str(&rest[..start]);
        match tag.trim_matches(|c: char| "{%}-+ \t\r\n".contains(c)) {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 2..];
    }
    out + rest
}

/// Converts a value to JSON, with the spaces of Python's `json.dumps`: the filter `tojson`.
fn to_json(value: &Value, options: Kwargs) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Others, such as `ensure_ascii`, are as templates set them.
    let json = serde_json::to_value(value).map_err(|error| {
        minijinja::Error::new(TemplateErrorKind::BadSerialization, error.to_string())
    })?;
    let mut out = String::new();
    write_json(&json, indent.map(|indent| indent.min(16)), 0, &mut out);
    Ok(Value::from(out))
}

/// Writes JSON as Python does: a space after `:` and, without `indent`, after `,`.
fn write_json(json: &Json, indent: Option<usize>, depth: usize, out: &mut String) {
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    };
    let separator = if indent.is_some() { "," } else { ", " };
    match json {
        Json::Array(items) if !items.is_empty() => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { separator } else { "" });
                line(depth + 1, out);
                write_json(item, indent, depth + 1, out);
            }
            line(depth, out);
            out.push(']');
        }
        Json::Object(fields) if !fields.is_empty() => {
            out.push('{');
            for (index, (key, value)) in fields.iter().enumerate() {
                out.push_str(if index > 0 { separator } else { "" });
                line(depth + 1, out);
                let _ = write!(out, "{}: ", Json::from(key.as_str()));
                write_json(value, indent, depth + 1, out);
            }
            line(depth, out);
            out.push('}');
        }
        // Empty containers, numbers, strings and constants are written alike.
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] =
    ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats the current time, UTC, by a format of `strftime`. Codes that are not known stay.
fn format_now(format: &str) -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_time(format, elapsed.as_secs())
}

/// Formats a number of seconds since 1970, UTC, by a format of `strftime`.
fn format_time(format: &str, seconds: u64) -> String {
    let days = seconds / 86_400;
    let date = Date::from_days(days);
    let month = MONTHS[date.month - 1];
    let day = DAYS[(days % 7) as usize];
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let mut out = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        // Writing to a string does not fail.
        let _ = match characters.next() {
            Some('Y') => write!(out, "{}", date.year),
            Some('y') => write!(out, "{:02}", date.year % 100),
            Some('m') => write!(out, "{:02}", date.month),
            Some('d') => write!(out, "{:02}", date.day),
            Some('e') => write!(out, "{:2}", date.day),
            Some('B') => write!(out, "{month}"),
            Some('b') => write!(out, "{}", &month[..3]),
            Some('A') => write!(out, "{day}"),
            Some('a') => write!(out, "{}", &day[..3]),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('p') => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('%') => write!(out, "%"),
            Some(other) => write!(out, "%{other}"),
            None => write!(out, "%"),
        };
    }
    out
}

/// Day of the Gregorian calendar.
struct Date {
    year: u64,
    /// 1 to 12.
    month: usize,
    day: u64,
}

impl Date {
    /// Converts a number of days since 1970.
    fn from_days(mut days: u64) -> Date {
        let mut year = 1970;
        let is_leap = |year: u64| {
            year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
        };
        loop {
            let length = if is_leap(year) { 366 } else { 365 };
            if days < length {
                break;
            }
            days -= length;
            year += 1;
        }
        let february = if is_leap(year) { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while days >= lengths[month] {
            days -= lengths[month];
            month += 1;
        }
        Date { year, month: month + 1, day: days + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChatTemplate, Message, format_time, replace_generation_tags};
    use std::collections::BTreeMap;

    fn render(source: &str) -> Result<String, crate::Error> {
        let messages = [Message::new("user", "Hi \"you\""), Message::new("assistant", "ö")];
        let tokens = BTreeMap::from([("bos_token".to_string(), "<s>".to_string())]);
        ChatTemplate::new(source, tokens)?.render(&messages, true)
    }

    #[test]
    fn templates_render_as_in_python() {
        let rows = [
            (
                "{{ bos_token }}{% for m in messages %}\n[{{ m.role }}]\n{% endfor %}\n",
                "<s>[user]\n[assistant]\n",
            ),
            ("{{ messages[0] | tojson }}", r#"{"role": "user", "content": "Hi \"you\""}"#),
            ("{{ add_generation_prompt }} {{ none }}", "True None"),
            ("{{ messages[1]['content'].upper() }}", "Ö"),
            (
                "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% endfor %}",
                "ö",
            ),
            ("{%- generation -%} a {%- endgeneration -%}", "a"),
            ("{{ [1, 2] | tojson(indent=2) }}", "[\n  1,\n  2\n]"),
            ("{{ messages[9] is defined }}", "False"),
        ];
        for (source, expected) in rows {
            assert_eq!(render(source).unwrap(), expected, "{source}");
        }
    }

    #[test]
    fn hostile_templates_end_with_an_error() {
        let rows = [
            (
                "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
                "budget",
            ),
            (
                "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                "budget",
            ),
            ("{{ 'a' * 99999999999 }}", "chat template"),
            ("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "chat template"),
            (
                "{{ 'aaaaaaaaaa' | replace('a', 'b' * 99999999) | replace('b', 'c' * 99999999) }}",
                "chat template",
            ),
            ("{{ raise_exception('roles must alternate') }}", "line 1: roles must alternate"),
            ("{% if %}", "line 1"),
            ("{% include 'other' %}", "chat template"),
        ];
        for (source, expected) in rows {
            let error = render(source).unwrap_err().to_string();
            assert!(error.contains(expected), "{source}: {error}");
        }
    }

    #[test]
    fn times_are_formatted_as_by_strftime() {
        let rows = [
            ("%d %b %Y", 0, "01 Jan 1970"),
            ("%A, %B %e %H:%M:%S", 951_782_400, "Tuesday, February 29 00:00:00"),
            ("%Y-%m-%d %I%p %%%Q", 1_798_761_599, "2026-12-31 11PM %%Q"),
        ];
        for (format, seconds, expected) in rows {
            assert_eq!(format_time(format, seconds), expected);
        }
    }

    #[test]
    fn other_tags_stay() {
        let source = "a {% if x %} b {%- generation %}c{% endgeneration -%} {% open";
        let expected = "a {% if x %} b {%- if true %}c{% endif -%} {% open";
        assert_eq!(replace_generation_tags(source), expected);
    }
}
