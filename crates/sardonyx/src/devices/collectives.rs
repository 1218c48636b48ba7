//! Collective operators in a model (`AllReduce`, `AllGather` and others): each rank runs a session,
//! and a transport connects the sessions.

use std::borrow::Cow;
use std::sync::Arc;

use sardonyx_devices::{Group, Reduction, Tag, Transport};
use sardonyx_model as graph;
use sardonyx_ops::{Registry, Sizes};
use sardonyx_passes::RuleAnswer;
use sardonyx_runtime::{OperatorCall, OperatorError};
use sardonyx_shard::{
    COLLECTIVE_NUMBER, Collective, CollectiveKind, EXCHANGE_DOMAIN, collectives,
    connect_collectives,
};
use sardonyx_tensor::TensorView;

use super::exchange::{Link, OutputMemory};
use super::team::{self, Team};
use crate::custom::CustomOperator;
use crate::error::{Error, ErrorKind};
use crate::inference::NodeTypes;
use crate::session::{Choices, SessionBuilder};

/// Connection of the session of one rank with the sessions of the other ranks.
#[derive(Debug, Clone)]
pub(crate) struct Rank(Link);

impl Rank {
    /// Connects the session of this rank with the other ranks by `transport`.
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Rank {
        Rank(Link::new(transport))
    }

    /// Fails the sessions of all ranks, because a run of this rank failed with `error`. Returns the
    /// error of the rank that failed first: `error`, or the error that the transport reported.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let cause = self.0.failure();
        self.0.clone_transport().fail(&error.to_string());
        cause.map_or(error, team::worker_error)
    }
}

/// Replaces the collective nodes of a model by operators that run over the transport of `rank`, and
/// compares them with the collectives of the other ranks. A session that only describes a model
/// needs no `rank`.
pub(crate) fn connect(
    model: &mut Cow<'_, graph::Model>,
    choices: &mut Choices,
    rank: Option<&Rank>,
) -> Result<(), Error> {
    let found = collectives(model);
    let transport = rank.map(|rank| rank.0.clone_transport());
    let mut nodes = Vec::with_capacity(found.len());
    let mut counts: Vec<(Vec<usize>, u32)> = Vec::new();
    for collective in &found {
        let workers = match &transport {
            Some(transport) => find_workers(collective, &**transport)?,
            None => Vec::new(),
        };
        let action = Action::new(collective, &workers)?;
        // Ranks may take part in different collectives, but all ranks of a group count the same
        // ones, so the count in the group is part of the tag.
        let at = counts.iter().position(|(group, _)| *group == workers).unwrap_or_else(|| {
            counts.push((workers.clone(), 0));
            counts.len() - 1
        });
        let tag = make_tag(&workers, counts[at].1);
        counts[at].1 += 1;
        nodes.push(Node { workers, action, tag });
    }
    if let Some(transport) = transport.filter(|_| !choices.options.only_looks) {
        agree(transport, &found, &nodes, choices)?;
    }
    if found.is_empty() {
        return Ok(());
    }
    connect_collectives(model.to_mut(), &found);
    let mut names: Vec<&'static str> = found.iter().map(|one| one.operator.name).collect();
    names.sort_unstable();
    names.dedup();
    let nodes = Arc::new(nodes);
    for name in names {
        let domain = found.iter().find(|one| one.operator.name == name);
        let domain = domain.map_or("", |one| one.operator.domain);
        let link = rank.map(|rank| rank.0.clone());
        let operator = CollectiveOperator { domain, name, nodes: Arc::clone(&nodes), link };
        choices.add_operator(EXCHANGE_DOMAIN, name, operator);
    }
    Ok(())
}

