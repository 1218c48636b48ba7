//! Inputs and outputs of a session, and the only check of a run's inputs against them. Messages are
//! in the caller's terms.

use std::fmt::{self, Write};

use sardonyx_model::{Dim, Model, Shape, Type};
use sardonyx_proto::closest;
use sardonyx_tensor::{DataType, TensorView, Value, ValueType};
use smallvec::SmallVec;

use crate::border::{absent, type_as_run};
use crate::dims::{self, format_sizes};
use crate::error::InputError;
use crate::memory::{Held, HeldValues};

/// Input or output of a model: name, type, documentation, and whether a run requires it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    name: String,
    ty: Option<Type>,
    /// Branch that alone reads the input.
    only_in: Option<Branch>,
    required: bool,
    doc: String,
}

impl Port {
    /// Makes a description of an input or output without documentation.
    pub fn new(name: String, ty: Option<Type>, required: bool) -> Port {
        Port { name, ty, only_in: None, required, doc: String::new() }
    }

    /// Sets the branch that alone reads an input.
    pub(crate) fn read_in(self, only_in: Option<Branch>) -> Port {
        Port { only_in, ..self }
    }

    /// Sets the documentation.
    pub fn with_doc(self, doc: String) -> Port {
        Port { doc, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the declared type, with dims outermost first, such as `float[N, 3, 224, 224]`.
    /// `None` if the model declares none, or one that this release does not know.
    pub fn ty(&self) -> Option<&Type> {
        self.ty.as_ref()
    }

    /// Whether a run requires this input. An input with a default value (an initializer of the same
    /// name) or of optional type may be omitted. Always true for outputs.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Returns the documentation; mostly empty.
    pub fn doc(&self) -> &str {
        &self.doc
    }
}

/// Prints `name: type`.
impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.ty {
            Some(ty) => write!(f, "{}: {ty}", self.name),
            None => write!(f, "{}: unknown type", self.name),
        }
    }
}

/// Branch of an `If` in the main graph, which may be the only reader of an input.
///
/// Sizes with the same name must be equal; a run with different ones is refused. But exporters
/// merge two models into the branches of one `If`, and callers pass inputs of any size, often 0,
/// for the branch that is not taken. So the sizes of an input that only one branch reads are
/// compared with those of other inputs when the branch is taken. Inferred sizes remain valid: a
/// value with both sizes either does not exist or lies in the branch, which fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Number of the step.
    pub(crate) step: usize,
    /// Index among the graphs of the step.
    pub(crate) index: usize,
}

/// Branch whose inputs have contradicting sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExcludedBranch<'p> {
    pub(crate) branch: Branch,
    /// Name of a size, and two inputs that disagree about it.
    pub(crate) name: &'p str,
    pub(crate) sizes: [(&'p Port, usize); 2],
}

/// Excluded branches, each once; most runs have none.
pub(crate) type AllClosed<'p> = SmallVec<[ExcludedBranch<'p>; 1]>;

impl ExcludedBranch<'_> {
    /// Explains why the branch cannot be taken.
    pub(crate) fn reason(&self) -> String {
        let ExcludedBranch { name, sizes: [(one, before), (other, size)], .. } = self;
        let (one, other) = (one.name(), other.name());
        format!(
            "the inputs do not fit the branch: {name} is {before} for the input '{one}' and {size} for '{other}'"
        )
    }
}

/// Replaces the types of ports by those that the model declares, with fixed sizes as numbers.
pub(crate) fn declare(
    model: &Model,
    fixed: &[(String, i64)],
    inputs: &mut [Port],
    outputs: &mut [Port],
) {
    let Some(main) = model.main else { return };
    let graph = model.graph(main);
    for (infos, ports) in [(&graph.inputs, inputs), (&graph.outputs, outputs)] {
        for info in infos {
            let ty = info.ty.as_ref().filter(|ty| type_as_run(model, ty, fixed).is_some());
            let name = model.display(info.name);
            if let Some(ty) = ty.and_then(|ty| model.type_of(ty))
                && let Some(port) = ports.iter_mut().find(|port| port.name() == name)
            {
                port.ty = Some(dims::fix_sizes(ty, fixed));
            }
        }
    }
}

