//! Model of a plan, with the types of its values.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{GraphId, Model, NoExternalData, Producer, Shape, Type, ValueId};
use sardonyx_ops::{Known, Operand};
use sardonyx_passes::Inference;
use sardonyx_tensor::{DataType, Tensor};

use crate::prepare::Prepared;
use crate::sizes::{self, nominal};

/// Model in which calls are inlined and nodes have the newest versions of their operators, with the
/// types of its values. The planner adds nodes and constants.
#[derive(Debug, Clone)]
pub(crate) struct TypedModel {
    pub(crate) model: Model,
    /// Inferred types of values.
    types: Inference,
    /// Types of values that the planner added.
    added: HashMap<ValueId, (DataType, Option<Shape>)>,
    /// Symbols of inputs without a size.
    open: HashSet<String>,
}

impl TypedModel {
    pub(crate) fn new(prepared: &Prepared) -> TypedModel {
        TypedModel {
            model: prepared.resolved.model().clone(),
            types: prepared.types.clone(),
            added: HashMap::new(),
            open: prepared.open.clone(),
        }
    }

    /// Returns the element type of a tensor, and its sizes if they follow from those of the inputs.
    pub(crate) fn tensor(&self, value: ValueId) -> Option<(DataType, Option<Shape>)> {
        self.added.get(&value).cloned().or_else(|| sizes::tensor(self.types.ty(value)?, &self.open))
    }

    /// Returns the inferred type of a value.
    pub(crate) fn ty(&self, value: ValueId) -> Option<&Type> {
        self.types.ty(value)
    }

    /// Returns the elements of a value, as far as inference knows them.
    pub(crate) fn known(&self, value: ValueId) -> Option<&Known> {
        self.types.known(value)
    }

    /// Adds a constant to a graph.
    pub(crate) fn add_constant(&mut self, graph: GraphId, name: &str, tensor: &Tensor) -> ValueId {
        let constant = self.model.add_initializer(graph, name, tensor);
        let dims = tensor.dims().iter().map(|size| (*size).into()).collect();
        self.set_type(constant, tensor.data_type(), Some(dims));
        constant
    }

    /// Sets the type of a value that the planner added.
    pub(crate) fn set_type(&mut self, value: ValueId, elem: DataType, dims: Option<Shape>) {
        self.added.insert(value, (elem, dims));
    }

    /// Returns the name of a value.
    pub(crate) fn name(&self, value: ValueId) -> String {
        self.model.display(Some(self.model.value(value).name)).into_owned()
    }

    /// Whether a value is an initializer.
    pub(crate) fn is_constant(&self, value: ValueId) -> bool {
        matches!(self.model.value(value).producer, Producer::Initializer(_))
    }

    /// Whether a value can be sent: a tensor whose elements are whole bytes.
    pub(crate) fn can_move(&self, value: ValueId) -> bool {
        let bits = self.tensor(value).and_then(|(elem, _)| elem.bits());
        // Elements that share bytes cannot be moved one by one.
        bits.is_some_and(|bits| bits % 8 == 0)
    }

    /// Estimates the size of a value, in bits, to compare it with other values.
    pub(crate) fn bits(&self, value: ValueId) -> u64 {
        let elem = self.tensor(value).and_then(|(elem, _)| elem.bits());
        self.elements(value).saturating_mul(elem.unwrap_or(0) as u64)
    }

    /// Estimates the number of elements of a value; 0 if it is not a tensor.
    pub(crate) fn elements(&self, value: ValueId) -> u64 {
        let Some((_, dims)) = self.tensor(value) else { return 0 };
        dims.iter().flatten().fold(1u64, |all, size| all.saturating_mul(nominal(size)))
    }

    /// Describes an operand. `None` unless it is a tensor whose sizes follow from those of inputs.
    pub(crate) fn operand(&self, value: ValueId) -> Option<Operand> {
        let (elem, dims) = self.tensor(value)?;
        // Inference does not know constants that the planner added.
        let known = if self.is_constant(value) && self.added.contains_key(&value) {
            let initializer = self.model.initializer(value)?;
            let tensor = self.model.tensor(&initializer.tensor, &NoExternalData);
            tensor.ok().and_then(|tensor| Known::Tensor(tensor).ints())
        } else {
            self.known(value).and_then(|known| known.ints())
        };
        Some(Operand { elem, dims: dims?, known })
    }
}
