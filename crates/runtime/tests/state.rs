//! Tests of state: a run begins, is inspected, and is committed or dropped.

use crate::both_ways::complete;
use sardonyx_model::NoExternalData;
use sardonyx_runtime::{
    Input, OldValue, Options, Pending, PendingError, RunOptions, Session, StatePorts, StepEvent,
};
use sardonyx_tensor::{Buffer, Tensor, TensorView, TensorViewMut, Value};
use sardonyx_text::{ParseOptions, parse_model};
use std::cell::RefCell;

/// Descent with momentum, which computes new `w` and `m` from old ones. `d` reads `x` as well.
const DESCENT: &str = "g (float[4] x, float rate, float[4] w, float[4] m, float[4] d)
     => (float[4] y, float[4] w1, float[4] m1, float[4] d1) {
         y = Exp (x)
         kept = Mul (m, rate)
         m1 = Add (kept, y)
         step = Mul (m1, rate)
         w1 = Sub (w, step)
         d1 = Mul (d, x)
     }";

const X: [f32; 4] = [0.5, -1.0, 0.25, 2.0];
const STATE: [(&str, [f32; 4]); 3] =
    [("w", [1.0, 2.0, 3.0, 4.0]), ("m", [0.5, 0.25, -1.0, 0.0]), ("d", [3.0, -3.0, 1.0, 7.0])];

fn compile(state: &[(usize, usize)]) -> Session {
    let text = complete(DESCENT);
    let parsed = parse_model(Buffer::from(text.into_bytes()), ParseOptions::default());
    let mut options = Options::with_threads(1);
    let ports = state.iter().map(|(input, output)| StatePorts { input: *input, output: *output });
    options.state = ports.collect();
    Session::compile(&parsed.unwrap().model, &NoExternalData, &options).unwrap()
}

fn session() -> Session {
    compile(&[(2, 1), (3, 2), (4, 3)])
}

