//! Forms of a plan, and their numbers.

use std::collections::BTreeSet;
use std::ops::Range;

use hashbrown::HashMap;

use crate::form::{Device, Form, SplitAxis};
use crate::plan::FormId;

/// Forms of a plan that is being made. Equal forms get equal numbers.
pub(crate) struct Forms {
    list: Vec<Form>,
    numbers: HashMap<Form, FormId>,
    /// Number of devices.
    devices: usize,
    /// Form of inputs and constants: whole on all devices.
    pub(crate) everywhere: FormId,
}

impl Forms {
    pub(crate) fn new(devices: usize) -> Forms {
        let mut forms =
            Forms { list: Vec::new(), numbers: HashMap::new(), devices, everywhere: FormId(0) };
        forms.everywhere = forms.whole(forms.all());
        forms
    }

    /// Returns all devices.
    pub(crate) fn all(&self) -> Range<Device> {
        0..Device::try_from(self.devices).unwrap_or(Device::MAX)
    }

    /// Returns the number of a form, a new one if the plan does not have the form.
    pub(crate) fn number(&mut self, form: Form) -> FormId {
        if let Some(known) = self.numbers.get(&form) {
            return *known;
        }
        let id = FormId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(form.clone());
        self.numbers.insert(form, id);
        id
    }

    /// Returns the form with a number.
    pub(crate) fn get(&self, id: FormId) -> &Form {
        &self.list[id.0 as usize]
    }

    /// Returns the form in which each of `devices` has the whole value.
    pub(crate) fn whole(&mut self, devices: impl IntoIterator<Item = Device>) -> FormId {
        self.number(Form::whole(devices))
    }

    /// Returns the form in which device `n` has part `n` of a value without partial results.
    pub(crate) fn one_part_each(&mut self, axes: Vec<SplitAxis>) -> FormId {
        let places = self.all().map(|device| (device, std::iter::once(device as usize).collect()));
        self.number(Form::new(axes, None, places.collect()))
    }

    /// Returns `form` restricted to the devices that have the first partial result of `partial`.
    pub(crate) fn only_first(&mut self, form: FormId, partial: FormId) -> FormId {
        let partial = self.get(partial);
        let first = partial.devices().filter(|device| partial.partial_of(*device) == 0);
        let first: BTreeSet<Device> = first.collect();
        let only = self.get(form).only_on(&first);
        self.number(only)
    }

    /// Returns the forms by their numbers.
    pub(crate) fn into_list(self) -> Vec<Form> {
        self.list
    }
}
