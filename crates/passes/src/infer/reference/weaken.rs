//! Removal of facts that rules derive and the reference implementation does not.
//!
//! The rules of operators return all that is certain. The reference implementation derives less for
//! some operators: it ignores an input, or needs a value before it returns a shape. Users who
//! compare both, or rely on facts that it leaves open, select its style. Then each node goes
//! through the rows of [`TABLE`] about its operator and version, twice:
//!
//! - Before the rule, [`hide_inputs`] removes the shapes and values of inputs that the reference
//!   implementation ignores, so that the rule does not find contradictions with them.
//! - After the rule, [`weaken`] removes facts from its results. Contradictions that the rule found
//!   stay.
//!
//! Rows are looked up once for each operator that a model calls, not for each node. The other style
//! has no rows. Rules of a program are not changed, since they are not rules of the reference
//! implementation.

use sardonyx_model::{Attributes, Dim, TensorType, Type};
use sardonyx_ops::{Known, OpDef, RuleOutcome};
use smallvec::SmallVec;

use super::super::rulebook::Given;

/// Fact that the reference implementation does not derive for some versions of an operator.
struct Row {
    /// First and last version that the row is about.
    from: u32,
    until: u32,
    when: When,
    weaker: Weaker,
}

/// Rows about a version of an operator.
#[derive(Clone, Copy)]
pub(in crate::infer) struct Rows {
    rows: &'static [Row],
    version: u32,
}

/// Condition on a node for a row to apply.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// The node has the input, and none of its numbers is known.
    Unread(usize),
    /// The node has the input, none of its integers is known, and the size of the first input along
    /// the attribute `axis`, which has this default, is a number.
    UnreadAlong(usize, i64),
    /// The node has the input, and some of its integers are unknown.
    Open(usize),
    /// The size of the first input along the attribute `axis`, which has this default, is not a
    /// number.
    OpenAlong(i64),
    /// The node has the input, and some of its integers are not constant.
    Varying(usize),
    /// The shape of one of the inputs is unknown.
    Unranked(&'static [usize]),
    /// The shape of any input is unknown.
    AnyUnranked,
}

