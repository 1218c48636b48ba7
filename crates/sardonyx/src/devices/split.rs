//! Outputs that stay on the devices that have them, in parts.

use std::ops::Range;

use sardonyx_passes::{Device, Form};
use sardonyx_runtime::{RunOptions, StopFlag};
use sardonyx_tensor::Value;

use super::DeviceSession;
#[cfg(doc)]
use super::Results;
use super::plans::Fitted;
use super::seat::Done;
use super::serve::Served;
use crate::error::{Error, ErrorKind};

/// What a device has of an output of the model after a run ([`Results::Split`]).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OutputPart {
    /// The name of the output.
    pub output: String,
    /// The device. Where several devices have the same part, each gives it.
    pub device: usize,
    /// The sizes of the whole output; none if it is not a tensor.
    pub dims: Vec<usize>,
    /// By axis the indices in the whole output of what the device has, as ranges in their order.
    pub ranges: Vec<Vec<Range<usize>>>,
    /// What the device has: for a tensor, of each axis as many elements as its ranges have indices.
    pub value: Value,
}

impl OutputPart {
    fn of(
        (output, device): (&str, Device),
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

    /// Whether this is all of the output.
    pub fn is_whole(&self) -> bool {
        let mut axes = self.ranges.iter().zip(&self.dims);
        axes.all(|(ranges, size)| *size == 0 || matches!(&ranges[..], [all] if *all == (0..*size)))
    }
}

impl DeviceSession {
    /// Runs the model on each of several sets of inputs, as [`DeviceSession::run_many`], and leaves
    /// outputs on the devices that have them. For each set, returns the parts of the devices of
    /// this process; other workers are handed theirs by [`DeviceSession::serve_split`]. The session
    /// is made with [`Results::Split`].
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
    /// Those of [`DeviceSession::run_many`]; [`ErrorKind::Input`] for a session that is made with
    /// other results.
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
            let message = "the session gathers the outputs of runs";
            return Err(Error::new(ErrorKind::Input, message)
                .with_help("make it with Results::Split, or call 'run_many'"));
        }
        let found = self.run_all(runs, options, false)?;
        Ok(found.into_iter().map(|found| found.parts).collect())
    }

    /// Serves runs like [`DeviceSession::serve`], and calls `take` with the parts that the devices
    /// of this process have of the outputs of each run ([`Results::Split`]).
    ///
    /// # Errors
    ///
    /// Those of [`DeviceSession::serve`].
    pub fn serve_split(
        &self,
        stop: &StopFlag,
        mut take: impl FnMut(Vec<OutputPart>),
    ) -> Result<(), Error> {
        self.serve_all(stop, &mut |served| {
            if let Served::Parts(parts) = served {
                take(parts);
            }
        })
    }

    /// Refuses a session that leaves outputs on the devices.
    pub(crate) fn check_gathers(&self) -> Result<(), Error> {
        if self.crew.splits_outputs() {
            let message = "the session leaves the outputs of runs on the devices";
            return Err(Error::new(ErrorKind::Input, message)
                .with_help("call 'run_split', or make it with Results::First"));
        }
        Ok(())
    }

    /// What devices of this process have of the outputs of a run.
    pub(super) fn output_parts(
        &self,
        fitted: &Fitted,
        done: &mut [(Device, Done)],
    ) -> Vec<OutputPart> {
        let mut parts = Vec::new();
        for (index, port) in self.outputs().iter().enumerate() {
            let Some((form, dims)) = fitted.prepared.plan.form_of_output(index) else { continue };
            let dims = dims.and_then(|dims| fitted.numbers.of(&dims));
            for (device, own) in done.iter_mut() {
                let Some(value) = own.given.get_mut(index).and_then(Option::take) else { continue };
                let place = (port.name(), *device);
                parts.push(OutputPart::of(place, form, dims.as_deref(), value));
            }
        }
        parts
    }
}
