//! Windows of pools that count although the formula of the standard excludes them.

use sardonyx_model::{Model, NodeId};

use super::Inference;
use super::problems::MOST_LISTED;
use crate::codes;
use crate::finding::{Code, Findings, Severity, Spot};

impl Inference {
    /// Lists the remark of a rule about a window, once for each node and size.
    pub(super) fn add_cut_window(&mut self, node: NodeId, fact: String) {
        let cut = (node, fact);
        if self.cut_windows.len() < MOST_LISTED && self.cut_windows.last() != Some(&cut) {
            self.cut_windows.push(cut);
        }
    }

    /// Adds a finding for each axis of a pool with one window where the formula has none.
    pub fn cut_windows(
        &self,
        model: &Model,
        found: &mut Findings,
        level: impl Fn(&'static Code) -> Option<Severity>,
    ) {
        let code = &codes::CUT_WINDOW;
        let Some(severity) = level(code) else { return };
        for (node, fact) in &self.cut_windows {
            found
                .add(model, code, severity, Spot::node(*node), || (fact.clone(), code.help.into()));
        }
    }
}
