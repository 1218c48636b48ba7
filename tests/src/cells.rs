//! Cells of the matrix: a version of an operator, one of its type variables, and a type.
//! `tests/matrix/make_cases.py` lists them in `cells.tsv`.

use crate::cases::Case;
use crate::outcome::{Class, Failure, Outcome};
use std::error::Error;
use std::fs;
use std::path::Path;

/// Cell of the matrix, with the judge of its case.
#[derive(Debug)]
pub struct Cell {
    /// Name of the case, such as `ai.onnx.Abs-13/T-float`.
    pub id: String,
    /// Operator, version, variable and type, between tabs.
    pub title: String,
    /// Oracle for the outputs.
    pub judge: String,
    /// Reason for which the cell has no case; empty if it has one.
    no_case: String,
}

/// Reads the cells that are listed in a directory of cases.
///
/// # Errors
///
/// The list does not exist, or a line of it has other columns.
pub fn read(directory: &Path) -> Result<Vec<Cell>, Box<dyn Error>> {
    let path = directory.join("cells.tsv");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.lines().map(|line| Cell::parse(line).ok_or_else(|| format!("{line}?").into())).collect()
}

impl Cell {
    fn parse(line: &str) -> Option<Cell> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [id, operator, version, variable, ty, judge, no_case] = columns[..] else {
            return None;
        };
        Some(Cell {
            id: id.to_string(),
            title: [operator, version, variable, ty].join("\t"),
            judge: judge.to_string(),
            no_case: no_case.to_string(),
        })
    }

    /// Reads the case of the cell, if there is one.
    ///
    /// # Errors
    ///
    /// The cell has no case.
    pub fn case(&self, directory: &Path) -> Result<Case, Failure> {
        match self.judge.as_str() {
            "" => Err(Failure::new(Class::NoCase, self.no_case.clone())),
            _ => Ok(Case::at(&directory.join(&self.id))),
        }
    }

    /// Writes the line of the cell in the table of results.
    pub fn write_line(&self, outcome: &Outcome) -> String {
        let outcome = match outcome {
            Ok(()) => "passed",
            Err(failure) => failure.class.label(),
        };
        format!("{}\t{outcome}\t{}", self.title, self.judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_and_written() {
        let cell = Cell::parse("ai.onnx.Abs-13/T-int8\tAbs\t13\tT\ttensor(int8)\treference\t");
        let cell = cell.unwrap_or_else(|| unreachable!("the line has all columns"));
        assert_eq!(cell.write_line(&Ok(())), "Abs\t13\tT\ttensor(int8)\tpassed\treference");
        let case = cell.case(Path::new("cases")).map(|case| case.id);
        assert_eq!(case, Ok("ai.onnx.Abs-13/T-int8".to_string()));
        assert!(Cell::parse("Abs\t13").is_none());
    }

    #[test]
    fn a_cell_without_a_judge_has_no_case() {
        let cell = Cell::parse("a/T-x\ta\t1\tT\tx\t\tno sample");
        let cell = cell.unwrap_or_else(|| unreachable!("the line has all columns"));
        let outcome = cell.case(Path::new("cases")).map(|_| ());
        assert_eq!(outcome, Err(Failure::new(Class::NoCase, "no sample")));
        assert_eq!(cell.write_line(&outcome), "a\t1\tT\tx\tno case\t");
    }
}
