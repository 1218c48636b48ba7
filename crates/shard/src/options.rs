//! Options of a plan, and the errors of making one.

use std::fmt;

use sardonyx_model::Type;
use sardonyx_passes::{Finding, Rejected};

use crate::resident::Resident;

/// What a plan is made for.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShardOptions<'a> {
    /// The configuration; without it the only one that the model has.
    pub configuration: Option<&'a str>,
    /// The types of inputs, by position, in place of the declared ones.
    pub inputs: &'a [Option<Type>],
    /// Numbers for symbols of the file.
    pub symbols: &'a [(String, i64)],
    /// Symbols of [`inputs`](ShardOptions::inputs) that stay open unless the plan depends on them,
    /// with the numbers that they have then. The plan says for which other numbers it
    /// [holds](Plan::holds). What depends on other symbols is whole. `None` leaves all symbols of
    /// inputs open, and keeps whole what is to be split along them: for a plan to look at.
    pub open: Option<&'a [(String, i64)]>,
    /// Where outputs of the model are to be in the end.
    pub outputs: OutputsAt,
    /// Values that stay on the devices from one run to the next.
    pub residents: &'a [Resident],
    /// Outputs, by position, that nobody is given: they are new values of residents, or nothing.
    pub unreturned: &'a [usize],
    /// Whether `If`, `Loop` and `Scan` run whole, whatever nodes in their graphs say.
    pub whole_bodies: bool,
}

/// Where outputs of a model are when everything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputsAt {
    /// Whole on one device each.
    #[default]
    One,
    /// Whole on all devices.
    All,
    /// Where they are computed: in parts, or whole on some devices.
    Parts,
}

/// Why there is no plan.
#[derive(Debug, Clone)]
pub enum ShardError {
    /// The configuration does not exist, cannot be chosen, or says too little.
    Configuration(String),
    /// What stands against running the model.
    Invalid(Vec<Finding>),
    /// A result that has errors which the model does not have.
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
