//! `sardonyx set`: changes the header of a model.

use sardonyx::io::Weights;
use sardonyx::tool::edits::{Edit, JobKind};
use sardonyx::tool::schema::Registry;
use sardonyx::tool::{
    ModelExt, format_version, normalize_domain, parse_version, shown_domain, suggest,
};
use sardonyx::{ErrorKind, Model, SaveOptions};
use serde_json::json;

use crate::failure::Failure;
use crate::model_arg::ModelArg;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{files, invalid, saving};

/// Change the header of a model: versions, producer, documentation, metadata
///
/// Only the header changes, except that --ir-version 4 or more removes inputs of subgraphs that are
/// initializers, which only older versions allow. --opset changes the declared version without
/// converting nodes; `sardonyx convert` converts them. --ir-version is rejected if the model uses
/// features that the version lacks. Rules that a change can break are checked: with --opset all
/// rules, types and shapes, with --ir-version those that depend on it, with --metadata that keys
/// differ. If the model breaks one that it did not break before, nothing is written and the exit
/// code is 1. Versions are plain numbers, or three numbers with dots.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// IR version
    #[arg(long, alias = "ir", value_name = "N")]
    ir_version: Option<i64>,
    /// Operator set version; DOMAIN defaults to ai.onnx. May be repeated
    #[arg(long = "opset", value_name = "[DOMAIN=]VERSION", value_parser = parse_opset)]
    opsets: Vec<(String, i64)>,
    /// Name of the tool that produced the model
    #[arg(long, value_name = "NAME")]
    producer: Option<String>,
    /// Version of that tool
    #[arg(long, value_name = "VERSION")]
    producer_version: Option<String>,
    /// Namespace of the model, such as org.example
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Version of the model itself
    #[arg(long, value_name = "N|1.2.3", value_parser = parse_version_number)]
    model_version: Option<i64>,
    /// Documentation; @FILE reads it from a file
    #[arg(long, value_name = "TEXT|@FILE")]
    doc: Option<String>,
    /// Set a metadata entry. May be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_entry)]
    metadata: Vec<(String, String)>,
    /// Remove a metadata entry, before others are set. May be repeated
    #[arg(long, value_name = "KEY")]
    remove_metadata: Vec<String>,
}

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.set/1";

/// Change of a field of the model's header. `None` stands for a missing value.
struct Change {
    /// Name of the changed field.
    what: String,
    before: Option<String>,
    after: Option<String>,
}

/// Runs `sardonyx set`. Broken rules that the input model did not break are findings.
pub(crate) fn set(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    if args.is_empty() {
        return Err(Failure::new("no option changes the header of the model")
            .help("give options such as --model-version 1.2.3 or --metadata author=me"));
    }
    let mut model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let edits = args.list_edits();
    let before = edits.iter().any(|edit| !edit.rules().is_empty()).then(|| model.clone());
    let changes = args.apply_edits(&mut model, terminal)?;
    if let Some(before) = before
        && let Err(result) = model.check_edits(&before, JobKind::Set, &edits)
    {
        let command = args.invalid.make_command(&args.model, &args.saving, SCHEMA);
        return command.finish(*result, Some(target), terminal);
    }
    let options = SaveOptions::new();
    let saved = args.saving.save(&args.model, &model, options, Weights::Keep, target, terminal)?;
    if args.saving.json {
        let changes: Vec<_> = changes
            .iter()
            .map(|change| json!({"what": change.what, "before": change.before, "after": change.after}))
            .collect();
        let answer = json!({
            "schema": SCHEMA,
            "model": args.model.name(),
            "changes": changes,
            "checked": invalid::describe_checked_rules(&edits),
            "saved": saved.json(),
        });
        terminal.json(&answer, true)?;
        return Ok(Verdict::Fine);
    }
    for change in &changes {
        let (before, after) = (format_field(&change.before), format_field(&change.after));
        terminal.remark(&format!("{}: {before} → {after}", change.what));
    }
    saved.print(terminal);
    Ok(Verdict::Fine)
}

/// Formats the value of a header field for a note; `nothing` if the value is missing.
fn format_field(value: &Option<String>) -> String {
    value.as_deref().map_or("nothing".to_string(), crate::human::cut_note)
}

