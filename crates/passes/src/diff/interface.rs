//! Differences between the inputs and outputs of two graphs, and their meaning for callers.
//!
//! A caller of the first model can call the second one if that accepts every value that the first
//! accepted, and returns only values that the first could give. A type covers another one if it
//! allows all values of it: unknown sizes cover all sizes, and a name covers any size as long as it
//! stands for the same one wherever it occurs.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    Dim, Model, Shape, ShapeProto, Symbol, TensorType, Type, TypeKind, TypeProto, ValueInfo,
};
use sardonyx_text::value_excerpt;

use super::GraphPair;
use super::matching::Matching;
use super::queues::Queues;
use super::side::Side;
use super::versions::Impact;

/// A changed input or output.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortChange {
    /// Input or output.
    pub kind: PortKind,
    /// Its name.
    pub name: String,
    /// Type and name in the first model, such as `float[N, 3] x`, if it has one.
    pub before: Option<String>,
    /// Type and name in the second model, if it has one.
    pub after: Option<String>,
    /// Part of the version that the change asks to raise.
    pub impact: Impact,
    /// Meaning of the change for a caller.
    pub meaning: &'static str,
}

/// Input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PortKind {
    /// An input.
    Input,
    /// An output.
    Output,
}

impl PortKind {
    /// Returns `input` or `output`.
    pub fn name(self) -> &'static str {
        match self {
            PortKind::Input => "input",
            PortKind::Output => "output",
        }
    }
}

/// Sizes of one model for which names of the other one stand.
type Names = HashMap<Dim, Dim>;

impl Matching<'_, '_> {
    /// Compares the inputs and outputs: by name those of the main graph, else by position.
    pub(super) fn compare_ports(&self, graphs: GraphPair) -> Vec<PortChange> {
        let (old, new) = (self.before, self.after);
        let (before, after) = (old.model.graph(graphs.before), new.model.graph(graphs.after));
        let by_name = new.model.main.is_some_and(|main| std::ptr::eq(new.model.graph(main), after));
        let defaults: HashSet<usize> = {
            let dense = after.initializers.iter().map(|found| found.value);
            let sparse = after.sparse_initializers.iter().map(|found| found.value);
            dense.chain(sparse).flatten().filter_map(|value| new.name(value)).collect()
        };
        let mut sizes = Sizes::default();
        let mut changes = Vec::new();
        for (kind, before, after) in [
            (PortKind::Input, &before.inputs, &after.inputs),
            (PortKind::Output, &before.outputs, &after.outputs),
        ] {
            let pairs = if by_name {
                pair_by_name(old, before, new, after)
            } else {
                (0..before.len().min(after.len())).map(|index| (index, index)).collect()
            };
            let partners: HashMap<usize, usize> =
                pairs.iter().map(|(before, after)| (*after, *before)).collect();
            let moved = find_moved(&pairs);
            for (index, info) in after.iter().enumerate() {
                let port = Port { kind, before: None, after: Some((new, info)) };
                let Some(partner) = partners.get(&index) else {
                    changes.push(match kind {
                        PortKind::Output => port.change(Impact::Minor, "new output"),
                        _ if new.number(info.name).is_some_and(|name| defaults.contains(&name)) => {
                            port.change(Impact::Minor, "new input with a default")
                        }
                        _ if is_optional(info) => port.change(Impact::Minor, "new optional input"),
                        _ => port.change(Impact::Major, "new input without a default"),
                    });
                    continue;
                };
                let partner = &before[*partner];
                let port = Port { before: Some((old, partner)), ..port };
                let found = port.compare(&mut sizes);
                let is_moved = moved.contains(&index);
                let found = match found {
                    Some((Impact::None | Impact::Minor, _)) | None if is_moved => {
                        Some((Impact::Major, "another position"))
                    }
                    found => found,
                };
                changes.extend(found.map(|(impact, meaning)| port.change(impact, meaning)));
            }
            let kept: HashSet<usize> = pairs.iter().map(|(before, _)| *before).collect();
            let gone = before.iter().enumerate().filter(|(index, _)| !kept.contains(index));
            for (_, info) in gone {
                let port = Port { kind, before: Some((old, info)), after: None };
                changes.push(port.change(Impact::Major, "removed"));
            }
        }
        changes
    }
}

