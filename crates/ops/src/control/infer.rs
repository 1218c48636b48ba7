//! Inference of `If`, `Loop` and `Scan`: facts about a value that hold in each inner graph that may
//! produce it.

use sardonyx_model::{Dim, Shape, TensorType, Type};
use sardonyx_tensor::{Bool8, DataType, Tensor};

use crate::infer::Rule;
use crate::infer::{Infer, InferError, Inferred};
use crate::known::Known;
use crate::rules::common_shape;

/// Number of walks through a loop's body after which a shape that still changes becomes unknown.
const PATIENCE: usize = 8;

/// Returns the type that both types have in common, or `None` if they are of different kinds.
fn join(a: &Type, b: &Type) -> Option<Type> {
    let tensor = |a: &TensorType, b: &TensorType| -> Option<TensorType> {
        let elem = match (a.elem, b.elem) {
            (Some(a), Some(b)) if a != b => return None,
            (a, b) => a.and(b),
        };
        let shape = match (&a.shape, &b.shape) {
            (Some(a), Some(b)) => common_shape(a, b),
            _ => None,
        };
        Some(TensorType { elem, shape })
    };
    Some(match (a, b) {
        (Type::Tensor(a), Type::Tensor(b)) => Type::Tensor(tensor(a, b)?),
        (Type::SparseTensor(a), Type::SparseTensor(b)) => Type::SparseTensor(tensor(a, b)?),
        (Type::Sequence(a), Type::Sequence(b)) => Type::Sequence(Box::new(join(a, b)?)),
        (Type::Optional(a), Type::Optional(b)) => Type::Optional(Box::new(join(a, b)?)),
        (Type::Map(k, a), Type::Map(l, b)) if k == l => Type::Map(*k, Box::new(join(a, b)?)),
        (Type::Opaque { .. }, Type::Opaque { .. }) if a == b => a.clone(),
        _ => return None,
    })
}

/// Joins the types of a carried value before and after an iteration. A loop may begin with an
/// optional that its body opens; without iterations it returns the optional.
fn join_carried(before: &Type, after: &Type) -> Option<Type> {
    match (before, after) {
        (Type::Optional(_), Type::Optional(_)) => join(before, after),
        (Type::Optional(before), after) => Some(Type::Optional(Box::new(join(before, after)?))),
        _ => join(before, after),
    }
}

/// Returns the contents that are equal in both, element by element; others are unknown.
fn join_known(a: Option<&Known>, b: Option<&Known>) -> Option<Known> {
    let (a, b) = (a?, b?);
    if a.elem() != b.elem() || a.dims() != b.dims() {
        return None;
    }
    let (x, y) = (a.elements()?, b.elements()?);
    let same = x.iter().zip(&y).all(|(x, y)| x.surely_equals(y));
    if !same {
        return None;
    }
    Known::array(a.elem(), a.dims().into(), x)
}

impl Inferred {
    /// Returns the facts that hold for both of two sources of a value.
    #[must_use]
    pub fn join(&self, other: &Inferred) -> Inferred {
        let ty = match (&self.ty, &other.ty) {
            (Some(a), Some(b)) => join(a, b),
            _ => None,
        };
        Inferred { ty, known: join_known(self.known.as_ref(), other.known.as_ref()) }
    }
}

fn truth(known: Option<&Known>) -> Option<bool> {
    let tensor = known?.to_tensor()?;
    match &tensor.to_vec::<Bool8>().ok()?[..] {
        [truth] => Some(truth.get()),
        _ => None,
    }
}

fn without_shape(ty: &Type) -> Type {
    match ty {
        Type::Tensor(tensor) => Type::Tensor(TensorType { elem: tensor.elem, shape: None }),
        Type::Sequence(inner) => Type::Sequence(Box::new(without_shape(inner))),
        Type::Optional(inner) => Type::Optional(Box::new(without_shape(inner))),
        _ => ty.clone(),
    }
}

/// Infers `If` from both branches, or from the one that is taken.
pub(crate) fn if_(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let taken = truth(cx.known_value(0));
    branches(cx, taken)
}

/// Infers `If` like the reference implementation, which does not see which branch is taken.
pub(crate) fn if_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    branches(cx, None)
}

