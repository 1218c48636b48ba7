//! Interfaces for the products of this project: the command, the Python package and the tests.
//!
//! They are not stable: names and signatures may change with any release.

use std::path::{Path, PathBuf};

use sardonyx_runtime::CompileReport;

use crate::check::{CheckOptions, CheckReport, FillOptions, Finding};
#[cfg(feature = "device")]
use crate::device::{Division, ShardReport};
use crate::edit::InvalidResult;
use crate::infer::{InferOptions, Inferred};
use crate::run::SessionState;
use crate::{Error, Model, Port, RunOptions, Session, SessionBuilder, TensorView, Type, Value};

pub use crate::external::{DataAccess, open_data_file}; // python: onnx.external_data_helper
pub use crate::functions::OperatorFunction; // python: onnx.defs; cli: ops
pub use crate::given::InitializerInfo; // python: adds of initializers
pub use crate::glob::Glob; // cli: --only, --except and other patterns
#[cfg(feature = "images")]
pub use crate::images::Images; // cli: images as inputs of run
pub use crate::load::Loaded; // cli: check, parse
pub use crate::machine::Machine; // cli: info --machine
pub use crate::open::describe_io_error; // cli: messages about files
pub use crate::scores::ScoreOperator; // cli: classes of run
pub use crate::text_parts::{TextPart, parse_part, parse_part_like_onnx}; // python: onnx.parser
#[cfg(feature = "training")]
pub use crate::trainer::TrainingEntry; // cli: info
pub use crate::training::{OptimizerName, OptimizerNumbers}; // cli, python: add-training
pub use crate::versions::parse_version; // cli: set
pub use crate::whole::WholeFile; // cli: outputs; python: infer_shapes_path
#[cfg(feature = "training")]
pub use sardonyx_formats::{npz, safetensors}; // cli: inputs and outputs of run
pub use sardonyx_model::{normalize_domain, shown_domain}; // cli, python: messages and answers
#[cfg(feature = "serde")]
pub use sardonyx_passes::BriefFinding; // cli: inline, infer
pub use sardonyx_passes::codes::{CODES, code}; // cli: check, explain
pub use sardonyx_passes::format_version; // cli: info, diff
pub use sardonyx_passes::{CheckPart, Reference}; // python: onnx.checker; cli: check --json
pub use sardonyx_passes::{NEWEST_IR_VERSION, RELEASES}; // python: onnx.helper; cli: convert --help
pub use sardonyx_passes::{Optimizer, WithoutBody}; // cli, python: add-training, inline
pub use sardonyx_proto::{Encoded, suggest}; // tests: pieces of a model; cli: "did you mean"
pub use sardonyx_runtime::Lend; // capi: outputs in memory of the caller
pub use sardonyx_runtime::{keep_panic_places, rewrites}; // cli, python: panics; cli: explain
pub use sardonyx_tensor::{CastOptions, cast}; // cli: inputs; python: TensorProto to arrays
pub use sardonyx_tensor::{Class, swap_bytes}; // cli: stats; python: arrays
pub use sardonyx_tensor::{Distance, WorstElement, npy}; // cli: run --expect; cli: arrays
pub use sardonyx_text::{DiagnosticSeverity, TextForm, render as render_diagnostics}; // cli: parse

/// Operations and memory of models. Used by cli, `cost`.
pub mod cost {
    pub use crate::cost::{Cost, NodeCost};
    pub use sardonyx_passes::{ASSUMED_SIZE, Sum, Work, at_assumed_sizes};
}

/// Checks of files that are not models. Used by cli, `check`.
pub mod document {
    pub use crate::check::document::{check_document, recognize_document, render_document};
    pub use sardonyx_passes::check::Document;
}

/// Causes of failed and stopped runs, with the node. Used by cli, messages; python, exceptions.
pub mod failure {
    pub use sardonyx_passes::{NodePath, Part as PathPart};
    pub use sardonyx_runtime::{NodeError, StopReason, Stopped};
}

/// Edits of models and the errors that they introduce. Used by cli, `set` and invalid results.
pub mod edits {
    pub use sardonyx_passes::{Edit, JobKind, NewError};
}

/// Generated values of graph inputs. Used by cli, `run` and other commands.
pub mod filling {
    pub use crate::filling::{Filled, OpenDim, Sizes, SplitMix64, find_input_type, matches_name};
}

/// Element types of 8-bit floats. Used by python, `onnx.numpy_helper`.
pub mod float8 {
    pub use sardonyx_tensor::{
        Float8e4m3fn, Float8e4m3fnuz, Float8e5m2, Float8e5m2fnuz, Float8e8m0,
    };
}