/// Returns the ranks that take part in a collective, in ascending order.
fn find_workers(collective: &Collective, transport: &dyn Transport) -> Result<Vec<usize>, Error> {
    let count = transport.workers();
    let mut workers: Vec<usize> = (0..count).collect();
    if !collective.group.is_empty() {
        let named = collective.group.iter();
        let named: Option<Vec<usize>> =
            named.map(|rank| usize::try_from(*rank).ok().filter(|rank| *rank < count)).collect();
        let Some(named) = named.filter(|named| named.is_sorted_by(|a, b| a < b)) else {
            let why = format!(
                "is for the ranks {:?}, which are not ranks below {count} in ascending order",
                collective.group
            );
            return Err(collective_error(collective, ErrorKind::Input, &why));
        };
        if !named.contains(&transport.number()) {
            let why =
                format!("is for the ranks {named:?}, but it runs on rank {}", transport.number());
            return Err(collective_error(collective, ErrorKind::Input, &why));
        }
        workers = named;
    }
    match collective.ranks {
        Some(ranks) if usize::try_from(ranks) != Ok(workers.len()) => {
            let why = format!("is for {ranks} ranks, but {} ranks run the model", workers.len());
            Err(collective_error(collective, ErrorKind::Input, &why))
        }
        _ => Ok(workers),
    }
}

/// Makes an error about a collective node, whose message is the node's name and the predicate
/// `why`.
#[cold]
fn collective_error(collective: &Collective, kind: ErrorKind, why: &str) -> Error {
    Error::new(kind, format!("{} {why}", collective.words))
}

/// Makes the message tag of the `number`-th collective of a group of ranks, from a hash of the
/// group. Tags of two groups that share a rank may collide; then the order of the nodes keeps the
/// messages apart.
fn make_tag(workers: &[usize], number: u32) -> Tag {
    /// Number of different hashes of groups, in the upper 16 bits of a tag.
    const OF_GROUP: u32 = 0xfff0;
    let hash = workers
        .iter()
        .fold(0x811c_9dc5_u32, |hash, worker| (hash ^ *worker as u32).wrapping_mul(0x0100_0193));
    Tag::from((hash % OF_GROUP) << 16 | (number & 0xffff))
}

/// Checks that the collectives in which all ranks take part are equal on all ranks, and sets the
/// random seed of rank 0 on all ranks.
fn agree(
    transport: Arc<dyn Transport>,
    found: &[Collective],
    nodes: &[Node],
    choices: &mut Choices,
) -> Result<(), Error> {
    let count = transport.workers();
    let mut text = format!("sardonyx {}\nranks {count}\n", env!("CARGO_PKG_VERSION"));
    let common = found.iter().zip(nodes).filter(|(_, node)| node.workers.len() == count);
    for (number, (collective, node)) in common.enumerate() {
        let name = collective.operator.full_name();
        text += &format!("collective {number} {name} {:?}\n", node.action);
    }
    if let Some(seed) = choices.options.seed {
        text += &format!("seed {seed}\n");
    }
    let seed = choices.seed();
    choices.options.seed = Some(Team::new(transport).agree(&text, seed)?);
    Ok(())
}

/// Collective node of the model, ready to run.
#[derive(Debug)]
struct Node {
    /// Ranks that take part in the collective, in ascending order.
    workers: Vec<usize>,
    action: Action,
    tag: Tag,
}

/// Operation of a collective operator, with the values of its attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    /// All-reduce: all ranks receive the combined tensor.
    Reduce(Reduction),
    /// All-gather: all ranks receive the tensors of all ranks, concatenated along `axis`.
    Gather { axis: i64 },
    /// Reduce-scatter: each rank receives its share of the rows of the combined tensor.
    ReduceScatter(Reduction),
    /// All-to-all: each rank sends an equal share of its elements to each rank.
    AllToAll,
    /// Broadcast: all ranks receive the tensor of rank `root`.
    Broadcast { root: usize },
}

impl Action {
    /// Finds the operation of a collective in which `workers` take part.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for an unknown operation or reduction, or a root outside of the
    /// group.
    fn new(collective: &Collective, workers: &[usize]) -> Result<Action, Error> {
        Ok(match &collective.kind {
            CollectiveKind::Reduce(name) => Action::Reduce(find_reduction(collective, name)?),
            CollectiveKind::Gather(axis) => Action::Gather { axis: *axis },
            CollectiveKind::ReduceScatter(name) => {
                Action::ReduceScatter(find_reduction(collective, name)?)
            }
            CollectiveKind::AllToAll => Action::AllToAll,
            CollectiveKind::Broadcast(root) => {
                let found = usize::try_from(*root).ok().filter(|root| {
                    workers.is_empty() || collective.group.is_empty() && workers.contains(root)
                });
                let Some(root) = found else {
                    let why = format!("has the root {root}, which is not one of its ranks");
                    return Err(collective_error(collective, ErrorKind::Unsupported, &why));
                };
                Action::Broadcast { root }
            }
            CollectiveKind::Other(name) => {
                let why = format!(
                    "has the operation '{name}', which is not supported; supported are all_reduce, \
                     all_gather, reduce_scatter, all_to_all and broadcast"
                );
                return Err(collective_error(collective, ErrorKind::Unsupported, &why));
            }
        })
    }
}

