//! Collective operations over sends and receives: the default methods of [`Transport`], which serve
//! every transport.
//!
//! *Order.* A combined element is `((x0 op x1) op x2) op ...`, with the elements in the order of
//! the workers' numbers. Its bits therefore depend neither on the worker that computes it, nor on
//! sizes, nor on the order of arrival.
//!
//! *Algorithms.* Long reductions are a reduce-scatter by pairwise exchange and an all-gather, so
//! that each worker sends `2 (n - 1) / n` of the size, the minimum. Long broadcasts are a scatter
//! and an all-gather. Short reductions send all data to all workers, which is one step instead of
//! two; short broadcasts use a binomial tree. See R. Thakur, R. Rabenseifner, W. Gropp,
//! "Optimization of Collective Communication Operations in MPICH", International Journal of High
//! Performance Computing Applications 19 (2005). Recursive halving takes fewer steps but combines
//! elements in another order. Barriers are the dissemination barrier of D. Hensgen, R. Finkel, U.
//! Manber, "Two Algorithms for Barrier Synchronization", International Journal of Parallel
//! Programming 17 (1988).

use std::ops::Range;

use sardonyx_tensor::DataType;

use crate::error::{TransportError, err};
use crate::reduction::{Loops, Reduction};
use crate::transport::{FIRST_RESERVED_TAG, Group, Tag, Transport, check_len, check_worker};

const BARRIER: Tag = FIRST_RESERVED_TAG;

/// Length in bytes below which fewer steps matter more than fewer bytes.
const SHORT: usize = 8 << 10;

impl Group<'_> {
    /// Returns the position of the calling worker in the group, after checking the group.
    pub(crate) fn place(
        &self,
        transport: &(impl Transport + ?Sized),
    ) -> Result<usize, TransportError> {
        if !self.workers.is_sorted_by(|a, b| a < b) {
            return err!(Argument, "the workers of a group are not in order: {:?}", self.workers);
        }
        if let Some(&last) = self.workers.last() {
            check_worker(last, transport.workers())?;
        }
        let number = transport.number();
        match self.workers.binary_search(&number) {
            Ok(place) => Ok(place),
            Err(_) => err!(Argument, "worker {number} is not in the group {:?}", self.workers),
        }
    }

    /// Returns the positions and numbers of the other workers, starting after the caller, so that
    /// the workers do not all send to one of them at a time.
    fn others(&self, own: usize) -> impl Iterator<Item = (usize, usize)> {
        let places = (own + 1..self.workers.len()).chain(0..own);
        places.map(|place| (place, self.workers[place]))
    }
}

/// Implements [`Transport::barrier`].
pub fn barrier<T: Transport + ?Sized>(transport: &T) -> Result<(), TransportError> {
    let (workers, own) = (transport.workers(), transport.number());
    let mut distance = 1;
    while distance < workers {
        transport.send((own + distance) % workers, BARRIER, &[])?;
        transport.receive_into((own + workers - distance) % workers, BARRIER, &mut [])?;
        distance *= 2;
    }
    Ok(())
}

/// Implements [`Transport::all_reduce`].
pub fn all_reduce<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    reduction: Reduction,
    data_type: DataType,
    data: &mut [u8],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    let loops = Loops::new(reduction, data_type)?;
    let elems = count_elems(&loops, data_type, data.len())?;
    let workers = group.workers.len();
    if workers == 1 || elems == 0 {
        return Ok(());
    }
    if data.len() < SHORT {
        for (_, worker) in group.others(own) {
            transport.send(worker, group.tag, data)?;
        }
        return combine(transport, group, own, &loops, data);
    }
    let part = |place| even_part(elems, workers, place, loops.element_bytes);
    for (place, worker) in group.others(own) {
        transport.send(worker, group.tag, &data[part(place)])?;
    }
    combine(transport, group, own, &loops, &mut data[part(own)])?;
    gather(transport, group, own, data, part)
}

/// Implements [`Transport::reduce_scatter`].
pub fn reduce_scatter<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    reduction: Reduction,
    data_type: DataType,
    data: &[u8],
    parts: &[usize],
    into: &mut [u8],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    let loops = Loops::new(reduction, data_type)?;
    check_parts(group, parts, data.len())?;
    for &bytes in parts {
        count_elems(&loops, data_type, bytes)?;
    }
    check_part(parts[own], into.len())?;
    for (place, worker) in group.others(own) {
        transport.send(worker, group.tag, &data[part_at(parts, place)])?;
    }
    into.copy_from_slice(&data[part_at(parts, own)]);
    combine(transport, group, own, &loops, into)
}