/// Facts that are not derived, or inputs that are ignored.
#[derive(Clone, Copy)]
enum Weaker {
    /// Ignores the shapes of these inputs.
    Hides(&'static [usize]),
    /// Ignores the shapes of all inputs but the first.
    HidesRest,
    /// Ignores the elements of the input.
    HidesValue(usize),
    /// Derives only the element types of outputs.
    NoShapes,
    /// Does not derive the shapes of outputs after the first.
    NoShapesOfRest,
    /// Derives only the ranks of these outputs, not their sizes.
    NoSizes(&'static [usize]),
}

use Weaker::{Hides, HidesRest, HidesValue, NoShapes, NoShapesOfRest, NoSizes};
use When::{Always, AnyUnranked, Open, OpenAlong, Unranked, Unread, UnreadAlong, Varying};

/// Operators, by full name, with their rows. Each operator is in at most one list.
static TABLE: &[(&[&str], &[Row])] = &[
    // Of operands that broadcast by attributes, or not at all, the first has the shape.
    (
        &[
            "Add", "And", "Div", "Equal", "Greater", "Less", "Max", "Mean", "Min", "Mul", "Or",
            "Pow", "Sub", "Sum", "Xor",
        ],
        &[row_until(6, Always, HidesRest)],
    ),
    (&["PRelu"], &[row(7, Always, HidesRest)]),
    (
        &["AveragePool", "DepthToSpace", "Flatten", "LpPool", "MaxPool", "SpaceToDepth"],
        &[row(1, Unranked(&[0]), NoShapes)],
    ),
    (
        &["GridSample", "MaxRoiPool", "NegativeLogLikelihoodLoss"],
        &[row(1, Unranked(&[0, 1]), NoShapes)],
    ),
    (&["Concat", "Einsum"], &[row(1, AnyUnranked, NoShapes)]),
    (&["BatchNormalization"], &[row_until(13, Always, NoShapesOfRest)]),
    (&["BlackmanWindow", "HammingWindow", "HannWindow"], &[row(1, Varying(0), NoShapes)]),
    (&["CenterCropPad"], &[row(1, Unread(1), Hides(&[0, 1]))]),
    (&["Compress"], &[row(1, Always, HidesValue(1))]),
    (&["Dropout"], &[row_until(6, Always, NoShapesOfRest)]),
    (&["GatherElements"], &[row(1, Always, Hides(&[0]))]),
    // Since version 13, each operand determines its size by itself.
    (&["Gemm"], &[row(1, Always, Hides(&[2])), row_until(12, Unranked(&[0, 1]), NoShapes)]),
    (&["GRU", "LSTM", "RNN"], &[row(1, Always, Hides(&[1, 2, 3, 4, 5, 6, 7]))]),
    (&["LayerNormalization", "RMSNormalization"], &[row(1, Always, Hides(&[1, 2]))]),
    (&["MaxUnpool"], &[row(1, Unread(2), NoShapes), row(1, Unranked(&[0, 1]), NoShapes)]),
    (&["MelWeightMatrix"], &[row(1, Varying(0), NoShapes), row(1, Varying(1), NoShapes)]),
    (&["NonMaxSuppression"], &[row(1, Always, Hides(&[0, 1])), row_until(10, Always, NoShapes)]),
    // Indices are only compared with a known depth.
    (&["OneHot"], &[row_until(10, Unread(1), HidesValue(0))]),
    (&["Pad"], &[row(1, Unranked(&[0]), NoShapes), row(18, Varying(3), NoShapes)]),
    (
        &[
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        ],
        // Axes became an input in version 13 or 18.
        &[row(13, Varying(1), NoShapes), row(1, Unranked(&[0]), NoShapes)],
    ),
    (&["Reshape"], &[row_until(13, Varying(1), NoShapes)]),
    (
        &["Resize"],
        &[
            row(10, Unranked(&[0]), NoShapes),
            // Only some axes are resized, by scales, and the sizes of the others are known.
            row(18, Unread(2), NoSizes(&[0])),
        ],
    ),
    (&["ReverseSequence"], &[row(1, Always, Hides(&[1])), row(1, Unranked(&[0, 1]), NoShapes)]),
    (&["RotaryEmbedding"], &[row(1, Always, Hides(&[1, 2, 3]))]),
    (&["ScatterND"], &[row(1, Always, Hides(&[1, 2]))]),
    (&["Split"], &[row(1, UnreadAlong(1, 0), Hides(&[0]))]),
    (&["Squeeze", "Unsqueeze"], &[row(13, Varying(1), NoShapes)]),
    (
        &["STFT"],
        &[
            row(1, Always, Hides(&[1])),
            row(1, Varying(1), NoShapes),
            row(1, Unranked(&[0]), NoShapes),
        ],
    ),
    (&["SwiGLU"], &[row(1, Unranked(&[0, 1]), NoShapes)]),
    // Before version 6 tiles were two inputs.
    (&["Tile"], &[row_until(5, Always, NoShapes), row(6, Unranked(&[0]), NoShapes)]),
    (&["TopK"], &[row(10, Open(1), NoSizes(&[0, 1])), row(10, OpenAlong(-1), NoSizes(&[0, 1]))]),
    (&["Unique"], &[row(1, Always, NoSizes(&[2]))]),
    (&["ai.onnx.ml.LabelEncoder"], &[row_until(1, Always, NoShapes)]),
    (&["ai.onnx.ml.SVMClassifier"], &[row(1, Always, NoShapes)]),
];

/// Makes a row about a version and all later ones.
const fn row(from: u32, when: When, weaker: Weaker) -> Row {
    Row { from, until: u32::MAX, when, weaker }
}

/// Makes a row about all versions up to one.
const fn row_until(until: u32, when: When, weaker: Weaker) -> Row {
    Row { from: 1, until, when, weaker }
}

impl Rows {
    /// No rows.
    pub(in crate::infer) const NONE: Rows = Rows { rows: &[], version: 0 };

    /// Returns the rows about a version of an operator.
    pub(in crate::infer) fn new(operator: &OpDef, version: u32) -> Rows {
        let name = operator.full_name();
        let mut lists = TABLE.iter();
        let found = lists.find(|(names, _)| names.contains(&name.as_str()));
        found.map_or(Rows::NONE, |(_, rows)| Rows { rows, version })
    }

    /// Returns the changes for a node.
    fn changes(self, given: &Given<'_>) -> impl Iterator<Item = Weaker> {
        let rows = self.rows.iter();
        let rows = rows.filter(move |row| (row.from..=row.until).contains(&self.version));
        rows.filter(move |row| row.when.is_met(given)).map(|row| row.weaker)
    }
}

impl When {
    fn is_met(self, given: &Given<'_>) -> bool {
        let some_integer = |index: usize, is_wanted: fn(&Dim) -> bool| {
            let ints = given.known.get(index).copied().flatten().and_then(|known| known.ints());
            given.present.get(index) == Some(&true)
                && ints.is_none_or(|ints| ints.iter().any(is_wanted))
        };
        let is_present = |index: usize| given.present.get(index) == Some(&true);
        let is_unranked = |index: usize| shape(given, index).is_none();
        let has_size_along = |default: i64| {
            let axis = given.attributes.int("axis").unwrap_or(default);
            let size = shape(given, 0).and_then(|shape| {
                let rank = i64::try_from(shape.len()).ok()?;
                let axis = if axis < 0 { axis + rank } else { axis };
                shape.get(usize::try_from(axis).ok()?)?.known()
            });
            size.is_some()
        };
        match self {
            Always => true,
            Unread(index) => {
                is_present(index) && given.known.get(index).copied().flatten().is_none()
            }
            UnreadAlong(index, default) => {
                some_integer(index, |_| false) && has_size_along(default)
            }
            Open(index) => some_integer(index, Dim::is_unknown),
            OpenAlong(default) => !has_size_along(default),
            Varying(index) => some_integer(index, |size| size.known().is_none()),
            Unranked(inputs) => inputs.iter().any(|index| is_unranked(*index)),
            AnyUnranked => {
                (0..given.present.len()).any(|index| is_present(index) && is_unranked(index))
            }
        }
    }
}

/// Returns the sizes of an input.
fn shape<'g>(given: &Given<'g>, index: usize) -> Option<&'g [Dim]> {
    given.inputs.get(index).copied().flatten()?.as_tensor()?.shape.as_deref()
}

