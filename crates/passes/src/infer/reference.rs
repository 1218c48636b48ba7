//! Differences of the reference implementation from the rules of operators: its further conditions,
//! and in `weaken` the facts that it does not derive. If its rule is a different one, which refuses
//! other nodes or looks at other inputs, the operator names it ([`OpDef::reference_inference_at`]).

use sardonyx_model::{
    AttributeValue, Dim, NoExternalData, NodeId, Producer, TensorProto, Type, ValueId,
};
use sardonyx_ops::operators::{ADD, MUL, SUB};
use sardonyx_ops::{Known, MAX_KNOWN, OpDef, RuleOutcome, Schema};
use sardonyx_tensor::DataType;
use sardonyx_tensor::shape::RANK_LIMIT;

use super::callees::Callee;
use super::engine::Engine;
use super::rulebook::Given;
use super::{ProblemKind, Style};

pub(super) mod weaken;

impl Engine<'_> {
    /// Whether the rule of a node is applied at all: it has outputs, integers that decide shapes
    /// can be read, and values are declared with elements that exist. Writes down why not, and
    /// values of too many dimensions, which do not end inference.
    pub(super) fn meets_demands(&mut self, node: NodeId, callee: &Callee<'_>) -> bool {
        if let Some(schema) = callee.schema
            && !(self.demand_outputs(node, schema) && self.demand_integers(node, schema, callee))
        {
            return false;
        }
        let (too_deep, undefined) =
            (&self.declarations.too_deep, &self.declarations.undefined_elements);
        let are_sound = too_deep.is_empty() && undefined.is_empty();
        let is_known =
            || callee.schema.is_some() || self.callees.function_of(node, callee).is_some();
        if are_sound || !is_known() {
            return true;
        }
        let inputs = || self.model.inputs(node);
        let outputs = self.model.outputs(node).iter().copied();
        let mut touched = inputs().chain(outputs).flatten();
        let rank = touched.find_map(|value| too_deep.get(&value).copied());
        let is_undefined = |value: Option<ValueId>| value.is_some_and(|id| undefined.contains(&id));
        let undefined = inputs().position(is_undefined);
        if let Some(rank) = rank {
            let fact =
                format!("a value in it has {rank} dimensions; at most {RANK_LIMIT} are supported");
            self.problem(node, ProblemKind::Rank, fact);
        }
        match undefined.filter(|_| self.options.check_types) {
            None => true,
            Some(index) => {
                let fact = format!("input {index} is declared with an undefined element type");
                self.problem(node, ProblemKind::Signature, fact);
                false
            }
        }
    }

    /// Whether a node has outputs where its operator has some; rules would have nothing to infer.
    fn demand_outputs(&mut self, node: NodeId, schema: &Schema) -> bool {
        let missing = self.model.outputs(node).is_empty() && schema.output_count().0 > 0;
        if missing {
            let fact = format!("{} must have at least one output", schema.name);
            self.problem(node, ProblemKind::Node, fact);
        }
        !missing
    }

    /// Whether the integers that decide the shapes of a node's outputs, where they are constants,
    /// can be read: are not in a data file, of a type that the operator takes, and as many as the
    /// sizes ask for.
    fn demand_integers(&mut self, node: NodeId, schema: &Schema, callee: &Callee<'_>) -> bool {
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

    /// Returns the stored tensor of a constant: an initializer, or the attribute of a `Constant`.
    fn stored_tensor(&self, value: ValueId) -> Option<&TensorProto> {
        let model = self.model;
        let index = match model.value(value).producer {
            Producer::Initializer(index) => index as usize,
            Producer::Input(_) => *self.declarations.defaults.get(&value)?,
            Producer::Node(node, _) => {
                let mut attributes = model.attributes(node).iter();
                let is_constant = model.maybe_text(model.node(node).op_type) == Some(b"Constant")
                    && model.domain_of(node).is_empty();
                return attributes.find_map(|id| match model.attribute(*id).value() {
                    Some(AttributeValue::Tensor(tensor)) if is_constant => Some(&**tensor),
                    _ => None,
                });
            }
            _ => return None,
        };
        let constants = &model.graph(model.value(value).graph).initializers;
        Some(&constants.get(index)?.tensor)
    }

    /// Returns the reason why the elements of a constant input cannot be read.
    fn unreadable(&self, schema: &Schema, input: usize, value: ValueId) -> Option<String> {
        let tensor = self.stored_tensor(value)?;
        if tensor.is_external() {
            return Some(format!("the data of input {input} must be loaded from its file first"));
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
        let mut sizes = tensor.dims.iter().map(|size| u64::try_from(*size).ok());
        let elems = sizes.try_fold(1u64, |product, size| product.checked_mul(size?));
        let error = match elems {
            Some(elems) if elems <= MAX_KNOWN as u64 => {
                self.model.tensor(tensor, &NoExternalData).err()?
            }
            _ => return None,
        };
        Some(format!("the elements of input {input} cannot be read: {error}"))
    }

    /// Whether a graph of a node has no outputs. The reference implementation then infers nothing
    /// for the node.
    fn has_empty_body(&self, node: NodeId) -> bool {
        let model = self.model;
        let mut attributes = model.attributes(node).iter();
        attributes.any(|attribute| match model.attribute(*attribute).value() {
            Some(AttributeValue::Graph(graph)) => model.graph(*graph).outputs.is_empty(),
            _ => false,
        })
    }

    /// Returns the further conditions of the reference implementation that the results of a node do
    /// not meet.
    pub(super) fn find_unmet_conditions(
        &self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
        outcome: &RuleOutcome,
    ) -> Vec<String> {
        let mut unmet = Vec::new();
        if self.has_empty_body(node) {
            return unmet;
        }
        // The reference implementation refuses nodes whose inputs leave the element type of an
        // output open.
        let mut outputs = self.model.outputs(node).iter().zip(&outcome.types);
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
        let adds_up = |operator: &&OpDef| [&ADD, &MUL, &SUB].iter().any(|op| operator.is(op));
        if let Some(operator) = callee.operator.filter(adds_up)
            && data_prop
            && overflows(given, outcome)
        {
            unmet.push(format!("{}: the result overflows 64 bits", operator.name));
        }
        unmet
    }
}

/// Whether a result of known numbers is not a number because it overflows.
fn overflows(given: &Given<'_>, outcome: &RuleOutcome) -> bool {
    let numbers = |known: Option<&Known>| -> Option<Vec<i64>> {
        let ints = known?.ints()?;
        ints.iter().map(Dim::known).collect()
    };
    let [Some(a), Some(b)] = [0, 1].map(|index| numbers(*given.known.get(index)?)) else {
        return false;
    };
    let fits = a.len() == b.len() || a.len() == 1 || b.len() == 1;
    fits && numbers(outcome.known.first().and_then(Option::as_ref)).is_none()
}
