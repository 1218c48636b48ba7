//! Verification of a changed model: runs it and the original on the same inputs, and compares the
//! outputs.

use std::fmt;

use sardonyx_model::{Dim, Type};
use sardonyx_runtime::{Optimization, Port, RunOptions};
use sardonyx_tensor::{DataType, Tolerance, Value};

use crate::compare::{CompareOptions, ComparedValue};
use crate::error::{Error, ErrorKind};
use crate::filling::{Fill, FillOptions};
use crate::model::Model;
use crate::session::Session;

/// Allowed difference of results that both models compute in other steps.
const CLOSE: Tolerance = Tolerance { rtol: 1e-4, atol: 1e-5 };

/// Allowed relative difference of results in float16: two units in the last place.
const FLOAT16_RTOL: f64 = 1.0 / 512.0;

/// Options of [`Model::verify`].
#[derive(Clone)]
pub struct VerifyOptions<'a> {
    runs: u64,
    tolerance: Option<Tolerance>,
    optimization: Optimization,
    fill: FillOptions,
    inputs: Vec<(String, Value)>,
    progress: Option<&'a dyn Fn(u64)>,
}

impl Default for VerifyOptions<'_> {
    fn default() -> Self {
        VerifyOptions {
            runs: 1,
            tolerance: None,
            optimization: Optimization::All,
            fill: FillOptions::new(),
            inputs: Vec::new(),
            progress: None,
        }
    }
}

impl fmt::Debug for VerifyOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyOptions")
            .field("runs", &self.runs)
            .field("tolerance", &self.tolerance)
            .field("optimization", &self.optimization)
            .field("fill", &self.fill)
            .finish_non_exhaustive()
    }
}

impl<'a> VerifyOptions<'a> {
    /// Creates the default options: one run on pseudo-random inputs, and results that may differ by
    /// rounding.
    pub fn new() -> VerifyOptions<'a> {
        VerifyOptions::default()
    }

    /// Sets the number of runs, 1 by default. Run `n` draws inputs with the seed `n`.
    #[must_use]
    pub fn runs(self, runs: u64) -> Self {
        VerifyOptions { runs, ..self }
    }

    /// Sets the allowed difference of results. The default is 1e-4 of each number plus 1e-5, and
    /// 1/512 of each number if an output has float16 elements.
    #[must_use]
    pub fn tolerance(self, tolerance: Tolerance) -> Self {
        VerifyOptions { tolerance: Some(tolerance), ..self }
    }

    /// Sets the optimization level of both sessions. The default is [`Optimization::All`].
    #[must_use]
    pub fn optimization(self, optimization: Optimization) -> Self {
        VerifyOptions { optimization, ..self }
    }

    /// Sets how inputs are filled that [`inputs`](VerifyOptions::inputs) does not give. The seed is
    /// replaced by the number of the run.
    #[must_use]
    pub fn fill(self, fill: FillOptions) -> Self {
        VerifyOptions { fill, ..self }
    }

    /// Gives inputs, which are equal in all runs. If all inputs are given, there is one run.
    #[must_use]
    pub fn inputs(self, inputs: Vec<(String, Value)>) -> Self {
        VerifyOptions { inputs, ..self }
    }

    /// Calls `progress` with the number of finished runs after each run.
    #[must_use]
    pub fn progress(self, progress: &'a dyn Fn(u64)) -> Self {
        VerifyOptions { progress: Some(progress), ..self }
    }
}

/// Result of [`Model::verify`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Verified {
    /// Number of runs of both models.
    pub runs: u64,
    /// Allowed difference of results.
    pub tolerance: Tolerance,
    /// First run in which outputs differ; `None` if all outputs agree.
    pub failed: Option<FailedRun>,
    /// Names of the input dimensions that are assumed to be 1.
    pub assumed: Vec<String>,
    /// Rules by which inputs are filled, by the names of inputs.
    pub rules: Vec<(String, Fill)>,
}

