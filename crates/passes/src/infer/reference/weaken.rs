//! What rules know and the reference implementation does not say, removed.
//!
//! The rules of operators say all that is certain. The reference implementation knows less of some
//! operators: it does not look at an input, or waits for a value before it says a shape. People who
//! compare both, or rely on what that one leaves open, ask for its style. Then each node goes
//! through the rows of [`TABLE`] that are about its operator and version, twice:
//!
//! - Before the rule, [`hidden`] takes away the shapes of inputs that the reference implementation
//!   does not look at. What the rule would find wrong with them is not found then.
//! - After the rule, [`weaken`] takes away what it said too much. What the rule found wrong stays.
//!
//! A row is looked up once for each operator that a model calls, not for each node. The style that
//! says all that is certain has no rows. Rules that a program brings are left as they are: they are
//! not rules of the reference implementation.

use sardonyx_model::{Dim, TensorType, Type};
use sardonyx_ops::operators::{
    CENTER_CROP_PAD, GATHER_ELEMENTS, GRU, LAYER_NORMALIZATION, LSTM, MAX_UNPOOL,
    NON_MAX_SUPPRESSION, REDUCE_L1, REDUCE_L2, REDUCE_LOG_SUM, REDUCE_LOG_SUM_EXP, REDUCE_MAX,
    REDUCE_MEAN, REDUCE_MIN, REDUCE_PROD, REDUCE_SUM, REDUCE_SUM_SQUARE, RMS_NORMALIZATION, RNN,
    ROTARY_EMBEDDING, SCATTER_ND, SPLIT, SQUEEZE, STFT, SWIGLU, TOP_K, UNIQUE, UNSQUEEZE,
};
use sardonyx_ops::{OpDef, Said};
use smallvec::SmallVec;

use super::super::engine::Given;

/// What the reference implementation does not say of operators.
pub(in crate::infer) struct Row {
    operators: &'static [&'static OpDef],
    /// The first version of which it is true. It is true of all later ones.
    from: u32,
    when: When,
    weaker: Weaker,
}

/// When a row is about a node.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// The node has the input, and nothing is known of the integers in it.
    Unread(usize),
    /// The node has the input, and some of the integers in it are not known at all.
    Open(usize),
    /// The node has the input, and some of the integers in it are not constant.
    Varying(usize),
    /// The shape of one of the inputs is not known.
    Unranked(&'static [usize]),
}

/// What is not said, or not looked at.
#[derive(Clone, Copy)]
enum Weaker {
    /// The shapes of these inputs are not looked at.
    Hides(&'static [usize]),
    /// Nothing but the element types of outputs is said.
    NoShapes,
    /// The sizes of these outputs are not said, only how many they are.
    NoSizes(&'static [usize]),
}

const REDUCTIONS: &[&OpDef] = &[
    &REDUCE_L1,
    &REDUCE_L2,
    &REDUCE_LOG_SUM,
    &REDUCE_LOG_SUM_EXP,
    &REDUCE_MAX,
    &REDUCE_MEAN,
    &REDUCE_MIN,
    &REDUCE_PROD,
    &REDUCE_SUM,
    &REDUCE_SUM_SQUARE,
];

/// An operator is in one row at most.
static TABLE: &[Row] = &[
    row(&[&CENTER_CROP_PAD], 1, When::Unread(1), Weaker::Hides(&[0, 1])),
    row(&[&GATHER_ELEMENTS], 1, When::Always, Weaker::Hides(&[0])),
    row(&[&GRU, &LSTM, &RNN], 1, When::Always, Weaker::Hides(&[1, 2, 3, 4, 5, 6, 7])),
    row(&[&LAYER_NORMALIZATION, &RMS_NORMALIZATION], 1, When::Always, Weaker::Hides(&[1, 2])),
    row(&[&MAX_UNPOOL], 1, When::Unread(2), Weaker::NoShapes),
    row(&[&NON_MAX_SUPPRESSION], 1, When::Always, Weaker::Hides(&[0, 1])),
    // Axes became an input in these versions.
    row(REDUCTIONS, 13, When::Varying(1), Weaker::NoShapes),
    row(&[&SQUEEZE, &UNSQUEEZE], 13, When::Varying(1), Weaker::NoShapes),
    row(&[&ROTARY_EMBEDDING], 1, When::Always, Weaker::Hides(&[1, 2, 3])),
    row(&[&SCATTER_ND], 1, When::Always, Weaker::Hides(&[1, 2])),
    row(&[&SPLIT], 1, When::Unread(1), Weaker::Hides(&[0])),
    row(&[&STFT], 1, When::Always, Weaker::Hides(&[1])),
    row(&[&SWIGLU], 1, When::Unranked(&[0, 1]), Weaker::NoShapes),
    row(&[&TOP_K], 10, When::Open(1), Weaker::NoSizes(&[0, 1])),
    row(&[&UNIQUE], 1, When::Always, Weaker::NoSizes(&[2])),
];

const fn row(operators: &'static [&'static OpDef], from: u32, when: When, weaker: Weaker) -> Row {
    Row { operators, from, when, weaker }
}

/// The row about a version of an operator.
pub(in crate::infer) fn row_of(operator: &OpDef, version: u32) -> Option<&'static Row> {
    let is_about =
        |row: &&Row| row.from <= version && row.operators.iter().any(|one| operator.is(one));
    TABLE.iter().find(is_about)
}

