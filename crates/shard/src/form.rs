//! Form of a value that several devices hold: the split of its axes, and the part on each device.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Write as _};
use std::ops::Range;

use sardonyx_ops::{Combine, Sizes};
use smallvec::{SmallVec, smallvec};

use crate::ranges::Ranges;

/// Number of a device of a configuration, from 0.
pub type Device = u32;

/// Factor of an axis, and the number of parts that it is split into. If that number does not divide
/// the size, the first parts have one index more than the others. Parts may be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Split {
    /// Size of the factor.
    pub size: usize,
    /// Number of parts.
    pub parts: usize,
}

impl Split {
    /// Returns the range of indices of a part.
    pub fn part(self, part: usize) -> Range<usize> {
        let start =
            |part: usize| part * (self.size / self.parts) + part.min(self.size % self.parts);
        start(part)..start(part + 1)
    }

    /// Whether a factor that is `by` times as large is split at the same places: the bounds of its
    /// parts are those of this factor, times `by`.
    fn is_even(self, by: usize) -> bool {
        let larger = Split { size: self.size * by, parts: self.parts };
        (0..self.parts).all(|part| self.part(part).start * by == larger.part(part).start)
    }
}

/// Factors of an axis, outermost first. Their product is the size of the axis. An axis that is not
/// split has no factors.
pub type SplitAxis = SmallVec<[Split; 1]>;

/// Part of a value that a device holds: the index of a part for each split factor, in the order of
/// axes and factors, then the number of the partial result, if there are several.
pub type Place = SmallVec<[usize; 2]>;

/// Distribution of a value over devices. Forms are normalized, so that equal distributions compare
/// equal: each axis has the fewest factors that describe its split.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Form {
    /// Factors of each axis; empty if no axis is split.
    axes: Vec<SplitAxis>,
    /// Operation that combines partial results, and their number, which is more than 1.
    partial: Option<(Combine, usize)>,
    /// Part that each device holds.
    places: BTreeMap<Device, Place>,
}

impl Form {
    /// Creates the form in which each of some devices holds the whole value.
    pub fn whole(devices: impl IntoIterator<Item = Device>) -> Form {
        let places = devices.into_iter().map(|device| (device, Place::new())).collect();
        Form { axes: Vec::new(), partial: None, places }
    }

    /// Creates a form with split axes. Each place has an index for each factor with more than one
    /// part, and the number of the partial result if there are several.
    pub fn new(
        axes: Vec<SplitAxis>,
        partial: Option<(Combine, usize)>,
        places: BTreeMap<Device, Place>,
    ) -> Form {
        let is_split = |axis: &SplitAxis| axis.iter().any(|split| split.parts > 1);
        let axes = if axes.iter().any(is_split) {
            axes.iter().map(|axis| merged(axis)).collect()
        } else {
            Vec::new()
        };
        let partial = partial.filter(|(_, count)| *count > 1);
        Form { axes, partial, places }
    }

    /// Whether each device that holds anything holds the whole value.
    pub fn is_whole(&self) -> bool {
        self.axes.is_empty() && self.partial.is_none()
    }

    /// Returns the operation that combines partial results, and their number. `None` if devices
    /// hold final values.
    pub fn partial(&self) -> Option<(Combine, usize)> {
        self.partial
    }

    /// Returns the factors of each axis; empty if no axis is split.
    pub fn axes(&self) -> &[SplitAxis] {
        &self.axes
    }

    /// Returns the part that each device holds. Devices without a part are absent.
    pub fn places(&self) -> &BTreeMap<Device, Place> {
        &self.places
    }

