//! Places for the vertices of a picture, in layers from top to bottom.
//!
//! The method is that of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
//! Hierarchical System Structures", IEEE Transactions on Systems, Man, and Cybernetics 11 (2),
//! 1981: layers by the longest path, dummy vertices where an edge passes through a layer, orders
//! within layers by barycenters, and horizontal places by priority, where dummy vertices come first
//! so that long edges are straight. Crossings are counted as by Barth, Jünger and Mutzel, "Simple
//! and Efficient Bilayer Cross Counting", 2002.

use std::cmp::Ordering;

/// Free space between two vertices of a layer.
const GAP: f64 = 24.0;
/// Free space beside an edge that passes through a layer.
const EDGE_GAP: f64 = 14.0;
/// Free space between two layers.
const LAYER_GAP: f64 = 42.0;
/// Passes over all layers that look for an order with fewer crossings.
const ORDER_PASSES: usize = 24;
/// Passes over all layers that move vertices towards their neighbours.
const PLACE_PASSES: usize = 12;

/// Width and height of a vertex.
pub(crate) type Size = (f64, f64);

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The centres of vertices.
    pub(crate) centres: Vec<(f64, f64)>,
    /// The points of each edge: the bottom of the one vertex and of its layer, the top and the
    /// bottom of each layer in between, the top of the last layer and of the other vertex.
    pub(crate) routes: Vec<Vec<(f64, f64)>>,
    pub(crate) size: Size,
}

/// Places vertices of these sizes. An edge that leads back, against the direction of the others,
/// gets a route as well.
pub(crate) fn layout(sizes: &[Size], edges: &[(usize, usize)]) -> Layout {
    let forward = without_cycles(sizes.len(), edges);
    let layers = layers(sizes.len(), &forward);
    let mut graph = Layered::new(sizes, &forward, &layers);
    graph.order();
    graph.place();
    graph.finish(sizes, edges)
}

/// The edges, those that close a cycle turned around.
fn without_cycles(count: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    edges.iter().for_each(|(from, to)| out[*from].push(*to));
    // 0 until a walk comes by, 1 while it is below, 2 afterwards.
    let mut state = vec![0u8; count];
    let mut finished = Vec::new();
    for root in 0..count {
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        let mut walk = vec![(root, 0)];
        while let Some((vertex, next)) = walk.last_mut() {
            let vertex = *vertex;
            match out[vertex].get(*next) {
                Some(to) => {
                    *next += 1;
                    if state[*to] == 0 {
                        state[*to] = 1;
                        walk.push((*to, 0));
                    }
                }
                None => {
                    state[vertex] = 2;
                    finished.push(vertex);
                    walk.pop();
                }
            }
        }
    }
    // A walk finishes a vertex after those that it leads to.
    let mut position = vec![0; count];
    finished.iter().rev().enumerate().for_each(|(index, vertex)| position[*vertex] = index);
    let directed = |(from, to): &(usize, usize)| match position[*from].cmp(&position[*to]) {
        Ordering::Greater => (*to, *from),
        _ => (*from, *to),
    };
    edges.iter().map(directed).collect()
}