/// Types and contents of a node's inputs that the reference implementation uses.
pub(in crate::infer) struct Seen<'g> {
    types: SmallVec<[Option<Type>; 6]>,
    pub(in crate::infer) known: SmallVec<[Option<&'g Known>; 6]>,
}

impl Seen<'_> {
    /// Returns the types.
    pub(in crate::infer) fn types(&self) -> SmallVec<[Option<&Type>; 6]> {
        self.types.iter().map(Option::as_ref).collect()
    }
}

/// Returns the inputs without the facts that the reference implementation ignores, or `None` if it
/// uses all.
pub(in crate::infer) fn hide_inputs<'g>(rows: Rows, given: &Given<'g>) -> Option<Seen<'g>> {
    let mut seen: Option<Seen<'g>> = None;
    for change in rows.changes(given) {
        let is_hidden = |index: usize| match change {
            Hides(inputs) => inputs.contains(&index),
            HidesRest => index > 0,
            _ => false,
        };
        if !matches!(change, Hides(_) | HidesRest | HidesValue(_)) {
            continue;
        }
        let seen = seen.get_or_insert_with(|| Seen {
            types: given.inputs.iter().map(|ty| ty.cloned()).collect(),
            known: given.known.clone(),
        });
        for (index, ty) in seen.types.iter_mut().enumerate() {
            if let Some(Type::Tensor(tensor)) = ty
                && is_hidden(index)
            {
                tensor.shape = None;
            }
        }
        if let HidesValue(index) = change
            && let Some(known) = seen.known.get_mut(index)
        {
            *known = None;
        }
    }
    seen
}

