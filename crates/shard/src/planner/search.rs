//! Splits of products and tables to try in a search for annotations.

use sardonyx_model::{Dim, NodeId, ValueId};
use sardonyx_ops::operators::{GATHER, GEMM, MATMUL};
use sardonyx_ops::{Cut, Factors};

use super::{Locations, Planner};
use crate::form::{Split, SplitAxis};
use crate::plan::FormId;
use crate::prepare::Prepared;
use crate::typed::TypedModel;

/// Minimum number of elements of a matrix that is split: a smaller one is not worth a message.
const SMALLEST_MATRIX: usize = 1 << 12;

/// Minimum number of elements of a table that is split: a smaller one is not worth a sum over all
/// devices.
const SMALLEST_TABLE: usize = 1 << 20;

/// Maximum number of values that are visited to find the readers of a product's columns.
const FAR: usize = 32;

/// Large constant operands of a model.
#[derive(Clone, Copy)]
pub(crate) struct LargeConstants<'a> {
    pub(crate) prepared: &'a Prepared,
    pub(crate) typed: &'a TypedModel,
    pub(crate) locations: &'a Locations,
}

impl LargeConstants<'_> {
    /// Returns the right operand of a product, if it is a large constant matrix, and its sizes.
    pub(crate) fn matrix(&self, node: NodeId) -> Option<(ValueId, [usize; 2])> {
        let resolved = &self.prepared.resolved;
        let is_product = resolved.is(node, &MATMUL) || resolved.is(node, &GEMM);
        let value = self.typed.model.inputs(node).nth(1).flatten().filter(|_| is_product)?;
        let is_constant = self.typed.is_constant(value) || self.locations.is_from_constants(value);
        let (_, dims) = self.typed.tensor(value)?;
        let [rows, columns] = dims?.iter().map(Dim::size).collect::<Option<Vec<_>>>()?[..] else {
            return None;
        };
        (is_constant && rows * columns >= SMALLEST_MATRIX).then_some((value, [rows, columns]))
    }

    /// Returns the constant table that a node gathers rows from, if it is large, and the number of
    /// its rows.
    pub(crate) fn table(&self, node: NodeId) -> Option<(ValueId, usize)> {
        let value = self.typed.model.inputs(node).next().flatten()?;
        let is_large = self.typed.elements(value) >= SMALLEST_TABLE as u64;
        let is_lookup = self.prepared.resolved.is(node, &GATHER);
        if !is_lookup || !self.typed.is_constant(value) || !is_large {
            return None;
        }
        let (_, dims) = self.typed.tensor(value)?;
        Some((value, dims?.first()?.size()?))
    }
}

