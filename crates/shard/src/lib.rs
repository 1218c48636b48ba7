//! Plans for running a model on several devices, from the annotations of its nodes.
//!
//! Annotations are hints: whatever they demand, the model computes the same. The planner walks over
//! the graph in order and decides for each node on which devices it runs, in which form it reads
//! its inputs, and in which form it leaves its outputs ([`Form`]). The annotation of the node
//! decides first, then the forms of its inputs, then the rule of its operator
//! ([`sardonyx_ops::Factors`]); a node without such a rule runs whole. A value that is needed in
//! another form is moved. Annotations that are not honored are listed with the reason.
//!
//! Annotations are defined by the section on devices of the specification and by the proposals 0006
//! and 0007 of ONNX. A plan leaves sizes open along which nothing is split.

mod assign;
mod bodies;
mod candidates;
mod collective_nodes;
mod collectives;
mod constants;
mod form;
#[cfg(feature = "serde")]
mod json_form;
mod local;
mod options;
mod plan;
mod planner;
mod prepare;
mod print;
mod ranges;
mod rank;
mod resident;
mod sizes;
mod spec;
mod suggest;
mod transfers;
mod typed;

pub use bodies::divides_bodies;
pub use candidates::shard;
pub use collective_nodes::{
    COLLECTIVE_NUMBER, Collective, CollectiveKind, collectives, connect_collectives,
};
pub use collectives::{Collectives, NotExpressible};
pub use form::{Device, Form, Place, Split, SplitAxis};
pub use local::{EXCHANGE, EXCHANGE_DOMAIN, EXCHANGE_STEP, Local};
pub use options::{OutputsAt, ShardError, ShardOptions};
pub use plan::{Computed, FormId, Move, NotHonored, Plan, PlanFacts, Step};
pub use prepare::{chosen_configuration, prepare_to_shard};
pub use ranges::{Ranges, Run};
pub use rank::{RankError, lower_ir_version};
pub use resident::Resident;
pub use sizes::Numbers;
pub use suggest::{Division, ShardReport, suggest};
pub use transfers::{Transfer, transfers};