/// Returns the index of the port with a name. Looks at index `turn` first, as callers mostly pass
/// values in the model's order.
pub(crate) fn find(ports: &[Port], turn: usize, name: &str) -> Option<usize> {
    match ports.get(turn) {
        Some(port) if port.name == name => Some(turn),
        _ => ports.iter().position(|port| port.name == name),
    }
}

/// Input ports of a session, and the sizes that it fixed.
#[derive(Clone, Copy)]
pub(crate) struct InputPorts<'p> {
    pub(crate) ports: &'p [Port],
    pub(crate) fixed: &'p [(String, i64)],
}

/// Function that passes the inputs of a run to a sorter, one after the other.
pub(crate) type GiveInputs<'f, 'a> =
    dyn FnMut(&mut Sorter<'_, '_, 'a>) -> Result<(), InputError> + 'f;

/// Sorter of a run's inputs into the model's order.
pub(crate) struct Sorter<'p, 'g, 'a> {
    ports: InputPorts<'p>,
    given: &'g mut HeldValues<'a>,
    /// Indices of inputs that a state keeps.
    kept: SmallVec<[usize; 8]>,
    /// Number of values so far.
    turn: usize,
}

impl<'a> Sorter<'_, '_, 'a> {
    /// Puts a value in the place of its input.
    pub(crate) fn put(&mut self, name: &str, value: Held<'a>) -> Result<(), InputError> {
        let index = find(self.ports.ports, self.turn, name);
        let index = index.ok_or_else(|| self.ports.unknown(name))?;
        self.turn += 1;
        if !matches!(self.given[index], Held::Nothing) {
            return Err(self.make_double_error(index));
        }
        self.given[index] = value;
        Ok(())
    }

    #[cold]
    fn make_double_error(&self, index: usize) -> InputError {
        let name = self.ports.ports[index].name();
        let is_kept = self.kept.contains(&index);
        let why = if is_kept { "given, but the state keeps it" } else { "given twice" };
        InputError::new(format!("the input '{name}' is {why}"))
    }
}

