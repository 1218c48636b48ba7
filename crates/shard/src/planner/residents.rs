//! Residents of a plan that is being made: their old forms, and moves of their new values.

use super::Planner;
use crate::resident::Kept;

impl Planner<'_> {
    /// Records the given forms of residents.
    pub(super) fn take_residents(&mut self) -> Vec<Kept> {
        let main = self.prepared.resolved.model().graph(self.prepared.resolved.main());
        let mut kept = Vec::with_capacity(self.prepared.residents.len());
        for resident in &self.prepared.residents {
            let input = main.inputs.get(resident.input).and_then(|info| info.value);
            let form = resident.form.clone().map(|form| self.forms.number(form));
            if let (Some(input), Some(form)) = (input, form) {
                self.locations.set(input, form);
            }
            kept.push(Kept { input, form, new: None });
        }
        kept
    }

    /// Moves the new values of residents to the forms of the old ones.
    pub(super) fn keep_residents(&mut self, kept: &mut [Kept]) {
        let prepared = self.prepared;
        let main = prepared.resolved.model().graph(prepared.resolved.main());
        for (resident, kept) in prepared.residents.iter().zip(kept) {
            let new = resident.output.and_then(|output| main.outputs.get(output)?.value);
            let Some(value) = new else { continue };
            let form = kept.form.unwrap_or_else(|| self.current(value));
            self.need(value, form);
            kept.new = Some((value, form));
        }
    }
}
