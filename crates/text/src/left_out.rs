//! What a text does not say about the model that it was printed from.

use std::fmt;

/// What was left out, by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    kinds: Vec<LeftOutKind>,
}

/// One kind of thing that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutKind {
    /// What.
    pub what: &'static str,
    /// Where the first one is.
    pub first: String,
    /// How many there are.
    pub count: u64,
}

impl LeftOut {
    /// Whether the text says everything.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// What was left out, in the order in which it came up.
    pub fn kinds(&self) -> &[LeftOutKind] {
        &self.kinds
    }

    /// Adds what another text does not say.
    pub fn join(&mut self, other: LeftOut) {
        for kind in other.kinds {
            match self.kinds.iter_mut().find(|known| known.what == kind.what) {
                Some(known) => known.count += kind.count,
                None => self.kinds.push(kind),
            }
        }
    }

    pub(crate) fn add(&mut self, what: &'static str, place: impl FnOnce() -> String) {
        // There are few kinds, and the texts are constants.
        match self.kinds.iter_mut().find(|kind| kind.what == what) {
            Some(kind) => kind.count += 1,
            None => self.kinds.push(LeftOutKind {
                what,
                first: place(),
                count: 1,
            }),
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
