//! Tests of the crate over directories with models.

#![allow(clippy::unwrap_used)]

mod agreement;
mod behaviour;
mod hostile;
mod support;
