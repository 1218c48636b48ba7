//! Random annotations for several devices.

use sardonyx::{Error, Model, Tensor, infer};
use sardonyx_model::{DimValue, GraphId, Model as Graph, NodeId, ValueId};
use sardonyx_passes::{
    FactorSize, NodeAnnotation, ShardedDim, ShardingSpec, SimpleShardedDim, add_configuration,
    annotate_devices,
};
use sardonyx_tensor::Buffer;

/// Generator of random numbers: `SplitMix64` of Steele, Lea, Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x2545_f491_4f6c_dd1d))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Draws a number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).unwrap_or(0)
    }

    /// Draws true with a probability of `of` percent.
    fn percent(&mut self, of: usize) -> bool {
        self.below(100) < of
    }
}

/// Adds a configuration of 1, 2, 3, 4 or 8 devices to a model, and to its nodes random
/// specifications of their operands: mostly possible ones, and some that no value can have.
pub fn annotate_randomly(model: &Model, random: &mut Random) -> Result<Model, Error> {
    let devices = [1, 2, 2, 3, 4, 4, 8][random.below(7)];
    let found = model.infer(&infer::InferOptions::new());
    let mut graph = Graph::read(Buffer::from_vec(model.to_bytes()))
        .expect("a model that is open can be read again");
    add_configuration(&mut graph, "random", devices);
    let Some(main) = graph.main else { return Ok(model.clone()) };
    for node in nodes_in(&graph, main) {
        if !random.percent(80) {
            continue;
        }
        let operands: Vec<ValueId> =
            graph.inputs(node).chain(graph.outputs(node).iter().copied()).flatten().collect();
        let names: Vec<Vec<u8>> =
            operands.iter().map(|value| graph.text(graph.value(*value).name).to_vec()).collect();
        let mut annotation = NodeAnnotation { configuration: b"random", ..Default::default() };
        for name in &names {
            let is_listed = annotation.specs.iter().any(|spec| spec.tensor == name);
            if is_listed || !random.percent(60) {
                continue;
            }
            let text = String::from_utf8_lossy(name);
            let own = graph.node(node).graph;
            let ty = if own == main {
                found.ty(model, &text).cloned()
            } else {
                find_declared_type(&graph, own, name)
            };
            let shape = ty.as_ref().and_then(sardonyx::Type::shape);
            let dims: Option<Vec<usize>> =
                shape.and_then(|shape| shape.iter().map(sardonyx_model::Dim::size).collect());
            annotation.specs.push(draw_spec(name, dims.as_deref(), devices, random));
        }
        if random.percent(15) {
            annotation.stage = Some(i64::try_from(random.below(3)).unwrap_or(0));
        }
        annotate_devices(&mut graph, node, &annotation);
    }
    Model::from_bytes(graph.to_bytes())
}

/// Lists the nodes of a graph and of the graphs in its nodes.
fn nodes_in(graph: &Graph, root: GraphId) -> Vec<NodeId> {
    let mut nodes = graph.graph(root).nodes.clone();
    let mut next = 0;
    while let Some(node) = nodes.get(next).copied() {
        let attributes = graph.attributes(node).iter().map(|id| graph.attribute(*id));
        let inner = attributes.flat_map(|attribute| attribute.graphs());
        nodes.extend(inner.flat_map(|inner| graph.graph(inner).nodes.iter().copied()));
        next += 1;
    }
    nodes
}

/// Returns the type that a graph or an enclosing one declares for a name.
fn find_declared_type(graph: &Graph, inner: GraphId, name: &[u8]) -> Option<sardonyx::Type> {
    let around = |inner: &GraphId| graph.graph(*inner).parent;
    let infos = std::iter::successors(Some(inner), around).flat_map(|inner| {
        let inner = graph.graph(inner);
        inner.inputs.iter().chain(&inner.outputs).chain(&inner.value_info)
    });
    let mut named = infos.filter(|info| info.name.is_some_and(|own| graph.text(own) == name));
    named.find_map(|info| graph.type_of(info.ty.as_ref()?))
}

/// Size of an input that is replaced with a name.
#[derive(Debug)]
pub struct NamedSize {
    pub input: String,
    pub axis: usize,
    pub name: String,
}

/// Replaces some sizes of the inputs of a model with names and removes the sizes of its outputs and
/// inner values. Equal sizes share a name, or each size has one of its own. Returns the model and
/// the named sizes.
pub fn name_sizes(model: &Model, random: &mut Random) -> Result<(Model, Vec<NamedSize>), Error> {
    let mut graph = Graph::read(Buffer::from_vec(model.to_bytes()))
        .expect("a model that is open can be read again");
    let mut found = Vec::new();
    let Some(main) = graph.main else { return Ok((model.clone(), found)) };
    // Such nodes start over in a plan for other sizes, so their numbers would differ from those of
    // a plain session.
    let draws = |node: &NodeId| {
        let op = graph.display(graph.node(*node).op_type);
        op.starts_with("Random") || matches!(&*op, "Bernoulli" | "Multinomial" | "Dropout")
    };
    if graph.graph(main).nodes.iter().any(draws) {
        return Ok((model.clone(), found));
    }
    graph.graph_mut(main).value_info.clear();
    let shares_names = random.percent(50);
    for index in 0..graph.graph(main).inputs.len() {
        let info = graph.graph(main).inputs[index].clone();
        let Some(mut ty) = info.ty else { continue };
        let input = graph.display(info.name).into_owned();
        for (axis, dim) in
            ty.innermost_shape_mut().map(|shape| &mut shape.dims).into_iter().flatten().enumerate()
        {
            let Some(DimValue::Value(size @ 2..)) = dim.value else { continue };
            if random.percent(20) {
                continue;
            }
            let name =
                if shares_names { format!("size{size}") } else { format!("size{index}_{axis}") };
            dim.value = Some(DimValue::Param(graph.intern(&name)));
            found.push(NamedSize { input: input.clone(), axis, name });
        }
        graph.graph_mut(main).inputs[index].ty = Some(ty);
    }
    for output in &mut graph.graph_mut(main).outputs {
        for dim in output
            .ty
            .as_mut()
            .and_then(|ty| ty.innermost_shape_mut())
            .into_iter()
            .flat_map(|s| &mut s.dims)
        {
            dim.value = None;
        }
    }
    Ok((Model::from_bytes(graph.to_bytes())?, found))
}

