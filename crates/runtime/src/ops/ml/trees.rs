//! Ensembles of decision trees: one kernel for `TreeEnsemble` and for the two operators that it
//! replaces. Those are bound as they are: the newest form has neither classes nor several weights
//! for a leaf.

mod listed;
mod newest;

use half::f16;
use sardonyx_kernels::trees::{Aggregate, Ensemble, Fault, Finish, Outputs, Rows, Scores, Trees};
use sardonyx_model::Dim;
use sardonyx_ops::AttrValue;
use sardonyx_tensor::{CastOptions, DataType, TensorView, cast, shape::elems};

use super::labels::Labels;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};

pub(crate) use listed::{bind_classifier, bind_regressor};
pub(crate) use newest::bind;

/// Refuses a node.
macro_rules! refuse {
    ($($arg:tt)*) => {
        return Err(crate::error::BindError::Invalid(format!($($arg)*)))
    };
}
use refuse;

/// Limit: most targets of an ensemble: those of a leaf are counted in 32 bits.
const MOST_TARGETS: usize = i32::MAX as usize;

struct Predict {
    trees: Trees,
    finish: Finish,
    targets: usize,
    /// The type of the scores.
    elem: DataType,
    /// Of a classifier, whose scores are the second output.
    classes: Option<Classes>,
}

/// What a classifier gives.
struct Classes {
    labels: Labels,
    scores: Kept,
}

/// The scores that a classifier gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    All,
    /// Of two, that of the second: the only class stands beside one without a name, whose score
    /// is 0.
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
        let mut keys = call.scratch_of_any::<u64>(keys)?;
        let mut sums = call.scratch_of_any::<f64>(sums)?;
        let scratch = (&mut keys[..], &mut sums[..]);
        let dims = [rows, self.finish.columns(self.targets)];
        let count = elems(&dims)?;
        let Some(classes) = &self.classes else {
            let scores = match self.elem {
                DataType::Float => Scores::Single(call.output_slice(0, &dims)?),
                DataType::Double => Scores::Double(call.output_slice(0, &dims)?),
                _ => Scores::Half(call.output_slice::<f16>(0, &dims)?),
            };
            let out = Outputs { scores, best: None };
            self.trees.predict(exec, [rows, columns], x, &self.finish, out, scratch)?;
            return Ok(());
        };
        let mut best = call.scratch::<i64>(if call.has_output(0) { rows } else { 0 })?;
        let is_part = call.has_output(1) && classes.scores == Kept::Second;
        let mut both = call.scratch::<f32>(if is_part { count } else { 0 })?;
        let scores = if is_part {
            Scores::Single(&mut both)
        } else if call.has_output(1) {
            Scores::Single(call.output_slice(1, &dims)?)
        } else {
            Scores::Unwanted
        };
        let out = Outputs { scores, best: call_best(&mut best, rows) };
        self.trees.predict(exec, [rows, columns], x, &self.finish, out, scratch)?;
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

/// Where the best class of each row goes, if somebody wants it.
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

/// What bindings find out of a node.
struct Found {
    ensemble: Ensemble,
    finish: Finish,
    elem: DataType,
    classes: Option<Classes>,
}

impl Found {
    /// The kernel. `way` says of a split that it cannot be where it is.
    fn kernel(
        self,
        site: &Site<'_>,
        way: impl Fn(Fault) -> String,
    ) -> Result<Box<dyn Kernel>, BindError> {
        let Found { ensemble, finish, elem, classes } = self;
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

/// The greatest number of a type of floats.
fn greatest(elem: DataType) -> f64 {
    match elem {
        DataType::Float16 => f16::MAX.into(),
        DataType::Double => f64::MAX,
        _ => f32::MAX.into(),
    }
}

/// Numbers and whether they have 64 bits.
type Numbers = (Vec<f64>, bool);

/// An attribute that is a tensor of numbers, if it is there.
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

/// Demands that a list has as many elements as another.
fn same_length(name: &str, len: usize, other: &str, expected: usize) -> Result<(), BindError> {
    if len != expected {
        refuse!("attribute '{name}' has {len} elements, but attribute '{other}' has {expected}");
    }
    Ok(())
}

/// An element of a list that must be the place of something.
fn place(name: &str, index: usize, value: i64, count: usize, of: &str) -> Result<usize, BindError> {
    match usize::try_from(value) {
        Ok(place) if place < count => Ok(place),
        _ => refuse!("attribute '{name}': element {index} is {value}, but there are {count} {of}"),
    }
}

/// An element of `nodes_featureids`.
fn feature(index: usize, value: i64) -> Result<usize, BindError> {
    place("nodes_featureids", index, value, i32::MAX as usize, "columns at most")
}

/// `n_targets`
fn targets(site: &Site<'_>) -> Result<usize, BindError> {
    let count = site.need_int("n_targets")?;
    match usize::try_from(count) {
        Ok(targets) if (1..=MOST_TARGETS).contains(&targets) => Ok(targets),
        _ => refuse!("attribute 'n_targets' is {count}, not from 1 to {MOST_TARGETS}"),
    }
}

/// What `aggregate_function` may be. `TreeEnsemble` counts them from 0.
const AGGREGATES: [(&str, Aggregate); 4] = [
    ("AVERAGE", Aggregate::Average),
    ("SUM", Aggregate::Sum),
    ("MIN", Aggregate::Min),
    ("MAX", Aggregate::Max),
];

/// The value of an attribute that counts one of a list.
fn counted<T: Copy>(site: &Site<'_>, name: &str, list: &[(&str, T)]) -> Result<T, BindError> {
    let number = site.need_int(name)?;
    match usize::try_from(number).ok().and_then(|number| list.get(number)) {
        Some((_, value)) => Ok(*value),
        None => refuse!("attribute '{name}' is {number}, not from 0 to {}", list.len() - 1),
    }
}

#[cfg(test)]
mod tests;
