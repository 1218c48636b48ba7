//! Training data: arrays by the names of inputs, split into batches of examples.

use std::fs;
use std::path::{Path, PathBuf};

use sardonyx::tool::filling::SplitMix64;
use sardonyx::tool::{CastOptions, cast, npz};
use sardonyx::value::Buffer;
use sardonyx::{DataType, Dim, Error, ErrorKind, Port, Tensor, Trainer};

use crate::failure::Failure;
use crate::files::{self, FileKind};
use crate::inputs;

/// Training data for the graph inputs of training steps.
pub(super) struct Data {
    arrays: Vec<Array>,
    /// Number of examples in an epoch; 1 without batches.
    examples: usize,
    /// Number of examples in a batch; 1 without batches.
    batch: usize,
    /// Whether the last batch of an epoch is left out if it is smaller than the others.
    drops_rest: bool,
}

/// Training data for one graph input.
struct Array {
    name: String,
    tensor: Tensor,
    /// Whether the array is split into batches along its first axis, which counts examples.
    is_cut: bool,
}

/// Values for the graph inputs of one training step.
pub(super) struct Inputs {
    values: Vec<(String, Tensor)>,
    /// Number of examples in the batch.
    examples: usize,
}

impl Inputs {
    /// Returns all inputs, for a step that runs all entries of the training information.
    pub(super) fn to_values(&self) -> Vec<(String, Tensor)> {
        self.values.clone()
    }

    /// Returns the inputs that a step of one entry of the training information takes.
    pub(super) fn for_entry(
        &self,
        trainer: &Trainer,
        entry: usize,
    ) -> Result<Vec<(String, Tensor)>, Error> {
        let names: Vec<&str> = trainer.step_inputs(entry)?.map(Port::name).collect();
        let taken = self.values.iter().filter(|(name, _)| names.contains(&name.as_str()));
        Ok(taken.cloned().collect())
    }

    /// Returns the number of examples in the batch.
    pub(super) fn examples(&self) -> usize {
        self.examples
    }
}

/// Returns the graph inputs of the training steps of `entries`, each input once.
fn list_ports<'t>(trainer: &'t Trainer, entries: &[usize]) -> Result<Vec<&'t Port>, Failure> {
    let mut ports: Vec<&Port> = Vec::new();
    for entry in entries {
        for port in trainer.step_inputs(*entry)? {
            if !ports.iter().any(|known| known.name() == port.name()) {
                ports.push(port);
            }
        }
    }
    Ok(ports)
}

impl Data {
    /// Reads the training data from a `.npz` file or a directory of `.npy` files. Fails if a
    /// required input has no array. Arrays with another element type than the input are cast if
    /// `converts`, else refused.
    pub(super) fn read(
        path: Option<&Path>,
        trainer: &Trainer,
        entries: &[usize],
        converts: bool,
    ) -> Result<Data, Failure> {
        let ports = list_ports(trainer, entries)?;
        let files = match path {
            Some(path) if path.is_dir() => read_directory(path)?,
            Some(path) => read_archive(path, &ports)?,
            None => Vec::new(),
        };
        let mut arrays = Vec::new();
        for (name, bytes) in files {
            let Some(port) = ports.iter().find(|port| port.name() == name) else {
                let names: Vec<&str> = ports.iter().map(|port| port.name()).collect();
                let failure = Failure::new(format!("no training step has an input '{name}'"));
                let failure = failure.code(ErrorKind::Input);
                if trainer.state_types().any(|(variable, _)| variable == name) {
                    return Err(failure.help(format!(
                        "'{name}' is a state variable, which --state sets; the inputs are: {}",
                        names.join(", ")
                    )));
                }
                return Err(match sardonyx::tool::suggest::closest(&name, names.iter().copied()) {
                    Some(near) => failure.help(format!("did you mean '{near}'?")),
                    None => failure.help(format!(
                        "use one of the inputs of training steps: {}",
                        names.join(", ")
                    )),
                });
            };
            let tensor = inputs::read_array(&bytes, port, converts)?;
            arrays.push(Array { name, tensor, is_cut: false });
        }
        let mut required = ports.iter().filter(|port| port.is_required());
        let missing = required.find(|port| !arrays.iter().any(|array| array.name == port.name()));
        if let Some(port) = missing {
            let failure = Failure::new(format!("the data has no array for the input '{port}'"));
            return Err(failure.code(ErrorKind::Input).help(advise_on_data(&ports)));
        }
        Ok(Data { arrays, examples: 1, batch: 1, drops_rest: false })
    }

