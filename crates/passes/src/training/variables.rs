//! Selection of the initializers to train.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Attributes, ExternalData, NodeAttributes, NodeId, Producer, Shape, ValueId};
use sardonyx_tensor::{CastOptions, DataType, cast};

use super::{Skipped, TrainingOptions};
use crate::addition::Addition;
use crate::derivatives::DeriveError;
use crate::infer::Inference;

/// Initializer that is trained.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) value: ValueId,
    pub(super) name: String,
    pub(super) elem: DataType,
    pub(super) dims: Vec<usize>,
    /// Number of elements.
    pub(super) len: usize,
    /// Role in the model.
    pub(super) role: Role,
}

/// Role of an initializer in the nodes that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Matrix or stack of filters. `inputs` is the number of summands of each output, `outputs` the
    /// number of outputs that each input contributes to.
    Product { inputs: usize, outputs: usize },
    /// Factor of normalized values.
    Scale,
    /// Bias, or any other role.
    Other,
}

/// Selected initializers.
pub(super) struct Chosen {
    pub(super) variables: Vec<Variable>,
    pub(super) skipped: Vec<(String, Skipped)>,
    /// Inputs of the graph that the loss depends on.
    pub(super) inputs: Vec<ValueId>,
}

/// Maximum value of an element that marks a constant as an attention mask.
const MASKED: f64 = -1e4;

/// Operators whose outputs have elements of the first input, in another shape or type.
const SAME_ELEMENTS: [&str; 11] = [
    "Identity",
    "Cast",
    "CastLike",
    "Transpose",
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Expand",
    "Slice",
    "Split",
];

/// Whether the outputs of a node have the elements of an input, so that their readers count as
/// readers of the input.
fn hands_on(name: &str, index: usize) -> bool {
    index == 0 && SAME_ELEMENTS.contains(&name) || name == "Concat"
}

/// Selects the initializers to train.
pub(super) fn choose(
    add: &Addition,
    types: &Inference,
    external: &dyn ExternalData,
    options: &TrainingOptions<'_>,
    loss: ValueId,
) -> Result<Chosen, DeriveError> {
    let model = add.model();
    let influences = add.influences(loss);
    let graph = model.graph(add.graph());
    let inputs = graph.inputs.iter().filter_map(|info| info.value);
    let inputs: Vec<ValueId> = inputs.filter(|value| influences.contains(value)).collect();
    let readers = Readers::new(add);
    let (mut variables, mut skipped) = (Vec::new(), Vec::new());
    let mut statistics = Vec::new();
    for found in &graph.initializers {
        let Some(value) = found.value else { continue };
        let elem = found.tensor.data_type.and_then(DataType::from_number);
        let Some(elem) = elem.filter(|elem| is_trained(*elem)) else { continue };
        let name = add.name(value);
        let is_input = matches!(model.value(value).producer, Producer::Input(_));
        let (role, is_weight) = readers.role(add, value, &found.tensor.dims, types);
        let is_mask = || {
            let stored = model.tensor(&found.tensor, external).ok();
            let doubles = stored.and_then(|stored| {
                cast(&stored, DataType::Double, CastOptions::default()).ok()?.to_vec::<f64>().ok()
            });
            doubles.is_some_and(|all| all.iter().any(|x| !x.is_finite() || *x <= MASKED))
        };
        let why = match options.variables {
            _ if (options.frozen)(&name) => Some(Skipped::NotChosen),
            Some(is_chosen) if !is_chosen(&name) => Some(Skipped::NotChosen),
            Some(_) if is_input => Some(Skipped::Input),
            Some(_) if !influences.contains(&value) => Some(Skipped::NoInfluence),
            Some(_) => None,
            None if is_input => Some(Skipped::Input),
            None if !influences.contains(&value) => Some(Skipped::NoInfluence),
            None if readers.is_statistic(value) => Some(Skipped::Statistic),
            None if !is_weight || !matches!(role, Role::Product { .. }) && is_mask() => {
                Some(Skipped::Constant)
            }
            None => None,
        };
        match why {
            // Lists statistics last: they are many, and the options do not select them.
            Some(Skipped::Statistic) => statistics.push((name, Skipped::Statistic)),
            Some(why) => skipped.push((name, why)),
            None => {
                let dims: Vec<usize> = found
                    .tensor
                    .dims
                    .iter()
                    .map(|size| usize::try_from(*size).unwrap_or(0))
                    .collect();
                let len = dims.iter().product();
                variables.push(Variable { value, name, elem, dims, len, role });
            }
        }
    }
    skipped.extend(statistics);
    if variables.is_empty() {
        let message = "nothing to train: no selected floating-point initializer affects the loss; \
                       weights in attributes of nodes are not trained";
        return Err(DeriveError::Option(message.to_string()));
    }
    Ok(Chosen { variables, skipped, inputs })
}