/// Returns the reduction that an attribute of a collective names: sum, prod, min or max.
fn find_reduction(collective: &Collective, name: &str) -> Result<Reduction, Error> {
    match name {
        "sum" => Ok(Reduction::Sum),
        "prod" => Ok(Reduction::Product),
        "min" => Ok(Reduction::Min),
        "max" => Ok(Reduction::Max),
        _ => {
            let why = format!("has the reduction '{name}', which is not supported");
            Err(collective_error(collective, ErrorKind::Unsupported, &why))
        }
    }
}

/// Custom operator that runs all collective nodes with one operator name; an attribute of the
/// replaced node selects the collective.
struct CollectiveOperator {
    domain: &'static str,
    name: &'static str,
    nodes: Arc<Vec<Node>>,
    link: Option<Link>,
}

impl CustomOperator for CollectiveOperator {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        let number = call.attributes().int(COLLECTIVE_NUMBER);
        let number = number.and_then(|number| usize::try_from(number).ok());
        let node = number.and_then(|number| self.nodes.get(number));
        let (Some(node), Some(link)) = (node, &self.link) else {
            return Err("the session has no transport to the other ranks".into());
        };
        let transport = link.clone_transport();
        let group = Group { workers: &node.workers, tag: node.tag };
        let collective = GroupCall { transport: &*transport, group, link };
        for index in 0..call.input_count().min(call.output_count()) {
            collective.run(node.action, call, index)?;
        }
        Ok(())
    }

    fn infer(&self, node: &mut NodeTypes<'_, '_>) -> RuleAnswer {
        let registry = Registry::with_microsoft();
        match node.infer_by_rule(&registry, self.domain, self.name, 1) {
            Ok(types) => {
                for (index, ty) in types.into_iter().enumerate() {
                    if let Some(ty) = ty {
                        node.set_output(index, ty);
                    }
                }
                RuleAnswer::Inferred
            }
            Err(_) => RuleAnswer::NoRule,
        }
    }

    fn is_deterministic(&self) -> bool {
        // The result depends on other ranks, and they wait for each call: none may be merged with
        // another or computed ahead.
        false
    }
}

/// One execution of a collective: the group of ranks, and the transport and link of this rank.
struct GroupCall<'a> {
    transport: &'a dyn Transport,
    group: Group<'a>,
    link: &'a Link,
}