    /// Returns the devices that hold a part, in ascending order.
    pub fn devices(&self) -> impl Iterator<Item = Device> + '_ {
        self.places.keys().copied()
    }

    /// Whether a device holds a part.
    pub fn is_on(&self, device: Device) -> bool {
        self.places.contains_key(&device)
    }

    /// Returns the number of the partial result that a device holds; 0 if there is only one result.
    pub fn partial_of(&self, device: Device) -> usize {
        match (self.partial, self.places.get(&device)) {
            (Some(_), Some(place)) => place.last().copied().unwrap_or(0),
            _ => 0,
        }
    }

    /// Returns the form after partial results are combined: each device that held one holds the
    /// combined part.
    pub fn combined(&self) -> Form {
        if self.partial.is_none() {
            return self.clone();
        }
        let without_last = |place: &Place| place[..place.len() - 1].iter().copied().collect();
        let places = self.places.iter().map(|(device, place)| (*device, without_last(place)));
        Form { axes: self.axes.clone(), partial: None, places: places.collect() }
    }

    /// Returns the form restricted to `devices`.
    pub fn only_on(&self, devices: &BTreeSet<Device>) -> Form {
        let mut form = self.clone();
        form.places.retain(|device, _| devices.contains(device));
        form
    }

    /// Returns the indices of each axis that a device holds of a tensor of sizes `dims`. The sizes
    /// of split axes are taken from the form. `None` if the device has no part.
    pub fn ranges(&self, device: Device, dims: &[usize]) -> Option<Vec<Ranges>> {
        let place = self.places.get(&device)?;
        if self.axes.is_empty() {
            return Some(dims.iter().map(|size| Ranges::all(*size)).collect());
        }
        let mut indices = place.iter().copied();
        let axes = self.axes.iter().zip(dims).map(|(axis, size)| {
            if axis.is_empty() {
                return Ranges::all(*size);
            }
            let parts = axis.iter().map(|split| {
                let part = if split.parts > 1 { indices.next().unwrap_or(0) } else { 0 };
                (split.size, split.part(part))
            });
            Ranges::of_factors(&parts.collect::<SmallVec<[_; 2]>>())
        });
        Some(axes.collect())
    }

    /// Returns the sizes of a device's part of a tensor of sizes `dims`. `None` if the device has
    /// no part.
    pub fn dims(&self, device: Device, dims: &[usize]) -> Option<Sizes> {
        Some(self.ranges(device, dims)?.iter().map(Ranges::len).collect())
    }
}

/// Merges the factors of an axis into the fewest that describe its split; none if it is not split.
fn merged(axis: &[Split]) -> SplitAxis {
    let mut found = SplitAxis::new();
    if axis.iter().all(|split| split.parts == 1) {
        return found;
    }
    for split in axis.iter().copied().filter(|split| split.size != 1 || split.parts > 1) {
        match found.last_mut() {
            // An inner factor that is not split merges with the next outer one.
            Some(outer) if split.parts == 1 && outer.is_even(split.size) => {
                outer.size *= split.size
            }
            _ => found.push(split),
        }
    }
    found
}

/// Returns the factors of a rule that the split of an axis cuts, each with its number of parts, in
/// the order of the split factors of the axis. `factors` are numbers and sizes of the rule's
/// factors of the axis. `None` if parts of the axis are not parts of these factors.
pub(crate) fn cuts(
    axis: &[Split],
    factors: &[(usize, usize)],
) -> Option<SmallVec<[(usize, usize); 2]>> {
    if let ([split], [(factor, size)]) = (axis, factors)
        && split.size == *size
    {
        return Some(smallvec![(*factor, split.parts)]);
    }
    let mut found = SmallVec::new();
    let total: usize = axis.iter().map(|split| split.size).product();
    if total == 0 || factors.iter().map(|(_, size)| size).product::<usize>() != total {
        return None;
    }
    let mut outer = 1;
    for split in axis {
        let before = outer;
        outer *= split.size;
        if split.parts == 1 {
            continue;
        }
        // Finds the factor of the rule with the same product of outer sizes.
        let mut at = 1;
        let factor = factors.iter().find(|(_, size)| {
            let is_here = at == before && *size > 1;
            at *= size;
            is_here
        });
        let (factor, size) = factor?;
        let own = Split { size: *size, parts: split.parts };
        let fits = if *size <= split.size {
            split.size % size == 0 && own.is_even(split.size / size)
        } else {
            size % split.size == 0 && split.is_even(size / split.size)
        };
        if !fits || !total.is_multiple_of(outer) {
            return None;
        }
        found.push((*factor, split.parts));
    }
    Some(found)
}

/// Text of the parts of a [`Form`]: `whole`, or the size and the number of parts of each axis, such
/// as `[8/4, -]`, where `-` is an axis that is not split.
struct Parts<'f>(&'f Form);

impl Form {
    /// Returns the parts as text, without the devices.
    pub(crate) fn parts(&self) -> impl Display + '_ {
        Parts(self)
    }
}

