//! Computes positions for the vertices of a picture, in layers from top to bottom.
//!
//! The method is that of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
//! Hierarchical System Structures", IEEE Transactions on Systems, Man, and Cybernetics 11 (2),
//! 1981: layers by the longest path, dummy vertices where an edge passes through a layer, orders
//! within layers by barycenters, and horizontal positions by priority. Dummy vertices have the
//! highest priority so that long edges are straight. Crossings are counted as by Barth, Jünger and
//! Mutzel, "Simple and Efficient Bilayer Cross Counting", 2002.

use std::cmp::Ordering;

/// Horizontal distance between two vertices of a layer, in pixels.
const GAP: f64 = 24.0;
/// Horizontal distance between a vertex and an edge that passes through its layer, in pixels.
const EDGE_GAP: f64 = 14.0;
/// Vertical distance between two layers, in pixels.
const LAYER_GAP: f64 = 42.0;
/// Number of passes over all layers that reorder vertices to reduce crossings.
const ORDER_PASSES: usize = 24;
/// Number of passes over all layers that move vertices towards their neighbours.
const PLACE_PASSES: usize = 12;

/// Width and height of a vertex or a picture, in pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) width: f64,
    pub(crate) height: f64,
}

/// Position in a picture, in pixels from the left and the top.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// Positions of the vertices and edges of a picture.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Position of the centre of each vertex.
    pub(crate) centres: Vec<Point>,
    /// Points of each edge: the bottom of the first vertex and of its layer, the top and the bottom
    /// of each layer in between, and the top of the last layer and of the last vertex.
    pub(crate) routes: Vec<Vec<Point>>,
    pub(crate) size: Size,
}

/// Computes the layout of a graph from the sizes of its vertices. Edges that close a cycle have a
/// route that leads upwards.
pub(crate) fn compute_layout(sizes: &[Size], edges: &[(usize, usize)]) -> Layout {
    let forward = break_cycles(sizes.len(), edges);
    let layers = assign_layers(sizes.len(), &forward);
    let mut graph = Layered::new(sizes, &forward, &layers);
    graph.reduce_crossings();
    graph.place_vertices();
    graph.into_layout(sizes, edges)
}

/// Returns `edges` without cycles: edges that close a cycle are reversed.
fn break_cycles(count: usize, edges: &[(usize, usize)]) -> Vec<(usize, usize)> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    edges.iter().for_each(|(from, to)| out[*from].push(*to));
    // State of the depth-first search: 0 is not visited, 1 on the current path, 2 finished.
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
    // The search finishes a vertex after all its successors.
    let mut position = vec![0; count];
    finished.iter().rev().enumerate().for_each(|(index, vertex)| position[*vertex] = index);
    let directed = edges.iter().map(|(from, to)| match position[*from].cmp(&position[*to]) {
        Ordering::Greater => (*to, *from),
        _ => (*from, *to),
    });
    directed.collect()
}

/// Returns the layer of each vertex: below all its predecessors. A vertex without predecessors is
/// just above its first successor.
fn assign_layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
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

/// Graph in layers, with a dummy vertex in each layer that an edge passes through.
struct Layered {
    /// Widths of the vertices in pixels, followed by the widths of the dummies, which are 0.
    widths: Vec<f64>,
    /// Whether each vertex is a dummy.
    is_dummy: Vec<bool>,
    /// Layer of each vertex, from 0 at the top.
    layer: Vec<usize>,
    /// Vertices of each layer, from left to right.
    layers: Vec<Vec<usize>>,
    /// Neighbours of each vertex in the layer above.
    above: Vec<Vec<usize>>,
    /// Neighbours of each vertex in the layer below.
    below: Vec<Vec<usize>>,
    /// Vertices and dummies that each edge leads through, from top to bottom.
    chains: Vec<Vec<usize>>,
    /// Horizontal position of the centre of each vertex, in pixels.
    x: Vec<f64>,
}