impl GroupCall<'_> {
    /// Runs the collective on input `index` of its node, and writes output `index`.
    fn run(
        &self,
        action: Action,
        call: &mut OperatorCall<'_, '_>,
        index: usize,
    ) -> Result<(), OperatorError> {
        let GroupCall { transport, group, link } = *self;
        let view = call.tensor(index)?.clone();
        let elem = view.data_type();
        let given =
            view.contiguous_bytes().ok_or("the elements of the input are not contiguous")?;
        let dims: Sizes = view.dims().iter().copied().collect();
        let mut into = OutputMemory::new(call, index);
        let done = match action {
            Action::Reduce(reduction) => {
                let bytes = into.allocate_bytes(elem, &dims)?;
                bytes.copy_from_slice(given);
                transport.all_reduce(group, reduction, elem, bytes)
            }
            Action::Broadcast { root } => {
                let bytes = into.allocate_bytes(elem, &dims)?;
                bytes.copy_from_slice(given);
                transport.broadcast(group, root, bytes)
            }
            Action::Gather { axis } => {
                let from_front = if axis < 0 { axis + dims.len() as i64 } else { axis };
                let axis = usize::try_from(from_front).ok().filter(|axis| *axis < dims.len());
                let axis = axis.ok_or_else(|| {
                    format!("axis {from_front} to concatenate along is out of range")
                })?;
                return self.gather(&view, given, axis, &mut into);
            }
            Action::ReduceScatter(reduction) => {
                let workers = group.workers.len();
                let (Some(rows), true) = (dims.first(), workers > 0) else {
                    return Err("a scalar has no rows to scatter among ranks".into());
                };
                if !rows.is_multiple_of(workers) {
                    return Err(format!("{rows} rows are not divisible by {workers} ranks").into());
                }
                let mut own = dims.clone();
                own[0] /= workers;
                let parts = vec![given.len() / workers; workers];
                let bytes = into.allocate_bytes(elem, &own)?;
                transport.reduce_scatter(group, reduction, elem, given, &parts, bytes)
            }
            Action::AllToAll => {
                let workers = group.workers.len().max(1);
                let elements: usize = dims.iter().product();
                if !elements.is_multiple_of(workers) {
                    let why = format!("{elements} elements are not divisible by {workers} ranks");
                    return Err(why.into());
                }
                let parts = vec![given.len() / workers; workers];
                let bytes = into.allocate_bytes(elem, &dims)?;
                transport.all_to_all(group, given, &parts, bytes, &parts)
            }
        };
        done.map_err(|error| link.to_operator_error(&error))
    }

    /// Concatenates the tensors of all ranks along an axis (all-gather). `given` holds the bytes of
    /// `view`, the tensor of this rank.
    fn gather(
        &self,
        view: &TensorView<'_>,
        given: &[u8],
        axis: usize,
        into: &mut OutputMemory<'_, '_, '_>,
    ) -> Result<(), OperatorError> {
        let GroupCall { transport, group, link } = *self;
        let workers = group.workers.len();
        let parts = vec![given.len(); workers];
        let mut whole: Sizes = view.dims().iter().copied().collect();
        whole[axis] = whole[axis].checked_mul(workers).ok_or("the gathered tensor is too large")?;
        let bytes = into.allocate_bytes(view.data_type(), &whole)?;
        let outer: usize = view.dims()[..axis].iter().product();
        if outer == 1 {
            // The tensors follow each other in the result.
            let gathered = transport.all_gather(group, given, &parts, bytes);
            return gathered.map_err(|error| link.to_operator_error(&error));
        }
        let memory = transport.scratch().take(bytes.len());
        let mut memory = memory.map_err(|error| link.to_operator_error(&error))?;
        let gathered = transport.all_gather(group, given, &parts, &mut memory);
        if gathered.is_ok() && !given.is_empty() {
            let row = given.len() / outer;
            for (number, target) in bytes.chunks_exact_mut(row).enumerate() {
                let (index, worker) = (number / workers, number % workers);
                let start = worker * given.len() + index * row;
                target.copy_from_slice(&memory[start..start + row]);
            }
        }
        transport.scratch().give_back(memory);
        gathered.map_err(|error| link.to_operator_error(&error))
    }
}

impl SessionBuilder<'_> {
    /// Makes the session one of several ranks: the model's collective nodes (`AllReduce`,
    /// `AllGather` and `AllToAll` of ONNX Runtime, `DistCollective` of TensorRT) run over
    /// `transport`. All ranks build their sessions at the same time, of one model or of a model for
    /// each rank, and call `run` equally often. If a run fails on one rank, it fails on all, and so
    /// do all later runs.
    ///
    /// Building the session blocks until all ranks have connected, and fails with
    /// [`ErrorKind::Worker`] if their collectives differ.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sardonyx::device::{Threads, Transport, TransportSettings};
    /// use sardonyx::{Model, RunOptions, Session, Tensor};
    ///
    /// let model = Model::from_text(
    ///     "<ir_version: 10, opset_import: [\"\": 21, \"com.microsoft\": 1]>
    ///      g (float[2] x) => (float[2] y) { y = com.microsoft.AllReduce (x) }",
    /// )?;
    /// std::thread::scope(|scope| {
    ///     for rank in Threads::new(2, &TransportSettings::default()) {
    ///         let model = &model;
    ///         scope.spawn(move || {
    ///             let x = Tensor::from_slice([2], &[1.0, rank.number() as f32]).unwrap();
    ///             let builder = Session::builder(model).transport(Arc::new(rank));
    ///             let session = builder.build().unwrap();
    ///             let outputs = session.run([("x", x)], &RunOptions::default()).unwrap();
    ///             assert_eq!(outputs.tensor("y").unwrap().as_slice::<f32>().unwrap(), [2.0, 1.0]);
    ///         });
    ///     }
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.choices_mut().rank = Some(Rank::new(transport));
        self
    }
}