/// The layer of each vertex: after all that lead to it, and where nothing does, just before the
/// first that it leads to.
fn layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waits = vec![0usize; count];
    for (from, to) in edges.iter().filter(|(from, to)| from != to) {
        out[*from].push(*to);
        waits[*to] += 1;
    }
    let is_source: Vec<bool> = waits.iter().map(|waits| *waits == 0).collect();
    let mut ready: Vec<usize> = (0..count).filter(|vertex| is_source[*vertex]).collect();
    let mut layer = vec![0; count];
    while let Some(vertex) = ready.pop() {
        for to in &out[vertex] {
            layer[*to] = layer[*to].max(layer[vertex] + 1);
            waits[*to] -= 1;
            if waits[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    for vertex in (0..count).filter(|vertex| is_source[*vertex]) {
        let first = out[vertex].iter().map(|to| layer[*to]).min();
        layer[vertex] = first.map_or(0, |first| first - 1);
    }
    layer
}

/// A graph in layers, with a dummy vertex for each layer that an edge passes through.
struct Layered {
    /// Widths, first of the vertices, then of dummies.
    widths: Vec<f64>,
    is_dummy: Vec<bool>,
    layer: Vec<usize>,
    /// The vertices of each layer, from left to right.
    layers: Vec<Vec<usize>>,
    /// Neighbours in the layer above and below.
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    /// The vertices that each edge leads through, from top to bottom.
    chains: Vec<Vec<usize>>,
    x: Vec<f64>,
}

impl Layered {
    fn new(sizes: &[Size], edges: &[(usize, usize)], layer: &[usize]) -> Layered {
        let count = layer.iter().max().map_or(0, |last| last + 1);
        let mut graph = Layered {
            widths: sizes.iter().map(|(width, _)| *width).collect(),
            is_dummy: vec![false; sizes.len()],
            layer: layer.to_vec(),
            layers: vec![Vec::new(); count],
            above: vec![Vec::new(); sizes.len()],
            below: vec![Vec::new(); sizes.len()],
            chains: Vec::new(),
            x: Vec::new(),
        };
        layer.iter().enumerate().for_each(|(vertex, layer)| graph.layers[*layer].push(vertex));
        for (from, to) in edges {
            let mut chain = vec![*from];
            for layer in layer[*from] + 1..layer[*to] {
                let dummy = graph.add_dummy(layer);
                graph.connect(chain[chain.len() - 1], dummy);
                chain.push(dummy);
            }
            if from != to {
                graph.connect(chain[chain.len() - 1], *to);
            }
            chain.push(*to);
            graph.chains.push(chain);
        }
        graph
    }

    fn add_dummy(&mut self, layer: usize) -> usize {
        let dummy = self.widths.len();
        self.widths.push(0.0);
        self.is_dummy.push(true);
        self.layer.push(layer);
        self.layers[layer].push(dummy);
        self.above.push(Vec::new());
        self.below.push(Vec::new());
        dummy
    }

    fn connect(&mut self, upper: usize, lower: usize) {
        self.below[upper].push(lower);
        self.above[lower].push(upper);
    }

    /// Orders the vertices of each layer so that few edges cross.
    fn order(&mut self) {
        let mut best = (self.crossings(), self.layers.clone());
        for pass in 0..ORDER_PASSES {
            if best.0 == 0 {
                break;
            }
            let mut position = self.positions();
            let downwards = pass % 2 == 0;
            let count = self.layers.len();
            for index in 0..count {
                let layer = if downwards { index } else { count - 1 - index };
                let neighbours = if downwards { &self.above } else { &self.below };
                let mut keyed: Vec<(f64, usize)> = self.layers[layer]
                    .iter()
                    .map(|vertex| {
                        let near = &neighbours[*vertex];
                        let sum: usize = near.iter().map(|near| position[*near]).sum();
                        let own = position[*vertex] as f64;
                        (
                            if near.is_empty() { own } else { sum as f64 / near.len() as f64 },
                            *vertex,
                        )
                    })
                    .collect();
                // Stable: what has the same barycenter keeps its order.
                keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
                for (at, (_, vertex)) in keyed.iter().enumerate() {
                    position[*vertex] = at;
                }
                self.layers[layer] = keyed.into_iter().map(|(_, vertex)| vertex).collect();
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// The position of each vertex in its layer.
    fn positions(&self) -> Vec<usize> {
        let mut position = vec![0; self.widths.len()];
        for layer in &self.layers {
            layer.iter().enumerate().for_each(|(at, vertex)| position[*vertex] = at);
        }
        position
    }

    /// How many pairs of edges cross.
    fn crossings(&self) -> usize {
        let position = self.positions();
        let mut crossings = 0;
        for (index, layer) in self.layers.iter().enumerate() {
            let lower = self.layers.get(index + 1).map_or(0, Vec::len);
            // How many edges end at each place below so far, as a tree of sums.
            let mut sums = vec![0usize; lower + 1];
            let mut before = 0;
            for vertex in layer {
                let mut ends: Vec<usize> =
                    self.below[*vertex].iter().map(|below| position[*below]).collect();
                ends.sort_unstable();
                // All edges so far that end further to the right are crossed.
                crossings += ends.iter().map(|end| before - sum_to(&sums, *end)).sum::<usize>();
                for end in ends {
                    add(&mut sums, end);
                    before += 1;
                }
            }
        }
        crossings
    }

    /// Moves vertices to the mean of their neighbours, as far as those of higher priority in the
    /// same layer leave room.
    fn place(&mut self) {
        self.x = vec![0.0; self.widths.len()];
        for layer in &self.layers {
            let mut x = 0.0;
            for (at, vertex) in layer.iter().enumerate() {
                if at > 0 {
                    x += self.distance(layer[at - 1], *vertex);
                }
                self.x[*vertex] = x;
            }
            let middle = x / 2.0;
            layer.iter().for_each(|vertex| self.x[*vertex] -= middle);
        }
        let count = self.layers.len();
        for pass in 0..PLACE_PASSES {
            for index in 0..count {
                let (layer, upwards) =
                    if pass % 2 == 0 { (index, true) } else { (count - 1 - index, false) };
                self.place_layer(layer, upwards);
            }
        }
    }

    /// How far the centres of neighbours in a layer are apart at least.
    fn distance(&self, left: usize, right: usize) -> f64 {
        let gap = if self.is_dummy[left] || self.is_dummy[right] { EDGE_GAP } else { GAP };
        f64::midpoint(self.widths[left], self.widths[right]) + gap
    }

    fn place_layer(&mut self, layer: usize, by_upper: bool) {
        let order = self.layers[layer].clone();
        let sides = if by_upper { &self.above } else { &self.below };
        let neighbours = |vertex: usize| &sides[vertex];
        let priority = |vertex: usize| {
            if self.is_dummy[vertex] { usize::MAX } else { neighbours(vertex).len() }
        };
        let mut queue: Vec<usize> =
            (0..order.len()).filter(|at| !neighbours(order[*at]).is_empty()).collect();
        queue.sort_by_key(|at| std::cmp::Reverse(priority(order[*at])));
        let wanted: Vec<f64> = order
            .iter()
            .map(|vertex| {
                let near = neighbours(*vertex);
                near.iter().map(|near| self.x[*near]).sum::<f64>() / near.len().max(1) as f64
            })
            .collect();
        let priorities: Vec<usize> = order.iter().map(|vertex| priority(*vertex)).collect();
        let mut is_placed = vec![false; order.len()];
        for at in queue {
            let may_push = |other: usize| !is_placed[other] && priorities[other] <= priorities[at];
            self.shift(&order, at, wanted[at], &may_push);
            is_placed[at] = true;
        }
    }

    /// Moves a vertex as far towards a place as is possible by pushing those that may be pushed.
    fn shift(&mut self, order: &[usize], at: usize, to: f64, may_push: &dyn Fn(usize) -> bool) {
        let leftwards = to < self.x[order[at]];
        let side: Vec<usize> =
            if leftwards { (0..at).rev().collect() } else { (at + 1..order.len()).collect() };
        let sign = if leftwards { -1.0 } else { 1.0 };
        let apart = |graph: &Layered, one: usize, other: usize| {
            let (left, right) = if leftwards { (other, one) } else { (one, other) };
            graph.distance(order[left], order[right])
        };
        // As far as the first that stays where it is lets it.
        let (mut reach, mut last, mut limit) = (0.0, at, to);
        for other in &side {
            reach += apart(self, last, *other);
            last = *other;
            if !may_push(*other) {
                let furthest = self.x[order[*other]] - sign * reach;
                limit = if leftwards { limit.max(furthest) } else { limit.min(furthest) };
                break;
            }
        }
        if (limit - self.x[order[at]]) * sign <= 0.0 {
            return;
        }
        self.x[order[at]] = limit;
        let mut last = at;
        for other in side {
            let nearest = self.x[order[last]] + sign * apart(self, last, other);
            if (nearest - self.x[order[other]]) * sign <= 0.0 {
                break;
            }
            self.x[order[other]] = nearest;
            last = other;
        }
    }

    /// Heights of layers, and everything moved to where no coordinate is negative.
    fn finish(self, sizes: &[Size], edges: &[(usize, usize)]) -> Layout {
        let left = |vertex: usize| self.x[vertex] - self.widths[vertex] / 2.0;
        let right = |vertex: usize| self.x[vertex] + self.widths[vertex] / 2.0;
        let all = 0..self.widths.len();
        let start = all.clone().map(left).fold(f64::INFINITY, f64::min);
        let end = all.map(right).fold(f64::NEG_INFINITY, f64::max);
        let (start, width) = if start <= end { (start, end - start) } else { (0.0, 0.0) };
        // The top and the bottom of each layer.
        let (mut top, mut bands) = (0.0, Vec::new());
        for layer in &self.layers {
            let real = layer.iter().filter(|vertex| !self.is_dummy[**vertex]);
            let height = real.map(|vertex| sizes[*vertex].1).fold(0.0, f64::max);
            bands.push((top, top + height));
            top += height + LAYER_GAP;
        }
        let band = |vertex: usize| bands[self.layer[vertex]];
        let x = |vertex: usize| self.x[vertex] - start;
        let centre = |vertex: usize| (x(vertex), f64::midpoint(band(vertex).0, band(vertex).1));
        let routes = self.chains.iter().zip(edges).map(|(chain, edge)| {
            let (first, last) = (chain[0], chain[chain.len() - 1]);
            let mut route = vec![(x(first), centre(first).1 + sizes[first].1 / 2.0)];
            // Straight through each layer, where boxes are beside it.
            route.push((x(first), band(first).1));
            for vertex in &chain[1..chain.len() - 1] {
                route.extend([(x(*vertex), band(*vertex).0), (x(*vertex), band(*vertex).1)]);
            }
            route.push((x(last), band(last).0));
            route.push((x(last), centre(last).1 - sizes[last].1 / 2.0));
            // The edge was turned around.
            if edge.0 != first {
                route.reverse();
            }
            route
        });
        Layout {
            centres: (0..sizes.len()).map(centre).collect(),
            routes: routes.collect(),
            size: (width, (top - LAYER_GAP).max(0.0)),
        }
    }
}

/// How many edges end at a place or left of it.
fn sum_to(sums: &[usize], place: usize) -> usize {
    let (mut at, mut sum) = (place + 1, 0);
    while at > 0 {
        sum += sums[at];
        at &= at - 1;
    }
    sum
}

fn add(sums: &mut [usize], place: usize) {
    let mut at = place + 1;
    while at < sums.len() {
        sums[at] += 1;
        at += at & at.wrapping_neg();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = (60.0, 30.0);

    fn of(count: usize, edges: &[(usize, usize)]) -> Layout {
        let layout = layout(&vec![SIZE; count], edges);
        // Whatever the graph, nothing overlaps and everything is inside.
        for (index, one) in layout.centres.iter().enumerate() {
            let inside = |at: f64, extent: f64, all: f64| {
                at >= extent / 2.0 - 1e-6 && at <= all - extent / 2.0 + 1e-6
            };
            assert!(inside(one.0, SIZE.0, layout.size.0), "{layout:?}");
            assert!(inside(one.1, SIZE.1, layout.size.1), "{layout:?}");
            for other in &layout.centres[..index] {
                let apart = (one.0 - other.0).abs() >= SIZE.0 || (one.1 - other.1).abs() >= SIZE.1;
                assert!(apart, "{layout:?}");
            }
        }
        layout
    }

    #[test]
    fn a_chain_is_straight() {
        let layout = of(4, &[(0, 1), (1, 2), (2, 3)]);
        assert!(layout.centres.iter().all(|(x, _)| *x == layout.centres[0].0));
        assert!(layout.centres.is_sorted_by(|one, other| one.1 < other.1));
    }

    #[test]
    fn a_long_edge_is_straight_between_its_ends() {
        // A residual connection around two vertices.
        let layout = of(5, &[(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]);
        let route = &layout.routes[3];
        assert_eq!(route.len(), 8);
        assert!(route[2..6].iter().all(|(x, _)| *x == route[2].0));
        assert!((route[2].0 - layout.centres[1].0).abs() > SIZE.0 / 2.0);
    }

    #[test]
    fn crossings_are_counted_and_undone() {
        let sizes = [SIZE; 4];
        let graph = Layered::new(&sizes, &[(0, 3), (1, 2)], &[0, 0, 1, 1]);
        assert_eq!(graph.crossings(), 1);
        let layout = of(4, &[(0, 3), (1, 2)]);
        let x = |vertex: usize| layout.centres[vertex].0;
        assert_eq!(x(0) < x(1), x(3) < x(2));
        // Both pairs of a complete graph of two and two cross once, whatever the order.
        let graph = Layered::new(&sizes, &[(0, 2), (0, 3), (1, 2), (1, 3)], &[0, 0, 1, 1]);
        assert_eq!(graph.crossings(), 1);
    }

    #[test]
    fn any_graph_has_a_layout() {
        of(0, &[]);
        of(1, &[(0, 0)]);
        of(3, &[]);
        // A cycle, which only a model that is not valid has.
        let layout = of(3, &[(0, 1), (1, 2), (2, 0)]);
        let back = &layout.routes[2];
        assert!(back[0].1 > back[back.len() - 1].1);
        // Vertices without anything above stand near those that read them.
        let layout = of(4, &[(0, 1), (1, 2), (3, 2)]);
        assert_eq!(layout.centres[3].1, layout.centres[1].1);
        // Pseudo-random graphs of many edges.
        let mut state = 1u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for count in [5, 20, 60] {
            let edges: Vec<(usize, usize)> =
                (0..2 * count).map(|_| (next(count), next(count))).collect();
            of(count, &edges);
        }
    }
}
