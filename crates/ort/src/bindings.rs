//! Inputs and outputs that are bound to the runs of one session.

use std::mem::take;

use smallvec::SmallVec;

/// Bound inputs and outputs, by number. `V` is what an interface keeps of a value.
///
/// Methods return what they replace, so that the caller drops it where code of its own may run.
#[derive(Debug)]
pub struct Bindings<V> {
    /// Bound values, by number of the input.
    inputs: Vec<Option<V>>,
    /// Bound outputs, in the order in which they were bound first.
    outputs: Vec<BoundOutput<V>>,
    /// Outputs of the last run, in the order of `outputs`.
    results: SmallVec<[V; 2]>,
}

/// An output that runs return.
#[derive(Debug)]
pub struct BoundOutput<V> {
    /// Number of the output.
    pub number: usize,
    /// Value that takes it; `None` for a new one in each run.
    pub into: Option<V>,
}

impl<V> Default for Bindings<V> {
    fn default() -> Self {
        Bindings { inputs: Vec::new(), outputs: Vec::new(), results: SmallVec::new() }
    }
}

impl<V> Bindings<V> {
    /// Binds a value to an input.
    pub fn bind_input(&mut self, number: usize, value: V) -> Option<V> {
        if self.inputs.len() <= number {
            self.inputs.resize_with(number + 1, || None);
        }
        self.inputs[number].replace(value)
    }

    /// Has an output returned by runs, written into a value if one is given. An output that is
    /// bound again keeps its position.
    pub fn bind_output(&mut self, number: usize, into: Option<V>) -> Option<V> {
        if let Some(bound) = self.outputs.iter_mut().find(|output| output.number == number) {
            return std::mem::replace(&mut bound.into, into);
        }
        self.outputs.push(BoundOutput { number, into });
        None
    }

    /// Bound inputs, by number.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, &V)> {
        let inputs = self.inputs.iter().enumerate();
        inputs.filter_map(|(number, value)| Some((number, value.as_ref()?)))
    }

    /// Bound outputs, in the order in which they were bound.
    pub fn outputs(&self) -> &[BoundOutput<V>] {
        &self.outputs
    }

    /// Outputs of the last run, in the order in which they were bound.
    pub fn results(&self) -> &[V] {
        &self.results
    }

    /// Keeps the outputs of a run.
    pub fn keep(&mut self, results: SmallVec<[V; 2]>) -> SmallVec<[V; 2]> {
        std::mem::replace(&mut self.results, results)
    }

    /// Removes all bindings of inputs.
    pub fn clear_inputs(&mut self) -> Vec<Option<V>> {
        take(&mut self.inputs)
    }

    /// Removes all bindings of outputs, and what runs have returned.
    pub fn clear_outputs(&mut self) -> (Vec<BoundOutput<V>>, SmallVec<[V; 2]>) {
        (take(&mut self.outputs), take(&mut self.results))
    }
}

/// Message for a name that no input, or no output, of the model has.
pub fn unknown_name(kind: &str, name: &str, names: &[&str]) -> String {
    format!("the model has no {kind} '{name}'; it has '{}'", names.join("', '"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_keeps_its_position() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.bind_output(2, None), None);
        assert_eq!(bindings.bind_output(0, Some("a")), None);
        assert_eq!(bindings.bind_output(2, Some("b")), None);
        assert_eq!(bindings.bind_output(2, Some("c")), Some("b"));
        let bound: Vec<_> = bindings.outputs().iter().map(|one| (one.number, one.into)).collect();
        assert_eq!(bound, [(2, Some("c")), (0, Some("a"))]);
        bindings.keep(SmallVec::from_slice(&["r"]));
        assert_eq!(bindings.results(), ["r"]);
        let (outputs, results) = bindings.clear_outputs();
        assert_eq!((outputs.len(), results.len(), bindings.outputs().len()), (2, 1, 0));
    }

    #[test]
    fn inputs_are_bound_by_number() {
        let mut bindings = Bindings::default();
        assert_eq!(bindings.bind_input(1, "b"), None);
        assert_eq!(bindings.bind_input(1, "c"), Some("b"));
        assert_eq!(bindings.inputs().collect::<Vec<_>>(), [(1, &"c")]);
        bindings.clear_inputs();
        assert_eq!(bindings.inputs().count(), 0);
        let message = unknown_name("input", "q", &["x", "y"]);
        assert_eq!(message, "the model has no input 'q'; it has 'x', 'y'");
    }
}
