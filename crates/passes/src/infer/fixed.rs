//! Open sizes of a model for which its nodes allow only one number.

use std::collections::BTreeSet;

use sardonyx_model::{Dim, Model, NodeId, ValueId};
use sardonyx_proto::shown;

use super::{Equality, Inference};
use crate::codes;
use crate::finding::{Code, Findings, Severity, Spot};

/// Maximum number of integers of an input that are shown.
const MOST_SHOWN: usize = 16;

/// Named size that can only be one number.
struct FixedSize<'a> {
    name: &'a str,
    size: i64,
    /// First input of the model that has the size.
    input: &'a str,
}

impl Inference {
    /// Adds a finding for each named size of an input of the model that a node restricts to one
    /// number.
    pub fn fixed_sizes(
        &self,
        model: &Model,
        found: &mut Findings,
        level: impl Fn(&'static Code) -> Option<Severity>,
    ) {
        let code = &codes::FIXED_SIZE;
        let Some(severity) = level(code) else { return };
        let declared = sizes_of_inputs(model);
        let mut told = BTreeSet::new();
        for equality in self.equalities() {
            // A node of a branch or of a function may not run.
            let outputs = model.outputs(equality.node).iter().flatten();
            let mut graphs = outputs.map(|value| model.value(*value).graph);
            if graphs.next() != model.main {
                continue;
            }
            let Some((name, size)) = only_number(equality) else { continue };
            let Some((_, input)) = declared.iter().find(|(known, _)| *known == name) else {
                continue;
            };
            if !told.insert(name.clone()) {
                continue;
            }
            found.add(model, code, severity, Spot::node(equality.node), || {
                let (fact, advice) =
                    self.describe_fixed(model, equality, &FixedSize { name: &name, size, input });
                (fact, advice.into())
            });
        }
    }

    /// Describes the restriction of a size, with advice.
    fn describe_fixed(
        &self,
        model: &Model,
        equality: &Equality,
        fixed: &FixedSize<'_>,
    ) -> (String, String) {
        let FixedSize { name, size, input } = *fixed;
        let (left, right) = (&equality.left, &equality.right);
        let mut fact = format!("the size {name} of input '{input}' can only be {size}");
        if left.as_symbol() != Some(name) && right.as_symbol() != Some(name) {
            fact += &format!(", as the node requires {left} = {right}");
        }
        let declare = format!("declare {name} as {size}");
        let Some((value, numbers)) = self.constant_integers(model, equality.node) else {
            return (fact, format!("{declare}, or change what the node reads"));
        };
        let holder = shown(model.text(model.value(value).name));
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        fact += &format!("; its input '{holder}' holds [{}]", numbers.join(", "));
        let open = if model.display(model.node(equality.node).op_type) == "Reshape" {
            format!(
                "for a size that may vary, store 0 in '{holder}' to copy the size of the input, or one -1 to compute it"
            )
        } else {
            format!("for a size that may vary, compute '{holder}' from the shape of an input")
        };
        (fact, format!("{open}; otherwise, {declare}"))
    }

    /// Returns the first input of a node that is a list of constant integers, the form of stored
    /// shapes.
    fn constant_integers(&self, model: &Model, node: NodeId) -> Option<(ValueId, Vec<i64>)> {
        model.inputs(node).flatten().find_map(|value| {
            let values = self.known(value)?.ints()?;
            let numbers: Vec<i64> = values.iter().map(Dim::known).collect::<Option<_>>()?;
            (1..=MOST_SHOWN).contains(&numbers.len()).then_some((value, numbers))
        })
    }
}

/// Returns the names of sizes of the inputs of a model, each with the first input that has it.
fn sizes_of_inputs(model: &Model) -> Vec<(String, String)> {
    let mut sizes: Vec<(String, String)> = Vec::new();
    for info in model.main_graph().into_iter().flat_map(|main| &main.inputs) {
        let Some(ty) = info.ty.as_ref().and_then(|ty| model.type_of(ty)) else { continue };
        for name in ty.shape().into_iter().flatten().filter_map(Dim::as_symbol) {
            if !sizes.iter().any(|(known, _)| known == name) {
                let input = shown(model.maybe_text(info.name).unwrap_or_default());
                sizes.push((name.to_string(), input));
            }
        }
    }
    sizes
}

/// Returns the only name in an equality and the only number for which it holds, if it is linear.
fn only_number(equality: &Equality) -> Option<(String, i64)> {
    let difference = equality.left.sub(&equality.right);
    let mut names = difference.symbols().into_iter();
    let name = names.next()?.to_string();
    if names.next().is_some() {
        return None;
    }
    let at = |size: i64| {
        let put = |found: &str| (found == name).then_some(Dim::Known(size));
        difference.substitute(&put).known()
    };
    let (start, slope) = (at(0)?, at(1)?.checked_sub(at(0)?)?);
    let size = start.checked_neg()?.checked_div(slope)?;
    (size >= 0 && at(size)? == 0).then_some((name, size))
}
