//! Candidates of a reduction with smaller inputs and constants.

use std::collections::BTreeSet;

use sardonyx_model::{
    AttributeId, AttributeValue, DimValue, ExternalData, GraphId, Model, TensorProto, TypeProto,
};
use sardonyx_ops::Registry;
use sardonyx_tensor::{Buffer, DataType, Tensor};

use crate::diff::ModelWithData;
use crate::infer::{InferOptions, complete_declaration, infer_model};
use crate::order::tree;
use crate::payload;

/// Number of elements up to which a vector of integers may be a shape.
const SHAPE_ELEMENTS: u64 = 16;

/// Maximum number of elements of all constants together that are copied for a candidate.
const MOST_ELEMENTS: u64 = 1 << 24;

/// Lists the sizes above 1 of the inputs and constants of the main graph.
pub(super) fn list_sizes(model: &Model) -> BTreeSet<i64> {
    let Some(main) = model.main_graph() else { return BTreeSet::new() };
    let shapes = main.inputs.iter().filter_map(|info| info.ty.as_ref()?.innermost_shape());
    let inputs = shapes.flat_map(|shape| &shape.dims).filter_map(|dim| match dim.value {
        Some(DimValue::Value(size)) => Some(size),
        _ => None,
    });
    let constants = main.initializers.iter().flat_map(|found| found.tensor.dims.iter().copied());
    inputs.chain(constants).filter(|size| *size > 1).collect()
}

/// Replaces a size of inputs and constants, and in constants that may be shapes, by a smaller one.
/// Declared types of other values are inferred anew. `None` if nothing has the size, or a constant
/// cannot be read.
pub(super) fn with_size(
    model: ModelWithData<'_>,
    registry: &Registry,
    size: i64,
    smaller: i64,
) -> Option<Model> {
    let ModelWithData { model, data } = model;
    let main = model.main?;
    if super::candidates::count_elements(model) > MOST_ELEMENTS {
        return None;
    }
    let mut candidate = model.clone();
    for info in &mut candidate.graph_mut(main).inputs {
        let shape = info.ty.as_mut().and_then(TypeProto::innermost_shape_mut);
        for dim in shape.into_iter().flat_map(|shape| &mut shape.dims) {
            if let Some(DimValue::Value(found)) = &mut dim.value
                && *found == size
            {
                *found = smaller;
            }
        }
    }
    let change = Change { size, smaller, data };
    for graph in tree(model, main) {
        change.resize_constants(&mut candidate, graph)?;
        let found = candidate.graph_mut(graph);
        found.value_info.clear();
        // Types of inner graphs need not be declared.
        let inner = if graph == main { None } else { Some(&mut found.inputs) };
        for info in found.outputs.iter_mut().chain(inner.into_iter().flatten()) {
            if let Some(shape) = info.ty.as_mut().and_then(TypeProto::innermost_shape_mut) {
                shape.dims.iter_mut().for_each(|dim| dim.value = None);
            }
        }
    }
    let found = infer_model(&candidate, registry, InferOptions::default());
    let mut outputs = std::mem::take(&mut candidate.graph_mut(main).outputs);
    for info in &mut outputs {
        if let (Some(ty), Some(declared)) =
            (info.value.and_then(|value| found.ty(value)), info.ty.as_mut())
        {
            complete_declaration(&mut candidate, declared, ty);
        }
    }
    candidate.graph_mut(main).outputs = outputs;
    Some(candidate)
}

/// A size that gives way to a smaller one.
struct Change<'a> {
    size: i64,
    smaller: i64,
    data: &'a dyn ExternalData,
}

impl Change<'_> {
    /// Resizes initializers and the tensors of `Constant` nodes of a graph.
    fn resize_constants(&self, model: &mut Model, graph: GraphId) -> Option<()> {
        for index in 0..model.graph(graph).initializers.len() {
            let old = model.graph(graph).initializers[index].tensor.clone();
            if let Some(tensor) = self.resize(model, &old)? {
                let mut new = model.tensor_proto(&tensor);
                new.name = old.name;
                model.graph_mut(graph).initializers[index].tensor = new;
            }
        }
        let nodes = model.graph(graph).nodes.iter();
        let ids: Vec<AttributeId> =
            nodes.flat_map(|node| model.attributes(*node).iter().copied()).collect();
        for id in ids {
            let mut values = model.attribute(id).values.clone();
            for value in values.iter_mut() {
                if let AttributeValue::Tensor(old) = value
                    && let Some(tensor) = self.resize(model, old)?
                {
                    **old = model.tensor_proto(&tensor);
                }
            }
            model.attribute_mut(id).values = values;
        }
        Some(())
    }

    /// Cuts a tensor to the smaller size, and replaces the size in a vector of integers. The inner
    /// option is `None` if the tensor stays as it is.
    fn resize(&self, model: &Model, proto: &TensorProto) -> Option<Option<Tensor>> {
        let elements = payload::element_count(&proto.dims)?;
        let is_shape = proto.data_type == Some(DataType::Int64.number())
            && proto.dims.len() == 1
            && elements <= SHAPE_ELEMENTS;
        let is_sized = proto.dims.contains(&self.size);
        if !is_shape && !is_sized {
            return Some(None);
        }
        let mut tensor = model.tensor(proto, self.data).ok()?;
        let mut is_changed = is_sized;
        if is_shape {
            let mut sizes: Vec<i64> = tensor.to_vec().ok()?;
            for found in sizes.iter_mut().filter(|found| **found == self.size) {
                *found = self.smaller;
                is_changed = true;
            }
            tensor = Tensor::from_vec([sizes.len()], sizes).ok()?;
        }
        if !is_changed {
            return Some(None);
        }
        self.cut(&tensor).map(Some)
    }

    /// Keeps the first elements of each axis that has the size.
    fn cut(&self, tensor: &Tensor) -> Option<Tensor> {
        let bits = tensor.data_type().bits().filter(|bits| bits % 8 == 0)?;
        let width = bits / 8;
        let smaller = usize::try_from(self.smaller).ok()?;
        let size = usize::try_from(self.size).ok()?;
        let mut dims = tensor.dims().to_vec();
        let mut bytes = tensor.bytes().to_vec();
        for axis in 0..dims.len() {
            if dims[axis] != size {
                continue;
            }
            let row: usize = dims[axis + 1..].iter().product::<usize>() * width;
            let (whole, kept) = (row * size, row * smaller);
            if whole == 0 {
                return None;
            }
            bytes = bytes.chunks_exact(whole).flat_map(|chunk| chunk[..kept].to_vec()).collect();
            dims[axis] = smaller;
        }
        Tensor::from_buffer(tensor.data_type(), dims, Buffer::from_vec(bytes)).ok()
    }
}
