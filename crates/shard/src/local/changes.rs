//! Nodes on parts whose attributes and inputs hold sizes or positions of whole tensors.

use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::{Change, scalar};
use sardonyx_tensor::Tensor;
use smallvec::SmallVec;

use super::{Building, signed};
use crate::plan::{Computed, FormId};
use crate::sizes::stand_in;

impl Building<'_> {
    /// Adapts the sizes in attributes and inputs of a node to the device's part.
    pub(super) fn change(&mut self, computed: &Computed, change: Change) {
        match change {
            Change::Sizes { input, output, zeros } => {
                let value = self.plan.model().outputs(computed.node)[output];
                let Some(own) = self.own_sizes(value, computed.outputs[output]) else { return };
                let numbers: Option<Vec<i64>> = own.iter().copied().collect();
                if let Some(numbers) = numbers {
                    let sizes = self.constant(&numbers);
                    self.model.set_input(computed.node, input, Some(sizes));
                    if let Some(name) = zeros.filter(|_| numbers.contains(&0)) {
                        let yes = AttrValue::Int(1);
                        self.model.set_attribute(computed.node, name, yes);
                    }
                    return;
                }
                // Open sizes are not split: they equal the sizes in the input of the whole node.
                let whole = self.model.inputs(computed.node).nth(input).flatten();
                self.order_mut().retain(|known| *known != computed.node);
                let (_, sizes) = self.some_of(&own, whole);
                self.model.set_input(computed.node, input, Some(sizes));
                self.order_mut().push(computed.node);
            }
            Change::Shape { start } => self.give_shape(computed, start),
            Change::Attribute { name, factors } => {
                let factors = factors.iter().flatten();
                let sizes = factors.map(|factor| computed.assignment.size(self.device, *factor));
                let value = AttrValue::Int(signed(sizes.product()));
                self.model.set_attribute(computed.node, name, value);
            }
            Change::Lengths { input, axis } => {
                let outputs = self.plan.model().outputs(computed.node).iter();
                let own = outputs.zip(&computed.outputs).map(|(value, form)| {
                    self.own_sizes(*value, *form)?.get(axis).copied().flatten()
                });
                let Some(own) = own.collect::<Option<Vec<i64>>>() else { return };
                let sizes = self.constant(&own);
                self.model.set_input(computed.node, input, Some(sizes));
            }
            Change::Own { axis } => self.take_own(computed, axis),
            Change::Places { output, factor, stride } => {
                let before = computed.assignment.start(self.device, factor) * stride;
                self.move_up(computed, output, before);
            }
            // Applied before: by the planner, and by `node`.
            Change::Partly { .. } | Change::Once { .. } => {}
        }
    }

    /// Returns the sizes of the device's part of a value in a form, with `None` for each open size.
    fn own_sizes(
        &self,
        value: Option<ValueId>,
        form: Option<FormId>,
    ) -> Option<SmallVec<[Option<i64>; 4]>> {
        let (_, dims) = self.plan.tensor(value?)?;
        let dims = dims?;
        let own = self.plan.form(form?).dims(self.device, &stand_in(&dims))?;
        let sizes = dims.iter().zip(own);
        Some(sizes.map(|(dim, own)| dim.size().map(|_| signed(own))).collect())
    }

    /// Adds a vector of `numbers`, with elements of `others` in place of `None`.
    fn some_of(&mut self, numbers: &[Option<i64>], others: Option<ValueId>) -> (NodeId, ValueId) {
        let mask: Vec<bool> = numbers.iter().map(Option::is_some).collect();
        let mask = Tensor::from_bools([mask.len()], &mask).expect("a vector has its length");
        let mask = self.model.add_initializer(self.graph, "is_known", &mask);
        let numbers: Vec<i64> = numbers.iter().map(|number| number.unwrap_or(0)).collect();
        let numbers = self.constant(&numbers);
        self.add("Where", "", &[Some(mask), Some(numbers), others])
    }

    /// Replaces the output of a `Shape` node, whose input is a part, by the sizes of the whole
    /// tensor.
    fn give_shape(&mut self, computed: &Computed, start: usize) {
        let node = computed.node;
        let [Some(output)] = *self.model.outputs(node) else { return };
        let whole = |value: Option<ValueId>| self.plan.tensor(value?)?.1;
        let count = whole(Some(output)).and_then(|dims| dims.first()?.size());
        let sizes = whole(self.plan.model().inputs(node).next().flatten());
        let (Some(count), Some(sizes)) = (count, sizes) else { return };
        let numbers = sizes.iter().skip(start).take(count);
        let numbers: Vec<Option<i64>> = numbers.map(|size| size.size().map(signed)).collect();
        let own = self.model.add_value(self.graph, "own_shape");
        self.model.redefine_output(node, 0, own);
        let (last, _) = self.some_of(&numbers, Some(own));
        self.model.redefine_output(last, 0, output);
    }

    /// Adds the number `by` to the elements of an integer output.
    fn move_up(&mut self, computed: &Computed, output: usize, by: usize) {
        let node = computed.node;
        let Some(value) = self.model.outputs(node)[output].filter(|_| by > 0) else { return };
        let raw = self.model.add_value(self.graph, "places");
        self.model.redefine_output(node, output, raw);
        let number = self.model.add_initializer(self.graph, "before", &Tensor::scalar(signed(by)));
        let (sum, _) = self.add("Add", "", &[Some(raw), Some(number)]);
        self.model.redefine_output(sum, 0, value);
    }

    /// Makes a node gather the rows of its first input that the device has, and zeros for all other
    /// rows.
    fn take_own(&mut self, computed: &Computed, axis: usize) {
        let plan = self.plan;
        let node = computed.node;
        let operand = |index: usize| {
            let value = plan.model().inputs(node).nth(index).flatten()?;
            let form = plan.form((*computed.inputs.get(index)?)?);
            let (elem, dims) = plan.tensor(value)?;
            let dims = stand_in(&dims?);
            let ranges = form.ranges(self.device, &dims)?;
            Some((elem, dims, ranges))
        };
        let (Some((elem, dims, rows)), Some((_, places, _))) = (operand(0), operand(1)) else {
            return;
        };
        let own = &rows[axis];
        let Ok(size) = i32::try_from(dims[axis]) else { return };
        let [Some(output)] = *self.model.outputs(node) else { return };
        if own.len() == dims[axis] {
            return;
        }
        // Position of each index among the indices that the device has, or -1.
        let mut table = vec![-1i32; dims[axis]];
        let indices = own.iter().flat_map(|range| range.clone());
        for (position, index) in (0..size).zip(indices) {
            table[index] = position;
        }
        let constant = |building: &mut Self, tensor: Tensor| {
            Some(building.model.add_initializer(building.graph, "rows", &tensor))
        };
        let table = Tensor::from_vec([dims[axis]], table).expect("a vector has its length");
        let table = constant(self, table);
        let none = constant(self, Tensor::scalar(0i32));
        let zero = constant(self, scalar(elem, 0.0));
        let at = self.model.inputs(node).nth(1).flatten();
        self.order_mut().retain(|known| *known != node);
        // An index out of range fails in this node, whose message has the size of the whole axis.
        let (_, position) = self.add("Gather", "", &[table, at]);
        let (_, has) = self.add("GreaterOrEqual", "", &[Some(position), none]);
        let mask = match dims.len() - axis - 1 {
            0 => has,
            trailing => {
                let first = places.len();
                let axes: Vec<i64> = (first..first + trailing).map(signed).collect();
                let axes = self.constant(&axes);
                self.add("Unsqueeze", "", &[Some(has), Some(axes)]).1
            }
        };
        let last = if own.is_empty() {
            // The device has no rows. The mask still depends on the indices, so that they are
            // checked.
            let own = self.own_sizes(plan.model().outputs(node)[0], computed.outputs[0]);
            let own: Vec<i64> = own.into_iter().flatten().flatten().collect();
            let sizes = Some(self.constant(&own));
            let (_, zeros) = self.add("Expand", "", &[zero, sizes]);
            self.model.detach_node(node);
            self.add("Where", "", &[Some(mask), Some(zeros), zero]).0
        } else {
            let (_, safe) = self.add("Max", "", &[Some(position), none]);
            self.model.set_input(node, 1, Some(safe));
            let taken = self.model.add_value(self.graph, "taken");
            self.model.redefine_output(node, 0, taken);
            self.order_mut().push(node);
            self.add("Where", "", &[Some(mask), Some(taken), zero]).0
        };
        self.model.redefine_output(last, 0, output);
    }
}