/// Whether optimizers support the element type.
fn is_trained(elem: DataType) -> bool {
    matches!(elem, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
}

/// Nodes that read each value of the graph, with the indices of their inputs.
struct Readers {
    of: HashMap<ValueId, Vec<(NodeId, usize)>>,
    statistics: HashSet<ValueId>,
}

impl Readers {
    fn new(add: &Addition) -> Readers {
        let resolved = add.resolved();
        let mut readers = Readers { of: HashMap::new(), statistics: HashSet::new() };
        let graphs = resolved.graphs().iter();
        for node in graphs.flat_map(|graph| resolved.order_of(*graph)) {
            let is_normalization = name_of(add, *node) == "BatchNormalization";
            for (index, value) in resolved.model().inputs(*node).enumerate() {
                let Some(value) = value else { continue };
                readers.of.entry(value).or_default().push((*node, index));
                if is_normalization && index >= 3 {
                    readers.statistics.insert(value);
                }
            }
        }
        readers
    }

    fn is_statistic(&self, value: ValueId) -> bool {
        self.statistics.contains(&value)
    }

    /// Returns the role of a constant, and whether a node reads it as a weight.
    fn role(
        &self,
        add: &Addition,
        value: ValueId,
        dims: &[i64],
        types: &Inference,
    ) -> (Role, bool) {
        let model = add.model();
        let shape: Shape = dims.iter().map(|size| sardonyx_model::Dim::Known(*size)).collect();
        let mut open = vec![(value, shape)];
        let mut seen = HashSet::new();
        while let Some((value, shape)) = open.pop() {
            if !seen.insert(value) {
                continue;
            }
            for (node, index) in self.of.get(&value).into_iter().flatten() {
                let name = name_of(add, *node);
                if hands_on(name, *index) {
                    let outputs = model.outputs(*node).iter().flatten();
                    open.extend(
                        outputs.filter_map(|output| {
                            Some((*output, types.ty(*output)?.shape()?.clone()))
                        }),
                    );
                } else if let Some(role) = self.role_in(add, *node, *index, name, &shape) {
                    return (role, true);
                }
            }
        }
        (Role::Other, false)
    }

    /// Returns the role of an input of a node, if it is a weight there.
    fn role_in(
        &self,
        add: &Addition,
        node: NodeId,
        index: usize,
        name: &str,
        shape: &Shape,
    ) -> Option<Role> {
        let sizes: Vec<usize> = shape
            .iter()
            .map(|size| size.known().and_then(|size| usize::try_from(size).ok()).unwrap_or(1))
            .collect();
        let all: usize = sizes.iter().product();
        let without = |axis: usize| all / sizes.get(axis).copied().unwrap_or(1).max(1);
        let product = |inputs: usize, outputs: usize| Some(Role::Product { inputs, outputs });
        let last = sizes.last().copied().unwrap_or(1);
        let is_set =
            |attribute: &str| NodeAttributes::new(add.model(), node).int(attribute) == Some(1);
        match (name, index) {
            ("Conv" | "DeformConv", 1) => product(without(0), without(1)),
            ("ConvTranspose", 1) => product(without(1), without(0)),
            ("Gemm", 0 | 1) if sizes.len() == 2 => {
                let is_turned = is_set(if index == 1 { "transB" } else { "transA" });
                let sums = usize::from((index == 1) == is_turned);
                product(sizes[sums], sizes[1 - sums])
            }
            ("MatMul", 0) if sizes.len() >= 2 => product(last, without(sizes.len() - 1)),
            ("MatMul", 1) if sizes.len() >= 2 => product(sizes[sizes.len() - 2], last),
            ("MatMul" | "Einsum", _) | ("Gather" | "GatherND", 0) => {
                product(last, without(sizes.len().max(1) - 1))
            }
            ("LSTM" | "GRU" | "RNN", 1 | 2) => product(last, sizes.get(1).copied().unwrap_or(1)),
            ("LSTM" | "GRU" | "RNN", 3 | 7) => Some(Role::Other),
            (
                "BatchNormalization"
                | "InstanceNormalization"
                | "LayerNormalization"
                | "GroupNormalization"
                | "RMSNormalization",
                1,
            ) => Some(Role::Scale),
            (
                "BatchNormalization"
                | "InstanceNormalization"
                | "LayerNormalization"
                | "GroupNormalization",
                2,
            )
            | ("Conv" | "ConvTranspose" | "Gemm", 2)
            | ("DeformConv", 3)
            | ("PRelu", 1) => Some(Role::Other),
            // Not `Sub` and `Div`, whose constants are usually the mean and deviation of data.
            ("Mul", _) if all > 1 => Some(Role::Scale),
            ("Add", _) if all > 1 => Some(Role::Other),
            // The bias of a product with one output.
            ("Add", _) if sizes.len() == 1 => {
                let other = add.model().inputs(node).nth(1 - index).flatten()?;
                match add.model().value(other).producer {
                    Producer::Node(made, _) if name_of(add, made) == "MatMul" => Some(Role::Other),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Returns the name of the operator of `ai.onnx` that a node calls; empty for other nodes.
fn name_of(add: &Addition, node: NodeId) -> &'static str {
    let op = add.resolved().op(node);
    op.filter(|op| op.def.domain.is_empty()).map_or("", |op| op.def.name)
}
