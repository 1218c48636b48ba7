//! Rewrites: what may be decided about a [program](crate::program) before kernels are chosen.
//!
//! Each has a name, can be left out, and only changes data. Fusions of graph patterns such as
//! `Gelu` are in `sardonyx-passes`, because they speak operators of the standard.

pub(crate) mod dead;
pub(crate) mod epilogue;
pub(crate) mod pointwise;
pub(crate) mod residual_norm;
pub(crate) mod transposed_constant;

use sardonyx_model::NodeId;
use smallvec::SmallVec;

use crate::options::Optimization;
use crate::program::{Program, Slot, Step};

/// A change of a program that changes nothing of what it computes, but for rounding.
pub(crate) struct Rewrite {
    /// In lower case, with hyphens.
    pub(crate) name: &'static str,
    /// What it does, in a sentence.
    pub(crate) about: &'static str,
    /// The least optimization that it belongs to.
    pub(crate) from: Optimization,
    run: fn(&mut Program) -> Vec<Note>,
}

/// What a rewrite did, or nearly did, with two steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// The nodes of the step that takes over, before it does.
    pub(crate) by: SmallVec<[NodeId; 1]>,
    /// The nodes of the other step.
    pub(crate) nodes: SmallVec<[NodeId; 1]>,
    /// Why nothing was done, if so.
    pub(crate) missed: Option<String>,
}

impl Note {
    /// A step took over what another one did.
    fn joined(by: &Step, step: &Step) -> Note {
        Note { by: by.origins.clone(), nodes: step.origins.clone(), missed: None }
    }

    /// A step does not take over what another one does.
    fn missed(by: &Step, step: &Step, why: impl Into<String>) -> Note {
        Note { missed: Some(why.into()), ..Note::joined(by, step) }
    }
}

/// The name of the program before any rewrite.
pub(crate) const LOWERING: &str = "lowering";

/// The names of all rewrites, in the order in which they run, and what each does.
pub fn rewrites() -> impl Iterator<Item = (&'static str, &'static str)> {
    REWRITES.iter().map(|rewrite| (rewrite.name, rewrite.about))
}

/// All of them, in the order in which they run.
pub(crate) const REWRITES: [Rewrite; 5] = [
    Rewrite {
        name: "transposed-constant",
        about: "Products read constant matrices that are transposed as they are stored.",
        from: Optimization::Basic,
        run: transposed_constant::run,
    },
    Rewrite {
        name: "epilogue",
        about: "What follows a product or a convolution is done before its result is written.",
        from: Optimization::All,
        run: epilogue::run,
    },
    Rewrite {
        name: "residual-normalization",
        about: "A sum that is normalized next is added up while it is normalized.",
        from: Optimization::All,
        run: residual_norm::run,
    },
    Rewrite {
        name: "pointwise",
        about: "Functions of elements that follow each other pass over memory once.",
        from: Optimization::All,
        run: pointwise::run,
    },
    Rewrite {
        name: "dead",
        about: "Steps whose results nothing reads are left out.",
        from: Optimization::Off,
        run: dead::run,
    },
];

impl Rewrite {
    /// Changes a program, which is valid before and after: that is looked at if it `verifies`.
    ///
    /// # Panics
    ///
    /// If the rewrite broke the program, which is a mistake in this crate.
    pub(crate) fn apply(&self, program: &mut Program, verifies: bool) -> Vec<Note> {
        let notes = (self.run)(program);
        if verifies && let Err(broken) = program.verify() {
            panic!("after the rewrite {}: {broken}", self.name);
        }
        notes
    }
}

/// By slot: the steps that read it, once for each operand, and once a number beyond all for an
/// output of the graph.
pub(crate) struct Readers(Vec<SmallVec<[usize; 2]>>);

impl Readers {
    pub(crate) fn new(program: &Program) -> Readers {
        let mut readers = vec![SmallVec::new(); program.values.len()];
        for (index, step) in program.steps.iter().enumerate() {
            for slot in step.op.operands().into_iter().flatten() {
                readers[slot.index()].push(index);
            }
        }
        for slot in &program.outputs {
            readers[slot.index()].push(usize::MAX);
        }
        Readers(readers)
    }

    pub(crate) fn of(&self, slot: Slot) -> &[usize] {
        &self.0[slot.index()]
    }

    /// Says that a reader of a slot has another place now.
    fn moved(&mut self, slot: Slot, from: usize, to: usize) {
        for reader in &mut self.0[slot.index()] {
            if *reader == from {
                *reader = to;
            }
        }
    }
}

/// The steps of a program, to be taken out one by one.
fn taken_apart(program: &mut Program) -> Vec<Option<Step>> {
    std::mem::take(&mut program.steps).into_iter().map(Some).collect()
}

/// The opposite of [`taken_apart`].
fn put_together(program: &mut Program, steps: Vec<Option<Step>>) {
    program.steps.reserve_exact(steps.len());
    program.steps.extend(steps.into_iter().flatten());
}
