//! Inputs and outputs that are bound to the runs of one session.

use std::mem::take;

use smallvec::SmallVec;

/// Bound inputs and outputs, by index. `V` is the form in which an interface keeps a value.
///
/// Methods return the values that they replace, so that the caller drops them where its own code
/// may run.
#[derive(Debug)]
pub struct Bindings<V> {
    /// Bound values, by index of the input.
    inputs: Vec<Option<V>>,
    /// Bound outputs, in the order in which they were first bound.
    outputs: Vec<BoundOutput<V>>,
    /// Outputs of the last run, in the order of `outputs`.
    results: SmallVec<[V; 2]>,
}

/// Output that runs return.
#[derive(Debug)]
pub struct BoundOutput<V> {
    /// Index of the output.
    pub number: usize,
    /// Value that receives the output; `None` for a new value in each run.
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

    /// Binds an output, which runs then return, written into a value if one is given. An output
    /// that is bound again keeps its position.
    pub fn bind_output(&mut self, number: usize, into: Option<V>) -> Option<V> {
        if let Some(bound) = self.outputs.iter_mut().find(|output| output.number == number) {
            return std::mem::replace(&mut bound.into, into);
        }
        self.outputs.push(BoundOutput { number, into });
        None
    }

    /// Returns the bound inputs with their indices.
    pub fn inputs(&self) -> impl Iterator<Item = (usize, &V)> {
        let inputs = self.inputs.iter().enumerate();
        inputs.filter_map(|(number, value)| Some((number, value.as_ref()?)))
    }

    /// Returns the bound outputs, in the order in which they were first bound.
    pub fn outputs(&self) -> &[BoundOutput<V>] {
        &self.outputs
    }

    /// Returns the outputs of the last run, in the order in which they were bound.
    pub fn results(&self) -> &[V] {
        &self.results
    }

    /// Stores the outputs of a run.
    pub fn keep(&mut self, results: SmallVec<[V; 2]>) -> SmallVec<[V; 2]> {
        std::mem::replace(&mut self.results, results)
    }

    /// Removes all bindings of inputs.
    pub fn clear_inputs(&mut self) -> Vec<Option<V>> {
        take(&mut self.inputs)
    }

    /// Removes all bindings of outputs, and the outputs of the last run.
    pub fn clear_outputs(&mut self) -> (Vec<BoundOutput<V>>, SmallVec<[V; 2]>) {
        (take(&mut self.outputs), take(&mut self.results))
    }
}

/// Returns the message for a name that is not an input, or output, of the model.
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
