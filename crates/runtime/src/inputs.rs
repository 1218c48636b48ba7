//! Inputs and outputs of a session, and whether what a run is given fits them. This is the only
//! check of inputs; its messages are in the caller's terms.

use std::fmt::{self, Write};

use sardonyx_model::{Dim, Model, Shape, Type};
use sardonyx_proto::closest;
use sardonyx_tensor::{DataType, TensorView, Value, ValueType};
use smallvec::SmallVec;

use crate::border::{absent, type_as_run};
use crate::dims::{self, listed_sizes};
use crate::error::InputError;
use crate::memory::{Given, Held};

/// Input or output of a model: name, type, documentation, and whether a run requires it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    name: String,
    ty: Option<Type>,
    /// The branch that reads it, if nothing else does.
    only_in: Option<Branch>,
    required: bool,
    doc: String,
}

impl Port {
    /// Makes a description of an input or output without documentation.
    pub fn new(name: String, ty: Option<Type>, required: bool) -> Port {
        Port { name, ty, only_in: None, required, doc: String::new() }
    }

    /// The same for an input that only a branch reads, if one does.
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

/// A branch of an `If` in the main graph, which may be the only one to read an input.
///
/// Sizes of one name are one size, and a run that is given others is refused. But exporters make
/// one model of two by putting them into the branches of an `If`, and callers give the inputs of
/// the branch that is not taken any size, mostly 0. So what only one branch reads is held to the
/// sizes of other inputs as the branch is taken. What is known of sizes still holds: where they
/// differ, nothing has both, or the branch that does fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    /// Number of the step.
    pub(crate) step: usize,
    /// Which of its graphs.
    pub(crate) index: usize,
}

/// A branch that does not fit what a run is given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Closed<'p> {
    pub(crate) branch: Branch,
    /// A name of sizes, and two inputs with what it is for each.
    pub(crate) name: &'p str,
    pub(crate) sizes: [(&'p Port, usize); 2],
}

/// Each branch once; most runs have none.
pub(crate) type AllClosed<'p> = SmallVec<[Closed<'p>; 1]>;

impl Closed<'_> {
    /// Why the branch cannot be taken.
    pub(crate) fn reason(&self) -> String {
        let Closed { name, sizes: [(one, before), (other, size)], .. } = self;
        let (one, other) = (one.name(), other.name());
        format!(
            "the inputs do not fit the branch: {name} is {before} for the input '{one}' and {size} for '{other}'"
        )
    }
}

/// Gives inputs and outputs the types that a model declares where these are not those that run;
/// sizes that are fixed are numbers in them.
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
                port.ty = Some(dims::fix(ty, fixed));
            }
        }
    }
}

/// The port of a name. Callers mostly give values in the order of the model: `turn` is looked at
/// first.
pub(crate) fn find(ports: &[Port], turn: usize, name: &str) -> Option<usize> {
    match ports.get(turn) {
        Some(port) if port.name == name => Some(turn),
        _ => ports.iter().position(|port| port.name == name),
    }
}

/// The inputs of a session, and the sizes that it fixed when it was made.
#[derive(Clone, Copy)]
pub(crate) struct Door<'p> {
    pub(crate) ports: &'p [Port],
    pub(crate) fixed: &'p [(String, i64)],
}

impl<'p> Door<'p> {
    /// Brings inputs into the order of the model, in `given`, and checks them against what it
    /// declares; also says which branches do not fit them. A value for an input of optional type
    /// may be given without the optional around it; where none is given, the optional is empty.
    pub(crate) fn sort<'a, N: AsRef<str>>(
        self,
        inputs: impl Iterator<Item = (N, Held<'a>)>,
        given: &mut Given<'a>,
    ) -> Result<AllClosed<'p>, InputError> {
        given.clear();
        given.resize_with(self.ports.len(), Held::default);
        for (turn, (name, value)) in inputs.enumerate() {
            let name = name.as_ref();
            let index = find(self.ports, turn, name).ok_or_else(|| self.unknown(name))?;
            if !matches!(given[index], Held::Nothing) {
                return Err(InputError::new(format!("the input '{name}' is given twice")));
            }
            given[index] = value;
        }
        let mut sizes = Sizes::default();
        for (port, value) in self.ports.iter().zip(&mut *given) {
            let Some(ty) = port.ty() else { continue };
            if matches!(value, Held::Nothing) {
                continue;
            }
            if let Type::Optional(_) = ty {
                wrap(value);
            }
            let fits = held_fits(value, ty, port, &mut sizes);
            fits.map_err(|Misfit { what, part }| {
                let what = format!("{part}the input '{}' {what}", port.name);
                InputError { what, hint: None, inputs: Some(self.wanted()) }
            })?;
        }
        self.demand_all(given)?;
        for (port, value) in self.ports.iter().zip(given) {
            if matches!(value, Held::Nothing) {
                *value = absent(port.ty());
            }
        }
        Ok(sizes.closed)
    }

    /// Refuses a run without inputs that it needs, all of which the message names.
    fn demand_all(self, given: &[Held<'_>]) -> Result<(), InputError> {
        /// Limit: most elements that a message lists.
        const SHOWN: usize = 5;
        let all = self.ports.iter().zip(given);
        let is_missing =
            |(port, value): &(&Port, &Held<'_>)| port.required && matches!(value, Held::Nothing);
        let missing: Vec<&str> = all.filter(is_missing).map(|(port, _)| port.name()).collect();
        let what = match missing.len() {
            0 => return Ok(()),
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
        Err(InputError { what, hint: None, inputs: Some(self.wanted()) })
    }

    /// The error for a name that no input has.
    pub(crate) fn unknown(self, name: &str) -> InputError {
        let near = closest(name, self.ports.iter().map(Port::name));
        InputError {
            what: format!("the model has no input '{name}'"),
            hint: near.map(|near| format!("did you mean '{near}'?")),
            inputs: Some(self.wanted()),
        }
    }

    /// What the model wants, one input per line.
    pub(crate) fn wanted(self) -> String {
        /// Limit: most names that a message lists.
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
            let _ = write!(text, "\nset for the session: {}", listed_sizes(self.fixed));
        }
        text
    }
}

/// Puts a value into an optional, unless it is one.
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

/// Sizes that inputs have.
#[derive(Default)]
struct Sizes<'p> {
    /// A name, the size, and the input that had it first.
    known: SmallVec<[(&'p str, usize, &'p Port); 12]>,
    /// Branches that do not fit them.
    closed: AllClosed<'p>,
}

