//! Rewrites: what may be decided about a [program](crate::program) before kernels are chosen.
//!
//! Each has a name, can be left out, and only changes data. Fusions of graph patterns such as
//! `Gelu` are in `sardonyx-passes`, because they speak operators of the standard.

pub(crate) mod channel_shuffle;
pub(crate) mod dead;
pub(crate) mod epilogue;
pub(crate) mod expansion;
pub(crate) mod gate;
mod min_cut;
pub(crate) mod orders;
pub(crate) mod pass_through;
pub(crate) mod pointwise;
#[cfg(feature = "training")]
pub(crate) mod pool_gradient;
pub(crate) mod residual_norm;
pub(crate) mod scalars;
pub(crate) mod slopes;
pub(crate) mod transposed_constant;
pub(crate) mod transposed_product;
pub(crate) mod update;
#[cfg(feature = "training")]
pub(crate) mod weight_gradient;

use sardonyx_model::NodeId;
use smallvec::SmallVec;

use crate::options::Optimization;
use crate::program::{Op, Program, Slot, Step};

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
pub(crate) const REWRITES: &[Rewrite] = &[
    Rewrite {
        name: "pass-through",
        about: "Removes copies at the outputs of subgraphs.",
        from: Optimization::Basic,
        run: pass_through::run,
    },
    Rewrite {
        name: "transposed-constant",
        about: "Folds transposes of constant matrices into products.",
        from: Optimization::Basic,
        run: transposed_constant::run,
    },
    Rewrite {
        name: "transposed-product",
        about: "Computes the transpose of a product as a product.",
        from: Optimization::All,
        run: transposed_product::run,
    },
    #[cfg(feature = "training")]
    Rewrite {
        name: "weight-gradient",
        about: "Computes the gradient of the weights of a convolution in one step.",
        from: Optimization::All,
        run: weight_gradient::run,
    },
    #[cfg(feature = "training")]
    Rewrite {
        name: "pool-gradient",
        about: "Computes the gradient of a MaxPool in one step.",
        from: Optimization::All,
        run: pool_gradient::run,
    },
    Rewrite {
        name: "slopes",
        about: "Computes slopes that are 0 where their gradient is in one step.",
        from: Optimization::All,
        run: slopes::run,
    },
    Rewrite {
        name: "update",
        about: "Computes new values of a state variable and of its optimizer in one step.",
        from: Optimization::All,
        run: update::run,
    },
    Rewrite {
        name: "epilogue",
        about: "Fuses operations after a product or convolution into its epilogue.",
        from: Optimization::All,
        run: epilogue::run,
    },
    Rewrite {
        name: "residual-normalization",
        about: "Fuses a residual sum into the normalization that follows.",
        from: Optimization::All,
        run: residual_norm::run,
    },
    Rewrite {
        name: "pointwise",
        about: "Fuses chains of element-wise functions into one pass over memory.",
        from: Optimization::All,
        run: pointwise::run,
    },
    Rewrite {
        name: "channel-shuffle",
        about: "Shuffles the channels of images in one step.",
        from: Optimization::All,
        run: channel_shuffle::run,
    },
    Rewrite {
        name: "orders",
        about: "Selects the channels-last layout for images where that is faster.",
        from: Optimization::All,
        run: orders::run,
    },
    Rewrite {
        name: "expansion",
        about: "Computes pointwise convolutions inside the depthwise ones that read them.",
        from: Optimization::All,
        run: expansion::run,
    },
    Rewrite {
        name: "gate",
        about: "Multiplies channels of images inside the pointwise convolutions that read the products.",
        from: Optimization::All,
        run: gate::run,
    },
    Rewrite {
        name: "scalars",
        about: "Compiles functions of scalars to instructions over registers.",
        from: Optimization::All,
        run: scalars::run,
    },
    Rewrite {
        name: "dead",
        about: "Removes steps whose results are not used.",
        from: Optimization::Off,
        run: dead::run,
    },
];

impl Rewrite {
    /// Changes a program, those of inner graphs first. It is valid before and after: that is looked
    /// at if it `verifies`.
    ///
    /// # Panics
    ///
    /// If the rewrite broke the program, which is a mistake in this crate.
    pub(crate) fn apply(&self, program: &mut Program, verifies: bool) -> Vec<Note> {
        let mut notes = Vec::new();
        for step in &mut program.steps {
            if let Op::Region(region) = &mut step.op {
                let bodies = region.bodies.iter_mut();
                notes.extend(bodies.flat_map(|body| self.apply(body, verifies)));
            }
        }
        notes.extend((self.run)(program));
        if verifies && let Err(broken) = program.verify() {
            panic!("after the rewrite {}: {broken}", self.name);
        }
        notes
    }
}

/// By slot: the steps that read it, once for each operand, and once a number beyond all for an
/// output of the graph.
pub(crate) struct Readers {
    /// The readers of all slots, one slot after the other. A number of a step fits, as those of
    /// nodes do.
    readers: Vec<u32>,
    /// By slot: where its readers begin; at the end, where the last ones end.
    starts: Vec<u32>,
}

impl Readers {
    pub(crate) fn new(program: &Program) -> Readers {
        let each = |see: &mut dyn FnMut(Slot, u32)| {
            for (index, step) in program.steps.iter().enumerate() {
                step.op.each_operand(|slot| slot.into_iter().for_each(|s| see(s, index as u32)));
            }
            program.outputs.iter().for_each(|slot| see(*slot, u32::MAX));
        };
        let mut starts = vec![0; program.values.len() + 1];
        each(&mut |slot, _| starts[slot.index() + 1] += 1);
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut next = starts.clone();
        let mut readers = vec![0; starts.last().copied().unwrap_or(0) as usize];
        each(&mut |slot, reader| {
            let at = &mut next[slot.index()];
            readers[*at as usize] = reader;
            *at += 1;
        });
        Readers { readers, starts }
    }

    pub(crate) fn of(&self, slot: Slot) -> &[u32] {
        let [start, end] = [self.starts[slot.index()], self.starts[slot.index() + 1]];
        &self.readers[start as usize..end as usize]
    }

    fn of_mut(&mut self, slot: Slot) -> &mut [u32] {
        let [start, end] = [self.starts[slot.index()], self.starts[slot.index() + 1]];
        &mut self.readers[start as usize..end as usize]
    }

    /// Says that a reader of a slot has another place now.
    fn moved(&mut self, slot: Slot, from: usize, to: usize) {
        for reader in self.of_mut(slot) {
            if *reader as usize == from {
                *reader = to as u32;
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
    program.steps = steps.into_iter().flatten().collect();
}
