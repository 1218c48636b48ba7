//! The result of a node's rule, compared with the signature of its operator.

use sardonyx_model::{NodeId, Type};
use sardonyx_ops::{Said, Schema};
use sardonyx_tensor::shape::RANK_LIMIT;

use super::ProblemKind;
use super::callees::Callee;
use super::declarations::bound_rank;
use super::engine::{Engine, element};
use super::operands::{Bound, wrong_count};
use super::problems::MOST_LISTED;
use super::rulebook::{Given, Origin, Ruling};

/// The result of a rule, and everything about the node that does not fit.
pub(super) struct Judged {
    said: Said,
    /// The first operand that is not what the operator takes or makes.
    misfit: Option<String>,
    /// Demands of the reference implementation beyond the signature that are not met.
    unmet: Vec<String>,
    too_deep: Vec<DeepOutput>,
}

/// An output of more dimensions than a tensor can have.
struct DeepOutput {
    index: usize,
    rank: usize,
}

impl Engine<'_> {
    /// Compares the result of a node's rule with the signature of its operator, which completes it
    /// where the rule left the type of an output open.
    pub(super) fn judged(
        &self,
        node: NodeId,
        callee: &Callee<'_>,
        given: &Given<'_>,
        ruling: Ruling,
    ) -> Judged {
        let Ruling { mut said, origin } = ruling;
        let ranks = said.types.iter_mut().enumerate();
        let too_deep = ranks
            .filter_map(|(index, ty)| Some(DeepOutput { index, rank: bound_rank(ty.as_mut()?)? }));
        let too_deep = too_deep.collect();
        let (mut misfit, mut unmet) = (None, Vec::new());
        if let Some(schema) = callee.schema {
            misfit = self.complete(node, schema, given, &mut said, origin);
            if self.style().is_reference() && origin == Origin::Standard {
                unmet = self.unmet(node, callee, given, &said);
            }
        }
        Judged { said, misfit, unmet, too_deep }
    }

    /// Fills in the types of outputs that the signature fixes. Gives the first operand that
    /// contradicts it, if operands are compared.
    fn complete(
        &self,
        node: NodeId,
        schema: &Schema,
        given: &Given<'_>,
        said: &mut Said,
        origin: Origin,
    ) -> Option<String> {
        let is_compared = self.options.check_types || self.alone && self.depth == 0;
        let is_open = |ty: &Option<Type>| ty.as_ref().is_none_or(|ty| ty.elem().is_none());
        if !is_compared && !said.types.iter().any(is_open) {
            return None;
        }
        let (mut bound, of_inputs) = Bound::of_inputs(schema, &given.inputs);
        let is_reference = self.style().is_reference();
        if is_compared || !is_reference || origin == Origin::Standard {
            bound.complete(schema, &mut said.types);
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
            .or_else(|| bound.outputs(schema, &said.types).err())
    }

    /// Writes down what does not fit; gives the result if it counts all the same.
    pub(super) fn accept(&mut self, node: NodeId, judged: Judged) -> Option<Said> {
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
        if let Some(difference) = &judged.said.difference
            && self.found.differences.len() < MOST_LISTED
        {
            self.found.differences.insert(node, difference.clone());
        }
        Some(judged.said)
    }
}

/// The first input that is a tensor of elements that the standard does not define.
fn without_element(inputs: &[Option<&Type>]) -> Option<String> {
    let is_without = |ty: &Option<&Type>| ty.is_some_and(|ty| element(ty) == Some(None));
    let index = inputs.iter().position(is_without)?;
    Some(format!("the element type of input {index} is unknown"))
}
