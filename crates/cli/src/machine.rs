//! `sardonyx info --machine`: the machine as kernels see it.

use sardonyx::tool::Machine;
use serde_json::json;

use crate::failure::Failure;
use crate::human::format_bytes;
use crate::objects::merge_objects;
use crate::terminal::Terminal;

/// Schema of the JSON answer: its name and version. A key that changes its meaning raises the
/// version, a new key does not.
const SCHEMA: &str = "sardonyx.info-machine/1";

/// Measures the speed of this machine, and prints its description.
pub(crate) fn print_machine(as_json: bool, terminal: &Terminal) -> Result<(), Failure> {
    let machine = Machine::measure()?;
    if as_json {
        terminal.json(&merge_objects(json!({"schema": SCHEMA}), json!(machine)), true)
    } else {
        terminal.print(&format!("{}\n", to_line(&machine)))
    }
}

/// Formats the machine as one line, which benchmarks print above their tables.
fn to_line(machine: &Machine) -> String {
    let [near, own, shared] = machine.caches.map(|size| format_bytes(size as u64));
    format!(
        "{}, processors: {}, {}, caches: {near}, {own}, {shared}, one thread: {:.0} GFLOP/s, {:.1} \
         GB/s",
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.processors,
        machine.instruction_set,
        machine.flops * 1e-9,
        machine.bandwidth * 1e-9,
    )
}