impl<'p> InputPorts<'p> {
    /// Sorts the inputs that `give` passes into `given` in the model's order, beside those in
    /// `kept` by index, checks them against the declared types, and returns the branches that they
    /// exclude. A plain value may be passed for an input of optional type; an omitted one is an
    /// empty optional.
    pub(crate) fn sort<'a>(
        self,
        give: &mut GiveInputs<'_, 'a>,
        kept: impl Iterator<Item = (usize, Held<'a>)>,
        given: &mut HeldValues<'a>,
    ) -> Result<AllClosed<'p>, InputError> {
        given.clear();
        given.resize_with(self.ports.len(), Held::default);
        let mut sorter = Sorter { ports: self, given, kept: SmallVec::new(), turn: 0 };
        for (index, value) in kept {
            sorter.given[index] = value;
            sorter.kept.push(index);
        }
        give(&mut sorter)?;
        let mut sizes = NamedSizes::default();
        let mut is_complete = true;
        for (index, port) in self.ports.iter().enumerate() {
            let value = &mut given[index];
            if matches!(value, Held::Nothing) {
                if port.required {
                    is_complete = false;
                } else {
                    *value = absent(port.ty());
                }
                continue;
            }
            let Some(ty) = port.ty() else { continue };
            if let Type::Optional(_) = ty {
                wrap(value);
            }
            held_fits(value, ty, port, &mut sizes).map_err(|misfit| self.explain(misfit, port))?;
        }
        if is_complete { Ok(sizes.closed) } else { Err(self.make_missing_error(given)) }
    }

    /// Makes the error for an input that contradicts its declared type.
    #[cold]
    fn explain(self, Misfit { what, part }: Misfit, port: &Port) -> InputError {
        let what = format!("{part}the input '{}' {what}", port.name);
        InputError { what, hint: None, inputs: Some(self.list_inputs()) }
    }

    /// Makes the error for a run with missing inputs, and lists them all.
    #[cold]
    fn make_missing_error(self, given: &[Held<'_>]) -> InputError {
        /// Limit: missing inputs that a message lists.
        const SHOWN: usize = 5;
        let all = self.ports.iter().zip(given);
        let is_missing =
            |(port, value): &(&Port, &Held<'_>)| port.required && matches!(value, Held::Nothing);
        let missing: Vec<&str> = all.filter(is_missing).map(|(port, _)| port.name()).collect();
        let what = match missing.len() {
            1 => format!("the input '{}' is missing", missing[0]),
            n if n <= SHOWN => format!("the inputs '{}' are missing", missing.join("', '")),
            n => {
                let more = n - SHOWN;
                format!(
                    "the inputs '{}' and {more} more are missing",
                    missing[..SHOWN].join("', '")
                )
            }
        };
        InputError { what, hint: None, inputs: Some(self.list_inputs()) }
    }

    /// Makes the error for a name that no input has.
    pub(crate) fn unknown(self, name: &str) -> InputError {
        let near = closest(name, self.ports.iter().map(Port::name));
        InputError {
            what: format!("the model has no input '{name}'"),
            hint: near.map(|near| format!("did you mean '{near}'?")),
            inputs: Some(self.list_inputs()),
        }
    }

    /// Lists the required inputs of the model, one per line.
    pub(crate) fn list_inputs(self) -> String {
        /// Limit: inputs that a message lists.
        const SHOWN: usize = 12;
        let required: Vec<&Port> = self.ports.iter().filter(|port| port.is_required()).collect();
        let mut text = String::from(match required.len() {
            0 => "the model needs no inputs",
            _ => "the inputs of the model are",
        });
        for port in required.iter().take(SHOWN) {
            let _ = write!(text, "\n  {port}");
        }
        if required.len() > SHOWN {
            let _ = write!(text, "\n  and {} more", required.len() - SHOWN);
        }
        if !self.fixed.is_empty() {
            let _ = write!(text, "\nset for the session: {}", format_sizes(self.fixed));
        }
        text
    }
}

/// Wraps a value in an optional, unless it is one.
fn wrap(value: &mut Held<'_>) {
    let (inner, bytes) = match value {
        Held::Value(inner, bytes) if !matches!(inner, Value::Optional(..)) => {
            let nothing = Value::none(inner.value_type());
            (std::mem::replace(inner, nothing), *bytes)
        }
        Held::Borrowed(inner) if !matches!(inner, Value::Optional(..)) => ((*inner).clone(), 0),
        _ => return,
    };
    *value = Held::Value(Value::some(inner), bytes);
}

/// Sizes of the inputs by name.
#[derive(Default)]
struct NamedSizes<'p> {
    /// Name, size, and the first input with the name.
    known: SmallVec<[(&'p str, usize, &'p Port); 12]>,
    /// Branches excluded by contradicting sizes.
    closed: AllClosed<'p>,
}

impl<'p> NamedSizes<'p> {
    /// Records a size.
    ///
    /// # Errors
    ///
    /// Another input has a different size of this name, and one graph may read both.
    fn note(
        &mut self,
        name: &'p str,
        size: usize,
        port: &'p Port,
    ) -> Result<(), (usize, &'p Port)> {
        let mut is_known = false;
        for (_, before, by) in self.known.iter().filter(|(known, ..)| *known == name) {
            if *before == size {
                is_known |= by.only_in == port.only_in;
                continue;
            }
            let branch = match (by.only_in, port.only_in) {
                (one, other) if one == other => return Err((*before, by)),
                (Some(branch), None) | (None, Some(branch)) => branch,
                // The branches belong to one `If`, so a run takes only one of them.
                (Some(one), Some(other)) if one.step == other.step => continue,
                _ => return Err((*before, by)),
            };
            if !self.closed.iter().any(|closed| closed.branch == branch) {
                let sizes = [(*by, *before), (port, size)];
                self.closed.push(ExcludedBranch { branch, name, sizes });
            }
        }
        if !is_known {
            self.known.push((name, size, port));
        }
        Ok(())
    }
}

/// Contradiction between a value and its declared type.
struct Misfit {
    /// Fact, phrased to follow the name of the value.
    what: String,
    /// Part of the input that differs, phrased to precede the input's name: `item 2 of `.
    part: String,
}