/// Details of type and shape inference. Used by cli, `infer`; python, `onnx.shape_inference`.
pub mod infer {
    pub use crate::inference::{Equality, InferRules, Problem, TypeCounts, UnknownValue};
    pub use sardonyx_passes::{Missing, Naming, ProblemKind, Style};
}

/// Protobuf messages without a model. Used by python, messages of `onnx`.
pub mod message {
    pub use crate::inference::{
        NamedMessages, NodeContext, NodeOutputs, infer_function_outputs, infer_node_outputs,
    };
    pub use crate::message::{
        AttributeType, Header, MessagePart, default_from_bytes, default_to_bytes, read,
        read_attribute_type, shape_to_bytes, type_to_bytes, types_from_bytes,
    };
}

/// Steps of a compiled model. Used by cli, `profile` and `explain`; python, profiling.
pub mod profile {
    #[cfg(feature = "device")]
    pub use crate::devices::{DevicePart, DeviceRun, Exchanged};
    pub use sardonyx_passes::Fusion;
    pub use sardonyx_runtime::{OperandDetails, RunDetails, StateUse, StepDetails, StepInfo};
}

/// Definitions of operators. Used by cli, `ops`; python, `onnx.defs`.
pub mod schema {
    pub use sardonyx_ops::{
        Arity, AttrDefault, AttrType, AttrValue, Attribute, Determinism, Differentiability, OpDef,
        Param, Registry, RegistryError, Schema, TypeSet, TypeVar, intern,
    };
}

/// Plans of models on devices. Used by cli, `shard`; python, `sardonyx.ort`; tests.
#[cfg(feature = "device")]
pub mod shard {
    pub use crate::devices::{RankModels, RankOptions};
    pub use sardonyx_devices::{PrivateDirectory, Sent, Traffic};
    pub use sardonyx_shard::{Collectives, EXCHANGE, Plan};
}

/// Unstable methods of [`Model`] for the command, the Python package and the tests.
pub trait ModelExt {
    /// Sets the directory of the data files. Used by python.
    fn set_data_directory(&mut self, directory: impl AsRef<Path>) -> Result<(), Error>;
    /// Encodes the model as a list of byte slices. Used by tests.
    fn encode(&self) -> Encoded<'_>;
    /// Checks one part of the model, such as the nodes of the main graph, by itself. Used by
    /// python.
    fn check_part(&self, part: CheckPart, options: &CheckOptions) -> CheckReport;
    /// Lists violations of the ONNX standard with which a session still runs the model. Used by
    /// cli.
    fn find_tolerated_violations(&self) -> Vec<Finding>;
    /// Fails if edits have added errors to the model. Used by cli, `set`.
    fn check_edits(
        &self,
        before: &Model,
        job: edits::JobKind,
        edits: &[edits::Edit],
    ) -> Result<(), Box<InvalidResult>>;
    /// Infers types; the inference rules of the caller take precedence. Used by python.
    fn infer_with(&self, options: &InferOptions, rules: Option<&dyn infer::InferRules>)
    -> Inferred;
    /// Counts operations and memory of the model. Used by cli, `cost`.
    fn cost(&self, options: &InferOptions) -> cost::Cost;
    /// Makes values for the inputs that are not given. Used by cli.
    fn fill_inputs(
        &self,
        ports: &[Port],
        given: &[(String, Value)],
        options: &FillOptions,
    ) -> Result<filling::Filled, Error>;
    /// Splits the model into one model for each rank. Used by cli, `shard`; python.
    #[cfg(feature = "device")]
    fn rank_models(&self, options: &shard::RankOptions) -> Result<shard::RankModels, Error>;
    /// Explains why a division into shards left the model whole; `None` if it did not. Used by cli,
    /// `shard`; python.
    #[cfg(feature = "device")]
    fn explain_undivided(&self, report: &ShardReport, division: Division) -> Option<String>;
    /// Whether nodes call collective operators. Used by cli, `run --ranks`.
    #[cfg(feature = "device")]
    fn has_collectives(&self) -> bool;
    /// Finds the operator that computes the class scores in a graph output. Used by cli, classes.
    fn find_score_operator(&self, output: &str) -> Option<ScoreOperator>;
    /// Lists the dimensions of a graph input or output that a name such as `?` marks as unknown:
    /// index and name. Used by python.
    fn list_invalid_symbols(&self, name: &str) -> Vec<(usize, String)>;
    /// Describes an initializer of the main graph; `None` if there is none with this name. Used by
    /// python.
    fn initializer(&self, name: &str) -> Option<InitializerInfo>;
    /// Sets the size of the input dimensions with a denotation; returns their number. Used by
    /// python.
    fn fix_denoted_dims(&mut self, denotation: &str, size: usize) -> usize;
    /// Declares the outputs of `DictVectorizer` to have one row; returns the number of changes.
    /// Used by python.
    fn declare_dictionary_rows(&mut self) -> usize;
    /// Describes the first tensor whose `raw_data` does not have the size that type and shape
    /// imply; `None` if there is none. Used by python.
    fn find_wrong_raw_data(&self) -> Option<String>;
    /// Returns the training step of an entry as a model, with state variables as initializers. Used
    /// by cli, `cost`.
    #[cfg(feature = "training")]
    fn training_step_with_state(&self, entry: usize) -> Result<Model, Error>;
    /// Returns the entries of the training information as declared. Used by cli.
    #[cfg(feature = "training")]
    fn training_entries(&self) -> Vec<TrainingEntry>;
    /// Lists the files from which the ONNX text of the model takes tensor values. Used by cli.
    fn list_text_sources(&self) -> Vec<PathBuf>;
}