/// Run in which the outputs of two models differ.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FailedRun {
    /// Number of the run, from 1.
    pub run: u64,
    /// Name of the first graph output that differs.
    pub output: String,
    /// Description of the difference between the outputs.
    pub what: String,
    /// First intermediate value that differs between the two models; `None` if none was found.
    pub first: Option<ComparedValue>,
}

impl Model {
    /// Runs this model and `changed`, a model that should compute the same, on the same inputs and
    /// compares the outputs. Inputs that `options` does not give are drawn.
    ///
    /// ```
    /// use sardonyx::{Model, check::VerifyOptions};
    ///
    /// let model = |nodes: &str| Model::from_text(&format!(
    ///     "<ir_version: 10, opset_import: [\"\": 21]>
    ///      g (float[3] x) => (float[3] y) {{ {nodes} }}"
    /// ));
    /// let before = model("a = Exp (x) y = Neg (a)")?;
    /// let options = VerifyOptions::new().runs(3);
    /// let verified = before.verify(&model("b = Exp (x) y = Neg (b)")?, &options)?;
    /// assert_eq!((verified.runs, verified.failed), (3, None));
    /// let verified = before.verify(&model("a = Abs (x) y = Neg (a)")?, &VerifyOptions::new())?;
    /// assert_eq!(verified.failed.unwrap().first.unwrap().name, "a");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a model cannot be run, or fails on the inputs; [`ErrorKind::Output`] if the models have
    /// different numbers of outputs.
    pub fn verify(&self, changed: &Model, options: &VerifyOptions<'_>) -> Result<Verified, Error> {
        let before = build_session(self, options, "the original model")?;
        let after = build_session(changed, options, "the changed model")?;
        let (wanted, found) = (before.outputs().len(), after.outputs().len());
        if wanted != found {
            let message =
                format!("the changed model has {found} outputs, but the original has {wanted}");
            return Err(Error::new(ErrorKind::Output, message));
        }
        let tolerance = options.tolerance.unwrap_or_else(|| choose_tolerance(before.outputs()));
        let mut verified =
            Verified { runs: 0, tolerance, failed: None, assumed: Vec::new(), rules: Vec::new() };
        while verified.runs < options.runs && verified.failed.is_none() {
            let run = verified.runs + 1;
            let fill = options.fill.clone().seed(run);
            let filled = self.fill_inputs(before.inputs(), &options.inputs, &fill)?;
            let is_drawn = !filled.values.is_empty();
            let inputs = [options.inputs.as_slice(), &filled.values].concat();
            let run_options = RunOptions::new().seed(run);
            let wanted = before.run(inputs.iter().cloned(), &run_options).map_err(|error| {
                let help = advise_on_inputs(run, &inputs, before.inputs());
                error.with_help(help)
            })?;
            let found = after.run(inputs.iter().cloned(), &run_options)?;
            let mut pairs = wanted.iter().zip(found.iter());
            let differing = pairs.find_map(|((name, wanted), (_, found))| {
                Some((name.to_string(), found.compare(wanted, tolerance).err()?))
            });
            verified.failed = differing.map(|(output, what)| {
                let Tolerance { rtol, atol } = tolerance;
                let search = CompareOptions::new()
                    .rtol(rtol)
                    .atol(atol)
                    .inputs(inputs)
                    .optimization(options.optimization);
                let found = self.compare(changed, &search);
                let first = found.ok().and_then(|comparison| comparison.first);
                FailedRun { run, output, what, first }
            });
            verified.runs = run;
            if run == 1 {
                (verified.assumed, verified.rules) = (filled.assumed, filled.rules);
            }
            if let Some(progress) = options.progress {
                progress(run);
            }
            if !is_drawn {
                break;
            }
        }
        Ok(verified)
    }
}

/// Chooses the tolerance for outputs of these types.
fn choose_tolerance(outputs: &[Port]) -> Tolerance {
    let mut elems = outputs.iter().map(|port| port.ty().and_then(Type::elem));
    if elems.any(|elem| elem == Some(DataType::Float16)) {
        Tolerance { rtol: FLOAT16_RTOL, ..CLOSE }
    } else {
        CLOSE
    }
}

