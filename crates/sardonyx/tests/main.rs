//! Integration tests of this crate in one program: a program per file would link the whole crate
//! each time.
#![allow(clippy::unwrap_used)]

mod collectives;
mod convert;
mod custom;
mod declared_types;
mod device_bodies;
mod device_plans;
mod device_sizes;
mod device_standard;
mod device_training;
mod devices;
mod diff;
mod every_version;
mod functions;
mod given;
mod gradients;
#[cfg(feature = "images")]
mod images;
mod infer;
mod inline;
mod ir_versions;
#[cfg(feature = "serde")]
mod json_form;
#[cfg(unix)]
mod kill;
mod load;
mod messages;
mod old_versions;
mod own_memory;
mod panics;
mod random;
mod rank_models;
mod save;
mod scan;
mod shared;
mod simplify;
mod standard;
mod standard_runs;
mod step_allocations;
mod trainer;
mod training;
mod workers;
