//! Assignment of the parts of a node's factors to devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use sardonyx_ops::{Combine, Cut, Factor, Factors};
use smallvec::{SmallVec, smallvec};

use crate::form::{Device, Form, Place, Split, SplitAxis, cuts};

/// Division of a node among devices: the number of parts of each factor of its operands, and the
/// parts that each device computes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Assignment {
    /// Size and number of parts of each factor. An open size is 1 here and has one part.
    pub(crate) splits: Vec<Split>,
    /// Part of each factor that a device computes.
    pub(crate) places: BTreeMap<Device, SmallVec<[usize; 4]>>,
}

impl Assignment {
    /// Assigns the whole node to each of some devices.
    pub(crate) fn whole(devices: impl IntoIterator<Item = Device>) -> Assignment {
        let places = devices.into_iter().map(|device| (device, SmallVec::new())).collect();
        Assignment { splits: Vec::new(), places }
    }

    /// Whether a factor is cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.splits.iter().any(|split| split.parts > 1)
    }

    /// Returns the number of indices of a factor that a device computes.
    pub(crate) fn size(&self, device: Device, factor: usize) -> usize {
        self.part(device, factor).len()
    }

    /// Returns the first index of a factor that a device computes.
    pub(crate) fn start(&self, device: Device, factor: usize) -> usize {
        self.part(device, factor).start
    }

    fn part(&self, device: Device, factor: usize) -> Range<usize> {
        let part = self.places.get(&device).and_then(|place| place.get(factor).copied());
        self.splits[factor].part(part.unwrap_or(0))
    }
}

/// Assignment that is derived operand by operand.
pub(crate) struct Assigning<'a> {
    rule: &'a Factors,
    splits: Vec<Split>,
    /// Parts by device of the factors that are cut so far; `None` while none is.
    places: Option<BTreeMap<Device, SmallVec<[usize; 4]>>>,
}

impl<'a> Assigning<'a> {
    pub(crate) fn new(rule: &'a Factors) -> Self {
        let size = |factor: &Factor| factor.size.size().unwrap_or(1);
        let splits = rule.factors.iter().map(|factor| Split { size: size(factor), parts: 1 });
        Assigning { rule, splits: splits.collect(), places: None }
    }

    /// Adopts the form of an operand if it agrees with those of earlier operands.
    ///
    /// # Errors
    ///
    /// The reason why it does not agree, as the end of a sentence.
    pub(crate) fn take(
        &mut self,
        axes: &[SmallVec<[usize; 2]>],
        form: &Form,
    ) -> Result<(), String> {
        if form.axes().is_empty() {
            return Ok(());
        }
        if form.axes().len() != axes.len() {
            return Err("has another number of dimensions".into());
        }
        // Factors that the form cuts, in the order of the indices of its places.
        let mut cut: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (number, (axis, factors)) in form.axes().iter().zip(axes).enumerate() {
            if axis.is_empty() {
                continue;
            }
            if factors.is_empty() {
                return Err(format!("the operator needs axis {number} whole"));
            }
            let size = |factor: &usize| Some((*factor, self.rule.factors[*factor].size.size()?));
            let sized: Option<SmallVec<[(usize, usize); 2]>> = factors.iter().map(size).collect();
            let found = sized.and_then(|sized| cuts(axis, &sized));
            let found = found.ok_or_else(|| {
                format!("the operator cannot be computed for these parts of axis {number}")
            })?;
            for (factor, parts) in found {
                if self.rule.factors[factor].cut == Cut::Never {
                    return Err(format!("the operator needs axis {number} whole"));
                }
                cut.push((factor, parts));
            }
        }
        self.join(&cut, form.places())
    }

