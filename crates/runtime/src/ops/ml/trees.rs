//! Ensembles of decision trees: one kernel for `TreeEnsemble` and for the two operators that it
//! replaces. Those are bound in their own form, as the newest one has neither classes nor several
//! weights per leaf.

mod listed;
mod newest;

use half::f16;
use sardonyx_kernels::trees::{
    Aggregate, Ensemble, Fault, Finish, Outputs, Rows, Scores, TreeMemory, Trees,
};
use sardonyx_model::Dim;
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{CastOptions, DataType, TensorView, cast, shape::elems};

use super::labels::Labels;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

pub(crate) use listed::{bind_classifier, bind_regressor};
pub(crate) use newest::bind;

/// Returns the error of an invalid node.
macro_rules! refuse {
    ($($arg:tt)*) => {
        return Err(crate::error::BindError::Invalid(format!($($arg)*)))
    };
}
use refuse;

/// Limit: targets of an ensemble, as the weights of a leaf are counted in 32 bits.
const MOST_TARGETS: usize = i32::MAX as usize;

struct Predict {
    trees: Trees,
    finish: Finish,
    targets: usize,
    /// Type of the scores.
    elem: DataType,
    /// Classes of a classifier, whose scores are the second output.
    classes: Option<Classes>,
}

/// Outputs of a classifier.
struct Classes {
    labels: Labels,
    scores: OutputScores,
}

/// Scores that a classifier outputs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputScores {
    All,
    /// The second of two scores: the first class is unnamed and has score 0.
    Second,
}

impl Kernel for Predict {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let x = call.tensor(0)?;
        let &[rows, columns] = x.dims() else {
            fail!("the features must have rank 2, not {}", x.rank());
        };
        let (read, x) = (self.trees.columns(), features(x)?);
        if read > columns {
            fail!(
                "attribute 'nodes_featureids' has column {}, but input 0 has {columns} columns",
                read - 1
            );
        }
        let exec = call.exec;
        let [keys, sums] = self.trees.scratch(exec.pool, rows);
        let mut keys = call.scratch_uninit::<u64>(keys)?;
        let mut sums = call.scratch_uninit::<f64>(sums)?;
        let scratch = TreeMemory { keys: &mut keys, sums: &mut sums };
        let dims = [rows, self.finish.columns(self.targets)];
        let count = elems(&dims)?;
        let Some(classes) = &self.classes else {
            let scores = match self.elem {
                DataType::Float => Scores::Single(call.output_slice(0, &dims)?),
                DataType::Double => Scores::Double(call.output_slice(0, &dims)?),
                _ => Scores::Half(call.output_slice::<f16>(0, &dims)?),
            };
            let out = Outputs { scores, best: None };
            self.trees.predict(exec, [rows, columns].into(), x, &self.finish, out, scratch)?;
            return Ok(());
        };
        let mut best = call.scratch::<i64>(if call.has_output(0) { rows } else { 0 })?;
        let is_part = call.has_output(1) && classes.scores == OutputScores::Second;
        let mut both = call.scratch::<f32>(if is_part { count } else { 0 })?;
        let scores = if is_part {
            Scores::Single(&mut both)
        } else if call.has_output(1) {
            Scores::Single(call.output_slice(1, &dims)?)
        } else {
            Scores::Unwanted
        };
        let out = Outputs { scores, best: call_best(&mut best, rows) };
        self.trees.predict(exec, [rows, columns].into(), x, &self.finish, out, scratch)?;
        if is_part {
            let kept = call.output_slice::<f32>(1, &[rows, 1])?;
            kept.iter_mut().zip(both.chunks_exact(2)).for_each(|(kept, row)| *kept = row[1]);
        }
        if best.len() != rows {
            return Ok(());
        }
        classes.labels.write(call, &best)
    }

    fn describe(&self) -> String {
        let what = if self.classes.is_some() { "classes" } else { "numbers" };
        format!("{what} of {} trees", self.trees.count())
    }
}

/// Returns the memory for the best class of each row, if that output has a reader.
fn call_best(best: &mut [i64], rows: usize) -> Option<&mut [i64]> {
    Some(best).filter(|best| best.len() == rows)
}

fn features<'a>(x: &TensorView<'a>) -> Result<Rows<'a>, KernelError> {
    Ok(match x.data_type() {
        DataType::Float16 => Rows::Half(x.as_slice()?),
        DataType::Float => Rows::Single(x.as_slice()?),
        DataType::Double => Rows::Double(x.as_slice()?),
        DataType::Int32 => Rows::Short(x.as_slice()?),
        DataType::Int64 => Rows::Long(x.as_slice()?),
        other => fail!("the features have type {}", other.name()),
    })
}

