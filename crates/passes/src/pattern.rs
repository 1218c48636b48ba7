//! Patterns of nodes as data: the nodes from which a value is computed, conditions, and the node
//! that computes the same.
//!
//! A [`Term`] describes a value. Matching binds the variables of a pattern to values and its
//! numbers to constants, in every way that fits: operands of commutative operators in any order,
//! those of nested sums and products in any nesting. Each pattern is a tree of a fixed size, so the
//! work at an anchor is bounded by a constant.

use std::fmt;

use sardonyx_model::{AttrValue, NodeId, ValueId};
use sardonyx_ops::OpDef;
use sardonyx_tensor::DataType::{Double, Float};
use smallvec::SmallVec;

use crate::matcher::{Match, Matcher, Rewrite, Source};

/// Most variables of a pattern.
const VARIABLES: usize = 8;
/// Most numbers that a pattern binds.
const NUMBERS: usize = 4;
/// Most ways in which operands are assigned to terms: five operands in any order.
const MOST_WAYS: usize = 120;

/// Description of a value.
pub(crate) enum Term {
    /// Any value; equal variables stand for the same value.
    Var(usize),
    /// A constant of one element that equals a number to a few digits.
    Number(f64),
    /// A constant of one element, of any type of number, that equals an integer.
    Integer(i64),
    /// A constant of one element, which is bound.
    Scalar(usize),
    /// The first output of a node.
    Node(Call),
    /// The first of several descriptions that fits.
    OneOf(&'static [Term]),
}

/// Description of a node.
pub(crate) struct Call {
    pub(crate) op: &'static OpDef,
    pub(crate) form: Form,
    pub(crate) operands: &'static [Term],
    pub(crate) attributes: &'static [AttributeTerm],
}

/// Relation of the inputs of a node to the operands of a [`Call`].
pub(crate) enum Form {
    /// The inputs are the operands in this order.
    Ordered,
    /// The inputs are the operands in any order.
    Unordered,
    /// The inputs are the operands in any order and in any nesting of nodes of the same operator.
    Nested,
    /// The first inputs are the operands in this order; further ones are described by attributes,
    /// which newer forms have as inputs.
    Leading,
    /// There are any number of inputs, and the operands are all of them in any order: the last
    /// operand describes each that is left over.
    Variadic,
}

/// Description of an attribute.
pub(crate) enum AttributeTerm {
    /// An integer, by default the number, which is bound.
    Int(&'static str, i64, usize),
    /// A float, by default the second number, which must equal the third as exactly as `f32` can.
    Float(&'static str, f32, f32),
    /// The reduced axes, an attribute or the second input, at least one, are bound.
    Axes,
}

/// Condition on what is bound.
pub(crate) enum Condition {
    /// A variable is of type `float` or `double`; otherwise nothing is near.
    IsFloat(usize),
    /// The result has the rank of a variable: constants of one element may have more axes.
    KeepsRank(usize),
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::IsFloat(_) => "the type is neither float nor double",
            Condition::KeepsRank(_) => "the result may have another rank than the input",
        })
    }
}

/// Attribute of the node that a pattern makes.
pub(crate) enum Given {
    Text(&'static str),
    Float(f32),
    /// A bound integer.
    Int(usize),
    /// A bound number.
    Scalar(usize),
    /// Bound axes, as an attribute or an input, as the form of the operator demands: an attribute
    /// before the version.
    AxesBefore(u32),
}

/// Node that computes the same as the nodes of a pattern.
pub(crate) struct Target {
    pub(crate) op: &'static OpDef,
    pub(crate) inputs: &'static [usize],
    pub(crate) attributes: &'static [(&'static str, Given)],
}

/// Several nodes, and one that computes the same.
pub(crate) struct Pattern {
    /// The last of the nodes, which must be a [`Term::Node`], with those before it.
    pub(crate) source: Call,
    pub(crate) conditions: &'static [Condition],
    pub(crate) target: Target,
    /// Whether the nodes are so characteristic that one number which differs is worth a note.
    pub(crate) is_distinctive: bool,
}