impl ModelExt for Model {
    fn set_data_directory(&mut self, directory: impl AsRef<Path>) -> Result<(), Error> {
        Model::set_data_directory(self, directory)
    }

    fn encode(&self) -> Encoded<'_> {
        Model::encode(self)
    }

    fn check_part(&self, part: CheckPart, options: &CheckOptions) -> CheckReport {
        Model::check_part(self, part, options)
    }

    fn find_tolerated_violations(&self) -> Vec<Finding> {
        Model::find_tolerated_violations(self)
    }

    fn check_edits(
        &self,
        before: &Model,
        job: edits::JobKind,
        edits: &[edits::Edit],
    ) -> Result<(), Box<InvalidResult>> {
        Model::check_edits(self, before, job, edits)
    }

    fn infer_with(
        &self,
        options: &InferOptions,
        rules: Option<&dyn infer::InferRules>,
    ) -> Inferred {
        Model::infer_with(self, options, rules)
    }

    fn cost(&self, options: &InferOptions) -> cost::Cost {
        Model::cost(self, options)
    }

    fn fill_inputs(
        &self,
        ports: &[Port],
        given: &[(String, Value)],
        options: &FillOptions,
    ) -> Result<filling::Filled, Error> {
        Model::fill_inputs(self, ports, given, options)
    }

    #[cfg(feature = "device")]
    fn rank_models(&self, options: &shard::RankOptions) -> Result<shard::RankModels, Error> {
        Model::rank_models(self, options)
    }

    #[cfg(feature = "device")]
    fn explain_undivided(&self, report: &ShardReport, division: Division) -> Option<String> {
        Model::explain_undivided(self, report, division)
    }

    #[cfg(feature = "device")]
    fn has_collectives(&self) -> bool {
        Model::has_collectives(self)
    }

    fn find_score_operator(&self, output: &str) -> Option<ScoreOperator> {
        Model::find_score_operator(self, output)
    }

    fn list_invalid_symbols(&self, name: &str) -> Vec<(usize, String)> {
        Model::list_invalid_symbols(self, name)
    }

    fn initializer(&self, name: &str) -> Option<InitializerInfo> {
        Model::initializer(self, name)
    }

    fn fix_denoted_dims(&mut self, denotation: &str, size: usize) -> usize {
        Model::fix_denoted_dims(self, denotation, size)
    }

    fn declare_dictionary_rows(&mut self) -> usize {
        Model::declare_dictionary_rows(self)
    }

    fn find_wrong_raw_data(&self) -> Option<String> {
        Model::find_wrong_raw_data(self)
    }

    #[cfg(feature = "training")]
    fn training_step_with_state(&self, entry: usize) -> Result<Model, Error> {
        Model::training_step_with_state(self, entry)
    }

    #[cfg(feature = "training")]
    fn training_entries(&self) -> Vec<TrainingEntry> {
        Model::training_entries(self)
    }

    fn list_text_sources(&self) -> Vec<PathBuf> {
        Model::list_text_sources(self)
    }
}

/// Unstable options of [`SessionBuilder`] for the command and the tests.
pub trait SessionBuilderExt {
    /// Makes a session for inspection, which cannot run. Used by cli, `explain`; tests.
    #[must_use]
    fn inspect_only(self) -> Self;
    /// Disables a rewrite of the compiler by its name. Used by cli, `--without-rewrite`.
    #[must_use]
    fn without_rewrite(self, name: impl Into<String>) -> Self;
    /// Makes the session keep the text of the compiled program after a rewrite. Used by cli,
    /// `explain --program`; tests.
    #[must_use]
    fn print_after(self, rewrite: impl Into<String>) -> Self;
}