impl<'p> Sizes<'p> {
    /// Notes a size.
    ///
    /// # Errors
    ///
    /// Another input has another size of this name, and some graph may see both.
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
                // One run takes one of them.
                (Some(one), Some(other)) if one.step == other.step => continue,
                _ => return Err((*before, by)),
            };
            if !self.closed.iter().any(|closed| closed.branch == branch) {
                let sizes = [(*by, *before), (port, size)];
                self.closed.push(Closed { branch, name, sizes });
            }
        }
        if !is_known {
            self.known.push((name, size, port));
        }
        Ok(())
    }
}

/// What contradicts a declared type.
struct Misfit {
    /// In words that follow the name of what it is.
    what: String,
    /// Which part of the input it is, in words before the input's: `item 2 of `.
    part: String,
}

impl Misfit {
    /// The misfit of a whole that a part of it does not fit.
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

/// Compares what is given for an input with the declared type, and with sizes that other inputs
/// have.
fn held_fits<'p>(
    held: &Held<'_>,
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut Sizes<'p>,
) -> Result<(), Misfit> {
    match (held, declared) {
        (Held::Value(value, _), _) => value_fits(value, declared, port, sizes),
        (Held::Borrowed(value), _) => value_fits(value, declared, port, sizes),
        (Held::Input(view), Type::Optional(inner)) => view_fits(view, inner, port, sizes),
        (Held::Input(view), _) => view_fits(view, declared, port, sizes),
        (Held::Nothing | Held::Output(_), _) => unreachable!("an input is a value or a view"),
    }
}

/// What holds nothing fits whatever the type of what it could hold. Items of a sequence or a map
/// have sizes of their own: a name is one size within an item only.
fn value_fits<'p>(
    value: &Value,
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut Sizes<'p>,
) -> Result<(), Misfit> {
    match (value, declared) {
        (Value::Tensor(tensor), _) => return view_fits(&tensor.view(), declared, port, sizes),
        // Dense or sparse, it is the same tensor.
        (Value::Sparse(sparse), Type::Tensor(_) | Type::SparseTensor(_)) => {
            let elem = sparse.values().data_type();
            tensor_fits(elem, sparse.dims(), declared, port, sizes)?;
        }
        (Value::Sequence(sequence), Type::Sequence(inner)) => {
            for (index, item) in sequence.items().iter().enumerate() {
                let fits = value_fits(item, inner, port, &mut Sizes::default());
                fits.map_err(|misfit| misfit.of_part(format_args!("item {index}")))?;
            }
        }
        (Value::Map(map), Type::Map(key, inner)) if map.key_type() == *key => {
            for (index, (_, value)) in map.entries().iter().enumerate() {
                let fits = value_fits(value, inner, port, &mut Sizes::default());
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
    sizes: &mut Sizes<'p>,
) -> Result<(), Misfit> {
    tensor_fits(view.data_type(), view.dims(), declared, port, sizes)
}

fn tensor_fits<'p>(
    elem: DataType,
    dims: &[usize],
    declared: &'p Type,
    port: &'p Port,
    sizes: &mut Sizes<'p>,
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

/// Compares dimensions with those declared, and sizes that share a name with each other.
fn dims_fit<'p>(
    dims: &[usize],
    shape: &'p Shape,
    declared: &Type,
    port: &'p Port,
    sizes: &mut Sizes<'p>,
) -> Result<(), String> {
    if shape.len() != dims.len() {
        return Err(format!(
            "has {} dimensions, {dims:?}, but the model expects {}: {declared}",
            dims.len(),
            shape.len()
        ));
    }
    for (axis, (size, wanted)) in dims.iter().zip(shape).enumerate() {
        if let Dim::Known(wanted) = wanted
            && usize::try_from(*wanted) != Ok(*size)
        {
            return Err(format!(
                "has shape {dims:?}, but the model expects {declared}: dimension {axis} is \
                 {size} and should be {wanted}"
            ));
        }
        let Some(name) = wanted.as_symbol() else {
            continue;
        };
        sizes.note(name, *size, port).map_err(|(before, by)| {
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
    ) -> Result<Given<'a>, String> {
        let inputs = inputs.iter().map(|(name, value)| (name, Held::Value(value.clone(), 0)));
        let mut given = Given::new();
        let sorted = Door { ports, fixed }.sort(inputs, &mut given);
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
