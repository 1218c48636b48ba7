//! Dated notes of measurements under docs/measurements/.

use super::groups::Summary;
use super::row::{Outcome, Row};
use super::sides::Sides;
use crate::workspace::{readable_path, root};
use crate::{Result, shell};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const COLUMNS: &str = "\
Speed is the time of ONNX Runtime divided by ours: 2 means half of its time. Both run
on the same cores, pinned, and their processes take turns.

- *speed, best* compares the best run of each in any round; *median* is the median of the rounds.
- *session* is our time to create a session divided by that of ONNX Runtime. Smaller is better.
- *memory* is our peak divided by its peak, which includes the Python interpreter. Smaller is better.
- *apart* is the largest difference between the outputs, as a fraction of the output's largest magnitude.
- *off float64* is the distance from the model computed in double precision, for ours and for ONNX Runtime's output.
- *fast* is the speed with `--precision fast`, and its error.
";

/// Writes the tables of a run as a new note; earlier notes stay as they are.
pub(super) fn write(rows: &[Row], summaries: &[Summary], sides: &Sides) -> Result {
    let path = new_note("models")?;
    let note = format!(
        "# Models against ONNX Runtime\n\n{}\n{COLUMNS}\n{}{}\n{}",
        measured_on(rows, sides)?,
        case_table(rows)?,
        refusals(rows),
        summary_table(summaries)?
    );
    fs::write(&path, note)?;
    eprintln!("wrote {}: list it in docs/measurements/README.md", readable_path(&path));
    Ok(())
}

/// Returns the path of a note of today that does not exist yet.
pub(in crate::bench) fn new_note(subject: &str) -> Result<PathBuf> {
    let today = shell::output(Command::new("date").args(["-u", "+%F"]))?;
    Ok(choose_note(&root().join("docs/measurements"), today.trim(), subject))
}

fn choose_note(directory: &Path, day: &str, subject: &str) -> PathBuf {
    let mut path = directory.join(format!("{day}-{subject}.md"));
    let mut number = 2;
    while path.exists() {
        path = directory.join(format!("{day}-{subject}-{number}.md"));
        number += 1;
    }
    path
}

/// Names the processor and its instruction set.
pub(in crate::bench) fn describe_machine() -> String {
    let name = processor_facts("model name").unwrap_or("an unknown processor".into());
    format!("{name}, {}", instruction_set(&processor_facts("flags").unwrap_or_default()))
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
        "| group | cases | speed, best, geometric mean | median | smallest | whose |\n\
         | --- | --- | --- | --- | --- | --- |\n",
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
    fn notes_are_never_overwritten() {
        let notes = root().join("docs/measurements");
        assert_eq!(
            choose_note(&notes, "2026-11-22", "models"),
            notes.join("2026-11-22-models-2.md")
        );
        assert_eq!(choose_note(&notes, "1999-01-01", "models"), notes.join("1999-01-01-models.md"));
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
