//! Writes inferred types into many models. Reads lines `SOURCE<tab>TARGET` and answers each with an
//! empty line or with the contradictions in the model.

use sardonyx::{Model, infer};
use std::error::Error;
use std::fs;
use std::io::{self, BufRead, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let mut answers = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let (source, target) = line.split_once('\t').ok_or("a line is not a pair of paths")?;
        let mut model = Model::open(source)?;
        let found = model.infer(&infer::InferOptions::new());
        model.add_types(&found);
        fs::write(target, model.to_bytes())?;
        let findings = found.report(&model).findings;
        let facts: Vec<&str> = findings.iter().map(|found| found.fact.as_str()).collect();
        writeln!(answers, "{}", facts.join("; ").replace('\n', " "))?;
    }
    Ok(())
}
