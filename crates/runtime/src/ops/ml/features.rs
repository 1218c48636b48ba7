//! Preprocessing of features: scaling, normalizing, imputing, encoding.

use std::borrow::Cow;

use sardonyx_kernels::FeatureLoops;
use sardonyx_kernels::copy::Indices;
use sardonyx_kernels::ml::{self, ColumnRange, FeatureScale, RowNorm};
use sardonyx_kernels::number::Number;
use sardonyx_tensor::{DataType, Dims, Element, shape};
use smallvec::SmallVec;

use super::attributes::{
    demand_per_feature, features, floats, ints, known_features, reals, rows_and_columns, strings,
};
use super::table::{Keys, Table};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::math::for_element;
use crate::ops::tensor::gather::Pick;
use crate::ops::tensor::moves::move_elements;

/// Binds `Scaler`.
pub(crate) fn bind_scaler(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let list = |name: &str, default: f32| {
        let mut list = floats(site, name)?;
        if list.is_empty() {
            list.push(default);
        }
        if let Some(features) = known_features(site) {
            demand_per_feature(name, list.len(), features)?;
        }
        Ok::<_, BindError>(list)
    };
    let (offsets, factors) = (list("offset", 0.0)?, list("scale", 1.0)?);
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => Scaler::<T> {
        offsets: reals(&offsets),
        factors: reals(&factors),
    })
}

struct Scaler<T: Number> {
    offsets: Vec<T::Real>,
    factors: Vec<T::Real>,
}

impl<T: FeatureLoops + Element> Kernel for Scaler<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let features = features(call.tensor(0)?.dims());
        demand_per_feature("offset", self.offsets.len(), features)?;
        demand_per_feature("scale", self.factors.len(), features)?;
        let y = call.output_like::<f32>()?;
        let scale = FeatureScale { offsets: &self.offsets, factors: &self.factors };
        T::scale_features(exec, features, scale, x, y)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("scale features of {}", T::DATA_TYPE)
    }
}

/// Binds `Normalizer`.
pub(crate) fn bind_normalizer(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let norms = [("MAX", RowNorm::Max), ("L1", RowNorm::L1), ("L2", RowNorm::L2)];
    let norm = site.find_named("norm", &norms)?;
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => Normalizer::<T> {
        norm,
        elements: std::marker::PhantomData,
    })
}

struct Normalizer<T> {
    norm: RowNorm,
    elements: std::marker::PhantomData<fn() -> T>,
}

impl<T: FeatureLoops + Element> Kernel for Normalizer<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let [_, width] = rows_and_columns(call.tensor(0)?.dims())?;
        T::normalize_features(exec, self.norm, width, x, call.output_like::<f32>()?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("normalize rows of {}", T::DATA_TYPE)
    }
}

/// Binds `Binarizer`.
pub(crate) fn bind_binarizer(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let threshold = site.float("threshold").unwrap_or(0.0);
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => Binarizer::<T> {
        threshold,
        elements: std::marker::PhantomData,
    })
}

struct Binarizer<T> {
    threshold: f32,
    elements: std::marker::PhantomData<fn() -> T>,
}

impl<T: FeatureLoops + Element> Kernel for Binarizer<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        T::binarize(exec, self.threshold, x, call.output_like::<T>()?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("compare {} with a threshold", T::DATA_TYPE)
    }
}

/// Binds `Imputer`.
pub(crate) fn bind_imputer(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let names = ["imputed_value_floats", "imputed_value_int64s"];
    let (of_floats, of_ints) = (floats(site, names[0])?, ints(site, names[1])?);
    let (name, len) = match (of_floats.len(), of_ints.len()) {
        (0, 0) => fail!("one of the attributes '{}' and '{}' is required", names[0], names[1]),
        (len, 0) => (names[0], len),
        (0, len) => (names[1], len),
        _ => fail!("the node has both '{}' and '{}'", names[0], names[1]),
    };
    if let Some(features) = known_features(site) {
        demand_per_feature(name, len, features)?;
    }
    let replaced_float = site.float("replaced_value_float").unwrap_or(0.0);
    let replaced_int = site.int("replaced_value_int64").unwrap_or(0);
    let is_of_floats = name == names[0];
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => {
        let numbers: Vec<Option<T>> = if is_of_floats {
            of_floats.iter().map(|number| convert_float(*number)).collect()
        } else {
            of_ints.iter().map(|number| convert_int(*number)).collect()
        };
        let missing = if is_of_floats { convert_float(replaced_float) } else { convert_int(replaced_int) };
        let Some(numbers) = numbers.into_iter().collect::<Option<Vec<T>>>() else {
            fail!("attribute '{name}' has an element out of range of {}", T::DATA_TYPE);
        };
        Imputer { name, missing, numbers }
    })
}

/// Converts a float to an element type; `None` if an integer type cannot represent it.
fn convert_float<T: Number>(number: f32) -> Option<T> {
    let wide = f64::from(number);
    let made = T::from_f64(wide);
    (T::IS_FLOAT || made.to_f64() == wide).then_some(made)
}

/// Converts an integer to an element type; `None` if an integer type cannot represent it.
fn convert_int<T: Number + Element>(number: i64) -> Option<T> {
    match T::DATA_TYPE {
        // A conversion by way of f64 would round.
        DataType::Int64 => Some(bytemuck::cast_slice::<i64, T>(&[number])[0]),
        DataType::Int32 => i32::try_from(number).ok().map(|number| T::from_f64(f64::from(number))),
        _ => Some(T::from_f64(number as f64)),
    }
}