fn pair_by_name(
    old: &Side<'_>,
    before: &[ValueInfo],
    new: &Side<'_>,
    after: &[ValueInfo],
) -> Vec<(usize, usize)> {
    let mut names = Queues::with_capacity(before.len());
    for (index, info) in before.iter().enumerate() {
        names.add(old.number(info.name), index);
    }
    let after = after.iter().enumerate();
    let pair =
        |(index, info): (usize, &ValueInfo)| Some((names.take(&new.number(info.name))?, index));
    after.filter_map(pair).collect()
}

/// Finds elements of the second list whose partners are not in ascending order with the others.
fn find_moved(pairs: &[(usize, usize)]) -> HashSet<usize> {
    let mut sorted: Vec<usize> = pairs.iter().map(|(before, _)| *before).collect();
    sorted.sort_unstable();
    let wrong = pairs.iter().zip(sorted).filter(|((before, _), sorted)| before != sorted);
    wrong.map(|((_, after), _)| *after).collect()
}

fn is_optional(info: &ValueInfo) -> bool {
    let kind = info.ty.as_ref().and_then(|ty| ty.kind.as_ref());
    matches!(kind, Some(TypeKind::Optional { .. }))
}

/// An input or output of one or both graphs.
#[derive(Clone, Copy)]
struct Port<'s, 'm> {
    kind: PortKind,
    before: Option<(&'s Side<'m>, &'s ValueInfo)>,
    after: Option<(&'s Side<'m>, &'s ValueInfo)>,
}

/// Sizes for which the names of the other model stand, over all inputs and outputs.
#[derive(Default)]
struct Sizes {
    /// Sizes of the first model, by names of the second one.
    in_before: Names,
    /// Sizes of the second model, by names of the first one.
    in_after: Names,
}

impl Port<'_, '_> {
    fn change(&self, impact: Impact, meaning: &'static str) -> PortChange {
        let line = |port: Option<(&Side<'_>, &ValueInfo)>| {
            port.map(|(side, info)| value_excerpt(side.model, info).line)
        };
        let named = self.after.or(self.before);
        let name = named.map(|(side, info)| {
            sardonyx_proto::shown(side.model.maybe_text(info.name).unwrap_or_default())
        });
        PortChange {
            kind: self.kind,
            name: name.unwrap_or_default(),
            before: line(self.before),
            after: line(self.after),
            impact,
            meaning,
        }
    }

    /// Compares the types that both graphs declare, and their meanings.
    fn compare(&self, sizes: &mut Sizes) -> Option<(Impact, &'static str)> {
        let ((old, before), (new, after)) = (self.before?, self.after?);
        let types = (old.type_bytes(before.ty.as_ref()), new.type_bytes(after.ty.as_ref()));
        let type_of = |model: &Model, info: &ValueInfo| {
            info.ty.as_ref().map(|ty| model.type_of(ty)).unwrap_or_default()
        };
        let read = (type_of(old.model, before), type_of(new.model, after));
        // Equal types too, so that all names are known.
        let in_after = covers(read.0.as_ref(), read.1.as_ref(), &mut sizes.in_after);
        let in_before = covers(read.1.as_ref(), read.0.as_ref(), &mut sizes.in_before);
        let documentation = |side: &Side<'_>, info: &ValueInfo| {
            let doc = side.model.maybe_text(info.doc_string).filter(|doc| !doc.is_empty());
            let unknown: Vec<Vec<u8>> =
                side.records(info.unknown.records()).into_iter().map(<[u8]>::to_vec).collect();
            (doc.map(<[u8]>::to_vec), side.entries(&info.metadata_props), unknown)
        };
        if types.0 == types.1 && in_after == in_before {
            let is_same = documentation(old, before) == documentation(new, after)
                && old.number(before.name) == new.number(after.name);
            return (!is_same).then_some((Impact::None, "other documentation, metadata or name"));
        }
        let meanings = |side: &Side<'_>, info: &ValueInfo| -> Vec<Option<usize>> {
            info.ty.as_ref().map(|ty| list_denotations(side, ty)).unwrap_or_default()
        };
        let meanings = (meanings(old, before), meanings(new, after));
        let mut both = meanings.0.iter().zip(&meanings.1);
        if both.any(|(before, after)| before.is_some() && after.is_some() && before != after) {
            return Some((Impact::Major, "another denotation"));
        }
        let (fits, only) = match self.kind {
            PortKind::Input => (in_before, "accepts more values"),
            PortKind::Output => (in_after, "gives fewer values"),
        };
        Some(match (in_before && in_after, fits) {
            (true, _) => (Impact::None, "other names of sizes, or other denotations"),
            (_, true) => (Impact::Minor, only),
            _ if self.kind == PortKind::Input => {
                (Impact::Major, "no longer accepts all values that it accepted")
            }
            _ => (Impact::Major, "may give values that it did not give"),
        })
    }
}

