//! Random numbers of nodes.
//!
//! A node with a seed draws the numbers of numpy's `RandomState` whenever it runs. Without one it
//! has a stream of its own in each run and each iteration of a loop: a function of the session's
//! seed, the number of the run, the name of its output, and how often the node has drawn in the
//! run. So the numbers depend neither on threads nor on the order of steps nor on the rest of the
//! model, and stay equal when the model is converted.

use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use sardonyx_kernels::random::{Generator, Mt19937, Philox};
use sardonyx_model::NodeId;
use sardonyx_passes::Resolved;
use smallvec::SmallVec;

/// Random numbers of a session.
#[derive(Debug)]
pub(crate) struct Seed {
    seed: u64,
    /// Number of runs so far; `None` if no node draws.
    runs: Option<AtomicU64>,
}

impl Seed {
    /// Makes a generator from a seed, by default a new one each time. Runs of programs that do not
    /// draw are not counted, as that takes a notable part of the time of a short run.
    pub(crate) fn new(seed: Option<u64>, draws: bool) -> Seed {
        // The hasher of the standard library is seeded by the system, and needs no dependency.
        let seed = seed.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        Seed { seed, runs: draws.then(AtomicU64::default) }
    }

    /// Starts the random numbers of the next run. A run with a seed of its own is not counted.
    pub(crate) fn next_run(&self, own: Option<u64>) -> Randomness {
        let (seed, run) = match (own, &self.runs) {
            (Some(seed), _) => (seed, Some(0)),
            (None, Some(runs)) => (self.seed, Some(runs.fetch_add(1, Ordering::Relaxed))),
            (None, None) => (self.seed, None),
        };
        Randomness { seed, run, drawn: RefCell::default() }
    }
}

/// Whether a node of the model may draw: operators that do have an attribute `seed`.
pub(crate) fn draws(resolved: &Resolved) -> bool {
    let mut nodes = resolved.model().graphs().flat_map(|(_, graph)| &graph.nodes);
    nodes.any(|node| resolved.schema(*node).is_none_or(|schema| schema.attribute("seed").is_some()))
}

/// Random numbers of a run.
#[derive(Debug)]
pub(crate) struct Randomness {
    seed: u64,
    /// Number of the run; `None` if no node draws.
    run: Option<u64>,
    /// Number of draws by the hash of a node's name, sorted.
    drawn: RefCell<SmallVec<[(u32, u32); 4]>>,
}

impl Randomness {
    /// Starts a new stream. Nodes whose names have equal hashes, such as nodes of one name in two
    /// graphs, take turns.
    fn stream(&self, name: &[u8]) -> Philox {
        let key = fnv(name);
        let mut drawn = self.drawn.borrow_mut();
        let place = match drawn.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(place) => place,
            Err(place) => {
                drawn.insert(place, (key, 0));
                place
            }
        };
        let (_, times) = &mut drawn[place];
        debug_assert!(self.run.is_some(), "a node draws that `draws` does not find");
        let run = self.run.unwrap_or(0);
        let stream = [run as u32, (run >> 32) as u32, key, *times];
        *times = times.wrapping_add(1);
        Philox::new(self.seed, stream)
    }
}

/// Computes the FNV-1a hash of 32 bits.
fn fnv(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Random numbers of one step of a run; by default independent of any run, for steps that need
/// none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Draws<'r> {
    of: Option<(&'r Randomness, &'r Resolved, NodeId)>,
}

impl<'r> Draws<'r> {
    pub(crate) fn new(run: &'r Randomness, resolved: &'r Resolved, node: NodeId) -> Draws<'r> {
        Draws { of: Some((run, resolved, node)) }
    }

    /// Makes the generator for one execution of the step, whose node may have a seed.
    pub(crate) fn generator(self, seed: Option<u32>) -> Generator {
        match (seed, self.of) {
            (Some(seed), _) => Generator::Mt19937(Mt19937::new(seed)),
            (None, Some((run, resolved, node))) => {
                let model = resolved.model();
                let output = model.outputs(node).iter().flatten().next();
                let name = output.map(|output| model.text(model.value(*output).name));
                Generator::Philox(run.stream(name.unwrap_or_default()))
            }
            (None, None) => Generator::Philox(Philox::new(0, [0; 4])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_draw_has_a_stream_of_its_own() {
        let streams = |seed: &Seed| {
            let mut streams = Vec::new();
            for _ in 0..2 {
                let run = seed.next_run(None);
                streams.extend([b"b", b"a", b"b"].map(|name| format!("{:?}", run.stream(name))));
            }
            streams
        };
        let found = streams(&Seed::new(Some(3), true));
        let mut distinct = found.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), 6);
        assert_eq!(streams(&Seed::new(Some(3), true)), found);
        assert!(streams(&Seed::new(Some(4), true)).iter().all(|stream| !found.contains(stream)));
        assert_ne!(streams(&Seed::new(None, true)), streams(&Seed::new(None, true)));
        // The order of nodes has no effect.
        let run = Seed::new(Some(3), true).next_run(None);
        assert_eq!(format!("{:?}", run.stream(b"a")), found[1]);
    }

    #[test]
    fn a_run_with_its_own_seed_repeats_and_changes_no_other_run() {
        let stream = |run: Randomness| format!("{:?}", run.stream(b"a"));
        let seed = Seed::new(Some(3), true);
        let own = stream(seed.next_run(Some(8)));
        assert_eq!(stream(seed.next_run(Some(8))), own);
        assert_ne!(stream(seed.next_run(Some(9))), own);
        assert_eq!(stream(seed.next_run(None)), stream(Seed::new(Some(3), true).next_run(None)));
    }

    #[test]
    fn the_hash_is_that_of_its_authors() {
        assert_eq!([&b""[..], b"a", b"foobar"].map(fnv), [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }
}
