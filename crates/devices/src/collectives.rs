//! The collectives over sends and receives, for every transport: what the methods of
//! [`Transport`] do by default.
//!
//! *Order.* A combined element is `((x0 op x1) op x2) op ...` with the elements in the order of the
//! numbers of their workers, so its bits depend on nothing else: not on who computes it, not on
//! sizes, not on what arrives first.
//!
//! *Algorithms.* Long messages: reductions exchange parts in pairs (reduce-scatter by pairwise
//! exchange, then all-gather), so that each worker sends `2 (n - 1) / n` of the size, the least
//! there is; broadcasts are a scatter and an all-gather. Short ones: reductions send everything to
//! everybody, which is one step instead of two; broadcasts are a binomial tree. See R. Thakur,
//! R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
//! International Journal of High Performance Computing Applications 19 (2005). Algorithms that
//! halve vectors and double distances take fewer steps but combine in another order. Barriers
//! spread as in D. Hensgen, R. Finkel, U. Manber, "Two Algorithms for Barrier Synchronization",
//! International Journal of Parallel Programming 17 (1988).

use std::ops::Range;

use sardonyx_tensor::DataType;

use crate::error::{TransportError, err};
use crate::reduction::{Loops, Reduction};
use crate::transport::{FIRST_RESERVED_TAG, Group, Tag, Transport, check_len, check_worker};

const BARRIER: Tag = FIRST_RESERVED_TAG;

/// In bytes: below it, messages are so short that fewer steps matter more than fewer bytes.
const SHORT: usize = 8 << 10;

impl Group<'_> {
    /// The place of the caller among the workers.
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

    /// The other workers with their places, those after the caller first: so not all send to the
    /// same one at the same time.
    fn others(&self, own: usize) -> impl Iterator<Item = (usize, usize)> {
        let places = (own + 1..self.workers.len()).chain(0..own);
        places.map(|place| (place, self.workers[place]))
    }
}

/// [`Transport::barrier`].
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

/// [`Transport::all_reduce`].
pub fn all_reduce<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    reduction: Reduction,
    data_type: DataType,
    data: &mut [u8],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    let loops = Loops::of(reduction, data_type)?;
    let elems = whole_elems(&loops, data_type, data.len())?;
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

/// [`Transport::reduce_scatter`].
pub fn reduce_scatter<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    (reduction, data_type): (Reduction, DataType),
    data: &[u8],
    parts: &[usize],
    into: &mut [u8],
) -> Result<(), TransportError> {
    let own = group.place(transport)?;
    let loops = Loops::of(reduction, data_type)?;
    check_parts(group, parts, data.len())?;
    for &bytes in parts {
        whole_elems(&loops, data_type, bytes)?;
    }
    check_part(parts[own], into.len())?;
    for (place, worker) in group.others(own) {
        transport.send(worker, group.tag, &data[part_at(parts, place)])?;
    }
    into.copy_from_slice(&data[part_at(parts, own)]);
    combine(transport, group, own, &loops, into)
}

/// [`Transport::all_gather`].
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

/// [`Transport::all_to_all`].
pub fn all_to_all<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    (data, parts): (&[u8], &[usize]),
    (into, into_parts): (&mut [u8], &[usize]),
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

/// [`Transport::broadcast`].
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
        return broadcast_tree(transport, group, (own, root_place), data);
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
    // The root has everything already.
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

/// Along a binomial tree. Places are counted from the root: each worker receives from the one
/// whose place lacks its lowest bit, and sends to those whose places have one lower bit more.
fn broadcast_tree<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    (own, root): (usize, usize),
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

/// Sends the own part to all others, and receives theirs.
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

/// Receives from each other worker what has the length of `data`, and combines it with `data`, in
/// the order of workers.
fn combine<T: Transport + ?Sized>(
    transport: &T,
    group: Group<'_>,
    own: usize,
    loops: &Loops,
    data: &mut [u8],
) -> Result<(), TransportError> {
    match loops.wide {
        // Two elements are rounded once wherever they are combined.
        Some(_) if group.workers.len() > 2 => combine_wide(transport, group, own, loops, data),
        _ => combine_narrow(transport, group, own, loops, data),
    }
}

/// In `data` itself, but for a result of several workers before the own.
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

/// With results in `float` until the end.
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
    // Pieces are aligned to a cache line.
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

/// Calls `take` only with a message of the expected length.
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

/// How many elements so many bytes are.
pub(crate) fn whole_elems(
    loops: &Loops,
    data_type: DataType,
    bytes: usize,
) -> Result<usize, TransportError> {
    if bytes.is_multiple_of(loops.element_bytes) {
        return Ok(bytes / loops.element_bytes);
    }
    err!(Argument, "{bytes} bytes are not a whole number of {data_type} elements")
}

/// The bytes of a part of `elems` elements that are cut into so many parts: the first ones have one
/// element more if they do not divide.
fn even_part(elems: usize, parts: usize, place: usize, element_bytes: usize) -> Range<usize> {
    let (each, more) = (elems / parts, elems % parts);
    let start = |place: usize| (place * each + place.min(more)) * element_bytes;
    start(place)..start(place + 1)
}

/// Where a part lies.
fn part_at(parts: &[usize], place: usize) -> Range<usize> {
    let start = parts[..place].iter().sum();
    start..start + parts[place]
}

/// That there is a part for each worker and that they fill the whole.
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

/// That the own part has the length that it should have.
pub(crate) fn check_part(expected: usize, bytes: usize) -> Result<(), TransportError> {
    if expected == bytes {
        return Ok(());
    }
    err!(Argument, "the worker's own part has {bytes} bytes instead of {expected}")
}