    /// Splits the arrays into batches along their first axis, except for scalars and the arrays in
    /// `whole`. Without `batch` each step gets all data.
    pub(super) fn split_into_batches(
        mut self,
        batch: Option<u64>,
        whole: &[String],
        trainer: &Trainer,
        entries: &[usize],
    ) -> Result<Data, Failure> {
        let Some(batch) = batch else { return Ok(self) };
        if let Some(name) =
            whole.iter().find(|name| !self.arrays.iter().any(|array| array.name == **name))
        {
            return Err(Failure::new(format!("the data has no array '{name}'")));
        }
        let ports = list_ports(trainer, entries)?;
        let mut first: Option<(String, usize)> = None;
        for array in &mut self.arrays {
            let Some(examples) = array.tensor.dims().first().copied() else { continue };
            if whole.contains(&array.name) {
                continue;
            }
            check_batch_type(&array.name, array.tensor.data_type())?;
            array.is_cut = true;
            match &first {
                Some((name, other)) if *other != examples => {
                    let message = format!(
                        "the array '{name}' has {other} examples along its first axis, but '{}' has {examples}",
                        array.name
                    );
                    return Err(Failure::new(message).code(ErrorKind::Input).help(
                        "use --whole INPUT for arrays whose first axis is not the examples",
                    ));
                }
                Some(_) => {}
                None => first = Some((array.name.clone(), examples)),
            }
        }
        let Some((name, examples)) = first else {
            return Err(Failure::new("the data has no array with examples along its first axis")
                .help("remove --batch"));
        };
        if examples == 0 {
            return Err(
                Failure::new(format!("the array '{name}' has no examples")).code(ErrorKind::Input)
            );
        }
        self.batch = usize::try_from(batch).unwrap_or(usize::MAX).min(examples);
        self.examples = examples;
        // An input of fixed size cannot take a smaller last batch.
        self.drops_rest = self.arrays.iter().any(|array| {
            let port = ports.iter().find(|port| port.name() == array.name);
            let dim = port.and_then(|port| port.ty()?.shape()?.first());
            array.is_cut && matches!(dim, Some(Dim::Known(_)))
        });
        Ok(self)
    }

    /// Sets the graph input `learning_rate`, which `sardonyx add-training` adds to models. Fails if
    /// no training step has this input.
    pub(super) fn set_learning_rate(
        &mut self,
        rate: f64,
        trainer: &Trainer,
        entries: &[usize],
    ) -> Result<(), Failure> {
        const NAME: &str = "learning_rate";
        let ports = list_ports(trainer, entries)?;
        let port = ports.iter().find(|port| port.name() == NAME);
        let ty = port.and_then(|port| Some((port.ty()?.elem()?, port.ty()?.shape()?)));
        let Some((elem, shape)) = ty else {
            let failure = Failure::new(format!("no training step has an input '{NAME}'"));
            let inputs: Vec<String> = ports.iter().map(|port| port.to_string()).collect();
            return Err(failure.code(ErrorKind::Input).help(format!(
                "`sardonyx add-training` adds such an input; other models may have the rate in an \
                 input of another name, which --data sets, or in a constant; the inputs are: {}",
                inputs.join(", ")
            )));
        };
        if self.arrays.iter().any(|array| array.name == NAME) {
            let failure = Failure::new(format!(
                "the data has an array '{NAME}', which --learning-rate sets too"
            ));
            return Err(failure.code(ErrorKind::Input).help("remove --learning-rate or the array"));
        }
        let tensor = Tensor::from_vec(vec![1; shape.len()], vec![rate])?;
        let tensor = cast(&tensor, elem, CastOptions::default())?;
        let held = cast(&tensor, DataType::Double, CastOptions::default())?;
        if held.reshape([])?.item::<f64>().is_ok_and(|held| !held.is_finite()) {
            let failure =
                Failure::new(format!("the learning rate {rate:?} is too large for {elem}"));
            return Err(failure.code(ErrorKind::Input).help("use a rate such as 0.001"));
        }
        self.arrays.push(Array { name: NAME.to_string(), tensor, is_cut: false });
        Ok(())
    }

    /// Counts the batches in an epoch.
    pub(super) fn count_batches(&self) -> usize {
        self.count_batches_after(0)
    }

    /// Counts the batches that are left in an epoch after `taken` examples.
    pub(super) fn count_batches_after(&self, taken: usize) -> usize {
        let left = self.examples.saturating_sub(taken);
        if self.drops_rest { left / self.batch } else { left.div_ceil(self.batch) }
    }

    /// Returns the order of the examples in an epoch: shuffled by `seed`, or without a seed the
    /// order of the data. The shuffle depends only on the seed and the number of the epoch, from 0,
    /// so that training that is resumed goes on with the order of an uninterrupted one.
    pub(super) fn order_examples(&self, seed: Option<u64>, epoch: u64) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.examples).collect();
        let Some(seed) = seed else { return order };
        let drawn = (self.examples as u64).saturating_sub(1);
        let random = SplitMix64::new(seed, "").skip_numbers(drawn.wrapping_mul(epoch));
        // Fisher-Yates shuffle: swaps each example with itself or one before it.
        for (index, drawn) in (1..order.len()).rev().zip(random) {
            let other = drawn % (index as u64 + 1);
            order.swap(index, usize::try_from(other).unwrap_or(index));
        }
        order
    }

    /// Counts the examples of an epoch that are in no batch; `None` if all examples are in batches.
    pub(super) fn count_left_out(&self) -> Option<usize> {
        let left = self.examples % self.batch;
        (self.drops_rest && left > 0).then_some(left)
    }

    /// Returns the inputs of the batch that begins after `taken` examples of an epoch.
    pub(super) fn make_batch(&self, order: &[usize], taken: usize) -> Result<Inputs, Failure> {
        let chosen = &order[taken..order.len().min(taken + self.batch)];
        let mut values = Vec::with_capacity(self.arrays.len());
        for array in &self.arrays {
            let value =
                if array.is_cut { copy_rows(&array.tensor, chosen)? } else { array.tensor.clone() };
            values.push((array.name.clone(), value));
        }
        Ok(Inputs { values, examples: chosen.len() })
    }
}