impl Planner<'_> {
    fn large_constants(&self) -> LargeConstants<'_> {
        let Planner { prepared, typed, locations, .. } = self;
        LargeConstants { prepared, typed, locations }
    }

    /// Returns the form that splits the table of a lookup by rows, if the table is large.
    pub(super) fn rows_of(&mut self, node: NodeId) -> Option<FormId> {
        let (value, rows) = self.large_constants().table(node)?;
        let parts = self.prepared.devices;
        let rank = self.typed.tensor(value)?.1?.len();
        let rule = self.rule(node)?;
        let is_summed = |factor: &usize| matches!(rule.factors[*factor].cut, Cut::Combined(_));
        if rows < parts || parts < 2 || !rule.inputs.first()?.first()?.iter().any(is_summed) {
            return None;
        }
        let mut axes = vec![SplitAxis::new(); rank];
        axes[0].push(Split { size: rows, parts });
        Some(self.forms.one_part_each(axes))
    }

    /// Returns the form that splits the constant matrix of a product by columns, and records the
    /// product. `None` if the product is declined or its left operand is split.
    pub(super) fn columns_of(&mut self, node: NodeId) -> Option<FormId> {
        let is_open = self.requests.search.as_ref().is_some_and(|own| !own.is_declined(node));
        let (_, dims) = self.large_constants().matrix(node).filter(|_| is_open)?;
        let left = self.typed.model.inputs(node).next().flatten()?;
        let form = self.current(left);
        if !self.forms.get(form).is_whole() {
            return None;
        }
        let rule = self.rule(node)?;
        let last = rule.outputs.first()?.last()?;
        let axis = rule.inputs[1].iter().position(|axis| axis == last)?;
        let parts = self.prepared.devices;
        if dims[axis] < parts || parts < 2 {
            return None;
        }
        let mut axes = vec![SplitAxis::new(); 2];
        axes[axis] = self.split_of_columns(node, dims[axis])?;
        let form = self.forms.one_part_each(axes);
        self.requests.search.as_mut()?.choose(node);
        Some(form)
    }

    /// Returns a split of the columns of a product whose parts later nodes can use. If the columns
    /// are queries, keys and values, each of the three is split. If they are heads, each device has
    /// whole heads. `None` if there are fewer columns or heads than devices.
    fn split_of_columns(&self, product: NodeId, size: usize) -> Option<SplitAxis> {
        let parts = self.prepared.devices;
        let model = &self.typed.model;
        let last =
            |value: ValueId| Some((value, self.typed.tensor(value)?.1?.len().checked_sub(1)?));
        let output = model.outputs(product).first().copied().flatten();
        let mut split = SplitAxis::new();
        let mut size = size;
        let mut open: Vec<(ValueId, usize)> = output.and_then(last).into_iter().collect();
        let mut at = 0;
        while let Some((value, axis)) = open.get(at).copied().filter(|_| at < FAR) {
            at += 1;
            for (reader, index) in model.uses(value) {
                let Some(rule) = self.rule(reader) else { continue };
                let inner = match ColumnUse::read(&rule, index, axis) {
                    ColumnUse::Groups { groups, size: inner, factor } if split.is_empty() => {
                        split.push(Split { size: groups, parts: 1 });
                        size = inner;
                        // All other readers separate the groups as well, or need them whole.
                        open.truncate(at);
                        factor
                    }
                    ColumnUse::Heads(heads) => {
                        let heads = heads.filter(|heads| *heads >= parts)?;
                        split.push(Split { size: heads, parts });
                        split.push(Split { size: size / heads, parts: 1 });
                        return Some(split);
                    }
                    ColumnUse::Kept(factor) => factor,
                    ColumnUse::Groups { .. } | ColumnUse::Other => continue,
                };
                let outputs = model.outputs(reader).iter().zip(&rule.outputs);
                open.extend(outputs.filter_map(|(output, axes)| {
                    let to = axes.iter().position(|axes| axes[..] == [inner]);
                    Some(((*output)?, to?))
                }));
            }
        }
        split.push(Split { size, parts });
        (size >= parts).then_some(split)
    }
}

/// Use of the columns of a product by a later node.
enum ColumnUse {
    /// Groups that are not split, such as queries, keys and values, with the size and the factor of
    /// each.
    Groups { groups: usize, size: usize, factor: usize },
    /// Heads, with their number if it is known.
    Heads(Option<usize>),
    /// Columns, which are this factor of the node.
    Kept(usize),
    /// Columns that the node needs whole, or reads in another way.
    Other,
}

impl ColumnUse {
    /// Returns how a node reads an axis of an input.
    fn read(rule: &Factors, input: usize, axis: usize) -> ColumnUse {
        let is_cut = |factor: usize| rule.factors[factor].cut == Cut::Parts;
        let number = |factor: usize| rule.factors[factor].size.size();
        let axes = rule.inputs.get(input).and_then(|axes| axes.get(axis));
        match axes.map_or(&[][..], |axes| &axes[..]) {
            [outer, inner] if !is_cut(*outer) && is_cut(*inner) => {
                match (number(*outer), number(*inner)) {
                    (Some(groups), Some(size)) => {
                        ColumnUse::Groups { groups, size, factor: *inner }
                    }
                    _ => ColumnUse::Other,
                }
            }
            [heads, _, ..] if is_cut(*heads) => ColumnUse::Heads(number(*heads)),
            [factor] if is_cut(*factor) => ColumnUse::Kept(*factor),
            _ => ColumnUse::Other,
        }
    }
}