impl Args {
    /// Whether no option changes the header.
    fn is_empty(&self) -> bool {
        let texts = [&self.producer, &self.producer_version, &self.domain, &self.doc];
        let numbers = [self.ir_version, self.model_version];
        texts.iter().all(|text| text.is_none())
            && numbers.iter().all(Option::is_none)
            && self.opsets.is_empty()
            && self.metadata.is_empty()
            && self.remove_metadata.is_empty()
    }

    /// Returns the kinds of edits that the options make, whose rules are checked afterwards.
    fn list_edits(&self) -> Vec<Edit> {
        let edits = [
            (Edit::OperatorSets, !self.opsets.is_empty()),
            (Edit::IrVersion, self.ir_version.is_some()),
            (Edit::Metadata, !self.metadata.is_empty() || !self.remove_metadata.is_empty()),
        ];
        edits.into_iter().filter_map(|(edit, is_made)| is_made.then_some(edit)).collect()
    }

    /// Changes the header of `model` as the options request, and returns the changes.
    fn apply_edits(&self, model: &mut Model, terminal: &Terminal) -> Result<Vec<Change>, Failure> {
        let mut changes = Changes(Vec::new());
        for (domain, version) in &self.opsets {
            let (before, imports) = (find_opset(model, domain), model.opsets().len());
            model.set_opset(domain, *version);
            note_merged(imports, model, terminal);
            let known = Registry::standard().versions(domain);
            if let Some((_, newest)) = known.filter(|(_, newest)| *version > i64::from(*newest)) {
                let name = shown_domain(domain);
                terminal.note(&format!(
                    "version {version} of {name} is unknown; the newest known version is {newest}"
                ));
            }
            let what = format!("opset {}", shown_domain(domain));
            changes.add_version(&what, before, *version);
        }
        // The IR version comes after the operator sets, which newer IR versions require.
        if let Some(version) = self.ir_version {
            let before = model.ir_version();
            model
                .set_ir_version(version)
                .map_err(|error| Failure::from(error).at(self.model.name()))?;
            changes.add_version("ir_version", before, version);
        }
        if let Some(name) = &self.producer {
            changes.add_text("producer_name", &model.producer_name(), name);
            model.set_producer_name(name);
        }
        if let Some(version) = &self.producer_version {
            changes.add_text("producer_version", &model.producer_version(), version);
            model.set_producer_version(version);
        }
        if let Some(domain) = &self.domain {
            changes.add_text("domain", &model.domain(), domain);
            model.set_domain(domain);
        }
        if let Some(version) = self.model_version {
            changes.add_version("model_version", model.model_version(), version);
            model.set_model_version(version);
        }
        if let Some(doc) = &self.doc {
            let doc = read_text(doc)?;
            changes.add_text("doc", &model.doc(), &doc);
            model.set_doc(&doc);
        }
        for key in &self.remove_metadata {
            let before = model.metadata_value(key).map(|value| value.into_owned());
            if model.remove_metadata(key) {
                changes.add_change(&format!("metadata {key}"), before, None)
            } else {
                terminal.note(&describe_missing_entry(model, key))
            }
        }
        for (key, value) in &self.metadata {
            let before = model.metadata_value(key).map(|value| value.into_owned());
            model.set_metadata(key, value);
            changes.add_change(&format!("metadata {key}"), before, Some(value.clone()));
        }
        Ok(changes.0)
    }
}

/// Changes of the model's header in the order in which they are made.
struct Changes(Vec<Change>);

impl Changes {
    /// Records the change of the field `what`, unless its value is unchanged.
    fn add_change(&mut self, what: &str, before: Option<String>, after: Option<String>) {
        if before != after {
            self.0.push(Change { what: what.to_string(), before, after });
        }
    }

    /// Records the change of a text field, whose empty value counts as missing.
    fn add_text(&mut self, what: &str, before: &str, after: &str) {
        let before = (!before.is_empty()).then(|| before.to_string());
        self.add_change(what, before, Some(after.to_string()));
    }

    /// Records the change of a field that holds a version.
    fn add_version(&mut self, what: &str, before: Option<i64>, after: i64) {
        let after = format_version(after);
        self.add_change(what, before.map(format_version), Some(after));
    }
}