/// Ensemble read from a node's attributes.
struct ReadEnsemble {
    ensemble: Ensemble,
    finish: Finish,
    elem: DataType,
    classes: Option<Classes>,
}

impl ReadEnsemble {
    /// Makes the kernel. `way` describes a fault of a split for the error.
    fn kernel(
        self,
        site: &Site<'_>,
        way: impl Fn(Fault) -> String,
    ) -> Result<Box<dyn Kernel>, BindError> {
        let ReadEnsemble { ensemble, finish, elem, classes } = self;
        let columns = match site.shape(0).map(|shape| &shape[..]) {
            Some([_, Dim::Known(columns)]) => usize::try_from(*columns).ok(),
            _ => None,
        };
        let mut splits = ensemble.splits.iter();
        if let Some(columns) = columns
            && let Some(split) = splits.find(|split| split.feature >= columns)
        {
            refuse!(
                "attribute 'nodes_featureids' has column {}, but input 0 has {columns} columns",
                split.feature
            );
        }
        let trees = Trees::grow(&ensemble).map_err(|fault| BindError::Invalid(way(fault)))?;
        let targets = ensemble.targets;
        Ok(Box::new(Predict { trees, finish, targets, elem, classes }))
    }
}

/// Returns the greatest finite number of a float type.
fn greatest(elem: DataType) -> f64 {
    match elem {
        DataType::Float16 => f16::MAX.into(),
        DataType::Double => f64::MAX,
        _ => f32::MAX.into(),
    }
}

/// Numbers, and whether they were stored in 64 bits.
type Numbers = (Vec<f64>, bool);

/// Returns the numbers of an optional tensor attribute.
fn tensor(site: &Site<'_>, name: &str) -> Result<Option<Numbers>, BindError> {
    let tensor = match site.attributes.get(name) {
        None => return Ok(None),
        Some(AttrValue::Tensor(tensor)) => tensor,
        Some(_) => refuse!("attribute '{name}' is not a readable tensor"),
    };
    let elem = tensor.data_type();
    if elem == DataType::String {
        refuse!("attribute '{name}' has type {}", elem.name());
    }
    let wide = cast(&tensor, DataType::Double, CastOptions::default())?;
    Ok(Some((wide.to_vec::<f64>()?, elem == DataType::Double)))
}

/// Refuses a list that has not as many elements as another.
fn demand_length(name: &str, len: usize, other: &str, expected: usize) -> Result<(), BindError> {
    if len != expected {
        refuse!("attribute '{name}' has {len} elements, but attribute '{other}' has {expected}");
    }
    Ok(())
}

/// Converts an element of a list to an index below `count`.
fn place(name: &str, index: usize, value: i64, count: usize, of: &str) -> Result<usize, BindError> {
    match usize::try_from(value) {
        Ok(place) if place < count => Ok(place),
        _ => refuse!("attribute '{name}': element {index} is {value}, but there are {count} {of}"),
    }
}

/// Converts an element of `nodes_featureids` to an index.
fn feature(index: usize, value: i64) -> Result<usize, BindError> {
    place("nodes_featureids", index, value, i32::MAX as usize, "columns at most")
}

/// Returns the attribute `n_targets`.
fn targets(site: &Site<'_>) -> Result<usize, BindError> {
    let count = site.need_int("n_targets")?;
    match usize::try_from(count) {
        Ok(targets) if (1..=MOST_TARGETS).contains(&targets) => Ok(targets),
        _ => refuse!("attribute 'n_targets' is {count}, not from 1 to {MOST_TARGETS}"),
    }
}

/// Values of `aggregate_function`, in the order by which `TreeEnsemble` numbers them.
const AGGREGATES: [(&str, Aggregate); 4] = [
    ("AVERAGE", Aggregate::Average),
    ("SUM", Aggregate::Sum),
    ("MIN", Aggregate::Min),
    ("MAX", Aggregate::Max),
];

/// Returns the list entry with the number that an attribute holds.
fn find_numbered<T: Copy>(site: &Site<'_>, name: &str, list: &[(&str, T)]) -> Result<T, BindError> {
    let number = site.need_int(name)?;
    match usize::try_from(number).ok().and_then(|number| list.get(number)) {
        Some((_, value)) => Ok(*value),
        None => refuse!("attribute '{name}' is {number}, not from 0 to {}", list.len() - 1),
    }
}

#[cfg(test)]
mod tests;
