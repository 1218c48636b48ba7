//! Outputs that are not gathered after a run: each device keeps its shards.

use std::ops::Range;

use sardonyx_runtime::{RunOptions, StopFlag};
use sardonyx_shard::{Device, Form};
use sardonyx_tensor::Value;

use super::DeviceSession;
#[cfg(doc)]
use super::Results;
use super::plans::SizedPlan;
use super::seat::DeviceResult;
use super::serve::ServedResult;
use crate::error::{Error, ErrorKind};

/// Shard of an output of the model that a device holds after a run with [`Results::Split`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OutputPart {
    /// Name of the model output.
    pub output: String,
    /// Number of the device that holds the shard. A replicated shard is listed once for each of its
    /// devices.
    pub device: usize,
    /// Tensor dimensions of the whole output; empty if the output is not a tensor.
    pub dims: Vec<usize>,
    /// Ranges of indices in the whole output that the shard covers along each axis, in ascending
    /// order.
    pub ranges: Vec<Vec<Range<usize>>>,
    /// Shard of the output. If it is a tensor, its size along an axis is the total length of the
    /// axis's `ranges`.
    pub value: Value,
}

impl OutputPart {
    /// Describes the shard `value` of an output with the sharding `form`. `dims` are the sizes of
    /// the whole output; `None` if not known before the run.
    fn new(
        output: &str,
        device: Device,
        form: &Form,
        dims: Option<&[usize]>,
        value: Value,
    ) -> OutputPart {
        let ranges = match (dims, &value) {
            (Some(dims), Value::Tensor(_)) if !form.is_whole() => form.ranges(device, dims),
            _ => None,
        };
        let dims = match (&ranges, dims, &value) {
            (Some(_), Some(dims), _) => dims.to_vec(),
            (_, _, Value::Tensor(tensor)) => tensor.dims().to_vec(),
            _ => Vec::new(),
        };
        let ranges = match ranges {
            Some(ranges) => ranges.iter().map(|axis| axis.iter().cloned().collect()).collect(),
            None => dims.iter().map(|size| std::iter::once(0..*size).collect()).collect(),
        };
        OutputPart { output: output.into(), device: device as usize, dims, ranges, value }
    }

    /// Whether the shard covers the whole model output.
    pub fn is_whole(&self) -> bool {
        let mut axes = self.ranges.iter().zip(&self.dims);
        axes.all(|(ranges, size)| *size == 0 || matches!(&ranges[..], [all] if *all == (0..*size)))
    }
}

impl DeviceSession {
    /// Runs the model on each of several sets of inputs, like [`DeviceSession::run_many`], but does
    /// not gather the outputs. Returns, for each set, the shards that the devices of this process
    /// hold; other workers receive theirs through [`DeviceSession::serve_split`]. The session must
    /// have been built with [`Results::Split`].
    ///
    /// ```
    /// use sardonyx::device::{DeviceOptions, Results};
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// let text = r#"<ir_version: 11, opset_import: ["": 21]>
    ///     g (float[4] x) => (float[4] y) {
    ///         y = Neg (x) @<device_configurations: [{configuration_id: "two", sharding_spec: [
    ///             {tensor_name: "x", device: [0, 1],
    ///              sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
    ///     }
    ///     @<configuration: [{name: "two", num_devices: 2}]>"#;
    /// let options = DeviceOptions::new().results(Results::Split);
    /// let session = Session::builder(&Model::from_text(text)?).devices(options)?;
    /// let x = Tensor::from_slice([4], &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let parts = session.run_split([[("x", x)]], &RunOptions::default())?.remove(0);
    /// assert_eq!((parts[1].device, &parts[1].ranges), (1, &vec![vec![2..4]]));
    /// assert_eq!(parts[1].value, Tensor::from_slice([2], &[-3.0f32, -4.0])?.into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceSession::run_many`]; [`ErrorKind::Input`] if the session was built
    /// with other [`Results`].
    pub fn run_split<I, N, V>(
        &self,
        runs: impl IntoIterator<Item = I>,
        options: &RunOptions<'_>,
    ) -> Result<Vec<Vec<OutputPart>>, Error>
    where
        I: IntoIterator<Item = (N, V)>,
        N: AsRef<str>,
        V: Into<Value>,
    {
        if !self.crew.splits_outputs() {
            let message = "outputs cannot be returned as shards: the session gathers them";
            return Err(Error::new(ErrorKind::Input, message)
                .with_help("build the session with Results::Split, or call 'run_many'"));
        }
        let found = self.run_all(runs, options, false)?;
        Ok(found.into_iter().map(|found| found.parts).collect())
    }

    /// Serves runs of worker 0 like [`DeviceSession::serve`], and after each run calls `take` with
    /// the output shards that the devices of this process hold ([`Results::Split`]).
    ///
    /// # Errors
    ///
    /// The errors of [`DeviceSession::serve`].
    pub fn serve_split(
        &self,
        stop: &StopFlag,
        mut take: impl FnMut(Vec<OutputPart>),
    ) -> Result<(), Error> {
        self.serve_all(stop, &mut |served| {
            if let ServedResult::Parts(parts) = served {
                take(parts);
            }
        })
    }

    /// Checks that the session gathers the shards of outputs into whole tensors.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`] if outputs stay on the devices ([`Results::Split`]).
    pub(crate) fn check_gathers(&self) -> Result<(), Error> {
        if self.crew.splits_outputs() {
            let message = "outputs cannot be gathered: the session leaves them on the devices";
            return Err(Error::new(ErrorKind::Input, message)
                .with_help("call 'run_split', or build the session with Results::First"));
        }
        Ok(())
    }

    /// Takes the output shards of a run out of `done`, the results of this process's devices.
    pub(super) fn take_output_parts(
        &self,
        fitted: &SizedPlan,
        done: &mut [(Device, DeviceResult)],
    ) -> Vec<OutputPart> {
        let mut parts = Vec::new();
        for (index, port) in self.outputs().iter().enumerate() {
            let Some((form, dims)) = fitted.prepared.plan.form_of_output(index) else { continue };
            let dims = dims.and_then(|dims| fitted.numbers.of(&dims));
            for (device, own) in done.iter_mut() {
                let Some(value) = own.given.get_mut(index).and_then(Option::take) else { continue };
                parts.push(OutputPart::new(port.name(), *device, form, dims.as_deref(), value));
            }
        }
        parts
    }
}
