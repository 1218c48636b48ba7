//! Integration tests of this crate in one program: a program per file would link the whole crate
//! each time.
#![allow(clippy::unwrap_used)]

#[cfg(feature = "device")]
mod collectives;
mod convert;
mod custom;
mod declared_types;
#[cfg(feature = "device")]
mod device_bodies;
#[cfg(feature = "device")]
mod device_plans;
#[cfg(feature = "device")]
mod device_sizes;
#[cfg(feature = "device")]
mod device_standard;
#[cfg(feature = "device")]
mod device_training;
#[cfg(feature = "device")]
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
#[cfg(all(feature = "serde", feature = "device"))]
mod json_form;
#[cfg(unix)]
mod kill;
mod load;
mod messages;
mod old_versions;
mod own_memory;
mod panics;
mod parts;
mod random;
#[cfg(feature = "device")]
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
#[cfg(feature = "device")]
mod workers;
