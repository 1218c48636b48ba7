//! Annotations that split products by columns and rows, and tables by rows.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use sardonyx_model::{NodeId, ValueId};
use sardonyx_passes::{FactorSize, ShardedDim, ShardingSpec, SimpleShardedDim};

use super::{Annotations, Columns, ShardReport};
use crate::form::{Device, Form, Place};
use crate::plan::{Computed, FormId, Plan, Step};
use crate::planner::{LargeConstants, Planned, Planner};
use crate::prepare::Prepared;

/// Minimum number of multiply-adds per element of a product for which the element takes longer to
/// compute than to send.
const WORTH_SENDING: usize = 256;

impl Annotations<'_> {
    /// Annotates products and tables with splits for which devices send little. Plans with more and
    /// more products whole, until none is left that should be.
    pub(super) fn split_products(&mut self, prepared: &Prepared) -> ShardReport {
        let mut declined: HashSet<NodeId> = HashSet::new();
        loop {
            let planned = Planner::new(prepared).searching(Columns::new(&declined)).plan();
            let found = Found::new(&planned, prepared);
            let bad = found.gathered();
            if bad.iter().all(|node| declined.contains(node)) {
                return self.annotate_products(&found);
            }
            declined.extend(bad);
        }
    }

    /// Annotates products and tables with their splits in the plan, and counts them.
    fn annotate_products(&mut self, found: &Found<'_>) -> ShardReport {
        let mut report = ShardReport::default();
        let plan = found.plan;
        for step in plan.steps() {
            let Step::Node(computed) = step else { continue };
            let form = |input: usize| {
                let form = computed.inputs.get(input).copied().flatten();
                form.map(|form| plan.form(form)).filter(|form| !form.is_whole())
            };
            let constants = found.constants;
            let (value, dims, form) = if let Some((value, dims)) = constants.matrix(computed.node) {
                let Some(form) = form(1) else {
                    report.whole += 1;
                    continue;
                };
                let is_summed = found.is_summed(computed);
                *if is_summed { &mut report.rows } else { &mut report.columns } += 1;
                (value, dims.to_vec(), form)
            } else if let (Some((value, rows)), Some(form)) =
                (constants.table(computed.node), form(0))
            {
                report.tables += 1;
                (value, vec![rows], form)
            } else {
                continue;
            };
            let tensor = plan.model().text(plan.model().value(value).name);
            self.annotate(computed.node, vec![spec_of(form, tensor, &dims)], None);
        }
        report
    }
}

/// Plan of a search for annotations.
struct Found<'a> {
    plan: &'a Plan,
    columns: Option<&'a Columns>,
    constants: LargeConstants<'a>,
}

impl<'a> Found<'a> {
    fn new(planned: &'a Planned, prepared: &'a Prepared) -> Found<'a> {
        let Planned { plan, locations, columns, .. } = planned;
        let constants = LargeConstants { prepared, typed: &plan.typed, locations };
        Found { plan, columns: columns.as_ref(), constants }
    }

    /// Returns the products that should not be split.
    ///
    /// Devices would have to send each other all parts of their results. Parts that are sent only
    /// because the value is an output of the model do not count if nodes also read them, such as
    /// keys and values of attention, or if computing the product on one device takes longer than
    /// sending its result. The split is not worth it either if a later product has partial results
    /// that are larger than its left operand.
    fn gathered(&self) -> BTreeSet<NodeId> {
        let mut found = BTreeSet::new();
        let Some(columns) = self.columns else { return found };
        let plan = self.plan;
        let mut read: HashSet<(ValueId, FormId)> = HashSet::new();
        for step in plan.steps() {
            let Step::Node(computed) = step else { continue };
            if let Some(left) = self.has_less_to_read(computed) {
                found.extend(columns.products_of(left));
            }
            let inputs = plan.model().inputs(computed.node).zip(&computed.inputs);
            read.extend(inputs.filter_map(|(value, form)| Some((value?, (*form)?))));
            read.extend(computed.captured.iter().copied());
        }
        for step in plan.steps() {
            let Step::Move(moved) = step else { continue };
            let from = plan.form(moved.from);
            let is_gather = !from.is_whole() && from.partial().is_none();
            let is_long = |product: NodeId| {
                let matrix = self.constants.matrix(product);
                matrix.is_some_and(|(_, [rows, columns])| rows.min(columns) >= WORTH_SENDING)
            };
            let is_given_alone = plan.model().value(moved.value).is_output
                && (read.contains(&(moved.value, moved.from))
                    || columns.products_of(moved.value).all(is_long))
                && !read.contains(&(moved.value, moved.form));
            if is_gather && !is_given_alone && !plan.is_local(moved) {
                found.extend(columns.products_of(moved.value));
            }
        }
        found
    }

    /// Whether devices compute partial results of a node.
    fn is_summed(&self, computed: &Computed) -> bool {
        let mut forms = computed.outputs.iter().flatten();
        forms.any(|form| self.plan.form(*form).partial().is_some())
    }

    /// Returns the left operand of a product with a constant matrix, if devices compute partial
    /// results that are larger than the operand.
    fn has_less_to_read(&self, computed: &Computed) -> Option<ValueId> {
        self.constants.matrix(computed.node).filter(|_| self.is_summed(computed))?;
        let left = self.plan.model().inputs(computed.node).next().flatten()?;
        let output = self.plan.model().outputs(computed.node).first().copied().flatten()?;
        let bits = |value| self.plan.typed.bits(value);
        (bits(output) > bits(left)).then_some(left)
    }
}

/// Returns the specification of a tensor in this form, in which each part is on one device.
fn spec_of<'t>(form: &Form, tensor: &'t [u8], dims: &[usize]) -> ShardingSpec<'t> {
    let mut spec = ShardingSpec { tensor, ..ShardingSpec::default() };
    for (axis, factors) in form.axes().iter().enumerate() {
        if factors.is_empty() {
            continue;
        }
        let is_plain = factors.len() == 1 && factors[0].size == dims[axis];
        let factors = factors.iter().map(|split| SimpleShardedDim {
            size: (!is_plain)
                .then(|| i64::try_from(split.size).map(FactorSize::Value).ok())
                .flatten(),
            num_shards: i64::try_from(split.parts).ok(),
        });
        spec.dims.push(ShardedDim { axis: i64::try_from(axis).ok(), factors: factors.collect() });
    }
    // Shards are numbered in the order of the places.
    let mut shards: Vec<(&Place, Device)> =
        form.places().iter().map(|(device, place)| (place, *device)).collect();
    shards.sort_unstable();
    spec.devices = shards.iter().map(|(_, device)| i64::from(*device)).collect();
    spec
}