/// Implements [`Transport::all_gather`].
pub fn all_gather<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    part: &[u8],
    parts: &[usize],
    into: &mut [u8],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    check_parts(group, parts, into.len())?;
    check_part(parts[own], part.len())?;
    into[part_at(parts, own)].copy_from_slice(part);
    gather(transport, group, own, into, |place| part_at(parts, place))
}

/// Implements [`Transport::all_to_all`].
pub fn all_to_all<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    data: &[u8],
    parts: &[usize],
    into: &mut [u8],
    into_parts: &[usize],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    check_parts(group, parts, data.len())?;
    check_parts(group, into_parts, into.len())?;
    check_part(parts[own], into_parts[own])?;
    for (place, worker) in group.others(own) {
        transport.send(worker, group.tag, &data[part_at(parts, place)])?;
    }
    into[part_at(into_parts, own)].copy_from_slice(&data[part_at(parts, own)]);
    for (place, worker) in group.others(own) {
        transport.receive_into(worker, group.tag, &mut into[part_at(into_parts, place)])?;
    }
    Ok(())
}

/// Implements [`Transport::broadcast`].
pub fn broadcast<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    root: usize,
    data: &mut [u8],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    let Ok(root_place) = group.workers.binary_search(&root) else {
        return err!(Argument, "worker {root} is not in the group {:?}", group.workers);
    };
    let workers = group.workers.len();
    if data.len() < SHORT || workers <= 2 {
        return broadcast_tree(transport, group, own, root_place, data);
    }
    let bytes = data.len();
    let part = |place| even_part(bytes, workers, place, 1);
    if own == root_place {
        for (place, worker) in group.others(own) {
            transport.send(worker, group.tag, &data[part(place)])?;
        }
    } else {
        transport.receive_into(root, group.tag, &mut data[part(own)])?;
    }
    // The root already has the whole.
    for (_, worker) in group.others(own).filter(|(place, _)| *place != root_place) {
        transport.send(worker, group.tag, &data[part(own)])?;
    }
    if own != root_place {
        for (place, worker) in group.others(own) {
            transport.receive_into(worker, group.tag, &mut data[part(place)])?;
        }
    }
    Ok(())
}

/// Broadcasts along a binomial tree.
///
/// Positions are counted from the root. Each worker receives from the position without its lowest
/// set bit, and sends to the positions that add one lower bit to its own.
fn broadcast_tree<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    own: usize,
    root: usize,
    data: &mut [u8],
) -> Result<(), TransportError> {
    let workers = group.workers.len();
    let place = (own + workers - root) % workers;
    let worker = |place: usize| group.workers[(place + root) % workers];
    let mut bit = 1;
    while bit < workers && place & bit == 0 {
        bit *= 2;
    }
    if place != 0 {
        transport.receive_into(worker(place - bit), group.tag, data)?;
    }
    bit /= 2;
    while bit > 0 {
        if place + bit < workers {
            transport.send(worker(place + bit), group.tag, data)?;
        }
        bit /= 2;
    }
    Ok(())
}

/// Sends this worker's part to all others, and receives theirs.
fn gather<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    own: usize,
    data: &mut [u8],
    part: impl Fn(usize) -> Range<usize>,
) -> Result<(), TransportError> {
    for (_, worker) in group.others(own) {
        transport.send(worker, group.tag, &data[part(own)])?;
    }
    for (place, worker) in group.others(own) {
        transport.receive_into(worker, group.tag, &mut data[part(place)])?;
    }
    Ok(())
}

/// Receives data of the length of `data` from each other worker, and combines it with `data` in the
/// order of the workers.
fn combine<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    own: usize,
    loops: &Loops,
    data: &mut [u8],
) -> Result<(), TransportError> {
    match loops.wide {
        // With two workers each element is rounded once, with or without wide results.
        Some(_) if group.workers.len() > 2 => combine_wide(transport, group, own, loops, data),
        _ => combine_narrow(transport, group, own, loops, data),
    }
}