/// Bindings of one way to match.
#[derive(Clone, Default)]
struct Found {
    values: [Option<ValueId>; VARIABLES],
    numbers: [Option<f64>; NUMBERS],
    integers: [Option<i64>; 2],
    axes: Option<Vec<i64>>,
    nodes: SmallVec<[NodeId; 12]>,
    /// The number that differs, if one may.
    near: Option<String>,
}

type Ways = SmallVec<[Found; 1]>;

/// Makes a list of one way.
fn one_way(found: Found) -> Ways {
    SmallVec::from_iter([found])
}

/// Describes a node without attributes, as a [`Call`]: its operator, the form of its inputs, and
/// their descriptions. A macro, as references to the results of functions cannot be constants.
macro_rules! call {
    ($op:ident, $form:ident, $operands:expr $(,)?) => {
        $crate::pattern::Call {
            op: &$op,
            form: $crate::pattern::Form::$form,
            operands: $operands,
            attributes: &[],
        }
    };
}
pub(crate) use call;

/// Describes the first output of a node without attributes, as a [`Term`].
macro_rules! node {
    ($op:ident, $form:ident, $operands:expr $(,)?) => {
        $crate::pattern::Term::Node($crate::pattern::call!($op, $form, $operands))
    };
}
pub(crate) use node;

/// State of matching.
struct Search<'s, 'a> {
    cx: &'s Matcher<'a>,
    /// Whether one number may differ.
    is_lenient: bool,
}

impl Pattern {
    /// Looks for the pattern at a node.
    pub(crate) fn find(&self, cx: &Matcher<'_>, anchor: NodeId) -> Match {
        if !cx.is(anchor, self.source.op) || !cx.has_op(self.target.op) {
            return Match::No;
        }
        let search = Search { cx, is_lenient: false };
        let found = search.call(&self.source, anchor, Found::default()).into_iter().next();
        let Some(mut found) = found else {
            if !self.is_distinctive {
                return Match::No;
            }
            let search = Search { cx, is_lenient: true };
            let ways = search.call(&self.source, anchor, Found::default());
            let near = ways.into_iter().find(|found| self.fits_type(cx, found));
            let near = near.and_then(|found| found.near);
            return near.map_or(Match::No, Match::Nearly);
        };
        found.nodes.retain(|node| *node != anchor);
        for condition in self.conditions {
            if !holds(condition, cx, anchor, &found) {
                return match condition {
                    Condition::IsFloat(_) => Match::No,
                    _ => Match::Nearly(condition.to_string()),
                };
            }
        }
        if !cx.are_inner(&found.nodes, anchor) && !self.overlaps(cx, anchor, &found.nodes) {
            let why = "an intermediate value is also used by another node";
            return Match::Nearly(why.to_string());
        }
        self.target.make(cx, found)
    }

    /// Whether all other readers of the inner nodes are nodes of this pattern around other anchors:
    /// all of them are replaced together then, and nothing is computed twice.
    fn overlaps(&self, cx: &Matcher<'_>, anchor: NodeId, nodes: &[NodeId]) -> bool {
        nodes.iter().all(|node| {
            cx.model.outputs(*node).iter().flatten().all(|value| {
                !cx.model.value(*value).is_output
                    && cx.model.uses(*value).all(|(reader, _)| {
                        reader == anchor
                            || nodes.contains(&reader)
                            || self.has_anchor_above(cx, reader, *node)
                    })
            })
        })
    }

    /// Whether the pattern fits around an anchor that is `reader` or reads it through up to three
    /// nodes that nothing else reads, with `node` inside.
    fn has_anchor_above(&self, cx: &Matcher<'_>, reader: NodeId, node: NodeId) -> bool {
        let mut next = Some(reader);
        for _ in 0..4 {
            let Some(anchor) = next else { return false };
            if cx.model.node(anchor).graph != cx.graph {
                return false;
            }
            if cx.is(anchor, self.source.op) {
                let search = Search { cx, is_lenient: false };
                let ways = search.call(&self.source, anchor, Found::default());
                if ways.iter().any(|found| {
                    found.nodes.contains(&node)
                        && self
                            .conditions
                            .iter()
                            .all(|condition| holds(condition, cx, anchor, found))
                }) {
                    return true;
                }
            }
            next = cx.only_reader(anchor);
        }
        false
    }