fn branches(cx: &mut Infer<'_>, taken: Option<bool>) -> Result<(), InferError> {
    // Errors in a branch that is not taken do not matter.
    let then = cx.subgraph("then_branch", &[])?;
    if taken == Some(false) {
        cx.mark_not_run("then_branch");
    }
    let or_else = cx.subgraph("else_branch", &[])?;
    if taken == Some(true) {
        cx.mark_not_run("else_branch");
    }
    let (Some(then), Some(or_else)) = (then, or_else) else {
        return Ok(());
    };
    let count = cx.output_count();
    for (branch, outputs) in [("then_branch", &then), ("else_branch", &or_else)] {
        if outputs.len() != count {
            let gives = outputs.len();
            return cx.fail(format_args!(
                "{branch} returns {gives} values, but the node has {count} outputs"
            ));
        }
    }
    for (index, (a, b)) in then.into_iter().zip(or_else).enumerate() {
        let both = match (&a.ty, &b.ty) {
            (Some(x), Some(y)) => match join(x, y) {
                Some(both) => Some(both),
                None if taken.is_some() => None,
                None => {
                    return cx.fail(format_args!(
                        "output {index} is {x} of then_branch, but {y} of else_branch"
                    ));
                }
            },
            _ => None,
        };
        let given = match taken {
            Some(true) => a,
            Some(false) => b,
            None => Inferred { known: join_known(a.known.as_ref(), b.known.as_ref()), ty: both },
        };
        if taken.is_none() {
            cx.set_reason(index, "which branch runs; they return different sizes");
        }
        if let Some(ty) = given.ty {
            cx.set(index, ty);
        }
        if let Some(known) = given.known {
            cx.set_known(index, known);
        }
    }
    Ok(())
}

/// Infers `Loop`: walks through its body with the facts that hold before every iteration, until
/// they do not change any more.
pub(crate) fn loop_(cx: &mut Infer<'_>) -> Result<(), InferError> {
    loop_by(cx, Rule::Operator)
}

/// Infers `Loop` like the reference implementation, which walks through the body once and ignores
/// the shapes of carried values.
pub(crate) fn loop_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    loop_by(cx, Rule::Reference)
}

fn loop_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let is_reference = rule == Rule::Reference;
    let carried = cx.input_count().saturating_sub(2);
    let iteration = if is_reference {
        Type::unranked(DataType::Int64)
    } else {
        Type::tensor(DataType::Int64, [] as [Dim; 0])
    };
    let condition = match (cx.has_input(1), is_reference) {
        (_, true) => Inferred { ty: cx.input(1).cloned(), known: None },
        (true, false) => Inferred { ty: cx.input(1).cloned(), known: cx.known_value(1).cloned() },
        (false, false) => Inferred {
            ty: Some(Type::tensor(DataType::Bool, [] as [Dim; 0])),
            known: Some(Known::Tensor(Tensor::scalar(Bool8::from(true)))),
        },
    };
    // The condition is also carried.
    let mut state = vec![condition];
    for index in 2..2 + carried {
        state.push(if is_reference {
            Inferred { ty: cx.input(index).map(without_shape), known: None }
        } else {
            Inferred { ty: cx.input(index).cloned(), known: cx.known_value(index).cloned() }
        });
    }
    let first = Inferred { ty: Some(iteration), known: None };
    let given = |state: &[Inferred]| -> Vec<Inferred> {
        [&first].into_iter().chain(state).cloned().collect()
    };
    let Some(outputs) = repeat(cx, "body", &mut state, rule, given)? else {
        return Ok(());
    };
    let count = cx.output_count();
    // The reference implementation treats this as a body that it cannot infer.
    if outputs.is_empty() && is_reference {
        return Ok(());
    }
    if outputs.len() != count + 1 {
        let gives = outputs.len();
        return cx.fail(format_args!(
            "body returns {gives} values: a condition and {count} outputs are required"
        ));
    }
    let runs = match truth(state[0].known.as_ref()) {
        Some(true) => cx.known_ints(0).and_then(|ints| match &ints[..] {
            [runs] => Some(runs.larger(&Dim::Known(0))),
            _ => None,
        }),
        _ => None,
    };
    for (index, output) in outputs.into_iter().skip(1).enumerate() {
        match state.get(index + 1) {
            Some(carried) => {
                if let Some(ty) = &carried.ty {
                    cx.set(index, ty.clone());
                }
                if let Some(known) = &carried.known {
                    cx.set_known(index, known.clone());
                }
                cx.set_reason(
                    index,
                    "how often the loop runs, which changes sizes of what it carries",
                );
            }
            None => match output.ty {
                Some(Type::Tensor(tensor)) => {
                    let stacked = |dims: Shape| {
                        let runs = runs.clone().unwrap_or(Dim::Unknown);
                        [runs].into_iter().chain(dims).collect()
                    };
                    cx.set_tensor(index, tensor.elem, tensor.shape.map(stacked));
                    cx.set_reason(index, "how often the loop runs");
                }
                Some(other) => {
                    return cx.fail(format_args!(
                        "output {index} stacks values of the body, which are {other}"
                    ));
                }
                None => {}
            },
        }
    }
    Ok(())
}