/// Builds the session of a model, which `what` names in messages.
fn build_session(model: &Model, options: &VerifyOptions<'_>, what: &str) -> Result<Session, Error> {
    let mut builder = Session::builder(model).optimization(options.optimization).seed(0);
    for (name, size) in options.fill.dims() {
        builder = builder.dim(name, *size);
    }
    builder.build().map_err(|error| match error.kind() {
        // For a wrong option, the remedy is another option.
        ErrorKind::Argument => error,
        _ => error.with_help(format!("{what} cannot be run, so the models cannot be compared")),
    })
}

/// Returns advice for an original model that fails on its inputs, mostly because it does not accept
/// sizes that were assumed.
fn advise_on_inputs(run: u64, inputs: &[(String, Value)], ports: &[Port]) -> String {
    /// Maximum number of inputs that the advice names.
    const SHOWN: usize = 6;
    let shown = inputs.iter().take(SHOWN).map(|(name, value)| match value.as_tensor() {
        Some(tensor) => {
            let dims = tensor.dims().iter().copied();
            format!("{name}: {}", Type::tensor(tensor.data_type(), dims))
        }
        None => format!("{name}: {}", value.value_type()),
    });
    let shown: Vec<String> = shown.collect();
    let open = ports.iter().find_map(|port| {
        let shape = port.ty()?.shape()?;
        // From the last axis on, because the first one mostly counts examples and accepts any size.
        let mut axes = shape.iter().enumerate().rev();
        axes.find_map(|(axis, dim)| match dim {
            Dim::Known(_) => None,
            dim if dim.is_unknown() => Some(format!("'{}[{axis}]=SIZE'", port.name())),
            dim => dim.as_symbol().map(|name| format!("{name}=SIZE")),
        })
    });
    let sizes = open.map_or(String::new(), |open| {
        format!("; set sizes that the model takes, such as --set {open}")
    });
    let shown = shown.join(", ");
    format!("run {run} of the original model fails on its inputs ({shown}){sizes}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sardonyx_tensor::Tensor;

    fn parse_model(nodes: &str) -> Model {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[N] x) => (float[N] y) {{ {nodes} }}"
        );
        Model::from_text(&text).unwrap()
    }

    /// Makes options for four runs on three elements.
    fn four_runs() -> VerifyOptions<'static> {
        VerifyOptions::new().runs(4).fill(FillOptions::new().dim("N", 3))
    }

    #[test]
    fn runs_end_at_the_first_difference() {
        let before = parse_model("a = Exp (x) y = Neg (a)");
        let after = parse_model("b = Exp (x) y = Neg (b)");
        let same = before.verify(&after, &four_runs()).unwrap();
        assert_eq!((same.runs, same.failed, same.tolerance), (4, None, CLOSE));
        let after = parse_model("a = Abs (x) y = Neg (a)");
        let other = before.verify(&after, &four_runs()).unwrap();
        let failed = other.failed.unwrap();
        assert_eq!((other.runs, failed.run, &*failed.output), (1, 1, "y"));
        assert_eq!(failed.first.unwrap().name, "a");
        // The functions agree for negative numbers only, so the first draws find the difference.
        let negative = Tensor::from_vec([2], vec![-1.0f32, -2.0]).unwrap();
        let before = parse_model("y = Neg (x)");
        let given = VerifyOptions::new().runs(9).inputs(vec![("x".into(), negative.into())]);
        let verified = before.verify(&parse_model("y = Abs (x)"), &given).unwrap();
        assert_eq!((verified.runs, verified.failed), (1, None));
        let drawn = before.verify(&parse_model("y = Abs (x)"), &four_runs()).unwrap();
        assert!(drawn.failed.is_some());
    }

    #[test]
    fn failures_have_advice() {
        let text = "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[N, M] x) => (y) <float[3, 1] w = {1, 2, 3}> { y = MatMul (x, w) }";
        let model = Model::from_text(text).unwrap();
        let error = model.verify(&model, &VerifyOptions::new()).unwrap_err();
        let help = error.help().unwrap_or_default();
        assert!(help.contains("--set") || error.kind() == ErrorKind::Invalid, "{error}");
    }
}
