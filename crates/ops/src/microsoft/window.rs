//! Windows of states: an operator with a carried state returns the states after each of its last
//! positions, so that a decoder can go back to one of them.

use crate::function::vector;

/// Largest window.
const LARGEST: i64 = 8;

/// Returns the number of states from the attribute `state_window`, if it requests a window.
pub(super) fn state_window(attribute: Option<i64>) -> Result<Option<i64>, String> {
    match attribute.unwrap_or(0) {
        0 => Ok(None),
        window @ 1..=LARGEST => Ok(Some(window)),
        window => Err(format!("state_window must be between 0 and {LARGEST}, not {window}")),
    }
}

/// Window of states.
pub(super) struct StateWindow<'a> {
    pub(super) window: i64,
    /// Value that holds the number of positions of this call, a list of one.
    pub(super) count: &'a str,
}

impl StateWindow<'_> {
    /// Builds `present_state`. `state` builds the state of a slot, given its number and the name of
    /// its value; its nodes may read `slot_N_given`, the number of positions before it. The value
    /// `zero` is a list of that number.
    ///
    /// A state after a position that this call did not have is zeros.
    pub(super) fn text(&self, state: &dyn Fn(i64, &str) -> String) -> String {
        let StateWindow { window, count } = *self;
        let (mut text, mut slots) = (String::new(), Vec::new());
        for slot in 0..window {
            text += &vector(&format!("slots_after_{slot}"), &[window - 1 - slot]);
            text += &format!("slot_{slot}_given = Sub ({count}, slots_after_{slot})\n");
            text += &state(slot, &format!("slot_{slot}_state"));
            text += &format!(
                "slot_{slot}_has_state = Greater (slot_{slot}_given, zero)
                slot_{slot}_sizes = Shape (slot_{slot}_state)
                slot_{slot}_zeros = ConstantOfShape (slot_{slot}_sizes)
                slot_{slot}_none = CastLike (slot_{slot}_zeros, slot_{slot}_state)
                slot_{slot}_kept = Where (slot_{slot}_has_state, slot_{slot}_state, slot_{slot}_none)
                slot_{slot} = Unsqueeze (slot_{slot}_kept, zero)\n"
            );
            slots.push(format!("slot_{slot}"));
        }
        text + &format!("present_state = Concat <axis = 0> ({})\n", slots.join(", "))
    }
}
