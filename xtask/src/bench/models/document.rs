//! The table in docs/performance.md.

use super::groups::Summary;
use super::row::{Outcome, Row};
use super::sides::Sides;
use crate::Result;
use crate::workspace::{readable_path, root};
use std::fmt::Write;
use std::fs;

const BEGIN: &str = "<!-- written by `cargo xtask bench models --write` from here -->\n";
const END: &str = "<!-- to here -->\n";

/// Writes the table between the two marks, and nothing else.
pub(super) fn write(rows: &[Row], summaries: &[Summary], sides: &Sides) -> Result {
    let path = root().join("docs/performance.md");
    let document = fs::read_to_string(&path)?;
    let table = format!(
        "{}\n{}{}\n{}",
        measured_on(rows, sides)?,
        case_table(rows)?,
        refusals(rows),
        summary_table(summaries)?
    );
    let document = with_between_marks(&document, &table)
        .ok_or_else(|| format!("{} has no marks to write between", readable_path(&path)))?;
    fs::write(&path, document)?;
    eprintln!("wrote the table of {}", readable_path(&path));
    Ok(())
}

/// Replaces the text between the marks of a document.
fn with_between_marks(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n\n{END}{after}", text.trim()))
}

/// Describes the machine, the versions and the number of rounds.
fn measured_on(rows: &[Row], sides: &Sides) -> Result<String> {
    let measured = rows.iter().filter_map(Row::as_measured);
    let rounds = measured.clone().map(|measured| measured.rounds.len()).max();
    let ort =
        measured.flat_map(|measured| &measured.rounds).find_map(|round| round.ort.version.clone());
    Ok(format!(
        "Measured on {}, {} processors, {}: ONNX Runtime {}, {}, rounds: {}.\n",
        processor_facts("model name").unwrap_or("an unknown processor".into()),
        sides.processors.len(),
        instruction_set(&processor_facts("flags").unwrap_or_default()),
        ort.unwrap_or("of unknown version".into()),
        sides.version()?,
        rounds.unwrap_or_default(),
    ))
}

/// Reads a line of the first processor in /proc/cpuinfo.
pub(in crate::bench) fn processor_facts(name: &str) -> Option<String> {
    let facts = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = facts.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_string())
}

/// Names the widest instructions, and those for products of few bits.
fn instruction_set(flags: &str) -> String {
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let has = |flag: &&str| flags.contains(flag);
    let widest = [("avx512f", "AVX-512"), ("avx2", "AVX2")];
    let Some((_, widest)) = widest.iter().find(|(flag, _)| has(flag)) else {
        return "neither AVX-512 nor AVX2".into();
    };
    let more = [
        ("avx512_vnni", "VNNI"),
        ("avx_vnni", "AVX-VNNI"),
        ("avx512_bf16", "bf16"),
        ("amx_tile", "AMX"),
    ];
    let more: Vec<&str> =
        more.iter().filter(|(flag, _)| has(flag)).map(|(_, name)| *name).collect();
    if more.is_empty() { widest.to_string() } else { format!("{widest} with {}", more.join(", ")) }
}

fn case_table(rows: &[Row]) -> Result<String> {
    let any_fast =
        rows.iter().filter_map(Row::as_measured).any(|measured| measured.fast_best().is_some());
    let mut table = String::from(
        "| case | threads | speed, best | median | session | memory | apart | off float64, ours / ORT's |",
    );
    table += if any_fast { " fast: speed, error |\n" } else { "\n" };
    table += "| --- | --- | --- | --- | --- | --- | --- | --- |";
    table += if any_fast { " --- |\n" } else { "\n" };
    for row in rows {
        let Some(measured) = row.as_measured() else {
            continue;
        };
        let accuracy = &measured.accuracy;
        let float64 =
            accuracy.float64.map_or("".into(), |(ort, ours)| format!("{ours:.0e} / {ort:.0e}"));
        let mut apart = format!("{:.0e}", accuracy.difference);
        if !accuracy.problems.is_empty() {
            apart += ", disagree";
        }
        write!(
            table,
            "| {} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {apart} | {float64} |",
            row.case,
            row.threads,
            measured.speed(),
            measured.median_speed(),
            measured.session_ratio(),
            measured.memory_ratio(),
        )?;
        if any_fast {
            let fast = measured.fast_speed().zip(accuracy.fast);
            let fast =
                fast.map_or("".into(), |((best, _), error)| format!("{best:.2}, {error:.0e}"));
            write!(table, " {fast} |")?;
        }
        table.push('\n');
    }
    Ok(table)
}

/// Lists the cases that cannot run, each once.
fn refusals(rows: &[Row]) -> String {
    let mut lines: Vec<String> = Vec::new();
    for row in rows {
        if let Outcome::CannotRun(reason) = &row.outcome {
            let line = format!("- {} cannot run: {reason}\n", row.case);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    if lines.is_empty() { String::new() } else { format!("\n{}", lines.concat()) }
}

fn summary_table(summaries: &[Summary]) -> Result<String> {
    let mut table = String::from(
        "| group | cases | speed, best, geometric mean | median | smallest | whose |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for summary in summaries {
        writeln!(
            table,
            "| {} | {} | {:.2} | {:.2} | {:.2} | {} |",
            summary.group.name(),
            summary.cells,
            summary.best,
            summary.median,
            summary.smallest,
            summary.slowest
        )?;
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let document = format!("# A\n\n{BEGIN}\nold\n\n{END}\nrest\n");
        let wanted = format!("# A\n\n{BEGIN}\nnew\n\n{END}\nrest\n");
        assert_eq!(with_between_marks(&document, "new\n\n"), Some(wanted));
        assert_eq!(with_between_marks("no marks", "new"), None);
    }

    #[test]
    fn the_document_has_the_marks() {
        let document = fs::read_to_string(root().join("docs/performance.md")).expect("it is there");
        assert!(with_between_marks(&document, "").is_some());
    }

    #[test]
    fn rows_become_lines_and_refusals_a_list() {
        let mut refused = row("lstm.b1", 1, 1.0, 1.0);
        refused.outcome = Outcome::CannotRun("LSTM".into());
        let rows = [row("bert_base.b1", 2, 3.0, 2.0), refused];
        let table = case_table(&rows).expect("strings take anything");
        let last = table.lines().last().unwrap_or_default();
        assert_eq!(last, "| bert_base.b1 | 2 | 1.50 | 1.50 | 0.30 | 1.00 | 0e0 |  |");
        assert_eq!(refusals(&rows), "\n- lstm.b1 cannot run: LSTM\n");
    }

    #[test]
    fn instruction_sets_are_named() {
        for (flags, wanted) in [
            ("fpu avx2 avx512f avx512_bf16 avx512_vnni", "AVX-512 with VNNI, bf16"),
            ("fpu avx2", "AVX2"),
            ("fpu", "neither AVX-512 nor AVX2"),
        ] {
            assert_eq!(instruction_set(flags), wanted);
        }
    }
}