/// Returns the version that the model declares for an operator set; `None` if it does not import
/// the set. If it imports the set several times, the last import counts.
fn find_opset(model: &Model, domain: &str) -> Option<i64> {
    let wanted = normalize_domain(domain);
    let sets = model.opsets();
    let found = sets.iter().rev().find(|set| set.domain == wanted);
    found.map(|set| set.version)
}

/// Notes on the terminal how many duplicate imports of operator sets were removed from `model`,
/// which had `imports` before.
pub(crate) fn note_merged(imports: usize, model: &Model, terminal: &Terminal) {
    let merged = imports.saturating_sub(model.opsets().len());
    if merged > 0 {
        let what = crate::human::format_count(merged, "duplicate import");
        terminal.note(&format!("removed {what} of operator sets"));
    }
}

/// Formats the note that the metadata has no entry `key`, with a similar key as advice.
fn describe_missing_entry(model: &Model, key: &str) -> String {
    let entries = model.metadata();
    let keys = entries.iter().map(|(key, _)| key.as_ref());
    match suggest::closest(key, keys) {
        Some(near) => format!("the metadata has no entry '{key}'; did you mean '{near}'?"),
        None => format!("the metadata has no entry '{key}'"),
    }
}

/// Returns `text`, or for `@FILE` the contents of the file. Fails if the file is not in UTF-8.
fn read_text(text: &str) -> Result<String, Failure> {
    let Some(path) = text.strip_prefix('@') else {
        return Ok(text.to_string());
    };
    let bytes = files::read(path.as_ref())?;
    match std::str::from_utf8(bytes.as_slice()) {
        Ok(text) => Ok(text.to_string()),
        Err(error) => Err(Failure::new(format!("the text is not in UTF-8: {error}"))
            .code(ErrorKind::Format)
            .at(path)),
    }
}

/// Parses a version: a number of at least 0, or three numbers with dots.
fn parse_version_number(text: &str) -> Result<i64, String> {
    parse_version(text)
        .filter(|version| *version >= 0)
        .ok_or_else(|| "expected a number such as 7, or a version such as 1.2.3".to_string())
}

/// Parses `VERSION` or `DOMAIN=VERSION` of an operator set, a version of at least 1.
pub(crate) fn parse_opset(text: &str) -> Result<(String, i64), String> {
    let (domain, version) = text.rsplit_once('=').unwrap_or(("", text));
    // Versions of the default operator set are plain numbers: three numbers with dots would be a
    // version of the onnx package.
    let version = match domain {
        "" => version.parse::<i64>().map_err(|_| {
            "expected a number such as 21, or DOMAIN=VERSION such as ai.onnx.ml=5; `sardonyx \
             convert --release` takes versions of the onnx package"
        })?,
        _ => parse_version_number(version)?,
    };
    match version {
        1.. => Ok((domain.to_string(), version)),
        _ => Err("versions of operator sets start at 1".to_string()),
    }
}

/// Parses the metadata entry `KEY=VALUE`. Fails if KEY is empty.
fn parse_entry(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the metadata key is empty".to_string()),
        Some((key, value)) => Ok((key.to_string(), value.to_string())),
        None => Err("expected KEY=VALUE".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operator_sets_and_entries_are_read() {
        let set = |domain: &str, version| Some((domain.to_string(), version));
        let rows = [
            ("21", set("", 21)),
            ("ai.onnx.ml=3", set("ai.onnx.ml", 3)),
            ("com.example=1.2.3", set("com.example", (1 << 48) + (2 << 32) + 3)),
            ("=7", set("", 7)),
            ("1.16.0", None),
            ("0", None),
            ("-1", None),
            ("x", None),
            ("x=", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_opset(text).ok(), expected, "{text}");
        }
        let entry = |key: &str, value: &str| Some((key.to_string(), value.to_string()));
        assert_eq!(parse_entry("a=b=c").ok(), entry("a", "b=c"));
        assert_eq!(parse_entry("a=").ok(), entry("a", ""));
        assert_eq!(parse_entry("=a").ok(), None);
        assert_eq!(parse_entry("a").ok(), None);
    }
}