/// Walks through a body until the facts about carried values do not change any more. Then `state`
/// holds for all iterations. Returns the outputs of the last walk.
fn repeat(
    cx: &Infer<'_>,
    body: &str,
    state: &mut [Inferred],
    rule: Rule,
    given: impl Fn(&[Inferred]) -> Vec<Inferred>,
) -> Result<Option<Vec<Inferred>>, InferError> {
    for round in 0.. {
        let Some(outputs) = cx.subgraph(body, &given(state))? else {
            return Ok(None);
        };
        let mut changed = false;
        for (index, (before, after)) in state.iter_mut().zip(&outputs).enumerate() {
            let known = join_known(before.known.as_ref(), after.known.as_ref());
            changed |= known.is_some() != before.known.is_some();
            before.known = known;
            let (Some(a), Some(b)) = (&before.ty, &after.ty) else {
                // The body may infer a type for a value that begins without one.
                changed |= before.ty.is_some();
                before.ty = None;
                continue;
            };
            let Some(mut both) = join_carried(a, b) else {
                return cx.fail(format_args!(
                    "the loop-carried value {index} of {body} is {a} initially, but {b} after an iteration"
                ));
            };
            if both != *a && round >= PATIENCE {
                both = without_shape(&both);
            }
            changed |= both != *a;
            before.ty = Some(both);
        }
        if !changed || rule == Rule::Reference {
            return Ok(Some(outputs));
        }
    }
    Ok(None)
}

/// Infers `Scan`, whose body reads its inputs slice by slice and carries values.
pub(crate) fn scan(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let lists = Lists { skipped: 0, batched: false };
    lists.scan(cx)
}

/// Infers `Scan` of version 8, which scans a batch of sequences. The first input has their lengths.
pub(crate) fn scan_8(cx: &mut Infer<'_>) -> Result<(), InferError> {
    let lists = Lists { skipped: 1, batched: true };
    lists.scan(cx)
}

struct Lists {
    /// Number of leading inputs that are neither carried nor scanned.
    skipped: usize,
    /// Whether the first axis of all operands is the batch.
    batched: bool,
}

impl Lists {
    fn scan(&self, cx: &mut Infer<'_>) -> Result<(), InferError> {
        let inputs = cx.input_count().saturating_sub(self.skipped);
        let wanted = cx.int("num_scan_inputs").unwrap_or(0);
        let scanned = match usize::try_from(wanted) {
            Ok(scanned) if (1..=inputs).contains(&scanned) => scanned,
            _ => {
                return cx.fail(format_args!(
                    "num_scan_inputs is {wanted}, but the node has {inputs} inputs to carry or scan"
                ));
            }
        };
        let carried = inputs - scanned;
        let count = cx.output_count();
        if carried > count {
            return cx.fail(format_args!(
                "it has {carried} loop state variables, but only {count} outputs"
            ));
        }
        let input_axes = self.axes(cx, "scan_input_axes", scanned)?;
        let output_axes = self.axes(cx, "scan_output_axes", count - carried)?;
        let (mut batch, mut len) = (Dim::Unknown, Dim::Unknown);
        let mut state = Vec::new();
        for index in 0..carried {
            let mut ty = cx.input(index + self.skipped).cloned();
            if self.batched {
                ty = self.without_batch(cx, ty, &mut batch)?;
            }
            state.push(Inferred { ty, known: None });
        }
        let mut slices = Vec::new();
        for (index, axis) in input_axes.iter().enumerate() {
            let mut ty = cx.input(index + carried + self.skipped).cloned();
            if self.batched {
                ty = self.without_batch(cx, ty, &mut batch)?;
            }
            if let Some(Type::Tensor(TensorType { shape: Some(shape), .. })) = &mut ty {
                let axis = cx.axis(*axis, shape.len())?;
                let size = shape.remove(axis);
                len = cx.same_dim(&len, &size, "lengths of scanned inputs")?;
            }
            slices.push(Inferred { ty, known: None });
        }
        let given = |state: &[Inferred]| -> Vec<Inferred> {
            state.iter().chain(&slices).cloned().collect()
        };
        // Carried values keep their shape: the outputs have that of the inputs.
        let Some(outputs) = cx.subgraph("body", &given(&state))? else {
            return Ok(());
        };
        if outputs.len() != count {
            let gives = outputs.len();
            return cx.fail(format_args!(
                "body returns {gives} values, but the node has {count} outputs"
            ));
        }
        for (index, output) in outputs.into_iter().enumerate() {
            let Some(made) = output.ty else { continue };
            let Type::Tensor(tensor) = made else {
                return cx
                    .fail(format_args!("body returns {made} for output {index}, not a tensor"));
            };
            let mut shape = tensor.shape;
            let mut elem = tensor.elem;
            if index < carried {
                if let Some(Type::Tensor(before)) = &state[index].ty {
                    if let (Some(a), Some(b)) = (before.elem, elem)
                        && a != b
                    {
                        return cx.fail(format_args!(
                            "the loop-carried value {index} of body is {} initially, but {} after an iteration",
                            a.name(),
                            b.name()
                        ));
                    }
                    elem = elem.or(before.elem);
                    if let (Some(a), Some(b)) = (&before.shape, &shape) {
                        let merged = before.merge(&TensorType { elem, shape: Some(b.clone()) });
                        let Some(merged) = merged else {
                            return cx.fail(format_args!(
                                "the loop-carried value {index} of body has {} initially, but {} after an iteration",
                                sizes(a),
                                sizes(b)
                            ));
                        };
                        shape = merged.shape;
                    } else {
                        shape = before.shape.clone().or(shape);
                    }
                }
            } else if let Some(shape) = &mut shape {
                let axis = output_axes[index - carried];
                let axis = cx.axis(axis, shape.len() + 1)?;
                shape.insert(axis, len.clone());
            }
            if let Some(shape) = shape.as_mut().filter(|_| self.batched) {
                shape.insert(0, batch.clone());
            }
            cx.set_tensor(index, elem, shape);
        }
        Ok(())
    }

