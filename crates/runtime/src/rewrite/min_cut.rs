//! Minimum cuts of small graphs, by Dinic, "Algorithm for solution of a problem of maximum flow in
//! networks with power estimation" (1970): shortest augmenting paths, found level by level.

/// Graph whose edges have a cost to cut.
#[derive(Debug)]
pub(super) struct Network {
    /// Edges of each node.
    edges: Vec<Vec<u32>>,
    /// Head and remaining capacity of each edge. An edge and its reverse are adjacent.
    to: Vec<u32>,
    left: Vec<u64>,
}

/// Source of the network. Nodes without preference are on its side.
pub(super) const SOURCE: u32 = 0;
/// Sink of the network.
pub(super) const SINK: u32 = 1;

/// Capacity that exceeds any cut.
pub(super) const NEVER: u64 = u64::MAX / 4;

impl Network {
    pub(super) fn new() -> Network {
        Network { edges: vec![Vec::new(); 2], to: Vec::new(), left: Vec::new() }
    }

    /// Adds a node.
    pub(super) fn add_node(&mut self) -> u32 {
        self.edges.push(Vec::new());
        self.edges.len() as u32 - 1
    }

    /// Adds the cost of `from` being on the source's side and `to` on the sink's.
    pub(super) fn add_edge(&mut self, from: u32, to: u32, cost: u64) {
        if cost == 0 || from == to {
            return;
        }
        let edge = self.to.len() as u32;
        self.edges[from as usize].push(edge);
        self.edges[to as usize].push(edge + 1);
        self.to.extend([to, from]);
        self.left.extend([cost, 0]);
    }

    /// Returns whether each node is on the source's side of the cheapest cut; of several, the one
    /// with the fewest nodes there.
    pub(super) fn find_cut(mut self) -> Vec<bool> {
        loop {
            let levels = self.find_levels();
            if levels[SINK as usize] == u32::MAX {
                return levels.iter().map(|level| *level != u32::MAX).collect();
            }
            let mut next = vec![0; self.edges.len()];
            while self.augment(&levels, &mut next) {}
        }
    }

    /// Computes the distance of each node from the source over edges with capacity left.
    fn find_levels(&self) -> Vec<u32> {
        let mut levels = vec![u32::MAX; self.edges.len()];
        levels[SOURCE as usize] = 0;
        let mut queue = vec![SOURCE];
        let mut at = 0;
        while let Some(node) = queue.get(at).copied() {
            at += 1;
            for edge in &self.edges[node as usize] {
                let to = self.to[*edge as usize];
                if self.left[*edge as usize] > 0 && levels[to as usize] == u32::MAX {
                    levels[to as usize] = levels[node as usize] + 1;
                    queue.push(to);
                }
            }
        }
        levels
    }

    /// Augments the flow by one shortest path; `next` is the first edge of each node that has not
    /// failed yet.
    fn augment(&mut self, levels: &[u32], next: &mut [usize]) -> bool {
        let mut path: Vec<u32> = Vec::new();
        let mut node = SOURCE;
        while node != SINK {
            let edges = &self.edges[node as usize];
            let from = next[node as usize];
            let found = (from..edges.len()).find(|at| {
                let to = self.to[edges[*at] as usize] as usize;
                self.left[edges[*at] as usize] > 0 && levels[to] == levels[node as usize] + 1
            });
            next[node as usize] = found.unwrap_or(edges.len());
            if let Some(at) = found {
                path.push(edges[at]);
                node = self.to[edges[at] as usize];
                continue;
            }
            // Dead end: back to the node before.
            let Some(edge) = path.pop() else { return false };
            node = self.to[edge as usize ^ 1];
            next[node as usize] += 1;
        }
        let flow = path.iter().map(|edge| self.left[*edge as usize]).min().unwrap_or(0);
        for edge in path {
            self.left[edge as usize] -= flow;
            self.left[edge as usize ^ 1] = self.left[edge as usize ^ 1].saturating_add(flow);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the cost of a cut.
    fn cost(edges: &[(u32, u32, u64)], side: &[bool]) -> u64 {
        let cut = |edge: &&(u32, u32, u64)| side[edge.0 as usize] && !side[edge.1 as usize];
        edges.iter().filter(cut).map(|edge| edge.2).sum()
    }

    #[test]
    fn cuts_cost_as_little_as_the_best_of_all() {
        let mut state = 12345u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for _ in 0..300 {
            let nodes = 2 + random(8);
            let edges: Vec<(u32, u32, u64)> = (0..random(30))
                .map(|_| (random(nodes), random(nodes), u64::from(random(10))))
                .filter(|edge| edge.0 != SINK && edge.1 != SOURCE)
                .collect();
            let mut network = Network::new();
            for _ in 2..nodes {
                network.add_node();
            }
            for (from, to, cost) in &edges {
                network.add_edge(*from, *to, *cost);
            }
            let side = network.find_cut();
            assert!(side[SOURCE as usize] && !side[SINK as usize]);
            let all = (0..1u32 << (nodes - 2)).map(|bits| {
                let side: Vec<bool> = (0..nodes)
                    .map(|node| node == 0 || node > 1 && bits >> (node - 2) & 1 == 1)
                    .collect();
                cost(&edges, &side)
            });
            assert_eq!(Some(cost(&edges, &side)), all.min(), "{edges:?}");
        }
    }
}
