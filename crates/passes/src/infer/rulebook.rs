//! The rules of operators, applied to one node.

use sardonyx_model::{Model, NodeAttributes, NodeId, Type};
use sardonyx_ops::{Infer, InferError, Known, OpDef, Present, Said, Schema, Subgraphs};
use smallvec::SmallVec;

use super::callees::Callee;
use super::reference::weaken;
use super::{InferOptions, RuleAnswer, Rules};

/// Operands and attributes of a node, as its rule sees them.
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

/// The result of a rule, with the kind of rule.
pub(super) struct Ruling {
    pub(super) said: Said,
    pub(super) origin: Origin,
}

/// The kind of rule that gave a result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The rule of an operator of the standard.
    Standard,
    /// A rule of [`InferOptions::rules`].
    Program,
    /// The body of a function.
    Function,
    /// None: the operator has no rule, and nothing is known but what its signature fixes.
    Nobody,
}

/// The reason why a node has no result.
pub(super) enum Unsaid {
    /// Its inputs contradict what its operator demands.
    Misfit(InferError),
    /// A rule of the program failed, which knows of it.
    Failed,
}

/// The model and the options that rules are applied with.
#[derive(Clone, Copy)]
pub(super) struct Rulebook<'a> {
    model: &'a Model,
    rules: Option<&'a dyn Rules>,
    /// Whether demands are listed.
    demands: bool,
    /// Whether differences between runtimes are listed.
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
    ) -> Result<Ruling, Unsaid> {
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
                return Ok(Ruling { said: cx.finish(), origin: Origin::Program });
            }
            Some(RuleAnswer::Failed) => return Err(Unsaid::Failed),
            Some(RuleAnswer::Misfit(fact)) => return Err(Unsaid::Misfit(InferError(fact))),
            Some(RuleAnswer::NoRule) | None => {}
        }
        let Some(rule) = callee.rule else {
            return Ok(Ruling { said: cx.finish(), origin: Origin::Nobody });
        };
        let mut said = match weaken::hidden(callee.weaker, given) {
            Some(seen) => {
                let types = seen.types();
                let mut cx = context(&types[..count_given], &seen.known[..]);
                rule(&mut cx).map_err(Unsaid::Misfit)?;
                cx.finish()
            }
            None => {
                rule(&mut cx).map_err(Unsaid::Misfit)?;
                let differs = callee.operator.and_then(OpDef::difference_rule);
                let differs = differs.filter(|_| self.differences);
                let difference = differs.and_then(|differs| differs(&cx));
                Said { difference, ..cx.finish() }
            }
        };
        weaken::weaken(callee.weaker, given, &mut said);
        Ok(Ruling { said, origin: Origin::Standard })
    }
}