    fn join(
        &mut self,
        cut: &[(usize, usize)],
        places: &BTreeMap<Device, Place>,
    ) -> Result<(), String> {
        let mut splits = self.splits.clone();
        for (at, (factor, parts)) in cut.iter().enumerate() {
            let is_taken = self.splits[*factor].parts > 1;
            if cut[..at].iter().any(|(other, _)| other == factor) {
                return Err("an axis is split twice".into());
            }
            if is_taken && self.splits[*factor].parts != *parts {
                return Err("operands that go together are split into different parts".into());
            }
            splits[*factor].parts = *parts;
        }
        let mut joined = BTreeMap::new();
        for (device, place) in places {
            let mut own = match &self.places {
                None => smallvec![0; splits.len()],
                Some(known) => match known.get(device) {
                    Some(own) => own.clone(),
                    None => continue,
                },
            };
            for ((factor, _), part) in cut.iter().zip(place) {
                if self.splits[*factor].parts > 1 && own[*factor] != *part {
                    return Err(
                        "operands that go together have their parts on different devices".into()
                    );
                }
                own[*factor] = *part;
            }
            joined.insert(*device, own);
        }
        // Every combination of parts needs a device.
        let combinations: BTreeSet<&SmallVec<[usize; 4]>> = joined.values().collect();
        let wanted = splits.iter().try_fold(1usize, |all, split| all.checked_mul(split.parts));
        if wanted != Some(combinations.len()) {
            return Err("no device has the parts of all operands that go together".into());
        }
        let kinds = self.rule.factors.iter().zip(&splits).filter(|(_, split)| split.parts > 1);
        let kinds: BTreeSet<u8> = kinds
            .filter_map(|(factor, _)| match factor.cut {
                Cut::Combined(combine) => Some(combine as u8),
                _ => None,
            })
            .collect();
        if kinds.len() > 1 {
            return Err("partial results would have to be combined in two ways".into());
        }
        (self.splits, self.places) = (splits, Some(joined));
        Ok(())
    }

    /// Returns the assignment if any factor is cut.
    pub(crate) fn finish(self) -> Option<Assignment> {
        let is_open = |factor: &usize| self.rule.factors[*factor].size.size().is_none();
        let is_cut = |factor: &usize| self.splits[*factor].parts > 1;
        // Only a known size determines the parts of an axis.
        let operands = self.rule.inputs.iter().chain(&self.rule.outputs);
        let mut axes = operands.flatten();
        if axes.any(|axis| axis.iter().any(is_cut) && axis.iter().any(is_open)) {
            return None;
        }
        // Attributes and inputs that hold sizes give 0 a special meaning.
        let has_empty = self.splits.iter().any(|split| split.size < split.parts);
        if has_empty && (0..self.splits.len()).any(|factor| is_open(&factor)) {
            return None;
        }
        let found = Assignment { splits: self.splits, places: self.places? };
        found.is_cut().then_some(found)
    }
}

/// Returns the form of an operand with the given factors as axes.
pub(crate) fn form_of(
    rule: &Factors,
    axes: &[SmallVec<[usize; 2]>],
    assignment: &Assignment,
    is_output: bool,
) -> Form {
    let mut cut = Vec::new();
    let split_axes = axes.iter().map(|factors| {
        cut.extend(factors.iter().copied().filter(|factor| assignment.splits[*factor].parts > 1));
        factors.iter().map(|factor| assignment.splits[*factor]).collect()
    });
    let split_axes: Vec<SplitAxis> = split_axes.collect();
    let combined = |factor: usize| match rule.factors[factor].cut {
        Cut::Combined(combine) if assignment.splits[factor].parts > 1 => Some(combine),
        _ => None,
    };
    let summed: Vec<usize> =
        (0..rule.factors.len()).filter(|factor| is_output && combined(*factor).is_some()).collect();
    let combine: Option<Combine> = summed.first().and_then(|factor| combined(*factor));
    let count = summed.iter().map(|factor| assignment.splits[*factor].parts).product();
    let places = assignment.places.iter().map(|(device, parts)| {
        let mut place: Place = cut.iter().map(|factor| parts[*factor]).collect();
        if combine.is_some() {
            let number = summed.iter().fold(0, |number, factor| {
                number * assignment.splits[*factor].parts + parts[*factor]
            });
            place.push(number);
        }
        (*device, place)
    });
    Form::new(split_axes, combine.map(|combine| (combine, count)), places.collect())
}