impl Misfit {
    /// Adds an enclosing part to the place of the misfit.
    fn of_part(mut self, part: impl fmt::Display) -> Misfit {
        let _ = write!(self.part, "{part} of ");
        self
    }
}

impl From<String> for Misfit {
    fn from(what: String) -> Misfit {
        Misfit { what, part: String::new() }
    }
}

/// Compares an input with its declared type, and its sizes with those of other inputs.
fn held_fits<'p>(
    held: &Held<'_>,
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut NamedSizes<'p>,
) -> Result<(), Misfit> {
    match (held, declared) {
        (Held::Value(value, _), _) => value_fits(value, declared, port, sizes),
        (Held::Borrowed(value), _) => value_fits(value, declared, port, sizes),
        (Held::Input(view), Type::Optional(inner)) => view_fits(view, inner, port, sizes),
        (Held::Input(view), _) => view_fits(view, declared, port, sizes),
        (Held::Kept(kept), _) => tensor_fits(kept.elem, &kept.dims, declared, port, sizes),
        (Held::Nothing | Held::Output(_), _) => unreachable!("an input is a value or a view"),
    }
}

/// Compares a value with its declared type. An empty container fits any item type. Items of
/// sequences and maps have sizes of their own: a name means one size only within an item.
fn value_fits<'p>(
    value: &Value,
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut NamedSizes<'p>,
) -> Result<(), Misfit> {
    match (value, declared) {
        (Value::Tensor(tensor), _) => return view_fits(&tensor.view(), declared, port, sizes),
        // A sparse tensor may stand for a dense one.
        (Value::Sparse(sparse), Type::Tensor(_) | Type::SparseTensor(_)) => {
            let elem = sparse.values().data_type();
            tensor_fits(elem, sparse.dims(), declared, port, sizes)?;
        }
        (Value::Sequence(sequence), Type::Sequence(inner)) => {
            for (index, item) in sequence.items().iter().enumerate() {
                let fits = value_fits(item, inner, port, &mut NamedSizes::default());
                fits.map_err(|misfit| misfit.of_part(format_args!("item {index}")))?;
            }
        }
        (Value::Map(map), Type::Map(key, inner)) if map.key_type() == *key => {
            for (index, (_, value)) in map.entries().iter().enumerate() {
                let fits = value_fits(value, inner, port, &mut NamedSizes::default());
                fits.map_err(|misfit| misfit.of_part(format_args!("the value of entry {index}")))?;
            }
        }
        (Value::Optional(_, None), Type::Optional(_)) => {}
        (Value::Optional(_, Some(held)), Type::Optional(inner)) => {
            value_fits(held, inner, port, sizes)?;
        }
        (Value::Opaque(_), Type::Opaque { .. })
            if declared.value_type().as_ref() == Some(&value.value_type()) => {}
        _ => return Err(other_kind(&value.value_type(), declared)),
    }
    Ok(())
}

fn view_fits<'p>(
    view: &TensorView<'_>,
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut NamedSizes<'p>,
) -> Result<(), Misfit> {
    tensor_fits(view.data_type(), view.dims(), declared, port, sizes)
}

fn tensor_fits<'p>(
    elem: DataType,
    dims: &[usize],
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut NamedSizes<'p>,
) -> Result<(), Misfit> {
    let (Type::Tensor(wanted) | Type::SparseTensor(wanted)) = declared else {
        return Err(other_kind(&ValueType::Tensor(elem), declared));
    };
    if wanted.elem.is_some_and(|wanted| wanted != elem) {
        let what = format!("has element type {elem}, but the model expects {declared}");
        return Err(what.into());
    }
    match &wanted.shape {
        Some(shape) => Ok(dims_fit(dims, shape, declared, port, sizes)?),
        None => Ok(()),
    }
}

fn other_kind(found: &ValueType, declared: &Type) -> Misfit {
    format!("has type {found}, but the model expects {declared}").into()
}

