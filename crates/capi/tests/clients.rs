//! Functions that clients were seen to call.

use sardonyx_capi::ENTRIES;

/// Functions and the clients that called them, recorded with the feature `trace`:
/// onnxruntime-node with the cases of the onnx package (`node`), transformers.js (`transformers`),
/// onnxruntime-genai (`genai`), the tests of `ort-sardonyx` (`ort`), the programs
/// `tests/clients/fastembed.rs` and `tests/clients/magika.rs` (`fastembed`, `magika`), and the
/// program `tests/clients/classes.cc`, which uses the classes of the C++ header (`classes`).
const CALLS: &str = include_str!("client_calls.tsv");

#[test]
fn functions_that_clients_call_are_there() {
    let mut count = 0;
    for row in CALLS.lines() {
        let (name, clients) = row.split_once('\t').unwrap();
        let entry = ENTRIES.iter().find(|entry| entry.name == name);
        let entry = entry.unwrap_or_else(|| panic!("no function has the name {name}"));
        // The program also calls what it knows to be absent, to print that.
        assert!(entry.is_real || clients == "classes", "{name} is called by {clients}");
        count += 1;
    }
    assert!(count > 100, "{count}");
}