impl When {
    fn is_met(self, given: &Given<'_>) -> bool {
        let some_integer = |index: usize, is_wanted: fn(&Dim) -> bool| {
            let ints = given.known.get(index).copied().flatten().and_then(|known| known.ints());
            given.present.get(index) == Some(&true)
                && ints.is_none_or(|ints| ints.iter().any(is_wanted))
        };
        match self {
            When::Always => true,
            When::Unread(index) => some_integer(index, |_| false),
            When::Open(index) => some_integer(index, Dim::is_unknown),
            When::Varying(index) => some_integer(index, |size| size.known().is_none()),
            When::Unranked(inputs) => inputs.iter().any(|index| {
                let ty = given.inputs.get(*index).copied().flatten();
                ty.and_then(Type::as_tensor).is_none_or(|tensor| tensor.shape.is_none())
            }),
        }
    }
}

/// The types of inputs as the reference implementation looks at them, if that is less than they
/// say.
pub(in crate::infer) fn hidden(
    row: Option<&Row>,
    given: &Given<'_>,
) -> Option<SmallVec<[Option<Type>; 6]>> {
    let Row { weaker: Weaker::Hides(inputs), when, .. } = row? else {
        return None;
    };
    if !when.is_met(given) {
        return None;
    }
    let seen = |(index, ty): (usize, &Option<&Type>)| match ty {
        Some(Type::Tensor(tensor)) if inputs.contains(&index) => {
            Some(Type::Tensor(TensorType { elem: tensor.elem, shape: None }))
        }
        ty => ty.cloned(),
    };
    Some(given.inputs.iter().enumerate().map(seen).collect())
}

/// Takes away what the reference implementation does not say.
pub(in crate::infer) fn weaken(row: Option<&Row>, given: &Given<'_>, said: &mut Said) {
    let Some(Row { when, weaker, .. }) = row else {
        return;
    };
    match weaker {
        Weaker::Hides(_) => {}
        Weaker::NoShapes if when.is_met(given) => {
            for ty in &mut said.types {
                if let Some(Type::Tensor(tensor)) = ty {
                    tensor.shape = None;
                }
            }
            // Values would tell the shapes again.
            said.known.clear();
        }
        Weaker::NoSizes(outputs) if when.is_met(given) => {
            for output in *outputs {
                if let Some(Some(Type::Tensor(TensorType { shape: Some(shape), .. }))) =
                    said.types.get_mut(*output)
                {
                    shape.fill(Dim::Unknown);
                }
            }
        }
        Weaker::NoShapes | Weaker::NoSizes(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::Registry;
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::super::super::{InferOptions, Style, infer_node};
    use super::TABLE;

    /// A node of each operator of the table; what both styles say of it is beside the file.
    const SHOWN: &[u8] = include_bytes!("../../../../../tests/infer/reference_says_less.onnxtxt");

    /// SHAPE-16
    #[test]
    fn a_node_of_each_operator_shows_the_difference() {
        let parsed = parse_model(Buffer::from(SHOWN.to_vec()), ParseOptions::default());
        let model = parsed.expect("the text is a model").model;
        let registry = Registry::standard();
        let main = model.main.expect("there is a graph");
        let mut different = Vec::new();
        for node in &model.graph(main).nodes {
            let name = model.display(model.node(*node).op_type);
            let schema = registry.schema("", &name, 28).expect("the operator is of the standard");
            let said = |style| {
                let options = InferOptions { style, ..InferOptions::default() };
                infer_node(&model, &registry, *node, schema, options)
            };
            let (all, wrong) = said(Style::Algebra);
            let (less, wrong_to_reference) = said(Style::Reference { data_prop: true });
            assert!(wrong_to_reference.is_empty(), "{name}: {wrong_to_reference:?}");
            if all != less || !wrong.is_empty() {
                different.push(registry.operator("", &name).expect("it has a definition"));
            }
        }
        let mut of_table: Vec<_> = TABLE.iter().flat_map(|row| row.operators).collect();
        for operator in &of_table {
            let is_shown = different.iter().any(|shown| shown.is(operator));
            assert!(is_shown, "no node shows what is not said of {}", operator.name);
        }
        let count = of_table.len();
        of_table.sort_by_key(|operator| operator.name);
        of_table.dedup_by(|a, b| a.is(b));
        assert_eq!(of_table.len(), count, "an operator is in two rows");
    }
}