/// Lists the denotations of a type and its axes.
fn list_denotations(side: &Side<'_>, ty: &TypeProto) -> Vec<Option<usize>> {
    let number = |symbol: Option<Symbol>| side.number(symbol);
    let shape = |shape: Option<&ShapeProto>| -> Vec<Option<usize>> {
        let dims = shape.into_iter().flat_map(|shape| &shape.dims);
        dims.map(|dim| number(dim.denotation)).collect()
    };
    let mut found = vec![number(ty.denotation)];
    found.extend(shape(ty.innermost_shape()));
    found
}

/// Whether a type allows every value of another one.
fn covers(wide: Option<&Type>, narrow: Option<&Type>, names: &mut Names) -> bool {
    let (Some(wide), Some(narrow)) = (wide, narrow) else { return wide.is_none() };
    match (wide, narrow) {
        (Type::Tensor(wide), Type::Tensor(narrow))
        | (Type::SparseTensor(wide), Type::SparseTensor(narrow)) => {
            covers_tensor(wide, narrow, names)
        }
        (Type::Sequence(wide), Type::Sequence(narrow))
        | (Type::Optional(wide), Type::Optional(narrow)) => covers(Some(wide), Some(narrow), names),
        (Type::Map(key, wide), Type::Map(other, narrow)) => {
            key == other && covers(Some(wide), Some(narrow), names)
        }
        (wide, narrow) => wide == narrow,
    }
}

fn covers_tensor(wide: &TensorType, narrow: &TensorType, names: &mut Names) -> bool {
    let elem = wide.elem.is_none() || wide.elem == narrow.elem;
    let shape = match (&wide.shape, &narrow.shape) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => covers_shape(wide, narrow, names),
    };
    elem && shape
}

fn covers_shape(wide: &Shape, narrow: &Shape, names: &mut Names) -> bool {
    if wide.len() != narrow.len() {
        return false;
    }
    // Looks at all sizes, so that all names are known.
    let covered: Vec<bool> = wide
        .iter()
        .zip(narrow)
        .map(|(wide, narrow)| match wide {
            Dim::Unknown => true,
            Dim::Known(_) => wide == narrow,
            // A size that is unknown is another one wherever it occurs.
            Dim::Expr(_) => match names.get(wide) {
                Some(known) => known == narrow && *narrow != Dim::Unknown,
                None => {
                    names.insert(wide.clone(), narrow.clone());
                    true
                }
            },
        })
        .collect();
    covered.into_iter().all(|covered| covered)
}