impl Display for Parts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parts(form) = self;
        if let Some((combine, count)) = form.partial {
            let what = match combine {
                Combine::Sum => "sums",
                Combine::Product => "products",
                Combine::Min => "minima",
                Combine::Max => "maxima",
            };
            write!(f, "{count} partial {what} ")?;
        }
        if form.axes.is_empty() {
            f.write_str("whole")?;
        } else {
            f.write_char('[')?;
            for (index, axis) in form.axes.iter().enumerate() {
                f.write_str(if index > 0 { ", " } else { "" })?;
                if axis.is_empty() {
                    f.write_char('-')?;
                    continue;
                }
                for (index, split) in axis.iter().enumerate() {
                    f.write_str(if index > 0 { "*" } else { "" })?;
                    match split.parts {
                        1 => write!(f, "{}", split.size)?,
                        parts => write!(f, "{}/{parts}", split.size)?,
                    }
                }
            }
            f.write_char(']')?;
        }
        Ok(())
    }
}

impl Display for Form {
    /// Writes the parts and the devices that have a part, in ascending order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on ", self.parts())?;
        for (index, device) in self.devices().enumerate() {
            f.write_str(if index > 0 { " " } else { "" })?;
            write!(f, "{device}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn splits(axis: &[(usize, usize)]) -> SplitAxis {
        axis.iter().map(|(size, parts)| Split { size: *size, parts: *parts }).collect()
    }

    #[test]
    fn first_parts_are_larger_and_some_are_empty() {
        let parts =
            |size, parts| (0..parts).map(|k| Split { size, parts }.part(k)).collect::<Vec<_>>();
        assert_eq!(parts(5, 3), [0..2, 2..4, 4..5]);
        assert_eq!(parts(2, 4), [0..1, 1..2, 2..2, 2..2]);
        assert_eq!(parts(0, 2), [0..0, 0..0]);
    }

    #[test]
    fn axes_have_as_few_factors_as_possible() {
        assert_eq!(merged(&splits(&[(12, 2), (64, 1)])), splits(&[(768, 2)]));
        assert_eq!(merged(&splits(&[(12, 5), (64, 1)])), splits(&[(12, 5), (64, 1)]));
        assert_eq!(merged(&splits(&[(1, 1), (4, 1), (6, 1)])), splits(&[]));
        assert_eq!(merged(&splits(&[(2, 1), (6, 3)])), splits(&[(2, 1), (6, 3)]));
    }

    #[test]
    fn partial_results_are_named_by_their_reduction() {
        let places = [(0, smallvec![0]), (1, smallvec![1])].into_iter().collect();
        let form = Form::new(Vec::new(), Some((Combine::Product, 2)), places);
        assert!(form.to_string().contains("2 partial products"), "{form}");
    }

    #[test]
    fn fused_axes_give_ranges() {
        let place = |indices: &[usize]| indices.iter().copied().collect::<Place>();
        let places = [(0, place(&[0])), (1, place(&[1]))].into_iter().collect();
        let form = Form::new(vec![splits(&[(2, 1), (4, 2)])], None, places);
        let ranges = form.ranges(1, &[8]).expect("it is on the device");
        assert_eq!(ranges[0].iter().cloned().collect::<Vec<_>>(), [2..4, 6..8]);
        assert_eq!(form.dims(0, &[8]).expect("it is on the device")[..], [4]);
    }

    #[test]
    fn parts_of_an_axis_are_those_of_factors() {
        // The heads of a transformer.
        let heads = [(0, 12), (1, 64)];
        assert_eq!(cuts(&splits(&[(768, 4)]), &heads).as_deref(), Some(&[(0, 4)][..]));
        assert_eq!(cuts(&splits(&[(768, 5)]), &heads), None);
        assert_eq!(cuts(&splits(&[(12, 5), (64, 1)]), &heads).as_deref(), Some(&[(0, 5)][..]));
        assert_eq!(cuts(&splits(&[(12, 1), (64, 2)]), &heads).as_deref(), Some(&[(1, 2)][..]));
        assert_eq!(cuts(&splits(&[(12, 4)]), &[(7, 768)]), None);
        assert_eq!(cuts(&splits(&[(12, 4), (64, 1)]), &[(7, 768)]).as_deref(), Some(&[(7, 4)][..]));
    }
}
