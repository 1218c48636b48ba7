//! Runs that read inputs and write outputs in the memory of numpy arrays.
//!
//! A run of a microsecond would spend more time copying its inputs and outputs. It keeps the GIL,
//! so that no Python code runs between the first read of an array's fields and the last write. A
//! longer run releases the GIL, and writes outputs only to arrays that they are bound to.

use std::marker::PhantomData;
use std::ops::Range;
use std::slice;

use pyo3::PyErr;
use pyo3::prelude::*;
use sardonyx::{DataType, Error, RunOptions, Session, TensorView, TensorViewMut, Type, Value};
use smallvec::SmallVec;

use super::numpy::{DenseArray, SmallArray};
use crate::session::arrays::find_interface;
use crate::session::engine::{Objects, OutputSelection};
use crate::session::errors::to_exception;
use crate::session::give;

/// Runs a session on small arrays in place. Writes outputs to new arrays, or to their destination
/// arrays unless these overlap other memory of the run. Returns the outputs that are wanted, in
/// order, or `None` without having run if an input is not a small numpy array or an output is
/// wanted twice.
///
/// # Errors
///
/// The error of the run, as an exception.
pub(crate) fn run_small<'py>(
    py: Python<'py>,
    session: &Session,
    given: &[(usize, Bound<'py, PyAny>)],
    wanted: OutputSelection<'_, 'py>,
) -> Option<Result<Objects<'py>, PyErr>> {
    let numpy = find_interface(py)?;
    let ports = session.inputs();
    let mut views: SmallVec<[(&str, TensorView<'_>); 2]> = SmallVec::new();
    for (index, object) in given {
        let port = &ports[*index];
        if !matches!(port.ty(), None | Some(Type::Tensor(_))) {
            return None;
        }
        let SmallArray { data_type, dims, bytes } = numpy.read_small(object)?;
        views.push((port.name(), TensorView::over(data_type, dims, bytes).ok()?));
    }
    if wanted.has_duplicates() {
        return None;
    }
    let count = wanted.numbers.map_or(session.outputs().len(), <[usize]>::len);
    let mut outputs: SmallVec<[Option<Bound<'py, PyAny>>; 4]> = SmallVec::new();
    outputs.resize_with(count, || None);
    let is_bound = wanted.into.iter().any(Option::is_some);
    let mut lent = Occupied::from_inputs(if is_bound { &views } else { &[] });
    let lend = |number: usize, data_type, dims: &[usize]| {
        let place = wanted.find_position(number)?;
        let (array, start, len) = match wanted.into.get(place) {
            Some(Some(into)) => {
                let found = numpy.describe(into)?;
                let fits = found.data_type == data_type && found.dims == dims;
                if !fits || !found.is_writable || !lent.occupy(&found) {
                    return None;
                }
                (into.clone(), found.start, found.len)
            }
            _ => {
                let elems: usize = dims.iter().product();
                let len = elems.checked_mul(data_type.element_bytes()?)?;
                let (array, start) = numpy.make_array(py, data_type, dims, len).ok().flatten()?;
                // SAFETY: the new array has `len` bytes.
                unsafe { start.write_bytes(0, len) };
                (array, start, len)
            }
        };
        // SAFETY: the elements of the array are contiguous from `start` on, initialized, and stay
        // there, because only Python code moves them and the GIL is kept. No other reference to
        // them exists here: a new array has no other owner, and `occupy` has checked that any
        // other array is disjoint from the inputs and from all destinations before it.
        let bytes = unsafe { slice::from_raw_parts_mut(start, len) };
        let memory = TensorViewMut::new(data_type, dims, bytes).ok()?;
        outputs[place] = Some(array);
        Some(memory)
    };
    let values = match session.run_lending(&views, &RunOptions::new(), lend) {
        Ok(values) => values,
        Err(error) => return Some(Err(to_exception(py, &error))),
    };
    for (number, value) in values.into_iter().enumerate() {
        if let (Some(value), Some(place)) = (value, wanted.find_position(number)) {
            match give::to_python(py, value) {
                Ok(object) => outputs[place] = Some(object),
                Err(error) => return Some(Err(error)),
            }
        }
    }
    Some(Ok(outputs.into_iter().flatten().collect()))
}

/// Run that releases the GIL and writes outputs to destination arrays, borrowed together with the
/// inputs.
pub(crate) struct BoundRun<'a> {
    /// Names and values of the inputs.
    inputs: Vec<(&'a str, TensorView<'a>)>,
    /// Arrays that outputs are written to.
    destinations: Vec<Destination>,
    /// Borrow of the destination arrays, which must outlive the run.
    arrays: PhantomData<&'a ()>,
}

/// Array that an output is written to.
struct Destination {
    /// Index of the output.
    number: usize,
    /// Element type of the array.
    data_type: DataType,
    /// Shape of the array.
    dims: Vec<usize>,
    /// Memory of the array; `None` once it has been lent to the run.
    memory: Option<Memory>,
}

/// Address and length in bytes of writable memory.
struct Memory {
    start: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to an array that is held, and is lent to one thread at a time.
unsafe impl Send for Memory {}

impl<'a> BoundRun<'a> {
    /// Prepares a run that writes outputs to their destination arrays, as far as these are
    /// contiguous and disjoint from the inputs and from each other. `None` if no destination is, if
    /// an input is not a tensor, or if an output is wanted twice.
    pub(crate) fn new(
        py: Python<'_>,
        inputs: &'a [(&'a str, Value)],
        wanted: OutputSelection<'a, '_>,
    ) -> Option<BoundRun<'a>> {
        let numpy = find_interface(py)?;
        if wanted.into.iter().all(Option::is_none) || wanted.has_duplicates() {
            return None;
        }
        let views = inputs.iter().map(|(name, value)| Some((*name, value.as_tensor()?.view())));
        let inputs = views.collect::<Option<Vec<_>>>()?;
        let mut lent = Occupied::from_inputs(&inputs);
        let bound = wanted.numbers.unwrap_or_default().iter().zip(wanted.into);
        let destinations = bound.filter_map(|(number, into)| {
            let array = numpy.describe(into.as_ref()?).filter(|array| array.is_writable)?;
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

    /// Runs the session and returns its outputs; `None` for an output that was written to its
    /// destination array.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run_lending`].
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
            // SAFETY: the elements of the array are contiguous from `start` on, and `arrays` keeps
            // it alive. It is disjoint from the inputs and the other destinations, and is lent
            // once. Python threads that access it meanwhile find unspecified elements, which is
            // allowed as it is for [`BorrowedBuffer`](super::BorrowedBuffer).
            let bytes = unsafe { slice::from_raw_parts_mut(start, len) };
            TensorViewMut::new(data_type, dims, bytes).ok()
        })
    }
}

/// Address ranges that a run reads or writes.
struct Occupied(SmallVec<[Range<usize>; 4]>);

impl Occupied {
    /// Collects the address ranges of the inputs.
    fn from_inputs(inputs: &[(&str, TensorView<'_>)]) -> Occupied {
        let bytes = inputs.iter().filter_map(|(_, view)| view.contiguous_bytes());
        Occupied(bytes.map(|bytes| to_address_range(bytes.as_ptr(), bytes.len())).collect())
    }

    /// Adds the address range of an array unless it overlaps a range of this set. Returns whether
    /// the range was added.
    fn occupy(&mut self, array: &DenseArray<'_>) -> bool {
        let new = to_address_range(array.start, array.len);
        let is_free = self.0.iter().all(|old| old.end <= new.start || new.end <= old.start);
        if is_free {
            self.0.push(new);
        }
        is_free
    }
}

/// Returns the address range of the `len` bytes from `start` on.
fn to_address_range(start: *const u8, len: usize) -> Range<usize> {
    start.addr()..start.addr().saturating_add(len)
}