    fn fits_type(&self, cx: &Matcher<'_>, found: &Found) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::IsFloat(variable) => {
                found.values[*variable].is_some_and(|x| matches!(cx.elem(x), Some(Float | Double)))
            }
            _ => true,
        })
    }
}

/// Finds the first of several patterns that fits at a node, or else the first that nearly does.
pub(crate) fn find_first(patterns: &[Pattern], cx: &Matcher<'_>, anchor: NodeId) -> Match {
    let mut nearly = Match::No;
    for pattern in patterns {
        match pattern.find(cx, anchor) {
            Match::No => {}
            found @ Match::Yes(_) => return found,
            near @ Match::Nearly(_) => {
                if matches!(nearly, Match::No) {
                    nearly = near;
                }
            }
        }
    }
    nearly
}

fn holds(condition: &Condition, cx: &Matcher<'_>, anchor: NodeId, found: &Found) -> bool {
    match condition {
        Condition::IsFloat(variable) => {
            found.values[*variable].is_some_and(|x| matches!(cx.elem(x), Some(Float | Double)))
        }
        Condition::KeepsRank(variable) => {
            found.values[*variable].is_some_and(|x| cx.keeps_rank(anchor, x))
        }
    }
}

impl Target {
    fn make(&self, cx: &Matcher<'_>, found: Found) -> Match {
        let mut inputs = Vec::with_capacity(self.inputs.len() + 1);
        for variable in self.inputs {
            let Some(value) = found.values[*variable] else { return Match::No };
            inputs.push(Source::Value(value));
        }
        let mut attributes = Vec::with_capacity(self.attributes.len());
        for (name, given) in self.attributes {
            let value = match given {
                Given::Text(text) => AttrValue::from(*text),
                Given::Int(slot) => {
                    let Some(number) = found.integers[*slot] else { return Match::No };
                    AttrValue::Int(number)
                }
                Given::Float(number) => AttrValue::Float(*number),
                Given::Scalar(slot) => {
                    let Some(number) = found.numbers[*slot] else { return Match::No };
                    AttrValue::Float(number as f32)
                }
                Given::AxesBefore(version) => {
                    let Some(axes) = found.axes.clone() else { return Match::No };
                    if cx.is_from(*version) {
                        let Some(axes) = Source::ints(axes) else { return Match::No };
                        inputs.push(axes);
                        continue;
                    }
                    AttrValue::from(axes)
                }
            };
            attributes.push((*name, value));
        }
        let mut rewrite = Rewrite::fusing(found.nodes.into_vec());
        rewrite.step(self.op, inputs, attributes);
        Match::Yes(rewrite)
    }
}

impl Search<'_, '_> {
    /// Finds all ways in which a value fits a description.
    fn term(&self, term: &Term, value: ValueId, mut found: Found) -> Ways {
        match term {
            Term::Var(variable) => match found.values[*variable] {
                Some(before) if before != value => Ways::new(),
                _ => {
                    found.values[*variable] = Some(value);
                    one_way(found)
                }
            },
            Term::Number(number) => {
                if self.cx.is_number(value, *number) {
                    return one_way(found);
                }
                match self.cx.scalar(value) {
                    Some(other) if self.is_lenient && found.near.is_none() => {
                        found.near = Some(format!("a constant is {other} and not {number}"));
                        one_way(found)
                    }
                    _ => Ways::new(),
                }
            }
            Term::Integer(number) => {
                if self.cx.is_power(value, *number) {
                    one_way(found)
                } else {
                    Ways::new()
                }
            }
            Term::Scalar(slot) => match self.cx.scalar(value) {
                Some(number) if found.numbers[*slot].is_none_or(|before| before == number) => {
                    found.numbers[*slot] = Some(number);
                    one_way(found)
                }
                _ => Ways::new(),
            },
            Term::Node(call) => match self.cx.made_by(value, call.op) {
                Some(node) => self.call(call, node, found),
                None => Ways::new(),
            },
            Term::OneOf(terms) => {
                let mut ways = terms.iter().map(|term| self.term(term, value, found.clone()));
                ways.find(|ways| !ways.is_empty()).unwrap_or_default()
            }
        }
    }