/// Copies the `chosen` rows of a tensor along its first axis to a new tensor.
fn copy_rows(tensor: &Tensor, chosen: &[usize]) -> Result<Tensor, Failure> {
    let mut dims = tensor.dims().to_vec();
    let bytes = tensor.bytes();
    let width = bytes.len() / dims[0].max(1);
    dims[0] = chosen.len();
    let mut made = Tensor::zeros(tensor.data_type(), &dims)?;
    if width > 0 {
        let target = made.bytes_mut()?;
        for (row, target) in chosen.iter().zip(target.chunks_exact_mut(width)) {
            target.copy_from_slice(&bytes[row * width..][..width]);
        }
    }
    Ok(made)
}

/// Refuses packed element types, whose rows may not begin and end at byte boundaries.
fn check_batch_type(name: &str, elem: DataType) -> Result<(), Failure> {
    if elem.bits().is_some_and(|bits| bits.is_multiple_of(8)) {
        return Ok(());
    }
    let message = format!("the array '{name}' of {} cannot be split into batches", elem.name());
    Err(Failure::new(message).help(format!("pass the array whole: --whole {name}")))
}

/// Reads the arrays of a `.npz` file by name. Fails for any other kind of file.
fn read_archive(path: &Path, ports: &[&Port]) -> Result<Vec<(String, Buffer)>, Failure> {
    let bytes = files::read(path)?;
    match files::detect_kind(path, bytes.as_slice()) {
        FileKind::Npz => npz::read(&bytes).map_err(|error| Failure::from(error).at(path.display())),
        kind => {
            let what = match kind {
                FileKind::Npy => "expected a .npz file with training data, found an array (.npy)",
                _ => "expected a .npz file with training data",
            };
            let failure = Failure::new(what).code(ErrorKind::Format).at(path.display());
            Err(failure.help(advise_on_data(ports)))
        }
    }
}

/// Returns advice on how to make a file of training data for the graph inputs `ports`.
fn advise_on_data(ports: &[&Port]) -> String {
    /// Maximum number of inputs that the advice names; mostly there are two.
    const SHOWN: usize = 6;
    let needed: Vec<&str> =
        ports.iter().filter(|port| port.is_required()).map(|port| port.name()).collect();
    let shown = &needed[..needed.len().min(SHOWN)];
    let files: Vec<String> = shown.iter().map(|name| format!("{name}.npy")).collect();
    let arrays: Vec<String> = shown.iter().map(|name| format!("{name}={name}")).collect();
    let more = if needed.len() > SHOWN { ", …" } else { "" };
    format!(
        "make a .npz file with an array for each input, in Python numpy.savez(\"data.npz\", {}{more}), \
         or a directory with {}{more}",
        arrays.join(", "),
        files.join(", ")
    )
}

/// Returns the files of training data at `path`: the `.npz` file itself, or the `.npy` files of a
/// directory.
pub(super) fn list_files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let failed = |error| files::io_failure("cannot read", path, &error);
    let mut found = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|suffix| suffix == "npy") {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the `.npy` files of a directory, by file name without suffix.
fn read_directory(path: &Path) -> Result<Vec<(String, Buffer)>, Failure> {
    let mut found = Vec::new();
    for file in list_files(path)? {
        if let Some(name) = file.file_stem().and_then(|stem| stem.to_str()) {
            found.push((name.to_string(), files::read(&file)?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(examples: usize, batch: usize, drops_rest: bool) -> Data {
        Data { arrays: Vec::new(), examples, batch, drops_rest }
    }

    /// Checks that each epoch has an order of all examples that does not depend on whether epochs
    /// before it were run.
    #[test]
    fn the_order_of_an_epoch_does_not_depend_on_others() {
        let data = data(10, 3, false);
        let mut stream = SplitMix64::new(7, "");
        for epoch in 0..5 {
            let order = data.order_examples(Some(7), epoch);
            let mut expected: Vec<usize> = (0..10).collect();
            for index in (1..10).rev() {
                let drawn = stream.next().unwrap() % (index as u64 + 1);
                expected.swap(index, drawn as usize);
            }
            assert_eq!(order, expected, "epoch {epoch}");
            assert_eq!(data.order_examples(None, epoch), (0..10).collect::<Vec<_>>());
        }
    }

    #[test]
    fn batches_are_counted_from_anywhere() {
        for (taken, all, whole) in
            [(0, 4, 3), (1, 3, 3), (3, 3, 2), (9, 1, 0), (10, 0, 0), (99, 0, 0)]
        {
            assert_eq!(data(10, 3, false).count_batches_after(taken), all);
            assert_eq!(data(10, 3, true).count_batches_after(taken), whole);
        }
    }
}
