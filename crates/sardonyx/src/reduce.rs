//! Reduces a model to a small one for which a check still fails.

use sardonyx_ops::Registry;
use sardonyx_passes::{self as passes, CheckAnswer, ModelWithData, ReduceOptions, ReduceReport};

use crate::model::Model;

impl Model {
    /// Reduces the model as long as `check` answers [`CheckAnswer::Fails`], for a small example of
    /// a problem: removes outputs, nodes, inputs, attributes and texts, enters graphs of nodes,
    /// replaces constants by nodes that generate zeros, and lowers sizes. Every candidate is a
    /// model without errors that this model does not have. Returns the smallest model found.
    ///
    /// The order of candidates depends on the model and the answers alone: with the same answers
    /// the same candidates are tried again.
    ///
    /// ```
    /// use sardonyx::Model;
    /// use sardonyx::edit::{CheckAnswer, ReduceOptions};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[8] x) => (float[8] y, float[8] z) {
    ///          a = Exp (x) b = Sin (a) y = Neg (b) z = Abs (a)
    ///      }",
    /// )?;
    /// let (small, report) = model.reduce(&ReduceOptions::default(), &mut |candidate| {
    ///     let has_sin = candidate.operators().iter().any(|found| found.name == "Sin");
    ///     if has_sin { CheckAnswer::Fails } else { CheckAnswer::Passes }
    /// });
    /// assert_eq!((report.nodes_before, report.nodes), (4, 1));
    /// assert_eq!(small.outputs()[0].to_string(), "b: float[1]");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn reduce(
        &self,
        options: &ReduceOptions,
        check: &mut dyn FnMut(&Model) -> CheckAnswer,
    ) -> (Model, ReduceReport) {
        let model = ModelWithData { model: &self.graph, data: &*self.data };
        let reduced =
            passes::reduce(model, &Registry::with_microsoft(), options, &mut |candidate| {
                check(&self.with_graph(candidate.clone()))
            });
        (self.with_graph(reduced.model), reduced.report)
    }
}
