//! Check of whether a node is valid in another version of its operator without changes, by the
//! schema.

use sardonyx_model::{Model, NodeId, TensorType, Type, ValueId};
use sardonyx_ops::{AttrDefault, AttrValue, OpDef, Param, Schema, ValueTypes};
use sardonyx_tensor::DataType;

use super::types::Types;
use crate::attributes::attribute_type;
use crate::infer::{Bound, wrong_count};

/// Requirements of a version of an operator, compared with the version before the boundary.
pub(super) struct Fit {
    schema: Option<Schema>,
    /// Attributes that the version lacks, with their defaults in the version before the boundary.
    lacks: Vec<(&'static str, AttrDefault)>,
    /// Type variables and fixed types of parameters for which the version allows fewer types.
    narrowed: Vec<&'static str>,
}

/// Operands to be cast.
pub(super) struct Casts {
    /// Indices of inputs.
    pub(super) inputs: Vec<usize>,
    /// Indices of outputs, with the types to cast them back to.
    pub(super) outputs: Vec<(usize, DataType)>,
}

impl Fit {
    pub(super) fn new(def: &OpDef, from: u32, to: u32) -> Fit {
        let schema = def.schema_at(to);
        let (lacks, narrowed) = match (def.schema_at(from), &schema) {
            (Some(before), Some(after)) => (lacks(&before, after), find_narrowed(&before, after)),
            _ => Default::default(),
        };
        Fit { schema, lacks, narrowed }
    }

    /// Removes attributes that the version lacks and that have their default values.
    pub(super) fn drop_defaults(&self, model: &mut Model, node: NodeId) {
        for (name, default) in &self.lacks {
            let Some(attribute) = model.attribute_of(node, name) else { continue };
            let value = model.attribute_value(attribute, None);
            let is_empty_word = |value: &AttrValue<'_>| {
                matches!(default, AttrDefault::Word(_))
                    && matches!(value, AttrValue::String(text) if text.is_empty())
            };
            if value
                .is_some_and(|value| value.surely_equals(&default.value()) || is_empty_word(&value))
            {
                model.remove_attribute(node, name);
            }
        }
    }

    /// Returns the operands of a node that must be cast to 64-bit floats, as the version allows
    /// these but not their integer types. `None` if no input must be cast.
    pub(super) fn casts(&self, model: &Model, node: NodeId, types: &Types<'_>) -> Option<Casts> {
        let schema = self.schema.as_ref()?;
        let is_cast = |param: Option<&Param>, value: Option<ValueId>| {
            let variable = param?.ty;
            let allowed = &schema.type_var(variable)?.allowed;
            let Type::Tensor(TensorType { elem: Some(elem), .. }) = types.ty(value?)? else {
                return None;
            };
            let allows = |elem: DataType| allowed.names().contains(&format!("tensor({elem})"));
            let lacks = self.narrowed.contains(&variable) && !allows(*elem);
            (lacks && elem.is_integer() && allows(DataType::Double)).then_some(*elem)
        };
        let inputs = model.inputs(node).enumerate();
        let inputs =
            inputs.filter(|(index, value)| is_cast(schema.input(*index), *value).is_some());
        let outputs = model.outputs(node).iter().enumerate();
        let outputs = outputs
            .filter_map(|(index, value)| Some((index, is_cast(schema.output(index), *value)?)));
        let casts =
            Casts { inputs: inputs.map(|(index, _)| index).collect(), outputs: outputs.collect() };
        (!casts.inputs.is_empty()).then_some(casts)
    }