    /// Returns an attribute that lists one axis for each of `count` values.
    fn axes(&self, cx: &Infer<'_>, name: &str, count: usize) -> Result<Vec<i64>, InferError> {
        match cx.ints(name) {
            Some(axes) if axes.len() != count => {
                let given = axes.len();
                cx.fail(format_args!("{name} has {given} elements, but there are {count} values"))
            }
            Some(axes) => Ok(axes),
            None => Ok(vec![0; count]),
        }
    }

    fn without_batch(
        &self,
        cx: &Infer<'_>,
        ty: Option<Type>,
        batch: &mut Dim,
    ) -> Result<Option<Type>, InferError> {
        let Some(Type::Tensor(TensorType { elem, shape: Some(mut shape) })) = ty else {
            return Ok(ty);
        };
        if shape.is_empty() {
            return cx.fail("an input has no axis for the batch");
        }
        let size = shape.remove(0);
        *batch = cx.same_dim(batch, &size, "sizes of the batch")?;
        Ok(Some(Type::Tensor(TensorType { elem, shape: Some(shape) })))
    }
}

fn sizes(shape: &Shape) -> String {
    let sizes: Vec<String> = shape.iter().map(Dim::to_string).collect();
    format!("shape [{}]", sizes.join(", "))
}

/// Infers `SequenceMap`, which runs a body for each element of sequences.
pub(crate) fn sequence_map(cx: &mut Infer<'_>) -> Result<(), InferError> {
    sequence_map_by(cx, Rule::Operator)
}

/// Infers `SequenceMap` like the reference implementation, which ignores a body without outputs.
pub(crate) fn sequence_map_as_reference(cx: &mut Infer<'_>) -> Result<(), InferError> {
    sequence_map_by(cx, Rule::Reference)
}

fn sequence_map_by(cx: &mut Infer<'_>, rule: Rule) -> Result<(), InferError> {
    let mut given = Vec::new();
    for index in 0..cx.input_count() {
        let ty = match cx.input(index) {
            Some(Type::Sequence(inner)) => Some(Type::clone(inner)),
            Some(ty @ Type::Tensor(_)) if index > 0 => Some(ty.clone()),
            Some(other) => {
                return cx.fail(format_args!("input {index} is {other}, not a sequence"));
            }
            None => None,
        };
        given.push(Inferred { ty, known: None });
    }
    let Some(outputs) = cx.subgraph("body", &given)? else {
        return Ok(());
    };
    let count = cx.output_count();
    // The reference implementation treats this as a body that it cannot infer.
    if outputs.is_empty() && rule == Rule::Reference {
        return Ok(());
    }
    if outputs.len() != count {
        let gives = outputs.len();
        return cx
            .fail(format_args!("body returns {gives} values, but the node has {count} outputs"));
    }
    for (index, output) in outputs.into_iter().enumerate() {
        if let Some(ty) = output.ty {
            cx.set(index, Type::Sequence(Box::new(ty)));
        }
    }
    Ok(())
}
