//! What the reference implementation demands beyond the rules of operators.

use sardonyx_model::{Dim, NodeId, Producer, Type, ValueId};
use sardonyx_ops::{Known, Said, Schema};
use sardonyx_tensor::DataType;

use super::engine::{Callee, Engine, Given};
use super::{ProblemKind, Style};

/// The inputs of an operator whose integers decide shapes.
pub(super) fn deciding(schema: &Schema) -> &'static [usize] {
    let found = DECIDING.iter().find(|(name, _)| *name == schema.name);
    let inputs = found.filter(|_| schema.domain.is_empty());
    inputs.map_or(&[], |(_, inputs)| inputs)
}

/// Such inputs by operator.
const DECIDING: &[(&str, &[usize])] = &[
    ("ConstantOfShape", &[0]),
    ("Expand", &[1]),
    ("OneHot", &[1]),
    ("Pad", &[1]),
    ("Range", &[0, 1, 2]),
    ("Reshape", &[1]),
    ("Slice", &[1, 2, 3, 4]),
    ("Split", &[1]),
    ("Squeeze", &[1]),
    ("Tile", &[1]),
    ("TopK", &[1]),
    ("Unsqueeze", &[1]),
];

impl Engine<'_> {
    /// Whether a node has outputs where its operator has some; rules would have nothing to speak of.
    pub(super) fn demand_outputs(&mut self, node: NodeId, schema: &Schema) -> bool {
        let missing = self.model.outputs(node).is_empty() && schema.output_count().0 > 0;
        if missing {
            let fact = format!("{} must have at least one output", schema.name);
            self.problem(node, ProblemKind::Node, fact);
        }
        !missing
    }

    /// Whether the integers that decide the shapes of a node's outputs, where they are constants, can be read: are not in a
    /// data file, of a type that the operator takes, and as many as the sizes say.
    pub(super) fn demand_integers(
        &mut self,
        node: NodeId,
        schema: &Schema,
        callee: &Callee<'_>,
    ) -> bool {
        if callee.deciding.is_empty() {
            return true;
        }
        let values = self.model.inputs(node).enumerate();
        let mut deciding = values.filter(|(index, _)| callee.deciding.contains(index));
        let fact = deciding.find_map(|(index, value)| {
            let what = self.unreadable(schema, index, value?)?;
            Some(format!("{}: {what}", schema.name))
        });
        let is_fine = fact.is_none();
        if let Some(fact) = fact {
            self.problem(node, ProblemKind::Node, fact);
        }
        is_fine
    }

    /// Why the elements of an input that is a constant cannot be read.
    fn unreadable(&self, schema: &Schema, input: usize, value: ValueId) -> Option<String> {
        let model = self.model;
        let index = match model.value(value).producer {
            Producer::Initializer(index) => index as usize,
            Producer::Input(_) => *self.defaults.get(&value)?,
            _ => return None,
        };
        let constants = &model.graph(model.value(value).graph).initializers;
        let tensor = &constants.get(index)?.tensor;
        if tensor.is_external() {
            return Some(format!(
                "the data of input {input} must be loaded from its file first"
            ));
        }
        let number = tensor.data_type.unwrap_or(0);
        let elem = DataType::from_number(number);
        let variable = schema.type_var(schema.input(input)?.ty);
        let is_allowed = elem.is_some_and(|elem| {
            variable.is_none_or(|variable| variable.allowed.allows(&Type::unranked(elem)))
        });
        if !is_allowed {
            let name = elem.map_or(format!("type {number}"), |elem| elem.to_string());
            return Some(format!("the elements of input {input} are of {name}"));
        }
        let error = self.unreadable.get(&value)?;
        Some(format!(
            "the elements of input {input} cannot be read: {error}"
        ))
    }

    /// What a rule must have said of a node, and what must be so for that, as far as it is not.
    pub(super) fn unmet(
        &self,
        node: NodeId,
        schema: &Schema,
        given: &Given<'_>,
        said: &Said,
    ) -> Vec<String> {
        let mut unmet = Vec::new();
        // The reference implementation refuses nodes whose inputs leave the element type of an output open.
        let mut outputs = self.model.outputs(node).iter().zip(&said.types);
        let open = outputs.position(|(value, ty)| {
            let is_open = match ty {
                None => true,
                Some(Type::Tensor(tensor)) => tensor.elem.is_none(),
                Some(_) => false,
            };
            value.is_some() && is_open
        });
        if let Some(index) = open {
            unmet.push(format!(
                "the element type of output {index} does not follow from its inputs"
            ));
        }
        let data_prop = self.options.style == Style::Reference { data_prop: true };
        if data_prop && overflows(schema, given, said) {
            unmet.push(format!("{}: the result overflows 64 bits", schema.name));
        }
        unmet
    }
}

/// Whether numbers that shapes are made of gave something that is no number.
fn overflows(schema: &Schema, given: &Given<'_>, said: &Said) -> bool {
    if !matches!(schema.name, "Add" | "Sub" | "Mul") || !schema.domain.is_empty() {
        return false;
    }
    let numbers = |known: Option<&Known>| -> Option<Vec<i64>> {
        let ints = known?.ints()?;
        ints.iter().map(Dim::known).collect()
    };
    let [Some(a), Some(b)] = [0, 1].map(|index| numbers(*given.known.get(index)?)) else {
        return false;
    };
    let fits = a.len() == b.len() || a.len() == 1 || b.len() == 1;
    fits && numbers(said.known.first().and_then(Option::as_ref)).is_none()
}
