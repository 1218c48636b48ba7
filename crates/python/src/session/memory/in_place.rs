//! Runs that read and write arrays of numpy where they lie.
//!
//! A run that takes a microsecond is not worth a copy of its inputs, a tensor for each output and a
//! copy of that. It keeps the interpreter, so no code of Python runs between the first look at an
//! array and the last write. A longer run releases it, and writes outputs into the arrays that they
//! are bound to.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use pyo3::PyErr;
use pyo3::prelude::*;
use sardonyx::{DataType, Error, RunOptions, Session, TensorView, TensorViewMut, Type, Value};
use smallvec::SmallVec;

use super::numpy::{DenseArray, SmallArray};
use crate::session::arrays::interface;
use crate::session::engine::{Objects, Wanted};
use crate::session::errors::raised;
use crate::session::give;

/// Runs a session on small arrays, which are read where they lie, and writes outputs into new
/// arrays, or into those that they are bound to if nothing else lies there. Returns the outputs
/// that are wanted, in order. `None` if this is not possible: an input is no small array of numpy,
/// or an output is wanted twice. Nothing has run then.
///
/// # Errors
///
/// An error of the run.
pub(crate) fn run<'py>(
    py: Python<'py>,
    session: &Session,
    given: &[(usize, Bound<'py, PyAny>)],
    wanted: Wanted<'_, 'py>,
) -> Option<Result<Objects<'py>, PyErr>> {
    let numpy = interface(py)?;
    let ports = session.inputs();
    let mut views: SmallVec<[(&str, TensorView<'_>); 2]> = SmallVec::new();
    for (index, object) in given {
        let port = &ports[*index];
        if !matches!(port.ty(), None | Some(Type::Tensor(_))) {
            return None;
        }
        let SmallArray { data_type, dims, bytes } = numpy.small(object)?;
        views.push((port.name(), TensorView::over(data_type, dims, bytes).ok()?));
    }
    if wanted.has_duplicates() {
        return None;
    }
    let count = wanted.numbers.map_or(session.outputs().len(), <[usize]>::len);
    let mut outputs: SmallVec<[Option<Bound<'py, PyAny>>; 4]> = SmallVec::new();
    outputs.resize_with(count, || None);
    let is_bound = wanted.into.iter().any(Option::is_some);
    let mut lent = Occupied::by(if is_bound { &views } else { &[] });
    let lend = |number: usize, data_type, dims: &[usize]| {
        let place = wanted.place_of(number)?;
        let (array, start, len) = match wanted.into.get(place) {
            Some(Some(into)) => {
                let found = numpy.dense(into)?;
                let fits = found.data_type == data_type && found.dims == dims;
                if !fits || !found.is_writable || !lent.occupy(&found) {
                    return None;
                }
                (into.clone(), found.start, found.len)
            }
            _ => {
                let elems: usize = dims.iter().product();
                let len = elems.checked_mul(data_type.element_bytes()?)?;
                let (array, start) = numpy.make(py, data_type, dims, len).ok().flatten()?;
                // SAFETY: a new array of these sizes has as many bytes.
                unsafe { start.write_bytes(0, len) };
                (array, start, len)
            }
        };
        // SAFETY: the elements of an array lie densely from `start` on, and stay while it is held,
        // as the interpreter is kept and only code of Python moves them. They have been written
        // once, and nothing else here refers to them: a new array is known to nobody, and any
        // other lies beside the inputs and beside what has been lent.
        let bytes = unsafe { slice::from_raw_parts_mut(start, len) };
        let memory = TensorViewMut::new(data_type, dims, bytes).ok()?;
        outputs[place] = Some(array);
        Some(memory)
    };
    let values = match session.run_lending(&views, &RunOptions::new(), lend) {
        Ok(values) => values,
        Err(error) => return Some(Err(raised(py, &error))),
    };
    for (number, value) in values.into_iter().enumerate() {
        if let (Some(value), Some(place)) = (value, wanted.place_of(number)) {
            match give::object(py, value) {
                Ok(object) => outputs[place] = Some(object),
                Err(error) => return Some(Err(error)),
            }
        }
    }
    Some(Ok(outputs.into_iter().flatten().collect()))
}

/// Arrays that outputs are bound to, and inputs, for a run that releases the interpreter.
pub(crate) struct BoundRun<'a> {
    inputs: Vec<(&'a str, TensorView<'a>)>,
    destinations: Vec<Destination>,
    /// The arrays, which are held as long as this.
    arrays: PhantomData<&'a ()>,
}

/// An array that takes an output.
struct Destination {
    /// Number of the output.
    number: usize,
    data_type: DataType,
    dims: Vec<usize>,
    /// Memory of the array, which is lent once.
    memory: Option<Memory>,
}

/// Writable bytes.
struct Memory {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is the address of memory that an array has and that one thread at a time is lent.
unsafe impl Send for Memory {}

impl<'a> BoundRun<'a> {
    /// A run with these inputs that writes into the arrays that outputs are bound to, as far as
    /// their elements lie densely, beside the inputs and each other. `None` if there is no such
    /// array, an input is no tensor, or an output is wanted twice.
    pub(crate) fn new(
        py: Python<'_>,
        inputs: &'a [(&'a str, Value)],
        wanted: Wanted<'a, '_>,
    ) -> Option<BoundRun<'a>> {
        let numpy = interface(py)?;
        if wanted.into.iter().all(Option::is_none) || wanted.has_duplicates() {
            return None;
        }
        let views = inputs.iter().map(|(name, value)| Some((*name, value.as_tensor()?.view())));
        let inputs = views.collect::<Option<Vec<_>>>()?;
        let mut lent = Occupied::by(&inputs);
        let bound = wanted.numbers.unwrap_or_default().iter().zip(wanted.into);
        let destinations = bound.filter_map(|(number, into)| {
            let array = numpy.dense(into.as_ref()?).filter(|array| array.is_writable)?;
            lent.occupy(&array).then(|| Destination {
                number: *number,
                data_type: array.data_type,
                dims: array.dims.to_vec(),
                memory: Some(Memory { start: array.start, len: array.len }),
            })
        });
        let destinations: Vec<Destination> = destinations.collect();
        let arrays = PhantomData;
        (!destinations.is_empty()).then_some(BoundRun { inputs, destinations, arrays })
    }

    /// Does the run. Outputs that were written into their arrays are `None`.
    ///
    /// # Errors
    ///
    /// As [`Session::run_lending`].
    pub(crate) fn run(
        mut self,
        session: &Session,
        options: &RunOptions<'_>,
    ) -> Result<Vec<Option<Value>>, Error> {
        let destinations = &mut self.destinations;
        session.run_lending(&self.inputs, options, |number, data_type, dims| {
            let place = destinations.iter_mut().find(|place| place.number == number)?;
            if place.data_type != data_type || place.dims != dims {
                return None;
            }
            let Memory { start, len } = place.memory.take()?;
            // SAFETY: the elements of an array that is held lie densely from `start` on. It lies
            // beside the inputs and the other arrays, and is lent once. Code of Python that uses it
            // meanwhile finds elements of no particular value, as those of [`Lent`](super::Lent).
            let bytes = unsafe { slice::from_raw_parts_mut(start, len) };
            TensorViewMut::new(data_type, dims, bytes).ok()
        })
    }
}

/// Addresses that a run reads or writes.
struct Occupied(SmallVec<[Range<usize>; 4]>);

impl Occupied {
    /// Addresses of inputs.
    fn by(inputs: &[(&str, TensorView<'_>)]) -> Occupied {
        let bytes = inputs.iter().filter_map(|(_, view)| view.contiguous_bytes());
        Occupied(bytes.map(|bytes| addresses(bytes.as_ptr(), bytes.len())).collect())
    }

    /// Adds those of an array, unless some are occupied already.
    fn occupy(&mut self, array: &DenseArray<'_>) -> bool {
        let new = addresses(array.start, array.len);
        let is_free = self.0.iter().all(|old| old.end <= new.start || new.end <= old.start);
        if is_free {
            self.0.push(new);
        }
        is_free
    }
}

/// Addresses of some bytes.
fn addresses(start: *const u8, len: usize) -> Range<usize> {
    start.addr()..start.addr().saturating_add(len)
}
