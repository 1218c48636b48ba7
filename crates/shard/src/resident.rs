//! Values that stay on the devices from one run to the next, such as weights in training.
//!
//! A resident is an input that no caller passes: each device has its part of it before the run. An
//! output of the model may be its new value, which is moved to the form of the old one at the end
//! of the run. To choose a form that is not given, a first plan is made in which every device has
//! the whole value. The form is that of the new value in this plan if it is split, else that in
//! which the plan reads the old value.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sardonyx_model::{Dim, Type, ValueId};

use crate::form::{Device, Form};
use crate::plan::{FormId, Plan, Step};
use crate::sizes::stand_in;

/// Value that stays on the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// Index of the input of the model.
    pub input: usize,
    /// Index of the output of the model that is the new value; `None` if a run does not change it.
    pub output: Option<usize>,
    /// Form in which the devices have the value; `None` leaves the choice to the plan.
    pub form: Option<Form>,
}

/// Resident in a plan.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// Old value; `None` if the model has no such input.
    pub(crate) input: Option<ValueId>,
    /// Form before and after the run; `None` if it is not given.
    pub(crate) form: Option<FormId>,
    /// New value, and its form at the end of the run.
    pub(crate) new: Option<(ValueId, FormId)>,
}

impl Kept {
    /// Whether the devices have their parts before the run.
    pub(crate) fn is_given(&self) -> bool {
        self.form.is_some()
    }
}

impl Plan {
    /// Returns for each resident the form in which the devices have it before and after a run.
    /// `None` if the form was not given and the model neither reads nor changes the resident.
    pub fn forms_of_residents(&self) -> impl ExactSizeIterator<Item = Option<&Form>> {
        self.kept.iter().map(|kept| kept.form.map(|form| self.form(form)))
    }

    /// Returns the number of bytes of residents that a device has before and after a run.
    pub fn resident_bytes(&self, device: Device) -> u64 {
        let own = self.kept.iter().filter_map(|kept| {
            let (input, form) = (kept.input?, kept.form?);
            Some(self.part_bytes(input, form, device))
        });
        own.sum()
    }

    /// Returns the residents of which a device has a part, with the types of the parts.
    pub(crate) fn parts_on(&self, device: Device) -> impl Iterator<Item = (ValueId, Type)> + '_ {
        self.kept.iter().filter_map(move |kept| {
            let form = self.form(kept.form?);
            let input = kept.input?;
            let (elem, dims) = self.tensor(input)?;
            let dims = form.dims(device, &stand_in(&dims?))?;
            Some((input, Type::tensor(elem, dims.into_iter().map(Dim::from))))
        })
    }

    /// Writes a line for each resident that a run changes, with its form and the names of the old
    /// and the new value.
    pub(crate) fn print_residents(&self, text: &mut String) {
        let name = |value: ValueId| self.model().display(Some(self.model().value(value).name));
        for kept in &self.kept {
            if let (Some(input), Some((value, form))) = (kept.input, kept.new) {
                let (input, value, form) = (name(input), name(value), self.form(form));
                let _ = writeln!(text, "keep {value}: {form} as {input}");
            }
        }
    }

    /// Returns the residents with forms: a form that is not given is derived from this plan. It
    /// stays `None` for a resident that the model neither reads nor changes.
    pub(crate) fn settled(&self, residents: &[Resident]) -> Vec<Resident> {
        let both = residents.iter().zip(&self.kept);
        let settled = both.map(|(resident, kept)| {
            let form = resident.form.clone().or_else(|| self.best_form(kept));
            Resident { form, ..resident.clone() }
        });
        settled.collect()
    }

    fn best_form(&self, kept: &Kept) -> Option<Form> {
        let new = kept.new.map(|(_, form)| self.form(form));
        if let Some(form) = new.filter(|form| !form.is_whole()) {
            return Some(form.clone());
        }
        let read = kept.input.map_or_else(Vec::new, |input| self.forms_read(input));
        if let ([form], None) = (&read[..], new) {
            return Some(form.clone());
        }
        let devices: BTreeSet<Device> = read.iter().chain(new).flat_map(Form::devices).collect();
        (!devices.is_empty()).then(|| Form::whole(devices))
    }

    /// Returns the forms in which devices read a value that each of them has whole.
    fn forms_read(&self, value: ValueId) -> Vec<Form> {
        let mut found: Vec<Form> = Vec::new();
        let mut add = |form: FormId, devices: &BTreeSet<Device>| {
            let form = self.form(form).only_on(devices);
            if !found.contains(&form) && form.devices().next().is_some() {
                found.push(form);
            }
        };
        for step in &self.steps {
            match step {
                Step::Move(moved) if moved.value == value => {
                    add(moved.to, &self.form(moved.to).devices().collect());
                }
                Step::Move(_) => {}
                Step::Node(computed) => {
                    let inputs = self.model().inputs(computed.node).zip(&computed.inputs);
                    let inputs = inputs.filter_map(|(input, form)| Some((input?, (*form)?)));
                    let reads = inputs.chain(computed.captured.iter().copied());
                    let devices: BTreeSet<Device> = computed.devices().collect();
                    // Parts are taken by moves, whose forms are added above.
                    let whole = reads
                        .filter(|(input, form)| *input == value && self.form(*form).is_whole());
                    whole.for_each(|(_, form)| add(form, &devices));
                }
            }
        }
        found
    }
}
