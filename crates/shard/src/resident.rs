//! Values that stay on the devices from one run to the next, as weights do that are trained.
//!
//! A resident is an input that nobody gives. It has a form: each device has its part of it before
//! the run. An output may be its new value, which has the same form in the end. Where the form is
//! open, a plan is made in which every device has the whole value; the form is the one in which
//! that plan leaves the new value, or else the one in which it reads the old one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use sardonyx_model::{Dim, Type, ValueId};

use crate::form::{Device, Form};
use crate::plan::{FormId, Plan, Step};
use crate::planner::Planner;
use crate::sizes::stand_in;

/// A value that stays on the devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resident {
    /// The input of the model, by position.
    pub input: usize,
    /// The output of the model that is its new value, by position; `None` if a run does not change
    /// it.
    pub output: Option<usize>,
    /// The form in which the devices have it; `None` leaves that to the plan.
    pub form: Option<Form>,
}

/// A resident in a plan.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// `None` if the model has no such input.
    pub(super) input: Option<ValueId>,
    /// The form before and after the run; `None` while it is open.
    form: Option<FormId>,
    /// The new value, and the form that it has in the end.
    pub(super) new: Option<(ValueId, FormId)>,
}

impl Kept {
    /// Whether the devices have it already.
    pub(super) fn is_given(&self) -> bool {
        self.form.is_some()
    }
}

impl Plan {
    /// By resident, the form in which the devices have it before and after a run. `None` if the
    /// form was open and the model neither reads nor changes it.
    pub fn forms_of_residents(&self) -> impl ExactSizeIterator<Item = Option<&Form>> {
        self.kept.iter().map(|kept| kept.form.map(|form| self.form(form)))
    }

    /// The bytes of residents that a device has, before and after a run.
    pub fn resident_bytes(&self, device: Device) -> u64 {
        let own = self.kept.iter().filter_map(|kept| {
            let (input, form) = (kept.input?, kept.form?);
            Some(self.part_bytes(input, form, device))
        });
        own.sum()
    }

    /// The parts of new values that devices have in the end.
    pub(super) fn kept_parts(&self) -> impl Iterator<Item = (ValueId, FormId, Device)> + '_ {
        let new = self.kept.iter().filter_map(|kept| kept.new);
        new.flat_map(|(value, form)| {
            self.form(form).devices().map(move |device| (value, form, device))
        })
    }

    /// The residents of which a device has a part, with the types of these.
    pub(super) fn parts_on(&self, device: Device) -> impl Iterator<Item = (ValueId, Type)> + '_ {
        self.kept.iter().filter_map(move |kept| {
            let form = self.form(kept.form?);
            let input = kept.input?;
            let (elem, dims) = self.tensor(input)?;
            let dims = form.dims(device, &stand_in(&dims?))?;
            Some((input, Type::tensor(elem, dims.into_iter().map(Dim::from))))
        })
    }

    /// A line for each resident that a run changes: its form, and what its new value is called.
    pub(super) fn print_residents(&self, text: &mut String) {
        let name = |value: ValueId| self.model.display(Some(self.model.value(value).name));
        for kept in &self.kept {
            if let (Some(input), Some((value, form))) = (kept.input, kept.new) {
                let (input, value, form) = (name(input), name(value), self.form(form));
                let _ = writeln!(text, "keep {value}: {form} as {input}");
            }
        }
    }

    /// The same residents, each in the form in which it is best had; `None` for one that is neither
    /// read nor changed.
    pub(super) fn settled(&self, residents: &[Resident]) -> Vec<Resident> {
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

    /// The forms in which devices read a value that each of them has whole.
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
                    let inputs = self.model.inputs(computed.node).zip(&computed.inputs);
                    let inputs = inputs.filter_map(|(input, form)| Some((input?, (*form)?)));
                    let reads = inputs.chain(computed.captured.iter().copied());
                    let devices: BTreeSet<Device> = computed.devices().collect();
                    // What was taken as a part is noted there.
                    let whole = reads
                        .filter(|(input, form)| *input == value && self.form(*form).is_whole());
                    whole.for_each(|(_, form)| add(form, &devices));
                }
            }
        }
        found
    }
}

impl Planner<'_> {
    /// Lets residents have the forms that they are given in.
    pub(super) fn take_residents(&mut self) {
        let prepared = self.prepared;
        let main = prepared.resolved.model().graph(prepared.resolved.main());
        for resident in &prepared.residents {
            let input = main.inputs.get(resident.input).and_then(|info| info.value);
            let form = resident.form.clone().map(|form| self.number(form));
            if let (Some(input), Some(form)) = (input, form) {
                self.forms_of.insert(input, vec![form]);
            }
            self.plan.kept.push(Kept { input, form, new: None });
        }
    }

    /// Brings new values of residents to the forms of the old ones.
    pub(super) fn keep_residents(&mut self) {
        let prepared = self.prepared;
        let main = prepared.resolved.model().graph(prepared.resolved.main());
        for (index, resident) in prepared.residents.iter().enumerate() {
            let new = resident.output.and_then(|output| main.outputs.get(output)?.value);
            let Some(value) = new else { continue };
            let form = self.plan.kept[index].form.unwrap_or_else(|| self.current(value));
            self.need(value, form);
            self.plan.kept[index].new = Some((value, form));
        }
    }
}
