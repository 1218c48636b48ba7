//! Rewrites: decisions about a [program](crate::program) before kernels are selected.
//!
//! Each has a name, can be left out, and only changes data. Fusions of graph patterns such as
//! `Gelu` are in `sardonyx-passes`, because they are expressed in operators of the standard.

pub(crate) mod attention_cache;
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
pub(crate) mod quantized_weights;
pub(crate) mod residual_norm;
pub(crate) mod scalars;
pub(crate) mod slopes;
pub(crate) mod transposed_constant;
pub(crate) mod transposed_product;
pub(crate) mod update;
#[cfg(feature = "training")]
pub(crate) mod weight_gradient;
pub(crate) mod written_rows;

use sardonyx_model::NodeId;
use smallvec::SmallVec;

use crate::options::Optimization;
use crate::program::{Op, Program, Slot, Step};

/// Change of a program that keeps its results, except for rounding.
pub(crate) struct Rewrite {
    /// Name in lower case, with hyphens.
    pub(crate) name: &'static str,
    /// Description in one sentence.
    pub(crate) about: &'static str,
    /// Lowest optimization level that enables it.
    pub(crate) from: Optimization,
    run: fn(&mut Program) -> Vec<Note>,
}

/// Change, or near miss, of a rewrite with two steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    /// Nodes of the step that absorbs the other, before the change.
    pub(crate) by: SmallVec<[NodeId; 1]>,
    /// Nodes of the other step.
    pub(crate) nodes: SmallVec<[NodeId; 1]>,
    /// Reason for a near miss.
    pub(crate) missed: Option<String>,
}

impl Note {
    /// Notes that a step absorbed another one.
    fn fused(by: &Step, step: &Step) -> Note {
        Note { by: by.origins.clone(), nodes: step.origins.clone(), missed: None }
    }

    /// Notes that a step could not absorb another one.
    fn near_miss(by: &Step, step: &Step, why: impl Into<String>) -> Note {
        Note { missed: Some(why.into()), ..Note::fused(by, step) }
    }
}

/// Name of the program before any rewrite.
pub(crate) const LOWERING: &str = "lowering";

/// Yields the name and description of each rewrite, in order.
pub fn rewrites() -> impl Iterator<Item = (&'static str, &'static str)> {
    REWRITES.iter().map(|rewrite| (rewrite.name, rewrite.about))
}

/// All rewrites, in order.
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
        name: "quantized-weights",
        about: "Lets products read constant matrices in the bits that they are quantized to.",
        from: Optimization::Basic,
        run: quantized_weights::run,
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
        name: "attention-cache",
        about: "Appends keys and values to cached ones in steps of their own.",
        from: Optimization::All,
        run: attention_cache::run,
    },
    Rewrite {
        name: "written-rows",
        about: "Extends a cache where new entries are written.",
        from: Optimization::All,
        run: written_rows::run,
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
    /// Changes a program, inner graphs first. Verifies the program before and after if `verifies`.
    ///
    /// # Panics
    ///
    /// If the rewrite broke the program, which is a bug of this crate.
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

/// Readers of each slot: steps, once for each operand, and a number beyond all steps for an output
/// of the graph.
pub(crate) struct Readers {
    /// Readers of all slots, grouped by slot. The number of a step fits, as those of nodes do.
    readers: Vec<u32>,
    /// Start of each slot's readers, then the end of the last.
    starts: Vec<u32>,
}

impl Readers {
    pub(crate) fn new(program: &Program) -> Readers {
        let each = |see: &mut dyn FnMut(Slot, u32)| {
            for (index, step) in program.steps.iter().enumerate() {
                step.op.visit_operands(|slot| slot.into_iter().for_each(|s| see(s, index as u32)));
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

    pub(crate) fn readers(&self, slot: Slot) -> &[u32] {
        let [start, end] = [self.starts[slot.index()], self.starts[slot.index() + 1]];
        &self.readers[start as usize..end as usize]
    }

    fn readers_mut(&mut self, slot: Slot) -> &mut [u32] {
        let [start, end] = [self.starts[slot.index()], self.starts[slot.index() + 1]];
        &mut self.readers[start as usize..end as usize]
    }

    /// Replaces the number of a reader of a slot.
    fn replace(&mut self, slot: Slot, from: usize, to: usize) {
        for reader in self.readers_mut(slot) {
            if *reader as usize == from {
                *reader = to as u32;
            }
        }
    }
}

/// Takes the steps of a program, so that single ones can be removed.
fn take_steps(program: &mut Program) -> Vec<Option<Step>> {
    std::mem::take(&mut program.steps).into_iter().map(Some).collect()
}

/// Puts the steps back that [`take_steps`] took.
fn put_steps(program: &mut Program, steps: Vec<Option<Step>>) {
    program.steps = steps.into_iter().flatten().collect();
}