impl SessionBuilderExt for SessionBuilder<'_> {
    fn inspect_only(self) -> Self {
        SessionBuilder::inspect_only(self)
    }

    fn without_rewrite(self, name: impl Into<String>) -> Self {
        SessionBuilder::without_rewrite(self, name)
    }

    fn print_after(self, rewrite: impl Into<String>) -> Self {
        SessionBuilder::print_after(self, rewrite)
    }
}

/// Unstable methods of [`Session`]: runs into places of the caller, and descriptions of the
/// compiled model. Used by capi; cli, `explain` and `profile`; python; tests.
pub trait SessionExt {
    /// Runs the model like [`Session::run_lending`], and puts the outputs in places of the caller,
    /// one for each output of the model, so that their list is not allocated.
    ///
    /// # Errors
    ///
    /// The errors of [`Session::run_lending`]; [`ErrorKind::Input`](crate::ErrorKind::Input) for
    /// another number of places.
    fn run_lending_to<'v>(
        &self,
        outputs: &mut [Option<Value>],
        inputs: &'v [(&str, TensorView<'_>)],
        options: &RunOptions<'_>,
        lend: Option<&mut Lend<'_, 'v>>,
    ) -> Result<(), Error>;
    /// Lists the compiled steps in the order in which a run executes them.
    fn steps(&self) -> Vec<profile::StepInfo>;
    /// Returns the counts and times that the compiler reports.
    fn report(&self) -> &CompileReport;
    /// Computes sizes, operations and memory of each compiled step for inputs of the given types.
    fn details<I, N>(&self, inputs: I) -> Result<profile::RunDetails, Error>
    where
        I: IntoIterator<Item = (N, Type)>,
        N: AsRef<str>;
    /// Explains how runs would keep state, for inputs of the given types: by name of the input.
    fn explain_state(
        &self,
        inputs: &[(&str, Type)],
    ) -> Result<Vec<(String, profile::StateUse)>, Error>;
    /// Returns the program text that [`SessionBuilderExt::print_after`] keeps; `None` without it.
    fn program(&self) -> Option<&str>;
    /// Lists the groups of nodes that were fused into one operator, and near misses with the
    /// reason.
    fn fusions(&self) -> &[profile::Fusion];
    /// Lists pairs of names: a compiled step, and a node that is fused into the step.
    fn fused_steps(&self) -> Vec<(String, String)>;
}

impl SessionExt for Session {
    fn run_lending_to<'v>(
        &self,
        outputs: &mut [Option<Value>],
        inputs: &'v [(&str, TensorView<'_>)],
        options: &RunOptions<'_>,
        lend: Option<&mut Lend<'_, 'v>>,
    ) -> Result<(), Error> {
        Session::run_lending_to(self, outputs, inputs, options, lend)
    }

    fn steps(&self) -> Vec<profile::StepInfo> {
        Session::steps(self)
    }

    fn report(&self) -> &CompileReport {
        Session::report(self)
    }

    fn details<I, N>(&self, inputs: I) -> Result<profile::RunDetails, Error>
    where
        I: IntoIterator<Item = (N, Type)>,
        N: AsRef<str>,
    {
        Session::details(self, inputs)
    }

    fn explain_state(
        &self,
        inputs: &[(&str, Type)],
    ) -> Result<Vec<(String, profile::StateUse)>, Error> {
        Session::explain_state(self, inputs)
    }

    fn program(&self) -> Option<&str> {
        Session::program(self)
    }

    fn fusions(&self) -> &[profile::Fusion] {
        Session::fusions(self)
    }

    fn fused_steps(&self) -> Vec<(String, String)> {
        Session::fused_steps(self)
    }
}

/// Unstable methods of [`SessionState`]. Used by python, `SessionState.explain`; tests.
pub trait SessionStateExt {
    /// Explains how a run on inputs of the given types would keep the state: for the name of each
    /// kept input, whether the run appends to it in place, and reasons why it copies earlier rows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Input`](crate::ErrorKind::Input) for a name that no input has, and for types
    /// with which the model contradicts itself.
    fn explain(&self, inputs: &[(&str, Type)]) -> Result<Vec<(String, profile::StateUse)>, Error>;
}

impl SessionStateExt for SessionState {
    fn explain(&self, inputs: &[(&str, Type)]) -> Result<Vec<(String, profile::StateUse)>, Error> {
        SessionState::explain(self, inputs)
    }
}
