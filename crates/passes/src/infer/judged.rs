//! Results of a node, compared with the signature of its operator.

use sardonyx_model::{NodeId, Type};
use sardonyx_ops::{RuleOutcome, Schema};
use sardonyx_tensor::shape::RANK_LIMIT;

use super::ProblemKind;
use super::callees::Callee;
use super::declarations::bound_rank;
use super::engine::{Engine, element};
use super::operands::{Bound, wrong_count};
use super::problems::MOST_LISTED;
use super::rulebook::{Given, NodeResults, Origin};

/// Results of a node, with the faults in them.
pub(super) struct Judged {
    outcome: RuleOutcome,
    /// Difference from the types of its operator.
    misfit: Option<String>,
    /// Further conditions of the reference implementation that do not hold.
    unmet: Vec<String>,
    too_deep: Vec<DeepOutput>,
}

/// Output with more dimensions than supported.
struct DeepOutput {
    index: usize,
    rank: usize,
}

impl Engine<'_> {
    /// Compares the results of a node with the signature of its operator, which also completes the
    /// types of outputs.
    pub(super) fn compare_with_operator(
        &self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
        results: NodeResults,
    ) -> Judged {
        let NodeResults { mut outcome, origin } = results;
        let ranks = outcome.types.iter_mut().enumerate();
        let too_deep = ranks
            .filter_map(|(index, ty)| Some(DeepOutput { index, rank: bound_rank(ty.as_mut()?)? }));
        let too_deep = too_deep.collect();
        let (mut misfit, mut unmet) = (None, Vec::new());
        if let Some(schema) = callee.schema {
            misfit = self.complete(node, schema, given, &mut outcome, origin);
            if self.style().is_reference() && origin == Origin::Standard {
                unmet = self.find_unmet_conditions(node, callee, given, &outcome);
            }
        }
        Judged { outcome, misfit, unmet, too_deep }
    }

    /// Completes the types of outputs by the signature. Returns the first operand that contradicts
    /// it, if operands are compared.
    fn complete(
        &self,
        node: NodeId,
        schema: &Schema,
        given: &Given<'_>,
        outcome: &mut RuleOutcome,
        origin: Origin,
    ) -> Option<String> {
        let is_compared = self.options.check_types || self.alone && self.depth == 0;
        let is_open = |ty: &Option<Type>| ty.as_ref().is_none_or(|ty| ty.elem().is_none());
        if !is_compared && !outcome.types.iter().any(is_open) {
            return None;
        }
        let (mut bound, of_inputs) = Bound::of_inputs(schema, &given.inputs);
        let is_reference = self.style().is_reference();
        if is_compared || !is_reference || origin == Origin::Standard {
            bound.complete(schema, &mut outcome.types);
        }
        if !is_compared {
            return None;
        }
        if !is_reference {
            return of_inputs;
        }
        let counts = [given.inputs.len(), self.model.outputs(node).len()];
        wrong_count(schema, counts)
            .or(of_inputs)
            .or_else(|| without_element(&given.inputs))
            .or_else(|| bound.outputs(schema, &outcome.types).err())
    }

    /// Reports what does not fit. Returns the results if they count nevertheless.
    pub(super) fn report_faults(&mut self, node: NodeId, judged: Judged) -> Option<RuleOutcome> {
        for DeepOutput { index, rank } in judged.too_deep {
            let fact =
                format!("output {index} has {rank} dimensions; at most {RANK_LIMIT} are supported");
            self.problem(node, ProblemKind::Rank, fact);
        }
        if let Some(misfit) = judged.misfit {
            self.problem(node, ProblemKind::Signature, misfit);
            if !self.style().keeps_results_of_misfits() {
                return None;
            }
        }
        for fact in judged.unmet {
            self.problem(node, ProblemKind::Node, fact);
        }
        if let Some(difference) = &judged.outcome.difference
            && self.found.differences.len() < MOST_LISTED
        {
            self.found.differences.insert(node, difference.clone());
        }
        Some(judged.outcome)
    }
}

/// Describes an input whose element type is not in the standard.
fn without_element(inputs: &[Option<&Type>]) -> Option<String> {
    let is_without = |ty: &Option<&Type>| ty.is_some_and(|ty| element(ty) == Some(None));
    let index = inputs.iter().position(is_without)?;
    Some(format!("the element type of input {index} is unknown"))
}
