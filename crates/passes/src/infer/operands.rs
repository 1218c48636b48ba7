//! Types of operands against what an operator takes: the types that are allowed, and type variables
//! that stand for the same type wherever they occur.

use sardonyx_model::{TensorType, Type};
use sardonyx_ops::{Arity, Param, Schema, spell};
use smallvec::SmallVec;

/// Type variables of a node that stand for a type, with the operand that said so.
#[derive(Default)]
pub(crate) struct Bound<'a>(SmallVec<[(&'static str, &'a Type, &'static str, usize); 4]>);

impl<'a> Bound<'a> {
    /// What the inputs of a node bind, and what does not fit.
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

    /// Compares the outputs of a node with what its operator makes and with what the inputs bind.
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

    /// Whether it is known which element type a variable stands for.
    pub(crate) fn knows(&self, variable: &str) -> bool {
        let mut bound = self.0.iter().filter(|(name, ..)| *name == variable);
        bound.any(|(_, ty, ..)| ty.elem().is_some())
    }

    /// Fills in what variables say of the types of outputs.
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

    /// The type that an output must have, its sizes aside: that of its variable, or the only one
    /// there is.
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

/// What is wrong with the number of inputs, or with that of outputs.
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

/// Whether two types are the same, sizes aside, as far as known.
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
