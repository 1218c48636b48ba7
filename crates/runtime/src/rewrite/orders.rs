//! Choice of orders: images have channels last where that costs less than it saves.
//!
//! Each step declares the order in which it reads and writes values, and the costs if it has a
//! choice. Values that must have equal orders are one node of a network, and so are operands with a
//! choice; a value that some readers read in the other order is reordered once for all of them. The
//! cheapest assignment is a minimum cut of that network, as for pairwise costs over two labels in
//! general (Greig, Porteous and Seheult, "Exact maximum a posteriori estimation for binary images",
//! 1989).
//!
//! Costs are elements moved at nominal sizes: declared ones, 1 for an unknown batch, and one number
//! for every other unknown size. For other sizes the choice may be slower, but not wrong.

use hashbrown::HashMap;
use sardonyx_model::{Dim, NodeId};
use smallvec::SmallVec;

use super::min_cut::{NEVER, Network, SINK, SOURCE};
use super::{Note, take_steps};
use crate::program::{Op, Order, Program, Reorder, Slot, Step, Takes, Value};

/// Choice: assumed size of an unknown axis other than the batch.
const NOMINAL: i64 = 128;
/// Cost of a conversion, which reads and writes each element.
const REORDER: u64 = 2;

/// Chooses the orders of all values.
pub(crate) fn run(program: &mut Program) -> Vec<Note> {
    // Only convolutions gain from channels last.
    if !program.steps.iter().any(|step| matches!(step.op, Op::Conv(_))) {
        return Vec::new();
    }
    let choice = Choice::new(program);
    let last = choice.network.find_cut();
    for (slot, node) in &choice.nodes {
        if last[*node as usize] {
            program.values[slot.index()].order = Order::ChannelsLast;
        }
    }
    reorder(program, &choice.reads, &last);
    // No step is fused, so there is nothing to note.
    Vec::new()
}

/// Network of a program.
struct Choice {
    network: Network,
    /// Node of each slot that may have either order.
    nodes: HashMap<Slot, u32>,
    /// Node of each step and operand with an order.
    reads: HashMap<(usize, usize), u32>,
}

impl Choice {
    fn new(program: &Program) -> Choice {
        let mut network = Network::new();
        let mut nodes: HashMap<Slot, u32> = HashMap::new();
        let mut is_outside = vec![false; program.values.len()];
        let (outputs, kept) = program.outputs.split_at(program.graph_outputs());
        for slot in program.inputs.iter().flatten().chain(outputs) {
            is_outside[slot.index()] = true;
        }
        let may = |slot: Slot| {
            !is_outside[slot.index()]
                && !program.is_constant(slot)
                && program.may_have_channels_last(slot)
        };
        let mut reads = HashMap::new();
        // Nodes of the readers of each slot.
        let mut readers: HashMap<Slot, SmallVec<[u32; 2]>> = HashMap::new();
        for (index, step) in program.steps.iter().enumerate() {
            let orders = program.orders_of(step);
            let alike = network.add_node();
            let first = step.outputs.first().copied().flatten();
            let elements = first.map_or(0, |slot| elements(program, slot));
            // An edge from the source has the cost of rows.
            network.add_edge(SOURCE, alike, orders.alike_in_rows.saturating_mul(elements));
            let either = |network: &mut Network, slot: Slot, rows: u64, last: u64| {
                let (node, elements) = (network.add_node(), self::elements(program, slot));
                network.add_edge(SOURCE, node, rows.saturating_mul(elements));
                network.add_edge(node, SINK, last.saturating_mul(elements));
                node
            };
            for (position, slot) in step.op.operands().into_iter().enumerate() {
                let Some(slot) = slot else { continue };
                let node = match orders.operands[position] {
                    Takes::Rows => SINK,
                    Takes::Alike => alike,
                    Takes::Either { rows, last } => either(&mut network, slot, rows, last),
                    Takes::Any => continue,
                };
                if program.may_have_channels_last(slot) {
                    readers.entry(slot).or_default().push(node);
                    reads.insert((index, position), node);
                } else {
                    // Rows are the only choice.
                    network.add_edge(node, SINK, NEVER);
                }
            }
            for (slot, takes) in step.outputs.iter().zip(&orders.outputs) {
                let Some(slot) = *slot else { continue };
                let node = match takes {
                    Takes::Alike => alike,
                    Takes::Either { rows, last } => either(&mut network, slot, *rows, *last),
                    Takes::Rows | Takes::Any => SINK,
                };
                if may(slot) {
                    nodes.insert(slot, node);
                } else {
                    network.add_edge(node, SINK, NEVER);
                }
            }
        }
        // Kept values are read in rows.
        for slot in kept.iter().filter(|slot| program.may_have_channels_last(**slot)) {
            readers.entry(*slot).or_default().push(SINK);
        }
        for (slot, readers) in readers {
            let node = nodes.get(&slot).copied().unwrap_or(SINK);
            let cost = REORDER.saturating_mul(elements(program, slot));
            connect(&mut network, node, &readers, cost);
        }
        Choice { network, nodes, reads }
    }
}

