//! ScatterElements and ScatterND: write elements by index; TensorScatter of packed elements.

use std::marker::PhantomData;

use sardonyx_kernels::copy::{IndexOutOfRange, Indices, RingDims, ScatterInto};
use sardonyx_kernels::number::{Arith, Number};
use sardonyx_kernels::{Failure, MoveLoops, Pool, ScatterLoops};
use sardonyx_tensor::{DataType, Dims, Element, TensorView, shape::normalize_axis};

use super::gather_elements::{check_elements, indices_of};
use super::moves::{Movement, dense, move_elements};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, MemoryRules, Operand, Site, Target};
use crate::ops::math::for_element;
use crate::program::{self, Op};

/// Binds `ScatterElements`.
pub(crate) fn bind_scatter_elements(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Where::Elements(site.need_int("axis")?))
}

/// Lowers `ScatterElements` with sums to an operation that rewrites look into.
pub(crate) fn lower_elements(site: &Site<'_>) -> Result<Op, BindError> {
    if site.string("reduction").as_deref() != Some("add") {
        return Ok(Op::opaque(site));
    }
    Ok(Op::ScatterAdd(Box::new(program::ScatterAdd {
        elem: site.elem(0)?,
        data: site.slot(0)?,
        indices: site.slot(1)?,
        updates: site.slot(2)?,
        axis: site.need_int("axis")?,
    })))
}

/// Selects the kernel of a sum at indices.
pub(crate) fn select_add(
    site: &Site<'_>,
    scatter: &program::ScatterAdd,
) -> Result<Box<dyn Kernel>, BindError> {
    reduce(site, scatter.elem, Where::Elements(scatter.axis), Reduction::Add)
}

/// Binds `ScatterND`.
pub(crate) fn bind_scatter_nd(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    bind(site, Where::Tuples)
}

/// Writes entries of sequences that have no bytes of their own into a copy of the cache.
pub(super) fn write_packed(
    call: &mut Call<'_>,
    axis: i64,
    around: bool,
) -> Result<(), KernelError> {
    Scatter { at: Where::Sequences { axis, around }, in_place: false }.run(call)
}

/// Binds a scatter whose updates replace elements.
fn replace(site: &Site<'_>, at: Where) -> Result<Box<dyn Kernel>, BindError> {
    // Elements below one byte are unpacked, and strings are not in the arena.
    let in_place = site.elem(0)?.bits().is_some_and(|bits| bits >= 8);
    Ok(Box::new(Scatter { at, in_place }))
}

fn bind(site: &Site<'_>, at: Where) -> Result<Box<dyn Kernel>, BindError> {
    let reduction = match site.string("reduction").as_deref() {
        None | Some("none") => return replace(site, at),
        Some("add") => Reduction::Add,
        Some("mul") => Reduction::Mul,
        Some("max") => Reduction::Max,
        Some("min") => Reduction::Min,
        Some(other) => {
            return Err(BindError::Invalid(format!(
                "attribute 'reduction' is '{other}', not none, add, mul, max or min"
            )));
        }
    };
    reduce(site, site.elem(0)?, at, reduction)
}

fn reduce(
    site: &Site<'_>,
    elem: DataType,
    at: Where,
    reduction: Reduction,
) -> Result<Box<dyn Kernel>, BindError> {
    for_element!(site, elem, numeric, T => Reduce::<T> { at, reduction, elements: PhantomData })
}

/// Interpretation of indices.
#[derive(Clone, Copy)]
enum Where {
    /// One index replaces the position on the axis.
    Elements(i64),
    /// The last axis of the indices is a tuple.
    Tuples,
    /// Each sequence of a batch has a position on the axis, from which on entries are written,
    /// wrapping `around` the end. The positions follow the updates.
    Sequences { axis: i64, around: bool },
}