/// Repeats a tensor along an axis. Returns `None` if its elements are not whole bytes.
pub fn double(tensor: &Tensor, axis: usize) -> Option<Tensor> {
    let size = tensor.data_type().bits().filter(|bits| bits % 8 == 0)? / 8;
    let mut dims = tensor.dims().to_vec();
    let run = dims.get(axis..)?.iter().product::<usize>() * size;
    *dims.get_mut(axis)? *= 2;
    let runs = tensor.bytes().chunks(run.max(1));
    let bytes: Vec<u8> = runs.flat_map(|run| [run, run].concat()).collect();
    Tensor::from_buffer(tensor.data_type(), dims, Buffer::from_vec(bytes)).ok()
}

fn to_signed(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Draws a specification for a tensor.
fn draw_spec<'n>(
    name: &'n [u8],
    dims: Option<&[usize]>,
    devices: usize,
    random: &mut Random,
) -> ShardingSpec<'n> {
    let mut spec = ShardingSpec { tensor: name, ..ShardingSpec::default() };
    let rank = dims.map_or_else(|| random.below(4), <[usize]>::len);
    let mut order: Vec<usize> = (0..devices).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at + 1));
    }
    let mut shards = 1;
    let mut axes: Vec<usize> = (0..rank).collect();
    while !axes.is_empty() && random.percent(65) {
        let axis = axes.swap_remove(random.below(axes.len()));
        let most = devices / shards;
        if most < 2 {
            break;
        }
        let parts = 2 + random.below(most - 1);
        shards *= parts;
        let from_back = random.percent(30);
        let axis_number =
            if from_back { to_signed(axis) - to_signed(rank) } else { to_signed(axis) };
        let size = dims.map(|dims| dims[axis]);
        spec.dims.push(ShardedDim {
            axis: Some(axis_number),
            factors: draw_factors(size, parts, random),
        });
    }
    let groups = devices / shards;
    if shards == 1 && random.percent(20) {
        spec.devices.clear();
    } else if groups > 1 && random.percent(50) {
        for shard in 0..shards {
            let group =
                order[shard * groups..(shard + 1) * groups].iter().map(|one| to_signed(*one));
            let key = -1 - to_signed(shard);
            spec.groups.insert(key, group.collect());
            spec.devices.push(key);
        }
    } else {
        spec.devices.extend(order[..shards].iter().map(|device| to_signed(*device)));
    }
    if random.percent(10) {
        spoil(&mut spec, devices, random);
    }
    spec
}

/// Draws factors that divide an axis into `parts` parts.
fn draw_factors<'n>(
    size: Option<usize>,
    parts: usize,
    random: &mut Random,
) -> Vec<SimpleShardedDim<'n>> {
    let whole = SimpleShardedDim { size: None, num_shards: Some(to_signed(parts)) };
    let Some(size) = size else { return vec![whole] };
    let divisors: Vec<usize> = (2..size).filter(|inner| size % inner == 0).collect();
    if divisors.is_empty() || !random.percent(30) {
        let size = random.percent(50).then(|| FactorSize::Value(to_signed(size)));
        return vec![SimpleShardedDim { size, ..whole }];
    }
    let inner = divisors[random.below(divisors.len())];
    let is_inner = random.percent(50);
    let of = |size: Option<usize>, parts: usize| SimpleShardedDim {
        size: size.map(|size| FactorSize::Value(to_signed(size))),
        num_shards: Some(to_signed(parts)),
    };
    if is_inner {
        vec![of(None, 1), of(Some(inner), parts)]
    } else {
        vec![of(Some(size / inner), parts), of(Some(inner), 1)]
    }
}

/// Makes a specification impossible in one of several ways.
fn spoil(spec: &mut ShardingSpec<'_>, devices: usize, random: &mut Random) {
    match random.below(6) {
        0 => spec.devices.push(0),
        1 => spec.devices = vec![to_signed(devices)],
        2 => spec.dims.push(ShardedDim { axis: Some(9), factors: Vec::new() }),
        3 => spec.devices.iter_mut().for_each(|device| *device = 0),
        4 => spec.dims.iter_mut().for_each(|dim| dim.factors.clear()),
        _ => {
            spec.groups.insert(0, Vec::new());
        }
    }
}
