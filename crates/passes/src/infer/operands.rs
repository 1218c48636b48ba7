//! Types of operands compared with those that an operator accepts: the allowed types, and type
//! variables that stand for the same type wherever they occur.

use sardonyx_model::{TensorType, Type};
use sardonyx_ops::{Arity, Param, Schema, spell};
use smallvec::SmallVec;

/// Types of the type variables of a node, with the operand that determined each.
#[derive(Default)]
pub(crate) struct Bound<'a>(SmallVec<[(&'static str, &'a Type, &'static str, usize); 4]>);

impl<'a> Bound<'a> {
    /// Binds the variables of a node's inputs. Returns a description of the first input that does
    /// not fit.
    pub(crate) fn of_inputs(
        schema: &Schema,
        inputs: &[Option<&'a Type>],
    ) -> (Bound<'a>, Option<String>) {
        let mut bound = Bound::default();
        let mut wrong = None;
        for (index, ty) in inputs.iter().enumerate() {
            let (Some(ty), Some(param)) = (*ty, schema.input(index)) else {
                continue;
            };
            let found = bound.operand(schema, param, "input", index, ty);
            wrong = wrong.or(found.err());
        }
        (bound, wrong)
    }

    /// Compares the outputs of a node with the types of its operator and with the bound variables.
    pub(crate) fn outputs(
        &mut self,
        schema: &Schema,
        outputs: &'a [Option<Type>],
    ) -> Result<(), String> {
        for (index, ty) in outputs.iter().enumerate() {
            if let (Some(ty), Some(param)) = (ty, schema.output(index)) {
                self.operand(schema, param, "output", index, ty)?;
            }
        }
        Ok(())
    }

    /// Whether the element type of a variable is known.
    pub(crate) fn knows(&self, variable: &str) -> bool {
        let mut bound = self.0.iter().filter(|(name, ..)| *name == variable);
        bound.any(|(_, ty, ..)| ty.elem().is_some())
    }

    /// Completes the types of outputs from the variables.
    pub(super) fn complete(&self, schema: &Schema, outputs: &mut [Option<Type>]) {
        for (index, ty) in outputs.iter_mut().enumerate() {
            let by_variable = || self.output(schema, index);
            match ty {
                None => *ty = by_variable(),
                Some(Type::Tensor(tensor)) if tensor.elem.is_none() => {
                    tensor.elem = by_variable().and_then(|ty| ty.elem());
                }
                Some(_) => {}
            }
        }
    }

    fn operand(
        &mut self,
        schema: &Schema,
        param: &Param,
        what: &'static str,
        index: usize,
        ty: &'a Type,
    ) -> Result<(), String> {
        if let Some(variable) = schema.type_var(param.ty)
            && !variable.allowed.allows(ty)
        {
            let allowed = variable.allowed.words();
            let ty = spell(ty);
            let does = match what {
                "output" => "makes",
                _ => "takes",
            };
            return Err(format!("{what} {index} is {ty}, but {} {does} {allowed}", schema.name));
        }
        if schema.type_var(param.ty).is_none()
            && let Some(only) = sardonyx_ops::read_type(param.ty)
            && !same_kind(ty, &only)
        {
            return Err(format!(
                "{what} {index} is {}, but must be {} for {}",
                spell(ty),
                param.ty,
                schema.name
            ));
        }
        if !is_shared(param) {
            return Ok(());
        }
        match self.0.iter().find(|(name, ..)| *name == param.ty) {
            None => self.0.push((param.ty, ty, what, index)),
            Some((_, other, first, at)) if !same_kind(ty, other) => {
                let (ty, other) = (spell(ty), spell(other));
                return Err(format!(
                    "{what} {index} is {ty}, but {first} {at} is {other}; they must have the same type"
                ));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns the type that an output must have, without its sizes: that of its variable, or the
    /// only allowed one.
    fn output(&self, schema: &Schema, index: usize) -> Option<Type> {
        let param = schema.output(index)?;
        let shared = self.0.iter().find(|(name, ..)| *name == param.ty);
        if let Some((_, ty, ..)) = shared.filter(|_| is_shared(param)) {
            return Some(without_sizes(ty));
        }
        match schema.type_var(param.ty) {
            Some(variable) => variable.allowed.only(),
            None => sardonyx_ops::read_type(param.ty),
        }
    }
}

/// Describes a wrong number of inputs or of outputs.
pub(crate) fn wrong_count(schema: &Schema, counts: [usize; 2]) -> Option<String> {
    let allowed = [schema.input_count(), schema.output_count()];
    let mut all = ["inputs", "outputs"].into_iter().zip(counts).zip(allowed);
    let ((what, count), (fewest, most)) = all.find(|((_, count), (fewest, most))| {
        count < fewest || most.is_some_and(|most| *count > most)
    })?;
    let name = schema.name;
    let most = most.map_or("any number".to_string(), |most| most.to_string());
    Some(format!("{name} has {fewest} to {most} {what}, not {count}"))
}

fn is_shared(param: &Param) -> bool {
    !matches!(param.arity, Arity::Variadic { homogeneous: false, .. })
}

/// Whether two types are equal, as far as they are known, ignoring sizes.
fn same_kind(a: &Type, b: &Type) -> bool {
    without_sizes(a).merge(&without_sizes(b)).is_some()
}

fn without_sizes(ty: &Type) -> Type {
    let tensor = |tensor: &TensorType| TensorType { elem: tensor.elem, shape: None };
    let inner = |inner: &Type| Box::new(without_sizes(inner));
    match ty {
        Type::Tensor(found) => Type::Tensor(tensor(found)),
        Type::SparseTensor(found) => Type::SparseTensor(tensor(found)),
        Type::Sequence(found) => Type::Sequence(inner(found)),
        Type::Optional(found) => Type::Optional(inner(found)),
        Type::Map(key, found) => Type::Map(*key, inner(found)),
        Type::Opaque { .. } => ty.clone(),
    }
}