impl Layered {
    /// Creates a layered graph, with dummy vertices for edges that pass through layers.
    fn new(sizes: &[Size], edges: &[(usize, usize)], layer: &[usize]) -> Layered {
        let count = layer.iter().max().map_or(0, |last| last + 1);
        let mut graph = Layered {
            widths: sizes.iter().map(|size| size.width).collect(),
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

    /// Adds a dummy vertex to a layer and returns its index.
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

    /// Makes two vertices of adjacent layers neighbours.
    fn connect(&mut self, upper: usize, lower: usize) {
        self.below[upper].push(lower);
        self.above[lower].push(upper);
    }

    /// Reorders the vertices of each layer by barycenters, and keeps the order with the fewest
    /// crossings.
    fn reduce_crossings(&mut self) {
        let mut best = (self.count_crossings(), self.layers.clone());
        for pass in 0..ORDER_PASSES {
            if best.0 == 0 {
                break;
            }
            let mut position = self.compute_positions();
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
                // The sort is stable: vertices with equal barycenters keep their order.
                keyed.sort_by(|one, other| one.0.total_cmp(&other.0));
                for (at, (_, vertex)) in keyed.iter().enumerate() {
                    position[*vertex] = at;
                }
                self.layers[layer] = keyed.into_iter().map(|(_, vertex)| vertex).collect();
            }
            let crossings = self.count_crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// Returns the position of each vertex in its layer.
    fn compute_positions(&self) -> Vec<usize> {
        let mut position = vec![0; self.widths.len()];
        for layer in &self.layers {
            layer.iter().enumerate().for_each(|(at, vertex)| position[*vertex] = at);
        }
        position
    }

    /// Counts the pairs of edges that cross between adjacent layers.
    fn count_crossings(&self) -> usize {
        let position = self.compute_positions();
        let mut crossings = 0;
        for (index, layer) in self.layers.iter().enumerate() {
            let lower = self.layers.get(index + 1).map_or(0, Vec::len);
            // Fenwick tree of the number of edges so far that end at each position below.
            let mut sums = vec![0usize; lower + 1];
            let mut before = 0;
            for vertex in layer {
                let mut ends: Vec<usize> =
                    self.below[*vertex].iter().map(|below| position[*below]).collect();
                ends.sort_unstable();
                // An edge crosses all edges so far that end further to the right.
                crossings +=
                    ends.iter().map(|end| before - count_edges_up_to(&sums, *end)).sum::<usize>();
                for end in ends {
                    add_edge_end(&mut sums, end);
                    before += 1;
                }
            }
        }
        crossings
    }

    /// Moves each vertex towards the mean of its neighbours, as far as vertices of higher priority
    /// in its layer leave room.
    fn place_vertices(&mut self) {
        self.x = vec![0.0; self.widths.len()];
        for layer in &self.layers {
            let mut x = 0.0;
            for (at, vertex) in layer.iter().enumerate() {
                if at > 0 {
                    x += self.compute_min_distance(layer[at - 1], *vertex);
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

    /// Returns the minimum distance between the centres of two adjacent vertices of a layer, in
    /// pixels.
    fn compute_min_distance(&self, left: usize, right: usize) -> f64 {
        let gap = if self.is_dummy[left] || self.is_dummy[right] { EDGE_GAP } else { GAP };
        f64::midpoint(self.widths[left], self.widths[right]) + gap
    }

    /// Moves the vertices of a layer towards their neighbours in the layer above or below, vertices
    /// with the highest priority first.
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
            self.shift_vertex(&order, at, wanted[at], &|other| {
                !is_placed[other] && priorities[other] <= priorities[at]
            });
            is_placed[at] = true;
        }
    }

    /// Moves the vertex at position `at` of a layer towards the coordinate `to`, and pushes
    /// vertices beside it. A vertex that `may_push` excludes limits the distance.
    fn shift_vertex(
        &mut self,
        order: &[usize],
        at: usize,
        to: f64,
        may_push: &dyn Fn(usize) -> bool,
    ) {
        let leftwards = to < self.x[order[at]];
        let side: Vec<usize> =
            if leftwards { (0..at).rev().collect() } else { (at + 1..order.len()).collect() };
        let sign = if leftwards { -1.0 } else { 1.0 };
        let apart = |graph: &Layered, one: usize, other: usize| {
            let (left, right) = if leftwards { (other, one) } else { (one, other) };
            graph.compute_min_distance(order[left], order[right])
        };
        // The first neighbour that may not be pushed limits the distance.
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

    /// Computes the vertical positions of layers and the routes of edges, and moves the picture so
    /// that no coordinate is negative.
    fn into_layout(self, sizes: &[Size], edges: &[(usize, usize)]) -> Layout {
        let left = |vertex: usize| self.x[vertex] - self.widths[vertex] / 2.0;
        let right = |vertex: usize| self.x[vertex] + self.widths[vertex] / 2.0;
        let all = 0..self.widths.len();
        let start = all.clone().map(left).fold(f64::INFINITY, f64::min);
        let end = all.map(right).fold(f64::NEG_INFINITY, f64::max);
        let (start, width) = if start <= end { (start, end - start) } else { (0.0, 0.0) };
        // Top and bottom of each layer.
        let (mut top, mut bands) = (0.0, Vec::new());
        for layer in &self.layers {
            let real = layer.iter().filter(|vertex| !self.is_dummy[**vertex]);
            let height = real.map(|vertex| sizes[*vertex].height).fold(0.0, f64::max);
            bands.push((top, top + height));
            top += height + LAYER_GAP;
        }
        let band = |vertex: usize| bands[self.layer[vertex]];
        let x = |vertex: usize| self.x[vertex] - start;
        let middle = |vertex: usize| f64::midpoint(band(vertex).0, band(vertex).1);
        let centre = |vertex: usize| Point { x: x(vertex), y: middle(vertex) };
        let routes = self.chains.iter().zip(edges).map(|(chain, edge)| {
            let (first, last) = (chain[0], chain[chain.len() - 1]);
            let (start, end) = (x(first), x(last));
            let mut route = vec![Point { x: start, y: middle(first) + sizes[first].height / 2.0 }];
            // Leads vertically through each layer, as boxes may be beside the edge.
            route.push(Point { x: start, y: band(first).1 });
            for vertex in &chain[1..chain.len() - 1] {
                let (top, bottom) = band(*vertex);
                route.extend([top, bottom].map(|y| Point { x: x(*vertex), y }));
            }
            route.push(Point { x: end, y: band(last).0 });
            route.push(Point { x: end, y: middle(last) - sizes[last].height / 2.0 });
            // `break_cycles` reversed this edge.
            if edge.0 != first {
                route.reverse();
            }
            route
        });
        Layout {
            centres: (0..sizes.len()).map(centre).collect(),
            routes: routes.collect(),
            size: Size { width, height: (top - LAYER_GAP).max(0.0) },
        }
    }
}

/// Returns the number of edges that end at `place` or left of it, from a Fenwick tree.
fn count_edges_up_to(sums: &[usize], place: usize) -> usize {
    let (mut at, mut sum) = (place + 1, 0);
    while at > 0 {
        sum += sums[at];
        at &= at - 1;
    }
    sum
}

/// Adds an edge that ends at `place` to a Fenwick tree.
fn add_edge_end(sums: &mut [usize], place: usize) {
    let mut at = place + 1;
    while at < sums.len() {
        sums[at] += 1;
        at += at & at.wrapping_neg();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size { width: 60.0, height: 30.0 };

    /// Computes the layout, and checks that no vertices overlap and all are inside the picture.
    fn check_layout(count: usize, edges: &[(usize, usize)]) -> Layout {
        let layout = compute_layout(&vec![SIZE; count], edges);
        for (index, one) in layout.centres.iter().enumerate() {
            let is_inside = |at: f64, extent: f64, all: f64| {
                at >= extent / 2.0 - 1e-6 && at <= all - extent / 2.0 + 1e-6
            };
            assert!(is_inside(one.x, SIZE.width, layout.size.width), "{layout:?}");
            assert!(is_inside(one.y, SIZE.height, layout.size.height), "{layout:?}");
            for other in &layout.centres[..index] {
                let are_apart =
                    (one.x - other.x).abs() >= SIZE.width || (one.y - other.y).abs() >= SIZE.height;
                assert!(are_apart, "{layout:?}");
            }
        }
        layout
    }

    #[test]
    fn a_chain_is_straight() {
        let layout = check_layout(4, &[(0, 1), (1, 2), (2, 3)]);
        assert!(layout.centres.iter().all(|centre| centre.x == layout.centres[0].x));
        assert!(layout.centres.is_sorted_by(|one, other| one.y < other.y));
    }

    #[test]
    fn a_long_edge_is_straight_between_its_ends() {
        // A residual connection around two vertices.
        let layout = check_layout(5, &[(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]);
        let route = &layout.routes[3];
        assert_eq!(route.len(), 8);
        assert!(route[2..6].iter().all(|point| point.x == route[2].x));
        assert!((route[2].x - layout.centres[1].x).abs() > SIZE.width / 2.0);
    }

    #[test]
    fn crossings_are_counted_and_undone() {
        let sizes = [SIZE; 4];
        let graph = Layered::new(&sizes, &[(0, 3), (1, 2)], &[0, 0, 1, 1]);
        assert_eq!(graph.count_crossings(), 1);
        let layout = check_layout(4, &[(0, 3), (1, 2)]);
        let x = |vertex: usize| layout.centres[vertex].x;
        assert_eq!(x(0) < x(1), x(3) < x(2));
        // The edges of a complete bipartite graph of two and two cross once in any order.
        let graph = Layered::new(&sizes, &[(0, 2), (0, 3), (1, 2), (1, 3)], &[0, 0, 1, 1]);
        assert_eq!(graph.count_crossings(), 1);
    }

    #[test]
    fn any_graph_has_a_layout() {
        check_layout(0, &[]);
        check_layout(1, &[(0, 0)]);
        check_layout(3, &[]);
        // A cycle, which only an invalid model has.
        let layout = check_layout(3, &[(0, 1), (1, 2), (2, 0)]);
        let back = &layout.routes[2];
        assert!(back[0].y > back[back.len() - 1].y);
        // A vertex without predecessors is placed near its successors.
        let layout = check_layout(4, &[(0, 1), (1, 2), (3, 2)]);
        assert_eq!(layout.centres[3].y, layout.centres[1].y);
        // Pseudo-random graphs of many edges.
        let mut state = 1u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for count in [5, 20, 60] {
            let edges: Vec<(usize, usize)> =
                (0..2 * count).map(|_| (next(count), next(count))).collect();
            check_layout(count, &edges);
        }
    }
}
