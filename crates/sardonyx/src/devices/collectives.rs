//! Collectives that the nodes of a model call: each rank runs a model of its own, in a session that
//! a transport connects with those of the others.

use std::borrow::Cow;
use std::sync::Arc;

use sardonyx_devices::{Group, Reduction, Tag, Transport, TransportError};
use sardonyx_model as graph;
use sardonyx_ops::{Registry, Sizes};
use sardonyx_passes::{
    COLLECTIVE_NUMBER, Collective, CollectiveKind, EXCHANGE_DOMAIN, RuleAnswer, collectives,
    connect_collectives,
};
use sardonyx_runtime::{OperatorCall, OperatorError};
use sardonyx_tensor::DataType;

use super::exchange::{Into, Link};
use super::team::{self, Team};
use crate::custom::CustomOperator;
use crate::error::{Error, ErrorKind};
use crate::inference::NodeTypes;
use crate::session::{Choices, SessionBuilder};

/// What connects the session of a rank with those of the others.
#[derive(Debug, Clone)]
pub(crate) struct Rank(Link);

impl Rank {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Rank {
        Rank(Link::new(transport))
    }

    /// Tells the other ranks that a run of this one failed; gives the error of the run, or that of
    /// the rank that failed first.
    pub(crate) fn failed(&self, error: Error) -> Error {
        let cause = self.0.failure();
        self.0.get().fail(&error.to_string());
        cause.map_or(error, team::worker_error)
    }
}

/// Puts operators that the transport serves in the place of the collectives of a model, and finds
/// out whether the other ranks are about to run what fits. A session that is only looked at needs
/// no transport.
pub(crate) fn connect(
    model: &mut Cow<'_, graph::Model>,
    choices: &mut Choices,
    rank: Option<&Rank>,
) -> Result<(), Error> {
    let found = collectives(model);
    let transport = rank.map(|rank| rank.0.get());
    let mut nodes = Vec::with_capacity(found.len());
    let mut counts: Vec<(Vec<usize>, u32)> = Vec::new();
    for collective in &found {
        let workers = match &transport {
            Some(transport) => workers_of(collective, &**transport)?,
            None => Vec::new(),
        };
        let action = action_of(collective, &workers)?;
        // Ranks need not take part in the same collectives: those of each group are counted.
        let at = counts.iter().position(|(group, _)| *group == workers).unwrap_or_else(|| {
            counts.push((workers.clone(), 0));
            counts.len() - 1
        });
        let tag = tag_of(&workers, counts[at].1);
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
        let operator = Connected { domain, name, nodes: Arc::clone(&nodes), link };
        choices.add_operator(EXCHANGE_DOMAIN, name, operator);
    }
    Ok(())
}

/// The workers that take part in a collective, in ascending order.
fn workers_of(collective: &Collective, transport: &dyn Transport) -> Result<Vec<usize>, Error> {
    let count = transport.workers();
    let words = &collective.words;
    let refuse = |why: String| Err(Error::new(ErrorKind::Input, format!("{words} {why}")));
    let mut workers: Vec<usize> = (0..count).collect();
    if !collective.group.is_empty() {
        let named = collective.group.iter();
        let named: Option<Vec<usize>> =
            named.map(|rank| usize::try_from(*rank).ok().filter(|rank| *rank < count)).collect();
        let Some(named) = named.filter(|named| named.is_sorted_by(|a, b| a < b)) else {
            return refuse(format!(
                "is for the ranks {:?}, which are not ranks of {count} in ascending order",
                collective.group
            ));
        };
        if !named.contains(&transport.number()) {
            return refuse(format!(
                "is for the ranks {named:?}; this is rank {}",
                transport.number()
            ));
        }
        workers = named;
    }
    match collective.ranks {
        Some(ranks) if usize::try_from(ranks) != Ok(workers.len()) => {
            refuse(format!("is for {ranks} ranks; {} run the model", workers.len()))
        }
        _ => Ok(workers),
    }
}

/// The tag of the messages of a collective of a group. Groups of which one rank is in both seldom
/// have the same tags; if so, messages arrive in the order of the nodes.
fn tag_of(workers: &[usize], number: u32) -> Tag {
    const OF_GROUP: u32 = 0xfff0;
    let hash = workers
        .iter()
        .fold(0x811c_9dc5_u32, |hash, worker| (hash ^ *worker as u32).wrapping_mul(0x0100_0193));
    Tag::from((hash % OF_GROUP) << 16 | (number & 0xffff))
}

/// Compares what all ranks do together, and lets all draw the same random numbers.
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

/// A collective of the model.
#[derive(Debug)]
struct Node {
    workers: Vec<usize>,
    action: Action,
    tag: Tag,
}

/// What the ranks do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Reduce(Reduction),
    Gather { axis: i64 },
    ReduceScatter(Reduction),
    AllToAll,
    Broadcast { root: usize },
}

fn action_of(collective: &Collective, workers: &[usize]) -> Result<Action, Error> {
    let words = &collective.words;
    let refuse = |why: String| Error::new(ErrorKind::Unsupported, format!("{words} {why}"));
    let reduction = |name: &str| {
        Ok(match name {
            "sum" => Reduction::Sum,
            "prod" => Reduction::Product,
            "min" => Reduction::Min,
            "max" => Reduction::Max,
            _ => return Err(refuse(format!("has the reduction '{name}', which is not supported"))),
        })
    };
    Ok(match &collective.kind {
        CollectiveKind::Reduce(name) => Action::Reduce(reduction(name)?),
        CollectiveKind::Gather(axis) => Action::Gather { axis: *axis },
        CollectiveKind::ReduceScatter(name) => Action::ReduceScatter(reduction(name)?),
        CollectiveKind::AllToAll => Action::AllToAll,
        CollectiveKind::Broadcast(root) => {
            let found = usize::try_from(*root).ok().filter(|root| {
                workers.is_empty() || collective.group.is_empty() && workers.contains(root)
            });
            let root =
                found.ok_or_else(|| refuse(format!("has no root among its ranks: {root}")))?;
            Action::Broadcast { root }
        }
        CollectiveKind::Other(name) => {
            let why = format!(
                "does '{name}', which is not supported: all_reduce, all_gather, reduce_scatter, \
                 all_to_all and broadcast are"
            );
            return Err(refuse(why));
        }
    })
}