struct Imputer<T> {
    /// Attribute that holds the numbers.
    name: &'static str,
    /// Marker of missing elements; `None` if no element can be missing.
    missing: Option<T>,
    numbers: Vec<T>,
}

impl<T: FeatureLoops + Element> Kernel for Imputer<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (exec, x) = (call.exec, call.slice::<T>(0)?);
        let features = features(call.tensor(0)?.dims());
        demand_per_feature(self.name, self.numbers.len(), features)?;
        let y = call.output_like::<T>()?;
        match self.missing {
            Some(missing) => T::impute(exec, features, missing, &self.numbers, x, y)?,
            None => y.copy_from_slice(x),
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("replace missing values of {}", T::DATA_TYPE)
    }
}

/// Binds `OneHotEncoder`.
pub(crate) fn bind_one_hot_encoder(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let (numbers, texts) = (ints(site, "cats_int64s")?, strings(site, "cats_strings")?);
    let (name, keys) = match (numbers.is_empty(), texts.is_empty()) {
        (false, true) => ("cats_int64s", Keys::Ints(Cow::Owned(numbers))),
        (true, false) => ("cats_strings", Keys::Texts(texts)),
        (true, true) => fail!("one of the attributes 'cats_int64s' and 'cats_strings' is required"),
        (false, false) => fail!("the node has both 'cats_int64s' and 'cats_strings'"),
    };
    Ok(Box::new(OneHot {
        categories: keys.len(),
        table: Table::new(name, site.elem(0)?, &keys)?,
        allows_none: site.int("zeros") != Some(0),
    }))
}

struct OneHot {
    table: Table,
    categories: usize,
    /// Whether an element may have no category.
    allows_none: bool,
}

impl Kernel for OneHot {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let view = call.tensor(0)?;
        let (mut dims, len) = (Dims::from(view.dims()), view.len());
        shape::demand_rank(dims.len() + 1)?;
        dims.push(self.categories);
        let mut places = call.scratch::<u32>(len)?;
        self.table.find(call, 0, self.categories as u32, &mut places)?;
        if !self.allows_none
            && let Some(at) = places.iter().position(|place| *place as usize == self.categories)
        {
            let element = call.tensor(0)?.to_tensor()?.element_text(at);
            fail!("element {at}, {element}, is not a category, and attribute 'zeros' is 0");
        }
        let pool = call.exec.pool;
        ml::one_hot(pool, self.categories, &places, call.output_slice::<f32>(0, &dims)?)?;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("one of {} categories", self.categories)
    }
}

/// Binds `ArrayFeatureExtractor`.
pub(crate) fn bind_array_feature_extractor(_: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Extractor))
}

struct Extractor;

impl Kernel for Extractor {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let data = call.tensor(0)?.clone();
        let columns = call.slice::<i64>(1)?;
        let Some((axis, outer)) = data.dims().split_last() else {
            fail!("the data must have rank 1 or more, not 0");
        };
        let mut dims = Dims::from(outer);
        if dims.is_empty() {
            // A vector becomes one row of a matrix.
            dims.push(1);
        }
        let split = [dims.iter().product(), *axis, 1];
        dims.push(columns.len());
        let pick = Pick { axis: data.rank() - 1, split, indices: Indices::Long(columns) };
        move_elements(call, 0, &dims, &[data], &pick)
    }

    fn describe(&self) -> String {
        "gather columns".to_string()
    }
}

/// Binds `FeatureVectorizer`.
pub(crate) fn bind_feature_vectorizer(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let lengths = ints(site, "inputdimensions")?;
    if !lengths.is_empty() && lengths.len() != site.inputs.len() {
        fail!(
            "attribute 'inputdimensions' has {} elements for {} inputs",
            lengths.len(),
            site.inputs.len()
        );
    }
    let counts = lengths.iter().map(|length| {
        usize::try_from(*length).map_err(|_| {
            let what = format!("attribute 'inputdimensions' has the invalid element {length}");
            BindError::Invalid(what)
        })
    });
    let counts = counts.collect::<Result<Vec<usize>, BindError>>()?;
    for_element!(site, site.elem(0)?, [f32, f64, i32, i64], T => Vectorizer::<T> {
        counts,
        elements: std::marker::PhantomData,
    })
}

struct Vectorizer<T> {
    /// Number of columns of each input; empty if inputs keep theirs.
    counts: Vec<usize>,
    elements: std::marker::PhantomData<fn() -> T>,
}

impl<T: FeatureLoops + Element> Kernel for Vectorizer<T> {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let mut parts: SmallVec<[(&[T], usize, usize); 8]> = SmallVec::new();
        let (mut rows, mut width) = (0, 0usize);
        for index in 0..call.input_count() {
            let x = call.slice::<T>(index)?;
            let [found, columns] = rows_and_columns(call.tensor(index)?.dims())?;
            if index > 0 && found != rows {
                fail!("input {index} has {found} rows, but input 0 has {rows}");
            }
            rows = found;
            let count = self.counts.get(index).copied().unwrap_or(columns);
            width = width.saturating_add(count);
            parts.push((x, columns, count));
        }
        let exec = call.exec;
        let y = call.output_slice::<f32>(0, &[rows, width])?;
        let mut at = 0;
        for (x, columns, count) in parts {
            T::place_columns(exec, columns, ColumnRange { width, start: at, count }, x, y)?;
            at += count;
        }
        Ok(())
    }

    fn describe(&self) -> String {
        format!("concatenate features of {}", T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests;
