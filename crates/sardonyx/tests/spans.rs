//! Tests of spans, as a subscriber of the crate `tracing` sees them.

// In a test, a panic is the report.
#![allow(clippy::unwrap_used)]

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sardonyx::{Model, RunOptions, Session, Tensor};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Subscriber that writes each span when it is entered, indented by nesting.
#[derive(Clone)]
struct Observer {
    most: Level,
    state: Arc<Mutex<State>>,
    count: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    spans: Vec<String>,
    depth: usize,
    seen: String,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Observer {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sardonyx" && *metadata.level() <= self.most
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_string();
        span.record(&mut Fields(&mut text));
        self.state.lock().unwrap().spans.push(text);
        Id::from_u64(self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn enter(&self, span: &Id) {
        let mut state = self.state.lock().unwrap();
        let (indent, text) =
            ("  ".repeat(state.depth), state.spans[span.into_u64() as usize - 1].clone());
        writeln!(state.seen, "{indent}{text}").unwrap();
        state.depth += 1;
    }

    fn exit(&self, _: &Id) {
        self.state.lock().unwrap().depth -= 1;
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
}

fn observe(most: Level, body: impl FnOnce()) -> String {
    let observer = Observer { most, state: Arc::default(), count: Arc::default() };
    let state = Arc::clone(&observer.state);
    tracing::subscriber::with_default(observer, body);
    let state = state.lock().unwrap();
    assert_eq!(state.depth, 0, "every entered span was exited");
    state.seen.clone()
}

const LOOP: &str = "<ir_version: 10, opset_import: [\"\": 21]>
    g (float[2] x, int64 n) => (float[2] z) {
        [first] y = Exp (x)
        [again] z = Loop (n, , y) <
            body = iteration (int64 i, bool c, float[2] v) => (bool d, float[2] w) {
                d = Identity (c)
                [inside] w = Sin (v)
            }>
    }";

fn run_all() {
    let session = Session::new(&Model::from_text(LOOP).unwrap()).unwrap();
    let x = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
    session.run([("x", x), ("n", Tensor::scalar(2i64))], &RunOptions::default()).unwrap();
}

#[test]
fn spans_are_nested_as_the_work_is() {
    let seen = observe(Level::TRACE, run_all);
    assert!(seen.starts_with("open source=\"bytes\"\nplan nodes=4\nrun\n  step number="), "{seen}");
    let count = |depth: usize, node: &str| {
        let start = format!("{}step number=", "  ".repeat(depth));
        seen.lines().filter(|line| line.starts_with(&start) && line.contains(node)).count()
    };
    assert_eq!((count(1, "first"), count(1, "again"), count(2, "inside")), (1, 1, 2), "{seen}");
}

#[test]
fn steps_are_left_out_above_the_level_of_traces() {
    assert_eq!(observe(Level::DEBUG, run_all), "open source=\"bytes\"\nplan nodes=4\nrun\n");
    assert_eq!(observe(Level::INFO, run_all), "");
}

#[test]
fn a_span_ends_with_an_error() {
    let seen = observe(Level::DEBUG, || {
        assert!(Model::open("no-such-file.onnx").is_err());
        let session = Session::new(&Model::from_text(LOOP).unwrap()).unwrap();
        assert!(session.run([("x", Tensor::scalar(1f32))], &RunOptions::default()).is_err());
    });
    let expected = "open source=\"no-such-file.onnx\"\nopen source=\"bytes\"\nplan nodes=4\nrun\n";
    assert_eq!(seen, expected);
}
