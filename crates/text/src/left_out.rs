//! Content of a model that ONNX text does not represent.

use std::fmt;

/// Summary of the content of a model that a printed ONNX text leaves out. Displays as a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    kinds: Vec<LeftOutKind>,
}

/// Kind of omitted content.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOutKind {
    /// Description of the content.
    pub what: &'static str,
    /// Place of the first omission.
    pub first: String,
    /// Number of omissions.
    pub count: u64,
    /// Whether this changes the results of the model, its signature, or the content that the `onnx`
    /// package reads. Documentation, the storage of values and empty fields do not.
    pub changes_meaning: bool,
}

impl LeftOut {
    /// Whether the text leaves out content that changes the outputs of the model, its signature, or
    /// the content that the `onnx` package reads. Documentation, the storage of values and empty
    /// fields do not.
    pub fn changes_meaning(&self) -> bool {
        self.kinds.iter().any(|kind| kind.changes_meaning)
    }

    /// Whether the text leaves nothing out.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// Returns the kinds of omitted content, in the order of their first occurrence.
    #[doc(hidden)]
    pub fn kinds(&self) -> &[LeftOutKind] {
        &self.kinds
    }

    /// Adds the content that another text leaves out.
    pub fn join(&mut self, other: LeftOut) {
        for kind in other.kinds {
            match self.kinds.iter_mut().find(|known| known.what == kind.what) {
                Some(known) => {
                    known.count += kind.count;
                    known.changes_meaning |= kind.changes_meaning;
                }
                None => self.kinds.push(kind),
            }
        }
    }

    /// Adds an omission that changes the meaning of the model.
    pub(crate) fn add(&mut self, what: &'static str, place: impl FnOnce() -> String) {
        self.add_kind(what, true, place);
    }

    /// Adds an omission that does not change the meaning of the model.
    pub(crate) fn add_harmless(&mut self, what: &'static str, place: impl FnOnce() -> String) {
        self.add_kind(what, false, place);
    }

    pub(crate) fn add_kind(
        &mut self,
        what: &'static str,
        changes_meaning: bool,
        place: impl FnOnce() -> String,
    ) {
        // Linear search: there are few kinds.
        match self.kinds.iter_mut().find(|kind| kind.what == what) {
            Some(kind) => {
                kind.count += 1;
                kind.changes_meaning |= changes_meaning;
            }
            None => {
                self.kinds.push(LeftOutKind { what, first: place(), count: 1, changes_meaning })
            }
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.kinds.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {}", kind.what, kind.first)?;
            if kind.count > 1 {
                write!(f, " and {} more", kind.count - 1)?;
            }
        }
        Ok(())
    }
}