impl Where {
    /// Returns the index of the input with the updates.
    fn updates(self) -> usize {
        match self {
            Where::Elements(_) | Where::Tuples => 2,
            Where::Sequences { .. } => 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Reduction {
    Add,
    Mul,
    Max,
    Min,
}

impl Reduction {
    fn into<T: Number>(self) -> ScatterInto<T> {
        match self {
            Reduction::Add => Some(|old, new| T::narrow(old.widen().add(new.widen()))),
            Reduction::Mul => Some(|old, new| T::narrow(old.widen().mul(new.widen()))),
            Reduction::Max => Some(|old, new| T::narrow(Arith::max(old.widen(), new.widen()))),
            Reduction::Min => Some(|old, new| T::narrow(Arith::min(old.widen(), new.widen()))),
        }
    }
}

/// Indices that fit the dimensions of data and updates.
struct Places<'a> {
    dims: Dims,
    by: By<'a>,
}

enum By<'a> {
    Elements { axis: usize, index_dims: Dims, indices: Indices<'a> },
    Tuples(usize, &'a [i64]),
    Sequences(Sequences<'a>),
}

/// Positions of the new entries of each sequence.
pub(super) struct Sequences<'a> {
    /// Sizes of the ring buffers.
    sizes: RingDims,
    /// Number of new entries of a sequence.
    pub(super) count: usize,
    /// Position of the first entry of each sequence; 0 by default.
    pub(super) starts: Option<&'a [i64]>,
}

impl<'a> Sequences<'a> {
    /// Reads the positions for a cache with these dimensions, and checks them and the new entries,
    /// the inputs 2 and 1.
    pub(super) fn new(
        call: &Call<'a>,
        dims: &[usize],
        axis: i64,
        around: bool,
    ) -> Result<Sequences<'a>, KernelError> {
        let axis = normalize_axis(axis, dims.len())?;
        let (Some((batch, between)), true) = (dims[..axis].split_first(), axis > 0) else {
            fail!("axis 0 is the batch axis and is not allowed");
        };
        let (size, update_dims) = (dims[axis], call.tensor(1)?.dims());
        let mut expected = Dims::from(dims);
        let count = update_dims.get(axis).copied().unwrap_or(0);
        expected[axis] = count;
        if update_dims != &expected[..] || count > size {
            fail!(
                "the update has dimensions {update_dims:?}, which do not fit a cache of {dims:?} along axis {axis}"
            );
        }
        let starts = call.maybe_slice::<i64>(2)?;
        if let Some(starts) = starts {
            if call.tensor(2)?.dims() != [*batch] {
                fail!(
                    "write_indices has dimensions {:?}, but there are {batch} sequences",
                    call.tensor(2)?.dims()
                );
            }
            let room = 0..=(size - count) as i64;
            let outside = starts.iter().enumerate().find(|(_, start)| !room.contains(start));
            if let (Some((sequence, start)), false) = (outside, around) {
                fail!(
                    "write_indices is {start} for sequence {sequence}: {count} entries exceed axis {axis} of size \
                     {size}"
                );
            }
        }
        let product = |dims: &[usize]| dims.iter().product::<usize>();
        let inner = product(&dims[axis + 1..]);
        let sizes = RingDims { batch: *batch, outer: product(between), axis: size, inner };
        Ok(Sequences { sizes, count, starts })
    }

    fn write<T: ScatterLoops>(&self, updates: &[T], y: &mut [T]) {
        T::write_around(self.sizes, self.count, self.starts, updates, y);
    }
}

impl<'a> Places<'a> {
    fn new(call: &Call<'a>, at: Where, dims: Dims) -> Result<Places<'a>, KernelError> {
        let by = match at {
            Where::Elements(axis) => {
                let index_dims = Dims::from(call.tensor(1)?.dims());
                let update_dims = call.tensor(2)?.dims();
                let axis = normalize_axis(axis, dims.len())?;
                check_elements(&dims, &index_dims, axis)?;
                if update_dims != &index_dims[..] {
                    fail!(
                        "the updates have dimensions {update_dims:?}, but the indices have {index_dims:?}"
                    );
                }
                By::Elements { axis, index_dims, indices: indices_of(call, 1)? }
            }
            Where::Tuples => {
                let update_dims = call.tensor(2)?.dims();
                let [outer @ .., depth] = call.tensor(1)?.dims() else {
                    fail!("the indices must not be a scalar");
                };
                if *depth > dims.len() {
                    fail!(
                        "tuples have {depth} indices, but there are {} dimensions to index",
                        dims.len()
                    );
                }
                let expected: Dims = outer.iter().chain(&dims[*depth..]).copied().collect();
                if update_dims != &expected[..] {
                    fail!("the updates have dimensions {update_dims:?}, not {expected:?}");
                }
                By::Tuples(*depth, call.slice(1)?)
            }
            Where::Sequences { axis, around } => {
                By::Sequences(Sequences::new(call, &dims, axis, around)?)
            }
        };
        Ok(Places { dims, by })
    }

    /// Writes the updates into the data.
    fn scatter<T: ScatterLoops>(
        &self,
        into: ScatterInto<T>,
        updates: &[T],
        y: &mut [T],
    ) -> Result<(), KernelError> {
        let dims = &self.dims;
        let written: Result<(), Failure<IndexOutOfRange>> = match &self.by {
            By::Elements { axis, index_dims, indices } => {
                T::scatter_elements(into, *axis, dims, index_dims, *indices, updates, y)
            }
            By::Tuples(depth, indices) => T::scatter_nd(into, dims, *depth, indices, updates, y),
            // Entries replace, whatever the reduction.
            By::Sequences(sequences) => {
                sequences.write(updates, y);
                Ok(())
            }
        };
        written.map_err(|failure| {
            KernelError::from_failure(failure, |error| match &self.by {
                By::Elements { axis, .. } => format!("axis {axis}: {error}"),
                By::Tuples(..) | By::Sequences(_) => error.to_string(),
            })
        })
    }
}

/// Scatter of updates of any type that replace elements.
struct Scatter {
    at: Where,
    in_place: bool,
}

impl Kernel for Scatter {
    fn memory(&self) -> MemoryRules {
        let in_place: &[usize] = if self.in_place { &[0] } else { &[] };
        MemoryRules { in_place, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if call.over == Some(0) {
            let updates = call.tensor(self.at.updates())?.clone();
            let places = Places::new(call, self.at, planned_dims(call)?)?;
            return match updates.data_type().bits() {
                Some(8) => scatter_in_place::<1>(call, &places, &updates),
                Some(16) => scatter_in_place::<2>(call, &places, &updates),
                Some(32) => scatter_in_place::<4>(call, &places, &updates),
                Some(64) => scatter_in_place::<8>(call, &places, &updates),
                Some(128) => scatter_in_place::<16>(call, &places, &updates),
                _ => fail!("type {} cannot be written in place", updates.data_type()),
            };
        }
        let (data, updates) = (call.tensor(0)?.clone(), call.tensor(self.at.updates())?.clone());
        let dims = Dims::from(data.dims());
        let places = Places::new(call, self.at, dims.clone())?;
        move_elements(call, 0, &dims, &[data, updates], &places)
    }

    fn describe(&self) -> String {
        "scatter".to_string()
    }
}

impl Movement for Places<'_> {
    fn run<T: MoveLoops>(
        &self,
        _: &Pool,
        sources: &[&[T]],
        out: &mut [T],
    ) -> Result<(), KernelError> {
        out.copy_from_slice(sources[0]);
        self.scatter(None, sources[1], out)
    }
}

/// Returns the dimensions of an output that reuses the memory of the data.
fn planned_dims(call: &Call<'_>) -> Result<Dims, KernelError> {
    match call.targets.first() {
        Some(Target::Planned { dims, .. }) => Ok((*dims).clone()),
        _ => fail!("an output in place has no memory"),
    }
}

/// Scatters elements of `WIDTH` bytes into an output that reuses the memory of the data.
fn scatter_in_place<const WIDTH: usize>(
    call: &mut Call<'_>,
    places: &Places<'_>,
    updates: &TensorView<'_>,
) -> Result<(), KernelError>
where
    [u8; WIDTH]: MoveLoops,
{
    let updates = dense(call, updates)?;
    let Some(Target::Planned { bytes, .. }) = call.targets.first_mut() else {
        fail!("an output in place has no memory");
    };
    let (updates, y) = (updates.as_chunks::<WIDTH>().0, bytes.as_chunks_mut::<WIDTH>().0);
    places.scatter(None, updates, y)
}

/// Scatter of updates that are combined with the data.
struct Reduce<T> {
    at: Where,
    reduction: Reduction,
    elements: PhantomData<fn() -> T>,
}

impl<T: Number + Element + ScatterLoops> Kernel for Reduce<T> {
    fn memory(&self) -> MemoryRules {
        MemoryRules { in_place: &[0], ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let updates = call.slice::<T>(2)?;
        let in_place = matches!(call.operands.first(), Some(Operand::InPlace));
        let dims = if in_place { planned_dims(call)? } else { call.tensor(0)?.dims().into() };
        let places = Places::new(call, self.at, dims)?;
        let into = self.reduction.into::<T>();
        if in_place {
            return match call.in_place::<T>()? {
                Some((_, y)) => places.scatter(into, updates, y),
                None => fail!("an output in place has no memory"),
            };
        }
        let data = call.slice::<T>(0)?;
        let y = call.output_slice::<T>(0, &places.dims)?;
        y.copy_from_slice(data);
        places.scatter(into, updates, y)
    }

    fn describe(&self) -> String {
        format!("scatter with {:?} of {}", self.reduction, T::DATA_TYPE)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_kernels::{Exec, Isa};
    use sardonyx_ops::AttrValue::{self, Int};
    use sardonyx_tensor::{StringArray, Tensor};

    use super::*;
    use crate::ops::testing::{run, tensor};

    fn reduction(name: &'static str) -> (&'static str, AttrValue<'static>) {
        ("reduction", AttrValue::String(name.as_bytes().into()))
    }

    #[test]
    fn elements() {
        let data = tensor(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let indices = tensor(&[1, 3], &[0i32, -1, -1]);
        let updates = tensor(&[1, 3], &[10f32, 20.0, 7.0]);
        let inputs = [Some(&data), Some(&indices), Some(&updates)];
        for (name, expected) in [
            ("none", [10f32, 2.0, 7.0, 4.0, 5.0, 6.0]),
            ("add", [11.0, 2.0, 30.0, 4.0, 5.0, 6.0]),
            ("mul", [10.0, 2.0, 420.0, 4.0, 5.0, 6.0]),
            ("max", [10.0, 2.0, 20.0, 4.0, 5.0, 6.0]),
            ("min", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
        ] {
            let attributes = [("axis", Int(1)), reduction(name)];
            let found = run("ScatterElements", &attributes, &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 3], &expected), "{name}");
        }
        for (axis, indices, updates, refusal) in [
            (
                1,
                tensor(&[1, 1], &[3i64]),
                tensor(&[1, 1], &[0f32]),
                "axis 1: index 3 is outside of a dimension of size 3",
            ),
            (
                0,
                tensor(&[1, 4], &[0i64; 4]),
                tensor(&[1, 4], &[0f32; 4]),
                "axis 1 has size 4 in the indices, but 3 in the data",
            ),
            (
                0,
                tensor(&[1, 1], &[0i64]),
                tensor(&[1, 2], &[0f32; 2]),
                "the updates have dimensions [1, 2], but the indices have [1, 1]",
            ),
        ] {
            let inputs = [Some(&data), Some(&indices), Some(&updates)];
            let found = run("ScatterElements", &[("axis", Int(axis))], &inputs, 1);
            assert_eq!(found.unwrap_err(), refusal);
        }
    }

    #[test]
    fn tuples() {
        let data = tensor(&[2, 2], &[1i8, 2, 3, 4]);
        let indices = tensor(&[2, 1], &[1i64, -1]);
        let updates = tensor(&[2, 2], &[5i8, 6, 7, -8]);
        let inputs = [Some(&data), Some(&indices), Some(&updates)];
        for (name, expected) in [
            ("none", [1i8, 2, 7, -8]),
            ("add", [1, 2, 15, 2]),
            ("mul", [1, 2, 105, 64]),
            ("max", [1, 2, 7, 6]),
            ("min", [1, 2, 3, -8]),
        ] {
            let found = run("ScatterND", &[reduction(name)], &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 2], &expected), "{name}");
        }
        let strings = |texts: &[&str]| {
            Tensor::from_strings([texts.len()], texts.iter().collect::<StringArray>()).unwrap()
        };
        let one = tensor(&[1, 1], &[-1i64]);
        let inputs = [Some(&strings(&["a", "b"])), Some(&one), Some(&strings(&["c"]))];
        let found = run("ScatterND", &[], &inputs, 1).unwrap();
        assert_eq!(found[0], strings(&["a", "c"]));

        // A tuple of no index stands for the whole.
        let (none, wholes) = (tensor(&[2, 0], &[0i64; 0]), tensor(&[2, 2, 2], &[1i8; 8]));
        let inputs = [Some(&data), Some(&none), Some(&wholes)];
        for (name, expected) in [("none", [1i8; 4]), ("add", [3, 4, 5, 6])] {
            let found = run("ScatterND", &[reduction(name)], &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 2], &expected), "{name}");
        }

        for (indices, updates, refusal) in [
            (
                tensor(&[1, 2], &[0i64, 2]),
                tensor(&[1], &[0i8]),
                "index 2 is outside of a dimension of size 2",
            ),
            (
                tensor(&[1, 3], &[0i64; 3]),
                tensor(&[1], &[0i8]),
                "tuples have 3 indices, but there are 2 dimensions to index",
            ),
            (
                tensor(&[1, 1], &[0i64]),
                tensor(&[1], &[0i8]),
                "the updates have dimensions [1], not [1, 2]",
            ),
        ] {
            let inputs = [Some(&data), Some(&indices), Some(&updates)];
            assert_eq!(run("ScatterND", &[], &inputs, 1).unwrap_err(), refusal);
        }
        let inputs = [Some(&data), Some(&indices), Some(&updates)];
        let found = run("ScatterND", &[reduction("xor")], &inputs, 1);
        assert!(found.unwrap_err().contains("'xor'"));
    }

    #[test]
    fn over_the_data() {
        let indices = tensor(&[1, 1], &[1i64]);
        let updates = tensor(&[1, 2], &[5i16, 6]);
        let kernels: [(Box<dyn Kernel>, [i16; 4]); 2] = [
            (Box::new(Scatter { at: Where::Tuples, in_place: true }), [1, 2, 5, 6]),
            (
                Box::new(Reduce::<i16> {
                    at: Where::Tuples,
                    reduction: Reduction::Add,
                    elements: PhantomData,
                }),
                [1, 2, 8, 10],
            ),
        ];
        for (kernel, expected) in kernels {
            let mut memory = [1i16, 2, 3, 4];
            let dims = Dims::from_slice(&[2, 2]);
            let mut call = Call {
                operands: vec![
                    Operand::InPlace,
                    Operand::Tensor(indices.view()),
                    Operand::Tensor(updates.view()),
                ],
                targets: vec![Target::Planned {
                    data_type: i16::DATA_TYPE,
                    dims: &dims,
                    bytes: bytemuck::cast_slice_mut(&mut memory),
                    laid: None,
                }],
                over: Some(0),
                exec: &Exec::new(Pool::global(), Isa::detect()),
                random: crate::random::Draws::default(),
                memory: None,
                account: &crate::account::Account::new(None, 0),
            };
            kernel.run(&mut call).unwrap();
            drop(call);
            assert_eq!(memory, expected);
        }
    }
}
