//! Options of a plan, and the errors of making one.

use std::fmt;

use sardonyx_model::Type;
use sardonyx_passes::{Finding, Rejected};

use crate::resident::Resident;

/// Options of a plan.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShardOptions<'a> {
    /// Name of the configuration; without it the only one of the model.
    pub configuration: Option<&'a str>,
    /// Types of inputs by position, in place of the declared ones.
    pub inputs: &'a [Option<Type>],
    /// Sizes for symbols of the file.
    pub symbols: &'a [(String, i64)],
    /// Symbols of [`inputs`](ShardOptions::inputs) that stay open unless the plan depends on them,
    /// and the sizes that they have then. [`Plan::holds`](crate::Plan::holds) tests other sizes.
    /// Values whose sizes depend on other symbols stay whole. `None` leaves all symbols of inputs
    /// open and splits nothing along them, which suffices for a plan that is only shown.
    pub open: Option<&'a [(String, i64)]>,
    /// Devices that have the outputs of the model in the end.
    pub outputs: OutputsAt,
    /// Values that stay on the devices from one run to the next.
    pub residents: &'a [Resident],
    /// Positions of outputs that are not returned: new values of residents, or unused ones.
    pub unreturned: &'a [usize],
    /// Whether `If`, `Loop` and `Scan` run whole, whatever the annotations in their graphs are.
    pub whole_bodies: bool,
}

/// Devices that have the outputs of a model after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputsAt {
    /// Each output whole, on one device.
    #[default]
    One,
    /// All outputs whole, on all devices.
    All,
    /// Parts or whole outputs, on the devices that compute them.
    Parts,
}

/// Reasons why a model has no plan.
#[derive(Debug, Clone)]
pub enum ShardError {
    /// The configuration does not exist, is ambiguous, or has no number of devices.
    Configuration(String),
    /// Findings because of which the model cannot run.
    Invalid(Vec<Finding>),
    /// The annotated model has errors that the given model does not have.
    Rejected(Box<Rejected>),
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShardError::Configuration(why) => f.write_str(why),
            ShardError::Invalid(findings) => match findings.first() {
                Some(finding) => write!(f, "{finding}"),
                None => f.write_str("the model cannot be run"),
            },
            ShardError::Rejected(rejected) => rejected.errors.fmt(f),
        }
    }
}

impl std::error::Error for ShardError {}