/// Combines in `data` itself. Needs memory for partial results only if several workers come before
/// this one.
fn combine_narrow<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    own: usize,
    loops: &Loops,
    data: &mut [u8],
) -> Result<(), TransportError> {
    let expected = data.len();
    let receive = |place: usize, take: &mut dyn FnMut(&[u8])| {
        receive_exactly(transport, group.workers[place], group.tag, expected, take)
    };
    if own == 1 {
        receive(0, &mut |bytes| (loops.with_earlier)(data, bytes))?;
    } else if own > 1 {
        let mut earlier = transport.scratch().take(expected)?;
        receive(0, &mut |bytes| earlier.copy_from_slice(bytes))?;
        for place in 1..own {
            receive(place, &mut |bytes| (loops.with_later)(&mut earlier, bytes))?;
        }
        (loops.with_earlier)(data, &earlier);
        transport.scratch().give_back(earlier);
    }
    for place in own + 1..group.workers.len() {
        receive(place, &mut |bytes| (loops.with_later)(data, bytes))?;
    }
    Ok(())
}

/// Combines with partial results in `float`, and rounds once at the end.
fn combine_wide<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    own: usize,
    loops: &Loops,
    data: &mut [u8],
) -> Result<(), TransportError> {
    let Some(wide) = loops.wide else {
        return err!(Unsupported, "this reduction has no form with float accumulation");
    };
    let expected = data.len();
    let elems = expected / loops.element_bytes;
    let mut memory = transport.scratch().take(elems * size_of::<f32>())?;
    // The cast cannot fail: scratch memory is aligned to a cache line.
    let result: &mut [f32] = bytemuck::cast_slice_mut(&mut memory);
    for (place, &worker) in group.workers.iter().enumerate() {
        let step = if place == 0 { wide.widen } else { wide.with_later };
        if place == own {
            step(result, data);
        } else {
            receive_exactly(transport, worker, group.tag, expected, &mut |bytes| {
                step(result, bytes);
            })?;
        }
    }
    (wide.narrow)(data, result);
    transport.scratch().give_back(memory);
    Ok(())
}

/// Receives a message and passes it to `take`, but only if it has the expected length.
fn receive_exactly<T: Transport + ?Sized>(
    transport: &T,
    from: usize,
    tag: Tag,
    expected: usize,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), TransportError> {
    let mut len = 0;
    transport.receive_with(from, tag, &mut |bytes| {
        len = bytes.len();
        if len == expected {
            take(bytes);
        }
    })?;
    check_len(from, tag, len, expected)
}

/// Returns the number of elements in `bytes` bytes.
///
/// # Errors
/// `Argument` if `bytes` is not a multiple of the element size.
pub(crate) fn count_elems(
    loops: &Loops,
    data_type: DataType,
    bytes: usize,
) -> Result<usize, TransportError> {
    if bytes.is_multiple_of(loops.element_bytes) {
        return Ok(bytes / loops.element_bytes);
    }
    err!(Argument, "{bytes} bytes are not a whole number of {data_type} elements")
}

/// Returns the byte range of one of `parts` nearly equal parts of `elems` elements. If the elements
/// do not divide evenly, the first parts have one element more.
fn even_part(elems: usize, parts: usize, place: usize, element_bytes: usize) -> Range<usize> {
    let (each, more) = (elems / parts, elems % parts);
    let start = |place: usize| (place * each + place.min(more)) * element_bytes;
    start(place)..start(place + 1)
}

/// Returns the byte range of a part, given the lengths of all parts.
fn part_at(parts: &[usize], place: usize) -> Range<usize> {
    let start = parts[..place].iter().sum();
    start..start + parts[place]
}

/// Checks that each worker has a part and that the parts fill `bytes` bytes.
pub(crate) fn check_parts(
    group: Group<'_>,
    parts: &[usize],
    bytes: usize,
) -> Result<(), TransportError> {
    let workers = group.workers.len();
    if parts.len() != workers {
        return err!(Argument, "there are {} parts for {workers} workers", parts.len());
    }
    let sum = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(*part));
    if sum != Some(bytes) {
        return err!(Argument, "parts of {parts:?} bytes do not fill {bytes} bytes");
    }
    Ok(())
}

/// Checks the length of this worker's part.
pub(crate) fn check_part(expected: usize, bytes: usize) -> Result<(), TransportError> {
    if expected == bytes {
        return Ok(());
    }
    err!(Argument, "the worker's own part has {bytes} bytes instead of {expected}")
}