    /// Checks that a node is valid in the version. The error is the reason why it is not.
    pub(super) fn check(
        &self,
        model: &Model,
        node: NodeId,
        types: &Types<'_>,
    ) -> Result<(), String> {
        let Some(schema) = &self.schema else {
            return Err("no such version exists".to_string());
        };
        let inputs: Vec<_> = model.inputs(node).collect();
        let given = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        let outputs = model.outputs(node);
        let made = outputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        if let Some(wrong) = wrong_count(schema, [given, made]) {
            return Err(wrong);
        }
        for id in model.attributes(node) {
            let attribute = model.attribute(*id);
            let name = model.display(attribute.name);
            let Some(known) = schema.attribute(&name) else {
                let (op, version) = (schema.name, schema.since);
                let mut defaults = self.lacks.iter();
                let only = defaults.find(|(lacked, _)| *lacked == name);
                let only = only.map_or(String::new(), |(_, default)| {
                    format!("; a node can be converted only if {name} is its default, {default}")
                });
                return Err(format!("version {version} of {op} has no attribute {name}{only}"));
            };
            let found = attribute.ty.or_else(|| Some(attribute.value()?.ty()));
            if found.is_some_and(|found| found != attribute_type(known.ty)) {
                return Err(format!("the attribute {name} has another type there"));
            }
        }
        let lacks = |name: &str| model.attribute_of(node, name).is_none();
        let mut needed = schema.attributes.iter().filter(|attribute| attribute.required);
        if let Some(missing) = needed.find(|attribute| lacks(attribute.name)) {
            return Err(format!("that version requires the attribute {}", missing.name));
        }
        let ty = |value: &Option<_>| types.ty((*value)?);
        let of_inputs: Vec<Option<&Type>> = inputs.iter().map(ty).collect();
        let of_outputs: Vec<Option<Type>> =
            outputs.iter().map(|value| ty(value).cloned()).collect();
        let (mut bound, wrong) = Bound::of_inputs(schema, &of_inputs);
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        bound.outputs(schema, &of_outputs)?;
        let operands = of_inputs.iter().zip(&inputs).enumerate();
        let mut operands = operands.filter(|(_, (_, value))| value.is_some());
        let open = operands.find(|(index, (ty, _))| {
            let variable = schema.input(*index).map_or("", |param| param.ty);
            self.narrowed.contains(&variable)
                && ty.is_none_or(|ty| ty.elem().is_none())
                && !(schema.type_var(variable).is_some() && bound.knows(variable))
        });
        match open {
            Some((index, _)) if !types.are_open(model, node) => Err(format!(
                "the type of input {index} is unknown, and not all types are allowed there"
            )),
            _ => Ok(()),
        }
    }
}

/// Returns attributes with defaults that the version before the boundary has and the one after
/// lacks.
fn lacks(before: &Schema, after: &Schema) -> Vec<(&'static str, AttrDefault)> {
    let lacked = before.attributes.iter().filter(|found| after.attribute(found.name).is_none());
    lacked.filter_map(|attribute| Some((attribute.name, attribute.default?))).collect()
}

/// Returns type variables and fixed types of parameters for which a schema allows fewer types than
/// the schema before the boundary.
fn find_narrowed(before: &Schema, after: &Schema) -> Vec<&'static str> {
    let takes = |schema: &Schema, ty: &str| match schema.type_var(ty) {
        Some(variable) => variable.allowed.names(),
        None => vec![ty.to_string()],
    };
    let takes_less = |before_ty: Option<&'static str>, after_ty: &str| {
        let Some(before_ty) = before_ty else { return true };
        let after = takes(after, after_ty);
        takes(before, before_ty).iter().any(|name| !after.contains(name))
    };
    let inputs = after.inputs.iter().enumerate();
    let inputs = inputs.map(|(index, param)| (before.input(index), param));
    let outputs = after.outputs.iter().enumerate();
    let outputs = outputs.map(|(index, param)| (before.output(index), param));
    let less = inputs.chain(outputs).filter_map(|(before, after)| {
        takes_less(before.map(|param| param.ty), after.ty).then_some(after.ty)
    });
    let mut narrowed: Vec<&'static str> = less.collect();
    narrowed.sort_unstable();
    narrowed.dedup();
    narrowed
}
