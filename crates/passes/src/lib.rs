//! The jobs: functions from a model (and options) to a model or to findings, one file each.
//!
//! No stability: names and signatures change with any release. Use the crate `sardonyx`.
//!
//! A job does no input or output, works inside subgraphs, and never copies weights. It reports
//! everything that it finds, as [`Finding`]s, not the first thing.

mod addition;
mod align;
mod annotations;
mod attributes;
pub mod check;
mod check_types;
pub mod codes;
mod convert;
mod cost;
mod cross;
mod cse;
mod dead;
mod derivatives;
mod diff;
mod differentiate;
mod expand;
mod extract;
mod finding;
mod flatten;
mod function_id;
mod fuse;
mod infer;
mod inline;
mod ir_version;
#[cfg(feature = "serde")]
mod json_form;
mod matcher;
mod node_path;
pub mod order;
mod origins;
mod pages;
mod pattern;
pub mod payload;
mod reduce;
mod required;
mod resolve;
mod results;
mod same_meaning;
mod sequences;
mod settle;
mod simplify;
mod strip;
mod tolerated;
mod training;
mod upgrade;
mod widen;

pub use addition::import_operator_set;
pub use align::{inline, inline_in_any_order};
pub use annotations::{
    Configuration, FactorSize, NodeAnnotation, ShardedDim, ShardingSpec, SimpleShardedDim,
    add_configuration, annotate_devices, annotations, configurations,
};
pub use check::{CheckOptions, CheckPart, check, check_part};
pub use check_types::check_types;
pub use convert::{
    Assumed, ConvertError, ConvertOptions, ConvertReport, Converted, ConvertedImport,
    ConvertedOperator, RELEASES, Release, Target, convert, convert_in_any_order,
};
pub use cost::{
    ASSUMED_SIZE, CallCosts, Cost, NodeCost, Peak, Sum, Work, at_assumed_sizes, cost,
    cost_of_inferred, node_multiply_adds,
};
pub use cse::{Eliminated, eliminate_common};
pub use dead::{needed, remove_dead};
pub use derivatives::{
    DeriveError, GradientBy, GradientOptions, GradientReport, add_gradients, expand_gradients,
    gradients_in,
};
pub use diff::{
    ConstantChange, DiffOptions, FieldChange, GraphDiff, Impact, ImportChange, MatchedValue,
    ModelDiff, ModelWithData, NodeChange, NodeChangeKind, NodeDetail, PartChange, PortChange,
    PortKind, Spread, TensorChange, VersionAdvice, diff, format_version, match_values,
};
pub use differentiate::{bind_gradients, differentiate};
pub use expand::{
    Expansions, expand_calls, expand_operators, expand_to_split, function_of_call, why_no_function,
};
pub use extract::{Cut, ExtractRefusal, ExtractReport, Extracted, cut_around, extract};
pub use finding::{
    CheckReport, Code, Finding, Findings, InnerSpot, Place, Places, Reference, Severity, Spot,
    SpotPart, name_of_node, place_of_node,
};
pub use flatten::{flatten, without_devices};
pub use function_id::FunctionId;
pub use fuse::{BLIND_IS_NAN, Fusion, fuse};
pub use infer::{
    CallObserver, CalledBody, Conditions, Equality, InferOptions, Inference, Missing, Naming,
    Problem, ProblemKind, RuleAnswer, Rules, Style, Unknown, annotate, declaration,
    find_differences, infer, infer_function, infer_inside, infer_model, infer_node, newer_types,
};
pub use inline::{InlineOptions, InlineRefusal, InlineReport, Inlining, WithoutBody};
pub use ir_version::{
    FormatNeed, NEWEST_IR_VERSION, format_needs, ir_version_of_opset, raise_ir_version,
    set_ir_version,
};
#[cfg(feature = "serde")]
pub use json_form::BriefFinding;
pub use node_path::{NodePath, Part, PathNode};
pub use origins::Origins;
pub use reduce::{CheckAnswer, ReduceOptions, ReduceReport, Reduced, reduce};
pub use resolve::{OpId, Resolved, resolve};
pub use results::{Accepted, Edit, JobInput, JobKind, NewError, NewErrors, Rejected};
pub use sequences::unpack_sequences;
pub use settle::{fix_constants_of_bodies, load_attributes};
pub use simplify::{
    Evaluate, NearMiss, RejectedRewrite, RuleUse, Simplified, SimplifyError, SimplifyLevel,
    SimplifyOptions, SimplifyReport, SimplifyRule, Tally, simplify, simplify_rules,
};
pub use strip::{StripOptions, StripReport, strip};
pub use tolerated::tolerated;
pub use training::{
    Clipping, Initialization, Loss, Optimizer, OptimizerKind, Skipped, TrainingOptions,
    TrainingReport, add_training,
};
pub use upgrade::{NoUpgrade, Upgrade, upgrade};
pub use widen::{Widened, widen};
