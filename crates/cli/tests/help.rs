//! Help texts fit a terminal, and name units and defaults.

use std::process::Command;

/// Maximum width of help texts, in columns.
const COLUMNS: usize = 100;

/// Names of values that are numbers, sizes or times.
const QUANTITIES: &[&str] = &[
    "<N>",
    "<I>",
    "<K>",
    "<SIZE>",
    "<SECONDS>",
    "<N|SECONDS>",
    "<NUMBER>",
    "<PART>",
    "<RATE>",
    "<NODES>",
];

/// Options that take a quantity and have no default: without them, their work is not done.
const ASKING: &[&str] = &["--shards", "--verify", "--ir-version", "--devices"];

/// Returns the output of the command on a terminal that is wider than help texts may be.
fn help(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
    let output = command.args(arguments).env("COLUMNS", "200").output().unwrap();
    assert!(output.status.success(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn commands() -> Vec<String> {
    let text = help(&["--help"]);
    let lines = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let lines = lines.filter_map(|line| line.strip_prefix("  "));
    let names = lines.filter(|line| !line.starts_with(' '));
    let names = names.map(|line| line.split(' ').next().unwrap().to_string());
    names.filter(|name| name != "help").collect()
}

/// Returns the options of a help text, each with its whole text on one line.
fn options(text: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for line in text.lines().skip_while(|line| *line != "Options:").skip(1) {
        let indent = line.len() - line.trim_start().len();
        if indent <= 6 && line.trim_start().starts_with('-') {
            options.push(line.trim().to_string());
        } else if let Some(option) = options.last_mut() {
            *option = format!("{option} {}", line.trim());
        }
    }
    options
}

#[test]
fn help_fits_the_columns() {
    let mut wide = Vec::new();
    let commands = commands();
    assert!(commands.len() >= 30, "{commands:?}");
    for command in &commands {
        for form in ["--help", "-h"] {
            let text = help(&[command, form]);
            let lines = text.lines().filter(|line| line.chars().count() > COLUMNS);
            wide.extend(lines.map(|line| format!("{command} {form}: {line}")));
        }
    }
    for form in ["--help", "-h"] {
        let text = help(&[form]);
        wide.extend(text.lines().filter(|line| line.len() > COLUMNS).map(str::to_string));
    }
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn quantities_have_defaults_and_units() {
    let mut missing = Vec::new();
    for command in commands() {
        for option in options(&help(&[&command, "--help"])) {
            let spelling = option.split("  ").next().unwrap_or(&option).to_string();
            if !QUANTITIES.iter().any(|value| spelling.contains(value))
                || ASKING.iter().any(|asking| spelling.contains(asking))
            {
                continue;
            }
            if !option.contains("default") {
                missing.push(format!("{command}: no default: {option}"));
            }
            if spelling.contains("SECONDS") && !option.to_lowercase().contains("second") {
                missing.push(format!("{command}: no unit: {option}"));
            }
            let has_size = option.contains("bytes")
                || ["K", "M", "G"].iter().any(|unit| {
                    option
                        .match_indices(unit)
                        .any(|(at, _)| option[..at].ends_with(|c: char| c.is_ascii_digit()))
                });
            if spelling.contains("SIZE>") && !spelling.contains('=') && !has_size {
                missing.push(format!("{command}: no unit: {option}"));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
