//! Rules of operators, applied to one node.

use sardonyx_model::{Model, NodeAttributes, NodeId, Type};
use sardonyx_ops::{Infer, InferError, Known, OpDef, Present, RuleOutcome, Schema, Subgraphs};
use smallvec::SmallVec;

use super::callees::Callee;
use super::reference::weaken;
use super::{InferOptions, RuleAnswer, Rules};

/// Inputs and attributes of a node.
pub(super) struct Given<'g> {
    pub(super) inputs: SmallVec<[Option<&'g Type>; 6]>,
    pub(super) known: SmallVec<[Option<&'g Known>; 6]>,
    pub(super) present: &'g [bool],
    pub(super) attributes: &'g NodeAttributes<'g>,
}

impl<'g> Given<'g> {
    pub(super) fn new(present: &'g [bool], attributes: &'g NodeAttributes<'g>) -> Self {
        Given { inputs: SmallVec::new(), known: SmallVec::new(), present, attributes }
    }
}

/// Results of inference for a node.
pub(super) struct NodeResults {
    pub(super) outcome: RuleOutcome,
    pub(super) origin: Origin,
}

/// Source of the results of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Rule of an operator of the standard.
    Standard,
    /// Rule of [`InferOptions::rules`].
    Program,
    /// Body of a function.
    Function,
    /// None: the operator has no rule, and only its signature restricts the results.
    NoRule,
}

/// Reason why a node has no results.
pub(super) enum NoResult {
    /// The inputs contradict the conditions of the operator.
    Misfit(InferError),
    /// A rule of the program failed, which reports it.
    Failed,
}

/// Context for applying the rules of operators.
#[derive(Clone, Copy)]
pub(super) struct Rulebook<'a> {
    model: &'a Model,
    rules: Option<&'a dyn Rules>,
    /// Whether conditions on sizes are recorded.
    demands: bool,
    /// Whether differences between runtimes are recorded.
    differences: bool,
}

impl<'a> Rulebook<'a> {
    pub(super) fn new(model: &'a Model, options: &InferOptions<'a>) -> Self {
        Rulebook {
            model,
            rules: options.rules,
            demands: options.sizes.is_some(),
            differences: options.differences,
        }
    }

    /// Applies the rule of the program to a node, or else that of its operator.
    pub(super) fn apply(
        self,
        node: NodeId,
        schema: &Schema,
        callee: &Callee<'_>,
        given: &Given<'_>,
        inside: Option<&dyn Subgraphs>,
    ) -> Result<NodeResults, NoResult> {
        let last = given.present.iter().rposition(|present| *present);
        let count_given = last.map_or(0, |last| last + 1);
        let outputs = self.model.outputs(node);
        let present: SmallVec<[bool; 4]> = outputs.iter().map(Option::is_some).collect();
        let count = outputs.len();
        let context = |inputs, known| {
            let cx = Infer::new(schema, given.attributes, inputs, known, count)
                .with_present(Present { inputs: given.present, outputs: &present })
                .with_demands(self.demands);
            match inside {
                Some(inside) => cx.with_subgraphs(inside),
                None => cx,
            }
        };
        let mut cx = context(&given.inputs[..count_given], &given.known[..]);
        match self.rules.map(|rules| rules.infer(self.model, node, schema, &mut cx)) {
            Some(RuleAnswer::Inferred) => {
                return Ok(NodeResults { outcome: cx.finish(), origin: Origin::Program });
            }
            Some(RuleAnswer::Failed) => return Err(NoResult::Failed),
            Some(RuleAnswer::Misfit(fact)) => return Err(NoResult::Misfit(InferError(fact))),
            Some(RuleAnswer::NoRule) | None => {}
        }
        let Some(rule) = callee.rule else {
            return Ok(NodeResults { outcome: cx.finish(), origin: Origin::NoRule });
        };
        let mut outcome = match weaken::hide_inputs(callee.weaker, given) {
            Some(seen) => {
                let types = seen.types();
                let mut cx = context(&types[..count_given], &seen.known[..]);
                rule(&mut cx).map_err(NoResult::Misfit)?;
                cx.finish()
            }
            None => {
                rule(&mut cx).map_err(NoResult::Misfit)?;
                let differs = callee.operator.and_then(OpDef::difference_rule);
                let differs = differs.filter(|_| self.differences);
                let difference = differs.and_then(|differs| differs(&cx));
                RuleOutcome { difference, ..cx.finish() }
            }
        };
        weaken::weaken(callee.weaker, given, &mut outcome);
        Ok(NodeResults { outcome, origin: Origin::Standard })
    }
}