/// Adds the cost of readers with another order than the value: once for all with equal orders.
fn connect(network: &mut Network, value: u32, readers: &[u32], cost: u64) {
    let (last, rows) = (network.add_node(), network.add_node());
    network.add_edge(last, value, cost);
    network.add_edge(value, rows, cost);
    for reader in readers {
        network.add_edge(*reader, last, NEVER);
        network.add_edge(rows, *reader, NEVER);
    }
}

/// Returns the number of elements of a value at nominal sizes.
fn elements(program: &Program, slot: Slot) -> u64 {
    let Some(shape) = program.shape(slot) else {
        return 0;
    };
    let sizes = shape.iter().enumerate().map(|(axis, dim)| {
        let nominal = |_: &str| Some(Dim::Known(if axis == 0 { 1 } else { NOMINAL }));
        let size = dim.known().or_else(|| dim.substitute(&nominal).known());
        size.and_then(|size| u64::try_from(size).ok()).unwrap_or(1)
    });
    sizes.fold(1, u64::saturating_mul)
}

/// Inserts a conversion before the first reader of a value in the other order.
fn reorder(program: &mut Program, reads: &HashMap<(usize, usize), u32>, last: &[bool]) {
    let mut other: HashMap<Slot, Slot> = HashMap::new();
    let mut steps = Vec::with_capacity(program.steps.len());
    for (index, step) in take_steps(program).into_iter().enumerate() {
        let Some(mut step) = step else { continue };
        let mut wrong: SmallVec<[(usize, Slot); 2]> = SmallVec::new();
        for (position, slot) in step.op.operands().into_iter().enumerate() {
            let (Some(slot), Some(node)) = (slot, reads.get(&(index, position))) else { continue };
            let is_last = program.value(slot).order == Order::ChannelsLast;
            if is_last == last[*node as usize] {
                continue;
            }
            let reordered = *other.entry(slot).or_insert_with(|| {
                let (reordered, reorder) = make_reorder(program, slot, step.origins[0]);
                steps.push(reorder);
                reordered
            });
            wrong.push((position, reordered));
        }
        let mut position = 0;
        step.op.visit_operands_mut(|operand| {
            let found = wrong.iter().find(|(at, _)| *at == position);
            if let (Some(operand), Some((_, slot))) = (operand, found) {
                *operand = *slot;
            }
            position += 1;
        });
        steps.push(step);
    }
    for kept in program.graph_outputs()..program.outputs.len() {
        let slot = program.outputs[kept];
        if program.value(slot).order == Order::Rows {
            continue;
        }
        let maker = steps.iter().rfind(|step: &&Step| step.outputs.contains(&Some(slot)));
        let Some(origin) = maker.map(|step| step.origins[0]) else { continue };
        program.outputs[kept] = *other.entry(slot).or_insert_with(|| {
            let (reordered, reorder) = make_reorder(program, slot, origin);
            steps.push(reorder);
            reordered
        });
    }
    program.steps = steps;
}

/// Makes a value in the other order, and the step that converts to it.
fn make_reorder(program: &mut Program, slot: Slot, node: NodeId) -> (Slot, Step) {
    let Value { value, ty, order, .. } = program.value(slot);
    let order = match order {
        Order::Rows => Order::ChannelsLast,
        Order::ChannelsLast => Order::Rows,
    };
    let reordered = Value { value: *value, ty: ty.clone(), constant: None, order };
    program.values.push(reordered);
    let reordered = Slot(program.values.len() as u32 - 1);
    let step = Step {
        op: Op::Reorder(Reorder { x: slot }),
        outputs: SmallVec::from_slice(&[Some(reordered)]),
        origins: SmallVec::from_slice(&[node]),
    };
    (reordered, step)
}