/// Removes facts that the reference implementation does not derive.
pub(in crate::infer) fn weaken(rows: Rows, given: &Given<'_>, outcome: &mut RuleOutcome) {
    for change in rows.changes(given) {
        match change {
            Hides(_) | HidesRest | HidesValue(_) => {}
            NoShapes | NoShapesOfRest => {
                let first = usize::from(matches!(change, NoShapesOfRest));
                for ty in outcome.types.iter_mut().skip(first) {
                    if let Some(Type::Tensor(tensor)) = ty {
                        tensor.shape = None;
                    }
                }
                // Contents would reveal the shapes.
                outcome.known.truncate(first);
            }
            NoSizes(outputs) => {
                for output in outputs {
                    if let Some(Some(Type::Tensor(TensorType { shape: Some(shape), .. }))) =
                        outcome.types.get_mut(*output)
                    {
                        shape.fill(Dim::Unknown);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::Registry;
    use sardonyx_tensor::Buffer;
    use sardonyx_text::{ParseOptions, parse_model};

    use super::super::super::{InferOptions, Style, infer_node};
    use super::{Row, TABLE};

    /// Nodes of the operators of the table in some versions of the operator sets. Files beside them
    /// have the results of both styles.
    const SHOWN: [&[u8]; 5] = [
        include_bytes!("../../../../../tests/infer/weaker_reference_types.onnxtxt"),
        include_bytes!("../../../../../tests/infer/weaker_reference_types_13.onnxtxt"),
        include_bytes!("../../../../../tests/infer/weaker_reference_types_10.onnxtxt"),
        include_bytes!("../../../../../tests/infer/weaker_reference_types_6.onnxtxt"),
        include_bytes!("../../../../../tests/infer/weaker_reference_types_5.onnxtxt"),
    ];

    /// Returns the full names and versions of the operators of a model for which the styles differ.
    fn different(text: &[u8]) -> Vec<(String, u32)> {
        let parsed = parse_model(Buffer::from(text.to_vec()), ParseOptions::default());
        let model = parsed.expect("the text is a model").model;
        let registry = Registry::standard();
        let main = model.main.expect("there is a graph");
        let (opsets, mut different) = (model.opsets(), Vec::new());
        for node in &model.graph(main).nodes {
            let (domain, name) = (model.domain_of(*node), model.display(model.node(*node).op_type));
            let version = u32::try_from(opsets[&domain]).expect("a version is small");
            let schema = registry.schema(&domain, &name, version).expect("it is of the standard");
            let outcome = |style| {
                let options = InferOptions { style, ..InferOptions::default() };
                infer_node(&model, &registry, *node, schema, options)
            };
            let (all, wrong) = outcome(Style::Algebra);
            let (less, wrong_to_reference) = outcome(Style::Reference { data_prop: true });
            assert!(wrong_to_reference.is_empty(), "{name}: {wrong_to_reference:?}");
            if all != less || !wrong.is_empty() {
                let operator = registry.operator(&domain, &name).expect("it has a definition");
                different.push((operator.full_name(), schema.since));
            }
        }
        different
    }

    /// Checks SHAPE-16.
    #[test]
    fn a_node_of_each_row_shows_the_difference() {
        let shown: Vec<(String, u32)> = SHOWN.iter().flat_map(|text| different(text)).collect();
        let mut all: Vec<&str> = Vec::new();
        for (names, rows) in TABLE {
            all.extend(*names);
            for (name, Row { from, until, .. }) in
                names.iter().flat_map(|name| rows.iter().map(move |row| (name, row)))
            {
                let is_shown = shown
                    .iter()
                    .any(|(found, version)| found == name && (from..=until).contains(&version));
                assert!(is_shown, "no node covers {name} from version {from} to {until}");
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count, "an operator is in two lists");
    }
}