/// Compares dimensions with the declared ones, and sizes with equal names with each other.
fn dims_fit<'p>(
    dims: &[usize],
    shape: &'p Shape,
    declared: &Type,
    port: &'p Port,
    sizes: &mut NamedSizes<'p>,
) -> Result<(), String> {
    if shape.len() != dims.len() {
        return Err(format!(
            "has {} dimensions, {dims:?}, but the model expects {}: {declared}",
            dims.len(),
            shape.len()
        ));
    }
    for (axis, wanted) in shape.iter().enumerate() {
        let size = dims[axis];
        if let Dim::Known(wanted) = wanted
            && usize::try_from(*wanted) != Ok(size)
        {
            return Err(format!(
                "has shape {dims:?}, but the model expects {declared}: dimension {axis} is \
                 {size} and should be {wanted}"
            ));
        }
        let Some(name) = wanted.as_symbol() else {
            continue;
        };
        sizes.note(name, size, port).map_err(|(before, by)| {
            let by = by.name();
            format!(
                "has shape {dims:?}, so {name} is {size}, but {name} is {before} for the input '{by}'"
            )
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use sardonyx_tensor::{DataType, Tensor};

    use super::*;

    fn port(name: &str, ty: Type) -> Port {
        Port::new(name.to_string(), Some(ty), true)
    }

    fn check<'a>(
        ports: &[Port],
        fixed: &[(String, i64)],
        inputs: &[(&str, Value)],
    ) -> Result<HeldValues<'a>, String> {
        let mut inputs = inputs.iter();
        let mut given = HeldValues::new();
        let sorted = InputPorts { ports, fixed }.sort(
            &mut |sorter| {
                inputs.try_for_each(|(name, value)| sorter.put(name, Held::Value(value.clone(), 0)))
            },
            std::iter::empty(),
            &mut given,
        );
        sorted.map(|_| given).map_err(|error| error.to_string())
    }

    #[test]
    fn what_does_not_fit_is_said_in_the_caller_s_terms() {
        let n = Dim::symbol("N");
        let ports = [
            port("image", Type::tensor(DataType::Float, [n.clone(), 3i64.into()])),
            port("mask", Type::tensor(DataType::Bool, [n])),
        ];
        let floats = |dims: &[usize]| Value::from(Tensor::zeros(DataType::Float, dims).unwrap());
        let bools = |dims: &[usize]| Value::from(Tensor::zeros(DataType::Bool, dims).unwrap());
        assert!(check(&ports, &[], &[("mask", bools(&[2])), ("image", floats(&[2, 3]))]).is_ok());
        let rows: [(&[(&str, Value)], &str); 8] = [
            (&[("imgae", floats(&[2, 3]))], "did you mean 'image'?"),
            (&[("mask", bools(&[2])), ("mask", bools(&[2]))], "the input 'mask' is given twice"),
            (&[("mask", bools(&[2]))], "'image' is missing"),
            (&[], "'image', 'mask' are missing"),
            (
                &[("image", bools(&[2, 3]))],
                "has element type bool, but the model expects float[N, 3]",
            ),
            (&[("image", floats(&[2]))], "has 1 dimensions, [2]"),
            (&[("image", floats(&[2, 4]))], "dimension 1 is 4 and should be 3"),
            (&[("image", floats(&[2, 3])), ("mask", bools(&[1]))], "N is 2 for the input 'image'"),
        ];
        let fixed = [("M".to_string(), 4)];
        for (inputs, expected) in rows {
            let error = check(&ports, &fixed, inputs).unwrap_err();
            assert!(error.contains(expected), "{error}\nlacks {expected}");
            let is_about_sizes = !expected.contains("twice");
            assert_eq!(error.contains("set for the session: M = 4"), is_about_sizes);
        }
    }

    #[test]
    fn optional_inputs_are_wrapped() {
        let ty = Type::Optional(Box::new(Type::unranked(DataType::Int64)));
        let value = Value::from(Tensor::scalar(1i64));
        let given = check(&[port("o", ty)], &[], &[("o", value)]).unwrap();
        let [Held::Value(value, _)] = &given[..] else { panic!("{given:?}") };
        assert_eq!(*value, Value::some(Tensor::scalar(1i64).into()));
    }
}
