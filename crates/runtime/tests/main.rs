//! Integration tests of this crate as one program: each separate program would link the whole crate
//! once more.
#![allow(clippy::unwrap_used)]

mod border;
mod both_ways;
mod cse;
mod draft;
mod engine;
mod epilogues;
mod errors;
mod expansions;
mod functions;
mod fusions;
mod gates;
mod halves;
mod loops;
mod maps;
mod memory;
mod microsoft;
mod networks;
mod open_sizes;
mod orders;
mod pointwise;
mod quantized_weights;
mod random;
mod regions;
mod residual_norms;
mod run_into;
mod scalars;
mod sequences;
mod state;
mod views;
mod weight_gradients;
mod weights;
