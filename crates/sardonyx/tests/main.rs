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
mod kept_state;
mod kill;
mod left_out;
mod load;
mod messages;
mod old_versions;
#[cfg(feature = "training")]
mod own_memory;
#[cfg(feature = "training")]
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
#[cfg(feature = "training")]
mod step_allocations;
#[cfg(feature = "training")]
mod trainer;
#[cfg(feature = "training")]
mod training;
#[cfg(feature = "device")]
mod workers;