fn views<'v>(state: &'v [(&'static str, Vec<f32>)]) -> Vec<(&'static str, TensorView<'v>)> {
    let state = state.iter();
    state.map(|(name, values)| (*name, TensorView::from_slice([4], values).unwrap())).collect()
}

fn start() -> Vec<(&'static str, Vec<f32>)> {
    STATE.iter().map(|(name, values)| (*name, values.to_vec())).collect()
}

/// Begins a run, and returns its outputs.
fn begin<'s>(
    session: &'s Session,
    state: &[(&'static str, Vec<f32>)],
    options: &RunOptions<'_>,
) -> (Pending<'s>, Vec<Option<Value>>) {
    let (x, rate) = (Tensor::from_vec([4], X.to_vec()).unwrap(), Tensor::scalar(0.5f32));
    let inputs = [("x", Input::View(x.view())), ("rate", Input::View(rate.view()))];
    let state = views(state).into_iter().map(|(name, view)| (name, Input::View(view)));
    let mut outputs = Vec::new();
    let pending = session.begin(inputs.into_iter().chain(state), &mut outputs, options).unwrap();
    (pending, outputs)
}

/// Lends the state to a commit: over the old values, or beside those in `beside`.
fn commit(
    pending: Pending<'_>,
    state: &mut [(&'static str, Vec<f32>)],
    beside: &str,
    options: &RunOptions<'_>,
) -> Result<Vec<(usize, Value)>, PendingError> {
    let old = state.iter_mut().enumerate().map(|(number, (name, values))| {
        let old = if beside.contains(*name) {
            OldValue::Beside(TensorView::from_slice([4], values).unwrap())
        } else {
            OldValue::Over(TensorViewMut::from_slice([4], values).unwrap())
        };
        (number + 1, old)
    });
    pending.commit(old, options.watch)
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_tensor().unwrap().to_vec().unwrap()
}

/// Returns the outputs of a session without state variables.
fn run_without_state() -> Vec<Vec<f32>> {
    let (x, rate) = (Tensor::from_vec([4], X.to_vec()).unwrap(), Tensor::scalar(0.5f32));
    let mut inputs = vec![("x".to_string(), x.into()), ("rate".to_string(), rate.into())];
    inputs.extend(STATE.iter().map(|(name, values)| {
        ((*name).to_string(), Tensor::from_vec([4], values.to_vec()).unwrap().into())
    }));
    let outputs = compile(&[]).run(inputs).unwrap();
    outputs.iter().map(|(_, value)| numbers(value)).collect()
}

#[test]
fn new_values_are_those_of_a_session_without_state() {
    let (session, expected) = (session(), run_without_state());
    let ports: Vec<usize> = session.list_state().iter().map(|ports| ports.output).collect();
    assert_eq!(ports.len(), 3, "{ports:?}");
    for beside in ["", "w", "w m d"] {
        let (mut state, options) = (start(), RunOptions::new());
        let (pending, outputs) = begin(&session, &state, &options);
        let [Some(y), None, None, None] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(numbers(y), expected[0]);
        assert_eq!(state, start(), "nothing changes before a commit");
        let mut made = commit(pending, &mut state, beside, &options).unwrap();
        made.sort_by_key(|(output, _)| *output);
        for (number, (name, values)) in state.iter().enumerate() {
            let place = made.iter().position(|(output, _)| *output == number + 1);
            let new = place.map(|place| numbers(&made[place].1));
            assert_eq!(new.is_some(), beside.contains(name), "{name}, beside {beside}");
            if new.is_some() {
                assert_eq!(*values, STATE[number].1, "{name} stays");
            }
            assert_eq!(new.as_ref().unwrap_or(values), &expected[number + 1], "{name}");
        }
    }
}

#[test]
fn a_run_that_is_dropped_changes_nothing() {
    let (session, state) = (session(), start());
    for _ in 0..3 {
        drop(begin(&session, &state, &RunOptions::new()));
        assert_eq!(state, start());
    }
}

#[test]
fn other_runs_compute_new_values_as_outputs() {
    let (session, expected) = (session(), run_without_state());
    let state = start();
    let x = TensorView::from_slice([4], &X).unwrap();
    let rate = TensorView::from_slice([], &[0.5f32]).unwrap();
    let mut inputs = vec![("x", x), ("rate", rate)];
    inputs.extend(views(&state));
    let mut memory = vec![[0f32; 4]; 4];
    let names = ["y", "w1", "m1", "d1"];
    let outputs = names.iter().zip(&mut memory);
    let mut outputs: Vec<(&str, TensorViewMut<'_>)> = outputs
        .map(|(name, memory)| (*name, TensorViewMut::from_slice([4], memory).unwrap()))
        .collect();
    session.run_into(&inputs, &mut outputs).unwrap();
    let memory: Vec<Vec<f32>> = memory.iter().map(|memory| memory.to_vec()).collect();
    assert_eq!(memory, expected);
    let values = inputs.iter().map(|(name, view)| ((*name).to_string(), view.to_tensor().unwrap()));
    let values = values.map(|(name, tensor)| (name, Value::from(tensor)));
    let outputs = session.run(values.collect()).unwrap();
    assert_eq!(outputs.iter().map(|(_, v)| numbers(v)).collect::<Vec<_>>(), expected);
    assert_eq!(state, start());
}

#[test]
fn old_values_that_do_not_fit_change_nothing() {
    let session = session();
    let mut state = start();
    let (pending, _) = begin(&session, &state, &RunOptions::new());
    let mut three = vec![0f32; 3];
    let other = OldValue::Over(TensorViewMut::from_slice([3], &mut three).unwrap());
    let w = TensorViewMut::from_slice([4], &mut state[0].1).unwrap();
    let error = pending.commit([(1, OldValue::Over(w)), (2, other)].into_iter(), None).unwrap_err();
    assert_eq!(error.to_string(), "the old value of 'm1' is not a dense float[4]");
    assert!(!error.is_partial);
    let (pending, _) = begin(&session, &state, &RunOptions::new());
    let w = TensorViewMut::from_slice([4], &mut state[0].1).unwrap();
    let error = pending.commit([(1, OldValue::Over(w))].into_iter(), None).unwrap_err();
    assert!(error.to_string().contains("needed for new values of state"), "{error}");
    let (pending, _) = begin(&session, &state, &RunOptions::new());
    let y = OldValue::Beside(TensorView::from_slice([4], &X).unwrap());
    let error = pending.commit([(0, y)].into_iter(), None).unwrap_err();
    assert_eq!(error.to_string(), "the output 'y' is not state that a run commits");
    assert_eq!(state, start());
}

#[test]
fn a_watching_function_learns_of_all_steps() {
    let (session, mut state) = (session(), start());
    let seen = RefCell::new(Vec::new());
    let watch = |event: StepEvent| seen.borrow_mut().push(event.step);
    let options = RunOptions::new().watch(&watch);
    let (pending, _) = begin(&session, &state, &options);
    let before = seen.borrow().len();
    commit(pending, &mut state, "", &options).unwrap();
    let seen = seen.into_inner();
    assert!(before > 0 && before < seen.len(), "{before} of {seen:?}");
    assert_eq!(seen, (0..session.steps().len()).collect::<Vec<_>>());
}

fn breaks(_: StepEvent) {
    panic!("it broke");
}

#[test]
fn a_panic_of_a_watching_function_is_partial() {
    let (session, mut state) = (session(), start());
    let (pending, _) = begin(&session, &state, &RunOptions::new().watch(&|_| {}));
    let error = commit(pending, &mut state, "", &RunOptions::new().watch(&breaks)).unwrap_err();
    assert!(error.is_partial, "{error}");
    // The session can be reused.
    let mut state = start();
    let (pending, _) = begin(&session, &state, &RunOptions::new());
    commit(pending, &mut state, "", &RunOptions::new()).unwrap();
    assert_eq!(state[0].1, run_without_state()[1]);
}
