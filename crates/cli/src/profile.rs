//! `sardonyx profile`: where the time of a run goes.

use std::collections::BTreeMap;

use crate::ModelArg;
use crate::failure::Failure;
use crate::inputs::{self, gather};
use crate::run::{open, parse_threads};
use crate::terminal::Terminal;

/// Time every step of a run
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    inputs: inputs::Args,
    /// Threads to use; by default one per processor
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

pub(crate) fn profile(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let (model, session) = open(&args.model, args.threads, terminal)?;
    let inputs = gather(&args.inputs, &model, session.inputs(), terminal)?;
    let steps = session.steps();
    let mut best = vec![f64::INFINITY; steps.len()];
    for _ in 0..10 {
        session.run_watched(inputs.values.clone(), &mut |event| {
            best[event.step] = best[event.step].min(event.took.as_secs_f64() * 1e6);
        })?;
    }
    let mut by_kernel: BTreeMap<String, (f64, usize)> = BTreeMap::new();
    for (step, took) in steps.iter().zip(&best) {
        if took.is_finite() {
            let entry = by_kernel
                .entry(format!("{} [{}]", step.op, step.kernel))
                .or_default();
            entry.0 += took;
            entry.1 += 1;
        }
    }
    let mut rows: Vec<_> = by_kernel.into_iter().collect();
    rows.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    let mut text = String::new();
    for (name, (took, count)) in rows {
        text += &format!("{took:12.1} us {count:5} {name}\n");
    }
    for (step, took) in steps.iter().zip(&best) {
        if *took > 5.0 && took.is_finite() {
            text += &format!("{took:10.1} us  {}  {}\n", step.place, step.kernel);
        }
    }
    terminal.print(&text)
}