    /// Finds all ways in which a node fits a description.
    fn call(&self, call: &Call, node: NodeId, mut found: Found) -> Ways {
        found.nodes.push(node);
        if !call.attributes.iter().all(|attribute| self.attribute(attribute, node, &mut found)) {
            return Ways::new();
        }
        let inputs = self.cx.model.inputs(node).collect::<Option<SmallVec<[ValueId; 4]>>>();
        let Some(inputs) = inputs else { return Ways::new() };
        let count = call.operands.len();
        match call.form {
            Form::Ordered if inputs.len() == count => self.in_order(call.operands, &inputs, found),
            Form::Leading if inputs.len() >= count => {
                self.in_order(call.operands, &inputs[..count], found)
            }
            Form::Unordered if inputs.len() == count => {
                self.in_any_order(call.operands, &inputs, found)
            }
            Form::Nested if inputs.len() == 2 => {
                let Some((operands, inner)) = self.cx.factors(node, call.op) else {
                    return Ways::new();
                };
                if operands.len() != count {
                    return Ways::new();
                }
                found.nodes.extend(inner);
                self.in_any_order(call.operands, &operands, found)
            }
            Form::Variadic if inputs.len() >= count => {
                self.in_any_order(call.operands, &inputs, found)
            }
            _ => Ways::new(),
        }
    }

    fn in_order(&self, terms: &[Term], values: &[ValueId], found: Found) -> Ways {
        let mut ways: Ways = SmallVec::from_iter([found]);
        for (term, value) in terms.iter().zip(values) {
            ways = ways.into_iter().flat_map(|found| self.term(term, *value, found)).collect();
            ways.truncate(MOST_WAYS);
        }
        ways
    }

    /// Assigns values to terms one by one. The last term takes all values that are left, if there
    /// are more values than terms.
    fn in_any_order(&self, terms: &[Term], values: &[ValueId], found: Found) -> Ways {
        let Some((term, rest)) = terms.split_first() else {
            return SmallVec::from_iter([found]);
        };
        if rest.is_empty() {
            return self.in_order_of_one(term, values, found);
        }
        let mut ways = Ways::new();
        for (index, value) in values.iter().enumerate() {
            let mut others: SmallVec<[ValueId; 4]> = values.into();
            others.remove(index);
            for found in self.term(term, *value, found.clone()) {
                ways.extend(self.in_any_order(rest, &others, found));
                if ways.len() >= MOST_WAYS {
                    return ways;
                }
            }
        }
        ways
    }

    fn in_order_of_one(&self, term: &Term, values: &[ValueId], found: Found) -> Ways {
        let mut ways: Ways = SmallVec::from_iter([found]);
        for value in values {
            ways = ways.into_iter().flat_map(|found| self.term(term, *value, found)).collect();
        }
        ways
    }

    fn attribute(&self, term: &AttributeTerm, node: NodeId, found: &mut Found) -> bool {
        let cx = self.cx;
        match term {
            AttributeTerm::Int(name, default, slot) => {
                found.integers[*slot] = Some(cx.int(node, name).unwrap_or(*default));
                true
            }
            AttributeTerm::Float(name, default, number) => {
                let given = cx.float(node, name).unwrap_or(*default);
                (given - number).abs() <= f32::EPSILON * number.abs()
            }
            AttributeTerm::Axes => {
                found.axes = cx.list(node, "axes", 1).filter(|axes| !axes.is_empty());
                found.axes.is_some()
            }
        }
    }
}