/// The collectives of a name.
struct Connected {
    domain: &'static str,
    name: &'static str,
    nodes: Arc<Vec<Node>>,
    link: Option<Link>,
}

impl CustomOperator for Connected {
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError> {
        let number = call.attributes().int(COLLECTIVE_NUMBER);
        let number = number.and_then(|number| usize::try_from(number).ok());
        let node = number.and_then(|number| self.nodes.get(number));
        let (Some(node), Some(link)) = (node, &self.link) else {
            return Err("nothing connects this session with those of other ranks".into());
        };
        let transport = link.get();
        let group = Group { workers: &node.workers, tag: node.tag };
        for index in 0..call.input_count().min(call.output_count()) {
            run(node.action, (&*transport, group), link, (call, index))?;
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
                RuleAnswer::Said
            }
            Err(_) => RuleAnswer::NoRule,
        }
    }

    fn is_deterministic(&self) -> bool {
        // What it gives depends on other ranks, and it runs as often as it stands there.
        false
    }
}

/// Does what a collective does to one of its tensors.
fn run(
    action: Action,
    (transport, group): (&dyn Transport, Group<'_>),
    link: &Link,
    (call, index): (&mut OperatorCall<'_, '_>, usize),
) -> Result<(), OperatorError> {
    let view = call.tensor(index)?.clone();
    let elem = view.data_type();
    let given = view.contiguous_bytes().ok_or("the elements are not dense")?;
    let dims: Sizes = view.dims().iter().copied().collect();
    let failed = |error: TransportError| link.failed(&error);
    let mut into = Into::new(call, index);
    match action {
        Action::Reduce(reduction) => {
            let bytes = into.bytes(elem, &dims)?;
            bytes.copy_from_slice(given);
            transport.all_reduce(group, reduction, elem, bytes).map_err(failed)
        }
        Action::Broadcast { root } => {
            let bytes = into.bytes(elem, &dims)?;
            bytes.copy_from_slice(given);
            transport.broadcast(group, root, bytes).map_err(failed)
        }
        Action::Gather { axis } => {
            let from_front = if axis < 0 { axis + dims.len() as i64 } else { axis };
            let axis = usize::try_from(from_front).ok().filter(|axis| *axis < dims.len());
            let axis = axis.ok_or("the axis is out of range")?;
            gather((transport, group), link, (elem, &dims, axis), given, &mut into)
        }
        Action::ReduceScatter(reduction) => {
            let workers = group.workers.len();
            let (Some(rows), true) = (dims.first(), workers > 0) else {
                return Err("a scalar cannot be scattered".into());
            };
            if !rows.is_multiple_of(workers) {
                return Err(format!("{rows} rows are not divisible by {workers} ranks").into());
            }
            let mut own = dims.clone();
            own[0] /= workers;
            let parts = vec![given.len() / workers; workers];
            let bytes = into.bytes(elem, &own)?;
            let reduced = transport.reduce_scatter(group, (reduction, elem), given, &parts, bytes);
            reduced.map_err(failed)
        }
        Action::AllToAll => {
            let workers = group.workers.len().max(1);
            let elements: usize = dims.iter().product();
            if !elements.is_multiple_of(workers) {
                let why = format!("{elements} elements are not divisible by {workers} ranks");
                return Err(why.into());
            }
            let parts = vec![given.len() / workers; workers];
            let bytes = into.bytes(elem, &dims)?;
            transport.all_to_all(group, (given, &parts), (bytes, &parts)).map_err(failed)
        }
    }
}

/// Concatenates the tensors of all ranks along an axis.
fn gather(
    (transport, group): (&dyn Transport, Group<'_>),
    link: &Link,
    (elem, dims, axis): (DataType, &[usize], usize),
    given: &[u8],
    into: &mut Into<'_, '_, '_>,
) -> Result<(), OperatorError> {
    let workers = group.workers.len();
    let parts = vec![given.len(); workers];
    let mut whole: Sizes = dims.iter().copied().collect();
    whole[axis] = whole[axis].checked_mul(workers).ok_or("the result is too large")?;
    let bytes = into.bytes(elem, &whole)?;
    let outer: usize = dims[..axis].iter().product();
    if outer == 1 {
        // The tensors lie one after the other.
        let gathered = transport.all_gather(group, given, &parts, bytes);
        return gathered.map_err(|error| link.failed(&error));
    }
    let mut memory = transport.scratch().take(bytes.len()).map_err(|error| link.failed(&error))?;
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
    gathered.map_err(|error| link.failed(&error))
}

impl SessionBuilder<'_> {
    /// This session is that of one rank of several, which a transport connects: the collectives of
    /// the model (`AllReduce`, `AllGather` and `AllToAll` of ONNX Runtime, `DistCollective` of
    /// TensorRT) run together with those of the other ranks. Each rank has a model of its own,
    /// or all have the same. All ranks make their sessions at the same time, and call `run` equally
    /// often. If a run of one fails, so do the runs of all, and no session of the ranks can run any
    /// more.
    ///
    /// Making a session waits until all ranks are there, and fails with
    /// [`ErrorKind::Worker`] if their collectives do not fit together.
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
