//! Single nodes that are added to the model of a device.

use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::scalar;
use sardonyx_tensor::{DataType, Tensor};

use super::{Building, signed};

impl Building<'_> {
    /// Adds a node of one output to the current graph.
    pub(crate) fn add(
        &mut self,
        op: &str,
        domain: &str,
        inputs: &[Option<ValueId>],
    ) -> (NodeId, ValueId) {
        let node = self.model.add_node(self.graph, op, domain, inputs, 1);
        self.order_mut().push(node);
        let output = self.model.outputs(node)[0].expect("a new node has its outputs");
        (node, output)
    }

    /// Adds a constant vector.
    pub(crate) fn constant(&mut self, values: &[i64]) -> ValueId {
        let tensor = Tensor::from_slice([values.len()], values).expect("a vector has its length");
        self.model.add_initializer(self.graph, "indices", &tensor)
    }

    /// Takes a slice of a value along axes. Each item of `bounds` has an axis, its first index, and
    /// the index after its last one.
    pub(crate) fn slice(&mut self, value: ValueId, bounds: &[(usize, usize, usize)]) -> ValueId {
        let starts: Vec<i64> = bounds.iter().map(|(_, start, _)| signed(*start)).collect();
        let ends: Vec<i64> = bounds.iter().map(|(_, _, end)| signed(*end)).collect();
        let axes: Vec<i64> = bounds.iter().map(|(axis, _, _)| signed(*axis)).collect();
        let [starts, ends, axes] = [starts, ends, axes].map(|values| Some(self.constant(&values)));
        self.add("Slice", "", &[Some(value), starts, ends, axes]).1
    }

    /// Gathers the elements of a value at `indices` of an axis.
    pub(crate) fn take(&mut self, value: ValueId, indices: &[i64], axis: usize) -> ValueId {
        let indices = self.constant(indices);
        let (node, output) = self.add("Gather", "", &[Some(value), Some(indices)]);
        self.model.set_attribute(node, "axis", AttrValue::Int(signed(axis)));
        output
    }

    /// Converts elements of type `from` to type `to`.
    pub(crate) fn cast(&mut self, value: ValueId, from: DataType, to: DataType) -> ValueId {
        if from == to {
            return value;
        }
        let (node, output) = self.add("Cast", "", &[Some(value)]);
        self.model.set_attribute(node, "to", AttrValue::Int(i64::from(to.number())));
        output
    }

    /// Gives a value other sizes.
    pub(crate) fn reshape(&mut self, value: ValueId, dims: &[usize]) -> ValueId {
        let dims: Vec<i64> = dims.iter().map(|size| signed(*size)).collect();
        let dims = self.constant(&dims);
        self.add("Reshape", "", &[Some(value), Some(dims)]).1
    }

    /// Permutes the axes of a value.
    pub(crate) fn transpose(&mut self, value: ValueId, order: &[usize]) -> ValueId {
        let order: Vec<i64> = order.iter().map(|axis| signed(*axis)).collect();
        let (node, output) = self.add("Transpose", "", &[Some(value)]);
        self.model.set_attribute(node, "perm", AttrValue::from(&order[..]));
        output
    }

    /// Concatenates values along an axis.
    pub(crate) fn concat(&mut self, values: &[ValueId], axis: usize) -> ValueId {
        let values: Vec<Option<ValueId>> = values.iter().copied().map(Some).collect();
        let (node, output) = self.add("Concat", "", &values);
        self.model.set_attribute(node, "axis", AttrValue::Int(signed(axis)));
        output
    }

    /// Adds a tensor of zeros.
    pub(crate) fn zeros(&mut self, elem: DataType, dims: &[usize]) -> ValueId {
        let zero = scalar(elem, 0.0);
        let zero = self.model.add_initializer(self.graph, "zero", &zero);
        let dims: Vec<i64> = dims.iter().map(|size| signed(*size)).collect();
        let dims = self.constant(&dims);
        self.add("Expand", "", &[Some(zero), Some(dims)]).1
    }
}
